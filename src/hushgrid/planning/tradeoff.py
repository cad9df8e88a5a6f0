"""What a cheaper or stronger promise would cost, from public models alone.

`sensitivity` plans again with one parameter changed; `tradeoff` gives the error of the price
against the promise, a curve for each trust eta. Curves share the work that does not depend on the
promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hushgrid.accounting.endless import Endless, turn_of
from hushgrid.accounting.temporal import (
    contradicted,
    contradicted_houses,
    leakage_under_models,
)
from hushgrid.errors import HushgridError, PlanError
from hushgrid.mechanism.policy import Even, Policy
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import ZoneTerms
from hushgrid.planning.expected_error import RHO, BlockFilter, Prospect, block_filter, prospect
from hushgrid.planning.planner import Plan, plan
from hushgrid.planning.task import Secret, Task, spending

SENSITIVITY_ETAS = (0.0, 0.01, 0.05, 0.2, 1.0)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the requested epsilon
HOUSES = (0.25, 0.5, 1.0, 4.0, 16.0)  # multiples of the number of houses


class Cell(NamedTuple):
    """One row of a sensitivity table.

    Attributes:
        at: The value of the parameter.
        epsilon_t: The largest epsilon of a step.
        error: Expected error as a share of the load.
    """

    at: float
    epsilon_t: float
    error: float


def sensitivity(
    world: ZoneTerms,
    base: Plan,
    request: Mapping[str, Any],
    progress: Callable[[], None] = lambda: None,
) -> dict[str, tuple[Cell, ...]]:
    """Tables of the expected error over eta, epsilon and the number of houses.

    Args:
        world: Zone, tariff, models and consumption.
        base: The plan to vary.
        request: The keyword arguments `plan` made `base` from.
        progress: Called after each plan.

    Returns:
        Rows by parameter (`eta`, `epsilon`, `houses`); values that cannot be planned have no row.
    """
    share_rho = _rho(request)
    terms = request.get("terms") or Policy(1.0)

    def cell(at: float, rival: Plan) -> Cell:
        progress()
        return Cell(at, max(rival.epsilon_t), rival.prospect.share(share_rho))

    def again(at: float, **changes: Any) -> Iterator[Cell]:
        try:
            yield cell(at, plan(*world, **{**request, **changes}))
        except HushgridError:  # a value that cannot be planned has no row
            return

    by_eta = [c for eta in SENSITIVITY_ETAS for c in again(eta, terms=replace(terms, eta=eta))]
    times = [base.epsilon * k for k in EPSILONS]
    by_epsilon = [c for epsilon in times for c in again(epsilon, epsilon=epsilon)]
    top, n = max(base.epsilon_t), world[0].n_houses
    by_houses = [Cell(round(n * k), top, base.prospect.share(share_rho, k)) for k in HOUSES]
    return {"eta": tuple(by_eta), "epsilon": tuple(by_epsilon), "houses": tuple(by_houses)}


def _rho(request: Mapping[str, Any]) -> float:
    rho = request.get("rho")
    return RHO if rho is None else float(rho)


def endless_leakage(base: Plan, world: ZoneTerms) -> float | None:
    """An upper bound on the leakage about one step if the plan is repeated for ever.

    Args:
        base: The plan.
        world: Zone, tariff, models and consumption.

    Returns:
        The bound, possibly inf. None where releases have no epsilon of their own, or where the
        calendars take too many steps to repeat.
    """
    if base.leakage is None:
        return None
    zone, tariff, models, consumption = world
    try:
        turn = turn_of(models, len(base.scale))
    except PlanError:
        return None
    run = Endless(tuple(models), turn)
    if len(models) > 1 and _contradict(base, models, run):
        return float("inf")  # which model is right is never forgotten
    # who is certain where the first horizon begins need not be so where the next one does
    repeat = Task((run.later, zone, consumption), tariff, base.policy, any_rules=True)
    repeat_losses = [repeat.scheduler.losses(t, b).max() for t, b in enumerate(base.scale, 1)]
    e = np.maximum(base.largest_losses, repeat_losses)  # of any house: a bound for all
    alike, times = np.zeros(zone.n_houses, np.int32), turn // len(e)
    lengths = base.policy.schedule.lengths * times
    return max(run.most(np.tile(e, times)[:, None], alike, lengths), base.leakage)


def _contradict(base: Plan, models: Sequence[OccupancyModel], run: Endless) -> bool:
    """Whether the models contradict each other about a house, in the first horizon or later."""
    contradictions = contradicted_houses(models, 2 * run.turn) | contradicted_houses(
        run.later, run.turn
    )
    total = leakage_under_models(models, base.losses, base.policy.schedule.lengths).total
    return bool((contradictions | contradicted(total, base.losses)).any())


ETAS = (0.0, 0.05, 1.0)
TIMES = tuple(2.0 ** (k / 2) for k in range(-6, 7))  # multiples of the promised epsilon
_CLOSE = 0.002  # relative error of an epsilon that is searched for
_TRIES = 12


class Point(NamedTuple):
    """A promise and the relative error of the price with it (root mean square over the steps).

    Attributes:
        epsilon: What is promised.
        raw: Error of the rate of the noisy load.
        estimated: Error of the rate of the estimate.
    """

    epsilon: float
    raw: float
    estimated: float


@dataclass(frozen=True, slots=True)
class ErrorCurve:
    """The points of one trust.

    Attributes:
        eta: The trust.
        points: By ascending epsilon.
    """

    eta: float
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """The chosen promise and its alternatives.

    Attributes:
        eta: The chosen trust.
        point: The point of the policy.
        curves: One for each eta that can be planned.
        forecast: Relative error of a price without any reading.
    """

    eta: float
    point: Point
    curves: tuple[ErrorCurve, ...]
    forecast: float


def expected(
    world: ZoneTerms,
    policy: Policy,
    epsilon: float,
    rho: float = RHO,
    blocks: BlockFilter | None = None,
) -> tuple[Point, Prospect]:
    """The error to expect of a policy over its horizon.

    Args:
        world: Zone, tariff, models and consumption.
        policy: The policy.
        epsilon: What it promises; names the point.
        rho: Relative error to expect of the model.
        blocks: The filter that a promise about windows simulates.

    Returns:
        The point, and the parts of the error by step.
    """
    zone, tariff, models, consumption = world
    task = Task((models, zone, consumption), tariff, policy)
    scales = task.scales([policy.epsilon_at(t) for t in range(1, policy.horizon + 1)])
    forecast = prospect(models, consumption, tariff, policy, scales, blocks)
    return _point(epsilon, forecast, rho), forecast


def tradeoff(
    world: ZoneTerms,
    policy: Policy,
    *,
    secret: Secret,
    epsilon: float,
    rho: float = RHO,
    steps: int | None = None,
    etas: Sequence[float] = ETAS,
    seconds: int = 900,
) -> Tradeoff:
    """Curves around a policy that keeps the promise (secret, epsilon).

    Args:
        world: Zone, tariff, models and consumption.
        policy: The policy; its horizon is what is computed.
        secret: What the promise protects.
        epsilon: The promised epsilon.
        rho: Relative error to expect of the model.
        steps: Steps the promise covers, by default the horizon; where it is more, the spending of
            the horizon counts in proportion to what the policy itself spends in it.
        etas: Trusts to draw a curve for, besides the policy's own.
        seconds: Length of a step [s], for windows.

    Returns:
        The chosen point, the curves and the error of a forecast.

    Raises:
        PlanError: If no curve can be planned.
    """
    point, base = expected(world, policy, epsilon, rho, block_filter(policy, secret, seconds))
    total = policy.horizon if steps is None else steps
    curves = []
    for eta in sorted({*etas, policy.eta}):
        # below eta = 1 noise lasts no block of steps
        joint = eta < 1 and policy.schedule.lengths
        trust_policy = replace(policy, eta=eta, schedule=Even() if joint else policy.schedule)
        try:
            scales = _scales(world, trust_policy, secret, epsilon, total)
            points = [_point_at(base, trust_policy, scales, epsilon * k, rho) for k in TIMES]
        except HushgridError:  # this trust has no curve
            continue
        curves.append(ErrorCurve(eta, tuple(points)))
    if not curves:
        raise PlanError("no promise can be planned for these terms; see hushgrid check.")
    forecast = base.forecast(rho) * math.sqrt(policy.horizon)
    return Tradeoff(policy.eta, point, tuple(curves), forecast)


Scales = Callable[[float], Sequence[float]]  # of a promised epsilon, for every step [Wh]


def _scales(
    world: ZoneTerms,
    policy: Policy,
    secret: Secret,
    epsilon: float,
    total: int,
) -> Scales:
    zone, tariff, models, consumption = world
    plain, even = policy, [1.0] * policy.horizon
    if policy.schedule.lengths:  # the same blocks, with losses in the same proportion
        even = [e / policy.epsilon for e in policy.schedule.epsilons]
    else:
        plain = replace(policy, schedule=policy.schedule.with_epsilons(()))
    task = Task((models, zone, consumption), tariff, plain)
    if secret == "step":
        return lambda e: task.scales([e] * policy.horizon)
    loss_of = spending(task, secret)
    window_share, near = 1.0, 1 / math.sqrt(policy.horizon)
    if total > policy.horizon or secret == "window":
        epsilons = [policy.epsilon_at(t) for t in range(1, policy.horizon + 1)]
        window_share = max(epsilon / loss_of(epsilons), 1.0)

    def scales(promise: float) -> Sequence[float]:
        nonlocal near  # the next promise is met at nearly the same share of it
        epsilon_t = _solve_epsilon(
            lambda e: window_share * loss_of([e * factor for factor in even]),
            promise,
            near * promise,
        )
        near = epsilon_t / promise
        task.forget()
        return task.scales([epsilon_t * factor for factor in even])

    return scales


def _solve_epsilon(loss_of: Callable[[float], float], promise: float, first: float) -> float:
    """The epsilon of a step that spends what is promised: the secant method on logarithms."""
    goal, x = math.log(promise), math.log(first)
    y = math.log(loss_of(math.exp(x))) - goal
    slope = 1.0
    for _ in range(_TRIES):
        if abs(y) <= _CLOSE:
            break
        ahead = x - y / slope
        after = math.log(loss_of(math.exp(ahead))) - goal
        slope = min(max((after - y) / (ahead - x), 0.2), 2.0)
        x, y = ahead, after
    return math.exp(min(x, goal))  # a release never loses more than all of them together


def _point_at(base: Prospect, policy: Policy, scales: Scales, epsilon: float, rho: float) -> Point:
    b = np.asarray(scales(epsilon), np.float64)
    return _point(epsilon, replace(base, noise=policy.schedule.variance(b)), rho)


def _point(epsilon: float, forecast: Prospect, rho: float) -> Point:
    root = math.sqrt(len(forecast.noise))  # the paper's formula divides by it
    return Point(epsilon, forecast.with_cut(rho) * root, forecast.estimated(rho) * root)
