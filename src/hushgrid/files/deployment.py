"""Content of a service file after its checks: zones as they run, stores, servers and brokers.

Fields that are `Annotated` are checked where they are read from a file, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from hushgrid.errors import PolicyError, ServiceError
from hushgrid.files._tables import (
    Bool,
    FilePath,
    FileTable,
    Info,
    Line,
    PlainTopic,
    Positive,
    Store,
    Topic,
    converted,
    duration,
    fix,
    mistake,
)
from hushgrid.files.toml import instant_of
from hushgrid.files.zone_file import PRIVATE, SECONDS, Interval, Provenance, PublicSeries
from hushgrid.intake.readings import Register
from hushgrid.intake.text import ColumnMapping
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import Mode
from hushgrid.model.zone import Scenario

ACCEPT_ERROR = 0.2  # relative, of a price; more is accepted by someone with a name
Promised = Literal["step", "interval", "window"]  # secrets that a service file names


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised about which secret.

    Attributes:
        secret: "step": epsilon holds for each release. "interval": for all releases, about one
            interval. "window": for all releases, about everything in any
            window of time.
        epsilon: Privacy loss.
        rho: Relative error expected of the model, by which a clamp is chosen; None: no clamp is
            chosen.
        window: Of the secret "window", its length [s].
        block: How long one noise lasts [s]; None: as planned.
    """

    secret: Promised
    epsilon: float
    rho: float | None = None
    window: int | None = None
    block: int | None = None


def _listed(content: Any) -> Any:
    """One value stands for the whole day."""
    return content if isinstance(content, list) else [content]


def _parts(charges: tuple[float, ...]) -> tuple[float, ...]:
    if not charges or 1440 % len(charges):
        raise mistake(
            f"has {len(charges)} values; give one, or one for each equal part of a day, such as 24."
        )
    return charges


_CHARGE = "give a number, or a list of numbers for equal parts of a day"
_ByTime = Annotated[
    tuple[float, ...], BeforeValidator(_listed), AfterValidator(_parts), fix(_CHARGE)
]


@dataclass(frozen=True, slots=True)
class Season(FileTable):
    """A [[tariff.charges.seasons]] table.

    Attributes:
        months: From 1 to 12.
        fixed: In place of the zone's own in these months; None: as there.
        relative: In place of the zone's own in these months; None: as there.
    """

    months: Annotated[
        tuple[Annotated[int, Field(ge=1, le=12)], ...],
        fix("give months such as [11, 12, 1, 2]"),
    ]
    fixed: _ByTime | None = None
    relative: _ByTime | None = None


def _check_months(seasons: tuple[Season, ...]) -> tuple[Season, ...]:
    months = [month for season in seasons for month in season.months]
    for month in set(months):
        if months.count(month) > 1:
            raise mistake(f"have month {month} twice; give each month to one season.")
    return seasons


@dataclass(frozen=True, slots=True)
class Charges(FileTable):
    """The [tariff.charges] table: grid fees and taxes, which are added to a published price.

    They are public, and neither the mechanism nor the ledger knows them.

    Attributes:
        fixed: Grid fees and taxes added to the price of energy [currency/kWh]: a number, or a list
            for equal parts of the local day (24: by the hour).
        relative: Share of energy and fixed charges that is added to them, such as VAT; a number or
            a list as above.
        seasons: Tables with `months` and what differs in them.
    """

    fixed: _ByTime = (0.0,)
    relative: _ByTime = (0.0,)
    seasons: Annotated[tuple[Season, ...], AfterValidator(_check_months)] = ()

    def total(self, rate: float, start: int, time_zone: str) -> float:
        """The price with charges of an interval.

        Args:
            rate: Price of energy [currency/kWh].
            start: Start of the interval [UTC s].
            time_zone: IANA name of the zone of times of day and months.

        Returns:
            [currency/kWh]

        >>> Charges(fixed=(0.1,), relative=(0.2,)).total(0.3, 0, "UTC")
        0.48
        """
        if self == Charges():
            return rate
        now = datetime.fromtimestamp(start, ZoneInfo(time_zone))
        season = next((season for season in self.seasons if now.month in season.months), None)
        charges = list[float]()
        for name in ("fixed", "relative"):
            values = (season and getattr(season, name)) or getattr(self, name)
            charges.append(values[(now.hour * 60 + now.minute) * len(values) // 1440])
        return round((rate + charges[0]) * (1 + charges[1]), 9)


@dataclass(frozen=True, slots=True)
class Presentation(FileTable):
    """The keys of [tariff] that say how published prices are presented.

    Attributes:
        charges: Grid fees and taxes, see below.
        digits: Digits after the point of the prices that a service presents; None: all.
    """

    charges: Charges = field(default_factory=Charges)
    digits: Annotated[int, fix("give a whole number from 0 to 8", ge=0, le=8)] | None = None


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
        policy: The policy as planned, from `begins` to the end of the local week.
        meters: Meter ids in house order.
        begins: Start of step 1 [UTC s].
        seconds: Length of an interval [s].
        grace: How long after the end of an interval readings are accepted for it [s].
        time_zone: IANA name of the zone of times of day.
        retention: How long readings are kept [s].
        early_limit: How many intervals after the present one a reading may start.
        clock_limit: By how many intervals the clock may step before publishing stops.
        accept_error: Largest expected relative error of a price that `check` accepts.
        accept_error_set_by: Who accepts it.
        fallback_rate: Rate published where no model can be used [currency/kWh].
        currency: Three letters.
        eta_set_by: Who set eta, and why.
        promise: What is promised; None: the policy's epsilon at each step.
        provenance: Where models and laws come from, in words.
        learned: Origin of the models.
        pattern: The zone before its patterns are laid over time; None where it was not read from a
            file.
        leakage: For the secret "interval": what the plan counts about one interval of one house.
        covariates: Public series that the estimate may use, with their sources.
        charges: Grid fees and taxes, added to published prices.
        digits: Digits after the point of a price that is presented; None: all. The ledger has all.
        planned: Whether the policy keeps the promise; else it has the terms of the file alone.
        week: The policy over a week of local time from Monday 0:00, which repeats; None: `policy`
            repeats.
        terms_begin: When its terms begin [UTC s]; None: with step 1.
        registers: Further registers of houses, by house: other meters of one home, and of energy
            fed in where a home's one meter is not signed.

    Raises:
        PolicyError: A service does not run these terms or models; experiments do.
    """

    scenario: Scenario
    policy: Policy
    meters: tuple[str, ...]
    begins: int
    seconds: int = 900
    grace: int = 60
    time_zone: str = "UTC"
    retention: int = 7 * 86400
    early_limit: int = 4
    clock_limit: int = 4
    accept_error: float = ACCEPT_ERROR
    accept_error_set_by: str = ""
    fallback_rate: float = 0.0
    currency: str = "EUR"
    eta_set_by: str = ""
    promise: Promise | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    learned: Provenance = field(default_factory=Provenance)
    pattern: Pattern | None = None
    leakage: float | None = None
    covariates: tuple[PublicSeries, ...] = ()
    charges: Charges = field(default_factory=Charges)
    digits: int | None = None
    planned: bool = True
    registers: tuple[Register, ...] = ()
    week: Policy | None = None
    terms_begin: int | None = None

    def __post_init__(self) -> None:
        policy = self.policy
        rules = (policy.blocks, policy.models, policy.on_empty)
        if rules != ("block", "union", "protect_all"):
            raise PolicyError(
                f"zone {self.id!r} has the rules {', '.join(rules)}, which experiments alone use;"
                " give block, union and protect_all."
            )
        if any(piece.size > 1 for model in self.scenario.models for piece in model.chains):
            raise PolicyError(
                f"zone {self.id!r} has a model of houses that move together, which experiments"
                " alone use; give models of single houses."
            )
        if self.learned.private:
            raise PolicyError(f"the models of zone {self.id!r} are private; {PRIVATE}.")

    @property
    def all_meters(self) -> tuple[str, ...]:
        """All meter ids: of the houses, then of their further registers."""
        return (*self.meters, *(register.meter for register in self.registers))

    @property
    def roster(self) -> tuple[str, tuple[str, ...], int, tuple[Register, ...]]:
        """What a meter store has to know: zone, meters, length of an interval [s], registers."""
        return self.id, self.meters, self.seconds, self.registers

    @property
    def fed_in(self) -> dict[str, str]:
        """Id of the register of energy fed in by meter id, of the houses that have one."""
        return {
            self.meters[register.house]: register.meter
            for register in self.registers
            if register.sign < 0
        }

    def total(self, rate: float, start: int) -> float:
        """A price of the interval at `start` [UTC s] with its charges."""
        return self.charges.total(rate, start, self.time_zone)

    def rounded(self, rate: float) -> float:
        """A price, total or feed-in rate as feeds and pages present it."""
        return rate if self.digits is None else round(rate, self.digits) + 0.0  # never -0.0

    def amounts(self, rate: float, start: int, feed_in: float | None) -> dict[str, float]:
        """The figures of the interval at `start` [UTC s] as price consumers read them.

        Args:
            rate: Price of energy [currency/kWh].
            start: See above.
            feed_in: Rate of what is fed in [currency/kWh]; None: the tariff has none.

        Returns:
            `price`, `total` with charges, and `feed_in` where there is one [currency/kWh].
        """
        amounts = {"price": rate, "total": self.total(rate, start)}
        amounts |= {} if feed_in is None else {"feed_in": feed_in}
        return {name: self.rounded(value) for name, value in amounts.items()}

    @property
    def id(self) -> str:
        """Name of the zone."""
        return self.scenario.zone.id

    @property
    def since(self) -> int:
        """When its terms begin [UTC s]."""
        return self.begins if self.terms_begin is None else self.terms_begin

    @property
    def ends(self) -> int:
        """End of the week's steps [UTC s]."""
        return self.begins + self.policy.horizon * self.seconds

    @property
    def days(self) -> LocalDays:
        """Time of day of each step."""
        return LocalDays(self.begins, self.seconds, self.time_zone)


class LocalDays(NamedTuple):
    """Times of day of steps by a clock of a time zone.

    Attributes:
        begins: Start of step 1 [UTC s].
        seconds: Length of a step [s].
        time_zone: IANA name.
    """

    begins: int
    seconds: int
    time_zone: str

    @property
    def hours(self) -> float:
        """Length of a step [h]."""
        return self.seconds / 3600

    def from_step(self, first: int) -> LocalDays:
        """The clock of steps that begin with the zone's step `first`."""
        return self._replace(begins=first * self.seconds)

    def at(self, t: int) -> tuple[float, bool]:
        """The local time at which step t starts, as a share of a day, and whether it is a weekend.

        >>> LocalDays(1_788_739_200, 900, "Europe/Zurich").at(5)  # Sunday 2026-09-06, 23:00 UTC
        (0.125, False)
        """
        start = self.begins + (t - 1) * self.seconds
        now = datetime.fromtimestamp(start, ZoneInfo(self.time_zone))
        return (now.hour * 3600 + now.minute * 60 + now.second) / _DAY, now.weekday() >= _SATURDAY


# ---- tables of a service file

_DAY, _SATURDAY = 86_400, 5
_MODES = f"give one of {', '.join(get_args(Mode))}"
_INSTANT = "give a date-time in UTC such as 2026-01-01T00:00:00Z"
_Intervals = Annotated[int, fix("give a whole number of intervals from 1 to 1000", ge=1, le=1000)]
_TIME_ZONE = (
    "give a name of the time zone database such as 'Europe/Zurich' (where the system has none,"
    " install the extra hushgrid[intake])"
)


def _of_whole_readings(seconds: int, info: Info) -> int:
    meter = info.data.get("meter_interval", 1)
    if meter > seconds:
        raise mistake(
            f"is {seconds} s but the meters' own is {meter} s, so one reading would enter several"
            f" releases; give {meter} s or a multiple of it."
        )
    if seconds % meter:
        raise mistake(
            f"is {seconds} s, but a meter_interval of {meter} s does not divide the interval; give"
            " an interval of whole readings."
        )
    return seconds


def _on_a_border(begins: int, info: Info) -> int:
    seconds = info.data.get("interval", 1)
    if off := begins % seconds:
        raise mistake(
            f"is not on a border of intervals of {seconds} s; move it by {seconds - off} s."
        )
    return begins


def _long_enough(retention: int, info: Info) -> int:
    least = info.data.get("interval", 0) + info.data.get("grace", 0)
    if retention < least:
        raise mistake(f"is {retention} s, shorter than interval and grace; give {least} s or more.")
    return retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Times(FileTable):
    """The [service] table of a zone of a service.

    Attributes:
        meter_interval: Length of the meters' own readings [s]; divides the interval.
        interval: Length of an interval [s], one price each; divides a day.
        begins: Date-time (UTC) at which interval 1 starts, on a border of intervals.
        grace: How long after the end of an interval late readings are waited for [s].
        retention: How long readings are kept [s].
        early_limit: How many intervals after the present one a reading may start; later ones are
            `early`.
        clock_limit: By how many intervals the clock may be set forward, or be behind the ledger,
            before the zone waits.
        time_zone: Name of the time zone database; times of day in models and laws are local.
        currency: Three letters.
        fallback_rate: Rate published where no model can be used [currency/kWh], within the tariff's
            limits.
        accept_error: Largest expected relative error of a price (root mean square) that `check`
            accepts.
        accept_error_set_by: Who accepts an `accept_error` above 0.2; `check` asks for the name in
            production.
    """

    refusals: ClassVar[Mapping[str, str]] = {
        "budget": "leave it out: the secret interval bounds what all prices together say"
    }

    meter_interval: Annotated[int, duration("PT15M", 1, _DAY)]
    interval: Annotated[
        Interval, AfterValidator(_of_whole_readings), Field(validate_default=True)
    ] = SECONDS
    begins: Annotated[int, converted(instant_of, _INSTANT), AfterValidator(_on_a_border)]
    grace: Annotated[int, duration("PT1M", 0, _DAY)] = 60
    retention: Annotated[int, duration("P7D", 60, 3660 * _DAY), AfterValidator(_long_enough)] = (
        7 * _DAY
    )
    early_limit: _Intervals = 4
    clock_limit: _Intervals = 4
    time_zone: Annotated[ZoneInfo, fix(_TIME_ZONE)]
    currency: Annotated[str, fix("give three letters such as 'EUR'", pattern="^[A-Z]{3}$")] = "EUR"
    fallback_rate: Annotated[float, fix("give a rate of 0 or more [currency/kWh]", ge=0)]
    accept_error: Positive = ACCEPT_ERROR
    accept_error_set_by: Annotated[str, fix("say who accepts that error")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(Times):
    """The [service] table.

    Attributes:
        mode: "production", or "simulation": noise protects no one and every release is marked.
        key: File of the key that signs the ledger.
        zones: Further zone files; each has tables of its own for what it does not share.
        standby: Whether several curators have this file, of which one is active; all stores are
            then postgresql:// URLs.
    """

    mode: Annotated[Mode, fix(_MODES)]
    key: FilePath
    zones: Annotated[
        tuple[FilePath, ...], fix("give a list of paths such as ['oak-road.toml']")
    ] = ()
    standby: Bool = False


@dataclass(frozen=True, slots=True)
class Stores(FileTable):
    """The [stores] table: paths and URLs.

    Attributes:
        ledger: Where releases are kept.
        meters: Where readings wait.
        clients: Who may ask for tokens; empty: `clients.sqlite` next to the ledger, or its
            database.
        vtn: Objects of OpenADR's VENs; empty: `vtn.sqlite` next to the ledger, or its database.
        witness: Folder on a disk of this machine with the last records of each zone, one for each
            ledger; empty: the ledger's path with `.witness`, for one on a server the key file's.
        block_keys: Folder on a disk of this machine with the keys that seal sizes of noise, of mode
            0700 and in no backup; empty: the meter store's file with `.keys`, for one on a server
            the key file with `.blocks`.
    """

    ledger: Store
    meters: Store
    clients: Store = ""
    vtn: Store = ""
    witness: FilePath | None = None
    block_keys: FilePath | None = None


@dataclass(frozen=True, slots=True)
class Publish(FileTable):
    """The [publish] table.

    Attributes:
        file: File that always holds the prices in force, by zone, as `/v1/price` says them.
    """

    file: FilePath


_BROKERS = "give a list of URLs such as ['mqtts://broker.example:8883']"
_DIGESTS = (
    "give a list of SHA-256 digests (64 hex digits each); write a token's digest, never the token"
)
_NETWORKS = "give a list of addresses or networks such as ['127.0.0.1', '10.0.0.0/8']"
_NAME, _URL = "give a host name or an address such as '127.0.0.1'", r"://[A-Za-z0-9.:\[\]-]+"
_ADDRESS = "give a URL without a path such as 'https://prices.example'"
_Address = Annotated[str, fix(_ADDRESS, pattern=f"^https?{_URL}/?$")]
_Host = Annotated[str, fix(_NAME, pattern="^[A-Za-z0-9.:_-]{1,253}$")]
_Port = Annotated[int, fix("give a port from 1 to 65535", ge=1, le=65_535)]
_Digest = Annotated[str, StringConstraints(pattern="^[0-9a-fA-F]{64}$", to_lower=True)]
_Network = Annotated[
    str, Field(strict=True), AfterValidator(lambda network: str(ip_network(network)))
]
_Broker = Annotated[str, Field(strict=True, pattern=f"^(mqtts?|wss?){_URL}(/[!-~]*)?$")]


def _both(table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for key, partner in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if key in table and partner not in table:
            yield partner, f"is not set but {key} is; give both."


@dataclass(frozen=True, slots=True)
class Http(FileTable):
    """The HTTP server.

    Attributes:
        host: Address to listen on.
        port: TCP port.
        tokens: SHA-256 digests (hex) of bearer tokens that may send readings; not in production,
            where clients are bound to their meters.
        limit: Longest request body [bytes]; a longer one is answered with 413.
        token_lifetime: Lifetime of a client's tokens [s].
        metrics: Who may read `/metrics`; readings received and meters missing are for operators
            either way.
        rate_limit: Requests a second of one sender (client, else address), counted over five
            seconds.
        proxies: Networks of proxies whose `X-Forwarded-For` is believed.
        connections: Most connections open at the same time; streams may take three quarters of
            them.
        tls_certificate: File of the certificate chain (PEM); None: no TLS.
        tls_key: Its key (PEM, without a password).
        pages: Whether there are pages for people in addition to the data.
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
        yield from _both(table)


@dataclass(frozen=True, slots=True)
class Mqtt(FileTable):
    """An MQTT broker.

    Attributes:
        host: Its address.
        port: TCP port.
        readings: Topic on which readings arrive; the level of its first wildcard names the sender.
            None: none do.
        prices: Topic of the price in force, retained, such as `hushgrid/prices/{zone}/price`; None:
            it is not published.
        username: Name at the broker.
        password_file: File that holds the password, of mode 0600; a password is never in this file.
        tls: Whether the connection is encrypted and the broker's certificate checked; set the port
            as well.
        tls_ca: File of the authorities that may certify the broker; None: the system's.
        tls_certificate: Certificate file of this client; None: none.
        tls_key: Key file of the certificate.
        home_assistant: Whether every zone is announced to Home Assistant by MQTT discovery; needs
            `prices`.
        home_assistant_prefix: First part of discovery topics.
    """

    host: _Host
    port: _Port = 1883
    readings: Topic | None = None
    prices: PlainTopic | None = None
    username: Line | None = None
    password_file: FilePath | None = None
    tls: Bool = False
    tls_ca: FilePath | None = None
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None
    home_assistant: Bool = False
    home_assistant_prefix: PlainTopic = "homeassistant"

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """A password goes with a name, files of TLS with TLS, and discovery with prices."""
        for key in ("tls_ca", "tls_certificate", "tls_key"):
            if key in table and table.get("tls") is not True:
                yield "tls", f"is not true but {key} is set; give both."
        yield from _both(table)
        if "password_file" in table and "username" not in table:
            yield "username", "is not set but password_file is; give both."
        if table.get("home_assistant") is True and "prices" not in table:
            yield "home_assistant", "is true but prices is not set; give the topic they go out on."


@dataclass(frozen=True, slots=True)
class OpenAdr(FileTable):
    """The OpenADR VTN.

    Attributes:
        anonymous: Whether programs and events are read without a token.
        webhooks: Whether subscribers are called back.
        allow_private_callbacks: Whether callbacks may go to addresses that are not of the public
            internet.
        url: URL of the service as clients see it; None: as a request has it.
        mqtt: Whether releases go out on OpenADR's topics where there is an `[mqtt]`.
        mqtt_uris: Addresses of the broker for clients; empty: that of `[mqtt]`.
        mqtt_anonymous: Whether anyone may read there without a name; only then are these addresses
            announced. None: where the service itself has none.
        enabled: Whether there is one.
        event_age: How long after its interval an event is listed [s].
    """

    anonymous: Bool = True
    webhooks: Bool = True
    allow_private_callbacks: Bool = False
    url: Annotated[_Address, AfterValidator(lambda url: url.rstrip("/"))] | None = None
    mqtt: Bool = True
    mqtt_uris: Annotated[tuple[_Broker, ...], fix(_BROKERS)] = ()
    mqtt_anonymous: Bool | None = None
    enabled: Bool = True
    event_age: Annotated[int, duration("P7D", 60, 3660 * _DAY)] = 7 * _DAY


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
        standby: Whether other curators stand by on the same database.
        name: Name of this curator among those.
        witness: Folder of the witness on this machine; None: next to the ledger or the key.
        witness_needed: Refuse to run where that folder cannot be written.
        mappings: Mappings of readings by name, beyond those built in.
        block_keys: Folder of the keys that seal sizes of block noise; None: next to the meter
            store's file, or for one on a server next to the key.
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
    standby: bool = False
    name: str = "curator"
    witness: Path | None = None
    witness_needed: bool = False
    mappings: Mapping[str, ColumnMapping] = field(default_factory=dict)
    block_keys: Path | None = None

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
    def block_key_folder(self) -> Path | None:
        """Folder of the keys that seal sizes of block noise; None: next to the meter store."""
        if self.block_keys is None and "://" in self.meters.removeprefix("sqlite:"):
            return self.key.with_name(f"{self.key.name}.blocks")
        return self.block_keys

    @property
    def on_server(self) -> bool:
        """True if the ledger is on a database server."""
        return "://" in self.ledger.removeprefix("sqlite:")

    @property
    def mqtt_uris(self) -> tuple[str, ...]:
        """Broker addresses that OpenADR's notifiers announce: anyone may read there.

        OpenADR knows no broker that asks for a name and a password, so none such is announced.
        """
        if not self.mqtt_events or self.mqtt is None or self.openadr is None:
            return ()
        anonymous = self.openadr.mqtt_anonymous
        has_login = self.mqtt.username is not None or self.mqtt.tls_certificate is not None
        if anonymous is False or (anonymous is None and has_login):
            return ()
        scheme = "mqtts" if self.mqtt.tls else "mqtt"
        return self.openadr.mqtt_uris or (f"{scheme}://{self.mqtt.host}:{self.mqtt.port}",)

    @property
    def mqtt_events(self) -> bool:
        """Whether releases go out on OpenADR's topics."""
        return self.openadr is not None and self.mqtt is not None and self.openadr.mqtt

    def _near_ledger(self, name: str) -> str:
        if self.on_server:
            return self.ledger
        return str(Path(self.ledger.removeprefix("sqlite:")).parent / name)


def as_curator(deployment: Deployment, port: int | None, name: str | None) -> Deployment:
    """The deployment at another port and under another name, for one of several curators.

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
