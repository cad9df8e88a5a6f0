"""What records of a ledger say, one type for each kind.

Terms and tariffs are in `terms.py`. A release holds no load, no optimal rate and no reading. It is
the mechanism's `Release`, whose fields are declared there alone. Everything here is pure and
public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from hushgrid._numbers import (
    HASH,
    LOSS,
    TEXT,
    TRUTH,
    Rule,
    from_json,
    one_of,
    optional,
    or_null,
    rules_of,
    to_json,
    whole_number,
)
from hushgrid.errors import LedgerError
from hushgrid.mechanism.release import HasRelease, Mode, Release, renumbered
from hushgrid.stores.ledger.entry import LedgerEntry
from hushgrid.stores.ledger.records import Body
from hushgrid.stores.ledger.rules import (
    COUNTED,
    FREE,
    HEADS,
    RATES,
    ROWS,
    WINDOWS,
    AccountRows,
    WindowRows,
)
from hushgrid.stores.ledger.terms import TariffRecord, TermsRecord

Source = Literal["readings", "forecast", "fallback"]
# of the prices of a list: the forecast at the time of publication; the list before, scaled to the
# forecast, where the day had begun; no usable model
ListSource = Literal["ahead", "carried", "fallback"]
Direction = Literal["in", "out"]
# witness: a record known here is missing; meters: a closed interval has no release;
# failover: another database server answers than the one last written to; fork: two histories
Cause = Literal["witness", "meters", "failover", "fork"]


@dataclass(frozen=True, slots=True)
class GenesisRecord(LedgerEntry):
    """The first record of a chain.

    Attributes:
        mode: Whether the releases are real or simulated.
        key: Public key of all signatures (hex).
        created_at: [UTC s]
        format: The ledger's format, 1.
    """

    kind = "genesis"
    mode: Annotated[Mode, one_of(Mode)]
    key: Annotated[str, HASH]
    created_at: Annotated[int, whole_number(0)]
    format: Annotated[int, whole_number(1)] = 1


@dataclass(frozen=True, slots=True)
class ReleaseRecord(HasRelease, LedgerEntry):
    """A release as the ledger keeps it; its fields can be read here as well: `record.rate`.

    Attributes:
        release: What is published; its steps are the zone's. A forecast or a
            fallback has no load_hat, costs nothing, and a fallback has no digest either.
        source: What it is made from.
        start: When its interval began [UTC s].
        applies_start: When its rate begins [UTC s].
        published_at: [UTC s]
        counts: Public counts, see `COUNTS`.
        account: Under an interval promise, in the first release of a block of steps: for each
            model and chain what the block loses about its houses, and the account after the block,
            about its last step.
        windows: Where a promise about windows is in force, in the same releases: its account.
        seq: The number of its record; head: the record's digest; signature: the record's.
    """

    kind = "release"
    release: Release
    source: Annotated[Source | ListSource, one_of(Source)]
    start: Annotated[int, whole_number(0)]
    applies_start: Annotated[int, whole_number(0)]
    published_at: Annotated[int, whole_number(0)]
    counts: Annotated[Mapping[str, int], COUNTED]
    account: Annotated[AccountRows | None, optional(ROWS)] = None
    windows: Annotated[WindowRows | None, optional(WINDOWS)] = None
    seq: int = 0
    head: str = ""
    signature: str = ""

    @classmethod
    def of(
        cls,
        release: Release,
        source: Source | ListSource = "readings",
        *,
        mode: Mode,
        start: int,
        applies_start: int,
        published_at: float,
        first: int = 1,
        applies_from: int | None = None,
        counts: Mapping[str, int] | None = None,
        account: AccountRows | None = None,
        windows: WindowRows | None = None,
    ) -> Self:
        """A release of the interval that began at `start` [UTC s].

        Args:
            release: The mechanism's, which counts its steps from 1.
            source: What it is made from.
            mode: Every release of a simulation is marked as simulated.
            start: [UTC s]
            applies_start: When its rate begins [UTC s].
            published_at: [UTC s]
            first: The zone's step that is the mechanism's step 1.
            applies_from: The zone's step that its rate begins with, where the release does not say.
            counts: Public counts.
            account: See the class.
            windows: See the class.
        """
        due = release.applies_from + first - 1 if applies_from is None else applies_from
        simulated = release.simulated or mode == "simulation"
        zone_release = replace(
            renumbered(release, first - 1), applies_from=due, simulated=simulated
        )
        when = (start, applies_start, math.floor(published_at))
        return cls(zone_release, source, *when, dict(counts or {}), account, windows)

    @classmethod
    def stand_in(
        cls,
        zone: str,
        source: Literal["forecast"] | ListSource,
        *,
        t: int,
        rate: float,
        digest: str | None = None,
        estimate: float | None = None,
        feed_in: float | None = None,
        offset: int | None = None,
        **when: Any,
    ) -> Self:
        """A release that no reading went into and that costs nothing.

        A forecast (the account admits no block, or no meter reported) names its terms; a fallback
        (no usable model) none.

        Args:
            zone: The zone.
            source: What it is made from.
            t: The zone's step.
            rate: [currency/kWh]
            digest: Of its terms.
            estimate: The load expected [Wh].
            feed_in: [currency/kWh], where the tariff has a feed-in rate.
            offset: Sum of all export limits [Wh], which is in `estimate`, where houses export.
            **when: The other arguments of `of`.
        """
        figures = {"load_hat": None, "rate": float(rate), "estimate": estimate, "simulated": False}
        figures |= {"feed_in": feed_in, "offset": offset}
        release = Release.free(
            zone=zone, t=t, applies_from=t + 1, rule=source, digest=digest, **figures
        )
        return cls.of(release, source, **when)

    @classmethod
    def rules(cls) -> Mapping[str, Rule]:
        """Rules of the release, which may lack load and digest, and of the record's own fields."""
        release_rules = rules_of(Release)
        null = {name: or_null(release_rules[name]) for name in ("load_hat", "digest")}
        all_rules = {**release_rules, **null, **rules_of(cls)}
        return dict(sorted(all_rules.items(), key=lambda item: item[1].optional))

    @classmethod
    def _values(cls, body: Body) -> dict[str, Any]:
        release_fields, source = from_json(Release, body), body["source"]
        rules = rules_of(Release) if source != "readings" else {}
        free = {*FREE} if source == "forecast" else {"feed_in"}
        later = [
            name
            for name, rule in rules.items()
            if rule.optional and name in {*release_fields} - free
        ]
        if later:
            raise LedgerError(
                f"step {body['t']} is a {source} but has {later[0]}; only what comes from readings"
                " has it."
            )
        return {"release": Release(**release_fields), **from_json(cls, body)}

    def to_body(self) -> dict[str, Any]:
        """The fields of release and record; without readings no optional ones but `FREE`."""
        rules = rules_of(Release)
        from_readings = self.source == "readings"
        values = to_json(self.release)
        release_fields = {
            name: values[name]
            for name in values
            if from_readings or name in FREE or not rules[name].optional
        }
        return {**release_fields, **to_json(self)}

    def in_week(self, first: int) -> Release:
        """The mechanism's release, its steps counted from the zone's step `first`, its step 1.

        Raises:
            LedgerError: It is not from readings.
        """
        release = self.release
        if self.source != "readings":
            raise LedgerError(
                f"step {release.t} of zone {release.zone!r} was published from a {self.source};"
                " only a release from readings is the mechanism's."
            )
        return renumbered(release, 1 - first)


@dataclass(frozen=True, slots=True)
class PricesRecord(LedgerEntry):
    """A list of prices, published before the first of them begins; they hold whatever happens.

    It is made of public figures alone and costs nothing.

    Attributes:
        zone: Name of the zone.
        digest: Of the terms; None where the list is a fallback.
        source: What it is made from, see `ListSource`.
        first: When the first interval begins [UTC s].
        seconds: Length of an interval [s].
        rates: The rate of each interval [currency/kWh].
        published_at: [UTC s]
        simulated: Whether the zone's noise is simulated.
        feed_in: The rate of what is fed in [currency/kWh], where the tariff has one.
        seq: The number of its record; head: the record's digest; signature: the record's.
    """

    kind = "prices"
    zone: Annotated[str, TEXT]
    digest: Annotated[str | None, or_null(HASH)]
    source: Annotated[ListSource, one_of(ListSource)]
    first: Annotated[int, whole_number(0)]
    seconds: Annotated[int, whole_number(1)]
    rates: Annotated[Sequence[float], RATES]
    published_at: Annotated[int, whole_number(0)]
    simulated: Annotated[bool, TRUTH]
    feed_in: Annotated[Sequence[float] | None, optional(RATES)] = None
    seq: int = 0
    head: str = ""
    signature: str = ""

    @property
    def ends(self) -> int:
        """When the last interval ends [UTC s]."""
        return self.first + len(self.rates) * self.seconds

    def price(self, start: int) -> ReleaseRecord:
        """The price of an interval as a release that costs nothing, as price consumers read it.

        Args:
            start: When the interval begins [UTC s].

        Returns:
            The price; its step is the one that the price is for.

        Raises:
            LedgerError: The list has no such interval.
        """
        i, within = divmod(start - self.first, self.seconds)
        if within or not 0 <= i < len(self.rates):
            raise LedgerError(f"no listed interval starts at {start}; give one of the list.")
        step = start // self.seconds
        price = ReleaseRecord.stand_in(
            self.zone,
            self.source,
            t=step,
            rate=self.rates[i],
            digest=self.digest,
            feed_in=None if self.feed_in is None else self.feed_in[i],
            mode="simulation" if self.simulated else "production",
            start=self.published_at,
            applies_start=start,
            applies_from=step,
            published_at=self.published_at,
        )
        return replace(price, seq=self.seq, head=self.head, signature=self.signature)

    def prices(self, since: int = 0, until: int = 2**53) -> list[ReleaseRecord]:
        """The prices of the intervals that begin in since..until [UTC s, until not in]."""
        last = min(until, self.ends)
        first = self.first + max(0, -((self.first - since) // self.seconds)) * self.seconds
        return [self.price(start) for start in range(first, last, self.seconds)]


def first_step(release: Release | ReleaseRecord) -> int:
    """The first step of a release's block of steps: its own where its noise is its own."""
    return int(release.block["first"] if release.block else release.t)


def last_step(release: Release | ReleaseRecord) -> int:
    """The last step of a release's block of steps: its own where its noise is its own."""
    return first_step(release) + (release.block["length"] if release.block else 1) - 1


@dataclass(frozen=True, slots=True)
class TransferRecord(LedgerEntry):
    """A house leaves for zone `other` or comes from there, with the account of what was published.

    Attributes:
        house: A name that both zones' publishers know and the public need not.
        direction: Whether it comes in or goes out.
        other: The other zone.
        out: The digest of the record by which a house that comes in has left.
        last: When the step that the account is about ended [UTC s]; 0 where nothing was.
            The zone that it comes to publishes nothing about it before.
        account: What the zone that it leaves has published and may still be published about it, as
            an interval promise needs it: a row as in a release, of no loss. None where nothing was.
        windows: The same of promises about windows.
    """

    kind = "transfer"
    house: Annotated[str, TEXT]
    direction: Annotated[Direction, one_of(Direction)]
    other: Annotated[str, TEXT]
    out: Annotated[str | None, or_null(HASH)] = None
    seq: int = 0
    head: str = ""
    last: Annotated[int, whole_number(0)] = 0
    account: Annotated[AccountRows | None, optional(ROWS)] = None
    windows: Annotated[WindowRows | None, optional(WINDOWS)] = None


@dataclass(frozen=True, slots=True)
class ChargeRecord(LedgerEntry):
    """What every house has spent on something else than releases, such as models of many homes.

    Attributes:
        what: What it was spent on.
        epsilon: What was spent.
        digest: Of what was made of the readings; the same thing is charged once.
        homes: How many they came from.
        first: When the first of these readings begins [UTC s].
        last: The last second of the last one [UTC s].
    """

    kind = "charge"
    what: Annotated[str, TEXT]
    epsilon: Annotated[float, LOSS]
    digest: Annotated[str, HASH]
    homes: Annotated[int, whole_number(1)]
    first: Annotated[int, whole_number(0)]
    last: Annotated[int, whole_number(0)]
    seq: int = 0


@dataclass(frozen=True, slots=True)
class GapRecord(LedgerEntry):
    """Steps that may have been published and whose records are lost.

    After it no release comes from readings until a `ResumeRecord` books what they can have cost.

    Attributes:
        first: The first step.
        last: The last step.
        why: Evidence of the loss, see `Cause`.
        least: What lost records that are known state that they cost; it is booked in addition.
        heads: Digests of the last ones of these records, one for each history that is lost.
        seq: The number of its record.
        head: The record's digest.
    """

    kind = "gap"
    first: Annotated[int, whole_number(1)]
    last: Annotated[int, whole_number(1)]
    why: Annotated[Cause, one_of(Cause)]
    least: Annotated[float | None, optional(LOSS)] = None
    heads: Annotated[str | None, optional(HEADS)] = None
    seq: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRecord(LedgerEntry):
    """Ends the gap `first` to `last`: what its steps may have lost, booked in full.

    Attributes:
        first: The first step.
        last: The last step.
        epsilon: What was booked. Infinity is written as null: no bound is known.
        seq: The number of its record.
        account: Under an interval promise, the account after the block that the last step is in,
            with what is booked for that block.
        until: The last step of that block.
        windows: Where a promise about windows is in force, its account after that block.
    """

    kind = "resume"
    first: Annotated[int, whole_number(1)]
    last: Annotated[int, whole_number(1)]
    epsilon: Annotated[float, or_null(LOSS, infinite=True)]
    seq: int = 0
    account: Annotated[AccountRows | None, optional(ROWS)] = None
    until: Annotated[int | None, optional(whole_number(1))] = None
    windows: Annotated[WindowRows | None, optional(WINDOWS)] = None


@dataclass(frozen=True, slots=True)
class ClosedRecord(LedgerEntry):
    """The last record of a ledger: nothing can be appended to it.

    Attributes:
        goes_on: Where the zone goes on, in words.
        seq: The number of its record.
        head: The record's digest.
    """

    kind = "closed"
    goes_on: Annotated[str, TEXT]
    seq: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True)
class OpenedRecord(LedgerEntry):
    """The first record of an imported ledger: all before it are those of a ledger that was closed.

    Attributes:
        closed: Digest of the last record of that ledger.
    """

    kind = "opened"
    closed: Annotated[str, HASH]
    seq: int = 0


TYPES: Mapping[str, type[LedgerEntry]] = {
    entry_type.kind: entry_type
    for entry_type in (
        GenesisRecord,
        TariffRecord,
        TermsRecord,
        ReleaseRecord,
        TransferRecord,
        PricesRecord,
        ChargeRecord,
        GapRecord,
        ResumeRecord,
        ClosedRecord,
        OpenedRecord,
    )
}


def check_body(kind: str, body: Body) -> None:
    """Refuse a body that lacks a field, has an unknown one, or a wrong value.

    Args:
        kind: The record's kind.
        body: Its fields.

    Raises:
        LedgerError: Names the field and never its value, which may be anything.
    """
    TYPES[kind].check(body)
