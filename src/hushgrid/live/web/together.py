"""Small bodies stored together: what comes while some are on their way to the disk goes next.

One thread at a time parses all that wait and puts them with one sync; each has a receipt of its
own. Alone, each would take a thread and a sync, and most of its time would be spent on changing
from one thread to another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from anyio import to_thread

from hushgrid.intake import Parsed
from hushgrid.live.delivery import Delivery, take_each
from hushgrid.live.gate import Gate

MOST = 64  # bodies of a group


class _WaitingBatch(NamedTuple):
    delivery: Delivery
    batches: Iterator[Parsed]
    done: asyncio.Future[None]


class Together:
    """Takes small deliveries; of one event loop."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._waiting: deque[_WaitingBatch] = deque()
        self._storing: asyncio.Task[None] | None = None

    async def take(self, delivery: Delivery, batches: Iterator[Parsed]) -> None:
        """Put all batches; returns when they are durable, as `Delivery.take` does."""
        mine = _WaitingBatch(delivery, batches, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())
        await mine.done

    async def _store(self) -> None:
        """Store group after group until nobody waits."""
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            try:
                errors = await to_thread.run_sync(
                    take_each, self._gate, [(one.delivery, one.batches) for one in group]
                )
            except Exception as error:
                errors = [error] * len(group)
            for one, why in zip(group, errors, strict=True):
                if one.done.done():  # whoever sent it is gone; it is durable all the same
                    continue
                if why is None:
                    one.done.set_result(None)
                else:
                    one.done.set_exception(why)
        self._storing = None
