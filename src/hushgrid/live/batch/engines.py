"""From a URL to an engine that ibis speaks to.

duckdb, duckdb:///file.db           in this process; ?threads=2&memory_limit=2GB and the like
spark:local-cluster[2,1,1024]       any Spark master; ?spark.executor.memory=4g and the like
trino://..., postgres://...         whatever ibis.connect takes
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from hushgrid.errors import BatchError, ExtraError, HushgridError

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY = "3GiB"  # of DuckDB, where the URL says nothing; what needs more goes to the disk
_NAMES = iter(range(1 << 62))  # of tables, in one process


class Engine:
    """An ibis backend, and what differs between backends."""

    name = "engine"

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def put(self, table: pa.Table) -> Any:
        """A table of the driver, for the time of the connection."""
        return self.backend.create_table(_name(), table, temp=True)

    def parquet(self, paths: Sequence[str]) -> Any:
        """Parquet files of one schema."""
        return self.backend.read_parquet(list(paths))

    def table(self, name: str) -> Any:
        """A table that the engine knows."""
        return self.backend.table(name)

    def distinct(self, width: int) -> Callable[[Any], Any]:
        """How to count the different whole numbers from 0 to below `width`."""
        del width
        return lambda column: column.nunique()

    def close(self) -> None:
        """Let go of it."""
        self.backend.disconnect()


class DuckDb(Engine):
    """Embedded; one process, all cores."""

    name = "duckdb"

    def parquet(self, paths: Sequence[str]) -> Any:
        """Parquet files of one schema."""
        return self.backend.read_parquet(list(paths), hive_partitioning=False)

    def distinct(self, width: int) -> Callable[[Any], Any]:
        """By a bitmap: a bit is set as often as it likes, in memory that is known ahead."""
        import ibis

        @ibis.udf.agg.builtin  # type: ignore[untyped-decorator]
        def bitstring_agg(x: int, low: int, high: int) -> str:  # type: ignore[empty-body]
            """DuckDB's own."""

        @ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
        def bit_count(x: str) -> int:  # type: ignore[empty-body]
            """DuckDB's own."""

        return lambda column: bit_count(bitstring_agg(column, 0, width - 1)).fill_null(0)


class Spark(Engine):
    """A Spark session that is ours."""

    name = "spark"

    def __init__(self, backend: Any, session: Any) -> None:
        super().__init__(backend)
        self._session = session

    def put(self, table: pa.Table) -> Any:
        """A table of the driver, for the time of the connection."""
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
        import ibis

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
    """The engine of a URL; BatchError where there is none, ExtraError where it is not installed."""
    scheme = re.split("[^a-z0-9+]", url, maxsplit=1)[0]
    rest = url.removeprefix(scheme).removeprefix(":")
    if scheme == "duckdb":
        return _duckdb(rest.removeprefix("//"))
    if scheme == "spark":
        return _spark(url if rest.startswith("//") else rest)
    if not re.fullmatch(r"[a-z][a-z0-9+]*://.*", url):
        raise BatchError(
            f"engine is {scheme!r}; give duckdb, spark:MASTER such as spark:local[2], or a URL of"
            " ibis."
        )
    with _opening(scheme):
        import ibis

        return Engine(ibis.connect(url))


def _duckdb(rest: str) -> DuckDb:
    place, options = _split(rest)
    with _opening("duckdb"):
        import ibis

        made = {"memory_limit": MEMORY, "preserve_insertion_order": "false", **options}
        backend = ibis.duckdb.connect(place or ":memory:", read_only=False, **made)
        backend.raw_sql("SET TimeZone = 'UTC'")
        return DuckDb(backend)


def _spark(rest: str) -> Spark:
    master, options = _split(rest)
    with _opening("spark"):
        import ibis
        from pyspark.sql import SparkSession

        made = {
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
        }
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            made |= {"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "4"}
        builder = SparkSession.builder.appName("hushgrid batch")
        if master:
            builder = builder.master(master)
        for key, value in (made | options).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        return Spark(ibis.pyspark.connect(session), session)


def _split(rest: str) -> tuple[str, dict[str, str]]:
    place, _, query = rest.partition("?")
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
def asking(engine: Engine, what: str) -> Iterator[None]:
    """Whatever goes wrong in an engine is one sentence: its own words may hold a reading."""
    try:
        yield
    except HushgridError:
        raise
    except Exception as error:
        raise BatchError(
            f"engine {engine.name} failed at {what} ({type(error).__name__}); nothing of it was"
            " published: run the same again."
        ) from None


@contextmanager
def engine_at(url: str) -> Iterator[Engine]:
    """An engine that is let go of at the end."""
    engine = open_engine(url)
    try:
        yield engine
    finally:
        with suppress(Exception):
            engine.close()
