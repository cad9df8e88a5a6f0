"""The last records of a zone in a file of the curator's own machine, apart from the ledger's store.

A database that fails over to an asynchronous standby, or that is put back from a copy, is a valid
but shorter ledger. The witness holds the records that were stored here or read here, so that those
which are missing are appended again as they were. It is written after the store has taken a record
and before the record is shown to anyone.

    folder/1/lock          held by the process that writes below folder/1
    folder/1/ZONE          a line for each record: `w` (written here) or `r` (read here), the
                           record; after the last one the line `end`
    folder/1/ZONE.sent     with a stand-by: the record last sent to the store, before it is sent
    folder/ZONE.resume     the operator asks the running service to book the gap with this digest
    folder/ZONE.lock       held by the one process that may append, unless curators stand by

ZONE is a hash of the zone's name. A second process on the same folder writes below folder/2; all
of them are read. The one that writes the zone's ledger removes the zone's other files, so that an
older one proves nothing once the newer one is lost. A line that is torn or changed does not have
the digest it states and is left out. A file whose end is damaged, torn or cut off still gives
records back, but it does not prove that nothing else was written.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property, partial
from pathlib import Path

from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment
from hushgrid.files.results import sync_folder
from hushgrid.stores.ledger.duties import held_elsewhere
from hushgrid.stores.ledger.records import Record, digest_of, from_line

log = logging.getLogger("hushgrid.ledger")

KEPT = 200  # records of a zone that stay when its file is written anew, at twice as many lines
SLOTS = 64  # processes on one folder
WRITTEN, READ = b"w ", b"r "
END = b"end\n"  # overwritten by the next line: a file that is cut anywhere lacks it


class Tail:
    """Records that follow each other, the last ones of a file.

    The last one stands for all before it, which its digest covers: where the ledger has it, none
    but its line is parsed.

    Args:
        zone: The zone of the records.
        content: The bytes of the file.

    Attributes:
        seq: The number of the last record; 0 without one.
        digest: Its digest; empty without one.
        local: The last was written here, and the file's end is as it was written.
        intact: The file's end is as it was written.
        damaged: The last line is torn or changed: it may have been a further record.
    """

    def __init__(self, zone: str, content: bytes) -> None:
        self._zone, self._lines = zone, content.splitlines(keepends=True)
        line = next((text for text in reversed(self._lines) if not END.startswith(text)), b"")
        last = _parsed(zone, line)
        self.damaged = bool(line) and last is None
        self.intact = not self.damaged and (not line or self._lines[-1] == END)
        self.local = self.intact and line.startswith(WRITTEN)
        if last is None and self.records:
            last = self.records[-1]
        self.seq, self.digest = (0, "") if last is None else (last.seq, last.digest)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The records up to the last one that follow each other without a break."""
        records: list[Record] = []
        for line in self._lines:
            record = None if END.startswith(line) else _parsed(self._zone, line)
            # noted again: only who writes has changed
            if record is None or (records and record.digest == records[-1].digest):
                continue
            if records and record.prev != records[-1].digest:
                records.clear()
            records.append(record)
        return tuple(records[-2 * KEPT :])


class Witness:
    """The last records of one zone; without a path they are kept for the process's life only.

    Args:
        zone: The zone's name.
        path: The file of this process.
        other_files: Gives the files of other processes on the same folder.
        ask: The file by which an operator asks for the zone's gap to be booked.
        shared: Several curators write the zone's ledger. That the last record was written here
            then proves something only in the process that wrote it.
        hold: Gives the right to append for a time, which one process on the same folder has.

    Attributes:
        has_judged: This process has judged the ledger, or followed it while another one published.
    """

    def __init__(
        self,
        zone: str,
        path: Path | None = None,
        other_files: Callable[[], Sequence[Path]] = tuple,
        *,
        ask: Path | None = None,
        shared: bool = False,
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._zone, self._path, self._other_files, self._ask = zone, path, other_files, ask
        self._shared, self.hold = shared, hold
        self._memory: list[bytes] = []  # where there is no file
        self._sent: Record | None = None  # by this process; perhaps stored
        self._lines: int | None = None  # of the file; None: not read, or its end may be torn
        self._head, self._seq = "", 0  # of the last line
        self._local = False
        # the other files are removed, or stay: none proves anything, or they are only read
        self._alone = shared or path is None
        self.has_judged = False  # judged by `settle`, or followed while another curator wrote

    def tails(self) -> list[Tail]:
        """What each file holds, those with later records first."""
        tail = self._read()
        tails = [tail, *(Tail(self._zone, _content(path)) for path in self._other_files())]
        return sorted((tail for tail in tails if tail.seq), key=lambda tail: -tail.seq)

    @property
    def shared(self) -> bool:
        """Whether several curators write the zone's ledger."""
        return self._shared

    @property
    def seq(self) -> int:
        """The number of the last record noted here; 0 before any."""
        return self._seq

    @property
    def head(self) -> str:
        """The digest of the last record noted here; empty before any."""
        return self._head

    def wrote(self, digest: str, tails: Iterable[Tail]) -> bool:
        """Whether the record is the last that was written here, by the zone's one writer.

        Args:
            digest: The record's digest.
            tails: What the files hold.
        """
        if self._shared:
            last = {self._head, self._sent.digest if self._sent else self._head}
            return self._local and digest in last
        return any(tail.local and tail.digest == digest for tail in tails)

    def send(self, record: Record) -> None:
        """Keep a record that is about to be sent to the store; durable on return.

        Other curators read the store. Where it takes the record and the answer is lost, they
        publish what this process does not know to be stored. It is appended again in that case.
        A single curator keeps nothing here: nothing is published of a record that it does not
        know to be stored.

        Raises:
            LedgerError: The file cannot be written; the record must not be sent.
        """
        if not self._shared:
            return
        if self._path is not None:
            path = _sent_beside(self._path)
            try:
                new = not path.exists()
                with path.open("wb") as stream:
                    os.fchmod(stream.fileno(), 0o600)
                    stream.write(READ + record.line.encode() + b"\n")
                    stream.flush()
                    os.fsync(stream.fileno())
                if new:
                    sync_folder(path.parent)
            except OSError as error:
                raise self._unwritable(error) from None
        self._sent = record

    def sent_records(self, *, earlier: bool = True) -> list[Record]:
        """Records that were sent to the store and may be there or not.

        Args:
            earlier: Whether those of processes before this one are among them, and of a time
                since which another curator may have written.
        """
        paths = [path for path in (self._path, *self._other_files()) if path is not None]
        files = paths if self._shared and earlier else []
        lines = (_content(_sent_beside(path)) for path in files)
        records = [_parsed(self._zone, line) for line in lines]
        last = self._sent if earlier or self._local else None
        return [record for record in (last, *records) if record is not None]

    def note(self, records: Iterable[Record], *, local: bool) -> None:
        """Add records that follow the last one; durable on return.

        Args:
            records: The records, as they are stored.
            local: They were written here, by the zone's one writer.

        Raises:
            LedgerError: The file cannot be written; nothing may be published of these records.
        """
        batch = list(records)
        if not batch:
            return
        if self._lines is None:
            self._read()
        mark = WRITTEN if local and not self._shared else READ
        lines = [mark + record.line.encode() + b"\n" for record in batch]
        if self._path is None:
            self._memory = [*self._memory, *lines][-KEPT:]
        elif self._lines is None or self._lines + len(lines) > 2 * KEPT:
            self._write_anew([*_good_lines(self._zone, _content(self._path)), *lines])
        else:
            self._append(self._path, b"".join(lines), first=self._lines == 0)
            self._lines += len(lines)
        self._head, self._seq, self._local = batch[-1].digest, batch[-1].seq, local
        if local and not self._alone:
            self._remove_other_files()

    def follow(self, records: Sequence[Record], since: float = math.inf) -> None:
        """Note what another curator wrote, as far as it is new here.

        Args:
            records: The next records of the ledger.
            since: When this process began to follow [UTC s]. A release since then was made
                by a curator that has judged the ledger.
        """
        if not self._head:
            self._read()
        self.note([record for record in records[-KEPT:] if record.seq > self._seq], local=False)
        times = (record.body["published_at"] for record in records if record.kind == "release")
        self.has_judged = self.has_judged or max(times, default=-math.inf) >= since

    def settle(self, records: Sequence[Record]) -> None:
        """Take the ledger as it is: from here on this process is the one that writes to it.

        Args:
            records: The last records of the ledger. Where the file ends with another record than
                one of these, it begins anew with them.

        Raises:
            LedgerError: The file cannot be written; the zone must not be run.
        """
        tail = self._read()
        at = {record.digest: n for n, record in enumerate(records, 1)}
        last = tail.digest
        if last not in at:
            self._memory.clear()
            self._write_anew([])
        new = records[at.get(last, 0) :][-KEPT:]
        if not (self._local and last == records[-1].digest and self._lines is not None):
            self.note(new or records[-1:], local=True)
        if not self._shared and self._path is not None:
            self._remove_other_files()
        self.has_judged = True

    def disown(self) -> None:
        """Another curator may write from now on."""
        self._local = False

    @property
    def can_be_asked(self) -> bool:
        """Whether there is a place for the operator to ask."""
        return self._ask is not None

    def is_asked(self, head: str) -> bool:
        """Whether the operator has asked to go on after this record; an older request is removed.

        Args:
            head: The digest of the open gap's record, or of the last one.
        """
        if self._ask is None:
            return False
        try:
            text = self._ask.read_text()
        except (OSError, UnicodeError):
            return False
        if text != head:
            self.answer()
        return text == head

    def ask(self, head: str) -> bool:
        """Ask the running service to go on after this record; whether there is a place to ask."""
        if self._ask is None:
            return False
        part = self._ask.with_suffix(".part")
        try:
            part.write_text(head)
            part.replace(self._ask)
        except OSError:
            return False
        return True

    def answer(self) -> None:
        """What was asked for is done."""
        if self._ask is not None:
            with suppress(OSError):
                self._ask.unlink(missing_ok=True)

    def _read(self) -> Tail:
        if self._path is None:
            content = b"".join([*self._memory, END]) if self._memory else b""
        else:
            content = _content(self._path)
        tail = Tail(self._zone, content)
        self._lines = content.count(b"\n") - bool(content) if tail.intact else None
        if tail.seq and tail.digest != self._head:
            self._head, self._seq = tail.digest, tail.seq
            self._local = tail.local and not self._shared
        return tail

    def _remove_other_files(self) -> None:
        """From here on they would be older than the ledger."""
        try:
            for path in self._other_files():
                path.unlink(missing_ok=True)
                sync_folder(path.parent)
        except OSError as error:
            raise self._unwritable(error) from None
        self._alone = True

    def _append(self, path: Path, content: bytes, *, first: bool) -> None:
        """Add lines in place of the `end`, with a new one; the file is whole, or not there yet."""
        new = not path.exists()
        try:
            with path.open("xb" if new else "r+b") as stream:  # buffered: all of it, or an error
                os.fchmod(stream.fileno(), 0o600)
                if not (new or first):  # new again: another process removed it
                    stream.seek(-len(END), os.SEEK_END)
                    if stream.read() == END:  # else another process has marked it: see `_doubt`
                        stream.seek(-len(END), os.SEEK_END)
                stream.write(content + END)
                stream.flush()
                os.fsync(stream.fileno())
            if new:
                sync_folder(path.parent)
        except OSError as error:
            self._lines = None
            raise self._unwritable(error) from None

    def _write_anew(self, lines: Sequence[bytes]) -> None:
        if self._path is None:
            return
        part, newest = self._path.with_name(f"{self._path.name}.part"), lines[-KEPT:]
        try:
            with part.open("wb") as stream:
                os.fchmod(stream.fileno(), 0o600)
                stream.writelines([*newest, END])
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            self._lines = None
            raise self._unwritable(error) from None
        self._lines = len(newest)

    def _unwritable(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"the witness {self._path} of zone {self._zone!r} cannot be written"
            f" ({error.strerror}); see that its disk is writable and not full. The ledger is read"
            " again then, and what is stored there is published from there."
        )


def open_witnesses(deployment: Deployment) -> Witnesses:
    """Open the witnesses of all zones of a service, for this process.

    Args:
        deployment: the service; its `witness_folder` is created where it is absent.

    Returns:
        The witnesses, to be closed by the caller.

    Raises:
        LedgerError: the folder cannot be written and `witness_needed` is set.
    """
    return Witnesses.at(
        deployment.witness_folder, needed=deployment.witness_needed, shared=deployment.standby
    )


class Witnesses:
    """The witnesses of all zones of one process below a folder, or in memory without one.

    Args:
        folder: Where the files are; None: in memory.
        shared: Several curators write the ledgers.

    Raises:
        LedgerError: The folder cannot be written, or too many processes use it.
    """

    def __init__(self, folder: Path | None, *, shared: bool = False) -> None:
        self._folder, self._shared = folder, shared
        self._lock, self._slot = -1, Path()
        self._old: Path | None = None  # with files of earlier runs, which are only read
        self._by_zone: dict[str, Witness] = {}
        if folder is not None:
            self._take_slot(folder)

    @classmethod
    def at(cls, folder: Path, *, needed: bool, shared: bool = False) -> Witnesses:
        """Below the folder; in memory alone where it cannot be written and is not `needed`.

        In memory alone the files of earlier runs will be older than the ledger: they are marked,
        and prove nothing from then on.

        Args:
            folder: Where the files are.
            needed: Refuse where the folder cannot be written.
            shared: Several curators write the ledgers.

        Raises:
            LedgerError: The folder cannot be used and is needed, or its files cannot be marked.
        """
        try:
            return cls(folder, shared=shared)
        except LedgerError as error:
            if needed:
                raise
            _doubt(folder)
            log.warning("no witness on disk", extra={"reason": str(error)})
            witnesses = cls(None, shared=shared)
            witnesses._old = folder
            return witnesses

    def of(self, zone: str) -> Witness:
        """The witness of a zone; the same one each time."""
        if zone not in self._by_zone:
            name, folder = _name(zone), self._folder or self._old
            path = None if self._folder is None else self._slot / name
            ask = None if self._folder is None else self._folder / f"{name}.resume"

            def other_files() -> list[Path]:
                files = [] if folder is None else sorted(folder.glob(f"*/{name}"))
                return [file for file in files if file != path]

            hold: Callable[[], AbstractContextManager[None]] = nullcontext
            if self._folder is not None and not self._shared:
                hold = partial(held, self._folder, zone)
            self._by_zone[zone] = Witness(
                zone, path, other_files, ask=ask, shared=self._shared, hold=hold
            )
        return self._by_zone[zone]

    def close(self) -> None:
        """Let another process have the place."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Witnesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_slot(self, folder: Path) -> None:
        try:
            for number in range(1, SLOTS + 1):
                slot = folder / str(number)
                for path in (folder, slot):  # not the folder above: a disk may not be mounted
                    path.mkdir(exist_ok=True)
                lock = os.open(slot / "lock", os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                self._lock, self._slot = lock, slot
                sync_folder(folder)
                return
        except OSError as error:
            raise _unusable(folder, error) from None
        raise LedgerError(f"the witness folder {folder} is used by {SLOTS} processes; stop some.")


@contextmanager
def held(folder: Path, zone: str) -> Iterator[None]:
    """The right to append to a zone with the witness of a folder, whichever ledger it is.

    The lock of a ledger on a server ends with its session: a process that was paused, or cut off
    while the ledger was moved, would go on with another one than its successor.

    Args:
        folder: The folder of the witnesses, which exists.
        zone: The zone's name.

    Raises:
        LedgerHeldError: Another process has it.
        LedgerError: The folder cannot be written.
    """
    try:
        lock = os.open(folder / f"{_name(zone)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise held_elsewhere(zone) from None
        yield
    finally:
        os.close(lock)


def witness_to_read(folder: Path, zone: str) -> Witness:
    """The witness of a zone for reading alone: nothing is written or locked.

    Args:
        folder: The folder of the witnesses.
        zone: The zone's name.

    Returns:
        A witness with what all files below the folder hold of the zone.
    """
    return Witness(zone, other_files=lambda: sorted(folder.glob(f"*/{_name(zone)}")))


def unfinished_files(folder: Path) -> list[Path]:
    """Files that a witness makes for a moment when it is written anew.

    Args:
        folder: The folder of the witnesses.

    Returns:
        Their paths, of all processes on the folder.
    """
    return sorted(folder.glob("*/*.part"))


def remove_unfinished(path: Path) -> None:
    """Remove one of `unfinished_files`, unless a process writes next to it.

    Args:
        path: The file.

    Raises:
        OSError: A process holds the place, or the file cannot be removed.
    """
    lock = os.open(path.with_name("lock"), os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _doubt(folder: Path) -> None:
    """Mark the files of all zones as older than the ledgers: their `end` is taken away."""
    try:
        for slot in sorted(folder.iterdir()) if folder.is_dir() else ():
            for path in sorted(slot.iterdir()) if slot.is_dir() else ():
                if re.fullmatch("[0-9a-f]{16}", path.name):
                    with path.open("r+b", buffering=0) as stream:
                        size = len(stream.read().removesuffix(END))
                        stream.truncate(size)
                        os.fsync(stream.fileno())
    except OSError as error:
        raise LedgerError(
            f"the witness folder {folder} cannot be used, and its files cannot be marked as out of"
            f" date ({error.strerror}): they would prove later that nothing is missing. Make the"
            " folder writable for the service, or move it away to run without it."
        ) from None


def _unusable(folder: Path, error: OSError) -> LedgerError:
    return LedgerError(
        f"the witness folder {folder} cannot be used ({error.strerror}); set stores.witness to a"
        " folder on a local disk that the service can write."
    )


def _sent_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sent")


def _name(zone: str) -> str:
    return hashlib.sha256(zone.encode()).hexdigest()[:16]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise LedgerError(
            f"the witness {path} cannot be read ({error.strerror}); see that the service may."
        ) from None


def _parsed(zone: str, line: bytes) -> Record | None:
    """The record on a line; None where the line is torn or not as it was written."""
    if line[:2] not in (WRITTEN, READ):
        return None
    try:
        record = from_line(line[2:])
    except LedgerError:
        return None
    return record if record.zone == zone and record.digest == digest_of(record) else None


def _good_lines(zone: str, content: bytes) -> list[bytes]:
    return [line for line in content.splitlines(keepends=True) if _parsed(zone, line)]
