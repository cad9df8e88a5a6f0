"""Demand that reacts to the price it sets: loop gain, movement caused by noise, switching.

To first order demand moves by -e of every relative change of the last price, so a relative load
error d becomes -g d one step later, with g = e alpha Z / (alpha Z + beta) (Roozbehani, Dahleh and
Mitter 2012). Below g = 1, noise with the relative standard deviation nu in the price keeps demand
moving with e nu / sqrt(1 - g^2); from g = 1 on demand swings without end. A tariff that keeps the
share s of the last price has the coefficient c = s - (1 - s) g in place of -g: demand moves with
e (1 - s) nu / sqrt(1 - c^2), and is stable below g = (1 + s)/(1 - s).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Floats, is_real
from hushgrid.errors import PlanError
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import STEPS_PER_DAY
from hushgrid.model.zone import Tariff, marginal_rate, optimal_rate, relative_to
from hushgrid.planning.planner import Plan

ELASTICITY = (
    0.1  # of demand where none is stated: the upper end of what was measured (docs/loop.md)
)
HYSTERESIS = 0.02  # relative price above and below its threshold at which a device turns
_TURN_STEPS = 40_000  # of a simulation that counts turns


class Stability(NamedTuple):
    """What demand that reacts to published prices does, before any of it is published.

    Attributes:
        elasticity: Relative fall of demand for a relative rise of the price.
        gain: Loop gain g.
        limit: The loop is stable below this gain: 1, or more where the tariff smooths prices.
        noise: Relative standard deviation of the price caused by noise, before any smoothing.
        movement: Relative standard deviation of demand caused by it; infinite from the limit on.
        switches: Turns a day that noise alone causes in a device whose threshold is the usual
            price.
    """

    elasticity: float
    gain: float
    limit: float
    noise: float
    movement: float
    switches: float


def stability(
    tariff: Tariff,
    load: ArrayLike,
    scale: ArrayLike,
    *,
    elasticity: float,
    lengths: Sequence[int] = (),
    day: int = STEPS_PER_DAY,
) -> Stability:
    """The loop of a zone whose demand reacts to the last raw price.

    Args:
        tariff: The rate of a load.
        load: Expected loads [Wh], (T,) or one number.
        scale: Scale of the noise of every step [Wh], (T,) or one number; Laplace, or one joint
            noise for each block.
        elasticity: Of the demand, 0 or more.
        lengths: Steps of each block with one noise; empty: independent noise.
        day: Steps of a day.

    Returns:
        The figures, means over the steps.

    Raises:
        PlanError: If the elasticity is not 0 or more.

    >>> loop = stability(Tariff(1.0, 62.5), 250_000, 1000, elasticity=0.5)
    >>> round(loop.gain, 3), round(loop.noise, 5), round(loop.movement, 5)
    (0.4, 0.00453, 0.00247)
    """
    if not (is_real(elasticity) and elasticity >= 0):
        raise PlanError(f"elasticity is {elasticity}; give 0 or more.")
    z, b = np.broadcast_arrays(np.asarray(load, np.float64), np.asarray(scale, np.float64))
    z, b = np.atleast_1d(z), np.atleast_1d(b)
    rate = relative_to(optimal_rate(z, tariff), tariff)
    slope = marginal_rate(z, tariff)
    share = 1 - tariff.beta / rate
    if tariff.curve is not None:
        share = slope * (z + tariff.inelastic - tariff.offset) / 1000 / rate
    gain = float(np.mean(elasticity * share))
    lengths = lengths or (1,) * len(b)
    steps = np.repeat(lengths, lengths)
    relative = np.maximum(slope * b / 1000 / rate, 1e-12)  # scale of noise in the price
    noise = math.sqrt(float(np.mean((steps + 1) * (steps + 2) / 3 * relative**2)))
    s, limit = tariff.smooth, (1 + tariff.smooth) / (1 - tariff.smooth)
    damping = math.sqrt(1 - (s - (1 - s) * gain) ** 2) if gain < limit else 0.0
    movement = elasticity * (1 - s) * noise / damping if damping else math.inf
    if s:
        turns = _turns(relative, lengths, s)
    else:
        turns = float(np.mean(_beyond(HYSTERESIS / relative, steps)))
    return Stability(elasticity, gain, limit, noise, movement, day * turns)


def loop_of(
    plan: Plan, tariff: Tariff, consumption: Consumption, day: int = STEPS_PER_DAY
) -> Stability:
    """The loop of a plan's raw prices.

    Args:
        plan: The plan.
        tariff: The rate of a load.
        consumption: The laws of a reading; without an elasticity of its own, 0.1 is taken.
        day: Steps of a day.

    Returns:
        The figures.
    """
    reaction, lengths = consumption.elasticity, plan.policy.schedule.lengths
    steps = np.repeat(lengths, lengths) if lengths else 1
    scale = np.sqrt(plan.prospect.noise / ((steps + 1) * (steps + 2) / 3))
    e = reaction.exponent if reaction is not None else ELASTICITY
    return stability(tariff, plan.prospect.load, scale, elasticity=e, lengths=lengths, day=day)


def _turns(relative: Floats, lengths: Sequence[int], smooth: float) -> float:
    """Turns a step at a smoothed price, by simulation from a fixed seed."""
    rng, times = np.random.default_rng(1), -(-_TURN_STEPS // len(relative))
    steps = np.array(lengths)
    sizes = np.repeat(rng.gamma(np.tile(steps + 1.0, times)), np.tile(steps, times))
    price = np.tile(relative, times) * sizes * rng.uniform(-1, 1, len(sizes))
    smoothed = np.array(list(accumulate(price, lambda last, x: smooth * last + (1 - smooth) * x)))
    sides = np.sign(smoothed)[np.abs(smoothed) > HYSTERESIS]
    return float(np.count_nonzero(np.diff(sides))) / len(smoothed)


def _beyond(x: Floats, steps: Floats) -> Floats:
    """Pr[n > x b] of one step of a block of so many steps: n is uniform on -M..M, M/b ~ Gamma."""
    from scipy.special import gammaincc

    return np.asarray((gammaincc(steps + 1, x) - x / steps * gammaincc(steps, x)) / 2)
