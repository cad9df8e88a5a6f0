"""The store on its disk: full, read-only, shared; what waits shares one commit."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, event

from hushgrid._numbers import Int8s
from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.stores.meters import Counts, MeterStore, open_meters
from hushgrid.stores.meters import store as stores
from hushgrid.stores.meters.columns import Columns, OpenInterval, Roster

METERS = ["a", "b", "c"]


def opened(place: Path | str) -> MeterStore:
    store = open_meters(place)
    try:
        store.open_zone("z", METERS, 900)
    except BaseException:
        store.shut()
        raise
    return store


def present(store: MeterStore, start: int = 0) -> list[bool]:
    return list(store.get("z", start).present.tolist())


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


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    houses = np.arange(20_000, dtype=np.int32)
    meters, accepted = [str(k) for k in houses], 0
    with open_meters(tmp_path / "meters") as store:
        store.open_zone("z", meters, 900)

        def put(some: Any, start: int = 0) -> Counts:
            return store.put("z", some, np.full(some.size, start), np.full(some.size, 900), some)

        def fill() -> None:
            nonlocal accepted
            for part in np.split(houses, 40):
                put(part)
                accepted += part.size

        with room(100_000):
            with pytest.raises(MeterRetryError, match=r"not full, and .+ again\.$"):
                fill()
            assert 0 < accepted < houses.size
            assert store.get("z", 0).present.sum() == accepted
            with pytest.raises(MeterRetryError):  # it stays full
                put(houses[accepted:])
            assert put(houses[:10]) == Counts(0, 10)
        assert put(houses) == Counts(houses.size - accepted, accepted)
    with open_meters(tmp_path / "meters") as store:
        store.open_zone("z", meters, 900)
        assert store.get("z", 0).wh.tolist() == houses.tolist()


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> Iterator[None]:
    """The insert number `at` fails."""
    real, calls = stores._insert, []

    def insert(link: Connection, *values: Any) -> None:
        calls.append(values)
        if len(calls) == at:
            raise error
        real(link, *values)

    with monkeypatch.context() as patched:
        patched.setattr(stores, "_insert", insert)
        yield


@pytest.mark.parametrize("kind", ["file", "postgres"])
@pytest.mark.parametrize(
    "error", [MeterRetryError("no room."), MemoryError(), KeyboardInterrupt()], ids=repr
)
def test_a_batch_over_several_intervals_is_stored_whole_or_not(
    kind: str,
    error: BaseException,
    place: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first interval is stored when the second fails: memory forgets what is undone."""
    where = place(kind)
    readings = [0, 1, 0], [0, 0, 900], [900, 900, 900], [1, 2, 3]
    with opened(where) as store:
        store.put("z", [2], [900], [900], [5])
        with failing(monkeypatch, 2, error), pytest.raises(type(error)):
            store.put("z", *readings)
        assert store.open_intervals("z") == (900,)
        assert present(store, 900) == [False, False, True]
        assert store.put("z", *readings) == Counts(3)
    with opened(where) as store:
        assert store.put("z", *readings) == Counts(0, 3)


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


@pytest.mark.parametrize("url", ["{}", "{}/meters.db", "{}/far/meters", "sqlite:///{}/meters.db"])
def test_a_folder_without_rights_is_refused(url: str, tmp_path: Path) -> None:
    with no_rights(tmp_path), pytest.raises(MeterError, match=r"\(.+\); .+\.$"):
        open_meters(url.format(tmp_path))
    file = tmp_path / "file"
    file.write_text("not a store")
    with pytest.raises(MeterError, match="is not a meter store file"):
        open_meters(f"sqlite:///{file}")
    with pytest.raises(MeterError, match="is not a meter store file"):
        open_meters(file)
    with pytest.raises(MeterError, match="cannot be opened"):
        open_meters(file / "meters.db")


def test_files_that_lose_their_rights_get_them_back(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.put("z", [0], [0], [900], [1])
        store.open().close()
        (tmp_path / "meters.db").chmod(0o400)
        with no_rights(tmp_path):
            for call in (
                lambda: store.put("z", [0], [900], [900], [2]),
                lambda: store.close("z", 0),
            ):
                with pytest.raises(MeterRetryError, match="writable"):
                    call()
        (tmp_path / "meters.db").chmod(0o600)
        assert store.last_closed("z") is None
        assert store.put("z", [0], [900], [900], [2]) == Counts(1)
        store.close("z", 0)
    with opened(tmp_path) as store:
        assert store.last_closed("z") == 0
        assert present(store, 900) == [True, False, False]


def test_a_damaged_delivery_is_refused(tmp_path: Path) -> None:
    """A flipped bit is no reading: neither shown, nor taken for the first one."""
    where = tmp_path / "meters"
    with opened(where) as store:
        store.put("z", [0, 1], [0, 0], [900, 900], [0x1234_5678, 7])
    content = bytearray(where.read_bytes())
    content[content.index((0x1234_5678).to_bytes(8, "little")) + 3] ^= 4
    where.write_bytes(content)
    with opened(where) as store:
        with pytest.raises(MeterError, match="damaged; put back a copy"):
            store.get("z", 0)
        assert store.put("z", [1], [0], [900], [7]) == Counts(damaged=1)


def test_stored_readings_that_contradict_the_roster_are_refused(tmp_path: Path) -> None:
    """Whole and with a right checksum, but of another zone."""
    many = np.arange(9)
    data = Columns.of(many, many * 0, many * 0 + 900, many).pack()
    with opened(tmp_path) as store:
        with store.open().begin() as link:
            stores._insert(link, 1, 0, 0, data)
        with pytest.raises(MeterError, match="cannot have been accepted"):
            store.get("z", 0)
        assert store.put("z", [1], [0], [900], [7]) == Counts(damaged=1)


# ---- shared commits


def waiting(zone: Any, callers: int) -> None:
    until = time.monotonic() + 30
    while len(zone._waiting) < callers and time.monotonic() < until:
        threading.Event().wait(0.001)


def test_an_interrupted_leader_tells_those_who_wait() -> None:
    """Ctrl-C hits the thread that stores for all: it stops, the others are to send again."""
    storing, go, calls = threading.Event(), threading.Event(), []

    def commit(_: Any, batches: Sequence[Columns]) -> Int8s:
        calls.append(len(batches))
        if len(calls) == 1:
            storing.set()
            go.wait(30)
            return np.zeros(0, np.int8)
        raise KeyboardInterrupt

    zone = stores._Zone(Roster.of("z", METERS, 900), commit)
    batch = Columns.of([], [], [], [])
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(zone.put, batch)
        storing.wait(30)
        others = [pool.submit(zone.put, batch) for _ in range(2)]
        waiting(zone, 2)
        go.set()
        assert first.result(30).size == 0
        errors = {type(each.exception(30)) for each in others}
    assert errors == {KeyboardInterrupt, MeterRetryError}
    assert calls == [1, 2]


def test_callers_that_wait_share_a_commit(tmp_path: Path) -> None:
    callers, go, commits = 8, threading.Event(), []
    with open_meters(tmp_path) as store:
        store.open_zone("z", [str(k) for k in range(callers)], 900)
        store.put("z", [0], [0], [900], [0])

        @event.listens_for(store.open().engine, "commit")
        def commit(_: Connection) -> None:
            if not commits:
                go.wait(30)
            commits.append(1)

        with ThreadPoolExecutor(callers) as pool:
            found = [
                pool.submit(store.put, "z", [house], [0], [900], [house])
                for house in range(1, callers)
            ]
            waiting(store._zone("z"), callers - 2)
            go.set()
            assert [each.result(30) for each in found] == [Counts(1)] * (callers - 1)
        assert len(commits) == 2
        assert store.get("z", 0).wh.tolist() == list(range(callers))


def test_readings_that_waited_for_an_old_roster_are_refused(tmp_path: Path) -> None:
    """Another roster began while they waited: their houses are places in the old one."""
    with opened(tmp_path) as store:
        old = store._zone("z")
        store.reopen("z", ["c", "b", "a"], 900)
        with pytest.raises(MeterError, match="is kept for a roster"):
            old.put(Columns.of([0], [0], [900], [5]))
        assert not any(present(store))


def test_a_reading_is_not_seen_before_it_is_durable(tmp_path: Path) -> None:
    """A duplicate must not be confirmed, nor a reading shown, before the first is committed."""
    committing, go = threading.Event(), threading.Event()
    with opened(tmp_path) as store:
        store.put("z", [1], [0], [900], [1])

        @event.listens_for(store.open().engine, "commit")
        def commit(_: Connection) -> None:
            committing.set()
            go.wait(30)

        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(store.put, "z", [0], [0], [900], [5])
            committing.wait(30)
            again = pool.submit(store.put, "z", [0], [0], [900], [5])
            assert present(store) == [False, True, False]
            threading.Event().wait(0.05)
            assert not first.done()
            assert not again.done()
            go.set()
            assert (first.result(30), again.result(30)) == (Counts(1), Counts(0, 1))
        assert present(store) == [True, True, False]


def test_nothing_new_is_no_write(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.put("z", [0], [0], [900], [1])
        log = tmp_path / "meters.db-wal"
        before = log.read_bytes()
        assert store.put("z", [0, 7], [0, 0], [900, 900], [1, 1]) == Counts(0, 1, 0, 0, 1)
        assert log.read_bytes() == before


# ---- bounded


def test_any_number_of_intervals_may_be_open_and_few_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MOST_OPEN", 10)
    starts = 900 * np.arange(60)
    columns = np.zeros(60, np.int32), starts, np.full(60, 900), starts
    with opened(tmp_path) as store:
        assert store.put("z", *columns) == Counts(60)
        assert store.open_intervals("z") == tuple(starts.tolist())
        assert len(store._zone("z").intervals) <= 20
        again = [0, 0], [0, 53_100], [900, 900], [0, 1]  # one from the store, one from memory
        assert store.put("z", *again) == Counts(0, 1, 1)


def test_closed_intervals_leave_the_memory(tmp_path: Path) -> None:
    with opened(tmp_path) as store, opened(f"sqlite:///{tmp_path / 'meters.db'}") as other:
        for k in range(5):
            store.put("z", [0], [900 * k], [900], [k])
            other.close("z", 900 * k)
        assert list(store._zone("z").intervals) == [3600]


def test_short_readings_take_room_for_their_house_once() -> None:
    interval = OpenInterval(0, Roster.of("z", [str(k) for k in range(200)], 900))
    house = np.arange(200, dtype=np.int32)
    for k in range(15):
        assert not interval.merge(
            Columns.of(house, house * 0 + 60 * k, house * 0 + 60, house)
        ).any()
    assert interval._places == 200 * 16
