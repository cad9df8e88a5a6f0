"""Attacks on recorded days with labels: the days taken, the houses scored, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from hushgrid.adversary.attack import Attack, attack, merge_attacks
from hushgrid.errors import PolicyError
from hushgrid.lab.attack import labelled_days, record_labelled, versions
from hushgrid.lab.datasets import Real
from hushgrid.learning.histories import Histories
from hushgrid.mechanism.policy import Policy
from tests.lab.attacked import day, run, world

ECO = Path(__file__).parents[3] / "shared/data/eco_house2/eco_house2_15min.parquet"
MONDAY = 1_357_516_800  # 2013-01-07
ZONE_TEXT = """
format = 1

[zone]
id = "pair"
[tariff]
alpha = 0.5
beta = 1.0
[policy]
epsilon = 0.5
horizon = 96
[[houses]]
count = 2
bound = 300
chain = "people"
absent = { law = "uniform", top = 50 }
present = { law = "lognormal", median = 150.0, spread = 0.3 }
[[models]]
name = "survey"
[models.chains.people]
home_at_start = 0.5
periods = [{ from = "00:00", leave = 0.1, come = 0.1 }]
"""


def lived(days: int = 4, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """(houses, steps) readings and occupancy of two houses, steps of 15 minutes."""
    rng = np.random.default_rng(seed)
    home = np.cumsum(rng.random((2, 96 * days)) < 0.1, axis=1) % 2
    wh = np.where(home, 150 * rng.lognormal(0, 0.3, home.shape), rng.uniform(0, 50, home.shape))
    return np.rint(wh), home


def histories(wh: np.ndarray, labels: np.ndarray) -> Histories:
    shown = np.arange(wh.shape[1]) * 900 % (7 * 86_400)
    return Histories(("a", "b"), wh, 900, MONDAY, shown, {}, labels.astype(np.int8))


def test_days_need_all_readings_and_labels_of_one_house() -> None:
    wh, home = lived()
    labels = home.copy()
    labels[0, 96:192] = -1  # the second day has labels of b alone
    labels[:, 2 * 96 + 50] = -1  # the third day has a gap in both
    wh[1, 3 * 96 + 7] = np.nan  # on the fourth a reading of b is missing
    readings, known = labelled_days(histories(wh, labels))
    assert readings.readings.shape == known.readings.shape == (4, 96, 2)
    policy = Policy(0.5, horizon=96)
    scenario = world(2)
    made = list(record_labelled(scenario, policy, readings, known, seed=1, count=9))
    assert [(one.day, houses) for _, one, houses in made] == [(0, (0, 1)), (1, (1,)), (3, (0,))]
    for _, one, houses in made:
        assert one.truth is not None
        days = slice(96 * one.day, 96 * (one.day + 1))
        assert (home[list(houses), days] == one.truth.occupancy[:, houses].T).all()
        assert all(release.simulated for release in one.releases)
        assert len(one.releases) == 96
    assert len(list(record_labelled(scenario, policy, readings, known, seed=1, count=2))) == 2
    short = list(
        record_labelled(scenario, replace(policy, horizon=40), readings, known, seed=1, count=9)
    )
    assert [len(one.releases) for _, one, _ in short] == [40] * 4  # the gap is at a later step


def test_a_recorded_day_without_noise_is_attacked_as_a_simulated_one() -> None:
    """The same readings, whichever way they came; labels of five of twenty houses."""
    scenario, policy, simulated = day()
    assert simulated.truth is not None
    labels = np.where(np.arange(20) < 5, simulated.truth.occupancy.astype(np.int32), -1)[None]
    names = tuple(f"m{i:02d}" for i in range(20))
    monday = np.zeros(1, np.int64)
    readings = Real(names, simulated.truth.readings[None], monday)
    ((today, recorded, known),) = record_labelled(
        scenario, policy, readings, Real(names, labels, monday), seed=1, count=1
    )
    assert known == (0, 1, 2, 3, 4)
    assert recorded.truth is not None
    theirs = versions(scenario, policy, simulated, seed=1)["open"]
    own = versions(today, policy, recorded, seed=1)["open"]
    one = attack(scenario, theirs.releases, simulated.truth, knows="others")
    two = attack(today, own.releases, recorded.truth, knows="others", labelled=known)
    assert (two.home == one.home[:, :5]).all()
    assert (two.occupancy == one.occupancy[:, :5]).all()
    with pytest.raises(PolicyError, match="5 of 20 houses have labels"):
        attack(today, own.releases, recorded.truth, knows="occupancy", labelled=known)
    with pytest.raises(PolicyError, match="target is 7, which has no labels"):
        attack(today, own.releases, recorded.truth, target=7, labelled=known)


def test_days_are_scored_together() -> None:
    """The AUC of all steps of all days, not a mean of days: some days know one state only."""
    rng = np.random.default_rng(1)

    def one(occupancy: int) -> Attack:
        belief = rng.random((8, 1))
        truth = np.full((8, 1), occupancy, np.uint8)
        scenario, _, recorded = day(2)
        assert recorded.truth is not None
        found = attack(scenario, recorded.releases[:8], recorded.truth, target=0)
        return replace(found, home=belief, prior=np.full((8, 1), 0.5), occupancy=truth)

    days = [one(0), one(1), one(1)]
    found = merge_attacks(days)
    assert found.houses == (0, 0, 0)
    assert found.home.shape == (8, 3)
    away = days[0].home.ravel()
    present = np.concatenate([each.home.ravel() for each in days[1:]])
    wanted = (present[:, None] > away).mean()
    assert found.scores.auc.value == pytest.approx(wanted)
    assert merge_attacks(days[:1]) is days[0]


def files(folder: Path, wh: np.ndarray, labels: np.ndarray) -> list[str]:
    rows, known = ["meter_id,start_utc,duration_s,wh"], ["meter_id,start_utc,occupied"]
    for name, values, states in zip("ab", wh, labels, strict=True):
        for t, (x, state) in enumerate(zip(values, states, strict=True)):
            stamp = f"{datetime.fromtimestamp(MONDAY + 900 * t, UTC):%Y-%m-%dT%H:%M:%SZ}"
            rows.append(f"{name},{stamp},900,{x:.0f}")
            known.append(f"{name},{stamp},{'' if state < 0 else state}")
    (folder / "readings.csv").write_text("\n".join(rows) + "\n")
    (folder / "labels.csv").write_text("\n".join(known) + "\n")
    (folder / "zone.toml").write_text(ZONE_TEXT)
    return [str(folder / "readings.csv"), "--labels", str(folder / "labels.csv")]


def test_the_command_attacks_the_labelled_days_of_a_zone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wh, home = lived(2)
    home[1] = -1
    asked = files(tmp_path, wh, home)
    config = ["--config", str(tmp_path / "zone.toml")]
    assert run("attack", *asked, *config, "--knows", "others", "--json", "-") == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["houses"], values["house_days"], values["steps"]) == ([0], 2, 96)
    assert values["mechanisms"]["open"]["auc"] > 0.99  # the laws hardly overlap
    assert values["mechanisms"]["hushgrid"]["auc"] < 0.8
    assert run("attack", *asked, *config, "--target", 0, "--knows", "others") == 0
    assert "each of 2 labelled days of house 0" in capsys.readouterr().out
    for more, says in (
        ([], "config is unset"),
        ([*config, "--target", "1"], "no whole local day"),
        ([*config, "--knows", "occupancy"], "1 of 2 houses have labels"),
    ):
        assert run("attack", *asked, *more) == 2
        assert says in capsys.readouterr().err


@pytest.mark.skipif(not ECO.exists(), reason="no ECO data")
def test_a_real_home_with_labels() -> None:
    """ECO household 2, two days: read off its own load, and hidden by noise of its bound."""
    from pyarrow import parquet

    from hushgrid.learning.habits import assumed_habits, model_of
    from hushgrid.learning.learner import LearningTerms, learn
    from hushgrid.model.consumption import Consumption
    from hushgrid.model.zone import Scenario, Tariff, Zone

    table = parquet.read_table(ECO)
    when = [t.replace(tzinfo=ZoneInfo("Europe/Zurich")) for t in table["timestamp"].to_pylist()]
    shown = np.array([t.weekday() * 86_400 + t.hour * 3600 + t.minute * 60 for t in when])
    power = np.array([np.nan if p is None else p for p in table["power_w"].to_pylist()])
    home = np.array([-1 if o is None else o for o in table["occupied"].to_pylist()], np.int8)
    found = Histories(("eco",), np.rint(power / 4)[None], 900, 0, shown, {}, home[None])
    terms = LearningTerms(law="lognormal", prototypes=1, iterations=10, groups=(4,))
    (group,) = learn(found, assumed_habits(900), terms).public
    (absent, *_), present = group.laws(2500)
    theta = model_of([group.chain], np.zeros(1, np.intp), "learned")
    f = Consumption.by_class(absent=[absent], present=[present[2]])
    scenario = Scenario(Zone("eco", [2500]), Tariff(0.012, 0.05), [theta], f)
    readings, labels = labelled_days(found)
    assert (readings.readings[0] == -1).all()  # the first days have labels and no readings
    parts: dict[str, list[Attack]] = {}
    for today, one, known in record_labelled(
        scenario, Policy(0.5, horizon=96), readings, labels, seed=1, count=2
    ):
        assert one.truth is not None
        for name, each in versions(today, Policy(0.5, horizon=96), one, seed=1).items():
            made = attack(today, each.releases, one.truth, labelled=known)
            parts.setdefault(name, []).append(made)
    found_out, hidden = merge_attacks(parts["open"]), merge_attacks(parts["hushgrid"])
    assert found_out.scores.auc.value > 0.85
    assert found_out.moved > 3
    assert hidden.moved < 0.5
