"""Drift that knows the season: unchanged homes are left alone, changed ones are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid.cli import main
from hushgrid.files.readings import read_histories
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import DAY, Histories
from hushgrid.learning.learner import LearningTerms, learn
from hushgrid.learning.weeks import FIGURES, NEIGHBOURS, drift, weekly_figures
from tests.learning.homes import BEGINS, csv, histories, lived_in
from tests.learning.options import learn_words

LCL = Path(__file__).parents[3] / "shared/data/lcl/readings_2013_100homes.parquet"
YEAR, HOMES, LEVEL = 52, 40, 0.01


def seasons(seed: int = 1) -> np.ndarray:
    """(homes, weeks, figures) of a year: a season of each home's own size, and its weeks."""
    rng = np.random.default_rng(seed)
    phase = np.cos(2 * np.pi * np.arange(YEAR) / YEAR)[:, None]
    size = rng.uniform(0.02, 0.1, (HOMES, 1, len(FIGURES)))
    return 0.5 + size * phase + rng.normal(0, 0.01, (HOMES, YEAR, len(FIGURES)))


def named(old: np.ndarray, new: np.ndarray, first: int, begins: int | None = None) -> np.ndarray:
    at = BEGINS + 7 * DAY * first if begins is None else begins
    return np.flatnonzero(drift(old, BEGINS, new, at).p * len(old) < LEVEL)


def test_no_month_of_the_training_year_names_an_unchanged_home() -> None:
    """Nor a month of the next year, with weather of its own that all homes share."""
    old = seasons()
    for first in range(0, YEAR - 4, 4):
        weeks = slice(first, first + 4)
        assert not named(old, old[:, weeks], first).size
        weather = 0.05 * np.sin(first)
        again = old[:, weeks] + np.random.default_rng(first).normal(0, 0.01, old[:, weeks].shape)
        assert named(old, again + weather, first, BEGINS + 365 * DAY + 7 * DAY * first).size <= 2


@pytest.mark.parametrize("figure", range(len(FIGURES)))
def test_a_home_that_moved_is_named_with_what_moved(figure: int) -> None:
    old = seasons()
    new = old[:, 20:24].copy()
    new[7, :, figure] += 0.15
    assert named(old, new, 20).tolist() == [7]
    assert drift(old, BEGINS, new, BEGINS + 140 * DAY).figure[7] == figure


def test_a_month_of_winter_is_not_compared_with_summer() -> None:
    """In the wrong season of its own year the same month is named: the season is what matters."""
    old = seasons()
    apart = old[:, 24:28] - old[:, 50:].mean(axis=1, keepdims=True)
    assert np.abs(apart).max() > 0.1
    assert named(old, old[:, 24:28], 50).size > HOMES // 4


def test_gaps_few_homes_and_short_histories() -> None:
    old = seasons()
    old[3, 10:30] = np.nan
    old[4] = np.nan
    new = old[:, 20:24].copy()
    assert not named(old, new, 20).size  # home 3 has its own year, home 4 nothing
    new[3], new[4] = 0.9, 0.9
    found = drift(old, BEGINS, new, BEGINS + 140 * DAY)
    assert found.p[4] == 1.0
    assert found.p[3] * HOMES < LEVEL
    few = old[:2]
    assert len(few) < NEIGHBOURS
    moved = few[:, 20:24] + np.array([[[0.3]], [[0.0]]])
    assert named(few, moved, 20).tolist() == [0]
    two_weeks = old[5:20, :2]
    new = two_weeks.copy()
    assert not named(two_weeks, new, 2).size
    new[0] += 0.5
    assert named(two_weeks, new, 2).tolist() == [0]


def test_figures_of_weeks_by_hand() -> None:
    """The last week is a part; a week with two known days has no figures."""
    wh, _ = lived_in(2)
    found = histories(wh[:, : 17 * 48])
    found = replace(found, local_time=found.local_time[: 17 * 48])
    terms = LearningTerms(law="lognormal", prototypes=1, iterations=4, groups=(4,))
    result = learn(found, assumed_habits(1800), terms)
    found.wh[0, 2 * 48 : 7 * 48] = np.nan
    got = weekly_figures(found, result.public, np.zeros(2, np.intp), 5000)
    assert got.shape == (2, 3, len(FIGURES))
    assert np.isnan(got[0, 0]).all()
    assert np.isfinite(got[1]).all()
    assert np.isfinite(got[0, 1:]).all()
    assert (np.abs(got[1, :, 1:] - 0.5) < 0.25).all()
    more = replace(found, wh=2 * found.wh)
    twice = weekly_figures(more, result.public, np.zeros(2, np.intp), 5000)
    assert (twice[1, :, 1:] > got[1, :, 1:] + 0.05).all()


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(learn_words(*arguments) if arguments[0] == "learn" else list(arguments))
    return int(ended.value.code or 0)


def test_a_model_of_less_than_two_weeks_is_validated_by_its_days(tmp_path: Path) -> None:
    """Daily scores are compared by Welch's test."""
    wh, _ = lived_in(10)
    readings = csv(tmp_path / "readings.csv", wh)
    asked = ["--readings", str(readings), "--law", "lognormal", "--prototypes", "1"]
    folder = tmp_path / "zone"
    assert run("learn", *asked, "--groups", "4", "--no-figures", "--out", str(folder)) == 0
    model = folder / "model.json"
    content = json.loads(model.read_text())
    assert len(content["homes"][0]["weeks"]) == 4
    for home in content["homes"]:
        del home["weeks"][1:]
    model.write_text(json.dumps(content))
    wh[3] *= 4
    later = csv(tmp_path / "later.csv", wh[:, : 14 * 48], BEGINS + 28 * DAY)
    answer = tmp_path / "answer.json"
    assert (
        run("model", "validate", str(folder), "--readings", str(later), "--json", str(answer)) == 1
    )
    assert json.loads(answer.read_text())["drifted"] == ["m003"]


@pytest.fixture(scope="module")
def homes() -> tuple[Histories, np.ndarray]:
    """Twenty-five real homes of a year and the figures of their weeks."""
    if not LCL.exists():
        pytest.skip("no LCL data")
    found = read_histories(LCL, mapping="canonical", time_zone="Europe/London", seconds=1800)
    found = found.homes(np.arange(0, 100, 4))
    terms = LearningTerms(law="lognormal", prototypes=1, iterations=3, groups=(4,))
    result = learn(found, assumed_habits(1800), terms)
    found = found.homes(result.usable)
    public = result.public

    def figures(wh: np.ndarray) -> np.ndarray:
        some = replace(found, wh=wh)
        return weekly_figures(some, public, np.zeros(len(wh), np.intp), 5000)

    changed = {
        "none": found.wh,
        "half more": 1.5 * found.wh,
        "six hours later": np.roll(found.wh, 12, axis=1),
        "other people": np.roll(found.wh, 5, axis=0),
    }
    return found, {name: figures(wh) for name, wh in changed.items()}


@pytest.mark.soak
def test_real_homes(homes: tuple[Histories, dict[str, np.ndarray]]) -> None:
    """Each month of the training year; and the same months in homes that changed.

    Also months that the model has not seen: the weeks of the month are left out of its year.
    """
    found, kinds = homes
    old = kinds["none"]
    share: dict[str, list[float]] = {name: [] for name in (*kinds, "unseen")}
    for first in range(0, 49, 4):
        at = found.begins + 7 * DAY * first
        weeks = slice(first, first + 4)
        for name, each in kinds.items():
            hits = []
            for h in range(0, len(old), 6):  # one home changes, all others are as they were
                new = old[:, weeks].copy()
                new[h] = each[h, weeks]
                hits.append(drift(old, found.begins, new, at).p[h] * len(old) < LEVEL)
            share[name].append(float(np.mean(hits)))
        unseen = old.copy()
        unseen[:, weeks] = np.nan
        p = drift(unseen, found.begins, old[:, weeks], at).p
        share["unseen"].append(float((p * len(old) < LEVEL).mean()))
    assert max(share["none"]) <= 0.05
    assert np.mean(share["unseen"]) <= 0.02
    assert np.mean(share["half more"]) > 0.2
    assert np.mean(share["six hours later"]) > 0.3
    assert np.mean(share["other people"]) > 0.4
