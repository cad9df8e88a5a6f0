"""Readings and records that were acknowledged and are damaged or gone: noticed, named, and no
reason for the other zones to stop.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from hushgrid.errors import LedgerError, MeterError
from hushgrid.files.deployment import Deployment
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Mqtt
from hushgrid.operate.check import Finding, examine, repair
from hushgrid.stores.ledger.store import back_up
from hushgrid.stores.meters import Counts, open_meters
from hushgrid.stores.meters.store import back_up as copy_readings
from tests.curator.setups import street_in
from tests.operate.faults import FIRST, QUARTER, World, service, zone
from tests.services import Postgres


def wrong(made: Deployment) -> list[Finding]:
    return [one for one in examine(made).checks if one.problem is not None]


def lost(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Zone and step of every loss in the log."""
    found = [one for one in caplog.records if one.msg == "readings lost"]
    return [(vars(one)["zone"], vars(one)["t"]) for one in found]


def run_sql(path: str, *statements: str) -> None:
    with sqlite3.connect(path) as link:
        for one in statements:
            assert link.execute(one).rowcount, one


@pytest.fixture
def played(tmp_path: Path) -> World:
    return play(tmp_path)


def play(tmp_path: Path, **stores: str) -> World:
    """A service of two zones that was stopped with readings of an open interval."""

    def story(world: World) -> Iterator[None]:
        yield from world.whole(2)
        assert world.send(houses=(0, 1)) == 200
        assert world.send(houses=(2,)) == 200
        shutil.copytree(tmp_path, tmp_path / "left")

    world = World(service(tmp_path, zone("elm"), zone("oak"), **stores))
    world.play(story)
    return world


def test_nothing_is_found_where_nothing_is_wrong(played: World) -> None:
    assert not wrong(played.made)
    checked = {one.subject for one in examine(played.made).checks}
    for what in ("service.key", "ledger of zone elm", "readings of zone oak", "stores.clients"):
        assert what in checked


OF_ELM = "zone = (SELECT key FROM hushgrid_meter_zone WHERE zone = 'elm')"
LAST = f"{OF_ELM} AND opens = {(FIRST + 2) * QUARTER}"


@pytest.mark.parametrize("which", ["AND number = 0", "AND number = 1", ""])
@pytest.mark.sampled
def test_deliveries_that_were_deleted_are_named(
    played: World, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    run_sql(played.made.meters, f"DELETE FROM hushgrid_meter_delivery WHERE {LAST} {which}")
    found = wrong(played.made)
    assert {one.subject for one in found} == {"readings of zone elm"}
    assert str((FIRST + 2) * QUARTER) in str(found[0].problem)

    def story(world: World) -> Iterator[None]:
        assert world.send() == 200  # what is sent again is stored
        world.ahead()
        yield

    again = World(played.made, played.t)
    again.play(story)
    assert ("elm", FIRST + 2) in lost(caplog)
    assert "oak" not in dict(lost(caplog))
    assert again.releases()[FIRST + 2].source == "readings"
    assert again.missing["elm", FIRST + 2] == 0


def test_a_log_that_lost_acknowledged_readings_is_named(
    played: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = tmp_path / "left"
    for name in ("ledger.db-shm", "meters-shm"):
        (left / name).unlink(missing_ok=True)
    log = left / "meters-wal"
    log.write_bytes(log.read_bytes()[:-100])
    made = service(left, *played.made.zones)
    assert {one.subject for one in wrong(made)} == {"readings of zone oak"}
    figures: list[str] = []

    def story(world: World) -> Iterator[None]:
        yield
        figures.extend([world.get("/metrics").text, world.figures()])

    World(made, played.t).play(story)
    assert "readings_lost" not in figures[0], "for operators alone"
    for name, intervals in (("elm", 0), ("oak", 1)):
        assert f'hushgrid_readings_lost{{zone="{name}"}} {intervals}.0' in figures[1]
    assert lost(caplog) == [("oak", FIRST + 2)]


def test_a_meter_store_that_is_gone_is_named(played: World) -> None:
    Path(played.made.meters).unlink()
    assert [one.subject for one in wrong(played.made)] == ["stores.meters"]


def test_a_meter_store_older_than_the_ledger_is_named(played: World, tmp_path: Path) -> None:
    run_sql(
        played.made.meters,
        f"UPDATE hushgrid_meter_zone SET closed_end = {FIRST * QUARTER} WHERE zone = 'elm'",
    )
    (found,) = wrong(played.made)
    assert found.subject == "readings of zone elm"
    assert "older than the ledger" in str(found.problem)


@pytest.mark.parametrize(
    "blob", ["zeroblob(8)", "x''", "substr(readings, 1, length(readings) - 1)"]
)
@pytest.mark.sampled
def test_damaged_readings_are_named_and_stop_no_other_zone(played: World, blob: str) -> None:
    run_sql(
        played.made.meters,
        f"UPDATE hushgrid_meter_delivery SET readings = {blob} WHERE {LAST} AND number = 0",
    )
    (found,) = wrong(played.made)
    assert found.subject == "readings of zone elm"
    assert "delivery 0 of the interval" in str(found.problem)
    with open_meters(played.made.meters) as meters:
        for one in played.made.zones:
            meters.open_zone(one.id, one.meters, one.seconds)
        with pytest.raises(MeterError, match=f"at {(FIRST + 2) * QUARTER} of zone 'elm'"):
            meters.get("elm", (FIRST + 2) * QUARTER)
        assert meters.get("oak", (FIRST + 2) * QUARTER).missing == 1

    def story(world: World) -> Iterator[None]:
        assert world.send() == 200, "asked for again it would meet the same"
        world.ahead()
        yield
        yield
        assert 'kind="damaged",way="http"} 4.0' in world.figures()

    again = World(played.made, played.t)
    again.play(story)
    assert list(again.releases("oak")) == [FIRST, FIRST + 1, FIRST + 2]
    assert list(again.releases("elm")) == [FIRST, FIRST + 1]


def test_damage_of_an_interval_holds_back_no_other_interval_of_the_zone(tmp_path: Path) -> None:
    """All that is sent together is stored in one transaction; what is damaged is left out of it."""
    with open_meters(str(tmp_path / "meters")) as meters:
        for name in ("elm", "oak"):
            meters.open_zone(name, ["a", "b"], QUARTER)
            assert meters.put(name, [0], [0], [QUARTER], [1]).accepted == 1
    change = f"UPDATE hushgrid_meter_delivery SET readings = zeroblob(8) WHERE {OF_ELM}"
    run_sql(str(tmp_path / "meters"), change)
    columns = [0, 1, 0], [0, 0, QUARTER], [QUARTER] * 3, [1, 2, 3]
    with open_meters(str(tmp_path / "meters")) as meters:
        for name in ("elm", "oak"):
            meters.open_zone(name, ["a", "b"], QUARTER)
        for _ in range(2):
            first, second = meters.put_each("elm", *columns, ends=[2, 3])
            assert first == Counts(damaged=2)
        assert second == Counts(duplicate=1)
        assert meters.get("elm", QUARTER).wh[0] == 3
        assert meters.put("oak", *columns) == Counts(2, 1)
        assert meters.lost("elm") == 1


@pytest.mark.soak
def test_damage_in_a_database_server_is_named(
    tmp_path: Path, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.fresh()
    world = play(tmp_path, ledger=url, meters=url)
    interval, one = str((FIRST + 2) * QUARTER), f"hushgrid_meter_delivery WHERE {LAST} AND number ="

    def story(world: World) -> Iterator[None]:
        world.send()  # what is sent again is stored, where that is possible
        world.ahead()
        yield
        yield

    with psycopg.connect(url, autocommit=True) as link:

        def put(readings: bytes) -> None:
            change = one.replace("WHERE", "SET readings = %s WHERE", 1)
            assert link.execute(f"UPDATE {change} 0", [readings]).rowcount == 1

        assert not wrong(world.made)
        (whole,) = link.execute(f"SELECT readings FROM {one} 0").fetchone() or (b"",)
        for damaged in (b"", whole[:-1], whole[:30] + bytes([whole[30] ^ 4]) + whole[31:]):
            put(damaged)
            (found,) = wrong(world.made)
            assert found.subject == "readings of zone elm"
            assert f"delivery 0 of the interval at {interval}" in str(found.problem)
        again = World(world.made, world.t)
        again.play(story)
        assert list(again.releases("oak")) == [FIRST, FIRST + 1, FIRST + 2]
        assert list(again.releases("elm")) == [FIRST, FIRST + 1]
        put(whole)
        assert link.execute(f"DELETE FROM {one} 1").rowcount == 1
    (found,) = wrong(world.made)
    assert (found.subject, interval in str(found.problem)) == ("readings of zone elm", True)
    again = World(world.made, world.t)
    again.play(story)
    assert set(lost(caplog)) == {("elm", FIRST + 2)}
    assert again.releases("elm")[FIRST + 2].source == "readings"


def flip(made: Deployment, zone: str, what: str) -> None:
    with sqlite3.connect(made.ledger) as link:
        link.execute("DROP TRIGGER IF EXISTS records_stay")
        assert link.execute(
            f"UPDATE records SET {what} WHERE zone = ? AND seq = 5", [zone]
        ).rowcount


FLIPS = {
    "signature": "signature = iif(signature LIKE '0%', '1', '0') || substr(signature, 2)",
    "body": "body = replace(body, '0', '1')",
    "no JSON": "body = '{'",
}


@pytest.mark.parametrize("what", FLIPS)
@pytest.mark.sampled
def test_a_damaged_ledger_of_a_zone_stops_no_other(played: World, what: str) -> None:
    flip(played.made, "elm", FLIPS[what])
    (found,) = wrong(played.made)
    assert found.subject == "ledger of zone elm"
    assert "record 5" in str(found.problem)

    def story(world: World) -> Iterator[None]:
        world.ahead()
        yield
        yield
        assert world.get("/readyz").status_code == 503  # the zone's newest records are its state

    again = World(played.made, played.t)
    again.play(story)
    assert list(again.releases("oak")) == [FIRST, FIRST + 1, FIRST + 2]


def test_a_service_without_a_whole_zone_does_not_start(played: World) -> None:
    for name in ("elm", "oak"):
        flip(played.made, name, FLIPS["body"])
    with pytest.raises(LedgerError):
        World(played.made, played.t).play(lambda _: iter(()))


def test_a_copy_of_the_readings_is_whole_and_secret(played: World, tmp_path: Path) -> None:
    back_up(Path(played.made.ledger), tmp_path / "copy")
    copy = copy_readings(played.made.meters, tmp_path / "copy.meters")
    assert copy.stat().st_mode & 0o777 == 0o600
    with open_meters(str(copy)) as meters:
        for one in played.made.zones:
            meters.open_zone(one.id, one.meters, one.seconds)
            assert meters.get(one.id, (FIRST + 2) * QUARTER).missing == 1
    run_sql(played.made.meters, f"UPDATE hushgrid_meter_delivery SET readings = x'' WHERE {LAST}")
    with pytest.raises(MeterError, match="not copied"):
        copy_readings(played.made.meters, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_stores_that_are_no_database_are_named(played: World) -> None:
    for url in (played.made.client_store, played.made.meters):
        Path(url).write_bytes(b"nothing of the kind " * 500)
    Path(played.made.key).chmod(0o644)
    found = {one.subject for one in wrong(played.made)}
    assert found == {"service.key", "stores.clients", "stores.meters"}


# ---- what doctor repairs, and what it leaves


def cured(made: Deployment) -> set[str]:
    return {what for what, _ in repair(made)[0]}


def test_rights_of_others_are_taken_away_and_no_more(played: World, tmp_path: Path) -> None:
    meters, password = Path(played.made.meters), tmp_path / "word"
    password.write_text("w")
    password.chmod(0o644)
    meters.chmod(0o646)
    mqtt = Mqtt("broker", username="u", password_file=password)
    made = replace(played.made, mqtt=mqtt)
    before = meters.read_bytes()
    assert any(f"{meters} has mode 0646" in one for one in examine(made).remarks)
    assert any(
        f"{meters} has mode 0646" in one
        for one in examine(replace(made, mode="production")).problems
    )
    assert cured(made) == {"stores.meters", "mqtt.password_file"}
    assert meters.stat().st_mode & 0o777 == 0o640, "a group may have been meant"
    assert password.stat().st_mode & 0o777 == 0o640
    assert meters.read_bytes() == before
    assert cured(made) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_nothing_is_repaired_for_another_user(played: World) -> None:
    meters = Path(played.made.meters)
    meters.chmod(0o644)
    os.chown(played.made.key, 12345, -1)
    done, found = repair(played.made)
    assert done == []
    assert any("run hushgrid doctor as the user of the service" in one for one in found.remarks)
    assert meters.stat().st_mode & 0o777 == 0o644


def test_files_that_a_killed_process_left_are_removed(tmp_path: Path) -> None:
    assert run_cli("init", str(tmp_path)) == 0
    made = load_deployment(tmp_path / "service.toml")
    keys = tmp_path / "meters.sqlite.keys"
    left = [keys / "first.old", keys / f"{'0' * 16}.new"]
    for path in left:
        path.write_text("what was erased")
        path.chmod(0o600)
    assert cured(made) == set(), "a process may be writing them"
    for path in left:
        os.utime(path, (0, 0))
    first = (keys / "first").read_bytes()
    assert cured(made) == {"stores.block_keys"}
    assert [path.exists() for path in left] == [False, False]
    assert (keys / "first").read_bytes() == first
    assert cured(made) == set()


def test_a_first_block_key_is_made_unless_curators_stand_by(tmp_path: Path) -> None:
    assert run_cli("init", str(tmp_path)) == 0
    made = load_deployment(tmp_path / "service.toml")
    keys = tmp_path / "meters.sqlite.keys"
    shutil.rmtree(keys)
    assert cured(replace(made, standby=True)) == set()
    assert not keys.exists()
    assert cured(made) == {"stores.block_keys"}
    assert [path.stat().st_mode & 0o777 for path in (keys, keys / "first")] == [0o700, 0o600]
    assert cured(made) == set()


def test_damage_is_left_to_a_person(played: World) -> None:
    """No record and no reading is touched, and the torn end of a witness keeps what it says."""
    run_sql(played.made.meters, f"DELETE FROM hushgrid_meter_delivery WHERE {LAST}")
    witness = next(path for path in played.made.witness_folder.glob("*/*") if path.stat().st_size)
    witness.write_bytes(witness.read_bytes()[:-20])
    files = [Path(played.made.meters), Path(played.made.ledger), witness]
    before = [path.read_bytes() for path in files]
    done, found = repair(played.made)
    assert done == []
    assert {one.subject for one in found.checks if one.problem} == {"readings of zone elm"}
    assert [path.read_bytes() for path in files] == before


def run_cli(*words: str) -> int:
    from hushgrid.cli import main

    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(left.value.code or 0)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hushgrid.cli import main

    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        return int(left.value.code or 0), capsys.readouterr().out

    file = str(street_in(tmp_path))
    status, text = run("doctor", file)
    assert (status, text) == (0, "Nothing to repair.\n")
    (tmp_path / "hushgrid.key").chmod(0o644)
    status, text = run("check", file, "--json", "-")
    assert status == 1
    values = json.loads(text)
    assert not values["ok"]
    assert "chmod 600" in values["problems"][0]
    status, text = run("doctor", file, "--json", "-")
    values = json.loads(text)
    assert (status, values["ok"], values["problems"]) == (0, True, [])
    (repaired,) = values["repaired"]
    assert repaired["what"] == "service.key"
    assert (tmp_path / "hushgrid.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "hushgrid.key").unlink()
    status, text = run("doctor", file)
    assert status == 1
    assert "Left to you: service.key: " in text
