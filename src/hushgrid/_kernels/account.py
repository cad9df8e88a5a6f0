"""The account of an interval promise: one block of steps for many classes of houses.

The figures of docs/proofs/account.md in their closed forms, with their limits. A class is a row;
its figures are log-ratios, and infinity is one of them.
"""

import math

import numpy as np
from numba import njit

from hushgrid._numbers import Floats, Ints

UP, DOWN = 1 + 1e-13, 1 - 1e-13  # figures are rounded to the side that promises less


@njit(inline="always")  # pragma: no cover
def _softplus(x):  # type: ignore[no-untyped-def]
    """log(1 + e^x)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@njit(inline="always")  # pragma: no cover
def _log(x):  # type: ignore[no-untyped-def]
    return math.log(x) if x > 0 else -math.inf


@njit(inline="always")  # pragma: no cover
def _log_ratio(x, y):  # type: ignore[no-untyped-def]
    if x <= 0 or y <= 0:
        return _log(x) - _log(y)
    return math.log(x / y)


@njit(cache=True, error_model="numpy")  # pragma: no cover
def forward_one(a, m):  # type: ignore[no-untyped-def]
    """L_F(a; m): outputs that say at most a about a later step, of the step before the matrix."""
    most = 0.0
    for j in range(2):
        hi, lo = max(m[0, j], m[1, j]), min(m[0, j], m[1, j])
        if hi <= 0:
            continue
        if a < 300:
            growth = math.expm1(a)
            leakage = math.log1p(hi * growth) - math.log1p(lo * growth)
        else:
            leakage = min(math.log(hi) - _log(lo), a)
        most = max(most, leakage)
    return most


@njit(cache=True, error_model="numpy")  # pragma: no cover
def inverse_one(x, m):  # type: ignore[no-untyped-def]
    """The largest a with L_F(a; m) <= x; infinite where every a is allowed."""
    if x == math.inf:
        return math.inf
    least, growth = math.inf, math.expm1(min(x, 700.0))
    for j in range(2):
        hi, lo = max(m[0, j], m[1, j]), min(m[0, j], m[1, j])
        if hi == 1 and lo == 0:
            least = min(least, x)
            continue
        room = hi - lo - growth * lo
        if room > 0:
            least = min(least, math.log1p(growth / room))
    return least


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _shifted(at, s):  # type: ignore[no-untyped-def]
    """log(1 + (e^s - 1)/(1 + e^-at)); for an infinite s less s, or log(1 + e^s) - s."""
    if s == math.inf:
        return -_softplus(-at)
    if s == -math.inf:
        return -_softplus(at)
    if at == math.inf:
        return s
    if at == -math.inf:
        return 0.0
    return _softplus(at + s) - _softplus(at)


@njit(cache=True, error_model="numpy")  # pragma: no cover
def backward_one(b, m, low, high):  # type: ignore[no-untyped-def]
    """L_B(b; m, [low, high]): outputs that say at most b about the step before, of the step after.

    low and high are log odds of the law of the step before.
    """
    for j in range(2):
        if m[0, j] <= 0 and m[1, j] <= 0:
            return 0.0  # one column can be reached
    if low == high and math.isinf(low):
        return 0.0
    c0, c1 = _log_ratio(m[1, 0], m[0, 0]), _log_ratio(m[1, 1], m[0, 1])
    if math.isinf(c0) and math.isinf(c1):
        return b if c0 != c1 else 0.0
    most = 0.0
    for sign in (1.0, -1.0):
        s = sign * b
        z = min(max(-(c0 + c1) / 2 - s / 2, low), high)
        if math.isinf(c0):
            at0, at1 = c0, z + c1
        elif math.isinf(c1):
            at0, at1 = z + c0, c1
        else:
            at0, at1 = z + c0, z + c1
        if at0 == at1:
            # an end of the law at which the state is certain: there nothing is said
            continue
        if max(abs(at0), abs(at1)) + b < 300:  # the same in one logarithm
            x0, x1, growth = math.exp(at0), math.exp(at1), math.exp(s)
            leakage = math.log((1 + x1 * growth) * (1 + x0) / ((1 + x1) * (1 + x0 * growth)))
        else:
            leakage = _shifted(at1, s) - _shifted(at0, s)
        most = max(most, abs(leakage))
    if b == math.inf and (low == -math.inf or high == math.inf or math.isinf(c0) or math.isinf(c1)):
        most = math.inf  # all that the matrix lets through
    return min(most, b, abs(c1 - c0))


@njit(inline="always")  # pragma: no cover
def _after(m, odds):  # type: ignore[no-untyped-def]
    """Log odds after the matrix of a law with these log odds before it."""
    if odds == math.inf:
        return _log(m[1, 1]) - _log(m[1, 0])
    if odds == -math.inf:
        return _log(m[0, 1]) - _log(m[0, 0])
    home = 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0
    away = 1 / (1 + math.exp(odds)) if odds < 700 else 0.0
    return _log(away * m[0, 1] + home * m[1, 1]) - _log(away * m[0, 0] + home * m[1, 0])


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _products(a, inward, outward):  # type: ignore[no-untyped-def]
    """Write M_i = A_1 .. A_i and N_i = A_(i+1) .. A_L of one class."""
    steps = a.shape[0]
    inward[0] = a[0]
    for i in range(1, steps):
        for s in range(2):
            for j in range(2):
                inward[i, s, j] = (
                    inward[i - 1, s, 0] * a[i, 0, j] + inward[i - 1, s, 1] * a[i, 1, j]
                )
    outward[steps - 1] = np.eye(2)
    for i in range(steps - 1, 0, -1):
        for s in range(2):
            for j in range(2):
                outward[i - 1, s, j] = a[i, s, 0] * outward[i, 0, j] + a[i, s, 1] * outward[i, 1, j]


@njit(cache=True, error_model="numpy", nogil=True)  # pragma: no cover
def _admit(figures, loss, a, promise, tolerance, after):  # type: ignore[no-untyped-def]
    classes, steps = promise.shape
    inward, outward = np.empty((steps, 2, 2)), np.empty((steps, 2, 2))
    for n in range(classes):
        b, psi, low, high = figures[n]
        e, chain = loss[n], a[n if a.shape[0] > 1 else 0]
        if n == 0 or a.shape[0] > 1:
            _products(chain, inward, outward)
        old = inverse_one(psi, chain[0]) - e
        if old < -tolerance * e:
            return False
        room, leakage = inverse_one(max(old, 0.0), outward[0]), 0.0
        for i in range(steps):
            leakage = UP * backward_one(b, inward[i], low, high)
            spare = promise[n, i] - e - leakage
            if spare < -tolerance * promise[n, i]:
                return False
            room = min(room, inverse_one(max(spare, 0.0), outward[i]))
        low_end, high_end = _after(inward[-1], low), _after(inward[-1], high)
        after[n, 0], after[n, 1] = UP * (e + leakage), DOWN * room
        after[n, 2] = min(low_end, high_end) * (UP if min(low_end, high_end) < 0 else DOWN)
        after[n, 3] = max(low_end, high_end) * (DOWN if max(low_end, high_end) < 0 else UP)
    return True


@njit(cache=True, error_model="numpy", nogil=True)  # pragma: no cover
def _lost(figures, loss, a, promise, wish, after):  # type: ignore[no-untyped-def]
    classes, steps = promise.shape
    inward, outward = np.empty((steps, 2, 2)), np.empty((steps, 2, 2))
    for n in range(classes):
        b, psi, low, high = figures[n]
        chain = a[n if a.shape[0] > 1 else 0]
        if n == 0 or a.shape[0] > 1:
            _products(chain, inward, outward)
        room, leakage = inverse_one(inverse_one(psi, chain[0]), outward[0]), 0.0
        for i in range(steps):
            leakage = UP * backward_one(b, inward[i], low, high)
            room = min(room, inverse_one(max(promise[n, i] - leakage, 0.0), outward[i]))
        low_end, high_end = _after(inward[-1], low), _after(inward[-1], high)
        after[n, 0] = UP * max(leakage, min(loss[n] + leakage, promise[n, steps - 1]))
        after[n, 1] = DOWN * min(room, wish[n])
        after[n, 2] = min(low_end, high_end) * (UP if min(low_end, high_end) < 0 else DOWN)
        after[n, 3] = max(low_end, high_end) * (DOWN if max(low_end, high_end) < 0 else UP)


@njit(cache=True, error_model="numpy", nogil=True)  # pragma: no cover
def _most(figures, a, promise, wish, most):  # type: ignore[no-untyped-def]
    classes, steps = promise.shape
    inward, outward = np.empty((steps, 2, 2)), np.empty((steps, 2, 2))
    for n in range(classes):
        b, psi, low, high = figures[n]
        chain = a[n if a.shape[0] > 1 else 0]
        if n == 0 or a.shape[0] > 1:
            _products(chain, inward, outward)
        most[n] = inverse_one(psi, chain[0]) - forward_one(wish[n], outward[0])
        for i in range(steps):
            leakage = UP * backward_one(b, inward[i], low, high)
            spare = promise[n, i] - leakage - forward_one(wish[n], outward[i])
            most[n] = min(most[n], spare)


def admitted(
    figures: Floats, loss: Floats, inward: Floats, promise: Floats, tolerance: float
) -> Floats | None:
    """Figures after a block; None where one class does not admit it.

    Args:
        figures: (classes, 4): known, room, low and high.
        loss: (classes,).
        inward: (classes, L, 2, 2), or (1, L, 2, 2) for all.
        promise: (classes, L).
        tolerance: Relative to the promise.
    """
    after = np.empty_like(figures)
    return after if _admit(figures, loss, inward, promise, tolerance, after) else None


def largest(figures: Floats, inward: Floats, promise: Floats, room: Floats) -> Floats:
    """(classes,): the largest loss of a block that leaves `room`, (classes,)."""
    most = np.empty(len(figures))
    _most(figures, inward, promise, room, most)
    return most


def after_loss(
    figures: Floats, loss: Floats, inward: Floats, promise: Floats, room: Floats
) -> Floats:
    """Figures after a block that may have been published and lost; as `admitted`.

    Args:
        figures: (classes, 4): known, room, low and high.
        loss: (classes,).
        inward: (classes, L, 2, 2), or (1, L, 2, 2) for all.
        promise: (classes, L).
        room: (classes,): what the blocks that follow were to leave.
    """
    after = np.empty_like(figures)
    _lost(figures, loss, inward, promise, room, after)
    return after


@njit(cache=True, error_model="numpy", nogil=True)  # pragma: no cover
def _rooms(a, lengths, losses, rooms):  # type: ignore[no-untyped-def]
    classes, blocks = losses.shape
    inward, outward = np.empty((a.shape[1], 2, 2)), np.empty((a.shape[1], 2, 2))
    for n in range(classes):
        leakage, end = 0.0, a.shape[1]
        for k in range(blocks - 1, -1, -1):
            rooms[n, k] = leakage
            first = end - lengths[k]
            chain = a[n, first:end]
            _products(chain, inward[first:end], outward[first:end])
            leakage = forward_one(losses[n, k] + forward_one(leakage, outward[first]), chain[0])
            end = first


def rooms_ahead(inward: Floats, lengths: Ints, losses: Floats) -> Floats:
    """What the blocks after each block say about its last step, if they are published as planned.

    Args:
        inward: (classes, T, 2, 2), of all steps.
        lengths: (blocks,) steps of each block, T together.
        losses: (classes, blocks).

    Returns:
        (classes, blocks).
    """
    rooms = np.empty_like(losses)
    _rooms(inward, lengths, losses, rooms)
    return rooms
