"""What the promises bound and what the strongest guess reaches, in many small worlds.

Factored models, each theta apart: one release moves a house's odds by at most e^loss at the first
step, or at any step for an adversary who knows the occupancy of all others; all releases of a day
by at most e^TPL (docs/proofs/temporal.md). Without that knowledge one later release can do more.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    Exact,
    Factored,
    Histogram,
    Knowledge,
    OccupancyModel,
    Zone,
    look_back,
    smallest_scale,
    watch,
    worst_loss,
)
from hushgrid._numbers import Floats
from hushgrid.accounting.temporal import temporal_leakage
from tests.adversary.worlds import release

WORLDS = int(os.environ.get("HUSHGRID_WORLDS", "250"))  # 1000 in make soak
SLACK = 1e-9  # rounding of the filter; losses are rounded up themselves


class Case:
    """1 to 3 houses, 2 to 4 steps, two models; laws ordered by likelihood ratio, or not at all."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([77, seed])
        self.n, self.horizon = int(rng.integers(1, 4)), int(rng.integers(2, 5))
        self.ordered = seed % 2 == 0
        self.bounds = rng.integers(1, 6, self.n)
        self.pairs = [self._pair(rng, int(u)) for u in self.bounds]
        self.scale = float(np.exp(rng.uniform(np.log(0.4), np.log(10.0))))
        self.initial = rng.dirichlet([1, 1], (2, self.n)) * 0.98 + 0.01
        stay = rng.uniform(0.0, 1.0, (2, self.n, 2))
        if seed % 5 == 0:
            stay[rng.random(stay.shape) < 0.3] = 1.0  # occupancy that cannot change
        self.moves = np.stack(
            [np.stack([stay[..., 0], 1 - stay[..., 0]], -1),
             np.stack([1 - stay[..., 1], stay[..., 1]], -1)], -2,
        )  # fmt: skip
        self.models = [
            OccupancyModel.factored(self.initial[m], self.moves[m][None]) for m in (0, 1)
        ]
        f = Consumption.by_class(
            absent=[Histogram(p[0]) for p in self.pairs],
            present=[Histogram(p[1]) for p in self.pairs],
        )
        self.knowledge = Knowledge(Zone("z", self.bounds), self.models, f)
        self.top = int(self.bounds.sum())
        self.outputs = rng.integers(-8, self.top + 9, self.horizon).tolist()
        if seed % 3 == 0:  # extremes, all day
            self.outputs = [self.top + 5 if seed % 2 else -5] * self.horizon
        self.losses = np.array(
            [
                worst_loss(p[0], p[1], bound=int(u), scale=self.scale, eta=0.0)
                for p, u in zip(self.pairs, self.bounds, strict=True)
            ]
        )

    def _pair(self, rng: np.random.Generator, u: int) -> tuple[Floats, Floats]:
        absent = rng.dirichlet(np.full(u + 1, 0.7)) + 1e-3
        if self.ordered:
            present = absent * np.exp(np.cumsum(rng.exponential(1.0, u + 1)))
        else:
            present = rng.dirichlet(np.full(u + 1, 0.4)) + 1e-6
        return absent / absent.sum(), present / present.sum()

    def marginal(self, model: int, t: int) -> Floats:
        """Pr[at home] at step t before any release."""
        law = self.initial[model]
        for _ in range(t - 1):
            law = np.array([row @ a for row, a in zip(law, self.moves[model], strict=True)])
        return np.asarray(law[:, 1])


def log_odds(p: Floats) -> Floats:
    return np.asarray(np.log(p) - np.log1p(-p))


def moved(case: Case, z: int, who: type[Exact] | type[Factored] = Exact) -> Floats:
    """(models, houses): what one release adds to the log odds of step 1."""
    home = watch(who(case.knowledge), [release(1, z, case.scale)]).home[:, 0]
    return np.array([log_odds(home[m]) - log_odds(case.marginal(m, 1)) for m in (0, 1)])


@pytest.mark.soak
def test_odds_in_many_worlds() -> None:
    closest_day = 0.0
    for seed in range(WORLDS):
        case = Case(seed)
        assert (np.abs(moved(case, case.outputs[0])) <= case.losses + SLACK).all(), seed
        day = [release(t, z, case.scale) for t, z in enumerate(case.outputs, 1)]
        home = look_back(Exact(case.knowledge), day).home
        for m in (0, 1):
            bound = temporal_leakage(case.models[m], np.tile(case.losses, (case.horizon, 1))).total
            before = np.array([case.marginal(m, t) for t in range(1, case.horizon + 1)])
            gain = np.abs(log_odds(home[m]) - log_odds(before))
            assert (gain <= bound + SLACK).all(), seed
            closest_day = max(closest_day, float((gain / bound).max()))
    assert closest_day > 0.95  # the bound is worth stating


def test_every_release_given_the_occupancy_of_all_others() -> None:
    """Step 1 to 4 of each world: the joint law, conditional on every state of the other houses."""
    for seed in range(WORLDS):
        case = Case(seed)
        adversary = Exact(case.knowledge)
        beliefs = adversary.start()
        for t, z in enumerate(case.outputs, 1):
            before = adversary.skip(beliefs)
            beliefs = adversary.step(beliefs, release(t, z, case.scale))
            for prior, posterior in zip(before.laws, beliefs.laws, strict=True):
                for house, loss in enumerate(case.losses):
                    shift = _log_odds_of(posterior, house) - _log_odds_of(prior, house)
                    assert np.abs(shift[np.isfinite(shift)]).max(initial=0.0) <= loss + SLACK, seed


def _log_odds_of(joint: Floats, house: int) -> Floats:
    """Of one house, given each state of the others; not finite where its state is certain."""
    with np.errstate(invalid="ignore"):
        return np.take(joint, 1, house) - np.take(joint, 0, house)


def test_one_price_can_move_the_odds_by_more_where_others_are_unknown() -> None:
    """Ten houses whose occupancy does not change, each reading 0 or 1 Wh, epsilon = 0.5.

    In the first nine slots house 0 and one other house consume; outputs of 1 Wh, forty times each,
    leave the states in which they differ. In the last slot all but house 0 consume: the nine of
    them differ from house 0 together, and one price reveals nine times what it reveals of one.
    """
    n, rounds, epsilon = 10, 40, 0.5
    horizon = (n - 1) * rounds + 1
    calendar = Calendar([*list(range(n - 1)) * rounds, n - 1])
    model = OccupancyModel.factored(
        [[0.5, 0.5]] * n, [[[[1.0, 0.0], [0.0, 1.0]]] * n] * n, calendar=calendar
    )
    idle, busy = Histogram([1.0, 0.0]), Histogram([0.0, 1.0])
    consumes = np.zeros((n, n), np.int32)
    for slot in range(n - 1):
        consumes[slot, [0, slot + 1]] = 1
    consumes[n - 1, 1:] = 1
    f = Consumption(
        (idle, busy), np.zeros((n, n), np.int32), consumes, np.arange(n, dtype=np.int32), calendar
    )
    adversary = Exact(Knowledge(Zone("z", [1] * n), [model], f))
    scale = smallest_scale(
        np.array([1.0, 0.0]), np.array([0.0, 1.0]), bound=1, epsilon=epsilon, eta=1.0
    )
    beliefs = adversary.start()
    for t in range(1, horizon):
        beliefs = adversary.step(beliefs, release(t, 1, scale))
    before = adversary.skip(beliefs)
    after = adversary.step(beliefs, release(horizon, n, scale))
    shift = log_odds(adversary.home(after.laws[0])) - log_odds(adversary.home(before.laws[0]))
    assert abs(shift[0]) == pytest.approx(9 * epsilon, abs=1e-6)
    known = _log_odds_of(after.laws[0], 0) - _log_odds_of(before.laws[0], 0)
    assert np.abs(known).max() <= epsilon + SLACK
    total = temporal_leakage(model, [epsilon] * horizon).total[-1, 0]
    assert abs(log_odds(adversary.home(after.laws[0]))[0]) <= total  # prior odds are even


def test_an_adversarial_output_reaches_the_loss() -> None:
    """Ordered laws have their worst output in a tail, whatever the others do."""
    for seed in range(0, WORLDS, 2):
        case = Case(seed)
        reached = np.maximum(*(np.abs(moved(case, z)) for z in (-1, case.top + 1)))
        assert (reached >= 0.99 * case.losses).all(), seed


def test_a_house_alone_reaches_its_loss_for_any_laws() -> None:
    found = 0
    for seed in range(1, WORLDS, 2):
        case = Case(seed)
        if case.n > 1:
            continue
        found += 1
        for who in (Exact, Factored):
            each = [np.abs(moved(case, z, who))[0, 0] for z in range(case.top + 1)]
            assert 0.99 * case.losses[0] <= max(each) <= case.losses[0] + SLACK
    assert found > WORLDS / 10


def test_prior_odds_matter_not() -> None:
    """The gain in log odds from one release is the same under either model's prior, if alone."""
    case = next(c for c in map(Case, range(1, 50)) if c.n == 1)
    gain = moved(case, 0)
    assert gain[0] == pytest.approx(gain[1], abs=1e-9)
