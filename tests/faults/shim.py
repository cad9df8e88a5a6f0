"""Faults of a disk by a preloaded library: which calls on which files fail, and how."""

from __future__ import annotations

import errno
import mmap
import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("shim.c")
CALLS = {"write": 1, "sync": 2, "truncate": 4, "open": 8}
_FORM = struct.Struct("=7i36s")
_FIRED, _CLOCK = 5 * 4, 6 * 4


class Fault(NamedTuple):
    """Some calls on some files fail: `skip` of them go well, then `times` do not.

    `error` is an errno; 0: half of the bytes are written.
    """

    call: str
    error: int
    file: str
    skip: int
    times: int

    @property
    def kind(self) -> str:
        """The call and its error."""
        return f"{self.call} {errno.errorcode[self.error] if self.error else 'short'}"


def plan(seed: int) -> Iterator[Fault]:
    """Fault after fault: the same for the same seed."""
    rng = random.Random(seed)
    errors = {
        "write": (errno.EIO, errno.ENOSPC, errno.EROFS, 0),
        "sync": (errno.EIO, errno.ENOSPC, errno.EROFS),
        "truncate": (errno.EIO, errno.ENOSPC),
        "open": (errno.EIO, errno.ENOSPC, errno.EROFS),
    }
    while True:
        (call,) = rng.choices(list(errors), (6, 5, 1, 2))
        file = rng.choice(("ledger.db", "ledger.db-wal", "witness", "meters", "meters-wal", ""))
        yield Fault(call, rng.choice(errors[call]), file, rng.choice((0, 0, 0, 1, 2, 5)),
                    rng.choice((1, 1, 2, 4, 30)))  # fmt: skip


def build(folder: Path) -> Path:
    """Compile the library."""
    made = folder / "faults.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return made


class Control:
    """The plan that the library of a running process follows; both may come and go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(_FORM.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)

    def arm(self, fault: Fault) -> None:
        clock, file = self._int(_CLOCK), fault.file.encode()
        values = (CALLS[fault.call], fault.error, fault.skip, fault.times, 0, 0, clock, file)
        self._shared[12:16] = bytes(4)  # nothing fails while it is changed
        self._shared[:] = _FORM.pack(*values)

    def disarm(self) -> None:
        self._shared[12:16] = bytes(4)

    @property
    def fired(self) -> int:
        """How many calls failed since it was armed."""
        return self._int(_FIRED)

    @property
    def ahead(self) -> float:
        """By how much the service's clock is set forward [s]."""
        return self._int(_CLOCK) / 1000

    @ahead.setter
    def ahead(self, seconds: float) -> None:
        self._shared[_CLOCK : _CLOCK + 4] = struct.pack("=i", round(seconds * 1000))

    def _int(self, at: int) -> int:
        return int(struct.unpack_from("=i", self._shared, at)[0])
