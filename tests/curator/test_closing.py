"""A ledger that is closed, and goes on elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hushgrid.cli import main
from hushgrid.curator.closing import close_ledger, import_ledger
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.records import seal
from hushgrid.stores.ledger.writer import load, verify_signature
from hushgrid.stores.meters import open_meters
from hushgrid.stores.meters.columns import NoiseBlock
from tests.curator.curators import Shown, curator
from tests.curator.hourly import HOUR, street
from tests.curator.streets import BEGINS
from tests.curator.worlds import deployment
from tests.services import Postgres


def publish(folder: Path, zone: ZoneService, steps: int, now: int) -> int:
    """Intervals with readings; the start of the next one."""
    with curator(folder, zone, Shown(), now=now) as it:
        for _ in range(steps):
            it._meters.put("elm", [0, 1], [it.start_of(it.t)] * 2, [HOUR] * 2, [300, 500])
            it.run(it.next_due())
        return it.start_of(it.t)


def exported(folder: Path, name: str = "ledger.db") -> Path:
    with open_store(str(folder / name), create=False) as store:
        text = "".join(f"{record.line}\n" for record in store.records("elm"))
    (folder / "export.ndjson").write_text(text)
    return folder / "export.ndjson"


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, ZoneService, int]:
    """A street in the middle of a block, under a promise about any six hours."""
    old = tmp_path / "old"
    old.mkdir()
    zone = street(BEGINS, Promise("window", 1.0, window=6 * HOUR, block=4 * HOUR))
    return old, zone, publish(old, zone, 10, BEGINS)


def test_a_closed_ledger_goes_on_elsewhere_with_its_account(
    world: tuple[Path, ZoneService, int],
) -> None:
    old, zone, now = world
    made = deployment(old, zone, key=old / "key")
    (end,) = close_ledger(made, "on the new server", now)
    assert end.anew
    (again,) = close_ledger(made, "elsewhere", now)
    assert (again.anew, again.head) == (False, end.head), "killed and run again: nothing twice"
    new = old.parent / "new"
    new.mkdir()
    shutil.copy(old / "key", new / "key")
    export = exported(old)
    (opened,) = import_ledger(str(export), str(new / "ledger.db"), new / "key")
    (same,) = import_ledger(str(export), str(new / "ledger.db"), new / "key")
    assert (same.anew, same.head) == (False, opened.head)
    publish(new, zone, 12, now)
    with open_store(str(new / "ledger.db"), create=False) as store:
        report = check(store.records("elm"), verify_signature, {})
    assert report.first_bad is None, report.reason
    standing = report.standings["elm"]
    blocks = {}
    for release in standing.releases:
        if release.source == "readings":
            first = release.block["first"]
            blocks[first] = (first, release.t, release.epsilon_any)
    for begin in range(BEGINS // HOUR, now // HOUR + 12):
        lost = sum(e for a, b, e in blocks.values() if a <= begin + 6 and b >= begin)
        assert lost <= 1 + 1e-9, "windows over the move keep the promise"
    places = [release.t for release in standing.releases if release.source == "readings"]
    assert places[-1] > now // HOUR, "it publishes in the new place"
    open_block = now // HOUR - (now // HOUR - BEGINS // HOUR) % 4
    assert not any(open_block + 2 <= t < open_block + 4 for t in places), "M of it is gone"


def test_nothing_is_appended_to_a_closed_ledger(world: tuple[Path, ZoneService, int]) -> None:
    old, zone, now = world
    with curator(old, zone, Shown(), now=now) as it:
        it._meters.put("elm", [0, 1], [it.start_of(it.t)] * 2, [HOUR] * 2, [300, 500])
        body, _ = it._body(it.start_of(it.t), now)
        ledger = it._ledger
    made = deployment(old, zone, key=old / "key")
    close_ledger(made, "nowhere", now)
    key = load(old / "key")
    with open_store(str(old / "ledger.db")) as store:
        head = store.head("elm")
        assert head is not None
        assert head.kind == "closed"
        record = seal("elm", head.seq + 1, "release", body, head.digest, key.sign)
        with store.writer("elm"), pytest.raises(LedgerError, match="is closed"):
            store.append(record)
        report = check([*store.records("elm"), record], verify_signature, {})
        assert report.first_bad == record.seq, "nor does a chain with one hold"
    with pytest.raises(LedgerError):  # a process that had it open
        ledger.publish(body)
    with (
        pytest.raises(LedgerError, match="is closed: nowhere"),
        curator(old, zone, Shown(), now=now),
    ):
        pass


def test_the_size_of_the_open_block_is_erased(world: tuple[Path, ZoneService, int]) -> None:
    old, zone, now = world
    with curator(old, zone, Shown(), now=now) as it:
        kept = it._sizes._block
        assert isinstance(kept, NoiseBlock)
        assert it._meters.noise_size("elm", kept, None) is not None
    close_ledger(deployment(old, zone, key=old / "key"), "nowhere", now)
    made = deployment(old, zone, key=old / "key")
    with open_meters(made.meters, made.block_key_folder) as meters:
        meters.open_zone(*zone.roster)
        assert meters.noise_size("elm", kept, None) is None


def test_what_is_not_closed_is_not_imported(world: tuple[Path, ZoneService, int]) -> None:
    old, zone, now = world
    export = exported(old)
    target = str(old.parent / "other.db")
    with pytest.raises(LedgerError, match="do not end with one that closes them"):
        import_ledger(str(export), target, old / "key")
    made = deployment(old, zone, key=old / "key")
    close_ledger(made, "nowhere", now)
    export = exported(old)
    with pytest.raises(LedgerError, match="other records"):
        import_ledger(str(export), str(old / "ledger.db"), old / "key")
    lines = export.read_text().splitlines(keepends=True)
    export.write_text("".join([*lines[:3], *lines[4:]]))
    with pytest.raises(LedgerError, match="removed"):
        import_ledger(str(export), target, old / "key")


def test_a_database_takes_all_of_it_or_nothing(
    world: tuple[Path, ZoneService, int], postgres: Postgres
) -> None:
    old, zone, now = world
    close_ledger(deployment(old, zone, key=old / "key"), "a database", now)
    url = postgres.fresh()
    (end,) = import_ledger(str(exported(old)), url, old / "key")
    with open_store(url, create=False) as store:
        head = store.head("elm")
        assert head is not None
        assert (head.kind, head.digest) == ("opened", end.head)


def test_the_commands(
    world: tuple[Path, ZoneService, int], capsys: pytest.CaptureFixture[str]
) -> None:
    old, zone, now = world
    close_ledger(deployment(old, zone, key=old / "key"), "nowhere", now)
    target = str(old.parent / "new.db")
    command = ["ledger", "import", str(exported(old)), "--into", target]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--key", str(old / "key"), "--json", "-"])
    assert ended.value.code == 0
    values = json.loads(capsys.readouterr().out)
    assert set(values) >= {"records", "head"}
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "import", str(old / "nothing.ndjson"), "--into", target])
    assert ended.value.code == 2
