"""A house that changes zone keeps its spending, through crashes and new epochs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Policy
from hushgrid.accounting.composition import ReleaseAccount
from hushgrid.audit.accounts import budget
from hushgrid.audit.bounds import Check
from hushgrid.audit.evidence import Evidence
from hushgrid.cli import main
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, Promise, ZoneService
from hushgrid.files.zone_file import Provenance
from hushgrid.service import epoch
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.check import examine
from hushgrid.service.curator import status_of
from hushgrid.service.epoch import first_state, house_names
from hushgrid.service.gaps import book, resume_zones
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import LedgerState, Record
from hushgrid.service.ledger.witness import open_witnesses
from hushgrid.service.ledger.writer import Ledger, load, verify_signature
from hushgrid.service.status import from_ledger
from hushgrid.service.transfer import move, spent_by
from tests import bodies
from tests.bodies import transfer
from tests.service.borders import exact
from tests.service.faults import FIRST, QUARTER, World, service, zone
from tests.service.ledger.test_ledger_chain import SCRIPT
from tests.service.setups import BEGINS, STAY
from tests.service.setups import service as service_of
from tests.service.test_curator import Shown, curator, feed
from tests.service.test_lost_ends import put_back, save, witness_file

STEPS = 3


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(service(tmp_path, zone("elm"), zone("oak", 3)))
    made.play(lambda world: world.whole(STEPS))
    return made


def moved(world: World, meter: str = "elm-1", source: str = "elm", target: str = "oak") -> str:
    return move(world.made, meter, source, target, world.time).out


def records(world: World) -> list[Record]:
    with open_store(world.made.ledger, create=False) as store:
        return [record for one in store.zones() for record in store.records(one)]


def standing(folder: Path, name: str) -> LedgerState:
    with open_store(str(folder / "ledger.db")) as store:
        return check(store.records(name), verify_signature).standings[name]


def transfers(world: World) -> list[tuple[str, str]]:
    return [(r.zone, r.body["direction"]) for r in records(world) if r.kind == "transfer"]


def new_terms(world: World, elm: tuple[str, ...], oak: tuple[str, ...], at: int) -> World:
    """The same service with other rosters from an interval on."""

    def one(name: str, meters: tuple[str, ...], **more: float) -> ZoneService:
        made = zone(name, len(meters), begins=at * QUARTER, **more)
        return replace(made, meters=meters)

    zones = (one("elm", elm), one("oak", oak))
    again = World(service(world.made.key.parent, *zones), world.t)
    again.shown, again.missing = dict(world.shown), dict(world.missing)
    return again


ELM, OAK = ("elm-0", "elm-2", "elm-3"), ("oak-0", "oak-1", "oak-2", "elm-1")


def spent(world: World) -> float:
    found = {one["zone"]: one for one in world.get("/v1/status").json()["zones"]}
    return float(found["oak"]["spent"])


def test_a_house_takes_its_spending_along(world: World) -> None:
    books = ReleaseAccount.resume(first_state(world.made.zones[0]), world.standing().account())
    moved(world)
    assert transfers(world) == [("elm", "out"), ("oak", "in")]
    (carried,) = world.standing("oak").transfers
    assert carried.epsilon == books.pure[1] == pytest.approx(0.5 * STEPS)
    report = check(records(world), verify_signature)
    assert report.first_bad is None, report.reason
    assert "elm-1" not in "".join(record.line for record in records(world)), "its name tells nobody"
    again = new_terms(world, ELM, OAK, world.t)

    def story(again: World) -> Iterator[None]:
        assert spent(again) == carried.epsilon, "a zone has spent what its most-spent house has"
        yield from again.whole(3)
        assert spent(again) == pytest.approx(0.5 * STEPS + 1.5)

    again.play(story, new_epoch=True)
    for name in ("elm", "oak"):
        assert {one.source for one in again.standing(name).current} == {"readings"}
    # within one horizon after the house came, the next epoch counts it too
    later = new_terms(again, ELM, OAK, again.t)

    def counts_it(later: World) -> Iterator[None]:
        assert spent(later) == carried.epsilon
        yield from later.whole(2)

    later.play(counts_it, new_epoch=True)
    horizon = later.standing("oak").longest // QUARTER
    assert horizon == world.made.zones[1].policy.horizon
    came = next(one for one in again.standing("oak").releases if one.seq > carried.seq).t + 1
    for begins, counted in ((came + horizon - 1, carried.epsilon), (came + horizon, 0.0)):
        standing = later.standing("oak")
        assert standing.epoch is not None
        next_one = replace(standing.epoch, first=begins)
        following = replace(standing, epoch=next_one, epochs=(*standing.epochs, next_one))
        assert following.carried == counted


def test_an_epoch_begun_twice_does_not_forget_it(world: World) -> None:
    moved(world)
    again = new_terms(world, ELM, OAK, world.t)

    def nothing(again: World) -> Iterator[None]:
        assert spent(again) == pytest.approx(0.5 * STEPS)
        yield

    for flag in (True, True, False):  # killed before it published anything
        again.play(nothing, new_epoch=flag)


def test_a_roster_that_still_has_the_house_is_refused(world: World) -> None:
    moved(world)
    for flag in (False, True):
        with pytest.raises(LedgerError, match="house 2 of zone 'elm' has moved to zone 'oak'"):
            world.play(lambda world: world.whole(1), new_epoch=flag)


def test_a_crash_between_the_two_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Ledger.append

    class Killed(BaseException):
        pass

    def dies(self: Ledger, kind: str, body: object) -> Record:
        append(self, kind, body)  # type: ignore[arg-type]
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "append", dies)
        with pytest.raises(Killed):
            moved(world)
    assert transfers(world) == [("elm", "out")]
    again = new_terms(world, ELM, OAK, world.t)
    with pytest.raises(LedgerError, match="run the same hushgrid ledger transfer again"):
        again.play(lambda world: world.whole(1), new_epoch=True)
    with pytest.raises(LedgerError, match="left zone 'elm' for 'oak' already"):
        move(_with_third(world.made), "elm-1", "elm", "ash", world.time)
    first = moved(again)  # with the new rosters as well: the first record says it all
    assert transfers(world) == [("elm", "out"), ("oak", "in")]
    assert moved(again) == first
    assert transfers(world) == [("elm", "out"), ("oak", "in")], "a third time changes nothing"
    assert check(records(world), verify_signature).first_bad is None


def _with_third(made: Deployment) -> Deployment:
    return replace(made, zones=(*made.zones, zone("ash", 2)))


def test_there_and_back_again(world: World) -> None:
    moved(world)
    again = new_terms(world, ELM, OAK, world.t)
    again.play(lambda world: world.whole(1), new_epoch=True)
    moved(again, source="oak", target="elm")
    (_, back) = again.standing("elm").transfers
    assert back.epsilon == pytest.approx(0.5 * STEPS + 0.5)
    assert again.standing("elm").carried == back.epsilon
    assert again.standing("oak").carried == 0.0
    assert check(records(again), verify_signature).first_bad is None


def test_what_was_left_out_costs_nothing(tmp_path: Path) -> None:
    def story(world: World) -> Iterator[None]:
        yield from world.whole(1)
        world.jump(3)
        yield from world.whole(2)

    world = World(service(tmp_path, zone(clock_limit=12)), FIRST + 2)
    world.play(story)
    found = [one for one in world.standing().current if one.source == "readings"]
    assert found[-1].t - found[0].t > len(found), "there are gaps"
    cost = spent_by(world.made.zones[0], world.standing(), 2)
    assert cost == pytest.approx(0.5 * len(found))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "transfer", *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_the_command(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hushgrid.files.service_file.load_deployment", lambda _: world.made)
    ways = ("--config", "service.toml", "--from", "elm", "--to", "oak")
    for words, fault in (
        (("elm-9", *ways), "the meter is not in the roster of zone 'elm'"),
        (("elm-1", *ways[:-1], "ash"), "zone is 'ash'; give one of the service file: elm, oak"),
        (("elm-1", *ways[:-1], "elm"), "already; give another zone to go to"),
    ):
        status, out, err = run(capsys, *words)
        assert (status, out) == (2, "")
        assert fault in err
    assert transfers(world) == []

    def while_it_runs(world: World) -> Iterator[None]:
        yield
        status, _, err = run(capsys, "elm-1", *ways)
        assert status == 2
        assert "zone 'elm' has a writer already" in err

    world.play(while_it_runs)
    status, out, err = run(capsys, "elm-1", *ways, "--json", "-")
    assert (status, err) == (0, "")
    values = json.loads(out)
    assert values["epsilon"] == pytest.approx(0.5 * STEPS)
    assert (values["from"], values["to"], values["anew"]) == ("elm", "oak", True)
    status, out, _ = run(capsys, "elm-1", *ways)
    assert "was carried over already" in out
    assert world.standing("oak").transfers[0].house == values["house"]


def transfers_of(evidence: Evidence) -> list[Check]:
    from hushgrid.audit.accounts import transfers

    return transfers(evidence)


def charged(world: World, cost: float = 1.2) -> World:
    """The same service whose elm uses models that have cost every house something."""
    elm, oak = world.made.zones
    elm = replace(elm, learned=Provenance("pooled", cost, 20, "ab" * 32))
    return World(service(world.made.key.parent, elm, oak))


def test_a_house_takes_along_what_models_cost(tmp_path: Path) -> None:
    """Releases and models, each once: there, back and away again."""
    world = charged(World(service(tmp_path, zone("elm"), zone("oak", 3))))
    world.play(lambda world: world.whole(STEPS))
    (before,) = (one for one in from_ledger(world.made, world.time) if one.zone == "elm")
    moved(world)
    (carried,) = world.standing("oak").transfers
    assert carried.epsilon == pytest.approx(0.5 * STEPS + 1.2)
    assert carried.epsilon == pytest.approx(before.spent), "as much as its zone says it has spent"
    again = new_terms(world, ELM, OAK, world.t)
    again.play(lambda world: world.whole(1), new_epoch=True)
    moved(again, source="oak", target="elm")
    (_, back) = again.standing("elm").transfers
    assert back.epsilon == pytest.approx(carried.epsilon + 0.5), "models do not cost twice"
    assert check(records(again), verify_signature).first_bad is None
    (elm, oak), _ = load_ledger(again.made.ledger, zone=None, key=None, heads=())
    assert [stated >= due for _, stated, due in (*elm.left, *oak.left)] == [True, True]
    assert [due for _, _, due in elm.left] == [1.2]
    assert transfers_of(elm) == []


@pytest.mark.parametrize("then", ["lost", "start", "gap", "transfer"])
def test_what_models_cost_is_charged_after_a_crash_or_a_loss(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch is lost and named; or it is on record and its charge is not, whatever follows."""
    elm, oak = two()
    pooled = replace(elm, learned=Provenance(epsilon=1.2, homes=9, digest="a" * 64))
    if then == "lost":
        with curator(tmp_path, elm, Shown(), now=elm.begins) as it:
            it._ledger.append("gap", bodies.gap(it.t, it.t + 5, "witness"))
            book(elm, it._ledger, [replace(pooled, policy=replace(pooled.policy, epsilon=0.4))])
    else:
        with monkeypatch.context() as crash:
            crash.setattr(epoch, "charge", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run_on(tmp_path, pooled, 0)
        assert standing(tmp_path, "elm").epoch is not None
    if then == "start":
        run_on(tmp_path, pooled, 1)
    elif then == "gap":
        t = elm.begins // elm.seconds
        with (
            open_store(str(tmp_path / "ledger.db")) as store,
            Ledger.open(store, "elm", load(tmp_path / "key"), "simulation", elm.begins) as ledger,
        ):
            ledger.append("gap", bodies.gap(t, t + 5, "witness"))
            book(pooled, ledger, [pooled])
    elif then == "transfer":
        assert left(tmp_path, pooled, oak) == 1.2
    assert [one.epsilon for one in standing(tmp_path, "elm").charges] == [1.2]


def test_the_audit_finds_a_house_that_left_without(tmp_path: Path) -> None:
    world = charged(World(service(tmp_path, zone("elm"), zone("oak", 3))))
    world.play(lambda world: world.whole(1))
    with open_store(world.made.ledger) as store:
        key = load(world.made.key)
        with Ledger.open(store, "elm", key, "simulation", world.time) as ledger:
            ledger.append("transfer", transfer("house-1", "out", other="oak", epsilon=0.5))
    (elm, _), chain = load_ledger(world.made.ledger, zone=None, key=None, heads=())
    assert chain.status == "passed"
    (found,) = transfers_of(elm)
    assert (found.id, found.status) == ("budget", "failed")
    assert "leave with 0.5 spent" in found.text


def test_a_new_epoch_before_a_house_leaves_forgets_nothing(world: World) -> None:
    """Earlier releases within one horizon count."""
    four = ("elm-0", "elm-1", "elm-2", "elm-3")
    again = new_terms(world, four, ("oak-0", "oak-1", "oak-2"), world.t)
    again.play(lambda world: world.whole(1), new_epoch=True)
    moved(again)
    (carried,) = again.standing("oak").transfers
    assert carried.epsilon == pytest.approx(0.5 * (STEPS + 1))
    later = new_terms(again, ELM, OAK, again.t)
    later.play(lambda world: world.whole(1), new_epoch=True)
    moved(later, source="oak", target="elm")
    (_, back) = later.standing("elm").transfers
    assert back.epsilon == pytest.approx(carried.epsilon + 0.5), "not what was before it came"


def two(
    seconds: int = 900, horizon: int = 96, each: float = 0.5, at: int = BEGINS
) -> tuple[ZoneService, ZoneService]:
    """Zone elm, which a house leaves, under some terms; and oak, where it goes."""
    elm = service_of(2, "elm", Policy(each, horizon=horizon), begins=at, seconds=seconds)
    return elm, service_of(2, "oak", Policy(0.5, horizon=96))


def run_on(folder: Path, made: ZoneService, steps: int, **more: Any) -> None:
    with curator(folder, made, Shown(), now=made.begins, **more) as it:
        for _ in range(steps):
            feed(it, it.t, [1])
            it.run(it.next_due())


def left(folder: Path, *zones: ZoneService) -> float:
    """What the first house of elm takes along to oak."""
    where = {"ledger": str(folder / "ledger.db"), "meters": str(folder / "meters")}
    made = Deployment(zones=zones, mode="simulation", key=folder / "key", **where)
    return move(made, "elm-0", "elm", "oak", BEGINS + 10**6).epsilon


@pytest.mark.parametrize(("seconds", "releases"), [(1800, 1), (900, 1), (900, 0)])
def test_a_house_takes_along_a_booked_gap(tmp_path: Path, seconds: int, releases: int) -> None:
    """Whatever the steps of the next epoch are, and with or without a release in it."""
    elm, oak = two(seconds)
    run_on(tmp_path, oak, 0)
    with curator(tmp_path, elm, Shown(), now=elm.begins) as it:
        for _ in range(releases):
            feed(it, it.t, [1])
            it.run(it.next_due())
        t = it.t
        it._ledger.append("gap", bodies.gap(t, t + 1, "witness"))
        book(elm, it._ledger, [elm])
        (gap,) = it._ledger.standing.booked
    after, _ = two(each=0.25, at=(t + 2) * seconds)
    run_on(tmp_path, after, releases, new_epoch=True)
    assert left(tmp_path, after, oak) == pytest.approx(gap.epsilon + 0.75 * releases)


@pytest.mark.parametrize("of", ["lost", "present"])
def test_a_promise_about_an_interval_holds_after_an_epoch_is_booked_as_lost(
    tmp_path: Path, of: str
) -> None:
    """The lost one had the promise, or the one in whose place it was; by what both really said."""
    elm, _ = two()
    promised = replace(elm, promise=Promise("interval", 2.0))
    plain = replace(elm, policy=replace(elm.policy, epsilon=2.0))
    lost, present = (promised, plain) if of == "lost" else (plain, promised)
    (tmp_path / "lost").mkdir()
    run_on(tmp_path / "lost", lost, 6)
    gone = standing(tmp_path / "lost", "elm").releases
    with curator(tmp_path, present, Shown(), now=present.begins) as it:
        it._ledger.append("gap", bodies.gap(it.t, it.t + 5, "witness"))
        book(present, it._ledger, [lost])
    with curator(tmp_path, present, Shown(), now=present.begins + 6 * 900) as it:
        for _ in range(30):
            feed(it, it.t, [1])
            it.run(it.next_due())
        after = it._ledger.standing.releases
    read = [one for one in (*gone, *after) if one.source == "readings"]
    losses = np.zeros(36)
    losses[[one.t - gone[0].t for one in read]] = [1000 / one.scale for one in read]
    shown = exact([np.array(STAY)] * 36, [0.5, 0.5], losses.tolist())
    first = read[6].t - gone[0].t
    assert 6 < first < 30, "forecasts at first"
    assert (shown[:6] if of == "lost" else shown[first:]).max() <= 2.0 + 1e-6


def test_a_second_gap_does_not_silence_a_zone_for_ever(tmp_path: Path) -> None:
    """Nothing is believed of the past after the first; what is lost then carries no promise."""
    elm, _ = two()
    present = replace(elm, promise=Promise("interval", 2.0))
    for k in range(2):
        with curator(tmp_path, present, Shown(), now=present.begins + k * 900) as it:
            it._ledger.append("gap", bodies.gap(it.t, it.t, "witness"))
            book(present, it._ledger, [] if k else [elm])
    with curator(tmp_path, present, Shown(), now=present.begins + 2 * 900) as it:
        for _ in range(30):
            feed(it, it.t, [1])
            it.run(it.next_due())
        sources = [one.source for one in it._ledger.standing.releases]
    assert (sources[0], sources[-1]) == ("forecast", "readings")


@pytest.mark.parametrize("eta", [0.05, 1.0])
def test_what_a_house_brings_rests_on_no_law(tmp_path: Path, eta: float) -> None:
    elm, oak = two()
    elm = replace(elm, policy=replace(elm.policy, eta=eta))
    run_on(tmp_path, elm, 1)
    left(tmp_path, elm, oak)
    found = standing(tmp_path, "elm")
    (one,), (gone,) = found.releases, found.transfers
    assert (one.epsilon < 0.9 * one.epsilon_any) is (eta < 1)
    assert gone.total == pytest.approx(one.epsilon_any)


def test_a_short_epoch_before_a_house_leaves_forgets_nothing(tmp_path: Path) -> None:
    """The longest horizon of both ledgers counts, not that of the present epoch."""
    elm, oak = two()
    run_on(tmp_path, oak, 0)
    run_on(tmp_path, elm, 5)
    after, _ = two(horizon=1, at=BEGINS + 5 * 900)
    run_on(tmp_path, after, 1, new_epoch=True)
    assert left(tmp_path, after, oak) == 3.0


def test_a_long_horizon_of_the_other_zone_counts(tmp_path: Path) -> None:
    elm, oak = two(horizon=3)
    run_on(tmp_path, oak, 0)
    run_on(tmp_path, elm, 3)
    after, _ = two(horizon=2, at=BEGINS + 5 * 900)
    run_on(tmp_path, after, 2, new_epoch=True)
    assert left(tmp_path, after, oak) == 2.5


def test_a_short_epoch_does_not_forget_what_a_house_brought(tmp_path: Path) -> None:
    """An epoch of one forecast, then one of thirty steps: curator, status and audit agree."""
    brought = transfer("x", "in", other="oak", epsilon=9.0, out="ab" * 32)
    first, _ = two()
    with curator(tmp_path, first, Shown(), now=BEGINS) as it:
        it._ledger.append("transfer", brought)
    with curator(tmp_path, first, Shown(), now=BEGINS) as it:
        it.run(it.next_due())
        assert it.releases[-1].source == "forecast"
    second, _ = two(horizon=95, at=BEGINS + 900)
    shown = Shown()
    with curator(tmp_path, second, shown, now=second.begins, new_epoch=True) as it:
        for _ in range(6):
            feed(it, it.t, [1])
            it.run(it.next_due())
        assert it.status.spent == 12.0
        assert status_of(second, it._ledger.standing, it.next_due()).spent == 12.0
    ((elm,), _) = load_ledger(str(tmp_path / "ledger.db"), zone="elm", key=None, heads=())
    assert [entry.carried for entry in elm.entries] == [9.0] * 7
    assert budget(elm, terms_of(second)).status == "passed"
    over = budget(elm, replace(terms_of(second), budget=9.9))
    assert over.status == "failed"
    assert "and 9 from before" in over.text


def lose_the_transfer(world: World) -> None:
    """A transfer, and a copy of the ledger from before it put back on a new disk."""
    copy = save(world.made, "copy")
    moved(world)
    put_back(world.made, copy, "witness", "small")


def test_a_transfer_that_is_lost_is_asked_for_again(world: World) -> None:
    lose_the_transfer(world)
    again = new_terms(world, ELM, OAK, world.t)
    with pytest.raises(LedgerError, match=r"house 4 of zone 'oak' was in zone 'elm'"):
        again.play(lambda again: again.whole(1), new_epoch=True)
    assert all(len(world.standing(name).epochs) == 1 for name in ("elm", "oak"))
    problems = examine(again.made).problems
    assert any("house 4 of zone 'oak' was in zone 'elm'" in one for one in problems)
    moved(world)
    carried: list[float] = []

    def story(again: World) -> Iterator[None]:
        carried.append(spent(again))
        yield

    again.play(story, new_epoch=True)
    assert carried == [pytest.approx(0.5 * STEPS)]


def test_a_house_that_was_in_no_zone_for_an_epoch_is_still_known(world: World) -> None:
    alone = new_terms(world, ELM, ("oak-0", "oak-1", "oak-2"), world.t)
    alone.play(lambda world: world.whole(1), new_epoch=True)
    again = new_terms(alone, ELM, OAK, alone.t)
    with pytest.raises(LedgerError, match="no transfer is on record"):
        again.play(lambda world: world.whole(1), new_epoch=True)
    back = new_terms(alone, ("elm-0", "elm-1", "elm-2", "elm-3"), OAK[:3], alone.t)
    back.play(lambda _: iter(()), new_epoch=True)
    moved(back)
    again.play(lambda world: world.whole(1), new_epoch=True)
    assert again.standing("oak").transfers[-1].epsilon >= 0.5 * STEPS


def test_a_roster_that_published_nothing_is_corrected_without_a_transfer(world: World) -> None:
    wrong = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3", "new"), OAK[:3], world.t + 2)
    wrong.play(lambda _: iter(()), new_epoch=True)
    right = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3"), (*OAK[:3], "new"), world.t + 2)
    right.play(lambda _: iter(()), new_epoch=True)
    assert [len(world.standing(name).epochs) for name in ("elm", "oak")] == [3, 3]


def test_a_new_zone_does_not_take_houses_without_what_they_spent(world: World) -> None:
    """Its first epoch needs no flag."""
    ash = replace(zone("ash", 1, begins=world.t * QUARTER), meters=("elm-1",))
    made = World(service(world.made.key.parent, ash), world.t)
    with pytest.raises(LedgerError, match=r"house 1 of zone 'ash' was in zone 'elm'"):
        made.play(lambda _: iter(()))
    with open_store(made.made.ledger, create=False) as store:
        assert store.zones() == ("elm", "oak")


@pytest.mark.parametrize("meter", ["elm-9", "elm-1"])
def test_a_new_zone_is_new_until_its_first_epoch(world: World, meter: str) -> None:
    """A transfer that was refused, or that of one house, opened it to every other house."""
    ash = replace(zone("ash", 2, begins=world.t * QUARTER), meters=("ash-0", "ash-1"))
    both = service(world.made.key.parent, *world.made.zones, ash)
    if meter == "elm-9":
        with pytest.raises(LedgerError, match="the meter is not in the roster"):
            move(both, meter, "elm", "ash", world.time)
        with open_store(both.ledger, create=False) as store:
            assert store.zones() == ("elm", "oak"), "a refused command writes nothing"
    else:
        move(both, meter, "elm", "ash", world.time)
    taken = replace(ash, meters=("elm-1", "elm-2"))
    made = World(service(world.made.key.parent, taken), world.t)
    number = 1 if meter == "elm-9" else 2
    with pytest.raises(LedgerError, match=rf"house {number} of zone 'ash' was in zone 'elm'"):
        made.play(lambda _: iter(()))
    problems = examine(made.made).problems
    assert any(f"house {number} of zone 'ash' was in zone 'elm'" in one for one in problems)


def test_an_epoch_that_published_nothing_goes_on_with_houses_that_are_still_its_own(
    world: World,
) -> None:
    """Elm published about the house after oak's epoch had begun with it."""
    early = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3"), (*OAK[:3], "new"), world.t)
    early.play(lambda _: iter(()), new_epoch=True)
    elm = replace(zone("elm", 5, begins=world.t * QUARTER))
    elm = replace(elm, meters=("elm-0", "elm-1", "elm-2", "elm-3", "new"))
    meanwhile = World(service(world.made.key.parent, elm), world.t)
    meanwhile.play(lambda world: world.whole(1), new_epoch=True)
    (oak,) = (one for one in early.made.zones if one.id == "oak")
    with pytest.raises(LedgerError, match=r"house 4 of zone 'oak' was in zone 'elm'"):
        World(service(world.made.key.parent, oak), world.t).play(lambda _: iter(()))


@pytest.mark.parametrize("published", [STEPS, 0])
@pytest.mark.sampled
def test_a_house_that_comes_back_needs_a_new_epoch(tmp_path: Path, published: int) -> None:
    """Elm did not go on while oak published about the house."""
    world = World(service(tmp_path, zone("elm"), zone("oak", 3)))
    world.play(lambda world: world.whole(STEPS))
    if not published:  # the epoch is recorded, and that is all
        world = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3"), OAK[:3], world.t)
        world.play(lambda _: iter(()), new_epoch=True)
    moved(world)
    oak = replace(zone("oak", 4, begins=world.t * QUARTER), meters=OAK)
    there = World(service(tmp_path, oak), world.t)
    there.play(lambda world: world.whole(2), new_epoch=True)
    move(service(tmp_path, world.made.zones[0], oak), "elm-1", "oak", "elm", there.time)
    back = World(service(tmp_path, world.made.zones[0]), there.t)
    with pytest.raises(LedgerError, match=r"house 2 of zone 'elm' came from zone 'oak' after"):
        back.play(lambda world: world.whole(1))
    problems = examine(back.made).problems
    assert any("came from zone 'oak' after the present epoch" in one for one in problems)
    elm = replace(zone("elm", 4, begins=there.t * QUARTER))
    anew = World(service(tmp_path, elm), there.t)
    anew.play(lambda world: world.whole(1), new_epoch=True)
    assert anew.standing("elm").current[-1].source == "readings"


@pytest.mark.parametrize("lost", ["elm", "oak"])
@pytest.mark.sampled
def test_a_transfer_that_is_repeated_forgets_nothing(tmp_path: Path, lost: str) -> None:
    """Oak published about the house; then the end of a ledger was lost, and all was done again."""
    world = World(service(tmp_path, zone("elm"), zone("oak", 3), zone("ash", 2)))
    world.play(lambda world: world.whole(STEPS))
    copy = save(world.made, "copy")
    moved(world)

    def made(at: int) -> Deployment:
        elm = replace(zone("elm", 3, begins=at * QUARTER), meters=ELM)
        oak = replace(zone("oak", 4, begins=at * QUARTER), meters=OAK)
        return service(tmp_path, elm, oak, zone("ash", 2, begins=at * QUARTER))

    new = World(made(world.t), world.t)
    new.play(lambda world: world.whole(4), new_epoch=True)
    put_back(world.made, copy)
    witness_file(world.made, lost).unlink()
    resume_zones(world.made, None, new.time, lost_epochs=[new.made])
    move(world.made, "elm-1", "elm", "oak", new.time)
    again = World(made(new.t + 2), new.t + 2)
    again.play(lambda world: world.whole(1), new_epoch=True)
    carried = move(again.made, "elm-1", "oak", "ash", again.time)
    (came,) = again.standing("ash").transfers
    booked = math.fsum(gap.epsilon for gap in again.standing("elm").booked)
    truth = 0.5 * (STEPS + 4 + 1) + booked
    assert min(carried.epsilon, came.total) >= truth * (1 - 1e-9)
    report = check(found := records(again), verify_signature)
    assert report.first_bad is None, report.reason
    export = tmp_path / "export.ndjson"
    export.write_text("".join(f"{one.line}\n" for one in found))
    subprocess.run([sys.executable, str(SCRIPT), str(export)], check=True)


def test_a_house_that_never_left_is_no_recovery(world: World) -> None:
    """A record of coming alone, with no gap where it came from."""
    with (
        open_store(world.made.ledger) as store,
        Ledger.open(store, "oak", load(world.made.key), world.made.mode, world.time) as oak,
    ):
        oak.append("transfer", transfer("house", "in", "elm", 0.0, out="ab" * 32))
    report = check(records(world), verify_signature)
    assert "no record by which the house left; if it was lost" in str(report.reason)


def test_a_house_comes_again_with_no_less_than_before(world: World) -> None:
    """Else the record by which it left would be there, and the other refused for good."""
    key = load(world.made.key)
    (name,) = house_names(key, ["elm-1"])
    with (
        open_store(world.made.ledger) as store,
        open_witnesses(world.made) as witnesses,
        Ledger.open(
            store, "oak", key, world.made.mode, world.time, witness=witnesses.of("oak")
        ) as oak,
    ):
        oak.append("transfer", transfer(name, "in", "elm", 9.0, out="ab" * 32))
    moved(world)
    assert [one.epsilon for one in world.standing("oak").transfers] == [9.0, 9.0]
