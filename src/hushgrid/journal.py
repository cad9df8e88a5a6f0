"""Rows of a long comparison on disk, so that it is taken up where it stopped.

One JSON object a line: first the settings, then a row for each day. A line cut off by a crash is
dropped; a journal of other settings is refused, never mixed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hushgrid.errors import FileError
from hushgrid.files import write_text

FORMAT = 2  # of a row; another number where equal settings come to give other figures


class Journal:
    """Rows by promise and day; kept in memory and appended to a file."""

    def __init__(
        self, path: Path, settings: Mapping[str, Any], before: Mapping[str, Any] | None = None
    ) -> None:
        """Open or begin a journal; `before`: the same settings as an earlier version wrote them."""
        self._path, self._rows = path, dict[tuple[float, int], Any]()
        head, *earlier = (
            json.dumps({"format": FORMAT, **one}, sort_keys=True)
            for one in (settings, before)
            if one is not None
        )
        try:
            lines = path.read_text("utf-8").splitlines() if path.exists() else []
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path} cannot be read ({error}); give another folder.") from None
        if lines and lines[0] not in (head, *earlier):
            raise FileError(
                f"{path} holds days of other settings; give another --out, or delete it."
            )
        whole = [one for one in map(_parsed, lines[1:]) if one is not None]
        for one in whole:
            self._rows[one["epsilon"], one["day"]] = one["row"]
        write_text(path, "\n".join([head, *map(json.dumps, whole)]) + "\n")

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, epsilon: float, day: int) -> Any:
        """A row, or None."""
        return self._rows.get((epsilon, day))

    def put(self, epsilon: float, day: int, row: Any) -> None:
        """Keep a row; a process that is killed loses none that was kept."""
        self._rows[epsilon, day] = row
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"epsilon": epsilon, "day": day, "row": row}) + "\n")
        except OSError as error:
            raise FileError(
                f"{self._path} cannot be written ({error}); give a writable folder."
            ) from None


def _parsed(line: str) -> Any:
    try:
        one = json.loads(line)
        return one if {"epsilon", "day", "row"} <= set(one) else None
    except (ValueError, TypeError):
        return None
