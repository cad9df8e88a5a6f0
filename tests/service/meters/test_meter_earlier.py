"""Stores of earlier versions: imported once and whole, or refused with file and byte."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from hushgrid.errors import MeterError
from hushgrid.service.meters import Counts, MeterStore, _earlier, open_meters
from hushgrid.service.meters.columns import Columns, Roster, RosterEpoch
from hushgrid.service.meters.store import stored_rosters
from tests.examples import SOAK
from tests.service.meters.old_folder import HEAD_SIZE, write_zone

METERS = ["a", "b", "c"]
ROSTER = Roster.of("z", METERS, 900)
FIRST = Columns.of([0], [0], [900], [11])
SECOND = Columns.of([1, 2], [0, 300], [900, 300], [22, 33])
BEFORE = Path(__file__).parents[2] / "data" / "before"


def opened(folder: Path) -> MeterStore:
    store = open_meters(folder)
    try:
        store.open_zone("z", METERS, 900)
    except BaseException:
        store.shut()
        raise
    return store


def refused(folder: Path, why: str) -> None:
    """Opening names what is damaged, and nothing of the zone is used."""
    with pytest.raises(MeterError, match=why):
        opened(folder)
    for file in folder.glob("meters.db*"):
        file.unlink()


def written(folder: Path, closed_end: int = -1) -> Path:
    """A log of two frames: house 0 whole, then house 1 whole and a third of house 2."""
    epoch = RosterEpoch(ROSTER, closed_end)
    return write_zone(folder, "z", epoch, {0: [FIRST, SECOND]}) / "0.log"


def again(log: Path, content: bytes) -> Path:
    """The folder as it was left, with another content of the log."""
    folder = log.parent.parent
    for file in folder.glob("meters.db*"):
        file.unlink()
    if (old := folder / "imported-zone-z").exists():
        old.rename(folder / "zone-z")
    log.write_bytes(content)
    return folder


def test_a_folder_is_imported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tarfile.open(BEFORE / "stores.tar.gz") as stores:
        stores.extractall(tmp_path, filter="data")
    folder = tmp_path / "meters"
    found = stored_rosters(str(folder))
    assert sorted(found) == sorted(path.name[5:] for path in folder.glob("zone-*"))
    assert not (folder / "meters.db").exists(), "looking changes nothing"
    with caplog.at_level(logging.WARNING):
        open_meters(folder).shut()
    assert "kept as imported-*" in caplog.text
    assert not list(folder.glob("zone-*"))
    assert stored_rosters(str(folder)) == found
    content = (folder / "meters.db").read_bytes()
    open_meters(folder).shut()
    assert (folder / "meters.db").read_bytes() == content


def test_everything_is_imported(tmp_path: Path) -> None:
    """Closed and open intervals, what is closed and purged, and only the roster of the epoch."""
    other = Roster.of("z", ["x"], 900)
    logs = {
        900: [Columns.of([0], [900], [900], [1])],
        1800: [FIRST._replace(start=FIRST.start + 1800)],
        2700: [
            Columns.of([2, 2], [2700, 3150], [450, 450], [-(2**63), 5]),
            Columns.of([0], [2700], [900], [7]),
        ],
    }
    path = write_zone(tmp_path, "z", RosterEpoch(ROSTER, 2700, 1800), logs)
    old = write_zone(tmp_path / "other", "z", RosterEpoch(other), {0: [FIRST]})
    shutil.copy(old / "0.log", path / "0.log")
    with opened(tmp_path) as store:
        assert store.last_closed("z") == 1800
        assert store.open_intervals("z") == (2700,)
        assert store.get("z", 1800).wh.tolist() == [11, 0, 0]
        assert store.get("z", 2700).wh.tolist() == [7, 0, 5 - 2**63]
        with pytest.raises(MeterError, match="purged"):
            store.get("z", 900)
        assert store.put("z", [2, 1], [2700, 1800], [450, 900], [-(2**63), 1]) == Counts(
            duplicate=1, late=1
        )


def test_old_files_are_purged_with_their_readings(tmp_path: Path) -> None:
    logs = {k: [FIRST._replace(start=FIRST.start + k)] for k in (0, 900, 1800)}
    write_zone(tmp_path, "z", RosterEpoch(ROSTER, 2700), logs)
    kept = tmp_path / "imported-zone-z"
    with opened(tmp_path) as store:
        assert store.purge("z", 1800) == 2
        assert sorted(path.name for path in kept.iterdir()) == ["1800.log", "zone.json"]
        assert store.purge("z", 2700) == 1
        assert not kept.exists()


def test_a_running_service_of_an_earlier_version_is_noticed(tmp_path: Path) -> None:
    import fcntl

    written(tmp_path)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(MeterError, match="in use by another process"):
            open_meters(tmp_path)


def interrupted(folder: Path) -> None:
    """An import that a kill ends after some logs."""
    many, real = iter(range(1 << 30)), _earlier._track

    def killed(items: Iterable[object]) -> Iterable[object]:
        for item in real(items):  # type: ignore[type-var]
            if next(many) == 7:
                os._exit(9)
            yield item

    _earlier._track = killed  # type: ignore[assignment]
    open_meters(folder)


def test_a_killed_import_is_repeated(tmp_path: Path) -> None:
    starts = range(0, 9000, 900)
    logs = {k: [FIRST._replace(start=FIRST.start + k)] * 1 for k in starts}
    write_zone(tmp_path, "z", RosterEpoch(ROSTER), logs)
    for _ in range(2):  # the second one has nothing left to be killed in after it
        process = multiprocessing.get_context("forkserver").Process(
            target=interrupted, args=(tmp_path,)
        )
        process.start()
        process.join(60)
        assert process.exitcode == 9
    with sqlite3.connect(tmp_path / "meters.db") as link:
        (done,) = link.execute("SELECT count(*) FROM hushgrid_meter_delivery").fetchone()
    assert done == 7
    with opened(tmp_path) as store:
        assert store.open_intervals("z") == tuple(starts)
        for start in starts:
            assert store.get("z", start).wh.tolist() == [11, 0, 0]


def test_an_import_killed_before_the_end_is_only_named(tmp_path: Path) -> None:
    """All is stored, the files still have their names: nothing is stored twice."""
    log = written(tmp_path)
    opened(tmp_path).shut()
    (tmp_path / "imported-zone-z").rename(log.parent)
    with opened(tmp_path) as store:
        assert store.get("z", 0).wh.tolist() == [11, 22, 0]
        assert (tmp_path / "imported-zone-z").is_dir()


# ---- torn and damaged


def test_a_frame_torn_at_any_byte_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = written(tmp_path)
    whole = log.read_bytes()
    second, end = HEAD_SIZE + 28 + 24 + 12, len(whole)
    for at in range(second, end, 1 if SOAK else 3):
        # a killed process leaves a beginning; a power cut may leave zeros, or a hole before the end
        zeros = whole[:at] + bytes(end - at)
        hole = whole[:second] + bytes(at - second) + whole[at:]
        for torn in {whole[:at], zeros, hole} - {whole}:
            caplog.clear()
            with caplog.at_level(logging.WARNING), opened(again(log, torn)) as store:
                assert store.get("z", 0).wh.tolist() == [11, 0, 0]
                assert store.put("z", *SECOND) == Counts(2)
            assert ("torn" in caplog.text) == (len(torn) > second)


def test_a_torn_beginning_held_nothing(tmp_path: Path) -> None:
    log = written(tmp_path)
    whole = log.read_bytes()
    for torn in [whole[:at] for at in range(HEAD_SIZE + 1)] + [bytes(HEAD_SIZE)]:
        with opened(again(log, torn)) as store:
            assert store.open_intervals("z") == ()
            assert store.put("z", *FIRST) == Counts(1)


@pytest.mark.soak
def test_a_flipped_byte_in_the_middle_is_refused_by_place(tmp_path: Path) -> None:
    log = written(tmp_path)
    whole = log.read_bytes()
    for at in range(HEAD_SIZE + 28 + 24 + 12):
        for flip in (0x01, 0x80):
            folder = again(log, whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            where = 0 if at < HEAD_SIZE else HEAD_SIZE
            refused(folder, rf"0\.log is damaged at byte {where};")
    with opened(again(log, whole)) as store:
        assert store.get("z", 0).wh.tolist() == [11, 22, 0]


def test_a_closed_log_is_whole_or_refused(tmp_path: Path) -> None:
    log = written(tmp_path, closed_end=900)
    whole = log.read_bytes()
    for at in range(0, len(whole), 3):
        for harm in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            if harm != whole[:at] or at not in (HEAD_SIZE, HEAD_SIZE + 64):
                refused(again(log, harm), "damaged")


def test_a_log_of_another_interval_or_roster_is_refused(tmp_path: Path) -> None:
    log = written(tmp_path)
    shutil.copy(log, log.with_name("900.log"))
    refused(tmp_path, r"900\.log is of another interval or roster")


def test_a_damaged_or_missing_state_is_refused(tmp_path: Path) -> None:
    state = written(tmp_path).with_name("zone.json")
    text = state.read_text()
    for harm in ("", "{}", "[]", text[:-4], text.replace('"floor": -1', '"floor": 0')):
        state.write_text(harm)
        refused(tmp_path, r"zone\.json is damaged")
    state.unlink()
    refused(tmp_path, r"zone\.json is missing")


# ---- a row for each reading


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_rows_become_deliveries(kind: str, place: Callable[[str], str]) -> None:
    where = place(kind)
    with open_meters(where) as store:
        store.open_zone("z", METERS, 900)
        with store.open().begin() as link:
            _earlier._ROW.create(link)
            for opens, some in ((0, SECOND), (900, FIRST)):
                for house, start, duration, wh in zip(*some, strict=True):
                    values = map(int, (1, opens, house, opens + start, duration, wh))
                    link.execute(_earlier._ROW.insert().values(list(values)))
    for _ in range(2):
        with open_meters(where) as store:
            store.open_zone("z", METERS, 900)
            assert store.open_intervals("z") == (0, 900)
            assert store.get("z", 0).wh.tolist() == [0, 22, 0]
            assert store.get("z", 900).wh.tolist() == [11, 0, 0]
            assert store.put("z", [2], [300], [300], [33]) == Counts(0, 1)
