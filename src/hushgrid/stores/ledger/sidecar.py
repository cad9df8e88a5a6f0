"""The small file next to an SQLite ledger: a zone's lock, and the number of its last record.

SQLite drops the damaged end of its log without a message, and what remains is a valid shorter
chain; the note, written after each commit and before anything is published, proves that records
are missing. It has two slots, used in turn, so that a torn write spoils only one of them.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import zlib
from pathlib import Path

from hushgrid.errors import LedgerError
from hushgrid.files.results import sync_folder
from hushgrid.stores.ledger.duties import held_elsewhere
from hushgrid.stores.ledger.records import Head

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
    heads = [head for head in map(_noted, slots) if head is not None]
    if not heads and content.strip():
        raise LedgerError(
            f"{path} is damaged and cannot say which record came last; hold the ledger's head"
            " against the last release that was published, then remove the file."
        )
    return max(heads, default=None)


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
                " next to the database."
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
                self._put(EMPTY, slot * SLOT)
            os.fsync(self._file)
            sync_folder(self._path.parent)

    def is_mine(self) -> bool:
        """Whether the locked file is still the one by that name; a removed one locks nothing."""
        handle = os.fstat(self._file)
        try:
            entry = self._path.stat()
        except OSError:
            return False
        return (handle.st_dev, handle.st_ino) == (entry.st_dev, entry.st_ino)

    def note(self, head: Head) -> None:
        """Write down the last record; durable on return.

        A later one, which a ledger that lost its end no longer has, is removed.
        """
        next_slot = (head.seq + 1) % 2 * SLOT
        try:
            self._put(_slot(head).rjust(SLOT), head.seq % 2 * SLOT)
            os.fsync(self._file)
            before = _noted(os.pread(self._file, SLOT, next_slot))
            if before is not None and before.seq > head.seq:
                self._put(EMPTY, next_slot)
                os.fsync(self._file)
        except OSError as error:
            raise LedgerError(
                f"{self._path} cannot be written ({error.strerror}); record {head.seq} of zone"
                f" {self._zone!r} is stored, open the ledger again and show it from there."
            ) from None

    def _put(self, content: bytes, at: int) -> None:
        """Write all of it; the disk may take a part and report no error."""
        if os.pwrite(self._file, content, at) < len(content):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def release(self) -> None:
        """Let the next writer in."""
        os.close(self._file)
