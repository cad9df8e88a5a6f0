"""Battery load hiding, one house at a time: what the meter sees is the grid draw, not the use.

No privacy parameter and no proof: these are judged by what an attacker still learns, against the
energy moved through the battery and its size. Arrays are (T, ...): any number of houses and days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Floats, Ints
from hushgrid.errors import PolicyError


@dataclass(frozen=True, slots=True, eq=False)
class Battery:
    """Capacity [Wh] and the most that goes in or out in a step [Wh]; half full at first."""

    capacity: Ints
    power: Ints

    def __post_init__(self) -> None:
        for name in ("capacity", "power"):
            value = np.asarray(getattr(self, name), np.int64)
            if not (value >= 1).all():
                raise PolicyError(f"battery {name} is below 1 Wh; give whole Wh, 1 or more.")
            object.__setattr__(self, name, value)


class Hidden(NamedTuple):
    """Grid draws [Wh] (T, ...), charge after each step [Wh], energy moved in or out [Wh]."""

    draw: Ints
    charge: Ints
    moved: Ints


Rule = Callable[[Ints, Ints, Ints, Ints, Ints, Floats], Ints]
"""(use, last draw, least draw, most draw, charge, uniform numbers) -> the draw wanted."""


def best_effort(use: Ints, last: Ints, *_: object) -> Ints:
    """Hold the last grid draw as well as the battery can (Kalogridis et al. 2010)."""
    del use
    return last


@dataclass(frozen=True, slots=True, eq=False)
class Stepping:
    """Draw whole multiples of a step [Wh], and keep the last one while the battery bears it.

    After Yang et al. 2012: only the moments at which the multiple changes are seen.
    """

    step: Ints

    def __call__(self, use: Ints, last: Ints, least: Ints, most: Ints, *_: object) -> Ints:
        """The last multiple where it fits, else the one nearest to what is used."""
        low, high = -(-least // self.step), most // self.step  # multiples that fit
        kept = (least <= last) & (last <= most) & (last % self.step == 0)
        near = np.clip((2 * use + self.step) // (2 * self.step), low, np.maximum(low, high))
        return np.where(kept, last, near * self.step)


@dataclass(frozen=True, slots=True, eq=False)
class RandomCharging:
    """Charge at full power with the chance 1 - charge/capacity, else serve from the battery."""

    capacity: Ints

    def __call__(
        self, use: Ints, last: Ints, least: Ints, most: Ints, charge: Ints, u: Floats
    ) -> Ints:
        """The most or the least draw, by a coin."""
        del use, last
        return np.where(u < 1 - charge / self.capacity, most, least)


def hide(use: ArrayLike, battery: Battery, rule: Rule, uniforms: Floats) -> Hidden:
    """Send a trace [Wh] (T, ...) through a battery; nothing is ever sold to the grid.

    >>> flat = hide(np.array([10, 30, 10, 30]), Battery(40, 20), best_effort, np.zeros(4))
    >>> flat.draw.tolist(), flat.charge.tolist()
    ([10, 10, 10, 30], [20, 0, 0, 0])
    """
    x = np.asarray(use, np.int64)
    charge = np.broadcast_to(battery.capacity // 2, x.shape[1:]).astype(np.int64)
    last, draws, charges = x[0], [], []
    moved = np.zeros(x.shape[1:], np.int64)
    for now, u in zip(x, uniforms, strict=True):
        least = np.maximum(now - np.minimum(battery.power, charge), 0)
        most = now + np.minimum(battery.power, battery.capacity - charge)
        draw = np.clip(rule(now, last, least, most, charge, u), least, most)
        charge = charge + draw - now
        moved = moved + np.abs(draw - now)
        draws.append(draw)
        charges.append(charge)
        last = draw
    return Hidden(np.array(draws), np.array(charges), moved)


RULES: Mapping[str, Callable[[Battery], Rule]] = {
    "battery_besteffort": lambda battery: best_effort,  # noqa: ARG005
    "battery_stepping": lambda battery: Stepping(battery.power),
    "battery_random": lambda battery: RandomCharging(battery.capacity),
}
LABELS = {
    "battery_besteffort": "battery, best effort",
    "battery_stepping": "battery, stepping",
    "battery_random": "battery, random charging",
}
NO_PROMISE = "none: a battery has no privacy parameter and no proof; judged by the attacker alone"
