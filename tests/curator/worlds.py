"""A small zone as it runs, and a meter store in memory that can be told to fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
from hushgrid.errors import MeterRetryError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.intake.readings import Register
from hushgrid.model.laws import Law, Net
from hushgrid.stores.ledger.writer import create
from hushgrid.stores.meters.columns import Counts, Interval

START = 1_750_000_500  # [UTC s], on a quarter hour
TOKEN = "a-token-for-tests"


def service(
    zone: str = "elm-street",
    houses: int = 6,
    *,
    begins: int = START,
    export: int = 0,
    **changes: Any,
) -> ZoneService:
    """A zone of a few houses, which may export so much [Wh]; meters are named after it."""
    alike = [0] * houses
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=alike)
    laws: list[Law] = [Uniform(500), Uniform(1000)]
    if export:
        laws = [Net(law, Uniform(export), export) for law in laws]
    f = Consumption.by_class(absent=laws[:1], present=laws[1:], class_of=alike)
    limits = Zone.net(zone, [1000] * houses, [export] * houses)
    scenario = Scenario(limits, Tariff(1.0, 62.5), [theta], f)
    own: dict[str, Any] = {"policy": Policy(0.5, horizon=500), "grace": 0, "begins": begins}
    own["scenario"] = scenario
    meters = tuple(f"{zone}-{i}" for i in range(houses))
    return ZoneService(meters=meters, **(own | changes))


def deployment(folder: Path, *zones: ZoneService, **changes: Any) -> Deployment:
    """A process in a folder, with a key of its own."""
    key = folder / "key.pem"
    if not key.exists():
        create(key)
    own: dict[str, Any] = {
        "mode": "simulation",
        "ledger": str(folder / "ledger.db"),
        "meters": str(folder / "meters"),
        "key": key,
    }
    return Deployment(zones=zones, **(own | changes))


class MemoryMeters:
    """The rules of a meter store for whole intervals, without a disk."""

    def __init__(self, *zones: ZoneService) -> None:
        self.rows: dict[tuple[str, int, int], int] = {}
        self.closed: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self.puts, self.fail, self.sizes = 0, None, dict[Any, int]()
        self._zones = {zone.id: (len(zone.meters), zone.seconds) for zone in zones}

    fail: BaseException | None

    def open_zone(
        self, zone: str, meters: Sequence[str], interval: int, registers: Sequence[Register] = ()
    ) -> None:
        assert not registers, "registers are netted by a meter store"
        self._zones[zone] = (len(meters), interval)

    def reopen(
        self,
        zone: str,
        meters: Sequence[str],
        interval: int,
        begins: int = 0,
        registers: Sequence[Register] = (),
    ) -> None:
        self.closed[zone] = max(self.closed.get(zone, 0), begins)
        self.open_zone(zone, meters, interval, registers)

    def put(
        self, zone: str, house: Any, start: Any, duration: Any, wh: Any, *, marked: Any = None
    ) -> Counts:
        if self.fail is not None:
            raise self.fail
        self.puts += 1
        counts = dict.fromkeys(Counts._fields, 0)
        seconds = self._zones[zone][1]
        marks = [False] * len(house) if marked is None else marked
        for h, s, d, w, mark in zip(house, start, duration, wh, marks, strict=True):
            place = (zone, int(h), int(s))
            if int(d) != seconds or int(s) % seconds:
                kind = "malformed"
            elif s < max(self.closed.get(zone, 0), self.begins.get(zone, 0)):
                kind = "late"
            elif place in self.rows:
                kind = "duplicate" if self.rows[place] == w else "conflicting"
            else:
                kind = "accepted"
                self.rows[place] = int(w)
                counts["marked"] += int(mark)
            counts[kind] += 1
        return Counts(**counts)

    def put_each(
        self,
        zone: str,
        house: Any,
        start: Any,
        duration: Any,
        wh: Any,
        *,
        ends: Sequence[int],
        marked: Any = None,
    ) -> list[Counts]:
        found, begin = [], 0
        for end in ends:
            mine = slice(begin, end)
            columns = (column[mine] for column in (house, start, duration, wh))
            marks = None if marked is None else marked[mine]
            found.append(self.put(zone, *columns, marked=marks))
            begin = end
        return found

    def get(self, zone: str, start: int) -> Interval:
        houses = self._zones[zone][0]
        wh = np.array([self.rows.get((zone, h, start), 0) for h in range(houses)], np.int64)
        there = np.array([(zone, h, start) in self.rows for h in range(houses)])
        return Interval(wh, there)

    def begin(self, zone: str, start: int, first: int) -> int:
        before = self.begins.get(zone, -1)
        self.begins[zone] = min(before, start) if before >= first else start
        return self.begins[zone]

    def close(self, zone: str, start: int) -> None:
        self.closed[zone] = max(self.closed.get(zone, 0), start + self._zones[zone][1])

    def last_closed(self, zone: str) -> int | None:
        return self.closed[zone] - self._zones[zone][1] if zone in self.closed else None

    def timeline(self) -> str | None:
        return None

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        starts = {s for z, _, s in self.rows if z == zone and s >= self.closed.get(zone, 0)}
        return tuple(sorted(starts))

    def purge(self, zone: str, before: int) -> int:
        del zone, before
        return 0

    def noise_size(self, zone: str, block: Any, draw: Any) -> int | None:
        if (zone, block) not in self.sizes and draw is not None:
            self.sizes[zone, block] = draw()
        return self.sizes.get((zone, block))

    def erase_noise(
        self,
        zone: str,
        terms: str,
        before: int | None = None,
        *,
        until: int,
        other_terms: bool = False,
    ) -> None:
        del until
        for key in list(self.sizes):
            block = key[1]
            old = other_terms if block.terms != terms else before is None or block.start < before
            if key[0] == zone and old:
                del self.sizes[key]

    def shut(self) -> None:
        pass

    def __enter__(self) -> MemoryMeters:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def unavailable() -> MeterRetryError:
    return MeterRetryError("meter store cannot write (No space left on device); send again.")
