"""Homes whose histories are known, as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgrid.cli import main
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import Histories
from tests.learning.options import learn_words


def columns(step_min: int = 60, leave: float = 0.1, come: float = 0.2) -> dict[str, list[object]]:
    slots = 1440 // step_min
    rows = [
        (2, day, "present", step_min, s, come, leave) for day in ("wd", "we") for s in range(slots)
    ]
    names = ("n_residents", "daytype", "definition", "step_min", "slot", "p01", "p10")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


STEPS = 28 * 48


BEGINS = 1_357_000_200 // 86_400 * 86_400 + 3 * 86_400  # a Friday


SHOWN = (np.arange(STEPS) * 1800 + 4 * 86_400) % (7 * 86_400)


def lived_in(homes: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Homes that follow the assumed habits: readings [Wh] and who is at home."""
    rng = np.random.default_rng(seed)
    habits = assumed_habits(1800)
    slot = SHOWN % 86_400 // 1800 + 48 * (SHOWN >= 5 * 86_400)
    state = np.ones((homes, STEPS), int)
    for t in range(1, STEPS):
        row = np.cumsum(habits.transition[slot[t]][state[:, t - 1]], axis=1)
        state[:, t] = (rng.random((homes, 1)) > row).sum(axis=1).clip(max=2)
    size = rng.uniform(0.7, 1.4, (homes, 1))
    median = np.where(state == 2, 250.0, 40.0) * size
    return np.rint(median * rng.lognormal(0, 0.45, state.shape)), (state > 0).astype(np.int8)


def histories(wh: np.ndarray, labels: np.ndarray | None = None) -> Histories:
    ids = tuple(f"m{i:03d}" for i in range(len(wh)))
    return Histories(ids, wh.astype(float), 1800, BEGINS, SHOWN, {}, labels)


def csv(path: Path, wh: np.ndarray, begins: int = BEGINS) -> Path:
    lines = ["meter_id,start_utc,duration_s,wh"]
    for i, row in enumerate(wh):
        for t, x in enumerate(row):
            if np.isfinite(x):
                stamp = np.datetime64(begins + 1800 * t, "s")
                lines.append(f"m{i:03d},{stamp}Z,1800,{int(x)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def public(folder: Path, homes: int = 16) -> list[str]:
    """The axis and the list of meters as arguments, which a budget needs."""
    meters = folder / "meters.txt"
    meters.write_text("".join(f"m{i:03d}\n" for i in range(homes)))
    first, last = (f"{np.datetime64(at, 's')}Z" for at in (BEGINS, BEGINS + 1800 * STEPS))
    return ["--from", first, "--to", last, "--interval", "PT30M", "--meters", str(meters)]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(learn_words(*arguments) if arguments[0] == "learn" else list(arguments))
    return int(ended.value.code or 0)
