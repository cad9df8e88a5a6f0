"""What a cheaper or stronger promise would cost: the plan again with one dial moved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hushgrid.accounting.epochs import running_steps
from hushgrid.accounting.temporal import contradicted, grows_without_end, temporal_leakage
from hushgrid.calendar import STEPS_PER_DAY
from hushgrid.checks import is_real
from hushgrid.clamp import RHO
from hushgrid.errors import HushgridError, PlanError
from hushgrid.occupancy import OccupancyModel
from hushgrid.planning import Plan, ZoneTerms, plan
from hushgrid.policy import Policy

ETAS = (0.0, 0.01, 0.05, 0.2, 1.0)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the one asked for
HOUSES = (0.25, 0.5, 1.0, 4.0, 16.0)  # times as many

_MOST_STEPS = 30_000  # after so many steps a leakage that still grows is called unbounded


class Cell(NamedTuple):
    """One dial's position: the largest epsilon a step, and the error as a share of the load."""

    at: float
    epsilon_t: float
    error: float


def sensitivity(
    world: ZoneTerms,
    base: Plan,
    asked: Mapping[str, Any],
    progress: Callable[[], None] = lambda: None,
) -> dict[str, tuple[Cell, ...]]:
    """Tables over eta, epsilon and the number of houses; `asked` is what `plan` was asked."""
    rho = asked.get("rho")
    share_rho = RHO if rho is None else rho
    terms = asked.get("terms") or Policy(1.0)

    def cell(at: float, found: Plan) -> Cell:
        progress()
        return Cell(at, max(found.epsilon_t), found.prospect.share(share_rho))

    def again(at: float, **changed: Any) -> Iterator[Cell]:
        try:
            yield cell(at, plan(*world, **{**asked, **changed}))
        except HushgridError:  # this position of the dial cannot be planned: it has no row
            return

    etas = () if asked.get("gaussian") else ETAS
    by_eta = [c for eta in etas for c in again(eta, terms=replace(terms, eta=eta))]
    times = [base.epsilon * k for k in EPSILONS]
    by_epsilon = [c for epsilon in times for c in again(epsilon, epsilon=epsilon)]
    top, n = max(base.epsilon_t), world[0].n_houses
    by_houses = [Cell(round(n * k), top, base.prospect.share(share_rho, k)) for k in HOUSES]
    return {"eta": tuple(by_eta), "epsilon": tuple(by_epsilon), "houses": tuple(by_houses)}


def endless_leakage(found: Plan, models: Sequence[OccupancyModel]) -> float | None:
    """An upper bound on the leakage about one step if the plan is repeated for ever; may be inf.

    None where releases have no epsilon of their own, or calendars take too long to come round.
    """
    if found.leakage is None:
        return None
    e = found.losses.max(axis=1)  # of any house: a bound for all
    if any(grows_without_end(model, float(e.min())).any() for model in models):
        return float("inf")
    if contradicted(temporal_leakage(models, found.losses).total, found.losses).any():
        return float("inf")  # which model is right is never forgotten
    # whole turns of every calendar, so that a weekend is never left out
    turn = math.lcm(len(e), *(len(model.calendar.slots) for model in models))
    if turn > _MOST_STEPS:
        return None
    turns, before = 1, 0.0
    while turns * turn <= max(_MOST_STEPS, 4 * turn):
        now = temporal_leakage(models, np.tile(e, turns * turn // len(e))).worst
        if now - before <= 1e-6 * now:
            return max(now, found.leakage)
        turns, before = turns * 2, now
    return float("inf")


def running(models: Sequence[OccupancyModel], horizon: int, secret: str) -> int:
    """Steps of a run of horizons that stands for any number of them; PlanError if none does."""
    if secret != "interval":
        raise PlanError(
            f"continued is asked for the secret {secret}; leakage across horizons is counted for"
            " the secret interval."
        )
    found = running_steps(models, horizon, STEPS_PER_DAY)
    if found is None:
        raise PlanError(
            "leakage does not fade in 32 days for some house, so no promise covers horizons before"
            " and after; plan the horizon on its own, or give models in which occupancy can change."
        )
    return found


def within(world: ZoneTerms, found: Plan, asked: Mapping[str, Any], error: float) -> None:
    """Refuse a plan with more error than this share of the load: why, and what could be had."""
    rho = asked.get("rho")
    share_rho = RHO if rho is None else rho
    if not (is_real(error) and error > 0):
        raise PlanError(f"within is {error}; give a share of the load above 0, such as 0.05.")
    here = found.prospect.share(share_rho)
    if here <= error:
        return
    could = []
    epsilon = found.epsilon
    for _ in range(8):
        epsilon *= max(here / error, 1.05)
        rival = plan(*world, **{**asked, "epsilon": epsilon})
        here = rival.prospect.share(share_rho)
        if here <= error:
            could.append(f"epsilon = {epsilon:.3g} would give {here:.2%}")
            break
    n = world[0].n_houses
    times = next(
        (k for k in np.geomspace(1, 1e4, 81) if found.prospect.share(share_rho, k) <= error), None
    )
    if times is not None:
        could.append(f"{round(n * times)} such houses instead of {n} would meet it")
    reason = "noise" if found.prospect.noise.mean() > found.prospect.cut.mean() else "the clamp"
    raise PlanError(
        f"the expected error is {found.prospect.share(share_rho):.2%} of the load where"
        f" {error:.2%} is asked, most of it from {reason};"
        f" {' or '.join(could) if could else 'no epsilon or zone size tried meets it'}."
    )
