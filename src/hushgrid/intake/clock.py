"""A column of written times to UTC, the hour that clocks repeat included.

In the hour that is shown twice at the end of daylight saving, a time without an offset has two
instants. A meter reports it twice, so the first time a meter reports it in an input is taken as the
earlier instant and any further one as the later. A meter that reports it once only is taken to have
missed the later; who cannot live with that guess writes offsets, which are always exact.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np

from hushgrid.arrays import Ints
from hushgrid.intake.faults import FAULTS_END, Fault
from hushgrid.intake.times import Moment
from hushgrid.intake.zones import Instants

Written = TypeVar("Written", bound=Hashable)

_REMEMBERED = 1 << 16  # times written alike are read once


class TimeReader(Generic[Written]):
    """Reads the times of one input, row by row in its order.

    >>> from hushgrid.intake.times import read_iso
    >>> from hushgrid.intake.zones import local_instants
    >>> clock = Clock(read_iso, local_instants("Europe/London"))
    >>> twice = ["2013-10-27 01:30", "2013-10-27 01:30"]
    >>> clock.instants(twice, ["a"], np.array([0, 0])).tolist()
    [1382833800, 1382837400]
    """

    def __init__(self, read: Callable[[Written], Moment | Fault], instants: Instants) -> None:
        self._read, self._instants = read, instants
        self._known: dict[Written, int] = {}
        self._later: dict[Written, int] = {}
        self._reported: set[tuple[str, int]] = set()

    def instants(self, times: Sequence[Written], ids: Sequence[str], code: Ints) -> Ints:
        """Seconds UTC, or a `Fault`, for each time; `ids[code]` is the meter of each."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
            self._later.clear()
        for time in set(times) - self._known.keys():
            self._known[time] = self._resolved(time)
        start = np.fromiter(map(self._known.__getitem__, times), np.int64, len(times))
        if self._later:
            self._tell_apart(times, ids, code, start)
        return start

    def _resolved(self, time: Written) -> int:
        moment = self._read(time)
        if isinstance(moment, Fault):
            return moment
        if moment.offset is not None:
            return moment.wall - moment.offset
        instants = self._instants(moment.wall)
        if not instants:
            return Fault.TIME_GAP
        if len(instants) == 2:
            self._later[time] = instants[1]
        return instants[0]

    def _tell_apart(
        self, times: Sequence[Written], ids: Sequence[str], code: Ints, start: Ints
    ) -> None:
        for row, time in enumerate(times):
            if time not in self._later or code[row] < FAULTS_END:
                continue
            report = (ids[code[row]], int(start[row]))
            if report in self._reported:
                start[row] = self._later[time]
            self._reported.add(report)
