"""Literal test oracle: the paper's Algorithm 1 and the losses of one release, by brute force.

Nothing here shares code with the package under test. Occupancy is handled on the 2^N joint
states in exact arithmetic; readings, noise and scales are in whole Wh and summed term by term.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product, zip_longest
from operator import ne
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

State = tuple[int, ...]  # one 0 or 1 per house, in house order
Weight = int | Fraction  # an exact probability, up to a common factor
Law = Sequence[float] | npt.NDArray[np.float64]  # pmf of one reading on 0, 1, 2, ... [Wh]


@dataclass(frozen=True)
class Joint:
    """One model theta = (Pi, A^2, ..., A^T) on joint states; weights need not be normalised."""

    n_houses: int
    initial: dict[State, Weight]  # Pi, nonzero entries only
    transition: list[dict[State, dict[State, Weight]]]  # [0] is A^2; nonzero entries only


def joint_of_blocks(
    blocks: Sequence[Sequence[int]],
    initials: Sequence[Sequence[Weight]],
    transitions: Sequence[Sequence[Sequence[Sequence[Weight]]]],
) -> Joint:
    """Multiply independent blocks into one joint model.

    `initials[b][i]` and `transitions[t][b][i][j]` are indexed by block state numbers, in which
    the first house of the block is the most significant bit; `transitions[0]` is step 2.
    """
    houses = [house for block in blocks for house in block]
    n_houses = len(houses)
    if sorted(houses) != list(range(n_houses)):
        raise ValueError("blocks must partition the houses 0..N-1")
    # block after block, the first house most significant, like the numbers of a block's states
    states = [
        tuple(bit for _, bit in sorted(zip(houses, bits, strict=True)))
        for bits in product((0, 1), repeat=n_houses)
    ]
    numbers = [[_block_number(state, block) for block in blocks] for state in states]
    transition = [
        {
            state: _nonzero(states, [rows[i] for rows, i in zip(matrices, number, strict=True)])
            for state, number in zip(states, numbers, strict=True)
        }
        for matrices in transitions
    ]
    return Joint(n_houses, _nonzero(states, initials), transition)


def _block_number(state: State, block: Sequence[int]) -> int:
    """Read the block's houses as a binary number, first house most significant."""
    return int("".join(str(state[house]) for house in block), 2)


def _nonzero(states: Sequence[State], rows: Sequence[Sequence[Weight]]) -> dict[State, Weight]:
    """The product of one entry of every block's row, for each joint state."""
    weights: list[Weight] = [1]
    for row in rows:
        weights = [weight * entry for weight in weights for entry in row]
    return {state: w for state, w in zip(states, weights, strict=True) if w != 0}


class Step(NamedTuple):
    """What Algorithm 1 decides at one step t."""

    kappas: list[frozenset[int]]  # kappa^{t,theta}, one per model
    lams: list[int]  # lambda^{t,theta} / alpha, one per model
    lam: int  # lambda^t / alpha


def algorithm_1(
    models: Sequence[Joint],
    bounds: Sequence[int],
    horizon: int,
    likelihood: Callable[[int, int, State], int],
) -> list[Step]:
    """Run the noise decisions of Algorithm 1 on joint states.

    `likelihood(model, t, state)` stands for Pr[published rate given state] and must be a
    positive integer. Beliefs are exact and known up to a factor; integer weights are faster.
    """
    steps: list[Step] = []
    posteriors: list[dict[State, Weight]] = [{} for _ in models]
    for t in range(1, horizon + 1):
        kappas: list[frozenset[int]] = []
        lams: list[int] = []
        priors: list[dict[State, Weight]] = []
        for theta, model in enumerate(models):
            # Algorithm 1, lines "initialize" and "Calculate prior", Eq. (2)
            prior = model.initial if t == 1 else predict(posteriors[theta], model, t)
            # Algorithm 1, line mu
            mu = [state for state, weight in prior.items() if weight != 0]
            # Algorithm 1, line nu; (M, M') and (M', M) are the same pair
            nu = [(m, m2) for m, m2 in combinations(mu, 2) if sum(map(ne, m, m2)) == 1]
            # Algorithm 1, line kappa
            kappa = frozenset(h for m, m2 in nu for h in range(model.n_houses) if m[h] != m2[h])
            # Algorithm 1, line lambda^{t,theta}, divided by alpha
            lams.append(max((bounds[h] for h in kappa), default=0))
            kappas.append(kappa)
            priors.append(prior)
        # Algorithm 1, line lambda^t
        steps.append(Step(kappas, lams, max(lams)))
        # Algorithm 1, last line: the posterior of every model, Eq. (3)
        for theta, prior in enumerate(priors):
            factors = {state: likelihood(theta, t, state) for state in prior}
            if min(factors.values()) <= 0:
                raise ValueError("a likelihood must be positive")
            posteriors[theta] = _reduced({m: w * factors[m] for m, w in prior.items()})
    return steps


def predict(posterior: Mapping[State, Weight], model: Joint, t: int) -> dict[State, Weight]:
    """Eq. (2): the row vector P^{t-1|t-1} times A^t, for t >= 2."""
    matrix = model.transition[t - 2]
    prior: dict[State, Weight] = {}
    for state, weight in posterior.items():
        for arrival, probability in matrix[state].items():
            prior[arrival] = prior.get(arrival, 0) + weight * probability
    return prior


def _reduced(weights: Mapping[State, Weight]) -> dict[State, Weight]:
    """Scale exact weights to integers without a common divisor; zeros stay zeros."""
    common = math.lcm(*(weight.denominator for weight in weights.values()))
    whole = {state: int(weight * common) for state, weight in weights.items()}
    divisor = math.gcd(*whole.values())
    return {state: weight // divisor for state, weight in whole.items()}


def possible_states(model: Joint, horizon: int) -> list[set[State]]:
    """Return the states of nonzero prior at t = 1..T (no evidence removes a state)."""
    possible: list[set[State]] = []
    prior = model.initial
    for t in range(1, horizon + 1):
        if t > 1:
            prior = _reduced(predict(prior, model, t))
        possible.append({state for state, weight in prior.items() if weight != 0})
    return possible


def union_kappa(
    models: Sequence[Joint], bounds: Sequence[int], horizon: int
) -> list[frozenset[int]]:
    """Return, for t = 1..T, the houses for which some model allows 0 and some model allows 1."""
    possible = [possible_states(model, horizon) for model in models]
    kappas: list[frozenset[int]] = []
    for t in range(1, horizon + 1):
        seen = {(h, m[h]) for steps in possible for m in steps[t - 1] for h in range(len(bounds))}
        kappas.append(frozenset(h for h in range(len(bounds)) if {(h, 0), (h, 1)} <= seen))
    return kappas


def block_sensitivity(states: set[State], bounds: Sequence[int], house: int) -> int | None:
    """Rule `block`: largest change [Wh] over possible pairs that differ in `house`."""
    return max(
        (_distance(m, m2, bounds) for m, m2 in combinations(states, 2) if m[house] != m2[house]),
        default=None,
    )


def minimal_sensitivity(states: set[State], bounds: Sequence[int], house: int) -> int | None:
    """Rule `minimal`: as `block`, only over pairs with no possible state strictly between."""
    return max(
        (
            _distance(m, m2, bounds)
            for m, m2 in combinations(states, 2)
            if m[house] != m2[house] and not any(strictly_between(other, m, m2) for other in states)
        ),
        default=None,
    )


def strictly_between(other: State, m: State, m2: State) -> bool:
    """Say whether `other` is neither end and agrees with both wherever the two ends agree."""
    if other in (m, m2):
        return False
    return all(o == a for o, a, b in zip(other, m, m2, strict=True) if a == b)


def _distance(m: State, m2: State, bounds: Sequence[int]) -> int:
    """Sum the bounds [Wh] of the houses in which two states differ."""
    return sum(u for a, b, u in zip(m, m2, bounds, strict=True) if a != b)


def noise_probability(k: int, scale: float) -> float:
    """K(k) = (1-q)/(1+q) q^|k| with q = exp(-1/scale), the two-sided geometric law."""
    return -math.expm1(-1 / scale) / (1 + math.exp(-1 / scale)) * math.exp(-abs(k) / scale)


def noise_pmf(scale: float, radius: int) -> npt.NDArray[np.float64]:
    """K(k) for k = -radius..radius, not renormalised."""
    return np.array([noise_probability(k, scale) for k in range(-radius, radius + 1)])


def convolved(laws: Sequence[Law]) -> list[float]:
    """Return the pmf on 0, 1, 2, ... of a sum of independent readings."""
    total = np.array([1.0])
    for law in laws:
        total = np.convolve(total, np.asarray(law, dtype=np.float64))
    return [float(weight) for weight in total]


def output_law(laws: Sequence[Law], scale: float, low: int, high: int) -> npt.NDArray[np.float64]:
    """Pr[sum of readings + K = k] for k = low..high."""
    total = convolved(laws)
    law: list[float] = []
    for k in range(low, high + 1):
        terms = [weight * noise_probability(k - z, scale) for z, weight in enumerate(total)]
        law.append(math.fsum(terms))
    return np.array(law)


def worst_log_ratio(
    laws_a: Sequence[Law], laws_b: Sequence[Law], scale: float, low: int, high: int
) -> float:
    """Largest |log Pr_a[k] / Pr_b[k]| over outputs k = low..high; none may underflow to 0."""
    law_a = output_law(laws_a, scale, low, high)
    law_b = output_law(laws_b, scale, low, high)
    return max(abs(math.log(a) - math.log(b)) for a, b in zip(law_a, law_b, strict=True))


def contaminated(law: Law, g: Law, eta: float) -> list[float]:
    """Return (1 - eta) law + eta g, the shorter of the two continued by zeros."""
    return [float((1 - eta) * f_x + eta * g_x) for f_x, g_x in zip_longest(law, g, fillvalue=0.0)]


def loss(absent: Law, present: Law, bound: int, scale: float, eta: float) -> float:
    """Worst loss over outputs 0..bound of one house whose laws are trusted up to eta.

    hi_s(k) = (1-eta) p_s(k) + eta K(0), lo_s(k) = (1-eta) p_s(k) + eta K(max(k, bound-k)), and
    the loss is the largest log hi_1/lo_0 or log hi_0/lo_1. The factor (1-q)/(1+q) of K cancels.
    """
    if max(len(absent), len(present)) > bound + 1:
        raise ValueError("a law must live on 0..bound")
    q_power = [math.exp(-d / scale) for d in range(bound + 1)]

    def log_p(law: Law, k: int) -> float:
        """Log of the sum of f(x) q^|k-x|, with the largest power taken out."""
        terms = [(abs(k - x), f_x) for x, f_x in enumerate(law) if f_x != 0]
        nearest = min(d for d, _ in terms)
        return math.log(math.fsum(f_x * q_power[d - nearest] for d, f_x in terms)) - nearest / scale

    def mixed(log_trusted: float, distance: int) -> float:
        """Log of (1-eta) p + eta q^distance."""
        parts = [(1 - eta, log_trusted), (eta, -distance / scale)]
        logs = [math.log(weight) + log_part for weight, log_part in parts if weight > 0]
        return max(logs) + math.log(math.fsum(math.exp(part - max(logs)) for part in logs))

    losses: list[float] = []
    for k in range(bound + 1):
        p_0, p_1 = log_p(absent, k), log_p(present, k)
        farthest = max(k, bound - k)
        losses.append(mixed(p_1, 0) - mixed(p_0, farthest))
        losses.append(mixed(p_0, 0) - mixed(p_1, farthest))
    return max(losses)


def smallest_scale(absent: Law, present: Law, bound: int, epsilon: float, eta: float) -> float:
    """Smallest noise scale [Wh] whose loss is at most epsilon, by 200 halvings."""
    low, high = 1e-9, bound / epsilon
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break  # neighbouring floats: further halvings change nothing
        if loss(absent, present, bound, middle, eta) <= epsilon:
            high = middle
        else:
            low = middle
    return high


def tail_loss(absent: Law, present: Law, scale: float) -> float:
    """Loss in the two tails: max over s = +-1/scale of |log M_1(s) - log M_0(s)|."""

    def log_mgf(law: Law, s: float) -> float:
        terms = [(s * x, f_x) for x, f_x in enumerate(law) if f_x != 0]
        top = max(power for power, _ in terms)
        return top + math.log(math.fsum(f_x * math.exp(power - top) for power, f_x in terms))

    return max(abs(log_mgf(present, s) - log_mgf(absent, s)) for s in (1 / scale, -1 / scale))
