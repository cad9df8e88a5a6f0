"""A house that changes zone takes its account along, through crashes and changes of terms."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid.cli import main
from hushgrid.curator.gaps import book, resume_zones
from hushgrid.curator.transfer import move
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, Promise, ZoneService
from hushgrid.files.zone_file import Provenance
from hushgrid.intake.readings import Register
from hushgrid.operate.check import examine
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entry import LedgerEntry
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.terms import TermsRecord
from hushgrid.stores.ledger.writer import Ledger, load, verify_signature
from tests import bodies
from tests.bodies import transfer
from tests.curator.borders import exact
from tests.curator.curators import Shown, curator, feed
from tests.curator.lost_files import put_back, save, witness_file
from tests.curator.setups import STAY
from tests.curator.transfers import run_on, standing, two
from tests.operate.faults import FIRST, QUARTER, World, service, zone
from tests.stores.ledger.verifier import SCRIPT

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


def test_a_house_is_in_both_ledgers(world: World) -> None:
    moved(world)
    assert transfers(world) == [("elm", "out"), ("oak", "in")]
    (came,) = world.standing("oak").transfers
    assert came.last == (FIRST + STEPS) * QUARTER
    assert came.account is not None
    assert came.account[0][1] == sys.float_info.max, "of prices without a promise all may be known"
    report = check(records(world), verify_signature)
    assert report.first_bad is None, report.reason
    assert "elm-1" not in "".join(record.line for record in records(world)), "its name tells nobody"
    again = new_terms(world, ELM, OAK, world.t)
    again.play(lambda again: again.whole(3), new_terms=True)
    for name in ("elm", "oak"):
        assert {one.source for one in again.standing(name).current} == {"readings"}


def test_a_home_moves_with_all_its_meters(tmp_path: Path) -> None:
    """Apart they would spend the home's promise in both zones."""
    pair = Register(1, "elm-1-garage", 1)
    world = World(service(tmp_path, replace(zone("elm"), registers=(pair,)), zone("oak", 3)))
    world.play(lambda world: world.whole(STEPS))
    moved(world, "elm-1-garage")
    assert sorted(transfers(world)) == [("elm", "out")] * 2 + [("oak", "in")] * 2
    moved(world)  # again: nothing is left to be written
    assert len(transfers(world)) == 4


def test_a_roster_that_still_has_the_house_is_refused(world: World) -> None:
    moved(world)
    for flag in (False, True):
        with pytest.raises(LedgerError, match="house 2 of zone 'elm' has moved to zone 'oak'"):
            world.play(lambda world: world.whole(1), new_terms=flag)


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
        again.play(lambda world: world.whole(1), new_terms=True)
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
    again.play(lambda world: world.whole(1), new_terms=True)
    moved(again, source="oak", target="elm")
    (_, back) = again.standing("elm").transfers
    assert back.last == (FIRST + STEPS + 1) * QUARTER
    assert check(records(again), verify_signature).first_bad is None


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
    assert (values["from"], values["to"], values["anew"]) == ("elm", "oak", True)
    status, out, _ = run(capsys, "elm-1", *ways)
    assert "has taken its account already" in out
    assert world.standing("oak").transfers[0].house == values["house"]


@pytest.mark.parametrize("then", ["lost", "start", "gap"])
def test_what_models_cost_is_charged_after_a_crash_or_a_loss(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terms are lost and named; or they are on record and their charge is not."""
    elm, _ = two()
    pooled = replace(
        elm,
        learned=Provenance(
            epsilon=1.2, homes=9, digest="a" * 64, first_reading=0, last_reading=900
        ),
    )
    if then == "lost":
        with curator(tmp_path, elm, Shown(), now=elm.begins) as it:
            it._ledger.append("gap", bodies.gap(it.t, it.t + 5, "witness"))
            book(elm, it._ledger, [replace(pooled, policy=replace(pooled.policy, epsilon=0.4))])
    else:
        with monkeypatch.context() as crash:
            write = Ledger.write

            def killed(ledger: Ledger, entry: LedgerEntry) -> None:
                write(ledger, entry)
                assert not isinstance(entry, TermsRecord)

            crash.setattr(Ledger, "write", killed)
            with pytest.raises(AssertionError):
                run_on(tmp_path, pooled, 0)
        assert standing(tmp_path, "elm").terms is not None
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
    assert [one.epsilon for one in standing(tmp_path, "elm").charges] == [1.2]


@pytest.mark.parametrize("of", ["lost", "present"])
def test_a_promise_about_an_interval_holds_after_terms_are_booked_as_lost(
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


def lose_the_transfer(world: World) -> None:
    """A transfer, and a copy of the ledger from before it put back on a new disk."""
    copy = save(world.made, "copy")
    moved(world)
    put_back(world.made, copy, "witness", "small")


def test_a_transfer_that_is_lost_is_asked_for_again(world: World) -> None:
    lose_the_transfer(world)
    again = new_terms(world, ELM, OAK, world.t)
    with pytest.raises(LedgerError, match=r"house 4 of zone 'oak' was in zone 'elm'"):
        again.play(lambda again: again.whole(1), new_terms=True)
    assert all(len(world.standing(name).terms_records) == 1 for name in ("elm", "oak"))
    problems = examine(again.made).problems
    assert any("house 4 of zone 'oak' was in zone 'elm'" in one for one in problems)
    moved(world)
    again.play(lambda again: again.whole(1), new_terms=True)
    assert again.standing("oak").current[-1].source == "readings"


def test_a_house_that_was_in_no_zone_for_a_while_is_still_known(world: World) -> None:
    alone = new_terms(world, ELM, ("oak-0", "oak-1", "oak-2"), world.t)
    alone.play(lambda world: world.whole(1), new_terms=True)
    again = new_terms(alone, ELM, OAK, alone.t)
    with pytest.raises(LedgerError, match="no transfer is on record"):
        again.play(lambda world: world.whole(1), new_terms=True)
    back = new_terms(alone, ("elm-0", "elm-1", "elm-2", "elm-3"), OAK[:3], alone.t)
    back.play(lambda _: iter(()), new_terms=True)
    moved(back)
    again.play(lambda world: world.whole(1), new_terms=True)
    assert again.standing("oak").transfers[-1].last == (world.t + 1) * QUARTER


def test_a_roster_that_published_nothing_is_corrected_without_a_transfer(world: World) -> None:
    wrong = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3", "new"), OAK[:3], world.t + 2)
    wrong.play(lambda _: iter(()), new_terms=True)
    right = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3"), (*OAK[:3], "new"), world.t + 2)
    right.play(lambda _: iter(()), new_terms=True)
    assert [len(world.standing(name).terms_records) for name in ("elm", "oak")] == [3, 3]


def test_a_new_zone_does_not_take_houses_without_what_they_spent(world: World) -> None:
    """Its first terms need no flag."""
    ash = replace(zone("ash", 1, begins=world.t * QUARTER), meters=("elm-1",))
    made = World(service(world.made.key.parent, ash), world.t)
    with pytest.raises(LedgerError, match=r"house 1 of zone 'ash' was in zone 'elm'"):
        made.play(lambda _: iter(()))
    with open_store(made.made.ledger, create=False) as store:
        assert store.zones() == ("elm", "oak")


@pytest.mark.parametrize("meter", ["elm-9", "elm-1"])
def test_a_new_zone_is_new_until_its_first_terms(world: World, meter: str) -> None:
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


def test_terms_that_published_nothing_go_on_with_houses_that_are_still_theirs(
    world: World,
) -> None:
    """Elm published about the house after oak's terms had begun with it."""
    early = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3"), (*OAK[:3], "new"), world.t)
    early.play(lambda _: iter(()), new_terms=True)
    elm = replace(zone("elm", 5, begins=world.t * QUARTER))
    elm = replace(elm, meters=("elm-0", "elm-1", "elm-2", "elm-3", "new"))
    meanwhile = World(service(world.made.key.parent, elm), world.t)
    meanwhile.play(lambda world: world.whole(1), new_terms=True)
    (oak,) = (one for one in early.made.zones if one.id == "oak")
    with pytest.raises(LedgerError, match=r"house 4 of zone 'oak' was in zone 'elm'"):
        World(service(world.made.key.parent, oak), world.t).play(lambda _: iter(()))


@pytest.mark.parametrize("published", [STEPS, 0])
@pytest.mark.sampled
def test_a_house_that_comes_back_needs_new_terms(tmp_path: Path, published: int) -> None:
    """Elm did not go on while oak published about the house."""
    world = World(service(tmp_path, zone("elm"), zone("oak", 3)))
    world.play(lambda world: world.whole(STEPS))
    if not published:  # the terms are recorded, and that is all
        world = new_terms(world, ("elm-0", "elm-1", "elm-2", "elm-3"), OAK[:3], world.t)
        world.play(lambda _: iter(()), new_terms=True)
    moved(world)
    oak = replace(zone("oak", 4, begins=world.t * QUARTER), meters=OAK)
    there = World(service(tmp_path, oak), world.t)
    there.play(lambda world: world.whole(2), new_terms=True)
    move(service(tmp_path, world.made.zones[0], oak), "elm-1", "oak", "elm", there.time)
    back = World(service(tmp_path, world.made.zones[0]), there.t)
    with pytest.raises(LedgerError, match=r"house 2 of zone 'elm' came from zone 'oak' after"):
        back.play(lambda world: world.whole(1))
    problems = examine(back.made).problems
    assert any("came from zone 'oak' after the present terms" in one for one in problems)
    elm = replace(zone("elm", 4, begins=there.t * QUARTER))
    anew = World(service(tmp_path, elm), there.t)
    anew.play(lambda world: world.whole(1), new_terms=True)
    assert anew.standing("elm").current[-1].source == "readings"


@pytest.mark.parametrize("lost", ["elm", "oak"])
@pytest.mark.sampled
@pytest.mark.soak
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
    new.play(lambda world: world.whole(4), new_terms=True)
    put_back(world.made, copy)
    witness_file(world.made, lost).unlink()
    resume_zones(world.made, None, new.time, lost_terms=[new.made])
    move(world.made, "elm-1", "elm", "oak", new.time)
    again = World(made(new.t + 2), new.t + 2)
    again.play(lambda world: world.whole(1), new_terms=True)
    move(again.made, "elm-1", "oak", "ash", again.time)
    (came,) = again.standing("ash").transfers
    assert came.account is not None
    assert came.account[0][1] == sys.float_info.max
    assert came.last == again.t * QUARTER
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
        oak.append("transfer", transfer("house", "in", "elm", out="ab" * 32))
    report = check(records(world), verify_signature)
    assert "no record by which the house left; if it was lost" in str(report.reason)
