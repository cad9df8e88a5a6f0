"""The paper's experiment, with honest statistics (expected values: docs/paper.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgrid import paper, report, sweeps
from hushgrid.paper import Experiment


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return paper.experiment(days=200, sigma=0.02, seed=1)


def test_two_hundred_days(experiment: Experiment) -> None:
    values = report.experiment_json(experiment)
    assert values["days"] == 200
    naive = values["mechanisms"]["naive"]["rmsre_paper"]
    assert 1.20e-3 <= naive["mean"] <= 1.31e-3
    assert 0.10e-3 <= naive["sd"] <= 0.20e-3
    assert 1.000 <= values["ratios"]["naive_over_bound"] <= 1.005
    assert 1.84 <= values["ratios"]["naive_over_exact"] <= 1.97
    assert values["paper"] == {"naive": 1.149e-3, "blowfish": 1.089e-3}
    for name in ("naive", "naive_max", "bound", "exact"):
        for formula in ("rmsre_paper", "rmsre"):
            found = values["mechanisms"][name][formula]
            assert found["ci95"][0] < found["mean"] < found["ci95"][1]
    usual = values["mechanisms"]["naive"]["rmsre"]["mean"]
    assert usual == pytest.approx(naive["mean"] * np.sqrt(96))


def test_what_the_run_says_of_the_papers_gain(experiment: Experiment) -> None:
    """A same-mechanism day is 5.5 % worse about 38 % of the time; the constraint gains 0.04 %."""
    prose = report.experiment_prose(experiment)
    assert "5.5% worse" in prose
    error = {m: experiment.study.figures[m]["rmsre_paper"] for m in paper.mechanisms()}
    pairs = error["naive"][None, :] >= 1.055 * error["naive"][:, None]
    assert 0.30 < pairs.mean() < 0.46
    assert 0.0001 < (error["naive_max"] / error["bound"]).mean() - 1 < 0.001
    assert 400 <= experiment.fewest_protected <= 500


def test_readme_quotes_this_very_run(experiment: Experiment) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    assert report.experiment_table(experiment) in readme
    for sentence in report.experiment_prose(experiment).splitlines():
        assert sentence in readme


def test_the_papers_zone() -> None:
    zone = paper.scenario(0.0, seed=1)
    theta = zone.models[0]
    assert theta.n_houses == 1000
    # 5 % to leave at some point of four morning steps, 99.5 % of 32 night steps
    leave = theta.chains[0].transition[:, 0, 1, 0]
    assert 1 - (1 - leave[paper.MORNING]) ** 4 == pytest.approx(0.05)
    assert 1 - (1 - leave[paper.NIGHT]) ** 32 == pytest.approx(0.995)
    assert theta.chains[0].initial[0] == pytest.approx(theta.chains[0].transition[0, 0, 0])
    assert not theta.has_zeros  # sigma = 0: everybody is always protected
    hours = [theta.calendar.slot(4 * hour + 1) for hour in (0, 6, 7, 8, 15, 16, 22, 23)]
    assert hours == [0, 0, 1, 2, 2, 3, 3, 0]
    tops = [law.top for law in zone.consumption.laws]
    assert max(tops[:1000]) <= 500
    assert zone.zone.bound.max() <= 1000


def test_figures_and_table(experiment: Experiment) -> None:
    figures = report.experiment_figures(experiment)
    assert set(figures) == {"occupancy", "consumption", "rates", "noise"}
    for figure in figures.values():
        assert all(line.get_ydata().size == 97 for axes in figure.axes for line in axes.lines)
    table = report.experiment_table(experiment)
    mean = experiment.study.summary("exact", "rmsre_paper").mean
    assert f"{mean * 1e3:.3f}e-3" in table
    assert len({len(line) for line in table.splitlines()}) == 1


def test_when_the_constraint_pays() -> None:
    sweep = sweeps.against_certainty(3, seed=1)
    for line in sweep.gain.values():
        gains = [point.mean for point in line]
        assert gains[0] == pytest.approx(1, abs=1e-9)
        assert gains == sorted(gains)
    assert sweep.gain["10 times a house"][-1].mean > 2.5


def test_gain_against_trust_and_habits() -> None:
    (line,) = sweeps.against_eta(3, seed=1).gain.values()
    gains = [point.mean for point in line]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.84
    sigma = sweeps.against_sigma(2, seed=1)
    assert all(point.mean < 1.01 for point in sigma.gain["eta = 1"])
    figures = report.sweep_figures(
        {"eta": sweep_of(line), "sigma": sigma, "certainty": sigma, "count": sigma}
    )
    assert set(figures) == {"constraint", "gain"}


def sweep_of(line: tuple[object, ...]) -> sweeps.Sweep:
    return sweeps.Sweep("eta", sweeps.ETAS, {"naive / hushgrid": line})  # type: ignore[dict-item]
