"""The public names are pinned, load in any order, and no name of a class has two meanings."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import get_origin

import numpy as np
import pytest

import hushgrid
from hushgrid import _numbers as arrays

SOURCE = Path(hushgrid.__file__).parent
NAMES = [
    "Account",
    "Answer",
    "Calendar",
    "Calibration",
    "Calibrator",
    "Case",
    "Consumption",
    "ConsumptionError",
    "Curve",
    "Elasticity",
    "Even",
    "Exact",
    "Exposure",
    "ExtraError",
    "Factored",
    "FeedIn",
    "FileError",
    "Gamma",
    "Histogram",
    "HorizonError",
    "HushgridError",
    "IntakeError",
    "Knowledge",
    "Law",
    "LedgerError",
    "LogNormal",
    "Mechanism",
    "ModelError",
    "Naive",
    "Net",
    "Noise",
    "NoiseError",
    "OccupancyModel",
    "PerStep",
    "Plan",
    "PlanError",
    "Policy",
    "PolicyError",
    "Population",
    "Protected",
    "ReadingError",
    "Release",
    "Scenario",
    "Schedule",
    "SecureNoise",
    "SimulatedNoise",
    "State",
    "Tally",
    "Tariff",
    "Trace",
    "TruncatedNormal",
    "TrustCalibrator",
    "Uniform",
    "Zone",
    "ZoneError",
    "aggregate",
    "compose",
    "cost",
    "house_losses",
    "init",
    "learn",
    "load_zone",
    "look_back",
    "optimal_rate",
    "plan",
    "play",
    "possible_states",
    "posterior_mean",
    "protected",
    "public_rate",
    "schedule",
    "scores",
    "simulate",
    "smallest_scale",
    "step",
    "tally",
    "temporal_leakage",
    "watch",
    "worst_loss",
]

ORDERS = {
    "modules first": "import_all(); print(kinds())",
    "names first": "kinds(); import_all(); print(kinds())",
}
SCRIPT = """
import importlib, pkgutil, sys, hushgrid

def import_all():
    for home in sorted(set(hushgrid._HOMES.values())):
        found = importlib.import_module(home)
        for part in pkgutil.iter_modules(getattr(found, "__path__", ())):
            importlib.import_module(f"{home}.{part.name}")

def kinds():
    return sum(isinstance(getattr(hushgrid, name), type(sys)) for name in hushgrid.__all__)

"""


def test_the_public_names_are_pinned() -> None:
    assert hushgrid.__all__ == sorted(NAMES)
    for name in NAMES:
        assert getattr(hushgrid, name).__name__ == name or name == "Law"


@pytest.mark.parametrize("order", ORDERS)
def test_no_public_name_is_a_module_in_any_order(order: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT + ORDERS[order]], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["0"]


def test_no_two_classes_share_a_name() -> None:
    classes = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "web" / "openadr" / "_generated.py"  # names of the standard
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_array_aliases_are_defined_once() -> None:
    aliases = {name for name, one in vars(arrays).items() if get_origin(one) is np.ndarray}
    assert "Floats" in aliases
    again = [
        f"{path.name}: {target.id}"
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "_numbers.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in aliases
    ]
    assert again == []


def test_a_private_module_is_imported_by_its_own_folder_alone() -> None:
    strangers, seen = [], 0
    for path in SOURCE.rglob("*.py"):
        importer = ".".join(("hushgrid", *path.parent.relative_to(SOURCE).parts, ""))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("hushgrid."):
                for name in node.names:
                    folder, private, _ = f"{node.module}.{name.name}".partition("._")
                    seen += bool(private)
                    if private and not importer.startswith(f"{folder}."):
                        strangers.append((str(path.relative_to(SOURCE)), node.module, name.name))
    assert seen > 100
    assert strangers == []
