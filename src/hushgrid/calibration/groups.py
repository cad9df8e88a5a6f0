"""Houses that no rule can tell apart, numbered as groups in time and memory linear in houses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Int32s


def grouped(labels: Sequence[Int32s]) -> tuple[Int32s, int]:
    """Number the distinct combinations of labels: (group of each house, number of groups)."""
    group, count = np.zeros(len(labels[0]), np.int32), 1
    for label in labels:
        low = int(label.min())
        width = int(label.max()) - low + 1
        if width == 1:
            continue
        span = count * width
        kind = np.int32 if span < 2**31 else np.int64
        combined: NDArray[Any] = group.astype(kind)
        combined *= width
        combined += label
        combined -= low
        if span <= 4 * len(group) + 65536:
            seen = np.zeros(span, np.bool_)
            seen[combined] = True
            number = np.cumsum(seen, dtype=np.int32) - np.int32(1)
            group, count = number[combined], int(seen.sum())
        else:
            distinct, inverse = np.unique(combined, return_inverse=True)
            group, count = inverse.astype(np.int32), len(distinct)
    return group, count


def largest_of_groups(group_of: Int32s, count: int, bound: Int32s) -> Int32s:
    """For each group the first house with the group's largest bound."""
    top = np.full(count, -1, np.int32)
    np.maximum.at(top, group_of, bound)
    largest = np.zeros(count, np.int32)
    houses = np.flatnonzero(bound == top[group_of])[::-1].astype(np.int32)
    largest[group_of[houses]] = houses
    return largest
