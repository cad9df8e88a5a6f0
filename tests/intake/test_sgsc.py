"""Real readings of 50 homes, where the data lies beside the project.

Smart-Grid Smart-City Customer Trial, New South Wales, CC BY 3.0 AU, (c) Commonwealth of Australia.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from hushgrid.intake.arrow import arrow_batches, parquet_batches
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.readings import Parsed, collect, to_intervals
from hushgrid.intake.text import CANONICAL
from tests.intake.renderings import arrow_of

FILE = Path(__file__).parents[3] / "shared" / "data" / "sgsc" / "readings_2013_50homes.parquet"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="no real readings beside the project")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pq.read_table(FILE)


@pytest.fixture(scope="module")
def parsed() -> Parsed:
    with FILE.open("rb") as file:
        return collect(parquet_batches(file))


def test_totals_as_arrow_computes_them(table: pa.Table, parsed: Parsed) -> None:
    assert (len(parsed.readings), parsed.malformed) == (table.num_rows, 0)
    sums = table.group_by("meter_id").aggregate([("wh", "sum"), ("start_utc", "max")])
    expected = {
        row["meter_id"]: (row["wh_sum"], int(row["start_utc_max"].timestamp()))
        for row in sums.to_pylist()
    }
    kept = parsed.readings
    found = {
        name: (int(kept.wh[kept.code == i].sum()), int(kept.start[kept.code == i].max()))
        for i, name in enumerate(kept.ids)
    }
    assert found == expected


def test_half_hours_to_hours(table: pa.Table, parsed: Parsed) -> None:
    """An hour counts where both of its halves do; the file has no repeated reading."""
    hours = to_intervals(parsed.readings, 3600)
    assert (hours.duplicates, hours.conflicts, hours.malformed) == (0, 0, 0)
    hour = pc.floor_temporal(table["start_utc"], unit="hour")
    groups = table.append_column("hour", hour).group_by(["meter_id", "hour"])
    both = groups.aggregate([("wh", "sum"), ("wh", "count")])
    full = both.filter(pc.equal(both["wh_count"], 2))
    assert len(hours.complete) == full.num_rows
    assert len(hours.incomplete) == both.num_rows - full.num_rows
    assert int(hours.complete.wh.sum()) == pc.sum(full["wh_sum"]).as_py()


def test_other_forms_of_the_same_file(table: pa.Table, parsed: Parsed) -> None:
    part = table.slice(0, 40_000)
    text = ["meter_id,start_utc,duration_s,wh"]
    stamps = pc.strftime(part["start_utc"], "%Y-%m-%d %H:%M:%S%z").to_pylist()
    columns = (
        part["meter_id"].to_pylist(),
        stamps,
        part["duration_s"].to_pylist(),
        part["wh"].to_pylist(),
    )
    text += [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    for found in (
        collect(csv_batches("\n".join(text).encode(), CANONICAL)),
        collect(arrow_batches(arrow_of(part, chunk=7000))),
    ):
        assert found.malformed == 0
        for name in ("start", "duration", "wh"):
            expected = getattr(parsed.readings, name)[:40_000]
            assert np.array_equal(getattr(found.readings, name), expected)
        assert (found.readings.meter == parsed.readings.meter[:40_000]).all()
