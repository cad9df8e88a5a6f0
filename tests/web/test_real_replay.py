"""A week of real half-hours through every way in: each interval's load is what a database says.

Data: Smart Grid, Smart City, 50 homes, 2013 (canonical Parquet), a week in which up to five homes
at a time are missing. The oracle is SQL over the same file; it shares no code with ours.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgrid import (
    Consumption,
    Noise,
    OccupancyModel,
    Policy,
    Scenario,
    Tariff,
    Uniform,
    Zone,
    tally,
)
from hushgrid.curator.curator import Curator
from hushgrid.curator.ingest import Delivery, Ingest, Receipt
from hushgrid.files.deployment import ZoneService
from hushgrid.files.readings import batches_of_file
from hushgrid.files.settings import Http, Mqtt
from hushgrid.intake.text import CANONICAL
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.writer import create, verify_signature
from hushgrid.stores.meters import MeterStore
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import Metrics, ZoneStates
from hushgrid.web.http.server import Server
from hushgrid.web.mqtt import MqttReadings
from tests.web.brokers import Broker, until
from tests.web.http.faces import AUTH, DIGEST
from tests.web.messages import send

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed.")

DATA = Path(__file__).parents[2].parent / "shared/data/sgsc/readings_2013_50homes.parquet"
SECONDS, DAY = 1800, 86400
FIRST = 1_359_331_200  # 2013-01-28T00:00:00Z, a Monday
LAST = FIRST + 7 * DAY
STARTS = range(FIRST, LAST, SECONDS)
BOUND = 10_000  # [Wh]; above all readings of these homes

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the data of real homes is not here.")

CLAMPED = """
    select cast(epoch(start_utc) as bigint) as start,
           sum(least(greatest(wh, 0), most))::bigint as load, count(*) as present
    from read_parquet($file) join bounds using (meter_id)
    where epoch(start_utc) >= $first and epoch(start_utc) < $last
    group by start
"""


@dataclass(frozen=True)
class Week:
    """What was measured: the meters, the rows, and the oracle."""

    meters: tuple[str, ...]
    table: pa.Table

    def by_interval(self, bounds: list[int]) -> dict[int, tuple[int, int]]:
        """Load [Wh] and present houses of every interval, as the database adds them up."""
        span = {"file": str(DATA), "first": FIRST, "last": LAST}
        with duckdb.connect() as base:
            base.execute("create table bounds (meter_id varchar, most bigint)")
            pairs = list(zip(self.meters, bounds, strict=True))
            base.executemany("insert into bounds values (?, ?)", pairs)
            return {s: (load, n) for s, load, n in base.execute(CLAMPED, span).fetchall()}

    def parts(self, size: int) -> Iterator[pa.Table]:
        for at in range(0, len(self.table), size):
            yield self.table.slice(at, size)


@pytest.fixture(scope="module")
def week() -> Week:
    table = pq.read_table(DATA)
    start = table["start_utc"].cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_numpy()
    table = table.filter(pa.array((start >= FIRST) & (start < LAST)))
    table = table.take(np.random.default_rng(1).permutation(len(table)))  # in no order at all
    meters = sorted(set(table["meter_id"].to_pylist()), reverse=True)
    return Week(tuple(meters), table)


def zone_of(week: Week) -> ZoneService:
    alike = [0] * len(week.meters)
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=alike)
    f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(2000)], class_of=alike)
    zone = Zone("sgsc", [BOUND] * len(week.meters))
    scenario = Scenario(zone, Tariff(0.01, 0.1), [theta], f)
    policy = Policy(0.5, horizon=len(STARTS))
    return ZoneService(scenario, policy, week.meters, begins=FIRST, seconds=SECONDS, grace=0)


@contextmanager
def store(folder: Path, zone: ZoneService) -> Iterator[MeterStore]:
    with MeterStore(folder / "meters") as meters:
        meters.open_zone(zone.id, zone.meters, zone.seconds)
        yield meters


def by_file(week: Week, ingest: Ingest, folder: Path) -> Receipt:
    """What `hushgrid import` does with a Parquet file."""
    path = folder / "week.parquet"
    pq.write_table(week.table, path)
    return Delivery().take(ingest, batches_of_file(path, CANONICAL, lambda *_: None))


def _posted(ingest: Ingest, bodies: Iterator[bytes], media: str) -> Receipt:
    app = make_app(ingest, ZoneStates(["sgsc"]), Metrics(), Http(tokens=(DIGEST,)))
    server = Server(app, "127.0.0.1", 0)
    server.start()
    total, headers = Receipt(), {"Content-Type": media, **AUTH}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
            for body in bodies:
                answer = client.post("/v1/readings", content=body, headers=headers)
                assert answer.status_code == 200, answer.text
                total += Receipt(*(answer.json()[name] for name in Receipt._fields))
    finally:
        server.stop()
    return total


def by_arrow(week: Week, ingest: Ingest, folder: Path) -> Receipt:
    def bodies() -> Iterator[bytes]:
        for part in week.parts(5000):
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part)
            yield sink.getvalue()

    return _posted(ingest, bodies(), "application/vnd.apache.arrow.stream")


def ndjson(part: pa.Table) -> bytes:
    rows = part.set_column(1, "start_utc", part["start_utc"].cast(pa.timestamp("s", "UTC")))
    texts = ({**row, "start_utc": row["start_utc"].isoformat()} for row in rows.to_pylist())
    return b"".join(json.dumps(text).encode() + b"\n" for text in texts)


def by_ndjson(week: Week, ingest: Ingest, folder: Path) -> Receipt:
    return _posted(ingest, map(ndjson, week.parts(5000)), "application/x-ndjson")


def by_mqtt(week: Week, ingest: Ingest, folder: Path) -> Receipt:
    totals = [Receipt()]
    broker = Broker(folder)
    broker.start()
    at = Mqtt("127.0.0.1", broker.port, readings="hushgrid/+/readings")
    way = MqttReadings(at, ingest, lambda _, receipt: totals.append(totals[-1] + receipt))
    way.start()
    try:
        assert way.listening.wait(60)
        send(broker, *map(ndjson, week.parts(1000)))
        assert until(lambda: sum(totals[-1]) >= len(week.table)), totals[-1]
    finally:
        way.stop()
        broker.stop()
    return totals[-1]


WAYS = (by_file, by_arrow, by_ndjson, by_mqtt)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.sampled
def test_every_way_stores_what_the_database_adds_up(tmp_path: Path, week: Week, way: Any) -> None:
    zone, n = zone_of(week), len(week.meters)
    tight = [100 + 40 * house for house in range(n)]  # cuts many, and each house at its own place
    with store(tmp_path, zone) as meters:
        assert way(week, Ingest([zone], meters), tmp_path) == Receipt(accepted=len(week.table))
        intervals = {start: meters.get(zone.id, start) for start in STARTS}
    for bounds in ([BOUND] * n, tight):
        told = {
            start: (tally(one.wh, bounds).load, int(one.present.sum()))
            for start, one in intervals.items()
        }
        assert told == week.by_interval(bounds)


def test_the_week_is_worth_replaying(week: Week) -> None:
    """Homes are missing, in some intervals several; the tight bounds do cut."""
    free = week.by_interval([BOUND] * 50)
    assert (len(free), len(week.meters)) == (336, 50)
    assert {45, 49, 50} <= {present for _, present in free.values()}
    assert len(week.table) == sum(present for _, present in free.values()) == 16_580


class Seven(Noise):
    """For tests: the load, moved by seven."""

    def draw(self, scale: float) -> int:
        return 7


def test_the_curator_publishes_every_interval_once(tmp_path: Path, week: Week) -> None:
    zone, place = zone_of(week), str(tmp_path / "ledger.db")
    free = week.by_interval([BOUND] * 50)
    with store(tmp_path, zone) as meters, open_store(place) as ledger:
        by_file(week, Ingest([zone], meters), tmp_path)
        key = create(tmp_path / "key.pem")
        opened = Curator.open(zone, ledger, meters, Seven(), key, [], "simulation", now=FIRST)
        with opened as curator:
            made, missing = [], []
            for s in STARTS:
                made += curator.run(s + SECONDS)
                missing.append(curator.status.missing)
        report = check(ledger.records(zone.id), verify_signature, {})
    assert report.first_bad is None, report.reason
    kept = report.standings[zone.id].releases
    assert [one.start for one in kept] == [one.start for one in made] == list(STARTS)
    assert {one.source for one in kept} == {"readings"}
    for one, lost in zip(kept, missing, strict=True):
        load, present = free[one.start]
        assert (one.counts, lost) == ({"houses": 50}, 50 - present)
        if present == 50:
            assert one.load_hat == load + 7
        else:  # who is missing is filled in by the model, never by more than its largest law
            assert load + 7 < one.load_hat <= load + 7 + 2000 * (50 - present)
