"""Checks of a publisher's behaviour: scale, grid, memory and losses.

The auditor supplies the readings, so the noise is known: the answer minus the load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrid._numbers import Bools, Floats, Ints, Spent
from hushgrid.audit.bounds import (
    FALSE_ALARM,
    BlockNoise,
    Check,
    largest,
    largest_scale_ratio,
    p_joined_blocks,
    p_repeated_noise,
    p_similar_noise,
    p_small_noise,
    p_split_blocks,
)
from hushgrid.audit.evidence import Terms
from hushgrid.audit.publishers import (
    Factory,
    PublicAnswer,
    load_of,
    load_of_rate,
    read_answer,
    restore_truncated,
)
from hushgrid.errors import HushgridError
from hushgrid.mechanism.calibrators import case_loss
from hushgrid.mechanism.policy import Schedule
from hushgrid.mechanism.release import State
from hushgrid.model.zone import public_rate

ENOUGH = 2000  # draws of noise to look at
LONGEST = 2000  # steps to follow


@dataclass(frozen=True, slots=True, eq=False)
class _PublisherRun:
    """Answers of a publisher over steps with the same readings at each.

    Attributes:
        answers: Its answers.
        load: The true load [Wh].
        loads: The noisy loads [Wh].
        due: The scales the terms lead to [Wh].
        estimates: The public's own estimates [Wh], where an estimate is published.
        schedule: The schedule of the terms.
    """

    answers: tuple[PublicAnswer, ...]
    load: int
    loads: tuple[float, ...]
    due: tuple[float, ...]
    estimates: tuple[float | None, ...]
    schedule: Schedule

    @property
    def states_scale(self) -> bool:
        """Whether the publisher states its scale at every step."""
        return all(answer.scale is not None for answer in self.answers)

    def scale(self, t: int) -> float:
        """The scale stated for step t + 1, or the one due."""
        scale = self.answers[t].scale
        return self.due[t] if scale is None else scale

    @property
    def steps(self) -> list[int]:
        """Steps (from 0) at which readings were used and noise is due."""
        return [
            t for t, answer in enumerate(self.answers) if answer.from_readings and self.due[t] > 0
        ]

    @property
    def noise(self) -> list[float]:
        """The noise of those steps [Wh]."""
        return [self.loads[t] - self.load for t in self.steps]

    @property
    def block(self) -> Ints | None:
        """The first step of the block of each of those steps; None where noise is its own."""
        if not self.schedule.lengths:
            return None
        return np.array([self.schedule.span(t + 1)[0] for t in self.steps], np.int64)

    @property
    def blocks(self) -> list[BlockNoise]:
        """Their noise, block by block, where it lasts blocks of steps."""
        steps_of_block: dict[tuple[int, int], list[int]] = {}
        for t in self.steps if self.schedule.lengths else ():
            steps_of_block.setdefault(self.schedule.span(t + 1), []).append(t)
        return [
            BlockNoise(np.array([self.loads[t] - self.load for t in steps]), self.scale(steps[0]),
                       last - first + 1)
            for (first, last), steps in steps_of_block.items()
        ]  # fmt: skip

    @property
    def relative(self) -> Floats:
        """Sizes of the noise over the scale due, independent of each other: the largest of each
        block of steps.
        """
        sizes = np.abs(self.noise) / np.array([self.due[t] for t in self.steps])
        return largest(sizes, self.block) if len(sizes) else sizes


def _run(
    publisher: Any, terms: Terms, first: State, readings: Ints, steps: int, rng: np.random.Generator
) -> _PublisherRun:
    """Run a publisher for `steps` steps with the same readings."""
    low = terms.zone.low_ends(first.zone)
    load = int(np.clip(readings, low, low + first.zone.bound).sum(dtype=np.int64))
    answers: list[PublicAnswer] = []
    loads, due, rates = list[float](), list[float](), list[float]()
    public, estimates = first.public, list[float | None]()
    for t in range(1, steps + 1):
        answer = read_answer(publisher.publish(readings.copy()))
        answers.append(answer)
        loads.append(load_of(answer, terms.tariff))
        due.append(first.scheduler.at(t, rates).scale)
        if answer.load_hat is None and due[-1] > 0:
            begin, end = terms.policy.schedule.span(t)
            wide = due[-1] * (end - begin + 1)  # of a block of steps: no less than it has
            loads[-1] = float(restore_truncated(loads[-1], load, wide, terms.tariff, rng))
        estimates.append(None)
        if (
            public is not None
            and answer.from_readings
            and answer.load_hat is not None
            and due[-1] > 0
        ):
            estimates[-1], public = public.learn(answer.load_hat, due[-1], rates)
        elif public is not None:
            public = public.passed()
        rates.append(
            answer.rate if answer.rate is not None else public_rate(loads[-1], terms.tariff)
        )
    return _PublisherRun(
        tuple(answers), load, tuple(loads), tuple(due), tuple(estimates), terms.policy.schedule
    )


def check_behaviour(factory: Factory, terms: Terms, *, seed: int) -> list[Check]:
    """Run a publisher on readings of 0 and at their bounds, and check it.

    Args:
        factory: Makes the publisher.
        terms: Its terms.
        seed: Seed of the publishers.

    Returns:
        All checks of behaviour.
    """
    first = terms.first_state()
    steps = min(terms.policy.horizon, LONGEST)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    quiet = terms.zone.low_ends(first.zone)
    busy = quiet + first.zone.bound
    pairs = max(math.ceil(ENOUGH / (2 * steps)), 1)
    runs: list[list[_PublisherRun]] = [[], []]
    for i in range(pairs):
        for kind, readings in enumerate((quiet, busy)):
            publisher = factory(terms, seed=seed + 101 * i + kind + 1)
            runs[kind].append(_run(publisher, terms, first, readings, steps, rng))
    all_runs = runs[0] + runs[1]
    return [
        _check_noise_scale(all_runs, terms),
        *_check_blocks(all_runs),
        *_check_sampler(all_runs, factory, terms, seed, rng),
        _check_data_dependent_scale(runs[0], runs[1], first),
        _check_float_noise(all_runs, terms),
        _check_post_processing(all_runs, terms),
        _check_republication(factory, terms, first, seed),
        _check_protected_set(all_runs, terms, first),
        _check_budget(factory, terms, first, seed),
        _check_seed_reuse(factory, terms, first, seed, rng),
    ]


def _check_noise_scale(runs: Sequence[_PublisherRun], terms: Terms) -> Check:
    """Whether the noise is as wide as stated."""
    sizes = [k for run in runs for k in run.noise]
    scales = [run.scale(t) for run in runs for t in run.steps]
    if not sizes:
        return Check("noise_scale", "not_checked", "The publisher never used readings.")
    if min(scales) <= 0:
        return Check("noise_scale", "failed", "The publisher states noise of scale 0 Wh.", 1)
    steps = [t for run in runs for t in run.steps]
    block = None
    if terms.policy.schedule.lengths:  # blocks of different runs are different ones
        labels = [run.block for run in runs]
        block = np.concatenate(
            [
                i * len(run.due) + blocks
                for i, (run, blocks) in enumerate(zip(runs, labels, strict=True))
                if blocks is not None
            ]
        )
    p, part = _smallest(sizes, scales, steps, block)
    word = f"{len(sizes)} draws of noise, stated scales {min(scales):.6g} to {max(scales):.6g} Wh"
    if p < FALSE_ALARM:
        share = float(np.mean((np.abs(sizes) / np.array(scales))[part]))
        block_steps = [t + 1 for t, inside in zip(steps, part, strict=True) if inside]
        word += f", steps {min(block_steps)} to {max(block_steps)}"
        text = (
            f"The noise is smaller than stated: its mean size is {share:.2f} of the stated scale"
            f" ({word}; p = {p:.1e})."
        )
        return Check("noise_scale", "failed", text)
    return Check("noise_scale", "passed", f"Noise as wide as stated ({word}; p = {p:.2g}).")


def _smallest(
    sizes: Sequence[float],
    scales: Sequence[float],
    steps: Sequence[int],
    block: Ints | None,
) -> tuple[float, Bools]:
    """Smallest p-value of noise this small, over all steps, halves, quarters and eighths of them.

    With a Bonferroni correction, and the part it belongs to: noise may be missing at night only.
    """
    size, b, at = np.array(sizes), np.array(scales), np.array(steps)
    order = np.argsort(np.argsort(at, kind="stable"))
    parts = [
        (order * n // len(order)) == i for n in (1, 2, 4, 8) if len(order) >= n for i in range(n)
    ]
    p_values = [
        p_small_noise(size[part], b[part], None if block is None else block[part]) for part in parts
    ]
    i = int(np.argmin(p_values))
    return min(p_values[i] * len(parts), 1.0), parts[i]


def _check_blocks(runs: Sequence[_PublisherRun]) -> list[Check]:
    """Whether the noise of every block of steps has one size, and no two blocks share it."""
    blocks_of_runs = [run.blocks for run in runs]
    if not any(blocks_of_runs):
        return []
    all_blocks = [block for blocks in blocks_of_runs for block in blocks]
    p = p_split_blocks(all_blocks)
    word = f"{len(all_blocks)} blocks, p = {p:.2g}"
    checks = [
        Check("noise_scale", "passed", f"The noise of a block of steps has one size ({word}).")
    ]
    if p < FALSE_ALARM:
        text = (
            f"The size of the noise is drawn anew within blocks of steps ({word}): each size loses"
            " as much as the block may."
        )
        checks = [Check("noise_scale", "failed", text)]
    pairs = [block for blocks in blocks_of_runs for block in blocks[: len(blocks) // 2 * 2]]
    p = p_joined_blocks(pairs)
    if p < FALSE_ALARM:
        text = (
            f"Blocks of steps share the size of their noise ({len(pairs)} blocks, p = {p:.2g}):"
            " the first shows how wide the noise of the next is."
        )
        checks.append(Check("seed_reuse", "failed", text))
    return checks


def _check_sampler(
    runs: Sequence[_PublisherRun],
    factory: Factory,
    terms: Terms,
    seed: int,
    rng: np.random.Generator,
) -> list[Check]:
    """Whether `sample`, if the publisher has it, draws the same noise as `publish`."""
    publisher: Any = factory(terms, seed=seed + 19)
    if not hasattr(publisher, "sample"):
        return []
    due = runs[0].due[0]
    if due <= 0:
        return []
    # of blocks of steps the first one of each run, which sample() begins with as well
    lasts = terms.policy.schedule.span(1)[1] if terms.policy.schedule.lengths else 1
    answer = publisher.sample(np.zeros((2000, lasts, terms.zone.n_houses), np.int64))
    if "load_hat" in answer:
        loads = np.asarray(answer["load_hat"], np.float64)
    else:
        loads = load_of_rate(answer["rate"], terms.tariff)
        loads = restore_truncated(loads, 0, due * lasts, terms.tariff, rng)
    first_block = slice(1 if terms.policy.schedule.lengths else None)
    sizes = np.concatenate([run.relative[first_block] for run in runs])
    p = _differ(np.abs(loads).max(axis=1) / due, sizes)  # sizes: signs only dilute the test
    if p >= FALSE_ALARM:
        return [Check("noise_scale", "passed", f"sample() draws as publish() does (p = {p:.2g}).")]
    text = f"sample() and publish() draw different noise (p = {p:.1e}): test without sample()."
    return [Check("noise_scale", "failed", text)]


def _check_data_dependent_scale(
    quiet: Sequence[_PublisherRun], busy: Sequence[_PublisherRun], first: State
) -> Check:
    """Whether the scale is the same for readings of 0 and for readings at their bounds."""
    name = "data_dependent_scale"
    if quiet[0].states_scale:
        for run, twin in zip(quiet, busy, strict=True):
            for t, (a, b) in enumerate(zip(run.answers, twin.answers, strict=True)):
                equal = a.scale == b.scale
                if not first.scheduler.ahead:  # it follows rates: then each must be its own
                    equal = a.scale == run.due[t] and b.scale == twin.due[t]
                if not equal and a.from_readings and b.from_readings:
                    text = (
                        f"Step {t + 1} states a scale of {a.scale:g} Wh with every reading at 0 and"
                        f" {b.scale:g} Wh with every reading at its bound; a scale may"
                        " depend on public models alone."
                    )
                    return Check(name, "failed", text, t + 1)
    small, large = (np.concatenate([run.relative for run in runs]) for runs in (quiet, busy))
    p = _differ(small, large)
    if p < FALSE_ALARM:
        text = (
            f"The noise drawn is {small.mean():.2f} of the scale due with every reading at 0 and"
            f" {large.mean():.2f} with every reading at its bound (p = {p:.1e})."
        )
        return Check(name, "failed", text)
    return Check(name, "passed", f"The same scale whether all is off or all is on (p = {p:.2g}).")


def _differ(sample: Any, reference: Any) -> float:
    """P-value of equal laws, Kolmogorov-Smirnov."""
    from scipy.stats import ks_2samp

    if not len(sample) or not len(reference):
        return 1.0
    return float(ks_2samp(sample, reference, method="asymp").pvalue)


def _check_float_noise(runs: Sequence[_PublisherRun], terms: Terms) -> Check:
    """Whether every noisy load is a whole number and every rate is that of one."""
    name, count = "float_noise", 0
    for run in runs:
        for t in run.steps:
            bad = grid_fault(run.answers[t], terms, run.answers[t - 1].rate if t else None)
            count += bad is not None
            if bad:
                return Check(name, "failed", f"Step {t + 1} {bad}.", t + 1)
    if not count:
        text = "Rates alone do not determine whether noise is a whole number here."
        return Check(name, "not_checked", text)
    return Check(name, "passed", f"Whole Wh and the rates of whole Wh at {count} steps.")


def _check_post_processing(runs: Sequence[_PublisherRun], terms: Terms) -> Check:
    """Whether a published estimate is the public's own: any other may reveal the load."""
    name = "post_processing"
    if terms.policy.publish != "estimate":
        return Check(name, "not_applicable", "No estimate is published.")
    for run in runs:
        for t in run.steps:
            due, estimate = run.estimates[t], run.answers[t].estimate
            if due is None or estimate is None:
                return Check(name, "not_checked", "The publisher states no noisy load or estimate.")
            if not math.isclose(due, estimate, rel_tol=1e-6, abs_tol=1e-6):
                text = f"Step {t + 1} states another estimate than the public's own."
                return Check(name, "failed", text, t + 1)
    return Check(name, "passed", "Estimates are the public's own.")


def grid_fault(answer: PublicAnswer, terms: Terms, last: float | None = None) -> str | None:
    """The fault of a release with respect to the grid of whole Wh.

    Args:
        answer: The answer.
        terms: The terms.
        last: The rate before it, or None.

    Returns:
        The fault in words, "" without one, None where it cannot be determined.
    """
    tariff = terms.tariff
    if answer.load_hat is not None and answer.load_hat != math.floor(answer.load_hat):
        return "has a noisy load that is no whole number of Wh"
    if answer.rate is None:
        return ""
    if tariff.curve is not None:  # its rates follow from the public's law: see `recompute`
        return None
    if answer.load_hat is not None:
        base = answer.load_hat + answer.put_back if answer.estimate is None else answer.estimate
        due = public_rate(base, tariff, last)
        return "" if answer.rate == due else "has a rate that is not its load's"
    if terms.policy.publish == "estimate" or terms.policy.clamp:
        return None
    if answer.rate in (tariff.floor, tariff.cap):
        return None  # truncated: the noisy load lies anywhere beyond
    nearest = round(load_of(answer, tariff))
    if answer.rate == public_rate(nearest, tariff):
        return ""
    return "has a rate that no whole number of Wh leads to: its noise is a float's"


def _middle(terms: Terms, first: State) -> Ints:
    """(N,): readings in the middle of what is counted of them, offset Wh."""
    return np.asarray(terms.zone.low_ends(first.zone) + first.zone.bound.astype(np.int64) // 2)


def _check_republication(factory: Factory, terms: Terms, first: State, seed: int) -> Check:
    """Whether a step published again is the same."""
    name, publisher = "republication", factory(terms, seed=seed + 11)
    readings = _middle(terms, first)
    if not hasattr(publisher, "again"):
        text = "Not checked: the publisher has no again()."
        return Check(name, "not_checked", text)
    steps = min(terms.policy.horizon, 96)
    for t in range(1, steps + 1):
        first_answer = read_answer(publisher.publish(readings.copy()))
        for _ in range(3 if t < steps else 50):
            if read_answer(publisher.again()) != first_answer:
                text = (
                    f"Step {t} published again differs: the same load was published twice with"
                    " fresh noise, and each time costs its full epsilon."
                )
                return Check(name, "failed", text, t)
    return Check(name, "passed", "A step published again is the same.")


def _check_protected_set(runs: Sequence[_PublisherRun], terms: Terms, first: State) -> Check:
    """Whether the scale covers every house that kappa, computed from the models, protects."""
    name, rates = "protected_set", list[float]()
    if not runs[0].states_scale:
        sizes = [k for run in runs for k in run.noise]
        due = [run.due[t] for run in runs for t in run.steps]
        laplace = terms.policy.schedule.noise == "laplace"
        most = largest_scale_ratio(sizes, due) if laplace and sizes else math.inf
        if most < 1:
            text = f"The noise drawn is at most {most:.2f} of what the protected houses need."
            return Check(name, "failed", text, 1)
        return Check(name, "passed", "The noise drawn is not below what protected houses need.")
    run = runs[0]
    for t in run.steps:
        lacking = coverage_fault(first, t + 1, run.scale(t), rates)
        if lacking:
            return Check(name, "failed", f"Step {t + 1} {lacking}.", t + 1)
        rates.append(run.answers[t].rate or 0.0)
    return Check(
        name, "passed", f"The stated scales cover every protected house ({len(run.steps)})."
    )


def coverage_fault(first: State, t: int, scale: float, rates: Sequence[float]) -> str:
    """The houses that a scale leaves unprotected at a step, kappa given by the models.

    Args:
        first: State before the first step.
        t: Step.
        scale: Scale of the noise [Wh].
        rates: Rates published before.

    Returns:
        The fault in words, "" without one.
    """
    due = first.scheduler.at(t, rates)
    if scale >= due.scale * (1 - 1e-9):
        return ""
    epsilon, eta = first.policy.epsilon_at(t), first.policy.eta
    if scale <= 0:
        return f"has a scale of {scale:g} Wh where {due.scale:g} is due"
    open_cases = first.scheduler.exposure(t, rates).cases
    houses = sorted(
        {
            house
            for case in open_cases
            if case_loss(case, scale, eta) > epsilon * (1 + 1e-9)
            for house in case.houses
        }
    )
    if not houses:
        return ""
    worst = max(case_loss(case, scale, eta) for case in open_cases)
    return (
        f"has a scale of {scale:.6g} Wh, but {len(due.protected)} houses are uncertain then and"
        f" need {due.scale:.6g}: house {houses[0]} and those like it lose {worst:.4g}, not"
        f" {epsilon:g}; perhaps it was left out of the protected set"
    )


def _check_budget(factory: Factory, terms: Terms, first: State, seed: int) -> Check:
    """Whether no loss is understated, and no readings are used beyond the horizon."""
    name, horizon = "budget", terms.policy.horizon
    if horizon > LONGEST:
        return Check(
            name, "not_checked", f"Not checked on the publisher: {horizon} steps are too many."
        )
    publisher, spending = factory(terms, seed=seed + 13), Spent()
    readings = _middle(terms, first)
    rates, last = list[float](), None
    for t in range(1, horizon + 1):
        answer = read_answer(publisher.publish(readings.copy()))
        if answer.from_readings:
            due, block = first.scheduler.at(t, rates).epsilon, terms.policy.schedule.span(t)
            if answer.scale:  # wider noise than is due loses less
                due = min(due, float(first.scheduler.losses(t, answer.scale, rates).max()))
            if answer.epsilon is not None and answer.epsilon < due * (1 - 1e-9):
                loser = f"its block of steps (to step {block[1]})" if block[0] < block[1] else "it"
                text = (
                    f"Step {t} states an epsilon of {answer.epsilon:g} where {loser} loses {due:g}."
                )
                return Check(name, "failed", text, t)
            loss = due if answer.epsilon is None else answer.epsilon
            spending = spending if block == last else spending.add(loss)  # a block of steps once
            last = block
        rates.append(answer.rate if answer.rate is not None else 0.0)
    if _beyond(publisher, readings):
        text = f"Step {horizon + 1} is published from readings, beyond the horizon of {horizon}."
        return Check(name, "failed", text, horizon + 1)
    return Check(name, "passed", f"{horizon} steps state {spending.total:.6g} together.")


def _beyond(publisher: Any, readings: Ints) -> bool:
    """Whether readings are used after the last step of the horizon."""
    try:
        return read_answer(publisher.publish(readings.copy())).from_readings
    except (HushgridError, StopIteration, IndexError):
        return False


def _check_seed_reuse(
    factory: Factory, terms: Terms, first: State, seed: int, rng: np.random.Generator
) -> Check:
    """Whether two zones, or one zone opened twice, draw the same noise."""
    steps = min(terms.policy.horizon, 96)
    readings = _middle(terms, first)
    twin = terms.for_zone(f"{terms.zone.id}-twin")
    names = ("the zone", "another zone", "the zone opened again")
    runs = [
        _run(
            factory(zone_terms, seed=seed + 17 + i),
            zone_terms,
            zone_terms.first_state(),
            readings,
            steps,
            rng,
        )
        for i, zone_terms in enumerate((terms, twin, terms))
    ]
    streams = [
        np.array([(run.loads[t] - run.load) / run.scale(t) for t in run.steps]) for run in runs
    ]
    grain = [np.array([1 / run.scale(t) for t in run.steps]) for run in runs]
    lag, least = min(
        (
            p_repeated_noise(run.noise, [run.scale(t) for t in run.steps], block=run.block)
            for run in runs
        ),
        key=lambda x: x[1],
    )
    if least < FALSE_ALARM / 3:
        text = (
            f"The noise of a step comes again {lag} later (p = {least:.1e}): one price subtracted"
            " from the other shows how the load moved."
        )
        return Check("seed_reuse", "failed", text, lag + 1)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        n = min(len(streams[i]), len(streams[j]))
        block_marks = runs[i].block
        block = None if block_marks is None else block_marks[:n]
        p = p_similar_noise(streams[i][:n], streams[j][:n], grain[i][:n] + grain[j][:n], block)
        if p < FALSE_ALARM / 3:
            text = (
                f"The noise of {names[i]} and of {names[j]} is the same or all but the same"
                f" ({n} steps, p = {p:.1e}): one price subtracted from the other shows the loads."
            )
            return Check("seed_reuse", "failed", text, 1)
        least = min(least, p)
    text = f"Three streams of noise differ ({steps} steps, smallest p = {least:.2g})."
    return Check("seed_reuse", "passed", text)
