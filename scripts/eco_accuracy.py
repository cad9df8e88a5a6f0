"""Accuracy on labelled days of one home: python scripts/eco_accuracy.py ECO.parquet [SURVEY].

The file has `timestamp` (local), `power_w` (mean of 15 min) and `occupied` (1, 0 or nothing).
Prints accuracy at 06-22 h and over all hours: trained on all days, and on one half for the other.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
from pyarrow import parquet

from hushgrid.files.readings import read_habits
from hushgrid.learning.em import fit, posterior
from hushgrid.learning.evaluation import decoding_accuracy
from hushgrid.learning.histories import Histories
from hushgrid.learning.learner import AUTO, LearningTerms, design_for


def house(path: str) -> Histories:
    """One home, labels apart."""
    table = parquet.read_table(path)
    power = np.array([np.nan if p is None else p for p in table["power_w"].to_pylist()])
    home = np.array([-1 if o is None else o for o in table["occupied"].to_pylist()], np.int8)
    when = table["timestamp"].to_pylist()
    shown = np.array([t.weekday() * 86_400 + t.hour * 3600 + t.minute * 60 for t in when])
    return Histories(("home",), np.rint(power / 4)[None], 900, 0, shown, {}, home[None])


def main() -> None:
    """Print a line for each prior, law and split."""
    given = house(sys.argv[1])
    survey = sys.argv[2] if len(sys.argv) > 2 else None
    middle = given.wh.shape[1] // 2
    first, second = given.steps(slice(0, middle)), given.steps(slice(middle, None))
    splits = {
        "all -> all": (given, given),
        "1st -> 2nd": (first, second),
        "2nd -> 1st": (second, first),
        "2nd -> 2nd": (second, second),
    }
    for residents in ("2,3", "2", "3", "assumed"):
        if survey is None and residents != "assumed":
            continue
        assumed = residents == "assumed"
        numbers = [] if assumed else [int(n) for n in residents.split(",")]
        habits = read_habits(None if assumed else survey, numbers, 900)
        for law in AUTO:
            terms = LearningTerms(law=law)
            cells = []
            for name, (seen, unseen) in splits.items():
                own = fit(seen.wh, design_for(seen, habits, terms, law))
                moved = replace(own, design=design_for(unseen, habits, terms, law))
                assert unseen.labels is not None
                right = decoding_accuracy(unseen, unseen.labels, posterior(unseen.wh, moved))
                cells.append(f"{name} {right['06-22']:.3f} {right['all']:.3f}")
            print(f"{residents:8} {law:10}", " | ".join(cells))


if __name__ == "__main__":
    main()
