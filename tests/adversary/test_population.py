"""Population against Exact where both can be had, and against itself where only it can."""

from __future__ import annotations

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    Exact,
    Factored,
    Gamma,
    Histogram,
    Knowledge,
    Law,
    OccupancyModel,
    Population,
    Release,
    Uniform,
    Zone,
    look_back,
    watch,
)
from hushgrid.adversary import population as counts
from hushgrid.adversary import population as frequencies
from hushgrid.adversary.knowledge import Blur
from hushgrid.errors import ModelError
from tests.adversary.worlds import GAUSSIAN, play, release

TIGHT = 1e-10


def alike(
    n: int, absent: Law, present: Law, *, own: tuple[Law, Law] | None = None, seed: int = 1
) -> Knowledge:
    """Houses alike; the target (house 0) may have laws and a chain of its own."""
    rng = np.random.default_rng(seed)
    laws = [own or (absent, present), (absent, present)]
    kinds = [0 if own else 1] + [1] * (n - 1)
    leave, come = rng.uniform(0.05, 0.4, (2, 3, 2))
    a = np.stack([np.stack([1 - come, come], -1), np.stack([leave, 1 - leave], -1)], -2)
    theta = OccupancyModel.factored(
        rng.dirichlet([2, 2], 2), a, calendar=Calendar([0, 1, 2]), chain_of=kinds
    )
    f = Consumption.by_class(
        absent=[p[0] for p in laws], present=[p[1] for p in laws], class_of=kinds
    )
    bound = [max(law.top for law in laws[k]) for k in kinds]
    return Knowledge(Zone("z", bound), [theta], f)


def day(knowledge: Knowledge, scale: float, steps: int, noise: str) -> list[Release]:
    rng = np.random.default_rng(5)
    top = int(knowledge.zone.bound.sum())
    return [
        release(t, int(rng.integers(-top // 4, top + top // 4)), scale, noise=noise)
        for t in range(1, steps + 1)
        if t != 4
    ]


@pytest.mark.parametrize("n", [1, 2, 5, 10])
@pytest.mark.parametrize("noise", ["laplace", GAUSSIAN])
@pytest.mark.parametrize("apart", [False, True])
def test_population_equals_exact(n: int, noise: str, apart: bool) -> None:
    own = (Uniform(9), Histogram([0.1] * 14)) if apart else None
    knowledge = alike(n, Gamma(1.5, 2.0, 12), Uniform(17), own=own)
    releases = day(knowledge, 11.0, 8, noise)
    for look in (watch, look_back):
        exact, found = (look(who, releases) for who in (Exact(knowledge), Population(knowledge)))
        assert found.houses == (0,)
        assert np.abs(found.home[0, :, 0] - exact.home[0, :, 0]).max() <= TIGHT
        assert np.abs(found.evidence - exact.evidence).max() <= TIGHT


def test_any_house_can_be_the_target() -> None:
    knowledge = alike(4, Uniform(3), Uniform(8), seed=3)
    releases = day(knowledge, 6.0, 6, "laplace")
    homes = [watch(Population(knowledge, target=i), releases).home for i in range(4)]
    for home in homes[1:]:
        assert np.array_equal(home, homes[0])


def test_counts_move_as_binomials_do() -> None:
    """Against the plain double sum over who stays and who comes, n = 6."""
    from math import comb

    n, come, stay = 6, 0.3, 0.85
    law = np.random.default_rng(2).dirichlet(np.ones(n + 1))

    def chance(m: int, to: int) -> float:
        return sum(
            comb(m, k) * stay**k * (1 - stay) ** (m - k)
            * comb(n - m, to - k) * come ** (to - k) * (1 - come) ** (n - m - to + k)
            for k in range(m + 1)
            if 0 <= to - k <= n - m
        )  # fmt: skip

    table = np.array([[chance(m, to) for to in range(n + 1)] for m in range(n + 1)])
    assert np.abs(counts.predict_counts(law, come, stay) - law @ table).max() <= 1e-15
    assert np.abs(counts.predict_counts_back(law, come, stay) - table @ law).max() <= 1e-15


@pytest.mark.parametrize(
    ("absent", "present"),
    [
        (Uniform(20), Uniform(60)),
        (Gamma(1.5, 5.0, 60), Gamma(2.5, 8.0, 60)),
        (Histogram([0.5, *[0.0] * 19, 0.5]), Histogram([0.2, *[0.0] * 19, 0.3, *[0.0] * 19, 0.5])),
    ],
    ids=["uniform", "gamma", "steps of 20 Wh"],
)
@pytest.mark.parametrize("blur", [Blur("laplace", 40.0), Blur("gaussian", 50.0)], ids=["L", "G"])
@pytest.mark.sampled
def test_frequencies_equal_convolution(absent: Law, present: Law, blur: Blur) -> None:
    """30 houses, where both can be had; z near the load, in its tails and beyond."""
    own, n = (Uniform(30).pmf, Uniform(60).pmf), 30
    other = (absent.pmf, present.pmf)
    for z in (-300, 100, 700, 1200, 1750, 2300):
        direct = counts._direct(own, other, n, z, blur)
        found = frequencies.frequency_likelihood(own, other, n, z, blur)
        near = direct > direct.max() - 35
        assert np.abs(found - direct)[near].max() <= 1e-7
        assert np.isfinite(found).all()


@pytest.mark.soak
def test_thousands_of_houses() -> None:
    """N = 2000: the target's odds move no more than a house's own law allows, and as Factored's."""
    absent, present = Gamma(1.5, 80.0, 1000), Gamma(2.5, 125.0, 1000)
    knowledge = alike(2000, absent, present)
    theta, f = knowledge.models[0], knowledge.consumption
    played = play(knowledge.zone, [theta], f, 500.0, 6, 1)
    found = watch(Population(played.knowledge), played.releases).home[0, :, 0]
    apart = watch(Factored(played.knowledge), played.releases).home[0, :, 0]
    assert ((found > 0) & (found < 1)).all()
    assert np.abs(found - apart).max() <= 0.002
    assert np.abs(np.diff(found)).max() > 0.01


def test_houses_that_are_not_alike() -> None:
    theta = OccupancyModel.factored(
        [[0.5, 0.5], [0.4, 0.6], [0.4, 0.6]], [[np.eye(2)] * 3], name="elm"
    )
    f = Consumption.by_class(absent=[Uniform(1)] * 3, present=[Uniform(2)] * 3, class_of=[0, 1, 1])
    knowledge = Knowledge(Zone("z", [2] * 3), [theta], f)
    Population(knowledge)  # chains 1 and 2 say the same
    with pytest.raises(ModelError, match="model elm moves houses other than the target in diff"):
        Population(knowledge, target=1)
    other = Consumption.by_class(absent=[Uniform(1)] * 3, present=[Uniform(2)] * 3)
    with pytest.raises(ModelError, match="different laws of readings"):
        Population(Knowledge(Zone("z", [2] * 3), [theta], other))
    with pytest.raises(ModelError, match=r"target is 3; give one of the houses 0..2"):
        Population(knowledge, target=3)
    locked = OccupancyModel.blocked(
        [(0, 1), (2,)], [[0.5, 0, 0, 0.5], [1, 0]], [[np.eye(4)], [np.eye(2)]]
    )
    for who in (Population, Factored):
        with pytest.raises(ModelError, match="model theta has houses that move together"):
            who(Knowledge(Zone("z", [2] * 3), [locked], f))
