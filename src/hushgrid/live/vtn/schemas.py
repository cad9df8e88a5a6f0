"""What requests may hold and answers hold, as JSON schemas (the subset of `checking`).

One truth: requests are checked against these, and the served description shows them. Members that
are not named are kept as they are; an optional member may be null, which means absent.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

OBJECT_ID: Schema = {
    "type": "string", "pattern": "^[a-zA-Z0-9_-]*$", "minLength": 1, "maxLength": 128,
}  # fmt: skip
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 128}
TEXT: Schema = {"type": "string"}
DATE_TIME: Schema = {"type": "string", "format": "date-time"}
DURATION: Schema = {
    "type": "string",
    "pattern": r"^-?P(?=\d|T\d)(\d+Y)?(\d+M)?(\d+[DW])?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$",
}
KINDS = ("PROGRAM", "EVENT", "REPORT", "SUBSCRIPTION", "VEN", "RESOURCE")
# a host and a port, no user: what is behind them is looked at in `callbacks`
CALLBACK: Schema = {
    "type": "string",
    "format": "uri",
    "pattern": r"^https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][!-~]*)?$",
    "minLength": 2,
    "maxLength": 8000,
}
SKIP: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
LIMIT: Schema = {"type": "integer", "minimum": 0, "maximum": 50}


def reference(name: str) -> Schema:
    """A schema of `COMPONENTS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(items: Schema) -> Schema:
    """A list of such."""
    return {"type": "array", "items": items}


def made_of(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object; optional members may be null."""
    could = {name: {**schema, "nullable": True} for name, schema in (optional or {}).items()}
    made: Schema = {"type": "object", "properties": required | could}
    return made | ({"required": list(required)} if required else {})


def one_word(*words: str) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": list(words)}


POINT = made_of({"x": {"type": "number"}, "y": {"type": "number"}})
VALUES = listed({"anyOf": [{"type": "number"}, TEXT, {"type": "boolean"}, POINT]})
VALUES_MAP = made_of({"type": NAME, "values": VALUES})
PERIOD = made_of({}, {"start": DATE_TIME, "duration": DURATION, "randomizeStart": DURATION})
INTERVAL = made_of(
    {"id": {"type": "integer"}, "payloads": listed(VALUES_MAP)}, {"intervalPeriod": PERIOD}
)
EVENT_DESCRIPTOR = made_of(
    {"objectType": one_word("EVENT_PAYLOAD_DESCRIPTOR"), "payloadType": NAME},
    {"units": NAME, "currency": TEXT},
)
REPORT_DESCRIPTOR = made_of(
    {"objectType": one_word("REPORT_PAYLOAD_DESCRIPTOR"), "payloadType": NAME},
    {
        "readingType": NAME,
        "units": NAME,
        "accuracy": {"type": "number"},
        "confidence": {"type": "integer", "minimum": 0, "maximum": 100},
    },
)
TARGETS, ATTRIBUTES = listed(NAME), listed(VALUES_MAP)
OPERATION = made_of(
    {
        "objects": listed(one_word(*KINDS)),
        "operations": listed(one_word("READ", "CREATE", "UPDATE", "DELETE")),
        "callbackUrl": CALLBACK,
    },
    {"bearerToken": {"type": "string", "pattern": "^[!-~]*$", "maxLength": 4096}},
)
REPORTED = made_of(
    {"resourceName": NAME, "intervals": listed(INTERVAL)}, {"intervalPeriod": PERIOD}
)

REQUESTS: dict[str, Schema] = {
    "reportRequest": made_of(
        {"eventID": OBJECT_ID, "clientName": NAME, "resources": listed(REPORTED)},
        {
            "programID": OBJECT_ID,
            "reportName": TEXT,
            "payloadDescriptors": listed(REPORT_DESCRIPTOR),
        },
    ),
    "subscriptionRequest": made_of(
        {"clientName": NAME, "objectOperations": listed(OPERATION)},
        {"programID": OBJECT_ID, "targets": TARGETS},
    ),
    "venRequest": {
        "oneOf": [
            made_of(
                {"objectType": one_word("VEN_VEN_REQUEST"), "venName": NAME},
                {"attributes": ATTRIBUTES},
            ),
            made_of(
                {"objectType": one_word("BL_VEN_REQUEST"), "clientID": NAME, "venName": NAME},
                {"attributes": ATTRIBUTES, "targets": TARGETS},
            ),
        ]
    },
    "resourceRequest": {
        "oneOf": [
            made_of(
                {
                    "objectType": one_word("VEN_RESOURCE_REQUEST"),
                    "resourceName": NAME,
                    "venID": OBJECT_ID,
                },
                {"attributes": ATTRIBUTES},
            ),
            made_of(
                {
                    "objectType": one_word("BL_RESOURCE_REQUEST"),
                    "clientID": NAME,
                    "resourceName": NAME,
                    "venID": OBJECT_ID,
                },
                {"attributes": ATTRIBUTES, "targets": TARGETS},
            ),
        ]
    },
}


def _answer(kind: str, required: dict[str, Schema], nullable: dict[str, Schema]) -> Schema:
    metadata = {
        "id": OBJECT_ID,
        "createdDateTime": DATE_TIME,
        "modificationDateTime": DATE_TIME,
        "objectType": one_word(kind),
    }
    return made_of(metadata | required, nullable)


ANSWERS: dict[str, Schema] = {
    "program": _answer(
        "PROGRAM",
        {
            "programName": NAME,
            "payloadDescriptors": listed(EVENT_DESCRIPTOR),
            "attributes": ATTRIBUTES,
        },
        {"targets": TARGETS},
    ),
    "event": _answer(
        "EVENT",
        {
            "programID": OBJECT_ID,
            "eventName": TEXT,
            "priority": {"type": "integer", "minimum": 0},
            "payloadDescriptors": listed(EVENT_DESCRIPTOR),
            "intervalPeriod": made_of({"start": DATE_TIME, "duration": DURATION}),
            "intervals": listed(INTERVAL),
        },
        {"targets": TARGETS},
    ),
    "report": _answer(
        "REPORT",
        REQUESTS["reportRequest"]["properties"] | {"clientID": NAME},
        {},
    ),
    "subscription": _answer(
        "SUBSCRIPTION", REQUESTS["subscriptionRequest"]["properties"] | {"clientID": NAME}, {}
    ),
    "ven": _answer(
        "VEN", {"clientID": NAME, "venName": NAME}, {"attributes": ATTRIBUTES, "targets": TARGETS}
    ),
    "resource": _answer(
        "RESOURCE",
        {"clientID": NAME, "resourceName": NAME, "venID": OBJECT_ID},
        {"attributes": ATTRIBUTES, "targets": TARGETS},
    ),
    "authServerInfo": made_of({"tokenURL": {"type": "string", "format": "uri"}}),
    "clientCredentialResponse": made_of(
        {
            "access_token": TEXT,
            "token_type": one_word("Bearer"),
            "expires_in": {"type": "integer"},
            "scope": TEXT,
        }
    ),
    "authError": made_of({"error": TEXT, "error_description": TEXT}),
    "problem": made_of(
        {
            "type": TEXT,
            "title": TEXT,
            "status": {"type": "integer", "minimum": 100, "maximum": 599},
            "detail": TEXT,
        }
    ),
    "notifiersResponse": made_of(
        {"WEBHOOK": {"type": "boolean"}},
        {
            "MQTT": made_of(
                {
                    "URIS": listed(TEXT),
                    "serialization": one_word("JSON"),
                    "authentication": made_of({"method": one_word("ANONYMOUS")}),
                }
            )
        },
    ),
    "notifierTopicsResponse": made_of(
        {"topics": made_of({"UPDATE": TEXT, "DELETE": TEXT}, {"CREATE": TEXT})}
    ),
}
for _name in ("report", "subscription"):  # what a request may leave out, an answer may
    _needs = {"id", "createdDateTime", "modificationDateTime", "objectType", "clientID"}
    ANSWERS[_name]["required"] = sorted(_needs | set(REQUESTS[f"{_name}Request"]["required"]))
