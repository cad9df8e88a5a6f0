"""An attacker who reads one house's meter: trained on the public model, scored by his AUC.

He may simulate the house, its habits and its battery as often as he likes; he fits a logistic
curve to the draws around a step, and the public chance that somebody is at home.
"""

from __future__ import annotations

import numpy as np

from hushgrid.arrays import Floats
from hushgrid.scores import mean_auc

_LAGS = 6  # steps before and after


def features(draws: Floats, odds: Floats) -> Floats:
    """(T * days, columns) from draws (T, days), in units of the bound, and prior log odds (T,)."""
    padded = np.pad(draws, ((_LAGS, _LAGS), (0, 0)), mode="edge")
    horizon = len(draws)
    around = [padded[lag : lag + horizon] for lag in range(2 * _LAGS + 1)]
    here, change = draws, np.abs(np.diff(padded, axis=0))
    moves = [change[lag : lag + horizon] for lag in range(_LAGS - 2, _LAGS + 2)]
    window = np.array(around)
    shape = [window.mean(axis=0), window.max(axis=0), window.min(axis=0), window.std(axis=0)]
    kinks = [here**2, (here > 0.25) * 1.0, (here > 0.5) * 1.0, (here == 0) * 1.0]
    prior = np.broadcast_to(odds[:, None], draws.shape)
    columns = [np.ones_like(draws), prior, *around, *moves, *shape, *kinks]
    columns += [prior * here, prior * shape[0]]
    return np.stack([column.ravel() for column in columns], axis=1)


def fit(x: Floats, y: Floats, penalty: float = 1.0, rounds: int = 12) -> tuple[Floats, Floats]:
    """Weights and column scales of a ridge logistic regression, by Newton's method."""
    scale = np.maximum(np.abs(x).max(axis=0), 1e-9)
    z = x / scale
    w = np.zeros(z.shape[1])
    for _ in range(rounds):
        p = 1 / (1 + np.exp(-np.clip(z @ w, -30, 30)))
        slope = z.T @ (y - p) - penalty * w
        bend = (z * (p * (1 - p))[:, None]).T @ z + penalty * np.eye(len(w))
        w = w + np.linalg.solve(bend, slope)
    return w, scale


def meter_auc(
    train: Floats, train_home: Floats, test: Floats, test_home: Floats, odds: Floats
) -> float:
    """AUC on unseen days (T, days) of an attacker trained on others."""
    w, scale = fit(features(train, odds), train_home.ravel())
    return mean_auc((features(test, odds) / scale @ w)[:, None], test_home.reshape(-1, 1))
