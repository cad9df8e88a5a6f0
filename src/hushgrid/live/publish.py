"""The ways out. A publisher is handed what the ledger keeps of a release, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import ReleaseRecord


class Publisher(Protocol):
    """Shows releases. Called at least once for each; the same release may come again."""

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Show it. Raises OSError where that failed; it is tried again."""
        ...


def price(zone: ZoneService, release: ReleaseRecord) -> dict[str, Any]:
    """A release as price consumers read it: per kWh, UTC with Z."""
    start = release.applies_start
    return {
        "zone": release.zone,
        "start": utc(start),
        "end": utc(start + zone.seconds),
        "price": release.rate,
        "currency": zone.currency,
        "rule": release.rule,
        "source": release.source,
        "simulated": release.simulated,
        "head": release.head,
        "signature": release.signature,
    }


def utc(seconds: int) -> str:
    """RFC 3339 of an epoch second.

    >>> utc(1_700_000_100)
    '2023-11-14T22:15:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PriceFile:
    """The newest price of each zone in one JSON file, replaced whole."""

    def __init__(self, path: Path, mark: str = "") -> None:
        self._path = path
        # curators of one machine may write the same file: each makes it beside under its own name
        self._beside = path.with_name(f"{path.name}{mark}.new")
        self._prices: dict[str, dict[str, Any]] = {}

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Write all prices, the new one among them."""
        self._prices[zone.id] = price(zone, release)
        text = json.dumps(self._prices, indent=2, sort_keys=True) + "\n"
        self._beside.write_text(text)
        self._beside.replace(self._path)
