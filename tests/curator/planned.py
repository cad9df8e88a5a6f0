"""A zone whose blocks and clamp are left to the plan."""

from __future__ import annotations

from pathlib import Path

from hushgrid.files.deployment import ZoneService
from hushgrid.files.service_file import load_deployment
from tests.curator.setups import service_text

POLICY = """
[policy]
secret = "window"
window = "P1D"
epsilon = 1.0
usual = 94.0

[[houses]]
count = {homes}
meters = {{ prefix = "elm-" }}
bound = 2500
"""


def from_file(folder: Path, tariff: tuple[float, float], homes: int = 40) -> ZoneService:
    """A zone whose file names a promise, and leaves blocks and clamp to the plan."""
    text = service_text("2026-01-05T00:00:00Z", tariff=tariff) + POLICY.format(homes=homes)
    (folder / "service.toml").write_text(text)
    (zone,) = load_deployment(folder / "service.toml").zones
    return zone
