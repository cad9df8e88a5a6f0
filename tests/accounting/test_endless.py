"""Leakage of releases that repeat for ever: what a long run says, no less and no more."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hushgrid import Consumption, OccupancyModel, Policy, Tariff, Uniform, Zone, plan
from hushgrid.accounting.endless import Endless, turn_of
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.cli import main
from hushgrid.errors import PlanError
from hushgrid.lab.paper import scenario
from hushgrid.model.occupancy import Calendar

STAY = [[0.9, 0.1], [0.2, 0.8]]
LAWS = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
TARIFF = Tariff(1.0, 62.5)


def settled(rows: NDArray[np.float64], loss: float) -> float:
    """The limit of leakage in one direction: where the recursion stays as it is."""

    def limit(high: float, low: float) -> float:
        middle = low + high * math.exp(loss) - 1
        root = math.sqrt(4 * low * math.exp(loss) * (1 - high) + middle**2)
        return math.log((root + middle) / (2 * low))

    return max(limit(column.max(), column.min()) for column in rows.T)


def test_a_constant_chain_has_its_closed_form() -> None:
    """The limits of backward and forward leakage (MATH 5), and the step's own loss once."""
    theta = OccupancyModel.factored([[2 / 3, 1 / 3]], [[STAY]])
    law = np.array([2 / 3, 1 / 3])
    back = (law[:, None] * STAY).T / law[:, None]
    limit = settled(back, 0.5) + settled(np.array(STAY), 0.5) - 0.5
    found = Endless((theta,), 96).most(np.full((96, 1), 0.5), np.array([0]), most=5.0)
    assert limit <= found <= limit * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled
def test_an_endless_run_says_what_a_long_one_says(seed: int) -> None:
    """Random chains, losses and starts; blocks of steps; houses that move together."""
    rng = np.random.default_rng([95, seed])
    slots, times = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    states = (2, 2, 4)[seed % 3]
    thetas = []
    for _ in range(1 + seed % 2):
        a = rng.dirichlet(np.full(states, 0.8), (slots, states)) * 0.9 + 0.1 / states
        pi = rng.dirichlet(np.full(states, 0.2))
        if seed % 4 == 0:
            pi = np.eye(states)[int(rng.integers(states))]
        houses = [range(states // 2)]
        thetas.append(OccupancyModel.blocked(houses, [pi], [a], calendar=Calendar(range(slots))))
    turn = slots * times
    n = thetas[0].n_houses
    first = int(rng.integers(1, turn + 1))
    lengths = tuple(x for x in (first, turn - first) if x) if seed % 2 else ()
    each = rng.uniform(0.01, 0.4, turn)
    if lengths:
        each = np.repeat(rng.uniform(0.01, 0.4, len(lengths)), lengths)
    alike = np.zeros(n, np.int32)
    run = Endless(tuple(thetas), turn_of(thetas, turn))
    stated = run.most(each[:, None], alike, lengths, 20.0)
    counted = run.least(each[:, None], alike, lengths)
    turns = max(20, 150 // turn)
    long = temporal_leakage(thetas, np.tile(each, turns), lengths * turns).total
    assert long.max() <= stated * (1 + 1e-13)
    assert stated == pytest.approx(long.max(), rel=1e-6)
    middle = long[turns // 2 * turn : (turns // 2 + 1) * turn]
    assert middle.max() <= stated * (1 + 1e-13)
    assert counted.total == pytest.approx(stated, rel=1e-8)
    assert long[counted.step - 1 :: turn].max() == pytest.approx(stated, rel=1e-6)


def test_the_first_turn_can_say_most() -> None:
    """Where Pi leaves both states open and the chain soon does not, later turns say less."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.999, 0.001], [0.4, 0.6]]]])
    run, alike = Endless((theta,), 8), np.zeros(1, np.int32)
    e = np.full((8, 1), 0.3)
    long = temporal_leakage(theta, np.full(800, 0.3)).total
    assert long[:8].max() > long[400:408].max() * 1.01
    assert run.most(e, alike, most=20.0) == pytest.approx(long.max(), rel=1e-6)


def test_a_state_that_is_possible_later_is_counted() -> None:
    """A house that is certain in the whole first turn, and no longer when the second begins."""
    enter = [[[0.8, 0.2], [0.3, 0.7]], np.eye(2).tolist(), np.eye(2).tolist()]
    theta = OccupancyModel.factored(
        [[1.0, 0.0]], [[a] for a in enter], calendar=Calendar([0, 1, 2])
    )
    run, alike = Endless((theta,), 3), np.zeros(1, np.int32)
    assert run.later[0].chains[0].initial.tolist() == [[0.5, 0.5]]
    e = np.array([[0.1], [0.2], [0.1]])
    long = temporal_leakage(theta, np.tile(e[:, 0], 60)).total
    assert long[:3].max() == 0
    assert run.most(e, alike) == pytest.approx(long.max(), rel=1e-6)
    sure = OccupancyModel.factored([[1.0, 0.0]], [[np.eye(2)]])
    assert Endless((sure,), 3).most(e, alike) == 0
    assert Endless((sure,), 3).later[0].chains[0].initial.tolist() == [[1.0, 0.0]]


def test_what_never_changes_has_no_bound() -> None:
    stays = OccupancyModel.factored([[0.5, 0.5]], [[np.eye(2)]])
    run, alike = Endless((stays,), 96), np.zeros(1, np.int32)
    assert run.most(np.full((96, 1), 0.01), alike) == math.inf
    with pytest.raises(PlanError, match="not forgotten in 19968 steps"):
        run.check(1.0)
    sure = OccupancyModel.factored([[1.0, 0.0]], [[np.eye(2)]])
    Endless((sure,), 96).check(1.0)
    other = OccupancyModel.factored([[0.0, 1.0]], [[np.eye(2)]])
    with pytest.raises(PlanError, match="not forgotten"):
        Endless((sure, other), 96).check(1.0)


def test_horizons_and_calendars_that_hardly_ever_meet_are_refused() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], calendar=Calendar([0] * 672))
    with pytest.raises(PlanError, match=r"a horizon of 997 steps .* only after 669984 steps"):
        turn_of([theta], 997)


def test_a_promise_holds_in_the_next_turn() -> None:
    """A day on its own may lose .0376 a step, day after day .0374 (cut off after four digits)."""
    world = scenario(0.0, 1)
    (theta,) = world.models
    one = OccupancyModel.factored(
        theta.chains[0].initial[:1], theta.chains[0].transition[:, :1], calendar=theta.calendar
    )
    asked = {"secret": "interval", "epsilon": 1.0, "rho": None, "terms": Policy(1.0, horizon=96)}
    given = (Zone("z", [1000]), TARIFF, [one], LAWS)
    alone = plan(*given, **asked)  # type: ignore[arg-type]
    assert alone.policy.epsilon == pytest.approx(0.0376, abs=5e-5)
    assert not alone.running
    twice = temporal_leakage(one, np.tile(alone.losses, (2, 1))).worst
    assert twice == pytest.approx(1.0033, abs=1e-4)
    found = plan(*given, **asked, running=True)  # type: ignore[arg-type]
    assert 0.0374 <= found.policy.epsilon < 0.0375
    assert found.running
    assert found.policy.horizon == 96
    silence = np.zeros_like(found.losses)
    for days in (
        [found.losses] * 20,
        [found.losses, found.losses, silence, found.losses, silence, silence, found.losses],
    ):
        assert temporal_leakage(one, np.concatenate(days)).worst <= found.leakage


@pytest.mark.parametrize("seed", range(8))
def test_a_running_plan_keeps_its_promise(seed: int) -> None:
    """Random chains and houses, two models, horizons that are no whole number of days."""
    rng = np.random.default_rng([94, seed])
    turn, horizon = int(rng.integers(2, 5)), int(rng.integers(2, 9))
    thetas = []
    for _ in range(1 + seed % 2):
        a = rng.dirichlet([0.8, 0.8], (turn, 2, 2)) * 0.9 + 0.05
        thetas.append(
            OccupancyModel.factored(rng.dirichlet([1.0, 1.0], 2), a, calendar=Calendar(range(turn)))
        )
    found = plan(
        Zone("z", [1000, 400]),
        TARIFF,
        thetas,
        Consumption.by_class(
            absent=[Uniform(500), Uniform(100)],
            present=[Uniform(1000), Uniform(400)],
            class_of=[0, 1],
        ),
        secret="interval",
        epsilon=0.7,
        rho=None,
        terms=Policy(1.0, horizon=horizon, eta=(1.0, 0.2)[seed % 2]),
        running=True,
    )
    long = temporal_leakage(thetas, np.tile(found.losses, (60, 1))).worst
    assert found.leakage is not None
    assert long <= found.leakage <= 0.7 * (1 + 1e-7)
    assert found.leakage == pytest.approx(long, rel=1e-6)
    assert found.leakage > 0.7 * (1 - 1e-5)


@pytest.mark.parametrize(
    ("leave", "come", "epsilon"), [(0.5, 1e-4, 4.0), (0.3, 1e-3, 5.0), (0.2, 5e-3, 4.0)]
)
def test_releases_slow_down_forgetting(leave: float, come: float, epsilon: float) -> None:
    """Counted over the steps that silence needs to be forgotten, the second one leaks 5.04."""
    theta = OccupancyModel.factored(
        [[leave / (leave + come), come / (leave + come)]],
        [[[[1 - come, come], [leave, 1 - leave]]]],
    )
    terms = Policy(1.0, horizon=24)
    zone = (Zone("z", [1000]), TARIFF, [theta], LAWS)
    found = plan(*zone, secret="interval", epsilon=epsilon, rho=None, terms=terms, running=True)
    endless = temporal_leakage(theta, np.repeat(found.losses[:1], 4000, axis=0)).worst
    assert 0.9999 * epsilon < endless <= epsilon * (1 + 1e-6)


def test_a_promise_under_which_little_is_forgotten_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted from above, leakage falls so slowly that it does not meet what is counted."""
    monkeypatch.setattr("hushgrid.accounting.endless._STEPS", 0)  # 32 turns
    theta = OccupancyModel.factored([[1.0, 0.0]], [[[[1 - 1e-6, 1e-6], [0.1, 0.9]]]])
    zone = (Zone("z", [1000]), TARIFF, [theta], LAWS)
    terms = Policy(1.0, horizon=24)
    with pytest.raises(PlanError, match=r"epsilon is 12 .* not forgotten in 3072 steps"):
        plan(*zone, secret="interval", epsilon=12.0, rho=None, terms=terms, running=True)


def test_an_endless_run_is_asked_where_it_means_something() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY], [STAY]], calendar=Calendar([0, 1]))
    asked = {"epsilon": 1.0, "rho": None, "running": True}
    given = (Zone("z", [1000]), TARIFF, [theta], LAWS)
    with pytest.raises(PlanError, match="an endless run is asked for the secret step"):
        plan(*given, **asked, secret="step")  # type: ignore[arg-type]
    asked["secret"] = "interval"
    with pytest.raises(PlanError, match="no whole number of turns"):
        plan(*given, **asked, terms=Policy(1.0, horizon=5), slotwise=True)  # type: ignore[arg-type]
    found = plan(*given, **asked, terms=Policy(1.0, horizon=4), slotwise=True)  # type: ignore[arg-type]
    assert temporal_leakage(theta, np.tile(found.losses, (20, 1))).worst <= 1 + 1e-6


ZONE = """
format = 1

[zone]
id = "z"
[tariff]
alpha = 1.0
beta = 62.5
[policy]
epsilon = 1.0
horizon = 12
[[houses]]
count = 3
bound = 1000
chain = "any"
absent = {{ law = "uniform", top = 500 }}
present = {{ law = "uniform", top = 1000 }}
[[models]]
name = "survey"
[models.chains.any]
home_at_start = 0.5
periods = [{{ from = "00:00", leave = {leave}, come = {leave} }}]
"""


def _asked(folder: Path, leave: float, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    path = folder / "zone.toml"
    path.write_text(ZONE.format(leave=leave))
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--config", str(path), "--no-tables", "--continued", "--json", "-"])
    told = capsys.readouterr()
    return int(stopped.value.code or 0), told.out, told.err


def test_the_command_says_which_plan_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _asked(tmp_path, 0.1, capsys)
    assert code == 0, err
    values = json.loads(out)
    assert values["running"] is True
    assert values["leakage_endless"] == values["leakage_max"] == pytest.approx(1.0, abs=1e-5)
    code, out, err = _asked(tmp_path, 1e-5, capsys)
    assert (code, out) == (2, "")
    assert "is not forgotten in" in err
