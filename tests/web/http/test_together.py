"""Small bodies that are stored together: each has its own receipt, its own error, its own zone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import httpx
import pytest

from hushgrid.curator.ingest import UNKNOWN, Ingest
from hushgrid.files.settings import Http
from hushgrid.stores.meters.columns import Counts
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import Metrics, ZoneStates
from tests.curator.worlds import START, MemoryMeters, service, unavailable
from tests.web.http.faces import AUTH, DIGEST, NDJSON, as_json, as_ndjson

ZONES = "elm", "oak"


class Slow(MemoryMeters):
    """Waits with the first group until it is told to go on; fails for the zones in `away`."""

    def __init__(self) -> None:
        super().__init__(*map(service, ZONES))
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.away: tuple[str, ...] = ()
        self.groups: list[tuple[str, int]] = []

    def put_each(self, zone: str, *columns: Any, ends: Any, marked: Any = None) -> list[Counts]:
        self.begun.set()
        assert self.go_on.wait(30)
        self.groups.append((zone, len(ends)))
        if zone in self.away:
            raise unavailable()
        return super().put_each(zone, *columns, ends=ends, marked=marked)


class Bench:
    """Requests to one app that all come while the first is on its way to the disk."""

    def __init__(self) -> None:
        self.meters = Slow()
        ingest = Ingest([service(zone) for zone in ZONES], self.meters)
        self.app = make_app(ingest, ZoneStates(ZONES), Metrics(), Http(tokens=(DIGEST,)))

    def send(self, first: bytes, *rest: tuple[bytes, Any]) -> list[httpx.Response]:
        async def all_of_them() -> list[httpx.Response]:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:

                def post(body: bytes, headers: Any) -> Coroutine[Any, Any, httpx.Response]:
                    return client.post("/v1/readings", content=body, headers=headers)

                leader = asyncio.create_task(post(first, NDJSON))
                await asyncio.to_thread(self.meters.begun.wait, 30)
                others = [asyncio.create_task(post(*each)) for each in rest]
                await asyncio.sleep(0)
                while len(self.app_waiting()) < len(rest):
                    await asyncio.sleep(0.001)
                self.meters.go_on.set()
                return [await leader, *[await each for each in others]]

        return asyncio.run(all_of_them())

    def app_waiting(self) -> Any:
        return self.app.state.batcher._waiting


@pytest.fixture
def bench() -> Bench:
    return Bench()


def rows(zone: str, *houses: int) -> list[tuple[Any, ...]]:
    return [(f"{zone}-{house}", START, 900, 10 + house) for house in houses]


def receipt(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return {k: v for k, v in answer.json().items() if v}


def test_each_is_told_what_became_of_its_own(bench: Bench) -> None:
    answers = bench.send(
        as_ndjson(rows("elm", 0)),
        (as_ndjson(rows("elm", 1, 2)), NDJSON),
        (as_ndjson([*rows("elm", 2), *rows("oak", 0), ("nobody", START, 900, 1)]), NDJSON),
        (b"", NDJSON),
        (as_ndjson(rows("oak", 1)) + b'{"meter_id": 1}\n', NDJSON),
    )
    told = [receipt(answer) for answer in answers]
    assert told[:4] == [
        {"accepted": 1},
        {"accepted": 2},
        {
            "accepted": 1,
            "duplicate": 1,
            "unknown": 1,
            "reasons": {UNKNOWN: {"count": 1, "first": "reading 3"}},
        },
        {},
    ]
    assert told[4].pop("problems")
    assert [one["first"] for one in told[4].pop("reasons").values()] == ["line 2"]
    assert told[4] == {"accepted": 1, "malformed": 1}
    assert bench.meters.groups == [("elm", 1), ("elm", 4), ("oak", 4)], "one trip for each zone"
    assert len(bench.meters.rows) == 5


def test_reasons_are_of_each_ones_own_rows(bench: Bench) -> None:
    """Ten lengths are named: shorter ones of another sender took the place of some."""
    long = [("elm-0", START, 3601 + i, 1) for i in range(10)]
    _, own, _ = bench.send(
        as_ndjson(rows("elm", 1)),
        (as_ndjson(long), NDJSON),
        (as_ndjson([("elm-2", START, 3600, 1)]), NDJSON),
    )
    assert sum("lasts 36" in reason for reason in own.json()["reasons"]) == 10


def test_a_broken_body_is_its_senders_own_trouble(bench: Bench) -> None:
    broken = as_json(rows("elm", 1))[:-1] + b", oh"
    answers = bench.send(
        as_ndjson(rows("elm", 0)),
        (broken, {"Content-Type": "application/json", **AUTH}),
        (as_ndjson(rows("elm", 2)), NDJSON),
    )
    assert [answer.status_code for answer in answers] == [200, 400, 200]
    assert answers[1].json().get("accepted", 0) == len(bench.meters.rows) - 2
    assert receipt(answers[2]) == {"accepted": 1}


def test_a_zone_that_is_away_is_not_the_others_trouble(bench: Bench) -> None:
    bench.meters.away = ("oak",)
    answers = bench.send(
        as_ndjson(rows("elm", 0)),
        (as_ndjson(rows("oak", 0)), NDJSON),
        (as_ndjson(rows("elm", 1)), NDJSON),
        (as_ndjson(rows("elm", 2) + rows("oak", 1)), NDJSON),
    )
    assert [answer.status_code for answer in answers] == [200, 503, 200, 503]
    assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 503)
    bench.meters.away = ()
    again = bench.send(as_ndjson(rows("elm", 2) + rows("oak", 1)))
    assert receipt(again[0]) == {"accepted": 1, "duplicate": 1}, "the same sent again is whole"


def test_a_sender_that_leaves_takes_nobody_along(bench: Bench) -> None:
    async def leave() -> int:
        transport = httpx.ASGITransport(app=bench.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            sent = [
                asyncio.create_task(
                    client.post(
                        "/v1/readings", content=as_ndjson(rows("elm", house)), headers=NDJSON
                    )
                )
                for house in range(3)
            ]
            await asyncio.to_thread(bench.meters.begun.wait, 30)
            sent[0].cancel()
            sent[1].cancel()
            bench.meters.go_on.set()
            return (await sent[2]).status_code

    assert asyncio.run(leave()) == 200
    assert ("elm", 2, START) in bench.meters.rows
