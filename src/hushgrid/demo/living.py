"""The demo: a simulated zone with a real curator, on a fast clock, or one day at once.

One run can be restarted with another epsilon. A single day is played at once, then audited.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import count
from pathlib import Path
from secrets import token_urlsafe
from shutil import rmtree
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from starlette.routing import BaseRoute

from hushgrid._numbers import is_real
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.curator.clock import Clock, utc
from hushgrid.curator.promise import zone_words
from hushgrid.demo.panel import (
    BELIEFS,
    DAY,
    LIMITS,
    MOST,
    OPERATOR,
    TOPIC,
    Panel,
    PanelFigures,
    PanelStep,
    by_adversary,
    demo_routes,
)
from hushgrid.demo.simulated_meters import Fleet, HttpChannel
from hushgrid.errors import HushgridError, ServiceError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.results import write_text
from hushgrid.files.service_file import load_deployment
from hushgrid.files.weeks import in_week
from hushgrid.mechanism.noise import Noise, SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.model.world import simulate_steps
from hushgrid.model.zone import Scenario
from hushgrid.operate.audit import fingerprint, load_case
from hushgrid.operate.process import Process
from hushgrid.operate.template import BLOCK_KEYS, KEY_FILE
from hushgrid.planning.planner import examine
from hushgrid.report.certificate import certificate_json, certificate_page
from hushgrid.report.demo import CHANCE, DemoDay, ErrorForecast
from hushgrid.statistics import next_one
from hushgrid.stores.clients import Client, ClientStore, expand_scopes, hash_secret, new_secret
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.writer import create
from hushgrid.stores.meters.block_keys import BlockKeys
from hushgrid.web.http.prices import Channel
from hushgrid.web.http.server import Server, SwappableApp

LOOK = 0.25  # [s] between two checks whether to stop


class SimulatedPace:
    """Simulated time, at most `speed` times as fast as real time.

    It does not pass the instant that `reach` was called with, so a slow machine makes a slow day,
    not one with holes. At infinite speed there is no sleep.

    Args:
        origin: Its first instant [UTC s].
        speed: Times faster than real time.
        steady: A clock that cannot be set [s].
    """

    def __init__(
        self, origin: float, speed: float, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed, self._steady = speed, steady
        self._mark, self._since, self._limit = origin, steady(), origin

    def now(self) -> float:
        """UTC seconds."""
        if math.isinf(self._speed):
            return self._limit
        run = self._mark + self._speed * (self._steady() - self._since)
        return min(run, self._limit)

    def jump(self, at: float) -> None:
        """Be at an instant at once."""
        self._mark = self._limit = max(at, self._limit)
        self._since = self._steady()

    def reach(self, at: float, wake: threading.Event) -> bool:
        """Advance to an instant; False where `wake` was set before."""
        self._limit = max(at, self._limit)
        while (remaining := at - self.now()) > 0:
            if wake.wait(min(remaining / self._speed, LOOK)):
                return False
        self._mark, self._since = self.now(), self._steady()
        return not wake.is_set()


TRIES, PAUSE = 100, 0.2  # how often a release is waited for, and how long each time [s]
_PEOPLE, _NOISE = 0, 1  # what a seed is for


class DemoRun:
    """The zone of one deployment from its first interval on; `with` opens and closes it.

    `step` plays one interval: readings are sent over HTTP, the curator publishes, the panel is
    updated.

    Args:
        deployment: The demo's service.
        stage: The app that the server answers with.
        clock: The simulated time.
        url: The server's address.
        token: The meters' token.
        seed: Random seed of people and noise.
        more: Further routes.

    Attributes:
        zone: The zone.
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
    ) -> None:
        (zone,) = deployment.zones
        self._deployment, self._stage, self._clock = deployment, stage, clock
        self._url, self._token, self._seed = url, token, seed
        self._more, self._begins = more, zone.begins
        self._begin_week(zone)
        self._stack = ExitStack()
        self._newest: ReleaseRecord | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            process = Process(
                self._deployment, stack, more=self._more, demo=True, noise=_seeded(self._seed)
            )
            process.open(self._clock.now())
            stack.callback(process.history.watch(self._saw))
            process.listen(self._clock, self._stage)
            self._way = HttpChannel(self._url, lambda: self._token)
            stack.callback(self._way.shut)
            self._process = process
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _begin_week(self, zone: ZoneService) -> None:
        """Play a week, with the adversaries as they are at its begin."""
        self.zone, self._panel = zone, Panel(zone)
        self._fleet = Fleet(zone, people(self._seed + zone.begins - self._begins), zone.begins)

    def step(self, wake: threading.Event, factor: float = 1.0) -> PanelStep | None:
        """Play the next interval; None where `wake` was set before it ended.

        With a `factor` every house uses that many times as much.
        """
        t = self._fleet.start // self.zone.seconds
        if self._fleet.start >= self.zone.ends:
            self._begin_week(in_week(self.zone, t))
        if not self._clock.reach(self._fleet.end, wake):
            return None
        self._way.send(self._fleet.interval(None, factor))
        self._publish(self._clock, t, wake)
        if self._newest is None or self._newest.t < t:
            return None
        return self._panel.fold(
            self._newest, self._fleet.world.readings, self._fleet.world.occupancy
        )

    def _publish(self, clock: Clock, t: int, wake: threading.Event) -> None:
        """Run the loop until the release is published; a zone that failed is reopened later."""
        for _ in range(TRIES):
            self._process.turn(clock)
            if self._newest is not None and self._newest.t >= t:
                return
            if wake.wait(PAUSE):
                return
        raise ServiceError(f"the demo's zone published nothing for step {t}; see the log above.")

    def _saw(self, zone: ZoneService, release: ReleaseRecord) -> None:
        del zone
        self._newest = release


def people(seed: int) -> int:
    """The seed of the houses, which differs from that of the noise.

    Args:
        seed: The demo's seed.

    Returns:
        A seed.
    """
    return int(np.random.SeedSequence([seed, _PEOPLE]).generate_state(1, np.uint32)[0])


def _seeded(seed: int) -> Callable[[], Noise]:
    """A noise source for each curator that is opened; no two of them draw the same."""
    numbers = count()
    return lambda: SimulatedNoise(np.random.SeedSequence([seed, _NOISE, next(numbers)]))


def house_to_display(zone: ZoneService, seed: int, steps: int) -> int:
    """A house to display: out for about a third of its first steps, if possible in one piece.

    Known before the day is played, since it depends only on the seed.

    Args:
        zone: The zone.
        seed: The demo's seed.
        steps: How many steps to look at.

    Returns:
        The number of the house, from 0.
    """
    lives = simulate_steps(zone.scenario, steps, (people(seed),))
    day = np.array([world.occupancy.copy() for world in lives], np.int8)
    turns = np.abs(np.diff(day, axis=0)).sum(axis=0)
    out = (day == 0).mean(axis=0)
    return int(np.lexsort((np.abs(out - 1 / 3), np.abs(turns - 2)))[0])


log = logging.getLogger("hushgrid.demo")

HOST = "127.0.0.1"
FIRST_STEPS = 24  # the displayed house is chosen by them


class DemoRequests:
    """Requests to the running demo, from any thread: another epsilon, a cold evening, or its end.

    Attributes:
        wake: Set while there is a request.
        stopping: Whether the demo should end.
        cold: Whether every house uses more from the next interval on.
    """

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.stopping = self.cold = False
        self._epsilon: float | None = None

    def ask(self, epsilon: float) -> None:
        """Restart the day; of several requests the last one counts."""
        self._epsilon = epsilon
        self.wake.set()

    def chill(self, cold: bool) -> None:
        """Make every house use more from the next interval on, or no longer."""
        self.cold = cold

    def stop(self) -> None:
        """End the demo."""
        self.stopping = True
        self.wake.set()

    def take(self) -> float | None:
        """The pending request; clears it."""
        if not self.stopping:
            self.wake.clear()
        epsilon, self._epsilon = self._epsilon, None
        return epsilon


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of a demo.

    Attributes:
        epsilon: Of the promise about any 24 hours.
        begins: Start of its first interval [UTC s].
        seed: Random seed.
        port: Port of the HTTP server.
        speed: Times faster than real time.
    """

    epsilon: float
    begins: int
    seed: int = 1
    port: int = 8080
    speed: float = 720.0


def run_demo(options: DemoOptions, requests: DemoRequests, say: Callable[[str], None]) -> None:
    """Serve the zone until it is stopped; all its files are then deleted.

    Args:
        options: The options.
        requests: Requests to the demo.
        say: Prints a line.
    """
    with ExitStack() as stack:
        name = stack.enter_context(
            TemporaryDirectory(prefix="hushgrid-demo-", ignore_cleanup_errors=True)
        )
        demo = _Living(options, requests, Path(name), stack)
        for line in demo.lines:
            say(line)
        while not requests.stopping:
            demo.play()


class _Living:
    """The server, and one run after another on them."""

    def __init__(
        self, options: DemoOptions, requests: DemoRequests, folder: Path, stack: ExitStack
    ) -> None:
        self._options, self._requests, self._folder = options, requests, folder
        self._secrets = Secrets(token_urlsafe(), new_secret())
        channel = Channel([TOPIC], MOST)
        self._figures = PanelFigures(channel, self._secrets.operator)
        self._routes = demo_routes(self._figures, channel, requests.ask, requests.chill)
        self._stage = SwappableApp(self._routes, stale=True)
        server = Server(self._stage, HOST, options.port)  # an error at once if the port is taken
        stack.callback(server.stop)
        self._port = server.port
        self._number = 0
        self._next = self._planned(options.epsilon)
        (zone,) = self._next.zones  # epsilon does not change who lives there
        self._house = house_to_display(zone, options.seed, FIRST_STEPS)
        self._begin(options.epsilon)
        server.start()
        stack.callback(channel.close)

    @property
    def lines(self) -> list[str]:
        """Lines to print at the start: addresses and the operator's secret."""
        minutes = DAY / self._options.speed / 60
        (zone,) = self._next.zones
        return [
            f"{len(zone.meters):,} simulated houses, a day in {minutes:.3g} minutes:"
            f" http://{HOST}:{self._port}/demo (the adversaries; /operator: the inside)",
            f"Operator: client {OPERATOR}, secret {self._secrets.operator}",
            "Ctrl-C ends it, and nothing is kept.",
        ]

    def _planned(self, epsilon: float) -> Deployment:
        """Plan a new run of days in its own folder."""
        self._number += 1
        (folder := self._folder / str(self._number)).mkdir()
        return write_service(
            folder,
            epsilon,
            self._secrets,
            begins=self._options.begins,
            port=self._port,
        )

    def _begin(self, epsilon: float) -> None:
        """Begin a new day with a new epsilon."""
        (zone,) = self._next.zones
        self._clock = SimulatedPace(zone.begins, self._options.speed)
        self._figures.begin(zone, self._house, epsilon, zone_words(zone))

    def play(self) -> None:
        """Play days, until the demo ends or another epsilon is planned."""
        deployment = self._next
        with DemoRun(
            deployment,
            self._stage,
            self._clock,
            url=f"http://{HOST}:{self._port}",
            token=self._secrets.token,
            seed=self._options.seed,
            more=self._routes,
        ) as run:
            self._clock.jump(run.zone.begins + run.zone.seconds)  # the first price at once
            epsilon = self._days(run)
        if epsilon is not None:
            self._begin(epsilon)
            rmtree(deployment.key.parent, ignore_errors=True)

    def _days(self, run: DemoRun) -> float | None:
        """Play until the demo ends (None) or another epsilon is planned."""
        while True:
            cold = self._requests.cold
            step = run.step(self._requests.wake, COLD if cold else 1.0)
            if step is not None:
                self._figures.add(step, cold)
            if self._requests.stopping:
                return None
            epsilon = self._requests.take() if self._requests.wake.is_set() else None
            if epsilon is not None and self._replanned(epsilon):
                return epsilon

    def _replanned(self, epsilon: float) -> bool:
        """Plan for another epsilon; meanwhile the old day is paused and its pages answer."""
        self._figures.restart(epsilon)
        try:
            self._next = self._planned(epsilon)
        except HushgridError as error:
            log.error("epsilon not usable", extra={"error": type(error).__name__})
            self._figures.stay()
            return False
        return True


# ---- one day without pages

BEGINS = 1_767_571_200  # 2026-01-05T00:00:00Z, a Monday
DAYS = 24  # simulated to foresee one day's error
_FORESEEN = 2**31  # keeps the simulated days' seeds apart from the played one's


@dataclass(frozen=True, slots=True)
class DayFigures:
    """Results of one day.

    Attributes:
        day: Its figures.
        files: The files that were written.
        ledger: The exported ledger.
    """

    day: DemoDay
    files: tuple[Path, ...]
    ledger: Path


class SimulatedErrors(Protocol):
    """Errors of the prices of simulated days."""

    def __call__(
        self, scenario: Scenario, policy: Policy, *, count: int, seed: int
    ) -> Iterator[float]:
        """Yield the error of each of `count` days, in the paper's formula."""
        ...


def play_once(
    epsilon: float,
    out: Path,
    requests: DemoRequests,
    errors_of_days: SimulatedErrors,
    *,
    seed: int,
    tick: Callable[[], None],
) -> DayFigures:
    """Play a day through the real service, audit ledger and promise, and write files to check.

    Args:
        epsilon: Of the promise about any 24 hours.
        out: Where files are written.
        requests: Ends the day early.
        errors_of_days: Simulates days to foresee the error of this one.
        seed: Random seed.
        tick: Called after each piece of work.

    Returns:
        Figures and files.
    """
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
        deployment = write_service(folder, epsilon, secrets, begins=BEGINS, port=server.port)
        (zone,) = deployment.zones
        tick()
        url, clock = f"http://{HOST}:{server.port}", SimulatedPace(BEGINS, math.inf)
        with DemoRun(deployment, stage, clock, url=url, token=secrets.token, seed=seed) as run:
            steps = [_step(run, requests, tick) for _ in range(DAY // zone.seconds)]
        foreseen = foresee(zone, seed, len(steps), errors_of_days, tick)
        certificate, records, files = _audited(folder, deployment.ledger, zone.id, out)
        tick()
        return DayFigures(
            _played(epsilon, zone, seed, steps, foreseen, certificate, records), files, files[0]
        )


def _step(run: DemoRun, requests: DemoRequests, tick: Callable[[], None]) -> PanelStep:
    step = run.step(requests.wake)
    if step is None:
        if requests.stopping:
            raise KeyboardInterrupt
        raise ServiceError("the demo's zone left an interval out; see the log above.")
    tick()
    return step


def foresee(
    zone: ZoneService,
    seed: int,
    steps: int,
    errors_of_days: SimulatedErrors,
    tick: Callable[[], None],
) -> ErrorForecast:
    """The error that one day of the zone's policy should have, from public models alone.

    Args:
        zone: The zone.
        seed: Random seed of the simulated days.
        steps: Steps of a day.
        errors_of_days: Simulates the days.
        tick: Called after each simulated day.

    Returns:
        The planned error, and the mean and range of simulated days.
    """
    policy = zone.policy.first(steps)
    world = zone.scenario
    errors = []
    for error in errors_of_days(world, policy, count=DAYS, seed=seed + _FORESEEN):
        errors.append(error)
        tick()
    prospect = examine(*world.terms, policy).prospect
    plan_error = prospect.estimated(rho=0.0)  # these days follow the model
    low, high = next_one(errors, CHANCE)
    return ErrorForecast(plan_error, float(np.mean(errors)), low, high, DAYS)


def _audited(
    folder: Path, ledger: str, zone: str, out: Path
) -> tuple[Certificate, int, tuple[Path, ...]]:
    """Export what an audit needs, and audit the copies."""
    with open_store(ledger, create=False) as store:
        lines = [record.line for record in store.records(zone)]
    records_file = write_text(out / "ledger.ndjson", "".join(f"{line}\n" for line in lines))
    terms = write_text(out / "service.toml", (folder / "service.toml").read_text("utf-8"))
    case = load_case(str(records_file), [terms])
    certificate = certify(
        case.evidence,
        case.terms,
        chain=case.chain,
        inputs={
            "file": str(records_file),
            "kind": case.kind,
            "digests": {str(path): fingerprint(path) for path in (records_file, terms)},
            "config": [str(terms)],
            **dict.fromkeys(("zone", "publisher", "samples", "confidence", "seed", "key")),
            "heads": [],
        },
    )
    page = write_text(out / "certificate.html", certificate_page(certificate_json(certificate)))
    return certificate, len(lines), (records_file, terms, page)


def _played(
    epsilon: float,
    zone: ZoneService,
    seed: int,
    steps: list[PanelStep],
    foreseen: ErrorForecast,
    certificate: Certificate,
    records: int,
) -> DemoDay:
    home = {name: np.array([step.home[name] for step in steps]) for name in BELIEFS}
    (houses,) = certificate.houses
    return DemoDay(
        epsilon=epsilon,
        promise=zone_words(zone),
        seed=seed,
        house=house_to_display(zone, seed, len(steps)),
        optimal=np.array([step.optimal for step in steps]),
        published=np.array([step.rate for step in steps]),
        occupancy=np.array([step.occupancy for step in steps]),
        prior=home["prior"],
        beliefs=by_adversary(home),
        expected_error=foreseen,
        leakage=float(houses.total.max()),  # the day lies within a window
        records=records,
        chain=certificate.check("chain").status,
        verdict=certificate.verdict,
    )


# ---- its service

COLD = 1.3  # what every house uses on a cold evening, of the usual
EVENING = 17 * 3600  # [s of the day] when the living zone begins
_FOR_EVER = 10**9  # [s] of the demo's clock: tokens must outlast its fast days


def check_epsilon(epsilon: float) -> float:
    """An epsilon that the demo can promise.

    >>> check_epsilon(99.0)
    Traceback (most recent call last):
    hushgrid.errors.ServiceError: epsilon is 99.0; give a number from 0.1 to 20.

    Args:
        epsilon: Of the promise about any 24 hours.

    Returns:
        The same.

    Raises:
        ServiceError: If it is outside the limits.
    """
    low, high = LIMITS
    if not is_real(epsilon) or not low <= epsilon <= high:
        raise ServiceError(f"epsilon is {epsilon!r}; give a number from {low:g} to {high:g}.")
    return epsilon


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets of the demo's own parts.

    Attributes:
        token: The meters' token.
        operator: The operator's secret.
    """

    token: str
    operator: str


def write_service(
    folder: Path,
    epsilon: float,
    secrets: Secrets,
    *,
    begins: int,
    port: int,
) -> Deployment:
    """Write service file and key into a folder, add its operator, and plan.

    Args:
        folder: The folder.
        epsilon: Of the promise about any 24 hours.
        secrets: Secrets of the demo's parts.
        begins: Start of the first interval [UTC s].
        port: Port of the HTTP server.

    Returns:
        The service.
    """
    digest = hashlib.sha256(secrets.token.encode()).hexdigest()
    text = files("hushgrid.demo").joinpath("service.toml").read_text("utf-8")
    for name, value in {
        "begins": utc(begins),
        "port": port,
        "token": digest,
        "epsilon": float(epsilon),
    }.items():
        text = text.replace(f"{{{name}}}", str(value))
    path = folder / "service.toml"
    write_text(path, text)
    create(folder / KEY_FILE)
    BlockKeys(folder / BLOCK_KEYS).make()
    deployment = load_deployment(path)
    with ClientStore(deployment.client_store) as store:
        scopes = expand_scopes(["operator"])
        store.add(Client(OPERATOR, scopes, hash_secret(secrets.operator), int(time.time())))
    assert deployment.http is not None
    return replace(deployment, http=replace(deployment.http, token_lifetime=_FOR_EVER))
