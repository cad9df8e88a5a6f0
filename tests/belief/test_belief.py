"""Chains in any order: as many as houses, and yet not the houses' own order."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from hushgrid import Consumption, OccupancyModel, Uniform
from hushgrid.belief.filter import (
    at_home,
    condition,
    each_block,
    expected_readings,
    load_moments,
    marginals,
    predict,
    prior,
)
from hushgrid.errors import ModelError

OF = [2, 0, 1]  # the chain of each house
FIRST = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
MOVES = np.array([[[0.7, 0.3], [0.4, 0.6]], [[0.8, 0.2], [0.1, 0.9]], [[0.5, 0.5], [0.3, 0.7]]])
MIXED = OccupancyModel.factored(FIRST, MOVES[None], chain_of=OF)
PLAIN = OccupancyModel.factored(FIRST[OF], MOVES[None][:, OF])
F = Consumption.by_class(
    absent=[Uniform(4), Uniform(6), Uniform(8)],
    present=[Uniform(10), Uniform(20), Uniform(30)],
)


def test_chains_in_another_order_are_the_houses_own() -> None:
    assert MIXED.n_houses == len(FIRST) == 3
    for one, other in islice(zip(marginals(MIXED), marginals(PLAIN), strict=False), 4):
        home = at_home(one, MIXED)
        assert home == pytest.approx(at_home(other, PLAIN))
        if one.t == 1:
            assert home == pytest.approx(FIRST[OF, 1])
        readings = [expected_readings(b, m, F) for b, m in ((one, MIXED), (other, PLAIN))]
        assert readings[0] == pytest.approx(readings[1])
        moments = [load_moments(b, m, F) for b, m in ((one, MIXED), (other, PLAIN))]
        assert moments[0] == pytest.approx(moments[1])
        assert moments[0].mean == pytest.approx(readings[0].sum())


def test_blocks_that_part_company_go_on_by_their_own_chains() -> None:
    seen = condition(
        each_block(prior(MIXED), MIXED), [np.array([[1.0, 2.0], [1.0, 1.0], [3.0, 1.0]])]
    )
    later = predict(seen, MIXED)
    for house, chain in enumerate(OF):
        weight = FIRST[chain] * [[1, 2], [1, 1], [3, 1]][house]
        wanted = weight / weight.sum() @ MOVES[chain]
        assert later.laws[0][house] == pytest.approx(wanted)
    assert each_block(later, MIXED).laws[0] == pytest.approx(later.laws[0]), (
        "they are apart already"
    )


def test_likelihoods_of_another_number_of_rows_are_refused() -> None:
    one = OccupancyModel.factored([[0.5, 0.5]], MOVES[None][:, :1], chain_of=[0, 0])
    with pytest.raises(ModelError, match="2 rows but the belief has 1"):
        condition(prior(one), [np.ones((2, 2))])
