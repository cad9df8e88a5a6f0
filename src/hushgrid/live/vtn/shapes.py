"""Zones and releases as OpenADR 3.1 has them. Pure: every time comes from the ledger.

A release is one event, made once and never updated or withdrawn. After an outage several releases
may apply to the same interval; each stays listed, and the newest has the best (lowest) priority.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.publish import utc

VERSION = "3.1.0"
TOPICS = f"OpenADR/{VERSION}"
_EVENT = re.compile(r"(.+)-\d{8}T\d{6}Z-(\d{1,15})", re.ASCII)


def program_id(zone: str) -> str:
    """The id of a zone's program: its name, or where an id cannot hold that, one made of it.

    >>> program_id("elm-street"), program_id("Elm Street 3")
    ('elm-street', 'Elm-Street-3-b98ee56e9bb8')
    """
    if re.fullmatch("[A-Za-z0-9_-]{1,90}", zone):
        return zone
    words = re.sub("[^A-Za-z0-9]+", "-", zone).strip("-")[:60]
    digest = hashlib.sha256(zone.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{words}-{digest}" if words else digest


def program_of(zone: ZoneService) -> dict[str, Any]:
    """The program of a zone; it is there since the zone begins."""
    made, fits = utc(zone.begins), zone.id.isprintable() and len(zone.id) <= 128
    return {
        "id": program_id(zone.id),
        "createdDateTime": made,
        "modificationDateTime": made,
        "objectType": "PROGRAM",
        "programName": zone.id if fits else program_id(zone.id),
        "payloadDescriptors": [_descriptor(zone)],
        "attributes": [
            {"type": "PROGRAM_TYPE", "values": ["PRICING_TARIFF"]},
            {"type": "BINDING_EVENTS", "values": [True]},
        ],
        "targets": None,
    }


def event_id(release: ReleaseRecord) -> str:
    """Unique though several releases may apply to one interval: the step t comes last."""
    at = re.sub("[-:]", "", utc(release.applies_start))
    return f"{program_id(release.zone)}-{at}-{release.t}"


def step_of(event: str) -> tuple[str, int] | None:
    """Program and step t of an event's id; None where it is none.

    >>> step_of("elm-street-20260730T100000Z-1983940")
    ('elm-street', 1983940)
    """
    found = _EVENT.fullmatch(event)
    return None if found is None else (found[1], int(found[2]))


def event_of(zone: ZoneService, release: ReleaseRecord) -> dict[str, Any]:
    """A release as an event: one price [currency/kWh] for the interval it applies to."""
    made, start = utc(release.published_at), utc(release.applies_start)
    words = [zone.id, start, f"({release.source})", "(simulated)" * release.simulated]
    return {
        "id": event_id(release),
        "createdDateTime": made,
        "modificationDateTime": made,
        "objectType": "EVENT",
        "programID": program_id(zone.id),
        "eventName": " ".join(words).strip(),
        # intervals from what was measured to what the price is for: fewer is newer, lower is better
        "priority": max(0, (release.applies_start - release.start) // zone.seconds),
        "targets": None,
        "payloadDescriptors": [_descriptor(zone)],
        "intervalPeriod": {"start": start, "duration": duration(zone.seconds)},
        "intervals": [{"id": 0, "payloads": [{"type": "PRICE", "values": [release.rate]}]}],
    }


def _descriptor(zone: ZoneService) -> dict[str, Any]:
    return {
        "objectType": "EVENT_PAYLOAD_DESCRIPTOR",
        "payloadType": "PRICE",
        "units": "KWH",
        "currency": zone.currency,
    }


def duration(seconds: int) -> str:
    """ISO 8601, without years and months.

    >>> duration(900), duration(5400), duration(86_400)
    ('PT15M', 'PT1H30M', 'P1D')
    """
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    parts = zip((hours, *divmod(rest, 60)), "HMS", strict=True)
    time = "".join(f"{n}{unit}" for n, unit in parts if n)
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time or not days else "")


def notification(kind: str, operation: str, thing: dict[str, Any]) -> dict[str, Any]:
    """What subscribers are sent, whatever the way."""
    return {"objectType": kind, "operation": operation, "object": thing}


def topics(under: str, *, create: bool = True) -> dict[str, str]:
    """MQTT topics of operations on some objects; one object is never created again.

    >>> topics("programs/elm/events")["CREATE"]
    'OpenADR/3.1.0/programs/elm/events/create'
    """
    names = ("CREATE", "UPDATE", "DELETE") if create else ("UPDATE", "DELETE")
    return {name: f"{TOPICS}/{under}/{name.lower()}" for name in names}
