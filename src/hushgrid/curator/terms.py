"""Terms: what holds by a zone's file, how terms begin, names of houses.

The ledger has one record of terms for each time that they changed. All that a week needs follows
from it and from the file, and is never written. A house has a pseudonym in public records: the same
one each time, and no hint at its meter.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import canonical_digest
from hushgrid.accounting.temporal import contradicted_houses
from hushgrid.errors import LedgerError, MeterError, MeterRetryError, PolicyError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.weeks import in_week
from hushgrid.mechanism.digest import policy_fields, tariff_fields, zone_fields
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import State, init
from hushgrid.stores.ledger.duties import Checkpointed, LedgerStore
from hushgrid.stores.ledger.entries import ChargeRecord, TransferRecord
from hushgrid.stores.ledger.records import KINDS, Record, canonical
from hushgrid.stores.ledger.rules import HOUSE_DIGITS, StatedModels
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.terms import TariffRecord, TermsRecord, terms_name
from hushgrid.stores.ledger.writer import Ledger, Signer
from hushgrid.stores.meters import MeterStore

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


# ---- what a record of terms states


def terms_record(service: ZoneService, houses: str = "") -> TermsRecord:
    """The record with which a zone's terms begin.

    Args:
        service: The zone, over any week.
        houses: Names of its meters, see `TermsRecord`.

    Returns:
        The record.
    """
    first_week = service if service.begins == service.since else in_week(service, first_of(service))
    fields = {**stated_fields(service), "models": stated_models(first_week)}
    return TermsRecord(**fields, digest=digest_of(service), first=first_of(service), houses=houses)


@lru_cache(maxsize=256)
def digest_of(service: ZoneService) -> str:
    """The digest of a zone's terms, whenever they begin; it is in each of its releases.

    Args:
        service: The zone, over any week.

    Returns:
        64 hexadecimal digits.

    Raises:
        PolicyError: The zone was read without its plan.
    """
    if not service.planned:
        raise PolicyError(
            f"zone {service.id!r} was read without its plan, and its noise is not known; read its"
            " file with load_deployment(path)."
        )
    return terms_name(stated_fields(service))


def stated_fields(service: ZoneService) -> dict[str, Any]:
    """The fields of a record of terms by which they are named.

    Args:
        service: The zone, over any week.

    Returns:
        The fields by name.
    """
    scenario = service.scenario if service.pattern is None else service.pattern.scenario
    return {
        "seconds": service.seconds,
        "zone": canonical_digest(zone_fields(scenario.zone)),
        "occupancy": occupancy_digest(service),
        "consumption": scenario.consumption.digest,
        "promise": _promise_fields(service),
        "plan": _plan_fields(service.policy if service.week is None else service.week),
        "roster": roster_digest(service),
        "time_zone": None if service.pattern is None else service.time_zone,
        "reach": float(_mechanism(service).scheduler.zone.bound.max()),
        "models": stated_models(service),
    }


def tariff_figures(service: ZoneService) -> dict[str, Any]:
    """What the record of a zone's tariff says of its prices.

    Args:
        service: The zone.

    Returns:
        Its figures by the keys of a zone file, and how prices are published ahead.
    """
    figures, ahead = tariff_fields(service.scenario.tariff), service.ahead
    if ahead is not None:
        figures["ahead"] = {"days": ahead.ahead, "publish_at": ahead.publish_at}
    return figures


def has_tariff(service: ZoneService, standing: LedgerState) -> bool:
    """Whether a zone's tariff is the one on record, and in force where the zone goes on.

    Args:
        service: The zone.
        standing: Its ledger state.

    Returns:
        Whether no other needs to be recorded.
    """
    tariff = standing.tariff
    return (
        tariff is not None
        and same_tariff(service, tariff)
        and tariff.begins <= tariff_begins(service, standing)
    )


def same_tariff(service: ZoneService, tariff: TariffRecord) -> bool:
    """Whether a zone's tariff is that of a record.

    Args:
        service: The zone.
        tariff: The record.

    Returns:
        Whether all figures are equal.
    """
    return canonical(tariff.figures) == canonical(tariff_figures(service))


def tariff_begins(service: ZoneService, standing: LedgerState) -> int:
    """When the tariff of a zone would begin.

    Args:
        service: The zone.
        standing: Its ledger state.

    Returns:
        The end of all that is published, or the beginning of its terms [UTC s].
    """
    return max(service.since, standing.reach)


def _promise_fields(service: ZoneService) -> dict[str, Any]:
    promise, policy = service.promise, service.policy
    fields: dict[str, Any] = {
        "secret": "step" if promise is None else promise.secret,
        "epsilon": float(policy.epsilon if promise is None else promise.epsilon),
        "eta": float(policy.eta),
    }
    if promise is not None and promise.window is not None:
        fields["window"] = promise.window
    if service.eta_set_by:
        fields["eta_set_by"] = service.eta_set_by
    return fields


def _plan_fields(policy: Policy) -> dict[str, Any]:
    """The policy of a week, its blocks of steps as rows: length, loss, how many alike follow."""
    schedule, keys = policy.schedule, policy_fields(policy)
    lengths = np.array(schedule.lengths or (1,) * policy.horizon)
    losses = np.full(len(lengths), float(policy.epsilon))
    if schedule.epsilons:
        losses = np.array(schedule.epsilons, np.float64)[np.cumsum(lengths) - lengths]
    starts = np.flatnonzero((np.diff(lengths) != 0) | (np.diff(losses) != 0)) + 1
    starts = np.concatenate([[0], starts])
    alike = np.diff(starts, append=len(lengths)).tolist()
    runs = zip(lengths[starts].tolist(), losses[starts].tolist(), alike, strict=True)
    blocks = [list(run) for run in runs]
    for key in ("epsilon", "eta", "horizon", *schedule.terms):
        keys.pop(key, None)
    return {"blocks": blocks, **keys}


def stated_models(service: ZoneService) -> StatedModels | None:
    """The models of a zone as the record of its terms has them: chains that houses follow.

    Args:
        service: The zone; the law of each chain is that of its first step.

    Returns:
        See `TermsRecord`; None where nothing is promised about an interval.
    """
    if interval_promise(service) is None:
        return None
    reach, entries = _mechanism(service).scheduler.zone.bound, []
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
    """How the houses of a zone move; see `TermsRecord.chains`.

    Args:
        service: The zone.

    Returns:
        Equal to that of a record of terms where all houses move alike.
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


def interval_promise(service: ZoneService) -> float | None:
    """What all releases together may say about one interval of a house.

    Args:
        service: The zone.

    Returns:
        Epsilon; None: it is not promised.
    """
    promise = service.promise
    return promise.epsilon if promise is not None and promise.secret == "interval" else None


def window_promise(service: ZoneService) -> tuple[int, float] | None:
    """The promise about windows.

    Args:
        service: The zone.

    Returns:
        The window [s] and epsilon; None: it is not promised.
    """
    promise = service.promise
    if promise is None or promise.window is None:
        return None
    return promise.window, promise.epsilon


def occupancy_digest(service: ZoneService) -> str:
    """Names the models of a zone at all times.

    Args:
        service: The zone, over any week.

    Returns:
        64 hexadecimal digits.
    """
    scenario = service.scenario if service.pattern is None else service.pattern.scenario
    time_zone = None if service.pattern is None else service.time_zone
    models = [model.digest for model in scenario.models]
    return canonical_digest(
        {"format": "hushgrid-occupancy/1", "models": models, "time_zone": time_zone}
    )


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


def first_of(service: ZoneService) -> int:
    """The zone's first step under its terms.

    Args:
        service: The zone.

    Returns:
        The step: intervals since 1970.
    """
    return service.since // service.seconds


def first_state(service: ZoneService) -> State:
    """The mechanism's state before the first step of a zone's week.

    Args:
        service: The zone over that week.

    Returns:
        The state.

    Raises:
        PolicyError: The zone was read without its plan.
    """
    digest = digest_of(service)
    return replace(_mechanism(service), digest=digest)


def _mechanism(service: ZoneService) -> State:
    return init(*service.scenario.terms, service.policy, days=service.days)


# ---- how terms begin


def begin(
    service: ZoneService,
    ledger: Ledger,
    meters: MeterStore,
    key: Signer,
    new_terms: bool,
    *,
    changed: bool = False,
) -> None:
    """Check that a zone's terms are the ledger's; record them where it has none, or if asked to.

    Another tariff is recorded before them. It needs no terms of its own.

    Args:
        service: The zone of the service file.
        ledger: Its ledger, open for writing.
        meters: The meter store.
        key: The service's signing key.
        new_terms: Record the file's terms whether or not there are others.
        changed: The operator has agreed to another tariff.

    Raises:
        LedgerError: The terms or the tariff are others, and nobody agreed to them.
    """
    standing = ledger.standing
    check_all_here(service, standing, key, new_terms=new_terms)
    charges = charges_due(service, standing)
    for charge in charges:
        ledger.check(charge)
    if standing.terms is None or new_terms:
        names = sorted(name[:HOUSE_DIGITS] for name in house_names(key, service.all_meters))
        entry = terms_record(service, "".join(names))
        check_models_agree(service)
        if new_terms:
            check_new(service, standing)
            ledger.check(entry)
            _check_open(service, standing, meters)
            # after all checks: it cannot be undone. Refused while readings of the old one are open
            _new_roster(service, meters)
        _write_tariff(service, ledger, changed=True)
        ledger.write(entry)
    else:
        check_same(service, standing)
        _write_tariff(service, ledger, changed=changed)
    for charge in charges:
        ledger.write(charge)


def _write_tariff(service: ZoneService, ledger: Ledger, *, changed: bool) -> None:
    """Record a zone's tariff where the ledger has none, or another one that was agreed to."""
    standing = ledger.standing
    if has_tariff(service, standing):
        return
    if standing.tariff is not None and not (changed or same_tariff(service, standing.tariff)):
        raise LedgerError(
            f"the tariff of zone {service.id!r} is not that of its ledger (record"
            f" {standing.tariff.seq}); put it back, or begin it with hushgrid serve --yes."
        )
    ledger.write(TariffRecord(tariff_begins(service, standing), tariff_figures(service)))


def _check_open(service: ZoneService, standing: LedgerState, meters: MeterStore) -> None:
    """Refuse to begin with an interval that terms of another roster have closed ahead.

    Those terms are set aside. The interval gets no readings, and what is closed would not show any
    more what was published and lost.
    """
    closed = meters.last_closed(service.id)
    ahead = any(terms.begins > service.begins for terms in standing.terms_records)
    if ahead and closed is not None and closed >= service.begins:
        raise LedgerError(
            f"begins of zone {service.id!r} is {service.begins}, but its meter store is closed up"
            f" to the interval that begins at {closed} (Unix time); give a later begins, or set"
            " stores.meters to a new place."
        )


def check_all_here(
    service: ZoneService, standing: LedgerState, key: Signer, *, new_terms: bool
) -> None:
    """Refuse a roster with a house that left: its further spending would not follow it.

    And present terms with a house that came since they were recorded: what was published elsewhere
    while the house was away has no part in their account.

    Args:
        service: The zone.
        standing: Its ledger state.
        key: The service's signing key, for the names of houses.
        new_terms: The zone's terms are to begin.

    Raises:
        LedgerError: A house of the roster has moved to another zone, or came back from one.
    """
    moved, present = standing.moved, None if new_terms else standing.terms
    for house, name in _houses(service, key) if moved else ():
        last = moved.get(name)
        if last is not None and last.direction == "out":
            raise LedgerError(
                f"house {house} of zone {service.id!r} has moved to zone {last.other!r}; take"
                " its meter out of the roster and begin new terms with hushgrid serve --yes."
            )
        if last is not None and present is not None and last.seq > present.seq:
            raise LedgerError(
                f"house {house} of zone {service.id!r} came from zone {last.other!r} after the"
                " present terms were recorded, which do not count what was published there; begin"
                " new terms with hushgrid serve --yes."
            )


def _houses(service: ZoneService, key: Signer) -> Iterator[tuple[int, str]]:
    """The number of its house, from 1, and the name of every meter."""
    further = (register.house + 1 for register in service.registers)
    numbers = [*range(1, len(service.meters) + 1), *further]
    return zip(numbers, house_names(key, service.all_meters), strict=True)


def check_moves(
    zones: Sequence[ZoneService], store: LedgerStore, key: Signer, *, new_terms: bool
) -> None:
    """Refuse a roster with a house of another zone whose spending has not come along.

    A house that terms of another zone in the ledger have, and the last terms of its own zone have
    not, needs a transfer on record. Terms that published nothing have no part in it.

    Args:
        zones: The zones as they are to run.
        store: The ledger; it is only read.
        key: The service's signing key, for the names of houses.
        new_terms: All zones begin new terms; False: those without any are checked, and those
            whose last record is no release, since the present terms may have published nothing.

    Raises:
        LedgerError: The transfer was never made, or its records are lost.
    """
    new = [zone for zone in zones if new_terms or not _goes_on(store, zone.id)]
    pasts, gained = {zone.id: _past(store, zone.id) for zone in new}, dict[str, dict[str, int]]()
    for zone in new:
        last, names = pasts[zone.id].last, _houses(zone, key)
        gained[zone.id] = {name: n for n, name in names if name[:HOUSE_DIGITS] not in last}
    for source in store.zones() if any(gained.values()) else ():
        houses = (pasts.get(source) or _past(store, source)).houses
        for zone in new:
            arrivals = pasts[zone.id].arrivals
            for name, n in gained[zone.id].items() if source != zone.id else ():
                if name[:HOUSE_DIGITS] in houses and name not in arrivals:
                    raise LedgerError(
                        f"house {n} of zone {zone.id!r} was in zone {source!r}, and no transfer is"
                        " on record: what it has spent there would be forgotten. Run hushgrid"
                        " ledger transfer while it is in that roster (begin terms with it there"
                        " where it no longer is); if that was done and its records are lost, run"
                        " the same hushgrid ledger transfer again."
                    )


def _goes_on(store: LedgerStore, zone: str) -> bool:
    """Whether the last record but prices and tariffs is a release: its terms have published."""
    try:
        head = store.head(zone)
        if head is None or head.kind not in ("prices", "tariff"):
            return head is not None and head.kind == "release"
        others = [newest(store, zone, kind) for kind in KINDS if kind not in ("prices", "tariff")]
    except LedgerError:  # a zone whose ledger is damaged is refused where it is opened
        return True
    last = max((record for record in others if record), key=lambda r: r.seq, default=None)
    return last is not None and last.kind == "release"


def newest(store: LedgerStore, zone: str, kind: str) -> Record | None:
    """A zone's last record of a kind.

    Args:
        store: The ledger.
        zone: Id of the zone.
        kind: The kind.

    Returns:
        The record; None without one.
    """
    if isinstance(store, Checkpointed):  # no other record need be read
        return store.newest(zone, kind)
    return max(
        (record for record in store.records(zone) if record.kind == kind),
        key=lambda record: record.seq,
        default=None,
    )


class _Past(NamedTuple):
    """Houses of a zone's terms that published something, and those that came and did not leave."""

    houses: frozenset[str]
    last: frozenset[str]  # of the last of these terms
    arrivals: set[str]


def _past(store: LedgerStore, zone: str) -> _Past:
    houses = last = present = frozenset[str]()
    arrivals = set[str]()
    for record in store.records(zone):
        if record.kind == "terms":
            present = TermsRecord.from_record(record).house_names
        elif record.kind == "transfer":
            moved = TransferRecord.from_record(record)
            (arrivals.add if moved.direction == "in" else arrivals.discard)(moved.house)
        elif record.kind in ("release", "gap", "charge") and last is not present:
            last, houses = present, houses | present
    return _Past(houses, last, arrivals)


def check_same(service: ZoneService, standing: LedgerState) -> None:
    """Refuse terms that are not those of the ledger.

    Args:
        service: The zone.
        standing: Its ledger state.

    Raises:
        LedgerError: The ledger has no terms, or others.
    """
    if standing.terms is None:
        raise LedgerError(f"the ledger of zone {service.id!r} has no terms; start the service.")
    if digest_of(service) != standing.terms.digest:
        raise LedgerError(
            f"the terms of zone {service.id!r} are not those of its ledger"
            f" ({standing.terms.digest[:12]}); put them back, or begin them with hushgrid serve"
            " --yes."
        )


def check_models_agree(service: ZoneService) -> None:
    """Refuse an interval promise under models that contradict each other in a week.

    Args:
        service: The zone over that week.

    Raises:
        LedgerError: At some step one has a house at home for certain, another away.
    """
    models = service.scenario.models
    if interval_promise(service) is None:
        return
    if contradicted_houses(models, service.policy.horizon).any():
        raise LedgerError(
            f"models of zone {service.id!r} contradict each other: at some time of its week one has"
            " a house at home for certain, another away. Every price says which is right, so"
            " there is no promise about one interval; give one of them, or the secret step."
        )


def check_new(service: ZoneService, standing: LedgerState) -> None:
    """Refuse new terms that begin before the end of what is published; changes nothing.

    Args:
        service: The zone with the new terms.
        standing: Its ledger state.

    Raises:
        LedgerError: A step of the new terms is published already or lies in a gap, or a gap is
            not booked.
    """
    if standing.gap is not None:
        raise LedgerError(
            f"terms of zone {service.id!r} follow a gap (steps {standing.gap.first} to"
            f" {standing.gap.last}) that is not booked; run hushgrid resume first."
        )
    if service.begins < standing.reach:
        raise LedgerError(
            f"begins of zone {service.id!r} is {service.begins} but what is published or booked as"
            f" lost reaches to {standing.reach} (Unix time); give a later begins for the new terms."
        )


def _new_roster(service: ZoneService, meters: MeterStore) -> None:
    """Set the new terms' roster in the meter store; an empty store takes any."""
    try:
        meters.open_zone(*service.roster)
    except MeterRetryError:
        raise
    except MeterError:
        meters.reopen(
            service.id, service.meters, service.seconds, service.begins, service.registers
        )


def charges_due(service: ZoneService, standing: LedgerState) -> list[ChargeRecord]:
    """What pooled models have cost every house, unless that is on record.

    Args:
        service: The zone.
        standing: Its ledger state.

    Returns:
        No charge, or one.
    """
    learned = service.learned
    if not learned.epsilon > 0:
        return []
    is_digest = re.fullmatch("[0-9a-f]{64}", learned.digest)
    name = learned.digest if is_digest else service.scenario.models[0].digest
    if name in standing.charged:
        return []
    homes, readings = max(learned.homes, 1), (learned.first_reading, learned.last_reading - 1)
    return [ChargeRecord("models", float(learned.epsilon), name, homes, *readings)]
