"""What every benchmark shares: a result with its goal, and fair timing of two sides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
TOY = bool(os.environ.get("HUSHGRID_TOY"))


def sized(full: T, toy: T) -> T:
    """A size of a benchmark: the toy one, where HUSHGRID_TOY is set, only shows that it runs."""
    return toy if TOY else full


def apart(work: Callable[..., dict[str, float]], module: str, *words: str) -> dict[str, float]:
    """What `python -m module words` prints, which is `work()` as JSON.

    In a process of its own, so that its memory is its own; at toy size in this one, which is
    quicker.
    """
    if TOY:
        return work()
    command = [sys.executable, "-m", module, *words]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(out.splitlines()[-1]))


class Result(NamedTuple):
    """`ratio` is judged against `goal`, such as "<= 0.6"; `value` [`unit`] is for orientation."""

    value: float
    unit: str
    ratio: float
    goal: str | None = None

    @property
    def missed(self) -> bool:
        """Whether there is a goal and the ratio is on the wrong side of it."""
        if self.goal is None:
            return False
        sign, limit = self.goal.split()
        return self.ratio > float(limit) if sign == "<=" else self.ratio < float(limit)


def peak_mib() -> float:
    """The most memory this process ever held; what its parent held when it began is not in it."""
    [line] = [s for s in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in s]
    return int(line.split()[1]) / 2**10


Question = Callable[[], Result]


def best_of_both(
    ours: Callable[[], object], peer: Callable[[], object], *, repetitions: int
) -> tuple[float, float]:
    """The shortest time [s] of each side. They take turns, so a busy moment hits both.

    Whoever calls has run both sides once before, so that no compilation is timed.
    """
    turns = [(_seconds(ours), _seconds(peer)) for _ in range(repetitions)]
    return min(turn[0] for turn in turns), min(turn[1] for turn in turns)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
