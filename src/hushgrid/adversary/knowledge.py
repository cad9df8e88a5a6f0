"""What the adversary knows: zone, Theta, f and the clamp; if it is stronger, other houses too.

With it the array helpers of all filters (logarithms of probabilities in any array library) and the
noise of a release as the public knows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import ArrayLike

from hushgrid._numbers import Floats, Int32s, Ints, brief, index_array, is_real
from hushgrid.errors import PolicyError, ReadingError
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import OccupancyModel, check_models
from hushgrid.model.zone import Zone

if TYPE_CHECKING:
    from hushgrid.mechanism.release import Release


Array = Any  # an array of any library that keeps the array API standard
HOST: Array = np.zeros(0)  # numpy, the default library


def like(values: Any, array: Array) -> Array:
    """Convert to the library and device of another array.

    Args:
        values: Numbers.
        array: An array of the wanted library and device.

    Returns:
        The numbers as such an array.
    """
    if isinstance(array, np.ndarray):
        return np.asarray(values)
    copied = np.array(values)  # a copy: some libraries share memory, and this array is read-only
    return array_namespace(array).asarray(copied, device=device(array))


def on_host(values: Array) -> Any:
    """Convert to a numpy array.

    Args:
        values: An array of any library.

    Returns:
        The same numbers in numpy.
    """
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "get"):  # cupy
        return values.get()
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values)


def log(values: Array) -> Array:
    """Logarithm that maps 0 to -inf without a warning.

    Args:
        values: Non-negative numbers.

    Returns:
        Their logarithms.
    """
    xp = array_namespace(values)
    positive = values > 0
    return xp.where(positive, xp.log(xp.where(positive, values, 1.0)), -xp.inf)


def log_sum(values: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Logarithm of the sum of exponentials; all -inf gives -inf.

    Args:
        values: Logarithms.
        axis: Axis or axes to sum over; all by default.

    Returns:
        Logarithms of the sums.
    """
    xp = array_namespace(values)
    most = xp.max(values, axis=axis, keepdims=True)
    most = xp.where(xp.isfinite(most), most, 0.0)
    total = log(xp.sum(xp.exp(values - most), axis=axis, keepdims=True)) + most
    return xp.reshape(total, ()) if axis is None else xp.squeeze(total, axis=axis)


DEEP = 600.0  # numbers that span more than e^600 are added up in logarithms
FEW = 1 << 22  # numbers computed at once


BlurShape = Literal["laplace", "gaussian", "block", "none"]


class Blur(NamedTuple):
    """Integer noise of a release.

    Attributes:
        shape: Its law; `block`: uniform on -M..M, given the size M of its block of steps.
        scale: Its scale [Wh]; the standard deviation where Gaussian.
        sizes: (G,): the sizes M [Wh] that noise of a block may have. What is computed from them has
            them on a first axis.
    """

    shape: BlurShape
    scale: float
    sizes: Ints | None = None

    def log_pmf(self, k: Ints) -> Floats:
        """log Pr[K = k]."""
        if self.shape == "laplace":
            return np.asarray(math.log(math.tanh(1 / (2 * self.scale))) - np.abs(k) / self.scale)
        if self.shape == "gaussian":
            return np.asarray(-((k / self.scale) ** 2) / 2 - math.log(self.weight))
        return np.where(k == 0, 0.0, -np.inf)

    @property
    def weight(self) -> float:
        """Sum of e^(-k^2 / (2 scale^2)) over whole k, by Poisson's formula where that is short."""
        if self.scale > 1:
            turns = np.exp(-2 * (math.pi * self.scale * np.arange(1, 4)) ** 2)
            return self.scale * math.sqrt(2 * math.pi) * (1 + 2 * float(turns.sum()))
        return 1 + 2 * float(np.exp(-((np.arange(1, 60) / self.scale) ** 2) / 2).sum())


_LATTICE = 1 << 20  # sizes of a block's noise that are looked at; more are thinned out evenly


@lru_cache(maxsize=16)
def block_sizes(scale: float, steps: int, most: int) -> tuple[Ints, Floats]:
    """The size M of a block's noise, as at most so many values (docs/proofs/blocks-of-steps.md).

    All sizes that matter where they are no more than `most`: then nothing is approximated. Else
    neighbours are put together in cells, narrow where M is likely, each at its mean.

    Args:
        scale: Scale of the noise [Wh].
        steps: Steps of the block, L.
        most: Largest number of values.

    Returns:
        The sizes [Wh], (G,), and the logarithms of their probabilities.
    """
    top = math.ceil(scale * (steps + 41 + 12 * math.sqrt(steps + 1))) + 2
    m = np.arange(0, top, -(-top // _LATTICE))
    logs = steps * np.log(2 * m + 1) - m / scale
    weight = np.exp(logs - logs.max())
    if m.size > most:
        along = np.cumsum(np.cbrt(weight))  # cells of equal shares of the cube root
        cell = np.minimum(along / along[-1] * most, most - 1).astype(np.int64)
        starts = np.flatnonzero(np.diff(cell, prepend=-1))
        sums = np.add.reduceat(weight, starts)
        mean = np.add.reduceat(weight * m, starts) / sums
        m, weight = np.rint(mean).astype(np.int64), sums
    return m, np.asarray(np.log(weight / weight.sum()))


def log_blurred(pmf: Floats, at: Ints, blur: Blur) -> Floats:
    """Logarithm of a pmf convolved with the noise.

    Only positive terms are added, so the tails are as exact as the middle.

    Args:
        pmf: (..., L): probabilities of 0..L-1 Wh.
        at: (points,): whole Wh; where the noise has several sizes (G, points) too.
        blur: The noise.

    Returns:
        (..., points): log probabilities; (G, ..., points) where the noise has several sizes.
    """
    if blur.sizes is not None:
        return _uniform(pmf, at, blur.sizes)
    if blur.shape == "laplace":
        return _laplace(log(pmf), at, blur)
    if blur.shape == "none":
        inside = (at >= 0) & (at < pmf.shape[-1])
        return np.where(inside, log(pmf)[..., np.where(inside, at, 0)], -np.inf)
    return _gaussian(pmf, at, blur)


def _laplace(log_f: Floats, at: Ints, blur: Blur) -> Floats:
    """Two first-order recursions over the law, then a geometric tail on either side."""
    b, top = blur.scale, log_f.shape[-1] - 1
    x = np.arange(top + 1) / b
    below = np.logaddexp.accumulate(log_f + x, axis=-1) - x
    above = np.logaddexp.accumulate((log_f - x)[..., ::-1], axis=-1)[..., ::-1] + x
    sums = np.array(below)
    sums[..., :-1] = np.logaddexp(below[..., :-1], above[..., 1:] - 1 / b)
    sums[..., 0] = above[..., 0]
    beyond = np.maximum(np.maximum(-at, at - top), 0)
    constant = math.log(math.tanh(1 / (2 * b)))
    return np.asarray(sums[..., np.clip(at, 0, top)] - beyond / b + constant)


def _uniform(pmf: Floats, at: Ints, sizes: Ints) -> Floats:
    """Sums of the law over -M..M around each point, from the end that leaves the smaller ones."""
    m, zero = sizes[:, None], np.zeros((*pmf.shape[:-1], 1))
    low, high = (np.clip(at + side, 0, pmf.shape[-1]) for side in (-m, m + 1))
    below = np.concatenate([zero, np.cumsum(pmf, axis=-1)], axis=-1)
    above = np.concatenate([np.cumsum(pmf[..., ::-1], axis=-1)[..., ::-1], zero], axis=-1)
    sums = np.where(
        below[..., high] < above[..., low],
        below[..., high] - below[..., low],
        above[..., low] - above[..., high],
    )
    return np.moveaxis(log(sums) - np.log(2 * m + 1), -2, 0)


def _gaussian(pmf: Floats, at: Ints, blur: Blur) -> Floats:
    """One sum a point: as products where no weight can underflow, else in logarithms."""
    x = np.arange(pmf.shape[-1])
    logs = np.empty((*pmf.shape[:-1], at.size))
    least = int(at.min(initial=0)) - x[-1]
    noise = blur.log_pmf(np.arange(least, int(at.max(initial=0)) + 1))
    most, flat = float(noise.max()), float(np.ptp(noise)) <= DEEP
    noise, log_f = (np.exp(noise - most), None) if flat else (noise, log(pmf))
    chunk = max(1, FEW // (x.size if flat else pmf.size))
    for start in range(0, at.size, chunk):
        weights = noise[at[start : start + chunk, None] - x - least]
        if log_f is None:
            sums = log(pmf @ weights.T) + most
        else:
            sums = log_sum(log_f[..., None, :] + weights, axis=-1)
        logs[..., start : start + chunk] = sums
    return logs


_KEPT = 128  # slots whose laws are kept


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class KnownReadings:
    """Known readings of all other houses, from step `first` on.

    A house's own column is never used for the belief about that house.

    Attributes:
        values: (steps, houses): readings [Wh].
        first: Step of the first row.

    Raises:
        ReadingError: If the values are not a table of whole numbers.
    """

    values: Int32s
    first: int

    def __init__(self, values: ArrayLike, first: int = 1) -> None:
        object.__setattr__(self, "values", _table(values, "known readings"))
        object.__setattr__(self, "first", first)


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class KnownOccupancy:
    """Known occupancy of all other houses, from step `first` on.

    Attributes:
        values: (steps, houses): 0 or 1.
        first: Step of the first row.

    Raises:
        ReadingError: If the values are not a table of 0 and 1.
    """

    values: Int32s
    first: int

    def __init__(self, values: ArrayLike, first: int = 1) -> None:
        table = _table(values, "known occupancy")
        if ((table != 0) & (table != 1)).any():
            raise ReadingError("known occupancy holds numbers other than 0 and 1; give those.")
        object.__setattr__(self, "values", table)
        object.__setattr__(self, "first", first)


def _table(values: ArrayLike, label: str) -> Int32s:
    try:
        table = np.array(values)
    except ValueError:
        raise ReadingError(f"{label} are ragged; give a row for each step.") from None
    if table.ndim != 2 or table.dtype.kind not in "iub":  # secret: the message holds no value
        raise ReadingError(
            f"{label} have shape {table.shape} and type {table.dtype};"
            " give whole numbers, a row for each step and a column for each house."
        )
    return index_array(np.clip(table.astype(np.int64), 0, 2**31 - 1), label, ReadingError)


Bystanders = KnownReadings | KnownOccupancy


@dataclass(frozen=True, slots=True, eq=False)
class StepLaws:
    """The readings' laws of one step, cut at the clamp and less its lower end.

    Attributes:
        pairs: For each kind of house the pmfs of absent and present.
        kind_of: (N,): kind of each house.
    """

    pairs: tuple[tuple[Floats, Floats], ...]  # pmfs of absent and present
    kind_of: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What is public (paper II-C), and optionally more; a wrong model is given here too.

    Attributes:
        zone: The houses and their contract bounds [Wh].
        models: Occupancy models (Theta).
        consumption: The laws of a reading (f).
        clamp: The policy's clamps by class [Wh]; empty for none.
        digest: Digest of the terms (`state.digest`); where given, releases of other terms are
            refused.
        bystanders: Readings or occupancy of all other houses, for an adversary stronger than the
            paper's.
    """

    zone: Zone
    models: Sequence[OccupancyModel]
    consumption: Consumption
    clamp: Clamp = ()
    digest: str | None = None
    bystanders: Bystanders | None = None
    _bound: Int32s = field(init=False, repr=False)
    _least: Ints = field(init=False, repr=False)
    _kinds: Int32s = field(init=False, repr=False)
    _kind_of: Int32s = field(init=False, repr=False)
    _known: dict[tuple[int, float], StepLaws] = field(init=False, repr=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        models = check_models(self.models, self.zone.n_houses)
        self.consumption.check_fits(self.zone.bound)
        bound, f = self.zone.bound, self.consumption
        least = np.zeros(self.zone.n_houses, np.int64)
        if self.clamp:
            low, at = f.clamp_ends(self.clamp)
            cut = self.zone.cut(at, low)
            f, bound, least = f.cut(self.clamp), cut.bound, self.zone.low_ends(cut)
        # a law that demand moves is cut at the house's own bound; else the class says it all
        house = np.stack([f.class_of, bound if f.reacts else np.zeros_like(bound)], axis=1)
        kinds, kind_of = np.unique(house, axis=0, return_inverse=True)
        for name, value in {
            "models": models,
            "consumption": f,
            "_bound": bound,
            "_least": least,
            "_kinds": kinds,
            "_kind_of": kind_of.ravel().astype(np.int32),
            "_known": {},
        }.items():
            object.__setattr__(self, name, value)
        _check_bystanders(self.bystanders, self.zone.n_houses)

    @property
    def n_houses(self) -> int:
        """Number of houses N."""
        return self.zone.n_houses

    @property
    def least(self) -> int:
        """Sum of the lower ends of the clamp [Wh]: in every noisy load, and in no law here."""
        return int(self._least.sum())

    def with_bystanders(self, bystanders: Bystanders) -> Knowledge:
        """The same with other knowledge of the other houses; computed laws are shared."""
        _check_bystanders(bystanders, self.n_houses)
        knowledge = copy(self)
        object.__setattr__(knowledge, "bystanders", bystanders)
        return knowledge

    def laws(self, t: int, rate: float | None) -> StepLaws:
        """The laws of step t after the last published rate."""
        f = self.consumption
        factor = f.factor([] if rate is None else [rate])
        key = (f.calendar.slot(t), factor)
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            pairs = tuple(self._pair(t, kind, cut, factor) for kind, cut in self._kinds.tolist())
            self._known[key] = StepLaws(pairs, self._kind_of)
        return self._known[key]

    def _pair(self, t: int, kind: int, bound: int, factor: float) -> tuple[Floats, Floats]:
        laws = [self.consumption.law(t, kind, occupied=home) for home in (False, True)]
        if self.consumption.reacts:
            laws = [law.scaled(factor, bound) for law in laws]
        return laws[0].pmf, laws[1].pmf

    def cut_readings(self, t: int) -> Ints | None:
        """The known readings of step t, cut as the curator cuts them; None if none are known."""
        if not isinstance(self.bystanders, KnownReadings):
            return None
        above = _row(self.bystanders, t) - self._least
        return np.asarray(np.clip(above, 0, self._bound), np.int64)

    def occupancy(self, t: int) -> Int32s | None:
        """The known occupancy of step t; None if none is known."""
        return _row(self.bystanders, t) if isinstance(self.bystanders, KnownOccupancy) else None

    def check_release(self, release: Release, t: int, digest: str | None) -> Blur:
        """The noise of a release; `t` is the last step seen. Unusable releases are refused."""
        place = f"release of step {release.t}"
        if release.zone != self.zone.id:
            raise PolicyError(
                f"{place} is of zone {release.zone} but the adversary watches {self.zone.id};"
                " give that zone's releases."
            )
        terms = self.digest or digest
        if terms is not None and release.digest != terms:
            raise PolicyError(
                f"{place} is under terms {release.digest[:12]} but the others under {terms[:12]};"
                " start a new adversary where the terms change."
            )
        if release.t <= t:
            raise PolicyError(
                f"{place} comes after step {t}; give releases in order, each step once."
            )
        if not (is_real(release.scale) and release.scale >= 0):
            raise PolicyError(f"{place} has scale {release.scale}; give Wh of 0 or more.")
        if release.scale == 0:
            return Blur("none", 0.0)
        if release.noise == "none":
            raise PolicyError(
                f"{place} has scale {release.scale:g} and noise none; name its noise, laplace or"
                " gaussian."
            )
        if release.noise == "block" and release.block is None:
            raise PolicyError(
                f"{place} has noise that lasts a block of steps and names no block; give its"
                " number, length and place."
            )
        return Blur(release.noise, float(release.scale))


def _row(bystanders: Bystanders, t: int) -> Int32s:
    first, steps = bystanders.first, len(bystanders.values)
    if not first <= t < first + steps:
        after = f" from step {first} on" if first > 1 else ""
        raise ReadingError(
            f"{type(bystanders).__name__} has {steps} steps{after} but step {t} is asked for;"
            " give a row for every step."
        )
    return np.asarray(bystanders.values[t - first])


def _check_bystanders(bystanders: Bystanders | None, n_houses: int) -> None:
    if bystanders is not None and bystanders.values.shape[1] != n_houses:
        raise ReadingError(
            f"{type(bystanders).__name__} has {bystanders.values.shape[1]} columns but the zone has"
            f" {n_houses} houses; give one column for each house."
        )
