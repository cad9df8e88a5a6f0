"""The sizes M of the noise of blocks: when one is drawn, read and erased."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

from hushgrid.curator.replay import last_block
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.noise import Noise, Stepwise
from hushgrid.mechanism.release import State
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.meters.columns import NoiseBlock


class BlockSizes:
    """The sizes M of the noise of a zone's blocks of steps, which its meter store keeps sealed.

    Args:
        meters: The meter store.
        noise: Source of the noise.

    Attributes:
        mark: The public mark of the present block's draw; 0 without blocks.
        lost: Whether the present block has a release and no M.
        alone: No other curator may take over now: the M of the present block is read once.
    """

    def __init__(self, meters: MeterStore, noise: Noise | Stepwise) -> None:
        self._meters, self._noise = meters, noise
        self._block: NoiseBlock | None = None  # whose M the meter store may have
        self._until = -1  # blocks that began before have no key [UTC s]
        self._swept = ""  # terms since whose start here no M of others is kept
        self._erased = False
        self.lost, self.alone = False, False
        self._size: int | None = None  # of `_block`

    @property
    def mark(self) -> int:
        """See the class."""
        return 0 if self._block is None else self._block.mark

    def at(
        self,
        zone: ZoneService,
        state: State,
        standing: LedgerState,
        scale: float | None,
        flush: Callable[[], None],
    ) -> int | None:
        """The size M of the noise of a step's block; None without blocks, or where it is lost.

        It is used for the block that is open in the ledger alone, and drawn only where nothing of
        the block is published or may be.

        Args:
            zone: The zone.
            state: The state before the step.
            standing: What the ledger says.
            scale: Scale of the block's noise [Wh]; None: the step has no noise of its own.
            flush: Makes durable what the ledger holds: before an M is drawn, or one is erased.

        Returns:
            The size.
        """
        schedule, terms, seconds = zone.policy.schedule, standing.terms, zone.seconds
        before = zone.begins // seconds - 1
        block, size, opens = None, None, None
        assert terms is not None
        self.lost = False
        # before the first release of terms a start may begin earlier than the last one did
        until = terms.first * seconds
        if state.t > zone.policy.horizon:
            until = zone.ends
        elif schedule.lengths and standing.newest is not None:
            until = (before + schedule.span(state.t)[0]) * seconds
        if schedule.lengths and scale is not None:
            first, last = (before + t for t in schedule.span(state.t))
            open_block, opens = last_block(standing), first * seconds
            begun = first == open_block.get("first")
            mark = open_block["mark"] if begun else self._new_mark()
            block = NoiseBlock(terms.head, opens, scale, mark)
            if not begun and self._block is not None and block[:-1] == self._block[:-1]:
                block = self._block
            gaps = (gap for gap in standing.gaps if gap.seq > terms.seq)
            if not any(gap.first <= last and first <= gap.last for gap in gaps):
                size = self._size if self.alone and begun and block == self._block else None
                if size is None:
                    draw = None if begun else self._draw(first, scale, last - first + 1)
                    if not begun:
                        flush()
                    size = self._meters.noise_size(zone.id, block, draw)
            self.lost = size is None
            block = None if self.lost else block
        if not self._erased or (self._block, self._until) != (block, until):
            other_terms, self._swept = self._swept != terms.head, terms.head
            flush()
            self._meters.erase_noise(
                zone.id, terms.head, opens, until=until, other_terms=other_terms
            )
            self._block, self._until, self._erased = block, until, True
        self._size = size
        return size

    def _draw(self, first: int, scale: float, steps: int) -> Callable[[], int]:
        """Draws the M of a block."""
        source = self._noise
        if isinstance(source, Stepwise):
            source = source.of_block(first)
        return partial(source.draw_size, scale, steps)

    def _new_mark(self) -> int:
        """The mark of a new draw.

        A store may be put back, or follow its primary from behind, and hold the M of an earlier
        draw: two sizes in a block would lose twice.
        """
        return 1 if isinstance(self._noise, Stepwise) else 1 + secrets.randbits(52)
