"""What `hushgrid doctor` finds: every store of a service checked, each with what can be done.

Nothing is written, and the service may run meanwhile. Messages name zones and intervals, never a
reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from hushgrid.errors import HushgridError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.toml import masked
from hushgrid.service.access.clients import CLIENTS
from hushgrid.service.curator import LATE
from hushgrid.service.database import Database, Schema, exists
from hushgrid.service.epoch import first_state
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import Checkpointed, LedgerStore, check, fold
from hushgrid.service.ledger.checkpoint import Checkpoint, decode, misfit
from hushgrid.service.ledger.records import LedgerState
from hushgrid.service.ledger.store import CHECKPOINTS, LEDGER
from hushgrid.service.ledger.witness import witness_to_read
from hushgrid.service.ledger.writer import Key, Ledger, load, verify_signature
from hushgrid.service.meters.block_keys import BlockKeys
from hushgrid.service.meters.store import damages
from hushgrid.service.meters.tables import SCHEMA as METERS
from hushgrid.service.meters.tables import file_of, key_folder
from hushgrid.service.openadr.store import VTN
from hushgrid.service.replay import Replay
from hushgrid.service.same_terms import zone_as_begun

_COPY = "stop the service and put back a copy (docs/operations.md, Restore)"


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        what: What was checked.
        problem: What is wrong with it; None: nothing.
        fix: What can be done.
        note: What was found where nothing is wrong.
    """

    what: str
    problem: str | None = None
    fix: str = ""
    note: str = ""

    @property
    def line(self) -> str:
        """The finding in one line."""
        if self.problem is None:
            return f"good   {self.what}{self.note and f': {self.note}'}"
        return f"WRONG  {self.what}: {self.problem.rstrip('.')}. {self.fix}".rstrip()


def examine(deployment: Deployment) -> list[Finding]:
    """Check key, ledger, witness, meter store, clients, OpenADR store and file modes.

    Args:
        deployment: The service as its file describes it.

    Returns:
        A finding for each store and zone.
    """
    found: list[Finding] = []
    key: Key | None = None
    try:
        key = load(deployment.key)
        found.append(Finding("key"))
    except HushgridError as error:
        found.append(Finding("key", str(error)))
    standings: dict[str, LedgerState] = {}
    _guarded(found, "ledger", lambda: _ledger(deployment, key, standings))
    _guarded(found, "meter store", lambda: _meters(deployment, standings))
    _guarded(found, "clients", lambda: _plain("clients", deployment.client_store, CLIENTS))
    if deployment.openadr is not None:
        _guarded(found, "OpenADR store", lambda: _plain("OpenADR store", deployment.vtn_store, VTN))
    return found + list(_modes(deployment))


def _guarded(found: list[Finding], what: str, look: Callable[[], Iterator[Finding]]) -> None:
    """Add findings; an error is one, too, so that the next store is checked."""
    try:
        found.extend(look())
    except HushgridError as error:
        found.append(Finding(what, masked(str(error))))
    except OSError as error:
        found.append(Finding(what, error.strerror or type(error).__name__))


def _ledger(
    deployment: Deployment, key: Key | None, standings: dict[str, LedgerState]
) -> Iterator[Finding]:
    if not exists(deployment.ledger, LEDGER):
        small = Path(deployment.ledger.removeprefix("sqlite:"))
        gone = not deployment.on_server and any(small.parent.glob(f"{small.name}.*"))
        problem = "it is gone, and the small files next to it know a last record" if gone else None
        yield Finding("ledger", problem, f"Put back a copy: {_COPY}.", "not begun")
        return
    with open_store(deployment.ledger, create=False, still=True) as store:
        whole = isinstance(store, Database) and store.is_whole()
        yield Finding("ledger", None if whole else "the file is damaged", f"First {_COPY}.")
        served = [zone.id for zone in deployment.zones]
        for zone in sorted({*store.zones(), *served}):
            what, noted = f"ledger of zone {zone}", store.witness(zone)
            report = check(store.records(zone), verify_signature, {noted: zone} if noted else {})
            standings |= report.standings
            problem = report.reason and f"record {report.first_bad}: {report.reason}"
            witness = witness_to_read(deployment.witness_folder, zone)
            note = f"{report.records} records, signatures checked"
            if key is not None and zone in served:
                try:
                    read = Ledger.read(store, zone, key, deployment.mode, witness)
                    more = (read.standing.head.seq if read else 0) - report.records
                    if more > 0 and problem:
                        problem = f"{more} records are missing, which the witness has"
                        yield Finding(what, problem, "Start the service: it appends them.")
                        continue
                except HushgridError as error:
                    problem = problem or str(error)
            if problem is None and zone in standings and standings[zone].gap is not None:
                problem = "releases may be lost, so that it publishes forecasts"
                yield Finding(what, problem, "Run hushgrid resume.")
                continue
            yield Finding(what, problem, f"The other zones go on; for this one, {_COPY}.", note)
            if problem is None and zone in standings:
                own = next((one for one in deployment.zones if one.id == zone), None)
                yield from _checkpoint(store, own, standings[zone])


def _checkpoint(
    store: LedgerStore, zone: ZoneService | None, standing: LedgerState
) -> Iterator[Finding]:
    """The checkpoint of a zone whose records are all verified, computed again from them."""
    row = store.checkpoint(standing.zone) if isinstance(store, Checkpointed) else None
    if row is None or zone is None:
        return
    what, held = f"checkpoint of zone {zone.id}", Checkpoint(*row)
    epochs = [one for one in standing.epochs if one.seq < held.seq]
    begun = zone_as_begun(zone, epochs[-1]) if epochs else zone
    why = misfit(held, store, zone.id, standing.key, verify_signature)
    if why is None and first_state(begun).digest != held.terms:
        why = "it is of other terms"
    if why is not None:
        yield Finding(what, note=f"not used, {why}")
        return
    replay = Replay(begun).follow(fold(islice(store.records(zone.id), held.seq)))
    replay.learn(held.seq)
    found, state = replay.to_arrays() or {}, decode(held.state)
    same = all(name in found and _is(found[name], own) for name, own in state.items())
    fix = f"Stop the service and remove it: DELETE FROM {CHECKPOINTS.name}."
    problem = None if same else "it is not what the records give"
    yield Finding(what, problem, fix, f"record {held.seq}, computed again")


def _is(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Bit for bit."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def _meters(deployment: Deployment, standings: dict[str, LedgerState]) -> Iterator[Finding]:
    last = {
        zone: [one.start for one in standing.current if one.source == "readings"][-1:]
        for zone, standing in standings.items()
        if any(zone == one.id for one in deployment.zones)
    }
    published = {zone: starts[0] for zone, starts in last.items() if starts}
    path = file_of(deployment.meters)
    if not (path.exists() if path else exists(deployment.meters, METERS)):
        gone = "it is gone, and readings of it are published" if published else None
        yield Finding("meter store", gone, _again(), "not begun")
        return
    with Database(path or deployment.meters, METERS, read_only=True, still=True) as store:
        whole = store.is_whole()
    yield Finding("meter store", None if whole else "the file is damaged", f"First {_COPY}.")
    for zone, problems in damages(deployment.meters, published).items():
        what = f"readings of zone {zone}"
        yield from (Finding(what, problem, _again()) for problem in problems)
        if not problems:
            yield Finding(what)


def _again() -> str:
    return (
        f"Have the readings of the last {LATE} intervals sent again, or {_COPY}; otherwise a meter"
        " without its reading counts as missing, and a damaged interval is left out."
    )


def _plain(what: str, url: str, schema: Schema) -> Iterator[Finding]:
    """A store whose rows need no other store: every row is read."""
    if not exists(url, schema):
        yield Finding(what, note="not begun")
        return
    with Database(url, schema, create=False, read_only=True, still=True) as store:
        for table in store.tables:
            store.rows(table.select())
        whole = store.is_whole()
    yield Finding(what, None if whole else "the file is damaged", f"First {_COPY}.")


def _modes(deployment: Deployment) -> Iterator[Finding]:
    """Files that only their owner should read; the key has its own finding."""
    secret = [file_of(deployment.meters), deployment.witness_folder]
    if (keys := key_folder(deployment.meters, deployment.block_key_folder)) is not None:
        secret += BlockKeys(keys).files()
    for url in (deployment.client_store, deployment.vtn_store):
        secret.append(None if "://" in url else Path(url.removeprefix("sqlite:")))
    if deployment.mqtt is not None:
        secret += [deployment.mqtt.password_file, deployment.mqtt.tls_key]
    if deployment.http is not None:
        secret.append(deployment.http.tls_key)
    for path in secret:
        if path is not None and path.is_file():
            mode = path.stat().st_mode & 0o777
            problem = f"others may use it (mode {mode:04o})" if mode & 0o007 else None
            yield Finding(f"mode of {path}", problem, f"Run chmod 600 {path}.")
