"""The service when its clock is set, and in the nights in which clocks on walls are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hushgrid.curator.curator import LATE
from hushgrid.curator.status import from_ledger
from hushgrid.files.deployment import Deployment
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http
from hushgrid.stores.ledger.writer import create
from tests.curator.setups import example
from tests.operate.faults import DIGEST, FIRST, QUARTER, World, judge_logs, service, zone
from tests.web.brokers import free_port

ZURICH = ZoneInfo("Europe/Zurich")


def _events(lines: list[dict[str, object]]) -> list[object]:
    return [line["event"] for line in lines]


@pytest.mark.parametrize("hours", [1, 3])
def test_a_clock_set_forward(tmp_path: Path, hours: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        world.jump(hours)
        yield
        world.look()
        assert world.send() == 200
        for skipped in range(FIRST + 2, world.t):
            late = len(world.accepted)
            assert world.send(skipped) == 200
            assert len(world.accepted) == late, "what comes for passed intervals is late"
        yield from world.whole(2)
        world.jump(-hours)  # and back again
        for _ in range(4 * hours):
            yield
            assert world.send() == 200
            world.ahead()
            world.look()
        yield
        yield from world.whole(2)

    world = World(service(tmp_path, zone(clock_limit=4 * hours)))
    world.play(story)
    world.judge()
    passed = range(FIRST + 2, FIRST + 2 + 4 * hours)
    expected = [FIRST, FIRST + 1, *passed[-LATE:], *range(passed[-1] + 1, passed[-1] + 5)]
    assert list(world.releases()) == expected
    assert all(r.applies_start > r.published_at for r in world.releases().values())
    lines = judge_logs(world, caplog)
    jumps = [line["seconds"] for line in lines if line["event"] == "clock jumped"]
    assert jumps == [3600.0 * hours, -3600.0 * hours]
    assert "zone failed" not in _events(lines)


def test_a_clock_that_is_an_hour_back_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    made = service(tmp_path)
    before = World(made)
    before.play(lambda world: world.whole(6))
    published = before.releases()
    world = World(made, before.t - 4)
    world.accepted, world.shown, world.missing = before.accepted, before.shown, before.missing

    def story(world: World) -> Iterator[None]:
        for _ in range(4):
            yield
            world.look()
            assert world.releases() == published, "nothing is published again"
            assert world.send() == 200
            world.ahead()
        yield
        yield from world.whole(2)

    world.play(story)
    world.judge()
    states = [from_ledger(made, world.time + QUARTER * late)[0].state for late in (0, 1, 3)]
    assert states == ["publishing", "publishing", "behind"]
    assert list(world.releases()) == list(range(FIRST, FIRST + 8))
    (told,) = [
        line for line in judge_logs(world, caplog) if line["event"] == "clock behind the ledger"
    ]
    assert (told["zone"], told["seconds"]) == ("elm", 3600)


@pytest.mark.parametrize(
    ("day", "quarters"),
    [
        ("2026-03-29", 92),
        ("2026-10-25", 100),
        pytest.param("2027-03-28", 92, marks=pytest.mark.soak),
        pytest.param("2027-10-31", 100, marks=pytest.mark.soak),
    ],
)
@pytest.mark.sampled
def test_a_night_in_which_clocks_on_walls_are_set(tmp_path: Path, day: str, quarters: int) -> None:
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZURICH).astimezone(UTC)
    first = int(midnight.timestamp()) // QUARTER
    world = World(_street(tmp_path, int(midnight.timestamp())), first)
    world.play(lambda world: _passes(world, quarters + 4))
    releases = world.releases("elm-street")
    assert list(releases) == list(range(first, first + quarters + 4))
    scales = []  # not by time: an hour on the wall comes twice
    for t, release in releases.items():
        start = datetime.fromtimestamp(release.start, UTC)
        assert start == midnight + timedelta(minutes=15) * (t - first)
        assert (release.applies_from, release.applies_start) == (t + 2, (t + 2) * QUARTER)
        scales.append((start.astimezone(ZURICH), release.scale))
    of_day = [wall for wall, _ in scales if wall.date().isoformat() == day]
    assert len(of_day) == quarters
    # laws of the example change at 07:00, so does the noise; 07:00 on the wall, whatever in UTC
    night = {scale for wall, scale in scales if wall.hour < 7}
    daytime = {scale for wall, scale in scales if wall.hour >= 7}
    assert (len(night), len(daytime)) == (1, 1)
    assert night != daytime


def _passes(world: World, intervals: int) -> Iterator[None]:
    for _ in range(intervals):
        assert world.send(houses=(0,)) == 200
        world.ahead()
        yield


def _street(folder: Path, begins: int) -> Deployment:
    text = example(begins)
    for old, new in (
        ("count = 30", "count = 3"),
        ("count = 10", "count = 2"),
        ("\neta = 0.05", "\neta = 0.0"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "service.toml").write_text(text)
    create(folder / "hushgrid.key")
    made = load_deployment(folder / "service.toml")
    return replace(made, http=Http(port=free_port(), tokens=(DIGEST,)))
