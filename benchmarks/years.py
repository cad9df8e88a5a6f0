"""How long does a start take to open a ledger of five years?

A zone of 1,000 houses with a promise about one interval ran for five years of quarter hours and is
opened as a start does, with the checkpoint that it left. Only the last hours are real: the weeks
before have the same releases, moved in time, under one record of terms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from tests.services import postgres_binaries, running_postgres

from benchmarks.measure import Question, Result, sized
from benchmarks.meters import folder
from benchmarks.running import BEGINS, INTERVAL, service
from hushgrid import SimulatedNoise
from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.weeks import placed
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.checkpoint import write
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.records import FORMAT, NOTHING, Body, Head, Record, canonical
from hushgrid.stores.ledger.store import COLUMNS, SqlLedger
from hushgrid.stores.ledger.writer import Key, create, load
from hushgrid.stores.meters import MeterStore, open_meters

WEEK = 7 * 96  # steps
WEEKS, HOUSES, PLAYED, TURNS = sized((260, 1_000, 20, 3), (2, 64, 2, 1))
_TIMES = {
    "begins": INTERVAL,
    "start": INTERVAL,
    "applies_start": INTERVAL,
    "published_at": INTERVAL,
}
_STEPS = {"t": 1, "applies_from": 1, "first": 1}


@cache
def promising_zone() -> ZoneService:
    """The zone with a promise about one interval, which is kept week after week."""
    zone = service(HOUSES, WEEK, promise=Promise("interval", 1.0))
    return placed(replace(zone, pattern=Pattern(zone.scenario, zone.policy)), BEGINS)


def _moved(body: Any, steps: int) -> dict[str, Any]:
    """The body of a record so many steps earlier."""
    length = _TIMES | _STEPS
    return {
        key: value - steps * length[key] if key in length else value for key, value in body.items()
    }


def _rows(key: Key, last: list[Record]) -> Iterator[dict[str, Any]]:
    """Five years of records before those of the last week, and those again, as a store has them.

    The form of no record is checked, which takes most of the time that a record takes to be made.
    """
    genesis, tariff, terms, *releases = last
    head = NOTHING
    week = [releases[n % len(releases)] for n in range(WEEK)]

    zone = promising_zone().id

    def bodies() -> Iterator[tuple[str, Body]]:
        yield "genesis", genesis.body
        yield "tariff", _moved(tariff.body, WEEKS * WEEK)
        yield "terms", _moved(terms.body, WEEKS * WEEK)
        for back in range(WEEKS, 0, -1):
            for n, release in enumerate(week):
                turns = n - n % len(releases)  # the played steps come again and again
                yield "release", _moved(release.body, back * WEEK - turns)
        for record in releases:
            yield record.kind, record.body

    for seq, (kind, body) in enumerate(bodies(), 1):
        text = canonical(body)
        lines = (FORMAT, canonical(zone), str(seq), kind, head, text)
        digest = sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
        values = (zone, seq, kind, text, head, digest, key.sign(digest))
        yield {
            **dict(zip(COLUMNS, values, strict=True)),
            "t": body["start"] if kind == "release" else None,
        }
        head = digest


def _opened(stack: ExitStack, store: LedgerStore, meters: MeterStore, key: Key) -> Curator:
    now = BEGINS + PLAYED * INTERVAL
    noise = SimulatedNoise(1)
    opened = Curator.open(promising_zone(), store, meters, noise, key, (), "simulation", now=now)
    return stack.enter_context(opened)


def _play(
    place: Path, key: Key, meters: MeterStore
) -> tuple[list[Record], dict[str, NDArray[Any]]]:
    """The records of the first hours of a zone, and the state after them."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store(str(place / "first.db")))
        noise = SimulatedNoise(1)
        opened = Curator.open(
            promising_zone(), store, meters, noise, key, (), "simulation", now=BEGINS
        )
        curator = stack.enter_context(opened)
        house, lengths = np.arange(HOUSES, dtype=np.int32), np.full(HOUSES, INTERVAL, np.int32)
        for start in range(BEGINS, BEGINS + PLAYED * INTERVAL, INTERVAL):
            meters.put(
                promising_zone().id, house, np.full(HOUSES, start), lengths, np.full(HOUSES, 100)
            )
            (release,) = curator.run(start + INTERVAL)
            assert release.source == "readings"
        curator._replay.learn(PLAYED)
        state = curator._replay.to_arrays()
        assert state is not None
        return list(store.records(promising_zone().id)), state


def _fill(store: LedgerStore, rows: Iterator[dict[str, Any]]) -> Head:
    """Write the records; the last one."""
    assert isinstance(store, SqlLedger)
    with store.begin() as link:
        while page := list(islice(rows, 5_000)):
            link.execute(sa.insert(store.tables[0]), page)
            head = Head(page[-1]["seq"], page[-1]["digest"])
    return head


def seconds(url: Callable[[Path], str]) -> Result:
    with folder() as place:
        create(place / "key.pem")
        key = load(place / "key.pem")
        with open_meters(str(place / "meters")) as meters:
            last, state = _play(place, key, meters)
            with open_store(url(place)) as store:
                head = _fill(store, _rows(key, last))
                write(store, promising_zone().id, head, last[2].body["digest"], state, key.sign)
            spent = []
            for _ in range(TURNS):
                with ExitStack() as stack:
                    begun = time.perf_counter()
                    store = stack.enter_context(open_store(url(place)))
                    curator = _opened(stack, store, meters, key)
                    spent.append(time.perf_counter() - begun)
                    assert curator._checkpoint == head.seq, "the checkpoint is used"
                    assert len(curator.releases) == head.seq - 3
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
