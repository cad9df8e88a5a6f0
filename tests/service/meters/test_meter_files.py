"""The files of the embedded store: torn, flipped, full, read-only; synced in the right order."""

from __future__ import annotations

import errno
import logging
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid._numbers import Int8s
from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.service.meters import folder as segments
from hushgrid.service.meters import open_meters
from hushgrid.service.meters.disk import GroupCommit
from hushgrid.service.meters.folder import HEAD_SIZE, IntervalMemory, LogReader
from hushgrid.service.meters.ports import Columns, Counts, MeterStore

METERS = ["a", "b", "c"]


def opened(folder: Path) -> MeterStore:
    store = open_meters(folder)
    try:
        store.open_zone("z", METERS, 900)
    except BaseException:
        store.shut()
        raise
    return store


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two frames: house 0 whole, then house 1 whole and a third of house 2."""
    with opened(tmp_path / "meters") as store:
        store.put("z", [0], [0], [900], [11])
        store.put("z", [1, 2], [0, 300], [900, 300], [22, 33])
    return tmp_path / "meters" / "zone-z" / "0.log"


def edges(log: Path) -> list[int]:
    """Where each frame begins, and the end."""
    reader = LogReader.open(log)
    assert reader is not None
    return [reader.end for _ in reader.frames()] + [reader.end]


def present(store: MeterStore, start: int = 0) -> list[bool]:
    return list(store.get("z", start).present.tolist())


def test_a_frame_torn_at_any_byte_is_cut_off(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second, end = edges(log)
    assert (first, end) == (HEAD_SIZE, log.stat().st_size)
    whole = log.read_bytes()
    for at in range(second, end):
        # a killed process leaves a beginning; a power cut may leave zeros, or a hole before the end
        zeros = whole[:at] + bytes(end - at)
        hole = whole[:second] + bytes(at - second) + whole[at:]
        for torn in {whole[:at], zeros, hole} - {whole}:
            log.write_bytes(torn)
            caplog.clear()
            with opened(log.parent.parent) as store, caplog.at_level(logging.WARNING):
                assert present(store) == [True, False, False]
                assert log.stat().st_size == second
                assert store.put("z", [1, 2], [0, 300], [900, 300], [22, 33]) == Counts(2)
            assert ("torn" in caplog.text) == (len(torn) > second)
            with opened(log.parent.parent) as store:
                assert store.get("z", 0).wh.tolist() == [11, 22, 0]


def test_a_torn_beginning_held_nothing(log: Path) -> None:
    whole = log.read_bytes()
    for torn in [whole[:at] for at in range(HEAD_SIZE + 1)] + [bytes(HEAD_SIZE)]:
        log.write_bytes(torn)
        with opened(log.parent.parent) as store:
            assert store.open_intervals("z") == ()
            assert store.put("z", [0], [0], [900], [11]) == Counts(1)
        with opened(log.parent.parent) as store:
            assert present(store) == [True, False, False]


def test_a_flipped_byte_in_the_middle_is_refused_by_place(log: Path) -> None:
    first, second, _ = edges(log)
    whole = log.read_bytes()
    for at in range(second):
        for flip in (0x01, 0x80):
            log.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            where = 0 if at < first else first
            with pytest.raises(MeterError, match=rf"0\.log is damaged at byte {where};"):
                opened(log.parent.parent)
    log.write_bytes(whole)
    with opened(log.parent.parent) as store:
        assert present(store) == [True, True, False]


def test_a_closed_log_is_whole_or_refused(log: Path) -> None:
    with opened(log.parent.parent) as store:
        store.close("z", 0)
    _, _, end = edges(log)
    whole = log.read_bytes()
    for at in range(0, end, 3):
        for harm in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            log.write_bytes(harm)
            if at in edges_of_frames(whole) and harm == whole[:at]:
                continue  # cut between two frames: nothing shows it
            with opened(log.parent.parent) as store, pytest.raises(MeterError, match="damaged"):
                store.get("z", 0)


def edges_of_frames(whole: bytes) -> set[int]:
    salt = whole[18:26]
    return {at for at in range(HEAD_SIZE, len(whole)) if whole.startswith(salt, at)}


def test_a_log_cannot_stand_in_for_another(log: Path) -> None:
    shutil.copy(log, log.with_name("900.log"))
    with pytest.raises(MeterError, match="another interval or roster"):
        opened(log.parent.parent)


def test_a_damaged_or_missing_state_is_refused(log: Path) -> None:
    state = log.with_name("zone.json")
    text = state.read_text()
    for harm in ("", "{}", "[]", text[:-4], text.replace('"floor": -1', '"floor": 0')):
        state.write_text(harm)
        with pytest.raises(MeterError, match=r"zone\.json is damaged"):
            opened(log.parent.parent)
    state.unlink()
    with pytest.raises(MeterError, match=r"zone\.json is missing"):
        opened(log.parent.parent)


# ---- no room, no right


@contextmanager
def room(most: int) -> Iterator[None]:
    """No file of this process may grow beyond `most` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["segments", "sqlite"])
def test_a_full_disk_loses_nothing(kind: str, place: Callable[[str], str]) -> None:
    houses = np.arange(20_000, dtype=np.int32)
    meters, accepted = [str(k) for k in houses], 0
    with open_meters(place(kind)) as store:
        store.open_zone("z", meters, 900)

        def put(some: Any, start: int = 0) -> Counts:
            return store.put("z", some, np.full(some.size, start), np.full(some.size, 900), some)

        def fill() -> None:
            nonlocal accepted
            for part in np.split(houses, 40):
                put(part)
                accepted += part.size

        with room(100_000):
            with pytest.raises(MeterRetryError, match=r"make room and .+ again\.$"):
                fill()
            assert 0 < accepted < houses.size
            assert store.get("z", 0).present.sum() == accepted
            with pytest.raises(MeterRetryError):  # it stays full
                put(houses[accepted:])
            assert put(houses[:10]) == Counts(0, 10)
        assert put(houses) == Counts(houses.size - accepted, accepted)
    with open_meters(place(kind)) as store:
        store.open_zone("z", meters, 900)
        assert store.get("z", 0).wh.tolist() == houses.tolist()


def test_a_batch_over_several_intervals_is_stored_whole_or_not(tmp_path: Path) -> None:
    """The log of the first interval has room, that of the second has not."""
    meters, log = [str(k) for k in range(50)], tmp_path / "zone-z" / "900.log"
    house = np.tile(np.arange(3, dtype=np.int32), 2)
    readings = house, np.repeat([0, 900], 3), np.full(6, 900), house
    others = np.arange(10, 50, dtype=np.int32)
    with open_meters(tmp_path) as store:
        store.open_zone("z", meters, 900)
        store.put("z", others, np.full(40, 900), np.full(40, 900), others)
        with room(log.stat().st_size + 30):
            with pytest.raises(MeterRetryError, match=r"900\.log"):
                store.put("z", *readings)
            assert store.open_intervals("z") == (900,)
            assert store.get("z", 900).present.sum() == 40
    with open_meters(tmp_path) as store:
        store.open_zone("z", meters, 900)
        assert store.open_intervals("z") == (900,)
        assert store.put("z", *readings) == Counts(6)
    with open_meters(tmp_path) as store:
        store.open_zone("z", meters, 900)
        assert store.get("z", 0).present.sum() == 3
        assert store.get("z", 900).present.sum() == 43


@contextmanager
def no_rights(folder: Path) -> Iterator[None]:
    """Nothing can be made or changed in a folder, not even by root."""
    folder.chmod(0o500)
    if os.geteuid() == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(0o700)


@pytest.mark.parametrize("url", ["{}", "sqlite:///{}/meters.db"])
def test_a_folder_without_rights_is_refused(url: str, tmp_path: Path) -> None:
    with no_rights(tmp_path), pytest.raises(MeterError, match=r"cannot be opened \(.+\); give a"):
        open_meters(url.format(tmp_path))
    file = tmp_path / "file"
    file.write_text("not a store")
    with pytest.raises(MeterError, match="cannot be opened"):
        open_meters(url.format(file))
    if url.startswith("sqlite"):
        with pytest.raises(MeterError, match="SQLITE_NOTADB"):
            open_meters(f"sqlite:///{file}")


def test_a_folder_that_loses_its_rights_gets_them_back(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.put("z", [0], [0], [900], [1])
        with no_rights(tmp_path / "zone-z"):
            with pytest.raises(MeterRetryError, match="Permission denied"):
                store.put("z", [0], [900], [900], [2])
            with pytest.raises(MeterRetryError, match="Permission denied"):
                store.close("z", 0)
            assert store.last_closed("z") is None
        assert store.put("z", [0], [900], [900], [2]) == Counts(1)
        store.close("z", 0)
    with opened(tmp_path) as store:
        assert store.last_closed("z") == 0
        assert present(store, 900) == [True, False, False]


def test_after_a_failed_sync_nothing_goes_on_before_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as store:
        store.put("z", [0], [0], [900], [1])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            with pytest.raises(MeterRetryError, match="Input/output error"):
                store.put("z", [1], [0], [900], [2])
        nothing_goes_on(store)
    with opened(tmp_path) as store:
        assert present(store)[0]
        assert sum(store.put("z", [1], [0], [900], [2])[:2]) == 1


def nothing_goes_on(store: MeterStore) -> None:
    for call in (
        lambda: store.put("z", [1], [0], [900], [2]),
        lambda: store.close("z", 0),
        lambda: store.get("z", 0),
    ):
        with pytest.raises(MeterError, match="open it again"):
            call()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_after_the_unexpected_nothing_goes_on_before_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(memory: IntervalMemory, least: int) -> None:
        raise error

    with opened(tmp_path) as store:
        store.put("z", [0], [0], [900], [1])
        with monkeypatch.context() as patched:
            patched.setattr(IntervalMemory, "_grow", fail)
            with pytest.raises(error):
                store.put("z", [0, 1], [0, 0], [900, 300], [1, 2])
        nothing_goes_on(store)
    with opened(tmp_path) as store:
        assert present(store) == [True, False, False]


def test_an_interrupted_leader_tells_those_who_wait() -> None:
    """Ctrl-C hits the thread that stores for all: it stops, the others are told to send again."""
    storing, go, calls = threading.Event(), threading.Event(), []

    def commit(batches: Sequence[Columns]) -> Int8s:
        calls.append(len(batches))
        if len(calls) == 1:
            storing.set()
            go.wait(30)
            return np.zeros(0, np.int8)
        raise KeyboardInterrupt

    group = GroupCommit(threading.RLock(), commit)
    batch = Columns.of([], [], [], [])
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(group.put, batch, [0])
        storing.wait(30)
        others = [pool.submit(group.put, batch, [0]) for _ in range(2)]
        until = time.monotonic() + 30
        while len(group._waiting) < 2 and time.monotonic() < until:
            threading.Event().wait(0.001)
        go.set()
        assert first.result(30) == [Counts()]
        errors = {type(each.exception(30)) for each in others}
    assert errors == {KeyboardInterrupt, MeterRetryError}
    assert calls == [1, 2]


# ---- synced, shared, bounded


class Trace:
    """What the store does to files, in order: a write must be synced before its put returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs, self.unsynced = 0, set[str]()
        for name in ("writev", "write", "ftruncate", "fsync", "fdatasync", "replace"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))
        monkeypatch.setattr(os, "open", self._opening(os.open))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(first: Any, *rest: Any, **more: Any) -> Any:
            found = call(first, *rest, **more)
            if name == "replace":
                self.unsynced.add(str(Path(os.fspath(first)).parent))
                return found
            path = str(Path(f"/proc/self/fd/{first}").readlink())
            if name in ("fsync", "fdatasync"):
                self.syncs += 1
                self.unsynced.discard(path)
            else:
                self.unsynced.add(path)
            return found

        return watched

    def _opening(self, call: Callable[..., int]) -> Callable[..., int]:
        def watched(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            new = flags & os.O_CREAT and not Path(path).exists()
            found = call(path, flags, *rest, **more)
            if new:
                self.unsynced.add(str(Path(path).parent))
            return found

        return watched


def test_everything_is_synced_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "far" / "meters") as store:
        trace = Trace(monkeypatch)
        for house, start in ((0, 0), (1, 0), (0, 900), (2, 0)):
            before = trace.syncs
            store.put("z", [house], [start], [900], [1])
            assert trace.syncs > before
            assert trace.unsynced == set()
        before = trace.syncs
        assert store.put("z", [0, 7], [0, 0], [900, 900], [1, 1]) == Counts(0, 1, 0, 0, 1)
        assert trace.syncs == before  # nothing new, nothing to wait for
        store.close("z", 0)
        assert trace.unsynced == set()
        assert trace.syncs == before + 2  # the file, then the folder


def test_callers_that_wait_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callers, real = 8, os.fdatasync
    slow, arrived, syncs = threading.Event(), threading.Semaphore(0), []

    def fdatasync(file: int) -> None:
        if not syncs:
            slow.wait(30)
        syncs.append(file)
        real(file)

    meters = [str(k) for k in range(callers)]
    with open_meters(tmp_path) as store:
        store.open_zone("z", meters, 900)
        store.put("z", [0], [0], [900], [0])
        monkeypatch.setattr(os, "fdatasync", fdatasync)

        def put(house: int) -> Counts:
            arrived.release()
            return store.put("z", [house], [0], [900], [house])

        with ThreadPoolExecutor(callers) as pool:
            found = [pool.submit(put, house) for house in range(1, callers)]
            for _ in found:
                arrived.acquire()
            group = store._zones["z"].group  # type: ignore[attr-defined]
            while len(group._waiting) < callers - 2:
                threading.Event().wait(0.001)
            slow.set()
            assert [each.result(30) for each in found] == [Counts(1)] * (callers - 1)
        assert len(syncs) == 2
        assert store.get("z", 0).wh.tolist() == list(range(callers))


def test_an_unsynced_reading_is_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A duplicate must not be confirmed, nor a reading shown, before the first is durable."""
    real, syncing, go = os.fdatasync, threading.Event(), threading.Event()

    def fdatasync(file: int) -> None:
        syncing.set()
        go.wait(30)
        real(file)

    with opened(tmp_path) as store:
        store.put("z", [1], [0], [900], [1])
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(store.put, "z", [0], [0], [900], [5])
            syncing.wait(30)
            again = pool.submit(store.put, "z", [0], [0], [900], [5])
            seen = pool.submit(store.get, "z", 0)
            threading.Event().wait(0.05)
            assert not any(each.done() for each in (first, again, seen))
            go.set()
            assert (first.result(30), again.result(30)) == (Counts(1), Counts(0, 1))
            assert seen.result(30).present.tolist() == [True, True, False]


def test_a_stray_meter_cannot_open_intervals_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MOST_OPEN", 10)
    with opened(tmp_path) as store:
        starts = 900 * np.arange(30)[::-1]
        counts = store.put("z", np.zeros(30, np.int32), starts, np.full(30, 900), starts)
        assert counts == Counts(accepted=10, malformed=20)
        assert store.open_intervals("z") == tuple(range(0, 9000, 900))


def test_more_open_intervals_than_open_files(tmp_path: Path) -> None:
    starts = 900 * np.arange(60)
    with opened(tmp_path) as store:
        for house in range(3):
            columns = np.full(60, house, np.int32), starts, np.full(60, 900), starts
            assert store.put("z", *columns) == Counts(60)
        used = [path for path in Path("/proc/self/fd").iterdir() if _is_log(path, tmp_path)]
        assert 0 < len(used) <= 16
    with opened(tmp_path) as store:
        assert all(all(present(store, int(start))) for start in starts)


def _is_log(link: Path, folder: Path) -> bool:
    try:
        file = link.readlink()
        return file.suffix == ".log" and file.is_relative_to(folder)
    except OSError:  # the descriptor that lists the folder is gone already
        return False
