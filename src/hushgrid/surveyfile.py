"""Time-use surveys from disk: CSV or Parquet of chains, or an installed richardsonpy."""

from __future__ import annotations

import csv
from importlib import resources, util
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.errors import ExtraError, FileError, HushgridError
from hushgrid.files import read_text
from hushgrid.learn.survey import COLUMNS, Survey, survey_of

RICHARDSON = "richardsonpy"


def load_survey(source: Path | str) -> Survey:
    """A survey by path, or the word richardsonpy for the matrices of that package."""
    if str(source) == RICHARDSON:
        return _richardson()
    path = Path(source)
    try:
        return survey_of(_parquet(path) if path.suffix.lower() == ".parquet" else _csv(path))
    except FileError:
        raise
    except HushgridError as error:
        raise FileError(f"{path}: {error}") from None


def _csv(path: Path) -> dict[str, Any]:
    rows = list(csv.DictReader(read_text(path).splitlines()))
    if not rows:
        raise FileError(f"{path} has no rows; give a CSV with a head and chains.")
    return {str(name).strip(): np.array([row[name] for row in rows]) for name in rows[0]}


def _parquet(path: Path) -> dict[str, Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ExtraError(
            "pyarrow is not installed; get it with pip install 'hushgrid[intake]'."
        ) from None
    try:
        table = parquet.read_table(path)
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; give the path of a file.") from None
    except (ArrowException, OSError, ValueError) as error:
        raise FileError(
            f"{path} is not a sound Parquet file ({type(error).__name__}); give another copy."
        ) from None
    return {name: np.array(table[name].to_pylist()) for name in table.column_names}


def _richardson() -> Survey:
    """The active-occupancy matrices of richardsonpy: n residents awake, by steps of 10 minutes.

    A row is from a number of active residents to the next slot's; nobody against somebody is the
    chain, weighted by how often each number holds.
    """
    if util.find_spec(RICHARDSON) is None:
        raise ExtraError(
            "richardsonpy is not installed; get it with pip install 'hushgrid[survey]', or give a"
            " file of chains."
        )
    folder = Path(str(resources.files(RICHARDSON))) / "inputs" / "constants"
    rows: list[tuple[Any, ...]] = []
    for residents in range(1, 6):
        for day in ("wd", "we"):
            states = residents + 1
            matrices = _matrices(folder / f"tpm{residents}_{day}.csv", states)
            share = _numbers(folder / f"occ_start_states_{day}.csv")[:states, residents]
            for slot, a in enumerate(matrices):
                home = np.maximum(share[1:], 1e-12)
                leave = float((home * a[1:, 0]).sum() / home.sum())
                rows.append((residents, day, "active", 10, slot, float(1 - a[0, 0]), leave))
                share = share @ a
    return survey_of(dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=True)))


def _matrices(path: Path, states: int) -> Any:
    """(144, states, states) from lines `slot;from;to 0;to 1;...`, seven of them a slot."""
    table = _numbers(path)
    if table.shape != (144 * 7, 9):
        raise FileError(
            f"{path} does not hold 144 matrices of 7 states; give another version of richardsonpy,"
            " or a file of chains."
        )
    found = table[:, 2:].reshape(144, 7, 7)[:, :states, :states].copy()
    unseen = found.sum(axis=2) == 0  # a number of people that no diary had stays as it is
    found[unseen] = np.eye(states)[np.nonzero(unseen)[1]]
    return found / found.sum(axis=2, keepdims=True)


def _numbers(path: Path) -> Any:
    rows = [line.split(";") for line in read_text(path).splitlines() if line.strip()]
    try:
        return np.array(rows, np.float64)
    except ValueError:
        raise FileError(f"{path} is no table of numbers; install richardsonpy again.") from None
