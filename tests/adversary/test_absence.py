"""Absences attacked with all other readings known: exact laws, figures of the theory, commands."""

from __future__ import annotations

import json
import math
import re
import stat
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hushgrid.accounting.composition import auc_bound
from hushgrid.adversary.attack import Absence, NoiseBlocks, absences
from hushgrid.cli import main
from hushgrid.errors import ModelError

LCL = Path(__file__).parents[3] / "shared" / "data" / "lcl" / "readings_2013_100homes.parquet"
ZONE = """
format = 1

[zone]
id = "street"

[tariff]
alpha = 0.0004
beta = 0.05

[policy]
secret = "PROMISE"
epsilon = 1.0

[[houses]]
count = 40
bound = 1000
chain = "a"
absent = { law = "uniform", top = 200 }
present = { law = "uniform", top = 800 }

[[models]]
name = "m"

[models.chains.a]
home_at_start = 0.5
periods = [{ from = "00:00", leave = 0.1, come = 0.2 }]
"""


def exact_auc(scale: float, less: tuple[int, ...], far: int) -> float:
    """AUC of the likelihood ratio of one block, over every output up to `far`."""
    ratios, chances = [], ([], [])
    for seen in product(range(-far, far + 1), repeat=len(less)):
        sizes = [max(map(abs, seen)), max(abs(x + d) for x, d in zip(seen, less, strict=True))]
        ratios.append((sizes[0] - sizes[1]) / scale)
        for side, size in enumerate(sizes):
            chances[side].append(math.exp(-size / scale))
    present, away = (np.array(each) / sum(each) for each in chances)
    wins = 0.0
    for value in sorted(set(np.round(ratios, 9))):
        at = np.round(ratios, 9) == value
        below = np.round(ratios, 9) < value
        wins += float(away[at].sum() * (present[below].sum() + present[at].sum() / 2))
    return wins


@pytest.mark.parametrize(
    ("scale", "less"), [(5.0, (3,)), (4.0, (3, 3)), (4.0, (0, 4)), (3.0, (1, 3))]
)
def test_one_block_is_told_as_well_as_its_law_allows(scale: float, less: tuple[int, ...]) -> None:
    exact = exact_auc(scale, less, 60 if len(less) == 1 else 40)
    noise = NoiseBlocks((len(less),), (scale,))
    found = absences(noise, np.array([less]), draws=40_000, seed=3, starts=(0,))[0]
    low, high = found.ci95
    assert low - 0.002 <= exact <= high + 0.002
    assert found.auc <= auc_bound([max(less) / scale]) + 0.01


def test_an_absence_that_begins_inside_a_block_knows_its_other_steps() -> None:
    """Step 2 of the first block and step 1 of the next: the steps beside them differ in nothing."""
    inside = absences(NoiseBlocks((2,), (4.0,)), np.array([[3, 3]]), draws=40_000, starts=(1,))[0]
    blocks = [[0, 3, 3, 0]]
    whole = absences(NoiseBlocks((2,), (4.0,)), np.array(blocks), draws=40_000, starts=(0,))[0]
    assert inside.auc == pytest.approx(whole.auc, abs=0.012)


def test_two_weeks_of_half_hours_as_the_theory_has_them() -> None:
    """Blocks of four hours at the scale that 600 homes have under an interval promise.

    Away for two weeks, 160, 400 or 1,000 Wh a half hour less: AUC .60, .73 and .94.
    """
    less = np.repeat([[160.0], [400.0], [1000.0]], 672, axis=1)
    found = [one.auc for one in absences(NoiseBlocks((8,), (4165.0,)), less, draws=4000)]
    assert found == pytest.approx([0.60, 0.73, 0.94], abs=0.02)
    for wh, auc in zip((160, 400, 1000), found, strict=True):
        assert auc <= auc_bound([wh / 4165] * 85) + 0.013


def test_blocks_of_two_days_hide_two_weeks_of_any_use() -> None:
    """Any two weeks at epsilon 1: eight blocks of an eighth, also where a home uses its limit."""
    noise = NoiseBlocks((96,), (8 * 700.0,))
    (home,) = absences(noise, np.full((1, 672), 700.0), draws=20_000)
    assert home.auc <= 0.60
    assert home.detected() < 0.03
    assert 0.01 <= home.detected(0.01) <= home.detected(0.1) <= home.detected(1.0) == 1.0


def test_exact_prices_show_any_absence() -> None:
    both = absences(NoiseBlocks((1,), (0.0,)), np.array([[0.0, 1.0], [0.0, 0.0]]), draws=100)
    assert (both[0].auc, both[0].detected()) == (1.0, 1.0)
    assert (both[1].auc, both[1].detected()) == (0.5, pytest.approx(0.01))


def test_the_interval_of_an_auc_holds_it() -> None:
    """Ratios of two normal laws one deviation apart: the AUC is Phi(1 / sqrt 2)."""
    truth, held = 0.5 * math.erfc(-0.5), 0
    for seed in range(200):
        draw = np.random.default_rng(seed).normal
        low, high = Absence(draw(0, 1, 150), draw(1, 1, 150)).ci95
        held += low <= truth <= high
    assert 183 <= held <= 198


def test_bad_requests_are_refused() -> None:
    for less, draws in ((np.zeros(3), 10), (np.zeros((1, 0)), 10), (np.zeros((1, 3)), 0)):
        with pytest.raises(ModelError, match="less"):
            absences(NoiseBlocks((1,), (1.0,)), less, draws=draws)


# ---- the command


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def figures(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    capsys.readouterr()
    assert run("attack", "--secret", "absence", *words, "--json", "-") == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    path = tmp_path / "zone.toml"
    path.write_text(ZONE.replace("PROMISE", "window"))
    return path


@pytest.mark.soak
def test_the_command_attacks_homes_under_any_promise(
    zone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--config", zone, "--away", "P14D", "--draws", 400)
    day = figures(capsys, *asked)
    assert day["promise"] == {"secret": "window", "epsilon": 1.0, "window_s": 86_400}
    assert (day["steps"], day["recorded"]) == (1344, False)
    homes = day["homes"]
    assert [set(one) for one in homes] == [{"less_wh", "auc", "ci95", "found_at_1pct"}] * 3
    assert [one["less_wh"] for one in homes] == [160, 400, 1000]
    weeks = figures(capsys, *asked, "--promise", "window")
    assert weeks["promise"]["window_s"] == 1_209_600
    interval = figures(capsys, *asked, "--promise", "interval", "--less", 1000)
    assert len(interval["homes"]) == 1
    aucs = [found["homes"][-1]["auc"] for found in (weeks, day, interval)]
    assert aucs == sorted(aucs)
    assert aucs[0] <= 0.60, "short blocks hide two weeks of a home that uses its limit"
    assert aucs[2] >= 0.9
    strict = figures(capsys, *asked, "--epsilon", 0.2)
    assert strict["homes"][-1]["auc"] < aucs[1]
    assert figures(capsys, *asked, "--epsilon", 0.2) == strict, "the same seed"


@pytest.mark.soak
def test_the_command_draws_an_absence(
    zone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    out = tmp_path / "out"
    asked = ("--config", zone, "--draws", 200, "--less", 1000, "--out", out)
    assert run("attack", "--secret", "absence", *asked) == 0
    assert imread(out / "absence.png").shape[:2] == (500, 1440)
    assert re.search(r"\| no protection +\| 1\.000 \| 100\.0% ", capsys.readouterr().out)


def test_requests_that_contradict_each_other(
    zone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absence = ("attack", "--secret", "absence")
    for words, said in (
        (("attack",), "TRACE"),
        ((*absence, "day.trace", "--config", zone), "TRACE"),
        (absence, "config and readings"),
        ((*absence, "--config", zone, "--away", "two weeks"), "away"),
        ((*absence, "--config", zone, "--readings", zone, "--out", tmp_path), "out is set"),
    ):
        assert run(*words) == 2
        assert said in capsys.readouterr().err


@pytest.mark.skipif(not LCL.exists(), reason="the recorded homes are not here")
@pytest.mark.soak
def test_recorded_homes_have_no_ids_and_a_file_of_their_own(
    zone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "homes.json"
    zone.write_text(zone.read_text() + '\n[service]\ninterval = "PT30M"\n')
    asked = ("--config", zone, "--readings", LCL, "--draws", 100, "--json", out)
    assert run("attack", "--secret", "absence", *asked) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    found = json.loads(out.read_text())
    assert found["recorded"]
    assert found["steps"] == 672
    assert 80 < len(found["homes"]) <= 100
    assert set(found["homes"][0]) == {"less_wh", "auc", "ci95", "found_at_1pct"}
    less = [one["less_wh"] for one in found["homes"]]
    assert less == sorted(less)
    assert 100 < np.median(less) < 400
