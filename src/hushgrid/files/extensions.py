"""Feeds, intake formats and publishers, found by entry point; those of hushgrid are no exception.

| group | object | example |
|---|---|---|
| `hushgrid.feeds` | a `web.prices.Feed` | docs/extend.md |
| `hushgrid.intake` | an `intake.text.Format` | docs/extend.md |
| `hushgrid.publishers` | a function of `Deployment` and client id | `web.mqtt.open_prices` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from hushgrid.errors import ServiceError

OWN = "hushgrid."


@cache
def extensions(group: str) -> tuple[Any, ...]:
    """Load the objects of a group of entry points.

    Args:
        group: Name of the group.

    Returns:
        The objects, those of hushgrid first, then by name.

    Raises:
        ServiceError: If one cannot be loaded, or hushgrid is not installed.
    """
    entries = sorted(
        entry_points(group=group), key=lambda entry: (not _is_built_in(entry.value), entry.name)
    )
    if not any(_is_built_in(entry.value) for entry in entries):
        raise ServiceError(
            f"entry points {group} are missing; install hushgrid (pip install hushgrid)."
        )
    objects = []
    for entry in entries:
        try:
            objects.append(entry.load())
        except Exception as error:
            raise ServiceError(
                f"extension {entry.name} ({entry.value}) of {group} cannot be loaded"
                f" ({type(error).__name__}: {error}); correct it or uninstall it."
            ) from error
    return tuple(objects)


def _is_built_in(value: str) -> bool:
    return value.startswith(OWN)


def by_key(group: str, keys: Callable[[Any], Iterable[str]]) -> dict[str, Any]:
    """Load the objects of a group by keys that differ.

    Args:
        group: Name of the group.
        keys: The keys of an object.

    Returns:
        Object by key.

    Raises:
        ServiceError: As `extensions`, or if two objects have the same key.
    """
    objects: dict[str, Any] = {}
    for extension in extensions(group):
        for key in keys(extension):
            if key in objects:
                raise ServiceError(
                    f"two extensions of {group} have {key!r}; give one of them another, or"
                    " uninstall it."
                )
            objects[key] = extension
    return objects
