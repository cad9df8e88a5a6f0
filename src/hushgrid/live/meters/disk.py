"""Files that survive a crash: synced appends, synced folders, files replaced whole."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hushgrid.errors import MeterError

_MODE = 0o600  # readings are nobody else's business


def make_folder(path: Path) -> None:
    """Make a folder for its owner alone, with those above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make names that came and went in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock(path: Path) -> int:
    """Lock a file for this process until the descriptor is closed; refused when another has it."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise MeterError(
            f"meter store {path.parent} is in use by another process; stop that one first."
        ) from None
    return held


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Replace a small file whole, with a check of its content."""
    text = json.dumps({**state, "crc": _crc(state)}, indent=1) + "\n"
    fresh = path.with_suffix(".tmp")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    try:
        write_all(file, [text.encode()])
        os.fsync(file)
    finally:
        os.close(file)
    fresh.replace(path)
    sync_folder(path.parent)


def read_state(path: Path) -> dict[str, Any]:
    """What `write_state` wrote."""
    try:
        state = json.loads(path.read_bytes())
        if state.pop("crc") == _crc(state):
            return dict(state)
    except (ValueError, KeyError, AttributeError, TypeError):
        pass
    raise MeterError(f"meter file {path} is damaged; restore it from a copy.")


def _crc(state: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())


class Appender:
    """A file that grows by whole synced appends. `end` is where the durable part ends."""

    __slots__ = ("_file", "end", "salt")

    def __init__(self, file: int, salt: bytes, end: int) -> None:
        self._file, self.salt, self.end = file, salt, end

    @classmethod
    def create(cls, path: Path, salt: bytes, head: bytes) -> Appender:
        """A new file that begins with `head`; a leftover of that name goes."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        made = cls(os.open(path, flags, _MODE), salt, 0)
        try:
            made.append([head])
            sync_folder(path.parent)
        except BaseException:
            made.release()
            path.unlink(missing_ok=True)  # a log without a head would look damaged later
            raise
        return made

    @classmethod
    def resume(cls, path: Path, salt: bytes, end: int) -> Appender:
        """A file whose good part ends at `end`."""
        sync_folder(path.parent)  # its name may be younger than the last sync
        return cls(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), salt, end)

    def append(self, buffers: Sequence[Any]) -> None:
        """Write and sync. After an error the file is as before, or `NotCut` is raised."""
        try:
            written = write_all(self._file, buffers)
        except BaseException:
            self.cut(self.end)
            raise
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise NotCut from error  # nobody knows what a failed sync leaves on the disk
        self.end += written

    def cut(self, end: int) -> None:
        """Go back to an earlier end."""
        try:
            os.ftruncate(self._file, end)
        except OSError as error:
            raise NotCut from error
        self.end = end

    def release(self) -> None:
        """Close the file."""
        os.close(self._file)


class NotCut(Exception):  # noqa: N818
    """A file whose content is not known any more."""


def write_all(file: int, buffers: Sequence[Any]) -> int:
    """Write all buffers, however many calls it takes; the number of bytes."""
    total = sum(memoryview(part).nbytes for part in buffers)
    done = os.writev(file, buffers)
    if done < total:
        rest = b"".join(bytes(part) for part in buffers)
        while done < total:
            done += os.write(file, memoryview(rest)[done:])
    return total
