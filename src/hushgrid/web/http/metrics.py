"""Health of the zones, and metrics for Prometheus: public ones, and an operator's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from hushgrid.curator.ingest import Receipt
from hushgrid.curator.publishers import PresentPrices, Publisher
from hushgrid.curator.status import IN_DOUBT, Status
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord
from hushgrid.web.http.common import UnderWay
from hushgrid.web.http.models import Source

STALE = 60.0  # [s] without a tick, after which a zone is not ready


class ZoneStates:
    """Newest status of each zone, written by the process and read by handlers.

    Args:
        zones: ids of all zones.
        steady: monotonic clock [s].
    """

    def __init__(
        self, zones: Iterable[str] = (), steady: Callable[[], float] = time.monotonic
    ) -> None:
        self.zones, self._steady = tuple(zones), steady
        self._statuses: dict[str, Status] = {}
        self._tick_times: dict[str, float] = {}

    def passed(self, status: Status) -> None:
        """Set the status of an open zone after a tick."""
        self._statuses[status.zone] = status
        self._tick_times[status.zone] = self._steady()

    def failed(self, zone: str) -> None:
        """Mark a zone as closed after an error."""
        self._tick_times.pop(zone, None)
        if zone in self._statuses:
            self._statuses[zone] = replace(self._statuses[zone], state="closed after an error")

    @property
    def statuses(self) -> list[Status]:
        """Statuses of all zones that have one, in the order of the zones."""
        return [self._statuses[zone] for zone in self.zones if zone in self._statuses]

    def waiting(self) -> list[str]:
        """Return the zones that are not open and ticking; empty means ready."""
        oldest = self._steady() - STALE
        return [zone for zone in self.zones if self._tick_times.get(zone, -1e300) < oldest]


KINDS = ("accepted", "duplicate", "late", "unknown", "malformed", "early", "damaged")
WAYS = ("http", "mqtt")
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would reveal the exact time of a zone's first release
OUTCOMES = ("delivered", "failed", "refused", "dropped")
SECONDS = (0.1, 1.0, 10.0, 60.0)  # coarse: the exact duration of a tick is not published


class Metrics:
    """Metrics of a process: `registry` is public, a second one is for operators.

    Counters exist from the start, with 0: Prometheus does not see the first event of others.

    Args:
        zones: ids of all zones.
    """

    def __init__(self, zones: Iterable[str] = ()) -> None:
        self.registry, self._operator = CollectorRegistry(), CollectorRegistry()
        public: Any = {"registry": self.registry, "namespace": "hushgrid"}
        inside: Any = {"registry": self._operator, "namespace": "hushgrid"}
        zone = ["zone"]
        self._releases = Counter(
            "releases", "Releases since the start.", ["zone", "source"], **public
        )
        self._step = Gauge("step", "The zone's last step.", zone, **public)
        self._room = Gauge("room", "Share of the promise that the account admits.", zone, **public)
        self._open = Gauge("zone_open", "1 while the zone runs.", zone, **public)
        self._clock = Gauge(
            "clock_in_doubt", "1 while the zone waits for the clock.", zone, **public
        )
        self._energy = Gauge("price_energy", "Price in force [currency/kWh].", zone, **public)
        self._total = Gauge("price_with_charges", "Price in force with charges.", zone, **public)
        self._feed_in = Gauge("price_feed_in", "Feed-in price in force.", zone, **public)
        self._listed = Gauge(
            "prices_until_seconds", "When prices published ahead end [UTC s].", zone, **public
        )
        self._errors = Counter("zone_errors", "Passes that failed.", zone, **public)
        self._failures = Counter(
            "publisher_failures", "Prices not published at once.", ["publisher"], **public
        )
        self._covariate_failures = Counter(
            "covariate_failures",
            "Covariates not fetched, or without a value for a release.",
            ["zone", "covariate"],
            **public,
        )
        self._readings = Counter(
            "readings", "Readings by what became of them.", ["way", "kind"], **inside
        )
        self._missing = Gauge(
            "missing_houses", "Houses missing in the last interval.", zone, **inside
        )
        self._lost_intervals = Gauge(
            "readings_lost", "Intervals with acknowledged readings that are gone.", zone, **inside
        )
        self._ticks = Histogram(
            "tick_seconds", "Time of a pass with releases, up to its bucket.", zone,
            buckets=SECONDS, **inside,
        )  # fmt: skip
        self._webhooks = Counter(
            "webhooks", "Attempts to notify subscribers.", ["outcome"], **inside
        )
        for outcome in OUTCOMES:
            self._webhooks.labels(outcome)
        for name in zones:
            self._open.labels(name)
            self._errors.labels(name)
            for source in get_args(Source):
                self._releases.labels(name, source)
        refusals = Counter(
            "bytes_refused", "Requests refused because too many bytes were under way.", **inside
        )
        self.under_way = UnderWay(on_refusal=refusals.inc)
        size = Gauge("bytes_under_way", "Bytes of bodies and answers in memory.", **inside)
        size.set_function(lambda: self.under_way.total)
        self._received = {
            way: [(kind, self._readings.labels(way, kind)) for kind in KINDS] for way in WAYS
        }

    def count_notification(self, outcome: str) -> None:
        """Count an attempt to notify a subscriber, or a dropped notification."""
        self._webhooks.labels(outcome).inc()

    def received(self, way: str, receipt: Receipt) -> None:
        """Count the readings of a delivery."""
        for kind, counter in self._received[way]:
            if count := getattr(receipt, kind):
                counter.inc(count)

    def released(self, releases: list[ReleaseRecord], seconds: float) -> None:
        """Count the releases of one tick of a zone and observe its duration [s]."""
        for release in releases:
            self._releases.labels(release.zone, release.source).inc()
        if releases:
            # rounded up to a bucket: the sum of a histogram would reveal the exact duration
            coarse = next((bucket for bucket in SECONDS if seconds <= bucket), 2 * SECONDS[-1])
            self._ticks.labels(releases[0].zone).observe(coarse)

    def zone_status(self, status: Status) -> None:
        """Set the gauges of an open zone."""
        self._open.labels(status.zone).set(1)
        self._step.labels(status.zone).set(status.t)
        self._clock.labels(status.zone).set(status.state in IN_DOUBT)
        self._missing.labels(status.zone).set(
            math.nan if status.missing is None else status.missing
        )
        self._room.labels(status.zone).set(status.room)

    def readings_lost(self, zone: str, intervals: int) -> None:
        """Set of how many intervals acknowledged readings are gone."""
        self._lost_intervals.labels(zone).set(intervals)

    def failed(self, zone: str) -> None:
        """Count a failed tick."""
        self._open.labels(zone).set(0)
        self._errors.labels(zone).inc()

    def failures_of(self, publisher: str) -> Counter:
        """Return the counter of prices that a publisher could not publish."""
        return self._failures.labels(publisher)

    def priced(self, zone: ZoneService, price: Mapping[str, Any]) -> None:
        """Set the price in force, as /v1/price has it."""
        self._energy.labels(zone.id).set(price["price"])
        self._total.labels(zone.id).set(price["total"])
        if "feed_in" in price:
            self._feed_in.labels(zone.id).set(price["feed_in"])

    def listed(self, zone: ZoneService, record: PricesRecord) -> None:
        """Set when the prices end that are published ahead."""
        self._listed.labels(zone.id).set(record.ends)

    def not_fetched(self, zone: str, covariate: str) -> None:
        """Count a covariate that its source did not give."""
        self._covariate_failures.labels(zone, covariate).inc()

    def text(self, *, operator: bool = False) -> bytes:
        """Return the public metrics in the text format; for an operator all of them."""
        operator_text = generate_latest(self._operator) if operator else b""
        return generate_latest(self.registry) + operator_text


class CountedPublisher:
    """A publisher whose failures are counted.

    Args:
        publisher: does the work.
        metrics: counts the failures by the name of its class.
    """

    def __init__(self, publisher: Publisher, metrics: Metrics) -> None:
        self._publisher, self._name = publisher, type(publisher).__name__
        self._failures = metrics.failures_of(self._name)

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Publish; a failure is counted and raised again."""
        self._counted(self._publisher.publish, zone, release)

    def publish_list(self, zone: ZoneService, record: PricesRecord) -> None:
        """Publish a list of prices, where the publisher does; a failure is counted as well."""
        self._counted(getattr(self._publisher, "publish_list", _ignore), zone, record)

    def show(self, zone: ZoneService, prices: PresentPrices) -> None:
        """Show the price in force, where the publisher does; a failure is counted as well."""
        self._counted(getattr(self._publisher, "show", _ignore), zone, prices)

    def _counted(self, work: Callable[..., None], *values: object) -> None:
        try:
            work(*values)
        except OSError:
            self._failures.inc()
            raise


def _ignore(*values: object) -> None:
    del values
