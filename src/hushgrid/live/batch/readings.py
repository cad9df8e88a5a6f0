"""Where the readings of a batch lie: Parquet files, folders of them, object storage, a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hushgrid.errors import BatchError
from hushgrid.live.batch.engines import Engine, asking
from hushgrid.live.batch.expression import COLUMNS, RECEIVED, canonical, joined


def open_readings(engine: Engine, places: Sequence[str]) -> Any:
    """All readings of the places as one table of the engine.

    A place is a file, a folder, a pattern such as day/*.parquet, a URL such as s3://bucket/day/, or
    table:NAME. Files may differ in the width of their columns and in further ones.
    """
    tables = []
    for place in places:
        if place.startswith("table:"):
            name = place.removeprefix("table:")
            with asking(engine, f"table {name}"):
                tables.append(canonical(engine.table(name), f"table {name}"))
        elif "://" in place and not place.startswith("file://"):
            with asking(engine, place):
                tables.append(canonical(engine.parquet([place]), place))
        else:
            tables += _from_files(engine, place)
    if not tables:
        raise BatchError("readings is empty; give a file, a folder, a URL or table:NAME.")
    return joined(tables)


def _from_files(engine: Engine, place: str) -> Iterator[Any]:
    """A table for each schema among the files."""
    by_schema: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for path in _files(place):
        by_schema.setdefault(_schema(path), []).append(str(path))
    for paths in by_schema.values():
        with asking(engine, paths[0]):
            yield canonical(engine.parquet(paths), paths[0])


def _files(place: str) -> list[Path]:
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


def _schema(path: Path) -> tuple[tuple[str, str], ...]:
    """The columns that are read, and their types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise BatchError(
            f"{path} is no sound Parquet file ({type(error).__name__}); write it again."
        ) from None
    for column in COLUMNS:
        if column not in schema.names:
            raise BatchError(f"{path} has no column {column}; give {', '.join(COLUMNS)}.")
    read = [column for column in (*COLUMNS, RECEIVED) if column in schema.names]
    return tuple((column, str(schema.field(column).type)) for column in read)
