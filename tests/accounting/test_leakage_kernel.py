"""The compiled leakage recursion against its literal twin, house by house in plain Python."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import Calendar, OccupancyModel
from hushgrid._kernels import chains as kernel
from hushgrid.accounting.temporal import Leakage, in_logs, temporal_leakage

# Each step rounds a few times, to 1e-16 of a factor above 1; 40 steps stay far below this.
CLOSE = 1e-11


def carried(a: float, rows: list[list[float]]) -> float:
    """L(a) as docs/proofs/temporal.md writes it; a zero is a zero."""
    grown = math.expm1(a)
    return max(
        math.log((max(column) * grown + 1) / (min(column) * grown + 1))
        for column in zip(*rows, strict=True)
    )


def twin(
    initial: list[float], steps: list[list[list[float]]], e: list[float]
) -> tuple[list[float], list[float], list[float]]:
    """One house: exact chances as fractions, so that a zero is a zero and nothing underflows."""
    law = [Fraction(p) for p in initial]
    laws = [law]
    for a in steps:
        law = [sum(law[s] * Fraction(a[s][k]) for s in (0, 1)) for k in (0, 1)]
        laws.append(law)
    uncertain = [min(law) > 0 for law in laws]
    own = [x if open_ else 0.0 for x, open_ in zip(e, uncertain, strict=True)]
    backward, forward = [own[0]], [own[-1]]
    for t, a in enumerate(steps, start=1):
        gain = 0.0
        if uncertain[t]:
            before, after = laws[t - 1], laws[t]
            b = [[float(before[s] * Fraction(a[s][k]) / after[k]) for s in (0, 1)] for k in (0, 1)]
            gain = carried(backward[-1], b)
        backward.append(own[t] + gain)
    for t in range(len(e) - 2, -1, -1):
        forward.append(own[t] + (carried(forward[-1], steps[t]) if uncertain[t] else 0.0))
    forward.reverse()
    total = [b + f - x for b, f, x in zip(backward, forward, own, strict=True)]
    return backward, forward, total


chances = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 1e-3]), st.floats(0, 1, width=32))


@st.composite
def zones(draw: st.DrawFn) -> tuple[OccupancyModel, np.ndarray]:
    """A few chains with exact zeros, houses that share them, slots that repeat; (T, houses)."""
    slots, chains = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    horizon = draw(st.integers(1, 12))
    firsts = np.array(draw(st.lists(chances, min_size=chains, max_size=chains)))
    n = slots * chains * 2
    rows = np.array(draw(st.lists(chances, min_size=n, max_size=n))).reshape(slots, chains, 2)
    kinds = draw(st.lists(st.integers(0, chains - 1), min_size=1, max_size=4))
    losses = draw(
        st.lists(
            st.one_of(st.just(0.0), st.floats(0, 3)),
            min_size=horizon * len(kinds),
            max_size=horizon * len(kinds),
        )
    )
    theta = OccupancyModel.factored(
        np.stack([firsts, 1 - firsts], axis=1),
        np.stack([rows, 1 - rows], axis=3),
        calendar=Calendar(draw(st.permutations(range(slots)))),
        chain_of=kinds,
    )
    return theta, np.array(losses).reshape(horizon, len(kinds))


def steps_of(theta: OccupancyModel, house: int, horizon: int) -> list[list[list[float]]]:
    (piece,) = theta.chains
    c = piece.chain_of[house]
    return [piece.transition[theta.calendar.slot(t), c].tolist() for t in range(2, horizon + 1)]


def assert_equals_twin(found: Leakage, theta: OccupancyModel, e: np.ndarray) -> None:
    for i in range(theta.n_houses):
        first = theta.chains[0].initial[theta.chains[0].chain_of[i]].tolist()
        literal = twin(first, steps_of(theta, i, len(e)), e[:, i].tolist())
        ours = (found.backward[:, i], found.forward[:, i], found.total[:, i])
        for mine, wanted in zip(ours, literal, strict=True):
            assert mine == pytest.approx(wanted, abs=CLOSE, rel=CLOSE)


@given(zones())
def test_equals_its_literal_twin(zone: tuple[OccupancyModel, np.ndarray]) -> None:
    theta, e = zone
    assert_equals_twin(temporal_leakage(theta, e), theta, e)


@given(zones())
def test_recursion_in_logs_equals_the_twin_too(zone: tuple[OccupancyModel, np.ndarray]) -> None:
    theta, e = zone
    assert_equals_twin(in_logs(theta, 0, e, theta.chains[0].chain_of), theta, e)


@pytest.mark.parametrize(("n", "chunk"), [(1, 1), (255, 1 << 20), (257, 1 << 20), (700, 1000)])
def test_lanes_and_chunks_leave_no_seam(
    n: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_CHUNK", chunk)
    rng = np.random.default_rng([7, n])
    first, rows = rng.uniform(size=(n, 1)), rng.uniform(size=(3, n, 2, 1))
    rows[rng.uniform(size=rows.shape) < 0.2] = 0.0
    theta = OccupancyModel.factored(
        np.concatenate([first, 1 - first], axis=1),
        np.concatenate([rows, 1 - rows], axis=3),
        calendar=Calendar([0, 1, 1, 2]),
    )
    e = rng.uniform(0, 1, (9, n))
    assert_equals_twin(temporal_leakage(theta, e), theta, e)


def test_one_loss_for_all_equals_a_column_for_each() -> None:
    rng = np.random.default_rng(8)
    rows = rng.dirichlet([1, 1], (2, 5, 2))
    e, kinds = rng.uniform(0, 1, 7), rng.integers(0, 5, 11)
    shuffled = OccupancyModel.factored(
        rng.dirichlet([1, 1], 5), rows, calendar=Calendar([0, 1]), chain_of=kinds
    )
    blocks = OccupancyModel.blocked(
        [[2], [0], [1]],
        rng.dirichlet([1, 1], 3),
        rows[:, :3].swapaxes(0, 1),
        calendar=Calendar([0, 1]),
    )
    for theta in (shuffled, blocks):
        alike = temporal_leakage(theta, e)
        own = temporal_leakage(theta, np.tile(e[:, None], (1, theta.n_houses)))
        assert np.array_equal(alike.total, own.total)
    order = [2, 0, 1]
    first = blocks.chains[0]
    for b, house in enumerate(order):
        literal = twin(
            first.initial[b].tolist(),
            [first.transition[t % 2, b].tolist() for t in range(1, 7)],
            e.tolist(),
        )
        assert temporal_leakage(blocks, e).total[:, house] == pytest.approx(literal[2], abs=CLOSE)


def test_leakage_too_large_for_a_factor() -> None:
    """e^800 is no float: identity adds every loss up, one mixing house beside it does not."""
    theta = OccupancyModel.factored([[0.5, 0.5]] * 2, [[np.eye(2), [[0.9, 0.1], [0.2, 0.8]]]])
    found = temporal_leakage(theta, np.ones(800))
    assert found.total[:, 0] == pytest.approx(np.full(800, 800.0), rel=CLOSE)
    assert found.backward[:, 0] == pytest.approx(np.arange(1, 801), rel=CLOSE)
    assert found.total[:, 1].max() < 10
    one = temporal_leakage(theta, [0.1, 1000.0, 0.1])
    assert one.total[1] == pytest.approx(1000 + np.array([0.2, 0.0]), rel=1e-2)


# Chances that a float cannot hold after some steps, though every state stays possible.
FADING = [
    ([0.5, 0.5], [[1.0, 0.0], [2.0**-100, 1 - 2.0**-100]]),
    ([0.5, 0.5], [[1.0, 0.0], [1 - 2.0**-50, 2.0**-50]]),
    ([2.0**-300, 1.0], [[1 - 2.0**-52, 2.0**-52], [2.0**-600, 1.0]]),
    ([0.45, 0.55], [[1.0, 3 * 2.0**-1074], [1.0, 2.0**-1074]]),  # all digits lost, and not to 0
]


@pytest.mark.parametrize(("first", "a"), FADING)
def test_a_chance_that_underflows_is_not_impossible(
    first: list[float], a: list[list[float]]
) -> None:
    """Never below the exact figure, and never above the sum of all losses."""
    theta = OccupancyModel.factored([first], [[a]])
    e = np.full((30, 1), 0.5)
    found = temporal_leakage(theta, e)
    exact = twin(first, [a] * 29, e[:, 0].tolist())
    parts = (found.backward, found.forward, found.total)
    for mine, wanted in zip(parts, exact, strict=True):
        assert (mine[:, 0] >= np.array(wanted) - CLOSE).all()
    assert (found.total <= 15 + CLOSE).all()
    assert found.backward[-1, 0] >= 0.5


def test_certain_houses_beside_uncertain_ones() -> None:
    """Booleans, not chances: every pattern of zeros in one zone."""
    corners = [0.0, 0.5, 1.0]
    patterns = list(product(corners, repeat=3))
    first = np.array([[p, 1 - p] for p, _, _ in patterns])
    rows = np.array([[[[x, 1 - x], [y, 1 - y]] for _, x, y in patterns]])
    theta = OccupancyModel.factored(first, rows)
    e = np.random.default_rng(9).uniform(0.1, 1, (10, len(patterns)))
    assert_equals_twin(temporal_leakage(theta, e), theta, e)
