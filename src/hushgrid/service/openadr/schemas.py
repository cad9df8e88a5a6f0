"""JSON schemas of OpenADR requests and answers, and the validation of requests by them.

Requests are validated by the schemas that the served description contains. Unnamed members are
kept as they are; an optional member may be null, which means absent. An error message names the
member and what it should be, never its value, which may be a household's usage.
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
# a host and a port, no user; `webhooks` checks the addresses behind them
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
    """Refer to a schema of the description.

    Args:
        name: its key under components/schemas.

    Returns:
        The reference as a schema.
    """
    return {"$ref": f"#/components/schemas/{name}"}


def array_of(items: Schema) -> Schema:
    """Make the schema of an array.

    Args:
        items: schema of each element.

    Returns:
        The schema.
    """
    return {"type": "array", "items": items}


def object_of(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Make the schema of an object.

    Args:
        required: members that must be present, by name.
        optional: members that may be absent or null, by name.

    Returns:
        The schema.
    """
    could = {name: {**schema, "nullable": True} for name, schema in (optional or {}).items()}
    made: Schema = {"type": "object", "properties": required | could}
    return made | ({"required": list(required)} if required else {})


def enum_of(*words: str) -> Schema:
    """Make the schema of an enumeration.

    Args:
        words: the allowed texts.

    Returns:
        The schema.
    """
    return {"type": "string", "enum": list(words)}


POINT = object_of({"x": {"type": "number"}, "y": {"type": "number"}})
VALUES = array_of({"anyOf": [{"type": "number"}, TEXT, {"type": "boolean"}, POINT]})
VALUES_MAP = object_of({"type": NAME, "values": VALUES})
PERIOD = object_of({}, {"start": DATE_TIME, "duration": DURATION, "randomizeStart": DURATION})
INTERVAL = object_of(
    {"id": {"type": "integer"}, "payloads": array_of(VALUES_MAP)}, {"intervalPeriod": PERIOD}
)
EVENT_DESCRIPTOR = object_of(
    {"objectType": enum_of("EVENT_PAYLOAD_DESCRIPTOR"), "payloadType": NAME},
    {"units": NAME, "currency": TEXT},
)
REPORT_DESCRIPTOR = object_of(
    {"objectType": enum_of("REPORT_PAYLOAD_DESCRIPTOR"), "payloadType": NAME},
    {
        "readingType": NAME,
        "units": NAME,
        "accuracy": {"type": "number"},
        "confidence": {"type": "integer", "minimum": 0, "maximum": 100},
    },
)
TARGETS, ATTRIBUTES = array_of(NAME), array_of(VALUES_MAP)
OPERATION = object_of(
    {
        "objects": array_of(enum_of(*KINDS)),
        "operations": array_of(enum_of("READ", "CREATE", "UPDATE", "DELETE")),
        "callbackUrl": CALLBACK,
    },
    {"bearerToken": {"type": "string", "pattern": "^[!-~]*$", "maxLength": 4096}},
)
REPORTED = object_of(
    {"resourceName": NAME, "intervals": array_of(INTERVAL)}, {"intervalPeriod": PERIOD}
)

REQUESTS: dict[str, Schema] = {
    "reportRequest": object_of(
        {"eventID": OBJECT_ID, "clientName": NAME, "resources": array_of(REPORTED)},
        {
            "programID": OBJECT_ID,
            "reportName": TEXT,
            "payloadDescriptors": array_of(REPORT_DESCRIPTOR),
        },
    ),
    "subscriptionRequest": object_of(
        {"clientName": NAME, "objectOperations": array_of(OPERATION)},
        {"programID": OBJECT_ID, "targets": TARGETS},
    ),
    "venRequest": {
        "oneOf": [
            object_of(
                {"objectType": enum_of("VEN_VEN_REQUEST"), "venName": NAME},
                {"attributes": ATTRIBUTES},
            ),
            object_of(
                {"objectType": enum_of("BL_VEN_REQUEST"), "clientID": NAME, "venName": NAME},
                {"attributes": ATTRIBUTES, "targets": TARGETS},
            ),
        ]
    },
    "resourceRequest": {
        "oneOf": [
            object_of(
                {
                    "objectType": enum_of("VEN_RESOURCE_REQUEST"),
                    "resourceName": NAME,
                    "venID": OBJECT_ID,
                },
                {"attributes": ATTRIBUTES},
            ),
            object_of(
                {
                    "objectType": enum_of("BL_RESOURCE_REQUEST"),
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
        "objectType": enum_of(kind),
    }
    return object_of(metadata | required, nullable)


ANSWERS: dict[str, Schema] = {
    "program": _answer(
        "PROGRAM",
        {
            "programName": NAME,
            "payloadDescriptors": array_of(EVENT_DESCRIPTOR),
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
            "payloadDescriptors": array_of(EVENT_DESCRIPTOR),
            "intervalPeriod": object_of({"start": DATE_TIME, "duration": DURATION}),
            "intervals": array_of(INTERVAL),
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
    "authServerInfo": object_of({"tokenURL": {"type": "string", "format": "uri"}}),
    "clientCredentialResponse": object_of(
        {
            "access_token": TEXT,
            "token_type": enum_of("Bearer"),
            "expires_in": {"type": "integer"},
            "scope": TEXT,
        }
    ),
    "authError": object_of({"error": TEXT, "error_description": TEXT}),
    "problem": object_of(
        {
            "type": TEXT,
            "title": TEXT,
            "status": {"type": "integer", "minimum": 100, "maximum": 599},
            "detail": TEXT,
        }
    ),
    "notifiersResponse": object_of(
        {"WEBHOOK": {"type": "boolean"}},
        {
            "MQTT": object_of(
                {
                    "URIS": array_of(TEXT),
                    "serialization": enum_of("JSON"),
                    "authentication": object_of({"method": enum_of("ANONYMOUS")}),
                }
            )
        },
    ),
    "notifierTopicsResponse": object_of(
        {"topics": object_of({"UPDATE": TEXT, "DELETE": TEXT}, {"CREATE": TEXT})}
    ),
}
for _name in ("report", "subscription"):  # optional in a request, optional in an answer
    _needs = {"id", "createdDateTime", "modificationDateTime", "objectType", "clientID"}
    ANSWERS[_name]["required"] = sorted(_needs | set(REQUESTS[f"{_name}Request"]["required"]))


# ---- validation, by the keywords that the schemas above use

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


class SchemaError(ValueError):
    """A body or parameter that does not match its schema; the text names the member and the fix."""


def parse_json(body: bytes) -> Any:
    """Parse a JSON text with finite numbers and limited nesting.

    Args:
        body: the bytes of a request.

    Returns:
        The value.

    Raises:
        SchemaError: if it is no JSON, holds an infinite number or is nested too deeply.
    """
    try:
        value = json.loads(body, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise SchemaError("The body is nested too deeply; send a flat one.") from None
    except ValueError:
        raise SchemaError("The body is not JSON; send a JSON object.") from None
    if _depth(value) > DEEPEST:
        raise SchemaError("The body is nested too deeply; send a flat one.")
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


def validate(schema: Schema, value: Any, where: str = "") -> Any:
    """Validate a value by a schema.

    Args:
        schema: one of this module.
        value: parse_json JSON.
        where: path of the value in messages; empty for the body itself.

    Returns:
        The value, without optional members that are null.

    Raises:
        SchemaError: if it does not match.

    >>> validate({"type": "integer", "minimum": 0}, -1, "priority")
    Traceback (most recent call last):
    hushgrid.service.openadr.schemas.SchemaError: priority is too small; give 0 or more.
    """
    where = where or "The body"
    if "oneOf" in schema:
        return validate(_chosen(schema["oneOf"], value, where), value, where)
    if "anyOf" in schema:
        return _any(schema["anyOf"], value, where)
    value = _of_type(schema["type"], value, where)
    if "enum" in schema and value not in schema["enum"]:
        raise SchemaError(f"{where} is none of {', '.join(schema['enum'])}; give one of them.")
    if isinstance(value, str):
        _check_text(schema, value, where)
    elif isinstance(value, list):
        items = schema["items"]
        return [validate(items, each, f"{where}[{i}]") for i, each in enumerate(value)]
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
        raise SchemaError(f"{where} is not {article} {kind}; give {article} {kind}.")
    return value


def _check_text(schema: Schema, value: str, where: str) -> None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if not least <= len(value) <= most:
        raise SchemaError(f"{where} has {len(value)} characters; give {least} to {most}.")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value, re.ASCII):
        raise SchemaError(f"{where} is not of the form {schema['pattern']}; give one that is.")
    if schema.get("format") == "date-time" and not _is_time(value):
        raise SchemaError(f"{where} is no date and time; give one such as 2026-01-31T12:00:00Z.")


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
        raise SchemaError(f"{where} is too small; give {schema['minimum']} or more.")
    if value > schema.get("maximum", math.inf):
        raise SchemaError(f"{where} is too large; give {schema['maximum']} or less.")


def _members(schema: Schema, value: dict[str, Any], where: str) -> dict[str, Any]:
    inside = "" if where == "The body" else f"{where}."
    for name in schema.get("required", ()):
        if value.get(name) is None:
            raise SchemaError(f"{inside}{name} is missing; give it.")
    made = {}
    for name, each in value.items():
        known = schema["properties"].get(name)
        if known is None:
            made[name] = each
        elif each is not None:
            made[name] = validate(known, each, inside + name)
    return made


def _chosen(schemas: list[Schema], value: Any, where: str) -> Schema:
    """Choose by objectType, so that an error is about the intended schema."""
    words = []
    for schema in schemas:
        (word,) = schema["properties"]["objectType"]["enum"]
        if isinstance(value, dict) and value.get("objectType") == word:
            return schema
        words.append(word)
    if not isinstance(value, dict):
        raise SchemaError(f"{where} is not an object; give an object.")
    raise SchemaError(f"objectType is none of {', '.join(words)}; give one of them.")


def _any(schemas: list[Schema], value: Any, where: str) -> Any:
    for schema in schemas:
        try:
            return validate(schema, value, where)
        except SchemaError:
            continue
    raise SchemaError(
        f"{where} is neither number, text, true, false nor a point; give one of them."
    )
