"""Small zones to audit, and ledgers of them with a fixed key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hushgrid import (
    Consumption,
    Noise,
    OccupancyModel,
    Policy,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
)
from hushgrid.audit.evidence import RecordedRelease, RecordedWeek, Terms
from hushgrid.mechanism.digest import tariff_fields
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.release import Release, State, step
from hushgrid.model.world import World
from hushgrid.model.zone import Scenario, tally
from hushgrid.stores.ledger.records import Record
from tests import bodies
from tests.stores.ledger.ledgers import KEY, START, sealed

BEFORE = START // 900 - 1  # the step before the first one
STAY = [[0.9, 0.1], [0.2, 0.8]]


def terms(
    bounds: Sequence[int] = (1000,) * 5, *, name: str = "elm", horizon: int = 24, **more: Any
) -> Terms:
    """A zone of houses that consume up to half their bound when away, up to all of it at home."""
    policy = {key: more.pop(key) for key in list(more) if key in ("epsilon", "eta", "blocks")}
    n = len(bounds)
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], chain_of=[0] * n)
    kinds = sorted(set(bounds))
    f = Consumption.by_class(
        absent=[Uniform(u // 2) for u in kinds],
        present=[Uniform(u) for u in kinds],
        class_of=[kinds.index(u) for u in bounds],
    )
    made = {"epsilon": 0.5, "eta": 0.0, **policy}
    zone = Zone(name, list(bounds))
    return named(
        Terms(zone, Tariff(1.0, 62.5), (theta,), f, Policy(horizon=horizon, **made), **more)
    )


def named(given: Terms, steps: int | None = None) -> Terms:
    """The terms under the digest that their record has; their plan may repeat after so many
    steps."""
    return replace(given, name=recorded(given, 1, steps)["digest"])


def recorded(given: Terms, first: int, steps: int | None = None) -> dict[str, Any]:
    """The body of the record of the terms."""
    turn = given.policy.horizon if steps is None else steps
    houses = "".join(f"{house:012x}" for house in range(given.zone.n_houses))
    laws = replace(given, name=None).first_state().digest
    return bodies.terms(laws, first=first, seconds=900, steps=turn, houses=houses)


def certain_big_house() -> Terms:
    """Four houses of 1000 Wh and one of 3000, all uncertain."""
    return terms((1000, 1000, 1000, 1000, 3000))


def releases(
    given: Terms,
    *,
    seed: int = 1,
    noise: Noise | None = None,
    steps: int | None = None,
    change: Callable[[State, Release], Release] | None = None,
) -> list[Release]:
    """A simulated day's releases under the terms; `change` may spoil each."""
    world = World(Scenario(given.zone, given.tariff, given.models, given.consumption), (seed, 0))
    source = SimulatedNoise(np.random.SeedSequence([seed, 9])) if noise is None else noise
    state, found = given.first_state(), []
    for _ in range(steps or given.policy.horizon):
        world.step(state.rates)
        made, after = step(state, tally(world.readings, state.zone.bound), source)
        found.append(made if change is None else change(state, made))
        state = after
    return found


def times(t: int) -> dict[str, int]:
    """When the zone's step t began, when it went out, and when its rate begins."""
    return {
        "start": t * 900,
        "published_at": t * 900 + 903,
        "applies_start": (t + 2) * 900,
        "applies_from": t + 2,
    }


def story(
    given: Terms,
    made: Sequence[Release],
    *,
    first: int = 1,
    opening: bool = True,
    steps: int | None = None,
) -> list[tuple[str, dict[str, Any]]]:
    """Genesis, tariff, terms and the releases; the terms begin with the zone's step
    `first`, counted from START on, and repeat after their horizon or so many steps."""
    first = BEFORE + first
    told: list[tuple[str, dict[str, Any]]] = []
    if opening:
        told.append(("genesis", dict(bodies.genesis("simulation", KEY.public, START - 60))))
        told.append(("tariff", dict(bodies.tariff(first * 900, tariff_fields(given.tariff)))))
    told.append(("terms", recorded(given, first, steps)))
    for one in made:
        body = bodies.release(one, mode="simulation", first=first, **times(first + one.t - 1))
        told.append(("release", dict(body)))
    return told


def ledger(given: Terms, made: Sequence[Release] | None = None, **more: Any) -> list[Record]:
    """A whole ledger of one record of terms."""
    made = releases(given) if made is None else made
    return sealed(story(given, made, **more), zone=given.zone.id)


def renamed(given: Terms, name: str) -> Terms:
    return named(replace(given, zone=Zone(name, given.zone.bound)))


SMALL = """
format = 1

[zone]
id = "elm"
[tariff]
alpha = 1.0
beta = 62.5
[policy]
epsilon = 0.5
eta = 0.0
horizon = 24
[[houses]]
count = 5
bound = 1000
chain = "all"
provenance = "measured by nobody <b>"
absent = { law = "uniform", top = 500 }
present = { law = "uniform" }
[[models]]
name = "guess"
provenance = "made up & told"
[models.chains.all]
home_at_start = 0.5
periods = [{ from = "00:00", leave = 0.2, come = 0.1 }]
"""


def in_blocks() -> Terms:
    """A day of blocks of steps."""
    schedule = Blocks((4, 8, 2, 6, 1, 3), (0.6, 0.5, 0.6, 0.4, 0.3, 0.6))
    return named(replace(terms(), policy=Policy(0.6, horizon=24, schedule=schedule)))


def week_of(given: Terms, seed: int, *, without: tuple[int, ...] = ()) -> RecordedWeek:
    made = releases(given, seed=seed)
    entries = tuple(RecordedRelease(one.t, one) for one in made if one.t not in without)
    return RecordedWeek(1, made[0].digest, 1, len(made), entries)
