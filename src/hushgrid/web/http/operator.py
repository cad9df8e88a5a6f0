"""/v1/operator: loads, noise, alerts and certificates, for operators only.

The only module of the service that outputs true loads. Loads are kept in memory, and no longer
than the readings themselves. No answer may be cached.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query
from starlette.responses import HTMLResponse, Response

from hushgrid.belief.filter import Expectations
from hushgrid.curator.clock import Clock, utc
from hushgrid.curator.ingest import FEWEST, SMALL, Disagreements, Units
from hushgrid.curator.promise import promise_content
from hushgrid.curator.status import (
    NO_SIZE,
    OLD,
    STEPPED,
    UNTIL_RESUMED,
    WAITS,
    Inside,
    Status,
    explanation,
)
from hushgrid.errors import HushgridError
from hushgrid.files.deployment import ZoneService
from hushgrid.model.zone import public_rate
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.meters.columns import Interval
from hushgrid.web.http.common import OF_ZONE, RETRY, Refusal, refusals
from hushgrid.web.http.metrics import ZoneStates
from hushgrid.web.http.middleware import BY_SESSION, scopes
from hushgrid.web.http.models import OperatorSummary, OperatorZone
from hushgrid.web.http.prices import ZoneName, requested_zone
from hushgrid.web.prices import History

DAY = 86_400  # [s]
MANY, MOST = 0.1, 0.5  # shares of meters missing: a warning, an error

_AWAY = {
    "PriceFile": "The price file cannot be written; see that its folder and room on disk are there",
    "MqttPrices": "Prices do not reach the MQTT broker; see that it runs and takes logins",
    "MqttEvents": "OpenADR events do not reach the MQTT broker; see that it runs and takes logins",
}


class Alert(NamedTuple):
    """A problem of a zone.

    Attributes:
        level: error or warning.
        text: one sentence with the fix.
    """

    level: Literal["error", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class ZoneHealth:
    """State of a zone for its operator.

    Attributes:
        zone: its service.
        now: UTC [s].
        status: of the last tick, None before the first.
        inside: noise of the next release.
        newest: last release.
        open: the zone ticked lately.
        failing: names of publishers that fail.
        jumped: the clock jumped within the last hour.
        disagree: meters and intervals with readings that contradict each other.
        small: senders whose last values are all far too small.
    """

    zone: ZoneService
    now: float
    status: Status | None
    inside: Inside
    newest: ReleaseRecord | None
    open: bool
    failing: Sequence[str] = ()
    jumped: bool = False
    disagree: int = 0
    small: Sequence[str] = ()

    def due(self, steps: int = 0) -> int:
        """Return when a future release is due [UTC s]; 0 is the next one."""
        t = (self.zone.begins // self.zone.seconds - 1) if self.status is None else self.status.t
        return (t + steps + 2) * self.zone.seconds + self.zone.grace

    @property
    def missing(self) -> tuple[int | None, float | None]:
        """Number and share of meters without a reading in the last interval; None if unknown."""
        lost = None if self.status is None else self.status.missing
        return lost, None if lost is None else lost / len(self.zone.meters)


def alerts(health: ZoneHealth) -> list[Alert]:
    """Return the alerts of a zone.

    Args:
        health: its state.

    Returns:
        Errors first, then warnings.
    """
    findings = [*_running(health), *_source(health), *_connections(health)]
    return sorted(findings, key=lambda alert: alert.level != "error")


def _running(health: ZoneHealth) -> list[Alert]:
    newest, zone = health.newest, health.zone
    if newest is not None and health.now < newest.published_at - 1:
        lag = newest.published_at - math.floor(health.now)
        text = f"The clock is {lag} s behind the last release and the zone waits; set the clock."
        return [Alert("error", text)]
    if not health.open:
        return [
            Alert(
                "error",
                "The zone is closed after an error and is opened again by itself; see in the log"
                " whether the disk, the database or the terms are the reason.",
            )
        ]
    if health.status is not None and health.status.state in (STEPPED, OLD):
        text = (
            "The clock was set forward, or the last release is more than a week old, so nothing is"
            " published; set the clock, or run hushgrid resume if it is right."
        )
        return [Alert("error", text)]
    if health.status is not None and health.now > health.due() + zone.seconds:
        text = (
            f"No price has come since {utc(health.due())}; see in the log what holds the loop up."
        )
        return [Alert("error", text)]
    return []


def _source(health: ZoneHealth) -> list[Alert]:
    if health.status is None:
        return []
    zone = health.zone
    constant = f"the constant {zone.fallback_rate:g} {zone.currency}/kWh"
    substitute = "a forecast without readings"
    if health.status.state == "fallback only":
        text = f"No model can be used, so the price is {constant}; run hushgrid check."
        return [Alert("error", text)]
    if health.status.state == UNTIL_RESUMED:
        text = (
            "The ledger lacks releases that may have been published (a fail-over of the database,"
            f" an older copy), so the price is {substitute}; run hushgrid resume, which books"
            " their loss."
        )
        return [Alert("error", text)]
    if health.status.state == NO_SIZE:
        text = (
            "The meter store lacks the secret of a block of steps that has begun (it was deleted or"
            f" put back), so the price is {substitute} until the next block."
        )
        return [Alert("warning", text)]
    if health.status.state == WAITS:
        text = (
            "What was published before, or may be lost, leaves no room for a price from readings"
            f" under the promise, so the price is {substitute} until the account admits a block"
            " (hushgrid check states the time)."
        )
        return [Alert("warning", text)]
    if health.status.state != "forecast only":
        return []
    text = (
        f"The terms of the file cannot go on with another week, so the price is {substitute}; see"
        " in the log what is wrong with them, and run hushgrid check."
    )
    return [Alert("error", text)]


def _connections(health: ZoneHealth) -> list[Alert]:
    findings = []
    lost, share = health.missing
    if share is not None and share > MANY:
        findings.append(
            Alert(
                "error" if share > MOST else "warning",
                f"{lost} of {len(health.zone.meters)} meters ({share:.0%}) sent nothing for the"
                " last interval; see that their head-end runs and reaches the service.",
            )
        )
    for name in dict.fromkeys(health.failing):
        findings.append(Alert("warning", f"{_AWAY.get(name, f'{name} does not take prices')}."))
    if health.jumped:
        text = "The clock jumped within the last hour; see that it is kept by NTP."
        findings.append(Alert("warning", text))
    if health.disagree:
        text = (
            f"Readings of {health.disagree} meters and intervals contradict earlier ones, which"
            " are kept; see disagreements of /v1/operator/zone, and who else sends for them."
        )
        findings.append(Alert("warning", text))
    if health.small:
        text = (
            f"Readings of at least {FEWEST} meters from {', '.join(health.small)} were all below"
            f" {100 * SMALL:.0f} % of the usual value; see that they are Wh, not kWh."
        )
        findings.append(Alert("warning", text))
    return findings


KEPT = 400  # loads of a zone


class Sum(NamedTuple):
    """Load of an interval. Secret.

    Attributes:
        load: [Wh].
        missing: number of missing meters.
    """

    load: int
    missing: int


class ReadingSource(Protocol):
    """Source of stored readings."""

    def peek(self, zone: str, start: int) -> Interval | None:
        """Return the readings of an interval; None if they cannot be read."""
        ...


class Loads:
    """True loads of closed intervals, each summed once. Thread-safe.

    Args:
        zones: the zones.
        readings: source of readings; None if there is none.
    """

    def __init__(self, zones: Iterable[ZoneService], readings: ReadingSource | None) -> None:
        self._readings = readings
        self._zones, self._expected = dict[str, ZoneService](), dict[str, Expectations]()
        for zone in zones:
            self.renew(zone)
        self._loads: dict[str, dict[int, Sum]] = {zone: {} for zone in self._zones}
        self._mutex = threading.Lock()  # guards _loads
        self._adding = threading.Lock()  # one thread at a time reads the store

    def renew(self, zone: ZoneService) -> None:
        """Go on with a zone over another week; its loads that are known stay."""
        self._zones[zone.id] = zone
        self._expected[zone.id] = Expectations(zone.scenario, usual=zone.policy.usual)

    def of(self, zone: str, starts: Sequence[int], now: float) -> dict[int, Sum]:
        """Return the loads of intervals of the present week whose readings are still stored.

        A missing meter counts as in the release: with its public expectation.
        """
        service = self._zones[zone]
        oldest_start = max(service.begins, _oldest(service, now))
        with self._adding:
            for start in sorted(set(starts)):
                if start >= oldest_start and start not in self._loads[zone]:
                    self._add(service, start)
        self.forget(now)
        with self._mutex:
            loads = self._loads[zone]
            return {start: loads[start] for start in starts if start in loads}

    def forget(self, now: float) -> None:
        """Drop loads whose readings are deleted."""
        with self._mutex:
            for zone, loads in self._loads.items():
                oldest = _oldest(self._zones[zone], now)
                for start in [start for start in loads if start < oldest]:
                    del loads[start]
                for start in sorted(loads)[:-KEPT]:
                    del loads[start]

    def _add(self, zone: ZoneService, start: int) -> None:
        interval = None if self._readings is None else self._readings.peek(zone.id, start)
        houses = zone.scenario.zone
        if interval is None or interval.wh.size != houses.n_houses:
            return
        step = (start - zone.begins) // zone.seconds + 1
        load = interval.tally(houses, lambda: self._expected[zone.id].at(step)).load
        load_sum = Sum(load, interval.missing)
        with self._mutex:
            self._loads[zone.id][start] = load_sum


def _oldest(zone: ZoneService, now: float) -> int:
    """Return the start of the oldest interval that is not purged [UTC s]."""
    return int(now) - zone.retention - zone.seconds + 1


SERIES = 192  # releases of a zone
JUMPED = 3600.0  # [s] that a jump of the clock is reported

NOT_OPEN = Inside.of(None)


class Operator:
    """Figures for operators, computed on demand.

    Args:
        history: releases of the zones.
        board: status of the zones.
        clock: time of the service.
        mode: simulation or production.
        loads: true loads; none if absent.
        publishers: names by the index that `Inside.away` uses.
        disagreements: readings that contradict each other; none if absent.
        units: senders whose values are perhaps in another unit; none if absent.
        steady: monotonic clock [s].
    """

    def __init__(
        self,
        history: History,
        board: ZoneStates,
        clock: Clock,
        *,
        mode: str = "simulation",
        loads: Loads | None = None,
        publishers: tuple[str, ...] = (),
        disagreements: Disagreements | None = None,
        units: Units | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history, self._board, self._clock, self._mode = history, board, clock, mode
        self._loads = Loads(history.zones.values(), None) if loads is None else loads
        self._publishers, self._steady = publishers, steady
        self._disagreements = disagreements or Disagreements(history.zones.values())
        self._units = units or Units()
        self._inside: dict[str, Inside] = {}
        self._jumps, self._jumped = 0, -math.inf

    def update(self, zone: str, inside: Inside) -> None:
        """Set the noise of an open zone after a tick."""
        self._inside[zone] = inside

    def passed(self) -> None:
        """Drop old loads and check the clock for jumps, after a pass over all zones."""
        self._loads.forget(self._clock.now())
        jumps = int(getattr(self._clock, "jumps", 0))
        if jumps > self._jumps:
            self._jumps, self._jumped = jumps, self._steady()

    def summary(self) -> dict[str, Any]:
        """Return one line of figures for each zone."""
        zones = []
        for health in self._healths(self._history.zones.values()):
            zones.append(
                {
                    "zone": health.zone.id,
                    "state": _state(health),
                    "t": None if health.status is None else health.status.t,
                    "missing": health.missing[0],
                    "alerts": len(alerts(health)),
                }
            )
        return {"now": utc(int(self._clock.now())), "zones": zones}

    def zone(self, name: str) -> dict[str, Any]:
        """Return all figures of a zone; reads the meter store for new loads."""
        zone = self._history.zones[name]
        (health,) = self._healths([zone])
        lost, share = health.missing
        return {
            "zone": name,
            "mode": self._mode,
            "state": _state(health),
            "now": utc(int(health.now)),
            "t": None if health.status is None else health.status.t,
            "interval_s": zone.seconds,
            "time_zone": zone.time_zone,
            "currency": zone.currency,
            "houses": len(zone.meters),
            "promise": {**promise_content(zone), "eta_set_by": zone.eta_set_by or None},
            "noise": _noise(zone, health.inside),
            "room": None if health.status is None else health.status.room,
            "missing": {"meters": lost, "share": share},
            "disagreements": [
                {"meter": meter, "start": utc(start)}
                for meter, start in self._disagreements.of(name)
            ],
            "series": self._series(zone, health.now),
            "alerts": [alert._asdict() for alert in alerts(health)],
            "head": None if health.newest is None else health.newest.head,
        }

    def _healths(self, zones: Iterable[ZoneService]) -> Iterator[ZoneHealth]:
        statuses = {status.zone: status for status in self._board.statuses}
        waiting, now = set(self._board.waiting()), self._clock.now()
        jumped = self._steady() - self._jumped < JUMPED
        for zone in zones:
            inside = self._inside.get(zone.id, NOT_OPEN)
            yield ZoneHealth(
                zone,
                now,
                statuses.get(zone.id),
                inside,
                self._history.newest(zone.id),
                open=zone.id not in waiting,
                failing=[self._publishers[i] for i in inside.away if i < len(self._publishers)],
                jumped=jumped,
                disagree=len(self._disagreements.of(zone.id)),
                small=self._units.of(zone.id, now - DAY),
            )

    def _series(self, zone: ZoneService, now: float) -> list[dict[str, Any]]:
        releases = self._history.last(zone.id, SERIES)
        loads = self._loads.of(zone.id, [release.start for release in releases], now)
        return [
            _row(zone, release, loads.get(release.start), self._history.of_tariff(zone.id, release))
            for release in releases
        ]


def _state(health: ZoneHealth) -> str:
    return "not open" if health.status is None else health.status.state


def _row(
    zone: ZoneService, release: ReleaseRecord, load_sum: Sum | None, of_tariff: bool
) -> dict[str, Any]:
    """Return a release with its load, exact rate and missing meters, if readings are stored.

    Without the rate where the release was priced by an earlier tariff.
    """
    load, tariff = None if load_sum is None else load_sum.load, zone.scenario.tariff
    return {
        "t": release.t,
        "start": utc(release.start),
        "applies_from": utc(release.applies_start),
        "load": None if load is None else load - tariff.offset,
        "optimal": public_rate(load, tariff) if load is not None and of_tariff else None,
        "rate": release.rate,
        "load_hat": None if release.load_hat is None else release.net_load_hat,
        "put_back": release.put_back,
        "scale": release.scale,
        "spread": release.spread,
        "missing": None if load_sum is None else load_sum.missing,
        "source": release.source,
    }


def _noise(zone: ZoneService, inside: Inside) -> dict[str, Any]:
    figures = {
        name: getattr(inside, name) for name in ("scale", "spread", "house", "model", "protected")
    }
    return figures | {
        "epsilon": _finite(inside.epsilon),
        "epsilon_any": _finite(inside.epsilon_any),
        "why": explanation(zone, inside),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


Certify = Callable[[str], dict[str, Any]]


OPERATOR = [BY_SESSION, scopes("operate")]
Format = Annotated[Literal["json", "html"], Query(description="As JSON, or as a page.")]


def add_operator(
    router: APIRouter, operator: Operator, zones: Sequence[str], certify: Certify | None
) -> None:
    """Add the routes of operators. Each has threads of its own: a slow store delays no other.

    Args:
        router: gets the routes.
        operator: figures.
        zones: ids of all zones.
        certify: makes the certificate of a zone, as JSON; None without a ledger.
    """
    summary_threads, zone_threads = CapacityLimiter(2), CapacityLimiter(4)
    certificate_threads = CapacityLimiter(1)

    @router.get(
        "/v1/operator",
        summary="All zones, for their operator.",
        response_model=OperatorSummary,
        dependencies=OPERATOR,
    )
    async def summary() -> dict[str, Any]:
        return await to_thread.run_sync(operator.summary, limiter=summary_threads)

    @router.get(
        "/v1/operator/zone",
        summary="Loads, noise and the room of the account.",
        response_model=OperatorZone,
        responses=OF_ZONE,
        dependencies=OPERATOR,
    )
    async def figures(zone: ZoneName = None) -> dict[str, Any]:
        name = requested_zone(zone, zones)
        return await to_thread.run_sync(operator.zone, name, limiter=zone_threads)

    @router.get(
        "/v1/operator/certificate",
        summary="An audit of a zone's ledger.",
        response_description="The certificate; docs/audit.md has its keys.",
        response_model=dict[str, Any],
        responses={
            200: {"content": {"text/html": {}}},
            **OF_ZONE,
            **refusals({503: "The ledger cannot be read now."}),
        },
        dependencies=[BY_SESSION, scopes("operate", "audit")],
    )
    async def certificate(zone: ZoneName = None, format: Format = "json") -> Any:  # noqa: A002
        name = requested_zone(zone, zones)
        refusal = Refusal(503, "The ledger cannot be read now; try again.", RETRY)
        if certify is None:
            raise refusal
        try:
            values = await to_thread.run_sync(certify, name, limiter=certificate_threads)
        except (HushgridError, OSError):  # a store's message may name a host or a file
            raise refusal from None
        if format == "json":
            return values
        from hushgrid.report.certificate import certificate_page

        return _html_page(await to_thread.run_sync(certificate_page, values))


def _html_page(text: str) -> Response:
    """The answer with a page whose only resources are its own styles and pictures."""
    styles = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in styles]
    sources = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    policy = (
        f"default-src 'none'; style-src {sources}; img-src data:; frame-ancestors 'none';"
        " base-uri 'none'; form-action 'none'"
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})
