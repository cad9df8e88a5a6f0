"""What every type of a record's content has: its rules, its body, its place in the chain.

The fields of a type that have a `Rule` are the body of its record; the others are its place in the
chain.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Self, cast

from hushgrid._numbers import Rule, from_json, rules_of, to_json
from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.records import Body, Record


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The content of one record; each kind has its own type.

    Attributes:
        kind: The kind of its records.
    """

    kind: ClassVar[str]

    @classmethod
    def rules(cls) -> Mapping[str, Rule]:
        """Rules of the body's fields, required ones first."""
        return rules_of(cls)

    @classmethod
    def check(cls, body: Body) -> None:
        """Refuse a body that lacks a field, has an unknown one, or a wrong value.

        Raises:
            LedgerError: Names the field and never its value, which may be anything.
        """
        rules, kind = _rules(cast(Hashable, cls)), cls.kind
        required = [name for name, rule in rules.items() if not rule.optional]
        for name in required:
            if name not in body:
                raise LedgerError(f"{kind} has no {name}; give {', '.join(required)}.")
        for name in body:
            if name not in rules:
                raise LedgerError(f"{kind} has a field {name!r}; give {', '.join(rules)} alone.")
        for name, rule in rules.items():
            if name in body and not rule.fits(body[name]):
                # the message leaves a wrong value out, since it may be anything
                raise LedgerError(f"{name} of {kind} does not fit; give {rule.give}.")

    @classmethod
    def from_record(cls, record: Record, *, checked: bool = False) -> Self:
        """The entry of a record of this kind; checks the body, unless that was done before.

        Raises:
            LedgerError: A field is missing, unknown, or has a wrong value.
        """
        if not checked:
            cls.check(record.body)
        return cls(**cls._values(record.body), **cls._place(record))

    @classmethod
    def _values(cls, body: Body) -> dict[str, Any]:
        return from_json(cls, body)

    @classmethod
    def _place(cls, record: Record) -> dict[str, Any]:
        """The fields of the type that say where the record is in its chain."""
        place = {"seq": record.seq, "head": record.digest, "signature": record.signature}
        return {name: place[name] for name in _placed(cast(Hashable, cls))}

    def to_body(self) -> dict[str, Any]:
        """The body of its record."""
        return to_json(self)


@cache
def _placed(entry_type: Any) -> tuple[str, ...]:
    names = (member.name for member in fields(entry_type))
    return tuple(name for name in names if name in ("seq", "head", "signature"))


@cache
def _rules(entry_type: Any) -> Mapping[str, Rule]:
    rules: Mapping[str, Rule] = entry_type.rules()
    return rules
