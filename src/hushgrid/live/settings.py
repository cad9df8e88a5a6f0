"""The tables of a service file that are not a zone's: their keys and what each may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hushgrid.checks import is_real
from hushgrid.daily import INTERVALS, SECONDS, step_seconds
from hushgrid.durations import instant_of, seconds_of
from hushgrid.tables import Faults, Table, known, shown


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
