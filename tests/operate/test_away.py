"""The service while its broker or its database is away: it goes on, or waits, and loses nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from hushgrid.curator.publishers import price
from hushgrid.files.settings import Mqtt
from hushgrid.stores.ledger import store
from hushgrid.web import mqtt
from tests.disks import fill, small_disk
from tests.operate.faults import DIGEST, FIRST, QUARTER, World, judge_logs, no_pauses, service, wh
from tests.services import Postgres
from tests.web.brokers import Broker
from tests.web.http.faces import as_ndjson
from tests.web.messages import heard, send

__all__ = ["no_pauses"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    made = Broker(tmp_path / "broker")
    yield made
    made.stop()


def by_broker(world: World, broker: Broker, *houses: int) -> None:
    """Readings of the interval, each a message that the broker has confirmed."""
    one = world.made.zones[0]
    rows = [(one.meters[h], world.t * QUARTER, QUARTER, wh(h, world.t)) for h in houses]
    sender = f"token:{DIGEST[:8]}"  # the one that sends over HTTP: the meters are its own
    send(broker, *(as_ndjson([row]) for row in rows), sender=sender)
    world.accepted |= {(one.id, world.t, house) for house in houses}


def taken(world: World) -> int:
    """Readings that came over the broker and are stored."""
    name = 'hushgrid_readings_total{kind="accepted",way="mqtt"} '
    (line,) = [line for line in world.figures().splitlines() if line.startswith(name)]
    return int(float(line.removeprefix(name)))


def newest_is_heard(world: World, broker: Broker) -> None:
    found = heard(broker, "hushgrid/elm/next")
    release = world.standing().releases[-1]
    assert found == price(world.made.zones[0], release)
    world.note(found)


@pytest.mark.usefixtures("loop_patience")
@pytest.mark.soak
def test_a_broker_that_is_away(
    tmp_path: Path,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(mqtt, "LAST_PAUSE", 1.0)
    ways = Mqtt("127.0.0.1", broker.port, "hushgrid/+/readings", "hushgrid/{zone}/price")
    world = World(service(tmp_path, mqtt=ways))

    def shown_again() -> int:
        return caplog.messages.count("shown again")

    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)  # there is none yet
        broker.start()
        yield from world.until(lambda: shown_again() == 1)
        newest_is_heard(world, broker)
        yield from world.until(lambda: "broker here" in caplog.messages)
        by_broker(world, broker, 0, 1)
        assert world.send(houses=(2, 3)) == 200
        yield from world.until(lambda: taken(world) == 2)
        world.ahead()
        yield
        newest_is_heard(world, broker)
        broker.stop()
        yield from world.until(lambda: "broker away" in caplog.messages[-200:])
        yield from world.whole(2)  # in time, with what comes another way
        broker.start()
        by_broker(world, broker, 0, 1, 2, 3)  # for a session that nobody uses just now
        yield from world.until(lambda: shown_again() == 2 and taken(world) == 6)
        newest_is_heard(world, broker)
        world.ahead()
        yield

    world.play(story)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + 6))
    lines = judge_logs(world, caplog)
    assert len([line for line in lines if line["event"] == "not shown"]) <= 3, "told, not repeated"
    # stopped: what senders hand to the broker meanwhile, which is stopped as well, comes later
    by_broker(world, broker, 0, 1)
    broker.stop()
    broker.start()

    def comes_late(world: World) -> Iterator[None]:
        yield from world.until(lambda: taken(world) == 2)
        assert world.send() == 200
        world.ahead()
        yield

    world.play(comes_late)
    world.judge()


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("mode", ["immediate", "fast"])
@pytest.mark.sampled
def test_a_database_that_is_restarted(
    tmp_path: Path, postgres: Postgres, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    database = postgres.fresh()
    world = World(service(tmp_path, ledger=database, meters=database))

    def load(t: int) -> None:
        for house in range(4):
            while world.send(t, (house,)) != 200:
                sleep(0.02)

    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        sender = threading.Thread(target=load, args=(world.t,))
        sender.start()
        postgres.stop(mode)
        postgres.start()
        sender.join(60)
        assert not sender.is_alive()
        world.ahead()
        yield  # on connections that are gone
        yield from world.until(lambda: world.get("/readyz").status_code == 200)
        world.look()
        assert world.send() == 200
        postgres.stop(mode)
        try:
            for _ in range(2):
                world.ahead()
                assert world.send() == 503
                yield
                assert world.get("/readyz").status_code == 503
        finally:
            postgres.start()
        yield from world.until(lambda: world.get("/readyz").status_code == 200)
        yield from world.whole(2)

    world.play(story)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + 7))
    judge_logs(world, caplog)


class Waited:
    """In place of the module `time`: how long an append has waited, without the waiting."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.soak
def test_an_append_waits_for_seconds_and_the_zone_is_opened_again(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All zones of the process wait for it meanwhile."""
    waited = Waited()
    monkeypatch.setattr(store, "time", waited)
    world = World(service(tmp_path, ledger=postgres.fresh()))  # the readings are in a file

    def story(world: World) -> Iterator[None]:
        yield from world.whole(1)
        assert world.send() == 200
        postgres.stop()
        try:
            world.ahead()
            yield
            assert 0 < waited.now <= 5
        finally:
            postgres.start()
        yield from world.until(lambda: world.get("/readyz").status_code == 200)
        yield from world.whole(1)

    world.play(story)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + 3))


@pytest.mark.usefixtures("no_pauses", "loop_patience")
def test_readings_wait_with_the_broker_while_the_disk_is_full(
    tmp_path: Path,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(mqtt, "LAST_PAUSE", 1.0)
    broker.start()
    ways = Mqtt("127.0.0.1", broker.port, "hushgrid/+/readings", "hushgrid/{zone}/price")
    with small_disk(tmp_path / "disk") as disk:
        world = World(service(tmp_path, mqtt=ways, meters=str(disk / "meters")))

        def story(world: World) -> Iterator[None]:
            yield from world.until(lambda: "broker here" in caplog.messages)
            yield from world.whole(1)
            filler = fill(disk)
            by_broker(world, broker, 0, 1, 2, 3)
            yield from world.until(lambda: "readings left with the broker" in caplog.messages)
            assert taken(world) == 0
            filler.unlink()
            yield from world.until(lambda: taken(world) == 4)
            world.ahead()
            yield
            newest_is_heard(world, broker)

        world.play(story)
        world.judge()
        assert list(world.releases()) == [FIRST, FIRST + 1]
        judge_logs(world, caplog)
