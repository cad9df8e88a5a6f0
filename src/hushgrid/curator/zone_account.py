"""The account of a zone's interval promise: which block of steps may be published, and how.

Everything follows from the ledger and the zone's terms, and is public. The figures have one row
for each model and each of its chains: of the houses that follow a chain the one with the largest
loss decides, so a row holds for all of them. Proofs: docs/proofs/account.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.accounting.account import (
    Account,
    IntervalAccount,
    SpentBlock,
    WindowAccount,
)
from hushgrid.curator.account_records import (
    Figures,
    account_of,
    accounts_of,
    arrivals_of,
    ends_without_promise,
    first_windows,
    from_rows,
    is_bound,
    is_continued,
    is_promised,
    is_unaccounted,
    merged_windows,
    to_rows,
    to_windows,
    windows_of,
)
from hushgrid.curator.terms import (
    chains_of,
    first_of,
    interval_promise,
    occupancy_digest,
    roster_digest,
    window_promise,
)
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.weeks import Steps, in_week, local_calendar, local_seconds, settled
from hushgrid.mechanism.scheduler import Calibration, Scheduler
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.planning.task import Task
from hushgrid.planning.windows import window_loss
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.releases import until
from hushgrid.stores.ledger.rules import AccountRows, WindowRows
from hushgrid.stores.ledger.state import LedgerState, RecordedAccount

WORTH = 0.1  # of the planned loss: below it the public forecast is published instead
_NEAR = 1e-3  # by which the room for later blocks may be short of what they are planned to need
_LESS = (0.5, 0.25)  # of the plan: shares that may go on for ever where the whole of it may not
_AHEAD = 192  # steps after a week's last block that its room is planned for
_FIGURES = ("known", "room", "low", "high")
_SILENT = 40_000  # steps without a block that are followed one by one


class AdmittedBlock(NamedTuple):
    """A block that the account admits.

    Attributes:
        epsilon: What its releases lose about the most exposed house.
        account: The account after it of promises about intervals, as a record has it; None where
            there is none.
        windows: The same of promises about windows.
    """

    epsilon: float
    account: AccountRows | None = None
    windows: WindowRows | None = None


class ZoneAccount:
    """Decides which blocks of one week may be published.

    Args:
        service: The zone over that week.
    """

    def __init__(self, service: ZoneService) -> None:
        self._service = service
        self._first, self._since = service.begins // service.seconds, first_of(service)
        self._weeks = [self]  # see `_at`
        self._promise, self._window = interval_promise(service), window_promise(service)
        self._ahead: dict[float, list[Floats]] = {}  # see `_rooms`

    @cached_property
    def _task(self) -> Task:
        scenario = self._service.scenario
        world = (scenario.models, scenario.zone, scenario.consumption)
        return Task(world, scenario.tariff, self._service.policy)

    @cached_property
    def _chain_of(self) -> tuple[Ints, ...]:
        """For each model the row of every kind of house."""
        models = self._task.kinds.models
        return tuple(np.unique(m.chains[0].chain_of, return_inverse=True)[1] for m in models)

    @property
    def _chains(self) -> tuple[Ints, ...]:
        return tuple(np.unique(m.chains[0].chain_of) for m in self._task.kinds.models)

    @cached_property
    def _moves(self) -> tuple[Any, ...]:
        return chains_of(self._service)

    # ---- matrices, losses and room of the plan

    def _inward(self, first: int, last: int) -> list[Floats]:
        """For each model the matrices into the zone's steps first to last, (chains, L, 2, 2)."""
        service, pattern, length = self._service, self._service.pattern, last - first + 1
        if pattern is None:
            models, at = service.scenario.models, np.arange(length) + first - self._first
            calendars = [model.calendar.slots[at % len(model.calendar.slots)] for model in models]
        else:  # the models alone: laws of readings play no part
            seconds, models = service.seconds, pattern.scenario.models
            local = local_seconds(Steps(first * seconds, seconds, length, service.time_zone))
            calendars = [
                local_calendar(model.calendar, local, seconds, f"model {model.name}").slots
                for model in models
            ]
        matrices_of_models = []
        for model, chains, slots in zip(models, self._chains, calendars, strict=True):
            matrices = model.chains[0].transition[slots][:, chains]
            matrices_of_models.append(np.ascontiguousarray(np.moveaxis(matrices, 1, 0), np.float64))
        return matrices_of_models

    def _by_chain(self, losses: Floats) -> list[Floats]:
        """The largest loss of each chain's kinds of houses, for each model: (..., chains)."""
        losses_of_models = []
        for chain_of in self._chain_of:
            rows = np.zeros((*losses.shape[:-1], chain_of.max() + 1))
            for kind, chain in enumerate(chain_of):
                rows[..., chain] = np.maximum(rows[..., chain], losses[..., kind])
            losses_of_models.append(rows)
        return losses_of_models

    @cached_property
    def _planned(self) -> tuple[Ints, list[Floats]]:
        """The first step of every block of the week, from 1, and its planned losses.

        (blocks,), and for each model (chains, blocks).
        """
        policy = self._service.policy
        steps = range(1, policy.horizon + 1)
        firsts = np.array([t for t in steps if policy.schedule.span(t)[0] == t], np.int64)
        losses = self._task.losses([policy.epsilon_at(t) for t in steps])[firsts - 1]
        return firsts, [np.ascontiguousarray(rows.T) for rows in self._by_chain(losses)]

    def _rooms(self, share: float = 1.0) -> list[Floats]:
        """What the blocks after each block say about its last step, at a share of the plan.

        For each model (chains, blocks). After the week its own first blocks come again.
        """
        from hushgrid._kernels.account import rooms_ahead

        if share in self._ahead:
            return self._ahead[share]
        firsts, losses = self._planned
        horizon, blocks = self._service.policy.horizon, len(firsts)
        lengths = np.diff([*firsts, horizon + 1])
        again = int(np.searchsorted(firsts, min(_AHEAD, horizon), side="right"))
        steps = horizon + int(lengths[:again].sum())
        inward = self._inward(self._first, self._first + steps - 1)
        rooms = []
        for matrices, rows in zip(inward, losses, strict=True):
            turn_losses = share * np.concatenate([rows, rows[:, :again]], axis=1)
            ahead = rooms_ahead(matrices, np.concatenate([lengths, lengths[:again]]), turn_losses)
            rooms.append(ahead[:, :blocks])
        self._ahead[share] = rooms
        return rooms

    def _block(self, t: int) -> tuple[int, int, int]:
        """Number from 0, first and last step of the block with the week's step t."""
        first, last = self._service.policy.schedule.span(t)
        return int(np.searchsorted(self._planned[0], first)), first, last

    def _at(self, step: int) -> ZoneAccount:
        """The account of the week with a step of the zone."""
        start = step * self._service.seconds
        for week in self._weeks:
            if week._service.begins <= start < week._service.ends:
                return week
        self._weeks.append(ZoneAccount(in_week(self._service, step)))
        return self._weeks[-1]

    def _planned_block(self, step: int) -> tuple[ZoneAccount, int, int, int]:
        """The account of the week with a step of the zone, then of the step's block in its plan.

        The number of the block from 0, and the zone's first and last step of it.
        """
        week = self._at(step)
        number, opens, closes = week._block(step - week._first + 1)
        return week, number, week._first + opens - 1, week._first + closes - 1

    # ---- what was published

    def before(self, standing: LedgerState, first: int) -> tuple[Figures, bool]:
        """The account before a block.

        Args:
            standing: The zone's ledger.
            first: The zone's step that the block begins with.

        Returns:
            The figures about the step before it; and whether nothing was ever published about the
            houses, so that they are about the step itself.
        """
        newest = standing.latest_account
        unknown, arrivals = is_unaccounted(standing), arrivals_of(standing)
        if newest is None and not unknown and not arrivals:
            return self._new(first)
        settled = self._settled(standing)
        if newest is None or arrivals or unknown or not self._has_same_houses(newest):
            figures = self._merged(standing, unknown=unknown)
            settled = max(settled, self._since - 1)
        else:
            figures = self._by_class(newest)
        promise = math.inf if newest is None or newest.promise is None else newest.promise
        eve = min(self._since, first) - 1  # steps before the terms keep the promise of then
        figures = self._after_silence(figures, settled, eve, promise)
        promise = max(promise, self._promise or math.inf)
        return self._after_silence(figures, max(settled, eve), first - 1, promise), False

    def _settled(self, standing: LedgerState) -> int:
        """The last step that the figures on record are about; no block begins until it is over.

        Terms may begin inside a block of those before, and a house come from a zone that is ahead
        of this one.
        """
        newest = standing.latest_account
        ends = [move.last for move in arrivals_of(standing)]
        ends += [] if newest is None else [newest.end]
        return -(-max(ends, default=0) // self._service.seconds) - 1  # lengths of steps may differ

    def _new(self, first: int) -> tuple[Figures, bool]:
        """Houses about which nothing was published: the law of the terms' first step is known."""
        service = self._service
        models: Sequence[OccupancyModel] = self._task.kinds.models
        if service.pattern is not None:
            first_step = Steps(service.since, service.seconds, 1, service.time_zone)
            models = settled(service.pattern, first_step).models
        figures = []
        for model, chains in zip(models, self._chains, strict=True):
            law = model.chains[0].initial[chains]
            with np.errstate(divide="ignore"):
                odds = np.log(law[:, 1]) - np.log(law[:, 0])
            figures.append(Account.interval((odds, odds)))
        if first <= self._since:
            return tuple(figures), True
        inward = self._inward(self._since, first - 1)
        silent = []
        for account, matrices in zip(figures, inward, strict=True):
            matrices[:, 0] = np.eye(2)
            after = account.admit(0.0, matrices, math.inf)
            assert after is not None  # nothing is said, and nothing promised
            silent.append(after)
        return tuple(silent), False

    def _has_same_houses(self, newest: RecordedAccount) -> bool:
        """Whether the figures on record are about the same houses under the same models."""
        terms, service = newest.terms, self._service
        agrees = terms.seconds == service.seconds and terms.occupancy == occupancy_digest(service)
        agrees = agrees and terms.roster == roster_digest(service)
        return agrees and terms.chains == self._moves

    def _by_class(self, newest: RecordedAccount) -> Figures:
        """The figures on record, about the same classes of houses."""
        account, at = from_rows(newest.rows), 0
        figures = []
        for chains in self._chains:
            parts = (account.known, account.room, account.low, account.high)
            figures.append(IntervalAccount(*(part[at : at + len(chains)] for part in parts)))
            at += len(chains)
        return tuple(figures)

    def _merged(self, standing: LedgerState, *, unknown: bool) -> Figures:
        """All that is on record as one class of houses, for each of the present classes."""
        account = Account.interval().merged(*accounts_of(standing)).under_other_model()
        account = account.disowned() if unknown else account
        return tuple(
            IntervalAccount(
                *(np.full(len(chains), float(getattr(account, name))) for name in _FIGURES)
            )
            for chains in self._chains
        )

    def _after_silence(self, figures: Figures, settled: int, last: int, promise: float) -> Figures:
        """The figures after steps done + 1 to last, in which nothing from readings is published."""
        if last - settled > _SILENT:
            figures = tuple(account.under_other_model() for account in figures)
            settled = last - _SILENT
        if last <= settled:
            return figures
        silent = []
        for account, matrices in zip(figures, self._inward(settled + 1, last), strict=True):
            after = account.admit(0.0, matrices, promise)
            if after is None:  # steps before the first block that is admitted again: no promise
                after = account.admit(0.0, matrices, math.inf)
            if after is None:
                raise LedgerError(f"the account of zone {self._service.id!r} admits no silence.")
            silent.append(after)
        return tuple(silent)

    # ---- the next block

    def choose(
        self, standing: LedgerState, t: int, scheduler: Scheduler, rates: Sequence[float]
    ) -> AdmittedBlock | None:
        """What the block of a step may lose: as planned, or the most that its account admits.

        Args:
            standing: The zone's ledger; no release of the block is in it.
            t: A step of the week, from 1.
            scheduler: The calibration of the week's steps.
            rates: Rates published before the step [currency/kWh].

        Returns:
            The loss and the account after the block; None where the public forecast is published
            instead.
        """
        if self._first + t - 1 <= self._settled(standing):
            return None
        if not (self._promise or self._window or is_bound(standing)):
            return AdmittedBlock(self._service.policy.epsilon_at(t))
        planned = self._service.policy.epsilon_at(t) * self._under_earlier(standing, t)
        wish = scheduler.at(t, rates, planned)
        for share, goes_on in self._shares(standing, t, wish, rates):
            if share < WORTH:
                return None
            calibration = scheduler.at(t, rates, planned * share)
            account = self._intervals(standing, t, calibration.scale, rates, goes_on)
            windows = self._windows(standing, t, calibration.epsilon_any)
            if account is not False and windows is not False:
                return AdmittedBlock(planned * share, account, windows)
        return None

    def _under_earlier(self, standing: LedgerState, t: int) -> float:
        """The share of the planned loss that promises about longer windows leave each block.

        They stay in force for a while after a change: what they leave is spread over its blocks.
        """
        windows, (first, last) = self._open_windows(standing, t), self._span(standing, t)
        if windows is None or len(windows.promises) < 2:
            return 1.0
        seconds, planned = self._service.seconds, self._service.policy.epsilon_at(t)
        fair = [
            window_loss(promise.steps // seconds + 1, last - first + 1, promise.epsilon)
            for promise in windows.promises[:-1]
            if promise.binds(first * seconds)
        ]
        return min([1.0, *(loss / planned for loss in fair)])

    def _shares(
        self,
        standing: LedgerState,
        t: int,
        planned: Calibration,
        rates: Sequence[float],
    ) -> Iterator[tuple[float, float]]:
        """Shares of the planned loss to try, the largest first.

        Each with the share of the plan for which it leaves room in later blocks: the largest loss
        with which the whole plan goes on, and smaller shares of it that do so themselves.
        """
        yield 1.0, 1.0
        share = 1.0
        if (windows := self._open_windows(standing, t)) is not None:
            start = self._span(standing, t)[0] * self._service.seconds
            share = min(share, windows.most(start) / planned.epsilon_any)
        if self._promise is not None:
            figures, inward, rooms = self._block_of(standing, t)
            losses = self._losses(t, planned.scale, rates)
            share = min(share, self._admits(figures, inward, losses, rooms))
            if share < WORTH:  # a share of the plan that may go on
                yield from ((less, less) for less in _LESS)
        for n in range(4):  # below eta = 1 a loss is not in proportion to the noise
            yield share * (1 - 1e-9) * 0.7**n, 1.0

    def _admits(
        self,
        figures: Figures,
        inward: Sequence[Floats],
        losses: Sequence[Floats],
        rooms: Sequence[Floats],
    ) -> float:
        """The largest share of these losses that leaves the room that later blocks need."""
        share = math.inf
        for account, matrices, loss, room in zip(figures, inward, losses, rooms, strict=True):
            most = account.most(matrices, self._promise or math.inf, room)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = min(share, float(np.where(loss > 0, most / loss, math.inf).min()))
        return share

    def _span(self, standing: LedgerState, t: int) -> tuple[int, int]:
        """The zone's first and last step of the block of the week's step t.

        It begins after what the figures on record are about.
        """
        _, first, last = self._block(t)
        start = max(self._first + first - 1, self._settled(standing) + 1)
        return start, self._first + last - 1

    # ---- promises about intervals

    def _block_of(
        self, standing: LedgerState, t: int
    ) -> tuple[Figures, list[Floats], list[Floats]]:
        """The figures before a block, its matrices, and the room that later blocks need."""
        number, (start, end) = self._block(t)[0], self._span(standing, t)
        figures, new = self.before(standing, start)
        inward = self._inward(start, end)
        if new:
            for matrices in inward:
                matrices[:, 0] = np.eye(2)
        return figures, inward, [rows[:, number] for rows in self._rooms()]

    def _intervals(
        self,
        standing: LedgerState,
        t: int,
        scale: float,
        rates: Sequence[float],
        goes_on: float,
    ) -> AccountRows | Literal[False] | None:
        """The account after a block with this noise; None: there is none; False: not admitted.

        It leaves room for a share of the plan in all later blocks.
        """
        if self._promise is None:
            if not is_promised(standing) or ends_without_promise(standing):
                return None
            start, _ = self._span(standing, t)
            figures, _ = self.before(standing, start)  # promises about earlier steps
            free = all(np.isinf(account.room).all() for account in figures)
            return None if free else False
        figures, inward, _ = self._block_of(standing, t)
        lost = self._losses(t, scale, rates)
        after = self._admitted(figures, lost, inward)
        if after is None:
            return False
        number = self._block(t)[0]
        pairs = zip(after, (rows[:, number] for rows in self._rooms(goes_on)), strict=True)
        enough = all((account.room >= room * (1 - _NEAR)).all() for account, room in pairs)
        return to_rows(after, lost) if enough else False

    # ---- promises about windows

    def _open_windows(self, standing: LedgerState, t: int) -> WindowAccount | None:
        """The account before a block; None where no promise about windows is in force."""
        accounts = windows_of(standing)
        start = self._span(standing, t)[0] * self._service.seconds
        if self._window is None:
            accounts = [account.ended() for account in accounts]
        else:
            steps, epsilon = self._window
            if not accounts:
                accounts = [first_windows(standing, steps, epsilon, start)]
            elif not is_continued(standing, accounts[-1], self._window):
                accounts[-1] = accounts[-1].under(steps, epsilon, start)
        if not accounts:
            return None
        account = merged_windows(accounts)
        return account if any(promise.binds(start) for promise in account.promises) else None

    def _windows(
        self, standing: LedgerState, t: int, loss: float
    ) -> WindowRows | Literal[False] | None:
        """The account after a block with this loss; None: there is none; False: not admitted."""
        account = self._open_windows(standing, t)
        if account is None:
            return None
        seconds, (first, last) = self._service.seconds, self._span(standing, t)
        after = account.admit(loss, first * seconds, (last + 1) * seconds - 1)
        return False if after is None else to_windows(after)

    def first_admitted(self, standing: LedgerState, t: int, scheduler: Scheduler) -> int | None:
        """The first step of the week from a step on whose block the account admits.

        Args:
            standing: The zone's ledger; nothing from readings is published until that step.
            t: A step of the week, from 1.
            scheduler: The calibration of the week's steps, which does not depend on rates.

        Returns:
            The step: t, or the first of a later block; None where there is none in the week.
        """
        opens = self._settled(standing) + 1 - self._first + 1
        while (t := max(t, opens)) <= self._service.policy.horizon:
            if self.choose(standing, t, scheduler, ()) is not None:
                return t
            t = self._block(t)[2] + 1
        return None

    def _losses(self, t: int, scale: float, rates: Sequence[float]) -> list[Floats]:
        """What a block with this noise loses about the houses of each chain; (chains,) each."""
        return self._by_chain(self._task.scheduler.losses(t, scale, rates))

    def _admitted(
        self, figures: Figures, losses: Sequence[Floats], inward: Sequence[Floats]
    ) -> Figures | None:
        accounts = []
        for account, loss, matrices in zip(figures, losses, inward, strict=True):
            after = account.admit(loss, matrices, self._promise or math.inf)
            if after is None:
                return None
            accounts.append(after)
        return tuple(accounts)

    def after_loss(
        self, standing: LedgerState, first: int, last: int, *, unknown: bool = False
    ) -> tuple[AccountRows, int]:
        """The account after steps that may have been published and lost.

        Args:
            standing: The zone's ledger.
            first: The first of these steps of the zone.
            last: The last one.
            unknown: Releases of other terms, or of two histories, may be among them.

        Returns:
            The figures as a record has them, and the step they are about: the last of the block
            that the last lost step is in.
        """
        settled = self._settled(standing)
        lost_from = max(first, settled + 1, self._since)
        start = max(self._planned_block(lost_from)[2], settled + 1)
        figures, new = self.before(standing, start)
        losses = [np.zeros(len(chains)) for chains in self._chains]
        end = start - 1
        while end < last:
            week, number, _, closes = self._planned_block(end + 1)
            start, end = end + 1, closes
            inward, booked = self._inward(start, end), []
            if new:
                for matrices in inward:
                    matrices[:, 0] = np.eye(2)
            losses = [rows[:, number] for rows in week._planned[1]]
            rooms = [rows[:, number] for rows in week._rooms()]
            if self._admits(figures, inward, losses, rooms) < WORTH:  # `choose` may leave less
                rooms = [rows[:, number] for rows in week._rooms(_LESS[-1])]
            for account, matrices, loss, room in zip(figures, inward, losses, rooms, strict=True):
                promise = self._promise or math.inf
                if account.admit(0.0, matrices, promise) is None:  # its steps carry no promise
                    promise = math.inf
                booked.append(account.lost(loss, matrices, promise, room * (1 - _NEAR)))
            figures, new = tuple(booked), False
        if unknown:  # what is planned bounds none of it
            figures = tuple(account.disowned() for account in figures)
        return to_rows(figures, losses), end

    def windows_after_loss(
        self,
        standing: LedgerState,
        first: int,
        last: int,
        *,
        other_accounts: Sequence[ZoneAccount] = (),
        anew: bool = False,
    ) -> WindowRows | None:
        """The account of windows after steps that may have been published and lost.

        Args:
            standing: The zone's ledger.
            first: The first of these steps of the zone.
            last: The last one.
            other_accounts: The same zone under other terms that may have held in these steps.
            anew: The noise of blocks on record may have been drawn once more.

        Returns:
            The account as a record has it; None where no promise about windows is in force.
        """
        lost_from = max(first, self._since)
        week = self._at(lost_from)
        windows = week._open_windows(standing, lost_from - week._first + 1)
        if windows is None:
            return None
        newest, seconds = standing.latest_windows, self._service.seconds
        start, stop = first * seconds, (last + 1) * seconds
        # a block on record is opened once in one history
        opened = start if anew or newest is None else max(start, newest.end)
        blocks = list(self._lost_blocks(opened, stop))
        for account in other_accounts:
            blocks += account._lost_blocks(start, stop)
        for block in blocks:
            windows = windows.with_lost(block.loss, block.first, block.last)
        return to_windows(windows)

    def _lost_blocks(self, start: int, stop: int) -> Iterator[SpentBlock]:
        """The blocks that these terms plan from `start` to `stop` [UTC s]."""
        seconds = self._service.seconds
        step = max(start // seconds, self._since)
        while step * seconds < stop:
            week, number, first, last = self._planned_block(step)
            step = last + 1
            yield SpentBlock(first * seconds, step * seconds - 1, week._planned_any[number])

    @cached_property
    def _planned_any(self) -> list[float]:
        """What every block of the week is planned to lose about any house."""
        steps = self._planned[0].tolist()
        return [self._task.scheduler.at(t).epsilon_any for t in steps]

    def leaving(self, standing: LedgerState) -> tuple[AccountRows | None, int]:
        """The account of a house that leaves the zone, as its transfer states it.

        Args:
            standing: The zone's ledger.

        Returns:
            One row that holds for every house of the zone, whichever chain it follows; None where
            nothing was ever published about its houses. An open block is cut after its last step
            on record. And the end of the step that it is about, or of the last one that
            anything was published about, here or where houses came from [UTC s].
        """
        newest = standing.latest_account
        arrivals, unknown = arrivals_of(standing), is_unaccounted(standing)
        latest = next(
            (release for release in reversed(standing.releases) if release.source == "readings"),
            None,
        )
        ends = [move.last for move in standing.transfers if move.direction == "in"]
        ends += [(gap.last + 1) * standing.terms_of(gap).seconds for gap in standing.gaps]
        ends += [] if latest is None else [latest.start + standing.terms_of(latest).seconds]
        end = max(ends, default=0)
        if newest is None and not arrivals and not unknown:
            return None, end
        accounts = [account_of(move) for move in arrivals]
        if newest is not None:
            block = [
                release
                for release in standing.current
                if release.seq >= newest.seq and release.source == "readings"
            ]
            last = standing.last_t  # forecasts in the block included
            if block and block[0].seq == newest.seq and last < newest.step:
                accounts.append(self._at(block[0].t)._cut(standing, block[0], last))
                end = max(end, (last + 1) * newest.terms.seconds)
            else:
                accounts.append(from_rows(newest.rows))
                end = max(end, newest.end)
        accounts += [] if accounts else [Account.interval()]
        account = accounts[0].merged(*accounts[1:]).under_other_model()
        return to_rows((account.disowned() if unknown else account,), (0.0,)), end

    def _cut(self, standing: LedgerState, opened: ReleaseRecord, last: int) -> IntervalAccount:
        """The account after an open block of which the house is no part beyond a step."""
        start = self._first + self._block(opened.t - self._first + 1)[1] - 1
        before = replace(
            standing,
            releases=standing.releases[: until(standing.releases, opened.seq - 1)],
            booked=tuple(record for record in standing.booked if record.seq < opened.seq),
        )
        start = max(start, self._settled(before) + 1)
        figures, new = self.before(before, start)
        losses = self._losses(opened.t - self._first + 1, opened.scale, ())
        cut = []
        for account, loss, matrices in zip(figures, losses, self._inward(start, last), strict=True):
            if new:
                matrices[:, 0] = np.eye(2)
            after = account.admit(loss, matrices, self._promise or math.inf)
            assert after is not None  # the whole block was admitted
            cut.append(after)
        return cut[0].merged(*cut[1:])
