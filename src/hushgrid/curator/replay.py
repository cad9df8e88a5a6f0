"""A ledger replayed: the mechanism's state, public knowledge, and spending.

Everything here is public: it follows from the ledger and the zone file.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hushgrid.belief.followed import (
    Begun,
    EarlierRelease,
    FollowedKnowledge,
    Knowledge,
    followed_from,
    informed,
)
from hushgrid.curator.terms import digest_of, first_state
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.release import (
    State,
    check_terms,
    first_public,
    replay,
    skip,
)
from hushgrid.stores.ledger.checkpoint import Checkpoint, decode
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.state import LedgerState


class PublicReplay:
    """What the public knows of a zone after releases that are taken in order.

    Args:
        service: The zone over a week.
        earlier: Releases before it, in order.

    Attributes:
        knowledge: Belief about occupancy, and the step it is about.
        rates: The rate published at each step of the week so far [currency/kWh].
    """

    def __init__(self, service: ZoneService, earlier: Sequence[ReleaseRecord] = ()) -> None:
        scenario = service.scenario
        self._first, self._fallback = service.begins // service.seconds, service.fallback_rate
        world = (scenario.models, scenario.consumption, service.policy, service.days)
        self.knowledge = with_earlier_releases(
            service.id, first_public(*world), earlier, self._first
        )
        self.rates: list[float] = []

    def reach(self, t: int) -> None:
        """Advance to the zone's step t; the last rate stays where nothing was published."""
        rate = self.rates[-1] if self.rates else self._fallback
        self._pass(rate, t - self._first - len(self.rates))

    def take(self, release: ReleaseRecord, learned: Knowledge | None = None) -> None:
        """Learn from the next release.

        Args:
            release: The release.
            learned: What the public knows after it, where that was computed already.
        """
        self.reach(release.t)
        if release.source != "readings":
            self._pass(release.rate)
            return
        if learned is None:
            knowledge = informed(self.knowledge, release.covariates)
            learned = knowledge.after(release.load_hat, release.scale, self.rates)
        self.knowledge = learned
        self.rates.append(release.rate)

    def _pass(self, rate: float, steps: int = 1) -> None:
        if steps > 0:
            self.knowledge = self.knowledge.passed(steps)
            self.rates += [rate] * steps


def add_rates(
    rates: list[float], releases: Iterable[ReleaseRecord], first: int, fallback: float
) -> None:
    """Add the rate of every step up to the last of some releases; the last rate stays in between.

    Args:
        rates: Rates of the week's steps so far [currency/kWh]; changed in place.
        releases: The next releases.
        first: The zone's step that the week begins with.
        fallback: The rate before the first release.
    """
    for record in releases:
        release = record.release
        last = rates[-1] if rates else fallback
        rates += [last] * (release.t - first - len(rates))
        rates.append(release.rate)


class Replay:
    """The state of a week after a ledger's records; used by curator, feeds and commands.

    `follow` takes the records that are new. The state is made when it is needed, and public
    knowledge that the state lacks when a forecast needs it: it takes by far the longest. Only an
    audit does not use it: it recomputes a record on its own, so that a fault here is not repeated
    there.

    Args:
        service: The zone over that week.
        former: The replay of the week before, under the same terms: public knowledge goes on from
            what it began with.

    Attributes:
        service: The same.
    """

    def __init__(self, service: ZoneService, former: Replay | None = None) -> None:
        self.service, self._first = service, service.begins // service.seconds
        # this week, or the former one
        self._begun: Begun | None = None if former is None else former._begun
        self._standing: LedgerState | None = None
        self._taken, self._last = 0, ""  # releases taken, and the digest of the last one
        self._public: PublicReplay | None = None
        self._state: State | None = None
        self._pending = deque[ReleaseRecord]()  # that the state does not have
        self._unread = deque[ReleaseRecord]()  # that public knowledge does not have

    def follow(self, standing: LedgerState, after: State | None = None) -> Self:
        """Take the releases that are new.

        Args:
            standing: The zone's ledger state.
            after: The state that `mechanism.step` left, where its release is the one that is new.

        Returns:
            This.
        """
        releases = standing.current_from(self._first)
        last = releases[self._taken - 1].head if 0 < self._taken <= len(releases) else ""
        former, self._standing = self._standing, standing
        has_terms = former is not None and former.terms == standing.terms
        if not has_terms or last != self._last:
            if former is not None:
                self._begun = None
            self._taken, self._last = 0, ""
            self._public, self._state = None, None
            self._pending, self._unread = deque(), deque()
        new = releases[self._taken :]
        self._pending.extend(new)
        self._unread.extend(new)
        if new:
            self._taken, self._last = len(releases), new[-1].head
        if after is not None and self._state is not None and len(self._pending) == 1:
            self._state = after
            self._pending.clear()
        return self

    def copy(self) -> Replay:
        """An independent copy."""
        twin = copy(self)
        twin._pending, twin._unread = deque(self._pending), deque(self._unread)
        if self._public is not None:
            twin._public = copy(self._public)
            twin._public.rates = list(self._public.rates)
        return twin

    @property
    def state(self) -> State:
        """The mechanism's, before the step that is next.

        Raises:
            LedgerError: The ledger has no terms.
            PolicyError: The releases are of other terms than the zone's.
        """
        standing = self._standing
        if standing is None or standing.terms is None:
            raise LedgerError(
                f"the ledger of zone {self.service.id!r} has no terms; open it again."
            )
        if self._state is None:
            self._state = initial_state(self.service, standing, begun=self._begun)
            public = self._state.public
            self._begun = None if public is None else Begun(self._first, public)
        if self._state.public is None:
            self._state = self._with_rates(self._state)
        while self._pending:
            release = self._pending[0]
            state = self._before(self._state, release.t)
            if release.source == "readings":
                state = replay(state, release.in_week(self._first))
            else:
                state = skip(state, release.rate)
            self._state = state
            self._pending.popleft()
        return self._state

    def _with_rates(self, state: State) -> State:
        """The state after all releases where only their rates matter."""
        rates = list(state.rates)
        for release in self._pending:
            if release.source == "readings":
                state = check_terms(state, release.digest)
        add_rates(rates, self._pending, self._first, self.service.fallback_rate)
        self._pending.clear()
        return replace(state, rates=tuple(rates))

    def _before(self, state: State, t: int) -> State:
        """The state before the zone's step t; steps without a release keep the last rate."""
        steps = t - self._first - len(state.rates)
        rate = state.rates[-1] if state.rates else self.service.fallback_rate
        return skip(state, rate, steps) if steps > 0 else state

    @property
    def public(self) -> Knowledge:
        """What is known before the step that is next."""
        state = self.state
        if state.public is not None:
            return state.public
        public = self._reader()
        while self._unread:
            self._learn_next()
        public.reach(self._first + len(state.rates))
        return public.knowledge

    def _reader(self) -> PublicReplay:
        if self._public is None:
            assert self._standing is not None
            self._public = PublicReplay(self.service, releases_before(self._standing, self._first))
        return self._public

    def _learn_next(self) -> None:
        self._reader().take(self._unread[0])
        self._unread.popleft()

    def reach(self, t: int) -> None:
        """Advance to the zone's step t; steps before it without a release stay without one."""
        self._state = self._before(self.state, t)

    def learn(self, releases: int) -> None:
        """Take at most so many releases into public knowledge, so that a forecast need not."""
        if self.state.public is None:
            for _ in range(min(releases, len(self._unread))):
                self._learn_next()

    def to_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The state after the last release, by name, bit for bit; all of it is public.

        Public knowledge is left out where the state does not need it and `learn` has not taken all
        releases.

        Returns:
            None before the first release, and after steps without one.
        """
        state, standing = self.state, self._standing
        current = standing.current_from(self._first) if standing else ()
        if not current or self._first + state.t != current[-1].t + 2:
            return None
        public = state.public
        if public is None and self._public is not None and not self._unread:
            public = self._public.knowledge
        knowledge = {} if public is None or public.t != state.t else public.to_arrays()
        return {"rates": _digest(state.rates), **knowledge}

    def resume(self, checkpoint: Checkpoint) -> bool:
        """Take the state after a release from a checkpoint; only what follows is replayed.

        Rates are those of the records, whatever the checkpoint has.

        Args:
            checkpoint: Its signature is verified; its state is that of `to_arrays`.

        Returns:
            Whether it has the state of this week after that release; else nothing has changed.
        """
        standing = self._standing
        assert standing is not None
        current = standing.current_from(self._first)
        n = bisect_right(current, checkpoint.seq, key=lambda release: release.seq)
        earlier, later = current[:n], current[n:]
        last = (earlier[-1].seq, earlier[-1].head) if earlier else None
        if checkpoint.terms != digest_of(self.service) or last != (checkpoint.seq, checkpoint.head):
            return False
        arrays = decode(checkpoint.state)
        public = PublicReplay(self.service)  # what it knows is in the checkpoint
        state = initial_state(self.service, standing, followed=False)
        add_rates(public.rates, earlier, self._first, self.service.fallback_rate)
        learned = "weights" in arrays
        if not (learned or state.public is None) or "rates" not in arrays:
            return False
        try:
            agree = np.array_equal(arrays["rates"], _digest(public.rates))
            if learned:
                public.knowledge = public.knowledge.from_arrays(arrays)
        except (KeyError, ValueError):
            return False
        if not agree or (learned and public.knowledge.t != len(public.rates) + 1):
            return False
        state = replace(state, rates=tuple(public.rates))
        self._state = state if state.public is None else replace(state, public=public.knowledge)
        self._pending = deque(later)
        if learned:
            self._public, self._unread = public, deque(later)
        return True


def last_block(standing: LedgerState) -> Mapping[str, int]:
    """The block of steps whose loss was booked last under the present terms.

    Args:
        standing: The zone's ledger state.

    Returns:
        What the last release from readings states of its block; empty without one.
    """
    last = last_release(standing)
    return {} if last is None else last.block or {}


def last_release(standing: LedgerState) -> ReleaseRecord | None:
    """The last release from readings under the present terms.

    Args:
        standing: The zone's ledger state.

    Returns:
        The release; None before any.
    """
    since = 0 if standing.terms is None else standing.terms.seq
    for release in reversed(standing.releases):
        if release.seq < since or release.source == "readings":
            return release if release.seq > since else None
    return None


def _digest(rates: Iterable[float]) -> NDArray[np.uint8]:
    digest = hashlib.sha256(np.array(tuple(rates), np.float64).tobytes()).digest()
    return np.frombuffer(digest, np.uint8)


def initial_state(
    service: ZoneService,
    standing: LedgerState,
    *,
    followed: bool = True,
    begun: Begun | None = None,
) -> State:
    """The mechanism's state before the first step of a week.

    Args:
        service: The zone over that week.
        standing: The zone's ledger state.
        followed: Whether public knowledge has the releases before the week.
        begun: An earlier week of the same terms: what that had is not followed again.

    Returns:
        The state, from which the week's releases are replayed.
    """
    state, first = first_state(service), service.begins // service.seconds
    if followed and state.public is not None:
        earlier = releases_before(standing, first)
        state = replace(
            state, public=with_earlier_releases(service.id, state.public, earlier, first, begun)
        )
    return state


def releases_before(standing: LedgerState, first: int) -> Sequence[ReleaseRecord]:
    """The releases before a week of the present terms.

    Args:
        standing: The zone's ledger state.
        first: The first step of the week.

    Returns:
        The releases in order.
    """
    return standing.releases[: len(standing.releases) - len(standing.current_from(first))]


def with_earlier_releases(
    zone: str,
    public: Knowledge,
    earlier: Sequence[ReleaseRecord],
    first: int,
    begun: Begun | None = None,
) -> Knowledge:
    """Public knowledge before a week's first step, where it follows releases.

    An estimator that follows releases goes on from week to week, from the last steps of another
    length on.

    Args:
        zone: The zone's name.
        public: As the zone's terms begin it.
        earlier: Releases before the week, in order.
        first: The zone's step that the week begins with.
        begun: An earlier week of the same terms: what that had is not followed again.

    Returns:
        The knowledge with what those releases say; unchanged by the model alone.
    """
    if not isinstance(public, FollowedKnowledge):
        return public
    seconds, releases = round(public.days.hours * 3600), deque[EarlierRelease]()
    since, before = followed_from(zone, first, seconds, begun)
    for release in reversed(earlier):
        if release.start != release.t * seconds or release.start < since:
            break
        if release.source == "readings" and release.base is not None and release.t < first:
            estimates = (
                release.load_hat,
                release.scale,
                release.base,
                release.model_share or 0.0,
                release.covariates or {},
            )
            releases.appendleft(EarlierRelease(release.t - first + 1, *estimates, release.block))
    return public.continued(releases, before)
