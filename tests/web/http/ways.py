"""The operations that an app describes."""

from __future__ import annotations

from typing import NamedTuple

from hushgrid.web.http.app import App


class Way(NamedTuple):
    """A method on a path, and the scopes of which one is needed."""

    method: str
    path: str
    scopes: tuple[str, ...]
    session: bool


def ways(app: App) -> list[Way]:
    return [
        Way(
            method.upper(),
            path,
            tuple(scope for each in one.get("security", []) for scope in each.get("bearer", [])),
            any("session" in each for each in one.get("security", [])),
        )
        for path, methods in app.openapi()["paths"].items()
        for method, one in methods.items()
    ]
