"""One target house among n others with one chain and one law: its state and the others' count.

The load given the count comes from direct convolution or from characteristic functions. A
characteristic function is exact to 1e-15 of the largest probability. To be as exact in a tail, all
laws are tilted by e^(sx) first, with s where the tilted load is likely to be z (the saddle point):
Pr[z] = e^(-sz) M(s) Pr_s[z].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np
from array_api_compat import array_namespace

from hushgrid._numbers import Bools, Complexes, Floats, Ints
from hushgrid.adversary.exact import refuse_others
from hushgrid.adversary.filter import Adversary
from hushgrid.adversary.knowledge import (
    HOST,
    Array,
    Blur,
    Knowledge,
    like,
    log,
    log_blurred,
    log_sum,
)
from hushgrid.errors import ModelError
from hushgrid.model.occupancy import OccupancyModel

_SERIES = (
    -0.65132685989085472, 0.64196979235649026, 0.019476473204185836, -0.0095615147868086316,
    -0.00094659534448203687, 0.00036683949785276145, 4.2523324806907772e-5,
    -2.0278578112534243e-5, -1.6242900046470255e-6, 1.3036558355805232e-6, 1.5626441722066143e-8,
    -8.5238095914926543e-8, 6.5290544390988515e-9, 5.0593434955514689e-9, -9.9136415649303309e-10,
    -2.2736512229318359e-10, 9.6467911020155268e-11, 2.3940380830391147e-12,
    -6.8860275264975534e-12, 8.9448792730907257e-13, 3.1309213993429581e-13,
    -1.1270822361367252e-13, 3.8109052551892321e-16, 7.1060976136092369e-15,
    -1.5230282014571041e-15, -9.4574945712912545e-17, 1.210237189224273e-16,
)  # fmt: skip


def log_erfcx(x: Array) -> Array:
    """log of e^(x^2) erfc(x): SciPy's, or a Chebyshev series, as the array API has none.

    With t = 2/(2 + x), log erfcx(x) - log t is smooth for t in 0..1 (coefficients computed in 40
    digits; error 1e-15).

    Args:
        x: Numbers >= 0.

    Returns:
        The logarithms.
    """
    if isinstance(x, np.ndarray):
        from scipy.special import erfcx

        return np.log(erfcx(x))
    xp = array_namespace(x)
    t = 2 / (2 + x)
    u = 4 * t - 2
    ahead, value = 0.0 * x, 0.0 * x
    for coefficient in _SERIES[:0:-1]:  # Clenshaw
        ahead, value = value, u * value - ahead + coefficient
    return xp.log(t) + u / 2 * value - ahead + _SERIES[0]


def log_density(distance: Array, variance: Array, blur: Blur) -> Array:
    """Log density of a centred normal law plus noise.

    Args:
        distance: Where, relative to the centre [Wh].
        variance: Variance of the normal law [Wh^2], positive.
        blur: The noise; sizes of a block's noise, if any, in a shape that fits the others.

    Returns:
        Log densities, of the broadcast shape.
    """
    xp = array_namespace(distance, variance)
    if blur.sizes is not None:
        reach = like(blur.sizes + 0.5, distance)
        return _with_uniform(distance, xp.sqrt(variance), reach)
    if blur.shape == "laplace":
        return _with_laplace(distance, variance, blur.scale)
    total = variance + blur.scale**2
    return -(distance**2) / (2 * total) - xp.log(2 * math.pi * total) / 2


def _with_laplace(d: Array, v: Array, b: float) -> Array:
    """The noise was above 0 or below it; each side is a normal law tilted by v/b and cut."""
    xp = array_namespace(d, v)
    s, flat = xp.sqrt(v), -(d**2) / (2 * v)
    above = _side((v / b - d) / s, flat, v / (2 * b * b) - d / b)
    below = _side((v / b + d) / s, flat, v / (2 * b * b) + d / b)
    return xp.logaddexp(above, below) - math.log(2 * b)


def _with_uniform(d: Array, s: Array, reach: Array) -> Array:
    """Phi((|d| + reach) / s) - Phi((|d| - reach) / s) over 2 reach; from one tail if both are."""
    xp = array_namespace(d, s, reach)
    low, high = (xp.abs(d) - reach) / s, (xp.abs(d) + reach) / s
    tails = [log_erfcx(xp.abs(x) / math.sqrt(2)) - x**2 / 2 - math.log(2) for x in (low, high)]
    inside = xp.log1p(-xp.exp(tails[0]) - xp.exp(tails[1]))
    outside = tails[0] + xp.log1p(-xp.exp(xp.clip(tails[1] - tails[0], None, -1e-15)))
    return xp.where(low > 0, outside, inside) - xp.log(2 * reach)


def _side(x: Array, flat: Array, slope: Array) -> Array:
    """`slope` + log Phi(-x), where slope = flat + x^2/2: from whichever does not cancel."""
    xp = array_namespace(x)
    size = xp.abs(x)
    tail = log_erfcx(size / math.sqrt(2)) - math.log(2)  # log of e^(x^2/2) Phi(-|x|)
    return xp.where(x >= 0, flat + tail, slope + xp.log1p(-xp.exp(tail - size**2 / 2)))


DIRECT = 2e9  # multiplications up to which the sums' laws are convolved directly


def predict_counts(law: Array, come: float, stay: float) -> Array:
    """The law of the number of houses at home one step later.

    sum_m law_m U^m V^(n-m), U and V the generating functions of one house that was home or out:
    Horner's rule, positive terms only, O(n^2).

    Args:
        law: (..., n + 1): probabilities of 0..n houses at home.
        come: Probability that an absent house is home at the next step.
        stay: Probability that a present house is home at the next step.

    Returns:
        (..., n + 1): probabilities one step later.
    """
    xp, n = array_namespace(law), law.shape[-1] - 1
    come, stay = float(come), float(stay)  # numpy's own would make numpy arrays of everything
    nil = xp.zeros_like(law[..., :1])
    shifted, power = law[..., n:], xp.ones_like(law[..., :1])
    for m in range(n - 1, -1, -1):
        power = _times(power, come, nil)
        shifted = _times(shifted, stay, nil) + law[..., m : m + 1] * power
    return shifted


def predict_counts_back(message: Array, come: float, stay: float) -> Array:
    """E[message(count a step later) given the count]: Horner's rule transposed.

    Args:
        message: (..., n + 1): a function of the count.
        come: Probability that an absent house is home at the next step.
        stay: Probability that a present house is home at the next step.

    Returns:
        (..., n + 1): expectations.
    """
    xp, n = array_namespace(message), message.shape[-1] - 1
    come, stay = float(come), float(stay)
    nil = xp.zeros_like(message[..., :1])
    powers = [xp.ones_like(nil)]
    for _ in range(n):
        powers.append(_times(powers[-1], come, nil))
    expectations = []
    for m in range(n):
        expectations.append(xp.sum(powers[n - m] * message, axis=-1))
        message = (1 - stay) * message[..., :-1] + stay * message[..., 1:]
    return xp.stack([*expectations, message[..., 0]], axis=-1)


def _times(law: Array, chance: float, nil: Array) -> Array:
    """One more house, at home with this probability."""
    xp = array_namespace(law)
    return (1 - chance) * xp.concat([law, nil], axis=-1) + chance * xp.concat([nil, law], axis=-1)


def count_likelihood(target: LawPair, peer: LawPair, n: int, z: int, blur: Blur) -> Floats:
    """Log likelihood of a release given the target's state and the others' count.

    Args:
        target: The target's pmfs of absent and present [Wh].
        peer: Those of every other house.
        n: Number of other houses.
        z: The published load [Wh].
        blur: The noise of the release.

    Returns:
        (2, n + 1): log Pr[load_hat = z given the state and the number of others at home];
        (G, 2, n + 1) where the noise has several sizes.
    """
    u = max(map(len, peer))
    if blur.sizes is None and n * (n * u) * u <= DIRECT:
        return _direct(target, peer, n, z, blur)
    if blur.sizes is None:
        return frequency_likelihood(target, peer, n, z, blur)
    if n * (n * u) * max(u, 32 * blur.sizes.size) <= DIRECT:
        return _direct(target, peer, n, z, blur)
    sized_blurs = [
        Blur(blur.shape, m, blur.sizes[i : i + 1]) for i, m in enumerate(blur.sizes.tolist())
    ]
    return np.stack(
        [frequency_likelihood(target, peer, n, z, sized_blur) for sized_blur in sized_blurs]
    )


def _direct(target: LawPair, peer: LawPair, n: int, z: int, blur: Blur) -> Floats:
    """By convolution, exact in every tail."""
    home, out = [np.ones(1)], [np.ones(1)]
    for _ in range(n):
        home.append(np.convolve(home[-1], peer[1]))
        out.append(np.convolve(out[-1], peer[0]))
    logs = np.empty((*(() if blur.sizes is None else blur.sizes.shape), 2, n + 1))
    for s, f in enumerate(target):
        for m in range(n + 1):
            load = np.convolve(out[n - m], f)
            noisy = log_blurred(load, z - np.arange(home[m].size), blur)
            logs[..., s, m] = log_sum(log(home[m]) + noisy, axis=-1)
    return logs


LawPair = tuple[Floats, Floats]

_LOST = math.log(1e-18)  # of a characteristic function: what is left out
_TRUSTED = 1e-7  # of the largest term: below it, rounding would matter
_ENOUGH = 40.0  # nats below the likeliest count: what is left there does not matter
_ROUNDS = 16
_CHUNK = 2048  # frequencies computed at once


def frequency_likelihood(target: LawPair, peer: LawPair, n: int, z: int, blur: Blur) -> Floats:
    """`count_likelihood` by characteristic functions.

    Relative error below 1e-7 for every count within e^-40 of the likeliest; the rest are normal.
    Noise of a block of steps has one size here, its scale, and no tilt: counts that make the
    release all but impossible at that size are normal.

    Args:
        target: The target's pmfs of absent and present [Wh].
        peer: Those of every other house.
        n: Number of other houses.
        z: The published load [Wh].
        blur: The noise of the release.

    Returns:
        (2, n + 1): log likelihoods.
    """
    likelihoods = normal_likelihood(target, peer, n, z, blur)
    missing, s = np.ones((2, n + 1), bool), 0.0
    for _ in range(_ROUNDS):
        counts = np.flatnonzero(missing.any(axis=0))
        logs, usable = _tilted(target, peer, n, z, blur, s, counts)
        usable &= missing[:, counts]
        likelihoods[:, counts] = np.where(usable, logs, likelihoods[:, counts])
        missing[:, counts] &= ~usable
        worth = np.where(missing, likelihoods, -np.inf)
        if worth.max() < likelihoods.max() - _ENOUGH or blur.sizes is not None:
            break
        state, m = divmod(int(worth.argmax()), n + 1)
        s = _saddle([(target[state], 1), (peer[1], m), (peer[0], n - m)], z, blur)
    return likelihoods


def _tilted(
    target: LawPair, peer: LawPair, n: int, z: int, blur: Blur, s: float, counts: Ints
) -> tuple[Floats, Bools]:
    """log likelihoods (2, counts) from laws tilted by s, and where they can be trusted."""
    (target_tilted, target_mass), (peer_tilted, mass) = (_tilt(pair, s) for pair in (target, peer))
    period = _period((target_tilted, peer_tilted), n, z, blur, s, counts)
    m = counts[:, None]
    sums, sizes = np.zeros((2, 2, counts.size))
    for k in _frequencies(peer_tilted, n, blur, s, period):
        w = 2 * np.pi * k / period
        peer_factors = [_characteristic(f, w) for f in peer_tilted]
        target_factors = peer_factors
        if target is not peer:
            target_factors = [_characteristic(f, w) for f in target_tilted]
        product = np.exp(m * np.log(peer_factors[1]) + (n - m) * np.log(peer_factors[0]))
        # each frequency but the first and the last counts for its mirror image too
        share = np.where((k == 0) | (2 * k == period), 1.0, 2.0) / period * noise_at(blur, s, w)
        for state in (0, 1):
            term = product * (target_factors[state] * share * np.exp(-1j * w * z))
            sums[state] += term.real.sum(axis=1)
            sizes[state] += np.abs(term).sum(axis=1)
    masses = target_mass[:, None] + counts * mass[1] + (n - counts) * mass[0]
    return log(sums) + masses - s * z, sums > _TRUSTED * sizes


def _period(
    pairs: tuple[LawPair, LawPair], n: int, z: int, blur: Blur, s: float, counts: Ints
) -> int:
    """Whole Wh that hold z and all but e^-40 of every count's load, so that nothing wraps around.

    Bernstein: a sum of readings within 0..u is x = 9 sigma + 27 u from its mean with at most
    e^-40, for x^2 / (2 sigma^2 + 2 u x / 3) > 40.
    """
    target, peer = pairs
    top = n * (max(map(len, peer)) - 1) + max(map(len, target)) - 1
    (mean, variance), (target_mean, target_variance) = moments(peer), moments(target)
    means = counts * mean[1] + (n - counts) * mean[0]
    sigma = math.sqrt(n * variance.max() + target_variance.max())
    beyond = 9 * sigma + 27 * max(map(len, (*target, *peer)))
    low = max(0.0, float(means.min() + target_mean.min()) - beyond)
    high = min(float(top), float(means.max() + target_mean.max()) + beyond)
    return math.ceil(high - low + max(0, low - z, z - high) + _margin(blur, s)) + 2


def _tilt(pair: LawPair, s: float) -> tuple[LawPair, Floats]:
    """Both laws times e^(sx), normalised, and the logarithms of their masses."""
    tilted, masses = [], []
    for f in pair:
        x = np.arange(f.size)
        most = max(s * (f.size - 1), 0.0)
        raised = f * np.exp(s * x - most)
        tilted.append(raised / raised.sum())
        masses.append(math.log(raised.sum()) + most)
    return (tilted[0], tilted[1]), np.array(masses)


def noise_at(blur: Blur, s: float, w: Floats) -> Complexes:
    """Moment generating function of the noise, E[e^((s + iw) K)].

    Args:
        blur: The noise.
        s: Tilt; |s| below 1/scale where the noise is Laplace.
        w: Frequencies.

    Returns:
        Complex numbers of the shape of `w`.
    """
    if blur.shape == "laplace":
        q, e = math.exp(-1 / blur.scale), np.exp(s + 1j * w)
        return np.asarray((1 - q) ** 2 / ((1 - q * e) * (1 - q / e)), np.complex128)
    if blur.shape == "gaussian":
        turns = 2j * math.pi * np.arange(-2, 3)[:, None]
        transform = np.exp((blur.scale * (s + 1j * w + turns)) ** 2 / 2).sum(axis=0)
        return np.asarray(
            transform * blur.scale * math.sqrt(2 * math.pi) / blur.weight, np.complex128
        )
    if blur.shape == "block":  # Dirichlet's kernel; no tilt
        half, wide = np.where(w == 0, 1.0, w / 2), 2 * blur.scale + 1
        transform = np.where(w == 0, 1.0, np.sin(wide * half) / (wide * np.sin(half)))
        return np.asarray(transform, np.complex128)
    return np.ones(w.shape, np.complex128)


def _margin(blur: Blur, s: float) -> float:
    """Wh that hold all but e^-40 of tilted noise, on both sides together."""
    if blur.shape == "laplace":
        return 40 / (1 / blur.scale - s) + 40 / (1 / blur.scale + s)
    if blur.shape == "block":
        return 2 * blur.scale + 1
    return 18 * blur.scale + 2 * abs(s) * blur.scale**2


def _saddle(parts: list[tuple[Floats, int]], z: int, blur: Blur) -> float:
    """The tilt under which the mean of all laws plus noise is z, by bisection."""
    most = (1 - 1e-9) / blur.scale if blur.shape == "laplace" else 40.0
    low, high = -most, most
    for _ in range(60):
        s = (low + high) / 2
        mean = _noise_mean(blur, s)
        for f, count in parts:
            (tilted, _), _ = _tilt((f, f), s)
            mean += count * float(tilted @ np.arange(f.size))
        low, high = (s, high) if mean < z else (low, s)
    return (low + high) / 2


def _noise_mean(blur: Blur, s: float) -> float:
    if blur.shape == "laplace":
        up, down = math.expm1(1 / blur.scale - s), math.expm1(1 / blur.scale + s)
        return 1 / up - 1 / down
    return s * blur.scale**2


def _frequencies(peer: LawPair, n: int, blur: Blur, s: float, period: int) -> list[Ints]:
    """The k with a characteristic function at 2 pi k / period that counts, in chunks.

    They are sought on the whole circle: readings in steps of 100 Wh have echoes far out.
    """
    u = max(map(len, peer))
    cells = 64 * u
    size = np.max([np.abs(np.fft.rfft(f, cells)) for f in peer], axis=0)
    slack = u / 2 * np.pi / cells  # |phi| of a law within 0..u rises no faster than u/2
    least = np.maximum(2 * np.pi * np.arange(size.size) / cells - np.pi / cells, 0.0)
    bound = n * np.log(np.minimum(size + slack, 1.0))
    if blur.sizes is None:  # uniform noise has zeros, and hardly a smaller bound
        bound += log(np.abs(noise_at(blur, s, least))) - log(np.abs(noise_at(blur, s, least[:1])))
    last, chunks = period // 2, [np.zeros(0, np.int64)]
    for cell in np.flatnonzero(bound >= _LOST):
        start, stop = ((cell + side) * period / cells for side in (-0.5, 0.5))
        chunks.append(np.arange(max(0, math.ceil(start)), min(last + 1, math.ceil(stop))))
    frequencies = np.concatenate(chunks)
    return [frequencies[i : i + _CHUNK] for i in range(0, frequencies.size, _CHUNK)]


def _characteristic(f: Floats, w: Floats) -> Complexes:
    """E[e^(iwX)], never quite 0: its logarithm is taken."""
    transform = np.exp(1j * np.multiply.outer(w, np.arange(f.size))) @ f
    return np.where(np.abs(transform) > 1e-300, transform, 1e-300)


def normal_likelihood(target: LawPair, peer: LawPair, n: int, z: int, blur: Blur) -> Floats:
    """`count_likelihood` with the load given the count as a normal law.

    Args:
        target: The target's pmfs of absent and present [Wh].
        peer: Those of every other house.
        n: Number of other houses.
        z: The published load [Wh].
        blur: The noise of the release.

    Returns:
        (2, n + 1): log likelihoods.
    """
    (target_mean, target_variance), (mean, variance) = moments(target), moments(peer)
    m = np.arange(n + 1)
    centre = target_mean[:, None] + m * mean[1] + (n - m) * mean[0]
    spread = target_variance[:, None] + m * variance[1] + (n - m) * variance[0]
    if blur.sizes is not None:
        blur = blur._replace(sizes=blur.sizes[:, None])  # of one size here: (1, 1)
    return np.asarray(log_density(z - centre, np.maximum(spread, 1 / 12), blur))


def moments(pair: LawPair) -> tuple[Floats, Floats]:
    """Moments of the readings of absent and present.

    Args:
        pair: Pmfs of absent and present over 0, 1, 2, ... [Wh].

    Returns:
        Means [Wh] and variances [Wh^2], (2,) each.
    """
    means = [float(f @ np.arange(f.size)) for f in pair]
    spreads = [float(f @ (np.arange(f.size) - m) ** 2) for f, m in zip(pair, means, strict=True)]
    return np.array(means), np.array(spreads)


@final
class Population(Adversary):
    """Adversary for one target among N - 1 houses with one chain and one law; exact.

    The target may have its own chain and law. The other houses are exchangeable, so their number at
    home is all that can be inferred about them.

    Args:
        knowledge: What the adversary knows.
        target: The house it infers occupancy of.
        like: An array of the library and device to work on.

    Raises:
        ModelError: If the other houses differ, houses move together, or the target is not a house.
        PolicyError: If readings or occupancy of other houses are known.
    """

    def __init__(self, knowledge: Knowledge, target: int = 0, like: Array = HOST) -> None:
        super().__init__(knowledge, like)
        n = knowledge.n_houses
        if not 0 <= target < n:
            raise ModelError(f"target is {target}; give one of the houses 0..{n - 1}.")
        refuse_others(knowledge, "Population")
        self.houses, self._n = (target,), n - 1
        self._other = 0 if target else n - 1  # represents all the others
        self._chains = {
            id(model): _two_chains(model, target, self._other) for model in knowledge.models
        }
        kinds = np.delete(knowledge.laws(1, None).kind_of, target)
        if kinds.size and (kinds != kinds[0]).any():
            raise ModelError(
                "houses other than the target have different laws of readings;"
                " give equal houses, or use Factored."
            )

    def prior(self, model: OccupancyModel) -> Array:
        """(2, N): the target's state and the number of others at home."""
        target, peer = self._chains[id(model)]
        pi = model.chains[0].initial
        count = np.zeros((1, self._n + 1))
        count[0, 0] = 1.0
        home = float(pi[peer, 1])
        count = predict_counts(count, home, home)
        return like(log(pi[target])[:, None] + log(count), self.like)

    def predict(self, law: Array, model: OccupancyModel, t: int) -> Array:
        """Eq. (2): the others' count, then the target."""
        target, peer = self._transitions(model, t)
        counts = _linear(law, lambda rows: predict_counts(rows, peer[0, 1], peer[1, 1]))
        return _two_states(counts, log(target))

    def predict_back(self, message: Array, model: OccupancyModel, t: int) -> Array:
        """The transposed moves."""
        target, peer = self._transitions(model, t)
        counts = _linear(message, lambda rows: predict_counts_back(rows, peer[0, 1], peer[1, 1]))
        return _two_states(counts, log(target.T))

    def likelihood(self, law: Array, t: int, rate: float | None, z: int, blur: Blur) -> Array:
        """The law of the load given the count, seen through the noise at z."""
        laws = self.knowledge.laws(t, rate)
        target, peer = (laws.pairs[laws.kind_of[i]] for i in (self.houses[0], self._other))
        logs = count_likelihood(target, peer, self._n, z, blur)
        return like(logs.reshape(*logs.shape[:-2], *law.shape[-2:]), self.like)

    def home(self, law: Array) -> Array:
        """Pr[the target is at home], as (1,)."""
        xp = array_namespace(law)
        home = log_sum(law[..., 1:, :], axis=-1)
        return xp.exp(home if home.ndim == 1 else log_sum(home, axis=0))

    def _transitions(self, model: OccupancyModel, t: int) -> tuple[Floats, Floats]:
        target, peer = self._chains[id(model)]
        a = model.chains[0].transition[model.calendar.slot(t)]
        return a[target], a[peer]


def _linear(law: Array, move: Callable[[Array], Array]) -> Array:
    """A linear map of rows kept as logarithms: each is scaled to 1 first."""
    xp = array_namespace(law)
    most = xp.max(law, axis=-1, keepdims=True)
    most = xp.where(xp.isfinite(most), most, 0.0)
    return log(move(xp.exp(law - most))) + most


def _two_states(law: Array, log_a: Floats) -> Array:
    """The target's own move: rows are its states."""
    xp = array_namespace(law)
    a, out, home = like(log_a, law), law[..., 0, :], law[..., 1, :]
    moved = [xp.logaddexp(out + a[0, s], home + a[1, s]) for s in (0, 1)]
    return xp.stack(moved, axis=-2)


def _two_chains(model: OccupancyModel, target: int, peer: int) -> tuple[int, int]:
    """The chains of the target and of all the others; refused where those differ."""
    piece = model.chains[0]
    if len(model.chains) > 1 or piece.size > 1:
        raise ModelError(
            f"model {model.name} has houses that move together; give independent houses, or use"
            " Exact."
        )
    chain_of = np.empty_like(piece.chain_of)
    chain_of[piece.members[:, 0]] = piece.chain_of
    first = chain_of[peer]
    for chain in np.unique(np.delete(chain_of, target)):
        equal = np.array_equal(piece.initial[chain], piece.initial[first])
        if not equal or not np.array_equal(piece.transition[:, chain], piece.transition[:, first]):
            raise ModelError(
                f"model {model.name} moves houses other than the target in different ways;"
                " give equal houses, or use Factored."
            )
    return int(chain_of[target]), int(first)
