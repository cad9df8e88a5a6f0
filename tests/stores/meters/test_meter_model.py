"""Random lives of a meter store, against a dictionary that shares no code with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.stores.meters import MeterStore, open_meters
from hushgrid.stores.meters import store as stores
from hushgrid.stores.meters.columns import (
    ACCEPTED,
    Columns,
    HeldRoster,
    OpenInterval,
    Roster,
    add_up,
    counts_of,
    first_codes,
)
from tests.stores.meters.meter_oracle import MeterOracle, Reading

HOUSES, INTERVAL, INTERVALS = 4, 900, 5
METERS = [f"m{k}" for k in range(HOUSES)]
ZONES = count()

good = st.tuples(
    st.integers(0, HOUSES - 1),
    st.integers(0, INTERVALS * INTERVAL // 150 - 1).map(lambda k: 150 * k),
    st.sampled_from([900, 900, 450, 300, 150]),
    st.sampled_from([0, 1, -1, 7, 2**63 - 1, -(2**63)]),
).map(lambda r: (r[0], r[1] // r[2] * r[2], r[2], r[3]))
any_reading = st.tuples(
    st.integers(-1, HOUSES),
    st.integers(-2, 30).map(lambda k: 150 * k),
    st.sampled_from([900, 450, 600, 1800, 0, -150, 7, 150]),
    st.integers(-3, 3),
)
readings = st.lists(good | good | any_reading, min_size=1, max_size=12)
places = st.integers(0, INTERVALS - 1).map(lambda k: k * INTERVAL)
steps = st.one_of(
    st.tuples(st.sampled_from(["put", "put each"]), readings),
    st.tuples(st.just("put"), readings),
    st.tuples(st.just("fail"), readings),
    st.tuples(st.just("close"), places),
    st.tuples(st.just("purge"), st.integers(0, INTERVALS * INTERVAL)),
    st.tuples(st.just("restart"), st.none()),
)
lives = st.lists(steps, min_size=1, max_size=14)


def columns(some: Sequence[Reading]) -> list[list[int]]:
    return [list(column) for column in zip(*some, strict=True)]


@contextmanager
def full_disk(after: int) -> Iterator[None]:
    """The insert number `after` finds no room."""
    calls, real = count(), stores._insert

    def insert(*values: Any) -> None:
        if next(calls) >= after:
            raise MeterRetryError("no room.")
        real(*values)

    with patch.object(stores, "_insert", insert):
        yield


def same(store: MeterStore, zone: str, oracle: MeterOracle) -> None:
    assert store.open_intervals(zone) == oracle.open_intervals()
    closed = oracle.closed_end - INTERVAL if oracle.closed_end >= 0 else None
    assert store.last_closed(zone) == closed
    for opens in range(0, INTERVALS * INTERVAL, INTERVAL):
        if opens in oracle.purged:
            with pytest.raises(MeterError, match="purged"):
                store.get(zone, opens)
            continue
        found = store.get(zone, opens)
        shown = [
            wh if there else None
            for wh, there in zip(found.wh.tolist(), found.present.tolist(), strict=True)
        ]
        assert shown == oracle.get(opens)


def live(where: str, life: list[tuple[str, Any]]) -> None:
    zone, oracle = f"zone {next(ZONES)}", MeterOracle(HOUSES, INTERVAL)
    store = open_meters(where)
    try:
        store.open_zone(zone, METERS, INTERVAL)
        for step, value in life:
            if step == "put":
                odd = [wh % 2 == 1 for *_, wh in value]
                assert store.put(zone, *columns(value), marked=odd) == oracle.put(value, odd)
            elif step == "put each":
                ends = sorted({len(value) // 3, len(value) // 2, len(value)})
                cuts = list(zip([0, *ends], ends, strict=False))
                found = store.put_each(zone, *columns(value), ends=ends)
                assert found == [oracle.put(value[begin:end]) for begin, end in cuts]
            elif step == "fail":
                with full_disk(after=len(value) % 3):
                    try:
                        counts = store.put(zone, *columns(value))
                        assert counts == oracle.put(value)  # it needed fewer inserts
                    except MeterRetryError:
                        pass
            elif step == "close":
                store.close(zone, value)
                oracle.close(value)
            elif step == "purge":
                store.purge(zone, value)
                oracle.purge(value)
            elif step == "restart":
                store.shut()
                store = open_meters(where)
                store.open_zone(zone, METERS, INTERVAL)
            same(store, zone, oracle)
    finally:
        store.shut()


LIVES = int(os.environ.get("HUSHGRID_LIVES", "25"))  # 300 in make soak


@pytest.mark.parametrize(
    ("kind", "examples"), [("file", LIVES), ("sqlite", LIVES // 3), ("postgres", LIVES // 4)]
)
def test_random_lives(kind: str, examples: int, place: Callable[[str], str]) -> None:
    where = place(kind)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(lives)
    def run(life: list[tuple[str, Any]]) -> None:
        live(where, life)

    run()


@pytest.mark.parametrize("seed", range(5))
def test_columns_are_the_oracle(seed: int) -> None:
    """One interval, thousands of readings of mixed durations, in batches, as stored."""
    rng = np.random.default_rng(seed)
    houses, oracle = 300, MeterOracle(300, 1800)
    roster = Roster.of("z", [str(k) for k in range(houses)], 1800)
    memory, again, stored = OpenInterval(3600, roster), OpenInterval(3600, roster), []
    for _ in range(12):
        size = int(rng.integers(1, 400))
        durations = rng.choice([1800, 1800, 900, 60, 360], size)
        starts = 3600 + rng.integers(0, 1800, size) // durations * durations
        batch = Columns.of(
            rng.integers(-2, houses + 2, size), starts, durations, rng.integers(0, 3, size)
        )
        if rng.random() < 0.3:
            batch = Columns.of(batch.house, np.full(size, 3600), np.full(size, 1800), batch.wh)
        codes = first_codes(batch, HeldRoster(roster))
        rows = np.flatnonzero(codes == ACCEPTED)
        codes[rows] = memory.merge(batch.at(rows))
        given_readings = list(zip(*(column.tolist() for column in batch), strict=True))
        (counts,) = counts_of(codes, [size], None)
        assert counts == oracle.put(given_readings)
        if counts.accepted:
            stored.append(batch.at(codes == ACCEPTED).pack())
            again.load(Columns.unpack(stored[-1]))
        interval = add_up(map(Columns.unpack, stored), roster)
        wanted = oracle.get(3600)
        assert interval.present.tolist() == [wh is not None for wh in wanted]
        assert interval.wh.tolist() == [wh or 0 for wh in wanted]
        assert again.merge(batch.at(rows)).tolist() == memory.merge(batch.at(rows)).tolist()


@given(readings)
def test_columns_come_back_as_they_were_stored(some: list[Reading]) -> None:
    batch = Columns.of(*columns(some))
    found = Columns.unpack(batch.pack())
    assert [column.tolist() for column in found] == [column.tolist() for column in batch]
    assert [column.dtype for column in found] == [column.dtype for column in batch]
