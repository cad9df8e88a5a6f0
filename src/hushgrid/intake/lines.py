"""Bytes to lines, with bounded memory: those that are too long or not UTF-8 are told apart."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from hushgrid.errors import IntakeError
from hushgrid.intake.readings import (
    Fault,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

LINE_LIMIT = 1 << 16  # [bytes] a longer line or record is malformed
BLOCK = 1 << 18  # [bytes] read at a time
ByteSource = bytes | Iterable[bytes]
ByteStream = io.BufferedIOBase  # in memory: nothing here opens a file


class _Chunks(io.RawIOBase):
    """Chunks as a raw file."""

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source, self._rest = iter(source), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer)
        while not self._rest:
            chunk = next(self._source, None)
            if chunk is None:
                return 0
            if not isinstance(chunk, (bytes, bytearray, memoryview)):
                raise IntakeError(f"input gives {type(chunk).__name__}; give bytes.")
            self._rest = memoryview(chunk)
        size = min(len(into), len(self._rest))
        into[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def open_bytes(source: ByteSource) -> ByteStream:
    """Bytes as a file; chunks are taken as they are needed.

    Args:
        source: Bytes, or an iterable of byte chunks.

    Returns:
        A file to read from.

    >>> open_bytes([b"ab", b"", b"cde"]).read(4)
    b'abcd'
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    return io.BufferedReader(_Chunks(source), BLOCK)


def raw_lines(stream: ByteStream, limit: int = LINE_LIMIT) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a file, block by block.

    Args:
        stream: A file, as `open_bytes` gives it.
        limit: Longest line [bytes]; of a longer one more than `limit` bytes are kept.

    Yields:
        Number of the first line, from 1, and the lines without line feeds.

    >>> list(raw_lines(open_bytes(b"a\\nb")))
    [(1, [b'a', b'b'])]
    """
    number, mark = 1, codecs.BOM_UTF8
    while block := stream.read(BLOCK):
        if not block.endswith(b"\n"):
            block += stream.readline(limit + 1)
        raw = block.removeprefix(mark).split(b"\n")
        if not raw[-1]:
            raw.pop()
        elif len(raw[-1]) > limit:  # its end may never come: pass over it
            while (more := stream.readline(BLOCK)) and not more.endswith(b"\n"):
                pass
        yield number, raw
        number, mark = number + len(raw), b""


class Lines(NamedTuple):
    """Some lines of a text, without their ends.

    Attributes:
        first: Number of the first line, from 1.
        text: The lines; empty where a line is broken.
        broken: Number and fault of the lines that cannot be read.
    """

    first: int
    text: list[str]
    broken: list[tuple[int, Fault]]


def lines(stream: ByteStream, limit: int = LINE_LIMIT) -> Iterator[Lines]:
    """The lines of UTF-8 text, block by block; a line beyond `limit` is dropped while it is read.

    Args:
        stream: A file, as `open_bytes` gives it.
        limit: Longest line [bytes].

    Yields:
        The lines of each block.

    >>> [tuple(part) for part in lines(open_bytes(b"a\\r\\nb\\n"))]
    [(1, ['a', 'b'], [])]
    """
    for first, raw in raw_lines(stream, limit):
        texts = [decoded(line, limit) for line in raw]
        broken = [
            (at, line_fault)
            for at, line_fault in enumerate(texts, first)
            if isinstance(line_fault, Fault)
        ]
        yield Lines(first, ["" if isinstance(line, Fault) else line for line in texts], broken)


def decoded(line: bytes, limit: int = LINE_LIMIT) -> str | Fault:
    """Text of a line.

    Args:
        line: The line, without its line feed.
        limit: Longest line [bytes].

    Returns:
        The text; a `Fault` where it is too long or not UTF-8.
    """
    try:
        return Fault.TOO_LONG if len(line) > limit else line.decode().removesuffix("\r")
    except UnicodeDecodeError:
        return Fault.NOT_UTF8


def in_utf8(source: ByteSource, encoding: str) -> ByteSource:
    """Text of another encoding as UTF-8, block by block.

    Args:
        source: Bytes, or an iterable of byte chunks.
        encoding: As `ColumnMapping.encoding`.

    Returns:
        The text in UTF-8; what is no text of the encoding is none of UTF-8 either.

    >>> b"".join(in_utf8("Zähler".encode("utf-16"), "utf-16")).decode()
    'Zähler'
    """
    return source if encoding == "utf-8" else _recoded(open_bytes(source), encoding)


def _recoded(stream: ByteStream, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    while block := stream.read(BLOCK):
        yield decoder.decode(block).encode().replace(_UNREADABLE, b"\xff")
    yield decoder.decode(b"", final=True).encode().replace(_UNREADABLE, b"\xff")


_UNREADABLE = "\ufffd".encode()  # what a decoder puts in place of bytes that are no text
