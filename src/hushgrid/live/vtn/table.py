"""Every operation: its path, who may do it, what it takes and gives. The one table of routes.

`scopes`: one of them is needed. `public`: nobody needs any while anonymous reading is on.
`closed`: nobody may, since programs and events are made from the ledger alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from hushgrid.live.vtn.schemas import KINDS, LIMIT, NAME, OBJECT_ID, SKIP, Schema, listed, one_word

PAGE: dict[str, Schema] = {"skip": SKIP, "limit": LIMIT}
TARGETED: dict[str, Schema] = {"targets": listed(NAME)}
PUBLIC = ("read_targets", "read_all", "read_ven_objects", "operate")
OWN = ("read_ven_objects", "read_all", "operate")
TOPICS = "/notifiers/mqtt/topics"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path; `name` is the standard's operationId."""

    name: str
    method: str
    path: str
    scopes: tuple[str, ...] = ()
    public: bool = False
    closed: bool = False
    query: tuple[tuple[str, Schema], ...] = ()
    body: str | None = None
    answer: str = "problem"
    many: bool = False
    status: int = 200


def _read(
    name: str, path: str, scopes: tuple[str, ...], answer: str, public: bool = False
) -> Operation:
    return Operation(name, "GET", path, scopes, public, answer=answer)


def _list(
    name: str, path: str, scopes: tuple[str, ...], answer: str, public: bool, **query: Schema
) -> Operation:
    asked = tuple((query | PAGE).items())
    return Operation(name, "GET", path, scopes, public, query=asked, answer=answer, many=True)


def _writes(what: str, plural: str, key: str, scope: str) -> tuple[Operation, ...]:
    title, request, one = what.capitalize(), f"{what}Request", f"/{plural}/{{{key}}}"
    title = "VenResource" if what == "resource" else title
    made = "createResource" if what == "resource" else f"create{title}"
    return (
        Operation(made, "POST", f"/{plural}", (scope,), body=request, answer=what, status=201),
        Operation(f"update{title}", "PUT", one, (scope,), body=request, answer=what),
        Operation(f"delete{title}", "DELETE", one, (scope,), answer=what),
    )


def _closed(what: str, plural: str, key: str) -> tuple[Operation, ...]:
    title, one = what.capitalize(), f"/{plural}/{{{key}}}"
    return (
        Operation(f"create{title}", "POST", f"/{plural}", closed=True),
        Operation(f"update{title}", "PUT", one, closed=True),
        Operation(f"delete{title}", "DELETE", one, closed=True),
    )


def _topics(name: str, path: str, scopes: tuple[str, ...], public: bool = False) -> Operation:
    return Operation(
        f"listAllMqttNotifierTopics{name}", "GET", f"{TOPICS}/{path}", scopes, public,
        answer="notifierTopicsResponse",
    )  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    _list("searchAllPrograms", "/programs", PUBLIC, "program", True, **TARGETED),
    _read("searchProgramByProgramId", "/programs/{programID}", PUBLIC, "program", public=True),
    *_closed("program", "programs", "programID"),
    _list(
        "searchAllEvents", "/events", PUBLIC, "event", True,
        programID=OBJECT_ID, active={"type": "boolean"}, **TARGETED,
    ),
    _read("searchEventsByID", "/events/{eventID}", PUBLIC, "event", public=True),
    *_closed("event", "events", "eventID"),
    _list(
        "searchAllReports", "/reports", OWN, "report", False,
        programID=OBJECT_ID, eventID=OBJECT_ID, clientName=NAME,
    ),
    _read("searchReportsByReportID", "/reports/{reportID}", OWN, "report"),
    *_writes("report", "reports", "reportID", "write_reports"),
    _list(
        "searchSubscriptions", "/subscriptions", OWN, "subscription", False,
        programID=OBJECT_ID, clientName=NAME, objects=listed(one_word(*KINDS)),
    ),
    _read("searchSubscriptionByID", "/subscriptions/{subscriptionID}", OWN, "subscription"),
    *_writes("subscription", "subscriptions", "subscriptionID", "write_subscriptions"),
    _list("searchVens", "/vens", OWN, "ven", False, venName=NAME, **TARGETED),
    _read("searchVenByID", "/vens/{venID}", OWN, "ven"),
    *_writes("ven", "vens", "venID", "write_vens"),
    _list(
        "searchVenResources", "/resources", OWN, "resource", False,
        resourceName=NAME, venID=OBJECT_ID, **TARGETED,
    ),
    _read("searchVenResourceByID", "/resources/{resourceID}", OWN, "resource"),
    *_writes("resource", "resources", "resourceID", "write_vens"),
    _read("listAllNotifiers", "/notifiers", PUBLIC, "notifiersResponse", public=True),
    _topics("Programs", "programs", PUBLIC, True),
    _topics("Program", "programs/{programID}", PUBLIC, True),
    _topics("Events", "events", PUBLIC, True),
    _topics("ProgramEvents", "programs/{programID}/events", PUBLIC, True),
    _topics("Reports", "reports", ("read_all", "operate")),
    _topics("Subscriptions", "subscriptions", ("read_all", "operate")),
    _topics("Vens", "vens", ("read_all", "operate")),
    _topics("Ven", "vens/{venID}", OWN),
    _topics("Resources", "resources", ("read_all", "operate")),
    _topics("VenEvents", "vens/{venID}/events", OWN),
    _topics("VenPrograms", "vens/{venID}/programs", OWN),
    _topics("VenResources", "vens/{venID}/resources", OWN),
)  # fmt: skip
