"""Releases of a ledger that are read when they are asked for."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from hushgrid.stores.ledger import records
from hushgrid.stores.ledger.records import ReleaseRecord, Releases, UnreadRelease

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
    with mock.patch.object(records, "from_verified", wraps=records.from_verified) as read:
        newest = releases.newest("account")
        assert newest is not None
        assert newest.seq == 7
        assert releases[-1] is releases[999]
        assert [one.seq for one in releases[500:502]] == [501, 502]
        assert read.call_count == 4
    assert isinstance(releases[0], ReleaseRecord)
    assert releases == tuple(releases)
    assert releases[1:] != releases
