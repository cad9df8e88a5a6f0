"""Load shapes in TOML (docs/files.md), which replace the public one.

A shape comes from published load statistics, or from homes outside of the promise.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator

from hushgrid.files._tables import build, read
from hushgrid.files.toml import TomlFile, display
from hushgrid.model.shape import LoadShape

_BUILD = partial(build, LoadShape, unread=("format", "provenance"))


def load_shape(path: Path | str) -> LoadShape:
    """Read a load shape.

    Args:
        path: The file (TOML) with any of the fields of `LoadShape`; what it leaves out is as in the
            public shape. `provenance` says where its numbers come from.

    Returns:
        The shape.

    Raises:
        FileError: Every mistake of the file, with its line.
    """
    file = TomlFile(Path(path))
    file.check_format()
    shape: Any = read(Annotated[Any, PlainValidator(_BUILD)], file.content, (), file.faults)
    origin = file.content.get("provenance")
    if not isinstance(origin, str) or not origin.strip():
        file.faults.add("provenance", "provenance is not set; say where the numbers come from.")
    elif re.match(r"private\b", origin.strip(), re.IGNORECASE):
        file.faults.add(
            "provenance",
            f"provenance is {display(origin)}; all that the shape enters would reveal something"
            " about these homes: give published numbers.",
        )
    file.check()
    loaded: LoadShape = shape
    return loaded
