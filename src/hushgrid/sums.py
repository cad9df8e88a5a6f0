"""Sums of losses: exact, and rounded once at the end, up.

A loss is a double; as a rational number it is exact, so the order of the losses, a restart of the
publisher and the program that adds them up make no difference to the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction


def sum_up(losses: Iterable[float]) -> float:
    """A sum that is never too small: exact, then rounded up if it was rounded at all."""
    values = list(losses)
    total = math.fsum(values)
    if math.isinf(total):
        return total
    rest = math.fsum([*values, -total])
    return math.nextafter(total, math.inf) if rest > 0 else total


def within(losses: Iterable[float], budget: float) -> bool:
    """Whether losses stay within a budget together, to the last digit.

    >>> within([0.5, 0.5], 1.0), within([0.1, 0.1, 0.1], 0.3)
    (True, False)
    """
    return math.fsum((*losses, -budget)) <= 0  # fsum rounds once, so the sign is exact


@dataclass(frozen=True, slots=True)
class Spent:
    """What has been lost so far.

    Attributes:
        finite: The exact sum of the finite losses.
        endless: Whether a loss was infinite: then no budget is enough.
    """

    finite: Fraction = Fraction()
    endless: bool = False

    def add(self, *losses: float) -> Spent:
        """The sum with more losses; each 0 or more, or infinite."""
        finite, endless = self.finite, self.endless
        for loss in losses:
            if math.isinf(loss):
                endless = True
            else:
                finite += Fraction(loss)
        return Spent(finite, endless)

    def fits(self, cost: float, budget: float | None) -> bool:
        """Whether one more loss stays within a budget, to the last digit; None is no limit.

        >>> Spent().add(0.5, 0.5, 0.5).fits(0.5, 2.0), Spent().add(0.1, 0.1).fits(0.1, 0.3)
        (True, False)
        """
        if budget is None:
            return True
        after = self.add(cost)
        return not after.endless and after.finite <= Fraction(budget)

    def exceeds(self, budget: float) -> bool:
        """Whether the sum, rounded to the nearest double, is above a budget.

        For a record whose publisher rounded as it added: a sum that `fits` does not exceed, and
        neither does one that was kept within the budget in floating point, rounded up or not.
        """
        return self.endless or float(self.finite) > budget

    def more(self, cost: float, budget: float) -> int:
        """How many more losses of `cost` > 0 fit."""
        if self.endless or math.isinf(cost):
            return 0
        return max(math.floor((Fraction(budget) - self.finite) / Fraction(cost)), 0)

    @property
    def total(self) -> float:
        """The sum as a double, rounded up."""
        if self.endless:
            return math.inf
        nearest = float(self.finite)
        return math.nextafter(nearest, math.inf) if nearest < self.finite else nearest

    def left(self, budget: float) -> float:
        """What a budget has left, rounded down; 0 where it is exceeded."""
        rest = Fraction(budget) - self.finite
        if self.endless or rest <= 0:
            return 0.0
        nearest = float(rest)
        return math.nextafter(nearest, 0.0) if nearest > rest else nearest
