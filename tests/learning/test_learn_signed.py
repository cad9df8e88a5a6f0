"""hushgrid learn from net readings: laws of homes with panels by time of day."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from hushgrid.errors import ModelError
from hushgrid.files.zone_file import load_zone
from hushgrid.learning._families import common_edges
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import Histories, ailments, clamped
from hushgrid.learning.learner import LearningTerms, learn
from tests.learning.homes import BEGINS, SHOWN, lived_in
from tests.learning.options import learn_words, main

LIMIT = 700  # [Wh in half an hour] of an inverter
DAYS, HOMES = 14, 2
HOUR = (SHOWN % 86_400) / 3600


def net_readings() -> np.ndarray:
    """Homes under one sky, whose days are more or less bright."""
    rng = np.random.default_rng(5)
    wh, _ = lived_in(HOMES, 3)
    height = np.clip(np.sin((HOUR - 6) / 12 * np.pi), 0, None) * (HOUR > 6) * (HOUR < 18)
    bright = np.repeat(rng.uniform(0.4, 1, len(SHOWN) // 48), 48)
    return np.asarray(np.rint(wh - 900 * height * bright).clip(-LIMIT))[:, : DAYS * 48]


def histories(wh: np.ndarray, export: int = LIMIT) -> Histories:
    names = tuple(f"m{i}" for i in range(len(wh)))
    return Histories(names, wh, 1800, BEGINS, SHOWN[: wh.shape[1]], {}, export=export)


def test_laws_of_both_states_follow_the_sun() -> None:
    wh = net_readings()[:1, : 7 * 48]
    terms = LearningTerms(prototypes=1, groups=(8,), iterations=8)
    found = learn(histories(wh), assumed_habits(1800), terms)
    (one,) = found.public
    assert found.family == "histogram"
    absent, present = one.laws(found.top)
    seen = [wh[:, HOUR[: wh.shape[1]] // 3 == k].mean() for k in range(8)]
    for low, high, each in zip(absent, present, seen, strict=True):
        assert low.mean - LIMIT - 60 <= each <= high.mean - LIMIT + 60
    assert absent[0].mean > absent[4].mean + 200, "at noon an empty home exports"
    assert present[0].mean > present[4].mean + 100


@pytest.mark.soak
def test_a_learned_zone_of_panels_follows_the_sun_and_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wh = net_readings()
    rows = [
        f"m{home},{np.datetime64(BEGINS + 1800 * t, 's')}Z,1800,{int(x)}"
        for home, row in enumerate(wh)
        for t, x in enumerate(row)
    ]
    path, out = tmp_path / "r.csv", tmp_path / "out"
    path.write_text("meter_id,start_utc,duration_s,wh\n" + "\n".join(rows))
    asked = ["--readings", str(path), "--out", str(out), "--no-figures", "--prototypes", "1"]
    words = learn_words("learn", *asked, "--export", str(LIMIT), "--groups", "8")
    assert main(words) == 0
    text = tomllib.loads((out / "zone.toml").read_text())
    (houses,) = text["houses"]
    assert (houses["export"], houses["bound"]) == (LIMIT, 5000)
    assert houses["absent"][4]["edges"][0] == -LIMIT
    made = load_zone(out / "zone.toml")
    assert made.scenario.zone.export.tolist() == [LIMIT] * HOMES
    f, hours = made.scenario.consumption, HOUR[: DAYS * 48]
    for step, start in ((2, 0), (26, 12)):
        absent, present = (f.law(step + 1, 0, occupied=at).mean - LIMIT for at in (False, True))
        seen = wh[:, (hours >= start) & (hours < start + 3)].mean()
        assert absent <= present
        assert absent - 40 <= seen <= present + 40
    capsys.readouterr()
    assert main(["model", "validate", str(out), "--readings", str(path)]) == 0
    assert main(["model", "show", str(out)]) == 0
    assert main(["compare", "--readings", str(path), "--days", "2"]) == 2
    assert "2 of 2 homes have readings below 0 Wh" in capsys.readouterr().err


def test_net_readings_are_learned_as_offset_ones_and_others_as_before() -> None:
    wh = np.array([[-900.0, -10.0, np.nan, 300.0]])
    net = clamped(histories(wh), 800)
    assert net.wh[0, [0, 1, 3]].tolist() == [0, 690, 800]
    assert (net.offset, net.export) == (LIMIT, 0)
    plain = clamped(histories(wh, 0), 800)
    assert plain.wh[0, [0, 1, 3]].tolist() == [0, 0, 300]
    long = net_readings()
    assert all("export" in home for home in ailments(histories(long, 0)))
    assert not any("export" in home for home in ailments(histories(long)))


def test_bins_are_narrow_about_no_net_reading() -> None:
    edges = common_edges(np.array([[0.0, 3000.0]]), LIMIT)
    assert edges[0] == 0
    assert edges[-1] > 3000
    assert LIMIT in edges
    assert (np.diff(edges) >= 1).all()
    near = np.flatnonzero(edges == LIMIT)[0]
    assert np.diff(edges)[near - 2 : near + 2].max() <= 2
    for offset in (1, 2, 5, 100):
        assert (np.diff(common_edges(np.array([[offset + 0.0]]), offset)) >= 1).all()


@pytest.mark.parametrize(
    ("terms", "pooled", "words"),
    [
        (LearningTerms(law="gamma"), False, "law is 'gamma'"),
        (LearningTerms(law="histogram"), True, "pool budget"),
    ],
)
def test_what_cannot_have_readings_below_zero_is_refused(
    terms: LearningTerms, pooled: bool, words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        learn(histories(net_readings()), assumed_habits(1800), terms, pooled=pooled)
