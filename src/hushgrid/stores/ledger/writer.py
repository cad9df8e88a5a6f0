"""One zone's ledger in the hands of its one writer: check, then store, then fold.

    with open_store(url) as store, Ledger.open(store, zone, key, "production", now) as ledger:
        ledger.write(TermsRecord(...))

Nothing may be published before `append` has returned. A retry publishes `standing.at(t)`; it never
draws again. With a `Witness` a ledger that lost its end gets the missing records back as they were.

Records are signed with an Ed25519 key in a file that only its owner may read. A copy of a ledger
file gets its name only when every record in it is verified and none that was durable before is
missing. The small files next to the ledger are no part of a copy: they show that it is older.
"""

from __future__ import annotations

import hmac
import logging
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from numpy.typing import NDArray

from hushgrid._numbers import is_hex, sum_up
from hushgrid.accounting.composition import booked
from hushgrid.errors import LedgerDamageError, LedgerError
from hushgrid.files.results import sync_folder
from hushgrid.mechanism.release import Mode
from hushgrid.stores.ledger.chain import (
    ChainReport,
    Checkpointed,
    Dated,
    Fold,
    Judged,
    LedgerStore,
    Replicated,
    Verify,
    check,
)
from hushgrid.stores.ledger.checkpoint import write
from hushgrid.stores.ledger.entries import (
    TYPES,
    ChargeRecord,
    GapRecord,
    GenesisRecord,
    LedgerEntry,
    ReleaseRecord,
    ResumeRecord,
    TermsRecord,
)
from hushgrid.stores.ledger.records import (
    NOTHING,
    Body,
    Columns,
    Head,
    Record,
    linked,
    seal,
    signed_text,
)
from hushgrid.stores.ledger.releases import StoredReleases
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.store import SqliteLedger
from hushgrid.stores.ledger.witness import KEPT, Sidecar, Witness, read_witness, sidecar_path


class Key:
    """A private key; its representation has the public half alone.

    Attributes:
        public: The public key (hex).
    """

    __slots__ = ("_private", "public")

    def __init__(self, private: ed25519.Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw().hex()

    def __repr__(self) -> str:
        return f"Key(public={self.public})"

    def sign(self, digest: str) -> str:
        """The signature (hex) of a record's digest."""
        return self._private.sign(signed_text(digest)).hex()

    def derive(self, purpose: str) -> bytes:
        """A secret key for another purpose, the same each time.

        Args:
            purpose: Names it; nothing about this key follows from the result.

        Returns:
            32 bytes.
        """
        text = f"hushgrid/1 derived\n{purpose}\n".encode()
        return hmac.digest(self._private.private_bytes_raw(), text, "sha256")


def create(path: Path | str) -> Key:
    """Make a new key in a new file of mode 0600, durable on return.

    Args:
        path: The file; it must not exist.

    Returns:
        The key.

    Raises:
        LedgerError: The file exists or cannot be written.
    """
    path = Path(path)
    private = ed25519.Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as stream:
            os.fchmod(stream.fileno(), 0o600)  # whatever the umask
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(path.parent)
    except FileExistsError:
        raise LedgerError(
            f"key file {path} exists; a key is never overwritten, give another name."
        ) from None
    except OSError as error:
        raise LedgerError(
            f"key file {path} cannot be written ({error.strerror}); give a writable place."
        ) from None
    return Key(private)


def load(path: Path | str) -> Key:
    """Load the key from a file that only its owner may read or write.

    Args:
        path: The file.

    Returns:
        The key.

    Raises:
        LedgerError: The file cannot be read, others may read it, or it holds no such key.
    """
    try:
        with Path(path).open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode & 0o777
            if mode & 0o077:
                raise LedgerError(
                    f"key file {path} has mode {mode:04o}; make it its owner's alone with"
                    f" chmod 600 {path}."
                )
            text = stream.read(10_000)
    except OSError as error:
        raise LedgerError(
            f"key file {path} cannot be read ({error.strerror}); give the file of the key."
        ) from None
    try:
        private = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise LedgerError(f"key file {path} holds no Ed25519 key in PEM; give the file of the key.")
    return Key(private)


def verify_signature(public: str, digest: str, signature: str) -> bool:
    """Whether a signature is that of a digest under a public key.

    Args:
        public: The public key, 64 hexadecimal digits.
        digest: The digest of the record.
        signature: 128 hexadecimal digits.

    Returns:
        False also where an argument is not well formed.
    """
    if not (is_hex(public, 64) and is_hex(signature, 128)):
        return False
    try:
        _public(public).verify(bytes.fromhex(signature), signed_text(digest))
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(16)
def _public(text: str) -> ed25519.Ed25519PublicKey:
    return ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))


def back_up(store: Path, target: Path, verify: Verify | None = None) -> ChainReport:
    """Copy a ledger file as it is now; its writers need not stop.

    Args:
        store: The ledger.
        target: The copy; it must not exist.
        verify: Judges signatures; None: they are not judged.

    Returns:
        What the check of the copy found.

    Raises:
        LedgerError: A record does not verify or is missing, or the copy cannot be written.
    """
    with SqliteLedger(store, create=False) as source:
        check_known_zones(store, source.zones())
        durable = {d: zone for zone in source.zones() if (d := source.witness(zone))}
        return _copied(source, target, durable, verify)


def restore(copy: Path, store: Path, verify: Verify | None = None) -> ChainReport:
    """Put a copy where a ledger was.

    Args:
        copy: The copy.
        store: Where the ledger was; its small files may still be there.
        verify: Judges signatures; None: they are not judged.

    Returns:
        What the check of the restored ledger found.

    Raises:
        LedgerError: A record is missing that was known there, or the ledger exists.
    """
    for end in ("", "-wal", "-shm"):  # SQLite would play an old log into the copy
        if (path := store.with_name(store.name + end)).exists():
            raise LedgerError(f"{path} exists already; move it away, with its -wal and -shm.")
    with SqliteLedger(copy, create=False) as source, ExitStack() as locks:
        zones = source.zones()
        check_known_zones(store, zones)
        for zone in zones:  # a service that still runs holds them
            locks.callback(Sidecar(sidecar_path(store, zone), zone).release)
        heads = {zone: read_witness(sidecar_path(store, zone)) for zone in zones}
        durable = {head.digest: zone for zone, head in heads.items() if head}
        return _copied(source, store, durable, verify)


def check_known_zones(store: Path, zones: Collection[str]) -> None:
    """Refuse a ledger without a zone that a small file knows.

    Args:
        store: The ledger, or where it was.
        zones: The zones that it has, or its copy.

    Raises:
        LedgerError: All records of a zone are lost.
    """
    zone_files = {sidecar_path(store, zone) for zone in zones}
    for path in sorted(store.parent.glob("*")):
        of_zone = re.fullmatch(re.escape(store.name) + r"\.[0-9a-f]{16}", path.name)
        if of_zone and path not in zone_files and read_witness(path):
            raise LedgerError(
                f"{path} knows a zone that is not in the ledger or its copy; give a newer copy of"
                f" {store.name}."
            )


def _copied(
    source: SqliteLedger, target: Path, durable: Mapping[str, str], verify: Verify | None
) -> ChainReport:
    if not target.parent.is_dir():
        raise LedgerError(f"{target} is in no folder; make {target.parent} first.")
    if target.exists():
        raise LedgerError(f"{target} exists already; give another name, or move it away.")
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        source.copy_to(part)
        report = _checked(part, durable, verify)
        part.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise LedgerError(
            f"{target} cannot be written ({error.strerror}); see that its disk is writable and not"
            " full."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()  # gone already where all went well
    return report


def _checked(path: Path, durable: Mapping[str, str], verify: Verify | None) -> ChainReport:
    with SqliteLedger(path, create=False) as copy:
        records = (record for zone in copy.zones() for record in copy.records(zone))
        report = check(records, verify, durable)
    if not report.records and report.first_bad is None:
        raise LedgerError("the ledger has no records yet; there is nothing to copy.")
    if report.first_bad is not None:
        reason = str(report.reason).rstrip(".")
        raise LedgerError(
            f"nothing was copied: record {report.first_bad}: {reason}; take a newer copy, or see"
            " docs/ledger.md on how to go on after a loss."
        )
    return report


log = logging.getLogger("hushgrid.ledger")


class Signer(Protocol):
    """What a ledger asks of a key; `Key` is one."""

    @property
    def public(self) -> str:
        """The public key (hex)."""
        ...

    def sign(self, digest: str) -> str:
        """The signature (hex) of a record's digest."""
        ...


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


class Ledger:
    """A zone's ledger, open for writing, made by `open`.

    Attributes:
        opening: What the opening showed of lost records.
    """

    def __init__(
        self,
        store: LedgerStore,
        zone: str,
        key: Signer,
        fold: Fold,
        witness: Witness | None = None,
        opening: OpenedLedger | None = None,
    ) -> None:
        self._store, self._zone, self._key, self._fold = store, zone, key, fold
        self._sure, self._witness = True, witness
        self.opening = OpenedLedger() if opening is None else opening
        # whether records added here prove that nothing else was written
        self._settled = self.opening.complete

    @classmethod
    @contextmanager
    def open(
        cls,
        store: LedgerStore,
        zone: str,
        key: Signer,
        mode: Mode,
        now: float,
        *,
        digests: Collection[str] = (),
        verify: Verify | None = None,
        fold: Fold | None = None,
        witness: Witness | None = None,
        forked: bool = False,
        closed: bool = False,
        verified: Head | None = None,
    ) -> Iterator[Ledger]:
        """Take the zone's lock, check all its records, and go on from there.

        A ledger without records begins with its genesis.

        Args:
            store: Where the records are.
            zone: The zone.
            key: The key that signs.
            mode: Production or simulation.
            now: [UTC s]
            digests: Digests remembered from elsewhere, such as the last head published: all must be
                there.
            verify: Judges signatures; `verify_signature` where it is not given.
            fold: What was read and checked before; it goes on here, and must not be used elsewhere
                meanwhile.
            witness: The last records known on this machine. What the store lacks of them is
                appended again as it was; what cannot be is in `opening`.
            forked: Accept a store that contradicts the witness; `opening` has it.
            closed: Accept a ledger that is closed, to look at.
            verified: A record of the ledger that was verified before, with all those before it.

        Yields:
            The ledger. With a witness, call `note_loss` and `settle` before anything else.

        Raises:
            LedgerError: A record is missing or breaks a rule, two histories were written, or the
                ledger is closed, or of another key or mode.
        """
        if verify is None:
            verify = verify_signature
        with store.writer(zone), nullcontext() if witness is None else witness.hold():
            under_way = fold or Fold(verify)
            if verified is not None and under_way.place is None:
                refold_verified(store, zone, under_way, verified, key.public, verify)
            opening = _resumed(store, zone, digests, under_way, witness, key.public)
            if opening.forked and not forked:
                raise _forked(zone, opening.forked)
            no_record = under_way.place is None
            # a copy that has the zone has this, too; one that came here may lack what was published
            new = no_record and not opening.since
            if new and isinstance(store, Replicated) and store.moved(zone) is None:
                store.settle(zone)
            ledger = cls(store, zone, key, under_way, witness, opening)
            if ledger._fold.place is None:
                ledger.write(GenesisRecord(mode, key.public, math.floor(now)))
            ledger._check_mine(mode)
            if (last := ledger.standing.closed) is not None and not closed:
                raise LedgerError(
                    f"the ledger of zone {zone!r} is closed: {last.goes_on}; go on there, or set"
                    " stores.ledger to an import of it."
                )
            yield ledger

    @classmethod
    def read(
        cls, store: LedgerStore | None, zone: str, key: Signer, mode: Mode, witness: Witness
    ) -> Ledger | None:
        """The ledger as `open` would find it, to look at: without the lock, and nothing is added.

        Args:
            store: Where the records are; None where there is no ledger yet.
            zone: The zone.
            key: The key that signs.
            mode: The mode of the service.
            witness: The last records known on this machine, to be read only.

        Returns:
            The ledger, or None where the zone has no record.

        Raises:
            LedgerError: What `open` would refuse.
        """

        fold = Fold(verify_signature)
        looked: Any = _Looked(store)
        refold(looked, zone, fold)
        forked = recover(looked, zone, fold, witness, key.public).forked
        if forked:
            raise _forked(zone, forked)
        if fold.place is None:
            return None
        ledger = cls(looked, zone, key, fold)
        ledger._check_mine(mode)
        ledger._sure = False
        return ledger

    def _check_mine(self, mode: Mode) -> None:
        place = self._fold.place
        if place is None or place.mode != mode:
            raise LedgerError(
                f"the ledger of zone {self._zone!r} is for {place and place.mode}, not for {mode};"
                " give it a store of its own."
            )
        if place.key != self._key.public:
            raise LedgerError(
                f"the ledger of zone {self._zone!r} is signed with the key {place.key[:12]}, not"
                f" {self._key.public[:12]}; give the key it began with."
            )

    @property
    def standing(self) -> LedgerState:
        """The state of the zone's ledger, to resume from."""
        return self._fold.standing

    def append(self, kind: str, body: Body) -> Record:
        """Add a record that the rules allow; durable on return.

        After a failure of the store it is not known whether the record is there: the ledger then
        refuses more until it is opened again, which reads it back.

        Args:
            kind: The kind of the record.
            body: Its body.

        Raises:
            LedgerError: A rule forbids it, or store or witness cannot be written.
        """
        if not self._sure:
            raise LedgerError(
                f"an append to the ledger of zone {self._zone!r} failed; open it again to see"
                " whether the record is there."
            )
        record = self._next(kind, body)
        # until a loss is judged the witness stays as it was found: nothing is published by then
        witness = self._witness if self._settled else None
        if witness is not None:
            witness.send(record)
        try:
            self._store.append(record)
            if witness is not None:
                witness.note([record], local=True)
        except BaseException:
            self._sure = False
            raise
        self._fold.take(record)
        return record

    def _next(self, kind: str, body: Body) -> Record:
        place = self._fold.place
        head = place.head if place else Head(0, NOTHING)
        record = seal(self._zone, head.seq + 1, kind, body, head.digest, self._key.sign)
        self._fold.check(record)
        return record

    def check(self, entry: LedgerEntry) -> None:
        """Refuse an entry that the rules forbid as the next record; changes nothing."""
        self._next(entry.kind, entry.to_body())

    def settle(self) -> None:
        """What may be missing is judged: witness and store note the ledger as it is now."""
        if self.standing.terms is None:  # nothing can be judged yet
            return
        self._settled = True
        records = list(self._store.records(self._zone, max(0, self._fold.seq - KEPT)))
        if self._witness is not None and records:
            self._witness.settle(records)
        if isinstance(self._store, Judged):
            self._store.settle(self._zone)

    @property
    def can_be_asked(self) -> bool:
        """Whether the operator can ask for something while this is open."""
        return self._witness is not None and self._witness.can_be_asked

    @property
    def asked_to_resume(self) -> bool:
        """Whether the operator has asked to go on: the gap is to be booked, the clock is right."""
        standing = self.standing
        head = standing.head.digest if standing.gap is None else standing.gap.head
        return self._witness is not None and self._witness.is_asked(head)

    def resumed(self) -> None:
        """What the operator asked for is done."""
        if self._witness is not None:
            self._witness.answer()

    def keep_checkpoint(self, release: ReleaseRecord, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep the state of a replay after a release of the present terms, signed.

        Raises:
            LedgerError: The store cannot be written.
        """
        terms = self.standing.terms
        if terms is not None:
            head = Head(release.seq, release.head)
            write(self._store, self._zone, head, terms.digest, arrays, self._key.sign)

    def write(self, entry: LedgerEntry) -> Record:
        """Append what an entry says; see `append`."""
        return self.append(entry.kind, entry.to_body())

    def publish(self, body: Body) -> ReleaseRecord:
        """Append a release and return it as it may now be published."""
        return ReleaseRecord.from_record(self.append("release", body))


def _resumed(
    store: LedgerStore,
    zone: str,
    digests: Collection[str],
    fold: Fold,
    witness: Witness | None,
    key: str,
) -> OpenedLedger:
    """All records checked and folded; none may be missing that was known to be durable."""
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


class _Looked:
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
                raise _forked(zone, None)
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
    damaged = any(tail.damaged and tail.records[-1].seq >= fold.seq for tail in tails)
    opening = OpenedLedger(
        lost=damaged or bool(lost) or open_end,
        last_t=max((loss.last for loss in lost), default=0),
        least=_summary(fold, list(missed.values())).least if missed else 0.0,
        heads="".join(sorted(heads)),
        other_terms=any(loss.other_terms for loss in lost + forked),
        own_end=witness.wrote(fold.place.head.digest if fold.place else "", tails),
    )
    if not forked:
        return opening
    steps = [(loss.first, loss.last) for loss in forked if loss.last]
    arrival = any(
        record.kind == "transfer" and record.body["direction"] == "in" for record in missed.values()
    )
    if not (steps or opening.least or arrival):
        raise _forked(zone, None)
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


def _forked(zone: str, steps: tuple[int, int] | None) -> LedgerError:
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
