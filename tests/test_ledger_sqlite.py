"""The ledger in a file: kills, full and read-only disks, torn ends, two writers, foreign files."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.book import Ledger
from hushgrid.live.ledger.chain import Report, check
from hushgrid.live.ledger.keys import verify
from hushgrid.live.ledger.stores import open_store
from hushgrid.live.ledger.stores.sidecar import sidecar_path
from hushgrid.live.ledger.stores.sqlite import SqliteLedger
from hushgrid.live.testing import check_ledger_store
from tests.ledgers import instead, opened, story, write_story

ROOT = Path(__file__).parent.parent
ZONE = "elm-street"


def checked(path: Path) -> Report:
    with SqliteLedger(path, create=False) as store:
        noted = store.witness(ZONE)
        return check(store.records(ZONE), verify, {noted: ZONE} if noted else {})


def test_it_is_a_ledger_store(tmp_path: Path) -> None:
    check_ledger_store(lambda: SqliteLedger(tmp_path / "ledger.db"))


def test_every_commit_is_synced(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger.db") as store:
        database = store._database
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_records_are_never_changed_or_removed(tmp_path: Path) -> None:
    write_story(tmp_path / "ledger.db")
    database = sqlite3.connect(tmp_path / "ledger.db")
    for act in ("UPDATE records SET t = 99 WHERE t = 1", "DELETE FROM records"):
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
    assert checked(path).records == 13


def test_another_mode_or_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)
    with (
        pytest.raises(LedgerError, match="for production, not for simulation"),
        opened(path, mode="simulation"),
    ):
        pass
    from hushgrid.live.ledger import keys

    other = keys.create(tmp_path / "other.pem")
    with (
        SqliteLedger(path) as store,
        pytest.raises(LedgerError, match=r"signed with the key 03a107bff3ce"),
        Ledger.open(store, ZONE, other, "production", 0),
    ):
        pass


APPEND = """
import os, sys
from pathlib import Path
from tests.ledgers import instead, opened
with opened(Path(sys.argv[1])) as ledger:
    t = ledger.standing.last_t
    while True:
        t += 1
        shown = ledger.publish(instead(t, "fallback"))
        os.write(1, f"{t} {shown.head}\\n".encode())
"""


def child(code: str, *words: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stdout=subprocess.PIPE, cwd=ROOT
    )


def test_nothing_acknowledged_is_lost_to_a_kill(tmp_path: Path) -> None:
    path, rng = tmp_path / "ledger.db", random.Random(1)
    acknowledged: dict[int, str] = {}
    for _ in range(15):
        process = child(APPEND, path)
        assert process.stdout is not None
        told = b"".join(process.stdout.readline() for _ in range(rng.randrange(1, 4)))
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read()
        process.wait()
        process.stdout.close()
        for line in told.split(b"\n")[:-1]:
            t, head = line.decode().split()
            acknowledged[int(t)] = head
        report = checked(path)
        assert report.first_bad is None, report.reason
        there = {one.t: one.head for one in report.standings[ZONE].releases}
        assert acknowledged.items() <= there.items()
        acknowledged = there  # one more may be there that nobody was told of
    assert len(acknowledged) > 15


def snapshot(path: Path, target: Path) -> Path:
    """The files as a crash would leave them, while the ledger is open."""
    target.mkdir()
    for name in (path.name, f"{path.name}-wal", sidecar_path(path, ZONE).name):
        shutil.copy(path.with_name(name), target / name)
    return target / path.name


def crashed(path: Path, target: Path, more: int = 0) -> Path:
    with opened(path) as ledger:
        for kind, body in story()[1:]:
            ledger.append(kind, body)
        for t in range(7, 7 + more):
            ledger.publish(instead(t, "fallback"))
        return snapshot(path, target)


def test_a_crash_leaves_everything(tmp_path: Path) -> None:
    left = crashed(tmp_path / "ledger.db", tmp_path / "left")
    assert checked(left).records == 12
    with opened(left) as ledger:
        assert ledger.standing.head.seq == 12


def test_a_cut_log_is_noticed(tmp_path: Path) -> None:
    left = crashed(tmp_path / "ledger.db", tmp_path / "left")
    log = left.with_name(f"{left.name}-wal")
    whole, rng = log.read_bytes(), random.Random(2)
    lengths = {0, 1, 31, 32, 33, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(25))}
    for n, length in enumerate(sorted(lengths)):
        cut = tmp_path / f"cut{n}"
        shutil.copytree(left.parent, cut)
        (cut / log.name).write_bytes(whole[:length])
        said = refusal(cut / left.name)
        assert said is not None, length
        assert "was durable" in said


def refusal(path: Path) -> str | None:
    try:
        with opened(path):
            return None
    except LedgerError as error:
        return str(error)


def test_the_report_of_a_cut_log_says_which_record_is_lost(tmp_path: Path) -> None:
    left = crashed(tmp_path / "ledger.db", tmp_path / "left")
    log = left.with_name(f"{left.name}-wal")
    log.write_bytes(log.read_bytes()[:-1])
    report = checked(left)
    assert (report.records, report.first_bad) == (11, 12)
    assert "its end was lost" in (report.reason or "")


def test_a_torn_record_that_nobody_was_told_of_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    sidecar = sidecar_path(path, ZONE)
    with opened(path) as ledger:
        for kind, body in story()[1:-1]:
            ledger.append(kind, body)
        noted = sidecar.read_bytes()
        ledger.append(*story()[-1])
        left = snapshot(path, tmp_path / "left")
    (left.parent / sidecar.name).write_bytes(noted)  # the power went before it was noted
    log = left.with_name(f"{left.name}-wal")
    whole = log.read_bytes()
    with opened(left) as ledger:
        assert ledger.standing.head.seq == 12  # the whole record counts all the same
    shutil.copy(path, left)
    for n in range(1, 4000, 800):  # the last commit torn in its last page
        log.write_bytes(whole[:-n])
        left.with_name(f"{left.name}-shm").unlink(missing_ok=True)
        (left.parent / sidecar.name).write_bytes(noted)
        report = checked(left)
        assert (report.records, report.first_bad) == (11, None), report.reason
    with opened(left) as ledger:
        ledger.append(*story()[-1])
    assert checked(left).records == 12


def test_a_changed_byte_never_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    records = write_story(path)
    log_left = crashed(tmp_path / "other.db", tmp_path / "left")
    rng, noticed = random.Random(3), 0
    for source, name in ((path, path.name), (log_left, f"{log_left.name}-wal")):
        whole = source.with_name(name).read_bytes()
        for n in range(60):
            copy = tmp_path / f"{name}{n}"
            copy.mkdir()
            for one in source.parent.glob(f"{source.name}*"):
                if not one.name.endswith("-shm") and one.is_file():
                    shutil.copy(one, copy)
            changed = bytearray(whole)
            changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            (copy / name).write_bytes(changed)
            said = refusal(copy / source.name)
            noticed += said is not None
            if said is None:  # then it was in a part without content
                with SqliteLedger(copy / source.name) as store:
                    assert list(store.records(ZONE)) == records
            shutil.rmtree(copy)
    assert noticed > 20  # the test itself can tell


def test_an_older_copy_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)
    backup = path.read_bytes()
    with opened(path) as ledger:
        ledger.publish(instead(7, "fallback"))
    path.write_bytes(backup)
    assert "an older copy was put back" in (refusal(path) or "")
    sidecar_path(path, ZONE).unlink()  # what the message's page says to do in the end
    with opened(path) as ledger:
        assert ledger.standing.last_t == 6


def test_a_damaged_witness_is_no_witness(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)
    sidecar = sidecar_path(path, ZONE)
    whole = sidecar.read_bytes()
    for slot in (0, 128):  # one slot torn: the other one speaks, perhaps of the record before
        sidecar.write_bytes(whole[:slot] + b"\0" * 128 + whole[slot + 128 :])
        with SqliteLedger(path, create=False) as store:
            assert store.witness(ZONE) in {r.digest for r in list(store.records(ZONE))[-2:]}
    for both in (b"\0" * 256, whole.replace(b"1", b"2"), b"junk"):
        sidecar.write_bytes(both)
        assert "damaged" in (refusal(path) or "")


def test_a_record_that_was_stored_but_not_noted_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with opened(path) as ledger:
        monkeypatch.setattr(os, "pwrite", fails)
        with pytest.raises(LedgerError, match=r"record 13 .* is stored"):
            ledger.publish(instead(7, "fallback"))
        with pytest.raises(LedgerError, match="an append to the ledger"):
            ledger.publish(instead(7, "fallback"))
    monkeypatch.undo()
    with opened(path) as ledger:  # reading it back shows it: it is not made a second time
        assert ledger.standing.at(7) is not None


def test_what_is_new_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hushgrid.live.ledger import keys

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
    from hushgrid.live.ledger.stores.sidecar import Sidecar

    monkeypatch.setattr(Sidecar, "is_mine", lambda _: False)
    assert "has a writer" in (refusal(tmp_path / "ledger.db") or "")


def test_a_lock_file_cut_short_by_a_crash_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    sidecar_path(path, ZONE).write_bytes(b"")
    write_story(path)
    assert checked(path).records == 12


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while stream.write(b"\0" * 4096) == 4096:
                pass
        except OSError:
            pass
    return filler


def publish_until_refused(ledger: Ledger, t: int) -> tuple[int, str]:
    """The last step published after t, and why the next one was not."""
    while True:
        try:
            ledger.publish(instead(t + 1, "fallback"))
        except LedgerError as error:
            return t, str(error)
        t += 1


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "ledger.db"
        write_story(path)
        with opened(path) as ledger:
            filler = fill(disk)
            t, said = publish_until_refused(ledger, 6)
            assert "full" in said
            with pytest.raises(LedgerError, match="an append to the ledger"):
                ledger.publish(instead(t + 1, "fallback"))
        full = checked(path)
        assert full.first_bad is None, full.reason
        assert full.standings[ZONE].last_t == t  # all that was acknowledged, and not one more
        filler.unlink()
        with opened(path) as ledger:
            ledger.publish(instead(t + 1, "fallback"))
        assert checked(path).first_bad is None


FULL = """
import resource, sys
from pathlib import Path
from hushgrid.errors import LedgerError
from tests.ledgers import instead, opened
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
with opened(Path(sys.argv[1])) as ledger:
    t = ledger.standing.last_t
    try:
        while True:
            ledger.publish(instead(t + 1, "fallback"))
            t += 1
    except LedgerError as error:
        print(t, "\\n" not in str(error))
"""


def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_story(path)
    process = child(FULL, path)
    told = process.communicate()[0].split()
    assert (process.returncode, told[1]) == (0, b"True")
    report = checked(path)
    assert report.first_bad is None, report.reason
    assert report.standings[ZONE].last_t == int(told[0]) > 6


def test_a_read_only_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "ledger.db"
        records = write_story(path)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert refusal(path) is not None
        with pytest.raises(LedgerError):
            SqliteLedger(disk / "new.db")
        assert checked(path).head == records[-1].digest  # reading it is fine
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        with opened(path) as ledger:
            assert ledger.standing.head.digest == records[-1].digest


def test_a_read_only_folder(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    records = write_story(path)
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("root may write into every folder")
        assert refusal(path) is not None
        assert checked(path).head == records[-1].digest
    finally:
        tmp_path.chmod(0o700)
    with opened(path) as ledger:
        assert ledger.standing.head.digest == records[-1].digest


HOLD = """
import sys
from pathlib import Path
from tests.ledgers import opened
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
    assert checked(path).records == 12  # and anybody reads
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
from tests.ledgers import instead, opened
sys.stdin.read()
with opened(Path(sys.argv[1]), sys.argv[2]) as ledger:
    for t in range(1, 31):
        ledger.publish(instead(t, "fallback", zone=sys.argv[2]))
"""


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
        report = check((r for zone in zones for r in store.records(zone)), verify)
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
        from tests.ledgers import KEY

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
        assert check((r for z in zones for r in store.records(z)), verify).records == 4 * 21


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
