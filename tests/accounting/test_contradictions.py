"""Models that contradict each other: every figure for the leakage counts all losses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hushgrid import OccupancyModel, Scenario
from hushgrid.accounting.temporal import worst_leakage
from hushgrid.audit.certificate import largest_move
from hushgrid.audit.houses import leakages
from hushgrid.audit.recompute import recompute
from hushgrid.mechanism.policy import Policy
from hushgrid.planning.planner import Plan, examine
from hushgrid.planning.tradeoff import endless_leakage
from hushgrid.report.promise import plan_figure
from hushgrid.service.promise import outlook
from tests.audit.test_watched import epoch
from tests.audit.zones import terms
from tests.service.setups import service

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
    alone = worst_leakage(TORN[0], np.full(STEPS, 0.5)).each
    assert alone[0] == 0  # where it is not known who is protected, the model by itself
    assert worst_leakage(TORN, planned.losses).each[1:] == pytest.approx(alone[1:])


def test_an_audit_states_it_too() -> None:
    given = replace(terms(horizon=STEPS, eta=1.0), models=tuple(sure(h, 5) for h in (0.0, 1.0)))
    made = recompute(epoch(given, 3), given)[0]
    (by_house,), seen = leakages([made], []), largest_move(made)
    assert by_house is not None
    assert seen is not None
    assert seen.bound == by_house.max() == by_house[0] == pytest.approx(ALL)
