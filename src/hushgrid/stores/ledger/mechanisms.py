"""What a zone released about its homes, as events that other accountants of privacy read.

Each event is what a block of steps, a learned model or a lost stretch can have lost about one home,
whatever anyone consumes: a pure epsilon. Randomised response between two answers is the worst
mechanism of that epsilon (Kairouz, Oh and Viswanath 2015), for neighbours of which one replaces the
other, so it stands for each of them: `RandomizedResponseDpEvent` of dp_accounting. Events are
listed one by one: version 0.6 of its `PLDAccountant` counts a `SelfComposedDpEvent` of randomised
response once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Spent
from hushgrid.accounting.composition import booked
from hushgrid.stores.ledger.entries import (
    GapRecord,
    ReleaseRecord,
    ResumeRecord,
    first_step,
    last_step,
)
from hushgrid.stores.ledger.state import LedgerState

FORMAT = "hushgrid-mechanisms/1"
NEIGHBOURS = "REPLACE_ONE"  # the neighbouring relation of dp_accounting that the events are for
MODULE = "dp_accounting.dp_event"

What = Literal["block", "model", "lost"]


class PrivacyEvent(NamedTuple):
    """One thing that was computed from readings of the homes.

    Attributes:
        record: The number of its record.
        what: A "block" of steps with noise of its own, a learned "model", or steps "lost" in a gap.
        first: The first second whose readings may have entered it [UTC s].
        last: The last such second [UTC s].
        epsilon: The most that it loses about any one home [nats]; infinite: no bound.
    """

    record: int
    what: What
    first: int
    last: int
    epsilon: float

    @property
    def event(self) -> dict[str, Any]:
        """The fields of its event of dp_accounting, as `DpEvent.to_named_tuple` names them."""
        share = _noise_parameter(self.epsilon)
        if share <= 0:
            return {"module_name": MODULE, "class_name": "NonPrivateDpEvent"}
        return {
            "module_name": MODULE,
            "class_name": "RandomizedResponseDpEvent",
            "noise_parameter": share,
            "num_buckets": 2,
        }


def _noise_parameter(epsilon: float) -> float:
    """How often randomised response of this loss answers at random; rounded down, so never less.

    >>> _noise_parameter(0.0) < 1, round(_noise_parameter(1.0), 6), _noise_parameter(math.inf)
    (True, 0.537883, 0.0)
    """
    less = math.exp(-epsilon)
    return max(math.nextafter(2 * less / (1 + less), 0.0), 0.0)


def mechanisms(state: LedgerState) -> tuple[PrivacyEvent, ...]:
    """What a zone computed from readings, in the order of time.

    Args:
        state: The zone's ledger. Forecasts and fallbacks, which use no reading, are left out.

    Returns:
        A mechanism for each block of steps, each charge of models and each gap; one that is not
        booked yet has no bound.
    """
    blocks = _blocks(state)
    models = (
        PrivacyEvent(charge.seq, "model", charge.first, charge.last, charge.epsilon)
        for charge in state.charges
    )
    gaps: list[tuple[GapRecord | ResumeRecord, float]] = [(r, r.epsilon) for r in state.booked]
    if state.gap is not None:
        gaps.append((state.gap, math.inf))
    lost = [_lost(gap, state.terms_of(gap).seconds, epsilon) for gap, epsilon in gaps]
    return tuple(sorted((*blocks, *models, *lost), key=lambda mechanism: mechanism[2:4]))


def _lost(gap: GapRecord | ResumeRecord, seconds: int, epsilon: float) -> PrivacyEvent:
    return PrivacyEvent(gap.seq, "lost", gap.first * seconds, (gap.last + 1) * seconds - 1, epsilon)


def _blocks(state: LedgerState) -> Iterator[PrivacyEvent]:
    releases = [release for release in state.releases if release.source == "readings"]
    for release, loss in zip(releases, booked(releases, loss=_loss), strict=True):
        if loss > 0:  # of a block all is booked with its first release
            seconds = state.terms_of(release).seconds
            first, end = first_step(release) * seconds, (last_step(release) + 1) * seconds
            if (block := _own_block(release)) is not None:
                first = min(first, int(block[0]))
            yield PrivacyEvent(release.seq, "block", first, end - 1, loss)


def _loss(release: ReleaseRecord) -> float:
    """What a release can lose about any home, whatever anyone consumes, and as it was booked."""
    block = _own_block(release)
    return float(max(release.epsilon, release.epsilon_any, 0.0 if block is None else block[2]))


def _own_block(release: ReleaseRecord) -> tuple[float, ...] | None:
    """First and last second and loss of a release's block, where an account of windows has it."""
    _, blocks = release.windows or ((), ())
    return blocks[-1] if blocks else None


def loss_of(events: Sequence[PrivacyEvent]) -> float:
    """The sum of all that was lost about any one home, over the life of the ledger.

    Args:
        events: The mechanisms.

    Returns:
        Epsilon [nats], rounded up.
    """
    return Spent().add(*(event.epsilon for event in events)).total


def spent_in(events: Sequence[PrivacyEvent], seconds: int) -> float:
    """The most that mechanisms lost which used readings of any one window of time.

    Args:
        events: The mechanisms.
        seconds: Length of the window [s].

    Returns:
        Epsilon [nats], rounded up; 0 without a mechanism.
    """
    if not events:
        return 0.0
    losses = np.array([event.epsilon for event in events])
    if not np.isfinite(losses).all():
        return math.inf
    firsts = np.array([event.first for event in events])
    lasts = np.array([event.last for event in events])
    # a window that holds most begins with the last second of some mechanism's readings
    opens = np.unique(lasts)
    by_last = np.argsort(lasts, kind="stable")
    begun = np.concatenate(([0.0], np.cumsum(losses[np.argsort(firsts, kind="stable")])))
    ended = np.concatenate(([0.0], np.cumsum(losses[by_last])))
    sums = (
        begun[np.searchsorted(np.sort(firsts), opens + seconds - 1, side="right")]
        - ended[np.searchsorted(lasts[by_last], opens, side="left")]
    )
    at = opens[int(sums.argmax())]
    return loss_of([e for e in events if e.last >= at and e.first <= at + seconds - 1])


def exported(state: LedgerState, windows: Sequence[int]) -> dict[str, Any]:
    """The mechanisms of a zone under public keys.

    Args:
        state: The zone's ledger.
        windows: Lengths of windows [s] to state the largest sum of; those of its promises are
            stated as well.

    Returns:
        Values for JSON; an infinite loss is None.
    """
    events = mechanisms(state)
    promised = {terms.window[0] for terms in state.terms_records if terms.window is not None}
    return {
        "mode": state.mode,
        "records": state.head.seq,
        "head": state.head.digest,
        "unit": "one home",
        "neighbouring_relation": NEIGHBOURS,
        "epsilon": _finite(loss_of(events)),
        "windows": [
            {"window_s": seconds, "epsilon": _finite(spent_in(events, seconds))}
            for seconds in sorted({*windows, *promised})
        ],
        "mechanisms": [_row(event) for event in events],
    }


def _row(event: PrivacyEvent) -> Mapping[str, Any]:
    return {**event._asdict(), "epsilon": _finite(event.epsilon), "event": event.event}


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
