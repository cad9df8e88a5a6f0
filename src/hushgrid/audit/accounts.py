"""What a zone's records add up to: releases, lost steps and charges of models.

Computed from the records and the public terms alone, without the service's own accounts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from hushgrid._numbers import Spent, sum_up
from hushgrid.audit.bounds import Check
from hushgrid.audit.evidence import (
    Evidence,
    LostSteps,
    RecordedRelease,
    RecordedWeek,
    Terms,
)
from hushgrid.belief.followed import EarlierRelease
from hushgrid.mechanism.release import renumbered

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


def budget(evidence: Evidence, digests: Mapping[str, Terms]) -> Check:
    """Whether lost steps are booked in full, and what all releases together state.

    Args:
        evidence: The records of a zone.
        digests: Terms of its weeks by digest.

    Returns:
        The check.
    """
    if (gap_fault := _unbooked(evidence, digests)) is not None:
        return gap_fault
    losses = [release.epsilon for release in counted(evidence.entries)]
    losses += [gap.epsilon for gap in evidence.gaps if gap.epsilon is not None]
    finite = Spent().add(*(loss for loss in losses if math.isfinite(loss)))
    total = f"{finite.total:.6g}"
    if not all(map(math.isfinite, losses)):
        total = f"no bound (those with an epsilon of their own {total})"
    text = f"All releases together state {total}"
    if not digests:
        return Check("budget", "not_checked", f"{text}; needs --config.")
    return Check("budget", "passed", f"{text}.")


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


def releases_before(
    evidence: Evidence, week: RecordedWeek, since: float = -math.inf
) -> list[EarlierRelease]:
    """Releases that an estimator follows before a week, after the last of another length.

    Args:
        evidence: The zone's record.
        week: One of its weeks.
        since: Releases of steps before this time are left out [UTC s].

    Returns:
        Those that state what they are relative to, in order, with steps counted from the week.
    """
    releases: list[EarlierRelease] = []
    for earlier in evidence.weeks[: evidence.weeks.index(week)]:
        if earlier.seconds != week.seconds:
            releases = [] if earlier.entries else releases
            continue
        for entry in earlier.entries:
            at = (earlier.first + entry.step - 1) * (week.seconds or 1)
            if entry.source == "readings" and entry.base is not None and at >= since:
                release = renumbered(entry.release, earlier.first - week.first)
                share, covariates = entry.model_share or 0.0, entry.covariates or {}
                figures = (entry.load_hat, entry.scale, entry.base, share, covariates)
                releases.append(EarlierRelease(release.t, *figures, release.block))
    return releases


def _weeks_of(evidence: Evidence, gap: LostSteps) -> list[RecordedWeek]:
    """The weeks of the terms of a gap, up to its last step."""
    terms = max((week.place for week in evidence.weeks if week.place < gap.place), default=0)
    return [week for week in evidence.weeks if week.place == terms and week.first <= gap.last]


def _unbooked(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """A gap for which less is booked than its steps may have cost."""
    for gap in evidence.gaps:
        weeks = _weeks_of(evidence, gap)
        terms = digests.get(weeks[-1].digest) if weeks else None
        if terms is None or gap.epsilon is None or math.isinf(gap.epsilon):
            continue
        costs = chain.from_iterable(_most_of(week, terms, gap) for week in weeks)
        due = sum_up([gap.least, *costs])
        if gap.epsilon < due * (1 - _CLOSE):
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
