"""Held-out scores of laws of all of the year and of laws by season (docs/learn.md).

Real homes of a year, as they are and with simulated panels that a meter of the generation counts:
the height of the sun at that latitude, of another size at each home, times the day's brightness and
a flicker of each step. The last quarter of the year is scored.

Usage: python scripts/season_laws.py READINGS TIME_ZONE LATITUDE
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from hushgrid.files.readings import read_histories
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import DAY, Histories, of_seasons
from hushgrid.learning.learner import LearningTerms, learn

HOMES = 12
LIMIT_W = 4000
SEASONS = {
    "none": (),
    "3": ((12, 1, 2), (3, 4, 5, 9, 10, 11), (6, 7, 8)),
}


def main() -> None:
    """Learn the same homes with and without seasons and print a table."""
    path, time_zone, latitude = sys.argv[1:]
    found = read_histories(Path(path), mapping="canonical", time_zone=time_zone, seconds=1800)
    known = np.isfinite(found.wh).mean(axis=1)
    found = found.homes(np.argsort(-known, kind="stable")[:HOMES])
    limit = LIMIT_W * found.seconds // 3600
    solar = np.where(np.isfinite(found.wh), panels(found, float(latitude)), np.nan)
    kinds = {
        "as they are": found,
        "with panels": replace(found, export=limit, solar=solar, generated=True),
    }
    print("| homes | seasons | score | forecast |\n|---|---|---|---|")
    for kind, homes in kinds.items():
        for name, seasons in SEASONS.items():
            given = of_seasons(homes, seasons) if seasons else homes
            terms = LearningTerms(law="lognormal", groups=(24,))
            held = learn(given, assumed_habits(given.seconds), terms).held_out
            assert held is not None
            print(f"| {kind} | {name} | {held.log_likelihood:.3f} | {held.forecast:.1%} |")


def panels(found: Histories, latitude: float) -> np.ndarray:
    """(homes, steps) energy that simulated panels generate [Wh]."""
    rng = np.random.default_rng(1)
    day = np.arange(found.wh.shape[1]) // found.steps_a_day
    of_year = found.begins / DAY % 365.25 + day
    lean = np.radians(-23.44) * np.cos(2 * np.pi * (of_year + 10) / 365.25)
    turn = 2 * np.pi * (found.local_time % DAY / DAY - 0.5)
    at = np.radians(latitude)
    height = np.sin(at) * np.sin(lean) + np.cos(at) * np.cos(lean) * np.cos(turn)
    sky = rng.uniform(0.2, 1, day.max() + 1)[day] * rng.uniform(0.8, 1, len(day))
    size = rng.uniform(2000, 4000, (len(found.ids), 1)) * found.seconds / 3600
    return np.rint(size * np.clip(height, 0, None) * sky)


if __name__ == "__main__":
    main()
