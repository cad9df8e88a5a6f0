"""Meter stores: readings, which are secret, until their interval is closed and purged.

    with open_meters("/var/lib/hushgrid/meters") as meters:
        meters.open_zone("elm-street", ["m1", "m2"], 900)
        meters.put("elm-street", house=[0, 1], start=[0, 0], duration=[900, 900], wh=[120, 80])
        meters.close("elm-street", 0)
        readings = meters.get("elm-street", 0)

docs/meter-store.md says which store to choose.
"""

from __future__ import annotations

import os

from hushgrid.errors import MeterError
from hushgrid.service.meters.ports import Counts, Interval, MeterStore

__all__ = ["Counts", "Interval", "MeterStore", "open_meters"]


def open_meters(place: str | os.PathLike[str]) -> MeterStore:
    """Open a meter store.

    Args:
        place: A folder, `sqlite:///path` or `postgresql://user@host/name`.

    Returns:
        The store, a context manager.

    Raises:
        MeterError: The scheme is unknown, or the store cannot be opened.
    """
    text = os.fspath(place)
    scheme, found, rest = text.partition("://")
    if not found:
        from hushgrid.service.meters.folder import SegmentMeters

        return SegmentMeters(text)
    if scheme in ("postgresql", "postgres"):
        from hushgrid.service.meters.postgres import PostgresMeters

        return PostgresMeters(text)
    if scheme == "sqlite" and rest.startswith("/"):
        from hushgrid.service.meters.sql import SqliteMeters

        return SqliteMeters(rest[1:])
    raise MeterError(
        f"meter store has scheme {scheme!r};"
        " give a folder, sqlite:///path or postgresql://user@host/name."
    )
