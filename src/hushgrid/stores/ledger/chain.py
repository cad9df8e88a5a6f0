"""The rules of a ledger: which record may follow, and the folds built on that.

Appending, verifying and resuming all go through `follow`. Pure: signatures are verified by a
function that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.entries import (
    TYPES,
    ChargeRecord,
    ClosedRecord,
    GapRecord,
    GenesisRecord,
    OpenedRecord,
    PricesRecord,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
    first_step,
    last_step,
)
from hushgrid.stores.ledger.entry import LedgerEntry
from hushgrid.stores.ledger.records import NOTHING, Head, Record, digest_of
from hushgrid.stores.ledger.releases import ACCOUNTS, Releases, StoredReleases
from hushgrid.stores.ledger.rules import WindowRows
from hushgrid.stores.ledger.state import LedgerState, unmatched
from hushgrid.stores.ledger.terms import TariffRecord, TermsRecord, terms_name

Verify = Callable[[str, str, str], bool]  # (public key, digest, signature), all in hex


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """The end of a chain as far as the rules need it; its size does not grow with the chain.

    Attributes:
        zone: The zone.
        mode: Whether the releases are real or simulated.
        key: Public key of all signatures (hex).
        head: The last record.
        terms: The present terms.
        tariff: The newest tariff.
        last_t: The last step published or lost in a gap; less than the first of the present terms
            where they have neither.
        end: End of the last interval published [UTC s].
        reach: End of all that is published or lost in a gap [UTC s].
        charged: What every house spent on models, by their digests.
        windows: The newest account of promises about windows; None before any.
        gap: The open gap: no release from readings until it is booked.
        opened: The first step of the block of steps that was opened last.
        closed: The record by which the ledger was closed; None while it is open.
        listed: End of the last interval of a list of prices [UTC s]; 0 before any.
    """

    zone: str
    mode: str
    key: str
    head: Head
    terms: TermsRecord | None = None
    tariff: TariffRecord | None = None
    last_t: int = 0
    end: int = 0  # [UTC s] of the last interval published
    reach: int = 0
    charged: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    windows: WindowRows | None = None
    gap: GapRecord | None = None  # open: no release from readings until it is booked
    opened: int = 0
    closed: ClosedRecord | None = None
    listed: int = 0


def follow(
    place: ChainPosition | None, record: Record, verify: Verify | None = None
) -> ChainPosition:
    """The position after a record.

    Args:
        place: The position before it; None before the first record.
        record: The record.
        verify: Verifies its signature; None: it is not verified.

    Returns:
        The new position.

    Raises:
        LedgerError: The record breaks a rule.
    """
    return _followed(place, record, verify)[0]


def _followed(
    place: ChainPosition | None, record: Record, verify: Verify | None
) -> tuple[ChainPosition, LedgerEntry]:
    """The position after a record, and the record's entry."""
    _check_link(place, record)
    entry = TYPES[record.kind].from_record(record)
    if (place is None) != isinstance(entry, GenesisRecord):
        raise LedgerError(
            f"record {record.seq} of zone {record.zone!r} is of kind {record.kind};"
            " a chain begins with genesis and has no other."
        )
    if isinstance(entry, GenesisRecord) and entry.format != 1:
        raise LedgerError(
            f"the ledger of zone {record.zone!r} has format {entry.format}; give a ledger of format"
            " 1, or read it with the version of hushgrid that wrote it."
        )
    key = entry.key if isinstance(entry, GenesisRecord) else place.key if place else ""
    if verify is not None and not verify(key, record.digest, record.signature):
        raise LedgerError(
            f"the signature of record {record.seq} of zone {record.zone!r} is not of the key in"
            " its genesis; it was forged or changed."
        )
    head = Head(record.seq, record.digest)
    if place is not None and place.closed is not None and not isinstance(entry, OpenedRecord):
        raise LedgerError(
            f"record {record.seq} of zone {record.zone!r} follows the one that closed the ledger;"
            " nothing can be appended to it."
        )
    if isinstance(entry, GenesisRecord):
        return ChainPosition(record.zone, entry.mode, key, head), entry
    return replace(_RULES[record.kind](place, entry), head=head), entry


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


def _tariff(place: ChainPosition, entry: TariffRecord) -> ChainPosition:
    if entry.begins < place.reach:
        raise LedgerError(
            f"a tariff begins at {entry.begins} but what is published of zone {place.zone!r}"
            f" reaches to {place.reach}; begin it after that."
        )
    return replace(place, tariff=entry)


def _terms(place: ChainPosition, entry: TermsRecord) -> ChainPosition:
    _check_no_gap(place, "terms")
    if entry.begins < place.reach:  # steps may differ in length
        raise LedgerError(
            f"terms begin at step {entry.first} of {entry.seconds} s but what is published of zone"
            f" {place.zone!r} reaches to {place.reach}; begin after it."
        )
    if (entry.interval is None) != (entry.models is None):
        raise LedgerError(
            f"terms from step {entry.first} have the secret {entry.promise['secret']}, but"
            f" {'no' if entry.models is None else 'some'} models; the secret interval needs them,"
            " and no other has them."
        )
    if entry.window is not None and entry.reach is None:
        raise LedgerError(
            f"terms from step {entry.first} have the secret window but no reach; give the most by"
            " which two readings of a home can differ in a step [Wh]."
        )
    if entry.digest != terms_name(entry.to_body()):
        raise LedgerError(
            f"terms from step {entry.first} do not have the digest that follows from what they"
            " state; they were changed."
        )
    last_t = min(place.last_t, entry.first - 1)
    return replace(place, terms=entry, last_t=last_t, opened=0)


def _release(place: ChainPosition, entry: ReleaseRecord) -> ChainPosition:
    _check_marks(place, entry)
    _check_time(place, entry)
    if entry.source == "fallback":
        if entry.digest is not None or entry.estimate is not None:
            raise LedgerError(f"step {entry.t} is a fallback but names a model; leave it out.")
    else:
        _check_terms(place, entry)
    if entry.source == "readings":
        _check_no_gap(place, f"step {entry.t} from readings")
        _check_noise(place, entry)
    elif (
        entry.load_hat is not None
        or any(getattr(entry, name) != 0 for name in _COSTS)
        or _has_account(entry)
    ):
        raise LedgerError(
            f"step {entry.t} is a {entry.source} but has a load or a cost;"
            " only what comes from readings has them."
        )
    return _after(place, entry)


def _after(place: ChainPosition, entry: ReleaseRecord) -> ChainPosition:
    end = entry.start + (place.terms.seconds if place.terms else 1)
    opened = first_step(entry) if _has_account(entry) else place.opened
    reach, windows = max(place.reach, end), entry.windows or place.windows
    return replace(place, last_t=entry.t, end=end, reach=reach, opened=opened, windows=windows)


# no field beyond these: a release without readings has no optional ones that a reading is in
_COSTS = ("put_back", "scale", "epsilon", "epsilon_any")
_CLOSE = 1e-9  # figures that went through a division elsewhere


def _check_marks(place: ChainPosition, entry: ReleaseRecord | PricesRecord) -> None:
    if entry.zone != place.zone:
        raise LedgerError(
            f"{entry.kind} is of zone {entry.zone!r} in the ledger of {place.zone!r};"
            " each zone has a chain of its own."
        )
    if entry.simulated != (place.mode == "simulation"):
        subject = f"step {entry.t}" if isinstance(entry, ReleaseRecord) else "a list of prices"
        raise LedgerError(
            f"{subject} has simulated = {entry.simulated} in a {place.mode} ledger;"
            " simulated noise goes into a simulation ledger alone, which marks every release."
        )


def _check_time(place: ChainPosition, entry: ReleaseRecord) -> None:
    t, start = entry.t, entry.start
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
    if entry.applies_from <= t or entry.applies_start <= start:
        raise LedgerError(
            f"step {t} has a rate from step {entry.applies_from}, {entry.applies_start} on;"
            " a rate holds for later steps than its own."
        )
    if place.tariff is not None and start < place.tariff.begins:
        raise LedgerError(
            f"step {t} starts at {start} but the newest tariff of zone {place.zone!r} begins at"
            f" {place.tariff.begins}; record one that has begun."
        )


def _check_terms(place: ChainPosition, entry: ReleaseRecord) -> None:
    t, terms = entry.t, place.terms
    if terms is None or t < terms.first:
        raise LedgerError(f"step {t} of zone {place.zone!r} is under no terms; append them first.")
    if entry.digest != terms.digest:
        raise LedgerError(
            f"step {t} has digest {str(entry.digest)[:12]} but the terms {terms.digest[:12]};"
            " record new terms when zone, models or policy change."
        )


def _check_noise(place: ChainPosition, entry: ReleaseRecord) -> None:
    t, terms = entry.t, place.terms
    assert terms is not None  # see _check_terms
    if entry.load_hat is None:
        raise LedgerError(f"step {t} is from readings but has no load_hat; give the release's own.")
    if entry.scale == 0 or entry.noise == "none":
        raise LedgerError(
            f"step {t} has noise {entry.noise} at scale {entry.scale:g} Wh; a release from readings"
            " needs noise."
        )
    if (entry.noise == "block") != (entry.block is not None):
        raise LedgerError(
            f"step {t} has noise {entry.noise} and block {entry.block}; a release whose noise lasts"
            " a block of steps says its place there, and no other does."
        )
    if not terms.first <= first_step(entry) <= t <= last_step(entry):
        raise LedgerError(
            f"step {t} is in block {entry.block} under terms from step {terms.first} on; give a"
            " block of these terms that has the step."
        )
    promised = terms.interval is not None or terms.window is not None
    opens = promised and first_step(entry) != place.opened
    if opens != _has_account(entry) and (promised or entry.account is not None):
        raise LedgerError(
            f"step {t} has {'no' if opens else 'an'} account; the first release of each block of"
            " steps under a promise about intervals or windows has one, and no other does."
        )
    if entry.windows is not None:
        _check_window_loss(terms, entry, entry.windows)


def _check_window_loss(terms: TermsRecord, entry: ReleaseRecord, windows: WindowRows) -> None:
    """Require that what a block is booked with is no less than its noise leaves: reach / scale."""
    if terms.reach is None:
        raise LedgerError(
            f"step {entry.t} has an account of windows, but its terms no reach; give the most by"
            " which two readings of a home can differ in a step [Wh]."
        )
    due = terms.reach / entry.scale * (1 - _CLOSE)
    _, blocks = windows
    booked = blocks[-1][2] if blocks else 0.0
    if min(booked, entry.epsilon_any) < due:
        raise LedgerError(
            f"step {entry.t} books {booked:.6g} for its block, with epsilon_any"
            f" {entry.epsilon_any:.6g}, but a reach of {terms.reach:g} Wh at scale"
            f" {entry.scale:.6g} Wh loses {terms.reach / entry.scale:.6g}; its account was changed."
        )


def _prices(place: ChainPosition, entry: PricesRecord) -> ChainPosition:
    _check_marks(place, entry)
    terms, tariff = place.terms, place.tariff
    if terms is None or tariff is None or tariff.ahead is None:
        raise LedgerError(
            f"zone {place.zone!r} has a list of prices under a tariff without prices ahead; record"
            " one with [prices] first."
        )
    if (entry.digest is None) != (entry.source == "fallback"):
        raise LedgerError(
            f"a list of prices from {entry.first} on is of source {entry.source} with digest"
            f" {entry.digest}; a fallback names no terms, and any other list does."
        )
    if entry.digest not in (None, terms.digest):
        raise LedgerError(
            f"a list of prices from {entry.first} on has digest {str(entry.digest)[:12]} but the"
            f" terms {terms.digest[:12]}; record new terms when zone, models or policy change."
        )
    borders = entry.seconds == terms.seconds and entry.first % entry.seconds == 0
    if not borders or entry.first <= entry.published_at:
        raise LedgerError(
            f"a list of prices begins at {entry.first} with intervals of {entry.seconds} s and was"
            f" published at {entry.published_at}; it begins later, on a border of intervals of"
            f" {terms.seconds} s."
        )
    if entry.first < place.listed:
        raise LedgerError(
            f"a list of prices begins at {entry.first} but prices of zone {place.zone!r} are listed"
            f" up to {place.listed}; each interval is listed once."
        )
    if entry.feed_in is not None and len(entry.feed_in) != len(entry.rates):
        raise LedgerError(
            f"a list of prices has {len(entry.rates)} rates and {len(entry.feed_in)} of feed_in;"
            " give one of each for every interval."
        )
    return replace(place, listed=entry.ends)


def _has_account(entry: ReleaseRecord) -> bool:
    return entry.account is not None or entry.windows is not None


def _transfer(place: ChainPosition, entry: TransferRecord) -> ChainPosition:
    if (entry.direction == "in") != (entry.out is not None):
        raise LedgerError(
            f"transfer has direction {entry.direction} and out = {entry.out}; a house that"
            " comes in names the record by which it left, one that goes out has none yet."
        )
    if entry.direction == "out":
        _check_no_gap(place, "a house that leaves")
    elif entry.windows is not None:
        (promises, blocks), (followed, counted) = place.windows or ((), ()), entry.windows
        windows = WindowRows((*promises, *followed), (*blocks, *counted))
        return replace(place, windows=windows)
    return place


def _charge(place: ChainPosition, entry: ChargeRecord) -> ChainPosition:
    if entry.digest in place.charged:
        raise LedgerError(
            f"{entry.what} of zone {place.zone!r} are charged already"
            f" ({entry.digest[:12]}); the same thing is charged once."
        )
    if entry.last < entry.first:
        raise LedgerError(
            f"readings of a charge go from {entry.first} to {entry.last} (UTC s); give the first"
            " second of the first one, and the last of the last one."
        )
    promises, _ = place.windows or ((), ())
    for window, _, since, last in promises:
        if entry.last >= since and (last < 0 or entry.first - window + 1 <= last):
            raise LedgerError(
                f"{entry.what} of zone {place.zone!r} cannot be charged: their readings share"
                f" windows of {window:g} s with prices that spend what is promised about them; give"
                " models of a survey, or of readings before the zone's first price."
            )
    return replace(place, charged=MappingProxyType({**place.charged, entry.digest: entry.epsilon}))


def _gap(place: ChainPosition, entry: GapRecord) -> ChainPosition:
    if (before := place.gap) is not None and not (
        entry.first <= before.first
        and before.last <= entry.last
        and (entry.first, entry.last) != (before.first, before.last)
    ):
        _check_no_gap(place, "a gap that does not extend the open one")
    if place.terms is None or not place.terms.first <= entry.first <= entry.last:
        raise LedgerError(
            f"a gap of zone {place.zone!r} goes from step {entry.first} to {entry.last}; give"
            " steps of the present terms, in order."
        )
    gap = replace(entry, seq=before.seq) if before else entry
    reach = max(place.reach, (entry.last + 1) * place.terms.seconds)
    return replace(place, gap=gap, last_t=max(place.last_t, entry.last), reach=reach)


def _resume(place: ChainPosition, entry: ResumeRecord) -> ChainPosition:
    gap = place.gap
    if gap is None or (gap.first, gap.last) != (entry.first, entry.last):
        raise LedgerError(
            f"zone {place.zone!r} is resumed after steps {entry.first} to {entry.last}, which"
            " are no open gap; book the gap that is open."
        )
    promised = place.terms is not None and place.terms.interval is not None
    accounted = entry.account is not None or entry.windows is not None
    if (promised and entry.account is None) or accounted != (entry.until is not None):
        raise LedgerError(
            f"zone {place.zone!r} is resumed with"
            f" {'no' if entry.account is None else 'an'} account; give one with its step under an"
            " interval promise, and none without."
        )
    if (entry.until or gap.last) < gap.last:
        raise LedgerError(
            f"zone {place.zone!r} is resumed with an account of step {entry.until}; give one of the"
            " last lost step or a later one."
        )
    return replace(place, gap=None, opened=0, windows=entry.windows or place.windows)


def _check_no_gap(place: ChainPosition, subject: str) -> None:
    if place.gap is not None:
        raise LedgerError(
            f"{subject} of zone {place.zone!r} follows a gap (steps {place.gap.first} to"
            f" {place.gap.last}) that is not booked; run hushgrid resume first."
        )


def _closed(place: ChainPosition, entry: ClosedRecord) -> ChainPosition:
    _check_no_gap(place, "the end of the ledger")
    return replace(place, closed=entry)


def _opened(place: ChainPosition, entry: OpenedRecord) -> ChainPosition:
    if place.closed is None or entry.closed != place.closed.head:
        raise LedgerError(
            f"zone {place.zone!r} has a record that opens a ledger which was not closed just"
            " before; import a closed one."
        )
    return replace(place, closed=None)


_RULES: Mapping[str, Callable[[Any, Any], ChainPosition]] = {
    "tariff": _tariff,
    "terms": _terms,
    "release": _release,
    "prices": _prices,
    "transfer": _transfer,
    "charge": _charge,
    "gap": _gap,
    "resume": _resume,
    "closed": _closed,
    "opened": _opened,
}


class Fold:
    """Folds the records of one zone in order.

    Args:
        verify: Verifies signatures; None: they are not verified.

    Attributes:
        place: Where the chain is; None before the first record.
    """

    def __init__(self, verify: Verify | None = None) -> None:
        self.place: ChainPosition | None = None
        self._verify = verify
        self._signature = ""
        # the record that was checked last, from which place, and what follows
        self._checked: (
            tuple[Record, ChainPosition | None, tuple[ChainPosition, LedgerEntry]] | None
        ) = None
        self._releases = Releases()
        self._entries: dict[type[LedgerEntry], Any] = {
            entry_type: [] for entry_type in TYPES.values()
        }
        self._entries[ReleaseRecord] = self._releases
        self._unstated = {*ACCOUNTS}  # no release can have them yet
        self._standing: tuple[ChainPosition, LedgerState] | None = None  # asked for last, and where

    @property
    def seq(self) -> int:
        """The number of the last record; 0 before any."""
        return self.place.head.seq if self.place else 0

    @property
    def gaps(self) -> tuple[GapRecord, ...]:
        """The gaps so far, in order."""
        return tuple(self._entries[GapRecord])

    def clear(self) -> None:
        """Start again, when the ledger was replaced by another one."""
        self.place, self._signature, self._unstated = None, "", {*ACCOUNTS}
        self._checked = None
        for entries in self._entries.values():
            entries.clear()

    def check(self, record: Record) -> ChainPosition:
        """The position after the record; LedgerError where it breaks a rule. Changes nothing."""
        checked = _followed(self.place, record, self._verify)
        self._checked = record, self.place, checked
        return checked[0]

    def take_stored(self, stored: StoredReleases, others: Iterable[Record], head: Head) -> None:
        """Begin with records that were verified before: their releases are not read, but few.

        Args:
            stored: Their releases.
            others: The other records among them, in order, which are checked as any other.
            head: The last of all.

        Raises:
            LedgerError: A record that is read does not follow, or breaks a rule.
        """
        for record in others:
            self._pass(stored, record.seq - 1)
            self.take(record)
        self._pass(stored, head.seq)
        if self.place is None or self.place.head != head:
            raise LedgerError(f"the records do not lead to record {head.seq}; one was changed.")

    def _pass(self, stored: StoredReleases, seq: int) -> None:
        """Add the stored releases up to a record."""
        count = len(self._releases)
        self._releases.extend(stored, seq)
        if len(self._releases) == count or self.place is None:
            return
        for name in self._unstated:  # then they need not be looked for
            self._releases.skip(name)
        last = self._releases[-1]  # later than the others, so that only its place counts
        since = self.place.head.seq
        newest = [self._releases.newest(name) for name in ACCOUNTS]
        opened = [first_step(release) for release in newest if release and release.seq > since]
        windows = newest[1].windows if newest[1] and newest[1].seq > since else None
        self.place = replace(
            _after(self.place, last),
            head=Head(last.seq, last.head),
            opened=max(opened, default=self.place.opened),
            windows=windows or self.place.windows,
        )
        self._signature = last.signature

    def take(self, record: Record) -> None:
        """Add one record; raises LedgerError and changes nothing if it breaks a rule."""
        checked = self._checked
        if checked is not None and checked[0] is record and checked[1] is self.place:
            self.place, entry = checked[2]
        else:
            self.place, entry = _followed(self.place, record, self._verify)
        self._checked, self._signature = None, record.signature
        entries = self._entries[type(entry)]
        if isinstance(entry, GapRecord) and self.place.gap is not None:
            entry = self.place.gap
            if entries and entries[-1].seq == entry.seq:  # the open one, extended
                entries.pop()
        entries.append(entry)
        if isinstance(entry, TermsRecord):
            self._unstated -= {"account"} if entry.interval is not None else set()
            self._unstated -= {"windows"} if entry.window is not None else set()
        elif isinstance(entry, TransferRecord):
            self._unstated -= {name for name in ACCOUNTS if getattr(entry, name) is not None}

    @property
    def standing(self) -> LedgerState:
        """The ledger state after the records so far."""
        place = self.place
        if place is None:
            raise LedgerError("the ledger has no record; its first is the genesis.")
        if self._standing is not None and self._standing[0] is place:
            return self._standing[1]
        for name in ACCOUNTS:  # so that no copy has to look for them
            self._releases.newest(name)
        standing = LedgerState(
            zone=place.zone,
            mode=place.mode,
            key=place.key,
            head=place.head,
            signature=self._signature,
            terms=place.terms,
            terms_records=tuple(self._entries[TermsRecord]),
            tariffs=tuple(self._entries[TariffRecord]),
            releases=Releases(self._releases),
            transfers=tuple(self._entries[TransferRecord]),
            lists=tuple(self._entries[PricesRecord]),
            charged=place.charged,
            charges=tuple(self._entries[ChargeRecord]),
            gap=place.gap,
            gaps=tuple(self._entries[GapRecord]),
            booked=tuple(self._entries[ResumeRecord]),
            closed=place.closed,
        )
        self._standing = place, standing
        return standing


def fold(records: Iterable[Record], verify: Verify | None = None) -> LedgerState:
    """The ledger state after a zone's records.

    Args:
        records: The records in order.
        verify: Verifies signatures; None: they are not verified.

    Returns:
        The state. The first record that breaks a rule is a LedgerError.
    """
    under_way = Fold(verify)
    for record in records:
        under_way.take(record)
    return under_way.standing


@dataclass(frozen=True, slots=True)
class ChainReport:
    """The result of verifying chains.

    Attributes:
        records: How many records are valid, up to the first that is not.
        head: Digest of the last valid record.
        first_bad: The first bad record among those given, from 1: for one zone its number, for an
            export its line. None where all are valid.
        reason: What is wrong with it.
        standings: Ledger state of each zone after the valid records.
    """

    records: int
    head: str | None
    first_bad: int | None
    reason: str | None
    standings: Mapping[str, LedgerState]


def check(
    records: Iterable[Record],
    verify: Verify | None = None,
    digests: Mapping[str, str | None] = MappingProxyType({}),
) -> ChainReport:
    """Verify a zone's chain, or several zones' one after the other in the order of their names.

    Args:
        records: The records.
        verify: Verifies signatures; None: they are not verified.
        digests: Digests from elsewhere that must be among the records, with their zones where those
            are known.

    Returns:
        What was found; a bad record is no error.
    """
    folds: dict[str, Fold] = {}
    under_way, n, reason, head = Fold(verify), 0, None, None
    missing = dict(digests)
    try:
        for record in records:
            place = under_way.place
            if place is not None and record.zone > place.zone:  # the next zone's chain
                _check_all_there(missing, place.zone)
                under_way = Fold(verify)
            under_way.take(record)
            folds[record.zone] = under_way
            missing.pop(record.digest, None)
            n, head = n + 1, record.digest
        _check_all_there(missing)
    except LedgerError as error:
        reason = str(error)
    standings = {zone: fold.standing for zone, fold in folds.items()}
    first_bad = None if reason is None else n + 1
    if reason is None and (misfit := unmatched(standings)):
        before = sum(s.head.seq for zone, s in standings.items() if zone < misfit.zone)
        first_bad, reason = before + misfit.seq, misfit.reason
    return ChainReport(n, head, first_bad, reason, standings)


def _check_all_there(missing: Mapping[str, str | None], zone: str | None = None) -> None:
    """Require the known digests at the end of a zone, or of all zones."""
    for digest, of_zone in missing.items():
        if zone is None or zone == of_zone:
            raise LedgerError(
                f"record {digest[:12]} is known from elsewhere and not in the ledger;"
                " its end was lost, or it was written anew."
            )
