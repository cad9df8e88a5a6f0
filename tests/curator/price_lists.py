"""Zones that publish prices ahead, and lists of prices."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from hushgrid.curator.terms import tariff_figures, terms_record
from hushgrid.files.deployment import ZoneService
from hushgrid.files.zone_file import PricesAhead
from hushgrid.stores.ledger.entries import PricesRecord
from hushgrid.stores.ledger.records import NOTHING, Head
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.terms import TariffRecord
from tests.curator.curators import Shown
from tests.curator.setups import service

DAY = 86_400
EVENING = 18 * 3600


class ShownLists(Shown):
    """One that takes lists as well."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[PricesRecord] = []

    def publish_list(self, zone: ZoneService, record: PricesRecord) -> None:
        del zone
        self.lists.append(record)


def ahead_zone(days: int = 1, publish_at: int = EVENING, **changes: Any) -> ZoneService:
    return service(ahead=PricesAhead(days, publish_at), **changes)


def state_of(zone: ZoneService, *lists: PricesRecord) -> LedgerState:
    """A ledger with the zone's terms and some lists."""
    terms = replace(terms_record(zone), seq=3)
    tariffs = (TariffRecord(terms.begins, tariff_figures(zone), seq=2),)
    return LedgerState(
        zone.id, "simulation", "", Head(3, NOTHING), "", terms, (terms,), (), (), lists=lists,
        tariffs=tariffs,
    )  # fmt: skip


def a_list(first: int, number: int, published_at: int = 0, **changes: Any) -> PricesRecord:
    fields: dict[str, Any] = {
        "zone": "elm", "digest": "0" * 64, "source": "ahead", "first": first, "seconds": 900,
        "rates": tuple(float(i + 1) for i in range(number)), "published_at": published_at,
        "simulated": True,
    }  # fmt: skip
    return PricesRecord(**(fields | changes))


def at(zone: ZoneService, text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone.time_zone)).timestamp())
