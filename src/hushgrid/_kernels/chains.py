"""Chains of many homes at once: forward-backward counts, and leakage over time.

Forward-backward is scaled, one home a thread.
Readings come as codes: reading t of home h is value number `code[h, t]` of that home, or is missing
(-1). `relative[h, value, group, state]` is the likelihood of the value over that of its best state,
so each step is a lookup, without exponentials. What comes back are expected counts, which are
sufficient for every law on those values. No division raises: counts of a home whose labels exclude
its readings may be NaN, and those of the other homes are not affected.

Leakage of houses that move independently (docs/proofs/temporal.md): in factors M = e^leakage the
recursion needs no logarithm: M' = e^{e_t} max_j r_j, where
r_j = (hi_j (M - 1) + 1) / (lo_j (M - 1) + 1) for column j.
"""

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from hushgrid._numbers import Bools, Floats, Int32s, frozen

_LIKELY = 1e-100  # a product of two numbers above it is far from underflow


@njit(inline="always")  # pragma: no cover
def _pair(code, label, relative, group):  # type: ignore[no-untyped-def]
    """Likelihoods of the two states."""
    low, high = 1.0, 1.0
    if code >= 0:
        low, high = relative[code, group, 0], relative[code, group, 1]
    if label == 0:
        high = 0.0
    elif label == 1:
        low = 0.0
    return low, high


@njit(cache=True, fastmath=False, error_model="numpy")  # pragma: no cover
def _two(  # type: ignore[no-untyped-def]
    code, label, group, slot, relative, best, initial, transition, counts, moves, first, post
):
    """One home of two states; returns its log-likelihood. Counts are added to, `post` written."""
    steps = code.size
    filtered = np.empty(steps)  # of state 1
    scale = np.empty(steps)
    total, product = 0.0, 1.0
    ahead0, ahead1 = initial[0], initial[1]
    for t in range(steps):
        low, high = _pair(code[t], label[t], relative, group[t])
        if code[t] >= 0:
            total += best[code[t], group[t]]
        if t > 0:
            a = transition[slot[t]]
            p = filtered[t - 1]
            ahead0 = (1.0 - p) * a[0, 0] + p * a[1, 0]
            ahead1 = (1.0 - p) * a[0, 1] + p * a[1, 1]
        mass0, mass1 = ahead0 * low, ahead1 * high
        c = mass0 + mass1
        filtered[t] = mass1 / c
        scale[t] = c
        if product < _LIKELY or c < _LIKELY:
            total += np.log(product)
            product = 1.0
        product *= c
    total += np.log(product)
    back0, back1 = 1.0, 1.0
    for t in range(steps - 1, -1, -1):
        p = filtered[t]
        mass1 = p * back1
        mass0 = (1.0 - p) * back0
        s = mass0 + mass1  # 1 but for rounding
        mass1 /= s
        post[t] = mass1
        if code[t] >= 0:
            counts[code[t], group[t], 1] += mass1
            counts[code[t], group[t], 0] += 1.0 - mass1
        if t == 0:
            first[0] += 1.0 - mass1
            first[1] += mass1
            break
        low, high = _pair(code[t], label[t], relative, group[t])
        x0, x1 = low * back0 / scale[t], high * back1 / scale[t]
        a = transition[slot[t]]
        q = filtered[t - 1]
        m = moves[slot[t]]
        m[0, 0] += (1.0 - q) * a[0, 0] * x0
        m[0, 1] += (1.0 - q) * a[0, 1] * x1
        m[1, 0] += q * a[1, 0] * x0
        m[1, 1] += q * a[1, 1] * x1
        back0 = a[0, 0] * x0 + a[0, 1] * x1
        back1 = a[1, 0] * x0 + a[1, 1] * x1
    return total


@njit(inline="always")  # pragma: no cover
def _barred(label, state):  # type: ignore[no-untyped-def]
    """Whether a label rules a state out; -2 says any state but 0."""
    return (label >= 0 and label != state) or (label == -2 and state == 0)


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _many(  # type: ignore[no-untyped-def]
    code, label, group, slot, relative, best, initial, transition, counts, moves, first, post
):
    """One home of K states; `post` takes the posterior of all states but 0."""
    steps, states = code.size, initial.size
    filtered = np.empty((steps, states))
    scale = np.empty(steps)
    weighted = np.empty(states)
    total, product = 0.0, 1.0
    for t in range(steps):
        c = 0.0
        for j in range(states):
            ahead = initial[j]
            if t > 0:
                ahead = 0.0
                for i in range(states):
                    ahead += filtered[t - 1, i] * transition[slot[t], i, j]
            if code[t] >= 0:
                ahead *= relative[code[t], group[t], j]
            if _barred(label[t], j):
                ahead = 0.0
            filtered[t, j] = ahead
            c += ahead
        over = 1.0 / c
        for j in range(states):
            filtered[t, j] *= over
        scale[t] = c
        if product < _LIKELY or c < _LIKELY:
            total += np.log(product)
            product = 1.0
        product *= c
        if code[t] >= 0:
            total += best[code[t], group[t]]
    total += np.log(product)
    back = np.ones(states)
    for t in range(steps - 1, -1, -1):
        s = 0.0
        for j in range(states):
            s += filtered[t, j] * back[j]
        for j in range(states):
            p = filtered[t, j] * back[j] / s
            if code[t] >= 0:
                counts[code[t], group[t], j] += p
            if t == 0:
                first[j] += p
            if j == 0:
                post[t] = 1.0 - p
        if t == 0:
            break
        for j in range(states):
            weighted[j] = back[j] / scale[t]
            if code[t] >= 0:
                weighted[j] *= relative[code[t], group[t], j]
            if _barred(label[t], j):
                weighted[j] = 0.0
        for i in range(states):
            back[i] = 0.0
            for j in range(states):
                flow = transition[slot[t], i, j] * weighted[j]
                moves[slot[t], i, j] += filtered[t - 1, i] * flow
                back[i] += flow
    return total


@njit(parallel=True, cache=True)  # pragma: no cover
def expect(  # type: ignore[no-untyped-def]
    homes, code, label, group, slot, relative, best, initial, transition, counts, moves, first, post
):
    """Expected counts of the named homes; their log-likelihoods.

    `label` is (homes, steps), or (1, 1) for none; `post` likewise where it is not wanted.
    """
    likelihoods = np.empty(homes.size)
    steps = code.shape[1]
    for n in prange(homes.size):
        h = homes[n]
        labels = label[h] if label.shape[1] == steps else np.full(steps, -1, np.int8)
        out = post[h] if post.shape[1] == steps else np.empty(steps)
        counts[h] = 0.0
        moves[h] = 0.0
        first[h] = 0.0
        # two calls and not two functions: numba compiles the branch it needs
        if initial.shape[1] == 2:
            likelihoods[n] = _two(
                code[h], labels, group, slot, relative[h], best[h], initial[h], transition[h],
                counts[h], moves[h], first[h], out,
            )  # fmt: skip
        else:
            likelihoods[n] = _many(
                code[h], labels, group, slot, relative[h], best[h], initial[h], transition[h],
                counts[h], moves[h], first[h], out,
            )  # fmt: skip
    return likelihoods


@njit(parallel=True, cache=True)  # pragma: no cover
def tabulate(homes, natural, features, size, relative, best):  # type: ignore[no-untyped-def]
    """Log-likelihood natural . (1, v1, v2) + v0 of each value, as `relative` and `best`."""
    groups, states = natural.shape[1], natural.shape[2]
    for n in prange(homes.size):
        h = homes[n]
        logs = np.empty(states)
        for m in range(size[h]):
            v0, v1, v2 = features[h, m, 0], features[h, m, 1], features[h, m, 2]
            for g in range(groups):
                most = -np.inf
                for k in range(states):
                    c = natural[h, g, k]
                    logs[k] = c[0] + c[1] * v1 + c[2] * v2
                    most = max(most, logs[k])
                for k in range(states):
                    relative[h, m, g, k] = max(np.exp(logs[k] - most), 1e-300)
                best[h, m, g] = most + v0


@njit(parallel=True, cache=True)  # pragma: no cover
def gather(homes, counts, features, size, sums):  # type: ignore[no-untyped-def]
    """(n, sum v1, sum v2) of each home, group and state."""
    groups, states = counts.shape[2], counts.shape[3]
    for n in prange(homes.size):
        h = homes[n]
        sums[h] = 0.0
        for m in range(size[h]):
            v1, v2 = features[h, m, 1], features[h, m, 2]
            for g in range(groups):
                for k in range(states):
                    w = counts[h, m, g, k]
                    sums[h, g, k, 0] += w
                    sums[h, g, k, 1] += w * v1
                    sums[h, g, k, 2] += w * v2


@njit(parallel=True, cache=True)  # pragma: no cover
def tabulate_bins(homes, natural, features, bins, size, relative, best):  # type: ignore[no-untyped-def]
    """Log-likelihood natural[bin of the value] + v0, as `relative` and `best`."""
    groups, states = natural.shape[1], natural.shape[2]
    for n in prange(homes.size):
        h = homes[n]
        for m in range(size[h]):
            b = bins[h, m]
            for g in range(groups):
                most = -np.inf
                for k in range(states):
                    most = max(most, natural[h, g, k, b])
                for k in range(states):
                    relative[h, m, g, k] = max(np.exp(natural[h, g, k, b] - most), 1e-300)
                best[h, m, g] = most + features[h, m, 0]


@njit(parallel=True, cache=True)  # pragma: no cover
def gather_bins(homes, counts, bins, size, sums):  # type: ignore[no-untyped-def]
    """Readings of each home, group, state and bin."""
    groups, states = counts.shape[2], counts.shape[3]
    for n in prange(homes.size):
        h = homes[n]
        sums[h] = 0.0
        for m in range(size[h]):
            for g in range(groups):
                for k in range(states):
                    sums[h, g, k, bins[h, m]] += counts[h, m, g, k]


_LANES = 256  # houses that go through time together: what they need stays in the nearest cache
_CHUNK = 1 << 20  # numbers in a work array: memory beyond the answer is the same for any zone
_TOO_SMALL = 1e-290  # as `belief.filter` has it: a chance whose digits a float does not hold
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
    follows = frozen(chains.astype(np.int32, copy=False))
    terms = frozen(initial), frozen(transition), frozen(slots)
    for start in range(0, n, width):
        lanes = slice(start, min(n, start + width))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            growth = np.exp(losses[:, lanes], order="C")
            _two_states(*terms, follows[lanes], growth, factors, lost[lanes])
            for part, factor in zip((backward, forward, total), factors, strict=True):
                np.log(factor[:, : lanes.stop - start], out=part[:, lanes])
    return backward, forward, total, lost


@njit(parallel=True, cache=True, error_model="numpy")  # pragma: no cover
def _two_states(initial, transition, slots, chains, growth, factors, lost):  # type: ignore[no-untyped-def]
    horizon, n = slots.size, chains.size
    backward, forward, total = factors[0], factors[1], factors[2]
    for part in prange((n + _LANES - 1) // _LANES):
        start, stop = part * _LANES, min(n, part * _LANES + _LANES)
        lane_chains = chains[start:stop]
        work, possible = np.empty(_ROWS), np.empty(2 * _LANES, np.int64)
        certain = np.empty((horizon, stop - start), np.bool_)
        _begin(work, possible, certain[0], initial, lane_chains)
        slot = -1
        for t in range(horizon):
            if t > 0:
                if slots[t] != slot:
                    slot = slots[t]
                    _take(work, transition[slot], lane_chains)
                _move(work, possible, certain[t])
            _grow(work, growth[t, start:stop], certain[t])
            _put(work, backward[t, start:stop])
        _forget(work, lane_chains.size)
        for t in range(horizon - 1, -1, -1):
            if t < horizon - 1:
                if slots[t + 1] != slot:
                    slot = slots[t + 1]
                    _take(work, transition[slot], lane_chains)
                _return(work, lane_chains.size)
            _grow(work, growth[t, start:stop], certain[t])
            _put(work, forward[t, start:stop])
            _put_total(work, backward[t, start:stop], total[t, start:stop])
        for i in range(lane_chains.size):
            lost[start + i] = work[i + _LOST] > 0.0


@njit(cache=True)  # pragma: no cover
def _begin(work, possible, certain, initial, chains):  # type: ignore[no-untyped-def]
    """Step 1: the law and what is possible; nothing is carried yet."""
    for i in range(chains.size):
        p0, p1 = initial[chains[i], 0], initial[chains[i], 1]
        work[i + _P0], work[i + _P1] = p0, p1
        possible[i], possible[i + _LANES] = p0 > 0.0, p1 > 0.0
        certain[i] = not (p0 > 0.0 and p1 > 0.0)
        work[i + _R], work[i + _LOST] = 1.0, 0.0


@njit(cache=True)  # pragma: no cover
def _forget(work, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        work[i + _R] = 1.0


@njit(cache=True)  # pragma: no cover
def _take(work, a, chains):  # type: ignore[no-untyped-def]
    for i in range(chains.size):
        k = chains[i]
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
def _grow(work, growth, certain):  # type: ignore[no-untyped-def]
    """M = e^{e_t} R; a certain step loses and carries nothing."""
    for i in range(growth.size):
        r = 1.0 if certain[i] else work[i + _R]
        m = 1.0 if certain[i] else r * growth[i]
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


def in_blocks_of_steps(
    initial: Floats,
    transition: Floats,
    slots: Int32s,
    chains: NDArray[np.integer],
    e: Floats,
    lengths: NDArray[np.integer],
) -> tuple[Floats, Floats, Floats]:
    """(backward, forward, total) leakage, (T, houses) each, where noise lasts blocks of steps.

    As `two_states`, for leakage of any size; e is the loss of the block at each of its steps.
    """
    shape = (len(slots), len(chains))
    backward, forward, total = (np.empty(shape) for _ in range(3))
    follows, steps = chains.astype(np.int32, copy=False), lengths.astype(np.int64, copy=False)
    terms = frozen(initial), frozen(transition), frozen(slots), frozen(follows)
    losses = frozen(np.broadcast_to(e, shape))
    _in_blocks_of_steps(*terms, losses, frozen(steps), backward, forward, total)
    return backward, forward, total


@njit(cache=True)  # pragma: no cover
def _log_mix(share, a):  # type: ignore[no-untyped-def]
    """log(share (e^a - 1) + 1), for a >= 0 of any size."""
    return a + np.log(share + (1.0 - share) * np.exp(-a)) if share > 0.0 else 0.0


@njit(cache=True)  # pragma: no cover
def _carried(a, r00, r01, r10, r11):  # type: ignore[no-untyped-def]
    """L(a) of two rows."""
    first = _log_mix(max(r00, r10), a) - _log_mix(min(r00, r10), a)
    second = _log_mix(max(r01, r11), a) - _log_mix(min(r01, r11), a)
    return max(first, second)


@njit(cache=True)  # pragma: no cover
def _in_blocks_of_steps(  # type: ignore[no-untyped-def]
    initial, transition, slots, chains, e, lengths, backward, forward, total
):
    horizon = slots.size
    for i in range(chains.size):
        c = chains[i]
        open_at = np.empty(horizon, np.bool_)
        p0, p1 = initial[c, 0], initial[c, 1]
        s0, s1 = p0 > 0.0, p1 > 0.0
        carried, t = 0.0, 0
        for k in range(lengths.size):
            # law, possible states and leakage at the last step of the block before
            q0, q1, z0, z1, before = p0, p1, s0, s1, carried
            m00, m01, m10, m11 = 1.0, 0.0, 0.0, 1.0
            n00, n01, n10, n11 = True, False, False, True
            for _ in range(lengths[k]):
                if t > 0:
                    a = transition[slots[t], c]
                    m00, m01 = m00 * a[0, 0] + m01 * a[1, 0], m00 * a[0, 1] + m01 * a[1, 1]
                    m10, m11 = m10 * a[0, 0] + m11 * a[1, 0], m10 * a[0, 1] + m11 * a[1, 1]
                    b00, b01, b10, b11 = a[0, 0] > 0, a[0, 1] > 0, a[1, 0] > 0, a[1, 1] > 0
                    n00, n01 = (n00 and b00) or (n01 and b10), (n00 and b01) or (n01 and b11)
                    n10, n11 = (n10 and b00) or (n11 and b10), (n10 and b01) or (n11 and b11)
                    p0, p1 = p0 * a[0, 0] + p1 * a[1, 0], p0 * a[0, 1] + p1 * a[1, 1]
                    s0, s1 = (s0 and b00) or (s1 and b10), (s0 and b01) or (s1 and b11)
                open_at[t] = s0 and s1
                gain = 0.0
                if k > 0 and open_at[t]:
                    j00, j01, j10, j11 = q0 * m00, q0 * m01, q1 * m10, q1 * m11
                    if (
                        (z0 and n00 and j00 < _TOO_SMALL)
                        or (z0 and n01 and j01 < _TOO_SMALL)
                        or (z1 and n10 and j10 < _TOO_SMALL)
                        or (z1 and n11 and j11 < _TOO_SMALL)
                    ):
                        gain = before  # B is not known, but L(a) <= a
                    else:
                        c0, c1 = j00 + j10, j01 + j11
                        gain = _carried(before, j00 / c0, j10 / c0, j01 / c1, j11 / c1)
                carried = e[t, i] + gain if open_at[t] else 0.0
                backward[t, i] = carried
                t += 1
        carried = 0.0
        for k in range(lengths.size - 1, -1, -1):
            before = carried
            r00, r01, r10, r11 = 1.0, 0.0, 0.0, 1.0
            for _ in range(lengths[k]):
                t -= 1
                gain = 0.0
                if t < horizon - 1:
                    a = transition[slots[t + 1], c]
                    r00, r10 = a[0, 0] * r00 + a[0, 1] * r10, a[1, 0] * r00 + a[1, 1] * r10
                    r01, r11 = a[0, 0] * r01 + a[0, 1] * r11, a[1, 0] * r01 + a[1, 1] * r11
                    if open_at[t] and k < lengths.size - 1:
                        gain = _carried(before, r00, r01, r10, r11)
                carried = e[t, i] + gain if open_at[t] else 0.0
                forward[t, i] = carried
                total[t, i] = backward[t, i] + gain if open_at[t] else 0.0


def best_blocks(
    back: Floats, ahead: Floats, weights: Floats, grid: Floats, first: int, last: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The dynamic programme of `borders` (planning); `weights` are sums up to each step."""
    horizon, size = len(back), len(grid)
    cost = np.full((horizon + 1, size, size), np.inf)
    origin = np.full((horizon + 1, size, size), -1, np.int64)
    loss = np.zeros((horizon + 1, size, size))
    cost[0, first] = 0.0
    _best_blocks(back, ahead, weights, grid, cost, origin, loss)
    i, j, t = int(cost[horizon, :, last].argmin()), last, horizon
    lengths, losses = list[int](), list[float]()
    while t > 0 and origin[t, i, j] >= 0:
        losses.append(float(loss[t, i, j]))
        s, i, j = np.unravel_index(origin[t, i, j], cost.shape)
        lengths.append(int(t - s))
        t = int(s)
    return tuple(lengths[::-1]), tuple(losses[::-1])


@njit(cache=True)  # pragma: no cover
def _best_blocks(back, ahead, weights, grid, cost, origin, loss):  # type: ignore[no-untyped-def]
    """State (t, i, j): block ends at t, backward leakage grid[i], forward from t + 1 grid[j]."""
    horizon, longest, size = back.shape
    target, width = grid[-1], grid[1]
    most, price = np.empty(size), np.empty((size, size))
    least = np.empty((horizon + 1, size, size), np.int64)  # f of the least cost from f on
    for t in range(horizon + 1):
        for s in range(max(0, t - longest), t):
            n = t - s
            unit = (weights[t] - weights[s]) * (n + 1.0) * (n + 2.0) / 3.0
            into, out = back[s, n - 1], ahead[t - 1, n - 1]
            for j in range(size):
                for f in range(size):
                    e = grid[f] - out[j]
                    price[j, f] = unit / (e * e) if e > 1e-6 else np.inf
            for i in range(size):
                if cost[s, i, least[s, i, 0]] == np.inf:
                    continue
                most[:] = 0.0
                for k in range(n):
                    for j in range(size):
                        leakage = back[s, k, i] + ahead[t - 1, n - 1 - k, j]
                        most[j] = leakage if leakage > most[j] else most[j]
                for j in range(size):
                    room = target - most[j]
                    if room <= 1e-6:
                        break  # no less for a larger j
                    more = int(np.ceil((into[i] - out[j]) / width - 1e-9))
                    for f in range(size):
                        e = grid[f] - out[j]
                        if e >= room:  # a larger f allows no more
                            place = int(np.ceil((room + into[i]) / width - 1e-9))
                            f = least[s, i, f]
                            total, e = cost[s, i, f] + unit / (room * room), room
                        else:
                            place, total = f + more, cost[s, i, f] + price[j, f]
                        if place < size and total < cost[t, place, j]:
                            cost[t, place, j] = total
                            origin[t, place, j] = (s * size + i) * size + f
                            loss[t, place, j] = e
                        if e == room:
                            break
        for i in range(size):
            best = size - 1
            for f in range(size - 1, -1, -1):
                if cost[t, i, f] <= cost[t, i, best]:
                    best = f
                least[t, i, f] = best
