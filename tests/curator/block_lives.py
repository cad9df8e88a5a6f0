"""The life of a zone whose noise lasts blocks of steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid import Noise, OccupancyModel, Policy, tally
from hushgrid.curator.gaps import resume_zones
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.weeks import placed
from hushgrid.mechanism.noise import Stepwise
from hushgrid.mechanism.policy import Blocks
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import fold
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.witness import Witnesses
from hushgrid.stores.ledger.writer import verify_signature
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.meters.tables import NOISE
from tests.curator.borders import zone_of
from tests.curator.copies import put_back, take_copy
from tests.curator.curators import FIRST, Shown, curator, everyone, feed
from tests.curator.setups import BEGINS, reading, service
from tests.curator.worlds import deployment
from tests.stores.ledger.verifier import SCRIPTED

VERIFY = SCRIPTED.verify


LENGTHS, LOSSES = (2, 4, 1, 3, 2), (0.3, 0.5, 0.1, 0.4, 0.2)


OPENS = [FIRST + int(n) for n in np.cumsum((0, *LENGTHS[:-1]))]  # first steps of blocks
POLICY = Policy(0.5, horizon=12, schedule=Blocks(LENGTHS, LOSSES))


class Sizes(Noise):
    """Noise that is the size M itself, which differs from block to block."""

    drawn = count(1)

    def draw(self, scale: float) -> int:
        raise AssertionError("no noise of its own")

    def draw_size(self, scale: float, steps: int) -> int:
        return 10_000 * next(self.drawn) + steps

    def draw_within(self, size: int) -> int:
        return size


def blocks(**more: Any) -> ZoneService:
    return service(policy=POLICY, **more)


def standing(folder: Path, zone: ZoneService) -> LedgerState:
    with open_store(str(folder / "ledger.db")) as store:
        return fold(list(store.records(zone.id)), verify_signature)


def go_on(
    folder: Path,
    zone: ZoneService,
    steps: int,
    silent: Callable[[int], bool] = lambda _: False,
    noise: Noise | Stepwise | None = None,
    **more: Any,
) -> tuple[list[ReleaseRecord], Any]:
    """So many further steps by a curator of its own; its last status."""
    made, at = list[ReleaseRecord](), more.pop("now", None)
    if at is None:
        exists = (folder / "ledger.db").exists()
        at = BEGINS if not exists else (standing(folder, zone).reach_step + 1) * 900
    with curator(
        folder, zone, Shown(), now=at, noise=Sizes() if noise is None else noise, **more
    ) as it:
        for _ in range(steps):
            if not silent(it.t):
                feed(it, it.t, everyone(zone))
            made += it.run(it.next_due())
        return made, it.status


MOVES, PI = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([2 / 3, 1 / 3])


THETA = OccupancyModel.factored([PI], [[MOVES]], chain_of=[0, 0])


DAY = Blocks((4, 3, 1, 6, 2, 8), (0.3, 0.2, 0.1, 0.3, 0.2, 0.3))


def street(begins: int, promised: float = 1.0) -> ZoneService:
    """Two homes with prices by the hour and an interval promise, as a file gives it."""
    made = zone_of(THETA, begins, promised, 24, None)
    terms = Policy(promised, horizon=24, schedule=DAY)
    found = replace(
        made, pattern=Pattern(made.scenario, terms), promise=Promise("interval", promised)
    )
    return placed(found, begins)


def truth(
    published: dict[int, list[tuple[int, float]]],
    first: int,
    last: int,
    since: int = 0,
    until: int | None = None,
) -> float:
    """The largest leakage about a step, by the recursion of the proofs; blocks as (step, loss)."""
    law = [PI @ np.linalg.matrix_power(MOVES, t - first) for t in range(first, last + 1)]

    def ahead(s: int, t: int) -> np.ndarray:
        return np.linalg.matrix_power(MOVES, t - s)

    def back(t: int, s: int) -> np.ndarray:
        return (law[s - first][:, None] * ahead(s, t) / law[t - first]).T

    def carried(rows: np.ndarray, a: float) -> float:
        grown = np.log(rows * np.expm1(a) + 1)
        return float((grown.max(axis=0) - grown.min(axis=0)).max())

    each = sorted((min(one)[0], max(one)[0], max(one)[1]) for one in published.values())
    bd, fd = list[float](), list[float]()
    for k, (_, end, e) in enumerate(each):
        bd.append(e + (carried(back(end, each[k - 1][1]), bd[-1]) if k else 0.0))
    for k, (start, _, e) in reversed(list(enumerate(each))):
        after = carried(ahead(start, each[k + 1][0]), fd[0]) if fd else 0.0
        fd.insert(0, e + after)
    found = 0.0
    for t in range(max(first, since), last + 1 if until is None else until):
        own = sum(e for start, end, e in each if start <= t <= end)
        before = [k for k, one in enumerate(each) if one[1] < t]
        later = [k for k, one in enumerate(each) if one[0] > t]
        found = max(
            found,
            own
            + (carried(back(t, each[before[-1]][1]), bd[before[-1]]) if before else 0.0)
            + (carried(ahead(t, each[later[0]][0]), fd[later[0]]) if later else 0.0),
        )
    return found


class Life:
    """A service that is stopped, loses secrets and ledgers, and begins terms; and the truth."""

    def __init__(self, folder: Path, begins: int, promised: float = 1.0) -> None:
        self.promised, self.zone = promised, street(begins, promised)
        self.folder, self.time = folder, begins
        self.first, self.blocks = begins // 3600, dict[int, list[tuple[int, float]]]()
        self.sizes, self.terms = dict[int, set[int]](), 0

    def go_on(self, steps: int, *, silent: bool = False, new_terms: bool = False) -> None:
        with (
            Witnesses(self.folder / "witness") as witnesses,
            curator(
                self.folder, self.zone, Shown(), now=self.time, noise=Sizes(),
                new_terms=new_terms, witness=witnesses.of("elm"),
            ) as it,
        ):  # fmt: skip
            self.terms = it._ledger.standing.terms.seq
            for _ in range(steps):
                if not silent:
                    wh = [reading(h, it.t) for h in (0, 1)]
                    it._meters.put("elm", [0, 1], [it.start_of(it.t)] * 2, [3600] * 2, wh)
                for one in it.run(it.next_due()):
                    if one.source == "readings":
                        self.note(one)
            self.time = it.start_of(it.t)
            self.spent = it._ledger.standing.epsilon

    def note(self, one: ReleaseRecord) -> None:
        key = one.block["first"] * 1000 + self.terms
        self.blocks.setdefault(key, []).append((one.t, 1000 / one.scale))
        wh = np.array([reading(h, one.t) for h in (0, 1)])
        load = tally(wh, self.zone.scenario.zone.bound).load
        self.sizes.setdefault(key, set()).add(one.load_hat - load)

    def lose_sizes(self) -> None:
        with MeterStore(self.folder / "meters") as store, store.open().begin() as link:
            link.execute(NOISE.delete())

    def lose_releases(self, steps: int) -> None:
        """Steps that were published, and a ledger without them on another machine."""
        made = deployment(self.folder, self.zone, key=self.folder / "key")
        take_copy(made)
        self.go_on(steps)
        put_back(made, new_machine=False)
        shutil.rmtree(self.folder / "witness")
        sidecar_path(self.folder / "ledger.db", "elm").unlink()
        self.go_on(1)  # the forecast, since releases may be lost
        (found,) = resume_zones(
            replace(made, witness=self.folder / "witness"), None, self.time, lost_terms=[made]
        )
        assert found.state == "resumed"

    def begin(self, begins: int) -> None:
        """The same terms anew, wherever the last ones are."""
        self.zone = street(begins, self.promised)
        self.go_on(0, new_terms=True)
        self.time = begins

    def judge(self) -> None:
        assert all(len(one) == 1 for one in self.sizes.values()), "a block has two sizes"
        assert len(set.union(*self.sizes.values())) == len(self.sizes), "two blocks share a size"
        last = max(t for one in self.blocks.values() for t, _ in one)
        assert truth(self.blocks, self.first, last) <= self.promised * (1 + 1e-6)
        assert self.spent >= sum(one[0][1] for one in self.blocks.values()) * (1 - 1e-9)
        with open_store(str(self.folder / "ledger.db")) as store:
            lines = [record.line for record in store.records("elm")]
        assert VERIFY([line.encode() + b"\n" if isinstance(line, str) else line for line in lines])[
            0
        ]
