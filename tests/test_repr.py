"""Every public object has a `repr` of one line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

import hushgrid
from hushgrid import (
    Account,
    Consumption,
    Curve,
    Elasticity,
    Exact,
    Factored,
    FeedIn,
    Gamma,
    Histogram,
    Knowledge,
    LogNormal,
    Mechanism,
    Naive,
    Net,
    OccupancyModel,
    PerStep,
    Policy,
    Population,
    Scenario,
    SecureNoise,
    SimulatedNoise,
    Tariff,
    TruncatedNormal,
    TrustCalibrator,
    Uniform,
    Zone,
    init,
    plan,
    simulate,
    step,
    tally,
)  # fmt: skip
from hushgrid.accounting.account import IntervalAccount, WindowAccount
from hushgrid.mechanism.policy import Blocks


def made() -> list[Any]:
    """One of each, of a zone with more houses, steps and laws than fit on a line."""
    n = 40
    zone, tariff = Zone("elm-street", [2500] * n), Tariff(alpha=0.004, beta=0.05)
    stay = [[0.97, 0.03], [0.05, 0.95]]
    theta = OccupancyModel.factored([[0.3, 0.7]], [[stay]], chain_of=[0] * n)
    laws = [Gamma(2, 20, 2500), LogNormal(110, 0.8, 2500), TruncatedNormal(200.0, 80.0, 2500)]
    f = Consumption.by_class(absent=[laws[0]], present=[laws[1]], class_of=[0] * n)
    policy = Policy(epsilon=0.5, eta=0.05, horizon=8)
    state = init(zone, tariff, [theta], f, policy)
    release, state = step(state, tally([130] * n, zone.bound), SimulatedNoise(1))
    scenario = Scenario(zone, tariff, (theta,), f)
    known, seen = Knowledge(zone, [theta], f), state.scheduler.exposure(2)
    pair = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
    g = Consumption.by_class(absent=[Uniform(20)], present=[Uniform(50)], class_of=[0] * 2)
    of_two = Knowledge(Zone("two", [50] * 2), [pair], g)
    return [
        release, state, state.scheduler.at(2), tally([130] * n, zone.bound), seen,
        TrustCalibrator(), TrustCalibrator().scale(seen, policy), scenario, known, Exact(of_two),
        Population(known), Factored(known), simulate(scenario, policy, seed=2), Mechanism(policy),
        plan(zone, tariff, [theta], f, secret="interval", epsilon=2.0, terms=policy),
        Histogram(np.ones(300) / 300), Elasticity(0.2, 0.1, 0.5, 2.0), Naive(2500), Uniform(9),
        SimulatedNoise(1),
        Policy(0.5, schedule=PerStep((0.1,) * 96)), PerStep((0.1,) * 96), SecureNoise(),
        *laws, Account.interval((np.zeros(n), np.ones(n))),
        Account.window(96, 1.0).admit(0.1, 0, 11).under(48, 0.5, 20).under(1344, 0.25, 20),
        Curve(tiers=[(z, 1 + z) for z in range(99)]),
        FeedIn(0.001, 0.05), Net(laws[1], laws[2], 2500),
    ]  # fmt: skip


def inside(one: Any, depth: int = 0) -> Iterator[Any]:
    yield one
    if depth > 4:
        return
    parts = [getattr(one, f.name) for f in fields(one)] if is_dataclass(one) else []
    for part in [*parts, *(one if isinstance(one, tuple) else ())]:
        yield from inside(part, depth + 1)


def test_no_word_is_cut() -> None:
    """What is left out is a whole field, element or word: "..." is never beside a letter."""
    for one in (part for top in made() for part in inside(top)):
        text = repr(one)
        assert not re.search(r"\w\.\.\.|\.\.\.\w", text), text


def test_long_texts_end_with_a_word() -> None:
    zone = Zone("a street of many houses and a long name", [9])
    assert repr(zone) == "Zone(1 house, bound 9 Wh, id='a street of many houses and a ...')"
    assert repr(Zone("z" * 200, [9])) == "Zone(1 house, bound 9 Wh, id='...')"


def test_the_number_of_houses_and_the_promise_come_first() -> None:
    said = {type(one).__name__: repr(one) for one in made()}
    assert repr(Zone("z", [2500] * 1000)) == "Zone(1,000 houses, bound 2500 Wh, id='z')"
    assert said["Scenario"].startswith("Scenario(40 houses, 1 model, ")
    assert said["State"].startswith("State(40 houses, any price, epsilon 0.5, before step 2, ")
    assert said["Trace"].startswith("Trace(40 houses, any price, epsilon 0.5, 8 steps, ")
    assert said["Plan"].startswith("Plan(40 houses, any step by all prices, epsilon 2, ")
    assert said["Factored"] == "Factored(40 houses, 1 model)"
    blocks = Policy(0.2, schedule=Blocks((48, 48), (0.2, 0.1)))
    assert repr(blocks).startswith("Policy(any block of steps, epsilon 0.2, ")
    assert repr(Policy(0.5)) == "Policy(any price, epsilon 0.5)"


def test_every_public_object_fits_a_line() -> None:
    public = {
        found
        for name in hushgrid.__all__
        if inspect.isclass(found := getattr(hushgrid, name))
        and not issubclass(found, Exception)
        and not inspect.isabstract(found)
        and not getattr(found, "_is_protocol", False)
    }
    public |= {WindowAccount, IntervalAccount}
    objects = [one for top in made() for one in inside(top) if type(one) in public]
    long = {repr(one)[:140] for one in objects if len(repr(one)) > 100 or "\n" in repr(one)}
    assert not long
    assert {kind.__name__ for kind in public - {type(one) for one in objects}} <= {
        "Account",  # makes the two kinds of accounts
        "Law",
        "Noise",
        "Schedule",
    }
