"""Scales, losses and leakage of one zone under one policy, for a search for epsilon.

`spread` distributes epsilon over the steps for least noise at equal leakage, `borders` cuts a day
into the blocks of steps that are best for one chain (docs/proofs/blocks-of-steps.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Indices, Int32s
from hushgrid.accounting.endless import FAR, Endless, turn_of
from hushgrid.accounting.temporal import (
    chain_of_houses,
    of_chains,
    same_labels,
    temporal_leakage,
    worst_leakage,
)
from hushgrid.belief.filter import carried_leakage
from hushgrid.errors import PlanError
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.scheduler import Scheduler, exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import STEPS_PER_DAY, OccupancyModel, check_models
from hushgrid.model.zone import Tariff, Zone, offset_tariff

ROUNDING = 1e-7  # relative, of losses in a file

ZoneModels = tuple[Sequence[OccupancyModel], Zone, Consumption]


class Kinds(NamedTuple):
    """A house for each kind: houses of one kind have the same chains, density class and limits.

    Noise, losses and leakage are the same for all houses of a kind.

    Attributes:
        models: Theta of these houses.
        zone: These houses and their bounds.
        consumption: The laws of their readings at the usual demand.
        kind_of: The kind of each house, (N,).
        first: The first house of each kind, (kinds,), ascending.
    """

    models: tuple[OccupancyModel, ...]
    zone: Zone
    consumption: Consumption
    kind_of: Int32s
    first: Indices


@lru_cache(maxsize=4)
def _kinds(models: tuple[OccupancyModel, ...], zone: Zone, consumption: Consumption) -> Kinds:
    """The kinds of houses of a zone; each house is its own kind where houses move together."""
    consumption.check_fits(zone.bound)
    check_models(models, zone.n_houses)
    usual = replace(consumption, elasticity=None)
    if any(piece.size > 1 for model in models for piece in model.chains):
        houses = np.arange(zone.n_houses)
        return Kinds(models, zone, usual, houses.astype(np.int32), houses)
    chains = [chain_of_houses(model) for model in models]
    kind, first = same_labels([*chains, consumption.class_of, zone.bound, zone.export])
    order = np.argsort(first)
    first, kind_of = first[order], np.argsort(order).astype(np.int32)[kind]
    members = np.arange(len(first), dtype=np.int32)[:, None]
    representatives = tuple(
        replace(model, chains=(replace(model.chains[0], members=members, chain_of=chain[first]),))
        for model, chain in zip(models, chains, strict=True)
    )
    alone = Zone(zone.id, zone.bound[first], zone.export[first])
    return Kinds(
        representatives, alone, replace(usual, class_of=usual.class_of[first]), kind_of, first
    )


def _rules(policy: Policy) -> Policy:
    """The part of a policy that exposures depend on."""
    return Policy(
        1.0,
        blocks=policy.blocks,
        models=policy.models,
        on_empty=policy.on_empty,
        clamp=policy.clamp,
    )


_exposures = lru_cache(maxsize=4)(exposures_of)  # of many tasks

_endless = lru_cache(maxsize=4)(Endless)


class Task:
    """Scales, losses and leakage of one zone under one policy, cached during a search for epsilon.

    All is worked out for one house of each kind (`kinds`).

    Args:
        world: Models, zone and consumption.
        tariff: The rate of a load.
        policy: Eta, the horizon, the rules and the clamp.
        endless: What is promised about an interval in an endless run, above which leakage is not
            counted; None: the horizon on its own.
        any_rules: Accept rules that bound less than the loss about a house.
        seconds: Length of a step [s].
    """

    def __init__(
        self,
        world: ZoneModels,
        tariff: Tariff,
        policy: Policy,
        endless: float | None = None,
        *,
        any_rules: bool = False,
        seconds: int = 900,
    ) -> None:
        self.seconds = seconds
        self.models, self.zone, self.consumption = world
        self.tariff = offset_tariff(self.zone, tariff, self.consumption)
        self.policy, self.endless = policy, endless
        # demand that answers rates is planned for at its usual size; losses are then capped
        self.capped = self.consumption.reacts and policy.eta < 1
        self.kinds = _kinds(tuple(self.models), self.zone, self.consumption)
        models, steps = self.kinds.models, policy.horizon
        if endless is not None:
            laws = () if policy.eta == 1 else (len(self.consumption.calendar.slots),)
            turn = turn_of(models, policy.horizon, *laws)
            steps = turn * -(-STEPS_PER_DAY // turn)  # few and long turns are counted faster
            self.run = _endless(models, steps)
            models = self.run.later
        exposures = _exposures(models, *self.kinds[1:3], _rules(policy))
        if exposures.booked() is not exposures and not any_rules:
            raise PlanError(
                f"policy blocks and models are {policy.blocks} and {policy.models}, which bound"
                " less than what a release loses about a house; give the rules block and union."
            )
        if endless is not None:  # epsilons are asked for by the step, of every step
            policy = replace(policy, horizon=steps, schedule=policy.schedule.over(steps))
        self.lengths = policy.schedule.lengths  # blocks of steps, of all that count; empty: none
        self.scheduler = Scheduler(exposures, policy)
        self._span = policy.schedule.span
        self._like: dict[tuple[int, int], int] = {}
        self._kinds: list[int] = []
        self._losses: dict[tuple[int, float, float], Floats] = {}

    @property
    def net_clamp(self) -> Clamp:
        """The policy's clamp in net Wh, of each class."""
        exports = np.zeros(self.consumption.absent.shape[1], np.int64)
        np.maximum.at(exports, self.kinds.consumption.class_of, self.kinds.zone.export)
        pairs = (
            list(zip(self.policy.clamp, exports.tolist(), strict=True)) if self.policy.clamp else []
        )
        return tuple((at[0] - v, at[1] - v) if isinstance(at, tuple) else at - v for at, v in pairs)

    @property
    def horizon(self) -> int:
        """Steps."""
        return self.policy.horizon

    def scales(self, epsilons: Sequence[float]) -> list[float]:
        """The scale of every step at its epsilon."""
        keys, scale_of = self._keys(epsilons), dict[tuple[int, float], float]()
        for t, key in enumerate(keys, 1):
            if key not in scale_of:
                scale_of[key] = self.scheduler.at(t, (), key[1]).scale
        return [scale_of[key] for key in keys]

    def _keys(self, epsilons: Sequence[float]) -> list[tuple[int, float]]:
        """For every step the first one with the same exposure, and its epsilon."""
        for t in range(len(self._kinds) + 1, len(epsilons) + 1):
            first, _ = self._span(t)
            if first < t:  # steps of a block share their exposure
                self._kinds.append(self._kinds[first - 1])
            else:
                exposures = (id(self.scheduler.exposure(t)), id(self.scheduler.booked(t)))
                self._kinds.append(self._like.setdefault(exposures, t))
        return list(zip(self._kinds, epsilons, strict=False))

    def losses(self, epsilons: Sequence[float]) -> Floats:
        """(T, kinds): the loss of every release about a house of every kind."""
        distinct, row = self.distinct_losses(epsilons)
        return distinct[row]

    def distinct_losses(self, epsilons: Sequence[float]) -> tuple[Floats, Indices]:
        """The distinct losses (rows, kinds) of releases, and the row of every step."""
        rows: dict[bytes, int] = {}  # by content: each block of steps has its own array
        distinct: list[Floats] = []
        row_of: dict[tuple[int, float], int] = {}
        keys = self._keys(epsilons)
        for t, (step, b) in enumerate(zip(keys, self.scales(epsilons), strict=True), 1):
            if step in row_of:
                continue
            epsilon = step[1]
            key = (id(self.scheduler.booked(t)), b, epsilon if self.capped else 0.0)
            if key not in self._losses:
                loss = self.scheduler.losses(t, b)
                self._losses[key] = np.where(loss > 0, epsilon, 0.0) if self.capped else loss
            loss = self._losses[key]
            row_of[step] = rows.setdefault(loss.tobytes(), len(distinct))
            if row_of[step] == len(distinct):
                distinct.append(loss)
        return np.array(distinct), np.array([row_of[step] for step in keys])

    def leakage(self, epsilons: Sequence[float]) -> tuple[float, int, int]:
        """The worst total leakage, the maximum over the models; its step from 1, and its house.

        Of an endless run counted from nothing: `epsilons` again and again, and the chain goes on.
        """
        losses, class_of = self._by_class(epsilons)
        if self.endless is not None:
            least = self.run.least(losses, class_of, self.lengths, min(self.endless, FAR))
            return least.total, least.step, int(self.kinds.first[least.house])
        worst = worst_leakage(self.kinds.models, losses, class_of, lengths=self.lengths)
        return worst.total, worst.step, int(self.kinds.first[worst.house])

    def most(self, epsilons: Sequence[float]) -> float:
        """The leakage of an endless run counted from above; infinite where it is not forgotten."""
        assert self.endless is not None
        return self.run.most(*self._by_class(epsilons), self.lengths, self.endless * (1 + ROUNDING))

    def _by_class(self, epsilons: Sequence[float]) -> tuple[Floats, Int32s]:
        """Losses (steps, classes) of all steps that count, and the class of every kind."""
        if self.endless is not None:
            epsilons = [epsilons[t % len(epsilons)] for t in range(self.run.turn)]
        distinct, row = self.distinct_losses(epsilons)
        kinds, class_of = loss_classes(distinct)
        return kinds[row], class_of

    def forget(self) -> None:
        """Drop what was kept for scales that will not come again."""
        self._losses.clear()


def loss_classes(distinct: Floats) -> tuple[Floats, Int32s]:
    """Kinds of houses that lose alike.

    Args:
        distinct: (rows, kinds): losses of releases.

    Returns:
        The different columns of losses (rows, classes), and the column of every kind.
    """
    labels = [np.unique(row, return_inverse=True)[1].astype(np.int32) for row in distinct]
    class_of, first = same_labels(labels)
    return distinct[:, first], class_of


def spending(task: Task, secret: Secret) -> Callable[[Sequence[float]], float]:
    """The quantity a promise bounds, as a function of the epsilon of every step.

    Args:
        task: The zone and the policy.
        secret: What the promise protects.

    Returns:
        A function of T epsilons; it never falls when one of them rises.
    """
    if secret == "interval":
        return lambda epsilons: task.leakage(epsilons)[0]
    return lambda epsilons: max(epsilons)


Secret = Literal["step", "interval", "window"]


_ROUNDS = 5  # of adding the houses that bind
_MORE = 6  # houses added in a round
_STEP = 1e-5  # of log e, for differences


def spread(
    models: Sequence[OccupancyModel],
    shares: Floats,
    costs: Floats,
    start: Sequence[float],
    target: float,
) -> Floats:
    """Epsilons of least noise at equal leakage, the same at the same time of each day.

    Minimises sum c_t / e_t^2 subject to TPL_t <= target for every house and step, by sequential
    quadratic programming over log e on the houses that bind; houses that come to bind are added.
    The caller scales the result until the promise holds, so privacy does not depend on it.

    Args:
        models: Occupancy models of houses that move independently.
        shares: (T, houses): a house's loss as a share of the step's epsilon.
        costs: (T,): c_t.
        start: (T,): epsilons that keep the target.
        target: The largest leakage.

    Returns:
        (T,): the epsilon of every step.

    Raises:
        PlanError: If houses of a model move together.
    """
    from scipy.optimize import minimize

    if any(piece.size > 1 for model in models for piece in model.chains):
        raise PlanError(
            "slotwise is asked for a zone with houses that move together; it is worked out for"
            " houses that move alone: leave it out, or give factored models."
        )
    horizon = len(costs)
    n = min(horizon, STEPS_PER_DAY)
    slot = np.arange(horizon) % n
    unit = float(np.mean(costs / np.square(start)))
    x = np.log(np.asarray(start, np.float64)[:n])
    active: list[tuple[int, int]] = []  # (model, house)
    for _ in range(_ROUNDS):
        worst = [
            temporal_leakage(model, np.exp(x)[slot, None] * shares).total.max(axis=0)
            for model in models
        ]
        if active and max(w.max() for w in worst) <= target * 1.001:
            break
        for m, w in enumerate(worst):
            fresh = [int(h) for h in np.argsort(-w)[:_MORE] if (m, int(h)) not in active]
            active += [(m, h) for h in fresh]

        def leaks(points: Floats, now: tuple[tuple[int, int], ...] = tuple(active)) -> Floats:
            """(points, constraints): leakage of the active houses at every step."""
            e = np.exp(points)[:, slot]
            leakages = []
            for m, model in enumerate(models):
                houses = [h for model_number, h in now if model_number == m]
                if not houses:
                    continue
                losses = e.T[:, :, None] * shares[:, None, houses]
                chains = np.tile(chain_of_houses(model)[houses], len(points))
                total = of_chains(model, 0, losses.reshape(horizon, -1), chains).total
                leakages.append(total.reshape(horizon, len(points), -1).transpose(1, 0, 2))
            return np.concatenate(leakages, axis=2).reshape(len(points), -1)

        def slope(point: Floats, leaks: Callable[[Floats], Floats] = leaks) -> Floats:
            moved = leaks(np.vstack([point, point + _STEP * np.eye(n)]))
            return np.asarray(-(moved[1:] - moved[0]).T / _STEP)

        def cost(point: Floats) -> float:
            return float(np.mean(costs * np.exp(-2 * point[slot]))) / unit

        def downhill(point: Floats) -> Floats:
            gradient = -2 * costs * np.exp(-2 * point[slot]) / horizon / unit
            return np.bincount(slot, gradient, minlength=n).astype(np.float64)

        inside = {
            "type": "ineq",
            "fun": lambda point, leaks=leaks: target - leaks(point[None])[0],
            "jac": slope,
        }
        x = minimize(  # type: ignore[no-untyped-call,unused-ignore]
            cost, x, jac=downhill, constraints=inside, method="SLSQP", options={"maxiter": 80}
        ).x
    return np.asarray(np.exp(x)[slot])


_GRID = 25  # leakages from 0 to the target

_LONGEST = 40  # steps of a block


def borders(
    law: Floats, moves: Floats, weights: Floats, target: float, inflow: tuple[float, float]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Block lengths and losses with about the least sum of w_t (L+1)(L+2)/3 / e^2.

    A dynamic programme over one house's chain: the state at a border is what has leaked backward
    into it and what may leak forward from it, both on a grid. The caller refines the losses and
    scales them until the promise holds for every house, so privacy does not depend on what is
    found here (docs/proofs/blocks-of-steps.md).

    Args:
        law: Of the house's state before the first step, (2,): the transition into it is
            `moves[0]`.
        moves: A^t of every step, and of the one after the last, (T + 1, 2, 2).
        weights: w_t of every step, (T,).
        target: The largest leakage about any step.
        inflow: Leakage of releases before the first step about the step before it, and of those
            after the last about the step after it; 0 where there are none.

    Returns:
        Steps and loss of each block.
    """
    from hushgrid._kernels.chains import best_blocks

    horizon = len(weights)
    grid = np.linspace(0.0, target, _GRID)
    longest = min(_LONGEST, horizon)
    # from step s + 1 + k to step s, and from step t - k to step t + 1; equal rows carry nothing
    back, ahead = np.full((2, horizon, longest, 2, 2), 0.5)
    laws = [law]
    for a in moves[:-1]:
        laws.append(laws[-1] @ a)
    for s in range(horizon):
        through = np.eye(2)
        for k in range(min(longest, horizon - s)):
            through = through @ moves[s + k]
            joint = laws[s][:, None] * through
            back[s, k] = (joint / np.maximum(joint.sum(axis=0), 1e-300)).T
        through = np.eye(2)
        for k in range(min(longest, s + 1)):
            through = ahead[s, k] = moves[s + 1 - k] @ through

    def carried(rows: Floats) -> Floats:
        matrices = np.repeat(rows.reshape(-1, 2, 2), _GRID, axis=0)
        leakage = np.tile(grid, len(matrices) // _GRID)
        carry = carried_leakage(leakage, matrices, np.ones((len(matrices), 2), np.bool_))
        return carry.reshape(horizon, longest, _GRID)

    first, last = (int(np.ceil(min(leak, target) / target * (_GRID - 1))) for leak in inflow)
    return best_blocks(carried(back), carried(ahead), np.cumsum([0.0, *weights]), grid, first, last)
