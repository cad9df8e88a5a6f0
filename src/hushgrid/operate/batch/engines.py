"""Engines of a batch: from a URL to an ibis backend, and the readings that it scans.

    duckdb, duckdb:///file.db           in this process; ?threads=2&memory_limit=2GB and the like
    spark:local-cluster[2,1,1024]       any Spark master; ?spark.executor.memory=4g and the like
    trino://..., postgres://...         whatever ibis.connect takes

Readings are Parquet files, folders of them, object storage, or a table. Statistics in the footer
of a Parquet file replace checks of each row.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import ibis

from hushgrid.errors import BatchError, ExtraError, HushgridError
from hushgrid.operate.batch._expression import COLUMNS, RECEIVED, canonical, joined, within

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Schema = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet file's footer says of its readings.

    Attributes:
        path: The file.
        schema: The columns that are read and their types.
        first: Earliest start [UTC s]; None: not known.
        last: Latest start [UTC s]; None: not known.
        duration: Duration of all readings [s]; None: they differ, or it is not known.
        full: Whether no start and no Wh is missing.
    """

    path: str
    schema: Schema
    first: int | None
    last: int | None
    duration: int | None
    full: bool

    def meets(self, first: int, end: int) -> bool:
        """Whether a reading may start from `first` to before `end` [UTC s]."""
        if self.first is None or self.last is None:
            return True
        return self.last >= first and self.first < end

    def lies_within(self, first: int, end: int) -> bool:
        """Whether every row is a reading that starts from `first` to before `end` [UTC s]."""
        if self.first is None or self.last is None:
            return False
        return self.full and self.first >= first and self.last < end


def footer_of(path: Path) -> Footer:
    """The footer of a Parquet file.

    Args:
        path: The file.

    Returns:
        What it says of the readings.

    Raises:
        BatchError: The file is no Parquet file, or a column is missing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise BatchError(
            f"{path} is no sound Parquet file ({type(error).__name__}); write it again."
        ) from None
    for column in COLUMNS:
        if column not in schema.names:
            raise BatchError(f"{path} has no column {column}; give {', '.join(COLUMNS)}.")
    read = [column for column in (*COLUMNS, RECEIVED) if column in schema.names]
    kind = schema.field("wh").type
    starts, durations = _range(metadata, "start_utc"), _range(metadata, "duration_s")
    return Footer(
        str(path),
        tuple((column, str(schema.field(column).type)) for column in read),
        starts and starts[0],
        starts and starts[1],
        durations[0] if durations and durations[0] == durations[1] else None,
        # a float may be no number, which is as good as missing
        starts is not None and pa.types.is_integer(kind) and _is_full(metadata, "wh"),
    )


def _range(metadata: pq.FileMetaData, column: str) -> tuple[int, int] | None:
    """Least and largest value; None where a value or a statistic is missing."""
    low, high = [], []
    for statistics in _statistics(metadata, column):
        if statistics is None or statistics.null_count != 0 or not statistics.has_min_max:
            return None
        try:
            low.append(_number(statistics.min))
            high.append(_number(statistics.max))
        except (TypeError, ValueError, OverflowError):  # of a kind that has no such numbers
            return None
    return (min(low), max(high)) if low else None


def _is_full(metadata: pq.FileMetaData, column: str) -> bool:
    return all(
        statistics is not None and statistics.has_null_count and statistics.null_count == 0
        for statistics in _statistics(metadata, column)
    )


def _statistics(metadata: pq.FileMetaData, column: str) -> Iterator[Any]:
    """Statistics of each row group; None where the column is nested."""
    names = [metadata.schema.column(k).path for k in range(metadata.num_columns)]
    if column not in names:
        yield None
        return
    for k in range(metadata.num_row_groups):
        yield metadata.row_group(k).column(names.index(column)).statistics


def _number(value: Any) -> int:
    if isinstance(value, datetime):
        return math.floor((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, int):
        return value
    raise TypeError


MEMORY = "3GiB"  # of DuckDB, where the URL says nothing; what needs more goes to the disk
_NAMES = iter(range(1 << 62))  # of tables, in one process


class Engine:
    """An ibis backend, and what differs between backends.

    Args:
        backend: The ibis backend.
    """

    name = "engine"

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def put(self, table: pa.Table) -> Any:
        """Upload a table, for the time of the connection."""
        return self.backend.create_table(_name(), table, temp=True)

    def parquet(self, paths: Sequence[str]) -> Any:
        """Parquet files of one schema."""
        return self.backend.read_parquet(list(paths))

    def table(self, name: str) -> Any:
        """A table of the engine by its name."""
        return self.backend.table(name)

    def distinct(self, width: int) -> Callable[[Any], Any]:
        """An aggregate that counts distinct whole numbers from 0 to below `width`."""
        del width
        return lambda column: column.nunique()

    def close(self) -> None:
        """Disconnect."""
        self.backend.disconnect()


class DuckDb(Engine):
    """DuckDB in this process, on all cores."""

    name = "duckdb"

    def parquet(self, paths: Sequence[str]) -> Any:
        """Parquet files of one schema."""
        return self.backend.read_parquet(list(paths), hive_partitioning=False)

    def distinct(self, width: int) -> Callable[[Any], Any]:
        """By a bitmap, whose memory is known in advance."""

        @ibis.udf.agg.builtin  # type: ignore[untyped-decorator]
        def bitstring_agg(x: int, low: int, high: int) -> str:  # type: ignore[empty-body]
            """DuckDB's own."""

        @ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
        def bit_count(x: str) -> int:  # type: ignore[empty-body]
            """DuckDB's own."""

        return lambda column: bit_count(bitstring_agg(column, 0, width - 1)).fill_null(0)


class Spark(Engine):
    """A Spark session that this process started.

    Args:
        backend: The ibis backend.
        session: The Spark session.
    """

    name = "spark"

    def __init__(self, backend: Any, session: Any) -> None:
        super().__init__(backend)
        self._session = session

    def put(self, table: pa.Table) -> Any:
        """Upload a table, for the time of the connection."""
        name = _name()
        self._session.createDataFrame(table).createOrReplaceTempView(name)
        return self.backend.table(name)

    def parquet(self, paths: Sequence[str]) -> Any:
        """Parquet files of one schema."""
        name = _name()
        read = self._session.read.option("recursiveFileLookup", "true")
        read.parquet(*paths).createOrReplaceTempView(name)
        return self.backend.table(name)

    def distinct(self, width: int) -> Callable[[Any], Any]:
        """By a bitmap, which Spark has for 32,768 numbers; nothing of a house is shuffled."""
        del width  # a roster's is never more

        @ibis.udf.agg.builtin  # type: ignore[untyped-decorator]
        def bitmap_construct_agg(x: int) -> bytes:  # type: ignore[empty-body]
            """Spark's own."""

        @ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
        def bitmap_count(x: bytes) -> int:  # type: ignore[empty-body]
            """Spark's own."""

        return lambda column: bitmap_count(bitmap_construct_agg(column.cast("int64"))).fill_null(0)

    def close(self) -> None:
        """Stop the session."""
        self._session.stop()


def _name() -> str:
    return f"hushgrid_{os.getpid()}_{next(_NAMES)}"


def open_engine(url: str) -> Engine:
    """Open the engine of a URL.

    Args:
        url: duckdb, spark:MASTER, or a URL of ibis.

    Returns:
        The engine.

    Raises:
        BatchError: The URL is none of these, or the engine cannot be opened.
        ExtraError: It is not installed.
    """
    scheme = re.split("[^a-z0-9+]", url, maxsplit=1)[0]
    address = url.removeprefix(scheme).removeprefix(":")
    if scheme == "duckdb":
        return _duckdb(address.removeprefix("//"))
    if scheme == "spark":
        return _spark(url if address.startswith("//") else address)
    if not re.fullmatch(r"[a-z][a-z0-9+]*://.*", url):
        raise BatchError(
            f"engine is {scheme!r}; give duckdb, spark:MASTER such as spark:local[2], or a URL of"
            " ibis."
        )
    with _opening(scheme):
        return Engine(ibis.connect(url))


def _duckdb(address: str) -> DuckDb:
    place, options = _split(address)
    with _opening("duckdb"):
        settings = {"memory_limit": MEMORY, "preserve_insertion_order": "false", **options}
        backend = ibis.duckdb.connect(place or ":memory:", read_only=False, **settings)
        backend.raw_sql("SET TimeZone = 'UTC'")
        return DuckDb(backend)


def _spark(address: str) -> Spark:
    master, options = _split(address)
    with _opening("spark"):
        from pyspark.sql import SparkSession

        settings = {
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
        }
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings |= {"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "4"}
        builder = SparkSession.builder.appName("hushgrid batch")
        if master:
            builder = builder.master(master)
        for key, value in (settings | options).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        return Spark(ibis.pyspark.connect(session), session)


def _split(address: str) -> tuple[str, dict[str, str]]:
    place, _, query = address.partition("?")
    return place, dict(parse_qsl(query))


@contextmanager
def _opening(name: str) -> Iterator[None]:
    try:
        yield
    except HushgridError:
        raise
    except ImportError as error:
        extra = "spark" if name == "spark" else "batch"
        raise ExtraError(
            f"{error.name or name} is not installed; get it with pip install 'hushgrid[{extra}]'."
        ) from None
    except Exception as error:
        raise BatchError(
            f"engine {name} cannot be opened ({type(error).__name__}); look at its URL, and"
            " whether it runs."
        ) from None


@contextmanager
def engine_errors(engine: Engine, subject: str) -> Iterator[None]:
    """Turn any error of an engine into one sentence: its own text may hold a reading.

    Args:
        engine: The engine.
        subject: What it was asked for.

    Yields:
        Nothing.

    Raises:
        BatchError: The engine failed.
    """
    try:
        yield
    except HushgridError:
        raise
    except Exception as error:
        raise BatchError(
            f"engine {engine.name} failed at {subject} ({type(error).__name__}); nothing of it was"
            " published: run the same again."
        ) from None


@contextmanager
def engine_at(url: str) -> Iterator[Engine]:
    """An engine that is closed at the end.

    Args:
        url: As for `open_engine`.

    Yields:
        The engine.
    """
    engine = open_engine(url)
    try:
        yield engine
    finally:
        with suppress(Exception):
            engine.close()


class BatchSource(Protocol):
    """Some of the readings of a batch."""

    def near(self, first: int, end: int) -> Any:
        """Readings that start from `first` to before `end` [UTC s], as a table of the engine."""


class BatchReadings:
    """All readings of a batch.

    Args:
        sources: Where they are.
    """

    def __init__(self, sources: Sequence[BatchSource]) -> None:
        self._sources = sources

    def near(self, first: int, end: int) -> Any:
        """Readings that start from `first` to before `end` [UTC s], as one table."""
        return joined([source.near(first, end) for source in self._sources])


class _EngineTable:
    """A table that the engine has by name."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def near(self, first: int, end: int) -> Any:
        return within(self._table, first, end)


class _Files:
    """Files of one schema; what their footers say is not checked row by row."""

    def __init__(self, engine: Engine, files: Sequence[Footer]) -> None:
        self._engine, self._files = engine, files
        self._all = self._read(files)

    def near(self, first: int, end: int) -> Any:
        footers = [footer for footer in self._files if footer.meets(first, end)] or self._files[:1]
        table = self._all if len(footers) == len(self._files) else self._read(footers)
        [duration, *more] = {footer.duration for footer in footers}
        if duration is not None and not more:
            table = table.mutate(duration_s=ibis.literal(duration, table.duration_s.type()))
        if all(footer.lies_within(first, end) for footer in footers):
            return table
        return within(table, first, end)

    def _read(self, files: Sequence[Footer]) -> Any:
        paths = [footer.path for footer in files]
        with engine_errors(self._engine, paths[0]):
            return canonical(self._engine.parquet(paths), paths[0])


def open_readings(engine: Engine, places: Sequence[str]) -> BatchReadings:
    """All readings of some places.

    Args:
        engine: The engine.
        places: Files, folders, patterns such as day/*.parquet, URLs such as s3://bucket/day/, or
            table:NAME. Files may differ in the width of their columns and in further ones.

    Returns:
        The readings.

    Raises:
        BatchError: A place has none, or a column is missing or of another type.
    """
    sources = list[BatchSource]()
    for place in places:
        if place.startswith("table:"):
            name = place.removeprefix("table:")
            with engine_errors(engine, f"table {name}"):
                sources.append(_EngineTable(canonical(engine.table(name), f"table {name}")))
        elif "://" in place and not place.startswith("file://"):
            with engine_errors(engine, place):
                sources.append(_EngineTable(canonical(engine.parquet([place]), place)))
        else:
            sources += _by_schema(engine, place)
    if not sources:
        raise BatchError("readings is empty; give a file, a folder, a URL or table:NAME.")
    return BatchReadings(sources)


def _by_schema(engine: Engine, place: str) -> Iterator[_Files]:
    by_schema: dict[Schema, list[Footer]] = {}
    for path in _paths(place):
        footer = footer_of(path)
        by_schema.setdefault(footer.schema, []).append(footer)
    for files in by_schema.values():
        yield _Files(engine, files)


def _paths(place: str) -> list[Path]:
    path = Path(place.removeprefix("file://"))
    if path.is_dir():
        paths = sorted(path.rglob("*.parquet"))
    elif path.exists():
        paths = [path]
    else:
        paths = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    if not paths:
        raise BatchError(f"readings at {place} are not there; give Parquet files or their folder.")
    return [path.absolute() for path in paths]
