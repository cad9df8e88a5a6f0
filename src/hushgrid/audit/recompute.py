"""A zone's record checked against its public terms: every scale, rate and loss computed again.

It does not use the replay of the service, so that a fault there is not repeated here. The reuse of
noise is in `noise_reuse`, the budget in `accounts`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.audit.behaviour import coverage_fault, grid_fault
from hushgrid.audit.bounds import (
    FALSE_ALARM,
    Check,
    p_small_noise,
)
from hushgrid.audit.evidence import (
    Evidence,
    RecordedList,
    RecordedRelease,
    RecordedWeek,
    Terms,
)
from hushgrid.audit.publishers import PublicAnswer
from hushgrid.belief.expected_rate import mean_rates
from hushgrid.belief.followed import Begun, EarlierRelease, FollowedKnowledge, informed
from hushgrid.errors import HushgridError
from hushgrid.mechanism.price_list import carried_rates, expected_rates, fallback_rates
from hushgrid.mechanism.release import (
    Release,
    State,
    release_of,
    replay,
    skip,
)
from hushgrid.model.zone import MOST_PRICES, Tariff, feed_in_rate, smoothed_rate

_NEAR = 1e-6  # figures that went through many steps of a filter elsewhere
_CLOSE = 1e-9  # figures that went through a transcendental function elsewhere


@dataclass(frozen=True, slots=True, eq=False)
class Recomputed:
    """A week computed again; T steps up to the last published, N houses.

    Attributes:
        week: The week on record.
        terms: Its terms.
        first: State before its first step.
        losses: (T, N) losses at the stated scales.
        due: (T,) scales the terms lead to [Wh].
        recorded_scale: (T,) scales on record [Wh]; 0 without readings.
        releases: Releases from readings.
        residual: Noisy load - public guess of the `releases` [Wh].
        scale: Scales stated in `releases` [Wh].
    """

    week: RecordedWeek
    terms: Terms
    first: State
    losses: Floats
    due: tuple[float, ...]
    recorded_scale: tuple[float, ...]
    releases: tuple[RecordedRelease, ...]
    residual: Floats
    scale: Floats

    @property
    def begun(self) -> Begun | None:
        """What was known before the week, for the next one; None without an estimate."""
        public = self.first.public
        return None if public is None else Begun(self.week.first, public)

    def release_of(self, entry: RecordedRelease) -> Release:
        """An entry from readings as a release of the mechanism."""
        return _release(self.first, entry)

    def lengths(self, steps: int) -> tuple[int, ...]:
        """Blocks of steps with one noise, of the first `steps`; empty: noise of its own."""
        plan = self.terms.policy.schedule
        lengths = plan.with_epsilons(plan.epsilons[:steps]).lengths if plan.lengths else ()
        return lengths + (1,) * (steps - sum(lengths) if lengths else 0)

    @property
    def block(self) -> Ints | None:
        """First step of the block of each of `releases`; None where noise is its own."""
        plan = self.terms.policy.schedule
        if not plan.lengths:
            return None
        return np.array([plan.span(entry.step)[0] for entry in self.releases], np.int64)


def _release(first: State, entry: RecordedRelease) -> Release:
    """With the names, the noise law and the block that the terms lead to, whatever is stated."""
    plan = first.policy.schedule
    return replace(
        entry.release,
        zone=first.zone.id,
        load_hat=int(entry.load_hat or 0),
        rule=first.rule,
        digest=first.digest,
        noise=plan.noise_at(entry.scale),
        block=(plan.block(entry.step) or None) if entry.scale > 0 else None,
    )


def recompute(
    week: RecordedWeek,
    terms: Terms,
    earlier: Sequence[EarlierRelease] = (),
    begun: tuple[int, FollowedKnowledge] | None = None,
) -> tuple[Recomputed, list[Check]]:
    """Compute a week again from its terms and noisy loads.

    Args:
        week: The week on record.
        terms: Its terms, over any week.
        earlier: Releases before the week, for an estimator that follows releases.
        begun: A step before the week, and the knowledge before it; `earlier` are those since then.

    Returns:
        The recomputed week, and its checks with the first fault of each kind.
    """
    terms = terms.over(week)
    walk = _Walk(terms, week, earlier, begun)
    for entry in week.entries:
        walk.take(entry)
    walk.finish()
    recomputed = Recomputed(
        week,
        terms,
        walk.first,
        np.array(walk.losses).reshape(-1, terms.zone.n_houses),
        tuple(walk.due),
        tuple(walk.recorded_scale),
        tuple(walk.releases),
        np.array(walk.residuals),
        np.array(walk.scales),
    )
    return recomputed, [*walk.checks(), _spread(recomputed)]


class _Walk:
    """Recomputes a week release by release, from public figures only."""

    def __init__(
        self,
        terms: Terms,
        week: RecordedWeek,
        earlier: Sequence[EarlierRelease],
        begun: tuple[int, FollowedKnowledge] | None,
    ) -> None:
        first, self._public = terms.first_state(), terms.first_public()
        if isinstance(self._public, FollowedKnowledge):
            self._public = self._public.continued(earlier, begun)
            first = replace(first, public=self._public)
        self.terms, self.first, self._week = terms, first, week
        self._state, self._last_digits = self.first, 0
        self._tariff: Tariff | None = None  # the one on record that is priced by
        self._rates: list[float] = []
        self._draw: tuple[int, int | None] = (-1, None)  # first step and mark of a block
        self.losses: list[Floats] = []
        self.due: list[float] = []
        self.recorded_scale: list[float] = []
        self.releases: list[RecordedRelease] = []
        self.residuals: list[float] = []
        self.scales: list[float] = []
        self._faults: dict[str, Check] = {}
        self._lists = deque(week.lists)

    def take(self, entry: RecordedRelease) -> None:
        """Add the next release, and check the lists of prices before it."""
        while self._lists and self._lists[0].place < entry.place:
            self._check_list(self._lists.popleft())
        if not self._take_tariff(entry.place):
            self._fault("post_processing", entry, "has a price, but no tariff is on record")
        while len(self._rates) + 1 < entry.step:  # steps that were left out
            self._pass(self._rates[-1] if self._rates else self.terms.fallback_rate)
        if entry.source != "readings" or entry.step > self.terms.policy.horizon:
            if entry.source == "readings":
                self._fault("budget", entry, f"lies beyond the horizon ({entry.step})")
            else:
                self._check_stand_in(entry)
            self._pass(entry.rate)
            return
        self._public = informed(self._public, entry.covariates)
        if (public := self._state.public) is not None:
            self._state = replace(self._state, public=informed(public, entry.covariates))
        self._check(entry)
        due = release_of(self._state, int(entry.load_hat or 0), self._loss_of(entry))
        self._check_stated(entry, due)
        law = self._public.parts(self._rates)
        guess = float((law.weights * law.mean).sum())
        self.releases.append(entry)
        self.scales.append(entry.scale)
        self.residuals.append((entry.load_hat or 0) - guess)
        self.recorded_scale.append(entry.scale)
        self.losses.append(self._loss(entry))
        self._public = self._public.after(entry.load_hat or 0, entry.scale, self._rates)
        self._state = replay(self._state, _release(self.first, entry))
        self._rates.append(entry.rate)

    def finish(self) -> None:
        """Check the last lists, and pass the last steps that may have been published and lost."""
        for record in self._lists:
            self._check_list(record)
        last = min(max(self._week.lost, default=0), self.terms.policy.horizon)
        while len(self._rates) < last:
            self._pass(self._rates[-1] if self._rates else self.terms.fallback_rate)

    def _take_tariff(self, place: int) -> bool:
        """Price what is on record there by the tariff of that time; whether there is one."""
        if self._week.tariffs is None:
            return True
        tariff = self._week.tariff_at(place)
        if tariff is None:
            return False
        if tariff != self._tariff:
            self._tariff = tariff
            self.terms = replace(self.terms, tariff=tariff)
            self._state = replace(self._state, tariff=self.terms.tariff)
        return True

    def _pass(self, rate: float) -> None:
        self._public = self._public.passed()
        self._state = skip(self._state, rate)
        self.due.append(0.0)
        self.recorded_scale.append(0.0)
        t, policy = len(self._rates) + 1, self.terms.policy
        losses = np.zeros(self.terms.zone.n_houses)
        if t in self._week.lost and t <= policy.horizon:
            losses = self._lost_at(t)
        self.losses.append(losses)
        self._rates.append(rate)

    def _lost_at(self, t: int) -> Floats:
        """(N,) what a release of step t that was lost can have cost each house."""
        scheduler = self.first.scheduler
        if scheduler.weaker:
            return np.full(self.terms.zone.n_houses, scheduler.most(t))
        return scheduler.losses(t, scheduler.at(t, self._rates).scale, self._rates)

    def _check(self, entry: RecordedRelease) -> None:
        t = entry.step
        due = self.first.scheduler.at(t, self._rates, self._loss_of(entry))
        self.due.append(due.scale)
        if not _same(entry.scale, due.scale):
            fault = f"states a scale of {entry.scale!r} Wh where the terms lead to {due.scale!r}"
            self._fault("data_dependent_scale", entry, fault)
            if entry.scale < due.scale:
                self._fault("noise_scale", entry, fault)
        if lacking := coverage_fault(self.first, t, entry.scale, self._rates):
            self._fault("protected_set", entry, lacking)
        answer = PublicAnswer(
            None if entry.load_hat is None else float(entry.load_hat),
            entry.rate,
            entry.scale,
            entry.epsilon,
            entry.put_back,
            entry.estimate,
            entry.digest,
            True,
        )
        if bad := grid_fault(answer, self.terms, self._rates[-1] if self._rates else None):
            self._fault("float_noise", entry, bad)

    def _loss_of(self, entry: RecordedRelease) -> float | None:
        """What a block loses that its account admits with less than the plan; None: as planned.

        Whether the account chooses just this is checked with the accounts.
        """
        plan = self.first.scheduler.at(entry.step, self._rates)
        bounded = self.terms.secret in ("interval", "window")
        less = bounded and 0 < entry.epsilon < plan.epsilon
        return None if not less or _same(entry.epsilon, plan.epsilon) else entry.epsilon

    def _check_stated(self, entry: RecordedRelease, due: Release) -> None:
        """Every figure stated with the noisy load must follow from public figures only."""
        if not _same(entry.epsilon, due.epsilon) and (
            entry.epsilon < due.epsilon or math.isinf(entry.epsilon)
        ):
            fault = f"states an epsilon of {entry.epsilon:g} where it loses {due.epsilon:g}"
            self._fault("budget", entry, fault)
        if (entry.estimate is None) != (due.estimate is None) or not self._near(
            entry.estimate, due.estimate
        ):
            self._fault("post_processing", entry, "states another estimate than the public's own")
        elif not self._near(entry.put_back, due.put_back):
            self._fault("post_processing", entry, "puts back other energy than the public expects")
        if self.terms.tariff.curve is not None and not self._near(entry.rate, due.rate):
            fault = "has a rate that is not the mean of the curve over the public's own law"
            self._fault("post_processing", entry, fault)
        for name in ("base", "model_share"):
            figure, due_figure = getattr(entry, name), getattr(due, name)
            if (figure is None) != (due_figure is None) or not self._near(figure, due_figure):
                fault = f"states a {name} that does not follow from the terms and the releases"
                self._fault("post_processing", entry, fault)
        if not self._near(entry.feed_in, due.feed_in):
            self._fault("post_processing", entry, "states another feed-in rate than its load's")
        if entry.offset != due.offset:
            fault = "states another sum of export limits than the terms"
            self._fault("post_processing", entry, fault)
        if entry.covariates != due.covariates:
            self._fault("post_processing", entry, "states other covariates than those of the terms")
        block = entry.block or {}
        if {**block, "mark": 0} != {**(due.block or {}), "mark": 0}:
            fault = "states another place in a block of steps than that of the terms"
            self._fault("post_processing", entry, fault)
        draw = block.get("first", entry.step), block.get("mark")
        if block and self._draw[0] == draw[0] and self._draw != draw:
            self._fault("post_processing", entry, "states noise drawn anew within a block of steps")
        self._draw = draw
        for name in ("scale", "epsilon", "epsilon_any"):
            if not self._near(getattr(entry, name), getattr(due, name), _CLOSE):
                fault = f"states a figure for {name} that does not follow from the terms"
                self._fault("post_processing", entry, fault)
        if entry.rule != due.rule:
            self._fault("post_processing", entry, "names another rule than that of the terms")
        if entry.noise != self.terms.policy.schedule.noise_at(entry.scale):
            self._fault("post_processing", entry, "names another noise than that of the terms")
        self._check_houses(entry)

    def _check_houses(self, entry: RecordedRelease) -> None:
        if entry.houses not in (None, self.terms.zone.n_houses):
            self._fault("post_processing", entry, "counts another number of houses than the zone")

    def _near(self, figure: float | None, due: float | None, close: float = _NEAR) -> bool:
        """Equal up to differences of exp and erf between machines, which are counted."""
        if figure is None or due is None or figure == due:
            return figure == due
        self._last_digits += 1
        return math.isclose(figure, due, rel_tol=close, abs_tol=close)

    def _check_stand_in(self, entry: RecordedRelease) -> None:
        """A release without readings must follow from public figures."""
        self._check_houses(entry)
        if entry.rule != entry.source:
            self._fault("post_processing", entry, f"is a {entry.source} under another rule")
        tariff = self.terms.tariff
        if entry.source == "forecast" and entry.offset != (tariff.offset or None):
            fault = "states another sum of export limits than the terms"
            self._fault("post_processing", entry, fault)
        if entry.source == "fallback":
            feed_in = feed_in_rate(None, tariff)
            if entry.rate != self.terms.fallback_rate or entry.feed_in != feed_in:
                self._fault("post_processing", entry, "is a fallback at another rate")
            return
        law = self._public.predicted(self._rates)
        guess = float((law.weights * law.mean).sum())
        follows = entry.estimate is None or self._near(entry.estimate, guess)
        follows = follows and self._near(entry.feed_in, feed_in_rate(guess, tariff))
        (rate,), last = mean_rates([law], tariff), self._rates[-1] if self._rates else None
        due = smoothed_rate(rate, tariff, last)
        if not follows or not self._near(entry.rate, due):
            self._fault("post_processing", entry, "is a forecast that is not the public's own")

    def _check_list(self, record: RecordedList) -> None:
        """A list of prices must follow from public figures."""
        has_tariff = self._take_tariff(record.place)
        tariff, number = self.terms.tariff, len(record.rates)
        due = fallback_rates(self.terms.fallback_rate, number, tariff)
        steps = record.first - len(self._rates) - 1
        in_reach = has_tariff and 0 <= steps <= 4 * MOST_PRICES  # after an outage of weeks
        if record.source != "fallback" and in_reach:
            due = expected_rates(self._public, steps, number, self._rates, tariff)
        if record.source == "carried":
            due = carried_rates(due, record.before, tariff)
        pairs = [*zip(record.rates, due.rates, strict=True)]
        if record.feed_in is not None and due.feed_in is not None:
            pairs += zip(record.feed_in, due.feed_in, strict=True)
        follows = in_reach and (record.feed_in is None) == (due.feed_in is None)
        if not follows or not all(self._near(rate, due_rate) for rate, due_rate in pairs):
            text = f"Record {record.place} lists prices that are not the public's own forecast."
            self._faults.setdefault(
                "post_processing", Check("post_processing", "failed", text, record.place)
            )

    def _loss(self, entry: RecordedRelease) -> Floats:
        scheduler, t = self.first.scheduler, entry.step
        try:
            return scheduler.losses(t, entry.scale, self._rates)
        except HushgridError:  # no noise where a house is uncertain
            self._fault("noise_scale", entry, "has no noise though houses are uncertain")
            return np.full(self.terms.zone.n_houses, math.inf)

    def _fault(self, name: str, entry: RecordedRelease, fault: str) -> None:
        step = self._week.first + entry.step - 1  # as records count
        text = f"Record {entry.place} (step {step}) {fault}."
        self._faults.setdefault(name, Check(name, "failed", text, entry.place))

    def checks(self) -> list[Check]:
        """One check of each kind: its first fault, or that it passed."""
        n = len(self.releases)
        fine = {
            "noise_scale": f"All {n} stated scales are at least those the terms lead to.",
            "data_dependent_scale": f"All {n} scales are those of the public models alone.",
            "float_noise": f"{n} noisy loads are whole, and rates follow from them.",
            "post_processing": "Estimates, forecasts and energy put back are the public's own.",
            "protected_set": f"{n} scales cover every house that is uncertain.",
        }
        checks = [
            self._faults.get(name) or Check(name, "passed", text) for name, text in fine.items()
        ]
        if self._last_digits and "post_processing" not in self._faults:
            text = (
                f"{self._last_digits} figures that follow from public ones differ in their last"
                " digits, as on another kind of machine, or if something were hidden there:"
                " audit them on the publisher's kind."
            )
            checks = [check for check in checks if check.id != "post_processing"]
            checks.append(Check("post_processing", "noted", text))
        return checks + ([self._faults["budget"]] if "budget" in self._faults else [])


def _same(figure: float, due: float) -> bool:
    return figure == due or math.isclose(figure, due, rel_tol=_CLOSE)


def _spread(recomputed: Recomputed) -> Check:
    """Whether releases scatter at least as much as their noise requires."""
    if not len(recomputed.residual) or recomputed.scale.min() <= 0:
        return Check("noise_scale", "not_applicable", "No fixed noise to look for in the releases.")
    p = p_small_noise(recomputed.residual, recomputed.scale, recomputed.block)
    word = f"{len(recomputed.residual)} releases about the public guess, p = {p:.2g}"
    if p < FALSE_ALARM:
        text = f"Releases scatter less than noise of the stated scale makes them ({word})."
        return Check("noise_scale", "failed", text, recomputed.releases[0].place)
    return Check("noise_scale", "passed", f"Releases scatter as noise of that scale must ({word}).")


def house_names(evidence: Evidence, digests: Mapping[str, Terms]) -> list[Check]:
    """Whether records of terms have a name for each meter, and the same ones for the same meters.

    A name needs the publisher's secret: names are counted and compared with each other.

    Args:
        evidence: The records of a zone.
        digests: Terms by digest.

    Returns:
        The first fault, or that there is none; nothing where no record has known terms.
    """
    by_roster, records = dict[str, tuple[int, Sequence[str]]](), set[int]()
    for week in evidence.weeks:
        terms, names = digests.get(week.digest), week.houses
        if terms is None or terms.zone.id != evidence.zone or names is None:
            continue
        records.add(week.place)
        n, fault = terms.zone.n_houses if terms.meters is None else terms.meters, None
        place, before = by_roster.setdefault(week.roster or "", (week.place, names))
        if len(names) != n:
            fault = f"{len(names)} names for meters where {n} follow from the terms"
        elif list(names) != sorted(names):
            fault = "names for meters that are not in order"
        elif week.roster is not None and before != names:
            fault = f"other names for meters than record {place}, which has the same meters"
        if fault is not None:
            return [Check("terms", "failed", f"Record {week.place} states {fault}.", week.place)]
    text = f"{len(records)} records of terms have a name for each meter."
    return [Check("terms", "passed", text)] if records else []


def account(evidence: Evidence, terms: Sequence[Terms]) -> Check:
    """Whether every account that the records state follows from those before it.

    Args:
        evidence: The records of a zone.
        terms: All terms given.

    Returns:
        The check, with the first fault.
    """
    name, ledger = "account", evidence.ledger
    places = sorted({week.place for week in evidence.weeks})
    due = {
        places.index(week.place) for week in evidence.weeks if week.secret in ("interval", "window")
    }
    if not due:
        return Check(name, "not_applicable", "No terms have a promise about an interval.")
    if ledger is None:
        return Check(name, "not_checked", "The accounts of a chain that is not valid are no proof.")
    accounts = [
        version.accounts
        for version in terms
        if version.zone.id == evidence.zone and version.accounts
    ]
    numbers = set[int]()
    for number, place in enumerate(places):
        findings = [
            finding
            for check_account in accounts
            if (finding := check_account(ledger, number)).has_terms
        ]
        if not findings:
            continue
        numbers.add(number)
        bad = findings[0]
        if bad.seq is not None and all(finding.seq is not None for finding in findings):
            bad_place = bad.seq + place - ledger.terms_records[number].seq
            return Check(name, "failed", f"Record {bad_place} {bad.text}.", bad_place)
    if missing := due - numbers:
        place = places[min(missing)]
        text = (
            f"{len(missing)} records of terms from record {place} on: give the service file of"
            " these terms."
        )
        return Check(name, "not_checked", text, place)
    text = f"The accounts under {len(due)} records of terms follow from the records."
    return Check(name, "passed", text)


_TIMES = ("start", "applies_start", "applies_from")


def _time_fault(evidence: Evidence) -> Check | None:
    """A release whose interval, or the one its rate begins with, is not that of its times."""
    for week in evidence.weeks:
        for entry in week.entries:
            length, at = week.seconds, entry.published_at
            if length is None or at is None:
                continue
            t, begins = week.first + entry.step - 1, at // length + 1  # the next after publication
            times = (entry.start, entry.applies_start, entry.applies_from + week.first - 1)
            due = (t * length, begins * length, begins)
            for name, time, due_time in zip(_TIMES, times, due, strict=True):
                if time != due_time:
                    text = (
                        f"Record {entry.place} (step {entry.step}) states {time} for {name} where"
                        f" {due_time} follows from its step and the time of its publication."
                    )
                    return Check("steps", "failed", text, entry.place)
    return None


def steps(evidence: Evidence) -> Check:
    """Steps without a release.

    Args:
        evidence: The records of a zone.

    Returns:
        The check; noted where steps have no release or a release may be lost, failed where times
        on record do not fit.
    """
    if (fault := _time_fault(evidence)) is not None:
        return fault
    gaps = []
    for week in evidence.weeks:
        numbers = [entry.step for entry in week.entries]
        gaps += [
            (a + 1, b - 1, entry.place)
            for a, b, entry in zip(numbers, numbers[1:], week.entries[1:], strict=False)
            if b > a + 1
        ]
    if evidence.gaps:
        gap = evidence.gaps[-1]
        cost = "nothing yet" if gap.epsilon is None else f"epsilon {gap.epsilon:.6g}"
        text = (
            f"Releases of steps {gap.first} to {gap.last} may have been published and lost; record"
            f" {gap.place} books {cost} for them."
        )
        return Check("steps", "noted", text, gap.place)
    if not gaps:
        return Check("steps", "passed", f"{len(evidence.entries)} releases without a gap.")
    low, high, place = gaps[0]
    text = (
        f"{len(gaps)} gaps; the first from step {low} to {high}, before record {place}. Nothing"
        " on record says what was published then."
    )
    return Check("steps", "noted", text, place)


def republication(evidence: Evidence) -> Check:
    """Whether every step is on record once.

    Args:
        evidence: The records of a zone.

    Returns:
        The check.
    """
    if evidence.repeated is None:
        return Check("republication", "passed", "Every step is on record once.")
    text = (
        f"Record {evidence.repeated} publishes a step of zone {evidence.zone!r} that was published"
        " before: each time costs its full epsilon."
    )
    return Check("republication", "failed", text, evidence.repeated)


def release_terms(
    evidence: Evidence, digests: Mapping[str, Terms], zones: Collection[str]
) -> Check:
    """Whether every release was made under one of the given terms.

    Args:
        evidence: The records of a zone.
        digests: Terms by digest.
        zones: Ids of all zones on record.

    Returns:
        The check.
    """
    zones_of_terms = {terms.zone.id for terms in digests.values()}
    if evidence.zone not in zones_of_terms and zones_of_terms & set(zones):
        return Check(
            "terms", "not_checked", f"No terms of zone {evidence.zone!r}: give its --config too."
        )
    for week in evidence.weeks:
        for entry in week.entries:
            if entry.digest is not None and entry.digest != week.digest:
                text = (
                    f"Record {entry.place} was made under terms {entry.digest[:12]}, not those on"
                    f" record ({week.digest[:12]})."
                )
                return Check("terms", "failed", text, entry.place)
    weeks = [week for week in evidence.weeks if week.entries]
    unknown = [week for week in weeks if week.digest not in digests]
    if unknown and len(unknown) == len(weeks):
        text = (
            f"Record {unknown[0].entries[0].place} and those after it were made under terms"
            f" {unknown[0].digest[:12]}; those given are"
            f" {', '.join(sorted(d[:12] for d in digests))}: another zone's or model's."
        )
        return Check("terms", "failed", text, unknown[0].entries[0].place)
    records = len({week.place for week in evidence.weeks})
    if unknown:
        count = len({week.place for week in unknown})
        text = (
            f"{count} of {records} records of terms are others, from record {unknown[0].place} on:"
            " give their --config too."
        )
        return Check("terms", "not_checked", text, unknown[0].place)
    text = f"All releases are of the terms given (records of terms: {records})."
    return Check("terms", "passed", text)
