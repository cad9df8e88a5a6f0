"""Copies of a ledger: made beside a writer, put back, and refused where they are too old."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from pathlib import Path

import psycopg
import pytest

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.store import SqliteLedger, back_up, restore
from hushgrid.stores.ledger.writer import Ledger, verify_signature
from tests.cli.commands import hushgrid
from tests.services import Postgres, postgres_binaries
from tests.stores.ledger.ledgers import KEY, START, ZONE, checked, child, instead, opened, refusal

WRITER = """
import sys
from pathlib import Path
from tests.stores.ledger.ledgers import instead, opened
path, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with opened(path) as ledger:
    for t in range(first, last):
        ledger.publish(instead(t, "fallback"))
        print(t, flush=True)
"""


def grow(path: Path, first: int, last: int, zone: str = ZONE) -> None:
    with opened(path, zone) as ledger:
        for t in range(first, last):
            ledger.publish(instead(t, "fallback", zone=zone))


def take_away(path: Path) -> None:
    """The disk is lost, or somebody moved the file; witnesses stay."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def test_a_copy_made_beside_a_writer_has_all_that_was_told_before(tmp_path: Path) -> None:
    path, copies = tmp_path / "ledger.db", tmp_path / "copies"
    copies.mkdir()
    grow(path, 1, 3)
    writer = child(WRITER, path, 3, 1_000_000)  # until it is killed
    told = 2
    try:
        for k in range(6):
            told = int(writer.stdout.readline())  # type: ignore[union-attr]
            report = back_up(path, copies / f"{k}.db", verify_signature)
            assert report.first_bad is None
            assert report.standings[ZONE].last_t >= told
        assert writer.poll() is None, (
            "the writer was done before the copies: the test shows nothing"
        )
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()  # type: ignore[union-attr]
    assert sorted(one.name for one in copies.iterdir()) == [
        f"{k}.db" for k in range(6)
    ]  # no log, no part
    assert checked(copies / "5.db").first_bad is None


def test_a_copy_put_back_goes_on(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    grow(path, 1, 4)
    found = hushgrid("ledger", "backup", path, copy, "--json", "-")
    assert (found.returncode, found.stderr) == (0, "")
    assert json.loads(found.stdout)["records"] == 4
    take_away(path)
    found = hushgrid("ledger", "restore", copy, path)
    assert (found.returncode, found.stderr) == (0, "")
    assert "good: 4 records" in found.stdout
    grow(path, 4, 6)
    assert checked(path).records == 6
    assert checked(path).first_bad is None


def test_an_older_copy_is_refused_and_nothing_is_put(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    grow(path, 1, 4)
    back_up(path, copy, verify_signature)
    grow(path, 4, 5)
    head = checked(path).head
    take_away(path)
    found = hushgrid("ledger", "restore", copy, path)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    assert f"record {str(head)[:12]} is known from elsewhere" in found.stderr
    assert "newer copy" in found.stderr
    assert not path.exists()
    assert not path.with_name("ledger.db.part").exists()
    shutil.copy(copy, path)  # by hand it is no better
    assert "not in the ledger" in str(checked(path).reason)
    assert "an older copy was put back" in str(refusal(path))


def test_a_copy_without_a_zone_that_was_known_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    grow(path, 1, 3)
    back_up(path, copy, verify_signature)
    grow(path, 1, 3, "oak-lane")
    take_away(path)
    says = "knows a zone that is not in the ledger or its copy"
    with pytest.raises(LedgerError, match=says):
        restore(copy, path, verify_signature)
    shutil.copy(copy, path)  # by hand
    with pytest.raises(LedgerError, match=says):
        back_up(path, tmp_path / "again.db", verify_signature)
    take_away(path)
    sidecar_path(path, "oak-lane").unlink()
    assert restore(copy, path, verify_signature).records == 3


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    grow(path, 1, 3)
    back_up(path, copy, verify_signature)
    before = copy.read_bytes()
    for attempt in (lambda: back_up(path, copy), lambda: restore(copy, path)):
        with pytest.raises(LedgerError, match="exists already"):
            attempt()
    assert copy.read_bytes() == before
    path.unlink()
    log = path.with_name("ledger.db-wal")
    log.write_bytes(b"an old log")
    with pytest.raises(LedgerError, match="db-wal exists already"):
        restore(copy, path)


def test_a_running_service_keeps_its_ledger(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    grow(path, 1, 3)
    back_up(path, copy, verify_signature)
    with opened(path):
        moved = tmp_path / "moved.db"
        path.rename(moved)
        for name in ("-wal", "-shm"):
            path.with_name(f"ledger.db{name}").rename(tmp_path / f"moved.db{name}")
        with pytest.raises(LedgerError, match="has a writer already"):
            restore(copy, path, verify_signature)


def test_a_damaged_ledger_is_not_copied(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    grow(path, 1, 4)
    with sqlite3.connect(path, isolation_level=None) as database:
        database.execute("DROP TRIGGER records_stay")
        database.execute("UPDATE records SET body = replace(body, '0.25', '0.26') WHERE seq = 3")
    database.close()
    with pytest.raises(LedgerError, match="nothing was copied: record 3"):
        back_up(path, copy, verify_signature)
    assert not copy.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["backup", "absent.db", "x.db"], "absent.db does not exist"),
        (["backup", "postgresql://u:hunter2@127.0.0.1:1/x", "x.db"], "pg_dump"),
        (["restore", "Makefile", "x.db"], "Makefile is not a ledger"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], says: str) -> None:
    found = hushgrid("ledger", *words)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert says in found.stderr
    assert "hunter2" not in found.stderr


def test_a_ledger_without_records_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    SqliteLedger(path).close()
    with pytest.raises(LedgerError, match="no records yet"):
        back_up(path, tmp_path / "copy.db")
    with pytest.raises(LedgerError, match=r"make .*absent first"):
        back_up(path, tmp_path / "absent" / "copy.db")


@pytest.mark.soak
def test_a_dump_of_a_database_goes_on_and_an_older_one_is_told_by_its_head(
    postgres: Postgres, tmp_path: Path
) -> None:
    tools = postgres_binaries()
    assert tools is not None
    url, empty = postgres.fresh(), postgres.fresh()

    def publish(place: str, t: int) -> str:
        with open_store(place) as store:
            with Ledger.open(store, ZONE, KEY, "production", START - 60) as ledger:
                ledger.publish(instead(t, "fallback"))
            return str(store.head(ZONE).digest)  # type: ignore[union-attr]

    publish(url, 1)
    head = publish(url, 2)
    dump = tmp_path / "dump"
    subprocess.run([tools / "pg_dump", "-Fc", "-f", dump, url], check=True)
    later = publish(url, 3)
    words = [tools / "pg_restore", "--exit-on-error", "-d", empty, dump]
    subprocess.run(words, check=True)
    assert hushgrid("ledger", "verify", empty, "--head", head).returncode == 0
    found = hushgrid("ledger", "verify", empty, "--head", later)
    assert (found.returncode, "known from elsewhere" in found.stdout) == (1, True)
    publish(empty, 3)  # triggers and locks came along
    with psycopg.connect(empty) as link, pytest.raises(psycopg.Error, match="never"):
        link.execute("DELETE FROM hushgrid_ledger")
