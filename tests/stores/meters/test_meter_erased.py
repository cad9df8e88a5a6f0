"""What is purged or erased is in no file of an SQLite store while the service runs on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from hushgrid.errors import MeterError
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.meters.block_keys import BlockKeys
from hushgrid.stores.meters.columns import NoiseBlock
from hushgrid.stores.meters.tables import NOISE

SECRET = 0x0A1B_2C3D_4E5F  # [Wh]


def holders(folder: Path, value: int = SECRET) -> set[str]:
    """Files that hold a number, however it is written."""
    texts = [value.to_bytes(6, order) for order in ("big", "little")] + [str(value).encode()]
    return {
        one.name
        for one in folder.iterdir()
        if one.is_file() and any(text in one.read_bytes() for text in texts)
    }


def filled(store: MeterStore) -> None:
    store.open_zone("elm", ["a"], 900)
    store.put("elm", [0, 0], [0, 900], [900, 900], [SECRET, 7])
    store.close("elm", 0)


def test_purged_readings_are_in_no_file(tmp_path: Path) -> None:
    with MeterStore(tmp_path / "meters.db") as store:
        filled(store)
        assert holders(tmp_path), "the search finds what is stored"
        assert store.purge("elm", 900) == 1
        assert holders(tmp_path) == set()
        assert store.get("elm", 900).wh.tolist() == [7]


def test_a_purge_behind_a_reader_is_made_good_by_the_next(tmp_path: Path) -> None:
    """A copy that is being made keeps the log in use."""
    with MeterStore(tmp_path / "meters.db") as store:
        filled(store)
        with store.open().read() as link:
            link.exec_driver_sql("SELECT count(*) FROM hushgrid_meter_delivery").all()
            assert store.purge("elm", 900) == 1
            assert holders(tmp_path), "the reader still sees it"
        assert store.purge("elm", 900) == 0
        assert holders(tmp_path) == set()


def test_a_log_that_a_kill_left_is_emptied_by_the_next_purge(tmp_path: Path) -> None:
    """The end of a process closes its connections and so removes the log; a kill does not."""
    with MeterStore(tmp_path / "meters.db") as store:
        filled(store)
        left = {one.name: one.read_bytes() for one in tmp_path.glob("meters.db*")}
    for name, content in left.items():
        (tmp_path / name).write_bytes(content)
    with MeterStore(tmp_path / "meters.db") as store:
        store.open_zone("elm", ["a"], 900)
        assert holders(tmp_path)
        store.purge("elm", 900)
        assert holders(tmp_path) == set()


def test_the_size_of_a_block_is_in_no_file(tmp_path: Path) -> None:
    """It is sealed while the block is open; afterwards what sealed it is gone, too."""
    block = NoiseBlock("ab" * 32, 900, 500.0, 1)
    with MeterStore(tmp_path / "meters.db") as store:
        store.open_zone("elm", ["a"], 900)
        assert store.noise_size("elm", block, lambda: SECRET) == SECRET
        assert holders(tmp_path) == set()
        (sealed,) = store.open().rows(select(NOISE.c.sealed))[0]
        assert any(sealed in file.read_bytes() for file in tmp_path.glob("meters.db*[bl]"))
        store.erase_noise("elm", block.terms, 1800, until=1800)
        assert not any(sealed in file.read_bytes() for file in tmp_path.glob("meters.db*[bl]"))


def test_a_copy_of_the_store_shows_no_size_of_a_block_that_is_over(tmp_path: Path) -> None:
    """An archive keeps the sealed row; neither of two curators has its key any longer."""
    block, other = NoiseBlock("ab" * 32, 900, 500.0, 1), BlockKeys(tmp_path / "other")
    other.make()
    shutil.copytree(other.folder, tmp_path / "meters.db.keys")
    with MeterStore(tmp_path / "meters.db") as store:
        store.open_zone("elm", ["a"], 900)
        store.noise_size("elm", block, lambda: SECRET)
        store.open().copy_to(tmp_path / "archive.db")
        store.erase_noise("elm", block.terms, 1800, until=1800)
    place = f"sqlite:{tmp_path / 'archive.db'}"
    archive = MeterStore(place, keys=other.folder)
    with archive, MeterStore(place, keys=tmp_path / "meters.db.keys") as mine:
        for store in (mine, archive):
            store.open_zone("elm", ["a"], 900)
        assert mine.noise_size("elm", block, None) is None
        assert archive.noise_size("elm", block, None) == SECRET, "a stand-by that followed nothing"
        other.follow("elm", 1800)
        assert archive.noise_size("elm", block, None) is None


def test_an_error_of_sqlite_repeats_no_value(tmp_path: Path) -> None:
    """It shows the bytes of a text that is no UTF-8, as a damaged delivery may be."""
    with MeterStore(str(tmp_path / "meters.sqlite")) as store:
        store.open_zone("elm", ["elm-1"], 900)
        store.put("elm", [0], [900], [900], [12345])
        with closing(sqlite3.connect(tmp_path / "meters.sqlite")) as file, file:
            file.execute("UPDATE hushgrid_meter_delivery SET readings = CAST(x'ff4d59' AS TEXT)")
        with pytest.raises(MeterError) as caught:
            store.get("elm", 900)
    assert "MY" not in str(caught.value)
