"""Exposure of a step: how the law of the load differs between protected occupancies (line 6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hushgrid._numbers import Int32s, Value, brief
from hushgrid.errors import PolicyError
from hushgrid.mechanism.policy import BlockRule, EmptyRule, ModelsRule, Policy
from hushgrid.mechanism.support import Open, Protected, Support, grouped
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Clamp, Law
from hushgrid.model.occupancy import OccupancyModel, check_models
from hushgrid.model.zone import Zone


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Houses whose occupancy may differ together: the laws of their readings before and after.

    Attributes:
        houses: House numbers.
        bound: Bound of each [Wh].
        before: Law of each reading before the change.
        after: Law of each reading after the change.
        model: Number of the theta that leaves the case open; None: only several models together.
        exact: One definite change, so laws may be convolved; else the case covers every direction
            of change of these houses.
    """

    houses: tuple[int, ...]
    bound: tuple[int, ...]
    before: tuple[Law, ...]
    after: tuple[Law, ...]
    model: int | None
    exact: bool = True

    __repr__ = brief

    @property
    def reach(self) -> int:
        """Largest change of the load [Wh]."""
        return sum(self.bound)

    def scaled(self, factor: float) -> Case:
        """The case after demand has reacted to the price."""
        before, after = (
            tuple(law.scaled(factor, bound) for law, bound in zip(laws, self.bound, strict=True))
            for laws in (self.before, self.after)
        )
        return replace(self, before=before, after=after)


@dataclass(frozen=True, eq=False)
class Exposure:
    """What a release could disclose; a calibrator answers it with a scale.

    Attributes:
        bound: Bounds of all houses, (N,) [Wh].
        largest: House with the largest bound.
        reach: Largest contribution of one house, or of one block of houses that move together [Wh].
        protected: The protected houses kappa.
        cases: Pairs of laws that the noise must hide; empty where nothing is uncertain.
        blocks: Houses that some model moves jointly.
    """

    bound: Int32s
    largest: int
    reach: int
    protected: Protected
    cases: tuple[Case, ...]
    blocks: tuple[tuple[int, ...], ...] = ()  # houses that some model moves jointly

    __repr__ = brief

    @cached_property
    def widest(self) -> Case:
        """The first case with the largest reach; there must be one."""
        return max(self.cases, key=lambda case: case.reach)


def merged(steps: Sequence[Exposure]) -> Exposure:
    """The exposure of several steps together: a house that one protects is protected.

    Args:
        steps: Exposures of one zone, 1 or more.

    Returns:
        Their cases together.
    """
    cases = {id(case): case for exposure in steps for case in exposure.cases}
    protected = steps[0].protected
    for exposure in steps[1:]:
        protected = protected | exposure.protected
    return replace(steps[0], protected=protected, cases=tuple(cases.values()))


class Exposures(Value):
    """The exposure of every step, from public models alone: known before the first reading.

    Steps of the same slot with the same possible states share one Exposure object.

    Args:
        models: The occupancy models Theta.
        zone: Houses and bounds.
        consumption: The laws of readings.
        blocks: How correlated houses count.
        models_rule: How several models count.
        on_empty: What to do when no house is uncertain.
        clamp: Clamp of each density class [Wh], or empty.
    """

    def __init__(
        self,
        models: Sequence[OccupancyModel],
        zone: Zone,
        consumption: Consumption,
        blocks: BlockRule,
        models_rule: ModelsRule,
        on_empty: EmptyRule,
        clamp: Clamp = (),
    ) -> None:
        consumption.check_fits(zone.bound)
        self._origin = (tuple(check_models(models, zone.n_houses)), zone, consumption)
        self._rules = (blocks, models_rule, on_empty, clamp)
        if clamp:  # from here on the clamp is the bound: the proofs see nothing else
            low, at = consumption.clamp_ends(clamp)
            consumption, zone = consumption.cut(clamp), zone.cut(at, low)
        self.zone, self.consumption = zone, consumption
        # laws that react to rates are cut at each house's own bound: then bounds part a class
        kinds = consumption.class_of
        if consumption.reacts:
            kinds, _ = grouped([consumption.class_of, zone.bound])
        self._support = Support(models, kinds, zone.bound, blocks, models_rule)
        self._blocks = self._support.all_blocks()
        self._largest = int(zone.bound.argmax())  # once: it is a pass over all houses
        self._reach = max(int(zone.bound[self._largest]), self._support.largest_block())
        self._shared: dict[tuple[int, bytes], Exposure] = {}
        self._singles: dict[tuple[int, int, int], Case] = {}
        self._steps, self._known = self._support.steps(), list[Exposure]()
        # what was uncertain at the last step, and its key
        self._last: tuple[Open | None, bytes] = (None, b"")

    def made_from(self) -> tuple[Any, ...]:
        """Models, zone and consumption, then the rules."""
        return (*self._origin, *self._rules)

    def check_made_for(
        self,
        models: Sequence[OccupancyModel],
        zone: Zone,
        consumption: Consumption,
        policy: Policy,
    ) -> None:
        """Refuse a zone, models or rules other than those of the constructor."""
        origin, rules = self._origin, (policy.blocks, policy.models, policy.on_empty, policy.clamp)
        if self.made_from() != (tuple(models), zone, consumption, *rules):
            raise PolicyError(
                f"exposures were made for zone {origin[1].id!r} under"
                f" {', '.join(str(rule) for rule in self._rules[:3])};"
                " make them from this zone, these models and this policy."
            )

    def booked(self) -> Exposures:
        """The same under the rules `block` and `union`.

        The other rules bound less than what a release can disclose about one house, so losses are
        booked under these rules.
        """
        if not self.weaker:
            return self
        _, _, on_empty, clamp = self._rules
        return Exposures(*self._origin, "block", "union", on_empty, clamp)

    @property
    def weaker(self) -> bool:
        """Whether the rules can bound less than what a release discloses about one house."""
        blocks, models_rule, _, _ = self._rules
        several = len(self._origin[0]) > 1
        return (blocks != "block" and self._support.has_blocks) or (
            models_rule != "union" and several
        )

    def at(self, t: int) -> Exposure:
        """The exposure of step t, before any reaction of demand to rates."""
        while len(self._known) < t:
            self._known.append(self._next(len(self._known) + 1))
        return self._known[t - 1]

    def _next(self, t: int) -> Exposure:
        opened = next(self._steps)
        if self._rules[2] == "protect_all" and not (opened.groups.any() or opened.blocks):
            opened = self._support.all_open()
        if opened is not self._last[0]:  # the same object where the same is uncertain again
            self._last = (opened, opened.key())
        key = (self.consumption.calendar.slot(t), self._last[1])
        if key not in self._shared:
            self._shared[key] = Exposure(
                self._support.bound,
                self._largest,
                self._reach,
                self._support.protected(opened),
                tuple(self._cases(opened, t)),
                self._blocks,
            )
        return self._shared[key]

    def _cases(self, opened: Open, t: int) -> Iterator[Case]:
        """One case for each density class with a protected house, and one for each flip.

        For the same laws the loss never falls as the bound grows, so the class's largest protected
        house covers all.
        """
        slot = self.consumption.calendar.slot(t)
        for group in _largest_open_groups(self._support, opened).tolist():
            key = (slot, group, int(opened.model_of[group]))
            if key not in self._singles:
                house, theta = int(self._support.largest[group]), key[2]
                self._singles[key] = self._case(t, (house,), (0,), None if theta < 0 else theta)
            yield self._singles[key]
        for number, model, flips in opened.blocks:
            houses = self._support.block(number)
            for flip in flips:
                yield self._case(t, flip.pick(houses), flip.start(), model, flip.exact)

    def _case(
        self,
        t: int,
        houses: tuple[int, ...],
        start: Sequence[int],
        model: int | None,
        exact: bool = True,
    ) -> Case:
        kinds = [int(self.consumption.class_of[h]) for h in houses]
        laws = [
            tuple(self.consumption.law(t, kind, occupied=occupied) for occupied in (False, True))
            for kind in kinds
        ]
        return Case(
            houses,
            tuple(int(self._support.bound[h]) for h in houses),
            tuple(pair[s] for pair, s in zip(laws, start, strict=True)),
            tuple(pair[1 - s] for pair, s in zip(laws, start, strict=True)),
            model,
            exact,
        )


def _largest_open_groups(support: Support, opened: Open) -> Int32s:
    """Of the open groups of each density class, the one with the largest bound."""
    groups = np.flatnonzero(opened.groups).astype(np.int32)
    if not groups.size:
        return groups
    kinds, bounds = support.class_of_group[groups], support.bound[support.largest[groups]]
    top = np.full(int(kinds.max()) + 1, -1, np.int32)
    np.maximum.at(top, kinds, bounds)
    best = groups[bounds == top[kinds]]
    _, index = np.unique(support.class_of_group[best], return_index=True)
    return np.asarray(best[index])
