"""What `hushgrid check` finds in a service, and what `hushgrid doctor` repairs of it.

`examine` looks at everything that `hushgrid serve` would refuse at its start and at every stored
record and reading. It writes nothing, and the service may run meanwhile: stores are opened for
reading, or it is checked that they can be created; a port is bound and released at once. serve does
not refuse to start without a broker, so none is contacted. A finding that can be repaired without a
person brings its cure along; `repair` applies the cures. Messages name zones and intervals, never a
reading.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from hushgrid.belief.filter import Expectations
from hushgrid.curator.changes import change_of, next_border, tariff_change, zone_as_begun
from hushgrid.curator.curator import LATE
from hushgrid.curator.promise import Running
from hushgrid.curator.replay import Replay
from hushgrid.curator.terms import (
    check_all_here,
    check_models_agree,
    check_moves,
    check_new,
    digest_of,
    first_state,
    same_tariff,
)
from hushgrid.curator.transfer import check_arrived
from hushgrid.errors import (
    HushgridError,
    LedgerError,
    MeterError,
    ServiceError,
    require,
)
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.settings import Mqtt
from hushgrid.files.toml import masked
from hushgrid.files.weeks import in_week, placed
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.release import step
from hushgrid.stores.clients import CLIENTS, ClientStore, check_bound
from hushgrid.stores.database import Database, Schema, exists, is_postgres
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check, fold
from hushgrid.stores.ledger.checkpoint import Checkpoint, decode, misfit
from hushgrid.stores.ledger.duties import Checkpointed, LedgerStore
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.store import CHECKPOINTS, LEDGER, lock_of
from hushgrid.stores.ledger.witness import witness_to_read
from hushgrid.stores.ledger.writer import Ledger, Signer, load, verify_signature
from hushgrid.stores.meters.block_keys import BlockKeys
from hushgrid.stores.meters.columns import HeldRoster, Interval, Roster
from hushgrid.stores.meters.store import damages, stored_rosters
from hushgrid.stores.meters.tables import SCHEMA as METERS
from hushgrid.stores.meters.tables import file_of, key_folder
from hushgrid.stores.openadr import VTN
from hushgrid.web.feeds import SLOT

_MODULES = ("uvicorn", "starlette", "paho.mqtt.client", "prometheus_client", "sqlalchemy")
_COPY = "stop the service and put back a copy (docs/operations.md, Restore)"
_STALE = 60.0  # [s] after which a temporary file is nobody's


class Finding(NamedTuple):
    """The result of checking one thing.

    Attributes:
        subject: What was checked.
        problem: What is wrong with it; None: nothing.
        fix: What can be done, where the problem does not say it.
        note: What was found where nothing is wrong.
    """

    subject: str
    problem: str | None = None
    fix: str = ""
    note: str = ""

    @property
    def sentence(self) -> str:
        """The finding for people."""
        if self.problem is None:
            return f"{self.subject}{self.note and f': {self.note}'}"
        return f"{self.subject}: {self.problem.rstrip('.')}. {self.fix}".rstrip()


class Cure(NamedTuple):
    """A repair that is safe without a person.

    Attributes:
        subject: What is repaired.
        apply: Repairs it and returns what was done; raises where it cannot.
    """

    subject: str
    apply: Callable[[], str]


class Findings:
    """All that was checked so far.

    Attributes:
        checks: A finding for each thing.
        remarks: Warnings, a sentence each.
        cures: What can be repaired.
        running: The terms of every zone whose ledger serve would continue.
    """

    def __init__(self) -> None:
        self.checks: list[Finding] = []
        self.remarks: list[str] = []
        self.cures: list[Cure] = []
        self.running: dict[str, Running] = {}

    @property
    def problems(self) -> list[str]:
        """What is wrong, one sentence each."""
        return [finding.sentence for finding in self.checks if finding.problem is not None]

    def has_problem(self, subject: str) -> bool:
        """Whether something is wrong with this."""
        return any(finding.subject == subject and finding.problem for finding in self.checks)

    @contextmanager
    def at(self, subject: str) -> Iterator[None]:
        """Errors raised inside are problems of this; without any finding of it, it is good."""
        try:
            yield
        except HushgridError as error:
            self.checks.append(Finding(subject, masked(str(error))))
        except OSError as error:
            self.checks.append(Finding(subject, f"{error.strerror or type(error).__name__}."))
        else:
            if all(finding.subject != subject for finding in self.checks):
                self.checks.append(Finding(subject))


def examine(deployment: Deployment) -> Findings:
    """Check a service: modules, key, stores, terms, file modes, address and broker.

    Args:
        deployment: The service as its file describes it.

    Returns:
        What was found.
    """
    findings = _stores(deployment)
    if deployment.http is not None:
        with findings.at("http"):
            _http(deployment, findings)
        for zone in deployment.zones:
            if zone.seconds % SLOT:
                findings.remarks.append(
                    f"zone {zone.id}: the interval is {zone.seconds} s and evcc has quarter hours"
                    " alone, so /v1/evcc gives the mean of each; let evcc read /v1/price for the"
                    " price in force."
                )
    if deployment.mqtt is not None:
        with findings.at("mqtt"):
            _broker(deployment.mqtt, findings)
    if deployment.price_file is not None and not deployment.price_file.parent.is_dir():
        folder = deployment.price_file.parent
        findings.remarks.append(f"publish.file: folder {folder} does not exist; make it.")
    return findings


def repair(deployment: Deployment) -> tuple[list[tuple[str, str]], Findings]:
    """Repair what can be repaired without a person, in stores and files.

    Args:
        deployment: The service as its file describes it.

    Returns:
        What was repaired, each with what was done; and what is found afterwards.
    """
    findings = _stores(deployment)
    if not findings.cures:
        return [], findings
    owner = deployment.key.stat().st_uid if deployment.key.exists() else None
    if owner != os.geteuid():  # the service may not be able to use what another user makes
        findings.remarks.append(
            f"service.key: {deployment.key} is not of the user who runs this, so nothing is"
            " repaired; run hushgrid doctor as the user of the service."
        )
        return [], findings
    repairs = []
    for cure in findings.cures:
        with suppress(HushgridError, OSError):  # it is found again
            repairs.append((cure.subject, cure.apply()))
    return repairs, _stores(deployment)


def _stores(deployment: Deployment) -> Findings:
    """Check what is installed, the key, every store and the modes of files."""
    findings, key = Findings(), None
    with findings.at("hushgrid"):
        _modules()
    with findings.at("service.key"):
        key = load(deployment.key)
    states: dict[str, LedgerState] = {}
    with findings.at("stores.ledger"):
        _ledger(deployment, key, findings, states)
    with findings.at("stores.witness"):
        _witness(deployment.witness_folder)
    with findings.at("stores.meters"):
        _meters(deployment, findings, states)
    with findings.at("stores.block_keys"):
        _block_keys(deployment, findings)
    with findings.at("stores.clients"):
        _rows(findings, "stores.clients", deployment.client_store, CLIENTS)
        _clients(deployment)
    if deployment.openadr is not None:
        with findings.at("stores.vtn"):
            _rows(findings, "stores.vtn", deployment.vtn_store, VTN)
    _modes(deployment, findings)
    return findings


def _modules() -> None:
    for module in _MODULES:
        require(module, "serve")


# ---- the ledger


def _ledger(
    deployment: Deployment,
    key: Signer | None,
    findings: Findings,
    states: dict[str, LedgerState],
) -> None:
    """Check every record, as serve reads it too, and the terms against those of the ledger.

    Args:
        deployment: The service.
        key: Its key; None where it cannot be used.
        findings: Gets what is found.
        states: Gets the state of every ledger that is good.
    """
    opened: AbstractContextManager[LedgerStore | None] = nullcontext()
    if exists(deployment.ledger, LEDGER):
        opened = open_store(deployment.ledger, create=False, still=True)
    else:
        small = Path(deployment.ledger.removeprefix("sqlite:"))
        is_lost = not deployment.on_server and any(small.parent.glob(f"{small.name}.*"))
        problem = (
            "it is gone, and the small files next to it know a last record" if is_lost else None
        )
        findings.checks.append(Finding("stores.ledger", problem, f"First {_COPY}.", "not begun"))
    zones, moves = {zone.id: zone for zone in deployment.zones}, {}
    with opened as store:
        if isinstance(store, Database) and not store.is_whole():
            problem = "the file is damaged"
            findings.checks.append(Finding("stores.ledger", problem, f"First {_COPY}."))
        for name in sorted({*(store.zones() if store else ()), *zones}):
            ledger = None
            with findings.at(f"ledger of zone {name}"):
                zone_key = key if name in zones else None
                ledger = _records(deployment, store, name, zone_key, findings, states)
            unreadable = ledger is None and findings.has_problem(f"ledger of zone {name}")
            if key is None or name not in zones or unreadable:
                continue
            with findings.at(f"zone {name}"):
                if ledger is None:
                    check_models_agree(zones[name])
                    continue
                findings.running[name] = _terms(zones[name], ledger, key, findings)
                moves[name] = ledger.standing.transfers
        if store is not None and key is not None:
            changed = any(terms.new for terms in findings.running.values())
            check_moves(deployment.zones, store, key, new_terms=changed)
    check_arrived(moves)


def _records(
    deployment: Deployment,
    store: LedgerStore | None,
    name: str,
    key: Signer | None,
    findings: Findings,
    states: dict[str, LedgerState],
) -> Ledger | None:
    """Check the records of a zone against witness and checkpoint; the ledger as serve reads it."""
    subject, ledger, note = f"ledger of zone {name}", None, "not begun"
    problem, fix, records, state = None, "", 0, None
    if store is not None:
        noted = store.witness(name)
        report = check(store.records(name), verify_signature, {noted: name} if noted else {})
        records, state = report.records, report.standings.get(name)
        note = f"{records} records, signatures checked"
        if report.reason:
            problem = f"record {report.first_bad}: {report.reason}"
            fix = f"The other zones go on; for this one, {_COPY}."
    if key is not None:
        witness = witness_to_read(deployment.witness_folder, name)
        try:
            ledger = Ledger.read(store, name, key, deployment.mode, witness)
        except HushgridError as error:
            problem = str(error)
        missing = (ledger.standing.head.seq if ledger else 0) - records
        if problem is not None and missing > 0:
            problem, fix = None, ""
            findings.remarks.append(
                f"{subject}: {missing} records are missing, which the witness has. Start the"
                " service: it appends them."
            )
    if problem is None and state is not None and state.gap is not None:
        problem = "releases may be lost, so that it publishes forecasts"
        fix = "Run hushgrid resume."
    findings.checks.append(Finding(subject, problem and masked(problem), fix, note))
    if state is not None and (problem is None or state.gap is not None):
        states[name] = state
    if store is not None and state is not None and problem is None:
        zone = next((zone for zone in deployment.zones if zone.id == name), None)
        _checkpoint(deployment, store, zone, state, findings)
    return ledger


def _checkpoint(
    deployment: Deployment,
    store: LedgerStore,
    zone: ZoneService | None,
    state: LedgerState,
    findings: Findings,
) -> None:
    """Compute the checkpoint of a zone whose records are all verified again from them."""
    row = store.checkpoint(state.zone) if isinstance(store, Checkpointed) else None
    if row is None or zone is None:
        return
    subject, held = f"checkpoint of zone {zone.id}", Checkpoint(*row)
    reason = misfit(held, store, zone.id, state.key, verify_signature)
    zone_at_terms = _as_begun(zone, state)
    if reason is None and digest_of(zone_at_terms) != held.terms:
        reason = "it is of other terms"
    if reason is not None:
        findings.checks.append(Finding(subject, note=f"not used, {reason}"))
        return
    standing = fold(islice(store.records(zone.id), held.seq))
    assert standing.terms is not None  # a checkpoint is one of a release under terms
    zone_at_terms = in_week(_as_begun(zone, standing), standing.last_t)
    replay = Replay(zone_at_terms).follow(standing)
    replay.learn(held.seq)
    arrays, stored = replay.to_arrays() or {}, decode(held.state)
    is_equal = all(name in arrays and _is(arrays[name], array) for name, array in stored.items())
    fix = "Stop the service and run hushgrid doctor, which removes it."
    problem = None if is_equal else "it is not what the records give"
    findings.checks.append(Finding(subject, problem, fix, f"record {held.seq}, computed again"))
    if problem is not None:
        findings.cures.append(Cure(subject, partial(_remove_checkpoint, deployment, zone.id)))


def _is(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Bit for bit."""
    return (first.dtype, first.shape, first.tobytes()) == (
        second.dtype,
        second.shape,
        second.tobytes(),
    )


def _remove_checkpoint(deployment: Deployment, zone: str) -> str:
    """Remove a checkpoint: it is no part of the ledger, and a start replays every record."""
    if _running(deployment):
        raise ServiceError("the service runs; stop it first.")
    with Database(deployment.ledger, LEDGER, create=False) as store, store.begin() as link:
        link.execute(sa.delete(CHECKPOINTS).where(CHECKPOINTS.c.zone == zone))
    return "it was not what the records give and is removed; the next start replays every record"


def _as_begun(zone: ZoneService, standing: LedgerState) -> ZoneService:
    """The zone of the file from the beginning of the present terms on; see `zone_as_begun`."""
    terms = standing.terms
    if terms is None:
        return zone
    return zone_as_begun(zone, terms, standing.tariff_before(terms.seq))


def _terms(zone: ZoneService, ledger: Ledger, key: Signer, findings: Findings) -> Running:
    """Check a zone as its curator would; the terms it would continue, or begin with --yes."""
    standing = ledger.standing
    if standing.terms is not None:
        zone_at_terms = _as_begun(zone, standing)
        if digest_of(zone_at_terms) == standing.terms.digest:
            check_all_here(zone, standing, key, new_terms=False)
            if standing.tariff is not None and not same_tariff(zone, standing.tariff):
                findings.remarks.append(
                    "the file has another tariff than the ledger:"
                    f" {tariff_change(zone_at_terms, standing)} hushgrid serve --yes begins it."
                )
            return Running(in_week(zone_at_terms, standing.reach_step + 1), standing)
        zone = placed(zone, next_border(zone, standing, time.time()))
        findings.remarks.append(
            f"the file has other terms than the ledger: {change_of(zone, standing)} hushgrid serve"
            " --yes begins them."
        )
        check_new(zone, standing)
    check_models_agree(zone)
    check_all_here(zone, standing, key, new_terms=True)
    return Running.beginning(zone, standing)


def _witness(folder: Path) -> None:
    place = folder if folder.exists() else folder.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise LedgerError(
            f"the witness folder {folder} cannot be used; set stores.witness to a folder on a local"
            " disk that the service can write."
        )


# ---- meters


def _meters(deployment: Deployment, findings: Findings, states: dict[str, LedgerState]) -> None:
    """Check that a file or database can be used, the rosters in it, and every delivery."""
    subject, url = "stores.meters", deployment.meters
    path = file_of(url)
    if path is not None:
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not os.access(nearest, os.W_OK) or not (nearest == path or nearest.is_dir()):
            raise MeterError(f"meter store {path} cannot be written; give a path that can.")
    published = dict[str, int]()
    for zone in deployment.zones:
        for release in states[zone.id].current if zone.id in states else ():
            if release.source == "readings":
                published[zone.id] = release.start
    if not (path.exists() if path else exists(url, METERS)):
        loss = "it is gone, and readings of it are published" if published else None
        findings.checks.append(Finding(subject, loss, _resend_advice(), "not begun"))
        return
    with Database(path or url, METERS, read_only=True, still=True) as store:
        is_sound = store.is_whole()
    rosters = stored_rosters(url)
    for zone in deployment.zones:
        changed = zone.id in findings.running and findings.running[zone.id].new
        if zone.id in rosters and not changed:
            with findings.at(subject):
                HeldRoster(rosters[zone.id]).check_same(Roster.of(*zone.roster), zone.id)
    if not is_sound:
        findings.checks.append(Finding(subject, "the file is damaged", f"First {_COPY}."))
    for name, problems in damages(url, published).items():
        zone_subject = f"readings of zone {name}"
        damage = [Finding(zone_subject, problem, _resend_advice()) for problem in problems]
        findings.checks += damage or [Finding(zone_subject)]


def _resend_advice() -> str:
    return (
        f"Have the readings of the last {LATE} intervals sent again, or {_COPY}; otherwise a meter"
        " without its reading counts as missing, and a damaged interval is left out."
    )


def _block_keys(deployment: Deployment, findings: Findings) -> None:
    """Check the folder of the keys of blocks of steps."""
    folder = key_folder(deployment.meters, deployment.block_key_folder)
    if folder is None or not any(zone.policy.schedule.lengths for zone in deployment.zones):
        return
    subject, keys = "stores.block_keys", BlockKeys(folder)
    files = keys.files()
    if len(files) < 2:
        findings.remarks.append(
            f"{subject}: folder {folder} has no key, so that serve makes one; where several"
            " curators run these zones, copy the folder of one to all before they start."
        )
        if not deployment.standby:
            findings.cures.append(Cure(subject, lambda: f"the first key is made: {keys.make()}"))
    for path in keys.unfinished():
        _unfinished(findings, subject, path, keys.finish)
    if not os.access(folder if files else folder.parent, os.W_OK):
        findings.remarks.append(
            f"{subject}: folder {folder} cannot be written, so that blocks get forecasts;"
            " give one that can."
        )


# ---- rows and files


def _rows(findings: Findings, subject: str, url: str, schema: Schema) -> None:
    """Read every row of a store that needs no other store."""
    if not exists(url, schema):
        findings.checks.append(Finding(subject, note="not begun"))
        return
    with Database(url, schema, create=False, read_only=True, still=True) as store:
        for table in store.tables:
            store.rows(table.select())
        if not store.is_whole():
            findings.checks.append(Finding(subject, "the file is damaged", f"First {_COPY}."))


def _clients(deployment: Deployment) -> None:
    """Check which meters clients may send."""
    if not exists(deployment.client_store, CLIENTS):
        check_bound(deployment, ())
        return
    with ClientStore(deployment.client_store, create=False, read_only=True) as clients:
        check_bound(deployment, clients.all())


def _unfinished(findings: Findings, subject: str, path: Path, remove: Callable[[], object]) -> None:
    """Warn of a temporary file that a killed process left."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:  # it is finished
        return
    if age < _STALE:
        return
    findings.remarks.append(
        f"{subject}: {path} is left of a write that was cut off; hushgrid doctor removes it."
    )

    def apply() -> str:
        remove()
        return f"{path} was left of a write that was cut off and is removed"

    findings.cures.append(Cure(subject, apply))


def _secrets(deployment: Deployment) -> Iterator[tuple[str, Path | None, int]]:
    """Files that hold secrets, and the rights that nobody may have."""
    yield "service.key", deployment.key, 0o077
    yield "stores.meters", file_of(deployment.meters), 0o007
    folder = key_folder(deployment.meters, deployment.block_key_folder)
    for path in [] if folder is None else BlockKeys(folder).files():
        yield "stores.block_keys", path, 0o077
    for name, url in (("clients", deployment.client_store), ("vtn", deployment.vtn_store)):
        yield f"stores.{name}", None if "://" in url else Path(url.removeprefix("sqlite:")), 0o007
    if deployment.mqtt is not None:
        yield "mqtt.password_file", deployment.mqtt.password_file, 0o007
        yield "mqtt.tls_key", deployment.mqtt.tls_key, 0o007
    if deployment.http is not None:
        yield "http.tls_key", deployment.http.tls_key, 0o007


def _modes(deployment: Deployment, findings: Findings) -> None:
    """Find secrets that others can use: a problem for production, else a warning."""
    for subject, path, forbidden in _secrets(deployment):
        mode = path.stat().st_mode & 0o777 if path is not None and path.exists() else 0
        if path is None or not mode & forbidden:
            continue
        findings.cures.append(Cure(subject, partial(_close, path, mode & ~forbidden)))
        if subject == "service.key":  # which is refused
            continue
        problem = (
            f"{path} has mode {mode:04o}, so that others can use it; chmod"
            f" {mode & ~forbidden:o} {path}."
        )
        if deployment.mode == "production":
            findings.checks.append(Finding(subject, problem))
        else:
            findings.remarks.append(f"{subject}: {problem}")


def _close(path: Path, mode: int) -> str:
    before = path.stat().st_mode & 0o777
    path.chmod(mode)
    return f"{path} had mode {before:04o} and has {mode:04o}"


# ---- ways in


def _broker(mqtt: Mqtt, findings: Findings) -> None:
    """Require usable files, and warn of what anyone on the way could read or send."""
    from hushgrid.web.mqtt import password_of, tls_of

    password_of(mqtt)
    if mqtt.tls:
        tls_of(mqtt)
    else:
        findings.remarks.append(
            "mqtt.tls is not set, so readings and the password pass in the clear; set it to true,"
            " with the broker's port for TLS."
        )
    if mqtt.password_file is None and mqtt.tls_certificate is None:
        findings.remarks.append(
            "mqtt has neither username and password_file nor tls_certificate, so the broker lets"
            " anyone in; give one of them."
        )


def _http(deployment: Deployment, findings: Findings) -> None:
    """Require usable certificates and a port that is free, or taken by this very service."""
    from hushgrid.web.http.server import bind_socket, check_tls

    assert deployment.http is not None
    check_tls(deployment.http)
    try:
        bind_socket(deployment.http.host, deployment.http.port).close()
    except ServiceError as error:
        if not _running(deployment):
            raise
        findings.remarks.append(f"http: {error} The service runs already.")


def _running(deployment: Deployment) -> bool:
    """Whether a process holds the ledger of one of the zones."""
    zones = [zone.id for zone in deployment.zones]
    if not is_postgres(deployment.ledger):
        path = Path(deployment.ledger.removeprefix("sqlite:").removeprefix("//"))
        return any(_locked(sidecar_path(path, zone)) for zone in zones)
    with (
        suppress(HushgridError),
        Database(deployment.ledger, LEDGER, read_only=True, check=False) as database,
    ):
        held = {row.key for row in database.rows(sa.text(_HELD))}
        return any(lock_of(zone) in held for zone in zones)
    return False


_HELD = """
SELECT (CAST(classid AS bigint) << 32) | CAST(objid AS bigint) AS key FROM pg_locks
WHERE locktype = 'advisory'
"""


def _locked(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# ---- the first price


def rehearse(zone: ZoneService) -> None:
    """Play two intervals in memory, so that the loops which a tick compiles are in their cache.

    Without it the first price after an installation waits for the compiler.

    Args:
        zone: The zone; simulated noise is used, and no reading.
    """
    state, noise = first_state(zone), SimulatedNoise(1)
    expected = Expectations(zone.scenario)
    low = zone.scenario.zone.low_ends(state.zone)
    silence = Interval(np.zeros(len(zone.meters), np.int64), np.zeros(len(zone.meters), np.bool_))
    for t in (1, 2)[: zone.policy.horizon]:
        load = silence.tally(state.zone, lambda t=t: expected.at(t) - low)  # type: ignore[misc]
        _, state = step(state, load, noise)
