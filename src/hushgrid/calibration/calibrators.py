"""Calibrators: from what a release could give away to a noise scale (Algorithm 1, lines 8 to 10).

A calibrator is any object with `scale(exposure, policy) -> Answer`; hushgrid.testing holds the
checks that ours pass and yours should.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid.arrays import Floats
from hushgrid.calibration.cases import Case, Exposure
from hushgrid.calibration.loss import blind_scale, invert, loss_of_pmfs
from hushgrid.checks import is_whole
from hushgrid.errors import PolicyError
from hushgrid.laws import Law
from hushgrid.policy import Policy

Pair = tuple[Floats, Floats, int]  # pmf before, pmf after, bound

_MEMORY = 100_000  # cases to remember
_WIDE = 50.0  # [Wh] least standard deviation of integer Gaussian noise
_LONG = 20_000_000  # multiplications a convolution may take before losses are added instead


class Answer(NamedTuple):
    """A scale [Wh], the loss it leaves for the worst case, and that case or the house behind it."""

    scale: float
    loss: float
    case: Case | None
    house: int | None = None


class Calibrator(Protocol):
    """Answers an exposure with enough noise for the policy's epsilon."""

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        """The scale of this step; 0 only for an exposure without cases."""
        ...


@dataclass(frozen=True, slots=True)
class Naive:
    """The paper's naive mechanism: every house protected, scale = largest bound / epsilon.

    `bound` [Wh] is a bound for any house whatever (the paper's u_max); without it, the zone's own.
    """

    bound: int | None = None

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        """largest bound / epsilon, whoever is protected."""
        house = exposure.largest
        largest = int(exposure.bound[house])
        if self.bound is not None and not (is_whole(self.bound) and self.bound >= largest):
            raise PolicyError(
                f"naive bound is {self.bound} but house {house} has {largest};"
                " give a bound above every house's."
            )
        b = max(blind_scale(self.bound or largest, policy.epsilon), policy.min_scale)
        reach = max((case.reach for case in exposure.cases), default=0)
        return Answer(b, reach / b, None, house)


@dataclass(frozen=True, slots=True)
class TrustCalibrator:
    """The smallest scale whose loss is within epsilon for every case, at the policy's eta.

    eta = 1 is the paper's rule. Remembers what it has solved, so that a day of steps costs
    little more than one, and zones with the same laws and bounds no more than one of them; the
    memory changes no answer.
    """

    _solved: dict[tuple[object, ...], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _enough: dict[tuple[object, ...], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        """Test every case at the current scale; search only where it fails."""
        if not exposure.cases:
            return Answer(0.0, 0.0, None)
        if len(self._enough) + len(self._solved) > _MEMORY:  # laws that react to rates are all new
            self._enough.clear()
            self._solved.clear()
        if policy.eta == 1:
            worst = max(exposure.cases, key=lambda case: case.reach)
            b = max(blind_scale(worst.reach, policy.epsilon), policy.min_scale)
            return Answer(b, worst.reach / b, worst)
        return self._trusting(exposure.cases, policy)

    def _trusting(self, cases: tuple[Case, ...], policy: Policy) -> Answer:
        b, limiting = policy.min_scale, None
        for case in sorted(cases, key=_promise, reverse=True):
            key = self._key(case, policy)
            if self._enough.get(key, math.inf) <= b:
                continue
            pairs = pairs_of(case, policy.eta)
            if _total(pairs, b, policy.eta) <= policy.epsilon:
                self._enough[key] = b
                continue
            if key not in self._solved:
                # from the same end for all, so that no answer depends on what was asked before
                self._solved[key] = _solve(pairs, policy.min_scale, policy)
            b, limiting = max(b, self._solved[key]), case
        if limiting is not None:
            return Answer(b, policy.epsilon, limiting)
        losses = [_total(pairs_of(case, policy.eta), b, policy.eta) for case in cases]
        worst = int(np.argmax(losses))
        return Answer(b, losses[worst], cases[worst])

    @staticmethod
    def _key(case: Case, policy: Policy) -> tuple[object, ...]:
        # at eta = 0 the bound plays no part beyond the laws' own reach
        bound = case.bound if policy.eta > 0 else ()
        rule = (policy.epsilon, policy.eta, policy.min_scale)
        return (case.before, case.after, bound, case.exact, rule)


TRUST = TrustCalibrator()  # what one zone has solved serves all


@dataclass(frozen=True, slots=True)
class GaussianMultiple:
    """Standard deviation = the policy's multiple of the farthest a protected case reaches.

    No finite loss a step: what a horizon of them costs is for the accountant. Never below 50 Wh:
    where whole numbers show, the integer law is not the closed form's.
    """

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        """multiple * reach."""
        if not exposure.cases:
            return Answer(0.0, 0.0, None)
        worst = max(exposure.cases, key=lambda case: case.reach)
        sigma = max(policy.schedule.multiple * worst.reach, policy.min_scale, _WIDE)
        return Answer(sigma, math.inf, worst)


def case_loss(case: Case, scale: float, eta: float) -> float:
    """What a release at `scale` loses for one case."""
    return _total(pairs_of(case, eta), scale, eta)


def _promise(case: Case) -> float:
    """A guess at how much noise a case wants, to meet the worst one early."""
    return sum(
        abs(a.mean - p.mean) + 1e-6 * u
        for a, p, u in zip(case.before, case.after, case.bound, strict=True)
    )


def _solve(pairs: list[Pair], failing: float, policy: Policy) -> float:
    reach = sum(bound for _, _, bound in pairs)
    return invert(lambda b: _total(pairs, b, policy.eta), reach, policy.epsilon, failing)


def _total(pairs: list[Pair], scale: float, eta: float) -> float:
    return sum(loss_of_pmfs(f0, f1, bound, scale, eta) for f0, f1, bound in pairs)


def pairs_of(case: Case, eta: float) -> list[Pair]:
    """The pairs of laws whose losses add up to (a bound on) the loss of a case.

    Changing one house at a time bounds any case; at eta = 0 the readings of a definite change
    are convolved instead, which is exact (docs/proofs/blocks.md).
    """
    if len(case.houses) > 1 and eta == 0 and case.exact and _work(case.before) < _LONG:
        return [(convolved(case.before), convolved(case.after), case.reach)]
    return [
        (before.pmf, after.pmf, bound)
        for before, after, bound in zip(case.before, case.after, case.bound, strict=True)
    ]


def convolved(laws: Iterable[Law]) -> Floats:
    """The pmf of a sum of independent readings, by sums of positive terms only."""
    return reduce(np.convolve, (law.pmf for law in laws))


def _work(laws: Iterable[Law]) -> int:
    reach, work = 0, 0
    for law in laws:
        work += reach * law.top
        reach += law.top
    return work
