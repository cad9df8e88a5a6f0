"""What the ledger holds of every zone, whoever writes it: one query for all of them.

A zone's fold goes to its writer while this process is that, and comes back with what it wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.book import refold
from hushgrid.live.ledger.chain import Fold, Verify
from hushgrid.live.ledger.record import Record
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.ledger.stores.postgres import PAGE
from hushgrid.live.ledger.stores.shared import SharedLedger
from hushgrid.live.ledger.witness import Witness

log = logging.getLogger("hushgrid.share")


class Following:
    """The folds of all zones; every record is checked once, when it is read.

    What is read goes into the zone's `witness` before it is returned.
    """

    def __init__(
        self,
        zones: Iterable[str],
        verify: Verify,
        witness: Callable[[str], Witness] | None = None,
    ) -> None:
        self.folds = {zone: Fold(verify) for zone in zones}
        self.bad: set[str] = set()  # zones whose next record breaks a rule
        self._verify, self._witness = verify, witness
        self._doubtful: set[str] = set()

    def doubt(self) -> None:
        """Another database server answers: what it holds may not be what was read."""
        self._doubtful = set(self.folds)
        self.bad.clear()

    def reread(self, store: SharedLedger, but: Collection[str] = ()) -> set[str]:
        """After `doubt`: the zones whose ledgers were read anew, from their beginning.

        A ledger that is shorter than what was read is waited for; one that went on otherwise is
        read anew where a gap on record has taken the place of what is missing, and else bad.
        """
        anew = set()
        for zone in sorted(self._doubtful - set(but)):
            fold, place = self.folds[zone], self.folds[zone].place
            last = next(store.records(zone, fold.seq - 1), None) if place else None
            if place is None or (last is not None and last.digest == place.head.digest):
                self._doubtful.discard(zone)
                continue
            there = Fold(self._verify)
            try:
                refold(store, zone, there)
                gap = there.gaps[-1] if there.gaps else None
                if gap and gap not in fold.gaps and place.last_t <= gap.last:
                    fold.clear()
                    refold(store, zone, fold)
                    anew.add(zone)
                elif there.seq < fold.seq:
                    continue
                else:
                    raise LedgerError(
                        f"the ledger of zone {zone!r} has other records than those read before; run"
                        " hushgrid resume."
                    )
            except LedgerError as error:
                self.bad.add(zone)
                log.error("zone not read", extra={"zone": zone, "reason": str(error)})
            self._doubtful.discard(zone)
        return anew

    def catch_up(
        self, store: SharedLedger, but: Collection[str] = ()
    ) -> dict[str, list[ReleaseRecord]]:
        """New releases by zone, in order; zones of `but` are written here."""
        found: dict[str, list[ReleaseRecord]] = {}
        behind = {zone for zone in self.folds if zone not in but and zone not in self.bad}
        while behind:
            records = store.after({zone: self._seq(zone) for zone in behind})
            counts = dict.fromkeys(behind, 0)
            read: dict[str, list[Record]] = {}
            for record in records:
                if record.zone in self.bad:
                    continue
                counts[record.zone] += 1
                try:
                    self.folds[record.zone].take(record)
                except LedgerError as error:
                    self.bad.add(record.zone)
                    log.error("zone not read", extra={"zone": record.zone, "reason": str(error)})
                    continue
                read.setdefault(record.zone, []).append(record)
                new = found.setdefault(record.zone, [])
                if record.kind == "release":
                    new.append(ReleaseRecord.from_record(record))
            for zone, some in read.items() if self._witness else ():
                self._note(zone, some)
            behind = {zone for zone, n in counts.items() if n == PAGE}
        return found

    def _note(self, zone: str, records: list[Record]) -> None:
        """A witness that cannot be written is the writer's trouble, who does not go on then."""
        try:
            if self._witness is not None:
                self._witness(zone).follow(records)
        except LedgerError as error:
            log.warning("not witnessed", extra={"zone": zone, "reason": str(error)})

    def _seq(self, zone: str) -> int:
        return self.folds[zone].seq
