"""From measured costs to a plan: how many machines does a number of meters need?

    make bench && python -m benchmarks.capacity bench.json --meters 100000000

Costs are of one core, by processor time: what else runs on the machine changes them little. They
are of the machine that made the file; a plan for other machines begins with a `make bench` there.
Each part is filled to half, so that the loss of a machine is carried.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FULL = 0.5  # how far each part is filled
INTERVAL, RUSH = 900, 300  # [s] an interval; the time in which all readings of one arrive
READINGS_A_DAY = 96


class Costs(NamedTuple):
    """What was measured, by the id of its benchmark."""

    arrow: float  # readings a second of processor time, head-ends (50,000 in a body)
    ndjson: float  # the same as NDJSON
    mqtt: float  # messages of 1,000 through a broker
    small: float  # concentrators: 1,000 NDJSON readings in a body
    database: float  # readings/s into PostgreSQL on the same machine, as time passes
    meter_s: float  # [s] of processor time of the tick for one meter more
    meter_mib: float  # [MiB] of memory
    zone_s: float  # [s] of processor time of the tick for one zone more
    zone_mib: float
    record: float  # [bytes] of the ledger for a release
    asks: float  # requests for the price a second of processor time
    listen_s: float  # [s] until the last of 2,000 listeners has a price
    hooks_s: float  # [s] until the last of 1,000 webhooks has it
    batch: float  # readings a second of processor time of a batch on DuckDB


IDS = {
    "arrow": "intake_arrow_50k", "ndjson": "intake_ndjson_50k", "mqtt": "intake_mqtt_1k",
    "small": "intake_ndjson_1k", "database": "meters_postgres_100k", "meter_s": "million_tick",
    "meter_mib": "million_memory", "zone_s": "zones_tick", "zone_mib": "zones_memory",
    "record": "ledger_record", "asks": "web_price", "listen_s": "web_stream_2000",
    "hooks_s": "webhooks_1000", "batch": "batch_linear",
}  # fmt: skip
SCALED = {"meter_s": 1e-6, "meter_mib": 1e-6, "zone_s": 1e-3}


def costs(found: Mapping[str, Mapping[str, float]]) -> Costs:
    """The costs in a bench.json; SystemExit names what is missing."""
    missing = [name for name in IDS.values() if name not in found]
    if missing:
        raise SystemExit(f"the file lacks {', '.join(missing)}; run make bench first.")
    values = {key: found[name]["value"] * SCALED.get(key, 1.0) for key, name in IDS.items()}
    values["batch"] = 1e9 / values["batch"]  # measured in ns a reading
    return Costs(**values)


class Plan(NamedTuple):
    """Cores like the measured ones, for each part of a country's service."""

    zones: int
    rush: float  # readings/s while an interval's readings arrive
    intake: int
    curators: int
    memory_gib: float
    ledger_gib: float  # a day
    prices: int
    batch_hours: float


def plan(of: Costs, meters: int, a_zone: int, subscribers: int) -> Plan:
    """For so many meters in zones of so many each, and subscribers that ask once an interval."""
    zones, rush = math.ceil(meters / a_zone), meters / RUSH
    tick = meters * of.meter_s + zones * of.zone_s
    # prices have to be out within a tenth of the interval
    curators = math.ceil(tick / (INTERVAL / 10) / FULL)
    return Plan(
        zones,
        rush,
        math.ceil(rush / of.arrow / FULL),
        curators,
        (meters * of.meter_mib + zones * of.zone_mib) / 2**10,
        zones * READINGS_A_DAY * of.record / 2**30,
        math.ceil(subscribers / 60 / of.asks / FULL),  # all ask in the first minute
        meters * READINGS_A_DAY / of.batch / 3600,
    )


def text(of: Costs, made: Plan, meters: int, a_zone: int, subscribers: int) -> str:
    """The costs and the plan, as in docs/capacity.md."""
    core = "a second of processor time"
    rows = [
        ("arrow", "readings in over HTTP, Arrow, 50,000 a body", f"{of.arrow / 1e6:.2f} M {core}"),
        ("ndjson", "the same, NDJSON", f"{of.ndjson / 1e6:.2f} M {core}"),
        ("small", "the same, NDJSON, 1,000 a body", f"{of.small / 1e6:.2f} M {core}"),
        ("mqtt", "readings in over MQTT, 1,000 a message", f"{of.mqtt / 1e6:.2f} M {core}"),
        ("database", "readings into PostgreSQL, 100,000 a call", f"{of.database / 1e6:.2f} M/s"),
        ("meter_s", "one meter more, at each tick", f"{of.meter_s * 1e6:.2f} us of processor time"),
        ("meter_mib", "its memory", f"{of.meter_mib * 2**20:.0f} bytes"),
        ("zone_s", "one zone more, at each tick", f"{of.zone_s * 1e3:.1f} ms of processor time"),
        ("zone_mib", "its memory", f"{of.zone_mib:.2f} MiB"),
        ("record", "one release in the ledger", f"{of.record:.0f} bytes"),
        ("asks", "prices asked for", f"{of.asks:,.0f} requests {core}"),
        ("listen_s", "2,000 listeners have a price after", f"{of.listen_s:.2f} s"),
        ("hooks_s", "1,000 webhooks have a price after", f"{of.hooks_s:.2f} s"),
        ("batch", "batch on DuckDB", f"{of.batch / 1e6:.1f} M readings {core}"),
    ]
    lines = ["| part | cost | command |", "|---|---|---|"]
    lines += [
        f"| {part} | {cost} | `python -m benchmarks {IDS[key]}` |" for key, part, cost in rows
    ]
    lines.append("")
    need = [
        ("zones", f"{made.zones:,}"),
        ("readings while they arrive (within 5 min)", f"{made.rush:,.0f}/s"),
        ("cores for intake", f"{made.intake}"),
        ("cores for ticks (prices out within 90 s)", f"{made.curators}"),
        ("memory for ticks, all together", f"{made.memory_gib:.0f} GiB"),
        ("ledger", f"{made.ledger_gib:.1f} GiB a day"),
        (f"cores for {subscribers:,} subscribers that ask in one minute", f"{made.prices}"),
        ("a day again as a batch", f"{made.batch_hours:.1f} hours of a core"),
    ]
    head = f"{meters:,} meters, {a_zone:,} a zone, each part filled to {FULL:.0%}:"
    lines += [head, "", "| part | needs |", "|---|---|", *(f"| {a} | {b} |" for a, b in need)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.capacity",
        description="Costs of a bench.json, and what so many meters need.",
        epilog="example: python -m benchmarks.capacity bench.json --meters 100000000",
    )
    parser.add_argument("bench", type=Path)
    parser.add_argument("--meters", type=int, default=100_000_000)
    parser.add_argument("--a-zone", type=int, default=10_000)
    parser.add_argument("--subscribers", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="the plan as JSON")
    options = parser.parse_args()
    of = costs(json.loads(options.bench.read_text()))
    asked = options.meters, options.a_zone, options.subscribers
    made = plan(of, *asked)
    print(json.dumps(made._asdict()) if options.json else text(of, made, *asked))


if __name__ == "__main__":
    sys.exit(main())
