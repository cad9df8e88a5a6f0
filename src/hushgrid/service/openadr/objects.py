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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import islice
from typing import Any

from starlette.responses import Response

from hushgrid.errors import ServiceError
from hushgrid.files.deployment import ZoneService
from hushgrid.service.access.clients import Grant
from hushgrid.service.curator import utc
from hushgrid.service.ledger.records import ReleaseRecord
from hushgrid.service.openadr.store import Kind, StoredObject, TakenError, VtnStore
from hushgrid.service.openadr.webhooks import ForbiddenTargetError, check_callback
from hushgrid.service.prices import History


@dataclass(frozen=True, slots=True)
class Call:
    """An authorized request.

    Attributes:
        grant: client and scopes of the sender.
        path: parameters of the path, by name.
        query: parameters of the query, validated, by name.
        now: UTC epoch [s].
        body: validated JSON; may hold secrets.
    """

    grant: Grant
    path: Mapping[str, str]
    query: Mapping[str, Any]
    now: int
    body: Any = field(default=None, repr=False)

    @property
    def client(self) -> str:
        """Id of the sender's client; empty for an anonymous one."""
        return self.grant.client or ""


class VtnRefusal(Exception):  # noqa: N818
    """A request that is answered with a problem.

    Args:
        status: HTTP status.
        detail: one sentence with the fix.
        headers: further headers of the answer.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def to_json(value: Any) -> bytes:
    """Encode a value as JSON in ASCII, so that any text a client sent can be sent on.

    Args:
        value: a JSON value with finite numbers.

    Returns:
        The bytes.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a JSON answer.

    Args:
        value: the body.
        status: HTTP status.
        headers: further headers.

    Returns:
        The response.
    """
    return Response(to_json(value), status, dict(headers or {}), "application/json")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Make an error answer: an OpenADR Problem of the type application/json.

    Args:
        status: HTTP status.
        detail: one sentence with the fix.
        headers: further headers.

    Returns:
        The response.
    """
    title = HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return answer(body, status, {"Cache-Control": "no-store", **(headers or {})})


def not_found(what: str) -> VtnRefusal:
    """Make the refusal for an object that is absent or hidden from the sender: both look the same.

    Args:
        what: kind of object.

    Returns:
        A refusal with status 404.
    """
    return VtnRefusal(404, f"There is no such {what}; ask for the list of those there are.")


VERSION = "3.1.0"
TOPICS = f"OpenADR/{VERSION}"
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
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    parts = zip((hours, *divmod(rest, 60)), "HMS", strict=True)
    time = "".join(f"{n}{unit}" for n, unit in parts if n)
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time or not days else "")


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


PAGE = 50  # the most of a list at once, and the default


class PublicObjects:
    """Handlers of public objects: programs, events and ways of notification.

    Args:
        history: releases of the zones.
        mqtt_uris: brokers on which events are published; empty if none.
    """

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
            raise not_found("program")
        return self._zones[program]

    def has(self, program: str) -> bool:
        """Return True if there is a program with this id."""
        return program in self._zones

    def events(self, call: Call) -> list[dict[str, Any]]:
        """GET /events, newest first; `active` leaves out those whose interval is over."""
        skip, limit = page(call)
        program = call.query.get("programID")
        zones = [z for p, z in self._zones.items() if program in (None, p)]
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
        place = parse_event_id(call.path["eventID"])
        zone = None if place is None else self._zones.get(place[0])
        release = None if zone is None or place is None else self._history.at(zone.id, place[1])
        if zone is None or release is None or event_id(release) != call.path["eventID"]:
            raise not_found("event")
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
        """GET /notifiers/mqtt/topics/... of programs and events."""
        if not self._uris:
            raise VtnRefusal(404, "Nothing is published over MQTT here; subscribe with a callback.")
        if "programID" in call.path:
            self._zone(call.path["programID"])
        return {"topics": topics(under.format(**call.path), create=create)}


def _order(release: ReleaseRecord) -> tuple[int, int, str]:
    return release.applies_start, release.t, release.zone


def page(call: Call) -> tuple[int, int]:
    """Read the paging of a request.

    Args:
        call: the request.

    Returns:
        How many objects to skip, and how many to return at most.
    """
    return call.query.get("skip", 0), call.query.get("limit", PAGE)


MOST = 10_000  # objects of one kind and client
KEYS: dict[Kind, str] = {
    "VEN": "venID", "RESOURCE": "resourceID",
    "SUBSCRIPTION": "subscriptionID", "REPORT": "reportID",
}  # fmt: skip
_FILTERS = {
    "venName": "name", "resourceName": "name", "clientName": "name",
    "programID": "program", "eventID": "event", "venID": "ven",
}  # fmt: skip
_METADATA = ("id", "createdDateTime", "modificationDateTime", "objectType", "clientID")

Notify = Callable[[str, str, dict[str, Any], str], None]  # kind, operation, object, its client


class Objects:
    """Handlers of the objects of clients.

    Args:
        store: where they are kept.
        public: programs that subscriptions may name.
        private_callbacks: allow callbacks to private addresses.
        webhooks: allow subscriptions.
        notify: called after every change.
    """

    def __init__(
        self,
        store: VtnStore,
        public: PublicObjects,
        *,
        private_callbacks: bool = False,
        webhooks: bool = True,
        notify: Notify,
    ) -> None:
        self._store, self._public, self._notify = store, public, notify
        self._private, self._webhooks = private_callbacks, webhooks

    def list(self, kind: Kind, call: Call) -> list[dict[str, Any]]:
        """GET of all objects of a kind that the sender may see."""
        skip, limit = page(call)
        where = {_FILTERS[name]: each for name, each in call.query.items() if name in _FILTERS}
        targets, objects = call.query.get("targets"), call.query.get("objects")

        def such(one: StoredObject) -> bool:
            named = {each for o in one.body.get("objectOperations", ()) for each in o["objects"]}
            return (not targets or not set(targets).isdisjoint(one.body.get("targets") or ())) and (
                not objects or not set(objects).isdisjoint(named)
            )

        found = self._store.find(
            kind,
            client=None if _sees_all(kind, call) else call.client,
            where=where,
            such=such if targets or objects else None,
            skip=skip,
            limit=limit,
        )
        return [_to_object(one, call.client) for one in found]

    def get(self, kind: Kind, call: Call) -> dict[str, Any]:
        """GET of one object."""
        return _to_object(self._visible(kind, call), call.client)

    def add(self, kind: Kind, call: Call) -> dict[str, Any]:
        """POST of a new object."""
        client, body = self._from_request(kind, call, None)
        if self._store.count(kind, client) >= MOST:
            raise VtnRefusal(403, f"There are {MOST} of them already; remove some first.")
        one = StoredObject(kind, secrets.token_urlsafe(18), client, call.now, call.now, body)
        self._write(lambda: self._store.add(one))
        return self._notified(one, "CREATE", call)

    def change(self, kind: Kind, call: Call) -> dict[str, Any]:
        """PUT of an object."""
        before = self._writable(kind, call)
        client, body = self._from_request(kind, call, before)
        one = replace(before, client=client, modified=call.now, body=body)
        if not self._write(lambda: self._store.replace(one)):
            raise not_found(kind.lower())
        return self._notified(one, "UPDATE", call)

    def remove(self, kind: Kind, call: Call) -> dict[str, Any]:
        """DELETE of an object."""
        one = self._store.remove(kind, self._writable(kind, call).id)
        if one is None:
            raise not_found(kind.lower())
        return self._notified(one, "DELETE", call)

    def check_ven(self, call: Call) -> None:
        """Refuse if the sender may not see the ven of the path."""
        self._visible("VEN", call)

    def _visible(self, kind: Kind, call: Call) -> StoredObject:
        one = self._store.get(kind, call.path[KEYS[kind]])
        if one is None or (one.client != call.client and not _sees_all(kind, call)):
            raise not_found(kind.lower())
        return one

    def _writable(self, kind: Kind, call: Call) -> StoredObject:
        one = self._visible(kind, call)
        shared = kind in ("VEN", "RESOURCE") and call.grant.may("read_all")
        if one.client != call.client and not shared and not call.grant.may("operate"):
            raise VtnRefusal(403, f"This {kind.lower()} is another client's; change your own.")
        return one

    def _write(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except TakenError:
            raise VtnRefusal(409, "The name is in use already; give another one.") from None

    def _notified(self, one: StoredObject, operation: str, call: Call) -> dict[str, Any]:
        self._notify(one.kind, operation, _to_object(one, None), one.client)
        return _to_object(one, call.client)

    def _from_request(
        self, kind: Kind, call: Call, before: StoredObject | None
    ) -> tuple[str, dict[str, Any]]:
        """Return the owner of an object and the members to store."""
        body = {name: each for name, each in call.body.items() if name not in _METADATA}
        client = call.client if before is None else before.client
        if kind == "SUBSCRIPTION":
            self._check_subscription(body)
        elif kind == "REPORT":
            place = parse_event_id(body["eventID"])
            if "programID" not in body and place is not None:
                body["programID"] = place[0]
        else:
            client = self._owner(kind, call, client)
            if not call.body["objectType"].startswith("BL_"):  # only business logic sets targets
                body.pop("targets", None)
                if before is not None and before.body.get("targets") is not None:
                    body["targets"] = before.body["targets"]
        return client, body

    def _owner(self, kind: Kind, call: Call, client: str) -> str:
        """Return the owner of a ven or resource; objectType says which side sends the request."""
        business = call.body["objectType"].startswith("BL_")
        if business and not _sees_all(kind, call):
            raise VtnRefusal(403, f"objectType is for business logic; send a VEN_{kind}_REQUEST.")
        if kind == "VEN":
            own = call.grant.ven
            if not business and own is not None and call.body["venName"] != own:
                raise VtnRefusal(403, "venName is not the one of this client; give its own.")
        else:
            ven = self._store.get("VEN", call.body["venID"])
            if ven is None or (ven.client != client and not _sees_all("VEN", call)):
                raise not_found("ven")
            client = ven.client if not business else client
        return str(call.body["clientID"]) if business else client

    def _check_subscription(self, body: Mapping[str, Any]) -> None:
        if not self._webhooks:
            raise VtnRefusal(403, "This service sends no webhooks; read events or use MQTT.")
        program = body.get("programID")
        if program is not None and not self._public.has(program):
            raise VtnRefusal(409, "programID is of no program; give one of GET /programs.")
        for one in body["objectOperations"]:
            try:
                check_callback(one["callbackUrl"], private=self._private)
            except ForbiddenTargetError as error:
                raise VtnRefusal(403, f"callbackUrl {error}") from None


def _sees_all(kind: Kind, call: Call) -> bool:
    return call.grant.may("operate") or (kind != "REPORT" and call.grant.may("read_all"))


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
