"""f(x | s, slot, past published rates): the public law of a reading (paper II-A), and its digests.

Houses share density classes; a class has one law for absent and one for present in every slot.

`LoadShape` is what homes use where no model says it: by hour, day and month, and how they differ.
Its numbers are round and of our own; no home was measured for them. Whatever looks ahead without a
model draws from it: the planner, `hushgrid check`, simulated meters, the first estimate. No noise
does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import (
    Floats,
    Int32s,
    Ints,
    array_digest,
    brief,
    canonical_digest,
    float_array,
    index_array,
    is_real,
    real,
    unlike,
)
from hushgrid.errors import ConsumptionError
from hushgrid.model.laws import (
    ClampAt,
    Law,
    LogNormal,
    clamp_ends,
    law_fields,
)
from hushgrid.model.occupancy import Calendar

MONTHS = 12


@dataclass(frozen=True, slots=True)
class Elasticity:
    """Reaction of demand to the last published rate: readings times (rate/reference)^-exponent.

    Attributes:
        reference: Rate at which the factor is 1 [currency/kWh], above 0.
        exponent: Elasticity, 0 or more.
        low: Smallest factor, above 0 and at most 1.
        high: Largest factor, 1 or more; also the factor at a rate of 0.
    """

    reference: float
    exponent: float
    low: float = 0.5
    high: float = 1.5

    def __post_init__(self) -> None:
        if not (is_real(self.reference) and self.reference > 0):
            raise ConsumptionError(
                f"elasticity reference is {self.reference}; give a positive rate.",
                fields=("reference",),
            )
        if not (is_real(self.exponent) and self.exponent >= 0):
            raise ConsumptionError(
                f"elasticity exponent is {self.exponent}; give 0 or more.", fields=("exponent",)
            )
        if not 0 < self.low <= 1 <= self.high < math.inf:
            raise ConsumptionError(
                f"elasticity limits are {self.low}..{self.high}; give limits around 1, above 0.",
                fields=("high",) if 0 < self.low <= 1 else ("low",),
            )

    def factor(self, rates: Sequence[float]) -> float:
        """The factor of readings after these published rates; 1 before the first.

        >>> Elasticity(reference=100.0, exponent=0.5).factor([400.0])
        0.5
        """
        if not rates or self.exponent == 0:
            return 1.0
        if rates[-1] <= 0:
            return self.high
        try:
            factor = (rates[-1] / self.reference) ** -self.exponent
        except OverflowError:
            factor = self.high
        return float(min(max(factor, self.low), self.high))


@dataclass(frozen=True, slots=True, eq=False)
class Consumption:
    """Laws of readings by slot, density class and occupancy.

    Attributes:
        laws: The laws.
        absent: Number into `laws` for each slot and class, (slots, classes), while absent.
        present: The same while present.
        class_of: Density class of each house, (N,).
        calendar: Slot of each step. Before laws are laid over time: a pattern of one step, a day, a
            week, or a day of each month from January on.
        elasticity: Reaction of demand to rates, or None.
        shape: The public load shape that the laws follow; None: laws of their own.
        digest: SHA-256 (hex) of all of it.

    >>> from hushgrid.model.laws import Uniform
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=[0, 0])
    >>> f.law(1, 0, occupied=True)
    Uniform(top=1000)
    """

    laws: tuple[Law, ...]
    absent: Int32s
    present: Int32s
    class_of: Int32s
    calendar: Calendar = field(default_factory=Calendar.constant)
    elasticity: Elasticity | None = None
    shape: LoadShape | None = None
    digest: str = field(init=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        for name in ("absent", "present", "class_of"):
            array = index_array(getattr(self, name), name, ConsumptionError)
            object.__setattr__(self, name, array)
        self._check()
        object.__setattr__(self, "digest", _digest(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Consumption) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def by_class(
        cls,
        *,
        absent: Sequence[Law],
        present: Sequence[Law],
        class_of: ArrayLike | None = None,
        elasticity: Elasticity | None = None,
    ) -> Consumption:
        """The same laws at all times, one pair a class; without `class_of`, one class a house."""
        if len(absent) != len(present):
            raise ConsumptionError(
                f"there are {len(absent)} laws for absent and {len(present)} for present;"
                " give one pair for each class."
            )
        n = len(absent)
        houses = index_array(
            np.arange(n) if class_of is None else class_of, "class_of", ConsumptionError
        )
        return cls(
            laws=(*absent, *present),
            absent=np.arange(n, dtype=np.int32)[None],
            present=np.arange(n, 2 * n, dtype=np.int32)[None],
            class_of=houses,
            elasticity=elasticity,
        )

    @property
    def reacts(self) -> bool:
        """Whether readings depend on published rates."""
        return self.elasticity is not None and self.elasticity.exponent > 0

    def factor(self, rates: Sequence[float]) -> float:
        """The factor of readings after these published rates."""
        return self.elasticity.factor(rates) if self.elasticity else 1.0

    def law(self, t: int, kind: int, *, occupied: bool) -> Law:
        """The law of class `kind` at step t, before any reaction to rates."""
        table = self.present if occupied else self.absent
        return self.laws[int(table[self.calendar.slot(t), kind])]

    def table(self, t: int) -> Int32s:
        """(2, classes): the numbers of the laws of step t, absent and present."""
        slot = self.calendar.slot(t)
        return np.stack([self.absent[slot], self.present[slot]])

    def cut(self, clamp: Sequence[ClampAt]) -> Consumption:
        """The laws of readings clamped at `clamp` [Wh], one for each class, less its lower end."""
        self.check_clamp(clamp)
        number: dict[tuple[int, ClampAt], int] = {}

        def renumbered(table: Int32s) -> Int32s:
            pairs = [
                [(law, at) for law, at in zip(row, clamp, strict=True)] for row in table.tolist()
            ]
            return np.array(
                [[number.setdefault(p, len(number)) for p in row] for row in pairs], np.int32
            )

        absent, present = renumbered(self.absent), renumbered(self.present)
        laws = tuple(self.laws[law].cut(at) for law, at in number)
        return replace(self, laws=laws, absent=absent, present=present)

    def clamp_ends(self, clamp: Sequence[ClampAt]) -> Ints:
        """(2, N): lower and upper end of every house's clamp [Wh]."""
        self.check_clamp(clamp)
        ends = np.array([clamp_ends(at) for at in clamp], np.int64)
        return np.asarray(ends[self.class_of].T)

    def check_clamp(self, clamp: Sequence[ClampAt]) -> None:
        """Refuse clamps that are not one a class."""
        if len(clamp) != self.absent.shape[1]:
            raise ConsumptionError(
                f"clamp has {len(clamp)} entries but there are {self.absent.shape[1]} density"
                " classes; give one clamp [Wh] for each class."
            )

    def starting(self, offset: int) -> Consumption:
        """The same consumption with its calendar `offset` steps later."""
        return replace(self, calendar=self.calendar.starting(offset))

    def seasonal(self, day: int) -> bool:
        """Whether the calendar is a pattern of a day of each month, of `day` steps a day."""
        return len(self.calendar.slots) == MONTHS * day

    def of_month(self, month: int, day: int) -> Consumption:
        """The laws of a day of one month, 1 to 12; the same where months have no laws of their own.

        `day` is the number of steps of a day.
        """
        if not self.seasonal(day):
            return self
        return replace(self, calendar=Calendar(self.calendar.slots.reshape(MONTHS, day)[month - 1]))

    def check_fits(self, bound: Int32s) -> None:
        """Refuse a zone of another size, or a law that reaches above a house's bound."""
        if self.class_of.shape != bound.shape:
            raise ConsumptionError(
                f"consumption describes {self.class_of.size} houses but the zone has"
                f" {bound.size}; give each house a class."
            )
        reach = _reach(self)
        above = reach[self.class_of] > bound
        if above.any():
            house = int(above.argmax())
            raise ConsumptionError(
                f"law of house {house} reaches {reach[self.class_of[house]]} Wh but its bound is"
                f" {bound[house]} Wh; truncate the law at the bound."
            )

    def _check(self) -> None:
        for law in self.laws:
            if not isinstance(law, Law):
                raise ConsumptionError(f"a law is {law!r}; give a law such as Uniform(1000).")
        slots = int(self.calendar.slots.max()) + 1
        if self.absent.ndim != 2 or self.absent.shape != self.present.shape or not self.absent.size:
            raise ConsumptionError(
                f"law numbers have shapes {self.absent.shape} and {self.present.shape};"
                " give (slots, classes) for both absent and present."
            )
        if len(self.absent) < slots:
            raise ConsumptionError(
                f"there are laws for {len(self.absent)} slots but the calendar names slot"
                f" {slots - 1}; give laws for every slot."
            )
        for name, table in (("absent", self.absent), ("present", self.present)):
            if table.min() < 0 or table.max() >= len(self.laws):
                raise ConsumptionError(
                    f"{name} names law {table.max()} of {len(self.laws)}; number laws from 0."
                )
        kinds = self.absent.shape[1]
        if self.class_of.ndim != 1 or not self.class_of.size:
            raise ConsumptionError(
                f"class_of has shape {self.class_of.shape}; give one class for each house."
            )
        if self.class_of.min() < 0 or self.class_of.max() >= kinds:
            house = int(((self.class_of < 0) | (self.class_of >= kinds)).argmax())
            raise ConsumptionError(
                f"class of house {house} is {self.class_of[house]}; give one of 0..{kinds - 1}."
            )


@lru_cache(maxsize=16)
def _reach(f: Consumption) -> Ints:
    """(classes,): the largest reading of each class [Wh]."""
    tops = np.array([law.top for law in f.laws])
    return np.asarray(np.maximum(tops[f.absent].max(axis=0), tops[f.present].max(axis=0)))


FORMAT = "hushgrid-consumption/2"


def _digest(f: Consumption) -> str:
    """SHA-256 over named fields: tables by their digests, laws under the keys of a zone file."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "calendar": array_digest(f.calendar.slots, "<i4"),
        "absent": array_digest(f.absent, "<i4"),
        "present": array_digest(f.present, "<i4"),
        "class_of": array_digest(f.class_of, "<i4"),
        "laws": [law_fields(law) for law in f.laws],
    }
    if f.elasticity is not None:
        fields["elasticity"] = elasticity_fields(f.elasticity)
    if f.shape is not None:
        fields["shape"] = shape_fields(f.shape)
    return canonical_digest(fields)


def elasticity_fields(elasticity: Elasticity) -> dict[str, Any]:
    """An elasticity under the keys of [elasticity]; limits at 0.5 and 1.5 are left out.

    Args:
        elasticity: The elasticity.

    Returns:
        Key to number.
    """
    values = {
        "reference": real(elasticity.reference),
        "exponent": real(elasticity.exponent),
        "low": real(elasticity.low),
        "high": real(elasticity.high),
    }
    return unlike(values, {"low": 0.5, "high": 1.5})


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
