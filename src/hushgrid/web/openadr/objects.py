"""Objects of the VTN: programs and events from the ledger, and the objects of clients.

A release is one event, made once and never updated or withdrawn. After an outage several releases
may apply to the same interval; each stays listed, and the newest has the best (lowest) priority.
The forecast of a zone is one event of a program of its own, updated with each release.
Programs and events have no targets: every reader sees all of them.

A client sees its own vens, resources, subscriptions and reports. `read_all` (business logic) and
`operate` see the vens, resources and subscriptions of all clients. Reports carry raw usage: only
their owner and `operate` see them.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel

from hushgrid.curator.clock import Clock, utc
from hushgrid.errors import ServiceError
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.clients import Grant
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord
from hushgrid.stores.openadr import (
    FullError,
    Kind,
    StoredObject,
    TakenError,
    VtnStore,
    to_text,
)
from hushgrid.web import prices
from hushgrid.web.http.common import Refusal
from hushgrid.web.openadr._generated import (
    EventsGetParametersQuery,
    ObjectID,
    ProgramsGetParametersQuery,
)
from hushgrid.web.openadr.events import (
    AGE,
    event_id,
    event_of,
    forecast_event,
    forecast_id,
    list_event,
    list_event_id,
    parse_event_id,
    program_id,
    program_of,
    topics,
)
from hushgrid.web.openadr.webhooks import ForbiddenTargetError, check_callback
from hushgrid.web.prices import History, interval


def not_found(kind: str) -> Refusal:
    """Make the refusal for an object that is absent or hidden from the sender: both look the same.

    Args:
        kind: kind of object.

    Returns:
        A refusal with status 404.
    """
    return Refusal(404, f"There is no such {kind}; ask for the list of those there are.")


ProgramsQuery = Annotated[ProgramsGetParametersQuery, Query()]
EventsQuery = Annotated[EventsGetParametersQuery, Query()]


class PublicObjects:
    """Handlers of public objects: programs, events and ways of notification.

    Args:
        history: releases of the zones.
        clock: time of requests.
        mqtt_uris: brokers on which events are published; empty if none.
        age: how long after its interval an event is listed [s].
    """

    def __init__(
        self,
        history: History,
        clock: Clock,
        mqtt_uris: Iterable[str] = (),
        age: int = AGE,
    ) -> None:
        self._history, self._clock, self._uris = history, clock, list(mqtt_uris)
        self._age = age
        zones = history.zones.values()
        self._zones = {program_id(zone.id): zone for zone in zones}
        self._forecasts = {forecast_id(zone.id): zone for zone in zones}
        if len(self._zones) < len(zones) or self._zones.keys() & self._forecasts.keys():
            raise ServiceError("two zones have the same program id; give them other names.")

    def programs(self, query: ProgramsQuery) -> Iterator[str]:
        """GET /programs: in the order of the service file, forecasts last; none has targets."""
        names = [*self._zones, *self._forecasts][query.skip : query.skip + query.limit]
        return (to_text(self.program(name)) for name in names)

    def program(self, programID: ObjectID) -> dict[str, Any]:
        """GET /programs/{programID}."""
        zone = self._zones.get(programID) or self._forecasts.get(programID)
        if zone is None:
            raise not_found("program")
        return program_of(zone, forecast=programID in self._forecasts)

    def has(self, program: str) -> bool:
        """Return True if there is a program with this id."""
        return program in self._zones or program in self._forecasts

    def events(self, query: EventsQuery) -> Iterator[str]:
        """GET /events: newest first, forecasts last; `active` leaves those that hold now."""
        program, end = query.programID, query.skip + query.limit
        zones = [zone for name, zone in self._zones.items() if program in (None, name)]
        streams = [self._newest(zone, end, bool(query.active)) for zone in zones]
        pairs = heapq.merge(*streams, key=lambda pair: _order(pair[1]), reverse=True)
        forecast_zones = (zone for name, zone in self._forecasts.items() if program in (None, name))
        coming = filter(None, (self._forecast(zone, bool(query.active)) for zone in forecast_zones))
        sequence = chain((_event(*pair) for pair in pairs), coming)
        return map(to_text, islice(sequence, query.skip, end))

    def _forecast(self, zone: ZoneService, active: bool = False) -> dict[str, Any] | None:
        """The event of a zone's forecast; None where it has none, or none that is active."""
        now, newest = self._clock.now(), self._history.newest(zone.id)
        coming = self._history.ahead(zone.id, now, prices.PATIENCE, listed=False)
        if not coming or (active and coming[0]["start"] > utc(int(now))):
            return None
        modified = interval(zone, now) if newest is None else newest.published_at
        return forecast_event(zone, coming, int(modified))

    def _newest(
        self, zone: ZoneService, number: int, active: bool
    ) -> Iterator[tuple[ZoneService, ReleaseRecord | PricesRecord]]:
        """The newest lists, and releases whose prices are in none, newest first."""
        now, history = self._clock.now(), self._history
        if active:
            start = interval(zone, now)
            holds = history.list_at(zone.id, start) or history.applying(zone.id, start)
            yield from () if holds is None else ((zone, holds),)
            return
        oldest = now - self._age - zone.seconds
        releases = (
            release
            for release in reversed(history.last(zone.id, number))
            if release.applies_start >= oldest
            and history.list_at(zone.id, release.applies_start) is None
        )
        lists = (record for record in reversed(history.lists(zone.id)) if record.ends > oldest)
        entries: Iterable[Any] = heapq.merge(releases, lists, key=_order, reverse=True)
        yield from ((zone, entry) for entry in entries)

    def event(self, eventID: ObjectID) -> dict[str, Any]:
        """GET /events/{eventID}."""
        if eventID in self._forecasts:
            forecast = self._forecast(self._forecasts[eventID])
            if forecast is not None:
                return forecast
        program, t = parse_event_id(eventID) or ("", 0)
        zone = self._zones.get(program)
        if zone is None:
            raise not_found("event")
        release, record = (
            self._history.at(zone.id, t),
            self._history.list_at(zone.id, t * zone.seconds),
        )
        if record is not None and list_event_id(record) == eventID:
            return list_event(zone, record)
        listed = release and self._history.list_at(zone.id, release.applies_start) is not None
        if release is None or listed or event_id(release) != eventID:
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

    def topics(self, path: str | None, *, create: bool = True) -> dict[str, Any]:
        """Return the topics of a path of public objects; None is a path of other objects."""
        if not self._uris or path is None:
            raise Refusal(404, "These are not published over MQTT here; subscribe with a callback.")
        return {"topics": topics(path, create=create)}

    def topics_of_program(self, programID: ObjectID) -> dict[str, Any]:
        """Return the topics of changes of a program."""
        self.program(programID)
        return self.topics(f"programs/{programID}", create=False)

    def topics_of_events(self, programID: ObjectID) -> dict[str, Any]:
        """Return the topics of the events of a program."""
        self.program(programID)
        return self.topics(f"programs/{programID}/events")


def _order(entry: ReleaseRecord | PricesRecord) -> tuple[int, int, str]:
    if isinstance(entry, PricesRecord):
        return entry.first, entry.first // entry.seconds, entry.zone
    return entry.applies_start, entry.t, entry.zone


def _event(zone: ZoneService, entry: ReleaseRecord | PricesRecord) -> dict[str, Any]:
    return list_event(zone, entry) if isinstance(entry, PricesRecord) else event_of(zone, entry)


CALLBACKS = 8  # of one subscription
_COLUMNS = {
    "venName": "name", "resourceName": "name", "clientName": "name",
    "programID": "program", "eventID": "event", "venID": "ven",
}  # fmt: skip
_METADATA = ("id", "createdDateTime", "modificationDateTime", "objectType", "clientID")

# kind, operation, object as JSON, its program, its client
Notify = Callable[[str, str, str, str | None, str | None], None]


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

    def list(self, kind: Kind, grant: Grant, query: BaseModel) -> Iterator[str]:
        """Yield objects that the sender may see and that the query asks for, each as JSON."""
        parameters = query.model_dump(exclude_none=True)
        targets, objects = set(parameters.get("targets", ())), set(parameters.get("objects", ()))

        def matches(item: StoredObject) -> bool:
            body = item.body
            types = {name for o in body.get("objectOperations", ()) for name in o["objects"]}
            return (not targets or not targets.isdisjoint(body.get("targets") or ())) and (
                not objects or not objects.isdisjoint(types)
            )

        items = self._store.find(
            kind,
            client=None if _sees_all(kind, grant) else grant.client or "",
            columns={
                _COLUMNS[name]: value for name, value in parameters.items() if name in _COLUMNS
            },
            condition=matches if targets or objects else None,
            skip=parameters["skip"],
            limit=parameters["limit"],
        )
        return (_to_object(item, grant.client) for item in items)

    def get(self, kind: Kind, grant: Grant, name: str) -> str:
        """Return the object with this id as JSON."""
        return _to_object(self._visible(kind, grant, name), grant.client)

    def add(self, kind: Kind, grant: Grant, request: BaseModel) -> str:
        """Store a new object."""
        body = _members(request)
        client = self._owner(kind, grant, body, None)
        now, name = int(self._clock.now()), secrets.token_urlsafe(18)
        item = StoredObject(kind, name, client, now, now, self._text(kind, body))
        _write(self._store.add, item)
        return self._announce(item, "CREATE", grant)

    def change(self, kind: Kind, grant: Grant, name: str, request: BaseModel) -> str:
        """Replace an object."""
        body = _members(request)
        previous = self._writable(kind, grant, name)
        item = replace(
            previous,
            client=self._owner(kind, grant, body, previous.client),
            modified=int(self._clock.now()),
            text=self._text(kind, body, previous),
        )
        if not _write(self._store.replace, item):
            raise not_found(kind.lower())
        return self._announce(item, "UPDATE", grant)

    def remove(self, kind: Kind, grant: Grant, name: str) -> str:
        """Remove an object."""
        item = self._store.remove(kind, self._writable(kind, grant, name).id)
        if item is None:
            raise not_found(kind.lower())
        return self._announce(item, "DELETE", grant)

    def _visible(self, kind: Kind, grant: Grant, name: str) -> StoredObject:
        item = self._store.get(kind, name)
        if item is None or (item.client != grant.client and not _sees_all(kind, grant)):
            raise not_found(kind.lower())
        return item

    def _writable(self, kind: Kind, grant: Grant, name: str) -> StoredObject:
        item = self._visible(kind, grant, name)
        shared = kind in ("VEN", "RESOURCE") and grant.may("read_all")
        if item.client != grant.client and not shared and not grant.may("operate"):
            raise Refusal(403, f"This {kind.lower()} is another client's; change your own.")
        return item

    def _announce(self, item: StoredObject, operation: str, grant: Grant) -> str:
        program = item.body.get("programID")
        self._notify(item.kind, operation, _to_object(item, None), program, item.client)
        return _to_object(item, grant.client)

    def _text(self, kind: Kind, body: dict[str, Any], previous: StoredObject | None = None) -> str:
        """Return the members to store as JSON; `previous` is what they replace."""
        members = {name: value for name, value in body.items() if name not in _METADATA}
        if kind == "SUBSCRIPTION":
            self._check_subscription(members)
        elif kind == "REPORT":
            try:
                event = self._public.event(members["eventID"])
            except Refusal:
                detail = "eventID is of no event; give one of GET /events."
                raise Refusal(409, detail) from None
            members.setdefault("programID", event["programID"])
        elif not body["objectType"].startswith("BL_"):  # only business logic sets targets
            targets = None if previous is None else previous.body.get("targets")
            members.pop("targets", None)
            members |= {} if targets is None else {"targets": targets}
        try:
            return to_text(members)
        except ValueError:  # 1e999
            raise Refusal(400, "A number of the body is not finite; send a finite one.") from None

    def _owner(
        self, kind: Kind, grant: Grant, body: dict[str, Any], previous_owner: str | None
    ) -> str:
        """Return the owner of an object; objectType says which side sends a ven or resource."""
        client = previous_owner or grant.client or ""
        if kind not in ("VEN", "RESOURCE"):
            return client
        business = body["objectType"].startswith("BL_")
        if business and not _sees_all(kind, grant):
            raise Refusal(403, f"objectType is for business logic; send a VEN_{kind}_REQUEST.")
        if kind == "VEN":
            if not business and grant.ven not in (None, body["venName"]):
                raise Refusal(403, "venName is not the one of this client; give its own.")
        else:
            if "venID" not in body:
                body["venID"] = self._ven_of(client)
            ven = self._store.get("VEN", body["venID"])
            if ven is None or (ven.client != client and not _sees_all("VEN", grant)):
                raise not_found("ven")
            client = ven.client
        owner = str(body["clientID"]) if business else client
        if kind == "VEN" and owner != previous_owner and self._store.count("VEN", owner):
            raise Refusal(409, "The client has a ven already; change that one.")
        reserving_clients = self._reserving(body["venName"]) if kind == "VEN" else ()
        if reserving_clients and owner not in reserving_clients:
            raise Refusal(409, "venName is reserved for another client; give another one.")
        return owner

    def _ven_of(self, client: str) -> str:
        """Return the id of a client's ven."""
        ven = next(self._store.find("VEN", client=client, limit=1), None)
        if ven is None:
            raise Refusal(404, "venID is missing and the client has no ven; register one first.")
        return ven.id

    def _check_subscription(self, body: Mapping[str, Any]) -> None:
        if not self._webhooks:
            raise Refusal(403, "This service sends no webhooks; read events or use MQTT.")
        program = body.get("programID")
        if program is not None and not self._public.has(program):
            raise Refusal(409, "programID is of no program; give one of GET /programs.")
        if len(body["objectOperations"]) > CALLBACKS:
            raise Refusal(403, f"objectOperations has more than {CALLBACKS}; send several.")
        for operation in body["objectOperations"]:
            try:
                check_callback(operation["callbackUrl"], private=self._private)
            except ForbiddenTargetError as error:
                raise Refusal(403, f"callbackUrl {error}") from None


def _members(request: BaseModel) -> dict[str, Any]:
    """Return the members that were sent; null is as absent."""
    return request.model_dump(exclude_unset=True, exclude_none=True)


def _sees_all(kind: Kind, grant: Grant) -> bool:
    return grant.may("operate") or (kind != "REPORT" and grant.may("read_all"))


def _write(work: Callable[[StoredObject], Any], item: StoredObject) -> Any:
    try:
        return work(item)
    except TakenError:
        raise Refusal(409, "The name is in use already; give another one.") from None
    except FullError as error:
        raise Refusal(403, f"There is no room: {error}") from None


def _to_object(item: StoredObject, reader: str | None) -> str:
    """Return the OpenADR object as JSON; secrets of a subscription for its own client only."""
    text = item.text  # of a report, the longest, it is sent as it is stored
    if item.kind in ("VEN", "RESOURCE"):
        text = to_text({"attributes": None, "targets": None} | item.body)
    if item.kind == "SUBSCRIPTION" and reader != item.client:
        body = item.body
        body["objectOperations"] = [
            {name: value for name, value in o.items() if name != "bearerToken"}
            for o in body["objectOperations"]
        ]
        text = to_text(body)
    metadata = {
        "id": item.id,
        "createdDateTime": utc(item.created),
        "modificationDateTime": utc(item.modified),
        "objectType": item.kind,
        "clientID": item.client,
    }
    return f"{text[:-1]},{to_text(metadata)[1:]}"  # no body has these members, and none is empty
