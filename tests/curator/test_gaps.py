"""Releases that may be lost: what shows it, what it costs, and what is not taken for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from hushgrid import OccupancyModel, Policy, Zone
from hushgrid.audit.accounts import budget
from hushgrid.cli import main
from hushgrid.curator.curator import Curator
from hushgrid.curator.gaps import _is_beyond, largest_loss, note_loss, resume_zones
from hushgrid.curator.status import from_ledger
from hushgrid.curator.terms import terms_record
from hushgrid.curator.transfer import move
from hushgrid.errors import LedgerError, MeterError
from hushgrid.files.deployment import ZoneService
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.operate.process import make_noise
from hushgrid.stores.clients import Client, ClientStore
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import fold
from hushgrid.stores.ledger.entries import GapRecord, ReleaseRecord
from hushgrid.stores.ledger.records import Head
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.witness import Witnesses, open_witnesses
from hushgrid.stores.ledger.writer import Ledger, load, verify_signature
from hushgrid.stores.meters import open_meters
from hushgrid.web.tokens import make_token
from tests import bodies
from tests.bodies import resume
from tests.curator.copies import put_back, take_copy
from tests.curator.setups import service as plain
from tests.curator.setups import street_in
from tests.operate.faults import FIRST, QUARTER, World, lose_meters, no_pauses, service, zone
from tests.services import Postgres
from tests.web.http.credentials import KEPT

__all__ = ["no_pauses"]


def older_copy(world: World, lost: int = 1, *, new_machine: bool = True) -> World:
    """A service that published, and its ledger without the last records, perhaps elsewhere."""
    world.play(lambda world: world.whole(2))
    take_copy(world.made)
    world.play(lambda world: world.whole(lost))
    put_back(world.made, new_machine=new_machine)
    return world


def looked(world: World, passes: int = 1) -> World:
    """Run the service for some intervals more."""
    world.play(lambda world: world.whole(passes))
    return world


def test_an_older_copy_of_the_ledger_is_filled_up_again(tmp_path: Path) -> None:
    world = older_copy(World(service(tmp_path)), lost=3, new_machine=False)
    looked(world)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + 6))


def test_the_meter_store_is_the_second_witness(tmp_path: Path) -> None:
    world = looked(older_copy(World(service(tmp_path)), lost=3))
    standing = world.standing()
    assert standing.gap is not None
    first, last = FIRST + 2, FIRST + 4
    assert (standing.gap.first, standing.gap.last, standing.gap.why) == (first, last, "meters")
    assert [one.source for one in standing.releases[2:]] == ["forecast"]
    assert [one.t for one in standing.releases[2:]] == [FIRST + 5]  # none of those lost
    (status,) = from_ledger(world.made, world.time)
    assert status.state == "forecast until hushgrid resume"
    (found,) = resume_zones(world.made, None, world.time)
    assert (found.state, found.first, found.last) == ("resumed", first, last)
    assert found.epsilon == pytest.approx(3 * 0.5)
    assert world.standing().epsilon == pytest.approx(5 * 0.5)
    looked(world)
    assert world.standing().releases[-1].source == "readings"
    assert [one.state for one in resume_zones(world.made, "elm", world.time)] == ["no gap"]
    with pytest.raises(LedgerError, match="give one of the service file: elm"):
        resume_zones(world.made, "oak", world.time)


def test_nothing_is_lost_where_a_crash_came_between_closing_and_publishing(tmp_path: Path) -> None:
    world = looked(World(service(tmp_path)), 2)
    with open_meters(world.made.meters) as meters:
        one = world.made.zones[0]
        meters.open_zone(one.id, one.meters, one.seconds)
        meters.close(one.id, world.t * QUARTER)  # and no release
    world.ahead()
    world.unsure.add(("elm", world.t - 1))
    looked(world)
    assert world.standing().gap is None
    assert list(world.releases()) == list(range(FIRST, FIRST + 4))


def test_a_ledger_from_before_opens_and_gets_a_witness(tmp_path: Path) -> None:
    world = looked(World(service(tmp_path)), 2)
    shutil.rmtree(world.made.witness_folder)
    looked(world, 2)
    world.judge()
    assert world.standing().gap is None
    assert list(world.made.witness_folder.glob("1/????????????????"))


def test_a_zone_that_passed_intervals_before_its_first_release_has_no_gap(tmp_path: Path) -> None:
    """A new zone closes what was before it came; an upgrade finds that without a witness."""
    world = World(service(tmp_path), FIRST + 40)
    world.play(lambda _: iter(()))
    shutil.rmtree(world.made.witness_folder)
    looked(world, 2)
    world.judge()
    assert world.standing().gap is None
    assert list(world.releases()) == [FIRST + 40, FIRST + 41]


def test_no_new_terms_and_no_house_leaves_before_the_gap_is_booked(tmp_path: Path) -> None:
    made = service(tmp_path, zone("elm"), zone("oak", 3))
    world = looked(older_copy(World(made)))
    with pytest.raises(LedgerError, match=r"not booked; run hushgrid resume first"):
        move(made, "elm-1", "elm", "oak", world.time)
    later = tuple(replace(one, begins=(world.t + 1) * QUARTER) for one in made.zones)
    again = World(replace(made, zones=later), world.t)
    with pytest.raises(LedgerError, match=r"not booked; run hushgrid resume first"):
        again.play(lambda world: world.whole(1), new_terms=True)
    resume_zones(made, None, world.time)
    move(made, "elm-1", "elm", "oak", world.time)
    (lost,) = world.standing().booked
    assert world.standing("oak").transfers[-1].last == (lost.last + 1) * QUARTER


def test_an_audit_finds_a_gap_that_is_booked_too_low(tmp_path: Path) -> None:
    world = looked(older_copy(World(service(tmp_path, zone("elm"))), lost=3))
    gap = world.standing().gap
    assert gap is not None
    with (
        open_store(world.made.ledger) as store,
        Ledger.open(store, "elm", load(world.made.key), "simulation", world.time) as ledger,
    ):
        ledger.append("resume", resume(gap.first, gap.last, epsilon=0.5))
    evidence, _ = load_ledger(world.made.ledger, zone=None, key=None, heads=())
    terms = terms_of(world.made.zones[0])
    found = budget(evidence[0], {evidence[0].weeks[0].digest: terms})
    assert found.status == "failed"
    assert "may have cost 1.5" in found.text


def test_two_histories_are_booked_by_resume(tmp_path: Path) -> None:
    world = older_copy(World(service(tmp_path)), lost=2, new_machine=False)
    kept = tmp_path / "kept"
    world.made.witness_folder.rename(kept)
    sidecar_path(Path(world.made.ledger), "elm").unlink()
    again = replace(world.made, meters=str(tmp_path / "other"))  # knows of nothing
    looked(World(again, world.t - 1), 2)
    shutil.rmtree(world.made.witness_folder)
    kept.rename(world.made.witness_folder)
    with pytest.raises(LedgerError, match="two histories were written"):
        looked(World(again, world.t + 1))
    (found,) = resume_zones(again, None, world.time + QUARTER)
    assert found.state == "resumed"
    # what the other history states, and as much again for what may have followed it
    assert (found.first, found.epsilon) == (FIRST + 2, pytest.approx(2 * 0.5 + 2 * 0.5))
    looked(World(again, world.t + 1))


def test_resume_as_a_user_types_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["resume", "--help"])
    assert stopped.value.code == 0
    assert "Example: hushgrid resume" in " ".join(capsys.readouterr().out.split())
    file = street_in(tmp_path / "new")
    with pytest.raises(SystemExit) as stopped:
        main(["resume", str(file), "--json", "-"])
    assert stopped.value.code == 0
    (one,) = json.loads(capsys.readouterr().out)["zones"]
    assert one["state"] == "no gap"


def reopened(world: World) -> list[str]:
    """One interval more; the sources of all releases."""
    looked(world)
    return [one.source for one in world.standing().releases]


def test_an_open_gap_grows_with_a_second_loss(tmp_path: Path) -> None:
    """The records after a gap are lost, the one of the gap is not: resume books all of it."""
    world = looked(older_copy(World(service(tmp_path)), lost=1))
    gap = world.standing().gap
    assert gap is not None
    assert (gap.first, gap.last) == (FIRST + 2, FIRST + 2)
    folder = Path(world.made.ledger).parent
    for end in ("", "-wal"):
        if (path := folder / f"ledger.db{end}").exists():
            shutil.copy(path, folder / f"copy{end}")
    resume_zones(world.made, None, world.time)
    looked(world, 3)  # from readings, and lost
    lost = world.standing()
    assert [one.source for one in lost.releases[-3:]] == ["readings"] * 3
    for end in ("", "-wal", "-shm"):
        (folder / f"ledger.db{end}").unlink(missing_ok=True)
        if (folder / f"copy{end}").exists():
            (folder / f"copy{end}").rename(folder / f"ledger.db{end}")
    shutil.rmtree(world.made.witness_folder)  # the small file still knows the last record
    (found,) = resume_zones(world.made, None, world.time)
    assert (found.first, found.last) == (gap.first, lost.last_t)
    assert found.epsilon is not None
    assert found.epsilon >= 0.5 * 4  # the first gap's step, and those lost after it
    looked(world)
    evidence, chain = load_ledger(world.made.ledger, zone=None, key=None, heads=())
    assert chain.status == "passed"
    assert [(one.first, one.last) for one in evidence[0].gaps] == [(gap.first, lost.last_t)]


def test_what_resume_writes_does_not_vouch_for_what_it_did_not_see(tmp_path: Path) -> None:
    """No witness and no small file: only the meter store knows of three steps."""
    world = older_copy(World(service(tmp_path)), lost=3)
    (found,) = resume_zones(world.made, None, world.time)
    assert (found.state, found.first, found.last) == ("resumed", FIRST + 2, FIRST + 4)
    assert reopened(world) == ["readings"] * 3
    assert world.standing().releases[-1].t == FIRST + 5


@pytest.mark.parametrize("harm", ["flip", "cut", "torn", "line", "signature"])
@pytest.mark.sampled
def test_a_damaged_witness_does_not_prove_that_nothing_is_missing(
    tmp_path: Path, harm: str
) -> None:
    world = older_copy(World(service(tmp_path)), lost=3, new_machine=False)
    sidecar_path(Path(world.made.ledger), "elm").unlink()
    (file,) = world.made.witness_folder.glob("1/????????????????")
    lines = file.read_bytes().removesuffix(b"end\n").splitlines(keepends=True)
    last = bytearray(lines.pop())
    signature = last.index(b'"signature":"') + 20
    last[signature if harm == "signature" else 40] ^= 1
    end = {"cut": b"", "torn": bytes(last[:70]), "line": b""}.get(harm, bytes(last))
    if harm == "signature":  # a whole file but for one digit
        end += b"end\n"
    if harm == "line":  # up to where the copy ends
        lines = lines[:-2]
    file.write_bytes(b"".join(lines) + end)
    looked(world)
    gap = world.standing().gap
    assert gap is not None
    assert gap.last == FIRST + 4
    kept = {one.t for one in world.standing().releases}
    assert not kept & set(range(gap.first, gap.last + 1))  # none has a second release


def test_no_new_terms_where_the_meter_store_knows_of_more_releases(tmp_path: Path) -> None:
    world = older_copy(World(service(tmp_path)), lost=3)
    later = tuple(replace(one, begins=(world.t + 1) * QUARTER) for one in world.made.zones)
    again = World(replace(world.made, zones=later), world.t)
    with pytest.raises(LedgerError, match=r"not booked; run hushgrid resume first"):
        again.play(lambda world: world.whole(1), new_terms=True)


def test_no_house_leaves_while_a_loss_is_evident(tmp_path: Path) -> None:
    made = service(tmp_path, zone("elm"), zone("oak", 3))
    world = older_copy(World(made), lost=2)
    with pytest.raises(LedgerError, match=r"not booked; run hushgrid resume first"):
        move(made, "elm-1", "elm", "oak", world.time)
    resume_zones(made, None, world.time)
    move(made, "elm-1", "elm", "oak", world.time)
    assert world.standing("oak").transfers[-1].last == world.standing().reach


def test_terms_that_are_lost_are_booked_by_what_they_say(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    folder, old = Path(world.made.ledger).parent, world.made
    looked(world, 2)
    for end in ("", "-wal"):
        if (path := folder / f"ledger.db{end}").exists():
            shutil.copy(path, folder / f"copy{end}")
    policy = replace(old.zones[0].policy, epsilon=2.0)
    new = replace(old, zones=(replace(old.zones[0], policy=policy, begins=world.t * QUARTER),))
    second = World(new, world.t)
    second.play(lambda world: world.whole(3), new_terms=True)
    for end in ("", "-wal", "-shm"):
        (folder / f"ledger.db{end}").unlink(missing_ok=True)
        if (folder / f"copy{end}").exists():
            (folder / f"copy{end}").rename(folder / f"ledger.db{end}")
    shutil.rmtree(old.witness_folder)
    with pytest.raises(LedgerError, match="--lost-terms"):
        resume_zones(new, None, second.time)
    (found,) = resume_zones(old, None, second.time, lost_terms=[new])
    assert found.epsilon == pytest.approx(3 * 2.0 + 3 * 0.5)
    later = replace(new, zones=(replace(new.zones[0], begins=second.t * QUARTER),))
    third = World(later, second.t)
    third.play(lambda world: world.whole(2), new_terms=True)
    assert [one.source for one in third.standing().releases[-2:]] == ["readings"] * 2


def noted(
    world: World, now: float, *, moved: bool, grace: int | None = None
) -> tuple[int, int] | None:
    """The gap that is noted where the ledger's server is the same as before, or is not.

    With another `grace` [s] than before, the meter store is lost, too.
    """
    made, one = world.made, world.made.zones[0]
    with (
        open_store(made.ledger) as store,
        open_witnesses(made) as witnesses,
        open_meters(made.meters) as meters,
        Ledger.open(
            store, "elm", load(made.key), made.mode, now, witness=witnesses.of("elm")
        ) as ledger,
    ):
        meters.open_zone("elm", one.meters, one.seconds)
        ledger.opening = ledger.opening._replace(moved=moved)
        if grace is None:
            note_loss(one, ledger, meters, now)
        else:
            note_loss(replace(one, grace=grace), ledger, None, now)
        gap = ledger.standing.gap
    return None if gap is None else (gap.first, gap.last)


def test_the_meter_store_is_asked_where_a_copy_of_the_same_server_is_put_back(
    tmp_path: Path,
) -> None:
    world = older_copy(World(service(tmp_path)), lost=3)
    assert noted(world, world.time, moved=False) == (FIRST + 2, FIRST + 4)


@pytest.mark.parametrize(
    "standby", [True, False], ids=["of one that stood by", "of a machine before"]
)
def test_a_witness_that_is_older_than_the_loss_does_not_hide_it(
    tmp_path: Path, standby: bool
) -> None:
    """Its file is whole, and ends where the copy of the ledger ends or before; same server."""
    world = looked(World(service(tmp_path)), 2)
    stale = tmp_path / "stale"
    shutil.copytree(world.made.witness_folder, stale)
    if not standby:
        looked(world)
    take_copy(world.made)
    first = world.t
    looked(world, 3)
    put_back(world.made, new_machine=True)
    stale.rename(world.made.witness_folder)
    world.made = replace(world.made, standby=standby)
    assert noted(world, world.time, moved=False) == (first, first + 2)


@pytest.mark.parametrize("followed", [True, False])
def test_a_curator_that_followed_takes_over_without_a_gap(tmp_path: Path, followed: bool) -> None:
    """The other one closed an interval and stopped before its release."""
    world = looked(World(service(tmp_path)), 2)
    made, one = world.made, world.made.zones[0]
    with (
        open_store(made.ledger) as store,
        Witnesses(tmp_path / "other", shared=True) as witnesses,
        open_meters(made.meters) as meters,
    ):
        meters.open_zone("elm", one.meters, one.seconds)
        meters.close("elm", world.t * QUARTER)
        last = world.standing().releases[-1].published_at
        witnesses.of("elm").follow(list(store.records("elm")), last + (not followed))
        with Ledger.open(
            store, "elm", load(made.key), made.mode, world.time, witness=witnesses.of("elm")
        ) as ledger:
            ledger.opening = ledger.opening._replace(moved=False)
            note_loss(one, ledger, meters, world.time)
            assert (ledger.standing.gap is None) is followed


@pytest.mark.parametrize("order", [1, -1])
def test_other_meters_are_others_than_those_that_were_lost(order: int) -> None:
    """The digest of terms has the meters."""
    one = plain(2)
    first, old = one.begins // one.seconds, terms_record(one)
    gap = GapRecord(first, first, "fork")
    lost = LedgerState("elm", "", "", Head(1, ""), "", old, (old,), (), (), gap=gap)
    twice = largest_loss(one, lost, [replace(one, meters=one.meters[::order])])
    assert twice == pytest.approx((1 + (order < 0)) * largest_loss(one, lost, [one]))


def test_a_lost_end_counts_for_houses_that_are_certain() -> None:
    """The large house is at home for certain, so that the noise is not set by it."""
    stay, move = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]
    chains = [[stay, move]]
    theta = OccupancyModel.factored([[0.0, 1.0], [0.0, 1.0]], chains)
    one = plain(2, policy=Policy(1.0, horizon=16))
    homes = Zone("elm", [10_000, 1000])
    one = replace(one, scenario=replace(one.scenario, zone=homes, models=(theta,)))
    first, terms = one.begins // one.seconds, terms_record(one)
    gap = GapRecord(first + 2, first + 7, "witness")
    head = Head(1, "")
    lost = LedgerState("elm", "", "", head, "", terms, (terms,), (), (), gap=gap)
    booked = largest_loss(one, lost)
    # 6 steps, each with noise for the small house
    assert booked == pytest.approx(6 * 10_000 / 1000)


@pytest.mark.parametrize("place", ["one server", "meters in a file"])
@pytest.mark.sampled
def test_a_meter_store_on_the_ledgers_server_is_no_second_witness(
    tmp_path: Path, postgres: Postgres, place: str
) -> None:
    """Killed between closing and publishing, and taken over by a machine that knows nothing.

    What is on one server is lost in the order in which it was committed. So on the server that was
    last written to, an interval that is closed and has no release was not published. A file may
    have been closed after what the server lost.
    """
    made, together = replace(service(tmp_path), ledger=postgres.fresh()), place == "one server"
    if place != "meters in a file":
        made = replace(made, meters=postgres.fresh())
    world = looked(World(made), 2)
    t, one = world.t, made.zones[0]
    with open_meters(made.meters) as meters:
        meters.open_zone(one.id, one.meters, one.seconds)
        meters.close(one.id, t * QUARTER)
    shutil.rmtree(made.witness_folder)
    world.ahead()
    looked(world)
    gap = world.standing().gap
    assert (gap is None) is together
    assert gap is None or gap.why == "meters"
    assert (t in world.releases()) is together


def test_no_terms_begin_before_those_that_were_set_aside(tmp_path: Path) -> None:
    """With another roster it closed the meter store, which would show no loss until then."""
    world = looked(World(service(tmp_path)), 2)
    made, one = world.made, world.made.zones[0]
    ahead = replace(one, begins=(world.t + 40) * QUARTER, meters=one.meters[::-1])
    World(replace(made, zones=(ahead,)), world.t).play(lambda _: iter(()), new_terms=True)
    soon = replace(made, zones=(replace(one, begins=(world.t + 2) * QUARTER),))
    with pytest.raises(LedgerError, match="its meter store is closed up to the interval"):
        World(soon, world.t).play(lambda _: iter(()), new_terms=True)
    elsewhere = replace(soon, meters=str(tmp_path / "another.db"))
    World(elsewhere, world.t).play(lambda _: iter(()), new_terms=True)


def test_terms_that_were_set_aside_hide_no_loss() -> None:
    """Only the roster of the last terms closes an interval ahead that was not published."""
    one = plain(2)
    first, length = one.begins // one.seconds, one.seconds
    records = [
        bodies.terms_of("0" * 64, first + n, length, roster=letter * 64)
        for n, letter in ((0, "a"), (20, "b"), (8, "a"))
    ]
    for n, last in ((2, records[1]), (3, records[2])):
        some = tuple(records[:n])
        found = LedgerState("elm", "", "", Head(1, ""), "", last, some, (), ())
        assert _is_beyond((first + 19) * length, found) is (n == 3)
        assert not _is_beyond((last.first - 1) * length, found)


def test_an_opening_that_fails_before_the_loss_is_judged_leaves_no_witness(tmp_path: Path) -> None:
    """A file written by it would vouch for a ledger that lacks its end."""
    world = older_copy(World(service(tmp_path)), lost=3)
    other = replace(world.made.zones[0], policy=replace(world.made.zones[0].policy, epsilon=0.6))
    with pytest.raises(LedgerError, match="other terms than the ledger"):
        World(replace(world.made, zones=(other,)), world.t).play(lambda world: world.whole(1))
    assert noted(world, world.time, moved=False) == (FIRST + 2, FIRST + 4)


@pytest.mark.parametrize("grace", [0, 2 * QUARTER])
def test_a_longer_grace_does_not_shorten_a_gap(tmp_path: Path, grace: int) -> None:
    """It is no part of the terms: releases may have come with a shorter one."""
    world = older_copy(World(service(tmp_path)), lost=3)
    found = noted(world, world.time, moved=True, grace=grace)
    assert found is not None
    assert found[1] >= FIRST + 4


def test_a_clock_behind_the_ledger_does_not_judge_a_fail_over(tmp_path: Path) -> None:
    world = older_copy(World(service(tmp_path)), lost=3)
    with pytest.raises(LedgerError, match="set the clock"):
        noted(world, world.time - 4 * QUARTER, moved=True)
    behind = world.time - 3 * QUARTER  # no release on record is later, a closed interval is
    assert noted(world, behind, moved=True) == (FIRST + 2, FIRST + 4)


def test_all_releases_under_terms_may_be_lost(tmp_path: Path) -> None:
    """The last interval had no readings; those before it had, and were published."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(0))
    take_copy(world.made)

    def story(world: World) -> Iterator[None]:
        yield from world.whole(3)
        world.ahead()  # nothing is read
        yield

    world.play(story)
    assert [one.source for one in world.standing().releases] == ["readings"] * 3 + ["forecast"]
    put_back(world.made, new_machine=True)
    looked(world)
    gap = world.standing().gap
    assert gap is not None
    assert (gap.first, gap.last, gap.why) == (FIRST, FIRST + 3, "meters")


def test_an_older_witness_file_proves_nothing(tmp_path: Path) -> None:
    """A command held the first place while the service ran; later it was the other way round."""
    world = looked(World(service(tmp_path)))
    with open_witnesses(world.made):
        looked(world)
    take_copy(world.made)
    looked(world, 3)
    put_back(world.made, new_machine=False)
    sidecar_path(Path(world.made.ledger), "elm").unlink()
    for file in world.made.witness_folder.glob("1/????????????????"):
        file.unlink()
    looked(world)
    gap = world.standing().gap
    assert gap is not None
    assert (gap.first, gap.last, gap.why) == (FIRST + 2, FIRST + 4, "meters")


def test_a_new_ledger_proves_nothing_before_the_meter_store_is_asked(tmp_path: Path) -> None:
    """All of the ledger is lost, and the first start after it fails."""
    world = looked(World(service(tmp_path)), 3)
    put_back(world.made, new_machine=True)  # no copy: nothing is left
    other = replace(world.made.zones[0], meters=("a", "b", "c", "d"))
    with pytest.raises(MeterError, match="kept for a roster"):
        looked(World(replace(world.made, zones=(other,)), world.t))
    looked(world)
    gap = world.standing().gap
    assert gap is not None
    assert (gap.first, gap.last, gap.why) == (FIRST, FIRST + 2, "meters")


def test_what_shows_a_loss_stays_until_it_is_judged(tmp_path: Path) -> None:
    """The witness is cut, and the small file alone knows of more; the first start fails."""
    world = older_copy(World(service(tmp_path)), lost=3, new_machine=False)
    (file,) = world.made.witness_folder.glob("1/????????????????")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-3]))
    lose_meters(world.made)
    other = replace(world.made.zones[0], policy=replace(world.made.zones[0].policy, epsilon=0.6))
    with pytest.raises(LedgerError, match="other terms than the ledger"):
        looked(World(replace(world.made, zones=(other,)), world.t))
    looked(world)
    gap = world.standing().gap
    assert gap is not None
    assert (gap.first, gap.last) == (FIRST + 3, FIRST + 4)  # one of three is put back


def test_new_terms_do_not_hide_that_the_whole_ledger_is_lost(tmp_path: Path) -> None:
    world = looked(World(service(tmp_path)), 3)
    put_back(world.made, new_machine=True)
    world.play(lambda world: world.whole(1), new_terms=True)
    gap = world.standing().gap
    assert gap is not None
    assert (gap.first, gap.last, gap.why) == (FIRST, FIRST + 2, "meters")


def test_resume_puts_back_a_ledger_of_which_nothing_is_left(tmp_path: Path) -> None:
    world = looked(World(service(tmp_path)), 3)
    put_back(world.made, new_machine=False)
    assert [one.state for one in resume_zones(world.made, None, world.time)] == ["no gap"]
    assert list(world.releases()) == list(range(FIRST, FIRST + 3))


def test_two_histories_without_a_release_have_a_way_out(tmp_path: Path) -> None:
    """Nothing is to be booked, so resume is no way out; the sentence names the one there is."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(0))
    kept = tmp_path / "kept"
    world.made.witness_folder.rename(kept)
    Path(world.made.ledger).unlink()
    sidecar_path(Path(world.made.ledger), "elm").unlink()
    other = replace(world.made.zones[0], policy=replace(world.made.zones[0].policy, epsilon=0.6))
    again = World(replace(world.made, zones=(other,)))
    again.play(lambda world: world.whole(1))
    shutil.rmtree(world.made.witness_folder)
    kept.rename(world.made.witness_folder)
    with pytest.raises(LedgerError, match="or move the witness folder away") as refused:
        looked(again)
    assert "hushgrid resume" not in str(refused.value)
    shutil.rmtree(world.made.witness_folder)
    looked(again)
    assert [one.source for one in again.standing().releases] == ["readings"] * 2


@dataclass
class Shown:
    """Every release that was published, by step and head."""

    found: dict[int, dict[str, ReleaseRecord]] = field(default_factory=dict)

    def publish(self, service: ZoneService, release: ReleaseRecord) -> None:
        del service
        self.found.setdefault(release.t, {})[release.head] = release


class Fuzzed:
    """A zone's curator that is started and stopped; what it keeps is lost in part."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.made, self.shown, self.t = service(folder), Shown(), FIRST
        self.chance = Random(seed)

    def run(self, intervals: int) -> None:
        made, one = self.made, self.made.zones[0]
        with (
            open_witnesses(made) as witnesses,
            open_meters(made.meters) as meters,
            open_store(made.ledger) as store,
            Curator.open(
                one,
                store,
                meters,
                make_noise(made),
                load(made.key),
                [self.shown],
                made.mode,
                now=self.t * QUARTER,
                witness=witnesses.of(one.id),
            ) as curator,
        ):
            for _ in range(intervals):
                if self.chance.random() < 0.8:
                    n = len(one.meters)
                    put = [self.t * QUARTER] * n
                    meters.put(one.id, range(n), put, [QUARTER] * n, [300] * n)
                self.t += 1
                curator.run(self.t * QUARTER)

    def grow(self) -> None:
        """The service runs, perhaps while a command holds the first place for a witness."""
        with open_witnesses(self.made) if self.chance.random() < 0.3 else nullcontext():
            self.run(self.chance.randrange(3))

    def harm(self) -> None:
        """An older ledger, and at least one thing by which the loss is noticed."""
        put_back(self.made, new_machine=False)
        files = list(self.made.witness_folder.glob("*/????????????????"))
        small = sidecar_path(Path(self.made.ledger), "elm")
        left = self.chance.choice(["witness", "meters", "small"])
        if left != "witness":
            for file in files:
                content = file.read_bytes()
                file.write_bytes(content[: self.chance.randrange(len(content))])
                if self.chance.random() < 0.5:
                    file.unlink()
        if left != "meters" and self.chance.random() < 0.5:
            lose_meters(self.made)
        if left != "small":
            small.unlink()

    def standing(self) -> LedgerState:
        with open_store(self.made.ledger) as store:
            return fold(list(store.records("elm")), verify_signature)

    def judge(self) -> None:
        standing = self.standing()
        heads = {one.head for one in standing.releases}
        lost = 0.0
        for t, releases in self.shown.found.items():
            read = [one for one in releases.values() if one.source == "readings"]
            assert all(one.epsilon == 0 for one in releases.values() if one not in read)
            assert len(read) <= 1, f"step {t} has two releases from readings"
            for one in read:
                if one.head not in heads:
                    assert any(gap.first <= t <= gap.last for gap in standing.gaps)
                    lost += one.epsilon
        assert standing.gap is not None or lost <= sum(one.epsilon for one in standing.booked)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled
def test_no_interval_is_published_twice_whatever_is_lost(tmp_path: Path, seed: int) -> None:
    """Ledger, witness, small file and meter store each whole, cut or lost; stopped at any point."""
    world = Fuzzed(tmp_path, seed)
    world.run(world.chance.randrange(2))
    for _ in range(2):
        take_copy(world.made)
        for _ in range(3):
            world.grow()
        world.harm()
        if world.chance.random() < 0.5:
            resume_zones(world.made, None, world.t * QUARTER, lost_terms=[world.made])
        world.run(world.chance.randrange(3))
        world.judge()
    resume_zones(world.made, None, world.t * QUARTER, lost_terms=[world.made])
    world.run(6)
    world.judge()
    assert "readings" in [one.source for one in world.standing().releases[-6:]]


@pytest.mark.usefixtures("no_pauses")
def test_the_ledger_over_http_ends_where_the_witness_does(tmp_path: Path) -> None:
    """A record that is stored and not witnessed may be lost yet, and its step drawn again."""
    world = World(service(tmp_path))
    with ClientStore(world.made.client_store) as clients:
        clients.add(Client("auditor", ("audit",), KEPT, 1))
    token = make_token(
        load(world.made.key).derive("access tokens"),
        "auditor",
        ["audit"],
        int(world.time) + 10**6,
        b"n",
    )
    counted: list[tuple[int, int]] = []

    def look(world: World) -> None:
        answer = world.get("/v1/ledger?zone=elm", {"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        with open_store(world.made.ledger) as store:
            counted.append((len(answer.text.splitlines()), len(list(store.records("elm")))))

    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        look(world)
        (file,) = world.made.witness_folder.glob("1/????????????????")
        file.rename(tmp_path / "kept")
        file.mkdir()  # the witness cannot be written any more
        assert world.send() == 200
        world.ahead()
        yield
        look(world)
        file.rmdir()
        (tmp_path / "kept").rename(file)
        yield from world.until(lambda: world.get("/readyz").status_code == 200)
        look(world)

    world.play(story)
    assert counted == [(5, 5), (5, 6), (6, 6)]
