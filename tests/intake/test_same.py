"""One set of readings, six formats, the same columns; and no bytes whatever that break a parser."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid.intake.arrow import arrow_batches, parquet_batches
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.espi import espi_batches
from hushgrid.intake.json import json_batches, parse_records
from hushgrid.intake.readings import Parsed, collect
from hushgrid.intake.text import CANONICAL, LOW_CARBON_LONDON, PECAN_STREET, ColumnMapping
from tests.examples import examples
from tests.intake.edits import EDITS, edited, sound
from tests.intake.renderings import (
    FORMATS,
    NAMES,
    Row,
    arrow_of,
    as_table,
    espi_block,
    espi_meter,
    espi_type,
    feed,
    iso,
    objects,
)
from tests.intake.strategies import ESPI_ROWS, ROWS

TEXTUAL = [name for name in FORMATS if name != "espi"]


@pytest.mark.parametrize("name", TEXTUAL)
@given(ROWS)
def test_what_is_written_is_read(name: str, rows: list[Row]) -> None:
    write, parse = FORMATS[name]
    found = parse(write(rows))
    assert list(found.readings.rows()) == rows
    assert (found.malformed, found.problems) == (0, ())


@given(ESPI_ROWS)
def test_all_formats_agree(rows: list[Row]) -> None:
    read = {name: parse(write(rows)) for name, (write, parse) in FORMATS.items()}
    assert {name: found.malformed for name, found in read.items()} == dict.fromkeys(FORMATS, 0)
    for found in [*read.values(), parse_records(objects(rows))]:
        assert sorted(found.readings.rows()) == sorted(rows)


TENTHS = st.one_of(
    st.integers(-50_000, 50_000).map(lambda n: Decimal(n) / 10),
    st.integers(-(10**5), 10**5).map(lambda n: Decimal(n) / 2),
    st.decimals(-(10**8), 10**8, allow_nan=False, allow_infinity=False, places=6),
)


def every_way(amounts: list[Decimal]) -> dict[str, Parsed]:
    """One reading for each amount [Wh], written in every format, by every path that reads it."""
    texts = [f"{amount:f}" for amount in amounts]
    lines = [
        f'{{"meter_id":"a","start_utc":"{iso(900 * i)}","duration_s":900,"wh":{text}}}'
        for i, text in enumerate(texts)
    ]
    csv = [f"a,{iso(900 * i)},900," for i in range(len(texts))]
    head = ",".join(NAMES) + "\n"
    rows: list[Row] = [("a", 900 * i, 900, 0) for i in range(len(texts))]
    tables = {
        f"arrow {kind}": as_table(rows).set_column(3, "wh", pa.array(column, kind))
        for kind, column in (
            (pa.decimal128(30, 7), amounts),
            (pa.float64(), [float(a) for a in amounts]),
            (pa.string(), texts),
        )
    }
    kwh = replace(CANONICAL, unit="kwh")
    written: list[Row] = [("p/UsagePoint/1", 900 * i, 900, t) for i, t in enumerate(texts)]  # type: ignore[misc]
    types = [espi_type("in", uom=72), espi_meter("p/UsagePoint/1", "1", "in")]
    return {
        "csv": collect(
            csv_batches(
                (head + "\n".join(map("".join, zip(csv, texts, strict=True)))).encode(), CANONICAL
            )
        ),
        "csv kwh": collect(
            csv_batches(
                (
                    head + "\n".join(f"{a}{w / 1000:f}" for a, w in zip(csv, amounts, strict=True))
                ).encode(),
                kwh,
            )
        ),
        "ndjson": collect(json_batches("".join(f"{line}\n" for line in lines).encode())),
        "ndjson read slowly": collect(
            json_batches("".join(f'{li[:-1]},"x":0}}\n' for li in lines).encode())
        ),
        "json": collect(json_batches(f"[{','.join(lines)}]".encode())),
        "records": parse_records(
            {**row, "wh": float(a)} for row, a in zip(objects(rows), amounts, strict=True)
        ),
        "espi": collect(espi_batches(feed(*types, espi_block("p/UsagePoint/1", "1", written)))),
        **{name: collect(arrow_batches(arrow_of(table))) for name, table in tables.items()},
    }


@settings(max_examples=examples(60))
@given(st.lists(TENTHS, min_size=1, max_size=6))
def test_fractions_are_rounded_to_even_in_every_format(amounts: list[Decimal]) -> None:
    wanted = [int(amount.to_integral_value(ROUND_HALF_EVEN)) for amount in amounts]
    for name, found in every_way(amounts).items():
        assert (found.malformed, found.problems) == (0, ()), name
        assert found.readings.wh.tolist() == wanted, name


TINY = Decimal("1e-61")
WIDE = [  # [kWh]; up to 76 digits in Arrow, more than any text may have
    Decimal(f"0.0005{'0' * 65}1"),
    Decimal(f"-0.0005{'0' * 65}1"),
    Decimal("0.0005"),
    Decimal("0.0015"),
    Decimal(f"0.0024{'9' * 66}"),
    Decimal("1e-70"),
]


@pytest.mark.parametrize("parquet", [False, True])
def test_the_smallest_parts_are_rounded_in_tables_too(parquet: bool) -> None:
    """A float below 10^-60 kWh and all digits of a wide decimal, as JSON and CSV round them."""
    kwh = replace(CANONICAL, unit="kwh")

    def read(column: list[Decimal] | list[float], kind: pa.DataType) -> Parsed:
        rows: list[Row] = [("a", 900 * i, 900, 0) for i in range(len(column))]
        table = as_table(rows).set_column(3, "wh", pa.array(column, kind))
        if not parquet:
            return collect(arrow_batches(arrow_of(table), kwh))
        pq.write_table(table, out := io.BytesIO())
        return collect(parquet_batches(out.getvalue(), kwh))

    csv = ",".join(NAMES) + "\n" + f"a,{iso(0)},900,{TINY}\na,{iso(900)},900,-{TINY}\n"
    assert collect(csv_batches(csv.encode(), kwh)).readings.wh.tolist() == [0, 0]
    small = [1e-61, -1e-61, 5e-324, 2.5e-3, 1e-200]
    for kind in (pa.float64(), pa.float32()):
        found = read(small, kind)
        assert (found.malformed, found.readings.wh.tolist()) == (0, [0, 0, 0, 2, 0]), kind
    found = read(WIDE, pa.decimal256(76, 70))
    assert (found.malformed, found.readings.wh.tolist()) == (0, [1, -1, 0, 2, 2, 0])


SEED_ROWS: list[Row] = [
    ("RetailCustomer/1/UsagePoint/01", 1356998400, 1800, 115),
    ("RetailCustomer/1/UsagePoint/01", 1357000200, 1800, -12),
    ("RetailCustomer/2/UsagePoint/01", 1356998400, 900, 0),
    ("RetailCustomer/2/UsagePoint/02", 1356999300, 900, 2500),
]
DOCUMENTS = {name: write(SEED_ROWS) for name, (write, _) in FORMATS.items()}


def never_breaks(name: str, data: bytes) -> None:
    with contextlib.suppress(IntakeError):
        assert sound(FORMATS[name][1](data))


@pytest.mark.parametrize("name", FORMATS)
@given(st.binary(max_size=400))
def test_any_bytes(name: str, data: bytes) -> None:
    never_breaks(name, data)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=examples(300))
@given(EDITS)
def test_edited_documents(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    never_breaks(name, edited(DOCUMENTS[name], edits))


@pytest.mark.parametrize("name", FORMATS)
@given(st.lists(st.integers(0, 5000), max_size=5))
def test_pieces_do_not_matter(name: str, cuts: list[int]) -> None:
    """However the bytes arrive, the answer is the same; Parquet wants them all at once."""
    data, (_, parse) = DOCUMENTS[name], FORMATS[name]
    places = [0, *sorted(cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(places)]
    found = parse(b"".join(chunks) if name == "parquet" else chunks)  # type: ignore[arg-type]
    assert sorted(found.readings.rows()) == sorted(SEED_ROWS)


MAPPINGS = {
    "london": LOW_CARBON_LONDON,
    "pecan": PECAN_STREET,
    "odd": ColumnMapping(
        meter_id="x", time="t", value="v", duration="d", unit="kw", delimiter=";", decimal=",",
        time_format="%d.%m.%Y %H:%M", time_zone="Europe/Berlin", marks="end",
    ),
}  # fmt: skip
HEADERS = {
    "london": b"LCLid,stdorToU,DateTime,KWH/hh (per half hour) \n",
    "pecan": b"dataid,local_15min,grid\n",
    "odd": b"t;v;d\n",
}
BODIES = {
    "london": b"MAC000002,Std,2012-10-12 00:30:00.0000000, 0.115 \n" * 3,
    "pecan": b"661,2018-01-01 00:00:00-06,0.115\n" * 3,
    "odd": b"27.10.2013 02:30;1,5;900\n" * 3,
}


@pytest.mark.parametrize("name", MAPPINGS)
@given(EDITS)
def test_edited_tables_below_any_mapping(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    """Below a sound header there is no error at all, only rows that are good or malformed."""
    body = edited(BODIES[name], edits)
    found = collect(csv_batches(HEADERS[name] + body, MAPPINGS[name]))
    assert sound(found)
    filled = sum(bool(line.strip(b" \t\r\x0b\x0c\x1c\x1d\x1e\x1f")) for line in body.split(b"\n"))
    assert len(found.readings) + found.malformed <= filled
