"""Group commit: callers that wait for the same disk share one trip to it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from numpy.typing import ArrayLike

from hushgrid.arrays import Int8s
from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.live.meters.batch import Columns, check_ends, counts_of, marks_of
from hushgrid.live.meters.ports import Counts


class _WaitingCommit:
    __slots__ = ("codes", "columns", "error")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.codes: Int8s | None = None
        self.error: Exception | None = None


class GroupCommit:
    """`commit` stores several batches at once and answers with the code of every reading.

    Whoever gets the lock stores everything that waits; those behind it find their work done.
    """

    def __init__(self, lock: threading.RLock, commit: Callable[[Sequence[Columns]], Int8s]) -> None:
        self._lock, self._commit = lock, commit
        self._waiting: deque[_WaitingCommit] = deque()

    def put(
        self, columns: Columns, ends: Sequence[int], marked: ArrayLike | None = None
    ) -> list[Counts]:
        """Store deliveries that end at `ends`, alone or with others' ones.

        Counted by their own caller, outside the lock.
        """
        marks = marks_of(marked, columns.house.size)
        check_ends(ends, columns.house.size)
        mine = _WaitingCommit(columns)
        self._waiting.append(mine)
        with self._lock:
            if mine.codes is None and mine.error is None:
                self._store(self._all())
        if mine.error is not None:
            raise mine.error
        assert mine.codes is not None
        return counts_of(mine.codes, ends, marks)

    def _all(self) -> list[_WaitingCommit]:
        group = []
        while self._waiting:
            group.append(self._waiting.popleft())
        return group

    def _store(self, group: list[_WaitingCommit]) -> None:
        try:
            codes = self._commit([each.columns for each in group])
        except BaseException as error:
            for each in group:
                each.error = _own(error)
            if not isinstance(error, Exception):
                raise
            return
        end = 0
        for each in group:
            begin, end = end, end + each.columns.house.size
            each.codes = codes[begin:end]


def _own(error: BaseException) -> Exception:
    """An error of each caller's own: raised in two threads, one object mixes their traces."""
    if isinstance(error, MeterError):
        return type(error)(*error.args)
    if isinstance(error, Exception):
        return error
    return MeterRetryError("the thread that stored for others was stopped; send again.")
