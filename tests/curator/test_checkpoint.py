"""A checkpoint of the replay: opening with it is opening by all records, bit for bit, or is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hushgrid import Policy, SimulatedNoise
from hushgrid.curator.curator import Curator
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.operate import serve
from hushgrid.operate.check import examine, repair
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.checkpoint import Checkpoint, decode, encode
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.store import CHECKPOINTS, SqlLedger
from hushgrid.stores.ledger.writer import Key, create, load
from tests.curator.setups import BEGINS, reading, service
from tests.curator.worlds import MemoryMeters, deployment
from tests.services import Postgres

POLICIES = {
    "raw": Policy(0.5, horizon=300),
    "estimate": Policy(0.5, horizon=300, publish="estimate"),
    "clamp": Policy(0.5, horizon=300, clamp=(700,)),
    "filter": Policy(0.5, horizon=300, publish="estimate", estimator="filter", clamp=(700,)),
    "releases": Policy(0.5, horizon=300, estimator="releases", usual=300.0),
}


class World:
    """A zone with its stores, opened again and again."""

    def __init__(self, folder: Path, zone: ZoneService, url: str | None = None) -> None:
        self.folder, self.zone, self.url = folder, zone, url or str(folder / "ledger.db")
        self.meters = MemoryMeters(zone)
        if not (folder / "key").exists():
            create(folder / "key")

    @property
    def key(self) -> Key:
        return load(self.folder / "key")

    @contextmanager
    def open(self, *, seed: int = 1, **more: Any) -> Iterator[Curator]:
        with (
            open_store(self.url) as store,
            Curator.open(
                more.pop("zone", self.zone), store, self.meters, SimulatedNoise(seed), self.key, [],
                "simulation", now=BEGINS, **more,
            ) as curator,
        ):  # fmt: skip
            yield curator

    def play(self, curator: Curator, story: str) -> None:
        """r: an interval with readings, f: without, l: one that is left out, c: a checkpoint."""
        for word in story:
            if word == "c":
                curator._replay.learn(2)
                curator.keep_checkpoint(spacing=1)
            elif word == "l":
                curator.leave_out_until(curator.start_of(curator.t + 1))
            else:
                at, n = curator.start_of(curator.t), len(self.zone.meters)
                if word == "r":
                    wh = [reading(house, curator.t) for house in range(n)]
                    self.meters.put(self.zone.id, range(n), [at] * n, [900] * n, wh)
                curator.tick(curator.next_due())

    def without(self, change: Callable[[LedgerStore, Checkpoint], None]) -> None:
        with open_store(self.url) as store:
            assert isinstance(store, SqlLedger)
            row = store.checkpoint(self.zone.id)
            assert row is not None
            change(store, Checkpoint(*row))


def value(curator: Curator) -> dict[str, Any]:
    """All that a curator has replayed, exactly."""
    replay, public = curator._replay, curator._replay.public
    law, draws = public.predicted(replay.state.rates, ahead=3), curator._draws
    assert draws is not None
    return {
        "standing": curator._ledger.standing,
        "state": replay.state,
        "public": {name: own.tobytes() for name, own in public.to_arrays().items()},
        "forecast": [own.tobytes() for own in (law.weights, law.mean, law.variance)],
        "noise": (draws.t, draws.digest, draws.noise, draws.calibration.epsilon),
        "next": (curator.t, draws.calibration.scale, curator._expected().tolist()),
    }


def removed(store: LedgerStore, _: object = None) -> None:
    assert isinstance(store, SqlLedger)
    with store.begin() as link:
        link.execute(CHECKPOINTS.delete())


@pytest.mark.parametrize("kind", POLICIES)
@settings(max_examples=3, phases=[Phase.generate])
@given(st.lists(st.text("rrflc", max_size=6), min_size=1, max_size=3), st.integers(0, 9))
@pytest.mark.sampled
def test_opening_with_a_checkpoint_is_a_full_replay(
    kind: str, tmp_path_factory: pytest.TempPathFactory, stories: list[str], seed: int
) -> None:
    world = World(tmp_path_factory.mktemp(kind), service(policy=POLICIES[kind]))
    for story in ["rc", *stories]:
        with world.open() as curator:
            world.play(curator, story)
    with open_store(world.url) as store:
        assert isinstance(store, SqlLedger)
        kept = store.checkpoint(world.zone.id)
    assert kept is not None
    with world.open(seed=seed) as curator:
        assert curator._checkpoint == kept[1], "it was not used"
        found = value(curator)
    world.without(removed)
    with world.open(seed=seed) as curator:
        assert curator._checkpoint == 0
        assert value(curator) == found


def changed(**fields: Any) -> Callable[[World, LedgerStore, Checkpoint], None]:
    def change(world: World, store: Any, held: Checkpoint) -> None:
        del world
        store.keep_checkpoint(held._replace(**fields))

    return change


def foreign(world: World, store: Any, held: Checkpoint) -> None:
    """Another key signs it."""
    key = create(world.folder / "other")
    store.keep_checkpoint(held._replace(signature=key.sign(held.digest)))


def richer(world: World, store: Any, held: Checkpoint) -> None:
    """What a thief of the database would like: another state, with the old signature."""
    arrays = decode(held.state)
    state = encode(arrays | {"spent": np.zeros(3), "weights": arrays["weights"][::-1]})
    store.keep_checkpoint(held._replace(state=state))


def forked(world: World, store: Any, held: Checkpoint) -> None:
    """Signed by the right key, of a history that the ledger does not have."""
    other = held._replace(head="ab" * 32)
    store.keep_checkpoint(other._replace(signature=world.key.sign(other.digest)))


def earlier(world: World, store: Any, held: Checkpoint) -> None:
    other = held._replace(format="hushgrid-checkpoint/0")
    store.keep_checkpoint(other._replace(signature=world.key.sign(other.digest)))


def elsewhere(world: World, store: Any, held: Checkpoint) -> None:
    """Of other terms."""
    other = held._replace(terms="cd" * 32)
    store.keep_checkpoint(other._replace(signature=world.key.sign(other.digest)))


WRONG = {
    "place": changed(seq=5),
    "state": changed(state=b"no state"),
    "foreign": foreign,
    "richer": richer,
    "forked": forked,
    "earlier": earlier,
    "elsewhere": elsewhere,
}


@pytest.mark.parametrize("how", WRONG)
def test_what_differs_is_not_used(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, service(policy=POLICIES["estimate"]))
    with world.open() as curator:
        world.play(curator, "rrfrrc")
        curator._replay.learn(10)
    with world.open() as curator:
        found = value(curator)
    world.without(lambda store, held: WRONG[how](world, store, held))
    caplog.clear()
    with world.open() as curator:
        assert value(curator) == found
    said = [one for one in caplog.records if one.message == "checkpoint not used"]
    assert [one.levelno for one in said] == [logging.WARNING]


def test_a_changed_record_before_it_is_found(tmp_path: Path) -> None:
    world = World(tmp_path, service(policy=POLICIES["raw"]))
    with world.open() as curator:
        world.play(curator, "rrrc")

    def change(store: Any, _: Checkpoint) -> None:
        with store.begin() as link:
            link.exec_driver_sql("DROP TRIGGER records_stay")
            link.exec_driver_sql("UPDATE records SET body = replace(body, '1', '2') WHERE seq = 5")

    world.without(change)
    with pytest.raises(LedgerError, match="record 5"), world.open():
        pass


def test_another_fallback_rate_is_another_state(tmp_path: Path) -> None:
    """It is the rate of steps before the first release, and no part of the terms."""
    zone = service(policy=POLICIES["estimate"], fallback_rate=1.0)
    world = World(tmp_path, zone)
    with world.open() as curator:
        world.play(curator, "llrrc")
    other = service(policy=POLICIES["estimate"], fallback_rate=3.0)
    with world.open(zone=other) as curator:
        found = value(curator)
    world.without(removed)
    with world.open(zone=other) as curator:
        assert value(curator) == found


def test_check_computes_it_again_and_doctor_removes_a_wrong_one(tmp_path: Path) -> None:
    zone = service(policy=POLICIES["estimate"])
    made = deployment(tmp_path, zone)
    (tmp_path / "key").symlink_to(tmp_path / "key.pem")
    world = World(tmp_path, zone)
    with world.open() as curator:
        world.play(curator, "rrfrc")

    def line() -> str:
        (found,) = [one for one in examine(made).checks if one.subject.startswith("checkpoint")]
        return found.sentence

    assert line() == "checkpoint of zone elm: record 7, computed again"

    def wrong(store: Any, held: Checkpoint) -> None:
        arrays = decode(held.state)
        bad = held._replace(state=encode(arrays | {"weights": arrays["weights"] * (1 + 1e-15)}))
        store.keep_checkpoint(bad._replace(signature=world.key.sign(bad.digest)))

    world.without(wrong)
    assert "it is not what the records give" in line()
    assert made.ledger == str(world.url)
    with world.open():  # a service that runs keeps its own
        assert repair(made)[0] == []
    done, found = repair(made)
    assert [what for what, _ in done] == ["checkpoint of zone elm"]
    assert not [one for one in found.checks if one.subject.startswith("checkpoint")]
    with world.open() as curator:
        world.play(curator, "rrc")
    world.without(lambda store, held: foreign(world, store, held))
    assert line().startswith("checkpoint of zone elm: not used")


def test_a_stopped_service_leaves_one(tmp_path: Path) -> None:
    import threading

    zone = service(policy=POLICIES["raw"])
    made = deployment(tmp_path, zone)
    (tmp_path / "key").symlink_to(tmp_path / "key.pem")
    world = World(tmp_path, zone)
    with world.open() as curator:
        world.play(curator, "rr")

    class Clock:
        def now(self) -> float:
            stop.set()
            return BEGINS + 2 * 900

    stop = threading.Event()
    serve(made, clock=Clock(), stop=stop)  # type: ignore[arg-type]
    with world.open() as curator:
        assert curator._checkpoint == curator._ledger.standing.releases[-1].seq


@pytest.mark.soak
def test_on_a_server(tmp_path: Path, postgres: Postgres) -> None:
    world = World(tmp_path, service(policy=POLICIES["estimate"]), postgres.fresh())
    with world.open() as curator:
        world.play(curator, "rrfrcrf")
    with world.open() as curator:
        assert curator._checkpoint > 0
        found = value(curator)
    world.without(removed)
    with world.open() as curator:
        assert value(curator) == found
