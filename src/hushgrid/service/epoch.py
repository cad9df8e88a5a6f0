"""The terms of a zone's epoch: what the ledger has fixed, and how new ones begin."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hushgrid.errors import LedgerError, MeterError, MeterRetryError
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.release import State, init, known_as
from hushgrid.service.ledger.records import ChargeRecord, EpochRecord, LedgerState, ScheduleRecord
from hushgrid.service.ledger.writer import Ledger, Signer
from hushgrid.service.meters.ports import IntervalSource

# --------------------------------------------------------------------------------------------------
# Names of houses in public records: the same for a meter each time, and telling nobody which.


_PURPOSE = hashlib.sha256(b"hushgrid-house/1\n").hexdigest()


def house_names(key: Signer, meters: Iterable[str]) -> Iterator[str]:
    """A name for each meter id; only who has the key can tell which is whose.

    Ed25519 signs a text the same way each time, so a signature that is never shown is a secret
    that needs no file of its own.
    """
    secret = bytes.fromhex(key.sign(_PURPOSE))
    for meter in meters:
        yield hmac.new(secret, f"house\n{meter}".encode(), hashlib.sha256).hexdigest()[:32]


def begin(
    service: ZoneService,
    ledger: Ledger,
    meters: IntervalSource,
    key: Signer,
    new_epoch: bool,
    stated: Mapping[str, Any] | None = None,
) -> None:
    """See that the present epoch is of these terms; begin one where there is none, or if asked.

    `stated`: what the record of a new epoch says about leakage.
    """
    check_all_here(service, ledger.standing, key)
    if new_epoch:  # first, since it is refused while the old epoch has readings open
        check_new(service, ledger.standing)
        _new_roster(service, meters)
    _begin(service, ledger, new_epoch, stated or {})


def check_all_here(service: ZoneService, standing: LedgerState, key: Signer) -> None:
    """Refuse a roster with a house that left: what it spends here would be carried nowhere."""
    left = {one.house: one.other for one in standing.moved.values() if one.direction == "out"}
    if not left:
        return
    for house, name in enumerate(house_names(key, service.meters)):
        if name in left:
            raise LedgerError(
                f"house {house + 1} of zone {service.id!r} has moved to zone {left[name]!r}; take"
                " its meter out of the roster and begin a new epoch with hushgrid serve"
                " --new-epoch."
            )


def check_same(service: ZoneService, standing: LedgerState) -> None:
    """Refuse terms that are not those of the present epoch."""
    if standing.epoch is None:
        raise LedgerError(f"the ledger of zone {service.id!r} has no epoch; start the service.")
    now_first = service.begins // service.seconds
    then = (standing.epoch.first, standing.epoch.seconds, standing.epoch.roster)
    same = then == (now_first, service.seconds, roster_digest(service))
    digest = standing.epoch.digest
    if not same or first_state(service, digest).digest != digest:
        raise LedgerError(
            f"the terms of zone {service.id!r} are not those of its epoch"
            f" ({digest[:12]}); put them back, or begin a new epoch with"
            " hushgrid serve --new-epoch."
        )


def check_new(service: ZoneService, standing: LedgerState) -> None:
    """Refuse a new epoch that begins before what is published, while nothing is changed yet."""
    first, last = service.begins // service.seconds, standing.last_t
    if first <= last:
        raise LedgerError(
            f"begins of zone {service.id!r} is interval {first} but {last} is published;"
            " give a later begins for the new epoch."
        )


def _new_roster(service: ZoneService, meters: IntervalSource) -> None:
    """Let the meter store take the new epoch's roster; a store that is new takes any."""
    try:
        meters.open_zone(service.id, service.meters, service.seconds)
    except MeterRetryError:
        raise
    except MeterError:
        meters.reopen(service.id, service.meters, service.seconds, service.begins)


def _begin(
    service: ZoneService, ledger: Ledger, new_epoch: bool, stated: Mapping[str, Any]
) -> None:
    """The present epoch must be of these terms; begin one where there is none, or when asked to."""
    standing = ledger.standing
    if standing.epoch is not None and not new_epoch:
        check_same(service, standing)
        if standing.schedule is None:
            _commit(service, ledger)
        return
    state = first_state(service)
    ledger.write(
        EpochRecord(
            state.digest,
            first=service.begins // service.seconds,
            horizon=service.policy.horizon,
            seconds=service.seconds,
            roster=roster_digest(service),
            exact=service.policy.on_empty == "publish_exact",
            **stated,
        ),
    )
    _charge(service, ledger)
    _commit(service, ledger)


def _charge(service: ZoneService, ledger: Ledger) -> None:
    """What pooled models have cost every house is in the ledger before the first release."""
    made = service.learned
    if made.epsilon > 0:
        given = re.fullmatch("[0-9a-f]{64}", made.digest)
        digest = made.digest if given else service.scenario.models[0].digest
        if digest not in ledger.standing.charged:
            ledger.write(ChargeRecord("models", float(made.epsilon), digest, max(made.homes, 1)))


def _commit(service: ZoneService, ledger: Ledger) -> None:
    """The schedule's digest, before the first reading of the epoch."""
    epoch = ledger.standing.epoch
    state = first_state(service, None if epoch is None else epoch.digest)
    ledger.write(ScheduleRecord.of(state.digest, state.scheduler.scales()))


def first_state(service: ZoneService, digest: str | None = None) -> State:
    """The mechanism before step 1 of the epoch; `digest` is the epoch's, where there is one."""
    scenario = service.scenario
    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    return known_as(init(*world, service.policy), digest)


def roster_digest(service: ZoneService) -> str:
    """SHA-256 over the meter ids in house order, a line each.

    In the order of the ids where models are private: there houses stand in the order of their
    groups, and which home is in which would be something to check guesses against.
    """
    meters = sorted(service.meters) if service.learned.private else service.meters
    return hashlib.sha256("".join(f"{m}\n" for m in meters).encode()).hexdigest()
