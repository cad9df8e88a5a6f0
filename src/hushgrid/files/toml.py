"""TOML files with the line of every key, and their mistakes.

A key is written as in messages: `houses[0].bound`, `models[1].chains.at home.periods[2]`. Durations
and instants are read in whole seconds.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hushgrid.errors import ConfigError, FileError, HushgridError, Problem
from hushgrid.files.results import read_text

Table = Mapping[str, Any]
FORMAT = 1  # of service and zone files

_STRING = (  # three quotes before one; up to two more may close a long string
    r'"""(?:[^\\]|\\[\s\S])*?"{3,5}(?!")|\'\'\'[\s\S]*?\'{3,5}(?!\')'
    r'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
)
_PART = rf"(?:{_STRING}|[A-Za-z0-9_-]+)"
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_SCALAR = rf"{_STRING}|[^,\]}}#\n]*"
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def lines_of(source: str) -> dict[str, int]:
    """Line of every key, table and element of a TOML text that tomllib accepts.

    Args:
        source: The text.

    Returns:
        Line (from 1) by key.

    >>> lines_of('[a]\\nb = [1,\\n 2] # c = 3\\n')
    {'a': 1, 'a.b': 2, 'a.b[0]': 2, 'a.b[1]': 3}
    """
    return _Scanner(source).lines


def line_at(lines: dict[str, int], key: str) -> int:
    """Line of a key, or of the closest key that contains it.

    Args:
        lines: Line by key, as `lines_of` gives it.
        key: A key such as `houses[0].bound`.

    Returns:
        The line; 1 where nothing is known of the key.
    """
    while key not in lines and key:
        end = max(key.rfind("."), key.rfind("["))
        key = key[: max(end, 0)]
    return lines.get(key, 1)


class _Scanner:
    """Reads a TOML text piece by piece; it is always at the start of one."""

    def __init__(self, source: str) -> None:
        self.source = source.replace("\r\n", "\n")
        self.lines: dict[str, int] = {}
        self._line_ends = [match.start() for match in re.finditer("\n", self.source)]
        self._counts = Counter[str]()  # tables so far of each array of tables
        self._position, table = 0, ""
        self._take("")
        while self._position < len(self.source):
            line = self._line
            if opening := self._take(r"\[\[?"):
                table = self._header(opening == "[[", line)
            else:
                self._pair(table)

    @property
    def _line(self) -> int:
        return bisect(self._line_ends, self._position) + 1

    def _take(self, pattern: str) -> str:
        """What matches here; spaces and comments after it are passed."""
        match = re.compile(pattern).match(self.source, self._position)
        end = match.end() if match else self._position
        text, space = self.source[self._position : end], _SPACE.match(self.source, end)
        self._position = space.end() if space else end
        return text

    def _header(self, array: bool, line: int) -> str:
        """A table's path; an array's counts one table more."""
        path, parts = "", _parts(self._take(_KEY))
        self._take(r"\]\]?")
        for i, part in enumerate(parts, 1):
            path = f"{path}.{part}" if path else part
            if array and i == len(parts):
                self._counts[path] += 1
                self.lines.setdefault(path, line)
            if path in self._counts:
                path += f"[{self._counts[path] - 1}]"
        self.lines.setdefault(path, line)
        return path

    def _pair(self, path: str) -> None:
        line = self._line
        for part in _parts(self._take(_KEY)):
            path = f"{path}.{part}" if path else part
            self.lines.setdefault(path, line)
        self._take("=")
        self._value(path)

    def _value(self, path: str) -> None:
        opening, number = self._take(r"[\[{]"), 0
        if not opening:
            self._take(_SCALAR)
        while opening and not self._take(r"[\]}]"):
            if opening == "{":
                self._pair(path)
            else:
                self.lines.setdefault(f"{path}[{number}]", self._line)
                self._value(f"{path}[{number}]")
                number += 1
            self._take(",")


def _parts(key: str) -> list[str]:
    """The parts of a dotted key, without quotes."""
    parts: list[str] = []
    inner: Any = tomllib.loads(f"{key} = 0")
    while isinstance(inner, dict):
        ((part, inner),) = inner.items()
        parts.append(part)
    return parts


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
    match = _PARTS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not any(match.groups()):
        return None
    parts = (int(part or 0) for part in match.groups())
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


def window_text(seconds: int) -> str:
    """The length of a promised window in words.

    Args:
        seconds: The length [s].

    Returns:
        "24 hours" for a day, which need not begin at midnight.
    """
    return "24 hours" if seconds == 86_400 else duration_text(seconds)


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
        self._torn = 0  # line at which the text is not TOML
        self._source = source or ""
        try:
            self._source = read_text(path) if source is None else source
            self.content = tomllib.loads(self._source)
        except FileError as error:
            self.unreadable = masked(str(error))
        except (ValueError, RecursionError) as error:
            place = re.search(r"\(at line (\d+), column \d+\)", str(error))
            self._torn = int(place[1]) if place else self._source.count("\n") + 1
            reason = re.sub(r" \(at [^)]*\)$", "", str(error)) or "nested too deeply"
            self.faults.add("", f"this is not TOML ({reason}); correct this line.")

    @property
    def broken(self) -> bool:
        """True if there is no content to check."""
        return bool(self.unreadable or self._torn)

    def table(self, name: str) -> Table:
        """A table, without its values that have mistakes; empty where there is none."""
        table = self.content.get(name)
        if not isinstance(table, Mapping):
            return {}
        return {key: value for key, value in table.items() if not self.faults.at(f"{name}.{key}")}

    def problems(self) -> list[Problem]:
        """The faults with their lines, in order of line."""
        if self.unreadable:
            return [Problem(str(self.path), 0, "", self.unreadable)]
        missing = self.faults.missing
        if not self.faults.messages and not missing:
            return []
        lines = {"": self._torn} if self._torn else lines_of(self._source)
        problems = [
            Problem(str(self.path), line_at(lines, key), key, message)
            for key, message in self.faults.messages.items()
        ]
        if missing:  # at the end: half a file lacks all that would follow
            line = len(self._source.splitlines()) or 1
            problems.append(Problem(str(self.path), line, missing[0], _missing_tables(missing)))
        return sorted(problems, key=lambda problem: problem.line)

    def check_format(self) -> None:
        """Refuse a file of another format before anything else of it is looked at.

        Raises:
            ConfigError: The file cannot be read, or `format` is not 1.
        """
        value = self.content.get("format")
        if not self.broken and (type(value) is not int or value != FORMAT):
            state = "missing" if value is None else display(value)
            self.faults.add(
                "format",
                f"format is {state}; give format = {FORMAT} at the top of the file and its keys as"
                " docs/files.md has them.",
            )
        self.check()
        self.content = {key: part for key, part in self.content.items() if key != "format"}

    def check(self) -> None:
        """Raise a `ConfigError` with every fault found so far, if any."""
        if problems := self.problems():
            raise ConfigError(tuple(problems))


def _missing_tables(names: list[str]) -> str:
    tables = [f"[[{name}]]" if name == "houses" else f"[{name}]" for name in names]
    if len(tables) == 1:
        return f"{tables[0]} is missing; add this table, as hushgrid init writes it."
    text = f"{', '.join(tables[:-1])} and {tables[-1]}"
    return f"{text} are missing; add these tables, as hushgrid init writes them."


class Faults:
    """The mistakes of one file: one for each key, and none that only follows from another.

    Attributes:
        messages: The mistakes by key, in order of discovery.
        missing: Tables that the file lacks; together they are one mistake.
        elsewhere: Keys whose mistake is reported under another key, such as a misspelt one.
    """

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.missing: list[str] = []
        self.elsewhere: set[str] = set()
        self._added = 0

    def __len__(self) -> int:
        """How many mistakes were added, including those that are not reported."""
        return self._added

    def add(self, key: str, message: str, *further: str) -> None:
        """Add a mistake.

        Args:
            key: The key at fault, as a path such as `houses[0].bound`.
            message: One sentence with the key, the value and the fix.
            further: Keys that the mistake depends on. If one of them has a fault, this one
                is counted but not reported.
        """
        self._added += 1
        if not self.at(key, *further):
            self.messages[key] = masked(message)

    def add_missing(self, table: str) -> None:
        """Add a table that the file lacks."""
        self._added += 1
        if not self.at(table):
            self.missing.append(table)

    def at(self, *keys: str) -> bool:
        """True if a mistake was found at one of the keys."""
        places = (self.messages, self.missing, self.elsewhere)
        return any(key in place for key in keys for place in places)

    @contextmanager
    def within(self, key: str) -> Iterator[None]:
        """Errors raised inside become faults of this key."""
        try:
            yield
        except HushgridError as error:
            self.add(key, str(error))
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError):
            self.add(key, f"{key} holds a value of the wrong kind or size; see docs/files.md.")


_SECRETS = (
    (re.compile(r"([A-Za-z][\w+.-]*:/+)[\s\S]*@"), r"\1***@"),
    (re.compile(r"(passw\w*\s*=\s*)[^&\n]*", re.I), r"\1***"),
)
_LONGEST = 80  # characters of a value that a message shows


def masked(text: str) -> str:
    """Replace passwords in a text.

    Args:
        text: Any text.

    Returns:
        The text with asterisks in place of user information in URLs and of password values.

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
