"""Strangers at the doors: names, guesses, files and callbacks that are not theirs."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hushgrid.errors import AccessError
from hushgrid.stores.clients import KINDS, Client, ClientStore, hash_secret
from hushgrid.web.openadr.webhooks import is_public
from hushgrid.web.tokens import Access
from tests.stores.ledger.machine import Machine
from tests.web.openadr.setup import kept_secret, ven, world

SECRET = "a secret"
KEPT = hash_secret(SECRET)
HERE, THERE = "192.0.2.1", "192.0.2.2"


def test_the_reserved_name_of_a_ven_is_its_clients(tmp_path: Path) -> None:
    with world(tmp_path) as it:  # VEN-2 is reserved for ven-2
        assert it.post("/vens", ven("VEN-2"), "ven-1").status_code == 409
        mine = it.post("/vens", ven("VEN-1"), "ven-1").json()
        assert it.put(f"/vens/{mine['id']}", ven("VEN-2"), "ven-1").status_code == 409
        given = {"objectType": "BL_VEN_REQUEST", "venName": "VEN-2"}
        assert it.post("/vens", given | {"clientID": "ven-1"}, "business").status_code == 409
        assert it.post("/vens", given | {"clientID": "ven-2"}, "business").status_code == 201
        # a client that replaces another may be added for the same name
        it.clients.add(Client("ven-2b", KINDS["ven"], kept_secret(), 0, "VEN-2"))
        (theirs,) = it.get("/vens", "ven-2").json()
        assert it.put(f"/vens/{theirs['id']}", ven("VEN-2"), "ven-2").status_code == 200
        it.delete(f"/vens/{theirs['id']}", "ven-2")
        for one in ("ven-2", "ven-2b"):
            it.clients.revoke(one, 1)
        it.delete(f"/vens/{mine['id']}", "ven-1")  # one client, one VEN
        assert it.post("/vens", ven("VEN-2"), "ven-1").status_code == 201


class Door:
    """Access to two clients, with clocks that are set."""

    def __init__(self, access: Access) -> None:
        self.access = access

    def knock(self, client: str, address: str, secret: str = "a guess") -> str:
        try:
            self.access.authenticate(client, secret, address)
        except AccessError as error:
            return error.kind
        return "open"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with ClientStore(str(tmp_path / "clients.sqlite")) as store:
        for name in ("one", "two", "guest"):
            store.add(Client(name, ("audit",), KEPT, 1))
        yield Door(Access(store, b"k" * 32, None, steady=lambda: 5.0))  # type: ignore[arg-type]


def test_guesses_at_its_address_do_not_shut_a_known_client_out(door: Door) -> None:
    assert door.knock("one", HERE, SECRET) == "open"
    for _ in range(6):
        assert door.knock("two", HERE) == "invalid_client"
    assert door.knock("two", HERE) == "slow_down"
    assert door.knock("one", HERE, SECRET) == "open", "it keeps its own count"


def test_ones_own_secret_pays_for_no_guesses(door: Door) -> None:
    """Signing in between the guesses resets nothing."""
    found = []
    for _ in range(12):
        found.append(door.knock("one", THERE))
        assert door.knock("guest", THERE, SECRET) in ("open", "slow_down")
    assert found.count("invalid_client") == 6


def test_a_known_client_is_guessed_at_its_address_no_faster(door: Door) -> None:
    assert door.knock("one", HERE, SECRET) == "open"
    found = [door.knock("one", HERE) for _ in range(12)]
    assert found == ["invalid_client"] * 6 + ["slow_down"] * 6
    assert door.knock("two", HERE, SECRET) == "open", "nor does it shut the others out"


def test_the_witness_and_every_secret_file_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        machine = Machine(tmp_path)
        machine.begin()
        machine.grow(1, 2)
        files = [path for path in machine.folder.rglob("*") if path.is_file()]
        assert len(files) >= 2
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        for path in files:
            path.chmod(0o644)  # as an earlier version made them
        machine.grow(3)
        kept = [path for path in files if not path.name.endswith("lock")]  # which are empty
        assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
        clients = tmp_path / "clients.sqlite"
        ClientStore(str(clients)).close()
        clients.chmod(0o644)  # a copy that was put back
        ClientStore(str(clients)).close()
        assert stat.S_IMODE(clients.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "inside",
    [
        "0.0.0.0", "0.1.2.3", "10.1.1.1", "100.64.0.1", "127.0.0.1", "169.254.169.254",
        "172.31.255.255", "192.0.0.8", "192.0.0.170", "192.88.99.1", "192.168.0.1", "198.19.0.1",
        "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::1.1.1.1", "64:ff9b::7f00:1", "64:ff9b:1::101:101", "100::1", "2001:2::1",
        "2001:10::1", "2001:20::1", "2001:db8::1", "2002:101:101::1", "3fff::1", "3fff:fff::1",
        "4000::1", "5f00::1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1",
    ],
)  # fmt: skip
def test_no_callback_goes_to_an_address_that_is_not_global(inside: str) -> None:
    """RFC 6890 and the registries of IANA, whatever this version of Python knows of them."""
    assert not is_public(ipaddress.ip_address(inside))


def test_callbacks_go_to_global_addresses() -> None:
    public = ("1.1.1.1", "9.9.9.9", "100.128.0.1", "172.32.0.1", "192.0.1.1", "223.255.255.1",
              "2001:4860:4860::8888", "2606:4700::1111", "2a00:1450::1", "64:ff9b::101:101",
              "::ffff:1.1.1.1")  # fmt: skip
    assert all(is_public(ipaddress.ip_address(one)) for one in public)
