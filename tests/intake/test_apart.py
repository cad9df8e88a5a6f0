"""Parquet of others in a process of its own: what damages or fills it ends that process alone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgrid import IntakeError
from hushgrid.files.apart import batches_apart
from hushgrid.files.readings import batches_of_file
from hushgrid.intake.arrow import parquet_batches
from hushgrid.intake.readings import Parsed, Readings, collect
from hushgrid.intake.text import CANONICAL
from tests.intake.hostile import CLAIM, HISTOGRAM, NO_ENCODING, ROWS
from tests.intake.renderings import as_parquet, as_table

MIB = 1 << 20


def apart(source: bytes | Path, parse: Any = parquet_batches) -> Parsed:
    return collect(batches_apart(parse, source, CANONICAL))


def aborts(source: Any, _: Any) -> Iterator[Parsed]:
    yield from parquet_batches(source)
    os.abort()  # as C++ does where no one catches


def takes_4_gib(_: Any, __: Any) -> Iterator[Parsed]:
    assert len(bytearray(4 << 30))
    return iter(())


def endless(_: Any, __: Any) -> Iterator[Parsed]:
    return repeat(Parsed(Readings.empty(), 0, ()))


def test_the_same_readings(tmp_path: Path) -> None:
    data, file = as_parquet(ROWS), tmp_path / "a.parquet"
    file.write_bytes(data)
    for found in (apart(data), apart(file), collect(parquet_batches(data))):
        assert list(found.readings.rows()) == ROWS


@pytest.mark.parametrize("parse", [aborts, takes_4_gib])
def test_what_ends_the_process_is_one_sentence(parse: Any) -> None:
    with pytest.raises(IntakeError, match=r"^input is damaged, or takes more than 1 GiB.*\.$"):
        apart(as_parquet(ROWS), parse)


def test_a_reader_that_stops_ends_the_process() -> None:
    batches = batches_apart(endless, b"", CANONICAL)
    assert next(batches).malformed == 0
    batches.close()  # type: ignore[attr-defined]
    with pytest.raises(StopIteration):
        next(batches)


def test_errors_of_the_parser_and_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(IntakeError, match="not a sound Parquet file"):
        apart(b"PAR1" * 4)
    with pytest.raises(FileNotFoundError):
        list(batches_of_file(tmp_path / "no.parquet", CANONICAL, print))


def test_one_long_text_for_many_rows() -> None:
    """200 KB that are 10 GB when each row has its own text."""
    n = 20_000
    texts = pa.array(["a", "x" * MIB])
    coded = pa.DictionaryArray.from_arrays(pa.array(np.arange(n, dtype=np.int32) % 2), texts)
    table = as_table([("a", 900 * i, 900, i % 7) for i in range(n)])
    out = io.BytesIO()
    pq.write_table(
        table.set_column(0, "meter_id", coded), out, store_schema=False, compression="zstd"
    )
    with pytest.raises(IntakeError):
        apart(out.getvalue())


MEASURED = """
import re, sys
from hushgrid import IntakeError
from hushgrid.intake.arrow import parquet_batches
from hushgrid.intake.readings import collect
data = bytes.fromhex(sys.argv[1])
try:
    collect(parquet_batches(data))
except IntakeError as error:
    most = re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
    print(int(most[1]) >> 10, error)
"""


@pytest.mark.parametrize(
    "data", [HISTOGRAM, NO_ENCODING, CLAIM], ids=["histogram", "encoding", "claim"]
)
def test_damage_is_one_sentence_without_a_process_of_its_own(data: bytes) -> None:
    """A footer whose histogram has the wrong length ended the process, and 30 bytes took 400 MB."""
    assert data != as_parquet(ROWS)
    command = [sys.executable, "-c", MEASURED, data.hex()]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    size, _, text = found.partition(" ")
    assert text.startswith("input is not a sound Parquet file")
    assert int(size) < 300
