"""TOML files with the line of every key, and checks of their tables.

Each mistake is added to the file's faults under its key, written as in messages: `houses[0].bound`,
`models[1].chains.at home.periods[2]`. Durations and instants are read in whole seconds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from hushgrid.errors import ConfigError, FileError, HushgridError, Problem
from hushgrid.files.results import read_text

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRINGS = (  # three quotes before one; up to two more may close a long string
    re.compile(r'"""(?:[^\\]|\\[\s\S])*?"{3,5}(?!")'),
    re.compile(r"'''[\s\S]*?'{3,5}(?!')"),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_PLAIN = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def lines_of(source: str) -> dict[str, int]:
    """Line of every key, table and element of a TOML text that tomllib accepts.

    Args:
        source: The text.

    Returns:
        Line (from 1) by key.

    >>> lines_of('[a]\\nb = [1,\\n 2] # c = 3\\n')
    {'a': 1, 'a.b': 2, 'a.b[0]': 2, 'a.b[1]': 3}
    """
    return _Scanner(source).scan()


def line_at(lines: dict[str, int], key: str) -> int:
    """Line of a key, or of the closest key that contains it.

    Args:
        lines: Line by key, as `lines_of` gives it.
        key: A key such as `houses[0].bound`.

    Returns:
        The line; 1 where nothing is known of the key.
    """
    while key not in lines and key:
        cut = max(key.rfind("."), key.rfind("["))
        key = key[: max(cut, 0)]
    return lines.get(key, 1)


class _Scanner:
    def __init__(self, source: str) -> None:
        self.source = source.replace("\r\n", "\n")
        self.at = 0
        self.lines: dict[str, int] = {}
        self._counts: dict[str, int] = {}  # tables so far of each array of tables
        self._line, self._seen = 1, 0

    def scan(self) -> dict[str, int]:
        table = ""
        self._skip()
        while self.at < len(self.source):
            if self.source[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()
        return self.lines

    def _header(self) -> str:
        """A table's path; an array's counts one table more."""
        array = self.source.startswith("[[", self.at)
        line = self._here()
        self.at += 2 if array else 1
        parts = self._key()
        self.at += 2 if array else 1
        path = ""
        for i, part in enumerate(parts):
            path = _joined(path, part)
            if array and i == len(parts) - 1:
                self._counts[path] = self._counts.get(path, 0) + 1
                self.lines.setdefault(path, line)
            if path in self._counts:
                path += f"[{self._counts[path] - 1}]"
        self.lines.setdefault(path, line)
        return path

    def _pair(self, table: str) -> None:
        line, path = self._here(), table
        for part in self._key():
            path = _joined(path, part)
            self.lines.setdefault(path, line)
        self._skip()
        self.at += 1  # the equals sign
        self._skip()
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip()
            text = self._string()
            if text is not None:
                parts.append(_unquoted(text))
            else:
                found = _BARE.match(self.source, self.at)
                if found is None:  # no key: skip the character
                    self.at += 1
                    return parts
                parts.append(found[0])
                self.at = found.end()
            self._skip()
            if not self.source.startswith(".", self.at):
                return parts
            self.at += 1

    def _value(self, path: str) -> None:
        if self._string() is not None:
            return
        opening = self.source[self.at : self.at + 1]
        if opening == "[":
            self._items("]", path)
        elif opening == "{":
            self._items("}", path)
        elif found := _SCALAR.match(self.source, self.at):
            self.at = found.end()

    def _items(self, closing: str, path: str) -> None:
        """The elements of an array, or the pairs of an inline table."""
        self.at += 1
        number = 0
        while True:
            self._skip()
            here = self.source[self.at : self.at + 1]
            if here in ("", closing):
                self.at += 1
                return
            if here == ",":
                self.at += 1
            elif closing == "}":
                self._pair(path)
            else:
                self.lines.setdefault(f"{path}[{number}]", self._here())
                before = self.at
                self._value(f"{path}[{number}]")
                self.at += self.at == before
                number += 1

    def _string(self) -> str | None:
        for pattern in _STRINGS:
            if found := pattern.match(self.source, self.at):
                self.at = found.end()
                return found[0]
        return None

    def _skip(self) -> None:
        found = _SPACE.match(self.source, self.at)
        self.at = found.end() if found else self.at

    def _here(self) -> int:
        """The line now; every piece of the file is counted once."""
        self._line += self.source.count("\n", self._seen, self.at)
        self._seen = self.at
        return self._line


def _joined(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _unquoted(text: str) -> str:
    if text[0] == "'":
        return text[1:-1]

    def plain(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if code[0] in "uU" else _PLAIN.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1])


# ---- durations and instants

_PARTS = re.compile(
    r"P(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?"
)
_SECONDS = (7 * 86_400, 86_400, 3600, 60, 1)


def seconds_of(value: Any) -> int | None:
    """Seconds of an ISO 8601 duration such as PT15M or P7D, or of a whole number.

    Args:
        value: Any value of a TOML file.

    Returns:
        Seconds; None where the value is neither.

    >>> seconds_of("PT1H30M"), seconds_of("P7D"), seconds_of(900), seconds_of("15 min")
    (5400, 604800, 900, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 2**40 else None
    found = _PARTS.fullmatch(value) if isinstance(value, str) else None
    if found is None or not any(found.groups()):
        return None
    parts = (int(part or 0) for part in found.groups())
    return sum(part * unit for part, unit in zip(parts, _SECONDS, strict=True))


def instant_of(value: Any) -> int | None:
    """Seconds since 1970 of a date-time with an offset, given as TOML's own type or as text.

    Args:
        value: Any value of a TOML file.

    Returns:
        Seconds UTC; None for other values.

    >>> instant_of("2026-01-01T00:00:00Z"), instant_of("2026-01-01T00:00:00")
    (1767225600, None)
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        return None
    try:
        seconds = (value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except OverflowError:
        return None
    return int(seconds) if seconds == int(seconds) and 0 <= seconds < 2**33 else None


def duration_text(seconds: int) -> str:
    """A duration in words.

    Args:
        seconds: Whole seconds.

    Returns:
        Such as "15 minutes", in the largest unit that divides it.

    >>> duration_text(900), duration_text(604800), duration_text(90)
    ('15 minutes', '7 days', '90 seconds')
    """
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % size == 0 and seconds:
            return f"{seconds // size} {unit}{'' if seconds == size else 's'}"
    return "0 seconds"


# ---- files and their mistakes


class TomlFile:
    """The content of a TOML file, and its faults.

    Args:
        path: The file; paths in it are relative to its folder.
        source: Its text, if it was read before.
    """

    def __init__(self, path: Path, source: str | None = None) -> None:
        self.path, self.folder = path, path.parent
        self.content: Table = {}
        self.faults = Faults()
        self.unreadable = ""
        self._lines: dict[str, int] = {}
        try:
            source = read_text(path) if source is None else source
        except (FileError, ValueError) as error:  # a null character in a path is a ValueError
            self.unreadable = masked(str(error))
            return
        try:
            self.content = tomllib.loads(source)
            self._lines = lines_of(source)
        except (ValueError, RecursionError) as error:
            at = re.search(r"\(at line (\d+), column \d+\)", str(error))
            self._lines[""] = int(at[1]) if at else source.count("\n") + 1
            reason = re.sub(r" \(at [^)]*\)$", "", str(error)) or "nested too deeply"
            self.faults.add("", f"this is not TOML ({reason}); correct this line.")

    @property
    def broken(self) -> bool:
        """True if there is no content to check."""
        return bool(self.unreadable) or "" in self._lines

    def problems(self) -> list[Problem]:
        """The faults with their lines, in order of line."""
        if self.unreadable:
            return [Problem(str(self.path), 1, "", self.unreadable)]
        found = [
            Problem(str(self.path), line_at(self._lines, key), key, message)
            for key, message in self.faults.found
        ]
        return sorted(found, key=lambda problem: problem.line)

    def check(self) -> None:
        """Raise a `ConfigError` with every fault found so far, if any."""
        if problems := self.problems():
            raise ConfigError(tuple(problems))


Table = Mapping[str, Any]

_SECRETS = (
    (re.compile(r"([A-Za-z][\w+.-]*:/+)[\s\S]*@"), r"\1***@"),
    (re.compile(r"(passw\w*\s*=\s*)[^&\n]*", re.I), r"\1***"),
)
_LONGEST = 80  # characters of a value that a message shows


class KeyFault(NamedTuple):
    """A mistake at a key.

    Attributes:
        key: A key such as `houses[0].bound`.
        message: One sentence with the key, the value and the fix.
    """

    key: str
    message: str


class Faults:
    """The mistakes of one file: one for each key, and none that only follows from another.

    Attributes:
        found: The mistakes, in order of discovery.
        elsewhere: Keys whose mistake is reported under another key, such as a misspelt one.
    """

    def __init__(self) -> None:
        self.found: list[KeyFault] = []
        self.elsewhere: set[str] = set()
        self._added = 0

    def __len__(self) -> int:
        """How many mistakes were added, including those that are not reported."""
        return self._added

    def add(self, key: str, message: str, *others: str) -> None:
        """Add a mistake.

        Args:
            key: The key at fault, as a path such as `houses[0].bound`.
            message: One sentence with the key, the value and the fix.
            others: Further keys that the mistake depends on. If one of them has a fault, this one
                is counted but not reported.
        """
        self._added += 1
        if not self.at(key, *others):
            self.found.append(KeyFault(key, masked(message)))

    def at(self, *keys: str) -> bool:
        """True if a mistake was found at one of the keys."""
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
    """Replace passwords in a text.

    Args:
        text: Any text.

    Returns:
        The text with *** in place of user information in URLs and of password values.

    >>> masked("postgresql://me:secret@host/db")
    'postgresql://***@host/db'
    """
    for pattern, mask in _SECRETS:
        text = pattern.sub(mask, text)
    return text


def display(value: Any) -> str:
    """A value for a message: without passwords, at most 80 characters.

    Args:
        value: Any value of a TOML file.

    Returns:
        Its text.
    """
    if isinstance(value, Mapping):
        return "a table"
    text = masked(repr(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def check_keys(table: Any, place: str, keys: set[str], optional: set[str], faults: Faults) -> bool:
    """Check that a table has all required keys and no unknown one.

    Args:
        table: The table, or what was given in its place.
        place: Prefix of its keys in messages, such as "tariff.".
        keys: The known keys.
        optional: Those that need not be set.
        faults: Receives the mistakes.

    Returns:
        True if there is no mistake.
    """
    before = len(faults)
    if not isinstance(table, Mapping):
        name = place.rstrip(".") or "file"
        faults.add(name, f"{name} is {display(table)}; give a table.")
        return False
    for key in table:
        if key not in keys:
            near = _nearest(key, keys - set(table)) or _nearest(key, keys)
            fix = f"did you mean {near}? Known keys: " if near else "use "
            faults.add(
                f"{place}{key}",
                f"{place}{_display_key(key)} is not known; {fix}{', '.join(sorted(keys))}.",
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


def _display_key(key: str) -> str:
    """A key for a message, on one line."""
    return key if re.fullmatch(r"[\w-]{1,80}", key) else display(key)


def tables(content: Table, key: str, faults: Faults, place: str = "") -> Sequence[Table]:
    """The tables of an array of tables.

    Args:
        content: The table that holds the array.
        key: Its key.
        faults: Receives the mistakes.
        place: Prefix of the key in messages.

    Returns:
        The tables; empty where the value is no such array.
    """
    given, at = content.get(key), f"{place}{key}"
    if not isinstance(given, list) or not given:
        faults.add(at, f"{at} is {display(given)}; give at least one [[{key}]] table.")
        return ()
    for i, table in enumerate(given):
        if not isinstance(table, Mapping):
            faults.add(f"{at}[{i}]", f"{at}[{i}] is {display(table)}; give a [[{key}]] table.")
    return given if all(isinstance(table, Mapping) for table in given) else ()


def text(table: Any, place: str, key: str, faults: Faults) -> str | None:
    """A text of a table.

    Args:
        table: The table.
        place: Prefix of its keys in messages.
        key: The key.
        faults: Receives the mistake.

    Returns:
        The text; None where the value is none.
    """
    value = table.get(key) if isinstance(table, Mapping) else None
    if isinstance(value, str):
        return value
    faults.add(f"{place}{key}", f"{place}{key} is {display(value)}; give a text.")
    return None


def whole(table: Table, place: str, key: str, faults: Faults) -> int | None:
    """A whole number of a table; a missing key is reported by `check_keys`.

    Args:
        table: The table.
        place: Prefix of its keys in messages.
        key: The key.
        faults: Receives the mistake.

    Returns:
        The number, 1 or more; None where the value is none.
    """
    value = table.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31:
        return value
    if key in table:
        faults.add(
            f"{place}{key}",
            f"{place}{key} is {display(value)}; give a whole number, 1 or more, below 2^31.",
        )
    return None


def probability(table: Table, place: str, key: str, faults: Faults) -> float:
    """A probability of a table; a missing key is reported by `check_keys`.

    Args:
        table: The table.
        place: Prefix of its keys in messages.
        key: The key.
        faults: Receives the mistake.

    Returns:
        The probability; 0.5 where the value is none.
    """
    value = table.get(key)
    if not isinstance(value, bool) and isinstance(value, (int, float)) and 0 <= value <= 1:
        return float(value)
    if key in table:
        faults.add(
            f"{place}{key}", f"{place}{key} is {display(value)}; give a probability from 0 to 1."
        )
    return 0.5


def build(kind: Any, table: Any, place: str, faults: Faults, also: set[str] | None = None) -> Any:
    """Construct a dataclass from a table whose keys are its fields.

    Args:
        kind: The dataclass.
        table: The table, or what was given in its place.
        place: Prefix of its keys in messages.
        faults: Receives every mistake.
        also: Keys of the table that the caller reads itself.

    Returns:
        The value; None where there is a mistake.
    """
    before = len(faults)
    own = {field.name: field for field in fields(kind) if field.init and field.name != "min_scale"}
    every = set(own) | (also or set())
    needed = {key for key, field in own.items() if _needed(field)}
    check_keys(table, place, every, every - needed, faults)
    if not isinstance(table, Mapping):
        return None
    given = {key: value for key, value in table.items() if key in own}
    for key, value in list(given.items()):
        if own[key].type in ("float", "int") and (
            isinstance(value, bool) or not isinstance(value, (int, float))
        ):
            faults.add(f"{place}{key}", f"{place}{key} is {display(value)}; give a number.")
            _replace(given, key, own)
    given |= dict.fromkeys(needed - set(given), 1.0)
    found = _constructed(kind, given, own, place, faults)
    return found if len(faults) == before else None


def _constructed(
    kind: Any, given: dict[str, Any], own: Table, place: str, faults: Faults
) -> Any | None:
    """The value; a refused field is reported and replaced, so that the next one is found."""
    name = place.rstrip(".")
    for _ in range(len(own) + 1):
        try:
            return kind(**given)
        except HushgridError as error:
            keys = [f"{place}{field}" for field in error.fields] or [name]
            faults.add(keys[0], str(error), *keys[1:])
            at = next((field for field in error.fields if field in given), None)
            if at is None:
                return None
            _replace(given, at, own)
        except (TypeError, ValueError, ArithmeticError) as error:
            faults.add(name, f"{name} holds a value of the wrong kind or size ({error}).")
            return None
    return None


def _needed(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _replace(given: dict[str, Any], key: str, own: Table) -> None:
    """Put a value that is accepted in the place of one that was refused."""
    if _needed(own[key]):
        given[key] = 1 if own[key].type == "int" else 1.0
    else:
        del given[key]
