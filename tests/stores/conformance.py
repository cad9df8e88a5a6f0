"""Conformance checks of stores, one for each kind: ledger, meters, clients, OpenADR objects.

    from tests.stores.conformance import check_ledger_store, check_meter_store
    check_ledger_store(lambda: MyStore(address))
    check_meter_store(lambda: MyMeters("/some/place"))

`make` opens the store, always at the same place, which is empty at first; it is called again to
open the store from another process or after a restart. Each check raises AssertionError with what
failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from hushgrid.errors import AccessError, LedgerError, MeterError
from hushgrid.stores.clients import Client, ClientStore
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.entries import GenesisRecord, ReleaseRecord
from hushgrid.stores.ledger.entry import LedgerEntry
from hushgrid.stores.ledger.records import NOTHING, Record, seal
from hushgrid.stores.meters import Counts, MeterStore
from hushgrid.stores.meters.columns import NoiseBlock
from hushgrid.stores.openadr import StoredObject, TakenError, VtnStore, to_text
from tests.bodies import terms_of

ZONES = ("elm-street", 'Zur "Linde" 7, Köln 灯', "z")
MakeLedgerStore = Callable[[], LedgerStore]


def unsigned(digest: str) -> str:
    """A deterministic placeholder for a signature, where no store verifies it.

    Args:
        digest: Digest of a record.

    Returns:
        Hexadecimal text of 64 bytes.
    """
    return hashlib.sha512(digest.encode()).hexdigest()


def chain_of(zone: str, releases: int = 3, *, mode: Any = "simulation") -> list[Record]:
    """A small valid chain: genesis, terms, then fallbacks.

    Args:
        zone: Id of the zone.
        releases: Number of fallbacks.
        mode: Mode of the ledger.

    Returns:
        The records.
    """
    entries: list[LedgerEntry] = [
        GenesisRecord(mode, "0" * 64, 1_700_000_000),
        terms_of("d" * 64, 1, 900),
    ]
    records: list[Record] = []
    for entry in entries:
        records.append(following(zone, records, entry))
    for t in range(1, releases + 1):
        records.append(fallback(zone, records, t, mode=mode))
    return records


def following(zone: str, records: list[Record], entry: LedgerEntry) -> Record:
    """The next record of a chain.

    Args:
        zone: Id of the zone.
        records: The chain so far.
        entry: What to record.

    Returns:
        The record.
    """
    prev = records[-1].digest if records else NOTHING
    return seal(zone, len(records) + 1, entry.kind, entry.to_body(), prev, unsigned)


def fallback(zone: str, records: list[Record], t: int, *, mode: Any = "simulation") -> Record:
    """The next record of a chain, a release that spends nothing.

    Args:
        zone: Id of the zone.
        records: The chain so far.
        t: Step of the release.
        mode: Mode of the ledger.

    Returns:
        The record.
    """
    start = 1_700_000_100 + 900 * t
    entry = ReleaseRecord.stand_in(
        zone,
        "fallback",
        t=t,
        rate=0.1 * t,
        mode=mode,
        start=start,
        applies_start=start + 900,
        published_at=start + 901,
    )
    return following(zone, records, entry)


def check_ledger_store(make: MakeLedgerStore) -> None:
    """Check every property of `LedgerStore`, with two sessions and a new one at the end.

    Args:
        make: Opens the store, empty at first, as another process would.

    Raises:
        AssertionError: If a check fails.
    """
    with make() as store, make() as other:
        assert isinstance(store, LedgerStore), "the store lacks a method of LedgerStore"
        assert store.zones() == (), "a new store has zones"
        assert store.head("no-such-zone") is None, "a zone without records has a head"
        assert list(store.records("no-such-zone")) == [], "a zone without records has some"
        _check_lock(store, other)
        for zone in ZONES:
            _check_zone(store, other, chain_of(zone, 4))
        assert store.zones() == tuple(sorted(ZONES)), f"zones are {store.zones()}"
        _check_pages(store, "many")
    with make() as again:
        for zone in ZONES:
            kept = list(again.records(zone))
            assert kept == chain_of(zone, 5), f"zone {zone}: a new session reads other records"
            assert check(kept).first_bad is None, f"zone {zone}: the chain does not verify"


def _check_lock(store: LedgerStore, other: LedgerStore) -> None:
    record = chain_of("locked", 0)[0]
    _refused(store, record, "without a writer", "writer")
    with store.writer("locked"):
        for second in (other, store):
            message = _error_message(second.writer("locked").__enter__)
            assert message, "a second writer of a zone was let in"
            assert "'locked'" in message, f"the message does not name the zone: {message}"
        with other.writer("open"):
            _refused(other, record, "by a session without the lock", "writer")
    with other.writer("locked"):
        pass
    _refused(other, record, "after the lock was let go", "writer")
    try:
        with store.writer("locked"):
            raise KeyError
    except KeyError:
        pass
    with other.writer("locked"):  # an error inside lets go of it too
        pass
    assert store.zones() == (), "a refused record is there"


def _check_zone(store: LedgerStore, other: LedgerStore, records: list[Record]) -> None:
    zone = records[0].zone
    with store.writer(zone):
        _refused(store, records[1], "second before first", zone)
        for record in records:
            store.append(record)
            head = other.head(zone)
            assert head == record, f"zone {zone}: another session sees {head} as the head"
        for record in records:
            _refused(store, record, f"again record {record.seq}", "exists")
        _check_next(store, records)
        assert list(other.records(zone)) == records, f"zone {zone}: other records came back"
        assert list(other.records(zone, 2)) == records[2:], f"zone {zone}: wrong records after 2"
        assert list(other.records(zone, 99)) == [], f"zone {zone}: records after the last"
        noted = store.witness(zone)
        assert noted in (None, records[-1].digest), f"zone {zone}: the witness is {noted}"
        store.append(fallback(zone, records, 5))


def _check_next(store: LedgerStore, records: list[Record]) -> None:
    zone, after = records[0].zone, fallback(records[0].zone, records, 5)
    _refused(store, fallback(zone, records, 4), "a second release of step 4", "step 4")
    _refused(store, fallback(zone, records, 1), "a second release of step 1", "step 1")
    _refused(store, replace(after, digest="b" * 64), "another digest than its own", "digest")
    changed = replace(after, body={**after.body, "rate": 7.0})
    _refused(store, changed, "a changed body", "digest")
    forked = seal(zone, after.seq, after.kind, after.body, records[-2].digest, unsigned)
    _refused(store, forked, "a wrong prev", "follow")
    ahead = seal(zone, after.seq + 1, after.kind, after.body, records[-1].digest, unsigned)
    _refused(store, ahead, "a number left out", "follow")
    assert store.head(zone) == records[-1], f"zone {zone}: a refused record is there"


def _check_pages(store: LedgerStore, zone: str, releases: int = 600) -> None:
    """More records than are read at once."""
    records = chain_of(zone, releases)
    with store.writer(zone):
        for record in records:
            store.append(record)
    assert list(store.records(zone)) == records, "many records came back in another way"


def _refused(store: LedgerStore, record: Record, what: str, says: str) -> None:
    message = _error_message(lambda: store.append(record))
    assert message, f"zone {record.zone}: {what} was not refused"
    assert says in message, f"zone {record.zone}: {what} was refused for another reason: {message}"


def _error_message(act: Callable[[], object]) -> str | None:
    """The message of the LedgerError that an act ends in, if it does."""
    try:
        act()
    except LedgerError as error:
        return str(error)
    return None


MakeMeterStore = Callable[[], MeterStore]

_SECRET = 714_285_714  # [Wh] a reading that no message may contain
_LEAST, _MOST = -(2**63), 2**63 - 1


def check_meter_store(make: MakeMeterStore) -> None:
    """Check every property of `MeterStore` in turn, each in a zone of its own.

    Args:
        make: Opens the store, empty at first, and again after a restart.

    Raises:
        AssertionError: If a check fails.
    """
    for each in (
        _counts, _marks, _each, _first_stays, _whole_ones, _pieces, _extremes, _closes, _goes_round,
        _restarts, _many_intervals,
        _rosters, _purges, _threads, _bad_input, _noise_sizes, _begins,
    ):  # fmt: skip
        each(make, each.__name__)


def _put(store: MeterStore, zone: str, *readings: tuple[int, int, int, int]) -> Counts:
    """Readings given as (house, start, duration, wh)."""
    return store.put(zone, *(list(column) for column in zip(*readings, strict=True)))


def _expect(found: object, wanted: object, what: str) -> None:
    assert found == wanted, f"{what}: {found}, not {wanted}"


def _holds(store: MeterStore, zone: str, start: int, wanted: Sequence[int | None]) -> None:
    """The readings of an interval, None where missing."""
    found = store.get(zone, start)
    types = found.wh.dtype, found.present.dtype
    _expect(types, (np.dtype(np.int64), np.dtype(np.bool_)), "types of an interval")
    values = [
        wh if there else None
        for wh, there in zip(found.wh.tolist(), found.present.tolist(), strict=True)
    ]
    _expect(values, list(wanted), f"{zone}: readings of interval {start}")
    _expect(int(np.abs(found.wh[~found.present]).sum()), 0, f"{zone}: Wh where none is present")


@contextmanager
def _meter_refused(what: str) -> Iterator[None]:
    try:
        yield
    except MeterError as error:
        text = str(error)
        assert str(_SECRET) not in text, f"{what}: the message contains a reading"
        assert text.endswith("."), f"{what}: the message is no sentence"
        return
    raise AssertionError(f"{what} was not refused")


def _counts(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        store.open_zone(zone, ["a", "b", "c"], 900)
        _expect(store.last_closed(zone), None, "last closed of a new zone")
        _expect(store.open_intervals(zone), (), "open intervals of a new zone")
        _holds(store, zone, 0, [None] * 3)
        _expect(store.put(zone, [], [], [], []), Counts(), "counts of nothing")
        odd = [(3, 0), (-1, 0), (0, -900), (0, 450), (0, 1)]
        malformed = [(house, start, 900, 5) for house, start in odd]
        malformed += [(0, 0, duration, 5) for duration in (0, -900, 1800, 600, 901, 7)]
        malformed += [(0, 850, 100, 5), (0, 50, 100, 5), (0, 2**62, 900, 5)]
        _expect(_put(store, zone, *malformed), Counts(malformed=len(malformed)), "malformed")
        _expect(store.open_intervals(zone), (), "open intervals after malformed readings")
        good = [(0, 0, 900, 10), (1, 0, 900, -20), (0, 0, 900, 10), (1, 0, 900, 21), (9, 0, 9, 9)]
        _expect(_put(store, zone, *good), Counts(2, 1, 1, 0, 1), "a mixed batch")
        _holds(store, zone, 0, [10, -20, None])
        _expect(store.open_intervals(zone), (0,), "open intervals")


def _marks(make: MakeMeterStore, zone: str) -> None:
    """Of the marked readings those are counted that are accepted, in this batch and in no other."""
    readings = [
        (0, 900, 900, 1), (0, 900, 900, 1), (0, 900, 900, 2), (1, 900, 450, 3), (1, 1350, 450, 4),
        (2, 0, 900, 5), (9, 900, 900, 6), (2, 1800, 900, 7), (2, 900, 900, 8),
    ]  # fmt: skip
    accepted = [True, False, False, True, True, False, False, True, True]
    with make() as store:
        for one in range(len(readings)):
            name = f"{zone}-{one}"
            store.open_zone(name, ["a", "b", "c"], 900)
            store.close(name, 0)
            for marks, wanted in (
                ([place == one for place in range(len(readings))], int(accepted[one])),
                ([True] * len(readings), 0),
            ):
                columns = (list(column) for column in zip(*readings, strict=True))
                found = store.put(name, *columns, marked=marks)
                _expect(found.marked, wanted, f"marked and accepted, mark at {one}")
        name = f"{zone}-all"
        store.open_zone(name, ["a", "b", "c"], 900)
        columns = (list(column) for column in zip(*readings[3:5], strict=True))
        _expect(store.put(name, *columns, marked=[True, True]), Counts(2, marked=2), "all marked")
        _expect(store.put(name, [], [], [], [], marked=[]), Counts(), "marks of nothing")
        for odd in ([True], [1, 0], [[True], [False]]):
            with _meter_refused("marks that are none"):
                store.put(name, [0, 0], [0, 900], [900, 900], [_SECRET, 1], marked=odd)
        _expect(store.put(name, [0], [0], [900], [1]), Counts(1), "no marks")


def _each(make: MakeMeterStore, zone: str) -> None:
    """Deliveries put at once are counted as if each had come alone, in their order."""
    readings = [
        (0, 0, 900, 1), (1, 0, 900, 2), (0, 0, 900, 1), (1, 0, 900, 3), (9, 0, 900, 4),
        (1, 900, 300, 5), (0, 0, 900, 1),
    ]  # fmt: skip
    ends, marks = [0, 2, 2, 5, 6, 7], [False, True, True, True, True, True, True]
    wanted = [
        Counts(), Counts(2, marked=1), Counts(), Counts(0, 1, 1, 0, 1), Counts(1, marked=1),
        Counts(0, 1),
    ]  # fmt: skip
    columns = [list(column) for column in zip(*readings, strict=True)]
    with make() as store:
        store.open_zone(zone, ["a", "b"], 900)
        found = store.put_each(zone, *columns, ends=ends, marked=marks)
        _expect(found, wanted, "counts of each delivery")
        _expect(store.put_each(zone, [], [], [], [], ends=[0, 0]), [Counts()] * 2, "of none")
        for odd in ([], [6], [8], [3, 2, 7], [-1, 7]):
            with _meter_refused(f"ends {odd} of 7 readings"):
                store.put_each(zone, *columns, ends=odd)
        _holds(store, zone, 0, [1, 2])


def _first_stays(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        store.open_zone(zone, ["a", "b"], 900)
        _put(store, zone, (0, 0, 900, 10), (1, 0, 300, 1))
    with make() as store:
        store.open_zone(zone, ["a", "b"], 900)
        again = [(0, 0, 900, 10), (0, 0, 900, 11), (0, 0, 300, 10), (0, 300, 300, 10)]
        again += [(1, 0, 300, 1), (1, 0, 300, 2), (1, 0, 450, 1)]
        _expect(_put(store, zone, *again), Counts(0, 2, 5), "second readings")
        _holds(store, zone, 0, [10, None])
        rest = [(1, 300, 300, 2), (1, 600, 300, 3), (1, 300, 300, 4)]
        _expect(_put(store, zone, *rest), Counts(2, 0, 1), "the other pieces")
        _holds(store, zone, 0, [10, 6])


def _whole_ones(make: MakeMeterStore, zone: str) -> None:
    """A whole reading takes the place of pieces that do not cover the interval, alone."""
    halves = [(1, 0, 450, 1), (1, 450, 450, 2)]
    with make() as store:
        store.open_zone(zone, ["a", "b", "c"], 900)
        _put(store, zone, (0, 0, 300, 1), *halves)
    with make() as store:
        store.open_zone(zone, ["a", "b", "c"], 900)
        whole = [(house, 0, 900, 7) for house in (0, 1)]
        _expect(_put(store, zone, *whole), Counts(1, 0, 1), "whole readings after pieces")
        mixed = [(2, 0, 1, 5), (2, 0, 900, 8), (2, 1, 1, 5), (0, 300, 300, 1), (2, 0, 900, 8)]
        _expect(_put(store, zone, *mixed), Counts(2, 1, 2), "pieces and a whole reading")
        _holds(store, zone, 0, [7, 3, 8])
    with make() as store:
        store.open_zone(zone, ["a", "b", "c"], 900)
        _expect(_put(store, zone, (0, 0, 900, 7)), Counts(0, 1), "a whole reading again")
        _holds(store, zone, 0, [7, 3, 8])


def _pieces(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        store.open_zone(zone, ["a", "b", "c", "d"], 1800)
        minutes = [(0, 1800 + 60 * k, 60, k) for k in range(30)]
        gap = [(1, 1800 + 60 * k, 60, 1) for k in range(30) if k != 17]
        halves = [(2, 2700, 900, -7), (2, 1800, 900, 3)]
        whole = [(3, 1800, 1800, 0)]
        mixed = [*minutes[::-1], *gap, *whole, *halves]
        _expect(_put(store, zone, *mixed), Counts(len(mixed)), "pieces")
        _holds(store, zone, 1800, [sum(range(30)), None, -4, 0])
        _put(store, zone, (1, 1800 + 60 * 17, 60, 1))
        _holds(store, zone, 1800, [sum(range(30)), 30, -4, 0])
        store.close(zone, 1800)
        _holds(store, zone, 1800, [sum(range(30)), 30, -4, 0])


def _extremes(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        store.open_zone(zone, ["a", "b", "c", "d", "e"], 900)
        wide = [(0, 0, 900, _MOST), (1, 0, 900, _LEAST)]
        wide += [(2, 300 * k, 300, wh) for k, wh in enumerate([_MOST, _MOST, _LEAST])]
        wide += [(3, 300 * k, 300, _MOST) for k in range(3)]
        wide += [(4, 300 * k, 300, _LEAST) for k in range(3)]
        _expect(_put(store, zone, *wide), Counts(len(wide)), "numbers of 64 bits")
        _holds(store, zone, 0, [_MOST, _LEAST, _MOST - 1, _MOST, _LEAST])


def _closes(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        store.open_zone(zone, ["a", "b"], 900)
        _put(store, zone, (0, 900, 900, 1), (0, 1800, 900, 2), (0, 2700, 900, 3))
        store.close(zone, 1800)
        store.close(zone, 1800)
        store.close(zone, 900)
        _expect(store.last_closed(zone), 1800, "last closed")
        _expect(store.open_intervals(zone), (2700,), "open intervals")
    with make() as store:
        store.open_zone(zone, ["a", "b"], 900)
        _expect(store.last_closed(zone), 1800, "last closed after a restart")
        late = [(0, 900, 900, 1), (1, 900, 900, 7), (1, 1800, 300, 7), (1, 0, 900, 7)]
        fresh = [(1, 2700, 900, 8), (5, 0, 900, 9)]
        _expect(_put(store, zone, *late, *fresh), Counts(1, 0, 0, 4, 1), "late readings")
        _holds(store, zone, 900, [1, None])
        _holds(store, zone, 1800, [2, None])
        _holds(store, zone, 2700, [3, 8])
        store.close(zone, 90_000)
        _expect(_put(store, zone, (0, 90_000, 900, 1)), Counts(late=1), "an empty closed interval")
        _holds(store, zone, 90_000, [None, None])
        _expect(store.open_intervals(zone), (), "open intervals when all are closed")


def _goes_round(make: MakeMeterStore, zone: str) -> None:
    """Interval after interval, each with other durations: nothing of the last one is left."""
    lengths = (900, 300, 450, 900, 100)
    with make() as store:
        store.open_zone(zone, ["a", "b", "c"], 900)
        for k in range(1, 12):
            start, wanted = 900 * k, []
            for house in range(3):
                length = lengths[(house + k) % 5]
                missing = (house + k) % 4 == 0
                pieces = [
                    (house, start + at, length, k + at) for at in range(0, 900 - missing, length)
                ][missing:]
                if pieces:
                    _expect(_put(store, zone, *pieces), Counts(len(pieces)), f"interval {start}")
                wanted.append(None if missing else sum(piece[3] for piece in pieces))
            _holds(store, zone, start, wanted)
            store.close(zone, start)
            _holds(store, zone, start, wanted)


def _restarts(make: MakeMeterStore, zone: str) -> None:
    for k in range(4):
        with make() as store:
            store.open_zone(zone, ["a", "b", "c", "d"], 900)
            _expect(_put(store, zone, (k, 0, 900, k)), Counts(1), f"restart {k}")
            _holds(store, zone, 0, [j if j <= k else None for j in range(4)])
            _expect(_put(store, zone, (0, 0, 900, 0)), Counts(0, 1), "a duplicate after restarts")


def _many_intervals(make: MakeMeterStore, zone: str) -> None:
    starts = np.random.default_rng(1).permutation(np.repeat(np.arange(50) * 900, 2))
    house = np.zeros(100, np.int32)
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        found = store.put(zone, house, starts, np.full(100, 900), starts)
        _expect(found, Counts(50, 50), "a batch over 50 intervals")
        _expect(store.open_intervals(zone), tuple(range(0, 45_000, 900)), "open intervals")
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        for start in (0, 900, 44_100):
            _holds(store, zone, start, [start])


def _rosters(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        store.open_zone(zone, ["a", "b"], 900)
        store.open_zone(zone, ["a", "b"], 900)
        _put(store, zone, (0, 0, 900, _SECRET), (1, 900, 900, 2))
        store.close(zone, 0)
        for other, interval in ((["b", "a"], 900), (["a"], 900), (["a", "b"], 1800)):
            with _meter_refused("another roster"):
                store.open_zone(zone, other, interval)
        with _meter_refused("another roster while an interval is open"):
            store.reopen(zone, ["b"], 1800)
        with _meter_refused("another roster that begins in an interval with readings"):
            store.reopen(zone, ["b"], 1800, 900)
        store.close(zone, 900)
    with make() as store:
        with _meter_refused("another roster after a restart"):
            store.open_zone(zone, ["b"], 900)
        store.reopen(zone, ["c", "b", "a"], 1200)
        # the old roster ended at 1800, in the middle of the interval from 1200
        _expect(store.last_closed(zone), 1200, "last closed on the new grid")
        _expect(
            _put(store, zone, (0, 1200, 1200, 1), (2, 2400, 1200, 5)), Counts(1, 0, 0, 1), "new"
        )
        _holds(store, zone, 2400, [None, None, 5])
        with _meter_refused("an interval of the old roster"):
            store.get(zone, 0)
    with make() as store:
        with _meter_refused("the old roster"):
            store.open_zone(zone, ["a", "b"], 900)
        store.open_zone(zone, ["c", "b", "a"], 1200)
        _holds(store, zone, 2400, [None, None, 5])
        with _meter_refused("another roster of a zone that is not there"):
            store.reopen(zone + " other", ["a"], 900)
        store.reopen(zone, ["d"], 1200, 3600)  # closes the interval from 2400 with its readings
        _expect(store.last_closed(zone), 2400, "last closed before the new roster")
        _expect(_put(store, zone, (0, 2400, 1200, 1)), Counts(late=1), "of the old roster")
        _expect(_put(store, zone, (0, 3600, 1200, 6)), Counts(1), "of the new roster")
    with make() as store:
        store.open_zone(zone, ["d"], 1200)
        _holds(store, zone, 3600, [6])
        with _meter_refused("an interval of the old roster"):
            store.get(zone, 2400)


def _purges(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        _put(store, zone, *((0, 900 * k, 900, k) for k in range(6)))
        _expect(store.purge(zone, 10**9), 0, "purged before any is closed")
        store.close(zone, 2700)
        _expect(store.purge(zone, 1799), 1, "purged by 1799")
        _holds(store, zone, 900, [1])
        with _meter_refused("a purged interval"):
            store.get(zone, 0)
        _expect(store.purge(zone, 1799), 0, "purged again")
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        with _meter_refused("a purged interval after a restart"):
            store.get(zone, 0)
        _expect(_put(store, zone, (0, 0, 900, 0)), Counts(late=1), "a reading that was purged")
        _expect(store.purge(zone, 10**9), 3, "purged, only what is closed")
        _holds(store, zone, 3600, [4])
        _expect(store.open_intervals(zone), (3600, 4500), "open intervals after a purge")


def _noise_sizes(make: MakeMeterStore, zone: str, workers: int = 4) -> None:
    """The size of a block's noise is drawn once for all that ask, and gone once it is erased."""
    block, sizes = NoiseBlock("ab" * 32, 6300, 1234.5, 5), iter(range(10**12, 2 * 10**12))
    changes = {"scale": 1.0, "mark": 6, "start": 7200, "terms": "cd" * 32}
    others = [NoiseBlock(**{**block._asdict(), name: v}) for name, v in changes.items()]
    later, elsewhere = others[2:]
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        store.open_zone(f"{zone}/2", ["a"], 900)
        _expect(store.noise_size(zone, block, None), None, "a size that was never drawn")
        with ThreadPoolExecutor(workers) as pool:
            asked = [
                pool.submit(store.noise_size, zone, block, sizes.__next__) for _ in range(workers)
            ]
            found = {one.result() for one in asked}
        _expect(len(found), 1, "sizes of one block")
        for other in others:
            _expect(store.noise_size(zone, other, None), None, "a size of another block")
            found.add(store.noise_size(zone, other, sizes.__next__))
        found.add(store.noise_size(f"{zone}/2", block, sizes.__next__))
        _expect(len(found), 6, "sizes of six blocks")
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        store.open_zone(f"{zone}/2", ["a"], 900)
        kept = store.noise_size(zone, block, sizes.__next__)
        assert kept in found, "a size was drawn again after a restart"
        every = (block, *others)
        store.erase_noise(zone, block.terms, block.start, until=0)
        stays = [store.noise_size(zone, one, None) in found for one in every]
        _expect(stays, [True] * 5, "sizes of a block and of later ones, kept")
        store.erase_noise(zone, block.terms, later.start, until=0)
        left = [one for one in every if store.noise_size(zone, one, None) is not None]
        _expect(left, [later, elsewhere], "sizes kept once a block has ended")
        store.erase_noise(zone, block.terms, later.start, until=later.start, other_terms=True)
        _expect(store.noise_size(zone, elsewhere, None), None, "a size of terms that ended")
        assert store.noise_size(zone, later, None) in found, "the open block's size was erased"
        past = later._replace(start=later.start - 1)
        _expect(store.noise_size(zone, past, sizes.__next__), None, "a size without its key")
        store.erase_noise(zone, block.terms, until=later.start)
        store.erase_noise(zone, block.terms, until=later.start)
        _expect(store.noise_size(zone, later, None), None, "a size of terms without blocks left")
        assert store.noise_size(f"{zone}/2", block, None) in found, "another zone's was erased"
        with _meter_refused("a size of a zone that is not open"):
            store.noise_size(f"{zone}/3", block, None)


def _begins(make: MakeMeterStore, zone: str) -> None:
    """What is left out before the first interval stays so after a restart, and is not closed."""
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        _expect(_put(store, zone, (0, 900, 900, 1)), Counts(accepted=1), "a reading before it")
        _expect(store.begin(zone, 1800, 900), 1800, "the first interval")
        _expect(_put(store, zone, (0, 0, 900, 1)), Counts(late=1), "a reading of one left out")
        _expect(store.last_closed(zone), None, "closed intervals")
    with make() as store:
        store.open_zone(zone, ["a"], 900)
        _expect(store.begin(zone, 3600, 900), 1800, "the first interval after a restart")
        _expect(_put(store, zone, (0, 900, 450, 1)), Counts(late=1), "a reading of one left out")
        _expect(_put(store, zone, (0, 1800, 900, 1)), Counts(accepted=1), "a reading of the first")
        _expect(store.begin(zone, 5400, 2700), 5400, "the first interval of later terms")
        _expect(store.begin(zone, 2700, 2700), 2700, "one that is earlier by a clock set back")


def _threads(make: MakeMeterStore, zone: str, workers: int = 8, batches: int = 12) -> None:
    """Every reading comes from two threads; one of them wins, whichever."""
    houses = 40
    rng = np.random.default_rng(2)
    jobs = [rng.permutation(houses).astype(np.int32) for _ in range(workers // 2)] * 2

    def work(job: int) -> list[Counts]:
        start = 900 * (job % (workers // 2))
        parts = np.array_split(jobs[job], batches)
        return [
            store.put(zone, part, np.full(part.size, start), np.full(part.size, 900), part + start)
            for part in parts
        ]

    with make() as store:
        store.open_zone(zone, [str(k) for k in range(houses)], 900)
        with ThreadPoolExecutor(workers) as pool:
            found = [counts for each in pool.map(work, range(workers)) for counts in each]
        many = houses * workers // 2
        _expect(Counts(*map(sum, zip(*found, strict=True))), Counts(many, many), "all threads")
    with make() as store:
        store.open_zone(zone, [str(k) for k in range(houses)], 900)
        for start in store.open_intervals(zone):
            _holds(store, zone, start, [k + start for k in range(houses)])


def _bad_input(make: MakeMeterStore, zone: str) -> None:
    with make() as store:
        with _meter_refused("a zone that is not open"):
            _put(store, zone, (0, 0, 900, _SECRET))
        for meters, interval in (([], 900), (["a", "a"], 900), (["a", ""], 900), (["a"], 0)):
            with _meter_refused("a roster that is none"):
                store.open_zone(zone, meters, interval)
        for name in ("", "x" * 65):
            with _meter_refused("a zone name that is none"):
                store.open_zone(name, ["a"], 900)
        store.open_zone(zone, ["a"], 900)
        with _meter_refused("columns of two lengths"):
            store.put(zone, [0, 0], [0], [900], [_SECRET])
        for wh in ([float(_SECRET)], [[_SECRET]], np.array([2**63 + _SECRET], np.uint64)):
            with _meter_refused("Wh that are no whole numbers"):
                store.put(zone, [0], [0], [900], wh)
        for start in (-900, 450, 2**62):
            with _meter_refused("an interval that is none"):
                store.get(zone, start)
            with _meter_refused("an interval that is none"):
                store.close(zone, start)
        with _meter_refused("a time to purge before that is none"):
            store.purge(zone, float("nan"))  # type: ignore[arg-type]
        _expect(store.open_intervals(zone), (), "open intervals after bad input")
    with _meter_refused("a store that is shut"):
        store.get(zone, 0)
    with _meter_refused("a store that is shut"):
        _put(store, zone, (0, 0, 900, _SECRET))


# texts that a store must keep as they are, or refuse
TEXTS = (
    "'; DROP TABLE clients; --", "x' OR '1'='1", 'x" OR ""="', "%s %(a)s ?1 :a $1", "{0} {a}",
    "\r\nSet-Cookie: a=b", "../../etc/passwd", "a\0b", "\ud800", "ｆｕｌｌ", "", " ", "a" * 128,
    "a" * 5000,
)  # fmt: skip


def check_client_store(make: Callable[[], ClientStore]) -> None:
    """Check every property of `ClientStore`, with two sessions and a new one at the end.

    Args:
        make: Opens the store, empty at first, as another process would.

    Raises:
        AssertionError: If a check fails.
    """

    def client(name: str, *scopes: str, ven: str | None = None) -> Client:
        return Client(name, scopes, "a hash", 1_750_000_000, ven)

    meters = client("b-meters", "write_readings")
    ven = client("a.ven", "read_targets", "write_reports", ven="VEN 'seven' \"é\"")
    with make() as store, make() as other:
        _expect(store.all(), [], "clients of a new store")
        store.add(meters)
        store.add(ven)
        _expect(store.all(), [ven, meters], "all clients, sorted")
        _expect(other.find("b-meters"), meters, "a client found by another session")
        _expect(other.find("no-client"), None, "a client that is not there")
        for text in TEXTS:
            _expect(store.find(text), None, f"client {text[:20]!r}")
            _expect(store.revoke(text, 1), False, f"revoked {text[:20]!r}")
            for wrong in (client(text, "audit"), client("other", text)):
                _expect(_client_refused(store, wrong), True, f"refused {text[:20]!r}")
        _expect(_client_refused(store, client("other")), True, "refused a client without scopes")
        kept = [text for text in TEXTS if text.isprintable() and 0 < len(text) <= 128]
        for i, text in enumerate(kept):
            named = client(f"z{i}", "audit", ven=text)
            store.add(named)
            _expect(other.find(named.id), named, f"a ven's name {text[:20]!r}")
        _expect(other.revoke("a.ven", 7), True, "revoked")
        _expect(store.revoke("a.ven", 8), False, "revoked a second time")
        _expect(store.find("a.ven"), replace(ven, revoked=7), "a revoked client")
        _expect(store.find("b-meters"), meters, "a client that is not revoked")
        for one in (meters, ven):
            _expect(_client_refused(store, one), True, f"refused a second {one.id}")
    with make() as again:
        _expect(len(again.all()), 2 + len(kept), "clients of a new session")


def _client_refused(store: ClientStore, client: Client) -> bool:
    try:
        store.add(client)
    except AccessError:
        return True
    return False


def check_vtn_store(make: Callable[[], VtnStore]) -> None:
    """Check every property of `VtnStore`, with two sessions.

    Args:
        make: Opens the store, empty at first, as another process would.

    Raises:
        AssertionError: If a check fails.
    """
    with make() as store, make() as other:
        _lists(store, other)
        _changes(store)
        _vens(store, other)
        for text in TEXTS:
            _any_text(store, text)
        _parallel(store)


def _report(number: int, client: str = "c", **body: Any) -> StoredObject:
    return StoredObject("REPORT", f"report-{number}", client, number, number, to_text(body))


def _ven(name: str, client: str = "c") -> StoredObject:
    body = {"venName": name, "x": [1.5, None]}
    return StoredObject("VEN", f"ven-{name}", client, 5, 7, to_text(body))


def _resource(name: str, ven: str, client: str = "c") -> StoredObject:
    body = {"resourceName": name, "venID": f"ven-{ven}"}
    return StoredObject("RESOURCE", f"{name}-of-{ven}", client, 0, 0, to_text(body))


def _lists(store: VtnStore, other: VtnStore) -> None:
    kept = [_report(i, f"c{i % 2}", programID=f"p{i % 3}", eventID="e") for i in range(7)]
    for one in kept:
        store.add(one)
    _expect(store.get("REPORT", "report-3"), kept[3], "an object")
    _expect(store.get("VEN", "report-3"), None, "an object of another kind")
    _expect(list(other.find("REPORT")), kept, "all objects, by another session")
    _expect(list(store.find("REPORT", client="c1")), kept[1::2], "objects of a client")
    _expect(
        list(store.find("REPORT", columns={"program": "p0"})), kept[::3], "objects of a program"
    )
    both = {"program": "p0", "event": "other"}
    _expect(list(store.find("REPORT", columns=both)), [], "objects with two columns")
    _expect(list(store.find("REPORT", skip=2, limit=3)), kept[2:5], "a page")
    _expect(list(store.find("REPORT", limit=0)), [], "an empty page")
    _expect(list(store.find("REPORT", skip=2**31 - 1, limit=50)), [], "a page after the last")
    odd = list(store.find("REPORT", condition=lambda one: one.created % 2 == 1, skip=1, limit=1))
    _expect(odd, [kept[3]], "a page of those that satisfy a condition")
    _expect(store.count("REPORT", "c1"), 3, "count of a client")


def _changes(store: VtnStore) -> None:
    first, second = _ven("first"), _ven("second")
    store.add(first)
    store.add(second)
    changed = replace(first, modified=9, text=to_text({"venName": "changed"}), client="d")
    _expect(store.replace(changed), True, "replaced")
    _expect(list(store.find("VEN")), [changed, second], "order after a change")
    _expect(store.replace(replace(first, id="none")), False, "replaced what is not there")
    _expect(store.remove("VEN", "none"), None, "removed what is not there")
    _expect(store.remove("REPORT", first.id), None, "removed as another kind")
    _expect(store.remove("VEN", first.id), changed, "removed")
    _expect(store.remove("VEN", second.id), second, "removed")
    _expect(list(store.find("VEN")), [], "vens after all were removed")


def _vens(store: VtnStore, other: VtnStore) -> None:
    """Names are unique, and resources follow their ven."""
    for name in "ab":
        store.add(_ven(name))
        store.add(_resource("r", name))
    store.add(_resource("of-business-logic", "a", "someone"))
    same = replace(_resource("r", "a"), id="another")
    for taken in (replace(_ven("a", "other"), id="another"), same):
        _expect(_taken(store.add, taken), True, f"a second {taken.kind} of that name")
    subscriptions = [
        StoredObject("SUBSCRIPTION", f"s{i}", "c", 0, 0, to_text({"clientName": "same"}))
        for i in (1, 2)
    ]
    for one in subscriptions:
        store.add(one)
    _expect(list(other.find("SUBSCRIPTION")), subscriptions, "subscriptions of one name")
    _expect(store.replace(_ven("a", "d")), True, "a ven that becomes another client's")
    clients = {one.id: one.client for one in other.find("RESOURCE")}
    wanted = {"r-of-a": "d", "r-of-b": "c", "of-business-logic-of-a": "someone"}
    _expect(clients, wanted, "clients of resources")
    renamed = replace(_ven("b", "e"), text=to_text({"venName": "a"}))
    _expect(_taken(store.replace, renamed), True, "a ven that takes another's name")
    _expect(list(store.find("VEN")), [_ven("a", "d"), _ven("b")], "vens after a refused change")
    _expect(store.get("RESOURCE", "r-of-b"), _resource("r", "b"), "a resource after it")
    store.remove("VEN", "ven-a")
    _expect(list(other.find("RESOURCE")), [_resource("r", "b")], "resources of a removed ven")


def _any_text(store: VtnStore, text: str) -> None:
    body = {"venName": text, "venID": text, text: [text]}
    one = StoredObject("VEN", text, text, 1, 2, to_text(body))
    store.add(one)
    _expect(store.get("VEN", text), one, "an object of any text")
    found = list(store.find("VEN", client=text, columns={"name": text, "ven": text}))
    _expect(found, [one], "objects found by any text")
    _expect(store.replace(replace(one, text=to_text({"venName": text + "x"}))), True, "changed")
    _expect(store.remove("VEN", text) is None, False, "removed nothing")
    _expect(list(store.find("VEN")), [_ven("b")], "other objects")


def _parallel(store: VtnStore) -> None:
    def work(which: int) -> None:
        for i in range(10):
            store.add(_report(100 * which + i, f"thread-{which}"))
            list(store.find("REPORT", client=f"thread-{which}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    counts = [store.count("REPORT", f"thread-{which}") for which in range(1, 5)]
    _expect(counts, [10] * 4, "objects of threads")


def _taken(act: Callable[[StoredObject], object], one: StoredObject) -> bool:
    try:
        act(one)
    except TakenError:
        return True
    return False
