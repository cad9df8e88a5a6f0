"""The ledger in a file when things break: kills, torn logs, full and read-only disks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.store import SqliteLedger
from hushgrid.stores.ledger.writer import Ledger
from tests.disks import fill, small_disk
from tests.examples import examples
from tests.stores.ledger.ledgers import (
    ZONE,
    checked,
    child,
    instead,
    opened,
    refusal,
    story,
    write_story,
)

KILLS = examples(20)
APPEND = """
import os, sys
from pathlib import Path
from tests.stores.ledger.ledgers import instead, opened
with opened(Path(sys.argv[1])) as ledger:
    t = ledger.standing.last_t
    while True:
        t += 1
        shown = ledger.publish(instead(t, "fallback"))
        os.write(1, f"{t} {shown.head}\\n".encode())
"""


def test_nothing_acknowledged_is_lost_to_a_kill(tmp_path: Path) -> None:
    path, rng = tmp_path / "ledger.db", random.Random(1)
    acknowledged: dict[int, str] = {}
    for _ in range(KILLS):
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
    assert len(acknowledged) > KILLS


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
    assert checked(left).records == 10
    with opened(left) as ledger:
        assert ledger.standing.head.seq == 10


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


def test_the_report_of_a_cut_log_says_which_record_is_lost(tmp_path: Path) -> None:
    left = crashed(tmp_path / "ledger.db", tmp_path / "left")
    log = left.with_name(f"{left.name}-wal")
    log.write_bytes(log.read_bytes()[:-1])
    report = checked(left)
    assert (report.records, report.first_bad) == (9, 10)
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
        assert ledger.standing.head.seq == 10  # the whole record counts all the same
    shutil.copy(path, left)
    for n in range(1, 4000, 800):  # the last commit torn in its last page
        log.write_bytes(whole[:-n])
        left.with_name(f"{left.name}-shm").unlink(missing_ok=True)
        (left.parent / sidecar.name).write_bytes(noted)
        report = checked(left)
        assert (report.records, report.first_bad) == (9, None), report.reason
    with opened(left) as ledger:
        ledger.append(*story()[-1])
    assert checked(left).records == 10


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
        with pytest.raises(LedgerError, match=r"record 11 .* is stored"):
            ledger.publish(instead(7, "fallback"))
        with pytest.raises(LedgerError, match="an append to the ledger"):
            ledger.publish(instead(7, "fallback"))
    monkeypatch.undo()
    with opened(path) as ledger:  # reading it back shows it: it is not made a second time
        assert ledger.standing.at(7) is not None


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
from tests.stores.ledger.ledgers import instead, opened
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
