"""Which parser reads what: by media type, by a file's name, by a look at the first bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from types import MappingProxyType

from hushgrid.errors import IntakeError
from hushgrid.intake import (
    CANONICAL,
    LOW_CARBON_LONDON,
    PECAN_STREET,
    ColumnMapping,
    Parsed,
    arrow_batches,
    csv_batches,
    espi_batches,
    json_batches,
    parquet_batches,
)

Parser = Callable[[Iterable[bytes], ColumnMapping], Iterator[Parsed]]

MAPPINGS: Mapping[str, ColumnMapping] = MappingProxyType(
    {"canonical": CANONICAL, "lcl": LOW_CARBON_LONDON, "pecan": PECAN_STREET}
)


def _json(source: Iterable[bytes], mapping: ColumnMapping) -> Iterator[Parsed]:
    del mapping  # JSON names its fields itself
    return json_batches(source)


def _espi(source: Iterable[bytes], mapping: ColumnMapping) -> Iterator[Parsed]:
    del mapping
    return espi_batches(source)


def _parquet(source: Iterable[bytes], mapping: ColumnMapping) -> Iterator[Parsed]:
    """Its index stands at the end, so all of it must be there first."""
    return parquet_batches(b"".join(source), mapping)


BY_MEDIA_TYPE: Mapping[str, Parser] = MappingProxyType(
    {
        "application/json": _json,
        "application/x-ndjson": _json,
        "application/ndjson": _json,
        "text/csv": csv_batches,
        "application/vnd.apache.arrow.stream": arrow_batches,
        "application/vnd.apache.parquet": _parquet,
        "application/atom+xml": _espi,
    }
)

_BY_SUFFIX: Mapping[str, Parser] = MappingProxyType(
    {
        ".json": _json,
        ".ndjson": _json,
        ".jsonl": _json,
        ".csv": csv_batches,
        ".arrows": arrow_batches,
        ".arrow": arrow_batches,
        ".xml": _espi,
    }
)


def mapping_named(name: str) -> ColumnMapping:
    """A known mapping of columns.

    >>> mapping_named("lcl").meter
    'LCLid'
    """
    if name not in MAPPINGS:
        raise IntakeError(f"mapping is {name[:40]!r}; give one of {', '.join(MAPPINGS)}.")
    return MAPPINGS[name]


def parser_of(path: PurePath) -> Parser:
    """The parser for a file by the end of its name; Parquet files are read in place."""
    suffix = path.suffix.lower()
    if suffix not in _BY_SUFFIX:
        known = ", ".join([*_BY_SUFFIX, ".parquet"])
        raise IntakeError(f"file {path} ends in {suffix!r}; give one that ends in {known}.")
    return _BY_SUFFIX[suffix]


def sniffed(payload: bytes) -> Iterator[Parsed]:
    """The readings of a small message: JSON when it begins like it, else canonical CSV.

    >>> text = b"meter_id,start_utc,duration_s,wh\\na,2013-01-01T00:00Z,1800,115\\n"
    >>> [len(parsed.readings) for parsed in sniffed(text)]
    [1]
    """
    begin = payload[:64].removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1]
    if begin in (b"[", b"{"):
        return json_batches(payload)
    return csv_batches(payload, CANONICAL)
