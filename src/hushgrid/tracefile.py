"""A recorded day to and from disk: format `hushgrid-trace/1`, described in docs/trace.md.

One JSON object a line: a header, then every release (public), then the truth of every step
(secret, simulations only). So a file cut after its releases is a whole public trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.checks import from_json, rules_of, to_json
from hushgrid.errors import FileError
from hushgrid.files import read_text, write_text
from hushgrid.mechanism import Release
from hushgrid.recording import Recording, Truth

FORMAT = "hushgrid-trace/1"
SECRET = "the lines below hold the truth of a simulation: occupancy and readings, never published"
_HEADER = {
    "zone": str,
    "digest": str,
    "config": str,
    "day": int,
    "offset": int,
    "seed": int,
    "steps": int,
    "houses": int,
    "truth": bool,
}
_RULES = rules_of(Release)
_REQUIRED = {name for name, rule in _RULES.items() if not rule.optional}


def save_trace(path: Path, recorded: Recording) -> Path:
    """Write a recorded day; without truth, only what the public saw."""
    truth = recorded.truth
    header = {
        "format": FORMAT,
        "zone": recorded.zone,
        "digest": recorded.digest,
        "config": recorded.config,
        "day": recorded.day,
        "offset": recorded.offset,
        "seed": recorded.seed,
        "steps": len(recorded.releases),
        "houses": truth.occupancy.shape[1] if truth else 0,
        "truth": truth is not None,
    }
    lines: list[dict[str, Any]] = [header]
    lines += [{"release": to_json(one)} for one in recorded.releases]
    if truth is not None:
        lines.append({"secret": SECRET})
        for t, (occupancy, readings) in enumerate(
            zip(truth.occupancy, truth.readings, strict=True), 1
        ):
            at_home = "".join(map(str, occupancy.tolist()))
            lines.append({"t": t, "occupancy": at_home, "readings": readings.tolist()})
    return write_text(path, "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines))


def is_trace(path: Path) -> bool:
    """Whether a file begins as a trace does."""
    try:
        with path.open("rb") as stream:
            return stream.read(64).startswith(f'{{"format": "{FORMAT}"'.encode())
    except OSError:
        return False


def load_trace(path: Path | str) -> Recording:
    """Read a recorded day; the first bad line is named."""
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
    named = {name: header[name] for name in ("config", "day", "offset", "seed")}
    return Recording(header["zone"], header["digest"], releases, truth, **named)


def _object(path: Path, n: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad(path, n, "is not JSON") from None
    if not isinstance(line, dict):
        raise _bad(path, n, "is no JSON object")
    return line


def _checked_header(path: Path, lines: list[dict[str, Any]]) -> dict[str, Any]:
    if not lines or lines[0].get("format") != FORMAT:
        raise FileError(f"{path} is no trace; give a {FORMAT} file, as simulate --trace writes.")
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
        n, at_home, read = first + t + 1, row.get("occupancy"), row.get("readings")
        if row.get("t") != t + 1:
            raise _bad(path, n, f"is not the truth of step {t + 1}")
        if not (isinstance(at_home, str) and len(at_home) == houses and set(at_home) <= set("01")):
            raise _bad(path, n, f"has an occupancy that is not {houses} digits 0 or 1")
        whole = isinstance(read, list) and all(type(x) is int and 0 <= x < 2**31 for x in read)
        if not whole or len(read or ()) != houses:
            raise _bad(path, n, f"has readings that are not {houses} whole numbers of Wh")
        occupancy[t], readings[t] = [int(digit) for digit in at_home], read
    return Truth(occupancy, readings)


def _bad(path: Path, line: int, why: str) -> FileError:
    return FileError(f"{path}: line {line} {why}; write the trace anew.")
