"""What a zone's records add up to: budget and charges of models.

Computed from the records and the public terms alone, without the service's own accounts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, chain, groupby
from operator import attrgetter
from typing import NamedTuple

from hushgrid._numbers import Spent, sum_up
from hushgrid.audit.bounds import (
    Check,
)
from hushgrid.audit.evidence import (
    Evidence,
    LostSteps,
    RecordedRelease,
    RecordedWeek,
    Terms,
)
from hushgrid.belief.followed import EarlierRelease
from hushgrid.mechanism.release import renumbered

_NEAR = 1e-6  # figures that went through many steps of a filter elsewhere
_CLOSE = 1e-9  # figures that went through a transcendental function elsewhere


def charges(evidence: Evidence, digests: Mapping[str, Terms]) -> list[Check]:
    """Whether the cost of models is on record before a release uses them.

    Args:
        evidence: The records of a zone.
        digests: Terms by digest.

    Returns:
        The first failure, or no check.
    """
    for week in evidence.weeks:
        entries = [entry for entry in week.entries if entry.source == "readings"]
        cost = digests[week.digest].charged if week.digest in digests else 0.0
        if not entries or cost <= 0:
            continue
        before = [epsilon for place, epsilon in evidence.charges if place < entries[0].place]
        if evidence.kind == "ledger" and max(before, default=0.0) < cost:
            text = (
                f"Record {entries[0].place} uses models that cost every house {cost:g}, which no"
                " earlier record charges."
            )
            return [Check("budget", "failed", text, entries[0].place)]
    return []


class _Spending(NamedTuple):
    at: int  # [s]: steps of different length are numbered differently
    epsilon: float
    place: int
    models: float  # what they cost
    week: int  # its number in the evidence


class _Limit(NamedTuple):
    budget: float | None
    horizon: int  # [steps]
    seconds: int  # of a horizon
    since: int = 0  # the first week that the count goes back to


def budget(
    evidence: Evidence, terms: Terms | None, digests: Mapping[str, Terms] | None = None
) -> Check:
    """Whether any horizon of consecutive steps spends more than the budget, across all weeks.

    Includes the cost of models. Every week has the budget and the horizon of its own terms. A
    horizon that reaches back to earlier weeks may spend the largest budget of the weeks in it.

    Args:
        evidence: The records of a zone.
        terms: Terms for weeks that `digests` does not name, or None.
        digests: Terms of all weeks by digest.

    Returns:
        The check.
    """
    digests = digests or {}
    models = {digest: version.charged for digest, version in digests.items()}
    spendings = [
        _Spending(
            (week.first + entry.step - 1) * (week.seconds or 1),
            entry.epsilon,
            entry.place,
            models.get(week.digest, 0.0),
            number,
        )
        for number, week in enumerate(evidence.weeks)
        for entry in counted(week.entries)
        if math.isfinite(entry.epsilon)
    ]
    for gap in evidence.gaps:
        weeks = _weeks_of(evidence, gap)
        if weeks and gap.epsilon is not None and math.isfinite(gap.epsilon):
            week = weeks[-1]
            at, number = gap.last * (week.seconds or 1), evidence.weeks.index(week)
            cost = models.get(week.digest, 0.0)
            spendings.append(_Spending(at, gap.epsilon, gap.place, cost, number))
    spendings.sort()
    if (restart := _restart(evidence, digests)) is not None:
        return restart
    if (gap_fault := _unbooked(evidence, digests)) is not None:
        return gap_fault
    if (endless := _unbounded_release(evidence, digests)) is not None:
        return endless
    all_spending = Spent().add(*(spending.epsilon for spending in spendings))
    total = f"{all_spending.total:.6g}"
    if any(math.isinf(e.epsilon) for e in evidence.entries if e.source == "readings") or any(
        gap.epsilon is not None and math.isinf(gap.epsilon) for gap in evidence.gaps
    ):
        total = f"no bound (those with an epsilon of their own {total})"
    text = f"All releases together state {total}"
    if terms is None:
        return Check("budget", "not_checked", f"{text}; needs --config.")
    limits = _limits(evidence, terms, digests)
    bounds = ((limit.budget, limit.horizon) for limit in limits if limit.budget is not None)
    budgets = list(dict.fromkeys(bounds))
    if not budgets:
        return Check("budget", "passed", f"{text}; no budget is set.")
    lost = {gap.place for gap in evidence.gaps}  # the most they can have cost: perhaps above it
    counts = [spendings]
    if len({limit.budget for limit in limits}) > 1:  # and each week alone
        of = attrgetter("week")
        counts += [list(group) for _, group in groupby(sorted(spendings, key=of), key=of)]
    for count in counts:
        if (fault := _over_budget(count, limits, lost)) is not None:
            return fault
    text += ", within"
    if lost and any(all_spending.exceeds(most) for most, _ in budgets):
        text = (
            f"All releases and lost steps together are booked with {total}; no release was made"
            " beyond"
        )
    words = " and ".join(
        f"the budget of {most:g} for a week of {steps} steps" for most, steps in budgets
    )
    condition = ", where one is set" if any(limit.budget is None for limit in limits) else ""
    return Check("budget", "passed", f"{text} {words}{condition}.")


def _limits(evidence: Evidence, terms: Terms, digests: Mapping[str, Terms]) -> list[_Limit]:
    """Budget and horizon of every week; those of `terms` where its own are not known."""
    last = evidence.weeks[-1].seconds if evidence.weeks else None
    default = _Limit(terms.budget, terms.policy.horizon, terms.policy.horizon * (last or 1))
    limits, since, end = list[_Limit](), 0, 0
    for i, week in enumerate(evidence.weeks):
        week_terms, seconds = digests.get(week.digest), week.seconds or 1
        if week.first * seconds >= end:  # a budget of its own
            since = i
        end = max(end, (week.first + week.steps) * seconds)
        if week_terms is None:
            limits.append(default._replace(since=since))
        else:
            steps = week_terms.policy.horizon
            limits.append(_Limit(week_terms.budget, steps, steps * seconds, since))
    return limits or [default]


def _over_budget(
    spendings: Sequence[_Spending], limits: Sequence[_Limit], lost: Collection[int]
) -> Check | None:
    """The first release that brings a horizon above the largest budget of the weeks in it."""
    times, weeks = (
        [spending.at for spending in spendings],
        [spending.week for spending in spendings],
    )
    sums = list(
        accumulate((Fraction(spending.epsilon) for spending in spendings), initial=Fraction())
    )
    for n, spending in enumerate(spendings):
        limit = limits[spending.week]
        start = max(
            bisect_right(times, spending.at - limit.seconds), bisect_left(weeks, limit.since)
        )
        limits_in_reach = limits[min(spendings[start].week, spending.week) : spending.week + 1]
        most = max(
            math.inf if week_limit.budget is None else week_limit.budget
            for week_limit in limits_in_reach
        )
        running = sums[n + 1] - sums[start]
        if spending.place not in lost and Spent(running).add(spending.models).exceeds(most):
            models = f" and {spending.models:.6g} for models" if spending.models else ""
            text = (
                f"Record {spending.place} brings the spending of {n - start + 1} releases within"
                f" one horizon to {float(running):.6g}{models}, above the budget of {most:g}: the"
                " count began anew."
            )
            return Check("budget", "failed", text, spending.place)
    return None


def counted(entries: Iterable[RecordedRelease]) -> Iterator[RecordedRelease]:
    """Releases from readings that add their loss to a sum: of a block of steps the first alone.

    The last alone where entries are given in reverse.
    """
    last = None
    for entry in entries:
        if entry.source != "readings":
            continue
        noise = _noise_of(entry)
        if noise != last:
            yield entry
        last = noise


def _noise_of(entry: RecordedRelease) -> tuple[int, int | None]:
    """Names the noise of a release: that of its step, or of its block of steps."""
    if entry.block is None:
        return entry.step, None
    return entry.block["first"], entry.block.get("mark")


def releases_before(evidence: Evidence, week: RecordedWeek) -> list[EarlierRelease]:
    """Releases of earlier weeks with steps of the same length, after the last of another length.

    Args:
        evidence: The zone's record.
        week: One of its weeks.

    Returns:
        Those that state what they are relative to, in order, with steps counted from the week.
    """
    releases: list[EarlierRelease] = []
    for earlier in evidence.weeks[: evidence.weeks.index(week)]:
        if earlier.seconds != week.seconds:
            releases = [] if earlier.entries else releases
            continue
        for entry in earlier.entries:
            if entry.source == "readings" and entry.base is not None:
                release = renumbered(entry.release, earlier.first - week.first)
                share, covariates = entry.model_share or 0.0, entry.covariates or {}
                figures = (entry.load_hat, entry.scale, entry.base, share, covariates)
                releases.append(EarlierRelease(release.t, *figures, release.block))
    return releases


def _unbounded_release(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """A release without a finite loss under terms with a budget."""
    for week in evidence.weeks:
        terms = digests.get(week.digest)
        if terms is None or terms.budget is None:
            continue
        for entry in week.entries:
            if entry.source == "readings" and math.isinf(entry.epsilon):
                text = (
                    f"Record {entry.place} is a release without a finite loss, above the budget of"
                    f" {terms.budget:g} or any other."
                )
                return Check("budget", "failed", text, entry.place)
    return None


def _weeks_of(evidence: Evidence, gap: LostSteps) -> list[RecordedWeek]:
    """The weeks of the terms of a gap, up to its last step."""
    terms = max((week.place for week in evidence.weeks if week.place < gap.place), default=0)
    return [week for week in evidence.weeks if week.place == terms and week.first <= gap.last]


def _unbooked(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """A gap for which less is booked than its steps may have cost within the budget."""
    for gap in evidence.gaps:
        weeks = _weeks_of(evidence, gap)
        terms = digests.get(weeks[-1].digest) if weeks else None
        if terms is None or gap.epsilon is None or math.isinf(gap.epsilon):
            continue
        due = sum_up(chain.from_iterable(_most_of(week, terms, gap) for week in weeks))
        before = [e.epsilon for e in counted(weeks[-1].entries) if e.place < gap.place]
        filled = terms.budget is not None and Spent().add(
            *before, gap.epsilon, terms.charged
        ).exceeds(terms.budget * (1 - _CLOSE))
        if gap.epsilon < due * (1 - _CLOSE) and not filled:
            text = (
                f"Record {gap.place} books {gap.epsilon:.6g} for steps {gap.first} to {gap.last},"
                f" which may have cost {due:.6g}."
            )
            return Check("budget", "failed", text, gap.place)
    return None


def _most_of(week: RecordedWeek, terms: Terms, gap: LostSteps) -> list[float]:
    """The most that each block of a week can have lost that a gap touches."""
    steps = range(max(gap.first, week.first) - week.first + 1, gap.last - week.first + 2)
    if not steps:
        return []
    week_terms = terms.over(week)
    most, span = week_terms.first_state().scheduler.most, week_terms.policy.schedule.span
    return list({span(t): most(t) for t in steps if t <= week_terms.policy.horizon}.values())


def _restart(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """Terms that begin again inside a week of the same terms: the count starts again.

    A promise about one interval goes on from week to week, a promise about one release counts none;
    without a budget nothing else is counted.
    """
    for before, after in zip(evidence.weeks, evidence.weeks[1:], strict=False):
        terms = digests.get(after.digest)
        if terms is not None and terms.budget is None:
            continue
        inside = after.first < before.first + before.steps
        same_terms = (before.digest, before.seconds) == (after.digest, after.seconds)
        if same_terms and inside and before.entries and after.entries:
            text = (
                f"Record {after.place} begins the same terms again at step {after.first}, inside"
                f" the week before (to step {before.first + before.steps - 1}): what was spent is"
                " no longer counted."
            )
            return Check("budget", "failed", text, after.place)
    return None
