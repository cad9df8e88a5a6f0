"""Plain Arrow batches are read where they lie: nobody may notice but by the clock."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid._kernels.ndjson import bounded_plain
from hushgrid.intake import tables as by_columns
from hushgrid.intake.arrow import arrow_batches
from hushgrid.intake.readings import END, MAX_DURATION, MAX_WH, Names, Parsed, clean_meter
from hushgrid.intake.tables import Table, plain, readings
from hushgrid.intake.text import CANONICAL, ColumnMapping
from tests.intake.renderings import as_arrow, as_table

LONDON = ColumnMapping(
    meter="meter_id",
    time="start_utc",
    duration="duration_s",
    value="wh",
    unit="wh",
    time_zone="Europe/London",
)
AT_END = ColumnMapping(
    meter="meter_id", time="start_utc", duration="duration_s", value="wh", unit="wh", marks="end"
)
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

PLAIN_IDS = st.sampled_from(
    ["a", "b", "meter-0000001", "meter-0000002", "meter-1000001", "12345678", "a b", "x" * 128]
)
ODD_IDS = st.sampled_from([" a", "a ", "", "é", "a\x7f", "a\tb", "x" * 129, "\x00", None])
IDS = st.one_of(PLAIN_IDS, PLAIN_IDS, PLAIN_IDS, ODD_IDS)
SECONDS = st.one_of(
    st.just(1356998400), st.integers(0, END - 1), st.sampled_from([-1, 0, END - 1, END, None])
)
DURATIONS = st.one_of(st.just(900), st.sampled_from([0, 1, 900, MAX_DURATION, MAX_DURATION + 1]))
AMOUNTS = st.one_of(
    st.integers(-5, 2500), st.sampled_from([MAX_WH, MAX_WH + 1, -MAX_WH, -MAX_WH - 1, None])
)
GOOD = st.tuples(PLAIN_IDS, st.integers(0, 9).map(lambda k: 900 * k), st.just(900), st.just(7))
ANY = st.tuples(IDS, SECONDS, DURATIONS, AMOUNTS)
ROWS = st.one_of(st.lists(GOOD, max_size=12), st.lists(st.one_of(GOOD, GOOD, GOOD, ANY)))
INTEGERS = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"]
LAYOUT = st.fixed_dictionaries(
    {
        "meter": st.sampled_from(["string", "large_string", "string_view", "dictionary"]),
        "unit": st.sampled_from([*UNITS]),
        "zone": st.sampled_from([None, "UTC", "Europe/London"]),
        "odd_tick": st.booleans(),
        "duration": st.sampled_from([*INTEGERS, "float64", "duration"]),
        "wh": st.sampled_from([*INTEGERS, "float64", "float32"]),
    }
)


def table_of(rows: list[Any], layout: dict[str, Any]) -> pa.Table:
    """The rows in columns of the types of the layout; assumes that they fit."""
    meter, start, duration, wh = zip(*rows, strict=True) if rows else ((), (), (), ())
    text = {"large_string": pa.large_string(), "string_view": pa.string_view()}
    scale = UNITS[layout["unit"]]
    ticks = [None if s is None else s * scale for s in start]
    if layout["odd_tick"] and ticks and ticks[-1] is not None:
        ticks[-1] += 1
    seconds = pa.duration("ms") if layout["duration"] == "duration" else layout["duration"]
    lasting = [d * 1000 for d in duration] if layout["duration"] == "duration" else duration
    try:
        ids = pa.array(meter, text.get(layout["meter"], pa.string()))
        return pa.table(
            {
                "meter_id": ids.dictionary_encode() if layout["meter"] == "dictionary" else ids,
                "start_utc": pa.array(ticks, pa.timestamp(layout["unit"], layout["zone"])),
                "duration_s": pa.array(lasting, seconds),
                "wh": pa.array(wh, layout["wh"]),
            }
        )
    except (pa.ArrowException, OverflowError):
        assume(False)
        raise


def stream_of(table: pa.Table, chunk: int) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([], table.schema))
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def seen(parsed: Parsed) -> Any:
    """All that a caller can see of a batch."""
    found = parsed.readings
    kinds = [column.dtype for column in (found.code, found.start, found.duration, found.wh)]
    assert not found.wh.flags.writeable
    return list(found.rows()), found.ids, kinds, parsed.malformed, parsed.problems


def answer(data: bytes, mapping: ColumnMapping) -> Any:
    answers: list[Any] = []
    try:
        answers += map(seen, arrow_batches(data, mapping))
    except IntakeError as error:
        answers.append(str(error))
    return answers


def slow_answer(data: bytes, mapping: ColumnMapping) -> Any:
    """By the reader that knows every rule."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(by_columns, "readings", lambda *_: None)
        return answer(data, mapping)


@settings(max_examples=300, deadline=None)
@given(ROWS, LAYOUT, st.integers(1, 13), st.sampled_from([CANONICAL, LONDON, AT_END]))
def test_streams_of_any_types(rows: Any, layout: Any, chunk: int, mapping: ColumnMapping) -> None:
    data = stream_of(table_of(rows, layout), chunk)
    assert answer(data, mapping) == slow_answer(data, mapping)


@settings(max_examples=100, deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=20), LAYOUT, st.data())
def test_slices(rows: Any, layout: Any, data: Any) -> None:
    """Columns that begin inside their buffers."""
    (whole,) = table_of(rows, layout).combine_chunks().to_batches()
    begin = data.draw(st.integers(0, len(rows)))
    part = whole.slice(begin, data.draw(st.integers(0, len(rows))))
    found, slow = Table(part.schema, CANONICAL), Table(part.schema, CANONICAL)
    assert seen(found.parsed(part))[0] == seen(slow._checked(part))[0]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 2000),
    st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([b"\xff" * 4, b"\x00" * 8])),
    st.sampled_from(["string", "large_string"]),
)
def test_hostile_bytes_anywhere(at: int, wrong: bytes, meter: str) -> None:
    """Offsets, lengths, text, numbers, metadata: whatever stands there, both answer alike."""
    layout = {"meter": meter, "unit": "s", "zone": "UTC", "odd_tick": False}
    rows = [("meter-1", 0, 900, 7), ("b", 900, 900, -7), ("meter-1", 1800, 900, 8)]
    data = stream_of(table_of(rows, {**layout, "duration": "int32", "wh": "int64"}), 100)
    at %= len(data)
    broken = data[:at] + wrong + data[at + len(wrong) :]
    assert answer(broken, CANONICAL) == slow_answer(broken, CANONICAL)


@pytest.mark.parametrize("offsets", [(0, 4, 2**30), (-4, 4, 8), (4, 0, 8), (0, 9, 8), (0, 8, 9)])
def test_hostile_offsets(offsets: tuple[int, ...]) -> None:
    good = as_arrow([("abcd", 0, 900, 1), ("efgh", 900, 900, 1)])
    at = good.rindex(struct.pack("<iii", 0, 4, 8))
    broken = good[:at] + struct.pack("<iii", *offsets) + good[at + 12 :]
    (refused,) = answer(broken, CANONICAL)
    assert "ArrowInvalid" in refused


def test_what_is_plain_takes_the_quick_way() -> None:
    """Else the tests above would compare one way with itself."""
    (batch,) = as_table([("b", 0, 900, 1), ("a", 900, 900, 2)] * 2).to_batches()
    how = plain(batch.schema, {name: name for name in batch.schema.names}, CANONICAL)
    assert how is not None
    found = readings(batch, how)
    assert found is not None
    assert list(found.rows()) == [("b", 0, 900, 1), ("a", 900, 900, 2)] * 2
    assert found.ids == ("b", "a")


@pytest.mark.parametrize("name", ["duration_s", "wh"])
def test_numbers_beyond_64_bits_with_a_sign(name: str) -> None:
    """Read as signed ones they would be small and negative, or just 900."""
    table = as_table([("a", 0, 900, 1), ("b", 900, 900, 2)])
    column = pa.array([2**64 - 900, 900], pa.uint64())
    table = table.set_column(table.schema.get_field_index(name), name, column)
    (_, only) = answer(stream_of(table, 2), CANONICAL)
    assert only[3] == 1
    assert [row[0] for row in only[0]] == ["b"]


def test_rows_are_counted_over_both_ways() -> None:
    table = pa.table(
        {
            "meter_id": ["a"] * 4,
            "start_utc": pa.array([0, 900, 1800, 2700], pa.timestamp("s", "UTC")),
            "duration_s": pa.array([900] * 4),
            "wh": pa.array([1, 2, 3, None]),
        }
    )
    *quick, last = arrow_batches(stream_of(table, 2), CANONICAL)
    assert [part.malformed for part in quick] == [0, 0]
    assert last.problems == ("row 4: value is missing",)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(st.characters(max_codepoint=300), max_size=20), min_size=1, max_size=20),
    st.sampled_from(["<i4", "<i8"]),
    st.integers(0, 5),
)
def test_texts_in_a_buffer(texts: list[str], kind: str, before: int) -> None:
    raw = [text.encode() for text in texts]
    data = np.frombuffer(b"#" * before + b"".join(raw), np.uint8)
    offsets = (before + np.cumsum([0, *map(len, raw)])).astype(kind)
    bounds = np.empty(len(texts) + 1, np.int64)
    good = all(text.isascii() and clean_meter(text) == text and len(text) <= 12 for text in texts)
    assert bounded_plain(data, offsets, 12, bounds) == good
    if good:
        assert Names(data, bounds[:-1], bounds[1:]).texts() == tuple(texts)
        assert bounds.tolist() == offsets.tolist()
