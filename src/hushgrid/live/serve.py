"""The running process: stores, key, noise, a curator for each zone, ways in and out, the loop.

    stop = threading.Event()
    serve(load_deployment("service.toml"), clock=SystemClock(), stop=stop)

A zone whose pass fails is closed and opened again after a pause that grows; the others go on.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from starlette.routing import BaseRoute

from hushgrid.errors import MeterError
from hushgrid.live.access import Access, open_clients
from hushgrid.live.clock import Clock
from hushgrid.live.curator import Curator
from hushgrid.live.deployment import Deployment, Http, OpenAdr, ZoneService
from hushgrid.live.gate import Gate
from hushgrid.live.held import HeldMeters
from hushgrid.live.history import History
from hushgrid.live.ledger.keys import load
from hushgrid.live.ledger.stores import open_store
from hushgrid.live.meters import open_meters
from hushgrid.live.mqtt import MqttPrices, MqttReadings
from hushgrid.live.publish import PriceFile, Publisher
from hushgrid.live.running import FIRST_PAUSE, LAST_PAUSE, ZoneRun
from hushgrid.live.transfer import check_arrived
from hushgrid.live.vtn.app import mounted
from hushgrid.live.vtn.mqtt import MqttEvents
from hushgrid.live.vtn.service import Vtn
from hushgrid.live.vtn.store import open_vtn
from hushgrid.live.web.app import make_app
from hushgrid.live.web.board import Board
from hushgrid.live.web.front import Front
from hushgrid.live.web.metrics import Counted, Metrics
from hushgrid.live.web.server import Server
from hushgrid.noise import Noise, SecureNoise, SimulatedNoise

log = logging.getLogger("hushgrid.serve")

WAKE, LEAST = 1.0, 0.01  # [s] the longest and the shortest sleep of the loop


def serve(
    deployment: Deployment, *, clock: Clock, stop: threading.Event, new_epoch: bool = False
) -> None:
    """Run until `stop` is set. What is wrong at the start is raised; later it is logged."""
    with ExitStack() as stack:
        process = Process(deployment, stack)
        process.open(clock.now(), new_epoch)
        process.listen(clock)
        log.info("serving", extra={"mode": deployment.mode})
        while not stop.is_set():
            process.turn(clock)
            stop.wait(process.rest(clock))
        log.info("stopping")
    log.info("stopped")


class Process:
    """Everything that is open; `stack` closes it, the ways in first."""

    def __init__(self, deployment: Deployment, stack: ExitStack) -> None:
        self.deployment, self._stack = deployment, stack
        self._key = load(deployment.key)
        self._meters = stack.enter_context(HeldMeters(lambda: open_meters(deployment.meters)))
        self._metrics = Metrics()
        self.board = Board(zone.id for zone in deployment.zones)
        self.history = History(deployment.zones)
        shown: list[Publisher] = [self.history, *self._made_publishers()]
        self._publishers = [Counted(each, self._metrics) for each in shown]
        self._zones = [ZoneRun(zone, self._curator) for zone in deployment.zones]
        self._gate = Gate(deployment.zones, self._meters)
        self._renew_at, self._pause = 0.0, FIRST_PAUSE
        self.server: Server | None = None

    def _made_publishers(self) -> Iterator[Publisher]:
        if self.deployment.price_file is not None:
            yield PriceFile(self.deployment.price_file)
        if self.deployment.mqtt is not None and self.deployment.mqtt.prices:
            name = f"hushgrid-prices-{self._key.public[:12]}"  # two of a name drive each other out
            prices = MqttPrices(self.deployment.mqtt, name)
            self._stack.callback(prices.stop)
            yield prices
        if self.deployment.mqtt is not None and self.deployment.mqtt_uris:
            name = f"hushgrid-openadr-{self._key.public[:12]}"
            events = MqttEvents(self.deployment.mqtt, name)
            self._stack.callback(events.stop)
            yield events

    @contextmanager
    def _curator(self, zone: ZoneService, now: float, new_epoch: bool) -> Iterator[Curator]:
        """A zone's curator with a ledger store of its own: what is opened again is opened whole."""
        with (
            open_store(self.deployment.ledger) as store,
            Curator.open(
                zone,
                store,
                self._meters,
                _noise(self.deployment),
                self._key,
                self._publishers,
                self.deployment.mode,
                now=now,
                new_epoch=new_epoch,
            ) as curator,
        ):
            self.history.fill(zone.id, curator.releases)
            yield curator

    def open(self, now: float, new_epoch: bool) -> None:
        """Open every zone; what is wrong with one is raised."""
        moves = {}
        for zone in self._zones:
            self._stack.callback(zone.close)
            moves[zone.service.id] = zone.open(now, new_epoch=new_epoch).transfers
        check_arrived(moves)

    def face(self, http: Http, clock: Clock) -> Front:
        """The app that answers over HTTP."""
        clients = open_clients(self.deployment.client_store)
        self._stack.callback(clients.close)
        access = Access(
            clients,
            self._key.derive("access tokens"),
            clock,
            lifetime=http.token_lifetime,
            static=http.tokens,
        )
        more = (
            [self._vtn(self.deployment.openadr, access, clock)] if self.deployment.openadr else []
        )
        return make_app(
            self._gate,
            self.board,
            self._metrics,
            http,
            history=self.history,
            access=access,
            clock=clock,
            lines=self._lines,
            more=more,
        )

    def _vtn(self, settings: OpenAdr, access: Access, clock: Clock) -> BaseRoute:
        store = open_vtn(self.deployment.vtn_store)
        made = Vtn(
            self.history,
            store,
            access,
            clock,
            settings,
            mqtt_uris=self.deployment.mqtt_uris,
            counted=self._metrics.sent,
        )
        return mounted(self._stack.enter_context(made).app)

    def _lines(self, zone: str) -> Iterator[str]:
        """A zone's records as they are exported, read beside the writer."""
        with open_store(self.deployment.ledger, create=False) as store:
            for record in store.records(zone):
                yield record.line + "\n"

    def listen(self, clock: Clock) -> None:
        """Open the ways in."""
        http, mqtt = self.deployment.http, self.deployment.mqtt
        if http is not None:
            self.server = Server(self.face(http, clock), http.host, http.port, http)
            self.server.start()
            self._stack.callback(self.server.stop)
        if mqtt is not None and mqtt.readings:
            name = f"hushgrid-readings-{self._key.public[:12]}"  # the same after a restart
            readings = MqttReadings(mqtt, self._gate, self._metrics.received, name)
            readings.start()
            self._stack.callback(readings.stop)

    def turn(self, clock: Clock) -> None:
        """One pass over all zones."""
        self._mend()
        for zone in self._zones:
            begun = time.monotonic()
            made = zone.run(clock.now())
            if made is None or zone.curator is None:
                if zone.service.id not in self.board.waiting():
                    self._metrics.failed(zone.service.id)
                self.board.failed(zone.service.id)
                continue
            self._metrics.released(made, time.monotonic() - begun)
            self._metrics.stands(zone.curator.status)
            self.board.passed(zone.curator.status)

    def rest(self, clock: Clock) -> float:
        """How long to sleep [s]: until something is due, never longer than a second."""
        due = min((zone.next_due() for zone in self._zones), default=float("inf"))
        return min(max(due - clock.now(), LEAST), WAKE)

    def _mend(self) -> None:
        """Open a meter store again that cannot be used any more."""
        if not self._meters.doubtful or time.monotonic() < self._renew_at:
            return
        try:
            self._meters.renew()
            self._pause = FIRST_PAUSE
        except (MeterError, OSError) as error:
            log.error("meter store away", extra={"error": type(error).__name__})
            self._pause = min(2 * self._pause, LAST_PAUSE)
        self._renew_at = time.monotonic() + self._pause


def _noise(deployment: Deployment) -> Noise:
    if deployment.mode == "production":
        return SecureNoise()
    return SimulatedNoise(secrets.randbits(128))
