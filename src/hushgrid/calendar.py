"""Which time slot a step belongs to: steps are integers t = 1, 2, ..., slots repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Int32s
from hushgrid.checks import index_array
from hushgrid.errors import ModelError

STEPS_PER_DAY = 96


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Calendar:
    """A repeating pattern of slots; step t has slot `slots[(t - 1) mod len(slots)]`.

    >>> week = Calendar.week(weekday=[0, 1], weekend=[2, 2])
    >>> len(week.slots), week.slot(1), week.slot(11), week.slot(15)
    (14, 0, 2, 0)
    """

    slots: Int32s

    def __init__(self, slots: ArrayLike) -> None:
        given = index_array(slots, "calendar", ModelError)
        if given.ndim != 1 or given.size == 0:
            raise ModelError(
                f"calendar has shape {given.shape}; give a non-empty list of slot numbers."
            )
        if given.min() < 0:
            raise ModelError(f"calendar slot {given.min()} is negative; number slots from 0.")
        object.__setattr__(self, "slots", given)

    @classmethod
    def constant(cls) -> Calendar:
        """One slot for ever."""
        return cls(np.zeros(1, np.int32))

    @classmethod
    def week(cls, *, weekday: Sequence[int], weekend: Sequence[int]) -> Calendar:
        """Five days of one pattern, then two of another; step 1 opens a Monday."""
        if len(weekday) != len(weekend):
            raise ModelError(
                f"weekday has {len(weekday)} steps and weekend {len(weekend)};"
                " give days of one length."
            )
        return cls([*weekday] * 5 + [*weekend] * 2)

    def slot(self, t: int) -> int:
        """The slot of step t."""
        return int(self.slots[(t - 1) % len(self.slots)])

    def starting(self, offset: int) -> Calendar:
        """The same pattern seen from `offset` steps later."""
        return Calendar(np.roll(self.slots, -(offset % len(self.slots))))
