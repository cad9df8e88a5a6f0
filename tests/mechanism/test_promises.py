"""Ways in which less noise than promised could slip out, each closed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hushgrid import (
    Answer,
    Calendar,
    Case,
    Consumption,
    ConsumptionError,
    Elasticity,
    Exposure,
    Histogram,
    Law,
    ModelError,
    NoiseError,
    OccupancyModel,
    Policy,
    PolicyError,
    ReadingError,
    SecureNoise,
    Tariff,
    TrustCalibrator,
    Uniform,
    Zone,
    aggregate,
    house_losses,
    init,
    protected,
    schedule,
    step,
)
from hushgrid.audit.houses import worst_of_blocks
from hushgrid.errors import PlanError
from hushgrid.mechanism.noise import Noise
from hushgrid.mechanism.policy import assumptions
from hushgrid.mechanism.scheduler import exposures_of
from hushgrid.model.occupancy import Chains
from hushgrid.planning.planner import examine, plan
from hushgrid.report.promise import promise_sentence
from hushgrid.testing import check_calibrator

E = [[0.9, 0.1], [0.2, 0.8]]
ONE = OccupancyModel.factored([[0.5, 0.5]], [[E]])
TARIFF = Tariff(0.004, 0.05)
F = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])


class Fixed(Noise):
    def __init__(self, k: int) -> None:
        self.k = k

    def draw(self, scale: float) -> int:
        return self.k


def test_noise_that_would_saturate_is_refused() -> None:
    """Near 2^63 the sampler saturates, and load + 2^63 would show the load."""
    for epsilon, bound in ((1e-17, 2500), (1e-9, 2**31 - 1)):
        state = init(Zone("z", [bound]), TARIFF, [ONE], F, Policy(epsilon))
        with pytest.raises(PolicyError, match="larger epsilon"):
            step(state, 1234, SecureNoise())
    with pytest.raises(NoiseError, match="at most"):
        SecureNoise().draw(2e18)


@pytest.mark.parametrize("eta", [0.0, 0.01])
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.5])
def test_reacting_demand_is_cut_at_each_houses_own_bound(eta: float, epsilon: float) -> None:
    """Two houses of a class, bounds 300 and 450, demand up by half: the smaller loses more."""
    f0, f1 = np.zeros(301), np.zeros(301)
    f0[[100, 300]], f1[[0, 200]] = (0.75, 0.25), (0.25, 0.75)
    theta = OccupancyModel.factored([[0.5, 0.5]], [[E]], chain_of=[0, 0])
    f = Consumption.by_class(
        absent=[Histogram(f0)],
        present=[Histogram(f1)],
        class_of=[0, 0],
        elasticity=Elasticity(100.0, 1.0),
    )
    zone = Zone("z", [300, 450])
    state = init(zone, TARIFF, [theta], f, Policy(epsilon, eta=eta))
    _, state = step(state, 100, Fixed(0))  # a rate far below the reference: factor 1.5
    release, _ = step(state, 100, Fixed(0))
    losses, _ = house_losses(zone, f, 2, release.scale, eta, factor=1.5)
    assert losses.max() <= epsilon + 1e-9
    assert release.epsilon >= losses.max() - 1e-9


@pytest.mark.parametrize(
    "values", [np.full(6, np.nan), np.full(6, -1 / 6), np.ones(6), np.ones(3) / 3]
)
def test_a_law_of_ones_own_must_be_a_law(values: np.ndarray) -> None:
    class Odd(Law):
        top = 5

        def _pmf(self) -> np.ndarray:
            return values

    with pytest.raises(ConsumptionError, match="summing to 1"):
        schedule(
            [ONE],
            Zone("z", [5]),
            Consumption.by_class(absent=[Odd()], present=[Uniform(5)]),
            Policy(0.5, 1, eta=0.0),
        )


def test_two_sets_of_chains_of_one_size_are_refused() -> None:
    def piece(house: int) -> Chains:
        return Chains(np.array([[0.5, 0.5]]), np.array([[E]]), np.array([[house]]), np.array([0]))

    with pytest.raises(ModelError, match="one a size"):
        OccupancyModel((piece(0), piece(1)), Calendar.constant())


def test_epsilon_any_counts_houses_that_move_together() -> None:
    locked = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
    f = Consumption.by_class(absent=[Uniform(0)] * 2, present=[Uniform(1000)] * 2)
    for rule, any_loss in (("block", 0.5), ("paper", 1.0)):
        policy = Policy(0.5, 1, blocks=rule)  # type: ignore[arg-type]
        (found,) = schedule([locked], Zone("z", [1000, 1000]), f, policy)
        assert found.epsilon_any == pytest.approx(any_loss)
        assert found.epsilon_any >= found.epsilon


def test_exposures_of_other_rules_are_refused() -> None:
    theta = OccupancyModel.blocked(
        [[0, 1], [2]], [[0.5, 0, 0, 0.5], [0.5, 0.5]], [[np.eye(4)], [E]]
    )
    zone = Zone("z", [1000, 1000, 10])
    f = Consumption.by_class(absent=[Uniform(0)] * 3, present=[Uniform(10)] * 3)
    paper = exposures_of([theta], zone, f, Policy(0.5, blocks="paper"))
    with pytest.raises(PolicyError, match="exposures were made for"):
        init(zone, TARIFF, [theta], f, Policy(0.5), None, paper)
    init(zone, TARIFF, [theta], f, Policy(0.5, blocks="paper"), None, paper)


class Claims:
    """A scale, and a loss it only claims."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        return Answer(self._scale, 0.0, None)


def test_a_calibrators_loss_is_measured_not_believed() -> None:
    zone = Zone("z", [2500])
    for scale in (1e-3, 1000.0):
        with pytest.raises(PolicyError):
            schedule([ONE], zone, F, Policy(0.5, 1), Claims(scale))
    (found,) = schedule([ONE], zone, F, Policy(0.5, 1), Claims(10_000.0))
    assert found.epsilon == pytest.approx(0.25)
    release, _ = step(init(zone, TARIFF, [ONE], F, Policy(0.5), Claims(1e4)), 5, Fixed(0))
    assert release.rule == "eta=1 block union Claims"
    assert release.digest != init(zone, TARIFF, [ONE], F, Policy(0.5)).digest


class ForgetsTheBound(TrustCalibrator):
    """Takes the laws' reach for the bound: right at eta = 0 alone."""

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        def short(case: Case) -> Case:
            pairs = zip(case.before, case.after, strict=True)
            return replace(case, bound=tuple(max(a.top, b.top) for a, b in pairs))

        cases = tuple(short(case) for case in exposure.cases)
        return super().scale(replace(exposure, cases=cases), policy)


def test_the_suite_has_bounds_above_the_laws() -> None:
    with pytest.raises(AssertionError, match="bound above the laws"):
        check_calibrator(ForgetsTheBound)


def test_a_misspelt_rule_is_no_rule() -> None:
    with pytest.raises(PolicyError, match="models is 'Union'"):
        protected([ONE], 1, models_rule="Union")  # type: ignore[arg-type]


def test_nothing_open_does_not_depend_on_the_order_of_models() -> None:
    alone = OccupancyModel.factored([[1.0, 0.0]] * 2, [[np.eye(2)] * 2])
    joint = OccupancyModel.joint([1.0, 0, 0, 0], [np.eye(4)])
    f = Consumption.by_class(absent=[Uniform(0)] * 2, present=[Uniform(1000)] * 2)
    zone, policy = Zone("z", [1000, 1000]), Policy(0.5, 1, models="paper")
    scales = [schedule(m, zone, f, policy)[0].scale for m in ([alone, joint], [joint, alone])]
    assert scales == [4000, 4000]


def test_a_load_above_all_bounds_is_refused() -> None:
    state = init(Zone("z", [1000]), TARIFF, [ONE], F, Policy(0.5))
    with pytest.raises(ReadingError, match="above 1000 Wh") as caught:
        step(state, 987_654, Fixed(0))
    assert "987" not in str(caught.value)
    with pytest.raises(NoiseError, match="noise is None"):
        step(state, 5, None)  # type: ignore[arg-type]


def test_a_zone_does_not_follow_its_callers_array() -> None:
    mine = np.array([100, 200], np.int32)
    view = mine[:]
    view.flags.writeable = False
    zone = Zone("z", view)
    mine[0] = 1
    assert zone.bound.tolist() == [100, 200]


def test_readings_of_a_wrong_shape_are_not_shown() -> None:
    with pytest.raises(ReadingError) as caught:
        aggregate([[1.0, float("nan")], [130.0, 140.0]], [2500, 2500])
    assert "130" not in str(caught.value)


def test_a_bound_too_large_for_laws_is_refused_and_eta_1_is_not() -> None:
    huge = Zone("z", [2**31 - 1])
    with pytest.raises(PolicyError, match="eta = 1"):
        schedule([ONE], huge, F, Policy(0.5, 1, eta=0.05))
    assert schedule([ONE], huge, F, Policy(0.5, 1))[0].scale == pytest.approx((2**31 - 1) / 0.5)
    at_zero = [
        schedule([ONE], Zone("z", [u]), F, Policy(0.5, 1, eta=0.0))[0].scale for u in (1000, 10**7)
    ]
    assert at_zero[0] == pytest.approx(at_zero[1], rel=1e-9)


LOCKED = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
EMPTY, FULL = (OccupancyModel.factored([[p, 1 - p]] * 2, [[np.eye(2)] * 2]) for p in (1.0, 0.0))
PAIR = Zone("z", [1000, 1000])
G = Consumption.by_class(absent=[Uniform(0)] * 2, present=[Uniform(1000)] * 2)
NEAR = OccupancyModel.joint([0.4999, 0.0001, 0.0001, 0.4999], [np.eye(4)])


@pytest.mark.parametrize(
    ("models", "rules", "scale", "lost"),
    [
        ([LOCKED], {"blocks": "paper"}, 2000, 1.0),
        ([NEAR], {"blocks": "minimal"}, 2000, 1.0),
        ([NEAR], {"blocks": "paper", "eta": 0.5}, None, None),
        ([EMPTY, FULL], {"models": "paper", "on_empty": "publish_exact"}, 0, math.inf),
        ([LOCKED], {"blocks": "paper", "on_empty": "publish_exact"}, 0, math.inf),
        ([EMPTY], {"on_empty": "publish_exact"}, 0, 0.0),
    ],
)
def test_weaker_rules_state_what_is_told(
    models: list[OccupancyModel], rules: dict[str, object], scale: float | None, lost: float | None
) -> None:
    """A release states the loss about one house, however little its rules bound."""
    policy = Policy(0.5, 2, **rules)  # type: ignore[arg-type]
    first = init(PAIR, TARIFF, models, G, policy)
    release, state = step(first, 500, Fixed(0))
    due = float(first.scheduler.losses(1, release.scale).max()) if release.scale else lost
    assert release.epsilon == pytest.approx(due)
    assert scale is None or release.scale == scale, "the noise is that of the rules"
    assert lost is None or release.epsilon == pytest.approx(lost)
    assert release.epsilon_any >= release.epsilon
    assert first.scheduler.losses(1, release.scale).max() == pytest.approx(release.epsilon)
    if release.scale:
        realised = [one.loss for one in worst_of_blocks(first, models, 1, release.scale)]
        assert max(realised) <= release.epsilon + 1e-9, "what the public's own belief can learn"
    assert replace(release, epsilon=0.0) == replace(step(first, 500, Fixed(0))[0], epsilon=0.0)
    assert state.t == 2


def test_rules_of_the_paper_leave_houses_open_that_models_disagree_about() -> None:
    """One house is certain under each model, in contradicting ways; the other sets the noise."""
    one, other = (
        OccupancyModel.factored([[0.5, 0.5], [p, 1 - p]], [[E, np.eye(2)]]) for p in (1.0, 0.0)
    )
    zone = Zone("z", [100, 1000])
    small = Consumption.by_class(absent=[Uniform(0)] * 2, present=[Uniform(100)] * 2)
    for rule, lost in (("union", 0.5), ("paper", 5.0)):
        policy = Policy(0.5, 1, models=rule)  # type: ignore[arg-type]
        (found,) = schedule([one, other], zone, small, policy)
        assert found.epsilon == pytest.approx(lost)


def test_every_surface_names_what_weaker_rules_do_not_bound() -> None:
    plain = Policy(0.5, 2)
    for rules, words in (
        ({"blocks": "minimal"}, "only how well a price separates neighbouring joint states"),
        ({"blocks": "paper"}, "only how well a price separates joint states that differ in one"),
        ({"models": "paper"}, "though they disagree, is not protected"),
        ({"on_empty": "publish_exact"}, "this trusts the models absolutely"),
    ):
        policy = replace(plain, **rules)  # type: ignore[arg-type]
        assert words in " ".join(assumptions("step", policy, G, 2))
        assert words in promise_sentence(policy, "step", 0.5)
        assert words in " ".join(examine(PAIR, TARIFF, [NEAR, NEAR], G, policy).assumptions)
    assert "rule" not in " ".join(assumptions("step", plain, G, 2))
    said = examine(PAIR, TARIFF, [LOCKED], G, replace(plain, blocks="paper"))
    assert max(said.epsilon_t) == pytest.approx(1.0), "a plan's prose names the larger loss"
    terms = Policy(1.0, 2, models="paper")
    with pytest.raises(PlanError, match="bound less than what a release loses"):
        plan(PAIR, TARIFF, [NEAR, NEAR], G, secret="step", epsilon=0.5, terms=terms)
