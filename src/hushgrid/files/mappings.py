"""Mappings of columns: the built-in ones, each a file of this package, and those of TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from hushgrid.errors import IntakeError
from hushgrid.files.results import read_text
from hushgrid.intake.text import (
    CANONICAL,
    LOW_CARBON_LONDON,
    PECAN_STREET,
    ColumnMapping,
    perhaps,
)

_FOLDER = Path(__file__).parent / "mappings"
_TABLES = {"canonical": CANONICAL, "lcl": LOW_CARBON_LONDON, "pecan": PECAN_STREET}
BUILT_IN = (*_TABLES, *sorted(path.stem for path in _FOLDER.glob("*.toml")))
NO_MAPPINGS: Mapping[str, ColumnMapping] = {}

_LENGTH = ("duration", "duration_s", "end", "until")  # ways to say how long a reading is


def mapping_named(
    name: str, meter_id: str | None = None, mappings: Mapping[str, ColumnMapping] = NO_MAPPINGS
) -> ColumnMapping:
    """A built-in mapping, or one of a service file.

    Args:
        name: One of `BUILT_IN` or a key of `mappings`.
        meter_id: Id of the one meter of the input.
        mappings: Mappings of a service file.

    Returns:
        The mapping.

    Raises:
        IntakeError: If there is no such mapping.

    >>> mapping_named("lcl").meter
    'LCLid'
    """
    if name not in BUILT_IN and name not in mappings:
        names = ", ".join([*BUILT_IN, *mappings])
        raise IntakeError(f"mapping is {name[:40]!r}; give one of {names}.")
    mapping = mappings[name] if name in mappings else _built_in(name)
    return mapping if meter_id is None else replace(mapping, meter_id=meter_id)


@cache
def _built_in(name: str) -> ColumnMapping:
    return _TABLES.get(name) or _of_file(_FOLDER / f"{name}.toml")


def mapping_of(
    name: str, meter_id: str | None = None, mappings: Mapping[str, ColumnMapping] = NO_MAPPINGS
) -> ColumnMapping:
    """A mapping by its name, or that of a TOML file with the fields of `ColumnMapping`.

    A file may name a built-in mapping as `base` and give only what differs. What it says of the
    length of readings is in place of what the base says of it.

    Args:
        name: Name, or path of a file that ends in .toml.
        meter_id: Id of the one meter of the input.
        mappings: Mappings of a service file.

    Returns:
        The mapping.

    Raises:
        IntakeError: If there is no such mapping, or a field of the file is unknown or not usable.
        FileError: If the file cannot be read.
    """
    if not name.endswith(".toml"):
        return mapping_named(name, meter_id, mappings)
    return _of_file(Path(name), {} if meter_id is None else {"meter_id": meter_id})


def _of_file(path: Path, overrides: Mapping[str, Any] = NO_MAPPINGS) -> ColumnMapping:
    names = {field.name for field in fields(ColumnMapping)} - {"registers"}
    try:
        table = tomllib.loads(read_text(path))
        base = table.pop("base", None)
        for key in table:
            if key not in names:
                raise IntakeError(
                    f"field {key!r} is unknown{perhaps(key, names)}; give base or"
                    f" {', '.join(sorted(names))}."
                )
        for rule in ("only", "fed_in"):
            if isinstance(table.get(rule), dict):
                table[rule] = [[key, texts] for key, texts in table[rule].items()]
        changes = {key: _tuple(value) for key, value in table.items()} | dict(overrides)
        if not base:
            return ColumnMapping(**changes)
        return replace(mapping_named(str(base)), **_defaults(changes), **changes)
    except (tomllib.TOMLDecodeError, IntakeError, TypeError, ValueError) as error:
        raise IntakeError(f"mapping {path}: {error}") from None


def _defaults(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a base that do not hold beside what a file says of the length of readings."""
    if not any(name in changes for name in _LENGTH):
        return {}
    depending = {*_LENGTH, "duration_unit", "end_date", "end_shift_s"}
    if "end" in changes or "until" in changes:
        depending.add("marks")
    return {
        field.name: field.default
        for field in fields(ColumnMapping)
        if field.name in depending and field.name not in changes
    }


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
