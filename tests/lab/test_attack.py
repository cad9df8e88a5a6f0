"""Attacks on a recorded day: what the strong and the weak adversary gain, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import OccupancyModel
from hushgrid.adversary.attack import Attack, attack, prior_of
from hushgrid.errors import PolicyError
from hushgrid.lab.attack import versions
from tests.lab.attacked import STAY, day, run

ZONE = Path(__file__).parents[2] / "examples" / "release.toml"


def attacks(houses: int = 20, **asked: Any) -> dict[str, Attack]:
    scenario, policy, recorded = day(houses)
    assert recorded.truth is not None
    days = versions(scenario, policy, recorded, seed=3)
    return {
        name: attack(scenario, one.releases, recorded.truth, clamp=one.clamp, **asked)
        for name, one in days.items()
    }


def test_who_knows_every_other_reading_reads_a_house_off_an_open_price_only() -> None:
    found = attacks(knows="others")
    assert list(found) == ["open", "naive", "paper", "hushgrid"]
    # laws do not overlap, so without noise every step is known
    assert found["open"].scores.auc.value == 1.0
    assert found["open"].scores.accuracy.value == 1.0
    for name in ("naive", "paper", "hushgrid"):
        # a belief that moves by at most e^TPL; here far from reading the house off
        assert found[name].scores.auc.value < 0.8
        assert found[name].scores.log_loss.value > 0.3


def test_knowing_more_never_hurts_much_and_open_prices_tell_most() -> None:
    gains = {k: attacks(knows=k)["open"].scores.log_loss.gain for k in ("none", "occupancy")}
    strong = attacks(knows="others")["open"].scores.log_loss.gain
    assert strong < gains["occupancy"] < gains["none"] < 0


def test_hindsight_beats_watching() -> None:
    live, after = (attacks(knows="others", hindsight=h)["hushgrid"] for h in (False, True))
    assert after.scores.log_loss.value < live.scores.log_loss.value


def test_a_target_is_one_column_of_all() -> None:
    scenario, _, recorded = day()
    assert recorded.truth is not None
    all_of_them = attack(scenario, recorded.releases, recorded.truth)
    one = attack(scenario, recorded.releases, recorded.truth, target=7)
    assert one.houses == (7,)
    np.testing.assert_array_equal(one.home[:, 0], all_of_them.home[:, 7])
    np.testing.assert_array_equal(one.occupancy[:, 0], recorded.truth.occupancy[:, 7])


def test_few_houses_are_attacked_jointly() -> None:
    assert attacks(6)["hushgrid"].filter == "exact"
    assert attacks(15)["hushgrid"].filter == "factored"


def test_a_wrong_model_is_worse_than_none() -> None:
    """She believes in people who never stay where they are: sure of herself and wrong."""
    scenario, _, recorded = day()
    assert recorded.truth is not None
    wrong = OccupancyModel.factored(
        [[0.5, 0.5]], [[[[0.05, 0.95], [0.95, 0.05]]]], chain_of=[0] * 20
    )
    found = attack(scenario, recorded.releases, recorded.truth, models=[wrong], knows="others")
    right = attack(scenario, recorded.releases, recorded.truth, knows="others")
    assert found.scores.log_loss.value > right.scores.log_loss.value


def test_the_prior_is_what_the_chain_says() -> None:
    theta = OccupancyModel.factored([[1.0, 0.0]], [[STAY]])
    home = prior_of([theta], 3)
    np.testing.assert_allclose(home[:, 0], [0.0, 0.05, 0.05 * 0.95 + 0.95 * 0.05])


@pytest.mark.parametrize(
    ("asked", "said"), [({"knows": "all"}, "knows is 'all'"), ({"target": 20}, "target is 20")]
)
def test_bad_questions_are_refused(asked: dict[str, Any], said: str) -> None:
    scenario, _, recorded = day()
    assert recorded.truth is not None
    with pytest.raises(PolicyError, match=said):
        attack(scenario, recorded.releases, recorded.truth, **asked)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "day.trace"
    assert run("simulate", "--config", ZONE, "--days", 1, "--seed", 7, "--trace", path) == 0
    return path


@pytest.mark.soak
def test_the_command_needs_nothing_but_the_trace(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    capsys.readouterr()
    assert run("attack", trace, "--target", 3, "--knows", "others", "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    assert {"auc", "auc_prior", "log_loss", "brier", "ci95"} <= set(told)
    low, high = told["ci95"]
    assert 0 <= low <= told["auc"] <= high <= 1
    assert set(told["mechanisms"]) == {"open", "naive", "paper", "hushgrid"}
    assert told["mechanisms"]["hushgrid"]["auc"] == told["auc"]
    assert run("attack", trace, "--out", out) == 0
    assert (out / "attack.png").stat().st_size > 10_000
    assert "120 houses" in capsys.readouterr().out


def test_a_trace_without_truth_or_of_other_terms_is_refused(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = trace.read_text().splitlines(keepends=True)
    bare = tmp_path / "bare.trace"
    bare.write_text("".join(lines[:97]))
    assert run("attack", bare) == 2
    assert "no truth" in capsys.readouterr().err
    other = tmp_path / "other.toml"
    other.write_text(ZONE.read_text().replace("epsilon = ", "epsilon = 1"))
    assert run("attack", trace, "--config", other) == 2
    assert "published under terms" in capsys.readouterr().err
    assert run("attack", trace, "--target", 120) == 2
    assert "target is 120" in capsys.readouterr().err
