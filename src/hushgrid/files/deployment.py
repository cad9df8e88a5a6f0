"""What a service file says, checked: zones as they run, stores, ways in and out."""

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
from hushgrid.files.toml import Faults, Table, known, shown
from hushgrid.files.zone_file import Provenance
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import Mode
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Uniform
from hushgrid.model.occupancy import Calendar, Chains
from hushgrid.model.scenario import Scenario

# --------------------------------------------------------------------------------------------------
# The meter of every house, from the groups of a service file.


_LONGEST = 128  # characters of an id


def meter_ids(groups: Sequence[Table], folder: Path, faults: Faults) -> tuple[str, ...]:
    """One id for each house, in house order; what is wrong with them goes to the faults."""
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
        said = f"{key} and meters_file are {state}; give one of them."
        faults.add(key, said, f"{place}meters_file")
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
            f'{key} is {shown(given)}; give a list of ids, or {{prefix = "elm-", first = 1}}.',
        )
        return key, None
    return key, _checked(given, key, faults)


def _from_file(name: Any, key: str, folder: Path, faults: Faults) -> list[str] | None:
    if not isinstance(name, str) or not name.isprintable():
        faults.add(key, f"{key} is {shown(name)}; give the path of a file with one id a line.")
        return None
    try:
        lines = read_text(folder / name).splitlines()
    except FileError as error:
        faults.add(key, f"{key}: {error}")
        return None
    return [line.strip() for line in lines if line.strip()]


def _numbered(given: Table, key: str, count: int, faults: Faults) -> list[str] | None:
    if not known(given, f"{key}.", {"prefix", "first"}, {"first"}, faults):
        return None
    prefix, first = given["prefix"], given.get("first", 1)
    if not isinstance(prefix, str):
        faults.add(f"{key}.prefix", f"{key}.prefix is {shown(prefix)}; give a text.")
        return None
    if not is_whole(first) or isinstance(first, float) or not 0 <= first < 2**62:
        faults.add(f"{key}.first", f"{key}.first is {shown(first)}; give a whole number.")
        return None
    return [f"{prefix}{number:04d}" for number in range(first, first + count)]


def _checked(ids: list[str] | None, key: str, faults: Faults) -> list[str] | None:
    """The ids, if each of them can be one."""
    for one in ids or ():
        if not one or len(one) > _LONGEST or not one.isprintable() or one != one.strip():
            faults.add(
                key,
                f"{key} holds {shown(one)}; give ids of 1 to {_LONGEST} printed characters,"
                " without spaces around them.",
            )
            return None
    return ids


def _check_unique(ids: Sequence[str], key: str, places: dict[str, str], faults: Faults) -> None:
    for one in ids:
        if one in places:
            faults.add(
                key,
                f"{key} holds {shown(one)} twice (also in {places[one]}); give each house its own"
                " meter.",
            )
            return
        places[one] = key


# --------------------------------------------------------------------------------------------------
# Patterns of a day or week in local time, laid over the steps of a horizon in UTC.


_DAY = 86_400
_THURSDAY = 3  # 1 January 1970; Monday is 0


def local_seconds(begins: int, seconds: int, horizon: int, time_zone: str) -> Ints:
    """What local clocks show at the start of every step [s since Monday 0:00 of some week]."""
    return _shown(begins + seconds * np.arange(horizon, dtype=np.int64), time_zone)


def _shown(starts: Ints, time_zone: str) -> Ints:
    zone = ZoneInfo(time_zone)
    shown = [int(start) + _ahead(int(start), zone) for start in starts]
    return (np.array(shown, np.int64) + _THURSDAY * _DAY) % (7 * _DAY)


def _ahead(instant: int, zone: ZoneInfo) -> int:
    ahead = datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset()
    return 0 if ahead is None else round(ahead.total_seconds())


def local_calendar(pattern: Calendar, shown: Ints, seconds: int, what: str) -> Calendar:
    """One slot for each step: the pattern's slot at that time of the day and week.

    The pattern is one slot, a day, or a week from Monday, of steps of `seconds`.
    """
    length, day = len(pattern.slots), _DAY // seconds
    if length not in (1, day, 7 * day):
        raise ModelError(
            f"{what} has a calendar of {length} steps; give one of 1 step, of a day ({day}) or of"
            f" a week from Monday ({7 * day})."
        )
    return Calendar(pattern.slots[shown // seconds % length])


def localised(
    scenario: Scenario, *, begins: int, seconds: int, horizon: int, time_zone: str
) -> Scenario:
    """The scenario with patterns in local time from `begins` [UTC epoch s] on."""
    starts = begins + seconds * np.arange(horizon, dtype=np.int64)
    return localised_at(scenario, starts, seconds=seconds, time_zone=time_zone)


def localised_at(scenario: Scenario, starts: Ints, *, seconds: int, time_zone: str) -> Scenario:
    """The scenario with patterns in local time for steps with these starts [UTC epoch s]."""
    shown = _shown(starts, time_zone)

    def laid(calendars: Sequence[Calendar], names: Sequence[str]) -> list[Calendar]:
        return [local_calendar(c, shown, seconds, n) for c, n in zip(calendars, names, strict=True)]

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


# --------------------------------------------------------------------------------------------------
# Private models stay outside a service: it knows what is possible, not how probable it is.
#
# A number fitted to homes without noise tells of them wherever it goes, even in a digest: whoever
# knows all homes but one can try out guesses of that one until the digest fits. So where models are
# private the mechanism, the ledger and every feed are given these instead. At eta = 1 the noise is
# the same: it hangs on bounds and on who can be at home at all, and zeros are declared, not
# learned.


def veiled(scenario: Scenario) -> Scenario:
    """The scenario with models that say nothing but what is declared impossible.

    The private ones remain as its truth, by which simulated meters go.
    """
    bounds, class_of = np.unique(scenario.zone.bound, return_inverse=True)
    laws = [Uniform(int(bound)) for bound in bounds]
    return replace(
        scenario,
        models=tuple(
            replace(model, chains=tuple(_veiled(piece) for piece in model.chains))
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


def _veiled(piece: Chains) -> Chains:
    """Every move that is possible is as probable as any; chains that then are alike are one."""
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
