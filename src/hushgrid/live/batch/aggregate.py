"""One time span of readings through an engine: sums by zone and interval, nothing of a house."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hushgrid.arrays import Int32s
from hushgrid.grid import Tally
from hushgrid.live.batch import expression
from hushgrid.live.batch.engines import Engine, asking
from hushgrid.live.batch.readings import BatchReadings
from hushgrid.live.batch.roster import BatchRoster, ImputedSums
from hushgrid.live.meters.ports import Expected as EachHouse

_NOTHING = dict.fromkeys(expression.SUMS, 0)


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
    repeated: int
    late: int
    malformed: int
    bound: Int32s

    @property
    def empty(self) -> bool:
        """Whether nobody reported."""
        return self.missing == self.houses

    def tally(self, bound: Int32s, expected: EachHouse) -> Tally:
        """The sum; whoever takes it checks that the bounds are theirs."""
        del bound, expected
        return Tally(self.load, self.clamped, self.bound)


class Aggregated(NamedTuple):
    """What an engine made of one time span: `rows` readings, `unknown` of them of no zone."""

    rows: int
    unknown: int
    sums: dict[tuple[str, int], Sums]  # by zone and start [epoch s]
    mended: int  # intervals of segments that were looked at house by house


class Aggregator:
    """The engine with a roster in it."""

    def __init__(self, engine: Engine, readings: BatchReadings, roster: BatchRoster) -> None:
        self._engine, self._readings, self._roster = engine, readings, roster
        with asking(engine, "the roster"):
            self._houses = engine.put(roster.houses)
            self._segments = engine.put(roster.segments)

    def over(self, first: int, end: int) -> Aggregated:
        """The intervals that start from `first` to `end` [epoch s], of all zones."""
        expected = self._roster.expected(first, end)
        with asking(self._engine, f"readings from {first} to {end}"):
            found = {(row["zone"], row["opens"]): row for row in self._asked(first, end, expected)}
        rows, broken = (sum(row[name] for row in found.values()) for name in ("rows", "broken"))
        unknown = found.get((None, None), _NOTHING)["rows"]
        return Aggregated(rows, unknown, self._sums(found, expected, first, end), broken)

    def _asked(self, first: int, end: int, expected: ImputedSums) -> list[dict[str, Any]]:
        """The totals; once more with what had to be mended, if anything had."""
        width = self._roster.width
        where = (self._readings.near(first, end), self._houses, width)
        each = self._engine.put(expected.table())
        with expression.looked(*where, self._engine.distinct(width)).cache() as found:
            by_span = expression.spans(found, self._segments)
            made = expression.totals(by_span, None, each).to_pyarrow()
            if any(made["broken"].to_pylist()):
                more = expression.mended(*where, by_span)
                made = expression.totals(by_span, more, each).to_pyarrow()
        return list(made.to_pylist())

    def _sums(
        self,
        found: dict[tuple[int | None, int | None], dict[str, Any]],
        expected: ImputedSums,
        first: int,
        end: int,
    ) -> dict[tuple[str, int], Sums]:
        sums = {}
        for number, part in enumerate(self._roster.parts):
            zone, seconds = part.service.id, part.service.seconds
            houses = len(part.bound)
            for opens in range(-(-first // seconds) * seconds, end, seconds):
                if opens < part.service.begins:
                    continue
                row = found.get((number, opens), _NOTHING)
                fill = expected.total(zone, opens) - row["expected"]
                sums[zone, opens] = Sums(
                    houses,
                    houses - row["present"],
                    row["load"] + fill,
                    row["clamped"],
                    row["good"] - row["accepted"],
                    row["late"],
                    row["malformed"],
                    part.bound,
                )
        return sums
