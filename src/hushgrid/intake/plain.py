"""Plain lines of NDJSON, read fast; see `kernels/ndjson.py` for which those are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hushgrid.arrays import Ints
from hushgrid.intake.lines import LINE_LIMIT
from hushgrid.intake.names import Names
from hushgrid.intake.readings import END, MAX_DURATION, MAX_ID, MAX_WH
from hushgrid.kernels.ndjson import (
    DURATION,
    METER,
    METER_END,
    SHORTEST,
    START,
    STATE,
    WH,
    plain_lines,
)

_LIMITS = np.array([1, MAX_ID, 0, END - 1, 1, MAX_DURATION, -MAX_WH, MAX_WH])
_ODD = 64  # lines; few bodies have more that are not plain


class PlainLines(NamedTuple):
    """Good readings with the number of their line, counted from 0; and all other lines."""

    line: Ints
    names: Names  # one for each reading
    start: Ints
    duration: Ints
    wh: Ints
    others: list[tuple[int, bytes]]


def plain(data: bytes) -> PlainLines:
    """Tell plain lines from others; each has a line feed behind it.

    >>> text = b'{"meter_id":"a","start_utc":"1970-01-01T00:00:00Z","duration_s":900,"wh":7}'
    >>> found = plain(text + b"\\nnonsense\\n")
    >>> found.names.texts(), found.wh.tolist(), found.others
    (('a',), [7], [(1, b'nonsense')])
    """
    room = len(data) // SHORTEST
    line, found, odd = _room(room), _room(5, room), _room(3, _ODD)
    raw, known = np.frombuffer(data, np.uint8), _room(STATE)
    n, k = plain_lines(raw, _LIMITS, LINE_LIMIT, known, line, found, odd)
    if k > _ODD:  # now it is known how many; reading them takes far longer than finding them again
        odd = _room(3, k)
        plain_lines(raw, _LIMITS, LINE_LIMIT, known, line, found, odd)
    others = [(number, data[begin:end]) for number, begin, end in odd[:, :k].T.tolist()]
    names = Names(raw, found[METER, :n], found[METER_END, :n])
    return PlainLines(line[:n], names, found[START, :n], found[DURATION, :n], found[WH, :n], others)


def _room(*shape: int) -> Ints:
    return np.empty(shape, np.int64)
