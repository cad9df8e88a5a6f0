"""Batteries: physics first, then what an attacker at the meter still learns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.errors import PolicyError
from hushgrid.lab import paper
from hushgrid.lab.battery import RULES, Battery, hide, score_zone
from hushgrid.lab.datasets import Simulated
from hushgrid.statistics import mean_auc
from tests.examples import examples


@given(
    st.sampled_from(sorted(RULES)),
    st.lists(st.integers(0, 500), min_size=1, max_size=40),
    st.integers(1, 800),
    st.integers(1, 300),
    st.integers(0, 99),
)
@settings(max_examples=examples(300), deadline=None)
def test_physics(name: str, use: list[int], capacity: int, power: int, seed: int) -> None:
    battery = Battery(np.array(capacity), np.array(power))
    x = np.array(use)
    coins = np.random.default_rng(seed).random(len(x))
    hidden = hide(x, battery, RULES[name](battery), coins)
    before = np.r_[capacity // 2, hidden.charge[:-1]]
    assert (hidden.draw >= 0).all()  # nothing is sold
    assert ((hidden.charge >= 0) & (hidden.charge <= capacity)).all()
    assert (np.abs(hidden.draw - x) <= power).all()
    assert (hidden.charge - before == hidden.draw - x).all()  # no Wh is made or lost
    assert hidden.moved == np.abs(hidden.draw - x).sum()


def test_rules() -> None:
    """Best effort holds the last draw; stepping draws multiples; charging follows the charge."""
    x = np.array([100, 140, 60, 100, 120, 80])
    big = Battery(np.array(1000), np.array(50))
    flat = hide(x, big, RULES["battery_besteffort"](big), np.zeros(6))
    assert flat.draw.tolist() == [100] * 6
    steps = hide(x, big, RULES["battery_stepping"](big), np.zeros(6))
    assert (steps.draw % 50 == 0).all()
    assert len(set(steps.draw.tolist())) == 1  # and holds them
    full = Battery(np.array(100), np.array(100))
    charging = hide(np.zeros(4, int), full, RULES["battery_random"](full), np.full(4, 0.49))
    assert charging.draw.tolist() == [50, 0, 0, 0]  # half empty: charges; full: never


@pytest.mark.parametrize("seed", range(3))
def test_auc_counts_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, truth = rng.integers(0, 5, 40).astype(float), rng.integers(0, 2, 40)
    pairs = [(a > b) + (a == b) / 2 for a in score[truth == 1] for b in score[truth == 0]]
    assert mean_auc(score[:, None], truth[:, None]) == pytest.approx(np.mean(pairs))


@pytest.mark.soak
def test_a_larger_battery_tells_less_and_moves_more() -> None:
    """Ten houses of the paper's zone over 24 days, an attacker trained on two thirds of them."""
    source = Simulated([paper.scenario(0.0, 5, n=10)], seed=5)
    scores = score_zone(source.scenarios[0], [source.day(d) for d in range(24)], houses=10, seed=1)
    by = {(s.name, s.size): s for s in scores}
    seen, known = by["open", 0.0].auc.mean, by["prior", 0.0].auc.mean
    assert known + 0.02 < seen < 1
    for name in RULES:
        small, large = by[name, 0.5], by[name, 8.0]
        assert large.auc.mean < small.auc.mean < seen + 0.005
        assert large.auc.mean > known  # no promise: the meter still tells
        assert large.moved > small.moved > 0


def test_bad_battery() -> None:
    with pytest.raises(PolicyError, match="battery capacity is below 1 Wh"):
        Battery(np.array(0), np.array(1))
