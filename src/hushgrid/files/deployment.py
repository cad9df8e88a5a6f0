"""Content of a service file after its checks: zones as they run, stores, servers and brokers.

Fields that are `Annotated` are checked where they are read from a file, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from hushgrid.errors import PolicyError, ServiceError
from hushgrid.files.settings import ACCEPT_ERROR, Charges, Http, Mqtt, OpenAdr
from hushgrid.files.zone_file import PRIVATE, PricesAhead, Provenance, PublicSeries
from hushgrid.intake.readings import Register
from hushgrid.intake.text import ColumnMapping
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import Mode
from hushgrid.model.zone import MOST_PRICES, Scenario

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
        plan_pattern: The same with the tariff that the plan was made with, where that is another;
            None: it is not.
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
        ahead: How prices are published ahead; None: each for the next interval.

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
    plan_pattern: Pattern | None = None
    leakage: float | None = None
    covariates: tuple[PublicSeries, ...] = ()
    charges: Charges = field(default_factory=Charges)
    digits: int | None = None
    planned: bool = True
    registers: tuple[Register, ...] = ()
    week: Policy | None = None
    terms_begin: int | None = None
    ahead: PricesAhead | None = None

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
        if self.ahead is not None:
            _check_ahead(self, self.ahead)
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


def _check_ahead(service: ZoneService, ahead: PricesAhead) -> None:
    """Refuse prices ahead that are too many for a list, or that demand would react to unseen."""
    number = ahead.ahead * _DAY // service.seconds
    if number > MOST_PRICES:
        raise PolicyError(
            f"prices.ahead is {ahead.ahead} days of {service.seconds} s, {number} prices of at most"
            f" {MOST_PRICES}; give fewer days, or a longer interval.",
            fields=("prices.ahead",),
        )
    if service.scenario.consumption.reacts:
        raise PolicyError(
            f"prices.ahead is {ahead.ahead} days, but [elasticity] says how demand reacts to the"
            " price of the last interval; leave one of them out.",
            fields=("prices.ahead",),
        )


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


_DAY, _SATURDAY = 86_400, 5


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
