"""Schedules: a new one is one class, and every file key leads to one and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Even,
    Exact,
    Knowledge,
    OccupancyModel,
    PerStep,
    Policy,
    Schedule,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    step,
    watch,
)
from hushgrid.files.zone_file import PolicyTable
from hushgrid.mechanism.release import replay
from hushgrid.planning.planner import examine
from hushgrid.report.promise import promise_sentence

STEPS = 4
THETA = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0, 0])
F = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(10)], class_of=[0, 0])
WORLD = (Zone("z", [10, 10]), Tariff(1.0, 62.5), (THETA,), F)


@dataclass(frozen=True, slots=True)
class Fading(Schedule):
    """A schedule of somebody else's: each step may lose a share of what the one before may."""

    share: float
    words = " fading"
    assumption = "Nobody asks for more."

    @property
    def terms(self) -> Mapping[str, Any]:
        return {"fading": self.share}

    def epsilon_at(self, epsilon: float, t: int) -> float:
        return epsilon * self.share ** (t - 1)


def test_a_new_schedule_is_one_class() -> None:
    policy = Policy(1.0, horizon=STEPS, schedule=Fading(0.5))
    first = state = init(*WORLD, policy)
    noise, made = SimulatedNoise(1), []
    for t in range(1, STEPS + 1):
        release, state = step(state, 7, noise)
        assert release.epsilon == pytest.approx(0.5 ** (t - 1)), "the noise follows"
        made.append(release)
    assert (release.noise, release.rule) == ("laplace", "eta=1 block union fading")
    again = first
    for release in made:
        again = replay(again, release)
    assert again.rates == state.rates
    digests = [init(*WORLD, Policy(1.0, STEPS, schedule=Fading(s))).digest for s in (0.5, 0.25)]
    assert len({*digests, init(*WORLD, Policy(1.0, STEPS)).digest}) == 3, "its terms are named"
    found = examine(*WORLD, policy)
    assert found.epsilon_t == (1.0, 0.5, 0.25, 0.125)
    assert "Nobody asks for more." in found.assumptions
    assert "at most a factor of 2.72" in promise_sentence(policy, "step", 1.0)
    knowledge = Knowledge(WORLD[0], WORLD[2], F)
    assert np.isfinite(watch(Exact(knowledge), made).home).all()


@pytest.mark.parametrize(
    ("keys", "schedule"),
    [
        ({}, Even()),
        ({"epsilon_t": [1.0, 0.5, 0.5, 0.2]}, PerStep((1.0, 0.5, 0.5, 0.2))),
    ],
)
def test_keys_of_a_file(keys: dict[str, Any], schedule: Schedule) -> None:
    policy = PolicyTable(1.0, horizon=STEPS, **keys).policy
    assert type(policy) is Policy
    assert policy == Policy(1.0, horizon=STEPS, schedule=schedule)
    given = {key for key, value in schedule.terms.items() if value}
    assert given == {key for key in keys if keys[key]}
    first = policy.first(2)
    assert (first.horizon, len(first.schedule.epsilons)) == (2, 2 if schedule.epsilons else 0)
    assert [first.epsilon_at(t) for t in (1, 2)] == [policy.epsilon_at(t) for t in (1, 2)]
