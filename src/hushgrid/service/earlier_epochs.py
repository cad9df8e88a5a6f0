"""What earlier epochs of a zone, gaps and houses that moved say about the steps of one house.

Earlier epochs of the same terms are one chain with the new one, counted exactly (`of_run`). Of
other terms, or terms that are not known, the records bound it (`of_others`; "Other terms" in
docs/proofs/temporal.md): every release counts with what it loses whatever anyone consumes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from hushgrid._numbers import Floats, Indices
from hushgrid.accounting.epochs import (
    FORGOTTEN,
    PERIODS,
    anywhere,
    kept_by_silence,
    kept_by_steps,
    kept_within,
)
from hushgrid.accounting.events import booked
from hushgrid.accounting.temporal import leakage_by_houses
from hushgrid.files.deployment import ZoneService
from hushgrid.files.interval_plan import (
    EpochTimes,
    laid,
)
from hushgrid.mechanism.policy import Blocks, Policy
from hushgrid.mechanism.scheduler import Scheduler
from hushgrid.model.occupancy import Calendar, OccupancyModel
from hushgrid.model.zone import Scenario
from hushgrid.planning.planner import Task
from hushgrid.service.epoch import first_state, roster_digests
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
    interval_promise,
    same_terms,
    with_even_epsilons,
)

_MOST = 50_000  # steps of earlier epochs that are looked at again
DAY = 86_400  # [s]
_ENDLESS = 1e5  # a leakage like no bound at all
_EQUAL = 1 - 1e-9  # a loss and the same by another sum
_MOST_TOGETHER = 12  # houses of a block, where it is not on record: 13 would have 8,192 states
ALWAYS = 2**53 - 1  # a time [UTC epoch s] that never comes


@dataclass(frozen=True, slots=True, eq=False)
class PastEpoch:
    """An epoch with its releases from readings and the steps of it that may be lost."""

    place: int  # among all epochs
    epoch: EpochRecord
    releases: Sequence[ReleaseRecord]
    gaps: Sequence[ResumeRecord]
    until: int  # the step after its last one

    @property
    def seq(self) -> int:
        """The first record after which its roster is fixed."""
        return min([one.seq for one in self.releases] + [one.seq for one in self.gaps])

    def sources(self, seconds: int) -> list[tuple[int, float]]:
        """(time [s], the most that it loses, whatever anyone consumes) of all it published.

        The time is that of the state which it is about: in steps of other lengths, their end. A
        gap counts at its last step: a lost epoch may have gone on after this one's horizon.
        """
        wait = self.epoch.seconds if self.epoch.seconds != seconds else 0
        latest = self.releases[::-1]  # of a block of steps the last release has its loss
        each = booked(latest, loss=attrgetter("epsilon_any"))
        found = [(one.start + wait, loss) for one, loss in zip(latest, each, strict=True)]
        return found + [(gap.last * self.epoch.seconds + wait, gap.epsilon) for gap in self.gaps]

    @property
    def beyond(self) -> float:
        """What its promise leaves out: releases that lose more where laws are not those published.

        Below eta = 1 a promise rests on laws of consumption; it also leaves out certain houses.
        """
        latest = [one for one in self.releases[::-1] if one.epsilon < one.epsilon_any * _EQUAL]
        return math.fsum(booked(latest, loss=attrgetter("epsilon_any")))

    @property
    def booked(self) -> float:
        """All that is booked for steps that may be lost; its promise need not cover them."""
        return math.fsum(gap.epsilon for gap in self.gaps)

    def end(self, seconds: int, to: int) -> int:
        """The time [s] of its last step before `to` [s], or of the last that it published."""
        wait = self.epoch.seconds if self.epoch.seconds != seconds else 0
        last = min((self.until - 1) * self.epoch.seconds + wait, to - (0 if wait else seconds))
        return max([last, *(time for time, _ in self.sources(seconds))])


def past_epochs(standing: LedgerState) -> list[PastEpoch]:
    """Every epoch that may have published from readings or has promised something for its steps.

    In the order of the records. A later record may set an epoch aside that has published nothing;
    what is on record from then on is not of that one, wherever it begins.
    """
    found: list[PastEpoch] = []
    published: dict[int, list[ReleaseRecord]] = {}
    lost: dict[int, list[ResumeRecord]] = {}
    for one in standing.releases:
        if one.source == "readings":
            published.setdefault(standing.epoch_of(one).seq, []).append(one)
    stated = {(gap.first, gap.last) for gap in standing.gaps if gap.least}  # of any step or epoch
    for gap in standing.booked:
        own = (
            gap if (gap.first, gap.last) not in stated else replace(gap, together=gap.together or 1)
        )
        lost.setdefault(standing.epoch_of(gap).seq, []).append(own)
    for i, epoch in enumerate(standing.epochs):
        releases, gaps = published.get(epoch.seq, []), lost.get(epoch.seq, [])
        later = [one.first * one.seconds // epoch.seconds for one in standing.epochs[i + 1 :]]
        end = min([epoch.first + epoch.horizon, *later])
        if releases or gaps or (epoch.interval is not None and end > epoch.first):
            found.append(PastEpoch(i, epoch, releases, gaps, end))
    return found


def _allowed(
    standing: LedgerState, one: PastEpoch, promised: float, until: int | None = None
) -> float:
    """What holds for an epoch's steps: its promise, or what was accepted since it began.

    Args:
        standing: the zone's ledger.
        one: the epoch.
        promised: its promise.
        until: the number of an epoch at which to stop; by default all count.
    """
    return max([promised, *map(accepted, standing.epochs[one.place : until])])


def windows_end(standing: LedgerState, length: int = 0, epsilon: float = math.inf) -> int:
    """When no window that an epoch of a zone promises reaches back to what it published.

    Args:
        standing: The zone's ledger.
        length: A window [s] that also counts what was lost before it.
        epsilon: What that window may lose. It keeps the promise about every window that is not
            longer and allows no less.

    Returns:
        [UTC epoch s]; 0 without such an epoch.
    """
    until = 0
    for one in past_epochs(standing):
        epoch = one.epoch
        if epoch.window is None or epoch.window_epsilon is None:
            continue
        window = epoch.window * epoch.seconds
        if length < window or epsilon > epoch.window_epsilon:
            until = max(until, max(time for time, _ in one.sources(epoch.seconds)) + window)
    return until


def counts_until(service: ZoneService, end: int) -> int:
    """When what was published until `end` counts for no promise of an epoch about its own steps.

    Args:
        service: The zone in that epoch.
        end: [UTC epoch s]

    Returns:
        [UTC epoch s]; `end` where the epoch promises neither a window nor an interval, `ALWAYS`
        where no silence takes off a leakage.
    """
    schedule, until = service.policy.schedule, float(end)
    if schedule.adaptive:
        until = end + schedule.shared_by * service.seconds
    if interval_promise(service) is not None:
        until = max(until, end + memory_of(service, end))
    return int(min(until, ALWAYS))


def memory_of(service: ZoneService, start: int) -> float:
    """Silence from `start` on that leaves nothing of a leakage [s]; infinite beyond 32 days."""
    first = DAY // service.seconds + 1
    for days in PERIODS:
        steps = days * DAY // service.seconds
        models = _models(service, start, steps)
        if kept_by_silence(models, first, first + steps, starts=False) <= FORGOTTEN:
            return days * DAY
    return math.inf


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
    epochs must be that without it. An epoch that published nothing has no part in it, whatever its
    terms; its steps are judged with the others. Below eta = 1 that is so for the same terms alone.

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
        spans = _since(service, standing, past, min(steps, _MOST))
        if not spans or not spans[0].continues or steps >= _MOST:
            return spans
        inflow = _run_inflow(service, standing, past, spans)
        without = _continued(service, standing, past, spans, 0.0)
        found_with = _continued(service, standing, past, spans, inflow)
        if all(
            one - other <= FORGOTTEN * promised
            for (one, _), (other, _) in zip(found_with, without, strict=True)
        ):
            return spans
        steps *= 2


def _since(
    service: ZoneService, standing: LedgerState, past: Sequence[PastEpoch], steps: int
) -> list[EarlierEpoch]:
    """The last epochs of the same terms that begin so many steps before the new one, or more.

    A house that came back had other models meanwhile: what was before that is of other terms.
    """
    found, first = list[EarlierEpoch](), service.begins // service.seconds
    came = max((one.seq for one in standing.transfers if one.direction == "in"), default=0)
    for one in reversed(past):
        epoch = one.epoch
        silent = not (one.releases or one.gaps)
        if silent and (epoch.interval is None or service.policy.eta == 1):
            continue
        same = epoch.seconds == service.seconds and epoch.roster in roster_digests(service)
        then = same_terms(service, epoch.digest, epoch.first, epoch.horizon) if same else None
        if then is None or epoch.seq < came:
            break  # also a promise that need not rest on these laws
        if silent:
            continue
        if found and first - found[0].past.epoch.first >= steps:
            found[0] = replace(found[0], continues=True)
            break
        found.insert(0, EarlierEpoch(then, one))
    return found


def _before(past: Sequence[PastEpoch], spans: Sequence[EarlierEpoch]) -> list[PastEpoch]:
    """The epochs before those of the same terms."""
    return [one for one in past if not spans or one.place < spans[0].past.place]


def of_run(
    service: ZoneService,
    standing: LedgerState,
    past: Sequence[PastEpoch],
    spans: Sequence[EarlierEpoch],
) -> list[tuple[float, float]]:
    """(leakage, what is allowed) of the new epoch, then of known ones that it adds to."""
    promised = interval_promise(service)
    assert promised is not None
    if not spans:
        own = own_leakage(service)
        if service.leakage is not None:  # planned, so no more than promised
            own = max(own, promised)
        inflow = _inflow(service, standing, past, service.begins, None)
        return [(own + inflow, promised)]
    return _continued(service, standing, past, spans, _run_inflow(service, standing, past, spans))


def _run_inflow(
    service: ZoneService,
    standing: LedgerState,
    past: Sequence[PastEpoch],
    spans: Sequence[EarlierEpoch],
) -> float:
    """The most that all before a run of the same terms says about its first step."""
    run = spans[0].past
    to = run.epoch.first * service.seconds
    return _inflow(service, standing, _before(past, spans), to, run)


def _continued(
    service: ZoneService,
    standing: LedgerState,
    past: Sequence[PastEpoch],
    spans: Sequence[EarlierEpoch],
    inflow: float,
) -> list[tuple[float, float]]:
    """One chain through all epochs that are known, in local time.

    Where an epoch of the same terms precedes them, the chain begins so much earlier that the law
    of occupancy has settled.
    """
    pattern, promised = service.pattern, interval_promise(service)
    assert pattern is not None
    assert promised is not None
    first, seconds = spans[0].past.epoch.first, service.seconds
    begin = first - ((service.memory or 0) if spans[0].continues else 0)
    new = service.begins // seconds - begin
    steps = new + service.policy.horizon
    world = laid(pattern, EpochTimes(begin * seconds, seconds, steps, service.time_zone))
    worlds = [world]
    if inflow > FORGOTTEN * promised and any(model.has_zeros for model in world.models):
        # who is certain where this chain begins need not have been so before
        worlds.append(replace(world, models=anywhere(world.models)))
    worst, earlier = 0.0, np.zeros(new)
    booked = [each for span in spans for each in _otherwise(span, promised)]
    booked = [(min(last - begin, new), lost) for last, lost in booked]
    more = np.zeros(steps)
    more[first - begin] = min(inflow, _ENDLESS)
    for last, lost in booked:
        more[last] += min(lost, _ENDLESS)
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
            adds = one[:new] > other[:new] + FORGOTTEN * promised
            earlier = np.maximum(earlier, np.where(adds, one[:new], 0.0).max(axis=1))
            worst = max(worst, float(one[new:].max()))
    for last, lost in booked:  # lost at any step until then
        until = earlier[: last + 1]
        until += np.where(until > 0, lost, 0.0)
    found = [(worst, promised)]
    since = [epoch for epoch in past if epoch.place >= spans[0].past.place]
    starts = [epoch.epoch.first * epoch.epoch.seconds // seconds - begin for epoch in since]
    for epoch, start, end in zip(since, starts, [*starts[1:], new], strict=True):
        own = promised if epoch.epoch.interval is None else epoch.epoch.interval
        part = earlier[max(start, 0) : end]
        found.append((float(part.max(initial=0.0)), _allowed(standing, epoch, own)))
    return [(one if one < _ENDLESS else math.inf, allowed) for one, allowed in found]


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
    epoch, scheduler = span.past.epoch, first_state(span.service, span.past.epoch.digest).scheduler
    steps = range(gap.first, min(gap.last + 1, epoch.first + epoch.horizon))
    own = math.fsum(most_lost_in(span.service, scheduler, map(epoch.step, steps)))
    twice = {one.t for one in span.past.releases}.union(
        *(range(one.first, one.last + 1) for one in span.past.gaps if one is not gap)
    )
    if gap.together is not None or gap.epsilon > own * (1 + CLOSE) or twice & set(steps):
        return None
    return {t: scheduler.at(epoch.step(t)).scale for t in steps}


def _scales_then(span: EarlierEpoch) -> dict[int, float]:
    """The scale [Wh] of every step that was published, or may be, under the terms of its epoch."""
    found = {t: b for gap in span.past.gaps for t, b in (_own_gap(span, gap) or {}).items()}
    return found | {one.t: one.scale for one in span.past.releases}


def _otherwise(span: EarlierEpoch, promised: float) -> list[tuple[int, float]]:
    """(last step, loss of any house) of gaps in which releases of other terms may be lost.

    Houses that moved together then: each lost what all of them did, and what later releases say
    of one of them they say of the others.
    """
    found = []
    for gap in span.past.gaps:
        if _own_gap(span, gap) is None:
            n = gap.together or 1
            more = (n - 1) * together(span.service) * promised
            found.append((gap.last, n * gap.epsilon + more))
    return found


def _blocks_of_steps(
    published: Sequence[tuple[ZoneService, int, Mapping[int, float]]], steps: int
) -> tuple[int, ...]:
    """Blocks of a chain's steps, each from its first release to its last; none without any.

    Args:
        published: The zone in each epoch, the steps before it, and scales by the chain's steps.
        steps: The steps of the chain.
    """
    if not any(one.policy.schedule.lengths for one, _, _ in published):
        return ()
    found, end = list[int](), 0
    for one, before, scales in published:
        blocks = dict[tuple[int, int], list[int]]()
        for t in sorted(scales):
            blocks.setdefault(one.policy.schedule.span(t - before), []).append(t)
        for own in blocks.values():
            found += [1] * (own[0] - 1 - end) + [own[-1] - own[0] + 1]
            end = own[-1]
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
        scheduler = Task(
            (world.models, world.zone, world.consumption), world.tariff, policy
        ).scheduler
        known: dict[tuple[int, float], int] = {}
        for t, scale in scales.items():
            key = (id(scheduler.booked(t)), scale)
            if key not in known:
                known[key] = len(self._found)
                self._found.append(scheduler.losses(t, scale))
            self._row[t - 1] = known[key]

    def grouped(self) -> tuple[Floats, Indices]:
        """Losses (T, classes), and the class of every house."""
        kinds, class_of = np.unique(np.array(self._found), axis=1, return_inverse=True)
        return kinds[self._row], class_of.ravel()


def _scales(service: ZoneService) -> dict[int, float]:
    """The scale [Wh] of every step of the new epoch."""
    state = first_state(service)
    return {t: state.scheduler.at(t).scale for t in range(1, service.policy.horizon + 1)}


# ---- other terms, or terms that are not known


def of_others(
    service: ZoneService,
    standing: LedgerState,
    past: Sequence[PastEpoch],
    spans: Sequence[EarlierEpoch],
) -> list[tuple[float, float]]:
    """(leakage, what is allowed) of earlier epochs of other terms that have an interval promise.

    What is on record for such an epoch holds before the new one begins, but for what is booked as
    lost since. All its steps are judged, also those without a release. A run of the same terms
    that is planned for any number of epochs was counted at its promise when it began.
    """
    before = _before(past, spans)
    judged = [(one, one.epoch.interval) for one in before if one.epoch.interval is not None]
    if spans and all(one.memory is not None for one in (service, *(s.service for s in spans))):
        return []
    if not judged:
        return []
    forward = _forward(service)
    if spans:  # each of them on its own
        forward += math.fsum(_anyway(span.service) for span in spans)
    to = spans[0].past.epoch.first * service.seconds if spans else service.begins
    fading, then, now = (
        _Fading(service, standing, before, to),
        _together_then(service, before),
        together(service),
    )
    everything = math.fsum(loss for one in past for _, loss in one.sources(service.seconds))
    everything += max((_bound(one, one.total) for one in standing.moved.values()), default=0.0)
    found = []
    for one, promised in judged:
        allowed = _allowed(standing, one, promised)
        lost = math.fsum(other.booked for other in past if other.place >= one.place)
        cap = allowed if one.releases or one.gaps else everything
        worst = 0.0
        for came, goes in fading.steps(one.end(service.seconds, to), forward * now):
            adds = then * goes
            held = min(allowed, everything * then * now, _carried(cap * then * now, came))
            if adds > CLOSE * allowed:  # else what was lost is not what the new epoch adds to
                held += _carried(lost * then * now, came)
            worst = max(worst, held + adds)
        found.append((worst, allowed))
    return found


def _inflow(
    service: ZoneService,
    standing: LedgerState,
    before: Sequence[PastEpoch],
    to: int,
    run: PastEpoch | None,
) -> float:
    """The most that earlier epochs, and what houses brought along, say about the step at `to` [s].

    Every release counts with what it loses whatever anyone consumes. What holds for the steps of
    an epoch of the same roster bounds all releases until its end, but for what is booked as lost;
    it says nothing of houses that the epoch left out. Where houses moved together, the new releases
    about one of them speak of the others too.
    """
    fading, then, now = (
        _Fading(service, standing, before, to),
        _together_then(service, before),
        together(service),
    )
    losses = [math.fsum(loss for _, loss in one.sources(service.seconds)) for one in before]
    bounds = [math.fsum(losses)]
    for i, one in enumerate(before):
        same = one.epoch.roster in roster_digests(service)
        if same and one.epoch.interval is not None and (one.releases or one.gaps):
            until = None if run is None else run.place
            holds = _allowed(standing, one, one.epoch.interval, until)
            bounds.append(math.fsum([holds, one.beyond, one.booked, *losses[i + 1 :]]))
    came = now * then * min(bounds)
    if then > 1:
        came += now * (then - 1) * fading.left(_forward(service) * now)
    moves = [one for one in standing.transfers if run is None or one.seq < run.seq]
    if then == 1:  # else what a house brought counts for those that stay, too
        moves = list({one.house: one for one in moves}.values())
    here = [one for one in moves if one.direction == "in"]
    shares = [(one, fading.share(came_at(standing, one, to))) for one in here]
    brought = [_through(_bound(one, one.leakage) * now, share) for one, share in shares]
    return fading.left(came) + (max(brought, default=0.0) if then == 1 else math.fsum(brought))


def _bound(came: TransferRecord, figure: float) -> float:
    """A figure of a house that came; infinite where it moved together with others.

    A version before this one recorded such transfers. What is published here about the house says
    something of the others.
    """
    return math.inf if came.together else figure


def came_at(standing: LedgerState, came: TransferRecord, to: int) -> int:
    """When the last release elsewhere about a house was at the latest [s].

    A transfer of an earlier version has no time; the next release has one.
    """
    if came.last is not None:
        return came.last
    return min((one.published_at for one in standing.releases if one.seq > came.seq), default=to)


def said_at_last(service: ZoneService, early: float, late: Sequence[tuple[int, float]]) -> float:
    """The most that is said about a house at the last of some steps of an epoch.

    Proof: docs/proofs/temporal.md, "A house that moves".

    Args:
        service: The zone in that epoch.
        early: All that was lost before the epoch.
        late: (step, loss) in the epoch, in order.

    Returns:
        The leakage; all of it where models are private, since how fast they forget is not public.
    """
    if not late or service.learned.private:
        return early + math.fsum(loss for _, loss in late)
    first, day = service.begins // service.seconds, DAY // service.seconds
    steps = late[-1][0] - first
    kept = kept_by_steps(_models(service, service.begins, steps), day + 1, day + 1 + steps)
    least, after = math.inf, 0.0
    for t, loss in reversed(late):
        share = float(kept[t - first])
        least = min(least, after + _widest(share))  # whatever there was until this step
        after += _carried(loss, share)
    return min(least, after + _through(early, float(kept[0])))


def _carried(leakage: float, share: float) -> float:
    return leakage * share if share > 0 else 0.0


def _through(leakage: float, share: float) -> float:
    """What is left of a leakage after steps that leave this share."""
    return min(_carried(leakage, share), _widest(share))


def together(service: ZoneService) -> int:
    """The most houses that move together: states of a block differ in that many.

    Args:
        service: The zone.

    Returns:
        The houses of its largest block.
    """
    return max(piece.size for model in service.scenario.models for piece in model.chains)


def moved_alone(service: ZoneService, past: PastEpoch) -> bool:
    """Whether each house moves on its own, now and in an earlier epoch with what it lost.

    Args:
        service: The zone.
        past: The epoch.

    Returns:
        False also where an epoch of an earlier version has other terms and does not state it.
    """
    return max([1, *(gap.together or 1 for gap in past.gaps)]) == 1 and _alone_in(service, past)


def _alone_in(service: ZoneService, past: PastEpoch) -> bool:
    """The same of the releases alone, whatever the epoch lost."""
    one = past.epoch
    if max(together(service), one.together or 1) > 1:
        return False
    return one.together is not None or _has_terms_of(service, one)


def _has_terms_of(service: ZoneService, epoch: EpochRecord) -> bool:
    """Whether an epoch has the terms of a zone, at whatever time."""
    return epoch.digest == first_state(service, epoch.digest).digest or (
        same_terms(service, epoch.digest, epoch.first, epoch.horizon) is not None
    )


def moves_alone(service: ZoneService, standing: LedgerState) -> bool:
    """Whether each house of a zone moves on its own, now and in every epoch that published.

    Of an epoch that was lost this is not asked: a transfer that was lost with it is repeated.

    Args:
        service: The zone.
        standing: Its ledger.

    Returns:
        False also where an epoch of an earlier version has other terms and does not state it.
    """
    each = past_epochs(standing)
    return together(service) == 1 and all(_alone_in(service, one) for one in each)


def _together_then(service: ZoneService, before: Sequence[PastEpoch]) -> int:
    """The same of earlier epochs; where it is not on record, the most that models can have."""
    found = [1]
    for one in before:
        found += [gap.together or 1 for gap in one.gaps]
        if one.epoch.together is not None:
            found.append(one.epoch.together)
        elif one.epoch.roster in roster_digests(service):
            found.append(min(len(service.meters), _MOST_TOGETHER))
        else:
            found.append(_MOST_TOGETHER)
    return max(found)


class _Fading:
    """What silence takes off a leakage, under the new epoch's models.

    They hold since the last step before `to` [s] at which something was published, elsewhere too
    about a house that came; of the time before that the models are not known, and nothing fades.
    Time beyond 32 days takes nothing off.
    """

    def __init__(
        self, service: ZoneService, standing: LedgerState, before: Sequence[PastEpoch], to: int
    ) -> None:
        seconds, longest = service.seconds, PERIODS[-1] * DAY // service.seconds
        self._service, self._to, self._day, self._longest = service, to, DAY // seconds, longest
        times = [time for one in before for time, _ in one.sources(seconds)]
        came = [one for one in standing.transfers if one.direction == "in"]
        times += [min(came_at(standing, one, to), to) for one in came if before]
        starts = [one.epoch.first * one.epoch.seconds for one in before]
        self._last = min(max(times, default=min(starts, default=to)), to)
        self._quiet = min((to - self._last) // seconds, longest)
        self._silence, self._any = self._silent(self._quiet), bool(before)

    def left(self, leakage: float) -> float:
        """What is left at `to` of a leakage about the last step, or back."""
        return _through(leakage, self._silence) if self._any else 0.0

    def share(self, time: int) -> float:
        """The share of a leakage about the step at a time [s] that is left at `to`."""
        if self._any and time <= self._last:
            return self._silence
        steps = max(min((self._to - time) // self._service.seconds, self._longest), 0)
        return self._silent(steps)

    def _silent(self, steps: int) -> float:
        """The share that is left after so many steps before `to` without a release."""
        start, first = self._to - steps * self._service.seconds, self._day + 1
        models = _models(self._service, start, steps)
        return kept_by_silence(models, first, first + steps, starts=False)

    def steps(self, until: int, forward: float) -> list[tuple[float, float]]:
        """For the step at `until` [s] or, where it is after the last one, for all between them.

        Returns:
            The share that is left there of what was published until the last one, and what is left
            of a leakage `forward` about the step at `to`.
        """
        if until <= self._last:
            return [(1.0, self.left(forward))]
        seconds, first = self._service.seconds, self._day + 1
        if until >= self._to:
            return [(1.0, forward)]
        start = self._to - self._quiet * seconds
        models, step = _models(self._service, start, self._quiet), max(until - start, 0) // seconds
        came, goes = kept_within(models, first, first + self._quiet, first + step)
        return [
            (a, _through(forward, b)) for a, b in zip(came.tolist(), goes.tolist(), strict=True)
        ]


def _widest(share: float) -> float:
    """The most that passes through steps which leave this share."""
    return 4 * math.atanh(share) if share < 1 else math.inf


def _models(service: ZoneService, start: int, steps: int) -> Sequence[OccupancyModel]:
    """Theta from a day before `start` [s] until so many steps after it.

    Where models are private: chains that never move, under which no leakage fades. What is counted
    is recorded in public, and what is possible by declaration fades sooner than homes do.
    """
    seconds, day = service.seconds, DAY // service.seconds
    if service.learned.private:
        return _still(service.scenario.models)
    if service.pattern is None:
        ago = (service.begins - start) // seconds
        return [model.starting(-(day + ago)) for model in service.scenario.models]
    place = EpochTimes(start - day * seconds, seconds, day + steps + 1, service.time_zone)
    return laid(service.pattern, place).models


def _still(models: Sequence[OccupancyModel]) -> list[OccupancyModel]:
    """Models of the same houses in which nothing ever changes."""
    found = []
    for model in models:
        pieces = (
            replace(piece, transition=np.broadcast_to(np.eye(n), (1, len(piece.initial), n, n)))
            for piece in model.chains
            for n in (piece.initial.shape[1],)
        )
        found.append(replace(model, chains=tuple(pieces), calendar=Calendar.constant()))
    return found


def _forward(service: ZoneService) -> float:
    """The most that the new epoch, and others of its terms, say about the step it begins with.

    Whatever anyone consumes: an earlier promise need not rest on the laws of this epoch.
    """
    promised = interval_promise(service)
    if promised is not None and service.policy.eta == 1:
        return max(own_leakage(service), promised)
    if not _is_known_ahead(service.policy):
        return math.inf
    world = service.scenario
    models = _still(world.models) if service.learned.private else world.models
    world = replace(world, models=anywhere(models))
    lengths = service.policy.schedule.lengths
    later = np.zeros(service.policy.horizon)
    if promised is not None:  # others of its terms follow, at losses that the promise is not about
        later[-1] = _ENDLESS
    past = leakage_by_houses(world.models, *_any_losses(service, world), later, lengths=lengths)
    found = max(float(total[0].max()) for _, _, total in past)
    return found if found < _ENDLESS else math.inf


def _is_known_ahead(policy: Policy) -> bool:
    """Whether every release has a finite loss that is known before the first."""
    known = policy.schedule.known_ahead
    return known and policy.on_empty == "protect_all" and policy.blocks == "block"


def _own_losses(service: ZoneService, world: Scenario) -> tuple[Floats, Indices]:
    return _losses_at(service, world, _scales(service))


def _any_losses(service: ZoneService, world: Scenario) -> tuple[Floats, Indices]:
    """The losses whatever anyone consumes."""
    anyway = replace(service, policy=replace(service.policy, eta=1.0))
    return _losses_at(anyway, world, _scales(service))


def _losses_at(
    service: ZoneService, world: Scenario, scales: Mapping[int, float]
) -> tuple[Floats, Indices]:
    rows = _Rows(world, service.policy.horizon, service.policy.schedule.lengths)
    rows.add(service, scales)
    return rows.grouped()


def _anyway(service: ZoneService) -> float:
    """Leakage of an epoch about its own steps, whatever anyone consumes."""
    if service.policy.eta == 1:
        return own_leakage(service)
    models, lengths = service.scenario.models, service.policy.schedule.lengths
    past = leakage_by_houses(models, *_any_losses(service, service.scenario), lengths=lengths)
    return max(float(total.max()) for _, _, total in past)


def own_leakage(service: ZoneService) -> float:
    """Leakage as it was planned; of the epoch on its own, for a zone that is not from a file."""
    if service.leakage is not None:
        return service.leakage
    models, lengths = service.scenario.models, service.policy.schedule.lengths
    past = leakage_by_houses(models, *_own_losses(service, service.scenario), lengths=lengths)
    return max(float(total.max()) for _, _, total in past)
