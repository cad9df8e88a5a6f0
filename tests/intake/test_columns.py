"""Arrow columns of every type and layout, against the same rows as records; hostile buffers."""

from __future__ import annotations

import contextlib
import io
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid.intake.arrow import Table, arrow_batches
from hushgrid.intake.json import parse_records
from hushgrid.intake.readings import END, MAX_DURATION, MAX_WH, collect
from hushgrid.intake.text import CANONICAL
from tests.examples import examples
from tests.intake.renderings import as_arrow, as_table, iso

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


def records_of(rows: list[Any], layout: dict[str, Any]) -> list[dict[str, Any]]:
    """The same rows as objects."""
    seconds = [start for _, start, _, _ in rows]
    fraction = [""] * len(rows)
    if rows and layout["odd_tick"] and seconds[-1] is not None:
        seconds[-1] += layout["unit"] == "s"
        fraction[-1] = "" if layout["unit"] == "s" else ".5"
    starts = [
        None if second is None else f"{iso(second)[:-1]}{part}Z"
        for second, part in zip(seconds, fraction, strict=True)
    ]
    return [
        {"meter_id": meter, "start_utc": start, "duration_s": duration, "wh": wh}
        for (meter, _, duration, wh), start in zip(rows, starts, strict=True)
    ]


@settings(max_examples=examples(300), deadline=None)
@given(ROWS, LAYOUT, st.integers(1, 13))
def test_streams_of_any_types(rows: Any, layout: Any, chunk: int) -> None:
    found = collect(arrow_batches(stream_of(table_of(rows, layout), chunk)))
    same = parse_records(records_of(rows, layout))
    assert list(found.readings.rows()) == list(same.readings.rows())
    assert found.malformed == same.malformed
    assert found.problems == tuple(text.replace("record", "row") for text in same.problems)
    assert len(set(found.readings.ids)) == len(found.readings.ids)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=20), LAYOUT, st.data())
def test_slices(rows: Any, layout: Any, data: Any) -> None:
    """Columns that begin inside their buffers."""
    layout = {**layout, "odd_tick": False}
    (whole,) = table_of(rows, layout).combine_chunks().to_batches()
    begin = data.draw(st.integers(0, len(rows)))
    part = whole.slice(begin, data.draw(st.integers(0, len(rows))))
    found = Table(part.schema, CANONICAL).parsed(part)
    assert list(found.readings.rows()) == rows[begin : begin + part.num_rows]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(0, 2000),
    st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([b"\xff" * 4, b"\x00" * 8])),
    st.sampled_from(["string", "large_string", "string_view", "dictionary"]),
)
def test_hostile_bytes_anywhere(at: int, wrong: bytes, meter: str) -> None:
    """Offsets, lengths, text, numbers, metadata: whatever is there, readings or one error."""
    layout = {"meter": meter, "unit": "s", "zone": "UTC", "odd_tick": False}
    rows = [("meter-1", 0, 900, 7), ("b", 900, 900, -7), ("meter-1", 1800, 900, 8)]
    data = stream_of(table_of(rows, {**layout, "duration": "int32", "wh": "int64"}), 100)
    at %= len(data)
    with contextlib.suppress(IntakeError):
        found = collect(arrow_batches(data[:at] + wrong + data[at + len(wrong) :]))
        assert len(found.readings) + found.malformed <= len(data)
        list(found.readings.rows())


@pytest.mark.parametrize("offsets", [(0, 4, 2**30), (-4, 4, 8), (4, 0, 8), (0, 9, 8), (0, 8, 9)])
def test_hostile_offsets(offsets: tuple[int, ...]) -> None:
    good = as_arrow([("abcd", 0, 900, 1), ("efgh", 900, 900, 1)])
    at = good.rindex(struct.pack("<iii", 0, 4, 8))
    broken = good[:at] + struct.pack("<iii", *offsets) + good[at + 12 :]
    with pytest.raises(IntakeError, match="ArrowInvalid"):
        list(arrow_batches(broken))


@pytest.mark.parametrize("name", ["duration_s", "wh"])
def test_numbers_beyond_64_bits_with_a_sign(name: str) -> None:
    """Read as signed ones they would be small and negative, or just 900."""
    table = as_table([("a", 0, 900, 1), ("b", 900, 900, 2)])
    column = pa.array([2**64 - 900, 900], pa.uint64())
    table = table.set_column(table.schema.get_field_index(name), name, column)
    found = collect(arrow_batches(stream_of(table, 2)))
    assert found.malformed == 1
    assert found.readings.ids == ("b",)


def test_rows_are_counted_over_batches() -> None:
    table = pa.table(
        {
            "meter_id": ["a"] * 4,
            "start_utc": pa.array([0, 900, 1800, 2700], pa.timestamp("s", "UTC")),
            "duration_s": pa.array([900] * 4),
            "wh": pa.array([1, 2, 3, None]),
        }
    )
    *before, last = arrow_batches(stream_of(table, 2), CANONICAL)
    assert [part.malformed for part in before] == [0, 0]
    assert last.problems == ("row 4: value is missing",)
