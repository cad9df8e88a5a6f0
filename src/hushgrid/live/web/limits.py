"""How many requests a sender may make: a bucket each, for so many senders at most."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network

from hushgrid.live.access.backoff import neighbourhood

BURST = 5.0  # [s] of its rate that a sender may save up
KEPT = 10_000  # senders remembered; the one quiet for longest goes first


class Buckets:
    """Token buckets by name.

    >>> now = [0.0]
    >>> buckets = Buckets(2.0, lambda: now[0])
    >>> [buckets.take("a") for _ in range(10)] == [0.0] * 10
    True
    >>> buckets.take("a"), buckets.take("b")
    (0.5, 0.0)
    """

    def __init__(self, rate: float, steady: Callable[[], float], kept: int = KEPT) -> None:
        self._rate, self._steady, self._kept = rate, steady, kept
        self._most = max(rate * BURST, 1.0)
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, when

    def take(self, name: Hashable) -> float:
        """Take one; how long to wait where there is none [s]."""
        now, left = self._steady(), self._most
        known = self._left.get(name)
        if known is not None:
            left = min(known[0] + (now - known[1]) * self._rate, self._most)
            self._left.move_to_end(name)
        elif len(self._left) >= self._kept:
            self._left.popitem(last=False)
        if left < 1.0:
            self._left[name] = (left, now)
            return (1.0 - left) / self._rate
        self._left[name] = (left - 1.0, now)
        return 0.0


class Senders:
    """Where requests come from, as far as proxies that we know can be believed."""

    def __init__(self, proxies: Sequence[str]) -> None:
        self._networks = [ip_network(one) for one in proxies]
        self._known = lru_cache(maxsize=KEPT)(self._is_proxy)
        self._near = lru_cache(maxsize=KEPT)(neighbourhood)

    def of(self, peer: str | None, forwarded: str | None) -> str:
        """The address of a request: the last one that no proxy of ours is.

        >>> Senders(["10.0.0.0/8"]).of("10.0.0.1", "6.6.6.6, 192.0.2.7, 10.0.0.2")
        '192.0.2.7'
        >>> Senders([]).of("198.51.100.1", "192.0.2.7")
        '198.51.100.1'
        """
        address = peer or ""
        if forwarded is not None and self._networks:
            named = [part.strip() for part in forwarded.split(",")[-20:]]
            while named and self._known(address):
                address = named.pop()[:60]
        return self._near(address)

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)
