"""Columns of text to whole numbers; what is written alike is read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hushgrid.arrays import Ints
from hushgrid.intake.amounts import LONGEST, scaled, whole
from hushgrid.intake.clock import Written
from hushgrid.intake.faults import FAULTS_END, Fault
from hushgrid.intake.mapping import Marks, Unit
from hushgrid.intake.readings import clean_meter

WH_PER_KWH = 1000
SECONDS_PER_HOUR = 3600


def meter_codes(names: Sequence[str | None]) -> tuple[list[str], Ints]:
    """The distinct meter ids, and for each name its place among them or a `Fault`.

    >>> meter_codes(["b", "a", " b "])
    (['b', 'a'], array([0, 1, 0]))
    """
    codes: dict[str, int] = {}
    known: dict[str | None, int] = {}
    for name in dict.fromkeys(names):
        bare = None if name is None else clean_meter(name)
        known[name] = Fault.METER if bare is None else codes.setdefault(bare, len(codes))
    return list(codes), np.fromiter(map(known.__getitem__, names), np.int64, len(names))


def durations(texts: Sequence[str]) -> Ints:
    """Whole seconds, or a `Fault`."""
    return _each(texts, whole)


def values(
    texts: Sequence[str],
    unit: Unit,
    duration: Ints,
    decimal: str = ".",
    longest: int | None = LONGEST,
) -> Ints:
    """Whole Wh, halves to even, or a `Fault`; mean power in kW counts over its duration [s].

    A text of more than `longest` characters is no number; None: of any length.

    >>> values(["0.115", "1.0"], "kw", np.array([3600, 900])).tolist()
    [115, 250]
    """
    if decimal == ",":
        texts = ["." if "." in text else text.replace(",", ".") for text in texts]
    if unit == "wh":
        return _each(texts, lambda text: scaled(text, longest=longest))
    if unit == "kwh":
        return _each(texts, lambda text: scaled(text, WH_PER_KWH, longest=longest))

    def from_power(written: tuple[str, int]) -> int:
        text, duration = written
        return scaled(text, WH_PER_KWH * max(duration, 0), SECONDS_PER_HOUR, longest)

    return _each(list(zip(texts, duration.tolist(), strict=True)), from_power)


def starts_of(marked: Ints, duration: Ints, marks: Marks) -> Ints:
    """Where readings start, given what their times mark."""
    if marks == "start":
        return marked
    known = (marked >= FAULTS_END) & (duration >= FAULTS_END)
    return np.where(known, marked - np.where(known, duration, 0), marked)


def _each(written: Sequence[Written], convert: Callable[[Written], int]) -> Ints:
    known = {item: convert(item) for item in set(written)}
    return np.fromiter(map(known.__getitem__, written), np.int64, len(written))
