"""Random small zones in plain numbers, told to the package and to the oracle apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushgrid import (
    Calendar,
    Consumption,
    Elasticity,
    Gamma,
    Histogram,
    Knowledge,
    Law,
    OccupancyModel,
    Release,
    Scenario,
    SimulatedNoise,
    Tariff,
    TruncatedNormal,
    Uniform,
    Zone,
)
from hushgrid.model.world import World
from tests.adversary import oracle

LAPLACE, GAUSSIAN = "laplace", "gaussian"
RELEASE = Release(
    zone="z", t=1, applies_from=2, load_hat=0, put_back=0.0, estimate=None, rate=1.0, scale=1.0,
    epsilon=1.0, epsilon_any=1.0, rule="eta=1 block union", digest="d",
    simulated=True, noise="laplace",
)  # fmt: skip


def release(t: int, load_hat: int, scale: float, **more: object) -> Release:
    return replace(
        RELEASE,
        **{"t": t, "applies_from": t + 1, "load_hat": load_hat, "scale": scale, **more},  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Small:
    """A few houses in blocks; slot t - 1 for step t."""

    bounds: list[int]
    blocks: list[tuple[int, ...]]
    initial: list[list[float]]
    moves: list[list[list[list[float]]]]  # of each step from the second, each block
    laws: list[list[tuple[list[float], list[float]]]]  # of each step and house
    elasticity: Elasticity | None = None

    @property
    def horizon(self) -> int:
        return len(self.laws)

    def model(self) -> OccupancyModel:
        calendar = Calendar(range(self.horizon))
        unused = [np.eye(len(row)) for row in self.initial]
        tables = [
            np.array([unused[b], *(step[b] for step in self.moves)])
            for b in range(len(self.blocks))
        ]
        return OccupancyModel.blocked(self.blocks, self.initial, tables, calendar=calendar)

    def knowledge(self, clamp: tuple[int, ...] = ()) -> Knowledge:
        n = len(self.bounds)
        flat = [Histogram(law) for step in self.laws for pair in step for law in pair]
        numbers = np.arange(len(flat), dtype=np.int32).reshape(self.horizon, n, 2)
        f = Consumption(
            tuple(flat), numbers[:, :, 0], numbers[:, :, 1], np.arange(n, dtype=np.int32),
            Calendar(range(self.horizon)), self.elasticity,
        )  # fmt: skip
        return Knowledge(Zone("z", self.bounds), [self.model()], f, clamp)

    def by_paths(self, releases: list[Release], clamp: tuple[int, ...] = ()) -> oracle.Found:
        seen, rates = [], {r.t: r.rate for r in releases}
        known = {r.t: r for r in releases}
        cuts = [min(u, c) for u, c in zip(self.bounds, clamp or self.bounds, strict=True)]
        rate = None
        for t in range(1, self.horizon + 1):
            factor = 1.0
            if self.elasticity and rate is not None:
                factor = min(
                    max((rate / self.elasticity.reference) ** -self.elasticity.exponent,
                        self.elasticity.low), self.elasticity.high,
                )  # fmt: skip
            rate = rates.get(t, rate)
            pairs = [
                tuple(
                    oracle.scaled(f, factor, c) if self.elasticity else oracle.cut(f, c)
                    for f in pair
                )
                for pair, c in zip(self.laws[t - 1], cuts, strict=True)
            ]
            if t not in known:
                one = oracle.joint(self.blocks, self.initial)
                seen.append(dict.fromkeys(one, 1.0))
                continue
            it = known[t]
            noise = oracle.exactly
            if it.scale:
                kind = oracle.gaussian if it.noise == GAUSSIAN else oracle.laplace
                noise = kind(it.scale)
            seen.append(oracle.likelihoods(pairs, it.load_hat, noise))  # type: ignore[arg-type]
        return oracle.enumerate_paths(
            oracle.joint(self.blocks, self.initial),
            [oracle.joint_moves(self.blocks, step) for step in self.moves],
            seen,
        )


def _row(rng: np.random.Generator, k: int, zeros: float) -> list[float]:
    row = rng.dirichlet(np.full(k, 0.8)) + 1e-3
    alive = rng.random(k) >= zeros
    alive[rng.integers(k)] = True
    row = np.where(alive, row, 0.0)
    return [float(p) for p in row / row.sum()]


def _law(rng: np.random.Generator, u: int) -> list[float]:
    weights = rng.dirichlet(np.full(u + 1, 0.5)) + 1e-4
    return [float(p) for p in weights / weights.sum()]


def small(
    rng: np.random.Generator,
    blocks: list[tuple[int, ...]],
    horizon: int,
    *,
    zeros: float = 0.0,
    most: int = 5,
    elasticity: Elasticity | None = None,
) -> Small:
    n = sum(map(len, blocks))
    bounds = [int(u) for u in rng.integers(1, most + 1, n)]
    return Small(
        bounds,
        blocks,
        [_row(rng, 2 ** len(b), zeros) for b in blocks],
        [
            [[_row(rng, 2 ** len(b), zeros) for _ in range(2 ** len(b))] for b in blocks]
            for _ in range(horizon - 1)
        ],
        [[(_law(rng, u), _law(rng, u)) for u in bounds] for _ in range(horizon)],
        elasticity,
    )


@dataclass(frozen=True)
class Day:
    """A simulated day of a larger zone: what she knows, what was published, who was home."""

    knowledge: Knowledge
    releases: list[Release]
    occupancy: NDArray[np.uint8]
    readings: NDArray[np.int32]


def play(
    zone: Zone, models: list[OccupancyModel], f: Consumption, scale: float, horizon: int, seed: int
) -> Day:
    world = World(Scenario(zone, Tariff(1.0, 62.5), models, f), (seed,))
    noise = SimulatedNoise(seed)
    releases, home, readings = [], [], []
    for t in range(1, horizon + 1):
        load = world.step([])
        releases.append(release(t, load + noise.draw(scale), scale))
        home.append(world.occupancy.copy())
        readings.append(world.readings.copy())
    return Day(Knowledge(zone, models, f), releases, np.array(home), np.array(readings))


def mixed_day(seed: int, horizon: int = 48) -> Day:
    """6 to 10 houses of different kinds; the noise is 0.5 to 1.5 times the largest bound."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 11))
    bounds = rng.integers(20, 61, n)
    pairs = [_pair(rng, int(u)) for u in bounds]
    f = Consumption.by_class(absent=[p[0] for p in pairs], present=[p[1] for p in pairs])
    leave, come = rng.uniform(0.01, 0.15, (2, 4, n))
    a = np.stack([np.stack([1 - come, come], -1), np.stack([leave, 1 - leave], -1)], -2)
    theta = OccupancyModel.factored(
        rng.dirichlet([2, 2], n), a, calendar=Calendar(np.arange(horizon) * 4 // horizon)
    )
    scale = float(rng.uniform(0.5, 1.5) * bounds.max()) if seed % 2 else 0.5 * float(bounds.max())
    return play(Zone("z", bounds), [theta], f, scale, horizon, seed)


def _pair(rng: np.random.Generator, u: int) -> tuple[Law, Law]:
    kind = rng.integers(4)
    if kind == 0:
        return Uniform(u // int(rng.integers(2, 6))), Uniform(u)
    if kind == 1:
        return Gamma(1.5, u / 12, u), Gamma(2.5, u / 8, u)
    if kind == 2:
        return TruncatedNormal(u / 5, u / 10, u), TruncatedNormal(u / 2, u / 6, u)
    rough = rng.dirichlet(np.full(u + 1, 0.3), 2)
    return Histogram(rough[0] * np.exp(-3 * np.arange(u + 1) / u)), Histogram(rough[1])
