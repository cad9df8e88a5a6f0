"""A house that moves to another zone of the service, with the account of what was published.

A move is two records, each durable before the next: out of one zone, into the other. A command
that was stopped between them is run again; the second record is then made from the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hushgrid.curator.account_records import leaving_windows
from hushgrid.curator.changes import as_begun
from hushgrid.curator.gaps import look_for_loss
from hushgrid.curator.terms import check_same, house_names
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.entries import TransferRecord
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.witness import open_witnesses
from hushgrid.stores.ledger.writer import Ledger, load


class Moved(NamedTuple):
    """A house in both ledgers.

    Attributes:
        house: Its public name.
        out: Digest of the record by which it left.
        into: Digest of the record by which it came.
        anew: False where both records were there already.
    """

    house: str
    out: str
    into: str
    anew: bool


def move(deployment: Deployment, meter: str, source: str, target: str, now: float) -> Moved:
    """Write both records; the service must be stopped, its rosters still the old ones.

    A home of several meters moves with all of them: apart they would spend its promise twice. Both
    ledgers are judged first. A gap lets no house leave; it may come in. All that forbids the move
    is checked before the other zone's ledger is opened, which creates it.

    Args:
        deployment: The service.
        meter: The meter's id.
        source: The zone that it leaves.
        target: The zone that it comes to.
        now: [UTC s]

    Returns:
        What was written of this meter.

    Raises:
        LedgerError: The meter is not in the zone, or a gap is not booked.
    """
    deployment = as_begun(deployment)
    leaves, comes = _zone(deployment, source), _zone(deployment, target)
    if source == target:
        raise LedgerError(f"the house is in zone {source!r} already; give another zone to go to.")
    meters = _of_home(leaves, meter)
    return {each: _move(deployment, leaves, comes, each, now) for each in meters}[meter]


def _of_home(zone: ZoneService, meter: str) -> tuple[str, ...]:
    """All meters of a meter's home."""
    houses = {each: house for house, each in enumerate(zone.meters)}
    houses |= {register.meter: register.house for register in zone.registers}
    if meter not in houses:  # it may have moved already
        return (meter,)
    return tuple(each for each, house in houses.items() if house == houses[meter])


def _move(
    deployment: Deployment, leaves: ZoneService, comes: ZoneService, meter: str, now: float
) -> Moved:
    source, target = leaves.id, comes.id
    key = load(deployment.key)
    (name,) = house_names(key, [meter])
    with open_store(deployment.ledger) as store, open_witnesses(deployment) as witnesses:
        if store.head(source) is None:
            raise LedgerError(
                f"zone {source!r} has published nothing, so nothing is to be carried; move the"
                " meter in the service file."
            )
        with Ledger.open(
            store, source, key, deployment.mode, now, witness=witnesses.of(source)
        ) as old:
            look_for_loss(deployment, leaves, old, now)
            old.settle()
            out = _left(old.standing, name, target)
            entry = _leaving(leaves, old, meter, name, target) if out is None else None
            with Ledger.open(
                store, target, key, deployment.mode, now, witness=witnesses.of(target)
            ) as new:
                look_for_loss(deployment, comes, new, now)
                new.settle()
                if out is None:
                    assert entry is not None
                    out = TransferRecord.from_record(old.write(entry))
                into = _came(new.standing, out)
                anew = entry is not None or into is None
                if into is None:
                    arrival = replace(out, direction="in", other=source, out=out.head)
                    into = TransferRecord.from_record(new.write(arrival))
    return Moved(name, out.head, into.head, anew)


def _zone(deployment: Deployment, name: str) -> ZoneService:
    for zone in deployment.zones:
        if zone.id == name:
            return zone
    names = ", ".join(zone.id for zone in deployment.zones)
    raise LedgerError(f"zone is {name!r}; give one of the service file: {names}.")


def _left(standing: LedgerState, name: str, target: str) -> TransferRecord | None:
    """The record by which the house has left already."""
    last = standing.moved.get(name)
    if last is None or last.direction == "in":
        return None
    if last.other != target:
        raise LedgerError(f"the house has left zone {standing.zone!r} for {last.other!r} already.")
    return last


def _came(standing: LedgerState, out: TransferRecord) -> TransferRecord | None:
    return next((move for move in standing.transfers if move.out == out.head), None)


def _leaving(
    leaves: ZoneService, old: Ledger, meter: str, name: str, target: str
) -> TransferRecord:
    """The record by which the house leaves; all that forbids it is raised here."""
    check_same(leaves, old.standing)
    if meter not in leaves.all_meters:
        raise LedgerError(
            f"the meter is not in the roster of zone {leaves.id!r}; give its id as in the service"
            " file, and change rosters after the transfer."
        )
    account = ZoneAccount(leaves)
    rows, last = account.leaving(old.standing)
    windows = leaving_windows(old.standing)
    entry = TransferRecord(name, "out", target, last=last, account=rows, windows=windows)
    old.check(entry)
    return entry


def check_arrived(moves: Mapping[str, Sequence[TransferRecord]]) -> None:
    """Refuse to run where a house left one zone and is not in the other: it would spend anew.

    Args:
        moves: The transfers of each zone's ledger.

    Raises:
        LedgerError: A house has not come in.
    """
    arrivals = {move.out for records in moves.values() for move in records}
    for zone, records in moves.items():
        for record in records:
            if record.direction == "out" and record.other in moves and record.head not in arrivals:
                raise LedgerError(
                    f"a house left zone {zone!r} for {record.other!r} (record {record.seq}) and has"
                    " not come in; run the same hushgrid ledger transfer again."
                )
