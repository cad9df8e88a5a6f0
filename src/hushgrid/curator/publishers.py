"""The ways out of releases and prices: what they get, and how they are retried."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from hushgrid.curator.clock import utc
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord

log = logging.getLogger("hushgrid.curator")


class Publisher(Protocol):
    """A way out for releases. It gets what the ledger keeps of a release, and nothing else.

    It is called at least once for each release; the same release may come again. One that shows
    the price in force has a method `show(zone, prices)` as well, which is called at every pass of
    the loop, before the first release too, with `PresentPrices`. One that takes lists of prices
    has a method `publish_list(zone, record)`, which is called as `publish` is.
    """

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Publish a release.

        Args:
            zone: The zone.
            release: What the ledger has of it.

        Raises:
            OSError: It failed; it is tried again.
        """
        ...


def price(zone: ZoneService, release: ReleaseRecord) -> dict[str, Any]:
    """A release as price consumers read it.

    Args:
        zone: The zone.
        release: What the ledger has of it.

    Returns:
        The fields of the JSON object: the price per kWh, times in UTC with Z.
    """
    start = release.applies_start
    return {
        "zone": release.zone,
        "start": utc(start),
        "end": utc(start + zone.seconds),
        **zone.amounts(release.rate, start, release.feed_in),
        "currency": zone.currency,
        "rule": release.rule,
        "source": release.source,
        "kind": "published",
        "simulated": release.simulated,
        "head": release.head,
        "signature": release.signature,
    }


class PresentPrices(NamedTuple):
    """Prices of a zone at an instant.

    Attributes:
        price: What /v1/price says: the price in force, with the next one.
        forecast: Makes the expected prices that follow; None while they are not ready.
    """

    price: dict[str, Any]
    forecast: Callable[[], list[dict[str, Any]] | None]


class Publishers:
    """The publishers of one zone: each gets every release at least once, and later if it fails.

    Args:
        publishers: The ways out.
        present: Prices at an instant [UTC s], for publishers that show them; None while they are
            not ready. Returns at once, and never raises.
    """

    def __init__(
        self,
        publishers: Sequence[Publisher],
        present: Callable[[float], PresentPrices | None] = lambda _: None,
    ) -> None:
        self._publishers, self._present = publishers, present
        self._unshown: dict[int, ReleaseRecord] = {}  # by publisher
        self._unlisted: dict[int, PricesRecord] = {}  # by publisher
        self._away: set[int] = set()  # that failed last time

    @property
    def away(self) -> tuple[int, ...]:
        """Publishers, by number, that did not take the last release."""
        return tuple(sorted(self._away))

    def add(self, release: ReleaseRecord) -> None:
        """Take a release for the next `show`; an earlier one that failed is not tried again."""
        self._unshown = dict.fromkeys(range(len(self._publishers)), release)

    def add_list(self, record: PricesRecord) -> None:
        """Take a list of prices for the next `show`."""
        takers = (i for i, way in enumerate(self._publishers) if hasattr(way, "publish_list"))
        self._unlisted = dict.fromkeys(takers, record)

    def show(self, zone: ZoneService, now: float) -> None:
        """Publish what was not yet published, and the prices at `now` [UTC s]."""
        for i, publisher in enumerate(self._publishers):
            release, show = self._unshown.get(i), getattr(publisher, "show", None)
            record = self._unlisted.get(i)
            try:
                if record is not None:
                    publisher.publish_list(zone, record)  # type: ignore[attr-defined]
                if release is not None:
                    publisher.publish(zone, release)
                if show is not None and (prices := self._present(now)) is not None:
                    show(zone, prices)
            except OSError as error:
                if i not in self._away:  # once, not at every attempt
                    fields = {"zone": zone.id, "error": type(error).__name__}
                    log.warning("not shown", extra=fields)
                self._away.add(i)
            else:
                self._unshown.pop(i, None)
                self._unlisted.pop(i, None)
                if i in self._away:
                    self._away.discard(i)
                    log.info("shown again", extra={"zone": zone.id})
