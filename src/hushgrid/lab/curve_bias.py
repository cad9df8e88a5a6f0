"""Whether prices by a curve are right on average: the mean of the curve, or the curve at the mean.

A convex curve at the expected load is too low on average (Jensen): it does not count that the load
may be higher. The published price is the mean of the curve over what the load may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.belief.expected_rate import posterior_rate
from hushgrid.lab.bench import Bench
from hushgrid.lab.datasets import Recorded
from hushgrid.lab.methods import BOUND, MethodPromise
from hushgrid.model.curve import Curve
from hushgrid.model.zone import Tariff, optimal_rate, public_rate


@dataclass(frozen=True, slots=True, eq=False)
class CurveBias:
    """Prices of one curve; (steps,) each [currency/kWh].

    Attributes:
        exact: The curve at the true load.
        published: The mean of the curve given the releases.
        middle: The curve at the expected load.
    """

    exact: Floats
    published: Floats
    middle: Floats

    @property
    def gap(self) -> float:
        """The mean published price over the exact one, less 1."""
        return float(self.published.mean() / self.exact.mean()) - 1

    @property
    def middle_gap(self) -> float:
        """The same of the curve at the expected load."""
        return float(self.middle.mean() / self.exact.mean()) - 1


def kinked(loads: Floats, share: float = 0.9, steeper: float = 4.0) -> Tariff:
    """A price that is 0.05 at no load and 0.15 at the mean load, and steeper above a kink.

    Args:
        loads: Loads of a zone [Wh].
        share: Share of the loads that are at most the kink's.
        steeper: How many times the slope is as steep above the kink.

    Returns:
        The tariff [currency/kWh].
    """
    kink, most = float(np.quantile(loads, share)) / 1000, 3 * float(loads.max()) / 1000
    slope = 100 / float(loads.mean())
    high = 0.05 + slope * kink
    points = ((0.0, 0.05), (kink, high), (most, high + steeper * slope * (most - kink)))
    return Tariff(curve=Curve(points=points))


def curve_bias(
    source: Recorded, promise: MethodPromise, tariff: Tariff, days: Sequence[int], *, seed: int
) -> CurveBias:
    """Prices of recorded days by a curve, under a promise as `compare` plans it.

    Args:
        source: The days.
        promise: The promise.
        tariff: A tariff with a curve.
        days: Numbers of the days, in order; those between are published and not counted.
        seed: Seed of the noise.

    Returns:
        The prices of all their steps.
    """
    bench = Bench(source, promise, seed, (BOUND,))
    exact, published, middle = list[Floats](), list[float](), list[float]()
    for number in days:
        exact.append(optimal_rate(source.day(number).load.astype(np.float64), tariff))
        for knowledge, load_hat, scale in bench.beliefs(BOUND.name, number):
            published.append(posterior_rate(knowledge, load_hat, scale, tariff))
            middle.append(public_rate(knowledge.learn(load_hat, scale)[0], tariff))
    return CurveBias(np.concatenate(exact), np.array(published), np.array(middle))
