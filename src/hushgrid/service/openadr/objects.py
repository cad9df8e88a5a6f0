"""Objects of the VTN: programs and events from the ledger, and the objects of clients.

A release is one event, made once and never updated or withdrawn. After an outage several releases
may apply to the same interval; each stays listed, and the newest has the best (lowest) priority.
Programs and events have no targets: every reader sees all of them.

A client sees its own vens, resources, subscriptions and reports. `read_all` (business logic) and
`operate` see the vens, resources and subscriptions of all clients. Reports carry raw usage: only
their owner and `operate` see them.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, TypeAdapter

from hushgrid.errors import ServiceError
from hushgrid.files.deployment import ZoneService
from hushgrid.service.access.clients import Grant
from hushgrid.service.clock import Clock
from hushgrid.service.curator import utc
from hushgrid.service.http.common import Refusal
from hushgrid.service.ledger.records import ReleaseRecord
from hushgrid.service.openadr.models import (
    EventsGetParametersQuery,
    ObjectID,
    ProgramsGetParametersQuery,
)
from hushgrid.service.openadr.store import (
    FullError,
    Kind,
    StoredObject,
    TakenError,
    VtnStore,
)
from hushgrid.service.openadr.webhooks import ForbiddenTargetError, check_callback
from hushgrid.service.prices import History


def to_json(value: Any) -> bytes:
    """Encode a value as JSON in ASCII, so that any text a client sent can be sent on.

    Args:
        value: a JSON value with finite numbers.

    Returns:
        The bytes.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def not_found(what: str) -> Refusal:
    """Make the refusal for an object that is absent or hidden from the sender: both look the same.

    Args:
        what: kind of object.

    Returns:
        A refusal with status 404.
    """
    return Refusal(404, f"There is no such {what}; ask for the list of those there are.")


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


def program_of(zone: ZoneService) -> dict[str, Any]:
    """Describe a zone as a program, created when the zone begins.

    Args:
        zone: the zone.

    Returns:
        The OpenADR object.
    """
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
    """Return the id of a release's event.

    Args:
        release: the release.

    Returns:
        Program, start of the interval and step t; unique if several releases apply to one interval.
    """
    at = re.sub("[-:]", "", utc(release.applies_start))
    return f"{program_id(release.zone)}-{at}-{release.t}"


def parse_event_id(event: str) -> tuple[str, int] | None:
    """Read the id of an event.

    Args:
        event: text of any form.

    Returns:
        Program id and step t; None if it is no such id.

    >>> parse_event_id("elm-street-20260730T100000Z-1983940")
    ('elm-street', 1983940)
    """
    found = _EVENT.fullmatch(event)
    return None if found is None else (found[1], int(found[2]))


def event_of(zone: ZoneService, release: ReleaseRecord) -> dict[str, Any]:
    """Describe a release as an event: one price [currency/kWh] for the interval it applies to.

    Args:
        zone: the zone of the release.
        release: the release.

    Returns:
        The OpenADR object; its times come from the ledger.
    """
    made, start = utc(release.published_at), utc(release.applies_start)
    words = [zone.id, start, f"({release.source})", "(simulated)" * release.simulated]
    return {
        "id": event_id(release),
        "createdDateTime": made,
        "modificationDateTime": made,
        "objectType": "EVENT",
        "programID": program_id(zone.id),
        "eventName": " ".join(words).strip(),
        # intervals between measurement and application: fewer is newer, lower is better
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
    """Format a duration by ISO 8601, without years and months.

    Args:
        seconds: not negative.

    Returns:
        The text.

    >>> duration(900), duration(5400), duration(86_400)
    ('PT15M', 'PT1H30M', 'P1D')
    """
    return str(_DURATION.dump_python(timedelta(seconds=seconds), mode="json"))


def notification(kind: str, operation: str, thing: dict[str, Any]) -> dict[str, Any]:
    """Make the body of a notification, for webhooks and MQTT.

    Args:
        kind: type of the object.
        operation: CREATE, UPDATE or DELETE.
        thing: the OpenADR object.

    Returns:
        The OpenADR notification.
    """
    return {"objectType": kind, "operation": operation, "object": thing}


def topics(under: str, *, create: bool = True) -> dict[str, str]:
    """Return the MQTT topics of operations on objects.

    Args:
        under: path of the objects.
        create: include CREATE; False for a single object.

    Returns:
        Topics by operation.

    >>> topics("programs/elm/events")["CREATE"]
    'OpenADR/3.1.0/programs/elm/events/create'
    """
    names = ("CREATE", "UPDATE", "DELETE") if create else ("UPDATE", "DELETE")
    return {name: f"{TOPICS}/{under}/{name.lower()}" for name in names}


ProgramsQuery = Annotated[ProgramsGetParametersQuery, Query()]
EventsQuery = Annotated[EventsGetParametersQuery, Query()]


class PublicObjects:
    """Handlers of public objects: programs, events and ways of notification.

    Args:
        history: releases of the zones.
        clock: time of requests.
        mqtt_uris: brokers on which events are published; empty if none.
    """

    def __init__(self, history: History, clock: Clock, mqtt_uris: Iterable[str] = ()) -> None:
        self._history, self._clock, self._uris = history, clock, list(mqtt_uris)
        self._zones = {program_id(zone): made for zone, made in history.zones.items()}
        if len(self._zones) < len(history.zones):
            raise ServiceError("two zones have the same program id; give them other names.")

    def programs(self, query: ProgramsQuery) -> list[dict[str, Any]]:
        """GET /programs: in the order of the service file; none has targets."""
        zones = islice(self._zones.values(), query.skip, query.skip + query.limit)
        return [program_of(zone) for zone in zones]

    def program(self, programID: ObjectID) -> dict[str, Any]:
        """GET /programs/{programID}."""
        return program_of(self._zone(programID))

    def _zone(self, program: str) -> ZoneService:
        if program not in self._zones:
            raise not_found("program")
        return self._zones[program]

    def has(self, program: str) -> bool:
        """Return True if there is a program with this id."""
        return program in self._zones

    def events(self, query: EventsQuery) -> list[dict[str, Any]]:
        """GET /events: newest first; `active` leaves out those whose interval is over."""
        zones = [zone for name, zone in self._zones.items() if query.programID in (None, name)]
        end = query.skip + query.limit
        found = [self._newest(zone, end, bool(query.active)) for zone in zones]
        merged = heapq.merge(*found, key=lambda pair: _order(pair[1]), reverse=True)
        return [event_of(zone, each) for zone, each in islice(merged, query.skip, end)]

    def _newest(
        self, zone: ZoneService, number: int, active: bool
    ) -> Iterator[tuple[ZoneService, ReleaseRecord]]:
        for release in reversed(self._history.last(zone.id, number)):
            if active and release.applies_start + zone.seconds <= int(self._clock.now()):
                return
            yield zone, release

    def event(self, eventID: ObjectID) -> dict[str, Any]:
        """GET /events/{eventID}."""
        program, t = parse_event_id(eventID) or ("", 0)
        zone = self._zones.get(program)
        release = None if zone is None else self._history.at(zone.id, t)
        if zone is None or release is None or event_id(release) != eventID:
            raise not_found("event")
        return event_of(zone, release)

    def notifiers(self) -> dict[str, Any]:
        """GET /notifiers."""
        mqtt = {
            "URIS": self._uris,
            "serialization": "JSON",
            "authentication": {"method": "ANONYMOUS"},
        }
        return {"WEBHOOK": True} | ({"MQTT": mqtt} if self._uris else {})

    def topics(self, under: str | None, *, create: bool = True) -> dict[str, Any]:
        """Return the topics of a path of public objects; None is a path of other objects."""
        if not self._uris or under is None:
            raise Refusal(404, "These are not published over MQTT here; subscribe with a callback.")
        return {"topics": topics(under, create=create)}

    def topics_of_program(self, programID: ObjectID) -> dict[str, Any]:
        """Return the topics of changes of a program."""
        self._zone(programID)
        return self.topics(f"programs/{programID}", create=False)

    def topics_of_events(self, programID: ObjectID) -> dict[str, Any]:
        """Return the topics of the events of a program."""
        self._zone(programID)
        return self.topics(f"programs/{programID}/events")


def _order(release: ReleaseRecord) -> tuple[int, int, str]:
    return release.applies_start, release.t, release.zone


CALLBACKS = 8  # of one subscription
_COLUMNS = {
    "venName": "name", "resourceName": "name", "clientName": "name",
    "programID": "program", "eventID": "event", "venID": "ven",
}  # fmt: skip
_METADATA = ("id", "createdDateTime", "modificationDateTime", "objectType", "clientID")

Notify = Callable[
    [str, str, dict[str, Any], str | None], None
]  # kind, operation, object, its client


class Objects:
    """The objects of clients. Refuses what the grant of the sender does not allow.

    Args:
        store: where they are kept.
        public: programs that subscriptions may name.
        clock: time of requests.
        private_callbacks: allow callbacks to private addresses.
        webhooks: allow subscriptions.
        notify: called after every change.
        reserving: clients for which the name of a VEN is reserved.
    """

    def __init__(
        self,
        store: VtnStore,
        public: PublicObjects,
        clock: Clock,
        *,
        private_callbacks: bool = False,
        webhooks: bool = True,
        notify: Notify,
        reserving: Callable[[str], Collection[str]] = lambda _: (),
    ) -> None:
        self._store, self._public, self._clock, self._notify = store, public, clock, notify
        self._reserving = reserving
        self._private, self._webhooks = private_callbacks, webhooks

    def list(self, kind: Kind, grant: Grant, query: BaseModel) -> list[dict[str, Any]]:
        """Return objects that the sender may see and that the query asks for."""
        asked = query.model_dump(exclude_none=True)
        targets, objects = set(asked.get("targets", ())), set(asked.get("objects", ()))

        def such(one: StoredObject) -> bool:
            named = {each for o in one.body.get("objectOperations", ()) for each in o["objects"]}
            return (not targets or not targets.isdisjoint(one.body.get("targets") or ())) and (
                not objects or not objects.isdisjoint(named)
            )

        found = self._store.find(
            kind,
            client=None if _sees_all(kind, grant) else grant.client or "",
            where={_COLUMNS[name]: each for name, each in asked.items() if name in _COLUMNS},
            such=such if targets or objects else None,
            skip=asked["skip"],
            limit=asked["limit"],
        )
        return [_to_object(one, grant.client) for one in found]

    def get(self, kind: Kind, grant: Grant, name: str) -> dict[str, Any]:
        """Return the object with this id."""
        return _to_object(self._visible(kind, grant, name), grant.client)

    def add(self, kind: Kind, grant: Grant, sent: BaseModel) -> dict[str, Any]:
        """Store a new object."""
        body = _members(sent)
        client = self._owner(kind, grant, body, grant.client or "")
        now, name = int(self._clock.now()), secrets.token_urlsafe(18)
        one = StoredObject(kind, name, client, now, now, self._stored(kind, body))
        _write(self._store.add, one)
        return self._notified(one, "CREATE", grant)

    def change(self, kind: Kind, grant: Grant, name: str, sent: BaseModel) -> dict[str, Any]:
        """Replace an object."""
        body = _members(sent)
        before = self._writable(kind, grant, name)
        one = replace(
            before,
            client=self._owner(kind, grant, body, before.client),
            modified=int(self._clock.now()),
            body=self._stored(kind, body, before.body.get("targets")),
        )
        if not _write(self._store.replace, one):
            raise not_found(kind.lower())
        return self._notified(one, "UPDATE", grant)

    def remove(self, kind: Kind, grant: Grant, name: str) -> dict[str, Any]:
        """Remove an object."""
        one = self._store.remove(kind, self._writable(kind, grant, name).id)
        if one is None:
            raise not_found(kind.lower())
        return self._notified(one, "DELETE", grant)

    def _visible(self, kind: Kind, grant: Grant, name: str) -> StoredObject:
        one = self._store.get(kind, name)
        if one is None or (one.client != grant.client and not _sees_all(kind, grant)):
            raise not_found(kind.lower())
        return one

    def _writable(self, kind: Kind, grant: Grant, name: str) -> StoredObject:
        one = self._visible(kind, grant, name)
        shared = kind in ("VEN", "RESOURCE") and grant.may("read_all")
        if one.client != grant.client and not shared and not grant.may("operate"):
            raise Refusal(403, f"This {kind.lower()} is another client's; change your own.")
        return one

    def _notified(self, one: StoredObject, operation: str, grant: Grant) -> dict[str, Any]:
        self._notify(one.kind, operation, _to_object(one, None), one.client)
        return _to_object(one, grant.client)

    def _stored(self, kind: Kind, body: dict[str, Any], targets: Any = None) -> dict[str, Any]:
        """Return the members to store; `targets` are those of before."""
        made = {name: each for name, each in body.items() if name not in _METADATA}
        if kind == "SUBSCRIPTION":
            self._check_subscription(made)
        elif kind == "REPORT":
            place = parse_event_id(made["eventID"])
            if place is not None:
                made.setdefault("programID", place[0])
        elif not body["objectType"].startswith("BL_"):  # only business logic sets targets
            made.pop("targets", None)
            made |= {} if targets is None else {"targets": targets}
        return made

    def _owner(self, kind: Kind, grant: Grant, body: dict[str, Any], client: str) -> str:
        """Return the owner of an object; objectType says which side sends a ven or resource."""
        if kind not in ("VEN", "RESOURCE"):
            return client
        business = body["objectType"].startswith("BL_")
        if business and not _sees_all(kind, grant):
            raise Refusal(403, f"objectType is for business logic; send a VEN_{kind}_REQUEST.")
        if kind == "VEN":
            if not business and grant.ven not in (None, body["venName"]):
                raise Refusal(403, "venName is not the one of this client; give its own.")
        else:
            ven = self._store.get("VEN", body["venID"])
            if ven is None or (ven.client != client and not _sees_all("VEN", grant)):
                raise not_found("ven")
            client = ven.client
        owner = str(body["clientID"]) if business else client
        reserved = self._reserving(body["venName"]) if kind == "VEN" else ()
        if reserved and owner not in reserved:
            raise Refusal(409, "venName is reserved for another client; give another one.")
        return owner

    def _check_subscription(self, body: Mapping[str, Any]) -> None:
        if not self._webhooks:
            raise Refusal(403, "This service sends no webhooks; read events or use MQTT.")
        program = body.get("programID")
        if program is not None and not self._public.has(program):
            raise Refusal(409, "programID is of no program; give one of GET /programs.")
        if len(body["objectOperations"]) > CALLBACKS:
            raise Refusal(403, f"objectOperations has more than {CALLBACKS}; send several.")
        for one in body["objectOperations"]:
            try:
                check_callback(one["callbackUrl"], private=self._private)
            except ForbiddenTargetError as error:
                raise Refusal(403, f"callbackUrl {error}") from None


def _members(sent: BaseModel) -> dict[str, Any]:
    """Return the members that were sent; null is as absent."""
    return sent.model_dump(exclude_unset=True, exclude_none=True)


def _sees_all(kind: Kind, grant: Grant) -> bool:
    return grant.may("operate") or (kind != "REPORT" and grant.may("read_all"))


def _write(work: Callable[[StoredObject], Any], one: StoredObject) -> Any:
    try:
        return work(one)
    except TakenError:
        raise Refusal(409, "The name is in use already; give another one.") from None
    except FullError as error:
        raise Refusal(403, f"There is no room: {error}") from None


def _to_object(one: StoredObject, reader: str | None) -> dict[str, Any]:
    """Return the OpenADR object; secrets of a subscription for its own client only."""
    body = dict(one.body)
    if one.kind in ("VEN", "RESOURCE"):
        body = {"attributes": None, "targets": None} | body
    if one.kind == "SUBSCRIPTION" and reader != one.client:
        body["objectOperations"] = [
            {name: each for name, each in o.items() if name != "bearerToken"}
            for o in body["objectOperations"]
        ]
    return body | {
        "id": one.id,
        "createdDateTime": utc(one.created),
        "modificationDateTime": utc(one.modified),
        "objectType": one.kind,
        "clientID": one.client,
    }
