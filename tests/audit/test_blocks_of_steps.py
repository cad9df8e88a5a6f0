"""Audits where one noise lasts a block of steps: statistics, black box, and records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammainc

from hushgrid import Noise, OccupancyModel, Policy, Release, SimulatedNoise
from hushgrid.audit.bounds import (
    BlockNoise,
    p_joined_blocks,
    p_repeated_noise,
    p_similar_noise,
    p_small_noise,
    p_split_blocks,
)
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.audit.evidence import Terms
from hushgrid.audit.publishers import hushgrid
from hushgrid.lab.black_box import certify_publisher
from hushgrid.mechanism.policy import Blocks
from hushgrid.operate.audit import load_ledger
from tests.audit.zones import STAY, in_blocks, ledger, named, releases, renamed, terms
from tests.stores.ledger.ledgers import lines_of


def law_of_largest(scale: float, steps: int, seen: int, at: np.ndarray) -> np.ndarray:
    """Pr[the largest of `seen` sizes <= at] by the definition: M has weight (2M+1)^L q^M."""
    m = np.arange(math.ceil(scale * (steps + 60 + 14 * math.sqrt(steps))))
    logs = steps * np.log(2 * m + 1) - m / scale
    weight = np.exp(logs - logs.max())
    inside = np.minimum((2 * at[:, None] + 1) / (2 * m + 1), 1.0) ** seen
    return np.asarray(inside @ (weight / weight.sum()))


@pytest.mark.parametrize(
    ("steps", "scale"), [(1, 0.3), (2, 0.5), (4, 1.0), (8, 2.0), (8, 12.0), (96, 24.0)]
)
def test_the_largest_size_of_a_block_is_at_least_a_gamma_number(steps: int, scale: float) -> None:
    """What `p_small_noise` rests on, down to the least noise that a block may have."""
    at = np.unique(np.linspace(0, scale * (steps + 40), 200).astype(int))
    for seen in {1, (steps + 1) // 2, steps}:
        chance = law_of_largest(scale, steps, seen, at)
        assert (chance <= gammainc(seen, (at + 1) / scale) + 1e-12).all()


def test_small_noise_of_blocks_is_noticed_and_true_noise_is_not() -> None:
    noise, found = SimulatedNoise(3), []
    block, b = np.repeat(np.arange(60), 5), np.full(300, 300.0)
    for _ in range(100):
        shock = 200 * np.sin(np.arange(300))
        found.append(p_small_noise(noise.blocks(300.0, 5, 60).ravel() + shock, b, block))
    assert sum(p < 0.05 for p in found) <= 13  # of 100: more has a chance of 0.0005 at most
    k, other = noise.blocks(300.0, 5, 60).ravel(), noise.blocks(300.0, 5, 60).ravel()
    # the sum of the largest sizes over the scale is 300, give or take 17
    assert p_small_noise(0.6 * k, b, block) < 1e-4
    twice = np.concatenate([k[:150], k[:150]])
    assert p_repeated_noise(twice, b, most=150, block=block)[1] < 1e-10
    assert p_repeated_noise(k, b, block=block)[1] > 1e-3
    grain = np.full(300, 2 / 300)
    assert p_similar_noise(k / 300, (k + 20) / 300, grain, block) < 1e-10
    assert p_similar_noise(k / 300, other / 300, grain, block) > 1e-3


def exactly(scale: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """All noise of a block of two steps in a box, and its law."""
    side = np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + 1)
    n = np.stack(np.meshgrid(*[side] * steps, indexing="ij"), axis=-1).reshape(-1, steps)
    law = np.exp(-np.abs(n).max(axis=1) / scale)
    return n, law / law.sum()


@pytest.mark.soak
def test_likelihood_ratios_have_a_mean_of_one_at_most() -> None:
    """Then Markov's inequality makes them p-values: over every noise of a block, 1/p is that."""
    n, law = exactly(4.0, 2)
    some = np.flatnonzero(law > 1e-7)
    inverse = [1 / p_split_blocks([BlockNoise(n[i].astype(float), 4.0, 2)]) for i in some]
    excess = sum(law[i] * (r - 1) for i, r in zip(some, inverse, strict=True) if r > 1)
    # 1/p is the ratio where that is above 1; what is above 1 weighs less than what is below
    assert 0 < excess < 1
    ratio = np.array([_ratio(n[i], 4.0) for i in some])
    assert float(law[some] @ ratio) <= 1 + 1e-6
    assert inverse == pytest.approx(np.maximum(ratio, 1.0))


def _ratio(n: np.ndarray, b: float) -> float:
    """Two steps: the likelihood of two sizes over that of one, from the gamma laws themselves."""
    x = np.abs(n) / b
    one = np.exp(-x) * (1 + x) / (4 * b)  # of a single step: Gamma(2, x) / (2! 2b)
    both = math.exp(-x.max()) / (8 * b * b)
    return float(one.prod() / both * math.exp(-((4 / b) ** 2) / 24))


def sizes(kind: str, steps: int, blocks: int, seed: int) -> list[BlockNoise]:
    noise, b, size, found = SimulatedNoise(seed), 1000.0, 0, []
    for i in range(blocks):
        size = size if kind == "kept" and i % 2 else noise.draw_size(b, steps)
        own = []
        for t in range(steps):
            if kind == "each" or (kind == "half" and t == steps // 2):
                size = noise.draw_size(b, steps)
            own.append(noise.draw_within(size))
        found.append(BlockNoise(np.array(own, float), b, steps))
    return found


@pytest.mark.parametrize(("steps", "blocks"), [(2, 300), (6, 200), (24, 60), (96, 30)])
def test_sizes_of_noise_drawn_at_other_times(steps: int, blocks: int) -> None:
    for seed in range(3):
        assert p_split_blocks(sizes("true", steps, blocks, seed)) > 1e-4
        assert p_joined_blocks(sizes("true", steps, blocks, seed)) > 1e-4
    assert p_split_blocks(sizes("each", steps, blocks, 9)) < 1e-6
    assert p_split_blocks(sizes("half", steps, blocks, 9)) < 1e-6  # from the middle of a block on
    assert p_joined_blocks(sizes("kept", steps, blocks, 9)) < 1e-6
    # part of a block published, the rest forecasts
    part = [one._replace(noise=one.noise[::2]) for one in sizes("true", steps, blocks, 11)]
    assert min(p_split_blocks(part), p_joined_blocks(part)) > 1e-4


def test_a_whole_block_is_certified_at_nine_tenths_and_never_above() -> None:
    zone = in_blocks()
    box = certify_publisher(hushgrid, zone, samples=60_000, confidence=0.95, seed=2)
    assert box.steps == 4  # the first block
    assert box.promised == box.promised_trajectory == pytest.approx(0.6)
    assert box.trajectory is not None
    assert 0.85 * 0.6 <= box.trajectory.epsilon <= 0.6  # above with a chance of 0.01 at most
    assert box.trajectory.score == "likelihood"
    assert 0.2 <= box.one_step.epsilon <= 0.6


def means(noise: np.ndarray, lengths: Sequence[int]) -> list[float]:
    ends = np.cumsum(lengths)
    return [
        float(np.abs(noise[:, e - n : e]).max(axis=1).mean())
        for e, n in zip(ends, lengths, strict=True)
    ]


def test_samples_have_the_law_of_the_publishers_blocks() -> None:
    zone = in_blocks()
    loads = hushgrid(zone, seed=4).sample(np.zeros((4000, 14, 5), np.int64))["load_hat"]
    state = zone.first_state()
    due = [state.scheduler.at(t).scale for t in (1, 5, 13)]
    # the largest size of a block of L steps is Gamma(L) of its scale; of 4000 within 5 %
    assert means(loads, (4, 8, 2)) == pytest.approx([4 * due[0], 8 * due[1], 2 * due[2]], rel=0.05)
    short = hushgrid(zone, seed=4).sample(np.zeros((4000, 6, 5), np.int64))["load_hat"]
    assert (short == loads[:, :6]).mean() >= 4 / 6  # a block that is cut off is drawn whole


# ---- records


def golden(lengths: Sequence[int]) -> Terms:
    """One house that moves by [[.9,.1],[.2,.8]] from (.7,.3), with a loss of 0.5 a block."""
    theta = OccupancyModel.factored([[0.7, 0.3]], [[STAY]])
    zone, steps = terms((1000,)), sum(lengths)
    schedule = Blocks(tuple(lengths), (0.5,) * len(lengths))
    policy = Policy(0.5, horizon=steps, schedule=schedule)
    return named(replace(zone, models=(theta,), policy=policy))


def audited(tmp_path: Path, zone: Terms, made: Sequence[Release] | None = None) -> Certificate:
    path = tmp_path / "ledger.ndjson"
    path.write_bytes(lines_of(ledger(zone, made)))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
    return certify(evidence, [zone], chain=chain)


def failed(found: Certificate) -> dict[str, int | None]:
    return {one.id: one.first_bad for one in found.checks if one.status == "failed"}


@pytest.mark.parametrize(
    ("lengths", "leaks"), [((2, 2), 0.855182), ((2, 1, 2), 1.208427), ((4,), 0.5)]
)
def test_a_ledger_of_blocks_is_recomputed(
    tmp_path: Path, lengths: Sequence[int], leaks: float
) -> None:
    """Noise of 2000 Wh for a house of 1000; the leakage is that of the proof's golden values."""
    zone = golden(lengths)
    found = audited(tmp_path, zone)
    assert failed(found) == {}
    assert found.verdict == "passed"
    (houses,) = found.houses
    assert houses.releases == sum(lengths)
    assert houses.loss == pytest.approx([0.5])
    assert houses.total == pytest.approx([0.5 * len(lengths)])  # each block once
    assert houses.any_total == pytest.approx([0.5 * len(lengths)])
    assert houses.leakage == pytest.approx([leaks], abs=1e-6)
    (move,) = found.moves
    assert move is not None
    assert move.bound == pytest.approx(leaks, abs=1e-6)
    assert 0 < move.moved[0] <= leaks + 1e-9
    assert f"{0.5 * len(lengths):g}" in found.check("budget").text


def test_a_block_is_spent_once_and_no_less(tmp_path: Path) -> None:
    zone = golden((2, 3, 1))
    found = audited(tmp_path, zone)
    assert failed(found) == {}
    assert found.check("budget").text == "All releases together state 1.5."
    shares = [replace(one, epsilon=one.epsilon / one.block["length"]) for one in releases(zone)]
    assert failed(audited(tmp_path, zone, shares))["budget"] == 4


def test_a_forecast_within_a_block_changes_no_sum(tmp_path: Path) -> None:
    """Places 1 and 3 of a block of three: the block is lost all the same, and once."""
    zone = golden((3, 1))
    made = releases(zone)
    (houses,) = audited(tmp_path, zone, [made[0], made[2], made[3]]).houses
    assert houses.total == pytest.approx([1.0])
    assert houses.releases == 3
    (whole,) = audited(tmp_path, zone, made).houses
    assert houses.leakage == pytest.approx(whole.leakage)


def test_a_place_that_is_not_the_terms(tmp_path: Path) -> None:
    """A block that never ends on record would be spent once for all steps."""
    zone = golden((2, 2))
    made = [replace(one, block={"first": 1, "length": 4}) for one in releases(zone)]
    found = audited(tmp_path, zone, made)
    assert failed(found) == {"post_processing": 4}
    assert "another place in a block of steps" in found.check("post_processing").text
    (houses,) = found.houses
    assert houses.total == pytest.approx([1.0])  # by the terms, whatever is stated


@pytest.mark.soak
def test_too_little_noise_of_blocks_shows_in_the_scatter(tmp_path: Path) -> None:
    class Less(Noise):
        def __init__(self) -> None:
            self._own = SimulatedNoise(3)

        def draw(self, scale: float) -> int:
            return self._own.draw(scale)

        def draw_size(self, scale: float, steps: int) -> int:
            return self._own.draw_size(scale * 0.5, steps)

        def draw_within(self, size: int) -> int:
            return self._own.draw_within(size)

    zone = golden((5,) * 20)
    small = releases(zone, noise=Less())
    assert failed(audited(tmp_path, zone, small)) == {"noise_scale": 4}
    assert failed(audited(tmp_path, zone)) == {}


def test_noise_of_blocks_that_two_zones_share(tmp_path: Path) -> None:
    zone = golden((4,) * 6)
    path, other = tmp_path / "both.ndjson", renamed(zone, "oak")
    for seed, bad in ((9, {"seed_reuse"}), (10, set())):
        own = releases(zone, noise=SimulatedNoise(9))
        twin = releases(other, noise=SimulatedNoise(seed))
        path.write_bytes(lines_of(ledger(zone, own)) + lines_of(ledger(other, twin)))
        evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
        found = certify(evidence, [zone, other], chain=chain)
        assert {*failed(found)} == bad
