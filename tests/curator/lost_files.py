"""Files of a ledger that lose their end."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from hushgrid.files.deployment import Deployment
from hushgrid.stores.ledger.sidecar import sidecar_path
from tests.operate.faults import lose_meters


def ledger_files(made: Deployment) -> list[Path]:
    path = Path(made.ledger)
    return [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]


def save(made: Deployment, name: str) -> Path:
    """A copy of the ledger and of the witness folder."""
    copy = Path(made.ledger).parent / name
    copy.mkdir()
    for path in ledger_files(made)[:2]:
        if path.exists():
            shutil.copy(path, copy / path.name)
    shutil.copytree(made.witness_folder, copy / "witness")
    return copy


def lose(made: Deployment, *what: str) -> None:
    if "witness" in what:
        shutil.rmtree(made.witness_folder)
    if "meters" in what:
        lose_meters(made)
    if "small" in what:
        for one in made.zones:
            sidecar_path(Path(made.ledger), one.id).unlink(missing_ok=True)


def put_back(made: Deployment, copy: Path, *lost: str) -> None:
    """The ledger as it was, without what is lost besides."""
    for path in ledger_files(made):
        path.unlink(missing_ok=True)
        if (copy / path.name).exists():
            shutil.copy(copy / path.name, path)
    lose(made, *lost)


def witness_file(made: Deployment, name: str) -> Path:
    return made.witness_folder / "1" / hashlib.sha256(name.encode()).hexdigest()[:16]
