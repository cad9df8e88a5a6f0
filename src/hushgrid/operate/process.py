"""A running process: stores, key, noise, a curator for each zone, HTTP and MQTT, and the loop.

A zone whose pass fails is closed and opened again after a pause that doubles each time; the other
zones continue.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from starlette.routing import BaseRoute

from hushgrid.curator.clock import Clock, ahead_of
from hushgrid.curator.covariates import CovariateSources
from hushgrid.curator.curator import PURGE, Curator
from hushgrid.curator.ingest import Disagreements, Ingest
from hushgrid.curator.publishers import Publisher
from hushgrid.curator.terms import check_moves
from hushgrid.curator.transfer import check_arrived
from hushgrid.errors import (
    HushgridError,
    LedgerAwayError,
    LedgerDamageError,
    LedgerError,
    MeterDamageError,
    MeterError,
    MeterRetryError,
)
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.extensions import extensions
from hushgrid.files.settings import Http, OpenAdr
from hushgrid.mechanism.noise import Noise, SecureNoise, SimulatedNoise
from hushgrid.stores.clients import ClientStore, Senders, check_bound
from hushgrid.stores.ledger import LedgerStore, open_store
from hushgrid.stores.ledger.entries import ReleaseRecord, TransferRecord
from hushgrid.stores.ledger.witness import Witnesses, open_witnesses
from hushgrid.stores.ledger.writer import load
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.openadr import VtnStore
from hushgrid.web.http.app import App, make_app, page_routes
from hushgrid.web.http.metrics import CountedPublisher, Metrics, ZoneStates
from hushgrid.web.http.operator import Loads, Operator
from hushgrid.web.http.server import Server, SwappableApp
from hushgrid.web.mqtt import MqttReadings
from hushgrid.web.openadr.app import Vtn, mount_vtn
from hushgrid.web.prices import History
from hushgrid.web.tokens import Access

log = logging.getLogger("hushgrid.serve")

FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0  # [s] before a zone that failed is opened again

AWAY_PAUSE = 0.5  # [s] while its database server is away

PATIENCE = 10.0  # [s] for which the loop waits for a zone that is being opened

APPEND_PATIENCE = 2.0  # [s] for an append to a server that went away; then the zone is reopened

DAMAGE = (LedgerDamageError, MeterDamageError)
Opened = tuple[ExitStack, Curator]
OpenCurator = Callable[[ZoneService, float, bool], AbstractContextManager[Curator]]


def _release(opening: Future[Opened]) -> None:
    if opening.exception() is None:
        opening.result()[0].close()


class ZoneRun:
    """One zone of a running process: open, or waiting to be opened again.

    Args:
        service: The zone.
        make: Opens its curator.
        steady: A clock that cannot be set [s].
        first_pause: Pause before the first new attempt [s]; None: `FIRST_PAUSE`.
        server: The stores are on a database server. While that is away an attempt costs little, so
            that the pause stays short.
        threads: Open it in a thread of its own: the other zones wait `PATIENCE` for it at most.

    Attributes:
        service: The zone.
        curator: Its curator while it is open.
        failures: Failed passes in a row.
    """

    def __init__(
        self,
        service: ZoneService,
        make: OpenCurator,
        steady: Callable[[], float] = time.monotonic,
        first_pause: float | None = None,
        *,
        server: bool = False,
        threads: bool = False,
    ) -> None:
        self.service, self._make, self._steady, self._server = service, make, steady, server
        self._first = FIRST_PAUSE if first_pause is None else first_pause
        self.failures = 0  # in a row
        self._stack = ExitStack()
        self._threads = threads
        self._opening: Future[Opened] | None = None
        self.curator: Curator | None = None
        self._pause, self._again, self._away = self._first, 0.0, False
        self._trusted = 0.0  # how far the clock was ahead when the operator took it for right [s]

    def open(self, now: float, *, new_terms: bool = False) -> Curator:
        """Take the zone's lock and replay its ledger."""
        return self._take(self._opened(now, new_terms))

    def begin(self, now: float) -> Future[Opened]:
        """Open the zone in a thread; `run` takes what was opened, or the error."""
        opening = self._opening = Future[Opened]()

        def work() -> None:
            try:
                opening.set_result(self._opened(now, new_terms=False))
            except BaseException as error:
                opening.set_exception(error)

        threading.Thread(target=work, name=f"open-{self.service.id}", daemon=True).start()
        return opening

    @property
    def opens(self) -> bool:
        """Whether a thread opens it."""
        return self._opening is not None

    def finish(self) -> Curator | None:
        """The zone that `begin` has opened; raises its error. None while it is not done."""
        opening = self._opening
        if opening is None or not opening.done():
            return None
        self._opening = None
        return self._take(opening.result())

    def _opened(self, now: float, new_terms: bool) -> Opened:
        with ExitStack() as stack:
            curator = stack.enter_context(self._make(self.service, now, new_terms))
            return stack.pop_all(), curator

    def _take(self, opened: Opened) -> Curator:
        self._stack, self.curator = opened
        log.info("zone open", extra={"zone": self.service.id, "t": self.curator.status.t})
        return self.curator

    def close(self) -> None:
        """Release the zone; one that is still being opened is released when that is done."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.add_done_callback(_release)
        self.curator = None
        self._stack.close()

    def run(self, now: float, ahead: float = 0.0) -> list[ReleaseRecord] | None:
        """Publish the next interval if it is due; None if the zone is closed, or failed and was.

        Args:
            now: [UTC s]
            ahead: By how much the clock was set forward since the start [s].

        Returns:
            What was released.
        """
        if self.curator is None and not self.opens and self._steady() < self._again:
            return None
        step = ahead - self._trusted
        likely = now - step if step > self.service.clock_limit * self.service.seconds else now
        try:
            if self.curator is None and not self.opens and self._threads:
                wait([self.begin(likely)], PATIENCE)
            curator = self.curator or (self.finish() if self.opens else self.open(likely))
            if curator is None:
                return None
            releases = curator.run(now, step, most=1)
            if curator.confirmed:
                self._trusted = ahead
        except Exception as error:  # a failure of one zone must not stop the others
            self.fail(error)
            return None
        self.refresh()
        self.service = curator.service
        return releases

    def renew(self) -> None:
        """Begin its next week where the present one is over; closed where that fails."""
        if self.curator is None or self.curator.doubt is not None:
            return
        try:
            self.curator.renew()
        except Exception as error:
            self.fail(error)
        else:
            self.service = self.curator.service

    def refresh(self) -> None:
        """Forget failures: their cause may be over."""
        self._pause, self._again, self.failures, self._away = self._first, 0.0, 0, False

    def fail(self, error: Exception) -> None:
        """Close the zone after an error, which is logged; it is opened again after a pause."""
        # HushgridError texts hold no secret; of other errors only the type is safe to log
        reason = str(error) if isinstance(error, HushgridError) else type(error).__name__
        foreign = not isinstance(error, (HushgridError, OSError))
        fields = {"zone": self.service.id, "error": type(error).__name__, "reason": reason}
        away = self._server and isinstance(error, (LedgerAwayError, MeterRetryError))
        if not (away and self._away):  # once, not at every attempt
            log.error("zone failed", extra=fields, exc_info=error if foreign else None)
        self._away = away
        try:
            self.close()
        except Exception as again:
            log.warning(
                "zone not closed cleanly",
                extra={"zone": self.service.id, "error": type(again).__name__},
            )
        self.failures += 1
        pause = min(self._first, AWAY_PAUSE) if away else self._pause
        self._again = self._steady() + pause
        self._pause = self._first if away else min(2 * pause, LAST_PAUSE)

    @property
    def pause(self) -> float:
        """How long it still waits after a failure [s]; infinite where it does not."""
        remainder = self._again - self._steady()
        return remainder if self.curator is None and remainder > 0 else math.inf

    def next_due(self) -> float:
        """When the next interval closes [UTC s]; infinite while the zone waits."""
        if self.curator is None or self.curator.doubt is not None:
            return float("inf")
        return self.curator.next_due()


WAKE, LEAST = 1.0, 0.01  # [s] the longest and the shortest sleep of the loop


class Process:
    """Everything that a service has open; `stack` closes it, HTTP and MQTT first.

    Args:
        deployment: The service as its file describes it.
        stack: Closes what the process opens.
        more: Further routes of the HTTP server.
        demo: Whether its pages include the adversary's.
        noise: Makes the noise of a simulation, in place of one with a random seed. Ignored in
            production.
        store: The ledger of all zones; None: each zone opens its own.
        witnesses: The witnesses of the zones; None: they are opened here.

    Attributes:
        deployment: As given.
        board: Health of each zone.
        history: Releases that can be queried.
        server: The HTTP server, if the process has its own.
    """

    def __init__(
        self,
        deployment: Deployment,
        stack: ExitStack,
        *,
        more: Sequence[BaseRoute] = (),
        demo: bool = False,
        noise: Callable[[], Noise] | None = None,
        store: LedgerStore | None = None,
        witnesses: Witnesses | None = None,
    ) -> None:
        self.deployment, self._stack, self._store = deployment, stack, store
        self._more, self._demo = tuple(more), demo
        simulated = deployment.mode == "simulation"
        self._noise = noise if noise is not None and simulated else lambda: make_noise(deployment)
        self._threads = noise is None  # noise that is given is drawn in the order of the zones
        self._key = load(deployment.key)
        self._witnesses = witnesses or stack.enter_context(open_witnesses(deployment))
        self._disagreements = Disagreements(deployment.zones)
        self._meters = stack.enter_context(
            MeterStore(deployment.meters, self._disagreements.add, deployment.block_key_folder)
        )
        self._metrics = Metrics(zone.id for zone in deployment.zones)
        self.board = ZoneStates(zone.id for zone in deployment.zones)
        self.history = History(deployment.zones, simulated=simulated, unread=True)
        self.history.watch_prices(self._metrics.priced)
        self.history.watch_lists(self._metrics.listed)
        publishers: list[Publisher] = [self.history, *self._make_publishers()]
        self._publishers = [CountedPublisher(publisher, self._metrics) for publisher in publishers]
        self._covariates = CovariateSources(deployment.zones, self._metrics.not_fetched)
        self._covariates.start()
        stack.callback(self._covariates.stop)
        self._loads = Loads(deployment.zones, self._meters)
        self._names = tuple(type(publisher).__name__ for publisher in publishers)
        self._operator: Operator | None = None
        self._zones = self._make_zones()
        self._begins: Mapping[str, int] = {}  # see `open`
        self._purged: dict[str, float] = {}  # when a closed zone was last looked at [UTC s]
        self._transfers: dict[str, Sequence[TransferRecord]] = {}  # of the zones that were opened
        self._clients = ClientStore(deployment.client_store)
        stack.callback(self._clients.close)
        check_bound(deployment, self._clients.all())
        senders = Senders(self._clients, production=deployment.mode == "production")
        self._ingest = Ingest(deployment.zones, self._meters, senders)
        self.server: Server | None = None

    def _make_zones(self) -> list[ZoneRun]:
        server = self.deployment.on_server
        zones, threads = self.deployment.zones, self._threads
        return [ZoneRun(zone, self._curator, server=server, threads=threads) for zone in zones]

    def _make_publishers(self) -> Iterator[Publisher]:
        for opened in extensions("hushgrid.publishers"):
            publisher = opened(self.deployment, self._session)
            if publisher is not None:
                self._stack.callback(getattr(publisher, "stop", lambda: None))
                yield publisher

    @contextmanager
    def _curator(self, zone: ZoneService, now: float, new_terms: bool) -> Iterator[Curator]:
        """A zone's curator; where the zones have no common store it opens its own."""
        with ExitStack() as stack:
            store = self._store or stack.enter_context(
                open_store(self.deployment.ledger, patience=APPEND_PATIENCE)
            )
            curator = stack.enter_context(
                Curator.open(
                    zone,
                    store,
                    self._meters,
                    self._noise(),
                    self._key,
                    self._publishers,
                    self.deployment.mode,
                    now=now,
                    new_terms=new_terms,
                    begins=self._begins.get(zone.id),
                    witness=self._witnesses.of(zone.id),
                    covariates=self._covariates.of(zone.id),
                    present=partial(self.history.present, zone.id),
                )
            )
            self._transfers[zone.id] = curator.transfers
            check_arrived(dict(self._transfers))
            since = curator.priced_since
            self.history.fill(zone.id, curator.releases, curator.lists, priced_since=since)
            if zone.ahead is not None and curator.lists:
                self._metrics.listed(zone, curator.lists[-1])
            yield curator

    def open(
        self,
        now: float,
        changed: Collection[str] = (),
        begins: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Open every zone; raises the first error. Zones that changed begin with their new terms.

        Where their first interval [UTC s] is given, they begin with it, though it has begun.
        A zone whose ledger or readings are damaged is opened again later, as after a failed pass,
        unless no zone can be opened or its terms changed. Once a zone is open the others have
        `PATIENCE`; one that takes longer is opened meanwhile.
        """
        with (
            nullcontext(self._store) if self._store else open_store(self.deployment.ledger) as store
        ):
            check_moves(self.deployment.zones, store, self._key, new_terms=bool(changed))
        damaged, self._begins = [], begins
        for zone in self._zones:
            self._stack.callback(zone.close)
        if self._threads and not changed:
            self._wait_for([zone.begin(now) for zone in self._zones])
        for zone in self._zones:
            try:
                if zone.opens:
                    zone.finish()
                else:
                    zone.open(now, new_terms=zone.service.id in changed)
            except DAMAGE as error:
                damaged.append(error)
                if zone.service.id in changed or len(damaged) == len(self._zones):
                    raise damaged[0] from None
                zone.fail(error)

    @property
    def starts(self) -> dict[str, int]:
        """When the interval starts that each open zone publishes next [UTC s]."""
        curators = (zone.curator for zone in self._zones)
        return {c.service.id: c.start_of(c.t) for c in curators if c is not None}

    @staticmethod
    def _wait_for(openings: Collection[Future[Opened]]) -> None:
        """Until all are done, or `PATIENCE` after the first that is open or cannot be."""
        pending = set(openings)
        while pending:
            ended, pending = wait(pending, return_when=FIRST_COMPLETED)
            if not all(isinstance(opening.exception(), DAMAGE) for opening in ended):
                break
        wait(pending, PATIENCE)

    def make_http_app(self, http: Http, clock: Clock) -> App:
        """The app that answers over HTTP."""
        access = Access(
            self._clients,
            self._key.derive("access tokens"),
            clock,
            lifetime=http.token_lifetime,
            static=http.tokens,
        )
        self._operator = Operator(
            self.history,
            self.board,
            clock,
            mode=self.deployment.mode,
            loads=self._loads,
            disagreements=self._disagreements,
            units=self._ingest.units,
            publishers=self._names,
        )
        more = (
            [self._vtn(self.deployment.openadr, access, clock)] if self.deployment.openadr else []
        )
        if http.pages:
            zones = self.deployment.zones
            digits = {zone.id: zone.digits for zone in zones if zone.digits is not None}
            more += page_routes([zone.id for zone in zones], digits, demo=self._demo)
        return make_app(
            self._ingest,
            self.board,
            self._metrics,
            http,
            history=self.history,
            access=access,
            clock=clock,
            lines=self._lines,
            routes=[*more, *self._more],
            mode=self.deployment.mode,
            operator=self._operator,
            certify=Certificates(self.deployment, self._key.public).values,
            mappings=self.deployment.mappings,
        )

    def _vtn(self, settings: OpenAdr, access: Access, clock: Clock) -> BaseRoute:
        store = VtnStore(self.deployment.vtn_store)
        vtn = Vtn(
            self.history,
            store,
            access,
            clock,
            settings,
            mqtt_uris=self.deployment.mqtt_uris,
            counted=self._metrics.count_notification,
            under_way=self._metrics.under_way,
        )
        return mount_vtn(self._stack.enter_context(vtn).app)

    def _lines(self, zone: str) -> Iterator[str]:
        """A zone's records as lines of an export, up to the last that this process has witnessed.

        A record that is stored and not witnessed yet may still be lost, and its step drawn again.
        """
        last = self._witnesses.of(zone).seq
        with open_store(self.deployment.ledger, create=False) as store:
            for record in store.records(zone):
                if record.seq > last:
                    return
                yield record.line + "\n"

    def listen(self, clock: Clock, stage: SwappableApp | None = None) -> None:
        """Start the HTTP server (or attach to an existing one) and the MQTT subscriber."""
        self._ingest.clock = clock
        http = self.deployment.http
        if http is not None and stage is not None:
            stage.set_app(self.make_http_app(http, clock))
            self._stack.callback(stage.clear)
        elif http is not None:
            self.server = Server(self.make_http_app(http, clock), http.host, http.port, http)
            self.server.start()
            self._stack.callback(self.server.stop)
        self._listen_to_broker()

    def _listen_to_broker(self) -> None:
        readings = self._make_readings()
        if readings is not None:
            readings.start()
            self._stack.callback(readings.stop)

    def _make_readings(self) -> MqttReadings | None:
        mqtt = self.deployment.mqtt
        if mqtt is None or not mqtt.readings:
            return None
        name = f"hushgrid-readings-{self._session}"
        return MqttReadings(mqtt, self._ingest, self._metrics.received, name)

    @property
    def _session(self) -> str:
        """Part of client ids at a broker: secret, and the same after a restart."""
        return self._key.derive("mqtt client id").hex()[:24]

    def turn(self, clock: Clock, stopped: Callable[[], bool] = lambda: False) -> None:
        """Publish what is due in all zones, or until it is stopped.

        A release of each zone in turn: after an outage every zone has a new price before any has
        all that are late.
        """
        start, due = clock.now(), self._zones
        while due:
            late = list[ZoneRun]()
            for zone in due:
                if stopped():
                    return
                if self._pass(zone, clock) and zone.next_due() <= start:
                    late.append(zone)
            for zone in due:  # also where zones stay behind: what takes over replays the rest
                self._keep(zone)
            due = late
        for zone in self._zones:
            self._keep(zone)
            self._purge(zone, start)
        self._begin_weeks(clock, stopped)
        self._passed()

    def _begin_weeks(self, clock: Clock, stopped: Callable[[], bool]) -> None:
        """Begin the next week of zones whose week is over, while no interval closes."""
        due = min((zone.next_due() for zone in self._zones), default=math.inf)
        for zone in self._zones:
            if stopped() or clock.now() >= due:
                return
            before = zone.service
            zone.renew()
            if zone.service is not before:
                self._renew(zone.service)

    def _pass(self, zone: ZoneRun, clock: Clock) -> bool:
        """Publish a zone's next interval if it is due; whether it was published."""
        start, before, name = time.monotonic(), zone.service, zone.service.id
        releases = zone.run(clock.now(), ahead_of(clock))
        if zone.service is not before:
            self._renew(zone.service)
        self._metrics.readings_lost(name, self._meters.lost(name))
        if releases is None or zone.curator is None:
            if zone.service.id not in self.board.waiting():
                self._metrics.failed(zone.service.id)
            self.board.failed(zone.service.id)
            return False
        self._metrics.released(releases, time.monotonic() - start)
        status = zone.curator.status
        self._metrics.zone_status(status)
        self.board.passed(status)
        if self._operator is not None:
            self._operator.update(zone.service.id, zone.curator.inside)
        return bool(releases)

    @staticmethod
    def _keep(zone: ZoneRun) -> None:
        """Keep a checkpoint where one is due."""
        try:
            if zone.curator is not None:
                zone.curator.keep_checkpoint()
        except LedgerError as error:  # what it is for is only time
            log.warning("no checkpoint", extra={"zone": zone.service.id, "reason": str(error)})

    def _purge(self, zone: ZoneRun, now: float) -> None:
        """Delete what a zone that failed keeps no longer; one that is open does so itself."""
        name = zone.service.id
        if zone.curator is not None or 0 <= now - self._purged.get(name, -math.inf) < PURGE:
            return
        self._purged[name] = now
        try:
            self._meters.open_zone(*zone.service.roster)  # it may never have been open here
            self._meters.purge(name, int(now) - zone.service.retention)
        except MeterError as error:
            log.warning("readings not deleted", extra={"zone": name, "reason": str(error)})

    def _renew(self, zone: ZoneService) -> None:
        """Go on with a zone over another week."""
        zones = tuple(zone if old.id == zone.id else old for old in self.deployment.zones)
        self.deployment = replace(self.deployment, zones=zones)
        self.history.renew(zone)
        self._loads.renew(zone)

    def _passed(self) -> None:
        if self._operator is not None:
            self._operator.passed()

    def leave(self) -> None:
        """Prepare to stop; called before anything is closed."""
        with suppress(LedgerError):  # then the next start takes longer
            for zone in self._zones:
                if zone.curator is not None:
                    zone.curator.keep_checkpoint(spacing=1)

    def sleep_length(self, clock: Clock) -> float:
        """How long to sleep [s]: until an interval closes or a pause ends, `LEAST`..`WAKE`."""
        now = clock.now()
        due = min((zone.next_due() for zone in self._zones), default=float("inf"))
        pause = min((zone.pause for zone in self._zones), default=WAKE)
        lengths = {zone.service.seconds for zone in self._zones}
        border = min(
            (length - now % length for length in lengths), default=WAKE
        )  # another price holds
        return min(max(min(due - now, pause, border), LEAST), WAKE)


def make_noise(deployment: Deployment) -> Noise:
    """The noise source of a service's mode.

    Args:
        deployment: The service.

    Returns:
        Secure noise in production, else simulated noise with a random seed.
    """
    if deployment.mode == "production":
        return SecureNoise()
    return SimulatedNoise(secrets.randbits(128))


# ---- certificates


class Certificates:
    """Certificates of running zones, made on demand and kept until a record is added.

    Args:
        deployment: zones and ledger.
        key: public key of the ledger.
    """

    def __init__(self, deployment: Deployment, key: str) -> None:
        self._ledger, self._key = deployment.ledger, key
        self._zones = {zone.id: zone for zone in deployment.zones}
        self._cache: dict[str, tuple[str, dict[str, Any]]] = {}
        self._mutex = threading.Lock()

    def values(self, zone: str) -> dict[str, Any]:
        """Return a zone's certificate as `hushgrid audit --json` writes it. Takes seconds."""
        with self._mutex:
            with open_store(self._ledger, create=False) as store:
                newest = store.head(zone)
            head = "" if newest is None else newest.digest
            cached_head, values = self._cache.get(zone, (None, {}))
            if cached_head != head:
                values = self._certificate(zone)
                self._cache[zone] = (head, values)
            return values

    def _certificate(self, zone: str) -> dict[str, Any]:
        from hushgrid.audit.certificate import certify
        from hushgrid.operate.audit import load_ledger, terms_of
        from hushgrid.report.certificate import certificate_json

        evidence, chain = load_ledger(self._ledger, zone=zone, key=self._key, heads=())
        certificate = certify(
            evidence,
            [terms_of(self._zones[zone])],
            chain=chain,
            # as for an auditor who exported the ledger from /v1/ledger
            inputs={"file": "ledger.ndjson", "kind": "ledger", "config": ["service.toml"],
                    "digests": {}, "zone": zone, "key": self._key, "heads": []},
        )  # fmt: skip
        return certificate_json(certificate)
