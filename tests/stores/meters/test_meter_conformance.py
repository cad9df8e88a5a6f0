"""Every meter store keeps every promise; a store that breaks one is found out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.meters import QUESTIONS

from hushgrid.errors import ExtraError, MeterError, MeterRetryError
from hushgrid.stores.meters import Counts, Interval, MeterStore, open_meters
from tests.services import Postgres, free_port
from tests.stores.conformance import check_meter_store


@pytest.mark.parametrize("kind", ["file", "sqlite", "postgres"])
def test_stores_conform(kind: str, place: Callable[[str], str], tmp_path: Path) -> None:
    where = place(kind)
    check_meter_store(lambda: open_meters(where, tmp_path / "keys"))


class Forgetful(MeterStore):
    """Closes in memory only."""

    def close(self, zone: str, start: int) -> None:
        pass


class Trusting(MeterStore):
    """Takes a house for present as soon as anything came."""

    def get(self, zone: str, start: int) -> Interval:
        found = super().get(zone, start)
        return Interval(found.wh, found.present | (start in self.open_intervals(zone)))


class Generous(MeterStore):
    """Counts repeated readings as accepted."""

    def put(self, zone: str, *columns: Any, **more: Any) -> Counts:
        found = super().put(zone, *columns, **more)
        return found._replace(accepted=found.accepted + found.duplicate, duplicate=0)


class Lax(MeterStore):
    """Changes the roster whenever asked."""

    def open_zone(self, zone: str, meters: Any, interval: int, registers: Any = ()) -> None:
        try:
            super().open_zone(zone, meters, interval, registers)
        except MeterError:
            super().reopen(zone, meters, interval, registers=registers)


class Hoarding(MeterStore):
    """Purges nothing."""

    def purge(self, zone: str, before: int) -> int:
        return 0


class Redrawing(MeterStore):
    """Draws the noise of a block each time anew."""

    def noise_size(self, zone: str, block: Any, draw: Any) -> int | None:
        return super().noise_size(zone, block, None) if draw is None else int(draw())


class Keeping(MeterStore):
    """Erases no noise."""

    def erase_noise(self, zone: str, *_: Any, **__: Any) -> None:
        pass


class Zealous(MeterStore):
    """Erases the noise of later blocks too."""

    def erase_noise(self, zone: str, terms: str, before: int | None = None, **more: Any) -> None:
        super().erase_noise(zone, terms, None if before is None else before + 2000, **more)


class Unsealed(MeterStore):
    """Keeps the keys of blocks that are over."""

    def erase_noise(self, zone: str, *rest: Any, until: int, **more: Any) -> None:
        super().erase_noise(zone, *rest, until=0, **more)


class Wavering(MeterStore):
    """Begins wherever it is asked to."""

    def begin(self, zone: str, start: int, first: int) -> int:
        return super().begin(zone, start, start)


@pytest.mark.parametrize(
    "broken",
    [
        Forgetful,
        Trusting,
        Generous,
        Lax,
        Hoarding,
        Redrawing,
        Keeping,
        Zealous,
        Unsealed,
        Wavering,
    ],
)
@pytest.mark.sampled
def test_a_broken_store_is_found_out(broken: type[MeterStore], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_meter_store(lambda: broken(tmp_path / "meters"))


def test_open_meters_refuses_other_schemes(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="give a path, sqlite:///path or postgresql://"):
        open_meters("mysql://host/name")
    with pytest.raises(MeterError, match="no URL that PostgreSQL knows"):
        open_meters("postgresql://user:hidden@host/name?nonsense=1")


def test_intervals_hide_readings(tmp_path: Path) -> None:
    with open_meters(tmp_path) as store:
        store.open_zone("z", ["a"], 900)
        store.put("z", [0], [0], [900], [4321])
        found = store.get("z", 0)
        assert "4321" not in repr(found)
        assert not found.wh.flags.writeable
        assert not found.present.flags.writeable


def test_files_are_for_their_owner(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "sql" / "meters.db"
    for url in (str(folder), f"sqlite:///{file}"):
        with open_meters(url) as store:
            store.open_zone("z", ["a"], 900)
            store.put("z", [0], [0], [900], [1])
            paths = [*folder.rglob("*"), *file.parent.rglob("*")]
            assert all(path.stat().st_mode & 0o077 == 0 for path in paths)


@pytest.mark.parametrize("options", ["", "?options=-c%20synchronous_commit%3Doff"])
def test_postgres_commits_wait_for_the_disk(options: str, postgres: Postgres) -> None:
    with open_meters(postgres.url + options) as store, store.open().begin() as link:
        assert link.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_sqlite_commits_wait_for_the_disk(tmp_path: Path) -> None:
    with open_meters(tmp_path / "meters.db") as store, store.open().begin() as link:
        full, overwritten = 2, 1
        assert link.exec_driver_sql("PRAGMA synchronous").scalar() == full
        assert link.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert link.exec_driver_sql("PRAGMA secure_delete").scalar() == overwritten


def test_postgres_says_which_extra_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    open_meters(f"sqlite:///{tmp_path / 'meters.db'}").shut()
    with pytest.raises(ExtraError, match=r"hushgrid\[postgres\]"):
        open_meters("postgresql://user@host/name")


def test_an_unreachable_database_can_be_tried_again() -> None:
    with pytest.raises(MeterRetryError, match="cannot be used") as caught:
        open_meters(f"postgresql://user:hidden@127.0.0.1:{free_port()}/name")
    assert "hidden" not in str(caught.value)


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "stores.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["counts"] == Counts(4)
    assert names["interval"].wh.tolist() == [120, 90, 0]
    assert names["interval"].present.tolist() == [True, True, False]
    assert names["load"] == 210
    questions = re.findall(r"meters_\w+", guide)
    assert set(questions) - set(QUESTIONS) <= {"meters_postgres_1k", "meters_postgres_100k"}
