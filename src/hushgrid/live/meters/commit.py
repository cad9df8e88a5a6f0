"""Group commit: callers that wait for the same disk share one trip to it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.live.meters.batch import Columns
from hushgrid.live.meters.ports import Counts


class _Waiting:
    __slots__ = ("columns", "counts", "error")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.counts: Counts | None = None
        self.error: Exception | None = None


class GroupCommit:
    """`commit` stores several batches at once and answers with the counts of each.

    Whoever gets the lock stores everything that waits; those behind it find their work done.
    """

    def __init__(
        self, lock: threading.RLock, commit: Callable[[Sequence[Columns]], Sequence[Counts]]
    ) -> None:
        self._lock, self._commit = lock, commit
        self._waiting: deque[_Waiting] = deque()

    def put(self, columns: Columns) -> Counts:
        """Store a batch, alone or with others."""
        mine = _Waiting(columns)
        self._waiting.append(mine)
        with self._lock:
            if mine.counts is None and mine.error is None:
                self._store(self._all())
        if mine.error is not None:
            raise mine.error
        assert mine.counts is not None
        return mine.counts

    def _all(self) -> list[_Waiting]:
        group = []
        while self._waiting:
            group.append(self._waiting.popleft())
        return group

    def _store(self, group: list[_Waiting]) -> None:
        try:
            found = self._commit([each.columns for each in group])
        except BaseException as error:
            for each in group:
                each.error = _own(error)
            if not isinstance(error, Exception):
                raise
            return
        for each, counts in zip(group, found, strict=True):
            each.counts = counts


def _own(error: BaseException) -> Exception:
    """An error of each caller's own: raised in two threads, one object mixes their traces."""
    if isinstance(error, MeterError):
        return type(error)(*error.args)
    if isinstance(error, Exception):
        return error
    return MeterRetryError("the thread that stored for others was stopped; send again.")
