"""True loads of closed intervals and who was missing, for the operator alone. In memory only, and
no longer than the readings themselves are kept."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid.grid import tally
from hushgrid.imputation import Expectations
from hushgrid.live.deployment import ZoneService
from hushgrid.live.meters.ports import Interval

KEPT = 400  # loads of a zone


class Sum(NamedTuple):
    """The load [Wh] of an interval, and how many meters were missing. Secret."""

    load: int
    missing: int


class ReadingSource(Protocol):
    """Where readings are looked at."""

    def peek(self, zone: str, start: int) -> Interval | None:
        """The readings of an interval; None where they cannot be had."""
        ...


class Loads:
    """Each load is added up once: a closed interval never changes. Any thread may call it."""

    def __init__(self, zones: Iterable[ZoneService], readings: ReadingSource | None) -> None:
        self._readings = readings
        self._zones = {zone.id: zone for zone in zones}
        self._expected = {
            zone: Expectations(one.scenario, private=one.learned.private)
            for zone, one in self._zones.items()
        }
        self._known: dict[str, dict[int, Sum]] = {zone: {} for zone in self._zones}
        self._mutex = threading.Lock()  # of what is known
        self._adding = threading.Lock()  # one at a time reads the store

    def of(self, zone: str, starts: Sequence[int], now: float) -> dict[int, Sum]:
        """The loads of these intervals of the present epoch, as far as readings are kept.

        A meter that is missing counts as it did for the release: with its public expectation.
        """
        service = self._zones[zone]
        since = max(service.begins, _oldest(service, now))
        with self._adding:
            for start in sorted(set(starts)):
                if start >= since and start not in self._known[zone]:
                    self._add(service, start)
        self.forget(now)
        with self._mutex:
            known = self._known[zone]
            return {start: known[start] for start in starts if start in known}

    def forget(self, now: float) -> None:
        """Drop what is as old as readings that are deleted."""
        with self._mutex:
            for zone, known in self._known.items():
                oldest = _oldest(self._zones[zone], now)
                for start in [start for start in known if start < oldest]:
                    del known[start]
                for start in sorted(known)[:-KEPT]:
                    del known[start]

    def _add(self, zone: ZoneService, start: int) -> None:
        found = None if self._readings is None else self._readings.peek(zone.id, start)
        bound = zone.scenario.zone.bound
        if found is None or found.wh.size != bound.size:
            return
        wh = found.wh
        if not found.present.all():
            step = (start - zone.begins) // zone.seconds + 1
            wh = np.where(found.present, wh, self._expected[zone.id].at(step))
        summed = Sum(tally(wh, bound).load, found.missing)
        with self._mutex:
            self._known[zone.id][start] = summed


def _oldest(zone: ZoneService, now: float) -> int:
    """Intervals that start before are purged, or will be at the next tick [UTC epoch s]."""
    return int(now) - zone.retention - zone.seconds + 1
