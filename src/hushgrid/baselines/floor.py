"""The least standard deviation of any additive noise that keeps a pair of laws epsilon apart.

The noise's pmf p on a grid is a linear programme: least sum of p k^2 with f1*p <= e^epsilon f0*p
and the reverse at every point. Beyond the grid both tails fall geometrically, each as fast as
epsilon allows, so that every constraint out there repeats one that is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Floats
from hushgrid.checks import float_array, is_real
from hushgrid.errors import ConsumptionError, PolicyError

MAX_CELLS = 200
_REACH = 8  # the grid's half width, in units of the laws' own


def floor_sd(absent: ArrayLike, present: ArrayLike, epsilon: float) -> float:
    """Standard deviation, in cells of the grid the two pmfs are given on.

    >>> round(floor_sd(np.full(10, 0.1), np.full(20, 0.05), 0.5) / 20, 2)
    0.65
    """
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"epsilon is {epsilon}; give a positive number.")
    f0, f1 = _pair(absent, present)
    if np.allclose(f0, f1):
        return 0.0
    return math.sqrt(_solved(f0, f1, epsilon))


def _pair(absent: ArrayLike, present: ArrayLike) -> tuple[Floats, Floats]:
    laws = [
        float_array(law, name, ConsumptionError)
        for law, name in ((absent, "absent"), (present, "present"))
    ]
    size = max(law.size for law in laws)
    if size > MAX_CELLS:
        raise ConsumptionError(
            f"the laws have {size} cells; a floor is for small cases: give {MAX_CELLS} or fewer."
        )
    for law in laws:
        if law.ndim != 1 or law.size == 0 or not (law >= 0).all() or not abs(law.sum() - 1) < 1e-9:
            raise ConsumptionError(
                f"a law has shape {law.shape} and sum {law.sum():g}; give probabilities from cell"
                " 0 on, summing to 1."
            )
    f0, f1 = (np.pad(law, (0, size - law.size)) for law in laws)
    return f0, f1


def _solved(f0: Floats, f1: Floats, epsilon: float) -> float:
    from scipy import optimize, sparse

    solver, matrices = cast(Any, optimize), cast(Any, sparse)  # scipy has no types
    width = len(f0)
    half = _REACH * width
    right, left = (_rate(f0, f1, sign, epsilon, width) for sign in (1.0, -1.0))
    p, mass, cost = _noise(half, 2 * width, left, right)
    seen: list[Any] = [
        matrices.csr_matrix(_convolution(f, len(p))[width - 1 : len(p)] @ p) for f in (f0, f1)
    ]
    grown = math.exp(epsilon)
    limits = matrices.vstack([seen[1] - grown * seen[0], seen[0] - grown * seen[1]])
    found = solver.linprog(
        cost / width**2,  # near 1: the solver's tolerances are absolute
        A_ub=limits,
        b_ub=np.zeros(limits.shape[0]),
        A_eq=mass[None],
        b_eq=[1.0],
        method="highs",
    )
    if found.status != 0:
        raise PolicyError(f"no noise was found at epsilon = {epsilon:g}; give a larger epsilon.")
    return float(found.fun) * width**2


def _rate(f0: Floats, f1: Floats, sign: float, epsilon: float, width: int) -> float:
    """The fastest fall of a tail, a cell, that keeps the laws' ratio within epsilon."""
    from scipy import optimize

    x = sign * np.arange(len(f0))

    def beyond(s: float) -> float:
        shifted = np.exp(s * x - (s * x).max())
        return abs(math.log(float(f1 @ shifted) / float(f0 @ shifted))) - epsilon

    top = 1.0 / width
    while top < 30 and beyond(top) < 0:
        top *= 2
    if beyond(top) < 0:
        return top
    return float(cast(Any, optimize).brentq(beyond, 0.0, top, xtol=1e-12))


def _noise(half: int, extra: int, left: float, right: float) -> tuple[Floats, Floats, Floats]:
    """The pmf from the unknowns -half..half, `extra` cells of tail on each side; mass; cost."""
    size = 2 * half + 1
    p = np.zeros((size + 2 * extra, size))
    p[extra : extra + size] = np.eye(size)
    j = np.arange(1, extra + 1)
    p[extra - j, 0], p[extra + size - 1 + j, -1] = np.exp(-left * j), np.exp(-right * j)
    mass, cost = np.ones(size), np.arange(-half, half + 1, dtype=np.float64) ** 2
    for column, s in ((0, left), (-1, right)):
        j = np.arange(1, 2 + math.ceil(60 / s))
        fall = np.exp(-s * j)
        mass[column] += fall.sum()
        cost[column] += float(((half + j) ** 2) @ fall)
    return p, mass, cost


def _convolution(f: Floats, size: int) -> Floats:
    """The matrix of f * p for a p of `size` cells."""
    out = np.zeros((size + len(f) - 1, size))
    for shift, weight in enumerate(f.tolist()):
        out[np.arange(size) + shift, np.arange(size)] = weight
    return out


def floor_of_uniform(
    absent: int, present: int, epsilon: float, cells: int, tick: Callable[[], None] = lambda: None
) -> float:
    """The floor [Wh] for readings uniform on 0..absent and 0..present Wh, on a grid of cells."""
    if not 1 <= cells <= MAX_CELLS:
        raise ConsumptionError(f"cells is {cells}; give 1 to {MAX_CELLS}.")
    top = max(absent, present)
    f0, f1 = (_cells(u, top, cells) for u in (absent, present))
    found = floor_sd(f0, f1, epsilon) * top / cells
    tick()
    return found


def _cells(u: int, top: int, cells: int) -> Floats:
    """A uniform law on 0..u as shares of the grid's cells on 0..top."""
    if u < 1:
        raise ConsumptionError(f"a law's top is {u}; give whole Wh, 1 or more.")
    edges = np.minimum(np.arange(cells + 1) * top / cells, u)
    return np.asarray(np.diff(edges) / u)
