"""Exports of utilities, one file of each kind."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "exports"


FILES = {path.stem: path for path in sorted(FOLDER.iterdir())}
