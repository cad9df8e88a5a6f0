"""What an audit reads: ledgers, traces, zone and service files, digests kept by readers.

The audit builds its own evidence from the records and does not use `curator.replay`, so that a
fault there is not repeated here.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from hushgrid._numbers import is_hex
from hushgrid.adversary.attack import Recording
from hushgrid.audit.bounds import Check
from hushgrid.audit.evidence import (
    AccountFinding,
    Evidence,
    Terms,
    from_recording,
)
from hushgrid.audit.publishers import Factory
from hushgrid.curator.account_records import (
    from_rows,
    has_other_history,
    leaving_windows,
)
from hushgrid.curator.changes import zone_as_begun
from hushgrid.curator.promise import (
    outlook_figures,
    stated_epsilon,
    window_steps,
    window_words,
)
from hushgrid.curator.replay import add_rates
from hushgrid.curator.terms import digest_of, first_state, terms_record
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.errors import FileError, HushgridError, LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.models import is_trace, load_trace
from hushgrid.files.results import read_text
from hushgrid.files.service_file import is_service, load_deployment
from hushgrid.files.toml import TomlFile
from hushgrid.files.weeks import Steps, in_week, placed, planned_with, scenario_over
from hushgrid.files.zone_file import ZoneFile, load_zone, zone_of
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tariff
from hushgrid.operate.recorded_weeks import evidence_of
from hushgrid.stores.ledger import check_digits, is_there, open_records, verifier
from hushgrid.stores.ledger.chain import ChainReport, check
from hushgrid.stores.ledger.entries import (
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
)
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.rules import AccountRows, WindowRows
from hushgrid.stores.ledger.state import LedgerState


@dataclass(frozen=True, slots=True, eq=False)
class AuditInput:
    """What a file holds for an audit.

    Attributes:
        evidence: Records by zone.
        terms: Terms by zone.
        chain: The check of the chain; None where there is no ledger.
        kind: What the file is, in words.
        recorded: The whole trace, where it is one.
    """

    evidence: tuple[Evidence, ...]
    terms: tuple[Terms, ...]
    chain: Check | None
    kind: str
    recorded: Recording | None = None  # the whole trace, where it is one


def load_case(
    file: str,
    configs: Sequence[Path],
    *,
    zone: str | None = None,
    key: str | None = None,
    heads: Iterable[str] = (),
) -> AuditInput:
    """Read what is to be audited.

    Args:
        file: A trace, an export, a ledger store, a zone file or a service file.
        configs: Zone or service files with the terms.
        zone: Audit this zone only.
        key: Public key (hex) that all signatures must have.
        heads: Digests that must be in the ledger.

    Returns:
        Records, terms and the check of the chain.

    Raises:
        FileError: `zone` is none of those in the terms.
    """
    path = Path(file)
    terms = [entry for config in configs for entry in load_terms(config)[0]]
    evidence: tuple[Evidence, ...] = ()
    chain, kind, recorded = None, "zone file", None
    if path.suffix == ".toml":
        file_terms, ledger = load_terms(path)
        terms += file_terms
        if ledger is not None and is_there(ledger):
            evidence, chain = load_ledger(ledger, zone=zone, key=key, heads=heads)
            kind = "service file and its ledger"
    elif is_trace(path):
        recorded = load_trace(path)
        evidence, kind = (from_recording(recorded),), "trace"
        if not terms and recorded.config:
            terms = [_of_zone(zone_of(recorded.config, path))]
        terms = [_starting(entry, recorded.offset, recorded.digest) for entry in terms]
    else:
        evidence, chain = load_ledger(file, zone=zone, key=key, heads=heads)
        kind = "ledger"
    zone_terms = [entry for entry in terms if zone in (None, entry.zone.id)]
    if zone is not None and not zone_terms and terms:
        names = ", ".join(sorted({entry.zone.id for entry in terms}))
        raise FileError(f"zone is {zone!r} but the terms are of {names}; give one of them.")
    return AuditInput(evidence, tuple(zone_terms), chain, kind, recorded)


def _starting(terms: Terms, offset: int, digest: str) -> Terms:
    """The terms of a later day of a simulation: their calendars seen from there."""
    if not offset or terms.first_state().digest == digest:
        return terms
    models = tuple(model.starting(offset) for model in terms.models)
    return replace(terms, models=models, consumption=terms.consumption.starting(offset))


def load_terms(path: Path) -> tuple[list[Terms], str | None]:
    """The terms in a zone or service file.

    Args:
        path: The file.

    Returns:
        Terms by zone, and the ledger of a service.
    """
    file = TomlFile(path)
    file.check()
    if not is_service(file.content):
        return [_of_zone(load_zone(path))], None
    deployment = load_deployment(path)
    return [terms_of(service) for service in deployment.zones], deployment.ledger


def _of_zone(file: ZoneFile) -> Terms:
    return Terms(
        *file.scenario.terms,
        file.policy,
        secret=file.secret or "step",
        charged=file.learned.epsilon,
        provenance=file.provenance,
    )


class _InOtherWeeks:
    """The terms of a service file, over other weeks of its zone."""

    def __init__(self, service: ZoneService) -> None:
        self._service = service

    def terms(self, first: int) -> Terms:
        """The terms over the week that begins with the zone's step `first`."""
        begins = first * self._service.seconds
        return replace(terms_of(placed(self._service, begins)), other_weeks=self)

    def models(self, first: int, steps: int) -> Sequence[OccupancyModel]:
        """Theta over those steps, in local time."""
        service = self._service
        if service.pattern is None:
            return service.scenario.models
        begins = first * service.seconds
        place = Steps(begins, service.seconds, steps, service.time_zone)
        return scenario_over(service.pattern, place).models


def terms_of(service: ZoneService) -> Terms:
    """The terms of a zone of a service.

    Args:
        service: The zone.

    Returns:
        Its terms, as an audit uses them.
    """
    promise = service.promise
    return Terms(
        *service.scenario.terms,
        service.policy,
        secret="step" if promise is None else promise.secret,
        epsilon=None if promise is None else stated_epsilon(service),
        fallback_rate=service.fallback_rate,
        eta_set_by=service.eta_set_by,
        charged=service.learned.epsilon,
        provenance=service.provenance,
        continued=promise is not None and promise.secret == "interval",
        other_weeks=None if service.pattern is None else _InOtherWeeks(service),
        days=service.days,
        accounts=partial(_accounts, service),
        window=window_words(service),
        window_steps=window_steps(service),
        name=digest_of(service),
        meters=len(service.all_meters),
        planned=None if service.pattern is None else partial(_planned, service),
        figures=partial(outlook_figures, service),
    )


def _planned(service: ZoneService, tariff: Tariff) -> Terms:
    """The terms of a zone with the plan that another tariff led to."""
    return terms_of(planned_with(service, tariff))


_Stating = ReleaseRecord | ResumeRecord | TransferRecord  # records with an account


def _accounts(service: ZoneService, ledger: LedgerState, number: int) -> AccountFinding:
    """The first fault of what is recorded under some terms: what they state, and their accounts.

    Each account is computed from the records before it, with the code that chose it and from
    nothing else.

    Args:
        service: The zone as its file is now.
        ledger: The zone's ledger.
        number: Of the terms.

    Returns:
        The finding.
    """
    terms = ledger.terms_records[number]
    later = [*(entry.seq for entry in ledger.terms_records), ledger.head.seq + 1][number + 1]
    zone_at_terms = zone_as_begun(service, terms, ledger.tariff_before(terms.seq))
    if digest_of(zone_at_terms) != terms.digest:
        return AccountFinding(False)
    due = terms_record(zone_at_terms, terms.houses).to_body()
    for name, figure in terms.to_body().items():
        if not _agree(figure, due.get(name)):
            return AccountFinding(True, terms.seq, f"states other {name} than its terms")
    week: _Week | None = None
    bound = terms.interval is None and terms.window is None  # by promises made before them
    for release in ledger.releases:
        if not terms.seq < release.seq < later:
            continue
        if week is None or not week.has(release.t):
            week = _Week(in_week(zone_at_terms, release.t))
        has_account = release.account is not None or release.windows is not None
        if has_account or (bound and release.source == "readings"):
            bound = bound and has_account
            fault = week.fault(
                _before(ledger, number, release.seq), release, has_account=has_account
            )
            if fault is not None:
                return AccountFinding(True, release.seq, fault)
        week.add(release)
    return _left_or_lost(ZoneAccount(zone_at_terms), ledger, number, range(terms.seq, later))


class _Week:
    """The accounts of one week computed again, release by release."""

    def __init__(self, service: ZoneService) -> None:
        self._service, self._first = service, service.begins // service.seconds
        self._account, self._scheduler = ZoneAccount(service), first_state(service).scheduler
        self._rates = list[float]()

    def has(self, t: int) -> bool:
        """Whether a step of the zone is in the week."""
        return self._service.begins <= t * self._service.seconds < self._service.ends

    def fault(
        self, standing: LedgerState, release: ReleaseRecord, *, has_account: bool
    ) -> str | None:
        """What a release states wrongly about its account, by the records before it."""
        t = release.t - self._first + 1
        choice = self._account.choose(standing, t, self._scheduler, self._rates)
        if choice is None:
            return "opens a block that its account does not admit"
        accounts = (choice.account, choice.windows)
        if has_account and not _agree((release.account, release.windows), accounts):
            return "states another account than that of the records before it"
        lost = self._scheduler.at(t, self._rates, choice.epsilon).epsilon
        if not math.isclose(release.epsilon, lost, rel_tol=1e-9):
            return "loses another epsilon than its account chooses"
        return None

    def add(self, release: ReleaseRecord) -> None:
        """Take the rate of the next release."""
        add_rates(self._rates, [release], self._first, self._service.fallback_rate)


def _left_or_lost(
    account: ZoneAccount, ledger: LedgerState, number: int, records: range
) -> AccountFinding:
    """The first house that leaves, or gap that is booked, with too good an account."""

    for move in ledger.transfers:
        if move.seq in records and move.direction == "out":
            rows, end = account.leaving(_before(ledger, number, move.seq))
            windows = leaving_windows(_before(ledger, number, move.seq))
            agree = _agree(move.windows, windows)
            if move.last < end or not agree or not _covers(move.account, rows):
                text = "states a better account of a house that leaves"
                return AccountFinding(True, move.seq, text)
    text = "states a better account of what is booked as lost"
    for resume in ledger.booked:
        if resume.seq not in records:
            continue
        before = _before(ledger, number, resume.seq)
        twice = has_other_history(before, before.gaps[-1])
        windows = account.windows_after_loss(before, resume.first, resume.last, anew=twice)
        if not _holds(resume.windows, windows):
            return AccountFinding(True, resume.seq, text)
        if ledger.terms_records[number].interval is not None:
            rows, until = account.after_loss(before, resume.first, resume.last, unknown=twice)
            booked = [row[0] for row in resume.account or ()]
            agree = len(booked) != len(rows) or _agree(booked, [row[0] for row in rows])
            if (resume.until or 0) < until or not agree or not _covers(resume.account, rows):
                return AccountFinding(True, resume.seq, text)
    return AccountFinding(True)


def _agree(record: Any, due: Any) -> bool:
    """Whether a part of a record is as computed again, but for the last digits of numbers."""
    if isinstance(record, (tuple, list)) and isinstance(due, (tuple, list)):
        return len(record) == len(due) and all(map(_agree, record, due))
    if isinstance(record, Mapping) and isinstance(due, Mapping):
        return record.keys() == due.keys() and all(_agree(record[k], due[k]) for k in due)
    if isinstance(record, float) and isinstance(due, float):
        return math.isclose(record, due, rel_tol=1e-9, abs_tol=1e-9)
    return bool(record == due)


def _holds(windows: WindowRows | None, due: WindowRows | None) -> bool:
    """Whether an account of windows on record has the promises and all blocks of another one."""
    if due is None or windows is None:
        return due is None
    (promises, blocks), (due_promises, due_blocks) = windows, due
    recorded_blocks = list(blocks)
    for block in due_blocks:
        match = next(
            (entry for entry in recorded_blocks if _agree(tuple(entry), tuple(block))), None
        )
        if match is None:
            return False
        recorded_blocks.remove(match)
    return _agree(promises, due_promises)


def _covers(rows: AccountRows | None, due: AccountRows | None) -> bool:
    """Whether an account on record says that no less is known, and leaves no more room."""
    if due is None or rows is None:
        return due is None
    recorded, least = from_rows(rows).merged(), from_rows(due).merged()
    near = 1e-9
    return bool(
        recorded.known >= least.known * (1 - near)
        and recorded.room <= least.room * (1 + near)
        and recorded.low <= least.low + near
        and recorded.high >= least.high - near
    )


def _before(ledger: LedgerState, number: int, seq: int) -> LedgerState:
    """The ledger as it was before a record."""

    def before(records: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(record for record in records if record.seq < seq)

    return replace(
        ledger,
        terms=ledger.terms_records[number],
        terms_records=ledger.terms_records[: number + 1],
        releases=ledger.releases[
            : bisect_left(ledger.releases, seq, key=lambda release: release.seq)
        ],
        transfers=before(ledger.transfers),
        charges=before(ledger.charges),
        booked=before(ledger.booked),
        gap=None,
        gaps=before(ledger.gaps),
        tariffs=before(ledger.tariffs),
    )


def load_ledger(
    store: str, *, zone: str | None, key: str | None, heads: Iterable[str]
) -> tuple[tuple[Evidence, ...], Check]:
    """All records of a store or an export, by zone, and the check of their chain.

    Args:
        store: A path or URL.
        zone: Read this zone only.
        key: Public key (hex) that all signatures must have.
        heads: Digests that must be in the ledger.

    Returns:
        Evidence by zone, and the check.

    Raises:
        LedgerError: There are no records, or `key` or a head is no digest.
    """
    head_zones: dict[str, str | None] = dict.fromkeys(heads)
    for digest in head_zones:
        check_digits("head", digest)
    read: list[Record] = []
    with open_records(store, zone) as (records, durable):
        report = check(_kept(records, read), verifier(key), {**head_zones, **durable})
    if not read and report.first_bad is None:
        raise LedgerError(f"{store} has no such records; give another store or zone.")
    by_zone: dict[str, list[Record]] = {}
    for record in read:
        by_zone.setdefault(record.zone, []).append(record)
    places = {id(record): n for n, record in enumerate(read, 1)}
    known_whole = report.standings if report.first_bad is None else {}
    evidence = tuple(
        replace(evidence_of(name, records, places), ledger=known_whole.get(name))
        for name, records in by_zone.items()
    )
    return evidence, _chain(report, key is not None, bool(head_zones))


def _kept(records: Iterable[Record], read: list[Record]) -> Iterator[Record]:
    """Keep what is read, the record that breaks a rule included."""
    for record in records:
        read.append(record)
        yield record


def _chain(report: ChainReport, with_key: bool, with_heads: bool) -> Check:
    if report.first_bad is not None:
        text = f"Record {report.first_bad}: {report.reason} Nothing after it was looked at."
        return Check("chain", "failed", text, report.first_bad)
    parts = [f"{report.records} records are valid, signatures checked"]
    parts.append("of the key given" if with_key else "of the key in the ledger itself")
    if with_heads:
        parts.append("and the heads seen earlier are in it")
    missing = (
        ""
        if with_heads
        else (" Without --head a chain written anew as a whole would look the same.")
    )
    return Check("chain", "passed", f"{', '.join(parts)}.{missing}")


def load_heads(path: Path) -> list[str]:
    """Digests of records that a reader kept.

    Args:
        path: A text file with a digest a line, or saved answers of a price feed (JSON).

    Returns:
        The digests, each once.

    Raises:
        FileError: The file holds none.
    """
    text = read_text(path)
    heads = [line.strip() for line in text.splitlines() if is_hex(line.strip(), 64)]
    try:
        values = [json.loads(text)]
    except ValueError:
        values = []
        for line in text.splitlines():
            try:
                values.append(json.loads(line))
            except ValueError:
                continue
    for value in values:
        heads += _heads_in(value)
    if not heads:
        raise FileError(f"{path} holds no head; give digests, one a line, or saved prices (JSON).")
    return list(dict.fromkeys(heads))


def _heads_in(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        heads = [value["head"]] if is_hex(value.get("head"), 64) else []
        return heads + [head for item in value.values() for head in _heads_in(item)]
    if isinstance(value, list):
        return [head for item in value for head in _heads_in(item)]
    return []


def load_factory(name: str) -> Factory:
    """Import the factory of a publisher; modules of the current folder are found, too.

    Args:
        name: MODULE:FACTORY.

    Returns:
        The factory.

    Raises:
        FileError: It cannot be imported, or is not callable.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise FileError(
            f"publisher is {name!r}; give MODULE:FACTORY such as"
            " hushgrid.audit.publishers:hushgrid."
        )
    if os.getcwd() not in sys.path:  # noqa: PTH109
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        candidate = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise FileError(
            f"publisher {name!r} cannot be imported ({error}); give a module that Python finds."
        ) from None
    except AttributeError:
        raise FileError(
            f"publisher {name!r} has no {attribute}; give a factory of module {module}."
        ) from None
    if not callable(candidate):
        raise FileError(f"publisher {name!r} is no factory; give something that can be called.")
    factory: Factory = candidate
    return factory


def attack_scores(case: AuditInput, seed: int) -> dict[str, Any] | None:
    """Two attacks on a trace that includes the true occupancy, scored.

    Args:
        case: What is audited.
        seed: Random seed.

    Returns:
        Figures by what the adversary knows; None for anything else than such a trace.
    """
    from hushgrid.adversary.attack import attack
    from hushgrid.model.zone import Scenario
    from hushgrid.report.attack import attack_figures

    recorded = case.recorded
    if recorded is None or recorded.truth is None or not case.terms:
        return None
    terms = case.terms[0]
    if terms.first_state().digest != recorded.digest:
        return None
    world = Scenario(terms.zone, terms.tariff, terms.models, terms.consumption)
    figures = {}
    for knows in ("none", "others"):
        arguments: dict[str, Any] = {"knows": knows, "clamp": terms.policy.clamp, "seed": seed}
        try:
            figures[knows] = attack_figures(
                attack(world, recorded.releases, recorded.truth, **arguments)
            )
        except HushgridError:  # no filter reads these terms
            continue
    return figures or None


def fingerprint(path: Path) -> str | None:
    """SHA-256 of a file.

    Args:
        path: The file.

    Returns:
        64 hexadecimal digits; None where it cannot be read, or holds private models, of which a
        guess could be checked.
    """
    try:
        if path.suffix == ".toml":
            learned = TomlFile(path).content.get("learned")
            if isinstance(learned, Mapping) and learned.get("provenance") == "private":
                return None
        return sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None
