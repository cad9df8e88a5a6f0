"""Many clients: what does a delivery cost that comes when the terms of senders are looked up again?

Half of the clients may send readings, each of a meter of its own. The delivery is of one reading.
Time is that of the processor, and the ratio is to a store of 30 clients.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median

import sqlalchemy as sa

from benchmarks.measure import Question, Result
from benchmarks.meters import folder
from benchmarks.running import BEGINS, INTERVAL, meter
from benchmarks.running import service as zone_of
from hushgrid.curator.ingest import Ingest
from hushgrid.intake.readings import Parsed, Readings
from hushgrid.stores.clients import CACHED, ClientStore, Senders
from hushgrid.stores.meters import open_meters

FEW, MANY, HOUSES, TURNS = 30, 30_000, 100, 9


def cost(clients: int) -> float:
    """Processor time of a delivery after `CACHED` seconds [s]."""
    with ExitStack() as stack:
        place, zone, now = stack.enter_context(folder()), zone_of(HOUSES), [0.0]
        store = stack.enter_context(ClientStore(place / "clients.db"))
        with store.begin() as link:  # at once: a client's own transaction each would take minutes
            rows = [
                {"id": f"client-{k}", "scopes": "write_readings" if k % 2 else "write_vens",
                 "secret": "x" * 97, "created": 1} for k in range(clients)
            ]  # fmt: skip
            bound = [{"client": f"client-{k}", "meters": meter(k)} for k in range(1, clients, 2)]
            link.execute(sa.insert(store.tables[0]), rows)
            link.execute(sa.insert(store.tables[1]), bound)
        meters = stack.enter_context(open_meters(str(place / "meters.db")))
        meters.open_zone(zone.id, zone.meters, INTERVAL)
        senders = Senders(store, production=True, steady=lambda: now[0])
        ingest, seconds = Ingest([zone], meters, senders), []
        for k in range(TURNS):
            reading = Readings.of([meter(1)], [BEGINS + k * INTERVAL], [INTERVAL], [1])
            begin = time.process_time()
            receipt = ingest.take(Parsed(reading, 0, ()), sender="client-1")
            seconds.append(time.process_time() - begin)
            assert receipt.accepted == 1
            now[0] += CACHED + 1
    return median(seconds[1:])


def delivery() -> Result:
    many = cost(MANY)
    return Result(1e3 * many, "ms", many / cost(FEW), "<= 1.5")


QUESTIONS: dict[str, Question] = {"clients_30000": delivery}
