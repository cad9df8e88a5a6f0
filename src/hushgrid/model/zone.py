"""The zone and its price: clamp, sum, cost J and optimal rate (paper II-A, Eq. (1)).

Meters count whole Wh, so everything up to the noise is integer arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Floats, Int32s, is_real, is_whole
from hushgrid.errors import ModelError, ReadingError, ZoneError

Number = TypeVar("Number", float, Floats)

MAX_BOUND = 2**31 - 1  # [Wh]; a bound fits in 32 bits
FURTHEST = 6.0  # scales from the centre that a covariate counts at most
_MANY = 1 << 17  # houses from which the compiled pass is worth its start


@dataclass(frozen=True, slots=True)
class Covariate:
    """A public series that the load may move with, such as the temperature.

    No value of it depends on a reading of the zone: that is an assumption, which no one can check
    from releases.

    Attributes:
        name: Name in records and assumptions.
        centre: A usual value; a missing one counts as this.
        scale: How far values usually are from it.
        vouched_by: Who says that it depends on no reading of the zone.
    """

    name: str
    centre: float
    scale: float
    vouched_by: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise ModelError(f"covariate name is {self.name!r}; give a printable text.")
        if not (is_real(self.centre) and is_real(self.scale) and self.scale > 0):
            raise ModelError(
                f"covariate {self.name} has centre {self.centre} and scale {self.scale}; give"
                " numbers, the scale above 0."
            )

    def standard(self, value: float | None) -> float:
        """A value in scales from the centre, within `FURTHEST`; 0 for a missing one.

        >>> each = Covariate("temperature", 10.0, 8.0)
        >>> each.standard(6.0), each.standard(None), each.standard(1e9)
        (-0.5, 0.0, 6.0)
        """
        if value is None:
            return 0.0
        return min(max((value - self.centre) / self.scale, -FURTHEST), FURTHEST)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Zone:
    """N houses under one price.

    Args:
        id: Name of the zone, not empty.
        bound: Public contract bound u_i of each house, (N,) whole Wh per step, 1 to 2^31 - 1.

    >>> Zone("elm-street", [2500, 5000]).n_houses
    2
    """

    id: str
    bound: Int32s

    def __init__(self, id: str, bound: ArrayLike) -> None:  # noqa: A002
        if not isinstance(id, str) or not id:
            raise ZoneError(f"zone id is {id!r}; give a non-empty name.")
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "bound", _checked_bound(bound))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Zone)
            and self.id == other.id
            and np.array_equal(self.bound, other.bound)
        )

    def __hash__(self) -> int:
        return hash((self.id, len(self.bound)))

    def cut(self, at: NDArray[np.integer]) -> Zone:
        """The zone with every bound lowered to `at` [Wh] where that is below it."""
        return Zone(self.id, np.minimum(self.bound, at))

    @property
    def n_houses(self) -> int:
        """Number of houses N."""
        return len(self.bound)


def _checked_bound(bound: ArrayLike) -> Int32s:
    try:
        u = np.asarray(bound)
    except ValueError:
        raise ZoneError("bounds are ragged; give one bound [Wh] for each house.") from None
    if u.ndim != 1 or u.size == 0:
        raise ZoneError(
            f"zone has bounds of shape {u.shape}; give one bound [Wh] for each of its houses."
        )
    if u.dtype.kind not in "iuf":
        raise ZoneError(f"bounds have type {u.dtype}; give whole Wh for every house, none unset.")
    bad = ~(u >= 1) | ~(u <= MAX_BOUND) | (u != np.floor(u))
    if bad.any():
        house = int(bad.argmax())
        raise ZoneError(
            f"bound of house {house} is {u[house]};"
            f" give the contract bound in whole Wh, 1 to {MAX_BOUND}."
        )
    if u.dtype == np.int32 and not u.flags.writeable and u.base is None:
        return u
    own = u.astype(np.int32)
    own.flags.writeable = False
    return own


@dataclass(frozen=True, slots=True)
class Tally:
    """The load of a closed interval.

    Attributes:
        load: Sum of the clamped readings [Wh].
        clamped: How many readings were above their bound.
        bound: The bounds that the readings were clamped to, (N,) [Wh].
    """

    load: int
    clamped: int
    bound: Int32s = field(repr=False, compare=False)


def tally(readings: ArrayLike, bound: ArrayLike) -> Tally:
    """Clamp each reading to 0..u_i, then add: one pass, whole Wh.

    Clamping the sum instead would bound the contribution of no house.

    Args:
        readings: One reading for each house, (N,) whole Wh.
        bound: The bounds u_i, (N,) [Wh].

    Returns:
        The load and the number of clamped readings.

    Raises:
        ReadingError: If the readings do not fit the bounds, or one is missing or not whole.
        ZoneError: If a bound is not a whole number from 1 on.

    >>> tally([300, -20, 9000], [2500, 2500, 2500])
    Tally(load=2800, clamped=1)
    """
    x, u = _whole(readings), np.asarray(bound)
    if x.shape != u.shape:
        raise ReadingError(
            f"readings have shape {x.shape} but the zone has bounds of shape {u.shape};"
            " give one reading for each house."
        )
    if x.size >= _MANY and u.dtype == np.int32:
        from hushgrid._kernels.readings import clamp_and_add

        *found, least = clamp_and_add(x, u)
        if least >= 1:
            load, clamped = found
            return Tally(load, clamped, u)
    u = _checked_bound(u)
    load = int(np.clip(x, 0, u).sum(dtype=np.int64))
    return Tally(load, int((x > u).sum()), u)


def aggregate(readings: ArrayLike, bound: ArrayLike) -> int:
    """The load Z = sum of readings clamped to 0..u_i [Wh].

    Args:
        readings: One reading for each house, (N,) whole Wh.
        bound: The bounds u_i, (N,) [Wh].

    Returns:
        The load [Wh].

    >>> aggregate([300, 400], [2500, 350])
    650
    """
    return tally(readings, bound).load


def _whole(readings: ArrayLike) -> NDArray[Any]:
    try:
        x: NDArray[Any] = np.asarray(readings)
    except ValueError:
        raise ReadingError("readings are ragged; give one number for each house.") from None
    if x.ndim != 1:  # before any value is read
        raise ReadingError(f"readings have shape {x.shape}; give one reading for each house.")
    if np.ma.isMaskedArray(readings) and np.ma.getmaskarray(readings).any():
        house = int(np.ma.getmaskarray(readings).argmax())
        raise ReadingError(f"reading of house {house} is missing; {_IMPUTE}")
    if x.dtype.kind == "u" and x.dtype.itemsize == 8:
        x = np.minimum(x, np.uint64(2**63 - 1)).astype(np.int64)
    if x.dtype.kind in "iu":
        return x
    if x.dtype.kind == "O":
        missing = [i for i, value in enumerate(x.flat) if value is None]
        if missing:
            raise ReadingError(f"reading of house {missing[0]} is missing; {_IMPUTE}")
    if x.dtype.kind != "f":
        raise ReadingError(f"readings have type {x.dtype}; give whole Wh as integers.")
    if (unusable := ~np.isfinite(x)).any():
        house = int(unusable.argmax())
        raise ReadingError(f"reading of house {house} is {x[house]}; {_IMPUTE}")
    if (fractional := x != np.floor(x)).any():
        house = int(fractional.argmax())
        raise ReadingError(
            f"reading of house {house} is not a whole number of Wh;"
            " give the meter's register in Wh, rounded."
        )
    return np.asarray(np.clip(x, -(2.0**62), 2.0**62), np.int64)


_IMPUTE = "put the model's public expectation in its place before adding."


@dataclass(frozen=True, slots=True)
class Tariff:
    """Generation cost J(Z) = alpha/2 Z^2 + beta Z + gamma, Z in kWh, and the limits of the price.

    Attributes:
        alpha: Slope of the rate [currency/kWh per kWh], above 0.
        beta: Rate at no load [currency/kWh], above 0.
        gamma: Fixed cost [currency].
        inelastic: Public load that does not react to prices, whole Wh.
        floor: Lowest rate [currency/kWh]; the rate is cut after the noise.
        cap: Highest rate [currency/kWh]; cut after the noise.
    """

    alpha: float
    beta: float
    gamma: float = 0.0
    inelastic: int = 0
    floor: float = 0.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not (is_real(value) and value > 0):
                raise ZoneError(
                    f"tariff {name} is {value}; give a positive number.", fields=(name,)
                )
        if not is_real(self.gamma):
            raise ZoneError(
                f"tariff gamma is {self.gamma}; give a finite number.", fields=("gamma",)
            )
        if not is_whole(self.inelastic) or self.inelastic < 0:
            raise ZoneError(
                f"tariff inelastic is {self.inelastic}; give whole Wh, 0 or more.",
                fields=("inelastic",),
            )
        if not (is_real(self.floor) and self.floor >= 0):
            raise ZoneError(
                f"tariff floor is {self.floor}; give a rate of 0 or more.", fields=("floor",)
            )
        number = self.cap == math.inf or is_real(self.cap)
        if not (number and self.cap > self.floor):
            raise ZoneError(
                f"tariff cap is {self.cap}; give a rate above the floor {self.floor}.",
                fields=("cap", "floor") if number else ("cap",),
            )


def cost(load: Number, tariff: Tariff) -> Number:
    """Generation cost J(Z) of a load.

    Args:
        load: Load Z without the inelastic part [Wh]; a number or an array.
        tariff: The cost's coefficients.

    Returns:
        The cost [currency], in the shape of `load`.

    >>> cost(2000, Tariff(alpha=1.0, beta=62.5))
    127.0
    """
    z = (load + tariff.inelastic) / 1000
    return tariff.alpha / 2 * z * z + tariff.beta * z + tariff.gamma


def optimal_rate(load: Number, tariff: Tariff) -> Number:
    """Eq. (1): the rate alpha Z + beta that minimises J(Z) - rZ. Secret.

    Args:
        load: Load Z without the inelastic part [Wh]; a number or an array.
        tariff: The cost's coefficients.

    Returns:
        The rate [currency/kWh], in the shape of `load`.

    >>> optimal_rate(250_000, Tariff(alpha=1.0, beta=62.5))
    312.5
    """
    return tariff.alpha * (load + tariff.inelastic) / 1000 + tariff.beta


def public_rate(load_hat: float, tariff: Tariff) -> float:
    """The rate of a noisy load, cut to floor..cap: post-processing, it costs no privacy.

    Args:
        load_hat: Noisy load [Wh].
        tariff: The coefficients and limits.

    Returns:
        The published rate [currency/kWh].

    >>> public_rate(-100_000, Tariff(alpha=1.0, beta=62.5))
    0.0
    """
    return float(min(max(optimal_rate(float(load_hat), tariff), tariff.floor), tariff.cap))
