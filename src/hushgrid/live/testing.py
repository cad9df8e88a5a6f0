"""Conformance checks of the living parts: what every store must hold, ours and yours.

    from hushgrid.live.testing import check_ledger_store
    check_ledger_store(lambda: MyStore(address))

Each check raises AssertionError with what failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.chain import check
from hushgrid.live.ledger.record import NOTHING, Record, seal
from hushgrid.live.ledger.records import (
    EpochRecord,
    GenesisRecord,
    LedgerEntry,
    ReleaseRecord,
    ScheduleRecord,
)
from hushgrid.live.ledger.stores.ports import LedgerStore

ZONES = ("elm-street", 'Zur "Linde" 7, Köln 灯', "z")
Make = Callable[[], LedgerStore]


def unsigned(digest: str) -> str:
    """What stands for a signature where no store looks at it."""
    return hashlib.sha512(digest.encode()).hexdigest()


def chain_of(zone: str, releases: int = 3, *, mode: Any = "simulation") -> list[Record]:
    """A small valid chain: genesis, epoch, schedule, then fallbacks."""
    entries: list[LedgerEntry] = [
        GenesisRecord(mode, "0" * 64, 1_700_000_000),
        EpochRecord("a" * 64, first=1, horizon=96, seconds=900),
        ScheduleRecord.of("a" * 64, [1 / 3] * 96),
    ]
    records: list[Record] = []
    for entry in entries:
        records.append(following(zone, records, entry))
    for t in range(1, releases + 1):
        records.append(fallback(zone, records, t, mode=mode))
    return records


def following(zone: str, records: list[Record], entry: LedgerEntry) -> Record:
    """The next record of a chain."""
    prev = records[-1].digest if records else NOTHING
    return seal(zone, len(records) + 1, entry.kind, entry.to_body(), prev, unsigned)


def fallback(zone: str, records: list[Record], t: int, *, mode: Any = "simulation") -> Record:
    """The next record of a chain, a release of step t that costs nothing."""
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


def check_ledger_store(make: Make) -> None:
    """A store that is empty at first; `make` opens it anew, as another process would."""
    with make() as store, make() as other:
        assert isinstance(store, LedgerStore), "the store lacks a method of LedgerStore"
        assert store.zones() == (), "a new store has zones"
        assert store.head("nobody") is None, "a zone without records has a head"
        assert list(store.records("nobody")) == [], "a zone without records has some"
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
            said = _said(second.writer("locked").__enter__)
            assert said, "a second writer of a zone was let in"
            assert "'locked'" in said, f"the message does not name the zone: {said}"
        with other.writer("open"):
            _refused(other, record, "by one who does not hold the lock", "writer")
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
        assert noted in (None, records[-1].digest), f"zone {zone}: the witness says {noted}"
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
    said = _said(lambda: store.append(record))
    assert said, f"zone {record.zone}: {what} was not refused"
    assert says in said, f"zone {record.zone}: {what} was refused for another reason: {said}"


def _said(act: Callable[[], object]) -> str | None:
    """The message of the LedgerError that an act ends in, if it does."""
    try:
        act()
    except LedgerError as error:
        return str(error)
    return None
