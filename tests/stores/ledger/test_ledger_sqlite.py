"""The ledger in a file: resuming, two writers, many processes and threads, foreign files."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.store import SqliteLedger
from hushgrid.stores.ledger.writer import Ledger, verify_signature
from tests.stores.conformance import check_ledger_store
from tests.stores.ledger.ledgers import (
    ROOT,
    ZONE,
    checked,
    instead,
    opened,
    refusal,
    story,
    write_story,
)


def test_it_is_a_ledger_store(tmp_path: Path) -> None:
    check_ledger_store(lambda: SqliteLedger(tmp_path / "ledger.db"))


def test_every_commit_is_synced(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger.db") as store, store.read() as database:
        assert database.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert database.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_records_are_never_changed_or_removed(tmp_path: Path) -> None:
    write_story(tmp_path / "ledger.db")
    database = sqlite3.connect(tmp_path / "ledger.db")
    for act in ("UPDATE records SET t = 99 WHERE seq = 4", "DELETE FROM records"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            database.execute(act)
    database.close()


def test_resuming_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    told = story()
    for n in range(1, len(told)):
        with opened(path) as ledger:  # a new process for every record
            ledger.append(*told[n])
    assert checked(path).records == len(told)
    with opened(path) as ledger:
        assert ledger.standing == checked(path).standings[ZONE]


def test_what_the_rules_forbid_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)
    with opened(path) as ledger:
        with pytest.raises(LedgerError, match="is published"):
            ledger.publish(instead(6, "fallback"))
        shown = ledger.publish(instead(7, "fallback"))  # a refusal by the rules spoils nothing
        assert ledger.standing.at(7) == shown
    assert checked(path).records == 11


def test_another_mode_or_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)
    with (
        pytest.raises(LedgerError, match="for production, not for simulation"),
        opened(path, mode="simulation"),
    ):
        pass
    from hushgrid.stores.ledger import writer as keys

    other = keys.create(tmp_path / "other.pem")
    with (
        SqliteLedger(path) as store,
        pytest.raises(LedgerError, match=r"signed with the key 03a107bff3ce"),
        Ledger.open(store, ZONE, other, "production", 0),
    ):
        pass


def test_what_is_new_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hushgrid.stores.ledger import writer as keys

    synced, sync = [], os.fsync

    def noting(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        sync(file)

    monkeypatch.setattr(os, "fsync", noting)
    keys.create(tmp_path / "key.pem")
    assert synced == [tmp_path / "key.pem", tmp_path]  # the file, then its name
    synced.clear()
    path = tmp_path / "ledger.db"
    sidecar = sidecar_path(path, ZONE)
    with opened(path) as ledger:
        # the database's name; the lock file and its name; the genesis noted
        assert synced == [tmp_path, sidecar, tmp_path, sidecar]
        ledger.append(*story()[1])
        assert synced[4:] == [sidecar]


def test_a_lock_file_made_anew_while_it_was_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hushgrid.stores.ledger.sidecar import Sidecar

    monkeypatch.setattr(Sidecar, "is_mine", lambda _: False)
    assert "has a writer" in (refusal(tmp_path / "ledger.db") or "")


def test_a_lock_file_cut_short_by_a_crash_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    sidecar_path(path, ZONE).write_bytes(b"")
    write_story(path)
    assert checked(path).records == 10


HOLD = """
import sys
from pathlib import Path
from tests.stores.ledger.ledgers import opened
with opened(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_writers(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    assert "'elm-street' has a writer" in (refusal(path) or "")
    with opened(path, "oak-street") as other:  # another zone in the same file
        other.publish(instead(1, "fallback", zone="oak-street"))
    assert checked(path).records == 10  # and anybody reads
    holder.kill()
    holder.communicate()
    with opened(path) as ledger:  # the lock went with its holder
        ledger.publish(instead(7, "fallback"))


def test_a_lock_file_removed_locks_its_holder_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with opened(path) as ledger:
        sidecar_path(path, ZONE).unlink()
        with opened(path) as second:
            with pytest.raises(LedgerError, match="no writer here"):
                ledger.append(*story()[1])
            second.append(*story()[1])
    assert checked(path).records == 2


START = """
import sys
from pathlib import Path
from tests.stores.ledger.ledgers import instead, opened
sys.stdin.read()
with opened(Path(sys.argv[1]), sys.argv[2]) as ledger:
    for t in range(1, 31):
        ledger.publish(instead(t, "fallback", zone=sys.argv[2]))
"""


@pytest.mark.soak
def test_processes_that_start_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    zones = [f"zone-{n}" for n in range(4)]
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", START, path, zone],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        for zone in zones
    ]
    time.sleep(1)
    for process in crowd:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    for process in crowd:
        assert (process.communicate()[1], process.returncode) == (b"", 0)
    with SqliteLedger(path, create=False) as store:
        assert store.zones() == tuple(zones)
        report = check((r for zone in zones for r in store.records(zone)), verify_signature)
    assert (report.records, report.first_bad) == (4 * 31, None)


def test_a_reader_never_cries_wolf(tmp_path: Path) -> None:
    """While records are appended the witness is never ahead of what is read after it."""
    path = tmp_path / "ledger.db"
    write_story(path)
    done, found = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            found.append(checked(path).first_bad)

    reader = threading.Thread(target=read)
    with opened(path) as ledger:
        reader.start()
        for t in range(7, 150):
            ledger.publish(instead(t, "fallback"))
    done.set()
    reader.join()
    assert set(found) == {None}


def test_one_store_in_several_threads(tmp_path: Path) -> None:
    zones, said = [f"zone-{n}" for n in range(4)], []

    def write(store: SqliteLedger, zone: str) -> None:
        from tests.stores.ledger.ledgers import KEY

        try:
            with Ledger.open(store, zone, KEY, "production", 0) as ledger:
                for t in range(1, 21):
                    ledger.publish(instead(t, "fallback", zone=zone))
        except BaseException as error:
            said.append(error)

    with SqliteLedger(tmp_path / "ledger.db") as store:
        threads = [threading.Thread(target=write, args=(store, zone)) for zone in zones]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert said == []
        assert (
            check((r for z in zones for r in store.records(z)), verify_signature).records == 4 * 21
        )


def test_foreign_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be taken for one" * 50)
    other = tmp_path / "other.db"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE meters (id)")
    database.commit()
    database.close()
    newer = tmp_path / "newer.db"
    write_story(newer)
    database = sqlite3.connect(newer)
    database.execute("PRAGMA user_version = 2")
    database.close()
    for path, says in ((text, "not a ledger"), (other, "something else"), (newer, "version 2")):
        before = path.read_bytes()
        for create in (True, False):
            with pytest.raises(LedgerError, match=says):
                SqliteLedger(path, create=create)
        assert path.read_bytes() == before
    with pytest.raises(LedgerError, match="does not exist"):
        SqliteLedger(tmp_path / "absent.db", create=False)
    with pytest.raises(LedgerError, match="in no folder"):
        SqliteLedger(tmp_path / "absent" / "ledger.db")
    with pytest.raises(LedgerError):
        SqliteLedger(tmp_path)
    assert not (tmp_path / "absent.db").exists()


def test_stores_by_url(tmp_path: Path) -> None:
    path = tmp_path / "a ledger?#%.db"
    for url in (f"sqlite:{path}", f"sqlite://{path}", str(path)):
        with open_store(url) as store:
            assert store.zones() == ()
    assert path.exists()
    with pytest.raises(LedgerError, match="scheme 'mysql'"):
        open_store("mysql://localhost/ledger")
