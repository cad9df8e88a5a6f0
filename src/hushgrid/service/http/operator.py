"""What an operator is shown of the zones. The true load is in here, and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from hushgrid import report
from hushgrid._numbers import Spent
from hushgrid.audit.certificate import certify
from hushgrid.belief.filter import Expectations
from hushgrid.errors import HushgridError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.model.zone import public_rate, tally
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.clock import Clock
from hushgrid.service.curator import UNTIL_RESUMED, Inside, Status, utc, why
from hushgrid.service.http.common import RETRY, Board, UnfitError, problem
from hushgrid.service.http.middleware import Handler
from hushgrid.service.http.prices import zone_asked
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.records import ReleaseRecord, schedule_digest
from hushgrid.service.meters.ports import Interval
from hushgrid.service.prices import History
from hushgrid.service.promise import assumed, promise_of, sentence

# --------------------------------------------------------------------------------------------------
# What needs a hand in a zone, each in one sentence with the fix. Pure.


DAY = 86_400  # [s]
MANY, MOST = 0.1, 0.5  # shares of meters missing: a warning, an error

_AWAY = {
    "PriceFile": "The price file cannot be written; see that its folder and room on disk are there",
    "MqttPrices": "Prices do not reach the MQTT broker; see that it runs and lets us in",
    "MqttEvents": "OpenADR events do not reach the MQTT broker; see that it runs and lets us in",
}


class Alert(NamedTuple):
    """A sentence, and how bad it is."""

    level: Literal["error", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class ZoneHealth:
    """Where a zone stands, as its operator may know it.

    `open`: its loop passed lately; `away`: names of publishers that fail; `jumped`: the clock did.
    """

    zone: ZoneService
    now: float
    status: Status | None
    inside: Inside
    newest: ReleaseRecord | None
    open: bool
    away: Sequence[str] = ()
    jumped: bool = False

    @property
    def releases_left(self) -> int:
        """Of the horizon."""
        if self.status is None:
            return self.zone.policy.horizon
        done = self.status.t - self.zone.begins // self.zone.seconds + 1
        return max(self.zone.policy.horizon - max(done, 0), 0)

    @property
    def runs_out(self) -> int | None:
        """When the first price is due that the budget no longer pays for [UTC epoch s].

        At what the next release costs; None without a budget, or where the horizon ends first.
        """
        if self.status is None or self.status.left is None:
            return None
        cost = self.inside.epsilon
        if cost is None:
            paid = 0
            if self.releases_left == 0 or self.status.state != "forecast only":
                return None
        elif not math.isfinite(cost) or cost <= 0:
            return None
        else:
            known = self.inside.paid
            spent = Spent().add(self.status.spent)  # rounded up, where the curator is elsewhere
            paid = spent.more(cost, self.zone.budget or 0.0) if known is None else known
        if paid >= self.releases_left:
            return None
        return self.due(paid)

    def due(self, ahead: int = 0) -> int:
        """When a release to come is due [UTC epoch s]; 0 is the next one."""
        t = (self.zone.begins // self.zone.seconds - 1) if self.status is None else self.status.t
        return (t + ahead + 2) * self.zone.seconds + self.zone.grace

    @property
    def missing(self) -> tuple[int | None, float | None]:
        """Meters that sent nothing for the last interval, and their share of all; None: unknown."""
        lost = None if self.status is None else self.status.missing
        return lost, None if lost is None else lost / len(self.zone.meters)


def alerts(seen: ZoneHealth) -> list[Alert]:
    """The worst first."""
    found = [*_running(seen), *_source(seen), *_spending(seen), *_ways(seen)]
    return sorted(found, key=lambda alert: alert.level != "error")


def _running(seen: ZoneHealth) -> list[Alert]:
    newest, zone = seen.newest, seen.zone
    if newest is not None and seen.now < newest.published_at - 1:
        behind = newest.published_at - math.floor(seen.now)
        text = f"The clock is {behind} s behind the last release and the zone waits; set the clock."
        return [Alert("error", text)]
    if not seen.open:
        return [
            Alert(
                "error",
                "The zone is closed after an error and is opened again by itself; see in the log"
                " whether the disk, the database or the terms are the reason.",
            )
        ]
    if seen.status is not None and seen.now > seen.due() + zone.seconds:
        text = f"No price has come since {utc(seen.due())}; see in the log what holds the loop up."
        return [Alert("error", text)]
    return []


def _source(seen: ZoneHealth) -> list[Alert]:
    if seen.status is None:
        return []
    zone = seen.zone
    constant = f"the constant {zone.fallback_rate:g} {zone.currency}/kWh"
    if seen.status.state == "fallback only":
        text = f"No model can be used, so the price is {constant}; run hushgrid check."
        return [Alert("error", text)]
    if seen.status.state == UNTIL_RESUMED:
        shown = constant if zone.learned.private else "a forecast without readings"
        text = (
            "The ledger lacks releases that may have been published (a fail-over of the database,"
            f" an older copy), so the price is {shown}; run hushgrid resume, which books their loss"
        )
        return [Alert("error", f"{text}.")]
    if seen.status.state != "forecast only":
        return []
    shown = constant if zone.learned.private else "a forecast without readings"
    if seen.releases_left == 0:
        what = f"The horizon of {zone.policy.horizon} releases is over"
    else:
        what = f"The budget of {zone.budget:g} is spent"
    fix = "give a later begins and start once with --new-epoch"
    return [Alert("error", f"{what}, so the price is {shown}; {fix}.")]


def _spending(seen: ZoneHealth) -> list[Alert]:
    if seen.inside.scale is None:
        return []
    ends, steps = seen.runs_out, seen.releases_left
    plan = "plan the next epoch (hushgrid plan)"
    if ends is not None and ends - seen.now <= DAY:
        return [Alert("warning", f"The budget lasts until {utc(ends)} only; {plan}.")]
    if seen.status is not None and steps * seen.zone.seconds <= DAY < _whole(seen.zone):
        last = utc(seen.due(steps))
        return [Alert("warning", f"The horizon ends at {last}; {plan}.")]
    return []


def _whole(zone: ZoneService) -> int:
    """The horizon [s]: one of a day is not near its end all day long."""
    return zone.policy.horizon * zone.seconds


def _ways(seen: ZoneHealth) -> list[Alert]:
    found = []
    lost, share = seen.missing
    if share is not None and share > MANY:
        found.append(
            Alert(
                "error" if share > MOST else "warning",
                f"{lost} of {len(seen.zone.meters)} meters ({share:.0%}) sent nothing for the last"
                " interval; see that their head-end runs and reaches the service.",
            )
        )
    for name in dict.fromkeys(seen.away):
        found.append(Alert("warning", f"{_AWAY.get(name, f'{name} does not take prices')}."))
    if seen.jumped:
        text = "The clock jumped within the last hour; see that it is kept by NTP."
        found.append(Alert("warning", text))
    return found


# --------------------------------------------------------------------------------------------------
# The certificate of a running zone, made from its ledger beside the writer.


class Certificates:
    """One for each state of a ledger: made when it is asked for, kept until a record is added."""

    def __init__(self, deployment: Deployment, key: str) -> None:
        self._ledger, self._key = deployment.ledger, key
        self._zones = {zone.id: zone for zone in deployment.zones}
        self._kept: dict[str, tuple[str, dict[str, Any]]] = {}
        self._mutex = threading.Lock()

    def values(self, zone: str) -> dict[str, Any]:
        """Its figures, as `hushgrid audit --json` writes them. Takes seconds."""
        with self._mutex:
            with open_store(self._ledger, create=False) as store:
                newest = store.head(zone)
            head = "" if newest is None else newest.digest
            known, values = self._kept.get(zone, (None, {}))
            if known != head:
                values = self._made(zone)
                self._kept[zone] = (head, values)
            return values

    def _made(self, zone: str) -> dict[str, Any]:
        evidence, chain = load_ledger(self._ledger, zone=zone, key=self._key, heads=())
        found = certify(
            evidence,
            [terms_of(self._zones[zone])],
            chain=chain,
            commit=schedule_digest,
            # as somebody would ask who has exported the ledger from /v1/ledger
            inputs={"file": "ledger.ndjson", "kind": "ledger", "config": ["service.toml"],
                    "digests": {}, "zone": zone, "key": self._key, "heads": []},
        )  # fmt: skip
        return report.certificate_json(found)


# --------------------------------------------------------------------------------------------------
# True loads of closed intervals and who was missing, for the operator alone. In memory only, and
# no longer than the readings themselves are kept.


KEPT = 400  # loads of a zone


class Sum(NamedTuple):
    """The load [Wh] of an interval, and how many meters were missing. Secret."""

    load: int
    missing: int


class ReadingSource(Protocol):
    """Where readings are looked at."""

    def peek(self, zone: str, start: int) -> Interval | None:
        """The readings of an interval; None where they cannot be had."""
        ...


class Loads:
    """Each load is added up once: a closed interval never changes. Any thread may call it."""

    def __init__(self, zones: Iterable[ZoneService], readings: ReadingSource | None) -> None:
        self._readings = readings
        self._zones = {zone.id: zone for zone in zones}
        self._expected = {
            zone: Expectations(one.scenario, private=one.learned.private)
            for zone, one in self._zones.items()
        }
        self._known: dict[str, dict[int, Sum]] = {zone: {} for zone in self._zones}
        self._mutex = threading.Lock()  # of what is known
        self._adding = threading.Lock()  # one at a time reads the store

    def of(self, zone: str, starts: Sequence[int], now: float) -> dict[int, Sum]:
        """The loads of these intervals of the present epoch, as far as readings are kept.

        A meter that is missing counts as it did for the release: with its public expectation.
        """
        service = self._zones[zone]
        since = max(service.begins, _oldest(service, now))
        with self._adding:
            for start in sorted(set(starts)):
                if start >= since and start not in self._known[zone]:
                    self._add(service, start)
        self.forget(now)
        with self._mutex:
            known = self._known[zone]
            return {start: known[start] for start in starts if start in known}

    def forget(self, now: float) -> None:
        """Drop what is as old as readings that are deleted."""
        with self._mutex:
            for zone, known in self._known.items():
                oldest = _oldest(self._zones[zone], now)
                for start in [start for start in known if start < oldest]:
                    del known[start]
                for start in sorted(known)[:-KEPT]:
                    del known[start]

    def _add(self, zone: ZoneService, start: int) -> None:
        found = None if self._readings is None else self._readings.peek(zone.id, start)
        bound = zone.scenario.zone.bound
        if found is None or found.wh.size != bound.size:
            return
        wh = found.wh
        if not found.present.all():
            step = (start - zone.begins) // zone.seconds + 1
            wh = np.where(found.present, wh, self._expected[zone.id].at(step))
        summed = Sum(tally(wh, bound).load, found.missing)
        with self._mutex:
            self._known[zone.id][start] = summed


def _oldest(zone: ZoneService, now: float) -> int:
    """Intervals that start before are purged, or will be at the next tick [UTC epoch s]."""
    return int(now) - zone.retention - zone.seconds + 1


SHOWN = 192  # releases of a zone
NOT_HERE = "Another curator runs this zone; its own operator page says why."
JUMPED = 3600.0  # [s] that a jump of the clock is told of

NOT_OPEN = Inside.of(None)
ELSEWHERE = Inside.of(None)  # another curator has the zone; told apart by being this one


class Operator:
    """Figures for operators, put together when they are asked for.

    The loop says how zones stand (`noted`); `publishers` are the names behind its numbers.
    """

    def __init__(
        self,
        history: History,
        board: Board,
        clock: Clock,
        *,
        mode: str = "simulation",
        loads: Loads | None = None,
        publishers: tuple[str, ...] = (),
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history, self._board, self._clock, self._mode = history, board, clock, mode
        self._loads = Loads(history.zones.values(), None) if loads is None else loads
        self._publishers, self._steady = publishers, steady
        self._inside: dict[str, Inside] = {}
        self._jumps, self._jumped = 0, -math.inf

    def noted(self, zone: str, inside: Inside) -> None:
        """The loop went over an open zone."""
        self._inside[zone] = inside

    def elsewhere(self, zone: str) -> None:
        """Another curator has the zone: what was noted here is old."""
        if self._inside.get(zone) is not ELSEWHERE:
            self.noted(zone, ELSEWHERE)

    def passed(self) -> None:
        """The loop went over all zones: forget what is old, and look whether the clock jumped."""
        self._loads.forget(self._clock.now())
        jumps = int(getattr(self._clock, "jumps", 0))
        if jumps > self._jumps:
            self._jumps, self._jumped = jumps, self._steady()

    def summary(self) -> dict[str, Any]:
        """All zones, each in a line."""
        zones = []
        for seen in self._seen(self._history.zones.values()):
            zones.append(
                {
                    "zone": seen.zone.id,
                    "state": _state(seen),
                    "t": None if seen.status is None else seen.status.t,
                    "missing": seen.missing[0],
                    "alerts": len(alerts(seen)),
                }
            )
        return {"now": utc(int(self._clock.now())), "zones": zones}

    def zone(self, name: str) -> dict[str, Any]:
        """The inside of a zone; reads the meter store where a load is new."""
        zone = self._history.zones[name]
        (seen,) = self._seen([zone])
        lost, share = seen.missing
        return {
            "zone": name,
            "mode": self._mode,
            "state": _state(seen),
            "now": utc(int(seen.now)),
            "t": None if seen.status is None else seen.status.t,
            "interval_s": zone.seconds,
            "time_zone": zone.time_zone,
            "currency": zone.currency,
            "houses": len(zone.meters),
            "promise": self._promise(zone),
            "noise": _noise(zone, seen.inside),
            "budget": _budget(seen),
            "missing": {"meters": lost, "share": share},
            "series": self._series(zone, seen.now),
            "alerts": [alert._asdict() for alert in alerts(seen)],
            "head": None if seen.newest is None else seen.newest.head,
        }

    def _seen(self, zones: Iterable[ZoneService]) -> Iterator[ZoneHealth]:
        statuses = {one.zone: one for one in self._board.statuses}
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
                away=[self._publishers[i] for i in inside.away if i < len(self._publishers)],
                jumped=jumped,
            )

    def _promise(self, zone: ZoneService) -> dict[str, Any]:
        promise = promise_of(zone)
        return {
            "sentence": sentence(zone),
            "assumptions": list(assumed(zone)),
            "secret": promise.secret,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "eta": zone.policy.eta,
            "eta_set_by": zone.eta_set_by or None,
        }

    def _series(self, zone: ZoneService, now: float) -> list[dict[str, Any]]:
        shown = self._history.last(zone.id, SHOWN)
        loads = self._loads.of(zone.id, [one.start for one in shown], now)
        return [_row(zone, one, loads.get(one.start)) for one in shown]


def _state(seen: ZoneHealth) -> str:
    return "not open" if seen.status is None else seen.status.state


def _row(zone: ZoneService, one: ReleaseRecord, found: Sum | None) -> dict[str, Any]:
    """A release, with its load, the rate of that and who was missing where readings are kept."""
    load = None if found is None else found.load
    return {
        "t": one.t,
        "start": utc(one.start),
        "applies_from": utc(one.applies_start),
        "load": load,
        "optimal": None if load is None else public_rate(load, zone.scenario.tariff),
        "rate": one.rate,
        "load_hat": one.load_hat,
        "scale": one.scale,
        "missing": one.counts.get("missing") if found is None else found.missing,
        "source": one.source,
    }


def _noise(zone: ZoneService, inside: Inside) -> dict[str, Any]:
    return {
        "scale": inside.scale,
        "house": inside.house,
        "model": inside.model,
        "epsilon": _finite(inside.epsilon),
        "epsilon_any": _finite(inside.epsilon_any),
        "protected": inside.protected,
        "why": NOT_HERE if inside is ELSEWHERE else why(zone, inside),
    }


def _budget(seen: ZoneHealth) -> dict[str, Any]:
    status, ends = seen.status, seen.runs_out
    return {
        "spent": None if status is None else _finite(status.spent),
        "total": seen.zone.budget,
        "left": None if status is None else _finite(status.left),
        "runs_out": None if ends is None else utc(ends),
        "per_release": _finite(seen.inside.epsilon),
        "horizon_ends": utc(seen.zone.begins + seen.zone.policy.horizon * seen.zone.seconds),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# --------------------------------------------------------------------------------------------------
# /v1/operator: what operators see. Nothing of it may be kept on the way to them.


NO_STORE = {"Cache-Control": "no-store"}
FORMATS = ("json", "html")

Certify = Callable[[str], dict[str, Any]]


def no_certificate(zone: str) -> dict[str, Any]:
    """Where there is no ledger to certify from."""
    raise HushgridError(f"zone {zone!r} has no ledger here; ask a running hushgrid serve.")


class OperatorWays:
    """Handlers, by name."""

    def __init__(self, operator: Operator, zones: Iterable[str], certify: Certify) -> None:
        self._operator, self._zones, self._certify = operator, tuple(zones), certify
        self._threads: dict[str, CapacityLimiter] = {}
        self.handlers: dict[str, Handler] = {
            "zones": self._all,
            "zone": self._zone,
            "certificate": self._certificate,
        }

    async def _all(self, request: Request) -> Response:
        del request
        found = await to_thread.run_sync(self._operator.summary, limiter=self._limiter("zones", 2))
        return JSONResponse(found, headers=NO_STORE)

    async def _zone(self, request: Request) -> Response:
        try:
            name = zone_asked(request.query_params, self._zones)
        except UnfitError as error:
            return error.answer()
        found = await to_thread.run_sync(
            self._operator.zone, name, limiter=self._limiter("zone", 4)
        )
        return JSONResponse(found, headers=NO_STORE)

    async def _certificate(self, request: Request) -> Response:
        try:
            name = zone_asked(request.query_params, self._zones)
            form = request.query_params.get("format", "json")
            if form not in FORMATS:
                raise UnfitError("format", form, f"give one of {', '.join(FORMATS)}")
        except UnfitError as error:
            return error.answer()
        try:
            values = await to_thread.run_sync(
                self._certify, name, limiter=self._limiter("certificate", 1)
            )
        except (HushgridError, OSError):  # a store's own words may name a host or a file
            return problem(503, "The ledger cannot be read now; try again.", headers=RETRY)
        if form == "json":
            return JSONResponse(values, headers=NO_STORE)
        return await to_thread.run_sync(_page, values)

    def _limiter(self, name: str, most: int) -> CapacityLimiter:
        """Threads of our own: who waits for a store holds up no one else."""
        if name not in self._threads:
            self._threads[name] = CapacityLimiter(most)
        return self._threads[name]


def _page(values: dict[str, Any]) -> Response:
    from hushgrid.report.certificate import certificate_page

    page = certificate_page(values)
    styles = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in styles]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    policy = (
        f"default-src 'none'; style-src {allowed}; frame-ancestors 'none'; base-uri 'none';"
        " form-action 'none'"
    )
    return HTMLResponse(page, headers={**NO_STORE, "Content-Security-Policy": policy})
