"""Who is in which zone, as an engine joins it: every meter with its house, bound and interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushgrid.arrays import Int32s, Ints
from hushgrid.calibration.groups import grouped
from hushgrid.imputation import Expectations, cells
from hushgrid.live.deployment import ZoneService

if TYPE_CHECKING:
    import pyarrow as pa


LEAST, MOST = 64, 1 << 15  # houses of a segment


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The segments of one zone: the first is number `first` of all.

    `sizes` are their houses; `speakers` the number of one house of each: all houses of a segment
    are expected to consume the same. `bound` [Wh] is what each house's readings are cut at.
    """

    service: ZoneService
    first: int
    sizes: Ints
    speakers: Ints
    bound: Int32s
    expectations: Expectations  # of the speakers


@dataclass(frozen=True, slots=True, eq=False)
class BatchRoster:
    """All zones. `houses` has a row for each meter, `segments` one for each segment."""

    parts: tuple[Part, ...]
    width: int  # the most houses of a segment; house h is of segment h // width
    houses: pa.Table
    segments: pa.Table

    def expected(self, first: int, end: int) -> ImputedSums:
        """The public expectations of all intervals from `first` to `end` [epoch s]."""
        return ImputedSums(self.parts, first, end)


class ImputedSums:
    """What stands for missing readings, by segment and interval, and all houses' sum of it."""

    def __init__(self, parts: Sequence[Part], first: int, end: int) -> None:
        self._columns: list[tuple[Int32s, Ints, Ints]] = []
        self._sums: dict[tuple[str, int], int] = {}
        for part in parts:
            for opens, each in _steps(part, first, end):
                numbers = np.arange(part.first, part.first + len(each), dtype=np.int32)
                self._columns.append((numbers, np.full(len(each), opens), each))
                self._sums[part.service.id, opens] = int(part.sizes @ each)

    def total(self, zone: str, opens: int) -> int:
        """The sum over all houses of a zone [Wh]."""
        return self._sums[zone, opens]

    def table(self) -> pa.Table:
        """Columns segment, opens [epoch s], each [Wh a house]."""
        import pyarrow as pa

        names, kinds = ("segment", "opens", "each"), (pa.int32(), pa.int64(), pa.int64())
        joined = zip(*self._columns, strict=True) if self._columns else [[np.empty(0, int)]] * 3
        columns = [np.concatenate(some) for some in joined]
        return pa.table(
            {n: pa.array(c, kind) for n, c, kind in zip(names, columns, kinds, strict=True)}
        )


def _steps(part: Part, first: int, end: int) -> Iterator[tuple[int, Ints]]:
    begins, seconds = part.service.begins, part.service.seconds
    for opens in range(-(-max(first, begins) // seconds) * seconds, end, seconds):
        each = part.expectations.at((opens - begins) // seconds + 1)
        # laws end at the bounds, so that within a segment only the clamp can be lower
        yield opens, np.minimum(each, part.bound[part.speakers])


def cut_bounds(service: ZoneService) -> Int32s:
    """What readings are cut at: the contract's bounds, or the policy's clamp below them [Wh]."""
    scenario, clamp = service.scenario, service.policy.clamp
    if not clamp:
        return scenario.zone.bound
    return scenario.zone.cut(np.array(clamp, np.int64)[scenario.consumption.class_of]).bound


def roster_of(zones: Sequence[ZoneService]) -> BatchRoster:
    """The roster of some zones; a zone has its place among them as its number."""
    import pyarrow as pa

    groups = [_groups(service) for service in zones]
    width = _width([count for _, count in groups], [len(s.meters) for s in zones])
    parts, houses, first = list[Part](), list[pa.Table](), 0
    for service, (group, _) in zip(zones, groups, strict=True):
        order = np.argsort(group, kind="stable")
        begins = np.flatnonzero(np.diff(group[order], prepend=-1))
        within = np.arange(len(order)) - np.repeat(begins, np.diff([*begins, len(order)]))
        new = within % width == 0
        house = np.empty(len(order), np.int64)
        house[order] = (first - 1 + np.cumsum(new)) * width + within % width
        sizes = np.diff([*np.flatnonzero(new), len(order)])
        expectations = Expectations(service.scenario, order[new], private=service.learned.private)
        part = Part(service, first, sizes, order[new], cut_bounds(service), expectations)
        houses.append(_houses(len(parts), part, house))
        parts.append(part)
        first += len(sizes)
    every = pa.concat_tables(houses)
    if first * width < 1 << 31:  # narrow rows are joined faster
        kind = pa.field("house", pa.int32())
        every = every.cast(every.schema.set(every.schema.get_field_index("house"), kind))
    return BatchRoster(tuple(parts), width, every, _segments(parts))


def _groups(service: ZoneService) -> tuple[Int32s, int]:
    """Houses that are expected to consume the same: alike to every model, and of one class."""
    scenario = service.scenario
    labels = [np.ascontiguousarray(scenario.consumption.class_of, np.int32)]
    if not service.learned.private:
        labels += [cells(model) for model in scenario.models]
    return grouped(labels)


def _width(groups: Sequence[int], houses: Sequence[int]) -> int:
    """Places of a segment: about as many as a group has houses, so that bitmaps stay full."""
    usual = sum(houses) // max(sum(groups), 1)
    return min(max(1 << max(usual - 1, 0).bit_length(), LEAST), MOST)


def _houses(zone: int, part: Part, house: Ints) -> pa.Table:
    import pyarrow as pa

    n, service = len(part.bound), part.service
    return pa.table(
        {
            "meter_id": pa.array(service.meters, pa.string()),
            "zone": pa.array(np.full(n, zone, np.int32)),
            "house": pa.array(house),
            "bound": pa.array(part.bound, pa.int32()),
            "seconds": pa.array(np.full(n, service.seconds, np.int64)),
            "grace": pa.array(np.full(n, service.grace, np.int64)),
        }
    )


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
