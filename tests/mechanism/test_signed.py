"""Readings below zero: the mechanism on net readings, against enumerations without an offset.

The oracle here adds, blurs and compares net Wh from -v to u, term by term.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import (
    Consumption,
    Histogram,
    OccupancyModel,
    Policy,
    Scenario,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    plan,
    simulate,
    step,
)
from hushgrid.adversary.exact import Exact
from hushgrid.adversary.filter import watch
from hushgrid.adversary.knowledge import Knowledge
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.errors import ConsumptionError, PolicyError, ReadingError, ZoneError
from hushgrid.mechanism.digest import policy_fields
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.scheduler import house_losses
from hushgrid.model.consumption import Elasticity
from hushgrid.model.laws import Net, TruncatedNormal, split
from hushgrid.model.zone import cost, optimal_rate, tally
from hushgrid.planning.clamp import choose_clamp, expected_error
from tests.mechanism.signed_noise import Law, added, contaminated, noise
from tests.strategies import random_row

TARIFF = Tariff(alpha=1.0, beta=62.5, floor=-1000.0)


def published(load: Law, scale: float, outputs: range) -> list[float]:
    return [sum(p * noise(y - z, scale) for z, p in load.items()) for y in outputs]


def random_zone(rng: np.random.Generator) -> tuple[Zone, OccupancyModel, list[list[Law]]]:
    """Houses some of which export, their chains, and laws of net readings by state and house."""
    n = int(rng.integers(1, 4))
    u, v = rng.integers(1, 4, n), rng.integers(0, 4, n)
    v[0] = max(v[0], 1)
    laws: list[list[Law]] = [[], []]
    for s, h in product((0, 1), range(n)):
        weights = rng.random(u[h] + v[h] + 1) * (rng.random(u[h] + v[h] + 1) < 0.8) + 1e-2
        each = (weights / weights.sum()).tolist()
        laws[s].append(dict(zip(range(-int(v[h]), int(u[h]) + 1), each, strict=True)))
    rows = [[random_row(rng, 2, 0.3) for _ in range(2)] for _ in range(n)]
    initial = [random_row(rng, 2, 0.3) for _ in range(n)]
    theta = OccupancyModel.factored(np.array(initial) / 64, np.array([rows]) / 64)
    return Zone.net("z", u, v), theta, laws


def consumption(laws: list[list[Law]]) -> Consumption:
    absent, present = ([Histogram(list(law.values())) for law in some] for some in laws)
    return Consumption.by_class(absent=absent, present=present)


@pytest.mark.parametrize("seed", range(12))
def test_every_protected_pair_is_within_epsilon_over_all_states_and_net_readings(seed: int) -> None:
    """Over the 2^N states, every contamination by a point of -v..u, and every output."""
    rng = np.random.default_rng([14, seed])
    zone, theta, laws = random_zone(rng)
    f, n = consumption(laws), zone.n_houses
    low, high = -int(zone.export.sum()) - 9, int((zone.bound - zone.export).sum()) + 9
    for epsilon, eta in product((0.3, 1.0), (0.0, 0.2, 1.0)):
        at = init(zone, TARIFF, [theta], f, Policy(epsilon, horizon=2, eta=eta)).scheduler.at(1)
        worst = 0.0
        for house in np.flatnonzero(at.protected.mask()).tolist():
            ends = {0: (0,)} if eta == 0 else {0: tuple(laws[0][house])}
            for others in product((0, 1), repeat=n - 1):
                rest = [h for h in range(n) if h != house]
                around = [laws[s][h] for s, h in zip(others, rest, strict=True)]
                for points in product(*(ends[0],) * 2):
                    own = [contaminated(laws[s][house], points[s], eta) for s in (0, 1)]
                    sides = [
                        published(added([*around, each]), at.scale, range(low, high + 1))
                        for each in own
                    ]
                    worst = max(
                        worst,
                        *(abs(math.log(a / b)) for a, b in zip(*sides, strict=True)),
                    )
        assert worst <= epsilon + 1e-9


def test_the_far_point_is_measured_from_both_ends() -> None:
    """Golden values of MATH 14: u = v = 2, b = 2."""
    laws = [Histogram([0.5, 0.3, 0.1, 0.05, 0.05]), Histogram([0.1, 0.1, 0.2, 0.3, 0.3])]
    zone = Zone.net("z", [2], [2])
    f = Consumption.by_class(absent=laws[:1], present=laws[1:])
    for eta, due in ((0.05, 0.911493379), (0.2, 1.080610727), (1.0, 2.0)):
        assert house_losses(zone, f, 1, 2.0, eta)[0] == pytest.approx([due], abs=1e-8)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3000),
            st.integers(0, 3000),
            st.integers(-(2**63), 2**63 - 1) | st.integers(-5000, 5000),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_a_tally_is_the_net_sum_of_readings_cut_at_both_ends(
    rows: list[tuple[int, int, int]],
) -> None:
    u, v, x = (list(column) for column in zip(*rows, strict=True))
    zone = Zone.net("z", u, v)
    found = tally(np.array(x, np.int64), zone.bound, zone.export)
    due = sum(min(max(each, -low), high) for high, low, each in rows)
    assert found.load - zone.offset == due
    assert found.clamped == sum(each > high for high, _, each in rows)
    assert 0 <= found.load <= int(zone.bound.sum(dtype=np.int64))


@pytest.mark.soak
def test_many_readings_are_added_as_few_are() -> None:
    rng = np.random.default_rng(5)
    n = (1 << 17) + 3  # the compiled pass
    u, v, x = rng.integers(1, 900, n), rng.integers(0, 900, n), rng.integers(-2000, 2000, n)
    zone = Zone.net("z", u, v)
    for kind in (np.int64, np.int32, np.float64):
        load = tally(x.astype(kind), zone.bound, zone.export).load - zone.offset
        assert load == int(np.clip(x, -v, u).sum())


def zone_of_two(export: int) -> tuple[Zone, OccupancyModel, Consumption]:
    theta = OccupancyModel.factored([[0.5, 0.5]] * 2, [[[[0.9, 0.1], [0.2, 0.8]]] * 2])
    zone = Zone.net("z", [1000, 1000], [export, export])
    laws = [Uniform(500 + export), Uniform(1000 + export)]
    f = Consumption.by_class(absent=laws[:1], present=laws[1:], class_of=[0, 0])
    return zone, theta, f


def test_the_rate_and_the_release_are_of_the_net_load() -> None:
    zone, theta, f = zone_of_two(300)
    state = init(zone, TARIFF, [theta], f, Policy(0.5))
    load = tally([-250, 100], zone.bound, zone.export)
    release, state = step(state, load, SimulatedNoise(3))
    assert release.offset == 600
    assert release.net_load_hat == release.load_hat - 600
    assert release.rate == pytest.approx(62.5 + release.net_load_hat / 1000, abs=1e-12)
    assert release.epsilon_any == pytest.approx(1300 / release.scale)
    assert optimal_rate(load.load, state.tariff) == pytest.approx(62.5 - 0.15)
    assert cost(load.load, state.tariff) == pytest.approx(0.15**2 / 2 - 62.5 * 0.15)


def test_without_exports_everything_is_as_before() -> None:
    plain, net = Zone("z", [1000, 1000]), Zone.net("z", [1000, 1000], [0, 0])
    _, theta, f = zone_of_two(0)
    assert plain == net
    states = [init(zone, TARIFF, [theta], f, Policy(0.5, eta=0.2)) for zone in (plain, net)]
    assert states[0].digest == states[1].digest
    one, other = (step(state, 700, SimulatedNoise(1))[0] for state in states)
    assert one == other
    assert one.offset is None


def test_other_exports_are_other_terms() -> None:
    _, theta, f = zone_of_two(300)
    digests = set()
    for export in (0, 100, 300):
        zone = Zone("z", [1300, 1300], [export, export])
        state = init(zone, TARIFF, [theta], f, Policy(0.5))
        digests.add(state.digest)
    assert len(digests) == 3


def test_a_simulated_zone_is_billed_and_priced_for_its_net_load() -> None:
    zone, theta, f = zone_of_two(300)
    found = simulate(Scenario(zone, TARIFF, [theta], f), Policy(0.5, horizon=8), seed=1)
    net = found.load - 600
    assert found.optimal == pytest.approx(62.5 + net / 1000)
    assert found.bill == pytest.approx(float(np.sum(found.published * net)) / 1000)
    assert np.isfinite(found.rmsre)


def test_blocks_of_steps_reach_over_both_directions() -> None:
    zone, theta, f = zone_of_two(300)
    policy = Policy(0.5, horizon=4, schedule=Blocks((2, 2), (0.5, 0.25)))
    state = init(zone, TARIFF, [theta], f, policy)
    assert [state.scheduler.at(t).scale for t in (1, 3)] == pytest.approx([2600, 5200])


def test_a_chosen_clamp_holds_zero_and_may_cut_rare_exports() -> None:
    """And can be written into a zone file, which gives it in net Wh."""
    n, same = 9, [0] * 9
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=same)
    rare = Histogram([0.01] + [0] * 499 + [0.99])  # nothing, and now and then all is exported
    sunny = Histogram([0.99] + [0] * 499 + [0.01])
    f, often = (
        Consumption.by_class(absent=[law], present=[law], class_of=same) for law in (rare, sunny)
    )
    zone = Zone.net("z", [1000] * n, [500] * n)
    found = choose_clamp([theta], zone, f, Policy(0.1, horizon=2))
    assert found.clamp == ((500, 501),)
    clear = choose_clamp([theta], zone, often, Policy(0.1, horizon=2)).clamp
    assert clear == (501,), "what all export on a clear day is not cut"
    terms = Policy(0.1, horizon=2, clamp=found.clamp)
    made = plan(zone, TARIFF, [theta], f, secret="step", epsilon=0.1, terms=terms, rho=None)
    assert (made.policy.clamp, made.clamp) == (((500, 501),), ((0, 1),))


def test_a_usual_load_puts_nothing_back_where_homes_export() -> None:
    zone, theta, f = zone_of_two(300)
    kinds = f.absent.shape[1]
    policy = Policy(0.5, horizon=4, estimator="releases", usual=90.0, clamp=(700,) * kinds)
    with pytest.raises(PolicyError, match="homes export"):
        init(zone, TARIFF, [theta], f, policy)


def test_a_net_law_is_consumption_less_generation() -> None:
    rng = np.random.default_rng(2)
    f, g = Histogram(rng.random(6)), Histogram(rng.random(5))
    for export in (2, 4, 7):
        due = np.zeros(6 + export)
        for (x, p), (y, q) in product(enumerate(f.pmf), enumerate(g.pmf)):
            due[max(x - y, -export) + export] += p * q
        assert Net(f, g, export).pmf == pytest.approx(due)
    wide = Net(TruncatedNormal(3000, 900, 9000), TruncatedNormal(5000, 700, 15_000), 15_000)
    assert wide.mean - 15_000 == pytest.approx(wide.consumption.mean - wide.solar.mean, abs=1e-6)


@pytest.mark.parametrize(
    ("export", "words"),
    [
        ([-1, 0], "export limit of house 0 is -1"),
        ([0.5, 0], "is 0.5"),
        ([1], "shape"),
        (["a", 0], "type"),
    ],
)
def test_export_limits_that_cannot_be(export: list[object], words: str) -> None:
    with pytest.raises(ZoneError, match=words):
        Zone.net("z", [1000, 1000], export)


def test_what_has_no_meaning_with_exports_is_refused() -> None:
    zone, theta, f = zone_of_two(300)
    state = init(zone, TARIFF, [theta], f, Policy(0.5))
    with pytest.raises(ReadingError, match="houses export"):
        step(state, 700, SimulatedNoise(1))
    moved = Consumption(f.laws, f.absent, f.present, f.class_of, elasticity=Elasticity(60.0, 0.5))
    with pytest.raises(ConsumptionError, match="elasticity"):
        init(zone, TARIFF, [theta], moved, Policy(0.5))
    with pytest.raises(ZoneError, match="export limit"):
        init(zone, TARIFF, [theta], f, Policy(0.5, clamp=(200,)))


def cut_law(law: Law, low: int, high: int) -> Law:
    found: Law = {}
    for x, p in law.items():
        at = min(max(x, low), high)
        found[at] = found.get(at, 0.0) + p
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_clamp_of_two_ends_protects_over_all_states_and_the_price_is_of_what_is_kept(
    seed: int,
) -> None:
    """Over the 2^N states, every contamination by a point of c- to c+, and every output."""
    rng = np.random.default_rng([15, seed])
    zone, theta, laws = random_zone(rng)
    f, n, v = consumption(laws), zone.n_houses, zone.export
    ends = [
        (int(rng.integers(-w, 1)), int(rng.integers(1, b - w + 1)))
        for b, w in zip(zone.bound, v, strict=True)
    ]
    clamp = tuple((low + int(w), high + int(w)) for (low, high), w in zip(ends, v, strict=True))
    kept = [[cut_law(law, *end) for law, end in zip(some, ends, strict=True)] for some in laws]
    for eta in (0.0, 0.2, 1.0):
        state = init(zone, TARIFF, [theta], f, Policy(0.5, horizon=2, eta=eta, clamp=clamp))
        at, worst = state.scheduler.at(1), 0.0
        for house in np.flatnonzero(at.protected.mask()).tolist():
            points = range(ends[house][0], ends[house][1] + 1) if eta else range(1)
            around = [kept[0][h] for h in range(n) if h != house]
            for each in product(points, points):
                own = [contaminated(kept[s][house], each[s], eta) for s in (0, 1)]
                sides = [published(added([*around, one]), at.scale, range(-18, 19)) for one in own]
                worst = max(worst, *(abs(math.log(a / b)) for a, b in zip(*sides, strict=True)))
        assert worst <= 0.5 + 1e-9
        if eta == 1 and at.protected.mask().all():
            assert at.scale == pytest.approx(max(high - low for low, high in ends) / 0.5, rel=1e-6)
    x = rng.integers(-9, 9, n)
    due = sum(min(max(int(a), low), high) for a, (low, high) in zip(x, ends, strict=True))
    seen = tally(x, state.zone.bound, state.zone.export)
    release, _ = step(state, seen, SimulatedNoise(seed))
    if state.zone.offset < zone.offset:
        with pytest.raises(ReadingError, match="other export limits"):
            step(state, tally(x, state.zone.bound, zone.export), SimulatedNoise(seed))
    drawn = SimulatedNoise(seed).draw(at.scale) if at.scale else 0
    assert release.net_load_hat == due + drawn
    back = 0.0  # E(X - c+)+ - E(c- - X)+
    (piece,) = theta.chains
    for h, s in product(range(n), (0, 1)):
        cut = {x: x - min(max(x, ends[h][0]), ends[h][1]) for x in laws[s][h]}
        own = sum(p * cut[x] for x, p in laws[s][h].items())
        back += piece.initial[piece.chain_of[h]][s] * own
    assert isinstance(state.public, PublicKnowledge)
    assert state.public.parts().cut[0, 0] == pytest.approx(back, abs=1e-9)  # the factor 1


def test_what_a_clamp_of_two_ends_keeps_and_cuts_by_enumeration() -> None:
    rng = np.random.default_rng(3)
    law, factors = Histogram(rng.random(40)), np.array([0.5, 1.0, 1.7])
    found = split(law, 25.0, factors, 11.0)
    for k, each in enumerate(factors):
        x = each * np.arange(40)
        inside = np.clip(x, 11.0, 25.0)
        for values, mean, variance in (
            (inside, found.below, found.below_variance),
            (x - inside, found.above, found.above_variance),
        ):
            assert mean[k] == pytest.approx(law.pmf @ values)
            assert variance[k] == pytest.approx(law.pmf @ values**2 - (law.pmf @ values) ** 2)
        assert found.under[k] == pytest.approx(law.pmf @ np.maximum(11.0 - x, 0))


def test_an_adversary_reads_loads_of_a_clamp_of_two_ends() -> None:
    """By Bayes' rule over the states of two houses, in net Wh."""
    zone = Zone.net("z", [3, 3], [2, 2])
    laws = [list(np.random.default_rng(s).random((2, 6))) for s in (0, 1)]
    f = Consumption.by_class(
        absent=[Histogram(x) for x in laws[0]], present=[Histogram(x) for x in laws[1]]
    )
    theta = OccupancyModel.factored([[0.5, 0.5]] * 2, [[[[0.9, 0.1], [0.2, 0.8]]] * 2])
    clamp = ((1, 4), 4)
    state = init(zone, TARIFF, [theta], f, Policy(1.0, clamp=clamp))
    release, _ = step(state, tally([-2, 3], state.zone.bound, state.zone.export), SimulatedNoise(1))
    found = watch(Exact(Knowledge(zone, [theta], f, clamp)), [release]).home[0, 0]
    ends = [(-1, 2), (-2, 2)]
    weight = np.zeros((2, 2))
    for a, b in product((0, 1), repeat=2):
        own = [
            cut_law(dict(zip(range(-2, 4), laws[s][h] / laws[s][h].sum(), strict=True)), *ends[h])
            for h, s in enumerate((a, b))
        ]
        seen = published(
            added(own), release.scale, range(release.net_load_hat, release.net_load_hat + 1)
        )
        weight[a, b] = seen[0]
    weight /= weight.sum()
    assert np.ravel(found) == pytest.approx([weight[1].sum(), weight[:, 1].sum()], abs=1e-9)


def test_the_expected_error_of_a_clamp_of_two_ends_is_that_of_simulated_days() -> None:
    """With laws that are true: the noise and what is cut, whose mean is put back."""
    n, same = 40, [0] * 40
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=same)
    sun = Net(TruncatedNormal(150, 90, 500), TruncatedNormal(250, 140, 400), 400)
    less = Net(TruncatedNormal(60, 30, 500), TruncatedNormal(250, 140, 400), 400)
    f = Consumption.by_class(absent=[less], present=[sun], class_of=same)
    zone = Zone.net("z", [500] * n, [400] * n)
    chosen = choose_clamp([theta], zone, f, Policy(2.0, horizon=8), 0.0)
    assert isinstance(chosen.clamp[0], tuple)
    assert chosen.error < 0.85 * choose_error(theta, zone, f)
    policy = Policy(2.0, horizon=8, clamp=chosen.clamp)
    due, noise = expected_error([theta], zone, f, policy, 0.0)
    assert (due, noise) == pytest.approx((chosen.error, chosen.noise))
    found = []
    for seed in range(25):
        made = simulate(Scenario(zone, TARIFF, [theta], f), policy, seed=seed)
        found += [
            r.load_hat + r.put_back - z for r, z in zip(made.releases, made.load, strict=True)
        ]
    assert math.sqrt(np.mean(np.square(found))) == pytest.approx(due, rel=0.15)
    assert abs(np.mean(found)) < 4 * due / math.sqrt(len(found))


def choose_error(theta: OccupancyModel, zone: Zone, f: Consumption) -> float:
    """The least error of clamps with upper ends alone."""
    policy = Policy(2.0, horizon=8)
    each = [
        expected_error([theta], zone, f, Policy(2.0, horizon=8, clamp=(at,)), 0.0)[0]
        for at in range(401, 901, 25)
    ]
    return min(*each, expected_error([theta], zone, f, policy, 0.0)[0])


def test_a_lower_end_of_zero_is_no_other_terms_and_no_other_choice() -> None:
    zone, theta, f = zone_of_two(0)
    digests = [
        init(zone, TARIFF, [theta], f, Policy(0.5, clamp=clamp)).digest
        for clamp in ((800,), ((0, 800),))
    ]
    assert digests[0] == digests[1]
    assert policy_fields(Policy(0.5, clamp=((0, 800), (1, 9))))["clamp"] == [800, [1, 9]]
    with pytest.raises(ZoneError, match="lower end"):
        init(zone, TARIFF, [theta], f, Policy(0.5, clamp=((1, 800),)))
    with pytest.raises(PolicyError, match="lower and an upper end"):
        Policy(0.5, clamp=((5, 5),))
