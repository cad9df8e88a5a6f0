"""The tables of a service file that are not a zone's: their keys and what each may be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    veiled,
)
from hushgrid.files.toml import Faults, Table, TomlFile, instant_of, known, seconds_of, shown
from hushgrid.files.zone_file import (
    ANY,
    BESIDE,
    INTERVALS,
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
from hushgrid.planning.planner import Secret, plan

# --------------------------------------------------------------------------------------------------
# An interval promise laid over time: planned with the epochs before and after it.
#
# The promise of an epoch is about all releases, those of neighbouring epochs included. So the plan
# looks at a run of steps in local time: the epoch as the first of its kind and what follows it,
# then
# what precedes it, the epoch again, and what follows. Before and after are as long as leakage is
# remembered.


_DAY = 86_400  # [s]


class EpochTimes(NamedTuple):
    """When an epoch's steps are: `begins` [UTC epoch s], their length [s], their number, where."""

    begins: int
    seconds: int
    horizon: int
    time_zone: str


class Planned(NamedTuple):
    """The policy, the leakage that was counted, and the memory; see `ZoneService`."""

    policy: Policy
    leakage: float | None
    memory: int | None


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
        The plan. Where leakage does not fade its memory is None and the epoch is on its own.
    """
    terms = replace(pattern.terms, horizon=place.horizon)
    memory = None if alone else memory_of(pattern, place)
    world, running = _run(pattern, place, memory)
    found = plan(
        world.zone,
        world.tariff,
        world.models,
        world.consumption,
        secret="interval",
        epsilon=promise.epsilon,
        terms=terms,
        rho=promise.rho,
        most_cut=None if alone else MOST_CUT,
        running=running,
    )
    return Planned(found.policy, found.leakage, memory)


def interval_run(service: ZoneService) -> tuple[Scenario, int | None] | None:
    """The steps that an interval promise of a zone is planned over, and how many count.

    As for `interval_plan`; None where the zone's file is not known.
    """
    if service.pattern is None:
        return None
    place = EpochTimes(service.begins, service.seconds, service.policy.horizon, service.time_zone)
    return _run(service.pattern, place, memory_of(service.pattern, place))


def _run(pattern: Pattern, place: EpochTimes, memory: int | None) -> tuple[Scenario, int | None]:
    if memory is None:
        return laid(pattern, place), None
    world = _among_others(pattern, place, memory)
    return world, len(world.models[0].calendar.slots)


def laid(pattern: Pattern, place: EpochTimes) -> Scenario:
    """The pattern in local time over the epoch's steps."""
    return localised(pattern.scenario, **place._asdict())


def memory_of(pattern: Pattern, place: EpochTimes) -> int | None:
    """Steps of silence, before the epoch and after it, that leave nothing of any leakage."""
    day = _DAY // place.seconds
    end = place.begins + (place.horizon - 1) * place.seconds
    for days in PERIODS:
        steps = days * day
        before = place.begins - steps * place.seconds
        if max(kept(pattern, place, at, steps) for at in (before, end)) <= FORGOTTEN:
            return steps
    return None


def kept(pattern: Pattern, place: EpochTimes, start: int, steps: int) -> float:
    """The share of a leakage about the step at `start` [s] that so many silent steps leave.

    The chain begins a day earlier with every state possible, so that what is possible does not
    depend on where it begins.
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
    """The zone with the same terms for another epoch; None where its file is not known.

    Args:
        service: a zone with an interval promise.
        begins: when the other epoch begins [UTC epoch s].
        horizon: its steps; by default as many as now.
        alone: as for `interval_plan`.
    """
    pattern, promise = service.pattern, service.promise
    if pattern is None or promise is None or promise.secret != "interval":
        return None
    steps = service.policy.horizon if horizon is None else horizon
    place = EpochTimes(begins, service.seconds, steps, service.time_zone)
    policy, leakage, memory = interval_plan(pattern, promise, place, alone=alone)
    return replace(
        service,
        scenario=laid(pattern, place),
        policy=policy,
        begins=begins,
        leakage=leakage,
        memory=memory,
    )


def planned_otherwise(service: ZoneService) -> bool:
    """Whether versions before this one could have planned other terms from the same file."""
    promise = service.promise
    return (
        service.pattern is not None
        and promise is not None
        and service.policy.schedule.per_release
        and (promise.secret == "interval" or promise.rho is not None)
    )


def as_before(service: ZoneService) -> ZoneService | None:
    """The zone as versions before this one planned it; None where they planned as it is now."""
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
    """A key: how its value is read, whether it must be set, and whether a zone may have its own."""

    read: Read
    required: bool = False
    own: bool = False
    secret: bool = False  # the value is never shown


def one_of(*words: str) -> Read:
    """One of some words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise UnusableError(f"give one of {', '.join(words)}")
        return value

    return read


def some_text(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UnusableError("give a text on one line")
    return value


def duration(example: str, least: int, most: int) -> Read:
    """Seconds within limits."""

    def read(value: Any) -> int:
        seconds = seconds_of(value)
        if seconds is None or not least <= seconds <= most:
            raise UnusableError(
                f"give seconds from {least} to {most}, or a text such as {example!r}"
            )
        return seconds

    return read


def interval(value: Any) -> int:
    """Seconds that divide a day."""
    seconds = step_seconds(value)
    if seconds is None:
        raise UnusableError(f"give {INTERVALS}")
    return seconds


def instant(value: Any) -> int:
    """A date-time with its offset."""
    seconds = instant_of(value)
    if seconds is None:
        raise UnusableError("give a date-time in UTC such as 2026-01-01T00:00:00Z")
    return seconds


def time_zone(value: Any) -> str:
    """A name of the time zone database."""
    try:
        ZoneInfo(value)
    except (ValueError, OSError, TypeError, KeyError):  # zoneinfo's own is a KeyError
        raise UnusableError(
            "give a name of the time zone database such as 'Europe/Zurich' (where the system has"
            " none, install the extra hushgrid[intake])"
        ) from None
    return str(value)


def currency(value: Any) -> str:
    """Three letters."""
    if not isinstance(value, str) or not re.fullmatch("[A-Z]{3}", value):
        raise UnusableError("give three letters such as 'EUR'")
    return value


def rate(value: Any) -> float:
    """A rate of 0 or more."""
    if not is_real(value) or value < 0:
        raise UnusableError("give a rate of 0 or more [currency/kWh]")
    return float(value)


def positive(value: Any) -> float:
    """A positive number."""
    if not is_real(value) or value <= 0:
        raise UnusableError("give a positive number")
    return float(value)


def port(value: Any) -> int:
    """A TCP port."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65_535:
        raise UnusableError("give a port from 1 to 65535")
    return value


def count(least: int, most: int) -> Read:
    """A whole number within limits."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise UnusableError(f"give a whole number from {least} to {most}")
        return value

    return read


def yes(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise UnusableError("give true or false")
    return value


def networks(value: Any) -> tuple[str, ...]:
    """Addresses and networks."""
    fix = "give a list of addresses or networks such as ['127.0.0.1', '10.0.0.0/8']"
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UnusableError(fix)
    try:
        return tuple(str(ip_network(one)) for one in value)
    except ValueError:
        raise UnusableError(fix) from None


def host(value: Any) -> str:
    """A name or an address."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9.:_-]{1,253}", value):
        raise UnusableError("give a host name or an address such as '127.0.0.1'")
    return value


def web_address(value: Any) -> str:
    """An http:// or https:// URL without a path, as others see the service."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+/?", value):
        raise UnusableError("give a URL without a path such as 'https://prices.example'")
    return value.rstrip("/")


def broker_addresses(value: Any) -> tuple[str, ...]:
    """mqtt:// or mqtts:// URLs."""
    form = r"(mqtts?|wss?)://[A-Za-z0-9.:\[\]-]+(/[!-~]*)?"
    if not isinstance(value, list) or not all(
        isinstance(one, str) and re.fullmatch(form, one) for one in value
    ):
        raise UnusableError("give a list of URLs such as ['mqtts://broker.example:8883']")
    return tuple(value)


def path(value: Any) -> str:
    """A path."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UnusableError("give a path")
    if "://" in value:
        raise UnusableError("give a path, not a URL")
    return value


def paths(value: Any) -> tuple[str, ...]:
    """Paths."""
    if not isinstance(value, list):
        raise UnusableError("give a list of paths such as ['oak-road.toml']")
    return tuple(path(one) for one in value)


def store(value: Any) -> str:
    """A path or a postgresql:// URL."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UnusableError("give a path, or a URL such as 'postgresql://host/database'")
    if "://" in value and not re.match(r"postgres(ql)?://[^/]", value):
        raise UnusableError("give a path, or a URL such as 'postgresql://host/database'")
    return value


def digests(value: Any) -> tuple[str, ...]:
    """SHA-256 digests in hex."""
    if not isinstance(value, list) or not all(
        isinstance(one, str) and re.fullmatch("[0-9a-fA-F]{64}", one) for one in value
    ):
        raise UnusableError(
            "give a list of SHA-256 digests (64 hex digits each); write a token's digest, never"
            " the token"
        )
    return tuple(one.lower() for one in value)


def topic(wildcards: bool) -> Read:
    """An MQTT topic."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 1000:
            raise UnusableError("give an MQTT topic such as 'hushgrid/prices'")
        if not wildcards and ("+" in value or "#" in value):
            raise UnusableError("give a topic without wildcards: prices go out on it")
        return value

    return read


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
    "share": Setting(yes),
}
TABLES: dict[str, dict[str, Setting]] = {
    "service": SERVICE,
    "stores": {
        "ledger": Setting(store, required=True, secret=True),
        "meters": Setting(store, required=True, secret=True),
        "clients": Setting(store, secret=True),
        "vtn": Setting(store, secret=True),
        "witness": Setting(some_text),
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
        "pages": Setting(yes),
    },
    "mqtt": {
        "host": Setting(host, required=True),
        "port": Setting(port),
        "readings": Setting(topic(wildcards=True)),
        "prices": Setting(topic(wildcards=False)),
        "username": Setting(some_text),
        "password_file": Setting(path),
        "home_assistant": Setting(yes),
        "home_assistant_prefix": Setting(topic(wildcards=False)),
    },
    "publish": {"file": Setting(path, required=True)},
    "openadr": {
        "enabled": Setting(yes),
        "anonymous": Setting(yes),
        "webhooks": Setting(yes),
        "allow_private_callbacks": Setting(yes),
        "url": Setting(web_address),
        "mqtt": Setting(yes),
        "mqtt_uris": Setting(broker_addresses),
    },
}
OWN = {name: setting for name, setting in SERVICE.items() if setting.own}
POLICY_KEYS = {"secret", "rho", "eta_set_by"}
GROUP_KEYS = frozenset({"meters", "meters_file"})


def read_settings(
    content: Table, name: str, settings: Mapping[str, Setting], faults: Faults, given: Table
) -> dict[str, Any]:
    """The good values of a table; `given` stands for what is set elsewhere."""
    table = content.get(name, {})
    optional = {key for key, s in settings.items() if not s.required or key in given}
    known(table, f"{name}.", set(settings), optional, faults)
    if not isinstance(table, Mapping):
        return dict(given)
    found = dict(given)
    for key, setting in settings.items():
        if key not in table:
            continue
        try:
            found[key] = setting.read(table[key])
        except UnusableError as fix:
            value = "not usable" if setting.secret else shown(table[key])
            faults.add(f"{name}.{key}", f"{name}.{key} is {value}; {fix}.")
    return found


@dataclass(frozen=True, slots=True)
class Times:
    """A zone's times [s] that fit each other."""

    begins: int
    seconds: int
    grace: int
    retention: int


def fitting_times(found: Mapping[str, Any], faults: Faults) -> Times | None:
    """Intervals, their start and their retention, held against each other."""
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


# --------------------------------------------------------------------------------------------------
# One zone of a service file: its scenario in local time, and the policy that keeps its promise.


MOST_STEPS = 200_000  # of a horizon: each has a slot of its own
MOST_HOUSES = 10_000_000
MOST_BOUND = 1_000_000  # [Wh] of an interval: a law has a number for each Wh
_EPSILONS = (1e-6, 100.0)  # that can be planned for


def read_zone(
    content: Table, folder: Path, settings: Table, times: Times | None, faults: Faults
) -> ZoneService | None:
    """The zone as it runs; None where it, or the service's times, are at fault."""
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
        local = veiled(local) if learned.private else local
        pattern = Pattern(scenario, policy)
        place = EpochTimes(times.begins, seconds, policy.horizon, settings["time_zone"])
        policy, leakage, memory = _planned(local, pattern, promise, faults, place)
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
    """Names go into topics, paths and addresses."""
    name = zone.get("id") if isinstance(zone, Mapping) else None
    if isinstance(name, str) and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        faults.add(
            "zone.id",
            f"zone.id is {shown(name)}; give 1 to 64 letters, digits, dots, dashes or underscores.",
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
        faults.add("policy.rho", f"policy.rho is {shown(rho)}; give a share from 0 to 1.")
    if rho is not None and "clamp" in raw:
        said = "policy.rho and clamp are both set; give one of them."
        faults.add("policy.rho", said, "policy.clamp")
    if not isinstance(by, str):
        faults.add(
            "policy.eta_set_by", f"policy.eta_set_by is {shown(by)}; say who set eta, and why."
        )
    delta = raw.get("delta", 0.0)
    if faults.at("policy.secret"):  # it may go with a delta or not
        table = {key: value for key, value in raw.items() if key != "delta"}
    horizon = raw.get("horizon", 1)
    if is_real(horizon) and not isinstance(horizon, bool) and horizon > MOST_STEPS:
        faults.add(
            "policy.horizon",
            f"policy.horizon is {shown(horizon)}; give at most {MOST_STEPS} steps.",
        )
        table = {key: value for key, value in table.items() if key != "horizon"}
    policy = read_policy(table, faults, POLICY_KEYS)
    if policy is None or len(faults) > before:
        return None, None
    return policy, Promise(secret, policy.epsilon, float(delta), rho)


def _secret(raw: Table, faults: Faults) -> Any:
    """The secret that is asked for, or the one that goes with the noise."""
    natural = "trajectory" if "gaussian" in raw else "step"
    secret = raw.get("secret", natural)
    if secret not in get_args(Secret):
        faults.add(
            "policy.secret",
            f"policy.secret is {shown(secret)}; give one of {', '.join(get_args(Secret))}.",
        )
        return natural
    if "gaussian" in raw and secret != "trajectory":
        faults.add(
            "policy.secret",
            f"policy.secret is {shown(secret)} with Gaussian noise; give the secret trajectory.",
        )
    if "window" in raw and "secret" in raw and secret != "step":
        faults.add(
            "policy.secret",
            f"policy.secret is {shown(secret)} with a window, which shares out the budget by"
            " itself; give the secret step, or no window.",
        )
    return "window" if "window" in raw else secret


def _check_trust(content: Table, settings: Table, faults: Faults) -> None:
    """An eta below 1 needs a person who answers for it, and demand that does not react to rates."""
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
        return Planned(terms, None, None)
    if promise.secret == "step" and promise.rho is None:
        return Planned(terms, None, None)
    low, high = _EPSILONS
    if not low <= promise.epsilon <= high:
        faults.add(
            "policy.epsilon",
            f"policy.epsilon is {promise.epsilon:g}; give {low:g} to {high:g} for the secret"
            f" {promise.secret}.",
        )
        return Planned(terms, None, None)
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
        return Planned(policy, None, None)
    return Planned(terms, None, None)


# --------------------------------------------------------------------------------------------------
# A service file (docs/service.md) to a Deployment, or every mistake in it at once.


_HTTP = ("limit", "token_lifetime", "metrics", "rate_limit", "proxies", "connections", "pages")
OWN_KEYS = {f"service.{key}" for key in OWN}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def load_deployment(path: Path | str) -> Deployment:
    """Read a service file and the zone files it names; all problems are in one ConfigError."""
    main = TomlFile(Path(path))
    found = _tables(main)
    settings = found["service"]
    lone = not set(main.content) & SECTIONS and bool(settings.get("zones"))
    times = fitting_times(settings, main.faults)
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
    """Whether a file is a service's, and not a zone's alone."""
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
    known(content, "", SECTIONS | BESIDE | set(TABLES), optional, faults)
    return {
        name: read_settings(content, name, settings, faults, {})
        for name, settings in TABLES.items()
        if name in content
    } | {name: {} for name in ("service", "stores") if name not in content}


def _further_zone(
    file: TomlFile, settings: Table, times: Times | None, main: Faults
) -> ZoneService | None:
    """A zone of another file: what its own [service] does not say, the service's says."""
    if file.broken:
        return None
    known(file.content, "", SECTIONS | BESIDE, {"elasticity", *BESIDE}, file.faults)
    own = {key: value for key, value in settings.items() if key in OWN or key == "mode"}
    table = file.content.get("service", {})
    said = table if isinstance(table, Mapping) else {}
    file.faults.elsewhere |= {
        key for key in OWN_KEYS if main.at(key) and key.removeprefix("service.") not in said
    }
    if "service" in file.content:
        own |= read_settings(file.content, "service", OWN, file.faults, own)
        times = fitting_times(own, file.faults)
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
                f"zone.id is {shown(zone.id)}, as in {names[zone.id]}; give each zone its own.",
            )
        names[zone.id] = file.path
        shared = next((one for one in zone.meters if one in meters), None)
        if shared is not None:
            file.faults.add(
                "houses",
                f"houses has the meter {shown(shared)}, which is of zone {meters[shared]} too;"
                " give each house its own meter.",
            )
        meters |= dict.fromkeys(zone.meters, zone.id)


def _http(found: Mapping[str, dict[str, Any]], main: TomlFile) -> Http | None:
    given = found.get("http")
    if given is None:
        return None
    made = Http(
        host=given.get("host", Http().host),
        port=given.get("port", Http().port),
        tokens=given.get("token_digests", ()),
        tls_certificate=_beside(given.get("tls_certificate"), main),
        tls_key=_beside(given.get("tls_key"), main),
        **{key: given[key] for key in _HTTP if key in given},
    )
    raw = _raw(main, "http")
    for one, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if one in raw and other not in raw:
            main.faults.add(f"http.{other}", f"http.{other} is not set but {one} is; give both.")
    return made


def _beside(name: str | None, main: TomlFile) -> Path | None:
    return None if name is None else main.folder / name


def _raw(main: TomlFile, name: str) -> Table:
    table = main.content.get(name)
    return table if isinstance(table, Mapping) else {}


def _mqtt(found: Mapping[str, dict[str, Any]], main: TomlFile) -> Mqtt | None:
    given = found.get("mqtt")
    if given is None:
        return None
    raw = _raw(main, "mqtt")
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
    told = given.get("home_assistant", False)
    if told and "prices" not in raw:
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
        password_file=_beside(given.get("password_file"), main),
        home_assistant=given.get("home_assistant_prefix", "homeassistant") if told else None,
    )


def _openadr(found: Mapping[str, dict[str, Any]]) -> OpenAdr | None:
    """On where nothing is said: the prices are public anyway."""
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
    """The folder that is named; else one beside the service file for a ledger on a server."""
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
    """What can be run but deserves a look."""
    found = []
    if http is not None and http.host not in _LOOPBACK and http.tls_certificate is None:
        found.append(
            f"http.host is {shown(http.host)} without tls_certificate: tokens and readings travel"
            " in the clear unless a proxy in front has TLS."
        )
    if http is None and (mqtt is None or mqtt.readings is None):
        found.append("No way in for readings: neither [http] nor mqtt.readings is set.")
    return tuple(found)
