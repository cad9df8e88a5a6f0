"""A delivery on its way in: pieces from a parser, put together so that each sync takes many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
            self.count(gate.take(*together), together)
        return self.receipt

    def count(self, receipt: Receipt, parsed: Iterable[Parsed]) -> None:
        """Add what became of some batches."""
        self.receipt += receipt
        for part in parsed:
            self.problems = (*self.problems, *part.problems)[:PROBLEMS]


def take_each(
    gate: Gate, deliveries: Sequence[tuple[Delivery, Iterable[Parsed]]]
) -> list[Exception | None]:
    """Put small deliveries together; returns when they are durable. Why each failed, if it did.

    What stands before a broken batch is put and counted, as it is for one alone.
    """
    read = [_read(batches) for _, batches in deliveries]
    found = gate.take_each([parsed for parsed, _ in read])
    errors: list[Exception | None] = []
    for (delivery, _), (parsed, broken), told in zip(deliveries, read, found, strict=True):
        if isinstance(told, Exception):
            errors.append(told)
            continue
        delivery.count(told, parsed)
        errors.append(broken)
    return errors


def _read(batches: Iterable[Parsed]) -> tuple[list[Parsed], Exception | None]:
    held: list[Parsed] = []
    try:
        held.extend(batches)
    except Exception as error:
        return held, error
    return held, None


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
