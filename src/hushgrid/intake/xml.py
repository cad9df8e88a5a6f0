"""XML as a stream of elements, with memory bounded whatever the document is.

A document type is refused, and with it every entity but XML's own five; so nothing expands and
nothing is fetched. Depth, names and tags are limited; of a long text only the beginning is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol
from xml.parsers import expat

from hushgrid.errors import IntakeError
from hushgrid.intake.lines import ByteSource, blocks

DEPTH = 64  # elements within each other
TEXT = 256  # characters of a text that are kept
_BLOCK = 1 << 16  # [bytes] fed at a time
_TOKEN = 1 << 20  # [bytes] of one tag or comment
_NAMES = 1 << 18  # characters in all names together; expat keeps every name it meets


class Handler(Protocol):
    """Who is told of elements; names are "namespace name"."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def end(self, name: str, text: str) -> None:
        """An element ends; `text` stood between this and the tag before."""


def read_xml(source: ByteSource, handler: Handler) -> Iterator[None]:
    """Tell `handler` the elements of a document; pauses after every 64 KiB or so."""
    guard = _Guard(handler)
    try:
        for block in blocks(source, _BLOCK):
            guard.feed(block)
            yield
        guard.close()
    except expat.ExpatError as error:
        raise IntakeError(
            f"input is not well-formed XML ({expat.ErrorString(error.code)}, line {error.lineno});"
            " mend it."
        ) from None
    except LookupError:
        raise IntakeError("XML has an unknown encoding; write it in UTF-8.") from None


class _Guard:
    """Stands between expat and the handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._depth, self._text = 0, ""
        self._names: set[str] = set()
        self._room, self._quiet = _NAMES, 0
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartNamespaceDeclHandler = self._namespace
        parser.CommentHandler = parser.ProcessingInstructionHandler = self._passed
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = self._refused
        self._parser = parser

    def feed(self, block: bytes) -> None:
        self._quiet += len(block)
        self._parser.Parse(block, False)
        if self._quiet > _TOKEN:  # nothing was told for long: expat holds all of it
            raise IntakeError("XML has a tag or comment beyond 1 MiB; give an ESPI document.")

    def close(self) -> None:
        self._parser.Parse(b"", True)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._passed()
        self._depth += 1
        if self._depth > DEPTH:
            raise IntakeError(f"XML nests deeper than {DEPTH}; give an ESPI document.")
        self._count(name)
        for attribute in attributes:
            self._count(attribute)
        self._text = ""
        self._handler.start(name, attributes)

    def _end(self, name: str) -> None:
        self._passed()
        self._depth -= 1
        text, self._text = self._text, ""
        self._handler.end(name, text)

    def _characters(self, text: str) -> None:
        self._passed()
        if len(self._text) < TEXT:
            self._text += text[:TEXT]

    def _namespace(self, prefix: str | None, uri: str | None) -> None:
        self._count(f"{prefix} {uri}")

    def _count(self, name: str) -> None:
        if name in self._names:
            return
        self._names.add(name)
        self._room -= len(name)
        if self._room < 0:
            raise IntakeError("XML has too many names of elements; give an ESPI document.")

    def _passed(self, *_: Any) -> None:
        self._quiet = 0

    def _refused(self, *_: Any) -> None:
        raise IntakeError("XML has a document type; take it out, ESPI needs none.")
