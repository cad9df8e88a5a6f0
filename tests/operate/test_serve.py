"""The running process, whole: readings in over HTTP and MQTT, prices out, stopped and gone on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid import Policy
from hushgrid.curator.clock import FastClock, utc
from hushgrid.curator.curator import Curator
from hushgrid.curator.status import from_ledger, from_service
from hushgrid.errors import LedgerAwayError, LedgerError, MeterError, MeterRetryError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Http, Mqtt
from hushgrid.files.weeks import in_week
from hushgrid.operate import process, serve
from hushgrid.operate.process import Process, ZoneRun
from hushgrid.stores.ledger import open_store, recovery
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature
from hushgrid.stores.meters import MeterStore, open_meters
from hushgrid.web import mqtt as mqtt_module
from tests.curator.worlds import START, TOKEN, deployment, service
from tests.operate.served import SECONDS, described
from tests.web.brokers import Broker, free_port, until
from tests.web.http.faces import NDJSON, as_ndjson
from tests.web.messages import heard, send
from tests.web.running import Wall

ROOT = Path(__file__).parents[2]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    made = Broker(tmp_path / "broker")
    made.start()
    yield made
    made.stop()


class Running:
    """The process of `served`, and its log."""

    def __init__(self, folder: Path, *numbers: int) -> None:
        self.log = folder / f"log-{time.monotonic_ns()}"
        self.url = f"http://127.0.0.1:{numbers[0]}"
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.operate.served", str(folder)]
                + [str(number) for number in numbers],
                stderr=stream,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            )
        assert until(self.ready, 120), self.log.read_text()

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> list[dict[str, Any]]:
        """What it logged; it must end well."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def standing(ledger: str, zone: str) -> LedgerState:
    with open_store(ledger, create=False) as store:
        report = check(store.records(zone), verify_signature, {})
    assert report.first_bad is None, report.reason
    return report.standings[zone]


def rows(meters: tuple[str, ...], wh: int) -> list[tuple[str, int, int, int]]:
    """Readings of the intervals from now on."""
    first = int(time.time()) // SECONDS * SECONDS
    starts = range(first, first + 60, SECONDS)
    return [(meter, start, SECONDS, wh) for start in starts for meter in meters]


def test_a_service_runs_stops_and_goes_on(tmp_path: Path, broker: Broker) -> None:
    begins = int(time.time()) // SECONDS * SECONDS
    numbers = (free_port(), broker.port, begins)
    made = described(tmp_path, *numbers)
    elm, oak = made.zones
    running = Running(tmp_path, *numbers)
    try:
        with pytest.raises(MeterError, match="in use"):
            open_meters(made.meters)
        every = rows(oak.meters, 400)
        few = every[5 * len(oak.meters) : 7 * len(oak.meters)]  # two intervals, soon
        by_http = as_ndjson([*rows(elm.meters[:3], 777_001), *few])
        answer = httpx.post(f"{running.url}/v1/readings", content=by_http, headers=NDJSON)
        assert answer.json()["accepted"] > 80  # of 3 * 30 + 6
        assert until(lambda: "broker here" in running.log.read_text())
        send(broker, as_ndjson(rows(elm.meters[3:], 777_002)))

        def complete(zone: str) -> bool:
            found = standing(made.ledger, zone).releases
            return any(r.source == "readings" for r in found)

        assert until(lambda: complete("elm-street")), running.log.read_text()
        elm_price = f"{running.url}/v1/price?zone=elm-street"
        assert until(lambda: httpx.get(elm_price).status_code == 200)  # recorded first, then shown
        price = httpx.get(elm_price).json()
        assert price["currency"] == "EUR"
        assert price["simulated"] is True
        assert price["start"] <= utc(int(time.time()))
        assert heard(broker, "hushgrid/elm-street/price")["zone"] == "elm-street"
        assert until(lambda: (tmp_path / "prices.json").exists())
        # after the two releases from readings the public forecast, and the zone goes on
        sources = lambda: [r.source for r in standing(made.ledger, "oak-lane").releases]  # noqa: E731
        assert until(lambda: sources().count("readings") == 2 and sources()[-1] == "forecast")
        assert until(lambda: [s.state for s in from_service(running.url)][1] == "no readings")
        assert sources().count("readings") == 2
        by_ledger = {one.zone: one for one in from_ledger(made, time.time())}  # takes no lock
        assert by_ledger["oak-lane"].room == 1.0
        counted = 'hushgrid_releases_total{source="forecast",zone="oak-lane"}'
        assert until(lambda: counted in httpx.get(f"{running.url}/metrics").text)
        lines = running.stop()
    finally:
        running.process.kill()
    before = standing(made.ledger, "elm-street")
    _check_log(lines)
    again = Running(tmp_path, *numbers)
    try:
        assert until(lambda: httpx.get(elm_price).status_code == 200)
        assert until(lambda: standing(made.ledger, "elm-street").last_t > before.last_t)
        again.stop()
    finally:
        again.process.kill()
    after = standing(made.ledger, "elm-street")
    assert after.releases[: len(before.releases)] == before.releases
    steps = [release.t for release in after.releases]
    assert steps == sorted(set(steps)), "a step is published once"
    assert len(after.terms_records) == 1


def _check_log(lines: list[dict[str, Any]]) -> None:
    events = [line["event"] for line in lines]
    assert events[-1] == "stopped"
    assert {"zone open", "listening", "serving", "released", "readings"} <= set(events)
    assert all({"time", "level", "event"} <= set(line) for line in lines)
    assert not [line for line in lines if line["level"] == "error"]
    text = json.dumps(lines)
    for secret in (TOKEN, "777001", "777002", "elm-street-0"):
        assert secret not in text


class Threaded:
    """`serve` in a thread, minutes passing in half a second."""

    def __init__(self, folder: Path, *zones: str) -> None:
        self.made = deployment(
            folder, *(service(zone, 3, begins=START - START % 60, seconds=60) for zone in zones)
        )
        self.stop, self.errors = threading.Event(), []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            serve(self.made, clock=FastClock(START, 120.0), stop=self.stop)
        except BaseException as error:
            self.errors.append(error)

    def last(self, zone: str) -> int:
        try:
            return standing(self.made.ledger, zone).last_t
        except (LedgerError, KeyError):
            return 0

    def end(self) -> None:
        self.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert not self.errors


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        *(
            pytest.param(error, marks=pytest.mark.soak)
            for error in (LedgerError("away."), ZeroDivisionError("77"))
        ),
    ],
)
def test_a_zone_that_fails_comes_back_and_the_others_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    failing, failed = threading.Event(), threading.Event()
    failing.set()
    tick = Curator.tick

    def broken(self: Curator, now: float) -> Any:
        if self.service.id == "oak-lane" and failing.is_set():
            failed.set()
            raise error
        return tick(self, now)

    monkeypatch.setattr(Curator, "tick", broken)
    running = Threaded(tmp_path, "elm-street", "oak-lane")
    try:
        assert failed.wait(60)
        seen = running.last("elm-street")
        assert until(lambda: running.last("elm-street") > seen + 2), "the other zone goes on"
        assert running.last("oak-lane") == 0
        failing.clear()
        assert until(lambda: running.last("oak-lane") > 0), "the zone comes back"
    finally:
        running.end()
    assert "zone failed" in caplog.messages


def test_a_zone_that_fails_keeps_readings_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, zone = Wall(START), service()
    with ExitStack() as stack:
        process = Process(deployment(tmp_path, zone), stack)
        process.open(START)
        houses = range(len(zone.meters))
        process._meters.put(zone.id, houses, [START] * 6, [900] * 6, [100] * 6)
        clock.wall += 900 + zone.grace
        process.turn(clock)
        assert process._meters.get(zone.id, START).present.all()

        def away(*_: object, **__: object) -> None:
            raise LedgerError("away.")

        monkeypatch.setattr(Curator, "run", away)
        monkeypatch.setattr(ZoneRun, "open", away)
        clock.wall += zone.retention + 900
        process.turn(clock)
        with pytest.raises(MeterError, match="purged"):
            process._meters.get(zone.id, START)


def test_a_zone_that_stays_behind_keeps_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A curator that takes over replays what follows the last one."""

    monkeypatch.setattr(Curator.keep_checkpoint, "__defaults__", (2,))
    clock, zone = Wall(START), service()
    made = deployment(tmp_path, zone)
    with ExitStack() as stack:
        process = Process(made, stack)
        process.open(START)
        houses = range(len(zone.meters))
        for start in range(START, START + 4 * 900, 900):
            process._meters.put(zone.id, houses, [start] * 6, [900] * 6, [100] * 6)
        clock.wall += 4 * 900 + zone.grace
        passes = iter(range(3))  # stopped while one interval is due
        process.turn(clock, stopped=lambda: next(passes, None) is None)
        with open_store(made.ledger, create=False) as store:
            checkpoint, head = store.checkpoint(zone.id), store.head(zone.id)
    assert head is not None
    assert checkpoint is not None
    assert head.seq - checkpoint[1] < 2


def test_next_weeks_begin_once_all_zones_have_their_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A week takes a second to begin: of many zones the last would be minutes late."""
    clock, order = Wall(START), list[str]()
    zones = [service(name, policy=Policy(0.5, horizon=2)) for name in ("a", "b", "c")]
    tick = Curator.tick

    def ticked(curator: Curator, now: float) -> ReleaseRecord:
        order.append(f"price {curator.service.id}")
        return tick(curator, now)

    def begun(zone: ZoneService, t: int) -> ZoneService:
        later = in_week(zone, t)
        if later is not zone:
            order.append(f"week {zone.id}")
            clock.wall += 450  # the third one has to wait: an interval closes
        return later

    monkeypatch.setattr(Curator, "tick", ticked)
    with ExitStack() as stack:
        process = Process(deployment(tmp_path, *zones), stack)
        process.open(START)
        monkeypatch.setattr("hushgrid.curator.curator.in_week", begun)
        for n in (1, 2, 3):
            clock.wall = START + 900 * n + zones[0].grace
            process.turn(clock)
    prices = ["price a", "price b", "price c"]
    assert order[:8] == [*prices, *prices, "week a", "week b"]
    assert order[8:] == ["price a", "price b", "week c", "price c"], "its week comes first"


def test_a_service_that_cannot_begin_says_so(tmp_path: Path) -> None:
    made = deployment(tmp_path, service())
    stop = threading.Event()
    stop.set()
    serve(made, clock=FastClock(START, 1.0), stop=stop)
    other = deployment(tmp_path, service(policy=Policy(0.7, horizon=500)))
    with pytest.raises(LedgerError, match="--yes"):
        serve(other, clock=FastClock(START, 1.0), stop=stop)
    with pytest.raises(LedgerError, match="is for simulation"):
        serve(
            deployment(tmp_path, service(), mode="production"),
            clock=FastClock(START, 1.0),
            stop=stop,
        )


def test_a_zone_is_tried_again_after_a_pause_that_grows() -> None:
    now, tried = [0.0], []

    def never(zone: Any, at: float, new_terms: bool) -> Any:
        tried.append(now[0])
        raise OSError

    run = ZoneRun(service(), never, steady=lambda: now[0])
    while now[0] < 200:
        assert run.run(now[0]) is None
        now[0] += 0.5
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize("error", [LedgerAwayError, MeterRetryError])
def test_a_server_that_is_away_is_asked_every_half_second(error: type[Exception]) -> None:
    now, tried = [0.0], []

    def never(zone: Any, at: float, new_terms: bool) -> Any:
        tried.append(now[0])
        raise error("away")

    run = ZoneRun(service(), never, steady=lambda: now[0], server=True)
    while now[0] < 100:
        assert run.run(now[0]) is None
        now[0] += 0.5
    assert {later - earlier for earlier, later in pairwise(tried)} == {0.5}


def test_a_zone_that_opens_slowly_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PATIENCE", 0.05)
    made = deployment(tmp_path, service(), service("oak-lane", 3), http=Http(port=free_port()))
    url = f"http://127.0.0.1:{made.http and made.http.port}/v1/price"
    stop, go_on, fold = threading.Event(), threading.Event(), recovery.refold

    def slow(store: Any, zone: str, under_way: Any) -> None:
        if zone == "elm-street":
            assert go_on.wait(60)
        fold(store, zone, under_way)

    def price(zone: str) -> bool:
        try:
            answer = httpx.get(url, params={"zone": zone})
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    monkeypatch.setattr(recovery, "refold", slow)
    clock = FastClock(START, 900.0)  # an interval in a second
    running = threading.Thread(target=serve, args=(made,), kwargs={"clock": clock, "stop": stop})
    running.start()
    try:
        assert until(lambda: price("oak-lane"))
        assert not price("elm-street")
        go_on.set()
        assert until(lambda: price("elm-street"))
    finally:
        go_on.set()
        stop.set()
        running.join(60)


def test_a_meter_store_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    zone, file = service(), tmp_path / "meters"
    readings = ([0, 1], [START] * 2, [900] * 2, [7, 7])
    with MeterStore(file) as store:
        assert not file.exists(), "it is opened with the first call"
        store.open_zone(zone.id, zone.meters, zone.seconds)
        assert store.put(zone.id, *readings).accepted == 2
        store.open().close()  # all is in the file
        whole = file.read_bytes()
        file.write_bytes(b"?" * len(whole))
        for _ in range(2):
            with pytest.raises(MeterError, match="damaged"):
                store.put(zone.id, *readings)
        file.write_bytes(whole)
        assert store.put(zone.id, *readings).duplicate == 2


def test_two_services_on_one_broker_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    class Named:
        def __init__(self, _mqtt: Mqtt, client_id: str, _name: str) -> None:
            names.append(client_id)

        def stop(self) -> None:
            pass

        def publish(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(mqtt_module, "MqttPrices", Named)
    stop = threading.Event()
    stop.set()
    for name in ("one", "two", "two"):
        (tmp_path / name).mkdir(exist_ok=True)
        made = deployment(tmp_path / name, service(), mqtt=Mqtt("localhost", prices="prices"))
        serve(made, clock=FastClock(START, 1.0), stop=stop)
    assert names[0] != names[1] == names[2]
