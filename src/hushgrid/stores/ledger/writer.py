"""One zone's ledger in the hands of its one writer: check, then store, then fold.

    with open_store(url) as store, Ledger.open(store, zone, key, "production", now) as ledger:
        ledger.write(TermsRecord(...))

Nothing may be published before `append` has returned. A retry publishes `standing.at(t)`; it never
draws again. With a `Witness` a ledger that lost its end gets the missing records back as they were.

Records are signed with an Ed25519 key in a file that only its owner may read.
"""

from __future__ import annotations

import hmac
import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from numpy.typing import NDArray

from hushgrid._numbers import is_hex
from hushgrid.errors import LedgerError
from hushgrid.files.results import sync_folder
from hushgrid.mechanism.release import Mode
from hushgrid.stores.ledger.chain import Fold, Verify
from hushgrid.stores.ledger.checkpoint import write
from hushgrid.stores.ledger.duties import Judged, LedgerStore, Replicated
from hushgrid.stores.ledger.entries import GenesisRecord, ReleaseRecord
from hushgrid.stores.ledger.entry import LedgerEntry
from hushgrid.stores.ledger.records import (
    NOTHING,
    Body,
    Head,
    Record,
    seal,
    signed_text,
)
from hushgrid.stores.ledger.recovery import (
    OpenedLedger,
    ReadOnlyStore,
    recover,
    refold,
    refold_verified,
    reopen,
    two_histories,
)
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.witness import KEPT, Witness


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


class Signer(Protocol):
    """What a ledger asks of a key; `Key` is one."""

    @property
    def public(self) -> str:
        """The public key (hex)."""
        ...

    def sign(self, digest: str) -> str:
        """The signature (hex) of a record's digest."""
        ...


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
        self._gathered: list[Record] | None = None  # appended together, not durable yet

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
            opening = reopen(store, zone, digests, under_way, witness, key.public)
            if opening.forked and not forked:
                raise two_histories(zone, opening.forked)
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
        looked: Any = ReadOnlyStore(store)
        refold(looked, zone, fold)
        forked = recover(looked, zone, fold, witness, key.public).forked
        if forked:
            raise two_histories(zone, forked)
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
        if self._gathered is not None:
            self._gathered.append(record)
            self._fold.take(record)
            return record
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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Records that are appended inside become durable together, by `flush` or at the end.

        Nothing of them may be shown before. Where other curators follow the ledger, and before a
        loss is judged, each record is durable by itself.

        Raises:
            LedgerError: Store or witness cannot be written; of the records since `flush` all are
                there, or none.
        """
        if self._settled and not (self._witness is not None and self._witness.shared):
            self._gathered = []
        try:
            yield
        finally:
            self.flush()
            self._gathered = None

    def flush(self) -> None:
        """Make durable what was appended together."""
        records = self._gathered
        if not records:
            return
        self._gathered = []
        try:
            self._store.append_all(records)
            if self._witness is not None:
                self._witness.note(records, local=True)
        except BaseException:
            self._sure = False
            raise

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
        if self._witness is not None:
            self._witness.settle(self._last_records(self._witness))
        if isinstance(self._store, Judged):
            self._store.settle(self._zone)

    def _last_records(self, witness: Witness) -> list[Record]:
        """The last records of the ledger; from the last one that the witness has, if it has it."""
        start = max(0, self._fold.seq - KEPT)
        if start < witness.seq <= self._fold.seq:
            records = list(self._store.records(self._zone, witness.seq - 1))
            if records[0].digest == witness.head:
                return records
        return list(self._store.records(self._zone, start))

    @property
    def can_be_asked(self) -> bool:
        """Whether the operator can ask for something while this is open."""
        return self._witness is not None

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
        return ReleaseRecord.from_record(self.append("release", body), checked=True)
