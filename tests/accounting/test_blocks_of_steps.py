"""Leakage where one noise lasts a block of steps: golden values, and every output of small worlds.

The oracle writes down the law of the noise, e^(-max |n_t| / b) over the steps of a block, and sums
over all courses of occupancy; it shares no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from hushgrid import OccupancyModel, PolicyError
from hushgrid.accounting.temporal import (
    in_logs,
    temporal_leakage,
    worst_leakage,
)
from hushgrid.lab import paper
from hushgrid.model.occupancy import Calendar
from tests.accounting.block_oracle import Reading, plain, truth

E = np.array([[0.9, 0.1], [0.2, 0.8]])
THETA = OccupancyModel.factored([[0.7, 0.3]], [[E]])


def reacting(state: int, last: np.ndarray) -> np.ndarray:
    """Demand that turns round wherever the last price was high."""
    return np.where(last > 0, 1 - state, state)


GOLDEN = {
    (2, 2): [0.751770, 0.855182, 0.853244, 0.749172],
    (2, 1, 2): [0.930878, 1.106270, 1.208427, 1.104743, 0.929091],
}


@pytest.mark.parametrize("lengths", GOLDEN)
@pytest.mark.parametrize("reading", [plain, reacting])
def test_golden_blocks_are_attained(lengths: tuple[int, ...], reading: Reading) -> None:
    steps = sum(lengths)
    found = temporal_leakage(THETA, [0.5] * steps, lengths).total[:, 0]
    assert found == pytest.approx(GOLDEN[lengths], abs=1e-6)
    attained = truth([0.7, 0.3], [E] * (steps - 1), lengths, 2.0, reading)
    assert found == pytest.approx(attained, abs=1e-6)


def test_the_truth_of_random_chains_never_exceeds_the_bound() -> None:
    rng = np.random.default_rng(7)
    tight = 0
    for trial in range(60):
        lengths = [(2, 2), (1, 3), (2, 1, 1), (3, 1), (1, 2, 1), (4,)][trial % 6]
        steps = sum(lengths)
        moves = [rng.dirichlet([0.4, 0.4], 2) for _ in range(steps - 1)]
        if trial % 3 == 0:  # a structural zero
            moves[trial % len(moves)][0] = [1.0, 0.0]
        initial = rng.dirichlet([1.0, 1.0])
        if trial % 10 == 0:
            initial = np.array([1.0, 0.0])
        scale = float(rng.uniform(0.6, 3.0))
        chain = [moves[-1], *moves]  # slot t - 1 of step t; that of step 1 is not used
        theta = OccupancyModel.factored(
            [initial], [[a] for a in chain], calendar=Calendar(list(range(steps)))
        )
        bound = temporal_leakage(theta, [1 / scale] * steps, lengths).total[:, 0]
        attained = truth(initial, moves, lengths, scale, reacting if trial % 2 else plain)
        assert (np.array(attained) <= bound + 1e-9).all(), (trial, attained, bound)
        tight += int(abs(max(attained) - bound.max()) < 1e-6)
    assert tight >= 20  # the bound is no mere bound


def test_houses_that_move_together() -> None:
    """All outputs of two houses with bounds 1 and 2; the block's loss is over all pairs of states.

    The order of joint states is (h, j): 00, 01, 10, 11; readings add up.
    """
    rng = np.random.default_rng(3)
    bounds = (1, 2)

    def reading(state: int, last: np.ndarray) -> np.ndarray:
        h, j = divmod(state, 2)
        up = last > 1
        return np.where(up, 1 - h, h) * bounds[0] + np.where(up, 1 - j, j) * bounds[1]

    for trial in range(6):
        lengths = [(2, 1), (1, 2), (3,)][trial % 3]
        moves = [rng.dirichlet([0.5] * 4, 4) for _ in range(2)]
        initial = rng.dirichlet([1.0] * 4)
        theta = OccupancyModel.joint(initial, [moves[0], *moves], calendar=Calendar([0, 1, 2]))
        found = temporal_leakage(theta, [3 / 4.0] * 3, lengths).total
        for house in (0, 1):
            attained = truth(
                initial, moves, lengths, 4.0, reading, 3, lambda s, h=house: (s >> (1 - h)) & 1
            )
            assert (np.array(attained) <= found[:, house] + 1e-9).all()


def test_kernel_and_logs_agree() -> None:
    rng = np.random.default_rng(5)
    slots, chains = 6, 40
    a = rng.dirichlet([0.5, 0.5], (slots, chains, 2))
    a[2, :10, 0] = [1.0, 0.0]
    a[3, :5] = np.eye(2)
    initial = rng.dirichlet([1.0, 1.0], chains)
    initial[::7] = [1.0, 0.0]
    theta = OccupancyModel.factored(initial, a, calendar=Calendar(list(range(slots))))
    lengths = [3, 1, 5, 2, 7, 6]
    e = np.repeat(rng.uniform(0, 2, (6, chains)), lengths, axis=0)
    one = temporal_leakage(theta, e, lengths)
    other = in_logs(theta, 0, e, theta.chains[0].chain_of, lengths)
    for part in ("backward", "forward", "total"):
        assert getattr(one, part) == pytest.approx(getattr(other, part), abs=1e-9)


def test_blocks_of_one_step_are_independent_noise() -> None:
    model = paper.scenario(0.02, 3, n=20).models[0]
    e = np.random.default_rng(1).uniform(0.01, 0.2, (96, 20))
    assert temporal_leakage(model, e, [1] * 96).total == pytest.approx(
        temporal_leakage(model, e).total, abs=1e-9
    )


def _largest(model: OccupancyModel, length: int, days: int = 1) -> float:
    """The largest constant loss of blocks with max TPL = 1, by bisection."""
    low, high, lengths = 0.0, 2.0, [length] * (days * 96 // length)
    for _ in range(40):
        e = (low + high) / 2
        held = worst_leakage(model, [e] * (96 * days), lengths=lengths).total <= 1
        low, high = (e, high) if held else (low, e)
    return low


@pytest.mark.parametrize(
    ("length", "loss", "deviation"),
    [(1, 0.0376, 37.61), (2, 0.0727, 27.51), (4, 0.1360, 23.25), (6, 0.1917, 22.54),
     (8, 0.2393, 22.89), (12, 0.3107, 25.07), (24, 0.4918, 29.93), (96, 1.0, 56.29)],
)  # fmt: skip
def test_golden_losses_of_the_papers_chain(length: int, loss: float, deviation: float) -> None:
    """A day on its own; the standard deviation in units of the bound, continuous limit."""
    e = _largest(paper.scenario(0.0, 1, n=1).models[0], length)
    assert e == pytest.approx(loss, abs=6e-5)
    assert np.sqrt((length + 1) * (length + 2) / 3) / e == pytest.approx(deviation, abs=6e-3)


@pytest.mark.parametrize(
    ("length", "loss", "deviation"),
    [(1, 0.0374, 37.8), (6, 0.1911, 22.6), (12, 0.3096, 25.2), (24, 0.4136, 35.6),
     (96, 0.5286, 106.5)],
)  # fmt: skip
def test_golden_losses_day_after_day(length: int, loss: float, deviation: float) -> None:
    e = _largest(paper.scenario(0.0, 1, n=1).models[0], length, days=8)
    assert loss - 6e-5 <= e < loss + 1e-4  # some of them are cut off after four digits
    assert np.sqrt((length + 1) * (length + 2) / 3) / e == pytest.approx(deviation, abs=0.1)


def test_resuming_at_the_old_loss_exceeds_the_promise() -> None:
    """A block cut in its middle with a fresh noise of the same loss for the rest of it."""
    model = paper.scenario(0.0, 1, n=1).models[0]
    worst = {2: 1.07, 4: 1.13, 6: 1.19, 8: 1.23, 12: 1.30, 24: 1.47, 96: 1.97}
    for length, most in worst.items():
        e = _largest(model, length)
        found = 0.0
        for block in range(96 // length):
            for cut in range(1, length):
                lengths = [length] * (96 // length)
                lengths[block : block + 1] = [cut, length - cut]
                found = max(found, worst_leakage(model, [e] * 96, lengths=lengths).total)
        assert found == pytest.approx(most, abs=6e-3)


def test_contradicting_models_lose_every_block_once() -> None:
    surely = [OccupancyModel.factored([law], [[np.eye(2)]]) for law in ([1.0, 0.0], [0.0, 1.0])]
    found = worst_leakage(surely, np.full((6, 1), 0.25), lengths=[3, 2, 1])
    assert found.total == pytest.approx(0.75)


def test_lengths_must_fit() -> None:
    for lengths in ([2, 1], [4, 0], [2.5, 1.5]):
        with pytest.raises(PolicyError, match=r"lengths are .* for 4 steps"):
            temporal_leakage(THETA, [0.5] * 4, lengths)


# ---- below eta = 1: what docs/proofs/blocks-of-steps.md says was tried


def _block_loss(pairs: Sequence[tuple[np.ndarray, np.ndarray]], scale: float) -> float:
    """The exact loss of one block of two steps about a house's course, over every output.

    Readings follow the laws of absent and present. Beyond the box a likelihood depends on the
    difference of the sizes of both outputs alone, which the box has too.
    """
    u = pairs[0][0].size - 1
    y = np.arange(-2 * u, 3 * u + 1)
    away = np.abs(y[:, None] - np.arange(u + 1))  # (outputs, readings)
    noise = np.exp(-np.maximum(away[:, None, :, None], away[None, :, None, :]) / scale)
    logs = [
        np.log(np.einsum("abij,i,j->ab", noise, pairs[0][s], pairs[1][r]))
        for s, r in product((0, 1), repeat=2)
    ]
    return max(float(np.abs(one - other).max()) for one in logs for other in logs)


def test_below_eta_one_a_tie_loses_more_than_one_step_and_the_farthest_quantile_bounds_it() -> None:
    """Uniform laws of 0..u/2 and 0..u, alone and with a share of 0.05 at their ends."""
    u, scale = 8, 80.0
    for eta in (0.0, 0.05):
        laws = [np.zeros(u + 1), np.zeros(u + 1)]
        laws[0][: u // 2 + 1], laws[1][:] = (1 - eta) / (u // 2 + 1), (1 - eta) / (u + 1)
        laws[0][0] += eta
        laws[1][u] += eta
        quantiles = [np.searchsorted(np.cumsum(f), np.arange(1, 2000) / 2000) for f in laws]
        farthest = float(np.abs(quantiles[1] - quantiles[0]).max())
        away = np.abs(np.arange(-3 * u, 4 * u)[:, None] - np.arange(u + 1))
        one = np.log(np.exp(-away / scale) @ np.array(laws).T)
        single = float(np.abs(one[:, 1] - one[:, 0]).max())
        both = _block_loss([(laws[0], laws[1])] * 2, scale)
        assert single * 1.2 < both <= farthest / scale < u / scale
        # the noise of two steps of independent noise, over that of a block of the same loss
        gain = math.sqrt(2) * 2 * single / (math.sqrt(4) * both)
        assert 1 < gain < 1.2
        assert gain * both / (farthest / scale) < 1  # as far as is proved: more noise, not less
