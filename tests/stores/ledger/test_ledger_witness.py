"""The witness: what it keeps, what it gives back, and what a ledger that lost records becomes."""

from __future__ import annotations

import logging
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hushgrid.errors import LedgerError, LedgerHeldError
from hushgrid.stores.ledger import witness
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.records import Head, Record
from hushgrid.stores.ledger.recovery import OpenedLedger
from hushgrid.stores.ledger.sidecar import Sidecar, read_witness, sidecar_path
from hushgrid.stores.ledger.witness import KEPT, Witness, Witnesses
from hushgrid.stores.ledger.writer import verify_signature
from tests import bodies
from tests.stores.ledger.ledgers import ZONE, instead, opening, read, sealed
from tests.stores.ledger.machine import Machine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a witness."""
    slot = tmp_path / "files" / "1"
    slot.mkdir(parents=True)
    return slot / "one"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.begin()
    return made


def test_records_that_an_older_copy_lacks_are_appended_again(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.grow(1)
    copy = machine.copy()
    machine.grow(2, 3)
    before = machine.records()
    machine.put_back(copy)
    with machine.opened() as ledger:
        assert ledger.standing.last_t == 3
        assert ledger.opening == OpenedLedger(own_end=True, blind=True)
    assert machine.records() == before  # digests and signatures as well
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == [
        "records put back"
    ]
    machine.grow(4)


def test_a_ledger_that_is_gone_altogether_comes_back(machine: Machine) -> None:
    machine.grow(1, 2)
    before = machine.records()
    machine.lose()
    machine.grow(3)
    assert machine.records()[:-1] == before


def test_a_store_that_is_ahead_is_no_loss(machine: Machine) -> None:
    """A kill between the store's append and the witness."""
    machine.grow(1)
    machine.grow(2, seen=False)
    with machine.opened() as ledger:
        assert ledger.opening == OpenedLedger(blind=True)
    with machine.opened() as ledger:
        ledger.settle()
    with machine.opened() as ledger:
        assert ledger.opening == OpenedLedger(own_end=True, blind=True)


def test_another_history_is_refused_in_one_sentence(machine: Machine) -> None:
    machine.grow(1)
    copy = machine.copy()
    machine.grow(2, 3)
    machine.put_back(copy)
    machine.grow(2, source="forecast", seen=False)
    with pytest.raises(LedgerError, match=r"steps 2 to 3 .* two histories .* hushgrid resume"):
        machine.grow(4)
    with machine.opened(forked=True) as ledger:
        assert ledger.opening.forked == (2, 3)
        ledger.append("gap", bodies.gap(2, 3, "fork"))
        ledger.append("resume", bodies.resume(2, 3, epsilon=1.0))
    machine.grow(4)  # the gap has taken the place of the other history


def test_records_between_that_nobody_has_are_a_gap(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "KEPT", 4)
    machine.grow(1)
    copy = machine.copy()
    machine.grow(*range(2, 20))
    machine.put_back(copy)
    with machine.opened() as ledger:
        found = ledger.opening
        assert (found.lost, found.last_t, found.own_end) == (True, 19, False)
        with pytest.raises(LedgerError, match="present terms"):
            ledger.append("gap", bodies.gap(3, 2, "witness"))
        ledger.append("gap", bodies.gap(2, 19, "witness"))
        with pytest.raises(LedgerError, match=r"steps 2 to 19\) that is not booked"):
            ledger.publish(read(20))
    for t in (20, 21):  # the witness keeps what was lost until then, and asks no more
        machine.grow(t, source="forecast")
    with machine.opened() as ledger:
        assert not ledger.opening.lost
        assert ledger.standing.gap is not None


def test_a_sidecar_alone_shows_a_loss(machine: Machine) -> None:
    machine.grow(1)
    copy = machine.copy()
    machine.grow(2)
    sidecar = sidecar_path(machine.path, ZONE).read_bytes()
    machine.put_back(copy)
    sidecar_path(machine.path, ZONE).write_bytes(sidecar)
    shutil.rmtree(machine.folder)
    with machine.opened() as ledger:
        assert ledger.opening.lost
    with (  # who keeps no witness is refused, as ever
        pytest.raises(LedgerError, match="an older copy was put back"),
        machine.opened(seen=False),
    ):
        pass


@pytest.mark.parametrize("by", [1, 40, 900])
def test_a_torn_line_leaves_those_before_it(path: Path, by: int) -> None:
    records = sealed([*opening(), *(("release", read(t)) for t in (1, 2, 3))])
    one = Witness(ZONE, path)
    one.note(records[:-1], local=True)
    whole = path.read_bytes().removesuffix(witness.END)
    one.note(records[-1:], local=True)
    content = path.read_bytes().removesuffix(witness.END)
    path.write_bytes(content[: max(len(content) - by, len(whole))])
    again = Witness(ZONE, path)
    (tail,) = again.tails()
    assert tail.records == tuple(records[:-1])
    assert (tail.local, tail.intact) == (False, False)
    again.note(records[-1:], local=True)  # and the torn end is no part of it
    (tail,) = Witness(ZONE, path).tails()
    assert tail.records == tuple(records)


def test_a_changed_byte_is_not_believed(path: Path) -> None:
    records = sealed([*opening(), *(("release", read(t)) for t in (1, 2, 3))])
    Witness(ZONE, path).note(records, local=True)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"rate":0.25', b'"rate":0.26'))
    assert content != path.read_bytes()
    (tail,) = Witness(ZONE, path).tails()
    assert tail.records == tuple(records[4:])


def test_a_sent_record_is_none_that_is_stored(path: Path) -> None:
    records = sealed([*opening(), *(("release", read(t)) for t in (1, 2, 3))])
    Witness(ZONE, path, shared=True).note(records[:4], local=True)
    Witness(ZONE, path, shared=True).send(records[4])
    again = Witness(ZONE, path, shared=True)
    (tail,) = again.tails()
    assert (tail.records, tail.sent, tail.damaged) == (tuple(records[:4]), records[4], False)
    assert again.sent_records() == [records[4]]
    assert not again.wrote(records[3].digest)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])  # a kill while it is written
    (tail,) = again.tails()
    assert (tail.records, tail.sent, tail.damaged) == (tuple(records[:4]), None, False)
    path.write_bytes(whole.replace(witness.SENT, b"ment "))
    (tail,) = again.tails()
    assert (tail.sent, tail.damaged) == (None, True), "it may have been a record"
    path.write_bytes(whole)
    again.note(records[4:5], local=True)
    (tail,) = again.tails()
    assert (tail.records, tail.sent) == (tuple(records[:5]), None)


def test_the_file_stays_small_and_its_end_whole(path: Path) -> None:
    releases = [("release", instead(t, "fallback")) for t in range(1, 3 * KEPT)]
    records = sealed([*opening(), *releases])
    one = Witness(ZONE, path)
    for record in records:
        one.note([record], local=True)
    lines = path.read_bytes().count(b"\n") - 1  # and the end
    assert KEPT <= lines <= 2 * KEPT
    (tail,) = one.tails()
    assert tail.local
    assert tail.records == tuple(records[-lines:])


def test_a_start_parses_few_lines_of_a_witness_that_the_ledger_covers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the age of the zone: a curator that takes over opens many."""
    machine.grow(*range(1, 121))
    parse, parsed = witness._parsed, list[bytes]()

    def counted(zone: str, line: bytes) -> Record | None:
        parsed.append(line)
        return parse(zone, line)

    monkeypatch.setattr(witness, "_parsed", counted)
    with machine.opened() as ledger:
        ledger.settle()
        assert ledger.standing.last_t == 120
    assert len(parsed) <= 8


def test_curators_have_places_of_their_own_and_read_the_others(tmp_path: Path) -> None:
    records = sealed(opening())
    with Witnesses(tmp_path, shared=True) as first, Witnesses(tmp_path, shared=True) as second:
        first.of(ZONE).note(records, local=True)
        (tail,) = second.of(ZONE).tails()
        assert tail.records == tuple(records)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    with Witnesses(tmp_path, shared=True) as again:  # the first place is free
        assert again.of(ZONE)._path.parent.name == "1"


def test_a_zone_of_a_single_writer_has_one_file(tmp_path: Path) -> None:
    """Of two, the one that is left could be older than the ledger's last record."""
    records = sealed(opening())
    with Witnesses(tmp_path) as first, Witnesses(tmp_path) as second:
        first.of(ZONE).note(records[:-1], local=True)
        second.of(ZONE).note(records[-1:], local=True)
        (tail,) = first.of(ZONE).tails()
        assert tail.records == tuple(records)
        assert first.of(ZONE).wrote(records[-1].digest)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match=r"set stores\.witness"):
        Witnesses(tmp_path / "file" / "witness")


def test_the_witness_comes_before_anyone_is_shown(machine: Machine) -> None:
    with machine.opened() as ledger:
        shutil.rmtree(machine.folder)
        with pytest.raises(LedgerError, match="cannot be written"):
            ledger.publish(instead(1, "fallback"))
        with pytest.raises(LedgerError, match="open it again"):
            ledger.publish(instead(1, "fallback"))
    with machine.opened() as ledger:
        assert ledger.standing.last_t == 1  # stored, and shown from there


def test_a_gap_may_be_extended_and_both_verifiers_agree(tmp_path: Path) -> None:
    told = [
        *opening(),
        ("gap", bodies.gap(1, 2, "failover")),
        ("gap", bodies.gap(1, 3, "meters")),
    ]
    records = sealed([*told, ("resume", bodies.resume(1, 3, epsilon=1.0))])
    report = check(records, verify_signature)
    assert report.first_bad is None, report.reason
    assert [(one.first, one.last) for one in report.standings[ZONE].gaps] == [(1, 3)]
    export = tmp_path / "export"
    export.write_text("".join(f"{one.line}\n" for one in records))
    script = Path(__file__).parents[3] / "scripts" / "verify_ledger.py"
    subprocess.run([sys.executable, str(script), str(export)], check=True)


def test_a_new_record_replaces_a_later_one_in_the_small_file(tmp_path: Path) -> None:
    """A ledger that lost its end goes on with lower numbers; the lost one is not missed again."""
    path = tmp_path / "small"
    one = Sidecar(path, ZONE)
    for seq in (7, 8, 9, 6):
        one.note(Head(seq, f"{seq:064x}"))
    one.release()
    assert read_witness(path) == Head(6, f"{6:064x}")


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """A write beyond takes a part of its bytes, and no error, as on a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_is_cut_short_is_an_error(
    machine: Machine, path: Path, tmp_path: Path
) -> None:
    machine.grow(1)
    *before, last = machine.records()
    small = tmp_path / "small"
    noted = Witness(ZONE, path)
    noted.note(before, local=True)
    with files_up_to(path.stat().st_size + 50), pytest.raises(LedgerError, match="witness"):
        noted.note([last], local=True)
    noted.note([last], local=True)
    assert noted.wrote(last.digest), "once there is room"
    sidecar, head = Sidecar(small, ZONE), Head(last.seq | 1, last.digest)
    with files_up_to(200), pytest.raises(LedgerError, match="cannot be written"):
        sidecar.note(head)
    sidecar.note(head)
    assert read_witness(small) == head
    sidecar.release()


def test_one_process_on_a_folder_appends_to_a_zone_whatever_its_ledger(machine: Machine) -> None:
    """The lock of a server's ledger ends with its session; a moved one has another lock."""
    other = Machine(machine.path.parent)
    other.path = machine.copy()
    with (
        machine.opened(),
        pytest.raises(LedgerHeldError, match="has a writer already"),
        other.opened(),
    ):
        pass
    with other.opened() as ledger:
        ledger.settle()
