"""The error of the price against the promise: a curve for each trust eta, from public models alone.

Each point is the noise that a promise takes over the first steps of the horizon, and the error to
expect with it. One curve after another shares the work that does not depend on the promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hushgrid.clamp import RHO
from hushgrid.errors import HushgridError, PlanError
from hushgrid.planning import Secret, Task, ZoneTerms, spending
from hushgrid.policy import Policy
from hushgrid.prospect import Prospect, prospect
from hushgrid.schedules import gaussian_delta

ETAS = (0.0, 0.05, 1.0)
TIMES = tuple(2.0 ** (k / 2) for k in range(-6, 7))  # times the epsilon that is promised
_CLOSE = 0.002  # relative error of an epsilon that is searched for
_TRIES = 12


class Point(NamedTuple):
    """A promise, and the relative error of the price with it: of the noisy load, of the estimate.

    Root mean squares over the steps that were looked at.
    """

    epsilon: float
    raw: float
    estimated: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one eta, by epsilon."""

    eta: float
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """What was chosen, what else there is, and the error of a price without any reading."""

    eta: float
    chosen: Point
    curves: tuple[Curve, ...]
    forecast: float


def expected(
    world: ZoneTerms, policy: Policy, epsilon: float, rho: float = RHO
) -> tuple[Point, Prospect]:
    """What to expect of a policy over its horizon, under the name of what it promises."""
    zone, tariff, models, consumption = world
    task = Task((models, zone, consumption), tariff, policy)
    scales = task.scales([policy.epsilon_at(t) for t in range(1, policy.horizon + 1)])
    found = prospect(models, consumption, tariff, policy, scales)
    return _point(epsilon, found, rho), found


def tradeoff(
    world: ZoneTerms,
    policy: Policy,
    *,
    secret: Secret,
    epsilon: float,
    delta: float = 0.0,
    rho: float = RHO,
    share: float = 1.0,
    steps: int | None = None,
    etas: Sequence[float] = ETAS,
) -> Tradeoff:
    """Curves around a policy that keeps the promise (secret, epsilon, delta).

    The policy's horizon is what is looked at; where the promise is about more `steps` than that,
    what the horizon spends counts in proportion to what the policy itself spends in it. `share`:
    what a release may lose of a promise about the secret `step`.
    """
    chosen, base = expected(world, policy, epsilon, rho)
    total = policy.horizon if steps is None else steps
    curves = []
    for eta in sorted({*etas, policy.eta} if policy.schedule.per_release else {policy.eta}):
        try:
            scales = _scales(world, replace(policy, eta=eta), secret, epsilon, delta, share, total)
            points = [_at(base, policy, scales, epsilon * k, rho) for k in TIMES]
        except HushgridError:  # this trust has no curve
            continue
        curves.append(Curve(eta, tuple(points)))
    if not curves:
        raise PlanError("no promise can be planned for these terms; see hushgrid check.")
    forecast = base.forecast(rho) * math.sqrt(policy.horizon)
    return Tradeoff(policy.eta, chosen, tuple(curves), forecast)


Scales = Callable[[float], Sequence[float]]  # of a promised epsilon, for every step [Wh]


def _scales(
    world: ZoneTerms,
    policy: Policy,
    secret: Secret,
    epsilon: float,
    delta: float,
    share: float,
    total: int,
) -> Scales:
    zone, tariff, models, consumption = world
    plain = replace(policy, schedule=policy.schedule.with_epsilons(()).protecting_all())
    task = Task((models, zone, consumption), tariff, plain)
    even = [1.0] * policy.horizon
    if not policy.schedule.per_release:
        own = np.array(task.scales(even))
        here = _multiple(epsilon, delta, total)
        return lambda e: (own * _multiple(e, delta, total) / here).tolist()
    if secret == "step":
        return lambda e: task.scales([e * share] * policy.horizon)
    spent = spending(task, secret, delta)
    whole, near = 1.0, 1 / math.sqrt(policy.horizon)
    if total > policy.horizon:
        ours = [policy.epsilon_at(t) for t in range(1, policy.horizon + 1)]
        whole = max(epsilon / spent(ours), 1.0)

    def found(promised: float) -> Sequence[float]:
        nonlocal near  # the next promise is met at nearly the same share of it
        each = _solved(lambda e: whole * spent([e] * policy.horizon), promised, near * promised)
        near = each / promised
        task.forget()
        return task.scales([each] * policy.horizon)

    return found


def _multiple(epsilon: float, delta: float, steps: int) -> float:
    """Of a bound, as Gaussian noise for a horizon: the closed form, which is quick."""
    low, high = 1e-3, 1e9
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        kept = gaussian_delta(epsilon, steps, middle) <= delta
        low, high = (low, middle) if kept else (middle, high)
    return high


def _solved(spent: Callable[[float], float], promised: float, first: float) -> float:
    """The epsilon a step that spends what is promised: the secant's, on logarithms of both."""
    goal, x = math.log(promised), math.log(first)
    y = math.log(spent(math.exp(x))) - goal
    slope = 1.0
    for _ in range(_TRIES):
        if abs(y) <= _CLOSE:
            break
        ahead = x - y / slope
        after = math.log(spent(math.exp(ahead))) - goal
        slope = min(max((after - y) / (ahead - x), 0.2), 2.0)
        x, y = ahead, after
    return math.exp(min(x, goal))  # a release never loses more than all of them together


def _at(base: Prospect, policy: Policy, scales: Scales, epsilon: float, rho: float) -> Point:
    b = np.asarray(scales(epsilon), np.float64)
    return _point(epsilon, replace(base, noise=policy.schedule.variance(b)), rho)


def _point(epsilon: float, found: Prospect, rho: float) -> Point:
    whole = math.sqrt(len(found.noise))  # the paper's formula divides by it
    return Point(epsilon, found.with_cut(rho) * whole, found.estimated(rho) * whole)
