"""What the ledger holds of every zone, whoever writes it: one query for all of them.

A zone's fold goes to its writer while this process is that, and comes back with what it wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.chain import Fold, Verify
from hushgrid.live.ledger.standing import Published
from hushgrid.live.ledger.stores.postgres import PAGE
from hushgrid.live.ledger.stores.shared import SharedLedger

log = logging.getLogger("hushgrid.share")


class Following:
    """The folds of all zones; every record is checked once, when it is read."""

    def __init__(self, zones: Iterable[str], verify: Verify) -> None:
        self.folds = {zone: Fold(verify) for zone in zones}
        self.bad: set[str] = set()  # zones whose next record breaks a rule

    def catch_up(
        self, store: SharedLedger, but: Collection[str] = ()
    ) -> dict[str, list[Published]]:
        """New releases by zone, in order; zones of `but` are written here."""
        found: dict[str, list[Published]] = {}
        behind = {zone for zone in self.folds if zone not in but and zone not in self.bad}
        while behind:
            records = store.after({zone: self._seq(zone) for zone in behind})
            counts = dict.fromkeys(behind, 0)
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
                new = found.setdefault(record.zone, [])
                if record.kind == "release":
                    new.append(Published.of(record))
            behind = {zone for zone, n in counts.items() if n == PAGE}
        return found

    def _seq(self, zone: str) -> int:
        place = self.folds[zone].place
        return place.head.seq if place else 0
