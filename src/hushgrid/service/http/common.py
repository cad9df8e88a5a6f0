"""What the HTTP modules share: errors, headers, cookies, the table of routes, zone states, metrics.

Metrics have two parts. The public part depends on readings only through releases. Counts of
readings, missing meters and the duration of a tick depend on who reports, and attempts to notify
subscribers also count usage reports: these are for operators only. The count of clamped readings
depends on values and is in neither part.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hushgrid.errors import AccessError
from hushgrid.files.deployment import Http, ZoneService
from hushgrid.service.curator import Publisher, Status
from hushgrid.service.ingest import Delivery, Receipt
from hushgrid.service.ledger.records import ReleaseRecord

BEARER = {"WWW-Authenticate": "Bearer"}
NO_STORE: Mapping[str, str] = MappingProxyType({"Cache-Control": "no-store"})


def problem(
    status: int,
    detail: str,
    delivery: Delivery | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """Make an error answer by RFC 9457; it never contains a reading.

    Args:
        status: HTTP status.
        detail: one sentence with the fix.
        delivery: readings that were stored before the error, counted in the answer.
        headers: further headers.
        more: further members of the body.

    Returns:
        The response.
    """
    body: dict[str, Any] = {"type": "about:blank", "status": status, "detail": detail, **more}
    if delivery is not None and any(delivery.receipt):
        body |= delivery.receipt._asdict() | {"problems": list(delivery.problems)}
    return JSONResponse(
        body,
        status_code=status,
        headers={**NO_STORE, **(headers or {})},
        media_type="application/problem+json",
    )


class ParameterError(Exception):
    """A parameter that cannot be used.

    Args:
        field: its name.
        value: its value, None if it is missing.
        fix: what to give instead, without a full stop.
        status: HTTP status.
    """

    def __init__(self, field: str, value: str | None, fix: str, status: int = 400) -> None:
        super().__init__(field)
        self.field, self.value, self.fix, self.status = field, value, fix, status

    def answer(self) -> Response:
        """Make the error answer."""
        found = "missing" if self.value is None else repr(self.value[:60])
        return problem(
            self.status,
            f"{self.field} is {found}; {self.fix}.",
            field=self.field,
            value=None if self.value is None else self.value[:60],
            fix=f"{self.fix}.",
        )


def access_problem(error: AccessError) -> Response:
    """Make the answer to a request without valid credentials.

    Args:
        error: the reason.

    Returns:
        A problem with status 401, 429 or 503.
    """
    if error.kind == "slow_down":
        return problem(429, str(error), headers={"Retry-After": str(math.ceil(error.wait))})
    if error.kind == "server_error":
        return problem(503, "Clients cannot be looked up now; try again.", headers=RETRY)
    return problem(401, str(error), headers=BEARER)


def openadr_problem(refusal: Response) -> Response:
    """Convert a problem to the form of OpenADR: plain JSON with a title.

    Args:
        refusal: an answer of `problem`.

    Returns:
        The response.
    """
    body = json.loads(bytes(refusal.body))
    made = {"title": HTTPStatus(refusal.status_code).phrase, **body}
    headers = {k: v for k, v in refusal.headers.items() if not k.startswith("content-")}
    return JSONResponse(made, refusal.status_code, headers)


RETRY = {"Retry-After": "5"}


async def on_parameter_error(request: Request, error: Exception) -> Response:
    """Answer a request with a parameter that cannot be used.

    Args:
        request: not used.
        error: a ParameterError.

    Returns:
        A problem with field, value and fix.
    """
    del request
    assert isinstance(error, ParameterError)
    return error.answer()


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer an error of the router.

    Args:
        request: not used.
        error: an HTTPException.

    Returns:
        A problem with its status.
    """
    del request
    status = error.status_code if isinstance(error, HTTPException) else 500
    details = {404: "There is nothing here.", 405: "This method is not for this path."}
    headers = getattr(error, "headers", None)
    return problem(status, details.get(status, "The request cannot be answered."), headers=headers)


async def on_failure(request: Request, error: Exception) -> Response:
    """Answer an unexpected exception.

    Args:
        request: not used.
        error: not part of the answer.

    Returns:
        A problem with status 500.
    """
    del request, error  # uvicorn logs its type and place
    return problem(500, "The service failed; the fault is logged.")


Headers = list[tuple[bytes, bytes]]

NOTHING = b"default-src 'none'; frame-ancestors 'none'"  # for data: a browser runs no part of it
YEAR = 31_536_000  # [s]


def security_headers(tls: bool) -> Headers:
    """Return the security headers of every answer.

    Args:
        tls: the server has TLS of its own.

    Returns:
        Names and values.
    """
    always = [
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", NOTHING),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
    ]
    if tls:
        always.append((b"strict-transport-security", b"max-age=%d" % YEAR))
    return always


def with_headers(headers: Headers, always: Headers) -> Headers:
    """Add default headers to those of an answer.

    Args:
        headers: of the answer; they take precedence.
        always: default headers, names in lower case.

    Returns:
        All headers.
    """
    own = {name.lower() for name, _ in headers}
    return headers + [one for one in always if one[0] not in own]


COOKIE = "hushgrid_session"

Pairs = Iterable[tuple[bytes, bytes]]  # headers as in ASGI, names in lower case


def session_cookie(headers: Pairs) -> str | None:
    """Return the session's cookie of a request.

    Args:
        headers: of the request.

    Returns:
        Its value; None if there is none, or more than one (one of them would be forged).

    >>> session_cookie([(b"cookie", b"a=1; hushgrid_session=x"), (b"cookie", b"b=2")])
    'x'
    >>> session_cookie([(b"cookie", b"hushgrid_session=x; hushgrid_session=y")]) is None
    True
    """
    found: list[str] = []
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, equals, text = part.strip().partition("=")
                if equals and key == COOKIE:
                    found.append(text)
    return found[0] if len(found) == 1 and found[0] else None


def same_origin(headers: Pairs, *, required: bool) -> bool:
    """Return True if a request is same-origin or does not come from a browser.

    Judged by Sec-Fetch-Site, else by Origin: headers that no page can set.

    Args:
        headers: of the request.
        required: one of these headers must be present and prove the same origin.

    Returns:
        False for a request of another site's page.

    >>> same_origin([(b"sec-fetch-site", b"same-origin")], required=True)
    True
    >>> same_origin([(b"origin", b"https://a.example"), (b"host", b"b.example")], required=False)
    False
    >>> same_origin([], required=False), same_origin([], required=True)
    (True, False)
    """
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        by_name.setdefault(name, []).append(value.strip())
    site, origin = by_name.get(b"sec-fetch-site"), by_name.get(b"origin")
    if site is not None:  # "none": typed into the address bar, which changes nothing
        return site == [b"same-origin"] or (site == [b"none"] and not required)
    if origin is not None:
        host = by_name.get(b"host", [])
        return len(origin) == len(host) == 1 and _place(origin[0]) == host[0].lower()
    return not required


def _place(origin: bytes) -> bytes:
    """Return host and port of an origin; its scheme may be the one of a proxy."""
    return origin.lower().partition(b"://")[2]


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
        self._passed: dict[str, float] = {}

    def passed(self, status: Status) -> None:
        """Set the status of an open zone after a tick."""
        self._statuses[status.zone] = status
        self._passed[status.zone] = self._steady()

    def failed(self, zone: str) -> None:
        """Mark a zone as closed after an error."""
        self._passed.pop(zone, None)
        if zone in self._statuses:
            self._statuses[zone] = replace(self._statuses[zone], state="closed after an error")

    def follows(self, status: Status, *, runs: bool) -> None:
        """Set the status of a zone of another process; `runs`: it is open there."""
        self._statuses[status.zone] = status
        if runs:
            self._passed[status.zone] = self._steady()
        else:
            self._passed.pop(status.zone, None)

    @property
    def statuses(self) -> list[Status]:
        """Statuses of all zones that have one, in the order of the zones."""
        return [self._statuses[zone] for zone in self.zones if zone in self._statuses]

    def waiting(self) -> list[str]:
        """Return the zones that are not open and ticking; empty means ready."""
        since = self._steady() - STALE
        return [zone for zone in self.zones if self._passed.get(zone, -1e300) < since]


PUBLIC: tuple[str, ...] = ()


class Route(NamedTuple):
    """A method on a path.

    Attributes:
        method: HTTP method.
        path: without query.
        name: name of its handler.
        scopes: one of them is needed; empty for a public path.
        summary: one sentence of the description.
        session: may be read with a session's cookie in place of a token.
    """

    method: str
    path: str
    name: str
    scopes: tuple[str, ...]
    summary: str
    session: bool = False


def routes_of(http: Http) -> tuple[Route, ...]:
    """Return the table of routes: the app, its description and the test of scopes use it.

    Args:
        http: section [http] of the service file.

    Returns:
        All routes under /v1, health and metrics.
    """
    operator = ("operate",)
    figures = PUBLIC if http.metrics == "public" else ("operate",)
    return (
        Route("GET", "/v1/price", "feed", PUBLIC, "The newest price of a zone."),
        Route("GET", "/v1/prices", "feed", PUBLIC, "Published prices and the forecast."),
        Route("GET", "/v1/prices.csv", "feed", PUBLIC, "The same as a table."),
        Route("GET", "/v1/evcc", "feed", PUBLIC, "Prices as evcc's custom forecast reads them."),
        Route("GET", "/v1/emhass", "feed", PUBLIC, "Prices as EMHASS reads them."),
        Route("GET", "/v1/octopus", "feed", PUBLIC, "Prices as Octopus-style tools read them."),
        Route("GET", "/v1/stream", "stream", PUBLIC, "Prices as they come (server-sent events)."),
        Route("POST", "/v1/token", "token", PUBLIC, "A token for a client's id and secret."),
        Route("POST", "/v1/session", "log_in", PUBLIC, "Log in: a session in a cookie."),
        Route("GET", "/v1/session", "session", PUBLIC, "Who is logged in.", True),
        Route("DELETE", "/v1/session", "log_out", PUBLIC, "Log out."),
        Route("POST", "/v1/readings", "readings", ("write_readings",), "Take meter readings."),
        Route("GET", "/v1/status", "status", PUBLIC, "Status of each zone."),
        Route("GET", "/v1/promise", "promise", PUBLIC, "The promise to a zone's homes."),
        Route("GET", "/v1/tradeoff", "tradeoff", PUBLIC, "What other promises would cost."),
        Route("GET", "/v1/operator", "zones", operator, "All zones, for their operator.", True),
        Route("GET", "/v1/operator/zone", "zone", operator, "Loads, noise and budget.", True),
        Route(
            "GET", "/v1/operator/certificate", "certificate", ("operate", "audit"),
            "An audit of a zone's ledger.", True,
        ),
        Route(
            "GET", "/v1/ledger", "ledger", ("audit",), "A zone's signed records, one a line.", True
        ),
        Route("GET", "/v1/openapi.json", "openapi", PUBLIC, "This description."),
        Route("GET", "/v1/docs", "docs", PUBLIC, "This description as a page."),
        Route("GET", "/healthz", "healthy", PUBLIC, "The process is up."),
        Route("GET", "/readyz", "ready", PUBLIC, "Every zone is open and ticking."),
        Route("GET", "/metrics", "figures", figures, "Metrics for Prometheus."),
    )  # fmt: skip


KINDS = ("accepted", "duplicate", "late", "unknown", "malformed")
WAYS = ("http", "mqtt")
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would reveal the exact time of a zone's first release
OUTCOMES = ("delivered", "failed", "refused", "dropped")
SECONDS = (0.1, 1.0, 10.0, 60.0)  # coarse: the exact duration of a tick is not published


class Metrics:
    """Metrics of a process: `registry` is public, a second one is for operators."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        inside = self._operator = CollectorRegistry()
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
            "hushgrid_publisher_failures",
            "Prices not published at once.",
            ["publisher"],
            registry=own,
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
        """Count an attempt to notify a subscriber, or a dropped notification."""
        self._webhooks.labels(outcome).inc()

    def received(self, way: str, receipt: Receipt) -> None:
        """Count the readings of a delivery."""
        for kind, counter in self._received[way]:
            if found := getattr(receipt, kind):
                counter.inc(found)

    def released(self, made: list[ReleaseRecord], seconds: float) -> None:
        """Count the releases of one tick of a zone and observe its duration [s]."""
        for one in made:
            self._releases.labels(one.zone, one.source).inc()
        if made:
            # rounded up to a bucket: the sum of a histogram would reveal the exact duration
            coarse = next((most for most in SECONDS if seconds <= most), 2 * SECONDS[-1])
            self._ticks.labels(made[0].zone).observe(coarse)

    def zone_status(self, status: Status) -> None:
        """Set the gauges of an open zone."""
        self._open.labels(status.zone).set(1)
        self._step.labels(status.zone).set(status.t)
        self._missing.labels(status.zone).set(
            math.nan if status.missing is None else status.missing
        )
        self._spent.labels(status.zone).set(status.spent)
        self._left.labels(status.zone).set(math.inf if status.left is None else status.left)

    def add_cluster(self) -> None:
        """Add the gauges of several curators."""
        own = self.registry
        self._curators = Gauge("hushgrid_curators", "Curators that live.", registry=own)
        self._held = Gauge("hushgrid_leases", "What this curator runs.", registry=own)
        self._taken = Gauge(
            "hushgrid_leases_taken", "Taken since the start from curators that died.", registry=own
        )

    def cluster(self, curators: int, held: int, taken: int) -> None:
        """Set the live curators, and the leases this curator holds and has taken over."""
        self._curators.set(curators)
        self._held.set(held)
        self._taken.set(taken)

    def zone_elsewhere(self, status: Status) -> None:
        """Set the gauges of a zone that another curator runs."""
        self.zone_status(status)
        self._open.labels(status.zone).set(0)

    def failed(self, zone: str) -> None:
        """Count a failed tick."""
        self._open.labels(zone).set(0)
        self._errors.labels(zone).inc()

    def not_published(self, publisher: str) -> None:
        """Count a price that a publisher could not publish."""
        self._failures.labels(publisher).inc()

    def text(self, *, operator: bool = False) -> bytes:
        """Return the public metrics in the text format; for an operator all of them."""
        more = generate_latest(self._operator) if operator else b""
        return generate_latest(self.registry) + more


class CountedPublisher:
    """A publisher whose failures are counted.

    Args:
        publisher: does the work.
        metrics: counts the failures by the name of its class.
    """

    def __init__(self, publisher: Publisher, metrics: Metrics) -> None:
        self._publisher, self._metrics = publisher, metrics
        self._name = type(publisher).__name__

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Publish; a failure is counted and raised again."""
        try:
            self._publisher.publish(zone, release)
        except OSError:
            self._metrics.not_published(self._name)
            raise
