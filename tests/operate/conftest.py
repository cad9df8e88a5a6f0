"""Fixtures of all tests of the commands and the process."""

from __future__ import annotations

from tests.operate.reading_files import file

__all__ = ["file"]
