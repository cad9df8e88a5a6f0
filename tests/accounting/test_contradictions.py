"""Models that contradict each other: every figure for the leakage counts all losses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hushgrid import ModelError, OccupancyModel, Scenario, temporal_leakage
from hushgrid.accounting.temporal import worst_leakage
from hushgrid.audit.certificate import largest_move
from hushgrid.audit.houses import leakages
from hushgrid.audit.recompute import recompute
from hushgrid.curator.promise import outlook
from hushgrid.mechanism.policy import Policy
from hushgrid.model.occupancy import Calendar
from hushgrid.planning.planner import Plan, examine
from hushgrid.planning.tradeoff import endless_leakage
from hushgrid.report.plan import plan_figure
from tests.audit.zones import terms, week_of
from tests.curator.setups import service

EYE = [[1.0, 0.0], [0.0, 1.0]]
STEPS = 8
ALL = STEPS * 0.5  # the sum of all losses


def sure(home: float, n: int = 6, others: float = 0.5) -> OccupancyModel:
    """House 0 is at home or not for certain, and the others move as in any model."""
    stay = [[0.9, 0.1], [0.2, 0.8]]
    first = [[1 - home, home], [1 - others, others]]
    return OccupancyModel.factored(first, [[EYE, stay]], chain_of=[0] + [1] * (n - 1))


TORN = (sure(0.0), sure(1.0))


def of(found: Scenario) -> Plan:
    world = (found.zone, found.tariff, found.models, found.consumption)
    return examine(*world, Policy(0.5, horizon=STEPS))


def test_check_states_what_a_plan_states() -> None:
    """House 0 alone: certain under each model, so the models by themselves leak nothing of it."""
    zone = service(1, policy=Policy(0.5, horizon=STEPS))
    stuck = [OccupancyModel.factored([[1 - h, h]], [[EYE]]) for h in (0.0, 1.0)]
    zone = replace(zone, scenario=replace(zone.scenario, models=tuple(stuck)))
    planned = of(zone.scenario)
    assert outlook(zone).leakage_day == planned.leakage == pytest.approx(ALL)


def test_the_exported_function_refuses_them() -> None:
    """A leakage of 0 would be stated for a house about which every release says all."""
    with pytest.raises(ModelError, match="contradict each other about house 0"):
        temporal_leakage(TORN, [0.5] * STEPS)
    assert temporal_leakage(TORN[:1], [0.5] * STEPS).worst > 0


def test_among_houses_that_move() -> None:
    """The others forget; house 0 is the worst at the sum of its losses."""
    zone = service(6, policy=Policy(0.5, horizon=STEPS))
    zone = replace(zone, scenario=replace(zone.scenario, models=TORN))
    planned = of(zone.scenario)
    assert planned.house == 0
    assert outlook(zone).leakage_day == planned.leakage == pytest.approx(ALL)
    figure = plan_figure(planned, TORN)
    assert max(line.get_ydata().max() for line in figure.axes[1].lines) == pytest.approx(ALL)  # type: ignore[union-attr]
    s = zone.scenario
    assert endless_leakage(planned, (s.zone, s.tariff, TORN, s.consumption)) == math.inf
    alone = worst_leakage(TORN[0], np.full(STEPS, 0.5)).by_house
    assert alone[0] == 0  # where it is not known who is protected, the model by itself
    assert worst_leakage(TORN, planned.losses).by_house[1:] == pytest.approx(alone[1:])


def test_an_audit_states_it_too() -> None:
    given = replace(terms(horizon=STEPS, eta=1.0), models=tuple(sure(h, 5) for h in (0.0, 1.0)))
    made = recompute(week_of(given, 3), given)[0]
    (by_house,), seen = leakages([made], []), largest_move(made)
    assert by_house is not None
    assert seen is not None
    assert seen.bound == by_house.max() == by_house[0] == pytest.approx(ALL)


def test_in_a_block_of_houses() -> None:
    """The neighbour in its block moves, so that the house's own total is not 0."""
    quick = np.full((2, 2), 0.5)
    models = [
        OccupancyModel.blocked(
            [[0, 1]], [np.kron(np.eye(2)[home], [0.5, 0.5])], [[np.kron(EYE, quick)]]
        )
        for home in (0, 1)
    ]
    losses = np.full((STEPS, 2), 0.5)
    found = worst_leakage(models, losses)
    assert found.total == pytest.approx(ALL)
    assert found.by_house[0] == pytest.approx(ALL)


def test_at_a_step_without_a_release() -> None:
    """All other steps leave both states open; which model is right is disclosed all the same."""
    stay = np.array([[[0.1, 0.9], [0.1, 0.9]], [[0.9, 0.1], [0.9, 0.1]]])
    models = []
    for home in (0, 1):
        sure_at = np.eye(2)[[home, home]]
        slots = np.stack([stay[1 - home], sure_at])[:, None]
        law = [[0.9, 0.1] if home == 0 else [0.1, 0.9]]
        models.append(OccupancyModel.factored(law, slots, calendar=Calendar([0, 0, 0, 1])))
    losses = np.full((STEPS, 1), 0.5)
    losses[[3, 7]] = 0
    assert worst_leakage(models, losses).total == pytest.approx(6 * 0.5)
    assert worst_leakage(models[:1], losses).total < 0.6
