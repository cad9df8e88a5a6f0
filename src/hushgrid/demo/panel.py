"""The demo's adversary panel: beliefs about one house over its day, scores, and events for pages.

Two adversaries, each with protection and without. They get releases, and the strong one every
other reading; the true occupancy is used for scoring only. Written by the demo's loop, read by
the server's thread. Paths: /demo/state, /demo/stream, /demo/day and /demo/cold.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hushgrid._numbers import Floats, Int32s, UInt8s
from hushgrid.adversary.attack import without_noise
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import Beliefs
from hushgrid.adversary.knowledge import Knowledge, KnownReadings
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.curator.clock import utc
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.release import Release
from hushgrid.model.zone import optimal_rate
from hushgrid.report.promise import HomeWords
from hushgrid.statistics import auc
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.http.prices import Channel
from hushgrid.web.http.sessions import json_only

LIMITS = (0.1, 20.0)  # of epsilon
CHOICES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # of its dial
OPERATOR = "operator"  # the client id of the demo's own operator
MOST = 200  # listeners
TOPIC = "demo"


KNOWS = ("none", "others")  # the paper's adversary, and the strong one
VIEWS = ("open", "private")  # the load itself, and what was published
BELIEFS = ("prior", *(f"{knows} {view}" for knows in KNOWS for view in VIEWS))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PanelStep:
    """One step of all houses.

    Attributes:
        start: When the step began [UTC s].
        occupancy: Who was at home, (houses,).
        home: Believed chance of being at home, (houses,) for each of `BELIEFS`.
        load: [Wh]
        optimal: The optimal rate [currency/kWh].
        rate: The published rate [currency/kWh].
        forecast: The rate of the models' mean load, without any meter [currency/kWh].
    """

    start: int
    occupancy: UInt8s
    home: dict[str, Floats]
    load: int
    optimal: float
    rate: float
    forecast: float


class Panel:
    """Updates the adversaries' beliefs release by release.

    Args:
        zone: The zone.
    """

    def __init__(self, zone: ZoneService) -> None:
        self._zone = zone
        scenario = zone.scenario
        world = (scenario.zone, scenario.models, scenario.consumption)
        private = Factored(Knowledge(*world, zone.policy.clamp))
        bare = Factored(Knowledge(*world)) if zone.policy.clamp else private
        self._adversaries = {"open": bare, "private": private}
        self._beliefs: dict[str, Beliefs] = dict.fromkeys(BELIEFS, private.start())
        self._first = zone.begins // zone.seconds
        self._public = PublicKnowledge.start(scenario.models, scenario.consumption)

    def fold(self, record: ReleaseRecord, readings: Int32s, occupancy: UInt8s) -> PanelStep:
        """Update all beliefs with one release; readings [Wh] and occupancy are the truth."""
        t = record.t - self._first + 1
        releases = dict(self._releases(record, readings))
        for name in BELIEFS:
            self._beliefs[name] = self._after(name, t, releases, readings)
        load, tariff = int(readings.sum()), self._zone.scenario.tariff
        mean = float(np.mean([law.mean for law in self._public.moments.at(t)]))
        rates = (optimal_rate(load, tariff), record.rate, optimal_rate(mean, tariff))
        home = {name: self._home(name) for name in BELIEFS}
        return PanelStep(record.t * self._zone.seconds, occupancy.copy(), home, load, *rates)

    def _after(self, name: str, t: int, releases: dict[str, Release], readings: Int32s) -> Beliefs:
        beliefs = self._beliefs[name]
        knows, _, kind = name.partition(" ")
        adversary = self._adversaries[kind or "private"]
        if knows == "prior" or kind not in releases:
            while beliefs.t < t:
                beliefs = adversary.skip(beliefs)
            return beliefs
        if knows == "others":
            adversary = adversary.with_bystanders(KnownReadings(readings[None, :], first=t))
        return adversary.step(beliefs, releases[kind])

    def _releases(self, record: ReleaseRecord, readings: Int32s) -> Iterator[tuple[str, Release]]:
        """The mechanism's release, and the same without noise; none of a forecast or fallback."""
        if record.source != "readings":
            return
        release = record.in_week(self._first)
        yield "private", release
        yield "open", without_noise(release, readings, self._zone.scenario)

    def _home(self, name: str) -> Floats:
        """Chances of being at home, the mean over the models weighted by their evidence."""
        beliefs, adversary = self._beliefs[name], self._adversaries["private"]
        laws = np.stack([np.asarray(adversary.home(law)) for law in beliefs.laws])
        evidence = np.stack([np.asarray(figures) for figures in beliefs.evidence])
        weights = np.exp(evidence - np.logaddexp.reduce(evidence, axis=0))
        return np.asarray(np.clip((laws * weights).sum(axis=0), 0.0, 1.0))


def by_adversary(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Regroup values by what the adversary knows.

    >>> by_adversary({name: i for i, name in enumerate(BELIEFS)})
    {'none': {'open': 1, 'private': 2}, 'others': {'open': 3, 'private': 4}}

    Args:
        values: Values under the names of `BELIEFS`.

    Returns:
        {knows: {open, private}}.
    """
    return {knows: {view: values[f"{knows} {view}"] for view in VIEWS} for knows in KNOWS}


DAY = 86_400  # [s]
_DIGITS = 6
PRICES = ("exact", "published", "forecast")


class PanelFigures:
    """The panel's figures, sent to listeners step by step.

    Args:
        channel: The listeners.
        operator: The operator's secret, which the demo's page displays.
    """

    def __init__(self, channel: Channel, operator: str) -> None:
        self._channel, self._operator = channel, operator
        self._mutex = threading.Lock()
        self._cold = False

    def restart(self, epsilon: float) -> None:
        """Announce that the day begins again with this epsilon."""
        with self._mutex:
            self._restarting = True
        self._send("restart", {"epsilon": epsilon})

    def stay(self) -> None:
        """Announce that the day continues with the epsilon it had."""
        with self._mutex:
            self._restarting, epsilon = False, self._epsilon
        self._send("restart", {"epsilon": epsilon})

    def begin(self, zone: ZoneService, house: int, epsilon: float, promise: HomeWords) -> None:
        """Begin a new run of days."""
        with self._mutex:
            self._zone, self._house, self._epsilon = zone, house, epsilon
            self._promise, self._restarting = promise, False
            self._begins, self._steps = zone.begins, DAY // zone.seconds
            self._recent: deque[PanelStep] = deque(maxlen=self._steps)
            self._aucs = self._auc()
            self._clear(1)
            self._count_errors(zone.begins)

    def _clear(self, day: int) -> None:
        """Begin a day without figures."""
        self._day, self._t = day, 0
        self._occupancy: list[int] = []
        self._home: dict[str, list[float]] = {name: [] for name in BELIEFS}
        self._prices: dict[str, list[float]] = {name: [] for name in PRICES}

    def _count_errors(self, since: int) -> None:
        """Begin to count the errors of prices at an instant [UTC s]."""
        self._since, self._counted, self._squares = since, 0, np.zeros(2)

    def _errors(self) -> dict[str, Any]:
        """Root mean square of the relative errors since they are counted; None: no price yet."""
        errors = np.sqrt(self._squares / self._counted).round(_DIGITS) if self._counted else None
        names = PRICES[1:]
        return {
            "since": utc(self._since),
            **(
                dict.fromkeys(names)
                if errors is None
                else dict(zip(names, errors.tolist(), strict=True))
            ),
        }

    def add(self, step: PanelStep, cold: bool = False) -> None:
        """Add one step and send it to listeners; `cold`: every house used more."""
        day, t = divmod((step.start - self._begins) // self._zone.seconds, self._steps)
        with self._mutex:
            if day + 1 != self._day:
                self._clear(day + 1)
            self._t = t + 1
            if cold != self._cold:
                self._cold = cold
                self._count_errors(step.start)
            rates = (step.optimal, step.rate, step.forecast)
            self._counted += 1
            self._squares += (np.array(rates[1:]) / step.optimal - 1) ** 2
            for name, rate in zip(PRICES, rates, strict=True):
                self._prices[name].append(round(rate, _DIGITS))
            self._occupancy.append(int(step.occupancy[self._house]))
            for name in BELIEFS:
                self._home[name].append(round(float(step.home[name][self._house]), _DIGITS))
            self._recent.append(step)
            self._aucs = self._auc()
            last = {name: values[-1] for name, values in self._home.items()}
            event = {
                "day": self._day,
                "t": self._t,
                "occupancy": self._occupancy[-1],
                "prior": last["prior"],
                **by_adversary(last),
                "auc": self._aucs,
                "prices": {name: values[-1] for name, values in self._prices.items()},
                "errors": self._errors(),
                "cold": cold,
            }
        self._send("step", event)

    def _send(self, name: str, data: dict[str, Any]) -> None:
        text = f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
        self._channel.send(TOPIC, (0, text.encode()))

    def _auc(self) -> dict[str, dict[str, float | None]]:
        """Of all houses and the last steps; None where they were at home always or never."""
        aucs: dict[str, float | None] = dict.fromkeys(BELIEFS)
        if self._recent:
            truth = np.array([step.occupancy for step in self._recent])
            for name in BELIEFS:
                # beliefs that differ by rounding alone are ties
                beliefs = np.array([step.home[name] for step in self._recent]).round(4)
                value = round(auc(beliefs, truth), _DIGITS)
                aucs[name] = value if math.isfinite(value) else None
        by_knowledge = by_adversary(aucs)
        return {knows: {**by_knowledge[knows], "prior": aucs["prior"]} for knows in KNOWS}

    def state(self) -> dict[str, Any]:
        """All figures, for a page that loads."""
        with self._mutex:
            return {
                "zone": self._zone.id,
                "house": self._house,
                "steps": self._steps,
                "step_seconds": self._zone.seconds,
                "epsilon": self._epsilon,
                **self._promise.content,
                "day": self._day,
                "t": self._t,
                "origin": utc(self._begins + (self._day - 1) * DAY),
                "occupancy": list(self._occupancy),
                "prior": list(self._home["prior"]),
                "attackers": by_adversary({n: list(v) for n, v in self._home.items()}),
                "auc": self._aucs,
                "prices": {name: list(values) for name, values in self._prices.items()},
                "errors": self._errors(),
                "cold": self._cold,
                "limits": list(LIMITS),
                "choices": list(CHOICES),
                "restarting": self._restarting,
                "operator": {"client": OPERATOR, "secret": self._operator},
            }


class _Promise(BaseModel):
    epsilon: Annotated[float, Field(ge=LIMITS[0], le=LIMITS[1])]


class _Cold(BaseModel):
    cold: bool


_Form = TypeVar("_Form", bound=BaseModel)


def demo_routes(
    figures: PanelFigures,
    channel: Channel,
    ask: Callable[[float], None],
    chill: Callable[[bool], None],
) -> list[BaseRoute]:
    """The paths of the adversary panel.

    Args:
        figures: The figures.
        channel: The listeners.
        ask: Restarts the day with another epsilon.
        chill: Makes every house use more from the next interval on, or no longer.

    Returns:
        Routes of the HTTP server.
    """

    async def state(request: Request) -> Response:
        del request
        return JSONResponse(figures.state())

    async def stream(request: Request) -> Response:
        return channel.answer(request, TOPIC, retry=2000)

    async def read_form(request: Request, model: type[_Form]) -> _Form:
        # a page of another origin cannot send JSON without a preflight, which is not answered
        await json_only(request)
        try:
            return model.model_validate_json(await request.body(), strict=True)
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from None

    async def day(request: Request) -> Response:
        form = await read_form(request, _Promise)
        ask(form.epsilon)
        return JSONResponse(form.model_dump(), 202)

    async def weather(request: Request) -> Response:
        form = await read_form(request, _Cold)
        chill(form.cold)
        return JSONResponse(form.model_dump(), 202)

    return [
        Route("/demo/state", state, methods=["GET"]),
        Route("/demo/stream", stream, methods=["GET"]),
        Route("/demo/day", day, methods=["POST"]),
        Route("/demo/cold", weather, methods=["POST"]),
    ]
