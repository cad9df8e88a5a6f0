"""Private models after an interval promise: what they say about its steps, counted in public."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.service_file import load_deployment
from hushgrid.service.border import opening
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import fold
from hushgrid.service.ledger.writer import verify_signature
from tests.service.setups import service_text
from tests.service.test_curator import Shown, curator, everyone, feed

STEP, BEGINS, STEPS = 7200, 1_767_571_200, 12
PRIVATE = '[learned]\nprovenance = "private"\nhomes = 4\ndigest = "same"\n'


def zone(folder: Path, policy: str, leave: float, begins: str, learned: str = "") -> ZoneService:
    text = f"""
{service_text(begins, f"PT{STEP}S")}
[policy]
eta = 1.0
publish = "raw"
horizon = {STEPS}
{policy}
{learned}
[[houses]]
count = 4
bound = 200
chain = "r"
absent = {{ law = "uniform", top = 60 }}
present = {{ law = "uniform", top = 200 }}
meters = ["a", "b", "c", "d"]
[[models]]
name = "m"
[models.chains.r]
home_at_start = 0.6
periods = [{{ from = "00:00", leave = {leave}, come = 0.03 }}]
"""
    (folder / "service.toml").write_text(text)
    (found,) = load_deployment(folder / "service.toml").zones
    return found


def test_the_figure_is_a_bound_and_no_private_model_enters_it(tmp_path: Path) -> None:
    """Each release of the private epoch counts in full, however fast its homes may move."""
    first = zone(tmp_path, 'secret = "interval"\nepsilon = 1.0', 0.02, "2026-01-05T00:00:00Z")
    with curator(tmp_path, first, Shown(), now=first.begins) as it:
        for _ in range(STEPS):
            feed(it, it.t, everyone(first))
            it.run(it.next_due())
        said = max(one.epsilon_any for one in it.releases)
    with open_store(str(tmp_path / "ledger.db")) as store:
        standing = fold(list(store.records("elm")), verify_signature)
    figures = set[str]()
    for leave in (0.02, 0.05, 0.4):
        for begins in ("2026-01-06T00:00:00Z", "2026-01-16T00:00:00Z"):
            after = zone(tmp_path, "epsilon = 0.5", leave, begins, PRIVATE)
            with pytest.raises(LedgerError, match="no later begins within 32 days helps") as why:
                opening(after, standing)
            (figure,) = re.findall(r"--accept-leakage ([\d.]+)\.$", str(why.value))
            figures.add(figure)
    (only,) = figures
    assert float(only) >= said + 0.5 * STEPS
