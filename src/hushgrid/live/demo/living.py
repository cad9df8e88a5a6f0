"""The living zone: day after day on a fast clock, until it is told to stop or to begin again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from shutil import rmtree
from tempfile import TemporaryDirectory

from hushgrid.errors import HushgridError
from hushgrid.live.access.hashing import new_secret
from hushgrid.live.demo.broker import private_broker
from hushgrid.live.demo.channel import Channel
from hushgrid.live.demo.pace import SimulatedPace
from hushgrid.live.demo.run import DemoRun, telling_house
from hushgrid.live.demo.setting import HORIZON, OPERATOR, Dials, Secrets, lay_out
from hushgrid.live.demo.show import DAY, Show
from hushgrid.live.demo.ways import demo_routes
from hushgrid.live.deployment import Deployment
from hushgrid.live.promise import sentence
from hushgrid.live.web.server import Server
from hushgrid.live.web.stage import Stage

log = logging.getLogger("hushgrid.demo")

HOST = "127.0.0.1"


class Wishes:
    """What somebody asks of the running demo, from any thread: other dials, or its end."""

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.stopping = False
        self._dials: Dials | None = None

    def ask(self, dials: Dials) -> None:
        """Have the day begin again; of several wishes the last one counts."""
        self._dials = dials
        self.wake.set()

    def stop(self) -> None:
        """Have the demo end."""
        self.stopping = True
        self.wake.set()

    def take(self) -> Dials | None:
        """What is asked, once."""
        if not self.stopping:
            self.wake.clear()
        found, self._dials = self._dials, None
        return found


@dataclass(frozen=True, slots=True)
class Opening:
    """How a demo begins; `begins` [UTC epoch s] is its first midnight."""

    dials: Dials
    begins: int
    seed: int = 1
    port: int = 8080
    speed: float = 720.0
    horizon: int = HORIZON


def live(opening: Opening, wishes: Wishes, say: Callable[[str], None]) -> None:
    """Serve the zone until `wishes` says stop; then nothing of it is left."""
    with ExitStack() as stack:
        name = stack.enter_context(
            TemporaryDirectory(prefix="hushgrid-demo-", ignore_cleanup_errors=True)
        )
        demo = _Living(opening, wishes, Path(name), stack)
        for line in demo.lines:
            say(line)
        while not wishes.stopping:
            demo.play()


class _Living:
    """The server and broker, and one run after another on them."""

    def __init__(self, opening: Opening, wishes: Wishes, folder: Path, stack: ExitStack) -> None:
        self._opening, self._wishes, self._folder = opening, wishes, folder
        self._secrets = Secrets(token_urlsafe(), new_secret())
        channel = Channel()
        self._show = Show(channel, self._secrets.operator)
        self._routes = demo_routes(self._show, channel, wishes.ask)
        self._stage = Stage(self._routes, stale=True)
        server = Server(self._stage, HOST, opening.port)  # a port that is taken is told at once
        stack.callback(server.stop)
        self._port, self._broker = server.port, stack.enter_context(private_broker(folder))
        self._number, self._new_epoch = 0, False
        self._next = self._planned(opening.dials)
        self._begin(opening.dials)
        server.start()
        stack.callback(channel.close)

    @property
    def lines(self) -> list[str]:
        """What whoever started it should know."""
        minutes = DAY / self._opening.speed / 60
        (zone,) = self._next.zones
        prices = f"hushgrid/{zone.id}/price"
        return [
            f"{len(zone.meters):,} simulated houses, a day in {minutes:.3g} minutes:"
            f" http://{HOST}:{self._port} (/demo: the adversaries, /operator: the inside)",
            f"Operator: client {OPERATOR}, secret {self._secrets.operator}",
            f"Prices over MQTT: {HOST}:{self._broker}, topic {prices}"
            if self._broker
            else "No mosquitto on this machine: prices go out over HTTP alone.",
            "Ctrl-C ends it, and nothing is kept.",
        ]

    def _planned(self, dials: Dials) -> Deployment:
        """A folder of its own for a new run of days."""
        self._number += 1
        (folder := self._folder / str(self._number)).mkdir()
        return self._laid_out(folder, dials, self._opening.begins)

    def _laid_out(self, folder: Path, dials: Dials, begins: int) -> Deployment:
        return lay_out(
            folder,
            dials,
            self._secrets,
            begins=begins,
            port=self._port,
            mqtt=self._broker,
            horizon=self._opening.horizon,
        )

    def _begin(self, dials: Dials) -> None:
        """A new day under new dials."""
        (zone,) = self._next.zones
        self._dials, self._new_epoch = dials, False
        self._clock = SimulatedPace(zone.begins, self._opening.speed)
        house = telling_house(zone, self._opening.seed, DAY // zone.seconds)
        self._show.begin(zone, house, dials, sentence(zone))

    def play(self) -> None:
        """Days under one epoch, and the plan of what comes after them."""
        deployment = self._next
        with DemoRun(
            deployment,
            self._stage,
            self._clock,
            url=f"http://{HOST}:{self._port}",
            token=self._secrets.token,
            seed=self._opening.seed + (deployment.zones[0].begins - self._opening.begins),
            more=self._routes,
            new_epoch=self._new_epoch,
        ) as run:
            wanted = self._days(run)
            if wanted is None and not self._wishes.stopping:
                self._next_epoch(run)
        if wanted is not None:
            self._begin(wanted)
            rmtree(deployment.key.parent, ignore_errors=True)

    def _days(self, run: DemoRun) -> Dials | None:
        """Play until the horizon ends (None), the demo does, or a plan for other dials is made."""
        while not run.over:
            seen = run.step(self._wishes.wake)
            if seen is not None:
                self._show.add(seen)
            if self._wishes.stopping:
                return None
            dials = self._wishes.take() if self._wishes.wake.is_set() else None
            if dials is not None and self._replanned(dials):
                return dials
        return None

    def _replanned(self, dials: Dials) -> bool:
        """Plan for other dials; meanwhile the old day stands still and its pages answer."""
        self._show.restart(dials)
        try:
            self._next = self._planned(dials)
        except HushgridError as error:
            log.error("dials not usable", extra={"error": type(error).__name__})
            self._show.stay()
            return False
        return True

    def _next_epoch(self, run: DemoRun) -> None:
        """The horizon has ended: the same terms again, from where it ended."""
        zone, folder = run.zone, self._next.key.parent
        begins = zone.begins + zone.policy.horizon * zone.seconds
        self._next = self._laid_out(folder, self._dials, begins)
        self._new_epoch = True
        self._show.go_on(self._next.zones[0])
