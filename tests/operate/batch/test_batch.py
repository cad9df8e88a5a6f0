"""hushgrid batch on DuckDB: the integers, the records, and runs that are broken off."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
from hushgrid.belief.filter import Expectations
from hushgrid.errors import BatchError, LedgerError
from hushgrid.files.deployment import Deployment
from hushgrid.files.zone_file import PricesAhead, PublicSeries
from hushgrid.mechanism.policy import Blocks
from hushgrid.operate.batch._expression import LEAST, roster_of
from hushgrid.operate.batch.engines import Engine, engine_at, open_engine, open_readings
from hushgrid.operate.batch.run import BatchReport, Job, run
from hushgrid.stores.ledger.writer import create
from tests.curator import streets
from tests.curator.setups import BEGINS, example, service, several_meters, two_registers
from tests.curator.worlds import deployment
from tests.operate.batch.batches import (
    Row,
    aggregated,
    bodies,
    figures,
    lines,
    live,
    mixed,
    rows_of,
    write,
)
from tests.stores.meters.meter_oracle import MeterOracle

EXAMPLES = int(os.environ.get("HUSHGRID_EXAMPLES", "8"))  # 25 in make soak

DAY = 7200  # [s] what is aggregated at once here: eight intervals


class Clock:
    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now


@pytest.fixture(autouse=True)
def _short_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgrid.operate.batch.run.CHUNK", DAY)
    monkeypatch.setattr("hushgrid.operate.batch.run.CHUNKS", 1)


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Engine]:
    with engine_at("duckdb?threads=2&memory_limit=1GB") as engine:
        yield engine


def job(made: Deployment, *places: Path, days: int = 1, **more: Any) -> Job:
    own: dict[str, Any] = {"seed": 3, "gaps": "publish"}
    return Job(made, tuple(map(str, places)), BEGINS, BEGINS + days * DAY, **(own | more))


def ran(asked: Job, engine: Engine, now: float = BEGINS + 90 * DAY) -> BatchReport:
    return run(asked, engine, Clock(now))


# ---- the integers


def test_a_stranger_may_say_what_it_likes(tmp_path: Path, duckdb: Engine) -> None:
    """Readings of unknown meters are counted; their sum, beyond 64 bits, is no matter."""
    zone = service(4)
    rows = [("stranger", BEGINS, 900, 2**62 + k) for k in range(3)]
    write(tmp_path / "a.parquet", [*rows, (zone.meters[0], BEGINS, 900, 5)])
    found = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900)
    assert found.unknown == 3
    assert found.sums[zone.id, BEGINS].missing == 3


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_the_integers_of_a_store_in_the_plainest_words(
    tmp_path_factory: Any, duckdb: Engine, data: Any
) -> None:
    """Any readings, any order of files: what the oracle of the meter stores keeps and adds.

    Readings for one time differ in their Wh here only where a copy repeats the first: which of two
    different ones stays is a rule of batches, below.
    """
    v = data.draw(st.sampled_from([0, 40]))  # what each may export
    zone = service(4, export=v)
    times = st.integers(0, 3).map(lambda k: BEGINS + 300 * k)
    wide = data.draw(st.booleans())
    far = [2**62, -(2**62), 2**63 - 1, -(2**63), 2**32] if wide else [2**31 - 1, -(2**31), -1]
    whs = st.one_of(st.integers(-50, 1100), st.sampled_from(far))
    meter = st.sampled_from([*zone.meters, "stranger"])
    asked = st.tuples(meter, times, st.sampled_from([300, 450, 900, 7, 0, -300]))
    kept = data.draw(st.dictionaries(asked, whs, max_size=14))
    rows = [(*key, wh) for key, wh in kept.items()]
    many = data.draw(st.lists(st.sampled_from(rows), max_size=5)) if rows else []
    oracle = MeterOracle(4, 900)
    spans = Counter((m, s // 900, d) for m, s, d, _ in rows if d > 0 and s % d == 0)

    def partial(row: Row) -> bool:
        return row[2] > 0 and spans[row[0], row[1] // 900, row[2]] * row[2] != 900

    # of a house those stay that cover the interval, then the longest
    for row in sorted(rows, key=lambda r: (partial(r), -r[2])):
        if row[0] in zone.meters:
            oracle.put([(zone.meters.index(row[0]), *row[1:])])
    folder = tmp_path_factory.mktemp("rows")
    mixed_up = data.draw(st.permutations(rows + many))
    half = len(mixed_up) // 2
    write(folder / "a.parquet", mixed_up[:half], wide=wide)
    write(folder / "b.parquet", mixed_up[half:], wide=wide)
    found = aggregated(duckdb, [folder], [zone], BEGINS, BEGINS + 1800)
    for k in range(2):
        expected = Expectations(zone.scenario).at(k + 1)
        each = oracle.get(BEGINS + 900 * k)
        load = sum(
            min(max(int(expected[h]) if wh is None else wh + v, 0), 1000 + v)
            for h, wh in enumerate(each)
        )
        made = found.sums[zone.id, BEGINS + 900 * k]
        assert made.load == load
        assert made.missing == each.count(None)
        assert made.clamped == sum(wh is not None and wh > 1000 for wh in each)
    assert found.rows == len(rows) + len(many)
    assert found.unknown == sum(row[0] == "stranger" for row in mixed_up)
    accepted = len(oracle.kept)
    told = sum(s.repeated + s.malformed for s in found.sums.values())
    assert accepted + told + found.unknown == found.rows


def test_segments_hold_houses_that_are_expected_to_consume_the_same() -> None:
    zones = [mixed(), mixed("oak", 200), service(5 * LEAST, "ash")]
    roster = roster_of(zones)
    rows = roster.houses.to_pylist()
    assert [row["meter_id"] for row in rows] == [m for zone in zones for m in zone.meters]
    assert len({row["house"] for row in rows}) == len(rows)
    for number, (zone, part) in enumerate(zip(zones, roster.parts, strict=True)):
        mine = [row for row in rows if row["zone"] == number]
        every = Expectations(zone.scenario)
        for t in (1, 2, 5):
            each, speakers = every.at(t), Expectations(zone.scenario, part.speakers).at(t)
            for house, row in enumerate(mine):
                assert each[house] == speakers[row["house"] // roster.width - part.first]
        assert part.sizes.sum() == len(mine)


def test_expectations_are_those_of_each_houses_own_chain() -> None:
    """As many chains as houses, named crosswise: Pr[home] of house 0 is that of chain 1."""
    theta = OccupancyModel.factored([[1.0, 0.0], [0.0, 1.0]], [[np.eye(2)] * 2], chain_of=[1, 0])
    f = Consumption.by_class(absent=[Uniform(100)], present=[Uniform(1000)], class_of=[0, 0])
    world = Scenario(Zone("z", [1000, 1000]), Tariff(1.0, 2.0), (theta,), f)
    assert Expectations(world).at(3).tolist() == [500, 50]


@pytest.mark.parametrize("wide", [True, False])
def test_a_repeated_reading_below_0_is_0(tmp_path: Path, duckdb: Engine, wide: bool) -> None:
    zone = service(3)
    rows = [(meter, BEGINS, 900, -5) for meter in zone.meters]
    write(tmp_path / "a.parquet", [*rows, rows[0]], wide=wide)
    found = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900)
    made = found.sums[zone.id, BEGINS]
    assert (found.by_house, made.load, made.clamped, made.repeated) == (1, 0, 0, 1)


def test_a_conflict_is_settled_by_what_came_first_then_the_smallest(
    tmp_path: Path, duckdb: Engine
) -> None:
    zone = service(5)
    m, t = zone.meters, BEGINS
    rows = [
        (m[0], t, 900, 500, t + 10), (m[0], t, 900, 40, t + 20),  # the first came first
        (m[1], t, 900, 90, t + 10), (m[1], t, 900, 80, t + 10),  # together: the smallest
        (m[2], t, 450, 30, t + 5), (m[2], t + 450, 450, 30, t + 9), (m[2], t, 900, 7, t + 6),
        (m[3], t, 900, 20, t + 901),  # late, for there is no grace
        (m[4], t, 900, 600, t + 900),
    ]  # fmt: skip
    write(tmp_path / "a.parquet", rows)
    made = aggregated(duckdb, [tmp_path], [zone], t, t + 900).sums[zone.id, t]
    expected = int(Expectations(zone.scenario).at(1)[0])
    assert made.load == 500 + 80 + 60 + expected + 600
    assert (made.missing, made.repeated, made.late) == (1, 3, 1)
    plain = [row[:4] for row in rows]
    write(tmp_path / "a.parquet", plain)
    made = aggregated(duckdb, [tmp_path], [zone], t, t + 900).sums[zone.id, t]
    assert made.load == 40 + 80 + 7 + 20 + 600  # without times of receipt the longest stays
    assert (made.missing, made.repeated, made.late) == (0, 4, 0)


def test_a_short_reading_keeps_no_whole_one_out(tmp_path: Path, duckdb: Engine) -> None:
    zone = service(2)
    rows = [(m, BEGINS, d, wh, BEGINS + at) for m in zone.meters
            for d, wh, at in ((1, 9, 1), (900, 500, 2))]  # fmt: skip
    write(tmp_path / "a.parquet", rows)
    made = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900).sums[zone.id, BEGINS]
    assert (made.load, made.missing, made.repeated) == (1000, 0, 2)


def test_shuffled_repeated_and_split_readings_give_the_same_integers(
    tmp_path: Path, duckdb: Engine
) -> None:
    zones = [mixed(), service(70, "oak")]
    rows = [row for zone in zones for row in rows_of(zone, 8)]
    write(tmp_path / "one" / "a.parquet", rows)
    again = rows + rows[::3]
    random.Random(2).shuffle(again)
    for k in range(5):
        write(tmp_path / "many" / f"part={k}" / "a.parquet", again[k::5], wide=k % 2 == 0)
    one = aggregated(duckdb, [tmp_path / "one"], zones, BEGINS, BEGINS + 7200)
    many = aggregated(duckdb, [tmp_path / "many"], zones, BEGINS, BEGINS + 7200)
    assert one.by_house < many.by_house
    for key, sums in one.sums.items():
        a, b = figures(sums), figures(many.sums[key])
        for name in ("repeated", "malformed"):
            assert a.pop(name) <= b.pop(name)
        assert a == b


def test_a_home_lacks_where_one_of_its_registers_does(tmp_path: Path, duckdb: Engine) -> None:
    """Whole readings, none twice: what needs no second look otherwise."""
    zone = two_registers(service(6, export=400))  # houses 1 and 4
    rows = [(meter, BEGINS, 900, 100) for meter in zone.meters]
    rows += [("elm-1-out", BEGINS, 900, 450)]
    rows += [(meter, BEGINS + 900, 900, 100) for meter in zone.meters]  # and no register
    write(tmp_path / "a.parquet", rows)
    found = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 1800).sums
    first, second = found[zone.id, BEGINS], found[zone.id, BEGINS + 900]
    guess = [int(Expectations(zone.scenario).at(t)[4]) for t in (1, 2)]
    assert (first.missing, first.load) == (1, 4 * 500 + 50 + guess[0])
    assert (second.missing, second.load) == (2, 4 * 500 + 2 * guess[1])


def test_a_home_is_clamped_by_the_sum_of_its_meters(tmp_path: Path, duckdb: Engine) -> None:
    zone = several_meters(service(4, export=400))
    rows = [(meter, BEGINS, 900, 500) for meter in zone.all_meters]
    write(tmp_path / "a.parquet", rows)
    sums = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900).sums[zone.id, BEGINS]
    # 1,500 Wh of house 1 cut to 1,000, 500 + 500 - 500 of house 2; each offset by 400
    assert (sums.missing, sums.load) == (0, 3 * 900 + 1400)


# ---- the records


@pytest.mark.parametrize(
    "kind",
    [
        *("plain", "clamp", "estimate", "export", "registers", "meters", "both ends", "ahead"),
    ],
)
@pytest.mark.sampled
def test_batch_and_running_curator_keep_the_same_records(
    tmp_path: Path, duckdb: Engine, kind: str
) -> None:
    zone = {
        "plain": mixed(),
        "clamp": mixed(policy=Policy(0.5, horizon=500, clamp=(200, 150))),
        "estimate": mixed(policy=Policy(0.5, horizon=500, publish="estimate")),
        "export": service(9, export=40),
        "registers": two_registers(service(9, export=400)),
        "meters": several_meters(service(9, export=400)),
        "both ends": service(9, export=40, policy=Policy(0.5, horizon=500, clamp=((25, 190),))),
        "ahead": mixed(ahead=PricesAhead(1, (BEGINS + 3600) % 86_400 // 60 * 60)),
    }[kind]
    rows = rows_of(zone, 8)
    write(tmp_path / "rows" / "a.parquet", rows)
    own, other = (tmp_path / name for name in ("own", "other"))
    for folder in (own, other):
        folder.mkdir()
    one = deployment(own, zone)
    two = replace(deployment(other, zone), key=one.key)
    made = ran(job(one, tmp_path / "rows"), duckdb)
    ordered = sorted(rows, key=lambda row: (-row[2], row[3]))  # the batch's rule, as an order
    live(two, zone, ordered, BEGINS + DAY, seed=3)
    assert made.intervals == 8
    assert lines(one, zone.id) == lines(two, zone.id)  # digests and signatures too
    assert {body["source"] for body in bodies(one, zone.id)} == {"readings"}
    assert ('"kind":"prices"' in "".join(lines(one, zone.id))) == (kind == "ahead")


def test_batch_reads_the_files_of_covariates(tmp_path: Path, duckdb: Engine) -> None:
    path = tmp_path / "weather.csv"
    path.write_text(f"start_utc,value\n{BEGINS},3.5\n{BEGINS + 2700},4.5\n")
    series = PublicSeries("temperature", 10.0, 8.0, "MeteoSwiss", file=path, max_age=3600)
    policy = Policy(0.5, horizon=500, estimator="filter", covariates=(series.terms,))
    zone = mixed(policy=policy, covariates=(series,))
    rows = rows_of(zone, 8)
    write(tmp_path / "rows" / "a.parquet", rows)
    made = deployment(tmp_path, zone)
    ran(job(made, tmp_path / "rows"), duckdb)
    found = [body["covariates"]["temperature"] for body in bodies(made, zone.id)]
    assert found == [3.5] * 3 + [4.5] * 5


def test_an_interval_without_readings_spends_nothing_by_batch_and_service(
    tmp_path: Path, duckdb: Engine
) -> None:
    """Half of an interval is no reading of it, either."""
    zone = service(6)
    third = BEGINS + 1800
    rows = [row for row in rows_of(zone, 8) if row[1] // 900 != third // 900]
    rows.append((zone.meters[0], third, 450, 5))
    write(tmp_path / "rows" / "a.parquet", rows)
    for folder in (own := tmp_path / "own", other := tmp_path / "other"):
        folder.mkdir()
    one = deployment(own, zone)
    two = replace(deployment(other, zone), key=one.key)
    report = ran(job(one, tmp_path / "rows", gaps="publish"), duckdb)
    live(two, zone, sorted(rows, key=lambda row: (-row[2], row[3])), BEGINS + DAY, seed=3)
    assert report.stopped == {}
    assert lines(one, zone.id) == lines(two, zone.id)
    made = bodies(one, zone.id)
    assert [body["source"] for body in made] == ["readings"] * 2 + ["forecast"] + ["readings"] * 5
    assert (made[2]["epsilon"], made[2]["scale"], made[2]["load_hat"]) == (0, 0, None)
    assert made[2]["counts"] == {"houses": 6}


def test_running_it_again_publishes_nothing_and_asks_no_engine(
    tmp_path: Path, duckdb: Engine
) -> None:
    zone = service()
    write(tmp_path / "rows" / "a.parquet", rows_of(zone, 8))
    made = deployment(tmp_path, zone)
    first = ran(job(made, tmp_path / "rows"), duckdb)
    kept = lines(made, zone.id)
    again = ran(job(made, tmp_path / "rows", seed=8), duckdb)
    assert (first.intervals, first.before) == (8, 0)
    assert (again.intervals, again.before, again.readings) == (0, 8, 0)
    assert lines(made, zone.id) == kept


class Dying(Engine):
    """An engine that dies when it is asked for the nth time."""

    def __init__(self, engine: Engine, at: int) -> None:
        super().__init__(engine.backend)
        self.parquet, self.distinct = engine.parquet, engine.distinct  # type: ignore[method-assign]
        self._at = at

    def put(self, table: Any) -> Any:
        self._at -= 1
        if self._at == 0:
            raise RuntimeError("executor lost with reading 4711")
        return super().put(table)


def test_an_engine_that_dies_is_resumed_without_a_second_draw(
    tmp_path: Path, duckdb: Engine
) -> None:
    """Two days of two zones: killed on the second, run again, the same records as in one go.

    In one zone noise lasts blocks of three steps, and a day of 8 ends inside one.
    """
    blocks = Policy(0.5, horizon=24, schedule=Blocks((3,) * 8, (0.5,) * 8))
    zones = service(), service(4, "oak", policy=blocks)
    rows = [row for zone in zones for row in rows_of(zone, 16)]
    write(tmp_path / "rows" / "a.parquet", rows)
    (tmp_path / "whole").mkdir()
    whole = deployment(tmp_path / "whole", *zones)
    ran(job(whole, tmp_path / "rows", days=2), duckdb)
    other = {"ledger": str(tmp_path / "broken.db"), "meters": str(tmp_path / "broken")}
    made = replace(whole, **other)
    asked = job(made, tmp_path / "rows", days=2)
    with pytest.raises(BatchError, match=r"engine engine failed at readings from .* run the same"):
        ran(asked, Dying(duckdb, 4))  # roster, segments, a day, then
    broken = {zone.id: lines(made, zone.id) for zone in zones}
    assert len(bodies(made, "elm")) == 8
    resumed = ran(asked, duckdb)
    assert (resumed.before, resumed.intervals) == (16, 16)
    for zone in zones:
        found = lines(made, zone.id)
        assert found[: len(broken[zone.id])] == broken[zone.id]
        assert found == lines(whole, zone.id)


def test_days_of_few_houses_are_aggregated_together(
    tmp_path: Path, duckdb: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two days by one question to the engine, and the same records as by two."""
    zone = service()
    write(tmp_path / "rows" / "a.parquet", rows_of(zone, 16))
    (tmp_path / "each").mkdir()
    each = deployment(tmp_path / "each", zone)
    ran(job(each, tmp_path / "rows", days=2), duckdb)
    other = {"ledger": str(tmp_path / "both.db"), "meters": str(tmp_path / "both")}
    both = replace(each, **other)
    monkeypatch.setattr("hushgrid.operate.batch.run.CHUNKS", 7)
    report = ran(job(both, tmp_path / "rows", days=2), Dying(duckdb, 4))  # roster, segments, days
    assert report.intervals == 16
    assert lines(both, zone.id) == lines(each, zone.id)
    monkeypatch.setattr("hushgrid.operate.batch.run._HOUSE_DAYS", 1)  # as with very many houses
    with pytest.raises(BatchError, match="engine engine failed"):
        ran(job(replace(each, ledger=str(tmp_path / "c.db"), meters=str(tmp_path / "c")),
                tmp_path / "rows", days=2), Dying(duckdb, 4))  # fmt: skip


def test_weeks_of_few_houses_follow_each_other(
    tmp_path: Path, duckdb: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a Thursday to the second Saturday after; weeks begin on Sundays at 23:00 UTC."""
    monkeypatch.setattr("hushgrid.operate.batch.run.CHUNK", streets.DAY)
    monkeypatch.setattr("hushgrid.operate.batch.run.CHUNKS", 8)
    zone = streets.zone(tmp_path, streets.BEGINS, ('secret = "interval"', 'secret = "window"'))
    begins = zone.begins
    rows = [
        (meter, begins + 3600 * t, 3600, 400) for meter in zone.all_meters for t in range(16 * 24)
    ]
    write(tmp_path / "rows" / "a.parquet", rows)
    made = deployment(tmp_path, zone)
    asked = replace(job(made, tmp_path / "rows"), first=begins, end=begins + 16 * streets.DAY)
    assert ran(asked, duckdb, begins + 90 * streets.DAY).intervals == 16 * 24
    assert {one["source"] for one in bodies(made, zone.id)} == {"readings"}


def test_a_missing_partition_stops_a_zone_until_it_is_there(tmp_path: Path, duckdb: Engine) -> None:
    zones = service(), service(4, "oak")
    for zone in zones:
        for day in range(2):
            rows = [r for r in rows_of(zone, 16) if (r[1] - BEGINS) // DAY == day]
            if (zone.id, day) != ("elm", 1):
                write(tmp_path / "rows" / f"day={day}" / f"{zone.id}.parquet", rows)
    made = deployment(tmp_path, *zones)
    asked = job(made, tmp_path / "rows", days=2, gaps="stop")
    report = ran(asked, duckdb)
    assert report.stopped == {"elm": BEGINS + DAY}
    assert (len(bodies(made, "elm")), len(bodies(made, "oak"))) == (8, 16)
    late = [r for r in rows_of(zones[0], 16) if r[1] >= BEGINS + DAY]
    write(tmp_path / "rows" / "day=1" / "elm.parquet", late)
    report = ran(asked, duckdb)
    assert (report.stopped, report.intervals, report.before) == ({}, 8, 24)
    assert [body["t"] for body in bodies(made, "elm")] == list(
        range(BEGINS // 900, BEGINS // 900 + 16)
    )


def test_simulated_noise_goes_into_a_simulation_ledger_only(tmp_path: Path, duckdb: Engine) -> None:
    zone = service()
    write(tmp_path / "rows" / "a.parquet", rows_of(zone, 8))
    real = deployment(tmp_path, zone, mode="production")
    with pytest.raises(BatchError, match="seed is for simulated noise"):
        ran(job(real, tmp_path / "rows"), duckdb)
    assert ran(job(real, tmp_path / "rows", seed=None), duckdb).intervals == 8
    assert not any(body["simulated"] for body in bodies(real, zone.id))
    with pytest.raises(LedgerError, match="is for production, not for simulation"):
        ran(job(replace(real, mode="simulation"), tmp_path / "rows"), duckdb)


def test_what_lies_between_is_not_left_out_in_silence(tmp_path: Path, duckdb: Engine) -> None:
    zone = service()
    write(tmp_path / "rows" / "a.parquet", rows_of(zone, 24))
    made = deployment(tmp_path, zone)
    ran(job(made, tmp_path / "rows"), duckdb)
    third = Job(made, (str(tmp_path / "rows"),), BEGINS + 2 * DAY, BEGINS + 3 * DAY, seed=1)
    with pytest.raises(BatchError, match="would never be published"):
        ran(third, duckdb)
    assert ran(replace(third, leave_out=True), duckdb).intervals == 8
    assert len(bodies(made, zone.id)) == 16


# ---- bad input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"end": BEGINS}, "is empty; give a later end"),
        ({"end": BEGINS + 1000}, "inside an interval of zone 'elm'"),
        ({"zones": ("ash",)}, "zone is 'ash'; give some of elm"),
        ({"readings": ("nowhere",)}, "readings at nowhere are not there"),
        ({"readings": ("table:nothing",)}, "engine duckdb failed at table nothing"),
        ({"readings": ()}, "readings is empty"),
    ],
)
def test_a_job_that_cannot_be_run(
    tmp_path: Path, duckdb: Engine, change: dict[str, Any], words: str
) -> None:
    write(tmp_path / "rows" / "a.parquet", rows_of(service(), 2))
    asked = replace(job(deployment(tmp_path, service()), tmp_path / "rows"), **change)
    with pytest.raises(BatchError, match=words):
        ran(asked, duckdb)


def test_an_interval_that_is_not_over_is_not_published(tmp_path: Path, duckdb: Engine) -> None:
    write(tmp_path / "rows" / "a.parquet", rows_of(service(), 2))
    made = deployment(tmp_path, service(), mode="production")
    with pytest.raises(BatchError, match="is not closed yet"):
        ran(job(made, tmp_path / "rows", seed=None), duckdb, now=BEGINS + DAY - 1)


def test_schema_drift_is_bridged_or_named(tmp_path: Path, duckdb: Engine) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    zone = service(4)
    rows = [(m, BEGINS, 900, 10 + k) for k, m in enumerate(zone.meters)]
    kinds = [pa.timestamp("us", "UTC"), pa.int64(), pa.timestamp("ms"), pa.timestamp("s", "UTC")]
    for k, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        write(tmp_path / f"{k}.parquet", [row], start=kind, wide=k % 2 == 0)
    made = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900).sums[zone.id, BEGINS]
    assert (made.load, made.missing) == (46, 0)
    table = pq.read_table(tmp_path / "2.parquet")
    bad = {
        "has no column wh": table.drop_columns("wh"),
        "column wh of .*2.parquet is string; give Wh": table.set_column(
            3, "wh", table["wh"].cast(pa.string())
        ),
        "column start_utc of .*2.parquet is string": table.set_column(
            1, "start_utc", table["start_utc"].cast(pa.string())
        ),
    }
    for words, other in bad.items():
        pq.write_table(other, tmp_path / "2.parquet")
        with pytest.raises(BatchError, match=words):
            open_readings(duckdb, [str(tmp_path)])
    (tmp_path / "2.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BatchError, match=r"2\.parquet is no sound Parquet file"):
        open_readings(duckdb, [str(tmp_path)])


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_fractions_are_rounded_as_the_service_does(
    tmp_path: Path, duckdb: Engine, kind: str
) -> None:
    """Halves to even; what is no number is no reading, whatever a footer says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hushgrid.intake.arrow import parquet_batches
    from hushgrid.intake.readings import collect

    given = [0.5, 1.5, 2.5, 0.1, 7.9, -0.5, -1.5, 3.0, float("nan"), float("inf"), 2e12]
    zone = service(len(given))
    table = pa.table(
        {
            "meter_id": pa.array(zone.meters),
            "start_utc": pa.array([BEGINS] * len(given), pa.timestamp("s", "UTC")),
            "duration_s": pa.array([900] * len(given)),
            "wh": pa.array(given, kind),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    found = collect(parquet_batches((tmp_path / "a.parquet").read_bytes()))
    assert found.readings.wh.tolist() == [0, 2, 2, 0, 8, 0, -2, 3]
    assert found.malformed == 3
    made = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900).sums[zone.id, BEGINS]
    each = int(Expectations(zone.scenario).at(1)[-3:].sum())
    assert (made.load, made.missing) == (15 + each, 3)


def test_the_largest_amount_is_rounded_before_it_is_judged(tmp_path: Path, duckdb: Engine) -> None:
    """10^12 + 0.5 Wh is 10^12, which is a reading."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hushgrid.intake.arrow import parquet_batches
    from hushgrid.intake.readings import collect

    given = [1e12 + 0.5, -1e12 - 0.5, 1e12 + 0.51, -1e12 - 0.51]
    zone = service(len(given))
    table = pa.table(
        {
            "meter_id": pa.array(zone.meters),
            "start_utc": pa.array([BEGINS] * len(given), pa.timestamp("s", "UTC")),
            "duration_s": pa.array([900] * len(given)),
            "wh": pa.array(given),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    found = collect(parquet_batches((tmp_path / "a.parquet").read_bytes()))
    assert (found.readings.wh.tolist(), found.malformed) == ([10**12, -(10**12)], 2)
    made = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900).sums[zone.id, BEGINS]
    assert made.missing == 2


def test_parts_of_a_second_are_malformed_and_nulls_no_readings(
    tmp_path: Path, duckdb: Engine
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    zone = service(4)
    micro = pa.array([BEGINS * 10**6, BEGINS * 10**6 + 1, BEGINS * 10**6], pa.int64())
    made = {
        "meter_id": pa.array(zone.meters[:3]),
        "start_utc": micro.cast(pa.timestamp("us", "UTC")),
        "duration_s": pa.array([900, 900, 900]),
        "wh": pa.array([5, 6, None], pa.int64()),
    }
    pq.write_table(pa.table(made), tmp_path / "a.parquet")
    found = aggregated(duckdb, [tmp_path], [zone], BEGINS, BEGINS + 900)
    sums = found.sums[zone.id, BEGINS]
    assert (sums.missing, sums.malformed, found.rows) == (3, 1, 2)


def test_readings_in_a_table_of_the_engine(tmp_path: Path) -> None:
    zone = service(4)
    write(tmp_path / "a.parquet", [(m, BEGINS, 900, 10) for m in zone.meters])
    with engine_at(f"duckdb://{tmp_path}/own.db") as engine:
        engine.backend.raw_sql(
            f"CREATE TABLE readings AS SELECT * FROM '{tmp_path}/a.parquet'"
        ).fetchall()
        made = aggregated(engine, [Path("table:readings")], [zone], BEGINS, BEGINS + 900)
    assert made.sums[zone.id, BEGINS].load == 40


def test_an_engine_that_is_none() -> None:
    with pytest.raises(BatchError, match="engine is 'exel'; give duckdb, spark:MASTER"):
        open_engine("exel")
    with pytest.raises(BatchError, match="engine duckdb cannot be opened"):
        open_engine("duckdb:///nowhere/at/all.db")


# ---- the command


def batch(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    from hushgrid.cli import main

    with pytest.raises(SystemExit) as left:
        main(["batch", *map(str, words)])
    out, err = capsys.readouterr()
    return int(str(left.value.code)), out, err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """init, a morning of files, batch; what is missing stops it with exit 1; bad words exit 2."""
    file = tmp_path / "service.toml"
    file.write_text(example(BEGINS))
    create(tmp_path / "hushgrid.key")
    meters = [f"elm-{k:04d}" for k in range(1, 41)]
    rows = [(m, BEGINS + 900 * t, 900, 100 + t) for m in meters for t in range(3)]
    write(tmp_path / "rows" / "a.parquet", rows)
    times = ("--from", "2026-01-05T00:00:00Z", "--to", "2026-01-05T01:00:00Z")
    place = ("--readings", tmp_path / "rows")
    code, out, _ = batch(capsys, file, *place, *times, "--seed", 4, "--json", tmp_path / "j")
    assert code == 1
    assert "Zone elm-street stopped: no reading at all for 2026-01-05T00:45:00Z" in out
    write(tmp_path / "rows" / "b.parquet", [(m, BEGINS + 2700, 900, 100) for m in meters[1:]])
    code, out, _ = batch(capsys, file, *place, *times, "--seed", 4, "--json", "-")
    found = json.loads(out)
    assert code == 0
    keys = ("zones", "intervals", "before", "readings", "missing", "stopped")
    assert [found[key] for key in keys] == [1, 1, 3, 39, 1, {}]
    assert found["seconds"] > 0
    assert found["peak_mib"] > 0
    bad = {
        "give --day, --month, or --from and --to": (file, *place),
        "day is '5 May'; give one such as 2026-01-05": (file, *place, "--day", "5 May"),
        "to is 'later'": (file, *place, "--from", "2026-01-05T00:00:00Z", "--to", "later"),
        "'fill' is not one of 'stop', 'publish'": (file, *place, *times, "--gaps", "fill"),
        "engine is 'oracle'": (file, *place, *times, "--engine", "oracle"),
    }
    for words, given_words in bad.items():
        code, out, err = batch(capsys, *given_words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err
    text = file.read_text().replace('meters = { prefix = "elm-", first = 31 }', "")
    file.write_text(text)  # houses without a roster
    code, _, err = batch(capsys, file, *place, *times)
    assert code == 2
    assert "houses[1].meters and meters_file are both unset" in err


def test_months_and_days_are_those_of_utc() -> None:
    from hushgrid.cli.readings import _times

    assert _times("2026-01-05", None, None, None) == (BEGINS, BEGINS + 86_400)
    assert _times(None, "2026-02", None, None) == (1_769_904_000, 1_772_323_200)
    assert _times(None, "2026-12", None, None)[1] == 1_798_761_600  # 2027-01-01T00:00:00Z


def test_hundreds_of_survey_models_and_zones_alike(tmp_path: Path, duckdb: Engine) -> None:
    """Theta of 200 models: batch and curator expect the same of whoever is missing."""
    rng, n = np.random.default_rng(3), 12
    theta = []
    for k in range(200):
        stay = rng.uniform(0.5, 0.95, (1, 3, 2))
        rows = np.stack([np.stack([stay[..., 0], 1 - stay[..., 0]], -1),
                         np.stack([1 - stay[..., 1], stay[..., 1]], -1)], -2)  # fmt: skip
        theta.append(
            OccupancyModel.factored(
                [[0.3, 0.7]] * 3, rows, chain_of=[i % 3 for i in range(n)], name=f"survey {k}"
            )
        )
    zone = service(n, policy=Policy(0.5, horizon=50))
    zone = replace(zone, scenario=replace(zone.scenario, models=tuple(theta)))
    rows = [(m, BEGINS + 900 * t, 900, 10) for t in range(8) for m in zone.meters[t::2]]
    write(tmp_path / "rows" / "a.parquet", rows)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = deployment(tmp_path / "one", zone)
    two = replace(deployment(tmp_path / "two", zone), key=one.key)
    assert len(roster_of([zone]).parts[0].sizes) == 3
    ran(job(one, tmp_path / "rows"), duckdb)
    live(two, zone, rows, BEGINS + DAY, seed=3)
    assert lines(one, zone.id) == lines(two, zone.id)
