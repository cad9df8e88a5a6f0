"""A ledger that lacks its end: every opener for writing judges it in the same way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid import Policy
from hushgrid.curator.gaps import resume_zones
from hushgrid.curator.transfer import move
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.operate.batch.engines import engine_at
from hushgrid.operate.batch.run import Job, run
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.witness import open_witnesses
from tests.curator.lost_files import lose, put_back, save, witness_file
from tests.operate.batch.batches import write
from tests.operate.faults import FIRST, QUARTER, World, no_pauses, service, wh, zone
from tests.web.http.faces import NDJSON, as_ndjson

__all__ = ["no_pauses"]


def records(made: Deployment, name: str = "elm") -> list[Record]:
    with open_store(made.ledger, create=False) as store:
        return list(store.records(name))


def unbooked(world: World, name: str = "elm") -> float:
    """What was published from readings less what the ledger has of it and has booked."""
    found = records(world.made, name)
    heads = {one.digest for one in found}
    lost = [
        price
        for price in world.shown.values()
        if price["zone"] == name and price["source"] == "readings" and price["head"] not in heads
    ]
    booked = sum(one.body["epsilon"] for one in found if one.kind == "resume")
    return 0.5 * len(lost) - float(booked)


def test_a_witness_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A witness in memory would prove nothing after a kill, and the file on disk be out of date."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(1))
    kept = tmp_path / "kept"
    world.made.witness_folder.rename(kept)
    world.made.witness_folder.touch()
    with pytest.raises(LedgerError, match=r"set stores\.witness"):
        world.play(lambda world: world.whole(1))
    world.made.witness_folder.unlink()
    kept.rename(world.made.witness_folder)
    world.play(lambda world: world.whole(1))
    world.judge()


def batch(world: World, first: int, end: int, *, new_terms: bool = False) -> None:
    """Publish the intervals from `first` to before `end` from a file of readings."""
    meters = world.made.zones[0].meters
    rows = [
        (meter, t * QUARTER, QUARTER, wh(h, t))
        for t in range(FIRST, FIRST + 5)
        for h, meter in enumerate(meters)
    ]
    file = write(Path(world.made.ledger).parent / "readings" / "a.parquet", rows)
    job = Job(world.made, (str(file),), first * QUARTER, end * QUARTER, changed=new_terms)
    with engine_at("duckdb") as engine:
        run(job, engine, world)  # type: ignore[arg-type]


def test_a_batch_asks_the_meter_store_of_the_service(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(3))
    put_back(world.made, copy, "witness", "small")
    batch(world, FIRST, FIRST + 5)
    standing = world.standing()
    assert standing.gap is not None
    assert (standing.gap.first, standing.gap.last) == (FIRST + 2, FIRST + 4)
    assert [one.t for one in standing.releases] == [FIRST, FIRST + 1]


@pytest.mark.parametrize("before", ["served", "by batch", "begun"])
def test_what_a_batch_published_is_not_published_again(tmp_path: Path, before: str) -> None:
    """The meter store is the second witness of a batch too, whoever published before it."""
    world = World(service(tmp_path))
    done = FIRST if before == "begun" else FIRST + 2
    if before == "by batch":
        world.ahead(2)
        batch(world, FIRST, done)
    else:
        world.play(lambda world: world.whole(done - FIRST))
    copy = save(world.made, "copy")
    world.ahead(FIRST + 5 - world.t)
    batch(world, done, FIRST + 5)
    assert len(world.releases()) == 5
    put_back(world.made, copy, "witness", "small")
    batch(world, done, FIRST + 5)
    standing = world.standing()
    assert [one.t for one in standing.releases] == list(range(FIRST, done))
    assert standing.gap is not None
    assert (standing.gap.first, standing.gap.last) == (done, FIRST + 4)


def test_new_terms_with_another_roster_ask_the_meter_store(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(6))
    put_back(world.made, copy, "witness", "small")
    again = World(replace(world.made, zones=(zone("elm", 3, begins=world.t * QUARTER),)), world.t)
    with pytest.raises(LedgerError, match=r"not booked; run hushgrid resume first"):
        again.play(lambda world: world.whole(1), new_terms=True)
    world.play(lambda _: iter(()))  # the meter store still has the old roster
    gap = world.standing().gap
    assert gap is not None
    assert (gap.first, gap.last) == (FIRST + 2, FIRST + 7)


def test_a_transfer_judges_the_zone_that_the_house_comes_to(tmp_path: Path) -> None:
    """Of that zone's last release nothing is left but a damaged line of the witness."""
    world = World(service(tmp_path, zone("elm"), zone("oak", 3)))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(1))
    file = witness_file(world.made, "oak")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b'"release"', b'"rElease"')
    file.write_bytes(b"".join(lines))
    put_back(world.made, copy, "small", "meters")
    move(world.made, "elm-1", "elm", "oak", world.time)
    gap = world.standing("oak").gap
    assert gap is not None
    assert (gap.first, gap.last) == (FIRST + 2, FIRST + 2)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.sampled
def test_a_transfer_is_put_back_whatever_was_booked_before(tmp_path: Path, small: bool) -> None:
    world = World(service(tmp_path, zone("elm"), zone("oak", 3)))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(1))
    put_back(world.made, copy, "witness", "small")
    world.play(lambda world: world.whole(1))
    resume_zones(world.made, None, world.time)
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "later")
    move(world.made, "elm-1", "elm", "oak", world.time)
    before = {name: records(world.made, name) for name in ("elm", "oak")}
    put_back(world.made, copy, *([] if small else ["small"]))
    resume_zones(world.made, None, world.time)
    assert {name: records(world.made, name) for name in ("elm", "oak")} == before


def test_a_gap_that_was_booked_in_another_history_is_booked(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(1))
    first = save(world.made, "first")
    world.play(lambda world: world.whole(3))
    second = save(world.made, "second")
    world.play(lambda world: world.whole(2))
    put_back(world.made, first, "witness", "small")
    world.play(lambda _: iter(()))
    resume_zones(world.made, None, world.time)
    world.play(lambda world: world.whole(2))
    put_back(world.made, second, "small")
    with pytest.raises(LedgerError, match="two histories"):
        world.play(lambda _: iter(()))
    resume_zones(world.made, None, world.time)
    world.play(lambda world: world.whole(1))
    published = [one for one in world.shown.values() if one["source"] == "readings"]
    assert world.standing().epsilon >= 0.5 * len(published)


def test_another_history_that_began_before_the_present_terms_is_booked(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(6))
    old = save(world.made, "old")
    put_back(world.made, copy, "witness", "small", "meters")
    made = replace(world.made, zones=(zone("elm", begins=(FIRST + 6) * QUARTER),))
    again = World(made, world.t)
    again.shown = dict(world.shown)
    again.play(lambda world: world.whole(1), new_terms=True)
    lose(made, "witness")
    shutil.copytree(old / "witness", made.witness_folder)
    with pytest.raises(LedgerError, match="two histories"):
        again.play(lambda world: world.whole(1))
    with pytest.raises(LedgerError, match="records of other terms of zone 'elm'"):
        resume_zones(made, None, again.time)
    resume_zones(made, None, again.time, lost_terms=[world.made])
    assert unbooked(again) <= 0
    again.play(lambda world: world.whole(1))
    assert unbooked(again) <= 0


@pytest.mark.parametrize(
    ("small", "late"), [(False, 0), (True, 0), (True, 8)], ids=["meters", "small file", "later"]
)
@pytest.mark.sampled
def test_lost_terms_that_began_before_the_present_ones_are_booked(
    tmp_path: Path, small: bool, late: int
) -> None:
    """The ledger has terms that were set aside for others that began earlier and are lost."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(1))
    aside = replace(world.made, zones=(zone("elm", begins=(FIRST + 8) * QUARTER),))
    World(aside, world.t).play(lambda _: iter(()), new_terms=True)
    copy = save(world.made, "copy")
    begins = (FIRST + 2) * QUARTER
    lost = replace(world.made, zones=(zone("elm", policy=Policy(2.0, 96), begins=begins),))
    last = World(lost, world.t + 1)
    last.play(lambda world: world.whole(3), new_terms=True)
    assert [one.source for one in last.standing().current] == ["readings"] * 3
    put_back(lost, copy, *(["witness"] if small else ["witness", "small"]))
    last.ahead(late)
    with pytest.raises(LedgerError, match=r"not booked; run hushgrid resume first"):
        batch(last, FIRST + 2, FIRST + 5, new_terms=True)
    with pytest.raises(LedgerError, match="began earlier may be lost"):
        resume_zones(aside, None, last.time)
    (found,) = resume_zones(aside, None, last.time, lost_terms=[lost])
    assert found.epsilon is not None
    assert found.epsilon >= 3 * 2.0
    assert found.last is not None
    assert found.last >= FIRST + 8  # new terms begin after it


def test_lost_terms_are_booked_from_their_begins_where_nothing_else_was_published(
    tmp_path: Path,
) -> None:
    """The first terms of a zone were moved forward; what took their place is lost."""
    aside = replace(service(tmp_path), zones=(zone("elm", begins=(FIRST + 8) * QUARTER),))
    World(aside, FIRST).play(lambda _: iter(()))
    copy = save(aside, "copy")
    lost = replace(aside, zones=(zone("elm", policy=Policy(2.0, 96), begins=FIRST * QUARTER),))
    last = World(lost, FIRST)
    last.play(lambda world: world.whole(3), new_terms=True)
    put_back(lost, copy, "witness")
    with pytest.raises(LedgerError, match="began earlier may be lost"):
        resume_zones(aside, None, last.time)
    (found,) = resume_zones(aside, None, last.time, lost_terms=[lost])
    assert found.epsilon is not None
    assert found.epsilon >= 3 * 2.0


def test_a_roster_that_was_set_with_later_terms_is_no_loss(tmp_path: Path) -> None:
    """The meter store closes with it all that is before; nothing was to be published of that."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    later = replace(world.made, zones=(zone("elm", 3, begins=(FIRST + 8) * QUARTER),))
    again = World(later, world.t)
    again.play(lambda _: iter(()), new_terms=True)
    lose(later, "witness", "small")
    again.play(lambda _: iter(()))
    assert again.standing().gap is None


def test_what_is_lost_after_two_histories_were_written_is_booked_as_well(tmp_path: Path) -> None:
    """One of the witness at another epsilon, and the end of the one that went on."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(1))
    copy = save(world.made, "copy")
    begins, policy = world.t * QUARTER, Policy(2.0, 96)
    new = World(replace(world.made, zones=(zone("elm", policy=policy, begins=begins),)), world.t)
    new.play(lambda world: world.whole(2), new_terms=True)
    old = save(world.made, "old")
    put_back(world.made, copy, "witness", "small", "meters")
    world.ahead(2)
    world.play(lambda world: world.whole(1))
    copy = save(world.made, "later")
    world.play(lambda world: world.whole(3))
    put_back(world.made, copy, "witness")  # the small file has the last record
    shutil.copytree(old / "witness", world.made.witness_folder)
    with pytest.raises(LedgerError, match="records of other terms of zone 'elm'"):
        resume_zones(world.made, None, world.time)
    (found,) = resume_zones(world.made, None, world.time, lost_terms=[new.made])
    assert found.epsilon is not None
    assert found.epsilon >= 2 * 2.0 + 3 * 0.5


def test_several_lost_terms_are_booked_together(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy, last, lost = save(world.made, "copy"), world, list[Deployment]()
    for epsilon in (2.0, 3.0):
        new = zone("elm", policy=Policy(epsilon, 96), begins=(last.t + 1) * QUARTER)
        last = World(replace(world.made, zones=(new,)), last.t + 1)
        last.play(lambda world: world.whole(2), new_terms=True)
        lost.append(last.made)
    put_back(world.made, copy, "witness")
    (found,) = resume_zones(world.made, None, last.time, lost_terms=lost)
    assert found.epsilon is not None
    assert found.epsilon >= 2 * 2.0 + 2 * 3.0


def test_each_of_several_histories_is_booked(tmp_path: Path) -> None:
    """The same steps were published three times; the second time was taken for the first."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy, t, old, shown = save(world.made, "copy"), world.t, list[Path](), dict(world.shown)
    for name in ("one", "two", "three"):
        again = World(world.made, t)
        again.play(lambda world: world.whole(3))
        shown |= again.shown
        if name != "three":
            old.append(save(world.made, name))
            put_back(world.made, copy, "witness", "small", "meters")
    again.shown = shown
    for one in old:
        lose(world.made, "witness")
        shutil.copytree(one / "witness", world.made.witness_folder)
        with pytest.raises(LedgerError, match="two histories"):
            again.play(lambda _: iter(()))
        resume_zones(world.made, None, again.time)
    assert unbooked(again) <= 0
    lose(world.made, "witness")
    shutil.copytree(old[0] / "witness", world.made.witness_folder)
    again.play(lambda world: world.whole(1))  # booked already
    assert unbooked(again) <= 0


def test_an_older_history_that_went_on_is_booked_by_its_own_terms(tmp_path: Path) -> None:
    """The witness that is left knows its first step; the ledger has begun terms of less."""
    world = World(service(tmp_path, zone("elm", policy=Policy(2.0, 96))))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(1))
    old = save(world.made, "old")
    world.play(lambda world: world.whole(3))
    put_back(world.made, copy, "witness", "small", "meters")
    made = replace(world.made, zones=(zone("elm", begins=(FIRST + 7) * QUARTER),))
    again = World(made, world.t + 1)
    again.play(lambda world: world.whole(1), new_terms=True)
    lose(made, "witness")
    shutil.copytree(old / "witness", made.witness_folder)
    with pytest.raises(LedgerError, match="records of other terms"):
        resume_zones(made, None, again.time)
    (found,) = resume_zones(made, None, again.time, lost_terms=[world.made])
    assert found.epsilon is not None
    assert found.epsilon >= 4 * 2.0


@pytest.mark.parametrize("stopped", [False, True], ids=["whole", "stopped after the gap"])
@pytest.mark.sampled
def test_a_resume_that_was_stopped_asks_for_the_lost_terms_again(
    tmp_path: Path, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(1))
    copy = save(world.made, "copy")
    begins = world.t * QUARTER
    new = replace(world.made, zones=(zone("elm", policy=Policy(2.0, 96), begins=begins),))
    World(new, world.t).play(lambda world: world.whole(2), new_terms=True)
    old = save(world.made, "old")
    put_back(world.made, copy, "witness", "small", "meters")
    world.play(lambda world: world.whole(3))
    lose(world.made, "witness")
    shutil.copytree(old / "witness", world.made.witness_folder)
    if stopped:
        with monkeypatch.context() as patched:
            patched.setattr("hushgrid.curator.gaps.book", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                resume_zones(world.made, None, world.time, lost_terms=[new])
        assert world.standing().gap is not None
    with pytest.raises(LedgerError, match="records of other terms"):
        resume_zones(world.made, None, world.time)
    (found,) = resume_zones(world.made, None, world.time, lost_terms=[new])
    (gap,) = world.standing().gaps
    assert gap.least == pytest.approx(2 * 2.0), "once"
    assert found.epsilon is not None
    assert found.epsilon >= 2 * 2.0


def test_a_request_from_before_a_loss_does_not_answer_it(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(1))
    put_back(world.made, copy, "witness")
    with open_witnesses(world.made) as witnesses:
        witnesses.of("elm").ask(records(world.made)[-1].digest)
    world.play(lambda world: world.whole(1))
    assert [one.kind for one in records(world.made)[-2:]] == ["gap", "release"], "it is not booked"
    assert not list(world.made.witness_folder.glob("*.resume"))


def short_steps(world: World, of: ZoneService, count: int) -> Iterator[None]:
    """Steps of 300 s in which nothing is wrong."""
    world.time = world.steady = float(of.begins)
    yield
    for k in range(count):
        start = of.begins + 300 * k
        rows = [(meter, start, 300, wh(h, k)) for h, meter in enumerate(of.meters)]
        answer = world._web.post("/v1/readings", content=as_ndjson(rows), headers=NDJSON)
        assert answer.status_code == 200
        world.time = world.steady = float(start + 305)
        yield
        world.look()


def test_lost_terms_of_shorter_steps_are_booked_up_to_now(tmp_path: Path) -> None:
    """Two of its five steps lie in the quarter that goes on."""
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    lost = zone("elm", begins=(world.t + 1) * QUARTER, seconds=300, grace=0)
    new = World(replace(world.made, zones=(lost,)), world.t)
    new.play(lambda world: short_steps(world, lost, 5), new_terms=True)
    new.shown |= world.shown
    put_back(world.made, copy, "witness", "meters")
    (found,) = resume_zones(world.made, None, new.time, lost_terms=[new.made])
    assert unbooked(new) <= 0
    assert found.last is not None
    assert (found.last + 1) * QUARTER >= new.time  # none of these steps is published again


@pytest.mark.parametrize("begins", [FIRST, FIRST + 3], ids=["published", "booked as lost"])
def test_terms_of_shorter_steps_begin_after_what_is_published_or_lost(
    tmp_path: Path, begins: int
) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(3))
    put_back(world.made, copy, "witness", "meters")
    resume_zones(world.made, None, world.time)
    later = replace(world.made, zones=(zone("elm", begins=begins * QUARTER, seconds=300),))
    with pytest.raises(LedgerError, match="give a later begins"):
        World(later, world.t).play(lambda _: iter(()), new_terms=True)


@pytest.mark.parametrize(
    "lost", [["witness"], ["witness", "meters"]], ids=["there", "on a new disk"]
)
@pytest.mark.sampled
def test_refused_new_terms_leave_the_meter_store_as_it_is(tmp_path: Path, lost: list[str]) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    copy = save(world.made, "copy")
    world.play(lambda world: world.whole(2))
    put_back(world.made, copy, *lost)
    new = replace(world.made, zones=(zone("elm", 3, begins=(world.t + 1) * QUARTER),))
    with pytest.raises(LedgerError, match=r"not booked; run hushgrid resume first"):
        World(new, world.t).play(lambda _: iter(()), new_terms=True)
    resume_zones(world.made, None, world.time)
    world.play(lambda world: world.whole(1))
    assert world.standing().releases[-1].source == "readings"
