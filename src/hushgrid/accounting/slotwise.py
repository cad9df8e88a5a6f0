"""Spend where the chain mixes: epsilons by step of least noise at equal leakage.

Minimise sum c_t / e_t^2 subject to TPL_t <= target for every house and step, by sequential
quadratic programming over log e on the houses that bind; houses that come to bind are added. The
caller scales the answer until the promise holds, so nothing here is trusted for privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hushgrid.accounting.temporal import of_chains, temporal_leakage
from hushgrid.arrays import Floats, Indices
from hushgrid.calendar import STEPS_PER_DAY
from hushgrid.errors import PlanError
from hushgrid.occupancy import OccupancyModel

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
    """Epsilons for every step, the same at the same time of each day.

    `shares` (T, houses): a house's loss as a share of the step's epsilon; `costs` c_t; `start`:
    epsilons that hold.
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
            found = []
            for m, model in enumerate(models):
                houses = [h for own, h in now if own == m]
                if not houses:
                    continue
                each = e.T[:, :, None] * shares[:, None, houses]
                chains = np.tile(model.chains[0].chain_of[_order(model)[houses]], len(points))
                total = of_chains(model, 0, each.reshape(horizon, -1), chains).total
                found.append(total.reshape(horizon, len(points), -1).transpose(1, 0, 2))
            return np.concatenate(found, axis=2).reshape(len(points), -1)

        def slope(point: Floats, leaks: Callable[[Floats], Floats] = leaks) -> Floats:
            moved = leaks(np.vstack([point, point + _STEP * np.eye(n)]))
            return np.asarray(-(moved[1:] - moved[0]).T / _STEP)

        def cost(point: Floats) -> float:
            return float(np.mean(costs * np.exp(-2 * point[slot]))) / unit

        def downhill(point: Floats) -> Floats:
            each = -2 * costs * np.exp(-2 * point[slot]) / horizon / unit
            return np.bincount(slot, each, minlength=n).astype(np.float64)

        inside = {
            "type": "ineq",
            "fun": lambda point, leaks=leaks: target - leaks(point[None])[0],
            "jac": slope,
        }
        x = minimize(  # type: ignore[no-untyped-call,unused-ignore]
            cost, x, jac=downhill, constraints=inside, method="SLSQP", options={"maxiter": 80}
        ).x
    return np.asarray(np.exp(x)[slot])


def _order(model: OccupancyModel) -> Indices:
    """Block of each house, where every house is a block."""
    return np.argsort(model.chains[0].members[:, 0])
