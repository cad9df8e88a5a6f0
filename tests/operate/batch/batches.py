"""Readings in Parquet files, and what the running curator makes of the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.mechanism.noise import Stepwise
from hushgrid.operate.batch._expression import roster_of
from hushgrid.operate.batch.engines import Engine, open_readings
from hushgrid.operate.batch.run import Aggregated, Aggregator, Sums
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import load
from hushgrid.stores.meters import MeterStore
from tests.curator.setups import BEGINS, STAY, reading

Row = tuple[Any, ...]  # meter, start, duration, wh[, received]
STAMP = pa.timestamp("s", "UTC")


def write(path: Path, rows: Iterable[Row], *, start: Any = STAMP, wide: bool = True) -> Path:
    columns = list(zip(*rows, strict=True)) or [[]] * 4
    made = {
        "meter_id": pa.array(columns[0], pa.string()),
        "start_utc": _times(columns[1], start),
        "duration_s": pa.array(columns[2], pa.int64() if wide else pa.int32()),
        "wh": pa.array(columns[3], pa.int64() if wide else pa.int32()),
    }
    if len(columns) > 4:
        made["received_utc"] = _times(columns[4], start)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(made), path)
    return path


def _times(seconds: Sequence[int], kind: Any) -> Any:
    plain = pa.array(seconds, pa.int64())
    return plain if kind == pa.int64() else plain.cast(pa.timestamp("s")).cast(kind)


def aggregated(
    engine: Engine, places: Sequence[Path], zones: Sequence[ZoneService], first: int, end: int
) -> Aggregated:
    readings = open_readings(engine, [str(place) for place in places])
    return Aggregator(engine, readings, roster_of(zones)).over(first, end)


def figures(sums: Sums) -> dict[str, int]:
    names = [name for name in sums.__slots__ if name != "bound"]
    return {name: getattr(sums, name) for name in names}


def bodies(deployment: Deployment, zone: str, kind: str = "release") -> list[dict[str, Any]]:
    with open_store(deployment.ledger, create=False) as store:
        return [dict(record.body) for record in store.records(zone) if record.kind == kind]


def lines(deployment: Deployment, zone: str) -> list[str]:
    with open_store(deployment.ledger, create=False) as store:
        return [record.line for record in store.records(zone)]


def live(
    deployment: Deployment, zone: ZoneService, rows: Sequence[Row], end: int, seed: int
) -> None:
    """The running curator: readings put as they come, every interval ticked when it is due."""
    house = {meter: number for number, meter in enumerate(zone.all_meters)}
    with (
        open_store(deployment.ledger) as store,
        MeterStore(deployment.meters) as meters,
        Curator.open(
            zone,
            store,
            meters,
            Stepwise(seed, zone.id),
            load(deployment.key),
            (),
            deployment.mode,
            now=zone.begins,
        ) as curator,
    ):
        mine = [row for row in rows if row[0] in house]
        if mine:
            names, *columns = zip(*mine, strict=True)
            meters.put(zone.id, [house[name] for name in names], *columns[:3])
        while curator.start_of(curator.t) < end:
            curator.run(curator.next_due())


def mixed(name: str = "elm", n: int = 9, **more: Any) -> ZoneService:
    """Three chains, two models and two classes: houses that differ."""
    stay = np.array(STAY)
    other = np.array([[0.6, 0.4], [0.5, 0.5]])
    alone = OccupancyModel.factored(
        [[0.5, 0.5], [0.9, 0.1]], [[stay, other]], chain_of=[i % 2 for i in range(n)]
    )
    restless = OccupancyModel.factored([[0.3, 0.7]], [[other]], chain_of=[0] * n)
    f = Consumption.by_class(
        absent=[Uniform(300), Uniform(100)],
        present=[Uniform(1000), Uniform(700)],
        class_of=[i % 3 % 2 for i in range(n)],
    )
    scenario = Scenario(
        Zone(name, [1000 + i for i in range(n)]), Tariff(1.0, 2.0), (alone, restless), f
    )
    meters = tuple(f"{name}-{i}" for i in range(n))
    own: dict[str, Any] = {"policy": Policy(0.5, horizon=500), "grace": 0, "begins": BEGINS}
    return ZoneService(scenario, meters=meters, **(own | more))


def rows_of(zone: ZoneService, steps: int, seed: int = 1) -> list[Row]:
    """A day as it is: readings lacking, some sent twice, halves and thirds, far outside bounds."""
    rng, rows = random.Random(seed), []
    for t in range(steps):
        start = BEGINS + 900 * t
        for house, meter in enumerate(zone.all_meters):
            wh, kind = reading(house, t), rng.randrange(12)
            if kind == 0:
                continue
            if kind == 1:
                rows += [(meter, start + 450 * k, 450, wh // 2 + k) for k in range(2)]
            elif kind == 2:  # one third is lacking
                rows += [(meter, start + 300 * k, 300, 7) for k in range(2)]
            else:
                rows.append((meter, start, 900, wh * (10**6 if kind == 3 else 1)))
            if kind == 4:
                rows.append(rows[-1])
            if kind == 5:
                rows.append((meter, start + 1, 900, 5))
    return rows
