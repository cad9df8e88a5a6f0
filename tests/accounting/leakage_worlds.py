"""Random small zones for the leakage oracle: 1 to 3 houses, up to 5 steps, bounds up to 3 Wh.

Laws, chains and noise change from step to step. Each zone is plain numbers, told to the package
and to the oracle apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid import (
    Calendar,
    Consumption,
    Elasticity,
    Histogram,
    OccupancyModel,
    Policy,
    Tariff,
    Zone,
    house_losses,
    init,
)
from hushgrid.mechanism.policy import BlockRule
from tests.accounting.leakage_oracle import (
    Bits,
    Floats,
    World,
    joint_matrix,
    joint_row,
    loads_of,
    scaled_law,
)

Pmf = list[float]
Blocks = list[tuple[int, ...]]
TARIFF = Tariff(alpha=1000.0, beta=2.0)  # 1 Wh more is a rate 1 higher: a few Wh move demand
SHARP, ORDERED, ANY = "sharp", "ordered", "any"


@dataclass(frozen=True)
class Setup:
    """One zone in plain numbers; the package and the oracle are each told of it in their way."""

    bounds: list[int]
    blocks: Blocks
    initial: list[Floats]  # of each block
    moves: list[list[Floats]]  # into step t = 2.. of each block
    laws: list[list[tuple[Pmf, Pmf]]]  # of each step and house: absent, present
    elasticity: Elasticity | None = None

    @property
    def horizon(self) -> int:
        return len(self.laws)

    @property
    def zone(self) -> Zone:
        return Zone("z", self.bounds)

    def model(self) -> OccupancyModel:
        """Slot t - 1 for step t; no step arrives in slot 0, so its moves are never used."""
        unused = [np.full((k, k), 1 / k) for k in map(len, self.initial)]
        slots = list(zip(unused, *self.moves, strict=True))
        calendar = Calendar(range(self.horizon))
        steps = [np.array(slots_of) for slots_of in slots]
        if all(len(block) == 1 for block in self.blocks):
            return OccupancyModel.factored(self.initial, np.stack(steps, axis=1), calendar=calendar)
        return OccupancyModel.blocked(self.blocks, self.initial, steps, calendar=calendar)

    def consumption(self) -> Consumption:
        n = len(self.bounds)
        flat = [Histogram(law) for step in self.laws for pair in step for law in pair]
        numbers = np.arange(len(flat), dtype=np.int32).reshape(self.horizon, n, 2)
        return Consumption(
            tuple(flat),
            numbers[:, :, 0],
            numbers[:, :, 1],
            np.arange(n, dtype=np.int32),
            Calendar(range(self.horizon)),
            self.elasticity,
        )

    def factor(self, output: int) -> float:
        return self.elasticity.factor([rate(output)]) if self.elasticity else 1.0

    def world(self, scales: Floats, low: int = 0, high: int | None = None) -> World:
        """`scales` is (T, outputs) or (T,)."""
        high = sum(self.bounds) if high is None else high
        outputs = range(low, high + 1)
        table = np.broadcast_to(
            np.asarray(scales).reshape(self.horizon, -1), (self.horizon, len(outputs))
        )
        loads = []
        for t in range(self.horizon):
            by_factor = {f: self._loads(t, f) for f in self._factors(t, outputs)}
            loads.append(np.array([by_factor[f] for f in self._factors(t, outputs)]))
        return self.world_of(loads, table, low, high)

    def world_of(self, loads: list[Floats], scales: Floats, low: int, high: int) -> World:
        moves = tuple(joint_matrix(self.blocks, step) for step in self.moves)
        first = joint_row(self.blocks, self.initial)
        return World(len(self.bounds), first, moves, tuple(loads), tuple(scales), low, high)

    def _factors(self, t: int, outputs: range) -> list[float]:
        return [1.0 if t == 0 else self.factor(output) for output in outputs]

    def _loads(self, t: int, factor: float) -> Floats:
        def law(house: int, occupied: int, _: Bits) -> Pmf:
            return moved[house][occupied]

        moved = [
            [scaled_law(f, factor, u) if factor != 1 else f for f in pair]
            for pair, u in zip(self.laws[t], self.bounds, strict=True)
        ]
        return loads_of(law, self.bounds)


def rate(output: int) -> float:
    """alpha Z / 1000 + beta, in TARIFF's numbers."""
    return output + 2.0


def random_law_pair(rng: np.random.Generator, u: int, kind: str) -> tuple[Pmf, Pmf]:
    if kind == SHARP:  # the reading is the occupancy: noise alone protects
        return [1.0] + [0.0] * u, [0.0] * u + [1.0]
    absent = rng.dirichlet(np.full(u + 1, 0.7)) + 1e-3
    if kind == ORDERED:
        present = absent * np.exp(np.cumsum(rng.exponential(1.0, u + 1)))
    else:  # spikes, gaps and humps
        present = rng.dirichlet(np.full(u + 1, 0.4)) * (rng.random(u + 1) < 0.8) + 1e-6
    return (absent / absent.sum()).tolist(), (present / present.sum()).tolist()


def random_row(rng: np.random.Generator, k: int, zeros: float) -> Floats:
    row = rng.dirichlet(np.full(k, 0.6)) + 1e-3
    alive = rng.random(k) >= zeros
    alive[rng.integers(k)] = True
    row[~alive] = 0.0
    return np.asarray(row / row.sum())


def random_chain(rng: np.random.Generator, k: int, zeros: float, steps: int) -> list[Floats]:
    """Pi, then the moves into steps 2, 3, ...; now and then nobody moves, or all in one way."""
    found = [random_row(rng, k, zeros)]
    for _ in range(steps - 1):
        whim = rng.random()
        if whim < zeros / 2:
            found.append(np.eye(k))
        elif whim < zeros:
            found.append(np.tile(np.eye(k)[rng.integers(k)], (k, 1)))
        else:
            found.append(np.array([random_row(rng, k, zeros) for _ in range(k)]))
    return found


def random_setup(
    rng: np.random.Generator,
    blocks: Blocks,
    *,
    most: int,
    zeros: float,
    longest: int = 5,
    kinds: tuple[str, ...] = (SHARP, ORDERED, ANY),
    elasticity: Elasticity | None = None,
) -> Setup:
    """At most `most` output sequences; sharp laws often, for they come nearest to the bound."""
    n = sum(map(len, blocks))
    bounds = rng.integers(1, 4, n).tolist()
    horizon = 1
    while horizon < longest and (sum(bounds) + 1) ** (horizon + 1) <= most:
        horizon += 1
    chains = [random_chain(rng, 2 ** len(block), zeros, horizon) for block in blocks]
    kind = str(rng.choice(kinds))
    laws = [[random_law_pair(rng, u, kind) for u in bounds] for _ in range(horizon)]
    moves = [[chain[t] for chain in chains] for t in range(1, horizon)]
    return Setup(bounds, blocks, [chain[0] for chain in chains], moves, laws, elasticity)


def singles(n: int) -> Blocks:
    return [(house,) for house in range(n)]


def random_scales(rng: np.random.Generator, horizon: int) -> Floats:
    return np.asarray(np.exp(rng.uniform(np.log(0.4), np.log(5.0), horizon)))


def losses_alone(setup: Setup, scales: Floats, eta: float = 0.0) -> Floats:
    """(T, houses): what each release costs a house whose occupancy is nobody else's business."""
    zone, f = setup.zone, setup.consumption()
    return np.array(
        [house_losses(zone, f, t + 1, b, eta)[0] for t, b in enumerate(scales.tolist())]
    )


def booked_losses(
    models: list[OccupancyModel], setup: Setup, scales: Floats, rule: BlockRule = "block"
) -> Floats:
    """(T, houses), blocks included: as an account books them."""
    policy = Policy(1.0, setup.horizon, eta=0.0, blocks=rule)
    state = init(setup.zone, TARIFF, models, setup.consumption(), policy)
    rates = [rate(0)] * setup.horizon
    steps = enumerate(scales.tolist(), 1)
    return np.array([state.scheduler.losses(t, b, rates[: t - 1]) for t, b in steps])
