"""Accounts as the records of a ledger have them, and what is published that none of them holds."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.accounting.account import (
    Account,
    IntervalAccount,
    SpentBlock,
    WindowAccount,
    WindowPromise,
)
from hushgrid.curator.terms import (
    interval_promise,
    window_promise,
)
from hushgrid.files.deployment import ZoneService
from hushgrid.stores.ledger.entries import GapRecord, TransferRecord
from hushgrid.stores.ledger.releases import until
from hushgrid.stores.ledger.rules import AccountRows, WindowRows
from hushgrid.stores.ledger.state import LedgerState

Figures = tuple[IntervalAccount, ...]  # one for each model, with a row for each chain


_MOST = sys.float_info.max  # stands for an infinite figure, which JSON has no number for


def to_rows(figures: Figures, losses: Sequence[ArrayLike]) -> AccountRows:
    """The figures as a record has them.

    Args:
        figures: The account.
        losses: What the block before it loses, for each model () or (chains,).

    Returns:
        For each model and chain in turn: loss, known, room, smallest and largest log odds; an
        infinite one is the largest float.
    """
    rows = np.concatenate(
        [
            np.stack(
                np.broadcast_arrays(np.asarray(loss, np.float64), a.known, a.room, a.low, a.high),
                -1,
            ).reshape(-1, 5)
            for a, loss in zip(figures, losses, strict=True)
        ]
    )
    return tuple(tuple(row) for row in np.clip(rows, -_MOST, _MOST).tolist())


def from_rows(rows: AccountRows) -> IntervalAccount:
    """The account of a record, all models together: (rows,) figures.

    Args:
        rows: As from `to_rows`.

    Returns:
        The account.
    """
    figures = np.array(rows, np.float64).reshape(-1, 5)[:, 1:]
    figures = np.where(np.abs(figures) >= _MOST, np.copysign(np.inf, figures), figures)
    return IntervalAccount(*figures.T.copy())


def to_windows(account: WindowAccount) -> WindowRows:
    """An account of windows as a record has it; times are UTC seconds.

    Args:
        account: The account, which counts seconds.

    Returns:
        Its promises and blocks.
    """
    promises = (
        (p.steps, p.epsilon, p.since, -1 if p.last is None else p.last) for p in account.promises
    )
    return WindowRows(tuple(promises), tuple(map(tuple, account.blocks)))


def from_windows(rows: WindowRows) -> WindowAccount:
    """The account of windows of a record.

    Args:
        rows: As from `to_windows`.

    Returns:
        The account.
    """
    promises, blocks = rows
    return WindowAccount(
        tuple(
            WindowPromise(int(steps), float(epsilon), int(since), None if last < 0 else int(last))
            for steps, epsilon, since, last in promises
        ),
        tuple(SpentBlock(int(first), int(last), float(loss)) for first, last, loss in blocks),
    )


def room_of(service: ZoneService, standing: LedgerState) -> float:
    """What the account still admits, as a share of the promise.

    Args:
        service: The zone.
        standing: Its ledger.

    Returns:
        From 0 to 1: of an interval promise what later prices may say about the last step on
        record, of a window promise what is left of epsilon after the last block; 1 where nothing
        is on record, and where the promise is about each price alone.
    """
    promise, window = interval_promise(service), window_promise(service)
    newest, windows = standing.latest_account, standing.latest_windows
    if promise is not None and newest is not None:
        return float(min(from_rows(newest.rows).room.min() / promise, 1.0))
    if window is not None and windows is not None:
        account = from_windows(windows.rows)
        after = account.blocks[-1].last + 1 if account.blocks else 0
        return float(min(max(account.most(after) / window[1], 0.0), 1.0))
    return 1.0


def accounts_of(standing: LedgerState) -> list[IntervalAccount]:
    """The accounts of intervals on record, of houses that came before that of the zone.

    Args:
        standing: The zone's ledger.

    Returns:
        All models and chains of each together; none before any.
    """
    newest = standing.latest_account
    accounts = [account_of(move) for move in arrivals_of(standing)]
    return accounts if newest is None else [*accounts, from_rows(newest.rows)]


def arrivals_of(standing: LedgerState) -> list[TransferRecord]:
    """The houses whose accounts have come to the zone since the newest one on record.

    They count from the terms on that begin after they came.

    Args:
        standing: The zone's ledger.

    Returns:
        Their transfers.
    """
    newest = standing.latest_account
    since = 0 if newest is None else newest.terms.seq
    until = math.inf if standing.terms is None else standing.terms.seq
    return [
        move
        for move in standing.transfers
        if move.direction == "in" and move.account is not None and since < move.seq < until
    ]


def account_of(move: TransferRecord) -> IntervalAccount:
    """The account of a house that came, which has one; see `arrivals_of`."""
    assert move.account is not None
    return from_rows(move.account)


def is_unaccounted(standing: LedgerState) -> bool:
    """Whether something from readings was published, or lost, that no account on record holds.

    Args:
        standing: The zone's ledger.
    """
    newest = standing.latest_account
    since = 0 if newest is None else newest.seq
    lost = any(gap.seq > since and gap.account is None for gap in standing.booked)
    return lost or _has_free_release(standing, since)


def ends_without_promise(standing: LedgerState) -> bool:
    """Whether a price from readings without a promise follows the newest account.

    No later price could say too much about the steps with a promise then, nor can one now.

    Args:
        standing: The zone's ledger.
    """
    newest = standing.latest_account
    if newest is None or arrivals_of(standing):
        return False
    return _has_free_release(standing, newest.seq)


def _has_free_release(standing: LedgerState, since: int) -> bool:
    """Whether a release from readings, after a record, was under terms without an account."""
    silent = {terms.seq for terms in standing.terms_records if terms.interval is None}
    later = standing.releases[until(standing.releases, since) :] if silent else ()
    return any(
        release.source == "readings" and standing.terms_of(release).seq in silent
        for release in reversed(later)
    )


def has_other_history(standing: LedgerState, gap: GapRecord) -> bool:
    """Whether releases of another history may be among the steps of a gap.

    Noise of a block on record may have been drawn once more there, and what is planned bounds
    nothing.

    Args:
        standing: The zone's ledger before the gap is booked.
        gap: The gap.

    Returns:
        Whether lost records are known, or steps of it are on record: published or booked before.
    """
    steps = [(r.t, r.t) for r in standing.current if r.source == "readings"]
    steps += [(resume.first, resume.last) for resume in standing.booked_now]
    on_record = any(first <= gap.last and gap.first <= last for first, last in steps)
    return bool(gap.heads) or on_record


def is_bound(standing: LedgerState) -> bool:
    """Whether a promise made before, here or where a house came from, can bind a block.

    Args:
        standing: The zone's ledger.
    """
    return is_promised(standing) or bool(windows_of(standing))


def is_promised(standing: LedgerState) -> bool:
    """Whether an account on record leaves later outputs less than any room.

    Args:
        standing: The zone's ledger.
    """
    return any(np.isfinite(account.room).any() for account in accounts_of(standing))


# ---- promises about windows


def windows_of(standing: LedgerState) -> list[WindowAccount]:
    """The accounts of windows on record, of houses that came before that of the zone.

    Args:
        standing: The zone's ledger.

    Returns:
        Those that came since the newest one here, then that one; none before any.
    """
    newest = standing.latest_windows
    since = 0 if newest is None else newest.seq
    accounts = [
        from_windows(move.windows)
        for move in standing.transfers
        if move.direction == "in" and move.seq > since and move.windows is not None
    ]
    return accounts if newest is None else [*accounts, from_windows(newest.rows)]


def merged_windows(accounts: Sequence[WindowAccount]) -> WindowAccount:
    """One account for all houses: that of the zone under what came with the others.

    Args:
        accounts: As from `windows_of`, at least one.

    Returns:
        The account.
    """
    account = accounts[-1]
    for arrival in accounts[:-1]:
        account = account.merged(arrival.ended())
    return account


def leaving_windows(standing: LedgerState) -> WindowRows | None:
    """The account of windows of a house that leaves.

    Args:
        standing: The ledger of its zone.

    Returns:
        The account as a record has it; None where no promise is in force.
    """
    if not (accounts := windows_of(standing)):
        return None
    return to_windows(merged_windows([*accounts[:-1], accounts[-1].ended()]))


def first_windows(standing: LedgerState, steps: int, epsilon: float, start: int) -> WindowAccount:
    """The account of windows before the first block.

    Where nothing was published from readings before, the promise holds from the first reading of
    the models on: what they cost counts in every window that touches their readings. Elsewhere it
    holds from `start` on, and so do the charges of readings that are later.

    Args:
        standing: The zone's ledger.
        steps: The window [s].
        epsilon: What is promised.
        start: Where the block begins [UTC s].

    Returns:
        The account.
    """
    published = any(release.source == "readings" for release in standing.releases)
    since = min([start, *(charge.first for charge in standing.charges if not published)])
    account = Account.window(steps, epsilon, since)
    for charge in standing.charges:
        if charge.last >= since:
            first = min(max(charge.first, since), start)
            account = account.with_lost(charge.epsilon, first, charge.last)
    return account


def is_continued(standing: LedgerState, account: WindowAccount, window: tuple[int, float]) -> bool:
    """Whether a promise is the last one of the zone's account, and all terms since then made it.

    Args:
        standing: The zone's ledger.
        account: The last one of `windows_of`.
        window: The window [s] and epsilon.

    Returns:
        Whether it goes on; else it begins anew.
    """
    newest = standing.latest_windows
    if newest is None or not account.promises:
        return False
    later = (terms for terms in standing.terms_records if terms.seq > newest.seq)
    steps, epsilon, _, last = account.promises[-1]
    return (steps, epsilon, last) == (*window, None) and all(
        terms.window == window for terms in later
    )
