"""Checks of a publisher's behaviour: scale, grid, memory and losses.

The auditor supplies the readings, so the noise is known: the answer minus the load.

A factory is `factory(terms, *, seed=None) -> publisher`. A publisher has `publish(readings)` for
the next step: readings are whole Wh, one per house; the answer is a Release, or any object or
mapping with `load_hat` [Wh] or `rate` [currency/kWh], and optionally `t`, `scale` [Wh],
`epsilon`, `digest`. A step without readings has neither `load_hat` nor
`epsilon`, or a `source` other than "readings". Optional: `again()` returns the last step again;
`sample(readings)` takes (n, T, houses) readings and returns a mapping of (n, T) arrays of
`load_hat` or `rate`, as n fresh publishers would publish T steps each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

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
from hushgrid.errors import HorizonError, HushgridError, PolicyError
from hushgrid.mechanism.calibrators import case_loss
from hushgrid.mechanism.noise import Noise, SecureNoise, SimulatedNoise
from hushgrid.mechanism.policy import Schedule
from hushgrid.mechanism.release import Release, State, prepare, releases, skip, step
from hushgrid.model.zone import Tariff, public_rate, tally_offset


class AuditedPublisher(Protocol):
    """A publisher under audit."""

    def publish(self, readings: Ints) -> Any:
        """The next step's release for the readings [Wh] of all houses."""
        ...


Factory = Callable[..., AuditedPublisher]


class PublicAnswer(NamedTuple):
    """The public part of a publisher's answer; None where it is not stated.

    Attributes:
        load_hat: Noisy load [Wh].
        rate: Rate [currency/kWh].
        scale: Stated scale of the noise [Wh].
        epsilon: Stated loss.
        put_back: Energy added for the clamp [Wh].
        estimate: Published estimate of the load [Wh].
        digest: Digest of the terms.
        from_readings: Whether readings were used.
    """

    load_hat: float | None
    rate: float | None
    scale: float | None
    epsilon: float | None
    put_back: float
    estimate: float | None
    digest: str | None
    from_readings: bool


def read_answer(published: Any) -> PublicAnswer:
    """Read a publisher's answer.

    Args:
        published: A Release, or any object or mapping with the same names.

    Returns:
        Its public part.

    Raises:
        PolicyError: If a figure is not a finite number, or load_hat and rate are both absent.
    """

    def get(name: str) -> Any:
        if isinstance(published, Mapping):
            return published.get(name)
        return getattr(published, name, None)

    def number(name: str) -> float | None:
        value = get(name)
        if value is None:
            return None
        try:
            figure = float(value)
        except (TypeError, ValueError):
            raise PolicyError(
                f"the publisher's {name} is of type {type(value).__name__}; give a number."
            ) from None
        if not math.isfinite(figure) and (name != "epsilon" or figure != math.inf):
            raise PolicyError(f"the publisher's {name} is {figure}; give a finite number.")
        return figure

    load_hat, rate = number("load_hat"), number("rate")
    if load_hat is None and rate is None:
        raise PolicyError(
            f"the publisher answered a {type(published).__name__} without load_hat and rate;"
            " give one of them."
        )
    source = get("source")
    from_readings = source == "readings" or (
        source is None and (load_hat is not None or number("epsilon") != 0)
    )
    return PublicAnswer(
        load_hat,
        rate,
        number("scale"),
        number("epsilon"),
        number("put_back") or 0.0,
        number("estimate"),
        None if get("digest") is None else str(get("digest")),
        from_readings,
    )


def load_of_rate(rate: Any, tariff: Tariff) -> Any:
    """The noisy load of a rate that is not truncated by floor or cap.

    Args:
        rate: Rates [currency/kWh]; any shape.
        tariff: The tariff.

    Returns:
        Loads [Wh], in the shape of `rate`.
    """
    z = (np.asarray(rate, np.float64) - tariff.beta) / tariff.alpha * 1000
    return z - tariff.inelastic + tariff.offset


def restore_truncated(
    loads: Any, load: Any, scale: float, tariff: Tariff, rng: np.random.Generator
) -> Floats:
    """Replace loads of rates at the floor or cap by samples from beyond it.

    Samples follow noise of the scale due, given that it lies beyond the floor or cap. So truncation
    never counts as missing noise.

    Args:
        loads: Noisy loads derived from rates [Wh].
        load: True load [Wh].
        scale: Scale due [Wh].
        tariff: The tariff.
        rng: Source of randomness.

    Returns:
        Loads [Wh], in the shape of `loads`.
    """
    samples = np.array(loads, np.float64)
    low, high = (load_of_rate(at, tariff) for at in (tariff.floor, tariff.cap))
    u = 1 - rng.random(samples.shape)  # above 0
    for cut, sign in ((samples <= low + 1e-6, 1), (samples >= high - 1e-6, -1)):
        d = sign * (samples - load) / scale
        log_below = np.where(d < 0, d - math.log(2), np.log1p(-np.exp(-np.abs(d)) / 2))
        log_p = log_below + np.log(u)  # uniform below the cut, then the inverse law
        at = np.where(log_p < -math.log(2), log_p + math.log(2), -np.log(2 * -np.expm1(log_p)))
        samples = np.where(cut, load + sign * scale * at, samples)
    return samples


def check_unsmoothed(tariff: Tariff) -> None:
    """Refuse to derive a load from a rate that is smoothed, and so has no load of its own.

    Args:
        tariff: The tariff.

    Raises:
        PolicyError: If the tariff smooths rates.
    """
    if tariff.smooth:
        raise PolicyError(
            f"tariff smooth is {tariff.smooth:g} and the publisher states rates alone; let it state"
            " load_hat."
        )


def load_of(answer: PublicAnswer, tariff: Tariff) -> float:
    """The noisy load of an answer.

    Args:
        answer: The answer.
        tariff: The tariff.

    Returns:
        The load [Wh], derived from the rate where it is not stated.
    """
    if answer.load_hat is not None:
        return answer.load_hat
    if answer.from_readings:  # a forecast has no noise to be judged
        check_unsmoothed(tariff)
    return float(load_of_rate(answer.rate, tariff)) - answer.put_back


class Hushgrid:
    """The correct publisher: Algorithm 1, and a forecast beyond its horizon.

    Args:
        terms: Its terms.
        noise: Source of noise.
        first: State before the first step.
    """

    def __init__(self, terms: Terms, noise: Noise, first: State) -> None:
        self.terms, self.noise = terms, noise
        self._first = self._state = first
        self._last = None
        self._public = terms.first_public()

    _last: Release | Mapping[str, Any] | None

    def publish(self, readings: Ints) -> Release | Mapping[str, Any]:
        """The next step's release; noise is drawn before the readings are used."""
        state = self._state
        try:
            draws = prepare(state, self.noise)
        except HorizonError:
            return self._forecast()
        load = tally_offset(readings, self.terms.zone, state.zone)
        release, self._state = step(state, load, draws)
        _, self._public = self._public.learn(release.load_hat, release.scale, state.rates)
        self._last = release
        return release

    def again(self) -> Release | Mapping[str, Any] | None:
        """The last step, unchanged."""
        return self._last

    def _forecast(self) -> Mapping[str, Any]:
        rates = self._state.rates
        law, last = self._public.predicted(rates), rates[-1] if rates else None
        rate = public_rate(float((law.weights * law.mean).sum()), self.terms.tariff, last)
        self._public = self._public.passed()
        self._state = skip(self._state, rate)
        self._last = {"source": "forecast", "rate": rate, "epsilon": 0.0, "scale": 0.0}
        return self._last

    def sample(self, readings: Ints) -> Mapping[str, NDArray[Any]]:
        """(n, T) noisy loads [Wh] for (n, T, houses) readings, each from the first step on."""
        first = self._first
        n, steps, _ = readings.shape
        low = self.terms.zone.low_ends(first.zone)
        loads = np.clip(readings, low, low + first.zone.bound).sum(axis=2, dtype=np.int64)
        if first.scheduler.ahead and first.policy.schedule.noise == "laplace":
            for t in range(steps):
                loads[:, t] += self.noise.draws(first.scheduler.at(t + 1).scale, n)
            return {"load_hat": loads}
        t = 0
        while first.policy.schedule.lengths and t < steps:
            _, end = first.policy.schedule.span(t + 1)
            noise = self.noise.blocks(first.scheduler.at(t + 1).scale, end - t, n)
            loads[:, t:end] += noise[:, : steps - t]
            t = end
        if t:
            return {"load_hat": loads}
        for i in range(n):
            days = (tally_offset(day, self.terms.zone, first.zone) for day in readings[i])
            loads[i] = [release.load_hat for release in releases(first, days, self.noise)]
        return {"load_hat": loads}


def hushgrid(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Factory of the correct publisher.

    Args:
        terms: Its terms.
        seed: Seed of simulated noise; None for secure noise.

    Returns:
        The publisher.
    """
    noise = SecureNoise() if seed is None else SimulatedNoise(seed)
    return Hushgrid(terms, noise, terms.first_state())


def secure(terms: Terms, *, seed: int | None = None) -> Hushgrid:
    """Factory of the correct publisher with secure noise.

    Args:
        terms: Its terms.
        seed: Ignored.

    Returns:
        The publisher.
    """
    del seed
    return hushgrid(terms)


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
