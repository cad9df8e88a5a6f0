"""Is this a number at all? What every type asks of its fields before it trusts them."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Floats, Int32s
from hushgrid.errors import HushgridError


def is_real(value: Any) -> bool:
    """A finite number; True and False are none, text is none.

    >>> is_real(0.5), is_real(True), is_real("0.5"), is_real(float("nan"))
    (True, False, False, False)
    """
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """A finite whole number, as an integer type or not."""
    return is_real(value) and value == math.floor(value)


def index_array(values: ArrayLike, what: str, error: type[HushgridError]) -> Int32s:
    """Whole numbers that fit 32 bits, read-only; nothing is rounded or wrapped to fit."""
    try:
        array = np.array(values)
    except ValueError:
        raise error(f"{what} is ragged; give whole numbers.") from None
    if array.dtype.kind not in "iuf" and array.size:
        raise error(f"{what} has type {array.dtype}; give whole numbers.")
    bad = ~((array >= -(2**31)) & (array < 2**31)) | (array != np.floor(array))
    if bad.any():
        raise error(f"{what} holds {array[bad].flat[0]}; give whole numbers below 2^31.")
    own = array.astype(np.int32)
    own.flags.writeable = False
    return own


def float_array(
    values: ArrayLike, what: str, error: type[HushgridError], fields: tuple[str, ...] = ()
) -> Floats:
    """Numbers, as an array of one's own; `fields` are those of the error."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise error(
            f"{what} is ragged or holds no numbers; give one number in each place.", fields=fields
        ) from None
