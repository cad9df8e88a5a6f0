"""One zone's ledger in the hands of its one writer: check, then store, then fold.

    with open_store(url) as store, Ledger.open(store, zone, key, "production", now) as ledger:
        ledger.append("epoch", epoch(...))

Nothing may be shown before `append` has returned. A retry shows `standing.at(t)`; it never draws
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.bodies import Mode, genesis
from hushgrid.live.ledger.chain import Fold, Verify
from hushgrid.live.ledger.record import NOTHING, Body, Record, seal
from hushgrid.live.ledger.standing import Head, Published, Standing
from hushgrid.live.ledger.stores.ports import LedgerStore


class Signer(Protocol):
    """What a ledger asks of a key; `keys.Key` is one."""

    @property
    def public(self) -> str:
        """The public key (hex)."""
        ...

    def sign(self, digest: str) -> str:
        """The signature (hex) of a record's digest."""
        ...


class Ledger:
    """A zone's ledger, open for writing; make it with `open`."""

    def __init__(self, store: LedgerStore, zone: str, key: Signer, fold: Fold) -> None:
        self._store, self._zone, self._key, self._fold = store, zone, key, fold
        self._sure = True

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
        known: Collection[str] = (),
        verify: Verify | None = None,
        fold: Fold | None = None,
    ) -> Iterator[Ledger]:
        """Take the zone's lock, check all its records, and go on from there.

        A ledger without records begins now [UTC epoch s] with its genesis. `known` are digests
        remembered from elsewhere, such as the head last shown: all must be there. `verify` judges
        the signatures; `keys.verify` where it is not given. `fold`: what was read and checked
        before; it goes on here, and must not be used elsewhere meanwhile.
        """
        if verify is None:
            from hushgrid.live.ledger.keys import verify as of_key

            verify = of_key
        with store.writer(zone):
            ledger = cls(store, zone, key, _resumed(store, zone, known, fold or Fold(verify)))
            if ledger._fold.place is None:
                ledger.append("genesis", genesis(mode, key.public, now))
            ledger._check_mine(mode)
            yield ledger

    @classmethod
    def read(cls, store: LedgerStore, zone: str, key: Signer, mode: Mode) -> Ledger | None:
        """The ledger as `open` would find it, to look at: without the lock, and nothing is added.

        Returns:
            The ledger, or None where the zone has no record.

        Raises:
            LedgerError: What `open` would refuse.
        """
        from hushgrid.live.ledger.keys import verify

        ledger = cls(store, zone, key, _resumed(store, zone, (), Fold(verify)))
        if ledger._fold.place is None:
            return None
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
    def standing(self) -> Standing:
        """Where the zone stands: what to resume from."""
        return self._fold.standing

    def append(self, kind: str, body: Body) -> Record:
        """Add a record that the rules allow; durable on return.

        After a failure of the store it is not known whether the record is there: the ledger then
        refuses more until it is opened again, which reads it back.
        """
        if not self._sure:
            raise LedgerError(
                f"an append to the ledger of zone {self._zone!r} failed; open it again to see"
                " whether the record is there."
            )
        place = self._fold.place
        head = place.head if place else Head(0, NOTHING)
        record = seal(self._zone, head.seq + 1, kind, body, head.digest, self._key.sign)
        self._fold.check(record)
        try:
            self._store.append(record)
        except BaseException:
            self._sure = False
            raise
        self._fold.take(record)
        return record

    def publish(self, body: Body) -> Published:
        """Append a release and return it as it may now be shown."""
        return Published.of(self.append("release", body))


def _resumed(store: LedgerStore, zone: str, known: Collection[str], fold: Fold) -> Fold:
    """All records checked and folded; none may be missing that was known to be durable."""
    noted = store.witness(zone)  # before the records: see there
    wanted = {*known, noted} - {None}
    for record in store.records(zone, fold.place.head.seq if fold.place else 0):
        fold.take(record)
        wanted.discard(record.digest)
    for lost in wanted:
        end = fold.place.head.seq if fold.place else 0
        raise LedgerError(
            f"the ledger of zone {zone!r} ends at record {end} without record {str(lost)[:12]},"
            " which was durable: its end was cut, or an older copy was put back. Put back the"
            " newest whole copy; docs/ledger.md says how to go on without one."
        )
    return fold
