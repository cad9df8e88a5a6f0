"""The planner's blocks of steps: less noise for the same promise, kept by an independent count."""

from __future__ import annotations

import numpy as np
import pytest

from hushgrid import Consumption, OccupancyModel, Plan, Policy, Tariff, Uniform, Zone, plan
from hushgrid.accounting.temporal import worst_leakage
from hushgrid.lab import paper
from hushgrid.mechanism.policy import Blocks
from hushgrid.model.occupancy import Calendar
from hushgrid.planning.task import Task
from hushgrid.planning.tradeoff import endless_leakage
from hushgrid.report.plan import plan_json


def planned(**terms: object) -> Plan:
    zone = paper.scenario(0.0, 1, n=12)
    world = (zone.zone, zone.tariff, zone.models, zone.consumption)
    return plan(*world, **({"secret": "interval", "epsilon": 1.0, "rho": None} | terms))  # type: ignore[arg-type]


def deviation(found: Plan) -> float:
    """Root mean square of the noise's standard deviation, in units of the largest bound."""
    largest = paper.scenario(0.0, 1, n=12).zone.bound.max()
    return float(np.sqrt(found.prospect.noise.mean()) / largest)


def test_blocks_with_other_houses_open_have_scales_of_their_own() -> None:
    """The larger house is certain at steps 1 and 2, so the first block needs less noise."""
    stay = [[0.9, 0.1], [0.2, 0.8]]
    theta = OccupancyModel.factored(
        [[0.5, 0.5], [1.0, 0.0]],
        [[stay, np.eye(2).tolist()], [stay, stay]],
        calendar=Calendar([0, 0, 1, 1, 1, 1]),
    )
    f = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(400)], class_of=[0, 0])
    each = (0.5,) * 6
    policy = Policy(0.5, horizon=6, schedule=Blocks((2, 2, 2), (0.5,) * 3))
    task = Task(([theta], Zone("z", [400, 1000]), f), Tariff(0.004, 0.05), policy)
    assert task.scales(each) == [task.scheduler.at(t).scale for t in range(1, 7)]
    assert task.scales(each) == [800.0, 800.0, *[2000.0] * 4]


def test_an_interval_on_the_papers_chain() -> None:
    found = planned(blocks=True)
    assert isinstance(found.policy.schedule, Blocks)
    lengths = found.policy.schedule.lengths
    assert len(lengths) <= 24
    assert deviation(found) <= 18.3
    model = paper.scenario(0.0, 1, n=12).models[0]
    kept = worst_leakage(model, found.losses, lengths=lengths).total
    assert kept == found.leakage == pytest.approx(1.0, abs=1e-4)
    assert kept <= 1.0
    assert found.epsilon_any >= max(found.epsilon_t)
    shown = plan_json(found, 0.2, None, ())["blocks"]
    assert [one["length"] for one in shown] == list(lengths)
    assert [one["epsilon"] for one in shown] == list(found.policy.schedule.losses)
    assert not any("at each step (no carry-over)" in one for one in found.assumptions)
    assert found.policy.schedule.assumption in found.assumptions
    assert plan_json(planned(), 0.2, None, ())["blocks"] == []


def test_a_run_of_days_is_planned_as_a_run() -> None:
    found = planned(blocks=True, running=True)
    lengths = found.policy.schedule.lengths
    assert lengths
    model = paper.scenario(0.0, 1, n=12).models[0]
    many = worst_leakage(model, np.tile(found.losses, (9, 1)), lengths=lengths * 9).total
    assert many <= 1 + 1e-6
    assert deviation(found) < 22.6  # what one length and one loss for all blocks reach
    world = paper.scenario(0.0, 1, n=12)
    zone = (world.zone, world.tariff, world.models, world.consumption)
    assert endless_leakage(found, zone) == pytest.approx(many, rel=1e-4)


def test_where_blocks_are_no_use_noise_is_independent() -> None:
    for terms in ({"secret": "step"}, {"terms": Policy(1.0, eta=0.5)}):
        assert not planned(blocks=True, **terms).policy.schedule.lengths


@pytest.mark.soak  # seconds of search
def test_equal_blocks_where_those_of_one_day_fail_the_others() -> None:
    """Homes that move all of the first day, and hardly on the second."""
    moves = [[[[1 - x, x], [x, 1 - x]]] for x in (0.3, 0.02)]
    calendar = Calendar(np.repeat([0, 1], 96))
    theta = OccupancyModel.factored([[0.5, 0.5]], moves, chain_of=[0, 0], calendar=calendar)
    f = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(1000)], class_of=[0, 0])
    world = (Zone("z", [1000, 1000]), Tariff(1.0, 2.0), [theta], f)
    terms = {"secret": "interval", "epsilon": 1.0, "rho": None, "terms": Policy(1.0, horizon=192)}
    found = plan(*world, **terms, slotwise=False, blocks=True)  # type: ignore[arg-type]
    even = plan(*world, **terms, slotwise=False)  # type: ignore[arg-type]
    assert len(set(found.policy.schedule.lengths)) == 1
    assert found.prospect.with_cut() * 1.3 < even.prospect.with_cut()


def test_houses_that_move_together() -> None:
    move = np.full((4, 4), 0.02) + 0.92 * np.eye(4)
    theta = OccupancyModel.joint([0.25] * 4, [move])
    world = paper.scenario(0.0, 1, n=2)
    zone = (world.zone, world.tariff, [theta], world.consumption)
    terms = Policy(1.0, horizon=12)
    found = plan(*zone, secret="interval", epsilon=1.0, rho=None, terms=terms, blocks=True)
    alone = plan(*zone, secret="interval", epsilon=1.0, rho=None, terms=terms)
    lengths = found.policy.schedule.lengths
    assert lengths
    assert found.prospect.with_cut() < alone.prospect.with_cut()
    assert worst_leakage(theta, found.losses, lengths=lengths).total <= 1.0


def test_a_plan_says_what_it_covers() -> None:
    """From scales, reach and what a home usually uses alone, counted here by hand."""
    for secret, terms in (("interval", {"blocks": True}), ("step", {})):
        found = planned(secret=secret, **terms)
        largest = int(paper.scenario(0.0, 1, n=12).zone.bound.max())
        assert found.reach == largest
        lengths = found.policy.schedule.lengths or (1,) * 96
        number = [k for k, length in enumerate(lengths) for _ in range(length)]
        losses = [largest / found.scale[number.index(k)] for k in range(len(lengths))]
        worst = 0.0
        for start in range(96):  # a day of 96 quarter hours touches 97 steps
            touched = {((start + i) // 96, number[(start + i) % 96]) for i in range(97)}
            worst = max(worst, sum(losses[k] for _, k in touched))
        quarter, day, _, fortnight, month = found.covers(900)
        assert day.shift == pytest.approx(worst)
        assert quarter.shift >= max(losses)
        assert fortnight.auc_limit > 0.9, "the hole of a promise about one interval"
        assert quarter.auc_typical < quarter.auc_limit <= month.auc_limit
        shown = plan_json(found, 0.2, None, found.covers(900))["covers"]
        assert [one["duration"] for one in shown] == ["PT15M", "P1D", "P7D", "P14D", "P30D"]
        assert set(shown[0]) == {"duration", "shift", "auc_limit", "auc_typical"}


@pytest.mark.parametrize(("days", "within"), [(1, 1), (7, 2), (14, 3)])
def test_a_plan_about_windows_covers_them_by_its_epsilon(days: int, within: int) -> None:
    found = planned(secret="window", window=96 * days + 1)
    covers = found.covers(900)
    assert all(one.shift <= 1.0 + 1e-12 for one in covers[: within + 1])
    assert covers[within].duration == f"P{days}D"
    assert covers[within].auc_limit < 0.63
    assert covers[-1].shift > 1.0
