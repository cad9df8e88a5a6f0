"""The ledger in PostgreSQL: restarts, connections cut in mid-append, locks that outlive them."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from hushgrid.errors import LedgerAwayError, LedgerError, LedgerHeldError
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger import store as ledger_store
from hushgrid.stores.ledger.chain import ChainReport, check
from hushgrid.stores.ledger.store import PostgresLedger
from hushgrid.stores.ledger.writer import Ledger, verify_signature
from tests.proxy import Proxy
from tests.services import Postgres, postgres_binaries
from tests.stores.conformance import chain_of, check_ledger_store
from tests.stores.ledger.ledgers import KEY, instead

ROOT = Path(__file__).parents[3]
ZONE = "elm-street"


@pytest.fixture
def schema(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    """A schema of the test's own."""
    name = re.sub(r"\W", "_", request.node.name.lower())[:60]
    with psycopg.connect(postgres.in_schema(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
    return name


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    one = Proxy(postgres.port)
    yield one
    one.close()


def checked(url: str) -> ChainReport:
    with open_store(url, create=False) as store:
        return check(store.records(ZONE), verify_signature)


def test_it_is_a_ledger_store(postgres: Postgres, schema: str) -> None:
    check_ledger_store(lambda: open_store(postgres.in_schema(schema)))


def test_commits_are_durable_even_where_the_server_says_otherwise(
    postgres: Postgres, schema: str
) -> None:
    url = postgres.in_schema(schema)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER ROLE hushgrid SET synchronous_commit = off")
    try:
        with (
            PostgresLedger(url) as store,
            store.writer(ZONE),
            store.on(store._held[ZONE]) as session,
        ):
            assert session.scalar(text("SHOW synchronous_commit")) == "on"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER ROLE hushgrid RESET synchronous_commit")


def test_records_are_never_changed_or_removed(postgres: Postgres, schema: str) -> None:
    with open_store(postgres.in_schema(schema)) as store, store.writer(ZONE):
        store.append(chain_of(ZONE)[0])
    with psycopg.connect(postgres.in_schema(schema), autocommit=True) as connection:
        for act in (
            "UPDATE hushgrid_ledger SET t = 1",
            "DELETE FROM hushgrid_ledger",
            "TRUNCATE hushgrid_ledger",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="never"):
                connection.execute(act)  # type: ignore[arg-type]


def test_a_record_changed_behind_its_back_is_found(postgres: Postgres, schema: str) -> None:
    url = postgres.in_schema(schema)
    with open_store(url) as store, Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
        ledger.publish(instead(1, "fallback"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE hushgrid_ledger DISABLE TRIGGER ALL")
        connection.execute("UPDATE hushgrid_ledger SET body = replace(body, '0.25', '0.26')")
    assert checked(url).first_bad == 2


def test_other_databases_are_refused(postgres: Postgres, schema: str) -> None:
    url = postgres.in_schema(schema)
    with pytest.raises(LedgerError, match="has no ledger"):
        open_store(url, create=False)
    open_store(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE hushgrid_ledger_version SET version = 2")
    with pytest.raises(LedgerError, match="schema version 2"):
        open_store(url)


def test_no_message_shows_a_password(postgres: Postgres) -> None:
    for url in (
        f"postgresql://hushgrid:hunter2@127.0.0.1:{postgres.port}/absent",
        "postgresql://hushgrid:hunter2@127.0.0.1:1/postgres",
        "postgresql://hushgrid:hunter2@127.0.0.1:1/postgres?nonsense=hunter2",
    ):
        with pytest.raises(LedgerError) as refused:
            open_store(url)
        assert "hunter2" not in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_between_two_appends(postgres: Postgres, schema: str, mode: str) -> None:
    url = postgres.in_schema(schema)
    with PostgresLedger(url) as store, Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
        ledger.publish(instead(1, "fallback"))
        postgres.stop(mode)
        postgres.start()
        ledger.publish(instead(2, "fallback"))
        assert store.head(ZONE) is not None
        with (
            PostgresLedger(url) as other,
            pytest.raises(LedgerError, match="has a writer"),
            other.writer(ZONE),  # the lock was taken again as well
        ):
            pass
    assert (checked(url).records, checked(url).first_bad) == (3, None)


def test_restarts_in_mid_append(postgres: Postgres, schema: str) -> None:
    url, told, said = postgres.in_schema(schema), [], []
    done = threading.Event()

    def write() -> None:
        try:
            with open_store(url) as store, Ledger.open(store, ZONE, KEY, "production", 0) as one:
                t = 0
                while not done.is_set():
                    t += 1
                    told.append(one.publish(instead(t, "fallback")).head)
        except BaseException as error:
            said.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    for mode in ("fast", "immediate", "immediate"):
        seen = len(told)
        while len(told) < seen + 20 and writer.is_alive():
            time.sleep(0.01)
        postgres.stop(mode)
        postgres.start()
    done.set()
    writer.join()
    assert said == []
    report = checked(url)
    assert report.first_bad is None, report.reason
    assert [one.head for one in report.standings[ZONE].releases] == told  # each once, none lost


@pytest.mark.parametrize(
    ("word", "answered", "inserts"),
    [
        (b"COMMIT", True, 1),  # it was done: reading the head shows it, nothing is sent again
        (b"COMMIT", False, 2),
        (b"INSERT INTO", False, 2),
        (b"BEGIN", False, 1),
    ],
)
@pytest.mark.sampled
def test_a_connection_cut_in_mid_append(
    postgres: Postgres, schema: str, proxy: Proxy, word: bytes, answered: bool, inserts: int
) -> None:
    url = postgres.in_schema(schema, proxy.port)
    with PostgresLedger(url) as store, Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
        proxy.inserts, proxy.word, proxy.answered = 0, word, answered
        shown = ledger.publish(instead(1, "fallback"))
        assert proxy.word is None  # it was cut
        assert proxy.inserts == inserts
        ledger.publish(instead(2, "fallback"))
    report = checked(postgres.in_schema(schema))
    assert (report.records, report.first_bad) == (3, None)
    assert report.standings[ZONE].releases[0] == shown


def test_while_the_old_session_lives_nothing_is_sent_again(
    postgres: Postgres, schema: str, proxy: Proxy
) -> None:
    """Its transaction may still commit, so the append's outcome is not known yet."""
    url = postgres.in_schema(schema, proxy.port)
    with PostgresLedger(url, patience=1.0) as store:
        with Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
            proxy.inserts, proxy.word, proxy.zombie = 0, b"COMMIT", True
            with pytest.raises(LedgerError, match="has a writer"):
                ledger.publish(instead(1, "fallback"))
            assert proxy.inserts == 1
            with pytest.raises(LedgerError, match="open it again"):
                ledger.publish(instead(1, "fallback"))
        assert checked(postgres.in_schema(schema)).records == 1
        with psycopg.connect(postgres.in_schema(schema), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE state = 'idle in transaction' AND application_name = 'hushgrid'"
            )
        with Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
            assert ledger.standing.last_t == 0
            ledger.publish(instead(1, "fallback"))


@contextmanager
def opened_when_free(store: PostgresLedger) -> Iterator[Ledger]:
    """The server notices a closed connection a moment later."""
    with ExitStack() as stack:
        for _ in range(100):
            try:
                ledger = stack.enter_context(Ledger.open(store, ZONE, KEY, "production", 0))
            except LedgerHeldError:
                time.sleep(0.1)
            else:
                break
        yield ledger


def test_another_writer_while_the_connection_was_gone(postgres: Postgres, schema: str) -> None:
    url = postgres.in_schema(schema)
    with (
        PostgresLedger(url, patience=0.5) as store,
        PostgresLedger(url) as other,
        Ledger.open(store, ZONE, KEY, "production", 0) as ledger,
    ):
        store._held[ZONE].close()
        with opened_when_free(other) as second:
            with pytest.raises(LedgerError, match="has a writer"):
                ledger.publish(instead(1, "fallback"))
            second.publish(instead(1, "fallback"))
    with (
        PostgresLedger(url) as store,
        PostgresLedger(url) as other,
        Ledger.open(store, ZONE, KEY, "production", 0) as ledger,
    ):
        store._held[ZONE].close()
        with opened_when_free(other) as second:
            second.publish(instead(2, "fallback"))
        with pytest.raises(LedgerError, match="exists already"):
            ledger.publish(instead(3, "fallback"))
    assert (checked(url).records, checked(url).first_bad) == (3, None)


def test_a_row_of_one_who_ignores_the_lock_is_not_waited_for_forever(
    postgres: Postgres, schema: str
) -> None:
    url = postgres.in_schema(schema)
    with PostgresLedger(url) as store, Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
        with store.on(store._held[ZONE]) as session:
            assert session.scalar(text("SHOW lock_timeout")) == "10s"
            session.execute(text("SET lock_timeout = '100ms'"))
        with psycopg.connect(url) as rude:
            rude.execute(
                "INSERT INTO hushgrid_ledger SELECT zone, 2, kind, t, body, prev, digest, signature"
                " FROM hushgrid_ledger"
            )
            with pytest.raises(LedgerError, match="lock timeout"):
                ledger.publish(instead(1, "fallback"))
            rude.rollback()
    assert checked(url).records == 1


def test_an_older_copy_is_noticed_by_who_remembers_the_head(
    postgres: Postgres, schema: str
) -> None:
    with open_store(postgres.in_schema(schema)) as store:
        with Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
            shown = ledger.publish(instead(1, "fallback")).head
        with Ledger.open(store, ZONE, KEY, "production", 0, digests=[shown]):
            pass
        with (
            pytest.raises(LedgerError, match="an older copy was put back"),
            Ledger.open(store, ZONE, KEY, "production", 0, digests=[shown, "ab" * 32]),
        ):
            pass


HOLD = """
import sys
from hushgrid.stores.ledger.writer import Ledger
from hushgrid.stores.ledger import open_store
from tests.stores.ledger.ledgers import KEY
with open_store(sys.argv[1]) as store, Ledger.open(store, "elm-street", KEY, "production", 0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_writers_in_two_processes(postgres: Postgres, schema: str) -> None:
    url = postgres.in_schema(schema)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with open_store(url) as store:
        with pytest.raises(LedgerError, match="'elm-street' has a writer"), store.writer(ZONE):
            pass
        holder.kill()
        holder.communicate()
        deadline = time.monotonic() + 20
        while True:
            try:
                with store.writer(ZONE):  # the lock goes with its holder's session
                    return
            except LedgerError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_the_server_is_noted_before_the_first_terms(postgres: Postgres, schema: str) -> None:
    """Else a copy that has the terms and not the note would never be found older."""
    url = postgres.in_schema(schema)
    with PostgresLedger(url) as store:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "append", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError), Ledger.open(store, ZONE, KEY, "production", 0):
                pass
        assert store.head(ZONE) is None
        assert store.moved(ZONE) is False
        with Ledger.open(store, ZONE, KEY, "production", 0) as ledger:
            assert ledger.opening.since == 0
        with psycopg.connect(url, autocommit=True) as connection:
            for name in ("home", "servers"):
                connection.execute(f"UPDATE hushgrid_ledger_{name} SET server = 'other'".encode())
        for zone, moved in ((ZONE, True), ("oak", None)):
            with Ledger.open(store, zone, KEY, "production", 0) as ledger:
                assert store.moved(zone) is moved, "not noted before it is judged"
                assert ledger.opening.since > 0, "the ledger is here since a moment ago"


def test_a_dump_that_was_restored_on_the_same_server_is_another_ledger(
    postgres: Postgres, tmp_path: Path
) -> None:
    """Neither the system identifier nor the timeline changes."""
    url, copy, binaries = postgres.fresh(), tmp_path / "dump", postgres_binaries()
    name = url.rpartition("/")[2]
    with PostgresLedger(url) as store, store.writer(ZONE):
        store.append(chain_of(ZONE)[0])
        store.settle(ZONE)
        assert store.moved(ZONE) is False
    subprocess.run([f"{binaries}/pg_dump", "-Fc", "-f", str(copy), url], check=True)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for word in ("DROP", "CREATE"):
            connection.execute(f"{word} DATABASE {name}".encode())
    subprocess.run([f"{binaries}/pg_restore", "--exit-on-error", "-d", url, str(copy)], check=True)
    with PostgresLedger(url) as store, store.writer(ZONE):
        assert store.moved(ZONE) is True
        store.settle(ZONE)
        assert store.moved(ZONE) is False


def test_a_server_that_no_longer_says_which_it_is_may_be_another(
    postgres: Postgres, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresLedger(postgres.in_schema(schema)) as store, store.writer(ZONE):
        store.append(chain_of(ZONE)[0])
        store.settle(ZONE)
        monkeypatch.setattr(ledger_store, "SERVER", "SELECT not_allowed()")
        assert store.moved(ZONE) is True
        store.settle(ZONE)
        assert store.moved(ZONE) is None


def test_a_server_that_is_away_for_a_moment_is_not_taken_for_another(
    postgres: Postgres, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends in the middle of the question, and the next one is answered."""
    with PostgresLedger(postgres.in_schema(schema)) as store, store.writer(ZONE):
        store.append(chain_of(ZONE)[0])
        store.settle(ZONE)
        own = "SELECT pg_terminate_backend(pg_backend_pid())"
        with monkeypatch.context() as patch:
            patch.setattr(ledger_store, "SERVER", own)
            for ask in (store.moved, store.settle):
                with pytest.raises(LedgerAwayError):
                    ask(ZONE)
        assert store.moved(ZONE) is False
