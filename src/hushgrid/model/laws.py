"""Laws of one reading on whole Wh, 0..top: pmf, moments, mgf, characteristic function.

Where a house exports, 0 is its export limit: the laws are those of the offset reading (`Net`).
Continuous families are discretised to the nearest Wh and truncated (renormalised) at their bound.
The discretised pmf *is* the public law; nothing about privacy rests on the continuous one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import (
    Floats,
    Ints,
    array_digest,
    brief,
    float_array,
    is_real,
    is_whole,
    real,
)
from hushgrid.errors import ConsumptionError


class Law(ABC):
    """A probability law of one reading on 0..top [Wh]. Subclasses define the pmf.

    Attributes:
        top: Largest reading [Wh].
    """

    top: int

    @abstractmethod
    def _pmf(self) -> Floats: ...

    @cached_property
    def pmf(self) -> Floats:
        """Probabilities of 0..top, read-only."""
        f = np.array(self._pmf(), np.float64)
        if f.shape != (self.top + 1,) or not (f >= 0).all() or not abs(f.sum() - 1) <= 1e-9:
            raise ConsumptionError(
                f"{type(self).__name__} gives {f.size} probabilities that sum to {f.sum():g};"
                f" give one of 0 or more for each Wh from 0 to {self.top}, summing to 1."
            )
        f.flags.writeable = False
        return f

    @cached_property
    def mean(self) -> float:
        """Expected reading [Wh]."""
        return float(self.pmf @ np.arange(self.top + 1))

    @cached_property
    def variance(self) -> float:
        """Variance of the reading [Wh^2]."""
        return float(self.pmf @ (np.arange(self.top + 1) - self.mean) ** 2)

    def sample(self, uniforms: ArrayLike) -> Ints:
        """Readings [Wh] from uniform numbers in [0, 1), by inversion."""
        cdf = np.cumsum(self.pmf)
        wh = np.searchsorted(cdf / cdf[-1], np.asarray(uniforms), side="right")
        return np.minimum(wh, self.top).astype(np.int64)

    def cut(self, at: ClampAt) -> Law:
        """The law of the reading clamped at `at` [Wh], less the lower end of the clamp."""
        low, high = clamp_ends(at)
        return self if high >= self.top and not low else Cut(self, high, low)

    def scaled(self, factor: float, bound: int) -> Law:
        """The law of the reading times `factor`, rounded to whole Wh and cut at `bound`."""
        moved = scale_wh(np.arange(self.top + 1), factor, bound)
        return Histogram(np.bincount(moved, self.pmf).astype(np.float64))


ClampAt = int | tuple[int, int]  # offset Wh: the upper end, or both; a lower end is above 0
Clamp = tuple[ClampAt, ...]  # one for each density class; empty: no clamp


def clamp_ends(at: ClampAt) -> tuple[int, int]:
    """Lower and upper end of a clamp.

    Args:
        at: The upper end, or both ends [Wh].

    Returns:
        Both; the lower one is 0 where it is not given.

    >>> clamp_ends(800), clamp_ends((200, 800))
    ((0, 800), (200, 800))
    """
    return at if isinstance(at, tuple) else (0, at)


class Split(NamedTuple):
    """Moments of the parts of a reading inside and outside a clamp, one for each factor.

    Attributes:
        below: Mean of min(max(factor X, low), at) [Wh].
        below_variance: Its variance [Wh^2].
        above: Mean of (factor X - at)+ - (low - factor X)+ [Wh]: what is put back.
        above_variance: Its variance [Wh^2].
        over: Mean of factor X where it is above at, else 0 [Wh]: the derivative of the first part
            of `above` by the logarithm of the factor. Where factor X is below low, low counts.
        under: Mean of (low - factor X)+ [Wh].
    """

    below: Floats
    below_variance: Floats
    above: Floats
    above_variance: Floats
    over: Floats
    under: Floats


def split(law: Law, at: float, factors: Floats, low: float | Floats = 0.0) -> Split:
    """Moments of what a clamp keeps and cuts of a reading times a factor.

    Args:
        law: Law of the reading X.
        at: The clamp's upper end [Wh].
        factors: Factors that multiply X, (F,), above 0.
        low: Its lower end, one for all or (F,) [Wh].

    Returns:
        Mean and variance of both parts, (F,) each.
    """
    x = np.arange(law.top + 1, dtype=np.float64)
    sums = np.cumsum(np.stack([law.pmf, law.pmf * x, law.pmf * x**2]), axis=1)
    j = np.minimum(np.floor(at / factors), law.top).astype(np.int64)
    (p, m1, m2), (all_p, all_1, all_2) = sums[:, j], sums[:, -1:]
    tail = np.maximum(all_p - p, 0.0)
    below = factors * m1 + at * tail
    below_square = factors**2 * m2 + at**2 * tail
    above = np.maximum(factors * (all_1 - m1) - at * tail, 0.0)
    above_square = factors**2 * (all_2 - m2) - 2 * at * factors * (all_1 - m1) + at**2 * tail
    over, under = factors * np.maximum(all_1 - m1, 0.0), np.zeros_like(factors)
    if np.any(low):
        p, m1, m2 = sums[:, np.minimum(np.floor(low / factors), law.top).astype(np.int64)]
        under = np.maximum(low * p - factors * m1, 0.0)
        below, above = below + under, above - under
        below_square = below_square + low**2 * p - factors**2 * m2
        above_square = above_square + low**2 * p - 2 * low * factors * m1 + factors**2 * m2
        over = over + low * p
    return Split(
        below,
        np.maximum(below_square - below**2, 0.0),
        above,
        np.maximum(above_square - above**2, 0.0),
        over,
        under,
    )


def scale_wh(readings: NDArray[np.integer], factor: float, bound: int) -> Ints:
    """Multiply whole Wh by a factor, round half up and clamp at the bound.

    Args:
        readings: Whole Wh, any shape.
        factor: The factor.
        bound: The bound [Wh].

    Returns:
        Whole Wh, in the shape of `readings`.
    """
    return np.asarray(np.minimum(np.floor(readings * factor + 0.5), bound), np.int64)


@dataclass(frozen=True)
class Uniform(Law):
    """Every whole Wh from 0 to top is equally likely.

    Attributes:
        top: Largest reading [Wh].

    >>> Uniform(3).pmf
    array([0.25, 0.25, 0.25, 0.25])
    """

    top: int

    def __post_init__(self) -> None:
        _check_top(self.top)

    def _pmf(self) -> Floats:
        return np.full(self.top + 1, 1 / (self.top + 1))

    @cached_property
    def mean(self) -> float:
        """Expected reading [Wh]."""
        return self.top / 2

    @cached_property
    def variance(self) -> float:
        """Variance of the reading [Wh^2]."""
        return self.top * (self.top + 2) / 12

    def sample(self, uniforms: ArrayLike) -> Ints:
        """Readings [Wh] from uniform numbers in [0, 1)."""
        return (np.asarray(uniforms) * (self.top + 1)).astype(np.int64)


@dataclass(frozen=True)
class TruncatedNormal(Law):
    """A normal law, discretised and truncated to 0..top.

    Attributes:
        centre: Mean before truncation [Wh].
        spread: Standard deviation before truncation [Wh], above 0.
        top: Largest reading [Wh].
    """

    centre: float
    spread: float
    top: int

    def __post_init__(self) -> None:
        _check_top(self.top)
        _check_finite("truncated normal", "centre", self.centre)
        _check_positive("truncated normal", "spread", self.spread)

    def _pmf(self) -> Floats:
        from scipy.special import ndtr

        with np.errstate(over="ignore"):  # an edge beyond all floats has the whole law on one side
            edges = (_edges(self.top) - self.centre) / self.spread
        edges[0] = -np.inf
        return _normalised(_steps(ndtr(edges), ndtr(-edges)), self)


@dataclass(frozen=True)
class Gamma(Law):
    """A gamma law, discretised and truncated to 0..top.

    Attributes:
        shape: Shape parameter, above 0.
        scale: Scale parameter before truncation [Wh], above 0.
        top: Largest reading [Wh].
    """

    shape: float
    scale: float
    top: int

    def __post_init__(self) -> None:
        _check_top(self.top)
        _check_positive("gamma", "shape", self.shape)
        _check_positive("gamma", "scale", self.scale)

    def _pmf(self) -> Floats:
        from scipy.special import gammainc, gammaincc

        with np.errstate(over="ignore"):  # an edge beyond all floats has the whole law below it
            edges = _edges(self.top) / self.scale
        return _normalised(_steps(gammainc(self.shape, edges), gammaincc(self.shape, edges)), self)


@dataclass(frozen=True)
class LogNormal(Law):
    """The exponential of a normal law, discretised and truncated to 0..top.

    Attributes:
        median: Median before truncation [Wh], above 0.
        spread: Standard deviation of the logarithm, above 0.
        top: Largest reading [Wh].
    """

    median: float
    spread: float
    top: int

    def __post_init__(self) -> None:
        _check_top(self.top)
        _check_positive("log-normal", "median", self.median)
        _check_positive("log-normal", "spread", self.spread)

    def _pmf(self) -> Floats:
        from scipy.special import ndtr

        edges = np.full(self.top + 2, -np.inf)
        with np.errstate(over="ignore"):  # an edge beyond all floats has the whole law below it
            edges[1:] = np.log(_edges(self.top)[1:] / self.median) / self.spread
        return _normalised(_steps(ndtr(edges), ndtr(-edges)), self)


@dataclass(frozen=True, eq=False, init=False)
class Histogram(Law):
    """An empirical law.

    Args:
        weights: Weights of 0, 1, 2, ... Wh, (top + 1,), 0 or more, not all 0.

    >>> Histogram([1, 3]).pmf
    array([0.25, 0.75])
    """

    weights: Floats

    __repr__ = brief

    def __init__(self, weights: ArrayLike) -> None:
        w = float_array(weights, "histogram weights", ConsumptionError, ("weights",))
        with np.errstate(over="ignore"):
            total = float(w.sum())
        if w.ndim != 1 or w.size == 0 or not (w >= 0).all() or not 0 < total < np.inf:
            raise ConsumptionError(
                f"histogram weights have shape {w.shape} and sum {total};"
                " give one weight of 0 or more for each Wh from 0, not all 0.",
                fields=("weights",),
            )
        w.flags.writeable = False
        object.__setattr__(self, "weights", w)

    @property
    def top(self) -> int:  # type: ignore[override]
        """Largest reading with a weight of its own [Wh]."""
        return len(self.weights) - 1

    def _pmf(self) -> Floats:
        return np.asarray(self.weights / self.weights.sum())


@dataclass(frozen=True)
class Cut(Law):
    """The law of min(max(X, low), at) - low: the mass outside a clamp is at its ends.

    Attributes:
        law: Law of X.
        at: The clamp's upper end [Wh].
        low: Its lower end [Wh].

    >>> Uniform(3).cut(1).pmf
    array([0.25, 0.75])
    >>> Uniform(3).cut((1, 2)).pmf
    array([0.5, 0.5])
    """

    law: Law
    at: int
    low: int = 0

    @property
    def top(self) -> int:  # type: ignore[override]
        """Largest reading [Wh]."""
        return max(min(self.at, self.law.top) - self.low, 0)

    def _pmf(self) -> Floats:
        end = self.low + self.top
        f = np.array(self.law.pmf[self.low : end + 1]) if self.low <= self.law.top else np.zeros(1)
        f[-1] += self.law.pmf[end + 1 :].sum()
        if self.low:
            f[0] += self.law.pmf[: self.low].sum()
        return f

    def scaled(self, factor: float, bound: int) -> Law:
        """Readings react to the price first and are clamped then."""
        if self.low:  # readings that react have no lower end: see `offset_tariff`
            return super().scaled(factor, bound)
        return self.law.scaled(factor, min(bound, self.at))


@dataclass(frozen=True, eq=False, init=False)
class Binned(Law):
    """A histogram in bins, uniform within each bin.

    A share of 1 in 1000 is spread over all of 0..top, so that no reading is impossible.

    Args:
        edges: Bin i covers edges[i]..edges[i + 1] - 1 [Wh]; (bins + 1,) whole, rising from 0.
        weights: Weights of the bins, (bins,), 0 or more, not all 0.
        top: Largest reading [Wh]; bins above it count there.

    >>> Binned([0, 1, 3], [1, 1], top=3).pmf.round(3)
    array([0.5 , 0.25, 0.25, 0.  ])
    """

    edges: Ints
    weights: Floats
    top: int

    def __init__(self, edges: ArrayLike, weights: ArrayLike, top: int) -> None:
        e = float_array(edges, "edges of bins", ConsumptionError, ("edges",))
        w = float_array(weights, "weights of bins", ConsumptionError, ("weights",))
        _check_top(top)
        rising = e.ndim == 1 and len(e) > 1 and (e == np.floor(e)).all() and e[0] == 0
        if not (rising and (np.diff(e) > 0).all() and e[-1] < 2**31):
            raise ConsumptionError(
                "edges of bins do not rise from 0 in whole Wh; sort them.", fields=("edges",)
            )
        sound = w.ndim == 1 and (w >= 0).all() and 0 < w.sum() < np.inf
        if not sound or w.shape != (len(e) - 1,):
            raise ConsumptionError(
                f"bins have edges of shape {e.shape} and weights of shape {w.shape}; give one edge"
                " more than weights of 0 or more, not all 0.",
                fields=("weights", "edges") if sound else ("weights",),
            )
        object.__setattr__(self, "edges", e.astype(np.int64))
        object.__setattr__(self, "weights", w)
        object.__setattr__(self, "top", top)

    def _pmf(self) -> Floats:
        width = np.diff(self.edges)
        flat = np.repeat(self.weights / self.weights.sum() / width, width)
        f = np.zeros(self.top + 1)
        n = min(len(flat), self.top + 1)
        f[:n] = flat[:n]
        f[-1] += flat[n:].sum()  # as a clamp would
        return np.asarray((1 - _REST) * f + _REST / (self.top + 1))


_REST = 1e-3


@dataclass(frozen=True, eq=False, init=False)
class Mixture(Law):
    """A mixture of laws.

    Args:
        laws: The laws.
        shares: Probability of each law, summing to 1.

    >>> Mixture([Uniform(0), Uniform(1)], [0.5, 0.5]).pmf
    array([0.75, 0.25])
    """

    laws: tuple[Law, ...]
    shares: Floats

    def __init__(self, laws: Sequence[Law], shares: ArrayLike) -> None:
        w = float_array(shares, "shares of a mixture", ConsumptionError)
        if not laws or w.shape != (len(laws),) or not (w >= 0).all() or not abs(w.sum() - 1) < 1e-6:
            raise ConsumptionError(
                f"a mixture has {len(laws)} laws and shares of shape {w.shape}; give one share of 0"
                " or more for each law, summing to 1."
            )
        object.__setattr__(self, "laws", tuple(laws))
        object.__setattr__(self, "shares", w / w.sum())

    @property
    def top(self) -> int:  # type: ignore[override]
        """Largest reading [Wh]."""
        return max(law.top for law in self.laws)

    def _pmf(self) -> Floats:
        f = np.zeros(self.top + 1)
        for law, share in zip(self.laws, self.shares, strict=True):
            f[: law.top + 1] += share * law.pmf
        return f


@dataclass(frozen=True)
class Net(Law):
    """The law of consumption less generation, plus the export limit: an offset reading.

    Generation beyond what may be exported is cut, as the inverter does.

    Attributes:
        consumption: Law of what the house consumes [Wh].
        solar: Law of what its panels generate, independent of it [Wh].
        export: The export limit v [Wh].

    >>> Net(Uniform(1), Histogram([0.5, 0, 0, 0.5]), export=2).pmf
    array([0.5 , 0.  , 0.25, 0.25])
    """

    consumption: Law
    solar: Law
    export: int

    __repr__ = brief

    @property
    def top(self) -> int:  # type: ignore[override]
        """Largest offset reading [Wh]."""
        return self.consumption.top + self.export

    def _pmf(self) -> Floats:
        f, g = self.consumption.pmf, self.solar.pmf[::-1]
        if f.size * g.size <= _DIRECT:
            joint = np.convolve(f, g)  # over -solar.top..consumption.top
        else:
            n = f.size + g.size - 1
            joint = np.maximum(np.fft.irfft(np.fft.rfft(f, n) * np.fft.rfft(g, n), n), 0.0)
        more = self.export - self.solar.top
        if more >= 0:
            return np.asarray(np.concatenate([np.zeros(more), joint]) / joint.sum())
        out = joint[-more:].copy()
        out[0] += joint[:-more].sum()
        return np.asarray(out / joint.sum())


_DIRECT = 1 << 27  # products; a longer convolution goes by Fourier transform


FAMILIES: dict[str, Callable[..., Law]] = {
    "bins": Binned,
    "uniform": Uniform,
    "normal": TruncatedNormal,
    "gamma": Gamma,
    "lognormal": LogNormal,
    "histogram": Histogram,
}


_PARAMETERS: dict[type[Law], tuple[str, tuple[str, ...]]] = {
    Uniform: ("uniform", ()),
    TruncatedNormal: ("normal", ("centre", "spread")),
    Gamma: ("gamma", ("shape", "scale")),
    LogNormal: ("lognormal", ("median", "spread")),
}


def law_fields(law: Law) -> dict[str, Any]:
    """A law under the keys of a zone file, for digests; tables are replaced by their digests.

    Args:
        law: The law. One of a class not defined here is identified by its probabilities.

    Returns:
        Key to value, as JSON has them.

    >>> law_fields(Gamma(2, 20.0, 100))
    {'law': 'gamma', 'top': 100, 'shape': 2.0, 'scale': 20.0}
    """
    form = _PARAMETERS.get(type(law))
    if form is not None:
        name, keys = form
        parameters = {key: real(getattr(law, key)) for key in keys}
        return {"law": name, "top": int(law.top), **parameters}
    if type(law) is Binned:
        edges, weights = array_digest(law.edges, "<i8"), array_digest(law.weights, "<f8")
        return {"law": "bins", "top": int(law.top), "edges": edges, "weights": weights}
    if type(law) is Histogram:
        return {"law": "histogram", "weights": array_digest(law.weights, "<f8")}
    if type(law) is Mixture:
        parts = [law_fields(part) for part in law.laws]
        return {"law": "mixture", "parts": parts, "shares": [real(share) for share in law.shares]}
    if type(law) is Net:
        nets = {"consumption": law_fields(law.consumption), "solar": law_fields(law.solar)}
        return {"law": "net", **nets, "export": int(law.export)}
    if type(law) is Cut:
        low = {"low": int(law.low)} if law.low else {}
        return {"law": "cut", "of": law_fields(law.law), "at": int(law.at), **low}
    return {"law": "own", "pmf": array_digest(law.pmf, "<f8")}


def _edges(top: int) -> Floats:
    """Bin edges of the whole Wh 0..top: 0, 0.5, 1.5, ..., top + 0.5."""
    return np.asarray(np.maximum(np.arange(top + 2) - 0.5, 0.0))


def _steps(below: Floats, above: Floats) -> Floats:
    """Probabilities of the bins, each from the tail that does not cancel."""
    return np.asarray(np.where(below[1:] < 0.5, np.diff(below), -np.diff(above)), np.float64)


def _normalised(weights: Floats, law: Law) -> Floats:
    total = float(weights.sum())
    if not total > 0:
        raise ConsumptionError(f"{law} puts no mass on 0..{law.top}; move it inside the bound.")
    return np.asarray(weights / total, np.float64)


def _check_top(top: int) -> None:
    if not is_whole(top) or isinstance(top, float) or top < 0:
        raise ConsumptionError(f"law's top is {top}; give whole Wh, 0 or more.", fields=("top",))


def _check_positive(law: str, field: str, value: float) -> None:
    if not (is_real(value) and value > 0):
        raise ConsumptionError(
            f"{law} {field} is {value}; give a positive number.", fields=(field,)
        )


def _check_finite(law: str, field: str, value: float) -> None:
    if not is_real(value):
        raise ConsumptionError(f"{law} {field} is {value}; give a finite number.", fields=(field,))
