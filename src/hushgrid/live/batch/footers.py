"""What a Parquet file says of its readings in its footer, so that nobody need look at each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgrid.errors import BatchError
from hushgrid.live.batch.expression import COLUMNS, RECEIVED

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Schema = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """`first`, `last` [epoch s] and `duration` [s] of all readings; None where it is not said.

    `schema` has the columns that are read and their types. `full`: no start and no Wh is missing.
    """

    path: str
    schema: Schema
    first: int | None
    last: int | None
    duration: int | None
    full: bool

    def meets(self, first: int, end: int) -> bool:
        """Whether a reading may start from `first` to `end` [epoch s]."""
        if self.first is None or self.last is None:
            return True
        return self.last >= first and self.first < end

    def lies_within(self, first: int, end: int) -> bool:
        """Whether every row is a reading that starts from `first` to `end` [epoch s]."""
        if self.first is None or self.last is None:
            return False
        return self.full and self.first >= first and self.last < end


def footer_of(path: Path) -> Footer:
    """The footer of a file; BatchError where there is none, or a column is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_metadata(path)
        schema = found.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise BatchError(
            f"{path} is no sound Parquet file ({type(error).__name__}); write it again."
        ) from None
    for column in COLUMNS:
        if column not in schema.names:
            raise BatchError(f"{path} has no column {column}; give {', '.join(COLUMNS)}.")
    read = [column for column in (*COLUMNS, RECEIVED) if column in schema.names]
    kind = schema.field("wh").type
    starts, durations = _range(found, "start_utc"), _range(found, "duration_s")
    return Footer(
        str(path),
        tuple((column, str(schema.field(column).type)) for column in read),
        starts and starts[0],
        starts and starts[1],
        durations[0] if durations and durations[0] == durations[1] else None,
        # a float may be no number, which is as good as missing
        starts is not None and pa.types.is_integer(kind) and _is_full(found, "wh"),
    )


def _range(found: pq.FileMetaData, column: str) -> tuple[int, int] | None:
    """The least and the largest value; None where a value is missing or something is not said."""
    low, high = [], []
    for one in _statistics(found, column):
        if one is None or one.null_count != 0 or not one.has_min_max:
            return None
        try:
            low.append(_number(one.min))
            high.append(_number(one.max))
        except (TypeError, ValueError, OverflowError):  # of a kind that has no such numbers
            return None
    return (min(low), max(high)) if low else None


def _is_full(found: pq.FileMetaData, column: str) -> bool:
    return all(
        one is not None and one.has_null_count and one.null_count == 0
        for one in _statistics(found, column)
    )


def _statistics(found: pq.FileMetaData, column: str) -> Iterator[Any]:
    """Of each row group; none where the column has parts."""
    names = [found.schema.column(k).path for k in range(found.num_columns)]
    if column not in names:
        yield None
        return
    for k in range(found.num_row_groups):
        yield found.row_group(k).column(names.index(column)).statistics


def _number(value: Any) -> int:
    if isinstance(value, datetime):
        return math.floor((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, int):
        return value
    raise TypeError
