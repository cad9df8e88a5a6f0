"""The way in: canonical readings to the houses of the zones, counted, durable on return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hushgrid.intake import Parsed, Readings
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
        self._place = {
            meter: (z, house)
            for z, zone in enumerate(self._zones)
            for house, meter in enumerate(zone.meters)
        }

    def take(self, parsed: Parsed) -> Receipt:
        """Put a parsed delivery; durable on return."""
        return Receipt(malformed=parsed.malformed) + self.put(parsed.readings)

    def put(self, readings: Readings) -> Receipt:
        """Put readings; durable on return."""
        nowhere = (-1, -1)
        places = np.array([self._place.get(name, nowhere) for name in readings.ids], np.int64)
        places = places.reshape(-1, 2)[readings.code]
        receipt = Receipt(unknown=int((places[:, 0] < 0).sum()))
        for z, zone in enumerate(self._zones):
            mine = places[:, 0] == z
            if not mine.any():
                continue
            house, wh = places[mine, 1], readings.wh[mine]
            outside = (wh < 0) | (wh > zone.scenario.zone.bound[house])
            counts = self._store.put(
                zone.id, house, readings.start[mine], readings.duration[mine], wh, marked=outside
            )
            receipt += _receipt(counts)
        return receipt


def _receipt(counts: Counts) -> Receipt:
    again = counts.duplicate + counts.conflicting
    return Receipt(counts.accepted, again, counts.late, counts.marked, 0, counts.malformed)
