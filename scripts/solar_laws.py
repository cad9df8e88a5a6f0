"""Held-out scores of net readings, by what is known of the panels (docs/learn.md).

Real homes get simulated panels under one sky: half a sine from 6 to 18 h, of another size at each
home, times the day's brightness and a flicker of each step. The same net readings are learned from
alone, from registers of energy taken and fed in, and with a meter of the generation.

Usage: python scripts/solar_laws.py READINGS TIME_ZONE
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from hushgrid.files.readings import read_histories
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import DAY, Histories
from hushgrid.learning.learner import LearningTerms, learn
from hushgrid.learning.pools import dependence

HOMES, DAYS = 12, 56
LIMIT_W = 4000


def main() -> None:
    """Learn the same homes three ways and print a table."""
    path, time_zone = sys.argv[1:]
    every = read_histories(Path(path), mapping="canonical", time_zone=time_zone, seconds=1800)
    begin = every.wh.shape[1] // 3 // every.steps_a_day * every.steps_a_day
    part = every.steps(slice(begin, begin + DAYS * every.steps_a_day))
    known = np.isfinite(part.wh).mean(axis=1)
    part = part.homes(np.argsort(-known, kind="stable")[:HOMES])
    consumed, generated = np.maximum(part.wh, 0), panels(part)
    net, limit = consumed - generated, LIMIT_W * part.seconds // 3600
    base = replace(part, export=limit)
    ways = {
        "net readings alone": replace(base, wh=net),
        "registers of energy taken and fed in": replace(
            base, wh=np.maximum(net, 0), solar=np.maximum(-net, 0)
        ),
        "a meter of the generation": replace(base, wh=consumed, solar=generated, generated=True),
    }
    print("| known | laws | correlation | score | forecast |\n|---|---|---|---|---|")
    for name, found in ways.items():
        result = learn(found, assumed_habits(found.seconds), LearningTerms(groups=(24,)))
        assert result.held_out is not None
        both = "" if found.solar is None else f"{dependence(found, result.starts):.2f}"
        held = result.held_out
        print(
            f"| {name} | {result.family} | {both} | {held.log_likelihood:.3f} |"
            f" {held.forecast:.1%} |"
        )


def panels(found: Histories) -> np.ndarray:
    """(homes, steps) energy that simulated panels generate [Wh]."""
    rng = np.random.default_rng(1)
    hour = found.local_time % DAY / 3600
    height = np.clip(np.sin((hour - 6) / 12 * np.pi), 0, None) * ((hour > 6) & (hour < 18))
    day = np.arange(found.wh.shape[1]) // found.steps_a_day
    sky = rng.uniform(0.2, 1, day.max() + 1)[day] * rng.uniform(0.8, 1, len(day))
    size = rng.uniform(2000, 4000, (len(found.ids), 1)) * found.seconds / 3600
    return np.rint(size * height * sky)


if __name__ == "__main__":
    main()
