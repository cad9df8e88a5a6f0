"""Publishers under test: what one must offer, how its answers are read, and ours.

A factory is `factory(terms, *, seed=None) -> publisher`. A publisher has `publish(readings)` for
the next step: readings are whole Wh, one a house; the answer is a Release, or any object or
mapping with `load_hat` [Wh] or `rate` [currency/kWh], and perhaps `t`, `scale` [Wh], `epsilon`,
`digest`. A step without readings (budget exhausted) has neither `load_hat` nor `epsilon`, or
`source` other than "readings". Optional: `again()` shows the last step again;
`sample(readings)` takes (n, T, houses) readings and answers with a mapping of (n, T) arrays of
`load_hat` or `rate`, as n fresh publishers would publish T steps each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Floats, Ints
from hushgrid.audit.terms import Terms
from hushgrid.errors import HorizonError, PolicyError
from hushgrid.grid import Tariff, public_rate, tally
from hushgrid.mechanism import Release, State, prepare, releases, skip, step
from hushgrid.noise import Noise, SecureNoise, SimulatedNoise
from hushgrid.sums import Spent


class AuditedPublisher(Protocol):
    """What is audited."""

    def publish(self, readings: Ints) -> Any:
        """The next step's release for the readings [Wh] of all houses."""
        ...


Factory = Callable[..., AuditedPublisher]


class PublicAnswer(NamedTuple):
    """A publisher's answer as the public can read it; None where it does not say."""

    load_hat: float | None
    rate: float | None
    scale: float | None
    epsilon: float | None
    put_back: float
    estimate: float | None
    digest: str | None
    from_readings: bool


def seen(published: Any) -> PublicAnswer:
    """Read an answer, whatever it is; one that says nothing of use is an error."""

    def get(name: str) -> Any:
        if isinstance(published, Mapping):
            return published.get(name)
        return getattr(published, name, None)

    def number(name: str) -> float | None:
        value = get(name)
        if value is None:
            return None
        try:
            found = float(value)
        except (TypeError, ValueError):
            raise PolicyError(
                f"the publisher's {name} is of type {type(value).__name__}; give a number."
            ) from None
        if not math.isfinite(found) and (name != "epsilon" or found != math.inf):
            raise PolicyError(f"the publisher's {name} is {found}; give a finite number.")
        return found

    load_hat, rate = number("load_hat"), number("rate")
    if load_hat is None and rate is None:
        raise PolicyError(
            f"the publisher answered a {type(published).__name__} without load_hat and rate;"
            " give one of them."
        )
    source = get("source")
    from_readings = source == "readings" or (
        source is None and (load_hat is not None or number("epsilon") != 0)
    )
    return PublicAnswer(
        load_hat,
        rate,
        number("scale"),
        number("epsilon"),
        number("put_back") or 0.0,
        number("estimate"),
        None if get("digest") is None else str(get("digest")),
        from_readings,
    )


def load_of_rate(rate: Any, tariff: Tariff) -> Any:
    """The noisy load [Wh] that a rate stands for, where neither floor nor cap cut it."""
    return (np.asarray(rate, np.float64) - tariff.beta) / tariff.alpha * 1000 - tariff.inelastic


def uncut(loads: Any, load: Any, scale: float, tariff: Tariff, rng: np.random.Generator) -> Floats:
    """Loads [Wh] that rates stand for, with what floor and cap cut off put back by chance.

    As noise of the scale due would lie beyond them: what a cut hides is not held against anybody.
    """
    found = np.array(loads, np.float64)
    low, high = (load_of_rate(at, tariff) for at in (tariff.floor, tariff.cap))
    u = 1 - rng.random(found.shape)  # above 0
    for cut, sign in ((found <= low + 1e-6, 1), (found >= high - 1e-6, -1)):
        d = sign * (found - load) / scale
        log_below = np.where(d < 0, d - math.log(2), np.log1p(-np.exp(-np.abs(d)) / 2))
        log_p = log_below + np.log(u)  # uniform below the cut, then the inverse law
        at = np.where(log_p < -math.log(2), log_p + math.log(2), -np.log(2 * -np.expm1(log_p)))
        found = np.where(cut, load + sign * scale * at, found)
    return found


def load_of(one: PublicAnswer, tariff: Tariff) -> float:
    """The noisy load [Wh] an answer tells of."""
    if one.load_hat is not None:
        return one.load_hat
    return float(load_of_rate(one.rate, tariff)) - one.put_back


class Hushgrid:
    """The correct publisher: Algorithm 1 with its budget, a forecast once that is spent."""

    def __init__(self, terms: Terms, noise: Noise, first: State) -> None:
        self.terms, self.noise = terms, noise
        self._first = self._state = first
        self._spent, self._last = Spent(), None
        self._public = terms.first_public()

    _last: Release | Mapping[str, Any] | None

    def publish(self, readings: Ints) -> Release | Mapping[str, Any]:
        """The next step's release; noise is drawn before the readings are looked at."""
        state = self._state
        try:
            draws = prepare(state, self.noise)
        except HorizonError:
            return self._forecast()
        if not self._spent.fits(draws.cost, self.terms.budget):
            return self._forecast()
        release, self._state = step(state, tally(readings, state.zone.bound), draws)
        _, self._public = self._public.learn(release.load_hat, release.scale, state.rates)
        self._spent = self._spent.add(release.epsilon)
        self._last = release
        return release

    def again(self) -> Release | Mapping[str, Any] | None:
        """The last step, as it was."""
        return self._last

    def _forecast(self) -> Mapping[str, Any]:
        law = self._public.predicted(self._state.rates)
        rate = public_rate(float((law.weights * law.mean).sum()), self.terms.tariff)
        self._public = self._public.passed()
        self._state = skip(self._state, rate)
        self._last = {"source": "forecast", "rate": rate, "epsilon": 0.0, "scale": 0.0}
        return self._last

    def sample(self, readings: Ints) -> Mapping[str, NDArray[Any]]:
        """(n, T, houses) readings to (n, T) noisy loads, all from the first step on."""
        first = self._first
        n, steps, _ = readings.shape
        loads = np.clip(readings, 0, first.zone.bound).sum(axis=2, dtype=np.int64)
        if first.scheduler.fixed and first.policy.schedule.noise == "laplace":
            for t in range(steps):
                loads[:, t] += self.noise.draws(first.scheduler.at(t + 1).scale, n)
            return {"load_hat": loads}
        for i in range(n):
            days = (tally(each, first.zone.bound) for each in readings[i])
            loads[i] = [release.load_hat for release in releases(first, days, self.noise)]
        return {"load_hat": loads}


def hushgrid(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """The factory of the correct publisher; without a seed its noise is the secure one."""
    noise = SecureNoise() if seed is None else SimulatedNoise(seed)
    return Hushgrid(terms, noise, terms.first_state())


def secure(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """The same with secure noise, whatever the seed."""
    del seed
    return hushgrid(terms)
