"""How often drift names homes: python scripts/drift_homes.py READINGS TIME_ZONE [LEVEL].

Learns a model of all days, then takes each month of them as new readings. Prints the share of homes
that are named, mean and largest month: unchanged homes, by the daily scores of the whole year and
by weeks of the season; the same where the model has not seen the month; and one home at a time that
changed: half more is used, everything happens six hours later, other people moved in.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hushgrid.files.readings import read_histories
from hushgrid.learning.evaluation import marginal_scores
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import DAY, clamped
from hushgrid.learning.learner import LearningTerms, learn
from hushgrid.learning.weeks import by_day, daily_scores, drift, weekly_figures, welch


def main() -> None:
    """Print a line for each kind of change."""
    given = read_histories(
        Path(sys.argv[1]), mapping="canonical", time_zone=sys.argv[2], seconds=None
    )
    level = float(sys.argv[3]) if len(sys.argv) > 3 else 0.01
    result = learn(given, assumed_habits(given.seconds), LearningTerms(law="lognormal"))
    assert result.shared is not None
    found, which = clamped(given.homes(result.usable)), result.shared.group_of
    bound, n, steps = 10_000 * given.seconds // 3600, len(which), given.steps_a_day
    swapped = np.roll(np.arange(n), n // 2 + 1)
    kinds = {
        "unchanged": found.wh,
        "half more": 1.5 * found.wh,
        "six hours later": np.roll(found.wh, steps // 4, axis=1),
        "other people": found.wh[swapped],
    }
    known = (result.public, which, bound)
    weeks = weekly_figures(found, *known)
    days = by_day(marginal_scores(found, *known), steps)
    year = daily_scores(found, *known)
    noon = found.begins + DAY * np.arange(len(days[0])) + DAY // 2
    first = [datetime.fromtimestamp(at, UTC).month for at in noon.tolist()]
    named: dict[str, list[float]] = {}
    for month in sorted(set(first)):
        at = np.flatnonzero(np.array(first) == month)
        part, begins = slice(at[0] * steps, (at[-1] + 1) * steps), found.begins + DAY * int(at[0])
        before = [welch((m, s, int(d)), days[h, at])[1] for h, (m, s, d) in enumerate(year)]
        named.setdefault("unchanged, daily scores", []).append(
            np.mean(np.array(before) * n < level)
        )
        new = {
            name: weekly_figures(replace(found, wh=wh).steps(part), *known)
            for name, wh in kinds.items()
        }
        unseen, inside = weeks.copy(), np.arange(weeks.shape[1]) * 7
        unseen[:, (inside > at[0] - 7) & (inside <= at[-1])] = np.nan
        p = drift(unseen, found.begins, new["unchanged"], begins).p
        named.setdefault("unchanged, month not seen", []).append(np.mean(p * n < level))
        for name, figures in new.items():
            hits = []
            for h in range(n):
                one = new["unchanged"].copy()
                one[h] = figures[h]
                hits.append(drift(weeks, found.begins, one, begins).p[h] * n < level)
            named.setdefault(name, []).append(np.mean(hits))
    for name, share in named.items():
        print(f"{name:28} {np.mean(share):6.1%} {np.max(share):6.1%}")


if __name__ == "__main__":
    main()
