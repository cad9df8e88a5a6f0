"""What of a ledger is missing, and its records put back: all that its opening reads.

The records of the store are folded, and held against the witness: those that only the witness has
are appended again as they were. What cannot be put back is said to the writer, which books it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from hushgrid._numbers import sum_up
from hushgrid.accounting.composition import booked
from hushgrid.errors import LedgerDamageError, LedgerError
from hushgrid.stores.ledger.chain import Fold, Verify
from hushgrid.stores.ledger.duties import Checkpointed, Dated, LedgerStore, Replicated
from hushgrid.stores.ledger.entries import (
    TYPES,
    ChargeRecord,
    GapRecord,
    ReleaseRecord,
    ResumeRecord,
)
from hushgrid.stores.ledger.records import (
    NOTHING,
    Columns,
    Head,
    Record,
    linked,
)
from hushgrid.stores.ledger.releases import StoredReleases
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.terms import TermsRecord
from hushgrid.stores.ledger.witness import Witness

log = logging.getLogger("hushgrid.ledger")


class OpenedLedger(NamedTuple):
    """What a ledger was found to be when it was opened.

    Attributes:
        lost: A record that was durable is missing and cannot be put back, or the end of another
            history is not known.
        last_t: The last step that the witness knows of missing records; 0 where it knows none.
        forked: Steps (first, last) that the witness has in another history than the ledger's.
        least: What the missing records state that they cost (epsilon).
        heads: The last record of each lost history that is known, 64 digits each.
        other_terms: Releases of other terms than the ledger's last ones may be among what is
            missing.
        own_end: The last record is the last that was written here: nothing else can have been
            published.
        moved: Another server answers than the one that was last written to; None: not known.
        since: When the server that answers got the ledger [UTC s]; 0: it began there. A zone
            that was not noted, or of which nothing is on record, may have been published before.
        blind: This process has neither judged the ledger nor followed it when it was written to.
        timeline: System identifier and timeline of the server that answers; None: not known.

    Steps are counted in intervals of the present terms.
    """

    lost: bool = False
    last_t: int = 0
    forked: tuple[int, int] | None = None
    least: float = 0.0
    heads: str = ""
    other_terms: bool = False
    own_end: bool = False
    moved: bool | None = None
    since: int = 0
    blind: bool = False
    timeline: str | None = None

    @property
    def complete(self) -> bool:
        """Whether it is proven that the ledger lacks nothing that was published."""
        return self.own_end and not self.lost and self.forked is None


def reopen(
    store: LedgerStore,
    zone: str,
    digests: Collection[str],
    fold: Fold,
    witness: Witness | None,
    key: str,
) -> OpenedLedger:
    """Check and fold all records; none may be missing that was known to be durable.

    Args:
        store: Where the records are; the zone's `writer` is held here.
        zone: The zone.
        digests: Digests remembered from elsewhere: all must be there.
        fold: What was folded before; it is changed in place.
        witness: The last records known on this machine.
        key: The public key of the ledger.

    Returns:
        What the ledger was found to be.

    Raises:
        LedgerError: A record breaks a rule or is missing, or the witness is of another ledger.
    """
    noted = store.witness(zone)  # before the records: see there
    refold(store, zone, fold)
    opening, since = OpenedLedger(), store.since() if isinstance(store, Dated) else 0
    if witness is not None:
        moved = store.moved(zone) if isinstance(store, Replicated) else None
        # a zone that is not noted may have been published before the ledger came here
        away = since > 0 if moved is None else moved
        opening = recover(store, zone, fold, witness, key, moved=away)
        opening = opening._replace(moved=moved, blind=not witness.has_judged)
    timeline = store.timeline() if isinstance(store, Dated) else None
    opening = opening._replace(since=since, timeline=timeline)
    missing = {*digests, noted} - {None, fold.place and fold.place.head.digest}
    if missing:
        missing -= {record.digest for record in store.records(zone)}
    if noted in missing and witness is not None and fold.place and fold.place.terms:
        missing.discard(noted)
        opening = opening._replace(lost=True)
    for lost in missing:
        raise LedgerDamageError(
            f"the ledger of zone {zone!r} ends at record {fold.seq} without record"
            f" {str(lost)[:12]}, which was durable: its end was cut, or an older copy was put back."
            " Put back the newest whole copy; docs/ledger.md says how to go on without one."
        )
    return opening


class ReadOnlyStore:
    """A store that is only read: what is put back to it is not written."""

    def __init__(self, store: LedgerStore | None) -> None:
        self._store = store

    def records(self, zone: str, after_seq: int = 0) -> Iterator[Record]:
        """The records of the store, if there is one."""
        return iter(()) if self._store is None else self._store.records(zone, after_seq)

    def append(self, record: Record) -> None:
        """Nothing."""


def refold(store: LedgerStore, zone: str, fold: Fold) -> None:
    """Fold the records that are new; all of them where the store no longer continues the fold.

    Args:
        store: The store.
        zone: The zone's name.
        fold: What was folded before; it is changed in place.

    Raises:
        LedgerDamageError: A record breaks a rule or cannot be read.
    """
    if fold.place is not None:
        last = next(store.records(zone, fold.seq - 1), None)
        if last is None or last.digest != fold.place.head.digest:
            fold.clear()
    try:
        for record in store.records(zone, fold.seq):
            fold.take(record)
    except LedgerError as error:
        raise LedgerDamageError(*error.args) from None


def refold_verified(
    store: LedgerStore, zone: str, fold: Fold, head: Head, key: str, verify: Verify
) -> None:
    """Fold the records up to one that was verified before; most releases are not read.

    Args:
        store: The store.
        zone: The zone's name.
        fold: Nothing was folded before; it stays so where a record that is read does not stand.
        head: The record.
        key: The public key of the ledger (hex).
        verify: Verifies signatures.
    """
    if not isinstance(store, Checkpointed):
        return
    try:
        others = [record for record in store.others(zone) if record.seq <= head.seq]
        read = partial(_page, store, zone, key, verify)
        stored = StoredReleases(read, [record.seq for record in others], head.seq)
        fold.take_stored(stored, others, head)
    except (LedgerError, KeyError, TypeError) as error:  # refold names the record at fault
        log.warning("ledger read in full", extra={"zone": zone, "error": type(error).__name__})
        fold.clear()


def _page(
    store: Checkpointed, zone: str, key: str, verify: Verify, after: int, count: int
) -> list[Columns]:
    """So many records after a number, linked to each other and to the one before.

    The key has signed the last of them, and so all.
    """
    rows = list(islice(store.columns(zone, max(after - 1, 0)), count + (after > 0)))
    before = Head(after, rows.pop(0)[5]) if after and rows else Head(0, NOTHING)
    page = list(linked(rows, before))
    if len(page) != count or not verify(key, *page[-1][5:]):
        raise LedgerError(
            f"records {after + 1} to {after + count} of zone {zone!r} were changed; put back a copy"
            " of the ledger."
        )
    return page


def recover(
    store: LedgerStore,
    zone: str,
    fold: Fold,
    witness: Witness,
    key: str,
    *,
    moved: bool = False,
    unconfirmed: bool = True,
) -> OpenedLedger:
    """Append again what the witness has and the store has lost; the zone's `writer` is held here.

    Args:
        store: Where the records are.
        zone: The zone.
        fold: All that the store has; it takes what is appended.
        witness: The last records known on this machine.
        key: The public key of the ledger.
        moved: Whether another server answers than before. What an earlier process sent and never
            confirmed is not appended then: another curator may have published that step.
        unconfirmed: Whether records that were sent and never confirmed are appended at all.

    Returns:
        What is missing and cannot be appended, and whether the last record is the witness's own.

    Raises:
        LedgerError: The witness is of another ledger, or has another history without releases.
    """
    tails, open_end, missed = witness.tails(), False, dict[str, Record]()
    lost, forked, heads = list[_LostRecords](), list[_LostRecords](), set[str]()
    for tail in tails:
        last = next(store.records(zone, tail.seq - 1), None)
        if last is not None and last.digest == tail.digest:  # and all before it
            continue
        first = tail.records[0].seq
        stored = {record.seq: record.digest for record in store.records(zone, max(first - 2, 0))}
        missing = [record for record in tail.records if stored.get(record.seq) != record.digest]
        if not missing:
            continue
        start = missing[0]
        follows = start.prev == (NOTHING if start.seq == 1 else stored.get(start.seq - 1))
        fork = start.seq <= fold.seq + (not follows)
        if follows and not fork and start.seq == fold.seq + 1:
            missing = _append_again(store, zone, fold, missing, key)
        elif fold.place is None or fold.place.terms is None:
            if fork:
                raise two_histories(zone, None)
            raise LedgerError(
                f"the ledger of zone {zone!r} ends at record {fold.seq} and the witness begins at"
                f" record {first}; put back a copy of the ledger that reaches so far."
            )
        if not missing or _covered(fold, missing, fork=fork):
            continue
        summary, terms = _summary(fold, missing), fold.standing.terms
        if fork and terms and (not follows or start.seq <= terms.seq):  # it began earlier
            summary = summary._replace(first=min(summary.first, terms.first), other_terms=True)
        (forked if fork else lost).append(summary)
        heads.add(missing[-1].digest)
        missed |= {record.digest: record for record in missing}
        open_end = open_end or not tail.local
    for record in witness.sent_records(earlier=not moved) if unconfirmed else ():
        if fold.place is not None and record.prev == fold.place.head.digest:
            _append_again(store, zone, fold, [record], key)
    # a damaged last line was a record that the store lacks
    damaged = any(tail.damaged and tail.seq >= fold.seq for tail in tails)
    opening = OpenedLedger(
        lost=damaged or bool(lost) or open_end,
        last_t=max((loss.last for loss in lost), default=0),
        least=_summary(fold, list(missed.values())).least if missed else 0.0,
        heads="".join(sorted(heads)),
        other_terms=any(loss.other_terms for loss in lost + forked),
        own_end=witness.wrote(fold.place.head.digest if fold.place else ""),
    )
    if not forked:
        return opening
    steps = [(loss.first, loss.last) for loss in forked if loss.last]
    arrival = any(
        record.kind == "transfer" and record.body["direction"] == "in" for record in missed.values()
    )
    if not (steps or opening.least or arrival):
        raise two_histories(zone, None)
    present = fold.standing.terms
    if not steps and present:  # what followed in that history may be anywhere
        steps = [(present.first, max(fold.standing.reach_step, present.first))]
    return opening._replace(
        forked=(min(first for first, _ in steps), max(last for _, last in steps))
    )


DAY = 86_400  # [s]; no step is longer


class _LostRecords(NamedTuple):
    """What records say: steps of the present terms' length, cost, whether of other terms."""

    first: int
    last: int
    least: float
    other_terms: bool


def _summary(fold: Fold, records: Sequence[Record]) -> _LostRecords:
    """What records that the ledger lacks say about steps and costs; no steps: first and last 0.

    Args:
        fold: The ledger; its terms say how long a step is.
        records: Of one zone, by number.
    """
    standing = fold.standing
    present = None if standing.terms is None else standing.terms.digest
    steps, costs, other_terms = list[tuple[int, int]](), list[float](), False
    released = list[ReleaseRecord]()
    since = min((record.seq for record in records), default=0)
    seconds = next(
        (terms.seconds for terms in reversed(standing.terms_records) if terms.seq < since), 0
    )
    for record in sorted(records, key=lambda record: record.seq):
        entry = TYPES[record.kind].from_record(record)
        if isinstance(entry, TermsRecord):
            seconds, other_terms = entry.seconds, other_terms or entry.digest != present
        elif isinstance(entry, GapRecord | ResumeRecord):
            steps.append(_in_present(standing, entry.first, entry.last, seconds))
        elif isinstance(entry, ReleaseRecord):
            if 0 < entry.start // max(entry.t, 1) <= DAY:  # its terms may not be known
                seconds = entry.start // entry.t
            steps.append(_in_present(standing, entry.t, entry.t, seconds))
            if entry.source == "readings":
                other_terms = other_terms or present not in (None, entry.digest)
                released.append(entry)
        if isinstance(entry, ResumeRecord | ChargeRecord):
            costs.append(entry.epsilon)
    costs += booked(released, loss=_of_any)
    first, last = (
        min((first for first, _ in steps), default=0),
        max((last for _, last in steps), default=0),
    )
    return _LostRecords(first, last, sum_up(costs), other_terms)


def _of_any(release: ReleaseRecord) -> float:
    """What a release states whatever anyone consumes, about houses that it leaves out too."""
    return float(max(release.epsilon, release.epsilon_any))


def _covered(fold: Fold, records: Sequence[Record], *, fork: bool) -> bool:
    """Whether a gap in the ledger has taken the place of all these records.

    It names the last of them; or it was noted when none of them was known, and has the steps of
    all, which are releases of its own terms. `fork`: they are of another history, so the gap must
    be later than its beginning.
    """
    summary, standing = _summary(fold, records), fold.standing
    plain = not summary.other_terms and all(record.kind == "release" for record in records)
    for gap in standing.gaps:
        is_open = standing.gap is not None and standing.gap.seq == gap.seq
        if records[-1].digest in (gap.heads or "") and not is_open:
            return True
        first, last = _in_present(standing, gap.first, gap.last, standing.terms_of(gap).seconds)
        evidence = gap.least or gap.heads or (fork and gap.seq < records[0].seq)
        if plain and not evidence and first <= summary.first and summary.last <= last:
            return True
    return False


def _in_present(standing: LedgerState, first: int, last: int, seconds: int) -> tuple[int, int]:
    """Steps of so many seconds (0: as in the present terms) in steps of the present terms."""
    present = standing.terms.seconds if standing.terms else 1
    length = seconds or present
    return first * length // present, ((last + 1) * length - 1) // present


def _append_again(
    store: LedgerStore, zone: str, fold: Fold, records: Sequence[Record], key: str
) -> list[Record]:
    """Append the records as they were; those that cannot be, since one is damaged."""
    for n, record in enumerate(records):
        if record.kind == "genesis" and record.body["key"] != key:
            raise LedgerError(
                f"the witness of zone {zone!r} is of a ledger with another key, and the ledger has"
                " no record; put that ledger back, or remove the witness to begin a new one."
            )
        try:
            fold.check(record)
        except LedgerError:
            log.error("a record of the witness is damaged", extra={"zone": zone, "seq": record.seq})
            return list(records[n:])
        store.append(record)
        fold.take(record)
    log.warning("records put back", extra={"zone": zone, "records": len(records)})
    return []


def two_histories(zone: str, steps: tuple[int, int] | None) -> LedgerError:
    """The error where ledger and witness contradict each other.

    Args:
        zone: The zone.
        steps: The first and last step that the two have differently; None: not known.

    Returns:
        The error, to be raised.
    """
    if steps is None:
        return LedgerError(
            f"the ledger of zone {zone!r} has other records than the witness on this machine, and"
            " no release or no terms in one of the two: two histories were written. Put the right"
            " one back, or move the witness folder away; what else shows a loss is judged then."
        )
    return LedgerError(
        f"the ledger of zone {zone!r} has other records for steps {steps[0]} to {steps[1]} than the"
        " witness on this machine: two histories were written. Stop the service; put the right one"
        " back, or run hushgrid resume, which books what the other one can have cost."
    )
