"""New terms on a service that ran: refused until asked for, and nothing old enters them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid import Policy
from hushgrid.errors import LedgerError, MeterError
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import Ledger
from tests.curator.moved_houses import HORIZON, run, said, states, street
from tests.curator.setups import BEGINS
from tests.operate.faults import FIRST, QUARTER, World, service, zone

BORDER = FIRST + 4  # the first interval of the new terms


def other_terms() -> ZoneService:
    """Fewer houses, in another order, and less noise."""
    made = zone(houses=3, begins=BORDER * QUARTER, policy=Policy(0.7, horizon=500))
    return replace(made, meters=("elm-2", "elm-0", "elm-9"))


@pytest.fixture
def before(tmp_path: Path) -> World:
    """A service that was stopped with readings of an interval that goes on."""

    def story(world: World) -> Iterator[None]:
        yield from world.whole(3)
        assert world.send() == 200

    world = World(service(tmp_path))
    world.play(story)
    return world


def again(before: World, one: ZoneService) -> World:
    world = World(service(before.made.key.parent, one), before.t)
    world.shown, world.missing = dict(before.shown), dict(before.missing)
    return world


def kinds(world: World) -> list[str]:
    with open_store(world.made.ledger, create=False) as store:
        return [record.kind for record in store.records("elm")]


OLD = ["genesis", "tariff", "terms", *["release"] * 3]


def one_in_each(world: World) -> Iterator[None]:
    world.ahead()
    yield
    yield from world.whole(2)


def _judge_new(world: World) -> None:
    world.judge()
    releases = world.releases()
    assert list(releases) == [*range(FIRST, FIRST + 3), BORDER, BORDER + 1]
    assert all(releases[t].counts == {"houses": 3} for t in (BORDER, BORDER + 1))
    assert all(world.missing["elm", t] == 0 for t in (BORDER, BORDER + 1))
    standing = world.standing()
    assert standing.terms is not None
    assert standing.terms.first == BORDER
    assert {one.digest for one in standing.current} == {standing.terms.digest}


def test_new_terms_are_asked_for(before: World) -> None:
    world = again(before, other_terms())
    with pytest.raises(LedgerError, match=r"other terms than the ledger.* --yes"):
        world.play(one_in_each)
    assert kinds(world) == OLD, "what is refused leaves no trace"
    too_early = again(before, replace(other_terms(), begins=(FIRST + 2) * QUARTER))
    with pytest.raises(LedgerError, match="give a later begins"):
        too_early.play(one_in_each, new_terms=True)
    assert kinds(world) == OLD
    world.play(one_in_each, new_terms=True)
    assert kinds(world) == [*OLD, "terms", "release", "release"]
    _judge_new(world)
    world.play(lambda world: world.whole(1))  # and once it has begun, it needs no flag
    assert kinds(world).count("terms") == 2


def test_readings_that_reach_into_new_terms_hold_them_up(before: World) -> None:
    late = again(before, other_terms())
    early = again(before, zone())
    early.play(lambda world: _sends_ahead(world))
    with pytest.raises(MeterError, match=f"interval {BORDER * QUARTER} is open"):
        late.play(one_in_each, new_terms=True)
    assert kinds(late) == OLD


def _sends_ahead(world: World) -> Iterator[None]:
    yield
    assert world.send(BORDER) == 200


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.sampled
def test_killed_while_new_terms_begin(
    before: World, monkeypatch: pytest.MonkeyPatch, flag: bool
) -> None:
    append = Ledger.append

    class Killed(BaseException):
        pass

    def dies(self: Ledger, kind: str, body: object) -> object:
        append(self, kind, body)  # type: ignore[arg-type]
        if kind == "terms":
            raise Killed
        return None

    world = again(before, other_terms())
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "append", dies)
        with pytest.raises(Killed):
            world.play(one_in_each, new_terms=True)
    assert kinds(world)[-1] == "terms"
    world.play(one_in_each, new_terms=flag)
    _judge_new(world)
    assert kinds(world)[-3:] == ["terms", "release", "release"]


@pytest.mark.parametrize(("old", "new"), [(0.2, 2.0), (2.0, 0.2)])
def test_another_promise_holds_from_its_first_price_on(
    tmp_path: Path, old: float, new: float
) -> None:
    """And the old one for its own steps; prices from readings come soon."""
    border = BEGINS + HORIZON * QUARTER
    for at, promise in ((BEGINS, old), (border, new)):
        run(tmp_path, street("elm", ("h", "i"), at, promise), HORIZON)
    found = states(tmp_path)["elm"]
    shown, steps = said(found)
    later = [t - steps[0] for t in steps if t >= border // QUARTER]
    assert shown[:HORIZON].max() <= old + 1e-6
    assert shown[later].max() <= new + 1e-6
    assert len(later) >= HORIZON / 2
