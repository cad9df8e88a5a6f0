"""Scores of a belief against plain definitions, and intervals against their own promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.errors import ModelError
from hushgrid.statistics import auc, scores


def auc_by_pairs(s: np.ndarray, p: np.ndarray) -> float:
    home, away = p[s == 1], p[s == 0]
    wins = sum((a > b) + 0.5 * (a == b) for a in home for b in away)
    return wins / (len(home) * len(away)) if len(home) and len(away) else float("nan")


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 12), st.booleans())
def test_figures_are_their_definitions(seed: int, steps: int, houses: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, (steps, houses))
    p, q = rng.random((2, steps, houses))
    if ties:
        p, q = np.round(p, 1), np.round(q, 1)
    found = scores(p, s, q)
    for belief, pick in ((p, "value"), (q, "prior")):
        assert getattr(found.auc, pick) == pytest.approx(auc_by_pairs(s, belief), nan_ok=True)
        assert auc(belief, s) == pytest.approx(auc_by_pairs(s, belief), nan_ok=True)
        right = np.where(s == 1, belief, 1 - belief)
        assert getattr(found.log_loss, pick) == pytest.approx(
            -np.log(np.maximum(right, 1e-12)).mean()
        )
        assert getattr(found.brier, pick) == pytest.approx(((belief - s) ** 2).mean())
        guess = np.where(belief > 0.5, 1.0, np.where(belief == 0.5, 0.5, 0.0))
        hit = np.where(guess == 0.5, 0.5, guess == s)
        assert getattr(found.accuracy, pick) == pytest.approx(hit.mean())
    assert (found.steps, found.houses) == (steps, houses)


def test_many_beliefs_lose_less_than_the_bins_say() -> None:
    rng = np.random.default_rng(3)
    s = rng.integers(0, 2, (96, 100))
    p = np.clip(0.3 * s + rng.random((96, 100)) * 0.7, 0, 1)
    order = p.ravel().argsort().argsort() + 1.0
    n1 = int(s.sum())
    exact = (order[s.ravel() == 1].sum() - n1 * (n1 + 1) / 2) / (n1 * (s.size - n1))
    assert scores(p, s, p).auc.value == pytest.approx(exact, abs=2.5e-4)


@pytest.mark.soak
def test_intervals_hold_the_true_figure_as_often_as_they_say() -> None:
    """Houses differ, so the interval has to resample houses: 200 worlds, 95 % meant.

    Below 0.88 or above 0.995 a right interval falls less than once in 10^4 (binomial, 200).
    """
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        tilt = rng.normal(0, 1, 60)  # how well each house is guessed: the same all day
        s = rng.integers(0, 2, (24, 60))
        p = 1 / (1 + np.exp(-(2 * s - 1) * tilt))
        low, high = scores(p, s, np.full_like(p, 0.5), seed=int(rng.integers(1 << 30))).brier.ci95
        held += low <= _TRUE_BRIER <= high
    assert 0.88 <= held / 200 <= 0.995


# E of sigmoid(-t)^2 for t ~ N(0, 1), by quadrature
_TRUE_BRIER = float(
    (lambda x, w: (w / np.sqrt(2 * np.pi) / (1 + np.exp(x)) ** 2).sum())(
        *np.polynomial.hermite_e.hermegauss(80)
    )
)


def test_one_house_is_drawn_in_pieces_of_its_day() -> None:
    s = np.tile([0, 1], 48)[:, None]
    found = scores(0.2 + 0.6 * s, s, np.full(s.shape, 0.5))
    assert found.clusters == 12
    assert found.auc.value == 1.0
    assert found.auc.gain == 0.5
    assert found.auc.gain_ci95 == (0.5, 0.5)


def test_nobody_ever_home_has_no_auc() -> None:
    found = scores(np.full((10, 2), 0.1), np.zeros((10, 2)), np.full((10, 2), 0.5))
    assert np.isnan(found.auc.value)
    assert found.brier.value == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("s", "p", "q", "said"),
    [
        ([[0, 1]], [[0.5]], [[0.5, 0.5]], "shapes"),
        ([[0, 2]], [[0.5, 0.5]], [[0.5, 0.5]], "0 or 1"),
        ([[0, 1]], [[0.5, 1.5]], [[0.5, 0.5]], "within 0 to 1"),
        ([[0, 1]], [[0.5, np.nan]], [[0.5, 0.5]], "within 0 to 1"),
        ([[]], [[]], [[]], "shapes"),
    ],
)
def test_what_cannot_be_scored_is_refused(s: object, p: object, q: object, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        scores(p, s, q)  # type: ignore[arg-type]
