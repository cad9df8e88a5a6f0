"""One suite for every store of VEN objects."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgrid.errors import VtnError
from hushgrid.service.openadr.store import StoredObject, TakenError, VtnStore
from tests.service.openadr.setup import HOSTILE
from tests.services import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'vtn.sqlite'}"
    return str(request.getfixturevalue("postgres").fresh())


@pytest.fixture
def store(url: str) -> Iterator[VtnStore]:
    with VtnStore(url) as made:
        yield made


def ven(name: str, client: str = "c", number: int = 0) -> StoredObject:
    return StoredObject(
        "VEN", f"ven-{name}-{number}", client, 5, 7, {"venName": name, "x": [1.5, None]}
    )


def report(number: int, client: str = "c", **body: Any) -> StoredObject:
    return StoredObject("REPORT", f"report-{number}", client, number, number, body)


def test_what_is_kept_comes_back_in_order(store: VtnStore, url: str) -> None:
    kept = [report(i, f"c{i % 2}", programID=f"p{i % 3}", eventID="e") for i in range(7)]
    for one in kept:
        store.add(one)
    assert store.get("REPORT", "report-3") == kept[3]
    assert store.get("VEN", "report-3") is None
    assert store.find("REPORT") == kept
    assert store.find("REPORT", client="c1") == kept[1::2]
    assert store.find("REPORT", where={"program": "p0"}) == kept[::3]
    assert store.find("REPORT", where={"program": "p0", "event": "other"}) == []
    assert store.find("REPORT", skip=2, limit=3) == kept[2:5]
    odd = store.find("REPORT", such=lambda one: one.created % 2 == 1, skip=1, limit=1)
    assert odd == [kept[3]]
    assert store.find("REPORT", limit=0) == []
    assert store.find("REPORT", skip=2**31 - 1, limit=50) == []
    assert store.count("REPORT", "c1") == 3
    with VtnStore(url) as other:
        assert other.find("REPORT") == kept, "another process sees it"


def test_what_is_changed_or_removed(store: VtnStore) -> None:
    first, second = ven("a"), ven("b")
    store.add(first)
    store.add(second)
    changed = replace(first, modified=9, body={"venName": "c"}, client="d")
    assert store.replace(changed)
    assert store.find("VEN") == [changed, second]
    assert not store.replace(replace(first, id="none"))
    assert store.remove("VEN", "none") is None
    assert store.remove("REPORT", first.id) is None
    assert store.remove("VEN", first.id) == changed
    assert store.find("VEN") == [second]


def test_names_are_taken_once(store: VtnStore) -> None:
    store.add(ven("a"))
    with pytest.raises(TakenError):
        store.add(ven("a", "other", 1))
    store.add(ven("b"))
    with pytest.raises(TakenError):
        store.replace(replace(ven("b"), body={"venName": "a"}))
    for i, place in enumerate(("x", "y")):
        body = {"resourceName": "r", "venID": place}
        store.add(StoredObject("RESOURCE", f"r{i}", "c", 0, 0, body))
    with pytest.raises(TakenError):
        store.add(StoredObject("RESOURCE", "r9", "c", 0, 0, {"resourceName": "r", "venID": "x"}))
    for i in range(2):
        store.add(StoredObject("SUBSCRIPTION", f"s{i}", "c", 0, 0, {"clientName": "the same"}))
    assert len(store.find("VEN")) == 2, "what was refused left nothing"


def test_a_ven_takes_its_resources_along(store: VtnStore) -> None:
    store.add(ven("a"))
    store.add(ven("b"))
    for name in "ab":
        body = {"resourceName": "r", "venID": f"ven-{name}-0"}
        store.add(StoredObject("RESOURCE", f"r-{name}", "c", 0, 0, body))
    store.remove("VEN", "ven-a-0")
    assert [one.id for one in store.find("RESOURCE")] == ["r-b"]


def test_a_ven_that_becomes_anothers_takes_its_resources_along(store: VtnStore) -> None:
    for name in "ab":
        store.add(ven(name))
        body = {"resourceName": "r", "venID": f"ven-{name}-0"}
        store.add(StoredObject("RESOURCE", f"r-{name}", "c", 0, 0, body))
    body = {"resourceName": "of business logic", "venID": "ven-a-0"}
    store.add(StoredObject("RESOURCE", "r-other", "someone", 0, 0, body))
    assert store.replace(ven("a", "d"))
    assert {one.id: one.client for one in store.find("RESOURCE")} == {
        "r-a": "d", "r-b": "c", "r-other": "someone",
    }  # fmt: skip
    with pytest.raises(TakenError):
        store.replace(replace(ven("b", "e"), body={"venName": "a"}))
    assert store.get("RESOURCE", "r-b").client == "c", "all of it or nothing"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [*HOSTILE, ""], ids=repr)
def test_any_text_is_text(store: VtnStore, text: str) -> None:
    store.add(ven("other"))
    one = StoredObject("VEN", text, text, 1, 2, {"venName": text, "venID": text, text: [text]})
    store.add(one)
    assert store.get("VEN", text) == one
    assert store.find("VEN", client=text, where={"name": text, "ven": text}) == [one]
    assert store.replace(replace(one, body={"venName": text + "x"}))
    assert store.remove("VEN", text) is not None
    assert len(store.find("VEN")) == 1


def test_threads_share_a_store(store: VtnStore) -> None:
    def work(which: int) -> None:
        for i in range(10):
            store.add(report(100 * which + i, f"c{which}"))
            store.find("REPORT", client=f"c{which}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.find("REPORT")) == 40
    assert all(store.count("REPORT", f"c{i}") == 10 for i in range(4))


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "vtn.sqlite"
    VtnStore(str(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"no database at all, but long enough to look at" * 50)
    for place in (str(tmp_path / "other"), str(tmp_path / "no" / "folder"), "mysql://h/d"):
        with pytest.raises(VtnError):
            VtnStore(place)
    import sqlite3

    link = sqlite3.connect(tmp_path / "foreign")
    link.execute("CREATE TABLE a (b)")
    link.close()
    with pytest.raises(VtnError, match="something else"):
        VtnStore(str(tmp_path / "foreign"))


def test_a_body_is_in_no_text_of_an_object() -> None:
    assert "31337" not in repr(report(1, usage=31337))


def test_a_server_that_was_away_is_found_again(postgres: Postgres) -> None:
    with VtnStore(postgres.fresh()) as store:
        store.add(ven("a"))
        postgres.restart()
        assert len(store.find("VEN")) == 1


def test_a_password_is_not_told() -> None:
    with pytest.raises(VtnError) as caught:
        VtnStore("postgresql://someone:a-password@127.0.0.1:1/none?connect_timeout=1")
    assert "a-password" not in str(caught.value)
