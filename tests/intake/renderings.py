"""The same readings in every format, written by other means than those that read them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import quoteattr

import pyarrow as pa
import pyarrow.parquet as pq

from hushgrid.intake.arrow import arrow_batches, parquet_batches
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.espi import espi_batches
from hushgrid.intake.json import json_batches
from hushgrid.intake.readings import Parsed, collect
from hushgrid.intake.text import CANONICAL

Row = tuple[str, int, int, int]  # meter id, start [s UTC], duration [s], Wh
NAMES = ("meter_id", "start_utc", "duration_s", "wh")


def iso(start: int) -> str:
    return datetime.fromtimestamp(start, UTC).isoformat().replace("+00:00", "Z")


def objects(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [dict(zip(NAMES, (m, iso(s), d, w), strict=True)) for m, s, d, w in rows]


def as_csv(rows: Sequence[Row]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, NAMES)
    writer.writeheader()
    writer.writerows(objects(rows))
    return out.getvalue().encode()


def as_json(rows: Sequence[Row]) -> bytes:
    return json.dumps(objects(rows), indent=1).encode()


def as_ndjson(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in objects(rows)).encode()


def as_table(rows: Sequence[Row]) -> pa.Table:
    meter, start, duration, wh = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "meter_id": pa.array(meter, pa.string()),
            "start_utc": pa.array([s * 1000 for s in start], pa.timestamp("ms", "UTC")),
            "duration_s": pa.array(duration, pa.int32()),
            "wh": pa.array(wh, pa.int64()),
        }
    )


def as_parquet(rows: Sequence[Row], **how: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(as_table(rows), out, **how)
    return out.getvalue()


def as_arrow(rows: Sequence[Row]) -> bytes:
    return arrow_of(as_table(rows), chunk=3)


def arrow_of(table: pa.Table, *, chunk: int = 1000, **how: object) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**how)) as stream:
        stream.write_table(table, max_chunksize=chunk)
    return out.getvalue()


def entry(links: Sequence[str], content: str) -> str:
    told = "".join(f'<link rel="x" href={quoteattr(href)}/>' for href in links)
    return f"<entry><title>Home</title>{told}<content>{content}</content></entry>"


def espi_type(name: str, **fields: int) -> str:
    inner = "".join(f"<espi:{key}>{value}</espi:{key}>" for key, value in fields.items())
    return entry(
        [f"/espi/1_1/resource/ReadingType/{name}"], f"<espi:ReadingType>{inner}</espi:ReadingType>"
    )


def espi_block(point: str, meter: str, rows: Sequence[Row]) -> str:
    readings = "".join(
        "<espi:IntervalReading><espi:cost>907</espi:cost><espi:timePeriod>"
        f"<espi:duration>{d}</espi:duration><espi:start>{s}</espi:start></espi:timePeriod>"
        f"<espi:value>{w}</espi:value></espi:IntervalReading>"
        for _, s, d, w in rows
    )
    block = (
        "<espi:IntervalBlock><espi:interval><espi:duration>1</espi:duration>"
        f"<espi:start>2</espi:start></espi:interval>{readings}</espi:IntervalBlock>"
    )
    return entry([f"{point}/MeterReading/{meter}/IntervalBlock/1"], block)


def espi_meter(point: str, meter: str, kind: str) -> str:
    links = [f"{point}/MeterReading/{meter}", f"/espi/1_1/resource/ReadingType/{kind}"]
    return entry(links, "<espi:MeterReading/>")


def feed(*entries: str) -> bytes:
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom"'
    return f'{head} xmlns:espi="http://naesb.org/espi">\n{"".join(entries)}</feed>'.encode()


def as_espi(rows: Sequence[Row]) -> bytes:
    """Export goes into a register of its own, counted in the other direction."""
    entries = [
        espi_type("in", uom=72, flowDirection=1, powerOfTenMultiplier=0),
        espi_type("out", uom=72, flowDirection=19, powerOfTenMultiplier=-3),
    ]
    for point in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == point]
        taken = [row for row in own if row[3] >= 0]
        given = [(m, s, d, -1000 * w) for m, s, d, w in own if w < 0]
        for meter, kind, part in (("01", "in", taken), ("02", "out", given)):
            entries += [espi_meter(point, meter, kind), espi_block(point, meter, part)]
    return feed(*entries)


FORMATS: dict[str, tuple[Callable[[Sequence[Row]], bytes], Callable[[bytes], Parsed]]] = {
    "csv": (as_csv, lambda data: collect(csv_batches(data, CANONICAL))),
    "json": (as_json, lambda *given: collect(json_batches(*given))),
    "ndjson": (as_ndjson, lambda *given: collect(json_batches(*given))),
    "parquet": (as_parquet, lambda *given: collect(parquet_batches(*given))),
    "arrow": (as_arrow, lambda *given: collect(arrow_batches(*given))),
    "espi": (as_espi, lambda *given: collect(espi_batches(*given))),
}
