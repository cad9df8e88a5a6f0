"""Bodies of the feeds, each made once for a release and kept as bytes.

An answer holds until the next release is due: until then a proxy may give it to a whole city.
"""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hushgrid.live.deployment import ZoneService
from hushgrid.live.feeds import shapes
from hushgrid.live.feeds.forecast import NOTHING, Forecaster
from hushgrid.live.feeds.series import USUAL, PriceRange, Series, bounds, series
from hushgrid.live.history import KEPT, History
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.publish import price

FORM = 2  # counts on when a shape changes, so that no proxy keeps an old one
HELD = 200  # bodies of a zone kept for other ranges than the usual one
LARGE = 100_000  # [bytes] a larger body is made again for everyone who asks

JSON, CSV = b"application/json", b"text/csv; charset=utf-8"


class Feed(NamedTuple):
    """One path: what it answers with, and of which type. `shape` None: the newest price alone."""

    path: str
    media: bytes
    shape: Callable[[Series], bytes] | None


FEEDS = (
    Feed("/v1/price", JSON, None),
    Feed("/v1/prices", JSON, shapes.prices),
    Feed("/v1/prices.csv", CSV, shapes.csv),
    Feed("/v1/evcc", JSON, shapes.evcc),
    Feed("/v1/emhass", JSON, shapes.emhass),
    Feed("/v1/octopus", JSON, shapes.octopus),
)
BY_PATH = {feed.path: feed for feed in FEEDS}


@dataclass(frozen=True, slots=True)
class Page:
    """A body and how long it holds: `due` is when the next release is [UTC epoch s]."""

    body: bytes
    media: bytes
    etag: bytes
    due: int

    def age(self, now: float) -> int:
        """How long it may be kept [s]; a second where the next release is late."""
        return max(math.ceil(self.due - now), 1)


class Pages:
    """The feeds of all zones."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._forecasters = {zone: Forecaster(one) for zone, one in history.zones.items()}
        self._kept: dict[str, tuple[str, OrderedDict[tuple[str, PriceRange], Page]]] = {}
        self._mutex = threading.Lock()

    @property
    def zones(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._history.zones)

    def ready(self, path: str, zone: str, span: PriceRange = USUAL) -> Page | None:
        """A page that is made already."""
        newest = self._history.newest(zone)
        head, pages = self._kept.get(zone, ("", None))
        if newest is None or pages is None or head != newest.head:
            return None
        return pages.get((path, span))

    def page(self, path: str, zone: str, span: PriceRange = USUAL) -> Page | None:
        """A page of the newest release; None before the first. It may take a while."""
        page = self.ready(path, zone, span)
        while page is None:
            newest = self._history.newest(zone)
            if newest is None:
                return None
            made = self._made(BY_PATH[path], self._history.zones[zone], newest, span)
            if self._history.newest(zone) is newest:  # else it was overtaken: a tag has one body
                page = made
                self._keep(zone, newest.head, (path, span), page)
        return page

    def _made(self, feed: Feed, zone: ZoneService, newest: ReleaseRecord, span: PriceRange) -> Page:
        due = newest.start + 2 * zone.seconds + zone.grace
        etag = f'"{FORM}-{newest.head[:40]}"'.encode()
        return Page(self._body(feed, zone, newest, span), feed.media, etag, due)

    def _body(
        self, feed: Feed, zone: ZoneService, newest: ReleaseRecord, span: PriceRange
    ) -> bytes:
        if feed.shape is None:
            return json.dumps(price(zone, newest), separators=(",", ":")).encode()
        since, until = bounds(newest, span)
        releases = self._history.between(zone.id, since, until)
        known = NOTHING
        if until > newest.applies_start or feed.shape is shapes.prices:
            known = self._forecasters[zone.id].after(self._history.last(zone.id, KEPT))
        named = (zone.id, zone.currency, zone.seconds)
        return feed.shape(series(*named, newest, releases, known.guesses, span, known.ranges))

    def _keep(self, zone: str, head: str, key: tuple[str, PriceRange], page: Page) -> None:
        if len(page.body) > LARGE and key[1] != USUAL:
            return
        with self._mutex:
            known, pages = self._kept.get(zone, ("", OrderedDict()))
            if known != head:
                pages = OrderedDict()
            pages[key] = page
            while len(pages) > HELD:
                pages.popitem(last=False)
            self._kept[zone] = (head, pages)
