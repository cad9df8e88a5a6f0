"""How a promise about an interval is shared out: epsilons over steps, and blocks of steps.

`spread` distributes epsilon over the steps for least noise at equal leakage, `borders` cuts a day
into the blocks of steps that are best for one chain (docs/proofs/blocks-of-steps.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.accounting.temporal import chain_of_houses, of_chains, temporal_leakage
from hushgrid.belief.filter import carried_leakage
from hushgrid.errors import PlanError
from hushgrid.model.occupancy import STEPS_PER_DAY, OccupancyModel

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
