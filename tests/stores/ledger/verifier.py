"""The verifier that needs the standard library alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]


SCRIPT = ROOT / "scripts" / "verify_ledger.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_ledger", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPTED = script()
