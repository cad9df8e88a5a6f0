"""The largest loss of equal blocks in an endless run, at a promise of 1 about any interval.

Golden values: the project's theory, worked out and checked apart from this code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hushgrid import Consumption, OccupancyModel, Policy, Tariff, Uniform, Zone
from hushgrid.accounting.temporal import worst_leakage
from hushgrid.errors import PlanError
from hushgrid.lab.paper import scenario
from hushgrid.mechanism.policy import Blocks, Even
from hushgrid.model.occupancy import Calendar
from hushgrid.planning.planner import _largest, check_blocks, plan
from hushgrid.planning.task import Task, spending

LAWS = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(1000)])
Times = Sequence[tuple[float, float, float]]  # from this hour on: leave, come

HOUSEHOLD: Times = (
    (0, 0.1526, 0.0003),
    (7, 0.0127, 0.6239),
    (8, 0.0894, 0.0016),
    (16, 0.0018, 0.1517),
    (23, 0.1526, 0.0003),
)
WORKERS: Times = ((0, 0.001, 0.05), (7, 0.2, 0.02), (9, 0.02, 0.01), (16.5, 0.03, 0.25))
WORKERS_AT_WEEKENDS: Times = ((0, 0.001, 0.05), (9, 0.04, 0.06))
AT_HOME: Times = ((0, 0.001, 0.1), (9, 0.05, 0.12))


def day(times: Times) -> list[list[list[float]]]:
    """The matrix into each quarter hour."""
    found = []
    for t in range(96):
        _, leave, come = [one for one in times if one[0] <= t / 4][-1]
        found.append([[1 - come, come], [leave, 1 - leave]])
    return found


def household() -> OccupancyModel:
    moves = [[a] for a in day(HOUSEHOLD)]
    return OccupancyModel.factored([[0.98, 0.02]], moves, calendar=Calendar(range(96)))


def elm_park() -> OccupancyModel:
    """The chains of examples/zone.toml, in which weekends differ."""
    weekdays = list(zip(day(WORKERS), day(AT_HOME), strict=True))
    weekend = list(zip(day(WORKERS_AT_WEEKENDS), day(AT_HOME), strict=True))
    calendar = Calendar.week(weekday=range(96), weekend=range(96, 192))
    return OccupancyModel.factored(
        [[0.05, 0.95], [0.03, 0.97]], weekdays + weekend, calendar=calendar
    )


def blocks_of(horizon: int, length: int, loss: float) -> Blocks:
    times = horizon // length
    return Blocks((length,) * times, (loss,) * times)


def papers_chain() -> OccupancyModel:
    (theta,) = scenario(0.0, 1, n=1).models
    return theta


@pytest.mark.parametrize(
    ("theta", "length", "golden"),
    [(household(), 6, 0.1911), (papers_chain(), 1, 0.0375), (elm_park(), 8, 0.1610)],
    ids=["household", "paper", "elm-park"],
)
def test_no_promise_costs_more_noise_than_it_needs(
    theta: OccupancyModel, length: int, golden: float
) -> None:
    n, horizon = theta.n_houses, 672
    laws = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(1000)], class_of=[0] * n)
    zone, tariff = Zone("z", [1000] * n), Tariff(1.0, 2.0)
    shared = blocks_of(horizon, length, 1.0) if length > 1 else Even()
    policy = Policy(1.0, horizon=horizon, schedule=shared)
    task = Task(([theta], zone, laws), tariff, policy, 1.0)
    each = _largest(task, spending(task, "interval"), [1.0] * horizon, 1.0)
    assert each[0] == pytest.approx(golden, abs=5e-5)
    stated = task.most(each)
    lengths = shared.lengths * 20
    long = worst_leakage(theta, np.tile(each, 20), lengths=lengths).total
    assert long <= stated <= 1 + 1e-7
    assert stated == pytest.approx(long, rel=1e-6)


def test_a_week_has_no_more_noise_than_its_days() -> None:
    """A plan over a week of equal days is that of a day."""
    world = (Zone("z", [1000]), Tariff(1.0, 2.0), [household()], LAWS)
    asked = {"secret": "interval", "epsilon": 1.0, "rho": None, "running": True, "blocks": True}
    short = plan(*world, terms=Policy(1.0, horizon=96), **asked)  # type: ignore[arg-type]
    week = plan(*world, terms=Policy(1.0, horizon=672), **asked)  # type: ignore[arg-type]
    assert week.policy.schedule.lengths == short.policy.schedule.lengths * 7
    assert week.policy.epsilon == pytest.approx(short.policy.epsilon, rel=1e-5)
    even = plan(*world, terms=Policy(1.0, horizon=96), **(asked | {"blocks": False}))  # type: ignore[arg-type]
    assert week.prospect.noise.mean() * 2.5 < even.prospect.noise.mean()


def test_blocks_of_a_file_are_held_against_an_endless_run() -> None:
    world = (Zone("z", [1000]), Tariff(1.0, 2.0), [household()], LAWS)

    def checked(loss: float) -> float | None:
        policy = Policy(loss, horizon=96, schedule=blocks_of(96, 6, loss))
        return check_blocks(world, policy, secret="interval", epsilon=1.0, running=True).leakage

    leakage = checked(0.1910)
    assert leakage is not None
    assert 0.999 < leakage <= 1
    with pytest.raises(PlanError, match=r"lets releases say 1\.0[0-9]* about one interval"):
        checked(0.1920)
