"""Readings and roster to whole Wh and counts by zone and interval, as ibis expressions.

    group_readings  one pass: readings grouped by segment, start and duration as they are written
    spans           from that alone: which intervals are sound, that is, hold one whole reading for
                    each house
    by_house        the others, house by house: repeated readings dropped, shorter ones added up
    totals          by zone and interval

A segment is a run of houses of one zone that the models do not distinguish. House h is number
h % width of segment h // width; width is a power of two. Only `totals` leaves the engine: it
contains nothing of a single house.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np

from hushgrid._numbers import Int32s, Ints
from hushgrid.belief.filter import Expectations, cells
from hushgrid.errors import BatchError
from hushgrid.files.deployment import ZoneService
from hushgrid.intake.readings import MAX_WH
from hushgrid.mechanism.support import grouped
from hushgrid.model.zone import Zone

if TYPE_CHECKING:
    import pyarrow as pa

LEAST, MOST = 64, 1 << 15  # houses of a segment


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The segments of one zone.

    Attributes:
        service: The zone.
        first: Number of its first segment among all.
        sizes: Houses of each segment.
        speakers: One house of each segment; all houses of a segment are expected to consume the
            same.
        cut: The zone that readings are clamped to.
        expectations: Public expectations of `speakers`.
    """

    service: ZoneService
    first: int
    sizes: Ints
    speakers: Ints
    cut: Zone
    expectations: Expectations  # of the speakers


@dataclass(frozen=True, slots=True, eq=False)
class BatchRoster:
    """The houses of all zones.

    Attributes:
        parts: The segments of each zone.
        width: The most houses of a segment; house h is of segment h // width.
        houses: A row for each meter. Where a house has a register for each direction, `register`
            is 1 for that of energy taken and 2 for that of energy fed in, and 0 for other houses.
        segments: A row for each segment.
    """

    parts: tuple[Part, ...]
    width: int  # the most houses of a segment; house h is of segment h // width
    houses: pa.Table
    segments: pa.Table

    def expected(self, first: int, end: int) -> ImputedSums:
        """Public expectations of all intervals from `first` to before `end` [UTC s]."""
        return ImputedSums(self.parts, first, end)


class ImputedSums:
    """Imputed values of missing readings by segment and interval, and their sum over all houses.

    Args:
        parts: The segments of each zone.
        first: Start of the first interval [UTC s].
        end: Intervals start before it [UTC s].
    """

    def __init__(self, parts: Sequence[Part], first: int, end: int) -> None:
        self._columns: list[tuple[Int32s, Ints, Ints]] = []
        self._sums: dict[tuple[str, int], int] = {}
        for part in parts:
            for opens, imputed in _steps(part, first, end):
                numbers = np.arange(part.first, part.first + len(imputed), dtype=np.int32)
                self._columns.append((numbers, np.full(len(imputed), opens), imputed))
                self._sums[part.service.id, opens] = int(part.sizes @ imputed)

    def total(self, zone: str, opens: int) -> int:
        """The sum over all houses of a zone [Wh]."""
        return self._sums[zone, opens]

    def table(self) -> pa.Table:
        """Columns segment, opens [UTC s], imputed [Wh a house]."""
        import pyarrow as pa

        names, kinds = ("segment", "opens", "imputed"), (pa.int32(), pa.int64(), pa.int64())
        joined = zip(*self._columns, strict=True) if self._columns else [[np.empty(0, int)]] * 3
        columns = [np.concatenate(chunk) for chunk in joined]
        return pa.table(
            {n: pa.array(c, kind) for n, c, kind in zip(names, columns, kinds, strict=True)}
        )


def _steps(part: Part, first: int, end: int) -> Iterator[tuple[int, Ints]]:
    begins, seconds = part.service.begins, part.service.seconds
    for opens in range(-(-max(first, begins) // seconds) * seconds, end, seconds):
        expected = part.expectations.at((opens - begins) // seconds + 1)
        # laws end at the bounds, so that within a segment only the clamp can be lower
        low = part.service.scenario.zone.low_ends(part.cut)[part.speakers]
        yield opens, np.clip(expected - low, 0, part.cut.bound[part.speakers])


def cut_zone(service: ZoneService) -> Zone:
    """The zone that readings are clamped to: the contract's, or that of the policy's clamp.

    Args:
        service: The zone.

    Returns:
        Bounds and export limits of each house.
    """
    scenario, clamp = service.scenario, service.policy.clamp
    if not clamp:
        return scenario.zone
    low, at = scenario.consumption.clamp_ends(clamp)
    return scenario.zone.cut(at, low)


def roster_of(zones: Sequence[ZoneService]) -> BatchRoster:
    """The roster of some zones.

    Args:
        zones: The zones; a zone's number is its place here.

    Returns:
        Tables of houses and segments.
    """
    import pyarrow as pa

    groups = [_groups(service) for service in zones]
    width = _width([count for _, count in groups], [len(s.meters) for s in zones])
    parts, houses, first = list[Part](), list[pa.Table](), 0
    split = any(service.registers for service in zones)
    for service, (group, _) in zip(zones, groups, strict=True):
        order = np.argsort(group, kind="stable")
        begins = np.flatnonzero(np.diff(group[order], prepend=-1))
        within = np.arange(len(order)) - np.repeat(begins, np.diff([*begins, len(order)]))
        new = within % width == 0
        house = np.empty(len(order), np.int64)
        house[order] = (first - 1 + np.cumsum(new)) * width + within % width
        sizes = np.diff([*np.flatnonzero(new), len(order)])
        expectations = Expectations(service.scenario, order[new], usual=service.policy.usual)
        part = Part(service, first, sizes, order[new], cut_zone(service), expectations)
        houses.append(_houses(len(parts), part, house, split=split))
        parts.append(part)
        first += len(sizes)
    house_table = pa.concat_tables(houses)
    if first * width < 1 << 31:  # narrow rows are joined faster
        kind = pa.field("house", pa.int32())
        house_table = house_table.cast(
            house_table.schema.set(house_table.schema.get_field_index("house"), kind)
        )
    return BatchRoster(tuple(parts), width, house_table, _segments(parts))


def _groups(service: ZoneService) -> tuple[Int32s, int]:
    """Groups of houses that are expected to consume the same: equal in all models and class."""
    scenario = service.scenario
    labels = [np.ascontiguousarray(scenario.consumption.class_of, np.int32)]
    if not service.learned.private:
        labels += [cells(model) for model in scenario.models]
    return grouped(labels)


def _width(groups: Sequence[int], houses: Sequence[int]) -> int:
    """Houses of a segment: about as many as a group has, so that bitmaps stay full."""
    usual = sum(houses) // max(sum(groups), 1)
    return min(max(1 << max(usual - 1, 0).bit_length(), LEAST), MOST)


def _houses(zone: int, part: Part, house: Ints, *, split: bool) -> pa.Table:
    import pyarrow as pa

    service = part.service
    n, registers = len(service.all_meters), service.registers
    places = np.append(np.arange(len(house)), [register.house for register in registers])
    places = places.astype(int)
    columns = {
        "meter_id": pa.array(service.all_meters, pa.string()),
        "zone": pa.array(np.full(n, zone, np.int32)),
        "house": pa.array(house[places]),
        "bound": pa.array(part.cut.bound[places], pa.int32()),
        "export": pa.array(part.cut.export[places], pa.int32()),
        "seconds": pa.array(np.full(n, service.seconds, np.int64)),
        "grace": pa.array(np.full(n, service.grace, np.int64)),
    }
    if split:
        several = np.bincount(places, minlength=len(house))[places]  # registers of the same house
        sign = np.append(np.ones(len(house)), [register.sign for register in registers])
        columns["register"] = pa.array(np.where(several > 1, np.arange(n) + 1, 0), pa.int32())
        columns["registers"] = pa.array(several, pa.int32())
        columns["sign"] = pa.array(sign, pa.int32())
    return pa.table(columns)


def _segments(parts: Sequence[Part]) -> pa.Table:
    import pyarrow as pa

    counts = [len(part.sizes) for part in parts]
    return pa.table(
        {
            "segment": pa.array(np.arange(sum(counts), dtype=np.int32)),
            "zone": pa.array(np.repeat(np.arange(len(parts), dtype=np.int32), counts)),
            "seconds": pa.array(np.repeat([part.service.seconds for part in parts], counts)),
        }
    )


IbisTable = Any  # ibis names its types for people; its operators are made at run time
Column = Any
Distinct = Callable[[Column], Column]

RECEIVED = "received_utc"
COLUMNS = ("meter_id", "start_utc", "duration_s", "wh")
SUMS = (
    "rows", "broken", "load", "present", "clamped", "good", "accepted", "late", "malformed",
    "expected",
)  # fmt: skip
_LONGEST = 1 << 17  # [s] no duration is that long: orders (received, duration) by one number
_PARTIAL = 1 << 60  # beyond every such number
_LOW = (1 << 32) - 1


def canonical(table: IbisTable, name: str) -> IbisTable:
    """The columns of readings.

    Args:
        table: A table of the engine.
        name: What errors call it.

    Returns:
        The table with these columns alone; Wh as whole numbers, meter ids as text.

    Raises:
        BatchError: A column is missing or of another type.
    """
    schema = table.schema()
    kinds: dict[str, tuple[Callable[[Any], bool], str]] = {
        "meter_id": (lambda t: t.is_string() or t.is_integer(), "text"),
        "start_utc": (_is_time, "timestamps, or Unix seconds"),
        "duration_s": (lambda t: t.is_integer(), "whole seconds"),
        "wh": (
            lambda t: (t.is_integer() and not t.is_uint64()) or t.is_floating(),
            "Wh as integers or floats",
        ),
        RECEIVED: (_is_time, "timestamps, or Unix seconds"),
    }
    for column, (fits, form) in kinds.items():
        if column not in schema:
            if column == RECEIVED:
                continue
            raise BatchError(f"{name} has no column {column}; give {', '.join(COLUMNS)}.")
        if not fits(schema[column]):
            raise BatchError(f"column {column} of {name} is {schema[column]}; give {form}.")
    columns = table.select(*(column for column in kinds if column in schema))
    if schema["wh"].is_floating():
        columns = columns.mutate(wh=_rounded(columns.wh))
    return (
        columns
        if schema["meter_id"].is_string()
        else columns.mutate(meter_id=_text(columns.meter_id))
    )


def _rounded(wh: Column) -> Column:
    """Floats as whole Wh, halves to even; null where they are no number within 10^12.

    Engines round halves in different ways, so the rounding is written out.
    """
    wh = wh.cast("float64")
    usable = (wh.abs() <= MAX_WH + 0.5) & ~wh.isnan()
    size = ibis.ifelse(usable, wh.abs(), 0.0)
    integer = size.floor().cast("int64")
    part = size - integer
    up = (part > 0.5) | ((part == 0.5) & (integer % 2 == 1))
    integer = integer + up.cast("int64")
    return ibis.ifelse(usable, ibis.ifelse(wh < 0, -integer, integer), ibis.null("int64"))


def joined(tables: list[IbisTable]) -> IbisTable:
    """The union of tables of readings, with columns of common types.

    Args:
        tables: One or more tables.

    Returns:
        One table.
    """
    if len(tables) == 1:
        return tables[0]
    names = [name for name in (*COLUMNS, RECEIVED) if any(name in t.columns for t in tables)]
    kinds = {name: _common([t[name].type() for t in tables if name in t.columns]) for name in names}
    return ibis.union(
        *(
            table.select(**{name: _as(table, name, kind) for name, kind in kinds.items()})
            for table in tables
        )
    )


def _common(kinds: list[Any]) -> str:
    if kinds[0].is_string():
        return "string"
    return "int64" if all(kind.is_integer() for kind in kinds) else "timestamp('UTC')"


def _as(table: IbisTable, name: str, kind: str) -> Column:
    if name not in table.columns:
        return ibis.null(kind)
    column = table[name]
    if kind.startswith("timestamp") and column.type().is_integer():
        return column.as_timestamp("s").cast(kind)
    return column.cast(kind)


def within(readings: IbisTable, first: int, end: int) -> IbisTable:
    """Readings of a time span that have a value.

    Args:
        readings: A table of readings.
        first: Earliest start [UTC s].
        end: Readings start before it [UTC s].

    Returns:
        The table, filtered.
    """
    start = readings.start_utc
    return readings.filter(
        start >= _moment(start, first), start < _moment(start, end), readings.wh.notnull()
    )


def group_readings(
    readings: IbisTable, roster: IbisTable, width: int, distinct: Distinct
) -> IbisTable:
    """Readings grouped by segment, start and duration as they are written.

    No time is computed here, row by row: there are few starts and durations. Readings of unknown
    meters have no segment.

    Args:
        readings: A table of readings.
        roster: The table of houses.
        width: The most houses of a segment.
        distinct: Counts the distinct houses of a group, by their numbers below `width`.

    Returns:
        A row for each group: readings, load [Wh], clamped readings, houses; where houses have a
        register for each direction also `two`, the readings of such houses.
    """
    rows = readings.left_join(roster, "meter_id")
    rows = rows.mutate(segment=_segment(rows.house, width))
    keys = ["segment", "start_utc", "duration_s"]
    if RECEIVED in rows.columns:
        rows = rows.mutate(came_late=_late(rows))
        keys.append("came_late")
    else:
        rows = rows.mutate(came_late=ibis.literal(False))
    two = {"two": _many(rows.register > 0)} if "register" in roster.columns else {}
    groups = rows.group_by(keys).agg(
        **two,
        rows=rows.count(),
        load=_clipped(rows).sum().cast("int64"),
        clamped=_many(rows.wh > rows.bound - rows.export),
        houses=distinct(rows.house & (width - 1)).cast("int64"),
    )
    return groups if "came_late" in keys else groups.mutate(came_late=ibis.literal(False))


def spans(groups: IbisTable, segments: IbisTable) -> IbisTable:
    """Groups added up by segment and interval.

    Args:
        groups: The result of `group_readings`.
        segments: The table of segments.

    Returns:
        Counts for each segment and interval, with sums where all its readings are sound. Readings
        of unknown meters are a row without zone.
    """
    rows = groups.left_join(segments, "segment")
    rows = rows.mutate(start=seconds_of(rows.start_utc), duration=_wide(rows.duration_s))
    rows = rows.mutate(
        opens=rows.start - rows.start % rows.seconds,
        good=_fits(rows.start, rows.duration, rows.seconds) & _is_whole(rows.start_utc),
    )
    timely = rows.good & ~rows.came_late
    odd = (rows.duration != rows.seconds) | (rows.rows != rows.houses)
    if "two" in rows.columns:  # both registers are needed
        odd |= rows.two > 0
    rows = rows.mutate(
        good=timely,
        late=rows.good & rows.came_late,
        bad=~rows.good,
        broken=timely & odd,
    )
    sums = rows.group_by("zone", "segment", "opens").agg(
        good=_sum(rows.rows, rows.good),
        late=_sum(rows.rows, rows.late),
        malformed=_sum(rows.rows, rows.bad),
        rows=rows.rows.sum().cast("int64"),
        broken=_many(rows.broken),
        **{name: _sum(rows[name], rows.good) for name in ("load", "clamped")},
    )
    sound = sums.broken == 0
    return sums.mutate(
        broken=ibis.least(sums.broken, 1),
        accepted=_if(sound, sums.good),
        present=_if(sound, sums.good),
        **{name: _if(sound, sums[name]) for name in ("load", "clamped")},
    )


def by_house(readings: IbisTable, roster: IbisTable, width: int, by_span: IbisTable) -> IbisTable:
    """Sums by segment and interval, house by house, for the intervals that are not sound.

    Of readings for one house and time the first received is kept, of those received together the
    smallest; of durations for one house and interval one that covers it (a short reading keeps no
    whole one out), then that of the first received, then the longest.

    Args:
        readings: A table of readings.
        roster: The table of houses.
        width: The most houses of a segment.
        by_span: The result of `spans`.

    Returns:
        Load [Wh] and counts for each segment and interval.
    """
    rows = readings.inner_join(roster, "meter_id")
    rows = rows.mutate(
        start=seconds_of(rows.start_utc), duration=_wide(rows.duration_s), wh=_wide(rows.wh)
    )
    rows = rows.mutate(
        opens=rows.start - rows.start % rows.seconds, segment=_segment(rows.house, width)
    )
    if RECEIVED in rows.columns:
        late, arrival = _late(rows), seconds_of(rows[RECEIVED]).fill_null(0)
    else:
        late, arrival = ibis.literal(False), ibis.literal(0, "int64")
    rows = rows.mutate(arrival=arrival, late=late).filter(
        lambda r: _fits(r.start, r.duration, r.seconds) & _is_whole(r.start_utc) & ~r.late
    )
    broken = by_span.filter(by_span.broken > 0).select("segment", "opens")
    rows = rows.semi_join(broken, ["segment", "opens"])
    house = ["zone", "segment", "house", "opens", "seconds", "bound", "export"]
    house_keys, split = house, "register" in rows.columns
    further = ["register", "registers", "sign"] if split else []  # until they are netted
    house = [*house_keys, *further]
    if RECEIVED in rows.columns:
        rows = rows.group_by(*house, "start", "duration", "arrival").agg(wh=rows.wh.min())
        pieces = rows.group_by(*house, "start", "duration").agg(
            wh=rows.wh.argmin(rows.arrival), arrival=rows.arrival.min()
        )
    else:
        pieces = rows.group_by(*house, "start", "duration").agg(
            wh=rows.wh.min(), arrival=rows.arrival.min()
        )
    # halves of 32 bits: no sum of pieces leaves 64 bits
    kinds = pieces.group_by(*house, "duration").agg(
        pieces=pieces.count(),
        high=(pieces.wh >> 32).sum().cast("int64"),
        low=(pieces.wh & _LOW).sum().cast("int64"),
        arrival=pieces.arrival.min(),
    )
    covers = kinds.pieces * kinds.duration == kinds.seconds
    order = kinds.arrival * _LONGEST - kinds.duration
    kinds = kinds.mutate(order=order + ibis.ifelse(covers, 0, _PARTIAL))
    houses = kinds.group_by(*house).agg(
        **{n: kinds[n].argmin(kinds.order) for n in ("pieces", "duration", "high", "low")}
    )
    houses = houses.mutate(complete=houses.pieces * houses.duration == houses.seconds)
    if split:
        sums = houses.group_by(*house_keys).agg(
            pieces=houses.pieces.sum().cast("int64"),
            high=(houses.high * houses.sign).sum().cast("int64"),
            low=(houses.low * houses.sign).sum().cast("int64"),
            complete=_many(houses.complete),
            registers=houses.registers.max(),
        )
        houses = sums.mutate(complete=sums.complete == sums.registers)
    houses = houses.mutate(low=houses.low + houses.export)  # from here on as offset readings
    houses = houses.mutate(
        high=houses.high + (houses.low >> 32),
        low=houses.low & _LOW,
    )
    wh = ibis.cases(
        (houses.high < 0, ibis.literal(0, "int64")),
        (houses.high > 0, houses.bound.cast("int64")),
        else_=ibis.least(houses.low, houses.bound.cast("int64")),
    )
    above = (houses.high > 0) | ((houses.high == 0) & (houses.low > houses.bound))
    return houses.group_by("zone", "segment", "opens").agg(
        load=_sum(wh, houses.complete),
        present=houses.count(where=houses.complete),
        clamped=houses.count(where=houses.complete & above),
        accepted=houses.pieces.sum().cast("int64"),
    )


def totals(by_span: IbisTable, more: IbisTable | None, expected: IbisTable) -> IbisTable:
    """Sums by zone and interval.

    Args:
        by_span: The result of `spans`.
        more: The result of `by_house`, where an interval is not sound.
        expected: The table of `ImputedSums`.

    Returns:
        `SUMS` for each zone and interval; `expected` [Wh] is the imputed value of the houses
        present.
    """
    keys = ("zone", "segment", "opens")
    sums = SUMS[:-1]
    rows = by_span.select(*keys, *(by_span[name].cast("int64") for name in sums))
    if more is not None:
        none = {name: ibis.literal(0, "int64") for name in sums if name not in more.columns}
        more = more.mutate(**none)
        rows = ibis.union(rows, more.select(*keys, *(more[name].cast("int64") for name in sums)))
    rows = rows.left_join(expected, ["segment", "opens"])
    rows = rows.mutate(expected=rows.present * rows.imputed.fill_null(0))
    return rows.group_by("zone", "opens").agg(
        **{name: rows[name].sum().cast("int64") for name in SUMS}
    )


def seconds_of(column: Column) -> Column:
    """Unix seconds of a time, without fractions of a second.

    Args:
        column: Timestamps or Unix seconds.

    Returns:
        64-bit integers.
    """
    if column.type().is_integer():
        return column.cast("int64")
    return column.truncate("s").epoch_seconds().cast("int64")


def _is_whole(column: Column) -> Column:
    """Whether a time is a whole second."""
    return ibis.literal(True) if column.type().is_integer() else column == column.truncate("s")


def _segment(house: Column, width: int) -> Column:
    return (house >> (width.bit_length() - 1)).cast("int32")


def _moment(column: Column, seconds: int) -> Any:
    if column.type().is_integer():
        return ibis.literal(seconds, "int64")
    zone = None if column.type().timezone is None else UTC
    when = datetime.fromtimestamp(seconds, UTC)
    return ibis.literal(when if zone else when.replace(tzinfo=None), column.type())


def _fits(start: Column, duration: Column, seconds: Column) -> Column:
    """Whether a reading is inside one interval, at a multiple of its own duration."""
    length = ibis.greatest(duration, 1)  # engines may divide before they look
    fits = (duration >= 1) & (seconds % length == 0) & (start % length == 0)
    return fits.fill_null(False)


def _late(rows: IbisTable) -> Column:
    """Whether a reading came after its interval was closed; one without a time did not."""
    start, arrival = seconds_of(rows.start_utc), seconds_of(rows[RECEIVED])
    closes = start - start % rows.seconds + rows.seconds + rows.grace
    return (arrival > closes).fill_null(False)


def _clipped(rows: IbisTable) -> Column:
    """Offset Wh, clamped; 0 for unknown meters where a sum might need more than 64 bits."""
    wh, export, high = rows.wh, rows.export, rows.bound - rows.export
    if wh.type().nbytes > 4:
        export, high = export.fill_null(0), high.fill_null(0)
    return ibis.least(ibis.greatest(wh, -export), high) + export


def _sum(column: Column, where: Column) -> Column:
    return column.sum(where=where).fill_null(0).cast("int64")


def _many(true: Column) -> Column:
    """How many are true; a sum, since engines filter aggregates slowly."""
    return true.cast("int32").sum().fill_null(0).cast("int64")


def _if(sound: Column, value: Column) -> Column:
    return ibis.ifelse(sound, value, 0)


def _wide(column: Column) -> Column:
    return column.cast("int64")


def _text(column: Column) -> Column:
    return column.cast("string")


def _is_time(kind: Any) -> bool:
    return bool(kind.is_timestamp() or (kind.is_integer() and not kind.is_uint64()))
