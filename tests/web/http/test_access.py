"""Clients, their secrets and tokens: the same over every store, and slow for those who guess."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.cli import main
from hushgrid.errors import AccessError
from hushgrid.stores.clients import (
    ANONYMOUS,
    KINDS,
    NO_CLIENT,
    SCOPES,
    Client,
    ClientStore,
    Grant,
    hash_secret,
    secret_matches,
)
from hushgrid.web import tokens as access_module
from hushgrid.web.tokens import Access, Backoff, make_token, read_token
from tests.curator.setups import street_in
from tests.stores.conformance import check_client_store
from tests.web.http.credentials import HOSTILE, KEPT, KEY, SECRET

NOW = 1_750_000_000.0


def client(name: str = "ven-7", *scopes: str, **more: Any) -> Client:
    return Client(name, scopes or ("read_targets", "write_reports"), KEPT, int(NOW), **more)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'clients.sqlite'}"
    return str(request.getfixturevalue("postgres").fresh())


def refused(call: Callable[[], Any], kind: str) -> AccessError:
    with pytest.raises(AccessError) as caught:
        call()
    assert caught.value.kind == kind
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith((".", "..."))
    assert SECRET not in said
    return caught.value


# stores


def test_it_is_a_client_store(url: str) -> None:
    check_client_store(lambda: ClientStore(url))


class Reborn(ClientStore):
    """Gives the id of a revoked client away again."""

    def add(self, client: Client) -> None:
        before = self.find(client.id)
        if before is None or before.revoked is None:
            super().add(client)


class Slow(ClientStore):
    """Finds what it found first."""

    def find(self, client: str) -> Client | None:
        found = super().find(client)
        return found and replace(found, revoked=None)


@pytest.mark.parametrize("broken", [Reborn, Slow])
def test_a_store_that_breaks_a_rule_is_found(broken: type[ClientStore], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_client_store(lambda: broken(tmp_path / "clients.sqlite"))


@pytest.mark.parametrize("text", HOSTILE)
def test_why_a_client_is_refused(text: str, tmp_path: Path) -> None:
    with ClientStore(str(tmp_path / "clients.sqlite")) as store:
        refused(lambda: store.add(client(text)), "invalid_client")
        refused(lambda: store.add(client("other", text)), "invalid_scope")
        refused(lambda: store.add(Client("ven-7", (), KEPT, int(NOW))), "invalid_scope")
        if not text.isprintable() or len(text) > 128 or not text:
            refused(lambda: store.add(client("other", ven=text)), "invalid_client")
        store.add(client())
        assert "used before" in str(refused(lambda: store.add(client()), "invalid_client"))


def test_a_store_that_is_absent_is_said(tmp_path: Path, postgres: Any) -> None:
    absent = tmp_path / "clients.sqlite"
    refused(lambda: ClientStore(str(absent), create=False), "server_error")
    refused(lambda: ClientStore(str(tmp_path / "no" / "clients")), "server_error")
    refused(lambda: ClientStore("mysql://h/d"), "server_error")
    refused(lambda: ClientStore(postgres.fresh(), create=False), "server_error")
    (tmp_path / "text").write_text("hello, this is no database at all" * 100)
    refused(lambda: ClientStore(str(tmp_path / "text")), "server_error")
    away = "postgresql://u:hidden-word@127.0.0.1:1/none"
    assert "hidden-word" not in str(refused(lambda: ClientStore(away), "server_error"))
    odd = "postgresql://u:hidden-word@h/d?what=1"
    assert "hidden-word" not in str(refused(lambda: ClientStore(odd), "server_error"))


def test_a_ledger_is_no_store_of_clients(tmp_path: Path) -> None:
    from hushgrid.stores.ledger import open_store

    open_store(str(tmp_path / "ledger")).close()
    refused(lambda: ClientStore(str(tmp_path / "ledger")), "server_error")


def test_a_file_of_clients_is_its_owners_alone_and_holds_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "clients.sqlite"
    with ClientStore(str(file)) as store:
        store.add(client())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET.encode() not in file.read_bytes()
    assert KEPT not in repr(client())


def test_a_secret_is_hashed_with_a_salt_of_its_own() -> None:
    assert hash_secret(SECRET) != KEPT
    # Argon2id as OpenSSL has it, called here on its own
    salt, digest = (base64.b64decode(part + "==") for part in KEPT.split("$")[-2:])
    argon2id = Argon2id(salt=salt, length=32, iterations=2, lanes=1, memory_cost=19_456)
    assert argon2id.derive(SECRET.encode()) == digest
    assert secret_matches(SECRET, KEPT)
    assert not secret_matches(SECRET + " ", KEPT)
    assert not secret_matches("\ud800", KEPT)
    long = "x" * 600
    assert not secret_matches(long, hash_secret(long))
    assert not secret_matches(SECRET, NO_CLIENT)


def test_a_stored_text_that_is_no_hash_is_refused() -> None:
    for text in ("", "md5$1$2$aa$bb", "scrypt$16384$8$aa$bb", "$argon2id$x"):
        refused(lambda text=text: secret_matches(SECRET, text), "server_error")  # type: ignore[misc]


# tokens


class Worlds:
    """A clock and a steady clock that stand still, and an Access over some clients."""

    def __init__(self, store: ClientStore, **more: Any) -> None:
        self.wall, self.steady, self.store = NOW, 0.0, store
        self.access = Access(store, KEY, self, steady=lambda: self.steady, **more)

    def now(self) -> float:
        return self.wall

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def token(self, *scopes: str, **more: Any) -> Any:
        given = {"client_id": "ven-7", "secret": SECRET, "scopes": scopes, **more}
        return self.access.token(**given)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Worlds]:
    with ClientStore(str(tmp_path / "clients.sqlite")) as store:
        store.add(client())
        yield Worlds(store, static=[hashlib.sha256(b"static").hexdigest()])


def test_a_token_grants_what_was_asked_for(world: Worlds) -> None:
    token = world.token("write_reports")
    assert (token.expires_in, token.scopes) == (3600, ("write_reports",))
    assert token.access_token not in repr(token)
    grant = world.access.grant(f"Bearer {token.access_token}")
    assert grant == Grant("ven-7", frozenset({"write_reports"}))
    assert world.access.grant(f"bEaReR   {token.access_token} ") == grant
    every = world.token()
    assert every.scopes == ("read_targets", "write_reports")
    swapped = world.token("write_reports", "read_targets", "write_reports")
    assert swapped.scopes == ("write_reports", "read_targets"), "as asked, each once"
    assert every.access_token != world.token().access_token, "no two are the same"


def test_no_header_and_others_headers_are_nobodys(world: Worlds) -> None:
    for header in (None, "", "Basic dmVuLTc6YQ==", "Digest a", "token"):
        assert world.access.grant(header) is ANONYMOUS


def test_a_static_token_may_send_readings_and_nothing_else(world: Worlds) -> None:
    grant = world.access.grant("Bearer static")
    assert grant.scopes == {"write_readings"}
    assert grant.client is not None
    assert ":" in grant.client, "no client can have that id"
    refused(lambda: world.access.grant("Bearer static2"), "invalid_token")


def test_scopes_beyond_the_clients_are_refused(world: Worlds) -> None:
    for scopes in (("read_all",), ("write_reports", "operate"), ("no such",), ("",)):
        refused(lambda scopes=scopes: world.token(*scopes), "invalid_scope")  # type: ignore[misc]


def test_a_token_expires(world: Worlds) -> None:
    header = f"Bearer {world.token().access_token}"
    world.pass_(3599.0)
    assert world.access.grant(header).client == "ven-7"
    world.pass_(1.0)
    assert "expired" in str(refused(lambda: world.access.grant(header), "invalid_token"))


def test_a_revoked_client_ends_within_five_seconds(world: Worlds) -> None:
    header = f"Bearer {world.token().access_token}"
    world.access.grant(header)
    with ClientStore(str(world.store.path), create=False) as other:  # type: ignore[attr-defined]
        other.revoke("ven-7", 1)
    world.pass_(5.0)
    assert "revoked" in str(refused(lambda: world.access.grant(header), "invalid_token"))
    refused(world.token, "invalid_client")


def test_what_is_told_at_once_is_never_older_than_a_look(world: Worlds) -> None:
    header = f"Bearer {world.token().access_token}"
    assert world.access.cached_grant(header) is None  # not looked up yet
    found = world.access.grant(header)
    assert world.access.cached_grant(header) == found
    world.pass_(5.0)
    assert world.access.cached_grant(header) is None  # it may have been revoked since
    world.store.revoke("ven-7", 1)
    refused(lambda: world.access.grant(header), "invalid_token")
    refused(lambda: world.access.cached_grant(header), "invalid_token")
    assert world.access.cached_grant(None) is ANONYMOUS
    refused(lambda: world.access.cached_grant("Bearer made-up"), "invalid_token")


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_nothing_made_up_is_a_token(text: str) -> None:
    assert read_token(KEY, text) is None


@given(st.data())
def test_a_changed_token_is_none(data: st.DataObject) -> None:
    token = make_token(KEY, "ven-7", ["read_all"], int(NOW), b"n" * 16)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda c: c != token[at]))
    assert read_token(KEY, token[:at] + other + token[at + 1 :]) is None
    assert read_token(KEY, token + other) is None
    assert read_token(KEY, token[:at]) is None
    assert read_token(b"j" * 32, token) is None


@given(st.lists(st.sampled_from(SCOPES)), st.integers(0, 2**40), st.binary(min_size=1))
def test_a_token_says_what_was_sealed(scopes: list[str], expires: int, nonce: bytes) -> None:
    claims = read_token(KEY, make_token(KEY, "c", scopes, expires, nonce))
    assert claims is not None
    assert (claims.client, list(claims.scopes), claims.expires) == ("c", scopes, expires)


# guessing


def count_hashing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def counted(secret: str, kept: str) -> bool:
        seen.append(kept)
        return secret == SECRET and kept == KEPT

    monkeypatch.setattr(access_module, "secret_matches", counted)
    return seen


def test_an_unknown_client_takes_the_same_work_and_answer(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_hashing(monkeypatch)
    known = refused(lambda: world.token(secret="wrong"), "invalid_client")
    unknown = refused(lambda: world.token(client_id="nobody"), "invalid_client")
    assert str(known) == str(unknown)
    assert len(seen) == 2, "one hash each"


@pytest.mark.parametrize("name", ["ven-7", "nobody"])
def test_guessing_from_an_address_is_slowed(
    world: Worlds, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_hashing(monkeypatch)
    tried = 0
    for _ in range(3600):  # an hour, a guess every second
        with pytest.raises(AccessError) as caught:
            world.token(client_id=name, secret=f"guess {tried}", address="192.0.2.1")
        tried += caught.value.kind == "invalid_client"
        assert caught.value.kind == "invalid_client" or 0 < caught.value.wait <= 300
        world.pass_(1.0)
    # 5 free, then 1, 2, 4, ... 256, 300, 300, ... s: 511 s in 9, and 10 more until 3600 s
    assert tried <= 5 + 1 + 9 + 11
    assert len(seen) == tried, "no work while it waits"
    assert world.token(address="192.0.2.9").scopes, "others are not slowed by it"


def test_guessing_from_many_addresses_is_slowed_but_shuts_nobody_out(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_hashing(monkeypatch)
    world.token(address="192.0.2.9")
    for i in range(1000):
        with pytest.raises(AccessError):
            world.token(secret="guess", address=f"198.51.{i // 250}.{i % 250}")
    assert len(seen) <= 1 + 25
    assert world.token(address="192.0.2.9").scopes, "known to come from there"
    assert refused(lambda: world.token(address="192.0.2.10"), "slow_down").wait > 0
    world.pass_(61.0)
    assert world.token(address="192.0.2.10").scopes


def test_an_ipv6_neighbourhood_is_one_sender(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_hashing(monkeypatch)
    for i in range(100):
        with pytest.raises(AccessError):
            world.token(client_id=f"c{i}", secret="guess", address=f"2001:db8::{i:x}")
    assert len(seen) == 6


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.floats(0, 100)), max_size=300))
def test_the_memory_of_failures_is_bounded(events: list[tuple[int, bool, float]]) -> None:
    now = [0.0]
    slow = Backoff(lambda: now[0], free=1, first=1.0, longest=8.0, size=10)
    for name, failed, passed in events:
        now[0] += passed
        (slow.failed if failed else slow.succeeded)(name)
        assert len(slow._entries) <= 10
        assert 0.0 <= slow.wait(name) <= 8.0


def test_threads_share_an_access(world: Worlds) -> None:
    tokens: list[str] = []
    threads = [
        threading.Thread(target=lambda: tokens.append(world.token().access_token)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {world.access.grant(f"Bearer {token}").client for token in tokens} == {"ven-7"}
    assert len(set(tokens)) == 8


# the command


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_clients_come_and_go_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = street_in(tmp_path)
    call = ("--config", file, "--json", "-")
    code, out, err = run(
        capsys, "client", "add", "north", "--scope", "meters", "--scope", "audit", *call
    )
    assert (code, err) == (0, "")
    added = json.loads(out)
    assert added["scopes"] == ["write_readings", "audit"]
    with ClientStore(str(tmp_path / "clients.sqlite"), create=False) as store:
        token = Worlds(store).access.token("north", added["client_secret"])
        assert token.scopes == ("write_readings", "audit")
    _, out, _ = run(capsys, "client", "list", *call)
    (listed,) = json.loads(out)["clients"]
    assert (listed["client_id"], listed["revoked"]) == ("north", None)
    assert added["client_secret"] not in out
    assert run(capsys, "client", "revoke", "north", "--config", file)[0] == 0
    _, out, _ = run(capsys, "client", "list", "--config", file)
    assert "revoked 20" in out
    for words, says in (
        (("revoke", "north"), "'north'"),
        (("add", "north", "--scope", "meters"), "used before"),
        (("add", "south"), "--scope is missing"),
        (("add", "south", "--scope", "king"), "'king'"),
        (("add", "a b", "--scope", "meters"), "'a b'"),
    ):
        code, out, err = run(capsys, "client", *words, "--config", file)
        assert (code, out) == (2, "")
        assert says in err
        assert err.count("\n") == 1


def test_every_kind_of_client_has_scopes_that_exist() -> None:
    assert all(set(scopes) <= set(SCOPES) for scopes in KINDS.values())
    assert set(KINDS) >= {"meters", "operator", "auditor", "ven"}
