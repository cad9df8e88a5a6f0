"""One type for each kind of record: its fields, what each must be, and the body it makes.

The fields of a type that have a `Rule` are its body; the others are where the record is in its
chain. A release says what the public may know and nothing else: no load, no optimal rate, no
reading. It is the mechanism's `Release`, whose fields are declared there alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from hushgrid.checks import (
    CHANCE,
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
    whole,
)
from hushgrid.errors import LedgerError
from hushgrid.live.ledger.record import FORMAT, Body, Record, canonical
from hushgrid.mechanism import HasRelease, Release

Mode = Literal["production", "simulation"]
Source = Literal["readings", "forecast", "fallback"]
Direction = Literal["in", "out"]
# witness: a record known here is missing; meters: a closed interval has no release;
# failover: another database server answers than the one last written to; fork: two histories
Cause = Literal["witness", "meters", "failover", "fork"]

# `houses` is the zone's public number of houses. `missing` and `late` are in records of earlier
# versions alone: how many meters report is for operators.
COUNTS = ("houses", "missing", "late")


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        name in COUNTS and type(count) is int and count >= 0 for name, count in value.items()
    )


_FORMAT = Rule(lambda v: v == FORMAT, FORMAT)
_COUNTS = Rule(_are_counts, f"whole numbers named {', '.join(COUNTS)}")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one record says."""

    kind: ClassVar[str]

    @classmethod
    def rules(cls) -> Mapping[str, Rule]:
        """The fields of its body, the required ones first."""
        return rules_of(cls)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """The entry of a record of its kind, whose body is checked.

        Raises:
            LedgerError: A field is missing, too many, or cannot be.
        """
        check_body(cls.kind, record.body)
        return cls(**cls._values(record.body), **cls._place(record))

    @classmethod
    def _values(cls, body: Body) -> dict[str, Any]:
        return from_json(cls, body)

    @classmethod
    def _place(cls, record: Record) -> dict[str, Any]:
        """Where the record is in its chain, as far as the type keeps it."""
        place = {"seq": record.seq, "head": record.digest, "signature": record.signature}
        return {one.name: place[one.name] for one in fields(cls) if one.name in place}

    def to_body(self) -> dict[str, Any]:
        """The body of its record."""
        return to_json(self)


@dataclass(frozen=True, slots=True)
class GenesisRecord(LedgerEntry):
    """The first record: whether anything is real, and the public key (hex) of all signatures.

    Attributes:
        created_at: [UTC epoch s]
    """

    kind = "genesis"
    mode: Annotated[Mode, one_of(Mode)]
    key: Annotated[str, HASH]
    created_at: Annotated[int, whole(0)]
    format: Annotated[str, _FORMAT] = FORMAT


@dataclass(frozen=True, slots=True)
class EpochRecord(LedgerEntry):
    """Terms that hold from step `first` on.

    Attributes:
        digest: Names the mechanism's terms.
        first: The zone's step that it begins with.
        horizon: Steps that may be published from readings.
        seconds: Length of a step [s].
        roster: Digest of the meters.
        exact: The policy publishes without noise where no house is uncertain.
        interval: What is promised about occupancy at one step from all releases, if that is.
        leakage: What was counted for it, releases of earlier epochs included.
        accepted: The leakage that the operator accepted where this epoch takes its own steps or
            those of an earlier one above their promise.
        together: The most houses that move together under its models: their largest block.
    """

    kind = "epoch"
    digest: Annotated[str, HASH]
    first: Annotated[int, whole(1)]
    horizon: Annotated[int, whole(1)]
    seconds: Annotated[int, whole(1)]
    roster: Annotated[str | None, or_null(HASH)] = None
    exact: Annotated[bool, TRUTH] = False
    interval: Annotated[float | None, optional(LOSS)] = None
    leakage: Annotated[float | None, optional(LOSS)] = None
    accepted: Annotated[float | None, optional(LOSS)] = None
    together: Annotated[int | None, optional(whole(1))] = None

    def step(self, t: int) -> int:
        """The mechanism's own number for the zone's step t."""
        return t - self.first + 1


@dataclass(frozen=True, slots=True)
class ScheduleRecord(LedgerEntry):
    """A commitment to the scales [Wh] of all steps of an epoch.

    None where they are not known ahead: then the epoch's terms alone determine them.
    """

    kind = "schedule"
    digest: Annotated[str, HASH]
    steps: Annotated[int, whole(0)]

    @classmethod
    def of(cls, terms: str, scales: Sequence[float] = ()) -> Self:
        """The commitment to these scales, in the epoch whose digest is `terms`."""
        return cls(schedule_digest(terms, scales), len(scales))


def schedule_digest(terms: str, scales: Sequence[float] = ()) -> str:
    """SHA-256 over three lines: the format, the epoch's digest, the scales as canonical JSON."""
    text = f"hushgrid-schedule/1\n{terms}\n{canonical([float(b) for b in scales])}\n"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ReleaseRecord(HasRelease, LedgerEntry):
    """A release as the ledger keeps it; its fields can be read here as well: `record.rate`.

    Attributes:
        release: What is published. Its steps count over all epochs of the zone. A forecast or a
            fallback has no load_hat, costs nothing, and a fallback has no digest either.
        source: What it is made from.
        start: When its interval began [UTC epoch s].
        applies_start: When its rate begins [UTC epoch s].
        published_at: [UTC epoch s]
        counts: Public counts, see `COUNTS`.
        seq: The number of its record; head: the record's digest; signature: the record's.
    """

    kind = "release"
    release: Release
    source: Annotated[Source, one_of(Source)]
    start: Annotated[int, whole(0)]
    applies_start: Annotated[int, whole(0)]
    published_at: Annotated[int, whole(0)]
    counts: Annotated[Mapping[str, int], _COUNTS]
    seq: int = 0
    head: str = ""
    signature: str = ""

    @classmethod
    def of(
        cls,
        release: Release,
        source: Source = "readings",
        *,
        mode: Mode,
        start: int,
        applies_start: int,
        published_at: float,
        first: int = 1,
        applies_from: int | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> Self:
        """A release of the interval that began at `start` [UTC epoch s].

        Args:
            release: The mechanism's, which counts its steps from 1.
            source: What it is made from.
            mode: Every release of a simulation is marked as simulated.
            start: [UTC epoch s]
            applies_start: When its rate begins [UTC epoch s].
            published_at: [UTC epoch s]
            first: The zone's step at which its epoch began.
            applies_from: The zone's step that its rate begins with, where the release does not say.
            counts: Public counts.
        """
        due = release.applies_from + first - 1 if applies_from is None else applies_from
        simulated = release.simulated or mode == "simulation"
        own = replace(release, t=release.t + first - 1, applies_from=due, simulated=simulated)
        when = (start, applies_start, math.floor(published_at))
        return cls(own, source, *when, dict(counts or {}))

    @classmethod
    def stand_in(
        cls,
        zone: str,
        source: Literal["forecast", "fallback"],
        *,
        t: int,
        rate: float,
        digest: str | None = None,
        estimate: float | None = None,
        **when: Any,
    ) -> Self:
        """A release that no reading went into and that costs nothing.

        A forecast (the budget is spent, the horizon is over, or no meter reported) names the
        epoch's digest; a fallback (no usable model, or private ones where a forecast would be due)
        none.

        Args:
            zone: The zone.
            source: What it is made from.
            t: The zone's step.
            rate: [currency/kWh]
            digest: The epoch's.
            estimate: The load expected [Wh].
            **when: The other arguments of `of`.
        """
        said = {"load_hat": None, "rate": float(rate), "estimate": estimate, "simulated": False}
        own = Release.free(zone=zone, t=t, applies_from=t + 1, rule=source, digest=digest, **said)
        return cls.of(own, source, **when)

    @classmethod
    def rules(cls) -> Mapping[str, Rule]:
        """Those of the release, which may lack a load and a digest, and its own."""
        own = rules_of(Release)
        null = {name: or_null(own[name]) for name in ("load_hat", "digest")}
        found = {**own, **null, **rules_of(cls)}
        return dict(sorted(found.items(), key=lambda item: item[1].optional))

    @classmethod
    def _values(cls, body: Body) -> dict[str, Any]:
        own, source = from_json(Release, body), body["source"]
        later = [name for name, rule in rules_of(Release).items() if rule.optional and name in own]
        if later and source != "readings":
            raise LedgerError(
                f"step {body['t']} is a {source} but has {later[0]}; only what comes from readings"
                " has it."
            )
        return {"release": Release(**own), **from_json(cls, body)}

    def to_body(self) -> dict[str, Any]:
        """The fields of both; a release without readings has no optional ones."""
        rules = rules_of(Release)
        paid = self.source == "readings"
        said = to_json(self.release)
        own = {name: said[name] for name in said if paid or not rules[name].optional}
        return {**own, **to_json(self)}

    def in_epoch(self, epoch: EpochRecord) -> Release:
        """The mechanism's release again, in its own count of steps.

        Raises:
            LedgerError: It is not from readings.
        """
        one = self.release
        if self.source != "readings":
            raise LedgerError(
                f"step {one.t} of zone {one.zone!r} was published from a {self.source};"
                " only a release from readings is the mechanism's."
            )
        return replace(one, t=epoch.step(one.t), applies_from=epoch.step(one.applies_from))


@dataclass(frozen=True, slots=True)
class TransferRecord(LedgerEntry):
    """A house leaves for zone `other` or comes from there, with all it has spent until then.

    Attributes:
        house: A name that both zones' publishers know and the public need not.
        direction: Whether it comes in or goes out.
        other: The other zone.
        epsilon: What it has spent; delta: likewise.
        out: The digest of the record by which a house that comes in has left.
    """

    kind = "transfer"
    house: Annotated[str, TEXT]
    direction: Annotated[Direction, one_of(Direction)]
    other: Annotated[str, TEXT]
    epsilon: Annotated[float, LOSS]
    delta: Annotated[float, CHANCE] = 0.0
    out: Annotated[str | None, or_null(HASH)] = None
    seq: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True)
class ChargeRecord(LedgerEntry):
    """What every house has spent on something else than releases, such as models of many homes.

    Attributes:
        what: What it was spent on.
        epsilon: What was spent.
        digest: Of what was made of the readings; the same thing is charged once.
        homes: How many they came from.
    """

    kind = "charge"
    what: Annotated[str, TEXT]
    epsilon: Annotated[float, LOSS]
    digest: Annotated[str, HASH]
    homes: Annotated[int, whole(1)]
    seq: int = 0


@dataclass(frozen=True, slots=True)
class GapRecord(LedgerEntry):
    """Steps `first` to `last` may have been published and their records lost.

    From here on no release comes from readings until a `ResumeRecord` books what they can have
    cost. `why`: what shows the loss, see `Cause`.
    """

    kind = "gap"
    first: Annotated[int, whole(1)]
    last: Annotated[int, whole(1)]
    why: Annotated[Cause, one_of(Cause)]
    seq: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRecord(LedgerEntry):
    """Ends the gap `first` to `last`: what its steps may have lost, booked in full.

    An infinite `epsilon` is written as null (Gaussian noise: no release has one of its own). Where
    an epoch of other terms may be lost, `together` is the most houses that move together in it.
    """

    kind = "resume"
    first: Annotated[int, whole(1)]
    last: Annotated[int, whole(1)]
    epsilon: Annotated[float, or_null(LOSS, infinite=True)]
    delta: Annotated[float, CHANCE] = 0.0
    seq: int = 0
    together: Annotated[int | None, optional(whole(1))] = None


TYPES: Mapping[str, type[LedgerEntry]] = {
    one.kind: one
    for one in (
        GenesisRecord,
        EpochRecord,
        ScheduleRecord,
        ReleaseRecord,
        TransferRecord,
        ChargeRecord,
        GapRecord,
        ResumeRecord,
    )
}


@cache
def _rules(kind: str) -> Mapping[str, Rule]:
    return TYPES[kind].rules()


def check_body(kind: str, body: Body) -> None:
    """Refuse a body that lacks a field, has one too many, or one that cannot be."""
    rules = _rules(kind)
    required = [name for name, rule in rules.items() if not rule.optional]
    for name in required:
        if name not in body:
            raise LedgerError(f"{kind} has no {name}; give {', '.join(required)}.")
    for name in body:
        if name not in rules:
            raise LedgerError(f"{kind} has a field {name!r}; give {', '.join(rules)} alone.")
    for name, rule in rules.items():
        if name in body and not rule.fits(body[name]):
            # a value that does not fit may be anything, so it is not shown
            raise LedgerError(f"{name} of {kind} does not fit; give {rule.give}.")
