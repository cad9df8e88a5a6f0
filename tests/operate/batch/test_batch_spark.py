"""The same integers on Spark: a cluster of two executors on this machine, one for all tests."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hushgrid.operate.batch.engines import Engine, engine_at
from tests.curator.setups import BEGINS, service, two_registers
from tests.operate.batch.batches import aggregated, figures, mixed, rows_of, write

# compiling and replanning take longer than so few rows
QUICK = "spark.sql.codegen.wholeStage=false&spark.sql.adaptive.enabled=false"
# virtual machines that live so briefly earn back neither C2 nor parallel collection
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLUSTER = (
    f"spark:local-cluster[2,1,1024]?spark.executor.memory=1g&spark.sql.shuffle.partitions=2&{QUICK}"
)


@pytest.fixture(scope="module")
def spark() -> Iterator[Engine]:
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: no Spark")
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", BRIEF)  # of the driver, and of executors it starts
        with engine_at(CLUSTER) as engine:
            yield engine


@pytest.mark.filterwarnings("ignore")  # of Spark's own
def test_the_same_integers_on_two_executors(tmp_path: Path, spark: Engine) -> None:
    """Shuffled, repeated, split over files of two schemas, some received late: as on DuckDB."""
    zones = [mixed(), two_registers(service(70, "oak", export=400))]
    rows = [(*row, row[1] + 60) for zone in zones for row in rows_of(zone, 4)]
    rows += [(m, BEGINS + 900, 900, 5, BEGINS + 5000) for m in zones[1].meters[:9]]  # late
    rows += [(*row[:3], row[3] + 1, row[4] + 7) for row in rows[::5]]  # another value, later
    rows.append(("stranger", BEGINS, 900, 5, BEGINS))
    write(tmp_path / "one" / "a.parquet", rows)
    again = rows + rows[::3]
    random.Random(2).shuffle(again)
    for k in range(3):
        write(tmp_path / "many" / f"day={k}" / "a.parquet", again[k::3], wide=k != 1)
    asked = (zones, BEGINS, BEGINS + 3600)
    with engine_at("duckdb?threads=2&memory_limit=1GB") as duckdb:
        one = aggregated(duckdb, [tmp_path / "one"], *asked)
        many = aggregated(duckdb, [tmp_path / "many"], *asked)
    spread = aggregated(spark, [tmp_path / "many"], *asked)
    assert spread._replace(sums={}) == many._replace(sums={})
    assert {k: figures(s) for k, s in spread.sums.items()} == {
        k: figures(s) for k, s in many.sums.items()
    }
    late = sum(row[4] > row[1] // 900 * 900 + 900 for row in again)
    assert sum(s.late for s in many.sums.values()) == late > 0
    assert many.unknown == sum(row[0] == "stranger" for row in again)
    assert 0 < one.by_house <= many.by_house
    for key, sums in one.sums.items():
        first, second = figures(sums), figures(many.sums[key])
        assert all(first[n] == second[n] for n in ("load", "missing", "clamped"))
