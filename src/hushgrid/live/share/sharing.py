"""One curator among several: it says that it lives, takes its part of the zones, and lets go.

    sharing = Sharing(url, zones, name="north", pace=Pace.of(900))
    while ...:
        sharing.turn()        # raises LedgerError while the database is away
        ... run the zones of sharing.ready, and no others
    sharing.stop()

The loop is one thread and alone decides what to take. Another says that the process lives, however
long a pass of the loop takes, and ends the sessions of those who do not: what they locked may be
what the loop waits for.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.stores.shared import SharedLedger
from hushgrid.live.share.leases import Leases, marked
from hushgrid.live.share.rules import LeasePace, LeaseTable, plan

log = logging.getLogger("hushgrid.share")

HANGS = 300.0  # [s] without a turn of the loop, then the curator no longer says that it lives
REFUSED = 60.0  # [s] for which a lease that was given up is left to others


def since_start() -> float:
    """Seconds that never go back, with the time for which the machine was suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Sharing:
    """The leases of this process; `names` are the zones, and what else one of several does."""

    def __init__(
        self,
        url: str,
        zones: Iterable[str],
        more: Iterable[str] = (),
        *,
        name: str,
        pace: LeasePace,
        steady: Callable[[], float] = since_start,
    ) -> None:
        self.me = f"{name}-{secrets.token_hex(3)}"
        self.zones, self._more = frozenset(zones), frozenset(more)
        self.pace, self._steady = pace, steady
        self.store = SharedLedger(marked(url, self.me), self.me)
        self._leases = Leases(self.store, self.me, [*self.zones, *self._more], pace)
        self.seen = LeaseTable(0.0, (), {})
        self.ready: frozenset[str] = frozenset()  # what this process may do now
        self.surplus = 0  # how many others wait for
        self.taken = 0  # leases taken from others, who did not give them back
        self.moves = 0  # times that another database server took over
        self.lapses = 0  # times that others may have taken what was leased here
        self._word = -math.inf  # when the last beat that went through was begun
        self._server: str | None = None
        self._still = -math.inf  # until then nothing is taken or run: others put records back
        self._free: dict[str, float] = {}  # since when
        self._refused: dict[str, float] = {}  # until when
        self._joined, self._next, self._turned = math.inf, 0.0, steady()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="lease", daemon=True)

    def _join(self) -> None:
        """From now on others count on this one."""
        self._look_at_server()
        begun = self._steady()
        self._leases.join()
        self._spoke(begun)
        if not self._thread.is_alive() and not self._stop.is_set():
            self._thread.start()
        self._joined, self._next = self._steady(), 0.0
        self._free.clear()
        log.info("joined", extra={"curator": self.me})

    def _look_at_server(self) -> None:
        """After a fail-over wait for one lease: who has records that the standby lacks, writes."""
        before, now = self._server, self.store.server()
        first = before is None
        if (first and self.store.any_moved(self.zones)) or (
            not first and now is not None and now != before
        ):
            self.moves += 1
            self._still = self._steady() + self.pace.lease
            log.warning("another database server", extra={"curator": self.me})
        self._server = now or before

    @property
    def still(self) -> bool:
        """Whether to wait after a fail-over of the database."""
        return self._steady() < self._still

    def _spoke(self, begun: float) -> None:
        """The database took this curator's word: had the one before run out by then?"""
        if begun - self._word >= self.pace.lease:
            self.lapses += 1
        self._word = begun

    def turn(self) -> bool:
        """Look around, if it is time, and take what is due to this curator; whether it did."""
        self._turned = self._steady()
        if not self.store.connected:
            self.ready, self._joined = frozenset(), math.inf
            self.store.connect()
        if self._joined == math.inf:
            self._join()
        if not self.time_to_look():
            return False
        self.seen = self._look()
        self._take(self._steady())
        self._lock()
        self._next = self._steady() + self.pace.beat
        return True

    def look_soon(self) -> None:
        """Look around in the next turn."""
        self._next = 0.0

    def time_to_look(self) -> bool:
        """Whether a beat has passed since this curator looked around."""
        return self._steady() >= self._next

    def _look(self) -> LeaseTable:
        seen = self._leases.look()
        if self.me not in seen.living:  # others took this one for dead
            self.lapses += 1
            begun = self._steady()
            self._leases.join()
            self._spoke(begun)
            seen = self._leases.look()
        return seen

    def _take(self, now: float) -> None:
        for name in set(self._free) - set(self.seen.free):
            del self._free[name]
        for name in self.seen.free:
            self._free.setdefault(name, now)
        if now - self._joined < self.pace.settled or self.still:
            self.surplus = 0
            return
        overdue = {name for name, since in self._free.items() if now - since > self.pace.lease}
        refused = {name for name, until in self._refused.items() if now < until}
        wanted = plan(self.seen, self.me, overdue, refused)
        self.surplus = wanted.give
        self._keep(self._leases.take(wanted.take, self.seen))

    def take_all(self) -> list[str]:
        """Take everything, unless another curator lives: then who that is."""
        self._join()
        self.seen = self._look()
        others = sorted(self.seen.living - {self.me})
        if not others:
            self._keep(self._leases.take(list(self.seen.leases), self.seen))
            self._lock()
        return others

    def _keep(self, taken: frozenset[str]) -> None:
        if not taken:
            return
        before = self.seen.leases
        self.taken += sum(before[name] is not None for name in taken)
        leases = {**before, **dict.fromkeys(taken, self.me)}
        self.seen = LeaseTable(self.seen.now, self.seen.peers, leases)
        log.info("leases taken", extra={"curator": self.me, "zones": len(taken)})

    def _lock(self) -> None:
        """A lease alone is not enough: the old writer's session may not have ended yet."""
        mine = self.seen.of(self.me)
        self.ready = self.store.lock(mine & self.zones) | (mine & self._more)

    def owner(self, zone: str) -> str:
        """Who runs a zone; nobody where that is nobody living."""
        found = self.seen.leases.get(zone)
        return found if found is not None and found in self.seen.living else ""

    def give(self, names: Iterable[str], *, refuse: bool = False) -> None:
        """Leave to others what is closed here already."""
        some = list(names)
        for name in some:
            self.store.unlock(name)
            if refuse:
                self._refused[name] = self._steady() + REFUSED
        self.ready -= set(some)
        self._leases.give(some)
        leases = {**self.seen.leases, **dict.fromkeys(some, None)}
        self.seen = LeaseTable(self.seen.now, self.seen.peers, leases)
        log.info("leases given back", extra={"curator": self.me, "zones": len(some)})

    def leave(self) -> None:
        """Give all back, and be counted no more: others need not wait."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)
        for zone in self.ready & self.zones:
            self.store.unlock(zone)
        self.ready = frozenset()
        try:
            self._leases.leave()
        except LedgerError:  # then the leases end by themselves
            log.warning("leases not given back", extra={"curator": self.me})

    def stop(self) -> None:
        """Leave, and close the session."""
        if self._joined < math.inf:
            self.leave()
        self.store.close()

    def _live(self) -> None:
        while not self._stop.wait(self.pace.beat):
            if self._steady() - self._turned > HANGS:
                continue
            with suppress(LedgerError):  # the loop finds out, too
                if self.store.connected:
                    begun, joined = self._steady(), self._joined < math.inf
                    self._leases.beat()
                    if joined and self._joined < math.inf:  # not a session that has not joined
                        self._spoke(begun)
