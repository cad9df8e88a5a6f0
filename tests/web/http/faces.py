"""An HTTP face over stores in memory."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from hushgrid.curator.clock import utc
from hushgrid.curator.ingest import Ingest
from hushgrid.files.readings import NO_MAPPINGS
from hushgrid.files.settings import Http
from hushgrid.intake.text import ColumnMapping
from hushgrid.mechanism.release import Release
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import Metrics, ZoneStates
from hushgrid.web.prices import History
from tests.curator.worlds import START, TOKEN, MemoryMeters, service

DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


AUTH = {"Authorization": f"Bearer {TOKEN}"}


NDJSON = {"Content-Type": "application/x-ndjson", **AUTH}


# (meter, start, duration, Wh): two fine, one above and one below its bound, one again with another
# value, one of a closed interval that would be cut, one unknown, one that does not fit the interval
ROWS = [
    ("elm-street-0", START, 900, 120),
    ("elm-street-1", START, 900, 0),
    ("elm-street-2", START, 900, 5000),
    ("elm-street-3", START, 900, -40),
    ("elm-street-0", START, 900, 121),
    ("elm-street-4", START - 900, 900, 7000),
    ("nobody", START, 900, 9),
    ("elm-street-5", START, 700, 9),
]


def objects(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    names = ("meter_id", "start_utc", "duration_s", "wh")
    return [dict(zip(names, (m, utc(s), d, w), strict=True)) for m, s, d, w in rows]


def as_json(rows: Any) -> bytes:
    return json.dumps(objects(rows)).encode()


def as_ndjson(rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in objects(rows))


def as_csv(rows: Any) -> bytes:
    head = "meter_id,start_utc,duration_s,wh\n"
    return (head + "".join(f"{m},{utc(s)},{d},{w}\n" for m, s, d, w in rows)).encode()


def table(rows: Any) -> pa.Table:
    meter, start, duration, wh = zip(*rows, strict=True)
    at = pa.array(start, pa.int64()).cast(pa.timestamp("s", "UTC"))
    return pa.table({"meter_id": meter, "start_utc": at, "duration_s": duration, "wh": wh})


def as_arrow(rows: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table(rows).schema) as writer:
        writer.write_table(table(rows))
    return sink.getvalue()


def as_parquet(rows: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(rows), sink)
    return sink.getvalue()


FORMATS = {
    "application/json": as_json,
    "application/x-ndjson": as_ndjson,
    "text/csv; charset=utf-8": as_csv,
    "application/vnd.apache.arrow.stream": as_arrow,
    "application/vnd.apache.parquet": as_parquet,
}


class Still:
    """A clock that stands still."""

    wall = START + 10.0

    def now(self) -> float:
        return self.wall


class Face:
    """The app of one zone, called without a socket."""

    def __init__(
        self,
        *zones: str,
        mappings: Mapping[str, ColumnMapping] = NO_MAPPINGS,
        seconds: int = 900,
        **http: Any,
    ) -> None:
        services = [service(zone, seconds=seconds) for zone in zones or ("elm-street",)]
        self.zone = services[0]
        self.meters = MemoryMeters(*services)
        self.meters.close(self.zone.id, START - 900)
        self.board = ZoneStates([zone.id for zone in services])
        self.metrics = Metrics()
        self.history = History(services)
        ingest, self.clock = Ingest(services, self.meters), Still()
        self.app = make_app(
            ingest,
            self.board,
            self.metrics,
            Http(tokens=(DIGEST,), **http),
            history=self.history,
            clock=self.clock,
            mappings=mappings,
        )

    def call(self, method: str, path: str, **rest: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return await client.request(method, path, **rest)

        return asyncio.run(ask())

    def post(self, content: Any, headers: Any = NDJSON, query: str = "") -> httpx.Response:
        return self.call("POST", f"/v1/readings{query}", content=content, headers=headers)


def refused(answer: httpx.Response, status: int) -> str:
    """The one sentence of a problem."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == status
    assert "\n" not in said["detail"]
    return str(said["detail"])


def shown(zone: str = "elm-street", **changes: Any) -> ReleaseRecord:
    fields: dict[str, Any] = dict.fromkeys(Release.__dataclass_fields__, 0)
    fields |= {"zone": zone, "t": 7, "rate": 0.25, "rule": "eta=1 block union", "simulated": True}
    fields |= {"noise": "none", "offset": None, "feed_in": None}
    own = {name: changes.pop(name, value) for name, value in fields.items()}
    rest = {"source": "readings", "start": 0, "applies_start": START, "published_at": 0}
    rest |= {"counts": {}, "head": "ab" * 32, "signature": "cd"}
    return ReleaseRecord(Release(**own), **(rest | changes))
