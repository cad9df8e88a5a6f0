"""Content of a service file after its checks: zones as they run, stores, servers and brokers.

Also the meter ids of the houses, and the patterns of a day or week in local time over the steps of
a horizon in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import numpy as np

from hushgrid._numbers import Ints, is_whole
from hushgrid.errors import FileError, ModelError, ServiceError
from hushgrid.files.results import read_text
from hushgrid.files.toml import Faults, Table, check_keys, display
from hushgrid.files.zone_file import Provenance
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import Mode
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Uniform
from hushgrid.model.occupancy import Calendar, Chains
from hushgrid.model.scenario import Scenario

_LONGEST = 128  # characters of an id


def meter_ids(groups: Sequence[Table], folder: Path, faults: Faults) -> tuple[str, ...]:
    """Meter ids of a service file, in house order.

    Args:
        groups: The [[houses]] tables.
        folder: Folder of the files they name.
        faults: Receives every mistake.

    Returns:
        One id for each house; fewer where there are mistakes.
    """
    found: list[str] = []
    places: dict[str, str] = {}
    for i, group in enumerate(groups):
        place = f"houses[{i}]."
        counted = not faults.at(f"{place}count")
        count = group["count"] if counted else 1
        key, ids = _of_group(group, place, count, folder, faults)
        if ids is None:
            continue
        if len(ids) != count and counted:
            faults.add(
                key, f"{key} has {len(ids)} ids for {count} houses; give one id for each house."
            )
        _check_unique(ids, key, places, faults)
        found += ids
    return tuple(found)


def _of_group(
    group: Table, place: str, count: int, folder: Path, faults: Faults
) -> tuple[str, list[str] | None]:
    """The key the ids come from, and the ids."""
    key = f"{place}meters"
    if ("meters" in group) == ("meters_file" in group):
        state = "both set" if "meters" in group else "both unset"
        message = f"{key} and meters_file are {state}; give one of them."
        faults.add(key, message, f"{place}meters_file")
        return key, None
    if "meters_file" in group:
        key = f"{place}meters_file"
        return key, _checked(_from_file(group["meters_file"], key, folder, faults), key, faults)
    given = group["meters"]
    if isinstance(given, Mapping):
        return key, _checked(_numbered(given, key, count, faults), key, faults)
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        faults.add(
            key,
            f'{key} is {display(given)}; give a list of ids, or {{prefix = "elm-", first = 1}}.',
        )
        return key, None
    return key, _checked(given, key, faults)


def _from_file(name: Any, key: str, folder: Path, faults: Faults) -> list[str] | None:
    if not isinstance(name, str) or not name.isprintable():
        faults.add(key, f"{key} is {display(name)}; give the path of a file with one id a line.")
        return None
    try:
        lines = read_text(folder / name).splitlines()
    except FileError as error:
        faults.add(key, f"{key}: {error}")
        return None
    return [line.strip() for line in lines if line.strip()]


def _numbered(given: Table, key: str, count: int, faults: Faults) -> list[str] | None:
    if not check_keys(given, f"{key}.", {"prefix", "first"}, {"first"}, faults):
        return None
    prefix, first = given["prefix"], given.get("first", 1)
    if not isinstance(prefix, str):
        faults.add(f"{key}.prefix", f"{key}.prefix is {display(prefix)}; give a text.")
        return None
    if not is_whole(first) or isinstance(first, float) or not 0 <= first < 2**62:
        faults.add(f"{key}.first", f"{key}.first is {display(first)}; give a whole number.")
        return None
    return [f"{prefix}{number:04d}" for number in range(first, first + count)]


def _checked(ids: list[str] | None, key: str, faults: Faults) -> list[str] | None:
    """The ids, if each of them can be one."""
    for one in ids or ():
        if not one or len(one) > _LONGEST or not one.isprintable() or one != one.strip():
            faults.add(
                key,
                f"{key} holds {display(one)}; give ids of 1 to {_LONGEST} printed characters,"
                " without spaces around them.",
            )
            return None
    return ids


def _check_unique(ids: Sequence[str], key: str, places: dict[str, str], faults: Faults) -> None:
    for one in ids:
        if one in places:
            faults.add(
                key,
                f"{key} holds {display(one)} twice (also in {places[one]}); give each house its own"
                " meter.",
            )
            return
        places[one] = key


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


@dataclass(frozen=True, slots=True)
class Http:
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
    """An MQTT broker.

    Attributes:
        host: Its address.
        port: TCP port.
        readings: Topic on which readings arrive; None: none do.
        prices: Topic on which prices are published, retained; None: they are not.
        username: User name.
        password_file: File that holds the password.
        home_assistant: Prefix of Home Assistant's discovery topics; None: off.
    """

    host: str
    port: int = 1883
    readings: str | None = None
    prices: str | None = None
    username: str | None = None
    password_file: Path | None = None
    home_assistant: str | None = None  # prefix of discovery topics


@dataclass(frozen=True, slots=True)
class OpenAdr:
    """The OpenADR VTN.

    Attributes:
        anonymous: Whether prices can be read without a token.
        webhooks: Whether subscriptions are served.
        allow_private_callbacks: Whether webhooks may have private addresses.
        url: URL of the service as clients see it.
        mqtt: Whether notifications are published on MQTT.
        mqtt_uris: Broker addresses that clients are given for notifications.
    """

    anonymous: bool = True
    webhooks: bool = True
    allow_private_callbacks: bool = False
    url: str | None = None
    mqtt: bool = True
    mqtt_uris: tuple[str, ...] = ()


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
