"""The stores of a stopped service in another place: from SQLite to PostgreSQL, or back.

The new ledger is made empty and gets a mark with the number of the move, so that no service uses
it. Rows are copied in one transaction a store, then read again from both sides: their digests must
be the same. Only then is the old ledger marked with the same number, in a transaction that waits
for appends under way and compares it with its copy once more. A process that has the old ledger
open cannot add to it from then on: every append looks for the mark in its own transaction. The
witness goes to its new place, the old rows of readings, clients and OpenADR objects are removed,
and last the new ledger loses its mark: at no time can both be opened once a row is copied.

A move that was interrupted is run again; it finishes where both ledgers have marks of one number,
else it begins anew. Then it drops the copy that was left, after all else was checked, and only one
whose records the old ledger has.

What this cannot know: processes of earlier versions look for a mark only when they open a ledger,
and readings that reach a service which runs on, cut off from its database, stay in the old place or
are lost.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from hushgrid.errors import LedgerError, MeterDamageError, ServiceError
from hushgrid.files.deployment import Deployment
from hushgrid.files.results import sync_folder
from hushgrid.service.access.clients import CLIENTS, ClientStore
from hushgrid.service.cluster.leases import valid_row
from hushgrid.service.database import MOVED, MOVING, Database, exists, version_of
from hushgrid.service.gaps import reach_of
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.store import HOME, LEDGER, SERVERS, PostgresLedger, SqliteLedger
from hushgrid.service.ledger.witness import held
from hushgrid.service.ledger.writer import check_known_zones, load, verify_signature
from hushgrid.service.meters import open_meters
from hushgrid.service.meters.store import damages, stored_rosters
from hushgrid.service.meters.tables import SCHEMA as METERS
from hushgrid.service.meters.tables import file_of
from hushgrid.service.openadr.store import VTN, VtnStore

PAGE = 500  # rows at once
Ledger = SqliteLedger | PostgresLedger


class MovedStore(NamedTuple):
    """One store that was moved.

    Attributes:
        store: Its name.
        rows: How many rows it has.
        digest: SHA-256 over the sorted SHA-256 of all rows, the same in both places.
        place: Where it is now, without a password.
    """

    store: str
    rows: int
    digest: str
    place: str


def move_stores(old: Deployment, new: Deployment) -> list[MovedStore]:
    """Move every store whose place differs; the service must be stopped.

    Args:
        old: The service as it ran.
        new: The same service with other stores, which are absent or empty.

    Returns:
        The stores that were moved; those that had not begun are left out.

    Raises:
        HushgridError: The files describe two services, a store is in use, damaged or not empty, or
            what was read back is not the same. The old stores are as they were then, or the
            command finishes when it is run again.
    """
    _check_same(old, new)
    begun = _is_begun(old, new)
    with _kind(old)(old.ledger, moving=begun) as ledger:  # refuses one that was moved
        zones = sorted({zone.id for zone in old.zones} | {*ledger.zones()})
        if isinstance(ledger, SqliteLedger):
            check_known_zones(Path(ledger.place), ledger.zones())
    if not begun:
        _check_witness(old, new)
    with ExitStack() as stack:
        # a process on this machine may be cut off from its ledger
        for folder in {old.witness_folder, new.witness_folder} if not old.share else ():
            for zone in zones if folder.exists() else ():
                stack.enter_context(held(folder, zone))
        number = secrets.randbelow(2**30 - 2) + 1  # 0 is that of all moves of earlier versions
        ledgers = [] if begun else _open_ledgers(old, new, stack, number)
        pairs = list(_open_meters(old, new, stack))
        for schema, kind, places in (
            (CLIENTS, ClientStore, (old.client_store, new.client_store)),
            (VTN, VtnStore, (old.vtn_store, new.vtn_store)),
        ):
            if places[0] != places[1] and exists(places[0], schema):
                source, target = (stack.enter_context(kind(place)) for place in places)
                pairs.append((source, target))
        copies: list[Database] = [copied for _, copied in ledgers]
        if begun:
            copies = [stack.enter_context(_marked(new.ledger))]
            ended = [*(target for _, target in pairs), *copies]
            moved = [MovedStore(one.schema.name, *_digest(one), one.place) for one in ended]
        else:
            moved = _all_copied(pairs, ledgers, number)
        for ledger, copied in ledgers:
            _check_chain(ledger, copied)
            ledger.retire(number, partial(_check_unchanged, ledger, moved[-1]))
        _take_witness(old.witness_folder, new.witness_folder)
        for source, _ in pairs:
            with source.begin() as link:
                for table in source.tables:
                    link.execute(sa.delete(table))
        for one in copies:
            one.release()
    return moved


def _kind(deployment: Deployment) -> type[Ledger]:
    return PostgresLedger if deployment.on_server else SqliteLedger


def _marked(ledger: str) -> Database:
    """A ledger that has the mark of a move."""
    return Database(ledger, LEDGER, create=False, check=False, moving=True)


def _is_begun(old: Deployment, new: Deployment) -> bool:
    """Whether this move was interrupted after all rows had been copied and verified.

    Nothing is changed here.
    """
    marks = [version_of(one.ledger, LEDGER) or 0 for one in (old, new)]
    if not marks[0] and not exists(old.ledger, LEDGER):
        raise LedgerError(
            "the ledger of the first file does not exist; give the file with which the service ran"
            " first, then the one with its new stores."
        )
    if old.ledger == new.ledger or not _is_copy(marks[1]) or marks[0] >= 0 or _is_copy(marks[0]):
        return False
    same = marks[0] - MOVED == marks[1] - MOVING
    if same:
        with _marked(old.ledger) as ledger, _marked(new.ledger) as copy:
            same = _digest(ledger) == _digest(copy)
    if not same:
        raise LedgerError(
            "the old ledger was moved to another place than the second file names, which has a copy"
            " that was left before; use the service file of that other move, and remove the copy."
        )
    return True


def _is_copy(version: int) -> bool:
    return version < 0 and version % 2 == MOVING % 2


def _all_copied(
    pairs: list[tuple[Database, Database]], ledgers: list[tuple[Ledger, Ledger]], number: int
) -> list[MovedStore]:
    """Copy into empty stores, the ledger last. A copy that was left before is dropped first."""
    for _, target in pairs:
        _check_empty(target)
    for source, copied in ledgers:
        copied.hold(number, anew=True)
        if isinstance(copied, PostgresLedger):  # before the records: a copy of it has this, too
            copied.came()
            for zone in source.zones():
                copied.settle(zone)
    return [_copied(source, target) for source, target in (*pairs, *ledgers)]


def _check_left(source: Ledger, copied: Ledger) -> None:
    """Refuse to drop a copy that has a record which the old ledger lacks: it is of another one."""
    for zone in copied.zones():
        head = copied.head(zone)
        there = next(source.records(zone, head.seq - 1), None) if head else None
        if head and (there is None or there.digest != head.digest):
            raise LedgerError(
                f"ledger {copied.place} is the copy of another ledger than {source.place}, by a"
                " move that has not ended; run that one again, or give a new file or an empty"
                " database."
            )


def _check_same(old: Deployment, new: Deployment) -> None:
    described = [
        (one.mode, load(one.key).public, sorted(zone.id for zone in one.zones))
        for one in (old, new)
    ]
    if described[0] != described[1]:
        raise ServiceError(
            "the two files describe different services (mode, key or zones); copy the file and"
            " change its [stores] alone."
        )
    places = [(one.ledger, one.meters, one.client_store, one.vtn_store) for one in (old, new)]
    if places[0] == places[1]:
        raise ServiceError("both files have the same [stores]; change those of the second one.")


def _check_witness(old: Deployment, new: Deployment) -> None:
    """Refuse a folder that may hold an older witness, which would prove too little."""
    folders = old.witness_folder, new.witness_folder
    stays = old.ledger == new.ledger and not folders[0].exists()  # there is nothing to take
    there = any(one.is_file() and not one.name.endswith("lock") for one in folders[1].rglob("*"))
    if folders[0] != folders[1] and there and not stays:
        raise LedgerError(f"{folders[1]} has records already; move it away.")


def _open_ledgers(
    old: Deployment, new: Deployment, stack: ExitStack, number: int
) -> list[tuple[Ledger, Ledger]]:
    """Both ledgers with the locks of all zones: a service that runs on one of them holds them.

    The new one, which is empty, has the mark of the move. A copy that was left before keeps its
    own until it is dropped.
    """
    found: list[Ledger] = []
    zones = {zone.id for zone in old.zones}
    for one in (old, new)[: 1 + (old.ledger != new.ledger)]:
        left = bool(found) and _is_copy(version_of(one.ledger, LEDGER) or 0)
        store: Ledger = _kind(one)(one.ledger, moving=left)
        stack.enter_context(store)
        valid = valid_row(store) if isinstance(store, PostgresLedger) else None
        if valid:
            raise LedgerError(
                f"curator {valid[0]!r} may write to ledger {store.place} for another"
                f" {math.ceil(valid[1])} s; stop the service, and run the command again after that"
                " time."
            )
        if not found and isinstance(store, PostgresLedger):
            _check_judged(old, store)
        zones |= {*store.zones()}
        for zone in sorted(zones):
            stack.enter_context(store.writer(zone))
            if not found and isinstance(store, PostgresLedger) and store.moved(zone):
                raise LedgerError(
                    f"zone {zone!r} was last written to on another server than {store.place}; start"
                    " the service once, or run hushgrid resume, with a file that has the zone, so"
                    " that it is noted what may be lost."
                )
        if found and not left:
            _check_empty(store)
            store.hold(number)
        if found:  # which has a mark now, so that no other process adds to it
            _check_left(found[0], store)
        found.append(store)
    return [(found[0], found[1])] if len(found) > 1 else []


def _check_judged(old: Deployment, store: PostgresLedger) -> None:
    """Refuse a ledger with a zone that may have been published before it came to its server.

    In another place nothing would show that. What the meter store shows goes along.
    """
    begins = {zone.id: zone.begins for zone in old.zones}
    since = store.since()
    for zone in sorted({*begins, *store.zones()}) if since else ():
        report = check(store.records(zone), verify_signature, {})
        if report.first_bad is not None:
            continue  # refused as a chain
        standing = report.standings.get(zone)
        begun = standing is not None and standing.epoch is not None
        reach = reach_of(standing) if standing and begun else begins.get(zone, 0)
        if since > reach and store.moved(zone) is None:
            raise LedgerError(
                f"zone {zone!r} may have been published without a record in {store.place}; start"
                " the service once, or run hushgrid resume, with a file that has the zone, so that"
                " it is noted what may be lost."
            )


def _open_meters(
    old: Deployment, new: Deployment, stack: ExitStack
) -> Iterator[tuple[Database, Database]]:
    there = stored_rosters(old.meters) if file_of(old.meters) else exists(old.meters, METERS)
    if old.meters == new.meters or not there:
        return
    source = stack.enter_context(open_meters(old.meters)).open()
    for zone, problems in damages(old.meters, {}).items():
        for problem in problems:
            raise MeterDamageError(
                f"nothing was moved: {problem} in zone {zone!r}; run hushgrid doctor."
            )
    yield source, stack.enter_context(open_meters(new.meters)).open()


def _tables(one: Database) -> dict[tuple[str, ...], sa.Table]:
    """By their columns: names differ between databases. What a server says of itself stays."""
    return {tuple(table.c.keys()): table for table in one.tables if table not in (HOME, SERVERS)}


def _check_empty(target: Database) -> None:
    for table in _tables(target).values():
        if target.rows(sa.select(table).limit(1)):
            raise target.schema.error(
                f"{target.schema.name} {target.place} is not empty; give a new file or an empty"
                " database."
            )


def _copied(source: Database, target: Database) -> MovedStore:
    """Copy all rows, and compare what both sides have then."""
    others, schema = _tables(target), source.schema
    with source.read() as old, target.begin() as new:
        for columns, table in _tables(source).items():
            add = _insert(others[columns], on_server=target.path is None)
            rows = old.execution_options(yield_per=PAGE).execute(sa.select(table))
            for part in rows.partitions():
                new.execute(add, [row._asdict() for row in part])
            if target.path is None:
                _go_on_counting(new, others[columns])
    found, written = (_digest(one) for one in (source, target))
    if found != written:
        raise schema.error(
            f"{schema.name} {target.place} has other rows than {source.place} after the copy; stop"
            " the service, empty it and run the command again."
        )
    return MovedStore(schema.name, *found, target.place)


def _insert(table: sa.Table, *, on_server: bool) -> sa.TextClause:
    """A row as it was, with the number that a database would otherwise choose."""
    names = ", ".join(table.c.keys())
    values = ", ".join(f":{name}" for name in table.c.keys())  # noqa: SIM118
    numbered = "OVERRIDING SYSTEM VALUE " if on_server else ""
    text = sa.text(f"INSERT INTO {table.name} ({names}) {numbered}VALUES ({values})")
    return text.bindparams(*(sa.bindparam(one.name, type_=one.type) for one in table.c))


def _go_on_counting(link: sa.Connection, table: sa.Table) -> None:
    for column in table.c:
        if column.identity is not None:
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            last = sa.select(sa.func.coalesce(sa.func.max(column), 0) + 1).scalar_subquery()
            link.execute(sa.select(sa.func.setval(sequence, last, False)))


def _digest(one: Database) -> tuple[int, str]:
    """Number of rows and digest of all tables."""
    with one.read() as link:
        return _digest_on(one, link)


def _digest_on(one: Database, link: sa.Connection) -> tuple[int, str]:
    """The same in a transaction; databases sort text in their own ways."""
    rows: list[bytes] = []
    for columns, table in _tables(one).items():
        found = link.execution_options(yield_per=PAGE).execute(sa.select(table))
        rows += (hashlib.sha256(repr((columns, *row)).encode()).digest() for row in found)
    return len(rows), hashlib.sha256(b"".join(sorted(rows))).hexdigest()


def _check_unchanged(source: Database, moved: MovedStore, link: sa.Connection) -> None:
    """What was copied is all that the old ledger has, now that no process can add to it."""
    if _digest_on(source, link) != (moved.rows, moved.digest):
        raise LedgerError(
            f"ledger {source.place} was written to while it was copied; stop every service that"
            " uses it and run the command again."
        )


def _check_chain(source: Ledger, target: Ledger) -> None:
    """Every record verifies, and those that the small files of either side know are there."""
    zones = target.zones()
    stores = [one for one in (source, target) if isinstance(one, SqliteLedger)]
    known = {digest: zone for one in stores for zone in zones if (digest := one.witness(zone))}
    report = check((one for zone in zones for one in target.records(zone)), verify_signature, known)
    if report.first_bad is not None:
        reason = str(report.reason).rstrip(".")
        raise LedgerError(
            f"nothing was moved: record {report.first_bad}: {reason}; run hushgrid doctor."
        )
    for zone in zones:
        target.settle(zone)


def _take_witness(old: Path, new: Path) -> None:
    """The last records known on this machine belong to the service file, wherever its ledger is.

    To another disk, or where a move that was interrupted has left files, they go one by one, each
    whole. The old folder is removed after all are on the new disk; until then no service opens a
    ledger that is moved.
    """
    if old == new or not old.exists():
        return
    try:
        try:
            old.rename(new)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOTEMPTY, errno.EEXIST):
                raise
            new.mkdir(exist_ok=True)
            for path in sorted(old.rglob("*")):  # a folder before what it has
                _copy_file(path, new / path.relative_to(old))
            sync_folder(new.parent)
            shutil.rmtree(old)
        for one in (old, new):
            sync_folder(one.parent)
    except OSError as error:
        raise LedgerError(
            f"the witness {old} cannot be moved to {new} ({error.strerror}); see that both can be"
            " written, and run the command again."
        ) from None


def _copy_file(path: Path, to: Path) -> None:
    """Copy a file, or make a folder; on the disk under its name only when it is whole."""
    if path.is_dir():
        to.mkdir(exist_ok=True)
    elif not to.exists() or to.read_bytes() != path.read_bytes():
        part = to.with_name(f"{to.name}.part")
        shutil.copy2(path, part)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(to)
    sync_folder(to.parent)
