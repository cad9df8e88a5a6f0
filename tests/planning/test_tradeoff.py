"""The picture of error against promise, held against `plan`, which searches in another way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hushgrid import Consumption, Gamma, OccupancyModel, PlanError, Policy, Tariff, Zone
from hushgrid.planning.planner import plan
from hushgrid.planning.tradeoff import TIMES, Tradeoff, tradeoff

N, STEPS = 50, 24
E = [[0.9, 0.1], [0.2, 0.8]]
THETA = OccupancyModel.factored([[0.5, 0.5]], [[E]], chain_of=[0] * N)
F = Consumption.by_class(
    absent=[Gamma(2.0, 40.0, 2500)], present=[Gamma(2.0, 150.0, 2500)], class_of=[0] * N
)
WORLD: Any = (Zone("z", [2500] * N), Tariff(1.0, 2.0), [THETA], F)
TERMS = Policy(1.0, horizon=STEPS, eta=0.2)


def planned(secret: Any, epsilon: float, eta: float, **more: Any) -> Any:
    return plan(
        *WORLD, secret=secret, epsilon=epsilon, terms=replace(TERMS, eta=eta), rho=None, **more
    )


def found(secret: Any, epsilon: float = 1.0, **more: Any) -> tuple[Any, Tradeoff]:
    own = planned(secret, epsilon, 0.2)
    return own, tradeoff(WORLD, own.policy, secret=secret, epsilon=epsilon, **more)


@pytest.mark.parametrize("secret", ["step", "interval"])
def test_every_curve_is_what_a_plan_would_say(secret: Any) -> None:
    """Within 0.5 per cent: the search for an epsilon stops at 0.2 per cent of the promise."""
    own, picture = found(secret)
    assert [curve.eta for curve in picture.curves] == [0.0, 0.05, 0.2, 1.0]
    root = np.sqrt(STEPS)
    assert picture.point.raw == pytest.approx(own.prospect.with_cut() * root, rel=1e-9)
    assert picture.point.estimated == pytest.approx(own.prospect.estimated() * root, rel=1e-9)
    assert picture.forecast == pytest.approx(own.prospect.forecast() * root, rel=1e-9)
    for curve in picture.curves:
        for i in (0, 6, 12):
            there = planned(secret, TIMES[i], curve.eta).prospect
            assert curve.points[i].epsilon == TIMES[i]
            assert curve.points[i].raw == pytest.approx(there.with_cut() * root, rel=0.005)
            assert curve.points[i].estimated == pytest.approx(there.estimated() * root, rel=0.005)


@pytest.mark.parametrize("secret", ["step", "interval"])
def test_less_privacy_or_more_trust_costs_less(secret: Any) -> None:
    _, picture = found(secret)
    for curve in picture.curves:
        for weaker, stronger in pairwise(curve.points):
            assert stronger.raw < weaker.raw
            assert stronger.estimated <= weaker.estimated <= picture.forecast
            assert weaker.estimated < weaker.raw
    for trusting, wary in pairwise(picture.curves):
        for one, other in zip(trusting.points, wary.points, strict=True):
            assert one.raw <= other.raw * 1.005


def test_a_part_of_the_horizon_counts_in_proportion() -> None:
    """Of a plan for 48 steps the first 24 are looked at: its own point stays on its own curve."""
    whole = plan(*WORLD, secret="interval", epsilon=1.0, terms=replace(TERMS, horizon=48), rho=None)
    part = replace(whole.policy, horizon=STEPS)
    picture = tradeoff(WORLD, part, secret="interval", epsilon=1.0, steps=48)
    own = next(curve for curve in picture.curves if curve.eta == 0.2)
    assert own.points[6].raw == pytest.approx(picture.point.raw, rel=0.005)
    twice = plan(
        *WORLD, secret="interval", epsilon=4.0, terms=replace(TERMS, horizon=48, eta=1.0),
        rho=None,
    )  # fmt: skip
    there = picture.curves[-1].points[10]
    assert there.epsilon == 4.0
    error = twice.prospect.with_cut() * np.sqrt(48)
    assert there.raw == pytest.approx(error, rel=0.02), "another trust, the same proportion"


def test_terms_that_nobody_can_plan_for() -> None:
    pair = OccupancyModel.joint([0.25] * 4, [np.full((4, 4), 0.25)])
    f = Consumption.by_class(absent=[Gamma(2.0, 40.0, 2500)], present=[Gamma(2.0, 150.0, 2500)],
                             class_of=[0, 0])  # fmt: skip
    world: Any = (Zone("z", [2500] * 2), Tariff(1.0, 2.0), [pair], f)
    with pytest.raises(PlanError, match="policy blocks"):
        tradeoff(world, Policy(1.0, horizon=2, blocks="paper"), secret="step", epsilon=1.0)
