"""Surveys, learned models and recorded days on disk.

A survey is a CSV or Parquet file of chains, or the installed package richardsonpy. A learned model
is a folder with theta.json, zone.toml or service.toml, and model.json; model.json (format
1) holds what decoding and validation need (hidden states, laws, daily scores)
and no reading, and is for the utility only where its models are private. A recorded day (format
`hushgrid-trace/1`, docs/audit.md) is one JSON object a line: a header, every release (public), then
the truth of every step (secret, simulations only); cut after its releases it is a public trace.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources, util
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid._numbers import from_json, rules_of, to_json
from hushgrid.adversary.attack import Recording, Truth
from hushgrid.errors import ExtraError, FileError, HushgridError
from hushgrid.files.results import read_text, write_text
from hushgrid.intake.arrow import arrow
from hushgrid.learning.em import Design, Fit
from hushgrid.learning.evaluation import PublishedGroup
from hushgrid.learning.habits import COLUMNS, Habits, Survey, stationary, survey_of
from hushgrid.mechanism.release import Release

# ---- surveys

RICHARDSON = "richardsonpy"


def load_survey(source: Path | str) -> Survey:
    """Read a time-use survey.

    Args:
        source: CSV or Parquet file of chains, or "richardsonpy" for the matrices of that package.

    Returns:
        The survey.

    Raises:
        FileError: If the file cannot be read or is no survey.
    """
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
    arrow()
    from pyarrow import ArrowException, parquet

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

    A row is from a number of active residents to the next slot's. The chain is between none and at
    least one, weighted by how often each number occurs.
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
    matrices = table[:, 2:].reshape(144, 7, 7)[:, :states, :states].copy()
    empty = matrices.sum(axis=2) == 0  # a number of people that no diary had stays as it is
    matrices[empty] = np.eye(states)[np.nonzero(empty)[1]]
    return matrices / matrices.sum(axis=2, keepdims=True)


def _numbers(path: Path) -> Any:
    try:
        return np.loadtxt(read_text(path).splitlines(), delimiter=";", ndmin=2)
    except ValueError:
        raise FileError(f"{path} is no table of numbers; install richardsonpy again.") from None


# ---- learned models

MODEL_FORMAT = 1
FILE = "model.json"
_KEYS = (
    *("zone", "houses", "log_likelihood", "provenance", "seconds"),
    *("time_zone", "starts", "law", "bound", "prototypes", "homes"),
)


def save_learned(folder: Path, content: dict[str, Any]) -> Path:
    """Write model.json of a learned model.

    Args:
        folder: Folder of the model.
        content: As `hushgrid.report.learn.learned_content` gives it.

    Returns:
        The file written.
    """
    return write_text(folder / FILE, json.dumps({"format": MODEL_FORMAT, **content}) + "\n")


def load_learned(path: Path | str) -> dict[str, Any]:
    """Read model.json of a learned model.

    Args:
        path: Its folder, or the file.

    Returns:
        Its content, with all required keys.

    Raises:
        FileError: If the file cannot be read, has another format or lacks a key.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON ({error}); give a folder of hushgrid learn.") from None
    version = content.get("format") if isinstance(content, dict) else None
    if type(version) is not int or version != MODEL_FORMAT:
        raise FileError(
            f"{path} has format {version!r}; give a folder whose {FILE} has format {MODEL_FORMAT},"
            " as hushgrid learn writes it."
        )
    missing = [key for key in _KEYS if key not in content]
    if missing:
        raise FileError(f"{path} lacks {missing[0]!r}; learn the model again.")
    return dict(content)


def published_groups(content: dict[str, Any]) -> tuple[PublishedGroup, ...]:
    """Published chains and laws of every prototype.

    Args:
        content: Content of model.json.

    Returns:
        One group for each prototype.
    """
    groups = []
    for prototype in content["prototypes"]:
        a = np.array(prototype["transition"], np.float64)
        chain = Habits(a, stationary(a), str(content.get("prior", "learned")))
        starts = tuple(int(hour) for hour in content["starts"])
        seasons = tuple(tuple(map(int, months)) for months in content.get("seasons", ()))
        groups.append(
            PublishedGroup(
                chain,
                prototype["absent"],
                tuple(prototype["present"]),
                starts,
                prototype["homes"],
                tuple(prototype.get("empty", ())),
                seasons,
            )
        )
    return tuple(groups)


def hidden_fit(content: dict[str, Any], design: Design) -> Fit:
    """Hidden models of every prototype, for decoding new readings.

    Args:
        content: Content of model.json.
        design: Describes the steps of the readings.

    Returns:
        A fit with one model for each prototype; its statistics are zero.
    """
    hidden = [model["hidden"] for model in content["prototypes"]]
    k = len(hidden)
    natural = np.array([model["natural"] for model in hidden])
    transition = np.array([model["transition"] for model in hidden])
    zeros = np.zeros(k)
    counts = np.array([model["seen"] for model in hidden])
    return Fit(
        design=replace(design, moves=transition.mean(axis=0)),
        initial=np.array([model["initial"] for model in hidden]),
        transition=transition,
        natural=natural,
        parameters=natural,
        edges=np.array([model["edges"] for model in hidden]),
        counts=counts,
        means=np.zeros_like(counts),
        moves=np.zeros_like(transition),
        sums=np.zeros((*counts.shape, natural.shape[-1])),
        log_likelihood=zeros,
        readings=zeros.astype(np.int64),
        iterations=zeros.astype(np.int64),
        converged=zeros == 0,
        rising=np.zeros((0, k)),
        ordered=zeros == 0,
    )


# ---- recorded days

TRACE_FORMAT = "hushgrid-trace/1"
SECRET = "the lines below hold the truth of a simulation: occupancy and readings, never published"
_HEADER: dict[str, type] = {
    **dict.fromkeys(("zone", "digest", "config"), str),
    **dict.fromkeys(("day", "offset", "seed", "steps", "houses"), int),
    "truth": bool,
}
_RULES = rules_of(Release)
_REQUIRED = {name for name, rule in _RULES.items() if not rule.optional} | {"noise"}


def save_trace(path: Path, recording: Recording) -> Path:
    """Write a recorded day.

    Args:
        path: The file.
        recording: The day; without truth only the public part is written.

    Returns:
        The file written.
    """
    truth = recording.truth
    header = {
        "format": TRACE_FORMAT,
        "zone": recording.zone,
        "digest": recording.digest,
        "config": recording.config,
        "day": recording.day,
        "offset": recording.offset,
        "seed": recording.seed,
        "steps": len(recording.releases),
        "houses": truth.occupancy.shape[1] if truth else 0,
        "truth": truth is not None,
    }
    lines: list[dict[str, Any]] = [header]
    lines += [{"release": to_json(release)} for release in recording.releases]
    if truth is not None:
        lines.append({"secret": SECRET})
        for t, (occupancy, readings) in enumerate(
            zip(truth.occupancy, truth.readings, strict=True), 1
        ):
            at_home = "".join(map(str, occupancy.tolist()))
            lines.append({"t": t, "occupancy": at_home, "readings": readings.tolist()})
    return write_text(path, "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines))


def is_trace(path: Path) -> bool:
    """Whether a file begins as a trace does.

    Args:
        path: The file.

    Returns:
        True if so; False also where it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(64).startswith(f'{{"format": "{TRACE_FORMAT}"'.encode())
    except OSError:
        return False


def load_trace(path: Path | str) -> Recording:
    """Read a recorded day.

    Args:
        path: The file.

    Returns:
        The day.

    Raises:
        FileError: If the file is no trace; names the first bad line.
    """
    path = Path(path)
    lines = [_object(path, n, text) for n, text in enumerate(read_text(path).splitlines(), 1)]
    header = _checked_header(path, lines)
    steps = header["steps"]
    if len(lines) < 1 + steps:
        raise _bad(path, len(lines) + 1, f"is missing, but the header promises {steps} releases")
    releases = tuple(
        _release(path, t + 1, line, t, header) for t, line in enumerate(lines[1 : 1 + steps], 1)
    )
    truth = _truth(path, lines, header) if header["truth"] and len(lines) > 1 + steps else None
    if not header["truth"] and len(lines) > 1 + steps:
        raise _bad(path, 2 + steps, "is beyond the last release")
    fields = {name: header[name] for name in ("config", "day", "offset", "seed")}
    return Recording(header["zone"], header["digest"], releases, truth, **fields)


def _object(path: Path, n: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad(path, n, "is not JSON") from None
    if not isinstance(line, dict):
        raise _bad(path, n, "is no JSON object")
    return line


def _checked_header(path: Path, lines: list[dict[str, Any]]) -> dict[str, Any]:
    if not lines or lines[0].get("format") != TRACE_FORMAT:
        raise FileError(
            f"{path} is no trace; give a {TRACE_FORMAT} file, as simulate --trace writes."
        )
    header = lines[0]
    for name, kind in _HEADER.items():
        if type(header.get(name)) is not kind or (kind is int and header[name] < 0):
            raise _bad(path, 1, f"lacks or misstates {name}")
    return header


def _release(
    path: Path, n: int, line: Mapping[str, Any], t: int, header: Mapping[str, Any]
) -> Release:
    body = line.get("release")
    if not isinstance(body, dict) or not _REQUIRED <= set(body) <= set(_RULES):
        raise _bad(path, n, "is no release with exactly its fields")
    for name, value in body.items():
        if not _RULES[name].fits(value):
            raise _bad(path, n, f"has a {name} that cannot be")
    values = from_json(Release, body)
    if values["t"] != t:
        raise _bad(path, n, f"is of step {values['t']} where step {t} is due")
    for name in ("zone", "digest"):
        if values[name] != header[name]:
            raise _bad(path, n, f"is of another {name} than the header's")
    return Release(**values)


def _truth(path: Path, lines: list[dict[str, Any]], header: Mapping[str, Any]) -> Truth:
    steps, houses = header["steps"], header["houses"]
    first = 2 + steps  # the line that warns
    if "secret" not in lines[first - 1]:
        raise _bad(path, first, "is not the one that marks what follows as secret")
    rows = lines[first:]
    if len(rows) != steps:
        raise _bad(path, first + min(len(rows), steps) + 1, f"is not one of {steps} steps of truth")
    occupancy, readings = np.empty((steps, houses), np.uint8), np.empty((steps, houses), np.int32)
    for t, row in enumerate(rows):
        n, at_home, wh = first + t + 1, row.get("occupancy"), row.get("readings")
        if row.get("t") != t + 1:
            raise _bad(path, n, f"is not the truth of step {t + 1}")
        if not (isinstance(at_home, str) and len(at_home) == houses and set(at_home) <= set("01")):
            raise _bad(path, n, f"has an occupancy that is not {houses} digits 0 or 1")
        valid = isinstance(wh, list) and all(type(x) is int and 0 <= x < 2**31 for x in wh)
        if not valid or len(wh or ()) != houses:
            raise _bad(path, n, f"has readings that are not {houses} whole numbers of Wh")
        occupancy[t], readings[t] = [int(digit) for digit in at_home], wh
    return Truth(occupancy, readings)


def _bad(path: Path, line: int, reason: str) -> FileError:
    return FileError(f"{path}: line {line} {reason}; write the trace anew.")
