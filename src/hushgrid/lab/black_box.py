"""Lower bounds on the epsilon of a publisher, from its published figures only.

Two worlds that differ in the occupancy of the calibration's worst house (or block). All other
readings are fixed: the promise holds for an adversary that knows them. At trust eta the worst
house's readings follow its laws but for a share eta, which lies at its two ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.audit.behaviour import check_behaviour
from hushgrid.audit.bounds import (
    FALSE_ALARM,
    TRAINING,
    BlackBox,
    Bound,
    Check,
    best_event,
    lower_bound,
    p_frequent_small_noise,
)
from hushgrid.audit.evidence import Terms
from hushgrid.audit.houses import log_ratio, worst_law
from hushgrid.audit.publishers import (
    Factory,
    check_unsmoothed,
    load_of,
    load_of_rate,
    read_answer,
    restore_truncated,
)
from hushgrid.belief.filter import expected_readings, marginals
from hushgrid.errors import HushgridError, PolicyError
from hushgrid.mechanism.calibrators import case_loss
from hushgrid.mechanism.exposure import Case
from hushgrid.mechanism.release import State
from hushgrid.model.laws import Law

STEPS = 4  # of a trajectory
SHARE = 0.2  # of the chance of an error that goes to the trajectory
_CHUNK = 4_000_000  # readings handed over at once
_LONG = 100_000  # [Wh] beyond which a block's laws are not convolved for a score


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Two worlds: `houses` differ in occupancy, all other readings are the same.

    Attributes:
        houses: The houses whose occupancy differs.
        laws: `laws[t][s]` are the laws of their readings at step t + 1 in world s.
        ends: `ends[s]` are the extreme readings [Wh] that a share eta takes in world s.
        background: (N,) readings of all houses [Wh].
        scale: Scale due at each step [Wh].
        promised: Loss promised at each step.
        eta: Share of readings that need not follow the laws.
        bound: (N,) bounds of the readings [Wh].
        low: (N,) what is added to them before they are published [Wh].
        spans: First and last step of the block of each step, where noise lasts blocks of steps.
    """

    houses: tuple[int, ...]
    laws: tuple[tuple[tuple[Law, ...], tuple[Law, ...]], ...]
    ends: tuple[tuple[int, ...], tuple[int, ...]]
    background: Ints
    scale: tuple[float, ...]
    promised: tuple[float, ...]
    eta: float
    bound: Ints
    low: Ints
    spans: tuple[tuple[int, int], ...] = ()

    def readings(self, s: int, n: int, steps: int, rng: np.random.Generator) -> Ints:
        """(n, steps, N) readings [Wh], sampled in world s."""
        x = np.broadcast_to(self.background, (n, steps, len(self.background))).copy()
        for t in range(steps):
            for j, house in enumerate(self.houses):
                law, end = self.laws[t][s][j], self.ends[s][j]
                if self.eta == 1:
                    x[:, t, house] = end
                    continue
                reading = law.sample(rng.random(n))
                x[:, t, house] = np.where(rng.random(n) < self.eta, end, reading)
        return x

    @property
    def around(self) -> int:
        """The load of all other houses [Wh]."""
        return int(self.background.sum() - self.background[list(self.houses)].sum())

    def block_score(self, days: Floats) -> Floats:
        """`score` of (n, steps) noisy loads: a block's noise weighs by its largest size alone."""
        scores = np.zeros(len(days))
        for first, last in dict.fromkeys(self.spans):
            away = [np.abs(days[:, first - 1 : last] - sum(end)).max(axis=1) for end in self.ends]
            scores += (away[0] - away[1]) / self.scale[first - 1]
        return scores

    def score(self, t: int, k: Floats) -> Floats:
        """log Pr[k | world 1] / Pr[k | world 0] under the promised laws and noise of step t + 1."""
        sides = []
        for s in (0, 1):
            laws = [
                worst_law(law, end, self.eta)
                for law, end in zip(self.laws[t][s], self.ends[s], strict=True)
            ]
            sides.append(reduce(np.convolve, laws))
        table = log_ratio(sides[0], sides[1], self.scale[t])
        return np.asarray(table[np.clip(np.rint(k), 0, len(table) - 1).astype(np.int64)])

    @property
    def short(self) -> bool:
        """Whether the laws are short enough to be convolved."""
        reach = sum(max(a, b) for a, b in zip(*self.ends, strict=True))
        return len(self.houses) == 1 or reach <= _LONG


def neighbours(terms: Terms, first: State, steps: int = 1) -> Neighbours:
    """The calibration's worst case of step 1, continued over some steps.

    Args:
        terms: Terms of the publisher.
        first: Its state before the first step.
        steps: Number of steps; a block is followed for one step only.

    Returns:
        The two worlds.

    Raises:
        PolicyError: If no house is uncertain at step 1.
    """
    exposure, at = first.scheduler.exposure(1), first.scheduler.at(1)
    if not exposure.cases:
        raise PolicyError("no house is uncertain at step 1; there is nothing to distinguish.")
    worst = max(exposure.cases, key=lambda case: _loss(case, at.scale, first))
    loss = min(at.epsilon, first.policy.epsilon_at(1))  # of these cases; of others more is booked
    f = first.scheduler.consumption
    laws, scales, promised = [(worst.before, worst.after)], [at.scale], [loss]
    if len(worst.houses) == 1:
        (house,) = worst.houses
        kind = int(f.class_of[house])
        for t in range(2, steps + 1):
            pair = (f.law(t, kind, occupied=False), f.law(t, kind, occupied=True))
            laws.append(((pair[0],), (pair[1],)))
            scales.append(first.scheduler.at(t).scale)
            loss = float(first.scheduler.losses(t, scales[-1])[house])
            promised.append(loss if first.policy.schedule.span(t)[0] == t else 0.0)  # once a block
    up = [a.mean <= p.mean for a, p in zip(worst.before, worst.after, strict=True)]
    low = tuple(0 if rises else u for rises, u in zip(up, worst.bound, strict=True))
    high = tuple(u if rises else 0 for rises, u in zip(up, worst.bound, strict=True))
    return Neighbours(
        worst.houses,
        tuple(laws),
        (low, high),
        _usual_readings(terms, first),
        tuple(scales),
        tuple(promised),
        first.policy.eta,
        first.zone.bound.astype(np.int64),
        terms.zone.low_ends(first.zone),
        tuple(map(first.policy.schedule.span, range(1, len(laws) + 1)))
        if first.policy.schedule.lengths
        else (),
    )


def _loss(case: Case, scale: float, first: State) -> float:
    return case_loss(case, scale, first.policy.eta)


def _usual_readings(terms: Terms, first: State, t: int = 1) -> Ints:
    """The public expectation of every reading at a step, in whole Wh above a clamp's lower end."""
    belief = next(islice(marginals(terms.models[0]), t - 1, None))
    usual = np.rint(expected_readings(belief, terms.models[0], terms.consumption))
    low = terms.zone.low_ends(first.zone)
    return np.asarray(np.clip(usual.astype(np.int64) - low, 0, first.zone.bound), np.int64)


def certify_publisher(
    factory: Factory, terms: Terms, *, samples: int, confidence: float, seed: int
) -> BlackBox:
    """Certify what one release, and a few together, reveal about the calibration's worst house.

    Args:
        factory: Makes the publisher.
        terms: Its terms.
        samples: Samples for each world, at least 100.
        confidence: From 0.5 to below 1.
        seed: Seed of readings and publishers.

    Returns:
        The certified bounds.

    Raises:
        PolicyError: If `samples` or `confidence` is out of range.
    """
    if samples < 100:
        raise PolicyError(f"samples is {samples}; give 100 or more a side.")
    if not 0.5 <= confidence < 1:
        raise PolicyError(f"confidence is {confidence}; give one from 0.5 to below 1.")
    first = terms.first_state()
    steps = min(STEPS, terms.policy.horizon) if first.scheduler.ahead else 1
    steps = terms.policy.schedule.span(steps)[1]  # whole blocks of steps
    pair = neighbours(terms, first, steps)
    steps = len(pair.laws)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    outputs = [
        _outputs(factory, terms, pair, s, samples, 1, rng, seed=2 * seed + s) for s in (0, 1)
    ]
    sides = [loads[:, 0] for loads, _ in outputs]
    noises = np.concatenate([noise for _, noise in outputs])
    # two bounds are looked at: together they are wrong with a chance of 1 - confidence at most
    wrong = 1 - confidence
    surely = 1 - wrong * (1 if steps == 1 else 1 - SHARE)
    one_step = _best(_scores_of_one(pair, sides), surely)
    trajectory = None
    if steps > 1:
        fewer = max(samples // 4, 100)
        days = [
            _outputs(factory, terms, pair, s, fewer, steps, rng, seed=2 * seed + s + 1_000_003)[0]
            for s in (0, 1)
        ]
        trajectory = _best(_scores_of_many(pair, days), 1 - wrong * SHARE)
    promised = pair.promised[0]
    return BlackBox(
        pair.houses,
        samples,
        confidence,
        one_step,
        promised,
        trajectory,
        sum(pair.promised),
        steps,
        pair.scale[0],
        1.0 if pair.scale[0] <= 0 else p_frequent_small_noise(noises, pair.scale[0]),
    )


def _outputs(
    factory: Factory,
    terms: Terms,
    pair: Neighbours,
    s: int,
    n: int,
    steps: int,
    rng: np.random.Generator,
    *,
    seed: int,
) -> tuple[Floats, Floats]:
    """(n, steps) noisy loads minus the other houses' load [Wh], from publishers of world s.

    Also returns the noise of the first step, which is known here since the readings are.
    """
    outputs, noise = [], []
    for start, count in _chunks(n, steps * len(pair.background)):
        readings = pair.readings(s, count, steps, rng)
        load = np.clip(readings[:, 0], 0, pair.bound).sum(axis=1, dtype=np.int64)
        loads, of_rates = _published(factory, terms, readings + pair.low, seed + 7919 * start)
        loads = loads - pair.low.sum()
        outputs.append(loads)
        noisy = loads[:, 0]
        if of_rates and (terms.policy.clamp or terms.policy.publish == "estimate"):
            continue  # more than noise lies between load and rate
        if of_rates and pair.scale[0] > 0:
            noisy = restore_truncated(noisy, load, pair.scale[0], terms.tariff, rng)
        noise.append(noisy - load)
    return np.concatenate(outputs) - pair.around, np.concatenate([np.empty(0), *noise])


def _chunks(n: int, size: int) -> Iterator[tuple[int, int]]:
    most = max(_CHUNK // size, 1)
    for start in range(0, n, most):
        yield start, min(most, n - start)


def _published(factory: Factory, terms: Terms, readings: Ints, seed: int) -> tuple[Floats, bool]:
    """(n, steps) noisy loads [Wh], and whether they were derived from rates."""
    publisher: Any = factory(terms, seed=seed)
    if hasattr(publisher, "sample"):
        answer = publisher.sample(readings)
        of_rates = "load_hat" not in answer
        if of_rates:
            check_unsmoothed(terms.tariff)
        loads = np.asarray(answer["rate" if of_rates else "load_hat"], np.float64)
        if loads.shape != readings.shape[:2] or not np.isfinite(loads).all():
            raise PolicyError(
                f"the publisher's sample() answered {loads.shape} numbers, not all of them finite"
                f" or not {readings.shape[:2]}; give a finite one for every step."
            )
        return (load_of_rate(loads, terms.tariff) if of_rates else loads), of_rates
    n, steps, _ = readings.shape
    loads, of_rates = np.empty((n, steps)), False
    for i in range(n):
        fresh = publisher if i == 0 else factory(terms, seed=seed + i)
        for t in range(steps):
            step_answer = read_answer(fresh.publish(readings[i, t]))
            loads[i, t] = load_of(step_answer, terms.tariff)
            of_rates = of_rates or step_answer.load_hat is None
    return loads, of_rates


def _scores_of_one(pair: Neighbours, sides: list[Floats]) -> dict[str, list[Floats]]:
    scores = {"load": sides}
    if pair.short and not pair.spans:  # the promised laws find events in the middle, too
        scores["likelihood"] = [pair.score(0, k) for k in sides]
    for modulus in (2, 10, 16):  # what may hide in the last digits
        scores[f"load mod {modulus}"] = _residues(sides, modulus)
    return scores


def _residues(sides: list[Floats], modulus: int) -> list[Floats]:
    """Log odds of the two states given the last digit, estimated on the training part."""
    digits = [np.mod(np.rint(k), modulus).astype(np.int64) for k in sides]
    counts = [np.bincount(d[: int(len(d) * TRAINING)], minlength=modulus) + 1.0 for d in digits]
    odds = np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum())
    return [odds[d] for d in digits]


def _scores_of_many(pair: Neighbours, days: list[Floats]) -> dict[str, list[Floats]]:
    scores = {"classifier": _classifier(days, np.array(pair.scale[: days[0].shape[1]]))}
    if pair.spans:
        scores["likelihood"] = [pair.block_score(day) for day in days]
    elif pair.short:
        scores["likelihood"] = [
            np.sum([pair.score(t, k) for t, k in enumerate(day.T)], axis=0) for day in days
        ]
    return scores


def _best(scores: dict[str, list[Floats]], confidence: float) -> Bound:
    """The bound by the score with the largest expected bound on the training part."""
    level = (1 - confidence) / 2

    def promise(name: str) -> float:
        sides = scores[name]
        cuts = [int(len(x) * TRAINING) for x in sides]
        parts = [x[:cut] for x, cut in zip(sides, cuts, strict=True)]
        tests = [len(x) - cut for x, cut in zip(sides, cuts, strict=True)]
        return best_event(parts[0], parts[1], tests[0], tests[1], level)[3]

    best = max(scores, key=promise)
    return lower_bound(*scores[best], confidence=confidence, score=best)


def _classifier(days: list[Floats], scale: Floats) -> list[Floats]:
    """Scores of a logistic regression on the noisy loads, fitted to the training part."""
    features = [np.clip(day / scale, -8, 12) for day in days]
    cut = int(len(features[0]) * TRAINING)
    train = np.concatenate([x[:cut] for x in features])
    centre, width = train.mean(axis=0), train.std(axis=0) + 1e-9
    x = np.c_[(train - centre) / width, np.ones(len(train))]
    y = np.repeat([0.0, 1.0], [len(f[:cut]) for f in features])
    w = np.zeros(x.shape[1])
    for _ in range(12):  # Newton, with a little ridge so that it always has a step
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        slope = x.T @ (y - p) - 1e-3 * w
        curve = (x * (p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(len(w))
        w = w + np.linalg.solve(curve, slope)
    return [((f - centre) / width) @ w[:-1] + w[-1] for f in features]


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A publisher to test.

    Attributes:
        factory: Makes the publisher.
        samples: Samples for each of the two occupancies.
        confidence: Confidence of the lower bound on epsilon.
        seed: Seed of the test.
    """

    factory: Factory
    samples: int = 100_000
    confidence: float = 0.95
    seed: int = 1

    def run(self, terms: Sequence[Terms]) -> tuple[BlackBox, list[Check]]:
        """Test the publisher.

        Args:
            terms: Terms of the zones; it is tested against the first.

        Returns:
            The certified losses, and all checks of it.

        Raises:
            PolicyError: If there are no terms, or the publisher fails.
        """
        if not terms:
            raise PolicyError("a publisher is given but no terms; give --config, a zone file.")
        try:
            box = certify_publisher(
                self.factory,
                terms[0],
                samples=self.samples,
                confidence=self.confidence,
                seed=self.seed,
            )
            return box, [
                *_check_bounds(box),
                *check_behaviour(self.factory, terms[0], seed=self.seed),
            ]
        except HushgridError:
            raise
        except (Exception, SystemExit) as error:  # whatever a stranger's code may raise
            raise PolicyError(
                f"the publisher failed with {type(error).__name__} ({error}); fix it, see"
                " docs/audit.md."
            ) from error


def _check_bounds(box: BlackBox) -> list[Check]:
    """Compare the certified losses with the promised ones."""
    checks = []
    pairs = [("one release", box.one_step, box.promised)]
    if box.trajectory is not None:
        pairs.append((f"{box.steps} releases", box.trajectory, box.promised_trajectory))
    for subject, bound, promised in pairs:
        text = (
            f"A black-box test certifies a loss of {bound.epsilon:.4g} for {subject} where"
            f" {promised:.4g} is promised (confidence {box.confidence:g},"
            f" {sum(bound.samples) // 2} tested samples a side)."
        )
        broken = bound.epsilon > promised * (1 + 1e-9)
        checks.append(Check("noise_scale", "failed" if broken else "passed", text))
    if box.p_frequent_small_noise < FALSE_ALARM:
        text = (
            "Noise is small more often than noise of the scale due can be"
            f" ({2 * box.samples} draws of step 1; p = {box.p_frequent_small_noise:.1e})."
        )
        checks.append(Check("noise_scale", "failed", text))
    return checks
