"""A street of four homes with prices by the hour, and what its ledger says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import ZoneService
from hushgrid.files.service_file import load_deployment
from hushgrid.files.weeks import placed
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature
from tests.curator.curators import Shown, curator
from tests.curator.setups import example

BEGINS = 1_767_225_600  # 2026-01-01T00:00:00Z, a Thursday
HOUR, DAY = 3600, 86_400
VERIFIER = Path(__file__).parents[2] / "scripts" / "verify_ledger.py"
EDITS = (
    ('secret = "step"', 'secret = "interval"'),
    ("epsilon = 0.5", "epsilon = 1.0"),
    ("\neta = 0.05", "\neta = 1.0"),
    ('interval = "PT15M"', 'interval = "PT1H"'),
    ('meter_interval = "PT15M"', 'meter_interval = "PT1H"'),
    ("count = 30", "count = 3"),
    ("count = 10", "count = 1"),
)


MODELS = """
[[models]]
name = "survey"

[models.chains.workers]
home_at_start = 0.9
periods = [
  { from = "00:00", leave = 0.02, come = 0.1 },
  { from = "07:00", leave = 0.5, come = 0.2 },
  { from = "16:00", leave = 0.1, come = 0.5 },
]

[models.chains."at home"]
home_at_start = 0.9
periods = [
  { from = "00:00", leave = 0.05, come = 0.2 },
  { from = "09:00", leave = 0.3, come = 0.4 },
]
"""
NEVER = tuple(  # occupancy that never changes
    (f"leave = {leave}, come = {come}", "leave = 1e-7, come = 1e-7")
    for leave, come in ((0.02, 0.1), (0.5, 0.2), (0.1, 0.5), (0.05, 0.2), (0.3, 0.4))
)
_FIRST: dict[tuple[tuple[str, str], ...], ZoneService] = {}


def load(folder: Path, begins: int = BEGINS, *more: tuple[str, str]) -> ZoneService:
    """A street of four homes with prices by the hour."""
    text = example(begins).partition("[[models]]")[0] + MODELS
    for old, new in (*EDITS, *more):
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / "service.toml").write_text(text)
    (found,) = load_deployment(folder / "service.toml").zones
    return found


def zone(folder: Path, begins: int = BEGINS, *more: tuple[str, str]) -> ZoneService:
    """The same, read once for all tests and laid over other times."""
    if more not in _FIRST:
        _FIRST[more] = load(folder, BEGINS, *more)
    first = _FIRST[more]
    return placed(first, begins)


def publish(it: Curator, releases: int) -> None:
    """The next intervals with readings of every home."""
    houses = list(range(len(it.service.meters)))
    for _ in range(releases):
        n = len(houses)
        starts = [it.start_of(it.t)] * n
        it._meters.put(it.service.id, houses, starts, [it.service.seconds] * n, [400] * n)
        assert len(it.run(it.next_due())) == 1


def begin_terms(folder: Path, one: ZoneService, releases: int = 24) -> None:
    """Begin it and publish; the first one as well as a later one."""
    again = (folder / "ledger.db").exists()
    with curator(folder, one, Shown(), now=one.begins, new_terms=again) as it:
        publish(it, releases)


def standing(folder: Path) -> LedgerState:
    with open_store(str(folder / "ledger.db"), create=False) as store:
        report = check(store.records("elm-street"), verify_signature, {})
    assert report.first_bad is None
    return report.standings["elm-street"]


def bodies(folder: Path, kind: str = "terms") -> list[dict[str, object]]:
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return [dict(one.body) for one in store.records("elm-street") if one.kind == kind]


def verified(folder: Path) -> None:
    """The export stands for a verifier that knows nothing of this package."""
    with open_store(str(folder / "ledger.db"), create=False) as store:
        text = "".join(record.line + "\n" for record in store.records("elm-street"))
    (folder / "ledger.ndjson").write_text(text)
    command = [sys.executable, str(VERIFIER), str(folder / "ledger.ndjson")]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
