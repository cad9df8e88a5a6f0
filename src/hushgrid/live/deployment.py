"""What a service file says, checked: zones as they run, stores, ways in and out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from hushgrid.errors import ServiceError
from hushgrid.live.ledger.records import Mode
from hushgrid.live.ledger.witness import Witnesses
from hushgrid.policy import Policy
from hushgrid.provenance import Provenance
from hushgrid.simulation import Scenario


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised about which secret; `rho` is the model's error to expect above a clamp.

    `step`: epsilon is each release's. `interval`: all releases' of this and other epochs.
    `trajectory`: all releases' of the horizon.
    `window`: those of any window of the policy.
    """

    secret: Literal["step", "interval", "trajectory", "window"]
    epsilon: float
    delta: float = 0.0
    rho: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A zone before it is laid over time: patterns of a day or week, and terms not planned yet."""

    scenario: Scenario
    terms: Policy


@dataclass(frozen=True, slots=True, eq=False)
class ZoneService:
    """One zone as it runs.

    `scenario` has calendars from `begins` on: step 1 is the interval that starts then [UTC epoch
    s], local time of `time_zone`. `meters` are ids in house order; `seconds` the interval, `grace`
    how long after its end readings are waited for, `retention` how long they are kept [s].
    `budget`: the most that all releases of an epoch may lose together, or None. `eta_set_by` says
    who set eta, and why. For the promise `interval`, `leakage` is what the plan counts about one
    interval of one house, and `memory` the steps of silence after which nothing of it is left:
    epochs of these terms before and after are counted. With `memory` None they are not, since
    leakage does not fade. `accepts`: the leakage that the operator has agreed to state in public.
    """

    scenario: Scenario
    policy: Policy
    meters: tuple[str, ...]
    begins: int
    seconds: int = 900
    grace: int = 60
    time_zone: str = "UTC"
    retention: int = 7 * 86400
    budget: float | None = None
    accept_error: float = 0.5  # the largest expected relative error of a price that check accepts
    fallback_rate: float = 0.0
    currency: str = "EUR"
    eta_set_by: str = ""
    promise: Promise | None = None  # None: the policy's epsilon at each step
    provenance: Mapping[str, str] = field(default_factory=dict)  # of models and laws, in words
    learned: Provenance = field(default_factory=Provenance)
    own: Scenario | None = None  # with private models, for the operator's eyes alone
    pattern: Pattern | None = None  # None where the scenario was not read from a file
    leakage: float | None = None
    memory: int | None = None
    accepts: float | None = None

    @property
    def id(self) -> str:
        """The zone's name."""
        return self.scenario.zone.id


@dataclass(frozen=True, slots=True)
class Http:
    """The HTTP server; `tokens` are SHA-256 digests (hex) of bearer tokens that send readings.

    `limit`: the most one body may hold [bytes]. `token_lifetime`: of a client's tokens [s].
    `metrics`: who may read them. `rate_limit`: requests a second of one sender. `proxies`: networks
    whose word on where a request comes from is taken. `connections`: open at the same time.
    `pages`: whether there are pages for people beside the data.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    tokens: tuple[str, ...] = ()
    limit: int = 64 << 20
    token_lifetime: int = 3600
    metrics: Literal["public", "operate"] = "public"
    rate_limit: float = 200.0
    proxies: tuple[str, ...] = ()
    connections: int = 4096
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    pages: bool = True


@dataclass(frozen=True, slots=True)
class Mqtt:
    """A broker: readings come in on `readings`, prices go out retained on `prices`."""

    host: str
    port: int = 1883
    readings: str | None = None
    prices: str | None = None
    username: str | None = None
    password_file: Path | None = None
    home_assistant: str | None = None  # prefix of discovery topics


@dataclass(frozen=True, slots=True)
class OpenAdr:
    """The VTN. `anonymous`: anybody may read prices; `url`: how others know the service.

    `mqtt_uris`: where notifications can be heard, as clients are told.
    """

    anonymous: bool = True
    webhooks: bool = True
    allow_private_callbacks: bool = False
    url: str | None = None
    mqtt: bool = True
    mqtt_uris: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Deployment:
    """Everything a curator process needs."""

    zones: tuple[ZoneService, ...]
    mode: Mode
    ledger: str = field(repr=False)  # a store's path or URL, which may hold a password
    meters: str = field(repr=False)
    key: Path  # Ed25519, made by init
    http: Http | None = None
    mqtt: Mqtt | None = None
    price_file: Path | None = None  # the newest prices as plain JSON
    problems: tuple[str, ...] = field(default=())  # what can be run but deserves a look
    clients: str = field(default="", repr=False)  # a store's path or URL; else beside the ledger

    openadr: OpenAdr | None = None
    vtn: str = field(default="", repr=False)  # as clients
    share: bool = False  # whether other curators run the same zones
    name: str = "curator"  # among those
    witness: Path | None = None  # a folder of this machine; else beside the ledger or the key
    witness_needed: bool = False  # refuse to run where the folder cannot be written

    @property
    def client_store(self) -> str:
        """Where clients are kept: the ledger's folder or database where nothing else is said."""
        return self.clients or self._beside("clients.sqlite")

    @property
    def vtn_store(self) -> str:
        """Where the objects of VENs are kept, likewise."""
        return self.vtn or self._beside("vtn.sqlite")

    @property
    def witness_folder(self) -> Path:
        """Where the last records of each zone are kept on this machine, apart from the ledger."""
        if self.witness is not None:
            return self.witness
        near = self.key if self.on_server else Path(self.ledger.removeprefix("sqlite:"))
        return near.with_name(f"{near.name}.witness")

    def witnesses(self) -> Witnesses:
        """The witnesses of all zones, for this process."""
        return Witnesses.at(self.witness_folder, needed=self.witness_needed, shared=self.share)

    @property
    def on_server(self) -> bool:
        """Whether the ledger is on a database server."""
        return "://" in self.ledger.removeprefix("sqlite:")

    @property
    def mqtt_uris(self) -> tuple[str, ...]:
        """Where OpenADR's notifications can be heard; none where they are not published."""
        if self.openadr is None or self.mqtt is None or not self.openadr.mqtt:
            return ()
        return self.openadr.mqtt_uris or (f"mqtt://{self.mqtt.host}:{self.mqtt.port}",)

    def _beside(self, name: str) -> str:
        if self.on_server:
            return self.ledger
        return str(Path(self.ledger.removeprefix("sqlite:")).parent / name)


def accepting(deployment: Deployment, figure: float | None, new_epoch: bool) -> Deployment:
    """The service of an operator who agrees to state this leakage in public, if any."""
    if figure is None:
        return deployment
    if not new_epoch:
        raise ServiceError(f"accept-leakage is {figure:g} without --new-epoch; give both.")
    zones = tuple(replace(zone, accepts=figure) for zone in deployment.zones)
    return replace(deployment, zones=zones)


def placed(deployment: Deployment, port: int | None, name: str | None) -> Deployment:
    """The same service at another port and under another name: one of several curators."""
    http = deployment.http
    if port is not None:
        if http is None:
            raise ServiceError(f"port is {port} but the service file has no [http]; add one.")
        http = replace(http, port=port)
    if name is None:
        name = deployment.name if http is None else str(http.port)
    elif not re.fullmatch(r"[A-Za-z0-9._-]{1,32}", name):
        raise ServiceError(
            f"name is {name!r}; give 1 to 32 letters, digits, dots, dashes or underscores."
        )
    return replace(deployment, http=http, name=name)
