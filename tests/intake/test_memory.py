"""Memory stays bounded, however long the line, text, tag or document; 200 MB are streamed."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hushgrid import IntakeError
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.espi import espi_batches
from hushgrid.intake.json import json_batches
from hushgrid.intake.lines import BLOCK
from hushgrid.intake.readings import collect
from hushgrid.intake.text import CANONICAL
from tests.intake.renderings import Row, arrow_of, as_table, entry, espi_meter, espi_type, feed

MIB = 1 << 20
HEAD = b"meter_id,start_utc,duration_s,wh\n"
ROW = b"a,2013-01-01T00:00:00Z,1800,115\n"
OBJECT = b'{"meter_id":"a","start_utc":"2013-01-01T00:00:00Z","duration_s":1800,"wh":115}\n'


def streamed(before: bytes, filler: bytes, after: bytes, megabytes: int = 200) -> Iterator[bytes]:
    yield before
    chunk = filler * (MIB // len(filler))
    for _ in range(megabytes):
        yield chunk
    yield after


def peak(work: Callable[[], object]) -> float:
    """The most memory held at once [MiB]."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def drained(batches: Iterable[object]) -> int:
    return sum(1 for _ in batches)


def test_csv_line_without_an_end() -> None:
    def work() -> None:
        found = collect(csv_batches(streamed(HEAD + ROW, b"x", b"\n" + ROW), CANONICAL))
        assert (len(found.readings), found.malformed) == (2, 1)
        assert found.problems == ("line 3: is longer than 64 KiB",)

    assert peak(work) < 12


def test_ndjson_line_without_an_end() -> None:
    def work() -> None:
        found = collect(json_batches(streamed(OBJECT, b"[", b"\n" + OBJECT)))
        assert (len(found.readings), found.malformed) == (2, 1)

    assert peak(work) < 12


@pytest.mark.parametrize(
    ("before", "filler", "after", "short", "long"),
    [
        (HEAD, ROW, b"", 2, 4),
        pytest.param(HEAD, b"\n", b"", 2, 3, marks=pytest.mark.soak),
        (HEAD, b",", b"", 16, 48),
        pytest.param(HEAD, b"bad row\n", b"", 2, 3, marks=pytest.mark.soak),
        (b"", OBJECT, b"", 2, 6),
        pytest.param(b"[{}", b"," + OBJECT, b"]", 4, 6, marks=pytest.mark.soak),
        (b"[", b" ", b"]", 8, 20),
    ],
    ids=["csv", "empty lines", "commas", "bad lines", "ndjson", "array", "spaces"],
)
def test_a_long_document_costs_no_more_than_a_short_one(
    before: bytes, filler: bytes, after: bytes, short: int, long: int
) -> None:
    """In blocks: from the second one on nothing more is held, not a byte a line."""

    def cost(blocks: int) -> float:
        source = (before, *[filler * (BLOCK // len(filler))] * blocks, after)
        batches = csv_batches(source, CANONICAL) if before == HEAD else json_batches(source)
        return peak(lambda: drained(batches))

    most = cost(long)
    # other threads of the process are counted too; one block alone has 0.25 MiB
    assert most < 1.02 * cost(short) + 0.1
    assert most < 40


@pytest.mark.parametrize("filler", ["x", " ", "x" * 87 + "\N{SUN WITH FACE}"])
@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_long_times_are_not_remembered(form: str, filler: str) -> None:
    """Each is another text, padded to a line of 60 KB."""
    pad = (filler * 60_000).encode()[:60_000].decode(errors="ignore")
    row = (ROW if form == "csv" else OBJECT).decode()

    def source(n: int) -> Iterator[bytes]:
        yield HEAD if form == "csv" else b""
        for i in range(n):
            yield row.replace("00:00Z", f"{i % 60:02}:{i // 60:02}Z{pad}").encode()

    def cost(n: int) -> float:
        batches = csv_batches(source(n), CANONICAL) if form == "csv" else json_batches(source(n))
        return peak(lambda: drained(batches))

    assert cost(120) < 1.2 * cost(40)


POINT = "RetailCustomer/1/UsagePoint/01"
OPEN, CLOSE = feed(espi_type("a", uom=72), espi_meter(POINT, "01", "a"), "|").split(b"|")


def test_xml_text_without_an_end() -> None:
    body = streamed(OPEN + b"<title>", b"x", b"</title>" + CLOSE)
    assert peak(lambda: drained(espi_batches(body))) < 4


@pytest.mark.soak
def test_xml_of_many_entries() -> None:
    reading = (
        "<espi:IntervalReading><espi:timePeriod><espi:start>0</espi:start><espi:duration>9"
        "</espi:duration></espi:timePeriod><espi:value>5</espi:value></espi:IntervalReading>"
    )
    block = entry(
        [f"{POINT}/MeterReading/01"], f"<espi:IntervalBlock>{reading * 20}</espi:IntervalBlock>"
    )
    assert peak(lambda: drained(espi_batches(streamed(OPEN, block.encode(), CLOSE, 4)))) < 12


@pytest.mark.parametrize(
    ("before", "filler"),
    [
        (b'<!DOCTYPE a [<!ENTITY x "', b"x"),
        (OPEN + b'<a b="', b"x"),
        (OPEN + b"<", b"x"),
        (OPEN + b"<!--", b"x"),
        (OPEN + b"<?", b"x"),
        (OPEN, b"<a>"),
    ],
    ids=["entity", "attribute", "name", "comment", "instruction", "depth"],
)
def test_xml_that_is_refused_on_the_way(before: bytes, filler: bytes) -> None:
    def work() -> None:
        with pytest.raises(IntakeError):
            drained(espi_batches(streamed(before, filler, b"")))

    assert peak(work) < 8


def test_laughs_are_refused_before_they_grow() -> None:
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    data = f'<!DOCTYPE a [<!ENTITY l0 "ha">{laughs}]><a>&l11;</a>'.encode()

    def work() -> None:
        with pytest.raises(IntakeError, match="document type"):
            drained(espi_batches(data))

    assert peak(work) < 1


def test_an_element_without_an_end_is_refused_on_the_way() -> None:
    def never_ending() -> Iterator[bytes]:
        yield from streamed(b'["', b"x", b"", 4)
        raise AssertionError("read on")

    def work() -> None:
        with pytest.raises(IntakeError, match="broken"):
            collect(json_batches(never_ending()))

    assert peak(work) < 12


MEASURED = """
import sys, pyarrow as pa
from hushgrid import IntakeError
from hushgrid.intake.arrow import arrow_batches
from hushgrid.intake.readings import collect
data = open(sys.argv[1], "rb").read()
try:
    found = collect(arrow_batches(data))
    text = f"{len(found.readings)} {found.malformed}"
except IntakeError as error:
    text = str(error)
print(pa.default_memory_pool().max_memory(), text)
"""


def arrow_peak(data: bytes, path: Path) -> tuple[float, str]:
    """The most memory that pyarrow holds at once [MiB], in a process of its own; what was read."""
    file = path / "data"
    file.write_bytes(data)
    command = [sys.executable, "-c", MEASURED, str(file)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    size, _, text = found.strip().partition(" ")
    return int(size) / MIB, text


def rows_of(n: int) -> list[Row]:
    return [("a", 900 * i, 900, i % 7) for i in range(n)]


LONG = "x" * MIB


def test_a_dictionary_with_one_long_text_for_many_rows(tmp_path: Path) -> None:
    """10 GB when each row has its own text."""
    n = 20_000
    texts = pa.array(["a", LONG])
    coded = pa.DictionaryArray.from_arrays(pa.array(np.arange(n, dtype=np.int32) % 2), texts)
    table = as_table(rows_of(n)).set_column(0, "meter_id", coded)
    size, text = arrow_peak(arrow_of(table, chunk=n), tmp_path)
    assert text == f"{n // 2} {n // 2}"
    assert size < 16


def test_views_of_one_text(tmp_path: Path) -> None:
    """A message of 64 MiB could hold a thousand times as much."""
    text = pa.py_buffer(LONG.encode())
    views = np.zeros((100, 4), "<i4")
    views[:, 0], views[:, 1] = MIB, int.from_bytes(b"xxxx", "little")
    column = pa.Array.from_buffers(pa.string_view(), 100, [None, pa.py_buffer(views), text])
    data = arrow_of(as_table(rows_of(100)).set_column(0, "meter_id", column), chunk=100)
    assert len(data) < 2 * MIB
    size, why = arrow_peak(data, tmp_path)
    assert "text beyond 64 MiB" in why
    assert size < 16


def test_a_compressed_buffer_that_claims_2_gib_is_refused_unread(tmp_path: Path) -> None:
    n = 5_000
    data = arrow_of(as_table(rows_of(n)), chunk=n, compression="zstd")
    lengths = (8 * n).to_bytes(8, "little")  # before the starts and before the Wh
    assert data.count(lengths) == 2
    broken = data.replace(lengths, (2**31).to_bytes(8, "little"))
    size, why = arrow_peak(broken, tmp_path)
    assert "compressed" in why
    assert size < 1
