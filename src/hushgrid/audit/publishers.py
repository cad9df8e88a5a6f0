"""Publishers under audit: how one is asked, what it answers, and the correct one.

A factory is `factory(terms, *, seed=None) -> publisher`. A publisher has `publish(readings)` for
the next step: readings are whole Wh, one per house; the answer is a Release, or any object or
mapping with `load_hat` [Wh] or `rate` [currency/kWh], and optionally `t`, `scale` [Wh],
`epsilon`, `digest`. A step without readings has neither `load_hat` nor
`epsilon`, or a `source` other than "readings". Optional: `again()` returns the last step again;
`sample(readings)` takes (n, T, houses) readings and returns a mapping of (n, T) arrays of
`load_hat` or `rate`, as n fresh publishers would publish T steps each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Floats, Ints
from hushgrid.audit.evidence import Terms
from hushgrid.belief.expected_rate import mean_rates
from hushgrid.errors import HorizonError, PolicyError
from hushgrid.mechanism.noise import Noise, SecureNoise, SimulatedNoise
from hushgrid.mechanism.release import Release, State, prepare, releases, skip, step
from hushgrid.model.zone import Tariff, smoothed_rate, tally_offset


class AuditedPublisher(Protocol):
    """A publisher under audit."""

    def publish(self, readings: Ints) -> Any:
        """The next step's release for the readings [Wh] of all houses."""
        ...


Factory = Callable[..., AuditedPublisher]


class PublicAnswer(NamedTuple):
    """The public part of a publisher's answer; None where it is not stated.

    Attributes:
        load_hat: Noisy load [Wh].
        rate: Rate [currency/kWh].
        scale: Stated scale of the noise [Wh].
        epsilon: Stated loss.
        put_back: Energy added for the clamp [Wh].
        estimate: Published estimate of the load [Wh].
        digest: Digest of the terms.
        from_readings: Whether readings were used.
    """

    load_hat: float | None
    rate: float | None
    scale: float | None
    epsilon: float | None
    put_back: float
    estimate: float | None
    digest: str | None
    from_readings: bool


def read_answer(published: Any) -> PublicAnswer:
    """Read a publisher's answer.

    Args:
        published: A Release, or any object or mapping with the same names.

    Returns:
        Its public part.

    Raises:
        PolicyError: If a figure is not a finite number, or load_hat and rate are both absent.
    """

    def get(name: str) -> Any:
        if isinstance(published, Mapping):
            return published.get(name)
        return getattr(published, name, None)

    def number(name: str) -> float | None:
        value = get(name)
        if value is None:
            return None
        try:
            figure = float(value)
        except (TypeError, ValueError):
            raise PolicyError(
                f"the publisher's {name} is of type {type(value).__name__}; give a number."
            ) from None
        if not math.isfinite(figure) and (name != "epsilon" or figure != math.inf):
            raise PolicyError(f"the publisher's {name} is {figure}; give a finite number.")
        return figure

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
    """The noisy load of a rate that is not truncated by floor or cap.

    Args:
        rate: Rates [currency/kWh]; any shape.
        tariff: The tariff.

    Returns:
        Loads [Wh], in the shape of `rate`.

    Raises:
        PolicyError: If the tariff has a curve, whose price is a mean over many loads.
    """
    if tariff.curve is not None:
        raise PolicyError(
            "tariff has a curve, whose price is no load's own, and the publisher states rates"
            " alone; let it state load_hat."
        )
    z = (np.asarray(rate, np.float64) - tariff.beta) / tariff.alpha * 1000
    return z - tariff.inelastic + tariff.offset


def restore_truncated(
    loads: Any, load: Any, scale: float, tariff: Tariff, rng: np.random.Generator
) -> Floats:
    """Replace loads of rates at the floor or cap by samples from beyond it.

    Samples follow noise of the scale due, given that it lies beyond the floor or cap. So truncation
    never counts as missing noise.

    Args:
        loads: Noisy loads derived from rates [Wh].
        load: True load [Wh].
        scale: Scale due [Wh].
        tariff: The tariff.
        rng: Source of randomness.

    Returns:
        Loads [Wh], in the shape of `loads`.
    """
    samples = np.array(loads, np.float64)
    low, high = (load_of_rate(at, tariff) for at in (tariff.floor, tariff.cap))
    u = 1 - rng.random(samples.shape)  # above 0
    for cut, sign in ((samples <= low + 1e-6, 1), (samples >= high - 1e-6, -1)):
        d = sign * (samples - load) / scale
        log_below = np.where(d < 0, d - math.log(2), np.log1p(-np.exp(-np.abs(d)) / 2))
        log_p = log_below + np.log(u)  # uniform below the cut, then the inverse law
        at = np.where(log_p < -math.log(2), log_p + math.log(2), -np.log(2 * -np.expm1(log_p)))
        samples = np.where(cut, load + sign * scale * at, samples)
    return samples


def check_unsmoothed(tariff: Tariff) -> None:
    """Refuse to derive a load from a rate that is smoothed, and so has no load of its own.

    Args:
        tariff: The tariff.

    Raises:
        PolicyError: If the tariff smooths rates.
    """
    if tariff.smooth:
        raise PolicyError(
            f"tariff smooth is {tariff.smooth:g} and the publisher states rates alone; let it state"
            " load_hat."
        )


def load_of(answer: PublicAnswer, tariff: Tariff) -> float:
    """The noisy load of an answer.

    Args:
        answer: The answer.
        tariff: The tariff.

    Returns:
        The load [Wh], derived from the rate where it is not stated.
    """
    if answer.load_hat is not None:
        return answer.load_hat
    if answer.from_readings:  # a forecast has no noise to be judged
        check_unsmoothed(tariff)
    return float(load_of_rate(answer.rate, tariff)) - answer.put_back


class Hushgrid:
    """The correct publisher: Algorithm 1, and a forecast beyond its horizon.

    Args:
        terms: Its terms.
        noise: Source of noise.
        first: State before the first step.
    """

    def __init__(self, terms: Terms, noise: Noise, first: State) -> None:
        self.terms, self.noise = terms, noise
        self._first = self._state = first
        self._last = None
        self._public = terms.first_public()

    _last: Release | Mapping[str, Any] | None

    def publish(self, readings: Ints) -> Release | Mapping[str, Any]:
        """The next step's release; noise is drawn before the readings are used."""
        state = self._state
        try:
            draws = prepare(state, self.noise)
        except HorizonError:
            return self._forecast()
        load = tally_offset(readings, self.terms.zone, state.zone)
        release, self._state = step(state, load, draws)
        _, self._public = self._public.learn(release.load_hat, release.scale, state.rates)
        self._last = release
        return release

    def again(self) -> Release | Mapping[str, Any] | None:
        """The last step, unchanged."""
        return self._last

    def _forecast(self) -> Mapping[str, Any]:
        rates = self._state.rates
        law, last = self._public.predicted(rates), rates[-1] if rates else None
        (rate,) = mean_rates([law], self.terms.tariff)
        rate = smoothed_rate(rate, self.terms.tariff, last)
        self._public = self._public.passed()
        self._state = skip(self._state, rate)
        self._last = {"source": "forecast", "rate": rate, "epsilon": 0.0, "scale": 0.0}
        return self._last

    def sample(self, readings: Ints) -> Mapping[str, NDArray[Any]]:
        """(n, T) noisy loads [Wh] for (n, T, houses) readings, each from the first step on."""
        first = self._first
        n, steps, _ = readings.shape
        low = self.terms.zone.low_ends(first.zone)
        loads = np.clip(readings, low, low + first.zone.bound).sum(axis=2, dtype=np.int64)
        if first.scheduler.ahead and first.policy.schedule.noise == "laplace":
            for t in range(steps):
                loads[:, t] += self.noise.draws(first.scheduler.at(t + 1).scale, n)
            return {"load_hat": loads}
        t = 0
        while first.policy.schedule.lengths and t < steps:
            _, end = first.policy.schedule.span(t + 1)
            noise = self.noise.blocks(first.scheduler.at(t + 1).scale, end - t, n)
            loads[:, t:end] += noise[:, : steps - t]
            t = end
        if t:
            return {"load_hat": loads}
        for i in range(n):
            days = (tally_offset(day, self.terms.zone, first.zone) for day in readings[i])
            loads[i] = [release.load_hat for release in releases(first, days, self.noise)]
        return {"load_hat": loads}


def hushgrid(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Factory of the correct publisher.

    Args:
        terms: Its terms.
        seed: Seed of simulated noise; None for secure noise.

    Returns:
        The publisher.
    """
    noise = SecureNoise() if seed is None else SimulatedNoise(seed)
    return Hushgrid(terms, noise, terms.first_state())


def secure(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Factory of the correct publisher with secure noise.

    Args:
        terms: Its terms.
        seed: Ignored.

    Returns:
        The publisher.
    """
    del seed
    return hushgrid(terms)
