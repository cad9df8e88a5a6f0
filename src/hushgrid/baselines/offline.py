"""Releases of a transform of the whole day, and the public's estimate from them.

The public knows y = F z + Laplace noise at once. Its estimate takes z as jointly normal, with the
correlation that occupancy gives it over the day, times an unknown common factor of the day, and
the noise as normal with its true variance: the best linear estimate for each factor.
"""

from __future__ import annotations

import math

import numpy as np

from hushgrid.arrays import Floats, Int32s, Ints
from hushgrid.baselines.method import MethodSetting, Outcome, Ready
from hushgrid.belief import load_moments, marginals
from hushgrid.consumption import Consumption
from hushgrid.occupancy import OccupancyModel

_FACTORS = np.exp(np.linspace(math.log(0.4), math.log(2.5), 61))


def offline(
    setting: MethodSetting, forward: Floats, scales: Floats, inverse: Floats, guarantee: str
) -> Ready:
    """Publish forward @ day plus Laplace noise of `scales` [Wh]; raw is inverse @ that."""
    spread = np.sqrt((inverse**2) @ (2 * scales**2))  # s.d. of the raw day, by step
    estimator = _Estimator(setting, forward, 2 * scales**2)

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        uniforms = np.random.Generator(np.random.PCG64(seed)).random(len(scales))
        tail = np.maximum(np.minimum(uniforms, 1 - uniforms), 2.0**-54)
        noise = np.where(uniforms < 0.5, 1.0, -1.0) * scales * np.log(2 * tail)
        seen = forward @ load + noise
        raw = inverse @ seen
        return Outcome(raw, estimator.estimate(seen), raw, spread, noise="gaussian")

    return Ready(guarantee, float(spread.max()), publish)


class _Estimator:
    """E[z given y] over models and factors of the day.

    With D the noise's variances and W the covariance of F z, a factor c makes y's covariance
    D^1/2 Q (c^2 L + 1) Q' D^1/2, Q L Q' being D^-1/2 W D^-1/2: one basis serves all factors.
    """

    def __init__(self, setting: MethodSetting, forward: Floats, noise: Floats) -> None:
        scenario = setting.scenario
        share = 1 - float(setting.public.weights[:, 0].sum())  # that the factor is not 1 today
        shape = np.exp(-(np.log(_FACTORS) ** 2) / (2 * setting.public.prior.spread**2))
        self._weights = np.log(np.r_[1 - share, share * shape / shape.sum()])
        self._factors = np.r_[1.0, _FACTORS][:, None]
        self._whiten = 1 / np.sqrt(noise)
        self._models = []
        for model in scenario.models:
            mean, cov = day_law(model, scenario.consumption, setting.horizon)
            seen = forward * self._whiten[:, None]
            spread, basis = np.linalg.eigh(seen @ cov @ seen.T)
            back = cov @ seen.T @ basis
            self._models.append((mean, basis, basis.T @ (seen @ mean), np.maximum(spread, 0), back))

    def estimate(self, seen: Floats) -> Floats:
        logs, guesses = [], []
        for mean, basis, expected, spread, back in self._models:
            total = self._factors**2 * spread + 1  # (factors, coefficients)
            rest = basis.T @ (seen * self._whiten) - self._factors * expected
            fit = (rest**2 / total + np.log(total)).sum(axis=1) / 2
            logs.append(self._weights - fit)
            guesses.append(self._factors * mean + self._factors**2 * (rest / total) @ back.T)
        odds = np.concatenate(logs)
        weights = np.exp(odds - odds.max())
        return np.asarray(weights @ np.concatenate(guesses) / weights.sum())


def day_law(model: OccupancyModel, consumption: Consumption, horizon: int) -> tuple[Floats, Floats]:
    """Mean [Wh] and covariance [Wh^2] of the loads of a day before any release."""
    beliefs = marginals(model)
    laws = [next(beliefs) for _ in range(horizon)]
    moments = [load_moments(belief, model, consumption) for belief in laws]
    cov = np.diag([m.variance for m in moments])
    for p, piece in enumerate(model.chains):
        if piece.size != 1:  # houses that move together: only their own steps' variance is counted
            continue
        gaps = [_gaps(consumption, piece.members[:, 0], t) for t in range(1, horizon + 1)]
        for s in range(horizon - 1):
            home = laws[s].laws[p][:, 1]
            row = np.zeros((len(home), 2))
            row[:, 1] = home  # joint law of "home at s" and the state at t
            for t in range(s + 1, horizon):
                a = piece.transition[model.calendar.slot(t + 1)]
                row = np.einsum("cs,csk->ck", row, a)
                joint = row[:, 1] - home * laws[t].laws[p][:, 1]
                cov[s, t] += float((gaps[s] * gaps[t]) @ joint[piece.chain_of])
                cov[t, s] = cov[s, t]
    return np.array([m.mean for m in moments]), cov


def _gaps(consumption: Consumption, houses: Int32s, t: int) -> Floats:
    """How much more each house is expected to use when somebody is at home [Wh]."""
    absent, present = consumption.table(t)
    means = np.array([law.mean for law in consumption.laws])
    return np.asarray((means[present] - means[absent])[consumption.class_of[houses]])
