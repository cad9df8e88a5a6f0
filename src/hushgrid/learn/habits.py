"""When people are away, quiet or active at home: chains by time of day, as priors for fits.

Sleep looks like an empty home, so a meter tells activity, not presence. Three states say so: away
and quiet at home share one law, active has its own; what tells a quiet night from an empty noon is
the chain. Slots are the steps of a weekday, then those of a weekend day.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Floats
from hushgrid.calendar import Calendar
from hushgrid.errors import ModelError

DAY = 86_400  # [s]
AWAY, QUIET, ACTIVE = 0, 1, 2
ARRIVE_ACTIVE = 0.8  # share of comings and goings between away and active, not quiet
USES = 0.75  # share of waking time at home in which more is used than standby; assumed
SPELL = 1.5  # [h] such a spell lasts
_LEAST = 1e-4  # no move is impossible


@dataclass(frozen=True, slots=True, eq=False)
class Habits:
    """Moves into every slot of a weekday and a weekend day, and how often each state is held.

    `transition` (2 * steps of a day, K, K) rows from the old state, `share` (2 * steps, K);
    state 0 is away. `source` says where they come from.
    """

    transition: Floats
    share: Floats
    source: str

    def __post_init__(self) -> None:
        k = self.share.shape[-1]
        if self.transition.shape != (len(self.share), k, k):
            raise ModelError(
                f"habits have moves of shape {self.transition.shape} and shares of shape"
                f" {self.share.shape}; give (slots, states, states) and (slots, states)."
            )
        rows = self.transition.sum(axis=-1)
        if not ((self.transition >= 0).all() and np.allclose(rows, 1, atol=1e-9)):
            raise ModelError(f"habits of {self.source} have a row that is no law; mend the chain.")

    @property
    def steps(self) -> int:
        """Steps of a day."""
        return len(self.share) // 2

    @property
    def home(self) -> Floats:
        """(slots,) how often somebody is at home."""
        return np.asarray(1 - self.share[:, AWAY])

    def moves(self, days: float) -> Floats:
        """Pseudo-counts of moves, as if so many days of these habits had been seen."""
        before = np.stack([np.roll(part, 1, axis=0) for part in np.split(self.share, 2)])
        counts = days * before.reshape(self.share.shape)[:, :, None] * self.transition
        return np.asarray(counts + 0.1 / self.share.shape[1])


def week_calendar(steps: int) -> Calendar:
    """Slots of a week from Monday: five weekdays, two weekend days."""
    return Calendar.week(weekday=list(range(steps)), weekend=list(range(steps, 2 * steps)))


def stationary(transition: Floats) -> Floats:
    """(slots, K) shares that a day repeated for ever settles to, weekday and weekend apart."""
    parts = []
    for day in np.split(transition, 2):
        share = np.full(day.shape[-1], 1 / day.shape[-1])
        for _ in range(200):
            before = share
            for a in day:
                share = share @ a
            if np.abs(share - before).max() < 1e-12:
                break
        each = []
        for a in day:
            share = share @ a
            each.append(share)
        parts.append(np.array(each))
    return np.concatenate(parts)


def two_state(leave: ArrayLike, come: ArrayLike, source: str) -> Habits:
    """Away and at home, from chances of each slot."""
    out, back = np.asarray(leave, np.float64), np.asarray(come, np.float64)
    rows = np.stack([np.stack([1 - back, back], -1), np.stack([out, 1 - out], -1)], 1)
    return Habits(rows, stationary(rows), source)


def three_state(present: Habits, awake: Habits, *, seconds: int, uses: float = USES) -> Habits:
    """Away, quiet, active from the chain of being at home and the chain of being awake there.

    Active means using more than an empty home does: who is awake does so for a share `uses` of the
    time, in spells of `SPELL`. `ARRIVE_ACTIVE` of comings and goings are between away and active.
    Quiet people turn active at the rate that keeps these shares.
    """
    if present.share.shape != awake.share.shape or present.share.shape[1] != 2:
        raise ModelError("present and awake habits have other slots or states; give two alike.")
    after = np.clip(present.home, 0.02, 0.98), uses * awake.home
    p, e = _before(after[0]), _before(after[1])
    p, e = p, np.clip(e, 0.01, p - 0.01)
    come, leave = present.transition[:, 0, 1], present.transition[:, 1, 0]
    rest = awake.transition[:, 1, 0] + (1 - uses) * (1 - np.exp(-seconds / 3600 / SPELL))
    a = np.zeros((len(p), 3, 3))
    a[:, AWAY, ACTIVE], a[:, AWAY, QUIET] = come * ARRIVE_ACTIVE, come * (1 - ARRIVE_ACTIVE)
    a[:, ACTIVE, AWAY] = np.minimum(p * leave * ARRIVE_ACTIVE / e, 0.9)
    a[:, ACTIVE, QUIET] = rest
    a[:, QUIET, AWAY] = np.minimum(p * leave * (1 - ARRIVE_ACTIVE) / (p - e), 0.9)
    staying = e * (1 - np.minimum(a[:, ACTIVE].sum(axis=1), 0.95))
    needed = after[1] - staying - (1 - p) * a[:, AWAY, ACTIVE]
    a[:, QUIET, ACTIVE] = np.clip(needed / (p - e), 0.005, 0.9)
    for k in range(3):
        away = np.maximum(a[:, k], _LEAST)
        away[:, k] = 0.0
        away *= np.minimum(1.0, 0.95 / away.sum(axis=1))[:, None]
        a[:, k] = away
        a[:, k, k] = 1 - away.sum(axis=1)
    return Habits(a, stationary(a), present.source)


def _before(share: Floats) -> Floats:
    return np.concatenate([np.roll(part, 1) for part in np.split(share, 2)])


# Assumed, not measured: chances by the hour that somebody is at home, and awake there.
_HOME = [0.97] * 7 + [0.88, 0.7, 0.55, 0.5, 0.5, 0.52, 0.5, 0.5, 0.55, 0.62, 0.72]
_HOME += [0.8, 0.85, 0.87, 0.9, 0.93, 0.96]
_AWAKE = [0.15, 0.08, 0.05, 0.05, 0.06, 0.15, 0.4, 0.65, 0.65, 0.52, 0.48, 0.48, 0.5, 0.48, 0.48]
_AWAKE += [0.52, 0.6, 0.7, 0.78, 0.83, 0.85, 0.8, 0.6, 0.35]
_STAY = (3.0, 2.0)  # [h] after which presence and waking are forgotten


def assumed(seconds: int) -> Habits:
    """Habits of no survey: round numbers for a working household, said to be an assumption.

    >>> assumed(1800).share.shape
    (96, 3)
    """
    awake = _tracking(_AWAKE, 0.65, _STAY[1], seconds)
    return three_state(assumed_presence(seconds), awake, seconds=seconds)


def assumed_presence(seconds: int) -> Habits:
    """Away and at home, assumed."""
    return _tracking(_HOME, 0.7, _STAY[0], seconds)


def _tracking(level: list[float], lift: float, hold: float, seconds: int) -> Habits:
    """A chain that forgets within `hold` [h] and tends to the level of the hour."""
    if not 1 <= seconds <= DAY or DAY % seconds:
        raise ModelError(f"a step is {seconds} s; give one that divides a day.")
    hours = (np.arange(DAY // seconds) * seconds / 3600).astype(int)
    mix = 1 - np.exp(-seconds / 3600 / hold)
    weekday = np.array(level)[hours]
    weekend = np.maximum(weekday, lift * (hours >= 8))
    goal = np.concatenate([weekday, weekend])
    return two_state((1 - goal) * mix, goal * mix, "assumed habits, not measured")
