"""Programs and events of OpenADR, described from records of the ledger, and their topics."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter

from hushgrid.curator.clock import utc
from hushgrid.curator.publishers import price
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Charges
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord

VERSION = "3.1.0"
TOPICS = f"OpenADR/{VERSION}"
_DURATION = TypeAdapter(timedelta)
_EVENT = re.compile(r"(.+)-\d{8}T\d{6}Z-(\d{1,15})", re.ASCII)


def program_id(zone: str) -> str:
    """Return the id of a zone's program.

    Args:
        zone: id of the zone.

    Returns:
        The zone's id, or a text with its digest if OpenADR does not allow that id.

    >>> program_id("elm-street"), program_id("Elm Street 3")
    ('elm-street', 'Elm-Street-3-b98ee56e9bb8')
    """
    if re.fullmatch("[A-Za-z0-9_-]{1,90}", zone):
        return zone
    words = re.sub("[^A-Za-z0-9]+", "-", zone).strip("-")[:60]
    digest = hashlib.sha256(zone.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{words}-{digest}" if words else digest


AGE = 7 * 86_400  # [s] after its interval, for which an event is listed
FORECAST = "forecast"


def forecast_id(zone: str) -> str:
    """Return the id of the program of a zone's forecast, and of its one event.

    Args:
        zone: id of the zone.

    Returns:
        The id of the zone's program, with a suffix.
    """
    return f"{program_id(zone)}-{FORECAST}"


def program_of(zone: ZoneService, *, forecast: bool = False) -> dict[str, Any]:
    """Describe a zone as a program, created when the zone begins.

    Args:
        zone: the zone.
        forecast: the program of its forecast, whose events are not binding.

    Returns:
        The OpenADR object.
    """
    created, fits = utc(zone.begins), zone.id.isprintable() and len(zone.id) <= 110
    name = zone.id if fits else program_id(zone.id)
    return {
        "id": forecast_id(zone.id) if forecast else program_id(zone.id),
        "createdDateTime": created,
        "modificationDateTime": created,
        "objectType": "PROGRAM",
        "programName": f"{name} {FORECAST}" if forecast else name,
        "payloadDescriptors": _descriptors(zone),
        "attributes": [
            {"type": "PROGRAM_TYPE", "values": ["PRICING_TARIFF"]},
            {"type": "BINDING_EVENTS", "values": [not forecast]},
        ],
        "targets": None,
    }


def event_id(release: ReleaseRecord) -> str:
    """Return the id of a release's event.

    Args:
        release: the release.

    Returns:
        Program, start of the interval and step t; unique if several releases apply to one interval.
    """
    start = re.sub("[-:]", "", utc(release.applies_start))
    return f"{program_id(release.zone)}-{start}-{release.t}"


def parse_event_id(event: str) -> tuple[str, int] | None:
    """Read the id of an event.

    Args:
        event: text of any form.

    Returns:
        Program id and step t; None if it is no such id.

    >>> parse_event_id("elm-street-20260730T100000Z-1983940")
    ('elm-street', 1983940)
    """
    match = _EVENT.fullmatch(event)
    return None if match is None else (match[1], int(match[2]))


def event_of(zone: ZoneService, release: ReleaseRecord) -> dict[str, Any]:
    """Describe a release as an event: one price [currency/kWh] for the interval it applies to.

    Args:
        zone: the zone of the release.
        release: the release.

    Returns:
        The OpenADR object; its times come from the ledger.
    """
    start = utc(release.applies_start)
    words = [zone.id, start, f"({release.source})", "(simulated)" * release.simulated]
    return {
        "id": event_id(release),
        "programID": program_id(zone.id),
        "eventName": " ".join(words).strip(),
        # intervals between measurement and application: fewer is newer, lower is better
        "priority": max(0, (release.applies_start - release.start) // zone.seconds),
        **_event(zone, release.published_at, start, [price(zone, release)]),
    }


def list_event_id(record: PricesRecord) -> str:
    """Return the id of a list's event.

    Args:
        record: the list.

    Returns:
        As of a release, with the step of the first interval; a release is of an earlier step.
    """
    start = re.sub("[-:]", "", utc(record.first))
    return f"{program_id(record.zone)}-{start}-{record.first // record.seconds}"


def list_event(zone: ZoneService, record: PricesRecord) -> dict[str, Any]:
    """Describe a list of prices as one binding event with an interval for each.

    Args:
        zone: the zone of the list.
        record: the list.

    Returns:
        The OpenADR object; its times come from the ledger.
    """
    start = utc(record.first)
    words = [zone.id, start, f"({record.source})", "(simulated)" * record.simulated]
    prices = [price(zone, listed) for listed in record.prices()]
    return {
        "id": list_event_id(record),
        "programID": program_id(zone.id),
        "eventName": " ".join(words).strip(),
        "priority": 0,
        **_event(zone, record.published_at, start, prices, record.seconds),
    }


def forecast_event(
    zone: ZoneService, coming: list[dict[str, Any]], modified: int
) -> dict[str, Any]:
    """Describe expected prices as one event with an interval for each.

    Args:
        zone: the zone.
        coming: `start`, `price`, `total` and any `feed_in` of each, in order and without gaps; not
            empty.
        modified: when they were made [UTC s].

    Returns:
        The OpenADR object; it is replaced with each release.
    """
    return {
        "id": forecast_id(zone.id),
        "programID": forecast_id(zone.id),
        "eventName": f"{program_id(zone.id)} {FORECAST} (not binding)",
        **_event(zone, modified, coming[0]["start"], coming),
        "createdDateTime": utc(zone.begins),
    }


def _event(
    zone: ZoneService,
    modified: int,
    start: str,
    entries: Sequence[Mapping[str, Any]],
    seconds: int | None = None,
) -> dict[str, Any]:
    """What all events have: intervals of `seconds`, else of the zone, each with its price."""
    return {
        "objectType": "EVENT",
        "createdDateTime": utc(modified),
        "modificationDateTime": utc(modified),
        "targets": None,
        "payloadDescriptors": _descriptors(zone),
        "intervalPeriod": {"start": start, "duration": duration(seconds or zone.seconds)},
        "intervals": [
            {"id": i, "payloads": _payloads(zone, entry)} for i, entry in enumerate(entries)
        ],
    }


ENERGY = "ENERGY_PRICE"  # the part of the price without charges, where there are some


def _payloads(zone: ZoneService, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    payloads = [{"type": "PRICE", "values": [entry["total"]]}]
    if zone.charges != Charges():
        payloads.append({"type": ENERGY, "values": [entry["price"]]})
    if "feed_in" in entry:
        payloads.append({"type": "EXPORT_PRICE", "values": [entry["feed_in"]]})
    return payloads


def _descriptors(zone: ZoneService) -> list[dict[str, Any]]:
    kinds = ["PRICE"] + [ENERGY] * (zone.charges != Charges())
    kinds += ["EXPORT_PRICE"] * (zone.scenario.tariff.feed_in is not None)
    return [
        {
            "objectType": "EVENT_PAYLOAD_DESCRIPTOR",
            "payloadType": kind,
            "units": "KWH",
            "currency": zone.currency,
        }
        for kind in kinds
    ]


def duration(seconds: int) -> str:
    """Format a duration by ISO 8601, without years and months.

    Args:
        seconds: not negative.

    Returns:
        The text.

    >>> duration(900), duration(5400), duration(86_400)
    ('PT15M', 'PT1H30M', 'P1D')
    """
    return str(_DURATION.dump_python(timedelta(seconds=seconds), mode="json"))


def notification(kind: str, operation: str, content: str) -> str:
    """Make the body of a notification, for webhooks and MQTT.

    Args:
        kind: type of the object.
        operation: CREATE, UPDATE or DELETE.
        content: the OpenADR object as JSON.

    Returns:
        The OpenADR notification as JSON.
    """
    return f'{{"objectType":"{kind}","operation":"{operation}","object":{content}}}'


def topics(path: str, *, create: bool = True) -> dict[str, str]:
    """Return the MQTT topics of operations on objects.

    Args:
        path: path of the objects.
        create: include CREATE; False for a single object.

    Returns:
        Topics by operation.

    >>> topics("programs/elm/events")["CREATE"], topics("events")["ALL"]
    ('OpenADR/3.1.0/programs/elm/events/create', 'OpenADR/3.1.0/events/+')
    """
    names = ("CREATE", "UPDATE", "DELETE") if create else ("UPDATE", "DELETE")
    return {name: f"{TOPICS}/{path}/{name.lower()}" for name in names} | {
        "ALL": f"{TOPICS}/{path}/+"
    }
