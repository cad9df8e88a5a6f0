"""The OpenAPI description of what is served, made from the tables that the service runs on."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from hushgrid.live.access.grants import OPENADR
from hushgrid.live.vtn.schemas import ANSWERS, OBJECT_ID, REQUESTS, Schema, listed, reference
from hushgrid.live.vtn.table import OPERATIONS, Operation

_ERRORS = {
    "400": "not as the schema has it", "401": "no token, or one that is not good",
    "403": "not for this client", "404": "there is none that you may see",
    "409": "the name is in use", "413": "too large", "503": "away for now",
}  # fmt: skip


@cache
def description(base: str) -> dict[str, Any]:
    """The whole description; `base` is where it is served."""
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        path = paths.setdefault(one.path, _path(one.path))
        path[one.method.lower()] = _operation(one)
    paths["/auth/server"] = {
        "get": {"operationId": "getAuthServerInfo", "responses": _answers("authServerInfo", ())}
    }
    paths["/auth/token"] = {"post": _token()}
    flow = {
        "tokenUrl": f"{base}/auth/token",
        "scopes": {name: name.replace("_", " ") for name in (*OPENADR, "operate")},
    }
    oauth = {"type": "oauth2", "flows": {"clientCredentials": flow}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "hushgrid: OpenADR 3.1.0 VTN", "version": "3.1.0"},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {"schemas": REQUESTS | ANSWERS, "securitySchemes": {"oauth2": oauth}},
    }


def _path(path: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    if not names:
        return {}
    given = [{"name": n, "in": "path", "required": True, "schema": OBJECT_ID} for n in names]
    return {"parameters": given}


def _operation(one: Operation) -> dict[str, Any]:
    errors = ["401", "403", "503"]
    errors += ["404"] * ("{" in one.path or "topics" in one.path)
    errors += ["400"] * bool(one.query or one.body)
    errors += ["409", "413", "404"] * (one.body is not None)
    made: dict[str, Any] = {"operationId": one.name}
    if one.query:
        made["parameters"] = [
            {"name": name, "in": "query", "schema": schema} for name, schema in one.query
        ]
    if one.body is not None:
        content = {"application/json": {"schema": reference(one.body)}}
        made["requestBody"] = {"required": True, "content": content}
    if one.closed:
        made["responses"] = _errors(errors)
    else:
        made["responses"] = _answers(one.answer, errors, one.status, many=one.many)
        needed = [{"oauth2": [scope]} for scope in one.scopes]
        made["security"] = [{}, *needed] if one.public else needed
    return made


def _answers(name: str, errors: Any, status: int = 200, *, many: bool = False) -> dict[str, Any]:
    schema: Schema = listed(reference(name)) if many else reference(name)
    content = {"application/json": {"schema": schema}}
    return {str(status): {"description": name, "content": content}} | _errors(errors)


def _errors(codes: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": reference("problem")}}
    return {code: {"description": _ERRORS[code], "content": content} for code in sorted(codes)}


def _token() -> dict[str, Any]:
    text = {"type": "string", "maxLength": 4096}
    form = {
        "type": "object",
        "required": ["grant_type"],
        "properties": {
            "grant_type": {"type": "string", "enum": ["client_credentials"]},
            "client_id": text,
            "client_secret": text,
            "scope": text,
        },
    }
    wrong = {"application/json": {"schema": reference("authError")}}
    told = {code: {"description": _ERRORS[code], "content": wrong} for code in ("400", "401")}
    return {
        "operationId": "fetchToken",
        "requestBody": {
            "required": True,
            "content": {"application/x-www-form-urlencoded": {"schema": form}},
        },
        "responses": _answers("clientCredentialResponse", ["413", "503"]) | told,
    }
