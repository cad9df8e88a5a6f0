"""Held-out scores of laws of all of the year and of laws by season (docs/learn.md).

Real homes of a year, whose last quarter is scored.

Usage: python scripts/season_laws.py READINGS TIME_ZONE
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from hushgrid.files.readings import read_histories
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import of_seasons
from hushgrid.learning.learner import LearningTerms, learn

HOMES = 12
SEASONS = {
    "none": (),
    "3": ((12, 1, 2), (3, 4, 5, 9, 10, 11), (6, 7, 8)),
}


def main() -> None:
    """Learn the same homes with and without seasons and print a table."""
    path, time_zone = sys.argv[1:]
    found = read_histories(Path(path), mapping="canonical", time_zone=time_zone, seconds=1800)
    known = np.isfinite(found.wh).mean(axis=1)
    homes = found.homes(np.argsort(-known, kind="stable")[:HOMES])
    print("| seasons | score | forecast |\n|---|---|---|")
    for name, seasons in SEASONS.items():
        given = of_seasons(homes, seasons) if seasons else homes
        terms = LearningTerms(law="lognormal", groups=(24,))
        held = learn(given, assumed_habits(given.seconds), terms).held_out
        assert held is not None
        print(f"| {name} | {held.log_likelihood:.3f} | {held.forecast:.1%} |")


if __name__ == "__main__":
    main()
