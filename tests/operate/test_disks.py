"""The service on a disk that is full, or read-only: refused while it lasts, nothing lost after."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hushgrid.errors import HushgridError
from tests.disks import FailingDisk, failing_disk, fill, small_disk
from tests.operate.faults import FIRST, World, judge_logs, no_pauses, service, zone

__all__ = ["no_pauses"]


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, Path]]:
    with (
        small_disk(tmp_path / "for-ledger") as ledger,
        small_disk(tmp_path / "for-meters") as meters,
    ):
        yield {"ledger": ledger, "meters": meters}


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("moment", ["before the readings", "before the tick"])
@pytest.mark.parametrize("full", [("ledger",), ("meters",), ("ledger", "meters")])
@pytest.mark.sampled
def test_a_full_disk(
    tmp_path: Path,
    disks: dict[str, Path],
    full: tuple[str, ...],
    moment: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    made = service(
        tmp_path,
        zone("elm"),
        zone("oak", 3),
        ledger=str(disks["ledger"] / "ledger.db"),
        meters=str(disks["meters"] / "meters"),
        price_file=disks["ledger"] / "prices.json",
    )

    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        if moment == "before the tick":
            assert world.send() == 200
        fillers = [fill(disks[name]) for name in full]
        for _ in range(3):
            if moment == "before the readings" or world.t > FIRST + 2:
                answer = world.send()
                assert answer == (503 if "meters" in full else 200)
            world.ahead()
            yield
            world.look()
            assert world.get("/readyz").status_code == 503
            assert {one["state"] for one in world.get("/v1/status").json()["zones"]} == {
                "closed after an error"
            }
        assert max(world.releases()) == FIRST + 1, "nothing new while it lasts"
        for filler in fillers:
            filler.unlink()
        for again in range(FIRST + 2, FIRST + 5):
            assert world.send(again) == 200, "what was refused is sent again"
        yield
        yield
        world.look()
        assert world.get("/readyz").status_code == 200
        yield from world.whole(2)

    world = World(made)
    world.play(story)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + 7))
    assert all(one.source == "readings" for one in world.releases().values())
    lines = judge_logs(world, caplog)
    assert "zone failed" in [line["event"] for line in lines]


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("broken", ["ledger", "meters"])
def test_a_disk_that_turns_read_only(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with failing_disk(tmp_path / "disk") as disk:
        place = {"ledger": "ledger.db", "meters": "meters"}[broken]
        made = service(tmp_path, **{broken: str(disk.folder / place)})
        world = World(made)
        world.play(lambda world: _turns_read_only(world, disk, broken))
        world.judge()
    judge_logs(world, caplog)


def _turns_read_only(world: World, disk: FailingDisk, broken: str) -> Iterator[None]:
    yield from world.whole(2)
    assert world.send(houses=(0, 1)) == 200
    disk.fails()
    answer = 503 if broken == "meters" else 200
    for house in (2, 3):  # to a log that is open, and to one that is not trusted any more
        assert world.send(houses=(house,)) == answer
    for _ in range(2):
        world.ahead()
        yield
        world.look()
        assert world.send() == answer
        assert world.get("/readyz").status_code == 503
    disk.mended()
    for _ in range(3):  # the zone, the meter store, and the zone on that
        yield
    assert world.send() == 200
    assert world.get("/readyz").status_code == 200
    yield from world.whole(2)
    assert list(world.releases()) == list(range(FIRST, FIRST + 6))


def test_a_read_only_disk_at_the_start_is_told_in_one_sentence(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        for name in ("ledger", "meters"):
            folder = tmp_path / name
            folder.mkdir()
            (disk / name).mkdir()
            made = service(folder, **{name: str(disk / name / "store")})
            World(made).play(lambda world: world.whole(1))
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            with pytest.raises(HushgridError) as refused:
                World(made, FIRST + 1).play(lambda world: world.whole(1))
            assert str(disk / name) in str(refused.value)
            assert "\n" not in str(refused.value)
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            world = World(made, FIRST + 1)
            world.play(lambda world: world.whole(1))
            assert list(world.releases()) == [FIRST, FIRST + 1]
