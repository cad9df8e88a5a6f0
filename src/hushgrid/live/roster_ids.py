"""The meter of every house, from the groups of a service file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hushgrid.checks import is_whole
from hushgrid.errors import FileError
from hushgrid.files import read_text
from hushgrid.tables import Faults, Table, known, shown

_LONGEST = 128  # characters of an id


def meter_ids(groups: Sequence[Table], folder: Path, faults: Faults) -> tuple[str, ...]:
    """One id for each house, in house order; what is wrong with them goes to the faults."""
    found: list[str] = []
    places: dict[str, str] = {}
    for i, group in enumerate(groups):
        place = f"houses[{i}]."
        counted = not faults.at(f"{place}count")
        count = group["count"] if counted else 1
        key, ids = _of_group(group, place, count, folder, faults)
        if ids is None:
            continue
        if len(ids) != count and counted:
            faults.add(
                key, f"{key} has {len(ids)} ids for {count} houses; give one id for each house."
            )
        _check_unique(ids, key, places, faults)
        found += ids
    return tuple(found)


def _of_group(
    group: Table, place: str, count: int, folder: Path, faults: Faults
) -> tuple[str, list[str] | None]:
    """The key the ids come from, and the ids."""
    key = f"{place}meters"
    if ("meters" in group) == ("meters_file" in group):
        state = "both set" if "meters" in group else "both unset"
        said = f"{key} and meters_file are {state}; give one of them."
        faults.add(key, said, f"{place}meters_file")
        return key, None
    if "meters_file" in group:
        key = f"{place}meters_file"
        return key, _checked(_from_file(group["meters_file"], key, folder, faults), key, faults)
    given = group["meters"]
    if isinstance(given, Mapping):
        return key, _checked(_numbered(given, key, count, faults), key, faults)
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        faults.add(
            key,
            f'{key} is {shown(given)}; give a list of ids, or {{prefix = "elm-", first = 1}}.',
        )
        return key, None
    return key, _checked(given, key, faults)


def _from_file(name: Any, key: str, folder: Path, faults: Faults) -> list[str] | None:
    if not isinstance(name, str) or not name.isprintable():
        faults.add(key, f"{key} is {shown(name)}; give the path of a file with one id a line.")
        return None
    try:
        lines = read_text(folder / name).splitlines()
    except FileError as error:
        faults.add(key, f"{key}: {error}")
        return None
    return [line.strip() for line in lines if line.strip()]


def _numbered(given: Table, key: str, count: int, faults: Faults) -> list[str] | None:
    if not known(given, f"{key}.", {"prefix", "first"}, {"first"}, faults):
        return None
    prefix, first = given["prefix"], given.get("first", 1)
    if not isinstance(prefix, str):
        faults.add(f"{key}.prefix", f"{key}.prefix is {shown(prefix)}; give a text.")
        return None
    if not is_whole(first) or isinstance(first, float) or not 0 <= first < 2**62:
        faults.add(f"{key}.first", f"{key}.first is {shown(first)}; give a whole number.")
        return None
    return [f"{prefix}{number:04d}" for number in range(first, first + count)]


def _checked(ids: list[str] | None, key: str, faults: Faults) -> list[str] | None:
    """The ids, if each of them can be one."""
    for one in ids or ():
        if not one or len(one) > _LONGEST or not one.isprintable() or one != one.strip():
            faults.add(
                key,
                f"{key} holds {shown(one)}; give ids of 1 to {_LONGEST} printed characters,"
                " without spaces around them.",
            )
            return None
    return ids


def _check_unique(ids: Sequence[str], key: str, places: dict[str, str], faults: Faults) -> None:
    for one in ids:
        if one in places:
            faults.add(
                key,
                f"{key} holds {shown(one)} twice (also in {places[one]}); give each house its own"
                " meter.",
            )
            return
        places[one] = key
