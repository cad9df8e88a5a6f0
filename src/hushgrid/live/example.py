"""The service file that `hushgrid init` writes, and the key beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from importlib.resources import files
from pathlib import Path

KEY_FILE = "hushgrid.key"


def example(begins: int) -> str:
    """A service file whose first interval starts at `begins` [UTC epoch s]."""
    source = files("hushgrid.live").joinpath("example.toml").read_text("utf-8")
    at = datetime.fromtimestamp(begins, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return source.replace("{begins}", at)


def make_key(path: Path) -> bool:
    """A new signing key in a file; False where this build has no ledger to sign."""
    try:
        keys = import_module("hushgrid.live.ledger.keys")
    except ModuleNotFoundError:
        return False
    keys.create(path)
    return True
