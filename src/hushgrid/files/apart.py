"""Formats that need a whole file, parsed in a process of their own.

pyarrow trusts Parquet: a damaged file may end the process, and one of 30 bytes may claim gigabytes.
Here both end the process that parses, which is one `IntakeError` for the caller.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from hushgrid.errors import HushgridError, IntakeError
from hushgrid.intake.readings import Parsed
from hushgrid.intake.text import ColumnMapping, Format

MEMORY = 1 << 30  # [bytes] of address space for a body, in addition to the body
SECONDS = 300  # of computing for a body
_ENVIRONMENT = {  # threads and pools reserve addresses that no one uses
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def batches_apart(
    parse: Callable[[Any, ColumnMapping], Iterator[Parsed]],
    source: bytes | Path,
    mapping: ColumnMapping,
) -> Iterator[Parsed]:
    """Parse in another process.

    Args:
        parse: As `Format.batches`; a function of a module.
        source: Bytes of others, parsed within `MEMORY` and `SECONDS` where the system has such
            limits; or an own file, without limits.
        mapping: Names and forms of the columns.

    Yields:
        The readings and the malformed rows of each batch.

    Raises:
        IntakeError: If the input is not of its format, or the process ended.
        OSError: If the file cannot be read.
    """
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "hushgrid.files.apart"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | _ENVIRONMENT | {"PYTHONPATH": path},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin:
            pickle.dump((parse, source, mapping), process.stdin)
        while (part := pickle.load(process.stdout)) is not None:
            if isinstance(part, Exception):
                raise part
            yield part
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        raise IntakeError(
            "input is damaged, or takes more than 1 GiB or 300 s to read; give another copy, or"
            " parts of it."
        ) from None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def limited(form: Format, row_limit: int) -> Callable[[Any, ColumnMapping], Iterator[Parsed]]:
    """The function that parses a format that seeks, for inputs of at most so many rows.

    Args:
        form: The format.
        row_limit: Rows of an input; what says that it has more is refused before a row is read.

    Returns:
        A function for `batches_apart`.
    """
    if form.rows is None:
        return form.batches
    return partial(_within, form.batches, form.rows, row_limit)


def _within(
    parse: Callable[[Any, ColumnMapping], Iterator[Parsed]],
    rows: Callable[[Any], int],
    row_limit: int,
    source: Any,
    mapping: ColumnMapping,
) -> Iterator[Parsed]:
    if (count := rows(source)) > row_limit:
        raise IntakeError(
            f"input has {count} rows, but its sender's meters have at most {row_limit} readings in"
            " intervals that may be open; send it in parts."
        )
    return parse(source, mapping)


def _parse() -> None:
    """Parse what the standard input says; write batches, and at the end None or an error."""
    parse, source, mapping = pickle.load(sys.stdin.buffer)
    _limit(source)
    end: Exception | None = None
    try:
        file: AbstractContextManager[Any] = (
            source.open("rb") if isinstance(source, Path) else nullcontext(source)
        )
        with file as data:
            for parsed in parse(data, mapping):
                pickle.dump(parsed, sys.stdout.buffer)
                sys.stdout.buffer.flush()
    except (HushgridError, OSError) as error:
        end = error
    pickle.dump(end, sys.stdout.buffer)


def _limit(source: bytes | Path) -> None:
    with suppress(ImportError):  # not on Windows
        import resource

        limits = {resource.RLIMIT_CORE: 0}  # a dump would hold readings
        if isinstance(source, bytes):
            limits |= {resource.RLIMIT_AS: MEMORY + len(source), resource.RLIMIT_CPU: SECONDS}
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    _parse()
