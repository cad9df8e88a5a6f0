"""Blocks across models: houses that any model moves jointly are looked at jointly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hushgrid.arrays import Bools
from hushgrid.errors import ModelError
from hushgrid.occupancy import MAX_BLOCK, OccupancyModel


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Houses that some model of a context moves jointly, with each model's own blocks inside."""

    houses: tuple[int, ...]
    parts: tuple[tuple[tuple[int, int, tuple[int, ...]], ...], ...]  # (piece, chain, axes) a model

    def possible(
        self, context: tuple[int, ...], now: Sequence[tuple[Bools, ...]]
    ) -> tuple[Bools, int | None]:
        """States possible under any model of the context; the model, if one alone allows all."""
        m = len(self.houses)
        each = []
        for theta, parts in zip(context, self.parts, strict=True):
            states = np.ones((2,) * m, np.bool_)
            for piece, chain, axes in parts:
                own = now[theta][piece][chain].reshape((2,) * len(axes))
                order = np.argsort(axes)
                shape = [2 if axis in axes else 1 for axis in range(m)]
                states &= own.transpose(order).reshape(shape)
            each.append(states.ravel())
        union = np.logical_or.reduce(each)
        alone = [theta for theta, own in zip(context, each, strict=True) if (own == union).all()]
        return union, alone[0] if alone else None


def joined_blocks(models: Sequence[OccupancyModel]) -> list[Joined]:
    """The finest blocks, of two houses or more, that contain every model's blocks."""
    root: dict[int, int] = {}

    def find(house: int) -> int:
        while root.setdefault(house, house) != house:
            root[house] = house = root[root[house]]
        return house

    for model in models:
        for piece in model.chains:
            if piece.size > 1:
                for first, *rest in piece.members.tolist():
                    for other in rest:
                        root[find(other)] = find(first)
    members: dict[int, list[int]] = {}
    for house in root:
        members.setdefault(find(house), []).append(house)
    groups = [tuple(sorted(houses)) for houses in members.values() if len(houses) > 1]
    for houses in groups:
        if len(houses) > MAX_BLOCK:
            raise ModelError(
                f"blocks of the models overlap into one of {len(houses)} houses (house {houses[0]}"
                f" among them); give models whose blocks join to at most {MAX_BLOCK}."
            )
    if not groups:
        return []
    place = {house: (g, i) for g, houses in enumerate(groups) for i, house in enumerate(houses)}
    parts: list[list[list[tuple[int, int, tuple[int, ...]]]]] = [
        [[] for _ in models] for _ in groups
    ]
    for m, model in enumerate(models):
        for p, piece in enumerate(model.chains):
            for b in np.flatnonzero(np.isin(piece.members[:, 0], list(place))).tolist():
                spots = [place[house] for house in piece.members[b].tolist()]
                axes = tuple(i for _, i in spots)
                parts[spots[0][0]][m].append((p, int(piece.chain_of[b]), axes))
    return [
        Joined(houses, tuple(tuple(own) for own in parts[g])) for g, houses in enumerate(groups)
    ]
