"""Streets with a house that moves, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from hushgrid import OccupancyModel, Policy
from hushgrid._numbers import Floats
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.weeks import placed
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature
from tests.curator.borders import exact
from tests.curator.curators import Shown, curator, feed
from tests.curator.setups import service as service_of

QUARTER, SLOW, HORIZON = 900, 0.08, 24


STAY = np.array([[1 - SLOW, SLOW], [SLOW, 1 - SLOW]])


def run(folder: Path, one: ZoneService, readings: int, forecasts: int = 0) -> None:
    """Terms: some steps with readings, then some without."""
    with curator(folder, one, Shown(), now=one.begins, new_terms=known(folder, one)) as it:
        for k in range(readings + forecasts):
            if k < readings:
                feed(it, it.t, list(range(len(one.meters))))
            it.run(it.next_due())


def known(folder: Path, one: ZoneService) -> bool:
    if not (folder / "ledger.db").exists():
        return False
    with open_store(str(folder / "ledger.db")) as store:
        return store.head(one.id) is not None


def states(folder: Path) -> dict[str, LedgerState]:
    with open_store(str(folder / "ledger.db")) as store:
        every = [record for zone in store.zones() for record in store.records(zone)]
    report = check(every, verify_signature)
    assert report.first_bad is None
    return dict(report.standings)


def street(name: str, meters: tuple[str, ...], at: int, promise: float | None) -> ZoneService:
    """Homes that come and leave rarely; the secret step, or an interval promise."""
    made = service_of(len(meters), name, Policy(0.4, horizon=HORIZON), begins=at)
    model = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], chain_of=[0] * len(meters))
    made = replace(made, meters=meters, scenario=replace(made.scenario, models=(model,)))
    if promise is None:
        return made
    pattern = Pattern(made.scenario, made.policy)
    made = replace(made, pattern=pattern, promise=Promise("interval", promise, block=QUARTER))
    return placed(made, at)


def said(*zones: LedgerState) -> tuple[Floats, list[int]]:
    """What the prices of zones say about each step of a house in all of them; steps with one."""
    lost = {
        one.t: 1000 / one.scale
        for zone in zones
        for one in zone.releases
        if one.source == "readings"
    }
    steps = range(min(lost), max(lost) + 1)
    losses = [lost.get(t, 0.0) for t in steps]
    return exact([STAY] * len(losses), [0.5, 0.5], losses), [t for t in steps if t in lost]
