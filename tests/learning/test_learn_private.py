"""Pooled models and bounds: what a home can move at most, and an attacker who tries."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from hushgrid.errors import PolicyError
from hushgrid.intake.readings import Readings
from hushgrid.learning.em import Design, Fit, fit, select_homes
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import Axis, Histories, axis_of, histories_of, with_labels
from hushgrid.learning.learner import Learned, LearningTerms, learn
from hushgrid.learning.private import (
    PARTS,
    UNIT,
    Statistics,
    add_noise,
    bound_quantile,
    contract_sizes,
    contributions,
    pooled_model,
    statistics,
)
from hushgrid.mechanism.noise import Noise, SecureNoise, SimulatedNoise
from tests.examples import examples

TOP = 5000
ONES = np.ones((2, 2), np.int64)
FITS = int(os.environ.get("HUSHGRID_FITS", "60"))


class Silence(Noise):
    def __init__(self) -> None:
        self.scales: list[float] = []

    def draw(self, scale: float) -> int:
        self.scales.append(scale)
        return 0


class Counting(Silence):
    def __init__(self) -> None:
        super().__init__()
        self.draws_of: list[int] = []

    def draws(self, scale: float, count: int) -> np.ndarray:
        self.draws_of.append(count)
        return super().draws(scale, count)


def design(steps: int, family: str = "lognormal") -> Design:
    t = np.arange(steps)
    tie = np.zeros((4, 3), np.int32)
    tie[:, 2] = 1 + np.arange(4)
    return Design(
        (t % 48 // 12).astype(np.int32),
        (t % 48).astype(np.int32),
        assumed_habits(1800).moves(10.0),
        family=family,  # type: ignore[arg-type]
        tie=tie,
        starts=(0.5,),
        iterations=8,
    )


def homes(n: int, steps: int = 480, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    busy = np.cumsum(rng.random((n, steps)) < 0.1, axis=1) % 2
    return np.rint(np.where(busy, 200, 30) * rng.lognormal(0, 0.5, (n, steps)))


@pytest.mark.parametrize("family", ["lognormal", "gamma"])
def test_no_home_gives_more_than_its_share(family: str) -> None:
    """Whatever its readings: nothing, one value, 0, far above the bound, half missing."""
    x = homes(20)
    x[0], x[1], x[2], x[3] = np.nan, 0.0, 1e9, TOP
    x[4, ::2] = np.nan
    own = fit(x, design(480, family))
    for parts in contributions(own, TOP):
        assert all((part >= 0).all() and part.dtype == np.int64 for part in parts)
        assert sum(int(part.sum()) for part in parts) <= PARTS * UNIT
        assert all(
            int(part.sum()) <= most * UNIT for part, most in zip(parts, (1, 2, 1), strict=True)
        )


@pytest.mark.parametrize("family", ["lognormal", "gamma"])
def test_what_a_home_gives_hangs_on_its_own_readings_alone(family: str) -> None:
    """To the bit, whoever else is there: else replacing one home would move others' shares too."""
    x = homes(6)
    x[5] = np.rint(np.random.default_rng(9).uniform(0, TOP, x.shape[1]))  # many more values
    together = contributions(fit(x, design(480, family)), TOP)
    few = contributions(fit(x[:3], design(480, family)), TOP)
    alone = [contributions(fit(x[i : i + 1], design(480, family)), TOP)[0] for i in range(6)]
    for i in range(6):
        for a, b in zip(together[i], alone[i], strict=True):
            assert (a == b).all()
    for a, b in zip(few[2], alone[2], strict=True):
        assert (a == b).all()
    one, two = fit(x, design(480, family)), fit(x[:3], design(480, family))
    assert (one.sums[:3] == two.sums).all()
    assert (one.moves[:3] == two.moves).all()


def test_noise_is_drawn_for_every_entry_at_twice_the_share() -> None:
    own = fit(homes(15), design(480))
    source = Silence()
    exact = statistics(own, TOP)
    told = add_noise(exact, 0.5, source)
    assert source.scales == [pytest.approx(2 * PARTS * UNIT / 0.5)] * exact.vector.size
    assert (told.vector == exact.vector).all()
    assert told.epsilon == 0.5


@pytest.mark.parametrize("epsilon", np.geomspace(0.01, 20, 25))
def test_opendp_itself_says_no_more_than_what_is_charged(epsilon: float) -> None:
    """Its map rounds up: at the bare quotient every other budget would be exceeded by a bit."""
    sums, sizes = Silence(), Silence()
    add_noise(Statistics(ONES, ONES, ONES, 15, None), epsilon, sums)
    bound_quantile(np.array([900]), contract_sizes(1800), 0.5, epsilon, sizes)
    for source, distance in ((sums, 2 * PARTS * UNIT), (sizes, 2)):
        (scale,) = set(source.scales)
        assert SecureNoise().loss(distance, scale) <= epsilon
        assert SecureNoise().loss(distance, scale) > 0.999 * epsilon


def test_a_bound_draws_once_for_each_size() -> None:
    sizes, peaks = contract_sizes(1800), np.array([900] * 9 + [4000])
    counts = []
    for other in (900, 10**9):
        source = Counting()
        bound_quantile(np.append(peaks, other), sizes, 0.5, 1.0, source)
        counts.append(source.draws_of)
    assert counts[0] == counts[1] == [len(sizes)]  # a draw for each size, whatever the homes


def test_a_large_pool_gives_the_model_of_its_homes() -> None:
    """Without noise the pooled laws are those of all readings of the two states."""
    own = fit(homes(30, 960), design(960))
    model = pooled_model(own, add_noise(statistics(own, TOP), 1.0, Silence()), TOP)
    medians = model.parameters[0, :, :, 0]
    assert medians[:, 0] == pytest.approx(30, rel=0.15)
    assert medians[:, 2] == pytest.approx(200, rel=0.15)
    assert (model.transition > 0).all()
    wild = pooled_model(own, add_noise(statistics(own, TOP), 1e-3, SimulatedNoise(1)), TOP)
    assert np.isfinite(wild.parameters).all()
    assert (wild.transition > 0).all()
    assert wild.transition.sum(axis=-1) == pytest.approx(1.0)


def test_too_few_homes_or_no_budget_is_refused() -> None:
    own = fit(homes(14), design(480))
    with pytest.raises(PolicyError, match="at least 15"):
        add_noise(statistics(own, TOP), 1.0, Silence())
    with pytest.raises(PolicyError, match="budget"):
        add_noise(statistics(fit(homes(15), design(480)), TOP), 0.0, Silence())
    with pytest.raises(PolicyError, match="histogram"):
        statistics(fit(homes(15), design(480, "histogram")), TOP)


def test_bounds_by_a_noisy_count() -> None:
    peaks, sizes = np.array([900] * 90 + [4000] * 10), contract_sizes(1800)
    source = Silence()
    assert bound_quantile(peaks, sizes, 0.5, 1.0, source) == 1000
    assert bound_quantile(peaks, sizes, 0.95, 1.0, source) == 4000
    assert source.scales == [pytest.approx(2.0)] * len(source.scales)
    with pytest.raises(PolicyError, match="budget"):
        bound_quantile(peaks, sizes, 0.95, -1.0, source)


class Weak(Noise):
    """Noise that is too small."""

    def __init__(self, by: float) -> None:
        self.by, self._source = by, SimulatedNoise(8)

    def draw(self, scale: float) -> int:
        return self._source.draw(scale / self.by)


@pytest.mark.soak
def test_membership_attack_stays_below_the_budget() -> None:
    """An attacker who knows all homes but which of two odd ones is in: Clopper-Pearson, 95 %.

    Its score is the log-likelihood ratio of the noisy sums. The two homes, full or empty but for
    one reading, move the sums by 5.6 of the 8 units that noise is made for: the most of ten kinds
    that were tried. `make soak` asks for 500 fits a side. Noise fifteen times too small is found
    out by the same attack.
    """
    epsilon, steps = 2.0, 240
    worlds = homes(15, steps), homes(15, steps)
    once = np.arange(steps) == 100
    worlds[0][0], worlds[1][0] = np.where(once, 0, TOP), np.where(once, TOP, 0)
    exact = [_sums(x, steps) for x in worlds]
    away = np.abs(exact[0].vector - exact[1].vector)
    assert 5 * UNIT < away.sum() <= 2 * PARTS * UNIT

    def score(told: np.ndarray) -> float:
        near, far = (np.abs(told - one.vector).sum() for one in exact)
        return float(far - near)

    source = SimulatedNoise(7)
    refitted = [
        np.array([score(add_noise(_sums(x, steps), epsilon, source).vector) for _ in range(FITS)])
        for x in worlds
    ]
    assert _lower_epsilon(*refitted) <= epsilon
    weak = Weak(15.0)
    leaking = [
        np.array([score(add_noise(s, epsilon, weak).vector) for _ in range(500)]) for s in exact
    ]
    assert _lower_epsilon(*leaking) > epsilon


def _sums(x: np.ndarray, steps: int):
    return statistics(fit(x, design(steps)), TOP)


def _lower_epsilon(inside: np.ndarray, outside: np.ndarray) -> float:
    """The best threshold of the first half, judged on the second half of the scores."""
    half = len(inside) // 2
    cuts = np.quantile(np.concatenate([inside[:half], outside[:half]]), np.linspace(0.05, 0.95, 19))
    rates = [
        ((inside[:half] > c).mean() + 0.02) / ((outside[:half] > c).mean() + 0.02) for c in cuts
    ]
    cut = cuts[int(np.argmax(rates))]
    k, m, n = (
        int((inside[half:] > cut).sum()),
        int((outside[half:] > cut).sum()),
        len(inside) - half,
    )
    low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    high = beta.ppf(0.975, m + 1, n - m) if m < n else 1.0
    return float(np.log(max(low, 1e-12) / high))


def test_the_model_is_made_of_published_sums_alone() -> None:
    """Other homes with the same design and the same sums give the same model."""
    one, two = fit(homes(15, seed=1), design(480)), fit(homes(15, seed=2), design(480))
    told = add_noise(statistics(one, TOP), 1.0, SimulatedNoise(3))
    a, b = pooled_model(one, told, TOP), pooled_model(two, told, TOP)
    assert isinstance(select_homes(a, slice(0, 1)), Fit)
    for name in ("transition", "natural", "initial", "counts"):
        assert (getattr(a, name) == getattr(b, name)).all()


HOUR, DAYS = 3600, 4
AXIS = Axis(1_357_257_600, HOUR, DAYS * 24)  # a Friday, four days of hours
SHOWN = (np.arange(AXIS.steps) * HOUR + 4 * 86_400) % (7 * 86_400)
Row = tuple[str, int, int, int]  # meter, start [UTC s], duration [s], Wh


def lived(name: str, seed: int) -> list[Row]:
    """Four days of one home."""
    (row,) = homes(1, AXIS.steps, seed)
    return [(name, AXIS.begins + HOUR * t, HOUR, int(x)) for t, x in enumerate(row)]


OTHERS = [row for i in range(4) for row in lived(f"m{i}", 10 + i)]


def laid(rows: Iterable[Row], labels: Iterable[tuple[str, int, int]] = ()) -> Histories:
    found = histories_of(Readings.of(*zip(*rows, strict=True)), AXIS, SHOWN)
    known = [one for one in labels if one[0] in found.ids]
    if not any(0 <= at - AXIS.begins < AXIS.steps * HOUR for _, at, _ in known):
        return found
    names, start, occupied = zip(*known, strict=True)
    return with_labels(found, names, np.array(start, np.int64), np.array(occupied, np.int8))


def learned_from(found: Histories) -> Learned:
    """The homes' own fits as a pool takes them: 24 slot groups a day."""
    terms = LearningTerms(law="lognormal", prototypes=1, iterations=6, groups=(24,))
    return learn(found, assumed_habits(HOUR), terms, pooled=True)


SEASONS = (tuple(range(1, 7)), tuple(range(7, 13)))


def vectors(found: Histories, seasons: int = 1) -> dict[str, np.ndarray]:
    """What each fitted home gives to the sums; of two seasons, each has two of the days."""
    if seasons > 1:
        found = replace(found, month=np.repeat([6, 6, 7, 7], 24), seasons=SEASONS)
    result = learned_from(found)
    given = contributions(result.fits, TOP)
    shapes = (24 * seasons, 3), (25 * seasons, 2)
    assert all((shares.shape, laws.shape) == shapes for shares, laws, _ in given)
    return {
        found.ids[i]: np.concatenate([part.ravel() for part in parts])
        for i, parts in zip(result.usable, given, strict=True)
    }


@pytest.fixture(scope="module")
def before() -> dict[int, dict[str, np.ndarray]]:
    """The target as it was before it changed, among the others; with one season and with two."""
    found = laid([*OTHERS, *lived("target", 99)])
    return {seasons: vectors(found, seasons) for seasons in (1, 2)}


stamps = st.one_of(
    st.integers(0, 4_102_444_799),
    st.integers(AXIS.begins - 3 * 86_400, AXIS.begins + (DAYS + 3) * 86_400),
    st.integers(-72, 24 * (DAYS + 3)).map(lambda hour: AXIS.begins + HOUR * hour),
)
strays = st.lists(
    st.tuples(
        stamps,
        st.sampled_from([1, 60, 900, 1800, HOUR, 7200, 86_400, 366 * 86_400]),
        st.one_of(st.integers(-3000, 9000), st.sampled_from([10**12, -(10**12)])),
    ),
    max_size=30,
)
KINDS = ("none", "lived", "zero", "top", "huge", "export", "gaps", "still", "doubled")


def shaped(kind: str, t: int, x: int) -> list[int]:
    """The readings [Wh] of step t, where x is what the home would have used."""
    values = {
        "none": [],
        "zero": [0],
        "top": [TOP],
        "huge": [10**9],
        "export": [-x],
        "gaps": [x] if t % 3 else [],
        "still": [x if t < 40 else 31],  # nothing happens for two days
        "doubled": [x // 4] * 2,
    }
    return values.get(kind, [x])


marks = st.lists(st.tuples(stamps, st.sampled_from([-1, 0, 1])), max_size=20)


@settings(max_examples=examples(40))
@given(
    st.sampled_from(KINDS),
    st.integers(-200, 200),
    strays,
    marks,
    st.sampled_from(["target", "a", "zz", "m00"]),
    st.booleans(),
    st.sampled_from([1, 2]),
)
@example("none", 0, [], [], "target", False, 1)
@example("none", 0, [], [], "target", False, 2)
@example("lived", 40, [], [], "target", False, 2)
@example("lived", 0, [(AXIS.begins - 200 * 86_400, HOUR, 5)], [], "target", True, 1)
def test_one_home_moves_its_own_vector_alone(
    before, kind: str, shift: int, stray, marked, name: str, first: bool, seasons: int
) -> None:
    """Other values, stamps, durations, number of readings, labels, id, order, or nothing at all.

    Every other home gives the same vector to the bit, and the sums move by what is charged at most.
    """
    base = before[seasons]
    own = [
        (name, at + HOUR * shift, length, value)
        for t, (_, at, length, wh) in enumerate(lived(name, 7))
        for value in shaped(kind, t, wh)
    ]
    own += [(name, *one) for one in stray]
    rows = [*own, *OTHERS] if first else [*OTHERS, *own]
    found = vectors(laid(rows, [(name, *mark) for mark in marked]), seasons)
    for other in ("m0", "m1", "m2", "m3"):
        assert (found[other] == base[other]).all()
    nothing = np.zeros_like(base["m0"])
    sums = [sum(every.values(), nothing) for every in (base, found)]
    assert set(found) <= {"m0", "m1", "m2", "m3", name}
    assert np.abs(sums[0] - sums[1]).sum() <= 2 * PARTS * UNIT


def test_labels_of_one_home_leave_the_states_of_others() -> None:
    """Under a prior that does not tell states apart, they are named home by home."""
    rng, steps = np.random.default_rng(3), 192
    odd = np.arange(steps) % 2 == 1
    same = Design(odd.astype(np.int32), np.zeros(steps, np.int32), (np.eye(2) * 20 + 1)[None],
                  starts=(0.5,), iterations=30)  # fmt: skip
    state = np.cumsum(rng.random((3, steps)) < 0.08, axis=1) % 2
    small = np.where(state, 20, 10) * rng.lognormal(0, 0.05, state.shape)
    large = np.where(state, 500, 1000) * rng.lognormal(0, 0.6, state.shape)
    x = np.rint(np.where(odd, small, large))
    labels = np.full(x.shape, -1, np.int8)
    labels[0, :48] = 0
    bare, labelled = fit(x, same), fit(x, same, labels=labels)
    for name in ("sums", "moves", "transition", "initial"):
        assert (getattr(bare, name)[1:] == getattr(labelled, name)[1:]).all()


def test_stamps_of_one_home_do_not_move_the_sums_of_the_others() -> None:
    """One reading a month early: an axis made to hold it would move all homes' vectors."""
    rows = [row for i in range(40) for row in lived(f"m{i:02d}", i)]
    early = ("m00", AXIS.begins - 28 * 86_400, HOUR, 5)
    sums = [
        statistics(learned_from(laid(every)).fits, TOP).vector for every in (rows, [*rows, early])
    ]
    assert (sums[0] == sums[1]).all()
    readings = Readings.of(*zip(*rows, early, strict=True))
    ends = AXIS.begins + AXIS.steps * HOUR
    assert axis_of(readings, HOUR, begins=AXIS.begins, ends=ends) == AXIS
    wide = axis_of(readings, HOUR)
    shown = (np.arange(wide.steps) * HOUR + 4 * 86_400) % (7 * 86_400)
    stretched = statistics(learned_from(histories_of(readings, wide, shown)).fits, TOP).vector
    assert np.abs(stretched - sums[0]).sum() > 2 * PARTS * UNIT
