"""Real days from files: meter readings and survey chains, as arrays for a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.errors import FileError, IntakeError

DAY = 86_400  # [s]


class Days(NamedTuple):
    """Readings (days, T, meters) [Wh], -1 where missing; `weekday` (days,), 0 for a Monday."""

    meters: tuple[str, ...]
    readings: NDArray[np.int32]
    weekday: NDArray[np.int64]


def read_days(
    path: Path, interval_s: int, *, time_zone: str = "UTC", meters: Sequence[str] = ()
) -> Days:
    """The whole days of a file, from midnight of `time_zone` on; meters in the order given, or by
    their ids.

    A day is kept where some meter told every interval, and clocks were not changed; negative
    readings (export) count as 0.
    """
    from hushgrid.intake import settle
    from hushgrid.live.local import local_seconds

    if DAY % interval_s:
        raise FileError(f"interval is {interval_s} s; give one that divides a day, such as 1800.")
    settled = settle(_parsed(path), interval_s).complete
    if not len(settled):
        raise FileError(
            f"{path} fills no interval of {interval_s} s; give readings of at most that length."
        )
    order = tuple(meters) or tuple(sorted(settled.ids))
    column = {name: i for i, name in enumerate(order)}
    place = np.array([column.get(name, -1) for name in settled.ids])[settled.code]
    mine = place >= 0
    if not mine.any():
        raise FileError(f"{path} has no reading of the zone's meters; give readings of its homes.")
    first, last = int(settled.start.min()), int(settled.start.max())
    steps, per_day = (last - first) // interval_s + 1, DAY // interval_s
    out = np.full((steps, len(order)), -1, np.int32)
    at = (settled.start - first) // interval_s
    out[at[mine], place[mine]] = np.clip(settled.wh[mine], 0, 2**31 - 1)
    shown = local_seconds(first, interval_s, steps, time_zone)
    clock = shown % DAY // interval_s
    begins = [
        m
        for m in np.flatnonzero(clock == 0)
        if np.array_equal(clock[m : m + per_day], np.arange(per_day))
    ]
    rows = np.array(begins, np.int64).reshape(-1, 1) + np.arange(per_day)
    told = np.asarray((out >= 0).any(axis=1))
    whole = np.asarray(told[rows].all(axis=1))
    kept = rows[whole]
    return Days(order, out[kept], shown[kept[:, 0]] // DAY)


def _parsed(path: Path) -> Any:
    """All readings of a file."""
    from hushgrid.intake import CANONICAL, collect, parquet_batches
    from hushgrid.live.formats import parser_of

    try:
        with path.open("rb") as stream:
            if path.suffix.lower() == ".parquet":
                return collect(parquet_batches(stream, CANONICAL)).readings
            return collect(parser_of(path)([stream.read()], CANONICAL)).readings
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror}); give a file of readings."
        ) from None
    except IntakeError as error:
        raise FileError(f"{path}: {error}") from None


def read_chains(
    path: Path, step_min: int = 15, daytype: str = "wd", definition: str = "present"
) -> dict[int, tuple[Any, Any, float]]:
    """Chains of a time-use survey by number of residents: (p01, p10) by slot, p1 at 00:00."""
    try:
        import pyarrow.parquet as pq

        rows = pq.read_table(path).to_pylist()
    except ImportError:
        raise FileError(
            "pyarrow is not installed; get it with pip install 'hushgrid[intake]'."
        ) from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read ({error}); give a Parquet file.") from None
    wanted = {"daytype": daytype, "definition": definition, "step_min": step_min}
    out: dict[int, tuple[Any, Any, float]] = {}
    try:
        kept = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
        source = min((row["source"] for row in kept), default="")
        for residents in sorted({row["n_residents"] for row in kept}):
            mine = sorted(
                (r for r in kept if (r["n_residents"], r["source"]) == (residents, source)),
                key=lambda r: r["slot"],
            )
            if mine:
                p01, p10 = (np.array([r[name] for r in mine], float) for name in ("p01", "p10"))
                out[int(residents)] = (p01, p10, float(mine[0]["p1"]))
    except (KeyError, TypeError) as error:
        raise FileError(
            f"{path} lacks {error}; give source, n_residents, daytype, definition,"
            " step_min, slot, p01, p10 and p1."
        ) from None
    if not out:
        raise FileError(f"{path} has no chains for {wanted}; give a survey that has.")
    return out
