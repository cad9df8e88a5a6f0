"""Tables of a TOML file, checked: every mistake is added to the file's faults by its key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, NamedTuple

from hushgrid.errors import HushgridError

Table = Mapping[str, Any]

_SECRETS = (
    (re.compile(r"([A-Za-z][\w+.-]*:/+)[\s\S]*@"), r"\1***@"),
    (re.compile(r"(passw\w*\s*=\s*)[^&\n]*", re.I), r"\1***"),
)
_LONGEST = 80  # characters of a value that a message shows


class KeyFault(NamedTuple):
    """A mistake at a key such as `houses[0].bound`."""

    key: str
    message: str


class Faults:
    """The mistakes of one file: one a key, and none that only follows from another one.

    `elsewhere`: keys whose mistake is reported at another place, such as a misspelt key.
    """

    def __init__(self) -> None:
        self.found: list[KeyFault] = []
        self.elsewhere: set[str] = set()
        self._added = 0

    def __len__(self) -> int:
        """How often something was found wrong, counting what is reported only once."""
        return self._added

    def add(self, key: str, message: str, *others: str) -> None:
        """Note a mistake.

        Args:
            key: The key at fault, as a path such as `houses[0].bound`.
            message: One sentence with the key, the value and the fix.
            others: Keys whose values the mistake follows from, too. Where one of them is at fault
                itself, nothing is known about this key.
        """
        self._added += 1
        if not self.at(key, *others):
            self.found.append(KeyFault(key, masked(message)))

    def at(self, *keys: str) -> bool:
        """Whether a mistake was found at one of the keys."""
        return any(key in self.elsewhere for key in keys) or any(
            fault.key in keys for fault in self.found
        )

    @contextmanager
    def within(self, key: str) -> Iterator[None]:
        """Errors raised inside become faults of this key."""
        try:
            yield
        except HushgridError as error:
            self.add(key, str(error))
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError):
            self.add(key, f"{key} holds a value of the wrong kind or size; see docs/zone-file.md.")


def masked(text: str) -> str:
    """The text without passwords.

    >>> masked("postgresql://me:secret@host/db")
    'postgresql://***@host/db'
    """
    for pattern, shown_as in _SECRETS:
        text = pattern.sub(shown_as, text)
    return text


def shown(value: Any) -> str:
    """A value as a message may show it: without passwords, not too long."""
    if isinstance(value, Mapping):
        return "a table"
    text = masked(repr(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def known(table: Any, place: str, keys: set[str], optional: set[str], faults: Faults) -> bool:
    """Whether a table has only known keys, and all but the optional ones."""
    before = len(faults)
    if not isinstance(table, Mapping):
        name = place.rstrip(".") or "file"
        faults.add(name, f"{name} is {shown(table)}; give a table.")
        return False
    for key in table:
        if key not in keys:
            near = _nearest(key, keys - set(table)) or _nearest(key, keys)
            fix = f"did you mean {near}? Known keys: " if near else "use "
            faults.add(
                f"{place}{key}",
                f"{place}{shown_key(key)} is not known; {fix}{', '.join(sorted(keys))}.",
            )
            if near and near not in table:  # the value that was meant for it is not missing
                faults.elsewhere.add(f"{place}{near}")
    for key in sorted(keys - optional):
        if key not in table:
            faults.add(f"{place}{key}", f"{place}{key} is not set; give it a value.")
    return len(faults) == before


def _nearest(key: str, keys: set[str]) -> str | None:
    """The known key that an unknown one is most like."""
    return next(iter(get_close_matches(key.lower(), sorted(keys), 1, 0.5)), None)


def shown_key(key: str) -> str:
    """A key as a message may show it, on one line."""
    return key if re.fullmatch(r"[\w-]{1,80}", key) else shown(key)


def tables(content: Table, key: str, faults: Faults, place: str = "") -> Sequence[Table]:
    """The tables of an array; none where it is no such array."""
    given, at = content.get(key), f"{place}{key}"
    if not isinstance(given, list) or not given:
        faults.add(at, f"{at} is {shown(given)}; give at least one [[{key}]] table.")
        return ()
    for i, table in enumerate(given):
        if not isinstance(table, Mapping):
            faults.add(f"{at}[{i}]", f"{at}[{i}] is {shown(table)}; give a [[{key}]] table.")
    return given if all(isinstance(table, Mapping) for table in given) else ()


def text(table: Any, place: str, key: str, faults: Faults) -> str | None:
    """A text."""
    value = table.get(key) if isinstance(table, Mapping) else None
    if isinstance(value, str):
        return value
    faults.add(f"{place}{key}", f"{place}{key} is {shown(value)}; give a text.")
    return None


def whole(table: Table, place: str, key: str, faults: Faults) -> int | None:
    """A whole number, 1 or more; one that is not set has been noted before."""
    value = table.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31:
        return value
    if key in table:
        faults.add(
            f"{place}{key}",
            f"{place}{key} is {shown(value)}; give a whole number, 1 or more, below 2^31.",
        )
    return None


def chance(table: Table, place: str, key: str, faults: Faults) -> float:
    """A probability; a half stands for one that is none."""
    value = table.get(key)
    if not isinstance(value, bool) and isinstance(value, (int, float)) and 0 <= value <= 1:
        return float(value)
    if key in table:
        faults.add(
            f"{place}{key}", f"{place}{key} is {shown(value)}; give a probability from 0 to 1."
        )
    return 0.5


def made(kind: Any, table: Any, place: str, faults: Faults, also: set[str] | None = None) -> Any:
    """A value from a table whose keys are the value's own fields; None where it has faults.

    `also`: keys that somebody else reads.
    """
    before = len(faults)
    ours = {field.name: field for field in fields(kind) if field.init and field.name != "min_scale"}
    every = set(ours) | (also or set())
    needed = {key for key, field in ours.items() if _needed(field)}
    known(table, place, every, every - needed, faults)
    if not isinstance(table, Mapping):
        return None
    given = {key: value for key, value in table.items() if key in ours}
    for key, value in list(given.items()):
        if ours[key].type in ("float", "int") and (
            isinstance(value, bool) or not isinstance(value, (int, float))
        ):
            faults.add(f"{place}{key}", f"{place}{key} is {shown(value)}; give a number.")
            _replace(given, key, ours)
    given |= dict.fromkeys(needed - set(given), 1.0)
    found = _constructed(kind, given, ours, place, faults)
    return found if len(faults) == before else None


def _constructed(
    kind: Any, given: dict[str, Any], ours: Table, place: str, faults: Faults
) -> Any | None:
    """The value; each field that is refused is noted and replaced, so that the next one shows."""
    name = place.rstrip(".")
    for _ in range(len(ours) + 1):
        try:
            return kind(**given)
        except HushgridError as error:
            keys = [f"{place}{field}" for field in error.fields] or [name]
            faults.add(keys[0], str(error), *keys[1:])
            at = next((field for field in error.fields if field in given), None)
            if at is None:
                return None
            _replace(given, at, ours)
        except (TypeError, ValueError, ArithmeticError) as error:
            faults.add(name, f"{name} holds a value of the wrong kind or size ({error}).")
            return None
    return None


def _needed(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _replace(given: dict[str, Any], key: str, ours: Table) -> None:
    """Put a value that is accepted in the place of one that was refused."""
    if _needed(ours[key]):
        given[key] = 1 if ours[key].type == "int" else 1.0
    else:
        del given[key]
