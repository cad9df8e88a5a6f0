"""The way in: canonical readings to the houses of the zones, counted, durable on return."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.intake import Parsed, Readings
from hushgrid.intake.names import NameIndex, Names
from hushgrid.kernels.meters import pick_houses
from hushgrid.live.deployment import ZoneService
from hushgrid.live.meters.ports import Counts, MeterStore


class Receipt(NamedTuple):
    """What became of the readings of one delivery; each is counted once, but for `clamped`.

    A repeated reading is a duplicate whether or not it agrees with the first, which stays.
    `clamped`: how many of the accepted lie outside 0..bound, so that they will be cut.
    """

    accepted: int = 0
    duplicate: int = 0
    late: int = 0
    clamped: int = 0
    unknown: int = 0
    malformed: int = 0

    def __add__(self, other: object) -> Receipt:
        if not isinstance(other, Receipt):
            return NotImplemented
        return Receipt(*map(add, self, other))


class Gate:
    """Knows every meter of every zone, and puts what they say into the meter store."""

    def __init__(self, zones: Sequence[ZoneService], store: MeterStore) -> None:
        self._zones, self._store = tuple(zones), store
        self._index = NameIndex(Names.of(chain.from_iterable(zone.meters for zone in self._zones)))
        self._first = list(accumulate((len(zone.meters) for zone in self._zones), initial=0))
        self._bounds = [
            np.ascontiguousarray(zone.scenario.zone.bound, np.int32) for zone in self._zones
        ]

    def take(self, *parsed: Parsed) -> Receipt:
        """Put what was parsed; durable on return."""
        malformed = sum(part.malformed for part in parsed)
        return Receipt(malformed=malformed) + self.put(*(part.readings for part in parsed))

    def put(self, *readings: Readings) -> Receipt:
        """Put readings, all of a zone at once; durable on return."""
        parts = [part for part in readings if len(part)]
        if not parts:
            return Receipt()
        columns = _Placed(
            _joined([self._index.find(part.names)[part.code] for part in parts]),
            _joined([part.start for part in parts]),
            _joined([part.duration for part in parts]),
            _joined([part.wh for part in parts]),
        )
        receipts, rest = [], columns.place.size
        for zone, first, bound in zip(self._zones, self._first, self._bounds, strict=False):
            mine, outside = columns.of_zone(first, bound)
            if mine.place.size:
                receipts.append(_receipt(self._store.put(zone.id, *mine, marked=outside)))
                rest -= mine.place.size
        return sum(receipts, Receipt(unknown=rest))


class _Placed(NamedTuple):
    """Readings of known meters: the place of each meter, then start, duration and Wh."""

    place: NDArray[np.int32]
    start: NDArray[np.int64]
    duration: NDArray[np.int32]
    wh: NDArray[np.int64]

    def of_zone(
        self, first: int, bound: NDArray[np.int32]
    ) -> tuple[_Placed, NDArray[np.bool_] | None]:
        """Those of a zone, places counted from `first` on; which are outside 0..bound, if any."""
        place, start, duration, wh = self
        house, outside = np.empty(place.size, np.int32), np.empty(place.size, np.bool_)
        many, cut = pick_houses(place, wh, first, bound, house, outside)
        if many < place.size:
            mine = house >= 0
            house, start, duration, wh = house[mine], start[mine], duration[mine], wh[mine]
            outside = outside[mine]
        return _Placed(house, start, duration, wh), outside if cut else None


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def _receipt(counts: Counts) -> Receipt:
    again = counts.duplicate + counts.conflicting
    return Receipt(counts.accepted, again, counts.late, counts.marked, 0, counts.malformed)
