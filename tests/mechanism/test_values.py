"""States, schedulers and exposures are values: what they keep of earlier answers cannot be seen."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from hushgrid import (
    Calendar,
    Consumption,
    Elasticity,
    Naive,
    OccupancyModel,
    Policy,
    SimulatedNoise,
    State,
    Tariff,
    TrustCalibrator,
    Uniform,
    Zone,
    init,
    step,
)
from hushgrid.mechanism.scheduler import Scheduler
from hushgrid.model.zone import tally

READINGS = [400, 0, 900, 1200]
POLICIES = {
    "even": Policy(0.5, horizon=6),
    "trusting": Policy(0.5, horizon=6, eta=0.2, publish="estimate"),
    "clamped": Policy(0.5, horizon=6, clamp=(700,)),
    "one by one": Policy(0.5, horizon=6, blocks="minimal", models="paper"),
}


def started(policy: Policy, *, reacts: bool = False) -> State:
    """The same terms, every part made anew."""
    moves = [[[[0.9, 0.1], [0.2, 0.8]]], [[[0.5, 0.5], [0.6, 0.4]]]]
    thetas = [
        OccupancyModel.factored(
            [[p, 1 - p]], moves, calendar=Calendar([0, 0, 1]), chain_of=[0] * 4, name=f"theta {p}"
        )
        for p in (0.5, 0.999)
    ]
    f = Consumption.by_class(
        absent=[Uniform(500)],
        present=[Uniform(1500)],
        class_of=[0] * 4,
        elasticity=Elasticity(62.5, 0.2) if reacts else None,
    )
    return init(Zone("elm", [1500] * 4), Tariff(1.0, 62.5), thetas, f, policy)


def played(state: State, steps: int = 6, seed: int = 5) -> list[object]:
    """Releases and states of a day."""
    noise, found = SimulatedNoise(seed), list[object]()
    for _ in range(steps):
        release, state = step(state, tally(READINGS, state.zone.bound), noise)
        found += [release, state]
    return found


@pytest.mark.parametrize("reacts", [False, True])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_state_is_a_value(policy: Policy, reacts: bool) -> None:
    """Equal, hashed alike and the same after pickling, whatever was computed before."""
    state, other = started(policy, reacts=reacts), started(policy, reacts=reacts)
    whole = played(state)
    assert state == other
    assert hash(state) == hash(other)
    assert played(state) == whole  # a second time, from the same state
    assert played(other) == whole
    later = whole[5]
    again = pickle.loads(pickle.dumps(later))
    assert again == later
    assert hash(again) == hash(later)
    rates = tuple(again.rates) * 2
    assert again.scheduler.at(6, rates).scale == state.scheduler.at(6, rates).scale
    assert played(again, 3, seed=8) == played(later, 3, seed=8)
    assert later != whole[3]
    assert state != replace(state, policy=replace(policy, epsilon=3.0))


def test_answers_do_not_depend_on_the_order_of_questions() -> None:
    for name, policy in POLICIES.items():
        rising, falling = started(policy).scheduler, started(policy).scheduler
        last = [falling.at(t).scale for t in range(6, 0, -1)]
        assert [rising.at(t).scale for t in range(1, 7)] == last[::-1], name


def test_equal_terms_are_equal_values() -> None:
    one, two = started(POLICIES["even"]), started(POLICIES["even"])
    parts = (one.scheduler.made_from()[0].made_from(), two.scheduler.made_from()[0].made_from())
    assert parts[0] == parts[1]
    assert Zone("a", [1]) != Zone("a", [2])
    assert TrustCalibrator() == TrustCalibrator()
    assert Scheduler(one.scheduler.made_from()[0], one.policy, Naive()) != one.scheduler
