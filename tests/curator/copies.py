"""Copies of a ledger, taken and put back."""

from __future__ import annotations

import shutil
from pathlib import Path

from hushgrid.files.deployment import Deployment
from hushgrid.stores.ledger.sidecar import sidecar_path


def take_copy(made: Deployment) -> None:
    """Copy the ledger as it is."""
    folder = Path(made.ledger).parent
    for end in ("", "-wal"):
        if (path := folder / f"ledger.db{end}").exists():
            shutil.copy(path, folder / f"copy{end}")


def put_back(made: Deployment, *, new_machine: bool) -> None:
    """Put the copy in place, perhaps without what the old machine knew of later records."""
    folder = Path(made.ledger).parent
    for end in ("", "-wal", "-shm"):
        (folder / f"ledger.db{end}").unlink(missing_ok=True)
        if (folder / f"copy{end}").exists():
            (folder / f"copy{end}").rename(folder / f"ledger.db{end}")
    if new_machine:
        shutil.rmtree(made.witness_folder)
        for one in made.zones:
            sidecar_path(Path(made.ledger), one.id).unlink()
