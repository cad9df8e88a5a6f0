"""How long does a start take to open a ledger of five years?

A zone of 1,000 houses with a promise about one interval ran for five years of quarter hours and is
opened as a start does, with the checkpoint that it left. Only the last hours are real: the weeks
before have the same releases, moved in time, under one record of terms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from tests.services import postgres_binaries, running_postgres

from benchmarks.measure import Question, Result, sized
from benchmarks.meters import folder
from benchmarks.running import BEGINS, INTERVAL, service
from hushgrid import SimulatedNoise
from hushgrid.curator.curator import Curator
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import LedgerStore
from hushgrid.stores.ledger.records import NOTHING, Record, seal
from hushgrid.stores.ledger.store import SqlLedger, row_of
from hushgrid.stores.ledger.writer import Key, create, load
from hushgrid.stores.meters import MeterStore, open_meters

WEEK = 7 * 96  # steps
WEEKS, HOUSES, PLAYED, TURNS = sized((260, 1_000, 20, 3), (2, 64, 2, 1))
_TIMES = {"start": INTERVAL, "applies_start": INTERVAL, "published_at": INTERVAL}
_STEPS = {"t": 1, "applies_from": 1, "first": 1}
ZONE = service(HOUSES, WEEK)


def _moved(body: Any, steps: int) -> dict[str, Any]:
    """The body of a record so many steps earlier."""
    length = _TIMES | _STEPS
    return {
        key: value - steps * length[key] if key in length else value for key, value in body.items()
    }


def _records(key: Key, last: list[Record]) -> Iterator[Record]:
    """Five years of records before those of the last week, and those again."""
    genesis, terms, *releases = last
    head, seq = NOTHING, 0
    week = [releases[n % len(releases)] for n in range(WEEK)]

    def sealed(kind: str, body: Any) -> Record:
        nonlocal head, seq
        seq += 1
        record = seal(ZONE.id, seq, kind, body, head, key.sign)
        head = record.digest
        return record

    yield sealed("genesis", genesis.body)
    yield sealed("terms", _moved(terms.body, WEEKS * WEEK))
    for back in range(WEEKS, 0, -1):
        for n, release in enumerate(week):
            turns = n - n % len(releases)  # the played steps come again and again
            yield sealed("release", _moved(release.body, back * WEEK - turns))
    for record in releases:
        yield sealed(record.kind, record.body)


def _opened(stack: ExitStack, store: LedgerStore, meters: MeterStore, key: Key) -> Curator:
    now = BEGINS + PLAYED * INTERVAL
    noise = SimulatedNoise(1)
    opened = Curator.open(ZONE, store, meters, noise, key, (), "simulation", now=now)
    return stack.enter_context(opened)


def _play(place: Path, key: Key, meters: MeterStore) -> list[Record]:
    """The records of the first hours of a zone."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store(str(place / "first.db")))
        noise = SimulatedNoise(1)
        opened = Curator.open(ZONE, store, meters, noise, key, (), "simulation", now=BEGINS)
        curator = stack.enter_context(opened)
        house, lengths = np.arange(HOUSES, dtype=np.int32), np.full(HOUSES, INTERVAL, np.int32)
        for start in range(BEGINS, BEGINS + PLAYED * INTERVAL, INTERVAL):
            meters.put(ZONE.id, house, np.full(HOUSES, start), lengths, np.full(HOUSES, 100))
            (release,) = curator.run(start + INTERVAL)
            assert release.source == "readings"
        return list(store.records(ZONE.id))


def _fill(store: LedgerStore, records: Iterator[Record]) -> None:
    assert isinstance(store, SqlLedger)
    with store.begin() as link:
        while rows := [row_of(record) for record in islice(records, 5_000)]:
            link.execute(sa.insert(store.tables[0]), rows)


def seconds(url: Callable[[Path], str]) -> Result:
    with folder() as place:
        create(place / "key.pem")
        key = load(place / "key.pem")
        with open_meters(str(place / "meters")) as meters:
            last = _play(place, key, meters)
            with open_store(url(place)) as store:
                _fill(store, _records(key, last))
            with ExitStack() as stack:
                store = stack.enter_context(open_store(url(place)))
                curator = _opened(stack, store, meters, key)
                count = len(curator.releases)
                curator.keep_checkpoint(spacing=1)
            spent = []
            for _ in range(TURNS):
                with ExitStack() as stack:
                    begun = time.perf_counter()
                    store = stack.enter_context(open_store(url(place)))
                    curator = _opened(stack, store, meters, key)
                    spent.append(time.perf_counter() - begun)
                    assert curator._ledger.standing.head.seq > count
    return Result(min(spent), "s", min(spent), "<= 2")


def on_server() -> Result:
    with running_postgres() as server:
        url = server.fresh()
        return seconds(lambda _: url)


QUESTIONS: dict[str, Question] = {
    "ledger_open_sqlite": partial(seconds, lambda place: str(place / "ledger.db")),
}
if postgres_binaries() is not None:
    QUESTIONS["ledger_open_postgres"] = on_server
