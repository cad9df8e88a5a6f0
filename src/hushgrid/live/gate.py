"""The way in: canonical readings to the houses of the zones, counted, durable on return."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.intake import Parsed, Readings
from hushgrid.intake.names import NameIndex, Names
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
        return Receipt(*(a + b for a, b in zip(tuple(self), tuple(other), strict=True)))


class Gate:
    """Knows every meter of every zone, and puts what they say into the meter store."""

    def __init__(self, zones: Sequence[ZoneService], store: MeterStore) -> None:
        self._zones, self._store = tuple(zones), store
        self._index = NameIndex(Names.of(chain.from_iterable(zone.meters for zone in self._zones)))
        self._first = list(accumulate((len(zone.meters) for zone in self._zones), initial=0))

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
        receipt, rest = Receipt(), columns.place.size
        for zone, first, end in zip(self._zones, self._first, self._first[1:], strict=False):
            mine = columns.within(first, end)
            if mine.place.size:
                receipt += self._put(zone, mine)
                rest -= mine.place.size
        return receipt + Receipt(unknown=rest)

    def _put(self, zone: ZoneService, mine: _Placed) -> Receipt:
        outside = (mine.wh < 0) | (mine.wh > zone.scenario.zone.bound[mine.place])
        return _receipt(self._store.put(zone.id, *mine, marked=outside))


class _Placed(NamedTuple):
    """Readings of known meters: the place of each meter, then start, duration and Wh."""

    place: NDArray[np.int32]
    start: NDArray[np.int64]
    duration: NDArray[np.int32]
    wh: NDArray[np.int64]

    def within(self, first: int, end: int) -> _Placed:
        """Those with a place from `first` to before `end`, which is counted from `first` on."""
        mine = (self.place >= first) & (self.place < end)
        place, start, duration, wh = self
        if not mine.all():
            place, start, duration, wh = place[mine], start[mine], duration[mine], wh[mine]
        return _Placed(place - np.int32(first), start, duration, wh)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _receipt(counts: Counts) -> Receipt:
    again = counts.duplicate + counts.conflicting
    return Receipt(counts.accepted, again, counts.late, counts.marked, 0, counts.malformed)
