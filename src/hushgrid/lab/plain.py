"""Prices that ask no mechanism: flat, by time of use, and by yesterday's loads.

Flat prices and those by time of use say nothing about the days that they are charged for. Exact
loads of yesterday promise nothing.
"""

from __future__ import annotations

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.lab.datasets import Recorded

BANDS = (0, 7, 16, 20, 24)  # [h]: night, day, evening, late; a price for each


def flat_load(source: Recorded, profile: Floats) -> Floats:
    """The load that a flat price is set for.

    Args:
        source: The recorded days.
        profile: (T,): mean loads of the days before, or the model's [Wh].

    Returns:
        (T,): the published usual load of the homes where it is given, else the mean of the profile
        [Wh].
    """
    homes = source.scenarios[0].zone.n_houses
    level = source.published * homes if source.published else float(profile.mean())
    return np.full(len(profile), level)


def banded_load(source: Recorded, profile: Floats) -> Floats:
    """The load that prices by time of use are set for.

    Args:
        source: The recorded days.
        profile: (T,): mean loads of the days before, or the model's [Wh].

    Returns:
        (T,): a level for each of the bands, with the ratios of the profile and the mean of
        `flat_load` [Wh].
    """
    hours = np.arange(len(profile)) * 24 / len(profile)
    band = np.searchsorted(BANDS[1:-1], hours, side="right")
    sums = np.bincount(band, profile, len(BANDS) - 1)
    counts = np.bincount(band, minlength=len(BANDS) - 1)
    levels = (sums / np.maximum(counts, 1))[band]
    return np.asarray(levels * flat_load(source, profile) / max(float(profile.mean()), 1.0))


def yesterday(
    source: Recorded, loads: Floats, number: int, *, ahead: bool = False
) -> Floats | None:
    """The true loads of the last day that is over.

    Args:
        source: The recorded days.
        loads: (days, T): true loads of the days before and of the recorded ones [Wh].
        number: The day.
        ahead: Before 18:00 of the day before it, which is then not over.

    Returns:
        (T,): loads [Wh]; None before any day is over.
    """
    parts = (source,) if source.before is None else (source.before, source)
    date = np.concatenate([part.date for part in parts])
    at = len(date) - len(source.date) + number
    over = np.flatnonzero(date[:at] < date[at] - int(ahead))
    return loads[over[-1]] if len(over) else None
