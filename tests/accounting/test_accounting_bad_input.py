"""Bad input for accounting: one sentence that names the field, the value and the fix."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    HushgridError,
    ModelError,
    OccupancyModel,
    Policy,
    PolicyError,
    SimulatedNoise,
    State,
    Tariff,
    Uniform,
    Zone,
    init,
    step,
)
from hushgrid.accounting.composition import ReleaseAccount, compose, delta_of
from hushgrid.accounting.events import GaussianEvent, Laplace, Laws
from hushgrid.accounting.temporal import (
    temporal_leakage,
)

E = [[0.9, 0.1], [0.2, 0.8]]
STAYS = [[1.0, 0.0], [0.0, 1.0]]
THETA = OccupancyModel.factored([[0.5, 0.5], [1.0, 0.0]], [[E, STAYS]])
F = Consumption.by_class(absent=[Uniform(5)] * 2, present=[Uniform(10), Uniform(20)])
TARIFF = Tariff(1.0, 62.5)


def opened(zone: str = "z", policy: Policy | None = None) -> State:
    return init(Zone(zone, [10, 20]), TARIFF, [THETA], F, policy or Policy(0.5, 4, eta=0.0))


def after(state: State, steps: int) -> ReleaseAccount:
    account, noise = ReleaseAccount(state), SimulatedNoise(1)
    for _ in range(steps):
        release, state = step(state, 8, noise)
        account = account.add(release)
    return account


THREE = after(opened(), 3)
FIRST = step(opened(), 8, SimulatedNoise(1))[0]
FOURTH = replace(FIRST, t=4)
EXACT = opened(policy=Policy(0.5, 4, on_empty="publish_exact"))


def damaged(**changes: Any) -> ReleaseAccount:
    return ReleaseAccount.resume(THREE.first, {**THREE.save(), **changes})


def without(name: str) -> ReleaseAccount:
    return ReleaseAccount.resume(THREE.first, {k: v for k, v in THREE.save().items() if k != name})


def entry(number: int, **changes: Any) -> ReleaseAccount:
    entries = THREE.save()["entries"]
    entries[number] |= changes
    return damaged(entries=entries)


def entries_in(order: list[int]) -> ReleaseAccount:
    entries = THREE.save()["entries"]
    return damaged(entries=[entries[i] for i in order])


BAD: list[tuple[str, Callable[[], object], type[HushgridError], str]] = [
    ("no steps", lambda: temporal_leakage(THETA, []), PolicyError, r"shape \(0,\)"),
    ("no columns", lambda: temporal_leakage(THETA, np.zeros((0, 2))), PolicyError, "1 step"),
    ("no shape", lambda: temporal_leakage(THETA, 0.5), PolicyError, r"shape \(\)"),
    ("no models", lambda: temporal_leakage([], [0.5]), ModelError, "set of models is empty"),
    ("NaN loss", lambda: temporal_leakage(THETA, [0.5, math.nan]), PolicyError, "nan at step 2;"),
    ("infinite loss", lambda: temporal_leakage(THETA, [math.inf]), PolicyError, "inf at step 1;"),
    (
        "infinite loss of one house",
        lambda: temporal_leakage(THETA, [[0.5, 0.5], [0.5, math.inf]]),
        PolicyError,
        "inf at step 2, house 1;",
    ),
    ("negative loss", lambda: temporal_leakage(THETA, [-0.5]), PolicyError, "-0.5 at step 1"),
    ("losses of text", lambda: temporal_leakage(THETA, ["a"]), PolicyError, "epsilon_t is ragged"),
    ("ragged losses", lambda: temporal_leakage(THETA, [[1], [1, 2]]), PolicyError, "ragged"),  # type: ignore[list-item]
    ("other houses", lambda: temporal_leakage(THETA, [[0.5] * 3]), PolicyError, "3 columns"),
    ("delta 1", lambda: compose([0.5], 1.0), PolicyError, "delta is 1.0"),
    ("delta below 0", lambda: compose([0.5], -1e-9), PolicyError, "delta is -1e-09"),
    ("delta NaN", lambda: compose([0.5], math.nan), PolicyError, "delta is nan"),
    ("delta of nothing", lambda: compose([], math.nan), PolicyError, "delta is nan"),
    ("delta of text", lambda: compose([0.5], "0.1"), PolicyError, "delta is 0.1"),  # type: ignore[arg-type]
    ("loss NaN", lambda: compose([0.5, math.nan]), PolicyError, "loss is nan"),
    ("loss inf", lambda: compose([math.inf], 1e-6), PolicyError, "loss is inf"),
    ("loss of text", lambda: compose(["a"]), PolicyError, "loss is a"),  # type: ignore[list-item]
    ("epsilon NaN", lambda: delta_of([0.5], math.nan), PolicyError, "epsilon is nan"),
    ("epsilon of text", lambda: delta_of([0.5], "1"), PolicyError, "epsilon is 1"),  # type: ignore[arg-type]
    ("noise of no width", lambda: Laplace(10, 0.0), PolicyError, "scale is 0.0"),
    ("noise of NaN", lambda: Laws(Uniform(1), Uniform(2), math.nan), PolicyError, "scale is nan"),
    ("sigma below 0", lambda: GaussianEvent(10, -1.0), PolicyError, "sigma is -1.0"),
    ("half a Wh apart", lambda: Laplace(0.5, 1.0), PolicyError, "distance is 0.5"),  # type: ignore[arg-type]
    ("account's delta", lambda: THREE.epsilon(0, math.nan), PolicyError, "delta is nan"),
    ("account's delta of 1", lambda: THREE.epsilon(0, 1.0), PolicyError, "delta is 1.0"),
    ("account's delta below 0", lambda: THREE.epsilon(1, -0.5), PolicyError, "delta is -0.5"),
    ("account's epsilon", lambda: THREE.delta(0, math.nan), PolicyError, "epsilon is nan"),
    ("a house too many", lambda: THREE.epsilon(2), PolicyError, "house is 2"),
    ("a house from behind", lambda: THREE.delta(-1, 1.0), PolicyError, "house is -1"),
    ("half a house", lambda: THREE.events(0.5), PolicyError, "house is 0.5"),  # type: ignore[arg-type]
    ("another zone", lambda: ReleaseAccount(opened("y")).add(FIRST), PolicyError, "of zone 'z'"),
    (
        "other terms",
        lambda: ReleaseAccount(opened(policy=Policy(0.4, 4))).add(FIRST),
        PolicyError,
        "open a new account",
    ),
    (
        "a release twice",
        lambda: ReleaseAccount(opened()).add(FIRST).add(FIRST),
        PolicyError,
        "before step 2",
    ),
    (
        "a release too early",
        lambda: ReleaseAccount(opened()).add(FOURTH),
        PolicyError,
        "before step 1",
    ),
    ("an old release", lambda: THREE.add(FIRST), PolicyError, "before step 4"),
    (
        "a release without noise",
        lambda: THREE.add(replace(FOURTH, scale=0.0)),
        PolicyError,
        "is 0.0",
    ),
    ("a release at NaN", lambda: THREE.add(replace(FOURTH, rate=math.nan)), PolicyError, "is nan"),
    (
        "a step too far",
        lambda: THREE.add(FOURTH).add(replace(FIRST, t=5)),
        PolicyError,
        "horizon is 4",
    ),
    ("not an account", lambda: ReleaseAccount.resume(opened(), []), PolicyError, "of type list"),  # type: ignore[arg-type]
    ("no zone", lambda: without("zone"), PolicyError, "has no zone"),
    ("no digest", lambda: without("digest"), PolicyError, "has no digest"),
    ("no entries", lambda: without("entries"), PolicyError, "has no entries"),
    ("something more", lambda: damaged(extra=1), PolicyError, "a field 'extra'"),
    ("a saved zone", lambda: damaged(zone=7), PolicyError, "of zone 7"),
    ("a saved digest", lambda: damaged(digest=None), PolicyError, "digest is None"),
    ("another digest", lambda: damaged(digest="0" * 64), PolicyError, "has digest 000000000000"),
    ("entries of text", lambda: damaged(entries="[]"), PolicyError, "of type str"),
    ("no list of entries", lambda: damaged(entries=None), PolicyError, "of type NoneType"),
    ("an entry of numbers", lambda: damaged(entries=[[1, 2, 3]]), PolicyError, "entry 1 .* list"),
    ("an entry cut short", lambda: damaged(entries=[{"t": 1}]), PolicyError, "has no scale"),
    ("an entry with more", lambda: entry(0, load=8), PolicyError, "a field 'load'"),
    ("NaN scale", lambda: entry(1, scale=math.nan), PolicyError, "scale of step 2 is nan"),
    ("negative scale", lambda: entry(2, scale=-5.0), PolicyError, "scale of step 3 is -5.0"),
    ("scale 0", lambda: entry(2, scale=0), PolicyError, "scale of step 3 is 0"),
    ("scale below the floor", lambda: entry(0, scale=0.01), PolicyError, "0.1 Wh or more"),
    ("scale without end", lambda: entry(0, scale=math.inf), PolicyError, "scale of step 1 is inf"),
    ("scale of text", lambda: entry(0, scale="9"), PolicyError, "scale of step 1 is '9'"),
    ("scale True", lambda: entry(0, scale=True), PolicyError, "scale of step 1 is True"),
    ("rate None", lambda: entry(0, rate=None), PolicyError, "rate of step 1 is None"),
    ("rate NaN", lambda: entry(0, rate=math.nan), PolicyError, "rate of step 1 is nan"),
    ("step of text", lambda: entry(0, t="1"), PolicyError, "is of step '1'"),
    ("step True", lambda: entry(0, t=True), PolicyError, "is of step True"),
    ("steps swapped", lambda: entries_in([0, 2, 1]), PolicyError, "entry 2 .* is of step 3"),
    ("a step missing", lambda: entries_in([0, 2]), PolicyError, "entry 2 .* is of step 3"),
    ("a step twice", lambda: entries_in([0, 0, 1]), PolicyError, "entry 2 .* is of step 1"),
    (
        "exact where somebody is uncertain",
        lambda: (
            ReleaseAccount(EXACT).add(replace(step(EXACT, 8, SimulatedNoise(1))[0], scale=0.0)).pure
        ),
        PolicyError,
        "scale of step 1 is 0.0 where the terms lead to 20",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input(call: Callable[[], object], kind: type[HushgridError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert message.endswith(".")
    assert "\n" not in message
    assert ";" in message, "the fix follows a semicolon"


def test_a_chain_that_never_mixes_is_answered() -> None:
    """Every loss adds up: all releases speak of one and the same secret."""
    stuck = OccupancyModel.factored([[0.5, 0.5]], [[STAYS]])
    found = temporal_leakage(stuck, [0.5, 0.25, 1.0])
    assert found.total[:, 0] == pytest.approx([1.75] * 3)


def test_an_account_without_releases_has_cost_nothing() -> None:
    empty = ReleaseAccount(opened())
    assert empty.pure.tolist() == [0.0, 0.0]
    assert empty.epsilon(0) == empty.epsilon(0, 1e-6) == 0
    assert empty.delta(0, 0.0) == 0
    assert empty.events(0) == []
    again = ReleaseAccount.resume(empty.first, json.loads(json.dumps(empty.save())))
    assert again.entries == ()
    assert compose([]) == compose([], 1e-6) == delta_of([], 0.0) == 0


def test_an_account_survives_json() -> None:
    again = ReleaseAccount.resume(THREE.first, json.loads(json.dumps(THREE.save())))
    assert again.entries == THREE.entries
    assert [one.t for one in again.add(FOURTH).entries] == [1, 2, 3, 4]


def test_a_refused_release_leaves_the_account_as_it_was() -> None:
    before = THREE.save()
    with pytest.raises(PolicyError):
        THREE.add(FIRST)
    assert THREE.save() == before


def test_a_step_published_exactly_costs_nothing() -> None:
    """Everybody is certain at step 1 and nobody from step 2 on: the policy may then do so."""
    theta = OccupancyModel.factored([[1.0, 0.0]], [[E]])
    f = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(10)])
    policy = Policy(0.5, 2, on_empty="publish_exact")
    account = after(init(Zone("z", [10]), TARIFF, [theta], f, policy), 2)
    assert [one.scale for one in account.entries] == [0.0, 20.0]
    assert account.losses(account.entries[0]).tolist() == [0.0]
    assert account.pure == pytest.approx([0.5])
    assert len(account.events(0)) == 1
    assert ReleaseAccount.resume(account.first, account.save()).entries == account.entries
