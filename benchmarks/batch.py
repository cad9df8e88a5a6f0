"""Days of readings by an engine: how near to SQL written by hand, in how much memory, how linear?

    python -m benchmarks.batch ours|hand|spark1|spark2 FOLDER, or leakage

A process of its own for each side, so that its memory is its own. One zone of 64 kinds of houses
and a day of 96 intervals, every meter in random order, in eight Parquet files. Both sides run on
two threads. The peer is the same join, clamp and sum by zone and interval in DuckDB's SQL, without
a look for repeated readings.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.measure import Question, Result, apart, peak_mib, sized
from benchmarks.meters import folder
from benchmarks.running import BEGINS, INTERVAL, service
from hushgrid.files.deployment import ZoneService
from hushgrid.operate.batch._expression import roster_of
from hushgrid.operate.batch.engines import MEMORY, engine_at, open_readings
from hushgrid.operate.batch.run import Aggregator

METERS, FEW = sized((1_000_000, 100_000), (200, 100))
STEPS, FILES, TURNS = 96, 8, sized(3, 1)
DUCKDB = "duckdb?threads=2"
HAND = """
SELECT zone, opens, sum(least(greatest(wh, 0), bound)) AS load, count(*) AS present
FROM (SELECT meter_id, epoch_us(start_utc) // 900000000 * 900 AS opens, wh
      FROM read_parquet(?)
      WHERE duration_s = 900 AND start_utc >= to_timestamp(?) AND start_utc < to_timestamp(?))
JOIN roster USING (meter_id) GROUP BY zone, opens ORDER BY zone, opens
"""


def write_day(place: Path, meters: int) -> None:
    """One row group for each interval and 125,000 meters: ids stay in small dictionaries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    names = pa.array([f"meter-{k:07d}" for k in range(meters)])
    stamp = pa.timestamp("ms", "UTC")
    for file in range(FILES):
        writer = None
        for step in range(file * STEPS // FILES, (file + 1) * STEPS // FILES):
            for some in np.array_split(np.arange(meters), max(meters // 125_000, 1)):
                mixed, n = pa.array(rng.permutation(some)), len(some)
                table = pa.table(
                    {
                        "meter_id": names.take(mixed),
                        "start_utc": pa.array(np.full(n, 1000 * (BEGINS + INTERVAL * step))).cast(
                            stamp
                        ),
                        "duration_s": pa.array(np.full(n, INTERVAL, np.int32)),
                        "wh": pa.array(rng.integers(-50, 4000, n, dtype=np.int32)),
                    }
                )
                writer = writer or pq.ParquetWriter(place / f"{file}.parquet", table.schema)
                writer.write_table(table)
        assert writer is not None
        writer.close()


def ours(place: Path, url: str = DUCKDB) -> dict[str, float]:
    """The aggregation of the batch."""
    zone = _zone(place)
    roster = roster_of([zone])
    with engine_at(url) as engine:
        readings = open_readings(engine, [str(place)])
        aggregator = Aggregator(engine, readings, roster)
        begin = time.perf_counter(), time.process_time()
        made = aggregator.over(BEGINS, BEGINS + STEPS * INTERVAL)
        found = _found(begin, [sums.load for sums in made.sums.values()])
    assert made.by_house == 0
    assert made.rows == STEPS * len(zone.meters)
    return found


def hand(place: Path) -> dict[str, float]:
    """The peer."""
    import duckdb

    roster = roster_of([_zone(place)]).houses.select(["meter_id", "zone", "bound"])
    base = duckdb.connect(config={"threads": 2, "memory_limit": MEMORY})
    base.execute("SET preserve_insertion_order = false")
    base.register("given", roster)
    base.execute("CREATE TABLE roster AS SELECT * FROM given")
    begin = time.perf_counter(), time.process_time()
    end = BEGINS + STEPS * INTERVAL
    rows = base.execute(HAND, [str(place / "*.parquet"), BEGINS, end]).fetchall()
    return _found(begin, [load for _, _, load, _ in rows])


def _zone(place: Path) -> ZoneService:
    return service(int((place / "meters").read_text()))


def _found(begin: tuple[float, float], loads: list[int]) -> dict[str, float]:
    """`cpu` [s] is what tells on a busy machine."""
    seconds, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
    assert len(loads) == STEPS
    return {"seconds": seconds, "cpu": cpu, "peak": peak_mib(), "load": sum(loads)}


def leakage() -> dict[str, float]:
    """A million houses, no two chains alike, 96 steps, losses of 64 classes."""
    from benchmarks import zones
    from hushgrid import Calendar, OccupancyModel
    from hushgrid.accounting.temporal import worst_leakage

    rng = np.random.default_rng(1)
    stay = rng.uniform(0.6, 1.0, (4, METERS, 2, 1))
    rows = np.concatenate([stay, 1 - stay], axis=3)
    rows[:, :, 1] = rows[:, :, 1, ::-1].copy()
    home = rng.uniform(0.1, 0.9, (METERS, 1))
    periods = Calendar(np.repeat(np.arange(4), 24))
    theta = OccupancyModel.factored(np.concatenate([1 - home, home], 1), rows, calendar=periods)
    e = rng.uniform(0.05, 0.5, (STEPS, zones.KINDS))
    begin = time.perf_counter()
    found = worst_leakage(theta, e, zones.kinds(METERS, 1))
    seconds = time.perf_counter() - begin
    assert found.total > e.max()
    return {"seconds": seconds, "peak": peak_mib()}


@cache
def _day(meters: int, *sides: str) -> dict[str, dict[str, float]]:
    """A day of readings written once, and each side run on it; the best of three turns."""
    with folder() as place:
        (place / "meters").write_text(str(meters))
        write_day(place, meters)
        turns = [{side: _asked(side, place) for side in sides} for _ in range(TURNS)]
    found = {side: min((turn[side] for turn in turns), key=_seconds) for side in sides}
    assert len({one["load"] for one in found.values()}) == 1  # the same integers
    return found


def _seconds(found: dict[str, float]) -> float:
    return found["seconds"]


def _run(side: str, place: Path) -> dict[str, float]:
    if side in ("ours", "hand"):
        return ours(place) if side == "ours" else hand(place)
    many = side.removeprefix("spark")
    return ours(place, f"spark:local-cluster[{many},1,2048]?spark.executor.memory=2g")


def _asked(side: str, place: Path) -> dict[str, float]:
    return apart(lambda: _run(side, place), "benchmarks.batch", side, str(place))


def seconds() -> Result:
    """96 million readings, over the SQL by hand."""
    found = _day(METERS, "ours", "hand")
    mine = found["ours"]["seconds"]
    return Result(mine, "s", mine / found["hand"]["seconds"], "<= 1.15")


def peak() -> Result:
    found = _day(METERS, "ours", "hand")["ours"]["peak"]
    return Result(found, "MiB", found / 4096, "<= 1")


def linear() -> Result:
    """A reading of 96 million over one of 9.6 million."""
    many, few = _day(METERS, "ours", "hand")["ours"], _day(FEW, "ours", "hand")["ours"]
    ratio = many["seconds"] / METERS / (few["seconds"] / FEW)
    cost = 1e9 * many["cpu"] / METERS / STEPS
    return Result(cost, "ns of processor time a reading", ratio, "<= 1.15")


def on_spark(executors: int) -> Result:
    """9.6 million readings on executors of one core; the ratio is to DuckDB on two."""
    found = _day(FEW, "ours", f"spark{executors}")
    mine = found[f"spark{executors}"]["seconds"]
    return Result(mine, "s", mine / found["ours"]["seconds"])


@cache
def _leakage() -> dict[str, float]:
    return apart(leakage, "benchmarks.batch", "leakage")


def leakage_peak() -> Result:
    found = _leakage()["peak"]
    return Result(found, "MiB", found / 4096, "<= 1")


def leakage_seconds() -> Result:
    found = _leakage()["seconds"]
    return Result(found, "s", found)


QUESTIONS: dict[str, Question] = {
    "batch_time": seconds,
    "batch_memory": peak,
    "batch_linear": linear,
    "leakage_million_memory": leakage_peak,
    "leakage_million_time": leakage_seconds,
}
if shutil.which("java") is not None:
    QUESTIONS |= {"batch_spark_1": lambda: on_spark(1), "batch_spark_2": lambda: on_spark(2)}

if __name__ == "__main__":
    side, *rest = sys.argv[1:]
    print(json.dumps(_run(side, Path(rest[0])) if rest else leakage()))
