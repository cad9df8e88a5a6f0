"""Scopes, and what a request may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# of OpenADR 3.1, whose description says where each is needed
OPENADR = (
    "read_all",
    "read_targets",
    "read_ven_objects",
    "write_programs",
    "write_events",
    "write_reports",
    "write_subscriptions",
    "write_vens",
)
# our own: meters send, operators look at a zone's inside, auditors at its ledger
OWN = ("write_readings", "operate", "audit")
SCOPES = OPENADR + OWN


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request may do: as which client, with which scopes. Anybody has neither.

    >>> Grant("meters-north", frozenset({"write_readings"})).may("write_readings")
    True
    >>> NOBODY.may("operate")
    False
    """

    client: str | None = None
    scopes: frozenset[str] = frozenset()

    def may(self, *scopes: str) -> bool:
        """Whether it has one of these scopes."""
        return not self.scopes.isdisjoint(scopes)


NOBODY = Grant()


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    """Those that do not exist, in their order."""
    return [scope for scope in scopes if scope not in SCOPES]
