"""What footers say must change nothing but the time a batch takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgrid.errors import BatchError
from hushgrid.operate.batch.engines import engine_at, footer_of
from tests.curator.setups import BEGINS, service
from tests.operate.batch.batches import STAMP, aggregated, figures, write

END = BEGINS + 3600
DAY = [(f"meter-{k}", BEGINS + 900 * t, 900, 10 * k + t) for t in range(4) for k in range(3)]


@pytest.mark.parametrize("start", [STAMP, pa.timestamp("us"), pa.timestamp("ns"), pa.int64()])
def test_a_footer_tells_range_and_duration(tmp_path: Path, start: pa.DataType) -> None:
    found = footer_of(write(tmp_path / "a.parquet", DAY, start=start))
    assert (found.first, found.last, found.duration) == (BEGINS, END - 900, 900)
    assert found.lies_within(BEGINS, END)
    assert not found.lies_within(BEGINS + 1, END)
    assert not found.lies_within(BEGINS, END - 900)
    assert found.meets(END - 900, END)
    assert not found.meets(END - 899, END)
    assert not found.meets(0, BEGINS)


def test_row_groups_in_any_order_and_durations_that_differ(tmp_path: Path) -> None:
    rows = [DAY[5], DAY[0], DAY[-1], DAY[4]]
    table = pq.read_table(write(tmp_path / "a.parquet", [*rows, (*DAY[6][:2], 450, 1)]))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    found = footer_of(tmp_path / "a.parquet")
    assert (found.first, found.last, found.duration) == (BEGINS, END - 900, None)


def test_parts_of_a_second_count_for_the_second_they_are_in(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    starts = pa.array([1000 * BEGINS - 1, 1000 * END - 1], pa.timestamp("ms", "UTC"))
    columns = {"meter_id": ["a", "b"], "start_utc": starts, "duration_s": [900] * 2, "wh": [1, 2]}
    pq.write_table(pa.table(columns), path)
    found = footer_of(path)
    assert (found.first, found.last) == (BEGINS - 1, END - 1)
    assert not found.lies_within(BEGINS, END)
    assert found.lies_within(BEGINS - 1, END)


@pytest.mark.parametrize("column", [0, 1, 2, 3])
def test_a_value_that_is_missing_is_looked_for(tmp_path: Path, column: int) -> None:
    rows = [*DAY, tuple(None if k == column else v for k, v in enumerate(DAY[0]))]
    found = footer_of(write(tmp_path / "a.parquet", rows))
    assert found.lies_within(BEGINS, END) == (column in (0, 2))
    assert found.duration == (None if column == 2 else 900)


def test_a_footer_without_statistics_says_nothing(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "a.parquet", DAY))
    pq.write_table(table, tmp_path / "b.parquet", write_statistics=False)
    found = footer_of(tmp_path / "b.parquet")
    assert (found.first, found.last, found.duration, found.full) == (None, None, None, False)
    assert found.meets(0, 1)
    assert not found.lies_within(0, 1 << 40)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(BatchError, match="no sound Parquet file"):
        footer_of(tmp_path / "a.parquet")


@pytest.mark.soak
def test_the_same_integers_with_and_without_statistics(tmp_path: Path) -> None:
    """Days and durations apart and together, in row groups of a few rows."""
    zone = service(40)
    rng = np.random.default_rng(3)
    rows = [
        (meter, BEGINS - 1800 + 900 * t, 900, int(rng.integers(-20, 3000)))
        for t in range(8)
        for meter in zone.meters
        if rng.random() < 0.9
    ]
    halves = [(m, s + 450 * k, 450, wh) for m, s, _, wh in rows[::7] for k in (0, 1)]
    unsaid = [("stranger", BEGINS, 900, 7), (zone.meters[3], BEGINS, 900, None)]
    parts = {
        "early": [row for row in rows if row[1] < BEGINS],
        "day": [row for row in rows if BEGINS <= row[1] < END],
        "across": [row for row in rows if row[1] >= END - 900],
        "halves": halves,
        "unsaid": unsaid,
        "mixed": [(*row[:3], 1) for row in (rows + halves)[::-5]],
    }
    for name, some in parts.items():
        table = pq.read_table(write(tmp_path / "said" / f"{name}.parquet", some))
        for place, said in (("said", True), ("silent", False)):
            (tmp_path / place).mkdir(exist_ok=True)
            pq.write_table(
                table, tmp_path / place / f"{name}.parquet", row_group_size=7, write_statistics=said
            )
    with engine_at("duckdb?threads=2&memory_limit=1GB") as engine:
        for first, end in (
            (BEGINS, END),
            (BEGINS + 900, END + 1800),
            (BEGINS + 86400, END + 86400),
        ):
            said, silent = (
                aggregated(engine, [tmp_path / place], [zone], first, end)
                for place in ("said", "silent")
            )
            assert said._replace(sums={}) == silent._replace(sums={})
            assert {k: figures(s) for k, s in said.sums.items()} == {
                k: figures(s) for k, s in silent.sums.items()
            }
            near = [r for p in parts.values() for r in p if first <= r[1] < end]
            assert said.rows == sum(row[3] is not None for row in near)
