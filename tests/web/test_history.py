"""The releases that can be asked for."""

from __future__ import annotations

import pytest

from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web import prices as module
from hushgrid.web.prices import History
from tests.curator.worlds import service
from tests.stores.ledger.ledgers import sealed, story

ZONE = service("elm-street")
RELEASES = [
    ReleaseRecord.from_record(record) for record in sealed(story()) if record.kind == "release"
]


def test_a_release_enters_once_and_is_told_once() -> None:
    history, told = History([ZONE]), []
    end = history.watch(lambda zone, release: told.append((zone.id, release.t)))
    first, second, *_ = RELEASES
    for one in (first, first, second, first):
        history.publish(ZONE, one)
    assert told == [(ZONE.id, first.t), (ZONE.id, second.t)]
    assert history.newest(ZONE.id) is second
    assert history.last(ZONE.id, 9) == [first, second]
    assert history.last(ZONE.id, 1) == [second]
    assert history.last(ZONE.id, 0) == []
    end()
    history.publish(ZONE, RELEASES[2])
    assert len(told) == 2


def test_a_watcher_that_fails_does_not_hold_up_the_others() -> None:
    history, told = History([ZONE]), []

    def broken(zone: object, release: object) -> None:
        raise RuntimeError

    history.watch(broken)
    history.watch(lambda _zone, release: told.append(release.t))
    history.publish(ZONE, RELEASES[0])
    assert told == [RELEASES[0].t]


def test_a_range_is_by_when_a_price_applies() -> None:
    history = History([ZONE])
    history.fill(ZONE.id, RELEASES)
    starts = [one.applies_start for one in RELEASES]
    assert history.between(ZONE.id, 0, 1 << 40) == RELEASES
    assert history.between(ZONE.id, starts[1], starts[2]) == RELEASES[1:2]
    assert history.between(ZONE.id, starts[-1] + 1, 1 << 40) == []


def test_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    history = History([ZONE])
    history.fill(ZONE.id, RELEASES[:3])
    assert history.last(ZONE.id, 9) == RELEASES[1:3]
    history.publish(ZONE, RELEASES[3])
    assert history.last(ZONE.id, 9) == RELEASES[2:4]
