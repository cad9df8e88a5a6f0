"""Losses and calibrators: from an exposure to a noise scale (Algorithm 1, lines 8 to 10).

The first part computes the loss of one house at a noise scale, and its inverse (proofs:
docs/proofs/calibration.md). A calibrator is any object with `scale(exposure, policy) -> Answer`;
hushgrid.testing has the conformance suite for calibrators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._frames import check_labels
from hushgrid._numbers import Floats, brief, float_array, is_real, is_whole
from hushgrid.errors import ConsumptionError, NoiseError, PolicyError, ZoneError
from hushgrid.mechanism.exposure import Case, Exposure
from hushgrid.mechanism.policy import MAX_SCALE, MIN_SCALE, Policy
from hushgrid.model.laws import Law

# ---- loss of one house


_DEEP = 680.0  # bound/scale beyond which e^(-bound/scale) nears the smallest float
_LONGEST = 20_000_000  # [Wh]; laws are arrays over 0..bound
_ULP = 2.0**-53
_WIDTH = 1e-12  # relative width at which the search for a scale stops


def worst_loss(
    absent: ArrayLike, present: ArrayLike, *, bound: int, scale: float, eta: float
) -> float:
    """Largest |log p_1/p_0| over all outputs and all worlds within eta of the model.

    Rounded up by more than its floating-point error, but never above bound/scale.

    See: docs/proofs/calibration.md.

    Args:
        absent: Pmf of the reading while absent, (bound + 1,) over 0..bound [Wh].
        present: Pmf of the reading while present, (bound + 1,).
        bound: Contract bound of the house, whole Wh, 1 or more.
        scale: Scale of the integer Laplace noise [Wh], above 0.
        eta: Share of the law that may be anything, 0 to 1.

    Returns:
        The loss [nats].

    >>> f0, f1 = [.5, .3, .1, .05, .05], [.1, .1, .2, .3, .3]
    >>> round(worst_loss(f0, f1, bound=4, scale=2.0, eta=0.05), 9)
    0.911493379
    """
    check_terms(bound, eta)
    check_labels(PolicyError, absent=absent, present=present)
    f0, f1 = _pmf(absent, bound, "absent"), _pmf(present, bound, "present")
    check_scale(scale)
    return loss_of_pmfs(f0, f1, bound, scale, eta)


def smallest_scale(
    absent: ArrayLike,
    present: ArrayLike,
    *,
    bound: int,
    epsilon: float,
    eta: float,
    floor: float = MIN_SCALE,
) -> float:
    """Smallest scale b, not below `floor`, with worst_loss <= epsilon; rounded up.

    See: docs/proofs/calibration.md.

    Args:
        absent: Pmf of the reading while absent, (bound + 1,) over 0..bound [Wh].
        present: Pmf of the reading while present, (bound + 1,).
        bound: Contract bound of the house, whole Wh, 1 or more.
        epsilon: Loss allowed [nats], above 0.
        eta: Share of the law that may be anything, 0 to 1.
        floor: Least scale [Wh].

    Returns:
        The scale [Wh].

    Raises:
        PolicyError: If epsilon is not a positive number.

    >>> f0, f1 = [.5, .3, .1, .05, .05], [.1, .1, .2, .3, .3]
    >>> round(smallest_scale(f0, f1, bound=4, epsilon=0.5, eta=0.2), 9)
    4.450520787
    """
    check_terms(bound, eta)
    check_labels(PolicyError, absent=absent, present=present)
    f0, f1 = _pmf(absent, bound, "absent"), _pmf(present, bound, "present")
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"epsilon is {epsilon}; give a positive number.")
    check_scale(floor)
    return invert(lambda b: loss_of_pmfs(f0, f1, bound, b, eta), bound, epsilon, floor)


def loss_of_pmfs(f0: Floats, f1: Floats, bound: int, scale: float, eta: float) -> float:
    """`worst_loss` without checks of its arguments; pmfs may end below the bound.

    Args:
        f0: Pmf while absent, over 0, 1, ... [Wh].
        f1: Pmf while present.
        bound: Contract bound [Wh].
        scale: Scale of the noise [Wh].
        eta: Share of the law that may be anything.

    Returns:
        The loss [nats].

    Raises:
        PolicyError: If the bound is too large for eta < 1.
    """
    blind = bound / scale  # what holds whatever anyone consumes
    if eta == 1:
        return blind
    if eta == 0:  # the bound plays no part beyond the laws' own reach
        bound = max(f0.size, f1.size) - 1
    if bound > _LONGEST:
        raise PolicyError(
            f"bound is {bound} Wh and eta {eta:g}; above {_LONGEST} Wh a step only eta = 1 is"
            " worked out: give eta = 1 or a smaller bound."
        )
    from hushgrid._kernels.loss import log_pmf, worst_log_ratio, worst_ratio

    if bound / scale <= _DEEP:
        loss = math.log(worst_ratio(f0, f1, bound, math.exp(-1 / scale), eta))
        slack = 16 * (bound + 4) * _ULP
    else:
        loss = worst_log_ratio(log_pmf(f0), log_pmf(f1), bound, 1 / scale, eta)
        slack = 16 * (bound + 4) * _ULP * (1 + blind)
    return float(min(loss + slack, blind))


def blind_scale(reach: float, epsilon: float) -> float:
    """reach / epsilon, rounded so that reach / scale does not exceed epsilon.

    Args:
        reach: Largest change of the load [Wh].
        epsilon: Loss allowed [nats].

    Returns:
        The scale [Wh].

    Raises:
        PolicyError: If the scale would exceed MAX_SCALE.
    """
    if not reach <= MAX_SCALE * epsilon:
        raise PolicyError(
            f"epsilon is {epsilon:g}, which takes noise above {MAX_SCALE:g} Wh for a reach of"
            f" {reach} Wh; give a larger epsilon."
        )
    b = reach / epsilon
    while reach / b > epsilon:
        b = math.nextafter(b, math.inf)
    return b


def invert(loss: Callable[[float], float], bound: float, epsilon: float, floor: float) -> float:
    """Smallest b >= floor with loss(b) <= epsilon.

    Chandrupatla's bracketing search on the logarithms; the scale returned was evaluated itself.

    Args:
        loss: Loss at a scale; never rises with the scale and is at most bound/scale.
        bound: Largest change of the load [Wh].
        epsilon: Loss allowed [nats].
        floor: Least scale [Wh].

    Returns:
        The scale [Wh].
    """
    high = blind_scale(bound, epsilon)
    if high <= floor:
        return floor
    low = floor
    while high > 4 * floor:  # noise is rarely far below its blind value: close in from above
        if loss(high / 4) > epsilon:
            low = high / 4
            break
        high /= 4
    if low == floor and loss(floor) <= epsilon:
        return floor
    return _close_in(lambda b: math.log(loss(b) / epsilon), low, high)


def _close_in(gap: Callable[[float], float], low: float, high: float) -> float:
    """Chandrupatla (1997): gap(low) > 0 >= gap(high), never rising; x is log b."""
    a, b = math.log(high), math.log(low)  # b is the newest end, a the other, c the one before
    fa, fb = gap(high), gap(low)
    best = high
    c, fc, share = a, fa, 0.5
    while True:
        x = a + share * (b - a)
        fx = gap(math.exp(x))
        if fx <= 0:
            best = min(best, math.exp(x))
        if (fx > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, fc, b, fb = b, fb, a, fa
        a, fa = x, fx
        width = abs(b - a)
        if width <= _WIDTH:
            return best
        share = 0.5
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb) if fc != fb else math.inf
        if phi * phi < xi and (1 - phi) ** 2 < 1 - xi:
            share = fa / (fb - fa) * fc / (fb - fc)
            share += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        edge = 0.5 * _WIDTH / width
        share = min(max(share, edge), 1 - edge)


def _pmf(values: ArrayLike, bound: int, name: str) -> Floats:
    f = float_array(values, name, ConsumptionError)
    if f.ndim != 1 or f.size != bound + 1:
        raise ConsumptionError(
            f"{name} has shape {f.shape} but the bound is {bound};"
            " give one probability for each Wh from 0 to the bound."
        )
    if not (f >= 0).all() or not abs(f.sum() - 1) <= 1e-9:
        raise ConsumptionError(
            f"{name} sums to {f.sum():g}; give probabilities of 0 or more that sum to 1."
        )
    return f


def check_terms(bound: int, eta: float) -> None:
    """Check a bound and a trust.

    Args:
        bound: Contract bound [Wh].
        eta: Share of the law that may be anything.

    Raises:
        ZoneError: If the bound is not a whole number from 1 on.
        PolicyError: If eta is not from 0 to 1.
    """
    if not is_whole(bound) or isinstance(bound, float) or bound < 1:
        raise ZoneError(f"bound is {bound}; give whole Wh, 1 or more.")
    if not (is_real(eta) and 0 <= eta <= 1):
        raise PolicyError(f"eta is {eta}; give a share from 0 to 1.")


def check_scale(scale: float) -> None:
    """Check a noise scale.

    Args:
        scale: The scale [Wh].

    Raises:
        NoiseError: If it is not a positive number.
    """
    if not (is_real(scale) and scale > 0):
        raise NoiseError(f"scale is {scale}; give a positive number of Wh.")


# ---- calibrators

Pair = tuple[Floats, Floats, int]  # pmf before, pmf after, bound

_MEMORY = 100_000  # cases to remember
_LONG = 20_000_000  # multiplications a convolution may take before losses are added instead


class Answer(NamedTuple):
    """What a calibrator returns for an exposure.

    Attributes:
        scale: Scale of the noise [Wh].
        loss: Loss that it leaves in the worst case [nats].
        case: The worst case, or None.
        house: The house that set the scale, where no case did.
    """

    scale: float
    loss: float
    case: Case | None
    house: int | None = None

    def __repr__(self) -> str:
        return brief(self)


class Calibrator(Protocol):
    """Answers an exposure with enough noise for the policy's epsilon."""

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        """The scale of this step; 0 only for an exposure without cases."""
        ...


@dataclass(frozen=True, slots=True)
class Naive:
    """The paper's naive mechanism: every house protected, scale = largest bound / epsilon.

    Attributes:
        bound: A bound for all houses [Wh] (the paper's u_max); None: the largest of the zone.
    """

    bound: int | None = None

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        """largest bound / epsilon, whichever houses are protected."""
        house = exposure.largest
        largest = int(exposure.bound[house])
        if self.bound is not None and not (is_whole(self.bound) and self.bound >= largest):
            raise PolicyError(
                f"naive bound is {self.bound} but house {house} has {largest};"
                " give a bound above every house's."
            )
        b = max(blind_scale(self.bound or largest, policy.epsilon), policy.min_scale)
        reach = exposure.widest.reach if exposure.cases else 0
        return Answer(b, reach / b, None, house)


@dataclass(frozen=True, slots=True)
class TrustCalibrator:
    """The smallest scale whose loss is within epsilon for every case, at the policy's eta.

    eta = 1 is the paper's rule. Solved cases are cached, so that a day of steps costs little more
    than one, and zones with the same laws and bounds no more than one of them; the cache changes no
    answer.
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
            worst = exposure.widest
            b = max(blind_scale(worst.reach, policy.epsilon), policy.min_scale)
            return Answer(b, worst.reach / b, worst)
        return self._trusting(exposure.cases, policy)

    def _trusting(self, cases: tuple[Case, ...], policy: Policy) -> Answer:
        b, limiting = policy.min_scale, None
        for case in sorted(cases, key=_difficulty, reverse=True):
            key = self._key(case, policy)
            if self._enough.get(key, math.inf) <= b:
                continue
            # at the least scale a search from above takes less than this test, and says the same
            if b > policy.min_scale and case_loss(case, b, policy.eta) <= policy.epsilon:
                self._enough[key] = b
                continue
            if key not in self._solved:
                # from the same end always, so that no answer depends on earlier calls
                pairs = pairs_of(case, policy.eta)
                self._solved[key] = _solve(pairs, policy.min_scale, policy)
            if self._solved[key] == policy.min_scale:
                self._enough[key] = b
                continue
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


def case_loss(case: Case, scale: float, eta: float) -> float:
    """Loss of a release for one case.

    See: docs/proofs/blocks.md.

    Args:
        case: The case.
        scale: Scale of the noise [Wh].
        eta: Share of the law that may be anything.

    Returns:
        The loss [nats].
    """
    return _total(pairs_of(case, eta), scale, eta)


def _difficulty(case: Case) -> float:
    """A guess at the noise that a case needs, so that the worst case is tested early."""
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

    Args:
        case: The case.
        eta: Share of the law that may be anything.

    Returns:
        Triples (pmf before, pmf after, bound [Wh]).
    """
    if len(case.houses) > 1 and eta == 0 and case.exact and _work(case.before) < _LONG:
        return [(convolved(case.before), convolved(case.after), case.reach)]
    return [
        (before.pmf, after.pmf, bound)
        for before, after, bound in zip(case.before, case.after, case.bound, strict=True)
    ]


def convolved(laws: Iterable[Law]) -> Floats:
    """The pmf of a sum of independent readings, by sums of positive terms only.

    Args:
        laws: Laws of the readings.

    Returns:
        The pmf over 0, 1, ... [Wh].
    """
    return reduce(np.convolve, (law.pmf for law in laws))


def _work(laws: Iterable[Law]) -> int:
    reach, work = 0, 0
    for law in laws:
        work += reach * law.top
        reach += law.top
    return work
