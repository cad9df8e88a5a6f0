"""A service and its files refuse noise that lasts a block of steps: no store keeps its secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid import HushgridError, PolicyError, load_zone
from hushgrid.mechanism.policy import Blocks
from hushgrid.service.epoch import first_state
from tests.service.setups import service


def test_a_service_refuses_blocks() -> None:
    plain = service()
    steps = plain.policy.horizon
    terms = replace(plain.policy, eta=1.0, schedule=Blocks((steps,), (plain.policy.epsilon,)))
    with pytest.raises(PolicyError, match=r"block_steps of zone .* has 1 blocks; a service"):
        first_state(replace(plain, policy=terms))


def test_a_file_refuses_blocks(tmp_path: Path) -> None:
    text = Path("examples/zone.toml").read_text()
    assert "[policy]\n" in text
    path = tmp_path / "zone.toml"
    for key in ("block_steps = [96]", "block_epsilon = [0.5]"):
        path.write_text(text.replace("[policy]\n", f"[policy]\n{key}\n"))
        with pytest.raises(HushgridError, match=key.partition(" ")[0]):
            load_zone(path)
