"""What a zone's records add up to: budget and charges of models.

Computed from the records and the public terms alone, without the service's own accounts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, groupby
from operator import attrgetter
from typing import NamedTuple

from hushgrid._numbers import Spent, sum_up
from hushgrid.audit.bounds import (
    Check,
)
from hushgrid.audit.evidence import (
    Evidence,
    LostSteps,
    RecordedEpoch,
    RecordedRelease,
    Terms,
)
from hushgrid.belief.load_filter import EarlierRelease

Commit = Callable[[str, Sequence[float]], str]  # (terms, scales) -> the digest committed to

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
    for epoch in evidence.epochs:
        entries = [entry for entry in epoch.entries if entry.source == "readings"]
        cost = digests[epoch.digest].charged if epoch.digest in digests else 0.0
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
    epoch: int  # its number in the evidence


class _Limit(NamedTuple):
    budget: float | None
    horizon: int  # [steps]
    seconds: int  # of a horizon
    since: int = 0  # the first epoch that the count goes back to


def budget(
    evidence: Evidence, terms: Terms | None, digests: Mapping[str, Terms] | None = None
) -> Check:
    """Whether any horizon of consecutive steps spends more than the budget, across all epochs.

    Includes the cost of models. Every epoch has the budget and the horizon of its own terms. A
    horizon that reaches back to earlier epochs may spend the largest budget of the epochs in it.

    Args:
        evidence: The records of a zone.
        terms: Terms for epochs that `digests` does not name, or None.
        digests: Terms of all epochs by digest.

    Returns:
        The check.
    """
    digests = digests or {}
    models = {digest: version.charged for digest, version in digests.items()}
    spendings = [
        _Spending(
            (epoch.first + entry.step - 1) * (epoch.seconds or 1),
            entry.epsilon,
            entry.place,
            models.get(epoch.digest, 0.0),
            number,
        )
        for number, epoch in enumerate(evidence.epochs)
        for entry in counted(epoch.entries)
        if math.isfinite(entry.epsilon)
    ]
    for gap in evidence.gaps:
        epoch = _epoch_of(evidence, gap)
        if epoch is not None and gap.epsilon is not None and math.isfinite(gap.epsilon):
            at, number = gap.last * (epoch.seconds or 1), evidence.epochs.index(epoch)
            cost = models.get(epoch.digest, 0.0)
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
    if len({limit.budget for limit in limits}) > 1:  # and each epoch alone
        of = attrgetter("epoch")
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
        f"the budget of {most:g} for an epoch of {steps} steps" for most, steps in budgets
    )
    condition = ", where one is set" if any(limit.budget is None for limit in limits) else ""
    return Check("budget", "passed", f"{text} {words}{condition}.")


def _limits(evidence: Evidence, terms: Terms, digests: Mapping[str, Terms]) -> list[_Limit]:
    """Budget and horizon of every epoch; those of `terms` where its own are not known."""
    last = evidence.epochs[-1].seconds if evidence.epochs else None
    default = _Limit(terms.budget, terms.policy.horizon, terms.policy.horizon * (last or 1))
    limits, since, end = list[_Limit](), 0, 0
    for i, epoch in enumerate(evidence.epochs):
        epoch_terms, seconds = digests.get(epoch.digest), epoch.seconds or 1
        if epoch.first * seconds >= end:  # a budget of its own
            since = i
        end = max(end, (epoch.first + epoch.horizon) * seconds)
        if epoch_terms is None:
            limits.append(default._replace(since=since))
        else:
            steps = epoch_terms.policy.horizon
            limits.append(_Limit(epoch_terms.budget, steps, steps * seconds, since))
    return limits or [default]


def _over_budget(
    spendings: Sequence[_Spending], limits: Sequence[_Limit], lost: Collection[int]
) -> Check | None:
    """The first release that brings a horizon above the largest budget of the epochs in it."""
    times, epochs = (
        [spending.at for spending in spendings],
        [spending.epoch for spending in spendings],
    )
    sums = list(
        accumulate((Fraction(spending.epsilon) for spending in spendings), initial=Fraction())
    )
    for n, spending in enumerate(spendings):
        limit = limits[spending.epoch]
        start = max(
            bisect_right(times, spending.at - limit.seconds), bisect_left(epochs, limit.since)
        )
        limits_in_reach = limits[min(spendings[start].epoch, spending.epoch) : spending.epoch + 1]
        most = max(
            math.inf if epoch_limit.budget is None else epoch_limit.budget
            for epoch_limit in limits_in_reach
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
    return entry.step - entry.block["place"], entry.block.get("mark")


def releases_before(evidence: Evidence, epoch: RecordedEpoch) -> list[EarlierRelease]:
    """Releases of earlier epochs with steps of the same length, after the last of another length.

    Args:
        evidence: The zone's record.
        epoch: One of its epochs.

    Returns:
        Those that state what they are relative to, in order, with steps counted from the epoch.
    """
    releases: list[EarlierRelease] = []
    for earlier in evidence.epochs[: evidence.epochs.index(epoch)]:
        if earlier.seconds != epoch.seconds:
            releases = [] if earlier.entries else releases
            continue
        for entry in earlier.entries:
            if entry.source == "readings" and entry.base is not None:
                t = entry.step + earlier.first - epoch.first
                share, covariates = entry.model_share or 0.0, entry.covariates or {}
                figures = (entry.load_hat, entry.scale, entry.base, share, covariates)
                releases.append(EarlierRelease(t, *figures, entry.block))
    return releases


def _unbounded_release(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """A release without a finite loss under terms with a budget."""
    for epoch in evidence.epochs:
        terms = digests.get(epoch.digest)
        if terms is None or terms.budget is None:
            continue
        for entry in epoch.entries:
            if entry.source == "readings" and math.isinf(entry.epsilon):
                text = (
                    f"Record {entry.place} is a release without a finite loss, above the budget of"
                    f" {terms.budget:g} or any other."
                )
                return Check("budget", "failed", text, entry.place)
    return None


def _epoch_of(evidence: Evidence, gap: LostSteps) -> RecordedEpoch | None:
    """The last epoch that was recorded before a gap."""
    return next((epoch for epoch in reversed(evidence.epochs) if epoch.place < gap.place), None)


def _unbooked(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """A gap for which less is booked than its steps may have cost within the budget."""
    for gap in evidence.gaps:
        epoch = _epoch_of(evidence, gap)
        terms = digests.get(epoch.digest) if epoch else None
        if epoch is None or terms is None or gap.epsilon is None or math.isinf(gap.epsilon):
            continue
        numbers = range(gap.first - epoch.first + 1, gap.last - epoch.first + 2)
        steps = [t for t in numbers if t <= terms.policy.horizon]
        most = terms.first_state().scheduler.most
        by_block = {terms.policy.schedule.span(t): most(t) for t in steps}
        due = sum_up(by_block.values())
        before = [e.epsilon for e in counted(epoch.entries) if e.place < gap.place]
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


def _restart(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """An epoch of the same terms that begins inside the one before: the count starts again.

    A promise about one interval continues across epochs, a promise about one release counts none;
    without a budget nothing else is counted.
    """
    for before, after in zip(evidence.epochs, evidence.epochs[1:], strict=False):
        terms = digests.get(after.digest)
        if terms is not None and terms.secret != "trajectory" and terms.budget is None:
            continue
        inside = after.first < before.first + before.horizon
        same_terms = (before.digest, before.seconds) == (after.digest, after.seconds)
        if same_terms and inside and before.entries and after.entries:
            text = (
                f"Record {after.place} opens an epoch of the same terms at step {after.first},"
                f" inside the one before (to step {before.first + before.horizon - 1}): what was"
                " spent is no longer counted."
            )
            return Check("budget", "failed", text, after.place)
    return None
