"""Leakage of houses that move alone, many at once through time (docs/proofs/temporal.md).

In factors M = e^leakage the recursion needs no logarithm: M' = e^{e_t} max_j r_j, where
r_j = (hi_j (M - 1) + 1) / (lo_j (M - 1) + 1) for column j.
"""

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from hushgrid.arrays import Bools, Floats, Int32s

_LANES = 256  # houses that go through time together: what they need stays in the nearest cache
_CHUNK = 1 << 20  # numbers in a work array: memory beyond the answer is the same for any zone
_FAR, _FAINT = 1e100, 1e-100  # factors and chances between which no product leaves the floats

# Rows of one work array at offsets known to the compiler: of separate arrays it would have to
# assume that they overlap, and the loops below would not vectorise. Nor would they with Python's
# check of every division; those by 0 belong to certain steps, whose result is replaced.
_A00, _A01, _A10, _A11, _P0, _P1, _M, _R, _LOST, _ROWS = (k * _LANES for k in range(10))


def two_states(
    initial: Floats,
    transition: Floats,
    slots: Int32s,
    chains: NDArray[np.integer],
    e: Floats,
) -> tuple[Floats, Floats, Floats, Bools]:
    """(backward, forward, total) leakage, (T, houses) each, and the houses to do again in logs.

    House i follows chain `chains[i]`; `slots` (T,) is the slot of each step; e is (T, houses) or
    (T, 1). Those houses have leakage too large for a factor, or a state that is possible (in
    Booleans) at a chance too small; their numbers mean nothing.
    """
    horizon, n = len(slots), len(chains)
    losses = np.broadcast_to(e, (horizon, n))
    backward, forward, total = (np.empty((horizon, n)) for _ in range(3))
    lost = np.ones(n, np.bool_)
    width = min(n, max(1, _CHUNK // horizon))
    factors = np.empty((3, horizon, width))
    follows = chains.astype(np.int32, copy=False)  # one type, so that it is compiled once
    for start in range(0, n, width):
        some = slice(start, min(n, start + width))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            grown = np.exp(losses[:, some])
            _two_states(initial, transition, slots, follows[some], grown, factors, lost[some])
            for part, factor in zip((backward, forward, total), factors, strict=True):
                np.log(factor[:, : some.stop - start], out=part[:, some])
    return backward, forward, total, lost


@njit(parallel=True, cache=True, error_model="numpy")  # pragma: no cover
def _two_states(initial, transition, slots, chains, grown, factors, lost):  # type: ignore[no-untyped-def]
    horizon, n = slots.size, chains.size
    backward, forward, total = factors[0], factors[1], factors[2]
    for part in prange((n + _LANES - 1) // _LANES):
        start, stop = part * _LANES, min(n, part * _LANES + _LANES)
        own = chains[start:stop]
        work, possible = np.empty(_ROWS), np.empty(2 * _LANES, np.int64)
        certain = np.empty((horizon, stop - start), np.bool_)
        _begin(work, possible, certain[0], initial, own)
        slot = -1
        for t in range(horizon):
            if t > 0:
                if slots[t] != slot:
                    slot = slots[t]
                    _take(work, transition[slot], own)
                _move(work, possible, certain[t])
            _grow(work, grown[t, start:stop], certain[t])
            _put(work, backward[t, start:stop])
        _forget(work, own.size)
        for t in range(horizon - 1, -1, -1):
            if t < horizon - 1:
                if slots[t + 1] != slot:
                    slot = slots[t + 1]
                    _take(work, transition[slot], own)
                _return(work, own.size)
            _grow(work, grown[t, start:stop], certain[t])
            _put(work, forward[t, start:stop])
            _put_total(work, backward[t, start:stop], total[t, start:stop])
        for i in range(own.size):
            lost[start + i] = work[i + _LOST] > 0.0


@njit(cache=True)  # pragma: no cover
def _begin(work, possible, certain, initial, own):  # type: ignore[no-untyped-def]
    """Step 1: the law and what is possible; nothing is carried yet."""
    for i in range(own.size):
        p0, p1 = initial[own[i], 0], initial[own[i], 1]
        work[i + _P0], work[i + _P1] = p0, p1
        possible[i], possible[i + _LANES] = p0 > 0.0, p1 > 0.0
        certain[i] = not (p0 > 0.0 and p1 > 0.0)
        work[i + _R], work[i + _LOST] = 1.0, 0.0


@njit(cache=True)  # pragma: no cover
def _forget(work, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        work[i + _R] = 1.0


@njit(cache=True)  # pragma: no cover
def _take(work, a, own):  # type: ignore[no-untyped-def]
    for i in range(own.size):
        k = own[i]
        work[i + _A00], work[i + _A01] = a[k, 0, 0], a[k, 0, 1]
        work[i + _A10], work[i + _A11] = a[k, 1, 0], a[k, 1, 1]


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _ratio(u, v, x, q):  # type: ignore[no-untyped-def]
    high, low = (u, v) if u > v else (v, u)
    return (high * x + q) / (low * x + q)


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _move(work, possible, certain):  # type: ignore[no-untyped-def]
    """Into step t: law, possible states, and R, what is carried by the rows of B^t.

    B^t(s', s) = joint(s, s') / p(s'); both rows are multiplied by p(0) p(1), which cancels.
    """
    for i in range(certain.size):
        a00, a01, a10, a11 = work[i + _A00], work[i + _A01], work[i + _A10], work[i + _A11]
        j00, j01 = work[i + _P0] * a00, work[i + _P0] * a01
        j10, j11 = work[i + _P1] * a10, work[i + _P1] * a11
        s0, s1 = possible[i], possible[i + _LANES]
        n0 = (s0 & np.int64(a00 > 0.0)) | (s1 & np.int64(a10 > 0.0))
        n1 = (s0 & np.int64(a01 > 0.0)) | (s1 & np.int64(a11 > 0.0))
        possible[i], possible[i + _LANES] = n0, n1
        certain[i] = (n0 & n1) == 0
        p0, p1, x = j00 + j10, j01 + j11, work[i + _M] - 1.0
        work[i + _P0], work[i + _P1] = p0, p1
        faint = ((n0 != 0) & (p0 < _FAINT)) | ((n1 != 0) & (p1 < _FAINT))
        first = _ratio(j00 * p1, j01 * p0, x, p0 * p1)
        second = _ratio(j10 * p1, j11 * p0, x, p0 * p1)
        work[i + _R] = first if first > second else second
        work[i + _LOST] = 1.0 if faint else work[i + _LOST]


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _return(work, n):  # type: ignore[no-untyped-def]
    """From step t + 1 back to t: R, what is carried by the rows of A^{t+1}."""
    for i in range(n):
        x = work[i + _M] - 1.0
        first = _ratio(work[i + _A00], work[i + _A10], x, 1.0)
        second = _ratio(work[i + _A01], work[i + _A11], x, 1.0)
        work[i + _R] = first if first > second else second


@njit(cache=True)  # pragma: no cover
def _grow(work, grown, certain):  # type: ignore[no-untyped-def]
    """M = e^{e_t} R; a certain step loses and carries nothing."""
    for i in range(grown.size):
        r = 1.0 if certain[i] else work[i + _R]
        m = 1.0 if certain[i] else r * grown[i]
        work[i + _R], work[i + _M] = r, m
        work[i + _LOST] = work[i + _LOST] if m < _FAR else 1.0  # NaN is lost too


@njit(cache=True)  # pragma: no cover
def _put(work, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = work[i + _M]


@njit(cache=True)  # pragma: no cover
def _put_total(work, backward, total):  # type: ignore[no-untyped-def]
    for i in range(total.size):
        total[i] = backward[i] * work[i + _R]
