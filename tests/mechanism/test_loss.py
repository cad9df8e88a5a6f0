"""The loss of one house and its inverse: golden values and properties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import smallest_scale, worst_loss
from hushgrid._kernels import loss
from hushgrid.mechanism.policy import MIN_SCALE
from tests import oracle
from tests.strategies import Pmf, law_pairs, ordered_pairs, pmfs


def uniform(top: int, bound: int) -> Pmf:
    return np.r_[np.full(top + 1, 1 / (top + 1)), np.zeros(bound - top)]


# docs/proofs/calibration.md, the table: absent on 0..u0, present on 0..u1, bound u1
UNIFORM = [
    (500, 1000, 0.5, 0, 601.219100),
    (500, 1000, 0.1, 0, 2619.285060),
    (500, 1000, 1.0, 0, 335.678151),
    (500, 1000, 0.5, 0.01, 615.811176),
    (500, 1000, 0.5, 0.1, 744.622028),
    (10, 1000, 0.5, 0, 1067.635759),
    (10, 1000, 0.5, 0.1, 1173.077465),
    (900, 1000, 0.5, 0, 165.763759),
    (250, 2000, 0.04, 0, 22061.070863),
    (500, 1000, 0.5, 1, 2000),
    (1, 1000, 0.5, 1, 2000),
]


@pytest.mark.parametrize(("u0", "u1", "epsilon", "eta", "golden"), UNIFORM)
def test_golden_scales_of_uniform_laws(
    u0: int, u1: int, epsilon: float, eta: float, golden: float
) -> None:
    found = smallest_scale(uniform(u0, u1), uniform(u1, u1), bound=u1, epsilon=epsilon, eta=eta)
    assert found == pytest.approx(golden, rel=1e-6 if eta < 1 else 1e-9)


F0, F1 = [0.5, 0.3, 0.1, 0.05, 0.05], [0.1, 0.1, 0.2, 0.3, 0.3]


@pytest.mark.parametrize(
    ("eta", "half", "one", "loss"),
    [
        (0, 3.524384460, 1.666697332, 0.854139552),
        (0.05, 3.759514604, 1.800418681, 0.911493379),
        (0.2, 4.450520787, 2.177047400, 1.080610727),
        (1, 8, 4, 2),
    ],
)
def test_golden_values_on_five_points(eta: float, half: float, one: float, loss: float) -> None:
    for epsilon, golden in ((0.5, half), (1.0, one)):
        found = smallest_scale(F0, F1, bound=4, epsilon=epsilon, eta=eta)
        assert found == pytest.approx(golden, rel=1e-6)
    assert worst_loss(F0, F1, bound=4, scale=2.0, eta=eta) == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(("eta", "golden"), [(0, 4), (0.1, 4), (1, 8)])
def test_golden_interior_maximum(eta: float, golden: float) -> None:
    ends, middle = [0.5, 0, 0, 0, 0.5], [0, 0, 1.0, 0, 0]
    found = smallest_scale(ends, middle, bound=4, epsilon=0.5, eta=eta)
    assert found == pytest.approx(golden, rel=1e-6)
    assert worst_loss(ends, middle, bound=4, scale=2.0, eta=0) == pytest.approx(1.0, rel=1e-6)
    assert oracle.tail_loss(ends, middle, 2.0) == pytest.approx(0.4338, abs=1e-4)  # wrong, too low


@given(law_pairs(), st.floats(0.2, 50), st.floats(0, 1))
def test_equals_the_literal_formula(pair: tuple[Pmf, Pmf, int], b: float, eta: float) -> None:
    f0, f1, bound = pair
    ours = worst_loss(f0, f1, bound=bound, scale=b, eta=eta)
    assert ours == pytest.approx(oracle.loss(f0, f1, bound, b, eta), rel=1e-9, abs=1e-9)


@given(law_pairs(), st.floats(0.2, 50), st.floats(1.0, 4.0), st.floats(0, 1))
def test_loss_never_rises_with_noise(
    pair: tuple[Pmf, Pmf, int], b: float, more: float, eta: float
) -> None:
    f0, f1, bound = pair
    less_noise, more_noise = (
        worst_loss(f0, f1, bound=bound, scale=s, eta=eta) for s in (b, b * more)
    )
    assert more_noise <= less_noise + 1e-12


@given(law_pairs(), st.floats(0.2, 50), st.floats(0, 1), st.floats(0, 1))
def test_loss_never_falls_with_distrust(
    pair: tuple[Pmf, Pmf, int], b: float, one: float, other: float
) -> None:
    f0, f1, bound = pair
    trusting, wary = (
        worst_loss(f0, f1, bound=bound, scale=b, eta=eta) for eta in sorted((one, other))
    )
    assert trusting <= wary + 1e-12


@given(law_pairs(8), st.floats(0.5, 20))
def test_no_output_beyond_the_bound_is_worse(pair: tuple[Pmf, Pmf, int], b: float) -> None:
    """Every output 500 below 0 to 500 above the bound, in logarithms."""
    f0, f1, bound = pair
    k = np.arange(-500, bound + 501)[:, None] - np.arange(bound + 1)
    with np.errstate(divide="ignore"):
        logs = [np.logaddexp.reduce(np.log(f) - np.abs(k) / b, axis=1) for f in (f0, f1)]
    assert np.abs(logs[1] - logs[0]).max() <= worst_loss(f0, f1, bound=bound, scale=b, eta=0) + 1e-9


@given(ordered_pairs(), st.floats(0.5, 50))
def test_tail_formula_agrees_for_ordered_laws(pair: tuple[Pmf, Pmf, int], b: float) -> None:
    f0, f1, bound = pair
    ours = worst_loss(f0, f1, bound=bound, scale=b, eta=0)
    assert ours == pytest.approx(oracle.tail_loss(f0, f1, b), abs=1e-9)


@given(law_pairs(8), st.floats(0.5, 20), st.floats(0, 1), st.data())
def test_contaminated_worlds_stay_within_the_loss(
    pair: tuple[Pmf, Pmf, int], b: float, eta: float, data: st.DataObject
) -> None:
    f0, f1, bound = pair
    g0, g1 = data.draw(pmfs(bound + 1)), data.draw(pmfs(bound + 1))
    worlds = [oracle.contaminated(f, g, eta) for f, g in ((f0, g0), (f1, g1))]
    realised = oracle.worst_log_ratio([worlds[0]], [worlds[1]], b, -3, bound + 3)
    assert realised <= worst_loss(f0, f1, bound=bound, scale=b, eta=eta) + 1e-9


@given(law_pairs(8), st.floats(0.5, 20), st.floats(0, 1))
def test_a_contaminated_world_attains_the_loss(
    pair: tuple[Pmf, Pmf, int], b: float, eta: float
) -> None:
    """Point masses: one at the output, the other as far from it as the bound allows."""
    f0, f1, bound = pair
    points = np.eye(bound + 1)
    realised = 0.0
    for k in range(bound + 1):
        far = points[0] if k > bound - k else points[bound]
        for a, c in ((f0, f1), (f1, f0)):
            worlds = oracle.contaminated(a, points[k], eta), oracle.contaminated(c, far, eta)
            here = [oracle.output_law([w], b, k, k)[0] for w in worlds]
            realised = max(realised, math.log(here[0] / here[1]))
    claimed = worst_loss(f0, f1, bound=bound, scale=b, eta=eta)
    assert realised == pytest.approx(claimed, abs=1e-9)


@given(law_pairs(), st.floats(0.05, 3), st.floats(0, 1))
def test_smallest_scale_is_enough_and_smallest(
    pair: tuple[Pmf, Pmf, int], epsilon: float, eta: float
) -> None:
    f0, f1, bound = pair
    b = smallest_scale(f0, f1, bound=bound, epsilon=epsilon, eta=eta)
    assert oracle.loss(f0, f1, bound, b, eta) <= epsilon + 1e-12
    assert b <= max(bound / epsilon * (1 + 1e-12), MIN_SCALE)
    if b > MIN_SCALE:
        assert oracle.loss(f0, f1, bound, b * (1 - 1e-9), eta) > epsilon - 1e-9


@given(law_pairs(), st.floats(0.05, 3))
def test_nothing_trusted_is_the_papers_rule(pair: tuple[Pmf, Pmf, int], epsilon: float) -> None:
    f0, f1, bound = pair
    b = smallest_scale(f0, f1, bound=bound, epsilon=epsilon, eta=1)
    assert b == pytest.approx(max(bound / epsilon, MIN_SCALE), rel=1e-9)


@given(law_pairs(), st.floats(0.05, 50), st.sampled_from([0.0, 0.05]) | st.floats(0, 0.99))
def test_compiled_loops_give_the_bits_of_plain_ones(
    pair: tuple[Pmf, Pmf, int], b: float, eta: float
) -> None:
    """An audit may compute a scale again in the other of the two ways."""
    f0, f1 = (np.asarray(f) for f in pair[:2])
    bound = pair[2] if eta else max(f0.size, f1.size) - 1
    ways: list[tuple[Any, tuple[Pmf, Pmf], float]] = [
        (loss.ratio_loop, (f0, f1), math.exp(-1 / b)),
        (loss.log_ratio_loop, (loss.log_pmf(f0), loss.log_pmf(f1)), 1 / b),
    ]
    for loop, laws, q in ways:
        room = np.empty((3, bound + 1))
        fast = loss.compiled(loop)(*laws, bound, q, eta, *room)
        lists = (law.tolist() for law in laws)
        assert fast == loop(*lists, bound, q, eta, *([0.0] * (bound + 1) for _ in range(3)))


@pytest.mark.soak
def test_noise_so_small_that_powers_underflow() -> None:
    """bound/scale = 2000: the linear recursion would divide 0 by 0."""
    f0, f1 = uniform(500, 1000), uniform(1000, 1000)
    for eta in (0.0, 0.01, 0.3):
        found = worst_loss(f0, f1, bound=1000, scale=0.5, eta=eta)
        assert found == pytest.approx(oracle.loss(f0, f1, 1000, 0.5, eta), rel=1e-9)


@pytest.mark.soak
def test_both_recursions_agree_where_they_meet() -> None:
    f0, f1 = uniform(300, 900), uniform(900, 900)
    for eta in (0.0, 0.05):
        above, below = (
            worst_loss(f0, f1, bound=900, scale=900 / x, eta=eta) for x in (679.99, 680.01)
        )
        assert above == pytest.approx(below, rel=1e-4)
        assert oracle.loss(f0, f1, 900, 900 / 680.01, eta) == pytest.approx(below, rel=1e-9)


def test_equal_laws_still_get_noise() -> None:
    assert smallest_scale(F0, F0, bound=4, epsilon=0.5, eta=0) == MIN_SCALE
