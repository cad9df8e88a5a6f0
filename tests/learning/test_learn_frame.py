"""Learning from data frames: both forms are the histories that they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hushgrid
from hushgrid import IntakeError, ModelError, Policy, Tariff, Zone, simulate
from hushgrid.learning.frames import histories_of_frame
from hushgrid.learning.habits import assumed_habits, mean_habits, survey_of
from hushgrid.learning.learner import LearningTerms, learn
from tests.learning.homes import BEGINS, columns, histories, lived_in

DAYS = 10
QUICK = LearningTerms(law="gamma", prototypes=2, groups=(4,), iterations=5)


@pytest.fixture(scope="module")
def wh() -> Any:
    return lived_in(4)[0][:, : 48 * DAYS]


@pytest.fixture(scope="module")
def wide(wh: Any) -> Any:
    times = pd.date_range(pd.Timestamp(BEGINS, unit="s", tz="UTC"), periods=48 * DAYS, freq="30min")
    return pd.DataFrame(wh.T, times, [f"m{i:03d}" for i in range(len(wh))])


def long_of(wide: Any) -> Any:
    table = wide.rename_axis("start").reset_index()
    return table.melt("start", var_name="meter_id", value_name="wh")


def test_both_forms_are_the_same_histories(wide: Any, wh: Any) -> None:
    lacking = wide.copy()
    lacking.iloc[7, 2] = np.nan
    lacking.iloc[:, 3] = np.nan
    known = np.where(np.isnan(lacking), -1, lacking).T
    for frame in (lacking, long_of(lacking), long_of(lacking).sample(frac=1, random_state=1)):
        made = histories_of_frame(frame)
        assert (made.seconds, made.begins) == (1800, BEGINS)
        order = [made.ids.index(name) for name in wide.columns]
        assert np.array_equal(np.where(np.isnan(made.wh), -1, made.wh)[order], known)
    assert histories_of_frame(lacking).ids == tuple(wide.columns)


def test_times_are_local(wide: Any) -> None:
    local = wide.tz_convert("Europe/Zurich")
    for made in (histories_of_frame(local), histories_of_frame(wide, time_zone="Europe/Zurich")):
        at = local.index
        assert np.array_equal(
            made.local_time, (at.day_of_week * 24 + at.hour) * 3600 + at.minute * 60
        )
        assert np.array_equal(made.month, at.month)
        assert made.begins == BEGINS
    assert not np.array_equal(histories_of_frame(wide).local_time, made.local_time)


def test_what_is_learned_is_what_histories_teach(wide: Any, wh: Any) -> None:
    found = hushgrid.learn(wide, terms=QUICK)
    expected = learn(
        replace(histories(wh), local_time=histories_of_frame(wide).local_time),
        assumed_habits(1800),
        QUICK,
    )
    assert found.ids == expected.ids
    assert np.array_equal(found.home_share, expected.home_share)
    frame = found.to_frame()
    assert list(frame.index) == list(wide.columns)
    assert np.array_equal(frame["home_share"], found.home_share)
    assert found.shared is not None
    assert np.array_equal(frame["group"], found.shared.group_of + 1)
    assert repr(found).startswith("Learned(4 homes, 4 fitted, 2 shared models, family='gamma'")


def test_a_survey_is_the_prior(wide: Any) -> None:
    table = pd.DataFrame(columns())
    found = hushgrid.learn(wide, survey=table, residents=[2], terms=QUICK)
    assert found.habits == mean_habits(survey_of(columns()), [2], seconds=1800).source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.tz_localize(None), "times have no time zone; give them theirs"),
        (lambda frame: frame.reset_index(drop=True), "neither the columns meter_id, start, wh nor"),
        (lambda frame: frame[:1], "there is one time at most; give readings of several steps"),
        (lambda frame: frame.iloc[:, [0, 0]], "home 'm000' has several columns; give each home"),
        (lambda frame: frame * np.nan, "there is one time at most"),
    ],
)
def test_frames_that_are_refused(wide: Any, change: Any, message: str) -> None:
    with pytest.raises(IntakeError, match=message):
        histories_of_frame(change(wide))


def test_a_time_zone_that_is_none(wide: Any) -> None:
    with pytest.raises(IntakeError, match="time_zone is 'Europe/Atlantis'; give a name"):
        histories_of_frame(wide, time_zone="Europe/Atlantis")


def test_the_scenario_has_the_models_of_the_homes(wide: Any) -> None:
    found = hushgrid.learn(wide, terms=replace(QUICK, groups=(8,)))
    scenario = found.scenario(Tariff(0.004, 0.05), bound=1500)
    assert scenario.zone == Zone("learned", [1500] * 4)
    assert found.shared is not None
    assert np.array_equal(scenario.consumption.class_of, found.shared.group_of)
    (theta,) = scenario.models
    for number, group in enumerate(found.public):
        absent, present = group.laws(1500)
        for t in (1, 6, 7, 48, 49, 48 * 6):  # eight groups of three hours a day
            place = (t - 1) % 48 // 6
            for laws, occupied in ((absent, False), (present, True)):
                law = scenario.consumption.law(t, number, occupied=occupied)
                assert np.array_equal(law.pmf, laws[place].pmf)
        move = theta.chains[0].transition[theta.calendar.slot(48 * 5 + 3), number]
        assert np.allclose(move, group.chain.transition[48 + 2])
    assert len(simulate(scenario, Policy(1.0, horizon=4), seed=1).releases) == 4


def test_no_scenario_of_seasons_or_a_pool(wide: Any) -> None:
    found = hushgrid.learn(wide, terms=QUICK)
    for change, words in (
        ({"seasons": ((1, 2), (3, 4))}, "of seasons"),
        ({"shared": None}, "of a pool"),
    ):
        with pytest.raises(ModelError, match=f"the models are {words}; learn without it"):
            replace(found, **change).scenario(Tariff(0.004, 0.05), bound=1500)
