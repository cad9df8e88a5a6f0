"""Holds an answer against the standard's description (where it is at hand) and against our own.

The standard contradicts itself in two places that no server can follow: a ven's and a resource's
objectType would have to be two words at once, and a ven's name that is taken has no answer.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import yaml
from jsonschema import Draft4Validator, Draft202012Validator

from hushgrid.curator.clock import SystemClock
from hushgrid.web.openadr.app import make_vtn
from hushgrid.web.openadr.objects import PublicObjects
from hushgrid.web.prices import History

STANDARD = Path(__file__).parents[4] / "shared" / "spec" / "openadr-3.1.0.yaml"
_VALIDATORS: dict[tuple[int, str], Any] = {}
TRANSPORT = {405, 408, 413, 503}  # HTTP's own answers, on any path


@cache
def standard() -> dict[str, Any] | None:
    if not STANDARD.is_file():
        return None
    found: dict[str, Any] = _plain(yaml.safe_load(STANDARD.read_text()))
    schemas = found["components"]["schemas"]
    for name in ("BlVenRequest", "BlResourceRequest"):
        schemas[name]["properties"]["objectType"].pop("enum")
    conflict = {"$ref": "#/components/responses/conflict"}
    found["paths"]["/vens"]["post"]["responses"]["409"] = conflict
    for path in found["paths"].values():  # an anonymous reader is one that the standard forgot
        for operation in path.values():
            if isinstance(operation, dict):
                refused = {"$ref": "#/components/responses/forbidden"}
                operation["responses"].setdefault("403", refused)
                operation["responses"].setdefault(
                    "401", {"$ref": "#/components/responses/unauthorized"}
                )
    return found


@cache
def ours(*, anonymous: bool = True) -> dict[str, Any]:
    public, none = PublicObjects(History(()), SystemClock()), cast(Any, None)
    return make_vtn(public, none, none, anonymous=anonymous).openapi()


class Operation(NamedTuple):
    """A route as the description has it."""

    name: str
    method: str
    path: str
    scopes: tuple[str, ...]
    public: bool
    closed: bool
    query: frozenset[str]
    body: bool


def operations() -> list[Operation]:
    made = []
    for path, item in ours(anonymous=False)["paths"].items():
        for method, one in item.items():
            public = "security" not in ours()["paths"][path][method]
            closed = not any(status.startswith("2") for status in one["responses"])
            asked = one.get("parameters", ())
            made.append(
                Operation(
                    one["operationId"],
                    method.upper(),
                    path,
                    tuple(scope for each in one.get("security", ()) for scope in each["oauth2"]),
                    public and not closed,
                    closed,
                    frozenset(each["name"] for each in asked if each["in"] == "query"),
                    "requestBody" in one,
                )
            )
    return [one for one in made if not one.path.startswith("/auth")]


def _plain(node: Any) -> Any:
    """Without discriminators (they have no mapping), with null as a type."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    made = {name: _plain(each) for name, each in node.items() if name != "discriminator"}
    if made.pop("nullable", False) is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    return made


def judged(answer: httpx.Response, path: str) -> None:
    """Every answer is JSON of its schema, whatever was asked."""
    if answer.request.method == "HEAD":
        return
    assert answer.headers["content-type"] == "application/json", answer.headers
    path = path.partition("?")[0]
    for book in (ours(), standard()):
        if book is not None:
            check(book, schema_of(book, answer, path), answer.json())


def schema_of(book: dict[str, Any], answer: httpx.Response, path: str) -> dict[str, Any]:
    method, status = answer.request.method.lower(), answer.status_code
    problem = {"$ref": f"#/components/schemas/{'Problem' if book is ours() else 'problem'}"}
    for template, item in book["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path) and "{" not in path:
            operation = item.get(method)
            if operation is None or status in TRANSPORT:
                assert status in TRANSPORT, (method, path, status)
                return problem
            found = operation["responses"][str(status)]
            if "$ref" in found:
                found = book["components"]["responses"][found["$ref"].rpartition("/")[2]]
            (content,) = found["content"].values()
            schema: dict[str, Any] = content["schema"]
            return schema
    assert status in (404, 405), (method, path, status)
    return problem


def check(book: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    key = (id(book), json.dumps(schema, sort_keys=True))
    if key not in _VALIDATORS:
        root = {"allOf": [schema], "components": book["components"]}
        judge = Draft202012Validator if book is ours() else Draft4Validator
        _VALIDATORS[key] = judge(root, format_checker=judge.FORMAT_CHECKER)
    for error in _VALIDATORS[key].iter_errors(value):
        raise error


def check_as(name: str, value: Any) -> None:
    """Hold a value against a schema of the standard and of ours, where they have it."""
    for book, known in ((ours(), name[0].upper() + name[1:]), (standard(), name)):
        if book is not None and known in book["components"]["schemas"]:
            check(book, {"$ref": f"#/components/schemas/{known}"}, value)
