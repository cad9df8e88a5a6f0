"""Laws by season inside one model: learned, written, read again and checked."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from hushgrid.errors import IntakeError
from hushgrid.files.weeks import Steps, local_months
from hushgrid.files.zone_file import load_zone
from hushgrid.learning.evaluation import PublishedGroup, law_of_table, marginal_scores
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import Histories, check_seasons, of_seasons
from hushgrid.learning.learner import LearningTerms, learn
from tests.learning.homes import SHOWN, csv, lived_in
from tests.learning.options import learn_words, main

JUNE = int(datetime(2013, 6, 21, tzinfo=UTC).timestamp())  # a Friday, as SHOWN has it
DAYS = 16
MONTH = local_months(Steps(JUNE, 1800, DAYS * 48, "UTC"))
HALVES = ((1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12))
TERMS = LearningTerms(law="lognormal", prototypes=0, groups=(4,), iterations=8)


def summer(homes: int, factor: float = 3.0) -> Histories:
    """Homes that use more from July on."""
    wh = lived_in(homes, 3)[0][:, : DAYS * 48]
    wh = np.rint(np.where(MONTH == 7, factor * wh, wh))
    ids = tuple(f"m{i}" for i in range(homes))
    return Histories(ids, wh, 1800, JUNE, SHOWN[: DAYS * 48], {}, month=MONTH)


def mean_laws(one: PublishedGroup) -> np.ndarray:
    """(2, slot groups): mean readings of absent and present [Wh]."""
    return np.array([[law.mean for law in some] for some in one.laws(9000)])


def test_each_season_has_its_laws_and_the_chains_are_common() -> None:
    """A home without readings of a season has its own laws of the year there."""
    found = of_seasons(summer(2), HALVES)
    found.wh[1, MONTH == 7] = np.nan
    result = learn(found, assumed_habits(1800), TERMS)
    assert result.seasons == HALVES
    of = [result.public[j] for j in result.shared.group_of]  # type: ignore[union-attr]
    for one in of:
        assert (one.seasons, one.starts, len(one.present)) == (HALVES, (0, 6, 12, 18), 8)
        assert one.chain.transition.shape == (96, 2, 2)
    both, once = (mean_laws(one).reshape(2, 2, 4) for one in of)
    more, same = (each[:, 1] / each[:, 0] for each in (both, once))
    assert more[0].min() > 1.5, "three times the readings, in both states"
    assert more[1].min() > 1.9
    assert np.abs(same[1] - 1).max() < 0.05
    plain = learn(replace(found, seasons=()), assumed_habits(1800), TERMS)
    assert (len(plain.public[0].present), plain.public[0].seasons) == (4, ())
    scores = [
        np.nanmean(marginal_scores(found, each.public, each.shared.group_of, each.top)[0])  # type: ignore[union-attr]
        for each in (plain, result)
    ]
    assert scores[1] > scores[0] + 0.1


@pytest.mark.parametrize(
    ("seasons", "words"),
    [
        ([[1, 2, 3]], "lack month 4"),
        ([range(1, 13), [3]], "have month 3 twice"),
        ([range(13)], "have 0, which is no month"),
    ],
)
def test_each_month_is_in_one_season(seasons: list[list[int]], words: str) -> None:
    with pytest.raises(IntakeError, match=f"seasons {words}.*; give each month"):
        of_seasons(summer(1), seasons)


def test_a_season_without_readings_is_refused() -> None:
    """By the axis alone where that is declared: no reading may decide what is published."""
    found = summer(1)
    lacks = of_seasons(found, (HALVES[0], HALVES[1][1:], (7,)))
    with pytest.raises(IntakeError, match="months 8, 9, 10, 11, 12 has less than a day"):
        learn(lacks, assumed_habits(1800), TERMS)
    silent = of_seasons(replace(found, wh=np.where(MONTH == 7, np.nan, found.wh)), HALVES)
    with pytest.raises(IntakeError, match="months 7, 8, 9, 10, 11, 12 has no readings"):
        learn(silent, assumed_habits(1800), TERMS)
    check_seasons(replace(silent, declared=True))


def test_one_file_has_the_laws_of_all_seasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written, and compared with new readings of one season."""
    readings = csv(tmp_path / "readings.csv", summer(2).wh, JUNE)
    out, text = tmp_path / "out", "1,2,3,4,5,6;7,8,9,10,11,12"
    asked = ["--no-figures", "--law", "lognormal", "--groups", "4", "--prototypes", "1"]
    given = ["--readings", str(readings), "--out", str(out), "--begins", "2026-07-01T00:00:00"]
    assert main(learn_words("learn", *given, *asked, "--seasons", text)) == 0
    assert "Seasons, by their months: 1,2,3,4,5,6; 7,8,9,10,11,12." in capsys.readouterr().out
    zone = tomllib.loads((out / "zone.toml").read_text())
    model = json.loads((out / "model.json").read_text())
    assert zone["learned"]["seasons"] == model["seasons"] == [list(some) for some in HALVES]
    (group,) = zone["houses"]
    assert [law["months"] for law in group["present"]] == [list(HALVES[0])] * 4 + [
        list(HALVES[1])
    ] * 4
    own = load_zone(out / "zone.toml").all_months
    assert own is not None
    expected = law_of_table(model["prototypes"][0]["present"][6], 5000)
    at_noon = 6 * 48 + 25  # of a day in July, steps count from 1
    assert np.array_equal(own.consumption.law(at_noon, 0, occupied=True).pmf, expected.pmf)
    july = csv(tmp_path / "july.csv", summer(2).wh[:, MONTH == 7], JUNE + 10 * 86_400)
    assert main(["model", "validate", str(out), "--readings", str(july)]) == 0
    assert "2 homes scored; 0 drifted" in capsys.readouterr().out
    assert main(learn_words("learn", *given, *asked, "--seasons", "'1-12'")) != 0
    assert "learn.seasons is [['1-12']]; give groups of months" in capsys.readouterr().err
