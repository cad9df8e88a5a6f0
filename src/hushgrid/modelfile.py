"""A learned model on disk: a folder with zone.toml, theta.json, service.toml and model.json.

model.json, format `hushgrid-learned/1`, is for the utility alone where its models are private: it
holds what decoding and validation need (hidden states, laws, daily scores), and no reading.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.errors import FileError
from hushgrid.files import read_text, write_text
from hushgrid.learn.em import Design, Fit
from hushgrid.learn.habits import Habits, stationary
from hushgrid.learn.publish import PublishedGroup

FORMAT = "hushgrid-learned/1"
FILE = "model.json"


def save_learned(folder: Path, content: dict[str, Any]) -> Path:
    """Write what `learned_content` of the report gives."""
    return write_text(folder / FILE, json.dumps({"format": FORMAT, **content}) + "\n")


def load_learned(path: Path | str) -> dict[str, Any]:
    """Read a learned model, given its folder or its file."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON ({error}); give a folder of hushgrid learn.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FileError(f"{path} is no {FORMAT} file; give a folder that hushgrid learn wrote.")
    missing = [key for key in _KEYS if key not in content]
    if missing:
        raise FileError(f"{path} lacks {missing[0]!r}; learn the model again.")
    return content


_KEYS = (
    "zone",
    "houses",
    "log_likelihood",
    "eta",
    "eta_basis",
    "provenance",
    "seconds",
    "time_zone",
    "starts",
    "law",
    "bound",
    "prototypes",
    "homes",
)


def publics_of(content: dict[str, Any]) -> tuple[PublishedGroup, ...]:
    """The published chains and laws of every prototype."""
    found = []
    for one in content["prototypes"]:
        a = np.array(one["transition"], np.float64)
        chain = Habits(a, stationary(a), str(content.get("prior", "learned")))
        starts = tuple(int(hour) for hour in content["starts"])
        found.append(
            PublishedGroup(chain, one["absent"], tuple(one["present"]), starts, one["homes"])
        )
    return tuple(found)


def fit_of(content: dict[str, Any], design: Design) -> Fit:
    """The hidden models again, for readings whose steps `design` describes."""
    hidden = [one["hidden"] for one in content["prototypes"]]
    k = len(hidden)
    natural = np.array([one["natural"] for one in hidden])
    transition = np.array([one["transition"] for one in hidden])
    none = np.zeros(k)
    seen = np.array([one["seen"] for one in hidden])
    return Fit(
        design=replace(design, moves=transition.mean(axis=0)),
        initial=np.array([one["initial"] for one in hidden]),
        transition=transition,
        natural=natural,
        parameters=natural,
        edges=np.array([one["edges"] for one in hidden]),
        seen=seen,
        means=np.zeros_like(seen),
        moves=np.zeros_like(transition),
        sums=np.zeros((*seen.shape, natural.shape[-1])),
        log_likelihood=none,
        readings=none.astype(np.int64),
        iterations=none.astype(np.int64),
        converged=none == 0,
        rising=np.zeros((0, k)),
        ordered=none == 0,
    )
