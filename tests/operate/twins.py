"""Worlds that differ in their readings, and all that anyone outside sees of one.

Worlds 0 and 1: who is present, who lies above the bound, who below 0 and who below what may be
exported is the same in both; sizes are not. Homes of oak-lane may
export, one of them with a register of its own. World 2: other meters
report (some wherever some do), other readings are cut, some have fractions, and malformed rows come
at other times. The noise knows the load of its world and draws what makes load and noise together
the same in all.

In make soak every path is asked for after every step, else after those that begin and end a life of
the process, and after the one without readings.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import prometheus_client.metrics
import pytest

from hushgrid import Noise, Policy
from hushgrid.belief.filter import Expectations
from hushgrid.cli.ledger import export
from hushgrid.curator import curator
from hushgrid.curator.clock import log_lines
from hushgrid.curator.status import from_ledger
from hushgrid.files.deployment import Deployment
from hushgrid.files.settings import Http, Mqtt, OpenAdr
from hushgrid.intake.readings import Register
from hushgrid.operate import process as serve
from hushgrid.operate.process import Process
from hushgrid.stores.clients import Client, ClientStore
from hushgrid.stores.ledger.writer import load as load_key
from hushgrid.web import mqtt
from hushgrid.web.http import readings
from hushgrid.web.tokens import make_token
from tests.curator.worlds import START, deployment, service
from tests.examples import SOAK
from tests.web.http.credentials import KEPT
from tests.web.http.faces import AUTH, DIGEST, FORMATS, as_arrow, as_ndjson, as_parquet

SECONDS = 900
STEPS, EMPTY, AWAY = 14, 3, range(5, 11)  # an interval without readings; nobody is at the curator
ASKED = range(1, STEPS + 1) if SOAK else (1, EMPTY, AWAY[0] - 1, AWAY[-1] + 1, STEPS)
SPOILED = {0: (1, 12), 1: (1, 12), 2: (2, 13)}  # steps with malformed bodies, by world
OTHERS = 2  # the world in which other meters report
ZONES = {"elm-street": 6, "oak-lane": 3}
EXPORT = {"elm-street": 0, "oak-lane": 300}  # [Wh]
REGISTERS = {"elm-street": (), "oak-lane": (Register(1, "oak-lane-out", -1),)}  # of energy fed in
RANGED = (
    "prices", "prices.csv", "evcc", "evcc/feed_in", "emhass", "octopus", "flexmeasures",
    "vse/tariffs", "vse/v2/tariffs", "getPricing",
)  # fmt: skip
OPENADR = (
    "programs", "programs/elm-street", "events", "events?active=true&programID=oak-lane",
    "events?limit=2&skip=1", "events/none", "events?limit=x", "notifiers", "auth/server",
    "notifiers/mqtt/topics/programs/elm-street/events", "notifiers/mqtt/topics/events",
    "vens", "reports", "none",
)  # fmt: skip
READERS = (
    "/v1/price?zone=elm-street", "/v1/price?zone=oak-lane", "/v1/price", "/v1/price?zone=other",
    *(f"/v1/{feed}?zone={zone}" for feed in RANGED for zone in ZONES),
    "/v1/prices?zone=elm-street&from=2025-06-15T15:00:00Z&limit=3", "/v1/prices?limit=x",
    *(f"/openadr3/3.1.0/{path}" for path in OPENADR),
    *(f"/v1/promise?zone={zone}" for zone in ZONES),
    "/v1/session", "/v1/operator", "/v1/operator/zone?zone=oak-lane", "/v1/operator/certificate",
    "/v1/status", "/healthz", "/readyz", "/v1/ledger",
    "/", *(f"/zones/{zone}" for zone in ZONES), "/how", "/explore?zone=oak-lane", "/operator",
)  # fmt: skip
ONCE = (  # what takes a while, and descriptions that each process makes of itself
    "/v1/tradeoff?zone=oak-lane", "/docs", "/v1/openapi.json", "/openadr3/3.1.0/openapi.json",
)  # fmt: skip
Row = tuple[str, int, int, int]
Leak = Callable[[Process, pytest.MonkeyPatch], None]


def parts(world: int, zone: str, house: int, step: int) -> tuple[int, ...]:
    """What a house counts in an interval [Wh], in one reading or two; nothing where missing."""
    if step == EMPTY or step in AWAY[1:]:
        return ()
    rng = np.random.default_rng([world, len(zone), house, step])
    size = 1 + int(rng.integers(10 ** (2 + 3 * world)))  # other numbers of digits as well
    kind = (house * 5 + step * 3 + 2 * (world == OTHERS)) % 7
    if kind == 0 or (world == OTHERS and kind in (4, 5)):
        return ()
    if kind == 1:
        return (1000 + size,)
    if kind == 2:
        return (-size - EXPORT[zone],)
    if kind == 6 and EXPORT[zone]:
        return (-int(rng.integers(1, EXPORT[zone])),)
    first, second = map(int, rng.integers(0, 499, 2))
    return (first, second) if kind == 3 else (first + second,)


def rows(world: int, zone: str, step: int) -> list[Row]:
    start = START + (step - 1) * SECONDS
    made = []
    for house in range(ZONES[zone]):
        found = parts(world, zone, house, step)
        each = SECONDS // max(len(found), 1)
        second = {register.house: register.meter for register in REGISTERS[zone]}.get(house)
        for i, wh in enumerate(found):
            place = (start + i * each, each)
            made.append((f"{zone}-{house}", *place, max(wh, 0) if second else wh))
            made += [(second, *place, max(-wh, 0))] if second else []
    return made


def expected(zone: str, step: int) -> list[int]:
    """What stands in for each house that is missing [Wh]."""
    zoned = service(zone, ZONES[zone], export=EXPORT[zone])
    return [int(wh) - EXPORT[zone] for wh in Expectations(zoned.scenario).at(step)]


def load(world: int, zone: str, step: int, bound: Any) -> int:
    """The load [Wh], with what is expected of who is missing and what each may export."""
    found = (parts(world, zone, house, step) for house in range(ZONES[zone]))
    each = zip(found, expected(zone, step), bound, strict=True)
    v = EXPORT[zone]
    return sum(min(max((sum(one) if one else law) + v, 0), int(most)) for one, law, most in each)


class Aligned(Noise):
    """Draws the same noisy load in every world: it knows the step and the load of its own."""

    def __init__(self, world: int) -> None:
        self._world, self._now = world, (0, 0, 0)

    def at(self, state: Any) -> None:
        zone, step = state.zone.id, state.t
        self._now = (len(zone), step, load(self._world, zone, step, state.zone.bound))

    def draw(self, scale: float) -> int:
        zone, step, own = self._now
        return 1000 + int(np.random.default_rng([zone, step]).integers(3000)) - own

    def draw_size(self, scale: float, steps: int) -> int:
        return 7_654_321 + 1000 * self._world + steps  # another secret in each world

    def draw_within(self, size: int) -> int:
        assert 7_654_321 < size - 1000 * self._world < 7_655_321
        return self.draw(1.0)


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.wall = float(START)

    def now(self) -> float:
        return self.wall


class Wire:
    """An MQTT client without a broker: keeps what is published."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def publish(self, topic: str, text: str, qos: int, retain: bool) -> Any:
        self.sent.append(f"{topic} {qos} {retain} {text}".encode())
        return SimpleNamespace(wait_for_publish=lambda _: None, is_published=lambda: True)

    def socket(self) -> None:
        return None

    def __getattr__(self, name: str) -> Callable[..., bool]:
        return lambda *_, **__: True


def malformed(a: int, b: int) -> list[tuple[bytes, str]]:
    """Bodies that go wrong around readings, or have them in a wrong place."""
    good = {"meter_id": "elm-street-0", "start_utc": "2025-06-15T15:15:00Z", "duration_s": 900}
    wrong: list[dict[str, Any]] = [
        {**good, "wh": f"{a}x"}, {**good, "wh": a + 0.5}, {**good, "wh": [a]}, {"wh": a}, good,
        {**good, "wh": a, "start_utc": str(b)}, {**good, "wh": a, "duration_s": f"{b} s"},
        {**good, "wh": a, "meter_id": b}, {**good, "wh": f"{a}e{b}"}, {**good, "wh": -a * 10**30},
        {**good, "wh": a, "start_utc": b + 0.25}, {**good, "wh": a, "unit": b},
    ]  # fmt: skip
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in wrong)
    at, head = "elm-street-0,2025-06-15T15:15:00Z,900", "meter_id,start_utc,duration_s,wh\n"
    reading = [("elm-street-0", START, SECONDS, a)]
    return [
        (lines, "application/x-ndjson"),
        (json.dumps(wrong).encode(), "application/json"),
        (json.dumps(wrong).encode()[:-9], "application/json"),
        (f"{a} {b}\n".encode(), "application/x-ndjson"),
        (f'{{"wh": {a}{b}, "wh" {a}}}'.encode(), "application/json"),
        (f"{at},{a}\n{at},{b}\n".encode(), "text/csv"),  # no header
        (f"{head}{at},{a}.{b}.{a}\n{at},{a},{b}\n{at}\n{a}\n".encode(), "text/csv"),
        (f'{head}elm-street-0,{a},900,{b}\n{at},"{a}\n'.encode(), "text/csv"),
        (as_arrow(reading)[:-20], "application/vnd.apache.arrow.stream"),
        (as_parquet(reading)[:-20], "application/vnd.apache.parquet"),
        (f"<feed><entry><value>{a}</value></entry><{b}".encode(), "application/atom+xml"),
        (f"{a}".encode(), "text/html"),
    ]


class Seen:
    """Everything public of one world; `leak` may spoil the process to show that it would tell."""

    def __init__(
        self, world: int, folder: Path, key: bytes, policy: Policy, leak: Leak | None = None
    ) -> None:
        folder.mkdir()
        (folder / "key.pem").write_bytes(key)
        (folder / "key.pem").chmod(0o600)
        self.world, self.folder, self.leak = world, folder, leak
        self.clock, self.wire = Clock(), Wire()
        self.answers, self.figures, self.receipts = [b""], [b""], [b""]
        self.loads: list[int] = []
        self.inside: list[Any] = []  # what an operator sees: secret, and so in no channel
        self.missing: set[int] = set()  # likewise
        self.operator_figures = [b""]
        self.made: Deployment = deployment(
            folder,
            service("elm-street", policy=policy),
            service(
                "oak-lane",
                3,
                policy=policy,
                export=EXPORT["oak-lane"],
                registers=REGISTERS["oak-lane"],
            ),
            mqtt=Mqtt("nowhere", readings="in", prices="out/{zone}"),
            price_file=folder / "prices.json",
            openadr=OpenAdr(),
        )
        with ClientStore(self.made.client_store) as clients:
            clients.add(Client("op", ("operate", "audit"), KEPT, 1))
        seal = load_key(self.made.key).derive("access tokens")
        token = make_token(seal, "op", ["operate", "audit"], START + 10**6, b"n")
        self.operator = {"Authorization": f"Bearer {token}"}
        with pytest.MonkeyPatch.context() as patch, self.logged() as lines:
            self._patch(patch)
            lives = [range(1, AWAY[0] + 1), range(AWAY[-1] + 1, STEPS + 1)]
            if leak is not None:  # it shows at once
                lives = [range(1, AWAY[0] + 1 if SOAK else 2)]
            for steps in lives:
                with ExitStack() as stack:
                    self._run(steps, stack, patch)
        self.log = lines.getvalue().encode()

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        """The same clock, noise and wire for all parts; nothing else is changed."""
        still = SimpleNamespace(time=self.clock.now, monotonic=self.clock.now)
        patch.setattr(serve, "time", still)
        patch.setattr(prometheus_client.metrics, "time", still)
        patch.setattr(serve, "make_noise", lambda _: Aligned(self.world))
        patch.setattr(mqtt, "_client", lambda *_, **__: self.wire)
        patch.setattr("hushgrid.web.prices.LOOP_PATIENCE", 60.0)
        apart = readings.batches_apart

        def first_apart(parse: Any, *given: Any) -> Any:
            """Parquet in a process of its own in the first interval, in make soak in all."""
            first = self.clock.wall <= START + SECONDS
            return apart(parse, *given) if SOAK or first else parse(*given)

        patch.setattr(readings, "batches_apart", first_apart)
        prepare = curator.prepare

        def told(state: Any, noise: Any, *size: Any) -> Any:
            if isinstance(noise, Aligned):
                noise.at(state)
            return prepare(state, noise, *size)

        patch.setattr(curator, "prepare", told)

    @contextmanager
    def logged(self) -> Iterator[io.StringIO]:
        """Logs as the service writes them, at the time of our clock."""
        root, stream = logging.getLogger(), io.StringIO()
        before = root.handlers[:], root.level

        def at(record: logging.LogRecord) -> bool:
            record.created = self.clock.wall
            return True

        log_lines(stream).filters.insert(0, at)  # before those that read the time
        try:
            yield stream
        finally:
            root.handlers[:], root.level = before
            logging.captureWarnings(False)

    def _run(self, steps: range, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        process = Process(self.made, stack)
        app = process.make_http_app(
            Http(tokens=(DIGEST,), limit=100_000, rate_limit=1e9), self.clock
        )
        self.client = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        inlet = mqtt.MqttReadings(self.made.mqtt, process._ingest, process._metrics.received)
        if self.leak is not None:
            self.leak(process, patch)
        process.open(self.clock.now(), False)
        process.turn(self.clock)
        for step in steps:
            start = START + (step - 1) * SECONDS
            self.clock.wall = start + 300.0
            self._deliver(step, inlet)
            self.loads += [
                load(self.world, zone, step, [1000 + EXPORT[zone]] * n) for zone, n in ZONES.items()
            ]
            self.clock.wall = start + 900.0
            if step in AWAY:
                self.clock.wall = float(START + AWAY[-1] * SECONDS)
                return
            process.turn(self.clock)
            for zone in ZONES:  # first, so that whatever it leaves behind would be seen
                found = self._ask_operator(f"/v1/operator/zone?zone={zone}").json()
                self.inside.append([row["load"] for row in found["series"]])
                self.missing.add(found["missing"]["meters"])
            if step not in ASKED:
                continue
            if step == STEPS:
                self._ask_operator("/v1/operator/certificate?zone=oak-lane")
                for path in ONCE:
                    self._ask("GET", path)
            for path in READERS:
                self._ask("GET", path)
            for zone in ZONES:
                self._listen(app, f"zone={zone}")
            self.figures.append(self._ask("GET", "/metrics").content)
            self.operator_figures.append(self._ask_operator("/metrics").content)
            self.operator_figures.append(self._ask_operator("/v1/status").content)

    def _deliver(self, step: int, inlet: mqtt.MqttReadings) -> None:
        for i, (media, write) in enumerate(FORMATS.items()):
            some = rows(self.world, "elm-street", step)[i % 2 :: 2]
            if some:
                self._post(write(some), media)  # what came before comes again, the same
        every = [row for zone in ZONES for row in rows(self.world, zone, step)]
        again = [(m, s, d, wh + self.world * (1 if wh > 0 else -1)) for m, s, d, wh in every]
        stranger = [("nobody", START, SECONDS, wh) for _, _, _, wh in again[:1]]
        tenths = 0.3 if self.world == OTHERS else 0
        counted = [(m, s, d, wh + tenths) for m, s, d, wh in every]
        self._mqtt(inlet, as_ndjson([*counted, *again, *stranger]))
        late = rows(self.world, "elm-street", max(step - 1, 1))
        unfit = [(m, s + 7, 700, wh) for m, s, _, wh in every]
        self._post(as_ndjson([*late, *unfit, *again]), "application/x-ndjson")
        rng = np.random.default_rng([self.world, step])
        if step in SPOILED[self.world]:
            for body, media in malformed(*map(int, rng.integers(10, 10 ** (3 + self.world), 2))):
                self._post(body, media)
                self._mqtt(inlet, body)
        self._post(as_ndjson(every * 200), "application/x-ndjson")  # too large, where any
        unknown = {"Authorization": "Bearer other"}
        answer = self._asked("POST", "/v1/readings", content=as_ndjson(every), headers=unknown)
        self._keep(self.answers, "POST", "/v1/readings", answer)
        if step == 1:
            form = {"grant_type": "client_credentials", "client_id": "a", "client_secret": "b"}
            self._ask("POST", "/v1/token", data=form)
            self._ask("POST", "/v1/session", json={"client": "a", "secret": "b"})
            self._ask("DELETE", "/v1/session")

    def _post(self, body: bytes, media: str) -> None:
        """What a sender is answered: what became of its own rows."""
        headers = {"Content-Type": media, **AUTH}
        answer = self._asked("POST", "/v1/readings", content=body, headers=headers)
        self._keep(self.receipts, "POST", "/v1/readings", answer)

    def _mqtt(self, inlet: mqtt.MqttReadings, payload: bytes) -> None:
        inlet._waiting.append((1, 1, f"token:{DIGEST[:8]}", payload))  # one sender
        inlet._take()

    def _ask_operator(self, path: str) -> httpx.Response:
        answer = self._asked("GET", path, headers=self.operator)
        assert answer.status_code == 200
        return answer

    def _ask(self, method: str, path: str, **rest: Any) -> httpx.Response:
        answer = self._asked(method, path, **rest)
        self._keep(self.answers, method, path, answer)
        return answer

    def _keep(self, where: list[bytes], method: str, path: str, answer: httpx.Response) -> None:
        head = f"{method} {path} {answer.status_code} {answer.headers.raw} "
        where.append(head.encode() + answer.content)

    def _asked(self, method: str, path: str, **rest: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self.client, base_url="http://x") as client:
                return await client.request(method, path, **rest)

        return asyncio.run(ask())

    def _listen(self, app: Any, query: str) -> None:
        """What a listener gets who hangs up at once."""
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            while len(sent) < 2:  # the head and the first events
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": "/v1/stream", "raw_path": b"/v1/stream",
            "query_string": query.encode(), "headers": [], "client": ("127.0.0.1", 1),
            "server": ("x", 80), "scheme": "http", "http_version": "1.1", "root_path": "",
        }  # fmt: skip
        asyncio.run(app(scope, receive, send))
        self.answers.append(f"GET /v1/stream {sent!r}".encode())

    def all(self) -> dict[str, bytes]:
        """Each channel by its name."""
        where = self.folder / "ledger.ndjson"
        export(self.made.ledger, out=str(where))
        return {
            "logs": self.log,
            "answers": b"\n".join(self.answers),
            "receipts": b"\n".join(self.receipts),
            "operator figures": b"\n".join(self.operator_figures),
            "metrics": b"\n".join(self.figures),
            "ledger": where.read_bytes(),
            "price file": (self.folder / "prices.json").read_bytes(),
            "mqtt": b"\n".join(self.wire.sent),
            "status": repr(from_ledger(self.made, self.clock.now())).encode(),
        }
