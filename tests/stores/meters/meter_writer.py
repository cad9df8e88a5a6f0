"""A process that writes readings until it is killed, and says which batches were accepted.

Everything follows from a seed, so whoever hears the numbers of the batches knows the readings.
"""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from hushgrid.errors import MeterRetryError
from hushgrid.stores.meters import Counts, open_meters

HOUSES, INTERVAL, INTERVALS, WORKERS = 5000, 900, 4, 2
METERS = [f"m{k}" for k in range(HOUSES)]
ZONE = "elm street"

Batch = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]


def truth(house: NDArray[np.int32], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """The Wh of every reading there can be: what was stored wrongly shows."""
    return (house.astype(np.int64) * 1_000_003 + start * 7919) % 1_000_000_007


def batch(seed: int, worker: int, number: int) -> Batch:
    """Some houses (of this worker), some intervals, whole readings or thirds."""
    rng = np.random.default_rng([seed, worker, number])
    house = np.unique(rng.integers(0, HOUSES // WORKERS, int(rng.integers(1, 900))))
    house = (house * WORKERS + worker).astype(np.int32)
    duration = np.where(house % 5 == 0, 300, 900).astype(np.int32)
    start = INTERVAL * rng.integers(0, INTERVALS, house.size)
    start += np.where(duration == 300, 300 * rng.integers(0, 3, house.size), 0)
    return house, start, duration, truth(house, start)


def write(place: str, seed: int, heard: Connection) -> None:
    """Two threads, batch after batch; (worker, number) once a batch is accepted.

    Ends early when the store cannot take readings any more.
    """
    saying = threading.Lock()
    with open_meters(place) as store:
        store.open_zone(ZONE, METERS, INTERVAL)

        def work(worker: int) -> None:
            for number in range(100_000):
                readings = batch(seed, worker, number)
                try:
                    found = store.put(ZONE, *readings)
                except MeterRetryError:
                    return  # the database is gone
                assert found == Counts(found.accepted, found.duplicate)
                assert sum(found) == readings[0].size
                with saying:
                    heard.send((worker, number))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def hold(place: str, heard: Connection) -> None:
    """Open a store and keep it until killed."""
    with open_meters(place):
        heard.send("open")
        heard.recv()
