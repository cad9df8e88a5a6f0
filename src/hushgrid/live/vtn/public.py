"""What anybody may read: programs, events, ways to be notified; all follows from the ledger."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from hushgrid.errors import ServiceError
from hushgrid.live.deployment import ZoneService
from hushgrid.live.history import History
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.vtn.answers import Call, Refused, nothing
from hushgrid.live.vtn.shapes import event_id, event_of, program_id, program_of, step_of, topics

PAGE = 50  # the most of a list at once, and what comes where nothing is asked


class PublicObjects:
    """Programs and events. They have no targets, so every reader sees all of them."""

    def __init__(self, history: History, mqtt_uris: Iterable[str] = ()) -> None:
        self._history, self._uris = history, list(mqtt_uris)
        self._zones = {program_id(zone): made for zone, made in history.zones.items()}
        if len(self._zones) < len(history.zones):
            raise ServiceError("two zones have the same program id; give them other names.")

    def programs(self, call: Call) -> list[dict[str, Any]]:
        """GET /programs, in the order of the service file."""
        skip, limit = page(call)
        return [program_of(zone) for zone in islice(self._zones.values(), skip, skip + limit)]

    def program(self, call: Call) -> dict[str, Any]:
        """GET /programs/{programID}."""
        return program_of(self._zone(call.path["programID"]))

    def _zone(self, program: str) -> ZoneService:
        if program not in self._zones:
            raise nothing("program")
        return self._zones[program]

    def has(self, program: str) -> bool:
        """Whether there is a program of this id."""
        return program in self._zones

    def events(self, call: Call) -> list[dict[str, Any]]:
        """GET /events, newest first; `active` leaves out those whose interval is over."""
        skip, limit = page(call)
        asked = call.query.get("programID")
        zones = [z for p, z in self._zones.items() if asked is None or p == asked]
        found = [self._newest(zone, skip + limit, call) for zone in zones]
        merged = heapq.merge(*found, key=lambda pair: _order(pair[1]), reverse=True)
        return [event_of(zone, each) for zone, each in islice(merged, skip, skip + limit)]

    def _newest(
        self, zone: ZoneService, number: int, call: Call
    ) -> Iterator[tuple[ZoneService, ReleaseRecord]]:
        for release in reversed(self._history.last(zone.id, number)):
            if call.query.get("active") and release.applies_start + zone.seconds <= call.now:
                return
            yield zone, release

    def event(self, call: Call) -> dict[str, Any]:
        """GET /events/{eventID}."""
        place = step_of(call.path["eventID"])
        zone = None if place is None else self._zones.get(place[0])
        release = None if zone is None or place is None else self._history.at(zone.id, place[1])
        if zone is None or release is None or event_id(release) != call.path["eventID"]:
            raise nothing("event")
        return event_of(zone, release)

    def notifiers(self, call: Call) -> dict[str, Any]:
        """GET /notifiers."""
        del call
        mqtt = {
            "URIS": self._uris,
            "serialization": "JSON",
            "authentication": {"method": "ANONYMOUS"},
        }
        return {"WEBHOOK": True} | ({"MQTT": mqtt} if self._uris else {})

    def topics(self, call: Call, under: str, *, create: bool = True) -> dict[str, Any]:
        """GET /notifiers/mqtt/topics/...: of programs and events."""
        if not self._uris:
            raise Refused(404, "Nothing is published over MQTT here; subscribe with a callback.")
        if "programID" in call.path:
            self._zone(call.path["programID"])
        return {"topics": topics(under.format(**call.path), create=create)}


def _order(release: ReleaseRecord) -> tuple[int, int, str]:
    return release.applies_start, release.t, release.zone


def page(call: Call) -> tuple[int, int]:
    """How many to leave out, and how many to give."""
    return call.query.get("skip", 0), call.query.get("limit", PAGE)
