"""The public load shape: how much homes use by hour, day and month, and how they differ.

The numbers are round and of our own; no home was measured for them. Whatever looks ahead without a
model draws from the shape: the planner, `hushgrid check`, simulated meters, the first estimate. No
noise does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Floats, float_array, index_array, is_real, real
from hushgrid.errors import ConsumptionError
from hushgrid.model.laws import LogNormal

HOUR = 3600
WEEK = 7 * 24 * HOUR
_MONTH_DAYS = np.array([31, 28.25, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@dataclass(frozen=True, slots=True)
class LoadShape:
    """A typical home's load, relative to its mean over a year, and the spread around it.

    Only the ratios within `workday` and `weekend` together, and within `months`, count.

    Attributes:
        workday: Load in each local hour from Monday to Friday, from midnight on, (24,).
        weekend: The same on Saturday and Sunday, (24,).
        months: Load in each month from January on, (12,).
        homes: Standard deviation of the logarithm of a home's mean, between homes.
        readings: Standard deviation of the logarithm of a reading, within a home.

    >>> shape = LoadShape()
    >>> shape.relative([0, 18 * HOUR], [1, 7]).round(2)
    array([1.12, 1.14])
    """

    workday: tuple[float, ...] = (
        *(0.75, 0.65, 0.6, 0.6, 0.6, 0.6, 0.7, 0.95, 1.0, 0.95, 0.95, 0.95),
        *(0.95, 0.95, 0.95, 0.95, 1.1, 1.3, 1.5, 1.5, 1.45, 1.35, 1.15, 0.9),
    )
    weekend: tuple[float, ...] = (
        *(0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.7, 0.9, 1.05, 1.15, 1.2),
        *(1.25, 1.2, 1.15, 1.15, 1.2, 1.35, 1.5, 1.5, 1.4, 1.3, 1.15, 0.95),
    )
    months: tuple[float, ...] = (
        *(1.3, 1.25, 1.1, 1.0, 0.9, 0.85, 0.8, 0.8, 0.85, 0.95, 1.05, 1.15),
    )
    homes: float = 0.6
    readings: float = 0.8

    def __post_init__(self) -> None:
        for name, size in (("workday", 24), ("weekend", 24), ("months", 12)):
            _check_numbers(name, getattr(self, name), size)
            object.__setattr__(self, name, tuple(float(number) for number in getattr(self, name)))
        for name in ("homes", "readings"):
            spread = getattr(self, name)
            if not (is_real(spread) and 0 < spread <= 3):
                raise ConsumptionError(
                    f"load shape {name} is {spread}; give a number above 0 and at most 3.",
                    fields=(name,),
                )

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of any home's reading."""
        return math.hypot(self.homes, self.readings)

    def week(self, seconds: ArrayLike) -> Floats:
        """The load within a week of an average month, relative to the mean of that week.

        Linear between the middles of hours.

        Args:
            seconds: Local seconds since Monday 00:00, any shape; beyond a week they repeat.

        Returns:
            Factors of mean 1 over a week, in the shape of `seconds`.
        """
        hours = np.array(self.workday * 5 + self.weekend * 2)
        middles = np.arange(hours.size) * HOUR + HOUR / 2
        at = float_array(seconds, "seconds of the week", ConsumptionError)
        return np.asarray(np.interp(at, middles, hours, period=WEEK) / hours.mean())

    def of_day(self, place: float, weekend: bool) -> float:
        """The load at a time of day, relative to the mean over a week.

        Args:
            place: The time as a share of the day.
            weekend: Whether it is one of the weekend, such as a Saturday; else it is as a Tuesday.

        Returns:
            The factor.
        """
        return float(self.week(((5 if weekend else 1) + place) * 24 * HOUR))

    def season(self, months: ArrayLike) -> Floats:
        """The level of months, relative to the mean over a year.

        Args:
            months: 1 to 12, any shape.

        Returns:
            Factors of mean 1 over the days of a year, in the shape of `months`.
        """
        number = index_array(months, "months", ConsumptionError)
        outside = (number < 1) | (number > 12)
        if outside.any():
            raise ConsumptionError(f"month is {number[outside].flat[0]}; give 1 to 12.")
        levels = np.array(self.months)
        return np.asarray(levels[number - 1] / np.average(levels, weights=_MONTH_DAYS))

    def relative(self, seconds: ArrayLike, months: ArrayLike) -> Floats:
        """The load of a typical home relative to its mean over a year.

        Args:
            seconds: Local seconds since Monday 00:00, in the middle of an interval.
            months: Month of each, 1 to 12.

        Returns:
            Factors of mean 1 over a year, in the common shape.
        """
        return np.asarray(self.week(seconds) * self.season(months))

    def law(self, mean: float, bound: int) -> LogNormal:
        """The law of one reading of a home about which nothing is known.

        Args:
            mean: Mean of all homes in the interval [Wh]: `usual` times `relative`.
            bound: The home's bound [Wh].

        Returns:
            The law on 0..bound.
        """
        if not (is_real(mean) and mean > 0):
            raise ConsumptionError(f"mean reading is {mean} Wh; give a number above 0.")
        return LogNormal(float(mean) * math.exp(-(self.spread**2) / 2), self.spread, bound)


def shape_fields(shape: LoadShape) -> dict[str, Any]:
    """A load shape under the keys of its file, for digests.

    Args:
        shape: The shape.

    Returns:
        Key to number, or to a list of numbers.
    """
    values = {field.name: getattr(shape, field.name) for field in fields(shape)}
    return {
        key: [real(number) for number in value] if isinstance(value, tuple) else real(value)
        for key, value in values.items()
    }


def _check_numbers(name: str, numbers: Sequence[float], size: int) -> None:
    sound = isinstance(numbers, (tuple, list)) and len(numbers) == size
    if not sound or not all(is_real(number) and number > 0 for number in numbers):
        raise ConsumptionError(
            f"load shape {name} is not {size} numbers above 0; give one for each"
            f" {'month' if name == 'months' else 'hour'}.",
            fields=(name,),
        )
