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

import hashlib
import heapq
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import chain, islice
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, TypeAdapter

from hushgrid.curator.clock import Clock, utc
from hushgrid.curator.publishers import price
from hushgrid.errors import ServiceError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Charges
from hushgrid.stores.clients import Grant
from hushgrid.stores.ledger.entries import ReleaseRecord
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
    created, start = utc(release.published_at), utc(release.applies_start)
    words = [zone.id, start, f"({release.source})", "(simulated)" * release.simulated]
    return {
        "id": event_id(release),
        "createdDateTime": created,
        "modificationDateTime": created,
        "objectType": "EVENT",
        "programID": program_id(zone.id),
        "eventName": " ".join(words).strip(),
        # intervals between measurement and application: fewer is newer, lower is better
        "priority": max(0, (release.applies_start - release.start) // zone.seconds),
        "targets": None,
        "payloadDescriptors": _descriptors(zone),
        "intervalPeriod": {"start": start, "duration": duration(zone.seconds)},
        "intervals": [
            {"id": 0, "payloads": _payloads(zone, price(zone, release))},
        ],
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
        "createdDateTime": utc(zone.begins),
        "modificationDateTime": utc(modified),
        "objectType": "EVENT",
        "programID": forecast_id(zone.id),
        "eventName": f"{program_id(zone.id)} {FORECAST} (not binding)",
        "targets": None,
        "payloadDescriptors": _descriptors(zone),
        "intervalPeriod": {"start": coming[0]["start"], "duration": duration(zone.seconds)},
        "intervals": [
            {"id": i, "payloads": _payloads(zone, entry)} for i, entry in enumerate(coming)
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
        sequence = chain((event_of(zone, release) for zone, release in pairs), coming)
        return map(to_text, islice(sequence, query.skip, end))

    def _forecast(self, zone: ZoneService, active: bool = False) -> dict[str, Any] | None:
        """The event of a zone's forecast; None where it has none, or none that is active."""
        now, newest = self._clock.now(), self._history.newest(zone.id)
        coming = self._history.ahead(zone.id, now, prices.PATIENCE)
        if not coming or (active and coming[0]["start"] > utc(int(now))):
            return None
        modified = interval(zone, now) if newest is None else newest.published_at
        return forecast_event(zone, coming, int(modified))

    def _newest(
        self, zone: ZoneService, number: int, active: bool
    ) -> Iterator[tuple[ZoneService, ReleaseRecord]]:
        if active:
            holds = self._history.applying(zone.id, interval(zone, self._clock.now()))
            yield from () if holds is None else ((zone, holds),)
            return
        oldest = self._clock.now() - self._age - zone.seconds
        for release in reversed(self._history.last(zone.id, number)):
            if release.applies_start < oldest:
                return
            yield zone, release

    def event(self, eventID: ObjectID) -> dict[str, Any]:
        """GET /events/{eventID}."""
        if eventID in self._forecasts:
            forecast = self._forecast(self._forecasts[eventID])
            if forecast is not None:
                return forecast
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


def _order(release: ReleaseRecord) -> tuple[int, int, str]:
    return release.applies_start, release.t, release.zone


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
