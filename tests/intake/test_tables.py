"""Parquet and Arrow: types, nulls and units; hostile streams."""

from __future__ import annotations

import contextlib
import io
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushgrid import ExtraError, IntakeError
from hushgrid.files.readings import batches_of_file
from hushgrid.intake.arrow import _is_compressed, arrow_batches, parquet_batches
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.lines import BLOCK
from hushgrid.intake.readings import Parsed, collect
from hushgrid.intake.text import LOW_CARBON_LONDON, ColumnMapping
from tests.examples import examples
from tests.intake.renderings import arrow_of, as_arrow, as_parquet, as_table

JANUARY = 1356998400  # 2013-01-01T00:00:00Z
ROWS = [("a", JANUARY, 1800, 115), ("b", JANUARY + 1800, 900, -3)]


def parquet_of(table: pa.Table, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **how)
    return out.getvalue()


def both(table: pa.Table, *mapping: ColumnMapping) -> Parsed:
    """Parquet and Arrow must answer alike."""
    one = collect(parquet_batches(parquet_of(table), *mapping))
    two = collect(arrow_batches(arrow_of(table), *mapping))
    assert list(one.readings.rows()) == list(two.readings.rows())
    assert one.problems == two.problems
    return one


def with_column(name: str, column: Any) -> pa.Table:
    table = as_table(ROWS)
    return table.set_column(table.schema.get_field_index(name), name, column)


START = [datetime(2013, 1, 1), datetime(2013, 1, 1, 0, 30)]
TYPES = [
    ("meter_id", pa.array(["a", "b"], pa.large_string())),
    ("meter_id", pa.array(["a", "b"], pa.string_view())),
    ("meter_id", pa.array(["a", "b"]).dictionary_encode()),
    ("start_utc", pa.array(START, pa.timestamp("s"))),
    ("start_utc", pa.array(START, pa.timestamp("us"))),
    ("start_utc", pa.array(START, pa.timestamp("ns", "UTC"))),
    ("start_utc", pa.array(START, pa.timestamp("us", "America/New_York"))),
    ("start_utc", pa.array(["2013-01-01T00:00:00Z", "2013-01-01 01:30+01"])),
    ("duration_s", pa.array([1800, 900], pa.int16())),
    ("duration_s", pa.array([1800, 900], pa.uint64())),
    ("duration_s", pa.array([1800.0, 900.0])),
    ("duration_s", pa.array([timedelta(seconds=1800), timedelta(seconds=900)], pa.duration("us"))),
    ("wh", pa.array([115, -3], pa.int16())),
    ("wh", pa.array([115.0, -3.0], pa.float32())),
    ("wh", pa.array([Decimal("115.00"), Decimal("-3.00")])),
    ("wh", pa.array(["115", "-3.0"])),
]


@pytest.mark.parametrize(("name", "column"), TYPES, ids=[f"{n}-{c.type}" for n, c in TYPES])
def test_types_that_hold_a_reading(name: str, column: Any) -> None:
    found = both(with_column(name, column))
    assert list(found.readings.rows()) == ROWS
    assert found.malformed == 0


FAULTS = [
    ("meter_id", pa.array([None, "b"]), "meter id"),
    ("meter_id", pa.array([" ", "b"]), "meter id"),
    ("meter_id", pa.array([None, "b"]).dictionary_encode(), "meter id"),
    ("start_utc", pa.array([None, START[1]], pa.timestamp("ms")), "time is missing"),
    ("start_utc", pa.array([-1, 1357000200], pa.timestamp("s")), "outside the years"),
    ("start_utc", pa.array([1, 1357000200000], pa.timestamp("ms")), "whole second"),
    ("start_utc", pa.array([None, "2013-01-01T00:30:00Z"]), "time is missing"),
    ("duration_s", pa.array([None, 900]), "duration"),
    ("duration_s", pa.array([0, 900]), "duration"),
    ("duration_s", pa.array([2**64 - 1, 900], pa.uint64()), "duration"),
    ("duration_s", pa.array([0.5, 900.0]), "duration"),
    ("duration_s", pa.array([float("nan"), 900.0]), "duration"),
    ("duration_s", pa.array([1500, 900_000], pa.duration("ms")), "duration"),
    ("wh", pa.array([None, -3]), "value is missing"),
    ("wh", pa.array([None, -3.0]), "value is missing"),
    ("wh", pa.array([float("nan"), -3.0]), "not a number"),
    ("wh", pa.array([float("-inf"), -3.0]), "not a number"),
    ("wh", pa.array([1e300, -3.0]), "beyond 10^12"),
    ("wh", pa.array([-(2**63), -3]), "beyond 10^12"),
]


@pytest.mark.parametrize(
    ("name", "column", "why"), FAULTS, ids=[f"{n}-{c.type}-{w}" for n, c, w in FAULTS]
)
def test_a_bad_row_harms_itself_alone(name: str, column: Any, why: str) -> None:
    found = both(with_column(name, column))
    assert list(found.readings.rows()) == ROWS[1:]
    (problem,) = found.problems
    assert problem.startswith("row 1: ")
    assert why in problem


@pytest.mark.parametrize("extreme", [-(2**63), 2**63 - 1])
def test_the_ends_of_time(extreme: int) -> None:
    """Seconds that Parquet cannot even hold."""
    table = with_column("start_utc", pa.array([extreme, 1357000200], pa.timestamp("s")))
    found = collect(arrow_batches(arrow_of(table)))
    assert list(found.readings.rows()) == ROWS[1:]
    assert found.problems == ("row 1: time is outside the years 1970 to 2099",)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("meter_id", pa.array([1.0, 2.0])),
        ("meter_id", pa.array([b"a", b"b"])),
        ("start_utc", pa.array([1, 2])),
        ("start_utc", pa.array([1, 2], pa.date32())),
        ("duration_s", pa.array(["900", "900"])),
        ("duration_s", pa.array([True, True])),
        ("wh", pa.array([True, False])),
        ("wh", pa.nulls(2)),
        ("wh", pa.array([[1], [2]])),
    ],
)
def test_types_that_hold_none(name: str, column: Any) -> None:
    table = with_column(name, column)
    for parse, data in (
        (lambda *given: collect(parquet_batches(*given)), parquet_of(table)),
        (lambda *given: collect(arrow_batches(*given)), arrow_of(table)),
    ):
        with pytest.raises(IntakeError, match=f"column '{name}' has type"):
            parse(data)


def test_missing_and_repeated_columns() -> None:
    table = as_table(ROWS)
    with pytest.raises(IntakeError, match="column 'wh' is missing;"):
        collect(arrow_batches(arrow_of(table.drop_columns(["wh"]))))
    with pytest.raises(IntakeError, match="column 'wh' is there 2 times;"):
        collect(arrow_batches(arrow_of(table.append_column("wh", table["wh"]))))


def test_other_columns_are_passed_over() -> None:
    table = as_table(ROWS).append_column("note", pa.array([[{"x": 1}], None]))
    assert list(both(table).readings.rows()) == ROWS


def test_floats_mean_their_shortest_decimal() -> None:
    """0.0015 kWh is 1.5 Wh and rounds to 2, though the nearest float lies below it in float32."""
    for kind in (pa.float32(), pa.float64()):
        table = pa.table(
            {
                "LCLid": ["x"] * 4,
                "DateTime": pa.array([0, 1800, 3600, 5400], pa.timestamp("s")),
                "KWH/hh (per half hour) ": pa.array([0.115, 0.0015, -0.0025, 1e-9], kind),
            }
        )
        found = both(table, LOW_CARBON_LONDON)
        assert found.readings.wh.tolist() == [115, 2, -2, 0]


def test_local_times_of_a_zone_and_power() -> None:
    mapping = ColumnMapping(
        meter="id", time="at", value="kw", unit="kw", duration="s", time_zone="Europe/London"
    )
    walls = [datetime(2013, 10, 27, 1, 30)] * 2 + [datetime(2013, 3, 31, 1, 30)]
    table = pa.table({"id": [7, 7, 7], "at": walls, "kw": [1.0, 2.0, 3.0], "s": [1800, 900, 900]})
    found = both(table, mapping)
    assert list(found.readings.rows()) == [
        ("7", 1382833800, 1800, 500),
        ("7", 1382837400, 900, 500),
    ]
    assert found.problems == ("row 3: time does not exist in its zone, as clocks went forward",)


BOTH_WAYS = ColumnMapping(
    meter="id", time="at", value="taken", unit="kwh", duration_s=1800, plus=("more",),
    minus=("given",), only=(("way", ("in",)), ("kind", ("1",))), fed_in=(("way", ("out",)),),
    time_zone="Europe/London", registers={"a": "a-out"},
)  # fmt: skip
WALLS = st.integers(0, 4).map(lambda k: datetime(2013, 10, 27, 0, 30) + timedelta(minutes=30 * k))
KWH = st.one_of(st.none(), st.integers(-3, 4000).map(lambda n: n / 1000))  # the repeated hour
TWICE = datetime(2013, 10, 27, 1, 30)
BOTH_ROWS = st.tuples(
    st.sampled_from(["a", "b", " "]), WALLS, KWH, KWH, KWH,
    st.sampled_from(["in", "IN 2", "out", "Out", "no", None]), st.sampled_from([1, 12, 2, None]),
)  # fmt: skip


@settings(max_examples=examples(30))
@given(st.lists(BOTH_ROWS, min_size=1, max_size=12), st.booleans())
@example([("a", TWICE, 1, None, 2, way, 1) for way in ("no", "out", "in", "in", "out")], True)
def test_both_directions_are_read_as_from_a_csv(rows: list[Any], coded: bool) -> None:
    """`plus`, `minus`, `only` and `fed_in`, with local times that occur twice."""
    names = ("id", "at", "taken", "more", "given", "way", "kind")
    kinds = (pa.string(), None, pa.float64(), pa.float64(), pa.float64(), pa.string(), pa.int8())
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    if coded:
        columns[5] = columns[5].dictionary_encode()
        columns[4] = columns[4].cast(pa.string())
    text = "\n".join(
        ",".join("" if cell is None else str(cell) for cell in row) for row in [names, *rows]
    )
    found, written = (
        both(pa.table(columns, names), BOTH_WAYS),
        collect(csv_batches(text.encode(), BOTH_WAYS)),
    )
    assert list(found.readings.rows()) == list(written.readings.rows())
    counted = [[(why, n) for why, n, _ in one.reasons] for one in (found, written)]
    assert counted[0] == counted[1]
    assert found.malformed == written.malformed


def test_rows_of_energy_fed_in_are_of_the_second_register(tmp_path: Path) -> None:
    table = pa.table({
        "id": ["a", "a", "b", "a"], "at": pa.array([0, 0, 0, 1800], pa.timestamp("s")),
        "wh": [5, 7, 9, 8], "way": ["in", "out", "out", "idle"], "back": [None, 0, 2, 1],
    })  # fmt: skip
    by = ColumnMapping(
        meter="id", time="at", value="wh", duration_s=900, fed_in=(("way", ("out",)),)
    )
    own = replace(by, registers={"a": "a-out"})
    read = [("a", 0, 900, 5), ("a-out", 0, 900, 7), ("a", 1800, 900, 8)]
    assert list(both(table, own).readings.rows()) == read
    path = tmp_path / "export.parquet"
    path.write_bytes(parquet_of(table))
    apart = collect(batches_of_file(path, own, lambda *_: None))
    assert list(apart.readings.rows()) == read, "in a process of its own"
    assert both(table, by).readings.wh.tolist() == [5, 8], "left out where there is none"
    assert both(table, replace(by, fed_in=(), minus=("back",))).readings.wh.tolist() == [5, 7, 7, 7]
    with pytest.raises(IntakeError, match="column 'way' has type double; give text or integers"):
        both(table.set_column(3, "way", pa.array([1.0] * 4)), by)
    with pytest.raises(IntakeError, match="column 'back' has type bool; give numbers"):
        both(table.set_column(4, "back", pa.array([True] * 4)), replace(by, minus=("back",)))


def test_rows_are_numbered_across_batches_and_groups() -> None:
    n = 200_000
    rows = [("a", 900 * i, 900, i) for i in range(n)]
    table = as_table(rows)
    wh = table["wh"].to_pylist()
    wh[n - 2] = None
    table = table.set_column(3, "wh", pa.array(wh))
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=70_000)
    batches = list(parquet_batches(io.BytesIO(out.getvalue())))
    assert len(batches) > 1
    assert [p for batch in batches for p in batch.problems] == [f"row {n - 1}: value is missing"]
    assert sum(len(batch.readings) for batch in batches) == n - 1
    found = collect(arrow_batches(arrow_of(table, chunk=10_000)))
    assert found.problems == (f"row {n - 1}: value is missing",)


@pytest.mark.parametrize("more", [b"junk", as_arrow([("b", 0, 900, 2)])])
def test_nothing_follows_a_stream(more: bytes) -> None:
    """Two files in one: the rows of the second were lost, and counted nowhere."""
    one = as_arrow([("a", 0, 900, 1)])
    assert len(collect(arrow_batches(one)).readings) == 1
    with pytest.raises(IntakeError, match="goes on after the end of its Arrow stream"):
        collect(arrow_batches(one + more))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("coded", [False, True])
def test_compressed_streams_are_refused(codec: str, coded: bool) -> None:
    table = as_table(ROWS * 100)
    if coded:  # the ids travel in a message of their own
        table = table.set_column(0, "meter_id", table["meter_id"].dictionary_encode())
    with pytest.raises(IntakeError, match="compressed"):
        collect(arrow_batches(arrow_of(table, compression=codec)))


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_messages_are_described_as_arrow_sees_them(codec: str | None) -> None:
    table = as_table(ROWS * 100)
    table = table.set_column(0, "meter_id", table["meter_id"].dictionary_encode())
    reader = pa.ipc.MessageReader.open_stream(arrow_of(table, compression=codec))
    kinds = []
    for message in iter(reader):
        kinds.append(message.type)
        compressed = codec is not None and message.type != "schema"
        assert _is_compressed(message) == compressed
    assert kinds[:3] == ["schema", "dictionary", "record batch"]


def test_a_message_that_claims_too_much_is_refused_unread() -> None:
    def endless() -> Any:
        yield struct.pack("<II", 0xFFFFFFFF, 0x7FFFFFFF)
        yield b"x" * BLOCK
        raise AssertionError("read on")

    with pytest.raises(IntakeError, match="beyond 64 MiB"):
        collect(arrow_batches(endless()))


@pytest.mark.parametrize("cut", [0, 3, 8, 60, 400, -12])
def test_streams_that_break_off(cut: int) -> None:
    data = as_arrow(ROWS)
    with pytest.raises(IntakeError):
        collect(arrow_batches(data[:cut]))


def test_every_byte_of_the_framing_may_be_wrong() -> None:
    data = as_arrow(ROWS)
    for at in range(min(len(data), 900)):
        for wrong in (0x00, 0x7F, 0xFF):
            broken = data[:at] + bytes([wrong]) + data[at + 1 :]
            with contextlib.suppress(IntakeError):
                collect(arrow_batches(broken))


def test_end_marker_is_optional() -> None:
    data = as_arrow(ROWS)
    assert data.endswith(struct.pack("<II", 0xFFFFFFFF, 0))
    assert list(collect(arrow_batches(data[:-8])).readings.rows()) == ROWS


def test_offsets_and_text_are_checked_before_use() -> None:
    """Arrow itself would read where a hostile offset points."""
    data = bytearray(as_arrow([("abcd", JANUARY, 900, 1)]))
    at = data.rindex(struct.pack("<ii", 0, 4))
    data[at + 4 : at + 8] = struct.pack("<i", 2**30)
    with pytest.raises(IntakeError, match="ArrowInvalid"):
        collect(arrow_batches(bytes(data)))
    with pytest.raises(IntakeError, match="ArrowInvalid"):
        collect(
            arrow_batches(as_arrow([("abcd", JANUARY, 900, 1)]).replace(b"abcd", b"ab\xff\xff"))
        )


def test_no_parquet() -> None:
    for data in (b"", b"PAR1", b"PAR1" * 4, b"a,b\n1,2\n", as_parquet(ROWS)[:-9]):
        with pytest.raises(IntakeError, match="not a sound Parquet file"):
            collect(parquet_batches(data))


@pytest.mark.parametrize("source", ["readings.parquet", Path("readings.parquet"), None, 5])
def test_parquet_opens_nothing_by_itself(source: Any) -> None:
    with pytest.raises(IntakeError, match="give bytes or an open file"):
        collect(parquet_batches(source))


def test_pyarrow_is_not_imported_before_it_is_needed_and_pandas_never() -> None:
    code = (
        "import sys\nfrom hushgrid.intake import arrow, readings\n"
        "assert 'pyarrow' not in sys.modules\n"
        "readings.collect(arrow.parquet_batches(sys.stdin.buffer.read()))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    data = as_parquet([("a", 0, 900, 1)])
    assert subprocess.run([sys.executable, "-c", code], input=data, check=False).returncode == 0


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for parse in (
        lambda *given: collect(parquet_batches(*given)),
        lambda *given: collect(arrow_batches(*given)),
    ):
        with pytest.raises(ExtraError, match=r"hushgrid\[intake\]"):
            parse(b"")


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_files_of_many_writers(codec: str, version: str, dictionary: bool) -> None:
    """Several row groups and pages, checksums, statistics, nulls: every page is found."""
    rows = [(f"m{i % 50}", 900 * i, 900, i) for i in range(6000)]
    table = as_table(rows)
    wh = [None if i % 1000 == 7 else i for i in range(6000)]
    data = parquet_of(
        table.set_column(3, "wh", pa.array(wh, pa.int64())),
        compression=codec, data_page_version=version, use_dictionary=dictionary,
        row_group_size=2500, data_page_size=2000, write_page_checksum=dictionary,
        write_statistics=not dictionary, write_page_index=dictionary,
    )  # fmt: skip
    found = collect(parquet_batches(data))
    assert list(found.readings.rows()) == [row for row in rows if row[3] % 1000 != 7]
    assert found.malformed == 6
