"""Many releases together: golden values, and never below the true curve."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Histogram,
    OccupancyModel,
    Policy,
    PolicyError,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    step,
)
from hushgrid._numbers import sum_up
from hushgrid.accounting.composition import ReleaseAccount, compose, delta_of
from hushgrid.accounting.events import Event, GaussianEvent, Laplace, Laws, Pure, loss_distribution
from tests import oracle

E = [[0.9, 0.1], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("event", "loose", "tight"),
    [
        (Pure(0.5), 32.386, 37.153),
        (Laplace(1000, 2000.0), 29.62, 34.32),
    ],
)
def test_golden_days(event: Event, loose: float, tight: float) -> None:
    assert compose([event] * 96) == 48
    assert compose([event] * 96, 1e-6) == pytest.approx(loose, rel=1e-3)
    assert compose([event] * 96, 1e-9) == pytest.approx(tight, rel=1e-3)


def test_both_directions_cost_at_least_the_worse_constant_one() -> None:
    """21.89 and 26.11 for the worse constant direction; either direction at will costs more."""
    event = Laws(Uniform(500), Uniform(1000), 601.2191)
    assert 21.89 <= compose([event] * 96, 1e-6) < 29.62
    assert 26.11 <= compose([event] * 96, 1e-9) < 34.32


def test_golden_gaussian_day() -> None:
    assert compose([GaussianEvent(100, 4140.0)] * 96, 1e-6) == pytest.approx(1.0, abs=2e-3)
    assert GaussianEvent(100, 4140.0).pure == math.inf
    assert compose([Laplace(100, 5750 / math.sqrt(2))] * 96, 1e-6) == pytest.approx(1.0, abs=5e-3)


def true_delta(laws: list[Any], flips: tuple[int, ...], eps: float) -> float:
    """delta at eps of a trajectory that flips one way or the other at each step, by enumeration."""
    p, q = np.ones(1), np.ones(1)
    for (f0, f1, b), flip in zip(laws, flips, strict=True):
        sides = [np.array(oracle.output_law([f], b, -30, len(f) + 29)) for f in (f0, f1)]
        p, q = np.outer(p, sides[flip]).ravel(), np.outer(q, sides[1 - flip]).ravel()
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled
def test_never_below_the_true_curve(seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    horizon = int(rng.integers(1, 4))
    laws = []
    for _ in range(horizon):
        u = int(rng.integers(1, 5))
        f = [rng.dirichlet(np.ones(u + 1) * 0.6) for _ in range(2)]
        laws.append((f[0], f[1], float(rng.uniform(0.8, 2.5))))
    events = [Laws(Histogram(f0), Histogram(f1), b) for f0, f1, b in laws]
    blind = [Laplace(len(f0) - 1, b) for f0, _, b in laws]
    generic = [event.pure for event in events]
    for eps in (0.0, 0.2, 0.7):
        truth = max(true_delta(laws, flips, eps) for flips in product((0, 1), repeat=horizon))
        for claimed in (events, blind, generic):
            assert truth <= delta_of(claimed, eps) + 1e-9


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_two_and_two_equals_one_after_the_other(steps: int) -> None:
    events: list[Event] = [Laplace(10, 20.0 + t) for t in range(steps)]
    total = loss_distribution(events[0])
    for event in events[1:]:
        total = total.compose(loss_distribution(event))
    # the same sums in another order: only the rounding of the convolutions differs
    expected = min(total.get_epsilon_for_delta(1e-5), sum(event.pure for event in events))
    assert compose(events, 1e-5) == pytest.approx(expected, abs=1e-9)
    assert compose(events[::-1], 1e-5) == pytest.approx(compose(events, 1e-5), abs=1e-9)


def test_epsilon_and_delta_are_inverse() -> None:
    events = [Laplace(10, 20.0)] * 20
    assert delta_of(events, compose(events, 1e-5)) == pytest.approx(1e-5, rel=1e-3)
    assert delta_of(events, 10.0) == 0
    assert compose([]) == compose([], 1e-6) == 0


def test_sums_round_up() -> None:
    tenth = sum_up([0.1] * 10)
    assert tenth >= 1.0
    assert sum_up([0.5, 0.25]) == 0.75
    assert sum_up([1.0, 2.0**-60]) > 1.0


def zone_account(eta: float) -> tuple[ReleaseAccount, list[float]]:
    certain = [[1.0, 0.0]] * 2
    theta = OccupancyModel.factored([[0.5, 0.5], [1.0, 0.0]], [[E, certain]])
    f = Consumption.by_class(absent=[Uniform(5), Uniform(5)], present=[Uniform(10), Uniform(20)])
    state = init(Zone("z", [10, 20]), Tariff(1.0, 62.5), [theta], f, Policy(0.5, 6, eta=eta))
    account, noise, losses = ReleaseAccount(state), SimulatedNoise(1), []
    for _ in range(6):
        release, state = step(state, 8, noise)
        account = account.add(release)
        losses.append(release.epsilon)
    return account, losses


@pytest.mark.parametrize("eta", [0.0, 0.2, 1.0])
def test_accounts_are_kept_per_house(eta: float) -> None:
    account, losses = zone_account(eta)
    assert account.pure[0] == pytest.approx(sum(losses), rel=1e-9)
    assert account.pure[1] == 0  # certain all day: it costs nothing
    assert account.events(1) == []
    assert account.epsilon(0) == pytest.approx(account.pure[0], rel=1e-9)
    assert account.epsilon(0, 1e-6) <= account.epsilon(0) + 1e-2
    assert account.delta(0, account.epsilon(0) + 1e-6) == 0


def test_accounts_survive_and_refuse() -> None:
    account, _ = zone_account(0.0)
    again = ReleaseAccount.resume(account.first, account.save())
    assert again.pure.tolist() == account.pure.tolist()
    release, _ = step(account.first, 8, SimulatedNoise(1))
    with pytest.raises(PolicyError, match="step 1 but the account is before step 7"):
        account.add(release)
    other, _ = zone_account(1.0)
    with pytest.raises(PolicyError, match="digest"):
        other.add(release)
    with pytest.raises(PolicyError, match="digest"):
        ReleaseAccount.resume(other.first, account.save())


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(PolicyError, match="delta is"):
        compose([0.5], delta)


def test_an_exact_release_where_nothing_is_uncertain_costs_nothing() -> None:
    theta = OccupancyModel.factored([[1.0, 0.0]], [[np.eye(2)]])
    f = Consumption.by_class(absent=[Uniform(4)], present=[Uniform(10)])
    policy = Policy(0.5, on_empty="publish_exact")
    first = init(Zone("z", [10]), Tariff(1.0, 1.0), [theta], f, policy)
    release, _ = step(first, 3, SimulatedNoise(1))
    account = ReleaseAccount(first).add(release)
    assert release.scale == 0
    assert account.pure.tolist() == [0.0]
    assert account.epsilon(0) == 0
