"""The Wasserstein mechanism (Song, Wang, Chaudhuri 2017), a step at a time.

Its scale is W/epsilon with W the largest gap between the quantiles of a reading's two laws: some
coupling never moves the load by more. Over many steps its losses are counted like ours.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hushgrid.accounting.temporal import worst_leakage
from hushgrid.arrays import Floats
from hushgrid.baselines.method import FRESH, Method, MethodSetting, Ready, Refusal, noisy
from hushgrid.calibration import exposures_of
from hushgrid.laws import Law
from hushgrid.policy import MIN_SCALE, Policy

_TIE = 1e-9  # relative; a narrower step between two cumulative sums is rounding


def quantile_gap(absent: Floats, present: Floats) -> int:
    """W_infinity of two pmfs on 0..top: the largest gap between their quantiles [Wh].

    >>> quantile_gap(np.full(5, 0.2), np.full(11, 1 / 11))
    6
    """
    size = max(len(absent), len(present))
    f, g = (np.pad(pmf, (0, size - len(pmf))) for pmf in (absent, present))
    return max(_gap_below(f, g), _gap_below(f[::-1], g[::-1]))


def _gap_below(f: Floats, g: Floats) -> int:
    """The largest gap among quantiles up to a little above one half, small sums exact."""
    points, sums = [], []
    for pmf in (f, g):
        at = np.flatnonzero(pmf > 0)
        points.append(at)
        sums.append(np.cumsum(pmf[at]))
    ends = np.unique(np.concatenate(sums))
    starts = np.r_[0.0, ends[:-1]]
    real = (ends - starts > _TIE * ends) & (starts < 0.6)
    middle = ((starts + ends) / 2)[real]
    where = [
        at[np.minimum(np.searchsorted(cumulative, middle), len(at) - 1)]
        for at, cumulative in zip(points, sums, strict=True)
    ]
    return int(np.abs(where[0] - where[1]).max())


@lru_cache(maxsize=100_000)
def _gap(absent: Law, present: Law) -> int:
    return quantile_gap(absent.pmf, present.pmf)


def _gaps(setting: MethodSetting, t: int) -> Floats:
    """The quantile gap of every house's reading at step t [Wh]."""
    f = setting.scenario.consumption
    each = [
        _gap(f.law(t, kind, occupied=False), f.law(t, kind, occupied=True))
        for kind in range(f.absent.shape[1])
    ]
    return np.array(each, np.float64)[f.class_of]


def _prepare(setting: MethodSetting) -> Ready | Refusal:
    promise, scenario = setting.promise, setting.scenario
    if not setting.alone:
        return Refusal("houses move together, and the quantile gap is one house's")
    exposures = exposures_of(
        scenario.models, scenario.zone, scenario.consumption, Policy(1.0, setting.horizon)
    )
    by_slot: dict[int, Floats] = {}
    gaps = []
    for t in range(1, setting.horizon + 1):
        slot = scenario.consumption.calendar.slot(t)
        if slot not in by_slot:
            by_slot[slot] = _gaps(setting, t)
        gaps.append(np.where(exposures.at(t).protected.mask(), by_slot[slot], 0.0))
    reach = np.array(gaps)
    widest = np.maximum(reach.max(axis=1), MIN_SCALE)
    shares = reach / widest[:, None]  # of what a step loses, by house
    each = _largest(setting, shares)
    return noisy(
        setting,
        np.maximum(widest / each, MIN_SCALE).tolist(),
        "pure epsilon, if the occupancy model is true and every reading follows its public law"
        + ("" if promise.secret == "step" else FRESH),
    )


def _largest(setting: MethodSetting, shares: Floats) -> float:
    """The largest loss a step that keeps the promise."""
    promise = setting.promise
    if promise.secret == "step":
        return promise.epsilon
    if promise.secret == "trajectory":
        return promise.epsilon / max(float(shares.sum(axis=0).max()), 1.0)
    low, high = promise.epsilon / (8 * len(shares)), promise.epsilon
    while high / low - 1 > 1e-6:
        middle = math.sqrt(low * high)
        kept = worst_leakage(setting.scenario.models, middle * shares).total <= promise.epsilon
        low, high = (middle, high) if kept else (low, middle)
    return low


WASSERSTEIN = Method("wasserstein", "Wasserstein", True, 0.0, _prepare)
