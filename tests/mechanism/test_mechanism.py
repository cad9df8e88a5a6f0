"""Algorithm 1 as init and step."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Elasticity,
    NoiseError,
    OccupancyModel,
    Policy,
    PolicyError,
    Release,
    SecureNoise,
    SimulatedNoise,
    Tally,
    Tariff,
    Uniform,
    Zone,
    init,
    schedule,
    smallest_scale,
    step,
)
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.mechanism.noise import Noise
from hushgrid.mechanism.policy import NoiseName, PerStep
from hushgrid.mechanism.release import prepare, replay, skip

E = [[0.9, 0.1], [0.2, 0.8]]
TARIFF = Tariff(alpha=1.0, beta=62.5)
THETA = OccupancyModel.factored([[0.5, 0.5]], [[E]], chain_of=[0, 0])
ZONE = Zone("elm", [1000, 600])
F = Consumption.by_class(absent=[Uniform(500), Uniform(100)], present=[Uniform(1000), Uniform(600)])


class Fixed(Noise):
    """Noise that is told what to draw and remembers at which scale."""

    def __init__(self, k: int) -> None:
        self.k, self.scales = k, list[float]()

    def draw(self, scale: float) -> int:
        self.scales.append(scale)
        return self.k


def test_a_release_holds_neither_load_nor_optimal_rate() -> None:
    names = {field.name for field in fields(Release)}
    assert not names & {"load", "optimal", "drawn", "readings"}
    state = init(ZONE, TARIFF, [THETA], F, Policy(0.5, eta=0.0))
    release, _ = step(state, 777, Fixed(123))
    assert not {777, 123} & {getattr(release, name) for name in names}
    assert release.noise in get_args(NoiseName)  # the name of its law, not what was drawn
    assert release.load_hat == 900
    assert release.rate == 62.5 + 0.9


def test_releases_follow_the_schedule() -> None:
    policy = Policy(0.5, horizon=4, eta=0.0)
    state = init(ZONE, TARIFF, [THETA], F, policy)
    noise = Fixed(0)
    for calibration in schedule([THETA], ZONE, F, policy):
        release, state = step(state, 800, noise)
        assert (release.t, release.applies_from) == (calibration.t, calibration.t + 1)
        assert noise.scales[-1] == release.scale == calibration.scale
        assert release.epsilon == calibration.epsilon <= 0.5
        assert release.epsilon_any == pytest.approx(1000 / release.scale)
        assert (release.zone, release.rule) == ("elm", "eta=0 block union")


def test_the_state_is_a_value() -> None:
    """The same state can be stepped twice; neither step knows of the other."""
    state = init(ZONE, TARIFF, [THETA], F, Policy(0.5))
    one, after = step(state, 800, SimulatedNoise(1))
    two, _ = step(state, 800, SimulatedNoise(1))
    assert one == two
    assert (state.t, after.t, after.rates) == (1, 2, (one.rate,))


def test_only_secure_noise_is_not_simulated() -> None:
    state = init(ZONE, TARIFF, [THETA], F, Policy(0.5))
    assert step(state, 800, SimulatedNoise(1))[0].simulated
    assert step(state, 800, Fixed(0))[0].simulated
    assert not step(state, 800, SecureNoise())[0].simulated


def test_exact_publication_draws_no_noise_and_says_so() -> None:
    certain = OccupancyModel.factored([[1.0, 0.0]] * 2, [[np.eye(2)] * 2])
    policy = Policy(0.5, on_empty="publish_exact")
    noise = Fixed(55)
    release, _ = step(init(ZONE, TARIFF, [certain], F, policy), 800, noise)
    assert (release.load_hat, release.scale, noise.scales) == (800, 0, [])
    assert (release.epsilon, release.epsilon_any) == (0.0, float("inf"))  # if Theta is right


def test_rates_never_leave_their_limits() -> None:
    tariff = Tariff(alpha=1.0, beta=62.5, floor=60.0, cap=64.0)
    for k, rate in ((-(10**9), 60.0), (10**9, 64.0), (0, 63.3)):
        release, _ = step(init(ZONE, tariff, [THETA], F, Policy(0.5)), 800, Fixed(k))
        assert release.rate == pytest.approx(rate)
        assert release.load_hat == 800 + k  # the ledger's value is not cut


def test_digest_changes_with_everything_public() -> None:
    def digest(**changes: object) -> str:
        base = {
            "zone": ZONE,
            "tariff": TARIFF,
            "models": [THETA],
            "consumption": F,
            "policy": Policy(0.5),
        }
        return init(**(base | changes)).digest  # type: ignore[arg-type]

    other = Consumption.by_class(absent=F.laws[:2], present=[Uniform(999), Uniform(600)])
    digests = [
        digest(),
        digest(zone=Zone("oak", [1000, 600])),
        digest(zone=Zone("elm", [1000, 601])),
        digest(tariff=Tariff(1.0, 62.6)),
        digest(models=[THETA, THETA]),
        digest(consumption=other),
        digest(policy=Policy(0.4)),
    ]
    assert len(set(digests)) == len(digests)
    assert digest() == digests[0]


def test_scale_of_reacting_demand_comes_from_published_rates() -> None:
    """High price, demand halves, and so does the noise it needs at eta = 0."""
    reacts = Consumption.by_class(
        absent=[Uniform(500)], present=[Uniform(1000)], elasticity=Elasticity(70.0, 1.0)
    )
    theta, zone = OccupancyModel.factored([[0.5, 0.5]], [[E]]), Zone("z", [1000])
    state = init(zone, TARIFF, [theta], reacts, Policy(0.5, eta=0.0))
    first, state = step(state, 800, Fixed(100_000))
    assert first.scale == pytest.approx(601.2191, rel=1e-6)
    assert first.rate > 140
    second, state = step(state, 800, Fixed(0))
    moved = [law.scaled(0.5, 1000).pmf for law in reacts.laws]
    padded = [np.r_[f, np.zeros(1001 - f.size)] for f in moved]
    expected = smallest_scale(padded[0], padded[1], bound=1000, epsilon=0.5, eta=0.0)
    assert second.scale == pytest.approx(expected, rel=1e-9)
    assert second.scale < 0.51 * first.scale
    ahead = schedule([theta], zone, reacts, Policy(0.5, 3))  # eta = 1 reacts to nothing
    assert {c.scale for c in ahead} == {2000.0}


def test_the_estimate_is_published_where_the_policy_says_so() -> None:
    """The rate of the posterior mean, release by release; the noisy load is the same."""
    world = (ZONE, TARIFF, [THETA], F)
    raw, best = init(*world, Policy(0.5)), init(*world, Policy(0.5, publish="estimate"))
    public = PublicKnowledge.start([THETA], F)
    noises = SimulatedNoise(3), SimulatedNoise(3)
    for load in (300, 900, 1600):
        plain, raw = step(raw, load, noises[0])
        guessed, best = step(best, load, noises[1])
        expected, public = public.learn(plain.load_hat, plain.scale)
        assert plain.estimate is None
        assert plain.rate == max(62.5 + plain.load_hat / 1000, 0)
        assert guessed.load_hat == plain.load_hat
        assert guessed.estimate == expected
        assert guessed.rate == pytest.approx(62.5 + expected / 1000)


def test_every_step_may_have_its_own_epsilon() -> None:
    policy = Policy(0.5, horizon=3, schedule=PerStep((0.5, 0.1, 0.25)))
    state = init(ZONE, TARIFF, [THETA], F, policy)
    found = []
    for _ in range(3):
        release, state = step(state, 100, SimulatedNoise(1))
        found.append((release.scale, release.epsilon))
    assert found == [(2000, 0.5), (10000, 0.1), (4000, 0.25)]


@pytest.mark.parametrize(
    "policy",
    [
        Policy(0.5),
        Policy(0.5, publish="estimate"),
        Policy(0.5, clamp=(300, 200)),
    ],
)
def test_a_replayed_state_goes_on_as_if_nothing_had_happened(policy: Policy) -> None:
    """Noise drawn beforehand, a step skipped, then everything again from the releases alone."""
    state = first = init(ZONE, TARIFF, [THETA], F, policy)
    noise, releases = SimulatedNoise(6), []
    for load in (300, 450, 400, 100, 350):
        if state.t == 3:
            state = skip(state, 70.0)
            continue
        draws = prepare(state, noise)
        release, state = step(state, Tally(load, 0, state.zone.bound), draws)
        releases.append(release)
    again = first
    for release in releases:
        if again.t == 3:
            again = skip(again, 70.0)
        again = replay(again, release)
    assert (again.rates, again.t) == (state.rates, state.t)
    one, two = (step(s, Tally(250, 0, s.zone.bound), SimulatedNoise(7))[0] for s in (state, again))
    assert one == two
    with pytest.raises(NoiseError, match="drawn for step 1 under"):
        step(state, Tally(250, 0, state.zone.bound), prepare(first, noise))
    with pytest.raises(PolicyError, match="replay releases of these terms in order"):
        replay(state, releases[0])
    assert repr(prepare(first, noise)) == "PreparedNoise(t=1)"
