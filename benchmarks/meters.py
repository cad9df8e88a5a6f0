"""Meter stores: how near to the disk's own pace, how fast an interval is read, how much memory?

The peer is a bare writer: it inserts the rows that the store inserts for the same readings into a
SQLite file, and commits as often. Meters report in random order.
"""

from __future__ import annotations

import gc
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tests.services import postgres_binaries, running_postgres

from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid.model.zone import tally
from hushgrid.stores.meters import MeterStore, open_meters
from hushgrid.stores.meters.columns import Columns

METERS, INTERVAL, ZONE = sized(1_000_000, 2_000), 900, "z"
INTERVALS = sized(1_000, 10)  # of a store that is filled and purged
RNG = np.random.default_rng(1)
ORDER = RNG.permutation(METERS).astype(np.int32)
WH = RNG.integers(0, 2500, METERS)


@contextmanager
def folder() -> Iterator[Path]:
    """On the project's disk: a temporary folder may be in memory, where a sync costs nothing."""
    Path("out").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="out") as name:
        yield Path(name).absolute()


def batches(start: int, size: int, puts: int) -> list[Columns]:
    """The first readings of an interval, `puts` batches of `size`."""
    times, lengths = np.full(size, start), np.full(size, INTERVAL, np.int32)
    rows = [slice(k * size, (k + 1) * size) for k in range(puts)]
    return [Columns(ORDER[some], times, lengths, WH[some]) for some in rows]


class Ours:
    """Each call fills an interval and closes the one before."""

    def __init__(self, store: MeterStore, size: int, puts: int) -> None:
        self._store, self._size, self._puts, self._start = store, size, puts, 0
        store.open_zone(ZONE, [str(k) for k in range(METERS)], INTERVAL)
        self.prepare()

    def prepare(self) -> None:
        self._start += INTERVAL
        self._batches = batches(self._start, self._size, self._puts)

    def __call__(self) -> None:
        for batch in self._batches:
            assert self._store.put(ZONE, *batch).accepted == self._size
        self._store.close(ZONE, self._start - INTERVAL)
        self.prepare()


class Bare:
    """The same rows and commits, in a SQLite file with the same settings."""

    def __init__(self, place: Path, size: int, puts: int) -> None:
        self._link = sqlite3.connect(place / "bare.db", isolation_level=None)
        for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self._link.execute(f"PRAGMA {setting}")
        self._link.execute("CREATE TABLE log (readings BLOB NOT NULL)")
        self._rows = [batch.pack() for batch in batches(INTERVAL, size, puts)]

    def __call__(self) -> None:
        for row in self._rows:
            self._link.execute("INSERT INTO log VALUES (?)", (row,))
        self._link.execute("INSERT INTO log VALUES (?)", (b"closed",))


def pace(
    where: Callable[[Path], str], size: int, puts: int, repetitions: int, goal: str | None = None
) -> Result:
    """Durable readings a second, and as a share of the bare writer's."""
    with folder() as place, open_meters(where(place)) as store:
        ours, bare = Ours(store, size, puts), Bare(place, size, puts)
        ours()
        bare()
        mine, its = best_of_both(ours, bare, repetitions=repetitions)
    return Result(size * puts / mine, "readings/s", its / mine, goal)


def file(place: Path) -> str:
    return str(place / "meters.db")


def on_postgres(size: int, puts: int) -> Result:
    with running_postgres() as server:
        return pace(lambda _: server.url, size, puts, repetitions=2)


def read_time() -> Result:
    """get and tally of a closed interval, a million meters, over tally alone."""
    bound = np.full(METERS, 2500, np.int32)
    times, alone = [], []
    with folder() as place, open_meters(file(place)) as store:
        ours = Ours(store, METERS // 10, 10)
        for k in range(1, 8):
            ours()
            store.close(ZONE, k * INTERVAL)

            def read(start: int = k * INTERVAL) -> None:
                found = store.get(ZONE, start)
                assert found.present.all()
                tally(found.wh, bound)

            mine, its = best_of_both(read, lambda: tally(WH, bound), repetitions=1)
            times.append(mine)
            alone.append(its)
    return Result(min(times) * 1000, "ms", min(times) / min(alone))


def memory() -> Result:
    """Peak bytes a meter beyond the roster's names: open, fill an interval, read it."""
    names = [str(k) for k in range(METERS)]
    readings = batches(INTERVAL, METERS // 10, 10)
    with folder() as place, open_meters(file(place)) as store:
        store.open_zone("small", ["a"], INTERVAL)
        store.put("small", [0], [0], [INTERVAL], [1])  # what is loaded on first use is not counted
        tracemalloc.start()
        store.open_zone(ZONE, names, INTERVAL)
        for batch in readings:
            store.put(ZONE, *batch)
        store.close(ZONE, INTERVAL)
        store.get(ZONE, INTERVAL)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Result(peak / 2**20, "MiB", peak / METERS, "<= 128")


def flat() -> Result:
    """Peak memory of the last 200 of 1,000 intervals of 1,000 meters, over that of the second 200.

    Each is closed, read, and purged after ten more. The first 200 fill caches.
    """
    names, houses, lengths = [str(k) for k in range(1000)], ORDER[ORDER < 1000], np.full(1000, 900)
    peaks = []
    with folder() as place, open_meters(file(place)) as store:
        store.open_zone(ZONE, names, INTERVAL)
        tracemalloc.start()
        for k in range(1, INTERVALS + 1):
            store.put(ZONE, houses, np.full(1000, k * INTERVAL), lengths, houses)
            store.close(ZONE, k * INTERVAL)
            store.get(ZONE, k * INTERVAL)
            store.purge(ZONE, (k - 10) * INTERVAL)
            if k % (INTERVALS // 5) == 0:
                peaks.append(tracemalloc.get_traced_memory()[1])
                gc.collect()
                tracemalloc.reset_peak()
        tracemalloc.stop()
        assert file_size(place) < 8 * 2**20, "purged readings leave their room to new ones"
    return Result(peaks[-1] / 2**10, "KiB", peaks[-1] / peaks[1], "<= 1.1")


def file_size(place: Path) -> int:
    """Of the store, with its log [bytes]."""
    return sum(path.stat().st_size for path in place.iterdir())


QUESTIONS: dict[str, Question] = {
    "meters_put_1k": lambda: pace(file, *sized((1_000, 200, 5), (10, 5, 1))),
    "meters_put_100k": lambda: pace(file, *sized((100_000, 10, 5), (100, 5, 1))),
    "meters_get": read_time,
    "meters_memory": memory,
    "meters_flat": flat,
}
if postgres_binaries() is not None:
    QUESTIONS |= {
        "meters_postgres_1k": lambda: on_postgres(*sized((1_000, 50), (10, 5))),
        "meters_postgres_100k": lambda: on_postgres(*sized((100_000, 5), (100, 5))),
    }
