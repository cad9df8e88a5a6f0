"""Where one epoch follows another: what all releases say about one interval of one house.

The rules across epochs, gaps and moves; docs/ledger.md and docs/serve.md have them for operators:

1. The same terms (another `begins` or horizon) are one chain that goes on, counted exactly. Where
   the file says so, an epoch of them begins by itself when the horizon ends (`next_epoch`).
2. Where an epoch before or the new one has an interval promise, all else is forgotten before the
   first release from readings: other terms, houses that came, releases of other terms that may be
   lost. The new epoch publishes forecasts meanwhile (`silence`). So it does after all that was
   published, where its policy has `negligible`.
3. Other promises count sums.
4. A house moves where each loss is known ahead: not under Gaussian noise or `negligible`. A house
   that comes back brings all that was ever published about it. No house leaves or comes to a zone
   that publishes, or ever published, about houses that move together.
5. A gap is booked with one sum (`gaps.largest_loss`): what lost records state, and the most that
   the present epoch and each one named as lost can have cost from the gap's first step on; where it
   begins with its epoch, from the `begins` of each.
6. An epoch that may be lost must be named: where nothing of the last one is on record, or where
   what is lost is of another one or older than the witness.
7. A lost history is named by its last record once it is booked. Any other one is booked in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from hushgrid.accounting.epochs import (
    PERIODS,
)
from hushgrid.errors import LedgerError, PlanError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.interval_plan import (
    in_epoch,
)
from hushgrid.service.earlier_epochs import (
    DAY,
    EarlierEpoch,
    came_in,
    contradict_each_other,
    known,
    of_run,
    own_leakage,
    past_epochs,
    silence,
    together,
)
from hushgrid.service.epoch import first_state, interval_promise, occupancy_digest, roster_digest
from hushgrid.service.ledger.records import (
    EpochRecord,
    LedgerState,
)
from hushgrid.service.same_terms import (
    CLOSE,
    renews,
    versions,
)


@dataclass(frozen=True, slots=True)
class Border:
    """Leakage about one interval of one house once the new epoch is published.

    Attributes:
        leakage: where promises would be exceeded, the largest leakage about their steps; else that
            about the new epoch's steps.
        promised: what holds so far for these steps; the least, where it would be exceeded.
        holds: whether every epoch's promise still holds.
    """

    leakage: float
    promised: float
    holds: bool


def opening(service: ZoneService, standing: LedgerState) -> dict[str, Any]:
    """What the record of a new epoch states about leakage.

    Args:
        service: the zone with the terms that are to begin.
        standing: its ledger, where the new epoch is not yet recorded.

    Returns:
        The most houses that move together as `together`. The promise as `interval` with its models
        as `occupancy`, as `leakage` the figure that was counted and, where a promise is exceeded,
        as `accepted` the figure that takes its place. Where it begins in silence, its middle as
        `promised_from` and its end as `forecast_until`.

    Raises:
        LedgerError: models contradict each other under a promise about one interval; another zone
            published about a house after the epoch begins; all its prices would be forecasts; or a
            promise would be exceeded, and the operator has not accepted the figure.
    """
    check_models_agree(service)
    _check_last(service, standing)
    spans = known(service, standing)
    found = border(service, standing, spans)
    stated = _stated(service, found) | _silence(service, silence(service, standing, spans))
    if found is not None and stated.get("accepted", 0.0) > (service.accepts or 0.0):
        raise LedgerError(_refusal(service, standing, found, spans))
    return stated


def check_models_agree(service: ZoneService) -> None:
    """Refuse an interval promise under models that contradict each other.

    Args:
        service: The zone with the terms that are to begin.

    Raises:
        LedgerError: They do.
    """
    if interval_promise(service) is not None and contradict_each_other(service):
        raise LedgerError(
            f"models of zone {service.id!r} contradict each other: where its epoch begins, or at"
            " some time of a week or at a change of the clock, one has a house at home for certain,"
            " another away. Every price says which is right, so there is no promise about one"
            " interval; give one of them, or the secret step."
        )


def _silence(service: ZoneService, found: tuple[float, float] | None) -> dict[str, int]:
    """What the record of an epoch states about the silence it begins with."""
    if found is None:
        return {}
    if math.isinf(found[1]):
        raise LedgerError(
            f"zone {service.id!r} has published before, or a house came to it, and a promise about"
            " one interval or policy.negligible needs this forgotten before new prices; these"
            " models are private, or 32 days leave something of it. Go on with the earlier terms if"
            " there are others, give negligible = 0 if that is the reason, or transfer the houses"
            " to a zone with another id and no such promise."
        )
    middle, end = map(int, found)
    horizon_ends = service.begins + service.policy.horizon * service.seconds
    if end >= horizon_ends and not renews(service):
        raise LedgerError(
            f"begins of zone {service.id!r} is {service.begins}, but what was published before is"
            f" forgotten at {end}, after its horizon: all its prices would be forecasts; give a"
            f" longer horizon, or a begins of {end} or later (UTC epoch s)."
        )
    return {"promised_from": middle, "forecast_until": end}


def _stated(service: ZoneService, found: Border | None) -> dict[str, Any]:
    """What the record of an epoch states, with its account."""
    exceeded = 0.0 if found is None or found.holds else found.leakage
    stated: dict[str, Any] = {"together": together(service)}
    if exceeded:
        stated |= {"leakage": exceeded, "accepted": exceeded}
    promised = interval_promise(service)
    if promised is None:
        return stated
    counted = max(own_leakage(service), 0.0 if found is None else found.leakage)
    if (models := occupancy_digest(service)) is not None:
        stated["occupancy"] = models
    return {**stated, "interval": promised, "leakage": counted}


def stated_by(
    service: ZoneService, epoch: EpochRecord, before: LedgerState
) -> Iterator[dict[str, Any]]:
    """What the record of an epoch has to state about leakage, computed again.

    Args:
        service: The zone as its file is now.
        epoch: The record.
        before: The zone's ledger before that record.

    Yields:
        Fields as from `opening`, whatever was accepted, for each way in which these terms may be
        planned; nothing where the terms are others.
    """
    if epoch.seconds != service.seconds or epoch.roster not in (None, roster_digest(service)):
        return
    begins = epoch.first * epoch.seconds
    same = service.begins == begins or service.pattern is None or interval_promise(service) is None
    own = [service] if same and service.policy.horizon == epoch.horizon else []
    for one in chain(own, versions(service, begins, epoch.horizon)):
        if one is not None and first_state(one).digest == epoch.digest:
            then = replace(one, begins=begins)
            spans = known(then, before)
            stated = _stated(then, border(then, before, spans))
            yield stated | _silence(then, silence(then, before, spans))


def _check_last(service: ZoneService, standing: LedgerState) -> None:
    """Refuse to publish about steps of a house that another zone has published about already."""
    here = [one for one in standing.moved.values() if one.direction == "in" and one.total]
    last = max((one.last for one in here), default=0)
    if service.begins < last:
        raise LedgerError(
            f"begins of zone {service.id!r} is {service.begins} but what another zone published"
            f" about a house that came from there counts until {last} (UTC epoch s); give a later"
            " begins."
        )


def border(
    service: ZoneService, standing: LedgerState, spans: Sequence[EarlierEpoch] | None = None
) -> Border | None:
    """Count the zone's new epoch together with what its ledger holds.

    Args:
        service: the zone with the terms that are to begin.
        standing: its ledger, where the new epoch is not yet recorded.
        spans: earlier epochs of the same terms, if they were found before.

    Returns:
        The account; None for the first epoch of a zone to which no house came, and where it has no
        interval promise. After other terms alone it is that of the new epoch, whose law of
        occupancy has settled.
    """
    if spans is None:
        spans = known(service, standing)
    past = past_epochs(standing)
    settled = bool(past or came_in(standing)) and service.pattern is not None
    settled = settled and interval_promise(service) is not None
    if not (spans or settled) or service.begins < standing.reach:  # refused for that
        return None
    judged = of_run(service, standing, past, spans)
    exceeded = [one for one in judged if one[0] > one[1] * (1 + CLOSE)]
    counted = exceeded or judged[:1]
    figure, allowed = max(one for one, _ in counted), min(other for _, other in counted)
    return Border(figure, allowed, not exceeded)


def _refusal(
    service: ZoneService, standing: LedgerState, found: Border, spans: Sequence[EarlierEpoch]
) -> str:
    """The figure, and the ways out."""
    least = _rounded_up(found.leakage)
    text = (
        f"the new epoch of zone {service.id!r} would bring leakage about one interval to {least}"
        f" where {found.promised:g} is promised, since what is published before and after adds up; "
    )
    later = _later(service, standing, spans)
    if later is not None:
        text += f"give a begins {later} intervals later, without a price until then, or "
    else:
        text += "no later begins within 32 days helps; "
    if math.isinf(found.leakage):
        return (
            f"{text.removesuffix('or ')}there is no figure to accept: a release without an epsilon"
            " of its own has no bound."
        )
    return text + f"state the figure in public with --accept-leakage {least}."


def _rounded_up(figure: float) -> str:
    """Four decimals, never below the figure."""
    if math.isinf(figure):
        return "inf"
    return f"{math.ceil(figure * 1e4) / 1e4:.4f}".rstrip("0").rstrip(".")


def _later(
    service: ZoneService, standing: LedgerState, spans: Sequence[EarlierEpoch]
) -> int | None:
    """How many intervals later the epoch may begin; whole days, so that its terms stay the same."""
    for days in PERIODS:
        begins = service.begins + days * DAY
        try:
            moved = in_epoch(service, begins) or replace(service, begins=begins)
        except PlanError:  # not among the hours and days around that time
            continue
        found = border(moved, standing, spans)
        if found is not None and found.holds:
            return days * DAY // service.seconds
    return None
