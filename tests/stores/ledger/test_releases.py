"""Releases of a ledger that are read when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger import releases as module
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.records import Head, Record, seal
from hushgrid.stores.ledger.releases import Releases, UnreadRelease
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.store import SqliteLedger, row_of
from hushgrid.stores.ledger.writer import Key, Ledger, verify_signature
from tests.bodies import transfer
from tests.stores.ledger.ledgers import KEY, START, ZONE, instead, opening, sealed

OTHER_KEY = Key(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
ROW = [[0.1, 0.0, 0.4, -1.0, 1.0]]
BODY = {
    "zone": "elm", "t": 1, "applies_from": 2, "rule": "forecast", "digest": "ab" * 32,
    "load_hat": 900, "rate": 0.25, "estimate": 900.0, "simulated": True,
    "source": "readings", "start": 900, "applies_start": 1800, "published_at": 1800,
    "counts": {"houses": 3}, "put_back": 0,
    "scale": 1.0, "epsilon": 0.5, "epsilon_any": 0.5, "noise": "laplace",
}  # fmt: skip


def row(seq: int, *, account: bool) -> tuple[Any, ...]:
    body = {**BODY, "t": seq, "applies_from": seq + 1, **({"account": ROW} if account else {})}
    return ("elm", seq, "release", json.dumps(body), "", f"{seq:064x}", "")


@given(st.lists(st.booleans(), max_size=20), st.lists(st.booleans(), max_size=5))
def test_the_newest_account_is_found_at_the_first_and_at_a_later_look(
    first: list[bool], later: list[bool]
) -> None:
    releases = Releases()
    for parts in (first, later):
        for account in parts:
            releases.append(UnreadRelease(row(len(releases) + 1, account=account)))
        for copy in (releases, Releases(releases)):
            expected = [one.seq for one in copy if one.account is not None]
            newest = copy.newest("account")
            assert (newest.seq if newest else None) == (expected[-1] if expected else None)
            assert copy.newest("windows") is None


def test_few_are_read() -> None:
    releases = Releases(UnreadRelease(row(n, account=n == 7)) for n in range(1, 1001))
    with mock.patch.object(module, "from_verified", wraps=module.from_verified) as read:
        newest = releases.newest("account")
        assert newest is not None
        assert newest.seq == 7
        assert releases[-1] is releases[999]
        assert [one.seq for one in releases[500:502]] == [501, 502]
        assert read.call_count == 4
    assert isinstance(releases[0], ReleaseRecord)
    assert releases == tuple(releases)
    assert releases[1:] != releases


STEPS = 2_100  # more than four pages


@pytest.fixture(scope="module")
def long_ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    path = tmp_path_factory.mktemp("long") / "ledger.db"
    told = [*opening(), *(("release", instead(t, "fallback")) for t in range(1, STEPS + 1))]
    told.insert(700, ("transfer", dict(transfer("house-17", "out", other="oak"))))
    records = sealed(told)
    with SqliteLedger(path) as store, store.writer(ZONE):
        store.append_all(records)
    return path, records


@contextmanager
def started(path: Path, records: list[Record]) -> Iterator[tuple[LedgerState, list[int]]]:
    """The state of a ledger verified before, and the numbers of the records that are read."""
    columns, read = SqliteLedger.columns, list[int]()

    def counted(self: SqliteLedger, zone: str, after_seq: int = 0) -> Iterator[Any]:
        for row in columns(self, zone, after_seq):
            read.append(row[1])
            yield row

    head = Head(records[-1].seq, records[-1].digest)
    with (
        mock.patch.object(SqliteLedger, "columns", counted),
        SqliteLedger(path) as store,
        Ledger.open(store, ZONE, KEY, "production", START, verified=head) as ledger,
    ):
        yield ledger.standing, read


def test_a_start_reads_the_last_releases_and_no_others(
    long_ledger: tuple[Path, list[Record]],
) -> None:
    path, records = long_ledger
    whole = check(records, verify_signature).standings[ZONE]
    with started(path, records) as (standing, read):
        assert standing.releases[-1].t == STEPS
        assert standing.current_from(STEPS - 5)[0].t == STEPS - 5
        assert len({*read}) < STEPS / 2, "of the page with the transfer, and of the last one"
        assert standing == whole
        for part in (slice(650, 1100), slice(0, 3), slice(1590, None), slice(-20, None, 7)):
            assert standing.releases[part] == whole.releases[part]
        assert [standing.releases.until(n) for n in (1, 2, 3, 700, 701, 702, 1603)] == [
            0, 0, 1, 698, 698, 699, 1600,
        ]  # fmt: skip
        assert standing.releases[698:900].until(800) == 99


@pytest.mark.parametrize(
    "last", [1000, 1400, 1497], ids=["alone", "with some after it", "to the end of its page"]
)
def test_an_old_record_that_was_changed_is_not_read(
    long_ledger: tuple[Path, list[Record]], tmp_path: Path, last: int
) -> None:
    """Also where the records after it were made to fit, by someone who has not the key."""
    path, records, before = tmp_path / "ledger.db", list(long_ledger[1]), long_ledger[1][998]
    for n in range(1000, last + 1):
        body = {**records[n - 1].body, "rate": 9.0}
        before = seal(ZONE, n, "release", body, before.digest, OTHER_KEY.sign)
        records[n - 1] = before
    with SqliteLedger(path) as store, store.begin() as link:
        link.execute(store.tables[0].insert(), [row_of(record) for record in records])
    with started(path, records) as (standing, _):
        assert standing.releases[-1].t == STEPS
        with pytest.raises(LedgerError, match="changed"):
            assert standing.releases.until(0) == standing.releases[1_000].t
