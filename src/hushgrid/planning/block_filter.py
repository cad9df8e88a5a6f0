"""What noise that lasts blocks of steps leaves unknown of a load: a filter is simulated.

One filter of the bank, which knows the spreads of the load it follows, reads drawn loads behind
drawn noise. Its mean variance is the figure: it settles in a few weeks, and on many drawn weeks it
is the squared error of the filter, and of the whole bank, within a few per cent. The figure depends
on the ratio of noise and load alone, so few simulations answer for all clamps and zones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats
from hushgrid.belief.load_filter import LoadFilter, SeenLoads, Spreads, drawn_loads
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.model.shape import LoadShape
from hushgrid.planning.task import Secret

FOLLOWED = (0.12, 0.72, 0.3, 0.45, 0.27, 0.3)  # spreads of a filter's parts over their sum
_HOUR, _DAY, _WEEK = 3600, 86_400, 604_800  # [s]
# Spreads of what no forecast has. Homes of London and of New South Wales move together by 4 to 5 %
# about the mean of five weeks at the same time of the week; half of that lasts a day.
_LEVEL, _RESIDUAL, _WHITE = 0.035, 0.03, 0.01
_SEED = 17
_BEFORE, _COUNTED = 21, 42  # days that a simulated filter learns, and that count then
_UNIT = 1e6  # [Wh] the load of a simulated zone, large enough for noise in whole Wh


class BlockFilter(NamedTuple):
    """What the error of a filter depends on that follows a load through blocks of noise.

    Attributes:
        seconds: Length of a step [s].
        length: Steps of a block.
        flat: Whether the load is followed about one number, else about the forecast of a model.
    """

    seconds: int
    length: int
    flat: bool = False

    def variance(self, ratio: float, rho: float) -> float:
        """Variance of the estimate's error, relative to the load squared.

        Args:
            ratio: Scale of the noise over the load.
            rho: Relative error to expect of what the load is followed about; a hundredth at least.

        Returns:
            The variance, between simulated ones by a straight line of logarithms.
        """
        at = math.log2(max(ratio, 1e-9))
        low = math.floor(at)
        wrong = max(float(rho), 0.01)
        ends = [math.log(_simulated(self, wrong, k)) for k in (low, low + 1)]
        return math.exp(ends[0] + (at - low) * (ends[1] - ends[0]))


@lru_cache(maxsize=1024)
def _simulated(case: BlockFilter, rho: float, power: int) -> float:
    """The variance where the scale of the noise is the load times a power of two."""
    place, weekend, load = _street(case.seconds, rho, case.flat)
    steps = np.arange(len(load))
    count, scale = -(-len(load) // case.length), _UNIT * 2.0**power
    noise = SimulatedNoise(_SEED).blocks(scale, case.length, count).ravel()[: len(load)]
    loads, _ = LoadFilter.start(case.seconds / _HOUR, [_spreads(rho, case.flat)]).follow(
        SeenLoads(
            _UNIT * load + noise,
            np.full(len(load), scale),
            np.full(len(load), _UNIT),
            place,
            weekend,
            length=np.full(len(load), case.length),
            begins=steps % case.length == 0,
        )
    )
    counted = loads.variance[_BEFORE * _DAY // case.seconds :]
    return float(counted.mean()) / _UNIT**2


@lru_cache(maxsize=4)
def _street(seconds: int, rho: float, flat: bool) -> tuple[Floats, Bools, Floats]:
    """Time of day, weekends, and loads relative to the base, of the simulated weeks."""
    local = seconds * np.arange((_BEFORE + _COUNTED) * _DAY // seconds)
    place, weekend = local % _DAY / _DAY, local % _WEEK >= 5 * _DAY
    source = np.random.Generator(np.random.PCG64(_SEED))
    spreads = _spreads(rho, flat)
    if not flat:
        return place, weekend, drawn_loads(spreads, seconds / _HOUR, place, weekend, source)
    about = spreads._replace(profile=0.0, weekend=0.0)
    deviations = drawn_loads(about, seconds / _HOUR, place, weekend, source)
    return place, weekend, deviations * LoadShape().week(local + seconds / 2)


@lru_cache(maxsize=8)
def _spreads(rho: float, flat: bool) -> Spreads:
    """The spreads of a load: of what it is relative to rho, and what no forecast has."""
    _, slow, _, profile, weekend, _ = (rho * np.array(FOLLOWED)).tolist()
    if flat:
        shape = LoadShape()
        mean = np.mean([*shape.workday * 5, *shape.weekend * 2])
        workday, free = np.array(shape.workday) / mean, np.array(shape.weekend) / mean
        profile = round(math.hypot(profile, float(workday.std())), 3)
        weekend = round(math.hypot(weekend, float((free - workday).std())), 3)
    return Spreads(_LEVEL, slow, _RESIDUAL, profile, weekend, _WHITE)


def block_filter(policy: Policy, secret: Secret, seconds: int) -> BlockFilter | None:
    """The filter that is simulated for a promise about windows; None for another secret.

    Args:
        policy: The policy.
        secret: What the promise protects.
        seconds: Length of a step [s].

    Returns:
        The filter through blocks of the length of the first.
    """
    if secret != "window" or not policy.schedule.lengths:
        return None
    return BlockFilter(seconds, max(policy.schedule.lengths))
