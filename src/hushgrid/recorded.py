"""Real days from files: meter readings and survey chains, as arrays for a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.errors import FileError, IntakeError

DAY = 86_400  # [s]


def read_days(path: Path, interval_s: int) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Meter ids and readings (days, T, meters) [Wh], -1 where missing; days begin at 00:00 UTC.

    Only whole days between the first and the last are kept; negative readings (export) count as 0.
    """
    from hushgrid.intake import CANONICAL, collect, parquet_batches, settle
    from hushgrid.live.formats import parser_of

    if DAY % interval_s:
        raise FileError(f"interval is {interval_s} s; give one that divides a day, such as 1800.")
    try:
        with path.open("rb") as stream:
            if path.suffix.lower() == ".parquet":
                parsed = collect(parquet_batches(stream, CANONICAL))
            else:
                parsed = collect(parser_of(path)([stream.read()], CANONICAL))
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror}); give a file of readings."
        ) from None
    except IntakeError as error:
        raise FileError(f"{path}: {error}") from None
    settled = settle(parsed.readings, interval_s).complete
    if not len(settled):
        raise FileError(
            f"{path} fills no interval of {interval_s} s; give readings of at most that length."
        )
    order = sorted(settled.ids)
    place = np.array([order.index(name) for name in settled.ids])
    day = settled.start // DAY
    first, last = int(day.min()), int(day.max())
    out = np.full((last - first + 1, DAY // interval_s, len(order)), -1, np.int32)
    out[day - first, settled.start % DAY // interval_s, place[settled.code]] = np.clip(
        settled.wh, 0, 2**31 - 1
    )
    told = np.asarray((out >= 0).any(axis=2))
    whole = np.asarray(told.all(axis=1))  # some meter told every interval
    return tuple(order), out[whole]


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
