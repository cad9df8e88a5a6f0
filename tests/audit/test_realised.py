"""What one release really tells about houses that move together, and under a mixed prior."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from hushgrid import Consumption, OccupancyModel, Policy, Tariff, Uniform, Zone
from hushgrid.adversary.attack import Recording
from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import Terms, from_recording
from hushgrid.audit.houses import mixture_loss, worst_of_blocks
from hushgrid.report.certificate import certificate_json
from tests.audit.zones import releases, terms

PAIR = [0.4999, 0.0001, 0.0001, 0.4999]


def pair(blocks: Any, *, bound: int = 1000, eta: float = 1.0) -> Terms:
    """Two houses that are nearly always in the same state."""
    theta = OccupancyModel.joint(PAIR, [[PAIR] * 4])
    f = Consumption.by_class(
        absent=[Uniform(bound // 2)], present=[Uniform(bound)], class_of=[0, 0]
    )
    policy = Policy(0.5, eta=eta, blocks=blocks, horizon=4)
    return Terms(Zone("z", [bound] * 2), Tariff(1.0, 62.5), (theta,), f, policy)


def test_minimal_exceeds_epsilon_where_block_holds() -> None:
    """Pr(00) = Pr(11) = .4999, u = 1000, b = 2000 leaks .9998: docs/proofs/blocks.md."""
    for rule, worst in (("minimal", 0.9998), ("block", 0.4999)):
        zone = pair(rule)
        first = zone.first_state()
        scale = first.scheduler.at(1).scale
        assert scale == (2000.0 if rule == "minimal" else 4000.0)
        found = worst_of_blocks(first, zone.models, 1, scale)
        assert [one.house for one in found] == [0, 1]
        assert max(one.loss for one in found) == pytest.approx(worst, abs=1e-4)
        assert (max(one.loss for one in found) <= 0.5) == (rule == "block")


def test_the_certificate_says_so() -> None:
    for rule, above in (("minimal", True), ("block", False)):
        zone = pair(rule)
        recorded = Recording("z", zone.first_state().digest, tuple(releases(zone)))
        values = certificate_json(certify([from_recording(recorded)], [zone]))
        (shown,) = values["zones"]
        assert (shown["realised_max"] > 0.5) is above
        assert all((house["realised"] > 0.5) is above for house in shown["houses"])
        assert any("exact loss of one release" in line for line in values["summary"]) is above


def literal(states: Any, laws: Any, house: int, scale: float, top: int) -> float:
    """The same by sums over every state, reading and output."""
    q = math.exp(-1 / scale)
    worst = 0.0
    for k in range(-3, top + 4):
        side = [0.0, 0.0]
        for state, chance in enumerate(states):
            bits = (state >> 1 & 1, state & 1)
            pmfs = [laws[j][bits[j]] for j in (0, 1)]
            for (x, p), (y, r) in product(enumerate(pmfs[0]), enumerate(pmfs[1])):
                side[bits[house]] += chance * p * r * q ** abs(k - x - y)
        weight = [
            sum(c for s, c in enumerate(states) if (s >> (1 - house) & 1) == b) for b in (0, 1)
        ]
        worst = max(worst, abs(math.log(side[1] / weight[1] * weight[0] / side[0])))
    return worst


@pytest.mark.parametrize("eta", [0.0, 0.25])
def test_against_a_literal_sum(eta: float) -> None:
    zone = pair("minimal", bound=6, eta=eta)
    first = zone.first_state()
    absent, present = np.zeros(7), np.full(7, (1 - eta) / 7)
    absent[:4] = (1 - eta) / 4
    absent[0] += eta
    present[6] += eta
    found = worst_of_blocks(first, zone.models, 1, 5.0)
    laws = [(absent, present)] * 2
    for one in found:
        assert one.loss == pytest.approx(literal(PAIR, laws, one.house, 5.0, 12), rel=1e-9)


def test_a_prior_mixed_over_theta_learns_more() -> None:
    """All empty or all full: one house's state tells of every other's."""
    zone = terms((100,) * 3, eta=1.0)
    still = [[[0.99, 0.01], [0.01, 0.99]]]
    thetas = tuple(
        OccupancyModel.factored([law], [still], chain_of=[0] * 3)
        for law in ([0.99, 0.01], [0.01, 0.99])
    )
    zone = replace(zone, models=thetas)
    first = zone.first_state()
    scale = first.scheduler.at(1).scale
    loss = mixture_loss(first, thetas, 0, 1, scale)
    assert loss is not None
    # the world of readings at the ends: loads 0 to 300, by hand over 2 x 8 states
    side = np.zeros((2, 301))
    for theta, bits in product((0, 1), product((0, 1), repeat=3)):
        home = 0.01 if theta == 0 else 0.99
        chance = math.prod(home if bit else 1 - home for bit in bits)
        side[bits[0], 100 * sum(bits)] += chance
    k = np.arange(301)
    noisy = [[float((row * np.exp(-np.abs(k - at) / scale)).sum()) for at in k] for row in side]
    ratio = np.log(np.array(noisy[1]) / side[1].sum()) - np.log(np.array(noisy[0]) / side[0].sum())
    assert loss == pytest.approx(float(np.abs(ratio).max()), rel=1e-9)
    assert loss > 0.5
    assert mixture_loss(first, thetas[:1], 0, 1, scale) is None


def test_a_later_release_of_less_noise_hides_nothing() -> None:
    """A pair that is certain from step 2 on; another house then sets less noise than the pair."""
    to_both = np.tile([0.0, 0.0, 0.0, 1.0], (4, 1))
    theta = OccupancyModel.blocked(
        [[0, 1], [2], [3]],
        [[0.5, 0.0, 0.0, 0.5], [0.5, 0.5], [0.5, 0.5]],
        [to_both[None], np.array([[[0.0, 1.0]] * 2]), np.array([[[0.7, 0.3], [0.3, 0.7]]])],
    )
    bounds = [100, 100, 10, 9]
    f = Consumption.by_class(
        absent=[Uniform(1)] * 4, present=[Uniform(u) for u in bounds], class_of=range(4)
    )
    policy = Policy(0.5, eta=1.0, blocks="paper", horizon=4)
    zone = Terms(Zone("z", bounds), Tariff(1.0, 62.5), (theta,), f, policy)
    made = releases(zone)
    assert made[1].scale < made[0].scale
    found = []
    for steps in (1, 2):
        recorded = Recording("z", zone.first_state().digest, tuple(made[:steps]))
        (one,) = certificate_json(certify([from_recording(recorded)], [zone]))["zones"]
        found.append(one["realised_max"])
    assert found[0] == found[1] > 0.5
