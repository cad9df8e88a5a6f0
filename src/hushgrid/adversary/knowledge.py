"""What the adversary knows: the zone, Theta, f, the clamp; and, if she is stronger, the others."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.adversary.blur import Blur
from hushgrid.arrays import Floats, Int32s, Ints
from hushgrid.checks import index_array, is_real
from hushgrid.consumption import Consumption
from hushgrid.errors import PolicyError, ReadingError
from hushgrid.grid import Zone
from hushgrid.occupancy import OccupancyModel, check_models

if TYPE_CHECKING:
    from hushgrid.mechanism import Release


_KEPT = 128  # slots whose laws are kept


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class KnownReadings:
    """She knows what every other house used: (steps, houses) readings [Wh] from step `first` on.

    A house's own column is never used for the guess about that house.
    """

    values: Int32s
    first: int

    def __init__(self, values: ArrayLike, first: int = 1) -> None:
        object.__setattr__(self, "values", _table(values, "known readings"))
        object.__setattr__(self, "first", first)


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class KnownOccupancy:
    """She knows who else is at home: (steps, houses) of 0 and 1, from step `first` on."""

    values: Int32s
    first: int

    def __init__(self, values: ArrayLike, first: int = 1) -> None:
        table = _table(values, "known occupancy")
        if ((table != 0) & (table != 1)).any():
            raise ReadingError("known occupancy holds numbers other than 0 and 1; give those.")
        object.__setattr__(self, "values", table)
        object.__setattr__(self, "first", first)


def _table(values: ArrayLike, what: str) -> Int32s:
    try:
        table = np.array(values)
    except ValueError:
        raise ReadingError(f"{what} are ragged; give a row for each step.") from None
    if table.ndim != 2 or table.dtype.kind not in "iub":  # secret: no value is shown
        raise ReadingError(
            f"{what} have shape {table.shape} and type {table.dtype};"
            " give whole numbers, a row for each step and a column for each house."
        )
    return index_array(np.clip(table.astype(np.int64), 0, 2**31 - 1), what, ReadingError)


Others = KnownReadings | KnownOccupancy


@dataclass(frozen=True, slots=True, eq=False)
class StepLaws:
    """The readings' laws of one step, cut at the clamp; houses of a kind share a pair."""

    pairs: tuple[tuple[Floats, Floats], ...]  # pmfs of absent and present
    kind_of: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """Zone, models Theta, consumption f and the policy's clamp: all public (paper II-C).

    `digest` is the terms' own (`state.digest`): where it is given, releases of other terms are
    refused. An adversary with a wrong model is given that model here. `others` makes her stronger
    than the paper's: she knows every other reading, or everybody else's occupancy.
    """

    zone: Zone
    models: Sequence[OccupancyModel]
    consumption: Consumption
    clamp: tuple[int, ...] = ()
    digest: str | None = None
    others: Others | None = None
    _bound: Int32s = field(init=False, repr=False)
    _kinds: Int32s = field(init=False, repr=False)
    _kind_of: Int32s = field(init=False, repr=False)
    _known: dict[tuple[int, float], StepLaws] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        models = check_models(self.models, self.zone.n_houses)
        self.consumption.check_fits(self.zone.bound)
        bound, f = self.zone.bound, self.consumption
        if self.clamp:
            f = f.cut(self.clamp)
            bound = np.minimum(bound, np.array(self.clamp, np.int32)[f.class_of])
        # a law that demand moves is cut at the house's own bound; else the class says it all
        house = np.stack([f.class_of, bound if f.reacts else np.zeros_like(bound)], axis=1)
        kinds, kind_of = np.unique(house, axis=0, return_inverse=True)
        for name, value in {
            "models": models,
            "consumption": f,
            "_bound": bound,
            "_kinds": kinds,
            "_kind_of": kind_of.ravel().astype(np.int32),
            "_known": {},
        }.items():
            object.__setattr__(self, name, value)
        _check_others(self.others, self.zone.n_houses)

    @property
    def n_houses(self) -> int:
        """Number of houses N."""
        return self.zone.n_houses

    def told(self, others: Others) -> Knowledge:
        """The same with other news of the others; laws worked out so far are shared."""
        _check_others(others, self.n_houses)
        made = copy(self)
        object.__setattr__(made, "others", others)
        return made

    def laws(self, t: int, rate: float | None) -> StepLaws:
        """The laws of step t after the rate last shown."""
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
        """The readings she knows of step t, cut as the curator cuts them."""
        if not isinstance(self.others, KnownReadings):
            return None
        return np.clip(_row(self.others, t), 0, self._bound).astype(np.int64)

    def occupancy(self, t: int) -> Int32s | None:
        """Who she knows to be at home at step t."""
        return _row(self.others, t) if isinstance(self.others, KnownOccupancy) else None

    def check_release(self, release: Release, t: int, digest: str | None) -> Blur:
        """Refuse a release she cannot read; the noise of one she can. `t`: her last step."""
        place = f"release of step {release.t}"
        if release.zone != self.zone.id:
            raise PolicyError(
                f"{place} is of zone {release.zone} but she watches {self.zone.id};"
                " give that zone's releases."
            )
        wanted = self.digest or digest
        if wanted is not None and release.digest != wanted:
            raise PolicyError(
                f"{place} is under terms {release.digest[:12]} but the others under {wanted[:12]};"
                " start a new adversary where the terms change."
            )
        if release.t <= t:
            raise PolicyError(
                f"{place} comes after step {t}; give releases in order, each step once."
            )
        if release.look:
            raise PolicyError(
                f"{place} also spent a look of {release.look:g} Wh, which says something about"
                " the load that no filter here reads; give releases without a window."
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
        return Blur(release.noise, float(release.scale))


def _row(others: Others, t: int) -> Int32s:
    first, steps = others.first, len(others.values)
    if not first <= t < first + steps:
        after = f" from step {first} on" if first > 1 else ""
        raise ReadingError(
            f"{type(others).__name__} has {steps} steps{after} but step {t} is asked for;"
            " give a row for every step."
        )
    return np.asarray(others.values[t - first])


def _check_others(others: Others | None, n_houses: int) -> None:
    if others is not None and others.values.shape[1] != n_houses:
        raise ReadingError(
            f"{type(others).__name__} has {others.values.shape[1]} columns but the zone has"
            f" {n_houses} houses; give one column for each house."
        )
