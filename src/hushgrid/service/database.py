"""The databases under the stores: an SQLite file, or PostgreSQL by URL.

    database = Database("postgresql://hushgrid@localhost/prices", CLIENTS)
    with database.begin() as connection:  # committed and on the disk when the block ends
        connection.execute(insert(table).values(...))
    with database.read() as connection:  # one snapshot for all statements of the block
        rows = connection.execute(select(table)).all()
    rows = database.rows(select(table))  # one statement

SQLite: write-ahead log, synced at every commit, on a local disk only (locks and shared memory do
not work over network file systems). Removed rows are overwritten. PostgreSQL: a commit waits for
the server's disk; a server with fsync off is refused. A connection that was lost is replaced when
the next block begins.

Errors of a database become the store's error: one sentence, without the values of a statement and
without the password of a URL.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Executable,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from hushgrid.errors import ExtraError, HushgridError
from hushgrid.files.results import sync_folder

# text that every database sorts by its bytes
SORTED_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
BUSY = 10.0  # [s] to wait for another writer
CONNECTIONS = 3  # of a store at once; further threads wait
SESSION: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "fallback_application_name": "hushgrid",
}
# errors that another try may not meet
_PASSING = ("OperationalError", "InterfaceError", "InternalError", "TimeoutError")
# one round trip for each new session
_DURABLE = """
SELECT current_setting('fsync') = 'on',
  set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN
    ('off', 'local', 'remote_write') THEN 'on' ELSE current_setting('synchronous_commit') END,
    false),
  set_config('lock_timeout', '10s', false),
  CASE WHEN current_setting('server_version_num')::integer >= 140000
    THEN set_config('idle_session_timeout', '0', false) END
"""


@dataclass(frozen=True, slots=True)
class Schema:
    """What a store keeps in a database.

    Attributes:
        name: What messages call the store; PostgreSQL's version is in `hushgrid_NAME_version`.
        error: Makes the store's error of a sentence.
        tables: By dialect (`sqlite`, `postgresql`), the one that every such database has first.
        application: Number in an SQLite file's header; 0: not checked.
        version: Of the tables; 0: not checked.
        retry: Makes the error of a database that is away for now; `error` where it is None.
        private: A new SQLite file is readable by its owner only.
        session: Options of psycopg, on top of `SESSION`.
    """

    name: str
    error: Callable[[str], HushgridError]
    tables: Mapping[str, Sequence[Table]]
    application: int = 0
    version: int = 0
    retry: Callable[[str], HushgridError] | None = None
    private: bool = True
    session: Mapping[str, Any] = field(default_factory=dict)


def is_postgres(url: str) -> bool:
    """Whether a store's URL names a PostgreSQL server.

    Args:
        url: A path or URL.

    Returns:
        True for postgresql:// and postgres://.
    """
    return url.startswith(("postgresql://", "postgres://"))


def lock_key(name: str) -> int:
    """The number of an advisory lock, the same in every process and version.

    Args:
        name: Its name.

    Returns:
        A signed number of 64 bits.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


class Database:
    """One SQLite file or PostgreSQL database, with the tables of one store. Threads may share it.

    Args:
        url: A path, `sqlite:PATH`, or `postgresql://USER@HOST/DATABASE` as libpq reads it.
        schema: The tables and how messages name them.
        create: Make the tables where they are absent.
        read_only: Open an SQLite file for reading alone; on a read-only disk it is read as it is.
        still: Reading an SQLite file that nothing writes leaves no further file.
        check: Look for the tables; False: those of a PostgreSQL database may be absent.

    Attributes:
        path: The SQLite file; None for PostgreSQL.
        place: The file, or server and database, in words and without the password.
        engine: SQLAlchemy's engine.

    Raises:
        HushgridError: `schema.error`: the scheme is unknown, or the database is absent, of another
            kind or version, or cannot be used.
        ExtraError: psycopg is needed and not installed.
    """

    def __init__(
        self,
        url: str | Path,
        schema: Schema,
        *,
        create: bool = True,
        read_only: bool = False,
        still: bool = False,
        check: bool = True,
    ) -> None:
        self.schema, self._create, self._read_only = schema, create, read_only
        self._writing = threading.Lock()
        self.path = None if is_postgres(str(url)) else self._path(url)
        if self.path is None:
            self._url = str(url)
            self.place = self._url.partition("://")[2].rpartition("@")[2].partition("?")[0]
            self.engine = self._server_engine()
        else:
            self.place = str(self.path)
            self.engine = self._file_engine(self.path, still)
        options = {"begin": ""} if self.path else {"isolation_level": "AUTOCOMMIT"}
        self._at_once = self.engine.execution_options(**options)
        try:
            if self.path is not None:
                self._prepare_file(self.path)
            elif check:
                self._prepare_server()
        except BaseException:
            self.close()
            raise

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @property
    def tables(self) -> Sequence[Table]:
        """The schema's tables in this dialect."""
        return self.schema.tables[self.dialect]

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that writes; durable when the block ends, undone where it raises."""
        # SQLite has one writer: threads wait here rather than poll the file's lock
        alone = self._writing if self.path else nullcontext()
        with alone, self.errors(), self.engine.begin() as connection:
            yield connection

    def rows(self, statement: Executable, **values: Any) -> list[Any]:
        """The rows of one statement that only reads."""
        with self.errors(), self._at_once.connect() as connection:
            return list(connection.execute(statement, values))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads: all its statements see the same moment."""
        options: dict[str, Any] = {"begin": "BEGIN"}
        if self.path is None:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self.errors(), self.engine.connect() as connection:
            yield connection.execution_options(**options)

    def session(self) -> Connection:
        """A connection that is its holder's until it is closed; use it inside `on`."""
        if self._read_only:
            raise self.schema.error(
                f"{self.schema.name} {self.place} is open for reading; open it for writing."
            )
        with self.errors():
            connection = self.engine.connect()
            connection.detach()
            return connection

    @contextmanager
    def on(self, session: Connection, *, at_once: bool = False) -> Iterator[Connection]:
        """A transaction on a session; with `at_once` each statement is one of its own.

        A session that was lost is closed. It is never replaced: its locks are gone with it.
        """
        with self.errors():
            try:
                # on the driver: SQLAlchemy sets no isolation level of a detached connection
                link: Any = session.connection.dbapi_connection
                if link.autocommit != at_once and not link.closed:
                    link.autocommit = at_once
                with session.begin():
                    yield session
            finally:
                if session.invalidated:
                    session.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the database's errors as the store's."""
        try:
            yield
        except SQLAlchemyError as error:
            # no cause: it holds the statement's values
            raise self._failure(getattr(error, "orig", None) or error) from None

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- SQLite

    def _path(self, url: str | Path) -> Path:
        scheme, colon, rest = str(url).partition(":")
        if isinstance(url, str) and colon and scheme == "sqlite":
            return Path(rest.removeprefix("//"))
        if isinstance(url, str) and rest.startswith("//"):
            raise self.schema.error(
                f"{self.schema.name} has the scheme {scheme!r}; give a path, sqlite:PATH or"
                " postgresql://..."
            )
        return Path(url)

    def _file_engine(self, path: Path, still: bool) -> Engine:
        name = self.schema.name
        if not path.is_file() and not (self._create and not self._read_only):
            raise self.schema.error(
                f"{name} {path} does not exist; give the path of one that does."
            )
        if not path.parent.is_dir():
            raise self.schema.error(f"{name} {path} is in no folder; make {path.parent} first.")
        modes = ["mode=rwc" if self._create else "mode=rw"]
        if self._read_only:
            modes = ["mode=ro"]
            if not path.with_name(f"{path.name}-wal").exists():
                modes.insert(0 if still else 1, "mode=ro&immutable=1")

        def connect() -> sqlite3.Connection:
            for mode in modes:
                try:
                    return self._open_file(path, mode)
                except sqlite3.OperationalError:
                    if mode == modes[-1]:
                        raise
            raise AssertionError

        engine = _engine("sqlite", connect)

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            word = connection.get_execution_options().get("begin", "BEGIN IMMEDIATE")
            if word:
                connection.exec_driver_sql(word)

        return engine

    def _open_file(self, path: Path, mode: str) -> sqlite3.Connection:
        link = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{mode}",
            uri=True,
            timeout=BUSY,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._check_kind(path, link)
            if not self._read_only:
                self._use_log(path, link)
                for setting in ("synchronous = FULL", "fullfsync = ON", "secure_delete = ON"):
                    link.execute(f"PRAGMA {setting}")
                link.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            link.close()
            raise
        return link

    def _check_kind(self, path: Path, link: sqlite3.Connection) -> None:
        """Refuse a file of another kind before anything is written to it."""
        schema = self.schema
        try:
            link.execute("BEGIN")  # all of it at one time: another process may be making it
            (tables,) = link.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (application,) = link.execute("PRAGMA application_id").fetchone()
            (version,) = link.execute("PRAGMA user_version").fetchone()
            link.execute("COMMIT")
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            raise schema.error(
                f"{path} is not a {schema.name} file or is damaged; give another name, or put back"
                " a copy."
            ) from None
        if not tables and not application and not self._read_only:
            return
        if application != schema.application:
            raise schema.error(f"{path} is a database of something else; give another name.")
        if version != schema.version:
            raise self._other_version(version)

    def _use_log(self, path: Path, link: sqlite3.Connection) -> None:
        """Write-ahead log: readers never wait for the writer. Two that start at once may clash."""
        for attempt in range(50):
            try:
                (mode,) = link.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 49:
                    raise
                time.sleep(0.1)
        if mode != "wal":
            raise self.schema.error(
                f"{self.schema.name} {path} cannot keep a write-ahead log (mode {mode}); put it on"
                " a local disk."
            )

    def _prepare_file(self, path: Path) -> None:
        new = not path.exists()
        if new and self.schema.private:
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            except OSError as error:
                raise self._failure(error) from None
        with self.read() as connection:
            missing = _missing(connection, self.tables)
        if missing and self._create and not self._read_only:
            with self.begin() as connection:
                make_tables(connection, self.tables)
                connection.exec_driver_sql(f"PRAGMA application_id = {self.schema.application}")
                connection.exec_driver_sql(f"PRAGMA user_version = {self.schema.version}")
        if new:
            sync_folder(path.parent)

    # ---- PostgreSQL

    def _server_engine(self) -> Engine:
        try:
            import psycopg
        except ImportError:
            raise ExtraError(
                "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
            ) from None

        # libpq reads the URL: SQLAlchemy's differs in lists of hosts and in options
        def connect() -> psycopg.Connection[Any]:
            link = psycopg.connect(self._url, autocommit=True, **(SESSION | dict(schema.session)))
            try:
                row = link.execute(_DURABLE).fetchone()
                if not self._read_only and not (row and row[0]):
                    raise schema.error(
                        "the server has fsync off, so nothing is durable; turn it on."
                    )
                link.autocommit = False
            except BaseException:
                link.close()
                raise
            return link

        schema = self.schema
        return _engine("postgresql+psycopg", connect, pool_pre_ping=True, use_native_hstore=False)

    def _prepare_server(self) -> None:
        schema = self.schema
        versions = Table(
            f"hushgrid_{schema.name}_version",
            MetaData(),
            Column("version", Integer, nullable=False),
        )
        tables = [*self.tables, *([versions] if schema.version else [])]
        version = None
        with self.begin() as connection:
            connection.execute(
                select(func.pg_advisory_xact_lock(lock_key(f"hushgrid-{schema.name}/1")))
            )
            missing = _missing(connection, tables)
            if tables[0] in missing and not self._create:
                raise schema.error(
                    f"{self.place} has no {schema.name}; give the database that has it."
                )
            if self._create:
                make_tables(connection, missing)
            if schema.version:
                if versions in missing:
                    connection.execute(insert(versions).values(version=schema.version))
                version = connection.scalar(select(versions.c.version))
        if schema.version and version != schema.version:
            raise self._other_version(version)

    # ---- messages

    def _other_version(self, version: int | None) -> HushgridError:
        return self.schema.error(
            f"{self.schema.name} {self.place} has schema version {version} where"
            f" {self.schema.version} is known; use the hushgrid that wrote it."
        )

    def _failure(self, error: BaseException) -> HushgridError:
        name, state = type(error).__name__, getattr(error, "sqlstate", None)
        if self.path is None and name == "ProgrammingError" and state is None:
            return self.schema.error(  # psycopg's message would show the URL, password and all
                f"{self.schema.name} is no URL that PostgreSQL knows; give"
                " postgresql://USER@HOST/DATABASE."
            )
        kinds = {kind.__name__ for kind in type(error).__mro__}
        passing = not kinds.isdisjoint(_PASSING)
        # what PostgreSQL says of other errors may hold a row's values; SQLite never says them
        why = str(error) if self.path or passing else f"{name} {state or ''}"
        fix = "see that its disk is there, writable and not full" if self.path else "start it"
        return (self.schema.retry if passing and self.schema.retry else self.schema.error)(
            f"{self.schema.name} {self.place} cannot be used ({' '.join(why.split()) or name});"
            f" {fix}, and open it again."
        )


def _engine(dialect: str, connect: Callable[[], Any], **options: Any) -> Engine:
    return create_engine(
        f"{dialect}://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=CONNECTIONS,
        max_overflow=0,
        hide_parameters=True,
        **options,
    )


def make_tables(connection: Connection, tables: Sequence[Table]) -> list[Table]:
    """Make tables that are absent.

    Args:
        connection: In a transaction that no other process has at the same time.
        tables: The tables.

    Returns:
        Those that were absent.
    """
    absent = _missing(connection, tables)
    for table in absent:
        table.create(connection, checkfirst=False)
    return absent


def _missing(connection: Connection, tables: Sequence[Table]) -> list[Table]:
    found = inspect(connection)
    return [table for table in tables if not found.has_table(table.name)]
