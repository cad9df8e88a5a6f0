"""The databases under the stores: an SQLite file, or PostgreSQL by URL.

    database = Database("postgresql://hushgrid@localhost/prices", CLIENTS)
    with database.begin() as connection:  # committed and on the disk when the block ends
        connection.execute(insert(table).values(...))
    with database.read() as connection:  # one snapshot for all statements of the block
        rows = connection.execute(select(table)).all()
    rows = database.rows(select(table))  # one statement

SQLite: write-ahead log, synced at every commit, on a local disk only (locks and shared memory do
not work over network file systems). Removed rows are overwritten in the file, and gone from the log
after `empty_log`. PostgreSQL: a commit waits for the server's disk; a server with fsync off is
refused. A connection that was lost is replaced when the next block begins.

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
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from hushgrid.errors import ExtraError, HushgridError
from hushgrid.files.results import sync_folder

# text that every database sorts by its bytes
SORTED_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BUSY = 10.0  # [s] to wait for another writer
READER = 0.2  # [s] to wait for readers before the log is emptied
CONNECTIONS = 3  # of a store at once; further threads wait
SESSION: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "fallback_application_name": "hushgrid",
}
_PRAGMAS = ("synchronous = FULL", "fullfsync = ON", "secure_delete = ON", "foreign_keys = ON")
# errors that another try may not meet
_PASSING = ("OperationalError", "InterfaceError", "InternalError", "TimeoutError")
# the server's system identifier and timeline: a promoted standby has another timeline
TIMELINE = "system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
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
    tables: Mapping[str, Sequence[sa.Table]]
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
        tables: The schema's tables in its dialect.

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
        self.schema, self._create, self._read_only = schema, create and not read_only, read_only
        self._writing = threading.Lock()
        self.path = _file_of(url, schema)
        if self.path is None:
            self.place = str(url).partition("://")[2].rpartition("@")[2].partition("?")[0]
            name, connect = "postgresql+psycopg://", partial(self._connect_server, str(url))
            options = {"isolation_level": "AUTOCOMMIT"}
        else:
            self.place = str(self.path)
            name, connect = "sqlite://", partial(self._connect_file, self.path, still)
            options = {"begin": ""}
        try:
            self.engine = sa.create_engine(
                name,
                creator=connect,
                poolclass=sa.QueuePool,
                pool_size=CONNECTIONS,
                max_overflow=0,
                pool_pre_ping=self.path is None,
                hide_parameters=True,
            )
        except ImportError:
            raise ExtraError(
                "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
            ) from None
        self.tables = schema.tables[self.engine.dialect.name]
        self._versions = sa.Table(
            f"hushgrid_{schema.name}_version",
            sa.MetaData(),
            sa.Column("version", sa.Integer, nullable=False),
        )
        if self.path is not None:
            sa.event.listen(self.engine, "begin", _begin_file)
        self._autocommit = self.engine.execution_options(**options)
        try:
            if check:
                self._prepare()
        except BaseException:
            self.engine.dispose()
            raise

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A transaction that writes; durable when the block ends, undone where it raises."""
        # SQLite has one writer: threads wait here rather than poll the file's lock
        lock = self._writing if self.path else nullcontext()
        with lock, self.errors(), self.engine.begin() as connection:
            yield connection

    def rows(self, statement: sa.Executable, **values: Any) -> list[Any]:
        """The rows of one statement that only reads."""
        with self.errors(), self._autocommit.connect() as connection:
            return list(connection.execute(statement, values).all())

    def about(self, statement: str) -> str | None:
        """What the server answers about itself; None where it does not say, or for a file.

        Raises:
            The schema's `retry`: The server is away.
        """
        if self.path is not None:
            return None
        with self.errors():
            try:
                with self._autocommit.connect() as connection:
                    return str(connection.scalar(sa.text(statement)))
            except DBAPIError as error:
                if _may_pass(error.orig or error):
                    raise
                return None

    def timeline(self) -> str | None:
        """System identifier and timeline of the server; None where it does not say, or for a file.

        What is on one timeline is lost in the order in which it was committed.
        """
        return self.about(f"SELECT {TIMELINE} FROM pg_control_system()")

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that only reads: all its statements see the same moment."""
        options: dict[str, Any] = {"begin": "BEGIN"}
        if self.path is None:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self.errors(), self.engine.connect() as connection:
            yield connection.execution_options(**options)

    def session(self) -> sa.Connection:
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
    def on(self, session: sa.Connection, *, at_once: bool = False) -> Iterator[sa.Connection]:
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

    def is_whole(self) -> bool:
        """Whether SQLite finds its file consistent; a server checks its own."""
        check = sa.text("PRAGMA quick_check(1)")
        try:
            return self.path is None or self.rows(check)[0][0] == "ok"
        except HushgridError:
            return False

    def empty_log(self) -> bool:
        """Cut SQLite's write-ahead log to nothing: it holds what was removed since.

        Returns:
            False where a reader kept it in use; True for PostgreSQL, whose log is the server's.
        """
        if self.path is None:
            return True
        with self._writing, self.errors(), self._autocommit.connect() as link:
            link.exec_driver_sql(f"PRAGMA busy_timeout = {1000 * READER:.0f}")
            try:
                (busy, _, _) = link.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
            finally:
                link.exec_driver_sql(f"PRAGMA busy_timeout = {1000 * BUSY:.0f}")
        return not busy

    def copy_to(self, path: Path, without: Sequence[sa.Table] = ()) -> None:
        """Write an SQLite file as it is at one moment to a new one, synced; writers do not wait.

        Rows of the tables `without` are overwritten in the copy.
        """
        try:
            with self.read() as connection:
                source: Any = connection.connection.driver_connection
                if self.schema.private:
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                copy = sqlite3.connect(path, isolation_level=None)
                try:
                    source.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log file
                    copy.execute("PRAGMA journal_mode = MEMORY")  # nor one of what is deleted
                    copy.execute("PRAGMA secure_delete = ON")
                    names = {name for (name,) in copy.execute("SELECT name FROM sqlite_master")}
                    for name in names.intersection(table.name for table in without):
                        copy.execute(f"DELETE FROM {name}")
                finally:
                    copy.close()
            with path.open("rb") as file:
                os.fsync(file.fileno())
        except (sqlite3.Error, OSError) as error:
            raise self.schema.error(
                f"{path} cannot be written ({error}); see that its disk is writable and not full,"
                " and that there is no such file yet."
            ) from None

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect_file(self, path: Path, still: bool) -> sqlite3.Connection:
        """Open the file; on a read-only disk, where no log can be kept, it is read as it is."""
        modes = ["mode=rwc" if self._create else "mode=rw"]
        if self._read_only:
            modes = ["mode=ro"]
            if not path.with_name(f"{path.name}-wal").exists():
                modes.insert(0 if still else 1, "mode=ro&immutable=1")
        for mode in modes[:-1]:
            with suppress(sqlite3.OperationalError):
                return self._open_file(path, mode)
        return self._open_file(path, modes[-1])

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
                for setting in _PRAGMAS:
                    link.execute(f"PRAGMA {setting}")
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
        self._check_version(version)

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

    def _connect_server(self, url: str) -> Any:
        """A session. libpq reads the URL: SQLAlchemy's differs in lists of hosts and in options."""
        import psycopg

        link = psycopg.connect(url, autocommit=True, **(SESSION | dict(self.schema.session)))
        try:
            row = link.execute(_DURABLE).fetchone()
            if not self._read_only and not (row and row[0]):
                raise self.schema.error(
                    "the server has fsync off, so nothing is durable; turn it on."
                )
            link.autocommit = False
        except BaseException:
            link.close()
            raise
        return link

    def _prepare(self) -> None:
        """Make the tables and check their version; one process at a time."""
        path, schema = self.path, self.schema
        new = path is not None and self._make_file(path)
        versions, tables = self._versions, list(self.tables)
        if path is None and schema.version:
            tables.append(versions)
        with self.read() if self._read_only else self.begin() as link:
            if path is None and not self._read_only:
                key = lock_key(f"hushgrid-{schema.name}/1")
                link.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
            missing = [table for table in tables if not sa.inspect(link).has_table(table.name)]
            if tables[0] in missing and not self._create:
                raise schema.error(f"{self.place} has no {schema.name}; give the one that has it.")
            for table in () if self._read_only else missing:
                table.create(link, checkfirst=False)
            if versions in tables:
                if versions in missing:
                    link.execute(sa.insert(versions), {"version": schema.version})
                self._check_version(link.scalar(sa.select(versions.c.version)))
            elif path is not None and missing and self._create:
                link.exec_driver_sql(f"PRAGMA application_id = {schema.application}")
                link.exec_driver_sql(f"PRAGMA user_version = {schema.version}")
        if path is not None and new:
            sync_folder(path.parent)

    def _make_file(self, path: Path) -> bool:
        """Make an absent file; whether it was."""
        name, new = self.schema.name, not path.exists()
        if new and not self._create:
            raise self.schema.error(
                f"{name} {path} does not exist; give the path of one that does."
            )
        if not path.parent.is_dir():
            raise self.schema.error(f"{name} {path} is in no folder; make {path.parent} first.")
        if new:
            try:
                mode = 0o600 if self.schema.private else 0o666
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, mode))
            except OSError as error:
                raise self._failure(error) from None
        elif self.schema.private and path.stat().st_mode & 0o077 and not self._read_only:
            with suppress(OSError):  # a copy that was put back; others' files stay as they are
                path.chmod(0o600)
        return new

    # ---- messages

    def _check_version(self, version: int | None) -> None:
        if version != self.schema.version:
            raise self.schema.error(
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
        passing = _may_pass(error)
        # what PostgreSQL says of other errors may hold a row's values; SQLite shows a text alone
        reason = f"{name} {state or ''}"
        if self.path or passing:
            reason = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
            reason = reason.partition(" with text ")[0]
        place = "its disk is there, writable and not full" if self.path else "the server is there"
        return (self.schema.retry if passing and self.schema.retry else self.schema.error)(
            f"{self.schema.name} {self.place} cannot be used ({' '.join(reason.split()) or name});"
            f" see that {place}, and open it again."
        )


def _may_pass(error: BaseException) -> bool:
    """Whether another try may not meet the error."""
    return not {kind.__name__ for kind in type(error).__mro__}.isdisjoint(_PASSING)


def _begin_file(link: sa.Connection) -> None:
    word = link.get_execution_options().get("begin", "BEGIN IMMEDIATE")
    if word:
        link.exec_driver_sql(word)


def _file_of(url: str | Path, schema: Schema) -> Path | None:
    """The file of a path or URL; None where it names a PostgreSQL server."""
    if isinstance(url, Path):
        return url
    scheme, _, location = url.partition(":")
    if scheme == "sqlite" and location:
        return Path(location.removeprefix("//"))
    if is_postgres(url) or not location.startswith("//"):
        return None if is_postgres(url) else Path(url)
    raise schema.error(
        f"{schema.name} has the scheme {scheme!r}; give a path, sqlite:PATH or postgresql://..."
    )


def exists(url: str, schema: Schema) -> bool:
    """Whether a store is there. Writes nothing.

    Args:
        url: As for `Database`.
        schema: The store's tables.

    Returns:
        False where it is absent and could be made.

    Raises:
        HushgridError: `schema.error`: it can neither be opened for writing nor made.
    """
    path = _file_of(url, schema)
    if path is None:
        with Database(url, schema, check=False) as database:
            privilege = sa.func.has_schema_privilege(sa.func.current_schema(), "CREATE")
            name = database.tables[0].name
            ((table, may_make),) = database.rows(sa.select(sa.func.to_regclass(name), privilege))
        if not table and not may_make:
            raise schema.error(f"{database.place} has no {schema.name} and lets none be made.")
        return table is not None
    if not path.parent.is_dir():
        raise schema.error(f"{schema.name} {path} is in no folder; make {path.parent} first.")
    if path.exists() and not path.is_file():
        raise schema.error(f"{schema.name} {path} is not a file; give another name.")
    if not all(os.access(entry, os.W_OK) for entry in (path.parent, path) if entry.exists()):
        raise schema.error(
            f"{schema.name} {path} cannot be written; check the owner of the file and its folder."
        )
    if not path.exists() or not path.stat().st_size:
        return False
    Database(path, schema, create=False, read_only=True, still=True).close()
    return True
