"""Calibrators: ours and a stranger's pass one suite; the suite tells a weak one."""

from __future__ import annotations

import numpy as np
import pytest

from hushgrid import (
    Answer,
    Calendar,
    Consumption,
    Exposure,
    Gamma,
    LogNormal,
    Naive,
    OccupancyModel,
    Policy,
    PolicyError,
    TrustCalibrator,
    Uniform,
    Zone,
    house_losses,
    schedule,
    smallest_scale,
    worst_loss,
)
from hushgrid.mechanism.exposure import Exposures
from hushgrid.mechanism.scheduler import exposures_of
from hushgrid.testing import check_calibrator

E = [[0.9, 0.1], [0.2, 0.8]]


def test_trust_conforms() -> None:
    check_calibrator(TrustCalibrator)


def test_naive_conforms_where_houses_move_alone() -> None:
    check_calibrator(Naive, blocks="paper")


class Wasserstein:
    """A stranger's calibrator: largest quantile gap of the two laws over epsilon."""

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        def gap(case: object) -> float:
            total = 0.0
            for before, after, bound in zip(case.before, case.after, case.bound, strict=True):  # type: ignore[attr-defined]
                levels = np.unique(np.r_[np.cumsum(before.pmf), np.cumsum(after.pmf)]) - 1e-12
                ends = [np.searchsorted(np.cumsum(law.pmf), levels) for law in (before, after)]
                total += bound if policy.eta else float(np.abs(ends[0] - ends[1]).max())
            return total

        worst = max(exposure.cases, key=gap)
        b = max(gap(worst) / policy.epsilon, policy.min_scale)
        return Answer(b, gap(worst) / b, worst)


def test_a_strangers_calibrator_conforms() -> None:
    check_calibrator(Wasserstein)


class TooLittle(TrustCalibrator):
    """0.7 of what is needed, and a clean conscience."""

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        answer = super().scale(exposure, policy)
        return answer._replace(scale=0.7 * answer.scale)


def test_the_suite_catches_too_little_noise() -> None:
    with pytest.raises(AssertionError, match="loses"):
        check_calibrator(TooLittle)


def many_houses(n: int, bound: int = 400) -> tuple[Zone, list[OccupancyModel], Consumption]:
    rng = np.random.default_rng(6)
    f = Consumption.by_class(
        absent=[Gamma(2.0, s, bound) for s in rng.uniform(3, 12, n)],
        present=[LogNormal(m, 0.7, bound) for m in rng.uniform(20, 80, n)],
    )
    theta = OccupancyModel.factored([[0.5, 0.5]], [[E]], chain_of=[0] * n)
    return Zone("z", np.full(n, bound)), [theta], f


@pytest.mark.parametrize("eta", [0.0, 0.02, 0.4])
def test_the_scale_of_many_is_the_largest_of_each(eta: float) -> None:
    zone, models, f = many_houses(40)
    (found,) = schedule(models, zone, f, Policy(0.5, 1, eta=eta))
    each = []
    for kind in range(40):
        pmfs = [f.law(1, kind, occupied=o).pmf for o in (False, True)]
        each.append(smallest_scale(*pmfs, bound=400, epsilon=0.5, eta=eta))
    assert found.scale == pytest.approx(max(each), rel=1e-9)
    assert found.house == int(np.argmax(each))
    assert found.epsilon_any == pytest.approx(400 / found.scale)


def test_remembering_changes_no_answer() -> None:
    """One Trust over a day of changing protected sets, against a fresh one for each step."""
    rng = np.random.default_rng(8)
    n, slots = 30, 12
    zone, _, f = many_houses(n)
    a = np.where(rng.random((slots, n, 2, 1)) < 0.85, 1.0, rng.random((slots, n, 2, 1)))
    theta = OccupancyModel.factored(
        [[1.0, 0.0]] * n, np.concatenate([a, 1 - a], axis=-1), calendar=Calendar(range(slots))
    )
    policy = Policy(0.5, slots, eta=0.05)
    day = schedule([theta], zone, f, policy)
    assert len({c.scale for c in day}) > 3
    for calibration in day:
        exposure = exposures_of([theta], zone, f, policy).at(calibration.t)
        assert TrustCalibrator().scale(exposure, policy).scale == pytest.approx(
            calibration.scale, rel=1e-9
        )


def test_no_scale_depends_on_what_was_asked_before() -> None:
    """Cases alone, together and in any order, to the last bit: zones share what is solved."""
    kinds = 4
    f = Consumption.by_class(
        absent=[Gamma(1.5, 20.0 + 3 * k, 600) for k in range(kinds)],
        present=[LogNormal(90.0 + 7 * k, 0.7, 600 + k) for k in range(kinds)],
        class_of=range(kinds),
    )
    zone = Zone("z", [700 + 5 * k for k in range(kinds)])
    policy = Policy(0.5, eta=0.02)

    def asked(memory: TrustCalibrator, houses: list[int]) -> float:
        first = [[0.5, 0.5] if k in houses else [1.0, 0.0] for k in range(kinds)]
        theta = OccupancyModel.factored(first, [[np.eye(2)] * kinds])
        return memory.scale(exposures_of([theta], zone, f, policy).at(1), policy).scale

    sets = [[0, 1, 2, 3], [3], [0, 2], [1], [0], [1, 3], [2]]
    fresh = [asked(TrustCalibrator(), houses) for houses in sets]
    memory = TrustCalibrator()
    assert [asked(memory, houses) for houses in sets] == fresh
    memory = TrustCalibrator()
    assert [asked(memory, houses) for houses in sets[::-1]] == fresh[::-1]


def test_per_house_losses_for_all_houses() -> None:
    f = Consumption.by_class(
        absent=[Uniform(50), Uniform(500)],
        present=[Uniform(100), Uniform(1000)],
        class_of=[0, 1, 0],
    )
    zone = Zone("z", [100, 1000, 300])
    epsilon, any_epsilon = house_losses(zone, f, 1, 601.2191, eta=0.0)
    assert epsilon[1] == pytest.approx(0.5, abs=1e-6)
    assert epsilon[0] == pytest.approx(epsilon[2], abs=1e-9)
    assert epsilon[0] < 0.1  # the small get more for free
    assert any_epsilon == pytest.approx(zone.bound / 601.2191)
    wary, _ = house_losses(zone, f, 1, 601.2191, eta=0.1)
    pmfs = [np.r_[Uniform(u).pmf, np.zeros(300 - u)] for u in (50, 100)]
    assert wary[2] == worst_loss(*pmfs, bound=300, scale=601.2191, eta=0.1)


class Broken:
    """Answers whatever it was told to."""

    def __init__(self, scale: float, loss: float) -> None:
        self.answer = Answer(scale, loss, None)

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        return self.answer


@pytest.mark.parametrize(
    ("scale", "loss"),
    [(0.0, 0.1), (-1.0, 0.1), (float("nan"), 0.1), (5.0, 0.6), (5.0, float("nan"))],
)
def test_an_answer_that_protects_nobody_is_refused(scale: float, loss: float) -> None:
    zone, models, f = many_houses(2)
    with pytest.raises(PolicyError):
        schedule(models, zone, f, Policy(0.5, 1), Broken(scale, loss))


def test_exposures_are_shared_by_steps_that_are_alike() -> None:
    zone, models, f = many_houses(3)
    exposures = exposures_of(models, zone, f, Policy(0.5))
    assert isinstance(exposures, Exposures)
    assert exposures.at(1) is exposures.at(50)
