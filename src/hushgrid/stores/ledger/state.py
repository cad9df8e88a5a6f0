"""The state that a zone's records fold to, and what houses that move say of two zones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hushgrid._numbers import Spent
from hushgrid.accounting.composition import booked
from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.entries import (
    ChargeRecord,
    ClosedRecord,
    GapRecord,
    PricesRecord,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
    last_step,
)
from hushgrid.stores.ledger.records import Head
from hushgrid.stores.ledger.releases import Releases, place_of, until
from hushgrid.stores.ledger.rules import AccountRows, WindowRows
from hushgrid.stores.ledger.terms import TariffRecord, TermsRecord


class RecordedAccount(NamedTuple):
    """The newest account on record.

    Attributes:
        rows: Its figures, as in `ReleaseRecord`.
        step: The zone's step that they are about, in the terms' length of steps.
        terms: The terms of its record.
        seq: The number of its record.
    """

    rows: AccountRows
    step: int
    terms: TermsRecord
    seq: int

    @property
    def promise(self) -> float | None:
        """What was promised about the steps of its block."""
        return self.terms.interval

    @property
    def end(self) -> int:
        """When its step ends [UTC s]."""
        return (self.step + 1) * self.terms.seconds


class RecordedWindows(NamedTuple):
    """The newest account of promises about windows on record.

    Attributes:
        rows: The account, as in `ReleaseRecord`.
        seq: The number of its record.
        end: When its last block ends [UTC s].
    """

    rows: WindowRows
    seq: int
    end: int


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state that a zone's records fold to; nothing in it is secret.

    Attributes:
        zone: The zone.
        mode: Whether the releases are real or simulated.
        key: Public key of all signatures (hex).
        head: The last record.
        signature: Its signature.
        terms: The present terms.
        terms_records: All terms, in order.
        releases: All releases, in order.
        transfers: All transfers of houses, in order.
        charged: What every house spent on models, by their digests.
        charges: The same in the order of their records.
        gap: The gap that is not booked yet.
        gaps: All gaps, in order.
        booked: The records that ended gaps, in order.
        closed: The record by which the ledger was closed; None while it is open.
        lists: All lists of prices, in order.
        tariffs: All tariffs, in order.
    """

    zone: str
    mode: str
    key: str
    head: Head
    signature: str
    terms: TermsRecord | None
    terms_records: tuple[TermsRecord, ...]
    releases: Sequence[ReleaseRecord]
    transfers: tuple[TransferRecord, ...]
    charged: Mapping[str, float] = field(default_factory=dict)
    charges: tuple[ChargeRecord, ...] = ()
    gap: GapRecord | None = None  # the one that is not booked yet
    gaps: tuple[GapRecord, ...] = ()
    booked: tuple[ResumeRecord, ...] = ()
    closed: ClosedRecord | None = None
    lists: tuple[PricesRecord, ...] = ()
    tariffs: tuple[TariffRecord, ...] = ()

    @property
    def last_t(self) -> int:
        """The last step published; 0 before any."""
        return self.releases[-1].t if self.releases else 0

    @property
    def current(self) -> Sequence[ReleaseRecord]:
        """The releases under the present terms, in order."""
        return self.current_from(0)

    @property
    def newest(self) -> ReleaseRecord | None:
        """The last release under the present terms; None before any."""
        last = self.releases[-1] if self.releases else None
        since = 0 if self.terms is None else self.terms.seq
        return None if last is None or last.seq < since else last

    def current_from(self, t: int) -> Sequence[ReleaseRecord]:
        """The releases under the present terms from a step on, in order."""
        if self.terms is None:
            return ()
        after = until(self.releases, self.terms.seq)
        return self.releases[place_of(self.releases, t, after) :]

    def terms_of(self, record: ReleaseRecord | GapRecord | ResumeRecord) -> TermsRecord:
        """The terms of a record: the last that were recorded before it.

        Steps of different length are numbered differently, so numbers are compared under the same
        terms only.
        """
        after = bisect_left(self.terms_records, record.seq, key=lambda terms: terms.seq)
        if not after:
            raise LedgerError(f"record {record.seq} of zone {self.zone!r} is under no terms.")
        return self.terms_records[after - 1]

    @property
    def tariff(self) -> TariffRecord | None:
        """The newest tariff; None before any."""
        return self.tariffs[-1] if self.tariffs else None

    def tariff_before(self, seq: int) -> TariffRecord | None:
        """The tariff of a record: the last that was recorded before number `seq`; None: none."""
        before = bisect_left(self.tariffs, seq, key=lambda tariff: tariff.seq)
        return self.tariffs[before - 1] if before else None

    @property
    def reach_step(self) -> int:
        """The last step under the present terms that is published or lost in a gap.

        The step before their first where there is none.
        """
        terms = self.terms
        if terms is None:
            return 0
        lost = [gap.last for gap in self.gaps if gap.seq > terms.seq]
        last = terms.first - 1 if self.newest is None else self.newest.t
        return max([last, *lost])

    @property
    def reach(self) -> int:
        """End of all that is published or lost in a gap [UTC s]; 0 before any."""
        ends = [last.start + self.terms_of(last).seconds for last in self.releases[-1:]]
        ends += [(gap.last + 1) * self.terms_of(gap).seconds for gap in self.gaps]
        return max(ends, default=0)

    @property
    def booked_now(self) -> tuple[ResumeRecord, ...]:
        """The gaps under the present terms that are booked."""
        if self.terms is None:
            return ()
        return tuple(resume for resume in self.booked if resume.seq > self.terms.seq)

    @property
    def moved(self) -> Mapping[str, TransferRecord]:
        """The last transfer of each house that ever moved."""
        return {transfer.house: transfer for transfer in self.transfers}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many releases came from each source."""
        return dict(Counter(release.source for release in self.releases))

    @property
    def epsilon(self) -> float:
        """The sum of what all releases, charges and booked gaps may lose at most, rounded up.

        Infinite where a release has no epsilon of its own.
        """
        releases = Spent().add(
            *booked(release for release in self.releases if release.source == "readings")
        )
        gaps = (resume.epsilon for resume in self.booked)
        return releases.add(*self.charged.values(), *gaps).total

    @property
    def latest_account(self) -> RecordedAccount | None:
        """The newest account on record; None before any."""
        opened = Releases(self.releases).newest("account")
        lost = next(
            (resume for resume in reversed(self.booked) if resume.account is not None), None
        )
        newer = lost is not None and (opened is None or opened.seq < lost.seq)
        if newer and lost is not None and lost.account is not None and lost.until is not None:
            return RecordedAccount(lost.account, lost.until, self.terms_of(lost), lost.seq)
        if opened is None or opened.account is None:
            return None
        last = last_step(opened)
        return RecordedAccount(opened.account, last, self.terms_of(opened), opened.seq)

    @property
    def latest_windows(self) -> RecordedWindows | None:
        """The newest account of promises about windows; None before any."""
        booked = next(
            (resume for resume in reversed(self.booked) if resume.windows is not None), None
        )
        newest = (Releases(self.releases).newest("windows"), booked)
        last = max(
            (record for record in newest if record is not None), key=lambda r: r.seq, default=None
        )
        if last is None or last.windows is None:
            return None
        if isinstance(last, ResumeRecord):
            _, blocks = last.windows
            end = max((int(block[1]) + 1 for block in blocks), default=0)
        else:
            end = (last_step(last) + 1) * self.terms_of(last).seconds
        return RecordedWindows(last.windows, last.seq, end)

    @property
    def prices(self) -> list[ReleaseRecord]:
        """The price of each interval, in order: that of a list, else of the newest release."""
        prices = {release.applies_start: release for release in self.releases}
        for record in self.lists:
            prices.update((price.applies_start, price) for price in record.prices())
        return [prices[start] for start in sorted(prices)]

    def at(self, t: int) -> ReleaseRecord | None:
        """The release of step t, to be published again as it is."""
        return next((release for release in reversed(self.releases) if release.t == t), None)


class Misfit(NamedTuple):
    """A record that contradicts another zone's ledger.

    Attributes:
        zone: The zone of the record.
        seq: Its number.
        reason: What is wrong, in words.
    """

    zone: str
    seq: int
    reason: str


def unmatched(standings: Mapping[str, LedgerState]) -> Misfit | None:
    """The first house that came in with another account than it left with, or that never left.

    Only the given zones are compared: a house may come from anywhere else. Where the record by
    which it left was lost with the end of its zone's ledger, that zone has a gap and, after it,
    another transfer of the house.

    Args:
        standings: Ledger state of each zone.

    Returns:
        The record at fault; None where all transfers match.
    """
    departures = {
        out.head: (zone, out) for zone, s in standings.items() for out in _moves(s, "out")
    }
    used_heads: set[str] = set()
    for zone, standing in standings.items():
        for arrival in _moves(standing, "in"):
            if arrival.other not in standings:
                continue
            source, out = departures.get(arrival.out or "", (None, None))
            if out is None and _has_moved_since_gap(standings[arrival.other], arrival.house):
                continue
            if out is None or (source, out.other, out.house) != (
                arrival.other,
                zone,
                arrival.house,
            ):
                reason = (
                    f"zone {arrival.other!r} has no record by which the house left; if it was lost,"
                    " book the gap and run the same hushgrid ledger transfer again"
                )
            elif (arrival.account, arrival.windows, arrival.last) != (
                out.account,
                out.windows,
                out.last,
            ):
                reason = (
                    f"the house came from {arrival.other!r} with another account than it had there"
                )
            elif out.head in used_heads:
                reason = f"the house left {arrival.other!r} once and came in twice"
            else:
                used_heads.add(out.head)
                continue
            return Misfit(zone, arrival.seq, reason)
    return None


def _has_moved_since_gap(standing: LedgerState, house: str) -> bool:
    """Whether a house moved after a gap in the ledger of its zone."""
    first = min((gap.seq for gap in standing.gaps), default=math.inf)
    return any(move.house == house and move.seq > first for move in standing.transfers)


def _moves(standing: LedgerState, direction: str) -> list[TransferRecord]:
    return [transfer for transfer in standing.transfers if transfer.direction == direction]
