"""The service on stores whose end is torn: repaired, or refused with the reason, never ignored."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.sidecar import SLOT, sidecar_path
from tests.operate.faults import FIRST, World, service

STEPS = 3


@pytest.fixture
def crashed(tmp_path: Path) -> tuple[World, Path, bytes]:
    """A service, its files as a crash leaves them, and the witness of the record before."""
    whole = tmp_path / "whole"
    whole.mkdir()
    noted: list[bytes] = []

    def story(world: World) -> Iterator[None]:
        yield from world.whole(STEPS - 1)
        noted.append(sidecar_path(whole / "ledger.db", "elm").read_bytes())
        yield from world.whole()
        assert world.send(houses=(0, 1)) == 200
        assert world.send(houses=(2,)) == 200
        shutil.copytree(whole, tmp_path / "left")

    world = World(service(whole))
    world.play(story)
    return world, tmp_path / "left", noted[0]


def again(before: World, left: Path) -> World:
    """The service on what is left."""
    for name in ("ledger.db-shm", "meters-shm"):
        (left / name).unlink(missing_ok=True)
    world = World(service(left), before.t)
    world.accepted, world.shown = set(before.accepted), dict(before.shown)
    world.missing = dict(before.missing)
    return world


def cut(path: Path, by: int) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - by)


def two_more(world: World) -> Iterator[None]:
    yield from world.whole(2)


def test_a_crash_alone_is_nothing(crashed: tuple[World, Path, bytes]) -> None:
    before, left, _ = crashed
    world = again(before, left)
    world.play(two_more)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + STEPS + 2))


@pytest.mark.parametrize("by", [1, 100, 4000])
@pytest.mark.sampled
def test_a_record_torn_after_it_was_shown_is_put_back(
    crashed: tuple[World, Path, bytes], by: int
) -> None:
    before, left, _ = crashed
    cut(left / "ledger.db-wal", by)
    world = again(before, left)
    world.play(two_more)
    world.judge()
    assert world.releases()[FIRST + STEPS - 1] == before.releases()[FIRST + STEPS - 1]


def test_a_record_torn_after_it_was_shown_is_missed(crashed: tuple[World, Path, bytes]) -> None:
    before, left, _ = crashed
    cut(left / "ledger.db-wal", 100)
    world = again(before, left)
    shutil.rmtree(world.made.witness_folder)
    world.play(two_more)
    standing, lost = world.standing(), FIRST + STEPS - 1
    assert standing.gap is not None
    assert (standing.gap.first, standing.gap.last, standing.gap.why) == (lost, lost, "witness")
    assert {one.source for one in standing.releases if one.t > lost} == {"forecast"}


@pytest.mark.parametrize("by", [1, 100, 4000])
@pytest.mark.sampled
def test_a_record_torn_before_anyone_was_told_is_made_anew(
    crashed: tuple[World, Path, bytes], by: int
) -> None:
    before, left, noted = crashed
    cut(left / "ledger.db-wal", by)
    sidecar_path(left / "ledger.db", "elm").write_bytes(noted)
    world = again(before, left)
    (own,) = world.made.witness_folder.glob("1/????????????????")
    lines = own.read_bytes().removesuffix(b"end\n").splitlines(keepends=True)
    own.write_bytes(b"".join(lines[:-1]) + b"end\n")  # the witness comes after the ledger
    lost = before.releases()[FIRST + STEPS - 1]
    del world.shown[lost.head]  # the power went before it was
    (left / "prices.json").unlink()
    world.play(two_more)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + STEPS + 2))


@pytest.mark.parametrize("slot", [0, 1, None])
def test_a_torn_witness(crashed: tuple[World, Path, bytes], slot: int | None) -> None:
    before, left, _ = crashed
    path = sidecar_path(left / "ledger.db", "elm")
    content = bytearray(path.read_bytes())
    for one in (0, 1) if slot is None else (slot,):
        content[one * SLOT + SLOT // 2 : (one + 1) * SLOT] = b"\0" * (SLOT // 2)
    path.write_bytes(content)
    world = again(before, left)
    if slot is None:
        with pytest.raises(LedgerError, match="is damaged and cannot say which record came last"):
            world.play(two_more)
        return
    world.play(two_more)
    world.judge()


def test_a_damaged_page_is_refused(crashed: tuple[World, Path, bytes]) -> None:
    before, _, _ = crashed
    folder = Path(before.made.ledger).parent  # stopped cleanly: all is in the database
    database = Path(before.made.ledger)
    content = bytearray(database.read_bytes())
    at = content.rindex(b'"source":"readings"')
    content[at : at + 100] = b"\0" * 100
    database.write_bytes(content)
    with pytest.raises(LedgerError) as refused:
        again(before, folder).play(two_more)
    assert "\n" not in str(refused.value)


def test_a_commit_of_readings_torn_before_it_was_acknowledged_is_left_out(
    crashed: tuple[World, Path, bytes],
) -> None:
    before, left, _ = crashed
    log = left / "meters-wal"
    frames = log.read_bytes()
    log.write_bytes(frames + frames[-4120:-7])  # part of another page, as a crash may leave it
    world = again(before, left)
    world.play(two_more)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + STEPS + 2))


def test_damaged_readings_are_not_published(crashed: tuple[World, Path, bytes]) -> None:
    before, _, _ = crashed
    with sqlite3.connect(before.made.meters) as link:
        query = "SELECT rowid, readings FROM hushgrid_meter_delivery ORDER BY opens DESC, number"
        row, content = link.execute(query).fetchone()
        content = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        link.execute(
            "UPDATE hushgrid_meter_delivery SET readings = ? WHERE rowid = ?", (content, row)
        )

    def story(world: World) -> Iterator[None]:
        assert world.send(houses=(3,)) == 200, "the answer says that they are damaged"
        world.ahead()
        yield
        yield
        assert world.get("/readyz").status_code == 503

    world = again(before, Path(before.made.ledger).parent)
    world.play(story)
    assert list(world.releases()) == list(range(FIRST, FIRST + STEPS))
