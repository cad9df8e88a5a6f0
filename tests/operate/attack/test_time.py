"""Readings of the future, clocks that are set, and long absences, at the running service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Policy, SimulatedNoise
from hushgrid.curator import curator as curators
from hushgrid.curator.gaps import resume_zones
from hushgrid.curator.ingest import EARLY
from hushgrid.curator.status import BEHIND, OLD, STEPPED, from_ledger
from hushgrid.curator.terms import check_new, first_state
from hushgrid.curator.transfer import move
from hushgrid.errors import LedgerError
from hushgrid.mechanism import release as mechanism
from hushgrid.stores.meters import open_meters
from tests.curator import setups
from tests.curator.moved_houses import street
from tests.operate.faults import FIRST, QUARTER, World, no_pauses, service, zone
from tests.web.http.faces import NDJSON, as_ndjson

__all__ = ["no_pauses"]

YEAR = 365 * 24  # [h]


def _post(world: World, *starts: int, meter: str = "elm-1") -> dict[str, Any]:
    rows = [(meter, start, QUARTER, 7) for start in starts]
    answer = world._web.post("/v1/readings", content=as_ndjson(rows), headers=NDJSON)
    assert answer.status_code == 200
    return dict(answer.json())


def _readings_of(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line.startswith("hushgrid_readings_total")]
    return {line.split('kind="')[1].split('"')[0]: float(line.split()[-1]) for line in lines
            if 'way="http"' in line}  # fmt: skip


# ---- readings


def test_a_thousand_readings_of_the_future_leave_the_present_open(tmp_path: Path) -> None:
    def story(world: World) -> Iterator[None]:
        yield
        months = [(world.t + 2000 * k) * QUARTER for k in range(1, 1101)]  # up to 2088
        answer = _post(world, *months)
        assert (answer["accepted"], answer["early"]) == (0, 1100)
        assert answer["problems"] == [EARLY]
        near = [(world.t + k) * QUARTER for k in range(1, 6)]
        answer = _post(world, *near)
        assert (answer["accepted"], answer["early"]) == (4, 1), "service.early_limit is 4"
        assert _readings_of(world.figures())["early"] == 1101
        assert "early" not in world.get("/metrics").text, "who sends what is for the operator"
        yield from world.whole(2)
        assert world.get("/readyz").status_code == 200

    world = World(service(tmp_path))
    world.play(story)
    assert [one.source for one in world.releases().values()] == ["readings"] * 2


def test_a_thousand_readings_of_the_past_leave_the_present_open(tmp_path: Path) -> None:
    """Intervals before the one that the zone begins with are left out: their readings are late."""

    def story(world: World) -> Iterator[None]:
        answer = _post(world, *((world.t - 60 * k) * QUARTER for k in range(1, 1101)))
        assert answer["late"] == 1100
        yield from world.whole(1)

    world = World(service(tmp_path))
    world.play(story)
    assert [one.source for one in world.releases().values()] == ["readings"]


@pytest.mark.soak
def test_a_store_that_was_filled_before_takes_the_present(tmp_path: Path) -> None:
    made = service(tmp_path)
    with open_meters(made.meters) as meters:
        (elm,) = made.zones
        meters.open_zone(elm.id, elm.meters, elm.seconds)
        starts = (np.arange(1100) + FIRST + 1000) * QUARTER
        meters.put(elm.id, np.zeros(1100, int), starts, np.full(1100, QUARTER), starts % 7)
    world = World(made)
    world.play(lambda world: world.whole(2))
    assert [one.source for one in world.releases().values()] == ["readings"] * 2


# ---- clocks


def _seen(world: World, state: str) -> None:
    """Everything that reports a zone says that it waits for the clock."""
    answer = world.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "waiting", "zones": ["elm"], "clock_in_doubt": ["elm"]}
    assert world.get("/v1/status").json()["zones"][0]["state"] == state
    assert 'hushgrid_clock_in_doubt{zone="elm"} 1.0' in world.get("/metrics").text


def _unseen(world: World) -> None:
    assert world.get("/readyz").status_code == 200
    assert 'hushgrid_clock_in_doubt{zone="elm"} 0.0' in world.get("/metrics").text


def test_a_clock_that_is_a_year_ahead_for_a_moment(tmp_path: Path) -> None:
    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        assert world.send() == 200
        world.jump(YEAR)
        yield
        _seen(world, STEPPED)
        assert _post(world, (world.t + 9) * QUARTER)["early"] == 1
        world.jump(-YEAR)
        yield
        _unseen(world)
        world.ahead()  # the interval that was going on meanwhile
        yield
        yield from world.whole(2)

    world = World(service(tmp_path))
    world.play(story)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + 5))
    assert {one.source for one in world.releases().values()} == {"readings"}


def test_readings_of_the_present_are_taken_while_the_clock_is_wrong(tmp_path: Path) -> None:
    def story(world: World) -> Iterator[None]:
        yield from world.whole(1)
        for hours in (YEAR, -YEAR):
            world.jump(hours)
            yield
            for back in (4 * hours, 0):  # by the time without the step, and by the clock
                answer = _post(world, (world.t - back) * QUARTER, meter="elm-2")
                assert answer["late"] + answer["accepted"] == 1
                assert answer["accepted"] or (back, hours) == (0, -YEAR)
            world.jump(-hours)
            yield
            _unseen(world)
            world.ahead()
            yield

    world = World(service(tmp_path))
    world.play(story)
    assert [one.t for one in world.releases().values()] == [FIRST, FIRST + 1, FIRST + 2]


def test_the_operator_takes_the_clock_for_right(tmp_path: Path) -> None:
    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        world.jump(3)
        yield
        _seen(world, STEPPED)
        (asked,) = resume_zones(world.made, "elm", world.time, patience=0.0)
        assert asked.state == "asked"
        yield
        _unseen(world)
        yield from world.whole(1)
        world.jump(3)  # a further step needs a further word
        yield
        _seen(world, STEPPED)

    world = World(service(tmp_path))
    world.play(story)
    assert list(world.releases()) == [FIRST, FIRST + 1, *range(FIRST + 10, FIRST + 15)]


@pytest.mark.usefixtures("no_pauses")
def test_a_zone_that_failed_is_opened_at_the_likely_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first release a zone begins with the present interval, whatever the clock says."""
    run, fails = curators.Curator.run, [False]

    def failing(curator: curators.Curator, *given: Any, **more: Any) -> Any:
        if fails.pop():
            raise OSError
        return run(curator, *given, **more)

    def story(world: World) -> Iterator[None]:
        world.jump(YEAR)
        fails[:] = [False, True]
        yield
        fails[:] = [False] * 99
        yield
        _seen(world, STEPPED)
        world.jump(-YEAR)
        yield
        yield from world.whole(2)

    monkeypatch.setattr(curators.Curator, "run", failing)
    world = World(service(tmp_path))
    world.play(story)
    assert list(world.releases()) == [FIRST, FIRST + 1]


@pytest.mark.parametrize(("hours", "state"), [(YEAR, OLD), (-YEAR, BEHIND)])
@pytest.mark.sampled
def test_a_clock_that_is_wrong_at_a_start(tmp_path: Path, hours: int, state: str) -> None:
    made = service(tmp_path)
    before = World(made)
    before.play(lambda world: world.whole(2))

    def story(world: World) -> Iterator[None]:
        for _ in range(2):
            yield
            _seen(world, state)

    World(made, before.t + 4 * hours).play(story)
    if state == BEHIND:
        assert from_ledger(made, before.time + 3600 * hours)[0].state == BEHIND
    after = World(made, before.t)
    after.play(lambda world: world.whole(1))
    assert list(after.releases()) == [FIRST, FIRST + 1, FIRST + 2]


def test_a_start_after_a_long_absence_waits_for_the_operator(tmp_path: Path) -> None:
    made = service(tmp_path)
    before = World(made)
    before.play(lambda world: world.whole(2))

    def story(world: World) -> Iterator[None]:
        yield
        _seen(world, OLD)
        assert resume_zones(made, None, world.time, patience=0.0)[0].state == "asked"
        yield
        yield from world.whole(1)

    world = World(made, before.t + 8 * 96)
    world.play(story)
    assert world.t - 1 in world.releases()
    shorter = World(made, world.t + 6 * 96)  # within a week it goes on by itself
    shorter.play(lambda world: world.whole(1))
    assert shorter.t - 1 in shorter.releases()


def test_the_way_out_of_a_ledger_with_releases_of_the_future(tmp_path: Path) -> None:
    """Every house moves to a new zone with what it has lost; the new zone begins at present."""
    one = street("elm", ("m0", "m1"), FIRST * QUARTER, 0.5)
    made = service(tmp_path, replace(one, clock_limit=1000))

    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        world.jump(240)  # as earlier versions did after any step
        yield
        world.jump(-240)
        yield

    before = World(made)
    before.play(story)
    assert [r.source for r in before.releases().values()] == ["readings"] * 2 + ["forecast"] * 4
    with pytest.raises(LedgerError, match="reaches to"):
        check_new(replace(one, begins=before.t * QUARTER), before.standing())
    new = street("elm-2", ("none-0", "none-1"), (before.t + 192) * QUARTER, 0.5)
    both = replace(made, zones=(*made.zones, new))
    for meter in one.meters:
        move(both, meter, "elm", "elm-2", before.time)
    after = World(replace(made, zones=(replace(new, meters=one.meters),)), before.t + 192)
    after.play(lambda world: world.whole(2))
    standing = after.standing("elm-2")
    assert [r.source for r in standing.releases] == ["readings"] * 2
    assert all(one.last == (FIRST + 2) * QUARTER for one in standing.transfers)


# ---- long absences


def test_a_long_absence_is_made_up_for_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No zone keeps the others, or a stop signal, waiting until all its intervals are left out."""
    monkeypatch.setattr(curators, "AT_ONCE", 10)
    passed = []

    def story(world: World) -> Iterator[None]:
        yield
        world.ahead(35)  # the machine was suspended: both clocks went on
        for _ in range(4):
            yield
            zones = world.get("/v1/status").json()["zones"]
            passed.append([one["t"] - FIRST + 1 for one in zones])

    world = World(service(tmp_path, zone(), zone("oak")))
    world.play(story)
    assert passed == [[10, 10], [20, 20], [30, 30], [35, 35]]
    assert list(world.releases()) == list(world.releases("oak"))


def test_a_stop_signal_comes_before_the_next_zone(tmp_path: Path) -> None:
    def story(world: World) -> Iterator[None]:
        yield
        world.ahead()
        yield

    made = service(tmp_path, zone(), zone("oak"))
    world = World(made)
    publish = curators.Curator.run

    def stops(curator: curators.Curator, *given: Any, **more: Any) -> Any:
        released = publish(curator, *given, **more)
        world._over = world._over or bool(released)
        return released

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curators.Curator, "run", stops)
        world.play(story)
    assert list(world.releases()) == [FIRST]
    assert not world.releases("oak")


@pytest.mark.parametrize("policy", [
    Policy(0.5, horizon=300),
    Policy(0.5, horizon=300, publish="estimate"),
], ids=["plain", "estimate"])  # fmt: skip
def test_steps_left_out_together_are_those_left_out_one_by_one(policy: Policy) -> None:
    state = first_state(setups.service(policy=policy))
    for load in (1500, 2500):
        draws = mechanism.prepare(state, SimulatedNoise(3))
        _, state = mechanism.step(state, load, draws)
    for steps in (1, 7, 60):
        one = state
        for _ in range(steps):
            one = mechanism.skip(one, 0.25)
        assert mechanism.skip(state, 0.25, steps) == one
