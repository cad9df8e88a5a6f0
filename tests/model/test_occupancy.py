"""Occupancy models: one type for factored, blocked and joint."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from hushgrid import Calendar, OccupancyModel, possible_states
from tests import oracle
from tests.strategies import random_model

E = np.array([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize("seed", range(30))
def test_possible_states_are_those_with_a_prior(seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    model, joint = random_model(rng, 4, 8, largest_block=3, zeros=0.4)
    prior = dict(joint.initial)
    for t, now in enumerate(islice(possible_states(model), 8), start=1):
        if t > 1:
            prior = oracle.predict(prior, joint, t)
        states = {m for m, weight in prior.items() if weight}
        for piece, possible in zip(model.chains, now, strict=True):
            for houses, chain in zip(piece.members.tolist(), piece.chain_of, strict=True):
                seen = {int("".join(str(m[h]) for h in houses), 2) for m in states}
                assert set(np.flatnonzero(possible[chain]).tolist()) == seen


def test_a_joint_model_is_one_block() -> None:
    a = np.kron(E, E)[None]
    joint = OccupancyModel.joint(np.full(4, 0.25), a)
    assert joint.n_houses == 2
    assert joint.chains[0].size == 2


def test_weekday_and_weekend() -> None:
    week = Calendar.week(weekday=[0, 1], weekend=[2, 3])
    weekend_only = [[np.eye(2)], [np.eye(2)], [E], [E]]
    theta = OccupancyModel.factored([[1.0, 0.0]], weekend_only, calendar=week)
    open_at = [bool(p[0][0, 1]) for p in islice(possible_states(theta), 14)]
    assert open_at == [False] * 10 + [True] * 4  # Saturday is day 6: steps 11 and on
    later = theta.starting(10)
    assert later.calendar.slot(1) == 2
    assert [bool(p[0][0, 1]) for p in islice(possible_states(later), 2)] == [False, True]


def test_digest_names_the_numbers_and_nothing_else() -> None:
    one = OccupancyModel.factored([[0.5, 0.5]], [[E]], name="a")
    two = OccupancyModel.factored([[0.5, 0.5]], [[E]], name="b")
    other = OccupancyModel.factored([[0.5, 0.5]], [[E + [[1e-12, -1e-12]] * 2]])
    assert one.digest == two.digest != other.digest
    assert one.digest != OccupancyModel.factored([[0.5, 0.5]], [[E]], chain_of=[0, 0]).digest


def test_models_cannot_be_changed() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[E]])
    with pytest.raises(ValueError, match="read-only"):
        theta.chains[0].initial[0, 0] = 1
    with pytest.raises(AttributeError):
        theta.name = "x"  # type: ignore[misc]
