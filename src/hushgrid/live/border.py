"""Where one epoch follows another: what all their releases say about one interval of one house.

Leakage does not end where an epoch does. Before a new one begins, its schedule is counted together
with what earlier epochs really published. Where the earlier terms can be made again from the
service file (another `begins` or horizon), that is exact: one chain goes on. Where they cannot, the
records alone bound what comes in and what goes back; see `_unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hushgrid.accounting.epochs import FORGOTTEN, PERIODS, kept_by_silence
from hushgrid.accounting.temporal import leakage_by_houses
from hushgrid.errors import LedgerError
from hushgrid.live.deployment import Deployment, ZoneService
from hushgrid.live.ledger.standing import Epoch, Published, Standing
from hushgrid.live.ledger.stores import open_store
from hushgrid.live.ledger.stores.ports import LedgerStore
from hushgrid.live.placing import Place, as_before, in_epoch, kept, laid, planned_otherwise
from hushgrid.live.terms import first_state, roster_digest
from hushgrid.planning import Task
from hushgrid.policy import Policy
from hushgrid.simulation import Scenario

Floats = NDArray[np.float64]

_CLOSE = 1e-6  # relative: what a plan's search and its run leave open
_MOST = 50_000  # steps of earlier epochs that are looked at again
_DAY = 86_400  # [s]


@dataclass(frozen=True, slots=True)
class Border:
    """Leakage about one interval of one house once the new epoch is published.

    Attributes:
        leakage: the largest of the new epoch's steps, and of earlier steps that it adds to.
        holds: whether every epoch's promise still holds.
        exact: whether the earlier terms were known; else `leakage` is an upper bound.
    """

    leakage: float
    holds: bool
    exact: bool


def opening(service: ZoneService, standing: Standing) -> dict[str, float]:
    """What the record of a new epoch states about leakage: nothing without an interval promise.

    Args:
        service: the zone with the terms that are to begin.
        standing: its ledger, where the new epoch is not yet recorded.

    Returns:
        The promise as `interval`, and as `leakage` the figure that was counted. Without an
        interval promise only a figure that was accepted for the epoch before.

    Raises:
        LedgerError: a promise would be exceeded, and the operator has not accepted the figure.
    """
    promised, spans = _promised(service), known(service, standing)
    found = border(service, standing, spans)
    if found is not None and not found.holds and found.leakage > (service.accepts or 0.0):
        raise LedgerError(_refusal(service, standing, found, spans))
    if promised is None:
        return {} if found is None or found.holds else {"leakage": found.leakage}
    own = _alone(service) if service.leakage is None else service.leakage
    return {"interval": promised, "leakage": max(own, 0.0 if found is None else found.leakage)}


def border(
    service: ZoneService, standing: Standing, spans: Sequence[Span] | None = None
) -> Border | None:
    """Count the zone's new epoch together with what its ledger holds.

    Args:
        service: the zone with the terms that are to begin.
        standing: its ledger, where the new epoch is not yet recorded.
        spans: earlier epochs of the same terms, if they were found before.

    Returns:
        The account; None where no epoch has an interval promise, or nothing was published yet.
    """
    promised, old = _promised(service), _epochs(standing)
    if not old or (promised is None and old[-1][0].interval is None):
        return None
    if service.begins // service.seconds <= standing.last_t:
        return None  # refused for that
    if spans is None:
        spans = known(service, standing)
    return _continued(service, standing, spans) if spans else _unknown(service, standing)


def _refusal(service: ZoneService, standing: Standing, found: Border, spans: Sequence[Span]) -> str:
    """The figure, and the ways out."""
    least = math.inf if math.isinf(found.leakage) else math.ceil(found.leakage * 1e4) / 1e4
    promises = [epoch.interval for epoch, _ in _epochs(standing)[-1:] if epoch.interval is not None]
    promised = min([*promises, *([own] if (own := _promised(service)) is not None else [])])
    said = (
        f"the new epoch of zone {service.id!r} would bring leakage about one interval to"
        f" {least:g} where {promised:g} is promised, since what is published before and after adds"
        " up; "
    )
    later = _later(service, standing, spans)
    if later is not None:
        said += f"give a begins {later} intervals later, without a price until then, or "
    else:
        said += "no later begins within 32 days helps; "
    if math.isinf(least):
        return said.removesuffix("or ") + "give noise with an epsilon of its own."
    return said + f"state the figure in public with --accept-leakage {least:g}."


def _later(service: ZoneService, standing: Standing, spans: Sequence[Span]) -> int | None:
    """How many intervals later the epoch may begin; whole days, so that its terms stay alike."""
    for days in PERIODS:
        begins = service.begins + days * _DAY
        moved = in_epoch(service, begins) or replace(service, begins=begins)
        found = border(moved, standing, spans)
        if found is not None and found.holds:
            return days * _DAY // service.seconds
    return None


def _promised(service: ZoneService) -> float | None:
    promise = service.promise
    return promise.epsilon if promise is not None and promise.secret == "interval" else None


def _epochs(standing: Standing) -> list[tuple[Epoch, list[Published]]]:
    """Every epoch that published from readings, and those releases, in order."""
    found: list[tuple[Epoch, list[Published]]] = []
    for i, epoch in enumerate(standing.epochs):
        later = [one.first for one in standing.epochs[i + 1 :]]
        until = min(later, default=math.inf)
        mine = [
            one
            for one in standing.releases
            if one.source == "readings" and epoch.first <= one.t < until
        ]
        if mine:
            found.append((epoch, mine))
    return found


def _lost(standing: Standing, epoch: Epoch) -> list[int]:
    """Steps of an epoch that may have been published and lost, as they are booked."""
    later = [one.first for one in standing.epochs if one.first > epoch.first]
    until = min([*later, epoch.first + epoch.horizon])
    steps = (t for gap in standing.booked for t in range(gap.first, gap.last + 1))
    return [t for t in steps if epoch.first <= t < until]


# ---- the same terms again


def as_begun(deployment: Deployment) -> Deployment:
    """The service with each zone's policy, and the leakage accepted, as its epoch has them.

    An epoch that a version before this one began was planned on its own, and its clamp could cut
    more. It goes on like that until its horizon ends; the next epoch is planned as the file is now.
    """
    if not any(map(planned_otherwise, deployment.zones)) or not _exists(deployment.ledger):
        return deployment
    try:
        opened = open_store(deployment.ledger, create=False)
    except LedgerError:  # not made yet; anything else is raised where it is opened for writing
        return deployment
    with opened as store:
        zones = [_as_begun(zone, store) for zone in deployment.zones]
    return replace(deployment, zones=tuple(zones))


def _exists(ledger: str) -> bool:
    return "://" in ledger or Path(ledger.removeprefix("sqlite:")).exists()


def _as_begun(service: ZoneService, store: LedgerStore) -> ZoneService:
    if not planned_otherwise(service):
        return service
    bodies = [one.body for one in store.records(service.id) if one.kind == "epoch"]
    if not bodies:
        return service
    begun = zone_as_begun(service, str(bodies[-1]["digest"]))
    counted = bodies[-1].get("leakage", 0.0)
    exceeds = counted > bodies[-1].get("interval", math.inf) * (1 + _CLOSE)
    return replace(begun, accepts=counted) if exceeds else begun


def zone_as_begun(service: ZoneService, digest: str) -> ZoneService:
    """The zone with the policy of its present epoch, which has this digest; see `as_begun`."""
    if not planned_otherwise(service) or digest == first_state(service, digest).digest:
        return service
    before = as_before(service)
    if before is None or digest != first_state(before, digest).digest:
        return service
    return before


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """An earlier epoch whose terms are known: the zone as it ran then."""

    service: ZoneService
    epoch: Epoch
    releases: Sequence[Published]
    lost: Sequence[int] = ()  # steps that may have been published besides


def known(service: ZoneService, standing: Standing) -> list[Span]:
    """Earlier epochs of the same terms, back to where they are forgotten; the last one last."""
    first, found = service.begins // service.seconds, list[Span]()
    if _promised(service) is None:
        return found
    for epoch, releases in reversed(_epochs(standing)):
        alike = (epoch.seconds, epoch.roster) == (service.seconds, roster_digest(service))
        then = same_terms(service, epoch.digest, epoch.first, epoch.horizon) if alike else None
        if then is None or first - epoch.first > _MOST:
            break
        found.insert(0, Span(then, epoch, releases, _lost(standing, epoch)))
        if service.memory is not None and first - epoch.first >= service.memory:
            break
    return found


def same_terms(service: ZoneService, digest: str, first: int, horizon: int) -> ZoneService | None:
    """The zone as it ran in an epoch, if all but its times is as it is now.

    An epoch that a version before this one began was planned otherwise, and is known as such.

    Args:
        service: the zone as it is now; without an interval promise its times are looked at as
            they are.
        digest: the epoch's terms, as its record has them.
        first: the zone's step at which it began.
        horizon: its steps.
    """
    if _promised(service) is None:
        before = as_before(service)
        same = before is not None and first_state(before, digest).digest == digest
        return before if same else None
    for alone in (False, True):
        then = in_epoch(service, first * service.seconds, horizon, alone=alone)
        if then is not None and first_state(then, digest).digest == digest:
            return then
    return None


def _continued(service: ZoneService, standing: Standing, spans: Sequence[Span]) -> Border:
    """One chain through all epochs that are known, in local time."""
    pattern, promised = service.pattern, _promised(service)
    assert pattern is not None
    assert promised is not None
    begin, new = spans[0].epoch.first, service.begins // service.seconds
    steps = new - begin + service.policy.horizon
    place = Place(begin * service.seconds, service.seconds, steps, service.time_zone)
    world = laid(pattern, place)
    rows = _Rows(world, steps)
    for span in spans:
        scheduler = first_state(span.service, span.epoch.digest).scheduler
        scales = {t - begin + 1: scheduler.at(span.epoch.step(t)).scale for t in span.lost}
        scales |= {one.t - begin + 1: one.scale for one in span.releases}
        rows.add(span.service, scales)
    rows.add(service, {new - begin + t: b for t, b in _scales(service).items()})
    inflow = _carried(
        _known_before(standing, begin), _silence_before(service, standing, begin, place)
    )
    kinds, class_of = rows.grouped()
    at = spans[0].releases[0].t - begin
    kinds[at] = np.where(kinds[at] > 0, kinds[at] + inflow, 0.0)
    without = kinds.copy()
    without[new - begin :] = 0.0
    told_before = leakage_by_houses(world.models, without, class_of)
    told = leakage_by_houses(world.models, kinds, class_of)
    worst, earlier = 0.0, 0.0
    for (_, _, one), (_, _, other) in zip(told, told_before, strict=True):
        past, before = one[: new - begin], other[: new - begin]
        more = past > before + FORGOTTEN * promised  # what the new epoch adds to
        earlier = max(earlier, float(past[more].max(initial=0.0)))
        worst = max(worst, float(one[new - begin :].max()))
    then = min(max(s.epoch.interval or promised, s.epoch.leakage or 0.0) for s in spans)
    holds = worst <= promised * (1 + _CLOSE) and earlier <= then * (1 + _CLOSE)
    return Border(max(worst, earlier), holds, exact=True)


class _Rows:
    """What releases of several epochs tell about every house of a chain that goes on."""

    def __init__(self, world: Scenario, steps: int) -> None:
        self._world, self._steps = world, steps
        self._row = np.zeros(self._steps, np.intp)
        self._found: list[Floats] = [np.zeros(world.zone.n_houses)]  # of steps without a release

    def add(self, service: ZoneService, scales: Mapping[int, float]) -> None:
        """Releases at these scales [Wh] by step, under the policy of that epoch."""
        world = self._world
        policy = replace(service.policy, horizon=self._steps, epsilon_t=())
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

    def grouped(self) -> tuple[Floats, NDArray[np.intp]]:
        """Losses (T, classes), and the class of every house."""
        kinds, class_of = np.unique(np.array(self._found), axis=1, return_inverse=True)
        return kinds[self._row], class_of.ravel()


def _scales(service: ZoneService) -> dict[int, float]:
    """The scale [Wh] of every step of the new epoch."""
    state = first_state(service)
    return {t: state.scheduler.at(t).scale for t in range(1, service.policy.horizon + 1)}


def _silence_before(service: ZoneService, standing: Standing, first: int, place: Place) -> float:
    """The share of what was published before step `first` that is left there."""
    earlier = [one.t for one in standing.releases if one.source == "readings" and one.t < first]
    earlier += [gap.last for gap in standing.booked if gap.last < first]
    if not earlier or service.pattern is None:
        return 0.0
    steps = min(first - max(earlier), _MOST)
    return kept(service.pattern, place, place.begins - steps * place.seconds, steps)


def _known_before(standing: Standing, first: int) -> float:
    """The most that releases before step `first` say about one step after them."""
    return _cap([each for each in _epochs(standing) if each[0].first < first], standing)


def _cap(epochs: Sequence[tuple[Epoch, Sequence[Published]]], standing: Standing) -> float:
    """The most that epochs say about their last step.

    It is what all releases lose, whatever anyone consumes, or what was counted when the last of
    the epochs began. Releases that were lost state nothing: then only what was counted holds.
    """
    if not epochs:
        return 0.0
    everything = math.fsum(one.epsilon_any for _, releases in epochs for one in releases)
    if any(_lost(standing, epoch) for epoch, _ in epochs):
        everything = math.inf
    counted = epochs[-1][0].leakage
    return everything if counted is None else min(everything, counted)


def _carried(leakage: float, share: float) -> float:
    """What silence leaves: a share, and never more than what the chain can tell at all."""
    if share >= 1:
        return leakage
    return min(share * leakage if share > 0 else 0.0, 4 * math.atanh(share))


# ---- other terms, or terms that are not known


def _unknown(service: ZoneService, standing: Standing) -> Border:
    """From the records alone, with the new epoch's chain in the silence between.

    What comes in is at most what all earlier releases lose together, and at most what was counted
    for the last epoch; silence leaves a share of it. What goes back adds to the figure that was
    counted for earlier steps or, where none is on record, to the promise itself.
    """
    epochs, promised = _epochs(standing), _promised(service)
    old = epochs[-1][0]
    share = _share_between(service, *epochs[-1], _lost(standing, old))
    worst, forward = 0.0, math.inf
    if _is_known_ahead(service.policy):
        world, (kinds, class_of) = service.scenario, _own_losses(service)
        alone = leakage_by_houses(world.models, kinds, class_of)
        forward = max(float(total[0].max()) for _, _, total in alone)
        inflow = _carried(_cap(epochs, standing), share)
        kinds[0] = np.where(kinds[0] > 0, kinds[0] + inflow, 0.0)
        among = leakage_by_houses(world.models, kinds, class_of)
        worst = max(float(total.max()) for _, _, total in among)
    before = old.interval if old.interval is not None else promised or 0.0
    counted = before if old.leakage is None else old.leakage
    earlier = counted + _carried(forward, share)
    holds = earlier <= max(before, counted) * (1 + _CLOSE)
    if promised is None:
        return Border(earlier, holds, exact=False)
    return Border(max(worst, earlier), holds and worst <= promised * (1 + _CLOSE), exact=False)


def _is_known_ahead(policy: Policy) -> bool:
    """Whether every release has a finite loss that is known before the first."""
    odd = policy.gaussian is not None or policy.window is not None or policy.negligible > 0
    return not odd and policy.on_empty == "protect_all" and policy.blocks == "block"


def _own_losses(service: ZoneService) -> tuple[Floats, NDArray[np.intp]]:
    rows = _Rows(service.scenario, service.policy.horizon)
    rows.add(service, _scales(service))
    return rows.grouped()


def _alone(service: ZoneService) -> float:
    """Leakage of the epoch on its own, for a zone that was not planned from a file."""
    told = leakage_by_houses(service.scenario.models, *_own_losses(service))
    return max(float(total.max()) for _, _, total in told)


def _share_between(
    service: ZoneService, old: Epoch, releases: Sequence[Published], lost: Sequence[int]
) -> float:
    """The share of a leakage that is left between the last release and the new epoch."""
    last = max([releases[-1].start, *(t * old.seconds for t in lost)])
    end = last + (old.seconds if old.seconds != service.seconds else 0)
    steps = min((service.begins - end) // service.seconds, _MOST)
    day = _DAY // service.seconds
    if service.pattern is not None:
        place = Place(service.begins, service.seconds, service.policy.horizon, service.time_zone)
        return kept(service.pattern, place, service.begins - steps * service.seconds, steps)
    earlier = [model.starting(-(day + steps)) for model in service.scenario.models]
    return kept_by_silence(earlier, day + 1, day + 1 + steps)
