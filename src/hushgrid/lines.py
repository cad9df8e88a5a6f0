"""Where in a TOML file each key stands. For files that tomllib has read: nothing is checked here.

Keys are written as messages write them: `houses[0].bound`, `models[1].chains.at home.periods[2]`.
"""

from __future__ import annotations

import re

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
    """The line (from 1) of every key, table and element.

    >>> lines_of('[a]\\nb = [1,\\n 2] # c = 3\\n')
    {'a': 1, 'a.b': 2, 'a.b[0]': 2, 'a.b[1]': 3}
    """
    return _Scanner(source).scan()


def line_at(lines: dict[str, int], key: str) -> int:
    """The line of a key, or of the closest thing around it; 1 where nothing is known of it."""
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
                if found is None:  # no key at all: get on, whatever this is
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
