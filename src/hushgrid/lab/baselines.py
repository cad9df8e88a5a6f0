"""Other ways to publish at the same promise: transforms of a whole day, and w-event publication.

**Transforms.** The public knows y = F z + Laplace noise at once. Its estimate takes z as jointly
normal, with the correlation that occupancy gives it over the day, times an unknown common factor of
the day, and the noise as normal with its true variance: the best linear estimate for each factor.

Fourier perturbation, FPA_k (Rastogi, Nath 2010): in the orthonormal real basis a house's day of T
readings moves the coefficients by at most sqrt(T) u in the Euclidean norm, so by sqrt(2k-1) sqrt(T)
u in the sum of sizes. The textbook's unnormalised transform moves them by sqrt(T) times more than
its formula says.

Wavelet perturbation, Privelet (Xiao, Wang, Gehrke 2010): a Haar coefficient is (mean left - mean
right)/2 of its subtree, weighted by the subtree's size; the base is the mean of all, weighted by
their number. Weighted, a house's day moves them by the sum over subtrees of |sum left - sum right|
plus |sum of all|: its maximum over days of +-u is found exactly.

w-event privacy by budget distribution and absorption (Kellaris and others, 2014).

Any w consecutive steps lose at most epsilon together. Half of epsilon probes, at every step,
whether the load has moved away from what the public expects. Where it has, the step is published:
by distribution with half of what the publications of the last w - 1 steps have left of the other
half, by absorption with its own share of that half and those of the steps before it that were not
published, after which as many steps publish nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints, is_whole
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.belief.filter import load_moments, marginals
from hushgrid.errors import PolicyError
from hushgrid.lab.methods import Method, MethodSetting, Outcome, Ready
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.scheduler import Scheduler, exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tariff, public_rate

_FACTORS = np.exp(np.linspace(math.log(0.4), math.log(2.5), 61))


def offline(
    setting: MethodSetting, forward: Floats, scales: Floats, inverse: Floats, guarantee: str
) -> Ready:
    """Publish forward @ day plus Laplace noise; the raw day is inverse @ that.

    Args:
        setting: The zone and the promise.
        forward: (coefficients, T): the transform.
        scales: (coefficients,): Laplace scales [Wh].
        inverse: (T, coefficients): the inverse transform.
        guarantee: What it keeps, in words.

    Returns:
        The method, ready to publish a day.
    """
    spread = np.sqrt((inverse**2) @ (2 * scales**2))  # s.d. of the raw day, by step
    estimator = _Estimator(setting, forward, 2 * scales**2)

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        uniforms = np.random.Generator(np.random.PCG64(seed)).random(len(scales))
        tail = np.maximum(np.minimum(uniforms, 1 - uniforms), 2.0**-54)
        noise = np.where(uniforms < 0.5, 1.0, -1.0) * scales * np.log(2 * tail)
        coefficients = forward @ load + noise
        raw = inverse @ coefficients
        return Outcome(raw, estimator.estimate(coefficients), raw, spread, noise="gaussian")

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
            whitened = forward * self._whiten[:, None]
            spread, basis = np.linalg.eigh(whitened @ cov @ whitened.T)
            back = cov @ whitened.T @ basis
            self._models.append(
                (mean, basis, basis.T @ (whitened @ mean), np.maximum(spread, 0), back)
            )

    def estimate(self, coefficients: Floats) -> Floats:
        logs, guesses = [], []
        for mean, basis, expected, spread, back in self._models:
            total = self._factors**2 * spread + 1  # (factors, coefficients)
            residual = basis.T @ (coefficients * self._whiten) - self._factors * expected
            fit = (residual**2 / total + np.log(total)).sum(axis=1) / 2
            logs.append(self._weights - fit)
            guesses.append(self._factors * mean + self._factors**2 * (residual / total) @ back.T)
        odds = np.concatenate(logs)
        weights = np.exp(odds - odds.max())
        return np.asarray(weights @ np.concatenate(guesses) / weights.sum())


def day_law(model: OccupancyModel, consumption: Consumption, horizon: int) -> tuple[Floats, Floats]:
    """Moments of the loads of a day before any release.

    Args:
        model: The occupancy model.
        consumption: The laws of a reading.
        horizon: Number of steps T.

    Returns:
        Mean (T,) [Wh] and covariance (T, T) [Wh^2].
    """
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
    """How much more each house is expected to use when it is occupied [Wh]."""
    absent, present = consumption.table(t)
    means = np.array([law.mean for law in consumption.laws])
    return np.asarray((means[present] - means[absent])[consumption.class_of[houses]])


_MOST_K = 24  # waves shorter than an hour of quarter hours are never worth their noise


def fourier_basis(horizon: int, k: int) -> Floats:
    """The constant and k-1 pairs of cosine and sine, orthonormal rows.

    Args:
        horizon: Number of steps T.
        k: Number of frequencies, the constant included.

    Returns:
        (2k-1, T): the basis.

    Raises:
        PolicyError: If k is out of range.

    >>> b = fourier_basis(96, 10)
    >>> b.shape, bool(np.allclose(b @ b.T, np.eye(19)))
    ((19, 96), True)
    """
    if not is_whole(k) or not 1 <= k <= (horizon + 1) // 2:
        raise PolicyError(f"k is {k}; give 1 to {(horizon + 1) // 2} for {horizon} steps.")
    angle = 2 * np.pi * np.outer(np.arange(1, k), np.arange(horizon)) / horizon
    pairs = np.stack([np.cos(angle), np.sin(angle)], axis=1).reshape(-1, horizon)
    rows = np.concatenate([np.ones((1, horizon)) / math.sqrt(2), pairs])
    return np.asarray(rows * math.sqrt(2 / horizon))


def fourier_scale(horizon: int, k: int, bound: float, epsilon: float) -> float:
    """The Laplace scale of each of the 2k-1 coefficients.

    Args:
        horizon: Number of steps T.
        k: Number of frequencies.
        bound: Largest reading u [Wh].
        epsilon: Positive.

    Returns:
        The scale [Wh].
    """
    return math.sqrt(2 * k - 1) * math.sqrt(horizon) * bound / epsilon


def choose_k(mean: Floats, bound: float, epsilon: float) -> int:
    """The k of least expected squared error, from the public forecast alone.

    Args:
        mean: (T,): the forecast [Wh].
        bound: Largest reading u [Wh].
        epsilon: Positive.

    Returns:
        Number of frequencies.
    """
    horizon = len(mean)

    def cost(k: int) -> float:
        basis = fourier_basis(horizon, k)
        residual = mean - basis.T @ (basis @ mean)
        noise = (2 * k - 1) * 2 * fourier_scale(horizon, k, bound, epsilon) ** 2
        return float(residual @ residual) + noise

    return min(range(1, min((horizon + 1) // 2, _MOST_K) + 1), key=cost)


def _prepare_fourier(setting: MethodSetting) -> Ready:
    epsilon = setting.day_epsilon
    k = choose_k(setting.forecast, setting.largest, epsilon)
    basis = fourier_basis(setting.horizon, k)
    b = fourier_scale(setting.horizon, k, setting.largest, epsilon)
    scales: Any = np.full(len(basis), b)
    return offline(
        setting,
        basis,
        scales,
        basis.T,
        f"pure epsilon for a house's whole trajectory, whatever anyone consumes; k = {k} from the"
        " public forecast",
    )


FOURIER = Method("fourier", "Fourier, whole day first", False, 1.0, _prepare_fourier)


class Haar(NamedTuple):
    """The Haar transform of a day.

    Attributes:
        forward: (coefficients, T): coefficients = forward @ day.
        inverse: (T, coefficients): day = inverse @ coefficients.
        weight: (coefficients,): weights of the coefficients.
    """

    forward: Floats
    inverse: Floats
    weight: Floats


def haar(horizon: int) -> Haar:
    """The transform of a day padded with zeros to a power of two; empty subtrees are left out.

    Args:
        horizon: Number of steps T.

    Returns:
        The transform.

    >>> h = haar(96)
    >>> bool(np.allclose(h.inverse @ h.forward, np.eye(96)))
    True
    """
    _check(horizon)
    m = _padded_length(horizon)
    rows, signs, sizes = [np.full(m, 1 / m)], [np.ones(m)], [m]
    size = m
    while size > 1:
        for start in range(0, horizon, size):  # later subtrees hold nothing but padding
            sign = np.zeros(m)
            sign[start : start + size // 2] = 1.0
            sign[start + size // 2 : start + size] = -1.0
            rows.append(sign / size)
            signs.append(sign)
            sizes.append(size)
        size //= 2
    forward, inverse = np.array(rows)[:, :horizon], np.array(signs).T[:horizon]
    return Haar(forward, inverse, np.array(sizes, np.float64))


def wavelet_sensitivity(horizon: int) -> int:
    """The largest change of the weighted coefficients by a day of +-1, exactly: 220 for T = 96.

    Args:
        horizon: Number of steps T.

    Returns:
        The sensitivity.

    >>> wavelet_sensitivity(96), wavelet_sensitivity(128)
    (220, 280)
    """
    _check(horizon)
    best = _subtree(0, _padded_length(horizon), horizon)
    return max(value + abs(total) for total, value in best.items())


def _subtree(start: int, size: int, horizon: int) -> dict[int, int]:
    """For each sum of a subtree's leaves, the most its coefficients can add up to."""
    if start >= horizon:
        return {0: 0}
    if size == 1:
        return {-1: 0, 1: 0}
    half = size // 2
    lower = _subtree(start, half, horizon)
    upper = lower if start + size <= horizon else _subtree(start + half, half, horizon)
    sums: dict[int, int] = {}
    for s, x in lower.items():
        for r, y in upper.items():
            value = x + y + abs(s - r)
            if value > sums.get(s + r, -1):
                sums[s + r] = value
    return sums


def _padded_length(horizon: int) -> int:
    return 1 << max(horizon - 1, 0).bit_length()


def _check(horizon: int) -> None:
    if not is_whole(horizon) or not 1 <= horizon <= 4096:
        raise PolicyError(f"horizon is {horizon}; give 1 to 4096 steps for a wavelet.")


def _prepare_wavelet(setting: MethodSetting) -> Ready:
    transform = haar(setting.horizon)
    total = wavelet_sensitivity(setting.horizon) * setting.largest / setting.day_epsilon
    return offline(
        setting,
        transform.forward,
        total / transform.weight,
        transform.inverse,
        "pure epsilon for a house's whole trajectory, whatever anyone consumes",
    )


WAVELET = Method("wavelet", "wavelet, whole day first", False, 1.0, _prepare_wavelet)


_LITTLE = 1e-12  # of epsilon: what rounding may leave of an offer


class Shares(Protocol):
    """How epsilon is shared out over any w consecutive steps."""

    @property
    def steps(self) -> int:
        """W."""
        ...

    @property
    def probe(self) -> float:
        """What the probe of every step loses [nats]."""
        ...

    def offer(self, losses: Sequence[float]) -> float:
        """What a publication may lose [nats]; 0: there is none.

        Args:
            losses: What each of the last steps spent on a publication; all of them, or the last
                2 w.
        """
        ...


class Distribution(NamedTuple):
    """Half of what is left.

    Attributes:
        epsilon: What any `steps` consecutive steps may lose together [nats].
        steps: w.
    """

    epsilon: float
    steps: int

    @property
    def probe(self) -> float:
        """What the probe of every step loses [nats]."""
        return self.epsilon / (2 * self.steps)

    def offer(self, losses: Sequence[float]) -> float:
        """What a publication may lose [nats]; 0: there is none.

        Args:
            losses: What each of the last w - 1 steps, or more, spent on a publication.

        >>> Distribution(1.0, 4).offer([]), Distribution(1.0, 4).offer([0.25, 0.0])
        (0.25, 0.125)
        """
        counted = losses[max(len(losses) - self.steps + 1, 0) :]
        room = (self.epsilon / 2 - sum(counted)) / 2
        return room if room > _LITTLE * self.epsilon else 0.0


class Absorption(NamedTuple):
    """An equal share for each step, and those of steps before that were not published.

    Attributes:
        epsilon: What any `steps` consecutive steps may lose together [nats].
        steps: w.
    """

    epsilon: float
    steps: int

    @property
    def probe(self) -> float:
        """What the probe of every step loses [nats]; as much is a step's share of publications."""
        return self.epsilon / (2 * self.steps)

    def offer(self, losses: Sequence[float]) -> float:
        """What a publication may lose [nats]; 0: there is none.

        Args:
            losses: What each of the last steps spent on a publication; all of them, or the last
                2 w.

        >>> shares = Absorption(1.0, 4)
        >>> [shares.offer(losses) for losses in ([], [0.0, 0.0], [0.375], [0.375, 0.0, 0.0])]
        [0.125, 0.375, 0.0, 0.125]
        """
        publications = [t for t, loss in enumerate(losses) if loss > 0]
        free = 0  # the first step whose share is neither spent nor given up
        if publications:
            last = publications[-1]
            free = last + round(losses[last] / self.probe)
        return self.probe * min(max(len(losses) + 1 - free, 0), self.steps)


class _Carry(NamedTuple):
    """What a day leaves for the next one, of the held rate and of the one that is estimated."""

    losses: tuple[list[float], list[float]]
    last_load: float  # the load behind the last rate [Wh]


class _Observed(NamedTuple):
    load_hat: float  # [Wh]
    scale: float  # [Wh]
    last_load: float  # the load behind the raw rate: a step that is only probed keeps the last [Wh]
    estimate: float  # [Wh]


def _prepare(share_out: Callable[[float, int], Shares], setting: MethodSetting) -> Ready:
    promise, w = setting.promise, setting.horizon
    w = 1 if promise.secret == "step" else promise.window or w
    epsilon = promise.epsilon if promise.window else setting.day_epsilon
    shares = share_out(epsilon, w)
    zone, tariff, models, consumption = setting.scenario.terms
    policy = Policy(epsilon, setting.horizon)
    scheduler = Scheduler(exposures_of(models, zone, consumption, policy), policy)

    def scale_of(t: int, epsilon: float) -> float:
        return scheduler.at(t, (), epsilon).scale

    day = partial(_published_day, shares, scale_of, tariff)

    def publish_on(
        load: Ints, seed: np.random.SeedSequence, carry: _Carry | None
    ) -> tuple[Outcome, _Carry]:
        losses = carry.losses if carry else ([], [])
        raw, raw_losses = day(load, seed, losses[0], last_load=carry.last_load if carry else None)
        estimates, estimate_losses = day(load, seed, losses[1], setting.public)
        outcome = Outcome(
            np.array([step.last_load for step in raw]),
            np.array([step.estimate for step in estimates]),
            np.array([step.load_hat for step in raw]),
            np.array([step.scale for step in raw]),
        )
        return outcome, _Carry((raw_losses, estimate_losses), raw[-1].last_load)

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        return publish_on(load, seed, None)[0]

    return Ready(
        f"pure epsilon for any {w} steps in a row, whatever anyone consumes",
        2 * w * setting.largest / epsilon,
        publish,
        publish_on=publish_on if promise.window else None,
    )


def _published_day(
    shares: Shares,
    scale_of: Callable[[int, float], float],
    tariff: Tariff,
    load: Ints,
    seed: np.random.SeedSequence,
    last_losses: Sequence[float] = (),
    public: PublicKnowledge | None = None,
    last_load: float | None = None,
) -> tuple[list[_Observed], list[float]]:
    """Probe and publish a day; without `public` the load behind the last rate is expected.

    `last_losses` is what each of the last steps spent, `last_load` the load behind the rate of the
    last.
    """
    noise, losses = SimulatedNoise(seed), list(last_losses)
    expected, last, steps = 0.0, 0.0, list[_Observed]()
    if last_load is not None:
        expected, last = _load_behind(public_rate(last_load, tariff), tariff), last_load
    for t, z in enumerate(load.tolist(), 1):
        offer = shares.offer(losses)
        probe = scale = scale_of(t, shares.probe)
        publication = scale_of(t, offer) if offer else probe
        observation, fresh = z + noise.draw(probe), z + noise.draw(publication)
        if public is not None:
            law = public.predicted()
            expected = float((law.weights * law.mean).sum())
        # the probe's own noise moves it by its scale
        published = bool(offer) and abs(observation - expected) - probe > publication
        if published:
            observation, scale = fresh, publication
        losses.append(offer if published else 0.0)
        estimate = float(observation)
        if public is not None:
            estimate, public = public.learn(observation, scale)
        if published or (last_load is None and not steps):
            last = float(observation)
            if public is None:
                expected = _load_behind(public_rate(last, tariff), tariff)
        steps.append(_Observed(float(observation), scale, last, estimate))
    return steps, losses[-2 * shares.steps :]


def _load_behind(rate: float, tariff: Tariff) -> float:
    """The load [Wh] that a rate says: not the published one where the rate was cut."""
    if tariff.curve is not None:
        return float(tariff.curve.load(np.array(rate))) * 1000 - tariff.inelastic
    return (rate - tariff.beta) / tariff.alpha * 1000 - tariff.inelastic


WEVENT = Method("wevent", "w-event", True, 1.0, partial(_prepare, Distribution))
WEVENT_ABSORPTION = Method(
    "wevent_absorption", "w-event by absorption", True, 1.0, partial(_prepare, Absorption)
)
