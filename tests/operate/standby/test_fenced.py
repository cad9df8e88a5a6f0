"""The row that says which curator is active: a curator that lost it is unable to append."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from hushgrid.curator.clock import since_start
from hushgrid.curator.curator import Curator
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Blocks, Policy
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.fenced import FencedLedger, Lease, active_curator
from hushgrid.stores.ledger.writer import Key, create, load, verify_signature
from tests.curator.worlds import START, MemoryMeters, service
from tests.services import Postgres
from tests.stores.conformance import check_ledger_store
from tests.web.brokers import until

LEASE = Lease(beat=0.25, seconds=60.0)


class Steady:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
def key(tmp_path: Path) -> Key:
    create(tmp_path / "key")
    return load(tmp_path / "key")


@contextmanager
def ledger(
    url: str, name: str, steady: Callable[[], float] | None = None
) -> Iterator[FencedLedger]:
    with FencedLedger(url, name, LEASE, steady or since_start) as store:
        yield store


def expire(url: str) -> None:
    """The time of the active curator is over: as if it had slept."""
    with psycopg.connect(url, autocommit=True) as link:
        done = link.execute("UPDATE hushgrid_active SET until = clock_timestamp()")
        assert done.rowcount == 1


def take_over(url: str, store: FencedLedger) -> None:
    expire(url)
    assert until(lambda: store.take(store.look()))


def test_it_is_a_ledger_store(url: str) -> None:
    def made() -> FencedLedger:
        """The active curator opens it more than once: each copy has its row."""
        store = FencedLedger(url, "me", LEASE, since_start)
        if not store.take(store.look()):
            store._number, store._renewed = store.look().number, since_start()
        return store

    check_ledger_store(made)


def test_one_of_many_is_active(url: str) -> None:
    with ExitStack() as stack:
        stores = [stack.enter_context(ledger(url, name)) for name in ("a", "b", "c")]
        rows = [store.look() for store in stores]
        assert [store.take(row) for store, row in zip(stores, rows, strict=True)] == [
            True,
            False,
            False,
        ]
        assert active_curator(url) == "a"
        assert not stores[1].take(stores[1].look()), "the row is valid"
        assert [store.renew() for store in stores] == [True, False, False]
        stores[0].give()
        assert active_curator(url) is None
        assert stores[2].take(stores[2].look())
        assert [store.renew() for store in stores] == [False, False, True]


def test_a_row_that_was_renewed_since_it_was_read_is_not_taken(url: str) -> None:
    with ledger(url, "one") as one, ledger(url, "two") as two:
        assert one.take(one.look())
        expire(url)
        row = two.look()
        assert not row.valid
        assert one.renew()
        assert not two.take(row)
        expire(url)
        assert two.take(two.look())
        assert not one.renew()


def test_a_row_is_not_taken_in_the_middle_of_an_append(url: str) -> None:
    with ledger(url, "one") as one, ledger(url, "two") as two:
        assert one.take(one.look())
        expire(url)
        with psycopg.connect(url) as link:
            link.execute("SELECT FROM hushgrid_active FOR KEY SHARE")  # as the fence does
            assert one.renew(), "a renewal does not wait for it"
            expire(url)
            with pytest.raises(LedgerError):
                two.take(two.look())
        assert two.take(two.look())


@contextmanager
def curator(
    store: FencedLedger,
    key: Key,
    meters: MemoryMeters,
    watch: Callable[[str], None] = lambda _: None,
    zone: ZoneService | None = None,
) -> Iterator[Curator]:
    with Curator.open(
        service() if zone is None else zone,
        store,
        meters,
        SimulatedNoise(1),
        key,
        (),
        "simulation",
        now=START,
        watch=watch,
    ) as opened:
        yield opened


def releases(url: str) -> list[int]:
    with open_store(url, create=False) as store:
        report = check(store.records("elm-street"), verify_signature, {})
    assert report.first_bad is None, report.reason
    return [release.t for release in report.standings["elm-street"].releases]


def test_one_who_slept_with_a_release_in_hand_appends_nothing(url: str, key: Key) -> None:
    """It wakes when another has published the interval, and holds noise and load for it."""
    meters, first = MemoryMeters(service()), START // 900
    with ledger(url, "one") as one, ledger(url, "two") as two:
        assert one.take(one.look())
        slept = []

        def sleep(place: str) -> None:
            if place != "stepped":
                return
            take_over(url, two)
            with curator(two, key, meters) as successor:
                slept.append(successor.tick(START + 900))

        with curator(one, key, meters, sleep) as paused, pytest.raises(LedgerError):
            paused.tick(START + 900)
        assert [release.t for release in slept] == [first]
        assert releases(url) == [first], "one release, of the active curator"


@pytest.mark.parametrize("at", [1, 2])  # inside a block, at its end
def test_one_who_slept_after_a_release_leaves_the_noise_of_the_next_block(
    url: str, key: Key, at: int
) -> None:
    """It wakes when another has begun the next block, whose size of noise must stay."""
    zone = service(policy=Policy(0.5, horizon=8, schedule=Blocks((2, 6), (0.3, 0.5))))
    meters, successors, made = MemoryMeters(zone), list[Curator](), list[ReleaseRecord]()

    def publish(active: Curator) -> None:
        for house in range(zone.scenario.zone.n_houses):
            meters.rows[zone.id, house, active.start_of(active.t)] = 100
        made.append(active.tick(active.next_due()))

    with ledger(url, "one") as one, ledger(url, "two") as two, ExitStack() as ends:
        assert one.take(one.look())

        def sleep(place: str) -> None:
            if place != "published" or len(made) < at - 1:
                return
            take_over(url, two)
            successors.append(ends.enter_context(curator(two, key, meters, zone=zone)))
            for _ in range(at, 3):  # up to the first of the next block
                publish(successors[0])

        with curator(one, key, meters, sleep, zone) as paused:
            for _ in range(at):
                publish(paused)
            for _ in range(2):  # the noise of the first was ready before
                publish(successors[0])
    found = sorted(made, key=lambda release: release.t)
    assert [release.source for release in found] == ["readings"] * 5
    marks = [(release.block["first"], release.block["mark"]) for release in found if release.block]
    assert marks[0] == marks[1] != marks[2] == marks[3] == marks[4]


LOST = {
    "another holder": "UPDATE hushgrid_active SET holder = 'another'",
    "another number": "UPDATE hushgrid_active SET number = number + 1",
    "expired": "UPDATE hushgrid_active SET until = clock_timestamp()",
    "no row": "DELETE FROM hushgrid_active",
}


@pytest.mark.parametrize("change", LOST.values(), ids=LOST.keys())
def test_one_whose_row_alone_is_lost_appends_nothing(url: str, key: Key, change: str) -> None:
    """Its session and its lock are still there; the append asks for the row all the same."""
    meters = MemoryMeters(service())
    with ledger(url, "one") as one:
        assert one.take(one.look())
        with curator(one, key, meters) as made:
            made.tick(START + 900)
            with psycopg.connect(url, autocommit=True) as link:
                link.execute(change)
            with pytest.raises(LedgerError, match="another curator is active"):
                made.tick(START + 1800)
    assert releases(url) == [START // 900]


def test_one_that_could_not_renew_for_a_lease_appends_nothing(url: str, key: Key) -> None:
    """By its own clock, whatever the row says: another server may answer that lacks the change."""
    meters, steady = MemoryMeters(service()), Steady()
    with ledger(url, "one", steady) as one:
        assert one.take(one.look())
        with curator(one, key, meters) as made:
            made.tick(START + 900)
            steady.now += LEASE.seconds
            with pytest.raises(LedgerError, match="another curator is active"):
                made.tick(START + 1800)
    assert releases(url) == [START // 900]


def test_a_command_that_has_a_zone_keeps_the_active_curator_out(url: str) -> None:
    with ledger(url, "one") as one, open_store(url) as store:
        assert one.take(one.look())
        refused = pytest.raises(LedgerError, match="has a writer already")
        with store.writer("elm-street"), refused, one.writer("elm-street"):
            pass
        with one.writer("elm-street"), refused, store.writer("elm-street"):
            pass
