"""The meter store: readings, durable, in an SQLite file or a PostgreSQL database.

Callers that wait for the disk share a transaction. It locks the zone's row, reads what other
processes have added to the interval, decides in memory and inserts what is accepted.

Each interval has a count of its deliveries, and a small file next to an SQLite file has the last
one of each zone: a delivery that was acknowledged and is gone is noticed and logged.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from hushgrid._numbers import Int8s, Int32s, Ints
from hushgrid.errors import HushgridError, MeterDamageError, MeterError, MeterRetryError
from hushgrid.intake.readings import Register
from hushgrid.stores.database import Database
from hushgrid.stores.meters.block_keys import BlockKeys, seal, unseal
from hushgrid.stores.meters.columns import (
    ACCEPTED,
    CONFLICTING,
    DAMAGED,
    Columns,
    Counts,
    HeldRoster,
    Interval,
    NoiseBlock,
    OpenInterval,
    Roster,
    add_up,
    by_interval,
    check_ends,
    counts_of,
    first_codes,
    marks_of,
    netted,
)
from hushgrid.stores.meters.tables import (
    ADD_DELIVERY,
    COUNT,
    COUNTED,
    DELIVERIES,
    DELIVERY,
    INTERVAL,
    NOISE,
    SCHEMA,
    ZONE,
    add_zone,
    columns_of,
    file_of,
    find_zone,
    key_folder,
    note_delivery,
    noted_delivery,
    opened,
)

log = logging.getLogger("hushgrid.meters")

MOST_OPEN = 1000  # intervals of a zone that are kept in memory


class MeterStore:
    """Readings of one or more zones, durable. Safe for threads.

    Accepted means durable: when `put` has returned, no crash loses what it counted as accepted. A
    reading counted otherwise has changed nothing. MeterRetryError: nothing was counted, and the
    same should be sent again. Every other fault is a MeterError, except that readings of an
    interval that is damaged are counted as such: sent again, they would meet the same. The database
    is opened with the first call, and again after a failure.

    Args:
        place: As for `open_meters`.
        disagreed: Called with the zone, and houses and starts of readings that are conflicting.
        keys: Folder of the keys that seal sizes of noise; None: next to an SQLite file.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        disagreed: Callable[[str, Int32s, Ints], None] = lambda _zone, _house, _start: None,
        keys: Path | None = None,
    ) -> None:
        self._place, self._mutex, self._disagreed = os.fspath(place), threading.Lock(), disagreed
        self._zones: dict[str, _Zone] = {}
        self._lost: set[tuple[str, int]] = set()  # intervals whose loss is logged
        self._stack, self._opened, self._shut = ExitStack(), None, False
        self._in_log = True  # whether SQLite's log may hold what was removed; a kill leaves it
        self._emptying = threading.Lock()
        self._keys: BlockKeys | None = None
        self._key_folder = keys

    _opened: Database | None

    def open(self) -> Database:
        """Open the database, unless it is."""
        with self._mutex:
            if self._shut:
                raise MeterError("the meter store is shut; open it again.")
            if self._opened is None:
                try:
                    with ExitStack() as stack:
                        self._opened = opened(self._place, stack)
                        self._stack = stack.pop_all()
                    folder = key_folder(self._place, self._key_folder)
                    self._keys = None if folder is None else BlockKeys(folder)
                except OSError as error:
                    raise MeterError(
                        f"meter store {error.filename} cannot be opened ({error.strerror}); give"
                        " a path that can be written."
                    ) from None
            return self._opened

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Connection]:
        database = self.open()
        try:
            with database.begin() if write else database.read() as link:
                yield link
        except MeterError:
            database.close()  # its connections: the file may have been put back meanwhile
            raise

    # ---- zones

    def open_zone(
        self, zone: str, meters: Sequence[str], interval: int, registers: Sequence[Register] = ()
    ) -> None:
        """Fix a zone's roster (meter ids in house order) and interval length [s].

        `registers`: further ones, by house. They have places after the houses, in that order;
        `get` adds what they counted to their houses, or takes it from them.
        The first call starts the zone; every later one must give the same. MeterError otherwise.
        """
        roster = Roster.of(zone, meters, interval, registers)
        with self._transaction(write=True) as link:
            add_zone(link, zone, HeldRoster(roster))
            key, held = _zone_row(link, zone)
            held.check_same(roster, zone)
            note = noted_delivery(self.open().path, zone)
            gap = _noted_and_lost(link, note, key, held)
        if gap is not None:
            self._lose(zone, roster, gap)
        self._know(zone, roster, registers)

    def reopen(
        self,
        zone: str,
        meters: Sequence[str],
        interval: int,
        begins: int = 0,
        registers: Sequence[Register] = (),
    ) -> None:
        """Start another roster at `begins` [UTC s].

        Intervals that start before are closed with it. Refused while one that stays open holds
        readings. What is closed stays closed; readings of the old roster can only be purged.
        """
        roster = Roster.of(zone, meters, interval, registers)
        with self._transaction(write=True) as link:
            key, held = _zone_row(link, zone, lock=True)
            if roster != held.roster:
                held = held.ended(begins)
                for opens in _intervals(link, key, held):
                    raise MeterError(
                        f"zone {zone!r} cannot be reopened while interval {opens} is open;"
                        " close every interval that holds readings first, or begin after them."
                    )
                _update(link, key, held.renewed(roster))
        self._know(zone, roster, registers)

    def _lose(self, zone: str, roster: Roster, opens: int) -> None:
        """Log once that acknowledged readings of an interval are gone."""
        if (zone, opens) not in self._lost:
            self._lost.add((zone, opens))
            log.error("readings lost", extra={"zone": zone, "t": opens // roster.interval})

    def lost(self, zone: str) -> int:
        """Of how many intervals acknowledged readings were found to be gone."""
        return sum(zone == name for name, _ in tuple(self._lost))

    def _know(self, zone: str, roster: Roster, registers: Sequence[Register]) -> None:
        with self._mutex:
            if zone not in self._zones or self._zones[zone].roster != roster:
                self._zones[zone] = _Zone(
                    roster,
                    lambda open_zone, parts: self._store(zone, open_zone, parts),
                    registers,
                )

    def _zone(self, zone: str) -> _Zone:
        open_zone = self._zones.get(zone)
        if open_zone is None:
            raise MeterError(f"zone {zone!r} is not open; call open_zone with its roster first.")
        return open_zone

    # ---- readings

    def put(
        self,
        zone: str,
        house: ArrayLike,
        start: ArrayLike,
        duration: ArrayLike,
        wh: ArrayLike,
        *,
        marked: ArrayLike | None = None,
    ) -> Counts:
        """Store readings: house (place in the roster), start [UTC s], duration [s], Wh.

        `marked`: True or False for each; how many marked ones are accepted is counted, with no
        other effect. Durable on return. The first reading for a house and time is kept.
        """
        ends = [np.size(house)]
        return self.put_each(zone, house, start, duration, wh, ends=ends, marked=marked)[0]

    def put_each(
        self,
        zone: str,
        house: ArrayLike,
        start: ArrayLike,
        duration: ArrayLike,
        wh: ArrayLike,
        *,
        ends: Sequence[int],
        marked: ArrayLike | None = None,
    ) -> list[Counts]:
        """Store several deliveries, each ending before `ends[i]`; counts of each.

        As `put` for one after the other, but all or none of them are counted.
        """
        columns = Columns.of(house, start, duration, wh)
        marks = marks_of(marked, columns.house.size)
        check_ends(ends, columns.house.size)
        return counts_of(self._zone(zone).put(columns), ends, marks)

    def _store(self, name: str, zone: _Zone, batches: Sequence[Columns]) -> Int8s:
        """Store batches in one transaction; the code of every reading."""
        columns, last = Columns.joined(batches), None
        with self._transaction(write=True) as link:
            key, held = _zone_row(link, name, lock=True)
            held.check_same(zone.roster, name)  # houses are places in that roster
            zone.forget(held.closed_end)
            codes = first_codes(columns, held)
            fine = np.flatnonzero(codes == ACCEPTED)
            for opens, rows in by_interval(columns.start, fine, held.roster.interval):
                try:
                    interval = _loaded(link, name, key, zone, opens)
                except MeterDamageError:  # of this interval alone
                    zone.intervals.pop(opens, None)
                    codes[rows] = DAMAGED
                    self._lose(name, zone.roster, opens)
                    continue
                zone.intervals[opens] = interval
                codes[rows] = interval.merge(columns.at(rows))
                accepted = rows[codes[rows] == ACCEPTED]
                if accepted.size:
                    readings = columns.at(accepted).pack()
                    _insert(link, key, opens, interval.deliveries, readings)
                    interval.deliveries += 1
                    last = (opens, interval.deliveries)
                if len(zone.intervals) > 2 * MOST_OPEN:
                    zone.forget(held.closed_end)
        if last is not None:
            note_delivery(self.open().path, name, *last)
        odd = codes == CONFLICTING
        if odd.any():
            self._disagreed(name, columns.house[odd], columns.start[odd])
        return codes

    def _open_row(
        self, link: Connection, zone: str, *, lock: bool = False
    ) -> tuple[int, HeldRoster]:
        """A zone with the roster that it was opened with here."""
        roster = self._zone(zone).roster
        key, held = _zone_row(link, zone, lock=lock)
        held.check_same(roster, zone)
        return key, held

    def get(self, zone: str, start: int) -> Interval:
        """The readings of an interval, open or closed. MeterError when they are purged."""
        with self._transaction(write=False) as link:
            key, held = self._open_row(link, zone)
            opens = held.roster.interval_at(start, zone)
            if opens >= held.floor:
                parts = dict(_deliveries(link, zone, key, opens))
                if len(parts) < max(_counted(link, key, opens), *(n + 1 for n in parts), 0):
                    self._lose(zone, held.roster, opens)
                interval = add_up(parts.values(), held.roster)
                return netted(interval, self._zone(zone).registers)
        raise MeterError(  # so that its readings are not taken for missing
            f"interval {opens} of zone {zone!r} is purged or of an earlier roster;"
            f" ask for one from {held.floor} on."
        )

    def peek(self, zone: str, start: int) -> Interval | None:
        """The readings of an interval for display; None where they cannot be read."""
        try:
            return self.get(zone, start)
        except MeterError:
            return None

    def begin(self, zone: str, start: int, first: int) -> int:
        """Fix the first interval that terms publish, durably: readings before it are late.

        `start` [UTC s], unless an earlier one is fixed from the terms' `first` interval on,
        which is then the answer.
        """
        with self._transaction(write=True) as link:
            key, held = self._open_row(link, zone, lock=True)
            held = held.with_begin(start, first)
            _update(link, key, held)
        return held.begins

    def close(self, zone: str, start: int) -> None:
        """Close an interval and all before it, durably: later readings of them are late."""
        with self._transaction(write=True) as link:
            key, held = self._open_row(link, zone, lock=True)
            _update(link, key, held.closed(held.roster.interval_at(start, zone)))

    def last_closed(self, zone: str) -> int | None:
        """Start of the last closed interval [UTC s]; None before the first.

        Also of a zone that is not open here, whatever its roster.
        """
        with self._transaction(write=False) as link:
            if zone in self._zones:
                return self._open_row(link, zone)[1].last_closed
            row = find_zone(link, zone)
            return None if row is None else row[1].last_closed

    def timeline(self) -> str | None:
        """System identifier and timeline of the database server; None: a file, or not known."""
        return self.open().timeline()

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """Starts of the intervals that hold readings and are not closed, in order [UTC s]."""
        with self._transaction(write=False) as link:
            return tuple(_intervals(link, *self._open_row(link, zone)))

    def purge(self, zone: str, before: int) -> int:
        """Delete the readings of closed intervals that ended by `before` [UTC s]; how many."""
        with self._transaction(write=True) as link:
            key, held = self._open_row(link, zone, lock=True)
            held = held.purged(before)
            old = (DELIVERY.c.zone == key) & (DELIVERY.c.opens < held.floor)
            count = link.scalar(select(func.count(DELIVERY.c.opens.distinct())).where(old)) or 0
            _update(link, key, held)
            link.execute(delete(DELIVERY).where(old))
            old = (INTERVAL.c.zone == key) & (INTERVAL.c.opens < held.floor)
            link.execute(delete(INTERVAL).where(old))
        self._empty_log(removed=count > 0)
        return count

    def _empty_log(self, *, removed: bool) -> None:
        """Leave nothing that was removed in SQLite's log; where it is read, with the next purge."""
        with self._emptying:
            self._in_log = self._in_log or removed
            if self._in_log:
                self._in_log = not self.open().empty_log()

    # ---- noise that lasts a block of steps

    def noise_size(
        self, zone: str, block: NoiseBlock, draw: Callable[[], int] | None
    ) -> int | None:
        """The size M of a block's noise, as secret as readings; None where it is not kept.

        Where it is not and `draw` is given, it is drawn and kept, durable on return: all that
        share the store get the same one. None also where the block's key is erased or not there.
        """
        self._zone(zone)
        if self._keys is None:
            raise MeterError("the meter store has no folder of block keys; give keys.")
        secret, about = self._keys.at(zone, block.start), json.dumps([zone, *block])
        if secret is None:
            return None
        with self._transaction(write=draw is not None) as link:
            key, _ = self._open_row(link, zone, lock=draw is not None)
            sealed = link.scalar(select(NOISE.c.sealed).where(_of_block(key, block)))
            if sealed is None and draw is not None:
                sealed = seal(secret, int(draw()), about)
                link.execute(insert(NOISE).values(zone=key, **block._asdict(), sealed=sealed))
        size = None if sealed is None else unseal(secret, sealed, about)
        if sealed is not None and size is None:
            log.error("block key is another curator's", extra={"zone": zone})
        return size

    def erase_noise(
        self,
        zone: str,
        terms: str,
        before: int | None = None,
        *,
        until: int,
        other_terms: bool = False,
    ) -> None:
        """Erase the sizes of blocks under some terms that began before `before`; None: of all.

        And the keys of all blocks that began before `until` [UTC s], so that no copy of the store
        shows their sizes. With `other_terms` also the sizes under all other terms. A curator that
        was replaced while it paused erases by what it knew: no block that its successor began since
        began earlier.
        """
        if self._keys is not None:
            self._keys.erase(zone, until)
        old = NOISE.c.terms == terms
        if before is not None:
            old &= NOISE.c.start < before
        if other_terms:
            old |= NOISE.c.terms != terms
        with self._transaction(write=False) as link:
            key, _ = self._open_row(link, zone)
            old &= NOISE.c.zone == key
            if not link.scalar(select(func.count()).select_from(NOISE).where(old)):
                return
        with self._transaction(write=True) as link:
            link.execute(delete(NOISE).where(old))
        self._empty_log(removed=True)

    def shut(self) -> None:
        """Close files and connections; the store cannot be used afterwards."""
        with self._mutex:
            self._shut = True
            self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()


class _Zone:
    """A zone that is open in this process, with its open intervals. Safe for threads.

    Callers share one transaction: the thread that gets the lock stores the batches of all that
    wait; the others then find theirs stored.
    """

    def __init__(
        self,
        roster: Roster,
        store: Callable[[_Zone, Sequence[Columns]], Int8s],
        registers: Sequence[Register] = (),
    ) -> None:
        self.roster, self.registers = roster, tuple(registers)
        self._store, self._lock = store, threading.Lock()
        self.intervals: dict[int, OpenInterval] = {}
        self._waiting: deque[tuple[Columns, Future[Int8s]]] = deque()

    def forget(self, before: int) -> None:
        """Drop intervals before a time [held s], and the oldest beyond `MOST_OPEN`."""
        newest = sorted(opens for opens in self.intervals if opens >= before)[-MOST_OPEN:]
        self.intervals = {opens: self.intervals[opens] for opens in newest}

    def put(self, columns: Columns) -> Int8s:
        """Store a batch, alone or with those of other threads; the code of each reading."""
        future = Future[Int8s]()
        self._waiting.append((columns, future))
        with self._lock:
            if not future.done():
                self._put([self._waiting.popleft() for _ in range(len(self._waiting))])
        return future.result()

    def _put(self, group: Sequence[tuple[Columns, Future[Int8s]]]) -> None:
        try:
            codes = self._store(self, [columns for columns, _ in group])
        except BaseException as error:
            self.intervals.clear()  # they may hold what was not stored
            for _, result in group:
                result.set_exception(_error_copy(error))
            if not isinstance(error, Exception):
                raise
            return
        ends = np.cumsum([columns.house.size for columns, _ in group])
        for (_, result), part in zip(group, np.split(codes, ends[:-1]), strict=True):
            result.set_result(part)


def _error_copy(error: BaseException) -> Exception:
    """An error for each caller: one object raised in two threads would mix their traces."""
    if isinstance(error, MeterError):
        return type(error)(*error.args)
    if isinstance(error, Exception):
        return error
    return MeterRetryError("the thread that stored for others was stopped; send again.")


def stored_rosters(place: str) -> dict[str, Roster]:
    """The rosters of a store, which is left as it is.

    Args:
        place: As for `open_meters`.

    Returns:
        Rosters by zone; none where the store is not there yet.

    Raises:
        MeterError: The store cannot be read.
    """
    path = file_of(place)
    rosters = dict[str, Roster]()
    if path is not None and (not path.exists() or not path.stat().st_size):
        return rosters
    reading = Database(path or place, SCHEMA, create=False, read_only=True, still=True)
    with reading, reading.read() as link:
        for row in link.execute(select(ZONE)):
            rosters[row.zone] = Roster(row.houses, row.interval_s, row.roster)
    return rosters


# ---- the database


def _zone_row(link: Connection, zone: str, *, lock: bool = False) -> tuple[int, HeldRoster]:
    row = find_zone(link, zone, lock=lock)
    if row is None:
        raise MeterError(f"zone {zone!r} is new; call open_zone.")
    return row


def _update(link: Connection, key: int, held: HeldRoster) -> None:
    link.execute(update(ZONE).where(ZONE.c.key == key).values(**columns_of(held)))


def _of_block(key: int, block: NoiseBlock) -> ColumnElement[bool]:
    match = (NOISE.c.zone == key) & (NOISE.c.terms == block.terms)
    match &= NOISE.c.start == block.start
    return match & (NOISE.c.scale == block.scale) & (NOISE.c.mark == block.mark)


def _intervals(link: Connection, key: int, held: HeldRoster) -> Sequence[int]:
    """Starts of the open intervals."""
    opens = DELIVERY.c.opens
    query = select(opens).distinct().where(DELIVERY.c.zone == key, opens >= held.closed_end)
    return link.scalars(query.order_by(opens)).all()


def _deliveries(
    link: Connection, zone: str, key: int, opens: int, after: int = 0
) -> Iterator[tuple[int, Columns]]:
    """The deliveries of an interval from a number on, with their numbers."""
    for number, readings in link.execute(DELIVERIES, {"key": key, "opens": opens, "after": after}):
        yield number, _unpacked(zone, opens, number, readings)


def _unpacked(zone: str, opens: int, number: int, readings: bytes) -> Columns:
    try:
        return Columns.unpack(readings)
    except MeterDamageError as error:
        raise MeterDamageError(
            f"delivery {number} of the interval at {opens} of zone {zone!r} cannot be used:"
            f" {error}; put back a copy of the meter store, or wait until the interval is left out."
        ) from None


def _counted(link: Connection, key: int, opens: int) -> int:
    """How many deliveries of an interval were stored."""
    return link.scalar(COUNTED, {"key": key, "opens": opens}) or 0


def _insert(link: Connection, key: int, opens: int, number: int, readings: bytes) -> None:
    values = {"zone": key, "opens": opens, "number": number, "readings": readings}
    link.execute(ADD_DELIVERY, values)
    link.execute(COUNT, {"zone": key, "opens": opens, "deliveries": number + 1})


def _loaded(link: Connection, name: str, key: int, zone: _Zone, opens: int) -> OpenInterval:
    """An open interval with what other processes have added."""
    interval = zone.intervals.get(opens)
    if interval is None:
        interval = OpenInterval(opens, zone.roster)
        # past those that are lost: what is sent again takes none of their numbers
        at = _counted(link, key, opens)
    else:
        at = interval.deliveries
    for number, columns in _deliveries(link, name, key, opens, interval.deliveries):
        interval.load(columns)
        at = max(at, number + 1)
    interval.deliveries = at
    return interval


# ---- what was acknowledged and is gone


def _noted_and_lost(
    link: Connection, note: tuple[int, int] | None, key: int, held: HeldRoster
) -> int | None:
    """The interval of the last delivery that was noted, where it is gone."""
    if note is None:
        return None
    opens, deliveries = note
    of_interval = (DELIVERY.c.zone == key) & (DELIVERY.c.opens == opens)
    last = link.scalar(select(func.max(DELIVERY.c.number)).where(of_interval))
    return (
        opens if opens >= held.floor and (-1 if last is None else last) < deliveries - 1 else None
    )


def damages(place: str, published: Mapping[str, int]) -> dict[str, list[str]]:
    """Check every delivery of a store, which is left as it is; a service may be using it.

    Args:
        place: As for `open_meters`.
        published: Start of the last interval of which each zone has a release [UTC s].

    Returns:
        By zone what is damaged, and what was acknowledged and is gone.

    Raises:
        MeterError: The store cannot be read.
    """
    path, problems = file_of(place), dict[str, list[str]]()
    # before the readings: what is stored meanwhile is not missed
    notes = {zone: noted_delivery(path, zone) for zone in stored_rosters(place)}
    reading = Database(path or place, SCHEMA, create=False, read_only=True, still=True)
    with reading, reading.read() as link:
        for zone in sorted({*notes, *published}):
            zone_row = find_zone(link, zone)
            if zone_row is None:
                problems[zone] = ["the zone is gone, with all its readings"]
                continue
            key, held = zone_row
            rows = select(INTERVAL.c.opens, INTERVAL.c.deliveries).where(INTERVAL.c.zone == key)
            counts = {row.opens: row.deliveries for row in link.execute(rows)}
            problems[zone] = list(_zone_damages(link, key, held, counts))
            if held.closed_end <= published.get(zone, -2):
                problems[zone].append("the store is older than the ledger")
            if (gap := _noted_and_lost(link, notes.get(zone), key, held)) is not None:
                problems[zone].append(f"the last delivery, of the interval at {gap}, is gone")
    return problems


def back_up(place: str, target: Path) -> Path:
    """Copy a store's file as it is now; its writers need not stop. It is as secret as the readings.

    The size of the noise of a block of steps is not copied: what is published of the block could
    be undone with it.

    Args:
        place: As for `open_meters`.
        target: The copy; it must not exist.

    Returns:
        The copy.

    Raises:
        MeterError: The store is no file, or damaged, or the copy cannot be written.
    """
    path = file_of(place)
    if path is None:
        raise MeterError("the meter store is on a database server; copy it with pg_dump.")
    with Database(path, SCHEMA, create=False, read_only=True) as source:
        source.copy_to(target, without=[NOISE])
    for zone, problems in damages(str(target), {}).items():
        for problem in problems:
            target.unlink()
            raise MeterDamageError(
                f"the readings were not copied: {problem} in zone {zone!r}; run hushgrid check."
            )
    return target


def _zone_damages(
    link: Connection, key: int, held: HeldRoster, counts: dict[int, int]
) -> Iterator[str]:
    query = select(DELIVERY.c.opens, DELIVERY.c.number, DELIVERY.c.readings)
    query = query.where(DELIVERY.c.zone == key, DELIVERY.c.opens >= held.floor)
    numbers_of, interval = dict[int, list[int]](), OpenInterval(-1, held.roster)
    for opens, number, readings in link.execute(
        query.order_by(DELIVERY.c.opens, DELIVERY.c.number)
    ):
        if opens not in numbers_of:
            numbers_of[opens], interval = [], OpenInterval(opens, held.roster)
        numbers_of[opens].append(number)
        try:
            interval.load(Columns.unpack(readings))
        except HushgridError:
            yield f"delivery {number} of the interval at {opens} is damaged"
    for opens in sorted({*numbers_of, *counts}):
        numbers = numbers_of.get(opens, [])
        count = max(counts.get(opens, 0), *(n + 1 for n in numbers), 0) - len(numbers)
        if opens >= held.floor and count:
            yield f"{count} of the deliveries of the interval at {opens} are gone"
