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
        used = [entry for entry in epoch.entries if entry.source == "readings"]
        cost = digests[epoch.digest].charged if epoch.digest in digests else 0.0
        if not used or cost <= 0:
            continue
        before = [epsilon for place, epsilon in evidence.charges if place < used[0].place]
        if evidence.kind == "ledger" and max(before, default=0.0) < cost:
            text = (
                f"Record {used[0].place} uses models that cost every house {cost:g}, which no"
                " earlier record charges."
            )
            return [Check("budget", "failed", text, used[0].place)]
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
    known = digests or {}
    models = {digest: one.charged for digest, one in known.items()}
    spent = [
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
    for one in evidence.gaps:
        epoch = _epoch_of(evidence, one)
        if epoch is not None and one.epsilon is not None and math.isfinite(one.epsilon):
            at, number = one.last * (epoch.seconds or 1), evidence.epochs.index(epoch)
            cost = models.get(epoch.digest, 0.0)
            spent.append(_Spending(at, one.epsilon, one.place, cost, number))
    spent.sort()
    if (restart := _restart(evidence, known)) is not None:
        return restart
    if (unbooked := _unbooked(evidence, known)) is not None:
        return unbooked
    if (endless := _unbounded_release(evidence, known)) is not None:
        return endless
    together = Spent().add(*(one.epsilon for one in spent))
    total = f"{together.total:.6g}"
    if any(math.isinf(e.epsilon) for e in evidence.entries if e.source == "readings") or any(
        one.epsilon is not None and math.isinf(one.epsilon) for one in evidence.gaps
    ):
        total = f"no bound (those with an epsilon of their own {total})"
    text = f"All releases together state {total}"
    if terms is None:
        return Check("budget", "not_checked", f"{text}; needs --config.")
    limits = _limits(evidence, terms, known)
    set_ = ((one.budget, one.horizon) for one in limits if one.budget is not None)
    named = list(dict.fromkeys(set_))
    if not named:
        return Check("budget", "passed", f"{text}; no budget is set.")
    lost = {one.place for one in evidence.gaps}  # the most they can have cost: perhaps above it
    counts = [spent]
    if len({one.budget for one in limits}) > 1:  # and each epoch alone
        of = attrgetter("epoch")
        counts += [list(own) for _, own in groupby(sorted(spent, key=of), key=of)]
    for some in counts:
        if (fault := _over_budget(some, limits, lost)) is not None:
            return fault
    text += ", within"
    if lost and any(together.exceeds(most) for most, _ in named):
        text = (
            f"All releases and lost steps together are booked with {total}; no release was made"
            " beyond"
        )
    allowed = " and ".join(
        f"the budget of {most:g} for an epoch of {steps} steps" for most, steps in named
    )
    some_set = ", where one is set" if any(one.budget is None for one in limits) else ""
    return Check("budget", "passed", f"{text} {allowed}{some_set}.")


def _limits(evidence: Evidence, terms: Terms, known: Mapping[str, Terms]) -> list[_Limit]:
    """Budget and horizon of every epoch; those of `terms` where its own are not known."""
    last = evidence.epochs[-1].seconds if evidence.epochs else None
    other = _Limit(terms.budget, terms.policy.horizon, terms.policy.horizon * (last or 1))
    found, since, end = list[_Limit](), 0, 0
    for i, epoch in enumerate(evidence.epochs):
        own, seconds = known.get(epoch.digest), epoch.seconds or 1
        if epoch.first * seconds >= end:  # a budget of its own
            since = i
        end = max(end, (epoch.first + epoch.horizon) * seconds)
        if own is None:
            found.append(other._replace(since=since))
        else:
            steps = own.policy.horizon
            found.append(_Limit(own.budget, steps, steps * seconds, since))
    return found or [other]


def _over_budget(
    spent: Sequence[_Spending], limits: Sequence[_Limit], lost: Collection[int]
) -> Check | None:
    """The first release that brings a horizon above the largest budget of the epochs in it."""
    times, epochs = [one.at for one in spent], [one.epoch for one in spent]
    sums = list(accumulate((Fraction(one.epsilon) for one in spent), initial=Fraction()))
    for n, one in enumerate(spent):
        limit = limits[one.epoch]
        start = max(bisect_right(times, one.at - limit.seconds), bisect_left(epochs, limit.since))
        reached = limits[min(spent[start].epoch, one.epoch) : one.epoch + 1]
        most = max(math.inf if each.budget is None else each.budget for each in reached)
        running = sums[n + 1] - sums[start]
        if one.place not in lost and Spent(running).add(one.models).exceeds(most):
            models = f" and {one.models:.6g} for models" if one.models else ""
            text = (
                f"Record {one.place} brings the spending of {n - start + 1} releases within one"
                f" horizon to {float(running):.6g}{models}, above the budget of {most:g}: the"
                " count began anew."
            )
            return Check("budget", "failed", text, one.place)
    return None


def counted(entries: Iterable[RecordedRelease]) -> Iterator[RecordedRelease]:
    """Releases from readings that add their loss to a sum: of a block of steps the first alone.

    The last alone where entries are given in reverse.
    """
    last = None
    for entry in entries:
        if entry.source != "readings":
            continue
        own = _noise_of(entry)
        if own != last:
            yield entry
        last = own


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
    found: list[EarlierRelease] = []
    for other in evidence.epochs[: evidence.epochs.index(epoch)]:
        if other.seconds != epoch.seconds:
            found = [] if other.entries else found
            continue
        for one in other.entries:
            if one.source == "readings" and one.base is not None:
                t = one.step + other.first - epoch.first
                share, known = one.model_share or 0.0, one.covariates or {}
                seen = (one.load_hat, one.scale, one.base, share, known)
                found.append(EarlierRelease(t, *seen, one.block))
    return found


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
    return next((one for one in reversed(evidence.epochs) if one.place < gap.place), None)


def _unbooked(evidence: Evidence, digests: Mapping[str, Terms]) -> Check | None:
    """A gap for which less is booked than its steps may have cost within the budget."""
    for one in evidence.gaps:
        epoch = _epoch_of(evidence, one)
        terms = digests.get(epoch.digest) if epoch else None
        if epoch is None or terms is None or one.epsilon is None or math.isinf(one.epsilon):
            continue
        own = range(one.first - epoch.first + 1, one.last - epoch.first + 2)
        steps = [t for t in own if t <= terms.policy.horizon]
        most = terms.first_state().scheduler.most
        by_block = {terms.policy.schedule.span(t): most(t) for t in steps}
        due = sum_up(by_block.values())
        before = [e.epsilon for e in counted(epoch.entries) if e.place < one.place]
        filled = terms.budget is not None and Spent().add(
            *before, one.epsilon, terms.charged
        ).exceeds(terms.budget * (1 - _CLOSE))
        if one.epsilon < due * (1 - _CLOSE) and not filled:
            text = (
                f"Record {one.place} books {one.epsilon:.6g} for steps {one.first} to {one.last},"
                f" which may have cost {due:.6g}."
            )
            return Check("budget", "failed", text, one.place)
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
        same = (before.digest, before.seconds) == (after.digest, after.seconds)
        if same and inside and before.entries and after.entries:
            text = (
                f"Record {after.place} opens an epoch of the same terms at step {after.first},"
                f" inside the one before (to step {before.first + before.horizon - 1}): what was"
                " spent is no longer counted."
            )
            return Check("budget", "failed", text, after.place)
    return None
