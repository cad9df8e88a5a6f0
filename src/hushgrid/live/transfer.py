"""A house moves to another zone of the service: what it has spent goes with it.

Two records, each durable before the next: out of the one zone, into the other. Who stops between
them does the same again; the second record is then made from the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hushgrid.errors import LedgerError
from hushgrid.live.border import as_begun
from hushgrid.live.deployment import Deployment, ZoneService
from hushgrid.live.gaps import look_for_loss
from hushgrid.live.houses import house_names
from hushgrid.live.ledger.book import Ledger
from hushgrid.live.ledger.keys import load
from hushgrid.live.ledger.records import TransferRecord
from hushgrid.live.ledger.state import LedgerState
from hushgrid.live.ledger.stores import open_store
from hushgrid.live.spending import spent_here
from hushgrid.live.terms import check_same


class Moved(NamedTuple):
    """A house in both ledgers: its public name, what it has spent, the records' digests."""

    house: str
    epsilon: float
    delta: float
    out: str
    into: str
    anew: bool  # False where both records were there already


def move(deployment: Deployment, meter: str, source: str, target: str, now: float) -> Moved:
    """Write both records; the service must be stopped, its rosters still the old ones."""
    deployment = as_begun(deployment)
    leaves, comes = _zone(deployment, source), _zone(deployment, target)
    if source == target:
        raise LedgerError(f"the house is in zone {source!r} already; give another zone to go to.")
    key = load(deployment.key)
    (name,) = house_names(key, [meter])
    with open_store(deployment.ledger) as store, deployment.witnesses() as witnesses:
        if store.head(source) is None:
            raise LedgerError(
                f"zone {source!r} has published nothing, so nothing is to be carried; move the"
                " meter in the service file."
            )
        with (
            Ledger.open(
                store, source, key, deployment.mode, now, witness=witnesses.of(source)
            ) as old,
            Ledger.open(
                store, comes.id, key, deployment.mode, now, witness=witnesses.of(comes.id)
            ) as new,
        ):
            out = _left(old.standing, name, target)
            anew = out is None
            if out is None:
                look_for_loss(deployment, leaves, old, now)  # a gap lets no house leave
                span = max(new.standing.longest, comes.policy.horizon * comes.seconds)
                out = _leave(leaves, old, meter, name, target, span)
            into = _came(new.standing, out)
            if into is None:
                anew = True
                entry = TransferRecord(name, "in", source, out.epsilon, out.delta, out.head)
                into = TransferRecord.from_record(new.write(entry))
    return Moved(name, out.epsilon, out.delta, out.head, into.head, anew)


def _zone(deployment: Deployment, name: str) -> ZoneService:
    for zone in deployment.zones:
        if zone.id == name:
            return zone
    known = ", ".join(zone.id for zone in deployment.zones)
    raise LedgerError(f"zone is {name!r}; give one of the service file: {known}.")


def _left(standing: LedgerState, name: str, target: str) -> TransferRecord | None:
    """The record by which the house has left already."""
    last = standing.moved.get(name)
    if last is None or last.direction == "in":
        return None
    if last.other != target:
        raise LedgerError(f"the house has left zone {standing.zone!r} for {last.other!r} already.")
    return last


def _came(standing: LedgerState, out: TransferRecord) -> TransferRecord | None:
    return next((one for one in standing.transfers if one.out == out.head), None)


def _leave(
    leaves: ZoneService, old: Ledger, meter: str, name: str, target: str, span: int
) -> TransferRecord:
    check_same(leaves, old.standing)
    if meter not in leaves.meters:
        raise LedgerError(
            f"the meter is not in the roster of zone {leaves.id!r}; give its id as in the service"
            " file, and change rosters after the transfer."
        )
    cost = spent_here(leaves, old.standing, leaves.meters.index(meter), name, span)
    if math.isinf(cost.epsilon):
        raise LedgerError(
            f"what the house has spent in zone {leaves.id!r} has no bound: a release states no"
            " epsilon (noise of another kind in an earlier epoch, or none). Transfer it once those"
            " releases are older than the longest horizon of both zones."
        )
    entry = TransferRecord(name, "out", target, float(cost.epsilon), float(cost.delta))
    return TransferRecord.from_record(old.write(entry))


def check_arrived(moves: Mapping[str, Sequence[TransferRecord]]) -> None:
    """Refuse to run where a house left one zone and is not in the other: it would spend anew."""
    came = {one.out for some in moves.values() for one in some}
    for zone, some in moves.items():
        for one in some:
            if one.direction == "out" and one.other in moves and one.head not in came:
                raise LedgerError(
                    f"a house left zone {zone!r} for {one.other!r} (record {one.seq}) and has not"
                    " come in; run the same hushgrid ledger transfer again."
                )
