"""w-event budgets: no window of w steps spends more than epsilon, whatever is published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import (
    Consumption,
    OccupancyModel,
    Policy,
    PolicyError,
    SimulatedNoise,
    Tariff,
    Uniform,
    Window,
    Zone,
    init,
    step,
)
from hushgrid.accounting.composition import Account
from hushgrid.files.zone_file import PolicyTable
from hushgrid.mechanism.policy import Method
from hushgrid.mechanism.release import nominal_shares

METHODS: list[Method] = ["distribution", "absorption"]


@given(
    st.sampled_from(METHODS),
    st.integers(1, 9),
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.floats(0.01, 5),
)
def test_no_window_spends_more(by: Method, w: int, publish: list[bool], epsilon: float) -> None:
    window, spent = Window(w, by), [0.0]
    spent.clear()
    for wanted in publish:
        offer = window.publication_epsilon(epsilon, spent)
        assert offer >= 0
        spent.append(offer if wanted else 0.0)
    total = [window.probe_epsilon(epsilon) + e for e in spent]
    worst = max(sum(total[i : i + w]) for i in range(len(total)))
    assert worst <= epsilon * (1 + 1e-12)


def test_absorption_by_hand() -> None:
    """w = 5, unit 0.1: skip two, publish with three units, then two steps give up theirs."""
    window = Window(5, "absorption")
    spent: list[float] = []
    offers = []
    for publish in (False, False, True, True, True, True):
        offers.append(round(window.publication_epsilon(1.0, spent), 10))
        spent.append(offers[-1] if publish and offers[-1] > 0 else 0.0)
    assert offers == [0.1, 0.2, 0.3, 0.0, 0.0, 0.1]


def zone() -> tuple[Zone, Tariff, list[OccupancyModel], Consumption]:
    stay, alike = [[0.9, 0.1], [0.2, 0.8]], [0] * 500
    theta = OccupancyModel.factored([[0.5, 0.5]], [[stay]], chain_of=alike)
    f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=alike)
    return Zone("z", [1000] * 500), Tariff(1.0, 62.5), [theta], f


@pytest.mark.parametrize("by", METHODS)
@pytest.mark.parametrize("publish", ["raw", "estimate"])
def test_stream(by: Method, publish: str) -> None:
    """A load that jumps now and then: jumps are published, and the accountant agrees."""
    w, epsilon = 10, 2.0
    policy = Policy(epsilon, horizon=10**9, schedule=Window(w, by), publish=publish)  # type: ignore[arg-type]
    state = init(*zone(), policy)
    account, noise = Account(state), SimulatedNoise(4)
    rng = np.random.default_rng(2)
    loads = np.repeat(rng.integers(50_000, 450_000, 12), 5)
    anew = []
    for load in loads.tolist():
        before = state.rates
        release, state = step(state, load, noise)
        account = account.add(release)
        anew.append(release.look > 0)
        if not release.look and publish == "raw" and before:
            assert release.rate == before[-1]  # nothing new: the last rate stays
    assert 3 <= sum(anew) < len(anew)
    losses = np.array([account.losses(entry)[0] for entry in account.entries])
    windows = np.convolve(losses, np.ones(w), "valid")
    assert windows.max() <= epsilon * (1 + 1e-9)
    assert windows.max() >= 0.8 * epsilon  # and the budget is used
    resumed = Account.resume(account.first, account.save())
    assert resumed.epsilon(0) == account.epsilon(0) == pytest.approx(losses.sum())


def test_what_rounding_leaves_of_a_window_is_no_offer() -> None:
    """An epoch may follow one of another method whose last step took all: 1e-14 is left."""
    f = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(9)])
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    policy = Policy(0.1, horizon=8, schedule=Window(2))
    state = init(Zone("z", [9]), Tariff(1.0, 2.0), [theta], f, policy)
    assert nominal_shares(replace(state, spent=(0.04,)))[1] is not None
    assert nominal_shares(replace(state, spent=(0.05 - 5e-14,)))[1] is None


def test_windows_that_mean_nothing() -> None:
    with pytest.raises(PolicyError, match="window steps is 0"):
        Window(0)
    with pytest.raises(PolicyError, match="window by is 'even'"):
        Window(5, "even")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="give a Window"):
        Policy(1.0, schedule=5)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="give one of window"):
        PolicyTable(1.0, window=Window(5), epsilon_t=(0.5,) * 96)
    with pytest.raises(PolicyError, match="protects all"):
        Policy(1.0, schedule=Window(5), on_empty="publish_exact")
