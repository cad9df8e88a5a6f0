"""Slower after every failure; memory for so many at most."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable

KEPT = 10_000  # names remembered; the one that failed longest ago goes first


class Backoff:
    """Counts failures by name: after `free` of them a pause, twice as long after each further one.

    >>> now = [0.0]
    >>> slow = Backoff(lambda: now[0], free=2, first=1.0, most=60.0)
    >>> for _ in range(4): slow.failed("a")
    >>> slow.wait("a"), slow.wait("b")
    (2.0, 0.0)
    """

    def __init__(
        self,
        steady: Callable[[], float],
        *,
        free: int,
        first: float,
        most: float,
        kept: int = KEPT,
    ) -> None:
        self._steady, self._free, self._first, self._most = steady, free, first, most
        self._kept = kept
        self._seen: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()  # failures, until

    def wait(self, name: Hashable) -> float:
        """How long to wait before the next try [s]."""
        failures, until = self._seen.get(name, (0, 0.0))
        return max(until - self._steady(), 0.0) if failures > self._free else 0.0

    def failed(self, name: Hashable) -> None:
        """One more failure; what was long ago is forgotten."""
        now = self._steady()
        failures, until = self._seen.pop(name, (0, now))
        if now - until > 2 * self._most:
            failures = 0
        failures += 1
        pause = 0.0
        if failures > self._free:
            pause = min(self._first * 2.0 ** min(failures - self._free - 1, 60), self._most)
        self._seen[name] = (failures, now + pause)
        while len(self._seen) > self._kept:
            self._seen.popitem(last=False)

    def succeeded(self, name: Hashable) -> None:
        """All is forgiven."""
        self._seen.pop(name, None)


def neighbourhood(address: str | None) -> str:
    """What is counted as one sender: an IPv4 address, or the /64 of an IPv6 one.

    >>> neighbourhood("2001:db8::1:2:3:4"), neighbourhood("::ffff:192.0.2.7"), neighbourhood(None)
    ('2001:db8::', '192.0.2.7', '')
    """
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
    return str(found)
