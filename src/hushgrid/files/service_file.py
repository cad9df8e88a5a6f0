"""Service files in TOML (docs/service.md): their keys, their zones, and the Deployment.

Every mistake in a file, and in the zone files it names, is reported at once. An interval promise is
about all releases, those of neighbouring epochs included. Its plan covers a run of steps in local
time: the epoch as the first of its kind and what follows it, then what precedes it, the epoch
again, and what follows. Before and after are as long as leakage is remembered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NamedTuple, get_args
from zoneinfo import ZoneInfo

import numpy as np

from hushgrid._numbers import is_real
from hushgrid.accounting.epochs import FORGOTTEN, PERIODS, kept_by_silence
from hushgrid.errors import ConfigError
from hushgrid.files.deployment import (
    Deployment,
    Http,
    Mqtt,
    OpenAdr,
    Pattern,
    Promise,
    ZoneService,
    localised,
    localised_at,
    meter_ids,
    without_private_models,
)
from hushgrid.files.toml import Faults, Table, TomlFile, check_keys, display, instant_of, seconds_of
from hushgrid.files.zone_file import (
    ANY,
    GROUP_KEYS,
    INTERVALS,
    OPTIONAL_TABLES,
    POLICY_KEYS,
    SECONDS,
    SECTIONS,
    Provenance,
    check_private,
    provenance_of,
    read_policy,
    read_provenance,
    read_scenario,
    step_seconds,
)
from hushgrid.mechanism.policy import Policy
from hushgrid.model.scenario import Scenario
from hushgrid.planning.expected_error import MOST_CUT
from hushgrid.planning.planner import Plan, Secret, plan

# ---- plan of an interval promise

_DAY = 86_400  # [s]
_SETTLED = 1e-5  # relative: the noise no longer changes with the steps around an epoch


class EpochTimes(NamedTuple):
    """When the steps of an epoch are.

    Attributes:
        begins: Start of the first step [UTC epoch s].
        seconds: Length of a step [s].
        horizon: Number of steps.
        time_zone: IANA name of the zone of times of day.
    """

    begins: int
    seconds: int
    horizon: int
    time_zone: str


class Planned(NamedTuple):
    """A policy with what its plan counts; see `ZoneService`.

    Attributes:
        policy: The policy.
        leakage: Leakage about one interval of one house; None where it is not planned for.
        memory: Steps without releases after which nothing of a leakage is left; None where it
            stays.
        reach: Steps before the epoch and after it that were counted with it.
    """

    policy: Policy
    leakage: float | None = None
    memory: int | None = None
    reach: int | None = None


@lru_cache(maxsize=128)
def interval_plan(
    pattern: Pattern, promise: Promise, place: EpochTimes, *, alone: bool = False
) -> Planned:
    """The policy that keeps an interval promise, among epochs like it before and after.

    Args:
        pattern: the zone before it is laid over time.
        promise: what is promised about the secret `interval`.
        place: the epoch's steps.
        alone: plan as versions did that counted no other epoch: the epoch on its own, its clamp
            without a bound on what it cuts.

    Returns:
        The plan. Where leakage does not fade in silence its memory is None and the epoch is on its
        own. With releases it can fade more slowly: then more steps around the epoch are counted,
        until the noise no longer changes or up to 32 days; beyond that they are repeated.

    Raises:
        PlanError: the promise allows so little noise that leakage does not fade under it.
    """
    memory = None if alone else memory_of(pattern, place)
    day = _DAY // place.seconds
    longer = [] if memory is None else [n * day for n in PERIODS if n * day > memory]
    epsilon = 0.0
    for reach in (memory, *longer):
        world, running = _run(pattern, place, reach)
        calendars = [world.consumption.calendar, *(model.calendar for model in world.models)]
        slots = tuple(calendar.slots.tobytes() for calendar in calendars)
        found = _plan_over(_Steps(world, pattern, slots), promise, place.horizon, running, alone)
        before, epsilon = epsilon, found.policy.epsilon
        if found.running == running or abs(epsilon - before) <= _SETTLED * epsilon:
            break
    return Planned(found.policy, found.leakage, memory, reach)


@dataclass(frozen=True, slots=True)
class _Steps:
    """A pattern laid over steps; equal where the same part of it is at every step."""

    world: Scenario = field(compare=False)
    pattern: Pattern
    slots: tuple[bytes, ...]


@lru_cache(maxsize=128)
def _plan_over(
    steps: _Steps, promise: Promise, horizon: int, running: int | None, alone: bool
) -> Plan:
    """The plan for such steps; epochs at the same times of like days have the same one."""
    world = steps.world
    return plan(
        world.zone,
        world.tariff,
        world.models,
        world.consumption,
        secret="interval",
        epsilon=promise.epsilon,
        terms=replace(steps.pattern.terms, horizon=horizon),
        rho=promise.rho,
        most_cut=None if alone else MOST_CUT,
        running=running,
    )


def interval_run(service: ZoneService) -> tuple[Scenario, int | None] | None:
    """The steps that an interval promise of a zone is planned over, as in `interval_plan`.

    Args:
        service: The zone.

    Returns:
        The scenario over those steps and how many of them count, or None where the zone's file is
        not known.
    """
    pattern, promise = service.pattern, service.promise
    if pattern is None:
        return None
    place = EpochTimes(service.begins, service.seconds, service.policy.horizon, service.time_zone)
    if promise is not None and promise.secret == "interval":
        return _run(pattern, place, interval_plan(pattern, promise, place).reach)
    return _run(pattern, place, memory_of(pattern, place))


def _run(pattern: Pattern, place: EpochTimes, memory: int | None) -> tuple[Scenario, int | None]:
    if memory is None:
        return laid(pattern, place), None
    world = _among_others(pattern, place, memory)
    return world, len(world.models[0].calendar.slots)


def laid(pattern: Pattern, place: EpochTimes) -> Scenario:
    """The pattern in local time over the steps of an epoch.

    Args:
        pattern: The zone before its patterns are laid over time.
        place: The epoch's steps.

    Returns:
        The scenario with one slot for each step.
    """
    return localised(pattern.scenario, **place._asdict())


def memory_of(pattern: Pattern, place: EpochTimes) -> int | None:
    """Steps without releases, before the epoch and after it, that leave nothing of any leakage.

    Args:
        pattern: The zone before its patterns are laid over time.
        place: The epoch's steps.

    Returns:
        The number of steps; None where leakage does not fade.
    """
    day = _DAY // place.seconds
    end = place.begins + (place.horizon - 1) * place.seconds
    for days in PERIODS:
        steps = days * day
        before = place.begins - steps * place.seconds
        if max(kept(pattern, place, at, steps) for at in (before, end)) <= FORGOTTEN:
            return steps
    return None


def kept(pattern: Pattern, place: EpochTimes, start: int, steps: int) -> float:
    """The share of a leakage about one step that is left after steps without releases.

    The chain begins a day earlier with every state possible, so that what is possible does not
    depend on where it begins.

    Args:
        pattern: The zone before its patterns are laid over time.
        place: The epoch's steps.
        start: Start of the step [UTC epoch s].
        steps: Number of steps without releases.

    Returns:
        A share from 0 to 1.
    """
    day = _DAY // place.seconds
    world = laid(
        pattern, place._replace(begins=start - day * place.seconds, horizon=day + steps + 1)
    )
    return kept_by_silence(world.models, day + 1, day + 1 + steps, starts=False)


def _among_others(pattern: Pattern, place: EpochTimes, memory: int) -> Scenario:
    """The epoch and what follows it, then all that may precede, come and follow, in local time.

    The second part begins at the time of the day at which the first one ends.
    """
    day = _DAY // place.seconds
    after = memory + -(place.horizon + 2 * memory) % day
    steps = [np.arange(place.horizon + after), np.arange(-memory, place.horizon + after)]
    starts = place.begins + place.seconds * np.concatenate(steps).astype(np.int64)
    return localised_at(pattern.scenario, starts, seconds=place.seconds, time_zone=place.time_zone)


def in_epoch(
    service: ZoneService, begins: int, horizon: int | None = None, *, alone: bool = False
) -> ZoneService | None:
    """The zone with the same terms for another epoch.

    Args:
        service: A zone with an interval promise.
        begins: Start of the other epoch [UTC epoch s].
        horizon: Its steps; by default as many as now.
        alone: As in `interval_plan`.

    Returns:
        The zone; None where its file is not known or it has another promise.
    """
    pattern, promise = service.pattern, service.promise
    if pattern is None or promise is None or promise.secret != "interval":
        return None
    steps = service.policy.horizon if horizon is None else horizon
    place = EpochTimes(begins, service.seconds, steps, service.time_zone)
    policy, leakage, memory, _ = interval_plan(pattern, promise, place, alone=alone)
    return replace(
        service,
        scenario=laid(pattern, place),
        policy=policy,
        begins=begins,
        leakage=leakage,
        memory=memory,
    )


def planned_otherwise(service: ZoneService) -> bool:
    """Whether earlier versions could have planned other terms from the same file.

    Args:
        service: The zone.

    Returns:
        True if so.
    """
    promise = service.promise
    return (
        service.pattern is not None
        and promise is not None
        and service.policy.schedule.per_release
        and (promise.secret == "interval" or promise.rho is not None)
    )


def as_before(service: ZoneService) -> ZoneService | None:
    """The zone as earlier versions planned it.

    Args:
        service: The zone.

    Returns:
        The zone; None where they planned as now, or its file is not known.
    """
    pattern, promise = service.pattern, service.promise
    if pattern is None or promise is None or not planned_otherwise(service):
        return None
    if promise.secret == "interval":
        return in_epoch(service, service.begins, alone=True)
    if promise.secret == "window":
        return None
    world = service.scenario
    policy = plan(
        world.zone,
        world.tariff,
        world.models,
        world.consumption,
        secret=promise.secret,
        epsilon=promise.epsilon,
        delta=promise.delta,
        terms=pattern.terms,
        rho=promise.rho,
        most_cut=None,
    ).policy
    return replace(service, policy=policy)


class UnusableError(Exception):
    """A value that a key cannot take; its text is the fix."""


Read = Callable[[Any], Any]


class Setting(NamedTuple):
    """A key of a table.

    Attributes:
        read: Reader of its value; raises `UnusableError` with the fix.
        required: Whether it must be set.
        own: Whether a zone may have its own value.
        secret: Whether its value is kept out of messages.
    """

    read: Read
    required: bool = False
    own: bool = False
    secret: bool = False


def _converted(convert: Callable[[Any], Any], fix: str) -> Read:
    """Reader of what `convert` accepts; it returns None for any other value."""

    def read(value: Any) -> Any:
        found = convert(value)
        if found is None:
            raise UnusableError(fix)
        return found

    return read


def _matching(form: str, fix: str, clean: Callable[[str], str] = str) -> Read:
    """Reader of texts that match a regular expression."""
    return _converted(
        lambda value: (
            clean(value) if isinstance(value, str) and re.fullmatch(form, value) else None
        ),
        fix,
    )


def _listed(read: Read, fix: str) -> Read:
    """Reader of lists, as tuples."""
    return _converted(
        lambda value: tuple(read(one) for one in value) if isinstance(value, list) else None, fix
    )


def _line(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() and value.isprintable() else None


def _zone_name(value: Any) -> str | None:
    try:
        ZoneInfo(value)
    except (ValueError, OSError, TypeError, KeyError):  # zoneinfo's own is a KeyError
        return None
    return str(value)


def _network(value: Any) -> str | None:
    try:
        return str(ip_network(value)) if isinstance(value, str) else None
    except ValueError:
        return None


def _store_name(value: Any) -> str | None:
    """A path or a postgresql:// URL."""
    named = _line(value)
    if named and "://" in named and not re.match(r"postgres(ql)?://[^/]", named):
        return None
    return named


def one_of(*words: str) -> Read:
    """Reader of one of some words.

    Args:
        words: The words.

    Returns:
        The reader.
    """
    return _converted(
        lambda value: value if isinstance(value, str) and value in words else None,
        f"give one of {', '.join(words)}",
    )


def duration(example: str, least: int, most: int) -> Read:
    """Reader of a duration.

    Args:
        example: A duration for the message.
        least: Least seconds.
        most: Most seconds.

    Returns:
        The reader; its result is in seconds.
    """

    def convert(value: Any) -> int | None:
        seconds = seconds_of(value)
        return seconds if seconds is not None and least <= seconds <= most else None

    return _converted(
        convert, f"give seconds from {least} to {most}, or a text such as {example!r}"
    )


def count(least: int, most: int, what: str = "whole number") -> Read:
    """Reader of a whole number within limits.

    Args:
        least: Least number.
        most: Greatest number.
        what: What it is called in the message.

    Returns:
        The reader.
    """

    def convert(value: Any) -> int | None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and least <= value <= most else None

    return _converted(convert, f"give a {what} from {least} to {most}")


def topic(wildcards: bool) -> Read:
    """Reader of an MQTT topic.

    Args:
        wildcards: Whether it may hold + and #.

    Returns:
        The reader.
    """

    def read(value: Any) -> str:
        if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 1000:
            raise UnusableError("give an MQTT topic such as 'hushgrid/prices'")
        if not wildcards and ("+" in value or "#" in value):
            raise UnusableError("give a topic without wildcards: prices go out on it")
        return value

    return read


def path(value: Any) -> str:
    """Read a path.

    Args:
        value: The value of a key.

    Returns:
        The path.

    Raises:
        UnusableError: If it is no path.
    """
    named = _line(value)
    if named is None:
        raise UnusableError("give a path")
    if "://" in named:
        raise UnusableError("give a path, not a URL")
    return named


_BROKERS = "give a list of URLs such as ['mqtts://broker.example:8883']"
_DIGESTS = (
    "give a list of SHA-256 digests (64 hex digits each); write a token's digest, never the token"
)
_NETWORKS = "give a list of addresses or networks such as ['127.0.0.1', '10.0.0.0/8']"

line_text = _converted(_line, "give a text on one line")
interval = _converted(step_seconds, f"give {INTERVALS}")
instant = _converted(instant_of, "give a date-time in UTC such as 2026-01-01T00:00:00Z")
time_zone = _converted(
    _zone_name,
    "give a name of the time zone database such as 'Europe/Zurich' (where the system has none,"
    " install the extra hushgrid[intake])",
)
currency = _matching("[A-Z]{3}", "give three letters such as 'EUR'")
rate = _converted(
    lambda value: float(value) if is_real(value) and value >= 0 else None,
    "give a rate of 0 or more [currency/kWh]",
)
positive = _converted(
    lambda value: float(value) if is_real(value) and value > 0 else None, "give a positive number"
)
port = count(1, 65_535, "port")
boolean = _converted(lambda value: value if isinstance(value, bool) else None, "give true or false")
networks = _listed(_converted(_network, _NETWORKS), _NETWORKS)
host = _matching(r"[A-Za-z0-9.:_-]{1,253}", "give a host name or an address such as '127.0.0.1'")
web_address = _matching(  # as others see the service
    r"https?://[A-Za-z0-9.:\[\]-]+/?",
    "give a URL without a path such as 'https://prices.example'",
    lambda url: url.rstrip("/"),
)
broker_addresses = _listed(
    _matching(r"(mqtts?|wss?)://[A-Za-z0-9.:\[\]-]+(/[!-~]*)?", _BROKERS), _BROKERS
)
paths = _listed(path, "give a list of paths such as ['oak-road.toml']")
store = _converted(_store_name, "give a path, or a URL such as 'postgresql://host/database'")
digests = _listed(_matching("[0-9a-fA-F]{64}", _DIGESTS, str.lower), _DIGESTS)

SERVICE = {
    "mode": Setting(one_of("production", "simulation"), required=True),
    "begins": Setting(instant, required=True, own=True),
    "time_zone": Setting(time_zone, required=True, own=True),
    "interval": Setting(interval, own=True),
    "meter_interval": Setting(duration("PT15M", 1, 86_400), required=True, own=True),
    "grace": Setting(duration("PT1M", 0, 86_400), own=True),
    "retention": Setting(duration("P7D", 60, 3660 * 86_400), own=True),
    "currency": Setting(currency, own=True),
    "fallback_rate": Setting(rate, required=True, own=True),
    "budget": Setting(positive, own=True),
    "accept_error": Setting(positive, own=True),
    "key": Setting(path, required=True),
    "zones": Setting(paths),
    "share": Setting(boolean),
}
TABLES: dict[str, dict[str, Setting]] = {
    "service": SERVICE,
    "stores": {
        "ledger": Setting(store, required=True, secret=True),
        "meters": Setting(store, required=True, secret=True),
        "clients": Setting(store, secret=True),
        "vtn": Setting(store, secret=True),
        "witness": Setting(line_text),
    },
    "http": {
        "host": Setting(host),
        "port": Setting(port),
        "token_digests": Setting(digests, secret=True),
        "limit": Setting(count(1 << 10, 4 << 30)),
        "token_lifetime": Setting(duration("PT1H", 60, 86_400)),
        "metrics": Setting(one_of("public", "operate")),
        "rate_limit": Setting(positive),
        "proxies": Setting(networks),
        "connections": Setting(count(10, 100_000)),
        "tls_certificate": Setting(path),
        "tls_key": Setting(path),
        "pages": Setting(boolean),
    },
    "mqtt": {
        "host": Setting(host, required=True),
        "port": Setting(port),
        "readings": Setting(topic(wildcards=True)),
        "prices": Setting(topic(wildcards=False)),
        "username": Setting(line_text),
        "password_file": Setting(path),
        "home_assistant": Setting(boolean),
        "home_assistant_prefix": Setting(topic(wildcards=False)),
    },
    "publish": {"file": Setting(path, required=True)},
    "openadr": {
        "enabled": Setting(boolean),
        "anonymous": Setting(boolean),
        "webhooks": Setting(boolean),
        "allow_private_callbacks": Setting(boolean),
        "url": Setting(web_address),
        "mqtt": Setting(boolean),
        "mqtt_uris": Setting(broker_addresses),
    },
}
OWN = {name: setting for name, setting in SERVICE.items() if setting.own}


def read_settings(
    content: Table, name: str, settings: Mapping[str, Setting], faults: Faults, given: Table
) -> dict[str, Any]:
    """Read a table of settings.

    Args:
        content: The file.
        name: Name of the table.
        settings: Its keys.
        faults: Receives every mistake.
        given: Values for keys that the table does not set.

    Returns:
        The good values by key.
    """
    table = content.get(name, {})
    optional = {key for key, s in settings.items() if not s.required or key in given}
    check_keys(table, f"{name}.", set(settings), optional, faults)
    if not isinstance(table, Mapping):
        return dict(given)
    found = dict(given)
    for key, setting in settings.items():
        if key not in table:
            continue
        try:
            found[key] = setting.read(table[key])
        except UnusableError as fix:
            value = "not usable" if setting.secret else display(table[key])
            faults.add(f"{name}.{key}", f"{name}.{key} is {value}; {fix}.")
    return found


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a zone that are consistent.

    Attributes:
        begins: Start of step 1 [UTC epoch s].
        seconds: Length of an interval [s].
        grace: How long after the end of an interval readings are accepted for it [s].
        retention: How long readings are kept [s].
    """

    begins: int
    seconds: int
    grace: int
    retention: int


def read_times(found: Mapping[str, Any], faults: Faults) -> Times | None:
    """Check interval, start, grace and retention of a zone against each other.

    Args:
        found: Settings of [service] by key.
        faults: Receives every mistake.

    Returns:
        The times; None where there is a mistake or one is missing.
    """
    before, seconds = len(faults), found.get("interval", SECONDS)
    meter, begins = found.get("meter_interval"), found.get("begins")
    grace, retention = found.get("grace", 60), found.get("retention", 7 * 86_400)
    if meter is not None and meter > seconds:
        faults.add(
            "service.interval",
            f"service.interval is {seconds} s but the meters' own is {meter} s, so one reading"
            f" would enter several releases; give {meter} s or a multiple of it.",
            "service.meter_interval",
        )
    elif meter is not None and seconds % meter:
        faults.add(
            "service.meter_interval",
            f"service.meter_interval is {meter} s, which does not divide the interval of {seconds}"
            " s; give an interval of whole readings.",
            "service.interval",
        )
    if begins is not None and begins % seconds:
        faults.add(
            "service.begins",
            f"service.begins is not on a border of intervals of {seconds} s; move it by"
            f" {seconds - begins % seconds} s.",
            "service.interval",
        )
    if retention < seconds + grace:
        faults.add(
            "service.retention",
            f"service.retention is {retention} s, shorter than interval and grace; give"
            f" {seconds + grace} s or more.",
            "service.interval",
            "service.grace",
        )
    if begins is None or meter is None or len(faults) > before:
        return None
    return Times(begins, seconds, grace, retention)


# ---- one zone

MOST_STEPS = 200_000  # of a horizon: each has a slot of its own
MOST_HOUSES = 10_000_000
MOST_BOUND = 1_000_000  # [Wh] of an interval: a law has a number for each Wh
_EPSILONS = (1e-6, 100.0)  # that can be planned for


def read_zone(
    content: Table, folder: Path, settings: Table, times: Times | None, faults: Faults
) -> ZoneService | None:
    """Read one zone: its scenario in local time, and the policy that keeps its promise.

    Args:
        content: The zone's tables.
        folder: Folder of the files they name.
        settings: Settings of [service] by key.
        times: Its times; None where they have mistakes.
        faults: Receives every mistake.

    Returns:
        The zone as it runs; None where it or its times have mistakes.
    """
    before = len(faults)
    seconds = ANY if faults.at("service.interval") else settings.get("interval", SECONDS)
    _check_name(content.get("zone"), faults)
    small, content = _sized(content, faults)
    scenario = read_scenario(content, folder, seconds, faults, GROUP_KEYS)
    groups = content.get("houses")
    meters: tuple[str, ...] = ()
    if small and isinstance(groups, list) and all(isinstance(g, Mapping) for g in groups):
        meters = meter_ids(groups, folder, faults)
    policy, promise = _policy(content.get("policy"), "policy" in content, faults)
    learned_before = len(faults)
    learned = read_provenance(content, faults)
    _check_trust(content, settings, faults)
    if len(faults) == learned_before and policy is not None and promise is not None:
        check_private(learned, policy, promise.secret, promise.rho, faults)
    _check_charged(learned, settings, faults)
    if scenario is not None and small:
        _check_laws(scenario, content["houses"], faults)
    if "fallback_rate" in settings:
        _check_fallback(_table(content, "tariff"), settings["fallback_rate"], faults)
    if scenario is None or policy is None or promise is None or times is None:
        return None
    if len(faults) > before or "time_zone" not in settings:
        return None
    with faults.within("models"):
        local = localised(
            scenario,
            begins=times.begins,
            seconds=seconds,
            horizon=policy.horizon,
            time_zone=settings["time_zone"],
        )
        own = local if learned.private else None
        local = without_private_models(local) if learned.private else local
        pattern = Pattern(scenario, policy)
        place = EpochTimes(times.begins, seconds, policy.horizon, settings["time_zone"])
        policy, leakage, memory, _ = _planned(local, pattern, promise, faults, place)
        kept = {"budget", "accept_error", "fallback_rate", "currency", "time_zone"} & set(settings)
        return ZoneService(
            scenario=local,
            policy=policy,
            meters=meters,
            begins=times.begins,
            seconds=seconds,
            grace=times.grace,
            retention=times.retention,
            eta_set_by=_table(content, "policy").get("eta_set_by", ""),
            promise=promise,
            provenance=provenance_of(content),
            learned=learned,
            own=own,
            pattern=pattern,
            leakage=leakage,
            memory=memory,
            **{key: settings[key] for key in kept},
        )
    return None


def _table(content: Table, name: str) -> Table:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _check_name(zone: Any, faults: Faults) -> None:
    """A name is part of topics, paths and addresses."""
    name = zone.get("id") if isinstance(zone, Mapping) else None
    if isinstance(name, str) and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        faults.add(
            "zone.id",
            f"zone.id is {display(name)}; give 1 to 64 letters, digits, dots, dashes or"
            " underscores.",
        )


def _sized(content: Table, faults: Faults) -> tuple[bool, Table]:
    """Whether the zone is small enough to be read, and content that is."""
    groups = content.get("houses")
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        return False, content
    before, houses = len(faults), 0
    for i, group in enumerate(groups):
        count, bound = group.get("count"), group.get("bound")
        houses += count if isinstance(count, int) and count > 0 else 0
        if isinstance(bound, int) and bound > MOST_BOUND:
            faults.add(
                f"houses[{i}].bound",
                f"houses[{i}].bound is {bound}; give at most {MOST_BOUND} Wh an interval.",
            )
    if houses > MOST_HOUSES and all(
        not isinstance(group.get("count"), int) or group["count"] < 2**31 for group in groups
    ):
        faults.add(
            "houses", f"houses has {houses} houses; give a zone at most {MOST_HOUSES} of them."
        )
    if len(faults) == before and houses <= MOST_HOUSES:
        return True, content
    small = [{**group, "count": 1} if "count" in group else group for group in groups]
    return False, {**content, "houses": small} if houses > MOST_HOUSES else content


def _check_laws(scenario: Scenario, groups: Sequence[Table], faults: Faults) -> None:
    """Every law has a mass below its bound; laws are numbered in the order they are written in."""
    laws = iter(scenario.consumption.laws)
    for i, group in enumerate(groups):
        for state in ("absent", "present"):
            given = group[state] if isinstance(group[state], list) else [group[state]]
            for j in range(len(given)):
                place = f"houses[{i}].{state}" + (f"[{j}]" if len(given) > 1 else "")
                with faults.within(place):
                    next(laws).pmf.sum()


def _policy(table: Any, given: bool, faults: Faults) -> tuple[Policy, Promise] | tuple[None, None]:
    """The terms of the policy and what is promised."""
    if not given:
        return None, None
    before = len(faults)
    raw: dict[str, Any] = dict(table) if isinstance(table, Mapping) else {}
    secret = _secret(raw, faults)
    rho, by = raw.get("rho"), raw.get("eta_set_by", "")
    if rho is not None and not (is_real(rho) and 0 <= rho <= 1):
        faults.add("policy.rho", f"policy.rho is {display(rho)}; give a share from 0 to 1.")
    if rho is not None and "clamp" in raw:
        message = "policy.rho and clamp are both set; give one of them."
        faults.add("policy.rho", message, "policy.clamp")
    if not isinstance(by, str):
        faults.add(
            "policy.eta_set_by", f"policy.eta_set_by is {display(by)}; say who set eta, and why."
        )
    delta = raw.get("delta", 0.0)
    if faults.at("policy.secret"):  # it may go with a delta or not
        table = {key: value for key, value in raw.items() if key != "delta"}
    horizon = raw.get("horizon", 1)
    if is_real(horizon) and not isinstance(horizon, bool) and horizon > MOST_STEPS:
        faults.add(
            "policy.horizon",
            f"policy.horizon is {display(horizon)}; give at most {MOST_STEPS} steps.",
        )
        table = {key: value for key, value in table.items() if key != "horizon"}
    policy = read_policy(table, faults, POLICY_KEYS)
    if policy is None or len(faults) > before:
        return None, None
    return policy, Promise(secret, policy.epsilon, float(delta), rho)


def _secret(raw: Table, faults: Faults) -> Any:
    """The secret that the table names, or the one that the noise implies."""
    natural = "trajectory" if "gaussian" in raw else "step"
    secret = raw.get("secret", natural)
    if secret not in get_args(Secret):
        faults.add(
            "policy.secret",
            f"policy.secret is {display(secret)}; give one of {', '.join(get_args(Secret))}.",
        )
        return natural
    if "gaussian" in raw and secret != "trajectory":
        faults.add(
            "policy.secret",
            f"policy.secret is {display(secret)} with Gaussian noise; give the secret trajectory.",
        )
    if "window" in raw and "secret" in raw and secret != "step":
        faults.add(
            "policy.secret",
            f"policy.secret is {display(secret)} with a window, which shares out the budget by"
            " itself; give the secret step, or no window.",
        )
    return "window" if "window" in raw else secret


def _check_trust(content: Table, settings: Table, faults: Faults) -> None:
    """eta < 1 requires `eta_set_by` (in production) and demand without elasticity."""
    eta = _table(content, "policy").get("eta", 1)
    if not is_real(eta) or eta >= 1:
        return
    by = _table(content, "policy").get("eta_set_by", "")
    if settings.get("mode") == "production" and not str(by).strip():
        faults.add(
            "policy.eta_set_by",
            f"policy.eta_set_by is not set but eta is {eta:g} in production; say who set"
            " it and why, or give eta = 1.",
            "policy.eta",
        )
    elasticity = _table(content, "elasticity")
    if elasticity and elasticity.get("exponent") != 0:
        faults.add(
            "elasticity",
            f"elasticity makes demand react to rates while eta is {eta:g}; published rates"
            " take effect later than the mechanism assumes: give eta = 1.",
            "elasticity.exponent",
            "policy.eta",
        )


def _check_charged(learned: Provenance, settings: Table, faults: Faults) -> None:
    """What the models cost is charged to the budget before the first release."""
    budget = settings.get("budget")
    if budget is not None and learned.epsilon >= budget:
        faults.add(
            "service.budget",
            f"service.budget is {budget:g} but the models have cost {learned.epsilon:g} of it"
            " (learned.epsilon); give more, or models that cost less.",
            "learned.epsilon",
        )


def _check_fallback(tariff: Table, rate: float, faults: Faults) -> None:
    floor, cap = tariff.get("floor", 0.0), tariff.get("cap", math.inf)
    if is_real(floor) and isinstance(cap, (int, float)) and not floor <= rate <= cap:
        faults.add(
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
    terms = pattern.terms
    if promise.secret == "window" or not terms.schedule.per_release:
        return Planned(terms)
    if promise.secret == "step" and promise.rho is None:
        return Planned(terms)
    low, high = _EPSILONS
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
        policy = plan(
            local.zone,
            local.tariff,
            local.models,
            local.consumption,
            secret=promise.secret,
            epsilon=promise.epsilon,
            delta=promise.delta,
            terms=terms,
            rho=promise.rho,
        ).policy
        return Planned(policy)
    return Planned(terms)


# ---- the deployment

_HTTP = ("limit", "token_lifetime", "metrics", "rate_limit", "proxies", "connections", "pages")
OWN_KEYS = {f"service.{key}" for key in OWN}
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
    found = _tables(main)
    settings = found["service"]
    lone = not set(main.content) & SECTIONS and bool(settings.get("zones"))
    times = read_times(settings, main.faults)
    files = [] if lone else [main]
    zones = [] if lone else [read_zone(main.content, main.folder, settings, times, main.faults)]
    for i, name in enumerate(settings.get("zones", ())):
        further = TomlFile(main.folder / name)
        if further.unreadable:
            main.faults.add(f"service.zones[{i}]", f"service.zones: {further.unreadable}")
            continue
        files.append(further)
        zones.append(_further_zone(further, settings, times, main.faults))
    _check_apart(zones, files)
    http, mqtt = _http(found, main), _mqtt(found, main)
    _check_shared(found, main.faults)
    problems = [p for file in [main, *(f for f in files if f is not main)] for p in file.problems()]
    if problems:
        raise ConfigError(tuple(problems))
    stores = found["stores"]
    return Deployment(
        zones=tuple(zone for zone in zones if zone is not None),
        mode=settings["mode"],
        ledger=_store(stores["ledger"], main.folder),
        meters=_store(stores["meters"], main.folder),
        clients=_store(stores["clients"], main.folder) if "clients" in stores else "",
        key=main.folder / settings["key"],
        vtn=_store(stores["vtn"], main.folder) if "vtn" in stores else "",
        http=http,
        mqtt=mqtt,
        openadr=_openadr(found),
        share=settings.get("share", False),
        witness=_witness(stores, main),
        witness_needed="witness" in stores,
        price_file=main.folder / found["publish"]["file"] if found.get("publish") else None,
        problems=_remarks(http, mqtt),
    )


def is_service(content: Table) -> bool:
    """Whether a file is a service file, not only a zone file.

    Args:
        content: The file.

    Returns:
        True if it has a table or key that only a service file has.
    """
    service = content.get("service")
    own = set(service) - set(OWN) if isinstance(service, Mapping) else set()
    return bool(set(content) & set(TABLES) - {"service"} or own & set(TABLES["service"]))


def _tables(main: TomlFile) -> dict[str, dict[str, Any]]:
    """The service's own tables."""
    main.check()
    content, faults = main.content, main.faults
    service = content.get("service")
    named = isinstance(service, Mapping) and bool(service.get("zones"))
    lone = named and not set(content) & SECTIONS
    optional = {
        *("elasticity", "http", "learned", "mqtt", "openadr", "publish"),
        *(SECTIONS if lone else ()),
    }
    check_keys(content, "", SECTIONS | OPTIONAL_TABLES | set(TABLES), optional, faults)
    return {
        name: read_settings(content, name, settings, faults, {})
        for name, settings in TABLES.items()
        if name in content
    } | {name: {} for name in ("service", "stores") if name not in content}


def _further_zone(
    file: TomlFile, settings: Table, times: Times | None, main: Faults
) -> ZoneService | None:
    """A zone of another file; the service file sets what its own [service] does not."""
    if file.broken:
        return None
    check_keys(
        file.content, "", SECTIONS | OPTIONAL_TABLES, {"elasticity", *OPTIONAL_TABLES}, file.faults
    )
    own = {key: value for key, value in settings.items() if key in OWN or key == "mode"}

    given = _table(file.content, "service")
    file.faults.elsewhere |= {
        key for key in OWN_KEYS if main.at(key) and key.removeprefix("service.") not in given
    }
    if "service" in file.content:
        own |= read_settings(file.content, "service", OWN, file.faults, own)
        times = read_times(own, file.faults)
    return read_zone(file.content, file.folder, own, times, file.faults)


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


def _http(found: Mapping[str, dict[str, Any]], main: TomlFile) -> Http | None:
    given = found.get("http")
    if given is None:
        return None
    http = Http(
        host=given.get("host", Http().host),
        port=given.get("port", Http().port),
        tokens=given.get("token_digests", ()),
        tls_certificate=_in_folder(given.get("tls_certificate"), main),
        tls_key=_in_folder(given.get("tls_key"), main),
        **{key: given[key] for key in _HTTP if key in given},
    )
    raw = _table(main.content, "http")
    for one, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if one in raw and other not in raw:
            main.faults.add(f"http.{other}", f"http.{other} is not set but {one} is; give both.")
    return http


def _in_folder(name: str | None, main: TomlFile) -> Path | None:
    return None if name is None else main.folder / name


def _mqtt(found: Mapping[str, dict[str, Any]], main: TomlFile) -> Mqtt | None:
    given = found.get("mqtt")
    if given is None:
        return None
    raw = _table(main.content, "mqtt")
    openadr = _openadr(found)
    events = openadr is not None and openadr.mqtt
    if "readings" not in raw and "prices" not in raw and not events:
        main.faults.add(
            "mqtt",
            "mqtt has neither readings nor prices; give the topic of one of them.",
            "mqtt.readings",
            "mqtt.prices",
        )
    if "password_file" in raw and "username" not in raw:
        main.faults.add(
            "mqtt.username", "mqtt.username is not set but password_file is; give both."
        )
    if "host" not in given:
        return None
    discovery = given.get("home_assistant", False)
    if discovery and "prices" not in raw:
        main.faults.add(
            "mqtt.home_assistant",
            "mqtt.home_assistant is true but prices is not set; give the topic they go out on.",
            "mqtt.prices",
        )
    return Mqtt(
        host=given["host"],
        port=given.get("port", 1883),
        readings=given.get("readings"),
        prices=given.get("prices"),
        username=given.get("username"),
        password_file=_in_folder(given.get("password_file"), main),
        home_assistant=given.get("home_assistant_prefix", "homeassistant") if discovery else None,
    )


def _openadr(found: Mapping[str, dict[str, Any]]) -> OpenAdr | None:
    """On by default: the prices are public."""
    given = dict(found.get("openadr", {}))
    return OpenAdr(**given) if given.pop("enabled", True) else None


def _check_shared(found: Mapping[str, dict[str, Any]], faults: Faults) -> None:
    """Curators that share zones meet in a database, not in files of one machine."""
    if not found["service"].get("share"):
        return
    for name, value in found["stores"].items():
        if name != "witness" and not value.startswith(("postgresql://", "postgres://")):
            faults.add(
                f"stores.{name}",
                f"stores.{name} is a path but service.share is true; give a postgresql:// URL,"
                " which all curators can reach, or leave out share.",
            )


def _witness(stores: Mapping[str, str], main: TomlFile) -> Path | None:
    """The folder that is set; for a ledger on a server by default next to the service file."""
    if "witness" in stores:
        return main.folder / stores["witness"]
    if "://" in stores["ledger"].removeprefix("sqlite:"):
        return main.path.with_suffix(".witness")
    return None


def _store(value: str, folder: Path) -> str:
    """A URL as it is; a path from the file's folder."""
    if "://" in value:
        return value
    scheme = "sqlite:" if value.startswith("sqlite:") else ""
    return f"{scheme}{folder / value.removeprefix('sqlite:')}"


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
