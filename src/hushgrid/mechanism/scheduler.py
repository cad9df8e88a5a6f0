"""Calibration of every step, ahead of the first reading where that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, Value, brief, is_real
from hushgrid.errors import ConsumptionError, HorizonError, PolicyError
from hushgrid.mechanism.calibrators import (
    TRUST,
    Answer,
    Calibrator,
    TrustCalibrator,
    case_loss,
    check_scale,
    check_terms,
    loss_of_pmfs,
)
from hushgrid.mechanism.exposure import Case, Exposure, Exposures, merged
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.support import Protected
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Zone


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The noise of step t and what determined it.

    Attributes:
        t: The step.
        protected: The protected houses kappa.
        scale: Scale of the noise [Wh].
        epsilon: Loss of the most exposed house under the rules `block` and `union`, whichever rules
            set the noise [nats]; without noise 0 if no house is uncertain, else infinite.
        epsilon_any: The same for any consumption and every house (or block of houses that move
            together).
        house: The house that set the scale, or None.
        model: Number of the theta that set the scale; None: the models together.
    """

    t: int
    protected: Protected
    scale: float
    epsilon: float
    epsilon_any: float
    house: int | None
    model: int | None

    __repr__ = brief


class Scheduler(Value):
    """Computes `at(t, rates)`: the calibration of step t, from published rates only.

    Args:
        exposures: The exposure of each step.
        policy: The promise, the trust and the schedule.
        calibrator: A custom calibrator, or None.
    """

    def __init__(
        self, exposures: Exposures, policy: Policy, calibrator: Calibrator | None = None
    ) -> None:
        self._made_from = (exposures, policy, calibrator)
        self._exposures, self._policy = exposures, policy
        schedule = policy.schedule
        if schedule.lengths and calibrator is not None:
            raise PolicyError(
                f"policy block_steps has {len(schedule.lengths)} blocks and there is a"
                " calibrator too; give one of them."
            )
        self._calibrator: Calibrator = TRUST if calibrator is None else calibrator
        self._answers: dict[tuple[Exposure, float], Answer] = {}
        self._known: dict[tuple[int, float], Calibration] = {}
        self._terms: dict[float, Policy] = {}
        self._booked: Exposures | None = None
        self._losses: dict[tuple[Exposure, float], float] = {}
        self._merged: dict[tuple[Exposure, ...], Exposure] = {}
        self._of_block: dict[tuple[int, int], Exposure] = {}
        self.ahead = policy.eta == 1 or not exposures.consumption.reacts

    def made_from(self) -> tuple[Any, ...]:
        """Exposures, policy and calibrator."""
        return self._made_from

    def at(self, t: int, rates: Sequence[float] = (), epsilon: float | None = None) -> Calibration:
        """The calibration of step t after the published `rates` of steps 1..t-1.

        `epsilon` overrides the policy's loss for this step.
        """
        if not 1 <= t <= self._policy.horizon:
            raise HorizonError(
                f"step t is {t} but the policy's horizon is {self._policy.horizon};"
                " plan a longer horizon, or publish the public forecast."
            )
        loss = self._policy.epsilon_at(t) if epsilon is None else epsilon
        if not self.ahead:
            exposure = self.exposure(t, rates)
            return self._with_booked_loss(
                _calibration(t, exposure, self._answer(exposure, loss)), rates
            )
        if (t, loss) not in self._known:
            key = (self._exposure_of(self._exposures, t), loss)
            if key not in self._answers:
                self._answers[key] = self._answer(*key, self._coarsest(t))
            self._known[t, loss] = self._with_booked_loss(
                _calibration(t, key[0], self._answers[key])
            )
        return self._known[t, loss]

    def _with_booked_loss(
        self, calibration: Calibration, rates: Sequence[float] = ()
    ) -> Calibration:
        """The calibration with its booked loss, where the rules that set the noise bound less."""
        if calibration.scale > 0 and not self._exposures.weaker:
            return calibration
        exposure = self._booked_exposure(calibration.t)
        if not self.ahead:
            exposure = self._after_reaction(exposure, calibration.t, rates)
        if calibration.scale == 0:
            return replace(calibration, epsilon=math.inf if exposure.cases else 0.0)
        worst = max(self._worst(exposure, calibration.scale), calibration.epsilon)
        any_loss = math.nextafter(exposure.reach / calibration.scale, math.inf)
        return replace(
            calibration, epsilon=worst, epsilon_any=max(any_loss, calibration.epsilon_any)
        )

    def _worst(self, exposure: Exposure, scale: float) -> float:
        """The largest loss of any case; cached where steps share exposures."""
        if (exposure, scale) not in self._losses:
            losses = (case_loss(case, scale, self._policy.eta) for case in exposure.cases)
            worst = max(losses, default=0.0)
            if not self.ahead:
                return worst
            self._losses[exposure, scale] = worst
        return self._losses[exposure, scale]

    def _booked_exposure(self, t: int) -> Exposure:
        """The exposure under the booked rules, before any reaction of demand to rates."""
        if self._booked is None:
            self._booked = self._exposures.booked()
        return self._exposure_of(self._booked, t)

    def _exposure_of(self, exposures: Exposures, t: int) -> Exposure:
        """The exposure of step t; of a block of steps that of all its steps together."""
        first, last = self._policy.schedule.span(t)
        if first == last:
            return exposures.at(t)
        key = (id(exposures), first)
        if key not in self._of_block:
            steps = tuple(dict.fromkeys(exposures.at(s) for s in range(first, last + 1)))
            if steps not in self._merged:
                self._merged[steps] = merged(steps)
            self._of_block[key] = self._merged[steps]
        return self._of_block[key]

    def _coarsest(self, t: int) -> float:
        """The least scale that noise of the block of step t can have [Wh]."""
        first, last = self._policy.schedule.span(t)
        return (last - first + 1) / 4 if last > first else 0.0

    def scales(self) -> list[float]:
        """The scale of every step [Wh]; none where they are not known before the first reading."""
        scales, scale_of = list[float](), dict[tuple[Exposure, float], float]()
        for t in range(1, self._policy.horizon + 1) if self.ahead else ():
            key = (self._exposure_of(self._exposures, t), self._policy.epsilon_at(t))
            if key not in scale_of:  # most steps are like an earlier one
                scale_of[key] = self.at(t).scale
            scales.append(scale_of[key])
        return scales

    def most(self, t: int) -> float:
        """The largest loss of a release of step t at its epsilon, for any rates before.

        Above epsilon only under rules that bound less than what a release discloses about one
        house; infinite where that depends on rates.
        """
        loss = self._policy.epsilon_at(t)
        if not self._exposures.weaker:
            return loss
        return max(self.at(t).epsilon, loss) if self.ahead else math.inf

    @property
    def weaker(self) -> bool:
        """Whether the rules can bound less than what a release discloses about one house."""
        return self._exposures.weaker

    @property
    def consumption(self) -> Consumption:
        """The public law of readings, cut at the clamp."""
        return self._exposures.consumption

    @property
    def zone(self) -> Zone:
        """The zone, with the clamp as its bounds."""
        return self._exposures.zone

    def exposure(self, t: int, rates: Sequence[float] = ()) -> Exposure:
        """The exposure of step t, after demand has reacted to the rates of steps 1..t-1."""
        return self._after_reaction(self._exposure_of(self._exposures, t), t, rates)

    def booked(self, t: int, rates: Sequence[float] = ()) -> Exposure:
        """The exposure of step t under `block` and `union`, whichever rules set the noise."""
        return self._after_reaction(self._booked_exposure(t), t, rates)

    def losses(self, t: int, scale: float, rates: Sequence[float] = ()) -> Floats:
        """Loss of every house at `scale`, (N,): 0 where its occupancy is certain."""
        exposure = self.booked(t, rates)
        if not exposure.cases:  # nothing is uncertain, so nothing is disclosed, even without noise
            return np.zeros(self.zone.n_houses)
        if scale == 0:
            bare = exposure.protected.mask()
            for block in exposure.blocks:
                bare[list(block)] |= bool(cases_of(exposure, block))
            return np.where(bare, math.inf, 0.0)
        eta, factor = self._policy.eta, self.consumption.factor(rates[: t - 1])
        house_losses = _losses_of_houses(self.zone, self.consumption, t, scale, eta, factor)
        cost = np.where(exposure.protected.mask(), house_losses, 0.0)
        for block in exposure.blocks:  # any house of a block can disclose the others
            cases = cases_of(exposure, block)
            cost[list(block)] = max((case_loss(case, scale, eta) for case in cases), default=0.0)
        return cost

    def _after_reaction(self, exposure: Exposure, t: int, rates: Sequence[float]) -> Exposure:
        if not self.consumption.reacts:
            return exposure
        if len(rates) < t - 1:
            raise ConsumptionError(
                f"readings react to published rates and {len(rates)} of {t - 1} are given;"
                " give all rates published before the step."
            )
        factor = self.consumption.factor(rates[: t - 1])
        return replace(exposure, cases=tuple(case.scaled(factor) for case in exposure.cases))

    def _answer(self, exposure: Exposure, epsilon: float, coarsest: float = 0.0) -> Answer:
        policy = self._policy
        if epsilon != policy.epsilon:
            if epsilon not in self._terms:
                even = policy.schedule.with_epsilons(())
                self._terms[epsilon] = replace(policy, epsilon=epsilon, schedule=even)
            policy = self._terms[epsilon]
        answer = self._calibrator.scale(exposure, policy)
        _check_scale(answer, policy, bool(exposure.cases))
        if coarsest > answer.scale:  # less noise cannot be drawn for so many steps
            answer = answer._replace(scale=coarsest, loss=answer.loss * answer.scale / coarsest)
        # TrustCalibrator has measured every case
        if answer.scale > 0 and type(self._calibrator) is not TrustCalibrator:
            losses = [case_loss(c, answer.scale, policy.eta) for c in exposure.cases]
            worst = max(losses, default=0.0)
            answer = answer._replace(loss=worst)
        _check_loss(answer, policy)
        return answer


def cases_of(exposure: Exposure, block: Sequence[int]) -> list[Case]:
    """The cases in which houses of a block differ.

    Args:
        exposure: The exposure of a step.
        block: House numbers of the block.

    Returns:
        The cases whose houses all belong to the block.
    """
    members = set(block)
    return [case for case in exposure.cases if members.issuperset(case.houses)]


def _calibration(t: int, exposure: Exposure, answer: Answer) -> Calibration:
    b = answer.scale
    house, model = answer.house, None
    if answer.case is not None:
        house, model = answer.case.houses[0], answer.case.model
    if b == 0:
        return Calibration(t, exposure.protected, b, math.inf, math.inf, house, model)
    any_loss = math.nextafter(exposure.reach / b, math.inf)
    return Calibration(t, exposure.protected, b, answer.loss, any_loss, house, model)


def exposures_of(
    models: Sequence[OccupancyModel], zone: Zone, consumption: Consumption, policy: Policy
) -> Exposures:
    """The exposure of each step under the policy's rules, for any epsilon and eta.

    Args:
        models: The occupancy models Theta.
        zone: Houses and bounds.
        consumption: The laws of readings.
        policy: The policy.

    Returns:
        The exposures.
    """
    return Exposures(
        models,
        zone,
        consumption,
        blocks=policy.blocks,
        models_rule=policy.models,
        on_empty=policy.on_empty,
        clamp=policy.clamp,
    )


def schedule(
    models: Sequence[OccupancyModel],
    zone: Zone,
    consumption: Consumption,
    policy: Policy,
    calibrator: Calibrator | None = None,
) -> tuple[Calibration, ...]:
    """The noise of every step 1..horizon, before the first reading.

    Args:
        models: The occupancy models Theta.
        zone: Houses and bounds.
        consumption: The laws of readings.
        policy: The policy.
        calibrator: A custom calibrator, or None.

    Returns:
        One calibration for each step.

    Raises:
        ConsumptionError: If consumption reacts to rates and eta is below 1.

    >>> from hushgrid.model.laws import Uniform
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> [c.scale for c in schedule([theta], Zone("z", [1000]), f, Policy(0.5, horizon=2))]
    [2000.0, 2000.0]
    """
    scheduler = Scheduler(exposures_of(models, zone, consumption, policy), policy, calibrator)
    if not scheduler.ahead:
        raise ConsumptionError(
            f"readings react to published rates and eta is {policy.eta}; the scale is then known"
            " only step by step: use init and step, or eta = 1."
        )
    return tuple(scheduler.at(t) for t in range(1, policy.horizon + 1))


def house_losses(
    zone: Zone, consumption: Consumption, t: int, scale: float, eta: float, factor: float = 1.0
) -> tuple[Floats, Floats]:
    """Loss of a release for every house; houses of small bounds lose less.

    Args:
        zone: Houses and bounds.
        consumption: The laws of readings.
        t: The step.
        scale: Scale of the noise [Wh].
        eta: Share of the law that may be anything.
        factor: Reaction of demand to the last rate.

    Returns:
        Two (N,) arrays [nats]: the loss at this eta, and u/b, which holds for any consumption.

    Raises:
        ConsumptionError: If the factor is not a positive number.
    """

    consumption.check_fits(zone.bound)
    check_terms(int(zone.bound.max()), eta)
    check_scale(scale)
    if not (is_real(factor) and factor > 0):
        raise ConsumptionError(f"factor is {factor}; give a positive number.")
    return _losses_of_houses(zone, consumption, t, scale, eta, factor), zone.bound / scale


def _losses_of_houses(
    zone: Zone, consumption: Consumption, t: int, scale: float, eta: float, factor: float
) -> Floats:
    """`house_losses` at this eta, of arguments that fit."""
    if eta == 1:
        return np.asarray(zone.bound / scale)

    def pmf(kind: int, bound: int, occupied: bool) -> Floats:
        law = consumption.law(t, kind, occupied=occupied)
        return law.pmf if factor == 1 else law.scaled(factor, bound).pmf

    kinds = np.stack([consumption.class_of, zone.bound], axis=1)
    distinct, inverse = np.unique(kinds, axis=0, return_inverse=True)
    losses = [
        loss_of_pmfs(pmf(kind, bound, False), pmf(kind, bound, True), bound, scale, eta)
        for kind, bound in distinct.tolist()
    ]
    return np.array(losses)[inverse.ravel()]


def _check_scale(answer: Answer, policy: Policy, needed: bool) -> None:
    exact = not needed and policy.on_empty == "publish_exact"
    if exact and answer.scale == 0:
        return
    if not policy.min_scale <= answer.scale < math.inf:
        raise PolicyError(
            f"calibrator answered the scale {answer.scale}; a release needs {policy.min_scale} Wh"
            " or more."
        )


def _check_loss(answer: Answer, policy: Policy) -> None:
    if not answer.loss <= policy.epsilon * (1 + 1e-9):
        raise PolicyError(
            f"calibrator leaves a loss of {answer.loss:g} where epsilon is {policy.epsilon:g};"
            " give a larger epsilon or another calibrator."
        )
