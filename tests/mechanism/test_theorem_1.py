"""Theorem 1 for the whole mechanism, by enumeration of small integer zones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hushgrid import Consumption, Histogram, OccupancyModel, Policy, Tariff, Zone, init
from hushgrid.mechanism.noise import pmf
from tests import oracle
from tests.strategies import random_row

EPSILONS = (0.3, 1.0)
TARIFF = Tariff(alpha=1.0, beta=62.5)


def random_zone(
    rng: np.random.Generator, *, ordered: bool
) -> tuple[Zone, OccupancyModel, Consumption]:
    n = int(rng.integers(1, 4))
    bounds = rng.integers(1, 7, n)
    laws: list[list[Histogram]] = [[], []]
    for u in bounds.tolist():
        absent = rng.random(u + 1) + 0.02
        if ordered:  # likelihood ratio rising: the worst output lies in the tails
            present = absent * np.exp(np.cumsum(rng.random(u + 1)))
        else:
            present = rng.random(u + 1) * (rng.random(u + 1) < 0.7) + 1e-3
        laws[0].append(Histogram(absent))
        laws[1].append(Histogram(present))
    rows = [[random_row(rng, 2, 0.3) for _ in range(2)] for _ in range(n)]
    initial = [random_row(rng, 2, 0.3) for _ in range(n)]
    theta = OccupancyModel.factored(np.array(initial) / 64, np.array([rows]) / 64)
    return Zone("z", bounds), theta, Consumption.by_class(absent=laws[0], present=laws[1])


def log_ratios(zone: Zone, f: Consumption, house: int, scale: float) -> list[float]:
    """|log Pr[output | S] - log Pr[output | S']| at its worst, for S, S' that differ in `house`."""
    found = []
    for state in product((0, 1), repeat=zone.n_houses):
        if state[house] == 1:
            continue
        other = tuple(1 if h == house else s for h, s in enumerate(state))
        laws = [
            [f.law(1, h, occupied=bool(s)).pmf for h, s in enumerate(each)]
            for each in (state, other)
        ]
        reach = int(zone.bound.sum())
        found.append(oracle.worst_log_ratio(laws[0], laws[1], scale, -8, reach + 8))
    return found


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.sampled
def test_every_protected_pair_is_within_epsilon(seed: int, ordered: bool) -> None:
    rng = np.random.default_rng([1, seed, ordered])
    zone, theta, f = random_zone(rng, ordered=ordered)
    for epsilon, eta in product(EPSILONS, (0.0, 0.2, 1.0)):
        policy = Policy(epsilon, horizon=4, eta=eta)
        scheduler = init(zone, TARIFF, [theta], f, policy).scheduler
        for t in range(1, 5):
            calibration = scheduler.at(t)
            worst = {
                h: max(log_ratios(zone, f, h, calibration.scale))
                for h in np.flatnonzero(calibration.protected.mask()).tolist()
            }
            assert max(worst.values()) <= epsilon + 1e-9
            if eta == 0 and ordered and calibration.scale > policy.min_scale:
                # tight: the house that set the scale loses exactly epsilon, whatever the others do
                assert calibration.house is not None
                assert worst[calibration.house] == pytest.approx(epsilon, abs=1e-9)


def test_the_enumeration_uses_the_mechanisms_own_noise() -> None:
    k = np.arange(-40, 41)
    assert pmf(k, 3.7) == pytest.approx(oracle.noise_pmf(3.7, 40), rel=1e-12)
