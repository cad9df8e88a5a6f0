"""The meter store: readings, which are secret, until their interval is closed and purged.

    with open_meters("/var/lib/hushgrid/meters.db") as meters:
        meters.open_zone("elm-street", ["m1", "m2"], 900)
        meters.put("elm-street", house=[0, 1], start=[0, 0], duration=[900, 900], wh=[120, 80])
        meters.close("elm-street", 0)
        readings = meters.get("elm-street", 0)

docs/stores.md describes it.
"""

from __future__ import annotations

import os
from pathlib import Path

from hushgrid.stores.meters.columns import Counts, Interval
from hushgrid.stores.meters.store import MeterStore

__all__ = ["Counts", "Interval", "MeterStore", "open_meters"]


def open_meters(place: str | os.PathLike[str], keys: Path | None = None) -> MeterStore:
    """Open a meter store.

    Args:
        place: A path (for one process at a time), `sqlite:///path` or
            `postgresql://user@host/name`. A folder holds the file `meters.db`.
        keys: Folder of the keys that seal sizes of noise; None: next to an SQLite file.

    Returns:
        The store, a context manager.

    Raises:
        MeterError: The scheme is unknown, or the store cannot be opened.
        ExtraError: psycopg is needed and not installed.
    """
    store = MeterStore(place, keys=keys)
    store.open()
    return store
