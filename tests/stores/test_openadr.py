"""One suite for every store of VEN objects."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hushgrid.errors import VtnError
from hushgrid.stores.openadr import Kind, StoredObject, TakenError, VtnStore, to_text
from tests.services import Postgres
from tests.stores.conformance import check_vtn_store


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'vtn.sqlite'}"
    return str(request.getfixturevalue("postgres").fresh())


def ven(name: str, client: str = "c", number: int = 0) -> StoredObject:
    body = to_text({"venName": name, "x": [1.5, None]})
    return StoredObject("VEN", f"ven-{name}-{number}", client, 5, 7, body)


def report(number: int, client: str = "c", **body: Any) -> StoredObject:
    return StoredObject("REPORT", f"report-{number}", client, number, number, to_text(body))


def test_it_is_a_vtn_store(url: str) -> None:
    check_vtn_store(lambda: VtnStore(url))


class Forgetful(VtnStore):
    """Leaves resources of a removed ven."""

    def remove(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        return super().remove(kind, id) if kind != "VEN" else self._gone(id)

    def _gone(self, ven: str) -> StoredObject | None:
        kept = list(self.find("RESOURCE", columns={"ven": ven}))
        found = super().remove("VEN", ven)
        for one in kept:
            self.add(one)
        return found


class Unfiltered(VtnStore):
    """Lists objects of every client."""

    def find(self, kind: Kind, *, client: str | None = None, **more: Any) -> Iterator[StoredObject]:
        assert client is None or client
        return super().find(kind, **more)


class Generous(VtnStore):
    """Takes a second object of the same name."""

    def add(self, one: StoredObject) -> None:
        with suppress(TakenError):
            super().add(one)


@pytest.mark.parametrize("broken", [Forgetful, Unfiltered, Generous])
def test_a_store_that_breaks_a_rule_is_found(broken: type[VtnStore], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_vtn_store(lambda: broken(tmp_path / "vtn.sqlite"))


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
        assert len(list(store.find("VEN"))) == 1


def test_a_password_is_not_told() -> None:
    with pytest.raises(VtnError) as caught:
        VtnStore("postgresql://someone:a-password@127.0.0.1:1/none?connect_timeout=1")
    assert "a-password" not in str(caught.value)
