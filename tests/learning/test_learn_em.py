"""Fits of hidden Markov models: a brute-force oracle, hmmlearn's own path, recovery, rising."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gamma as gamma_law
from scipy.stats import lognorm, norm

from hushgrid._kernels.chains import _many, _two
from hushgrid.errors import ModelError
from hushgrid.learning._families import parameters_of
from hushgrid.learning.em import Design, Fit, Fitting, expected, fit, posterior, score


def design(
    steps: int, *, states: int = 2, slots: int = 1, groups: int = 1, **more: object
) -> Design:
    t = np.arange(steps)
    moves = more.pop("moves", np.full((slots, states, states), 0.5))
    return Design(
        group=(t % groups).astype(np.int32),
        slot=(t % slots).astype(np.int32),
        moves=np.asarray(moves, np.float64),
        **more,  # type: ignore[arg-type]
    )


def density(family: str, x: float, a: float, b: float) -> float:
    """By scipy, in the words of the parameters."""
    if family == "normal":
        return float(norm.pdf(x, a, b))
    if family == "lognormal":
        return float(lognorm.pdf(x + 0.5, b, scale=a))
    return float(gamma_law.pdf(x + 0.5, a, scale=b))


def enumerated(x: np.ndarray, found: Fit, labels: np.ndarray | None = None):
    """Likelihood, share of states but 0 by step, and expected moves, over every path."""
    d, k, steps = found.design, found.design.states, len(x)
    total, home, moves = 0.0, np.zeros(steps), np.zeros(found.transition.shape[1:])
    seen = [  # the density of what step t reads, in every state; nothing read tells nothing
        [
            density(d.family, x[t], *found.parameters[0, d.group[t], s]) if np.isfinite(x[t]) else 1
            for s in range(k)
        ]
        for t in range(steps)
    ]
    for path in product(range(k), repeat=steps):
        p = found.initial[0, path[0]]
        for t, s in enumerate(path):
            if t:
                p *= found.transition[0, d.slot[t], path[t - 1], s]
            p *= seen[t][s]
            if labels is not None:
                p *= {-1: 1, -2: float(s > 0)}.get(int(labels[t]), float(labels[t] == s))
        total += p
        home += p * (np.array(path) > 0)
        for t in range(1, steps):
            moves[d.slot[t], path[t - 1], path[t]] += p
    return np.log(total), home / total, moves / total


@pytest.mark.parametrize("family", ["normal", "lognormal", "gamma"])
@pytest.mark.parametrize("states", [2, 3])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=4, deadline=None)
def test_expectations_are_those_of_all_paths(family: str, states: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.rint(rng.gamma(2.0, 40.0, 7))
    x[rng.integers(7)] = np.nan
    d = design(7, states=states, slots=3, groups=2, family=family, starts=(0.5,), iterations=2)
    found = fit(x[None], d)
    labels = rng.choice([-2, -1, 0, 1], 7).astype(np.int8)
    if states == 2:
        labels[labels == -2] = 1
    for given_labels in (None, labels):
        told = expected(x[None], found, labels=None if given_labels is None else labels[None])
        likelihood, home, moves = enumerated(x, found, given_labels)
        assert told.log_likelihood[0] == pytest.approx(likelihood, rel=1e-9)
        assert told.post[0] == pytest.approx(home, abs=1e-9)
        assert told.moves[0] == pytest.approx(moves, abs=1e-9)


def test_two_state_kernel_is_the_general_one() -> None:
    """A third state that is never entered leaves the two others as they are."""
    rng = np.random.default_rng(5)
    x = np.rint(rng.gamma(2.0, 40.0, (2, 400)))
    x[0, 30:60] = np.nan
    d = design(400, slots=4, groups=2, starts=(0.5,), iterations=6)
    two = fit(x, d)
    wide = np.zeros((4, 3, 3))
    wide[:, :2, :2], wide[:, 2, 2] = d.moves, 1.0
    three = Fit(
        **{name: getattr(two, name) for name in two.__dataclass_fields__}
        | {
            "design": design(400, states=3, slots=4, groups=2, moves=wide),
            "initial": np.pad(two.initial, ((0, 0), (0, 1))),
            "transition": np.stack([np.pad(a, ((0, 0), (0, 1), (0, 1))) for a in two.transition])
            + np.pad(np.zeros((2, 4, 2, 2)), ((0, 0), (0, 0), (0, 1), (0, 1)))
            + np.diag([0, 0, 1.0]),
            "natural": np.concatenate([two.natural, two.natural[:, :, :1]], axis=2),
        }
    )
    assert score(x, three) == pytest.approx(score(x, two), rel=1e-12)
    assert posterior(x, three) == pytest.approx(posterior(x, two), abs=1e-10)


def test_same_path_as_hmmlearn_on_the_homogeneous_gaussian_case() -> None:
    """hmmlearn 0.3, no priors, from the same start: every log-likelihood alike (1e-6 asked)."""
    hmm = pytest.importorskip("hmmlearn.hmm")
    rng = np.random.default_rng(1)
    state = np.zeros(2000, int)
    for t in range(1, 2000):
        state[t] = rng.random() < (0.1 if state[t - 1] == 0 else 0.85)
    x = np.where(state == 1, rng.normal(50, 10, 2000), rng.normal(20, 8, 2000))
    d = design(
        2000, family="normal", weight=0.0, first=0.0, moves=np.zeros((1, 2, 2)), tolerance=-1
    )
    work = Fitting(x[None], d, None)
    begun = work.started(0.5)
    begun.transition[:], begun.initial[:] = [[0.8, 0.2], [0.3, 0.7]], [0.6, 0.4]
    law = parameters_of("normal", begun.natural, work.values)[0, 0]
    peer = hmm.GaussianHMM(2, "diag", covars_prior=0, n_iter=15, tol=-np.inf, init_params="")
    peer.startprob_, peer.transmat_ = begun.initial[0].copy(), begun.transition[0, 0].copy()
    peer.means_, peer.covars_ = law[:, :1].copy(), law[:, 1:] ** 2
    peer.fit(x[:, None])
    work.iterate(begun, 15)
    ours = [float(risen[0]) for risen in begun.rising]
    assert ours == pytest.approx(list(peer.monitor_.history), rel=1e-9)


@pytest.mark.parametrize("family", ["normal", "lognormal", "gamma", "histogram"])
@given(seed=st.integers(0, 10_000), missing=st.floats(0, 0.6))
@settings(max_examples=8, deadline=None)
def test_the_objective_never_falls(family: str, seed: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    x = np.rint(rng.gamma(rng.uniform(0.3, 4), 50.0, (3, 300)))
    x[rng.random(x.shape) < missing] = np.nan
    tie = np.array([[0, 1], [0, 2]], np.int32)
    found = fit(x, design(300, slots=6, groups=2, family=family, tie=tie, starts=(0.4,)))
    gain = np.diff(found.rising, axis=0)
    gain = gain[np.isfinite(gain)]
    assert gain.size
    assert (gain > -1e-7 * np.abs(np.nanmax(found.rising))).all()


def simulated(homes: int, steps: int, rng: np.random.Generator):
    """Two states, two slots of moves, two groups of log-normal laws; moves by hand."""
    a = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.05, 0.95]]])
    medians = np.array([[20.0, 120.0], [20.0, 300.0]])
    s, x = np.zeros((homes, steps), int), np.zeros((homes, steps))
    for t in range(steps):
        if t:
            s[:, t] = rng.random(homes) < a[t % 2][s[:, t - 1], 1]
        x[:, t] = medians[t % 2][s[:, t]] * np.exp(0.4 * rng.standard_normal(homes))
    return np.rint(x), s, a, medians


def test_recovery_at_the_expected_rate() -> None:
    """Errors of the chances shrink like one over the root of the steps: by 4 for 16 times more.

    With 40 homes the mean absolute error has a relative error of about 1/sqrt(160) = 8 %, so a
    ratio of 4 is seen within 3 to 5.4 but for a chance far below 1 %.
    """
    rng = np.random.default_rng(11)
    errors = []
    for steps in (600, 9600):
        x, s, a, medians = simulated(40, steps, rng)
        d = design(steps, slots=2, groups=2, starts=(0.4, 0.6), iterations=100)
        found = fit(x, d)
        errors.append(np.abs(found.transition - a).mean())
        assert found.ordered.all()
        right = ((posterior(x, found) > 0.5) == s).mean()
        assert right > 0.97
    assert found.parameters[:, :, :, 0].mean(axis=0) == pytest.approx(medians, rel=0.05)
    assert 3 < errors[0] / errors[1] < 5.4


def test_labels_settle_what_readings_cannot() -> None:
    """Laws that are alike: labels of the first half fix moves and posteriors are the labels."""
    rng = np.random.default_rng(3)
    _, s, _, _ = simulated(2, 800, rng)
    x = np.rint(rng.lognormal(4, 0.3, s.shape))
    labels = s.astype(np.int8)
    labels[:, 400:] = -1
    d = design(800, slots=2, starts=(0.5,))
    found = fit(x, d, labels=labels)
    assert (posterior(x, found, labels=labels)[:, :400] == s[:, :400]).all()
    assert found.transition[0, 0, 0, 1] == pytest.approx(0.1, abs=0.12)


def test_states_are_named_by_what_they_use_and_zeros_only_by_declaration() -> None:
    rng = np.random.default_rng(4)
    x, *_ = simulated(3, 900, rng)
    found = fit(x, design(900, starts=(0.8,)))
    assert (np.diff(found.parameters[:, 0, :, 0], axis=1) > 0).all()
    assert (found.transition > 0).all()
    assert (found.initial > 0).all()
    declared = np.array([[[0.5, 0.5], [0.0, 0.5]]])  # nobody leaves
    assert (fit(x, design(900, moves=declared)).transition[:, 0, 1, 0] == 0).all()


def test_homes_do_not_touch_each_other_and_chunks_do_not_show() -> None:
    x = np.rint(np.random.default_rng(6).gamma(2.0, 40.0, (70, 200)))
    d = design(200, groups=2, starts=(0.5,), iterations=5)
    together, alone = fit(x, d), fit(x[66:67], d)
    assert together.parameters[66] == pytest.approx(alone.parameters[0], rel=1e-12)
    assert together.log_likelihood[66] == pytest.approx(float(alone.log_likelihood[0]), rel=1e-12)


def test_homes_without_readings_or_with_one_value_do_not_break_a_fit() -> None:
    x = np.full((3, 100), np.nan)
    x[1] = 7.0
    x[2] = np.arange(100)
    for family in ("normal", "lognormal", "gamma", "histogram"):
        found = fit(x, design(100, family=family))
        assert np.isfinite(found.transition).all()
        assert np.isfinite(found.parameters).all()
        assert np.isfinite(found.log_likelihood).all()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slot": np.zeros(3, np.int32)}, "slot"),
        ({"moves": np.full((1, 2, 2), -1.0)}, "moves"),
        ({"moves": np.zeros((0, 2, 2))}, "moves"),
        ({"family": "weibull"}, "law"),
    ],
)
def test_bad_designs_are_named(change: dict[str, object], field: str) -> None:
    from dataclasses import replace

    d = replace(design(10), **change)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=field):
        fit(np.ones((1, 10)), d)


@pytest.mark.parametrize("loop", [_two, _many])
def test_a_reading_that_a_label_makes_all_but_impossible_has_a_likelihood(loop: Any) -> None:
    """A home of mostly zeros: a long run of likely steps, then one at the floor of likelihoods."""
    steps = 400
    code, label = np.zeros(steps, np.int32), np.full(steps, -1, np.int8)
    code[-1], label[-1] = 1, 0
    relative = np.array([[[0.5, 0.5]], [[1e-300, 1.0]]])  # values, groups, states
    where, even = np.zeros(steps, np.int32), np.full((1, 2, 2), 0.5)
    post = np.empty(steps)
    total = loop(
        code, label, where, where, relative, np.zeros((2, 1)), np.full(2, 0.5), even,
        np.zeros((2, 1, 2)), np.zeros((1, 2, 2)), np.zeros(2), post,
    )  # fmt: skip
    assert total == pytest.approx((steps - 1) * np.log(0.5) + np.log(0.5e-300))
    assert np.isfinite(post).all()
