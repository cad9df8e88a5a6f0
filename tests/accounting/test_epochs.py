"""Leakage across epochs: never below the truth, and a plan that still holds in the next epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hushgrid import Consumption, OccupancyModel, Policy, Tariff, Uniform, Zone, plan
from hushgrid._numbers import Floats
from hushgrid.accounting.epochs import FORGOTTEN, kept_by_silence, running_steps
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.cli import main
from hushgrid.compare.paper import scenario
from hushgrid.errors import PlanError
from hushgrid.model.occupancy import Calendar

STAY = [[0.9, 0.1], [0.2, 0.8]]
LAWS = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
TARIFF = Tariff(1.0, 62.5)


def _worst(
    models: OccupancyModel | list[OccupancyModel], losses: Floats, gaps: Sequence[int]
) -> float:
    """What releases with these losses leak that are repeated after so many silent steps each."""
    parts = [losses]
    for gap in gaps:
        parts += [np.zeros((gap, losses.shape[1])), losses]
    return temporal_leakage(models, np.concatenate(parts)).worst


@pytest.mark.parametrize("seed", range(25))
def test_silence_keeps_no_more_than_stated(seed: int) -> None:
    """Forward through M, and backward whatever the law before it; likelihoods as they come."""
    rng = np.random.default_rng([93, seed])
    states, steps = (2, 4)[seed % 2], int(rng.integers(1, 5))
    a = rng.dirichlet(np.full(states, 0.5), (steps + 1, states)) + 1e-4
    a /= a.sum(axis=2, keepdims=True)
    theta = OccupancyModel.blocked(
        [range(states // 2)],
        [np.full(states, 1 / states)],
        [a],
        calendar=Calendar(range(steps + 1)),
    )
    kept, m = kept_by_silence([theta], 1, steps + 1), np.linalg.multi_dot([np.eye(states), *a[1:]])
    worst = 0.0
    for _ in range(200):
        size = 10 ** rng.uniform(-2, 1)
        told = np.exp(size * (rng.random(states) < 0.5))
        law = rng.dirichlet(np.full(states, 0.3)) + 1e-9
        for after in (m @ told, ((law * told) @ m) / (law @ m)):
            worst = max(worst, float(np.ptp(np.log(after))) / size)
    assert worst <= kept + 1e-9
    assert kept_by_silence([theta], 1, 1) == 1.0


def test_what_never_changes_is_never_forgotten() -> None:
    stays = OccupancyModel.factored([[0.5, 0.5]], [[np.eye(2)]])
    assert kept_by_silence([stays], 1, 1000) == 1.0
    assert running_steps([stays], 96, 96) is None
    sure = OccupancyModel.factored([[1.0, 0.0]], [[np.eye(2)]])
    assert kept_by_silence([sure], 1, 2) == 0.0, "who is certain has nothing to remember"
    other = OccupancyModel.factored([[0.0, 1.0]], [[np.eye(2)]])
    assert kept_by_silence([sure, other], 1, 2) == 1.0, "models that contradict each other"


def test_a_promise_holds_in_the_next_epoch() -> None:
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
    assert alone.running is None
    assert _worst(one, alone.losses, [0]) == pytest.approx(1.0033, abs=1e-4)
    running = running_steps([one], 96, 96)
    found = plan(*given, **asked, running=running)  # type: ignore[arg-type]
    assert 0.0374 <= found.policy.epsilon < 0.0375
    assert found.running == running
    assert found.policy.horizon == 96
    for gaps in ([0] * 6, [0, 96, 0, 192, 0, 96]):
        assert _worst(one, found.losses, gaps) <= 1 + 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_a_continued_plan_holds_for_any_number_of_epochs(seed: int) -> None:
    """Random chains and houses, two models, horizons that are no whole number of days."""
    rng = np.random.default_rng([94, seed])
    turn, horizon = int(rng.integers(2, 5)), int(rng.integers(2, 9))
    thetas = []
    for _ in range(1 + seed % 2):
        a = rng.dirichlet([0.8, 0.8], (turn, 2, 2)) * 0.9 + 0.05
        thetas.append(
            OccupancyModel.factored(rng.dirichlet([1.0, 1.0], 2), a, calendar=Calendar(range(turn)))
        )
    running = running_steps(thetas, horizon, turn)
    assert running is not None
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
        running=running,
    )
    gaps = rng.integers(0, 4, 9).tolist()
    assert 0.5 * 0.7 < _worst(thetas, found.losses, gaps) <= 0.7 * (1 + 1e-6)
    assert kept_by_silence(thetas, 1, 1 + running) <= FORGOTTEN


@pytest.mark.parametrize(
    ("leave", "come", "epsilon"), [(0.5, 1e-4, 4.0), (0.3, 1e-3, 5.0), (0.2, 5e-3, 4.0)]
)
def test_releases_slow_down_forgetting(leave: float, come: float, epsilon: float) -> None:
    """Counted over the steps that silence needs to be forgotten, the second one leaks 5.04."""
    theta = OccupancyModel.factored(
        [[leave / (leave + come), come / (leave + come)]],
        [[[[1 - come, come], [leave, 1 - leave]]]],
    )
    running = running_steps([theta], 24, 24)
    asked = {"secret": "interval", "rho": None, "terms": Policy(1.0, horizon=24)}
    found = plan(
        Zone("z", [1000]),
        TARIFF,
        [theta],
        LAWS,
        epsilon=epsilon,
        running=running,
        **asked,  # type: ignore[arg-type]
    )
    endless = temporal_leakage(theta, np.repeat(found.losses[:1], 4000, axis=0)).worst
    assert 0.9999 * epsilon < endless <= epsilon * (1 + 1e-6)
    assert found.running is not None
    assert running is not None
    assert found.running > running


def test_a_promise_under_which_nothing_is_forgotten_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theta = OccupancyModel.factored([[1.0, 0.0]], [[[[1 - 1e-4, 1e-4], [0.5, 0.5]]]])
    monkeypatch.setattr("hushgrid.planning.planner._MOST_RUNNING", 600)
    with pytest.raises(PlanError, match=r"epsilon is 8 .* not forgotten in 576 steps"):
        plan(
            Zone("z", [1000]),
            TARIFF,
            [theta],
            LAWS,
            secret="interval",
            epsilon=8.0,
            rho=None,
            terms=Policy(1.0, horizon=24),
            running=running_steps([theta], 24, 24),
        )


def test_a_run_must_fit_its_schedule() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY], [STAY]], calendar=Calendar([0, 1]))
    asked = {"secret": "interval", "epsilon": 1.0, "rho": None}
    given = (Zone("z", [1000]), TARIFF, [theta], LAWS)
    with pytest.raises(PlanError, match="running is 3; give a whole number, 5 steps or more"):
        plan(*given, **asked, terms=Policy(1.0, horizon=5), running=3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="no whole number of turns"):
        plan(*given, **asked, terms=Policy(1.0, horizon=5), running=50, slotwise=True)  # type: ignore[arg-type]
    found = plan(*given, **asked, terms=Policy(1.0, horizon=4), running=80, slotwise=True)  # type: ignore[arg-type]
    assert _worst(theta, found.losses, [0] * 8) <= 1 + 1e-6


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
    assert values["running"] % 12 == 0
    assert values["leakage_endless"] == pytest.approx(1.0, abs=1e-5)
    code, out, err = _asked(tmp_path, 1e-5, capsys)
    assert (code, out) == (2, "")
    assert "does not fade in 32 days" in err
