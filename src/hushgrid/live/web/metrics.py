"""Figures for Prometheus, in two parts.

The public part depends on no reading but through releases. How many readings came, what became of
them, how many meters were missing and how long a pass took depend on who reports, and attempts to
notify subscribers also count usage reports: they are for operators alone. How many readings were
clamped depends on values and is in neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from hushgrid.live.curator import Status
from hushgrid.live.deployment import ZoneService
from hushgrid.live.gate import Receipt
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.publish import Publisher

KINDS = ("accepted", "duplicate", "late", "unknown", "malformed")
WAYS = ("http", "mqtt")
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would tell the exact time of a zone's first release
OUTCOMES = ("delivered", "failed", "refused", "dropped")
SECONDS = (0.1, 1.0, 10.0, 60.0)  # coarse: the exact time of a tick is nobody's business


class Metrics:
    """The registries of a process: `registry` is public, the other for operators."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        inside = self._inside = CollectorRegistry()
        self._releases = Counter(
            "hushgrid_releases", "Releases since the start.", ["zone", "source"], registry=own
        )
        self._readings = Counter(
            "hushgrid_readings", "Readings by what became of them.", ["way", "kind"],
            registry=inside,
        )  # fmt: skip
        self._missing = Gauge(
            "hushgrid_missing_houses", "Houses missing in the last interval.", ["zone"],
            registry=inside,
        )  # fmt: skip
        self._step = Gauge("hushgrid_step", "The zone's last step.", ["zone"], registry=own)
        self._spent = Gauge(
            "hushgrid_epsilon_spent", "Loss of the epoch's releases.", ["zone"], registry=own
        )
        self._left = Gauge("hushgrid_epsilon_left", "Budget left.", ["zone"], registry=own)
        self._open = Gauge("hushgrid_zone_open", "1 while the zone runs.", ["zone"], registry=own)
        self._failures = Counter(
            "hushgrid_publisher_failures", "Prices not shown at once.", ["publisher"], registry=own
        )
        self._errors = Counter(
            "hushgrid_zone_errors", "Passes that failed.", ["zone"], registry=own
        )
        self._ticks = Histogram(
            "hushgrid_tick_seconds", "Time of a pass with releases, up to its bucket.", ["zone"],
            registry=inside, buckets=SECONDS,
        )  # fmt: skip
        self._webhooks = Counter(
            "hushgrid_webhooks", "Attempts to notify subscribers.", ["outcome"], registry=inside
        )
        for outcome in OUTCOMES:
            self._webhooks.labels(outcome)
        self._received = {
            way: [(kind, self._readings.labels(way, kind)) for kind in KINDS] for way in WAYS
        }

    def sent(self, outcome: str) -> None:
        """Count an attempt to notify, or a notification that is given up."""
        self._webhooks.labels(outcome).inc()

    def received(self, way: str, receipt: Receipt) -> None:
        """Count a delivery."""
        for kind, counter in self._received[way]:
            if found := getattr(receipt, kind):
                counter.inc(found)

    def released(self, made: list[ReleaseRecord], seconds: float) -> None:
        """Count the releases of one pass over a zone, and its time."""
        for one in made:
            self._releases.labels(one.zone, one.source).inc()
        if made:
            # rounded up to a bucket: a histogram's sum would tell each time exactly
            coarse = next((most for most in SECONDS if seconds <= most), 2 * SECONDS[-1])
            self._ticks.labels(made[0].zone).observe(coarse)

    def stands(self, status: Status) -> None:
        """Note where an open zone stands."""
        self._open.labels(status.zone).set(1)
        self._step.labels(status.zone).set(status.t)
        self._missing.labels(status.zone).set(
            math.nan if status.missing is None else status.missing
        )
        self._spent.labels(status.zone).set(status.spent)
        self._left.labels(status.zone).set(math.inf if status.left is None else status.left)

    def share(self) -> None:
        """Have figures of several curators."""
        own = self.registry
        self._curators = Gauge("hushgrid_curators", "Curators that live.", registry=own)
        self._held = Gauge("hushgrid_leases", "What this curator runs.", registry=own)
        self._taken = Gauge(
            "hushgrid_leases_taken", "Taken since the start from curators that died.", registry=own
        )

    def shares(self, curators: int, held: int, taken: int) -> None:
        """Note who lives, and what this curator has."""
        self._curators.set(curators)
        self._held.set(held)
        self._taken.set(taken)

    def follows(self, status: Status) -> None:
        """Note where a zone stands that runs elsewhere."""
        self.stands(status)
        self._open.labels(status.zone).set(0)

    def failed(self, zone: str) -> None:
        """Count a pass that failed."""
        self._open.labels(zone).set(0)
        self._errors.labels(zone).inc()

    @contextmanager
    def showing(self, publisher: str) -> Iterator[None]:
        """Count a price that could not be shown."""
        try:
            yield
        except OSError:
            self._failures.labels(publisher).inc()
            raise

    def text(self, *, operator: bool = False) -> bytes:
        """The public figures in the text format; for an operator with those that are not."""
        inside = generate_latest(self._inside) if operator else b""
        return generate_latest(self.registry) + inside


class Counted:
    """A publisher whose failures are counted."""

    def __init__(self, publisher: Publisher, metrics: Metrics) -> None:
        self._publisher, self._metrics = publisher, metrics
        self._name = type(publisher).__name__

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Pass it on."""
        with self._metrics.showing(self._name):
            self._publisher.publish(zone, release)
