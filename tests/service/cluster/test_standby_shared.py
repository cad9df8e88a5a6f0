"""Several curators on a database that fails over to a standby without the last records: what any
of them showed is in the ledger afterwards, also where the one that wrote it died as well."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid.files.deployment import ZoneService
from hushgrid.service.cluster.leases import LeasePace
from hushgrid.service.cluster.process import SharedProcess, Sharing
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import LedgerState
from hushgrid.service.ledger.writer import verify_signature
from tests.proxy import Proxy
from tests.service.cluster.sharing import TICK, Running, service_file, wait_for
from tests.service.worlds import START, deployment, service
from tests.services import Standby, postgres_binaries, replicated

ZONES = ["elm", "oak"]


@pytest.fixture
def standby() -> Iterator[Standby]:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL is not installed: no initdb")
    with replicated() as made:
        yield made


def standings(url: str) -> dict[str, LedgerState]:
    found = {}
    with open_store(url, create=False) as store:
        for zone in ZONES:
            report = check(store.records(zone), verify_signature)
            assert report.first_bad is None, report.reason
            found[zone] = report.standings[zone]
    return found


class Shown:
    """Every price that one of the curators was seen to show, by zone and time."""

    def __init__(self, curators: list[Running]) -> None:
        self.curators, self.prices = curators, dict[str, dict[str, Any]]()

    def look(self) -> int:
        """Ask all of them; how many prices are known."""
        for one in self.curators:
            for zone in ZONES:
                try:
                    answer = one.web.get("/v1/price", params={"zone": zone})
                except (httpx.TransportError, RuntimeError):
                    continue
                for price in (answer.json(), answer.json().get("next")):
                    if answer.status_code == 200 and price and price["head"]:
                        self.prices[price["head"]] = price
        return len(self.prices)

    def more(self, count: int) -> None:
        """Until so many more have come."""
        end = self.look() + count
        wait_for(lambda: self.look() >= end, self.curators)


@pytest.mark.parametrize(
    "dies",
    [
        pytest.param(False, id="all live on", marks=pytest.mark.soak),
        pytest.param(True, id="one dies with the primary"),
    ],
)
@pytest.mark.soak
def test_what_was_shown_is_in_the_ledger_after_a_fail_over(
    tmp_path: Path, standby: Standby, dies: bool
) -> None:
    file = service_file(tmp_path, standby.both(), ZONES)
    curators = [Running(file), Running(file)]
    shown = Shown(curators)
    try:
        wait_for(lambda: all(one.ready() for one in curators), curators)
        wait_for(
            lambda: len({zone["curator"] for zone in curators[0].zones()}) == 2, curators
        )  # one zone each
        shown.more(2)
        standby.hold_back()
        shown.more(4)  # two of each zone at least, which the standby lacks
        time.sleep(TICK / 4)  # the other curator has read them: a beat is an eighth
        if dies:
            curators[0].kill()
        standby.take_over()
        alive = curators[1:] if dies else curators
        shown.curators = alive
        before = max(one.last_t for one in standings(standby.both()).values())
        wait_for(
            lambda: all(one.last_t > before + 3 for one in standings(standby.both()).values()),
            alive,
        )
        shown.look()
    finally:
        for one in curators:
            one.kill()
    found = standings(standby.both())
    recorded = {one.head for standing in found.values() for one in standing.releases}
    lost = [price for head, price in shown.prices.items() if head not in recorded]
    logs = "".join(one.log.read_text() for one in curators)
    assert not lost, f"{lost} of {len(shown.prices)} were shown and are not in the ledger\n{logs}"
    assert "records put back" in logs
    for zone, standing in found.items():
        steps = [one.t for one in standing.releases]
        assert len(steps) == len(set(steps)), zone


@pytest.mark.soak  # test_failover.py has one that is shorter
def test_a_paused_curator_does_not_publish_again_what_another_published_meanwhile(
    tmp_path: Path, standby: Standby
) -> None:
    """The standby's leases name the paused one, and what the other wrote is lost with it."""
    files = []
    for name in "ab":  # machines of their own: neither reads the other's witness
        (tmp_path / name).mkdir()
        files.append(service_file(tmp_path / name, standby.both(), ZONES))
    shutil.copy(tmp_path / "a" / "hushgrid.key", tmp_path / "b" / "hushgrid.key")
    begins = next(x for x in files[0].read_text().splitlines() if x.startswith("begins"))
    text = files[1].read_text().splitlines()
    files[1].write_text("\n".join(begins if x.startswith("begins") else x for x in text))
    paused, other = Running(files[0]), Running(files[1])
    curators = [paused, other]
    try:
        wait_for(lambda: all(one.ready() for one in curators), curators)
        wait_for(lambda: len({zone["curator"] for zone in other.zones()}) == 2, curators)
        own: list[str] = []

        def found_own() -> bool:
            own[:] = [
                str(zone["zone"])
                for zone in other.zones()
                if str(zone["curator"]).startswith(f"{paused.port}-")
            ]
            return bool(own)

        wait_for(found_own, curators)
        mine = own[0]
        Shown(curators).more(2)
        standby.hold_back()
        before = standings(standby.both())[mine].last_t
        paused.send(signal.SIGSTOP)
        wait_for(lambda: standings(standby.both())[mine].last_t > before + 2, [other])
        shown = {one.t: one.head for one in standings(standby.both())[mine].releases}
        other.kill()
        standby.take_over()
        paused.send(signal.SIGCONT)
        wait_for(lambda: standings(standby.both())[mine].last_t > max(shown) + 1, [paused])
        found = standings(standby.both())[mine]
    finally:
        for one in curators:
            one.send(signal.SIGCONT)
            one.kill()
    assert [one.t for one in found.releases if shown.get(one.t, one.head) != one.head] == []
    assert found.gap is not None
    assert found.gap.last >= max(shown)


class Stopped:
    """Both clocks of a curator, moved by the test alone."""

    def __init__(self) -> None:
        self.wall, self.steady = float(START), 0.0

    def now(self) -> float:
        return self.wall


PACE = LeasePace(beat=1.0, lease=60.0)


@contextmanager
def curator(folder: Path, url: str, clock: Stopped, *zones: ZoneService) -> Iterator[SharedProcess]:
    """A curator on a machine of its own, which does a turn when the test says so."""
    places = dict.fromkeys(("ledger", "meters", "clients", "vtn"), url)
    folder.mkdir()
    made = deployment(folder.parent, *zones, **places, name=folder.name, share=True)
    with ExitStack() as stack:
        process = SharedProcess(replace(made, witness=folder / "witness"), stack)
        process._sharing.pace = process._sharing._leases._pace = PACE
        process._sharing._steady = lambda: clock.steady
        process._sharing._stop.set()  # no thread
        process.open(clock.wall, new_epoch=False)
        yield process


def shown(process: SharedProcess, zones: tuple[ZoneService, ...]) -> dict[tuple[str, int], float]:
    """What it published, by zone and step."""
    found = {zone.id: process.history.last(zone.id, 9) for zone in zones}
    return {(zone, one.t): one.rate for zone, some in found.items() for one in some}


def turn(process: SharedProcess, clock: Stopped) -> Sharing:
    """One turn that reads the leases."""
    process._sharing.look_soon()
    process.turn(clock)
    return process._sharing


def test_a_curator_publishes_nothing_again_that_its_successor_published(
    tmp_path: Path, standby: Standby
) -> None:
    """It gives one zone back and is cut off; within a lease the other one and the primary die."""
    zones, clock = (service("elm"), service("oak")), Stopped()
    with (
        closing(Proxy(standby._primary.port)) as proxy,
        curator(tmp_path / "a", standby.both(first=proxy.port), clock, *zones) as first,
        curator(tmp_path / "b", standby.both(), clock, *zones) as second,
    ):
        for zone in zones:
            for at in (START, START + 900):
                n = len(zone.meters)
                second._meters.put(zone.id, range(n), [at] * n, [900] * n, [400] * n)
        clock.wall += 900
        turn(first, clock)
        clock.steady += PACE.settled
        turn(first, clock)
        assert len(shown(first, zones)) == 2, "it has both zones"
        standby.hold_back()
        turn(second, clock)
        clock.steady += PACE.settled
        turn(first, clock)
        given = {zone.id for zone in zones} - first._sharing.ready
        assert len(given) == 1
        proxy.close()
        turn(first, clock)
        wait_for(lambda: turn(second, clock).seen.living == {second._sharing.me}, [])
        assert second.board.waiting() == [], "for so long all curators stay ready"
        clock.wall += 900
        clock.steady += PACE.lease / 2
        turn(second, clock)
        published = shown(second, zones)
        standby.take_over()
        wait_for(lambda: turn(first, clock).still, [])
        assert first._sharing.lapses == 1, "only when it began"
        clock.steady += PACE.lease + 1  # all wait so long for records that others put back
        turn(first, clock)
        again = shown(first, zones)
        with open_store(standby.both(), create=False) as store:
            gaps = {zone.id: check(store.records(zone.id)).standings[zone.id].gap for zone in zones}
    t = START // 900 + 1
    assert {key: again.get(key, rate) for key, rate in published.items()} == published
    assert {zone for zone, step in published if step == t} == given, "at once what is given back"
    assert {zone for zone, step in again if step == t} == set(gaps) - given
    assert {zone for zone, gap in gaps.items() if gap is not None} == given
