"""Scopes, and what a request may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hushgrid.errors import AccessError
from hushgrid.tables import shown

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

# what people call those who connect, and the scopes they need
KINDS: dict[str, tuple[str, ...]] = {
    "meters": ("write_readings",),
    "operator": ("operate", "audit"),
    "auditor": ("audit",),
    "ven": (
        "read_targets",
        "read_ven_objects",
        "write_reports",
        "write_subscriptions",
        "write_vens",
    ),
    "business": ("read_all", "write_programs", "write_events", "write_subscriptions", "write_vens"),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request may do: as which client, with which scopes. Anybody has neither.

    `ven`: the VEN whose objects the client may see, where it is one.

    >>> Grant("meters-north", frozenset({"write_readings"})).may("write_readings")
    True
    >>> NOBODY.may("operate")
    False
    """

    client: str | None = None
    scopes: frozenset[str] = frozenset()
    ven: str | None = None

    def may(self, *scopes: str) -> bool:
        """Whether it has one of these scopes."""
        return not self.scopes.isdisjoint(scopes)


NOBODY = Grant()


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    """Those that do not exist, in their order."""
    return [scope for scope in scopes if scope not in SCOPES]


def scopes_named(names: Iterable[str]) -> tuple[str, ...]:
    """Scopes from scopes and kinds of clients, each once, in the order of `SCOPES`.

    >>> scopes_named(["operator", "audit", "write_readings"])
    ('write_readings', 'operate', 'audit')
    """
    wanted: set[str] = set()
    for name in names:
        if name not in KINDS and name not in SCOPES:
            raise AccessError(
                "invalid_scope",
                f"scope is {shown(name)}; give one of {', '.join((*KINDS, *SCOPES))}.",
            )
        wanted.update(KINDS.get(name, (name,)))
    return tuple(scope for scope in SCOPES if scope in wanted)
