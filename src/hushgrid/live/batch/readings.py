"""Where the readings of a batch lie: Parquet files, folders of them, object storage, a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import ibis

from hushgrid.errors import BatchError
from hushgrid.live.batch.engines import Engine, asking
from hushgrid.live.batch.expression import canonical, joined, within
from hushgrid.live.batch.footers import Footer, Schema, footer_of


class BatchSource(Protocol):
    """Some of the readings."""

    def near(self, first: int, end: int) -> Any:
        """Those that start from `first` to `end` [epoch s], as a table of the engine."""


class BatchReadings:
    """All readings of a batch."""

    def __init__(self, sources: Sequence[BatchSource]) -> None:
        self._sources = sources

    def near(self, first: int, end: int) -> Any:
        """Those that start from `first` to `end` [epoch s], as one table of the engine."""
        return joined([source.near(first, end) for source in self._sources])


class _EngineTable:
    """What the engine has a name for."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def near(self, first: int, end: int) -> Any:
        return within(self._table, first, end)


class _Files:
    """Files of one schema. What their footers say is not asked of each reading."""

    def __init__(self, engine: Engine, files: Sequence[Footer]) -> None:
        self._engine, self._files = engine, files
        self._all = self._read(files)

    def near(self, first: int, end: int) -> Any:
        some = [one for one in self._files if one.meets(first, end)] or self._files[:1]
        table = self._all if len(some) == len(self._files) else self._read(some)
        [duration, *others] = {one.duration for one in some}
        if duration is not None and not others:
            table = table.mutate(duration_s=ibis.literal(duration, table.duration_s.type()))
        if all(one.lies_within(first, end) for one in some):
            return table
        return within(table, first, end)

    def _read(self, files: Sequence[Footer]) -> Any:
        paths = [one.path for one in files]
        with asking(self._engine, paths[0]):
            return canonical(self._engine.parquet(paths), paths[0])


def open_readings(engine: Engine, places: Sequence[str]) -> BatchReadings:
    """All readings of the places.

    A place is a file, a folder, a pattern such as day/*.parquet, a URL such as s3://bucket/day/, or
    table:NAME. Files may differ in the width of their columns and in further ones.
    """
    sources = list[BatchSource]()
    for place in places:
        if place.startswith("table:"):
            name = place.removeprefix("table:")
            with asking(engine, f"table {name}"):
                sources.append(_EngineTable(canonical(engine.table(name), f"table {name}")))
        elif "://" in place and not place.startswith("file://"):
            with asking(engine, place):
                sources.append(_EngineTable(canonical(engine.parquet([place]), place)))
        else:
            sources += _by_schema(engine, place)
    if not sources:
        raise BatchError("readings is empty; give a file, a folder, a URL or table:NAME.")
    return BatchReadings(sources)


def _by_schema(engine: Engine, place: str) -> Iterator[_Files]:
    found: dict[Schema, list[Footer]] = {}
    for path in _paths(place):
        footer = footer_of(path)
        found.setdefault(footer.schema, []).append(footer)
    for files in found.values():
        yield _Files(engine, files)


def _paths(place: str) -> list[Path]:
    path = Path(place.removeprefix("file://"))
    if path.is_dir():
        found = sorted(path.rglob("*.parquet"))
    elif path.exists():
        found = [path]
    else:
        found = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    if not found:
        raise BatchError(f"readings at {place} are not there; give Parquet files or their folder.")
    return [one.absolute() for one in found]
