"""What requests may hold and answers hold, as JSON schemas (the subset of `checking`).

One truth: requests are checked against these, and the served description shows them. Members that
are not named are kept as they are; an optional member may be null, which means absent.
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
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


# --------------------------------------------------------------------------------------------------
# JSON held against a schema, by the few keywords that `schemas` uses; and JSON that is safe.
#
# A message names the member and what it should be, never its value: it may be somebody's usage.


_WHEN = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
DEEPEST = 32  # lists and objects within each other


class Unfit(ValueError):  # noqa: N818
    """A body or parameter that is not as the schema has it; its text says which member and how."""


def parsed(body: bytes) -> Any:
    """The value of a JSON text. Numbers are finite, nothing is nested deeply."""
    try:
        value = json.loads(body, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise Unfit("The body is nested too deeply; send a flat one.") from None
    except ValueError:
        raise Unfit("The body is not JSON; send a JSON object.") from None
    if _depth(value) > DEEPEST:
        raise Unfit("The body is nested too deeply; send a flat one.")
    return value


def _no_number(text: str) -> float:
    raise ValueError(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("too large")
    return number


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        inner = [list(x.values()) if isinstance(x, dict) else x for x in level]
        level = [y for x in inner if isinstance(x, list) for y in x]
    return depth


def fitting(schema: Schema, value: Any, where: str = "") -> Any:
    """The value without its nulls where those mean absent; Unfit where it does not fit.

    >>> fitting({"type": "integer", "minimum": 0}, -1, "priority")
    Traceback (most recent call last):
    hushgrid.service.openadr.schemas.Unfit: priority is too small; give 0 or more.
    """
    where = where or "The body"
    if "oneOf" in schema:
        return fitting(_chosen(schema["oneOf"], value, where), value, where)
    if "anyOf" in schema:
        return _any(schema["anyOf"], value, where)
    value = _of_type(schema["type"], value, where)
    if "enum" in schema and value not in schema["enum"]:
        raise Unfit(f"{where} is none of {', '.join(schema['enum'])}; give one of them.")
    if isinstance(value, str):
        _check_text(schema, value, where)
    elif isinstance(value, list):
        items = schema["items"]
        return [fitting(items, each, f"{where}[{i}]") for i, each in enumerate(value)]
    elif isinstance(value, dict):
        return _members(schema, value, where)
    elif schema["type"] in ("integer", "number"):
        _check_number(schema, value, where)
    return value


def _of_type(kind: str, value: Any, where: str) -> Any:
    if kind in ("integer", "number"):
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
        if right and kind == "integer":
            right, value = value == int(value), int(value)
    else:
        right = isinstance(value, _KINDS[kind])
    if not right:
        article = "an" if kind[0] in "aio" else "a"
        raise Unfit(f"{where} is not {article} {kind}; give {article} {kind}.")
    return value


def _check_text(schema: Schema, value: str, where: str) -> None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if not least <= len(value) <= most:
        raise Unfit(f"{where} has {len(value)} characters; give {least} to {most}.")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value, re.ASCII):
        raise Unfit(f"{where} is not of the form {schema['pattern']}; give one that is.")
    if schema.get("format") == "date-time" and not _is_time(value):
        raise Unfit(f"{where} is no date and time; give one such as 2026-01-31T12:00:00Z.")


def _is_time(value: str) -> bool:
    if not _WHEN.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value[:10])
    except ValueError:
        return False
    return True


def _check_number(schema: Schema, value: float, where: str) -> None:
    if value < schema.get("minimum", -math.inf):
        raise Unfit(f"{where} is too small; give {schema['minimum']} or more.")
    if value > schema.get("maximum", math.inf):
        raise Unfit(f"{where} is too large; give {schema['maximum']} or less.")


def _members(schema: Schema, value: dict[str, Any], where: str) -> dict[str, Any]:
    inside = "" if where == "The body" else f"{where}."
    for name in schema.get("required", ()):
        if value.get(name) is None:
            raise Unfit(f"{inside}{name} is missing; give it.")
    made = {}
    for name, each in value.items():
        known = schema["properties"].get(name)
        if known is None:
            made[name] = each
        elif each is not None:
            made[name] = fitting(known, each, inside + name)
    return made


def _chosen(schemas: list[Schema], value: Any, where: str) -> Schema:
    """By objectType: the error is then about what was meant."""
    words = []
    for schema in schemas:
        (word,) = schema["properties"]["objectType"]["enum"]
        if isinstance(value, dict) and value.get("objectType") == word:
            return schema
        words.append(word)
    if not isinstance(value, dict):
        raise Unfit(f"{where} is not an object; give an object.")
    raise Unfit(f"objectType is none of {', '.join(words)}; give one of them.")


def _any(schemas: list[Schema], value: Any, where: str) -> Any:
    for schema in schemas:
        try:
            return fitting(schema, value, where)
        except Unfit:
            continue
    raise Unfit(f"{where} is neither number, text, true, false nor a point; give one of them.")
