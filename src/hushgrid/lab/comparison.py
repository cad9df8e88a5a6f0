"""Every method at the same promise, on the same days, with the same noise quantiles.

A row is one day of one promise: for each method (docs/proofs/baselines.md) the error of its raw and
of its estimated price and, where requested, the AUC of an adversary on its releases. On recorded
days, which follow each other, hushgrid cuts readings at the planned clamp, and the estimate weighs
the model against a filter of all releases so far, as a service does by `estimator = "filter"`. Rows
are plain numbers, so that a run can resume where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushgrid._frames import DataTable, Tabular
from hushgrid._numbers import Floats, brief, count_of
from hushgrid.errors import PolicyError
from hushgrid.lab.bench import (
    AHEAD,
    AHEAD_EXACT,
    AS_PLANNED,
    DRAW,
    FIGURES,
    HELD,
    KINDS_HELD,
    METHODS,
    OPEN,
    PARTS,
    Bench,
    KnownRows,
    Row,
    WindowNoise,
    mean_row,
)
from hushgrid.lab.datasets import DaySource, Recorded
from hushgrid.lab.methods import (
    Method,
    MethodPromise,
    MethodRefusal,
    Ready,
    part_of,
)
from hushgrid.lab.rolling import (
    DailySums,
)
from hushgrid.planning.expected_error import RHO
from hushgrid.planning.windows import promise_words
from hushgrid.statistics import Summary, ratio_of_means, summarise


def copied(source: Recorded, copies: int) -> Recorded:
    """A larger zone: every home of a zone so many times, on the same days.

    Copies keep the weather that homes share. The tariff is scaled with the load.

    Args:
        source: The days of homes that move independently.
        copies: How many of each.

    Returns:
        The days of the larger zone.
    """
    homes = np.tile(np.arange(source.readings.shape[2]), copies)
    scenarios = []
    for scenario in source.scenarios:
        larger, tariff = part_of(scenario, homes), scenario.tariff
        slope: dict[str, Any] = {"alpha": tariff.alpha / copies}
        if tariff.curve is not None:
            slope = {"alpha": 0.0, "beta": 0.0, "curve": tariff.curve.scaled(copies)}
        less = replace(tariff, **slope)
        scenarios.append(replace(larger, tariff=less))
    before = None if source.before is None else copied(source.before, copies)
    return replace(
        source, scenarios=scenarios, readings=source.readings[:, :, homes], before=before
    )


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(Tabular):
    """Rows of many days at one promise.

    Attributes:
        promise: The promise.
        methods: All methods, those that refused included.
        ready: Each prepared method or its refusal, by name.
        rows: One for each day.
        sums: How daily sums are published on recorded days, or why they are not; None elsewhere.
        n_houses: Number of houses of the largest zone.
    """

    promise: MethodPromise
    methods: tuple[Method, ...]
    ready: Mapping[str, Ready | MethodRefusal]
    rows: tuple[Row, ...]
    sums: DailySums | MethodRefusal | None = None
    n_houses: int = 0

    def __repr__(self) -> str:
        promise = self.promise
        words = promise_words(promise.secret, promise.epsilon, promise.window, None)
        counts = count_of("method", len(self.names)), count_of("day", self.days)
        return brief(self, count_of("house", self.n_houses), words, *counts, names=())

    def _table(self) -> DataTable:
        """A row a method: errors of its price and of its list a day ahead, and the adversary's AUC.

        Beside the error of the list is that of the same filter on exact loads, and their ratio.
        Each is a mean over the days with the ends of its 95 % interval. A method that cannot keep
        the promise says why.
        """
        priced = [name for name in self.rows[0] if PARTS[0] in self.rows[0][name]]
        names = [*priced, *self.refused]
        figures: dict[str, Callable[[str], Summary | None]] = {
            "error": lambda name: self.summary(name, PARTS[0], "rmsre"),
            "ahead": self.ahead,
            "ahead_exact": self.ahead_exact,
            "ahead_ratio": self.ahead_ratio,
            "auc": self.auc,
        }
        columns: dict[str, Sequence[Any]] = {}
        for figure, summary_of in figures.items():
            means = [summary_of(name) if name in priced else None for name in names]
            if any(means):
                ends = [
                    (math.nan,) * 3 if mean is None else (mean.mean, *mean.ci95) for mean in means
                ]
                labels = (figure, f"{figure}_low", f"{figure}_high")
                columns |= dict(zip(labels, zip(*ends, strict=True), strict=True))
        columns["refusal"] = [self.refused.get(name, "") for name in names]
        return DataTable("method", names, columns)

    @property
    def days(self) -> int:
        """How many days."""
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """Methods that keep the promise."""
        return [m.name for m in self.methods if isinstance(self.ready[m.name], Ready)]

    @property
    def refused(self) -> dict[str, str]:
        """Methods that cannot, and why."""
        return {
            name: answer.reason
            for name, answer in self.ready.items()
            if isinstance(answer, MethodRefusal)
        }

    def values(self, name: str, part: str, figure: str = "rmsre_paper") -> Floats:
        """(days,) of one figure of a method's price, in one of PARTS."""
        at = FIGURES.index(figure)
        return np.array([row[name][part][at] for row in self.rows])

    def summary(self, name: str, part: str, figure: str = "rmsre_paper") -> Summary:
        """Mean, s.d. and 95 % interval over the days."""
        return summarise(self.values(name, part, figure))

    def coverage(self, name: str, kind: str = KINDS_HELD[0]) -> Summary | None:
        """Share of steps whose load a 95 % interval holds, on recorded days; one of KINDS_HELD."""
        at = KINDS_HELD.index(kind)
        day_shares = [row.get(name, {}).get(HELD, []) for row in self.rows]
        if not all(day_shares) or not any(len(shares) > at for shares in day_shares):
            return None
        return summarise([shares[at] for shares in day_shares if len(shares) > at])

    def ahead(self, name: str) -> Summary | None:
        """Relative error of the lists made at 18:00 for the next day, on recorded days."""
        return _of_days(self._lists(name, AHEAD))

    def ahead_exact(self, name: str) -> Summary | None:
        """The same of the lists that the method's filter makes of exact loads, without noise."""
        return _of_days(self._lists(name, AHEAD_EXACT))

    def ahead_ratio(self, name: str) -> Summary | None:
        """Error of the lists over that of lists from exact loads, on paired days."""
        exact = self._lists(name, AHEAD_EXACT)
        return ratio_of_means(self._lists(name, AHEAD), exact) if len(exact) > 1 else None

    def _lists(self, name: str, kind: str) -> Floats:
        """Relative errors of a method's lists, of the days that have one."""
        at = FIGURES.index("rmsre")
        return np.array([row[name][kind][at] for row in self.rows if kind in row.get(name, {})])

    def ratio(self, above: str, below: str, part: str) -> Summary:
        """Error of one method over another's, on paired days."""
        return ratio_of_means(self.values(above, part), self.values(below, part))

    def gap(self, above: str, below: str, part: str) -> Summary:
        """Error of one method less another's, on paired days."""
        return summarise(self.values(above, part) - self.values(below, part))

    def auc(self, name: str, knows: str = "auc") -> Summary | None:
        """The adversary's AUC over the days attacked, if any; "open": without noise."""
        aucs = [row[name][knows][0] for row in self.rows if knows in row.get(name, {})]
        return summarise(aucs) if aucs else None


def _of_days(values: Floats) -> Summary | None:
    return summarise(values) if len(values) > 1 else None


def compare(
    source: DaySource,
    promise: MethodPromise,
    *,
    days: int,
    seed: int,
    attack_days: int = 0,
    methods: Sequence[Method] = METHODS,
    journal: KnownRows | None = None,
    tick: Callable[[], Any] = lambda: None,
    draws: int = 1,
    rho: float = RHO,
    noise: WindowNoise = AS_PLANNED,
) -> Comparison:
    """Run all methods over many days; rows that are known are not computed again.

    See: docs/proofs/baselines.md.

    Args:
        source: The days.
        promise: What every method has to keep.
        days: Number of days, 2 or more.
        seed: Seed of the noise and of the batteries.
        attack_days: Number of days the adversary attacks.
        methods: The methods.
        journal: Rows computed before; new ones are added.
        tick: Called after each day.
        draws: How often noise is drawn; the figures of a day are means over the draws.
        rho: On recorded days, the relative error by which hushgrid's plan chooses a clamp.
        noise: What is asked of hushgrid's noise under the secret window.

    Returns:
        The comparison.

    Raises:
        PolicyError: If there are fewer than 2 days, or a window is promised on days that do not
            follow each other.
    """
    if days < 2:
        raise PolicyError(f"days is {days}; give 2 or more: an interval needs them.")
    if promise.window is not None and not isinstance(source, Recorded):
        raise PolicyError(
            "secret is window on days that do not follow each other; give readings of real days."
        )
    bench = Bench(source, promise, seed, methods, rho, noise)
    benches = [bench, *(bench.drawing(seed + k * DRAW) for k in range(1, draws))]
    rows = tuple(_rows(benches, days, attack_days, journal, tick))
    sums = bench.sums if isinstance(source, Recorded) else None
    sizes = [scenario.zone.n_houses for scenario in source.scenarios]
    return Comparison(promise, bench.methods, bench.ready_on(rows), rows, sums, max(sizes))


def _rows(
    benches: Sequence[Bench],
    days: int,
    attack_days: int,
    journal: KnownRows | None,
    tick: Callable[[], Any],
) -> Iterator[Row]:
    epsilon = benches[0].promise.epsilon
    for day in range(days):
        row = journal.get(epsilon, day) if journal is not None else None
        if row is None or (day < attack_days and OPEN not in row):
            row = mean_row([bench.row(day, attack=day < attack_days) for bench in benches])
            if journal is not None:
                journal.put(epsilon, day, row)
        tick()
        yield row
