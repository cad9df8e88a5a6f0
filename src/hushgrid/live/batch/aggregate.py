"""One time span of readings through an engine: sums by zone and interval, nothing of a house."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.grid import Tally
from hushgrid.live.batch import expression
from hushgrid.live.batch.engines import Engine, asking
from hushgrid.live.batch.roster import Expected, Roster
from hushgrid.live.meters.ports import Expected as EachHouse


@dataclass(frozen=True, slots=True, repr=False)
class Sums:
    """A closed interval as `Closed` asks: the readings are added up already. Secret.

    `load` [Wh] has the public expectation in it for each house that is missing. `repeated`, `late`
    and `malformed` readings are counted and not in it.
    """

    houses: int
    missing: int
    load: int
    clamped: int
    exported: int
    repeated: int
    late: int
    malformed: int
    bound: NDArray[np.int32]

    @property
    def empty(self) -> bool:
        """Whether nobody reported."""
        return self.missing == self.houses

    def tally(self, bound: NDArray[np.int32], expected: EachHouse) -> Tally:
        """The sum; whoever takes it checks that the bounds are theirs."""
        del bound, expected
        return Tally(self.load, self.clamped, self.exported, self.bound)


class Aggregated(NamedTuple):
    """What an engine made of one time span: `rows` readings, `unknown` of them of no zone."""

    rows: int
    unknown: int
    sums: dict[tuple[str, int], Sums]  # by zone and start [epoch s]
    mended: int  # intervals of segments that were looked at house by house


class Aggregator:
    """The engine with a roster in it."""

    def __init__(self, engine: Engine, readings: Any, roster: Roster) -> None:
        self._engine, self._readings, self._roster = engine, readings, roster
        with asking(engine, "the roster"):
            self._houses = engine.put(roster.houses)
            self._segments = engine.put(roster.segments)

    def over(self, first: int, end: int) -> Aggregated:
        """The intervals that start from `first` to `end` [epoch s], of all zones."""
        expected = self._roster.expected(first, end)
        with asking(self._engine, f"readings from {first} to {end}"):
            seen, made = self._asked(first, end, expected)
        rows, unknown, broken = (int(seen[name][0]) for name in ("rows", "unknown", "broken"))
        return Aggregated(rows, unknown, self._sums(made, expected, first, end), broken)

    def _asked(self, first: int, end: int, expected: Expected) -> tuple[Any, Any]:
        distinct = self._engine.distinct(self._roster.width)
        where = (self._readings, self._houses, first, end)
        with expression.looked(*where, distinct).cache() as found:
            by_span = expression.spans(found, self._segments)
            seen = expression.summary(found, by_span).to_pyarrow().to_pydict()
            more = expression.mended(*where, by_span) if seen["broken"][0] else None
            each = self._engine.put(expected.table())
            made = expression.totals(by_span, more, each).to_pyarrow()
        return seen, made.to_pydict()

    def _sums(
        self, made: dict[str, list[int]], expected: Expected, first: int, end: int
    ) -> dict[tuple[str, int], Sums]:
        found = {
            (zone, opens): dict(zip(expression.SUMS, values, strict=True))
            for zone, opens, *values in zip(
                made["zone"], made["opens"], *(made[n] for n in expression.SUMS), strict=True
            )
        }
        sums = {}
        for number, part in enumerate(self._roster.parts):
            zone, seconds = part.service.id, part.service.seconds
            nobody = dict.fromkeys(expression.SUMS, 0)
            houses = len(part.bound)
            for opens in range(-(-first // seconds) * seconds, end, seconds):
                if opens < part.service.begins:
                    continue
                row = found.get((number, opens), nobody)
                fill = expected.total(zone, opens) - row["expected"]
                sums[zone, opens] = Sums(
                    houses,
                    houses - row["present"],
                    row["load"] + fill,
                    row["clamped"],
                    row["exported"],
                    row["good"] - row["accepted"],
                    row["late"],
                    row["malformed"],
                    part.bound,
                )
        return sums
