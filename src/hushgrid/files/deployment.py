"""Content of a service file after its checks: zones as they run, stores, servers and brokers.

Also the patterns of a day or week in local time over the steps of a horizon in UTC. Types of fields
that are `Annotated` are checked where they are read from a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from hushgrid._numbers import Ints
from hushgrid.errors import ModelError, ServiceError
from hushgrid.files.tables import (
    Bool,
    FilePath,
    FileTable,
    Line,
    Positive,
    duration,
    fix,
    mistake,
    one_line,
)
from hushgrid.files.zone_file import Provenance
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import Mode
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Uniform
from hushgrid.model.occupancy import Calendar, Chains
from hushgrid.model.scenario import Scenario

# ---- patterns of a day or week in local time

_DAY = 86_400
_THURSDAY = 3  # 1 January 1970; Monday is 0


def local_seconds(begins: int, seconds: int, horizon: int, time_zone: str) -> Ints:
    """Local time at the start of every step.

    Args:
        begins: Start of the first step [UTC epoch s].
        seconds: Length of a step [s].
        horizon: Number of steps.
        time_zone: IANA name.

    Returns:
        (horizon,) seconds since Monday 0:00 of the week, local time.
    """
    return _local(begins + seconds * np.arange(horizon, dtype=np.int64), time_zone)


def _local(starts: Ints, time_zone: str) -> Ints:
    zone = ZoneInfo(time_zone)
    local = [int(start) + _ahead(int(start), zone) for start in starts]
    return (np.array(local, np.int64) + _THURSDAY * _DAY) % (7 * _DAY)


def _ahead(instant: int, zone: ZoneInfo) -> int:
    ahead = datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset()
    return 0 if ahead is None else round(ahead.total_seconds())


def local_calendar(pattern: Calendar, local: Ints, seconds: int, what: str) -> Calendar:
    """One slot for each step: the pattern's slot at that local time.

    Args:
        pattern: Slots of one step, of a day, or of a week from Monday.
        local: (steps,) local time of each step [s since Monday 0:00].
        seconds: Length of a step [s].
        what: Name of the model in messages.

    Returns:
        (steps,) slots.

    Raises:
        ModelError: If the pattern has another length.
    """
    length, day = len(pattern.slots), _DAY // seconds
    if length not in (1, day, 7 * day):
        raise ModelError(
            f"{what} has a calendar of {length} steps; give one of 1 step, of a day ({day}) or of"
            f" a week from Monday ({7 * day})."
        )
    return Calendar(pattern.slots[local // seconds % length])


def localised(
    scenario: Scenario, *, begins: int, seconds: int, horizon: int, time_zone: str
) -> Scenario:
    """The scenario with patterns in local time, for consecutive steps.

    Args:
        scenario: Patterns of a day or week.
        begins: Start of the first step [UTC epoch s].
        seconds: Length of a step [s].
        horizon: Number of steps.
        time_zone: IANA name.

    Returns:
        The scenario with one slot for each step.
    """
    starts = begins + seconds * np.arange(horizon, dtype=np.int64)
    return localised_at(scenario, starts, seconds=seconds, time_zone=time_zone)


def localised_at(scenario: Scenario, starts: Ints, *, seconds: int, time_zone: str) -> Scenario:
    """The scenario with patterns in local time, for given steps.

    Args:
        scenario: Patterns of a day or week.
        starts: (steps,) start of each step [UTC epoch s].
        seconds: Length of a step [s].
        time_zone: IANA name.

    Returns:
        The scenario with one slot for each step.
    """
    local = _local(starts, time_zone)

    def laid(calendars: Sequence[Calendar], names: Sequence[str]) -> list[Calendar]:
        return [local_calendar(c, local, seconds, n) for c, n in zip(calendars, names, strict=True)]

    names = [f"model {model.name}" for model in scenario.models]
    calendars = laid([model.calendar for model in scenario.models], names)
    (consumed,) = laid([scenario.consumption.calendar], ["consumption"])
    return replace(
        scenario,
        models=tuple(
            replace(model, calendar=calendar)
            for model, calendar in zip(scenario.models, calendars, strict=True)
        ),
        consumption=replace(scenario.consumption, calendar=consumed),
    )


def without_private_models(scenario: Scenario) -> Scenario:
    """The scenario with models that state only what is declared impossible.

    A number fitted to homes without noise reveals something about them wherever it is used, even in
    a digest: an adversary that knows all homes but one can test guesses of that one against the
    digest. So where models are private, the mechanism, the ledger and every feed use these models.
    At eta = 1 the noise is the same: it depends on bounds and on which states are possible, and
    zeros are declared, not learned. The private models stay in `truth` and `consumed`, for
    simulated meters.

    Args:
        scenario: A scenario with private models.

    Returns:
        The same zone with uniform laws and uniform probabilities of all possible moves.
    """
    bounds, class_of = np.unique(scenario.zone.bound, return_inverse=True)
    laws = [Uniform(int(bound)) for bound in bounds]
    return replace(
        scenario,
        models=tuple(
            replace(model, chains=tuple(_uniform(piece) for piece in model.chains))
            for model in scenario.models
        ),
        consumption=Consumption.by_class(
            absent=laws,
            present=laws,
            class_of=class_of,
            elasticity=scenario.consumption.elasticity,
        ),
        truth=scenario.truth or scenario.models[0],
        consumed=scenario.consumed or scenario.consumption,
    )


def _uniform(piece: Chains) -> Chains:
    """The chains with all possible moves equally probable; equal chains become one."""
    first, moves = piece.initial > 0, piece.transition > 0
    chains = len(first)
    flat = np.concatenate(
        [first.reshape(chains, -1), np.moveaxis(moves, 1, 0).reshape(chains, -1)], axis=1
    )
    used = np.unique(piece.chain_of)  # a chain that no house follows says nothing either
    _, kept, of = np.unique(flat[used], axis=0, return_index=True, return_inverse=True)
    place = np.zeros(chains, np.int32)
    place[used] = of.ravel()
    which = used[kept]
    return replace(
        piece,
        initial=first[which] / first[which].sum(axis=-1, keepdims=True),
        transition=moves[:, which] / moves[:, which].sum(axis=-1, keepdims=True),
        chain_of=place[piece.chain_of],
    )


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised about which secret.

    Attributes:
        secret: "step": epsilon holds for each release. "interval": for all releases, of this and
            other epochs. "trajectory": for all releases of the horizon. "window": for those of any
            window of the policy.
        epsilon: Privacy loss.
        delta: Probability of an exception.
        rho: Relative error expected of the model, by which a clamp is chosen; None: no clamp is
            chosen.
    """

    secret: Literal["step", "interval", "trajectory", "window"]
    epsilon: float
    delta: float = 0.0
    rho: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A zone before its patterns are laid over time.

    Attributes:
        scenario: Patterns of a day or week.
        terms: Policy before planning.
    """

    scenario: Scenario
    terms: Policy


@dataclass(frozen=True, slots=True, eq=False)
class ZoneService:
    """One zone as it runs.

    Attributes:
        scenario: Calendars from `begins` on: step 1 is the interval that starts then.
        policy: The policy as planned.
        meters: Meter ids in house order.
        begins: Start of step 1 [UTC epoch s].
        seconds: Length of an interval [s].
        grace: How long after the end of an interval readings are accepted for it [s].
        time_zone: IANA name of the zone of times of day.
        retention: How long readings are kept [s].
        budget: Most that all releases of an epoch may lose together; None: no limit.
        accept_error: Largest expected relative error of a price that `check` accepts.
        fallback_rate: Rate published where no model can be used [currency/kWh].
        currency: Three letters.
        eta_set_by: Who set eta, and why.
        promise: What is promised; None: the policy's epsilon at each step.
        provenance: Where models and laws come from, in words.
        learned: Origin of the models.
        own: Scenario with the private models, for the operator only.
        pattern: The zone before its patterns are laid over time; None where it was not read from a
            file.
        leakage: For the secret "interval": what the plan counts about one interval of one house.
        memory: Steps without releases after which nothing of a leakage is left; epochs of these
            terms before and after are counted. None: they are not, since leakage does not fade.
        accepts: Leakage that the operator has agreed to state in public.
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
    accept_error: float = 0.5
    fallback_rate: float = 0.0
    currency: str = "EUR"
    eta_set_by: str = ""
    promise: Promise | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    learned: Provenance = field(default_factory=Provenance)
    own: Scenario | None = None
    pattern: Pattern | None = None
    leakage: float | None = None
    memory: int | None = None
    accepts: float | None = None

    @property
    def id(self) -> str:
        """Name of the zone."""
        return self.scenario.zone.id


def _without_wildcards(topic: str) -> str:
    if "+" in topic or "#" in topic:
        raise mistake("give a topic without wildcards: prices go out on it", "fix")
    return topic


_BROKERS = "give a list of URLs such as ['mqtts://broker.example:8883']"
_DIGESTS = (
    "give a list of SHA-256 digests (64 hex digits each); write a token's digest, never the token"
)
_NETWORKS = "give a list of addresses or networks such as ['127.0.0.1', '10.0.0.0/8']"
_NAME, _URL = "give a host name or an address such as '127.0.0.1'", r"://[A-Za-z0-9.:\[\]-]+"
_TOPIC = "give an MQTT topic such as 'hushgrid/prices'"
_ADDRESS = "give a URL without a path such as 'https://prices.example'"
_Address = Annotated[str, fix(_ADDRESS, pattern=f"^https?{_URL}/?$")]
_Host = Annotated[str, fix(_NAME, pattern="^[A-Za-z0-9.:_-]{1,253}$")]
_Port = Annotated[int, fix("give a port from 1 to 65535", ge=1, le=65_535)]
_Topic = Annotated[str, BeforeValidator(one_line), fix(_TOPIC, max_length=1000)]
_PlainTopic = Annotated[_Topic, AfterValidator(_without_wildcards)]
_Digest = Annotated[str, StringConstraints(pattern="^[0-9a-fA-F]{64}$", to_lower=True)]
_Network = Annotated[str, Field(strict=True), AfterValidator(lambda one: str(ip_network(one)))]
_Broker = Annotated[str, Field(strict=True, pattern=f"^(mqtts?|wss?){_URL}(/[!-~]*)?$")]


@dataclass(frozen=True, slots=True)
class Http(FileTable):
    """The HTTP server.

    Attributes:
        host: Address to listen on.
        port: TCP port.
        tokens: SHA-256 digests (hex) of bearer tokens that may send readings.
        limit: Longest request body [bytes].
        token_lifetime: Lifetime of a client's tokens [s].
        metrics: Who may read the metrics.
        rate_limit: Requests a second of one sender.
        proxies: Networks whose forwarding headers are trusted.
        connections: Most connections open at the same time.
        tls_certificate: Certificate file; None: no TLS.
        tls_key: Key file of the certificate.
        pages: Whether HTML pages are served in addition to the API.
    """

    host: _Host = "127.0.0.1"
    port: _Port = 8080
    tokens: Annotated[tuple[_Digest, ...], fix(_DIGESTS, "secret")] = ()
    limit: Annotated[
        int, fix("give a whole number from 1024 to 4294967296", ge=1024, le=4 << 30)
    ] = 64 << 20
    token_lifetime: Annotated[int, duration("PT1H", 60, 86_400)] = 3600
    metrics: Annotated[Literal["public", "operate"], fix("give one of public, operate")] = "public"
    rate_limit: Positive = 200.0
    proxies: Annotated[tuple[_Network, ...], fix(_NETWORKS)] = ()
    connections: Annotated[int, fix("give a whole number from 10 to 100000", ge=10, le=100_000)] = (
        4096
    )
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None
    pages: Bool = True

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """A certificate goes with its key."""
        for one, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
            if one in table and other not in table:
                yield other, f"is not set but {one} is; give both."


@dataclass(frozen=True, slots=True)
class Mqtt(FileTable):
    """An MQTT broker.

    Attributes:
        host: Its address.
        port: TCP port.
        readings: Topic on which readings arrive; None: none do.
        prices: Topic on which prices are published, retained; None: they are not.
        username: User name.
        password_file: File that holds the password.
        home_assistant: Whether Home Assistant is sent discovery messages.
        home_assistant_prefix: Prefix of their topics.
    """

    host: _Host
    port: _Port = 1883
    readings: _Topic | None = None
    prices: _PlainTopic | None = None
    username: Line | None = None
    password_file: FilePath | None = None
    home_assistant: Bool = False
    home_assistant_prefix: _PlainTopic = "homeassistant"

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """A password goes with a name, and discovery with prices."""
        if "password_file" in table and "username" not in table:
            yield "username", "is not set but password_file is; give both."
        if table.get("home_assistant") is True and "prices" not in table:
            yield "home_assistant", "is true but prices is not set; give the topic they go out on."


@dataclass(frozen=True, slots=True)
class OpenAdr(FileTable):
    """The OpenADR VTN.

    Attributes:
        anonymous: Whether prices can be read without a token.
        webhooks: Whether subscriptions are served.
        allow_private_callbacks: Whether webhooks may have private addresses.
        url: URL of the service as clients see it.
        mqtt: Whether notifications are published on MQTT.
        mqtt_uris: Broker addresses that clients are given for notifications.
        enabled: Whether there is one.
    """

    anonymous: Bool = True
    webhooks: Bool = True
    allow_private_callbacks: Bool = False
    url: Annotated[_Address, AfterValidator(lambda url: url.rstrip("/"))] | None = None
    mqtt: Bool = True
    mqtt_uris: Annotated[tuple[_Broker, ...], fix(_BROKERS)] = ()
    enabled: Bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Deployment:
    """Everything a curator process needs.

    Attributes:
        zones: The zones.
        mode: "production" or "simulation".
        ledger: Path or URL of the ledger; a URL may hold a password.
        meters: Path or URL of the meter store.
        key: File of the Ed25519 key, made by `init`.
        http: The HTTP server; None: none.
        mqtt: The broker; None: none.
        price_file: JSON file of the newest prices; None: none.
        problems: Warnings that do not prevent a start.
        clients: Path or URL of the client store; empty: next to the ledger.
        openadr: The VTN; None: none.
        vtn: Path or URL of the VTN's store; empty: next to the ledger.
        share: Whether other curators run the same zones.
        name: Name of this curator among those.
        witness: Folder of the witness on this machine; None: next to the ledger or the key.
        witness_needed: Refuse to run where that folder cannot be written.
    """

    zones: tuple[ZoneService, ...]
    mode: Mode
    ledger: str = field(repr=False)  # a URL may hold a password
    meters: str = field(repr=False)
    key: Path
    http: Http | None = None
    mqtt: Mqtt | None = None
    price_file: Path | None = None
    problems: tuple[str, ...] = field(default=())
    clients: str = field(default="", repr=False)
    openadr: OpenAdr | None = None
    vtn: str = field(default="", repr=False)
    share: bool = False
    name: str = "curator"
    witness: Path | None = None
    witness_needed: bool = False

    @property
    def client_store(self) -> str:
        """Path or URL of the client store; by default in the ledger's folder or database."""
        return self.clients or self._near_ledger("clients.sqlite")

    @property
    def vtn_store(self) -> str:
        """Path or URL of the VTN's store; by default in the ledger's folder or database."""
        return self.vtn or self._near_ledger("vtn.sqlite")

    @property
    def witness_folder(self) -> Path:
        """Folder on this machine with the last records of each zone, apart from the ledger."""
        if self.witness is not None:
            return self.witness
        near = self.key if self.on_server else Path(self.ledger.removeprefix("sqlite:"))
        return near.with_name(f"{near.name}.witness")

    @property
    def on_server(self) -> bool:
        """True if the ledger is on a database server."""
        return "://" in self.ledger.removeprefix("sqlite:")

    @property
    def mqtt_uris(self) -> tuple[str, ...]:
        """Broker addresses of OpenADR's notifications; empty where they are not published."""
        if self.openadr is None or self.mqtt is None or not self.openadr.mqtt:
            return ()
        return self.openadr.mqtt_uris or (f"mqtt://{self.mqtt.host}:{self.mqtt.port}",)

    def _near_ledger(self, name: str) -> str:
        if self.on_server:
            return self.ledger
        return str(Path(self.ledger.removeprefix("sqlite:")).parent / name)


def with_accepted_leakage(
    deployment: Deployment, figure: float | None, new_epoch: bool
) -> Deployment:
    """The deployment of an operator who agrees to state a leakage in public.

    Args:
        deployment: The deployment.
        figure: The leakage; None: nothing is agreed.
        new_epoch: Whether a new epoch is begun; a leakage can be agreed to only then.

    Returns:
        The deployment with the figure in every zone.

    Raises:
        ServiceError: If a figure is given without a new epoch.
    """
    if figure is None:
        return deployment
    if not new_epoch:
        raise ServiceError(f"accept-leakage is {figure:g} without --new-epoch; give both.")
    zones = tuple(replace(zone, accepts=figure) for zone in deployment.zones)
    return replace(deployment, zones=zones)


def as_curator(deployment: Deployment, port: int | None, name: str | None) -> Deployment:
    """The deployment at another port and under another name: one of several curators.

    Args:
        deployment: The deployment.
        port: TCP port; None: the file's.
        name: Name among the curators; None: the port, or the deployment's own name without [http].

    Returns:
        The deployment with that port and name.

    Raises:
        ServiceError: If there is no [http] for the port, or the name is not allowed.
    """
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
