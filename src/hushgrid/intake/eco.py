"""A day of the ECO data set: one file for each home and day, a line for each second.

The first of the 16 fields of a line is the power of all phases [W], -1 where it is missing. Neither
the home nor the date is in the file; they are in its name.
"""

from __future__ import annotations

import re

import numpy as np

from hushgrid.errors import IntakeError
from hushgrid.intake.lines import ByteSource, open_bytes, raw_lines
from hushgrid.intake.readings import Parsed, Readings, Reason

FIELDS = 16  # of a line
SECONDS = 86_400  # lines of a day
STEP = 900  # [s] of a reading
LEAST = 0.9  # share of the seconds of a quarter hour that have to be there
TOO_FEW = "too few of its seconds are there"
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")


def is_eco(line: bytes) -> bool:
    """Whether a line is one of a day of ECO: 16 numbers.

    Args:
        line: The first line of a file.

    Returns:
        Whether it is.

    >>> is_eco(b"305.4," + b"1," * 14 + b"-1"), is_eco(b"a,b")
    (True, False)
    """
    fields = line.strip().split(b",")
    return len(fields) == FIELDS and all(map(_NUMBER.fullmatch, fields))


def eco_day(source: ByteSource, home: str, midnight: int) -> Parsed:
    """Readings of quarter hours from a day of seconds.

    A reading is the mean of the seconds that are there, where nine in ten are.

    Args:
        source: Content of the file.
        home: Id of the home.
        midnight: Begin of the day [s UTC since 1970].

    Returns:
        Up to 96 readings; a quarter hour with too few seconds is malformed.

    Raises:
        IntakeError: If the content is not a day of lines of 16 numbers.
    """
    watts: list[float] = []
    for number, batch in raw_lines(open_bytes(source)):
        for at, line in enumerate(batch, number):
            first, comma, _ = line.partition(b",")
            if not (comma and _NUMBER.fullmatch(first.strip())):
                raise IntakeError(
                    f"line {at} does not begin with a number and a comma; give a day of ECO, a line"
                    " of 16 numbers for each second."
                )
            watts.append(float(first))
    if len(watts) != SECONDS:
        raise IntakeError(
            f"it has {len(watts)} lines; a day of ECO has {SECONDS}, one for each second."
        )
    power = np.array(watts).reshape(-1, STEP)
    there = power >= 0
    whole = there.mean(axis=1) >= LEAST
    mean = np.where(there, power, 0.0).sum(axis=1)[whole] / there.sum(axis=1)[whole]
    start = midnight + STEP * np.flatnonzero(whole).astype(np.int64)
    lacking = int((~whole).sum())
    place = f"line {int(np.argmin(whole)) * STEP + 1}"
    reasons = (Reason(TOO_FEW, lacking, place),) if lacking else ()
    readings = Readings(
        [home],
        np.zeros(len(start), np.int64),
        start=start,
        duration=np.full(len(start), STEP),
        wh=np.rint(mean * STEP / 3600).astype(np.int64),
    )
    return Parsed(
        readings, lacking, tuple(f"{place}: {reason.text}" for reason in reasons), reasons
    )
