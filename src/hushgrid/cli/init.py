"""hushgrid init: a service file that runs, and its key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import say


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write.")] = Path(),
) -> None:
    """Write a commented service file that runs as it is, and the key that signs its ledger.

    Example: hushgrid init my-zone && hushgrid check my-zone/service.toml
    """
    from datetime import UTC, datetime

    from hushgrid.errors import FileError
    from hushgrid.files import make_folder, write_text
    from hushgrid.live.example import KEY_FILE, example, make_key

    make_folder(folder)
    service, key = folder / "service.toml", folder / KEY_FILE
    for path in (service, key):
        if path.exists():
            raise FileError(f"{path} exists already; give another folder, or move it away.")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    written = make_key(key)
    write_text(service, example(int(today.timestamp())))
    say(f"Written:\n  {service}" + (f"\n  {key}" if written else ""), None)
