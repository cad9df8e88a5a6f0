"""The rules of a ledger, in one place: what record may follow, and the folds built on that.

Appending, verifying and resuming all go through `follow`. Pure: signatures are judged by a
function that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.record import NOTHING, Record, digest_of, from_line
from hushgrid.live.ledger.records import check_body
from hushgrid.live.ledger.state import (
    ChargeRecord,
    EpochRecord,
    GapRecord,
    Head,
    LedgerState,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
    unmatched,
)

Verify = Callable[[str, str, str], bool]  # (public key, digest, signature), all in hex


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """Where a chain stands, as far as the rules go; small however long the chain."""

    zone: str
    mode: str
    key: str
    head: Head
    epoch: EpochRecord | None = None
    schedule: str | None = None
    last_t: int = 0
    end: int = 0  # [UTC epoch s] of the last interval published
    spent: Mapping[str, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))
    charged: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    gap: GapRecord | None = None  # open: no release from readings until it is booked


def follow(
    place: ChainPosition | None, record: Record, verify: Verify | None = None
) -> ChainPosition:
    """The place after the record, or LedgerError with the rule it breaks. None: before any."""
    _check_link(place, record)
    check_body(record.kind, record.body)
    if (place is None) != (record.kind == "genesis"):
        raise LedgerError(
            f"record {record.seq} of zone {record.zone!r} is of kind {record.kind};"
            " a chain begins with genesis and has no other."
        )
    key = record.body["key"] if place is None else place.key
    if verify is not None and not verify(key, record.digest, record.signature):
        raise LedgerError(
            f"the signature of record {record.seq} of zone {record.zone!r} is not of the key in"
            " its genesis; it was forged or changed."
        )
    head = Head(record.seq, record.digest)
    if place is None:
        return ChainPosition(record.zone, record.body["mode"], key, head)
    if record.kind == "gap":
        return replace(_gap(place, record.body, head), head=head)
    return replace(_RULES[record.kind](place, record.body), head=head)


def _check_link(place: ChainPosition | None, record: Record) -> None:
    seq, digest = place.head if place else Head(0, NOTHING)
    if place is not None and record.zone != place.zone:
        raise LedgerError(
            f"the record is of zone {record.zone!r} in a chain of {place.zone!r};"
            " each zone has a chain of its own."
        )
    if record.seq != seq + 1:
        raise LedgerError(
            f"the record after {seq} of zone {record.zone!r} has number {record.seq};"
            " one was removed, repeated or moved."
        )
    if record.prev != digest:
        raise LedgerError(
            f"record {record.seq} of zone {record.zone!r} follows {record.prev[:12]} but the one"
            f" before it has digest {digest[:12]}; one of them was changed."
        )
    if record.digest != digest_of(record):
        raise LedgerError(
            f"record {record.seq} of zone {record.zone!r} does not have the digest it states;"
            " it was changed."
        )


def _epoch(place: ChainPosition, body: Mapping[str, Any]) -> ChainPosition:
    _check_no_gap(place, "an epoch")
    if body["first"] <= place.last_t:
        raise LedgerError(
            f"epoch begins at step {body['first']} but step {place.last_t} of zone {place.zone!r}"
            " is published; begin after it."
        )
    return replace(place, epoch=EpochRecord(**body), schedule=None)


def _schedule(place: ChainPosition, body: Mapping[str, Any]) -> ChainPosition:
    if place.epoch is None:
        raise LedgerError(f"zone {place.zone!r} has a schedule but no epoch; append one first.")
    if place.schedule is not None:
        raise LedgerError(
            f"the epoch of zone {place.zone!r} has a second schedule; a schedule is committed to"
            " once, open a new epoch for another."
        )
    return replace(place, schedule=body["digest"])


def _release(place: ChainPosition, body: Mapping[str, Any]) -> ChainPosition:
    _check_marks(place, body)
    _check_time(place, body)
    if body["source"] == "fallback":
        if body["digest"] is not None or body["estimate"] is not None:
            raise LedgerError(f"step {body['t']} is a fallback but names a model; leave it out.")
    else:
        _check_terms(place, body)
    if body["source"] == "readings":
        _check_no_gap(place, f"step {body['t']} from readings")
        _check_noise(place, body)
    elif body["load_hat"] is not None or "noise" in body or any(body[n] != 0 for n in _COSTS):
        raise LedgerError(
            f"step {body['t']} is a {body['source']} but has a load or a cost;"
            " only what comes from readings has them."
        )
    seconds = place.epoch.seconds if place.epoch else 1
    return replace(place, last_t=body["t"], end=body["start"] + seconds)


_COSTS = ("put_back", "scale", "look", "epsilon", "delta", "epsilon_any")


def _check_marks(place: ChainPosition, body: Mapping[str, Any]) -> None:
    if body["zone"] != place.zone:
        raise LedgerError(
            f"release is of zone {body['zone']!r} in the ledger of {place.zone!r};"
            " each zone has a chain of its own."
        )
    if body["simulated"] != (place.mode == "simulation"):
        raise LedgerError(
            f"step {body['t']} has simulated = {body['simulated']} in a {place.mode} ledger;"
            " simulated noise goes into a simulation ledger alone, which marks every release."
        )


def _check_time(place: ChainPosition, body: Mapping[str, Any]) -> None:
    t, start = body["t"], body["start"]
    if t <= place.last_t:
        raise LedgerError(
            f"step t is {t} but step {place.last_t} of zone {place.zone!r} is published; each step"
            " is published once and in order. Did the clock go back?"
        )
    if start < place.end:
        raise LedgerError(
            f"step {t} starts at {start} but what is published of zone {place.zone!r} reaches to"
            f" {place.end}; intervals may not overlap. Did the clock go back?"
        )
    if body["applies_from"] <= t or body["applies_start"] <= start:
        raise LedgerError(
            f"step {t} has a rate from step {body['applies_from']}, {body['applies_start']} on;"
            " a rate holds for later steps than its own."
        )


def _check_terms(place: ChainPosition, body: Mapping[str, Any]) -> None:
    t, epoch = body["t"], place.epoch
    if epoch is None or t < epoch.first:
        raise LedgerError(f"step {t} of zone {place.zone!r} is in no epoch; append one first.")
    if place.schedule is None:
        raise LedgerError(
            f"step {t} is in an epoch of zone {place.zone!r} without a schedule; commit to one"
            " before the first release."
        )
    if body["digest"] != epoch.digest:
        raise LedgerError(
            f"step {t} has digest {str(body['digest'])[:12]} but its epoch {epoch.digest[:12]};"
            " open a new epoch when zone, models or policy change."
        )


def _check_noise(place: ChainPosition, body: Mapping[str, Any]) -> None:
    t, epoch = body["t"], place.epoch
    if epoch is None or epoch.step(t) > epoch.horizon:
        raise LedgerError(
            f"step {t} is beyond the horizon of its epoch; publish the public forecast."
        )
    if body["load_hat"] is None:
        raise LedgerError(f"step {t} is from readings but has no load_hat; give the release's own.")
    if body["scale"] == 0 and not epoch.exact:
        raise LedgerError(
            f"step {t} has scale 0 Wh and its epoch does not say exact; a release needs noise."
        )
    if "noise" in body and (body["noise"] == "none") != (body["scale"] == 0):
        raise LedgerError(
            f"step {t} has noise {body['noise']} at scale {body['scale']:g} Wh; noise is none"
            " where the scale is 0 and nowhere else."
        )


def _transfer(place: ChainPosition, body: Mapping[str, Any]) -> ChainPosition:
    if (body["direction"] == "in") != (body["out"] is not None):
        raise LedgerError(
            f"transfer has direction {body['direction']} and out = {body['out']}; a house that"
            " comes in names the record by which it left, one that goes out has none yet."
        )
    if body["direction"] == "out":
        _check_no_gap(place, "a house that leaves")
    now = (body["epsilon"], body["delta"])
    before = place.spent.get(body["house"], (0.0, 0.0))
    if now[0] < before[0] or now[1] < before[1]:
        raise LedgerError(
            f"a transfer of zone {place.zone!r} says less than the house had spent before;"
            " what is spent stays spent."
        )
    return replace(place, spent=MappingProxyType({**place.spent, body["house"]: now}))


def _charge(place: ChainPosition, body: Mapping[str, Any]) -> ChainPosition:
    if body["digest"] in place.charged:
        raise LedgerError(
            f"{body['what']} of zone {place.zone!r} are charged already"
            f" ({body['digest'][:12]}); the same thing is charged once."
        )
    return replace(
        place, charged=MappingProxyType({**place.charged, body["digest"]: body["epsilon"]})
    )


def _gap(place: ChainPosition, body: Mapping[str, Any], head: Head) -> ChainPosition:
    if (before := place.gap) is not None and not (
        body["first"] <= before.first
        and before.last <= body["last"]
        and (body["first"], body["last"]) != (before.first, before.last)
    ):
        _check_no_gap(place, "a gap that does not extend the open one")
    if place.epoch is None or not place.epoch.first <= body["first"] <= body["last"]:
        raise LedgerError(
            f"a gap of zone {place.zone!r} goes from step {body['first']} to {body['last']}; give"
            " steps of the present epoch, in order."
        )
    found = GapRecord(**body, seq=before.seq if before else head.seq, head=head.digest)
    return replace(place, gap=found, last_t=max(place.last_t, body["last"]))


def _resume(place: ChainPosition, body: Mapping[str, Any]) -> ChainPosition:
    gap = place.gap
    if gap is None or (gap.first, gap.last) != (body["first"], body["last"]):
        raise LedgerError(
            f"zone {place.zone!r} is resumed after steps {body['first']} to {body['last']}, which"
            " are no open gap; book the gap that is open."
        )
    return replace(place, gap=None)


def _check_no_gap(place: ChainPosition, what: str) -> None:
    if place.gap is not None:
        raise LedgerError(
            f"{what} of zone {place.zone!r} follows a gap (steps {place.gap.first} to"
            f" {place.gap.last}) that is not booked; run hushgrid resume first."
        )


_RULES: Mapping[str, Callable[[ChainPosition, Mapping[str, Any]], ChainPosition]] = {
    "epoch": _epoch,
    "schedule": _schedule,
    "release": _release,
    "transfer": _transfer,
    "charge": _charge,
    "resume": _resume,
}


class Fold:
    """A fold under way: `take` records in order, ask for the `standing` whenever wanted."""

    def __init__(self, verify: Verify | None = None) -> None:
        self.place: ChainPosition | None = None
        self._verify = verify
        self._signature = ""
        self._epochs: list[EpochRecord] = []
        self._releases: list[ReleaseRecord] = []
        self._transfers: list[TransferRecord] = []
        self._charges: list[ChargeRecord] = []
        self._gaps: list[GapRecord] = []
        self._booked: list[ResumeRecord] = []

    @property
    def seq(self) -> int:
        """The number of the last record; 0 before any."""
        return self.place.head.seq if self.place else 0

    @property
    def gaps(self) -> tuple[GapRecord, ...]:
        """The gaps so far, in order."""
        return tuple(self._gaps)

    def clear(self) -> None:
        """Forget everything: the ledger that was read is no longer the one that is there."""
        self.place, self._signature = None, ""
        for one in (self._epochs, self._releases, self._transfers, self._charges):
            one.clear()
        self._gaps.clear()
        self._booked.clear()

    def check(self, record: Record) -> ChainPosition:
        """The place after the record, or the rule it breaks; nothing changes."""
        return follow(self.place, record, self._verify)

    def take(self, record: Record) -> None:
        """One more record, if the rules allow it; else nothing changes."""
        self.place = self.check(record)
        self._signature = record.signature
        if record.kind == "epoch":
            self._epochs.append(EpochRecord(**record.body))
        elif record.kind == "release":
            self._releases.append(ReleaseRecord.of(record))
        elif record.kind == "transfer":
            self._transfers.append(TransferRecord.of(record))
        elif record.kind == "charge":
            self._charges.append(ChargeRecord(record.body["epsilon"], record.seq))
        elif record.kind == "gap" and self.place.gap is not None:
            if self._gaps and self._gaps[-1].seq == self.place.gap.seq:  # the open one, extended
                self._gaps.pop()
            self._gaps.append(self.place.gap)
        elif record.kind == "resume":
            self._booked.append(ResumeRecord.of(record))

    @property
    def standing(self) -> LedgerState:
        """What the records so far leave."""
        place = self.place
        if place is None:
            raise LedgerError("the ledger has no record; its first is the genesis.")
        return LedgerState(
            zone=place.zone,
            mode=place.mode,
            key=place.key,
            head=place.head,
            signature=self._signature,
            epoch=place.epoch,
            schedule=place.schedule,
            epochs=tuple(self._epochs),
            releases=tuple(self._releases),
            transfers=tuple(self._transfers),
            spent=place.spent,
            charged=place.charged,
            charges=tuple(self._charges),
            gap=place.gap,
            gaps=tuple(self._gaps),
            booked=tuple(self._booked),
        )


def fold(records: Iterable[Record], verify: Verify | None = None) -> LedgerState:
    """What a zone's records leave; the first that breaks a rule is an error."""
    under_way = Fold(verify)
    for record in records:
        under_way.take(record)
    return under_way.standing


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What a check found: `records` that stand, the `head` of them, and the first that does not.

    `first_bad` is its place among those given, from 1: for one zone the number it should have,
    for an export its line. `standings` are what stands of each zone.
    """

    records: int
    head: str | None
    first_bad: int | None
    reason: str | None
    standings: Mapping[str, LedgerState]


def check(
    records: Iterable[Record],
    verify: Verify | None = None,
    known: Mapping[str, str | None] = MappingProxyType({}),
) -> ChainReport:
    """Verify a zone's chain, or several zones' one after the other in the order of their names.

    `known` are digests from elsewhere that must be among the records, with their zones where
    those are known.
    """
    folds: dict[str, Fold] = {}
    under_way, n, reason, head = Fold(verify), 0, None, None
    wanted = dict(known)
    try:
        for record in records:
            place = under_way.place
            if place is not None and record.zone > place.zone:  # the next zone's chain
                _check_all_there(wanted, place.zone)
                under_way = Fold(verify)
            under_way.take(record)
            folds[record.zone] = under_way
            wanted.pop(record.digest, None)
            n, head = n + 1, record.digest
        _check_all_there(wanted)
    except LedgerError as error:
        reason = str(error)
    standings = {zone: fold.standing for zone, fold in folds.items()}
    first_bad = None if reason is None else n + 1
    if reason is None and (misfit := unmatched(standings)):
        before = sum(s.head.seq for zone, s in standings.items() if zone < misfit.zone)
        first_bad, reason = before + misfit.seq, misfit.reason
    return ChainReport(n, head, first_bad, reason, standings)


def _check_all_there(wanted: Mapping[str, str | None], zone: str | None = None) -> None:
    """At the end of a zone, or of all: whether every record known from elsewhere has come."""
    for digest, of_zone in wanted.items():
        if zone is None or zone == of_zone:
            raise LedgerError(
                f"record {digest[:12]} is known from elsewhere and not in the ledger;"
                " its end was lost, or it was written anew."
            )


def check_export(
    lines: Iterable[bytes],
    verify: Verify | None = None,
    known: Mapping[str, str | None] = MappingProxyType({}),
) -> ChainReport:
    """Verify an export: one record a line, each line with its end."""
    return check(map(from_line, lines), verify, known)
