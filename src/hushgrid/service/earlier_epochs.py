"""What earlier epochs of a zone, gaps and houses that moved say about the steps of one house.

Earlier epochs of the same terms are one chain with the new one, counted exactly (`of_run`). All
else is forgotten before the first release from readings (`silence`; "Other terms" in
docs/proofs/temporal.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Indices
from hushgrid.accounting.epochs import (
    FORGOTTEN,
    PERIODS,
    anywhere,
    contradict,
    kept_by_silence,
)
from hushgrid.accounting.temporal import leakage_by_houses
from hushgrid.files.deployment import ZoneService
from hushgrid.files.interval_plan import (
    EpochTimes,
    equally_probable,
    laid,
)
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.scheduler import Scheduler
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Scenario
from hushgrid.planning.planner import Task
from hushgrid.service.epoch import first_state, interval_promise, occupancy_digest, roster_digest
from hushgrid.service.ledger.records import (
    EpochRecord,
    LedgerState,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
)
from hushgrid.service.same_terms import (
    CLOSE,
    accepted,
    same_terms,
    with_even_epsilons,
)

_MOST = 50_000  # steps of earlier epochs that are looked at again
DAY = 86_400  # [s]
_AHEAD = 3653 * DAY  # in which models of an interval promise may not contradict each other [s]
_ENDLESS = 1e5  # a leakage like no bound at all


@dataclass(frozen=True, slots=True, eq=False)
class PastEpoch:
    """An epoch with its releases from readings and the steps of it that may be lost.

    Attributes:
        place: Its number among all epochs.
        epoch: Its record.
        releases: Its releases from readings.
        gaps: Its steps that may be lost. Those of other terms have `together`; others end in steps
            from readings.
        reach: The step after the last one in its horizon that has a release of any kind, or may
            have had one.
        last_record: The number of the last record of a release of any kind in its horizon; 0
            without any.
    """

    place: int
    epoch: EpochRecord
    releases: Sequence[ReleaseRecord]
    gaps: Sequence[ResumeRecord]
    reach: int
    last_record: int

    @property
    def since(self) -> float:
        """When the first step began from whose readings something may be published [UTC epoch s].

        Infinite where there is none.
        """
        lost = [max(gap.first, self.read_from) for gap in self.gaps]
        steps = [one.t for one in self.releases] + lost
        return min(steps, default=math.inf) * self.epoch.seconds

    @property
    def read_from(self) -> int:
        """The first step that it may publish from readings."""
        return (self.epoch.forecast_until or 0) // self.epoch.seconds

    @property
    def last(self) -> int:
        """When the last step began from whose readings something may be published [UTC epoch s].

        0 where there is none.
        """
        steps = [one.t for one in self.releases] + [gap.last for gap in self.gaps]
        return int(max(steps, default=0)) * self.epoch.seconds

    @property
    def end(self) -> int:
        """When the last step ended that has a release of any kind, or may have had one."""
        return max(self.last + self.epoch.seconds, self.reach * self.epoch.seconds)

    @property
    def has_read(self) -> bool:
        """Whether it may have published from readings."""
        return bool(self.releases or self.gaps)


def past_epochs(standing: LedgerState) -> list[PastEpoch]:
    """Every epoch that may have published from readings, or anything with an interval promise.

    And every one that published anything after such an epoch, or after a house came: its models
    were true then. In the order of the records. A later record may set an epoch aside that has
    published nothing; what is on record from then on is not of that one, wherever it begins.
    """
    found: list[PastEpoch] = []
    published: dict[int, list[ReleaseRecord]] = {}
    lost: dict[int, list[ResumeRecord]] = {}
    for one in standing.releases:
        published.setdefault(standing.epoch_of(one).seq, []).append(one)
    stated = {(gap.first, gap.last) for gap in standing.gaps if gap.least}  # of any step or epoch
    for gap in standing.booked:
        own = (
            gap if (gap.first, gap.last) not in stated else replace(gap, together=gap.together or 1)
        )
        lost.setdefault(standing.epoch_of(gap).seq, []).append(own)
    for i, epoch in enumerate(standing.epochs):
        releases, gaps = published.get(epoch.seq, []), lost.get(epoch.seq, [])
        steps = [one.t for one in releases[-1:]] + [gap.last for gap in gaps]
        reach = min(max(steps, default=-1) + 1, epoch.first + epoch.horizon)
        read = [one for one in releases if one.source == "readings"]
        last_record = max(
            (one.seq for one in releases if one.t < epoch.first + epoch.horizon), default=0
        )
        whole = PastEpoch(i, epoch, read, gaps, reach, last_record)
        some = [gap for gap in gaps if gap.together is not None or gap.last >= whole.read_from]
        follows = found or any(one.seq < epoch.seq for one in came_in(standing))
        if read or some or (steps and (epoch.interval is not None or follows)):
            found.append(replace(whole, gaps=some))
    return found


def silence(
    service: ZoneService, standing: LedgerState, spans: Sequence[EarlierEpoch] | None = None
) -> tuple[float, float] | None:
    """The time without readings that a new epoch begins with.

    Where a promise is about one step of all releases, or counts from nothing known.

    What was published before is forgotten in the first half under the new epoch's models, and in
    the second what is published after it: a promise before holds for steps in the first half, the
    new one for steps in the second. An epoch that goes on with the same terms needs none. A policy
    that leaves out houses which are all but certain waits after all that was published: it counts
    from nothing known.

    Args:
        service: The zone with the terms that are to begin.
        standing: Its ledger, where the new epoch is not yet recorded.
        spans: Earlier epochs of the same terms, if they were found before.

    Returns:
        (its middle, its end) [UTC epoch s], infinite where models are private or 32 days forget
        too little; None where it is over when the epoch begins, or where none is needed.
    """
    past = past_epochs(standing)
    if service.policy.schedule.negligible:  # who is left out follows from all releases
        last = _last(standing, past)
    elif interval_promise(service) is None:
        last = _promised_until(service, standing, past)
        if last:  # prices since then are of other models, until some are from readings
            silent = (one for one in past if all(each.start < last for each in one.releases))
            last = max([last, *(one.end for one in silent)])
    else:
        if known(service, standing) if spans is None else spans:
            return None
        run = _run(service, standing, past, _MOST)
        read = [span.past.last + service.seconds for span in run.spans]
        last = max([_last(standing, run.before), *read])
    middle, end = forgotten(service, last) if last else (0, 0)
    return (middle, end) if service.begins < end else None


def _promised_until(service: ZoneService, standing: LedgerState, past: Sequence[PastEpoch]) -> int:
    """When the last promise about one step ended that these houses are to be forgotten after.

    Epochs with such a promise, on record or booked as lost, and what was published elsewhere about
    houses that came since; 0 without any, or where these houses were published about since.
    """
    promised = [one.end for one in past if one.epoch.interval is not None]
    last = 0
    if promised or any(gap.interval is not None for gap in standing.booked):
        last = max([*promised, _last(standing, ())])
    same = [one for one in past if one.epoch.roster == roster_digest(service)]
    if any(release.start >= last for one in same for release in one.releases):
        last = 0  # other promises have begun since
    return max([last, *(end for _, end in booked_since(service, standing))])


def _last(standing: LedgerState, past: Iterable[PastEpoch]) -> int:
    """When all of these epochs ended, and what was published elsewhere about houses that came."""
    came = [one.last for one in came_in(standing)]
    return max([0, *came, *(one.end for one in past)])


def booked_since(
    service: ZoneService, standing: LedgerState, *, plain: bool = False
) -> Iterator[tuple[ResumeRecord, int]]:
    """Gaps that were booked after the last release from these houses' readings, to be forgotten.

    Args:
        service: The zone.
        standing: Its ledger.
        plain: Whether those count that are booked with no more than the epoch's own schedule, or
            where no epoch has an interval promise.

    Yields:
        The gap, and when it and that release had ended [UTC epoch s].
    """
    read = [one for one in standing.releases if one.source == "readings"]
    own = roster_digest(service)
    seq = next((one.seq for one in reversed(read) if standing.epoch_of(one).roster == own), 0)
    for gap in standing.booked:
        if gap.seq > seq and (plain or gap.interval is not None):
            last = next((one for one in reversed(read) if one.seq < gap.seq), None)
            ended = 0 if last is None else last.start + standing.epoch_of(last).seconds
            yield gap, max(ended, (gap.last + 1) * standing.epoch_of(gap).seconds)


def forgotten(service: ZoneService, last: int) -> tuple[float, float]:
    """When a zone's models have forgotten what was until `last`, and that once more.

    Args:
        service: The zone.
        last: [UTC epoch s]

    Returns:
        (middle, end) of the silence [UTC epoch s]: two periods of the same length, of 1 to 32 days,
        each of which leaves at most 1e-7 of a leakage; infinite where none does. The first reading
        after it may depend on occupancy where its block of steps began, in the second period.
    """
    seconds = service.seconds
    start = -(-last // seconds) * seconds
    never = service.learned.private or contradicts_itself(service, start)
    block = max(service.policy.schedule.lengths, default=1) - 1
    for days in () if never else PERIODS:
        steps = days * DAY // seconds
        middle = start + days * DAY
        halves = ((start, steps), (middle, steps - block))
        if steps > block and all(
            kept_by_silence(_models(service, at, n), 1, 1 + n, starts=False) <= FORGOTTEN
            for at, n in halves
        ):
            return middle, middle + days * DAY
    return math.inf, math.inf


def contradicts_itself(service: ZoneService, start: int) -> bool:
    """Whether models contradict each other about a house at any time of a week.

    Args:
        service: The zone.
        start: Where the week begins [UTC epoch s].

    Returns:
        True if so: which model is right is then never forgotten.
    """
    week = 7 * DAY // service.seconds + 1
    return contradict(anywhere(_models(service, start, week)), week)


def contradict_each_other(service: ZoneService) -> bool:
    """Whether models contradict each other about a house at any time from its epoch's begin on.

    Args:
        service: The zone with the laws that its epoch begins with.

    Returns:
        True if so within ten years, with all changes of the clock that are known.
    """
    models = service.scenario.models
    if len(models) < 2 or not any(model.has_zeros for model in models):
        return False
    steps = _AHEAD // service.seconds
    longer = zip(_models(service, service.begins, steps), models, strict=True)
    pieces = [(one, [equally_probable(piece) for piece in own.chains]) for one, own in longer]
    return contradict([replace(one, chains=tuple(chains)) for one, chains in pieces], steps)


# ---- the same terms again


@dataclass(frozen=True, slots=True, eq=False)
class EarlierEpoch:
    """An earlier epoch whose terms are known.

    Attributes:
        service: The zone as it ran then.
        past: The epoch with its releases.
        continues: Whether an epoch of the same terms before it is left out.
    """

    service: ZoneService
    past: PastEpoch
    continues: bool = False


def known(service: ZoneService, standing: LedgerState) -> list[EarlierEpoch]:
    """Earlier epochs of the same terms, back to where what was published before is forgotten.

    How far that is depends on the releases since: the leakage with what may come in from older
    epochs must be that without it. Where they follow something else, silence must have preceded
    them, or they are not known.

    Args:
        service: The zone with the terms that are to begin.
        standing: Its ledger.

    Returns:
        The epochs in the order of the records; none for a zone without an interval promise.
    """
    promised = interval_promise(service)
    if promised is None:
        return []
    past, steps = past_epochs(standing), service.memory or _MOST
    while True:
        run = _run(service, standing, past, min(steps, _MOST))
        spans = run.spans if run.is_apart else []
        if not spans or not spans[0].continues or steps >= _MOST:
            return spans
        inflow = _inflow(past, spans, promised)
        without = _continued(service, past, spans, 0.0).found
        found_with, beyond = _continued(service, past, spans, inflow)
        if beyond <= _least(past, promised) and all(
            one - other <= FORGOTTEN * promised
            for (one, _), (other, _) in zip(found_with, without, strict=True)
        ):
            return spans
        steps *= 2


def _least(past: Sequence[PastEpoch], promised: float) -> float:
    """A leakage that counts for no promise, the smallest one included."""
    each = (one.epoch.interval for one in past)
    return FORGOTTEN * min([promised, *(one for one in each if one is not None)])


class _Run(NamedTuple):
    """The last epochs of the same terms.

    Attributes:
        spans: They in order. Where nothing is from readings, the chain begins there all the same.
        before: All epochs before them; of one that lost releases of other terms, that part.
        is_apart: Whether there are spans, and silence before them.
    """

    spans: list[EarlierEpoch]
    before: Sequence[PastEpoch]
    is_apart: bool


def _run(
    service: ZoneService, standing: LedgerState, past: Sequence[PastEpoch], steps: int
) -> _Run:
    """The epochs of the same terms that begin so many steps before the new one, or more.

    One without a promise about an interval is none of them: it may have followed anything. Nor is
    one whose models differ from these at times that its digest does not cover. They go
    back no further than silence that is on record (with what published forecasts alone in it or
    before it), a house that came, or where releases that may be lost and are of other terms were
    booked.
    """
    found, before, first = list[EarlierEpoch](), list(past), service.begins // service.seconds
    since: float = service.begins
    waited = False
    while before and not (waited and before[-1].has_read):
        one = before[-1]
        epoch = one.epoch
        then = _in_chain(service, standing, epoch)
        if then is None:
            break
        span = EarlierEpoch(then, one)
        other = _last_of_others(span)
        has_read = one.has_read or any(each.past.has_read for each in found)
        far = found and has_read and first - found[0].past.epoch.first >= steps
        if far and not other and _has_settled(service, standing, before, found[0]):
            found[0] = replace(found[0], continues=True)
            return _Run(found, before, True)
        if other:  # what is on record after it was booked
            before[-1], rest = _parted(one, other)
            span = replace(span, past=rest)
        found.insert(0, span)
        since = min(since, span.past.since)
        if other:
            break
        before.pop()
        waited |= epoch.forecast_until is not None and since >= epoch.forecast_until
    if waited:
        return _Run(found, before, True)
    last = _last(standing, before)
    apart = found and (not last or since >= forgotten(found[0].service, last)[1])
    return _Run(found, before, bool(apart))


def _has_settled(
    service: ZoneService, standing: LedgerState, before: Sequence[PastEpoch], span: EarlierEpoch
) -> bool:
    """Whether an epoch before has begun the chain so early that its law has settled at `span`."""
    since = span.past.epoch.first - _settles(span.service)
    for one in reversed(before):
        then = _in_chain(service, standing, one.epoch)
        if then is None or _last_of_others(EarlierEpoch(then, one)):
            return False
        if one.last_record and one.epoch.first <= since:
            return True
    return False


def _settles(service: ZoneService) -> int:
    """Steps after which the law of occupancy has settled where an epoch begins."""
    day = DAY // service.seconds
    if service.memory is None:  # not from this day on, but in the whole of the longest wait
        return (2 * PERIODS[-1] + 1) * day
    return service.memory + day  # what is possible where it begins follows from the day before


def _in_chain(
    service: ZoneService, standing: LedgerState, epoch: EpochRecord
) -> ZoneService | None:
    """The zone in an earlier epoch, if it can be one chain with the zone as it is now."""
    came = max((one.seq for one in standing.transfers if one.direction == "in"), default=0)
    if epoch.seq < came or epoch.seconds != service.seconds:
        return None
    if epoch.interval is None:  # another promise
        return None
    if epoch.occupancy not in (None, occupancy_digest(service)):
        return None
    if epoch.roster != roster_digest(service):
        return None
    return same_terms(service, epoch.digest, epoch.first, epoch.horizon)


def has_begun(service: ZoneService, standing: LedgerState) -> bool:
    """Whether the chain of a zone's terms has begun: the last price is of one of its epochs.

    Args:
        service: The zone with an interval promise.
        standing: Its ledger.

    Returns:
        False also where that price may be lost, or prices of other terms after it.
    """
    for one in reversed(past_epochs(standing)):
        then = _in_chain(service, standing, one.epoch)
        if then is None:
            return False
        other = _last_of_others(EarlierEpoch(then, one))
        if other or one.last_record:
            return one.last_record > other
    return False


def _last_of_others(span: EarlierEpoch) -> int:
    """The number of the last record by which releases of other terms are booked; 0 without any."""
    return max((gap.seq for gap in span.past.gaps if _own_gap(span, gap) is None), default=0)


def _parted(one: PastEpoch, seq: int) -> tuple[PastEpoch, PastEpoch]:
    """What an epoch has on record up to a record, and after it."""
    releases = [release for release in one.releases if release.seq <= seq]
    gaps = [gap for gap in one.gaps if gap.seq <= seq]
    later = replace(
        one,
        releases=[release for release in one.releases if release.seq > seq],
        gaps=[gap for gap in one.gaps if gap.seq > seq],
        last_record=one.last_record if one.last_record > seq else 0,
    )
    return replace(one, releases=releases, gaps=gaps, reach=0), later


def _inflow(past: Sequence[PastEpoch], spans: Sequence[EarlierEpoch], promised: float) -> float:
    """The most that older epochs of the same terms say about the first step: what they allow."""
    if not spans[0].continues:
        return 0.0
    older = [one for one in past if one.place < spans[0].past.place]
    return _held(older[-1], promised)


def _held(one: PastEpoch, promised: float) -> float:
    """What holds for the steps of an epoch when the next one begins, also if its prices are lost.

    Args:
        one: The epoch.
        promised: What the zone promises, where the epoch promised nothing about an interval.
    """
    own = one.epoch.interval
    return max(promised if own is None else own, accepted(one.epoch))


def _allowed(chain: Sequence[PastEpoch], promised: float) -> float:
    """What holds for the steps of the first of some epochs: its promise, or what they accepted.

    Args:
        chain: The epoch and those of the same terms that published after it. What one accepted
            without a price on record in its horizon is no room for others.
        promised: As for `_held`.
    """
    own = chain[0].epoch.interval
    each = [accepted(one.epoch) for one in chain if one.last_record]
    return max([promised if own is None else own, *each])


def of_run(
    service: ZoneService,
    standing: LedgerState,
    past: Sequence[PastEpoch],
    spans: Sequence[EarlierEpoch],
) -> list[tuple[float, float]]:
    """(leakage, what is allowed) of the new epoch, then of known ones that it adds to."""
    promised = interval_promise(service)
    assert promised is not None
    inflow = _inflow(past, spans, promised) if spans else 0.0
    if not spans:  # in a wait: nothing is from readings, but the law begins there
        run = _run(service, standing, past, service.memory or _MOST).spans
        spans = [] if any(one.past.has_read for one in run) else run
    found, beyond = _continued(service, past, spans, inflow)
    if spans and spans[0].continues and beyond > _least(past, promised):  # no more was looked at
        older = [one for one in past if one.place < spans[0].past.place]
        most = max(_held(one, promised) for one in older) + beyond
        found.append((most, min(_allowed([one], promised) for one in older)))
    if not spans or spans[0].continues:
        return found
    # the law that it begins with may be that of the first epoch which is known to have published
    sure = next((k for k, one in enumerate(spans) if one.past.last_record), len(spans) - 1)
    chains = [spans[k:] for k in range(1, sure + 1)]
    lost = any(gap.together is not None for one in past for gap in one.gaps)
    if spans[0].past.place or came_in(standing) or lost:  # after others: or the settled one
        chains.append([replace(spans[0], continues=True), *spans[1:]])
    for chain in chains:
        other = [one for one, _ in _continued(service, past, chain, 0.0).found]
        other[1:1] = [0.0] * (len(found) - len(other))  # epochs before that chain
        found = [(max(a, b), most) for (a, most), b in zip(found, other, strict=True)]
    return found


class _Continued(NamedTuple):
    """A chain with the new epoch.

    Attributes:
        found: (Leakage, what is allowed) of the new epoch, then of known ones that it adds to.
        beyond: What the new epoch adds where the chain is cut, under any one model: no more than
            that to any step before.
    """

    found: list[tuple[float, float]]
    beyond: float


def _continued(
    service: ZoneService,
    past: Sequence[PastEpoch],
    spans: Sequence[EarlierEpoch],
    inflow: float,
) -> _Continued:
    """One chain through all epochs that are known, in local time.

    Where an epoch of the same terms precedes them, or there are none and other terms precede, the
    chain begins so much earlier that the law of occupancy has settled.
    """
    pattern, promised = service.pattern, interval_promise(service)
    assert pattern is not None
    assert promised is not None
    seconds = service.seconds
    first = spans[0].past.epoch.first if spans else service.begins // seconds
    settles = _settles(spans[0].service if spans else service)  # it may differ by the day
    begin = first - (settles if not spans or spans[0].continues else 0)
    new = service.begins // seconds - begin
    steps = new + service.policy.horizon
    world = laid(pattern, EpochTimes(begin * seconds, seconds, steps, service.time_zone))
    worlds = [world]
    if inflow > FORGOTTEN * promised and any(model.has_zeros for model in world.models):
        # who is certain where this chain begins need not have been so before
        worlds.append(replace(world, models=anywhere(world.models)))
    worst, beyond, earlier, least = 0.0, 0.0, np.zeros(new), _least(past, promised)
    more = np.zeros(steps)
    more[first - begin] = min(inflow, _ENDLESS)
    published = [
        (
            span.service,
            span.past.epoch.first - begin,
            {t - begin + 1: b for t, b in _scales_then(span).items()},
        )
        for span in spans
    ]
    published.append((service, new, {new + t: b for t, b in _scales(service).items()}))
    lengths = _blocks_of_steps(published, steps)
    for each in worlds:
        rows = _Rows(each, steps, lengths)
        for then, _, scales in published:
            rows.add(then, scales)
        kinds, class_of = rows.grouped()
        whole = leakage_by_houses(each.models, kinds, class_of, more, lengths=lengths)
        old = np.arange(steps) < new
        before = leakage_by_houses(
            each.models, kinds * old[:, None], class_of, more * old, lengths=lengths
        )
        for (_, _, one), (_, _, other) in zip(whole, before, strict=True):
            adds = one[:new] > other[:new] + least
            earlier = np.maximum(earlier, np.where(adds, one[:new], 0.0).max(axis=1))
            worst = max(worst, float(one[new:].max()))
        for model in each.models if begin < first else ():  # each: the largest hides the others
            totals = [
                leakage_by_houses(model, some, class_of, lengths=lengths)
                for some in (kinds, kinds * old[:, None])
            ]
            for (_, _, one), (_, _, other) in zip(*totals, strict=True):
                beyond = max(beyond, float((one - other)[first - begin].max()))
    found = [(worst, promised)]
    since = [epoch for epoch in past if spans and epoch.place >= spans[0].past.place]
    starts = [epoch.epoch.first * epoch.epoch.seconds // seconds - begin for epoch in since]
    for k, (start, end) in enumerate(pairwise([*starts, new])):
        part = earlier[max(start, 0) : end]
        found.append((float(part.max(initial=0.0)), _allowed(since[k:], promised)))
    counted = [(one if one < _ENDLESS else math.inf, allowed) for one, allowed in found]
    return _Continued(counted, beyond)


def most_lost(service: ZoneService, scheduler: Scheduler, t: int) -> float:
    """The most that a release of a step loses about any house, also one that its epoch leaves out.

    Args:
        service: The zone in an epoch.
        scheduler: The epoch's scheduler.
        t: The epoch's step, from 1.

    Returns:
        The loss whatever anyone consumes: infinite where houses are published without noise, and
        where noise below eta = 1 follows demand that reacts to rates. Among epochs with an interval
        promise a house need not be certain where one begins: every step counts with at least the
        policy's epsilon, which its noise is planned for.
    """
    if not scheduler.ahead:
        return math.inf
    least = 0.0 if interval_promise(service) is None else service.policy.epsilon
    return max(scheduler.most(t), scheduler.at(t).epsilon_any, least)


def most_lost_in(service: ZoneService, scheduler: Scheduler, steps: Iterable[int]) -> list[float]:
    """The most that releases of some steps lose: each its own, a block of steps all of it once.

    Args:
        service: The zone in an epoch.
        scheduler: The epoch's scheduler.
        steps: The epoch's steps, from 1.

    Returns:
        As `most_lost`, for every block that the steps touch.
    """
    by_block = {service.policy.schedule.span(t): t for t in steps}
    return [most_lost(service, scheduler, t) for t in by_block.values()]


def _own_gap(span: EarlierEpoch, gap: ResumeRecord) -> dict[int, float] | None:
    """The scale [Wh] of each step of a gap, if no more than the epoch's own releases is booked.

    And if nothing else is on record for them: after two histories a step was published twice.
    """
    epoch, scheduler = span.past.epoch, first_state(span.service).scheduler
    steps = range(gap.first, min(gap.last + 1, epoch.first + epoch.horizon))
    own = math.fsum(most_lost_in(span.service, scheduler, map(epoch.step, steps)))
    twice = {one.t for one in span.past.releases}.union(
        *(range(one.first, one.last + 1) for one in span.past.gaps if one is not gap)
    )
    read = range(max(gap.first, span.past.read_from), steps.stop)
    if gap.together is not None or gap.epsilon > own * (1 + CLOSE) or twice & set(read):
        return None
    return {t: scheduler.at(epoch.step(t)).scale for t in read}


def _scales_then(span: EarlierEpoch) -> dict[int, float]:
    """The scale [Wh] of every step that was published, or may be, under the terms of its epoch."""
    found = {t: b for gap in span.past.gaps for t, b in (_own_gap(span, gap) or {}).items()}
    return found | {one.t: one.scale for one in span.past.releases}


def _blocks_of_steps(
    published: Sequence[tuple[ZoneService, int, Mapping[int, float]]], steps: int
) -> tuple[int, ...]:
    """Blocks of a chain's steps, each up to its last release; none without any.

    Readings may depend on occupancy where the block began, whether or not that has a release.

    Args:
        published: The zone in each epoch, the steps before it, and scales by the chain's steps.
        steps: The steps of the chain.
    """
    if not any(one.policy.schedule.lengths for one, _, _ in published):
        return ()
    found, end = list[int](), 0
    for one, before, scales in published:
        blocks = {one.policy.schedule.span(t - before)[0]: t for t in sorted(scales)}
        for first, last in blocks.items():
            found += [1] * (first + before - 1 - end) + [last - first - before + 1]
            end = last
    return (*found, *[1] * (steps - end))


class _Rows:
    """Losses of every house from releases of several epochs of one chain."""

    def __init__(self, world: Scenario, steps: int, lengths: tuple[int, ...] = ()) -> None:
        self._world, self._steps, self._lengths = world, steps, lengths
        self._row = np.zeros(self._steps, np.intp)
        self._found: list[Floats] = [np.zeros(world.zone.n_houses)]  # of steps without a release

    def add(self, service: ZoneService, scales: Mapping[int, float]) -> None:
        """Releases at these scales [Wh] by step, under the policy of that epoch."""
        world = self._world
        policy = replace(with_even_epsilons(service.policy), horizon=self._steps)
        if n := len(self._lengths):
            policy = replace(policy, schedule=Blocks(self._lengths, (policy.epsilon,) * n))
        task = Task((world.models, world.zone, world.consumption), world.tariff, policy)
        scheduler = task.scheduler
        known: dict[tuple[int, float], int] = {}
        for t, scale in scales.items():
            key = (id(scheduler.booked(t)), scale)
            if key not in known:
                known[key] = len(self._found)
                self._found.append(scheduler.losses(t, scale)[task.kinds.kind_of])
            self._row[t - 1] = known[key]

    def grouped(self) -> tuple[Floats, Indices]:
        """Losses (T, classes), and the class of every house."""
        kinds, class_of = np.unique(np.array(self._found), axis=1, return_inverse=True)
        return kinds[self._row], class_of.ravel()


def _scales(service: ZoneService) -> dict[int, float]:
    """The scale [Wh] of every step of the new epoch."""
    state = first_state(service)
    return {t: state.scheduler.at(t).scale for t in range(1, service.policy.horizon + 1)}


# ---- houses that moved, or move together


def came_in(standing: LedgerState) -> list[TransferRecord]:
    """Transfers by which houses came that something was published about elsewhere."""
    return [one for one in standing.transfers if one.direction == "in" and one.total]


def together(service: ZoneService) -> int:
    """The most houses that move together: states of a block differ in that many.

    Args:
        service: The zone.

    Returns:
        The houses of its largest block.
    """
    return max(piece.size for model in service.scenario.models for piece in model.chains)


def moves_alone(service: ZoneService, standing: LedgerState) -> bool:
    """Whether each house of a zone moves on its own, now and in every epoch that published.

    Of an epoch that was lost this is not asked: a transfer that was lost with it is repeated.

    Args:
        service: The zone.
        standing: Its ledger.

    Returns:
        True if so.
    """
    each = (one.epoch.together for one in past_epochs(standing))
    return max([together(service), *each]) == 1


def _models(service: ZoneService, start: int, steps: int) -> Sequence[OccupancyModel]:
    """Theta from `start` [s] until so many steps after it."""
    if service.pattern is None:
        ago = (service.begins - start) // service.seconds
        return [model.starting(-ago) for model in service.scenario.models]
    place = EpochTimes(start, service.seconds, steps + 1, service.time_zone)
    return laid(service.pattern, place).models


def own_leakage(service: ZoneService) -> float:
    """Leakage as it was planned; of the epoch on its own, for a zone that is not from a file."""
    if service.leakage is not None:
        return service.leakage
    models, lengths = service.scenario.models, service.policy.schedule.lengths
    rows = _Rows(service.scenario, service.policy.horizon, lengths)
    rows.add(service, _scales(service))
    past = leakage_by_houses(models, *rows.grouped(), lengths=lengths)
    return max(float(total.max()) for _, _, total in past)
