"""From a promise to a policy: the noise of every step, the clamp, the expected error.

Three secrets (docs/plan.md): `step`, occupancy now from this release; `interval`, occupancy at one
step from all releases, of the horizon or of an endless run of it; `window`, all that a home does in
any window of steps. `spread` distributes epsilon over the steps for least noise at equal leakage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from hushgrid._frames import DataTable, Tabular
from hushgrid._numbers import Floats, Indices, Int32s, brief, count_of, is_real
from hushgrid.accounting.composition import Cover, covers
from hushgrid.accounting.endless import FAR, MOST_STEPS
from hushgrid.accounting.temporal import (
    Leakage,
    chain_of_houses,
    of_chains,
    worst_leakage,
)
from hushgrid.errors import PlanError, PolicyError
from hushgrid.mechanism.policy import Blocks, Policy, assumptions, per_step, weaker_promise
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import STEPS_PER_DAY, OccupancyModel
from hushgrid.model.zone import Tariff, Zone, ZoneTerms
from hushgrid.planning.clamp import MOST_CUT, choose_clamp
from hushgrid.planning.expected_error import RHO, Prospect, bill_change, block_filter, prospect
from hushgrid.planning.task import (
    ROUNDING,
    Secret,
    Task,
    ZoneModels,
    borders,
    loss_classes,
    spending,
    spread,
)
from hushgrid.planning.windows import WindowOption, promise_words, window_policy

_WIDTH = 1e-6  # relative width at which a search for epsilon stops
_PLANNING_ROUNDS = 2  # of choosing a clamp for an epsilon and an epsilon for the clamp


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Tabular):
    """A promise, the policy that keeps it, and what it will cost.

    Attributes:
        secret: What the promise protects.
        epsilon: The promised epsilon.
        policy: The policy that keeps the promise.
        scale: (T,): scale of the noise at every step [Wh].
        epsilon_any: The largest loss of a release to an adversary with any prior.
        distinct_losses: (rows, kinds): the different losses of releases about houses of each kind.
        row_of_step: (T,): the row of `distinct_losses` of each step.
        kind_of: (houses,): the column of `distinct_losses` of each house.
        leakage: The worst total leakage about one step of one house; None where releases have no
            epsilon of their own.
        house: The house where the promise binds.
        step: The step where the promise binds, from 1.
        prospect: Parts of the expected error.
        assumptions: What must hold for the promise to hold, in sentences.
        running: Whether leakage was counted over an endless run, in which the horizon's releases
            repeat; else over the horizon on its own.
        clamp: The policy's clamp as a zone file gives it, in net Wh.
        bill_change: How much noise changes a home's bill of a month at raw prices, in the density
            class where it changes most: as expected, and at most with 95 %, as shares of it.
        window: Of the secret window, the steps that a window touches.
        options: Of the secret window, the lengths of blocks that were tried.
        reach: The most that a home, or homes that move together, can add to a load [Wh].
        seconds: Length of a step [s].
    """

    secret: Secret
    epsilon: float
    policy: Policy
    scale: tuple[float, ...]
    epsilon_any: float
    distinct_losses: Floats
    row_of_step: Indices
    kind_of: Int32s
    leakage: float | None
    house: int
    step: int
    prospect: Prospect
    assumptions: tuple[str, ...]
    running: bool = False
    clamp: Clamp = ()
    bill_change: tuple[float, float] = (0.0, 0.0)
    window: int | None = None
    options: tuple[WindowOption, ...] = ()
    reach: int = 0
    seconds: int = 900

    def __repr__(self) -> str:
        promise = promise_words(self.secret, self.epsilon, self.window, self.seconds)
        houses = count_of("house", len(self.kind_of))
        return brief(self, houses, promise, names=("epsilon_any", "leakage", "house", "step"))

    def _table(self) -> DataTable:
        """A row a step: its block, noise and expected load [Wh], and what its release may lose."""
        lengths = self.policy.schedule.lengths or (1,) * len(self.scale)
        columns = {
            "block": np.repeat(np.arange(1, len(lengths) + 1), lengths),
            "scale": self.scale,
            "noise": np.sqrt(self.prospect.noise),
            "load": self.prospect.load - self.prospect.offset,
            "epsilon": self.epsilon_t,
            "loss": self.largest_losses,
        }
        return DataTable("step", range(1, len(self.scale) + 1), columns)

    @property
    def losses(self) -> Floats:
        """(T, houses): the loss of each release about each house."""
        return self.distinct_losses[:, self.kind_of][self.row_of_step]

    @property
    def largest_losses(self) -> Floats:
        """(T,): the loss of each release about the house that loses most."""
        return np.asarray(self.distinct_losses.max(axis=1)[self.row_of_step])

    @property
    def epsilon_t(self) -> tuple[float, ...]:
        """Epsilon of every release; its loss under rules that bound less."""
        epsilons = tuple(self.policy.epsilon_at(t) for t in range(1, self.policy.horizon + 1))
        if not weaker_promise(self.policy):
            return epsilons
        largest_losses = self.largest_losses.tolist()
        return tuple(max(pair) for pair in zip(epsilons, largest_losses, strict=True))

    @property
    def usual(self) -> float:
        """What a typical home uses in a step [Wh]: the policy's usual, else as models expect."""
        expected = float(self.prospect.load.mean()) - self.prospect.offset
        return self.policy.usual or abs(expected) / len(self.kind_of)

    def covers(self, seconds: int) -> tuple[Cover, ...]:
        """What all prices can say about a home in a day, two weeks and so on, all else known.

        The steps of the plan repeat for ever. No occupancy model and no law of readings is used.

        Args:
            seconds: Length of a step [s].

        Returns:
            One for each duration; where a release has no noise, without a bound.
        """
        schedule = self.policy.schedule
        lengths = schedule.lengths or (1,) * len(self.scale)
        starts = np.cumsum((0, *lengths[:-1]))
        scale = np.array(self.scale)[starts]
        losses = np.full(len(starts), math.inf)
        np.divide(self.reach, scale, out=losses, where=scale > 0)
        return covers(
            lengths,
            losses.tolist(),
            seconds=seconds,
            typical=min(self.usual / self.reach, 1.0),
            window=None if self.window is None else (self.window, self.epsilon),
        )

    def leaked_by(self, models: Sequence[OccupancyModel], steps: int) -> float | None:
        """What the first releases say about one step of one house.

        Args:
            models: Theta.
            steps: How many releases; all where there are fewer.

        Returns:
            The largest leakage; None where a release has no bound of its own.
        """
        if not np.isfinite(self.distinct_losses).all():
            return None
        lengths = self.policy.first(steps).schedule.lengths
        kinds, class_of = loss_classes(self.distinct_losses)
        return worst_leakage(
            models, kinds[self.row_of_step[:steps]], class_of[self.kind_of], lengths=lengths
        ).total


def plan(
    zone: Zone,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    *,
    secret: Secret,
    epsilon: float,
    terms: Policy | None = None,
    rho: float | None = RHO,
    most_cut: float = MOST_CUT,
    slotwise: bool | None = False,
    running: bool = False,
    blocks: bool = False,
    block: int | None = None,
    window: int | None = None,
    seconds: int = 900,
) -> Plan:
    """The policy of least noise that keeps a promise about a secret.

    Args:
        zone: The houses and their contract bounds [Wh].
        tariff: The rate of a load.
        models: Occupancy models (Theta).
        consumption: The laws of a reading.
        secret: What the promise protects.
        epsilon: The promised epsilon.
        terms: Eta, the horizon and the rules; its epsilon is ignored.
        rho: Relative error to expect of the model; None keeps the contract bounds (or the terms'
            own clamp).
        most_cut: The largest share of the zone's expected energy that a chosen clamp may cut off.
        slotwise: Spend more epsilon at times of day when occupancy changes quickly; None: for an
            interval without blocks of steps, where that is quick.
        running: Count leakage (the secret interval) over an endless run: the horizon's releases
            repeat, and so do the calendars, while the chain goes on. Noise is then for houses that
            are uncertain in any turn. Else the horizon is counted on its own.
        blocks: Let noise last blocks of steps where that makes less of it: at eta = 1, for an
            interval.
        block: Steps of every block of an interval or a window, where that is not left to the plan.
        window: Of the secret window: the steps that a window touches. Noise lasts the terms' own
            blocks, or those with which the estimate has the least error; eta is 1.
        seconds: Length of a step [s].

    Returns:
        The plan.

    Raises:
        PlanError: If the promise cannot be kept with these terms, or if leakage is not forgotten in
            an endless run.
        PolicyError: If an argument is out of its range.

    >>> from hushgrid.model.laws import Uniform
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> planned = plan(Zone("z", [1000]), Tariff(1.0, 62.5), [theta], f, secret="interval",
    ...              epsilon=1.0, rho=None)
    >>> round(planned.policy.epsilon, 4)
    0.1691
    """
    terms = Policy(1.0) if terms is None else terms
    world = (models, zone, consumption)
    if secret == "window":
        return _of_windows(world, tariff, epsilon, terms, rho, most_cut, window, block, seconds)
    joint = blocks and block != 1 and terms.eta == 1 and secret == "interval"
    if slotwise is None:
        quick = _by_slot_is_quick(world, terms) and not (running and terms.horizon % _turn(models))
        slotwise = secret == "interval" and not joint and quick
    _check(secret, epsilon, terms)
    if running:
        _check_running(secret, terms.horizon, _turn(models), slotwise)
    bare = replace(terms, epsilon=epsilon)
    task = Task(world, tariff, bare, epsilon if running else None, seconds=seconds)
    if running:
        task.run.check(epsilon)
    best = _solved(task, secret, epsilon, slotwise, joint, block)
    if rho is not None:
        for _ in range(_PLANNING_ROUNDS):
            clamp = choose_clamp(*world, best.policy, rho, most_cut).clamp
            if clamp == best.policy.clamp:
                break
            cut = Task(world, tariff, replace(bare, clamp=clamp), task.endless, seconds=seconds)
            rival = _solved(cut, secret, epsilon, slotwise, joint, block)
            if rival.prospect.chosen_by(rho) >= best.prospect.chosen_by(rho):
                break
            if rival.prospect.least(rho) > best.prospect.least(rho):
                break
            best = rival
    return _never_more(world, tariff, best)


def _of_windows(
    world: ZoneModels,
    tariff: Tariff,
    epsilon: float,
    terms: Policy,
    rho: float | None,
    most_cut: float,
    window: int | None,
    block: int | None,
    seconds: int,
) -> Plan:
    """The plan of a promise about everything in any window: even blocks, whatever the models."""
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"epsilon is {epsilon}; give a positive number.")
    if window is None or window < 1:
        raise PlanError(f"window is {window}; give the steps that a window touches, 1 or more.")
    if terms.eta != 1:
        raise PlanError(
            f"eta is {terms.eta:g} for the secret window, which trusts no law of consumption; give"
            " eta = 1."
        )
    policy, options = window_policy(
        world, tariff, terms, epsilon, window,
        rho=rho, most_cut=most_cut, block=block, seconds=seconds,
    )  # fmt: skip
    draft = _plan_of(Task(world, tariff, policy, seconds=seconds), "window", epsilon)
    return replace(draft, leakage=epsilon, window=window, options=options)


def _never_more(world: ZoneModels, tariff: Tariff, draft: Plan) -> Plan:
    """The plan with the leakage of its endless run counted from above.

    Raises:
        PlanError: What is counted from above and from nothing does not meet.
    """
    if not draft.running:
        return draft
    task = Task(world, tariff, draft.policy, draft.epsilon)
    leakage = task.most([draft.policy.epsilon_at(t) for t in range(1, task.horizon + 1)])
    if math.isinf(leakage):
        raise PlanError(
            f"epsilon is {draft.epsilon:g} for an interval: with releases at the noise that it"
            f" allows, leakage is not forgotten in {task.run.turn * task.run.turns} steps, so no"
            " plan covers an endless run; give a smaller epsilon, or plan the horizon on its own."
        )
    return replace(draft, leakage=leakage)


def examine(
    zone: Zone,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    policy: Policy,
    *,
    secret: Secret = "step",
    epsilon: float | None = None,
    seconds: int = 900,
    window: int | None = None,
) -> Plan:
    """The plan of a given policy: its losses and expected error, without a search.

    Args:
        zone: The houses and their contract bounds [Wh].
        tariff: The rate of a load.
        models: Occupancy models (Theta).
        consumption: The laws of a reading.
        policy: The policy.
        secret: What the promise protects.
        epsilon: What is promised about the secret; by default the policy's epsilon.
        seconds: Length of a step [s].
        window: Of the secret window: the steps that a window touches.

    Returns:
        The plan, of the horizon on its own.
    """
    promised = policy.epsilon if epsilon is None else epsilon
    world = (models, zone, consumption)
    task = Task(world, tariff, policy, any_rules=True, seconds=seconds)
    return replace(_plan_of(task, secret, promised), window=window)


def _by_slot_is_quick(world: ZoneModels, terms: Policy) -> bool:
    """Whether a schedule by the time of day is worked out, and takes seconds and not minutes."""
    models, zone, consumption = world
    if any(piece.size > 1 for model in models for piece in model.chains):
        return False
    laws = np.unique(np.stack([consumption.class_of, zone.bound]), axis=1).shape[1]
    return terms.eta == 1 or laws <= _QUICK_LAWS


_QUICK_LAWS = 64


def _turn(models: Sequence[OccupancyModel]) -> int:
    return math.lcm(*(len(model.calendar.slots) for model in models))


def check_blocks(
    terms: ZoneTerms,
    policy: Policy,
    *,
    secret: Secret,
    epsilon: float,
    running: bool = False,
    seconds: int = 900,
) -> Plan:
    """The plan of a given policy with blocks of steps, if it keeps a promise.

    Args:
        terms: The zone, its tariff, Theta and the laws of a reading.
        policy: The policy.
        secret: What the promise protects, a step or an interval.
        epsilon: What is promised.
        running: As for `plan`.
        seconds: Length of a step [s].

    Returns:
        The plan.

    Raises:
        PlanError: If the blocks lose more.
    """
    zone, tariff, models, consumption = terms
    world = (models, zone, consumption)
    task = Task(world, tariff, policy, FAR if running else None, seconds=seconds)
    if running:
        task.run.check(epsilon)
    draft = _plan_of(task, secret, epsilon)
    loss = spending(task, secret)(draft.epsilon_t)
    if loss > epsilon * (1 + ROUNDING):
        raise PlanError(
            f"policy block_epsilon lets releases say {loss:.6g} about one {secret} where"
            f" {epsilon:g} is promised; give smaller ones, as hushgrid plan --blocks prints them."
        )
    return _never_more(world, tariff, draft)


def _check_running(secret: Secret, horizon: int, turn: int, uneven: bool) -> None:
    if secret != "interval":
        raise PlanError(
            f"an endless run is asked for the secret {secret}; leakage across horizons is counted"
            " for the secret interval."
        )
    if uneven and horizon % turn:
        raise PlanError(
            f"the horizon is {horizon} steps, no whole number of turns of the calendars ({turn}),"
            " so repeating an uneven schedule puts it at other times of the day; give a multiple,"
            " or an even schedule."
        )


def _check(secret: Secret, epsilon: float, terms: Policy) -> None:
    if secret not in get_args(Secret):
        raise PolicyError(f"secret is {secret!r}; give one of {', '.join(get_args(Secret))}.")
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"epsilon is {epsilon}; give a positive number.")
    if terms.horizon > MOST_STEPS:
        raise PlanError(f"horizon is {terms.horizon}; plan at most {MOST_STEPS} steps at a time.")
    if any(terms.schedule.terms.values()):
        raise PlanError(
            "the terms already share out a budget (epsilon_t or block_steps); give terms without"
            " them."
        )
    if terms.on_empty == "publish_exact":
        raise PlanError(
            "policy on_empty is publish_exact, which promises nothing where Theta is wrong;"
            " give protect_all."
        )


def _solved(
    task: Task,
    secret: Secret,
    epsilon: float,
    slotwise: bool,
    joint: bool,
    block: int | None,
) -> Plan:
    """The largest epsilons a step that keep the promise; with `joint` also in blocks of steps."""
    loss_of = spending(task, secret)
    even = [1.0] * task.horizon
    epsilons = _largest(task, loss_of, even, epsilon)
    if slotwise and secret != "step":
        weights = prospect(
            task.models, task.consumption, task.tariff, task.policy, task.scales(epsilons)
        ).weights
        shape = _shape(task, epsilons, weights, epsilon)
        rival = _largest(task, loss_of, shape, epsilon)
        if _cost(task, rival, weights) < _cost(task, epsilons, weights):
            epsilons = rival
    top = max(epsilons)
    uneven = () if min(epsilons) == top else tuple(epsilons)
    policy = replace(task.policy, epsilon=top, schedule=per_step(uneven))
    world = (task.models, task.zone, task.consumption)
    best_task = Task(world, task.tariff, policy, task.endless, seconds=task.seconds)
    best = _plan_of(best_task, secret, epsilon)
    alone = best.prospect.with_cut()
    for number, (lengths, losses) in enumerate(_blocks(task, best, block) if joint else ()):
        if number == 1 and best.prospect.with_cut() * _GAIN < alone:
            break  # those made for the chain do more than equal ones can
        bare = replace(policy, epsilon=max(losses), schedule=Blocks(lengths, losses))
        block_task = Task(world, task.tariff, bare, task.endless, seconds=task.seconds)
        epsilons = _largest(
            block_task, spending(block_task, secret), bare.schedule.epsilons, epsilon
        )
        block_policy = replace(
            bare, epsilon=max(epsilons), schedule=bare.schedule.with_epsilons(tuple(epsilons))
        )
        block_task = Task(world, task.tariff, block_policy, task.endless, seconds=task.seconds)
        block_plan = _plan_of(block_task, secret, epsilon)
        if block is not None or block_plan.prospect.with_cut() < best.prospect.with_cut():
            best = block_plan
    return best


def _blocks(
    task: Task, even: Plan, block: int | None
) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Blocks of steps to try, the best for one chain first: lengths, and losses up to a factor."""
    horizon, day = task.horizon, min(task.horizon, STEPS_PER_DAY)
    candidates = []
    for length in _LENGTHS if block is None else (block,):
        number, remainder = divmod(horizon, length)
        lengths = (length,) * number + ((remainder,) if remainder else ())
        candidates.append((lengths, (1.0,) * len(lengths)))
    joined = any(piece.size > 1 for model in task.models for piece in model.chains)
    if block is not None or joined or horizon % day:
        return candidates
    lengths, losses = _of_a_day(task, even, day)
    if sum(lengths) == day:  # else the grid was too coarse for any
        times = horizon // day
        candidates.insert(0, (lengths * times, losses * times))
    return candidates


_LENGTHS = (2, 4, 6, 8, 12, 24)
_GAIN = 2.0  # of the error. Equal blocks come to 1.7; those of one chain's day can fail others
_SETTLED = 14  # days after which a chain's law at a time of day is taken for its own


def _of_a_day(task: Task, even: Plan, day: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The best blocks of one day for the chain that limits the plan, day after day if so."""

    def leakage(model: OccupancyModel, e: Floats, lengths: Sequence[int] = ()) -> Leakage:
        chain = chain_of_houses(model)[[even.house]]
        return of_chains(model, 0, e[:, None], chain, lengths)

    e = np.array(even.epsilon_t)
    model = max(task.models, key=lambda candidate: float(leakage(candidate, e).total.max()))
    piece = model.chains[0]
    chain = int(chain_of_houses(model)[even.house])
    slots = model.calendar.slots[np.arange(day + 1) % len(model.calendar.slots)]
    moves, law = piece.transition[slots, chain], piece.initial[chain]
    weights = even.prospect.weights[:day]
    if task.endless is None and task.horizon == day:
        moves[0] = np.eye(2)
        return borders(law, moves, weights, even.epsilon, (0.0, 0.0))
    for _ in range(_SETTLED):
        for a in moves[1:]:
            law = law @ a
    inflow = (0.0, 0.0)
    for _ in range(2):
        lengths, losses = borders(law, moves, weights, even.epsilon, inflow)
        if sum(lengths) == day:
            around = leakage(model, np.tile(np.repeat(losses, lengths), 3), lengths * 3)
            inflow = float(around.backward[day - 1, 0]), float(around.forward[2 * day, 0])
    return lengths, losses


def _largest(
    task: Task, loss_of: Callable[[Sequence[float]], float], shape: Sequence[float], epsilon: float
) -> list[float]:
    """shape times the largest factor that keeps the promise, by bisection on the logarithm.

    For an uneven shape by secants between the ends of the bracket (the Illinois rule), in a third
    of the time; an even one by halves, whose figures the documents print.
    """
    top, even = max(shape), min(shape) == max(shape) and not task.lengths

    def scaled(factor: float) -> list[float]:
        return [factor * part / top for part in shape]

    low, high = epsilon / (task.horizon * 4), epsilon
    above = loss_of(scaled(high))
    if above <= epsilon:
        return scaled(high)
    while (below := loss_of(scaled(low))) > epsilon:
        low /= 4
    under, over, last = math.log(below / epsilon), math.log(min(above / epsilon, 1e6)), 0
    while high / low - 1 > _WIDTH:
        middle = math.sqrt(low * high)
        if not even and under < 0:
            secant = low * (high / low) ** (under / (under - over))
            middle = min(max(secant, low * (1 + _WIDTH / 2)), high / (1 + _WIDTH / 2))
        now = loss_of(scaled(middle))
        task.forget()
        if now <= epsilon:
            low, under, over = middle, math.log(now / epsilon), over / (1 + (last < 0))
            last = -1
        else:
            high, over, under = middle, math.log(now / epsilon), under / (1 + (last > 0))
            last = 1
    return scaled(low)


def _shape(task: Task, epsilons: Sequence[float], weights: Floats, epsilon: float) -> list[float]:
    """How to spread the epsilons over the steps."""
    b, e = np.array(task.scales(epsilons)), np.array(epsilons)
    costs = weights * (b * e) ** 2
    shares = task.losses(epsilons) / e[:, None]
    return [float(x) for x in spread(task.kinds.models, shares, costs, epsilons, epsilon)]


def _cost(task: Task, epsilons: Sequence[float], weights: Floats) -> float:
    return float(weights @ np.square(task.scales(epsilons)))


def _plan_of(task: Task, secret: Secret, epsilon: float) -> Plan:
    policy = task.policy
    epsilons = [policy.epsilon_at(t) for t in range(1, task.horizon + 1)]
    calibrations = [task.scheduler.at(t, (), e) for t, e in enumerate(epsilons, 1)]
    distinct, row = task.distinct_losses(epsilons)
    leakage, step = None, 1
    if np.isfinite(distinct).all():
        leakage, step, house = task.leakage(epsilons)
    if secret != "interval" or leakage is None:
        losses = distinct[row]
        least = np.maximum([c.scale for c in calibrations], policy.min_scale)  # 0: exact
        reach = task.scheduler.zone.bound / least[:, None]
        finite = np.where(np.isinf(losses), reach**2, losses)
        by = finite.max(axis=0)
        ties = np.flatnonzero(by >= by.max() * (1 - 1e-12))
        kind = int(ties[task.scheduler.zone.bound[ties].argmax()])
        house, step = int(task.kinds.first[kind]), int(finite[:, kind].argmax()) + 1
    scales = tuple(c.scale for c in calibrations)
    blocks = block_filter(policy, secret, task.seconds)
    ahead = prospect(task.models, task.consumption, task.tariff, policy, scales, blocks)
    return Plan(
        secret,
        epsilon,
        policy,
        scales,
        max(c.epsilon_any for c in calibrations),
        distinct,
        row,
        task.kinds.kind_of,
        leakage,
        house,
        step,
        ahead,
        assumptions(
            secret, policy, task.consumption, len(task.models), exports=task.zone.offset > 0
        ),
        task.endless is not None,
        task.net_clamp,
        bill_change(
            ahead, task.tariff, task.models, task.consumption, task.zone.export, task.seconds
        ),
        reach=task.scheduler.exposure(1).reach,
        seconds=task.seconds,
    )
