"""Random inputs for properties, and random model sets for the literal algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hushgrid import Calendar, OccupancyModel
from tests.oracle import Joint, joint_of_blocks

Pmf = NDArray[np.float64]


@st.composite
def pmfs(draw: Any, size: int) -> Pmf:
    """Any shape on 0..size-1: spikes, gaps and two humps included."""
    weights = draw(
        st.lists(
            st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=size, max_size=size
        ).filter(lambda w: sum(w) > 0)
    )
    w = np.array(weights)
    if draw(st.booleans()):  # two humps at the ends
        w[0] += w.sum()
        w[-1] += w.sum()
    return np.asarray(w / w.sum())


@st.composite
def law_pairs(draw: Any, largest: int = 12) -> tuple[Pmf, Pmf, int]:
    """(absent, present, bound)."""
    bound = draw(st.integers(1, largest))
    return draw(pmfs(bound + 1)), draw(pmfs(bound + 1)), bound


@st.composite
def ordered_pairs(draw: Any, largest: int = 12) -> tuple[Pmf, Pmf, int]:
    """Likelihood-ratio ordered: present/absent never falls."""
    bound = draw(st.integers(1, largest))
    absent = draw(
        st.lists(st.floats(0.05, 1.0), min_size=bound + 1, max_size=bound + 1).map(np.array)
    )
    rises = draw(st.lists(st.floats(0.0, 1.0), min_size=bound + 1, max_size=bound + 1))
    present = absent * np.exp(np.cumsum(rises))
    return absent / absent.sum(), present / present.sum(), bound


def random_row(rng: np.random.Generator, size: int, zeros: float) -> list[int]:
    """Whole weights that sum to 64, some of them 0: over 64 they are exact in floats too."""
    alive = rng.random(size) >= zeros
    alive[rng.integers(size)] = True
    n = int(alive.sum())
    row = np.zeros(size, int)
    row[alive] = 1 + rng.multinomial(64 - n, [1 / n] * n)
    return [int(x) for x in row]


def random_model(
    rng: np.random.Generator, n: int, horizon: int, *, largest_block: int, zeros: float
) -> tuple[OccupancyModel, Joint]:
    """The same random model for the package and for the oracle; zeros are sparse."""
    houses, blocks = list(rng.permutation(n)), []
    while houses:
        size = min(len(houses), int(rng.integers(1, largest_block + 1)))
        blocks.append(tuple(int(h) for h in houses[:size]))
        houses = houses[size:]
    states = [2 ** len(block) for block in blocks]
    initial = [random_row(rng, k, 2 * zeros) for k in states]
    steps = [
        [[random_row(rng, k, zeros) for _ in range(k)] for k in states] for _ in range(horizon)
    ]
    model = OccupancyModel.blocked(
        blocks,
        [np.array(row) / 64 for row in initial],
        [np.array([step[b] for step in steps]) / 64 for b in range(len(blocks))],
        calendar=Calendar(range(horizon)),
    )
    return model, joint_of_blocks(blocks, initial, steps[1:])
