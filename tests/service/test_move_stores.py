"""The stores of a service in another place: SQLite to PostgreSQL and back, by digest the same."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hushgrid.cli import main
from hushgrid.errors import HushgridError, LedgerDamageError, LedgerError, LedgerHeldError
from hushgrid.files.deployment import Deployment
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.service import move
from hushgrid.service.access.clients import Client, ClientStore
from hushgrid.service.cluster.leases import LeasePace, Leases, SharedLedger
from hushgrid.service.curator import Curator
from hushgrid.service.database import Database
from hushgrid.service.doctor import examine
from hushgrid.service.gaps import resume_zones
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.store import (
    HOME,
    IN_FILE,
    LEDGER,
    ON_SERVER,
    SERVERS,
    PostgresLedger,
    SqliteLedger,
)
from hushgrid.service.ledger.witness import held, open_witnesses
from hushgrid.service.ledger.writer import create, load
from hushgrid.service.meters import open_meters
from hushgrid.service.meters.columns import NoiseBlock
from hushgrid.service.move import MovedStore, move_stores
from hushgrid.service.openadr.objects import Kind
from hushgrid.service.openadr.store import StoredObject, VtnStore
from hushgrid.testing.stores import chain_of
from tests.service import worlds
from tests.service.cluster.test_standby_shared import Stopped, curator, turn
from tests.service.setups import BEGINS, service
from tests.service.test_curator import feed
from tests.services import Postgres

BLOCK = NoiseBlock("f" * 64, 3, 12.5, 7)


def described(folder: Path, place: str = "") -> Deployment:
    """A service of two zones in a folder, its stores there or on a server."""
    folder.mkdir(exist_ok=True)
    key = folder.parent / "key"
    if not key.exists():
        create(key)
    ledger, meters = place or str(folder / "ledger.db"), place or str(folder / "meters.db")
    return Deployment((service(4), service(3, "oak")), "simulation", ledger, meters, key)


@contextmanager
def curators(made: Deployment, now: float) -> Iterator[list[Curator]]:
    with (
        open_store(made.ledger) as store,
        open_meters(made.meters) as meters,
        open_witnesses(made) as witnesses,
    ):
        opened = [
            Curator.open(
                zone, store, meters, SimulatedNoise(5), load(made.key), [], "simulation", now=now,
                witness=witnesses.of(zone.id),
            )
            for zone in made.zones
        ]  # fmt: skip
        with opened[0] as one, opened[1] as two:
            yield [one, two]


def live(made: Deployment, first: int, steps: int) -> None:
    """Publish some steps from readings; of the next one there are readings, too."""
    with curators(made, BEGINS + first * 900) as both:
        for it in both:
            for _ in range(steps):
                feed(it, it.t, [0, 1])
                assert [one.source for one in it.run(it.next_due())] == ["readings"]
            feed(it, it.t, [0])


def fill(made: Deployment) -> None:
    live(made, 0, 3)
    with open_meters(made.meters) as meters:
        meters.open_zone("elm", made.zones[0].meters, 900)
        meters.noise_size("elm", BLOCK, lambda: 41)
    with ClientStore(made.client_store) as clients:
        clients.add(Client("north", ("write_readings",), "x" * 20, 5, None, meters=("elm-*",)))
        clients.add(Client("gone", ("read_all",), "y" * 20, 6, "house 7"))
        clients.revoke("gone", 9)
        clients.keep_first("north", ["elm-0", "elm-1"])
    with VtnStore(made.vtn_store) as vtn:
        vtn.add(stored("one"))


def stored(name: str) -> StoredObject:
    kind: Kind = "REPORT"
    return StoredObject(kind, name, "north", 7, 8, {"é": [1.5, None]})


def lines(made: Deployment) -> list[str]:
    with open_store(made.ledger, create=False) as store:
        return [one.line for zone in store.zones() for one in store.records(zone)]


def test_from_sqlite_to_postgres_and_back(tmp_path: Path, postgres: Postgres) -> None:
    """Each service goes on where the one before stopped: no gap, the same readings and clients."""
    file, server = described(tmp_path / "one"), described(tmp_path / "server", postgres.fresh())
    back = described(tmp_path / "two")
    fill(file)
    wrote = lines(file)
    moved = move_stores(file, server)
    assert {one.store for one in moved} == {"ledger", "meter store", "clients", "vtn"}
    assert lines(server) == wrote
    with pytest.raises(LedgerError, match="was moved by hushgrid move"):
        live(file, 3, 1)
    again = move_stores(server, back)
    assert [(one.rows, one.digest) for one in again] == [(one.rows, one.digest) for one in moved]
    with pytest.raises(LedgerError, match="was moved by hushgrid move"):
        live(server, 3, 1)
    assert all(one.problem is None for one in examine(back)), "records, small files, readings"
    with open_meters(back.meters) as meters:
        meters.open_zone("elm", back.zones[0].meters, 900)
        assert meters.noise_size("elm", BLOCK, None) == 41
    live(back, 3, 2)
    assert lines(back)[: len(wrote) // 2] == wrote[: len(wrote) // 2]
    assert "gap" not in "".join(lines(back))
    with ClientStore(back.client_store) as clients:
        north, gone = clients.find("north"), clients.find("gone")
        assert north is not None
        assert gone is not None
        assert (north.meters, gone.revoked, gone.ven) == (("elm-*",), 9, "house 7")
        assert clients.first_senders() == {"elm-0": "north", "elm-1": "north"}
    with VtnStore(back.vtn_store) as vtn:
        assert vtn.get("REPORT", "one") == stored("one")


def test_a_server_goes_on_with_numbers_of_its_own(tmp_path: Path, postgres: Postgres) -> None:
    """Zones and objects that come later get numbers that no row has; readings go on."""
    file, server = described(tmp_path / "one"), described(tmp_path / "server", postgres.fresh())
    fill(file)
    move_stores(file, server)
    with PostgresLedger(server.ledger) as ledger:  # else a dump of now would never be found older
        assert ledger.moved("elm") is False
    live(server, 3, 2)
    with VtnStore(server.vtn_store) as vtn:
        vtn.add(stored("two"))
        assert len(vtn.find("REPORT")) == 2
    with open_meters(server.meters) as meters:
        meters.open_zone("new", ["a"], 900)
        meters.put("new", [0], [BEGINS], [900], [5])
        assert meters.open_intervals("new") == (BEGINS,)
    assert "gap" not in "".join(lines(server))


def rows_of(path: Path) -> int:
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as link:
        names = [name for name in sa.inspect(link).get_table_names() if name.startswith("hushgrid")]
        found = sum(link.scalar(sa.text(f"SELECT count(*) FROM {name}")) or 0 for name in names)
    engine.dispose()
    return found


def test_readings_and_noise_do_not_stay_behind(tmp_path: Path) -> None:
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    fill(file)
    assert rows_of(tmp_path / "one" / "meters.db") > 4
    move_stores(file, other)
    assert rows_of(tmp_path / "one" / "meters.db") == 0
    assert rows_of(tmp_path / "one" / "vtn.sqlite") == 0
    assert not file.witness_folder.exists()
    assert other.witness_folder.exists()


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    fill(file)
    before = lines(file)

    def refused(old: Deployment, new: Deployment, match: str) -> None:
        with pytest.raises(HushgridError, match=match):
            move_stores(old, new)

    create(tmp_path / "two" / "key")
    refused(file, file, "same \\[stores\\]")
    refused(file, replace(other, mode="production"), "different services")
    refused(file, replace(other, key=tmp_path / "two" / "key"), "different services")
    refused(file, replace(file, ledger=f"sqlite:{file.ledger}"), "has a writer already")
    refused(file, replace(file, meters=f"sqlite:{file.meters}"), "is not empty")
    with curators(file, BEGINS + 2700):
        refused(file, other, "has a writer already|in use")
    with open_witnesses(other):  # a service that was refused leaves the folder, which has nothing
        pass
    older = other.witness_folder / "1" / "zone"
    older.touch()
    refused(file, other, "has records already")
    older.unlink()
    with ClientStore(other.client_store) as clients:
        clients.add(Client("late", ("read_all",), "z" * 20, 5, None))
    refused(file, other, "clients .* is not empty")
    assert lines(file) == before
    live(file, 3, 1)


def test_a_ledger_that_lacks_a_record_is_not_moved(tmp_path: Path) -> None:
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    fill(file)
    engine = sa.create_engine(f"sqlite:///{file.ledger}")
    with engine.begin() as link:
        link.execute(sa.text("DROP TRIGGER records_remain"))
        link.execute(sa.text("DELETE FROM records WHERE zone = 'elm' AND seq = 5"))
    engine.dispose()
    with pytest.raises(LedgerError, match=r"nothing was moved: record \d"):
        move_stores(file, other)
    with pytest.raises(LedgerDamageError), curators(replace(file, witness=tmp_path), BEGINS + 2700):
        pass


def opens(made: Deployment) -> bool:
    """Whether the ledger can be used; else it was marked."""
    try:
        with open_store(made.ledger, create=False):
            return True
    except LedgerError as error:
        if "hushgrid move" not in str(error) and "does not exist" not in str(error):
            raise
        return False


STAGES = [
    (move._open_meters, "_open_meters", move),
    (move._copied, "_copied", move),
    (move._check_chain, "_check_chain", move),
    (Database.retire, "retire", Database),
    (move._take_witness, "_take_witness", move),
    (Database.release, "release", Database),
]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("do", "name", "where"), STAGES, ids=[one[1] for one in STAGES])
@pytest.mark.sampled
def test_an_interrupted_move_never_leaves_two_ledgers(
    do: Callable[..., object], name: str, where: object, late: bool, tmp_path: Path
) -> None:
    """Ended at a stage: one ledger opens, or none; the same command then finishes."""
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    fill(file)
    before = lines(file)

    def ends(*given: object) -> None:
        if late:
            do(*given)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, ends)
        with pytest.raises(KeyboardInterrupt):
            move_stores(file, other)
    assert not (opens(file) and opens(other))
    if opens(file):  # what has rows already is named
        for place in (other.meters, other.client_store, other.vtn_store):
            Path(place).unlink(missing_ok=True)
    if (name, late) != ("release", True):
        move_stores(file, other)
    assert (opens(file), opens(other)) == (False, True)
    assert lines(other) == before
    with ClientStore(file.client_store) as clients:
        assert clients.find("north") is None, "nothing is left in the old place"
    live(other, 3, 1)


def left(file: Deployment, other: Deployment) -> None:
    """A move that is ended when all rows are copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "retire", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            move_stores(file, other)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_copy_of_an_earlier_move_is_never_released(steps: int, tmp_path: Path) -> None:
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    third = described(tmp_path / "three")
    fill(file)
    left(file, other)
    if steps:
        live(file, 3, steps)
    move_stores(file, third)
    with pytest.raises(LedgerError, match="moved to another place than the second file names"):
        move_stores(file, other)
    assert [opens(one) for one in (file, other, third)] == [False, False, True]


def test_a_move_to_a_server_is_run_again(tmp_path: Path, postgres: Postgres) -> None:
    file, server = described(tmp_path / "one"), described(tmp_path / "server", postgres.fresh())
    fill(file)
    left(file, server)
    assert (opens(file), opens(server)) == (True, False)
    engine = sa.create_engine(server.ledger.replace("://", "+psycopg://"))
    with engine.begin() as link:  # what has rows already is named
        for name in sa.inspect(link).get_table_names():
            if "ledger" not in name and "version" not in name:
                link.execute(sa.text(f"TRUNCATE {name} CASCADE"))
    engine.dispose()
    move_stores(file, server)
    assert (opens(file), opens(server)) == (False, True)
    live(server, 3, 1)


def records_in(made: Deployment) -> int:
    """How many records a ledger has, whatever its mark."""
    with Database(made.ledger, LEDGER, create=False, check=False, moving=True) as one:
        return len(one.rows(sa.select(one.tables[0].c.seq)))


@pytest.mark.parametrize("on_server", [False, True])
def test_a_move_that_is_refused_leaves_the_copy_of_the_one_before(
    on_server: bool, tmp_path: Path, postgres: Postgres
) -> None:
    file = described(tmp_path / "one")
    other = described(tmp_path / "two", postgres.fresh() if on_server else "")
    live(file, 0, 1)
    left(file, other)
    before = records_in(other)
    other.witness_folder.mkdir()
    older = other.witness_folder / "zone"
    older.touch()
    with pytest.raises(LedgerError, match="has records already; move it away"):
        move_stores(file, other)
    older.unlink()
    with pytest.raises(HushgridError, match=r"meter store .* is not empty"):
        move_stores(file, other)
    assert (opens(file), opens(other)) == (True, False), "a service would begin a second ledger"
    assert records_in(other) == before > 0


def test_only_a_copy_of_the_same_ledger_is_dropped(tmp_path: Path) -> None:
    """The old ledger is marked already: the copy is all there is."""
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    third = described(tmp_path / "three")
    fill(file)
    before = lines(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(move, "_take_witness", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            move_stores(file, other)
    with pytest.raises(LedgerError, match="the ledger of the first file does not exist"):
        move_stores(third, other)
    live(third, 0, 2)
    with pytest.raises(LedgerError, match=r"is the copy of another ledger than .*three"):
        move_stores(third, other)
    move_stores(file, other)
    assert lines(other) == before


def tree(folder: Path) -> dict[str, bytes]:
    found = [one for one in folder.rglob("*") if one.is_file()]
    return {str(one.relative_to(folder)): one.read_bytes() for one in found}


@pytest.mark.parametrize("stage", ["copy2", "rmtree"])
def test_a_witness_goes_to_another_disk_file_by_file(stage: str, tmp_path: Path) -> None:
    """Ended at any file, the next run completes it; no ledger opens before."""
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    fill(file)
    before, count = tree(file.witness_folder), 0
    assert len(before) == 5  # of two zones with a lock each, and the lock of the process
    do, rename = getattr(shutil, stage), Path.rename

    def other_disk(path: Path, to: Path) -> Path:
        if path == file.witness_folder:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, to)

    def ends(path: Path, *given: Path) -> None:
        nonlocal count
        count += 1
        if stage == "rmtree":
            next(one for one in path.rglob("*") if one.is_file()).unlink()
        elif count == 1:
            do(path, *given)
            return
        else:
            given[0].write_bytes(b"half of")
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", other_disk)
        with pytest.MonkeyPatch.context() as short:
            short.setattr(shutil, stage, ends)
            with pytest.raises(KeyboardInterrupt):
                move_stores(file, other)
        assert (opens(file), opens(other)) == (False, False)
        assert all(
            before.get(name, b"half of") == one for name, one in tree(other.witness_folder).items()
        )
        move_stores(file, other)
    assert tree(other.witness_folder) == before
    assert not file.witness_folder.exists()
    live(other, 3, 1)


# ---- processes that had the ledger open


def test_the_witness_follows_where_the_ledger_stays(tmp_path: Path) -> None:
    """A file of another name has another folder; one that stayed behind would prove too little."""
    here = replace(described(tmp_path / "a"), witness=tmp_path / "here.witness")
    fill(here)
    (tmp_path / "b").mkdir()
    there = replace(
        here, meters=str(tmp_path / "b" / "meters.db"), witness=tmp_path / "there.witness"
    )
    known = tree(here.witness_folder)
    assert known
    move_stores(here, there)
    assert tree(there.witness_folder) == known
    assert not here.witness_folder.exists()
    live(there, 3, 1)
    grown = tree(there.witness_folder)
    assert grown != known
    here.witness_folder.mkdir()
    older = here.witness_folder / "zone"
    older.touch()
    with pytest.raises(LedgerError, match=r"here\.witness has records already; move it away"):
        move_stores(there, here)
    older.unlink()
    move_stores(there, here)
    assert tree(here.witness_folder) == grown


def test_a_move_that_paused_drops_no_ledger_that_is_in_use(
    tmp_path: Path, postgres: Postgres
) -> None:
    """It had checked a copy, which another move has made the ledger since."""
    for ledger in (SqliteLedger(tmp_path / "ledger.db"), PostgresLedger(postgres.fresh())):
        with ledger as store:
            store.hold(5)
            store.hold(6, anew=True)
            store.release()
            with pytest.raises(LedgerError, match="is in use since this move began"):
                store.hold(7, anew=True)


def retired(url: str) -> None:
    with Database(url, LEDGER) as one:
        one.retire(1, lambda _: None)


def sessions_end(url: str) -> None:
    """As after a restart of the server."""
    engine = sa.create_engine(url.replace("://", "+psycopg://"))
    with engine.begin() as link:
        link.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    engine.dispose()


def test_a_service_that_was_cut_off_publishes_nothing_after_the_move(
    tmp_path: Path, postgres: Postgres
) -> None:
    """Its locks ended with its session; of a service on another machine the move does not know."""
    server = described(tmp_path / "one", postgres.fresh())
    other = replace(described(tmp_path / "two"), meters=server.meters)
    live(server, 0, 1)
    with curators(server, BEGINS + 900):
        sessions_end(server.ledger)
        with pytest.raises(LedgerHeldError, match="zone 'elm' has a writer already"):
            move_stores(server, other)
    away = replace(server, witness=tmp_path / "another machine")
    with curators(away, BEGINS + 900) as (it, _):
        feed(it, it.t, [1])
        before = len(it.releases)
        sessions_end(server.ledger)
        move_stores(server, other)
        with pytest.raises(LedgerError, match="was moved by hushgrid move"):
            it.run(it.next_due())
        assert len(it.releases) == before
    live(other, 1, 1)


@pytest.mark.parametrize(("days", "source"), [(0, "forecast"), (2, "readings")])
def test_a_zone_that_a_copy_lacks_may_have_been_published(
    days: int, source: str, tmp_path: Path, postgres: Postgres
) -> None:
    """A dump of before the zone began was restored: the ledger is on another server since then."""
    made = described(tmp_path / "one", postgres.fresh())
    with PostgresLedger(made.ledger) as store, store.writer("elm"):
        store.settle("elm")
        with store.begin() as link:
            link.execute(sa.update(SERVERS).values(since=BEGINS + 86_400))
    begins = BEGINS + days * 86_400
    made = replace(made, zones=tuple(replace(zone, begins=begins) for zone in made.zones))
    with pytest.MonkeyPatch.context() as patch:  # killed when the epoch is on record
        patch.setattr("hushgrid.service.epoch.charge", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError), curators(made, begins + 1800):
            pass
    with curators(made, begins + 1800) as (oak, _):
        feed(oak, oak.t, [1])
        assert {each.source for each in oak.run(oak.next_due())} == {source}
        assert (oak._ledger.standing.gap is None) is (days > 0)


@pytest.mark.parametrize("killed", [False, True])
def test_a_zone_that_is_put_back_in_part_gets_a_gap(
    tmp_path: Path, postgres: Postgres, killed: bool
) -> None:
    """A restored dump lacks it, and the witness is cut at a line.

    Also where another curator was killed when it was about to begin the zone.
    """
    made = described(tmp_path / "one", postgres.fresh())
    live(made, 0, 3)
    for path in made.witness_folder.glob("1/*"):
        kept = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(kept[:-3]))  # two releases, and the line that proves an end
    copy = replace(made, ledger=postgres.fresh(), meters=str(tmp_path / "meters.db"))
    with PostgresLedger(copy.ledger) as store, store.writer("ash"):
        store.settle("ash")
        with store.begin() as link:
            for table in (HOME, SERVERS):
                link.execute(sa.update(table).values(server="other"))
    if killed:
        empty = replace(copy, witness=tmp_path / "of another")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hushgrid.service.ledger.writer.Ledger.append", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError), curators(empty, BEGINS + 5 * 900):
                pass
    with curators(copy, BEGINS + 5 * 900) as both:
        assert [it._ledger.standing.gap is not None for it in both] == [True, True]
        assert [len(it.releases) for it in both] == [1, 1], "put back"


def test_a_zone_that_was_not_judged_here_is_not_moved(tmp_path: Path, postgres: Postgres) -> None:
    """A restored dump lacks it, and in another place nothing would show that."""
    made, other = described(tmp_path / "one", postgres.fresh()), described(tmp_path / "two")
    elm, oak = made.zones
    live(replace(made, zones=(elm, service(3, "ash"))), 0, 1)
    with PostgresLedger(made.ledger) as store, store.begin() as link:
        link.execute(sa.update(SERVERS).values(since=BEGINS + 86_400))
    with pytest.raises(LedgerError, match="zone 'oak' may have been published without a record"):
        move_stores(made, other)
    later = replace(made, zones=(elm, replace(oak, begins=BEGINS + 2 * 86_400)))
    move_stores(later, other)


def test_a_zone_that_resume_has_judged_is_moved(tmp_path: Path, postgres: Postgres) -> None:
    """It was put back on another server, and the service does not run it any more."""
    made, other = described(tmp_path / "one", postgres.fresh()), described(tmp_path / "two")
    live(made, 0, 1)
    with PostgresLedger(made.ledger) as store, store.begin() as link:
        link.execute(sa.update(HOME).values(server="other"))
    with pytest.raises(LedgerError, match="was last written to on another server"):
        move_stores(made, other)
    found = resume_zones(made, None, BEGINS + 900)
    assert [one.state for one in found] == ["no gap", "no gap"]
    move_stores(made, other)


@pytest.mark.parametrize("on_server", [False, True])
def test_what_the_meter_store_closed_shows_a_loss_after_a_move(
    tmp_path: Path, postgres: Postgres, on_server: bool
) -> None:
    """An older copy was put back and not opened since."""
    made = described(tmp_path / "one")
    other = described(tmp_path / "two", postgres.fresh() if on_server else "")
    live(made, 0, 1)
    with open_meters(made.meters) as meters:
        meters.open_zone("oak", made.zones[1].meters, 900)
        meters.close("oak", BEGINS + 900)  # its release is lost with the ledger's end
    shutil.rmtree(made.witness_folder)
    move_stores(made, other)
    with curators(other, BEGINS + 2 * 900) as (elm, oak):
        assert [it._ledger.standing.gap is None for it in (elm, oak)] == [True, False]


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_lost_before_a_move_is_found_after_it(
    tmp_path: Path, postgres: Postgres, killed: bool
) -> None:
    """A zone that the older copy lacks and one that the move cannot judge, on one server then."""
    made = described(tmp_path / "one")
    other = described(tmp_path / "two", postgres.fresh())
    elm, oak = made.zones
    before, after = (replace(one, zones=(elm, service(3, "ash"))) for one in (made, other))
    live(before, 0, 1)
    move_stores(before, after)
    with open_meters(other.meters) as meters:
        meters.open_zone("oak", oak.meters, 900)
        meters.close("oak", BEGINS + 900)  # by a service whose ledger was lost before the move
    if killed:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hushgrid.service.curator.note_loss", lambda *_: 1 / 0)
            turned = replace(other, zones=(oak, elm))
            with pytest.raises(ZeroDivisionError), curators(turned, BEGINS + 2 * 900):
                pass
    with curators(other, BEGINS + 2 * 900) as both:
        assert [it._ledger.standing.gap is None for it in both] == [True, False]


def test_a_zone_that_the_small_files_know_is_not_left_behind(tmp_path: Path) -> None:
    """An older copy was put in place by hand, from before the zone began."""
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    path, copy = Path(file.ledger), tmp_path / "copy.db"
    live(replace(file, zones=(file.zones[0], service(3, "ash"))), 0, 1)
    with SqliteLedger(path) as store:
        store.copy_to(copy)
    live(replace(file, zones=(file.zones[1], service(3, "ash"))), 1, 1)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    shutil.copy(copy, path)
    with pytest.raises(LedgerError, match="knows a zone that is not in the ledger"):
        move_stores(file, other)
    assert not Path(other.ledger).exists()


def test_a_move_notes_the_server_before_it_copies(tmp_path: Path, postgres: Postgres) -> None:
    """Else a copy of the new server, taken meanwhile, would never be found older."""
    file, server = described(tmp_path / "one"), described(tmp_path / "server", postgres.fresh())
    live(file, 0, 1)
    noted = list[bool | None]()

    def copied(source: Database, target: Database) -> MovedStore:
        if isinstance(target, PostgresLedger):
            noted.extend(target.moved(zone.id) for zone in server.zones)
        return do(source, target)

    do = move._copied
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(move, "_copied", copied)
        move_stores(file, server)
    assert noted == [False, False]


def test_a_move_holds_zones_that_its_file_does_not_name(tmp_path: Path) -> None:
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    live(file, 0, 1)
    first, second = (replace(one, zones=one.zones[:1]) for one in (file, other))
    with (
        held(file.witness_folder, "oak"),
        pytest.raises(LedgerHeldError, match="zone 'oak' has a writer already"),
    ):
        move_stores(first, second)
    move_stores(first, second)
    with pytest.raises(LedgerError, match="was moved by hushgrid move"):
        move_stores(first, second)


@pytest.mark.parametrize("kind", ["file", "server", "shared", "fenced"])
def test_nothing_is_added_to_a_ledger_that_is_marked(
    kind: str, tmp_path: Path, postgres: Postgres
) -> None:
    url = str(tmp_path / "ledger.db") if kind == "file" else postgres.fresh()
    me = "me" if kind == "fenced" else None
    records = chain_of("elm")
    with (
        SqliteLedger(url) if kind == "file" else PostgresLedger(url)
        if kind == "server" else SharedLedger(url, me)
    ) as store:  # fmt: skip
        if isinstance(store, SharedLedger):
            leases = Leases(store, "me", ["elm"], LeasePace(1.0, 8.0))
            leases.join()
            assert leases.take(["elm"], leases.look())
        with store.writer("elm"):
            for record in records[:-1]:
                store.append(record)
            retired(url)
            row = ("elm", 1, "", "", "", b"", "")
            for add in (
                lambda: store.append(records[-1]),
                lambda: store.keep_checkpoint(row),
                lambda: store.settle("elm"),
            ):
                if kind != "file" or "settle" not in add.__code__.co_names:  # a file of its own
                    with pytest.raises(LedgerError, match="was moved by hushgrid move"):
                        add()
        with pytest.raises(LedgerError, match="was moved by hushgrid move"), store.writer("elm"):
            pass
        if isinstance(store, SharedLedger):
            for join in (leases.join, store.connect):
                with pytest.raises(LedgerError, match="was moved by hushgrid move"):
                    join()
        assert store.head("elm") == records[-2]


def test_one_of_several_curators_says_once_that_the_ledger_was_moved(
    tmp_path: Path, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    zone, clock, url = worlds.service("elm"), Stopped(), postgres.fresh()
    with curator(tmp_path / "a", url, clock, zone) as one:
        turn(one, clock)
        sessions_end(url)
        turn(one, clock)
        assert one.board.waiting() == ["elm"]
        retired(url)
        for _ in range(3):
            turn(one, clock)
        assert one.board.waiting() == ["elm"]
        said = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [each.message for each in said] == ["database away", "ledger refused"]
    assert "was moved by hushgrid move" in vars(said[-1])["reason"]


@pytest.mark.parametrize("on_server", [False, True])
def test_the_mark_waits_for_a_record_that_is_being_added(
    on_server: bool, tmp_path: Path, postgres: Postgres
) -> None:
    """What is compared in the transaction of the mark has every record there will ever be."""
    url = postgres.fresh() if on_server else str(tmp_path / "ledger.db")
    table, found = ON_SERVER if on_server else IN_FILE, list[int]()

    def look(link: sa.Connection) -> None:
        found.append(link.scalar(sa.select(sa.func.count()).select_from(table)) or 0)

    with open_store(url) as store, Database(url, LEDGER) as marks:
        assert isinstance(store, PostgresLedger | SqliteLedger)
        thread = threading.Thread(target=marks.retire, args=(1, look))
        with store.begin() as link:
            store._insert(link, chain_of("elm")[0])
            thread.start()
            thread.join(0.2)
            assert thread.is_alive()
        thread.join(10)
    assert found == [1]


def test_a_ledger_that_grew_while_it_was_copied_stays_the_ledger(tmp_path: Path) -> None:
    file, other = described(tmp_path / "one"), described(tmp_path / "two")
    fill(file)
    check = move._check_chain

    def late(source: SqliteLedger, target: SqliteLedger) -> None:
        check(source, target)
        with source.writer("fir"):
            source.append(chain_of("fir")[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(move, "_check_chain", late)
        with pytest.raises(LedgerError, match="was written to while it was copied"):
            move_stores(file, other)
    assert (opens(file), opens(other)) == (True, False)


def test_a_curator_whose_row_is_valid_is_waited_for(tmp_path: Path, postgres: Postgres) -> None:
    """It has no lease now, and may take one."""
    server, other = described(tmp_path / "one", postgres.fresh()), described(tmp_path / "two")
    with SharedLedger(server.ledger) as store:
        leases = Leases(store, "north", ["elm", "oak"], LeasePace(1.0, 8.0))
        leases.join()
        with pytest.raises(LedgerError, match=r"curator 'north' may write .* for another [78] s"):
            move_stores(server, other)
        leases.leave()
    move_stores(server, other)


@pytest.mark.soak  # a journey runs it, too
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files that differ in their stores; the old one is refused from then on."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        found = capsys.readouterr()
        return int(ended.value.code or 0), found.out, found.err

    run("init", tmp_path)
    old, new = tmp_path / "service.toml", tmp_path / "new.toml"
    (tmp_path / "new").mkdir()
    text = old.read_text().replace('"ledger.', '"new/ledger.').replace('"meters.', '"new/meters.')
    new.write_text(text)
    run("client", "add", "north", "--scope", "meters", "--config", old)
    with open_store(str(tmp_path / "ledger.sqlite")):  # made, without a record
        pass
    code, out, err = run("move", old, new)
    assert (code, err) == (0, "")
    assert "clients: 1 rows" in out
    assert "north" in run("client", "list", "--config", new)[1]
    code, out, err = run("status", old)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "was moved by hushgrid move" in err
