"""Chains from surveys and what they protect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgrid.errors import ModelError
from hushgrid.learning.habits import (
    assumed_habits,
    model_of,
    slots_unprotected,
    stationary,
    survey_chain,
    survey_habits,
    survey_models,
    survey_of,
    three_state,
    two_state,
    week_calendar,
)
from tests.learning.homes import columns

CHAINS = Path(__file__).parents[3] / "shared/data/occupancy_survey/chains.parquet"
real = pytest.mark.skipif(not CHAINS.exists(), reason="no survey beside the project")


def test_moves_belong_to_the_slot_they_arrive_in() -> None:
    """Only slot 5 of the survey lets people leave: they are gone in slot 6."""
    given = columns(leave=0.0, come=0.5)
    given["p10"][5] = 0.4
    found = survey_chain(survey_of(given), 2, seconds=3600, pseudo_count=0.0)
    assert found.transition[6, 1].tolist() == pytest.approx([0.4, 0.6])
    assert found.transition[5, 1].tolist() == [0.0, 1.0]
    assert found.home[6] == pytest.approx(0.6)


@pytest.mark.parametrize("seconds", [900, 1800, 3600, 7200])
def test_steps_of_any_length_have_the_same_day(seconds: int) -> None:
    """Powers and roots of one matrix: a whole day of steps is the same product of moves."""
    whole = survey_chain(survey_of(columns()), 2, seconds=3600, pseudo_count=0.0)
    other = survey_chain(survey_of(columns()), 2, seconds=seconds, pseudo_count=0.0)
    day = np.linalg.multi_dot(list(other.transition[: other.steps]))
    assert day == pytest.approx(np.linalg.multi_dot(list(whole.transition[:24])), abs=1e-12)
    assert (other.transition >= 0).all()


def test_smoothing_takes_every_zero_away_and_says_so() -> None:
    given = survey_of(columns(leave=0.0, come=1.0))
    raw, smooth = (survey_chain(given, 2, seconds=900, pseudo_count=c) for c in (0.0, 0.5))
    assert (raw.transition == 0).any()
    assert (smooth.transition > 0).all()
    assert "pseudo-count 0.5" in smooth.source
    sure = model_of([raw], [0], "raw")
    assert slots_unprotected([sure]) == 672 - 0
    assert slots_unprotected([model_of([smooth], [0], "smooth")]) == 0


def test_a_house_certain_under_each_model_but_not_the_same_way_is_protected() -> None:
    away = two_state(np.ones(2), np.zeros(2), "away")
    home = two_state(np.zeros(2), np.ones(2), "home")
    models = [model_of([one], [0], one.source) for one in (away, home)]
    assert slots_unprotected(models[:1]) == 7
    assert slots_unprotected(models) == 0


def test_three_states_keep_the_shares_they_were_made_of() -> None:
    habits = assumed_habits(900)
    assert (habits.transition > 0).all()
    again = stationary(habits.transition)
    assert again == pytest.approx(habits.share, abs=1e-9)
    slow = two_state(np.full(192, 0.01), np.full(192, 0.03), "slow")  # at home 3/4 of the time
    awake = two_state(np.full(192, 0.05), np.full(192, 0.05), "awake")
    found = three_state(slow, awake, seconds=900, uses=0.8)
    assert found.home == pytest.approx(0.75, abs=0.03)
    assert found.share[:, 2] == pytest.approx(0.4, abs=0.03)


def test_pseudo_counts_are_so_many_days() -> None:
    habits = assumed_habits(1800)
    counted = habits.moves(30.0) - 0.1 / 3
    assert counted.sum(axis=(1, 2)) == pytest.approx(30.0)
    assert len(week_calendar(48).slots) == 7 * 48


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda c: c.pop("p01"), "p01"),
        (lambda c: c["slot"].__setitem__(3, 2), "repeats"),
        (lambda c: c["p10"].__setitem__(3, 1.5), "outside"),
        (lambda c: c["p10"].__setitem__(3, "x"), "number"),
        (lambda c: [column.pop() for column in c.values()], "every slot"),
    ],
)
def test_bad_surveys_are_named(spoil, says: str) -> None:
    given = columns()
    spoil(given)
    with pytest.raises(ModelError, match=says):
        survey_of(given)
    with pytest.raises(ModelError, match="residents"):
        survey_chain(survey_of(columns()), 9, seconds=900)


@real
def test_uk_chains_as_theta_of_a_mixed_zone() -> None:
    """The survey's own marginals come back; sampling zeros unprotect 110 slots, smoothing none."""
    from pyarrow import parquet

    from hushgrid import Consumption, Policy, Uniform, Zone, schedule

    table = parquet.read_table(CHAINS)
    data = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    given = survey_of(data)
    own = survey_chain(given, 2, seconds=900, pseudo_count=0.0, source="crest4_uk2000")
    rows = (
        (data["source"] == "crest4_uk2000") & (data["n_residents"] == 2) & (data["step_min"] == 15)
        & (data["definition"] == "present") & (data["daytype"] == "wd")
    )  # fmt: skip
    marginal = data["p1"][rows][np.argsort(data["slot"][rows])]
    assert own.home[:96] == pytest.approx(marginal, abs=1e-4)
    houses = [1, 2, 3, 4, 5]
    assert slots_unprotected(survey_models(given, houses, seconds=900, pseudo_count=0.0)) == 110
    smooth = survey_models(given, houses, seconds=900)
    assert slots_unprotected(smooth) == 0
    law = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(2500)], class_of=[0] * 5)
    zone = Zone("mixed", [2500] * 5)
    made = schedule(smooth, zone, law, Policy(0.5, horizon=96))
    assert [c.scale for c in made] == pytest.approx([5000.0] * 96)
    assert survey_habits(given, 3, seconds=1800).share.shape == (96, 3)


@real
def test_richardsonpy_is_the_survey_file() -> None:
    """The package's matrices of numbers of people give the two-state chains of the file."""
    pytest.importorskip("richardsonpy", reason="the extra hushgrid[survey] is not installed")
    from hushgrid.files.models import load_survey

    ours, theirs = load_survey("richardsonpy"), load_survey(CHAINS)
    for n in range(1, 6):
        found = ours.chances["survey", n, "active", 10]
        told = theirs.chances["richardson_uk2000", n, "active", 10]
        assert np.abs(np.array(found) - np.array(told)).max() < 1e-9
    assert survey_habits(ours, 2, seconds=900).source.endswith("assumed, not measured")
