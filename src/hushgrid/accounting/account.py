"""What has been published, and may still be published, about a house: the account of a promise.

    account = Account.interval(law=(-0.85, -0.85))
    after = account.admit(0.3, inward, promise=1.0)  # None: the block must not be published

An account is carried from block to block of steps; nothing older is looked up. It is a value:
`admit` returns the account after a block and leaves the one before as it is. It never admits a
block with which the promise about a step of it, or a promise made before, could be broken.

`Account.interval` is about the state of a house at one step, from all releases, under one chain of
occupancy. `Account.window` is about everything that a house does in any consecutive steps, and
needs no model. Proofs: docs/proofs/account.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._frames import DataTable, Tabular
from hushgrid._numbers import Floats, count_of
from hushgrid.errors import PolicyError

TOLERANCE = 1e-9  # of a promise or a loss: what rounding may add to it
BLOCKS = 64  # that a window account lists; older ones are merged


class Account:
    """Makes the two kinds of accounts. Both have `admit` and `most` (docs/proofs/account.md)."""

    @staticmethod
    def interval(law: tuple[ArrayLike, ArrayLike] = (-np.inf, np.inf)) -> IntervalAccount:
        """The account of houses about which nothing has been published.

        Args:
            law: Smallest and largest log odds of being at home at the first step, by the model
                alone; () each, or (classes,). The default assumes nothing.

        Returns:
            The account.

        Raises:
            PolicyError: If the first is above the second, or one of them is not a number.
        """
        low, high = np.broadcast_arrays(*(np.asarray(end, np.float64) for end in law))
        if not (low <= high).all():
            raise PolicyError(f"law is {law}; give the smaller log odds first.")
        zeros = np.zeros(low.shape)
        return IntervalAccount(zeros, zeros + np.inf, low.copy(), high.copy())

    @staticmethod
    def window(steps: int, epsilon: float, since: int = 0) -> WindowAccount:
        """The account of a house about which nothing has been published.

        Args:
            steps: W, the consecutive steps of a window.
            epsilon: The most that all releases may lose about any such window.
            since: The first step that a window may begin with.

        Returns:
            The account.

        Raises:
            PolicyError: If `steps` is below 1, or epsilon is not a finite number above 0.
        """
        return WindowAccount((_promise(steps, epsilon, since),))


# ---- one step, all releases


@dataclass(frozen=True, slots=True, eq=False)
class IntervalAccount:
    """What all releases so far say about the last step of the last block, and what may follow.

    Figures have the shape () for one class of houses under one model, or (classes,).

    >>> chain = [[0.9, 0.1], [0.2, 0.8]]
    >>> odds = np.log(3 / 7)
    >>> account = Account.interval(law=(odds, odds)).admit(0.5, [np.eye(2)], promise=1.0)
    >>> round(float(account.most([chain], 1.0, room=0.3)), 6)
    0.347922
    >>> account.admit(0.7, [chain], promise=1.0) is None
    True

    Attributes:
        known: b, the largest log-likelihood ratio of all outputs between the two states there.
        room: psi, the most that later outputs may say about that step.
        low: Smallest log odds of the law of that step before any output.
        high: Largest log odds of it.
    """

    known: Floats
    room: Floats
    low: Floats
    high: Floats

    def __repr__(self) -> str:
        if not self.known.size:
            return "IntervalAccount(no classes)"
        largest, room = self.known.max(), self.room.min()
        return f"IntervalAccount({self.known.size} classes, known<={largest:.6g}, room>={room:.6g})"

    @property
    def law(self) -> tuple[Floats, Floats]:
        """Smallest and largest log odds of the law of the last step before any output."""
        return self.low, self.high

    def admit(
        self, loss: ArrayLike, inward: ArrayLike, promise: ArrayLike
    ) -> IntervalAccount | None:
        """The account after a block; None where a promise could be broken.

        Args:
            loss: e, the largest log-ratio of the block's outputs for any two courses inside it; 0:
                only public forecasts. () or (classes,).
            inward: (L, 2, 2) or (classes, L, 2, 2): for each step of the block the chances of its
                states (columns) given the state at the step before it (rows). The first leads from
                the last step of the block before; it is the identity in a house's first block.
            promise: P, the promise about each step; (), (L,) or (classes, L). Infinite: none.

        Returns:
            The account; None where one class does not admit the block.

        Raises:
            PolicyError: If the loss is below 0 or not a number, or the matrices have another shape.
        """
        from hushgrid._kernels.account import admitted

        if not (np.asarray(loss) >= 0).all():
            raise PolicyError(f"loss is {np.asarray(loss)}; give 0 or more.")
        figures, matrices, promises = self._rows(inward, promise)
        losses = np.broadcast_to(np.asarray(loss, np.float64), len(figures))
        after = admitted(figures, losses, matrices, promises, TOLERANCE)
        return None if after is None else IntervalAccount(*self._columns(after.T))

    def most(self, inward: ArrayLike, promise: ArrayLike, room: ArrayLike) -> Floats:
        """The largest loss of a block that leaves room for what follows.

        Args:
            inward: As in `admit`.
            promise: As in `admit`.
            room: What later outputs shall still be allowed to say about the block's last step; ()
                or (classes,).

        Returns:
            () or (classes,); below 0 where not even forecasts alone leave so much.
        """
        from hushgrid._kernels.account import largest

        figures, matrices, promises = self._rows(inward, promise)
        rooms = np.broadcast_to(np.asarray(room, np.float64), len(figures))
        return next(self._columns([largest(figures, matrices, promises, rooms)]))

    def lost(
        self, loss: ArrayLike, inward: ArrayLike, promise: ArrayLike, room: ArrayLike
    ) -> IntervalAccount:
        """The account after a block that may have been published, and whose record is lost.

        >>> odds = np.log(3 / 7)
        >>> account = Account.interval(law=(odds, odds)).admit(0.5, [np.eye(2)], promise=1.0)
        >>> account = account.lost(0.5, [[[0.9, 0.1], [0.2, 0.8]]], promise=1.0, room=0.3)
        >>> round(float(account.known), 6), round(float(account.room), 6)
        (0.852078, 0.3)

        Args:
            loss: What the plan would have spent on it, once more for each time its noise may have
                been drawn anew; () or (classes,).
            inward: As in `admit`.
            promise: As in `admit`: the publisher admitted the block under it. Infinite for a block
                whose noise may have been drawn anew, and for those after it: who drew anew did not
                count what was said before.
            room: What the publisher always left for later blocks; 0 where that is not known.

        Returns:
            The account, whether the block was admitted or not.
        """
        from hushgrid._kernels.account import after_loss

        figures, matrices, promises = self._rows(inward, promise)
        losses, rooms = (
            np.broadcast_to(np.asarray(value, np.float64), len(figures)) for value in (loss, room)
        )
        after = after_loss(figures, losses, matrices, promises, rooms)
        return IntervalAccount(*self._columns(after.T))

    def merged(self, *accounts: IntervalAccount) -> IntervalAccount:
        """One account that holds for every class of these accounts: a class alone, shape ().

        >>> odds = np.log(3 / 7)
        >>> first = Account.interval(law=(odds, odds)).admit(0.5, [np.eye(2)], promise=1.0)
        >>> second = first.admit(0.347922, [[[0.9, 0.1], [0.2, 0.8]]], promise=1.0)
        >>> first.merged(second)
        IntervalAccount(1 classes, known<=0.7, room>=0.3)
        >>> [round(float(end), 6) for end in first.merged(second).law]
        [-0.847298, -0.800119]

        Args:
            accounts: The accounts of the other classes.

        Returns:
            The account: the largest that is known, the least room and the hull of the laws.
        """
        merged_accounts = (self, *accounts)
        known, room, low, high = (
            np.concatenate([np.ravel(getattr(account, name)) for account in merged_accounts])
            for name in ("known", "room", "low", "high")
        )
        figures = (known.max(), room.min(), low.min(), high.max())
        return IntervalAccount(*(np.asarray(figure) for figure in figures))

    def under_other_model(self) -> IntervalAccount:
        """The account of the same houses under a model that says nothing about the steps so far.

        The old model was true in its time, but the law that it gave the last step is not used.

        >>> odds, chain = np.log(3 / 7), [[0.9, 0.1], [0.2, 0.8]]
        >>> account = Account.interval(law=(odds, odds)).admit(1.0, [np.eye(2)], promise=2.0)
        >>> round(float(account.admit(0.0, [chain], promise=2.0).known), 6)
        0.706736
        >>> account = account.under_other_model()
        >>> round(float(account.admit(0.0, [chain], promise=2.0).known), 6)
        0.70704

        Returns:
            The account.
        """
        return replace(
            self, low=np.full_like(self.low, -np.inf), high=np.full_like(self.high, np.inf)
        )

    def disowned(self) -> IntervalAccount:
        """The account where no model of the steps so far is believed: all may be known.

        What may still be said about these steps stays as it was.

        >>> account = Account.interval().admit(0.5, [np.eye(2)], promise=1.0).disowned()
        >>> account
        IntervalAccount(1 classes, known<=inf, room>=0.5)
        >>> chain = [[0.9, 0.1], [0.2, 0.8]]
        >>> account.admit(0.0, [chain], promise=1.0) is None
        True
        >>> round(float(account.admit(0.0, [chain], promise=np.inf).known), 6)
        3.583519

        Returns:
            The account.
        """
        return replace(self.under_other_model(), known=np.full_like(self.known, np.inf))

    def _rows(self, inward: ArrayLike, promise: ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Figures (classes, 4), matrices (classes or 1, L, 2, 2) and promises (classes, L)."""
        figures = np.stack([self.known, self.room, self.low, self.high], -1).reshape(-1, 4)
        a = np.asarray(inward, np.float64)
        if a.ndim not in (3, 4) or a.shape[-2:] != (2, 2) or not a.shape[-3]:
            raise PolicyError(f"inward has the shape {a.shape}; give (L, 2, 2), L from 1 on.")
        a = np.ascontiguousarray(a.reshape(-1, *a.shape[-3:]))
        if len(a) not in (1, len(figures)):
            raise PolicyError(f"inward is for {len(a)} classes; give {len(figures)}, or one.")
        shape = len(figures), a.shape[1]
        return figures, a, np.array(np.broadcast_to(np.asarray(promise, np.float64), shape))

    def _columns(self, rows: Sequence[Floats] | Floats) -> Iterator[Floats]:
        return (np.reshape(row, self.known.shape) for row in rows)


# ---- any window of steps


class WindowPromise(NamedTuple):
    """A promise about every window of consecutive steps that begins at or after a step.

    Attributes:
        steps: W, the steps of a window.
        epsilon: The most that all releases lose about one.
        since: The first step that a window may begin with.
        last: The last published step before a newer promise; None while there is none. The promise
            is in force for the windows that hold it or an earlier step.
    """

    steps: int
    epsilon: float
    since: int
    last: int | None = None

    def binds(self, first: int) -> bool:
        """Whether a block whose readings begin with this step is in one of its windows."""
        return self.last is None or first - self.steps + 1 <= self.last

    def loss(self, blocks: Sequence[SpentBlock], first: int) -> float:
        """The losses of the blocks in the window that ends with this step."""
        opens = first - self.steps + 1
        return math.fsum(
            block.loss for block in blocks if block.last >= opens and block.first >= self.since
        )


class SpentBlock(NamedTuple):
    """A block that still counts.

    Attributes:
        first: The first step whose readings may have entered it.
        last: Its last published step.
        loss: e.
    """

    first: int
    last: int
    loss: float


@dataclass(frozen=True, slots=True)
class WindowAccount(Tabular):
    """What the blocks so far have lost, as far as a window of a promise in force can hold them.

    >>> account = Account.window(steps=97, epsilon=1.0)
    >>> for k in range(5):
    ...     account = account.admit(0.2, first=24 * k, last=24 * k + 23)
    >>> account.admit(0.2, first=119, last=142) is None
    True
    >>> account.admit(0.2, first=120, last=143) is None
    False

    Attributes:
        promises: The promises in force, oldest first.
        blocks: The blocks that still count, oldest first; at most `BLOCKS`.
    """

    promises: tuple[WindowPromise, ...]
    blocks: tuple[SpentBlock, ...] = ()

    def __repr__(self) -> str:
        terms = ", ".join(
            f"{promise.epsilon:g} in {promise.steps} steps" for promise in self.promises[-2:]
        )
        return f"WindowAccount({terms}; {count_of('block', len(self.blocks))})"

    def _table(self) -> DataTable:
        """A row a block that still counts: its steps and its loss."""
        columns = {name: [getattr(b, name) for b in self.blocks] for name in SpentBlock._fields}
        return DataTable("block", range(1, len(self.blocks) + 1), columns)

    def admit(self, loss: float, first: int, last: int) -> WindowAccount | None:
        """The account after a block; None where a window could lose more than is promised.

        Args:
            loss: e, the largest log-ratio of the block's outputs for any two courses of readings.
            first: The first step whose readings may enter it; after the last block's first one.
            last: Its last step; `first` or later.

        Returns:
            The account, or None.

        Raises:
            PolicyError: If the loss is below 0, or the steps are out of order.
        """
        if not loss >= 0:
            raise PolicyError(f"loss is {loss}; give 0 or more.")
        if last < first or (self.blocks and first < self.blocks[-1].first):
            raise PolicyError(f"block from step {first} to {last} is out of order; give the next.")
        least = min((promise.epsilon for promise in self.promises), default=0.0)
        if loss > self.most(first) + TOLERANCE * least:
            return None
        promises = tuple(promise for promise in self.promises if promise.binds(first))
        reach = max((promise.steps for promise in promises), default=0)
        blocks = [block for block in self.blocks if block.last >= first - reach + 1]
        if loss > 0:
            blocks.append(SpentBlock(first, last, loss))
        return WindowAccount(promises, _at_most(blocks))

    def with_lost(self, loss: float, first: int, last: int) -> WindowAccount:
        """The account after a block that may have been published, and whose record is lost.

        Args:
            loss: What the plan would have spent on it, once more for each time its noise may have
                been drawn anew.
            first: As in `admit`.
            last: As in `admit`.

        Returns:
            The account, whether the block was admitted or not.
        """
        blocks = sorted((*self.blocks, SpentBlock(first, last, loss)))
        return replace(self, blocks=_at_most(blocks))

    def most(self, first: int) -> float:
        """The largest loss of a block whose readings begin with a step.

        Args:
            first: The first step whose readings may enter it.

        Returns:
            The loss; 0 where nothing is left, infinite where no promise is in force.
        """
        rooms = [
            promise.epsilon - promise.loss(self.blocks, first)
            for promise in self.promises
            if promise.binds(first)
        ]
        return max(min(rooms, default=math.inf), 0.0)

    def under(self, steps: int, epsilon: float, since: int) -> WindowAccount:
        """The account under another promise, for windows that begin at a step or later.

        Promises before it stay in force for windows that hold a block published under them.

        Args:
            steps: W of the new promise.
            epsilon: Its epsilon.
            since: The first step that its windows may begin with; after all blocks so far begin.

        Returns:
            The account.

        Raises:
            PolicyError: If the promise is not valid, or a block begins at `since` or later.
        """
        new = _promise(steps, epsilon, since)
        if self.blocks and since <= self.blocks[-1].first:
            raise PolicyError(f"since is {since}; give a step after those published.")
        # where nothing was published under a promise it binds nothing
        return replace(self, promises=(*self.ended().promises, new))

    def ended(self) -> WindowAccount:
        """The account where no promise about windows follows: those made stay in force."""
        published = max((block.last for block in self.blocks), default=None)
        marked = (
            promise if promise.last is not None else promise._replace(last=published)
            for promise in self.promises
        )
        return replace(
            self, promises=tuple(follower for follower in marked if follower.last is not None)
        )

    def merged(self, account: WindowAccount) -> WindowAccount:
        """The account of houses of which some have one list of blocks and others another.

        A block that one list has twice was drawn twice, and stays twice. The promise that is in
        force here stays the last.
        """
        blocks = sorted((Counter(self.blocks) | Counter(account.blocks)).elements())
        promises = tuple(dict.fromkeys((*account.promises, *self.promises)))
        return WindowAccount(promises, _at_most(blocks))


def _at_most(blocks: list[SpentBlock]) -> tuple[SpentBlock, ...]:
    """At most `BLOCKS` of them, in order: the oldest are merged into the next."""
    while len(blocks) > BLOCKS:
        older, newer = blocks[:2]
        last = max(older.last, newer.last)
        blocks[:2] = [SpentBlock(newer.first, last, older.loss + newer.loss)]
    return tuple(blocks)


def _promise(steps: int, epsilon: float, since: int) -> WindowPromise:
    if steps < 1:
        raise PolicyError(f"window has {steps} steps; give 1 or more.")
    if not (0 < epsilon < np.inf):
        raise PolicyError(f"epsilon is {epsilon}; give a number above 0.")
    return WindowPromise(int(steps), float(epsilon), int(since))
