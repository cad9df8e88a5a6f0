"""Curators on a database that fails over to a standby without the last records: what any of them
showed is in the ledger afterwards, also where the one that wrote it died as well."""

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
import psycopg
import pytest

from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.operate.process import Process
from hushgrid.operate.standby import Standby as Curator
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.fenced import Lease
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature
from tests.curator.worlds import START, deployment, service
from tests.operate.standby.curators import TICK, Running, service_file, wait_for
from tests.proxy import Proxy
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


def answers(curator: Running) -> bool:
    """Whether it runs, active or standing by."""
    try:
        return curator.web.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


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
        wait_for(lambda: any(one.ready() for one in curators), curators)
        curators.sort(key=lambda one: not one.ready())  # the active one first
        wait_for(lambda: answers(curators[1]), curators)
        shown.more(2)
        standby.hold_back()
        shown.more(4)  # two of each zone at least, which the standby lacks
        time.sleep(TICK / 2)  # the one that stands by has read them: a beat is an eighth
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
    """The standby's row names the paused one, and what the other wrote is lost with it."""
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
        wait_for(lambda: any(one.ready() for one in curators), curators)
        wait_for(lambda: all(answers(one) for one in curators), curators)
        if other.ready():
            paused, other = other, paused
        mine = ZONES[0]
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


LEASE = Lease(beat=1.0, seconds=60.0)


@contextmanager
def curator(folder: Path, url: str, clock: Stopped, zone: ZoneService) -> Iterator[Curator]:
    """A curator on a machine of its own, which does a turn when the test says so."""
    places = dict.fromkeys(("ledger", "meters", "clients", "vtn"), url)
    folder.mkdir()
    made = deployment(folder.parent, zone, **places, name=folder.name, standby=True)
    with ExitStack() as stack:
        standby = Curator(
            replace(made, witness=folder / "witness"), stack, clock, lambda: clock.steady
        )
        standby.lease = standby.store._lease = LEASE
        standby.close()  # no thread: the test renews the row
        yield standby


@contextmanager
def opened(standby: Curator, clock: Stopped) -> Iterator[Process]:
    """The zones of an active curator."""
    with ExitStack() as stack:
        process = Process(
            standby.deployment, stack, store=standby.store, witnesses=standby.witnesses
        )
        process.open(clock.wall)
        yield process


def shown(process: Process, zone: ZoneService) -> dict[int, float]:
    """What it published, by step."""
    return {release.t: release.rate for release in process.history.last(zone.id, 9)}


def refused(curator: Curator) -> bool:
    """Whether the database cannot be used, or the row is another curator's."""
    try:
        return not curator.store.renew()
    except LedgerError:
        return True


def test_a_curator_publishes_nothing_again_that_its_successor_published(
    tmp_path: Path, standby: Standby
) -> None:
    """It is cut off from the database; its successor publishes, and dies with the primary."""
    zone, clock = service("elm"), Stopped()
    n, step = len(zone.meters), START // 900
    with (
        closing(Proxy(standby._primary.port)) as proxy,
        curator(tmp_path / "a", standby.both(first=proxy.port), clock, zone) as first,
        ExitStack() as second_machine,
    ):
        second = second_machine.enter_context(curator(tmp_path / "b", standby.both(), clock, zone))
        assert first._turn()
        with opened(first, clock) as before:
            for at in (START, START + 900):
                before._meters.put(zone.id, range(n), [at] * n, [900] * n, [400] * n)
            clock.wall += 900
            before.turn(clock)
            assert list(shown(before, zone)) == [step]
            assert not second._turn(), "the row is valid"
            standby.hold_back()
            proxy.close()
            clock.wall += 900
            with psycopg.connect(standby._primary.url, autocommit=True) as link:
                link.execute("UPDATE hushgrid_active SET until = clock_timestamp()")
            wait_for(second._turn, [])  # its end has come by the clock of the database
            after = second_machine.enter_context(opened(second, clock))
            after.turn(clock)
            published = shown(after, zone)
            assert max(published) == step + 1
            clock.steady += LEASE.seconds
            second_machine.close()  # it dies with what only its witness has
            standby.take_over()
            wait_for(lambda: refused(first), [])
            before.turn(clock)
            assert step + 1 not in shown(before, zone), "its lease is over by its own clock"
        first.give()
        assert not first._turn(), "it waits for records that others put back"
        clock.steady += LEASE.seconds
        wait_for(first._turn, [])
        clock.wall += 900
        with opened(first, clock) as again:
            again.turn(clock)
            assert step + 1 not in shown(again, zone)
        with open_store(standby.both(), create=False) as store:
            gap = check(store.records(zone.id)).standings[zone.id].gap
    assert gap is not None
    assert gap.first <= step + 1 <= gap.last
