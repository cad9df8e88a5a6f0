"""SIGKILL at random instants and at every named step of the tick, under load.

A child process runs a curator on real stores and tells its parent, line by line, which readings
were accepted and what was shown. The parent kills it, looks at what is on the disk, and starts the
next one. HUSHGRID_KILLS sets how many random kills (12; the soak has 300).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hushgrid import Noise, Policy, SimulatedNoise
from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import ZoneService
from hushgrid.files.zone_file import PricesAhead
from hushgrid.mechanism.policy import Blocks
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord
from hushgrid.stores.ledger.witness import Witnesses
from hushgrid.stores.ledger.writer import create, load, verify_signature
from hushgrid.stores.meters import MeterStore
from tests.curator.setups import BEGINS, reading, service, two_registers

KILLS = int(os.environ.get("HUSHGRID_KILLS", "12"))
STEPS = ("due", "closed", "read", "stepped", "recorded", "published", "drawn")
ZONE = service(n=8, retention=10 * 900)
BLOCKS = two_registers(
    service(
        n=8,
        retention=10 * 900,
        export=40,  # of readings from -50 Wh on
        policy=Policy(0.5, horizon=2_000, schedule=Blocks((3,) * 500 + (1,) * 500, (0.5,) * 1000)),
    )
)
LISTS = service(n=8, retention=10 * 900, ahead=PricesAhead(1, 1800))
LIST_STEPS = ("list made", "listed")
BATCHES = ([0, 1, 2], [3], [4, 5, 6, 7])
REGISTERS = {1: 8, 4: 9, 7: 10}  # of energy fed in, by house of BLOCKS


class Telling:
    """A publisher that tells the parent what it shows."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        self._tell("shown", t=release.t, rate=release.rate, head=release.head, seq=release.seq)

    def publish_list(self, zone: ZoneService, record: PricesRecord) -> None:
        self._tell("list", first=record.first, rates=list(record.rates), head=record.head)


class Large(Noise):
    """Noise that is the size of its block: a number that no other process draws."""

    def draw(self, scale: float) -> int:
        raise AssertionError("no noise of its own")

    def draw_size(self, scale: float, steps: int) -> int:
        return random.SystemRandom().randrange(10**6, 10**9)

    def draw_within(self, size: int) -> int:
        return size


def net(zone: ZoneService, house: int, t: int) -> int:
    """What a house counted at step t, less what its register of energy fed in did [Wh]."""
    second = REGISTERS.get(house) if zone is BLOCKS else None
    return reading(house, t) - (0 if second is None else reading(second, t))


def zone_of(folder: Path) -> ZoneService:
    if (folder / "lists").exists():
        return LISTS
    return BLOCKS if (folder / "blocks").exists() else ZONE


def child(folder: Path, pipe: int, kill_at: tuple[str, int] | None) -> None:
    """Feed and tick for ever, or until the named step has been passed so many times."""
    seen = dict.fromkeys((*STEPS, *LIST_STEPS), 0)

    def tell(what: str, **fields: Any) -> None:
        os.write(pipe, (json.dumps({"what": what, **fields}) + "\n").encode())

    def watch(step: str) -> None:
        seen[step] += 1
        if kill_at == (step, seen[step]):
            os.kill(os.getpid(), signal.SIGKILL)

    zone = zone_of(folder)
    with (
        open_store(str(folder / "ledger.db")) as store,
        MeterStore((folder / "place").read_text(), keys=folder / "keys") as meters,
        Witnesses(folder / "witness") as witnesses,
        Curator.open(
            zone,
            store,
            meters,
            Large() if zone is BLOCKS else SimulatedNoise(os.getpid()),
            load(folder / "key"),
            [Telling(tell)],
            "simulation",
            now=BEGINS,
            watch=watch,
            witness=witnesses.of(ZONE.id),
        ) as curator,
    ):
        tell("open", spent=curator._ledger.standing.epsilon, t=curator.t)
        while True:
            t = curator.t
            for houses in (*BATCHES, *([[one] for one in REGISTERS.values()] * (zone is BLOCKS))):
                n = len(houses)
                starts, wh = [curator.start_of(t)] * n, [reading(h, t) for h in houses]
                counts = meters.put(ZONE.id, houses, starts, [900] * n, wh)
                assert counts.accepted + counts.duplicate + counts.late == n
                if not counts.late:
                    tell("accepted", t=t, houses=houses)
            curator.run(curator.next_due())


def run_and_kill(
    folder: Path,
    delay: float | None,
    kill_at: tuple[str, int] | None = None,
    after: int = 0,
) -> list[Any]:
    """One child until its death; the lines it told.

    It is killed at a named step, or a delay [s] after it has told so many lines.
    """
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            child(folder, into, kill_at)
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        os._exit(7)
    os.close(into)
    with os.fdopen(out) as lines:
        told = [lines.readline().rstrip("\n") for _ in range(after)]
        if delay is not None:
            time.sleep(delay)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        told += lines.read().split("\n")
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the child stopped by itself"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return [json.loads(line) for line in told if line.endswith("}")]


class Witness:
    """What the world has seen so far, held against the disk after every death."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shown: dict[int, tuple[float, str]] = {}
        self.accepted: set[tuple[int, int]] = set()
        self.opened: list[float] = []
        self.lists: dict[int, tuple[list[float], str]] = {}

    def hear(self, lines: list[Any]) -> None:
        for line in lines:
            if line["what"] == "shown":
                value = (line["rate"], line["head"])
                assert self.shown.setdefault(line["t"], value) == value, "two values for a step"
            elif line["what"] == "list":
                prices = (line["rates"], line["head"])
                assert self.lists.setdefault(line["first"], prices) == prices, "two lists of a day"
            elif line["what"] == "accepted":
                self.accepted |= {(line["t"], house) for house in line["houses"]}
            else:
                self.opened.append(line["spent"])

    def look(self) -> int:
        """Hold the stores against what was seen; the last step published."""
        with open_store(str(self._folder / "ledger.db")) as store:
            found = check(store.records(ZONE.id), verify_signature)
            releases = [r for r in store.records(ZONE.id) if r.kind == "release"]
        assert found.first_bad is None
        stored = {r.body["t"]: (r.body["rate"], r.digest) for r in releases}
        assert len(stored) == len(releases), "a step was published twice"
        for t, value in self.shown.items():
            assert stored[t] == value, "something was shown that the ledger lacks"
        self._look_at_readings(max(stored, default=0))
        return max(stored, default=BEGINS // 900 - 1)

    def _look_at_readings(self, last: int) -> None:
        with MeterStore((self._folder / "place").read_text()) as meters:
            zone = zone_of(self._folder)
            meters.open_zone(*zone.roster)
            kept = {t for t, _ in self.accepted if t > last - 5}  # older ones are purged
            for t in kept:
                interval = meters.get(ZONE.id, t * 900)
                found = {h for step, h in self.accepted if step == t}
                for house in found & set(range(8)):
                    if zone is BLOCKS and REGISTERS.get(house, house) not in found:
                        continue  # its other register may or may not be stored
                    assert interval.present[house], "an accepted reading is lost"
                    assert interval.wh[house] == net(zone, house, t)

    def budget(self) -> float:
        with open_store(str(self._folder / "ledger.db")) as store:
            bodies = [r.body for r in store.records(ZONE.id) if r.kind == "release"]
        paid = {b.get("block", {}).get("first", -b["t"]): b["epsilon"] for b in bodies}
        return float(sum(paid.values()))

    def sizes(self) -> dict[int, set[int]]:
        """The noise of each block of steps, as it was published."""
        found = dict[int, set[int]]()
        with open_store(str(self._folder / "ledger.db")) as store:
            bodies = [r.body for r in store.records(ZONE.id) if r.kind == "release"]
        for body in bodies:
            wh = [min(max(net(BLOCKS, h, body["t"]), -40), 1000) for h in range(8)]
            load = body["load_hat"] - body["offset"]
            found.setdefault(body["block"]["first"], set()).add(load - sum(wh))
        return found


@pytest.fixture(params=["file", "postgres"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, place: Callable[[str], str]) -> Path:
    """With a key, and where the meter store is."""
    create(tmp_path / "key")
    (tmp_path / "place").write_text(place(request.param))
    return tmp_path


@pytest.mark.sampled
def test_killed_at_every_named_step(folder: Path) -> None:
    witness, last = Witness(folder), BEGINS // 900 - 1
    for round_, step in enumerate(STEPS * 2):
        witness.hear(run_and_kill(folder, None, (step, 1 + round_ // len(STEPS))))
        before, last = last, witness.look()
        recorded = step in STEPS[4:] or round_ >= len(STEPS)
        assert last - before == recorded + (round_ >= len(STEPS) and step in STEPS[4:])
    _budget_equals_the_fold(folder, witness)


@pytest.mark.sampled
def test_killed_inside_blocks_of_steps(folder: Path) -> None:
    """At every named step of a block's first, second and last step: one size for each block."""
    (folder / "blocks").touch()
    witness = Witness(folder)
    for round_, step in enumerate(STEPS):
        witness.hear(run_and_kill(folder, None, (step, 1 + round_ % 3)))
        witness.look()
    sizes = witness.sizes()
    assert all(len(one) == 1 for one in sizes.values()), "a block has two sizes"
    assert len(set.union(*sizes.values())) == len(sizes) > 2
    _budget_equals_the_fold(folder, witness)


@pytest.mark.sampled
def test_killed_as_a_list_of_prices_is_published(folder: Path) -> None:
    """Before its record and after it: one list of each day, whole, which a start shows again."""
    (folder / "lists").touch()
    witness = Witness(folder)
    for round_, step in enumerate((*LIST_STEPS, "drawn", *LIST_STEPS[::-1], "drawn")):
        witness.hear(run_and_kill(folder, None, (step, 1 + round_ // 3)))
        witness.look()
        with open_store(str(folder / "ledger.db")) as store:
            records = [record for record in store.records(ZONE.id) if record.kind == "prices"]
        firsts = [record.body["first"] for record in records]
        assert firsts == [BEGINS + (n + 1) * 86_400 for n in range(len(firsts))]
        assert all(len(record.body["rates"]) == 96 for record in records)
        stored = {record.body["first"]: record.digest for record in records}
        for first, (rates, head) in witness.lists.items():
            assert (len(rates), stored[first]) == (96, head), "a list was shown that is not stored"
    assert len(witness.lists) >= 2


@pytest.mark.sampled
def test_killed_at_random_instants(folder: Path) -> None:
    rng = random.Random(11)
    witness = Witness(folder)
    for _ in range(KILLS):
        if rng.random() < 0.25:  # while it opens, or soon after
            witness.hear(run_and_kill(folder, rng.uniform(0.02, 0.45)))
        else:  # counted in what it tells, so that a busy machine makes headway too
            lines, moment = rng.randrange(1, 30), rng.uniform(0.0, 0.02)
            witness.hear(run_and_kill(folder, moment, after=lines))
        witness.look()
    assert len(witness.shown) > KILLS  # it did make headway
    _budget_equals_the_fold(folder, witness)


def _budget_equals_the_fold(folder: Path, witness: Witness) -> None:
    spent = witness.budget()
    witness.hear(run_and_kill(folder, None, ("due", 1)))
    assert witness.opened[-1] == pytest.approx(spent)
    assert witness.opened == sorted(witness.opened)  # no restart forgets what was spent
