"""Three curators as processes, 30 zones (6 in make test), intervals of 2 s, PostgreSQL: killed at
random, and the database restarted. No zone and interval has two releases, and a block of steps one
size of noise. By the clock, in `make soak`, each has one, not later than four intervals: the zones
of a killed curator are taken after a lease, which lasts one here. On a busy machine an interval
that is four late is left out.

A release counts as recorded when another session reads it in the database. While the server is
away nobody can, and the time runs on all the same.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import LedgerState
from hushgrid.service.ledger.writer import verify_signature
from tests.service.brokers import until
from tests.service.cluster.sharing import TICK, Running, Witness, service_file, wait_for
from tests.service.faults import published
from tests.service.http.test_web import NDJSON, as_ndjson
from tests.services import Postgres

BY_THE_CLOCK = "HUSHGRID_TICKS" in os.environ  # alone on the machine, in make soak
TICKS = int(os.environ.get("HUSHGRID_TICKS", "8"))  # 100 in make soak
SEED = int(os.environ.get("HUSHGRID_SEED", "11"))
SPARED = int(os.environ.get("HUSHGRID_SPARED", "2"))  # ready ones that stay when one is killed
ZONES = [f"zone-{i:02d}" for i in range(30 if BY_THE_CLOCK else 6)]


class Fleet:
    """Three curators; who dies is started again, as a supervisor does."""

    def __init__(self, file: Path, url: str) -> None:
        self.file, self.url = file, url
        self.curators = [Running(file) for _ in range(3)]

    def ready(self) -> list[Running]:
        for one in self.curators:
            if not one.alive():  # it came while the database was away
                said = one.log.read_text()
                assert "cannot be used" in said or "cannot be reached" in said, said
                self._replace(one)
        return [one for one in self.curators if one.ready()]

    def kill(self, one: Running) -> None:
        one.kill()
        self._replace(one)

    def _replace(self, one: Running) -> None:
        self.curators[self.curators.index(one)] = Running(self.file)

    def standings(self) -> dict[str, LedgerState]:
        """Every chain, verified."""
        found = {}
        with open_store(self.url, create=False) as store:
            for zone in ZONES:
                report = check(store.records(zone), verify_signature, {})
                assert report.first_bad is None, report.reason
                found[zone] = report.standings[zone]
        return found

    def end(self) -> None:
        for one in self.curators:
            one.kill()


@pytest.fixture(scope="module")
def fleet(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Fleet, Witness]]:
    url = postgres.fresh()
    folder = tmp_path_factory.mktemp("shared")
    made = Fleet(service_file(folder, url, ZONES, blocks=ZONES[::3]), url)
    try:
        with Witness(url) as witness:
            wait_for(lambda: len(made.ready()) == 3, made.curators)
            wait_for(lambda: len(witness.steps()) == len(ZONES), made.curators)
            yield made, witness
    finally:
        made.end()


class Meters(threading.Thread):
    """Every interval's readings to one of the curators, and to another where that one fails."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._fleet, self._rng, self._stop_now = fleet, rng, threading.Event()
        self.taken: set[int] = set()  # steps of which all readings were accepted
        self.shown: list[dict[str, Any]] = []  # prices that anyone could see

    def run(self) -> None:
        while not self._stop_now.wait(max(TICK - time.time() % TICK, 0.0)):
            t = int(time.time()) // TICK
            rows = [(f"{zone}-{i:04d}", t * TICK, TICK, 100) for zone in ZONES for i in (1, 2, 3)]
            for _ in range(20):
                if self._sent(t, as_ndjson(rows)):
                    break
                time.sleep(0.05)

    def _sent(self, t: int, body: bytes) -> bool:
        one = self._rng.choice(self._fleet.curators)
        try:
            answer = one.web.post("/v1/readings", content=body, headers=NDJSON)
            if answer.status_code != 200:
                return False
            if not answer.json()["late"]:
                self.taken.add(t)
            zone = self._rng.choice(ZONES)
            price = one.web.get("/v1/price", params={"zone": zone})
            if price.status_code == 200:
                self.shown += published(price.json())
        except (httpx.TransportError, RuntimeError):  # killed, or its client closed by that
            return False
        return True

    def end(self) -> None:
        self._stop_now.set()
        self.join(30)


def _harm(fleet: Fleet, postgres: Postgres, rng: random.Random, end: float) -> int:
    """SIGKILLs at random, but `SPARED` are left that are ready; one restart of the database."""
    kills, restart = 0, time.time() + rng.uniform(0.3, 0.7) * (end - time.time())
    due = time.time() + rng.uniform(0, TICK)
    while time.time() < end:
        if restart and time.time() >= restart:
            postgres.restart()
            restart = 0.0
        if time.time() >= due and len(ready := fleet.ready()) > SPARED:
            fleet.kill(rng.choice(ready))
            kills += 1
            due = time.time() + rng.uniform(1, 4) * TICK
        time.sleep(0.02)
    return kills


@pytest.mark.soak
def test_curators_killed_at_random(fleet: tuple[Fleet, Witness], postgres: Postgres) -> None:
    made, witness = fleet
    rng = random.Random(SEED)
    meters = Meters(made, rng)
    first = int(time.time()) // TICK + 1
    due = {t: (t + 1) * TICK for t in range(first, first + TICKS)}
    meters.start()
    kills = _harm(made, postgres, rng, due[first + TICKS - 1])
    assert kills >= TICKS // 4 if BY_THE_CLOCK else kills
    all_of_them = {(zone, t) for zone in ZONES for t in due}
    until(lambda: all_of_them <= set(witness.seen), 6 * TICK)
    meters.end()
    missing = sorted(all_of_them - set(witness.seen))
    late = {key: witness.seen[key][0] - due[key[1]] for key in all_of_them - set(missing)}
    worst = max(late, key=lambda key: late[key])
    if BY_THE_CLOCK:
        assert not missing, f"{len(missing)} are not there, such as {missing[:5]}"
        assert late[worst] <= 4 * TICK, f"{worst} came {late[worst]:.2f} s after it was due"
    standings = made.standings()
    for zone, standing in standings.items():
        counts = Counter(release.t for release in standing.releases)
        assert max(counts.values()) == 1, f"{zone} has two releases of one interval"
        assert not BY_THE_CLOCK or all(counts[t] for t in due), f"{zone} has gaps"
        for release in standing.releases:
            if release.t in meters.taken:
                left_out = f"accepted readings of {zone} were left out: {standing.gaps}"
                assert release.source == "readings", left_out
        blocks = [release.block for release in standing.releases if release.block]
        marks = {(one["number"], one["mark"]) for one in blocks}
        assert len(marks) == len({one["number"] for one in blocks}), "a block has one size of noise"
        assert zone in ZONES[::3] if blocks else not BY_THE_CLOCK or zone not in ZONES[::3]
    assert len(meters.taken) >= (TICKS // 2 if BY_THE_CLOCK else 1), "any of them takes readings"
    _judge_shown(meters.shown, standings)
    print(f"{kills} kills, latest release {late[worst]:.2f} s after it was due")


def _judge_shown(shown: list[dict[str, Any]], standings: dict[str, LedgerState]) -> None:
    recorded = {r.head: r for standing in standings.values() for r in standing.releases}
    assert len(shown) >= (TICKS // 2 if BY_THE_CLOCK else 1)
    for price in shown:
        assert price["head"] in recorded, "something was shown that the ledger lacks"
        assert price["price"] == recorded[price["head"]].rate


def test_every_curator_tells_every_price_and_who_runs_what(fleet: tuple[Fleet, Witness]) -> None:
    made, _ = fleet
    wait_for(lambda: len(made.ready()) == 3, made.curators)

    names = {str(one.port) for one in made.curators}

    def shared_out() -> bool:
        held = [
            Counter(str(zone["curator"]).partition("-")[0] for zone in one.zones())
            for one in made.curators
        ]
        return held == [dict.fromkeys(names, len(ZONES) // 3)] * 3

    wait_for(shared_out, made.curators)  # those that came back have their part

    def newest(one: Running, zone: str) -> str:
        found = one.web.get("/v1/price", params={"zone": zone}).json()
        return str(found["head"])

    for zone in ZONES[:: len(ZONES) // 3]:
        assert until(lambda zone=zone: len({newest(one, zone) for one in made.curators}) == 1)
    figures = made.curators[0].web.get("/metrics").text
    assert "hushgrid_curators 3.0" in figures
    assert f"hushgrid_leases {len(ZONES) / 3}" in figures


@pytest.mark.soak
def test_a_curator_that_was_paused_appends_nothing(fleet: tuple[Fleet, Witness]) -> None:
    made, witness = fleet
    wait_for(lambda: len(made.ready()) == 3, made.curators)
    paused, *others = made.curators
    assert until(lambda: any(e["event"] == "released" for e in paused.events()[-30:]))
    begun = int(time.time()) // TICK
    paused.send(signal.SIGSTOP)
    try:
        time.sleep(3 * TICK)  # its leases are over, others have its zones
    finally:
        paused.send(signal.SIGCONT)
    known = len(paused.events())
    # what it does next begins with the zone opened again, but for the line of a release that was on
    # record when it fell asleep

    def back() -> bool:
        return any(event["event"] == "released" for event in paused.events()[known:])

    wait_for(back, made.curators)
    after = [e for e in paused.events()[known:] if "zone" in e and e.get("t", begun) >= begun]
    after.sort(key=lambda event: event["zone"])
    for zone, events in groupby(after, key=lambda event: event["zone"]):
        told = [event["event"] for event in events if event["event"] in ("zone open", "released")]
        assert told[:1] != ["released"], f"{zone} was published by one who had lost it"
    end = int(time.time()) // TICK - 2
    wait_for(lambda: all(witness.steps()[zone][-1] >= end for zone in ZONES), others)
    for zone, standing in made.standings().items():
        steps = [release.t for release in standing.releases if begun <= release.t <= end]
        assert steps == sorted(set(steps)), f"{zone} has two releases of one interval"
        assert not BY_THE_CLOCK or len(steps) == end + 1 - begun, f"{zone} has gaps"
