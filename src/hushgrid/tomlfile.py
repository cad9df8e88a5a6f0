"""A TOML file with the lines of its keys and the mistakes found in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hushgrid.errors import ConfigError, FileError, Problem
from hushgrid.files import read_text
from hushgrid.lines import line_at, lines_of
from hushgrid.tables import Faults, Table, masked


class TomlFile:
    """The content of a file, and its faults.

    Args:
        path: The file; what it names is relative to its folder.
        source: Its text, where it was read before.
    """

    def __init__(self, path: Path, source: str | None = None) -> None:
        self.path, self.folder = path, path.parent
        self.content: Table = {}
        self.faults = Faults()
        self.unreadable = ""
        self._lines: dict[str, int] = {}
        try:
            source = read_text(path) if source is None else source
        except (FileError, ValueError) as error:  # a null character in a path is a ValueError
            self.unreadable = masked(str(error))
            return
        try:
            self.content = tomllib.loads(source)
            self._lines = lines_of(source)
        except (ValueError, RecursionError) as error:
            at = re.search(r"\(at line (\d+), column \d+\)", str(error))
            self._lines[""] = int(at[1]) if at else source.count("\n") + 1
            reason = re.sub(r" \(at [^)]*\)$", "", str(error)) or "nested too deeply"
            self.faults.add("", f"this is not TOML ({reason}); correct this line.")

    @property
    def broken(self) -> bool:
        """Whether there is nothing to look into."""
        return bool(self.unreadable) or "" in self._lines

    def problems(self) -> list[Problem]:
        """The faults with their lines, in the order of the file."""
        if self.unreadable:
            return [Problem(str(self.path), 1, "", self.unreadable)]
        found = [
            Problem(str(self.path), line_at(self._lines, key), key, message)
            for key, message in self.faults.found
        ]
        return sorted(found, key=lambda problem: problem.line)

    def check(self) -> None:
        """Raise every mistake found so far."""
        if problems := self.problems():
            raise ConfigError(tuple(problems))
