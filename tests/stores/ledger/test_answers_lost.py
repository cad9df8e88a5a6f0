"""An append that is stored and whose answer is lost: other curators read it and publish it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from hushgrid.curator.clock import since_start
from hushgrid.errors import LedgerError
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.entries import GapRecord
from hushgrid.stores.ledger.fenced import FencedLedger, Lease
from hushgrid.stores.ledger.records import Record, seal
from hushgrid.stores.ledger.recovery import _summary
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.store import SqliteLedger
from hushgrid.stores.ledger.witness import Witness, Witnesses
from hushgrid.stores.ledger.writer import Ledger
from tests import bodies
from tests.proxy import Proxy
from tests.services import postgres_binaries, replicated
from tests.stores.ledger.ledgers import KEY, START, ZONE, instead, opening, read
from tests.web.brokers import until


@contextmanager
def opened(store: LedgerStore, witness: Witness, **more: bool) -> Iterator[Ledger]:
    with Ledger.open(store, ZONE, KEY, "production", START - 60, witness=witness, **more) as ledger:
        yield ledger


def begin(ledger: Ledger) -> None:
    for kind, body in opening()[1:]:
        ledger.append(kind, body)
    ledger.settle()
    ledger.publish(read(1))


class Deaf(SqliteLedger):
    """A store that takes a record; its answer to the curator is lost."""

    deaf = False

    def append(self, record: Record) -> None:
        super().append(record)
        if self.deaf:
            raise LedgerError("no answer")


@pytest.mark.parametrize("restarts", [False, True])
def test_what_others_may_have_published_is_appended_again(tmp_path: Path, restarts: bool) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    witnesses = Witnesses(tmp_path / "witness", shared=True)
    with Deaf(path) as store:
        with opened(store, witnesses.of(ZONE)) as ledger:
            begin(ledger)
            store.copy_to(copy)  # the standby
            store.deaf = True
            with pytest.raises(LedgerError, match="no answer"):
                ledger.publish(read(2))
        published = store.head(ZONE)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    sidecar_path(path, ZONE).unlink()
    shutil.copy(copy, path)
    if restarts:
        witnesses.close()
        witnesses = Witnesses(tmp_path / "witness", shared=True)
    with SqliteLedger(path) as store, opened(store, witnesses.of(ZONE)) as ledger:
        assert store.head(ZONE) == published
        assert ledger.opening.complete is not restarts
        ledger.settle()
        ledger.publish(read(3))
    witnesses.close()


class Elsewhere(SqliteLedger):
    """A store that another server answers for since the zone was last open."""

    def moved(self, zone: str) -> bool:
        del zone
        return True


class Unknown(Elsewhere):
    """The zone was not noted; the ledger came to this server a moment ago."""

    def moved(self, zone: str) -> None:  # type: ignore[override]
        del zone

    def since(self) -> int:
        return START


@pytest.mark.parametrize("elsewhere", [Elsewhere, Unknown])
@pytest.mark.parametrize("restarts", [True, False], ids=["killed", "cut off for a lease"])
def test_after_a_fail_over_a_curator_that_was_away_appends_nothing_that_it_sent(
    tmp_path: Path, restarts: bool, elsewhere: type[Elsewhere]
) -> None:
    """Another curator published that step with noise of its own, and the standby lacks it."""
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    first, other = (Witnesses(tmp_path / name, shared=True) for name in "ab")
    with SqliteLedger(path) as store:
        with opened(store, first.of(ZONE)) as ledger:
            begin(ledger)
        store.copy_to(copy)  # the standby
        with opened(store, other.of(ZONE)) as ledger:
            ledger.settle()
            published = ledger.publish(read(2))
        last = list(store.records(ZONE))[-1]
        own = read(2) | {"load_hat": read(2)["load_hat"] + 5}
        sent = seal(ZONE, last.seq, "release", own, last.prev, KEY.sign)
    first.of(ZONE).send(sent)  # and the store does not get it
    first.of(ZONE).disown()
    again = first
    if restarts:
        first.close()
        again = Witnesses(tmp_path / "a", shared=True)
    with elsewhere(copy) as store, opened(store, again.of(ZONE)) as ledger:
        assert ledger.opening.moved or ledger.opening.since == START
        assert not ledger.opening.complete, "so that a gap covers the step"
        assert store.head(ZONE) != sent.digest
        assert ledger.standing.last_t == 1
    again.close()
    other.close()
    assert published.t == 2


def test_a_record_that_another_curator_replaced_is_not_appended(tmp_path: Path) -> None:
    """The store refused it, or never got it, and the zone went on elsewhere."""
    first, other = (Witnesses(tmp_path / name, shared=True) for name in "ab")
    with SqliteLedger(tmp_path / "ledger.db") as store:
        with opened(store, first.of(ZONE)) as ledger:
            begin(ledger)
            sent = list(store.records(ZONE))[-1]
        with opened(store, other.of(ZONE)) as ledger:
            ledger.settle()
            ledger.publish(read(2))
        before = list(store.records(ZONE))
        first.of(ZONE).send(sent)
        with opened(store, first.of(ZONE)) as ledger:
            assert not ledger.opening.lost
            assert ledger.opening.forked is None
        assert list(store.records(ZONE)) == before
    first.close()
    other.close()


@pytest.mark.soak
def test_a_follower_published_what_the_standby_lacks(tmp_path: Path) -> None:
    """The writer is cut off from the primary when that commits; then it reaches the standby."""
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL is not installed: no initdb")
    with replicated() as standby, Witnesses(tmp_path, shared=True) as witnesses:
        proxy = Proxy(standby._primary.port)
        lease = Lease(1.0, 600.0)
        with FencedLedger(standby.both(first=proxy.port), "me", lease, since_start) as store:
            assert store.take(store.look())
            with opened(store, witnesses.of(ZONE)) as ledger:
                begin(ledger)
                standby.hold_back()
                proxy.answered, proxy.word = True, b"WITH fence"
                with pytest.raises(LedgerError):
                    ledger.publish(read(2))
            with open_store(standby._primary.url, create=False) as primary:
                assert until(lambda: getattr(primary.head(ZONE), "t", None) == 2)
                published = primary.head(ZONE)  # a follower reads it
            proxy.close()
            standby.take_over()
            with opened(store, witnesses.of(ZONE)) as ledger:
                assert ledger.standing.last_t == 2
                assert store.head(ZONE) == published
                assert ledger.opening.moved


@pytest.fixture
def histories(tmp_path: Path) -> Callable[[], tuple[Path, list[Record]]]:
    """A ledger with two releases; on file, two witnesses of another history of unequal length."""

    def made() -> tuple[Path, list[Record]]:
        path, folder = tmp_path / "ledger.db", tmp_path / "witness"
        one, two = Witnesses(folder, shared=True), Witnesses(folder, shared=True)
        with SqliteLedger(path) as store, opened(store, one.of(ZONE)) as ledger:
            begin(ledger)
            store.copy_to(tmp_path / "copy.db")
            for t in (2, 3):
                ledger.publish(read(t))
            lost = list(store.records(ZONE))
            two.of(ZONE).follow(lost[:-1])
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        sidecar_path(path, ZONE).unlink()
        shutil.copy(tmp_path / "copy.db", path)
        with (
            SqliteLedger(path) as store,
            Witnesses(tmp_path / "new", shared=True) as new,
            opened(store, new.of(ZONE)) as ledger,
        ):
            ledger.settle()
            ledger.publish(instead(4, "fallback"))
        one.close()
        two.close()
        return path, lost

    return made


def test_all_files_of_another_history_count(
    tmp_path: Path, histories: Callable[[], tuple[Path, list[Record]]]
) -> None:
    path, _ = histories()
    with SqliteLedger(path) as store, Witnesses(tmp_path / "witness", shared=True) as witnesses:
        with opened(store, witnesses.of(ZONE), forked=True) as ledger:
            assert ledger.opening.forked == (2, 3)
            ledger.write(GapRecord(2, 5, "fork"))
            ledger.append("resume", bodies.resume(2, 5, epsilon=2.0))
            ledger.settle()
        with opened(store, witnesses.of(ZONE)) as ledger:  # and none of them is refused again
            assert ledger.opening.forked is None
    with (
        SqliteLedger(path) as store,
        Witnesses(tmp_path / "witness", shared=True),
        Witnesses(tmp_path / "witness", shared=True) as second,
        opened(store, second.of(ZONE)) as ledger,
    ):
        assert ledger.opening.forked is None


def test_what_another_history_cost_at_any_consumption_is_counted(tmp_path: Path) -> None:
    path, stated = tmp_path / "ledger.db", {"epsilon": 0.5, "epsilon_any": 3.0}
    with (
        SqliteLedger(path) as store,
        Witnesses(tmp_path / "witness") as witnesses,
        opened(store, witnesses.of(ZONE)) as ledger,
    ):
        begin(ledger)
        store.copy_to(tmp_path / "other.db")
        ledger.publish(read(2, **stated))
    with SqliteLedger(tmp_path / "other.db") as store:
        with Ledger.open(store, ZONE, KEY, "production", START) as ledger:
            ledger.publish(instead(4, "fallback"))
        with (
            Witnesses(tmp_path / "witness") as witnesses,
            opened(store, witnesses.of(ZONE), forked=True) as ledger,
        ):
            assert ledger.opening.least == 3.0


def test_lost_releases_are_dated_by_their_own_start_where_their_terms_are_not_known() -> None:
    """A ledger of hours; the witness has dropped the record of the terms of quarter hours."""
    hours = bodies.terms_of("ab" * 32, 490_000, 3600, roster="cd" * 32, seq=2)
    fold = SimpleNamespace(standing=SimpleNamespace(terms_records=(hours,), terms=hours))
    t = 490_010 * 4
    times = {"start": t * 900, "applies_start": (t + 2) * 900, "published_at": (t + 1) * 900}
    body = read(t, first=t) | times | {"epsilon": 0.1, "epsilon_any": 2.5}
    record = Record(ZONE, 300, "release", body, "0" * 64, "1" * 64, "2" * 128)
    found = _summary(fold, [record])  # type: ignore[arg-type]
    assert (found.first, found.last) == (490_010, 490_010)
    assert found.least == 2.5, "whatever anyone consumes"
