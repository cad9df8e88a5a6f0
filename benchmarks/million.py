"""One million meters in one interval: how much does a tick compute, and in how much memory?

    python -m benchmarks.million tick | flat

A process of its own, so that its memory is its own. One meter in a hundred is missing, so that the
public expectation stands in for it. The ledger is on the project's disk, the noise is secure.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.measure import Question, Result, apart, peak_mib, sized
from benchmarks.meters import folder
from benchmarks.running import BEGINS, INTERVAL, service
from hushgrid import SecureNoise
from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import create, load
from hushgrid.stores.meters import MeterStore, open_meters

METERS, TICKS = sized((1_000_000, 3), (2_000, 1))
FEW, INTERVALS, EARLY = sized((2_000, 1_000, 200), (64, 10, 2))


@contextmanager
def open_curator(zone: ZoneService, place: Path) -> Iterator[tuple[Curator, MeterStore]]:
    """A zone that has just begun."""
    create(place / "key.pem")
    with ExitStack() as stack:
        store = stack.enter_context(open_store(str(place / "ledger.db")))
        meters = stack.enter_context(open_meters(str(place / "meters")))
        key, noise = load(place / "key.pem"), SecureNoise()
        opened = Curator.open(zone, store, meters, noise, key, (), "production", now=BEGINS)
        yield stack.enter_context(opened), meters


def fill(meters: MeterStore, zone: ZoneService, k: int) -> int:
    """Readings of interval k, one in a hundred missing; when the interval ends."""
    houses, start, rng = len(zone.meters), BEGINS + k * INTERVAL, np.random.default_rng(k)
    there = np.flatnonzero(rng.random(houses) >= 0.01).astype(np.int32)
    for some in np.array_split(rng.permutation(there), max(1, houses // 100_000)):
        times, lengths = np.full(some.size, start), np.full(some.size, INTERVAL, np.int32)
        meters.put(zone.id, some, times, lengths, rng.integers(0, 2500, some.size))
    return start + INTERVAL


def tick() -> dict[str, float]:
    """Processor time [s] of the slowest of some ticks, and the process's peak memory [MiB]."""
    zone, seconds = service(METERS), []
    with folder() as place, open_curator(zone, place) as (curator, meters):
        for k in range(TICKS):
            end = fill(meters, zone, k)
            begin = time.process_time()
            (made,) = curator.run(end)
            seconds.append(time.process_time() - begin)
            assert made.source == "readings"
            assert 0 < curator.status.missing < METERS // 50
    return {"seconds": max(seconds), "peak": peak_mib()}


def flat() -> dict[str, float]:
    """Memory [MiB] after 200 intervals and after 1,000, each when what is unused is let go."""
    zone, found = service(FEW, horizon=2 * INTERVALS, retention=10 * INTERVAL), {}
    with folder() as place, open_curator(zone, place) as (curator, meters):
        for k in range(INTERVALS):
            (made,) = curator.run(fill(meters, zone, k))
            assert made.source == "readings"
            if k + 1 in (EARLY, INTERVALS):
                gc.collect()
                found[str(k + 1)] = resident()
    return found


WORK = {"tick": tick, "flat": flat}


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@cache
def _asked(what: str) -> dict[str, float]:
    return apart(WORK[what], "benchmarks.million", what)


def seconds() -> Result:
    found = _asked("tick")["seconds"]
    return Result(found, "s of processor time", found, "<= 10")


def peak() -> Result:
    found = _asked("tick")["peak"]
    return Result(found, "MiB", found, "<= 4096")


def growth() -> Result:
    found = _asked("flat")
    late = found[str(INTERVALS)]
    return Result(late, "MiB", late / found[str(EARLY)], "<= 1.05")


QUESTIONS: dict[str, Question] = {
    "million_tick": seconds,
    "million_memory": peak,
    "intervals_flat": growth,
}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]]()))
