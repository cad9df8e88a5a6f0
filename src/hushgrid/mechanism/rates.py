"""Rates published so far: a sequence that never changes and grows in nearly constant time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

_SIZE = 256  # rates of a full piece


class Rates(Sequence[float]):
    """A tuple of rates in pieces: to append one copies a piece, not all rates before it.

    Args:
        rates: The rates [currency/kWh].

    >>> Rates([0.2, 0.3]).followed_by(0.4)[-2:]
    (0.3, 0.4)
    """

    __slots__ = ("_full", "_tail")

    def __init__(self, rates: Sequence[float] = ()) -> None:
        series, ends = tuple(rates), range(_SIZE, len(rates) + 1, _SIZE)
        self._full = tuple(series[end - _SIZE : end] for end in ends)
        self._tail = series[len(ends) * _SIZE :]

    def followed_by(self, *rates: float) -> Rates:
        """The same rates and then these.

        Args:
            *rates: Rates [currency/kWh].

        Returns:
            The longer sequence.
        """
        last = Rates((*self._tail, *rates))
        last._full = (*self._full, *last._full)
        return last

    def __len__(self) -> int:
        return len(self._full) * _SIZE + len(self._tail)

    @overload
    def __getitem__(self, at: int) -> float: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[float, ...]: ...
    def __getitem__(self, at: int | slice) -> float | tuple[float, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        at = at + len(self) if at < 0 else at
        if not 0 <= at < len(self):
            raise IndexError(at)
        piece, place = divmod(at, _SIZE)
        return (self._tail if piece == len(self._full) else self._full[piece])[place]

    def __iter__(self) -> Iterator[float]:
        return chain(*self._full, self._tail)

    def __eq__(self, rates: object) -> bool:
        if not isinstance(rates, (Rates, tuple)):
            return NotImplemented
        return tuple(self) == tuple(rates)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Rates({list(self)})"
