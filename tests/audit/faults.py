"""Publishers that each break one rule; `MODULE:FACTORY` names them for the command, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hushgrid.audit.publishers import Hushgrid
from hushgrid.audit.terms import Terms
from hushgrid.grid import public_rate
from hushgrid.mechanism import Release
from hushgrid.noise import Noise, SimulatedNoise


class Weak(Noise):
    """Noise at a share of the scale asked for."""

    def __init__(self, seed: int, share: float) -> None:
        self._own, self._share = SimulatedNoise(seed), share

    def draw(self, scale: float) -> int:
        return self._own.draw(scale * self._share)

    def draws(self, scale: float, count: int) -> Any:
        return self._own.draws(scale * self._share, count)


def weak_noise(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Noise at 0.7 of the scale it states."""
    return Hushgrid(terms, Weak(seed or 0, 0.7), terms.first_state())


class _Own:
    """Publishes load + Laplace noise of a scale of its own making."""

    def __init__(self, terms: Terms, seed: int | None) -> None:
        self.terms, self.t = terms, 0
        self.noise = SimulatedNoise(0 if seed is None else seed)
        self.rng = np.random.default_rng(seed)
        self.state = terms.first_state()

    def scale(self, readings: Any) -> float:
        return self.state.scheduler.at(self.t).scale

    def stated(self, readings: Any) -> float:
        return self.scale(readings)

    def publish(self, readings: Any) -> dict[str, Any]:
        self.t += 1
        load = int(np.clip(readings, 0, self.state.zone.bound).sum())
        load_hat = load + self.noise.draw(self.scale(readings))
        self.last = {
            "load_hat": load_hat,
            "rate": public_rate(load_hat, self.terms.tariff),
            "scale": self.stated(readings),
            "epsilon": self.terms.policy.epsilon,
        }
        return self.last

    def again(self) -> dict[str, Any]:
        return self.last


class _DayScale(_Own):
    def scale(self, readings: Any) -> float:
        return max(float(np.max(readings)), 100.0) / self.terms.policy.epsilon


class _SilentDayScale(_DayScale):
    def stated(self, readings: Any) -> float:
        return self.state.scheduler.at(self.t).scale


def day_scale(terms: Terms, *, seed: int | None = None) -> _Own:
    """Its scale is the day's largest reading over epsilon, and it says so."""
    return _DayScale(terms, seed)


def silent_day_scale(terms: Terms, *, seed: int | None = None) -> _Own:
    """The same, stating the scale that is due."""
    return _SilentDayScale(terms, seed)


class _FloatRate(_Own):
    def publish(self, readings: Any) -> dict[str, Any]:
        self.t += 1
        load = int(np.clip(readings, 0, self.state.zone.bound).sum())
        noisy = load + self.rng.laplace(scale=self.scale(readings))
        self.last = {"rate": public_rate(noisy, self.terms.tariff), "scale": self.scale(readings)}
        return self.last


def float_rate(terms: Terms, *, seed: int | None = None) -> _Own:
    """Floating-point Laplace noise on a float rate."""
    return _FloatRate(terms, seed)


class _Telling(Hushgrid):
    def publish(self, readings: Any) -> Any:
        made = super().publish(readings)
        if not isinstance(made, Release):
            return made
        told = float(np.sum(readings))
        return replace(made, estimate=told, rate=public_rate(told, self.terms.tariff))


def telling(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """The noisy load is sound; the estimate beside it is the load itself."""
    return _Telling(terms, SimulatedNoise(seed or 0), terms.first_state())


class _Fresh(Hushgrid):
    def again(self) -> Any:
        last = super().again()
        if not isinstance(last, Release):
            return last
        load_hat = last.load_hat + self.noise.draw(last.scale)
        return replace(last, load_hat=load_hat, rate=public_rate(load_hat, self.terms.tariff))


def fresh_noise(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """A step shown again is drawn again."""
    return _Fresh(terms, SimulatedNoise(seed or 0), terms.first_state())


class _Dropped(_Own):
    def scale(self, readings: Any) -> float:
        return float(np.sort(self.state.zone.bound)[-2]) / self.terms.policy.epsilon / 4


def dropped_house(terms: Terms, *, seed: int | None = None) -> _Own:
    """The largest house is left out when the scale is set."""
    return _Dropped(terms, seed)


class _Reset(Hushgrid):
    def publish(self, readings: Any) -> Any:
        if self._state.t == self.terms.policy.horizon // 2 + 1:
            self._spent = 0.0
        return super().publish(readings)


def budget_reset(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Half-way through the day it forgets what it has spent."""
    return _Reset(terms, SimulatedNoise(seed or 0), terms.first_state())


def shared_seed(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Every zone draws from the same seed."""
    del seed
    return Hushgrid(terms, SimulatedNoise(42), terms.first_state())


class _Endless(_Own):
    def scale(self, readings: Any) -> float:
        return self.state.scheduler.at(min(self.t, self.terms.policy.horizon)).scale


def beyond_horizon(terms: Terms, *, seed: int | None = None) -> _Own:
    """It never stops."""
    return _Endless(terms, seed)
