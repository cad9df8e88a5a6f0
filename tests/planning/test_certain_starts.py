"""Plans for an endless run that begins with houses that are certain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hushgrid import Consumption, OccupancyModel, Policy, Tariff, Uniform, Zone, init, plan
from hushgrid.accounting.endless import Endless, turn_of
from hushgrid.cli import main
from hushgrid.mechanism.scheduler import house_losses
from hushgrid.model.occupancy import Calendar
from hushgrid.model.zone import ZoneTerms
from hushgrid.planning.planner import Plan
from tests.curator.borders import exact

TARIFF = Tariff(1.0, 2.0)


def world(
    start: list[float], moves: list[list[list[list[float]]]], bounds: list[int], slots: list[int]
) -> ZoneTerms:
    """Houses with these chances of being at home at first; moves by slot and house."""
    pi = [[1 - home, home] for home in start]
    theta = OccupancyModel.factored(pi, moves, calendar=Calendar(slots))
    kinds = range(len(bounds))
    absent, present = ([Uniform(b // 3) for b in bounds], [Uniform(b) for b in bounds])
    f = Consumption.by_class(absent=absent, present=present, class_of=kinds)
    return Zone("z", bounds), TARIFF, [theta], f


def continued(terms: ZoneTerms, epsilon: float, horizon: int, eta: float) -> Plan:
    policy = Policy(1.0, horizon=horizon, eta=eta)
    return plan(*terms, secret="interval", epsilon=epsilon, terms=policy, rho=None, running=True)


def shown(terms: ZoneTerms, found: Plan, begins: list[int]) -> float:
    """The most that horizons which begin at these steps say about any house at any step.

    The first one begins with Pi. Each later one has noise for all who may be uncertain there.
    """
    zone, tariff, (theta,), f = terms
    horizon, (piece,) = found.policy.horizon, theta.chains
    losses = np.zeros((begins[-1] + horizon, zone.n_houses))
    (later,) = Endless((theta,), turn_of([theta], horizon)).later
    for at in begins:
        model = later.starting(at) if at else theta
        there = init(zone, tariff, [model], f, found.policy).scheduler
        for t in range(horizon):
            scale = there.at(t + 1).scale
            losses[at + t] = house_losses(zone, f, 1, scale, found.policy.eta)[0]
    slots = [theta.calendar.slot(t + 1) for t in range(len(losses))]
    each = [
        exact(
            [piece.transition[s, h] for s in slots],
            piece.initial[h].tolist(),
            losses[:, h].tolist(),
        )
        for h in range(zone.n_houses)
    ]
    return max(float(one.max()) for one in each)


@pytest.mark.parametrize("seed", range(12))
def test_no_number_of_horizons_shows_more_than_is_planned(seed: int) -> None:
    """Random houses, some certain at the start; horizons with and without silence between them."""
    rng = np.random.default_rng(seed)
    n, days = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    start = [float(rng.choice([0.0, 0.3, 1.0, 1.0])) for _ in range(n)]
    moves = []
    for _ in range(days):
        leave, come = rng.uniform(0.15, 0.8, (2, n))
        moves.append([[[1 - c, c], [x, 1 - x]] for x, c in zip(leave, come, strict=True)])
    bounds = [int(b) for b in rng.choice([40, 200, 1000], n)]
    terms = world(start, moves, bounds, list(range(days)))
    horizon, eta = int(rng.integers(1, 6)), float(rng.choice([0.0, 1.0]))
    found = continued(terms, 0.5, horizon, eta)
    begins = [0]
    for _ in range(int(rng.integers(4, 30))):
        begins.append(begins[-1] + horizon + int(rng.choice([0, 0, 0, 1, 5])))
    assert found.leakage is not None
    assert shown(terms, found, begins) <= 0.5 * (1 + 1e-6)


def test_the_noise_is_for_all_who_are_uncertain_in_any_turn() -> None:
    """In the second horizon the large house is no longer certain; four of them said 0.52."""
    moves = [[[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.4, 0.6]]]]
    terms = world([1.0, 0.25], moves, [1000, 200], [0])
    found = continued(terms, 0.5, 4, 1.0)
    assert len(set(found.scale)) == 1
    assert 0.45 < shown(terms, found, list(range(0, 160, 4))) <= 0.5 * (1 + 1e-6)
    free = world([0.5, 0.25], moves, [1000, 200], [0])
    assert continued(free, 0.5, 4, 1.0).scale == pytest.approx(found.scale, rel=1e-3)


def test_a_house_that_never_moves_stays_out() -> None:
    """Vacant for certain, and so at every step of every horizon: no noise is for it."""
    moves = [[[[1.0, 0.0], [0.5, 0.5]], [[0.6, 0.4], [0.4, 0.6]]]]
    found = continued(world([0.0, 0.25], moves, [1000, 200], [0]), 0.5, 4, 1.0)
    alone = continued(world([0.25], [[moves[0][1]]], [200], [0]), 0.5, 4, 1.0)
    assert found.scale == pytest.approx(alone.scale)


def test_all_houses_certain_at_the_start() -> None:
    """They are protected all the same, and forgetting is that of the chain; it was refused."""
    moves = [[[[0.9, 0.1], [0.2, 0.8]]]]
    terms = world([1.0], moves, [1000], [0])
    found = continued(terms, 0.5, 4, 1.0)
    assert 0.4 < shown(terms, found, list(range(0, 160, 4))) <= 0.5 * (1 + 1e-6)


FILE = """
format = 1

[zone]
id = "z"
[tariff]
alpha = 0.01
beta = 0.05
[policy]
epsilon = 0.5
horizon = 4
[[houses]]
count = 1
bound = 1000
chain = "a"
absent = { law = "uniform", top = 500 }
present = { law = "uniform", top = 1000 }
[[houses]]
count = 1
bound = 200
chain = "b"
absent = { law = "uniform", top = 100 }
present = { law = "uniform", top = 200 }
[[models]]
name = "m"
structural_zeros = "all flats are let at midnight"
[models.chains.a]
home_at_start = 1.0
periods = [{ from = "00:00", leave = 0.2, come = 0.1 }]
[models.chains.b]
home_at_start = 0.25
periods = [{ from = "00:00", leave = 0.4, come = 0.4 }]
"""


@pytest.mark.parametrize("more", [[], ["--continued"]])
def test_what_is_printed_for_ever_holds_for_ever(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "zone.toml").write_text(FILE)
    words = ["plan", "--config", str(tmp_path / "zone.toml"), "--secret", "interval", "--no-clamp"]
    words.append("--no-blocks")  # the oracle takes each release for one of its own noise
    with pytest.raises(SystemExit):
        main([*words, "--no-tables", *more, "--json", str(tmp_path / "plan.json")])
    found = json.loads((tmp_path / "plan.json").read_text())
    moves = [[[[0.9, 0.1], [0.2, 0.8]]]]
    losses = [1000 / b for b in found["scale"]] * 40
    said = exact([np.array(moves[0][0])] * len(losses), [0.0, 1.0], losses).max()
    assert said <= found["leakage_endless"] * (1 + 1e-6)
    if more:
        assert found["leakage_endless"] <= 1 + 1e-6
