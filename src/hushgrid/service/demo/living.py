"""The living zone: day after day on a fast clock, until it is told to stop or to begin again."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import token_urlsafe
from shutil import rmtree
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np
from starlette.routing import BaseRoute

from hushgrid.audit.certificate import Certificate, certify
from hushgrid.compare.simulation import Mechanism, days, simulate_steps
from hushgrid.errors import HushgridError, ServiceError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.results import write_text
from hushgrid.mechanism.noise import Noise, SimulatedNoise
from hushgrid.planning.planner import examine
from hushgrid.report.certificate import certificate_json, certificate_page
from hushgrid.report.comparison import CHANCE, Foreseen, Played
from hushgrid.service.access.clients import new_secret
from hushgrid.service.audit import fingerprint, load_case
from hushgrid.service.clock import Clock
from hushgrid.service.demo.panel import (
    BELIEFS,
    DAY,
    Channel,
    Panel,
    PanelStep,
    Show,
    by_adversary,
    demo_routes,
)
from hushgrid.service.demo.setting import HORIZON, OPERATOR, Dials, Secrets, lay_out, private_broker
from hushgrid.service.http.server import Server, SwappableApp
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.records import ReleaseRecord, schedule_digest
from hushgrid.service.process import Process
from hushgrid.service.promise import sentence
from hushgrid.service.simulated_meters import Fleet, HttpChannel
from hushgrid.statistics import next_one

# --------------------------------------------------------------------------------------------------
# The demo's clock: so many times as fast as life, and never past the work in hand.


LOOK = 0.25  # [s] between two looks at whether to stop


class SimulatedPace:
    """Simulated time from `origin` [UTC epoch s] on, at most `speed` times as fast as life.

    It goes as far as `reach` was told to and waits there, so a slow machine makes a slow day, not
    one with holes. Infinite speed: as fast as the work allows, without any sleep.
    """

    def __init__(
        self, origin: float, speed: float, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed, self._steady = speed, steady
        self._mark, self._since, self._limit = origin, steady(), origin

    def now(self) -> float:
        """UTC epoch seconds."""
        if math.isinf(self._speed):
            return self._limit
        run = self._mark + self._speed * (self._steady() - self._since)
        return min(run, self._limit)

    def reach(self, at: float, wake: threading.Event) -> bool:
        """Go on to an instant; False where `wake` was set before."""
        self._limit = max(at, self._limit)
        while (left := at - self.now()) > 0:
            if wake.wait(min(left / self._speed, LOOK)):
                return False
        self._mark, self._since = self.now(), self._steady()
        return not wake.is_set()


# --------------------------------------------------------------------------------------------------
# One zone of the demo, open: a real process, its houses, and those who watch.


TRIES, PAUSE = 100, 0.2  # how often a release is waited for, and how long each time [s]
_PEOPLE, _NOISE = 0, 1  # what a seed is for


class DemoRun:
    """The zone of one deployment from its first interval on; `with` opens and closes it.

    `step` plays one interval: readings go in over HTTP, the curator publishes, the panel watches.
    """

    def __init__(
        self,
        deployment: Deployment,
        stage: SwappableApp,
        clock: SimulatedPace,
        *,
        url: str,
        token: str,
        seed: int,
        more: Sequence[BaseRoute] = (),
        new_epoch: bool = False,
    ) -> None:
        (self.zone,) = deployment.zones
        self._deployment, self._stage, self._clock = deployment, stage, clock
        self._url, self._token, self._seed = url, token, seed
        self._more, self._new_epoch = more, new_epoch
        self._stack = ExitStack()
        self._newest: ReleaseRecord | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            made = Process(
                self._deployment, stack, more=self._more, demo=True, noise=_seeded(self._seed)
            )
            made.open(self._clock.now(), self._new_epoch)
            stack.callback(made.history.watch(self._saw))
            made.listen(self._clock, self._stage)
            self._way = HttpChannel(self._url, self._token)
            stack.callback(self._way.shut)
            self._process, self._panel = made, Panel(self.zone)
            self._fleet = Fleet(self.zone, people(self._seed), self.zone.begins)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def over(self) -> bool:
        """Whether the horizon has ended."""
        zone = self.zone
        return self._fleet.start >= zone.begins + zone.policy.horizon * zone.seconds

    def step(self, wake: threading.Event) -> PanelStep | None:
        """The next interval, whole; None where `wake` was set before it ended."""
        t = self._fleet.start // self.zone.seconds
        if not self._clock.reach(self._fleet.end, wake):
            return None
        self._way.send(self._fleet.interval(None))
        self._publish(self._clock, t, wake)
        if self._newest is None or self._newest.t < t:
            return None
        return self._panel.fold(
            self._newest, self._fleet.world.readings, self._fleet.world.occupancy
        )

    def _publish(self, clock: Clock, t: int, wake: threading.Event) -> None:
        """Turn until the release is out: a zone that failed is opened again after a pause."""
        for _ in range(TRIES):
            self._process.turn(clock)
            if self._newest is not None and self._newest.t >= t:
                return
            if wake.wait(PAUSE):
                return
        raise ServiceError(f"the demo's zone published nothing for step {t}; see the log above.")

    def _saw(self, zone: ZoneService, shown: ReleaseRecord) -> None:
        del zone
        self._newest = shown


def people(seed: int) -> int:
    """The seed of the houses, apart from that of the noise."""
    return int(np.random.SeedSequence([seed, _PEOPLE]).generate_state(1, np.uint32)[0])


def _seeded(seed: int) -> Callable[[], Noise]:
    """A source for each curator that is opened; no two of them draw the same."""
    numbers = count()
    return lambda: SimulatedNoise(np.random.SeedSequence([seed, _NOISE, next(numbers)]))


def telling_house(zone: ZoneService, seed: int, steps: int) -> int:
    """A house to watch: one that is out for a third of its first day, in one piece if there is one.

    The houses' own randomness says so before the day is played.
    """
    lives = simulate_steps(zone.scenario, steps, (people(seed),))
    day = np.array([world.occupancy.copy() for world in lives], np.int8)
    turns = np.abs(np.diff(day, axis=0)).sum(axis=0)
    out = (day == 0).mean(axis=0)
    return int(np.lexsort((np.abs(out - 1 / 3), np.abs(turns - 2)))[0])


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
        self._stage = SwappableApp(self._routes, stale=True)
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


# --------------------------------------------------------------------------------------------------
# One day of the demo without a page, as fast as the work allows; then judged.


BEGINS = 1_767_571_200  # 2026-01-05T00:00:00Z, a Monday
DAYS = 24  # simulated to foresee one day's error
_FORESEEN = 2**31  # keeps the simulated days' seeds apart from the played one's


@dataclass(frozen=True, slots=True)
class DayFigures:
    """What is left of the day: its figures, and the files that were written."""

    day: Played
    files: tuple[Path, ...]
    ledger: Path


def play_once(
    dials: Dials, out: Path, wishes: Wishes, *, seed: int, tick: Callable[[], None]
) -> DayFigures:
    """Play a day through real parts, check ledger and promise, and write what others can check."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                TemporaryDirectory(prefix="hushgrid-demo-", ignore_cleanup_errors=True)
            )
        )
        stage = SwappableApp()
        server = Server(stage, HOST, 0)
        server.start()
        stack.callback(server.stop)
        secrets = Secrets(token_urlsafe(), new_secret())
        made = lay_out(folder, dials, secrets, begins=BEGINS, port=server.port)
        (zone,) = made.zones
        tick()
        url, clock = f"http://{HOST}:{server.port}", SimulatedPace(BEGINS, math.inf)
        with DemoRun(made, stage, clock, url=url, token=secrets.token, seed=seed) as run:
            seen = [_step(run, wishes, tick) for _ in range(DAY // zone.seconds)]
        foreseen = foresee(zone, seed, len(seen), tick)
        found, records, files = _audited(folder, made.ledger, zone.id, out)
        tick()
        return DayFigures(
            _played(dials, zone, seed, seen, foreseen, found, records), files, files[0]
        )


def _step(run: DemoRun, wishes: Wishes, tick: Callable[[], None]) -> PanelStep:
    seen = run.step(wishes.wake)
    if seen is None:
        if wishes.stopping:
            raise KeyboardInterrupt
        raise ServiceError("the demo's zone left an interval out; see the log above.")
    tick()
    return seen


def foresee(zone: ZoneService, seed: int, steps: int, tick: Callable[[], None]) -> Foreseen:
    """The error that one day of the zone's policy should have, from public models alone."""
    policy = zone.policy.first(steps)
    world = zone.scenario
    terms = (world.zone, world.tariff, world.models, world.consumption)
    played = days(lambda _: world, {"it": Mechanism(policy)}, count=DAYS, seed=seed + _FORESEEN)
    errors = []
    for day in played:
        errors.append(day.traces["it"].rmsre_paper)
        tick()
    planned = examine(*terms, policy).prospect.estimated(rho=0.0)  # these days follow the model
    low, high = next_one(errors, CHANCE)
    return Foreseen(planned, float(np.mean(errors)), low, high, DAYS)


def _audited(
    folder: Path, ledger: str, zone: str, out: Path
) -> tuple[Certificate, int, tuple[Path, ...]]:
    """Copy out what anybody needs for an audit, and make one from the copies."""
    with open_store(ledger, create=False) as store:
        lines = [record.line for record in store.records(zone)]
    written = write_text(out / "ledger.ndjson", "".join(f"{line}\n" for line in lines))
    terms = write_text(out / "service.toml", (folder / "service.toml").read_text("utf-8"))
    case = load_case(str(written), [terms])
    found = certify(
        case.evidence,
        case.terms,
        chain=case.chain,
        commit=schedule_digest,
        inputs={
            "file": str(written),
            "kind": case.kind,
            "digests": {str(path): fingerprint(path) for path in (written, terms)},
            "config": [str(terms)],
            **dict.fromkeys(("zone", "publisher", "samples", "confidence", "seed", "key")),
            "heads": [],
        },
    )
    page = write_text(out / "certificate.html", certificate_page(certificate_json(found)))
    return found, len(lines), (written, terms, page)


def _played(
    dials: Dials,
    zone: ZoneService,
    seed: int,
    seen: list[PanelStep],
    foreseen: Foreseen,
    found: Certificate,
    records: int,
) -> Played:
    home = {name: np.array([one.home[name] for one in seen]) for name in BELIEFS}
    (houses,) = found.houses
    return Played(
        epsilon=dials.epsilon,
        eta=dials.eta,
        promise=sentence(zone),
        seed=seed,
        house=telling_house(zone, seed, len(seen)),
        optimal=np.array([one.optimal for one in seen]),
        published=np.array([one.rate for one in seen]),
        occupancy=np.array([one.occupancy for one in seen]),
        prior=home["prior"],
        beliefs=by_adversary(home),
        foreseen=foreseen,
        leakage=math.inf if houses.leakage is None else float(houses.leakage.max()),
        records=records,
        chain=found.check("chain").status,
        verdict=found.verdict,
    )
