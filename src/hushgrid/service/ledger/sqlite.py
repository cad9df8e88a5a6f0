"""Records in an SQLite file: one file for all zones of a publisher, read by anyone at any time.

On a local disk only: locks and shared memory do not work over network file systems.

A small file next to the database, one a zone, is the writer's lock and notes the last record.
SQLite drops the damaged end of its log without a word, and what remains is a valid shorter chain;
the note, written after each commit and before anything is published, shows that something is
missing. It has two slots, used in turn, so that a torn write spoils only one of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from hushgrid.errors import LedgerError
from hushgrid.files.results import sync_folder
from hushgrid.service.ledger.ports import check_next, held_elsewhere, not_held, twice
from hushgrid.service.ledger.records import Head, Record, canonical, from_fields

SLOT = 128  # [bytes]
EMPTY = b" " * (SLOT - 1) + b"\n"


def sidecar_path(database: Path, zone: str) -> Path:
    """The small file of a zone, next to the database.

    Args:
        database: The database file.
        zone: The zone's name.

    Returns:
        A path that ends in a hash of the zone's name.
    """
    return database.with_name(f"{database.name}.{hashlib.sha256(zone.encode()).hexdigest()[:16]}")


def read_witness(path: Path) -> Head | None:
    """The last record noted in a small file.

    Args:
        path: The small file.

    Returns:
        Number and digest of the record; None where there is none.

    Raises:
        LedgerError: The file cannot be read, or is damaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be read ({error.strerror}); it says which record came last."
        ) from None
    slots = (content[:SLOT], content[SLOT : 2 * SLOT])
    noted = [head for head in map(_noted, slots) if head is not None]
    if not noted and content.strip():
        raise LedgerError(
            f"{path} is damaged and cannot say which record came last; hold the ledger's head"
            " against the last release shown, then remove the file."
        )
    return max(noted, default=None)


def _slot(head: Head) -> bytes:
    text = f"{head.seq} {head.digest}".encode()
    return b"%s %08x" % (text, zlib.crc32(text)) + b"\n"


def _noted(slot: bytes) -> Head | None:
    words = slot.split()
    if len(words) != 3 or not words[0].isdigit():
        return None
    head = Head(int(words[0]), words[1].decode("ascii", "replace"))
    return head if _slot(head).split() == words else None


class Sidecar:
    """The small file of a zone with its lock, held until `release` or the end of the process.

    Args:
        path: The file; it is made where it is absent.
        zone: The zone.

    Raises:
        LedgerHeldError: Another process holds it.
        LedgerError: It cannot be written.
    """

    def __init__(self, path: Path, zone: str) -> None:
        self._path, self._zone = path, zone
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise LedgerError(
                f"{path} cannot be opened ({error.strerror}); the writer of zone {zone!r} needs it"
                " beside the database."
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._prepare()
        except BlockingIOError:
            os.close(self._file)
            raise held_elsewhere(zone) from None
        except OSError as error:
            os.close(self._file)
            raise LedgerError(
                f"{path} cannot be locked or written ({error.strerror}); zone {zone!r} cannot be"
                " written to."
            ) from None
        if not self.is_mine():  # it was removed and made anew between opening and locking
            os.close(self._file)
            raise held_elsewhere(zone)

    def _prepare(self) -> None:
        """Take the room now: noting a record must not fail on a full disk."""
        content = os.pread(self._file, 2 * SLOT, 0)
        if len(content) < 2 * SLOT and not content.strip():  # new, or a crash cut its making short
            for slot in (0, 1):
                os.pwrite(self._file, EMPTY, slot * SLOT)
            os.fsync(self._file)
            sync_folder(self._path.parent)

    def is_mine(self) -> bool:
        """Whether the locked file is still the one by that name; a removed one locks nothing."""
        mine = os.fstat(self._file)
        try:
            named = self._path.stat()
        except OSError:
            return False
        return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)

    def note(self, head: Head) -> None:
        """Write down the last record; durable on return.

        A later one, which a ledger that lost its end no longer has, is removed.
        """
        other = (head.seq + 1) % 2 * SLOT
        try:
            os.pwrite(self._file, _slot(head).rjust(SLOT), head.seq % 2 * SLOT)
            os.fsync(self._file)
            before = _noted(os.pread(self._file, SLOT, other))
            if before is not None and before.seq > head.seq:
                os.pwrite(self._file, EMPTY, other)
                os.fsync(self._file)
        except OSError as error:
            raise LedgerError(
                f"{self._path} cannot be written ({error.strerror}); record {head.seq} of zone"
                f" {self._zone!r} is stored, open the ledger again and show it from there."
            ) from None

    def release(self) -> None:
        """Let the next writer in."""
        os.close(self._file)


APPLICATION = 0x48474C31  # "HGL1" in the file's header
VERSION = 1
PAGE = 500  # records read at once
BUSY = 10.0  # [s] to wait for other zones' writers

_SCHEMA = """
CREATE TABLE records (
  zone TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, t INTEGER, body TEXT NOT NULL,
  prev TEXT NOT NULL, digest TEXT NOT NULL, signature TEXT NOT NULL
);
CREATE UNIQUE INDEX records_by_seq ON records (zone, seq);
CREATE UNIQUE INDEX records_by_t ON records (zone, t) WHERE t IS NOT NULL;
CREATE TRIGGER records_stay BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;
CREATE TRIGGER records_remain BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'records are never removed'); END;
"""
_COLUMNS = "zone, seq, kind, body, prev, digest, signature"


class SqliteLedger:
    """A LedgerStore in a file.

    Args:
        path: The file.
        create: Make it where it is absent; otherwise it is only read.
        still: Where nothing is written at the time, reading leaves no further file of SQLite.

    Raises:
        LedgerError: The file is absent, no ledger, or cannot be used.
    """

    def __init__(self, path: Path | str, *, create: bool = True, still: bool = False) -> None:
        self.path = Path(path)
        self._mutex = threading.RLock()
        self._held: dict[str, Sidecar] = {}
        self._missing: dict[str, str] = {}  # by zone: the digest that was noted and is not here
        self._database = _created(self.path) if create else _opened(self.path, still)

    def append(self, record: Record) -> None:
        """Add the next record; in the log and on the disk before it returns."""
        with self._mutex:
            sidecar = self._held.get(record.zone)
            if sidecar is None or not sidecar.is_mine():
                raise not_held(record.zone)
            with _errors(self.path), _transaction(self._database):
                check_next(record.zone, self.head(record.zone), record)
                self._insert(record)
            if self._missing.get(record.zone) == record.digest:
                del self._missing[record.zone]
            if record.zone not in self._missing:
                sidecar.note(Head(record.seq, record.digest))

    def settle(self, zone: str) -> None:
        """Note the last record in the small file, also where a later one is missing."""
        with self._mutex:
            sidecar = self._held.get(zone)
            if sidecar is None or not sidecar.is_mine():
                raise not_held(zone)
            head = self.head(zone)
            if self._missing.pop(zone, None) is not None and head is not None:
                sidecar.note(Head(head.seq, head.digest))

    def _insert(self, record: Record) -> None:
        row = (record.zone, record.seq, record.kind, record.t, canonical(record.body))
        try:
            self._database.execute(
                "INSERT INTO records (zone, seq, kind, t, body, prev, digest, signature)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, record.prev, record.digest, record.signature),
            )
        except sqlite3.IntegrityError:  # the number was free, so it is the step
            raise twice(record) from None

    def records(self, zone: str, after_seq: int = 0) -> Iterator[Record]:
        """A zone's records in order, a page at a time: no long read holds up the log."""
        while True:
            page = self._select(
                "WHERE zone = ? AND seq > ? ORDER BY seq LIMIT ?", zone, after_seq, PAGE
            )
            for row in page:
                yield from_fields(*row)
            if len(page) < PAGE:
                return
            after_seq = page[-1][1]

    def head(self, zone: str) -> Record | None:
        """A zone's last record."""
        rows = self._select("WHERE zone = ? ORDER BY seq DESC LIMIT 1", zone)
        return from_fields(*rows[0]) if rows else None

    def witness(self, zone: str) -> str | None:
        """The last record noted in the small file."""
        noted = read_witness(sidecar_path(self.path, zone))
        return noted.digest if noted else None

    def zones(self) -> tuple[str, ...]:
        """The zones that have records, sorted."""
        with self._mutex, _errors(self.path):
            rows = self._database.execute("SELECT DISTINCT zone FROM records ORDER BY zone")
            return tuple(row[0] for row in rows)

    def _select(self, where: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._mutex, _errors(self.path):
            return self._database.execute(
                f"SELECT {_COLUMNS} FROM records {where}", values
            ).fetchall()

    def copy_to(self, path: Path) -> None:
        """Write all of it as it is at one moment to a new file, synced; writers need not wait."""
        with self._mutex, _errors(path):
            copy = sqlite3.connect(path, isolation_level=None)
            try:
                self._database.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log file
            finally:
                copy.close()
        with path.open("rb") as written:
            os.fsync(written.fileno())

    @contextmanager
    def writer(self, zone: str) -> Iterator[None]:
        """The lock of a zone, on its small file."""
        with self._mutex:
            sidecar = Sidecar(sidecar_path(self.path, zone), zone)
            self._held[zone] = sidecar
        try:
            self._look_for_noted(zone)
            yield
        finally:
            with self._mutex:
                del self._held[zone]
                self._missing.pop(zone, None)
                sidecar.release()

    def _look_for_noted(self, zone: str) -> None:
        """A record that was durable and is missing stays noted until that is judged."""
        noted = read_witness(sidecar_path(self.path, zone))
        there = next(self.records(zone, noted.seq - 1), None) if noted else None
        if noted and (there is None or there.digest != noted.digest):
            self._missing[zone] = noted.digest

    def close(self) -> None:
        """Close the file."""
        with self._mutex, suppress(sqlite3.Error):
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """SQLite's errors as errors of this package."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(
            f"ledger {path} cannot be used ({error}); see that its disk is there, writable and not"
            " full, and open it again."
        ) from None


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            if database.in_transaction:
                database.execute("ROLLBACK")
        raise


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?{mode}"
    return sqlite3.connect(
        address, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
    )


def _created(path: Path) -> sqlite3.Connection:
    """The file for reading and writing, made if need be."""
    if not path.parent.is_dir():
        raise LedgerError(f"ledger {path} is in no folder; make {path.parent} first.")
    new = not path.exists()
    with _errors(path):
        database = _connected(path, "mode=rwc")
        try:
            _check_kind(path, database, may_be_new=True)
            _use_log(path, database)
            database.execute("PRAGMA synchronous = FULL")  # the log is synced at every commit
            database.execute("PRAGMA fullfsync = ON")  # where the system makes a difference
            if _is_empty(database):
                _make_schema(database)
            _check_kind(path, database, may_be_new=False)
        except BaseException:
            database.close()
            raise
    if new:
        sync_folder(path.parent)
    return database


def _use_log(path: Path, database: sqlite3.Connection) -> None:
    """Write-ahead log: readers never wait for the writer. Two that start at once may clash."""
    for attempt in range(50):
        try:
            mode = database.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == 49:
                raise
            time.sleep(0.1)
        else:
            break
    if mode != "wal":
        raise LedgerError(
            f"ledger {path} cannot keep a write-ahead log (mode {mode}); put it on a local disk."
        )


def _opened(path: Path, still: bool) -> sqlite3.Connection:
    """The file for reading alone; on a read-only disk it is read as it lies."""
    if not path.is_file():
        raise LedgerError(f"ledger {path} does not exist; give the path of a ledger.")
    modes = ["mode=ro"]
    if not path.with_name(f"{path.name}-wal").exists():
        modes.insert(0 if still else 1, "mode=ro&immutable=1")
    for mode in modes:
        database = _connected(path, mode)
        try:
            _check_kind(path, database, may_be_new=False)
        except sqlite3.OperationalError:
            database.close()
        except BaseException:
            database.close()
            raise
        else:
            return database
    raise LedgerError(f"ledger {path} cannot be read; see that it and its folder are readable.")


def _is_empty(database: sqlite3.Connection) -> bool:
    return not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _make_schema(database: sqlite3.Connection) -> None:
    with _transaction(database):
        if not _is_empty(database):  # another process was faster
            return
        for statement in _SCHEMA.split(";\n"):
            if statement.strip():
                database.execute(statement)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")


def _check_kind(path: Path, database: sqlite3.Connection, *, may_be_new: bool) -> None:
    """Refuse a file that is not a hushgrid ledger before anything is written to it."""
    try:
        database.execute("BEGIN")  # all of it at one time: another process may be making it
        empty = _is_empty(database)
        application = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute("COMMIT")
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        raise LedgerError(
            f"{path} is not a ledger or is damaged; give another name, or put back a copy."
        ) from None
    if may_be_new and empty and application == 0:
        return
    if application != APPLICATION:
        raise LedgerError(f"{path} is a database of something else; give another name.")
    if version != VERSION:
        raise LedgerError(
            f"ledger {path} has schema version {version} where {VERSION} is known;"
            " use the hushgrid that wrote it."
        )
