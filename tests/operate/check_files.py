"""Service files to check."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgrid.cli import main
from hushgrid.stores.ledger.writer import create
from tests.curator.setups import example
from tests.web.brokers import free_port

BEGINS = 1_767_225_600


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def put(folder: Path, *edits: tuple[str, str]) -> Path:
    text = example(BEGINS)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "service.toml").write_text(text.replace("port = 8080", f"port = {free_port()}"))
    if not (folder / "hushgrid.key").exists():
        create(folder / "hushgrid.key")
    return folder / "service.toml"
