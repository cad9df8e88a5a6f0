"""Net readings over three steps: what all releases say about one interval, path by path.

Nothing here shares code with the package: 2^N states at each step, every path of them, loads in
net Wh. Outputs beyond the least and the largest net load have the ratios of these two, because all
likelihoods fall by the same factor there.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    Histogram,
    OccupancyModel,
    Policy,
    Tariff,
    Zone,
    init,
    plan,
)
from tests.mechanism.signed_noise import added, contaminated, noise

TARIFF = Tariff(alpha=1.0, beta=62.5, floor=-1000.0)
STEPS = 3
Law = dict[int, float]  # net Wh to probability
Floats = Any


class World:
    """Houses some of which export, with laws that differ from step to step, as those of sun do."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([15, seed])
        self.n = 1 + seed % 3
        self.u, self.v = rng.integers(1, 3, self.n), rng.integers(0, 3, self.n)
        self.v[0] = 2
        self.initial = rng.uniform(0.2, 0.8, self.n)  # of being at home
        self.moves = rng.uniform(0.05, 0.95, (STEPS - 1, self.n, 2))  # from away and from home
        self.laws = [[[self._law(rng, h) for h in range(self.n)] for _ in "01"] for _ in "abc"]

    def _law(self, rng: np.random.Generator, house: int) -> Law:
        weights = rng.random(self.u[house] + self.v[house] + 1) ** 3 + 1e-2
        values = range(-int(self.v[house]), int(self.u[house]) + 1)
        return dict(zip(values, (weights / weights.sum()).tolist(), strict=True))

    def terms(self) -> tuple[Zone, Tariff, list[OccupancyModel], Consumption]:
        pairs = np.stack([1 - self.initial, self.initial], axis=1)
        steps = Calendar(range(STEPS))  # what leads to a step is in its slot
        moves = np.concatenate([self.moves[:1], self.moves])
        rows = np.stack([1 - moves, moves], axis=-1)
        theta = OccupancyModel.factored(pairs, rows, calendar=steps)
        absent, present = (
            [[Histogram(list(law.values())) for law in step[s]] for step in self.laws]
            for s in (0, 1)
        )
        laws = [one for step in (*absent, *present) for one in step]
        place = np.arange(len(laws)).reshape(2, STEPS, self.n)
        f = Consumption(tuple(laws), place[0], place[1], np.arange(self.n), steps)
        return Zone.net("z", self.u, self.v), TARIFF, [theta], f

    def truth(self, scales: list[float], eta: float, ends: tuple[int, int]) -> float:
        """The worst |log ratio| about any house at any step, where a part eta of each reading's
        law is at one end of -v..u: `ends` says which, away and at home."""
        states = list(product((0, 1), repeat=self.n))
        outputs = range(-int(self.v.sum()), int(self.u.sum()) + 1)
        seen: list[list[Floats]] = []
        for t, scale in enumerate(scales):
            seen.append([])
            for state in states:
                each = [
                    contaminated(self.laws[t][s][h], int((-self.v, self.u)[ends[s]][h]), eta)
                    for h, s in enumerate(state)
                ]
                load = added(each)
                each_y = [sum(p * noise(y - z, scale) for z, p in load.items()) for y in outputs]
                seen[t].append(np.array(each_y))
        joint = np.zeros((STEPS, self.n, 2, *[len(outputs)] * STEPS))
        chances = np.zeros((STEPS, self.n, 2))
        for path in product(range(len(states)), repeat=STEPS):
            chance = self._chance([states[k] for k in path])
            likely = chance * np.einsum("a,b,c->abc", *(seen[t][k] for t, k in enumerate(path)))
            for t, h in product(range(STEPS), range(self.n)):
                joint[t, h, states[path[t]][h]] += likely
                chances[t, h, states[path[t]][h]] += chance
        logs = np.log(joint / chances[..., None, None, None])
        return float(np.abs(logs[:, :, 1] - logs[:, :, 0]).max())

    def _chance(self, path: list[tuple[int, ...]]) -> float:
        chance = math.prod(p if s else 1 - p for s, p in zip(path[0], self.initial, strict=True))
        for t in range(1, STEPS):
            for h, (old, new) in enumerate(zip(path[t - 1], path[t], strict=True)):
                home = self.moves[t - 1, h, old]
                chance *= home if new else 1 - home
        return float(chance)


@pytest.mark.parametrize("eta", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_three_releases_say_no_more_about_an_interval_than_is_promised(
    seed: int, eta: float
) -> None:
    world, epsilon = World(seed), 0.8
    terms = world.terms()
    made = plan(
        *terms, secret="interval", epsilon=epsilon, terms=Policy(1.0, horizon=STEPS, eta=eta),
        rho=None,
    )  # fmt: skip
    scheduler = init(*terms, made.policy).scheduler
    scales = [scheduler.at(t).scale for t in range(1, STEPS + 1)]
    worst = max(world.truth(scales, eta, ends) for ends in ((0, 1), (1, 0)))
    assert worst <= epsilon + 1e-9
    assert worst > 0.6 * epsilon, "the noise is not simply too much"
    less = [scale / 2 for scale in scales]
    assert max(world.truth(less, eta, ends) for ends in ((0, 1), (1, 0))) > epsilon


@pytest.mark.parametrize("seed", range(3))
def test_each_of_three_releases_keeps_its_own_promise(seed: int) -> None:
    """A house's two states, with whatever the others do, at every step with its own laws."""
    world, epsilon = World(seed), 0.7
    policy = Policy(epsilon, horizon=STEPS, eta=0.0)
    scheduler = init(*world.terms(), policy).scheduler
    outputs = range(-int(world.v.sum()), int(world.u.sum()) + 1)
    for t in range(STEPS):
        worst, scale = 0.0, scheduler.at(t + 1).scale
        for house, others in product(range(world.n), product((0, 1), repeat=world.n)):
            logs = []
            for own in (0, 1):
                state = [own if h == house else s for h, s in enumerate(others)]
                load = added([world.laws[t][s][h] for h, s in enumerate(state)])
                logs.append(
                    [
                        math.log(sum(p * noise(y - z, scale) for z, p in load.items()))
                        for y in outputs
                    ]
                )
            worst = max(worst, *(abs(a - b) for a, b in zip(*logs, strict=True)))
        assert 0.5 * epsilon < worst <= epsilon + 1e-9
