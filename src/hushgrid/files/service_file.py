"""Service files in TOML (docs/files.md): their tables, their zones, and the Deployment.

Every mistake in a file, and in the zone files it names, is reported at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_args

from pydantic import AfterValidator, Field, PlainValidator

from hushgrid._numbers import is_whole
from hushgrid.errors import ConfigError, FileError, IntakeError
from hushgrid.files._tables import (
    Context,
    FileTable,
    Info,
    Mistakes,
    adapter,
    duration,
    fix,
    keys_of,
    mistake,
    read,
)
from hushgrid.files.deployment import Deployment, Pattern, Promise, Promised, ZoneService
from hushgrid.files.laws import written_seconds
from hushgrid.files.readings import BUILT_IN, mapping_of
from hushgrid.files.scenario import provenance_of, scenario_of
from hushgrid.files.settings import (
    Houses,
    Http,
    Mqtt,
    OpenAdr,
    Presentation,
    Publish,
    Service,
    Stores,
    Times,
    ids_of,
    registers_of,
)
from hushgrid.files.toml import Faults, TomlFile, display
from hushgrid.files.weeks import placed, with_noise
from hushgrid.files.zone_file import (
    PRIVATE,
    ZoneTables,
    completed,
    policy_of,
    with_offset_clamp,
    with_series,
)
from hushgrid.intake.text import ColumnMapping
from hushgrid.mechanism.policy import Policy
from hushgrid.model.zone import Scenario
from hushgrid.planning.expected_error import RHO

_EPSILONS = (1e-6, 100.0)  # that can be planned for
_SECRETS, _SHARE = f"give one of {', '.join(get_args(Promised))}", "give a share from 0 to 1"
_NOT_HERE = {  # keys of a zone file that a service does not take
    "epsilon_t": "leave it out: the secret interval shares epsilon out over the steps",
    "gaussian": "leave it out: a service draws Laplace noise, which has an epsilon a release",
    "delta": "leave it out: a service promises epsilon without exceptions",
    "negligible": "leave it out: a service protects every home at every step",
    "on_empty": "leave it out: a service publishes every price with noise",
    "blocks": "leave it out: each home of a service moves on its own",
    "models": "leave it out: a service protects a home under all of its models together",
    "horizon": "leave it out: a service publishes without an end",
}


def _with_noise(secret: str, info: Info) -> str:
    if info.data["block_steps"] and secret == "step":
        raise mistake(
            "is 'step' with blocks of steps, of which one price can say as much as the block; give"
            " the secret interval."
        )
    return secret


def _alone(rho: float, info: Info) -> float:
    if info.data["clamp"] is not None:
        raise mistake("and clamp are both set; give one of them.")
    return rho


def _of_window(seconds: int, info: Info) -> int:
    if info.data.get("secret", "window") != "window":
        raise mistake(
            f"is set with the secret {info.data['secret']}; give the secret window, or leave it"
            " out."
        )
    return seconds


def _of_blocks(seconds: int, info: Info) -> int:
    if info.data.get("secret", "window") == "step":
        raise mistake("is set with the secret step; give the secret interval or window.")
    if info.data.get("block_steps") is not None:
        raise mistake("and block_steps are both set; give one of them.")
    return seconds


_DURATION = duration("P1D", 60, 366 * 86_400)


@dataclass(frozen=True, slots=True)
class PromiseKeys(FileTable):
    """What a service reads of [policy], and the keys that it depends on.

    Attributes:
        block_steps: Whether noise lasts blocks of steps.
        clamp: Whether a clamp is given.
        secret: What epsilon is for: "step", each release; "interval", all releases, about one
            interval; "window", all releases, about all that a home does in any window of time.
        rho: Relative error expected of the model, by which a clamp is chosen; where neither is
            given, a usual one, and no clamp for the secret step.
        eta_set_by: Who set eta below 1, and why; required in production.
        window: Of the secret window, its length [s]; None: a day.
        block: How long one noise lasts [s]; None: as planned. For a window it is adjusted to a part
            of a week.
    """

    block_steps: Any = None
    clamp: Any = None
    secret: Annotated[
        Promised, fix(_SECRETS), AfterValidator(_with_noise), Field(validate_default=True)
    ] = "step"
    rho: Annotated[float, fix(_SHARE, ge=0, le=1), AfterValidator(_alone)] | None = None
    eta_set_by: Annotated[str, fix("say who set eta, and why")] = ""
    window: Annotated[int, _DURATION, AfterValidator(_of_window)] | None = None
    block: Annotated[int, _DURATION, AfterValidator(_of_blocks)] | None = None


class PolicyTerms(NamedTuple):
    """A [policy] table.

    Attributes:
        policy: The terms of the policy.
        promise: What is promised.
    """

    policy: Policy
    promise: Promise


def _terms(content: Any) -> PolicyTerms:
    mistakes, table = Mistakes(), content if isinstance(content, Mapping) else {}
    keys = policy = None
    hidden = set(_NOT_HERE)
    with mistakes.within():
        key_table = {key: table[key] for key in keys_of(PromiseKeys) if key in table}
        keys = adapter(PromiseKeys).validate_python(key_table)
    for key in _NOT_HERE.keys() & table:
        mistakes.add(_NOT_HERE[key], key, form="fix", value=table[key])
    if isinstance(content, Mapping):
        content = {key: value for key, value in table.items() if key not in _NOT_HERE}
        steps = content.get("block_steps", ())
        if isinstance(steps, list) and all(map(is_whole, steps)):
            content["horizon"] = max(sum(steps), 1)
            hidden.remove("horizon")
    with mistakes.within():
        policy = policy_of(content, hidden)
    if keys is not None and policy is not None:
        rho = RHO if keys.rho is None and keys.clamp is None and keys.secret != "step" else keys.rho
        promise = Promise(keys.secret, policy.epsilon, rho=rho, block=keys.block)
        if keys.secret == "window":
            promise = replace(promise, window=keys.window or 86_400)
    mistakes.check()
    return PolicyTerms(policy, promise)


def _mappings(content: Any, info: Info) -> dict[str, ColumnMapping]:
    """Mappings of files, by the names that senders use."""
    if not isinstance(content, Mapping):
        raise mistake("give a table of names and paths", "fix")
    mistakes, mappings = Mistakes(), dict[str, ColumnMapping]()
    for name, path in content.items():
        if name in BUILT_IN or not re.fullmatch("[A-Za-z0-9_-]{1,40}", name):
            mistakes.add("is built in or no name; give 1 to 40 letters, digits, - or _.", name)
        elif not isinstance(path, str) or not path.endswith(".toml") or not path.isprintable():
            text = "give the path of a mapping that ends in .toml"
            mistakes.add(text, name, form="fix", value=path)
        else:
            try:
                mappings[name] = mapping_of(str(info.context.folder / path))
            except (FileError, IntakeError) as error:
                mistakes.add(str(error), name, form="whole")
    mistakes.check()
    return mappings


@dataclass(frozen=True, kw_only=True)
class OwnTables(FileTable):
    """The tables that only a service file has.

    Attributes:
        service: The service.
        stores: Where its data are kept.
        http: The HTTP server; None: none.
        mqtt: The broker; None: none.
        publish: File of the newest prices; None: none.
        openadr: The VTN; on by default, since prices are public.
        mappings: Mappings of readings by name, beyond those built in.
    """

    unread: ClassVar[frozenset[str]] = frozenset(keys_of(ZoneTables))

    service: Service
    stores: Stores
    http: Http | None = None
    mqtt: Mqtt | None = None
    publish: Publish | None = None
    openadr: OpenAdr = field(default_factory=OpenAdr)
    mappings: Annotated[dict[str, ColumnMapping], PlainValidator(_mappings)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class RunningZone(ZoneTables):
    """The tables of a zone that a service runs.

    Attributes:
        service: Its times.
        policy: The terms of the policy, and what is promised.
        houses: Groups of houses and their meters.
    """

    service: Times
    policy: Annotated[PolicyTerms, PlainValidator(_terms)]
    houses: Houses  # type: ignore[assignment]


def _zone(file: TomlFile, main: TomlFile, *, planned: bool) -> ZoneService | None:
    """The zone of a file; the service file sets what its own [service] does not."""
    if file.broken:
        return None
    faults, before, content = file.faults, len(file.faults), dict(file.content)
    own_table: Any = content.get("service", {}) if file is not main else {}
    main_table, main_keys = main.content.get("service"), set(keys_of(Times)).difference(own_table)
    if isinstance(own_table, Mapping) and isinstance(main_table, Mapping):
        content["service"] = {
            **{key: main_table[key] for key in main_keys if key in main_table},
            **own_table,
        }
    keys = {"service", *(f"service.{key}" for key in main_keys)}
    faults.elsewhere |= {key for key in keys if main.faults.at("service", key)}
    if file is main:
        content = {key: value for key, value in content.items() if key in keys_of(RunningZone)}
    else:
        file.content = content
    seconds = written_seconds(content.get("service"))
    context = Context(file.folder, seconds, service=True)
    tables: RunningZone | None = read(RunningZone, completed(content), (), faults, context)
    scenario = scenario_of(file, tables, seconds)
    tariff, presentation_table = content.get("tariff"), dict[str, Any]()
    if isinstance(tariff, Mapping):
        presentation_table = {key: tariff[key] for key in keys_of(Presentation) if key in tariff}
    presentation: Presentation | None = read(
        Presentation, presentation_table, ("tariff",), faults, context
    )
    _check_trust(file, main.table("service").get("mode"))
    _check_origins(file)
    _check_rates(file)
    if tables is None or scenario is None or presentation is None or len(faults) > before:
        return None
    times, learned, promise = tables.service, tables.learned, tables.policy.promise
    terms, zone = with_series(tables.policy.policy, tables.covariates), times.time_zone.key
    _check_single(scenario, faults)
    if promise is not None and promise.secret == "window" and learned.epsilon > promise.epsilon:
        faults.add(
            "learned.epsilon",
            f"learned.epsilon is {learned.epsilon:g} but policy.epsilon is {promise.epsilon:g}, and"
            " a window may touch all readings of the models; promise at least what they cost.",
        )
    with faults.within("policy.clamp"):
        terms = with_offset_clamp(terms, tables.houses)
    if len(faults) > before:
        return None
    pattern = Pattern(scenario, terms)
    service = None
    with faults.within("models"):
        service = ZoneService(
            scenario=scenario,
            policy=terms,
            meters=ids_of(tables.houses),
            registers=registers_of(tables.houses),
            ahead=tables.prices,
            begins=times.begins,
            seconds=seconds,
            grace=times.grace,
            time_zone=zone,
            retention=times.retention,
            early_limit=times.early_limit,
            clock_limit=times.clock_limit,
            accept_error=times.accept_error,
            accept_error_set_by=times.accept_error_set_by,
            fallback_rate=times.fallback_rate,
            currency=times.currency,
            eta_set_by=file.table("policy").get("eta_set_by", ""),
            promise=promise,
            provenance=provenance_of(content),
            learned=learned,
            pattern=pattern,
            covariates=tables.covariates,
            charges=presentation.charges,
            digits=presentation.digits,
            planned=False,
        )
        service = placed(service, times.begins)
    if service is None or not planned or not _can_be_planned(promise, faults):
        return service
    blocks = terms.schedule.lengths
    with faults.within("policy.block_epsilon" if blocks else "policy.secret"):
        return with_noise(replace(service, planned=True))
    return None


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


def _check_origins(file: TomlFile) -> None:
    """Refuse models, laws, bounds and usual loads that readings shaped without noise."""
    learned = file.table("learned")
    origins = {f"learned.{key}": learned.get(key) for key in ("provenance", "bound_by")}
    for name in ("models", "houses"):
        tables = file.content.get(name)
        for i, table in enumerate(tables if isinstance(tables, list) else ()):
            if isinstance(table, Mapping):
                origins[f"{name}[{i}].provenance"] = table.get("provenance")
    for key, origin in origins.items():
        if isinstance(origin, str) and re.match(r"private\b", origin.strip(), re.IGNORECASE):
            file.faults.add(key, f"{key} is {display(origin)}; {PRIVATE}.")


def _check_single(scenario: Scenario, faults: Faults) -> None:
    """Refuse models of homes that move together."""
    for i, model in enumerate(scenario.models):
        most = max(piece.size for piece in model.chains)
        if most > 1:
            faults.add(
                f"models[{i}]",
                f"models[{i}] has {most} homes that move together; give a model in which each home"
                " moves on its own, such as those of hushgrid learn.",
            )


def _check_rates(file: TomlFile) -> None:
    """The fallback rate is one of the tariff, whose limits a rounded price keeps."""
    tariff, service = file.table("tariff"), file.table("service")
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
    digits, ends = tariff.get("digits"), ("floor", "cap")
    limits = {f"tariff.{key}": tariff[key] for key in ends if key in tariff}
    feed_in = tariff.get("feed_in", {})
    limits |= {f"tariff.feed_in.{key}": feed_in[key] for key in ends if key in feed_in}
    for key, limit in limits.items():
        if digits is not None and not file.faults.at(key) and round(limit, digits) != limit:
            file.faults.add(
                "tariff.digits",
                f"tariff.digits is {digits}, but {key} is {limit!r}, which a rounded price can"
                " pass; give more digits, or a limit with fewer.",
                key,
            )


def _can_be_planned(promise: Promise, faults: Faults) -> bool:
    """Whether epsilon is one that a plan is made for; else a fault says so."""
    low, high = _EPSILONS
    if (promise.secret == "step" and promise.rho is None) or low <= promise.epsilon <= high:
        return True
    faults.add(
        "policy.epsilon",
        f"policy.epsilon is {promise.epsilon:g}; give {low:g} to {high:g} for the secret"
        f" {promise.secret}.",
    )
    return False


_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def load_deployment(path: Path | str, *, planned: bool = True) -> Deployment:
    """Read a service file and the zone files it names.

    Args:
        path: The service file (TOML).
        planned: Whether to plan the noise of each zone. False is for commands that publish
            nothing: such a zone refuses to make a release.

    Returns:
        The deployment.

    Raises:
        ConfigError: Every mistake in these files, each with its line.
    """
    main = TomlFile(Path(path))
    main.check_format()
    faults, zone_names = main.faults, main.table("service").get("zones")
    names = zone_names if isinstance(zone_names, list) else []
    lone = bool(names) and not set(main.content) & set(keys_of(ZoneTables))
    context = Context(main.folder, service=True)
    tables: OwnTables | None = read(OwnTables, main.content, (), faults, context)
    files = [] if lone else [main]
    for i, name in enumerate(names):
        if faults.at("service.zones", f"service.zones[{i}]"):
            continue
        further = TomlFile(main.folder / name)
        if further.unreadable:
            faults.add(f"service.zones[{i}]", f"service.zones: {further.unreadable}")
        else:
            further.check_format()
            files.append(further)
    zones = [_zone(file, main, planned=planned) for file in files]
    _check_shared(zones, files)
    _check_ways(main)
    problems = [problem for file in dict.fromkeys([main, *files]) for problem in file.problems()]
    if problems or tables is None:
        raise ConfigError(tuple(problems))
    service, stores, openadr = tables.service, tables.stores, tables.openadr
    remote = "://" in stores.ledger.removeprefix("sqlite:")
    return Deployment(
        zones=tuple(zone for zone in zones if zone is not None),
        mode=service.mode,
        ledger=stores.ledger,
        meters=stores.meters,
        clients=stores.clients,
        key=service.key,
        vtn=stores.vtn,
        http=tables.http,
        mqtt=tables.mqtt,
        openadr=openadr if openadr.enabled else None,
        standby=service.standby,
        witness=stores.witness or (_witness(main.path, service.key) if remote else None),
        price_file=tables.publish.file if tables.publish else None,
        problems=_remarks(tables.http, tables.mqtt),
        mappings=tables.mappings,
        block_keys=stores.block_keys,
    )


def _witness(path: Path, key: Path) -> Path:
    """One folder for all service files of a folder and key, which may write to one ledger."""
    return path.with_name(f"{key.name}.witness")


def is_service(content: Mapping[str, Any]) -> bool:
    """Whether a file is a service file, not only a zone file.

    Args:
        content: The file.

    Returns:
        True if it has a table or key that only a service file has.
    """
    service, service_keys = content.get("service"), set(keys_of(Service)) - set(keys_of(Times))
    alone = set(service) & service_keys if isinstance(service, Mapping) else None
    return bool(set(content) & set(keys_of(OwnTables)) - {"service"} or alone)


def _check_shared(zones: list[ZoneService | None], files: list[TomlFile]) -> None:
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
        shared = next((meter for meter in zone.all_meters if meter in meters), None)
        if shared is not None:
            file.faults.add(
                "houses",
                f"houses has the meter {display(shared)}, which is of zone {meters[shared]} too;"
                " give each house its own meter.",
            )
        meters |= dict.fromkeys(zone.all_meters, zone.id)


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
    if main.table("service").get("standby"):  # curators meet in a database, not in files
        for name, value in main.table("stores").items():
            if name != "witness" and not value.startswith(("postgresql://", "postgres://")):
                faults.add(
                    f"stores.{name}",
                    f"stores.{name} is a path but service.standby is true; give a postgresql://"
                    " URL, which all curators can reach, or leave out standby.",
                )


def _remarks(http: Http | None, mqtt: Mqtt | None) -> tuple[str, ...]:
    """Warnings that do not prevent a start."""
    remarks = []
    if http is not None and http.host not in _LOOPBACK and http.tls_certificate is None:
        remarks.append(
            f"http.host is {display(http.host)} without tls_certificate: tokens and readings travel"
            " in the clear unless a proxy in front has TLS."
        )
    if http is None and (mqtt is None or mqtt.readings is None):
        remarks.append("No way in for readings: neither [http] nor mqtt.readings is set.")
    return tuple(remarks)
