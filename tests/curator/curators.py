"""Curators of small zones, and what they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hushgrid import Noise, SimulatedNoise
from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.writer import create, load
from hushgrid.stores.meters import MeterStore
from tests.curator.setups import BEGINS, reading

FIRST = BEGINS // 900


class Shown:
    """A publisher that remembers, and can be away."""

    def __init__(self) -> None:
        self.releases: list[ReleaseRecord] = []
        self.away = False

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        if self.away:
            raise ConnectionRefusedError
        self.releases.append(release)


@contextmanager
def curator(
    folder: Path,
    zone: ZoneService,
    shown: Shown,
    *,
    now: float = BEGINS,
    new_terms: bool = False,
    noise: Noise | None = None,
    **more: Any,
) -> Iterator[Curator]:
    key = load(folder / "key") if (folder / "key").exists() else create(folder / "key")
    with (
        open_store(str(folder / "ledger.db")) as store,
        MeterStore(folder / "meters") as meters,
        Curator.open(
            zone,
            store,
            meters,
            SimulatedNoise(5) if noise is None else noise,
            key,
            [shown],
            "simulation",
            now=now,
            new_terms=new_terms,
            **more,
        ) as made,
    ):
        yield made


def feed(it: Curator, t: int, houses: list[int]) -> None:
    n = len(houses)
    it._meters.put(
        it.service.id,
        houses,
        [it.start_of(t)] * n,
        [it.service.seconds] * n,
        [reading(h, t) for h in houses],
    )


def everyone(zone: ZoneService) -> list[int]:
    return list(range(len(zone.meters)))


class _Counting(SimulatedNoise):  # type: ignore[misc]
    """Noise that depends on the step alone, however often a process starts."""

    def __init__(self, t: int) -> None:
        self._t = t

    def draw(self, scale: float) -> int:
        k = round(scale * ((self._t * 37 % 19) / 10 - 0.9))
        self._t += 1
        return k
