"""A curator whose file has other terms than the ledger: it begins none, and serves what it can."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from hushgrid import Policy, Tariff
from hushgrid.curator.clock import Clock
from hushgrid.files.deployment import Deployment
from hushgrid.operate.process import Process
from hushgrid.operate.standby import Standby, serve_in_turn
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.fenced import Lease
from tests.curator.worlds import START, deployment, service
from tests.services import Postgres

ELM, OAK = service("elm"), service("oak")
OTHER = replace(OAK, policy=Policy(0.25, horizon=500))


class Stopped:
    """Both clocks of a curator, moved by the test alone."""

    def __init__(self) -> None:
        self.wall, self.steady = float(START), 0.0

    def now(self) -> float:
        return self.wall


@pytest.fixture
def made(postgres: Postgres, tmp_path: Path) -> Deployment:
    """A service of two zones on record, that no curator serves."""
    places = dict.fromkeys(("ledger", "meters", "clients", "vtn"), postgres.fresh())
    made = deployment(tmp_path, ELM, OAK, **places, name="any", standby=True)
    made = replace(made, witness=tmp_path / "witness")
    with ExitStack() as stack:
        standby = curator(stack, made, Stopped())
        assert standby._turn()
        process = Process(made, stack, store=standby.store, witnesses=standby.witnesses)
        process.open(START)
        standby.give()
    return made


def curator(stack: ExitStack, made: Deployment, clock: Stopped) -> Standby:
    standby = Standby(made, stack, clock, lambda: clock.steady)
    standby.lease = standby.store._lease = Lease(beat=1.0, seconds=60.0)
    standby.close()  # no thread
    return standby


def records(made: Deployment) -> dict[str, list[str]]:
    with open_store(made.ledger, create=False) as store:
        return {zone: [record.kind for record in store.records(zone)] for zone in ("elm", "oak")}


def serve(made: Deployment, clock: Clock) -> list[str]:
    """The zones that the next curator serves."""
    served, stop = list[str](), threading.Event()

    def run(process: Process, _: object) -> None:
        served.extend(zone.id for zone in process.deployment.zones)
        stop.set()

    serve_in_turn(made, clock=clock, stop=stop, changed=False, run=run)
    return served


def test_it_serves_the_zones_of_the_same_terms_and_says_where_its_file_differs(
    made: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    before = records(made)
    assert before["oak"] == ["genesis", "tariff", "terms"]
    with caplog.at_level(logging.WARNING), ExitStack() as stack:
        clock = Stopped()
        standby = curator(stack, replace(made, zones=(ELM, OTHER)), clock)
        assert list(standby.differs) == ["oak"]
        assert "differs from the ledger in the promise, the plan;" in standby.differs["oak"]
        assert [one.message for one in caplog.records].count("file differs") == 1
        assert not standby._turn(), "one with the right file comes first"
        clock.steady = 59.0
        assert not standby._turn()
        clock.steady = 60.0
        assert standby._turn()
        assert [zone.id for zone in standby.compare().zones] == ["elm"]
        standby.give()
    assert records(made) == before


def test_what_it_serves(made: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "of", lambda _: Lease(beat=0.05, seconds=2.0))
    before = records(made)
    assert serve(replace(made, zones=(ELM, OTHER)), Stopped()) == ["elm"]
    assert serve(made, Stopped()) == ["elm", "oak"]
    assert records(made) == before, "no terms began"


def test_it_serves_no_zone_of_another_tariff(made: Deployment) -> None:
    """Nobody agreed to it here; the active curator would go on with its own."""
    (oak,) = (zone for zone in made.zones if zone.id == "oak")
    priced = replace(oak, scenario=replace(oak.scenario, tariff=Tariff(2.0, 30.0)))
    with ExitStack() as stack:
        standby = curator(stack, replace(made, zones=(ELM, priced)), Stopped())
        assert list(standby.differs) == ["oak"]
        assert "differs from the ledger in the tariff;" in standby.differs["oak"]


def test_it_takes_no_row_where_all_differ(made: Deployment) -> None:
    with ExitStack() as stack:
        clock = Stopped()
        standby = curator(stack, replace(made, zones=(OTHER,)), clock)
        for steady in (0.0, 60.0, 600.0):
            clock.steady = steady
            assert not standby._turn()


def test_it_notices_terms_that_begin_while_it_stands_by(made: Deployment) -> None:
    with ExitStack() as stack:
        standby = curator(stack, made, Stopped())
        assert not standby.differs
        with psycopg.connect(made.ledger) as link:
            link.execute("UPDATE hushgrid_active SET until = 'infinity'")
        standby._turn()
        assert not standby.differs
        other = replace(made, zones=(ELM, OTHER))
        active = stack.enter_context(ExitStack())
        with psycopg.connect(made.ledger) as link:
            link.execute("UPDATE hushgrid_active SET until = '-infinity'")
        begins = Standby(other, active, Stopped(), begins=True)
        begins.close()
        assert begins._turn()
        process = Process(other, active, store=begins.store, witnesses=begins.witnesses)
        process.open(START, {"oak"})
        standby._turn()
        assert list(standby.differs) == ["oak"]
