"""Noise that lasts a block of steps: its law, its schedule, its releases, and who refuses it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from hushgrid import (
    Consumption,
    NoiseError,
    OccupancyModel,
    Policy,
    PolicyError,
    SecureNoise,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    step,
)
from hushgrid.accounting.composition import booked
from hushgrid.mechanism.digest import policy_fields
from hushgrid.mechanism.noise import Noise, pmf, size_quantile
from hushgrid.mechanism.policy import Blocks, Even
from hushgrid.mechanism.release import prepare, replay
from hushgrid.mechanism.scheduler import schedule
from hushgrid.model.occupancy import Calendar
from tests.accounting.block_oracle import truth

STAY = [[0.9, 0.1], [0.2, 0.8]]


def law_of_size(scale: float, steps: int) -> np.ndarray:
    """Pr[M = m] by the definition."""
    m = np.arange(math.ceil(scale * (steps + 60 + 14 * math.sqrt(steps))))
    logs = steps * np.log(2 * m + 1) - m / scale
    weight = np.exp(logs - logs.max())
    return weight / weight.sum()


def check_sizes(sizes: list[int], scale: float, steps: int) -> None:
    """Chi-square over bins of about equal chance; a true law fails once in a million."""
    law, n = law_of_size(scale, steps), max(len(sizes) // 20, 4)
    bins = np.minimum((np.cumsum(law) * n).astype(int), n - 1)
    expected = np.bincount(bins, law, minlength=n) * len(sizes)
    seen = np.bincount(bins[np.array(sizes)], minlength=n)
    used = expected > 0
    assert chisquare(seen[used], expected[used]).pvalue > 1e-6


@pytest.mark.parametrize(
    ("steps", "scale", "draws"),
    [(1, 0.4, 600), (1, 7.5, 1000), (2, 3.0, 800), (4, 1.0, 300), (8, 30.0, 400), (96, 40.0, 80)],
)  # fmt: skip
@pytest.mark.sampled
def test_sizes_have_their_law(steps: int, scale: float, draws: int) -> None:
    sources: list[Noise] = [SecureNoise(), SimulatedNoise(20)]
    for source in sources:
        check_sizes([source.draw_size(scale, steps) for _ in range(draws)], scale, steps)


def test_wide_sizes_of_the_twin_have_their_law() -> None:
    for steps in (1, 4, 96):
        source = SimulatedNoise(3)
        check_sizes([source.draw_size(1200.0, steps) for _ in range(3000)], 1200.0, steps)
    assert size_quantile(0.4, 999.9, 8) == pytest.approx(size_quantile(0.4, 1000.0, 8), rel=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 4, 8, 96])
def test_what_is_kept_of_geometric_sums_has_the_weight(steps: int) -> None:
    """C(M+L, L) times the chance to be kept is (2M+1)^L, up to one constant: exactly."""
    ratios = set()
    for m in (0, 1, 2, 7, 100):
        kept = math.prod(Fraction(2 * m + 1, 2 * m + 2 * j) for j in range(1, steps + 1))
        assert kept <= 1
        ratios.add(math.comb(m + steps, steps) * kept / Fraction(2 * m + 1) ** steps)
    assert len(ratios) == 1


@pytest.mark.parametrize("scale", [0.4, 3.0, 20.0])
def test_one_step_is_the_two_sided_geometric_law(scale: float) -> None:
    law = law_of_size(scale, 1)
    share = law / (2 * np.arange(len(law)) + 1)
    reaching = np.cumsum(share[::-1])[::-1]
    k = np.arange(12)
    assert reaching[:12] == pytest.approx(pmf(k, scale), rel=1e-9)


def test_numbers_of_a_step_are_uniform() -> None:
    sources: list[Noise] = [SecureNoise(), SimulatedNoise(5)]
    for source in sources:
        seen = np.bincount([source.draw_within(4) + 4 for _ in range(4000)], minlength=9)
        assert len(seen) == 9
        assert chisquare(seen).pvalue > 1e-6


def test_the_deviation_is_that_of_the_schedule() -> None:
    schedule_ = Blocks((6, 2), (0.5, 0.5))
    scale = 50.0
    wanted = np.sqrt(schedule_.variance(np.full(8, scale)))
    assert wanted[0] == pytest.approx(scale * math.sqrt(56 / 3))
    source, draws = SimulatedNoise(8), []
    for _ in range(4000):
        size = source.draw_size(scale, 6)
        draws.append(source.draw_within(size))
    assert np.std(draws) == pytest.approx(wanted[0], rel=0.06)


def test_noise_too_small_for_a_block_is_refused() -> None:
    for source in (SecureNoise(), SimulatedNoise(1)):
        with pytest.raises(NoiseError, match="give 2 Wh or more, or shorter blocks"):
            source.draw_size(1.9, 8)


# ---- the mechanism

THETA = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], chain_of=[0, 0])
ZONE = Zone("z", [1000, 400])
F = Consumption.by_class(absent=[Uniform(200)], present=[Uniform(400)], class_of=[0, 0])
POLICY = Policy(0.5, horizon=6, schedule=Blocks((2, 3, 1), (0.5, 0.4, 0.3)))
WORLD = (ZONE, Tariff(1.0, 62.5), [THETA], F)


def test_releases_state_the_loss_of_their_block() -> None:
    state, source, made = init(*WORLD, POLICY), SimulatedNoise(1), []
    for _ in range(6):
        release, state = step(state, 700, source)
        made.append(release)
    assert [one.scale for one in made] == pytest.approx([2000.0] * 2 + [2500.0] * 3 + [1e4 / 3])
    assert [one.epsilon for one in made] == pytest.approx([0.5] * 2 + [0.4] * 3 + [0.3])
    assert [one.epsilon_any for one in made] == pytest.approx([0.5] * 2 + [0.4] * 3 + [0.3])
    assert {one.noise for one in made} == {"block"}
    blocks = [(1, 2)] * 2 + [(3, 3)] * 3 + [(6, 1)]
    assert [one.block for one in made] == [
        {"first": first, "length": length} for first, length in blocks
    ]
    assert [*booked(made)] == pytest.approx([0.5, 0, 0.4, 0, 0, 0.3])
    assert [*booked(made[3:], made[1])] == pytest.approx([0.4, 0, 0.3])  # the first of the block
    assert [*booked(made[3:], made[2])] == pytest.approx([0, 0, 0.3])
    assert [*booked(made[::-1])] == pytest.approx([0.3, 0.4, 0, 0, 0.5, 0])
    assert [
        *booked([replace(made[1], t=8, block={"first": 7, "length": 2})], made[1])
    ] == pytest.approx([0.5])  # another block
    again, now = SimulatedNoise(1), init(*WORLD, POLICY)
    for release in made:  # the state is public: a replay knows as much
        assert step(now, 700, again)[0] == release
        now = replay(now, release)
    assert now == state


def test_a_block_goes_on_with_its_source_alone() -> None:
    state, source = init(*WORLD, POLICY), SecureNoise()
    _, state = step(state, 700, source)
    with pytest.raises(NoiseError, match="began with another source"):
        prepare(state, SecureNoise())
    _, state = step(state, 700, source)
    _, after = step(state, 700, SecureNoise())  # a block begins with any source
    with pytest.raises(NoiseError, match="began with another source"):
        prepare(after, source)


def test_estimates_take_the_deviation() -> None:
    policy = replace(POLICY, publish="estimate")
    release, _ = step(init(*WORLD, policy), 700, SimulatedNoise(1))
    assert release.estimate is not None
    # almost all noise: the estimate stays near the forecast of both houses
    assert release.estimate == pytest.approx(300, abs=60)


def test_a_house_open_at_one_step_is_protected_in_its_block() -> None:
    """House 1 is certain at step 1 and uncertain from step 2 on."""
    theta = OccupancyModel.factored([[0.5, 0.5], [1.0, 0.0]], [[STAY, STAY]])
    policy = Policy(0.5, horizon=3, schedule=Blocks((2, 1), (0.5, 0.5)))
    zone = Zone("z", [400, 1000])
    made = schedule([theta], zone, F, policy)
    assert [one.scale for one in made] == [2000.0, 2000.0, 2000.0]
    assert [sorted(np.flatnonzero(one.protected.mask())) for one in made] == [[0, 1]] * 3
    assert [len(one.protected) for one in made] == [2, 2, 2]
    alone = schedule([theta], zone, F, replace(policy, schedule=Even()))
    assert [one.scale for one in alone] == [800.0, 2000.0, 2000.0]


def test_joined_houses_lose_by_all_pairs_of_all_steps() -> None:
    """10 -> 01, 00 -> 00: step 1 moves 1 Wh, step 2 moves 9 Wh, and both houses lose 9/4."""
    move = np.eye(4)
    move[2] = [0.0, 1.0, 0.0, 0.0]
    theta = OccupancyModel.joint([0.5, 0.0, 0.5, 0.0], [np.eye(4), move], calendar=Calendar([0, 1]))
    policy = Policy(2.25, horizon=2, schedule=Blocks((2,), (2.25,)))
    f = Consumption.by_class(absent=[Uniform(1)], present=[Uniform(1)], class_of=[0, 0])
    state = init(Zone("z", [1, 9]), Tariff(1.0, 62.5), [theta], f, policy)
    for t in (1, 2):
        assert state.scheduler.at(t).scale == pytest.approx(4.0)
        assert state.scheduler.losses(t, 4.0) == pytest.approx([2.25, 2.25])

    def reading(s: int, last: np.ndarray) -> np.ndarray:
        return np.full(last.shape, (s >> 1) + 9 * (s & 1))

    about = truth([0.5, 0, 0.5, 0], [move], (2,), 4.0, reading, 10, lambda s: s >> 1)
    assert about == pytest.approx([2.25, 0.0])


def test_noise_is_at_least_what_can_be_drawn() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]])
    f = Consumption.by_class(absent=[Uniform(1)], present=[Uniform(2)])
    policy = Policy(1.0, horizon=12, schedule=Blocks((12,), (1.0,)))
    (made, *_) = schedule([theta], Zone("z", [2]), f, policy)
    assert (made.scale, made.epsilon) == (3.0, pytest.approx(2 / 3))


def test_terms_that_blocks_do_not_go_with() -> None:
    blocks = POLICY.schedule
    for terms in ({"eta": 0.5}, {"blocks": "paper"}, {"models": "paper"},
                  {"on_empty": "publish_exact"}, {"horizon": 7}, {"epsilon": 0.45}):  # fmt: skip
        with pytest.raises(PolicyError, match=r"block|epsilon_t"):
            replace(POLICY, **terms)
    for wrong in (((), ()), ((2,), (0.1, 0.2)), ((0,), (0.1,)), ((1.5,), (0.1,))):
        with pytest.raises(PolicyError, match="block_steps"):
            Blocks(*wrong)
    with pytest.raises(PolicyError, match="no bound on a block's loss is proved"):
        replace(POLICY, eta=0.5)
    assert POLICY.first(3).schedule == Blocks((2, 1), (0.5, 0.4))
    assert blocks.over(12) == Blocks((2, 3, 1) * 2, (0.5, 0.4, 0.3) * 2)
    assert blocks.over(9) == Blocks((2, 3, 1, 2, 1), (0.5, 0.4, 0.3, 0.5, 0.4))


def test_digest_keys_are_there_only_where_used() -> None:
    assert {*policy_fields(POLICY)} == {"epsilon", "horizon", "block_steps", "block_epsilon"}
    assert not {*policy_fields(Policy(0.5))} & {"block_steps", "block_epsilon"}
    other = replace(POLICY, schedule=Blocks((3, 2, 1), (0.5, 0.4, 0.3)))
    assert init(*WORLD, POLICY).digest != init(*WORLD, other).digest
