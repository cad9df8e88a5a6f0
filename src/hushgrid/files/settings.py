"""Tables of a service file: times, stores, HTTP, MQTT, OpenADR, charges, and meters of houses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_network
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
)

from hushgrid.errors import FileError
from hushgrid.files._tables import (
    Bool,
    Context,
    FilePath,
    FileTable,
    Info,
    Line,
    Mistakes,
    PlainTopic,
    Positive,
    Store,
    Text,
    Topic,
    adapter,
    converted,
    duration,
    fix,
    mistake,
    read,
)
from hushgrid.files.laws import DAY, SECONDS, Interval, written_seconds
from hushgrid.files.results import read_text
from hushgrid.files.toml import TomlFile, display, instant_of
from hushgrid.files.zone_file import (
    GROUP_KEYS,
    MOST_HOUSES,
    REGISTER_KEYS,
    Group,
)
from hushgrid.intake.readings import MOST_METERS, Register
from hushgrid.mechanism.release import Mode

ACCEPT_ERROR = 0.2  # relative, of a price; more is accepted by someone with a name


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

    meter_interval: Annotated[int, duration("PT15M", 1, DAY)]
    interval: Annotated[
        Interval, AfterValidator(_of_whole_readings), Field(validate_default=True)
    ] = SECONDS
    begins: Annotated[int, converted(instant_of, _INSTANT), AfterValidator(_on_a_border)]
    grace: Annotated[int, duration("PT1M", 0, DAY)] = 60
    retention: Annotated[int, duration("P7D", 60, 3660 * DAY), AfterValidator(_long_enough)] = (
        7 * DAY
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
    event_age: Annotated[int, duration("P7D", 60, 3660 * DAY)] = 7 * DAY


# ---- meters of the houses


@dataclass(frozen=True, slots=True)
class Numbered(FileTable):
    """Meter ids that end with four digits or more.

    Attributes:
        prefix: What they begin with.
        first: The first number.
    """

    prefix: Text
    first: Annotated[int, fix("give a whole number", ge=0, lt=2**62)] = 1


_Id = Annotated[str, Field(strict=True)]
_HOMES: TypeAdapter[list[_Id | list[_Id]]] = TypeAdapter(list[_Id | list[_Id]])
_METERS = (
    "give a list of ids, with a list of its own for a home of several meters, or"
    ' {prefix = "elm-", first = 1}'
)


def _listed_meters(content: Any, info: Info) -> list[list[str]]:
    """The meters of each home as they are written, or numbered."""
    if not isinstance(content, Mapping):
        homes = _HOMES.validate_python(content)
        return _checked([[home] if isinstance(home, str) else home for home in homes], info)
    by: Numbered = adapter(Numbered).validate_python(content)
    numbers = range(by.first, by.first + info.data.get("count", 1))
    return _checked([[f"{by.prefix}{number:04d}"] for number in numbers], info)


def _one_each(content: Any, info: Info) -> list[list[str]]:
    """A register for each home."""
    return _single(_listed_meters(content, info))


def _single(homes: list[list[str]]) -> list[list[str]]:
    if any(len(meters) > 1 for meters in homes):
        raise mistake("has a home of several registers; give one id for each house.")
    return homes


def _in_file(name: Any, info: Info) -> list[list[str]]:
    """The meters of each home, of a file with a home a line and tabs between its meters."""
    if not isinstance(name, str) or not name.isprintable():
        raise mistake("give the path of a file with one id a line", "fix")
    try:
        lines = read_text(info.context.folder / name).splitlines()
    except FileError as error:
        raise mistake(str(error), "whole") from None
    return _checked([line.strip().split("\t") for line in lines if line.strip()], info)


def _one_each_in_file(name: Any, info: Info) -> list[list[str]]:
    """A register for each home, of a file with one a line."""
    return _single(_in_file(name, info))


def _checked(homes: list[list[str]], info: Info) -> list[list[str]]:
    for meters in homes:
        if not 1 <= len(meters) <= MOST_METERS:
            raise mistake(
                f"has a home of {len(meters)} meters; give each home 1 to {MOST_METERS} of them."
            )
        for meter in meters:
            if not 1 <= len(meter) <= 128 or not meter.isprintable() or meter != meter.strip():
                raise mistake(
                    f"holds {display(meter)}; give ids of 1 to 128 printed characters, without"
                    " spaces around them."
                )
    count = info.data.get("count", len(homes))
    if len(homes) != count:
        raise mistake(f"has {len(homes)} ids for {count} houses; give one id for each house.")
    return homes


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered(Group):
    """A [[houses]] table whose meters are known.

    Attributes:
        meters: Ids of the meters of each home, in house order; a list in the place of an id for a
            home of several meters (docs/meter-data.md), which are added up.
        meters_file: The same, of a file: a home a line, tabs between its meters.
        export_meters: Ids of the registers of energy fed in, in house order, where each house has
            a register for each direction.
        export_meters_file: The same, of a file.
    """

    unread: ClassVar[frozenset[str]] = frozenset()

    meters: Annotated[list[list[str]], PlainValidator(_listed_meters), fix(_METERS)] | None = None
    meters_file: Annotated[list[list[str]], PlainValidator(_in_file)] | None = None
    export_meters: Annotated[list[list[str]], PlainValidator(_one_each), fix(_METERS)] | None = None
    export_meters_file: Annotated[list[list[str]], PlainValidator(_one_each_in_file)] | None = None

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """One of the two keys of each kind of register, and laws in pairs."""
        yield from Group.check_keys(table)
        presence = [key in table for key in sorted(GROUP_KEYS)]
        if all(presence) or not any(presence):
            state = "both set" if all(presence) else "both unset"
            yield "meters", f"and meters_file are {state}; give one of them."
        second = sorted(REGISTER_KEYS & set(table))
        if len(second) > 1:
            yield second[0], f"and {second[1]} are both set; give one of them."
        elif second and not table.get("export"):
            yield second[0], "is set but export is not; give what each house may export [Wh]."


def _of_one_zone(groups: list[Metered]) -> list[Metered]:
    """Groups that are not too many houses, each with a meter of its own."""
    houses, places = sum(group.count for group in groups), dict[str, str]()
    if houses > MOST_HOUSES:
        raise mistake(f"has {houses} houses; give a zone at most {MOST_HOUSES} of them.")
    for i, group in enumerate(groups):
        for key in (*sorted(GROUP_KEYS), *sorted(REGISTER_KEYS)):
            for meter in chain.from_iterable(getattr(group, key) or ()):
                if meter in places:
                    text = f"holds {display(meter)} twice (also in {places[meter]});"
                    Mistakes().add(f"{text} give each house its own meter.", i, key).check()
                places[meter] = f"houses[{i}].{key}"
    return groups


Houses = Annotated[
    list[Metered],
    AfterValidator(_of_one_zone),
    fix("give at least one [[houses]] table", min_length=1),
]


def meter_ids(file: TomlFile) -> tuple[str, ...]:
    """Meter ids of a zone file that names its meters.

    Args:
        file: The file; receives every mistake.

    Returns:
        One id for each house, in house order; none where there are mistakes.
    """
    context = Context(file.folder, written_seconds(file.content.get("service")))
    groups = read(Houses, file.content["houses"], ("houses",), file.faults, context)
    return ids_of(groups or ())


def ids_of(groups: Iterable[Metered]) -> tuple[str, ...]:
    """One meter of each house, in house order.

    Args:
        groups: The groups of houses.

    Returns:
        Their ids.
    """
    return tuple(home[0] for group in groups for home in group.meters or group.meters_file or ())


def registers_of(groups: Iterable[Metered]) -> tuple[Register, ...]:
    """Further meters of each home, and its register of energy fed in, by house.

    Args:
        groups: The groups of houses.

    Returns:
        The registers.
    """
    registers, first = list[Register](), 0
    for group in groups:
        homes = group.meters or group.meters_file or []
        fed_in = group.export_meters or group.export_meters_file or [[]] * len(homes)
        for house, (meters, second) in enumerate(zip(homes, fed_in, strict=True), first):
            registers += [Register(house, meter, 1) for meter in meters[1:]]
            registers += [Register(house, meter, -1) for meter in second]
        first += len(homes)
    return tuple(registers)
