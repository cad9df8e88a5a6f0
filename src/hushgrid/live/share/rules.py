"""Who should take which lease, and who should give some back. Pure: the clock is in what is seen.

All curators judge by the same rules on what each has seen, so that they reach for different
leases; where two reach for one all the same, the database lets one have it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class LeasePace(NamedTuple):
    """How often a curator says that it lives, and how long that holds [s].

    >>> Pace.of(2), Pace.of(900)
    (Pace(beat=0.25, lease=2.0), Pace(beat=2.0, lease=16.0))
    """

    beat: float
    lease: float

    @classmethod
    def of(cls, seconds: int) -> LeasePace:
        """For intervals of so many seconds: what a dead curator left is taken within one."""
        lease = min(max(float(seconds), 2.0), 16.0)
        return cls(lease / 8, lease)

    @property
    def settled(self) -> float:
        """How long a curator that joins waits for others who join as well [s]."""
        return 2 * self.beat


@dataclass(frozen=True, slots=True)
class Peer:
    """A curator: `service` says of which zones, `until` how long its word holds [s].

    `connected`: whether its session with the database is there.
    """

    id: str
    service: str
    until: float
    connected: bool = True

    def lives(self, now: float) -> bool:
        """Whether its leases are its own."""
        return self.connected and now < self.until


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """All curators and leases (their curators, or None) at a time of the database's clock [s]."""

    now: float
    peers: tuple[Peer, ...]
    leases: Mapping[str, str | None]

    @property
    def living(self) -> frozenset[str]:
        """The curators whose leases hold."""
        return frozenset(peer.id for peer in self.peers if peer.lives(self.now))

    def peers_of(self, me: str) -> list[str]:
        """The living curators of the same zones, me among them."""
        own = next((peer.service for peer in self.peers if peer.id == me), None)
        some = {p.id for p in self.peers if p.lives(self.now) and p.service == own}
        return sorted(some | {me})

    @property
    def free(self) -> list[str]:
        """Leases that nobody living has, in order."""
        living = self.living
        return sorted(name for name, owner in self.leases.items() if owner not in living)

    def of(self, curator: str) -> frozenset[str]:
        """The leases of a curator."""
        return frozenset(name for name, owner in self.leases.items() if owner == curator)


class LeasePlan(NamedTuple):
    """Leases to reach for, and how many to give back."""

    take: tuple[str, ...] = ()
    give: int = 0


def plan(
    seen: LeaseTable, me: str, overdue: Collection[str] = (), refused: Collection[str] = ()
) -> LeasePlan:
    """What a curator should do now.

    Nobody takes more than an equal share, rounded up; those with least take first. `overdue` are
    leases that were free for long: somebody does not do his part, so they are taken beyond the
    share. `refused`: what this one cannot run just now.

    >>> plan(Seen(0.0, (Peer("a", "", 1.0), Peer("b", "", 1.0)), dict.fromkeys("xyz")), "b")
    Plan(take=('y',), give=0)
    """
    peers = seen.peers_of(me)
    held = Counter(owner for owner in seen.leases.values() if owner in peers)
    most = math.ceil(len(seen.leases) / len(peers))
    take = [name for name in _reach(seen.free, peers, held, most, me) if name not in refused]
    take += [name for name in seen.free if name in overdue and name not in (*take, *refused)]
    room = sum(max(most - held[peer], 0) for peer in peers if peer != me)
    return LeasePlan(tuple(take), min(max(held[me] - most, 0), room))


def _reach(
    free: Sequence[str], peers: Sequence[str], held: Counter[str], most: int, me: str
) -> Sequence[str]:
    """My part of what is free: one after the other goes to whoever has least."""
    count = {peer: held[peer] for peer in peers}
    mine = []
    for name in free:
        needy = min(peers, key=lambda peer: (count[peer], peer))
        if count[needy] >= most:
            break
        count[needy] += 1
        if needy == me:
            mine.append(name)
    return mine
