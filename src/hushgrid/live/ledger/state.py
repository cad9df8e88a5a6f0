"""Where a zone stands: what the fold over its records leaves. Nothing in it is secret."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.records import (
    ChargeRecord,
    EpochRecord,
    GapRecord,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
    schedule_digest,
)
from hushgrid.sums import Spent


class Head(NamedTuple):
    """A record as others may know it: its number and its digest (hex)."""

    seq: int
    digest: str


@dataclass(frozen=True, slots=True)
class LedgerState:
    """All that a zone's ledger says, folded: what to resume from.

    `schedule` is the digest committed to in the present epoch, if one was. `spent` says what each
    house that ever moved had spent (epsilon, delta) when it last did. `charged`: what everybody
    spent on models, by their digests; `charges`: the same in the order of their records.
    """

    zone: str
    mode: str
    key: str
    head: Head
    signature: str
    epoch: EpochRecord | None
    schedule: str | None
    epochs: tuple[EpochRecord, ...]
    releases: tuple[ReleaseRecord, ...]
    transfers: tuple[TransferRecord, ...]
    spent: Mapping[str, tuple[float, float]]
    charged: Mapping[str, float] = field(default_factory=dict)
    charges: tuple[ChargeRecord, ...] = ()
    gap: GapRecord | None = None  # the one that is not booked yet
    gaps: tuple[GapRecord, ...] = ()
    booked: tuple[ResumeRecord, ...] = ()

    @property
    def last_t(self) -> int:
        """The last step published; 0 before any."""
        return self.releases[-1].t if self.releases else 0

    @property
    def current(self) -> tuple[ReleaseRecord, ...]:
        """The releases of the present epoch, in order."""
        if self.epoch is None:
            return ()
        after = bisect_left(self.releases, self.epoch.first, key=lambda one: one.release.t)
        return self.releases[after:]

    def epoch_of(self, one: ReleaseRecord) -> EpochRecord:
        """The epoch a release was published in."""
        before = [epoch for epoch in self.epochs if epoch.first <= one.t]
        same = [epoch for epoch in before if epoch.digest == one.digest]
        if not before:
            raise LedgerError(f"step {one.t} of zone {self.zone!r} is in no epoch.")
        return (same or before)[-1]

    @property
    def booked_now(self) -> tuple[ResumeRecord, ...]:
        """The gaps of the present epoch that are booked."""
        if self.epoch is None:
            return ()
        return tuple(one for one in self.booked if one.first >= self.epoch.first)

    @property
    def moved(self) -> Mapping[str, TransferRecord]:
        """Of each house that ever moved, how it last did."""
        return {one.house: one for one in self.transfers}

    @property
    def carried(self) -> float:
        """The most that a house brought along which is here: where the epoch's spending starts.

        It counts in every epoch that begins within the longest horizon [s] on record after the
        house came. A transfer has no time, so the house counts as come when the first release
        after it was out.
        """
        return self._brought(self.transfers)

    def _brought(self, transfers: Sequence[TransferRecord]) -> float:
        moved = {one.house: one for one in transfers}.values()
        here = [one for one in moved if one.direction == "in" and self._still_counts(one)]
        return max((one.epsilon for one in here), default=0.0)

    def _still_counts(self, came: TransferRecord) -> bool:
        after = next((one for one in self.releases if one.seq > came.seq), None)
        if after is None or self.epoch is None:
            return True
        until = after.start + self.epoch_of(after).seconds + self.longest
        return self.epoch.first * self.epoch.seconds < until

    @property
    def longest(self) -> int:
        """The longest horizon of any epoch so far [s]: no budget counts over more time."""
        return max((one.horizon * one.seconds for one in self.epochs), default=0)

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates published in the present epoch, in order, whatever their source."""
        return tuple(one.rate for one in self.current)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many releases came from each source."""
        return dict(Counter(one.source for one in self.releases))

    @property
    def epsilon(self) -> float:
        """The sum of what all releases, charges and booked gaps may lose at most, rounded up.

        Infinite where a release has no epsilon of its own.
        """
        releases = Spent().add(*(one.epsilon for one in self.releases))
        gaps = (one.epsilon for one in self.booked)
        return releases.add(*self.charged.values(), *gaps).total

    def at(self, t: int) -> ReleaseRecord | None:
        """What was published for step t, to be shown again as it is."""
        return next((one for one in reversed(self.releases) if one.t == t), None)

    def account(self) -> dict[str, Any]:
        """The present epoch's releases from readings as `accounting.compose.Account.resume` asks.

        Its steps have gaps where something else than readings was published.
        """
        if self.epoch is None:
            raise LedgerError(
                f"the ledger of zone {self.zone!r} has no epoch; append one before resuming."
            )
        entries = [
            {"t": self.epoch.step(one.t), "scale": one.scale, "rate": one.rate, "look": one.look}
            for one in self.current
            if one.source == "readings"
        ]
        return {"zone": self.zone, "digest": self.epoch.digest, "entries": entries}

    def check_schedule(self, scales: Sequence[float] = ()) -> None:
        """Refuse scales [Wh] that are not those committed to, or that releases did not keep to."""
        if self.epoch is None or self.schedule is None:
            raise LedgerError(
                f"the ledger of zone {self.zone!r} has no schedule in its present epoch;"
                " append one before the first release."
            )
        found = schedule_digest(self.epoch.digest, scales)
        if found != self.schedule:
            raise LedgerError(
                f"the schedule of zone {self.zone!r} has digest {found[:12]} but"
                f" {self.schedule[:12]} was committed to; open a new epoch when scales change."
            )
        for one in self.current if scales else ():
            step = self.epoch.step(one.t)
            if one.source == "readings" and (
                step > len(scales) or one.scale != float(scales[step - 1])
            ):
                raise LedgerError(
                    f"step {one.t} of zone {self.zone!r} was published at scale {one.scale:g} Wh,"
                    " not the one committed to; open a new epoch and find out why."
                )


class Misfit(NamedTuple):
    """A record that contradicts another zone's ledger."""

    zone: str
    seq: int
    reason: str


def unmatched(standings: Mapping[str, LedgerState]) -> Misfit | None:
    """The first house that came in with less than it had spent, or that never left.

    Only zones that are given are looked at: a house may come from anywhere else.
    """
    left = {one.head: (zone, one) for zone, s in standings.items() for one in _moves(s, "out")}
    taken: set[str] = set()
    for zone, standing in standings.items():
        for one in _moves(standing, "in"):
            if one.other not in standings:
                continue
            source, out = left.get(one.out or "", (None, None))
            if out is None or (source, out.other, out.house) != (one.other, zone, one.house):
                why = f"zone {one.other!r} has no record by which the house left"
            elif one.epsilon < out.epsilon or one.delta < out.delta:
                why = f"the house came from {one.other!r} with less spent than it had there"
            elif out.head in taken:
                why = f"the house left {one.other!r} once and came in twice"
            else:
                taken.add(out.head)
                continue
            return Misfit(zone, one.seq, why)
    return None


def _moves(standing: LedgerState, direction: str) -> list[TransferRecord]:
    return [one for one in standing.transfers if one.direction == direction]
