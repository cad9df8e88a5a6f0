"""Kill, tear, flip, fill up: what was accepted is there afterwards, and nothing else."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.stores.meters import Counts, open_meters
from tests.examples import examples
from tests.services import Postgres
from tests.stores.meters import meter_writer
from tests.stores.meters.meter_writer import (
    HOUSES,
    INTERVAL,
    INTERVALS,
    METERS,
    WORKERS,
    ZONE,
    batch,
    truth,
)

SPAWN = multiprocessing.get_context("forkserver")  # forks from a process without threads
SPAWN.set_forkserver_preload(["tests.stores.meters.meter_writer", "hushgrid.stores.meters"])


@contextmanager
def started(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process and what it says; killed at the end."""
    heard, say = SPAWN.Pipe()
    process = SPAWN.Process(target=work, args=(*arguments, say), daemon=True)
    process.start()
    say.close()
    try:
        yield process, heard
    finally:
        process.kill()
        process.join()
        heard.close()


def killed_after(place: str, seed: int, wait: float) -> set[tuple[int, int]]:
    """The batches that a writer had accepted when it was killed `wait` [s] after its first."""
    accepted = set()
    with started(meter_writer.write, place, seed) as (process, heard):
        accepted.add(heard.recv())
        time.sleep(wait)
        process.kill()
        try:
            while True:
                accepted.add(heard.recv())
        except EOFError:
            return accepted


def stored(place: str) -> dict[tuple[int, int], int]:
    """(house, interval) -> Wh of all that is whole."""
    found = {}
    with open_meters(place) as store:
        store.open_zone(ZONE, METERS, INTERVAL)
        for start in range(0, INTERVAL * INTERVALS, INTERVAL):
            interval = store.get(ZONE, start)
            for house in np.flatnonzero(interval.present).tolist():
                found[house, start] = int(interval.wh[house])
    return found


class Ledger:
    """What was accepted for sure and what was sent, over several crashes of a store."""

    def __init__(self) -> None:
        self.accepted: set[tuple[int, int, int]] = set()  # house, start, duration
        self.sent: set[tuple[int, int, int]] = set()

    def add(self, seed: int, heard: set[tuple[int, int]]) -> None:
        for worker in range(WORKERS):
            last = max((number for who, number in heard if who == worker), default=-1)
            assert {(worker, number) for number in range(last + 1)} <= heard
            for number in range(last + 2):  # the one after the last may have been on its way
                house, start, duration, _ = batch(seed, worker, number)
                keys = set(zip(house.tolist(), start.tolist(), duration.tolist(), strict=True))
                self.sent |= keys
                self.accepted |= keys if number <= last else set()

    def check(self, place: str) -> None:
        found = stored(place)
        assert whole(self.accepted) <= found.keys() <= whole(self.sent)
        for (house, start), wh in found.items():
            assert wh == expected(house, start)

    def check_pieces(self, place: str) -> None:
        """Pieces that make no whole are there too: sent again, all count as duplicates."""
        with open_meters(place) as store:
            store.open_zone(ZONE, METERS, INTERVAL)
            house, start, duration = map(np.array, zip(*sorted(self.accepted), strict=True))
            counts = store.put(ZONE, house, start, duration, truth(house, start))
            assert counts == Counts(duplicate=len(self.accepted))


@pytest.mark.parametrize(("kind", "kills"), [("file", examples(20)), ("postgres", examples(12))])
@pytest.mark.sampled
def test_no_kill_loses_an_accepted_reading(
    kind: str, kills: int, place: Callable[[str], str]
) -> None:
    where, chance, ledger = place(kind), random.Random(7), Ledger()
    for seed in range(kills):
        ledger.add(seed, killed_after(where, seed, chance.uniform(0, 0.05)))
        ledger.check(where)
    assert len(ledger.accepted) > 1000
    ledger.check_pieces(where)


def whole(pieces: set[tuple[int, int, int]]) -> set[tuple[int, int]]:
    """(house, interval) that pieces cover."""
    length: dict[tuple[int, int], int] = {}
    for house, start, duration in pieces:
        key = house, start // INTERVAL * INTERVAL
        length[key] = length.get(key, 0) + duration
    return {key for key, covered in length.items() if covered == INTERVAL}


def expected(house: int, start: int) -> int:
    starts = np.array([start] if house % 5 else [start, start + 300, start + 600])
    return int(truth(np.full(starts.size, house, np.int32), starts).sum())


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with started(meter_writer.hold, str(tmp_path)) as (process, heard):
        assert heard.recv() == "open"
        with pytest.raises(MeterError, match="in use by another process"):
            open_meters(tmp_path)
        process.kill()
        process.join()
        open_meters(tmp_path).shut()
    with open_meters(tmp_path), pytest.raises(MeterError, match="in use"):
        open_meters(tmp_path)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_databases_take_several_writers(kind: str, place: Callable[[str], str]) -> None:
    where = place(kind)
    with started(meter_writer.write, where, 1) as (_, heard):
        heard.recv()
        with open_meters(where) as store:
            store.open_zone(ZONE, METERS, INTERVAL)
            for number in range(5):
                found = store.put(ZONE, *batch(2, 0, number))
                assert found == Counts(found.accepted, found.duplicate)
    for (house, start), wh in stored(where).items():
        assert wh == expected(house, start)


# ---- PostgreSQL


def test_a_database_restart_loses_nothing(postgres: Postgres) -> None:
    with open_meters(postgres.fresh()) as store:
        store.open_zone("z", ["a", "b", "c"], 900)
        store.put("z", [0], [0], [900], [111_222])
        postgres.stop("immediate")
        try:
            for call in (
                lambda: store.put("z", [1], [0], [900], [333_444]),
                lambda: store.get("z", 0),
                lambda: store.close("z", 0),
            ):
                for _ in range(2):  # the old connection breaks, a new one is refused
                    with pytest.raises(MeterRetryError) as caught:
                        call()
                    assert "333444" not in str(caught.value)  # ports may have a 333
                    assert caught.value.__cause__ is None
        finally:
            postgres.start()
        assert store.last_closed("z") is None
        assert store.get("z", 0).present.tolist() == [True, False, False]
        assert store.put("z", [0, 1], [0, 0], [900, 900], [111_222, 333_444]) == Counts(1, 1)
        assert store.get("z", 0).wh.tolist() == [111_222, 333_444, 0]


def test_a_database_crash_under_load_loses_nothing(postgres: Postgres) -> None:
    where, ledger, heard = postgres.fresh(), Ledger(), set()
    with started(meter_writer.write, where, 3) as (_, says):
        heard.add(says.recv())
        time.sleep(0.2)
        postgres.stop("immediate")
        try:
            while True:
                heard.add(says.recv())
        except EOFError:
            pass
        finally:
            postgres.start()
    ledger.add(3, heard)
    ledger.check(where)
    ledger.check_pieces(where)


def test_a_lost_connection_leaves_nothing_half_done(postgres: Postgres) -> None:
    import psycopg

    where = postgres.fresh()
    house = np.arange(HOUSES, dtype=np.int32)
    readings = house, house * 0, np.full(HOUSES, 900), house
    with open_meters(where) as store, psycopg.connect(where, autocommit=True) as other:
        store.open_zone(ZONE, METERS, 900)
        # every connection of the store ends as soon as it has copied its rows
        other.execute(
            "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
        )
        other.execute(
            "CREATE TRIGGER cut AFTER INSERT ON hushgrid_meter_delivery"
            " FOR EACH STATEMENT EXECUTE FUNCTION cut()"
        )
        for _ in range(2):
            with pytest.raises(MeterRetryError, match="open it again"):
                store.put(ZONE, *readings)
        other.execute("DROP TRIGGER cut ON hushgrid_meter_delivery")
        assert not store.get(ZONE, 0).present.any()
        assert store.put(ZONE, *readings) == Counts(HOUSES)


def test_another_roster_by_another_process_is_noticed(postgres: Postgres) -> None:
    where = postgres.fresh()
    with open_meters(where) as store, open_meters(where) as other:
        store.open_zone("z", ["a", "b"], 900)
        other.reopen("z", ["b", "a"], 900)
        with pytest.raises(MeterError, match="is kept for a roster"):
            store.put("z", [0], [0], [900], [5])
        assert other.put("z", [0], [0], [900], [5]) == Counts(1)
