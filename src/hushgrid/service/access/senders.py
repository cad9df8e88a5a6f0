"""Which meters belong to which sender.

A client is bound to meters by its operator. In production a sender that is bound to none sends
nothing. Otherwise it keeps the meters of which it was the first sender, unless a client is bound to
them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hushgrid.errors import AccessError, MeterRetryError, ServiceError
from hushgrid.files.deployment import Deployment
from hushgrid.service.access.clients import Client, ClientStore
from hushgrid.service.access.tokens import CACHED

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SenderTerms:
    """Who may send what, as the store of clients has it.

    Attributes:
        bound: meters of each client that is bound to some.
        refused: clients that may send nothing.
    """

    bound: Mapping[str, tuple[str, ...]]
    refused: frozenset[str]


class Senders:
    """The meters of each sender; a change of the store is seen within `CACHED` s. Thread-safe.

    Args:
        clients: store of clients.
        production: a sender that is bound to no meters sends nothing.
        steady: monotonic clock [s].
    """

    def __init__(
        self,
        clients: ClientStore,
        *,
        production: bool,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients, self._production, self._steady = clients, production, steady
        self._terms, self._until = SenderTerms({}, frozenset()), -1.0
        self._first: dict[str, str] | None = None  # sender by meter
        self._mutex = threading.Lock()

    def terms(self) -> SenderTerms:
        """Return the terms, the same object while they are the same; MeterRetryError if away."""
        with self._mutex:
            if self._steady() >= self._until:
                clients = _asked(self._clients.all)
                found = SenderTerms(
                    {one.id: one.meters for one in clients if one.sends and one.meters},
                    frozenset(one.id for one in clients if not one.sends),
                )
                self._until = self._steady() + CACHED
                if found != self._terms:
                    self._terms, self._first = found, None
            return self._terms

    def own(self, sender: str, meters: Sequence[str], terms: SenderTerms) -> frozenset[str]:
        """Return those of some meters that a sender may send; keeps it for those without one."""
        if sender in terms.bound:
            return frozenset(filter(covers(terms.bound[sender]), meters))
        if self._production or sender in terms.refused:
            return frozenset()
        bound = covers(one for some in terms.bound.values() for one in some)
        free = [meter for meter in meters if not bound(meter)]
        with self._mutex:
            if self._first is None:
                self._first = _asked(self._clients.first_senders)
            new = [meter for meter in free if meter not in self._first]
            if new:
                self._first |= _asked(lambda: self._clients.keep_first(sender, new))
            return frozenset(meter for meter in free if self._first[meter] == sender)


def _asked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except AccessError:
        raise MeterRetryError("the store of clients is away; send again.") from None


def covers(meters: Iterable[str]) -> Callable[[str], bool]:
    """Make the test whether a meter is among ids and prefixes.

    Args:
        meters: ids, or prefixes that end in an asterisk.

    Returns:
        The test.

    >>> [covers(["north-*", "m7"])(meter) for meter in ("north-1", "m7", "m77")]
    [True, True, False]
    """
    names = frozenset(meters)
    prefixes = tuple(one[:-1] for one in names if one.endswith("*"))
    return lambda meter: meter in names or meter.startswith(prefixes)


def check_bound(deployment: Deployment, clients: Iterable[Client]) -> None:
    """Refuse senders of a production service that are bound to no meters.

    Args:
        deployment: the service.
        clients: its clients.

    Raises:
        ServiceError: if there is one.
    """
    if deployment.mode != "production":
        return
    for one in clients:
        if one.sends and not one.meters:
            raise ServiceError(
                f"client {one.id!r} may send readings and is bound to no meters; bind it with"
                f" hushgrid client bind {one.id} --meters 'PREFIX*', or revoke it."
            )
    if deployment.http is not None and deployment.http.tokens:
        raise ServiceError(
            f"http.token_digests holds {len(deployment.http.tokens)} tokens, which are bound to no"
            " meters; remove them, and add clients with hushgrid client add ID --scope meters"
            " --meters 'PREFIX*'."
        )
