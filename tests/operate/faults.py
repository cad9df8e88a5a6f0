"""The whole service in trouble: `serve` runs in the test's own thread, and between two passes of
its loop the test's story goes on. A World is its clock and its stop event, and remembers what
senders were promised and what was shown, to hold it against the stores in the end.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from hushgrid.curator.changes import Changes
from hushgrid.curator.clock import JsonLines, WatchedClock, utc
from hushgrid.curator.curator import Curator
from hushgrid.curator.status import from_ledger
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.settings import Http
from hushgrid.operate import process as running
from hushgrid.operate import process as serving
from hushgrid.operate import serve
from hushgrid.operate.reload import Reload
from hushgrid.stores.clients import Client, ClientStore
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import load as load_key
from hushgrid.stores.ledger.writer import verify_signature
from hushgrid.stores.meters import open_meters
from hushgrid.web.tokens import make_token
from tests.curator.worlds import TOKEN, deployment
from tests.curator.worlds import service as zone_service
from tests.web.brokers import free_port
from tests.web.http.credentials import KEPT
from tests.web.http.faces import NDJSON, as_ndjson

QUARTER = 900
BEGINS = 1_767_571_200  # 2026-01-05T00:00:00Z
FIRST = BEGINS // QUARTER
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


def wh(house: int, t: int) -> int:
    """What a house counted [Wh]: below its bound, and a number that nothing else has."""
    return 701 + 13 * house + 29 * (t % 7)


def zone(name: str = "elm", houses: int = 4, **more: Any) -> ZoneService:
    return zone_service(name, houses, **({"begins": BEGINS} | more))


def service(folder: Path, *zones: ZoneService, **more: Any) -> Deployment:
    """Readings over HTTP, prices over HTTP and in a file."""
    own = {"http": Http(port=free_port(), tokens=(DIGEST,)), "price_file": folder / "prices.json"}
    return deployment(folder, *(zones or (zone(),)), **(own | more))


def lose_meters(made: Deployment) -> None:
    """Delete the meter store, with the log and the lock next to it."""
    path = Path(made.meters)
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


Story = Callable[["World"], Iterator[None]]


def _all_change(made: Deployment, now: float) -> Changes:
    """Every zone begins anew at its `begins`, whatever its ledger has."""
    del now
    return Changes(made, {zone.id: "its terms" for zone in made.zones})


class World:
    """Time stands still unless the story moves it: `t` is the interval that is going on."""

    def __init__(self, made: Deployment, t: int = FIRST) -> None:
        self.made, self.t = made, t
        self.steady = self.time = float(t * QUARTER)
        self.accepted: set[tuple[str, int, int]] = set()
        self.unsure: set[tuple[str, int]] = set()  # intervals for which an answer did not come
        self.shown: dict[str, dict[str, Any]] = {}  # by head
        self.missing: dict[tuple[str, int], int | None] = {}  # as the curator counted them
        with ClientStore(made.client_store) as clients:
            if clients.find("op") is None:
                clients.add(Client("op", ("operate",), KEPT, 1))
        self._over = False
        self._story: Iterator[None] = iter(())
        self._web = httpx.Client()

    # ---- what `serve` asks of a clock and of an event

    def now(self) -> float:
        return self.time

    def is_set(self) -> bool:
        return self._over

    def wait(self, seconds: float) -> None:
        del seconds
        try:
            next(self._story)
        except StopIteration:
            self._over = True

    def play(self, story: Story, *, new_terms: bool = False, reload: Reload | None = None) -> None:
        """One run of the process; each `yield` of the story is one pass of its loop."""
        self._over, self._story = False, story(self)
        with self.connected(), self._counting():
            clock = WatchedClock(self, steady=lambda: self.steady)
            changes = _all_change if new_terms else None
            serve(
                self.made, clock=clock, stop=self, changed=new_terms, changes=changes, reload=reload
            )  # type: ignore[arg-type]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """With the service's address at hand."""
        address = f"http://127.0.0.1:{self.made.http and self.made.http.port}"
        with httpx.Client(base_url=address) as self._web:
            yield

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Keep how many meters each tick finds missing: no record says so."""
        publish = Curator._body

        def noted(curator: Curator, start: int, now: float) -> Any:
            made = publish(curator, start, now)
            self.missing[curator.service.id, start // QUARTER] = curator.status.missing
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Curator, "_body", noted)
            yield

    # ---- what a story does

    def send(self, t: int | None = None, houses: tuple[int, ...] | None = None) -> int:
        """The readings of an interval from every zone; the worst answer."""
        t, worst = self.t if t is None else t, 200
        for one in self.made.zones:
            some = tuple(range(len(one.meters))) if houses is None else houses
            rows = [(one.meters[h], t * QUARTER, QUARTER, wh(h, t)) for h in some]
            try:
                answer = self._web.post("/v1/readings", content=as_ndjson(rows), headers=NDJSON)
            except httpx.TransportError:
                self.unsure.add((one.id, t))
                return 0
            counts = answer.json()
            if answer.status_code == 200:
                stored = counts["accepted"] + counts["duplicate"]
                assert stored + counts["late"] + counts["damaged"] == len(some)
                if stored == len(some):
                    self.accepted |= {(one.id, t, house) for house in some}
            else:
                assert counts.get("accepted", 0) == 0, "the readings of one zone are all or none"
            worst = max(worst, answer.status_code)
        return worst

    def ahead(self, intervals: int = 1) -> None:
        """Intervals end, and the last one's grace."""
        self.t += intervals
        before, self.time = self.time, float(self.t * QUARTER + self.made.zones[0].grace)
        self.steady += self.time - before

    def jump(self, hours: int) -> None:
        """Somebody sets the clock."""
        self.time += 3600 * hours
        self.t += 4 * hours

    def look(self) -> None:
        """Remember every price that can be seen."""
        for one in self.made.zones:
            answer = self._web.get("/v1/price", params={"zone": one.id})
            if answer.status_code == 200:
                self.note(answer.json())
        path = self.made.price_file
        if path is not None and path.exists():
            for price in json.loads(path.read_text()).values():
                self.note(price)

    def note(self, found: dict[str, Any]) -> None:
        for price in published(found):
            assert self.shown.setdefault(price["head"], price) == price

    def whole(self, intervals: int = 1) -> Iterator[None]:
        """Intervals in which nothing is wrong."""
        for _ in range(intervals):
            assert self.send() == 200
            self.ahead()
            yield
            self.look()

    def until(self, true: Callable[[], bool], seconds: float = 60.0) -> Iterator[None]:
        """Passes while time stands still; the limit is for failures only."""
        end = monotonic() + seconds
        while not true():
            assert monotonic() < end
            sleep(0.02)
            yield

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self._web.get(path, headers=headers)

    def figures(self) -> str:
        """All figures, as an operator reads them."""
        seal = load_key(self.made.key).derive("access tokens")
        token = make_token(seal, "op", ["operate"], int(self.time) + 10**6, b"n")
        return self._web.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text

    # ---- afterwards

    def standing(self, zone: str = "elm") -> LedgerState:
        """What the ledger says, every record checked."""
        with open_store(self.made.ledger, create=False) as store:
            durable = {d: zone for d in [store.witness(zone)] if d is not None}
            report = check(store.records(zone), verify_signature, durable)
        assert report.first_bad is None, report.reason
        return report.standings[zone]

    def releases(self, zone: str = "elm") -> dict[int, ReleaseRecord]:
        return {one.t: one for one in self.standing(zone).releases}

    def judge(self) -> None:
        """Nothing lost, nothing twice, nothing shown that is not recorded."""
        found: dict[str, ReleaseRecord] = {}
        statuses = {status.zone: status for status in from_ledger(self.made, self.time)}
        for one in self.made.zones:
            standing = self.standing(one.id)
            _judge_order(standing)
            found |= {release.head: release for release in standing.releases}
            assert statuses[one.id].t == standing.reach_step
            self._judge_counts(one, standing)
        for head, price in self.shown.items():
            assert head in found, "something was shown that the ledger lacks"
            recorded = (found[head].zone, found[head].rate, utc(found[head].applies_start))
            assert (price["zone"], price["price"], price["start"]) == recorded
        self._judge_readings()

    def _judge_counts(self, one: ZoneService, standing: LedgerState) -> None:
        """What was accepted for an interval went into its release."""
        there = Counter(t for zone, t, _ in self.accepted if zone == one.id)
        for release in standing.current:
            found, most = self.missing.get((one.id, release.t)), len(one.meters) - there[release.t]
            unsure = (one.id, release.t) in self.unsure
            assert release.counts == {"houses": len(one.meters)}
            if found is None:  # published by a process of its own
                assert release.source == "readings" or not there[release.t]
            else:
                assert found <= most if unsure else found == most

    def _judge_readings(self) -> None:
        with open_meters(self.made.meters) as meters:
            for one in self.made.zones:
                meters.open_zone(one.id, one.meters, one.seconds)
            for zone, t, house in self.accepted:
                interval = meters.get(zone, t * QUARTER)
                assert interval.present[house], "an accepted reading is lost"
                assert interval.wh[house] == wh(house, t)


def _judge_order(standing: LedgerState) -> None:
    steps = [release.t for release in standing.releases]
    assert steps == sorted(set(steps)), "a step is published once"
    times = [release.published_at for release in standing.releases]
    assert times == sorted(times)
    assert all(r.start == r.t * QUARTER for r in standing.releases)


def judge_logs(world: World, caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines as they would be written: without a reading, a load or a secret."""
    form = JsonLines()
    lines = [json.loads(form.format(record)) for record in caplog.records]
    secret = {str(wh(house, t)) for _, t, house in world.accepted}
    for one in world.made.zones:
        for t in {t for zone, t, _ in world.accepted if zone == one.id}:
            houses = [h for zone, at, h in world.accepted if (zone, at) == (one.id, t)]
            secret.add(str(sum(wh(h, t) for h in houses)))
    told = [{k: v for k, v in line.items() if k not in ("time", "t", "trace")} for line in lines]
    words = set(re.findall(r"[A-Za-z0-9_-]+", json.dumps(told)))
    assert not words & secret
    assert not words & {TOKEN, *(meter for one in world.made.zones for meter in one.meters)}
    assert logging.getLogger("hushgrid").getEffectiveLevel() <= logging.INFO
    return lines


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone that failed is opened again in the next pass."""
    for module in (running, serving):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.0)


def published(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The prices of an answer of /v1/price that have a record: the one in force and the next."""
    own = {name: value for name, value in found.items() if name != "next"}
    return [one for one in (own, found.get("next")) if one and one["kind"] == "published"]
