"""A price that is no straight line of the load: points, tiers, or scarcity of a capacity."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, brief, is_real
from hushgrid.errors import ZoneError

Pairs = tuple[tuple[float, float], ...]
CURVES = ("points", "tiers", "scarcity")  # the ways to give one


@dataclass(frozen=True, slots=True)
class Curve:
    """Price of the load of an interval: linear between its vertices, flat outside, never falling.

    Exactly one of `points`, `tiers` and `scarcity` is given.

    Attributes:
        points: Pairs of a load [kWh of an interval] and a price [currency/kWh], linear in between;
            two of one load are a jump.
        tiers: Pairs of a load [kWh of an interval] and the price from it on [currency/kWh]; the
            first price holds below it too.
        scarcity: Pairs of a share of `capacity` and a price [currency/kWh], linear in between.
        capacity: What the feeder can carry [kWh of an interval]; of a scarcity curve alone.
        vertices: What all three come to: pairs of load and price, two of one load for a jump. At a
            jump the upper price holds.

    >>> Curve(tiers=[(0, 0.1), (100, 0.3)]).vertices
    ((0.0, 0.1), (100.0, 0.1), (100.0, 0.3))
    """

    __repr__ = brief

    points: Pairs = ()
    tiers: Pairs = ()
    scarcity: Pairs = ()
    capacity: float | None = None
    vertices: Pairs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = [name for name in CURVES if getattr(self, name)]
        if len(kinds) != 1:
            raise ZoneError(
                f"curve has {' and '.join(kinds) or 'no pairs'}; give exactly one of"
                f" {', '.join(CURVES)}.",
                fields=tuple(kinds[1:]),
            )
        (kind,) = kinds
        if (self.capacity is None) != (kind != "scarcity"):
            raise ZoneError(
                f"curve capacity is {self.capacity} beside {kind}; give a capacity with scarcity,"
                " and with nothing else.",
                fields=("capacity",),
            )
        if self.capacity is not None and not (is_real(self.capacity) and self.capacity > 0):
            raise ZoneError(
                f"curve capacity is {self.capacity}; give kWh of an interval, above 0.",
                fields=("capacity",),
            )
        pairs = _checked(kind, getattr(self, kind))
        object.__setattr__(self, kind, pairs)
        unit = 1.0 if self.capacity is None else float(self.capacity)
        vertices = [(unit * load, price) for load, price in pairs]
        if kind == "tiers":
            lasts = [(load, price) for (load, _), (_, price) in zip(pairs[1:], pairs, strict=False)]
            vertices = sorted(vertices + lasts)
        object.__setattr__(self, "vertices", tuple(vertices))

    @property
    def chord(self) -> tuple[float, float]:
        """Slope from the first vertex to the last [currency/kWh per kWh], and the first price."""
        (low, first), (high, last) = self.vertices[0], self.vertices[-1]
        return (last - first) / (high - low), first

    def scaled(self, factor: float) -> Curve:
        """The curve of a zone that is so many times as large.

        Args:
            factor: What every load is multiplied by, above 0.

        Returns:
            The curve; in points where it was of scarcity.
        """
        if self.tiers:
            return Curve(tiers=tuple((factor * load, price) for load, price in self.tiers))
        return Curve(points=tuple((factor * load, price) for load, price in self.vertices))

    def price(self, load: Floats) -> Floats:
        """The price of a load.

        Args:
            load: Loads [kWh of an interval], any shape.

        Returns:
            Prices [currency/kWh], in that shape.
        """
        return _at(self.vertices, np.asarray(load, np.float64))[1]

    def cost(self, load: Floats) -> Floats:
        """The integral of the price from no load on.

        Args:
            load: Loads [kWh of an interval], any shape.

        Returns:
            Costs [currency], in that shape.
        """
        x, p = _columns(self.vertices)
        steps = np.diff(x) * (p[1:] + p[:-1]) / 2
        below = np.concatenate([[0.0], np.cumsum(steps)])

        def area(z: Floats) -> Floats:
            last, price = _at(self.vertices, z)
            return np.asarray(below[last] + (z - x[last]) * (p[last] + price) / 2)

        return area(np.asarray(load, np.float64)) - area(np.zeros(()))

    def load(self, price: Floats) -> Floats:
        """The least load with at least a price; an end of the curve beyond its prices.

        Args:
            price: Prices [currency/kWh], any shape.

        Returns:
            Loads [kWh of an interval], in that shape.
        """
        x, p = _columns(self.vertices)
        prices = np.asarray(price, np.float64)
        above = np.searchsorted(p, prices, side="left")
        low, high = (np.clip(at, 0, len(p) - 1) for at in (above - 1, above))
        rise = p[high] - p[low]
        share = np.divide(prices - p[low], rise, out=np.zeros(prices.shape), where=rise > 0)
        return np.asarray(x[low] + share * (x[high] - x[low]))

    def cut(self, floor: float, cap: float) -> tuple[Floats, Floats]:
        """The vertices where prices are cut to a range.

        Args:
            floor: Lowest price [currency/kWh].
            cap: Highest price [currency/kWh].

        Returns:
            Loads [kWh of an interval] and prices [currency/kWh], in order.
        """
        (_, first), (_, last) = self.vertices[0], self.vertices[-1]
        ends = [(float(self.load(np.array(at))), at) for at in (floor, cap) if first < at < last]
        x, p = np.array(sorted([*self.vertices, *ends])).T
        return x, np.clip(p, floor, cap)


def _checked(kind: str, rows: Any) -> Pairs:
    """Pairs of numbers whose loads rise and whose prices never fall."""
    listed = isinstance(rows, (list, tuple)) and all(
        isinstance(row, (list, tuple)) and len(row) == 2 and all(map(is_real, row)) for row in rows
    )
    if not listed:
        raise ZoneError(
            f"curve {kind} is no list of pairs of numbers; give pairs such as [100, 0.25]."
        )
    pairs: Pairs = tuple((float(load), float(price)) for load, price in rows)
    jumps, fault = 0, ""
    for (low, first), (high, last) in pairwise(pairs):
        jumps = jumps + 1 if high == low else 0
        if high < low or jumps > (kind != "tiers"):
            two = "" if kind == "tiers" else ", two of one load for a jump"
            fault = f"has load {high:g} after {low:g}; give loads that rise{two}."
        elif last < first:
            fault = (
                f"has price {last:g} after {first:g}; give prices that never fall with the load."
            )
        if fault:
            break
    if not fault and not pairs[0][1] > 0:
        fault = f"begins with price {pairs[0][1]:g}; give a price above 0."
    if not fault and (pairs[0][1] == pairs[-1][1] or pairs[0][0] == pairs[-1][0]):
        fault = f"goes from {pairs[0]} to {pairs[-1]}; give two loads and two prices at least."
    if fault:
        raise ZoneError(f"curve {kind} {fault}")
    return pairs


@lru_cache(maxsize=64)
def _columns(vertices: Pairs) -> tuple[Floats, Floats]:
    """Loads and prices of vertices."""
    x, p = np.array(vertices).T
    return x, p


def _at(vertices: Pairs, load: Floats) -> tuple[Any, Floats]:
    """The last vertex at or below each load, the first of all below it, and the price there."""
    x, p = _columns(vertices)
    above = np.searchsorted(x, load, side="right")
    low, high = (np.clip(at, 0, len(x) - 1) for at in (above - 1, above))
    width = x[high] - x[low]
    share = np.divide(load - x[low], width, out=np.zeros(load.shape), where=width > 0)
    return low, np.asarray(np.minimum(p[low] + share * (p[high] - p[low]), p[high]))
