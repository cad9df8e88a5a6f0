"""Every method that says it keeps a promise keeps it, by brute force over a short day.

One house that uses 0 away and u at home: consumption at its most telling. The likelihood of a
release is linear in each step's two likelihoods, whose ratio lies within e^(+-u/b), so the worst
outputs are the 2^T corners; every trajectory is summed over.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hushgrid import Consumption, Histogram, OccupancyModel, Scenario, Tariff, Zone
from hushgrid._kernels.loss import two_sided
from hushgrid.errors import PolicyError
from hushgrid.lab import paper
from hushgrid.lab.bench import METHODS, methods_with
from hushgrid.lab.methods import MethodPromise, MethodRefusal, MethodSetting, Ready
from hushgrid.lab.pufferfish import quilt_multiple
from hushgrid.model.occupancy import Calendar

T, U = 5, 40
STEPWISE = ("hushgrid_eta0", "hushgrid_eta05", "bound_independent", "wasserstein", "quilt", "group")
METHOD = {m.name: m for m in METHODS}


def house(seed: int, sticky: float = 1.0) -> Scenario:
    rng = np.random.default_rng([3, seed])
    a = rng.dirichlet([sticky, sticky], 2)
    theta = OccupancyModel.factored([rng.dirichlet([2, 2])], [[a]])
    at_u = np.zeros(U + 1)
    at_u[U] = 1
    f = Consumption.by_class(absent=[Histogram([1.0])], present=[Histogram(at_u)])
    return Scenario(Zone("z", [U]), Tariff(1.0, 62.5), (theta,), f)


def trajectories(scenario: Scenario) -> tuple[np.ndarray, np.ndarray]:
    piece = scenario.models[0].chains[0]
    pi, a = piece.initial[0], piece.transition[0, 0]
    every = np.array(list(product((0, 1), repeat=T)))
    chance = pi[every[:, 0]]
    for t in range(1, T):
        chance = chance * a[every[:, t - 1], every[:, t]]
    return every, chance


def realised(scenario: Scenario, scales: np.ndarray) -> float:
    """The worst log odds about one step from all releases of the day."""
    every, chance = trajectories(scenario)
    worst = 0.0
    for corner in product((-1, 1), repeat=T):
        weight = chance * np.exp((every * np.array(corner) * U / scales).sum(axis=1))
        for t in range(T):
            home = every[:, t] == 1
            given = [weight[s].sum() / chance[s].sum() for s in (home, ~home)]
            worst = max(worst, abs(float(np.log(given[0] / given[1]))))
    return worst


def scales_of(name: str, scenario: Scenario, promise: MethodPromise) -> np.ndarray:
    ready = METHOD[name].prepare(MethodSetting.of(scenario, promise, T))
    assert isinstance(ready, Ready)
    return ready.publish(np.zeros(T, np.int64), np.random.SeedSequence(1)).scale


@pytest.mark.parametrize("name", STEPWISE)
@pytest.mark.parametrize("seed", range(8))
def test_interval(name: str, seed: int) -> None:
    scenario = house(seed)
    scales = scales_of(name, scenario, MethodPromise("interval", 1.0))
    assert realised(scenario, scales) <= 1.0 + 1e-9


def test_interval_is_tight_somewhere() -> None:
    """The oracle can fail: half of the noise breaks the promise."""
    for name in ("bound_independent", "wasserstein"):
        worst = [
            realised(house(s), scales_of(name, house(s), MethodPromise("interval", 1.0)) / 2)
            for s in range(8)
        ]
        assert max(worst) > 1.2


def test_constraint_needs_a_delta_and_then_gives_less_noise() -> None:
    large = METHOD["dphmm"].prepare(MethodSetting.of(house(1), MethodPromise("step", 1.0, 0.01), T))
    assert isinstance(large, Ready)
    refused = METHOD["dphmm"].prepare(MethodSetting.of(house(1), MethodPromise("step", 1.0), T))
    assert isinstance(refused, MethodRefusal)
    assert "give a delta" in refused.reason


def test_window_promises_what_is_asked() -> None:
    """Looks and publications of any w steps stay within epsilon: counted from the releases."""
    ready = METHOD["wevent"].prepare(MethodSetting.of(house(2), MethodPromise("interval", 1.0), T))
    assert isinstance(ready, Ready)
    assert "any 5 steps" in ready.guarantee
    made = ready.publish(np.array([0, U, 0, U, 0]), np.random.SeedSequence(3))
    assert (made.scale >= 2 * U).all()  # no release may lose more than half of the budget
    single = METHOD["wevent"].prepare(MethodSetting.of(house(2), MethodPromise("step", 1.0), T))
    assert isinstance(single, Ready)
    assert "any 1 steps" in single.guarantee


@pytest.mark.soak
def test_window_holds_its_price_uncut() -> None:
    """Raw is what was published last, before any cut, where nothing is published anew."""
    ready = METHOD["wevent"].prepare(
        MethodSetting.of(paper.scenario(0.0, 1, n=30), MethodPromise(), 96)
    )
    assert isinstance(ready, Ready)
    load = np.full(96, 7000)
    for seed in range(20):
        made = ready.publish(load, np.random.SeedSequence([5, seed]))
        assert made.observations is not None
        anew = made.raw == made.observations
        held = np.flatnonzero(~anew)
        assert anew[0]
        assert (made.raw[held] == made.raw[held - 1]).all()
        assert len(held) > 0
    # of noise of some million Wh at 0.5 a cut at rates of 0 would leave none below -62,500 Wh
    assert (
        min(ready.publish(load, np.random.SeedSequence([5, seed])).raw.min() for seed in range(20))
        < -62_500 - 1
    )


def test_quilt_leaves_out_what_it_cannot_promise() -> None:
    block = OccupancyModel.blocked([[0, 1]], [[0.25, 0.25, 0.25, 0.25]], [[np.full((4, 4), 0.25)]])
    f = Consumption.by_class(absent=[Histogram([1.0])] * 2, present=[Histogram([1.0, 1.0])] * 2)
    both = Scenario(Zone("z", [U, U]), Tariff(1.0, 62.5), (block,), f)
    for name in ("quilt", "wasserstein"):
        answer = METHOD[name].prepare(MethodSetting.of(both, MethodPromise(), T))
        assert isinstance(answer, MethodRefusal)
        assert "move together" in answer.reason


def test_contradicting_models_protect_all_the_same() -> None:
    """Surely away under one model, surely at home under the other: group privacy's noise."""
    stay = [[1.0, 0.0], [0.0, 1.0]]
    models = [OccupancyModel.factored([pi], [[stay]]) for pi in ([1.0, 0.0], [0.0, 1.0])]
    zone = house(1)
    torn = Scenario(zone.zone, zone.tariff, models, zone.consumption)
    for name in ("quilt", "wasserstein", "bound_independent"):
        scales = scales_of(name, torn, MethodPromise("interval", 1.0))
        assert float((U / scales).sum()) == pytest.approx(1.0, rel=1e-5)


def test_quilt_golden() -> None:
    """MATH.md section 11: the paper's chain, epsilon = 1: 66.57 u."""
    pi, a = paper.chains(0.0, 1, np.random.default_rng(1))
    found = quilt_multiple(pi, a, paper.CALENDAR, 96, 1.0)
    assert float(found[0]) == pytest.approx(66.57, abs=0.005)


@pytest.mark.parametrize("seed", range(6))
def test_quilt_against_sums_over_all_trajectories(seed: int) -> None:
    scenario = house(seed, sticky=4.0)
    every, chance = trajectories(scenario)
    piece = scenario.models[0].chains[0]
    found = quilt_multiple(piece.initial, piece.transition, Calendar.constant(), T, 1.5)

    def influence(i: int, quilt: list[int]) -> float:
        worst = 0.0
        for values in product((0, 1), repeat=len(quilt)):
            there = (every[:, quilt] == values).all(axis=1)
            odds = []
            for s in (0, 1):
                mine = every[:, i] == s
                odds.append(chance[there & mine].sum() / chance[mine].sum())
            worst = max(worst, abs(float(np.log(odds[0] / odds[1]))))
        return worst

    scores = []
    for i in range(T):
        options = [T / 1.5]
        quilts = [[i - a, i + b] for a in range(1, i + 1) for b in range(1, T - i)]
        quilts += [[i - a] for a in range(1, i + 1)] + [[i + b] for b in range(1, T - i)]
        for quilt in quilts:
            low = quilt[0] if quilt[0] < i else -1
            high = quilt[-1] if quilt[-1] > i else T
            room = 1.5 - influence(i, quilt)
            if room > 0:
                options.append((high - low - 1) / room)
        scores.append(min(options))
    assert float(found[0]) == pytest.approx(max(scores), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_quilt_kernel_equals_its_twin(seed: int) -> None:
    rng = np.random.default_rng([4, seed])
    before, after = rng.exponential(0.4, (3, 7, 2)), rng.exponential(0.4, (3, 5, 2))
    best = np.array([1e9, 20.0, 1.0])
    influence = (before[:, :, None, :] + after[:, None, :, :]).max(axis=3)
    size = np.arange(1, 8)[:, None] + np.arange(1, 6) - 1
    score = np.where(influence < 1.5, size / np.maximum(1.5 - influence, 1e-12), np.inf)
    assert np.allclose(two_sided(before, after, 1.5, best), np.minimum(best, score.min((1, 2))))


def test_scales_of_the_papers_chain() -> None:
    """Sections 5 and 11, secret interval, epsilon = 1, units of u: group 96, eta = 1 26.6."""
    setting = MethodSetting.of(paper.scenario(0.0, 1, n=40), MethodPromise(), 96)
    u = setting.largest
    found = {}
    for name in STEPWISE:
        ready = METHOD[name].prepare(setting)
        assert isinstance(ready, Ready)
        found[name] = ready.scale / u
    assert found["group"] == pytest.approx(96)
    assert found["bound_independent"] == pytest.approx(26.6, abs=0.05)
    assert (
        found["hushgrid_eta0"]
        < found["hushgrid_eta05"]
        < found["bound_independent"]
        < found["quilt"]
    )
    assert found["hushgrid_eta0"] <= found["wasserstein"] * (1 + 1e-9)


def test_eta_names() -> None:
    assert [m.name for m in methods_with(0.05)] == [m.name for m in METHODS]
    for bad in (0.0, 1.0, float("nan")):
        with pytest.raises(PolicyError, match="eta is"):
            methods_with(bad)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (("week", 1.0), "secret is 'week'"),
        (("interval", 0.0), "epsilon is 0.0"),
        (("interval", 1.0, 0.7), "delta is 0.7"),
    ],
)
def test_bad_promises(terms: tuple, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        MethodPromise(*terms)
