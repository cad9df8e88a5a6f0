"""Noise that lasts a block of steps in a running service: one size M a block, kept and erased."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from hushgrid import PlanError, Policy, Zone, tally
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.curator.curator import Curator
from hushgrid.curator.promise import outlook
from hushgrid.curator.status import NO_SIZE
from hushgrid.curator.terms import first_state
from hushgrid.curator.transfer import move
from hushgrid.errors import ConfigError
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.files.weeks import placed
from hushgrid.files.zone_file import policy_of
from hushgrid.mechanism.noise import Stepwise
from hushgrid.mechanism.policy import Blocks
from hushgrid.planning.expected_error import RHO
from hushgrid.planning.planner import check_blocks, examine
from hushgrid.report.plan import block_keys
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.writer import create
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.meters.block_keys import BlockKeys
from hushgrid.stores.meters.columns import NoiseBlock
from hushgrid.stores.meters.store import back_up
from hushgrid.stores.meters.tables import NOISE
from tests.curator.block_lives import (
    LENGTHS,
    LOSSES,
    OPENS,
    THETA,
    Life,
    Sizes,
    blocks,
    go_on,
    standing,
    street,
    truth,
)
from tests.curator.curators import FIRST, Shown, curator, everyone, feed
from tests.curator.setups import BEGINS, reading, service
from tests.curator.streets import BEGINS as HOURS
from tests.curator.streets import load as load_street
from tests.curator.worlds import deployment


def noise_of(release: ReleaseRecord, zone: ZoneService) -> int:
    wh = np.array([reading(h, release.t) for h in everyone(zone)])
    return release.load_hat - tally(wh, zone.scenario.zone.bound).load


def kept(folder: Path) -> list[Any]:
    with MeterStore(folder / "meters") as store, store.open().read() as link:
        return list(link.execute(select(NOISE)))


def size_in(folder: Path, row: Any) -> int | None:
    """The M of a stored row, which its key opens."""
    block = NoiseBlock(row.terms, row.start, row.scale, row.mark)
    with MeterStore(folder / "meters") as store:
        store.open_zone(*blocks().roster)
        return store.noise_size("elm", block, None)


def test_a_block_has_one_size_whoever_publishes(tmp_path: Path) -> None:
    """Restarts inside blocks: M is drawn once a block, and kept until the block is over."""
    zone, made = blocks(), list[ReleaseRecord]()
    for part in (1, 2, 1, 4, 1, 3):
        made += go_on(tmp_path, zone, part)[0]
        over = len(made) == sum(LENGTHS)  # the week, and the next one has not begun
        assert len(kept(tmp_path)) == (not over), "of the block that is next or open"
        state = standing(tmp_path, zone)
        begun = OPENS.index(made[-1].block["first"]) + 1
        assert state.epsilon == pytest.approx(sum(LOSSES[:begun]))
    found = [noise_of(one, zone) for one in made]
    assert [one.block["first"] for one in made] == list(np.repeat(OPENS, LENGTHS))
    sizes = [
        {m for m, one in zip(found, made, strict=True) if one.block["first"] == opens}
        for opens in OPENS
    ]
    assert [len(one) for one in sizes] == [1] * 5
    assert len(set.union(*sizes)) == 5
    assert [one.pop() % 10_000 for one in sizes] == list(LENGTHS)


def test_a_size_drawn_before_any_release_gives_way_to_that_of_the_next_start(
    tmp_path: Path,
) -> None:
    zone = blocks()
    with curator(tmp_path, zone, Shown(), noise=Sizes()):
        pass
    (before,) = kept(tmp_path)
    first = size_in(tmp_path, before)
    (one,), _ = go_on(tmp_path, zone, 1)
    (after,) = (row for row in kept(tmp_path) if row.mark != before.mark)
    assert noise_of(one, zone) == size_in(tmp_path, after) != first
    assert one.block["mark"] == after.mark
    go_on(tmp_path, zone, 1)
    assert [row.start for row in kept(tmp_path)] == [OPENS[1] * 900], "both are gone"


def test_a_block_whose_size_is_lost_ends_as_the_forecast(tmp_path: Path) -> None:
    zone, made = blocks(), list[ReleaseRecord]()
    for part, lose in ((3, True), (1, False), (5, True), (3, False)):
        some, status = go_on(tmp_path, zone, part)
        made += some
        if lose:
            with MeterStore(tmp_path / "meters") as store, store.open().begin() as link:
                link.execute(NOISE.delete())
        elif len(made) == 4:
            assert status.state == NO_SIZE
            assert standing(tmp_path, zone).epsilon == pytest.approx(0.8)
    # steps 4 to 6 are the rest of block 2, and step 10 that of block 4
    assert [one.source[0] for one in made] == [*"rrrfff", *"rrrfrr"]
    assert standing(tmp_path, zone).epsilon == pytest.approx(1.5)
    assert len({noise_of(one, zone) for one in made if one.source == "readings"}) == 5


def test_a_size_is_used_for_the_open_block_alone(tmp_path: Path) -> None:
    """One that was put back, of an earlier block or of other terms, is never used."""
    zone = blocks()
    go_on(tmp_path, zone, 1)
    (old,) = kept(tmp_path)
    go_on(tmp_path, zone, 2)
    with MeterStore(tmp_path / "meters") as store, store.open().begin() as link:
        link.execute(NOISE.delete())
        link.execute(NOISE.insert().values(**old._mapping))
        link.execute(NOISE.insert().values(**{**old._mapping, "start": OPENS[1] * 900}))
    made, status = go_on(tmp_path, zone, 1)
    assert [one.source for one in made] == ["forecast"]
    assert status.state == NO_SIZE
    assert [row.start for row in kept(tmp_path)] == [OPENS[1] * 900]
    go_on(tmp_path, zone, 2)
    assert [row.start for row in kept(tmp_path)] == [OPENS[2] * 900], "it is gone with the block"


def test_steps_without_readings_spend_nothing(tmp_path: Path) -> None:
    """The block is booked with its first release from readings, wherever that is."""
    zone = blocks()
    silent = {FIRST, FIRST + 2, FIRST + 3, FIRST + 5, FIRST + 7}
    made, _ = go_on(tmp_path, zone, 8, silent.__contains__)
    places = [one.t - one.block["first"] for one in made if one.source == "readings"]
    assert places == [1, 2, 0]
    assert standing(tmp_path, zone).epsilon == pytest.approx(0.3 + 0.5 + 0.1)
    made, _ = go_on(tmp_path, zone, 4)
    block = {"first": OPENS[3], "length": 3}
    assert made[0].block == {**block, "mark": made[0].block["mark"]}
    assert standing(tmp_path, zone).epsilon == pytest.approx(1.5)


def test_a_seed_gives_the_same_noise_after_a_restart(tmp_path: Path) -> None:
    zone = blocks()
    (tmp_path / "once").mkdir()
    (tmp_path / "twice").mkdir()
    made, _ = go_on(tmp_path / "once", zone, 12, noise=Stepwise(3, zone.id))
    again = list[ReleaseRecord]()
    for part in (3, 1, 5, 3):
        again += go_on(tmp_path / "twice", zone, part, noise=Stepwise(3, zone.id))[0]
    assert [one.load_hat for one in made] == [one.load_hat for one in again]
    other, _ = go_on(
        tmp_path / "once",
        replace(zone, begins=BEGINS + 12 * 900),
        12,
        noise=Stepwise(3, zone.id),
        new_terms=True,
    )
    found = [abs(noise_of(one, zone)) for one in made + other]
    assert len(set(found)) > 20  # each step has a draw of its own


def test_a_backup_has_no_size(tmp_path: Path) -> None:
    zone = blocks()
    go_on(tmp_path, zone, 1)
    (row,) = kept(tmp_path)
    assert row.sealed in (tmp_path / "meters").read_bytes()
    copy = back_up(str(tmp_path / "meters"), tmp_path / "copy.db")
    assert row.sealed not in copy.read_bytes()
    assert not (tmp_path / "copy.db-journal").exists()
    with MeterStore(copy) as store, store.open().read() as link:
        assert list(link.execute(select(NOISE))) == []
    assert len(kept(tmp_path)) == 1
    go_on(tmp_path, zone, 2)
    assert row.sealed not in (tmp_path / "meters").read_bytes()  # overwritten


def test_a_lost_size_is_not_drawn_again_when_the_store_is_away(tmp_path: Path) -> None:
    """Nothing but the ledger says whether a block has begun."""
    zone = blocks()
    go_on(tmp_path, zone, 1)
    for file in filter(Path.is_file, tmp_path.glob("meters*")):
        file.unlink()
    made, _ = go_on(tmp_path, zone, 1)
    assert [one.source for one in made] == ["forecast"]


def test_a_size_of_another_draw_is_not_used(tmp_path: Path) -> None:
    """A store that is put back, or a standby that was behind, has the M of an earlier draw."""
    zone, away = blocks(), tmp_path / "away"
    first, _ = go_on(tmp_path, zone, 2)  # block 1; the size of block 2 is drawn
    away.mkdir()
    for file in filter(Path.is_file, tmp_path.glob("meters*")):
        file.rename(away / file.name)
    first += go_on(tmp_path, zone, 1)[0]
    for file in filter(Path.is_file, tmp_path.glob("meters*")):
        file.unlink()
    for file in away.iterdir():
        file.rename(tmp_path / file.name)
    made, status = go_on(tmp_path, zone, 2)
    assert [one.source for one in made] == ["forecast"] * 2
    assert status.state == NO_SIZE
    assert standing(tmp_path, zone).epsilon == pytest.approx(sum(LOSSES[:2]))
    made, _ = go_on(tmp_path, zone, 2)
    assert [one.source for one in made] == ["forecast", "readings"]  # the next block
    marks = [one.block["mark"] for one in (*first, made[-1])]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_a_store_of_an_earlier_version_gets_the_table(
    kind: str, place: Callable[[str], str], tmp_path: Path
) -> None:
    where, block = place(kind), NoiseBlock("ab" * 32, 0, 500.0, 1)
    with MeterStore(where, keys=tmp_path / "keys") as store:
        store.open_zone("elm", ["a"], 900)
        store.put("elm", [0], [0], [900], [7])
        with store.open().begin() as link:
            NOISE.drop(link)
    with MeterStore(where, keys=tmp_path / "keys") as store:
        store.open_zone("elm", ["a"], 900)
        assert store.noise_size("elm", block, lambda: 5) == 5
        assert store.get("elm", 0).wh.tolist() == [7]


def take_turns(
    where: str, folder: Path, keys: tuple[Path, Path], turns: int
) -> list[ReleaseRecord]:
    """Two curators with keys of their own run the zone in turn, a step each."""
    zone, made = blocks(), list[ReleaseRecord]()
    with (
        MeterStore(where, keys=keys[0]) as one,
        MeterStore(where, keys=keys[1]) as two,
        open_store(str(folder / "l.db")) as ledger,
    ):
        key = create(folder / "key")
        for turn in range(turns):
            mine = (one, two)[turn % 2]
            with Curator.open(
                zone, ledger, mine, Sizes(), key, [], "simulation", now=BEGINS + turn * 900
            ) as it:
                feed(it, it.t, everyone(zone))
                made += it.run(it.next_due())
    return made


def test_curators_that_share_a_store_share_the_size(
    tmp_path: Path, place: Callable[[str], str]
) -> None:
    """A curator takes the zone over inside a block; both had opened the same store before."""
    keys = tmp_path / "keys"
    found = [
        noise_of(one, blocks()) for one in take_turns(place("postgres"), tmp_path, (keys, keys), 4)
    ]
    assert found[0] == found[1] != found[2] == found[3]


def test_curators_with_copies_of_the_first_key_share_the_size(
    tmp_path: Path, place: Callable[[str], str]
) -> None:
    """Each derives the present block's key from its own folder."""
    keys = tmp_path / "one", tmp_path / "two"
    BlockKeys(keys[0]).make()
    shutil.copytree(*keys)
    made = take_turns(place("postgres"), tmp_path, keys, 12)
    assert [one.source for one in made] == ["readings"] * 12
    found = [noise_of(one, blocks()) for one in made]
    assert [found.index(m) for m in found] == list(np.repeat([0, 2, 6, 7, 10], LENGTHS))


def test_a_curator_with_another_key_publishes_forecasts_until_the_next_block(
    tmp_path: Path, place: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The M of the block is never drawn again."""
    made = take_turns(place("postgres"), tmp_path, (tmp_path / "one", tmp_path / "two"), 12)
    assert "".join(one.source[0] for one in made) == "rf" + "rfrf" + "r" + "rfr" + "rf"
    assert len({one.block["mark"] for one in made if one.source == "readings"}) == 5
    assert "block key is another curator's" in caplog.text
    sizes = [str(noise_of(one, blocks())) for one in made if one.source == "readings"]
    assert not any(size in caplog.text for size in sizes)


def test_a_block_whose_key_is_lost_ends_as_the_forecast(tmp_path: Path) -> None:
    zone = blocks()
    made, _ = go_on(tmp_path, zone, 3)
    shutil.rmtree(tmp_path / "meters.keys")
    more, status = go_on(tmp_path, zone, 1)
    assert status.state == NO_SIZE
    more += go_on(tmp_path, zone, 8)[0]
    assert "".join(one.source[0] for one in made + more) == "rr" + "rfff" + "r" + "rrr" + "rr"
    assert standing(tmp_path, zone).epsilon == pytest.approx(1.5)


class Kill(BaseException):
    """The end of the process."""


class Mortal(MeterStore):
    """A store whose process ends before or after a number of its calls about M."""

    left = 0

    def noise_size(self, *values: Any) -> int | None:
        self._count()
        found = super().noise_size(*values)
        self._count()
        return found

    def erase_noise(self, *values: Any, **more: Any) -> None:
        self._count()
        super().erase_noise(*values, **more)
        self._count()

    @classmethod
    def _count(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            raise Kill


def test_kills_around_the_size_lose_nothing(tmp_path: Path) -> None:
    """Key derived, M stored, old keys erased, release recorded: a kill between any two of them."""
    zone, steps = blocks(), 7
    for act in count(1):
        folder, made = tmp_path / str(act), tuple[ReleaseRecord, ...]()
        folder.mkdir()
        key, Mortal.left = create(folder / "key"), act
        while len(made) < steps:
            with (
                suppress(Kill),
                open_store(str(folder / "ledger.db")) as ledger,
                Mortal(folder / "meters") as meters,
                Curator.open(
                    zone, ledger, meters, Sizes(), key, [], "simulation",
                    now=BEGINS + 900 * len(made),
                ) as it,
            ):  # fmt: skip
                while len(made := it.releases) < steps:
                    feed(it, it.t, everyone(zone))
                    it.run(it.next_due())
        assert [one.source for one in made] == ["readings"] * steps
        found = [noise_of(one, zone) for one in made]
        assert [found.index(m) for m in found] == list(np.repeat([0, 2, 6], LENGTHS[:3]))
        if Mortal.left > 0:
            break
    assert act > 20


# ---- files

KEYS = "block_steps = [6]\nblock_epsilon = [0.3]"
BEFORE = "\neta = 1.0"


def test_a_service_file_has_blocks(tmp_path: Path) -> None:
    """They repeat from Monday 0:00 local time on, and the promise is checked for them."""
    found = load_street(tmp_path, HOURS, (BEFORE, f"\n{KEYS}{BEFORE}"))
    assert found.policy.schedule == Blocks((5, *(6,) * 15), (0.3,) * 16)  # Thursday from 1:00 on
    assert (found.promise, found.policy.epsilon) == (Promise("interval", 1.0, rho=RHO), 0.3)
    assert found.leakage == pytest.approx(0.714851, abs=1e-6)
    day = outlook(found)
    assert day.leakage_day < day.leakage_week <= found.leakage
    keys = KEYS + "\nclamp = [900, 1000]\n# "
    cut = load_street(tmp_path, HOURS, (BEFORE, f"\n{keys}{BEFORE}"))
    assert first_state(cut).scheduler.at(1).scale == pytest.approx(1000 / 0.3)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("block_steps = [6]\nblock_epsilon = [0.5]", r":50: .* 1\.20064 about one interval"),
        ("block_steps = [6, 2]\nblock_epsilon = [0.3]", ":49: .* 1 entries of block_epsilon"),
        ("block_epsilon = [0.3]", "block_steps is .* with 1 entries"),
        ("block_steps = [6]", "0 entries of block_epsilon"),
        ("block_steps = [9]\nblock_epsilon = [0.3]", "add up to 9 .* do not divide a week of 168"),
        ("block_steps = [0, 6]\nblock_epsilon = [0.3, 0.3]", "give 1 step or more"),
        ("block_steps = [6]\nblock_epsilon = [-0.3]", ":50: .* block 1 is -0.3"),
        ("block_steps = [6]\nblock_epsilon = [1.5]", "at most epsilon = 1"),
        ('block_steps = [6]\nblock_epsilon = [0.3]\nsecret = "step"#', "say as much as the block"),
    ],
)  # fmt: skip
def test_mistakes_in_blocks(tmp_path: Path, keys: str, says: str) -> None:
    edits = [(BEFORE, f"\n{keys}{BEFORE}")]
    if "secret" in keys:
        edits.insert(0, ('secret = "interval"', "# "))
    with pytest.raises(ConfigError, match=says):
        load_street(tmp_path, HOURS, *edits)


def test_the_keys_of_a_plan_are_those_of_a_file() -> None:
    """Those of the part that repeats; epsilons never above the plan's."""
    scenario = service().scenario
    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    losses = (1 / 3, 0.1, 2 / 7)
    schedule = Blocks((3, 1, 4) * 3, losses * 3)
    found = examine(*world, Policy(0.5, horizon=24, schedule=schedule), secret="interval")
    keys = block_keys(found)
    assert keys == ["block_steps = [3, 1, 4]", "block_epsilon = [0.333333, 0.1, 0.285714]"]
    policy = policy_of({"epsilon": 1.0, "horizon": 48, **tomllib.loads("\n".join(keys))})
    assert policy.schedule.lengths == (3, 1, 4) * 6
    assert all(a <= b for a, b in zip(policy.schedule.epsilons, found.epsilon_t, strict=False))
    kept = check_blocks(world, policy.first(24), secret="interval", epsilon=found.leakage)
    assert kept.leakage == pytest.approx(found.leakage, abs=1e-4)
    with pytest.raises(PlanError, match="give smaller ones"):
        check_blocks(world, policy.first(24), secret="interval", epsilon=found.leakage * 0.99)


# ---- terms, gaps and moves


def test_the_recursion_of_the_test_has_the_golden_values() -> None:
    """blocks (1 2)(3)(4 5) of the proofs, at the chain's own law."""
    due = temporal_leakage(THETA, [0.5] * 5, [2, 1, 2]).worst
    blocks = {0: [(1, 0.5), (2, 0.5)], 1: [(3, 0.5)], 2: [(4, 0.5), (5, 0.5)]}
    assert truth(blocks, 1, 5) == pytest.approx(due)


@pytest.mark.parametrize(
    "seed", [2, 4, *(pytest.param(n, marks=pytest.mark.soak) for n in range(5, 40))]
)
@pytest.mark.sampled
def test_no_story_says_more_than_is_promised(tmp_path: Path, seed: int) -> None:
    rng, life = Random(seed), Life(tmp_path, HOURS, 0.609)  # the blocks leak 0.608 day by day
    for _ in range(14):
        act = rng.random()
        if act < 0.45:
            life.go_on(rng.randrange(1, 7))
        elif act < 0.6:
            life.go_on(rng.randrange(1, 4), silent=True)
        elif act < 0.75:
            life.lose_sizes()
        elif act < 0.87:
            life.lose_releases(rng.randrange(1, 4))
        else:
            life.begin(life.time + 3600 * rng.choice([0, 0, 1, 5]))
    life.go_on(8)
    life.judge()


@pytest.mark.parametrize("steps", [16, 17, 20])
@pytest.mark.sampled
def test_terms_may_begin_inside_a_block(tmp_path: Path, steps: int) -> None:
    """Three times, each after a price; the block before it counts up to its last step."""
    life = Life(tmp_path, HOURS, 0.609)
    life.go_on(steps)
    for _ in range(3):
        life.begin(life.time)
        life.go_on(1)
    life.begin(life.time)
    life.go_on(14)
    life.judge()


def test_a_gap_books_every_block_that_it_touches(tmp_path: Path) -> None:
    life = Life(tmp_path, HOURS)
    life.go_on(3)
    life.lose_releases(3)  # steps 4 to 6, and 7 gets the forecast
    life.go_on(1)
    # the last block leaves what the lost ones left at least, which is a little less than planned
    assert life.spent == pytest.approx(0.3 + (0.3 + 0.3) * 1.0 + 0.1, rel=1e-3)
    life.judge()
    with open_store(str(tmp_path / "ledger.db")) as store:
        sources = [r.body["source"] for r in store.records("elm") if r.kind == "release"]
    assert sources == ["readings"] * 3 + ["forecast", "readings"]  # step 8 is a block of its own


def renamed(zone: ZoneService, name: str, *meters: str) -> ZoneService:
    """The street as another zone with other meters."""
    assert zone.pattern is not None
    own = replace(zone.pattern.scenario, zone=Zone(name, [1000] * len(meters)))
    pattern = replace(zone.pattern, scenario=own)
    return placed(replace(zone, meters=meters, pattern=pattern), zone.begins)


@pytest.mark.parametrize("steps", [18, 20])
@pytest.mark.sampled
def test_a_house_moves_inside_a_block(tmp_path: Path, steps: int) -> None:
    """The block counts for it up to its last price; the other zone begins at once."""
    zones = [renamed(street(HOURS, 0.609), name, f"{name}0", f"{name}1") for name in ("elm", "oak")]
    border, blocks = HOURS + steps * 3600, dict[tuple[str, int], list[tuple[int, float]]]()
    made = deployment(tmp_path, *zones, key=tmp_path / "key")

    def publish(zone: ZoneService, count: int, new_terms: bool = False) -> int:
        with curator(tmp_path, zone, Shown(), now=zone.begins, new_terms=new_terms) as it:
            for _ in range(count):
                wh = [reading(h, it.t) for h in (0, 1)]
                it._meters.put(zone.id, [0, 1], [it.start_of(it.t)] * 2, [3600] * 2, wh)
                for one in it.run(it.next_due()):
                    if one.source == "readings":
                        key = zone.id, one.block["first"]
                        blocks.setdefault(key, []).append((one.t, 1000 / one.scale))
            return int(it._ledger.standing.counts.get("readings", 0))

    publish(zones[0], steps)
    publish(zones[1], 0)
    move(made, "elm0", "elm", "oak", border)
    prices = publish(renamed(street(border, 0.609), "oak", "elm0", "oak1"), 24, new_terms=True)
    last = max(t for one in blocks.values() for t, _ in one)
    assert truth(blocks, HOURS // 3600, last) <= 0.609 * (1 + 1e-6)  # type: ignore[arg-type]
    assert prices >= 18, "all but those of the block of the other zone that the move is in"
