"""Parquet files of readings; the canonical one has `meter_id, start_utc, duration_s, wh`.

A page of a hostile file may claim up to 2 GiB before anything can be checked, so take Parquet from
files of your own; from the network take JSON, CSV or an Arrow stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from hushgrid.errors import IntakeError
from hushgrid.intake.mapping import CANONICAL, ColumnMapping
from hushgrid.intake.readings import Parsed, collect
from hushgrid.intake.tables import Table, arrow

_ROWS = 1 << 17  # in a batch
_THRIFT_LIMIT = 1 << 26  # [bytes] and entries; a footer beyond it is no table of readings


def parse_parquet(source: bytes | BinaryIO, mapping: ColumnMapping = CANONICAL) -> Parsed:
    """All readings of a Parquet file, given as bytes or as an open file that can seek."""
    return collect(parquet_batches(source, mapping))


def parquet_batches(
    source: bytes | BinaryIO, mapping: ColumnMapping = CANONICAL
) -> Iterator[Parsed]:
    """The readings of a Parquet file, some 100,000 rows at a time."""
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
