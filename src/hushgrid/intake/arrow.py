"""Readings as Arrow IPC streams and as Parquet files.

An Arrow message holds at most 64 MiB and is not compressed: a compressed one would itself declare
how much memory to allocate. A page of a hostile Parquet file may claim up to 2 GiB before anything
can be checked, so read Parquet from your own files only; from the network accept JSON, CSV or an
Arrow stream. The canonical columns are `meter_id, start_utc, duration_s, wh`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from hushgrid.errors import IntakeError
from hushgrid.intake.readings import Parsed, collect
from hushgrid.intake.tables import Table, arrow
from hushgrid.intake.text import CANONICAL, ByteSource, ColumnMapping, chunks

MESSAGE_LIMIT = 1 << 26  # [bytes]
_HEADER = struct.Struct("<II")  # continuation mark, length of the metadata [bytes]
_CONTINUES = 0xFFFFFFFF
_SMALL = 1 << 12  # [bytes]
_DICTIONARY = 2  # header_type of Message.fbs


def parse_arrow(source: ByteSource, mapping: ColumnMapping = CANONICAL) -> Parsed:
    """All readings of an Arrow IPC stream.

    Args:
        source: Bytes, or an iterable of byte chunks.
        mapping: Names and forms of the columns.

    Returns:
        The readings and the malformed rows.
    """
    return collect(arrow_batches(source, mapping))


def arrow_batches(source: ByteSource, mapping: ColumnMapping = CANONICAL) -> Iterator[Parsed]:
    """The readings of an Arrow IPC stream, one record batch at a time.

    Args:
        source: Bytes, or an iterable of byte chunks.
        mapping: Names and forms of the columns.

    Yields:
        The readings and the malformed rows of each batch.

    Raises:
        IntakeError: If the stream is damaged, compressed, or lacks a column of the mapping.
    """
    pa = arrow()
    options = pa.ipc.IpcReadOptions(use_threads=False)
    try:
        stream = pa.ipc.open_stream(pa.PythonFile(_Checked(source), "r"), options=options)
        table = Table(stream.schema, mapping)
        for batch in stream:
            yield table.parsed(batch)
    except IntakeError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise IntakeError(
            f"input is not a sound Arrow IPC stream ({type(error).__name__}); write it again."
        ) from None


class _Checked:
    """The stream as a file, every message measured before Arrow sees it."""

    closed = False

    def __init__(self, source: ByteSource) -> None:
        self._pieces = _pieces(source)
        self._raw = memoryview(b"")  # not yet checked
        self._parts: list[bytes | memoryview] = []  # of the message, the next one last

    def read(self, n: int) -> bytes:
        """As Arrow reads: parts that it asks for whole, as it does for a body, are not copied."""
        found = b""
        while len(found) < n and (self._parts or self._next()):
            part, wanted = self._parts.pop(), n - len(found)
            if len(part) > wanted:
                self._parts.append(memoryview(part)[wanted:])
                part = part[:wanted]
            found = found + part if found else bytes(part)
        return found

    def _next(self) -> bool:
        self._parts = [part for part in reversed(self._checked()) if part]
        return len(self._parts) > 0

    def _checked(self) -> tuple[bytes, ...]:
        header = self._take(_HEADER.size)
        if len(header) < _HEADER.size:
            return (header,)
        mark, length = _HEADER.unpack(header)
        if mark != _CONTINUES:
            raise IntakeError("input is no Arrow IPC stream; write one with Arrow 0.15 or later.")
        if length == 0:
            return (header,)
        metadata = self._take(length)
        try:
            body, compressed = _described(metadata)
        except (struct.error, IndexError):
            raise IntakeError("Arrow stream has a broken message; write it again.") from None
        if compressed:
            raise IntakeError("Arrow stream is compressed; write it uncompressed.")
        return header, metadata, self._take(body)

    def _take(self, n: int) -> bytes:
        """The next bytes in an object of their own, so that numbers in a body are aligned."""
        if not 0 <= n <= MESSAGE_LIMIT:
            raise IntakeError(
                "Arrow stream has a message beyond 64 MiB; write smaller record batches."
            )
        found: list[memoryview] = []
        while n and (self._raw or self._more()):
            found.append(self._raw[:n])
            self._raw = self._raw[n:]
            n -= len(found[-1])
        return b"".join(found)

    def _more(self) -> bool:
        self._raw = memoryview(next(self._pieces, b""))
        return len(self._raw) > 0


def _pieces(source: ByteSource) -> Iterator[bytes]:
    """The same bytes; small chunks are put together, so that a message has few pieces."""
    held = bytearray()
    for chunk in chunks(source):
        if len(chunk) < _SMALL:
            held += chunk
        if len(held) >= _SMALL or (held and len(chunk) >= _SMALL):
            yield bytes(held)
            held.clear()
        if len(chunk) >= _SMALL:
            yield bytes(chunk)  # one of bytes is not copied; another may change
    if held:
        yield bytes(held)


def _described(metadata: bytes) -> tuple[int, bool]:
    """Length of the body [bytes], and whether it is compressed (Message.fbs, flatbuffers)."""
    message = _offset(metadata, 0)
    length = _field(metadata, message, 3)
    kind, header = _field(metadata, message, 1), _field(metadata, message, 2)
    body = struct.unpack_from("<q", metadata, length)[0] if length else 0
    if not (kind and header):
        return body, False
    batch = _offset(metadata, header)
    if metadata[kind] == _DICTIONARY:
        data = _field(metadata, batch, 1)
        batch = _offset(metadata, data) if data else batch
    elif metadata[kind] != 3:  # a schema has no body
        return body, False
    return body, _field(metadata, batch, 3) != 0


def _offset(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Offset of a field of a flatbuffers table; 0 where the table lacks it."""
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    if fields < 0:
        raise struct.error
    (size,) = struct.unpack_from("<H", data, fields)
    if size < 6 + 2 * number:
        return 0
    (at,) = struct.unpack_from("<H", data, fields + 4 + 2 * number)
    return table + int(at) if at else 0


_ROWS = 1 << 17  # in a batch
_THRIFT_LIMIT = 1 << 26  # [bytes] and entries; a footer beyond it is no table of readings


def parse_parquet(source: bytes | BinaryIO, mapping: ColumnMapping = CANONICAL) -> Parsed:
    """All readings of a Parquet file.

    Args:
        source: Its bytes, or an open file that can seek.
        mapping: Names and forms of the columns.

    Returns:
        The readings and the malformed rows.
    """
    return collect(parquet_batches(source, mapping))


def parquet_batches(
    source: bytes | BinaryIO, mapping: ColumnMapping = CANONICAL
) -> Iterator[Parsed]:
    """The readings of a Parquet file, some 100,000 rows at a time.

    Args:
        source: Its bytes, or an open file that can seek.
        mapping: Names and forms of the columns.

    Yields:
        The readings and the malformed rows of each batch.

    Raises:
        IntakeError: If the file is damaged or lacks a column of the mapping.
    """
    pa = arrow()
    from pyarrow import parquet

    if isinstance(source, str) or not (isinstance(source, bytes) or hasattr(source, "seek")):
        raise IntakeError(f"source is a {type(source).__name__}; give bytes or an open file.")
    try:
        file = parquet.ParquetFile(
            pa.BufferReader(source) if isinstance(source, bytes) else source,
            thrift_string_size_limit=_THRIFT_LIMIT,
            thrift_container_size_limit=_THRIFT_LIMIT,
        )
        table = Table(file.schema_arrow, mapping)
        for batch in file.iter_batches(_ROWS, columns=table.names, use_threads=False):
            yield table.parsed(batch)
    except IntakeError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise IntakeError(
            f"input is not a sound Parquet file ({type(error).__name__}); give another copy."
        ) from None
