"""A running service is asked to read its changed file: no interval is left without a price from
readings, and a mistake leaves it as it runs."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from hushgrid import Policy, Tariff
from hushgrid.audit.certificate import certify
from hushgrid.curator.terms import digest_of
from hushgrid.errors import FileError, LedgerError
from hushgrid.files.deployment import Deployment, Promise, ZoneService
from hushgrid.mechanism.policy import Blocks
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.operate.reload import Reload
from hushgrid.stores.ledger.entries import first_step, last_step
from tests.curator.planned import from_file
from tests.curator.setups import street_in
from tests.operate.faults import FIRST, World, no_pauses, service, wh, zone
from tests.web.brokers import free_port, until

__all__ = ["no_pauses"]

LENGTH = 4  # steps of a block


def blocks(epsilon: float = 0.8, houses: int = 4, name: str = "elm", **more: object) -> ZoneService:
    """A zone whose noise lasts blocks of four steps, of which an hour touches two."""
    policy = Policy(epsilon, horizon=400, schedule=Blocks((LENGTH,) * 100, (epsilon,) * 100))
    promise = Promise("window", 2 * epsilon, window=3600)
    return zone(name, houses, policy=policy, promise=promise, **more)


def priced(made: ZoneService, tariff: Tariff) -> ZoneService:
    return replace(made, scenario=replace(made.scenario, tariff=tariff))


class File:
    """A service file that can be changed, and be wrong."""

    def __init__(self, made: Deployment) -> None:
        self.made: Deployment | None = made
        self.reload = Reload(self.read)

    def read(self) -> Deployment:
        if self.made is None:
            raise FileError("service.toml:12: policy.epsilon is -1; give a number above 0.")
        return self.made

    def change(self, world: World, *zones: ZoneService) -> None:
        self.made = replace(world.made, zones=zones)
        self.reload.request()


def meters_of(world: World, file: File) -> None:
    """Senders know of the change."""
    assert file.made is not None
    world.made = file.made


def sources(world: World, name: str = "elm") -> list[str]:
    return [release.source for release in world.releases(name).values()]


def judge_whole(world: World, first: int = FIRST, name: str = "elm") -> None:
    """Each interval has a price from readings, and each price follows from the last."""
    releases = world.releases(name)
    assert list(releases) == list(range(first, first + len(releases)))
    assert set(sources(world, name)) == {"readings"}
    for one, following in pairwise(releases.values()):
        assert following.applies_from == one.applies_from + 1
        same = one.digest == following.digest
        assert same or last_step(one) == one.t or one.block is None


def audited(world: World, *zones: ZoneService) -> set[str]:
    evidence, chain = load_ledger(world.made.ledger, zone=None, key=None, heads=())
    found = certify(evidence, [terms_of(one) for one in zones], chain=chain)
    return {check.id for check in found.checks if check.status == "failed"}


def played(world: World, file: File, *parts: Callable[[World], Iterator[None]]) -> None:
    def story(world: World) -> Iterator[None]:
        for part in parts:
            yield from part(world)

    world.play(story, reload=file.reload)


def whole(count: int) -> Callable[[World], Iterator[None]]:
    return lambda world: world.whole(count)


def test_a_tariff_begins_at_once(tmp_path: Path) -> None:
    made = blocks()
    other = priced(made, Tariff(2.0, 30.0))
    world = World(service(tmp_path, made))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        file.change(world, other)
        yield

    played(world, file, whole(2), asks, whole(4))
    world.judge()
    judge_whole(world)
    standing = world.standing()
    assert (len(standing.terms_records), len(standing.tariffs)) == (1, 2)
    assert standing.tariffs[-1].begins == (FIRST + 2) * 900
    assert first_step(standing.releases[1]) == first_step(standing.releases[2]), "within a block"
    assert audited(world, made) == set()
    world.made = file.read()
    world.play(lambda world: world.whole(1))  # and a plain restart asks nothing of the new file
    assert len(world.standing().tariffs) == 2


@pytest.mark.parametrize("at", [1, LENGTH])
@pytest.mark.sampled
def test_a_promise_begins_at_the_border_of_the_block(tmp_path: Path, at: int) -> None:
    """Also where it is asked for at the border itself: the next block is not open yet."""
    made, other = blocks(0.8), priced(blocks(0.4), Tariff(2.0, 30.0))
    world = World(service(tmp_path, made))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        file.change(world, other)
        yield

    played(world, file, whole(at), asks, whole(8))
    world.judge()
    judge_whole(world)
    terms = world.standing().terms_records
    assert [one.first for one in terms] == [FIRST, FIRST + LENGTH]
    assert world.standing().tariffs[-1].begins == (FIRST + LENGTH) * 900
    assert audited(world, made, other) == set()


def test_a_roster_begins_at_the_border_of_the_block(tmp_path: Path) -> None:
    made, other = blocks(), replace(blocks(houses=5), meters=(*blocks().meters[::-1], "elm-new"))
    world = World(service(tmp_path, made))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        file.change(world, other)
        yield

    def goes_on(world: World) -> Iterator[None]:
        meters_of(world, file)
        yield from world.whole(5)

    played(world, file, whole(1), asks, whole(3), goes_on)
    releases = world.releases()
    judge_whole(world)
    assert [releases[t].counts["houses"] for t in releases] == [4] * LENGTH + [5] * 5
    assert all(world.missing["elm", t] == 0 for t in releases)
    assert audited(world, made, other) == set()


@pytest.mark.soak
def test_a_file_without_blocks_is_planned_for_each_change(tmp_path: Path) -> None:
    """By the second tariff alone the plan would be another: the present terms keep theirs."""
    made, other = from_file(tmp_path, (0.0275, 0.05)), from_file(tmp_path, (0.0275, 0.5))
    more = from_file(tmp_path, (0.0275, 0.5), homes=41)
    assert digest_of(made) != digest_of(other)
    length = made.policy.schedule.lengths[0]
    assert length == LENGTH
    world = World(service(tmp_path, made))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        file.change(world, other)
        yield
        yield from world.whole(1)
        file.change(world, more)
        yield
        while world.t < FIRST + length:
            yield from world.whole(1)
        meters_of(world, file)
        yield from world.whole(3)

    played(world, file, whole(1), asks)
    standing = world.standing()
    judge_whole(world)
    assert [one.first for one in standing.terms_records] == [FIRST, FIRST + length]
    assert [one.begins for one in standing.tariffs] == [FIRST * 900, (FIRST + 1) * 900]
    assert audited(world, other, more) == set()


@pytest.mark.soak
def test_each_zone_has_its_own_border(tmp_path: Path) -> None:
    elm, oak = blocks(), blocks(name="oak", begins=(FIRST + 2) * 900)
    world = World(service(tmp_path, elm, oak))
    file = File(world.made)

    def alone(world: World) -> Iterator[None]:
        for _ in range(3):
            world.send()
            world.ahead()
            yield

    def asks(world: World) -> Iterator[None]:
        file.change(world, blocks(0.4), blocks(0.4, name="oak", begins=(FIRST + 2) * 900))
        yield

    played(world, file, alone, asks, whole(7))
    judge_whole(world)
    judge_whole(world, FIRST + 2, "oak")
    assert [one.first for one in world.standing("elm").terms_records] == [FIRST, FIRST + LENGTH]
    assert [one.first for one in world.standing("oak").terms_records] == [FIRST + 2, FIRST + 6]


def test_a_file_with_a_mistake_leaves_the_service_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(service(tmp_path, blocks()))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        good, file.made = file.made, None
        file.reload.request()
        yield
        assert good is not None
        file.made = replace(good, ledger=str(tmp_path / "elsewhere.db"))
        file.reload.request()
        yield

    with caplog.at_level(logging.INFO):
        played(world, file, whole(1), asks, whole(5))
    world.judge()
    judge_whole(world)
    assert len(world.standing().terms_records) == 1
    reasons = [one.reason for one in caplog.records if one.message == "changed file not taken"]  # type: ignore[attr-defined]
    assert [("policy.epsilon is -1" in text, "ledger of the" in text) for text in reasons] == [
        (True, False), (False, True),
    ]  # fmt: skip


@pytest.mark.soak
def test_a_start_that_fails_goes_on_as_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Readings of later intervals keep the roster from changing; asked again, it does."""
    made, other = blocks(), blocks(houses=5)
    world = World(service(tmp_path, made))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        assert world.send(FIRST + LENGTH + 1) == 200
        file.change(world, other)
        yield

    def again(world: World) -> Iterator[None]:
        file.change(world, other)
        yield

    def goes_on(world: World) -> Iterator[None]:
        meters_of(world, file)
        yield from world.whole(3)

    with caplog.at_level(logging.INFO):
        played(world, file, whole(1), asks, whole(4), again, whole(3), goes_on)
    judge_whole(world)
    assert [one.first for one in world.standing().terms_records] == [FIRST, FIRST + 2 * LENGTH]
    (reason,) = [one.reason for one in caplog.records if one.message == "changed file not taken"]  # type: ignore[attr-defined]
    assert "cannot be reopened" in reason


@pytest.mark.parametrize("put_back", [False, True])
@pytest.mark.soak
def test_asked_twice_the_last_file_counts(tmp_path: Path, put_back: bool) -> None:
    made, second = blocks(), blocks(0.4)
    world = World(service(tmp_path, made))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        file.change(world, second)
        yield
        yield from world.whole(1)
        file.change(world, made if put_back else blocks(0.2))
        yield

    played(world, file, whole(1), asks, whole(6))
    world.judge()
    judge_whole(world)
    promised = [one.promise["epsilon"] for one in world.standing().terms_records]
    assert promised == ([1.6] if put_back else [1.6, 0.4])


@pytest.mark.soak
def test_a_restart_before_the_border_needs_to_be_agreed_to(tmp_path: Path) -> None:
    made, other = blocks(0.8), blocks(0.4)
    world = World(service(tmp_path, made))
    file = File(world.made)

    def asks(world: World) -> Iterator[None]:
        file.change(world, other)
        yield
        yield from world.whole(1)

    played(world, file, whole(1), asks)
    assert len(world.standing().terms_records) == 1, "it waits for the border"
    world.made = file.read()
    with pytest.raises(LedgerError, match="--yes"):
        world.play(whole(1))
    world.made = replace(world.made, zones=(made,))
    file.made = world.made
    played(world, file, whole(2))  # the old file again: nothing was lost
    judge_whole(world)


def test_curators_that_stand_by_refuse(caplog: pytest.LogCaptureFixture) -> None:
    def never() -> Deployment:
        raise AssertionError("it is not read")

    reload = Reload(never)
    reload.refuse()
    assert not caplog.records
    reload.request()
    reload.refuse()
    assert "stop all, start one with hushgrid serve --yes" in caplog.records[0].reason  # type: ignore[attr-defined]
    assert not reload.requested()


def test_readings_are_below_their_bound() -> None:
    """What these stories rest on."""
    assert all(wh(house, FIRST) < 1000 for house in range(6))


def test_a_signal_asks_a_process_for_it(tmp_path: Path) -> None:
    """As `systemctl reload` does; it ends as well as before."""
    path, port = street_in(tmp_path / "zone"), free_port()
    path.write_text(path.read_text().replace("port = 8080", f"port = {port}"))
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", "from hushgrid.cli import main; main()", "serve", str(path)],
            stdin=subprocess.DEVNULL,
            stderr=stream,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )
    try:
        assert until(lambda: alpha(port) == 0.012, 120), log.read_text()
        path.write_text(path.read_text().replace("alpha = 0.012", "alpha = 0.024"))
        process.send_signal(signal.SIGHUP)
        assert until(lambda: alpha(port) == 0.024, 120), log.read_text()
        path.write_text(path.read_text().replace("alpha = 0.024", "alpha = -1.0"))
        process.send_signal(signal.SIGHUP)
        assert until(lambda: "changed file not taken" in log.read_text(), 60)
        assert alpha(port) == 0.024
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()


def alpha(port: int) -> float | None:
    """The slope of the tariff, as anyone reads it; None where nothing answers."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/promise", params={"zone": "elm-street"})
        return float(answer.json()["tariff"]["alpha"]) if answer.status_code == 200 else None
    except httpx.TransportError:
        return None
