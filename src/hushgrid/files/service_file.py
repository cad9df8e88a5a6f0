"""Service files in TOML (docs/service.md): their tables, their zones, and the Deployment.

Every mistake in a file, and in the zone files it names, is reported at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter

from hushgrid._numbers import is_real
from hushgrid.errors import ConfigError, FileError
from hushgrid.files.deployment import (
    Deployment,
    Http,
    Mqtt,
    OpenAdr,
    Pattern,
    Promise,
    Publish,
    Service,
    Stores,
    Times,
    ZoneService,
)
from hushgrid.files.interval_plan import (
    EpochTimes,
    Planned,
    interval_plan,
    laid,
    plan_of,
    without_private_models,
)
from hushgrid.files.results import read_text
from hushgrid.files.tables import (
    Context,
    FileTable,
    Info,
    Text,
    adapter,
    check_tables,
    fix,
    keys_of,
    mistake,
    read,
)
from hushgrid.files.toml import Faults, TomlFile, display
from hushgrid.files.zone_file import (
    ANY,
    GROUP_KEYS,
    OPTIONAL_TABLES,
    SECONDS,
    SECTIONS,
    Provenance,
    check_private,
    provenance_of,
    read_policy,
    read_provenance,
    read_scenario,
    step_seconds,
    tables_of,
)
from hushgrid.mechanism.policy import Policy
from hushgrid.model.scenario import Scenario
from hushgrid.planning.planner import Secret

# ---- tables

MOST_STEPS = 200_000  # of a horizon: each has a slot of its own
_EPSILONS = (1e-6, 100.0)  # that can be planned for

_SECRETS, _SHARE = f"give one of {', '.join(get_args(Secret))}", "give a share from 0 to 1"


def _short_enough(horizon: Any) -> Any:
    if is_real(horizon) and horizon > MOST_STEPS:
        raise mistake(f"give at most {MOST_STEPS} steps", "fix")
    return horizon


def _with_noise(secret: str, info: Info) -> str:
    if info.data["gaussian"] is not None and secret != "trajectory":
        raise mistake(f"is {display(secret)} with Gaussian noise; give the secret trajectory.")
    if info.data["window"] is not None and secret != "step":
        raise mistake(
            f"is {display(secret)} with a window, which shares out the budget by itself; give the"
            " secret step, or no window."
        )
    return secret


def _alone(rho: float, info: Info) -> float:
    if info.data["clamp"] is not None:
        raise mistake("and clamp are both set; give one of them.")
    return rho


@dataclass(frozen=True, slots=True)
class Promised(FileTable):
    """What a service reads of [policy], and the keys that it depends on.

    Attributes:
        gaussian: Whether noise is Gaussian.
        window: Whether a window shares out the budget.
        clamp: Whether a clamp is given.
        horizon: Steps.
        secret: What is protected; None: what the noise implies.
        rho: Relative error expected of the model, by which a clamp is chosen.
        eta_set_by: Who set eta, and why.
    """

    gaussian: Any = None
    window: Any = None
    clamp: Any = None
    horizon: Annotated[Any, AfterValidator(_short_enough)] = 1
    secret: Annotated[Secret, fix(_SECRETS), AfterValidator(_with_noise)] | None = None
    rho: Annotated[float, fix(_SHARE, ge=0, le=1), AfterValidator(_alone)] | None = None
    eta_set_by: Annotated[str, fix("say who set eta, and why")] = ""


TABLES: dict[str, Any] = {
    "service": Service,
    "stores": Stores,
    "http": Http,
    "mqtt": Mqtt,
    "publish": Publish,
    "openadr": OpenAdr,
}

# ---- meters


@dataclass(frozen=True, slots=True)
class Numbered(FileTable):
    """Meter ids that end with four digits or more.

    Attributes:
        prefix: What they begin with.
        first: The first number.
    """

    prefix: Text
    first: Annotated[int, fix("give a whole number", ge=0, lt=2**62)] = 1


_IDS: TypeAdapter[list[str]] = TypeAdapter(list[Annotated[str, Field(strict=True)]])


def _listed(given: Any) -> Any:
    return (adapter(Numbered) if isinstance(given, Mapping) else _IDS).validate_python(given)


def _in_file(name: Any, info: Info) -> list[str]:
    if not isinstance(name, str) or not name.isprintable():
        raise mistake("give the path of a file with one id a line", "fix")
    try:
        lines = read_text(info.context.folder / name).splitlines()
    except FileError as error:
        raise mistake(str(error), "whole") from None
    return [line.strip() for line in lines if line.strip()]


@dataclass(frozen=True, slots=True)
class Meters(FileTable):
    """Meters of a [[houses]] table.

    Attributes:
        meters: Ids in house order, or how they are numbered.
        meters_file: Ids of a file with one a line.
    """

    meters: Annotated[
        Any,
        PlainValidator(_listed),
        fix('give a list of ids, or {prefix = "elm-", first = 1}'),
    ] = None
    meters_file: Annotated[Any, PlainValidator(_in_file)] = None

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """One of the two keys."""
        if len(table) != 1:
            state = "both set" if table else "both unset"
            yield "meters", f"and meters_file are {state}; give one of them."

    def ids(self, count: int) -> list[str]:
        """The ids of so many houses."""
        if not isinstance(self.meters, Numbered):
            return list(self.meters or self.meters_file)
        prefix, first = self.meters.prefix, self.meters.first
        return [f"{prefix}{number:04d}" for number in range(first, first + count)]


def meter_ids(file: TomlFile) -> tuple[str, ...]:
    """Meter ids of a file, in house order.

    Args:
        file: A service file, or a zone file that names its meters; receives every mistake.

    Returns:
        One id for each house; fewer where there are mistakes.
    """
    faults, places = file.faults, dict[str, str]()
    for i, group in tables_of(file, "houses"):
        own = {key: group[key] for key in GROUP_KEYS if key in group}
        found = read(Meters, own, ("houses", i), faults, Context(file.folder))
        if found is None:
            continue
        key, counted = f"houses[{i}].{next(iter(own))}", not faults.at(f"houses[{i}].count")
        ids = found.ids(group["count"] if counted else 1)
        for one in ids:
            if not 1 <= len(one) <= 128 or not one.isprintable() or one != one.strip():
                faults.add(
                    key,
                    f"{key} holds {display(one)}; give ids of 1 to 128 printed characters, without"
                    " spaces around them.",
                )
            if one in places:
                faults.add(
                    key,
                    f"{key} holds {display(one)} twice (also in {places[one]}); give each house its"
                    " own meter.",
                )
            places[one] = key
        if counted and len(ids) != group["count"]:
            faults.add(
                key,
                f"{key} has {len(ids)} ids for {group['count']} houses; give one id for each"
                " house.",
            )
    return tuple(places)


# ---- one zone


def read_zone(file: TomlFile, times: Times | None, mode: Any) -> ZoneService | None:
    """Read one zone: its scenario in local time, and the policy that keeps its promise.

    Args:
        file: The file with the zone's tables; receives every mistake.
        times: Its [service] table; None where that has mistakes.
        mode: Mode of the service.

    Returns:
        The zone as it runs; None where it or its times have mistakes.
    """
    faults, before = file.faults, len(file.faults)
    seconds = step_seconds(file.table("service").get("interval", SECONDS)) or ANY
    seconds = ANY if faults.at("service.interval") else seconds
    scenario = read_scenario(file, Context(file.folder, seconds, service=True))
    meters = () if faults.at("houses") else meter_ids(file)
    policy, promise = _policy(file)
    earlier = len(faults)
    learned = read_provenance(file)
    if promise is not None and policy is not None and len(faults) == earlier:
        check_private(learned, policy, promise.secret, promise.rho, faults)
    _check_trust(file, mode)
    _check_rates(file, learned)
    if scenario is None or policy is None or promise is None or times is None:
        return None
    if len(faults) > before:
        return None
    with faults.within("models"):
        place = EpochTimes(times.begins, seconds, policy.horizon, times.time_zone.key)
        pattern = Pattern(scenario, policy)
        local = own = laid(pattern, place)
        local = without_private_models(local) if learned.private else local
        policy, leakage, memory, _ = _planned(local, pattern, promise, faults, place)
        return ZoneService(
            scenario=local,
            policy=policy,
            meters=meters,
            begins=times.begins,
            seconds=seconds,
            grace=times.grace,
            time_zone=times.time_zone.key,
            retention=times.retention,
            budget=times.budget,
            accept_error=times.accept_error,
            fallback_rate=times.fallback_rate,
            currency=times.currency,
            eta_set_by=file.table("policy").get("eta_set_by", ""),
            promise=promise,
            provenance=provenance_of(file.content),
            learned=learned,
            own=own if learned.private else None,
            pattern=pattern,
            leakage=leakage,
            memory=memory,
        )
    return None


def _policy(file: TomlFile) -> tuple[Policy, Promise] | tuple[None, None]:
    """The terms of the policy and what is promised."""
    given, faults = file.content.get("policy"), file.faults
    if "policy" not in file.content:
        return None, None
    table = given if isinstance(given, Mapping) else {}
    own = {key: table[key] for key in keys_of(Promised) if key in table}
    said: Promised | None = read(Promised, own, ("policy",), faults)
    left_out = {"horizon"} if faults.at("policy.horizon") else set()
    left_out |= {"delta"} if faults.at("policy.secret") else set()  # it may go with a delta or not
    if left_out:
        given = {key: value for key, value in table.items() if key not in left_out}
    policy = read_policy(given, faults)
    if policy is None or said is None:
        return None, None
    implied: Any = "trajectory" if "gaussian" in table else "step"
    secret = "window" if "window" in table else said.secret or implied
    return policy, Promise(secret, policy.epsilon, float(table.get("delta", 0.0)), said.rho)


def _check_trust(file: TomlFile, mode: Any) -> None:
    """eta < 1 requires `eta_set_by` (in production) and demand without elasticity."""
    policy, elasticity = file.table("policy"), file.table("elasticity")
    eta = policy.get("eta", 1)
    if eta >= 1:
        return
    if mode == "production" and not str(policy.get("eta_set_by", "")).strip():
        file.faults.add(
            "policy.eta_set_by",
            f"policy.eta_set_by is not set but eta is {eta:g} in production; say who set"
            " it and why, or give eta = 1.",
        )
    if elasticity and elasticity.get("exponent") != 0:
        file.faults.add(
            "elasticity",
            f"elasticity makes demand react to rates while eta is {eta:g}; published rates"
            " take effect later than the mechanism assumes: give eta = 1.",
            "elasticity.exponent",
        )


def _check_rates(file: TomlFile, learned: Provenance) -> None:
    """The models' cost is charged to the budget; the fallback rate is one of the tariff."""
    tariff, service = file.table("tariff"), file.table("service")
    budget = service.get("budget")
    if budget is not None and learned.epsilon >= budget:
        file.faults.add(
            "service.budget",
            f"service.budget is {budget:g} but the models have cost {learned.epsilon:g} of it"
            " (learned.epsilon); give more, or models that cost less.",
        )
    floor, cap = tariff.get("floor", 0.0), tariff.get("cap", math.inf)
    rate = service.get("fallback_rate", floor)
    if not floor <= rate <= cap:
        file.faults.add(
            "service.fallback_rate",
            f"service.fallback_rate is {rate:g}, outside the tariff's {floor:g} to {cap:g}; give a"
            " rate between them.",
            "tariff.floor",
            "tariff.cap",
        )


def _planned(
    local: Scenario, pattern: Pattern, promise: Promise, faults: Faults, place: EpochTimes
) -> Planned:
    """The policy that keeps the promise: the terms themselves where epsilon is each release's."""
    terms, (low, high) = pattern.terms, _EPSILONS
    if promise.secret == "window" or not terms.schedule.per_release:
        return Planned(terms)
    if promise.secret == "step" and promise.rho is None:
        return Planned(terms)
    if not low <= promise.epsilon <= high:
        faults.add(
            "policy.epsilon",
            f"policy.epsilon is {promise.epsilon:g}; give {low:g} to {high:g} for the secret"
            f" {promise.secret}.",
        )
        return Planned(terms)
    with faults.within("policy.secret"):
        if promise.secret == "interval":
            return interval_plan(pattern, promise, place)
        return Planned(plan_of(local, promise, terms).policy)
    return Planned(terms)


# ---- the deployment

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def load_deployment(path: Path | str) -> Deployment:
    """Read a service file and the zone files it names.

    Args:
        path: The service file (TOML).

    Returns:
        The deployment.

    Raises:
        ConfigError: Every mistake in these files, each with its line.
    """
    main = TomlFile(Path(path))
    main.check()
    content, faults = main.content, main.faults
    named = main.table("service").get("zones")
    names = named if isinstance(named, list) else []
    lone = bool(names) and not set(content) & SECTIONS
    optional = {"elasticity", "http", "learned", "mqtt", "openadr", "publish"}
    known = SECTIONS | OPTIONAL_TABLES | set(TABLES)
    check_tables(content, known, optional | (SECTIONS if lone else set()), faults)
    context = Context(main.folder, service=True)
    found: dict[str, Any] = {
        name: read(kind, content[name], (name,), faults, context)
        for name, kind in TABLES.items()
        if name in content
    }
    service: Any = found.get("service")
    openadr = found.get("openadr", OpenAdr())  # on by default: the prices are public
    files = [] if lone else [main]
    zones = [] if lone else [read_zone(main, service, main.table("service").get("mode"))]
    for i, name in enumerate(names):
        if faults.at("service.zones", f"service.zones[{i}]"):
            continue
        further = TomlFile(main.folder / name)
        if further.unreadable:
            faults.add(f"service.zones[{i}]", f"service.zones: {further.unreadable}")
        else:
            files.append(further)
            zones.append(_further_zone(further, main, service))
    _check_apart(zones, files)
    _check_ways(main)
    problems = [p for file in [main, *(f for f in files if f is not main)] for p in file.problems()]
    if problems:
        raise ConfigError(tuple(problems))
    stores, http, mqtt = found["stores"], found.get("http"), found.get("mqtt")
    remote = "://" in stores.ledger.removeprefix("sqlite:")
    return Deployment(
        zones=tuple(zone for zone in zones if zone is not None),
        mode=service.mode,
        ledger=stores.ledger,
        meters=stores.meters,
        clients=stores.clients,
        key=service.key,
        vtn=stores.vtn,
        http=http,
        mqtt=mqtt,
        openadr=openadr if openadr.enabled else None,
        share=service.share,
        witness=stores.witness or (main.path.with_suffix(".witness") if remote else None),
        witness_needed=stores.witness is not None,
        price_file=found["publish"].file if "publish" in found else None,
        problems=_remarks(http, mqtt),
    )


def is_service(content: Mapping[str, Any]) -> bool:
    """Whether a file is a service file, not only a zone file.

    Args:
        content: The file.

    Returns:
        True if it has a table or key that only a service file has.
    """
    service = content.get("service")
    own = set(service) & set(keys_of(Service)) if isinstance(service, Mapping) else set()
    return bool(set(content) & set(TABLES) - {"service"} or own - set(keys_of(Times)))


def _further_zone(file: TomlFile, main: TomlFile, service: Service | None) -> ZoneService | None:
    """A zone of another file; the service file sets what its own [service] does not."""
    if file.broken:
        return None
    optional = {"elasticity", *OPTIONAL_TABLES}
    check_tables(file.content, SECTIONS | OPTIONAL_TABLES, optional, file.faults)
    times, theirs, own = service, main.content.get("service"), file.content.get("service", {})
    if isinstance(theirs, Mapping) and isinstance(own, Mapping):
        taken = [key for key in keys_of(Times) if key not in own]
        given = {**own, **{key: theirs[key] for key in taken if key in theirs}}
        at = {f"service.{key}" for key in taken}
        file.faults.elsewhere |= {key for key in at if main.faults.at(key)}
        if "service" in file.content:
            times = read(Times, given, ("service",), file.faults, Context(file.folder))
        file.content = {**file.content, "service": given}
    return read_zone(file, times, main.table("service").get("mode"))


def _check_apart(zones: list[ZoneService | None], files: list[TomlFile]) -> None:
    """Zones have names of their own, and a meter belongs to one zone."""
    names: dict[str, Path] = {}
    meters: dict[str, str] = {}
    for zone, file in zip(zones, files, strict=True):
        if zone is None:
            continue
        if zone.id in names:
            file.faults.add(
                "zone.id",
                f"zone.id is {display(zone.id)}, as in {names[zone.id]}; give each zone its own.",
            )
        names[zone.id] = file.path
        shared = next((one for one in zone.meters if one in meters), None)
        if shared is not None:
            file.faults.add(
                "houses",
                f"houses has the meter {display(shared)}, which is of zone {meters[shared]} too;"
                " give each house its own meter.",
            )
        meters |= dict.fromkeys(zone.meters, zone.id)


def _check_ways(main: TomlFile) -> None:
    """Check tables against each other: brokers have something to do, and shared stores a server."""
    mqtt, openadr, faults = main.content.get("mqtt"), main.table("openadr"), main.faults
    events = openadr.get("enabled", True) and openadr.get("mqtt", True)
    if isinstance(mqtt, Mapping) and not {"readings", "prices"} & set(mqtt) and not events:
        faults.add(
            "mqtt",
            "mqtt has neither readings nor prices; give the topic of one of them.",
            "mqtt.readings",
            "mqtt.prices",
        )
    if main.table("service").get("share"):  # curators meet in a database, not in files
        for name, value in main.table("stores").items():
            if name != "witness" and not value.startswith(("postgresql://", "postgres://")):
                faults.add(
                    f"stores.{name}",
                    f"stores.{name} is a path but service.share is true; give a postgresql:// URL,"
                    " which all curators can reach, or leave out share.",
                )


def _remarks(http: Http | None, mqtt: Mqtt | None) -> tuple[str, ...]:
    """Warnings that do not prevent a start."""
    found = []
    if http is not None and http.host not in _LOOPBACK and http.tls_certificate is None:
        found.append(
            f"http.host is {display(http.host)} without tls_certificate: tokens and readings travel"
            " in the clear unless a proxy in front has TLS."
        )
    if http is None and (mqtt is None or mqtt.readings is None):
        found.append("No way in for readings: neither [http] nor mqtt.readings is set.")
    return tuple(found)
