"""A folder of a service as an operator has it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hushgrid.cli import main
from hushgrid.curator.clock import SystemClock
from hushgrid.errors import HushgridError
from hushgrid.files.service_file import load_deployment
from hushgrid.operate import serve
from hushgrid.stores.ledger.writer import create
from tests.curator.setups import example
from tests.web.brokers import free_port


class Folder:
    """A service folder of a street of 40 homes, with a free port."""

    def __init__(self, path: Path) -> None:
        self.path, self.file, self.key = path, path / "service.toml", path / "hushgrid.key"
        self.port = free_port()
        text = example(int(time.time()) // 900 * 900)
        self.file.write_text(text.replace("port = 8080", f"port = {self.port}"))
        create(self.key)

    def edit(self, *edits: tuple[str, str]) -> None:
        text = self.file.read_text()
        for old, new in edits:
            assert old in text
            text = text.replace(old, new, 1)
        self.file.write_text(text)

    def serve(self) -> str:
        """What serve says when it does not start, or nothing."""
        stop = threading.Event()
        stop.set()
        try:
            serve(load_deployment(self.file), clock=SystemClock(), stop=stop)
        except (HushgridError, OSError) as error:
            return str(error)
        return ""

    def check(self, *options: str) -> int:
        with pytest.raises(SystemExit) as stopped:
            main(["check", str(self.file), *options])
        return int(stopped.value.code or 0)

    def content(self) -> dict[str, tuple[bytes, int, int]]:
        """Every file, byte for byte, with its mode and time of change."""
        return {
            str(one.relative_to(self.path)): (
                one.read_bytes() if one.is_file() else b"",
                one.stat().st_mode,
                one.stat().st_mtime_ns,
            )
            for one in sorted(self.path.rglob("*"))
        }


PRODUCTION = ('mode = "simulation"', 'mode = "production"')


REAL = (
    ('eta_set_by = "not set yet: this is an example; say who trusts the laws below, and why"',
     'eta_set_by = "the measurement office, after the survey of 2025"'),
    ('{ prefix = "elm-", first = 1 }', '{ prefix = "gk-", first = 1 }'),
    ('{ prefix = "elm-", first = 31 }', '{ prefix = "gk-", first = 31 }'),
    ("leave = 0.03, come = 0.25", "leave = 0.031, come = 0.24"),
)  # fmt: skip
