"""Two zones between which a house moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushgrid import Policy
from hushgrid.curator.transfer import move
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature
from tests.curator.curators import Shown, curator, feed
from tests.curator.setups import BEGINS
from tests.curator.setups import service as service_of


def standing(folder: Path, name: str) -> LedgerState:
    with open_store(str(folder / "ledger.db")) as store:
        return check(store.records(name), verify_signature).standings[name]


def two(seconds: int = 900, each: float = 0.5, at: int = BEGINS) -> tuple[ZoneService, ZoneService]:
    """Zone elm, which a house leaves, under some terms; and oak, where it goes."""
    elm = service_of(2, "elm", Policy(each, horizon=96), begins=at, seconds=seconds)
    return elm, service_of(2, "oak", Policy(0.5, horizon=96))


def run_on(folder: Path, made: ZoneService, steps: int, **more: Any) -> None:
    with curator(folder, made, Shown(), now=made.begins, **more) as it:
        for _ in range(steps):
            feed(it, it.t, [1])
            it.run(it.next_due())


def left(folder: Path, *zones: ZoneService) -> int:
    """When the account ended that the first house of elm takes along to oak [UTC s]."""
    where = {"ledger": str(folder / "ledger.db"), "meters": str(folder / "meters")}
    made = Deployment(zones=zones, mode="simulation", key=folder / "key", **where)
    move(made, "elm-0", "elm", "oak", BEGINS + 10**6)
    return standing(folder, "oak").transfers[-1].last
