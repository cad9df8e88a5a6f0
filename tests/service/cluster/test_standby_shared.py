"""Several curators on a database that fails over to a standby without the last records: what any
of them showed is in the ledger afterwards, also where the one that wrote it died as well."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import LedgerState
from hushgrid.service.ledger.writer import verify_signature
from tests.service.cluster.sharing import TICK, Running, service_file, wait_for
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
                    if answer.status_code == 200 and price:
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
