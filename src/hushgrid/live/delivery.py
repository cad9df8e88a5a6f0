"""A delivery on its way in: pieces from a parser, put together so that each sync takes many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hushgrid.intake import Parsed
from hushgrid.intake.readings import PROBLEMS
from hushgrid.live.gate import Gate, Receipt

ROWS = 1 << 16  # readings stored with one sync; also what one delivery holds in memory


class Delivery:
    """What became of a delivery so far; what is counted is durable, even if the rest fails."""

    def __init__(self) -> None:
        self.receipt = Receipt()
        self.problems: tuple[str, ...] = ()

    def take(self, gate: Gate, batches: Iterable[Parsed]) -> Receipt:
        """Put all batches; returns when they are durable."""
        for together in _gathered(batches):
            self.receipt += gate.take(*together)
            for parsed in together:
                self.problems = (*self.problems, *parsed.problems)[:PROBLEMS]
        return self.receipt


def _gathered(batches: Iterable[Parsed]) -> Iterator[list[Parsed]]:
    """Small batches together. Those before a broken one are given first, then the error."""
    held: list[Parsed] = []
    rows, source = 0, iter(batches)
    while True:
        try:
            batch = next(source, None)
        except Exception:
            if held:
                yield held
            raise
        if batch is None:
            break
        held.append(batch)
        rows += len(batch.readings)
        if rows >= ROWS:
            yield held
            held, rows = [], 0
    if held:
        yield held
