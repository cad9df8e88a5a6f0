"""The rules of leases under an injected clock, and leases in PostgreSQL: who lost one is unable to
append."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Blocks, Policy
from hushgrid.service.clock import since_start
from hushgrid.service.cluster.leases import (
    LeasePace,
    LeasePlan,
    Leases,
    LeaseTable,
    Peer,
    SharedLedger,
    owners,
    plan,
)
from hushgrid.service.cluster.process import Sharing
from hushgrid.service.curator import Curator
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import ReleaseRecord
from hushgrid.service.ledger.writer import Key, create, load, verify_signature
from hushgrid.testing.stores import ZONES, check_ledger_store
from tests.service.brokers import until
from tests.service.worlds import START, MemoryMeters, service
from tests.services import Postgres

PACE = LeasePace(beat=0.25, lease=2.0)


# ---- the rules


class Hall:
    """Curators and leases as the database would have them, and a clock that only we move."""

    def __init__(self, names: list[str]) -> None:
        self.now = 0.0
        self.peers: dict[str, Peer] = {}
        self.leases: dict[str, str | None] = dict.fromkeys(names)
        self.free: dict[str, dict[str, float]] = {}  # what each has seen free, since when
        self.asleep: set[str] = set()

    def join(self, one: str) -> None:
        self.peers[one] = Peer(one, "", self.now + PACE.lease)
        self.free[one] = {}

    def seen(self) -> LeaseTable:
        return LeaseTable(self.now, tuple(self.peers.values()), dict(self.leases))

    def beat(self, order: list[str]) -> None:
        """A beat passes; each that is awake acts on what it sees then."""
        self.now += PACE.beat
        for one in order:
            if one in self.asleep or one not in self.peers:
                continue
            self.peers[one] = Peer(one, "", self.now + PACE.lease)
            self.act(one)

    def act(self, one: str) -> None:
        seen = self.seen()
        since = {name: self.free[one].get(name, self.now) for name in seen.free}
        self.free[one] = since
        overdue = {name for name, at in since.items() if self.now - at > PACE.lease}
        wanted = plan(seen, one, overdue)
        assert all(name in seen.free for name in wanted.take), "only what is free is taken"
        for name in wanted.take:
            self.leases[name] = one
        mine = [name for name, owner in self.leases.items() if owner == one]
        for name in mine[: wanted.give]:
            self.leases[name] = None

    def held(self) -> Counter[str | None]:
        return Counter(self.leases.values())


def hall(zones: int, *curators: str) -> Hall:
    made = Hall([f"z{i:02d}" for i in range(zones)])
    for one in curators:
        made.join(one)
    return made


def test_equal_parts_then_a_death_then_one_who_joins() -> None:
    made, all_of_them = hall(30, "a", "b", "c"), ["a", "b", "c"]
    made.beat(all_of_them)
    assert made.held() == {"a": 10, "b": 10, "c": 10}
    before = dict(made.leases)
    made.beat(all_of_them)
    assert made.leases == before, "nothing moves without a reason"
    made.peers["a"] = Peer("a", "", made.now + PACE.lease, connected=False)  # killed
    made.asleep.add("a")
    made.beat(all_of_them)
    assert made.held() == {"b": 15, "c": 15}, "a session that ended frees its zones at once"
    assert all(made.leases[z] == before[z] for z in before if before[z] != "a"), "others stay"
    made.join("d")
    for _ in range(2):
        made.beat(["b", "c", "d"])
    assert made.held() == {"b": 10, "c": 10, "d": 10}


def test_a_lease_ends_when_its_time_is_over_and_not_before() -> None:
    made = hall(4, "a", "b")
    made.beat(["a", "b"])
    assert made.held() == {"a": 2, "b": 2}
    made.asleep.add("a")
    until = made.peers["a"].until
    while made.now + PACE.beat < until:
        made.beat(["b"])
        assert made.held() == {"a": 2, "b": 2}
    made.beat(["b"])
    assert made.held() == {"b": 4}


def test_what_somebody_does_not_take_is_taken_beyond_an_equal_part() -> None:
    made = hall(3, "a", "b")
    peers = (Peer("a", "", 9.0), Peer("b", "", 9.0))
    seen = LeaseTable(0.0, peers, {"x": None, "y": "b", "z": "b"})
    assert plan(seen, "b") == LeasePlan(), "a is to take it"
    assert plan(seen, "b", overdue={"x"}) == LeasePlan(("x",))
    assert plan(seen, "a", refused={"x"}) == LeasePlan()
    assert plan(LeaseTable(0.0, peers, dict.fromkeys("xyz", "b")), "b").give == 1
    strangers = (Peer("a", "other zones", 9.0), Peer("b", "", 9.0))
    assert plan(LeaseTable(0.0, strangers, dict.fromkeys("xyz", "b")), "b").give == 0
    assert made.held() == {None: 3}


@given(
    st.integers(1, 12),
    st.lists(st.sampled_from(["join", "kill", "sleep", "wake", "beat"]), max_size=40),
    st.integers(0, 2**32 - 1),
)
def test_whatever_happens_everything_is_run_by_one_who_lives(
    zones: int, story: list[str], seed: int
) -> None:
    rng, made, count = random.Random(seed), hall(zones, "c0"), 1
    for what in story:
        awake = sorted(set(made.peers) - made.asleep)
        if what == "join" and count < 6:
            made.join(f"c{count}")
            count += 1
        elif what == "kill" and len(awake) > 1:
            gone = rng.choice(awake)
            made.peers.pop(gone)
        elif what == "sleep" and len(awake) > 1:
            made.asleep.add(rng.choice(awake))
        elif what == "wake" and made.asleep:
            made.asleep.discard(rng.choice(sorted(made.asleep)))
        order = sorted(made.peers)
        rng.shuffle(order)
        made.beat(order)
    awake = sorted(set(made.peers) - made.asleep)
    for _ in range(round(2 * PACE.lease / PACE.beat) + 4):
        made.beat(awake)
    held = made.held()
    assert set(held) <= set(awake), "all is held by those who are awake"
    assert max(held.values()) <= -(-zones // len(awake)), "nobody has more than an equal part"
    before = dict(made.leases)
    made.beat(awake)
    assert made.leases == before, "it settles"


# ---- the database


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
def key(tmp_path: Path) -> Key:
    create(tmp_path / "key.pem")
    return load(tmp_path / "key.pem")


LEASE = 60.0


class Steady:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def joined(url: str, name: str, *zones: str, steady: Steady | None = None) -> Iterator[Sharing]:
    """A curator that looks around when it is told to, and lives until it is told otherwise."""
    pace = LeasePace(beat=0.0, lease=LEASE)
    clock = since_start if steady is None else steady
    sharing = Sharing(url, zones or ["elm-street"], name=name, pace=pace, steady=clock)
    sharing._stop.set()  # no thread: the test says when it lives
    sharing._join()
    try:
        yield sharing
    finally:
        sharing.stop()


def expire(url: str, sharing: Sharing) -> None:
    """Its time is over: as if it had slept."""
    with psycopg.connect(url, autocommit=True) as link:
        done = link.execute(
            "UPDATE hushgrid_curator SET until = clock_timestamp() WHERE id = %s",
            (sharing.me,),
        )
        assert done.rowcount == 1


@pytest.mark.parametrize("me", [None, "me"])
@pytest.mark.sampled
def test_it_is_a_ledger_store(url: str, me: str | None) -> None:
    with SharedLedger(url) as store:
        leases = Leases(store, "me", [*ZONES, "many", "locked", "open"], PACE)
        leases.join()
        assert len(leases.take([*ZONES, "many", "locked", "open"], leases.look())) == 6
    check_ledger_store(lambda: SharedLedger(url, me))


def test_zones_are_shared_taken_over_and_given_back(url: str) -> None:
    zones = ["elm", "oak", "ash", "fir"]
    with ExitStack() as stack:
        one = stack.enter_context(joined(url, "one", *zones))
        one.turn()
        assert one.ready == set(zones)
        steady = Steady()
        two = stack.enter_context(joined(url, "two", *zones, steady=steady))
        two.turn()
        assert two.ready == set(), "nothing is free"
        one.turn()
        assert one.surplus == 2
        one.give(["elm", "oak"])
        two.turn()
        assert two.ready == {"elm", "oak"}
        one.turn()
        assert one.ready == {"ash", "fir"}
        assert (one.owner("elm"), one.owner("ash")) == (two.me, one.me)
        assert owners(url) == {"elm": two.me, "oak": two.me, "ash": one.me, "fir": one.me}
        one.store.close()  # a process that is killed: its session ends, its time does not
        assert until(lambda: two.turn() and two.seen.living == {two.me})
        assert two.ready == {"elm", "oak"}, "it may be cut off and take them for its own"
        steady.now += LEASE
        two.turn()
        assert two.ready == set(zones)
        assert two.taken == 2
    assert owners(url) == {}


def test_one_whose_session_was_ended_joins_again(url: str) -> None:
    steady = Steady()
    with joined(url, "one") as one, joined(url, "two", steady=steady) as two:
        one.turn()
        assert one.ready == {"elm-street"}
        expire(url, one)
        two._leases.beat()
        two.turn()
        steady.now += LEASE
        # the server takes a moment to end the session that has the lock
        assert until(lambda: two.turn() and two.ready == {"elm-street"})
        with pytest.raises(LedgerError):
            one.turn()
        one.turn()
        assert one.ready == set()
        assert one.owner("elm-street") == two.me


def killed(_: str, one: Sharing) -> None:
    one.store.close()


def forgotten(url: str, one: Sharing) -> None:
    """The database crashed: its table of curators is empty."""
    one.store.close()
    with psycopg.connect(url, autocommit=True) as link:
        link.execute("TRUNCATE hushgrid_curator")


@pytest.mark.parametrize("ended", [killed, forgotten, expire], ids=lambda one: one.__name__)
@pytest.mark.sampled
def test_nothing_is_taken_within_a_lease_of_its_owners_last_word(
    url: str, ended: Callable[[str, Sharing], None]
) -> None:
    """By the clock of the one that takes it: the database's may be set."""
    steady = Steady()
    with joined(url, "one") as one, joined(url, "two", steady=steady) as two:
        one.turn()
        two.turn()
        steady.now += LEASE - 1
        one._leases.beat()
        two.turn()
        ended(url, one)
        with joined(url, "three", steady=steady) as three:  # it never heard of the owner
            for late in (0.0, 1.0, LEASE - 2):
                steady.now += late
                assert until(lambda: three.turn() and one.me not in three.seen.living)
                two.turn()
                assert two.ready | three.ready == set()
            steady.now += 1
            two._leases.beat()  # ends what is left of its session
            assert until(lambda: two.turn() and three.turn() and bool(two.ready | three.ready))


def test_a_look_that_is_old_takes_nothing_of_one_that_came_back(url: str) -> None:
    """Between reading the leases and taking one, its owner renews its row."""
    with joined(url, "one") as one, joined(url, "two") as two:
        one.turn()
        expire(url, one)
        read = two._look()
        assert one.me not in read.living
        one._leases.join()
        assert not two._leases.take(list(read.leases), read)
        expire(url, one)
        assert two._leases.take([*read.leases], two._look())


@contextmanager
def curator(
    sharing: Sharing,
    key: Key,
    meters: MemoryMeters,
    watch: object = None,
    zone: ZoneService | None = None,
) -> Iterator[Curator]:
    with Curator.open(
        service() if zone is None else zone,
        sharing.store,
        meters,
        SimulatedNoise(1),
        key,
        (),
        "simulation",
        now=START,
        watch=watch or (lambda _: None),  # type: ignore[arg-type]
    ) as made:
        yield made


def releases(url: str) -> list[int]:
    with open_store(url, create=False) as store:
        report = check(store.records("elm-street"), verify_signature, {})
    assert report.first_bad is None, report.reason
    return [release.t for release in report.standings["elm-street"].releases]


def taken_over(url: str, one: Sharing, two: Sharing, steady: Steady) -> None:
    """The word of one lapses, and the other has its zone after a lease."""
    expire(url, one)
    two._leases.beat()
    two.turn()
    steady.now += LEASE
    assert until(lambda: two.turn() and bool(two.ready))


def test_one_who_slept_with_a_release_in_hand_appends_nothing(url: str, key: Key) -> None:
    """It wakes when another has published the interval, and holds noise and load for it."""
    meters, steady = MemoryMeters(service()), Steady()
    first = START // 900
    with joined(url, "one") as one, joined(url, "two", steady=steady) as two:
        one.turn()
        slept = []

        def sleep(place: str) -> None:
            if place != "stepped":
                return
            taken_over(url, one, two, steady)
            with curator(two, key, meters) as other:
                slept.append(other.tick(START + 900))

        with curator(one, key, meters, sleep) as paused, pytest.raises(LedgerError):
            paused.tick(START + 900)
        assert [release.t for release in slept] == [first]
        assert releases(url) == [first], "one release, of the one that holds the lease"
        one.turn()  # joins again
        assert one.ready == set()
        assert one.owner("elm-street") == two.me


@pytest.mark.parametrize("at", [1, 2])  # inside a block, at its end
def test_one_who_slept_after_a_release_leaves_the_noise_of_others_blocks(
    url: str, key: Key, at: int
) -> None:
    """It wakes when another has begun the next block, whose size of noise must stay."""
    zone = service(policy=Policy(0.5, horizon=8, schedule=Blocks((2, 6), (0.3, 0.5))))
    meters, steady = MemoryMeters(zone), Steady()
    others, made = list[Curator](), list[ReleaseRecord]()

    def publish(some: Curator) -> None:
        for house in range(zone.scenario.zone.n_houses):
            meters.rows[zone.id, house, some.start_of(some.t)] = 100
        made.append(some.tick(some.next_due()))

    with joined(url, "one") as one, joined(url, "two", steady=steady) as two, ExitStack() as ends:
        one.turn()

        def sleep(place: str) -> None:
            if place != "published" or len(made) < at - 1:
                return
            taken_over(url, one, two, steady)
            others.append(ends.enter_context(curator(two, key, meters, zone=zone)))
            for _ in range(at, 3):  # up to the first of the next block
                publish(others[0])

        with curator(one, key, meters, sleep, zone) as paused:
            for _ in range(at):
                publish(paused)
            for _ in range(2):  # the noise of the first was ready before
                publish(others[0])
    found = sorted(made, key=lambda release: release.t)
    assert [release.source for release in found] == ["readings"] * 5
    marks = [(one.block["number"], one.block["mark"]) for one in found if one.block]
    assert marks[0] == marks[1] != marks[2] == marks[3] == marks[4]


def test_one_whose_lease_alone_is_lost_appends_nothing(url: str, key: Key) -> None:
    """Its session and its lock are still there; the append asks for the lease all the same."""
    meters = MemoryMeters(service())
    with joined(url, "one") as one:
        one.turn()
        with curator(one, key, meters) as made:
            made.tick(START + 900)
            with psycopg.connect(url, autocommit=True) as link:
                link.execute("UPDATE hushgrid_lease SET curator = 'another'")
            with pytest.raises(LedgerError, match="another curator's now"):
                made.tick(START + 1800)
    assert releases(url) == [START // 900]


def test_a_lease_is_not_taken_in_the_middle_of_an_append(url: str) -> None:
    with joined(url, "one") as one, joined(url, "two") as two:
        one.turn()
        seen = two._leases.look()
        with psycopg.connect(url) as link:
            link.execute("SELECT FROM hushgrid_lease FOR SHARE")  # as the fence does
            assert two._leases.take(["elm-street"], seen) == set()
        assert two._leases.take(["elm-street"], seen) == {"elm-street"}
        assert two._leases.take(["elm-street"], seen) == set(), "no longer as it was seen"


def test_nobody_takes_what_another_has_locked(url: str) -> None:
    """A process that knows no leases, such as hushgrid ledger transfer, keeps them all out."""
    with joined(url, "one") as one, open_store(url) as store:
        with store.writer("elm-street"):
            one.turn()
            assert one.ready == set()
            assert one.seen.of(one.me) == {"elm-street"}
        one.turn()
        assert one.ready == {"elm-street"}
        with pytest.raises(LedgerError, match="has a writer already"), store.writer("elm-street"):
            pass


def test_all_is_taken_only_by_one_who_is_alone(url: str) -> None:
    with joined(url, "one", "elm", "oak") as one:
        with joined(url, "two", "elm", "oak") as two:
            assert one.take_all() == [two.me]
            assert one.ready == set()
        assert one.take_all() == []
        assert one.ready == {"elm", "oak"}


def test_leases_are_made_by_many_at_once(url: str) -> None:
    stores = [SharedLedger(url) for _ in range(3)]
    for i, store in enumerate(stores):
        Leases(store, f"c{i}", ["elm"], PACE).join()
    assert len(Leases(stores[0], "c0", ["elm"], PACE).look().living) == 3
    for store in stores:
        store.close()
