"""Many zones in one process: what one more zone costs at each tick, in memory and in the ledger.

    python -m benchmarks.many ZONES

A process of its own, so that its memory is its own. Zones of 1,000 houses, readings in the embedded
store, one SQLite ledger, secure noise; the houses differ from zone to zone.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks import zones as bench
from benchmarks.measure import Question, Result, apart, sized
from benchmarks.meters import folder
from benchmarks.million import resident
from benchmarks.running import BEGINS, INTERVAL, service
from hushgrid import SecureNoise, Zone
from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import create, load
from hushgrid.stores.meters import open_meters

FEW, MANY, HOUSES, TICKS = sized((25, 100, 1_000, 5), (1, 2, 64, 2))


def zones(many: int) -> list[ZoneService]:
    """Zones with houses of their own."""
    like, kinds, made = service(HOUSES), bench.kinds(HOUSES, 1), []
    for k in range(many):
        zone = Zone(f"zone-{k}", bench.zone(kinds, 2 + k).bound)
        scenario = replace(like.scenario, zone=zone)
        made.append(replace(like, scenario=scenario, meters=tuple(f"{k}-{m}" for m in like.meters)))
    return made


def run(many: int) -> dict[str, float]:
    """Processor time of a tick of all [s], resident memory [MiB], bytes of the ledger a release."""
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        create(place / "key.pem")
        key, noise, ledger = load(place / "key.pem"), SecureNoise(), place / "ledger.db"
        meters = stack.enter_context(open_meters(str(place / "meters")))
        curators = []
        for zone in zones(many):
            store = stack.enter_context(open_store(str(ledger)))
            opened = Curator.open(zone, store, meters, noise, key, (), "production", now=BEGINS)
            curators.append(stack.enter_context(opened))
        seconds, before = [], 0
        for k in range(TICKS):
            start = BEGINS + k * INTERVAL
            house, times = np.arange(HOUSES, dtype=np.int32), np.full(HOUSES, start)
            lengths, wh = np.full(HOUSES, INTERVAL, np.int32), np.full(HOUSES, 100 + k)
            for each in curators:
                meters.put(each.service.id, house, times, lengths, wh)
            begin = time.process_time()
            for each in curators:
                (made,) = each.run(start + INTERVAL)
                assert made.source == "readings"
            seconds.append(time.process_time() - begin)
            before = before or _bytes(curators)
        grown = (_bytes(curators) - before) / (many * (TICKS - 1))
        return {"seconds": min(seconds[1:]), "resident": resident(), "bytes": grown}


def _bytes(curators: list[Curator]) -> int:
    """Of all records as they are exported."""
    return sum(
        len(record.line) + 1
        for each in curators
        for record in each._ledger._store.records(each.service.id)
    )


@cache
def _asked(many: int) -> dict[str, float]:
    return apart(lambda: run(many), "benchmarks.many", str(many))


def tick() -> Result:
    few, found = _asked(FEW)["seconds"], _asked(MANY)["seconds"]
    ratio = found / few / (MANY / FEW)
    return Result(1e3 * found / MANY, "ms of processor time a zone", ratio, "<= 1.15")


def memory() -> Result:
    """What one more zone takes."""
    more = (_asked(MANY)["resident"] - _asked(FEW)["resident"]) / (MANY - FEW)
    return Result(more, "MiB a zone", more)


def record() -> Result:
    found = _asked(MANY)["bytes"]
    return Result(found, "bytes a release", found)


QUESTIONS: dict[str, Question] = {
    "zones_tick": tick,
    "zones_memory": memory,
    "ledger_record": record,
}

if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
