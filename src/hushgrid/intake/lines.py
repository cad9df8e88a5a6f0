"""Byte chunks to lines, with memory bounded whatever the lines are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hushgrid.errors import IntakeError
from hushgrid.intake.faults import Fault

LINE_LIMIT = 1 << 16  # [bytes] a longer line or record is malformed
BLOCK = 1 << 18  # [bytes] read at a time

ByteSource = bytes | Iterable[bytes]


def chunks(source: ByteSource) -> Iterator[bytes | bytearray | memoryview]:
    """What the source gives, checked to be bytes."""
    for chunk in [source] if isinstance(source, (bytes, bytearray, memoryview)) else source:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            raise IntakeError(f"input gives {type(chunk).__name__}; give bytes.")
        yield chunk


def blocks(source: ByteSource, size: int = BLOCK) -> Iterator[bytes]:
    """The same bytes in blocks of `size` to 2 `size`, the last one smaller.

    >>> [len(block) for block in blocks([b"ab", b"c", b"defgh"], size=3)]
    [3, 3, 2]
    """
    held = bytearray()
    for chunk in chunks(source):
        view = memoryview(chunk)
        for at in range(0, len(view), size):
            held += view[at : at + size]
            if len(held) >= size:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


class Lines(NamedTuple):
    """Lines without their ends; line `first + i` is `text[i]`, empty where it is `broken`."""

    first: int
    text: list[str]
    broken: list[tuple[int, Fault]]


def lines(source: ByteSource, limit: int = LINE_LIMIT) -> Iterator[Lines]:
    """The lines of UTF-8 text, block by block; one beyond `limit` is dropped while it is read.

    >>> [tuple(part) for part in lines(b"a\\r\\nb\\n")]
    [(1, ['a', 'b'], [])]
    """
    number = 1
    for data in whole_lines(source, limit):
        raw = data.split(b"\n")[:-1]
        yield decoded(number, raw, limit)
        number += len(raw)


def whole_lines(source: ByteSource, limit: int = LINE_LIMIT) -> Iterator[bytes]:
    """The same without a mark of UTF-8 before it, a line feed behind each line, block by block.

    Of a line beyond `limit` only the beginning is given, which is beyond it too.

    >>> list(whole_lines([b"a\\nb"]))
    [b'a\\n', b'b\\n']
    """
    return whole_lines_of(blocks(source), limit)


def whole_lines_of(stream: Iterable[bytes], limit: int = LINE_LIMIT) -> Iterator[bytes]:
    """The same of blocks already made."""
    held, dropping, mark = b"", False, b"\xef\xbb\xbf"
    for block in stream:
        if dropping:
            end = block.find(b"\n")
            if end < 0:
                continue
            block, dropping = block[end + 1 :], False
        data = held + block
        end = data.rfind(b"\n") + 1
        data, held = data[:end], data[end:]
        if len(held) > limit:  # tell it now: its end may never come
            data, held, dropping = data + held + b"\n", b"", True
        if data:
            yield data.removeprefix(mark)
            mark = b""
    if held:
        yield held.removeprefix(mark) + b"\n"


def decoded(first: int, raw: list[bytes], limit: int = LINE_LIMIT) -> Lines:
    """Lines as texts; the first has the number `first`."""
    try:
        text = b"\n".join(raw).decode().split("\n")
        if max(map(len, raw)) <= limit:
            return Lines(first, [line.removesuffix("\r") for line in text], [])
    except UnicodeDecodeError:
        pass
    return _decoded_singly(first, raw, limit)


def _decoded_singly(first: int, raw: list[bytes], limit: int) -> Lines:
    text, broken = [], []
    for number, line in enumerate(raw, first):
        try:
            fault = Fault.TOO_LONG if len(line) > limit else None
            text.append("" if fault else line.decode().removesuffix("\r"))
        except UnicodeDecodeError:
            fault = Fault.NOT_UTF8
            text.append("")
        if fault:
            broken.append((number, fault))
    return Lines(first, text, broken)
