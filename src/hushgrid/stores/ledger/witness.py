"""The last records of a zone in a file of the curator's own machine, apart from the ledger's store.

A database that fails over to an asynchronous standby, or that is put back from a copy, is a valid
but shorter ledger. The witness holds the records that were stored here or read here, so that those
which are missing are appended again as they were. It is written after the store has taken a record
and before the record is shown to anyone.

    folder/1/lock          with a stand-by: held by the process that writes below folder/1
    folder/1/ZONE          a line for each record: `w` (written here) or `r` (read here), the
                           record; with a stand-by `sent` before it is sent to the store; after
                           the last one the line `end`
    folder/ZONE.resume     the operator asks the running service to book the gap with this digest
    folder/ZONE.lock       held by the one process that may append, unless curators stand by

ZONE is a hash of the zone's name. A second curator on the same folder writes below folder/2; all
of them are read. A single one has one file for a zone, so that no older one proves anything once
the newer one is lost. A line that is torn or changed does not have the digest it states and is left
out. A file whose end is damaged, torn or cut off still gives records back, but it does not prove
that nothing else was written.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path

from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment
from hushgrid.files.results import sync_folder
from hushgrid.stores.ledger.duties import held_elsewhere
from hushgrid.stores.ledger.records import Record, digest_of, from_line

KEPT = 200  # records of a zone that stay when its file is written anew, at twice as many lines
WRITTEN, READ, SENT = b"w ", b"r ", b"sent "  # no damaged byte makes a sent record of another
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
        sent: The record that was sent after the last one, and never confirmed.
    """

    def __init__(self, zone: str, content: bytes) -> None:
        lines = content.splitlines(keepends=True)
        self._zone, self._lines = zone, [line for line in lines if not line.startswith(SENT)]
        line = next((text for text in reversed(self._lines) if not END.startswith(text)), b"")
        last = _parsed(zone, line)
        self.damaged = bool(line) and last is None
        self.intact = not self.damaged and lines[-1:] in ([], [END])
        self.local = self.intact and line.startswith(WRITTEN)
        end = next((text for text in reversed(lines) if not END.startswith(text)), b"")
        self.sent = _parsed(zone, end) if end.startswith(SENT) else None
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
    """The last records of one zone.

    Args:
        zone: The zone's name.
        path: The file of this process, `folder/1/ZONE`.
        shared: Several curators write the zone's ledger. That the last record was written here
            then proves something only in the process that wrote it.

    Attributes:
        shared: See above.
        seq: The number of the last record noted here; 0 before any.
        head: The digest of the last record noted here; empty before any.
        has_judged: This process has judged the ledger, or followed it while another one published.
    """

    def __init__(self, zone: str, path: Path, *, shared: bool = False) -> None:
        self._zone, self._path, self.shared = zone, path, shared
        self._folder = path.parent.parent
        self._ask = self._folder / f"{path.name}.resume"
        self._sent: Record | None = None  # by this process; perhaps stored
        self.head, self.seq, self._local = "", 0, False
        self.has_judged = False  # judged by `settle`, or followed while another curator wrote

    def tails(self) -> list[Tail]:
        """What each file holds, those with later records first."""
        tails = [self._read(), *(Tail(self._zone, _content(path)) for path in self._other_files())]
        return sorted((tail for tail in tails if tail.seq), key=lambda tail: -tail.seq)

    def wrote(self, digest: str) -> bool:
        """Whether the record is the last that was written here, by the zone's one writer.

        Args:
            digest: The record's digest; the files were read before.
        """
        last = {self.head, self._sent.digest if self._sent else self.head}
        return self._local and digest in last

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The right to append to the zone with this folder, whichever ledger it is.

        The lock of a ledger on a server ends with its session: a process that was paused, or cut
        off while the ledger was moved, would go on with another one than its successor. Where
        curators stand by, the ledger's own row decides.

        Raises:
            LedgerHeldError: Another process has it.
            LedgerError: The folder cannot be written.
        """
        if self.shared:
            yield
            return
        lock = _locked(self._folder / f"{self._path.name}.lock")
        if lock is None:
            raise held_elsewhere(self._zone)
        try:
            yield
        finally:
            os.close(lock)

    def send(self, record: Record) -> None:
        """Keep a record that is about to be sent to the store; durable on return.

        Other curators read the store. Where it takes the record and the answer is lost, they
        publish what this process does not know to be stored. It is appended again in that case.
        A single curator keeps nothing here: nothing is published of a record that it does not
        know to be stored.

        Raises:
            LedgerError: The file cannot be written; the record must not be sent.
        """
        if self.shared:
            self._put([_line(SENT, record)])
            self._sent = record

    def sent_records(self, *, earlier: bool = True) -> list[Record]:
        """Records that were sent to the store and may be there or not.

        Args:
            earlier: Whether those of processes before this one are among them, and of a time
                since which another curator may have written.
        """
        paths = [self._path, *self._other_files()] if self.shared and earlier else []
        records = [Tail(self._zone, _content(path)).sent for path in paths]
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
        mark = WRITTEN if local and not self.shared else READ
        self._put([_line(mark, record) for record in batch])
        self.head, self.seq, self._local = batch[-1].digest, batch[-1].seq, local

    def follow(self, records: Sequence[Record], since: float = math.inf) -> None:
        """Note what another curator wrote, as far as it is new here.

        Args:
            records: The next records of the ledger.
            since: When this process began to follow [UTC s]. A release since then was made
                by a curator that has judged the ledger.
        """
        if not self.head:
            self._read()
        self.note([record for record in records[-KEPT:] if record.seq > self.seq], local=False)
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
        if tail.digest not in at:
            with _usable(self._path):
                self._path.unlink(missing_ok=True)
        new = records[at.get(tail.digest, 0) :][-KEPT:]
        if new or not (self._local and tail.intact):
            self.note(new or records[-1:], local=True)
        self.has_judged = True

    def disown(self) -> None:
        """Another curator may write from now on."""
        self._local = False

    def is_asked(self, head: str) -> bool:
        """Whether the operator has asked to go on after this record; an older request is removed.

        Args:
            head: The digest of the open gap's record, or of the last one.
        """
        try:
            text = self._ask.read_text()
        except (OSError, UnicodeError):
            return False
        if text != head:
            self.answer()
        return text == head

    def ask(self, head: str) -> None:
        """Ask the running service to go on after this record.

        Raises:
            LedgerError: The folder cannot be written.
        """
        part = self._ask.with_suffix(".part")
        with _usable(self._ask):
            part.write_text(head)
            part.replace(self._ask)

    def answer(self) -> None:
        """What was asked for is done."""
        with suppress(OSError):
            self._ask.unlink(missing_ok=True)

    def _read(self) -> Tail:
        tail = Tail(self._zone, _content(self._path))
        if not self.shared or (tail.seq and tail.digest != self.head):
            self.head, self.seq = tail.digest, tail.seq
            self._local = tail.local and not self.shared
        return tail

    def _other_files(self) -> list[Path]:
        """Of other processes on the same folder."""
        files = sorted(self._folder.glob(f"*/{self._path.name}"))
        return [path for path in files if path != self._path]

    def _put(self, lines: Sequence[bytes]) -> None:
        """Add lines in place of the `end`, with a new one; where it is not there, or long, anew."""
        content, path = _content(self._path), self._path
        anew = not content.endswith(END) or content.count(b"\n") + len(lines) > 2 * KEPT
        if anew:
            whole = (line for line in content.splitlines(keepends=True) if line.endswith(b"\n"))
            before = [line for line in whole if line != END and not line.startswith(SENT)]
            lines = [*before, *lines][-KEPT:]
            path = path.with_name(f"{path.name}.part")
        with _usable(self._path):
            with path.open("wb" if anew else "r+b") as stream:  # buffered: all of it, or an error
                os.fchmod(stream.fileno(), 0o600)
                stream.seek(max(stream.seek(0, os.SEEK_END) - len(END), 0))
                stream.writelines([*lines, END])
                stream.flush()
                os.fsync(stream.fileno())
            if anew:
                path.replace(self._path)
                sync_folder(path.parent)


def open_witnesses(deployment: Deployment) -> Witnesses:
    """Open the witnesses of all zones of a service, for this process.

    Args:
        deployment: the service; its `witness_folder` is created where it is absent.

    Returns:
        The witnesses, to be closed by the caller.

    Raises:
        LedgerError: the folder cannot be written.
    """
    return Witnesses(deployment.witness_folder, shared=deployment.standby)


class Witnesses(ExitStack):
    """The witnesses of all zones of one process below a folder, which has its place until closed.

    Args:
        folder: Where the files are.
        shared: Several curators write the ledgers.

    Raises:
        LedgerError: The folder cannot be written.
    """

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        super().__init__()
        self._shared, self._by_zone = shared, dict[str, Witness]()
        for number in count(1):
            self._slot = folder / str(number)
            with _usable(folder):
                for path in (folder, self._slot):  # not above: a disk may not be mounted
                    path.mkdir(exist_ok=True)
                sync_folder(folder)
            if not shared:
                return
            lock = _locked(self._slot / "lock")
            if lock is not None:
                self.callback(os.close, lock)
                return

    def of(self, zone: str) -> Witness:
        """The witness of a zone; the same one each time."""
        if zone not in self._by_zone:
            self._by_zone[zone] = Witness(zone, self._slot / _name(zone), shared=self._shared)
        return self._by_zone[zone]


def witness_to_read(folder: Path, zone: str) -> Witness:
    """The witness of a zone for reading alone: nothing is written or locked.

    Args:
        folder: The folder of the witnesses.
        zone: The zone's name.

    Returns:
        A witness with what all files below the folder hold of the zone.
    """
    return Witness(zone, folder / "none" / _name(zone))


def _locked(path: Path) -> int | None:
    """The descriptor that holds the lock of a file; None where another process has it."""
    with _usable(path):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
    return lock


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Say what to do where a file cannot be used."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"the witness {path} cannot be written or read ({error.strerror}); see that the service"
            " may and that the disk is not full, or set stores.witness to another folder on a local"
            " disk."
        ) from None


def _name(zone: str) -> str:
    return hashlib.sha256(zone.encode()).hexdigest()[:16]


def _content(path: Path) -> bytes:
    with _usable(path), suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def _parsed(zone: str, line: bytes) -> Record | None:
    """The record on a line; None where the line is torn or not as it was written."""
    mark = next((mark for mark in (WRITTEN, READ, SENT) if line.startswith(mark)), None)
    if mark is None:
        return None
    try:
        record = from_line(line.removeprefix(mark))
    except LedgerError:
        return None
    return record if record.zone == zone and record.digest == digest_of(record) else None


def _line(mark: bytes, record: Record) -> bytes:
    return mark + record.line.encode() + b"\n"
