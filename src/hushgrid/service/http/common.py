"""Figures for Prometheus, in two parts.

The public part depends on no reading but through releases. How many readings came, what became of
them, how many meters were missing and how long a pass took depend on who reports, and attempts to
notify subscribers also count usage reports: they are for operators alone. How many readings were
clamped depends on values and is in neither.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
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

# --------------------------------------------------------------------------------------------------
# Errors as RFC 9457 has them: one sentence each, and nothing of a reading.


BEARER = {"WWW-Authenticate": "Bearer"}


def problem(
    status: int,
    detail: str,
    delivery: Delivery | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """An error; with what was taken before it, where something was."""
    body: dict[str, Any] = {"type": "about:blank", "status": status, "detail": detail, **more}
    if delivery is not None and any(delivery.receipt):
        body |= delivery.receipt._asdict() | {"problems": list(delivery.problems)}
    return JSONResponse(
        body,
        status_code=status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="application/problem+json",
    )


class UnfitError(Exception):
    """A parameter that cannot be used: its name, its value and the fix."""

    def __init__(self, field: str, value: str | None, fix: str, status: int = 400) -> None:
        super().__init__(field)
        self.field, self.value, self.fix, self.status = field, value, fix, status

    def answer(self) -> Response:
        """As a problem."""
        said = "missing" if self.value is None else repr(self.value[:60])
        return problem(
            self.status,
            f"{self.field} is {said}; {self.fix}.",
            field=self.field,
            value=None if self.value is None else self.value[:60],
            fix=f"{self.fix}.",
        )


def turned_away(error: AccessError) -> Response:
    """Why somebody may not."""
    if error.kind == "slow_down":
        return problem(429, str(error), headers={"Retry-After": str(math.ceil(error.wait))})
    if error.kind == "server_error":
        return problem(503, "Clients cannot be looked up now; try again.", headers=RETRY)
    return problem(401, str(error), headers=BEARER)


def openadr(refusal: Response) -> Response:
    """A problem as OpenADR has it: plain JSON with a title."""
    body = json.loads(bytes(refusal.body))
    made = {"title": HTTPStatus(refusal.status_code).phrase, **body}
    headers = {k: v for k, v in refusal.headers.items() if not k.startswith("content-")}
    return JSONResponse(made, refusal.status_code, headers)


RETRY = {"Retry-After": "5"}


async def refused(request: Request, error: Exception) -> Response:
    """What the framework refuses."""
    del request
    status = error.status_code if isinstance(error, HTTPException) else 500
    said = {404: "There is nothing here.", 405: "This method is not for this path."}
    headers = getattr(error, "headers", None)
    return problem(status, said.get(status, "The request cannot be answered."), headers=headers)


async def failed(request: Request, error: Exception) -> Response:
    """What nobody foresaw."""
    del request, error  # uvicorn logs its type and place
    return problem(500, "The service failed; the fault is logged.")


# --------------------------------------------------------------------------------------------------
# Headers that every answer carries.


Headers = list[tuple[bytes, bytes]]

NOTHING = b"default-src 'none'; frame-ancestors 'none'"  # for data: a browser runs nothing of it
YEAR = 31_536_000  # [s]


def security_headers(tls: bool) -> Headers:
    """What browsers are told about any answer of ours."""
    always = [
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", NOTHING),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
    ]
    if tls:
        always.append((b"strict-transport-security", b"max-age=%d" % YEAR))
    return always


def adorned(headers: Headers, always: Headers) -> Headers:
    """The headers of an answer with ours, but for those it sets itself."""
    own = {name.lower() for name, _ in headers}
    return headers + [one for one in always if one[0] not in own]


# --------------------------------------------------------------------------------------------------
# The session's cookie, and where a request with one comes from. Pure.


NAME = "hushgrid_session"

Pairs = Iterable[tuple[bytes, bytes]]  # headers as ASGI has them, names in small letters


def session_in(headers: Pairs) -> str | None:
    """The session that a request brings along; none where it brings two, since one is not ours.

    >>> session_in([(b"cookie", b"a=1; hushgrid_session=x"), (b"cookie", b"b=2")])
    'x'
    >>> session_in([(b"cookie", b"hushgrid_session=x; hushgrid_session=y")]) is None
    True
    """
    found: list[str] = []
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, equals, text = part.strip().partition("=")
                if equals and key == NAME:
                    found.append(text)
    return found[0] if len(found) == 1 and found[0] else None


def ours(headers: Pairs, *, told: bool) -> bool:
    """Whether a page of our own asks, or nobody's page does, as far as the browser tells.

    `told`: the browser must have said so. It says so in headers that no page can set.

    >>> ours([(b"sec-fetch-site", b"same-origin")], told=True)
    True
    >>> ours([(b"origin", b"https://a.example"), (b"host", b"b.example")], told=False)
    False
    >>> ours([], told=False), ours([], told=True)
    (True, False)
    """
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        by_name.setdefault(name, []).append(value.strip())
    site, origin = by_name.get(b"sec-fetch-site"), by_name.get(b"origin")
    if site is not None:  # "none": typed into the address bar, which changes nothing
        return site == [b"same-origin"] or (site == [b"none"] and not told)
    if origin is not None:
        host = by_name.get(b"host", [])
        return len(origin) == len(host) == 1 and _place(origin[0]) == host[0].lower()
    return not told


def _place(origin: bytes) -> bytes:
    """Host and port of an origin; the scheme may be a proxy's in front of us."""
    return origin.lower().partition(b"://")[2]


# --------------------------------------------------------------------------------------------------
# What the running process tells about itself: where each zone stands, what is open.


STALE = 60.0  # [s] without a pass of the loop, then a zone is not ready


class Board:
    """The newest of each zone, written by the loop and read by anyone."""

    def __init__(
        self, zones: Iterable[str] = (), steady: Callable[[], float] = time.monotonic
    ) -> None:
        self.zones, self._steady = tuple(zones), steady
        self._statuses: dict[str, Status] = {}
        self._passed: dict[str, float] = {}

    def passed(self, status: Status) -> None:
        """The loop went over an open zone."""
        self._statuses[status.zone] = status
        self._passed[status.zone] = self._steady()

    def failed(self, zone: str) -> None:
        """A zone was closed after an error."""
        self._passed.pop(zone, None)
        if zone in self._statuses:
            self._statuses[zone] = replace(self._statuses[zone], state="closed after an error")

    def follows(self, status: Status, *, runs: bool) -> None:
        """Another process has the zone; whether it runs there."""
        self._statuses[status.zone] = status
        if runs:
            self._passed[status.zone] = self._steady()
        else:
            self._passed.pop(status.zone, None)

    @property
    def statuses(self) -> list[Status]:
        """Where each zone stands."""
        return [self._statuses[zone] for zone in self.zones if zone in self._statuses]

    def waiting(self) -> list[str]:
        """The zones that are not open and ticking; none means ready."""
        since = self._steady() - STALE
        return [zone for zone in self.zones if self._passed.get(zone, -1e300) < since]


# --------------------------------------------------------------------------------------------------
# Every path there is: its method, who may use it, and what it is for. One table for all.
#
# The app is made from it, and so are the description at /v1/openapi.json and the test that tries
# every path with every scope.


PUBLIC: tuple[str, ...] = ()


class Route(NamedTuple):
    """A path; one of `scopes` is needed, none where it is public. `name` is its handler's.

    `session`: may be looked at with a session's cookie in place of a token.
    """

    method: str
    path: str
    name: str
    scopes: tuple[str, ...]
    summary: str
    session: bool = False


def ways(http: Http) -> tuple[Route, ...]:
    """The paths of a service."""
    operator = ("operate",)
    figures = PUBLIC if http.metrics == "public" else ("operate",)
    return (
        Route("GET", "/v1/price", "feed", PUBLIC, "The newest price of a zone."),
        Route("GET", "/v1/prices", "feed", PUBLIC, "Prices published and, apart, prices expected."),
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
        Route("GET", "/v1/status", "status", PUBLIC, "Where each zone stands."),
        Route("GET", "/v1/promise", "promise", PUBLIC, "What is promised to a zone's homes."),
        Route("GET", "/v1/tradeoff", "tradeoff", PUBLIC, "What other promises would cost."),
        Route("GET", "/v1/operator", "zones", operator, "All zones, for their operator.", True),
        Route("GET", "/v1/operator/zone", "zone", operator, "The inside of a zone.", True),
        Route(
            "GET", "/v1/operator/certificate", "certificate", ("operate", "audit"),
            "An audit of a zone's ledger.", True,
        ),
        Route(
            "GET", "/v1/ledger", "ledger", ("audit",), "A zone's signed records, one a line.", True
        ),
        Route("GET", "/v1/openapi.json", "openapi", PUBLIC, "This description."),
        Route("GET", "/v1/docs", "docs", PUBLIC, "This description as a page."),
        Route("GET", "/healthz", "healthy", PUBLIC, "The process answers."),
        Route("GET", "/readyz", "ready", PUBLIC, "Every zone is open and ticking."),
        Route("GET", "/metrics", "figures", figures, "Figures for Prometheus."),
    )  # fmt: skip


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
