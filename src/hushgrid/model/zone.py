"""The zone and its price: clamp, sum, cost J and optimal rate (paper II-A, Eq. (1)); `Scenario`.

Meters count whole Wh, so everything up to the noise is integer arithmetic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._frames import check_labels
from hushgrid._numbers import Floats, Int32s, brief, count_of, is_real, is_whole
from hushgrid.errors import ConsumptionError, ReadingError, ZoneError
from hushgrid.model.consumption import Consumption
from hushgrid.model.curve import Curve
from hushgrid.model.occupancy import OccupancyModel

Number = TypeVar("Number", float, Floats)

MAX_BOUND = 2**31 - 1  # [Wh]; a bound fits in 32 bits
_MANY = 1 << 17  # houses from which the compiled pass is worth its start


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Zone:
    """N houses under one price.

    A house with panels reads -v_i..u_i Wh. Everything here is in offset readings x + v_i in
    0..u_i + v_i: laws, loads, clamps and noise (docs/proofs/calibration.md); `tally` adds v_i.

    Args:
        id: Name of the zone, not empty.
        bound: Public contract bound u_i + v_i of each house, (N,) whole Wh per step, 1 to 2^31 - 1.
        export: Public export limit v_i of each house, (N,) whole Wh per step, 0 to `bound`; None: 0
            for all.

    >>> Zone("elm-street", [2500, 5000]).n_houses
    2
    """

    id: str
    bound: Int32s
    export: Int32s

    def __repr__(self) -> str:
        limits = [f"bound {_span(self.bound)} Wh", f"export {_span(self.export)} Wh"]
        summary = count_of("house", self.n_houses), *limits[: 1 + bool(self.offset)]
        return brief(self, *summary, names=("id",))

    def __init__(self, id: str, bound: ArrayLike, export: ArrayLike | None = None) -> None:  # noqa: A002
        if not isinstance(id, str) or not id:
            raise ZoneError(f"zone id is {id!r}; give a non-empty name.")
        check_labels(ZoneError, bound=bound, export=export)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "bound", _checked_bound(bound))
        object.__setattr__(self, "export", _checked_export(export, self.bound))

    @classmethod
    def net(cls, id: str, limit: ArrayLike, export: ArrayLike) -> Zone:  # noqa: A002
        """A zone where houses import and export.

        Args:
            id: Name of the zone.
            limit: Import limit u_i of each house, (N,) whole Wh per step.
            export: Export limit v_i of each house, (N,) whole Wh per step.

        Returns:
            The zone.

        >>> Zone.net("sunny", [2500, 2500], [0, 1250]).bound
        array([2500, 3750], dtype=int32)
        """
        check_labels(ZoneError, limit=limit, export=export)
        u = _checked_bound(limit).astype(np.int64)
        return cls(id, u + _checked_export(export, np.full_like(u, MAX_BOUND)), export)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        id: str,  # noqa: A002
        bound: str = "bound",
        export: str | None = None,
        home: str | None = None,
    ) -> Zone:
        """A zone of a data frame with a row a home, in the order of its rows.

        Args:
            frame: A pandas data frame, or another with columns by name.
            id: Name of the zone.
            bound: Column of the contract bounds u_i + v_i [whole Wh per step].
            export: Column of the export limits v_i [whole Wh per step]; None: no home exports.
            home: Column with the names of the homes; None: the index has them.

        Returns:
            The zone.

        Raises:
            ZoneError: If a column is not there, a home comes twice, or a limit is missing, not
                whole or out of its range.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"bound": [2500, 5000]}, index=["home-1", "home-2"])
        >>> Zone.from_frame(frame, id="elm-street")
        Zone(2 houses, bound 2500 to 5000 Wh, id='elm-street')
        """
        for column in filter(None, (bound, export, home)):
            if column not in frame.columns:
                raise ZoneError(
                    f"frame has no column {column!r}; give one of"
                    f" {', '.join(map(str, frame.columns))}."
                )
        homes = [*(frame.index if home is None else frame[home])]
        for name, count in Counter(homes).items():
            if count > 1:
                raise ZoneError(f"home {name!r} has {count} rows; give one row a home.")
        for column in filter(None, (bound, export)):
            limits = np.asarray(frame[column])
            low = 0 if column == export else 1
            for name, limit in zip(homes, limits.tolist(), strict=True):
                if not (is_whole(limit) and low <= limit <= MAX_BOUND):
                    raise ZoneError(
                        f"{column} of home {name!r} is {limit}; give whole Wh from {low} to"
                        f" {MAX_BOUND}."
                    )
        return cls(id, frame[bound], None if export is None else frame[export])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Zone)
            and self.id == other.id
            and np.array_equal(self.bound, other.bound)
            and np.array_equal(self.export, other.export)
        )

    def __hash__(self) -> int:
        return hash((self.id, len(self.bound)))

    def cut(self, at: NDArray[np.integer], low: NDArray[np.integer] | None = None) -> Zone:
        """The zone of a clamp: less is imported, and less is exported.

        Args:
            at: Upper ends, (N,) offset Wh; the bound where that is lower.
            low: Lower ends, (N,) offset Wh, from 0 to the export limits; None: all 0.

        Returns:
            The zone of readings from `low` to `at`: its export limits are `export` - `low`.

        Raises:
            ZoneError: If a clamp does not hold the reading 0 of a house.

        >>> zone = Zone.net("sunny", [2500], [1250]).cut(np.array([2000]), np.array([1000]))
        >>> zone.bound, zone.export
        (array([1000], dtype=int32), array([250], dtype=int32))
        """
        high = np.minimum(self.bound, at)
        if low is None or not low.any():
            return Zone(self.id, high, self.export)
        if (bad := (low < 0) | (low > self.export) | (high <= low)).any():
            house = int(bad.argmax())
            raise ZoneError(
                f"clamp of house {house} is {low[house] - self.export[house]} to"
                f" {high[house] - self.export[house]} Wh; give a lower end of"
                f" {-self.export[house]} to 0 Wh, and an upper end above it."
            )
        return Zone(self.id, high - low, self.export - low)

    def low_ends(self, cut: Zone) -> NDArray[np.int64]:
        """(N,): lower ends of the clamp that led to the zone `cut` [offset Wh]."""
        return np.asarray(self.export.astype(np.int64) - cut.export)

    @property
    def n_houses(self) -> int:
        """Number of houses N."""
        return len(self.bound)

    @property
    def offset(self) -> int:
        """Sum of all export limits [Wh]: the load is the net load plus this."""
        return int(self.export.sum(dtype=np.int64))


def _span(limits: Int32s) -> str:
    low, high = int(limits.min()), int(limits.max())
    return f"{low}" if low == high else f"{low} to {high}"


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
    bounds = u.astype(np.int32)
    bounds.flags.writeable = False
    return bounds


def _checked_export(export: ArrayLike | None, bound: NDArray[np.integer]) -> Int32s:
    v = np.zeros(1) if export is None else np.asarray(export)
    if export is None:
        limits = np.zeros(bound.shape, np.int32)
    elif v.shape != bound.shape or v.dtype.kind not in "iuf":
        raise ZoneError(
            f"export limits have shape {v.shape} and type {v.dtype}; give whole Wh for every house."
        )
    elif (bad := ~((v >= 0) & (v <= bound) & (v == np.floor(v)))).any():
        house = int(bad.argmax())
        raise ZoneError(
            f"export limit of house {house} is {v[house]}; give whole Wh from 0 to its range of"
            f" {bound[house]}."
        )
    else:
        limits = v.astype(np.int32)
    limits.flags.writeable = False
    return limits


@dataclass(frozen=True, slots=True)
class Tally:
    """The load of a closed interval.

    Attributes:
        load: Sum of the clamped readings [Wh], each plus its house's export limit.
        clamped: How many readings were above their bound.
        bound: The bounds that the readings were clamped to, (N,) [Wh].
        export: The export limits that were added, (N,) [Wh]; None: not known here.
    """

    load: int
    clamped: int
    bound: Int32s = field(repr=False, compare=False)
    export: Int32s | None = field(default=None, repr=False, compare=False)


def tally(readings: ArrayLike, bound: ArrayLike, export: ArrayLike | None = None) -> Tally:
    """Add v_i to each reading and clamp it to 0..u_i + v_i, then add: one pass, whole Wh.

    Clamping the sum instead would bound the contribution of no house.

    Args:
        readings: One reading for each house, (N,) whole Wh.
        bound: The bounds u_i + v_i, (N,) [Wh].
        export: The export limits v_i, (N,) [Wh]; None: the readings are offset already, or no house
            exports.

    Returns:
        The load and the number of clamped readings.

    Raises:
        ReadingError: If the readings do not fit the bounds, one is missing or not whole, or labels
            of pandas series differ.
        ZoneError: If a bound is not a whole number from 1 on.

    >>> tally([300, -20, 9000], [2500, 2500, 2500])
    Tally(load=2800, clamped=1)
    >>> zone = Zone.net("sunny", [2500, 2500], [0, 1250])
    >>> tally([300, -1000], zone.bound, zone.export).load - zone.offset
    -700
    """
    check_labels(ReadingError, readings=readings, bound=bound, export=export)
    x, u = _whole(readings), np.asarray(bound)
    if x.shape != u.shape:
        raise ReadingError(
            f"readings have shape {x.shape} but the zone has bounds of shape {u.shape};"
            " give one reading for each house."
        )
    export = None if export is None else np.asarray(export)
    if export is not None and export.any():
        v = export.astype(np.int64)  # what is far outside stays so, without a sum beyond 64 bits
        x = np.clip(x.astype(np.int64), -v, 2**62) + v
    if x.size >= _MANY and u.dtype == np.int32:
        from hushgrid._kernels.readings import clamp_and_add

        *sums, least = clamp_and_add(x, u)
        if least >= 1:
            load, clamped = sums
            return Tally(load, clamped, u, export)
    u = _checked_bound(u)
    load = int(np.clip(x, 0, u).sum(dtype=np.int64))
    return Tally(load, int((x > u).sum()), u, export)


def tally_offset(readings: NDArray[np.integer], zone: Zone, cut: Zone) -> Tally:
    """Clamp and add offset readings, as a simulation has them.

    Args:
        readings: Offset readings x + v_i of the zone, (N,) [Wh].
        zone: The zone.
        cut: The zone of a clamp, or the same zone.

    Returns:
        What `tally` gives for the readings x under the clamp.

    >>> zone = Zone.net("sunny", [2500], [1250])
    >>> tally_offset(np.array([100]), zone, zone.cut(np.array([2000]), np.array([1000])))
    Tally(load=0, clamped=0)
    """
    if cut.export is zone.export or np.array_equal(cut.export, zone.export):
        return tally(readings, cut.bound)
    return tally(readings - zone.export.astype(np.int64), cut.bound, cut.export)


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


MOST_PRICES = 2100  # of a list that is published ahead: a week of five minutes


@dataclass(frozen=True, slots=True)
class FeedIn:
    """Rate of the energy that homes feed in: another affine function of the same noisy load.

    Attributes:
        alpha: Slope of the rate [currency/kWh per kWh of net load].
        beta: Rate at no load [currency/kWh].
        floor: Lowest rate [currency/kWh], also below 0.
        cap: Highest rate [currency/kWh].
    """

    alpha: float
    beta: float
    floor: float = 0.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "floor"):
            if not is_real(getattr(self, name)):
                raise ZoneError(
                    f"feed-in {name} is {getattr(self, name)}; give a number.", fields=(name,)
                )
        if not ((self.cap == math.inf or is_real(self.cap)) and self.cap >= self.floor):
            raise ZoneError(
                f"feed-in cap is {self.cap}; give a rate of the floor {self.floor} or above.",
                fields=("cap", "floor"),
            )


@dataclass(frozen=True, slots=True)
class Tariff:
    """Generation cost J(Z) = alpha/2 Z^2 + beta Z + gamma, Z in kWh, and the limits of the price.

    With a `curve` the cost is its integral, and a price its mean over what the load may be.

    Attributes:
        alpha: Slope of the rate [currency/kWh per kWh], above 0; left out with a curve, whose it is
            from the first vertex to the last.
        beta: Rate at no load [currency/kWh], above 0; left out with a curve: its first price.
        gamma: Fixed cost [currency].
        inelastic: Public load that reacts to nothing [Wh a step], whole.
        floor: Lowest rate [currency/kWh], also below 0; the rate is cut after the noise.
        cap: Highest rate [currency/kWh]; cut after the noise.
        smooth: Share of the last published rate that a new one keeps, from 0 to below 1: it calms
            devices that react to rates (docs/loop.md) and costs no privacy.
        offset: Sum of the zone's export limits [Wh], in every load and no part of the price. Set
            from the zone by `init` and `Scenario`.
        feed_in: Rate of what homes feed in, from the same noisy load; None: only the rate above is
            published.
        curve: Rate of a load where it is no straight line; None: alpha Z + beta.
    """

    tables: ClassVar[Mapping[str, Any]] = {"feed_in": FeedIn, "curve": Curve}
    unless: ClassVar[Mapping[str, str]] = {"alpha": "curve", "beta": "curve"}

    __repr__ = brief

    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 0.0
    inelastic: int = 0
    floor: float = 0.0
    cap: float = math.inf
    smooth: float = 0.0
    offset: int = 0
    feed_in: FeedIn | None = None
    curve: Curve | None = None

    def __post_init__(self) -> None:
        if self.curve is not None:
            self._take_chord(self.curve)
        if not (is_real(self.smooth) and 0 <= self.smooth < 1):
            raise ZoneError(
                f"tariff smooth is {self.smooth}; give a share from 0 to below 1.",
                fields=("smooth",),
            )
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not (is_real(value) and value > 0):
                text = f"tariff {name} is {value}; give a positive number."
                raise ZoneError(text, fields=(name,))
        if not is_real(self.gamma):
            raise ZoneError(
                f"tariff gamma is {self.gamma}; give a finite number.", fields=("gamma",)
            )
        if not is_whole(self.inelastic) or self.inelastic < 0:
            raise ZoneError(
                f"tariff inelastic is {self.inelastic}; give whole Wh, 0 or more.",
                fields=("inelastic",),
            )
        if not is_real(self.floor):
            raise ZoneError(f"tariff floor is {self.floor}; give a rate.", fields=("floor",))
        number = self.cap == math.inf or is_real(self.cap)
        if not (number and self.cap > self.floor):
            raise ZoneError(
                f"tariff cap is {self.cap}; give a rate above the floor {self.floor}.",
                fields=("cap", "floor") if number else ("cap",),
            )

    def _take_chord(self, curve: Curve) -> None:
        """Take the slope and the first price of a curve as alpha and beta."""
        for name, value in zip(("alpha", "beta"), curve.chord, strict=True):
            if getattr(self, name) not in (0.0, value):
                raise ZoneError(
                    f"tariff {name} is {getattr(self, name)} beside a curve, which says {value:g};"
                    " leave it out.",
                    fields=(name,),
                )
            object.__setattr__(self, name, value)


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
    if tariff.curve is not None:
        return _read(tariff.curve.cost, load, tariff) + tariff.gamma
    z = (load + tariff.inelastic - tariff.offset) / 1000
    return tariff.alpha / 2 * z * z + tariff.beta * z + tariff.gamma


def optimal_rate(load: Number, tariff: Tariff) -> Number:
    """Eq. (1): the rate alpha Z + beta, or that of the curve, that minimises J(Z) - rZ. Secret.

    Args:
        load: Load Z without the inelastic part [Wh]; a number or an array.
        tariff: The cost's coefficients.

    Returns:
        The rate [currency/kWh], in the shape of `load`.

    >>> optimal_rate(250_000, Tariff(alpha=1.0, beta=62.5))
    312.5
    """
    if tariff.curve is not None:
        return _read(tariff.curve.price, load, tariff)
    return tariff.alpha * (load + tariff.inelastic - tariff.offset) / 1000 + tariff.beta


def _read(read: Callable[[Floats], Floats], load: Number, tariff: Tariff) -> Number:
    """What a curve says of a load [Wh], in the shape of the load."""
    z = (np.asarray(load, np.float64) + tariff.inelastic - tariff.offset) / 1000
    figures: Any = read(z) if isinstance(load, np.ndarray) else float(read(z))
    return cast(Number, figures)


_NEAR = 0.05  # share of a curve's loads, either way, over which its slope is taken


def marginal_rate(load: Number, tariff: Tariff) -> Number:
    """How much the optimal rate changes with the load: what an error of the load costs the price.

    Args:
        load: Load Z without the inelastic part [Wh]; a number or an array.
        tariff: The cost's coefficients.

    Returns:
        Alpha, or the mean slope of the curve near the load [currency/kWh per kWh], in its shape.

    >>> marginal_rate(2000, Tariff(alpha=1.0, beta=62.5))
    1.0
    """
    curve = tariff.curve
    if curve is None:
        return _read(lambda z: np.full(z.shape, tariff.alpha), load, tariff)
    d = _NEAR * (curve.vertices[-1][0] - curve.vertices[0][0])
    return _read(lambda z: (curve.price(z + d) - curve.price(z - d)) / (2 * d), load, tariff)


def public_rate(load_hat: float, tariff: Tariff, last: float | None = None) -> float:
    """The rate of a noisy load, cut to floor..cap: post-processing, it costs no privacy.

    Args:
        load_hat: Noisy load [Wh].
        tariff: The coefficients and limits.
        last: The rate published before, of which `tariff.smooth` is kept; None: there is none.

    Returns:
        The published rate [currency/kWh].

    >>> public_rate(-100_000, Tariff(alpha=1.0, beta=62.5))
    0.0
    """
    rate = float(min(max(optimal_rate(float(load_hat), tariff), tariff.floor), tariff.cap))
    return smoothed_rate(rate, tariff, last)


def smoothed_rate(rate: float, tariff: Tariff, last: float | None) -> float:
    """A rate of which a share is kept from the one before, where the tariff smooths.

    Args:
        rate: The rate [currency/kWh].
        tariff: The tariff.
        last: The rate published before; None: there is none.

    Returns:
        The published rate [currency/kWh].
    """
    if last is None or not tariff.smooth:
        return rate
    return tariff.smooth * last + (1 - tariff.smooth) * rate


def feed_in_rate(load_hat: float | None, tariff: Tariff) -> float | None:
    """The feed-in rate of a noisy load, cut to its own floor..cap: post-processing too.

    Args:
        load_hat: Noisy load [Wh]; None: no load, as for a fallback.
        tariff: The coefficients and limits.

    Returns:
        The published rate [currency/kWh]; None where the tariff has none.

    >>> feed_in_rate(2000, Tariff(1.0, 62.5, feed_in=FeedIn(alpha=0.5, beta=10.0, cap=10.5)))
    10.5
    """
    feed_in = tariff.feed_in
    if feed_in is None:
        return None
    z = 0.0 if load_hat is None else float(load_hat) + tariff.inelastic - tariff.offset
    return float(min(max(feed_in.alpha * z / 1000 + feed_in.beta, feed_in.floor), feed_in.cap))


def offset_tariff(zone: Zone, tariff: Tariff, consumption: Consumption) -> Tariff:
    """The tariff of a zone's loads, which hold the export limits of its houses.

    Args:
        zone: Houses and bounds.
        tariff: The tariff.
        consumption: The laws of readings.

    Returns:
        The tariff with the zone's offset.

    Raises:
        ConsumptionError: If readings react to rates and a house exports.
    """
    if zone.offset and consumption.reacts:
        raise ConsumptionError(
            f"elasticity exponent is {consumption.elasticity and consumption.elasticity.exponent}"
            " but houses export, and a factor of net readings has no meaning; leave elasticity out."
        )
    return tariff if tariff.offset == zone.offset else replace(tariff, offset=zone.offset)


def relative_to(rate: Floats, tariff: Tariff) -> Floats:
    """What an error of a rate is relative to: the rate, or that at no load where it is larger.

    A zone that exports has rates about 0. Without exports every optimal rate is at least beta.

    Args:
        rate: Optimal rates [currency/kWh].
        tariff: The tariff.

    Returns:
        Positive rates [currency/kWh], in the shape of `rate`.
    """
    return np.asarray(np.maximum(rate, tariff.beta))


ZoneTerms = tuple[Zone, Tariff, Sequence[OccupancyModel], Consumption]


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """A zone, its public models, and the true behaviour where that differs.

    Attributes:
        zone: Houses and bounds.
        tariff: Coefficients and limits of the price.
        models: The public occupancy models Theta.
        consumption: The public laws of readings.
        truth: True occupancy model of a simulation; None: the first of `models`.
        consumed: True laws of readings of a simulation; None: `consumption`.
    """

    zone: Zone
    tariff: Tariff
    models: Sequence[OccupancyModel]
    consumption: Consumption
    truth: OccupancyModel | None = None
    consumed: Consumption | None = None

    def __repr__(self) -> str:
        models = count_of("model", len(self.models))
        return brief(self, count_of("house", self.zone.n_houses), models, names=("zone", "tariff"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "tariff", offset_tariff(self.zone, self.tariff, self.consumption))

    @property
    def terms(self) -> ZoneTerms:
        """Zone, tariff, models and consumption: the first arguments of `init` and `plan`."""
        return self.zone, self.tariff, self.models, self.consumption

    def of_month(self, month: int, day: int) -> Scenario:
        """The same zone with the laws of one month, 1 to 12, where days have `day` steps."""
        if not self.consumption.seasonal(day):
            return self
        consumed = self.consumed and self.consumed.of_month(month, day)
        return replace(self, consumption=self.consumption.of_month(month, day), consumed=consumed)

    def starting(self, offset: int) -> Scenario:
        """The same zone with every calendar `offset` steps later."""
        return Scenario(
            self.zone,
            self.tariff,
            tuple(model.starting(offset) for model in self.models),
            self.consumption.starting(offset),
            self.truth.starting(offset) if self.truth else None,
            self.consumed.starting(offset) if self.consumed else None,
        )
