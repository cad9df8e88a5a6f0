"""Bad input: an error of ours, one sentence that names the field, the value and the fix."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    ConsumptionError,
    Elasticity,
    Gamma,
    Histogram,
    HorizonError,
    HushgridError,
    LogNormal,
    ModelError,
    Naive,
    NoiseError,
    OccupancyModel,
    Policy,
    PolicyError,
    ReadingError,
    SecureNoise,
    SimulatedNoise,
    Tariff,
    TruncatedNormal,
    Uniform,
    Zone,
    ZoneError,
    aggregate,
    house_losses,
    init,
    protected,
    schedule,
    smallest_scale,
    step,
    worst_loss,
)

E = [[0.9, 0.1], [0.2, 0.8]]
HALF = [0.5, 0.5]
THETA = OccupancyModel.factored([HALF], [[E]])
F = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(10)])
REACTS = Consumption.by_class(
    absent=[Uniform(5)], present=[Uniform(10)], elasticity=Elasticity(100.0, 0.5)
)
ZONE = Zone("z", [10])
TARIFF = Tariff(1.0, 62.5)
PMF = [0.5, 0.5]
MANY = np.zeros(1 << 18, np.int32)


def past_horizon() -> None:
    state = init(ZONE, TARIFF, [THETA], F, Policy(0.5, horizon=1))
    _, state = step(state, 5, SimulatedNoise(1))
    step(state, 5, SimulatedNoise(1))


def first_step(load: object) -> None:
    step(init(ZONE, TARIFF, [THETA], F, Policy(0.5)), load, SimulatedNoise(1))  # type: ignore[arg-type]


BAD: list[tuple[str, Callable[[], object], type[HushgridError], str]] = [
    ("NaN reading", lambda: aggregate([1, math.nan], [5, 5]), ReadingError, "house 1 is nan"),
    ("infinite reading", lambda: aggregate([math.inf], [5]), ReadingError, "house 0 is inf"),
    ("missing reading", lambda: aggregate([1, None], [5, 5]), ReadingError, "house 1 is missing"),
    (
        "masked reading",
        lambda: aggregate(np.ma.masked_array([1, 2], [False, True]), [5, 5]),
        ReadingError,
        "house 1 is missing",
    ),
    ("fractional reading", lambda: aggregate([0.5], [5]), ReadingError, "not a whole number"),
    ("text readings", lambda: aggregate(["a"], [5]), ReadingError, "readings have type"),
    ("ragged readings", lambda: aggregate([[1], [1, 2]], [5, 5]), ReadingError, "ragged"),
    ("too few readings", lambda: aggregate([1], [5, 5]), ReadingError, "shape"),
    ("fractional load", lambda: first_step(1.5), ReadingError, "not a whole number"),
    ("NaN load", lambda: first_step(math.nan), ReadingError, "not a number"),
    ("negative load", lambda: first_step(-1), ReadingError, "0 or more"),
    ("no load", lambda: first_step(None), ReadingError, "not a number"),
    ("unset bound", lambda: Zone("z", [None, 5]), ZoneError, "unset"),
    ("zero bound", lambda: Zone("z", [5, 0]), ZoneError, "house 1 is 0"),
    ("negative bound", lambda: Zone("z", [-5]), ZoneError, "house 0 is -5"),
    ("NaN bound", lambda: Zone("z", [5, math.nan]), ZoneError, "house 1 is nan"),
    ("infinite bound", lambda: Zone("z", [math.inf]), ZoneError, "house 0 is inf"),
    ("fractional bound", lambda: Zone("z", [5.5]), ZoneError, "house 0 is 5.5"),
    ("empty zone", lambda: Zone("z", []), ZoneError, "shape"),
    ("ragged bounds", lambda: Zone("z", [[1], [2, 3]]), ZoneError, "ragged"),
    ("readings in two dimensions", lambda: aggregate([[1]], [[5]]), ReadingError, "shape"),
    ("adding under a negative bound", lambda: aggregate([5], [-3]), ZoneError, "house 0 is -3"),
    ("adding under a NaN bound", lambda: aggregate([5], [math.nan]), ZoneError, "house 0 is nan"),
    ("adding under no bound", lambda: aggregate([5], [None]), ZoneError, "unset"),
    ("many under a zero bound", lambda: aggregate(MANY, MANY), ZoneError, "house 0 is 0"),
    ("tariff of text", lambda: Tariff("a", 1.0), ZoneError, "alpha is a"),  # type: ignore[arg-type]
    ("inelastic NaN", lambda: Tariff(1.0, 1.0, inelastic=math.nan), ZoneError, "inelastic is nan"),  # type: ignore[arg-type]
    ("epsilon of text", lambda: Policy("0.5"), PolicyError, "epsilon is 0.5"),  # type: ignore[arg-type]
    ("epsilon True", lambda: Policy(True), PolicyError, "epsilon is True"),
    ("horizon without end", lambda: Policy(0.5, horizon=math.inf), PolicyError, "horizon is inf"),  # type: ignore[arg-type]
    (
        "min_scale of next to nothing",
        lambda: Policy(0.5, min_scale=1e-300),
        PolicyError,
        "min_scale",
    ),
    (
        "epsilon of next to nothing",
        lambda: schedule([THETA], ZONE, F, Policy(1e-310, eta=0.0)),
        PolicyError,
        "larger epsilon",
    ),
    (
        "the same with nothing trusted",
        lambda: schedule([THETA], ZONE, F, Policy(1e-310)),
        PolicyError,
        "larger epsilon",
    ),
    ("noise beyond 64 bits", lambda: SecureNoise().draw(1e308), NoiseError, "at most"),
    (
        "fractional chain",
        lambda: OccupancyModel.factored([HALF], [[E]], chain_of=[0.9]),
        ModelError,
        "holds 0.9",
    ),
    (
        "chain that would wrap",
        lambda: OccupancyModel.factored([HALF], [[E]], chain_of=[2**32]),
        ModelError,
        "holds 4294967296",
    ),
    (
        "class that would wrap",
        lambda: Consumption.by_class(absent=[Uniform(1)], present=[Uniform(2)], class_of=[2**32]),
        ConsumptionError,
        "holds 4294967296",
    ),
    ("slot that would wrap", lambda: Calendar([2**32 - 1]), ModelError, "holds 4294967295"),
    (
        "days of two lengths",
        lambda: Calendar.week(weekday=[0, 1], weekend=[2]),
        ModelError,
        "one length",
    ),
    (
        "blocks of unlike slots",
        lambda: OccupancyModel.blocked([[0], [1]], [HALF] * 2, [[E], [E, E]]),
        ModelError,
        "as many states and slots",
    ),
    ("ragged chain", lambda: OccupancyModel.factored([HALF, [1.0]], [[E]]), ModelError, "ragged"),
    ("weights beyond a float", lambda: Histogram([1e308, 1e308]), ConsumptionError, "weights"),
    (
        "a number for a law",
        lambda: Consumption.by_class(absent=[5], present=[9]),
        ConsumptionError,
        "a law is 5",
    ),  # type: ignore[list-item]
    ("no such rule asked", lambda: protected([THETA], 1, blocks="foo"), PolicyError, "blocks is"),  # type: ignore[arg-type]
    ("losses at no scale", lambda: house_losses(ZONE, F, 1, -5.0, 1.0), NoiseError, "scale is -5"),
    ("losses at eta 2", lambda: house_losses(ZONE, F, 1, 5.0, 2.0), PolicyError, "eta is 2"),
    (
        "losses of laws above the bound",
        lambda: house_losses(Zone("z", [9]), F, 1, 5.0, 0.5),
        ConsumptionError,
        "reaches 10 Wh",
    ),
    ("nameless zone", lambda: Zone("", [5]), ZoneError, "id is ''"),
    (
        "row that does not sum to 1",
        lambda: OccupancyModel.factored([HALF] * 2, [[E, E], [E, [[0.9, 0.2], [0.2, 0.8]]]]),
        ModelError,
        r"slot 1, row 0, house 1\) sums to 1.1",
    ),
    (
        "negative probability",
        lambda: OccupancyModel.factored([[-0.5, 1.5]], [[E]]),
        ModelError,
        r"initial law .*house 0",
    ),
    (
        "NaN probability",
        lambda: OccupancyModel.factored([[math.nan, 1.0]], [[E]]),
        ModelError,
        "sums to nan",
    ),
    (
        "a block too large",
        lambda: OccupancyModel.blocked([range(11)], [np.ones(4)], [np.ones((1, 4, 4))]),
        ModelError,
        "block of 11 houses",
    ),
    (
        "a joint model too large",
        lambda: OccupancyModel.joint(np.full(2048, 1 / 2048), np.ones((1, 2, 2))),
        ModelError,
        "block of 11 houses",
    ),
    (
        "mismatched shapes",
        lambda: OccupancyModel.factored([HALF, HALF], [[E]]),
        ModelError,
        r"transitions of shape \(1, 1, 2, 2\)",
    ),
    (
        "a house in two blocks",
        lambda: OccupancyModel.blocked([[0], [0]], [HALF] * 2, [[E]] * 2),
        ModelError,
        "exactly once",
    ),
    (
        "a block without its law",
        lambda: OccupancyModel.blocked([[0], [1]], [HALF], [[E]] * 2),
        ModelError,
        "one of each",
    ),
    (
        "too few slots",
        lambda: OccupancyModel.factored([HALF], [[E]], calendar=Calendar([0, 1])),
        ModelError,
        "slot 1",
    ),
    (
        "a chain that is not there",
        lambda: OccupancyModel.factored([HALF], [[E]], chain_of=[0, 1]),
        ModelError,
        r"outside 0\.\.0",
    ),
    ("no models", lambda: schedule([], ZONE, F, Policy(0.5)), ModelError, "set of models is empty"),
    ("no models at all", lambda: protected([], 1), ModelError, "set of models is empty"),
    ("step 0", lambda: protected([THETA], 0), ModelError, "step t is 0"),
    (
        "models of other houses",
        lambda: schedule([THETA], Zone("z", [10, 10]), F2, Policy(0.5)),
        ModelError,
        "1 houses but the zone has 2",
    ),
    ("empty calendar", lambda: Calendar([]), ModelError, "calendar"),
    ("negative slot", lambda: Calendar([0, -1]), ModelError, "slot -1"),
    ("epsilon 0", lambda: Policy(0.0), PolicyError, "epsilon is 0.0"),
    ("epsilon NaN", lambda: Policy(math.nan), PolicyError, "epsilon is nan"),
    ("eta above 1", lambda: Policy(0.5, eta=1.1), PolicyError, "eta is 1.1"),
    ("eta below 0", lambda: Policy(0.5, eta=-0.1), PolicyError, "eta is -0.1"),
    ("eta NaN", lambda: Policy(0.5, eta=math.nan), PolicyError, "eta is nan"),
    ("horizon 0", lambda: Policy(0.5, horizon=0), PolicyError, "horizon is 0"),
    ("min_scale 0", lambda: Policy(0.5, min_scale=0.0), PolicyError, "min_scale is 0.0"),
    ("no such rule", lambda: Policy(0.5, blocks="none"), PolicyError, "blocks is 'none'"),  # type: ignore[arg-type]
    (
        "naive bound too low",
        lambda: schedule([THETA], ZONE, F, Policy(0.5), Naive(5)),
        PolicyError,
        "naive bound is 5",
    ),
    (
        "law above the bound",
        lambda: schedule([THETA], Zone("z", [9]), F, Policy(0.5)),
        ConsumptionError,
        "reaches 10 Wh but its bound is 9",
    ),
    (
        "consumption of other houses",
        lambda: schedule([THETA], ZONE, F2, Policy(0.5)),
        ConsumptionError,
        "describes 2 houses",
    ),
    (
        "schedule ahead of reacting demand",
        lambda: schedule([THETA], ZONE, REACTS, Policy(0.5, eta=0.5)),
        ConsumptionError,
        "step by step",
    ),
    (
        "rates not given",
        lambda: init(ZONE, TARIFF, [THETA], REACTS, Policy(0.5, eta=0.5)).scheduler.at(3, [1.0]),
        ConsumptionError,
        "1 of 2 are given",
    ),
    ("a step too far", past_horizon, HorizonError, "step t is 2"),
    (
        "unequal laws",
        lambda: Consumption.by_class(absent=[Uniform(1)], present=[]),
        ConsumptionError,
        "one pair",
    ),
    (
        "a class that is not there",
        lambda: Consumption.by_class(absent=[Uniform(1)], present=[Uniform(2)], class_of=[0, 3]),
        ConsumptionError,
        "class of house 1 is 3",
    ),
    ("fractional top", lambda: Uniform(1.5), ConsumptionError, "top is 1.5"),  # type: ignore[arg-type]
    ("empty histogram", lambda: Histogram([]), ConsumptionError, "weights"),
    ("negative weight", lambda: Histogram([1, -1]), ConsumptionError, "weights"),
    ("gamma shape", lambda: Gamma(0.0, 1.0, 5), ConsumptionError, "gamma shape is 0.0"),
    ("log-normal spread", lambda: LogNormal(1.0, -1.0, 5), ConsumptionError, "spread is -1.0"),
    (
        "law beside its range",
        lambda: TruncatedNormal(1e9, 1.0, 5).pmf,
        ConsumptionError,
        "no mass",
    ),
    ("elasticity", lambda: Elasticity(0.0, 0.5), ConsumptionError, "reference is 0.0"),
    ("elasticity limits", lambda: Elasticity(1.0, 0.5, low=2.0), ConsumptionError, "limits"),
    ("noise scale 0", lambda: SimulatedNoise(1).draw(0.0), NoiseError, "scale is 0.0"),
    ("noise scale NaN", lambda: SecureNoise().draw(math.nan), NoiseError, "scale is nan"),
    (
        "pmf of another length",
        lambda: worst_loss(PMF, [1.0], bound=1, scale=1.0, eta=0.0),
        ConsumptionError,
        r"present has shape \(1,\)",
    ),
    (
        "pmf that does not sum to 1",
        lambda: smallest_scale([0.5, 0.4], PMF, bound=1, epsilon=1.0, eta=0.0),
        ConsumptionError,
        "absent sums to 0.9",
    ),
    (
        "loss at no noise",
        lambda: worst_loss(PMF, PMF, bound=1, scale=0.0, eta=0.0),
        NoiseError,
        "scale is 0.0",
    ),
    (
        "bound of 0",
        lambda: worst_loss([1.0], [1.0], bound=0, scale=1.0, eta=0.0),
        ZoneError,
        "bound is 0",
    ),
    (
        "epsilon of -1",
        lambda: smallest_scale(PMF, PMF, bound=1, epsilon=-1.0, eta=0.0),
        PolicyError,
        "epsilon is -1.0",
    ),
    (
        "eta of 2",
        lambda: smallest_scale(PMF, PMF, bound=1, epsilon=1.0, eta=2.0),
        PolicyError,
        "eta is 2.0",
    ),
]

F2 = Consumption.by_class(absent=[Uniform(5)] * 2, present=[Uniform(10)] * 2)


@pytest.mark.parametrize(("call", "kind", "words"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input(call: Callable[[], object], kind: type[HushgridError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert message.endswith(".")
    assert "\n" not in message
    assert ";" in message, "the fix follows a semicolon"


def test_a_reading_is_never_in_a_message() -> None:
    for secret in (123.456, -98765.4):
        with pytest.raises(ReadingError) as caught:
            aggregate([1.0, secret], [5, 5])
        assert str(secret) not in str(caught.value)
    with pytest.raises(ReadingError) as caught:
        first_step(4321.5)
    assert "4321" not in str(caught.value)


def test_a_refused_load_leaves_the_state_as_it_was() -> None:
    state = init(ZONE, TARIFF, [THETA], F, Policy(0.5))
    with pytest.raises(ReadingError):
        step(state, -5, SimulatedNoise(1))
    release, after = step(state, 5, SimulatedNoise(1))
    assert (state.t, release.t, after.t) == (1, 1, 2)
