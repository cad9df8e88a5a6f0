"""Terms of a zone's epoch: what the ledger has fixed, how a new epoch begins, names of houses.

A house has a pseudonym in public records: the same one each time, and no hint at its meter.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import canonical_digest
from hushgrid.accounting.temporal import contradicted_houses
from hushgrid.errors import LedgerError, MeterError, MeterRetryError, PolicyError
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.release import State, init
from hushgrid.stores.ledger.chain import LedgerStore
from hushgrid.stores.ledger.records import (
    HOUSE_DIGITS,
    ChargeRecord,
    EpochRecord,
    LedgerState,
    ScheduleRecord,
    StatedModels,
    TransferRecord,
)
from hushgrid.stores.ledger.writer import Ledger, Signer
from hushgrid.stores.meters.columns import IntervalSource

_PURPOSE = hashlib.sha256(b"hushgrid-house/1\n").hexdigest()


def house_names(key: Signer, meters: Iterable[str]) -> Iterator[str]:
    """A pseudonym for each meter id; linking them needs the key.

    Ed25519 signs a text the same way each time, so a signature that is never published is a secret
    that needs no file of its own.

    Args:
        key: The service's signing key.
        meters: Meter ids.

    Yields:
        32 hexadecimal digits for each.
    """
    secret = bytes.fromhex(key.sign(_PURPOSE))
    for meter in meters:
        yield hmac.digest(secret, f"house\n{meter}".encode(), "sha256").hex()[:32]


def begin(
    service: ZoneService,
    ledger: Ledger,
    meters: IntervalSource,
    key: Signer,
    new_epoch: bool,
) -> None:
    """Check that the present epoch has these terms; begin one where there is none, or if asked to.

    Args:
        service: The zone of the service file.
        ledger: Its ledger, open for writing.
        meters: The meter store.
        key: The service's signing key.
        new_epoch: Begin a new epoch whether or not there is one.
    """
    standing = ledger.standing
    check_all_here(service, standing, key, new_epoch=new_epoch)
    if standing.epoch is not None and not new_epoch:
        check_same(service, standing)
        if standing.schedule is None:  # ended before its schedule was on record
            charge(service, ledger)
            _commit(service, ledger)
        return
    names = "".join(sorted(name[:HOUSE_DIGITS] for name in house_names(key, service.meters)))
    digest = first_state(service).digest
    entry = epoch_record(service, digest, houses=names)
    check_models_agree(service)
    if new_epoch:
        check_new(service, standing)
        ledger.check(entry)
        _check_open(service, standing, meters)
        # after all checks: it cannot be undone. Refused while the old epoch has readings open
        _new_roster(service, meters)
    ledger.write(entry)
    charge(service, ledger)
    _commit(service, ledger)


def _check_open(service: ZoneService, standing: LedgerState, meters: IntervalSource) -> None:
    """Refuse to begin with an interval that an epoch of another roster has closed ahead.

    That epoch is set aside. The interval gets no readings, and what is closed would not show any
    more what was published and lost.
    """
    closed = meters.last_closed(service.id)
    ahead = any(epoch.first * epoch.seconds > service.begins for epoch in standing.epochs)
    if ahead and closed is not None and closed >= service.begins:
        raise LedgerError(
            f"begins of zone {service.id!r} is {service.begins}, but its meter store is closed up"
            f" to the interval that begins at {closed} (UTC epoch s); give a later begins, or set"
            " stores.meters to a new place."
        )


def epoch_record(service: ZoneService, digest: str, **fields: Any) -> EpochRecord:
    """The record of an epoch with a zone's terms.

    Args:
        service: The zone.
        digest: The digest of its terms.
        **fields: Optional fields of the record.

    Returns:
        The record.
    """
    promised = interval_promise(service) is not None
    return EpochRecord(
        digest,
        first=service.begins // service.seconds,
        horizon=service.policy.horizon,
        seconds=service.seconds,
        roster=roster_digest(service),
        interval=interval_promise(service),
        window=window_promise(service),
        occupancy=occupancy_digest(service),
        models=stated_models(service) if promised else None,
        time_zone=service.time_zone if promised and service.pattern is not None else None,
        eta=float(service.policy.eta) if promised else None,
        **fields,
    )


def stated_models(service: ZoneService) -> StatedModels:
    """The models of a zone as the record of its epoch has them: chains that houses follow.

    Args:
        service: The zone under the epoch's terms.

    Returns:
        See `EpochRecord`.
    """
    reach, entries = first_state(service).scheduler.zone.bound, []
    _, _, models = chains_of(service)
    for model, (slots, *moves) in zip(service.scenario.models, models, strict=True):
        piece, chains = model.chains[0], []
        for chain, matrices in zip(np.unique(piece.chain_of), moves, strict=True):
            houses = piece.members[piece.chain_of == chain, 0]
            law = piece.initial[chain].tolist()
            chains.append({"law": law, "moves": matrices, "reach": float(reach[houses].max())})
        entries.append({"slots": slots, "chains": chains})
    return tuple(entries)


def chains_of(service: ZoneService) -> tuple[Any, ...]:
    """How the houses of a zone move; see `EpochRecord.chains`.

    Args:
        service: The zone.

    Returns:
        Equal to that of an epoch's record where all houses move alike.
    """
    pattern = service.pattern
    models = (service if pattern is None else pattern).scenario.models
    chains = []
    for model in models:
        piece = model.chains[0]
        moves = piece.transition[:, np.unique(piece.chain_of)].swapaxes(0, 1)
        matrices = [tuple(map(tuple, rows.reshape(-1, 4).tolist())) for rows in moves]
        chains.append((tuple(model.calendar.slots.tolist()), *matrices))
    return service.seconds, None if pattern is None else service.time_zone, chains


def check_all_here(
    service: ZoneService, standing: LedgerState, key: Signer, *, new_epoch: bool
) -> None:
    """Refuse a roster with a house that left: its further spending would not follow it.

    And a present epoch with a house that came since it was recorded: what was published elsewhere
    while the house was away has no part in the epoch's account.

    Args:
        service: The zone.
        standing: Its ledger state.
        key: The service's signing key, for the names of houses.
        new_epoch: A new epoch is to begin.

    Raises:
        LedgerError: A house of the roster has moved to another zone, or came back from one.
    """
    moved, epoch = standing.moved, None if new_epoch else standing.epoch
    for house, name in enumerate(house_names(key, service.meters) if moved else (), 1):
        last = moved.get(name)
        if last is not None and last.direction == "out":
            raise LedgerError(
                f"house {house} of zone {service.id!r} has moved to zone {last.other!r}; take"
                " its meter out of the roster and begin a new epoch with hushgrid serve"
                " --yes."
            )
        if last is not None and epoch is not None and last.seq > epoch.seq:
            raise LedgerError(
                f"house {house} of zone {service.id!r} came from zone {last.other!r} after the"
                " present epoch was recorded, which does not count what was published there; begin"
                " a new epoch with hushgrid serve --yes."
            )


def check_moves(
    zones: Sequence[ZoneService], store: LedgerStore, key: Signer, *, new_epoch: bool
) -> None:
    """Refuse a roster with a house of another zone whose spending has not come along.

    A house that an epoch of another zone in the ledger has, and the last epoch of its own zone has
    not, needs a transfer on record. Epochs that published nothing have no part in it.

    Args:
        zones: The zones as they are to run.
        store: The ledger; it is only read.
        key: The service's signing key, for the names of houses.
        new_epoch: All zones begin a new epoch; False: those without any are checked, and those
            whose last record is no release, since the present epoch may have published nothing.

    Raises:
        LedgerError: The transfer was never made, or its records are lost.
    """
    new = [service for service in zones if new_epoch or not _goes_on(store, service.id)]
    pasts, gained = (
        {service.id: _past(store, service.id) for service in new},
        dict[str, dict[str, int]](),
    )
    for zone in new:
        last, names = pasts[zone.id].last, enumerate(house_names(key, zone.meters), 1)
        gained[zone.id] = {name: n for n, name in names if name[:HOUSE_DIGITS] not in last}
    for origin in store.zones() if any(gained.values()) else ():
        houses = (pasts.get(origin) or _past(store, origin)).houses
        for zone in new:
            arrivals = pasts[zone.id].arrivals
            for name, n in gained[zone.id].items() if origin != zone.id else ():
                if name[:HOUSE_DIGITS] in houses and name not in arrivals:
                    raise LedgerError(
                        f"house {n} of zone {zone.id!r} was in zone {origin!r}, and no transfer is"
                        " on record: what it has spent there would be forgotten. Run hushgrid"
                        " ledger transfer while it is in that roster (begin an epoch with it there"
                        " where it no longer is); if that was done and its records are lost, run"
                        " the same hushgrid ledger transfer again."
                    )


def _goes_on(store: LedgerStore, zone: str) -> bool:
    try:
        head = store.head(zone)
    except LedgerError:  # a zone whose ledger is damaged is refused where it is opened
        return True
    return head is not None and head.kind == "release"


class _Past(NamedTuple):
    """Houses of a zone's epochs that published something, and those that came and did not leave."""

    houses: frozenset[str]
    last: frozenset[str]  # of the last of these epochs
    arrivals: set[str]


def _past(store: LedgerStore, zone: str) -> _Past:
    houses = last = present = frozenset[str]()
    arrivals = set[str]()
    for record in store.records(zone):
        if record.kind == "epoch":
            present = EpochRecord.from_record(record).house_names
        elif record.kind == "transfer":
            moved = TransferRecord.from_record(record)
            (arrivals.add if moved.direction == "in" else arrivals.discard)(moved.house)
        elif record.kind in ("release", "gap", "charge") and last is not present:
            last, houses = present, houses | present
    return _Past(houses, last, arrivals)


def check_same(service: ZoneService, standing: LedgerState) -> None:
    """Refuse terms that are not those of the present epoch.

    Args:
        service: The zone.
        standing: Its ledger state.

    Raises:
        LedgerError: There is no epoch, or its terms, times, roster or interval promise differ.
    """
    if standing.epoch is None:
        raise LedgerError(f"the ledger of zone {service.id!r} has no epoch; start the service.")
    if terms_differ(service, standing.epoch):
        raise LedgerError(
            f"the terms of zone {service.id!r} are not those of its ledger"
            f" ({standing.epoch.digest[:12]}); put them back, or begin them with hushgrid serve"
            " --yes."
        )


def terms_differ(service: ZoneService, epoch: EpochRecord) -> bool:
    """Whether a zone has other terms than an epoch: times, roster or promise too.

    Args:
        service: The zone, as its epoch began where that is possible.
        epoch: The epoch's record.

    Returns:
        True if so.
    """
    now_first = service.begins // service.seconds
    epoch_start = (epoch.first, epoch.seconds)
    agree = epoch_start == (now_first, service.seconds)
    agree = agree and epoch.roster == roster_digest(service)
    agree = agree and not states_other_promise(service, epoch)
    return not agree or first_state(service).digest != epoch.digest


def interval_promise(service: ZoneService) -> float | None:
    """What all releases together may say about one interval of a house; None: not promised."""
    promise = service.promise
    return promise.epsilon if promise is not None and promise.secret == "interval" else None


def window_promise(service: ZoneService) -> tuple[int, float] | None:
    """The window [s] and epsilon of a promise about windows; None: not promised."""
    promise = service.promise
    if promise is None or promise.window is None:
        return None
    return promise.window, promise.epsilon


def occupancy_digest(service: ZoneService) -> str | None:
    """Names the models of an interval promise at all times, also those outside an epoch.

    Args:
        service: The zone.

    Returns:
        64 hexadecimal digits; None without such a promise, or where the file is not known.
    """
    if interval_promise(service) is None or service.pattern is None:
        return None
    models = [model.digest for model in service.pattern.scenario.models]
    return canonical_digest(
        {"format": "hushgrid-occupancy/1", "models": models, "time_zone": service.time_zone}
    )


def states_other_promise(service: ZoneService, epoch: EpochRecord) -> bool:
    """Whether the record of an epoch states another interval promise than the zone has, or models.

    The digest may be the same: that of other promises with the same noise, and of models that
    differ at times outside the epoch alone.

    Args:
        service: The zone.
        epoch: The record.

    Returns:
        True if so.
    """
    window = None if epoch.window is None else tuple(epoch.window)
    if (epoch.interval, window) != (interval_promise(service), window_promise(service)):
        return True
    return epoch.occupancy is not None and epoch.occupancy != occupancy_digest(service)


def has_begun(service: ZoneService, standing: LedgerState) -> bool:
    """Whether the last release was published under the zone's promise and models."""
    last = standing.releases[-1:]
    return any(not states_other_promise(service, standing.epoch_of(release)) for release in last)


def check_models_agree(service: ZoneService) -> None:
    """Refuse an interval promise under models that contradict each other in its epoch.

    Args:
        service: The zone with the epoch's terms.

    Raises:
        LedgerError: At some step one has a house at home for certain, another away.
    """
    models = service.scenario.models
    if interval_promise(service) is None:
        return
    if contradicted_houses(models, service.policy.horizon).any():
        raise LedgerError(
            f"models of zone {service.id!r} contradict each other: at some time of its epoch one"
            " has a house at home for certain, another away. Every price says which is right, so"
            " there is no promise about one interval; give one of them, or the secret step."
        )


def check_new(service: ZoneService, standing: LedgerState) -> None:
    """Refuse a new epoch that begins before the end of what is published; changes nothing.

    Args:
        service: The zone with the new epoch's terms.
        standing: Its ledger state.

    Raises:
        LedgerError: A step of the new epoch is published already or lies in a gap, or a gap is
            not booked.
    """
    if standing.gap is not None:
        raise LedgerError(
            f"an epoch of zone {service.id!r} follows a gap (steps {standing.gap.first} to"
            f" {standing.gap.last}) that is not booked; run hushgrid resume first."
        )
    if service.begins < standing.reach:
        raise LedgerError(
            f"begins of zone {service.id!r} is {service.begins} but what is published or booked as"
            f" lost reaches to {standing.reach} (UTC epoch s); give a later begins for the new"
            " epoch."
        )


def _new_roster(service: ZoneService, meters: IntervalSource) -> None:
    """Set the new epoch's roster in the meter store; an empty store takes any."""
    try:
        meters.open_zone(*service.roster)
    except MeterRetryError:
        raise
    except MeterError:
        meters.reopen(
            service.id, service.meters, service.seconds, service.begins, service.registers
        )


def charge(service: ZoneService, ledger: Ledger) -> None:
    """Charge what pooled models have cost every house, unless that is on record.

    Args:
        service: The zone with an epoch's terms.
        ledger: Its ledger, open for writing.
    """
    provenance = service.learned
    if provenance.epsilon > 0:
        match = re.fullmatch("[0-9a-f]{64}", provenance.digest)
        name = provenance.digest if match else service.scenario.models[0].digest
        if name not in ledger.standing.charged:
            entry = ChargeRecord(
                "models", float(provenance.epsilon), name, max(provenance.homes, 1)
            )
            ledger.write(entry)


def _commit(service: ZoneService, ledger: Ledger) -> None:
    """Commit to the schedule by its digest, before the first reading of the epoch."""
    state = first_state(service)
    ledger.write(ScheduleRecord.of(state.digest, state.scheduler.scales()))


def first_state(service: ZoneService) -> State:
    """The mechanism's state before step 1 of an epoch.

    Args:
        service: The zone under the epoch's terms.

    Returns:
        The state.

    Raises:
        PolicyError: The zone was read without its plan.
    """
    if not service.planned:
        raise PolicyError(
            f"zone {service.id!r} was read without its plan, and its noise is not known; read its"
            " file with load_deployment(path)."
        )
    return init(*service.scenario.terms, service.policy, days=service.days)


def roster_digest(service: ZoneService) -> str:
    """SHA-256 over the meter ids in house order, a line each.

    Where houses have further registers, an empty line follows, and a line for each of them: the
    house's place from 0, 1 or -1 for what is fed in, and its id.

    Args:
        service: The zone.

    Returns:
        64 hexadecimal digits.
    """
    lines = list(service.meters)
    if service.registers:
        lines += ["", *(f"{house} {sign} {meter}" for house, meter, sign in service.registers)]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
