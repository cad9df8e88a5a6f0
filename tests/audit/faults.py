"""Publishers that each break one rule; `MODULE:FACTORY` names them for the command, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hushgrid.audit.evidence import Terms
from hushgrid.audit.publishers import Hushgrid
from hushgrid.mechanism.noise import Noise, SimulatedNoise
from hushgrid.mechanism.release import Release
from hushgrid.model.zone import public_rate


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


class _Altered(_Own):
    """Publishes the load plus what `noise_of` makes of sound noise; `sample` does the same."""

    def noise_of(self, noise: Any, readings: Any) -> Any:
        return noise

    def publish(self, readings: Any) -> dict[str, Any]:
        made = super().publish(readings)
        load = int(np.clip(readings, 0, self.state.zone.bound).sum())
        noise = int(self.noise_of(np.int64(made["load_hat"] - load), readings))
        rate = public_rate(load + noise, self.terms.tariff)
        self.last = made | {"load_hat": load + noise, "rate": rate}
        return self.last


class _Once(_Altered):
    kept: Any = None

    def noise_of(self, noise: Any, readings: Any) -> Any:
        self.kept = noise if self.kept is None else self.kept
        return self.kept


def drawn_once(terms: Terms, *, seed: int | None = None) -> _Own:
    """The noise of the first step serves the whole day."""
    return _Once(terms, seed)


class _Sampled(_Altered):
    def sample(self, readings: Any) -> dict[str, Any]:
        loads = np.clip(readings, 0, self.state.zone.bound).sum(axis=2)
        for t in range(loads.shape[1]):
            noise = self.noise.draws(self.state.scheduler.at(t + 1).scale, len(loads))
            loads[:, t] += self.noise_of(noise, readings[:, t])
        return {"load_hat": loads}


class _Parity(_Sampled):
    def noise_of(self, noise: Any, readings: Any) -> Any:
        wanted = (np.asarray(readings)[..., 0] > 500) + np.asarray(readings).sum(axis=-1)
        return noise + (noise + wanted) % 2


def parity(terms: Terms, *, seed: int | None = None) -> _Own:
    """The noisy load is even or odd by whether the first house is busy."""
    return _Parity(terms, seed)


class _Rarely(_Sampled):
    def noise_of(self, noise: Any, readings: Any) -> Any:
        return np.where(self.rng.random(np.shape(noise)) < 1e-3, 0, noise)


def rarely_exact(terms: Terms, *, seed: int | None = None) -> _Own:
    """Once in a thousand times there is no noise at all."""
    return _Rarely(terms, seed)


class _Careless(_Own):
    def scale(self, readings: Any) -> float:
        return super().scale(readings) * (0.6 if 100 < self.t <= 150 else 1)

    def stated(self, readings: Any) -> float:
        return super().scale(readings)


def careless_later(terms: Terms, *, seed: int | None = None) -> _Own:
    """Too little noise in some hours of the second day."""
    return _Careless(terms, seed)


class _Forgets(_Own):
    def again(self) -> dict[str, Any]:
        if self.t < 10:
            return self.last
        return {**self.last, "load_hat": self.last["load_hat"] + self.noise.draw(100.0)}


def forgets_later(terms: Terms, *, seed: int | None = None) -> _Own:
    """A step shown again is the same until the tenth."""
    return _Forgets(terms, seed)


class _RateAlone(_Own):
    def publish(self, readings: Any) -> dict[str, Any]:
        self.last = {"rate": super().publish(readings)["rate"]}
        return self.last


def rate_alone(terms: Terms, *, seed: int | None = None) -> _Own:
    """Correct, and says nothing but the rate."""
    return _RateAlone(terms, seed)


class _NoNumber(_Own):
    def publish(self, readings: Any) -> dict[str, Any]:
        return super().publish(readings) | ({"load_hat": np.nan} if self.t == 3 else {})


def no_number(terms: Terms, *, seed: int | None = None) -> _Own:
    """Its third load is no number."""
    return _NoNumber(terms, seed)


def leaves(terms: Terms, *, seed: int | None = None) -> _Own:
    """It ends the process."""
    raise SystemExit(3)


class _Sizes(Noise):
    """Noise of blocks of steps whose size is drawn at every step, or once for all of them."""

    def __init__(self, seed: int, *, anew: bool) -> None:
        self._own, self._anew, self._size = SimulatedNoise(seed), anew, -1

    def draw(self, scale: float) -> int:
        return self._own.draw(scale)

    def in_block(self, terms: str, scale: float, span: tuple[int, int], t: int) -> int:
        del terms, t
        if self._anew or self._size < 0:
            self._size = self._own.draw_size(scale, span[1] - span[0] + 1)
        return self._own.draw_within(self._size)


class _Bare:
    """A publisher without `sample`."""

    def __init__(self, terms: Terms, noise: Noise) -> None:
        own = Hushgrid(terms, noise, terms.first_state())
        self.publish, self.again = own.publish, own.again


def new_sizes(terms: Terms, *, seed: int | None = None) -> _Bare:
    """The size of a block's noise is drawn anew at every step."""
    return _Bare(terms, _Sizes(seed or 0, anew=True))


def kept_size(terms: Terms, *, seed: int | None = None) -> _Bare:
    """The size of the first block's noise serves all blocks."""
    return _Bare(terms, _Sizes(seed or 0, anew=False))


class _Shares(Hushgrid):
    def publish(self, readings: Any) -> Any:
        first, last = self.terms.policy.schedule.span(min(self._state.t, self.terms.policy.horizon))
        made, self._block = super().publish(readings), None
        if not isinstance(made, Release):
            return made
        share = made.epsilon / (last - first + 1)
        self._spent = self._spent.add(share - made.epsilon)
        return replace(made, epsilon=share)


def loss_by_steps(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Each step of a block books its share of the block's loss."""
    return _Shares(terms, SimulatedNoise(seed or 0), terms.first_state())


class _Understated(_Own):
    def publish(self, readings: Any) -> dict[str, Any]:
        self.last = super().publish(readings) | {"epsilon": self.terms.policy.epsilon / 2}
        return self.last


def understated(terms: Terms, *, seed: int | None = None) -> _Own:
    """It says half of what it loses."""
    return _Understated(terms, seed)
