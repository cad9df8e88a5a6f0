"""Bodies that are held whole: one sender's keep no other's waiting, and too many rows are refused
before one of them is read."""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgrid.curator.ingest import PAST, ROWS, Ingest
from hushgrid.files.readings import formats_by_media
from hushgrid.files.settings import Http
from hushgrid.intake.readings import Parsed
from hushgrid.intake.text import ColumnMapping, Format
from hushgrid.stores.clients import Client, ClientStore, Senders
from hushgrid.web.http import readings
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import Metrics, ZoneStates
from tests.curator.worlds import START, MemoryMeters, service
from tests.web.http.faces import AUTH as ONE_TOKEN
from tests.web.http.faces import Face, as_parquet, refused

PARQUET = "application/vnd.apache.parquet"
SENDERS = ("north", "south", "east", "west")


def held(source: bytes, _: ColumnMapping) -> Iterator[Parsed]:
    """A body whose parsing begins with a file of its name and ends with the file `go`."""
    begun = Path(source.decode())
    begun.touch()
    while not begun.with_name("go").exists():
        time.sleep(0.01)
    return iter(())


def formats() -> Mapping[str, Format]:
    return {**formats_by_media(), "x/held": Format(("x/held",), (".held",), held, seeks=True)}


def test_bodies_of_one_sender_keep_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "formats_by_media", formats)
    zone = service()
    tokens = tuple(hashlib.sha256(name.encode()).hexdigest() for name in SENDERS)
    app = make_app(
        Ingest([zone], MemoryMeters(zone)), ZoneStates([zone.id]), Metrics(), Http(tokens=tokens)
    )

    def begun() -> list[str]:
        return sorted(each.name for each in tmp_path.iterdir())

    async def until_begun(*names: str) -> None:
        async with asyncio.timeout(60):
            while begun() != sorted(names):
                await asyncio.sleep(0.01)

    async def story() -> None:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:

            def post(sender: str, media: str, body: bytes) -> asyncio.Task[httpx.Response]:
                headers = {"Content-Type": media, "Authorization": f"Bearer {sender}"}
                return asyncio.create_task(
                    client.post("/v1/readings", content=body, headers=headers)
                )

            def hold(sender: str, name: str) -> asyncio.Task[httpx.Response]:
                return post(sender, "x/held", str(tmp_path / name).encode())

            def table(sender: str, house: int) -> asyncio.Task[httpx.Response]:
                return post(sender, PARQUET, as_parquet([(f"elm-street-{house}", START, 900, 1)]))

            waiting = [hold("north", "1"), hold("north", "1")]
            await until_begun("1")
            async with asyncio.timeout(60):
                assert (await table("south", 0)).json()["accepted"] == 1
            waiting += [hold("south", "2")]
            await until_begun("1", "2")
            waiting += [hold("east", "3"), table("west", 1)]
            await asyncio.sleep(0.5)
            assert begun() == ["1", "2"], "two in all"
            assert not any(each.done() for each in waiting)
            (tmp_path / "go").touch()
            assert [(await each).status_code for each in waiting] == [200] * 5

    try:
        asyncio.run(story())
    finally:
        (tmp_path / "go").touch()


def long_table(rows: int) -> bytes:
    sink = io.BytesIO()
    meter = pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), rows), ["elm-street-0"]
    )
    at = pa.repeat(pa.scalar(START, pa.timestamp("s", "UTC")), rows)
    columns = {"meter_id": meter, "start_utc": at, "duration_s": pa.repeat(900, rows)}
    pq.write_table(pa.table({**columns, "wh": pa.repeat(1, rows)}), sink)
    return sink.getvalue()


def test_more_rows_than_meters_can_have_are_refused_by_the_footer() -> None:
    face, headers = Face(), {"Content-Type": PARQUET, **ONE_TOKEN}
    body = long_table(2_000_000)
    assert len(body) < 1 << 20
    said = refused(face.post(body, headers), 400)
    assert said.startswith(f"input has 2000000 rows, but its sender's meters have at most {ROWS} ")
    assert face.meters.puts == 0
    assert face.post(long_table(ROWS), headers).json()["accepted"] == 1


def test_the_limit_counts_the_senders_meters(tmp_path: Path) -> None:
    zone = service(houses=300)
    with ClientStore(tmp_path / "clients") as clients:
        clients.add(Client("north", ("write_readings",), "", 1, meters=("elm-street-1*",)))
        ingest = Ingest([zone], MemoryMeters(zone), Senders(clients, production=True))
        intervals = PAST + 1 + zone.early_limit
        assert ingest.most_rows("north") == 111 * intervals
        assert ingest.most_rows(None) == 300 * intervals
