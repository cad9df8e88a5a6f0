"""A database that is restarted again and again, by the clock: for make soak alone."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from hushgrid.curator.clock import SystemClock
from hushgrid.files.settings import Http
from hushgrid.operate import serve
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.writer import verify_signature
from hushgrid.stores.meters import open_meters
from tests.curator.worlds import deployment, service
from tests.operate.faults import DIGEST
from tests.services import Postgres
from tests.web.brokers import free_port, until
from tests.web.http.faces import NDJSON, as_ndjson

SECONDS, AWAY, BACK = 2, 6.0, 3.0  # [s] of an interval, without a database, until all is back

pytestmark = pytest.mark.soak  # by the clock


@pytest.mark.parametrize("standby", [False, True])
def test_the_service_is_back_soon_after_its_database(
    tmp_path: Path, postgres: Postgres, standby: bool
) -> None:
    url, now = postgres.fresh(), int(time.time())
    begins = now // SECONDS * SECONDS
    zones = [
        service(name, 3, begins=begins, seconds=SECONDS, early_limit=60) for name in ("elm", "oak")
    ]
    http = Http(port=free_port(), tokens=(DIGEST,))
    stores = {"ledger": url, "meters": url, "clients": url, "vtn": url}
    made = deployment(tmp_path, *zones, http=http, standby=standby, **stores)
    address, stop = f"http://127.0.0.1:{http.port}", threading.Event()
    accepted: set[tuple[str, int]] = set()

    def ready() -> bool:
        try:
            return httpx.get(f"{address}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def heads() -> set[str]:
        prices = (httpx.get(f"{address}/v1/price", params={"zone": zone.id}) for zone in zones)
        return {str(one.json().get("head")) for one in prices}

    def publishes(seen: set[str]) -> bool:
        return not seen & heads()

    def send() -> bool:
        """Readings of the interval that is going on; whether they were accepted."""
        start = int(time.time()) // SECONDS * SECONDS
        rows = [(meter, start, SECONDS, 700) for zone in zones for meter in zone.meters]
        answer = httpx.post(f"{address}/v1/readings", content=as_ndjson(rows), headers=NDJSON)
        if answer.status_code == 200 and not answer.json()["late"]:
            accepted.update((zone.id, start) for zone in zones)
        return answer.status_code == 200

    running = threading.Thread(
        target=serve, args=(made,), kwargs={"clock": SystemClock(), "stop": stop}
    )
    running.start()
    took = []
    try:
        assert until(ready, 30)
        for mode in ("fast", "immediate", "fast"):
            assert until(send, 10)
            postgres.stop(mode)
            end = time.monotonic() + AWAY
            while time.monotonic() < end:
                assert not send()
                time.sleep(0.2)
            postgres.start()  # returns when it accepts connections
            begun = time.monotonic()
            assert until(send, 30)
            assert until(ready, 30)
            took.append(time.monotonic() - begun)
            seen = heads()
            assert until(partial(publishes, seen), 30), "every zone"
    finally:
        stop.set()
        running.join(60)
    assert max(took) < BACK, took
    with open_store(url, create=False) as store, open_meters(url) as meters:
        report = check(
            (one for zone in store.zones() for one in store.records(zone)), verify_signature
        )
        assert report.first_bad is None
        for zone in zones:
            steps = [one.t for one in report.standings[zone.id].releases]
            assert steps == sorted(set(steps))
            meters.open_zone(zone.id, zone.meters, SECONDS)
        for name, start in accepted:
            assert not meters.get(name, start).missing
