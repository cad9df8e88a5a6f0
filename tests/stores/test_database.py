"""The databases under the stores: kinds of files, durable sessions, errors without values."""

from __future__ import annotations

import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.stores.database import Database, Schema, exists
from tests.services import Postgres

THINGS = Table("things", MetaData(), Column("id", Integer, primary_key=True), Column("word", Text))
SCHEMA = Schema(
    "things",
    MeterError,
    {"sqlite": [THINGS], "postgresql": [THINGS]},
    application=0x31415926,
    version=3,
    retry=MeterRetryError,
)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "things.sqlite")
    return str(request.getfixturevalue("postgres").fresh())


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with Database(url, SCHEMA) as made:
        yield made


def add(database: Database, number: int, word: str = "word") -> None:
    with database.begin() as connection:
        connection.execute(insert(THINGS).values(id=number, word=word))


def numbers(database: Database) -> list[int]:
    with database.read() as connection:
        return list(connection.scalars(select(THINGS.c.id).order_by(THINGS.c.id)))


def test_a_block_is_one_transaction(database: Database, url: str) -> None:
    add(database, 1)
    with pytest.raises(AttributeError), database.begin() as connection:
        connection.execute(insert(THINGS).values(id=2)).no_such_thing()  # type: ignore[attr-defined]
    with database.read() as connection:
        assert connection.scalar(select(THINGS.c.id)) == 1
        with Database(url, SCHEMA, create=False) as other:
            add(other, 3)
        assert list(connection.scalars(select(THINGS.c.id))) == [1], "one moment"
    assert numbers(database) == [1, 3]


def test_threads_write_at_once(database: Database) -> None:
    def work(first: int) -> None:
        for number in range(first, first + 10):
            add(database, number)
            numbers(database)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(numbers(database)) == 60


def test_many_open_at_once(url: str) -> None:
    said: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with Database(url, SCHEMA) as made:
                add(made, number)
        except BaseException as error:
            said.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == []
    with Database(url, SCHEMA) as made:
        assert numbers(made) == list(range(6))


def test_an_error_is_one_sentence_without_values(database: Database) -> None:
    add(database, 1, "secret")
    with pytest.raises(MeterError) as caught:
        add(database, 1, "secret")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, MeterRetryError)
    assert caught.value.__suppress_context__
    with database.begin() as connection, pytest.raises(IntegrityError):
        connection.execute(insert(THINGS).values(id=1))


def test_commits_are_synced(tmp_path: Path) -> None:
    with Database(tmp_path / "d", SCHEMA) as database:
        for setting, wanted in (("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1)):
            with database.read() as connection:
                assert connection.exec_driver_sql(f"PRAGMA {setting}").scalar() == wanted
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o600


def test_a_server_that_syncs_too_little(postgres: Postgres) -> None:
    import psycopg

    url = postgres.fresh()
    with psycopg.connect(url, autocommit=True) as link:
        link.execute("ALTER ROLE hushgrid SET synchronous_commit = off")
        try:
            with Database(url, SCHEMA) as database, database.begin() as connection:
                assert connection.scalar(text("SHOW synchronous_commit")) == "on"
                assert connection.scalar(text("SHOW lock_timeout")) == "10s"
        finally:
            link.execute("ALTER ROLE hushgrid RESET synchronous_commit")


def test_a_lost_connection_is_replaced(postgres: Postgres) -> None:
    url = postgres.fresh()
    with Database(url, SCHEMA) as database:
        add(database, 1)
        postgres.restart()
        add(database, 2)
        assert numbers(database) == [1, 2]
        with pytest.raises(MeterRetryError), database.begin() as connection:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        assert numbers(database) == [1, 2]


def test_other_kinds_are_refused_and_left_alone(tmp_path: Path, postgres: Postgres) -> None:
    words = tmp_path / "words"
    words.write_text("no database at all, but long enough to be taken for one" * 50)
    foreign, newer = tmp_path / "foreign", tmp_path / "newer"
    for path, script in (
        (foreign, "CREATE TABLE a (b)"),
        (newer, f"CREATE TABLE things (id); PRAGMA application_id = {SCHEMA.application}"),
    ):
        link = sqlite3.connect(path)
        link.executescript(script)
        link.execute("PRAGMA user_version = 9")
        link.close()
    for path, says in ((words, "not a things"), (foreign, "something else"), (newer, "version 9")):
        before = path.read_bytes()
        for read_only in (True, False):
            with pytest.raises(MeterError, match=says):
                Database(path, SCHEMA, read_only=read_only)
        assert path.read_bytes() == before
    for path, says in ((tmp_path / "no", "not exist"), (tmp_path / "no" / "d", "not exist")):
        with pytest.raises(MeterError, match=says):
            Database(path, SCHEMA, create=False)
    with pytest.raises(MeterError, match="in no folder"):
        Database(tmp_path / "no" / "d", SCHEMA)
    with pytest.raises(MeterError, match="scheme 'mysql'"):
        Database("mysql://h/d", SCHEMA)
    with pytest.raises(MeterError, match="has no things"):
        Database(postgres.fresh(), SCHEMA, create=False)


@pytest.mark.parametrize("end", ["", "?what=hunter2", "?connect_timeout=1&password=hunter2"])
def test_no_message_shows_a_password(end: str) -> None:
    with pytest.raises(MeterError) as caught:
        Database(f"postgresql://u:hunter2@127.0.0.1:1/d{end}", SCHEMA)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_places(tmp_path: Path) -> None:
    path = tmp_path / "an odd ?#%.name"
    for place in (f"sqlite:{path}", f"sqlite://{path}", str(path), path):
        with Database(place, SCHEMA) as database:
            assert database.path == path
    assert path.exists()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_session_that_was_lost_is_never_replaced(postgres: Postgres, at_once: bool) -> None:
    """Its locks are gone with it, so what it held may be another's."""
    with Database(postgres.fresh(), SCHEMA) as database:
        session = database.session()
        with database.on(session, at_once=at_once):
            assert session.scalar(text("SELECT pg_try_advisory_lock(7)"))
        add(database, 1)  # on another connection
        with pytest.raises(MeterRetryError), database.on(session, at_once=at_once):
            session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        for _ in range(2):
            with pytest.raises(MeterError), database.on(session, at_once=at_once):
                session.execute(text("SELECT 1"))
        assert session.closed
        with database.on(again := database.session()):
            assert again.scalar(text("SELECT pg_try_advisory_lock(7)"))
        again.close()


def test_each_statement_of_its_own_or_all_of_them(postgres: Postgres) -> None:
    with Database(postgres.fresh(), SCHEMA) as database:
        session = database.session()
        for at_once, wanted in ((True, [1]), (False, [1])):
            with pytest.raises(AttributeError), database.on(session, at_once=at_once):
                session.execute(insert(THINGS).values(id=1 if at_once else 2)).nothing()  # type: ignore[attr-defined]
            assert numbers(database) == wanted
        session.close()


def test_what_was_opened_for_reading_gives_no_session(postgres: Postgres) -> None:
    url = postgres.fresh()
    Database(url, SCHEMA).close()
    with Database(url, SCHEMA, read_only=True) as database:
        with pytest.raises(MeterError, match="open for reading"):
            database.session()
        with pytest.raises(MeterError), database.read() as connection:
            connection.execute(insert(THINGS).values(id=1))


def test_whether_a_store_is_there(tmp_path: Path, postgres: Postgres) -> None:
    import psycopg

    path, url = tmp_path / "d", postgres.fresh()
    for place in (str(path), url):
        assert not exists(place, SCHEMA)
        Database(place, SCHEMA).close()
        before = sorted(tmp_path.iterdir())
        assert exists(place, SCHEMA)
        assert sorted(tmp_path.iterdir()) == before, "looking leaves no file"
    path.write_bytes(b"")
    assert not exists(str(path), SCHEMA)
    for odd, says in ((tmp_path, "not a file"), (tmp_path / "no" / "d", "in no folder")):
        with pytest.raises(MeterError, match=says):
            exists(str(odd), SCHEMA)
    bare = postgres.fresh()
    with psycopg.connect(bare, autocommit=True) as link:
        link.execute("CREATE ROLE guest LOGIN")
        link.execute("REVOKE CREATE ON SCHEMA public FROM public")
    guest = bare.replace("hushgrid@", "guest@")
    with pytest.raises(MeterError, match="lets none be made"):
        exists(guest, SCHEMA)


def test_a_server_that_does_not_sync_is_refused(postgres: Postgres) -> None:
    import psycopg

    url = postgres.fresh()
    Database(url, SCHEMA).close()
    with psycopg.connect(postgres.url, autocommit=True) as link:

        def sync(word: str) -> None:
            link.execute(f"ALTER SYSTEM SET fsync = {word}".encode())
            link.execute("SELECT pg_reload_conf()")
            while link.execute("SHOW fsync").fetchone() != (word,):
                time.sleep(0.02)

        sync("off")
        try:
            with pytest.raises(MeterError, match="fsync"):
                Database(url, SCHEMA)
            Database(url, SCHEMA, read_only=True).close()  # reading needs no sync
        finally:
            sync("on")


def test_a_server_that_went_away_is_named_whatever_is_asked(postgres: Postgres) -> None:
    """Connections that are closed stand in for a server that shuts down and takes no new ones."""
    with Database(postgres.fresh(), SCHEMA) as database:
        assert {"things", "hushgrid_things_version"} <= {
            *inspect(database.engine).get_table_names()
        }
        gone = f"DROP DATABASE {database.place.rpartition('/')[2]} WITH (FORCE)"
        with Database(postgres.url, SCHEMA) as other, other.session() as link:
            link.connection.dbapi_connection.autocommit = True  # type: ignore[union-attr]
            link.exec_driver_sql(gone)
        for ask in (lambda: database.rows(select(THINGS.c.id)), database.session):
            with pytest.raises(MeterError, match="cannot be used"):
                ask()
