"""Clamps of a service file are part of the terms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment
from hushgrid.files.service_file import load_deployment
from tests.curator.curators import Shown, curator
from tests.curator.setups import example
from tests.curator.streets import publish

BEGINS = 1_767_225_600
HOUR = 3600


def deployed(folder: Path, secret: str, epsilon: float, begins: int = BEGINS) -> Deployment:
    text = example(begins)
    for old, new in (
        ('secret = "step"', f'secret = "{secret}"'),
        ("epsilon = 0.5", f"epsilon = {epsilon}\nrho = 0.2"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "service.toml").write_text(text)
    found = load_deployment(folder / "service.toml")
    return replace(found, ledger=str(folder / "ledger.db"))


def test_other_terms_are_still_refused(tmp_path: Path) -> None:
    (zone,) = deployed(tmp_path, "step", 0.05).zones
    other = replace(zone, policy=replace(zone.policy, clamp=(40, 44)), pattern=None)
    with curator(tmp_path, other, Shown(), now=BEGINS) as it:
        publish(it, 1)
    with (
        pytest.raises(LedgerError, match="not those of its ledger"),
        curator(tmp_path, zone, Shown(), now=BEGINS + HOUR / 4),
    ):
        pass
