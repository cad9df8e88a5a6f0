"""Plans for windows: blocks of a week, what each may lose, and their length and clamp.

A promise about any window bounds the sum of the losses of the blocks that a window touches. Long
blocks are few, so each may lose more, but their noise grows with their length. A lower clamp makes
less noise but hides more energy. Both are chosen together, by the error of the estimate that
follows releases (docs/plan.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import count_of
from hushgrid.belief.followed import usual_parts
from hushgrid.mechanism.policy import Blocks, Policy
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tariff, Zone, offset_tariff
from hushgrid.planning.clamp import MOST_CUT, MOST_MOVED, ClampGrid, clamp_grid
from hushgrid.planning.expected_error import (
    RHO,
    BlockFilter,
    ClampMoments,
    Prospect,
    error_weights,
    prospect,
)

_HOUR, _WEEK = 3600, 604_800  # [s]
# hours of a block; all divide a week, so that blocks begin at the same local times in every week
_HOURS = (1, 2, 3, 4, 6, 8, 12, 14, 21, 24, 28, 42, 56, 84, 168)
_SIZES = (
    *(10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 33, 36, 39, 43, 47, 50, 55, 60),
    *(65, 70, 75, 80, 85, 90, 95),
)  # first digits of a planned clamp [Wh]
# Short blocks say less of a long absence, so a length may cost this share of error to be shorter.
_CLOSE = 0.01
_SMALLEST = 100.0  # times below the contract bound, the smallest clamp that is tried


def promise_words(
    secret: str,
    epsilon: float,
    window: int | None = None,
    seconds: int | None = 900,
) -> str:
    """A promise in a few words.

    Args:
        secret: What it protects.
        epsilon: Its epsilon.
        window: Of the secret window, the steps that a window touches.
        seconds: Length of a step [s]; None: not known here, so a window is given in steps.

    Returns:
        What is protected, with the figures.

    >>> promise_words("window", 1.0, window=97)
    'any 24 hours, epsilon 1'
    """
    scope = "any step by its price" if secret == "step" else "any step by all prices"
    if window is not None:
        hours, seconds_left = divmod((window - 1) * (seconds or 0), _HOUR)
        scope = (
            f"any {window} steps" if seconds_left or not hours else f"any {count_of('hour', hours)}"
        )
    return f"{scope}, epsilon {epsilon:g}"


# ---- blocks


def most_blocks(lengths: Sequence[int], window: int) -> int:
    """The most blocks that a window touches, where the blocks come again and again.

    Args:
        lengths: Steps of each block of a turn, in order.
        window: The steps that a window touches.

    Returns:
        How many.

    >>> most_blocks([24] * 4, 97), most_blocks([2, 2, 1], 5)
    (5, 4)
    """
    turn = sum(lengths)
    turns, steps_left = divmod(window - 1, turn)  # a window from the last step of a block on
    ends = np.cumsum(lengths)
    later = np.concatenate([ends, ends + turn])
    beyond = np.searchsorted(later, ends + steps_left, side="left") - np.arange(len(ends))
    return turns * len(ends) + 1 + int(np.max(beyond))


def window_loss(window: int, length: int, epsilon: float) -> float:
    """What each block of steps may lose, so that no window loses more than epsilon.

    Args:
        window: The steps that a window touches.
        length: The steps of a block; all are equal.
        epsilon: What is promised about a window.

    Returns:
        Epsilon over the most blocks that a window touches.

    >>> window_loss(97, 24, 1.0)
    0.2
    """
    return epsilon / most_blocks([length], window)


def even_blocks(turn: int, length: int, horizon: int) -> tuple[int, ...]:
    """Blocks of about one length, a whole number of them in every turn.

    Args:
        turn: Steps after which blocks begin at the same place again, such as a week.
        length: Steps of a block; rounded to what divides the turn best.
        horizon: Steps of all blocks together, some turns.

    Returns:
        The steps of each block; within a turn they differ by one step at most.

    >>> even_blocks(7, 3, 14)
    (3, 4, 3, 4)
    """
    count = max(round(turn / length), 1)
    borders = np.arange(count + 1) * turn // count
    lengths = np.diff(borders).tolist()
    return tuple(lengths * (horizon // turn))


def window_blocks(lengths: Sequence[int], window: int, epsilon: float) -> Blocks:
    """The schedule of blocks of which no window loses more than epsilon.

    Args:
        lengths: Steps of each block, which come again and again.
        window: The steps that a window touches.
        epsilon: What is promised about a window.

    Returns:
        The schedule; every block has the same loss.
    """
    loss = epsilon / most_blocks(lengths, window)
    return Blocks(tuple(lengths), (loss,) * len(lengths))


def block_lengths(turn: int, window: int, seconds: int) -> tuple[int, ...]:
    """The lengths that are tried: from an hour to half a window, parts of a week.

    Args:
        turn: Steps after which blocks begin at the same place again.
        window: The steps that a window touches.
        seconds: Length of a step [s].

    Returns:
        The steps of a block, ascending; one step at least.
    """
    most = max((window - 1) // 2, 1)
    lengths = {max(round(hours * _HOUR / seconds), 1) for hours in _HOURS}
    return tuple(sorted(n for n in lengths if n <= min(most, turn))) or (1,)


# ---- the choice


def chosen_length(errors: Sequence[float]) -> int:
    """Which length of blocks is planned: the shortest whose error is within 1 % of the least.

    Args:
        errors: The error with each length, by ascending length.

    Returns:
        The place of the length.

    >>> chosen_length([0.11, 0.1004, 0.1, 0.12])
    1
    """
    return int(np.argmax(np.array(errors) <= (1 + _CLOSE) * min(errors)))


class WindowOption(NamedTuple):
    """A length of blocks with its best clamp.

    Attributes:
        length: Steps of a block; where a week holds no whole number of them, of the first one.
        hours: The same [h].
        loss: Epsilon of each block.
        clamp: Largest distance between the ends of the clamp [Wh].
        error: Expected relative error of the estimate's price, root mean square.
    """

    length: int
    hours: float
    loss: float
    clamp: float
    error: float


def window_policy(
    world: tuple[Sequence[OccupancyModel], Zone, Consumption],
    tariff: Tariff,
    terms: Policy,
    epsilon: float,
    window: int,
    *,
    rho: float | None = RHO,
    most_cut: float = MOST_CUT,
    block: int | None = None,
    seconds: int = 900,
) -> tuple[Policy, tuple[WindowOption, ...]]:
    """The policy that keeps a promise about any window with a low error of its estimate.

    Args:
        world: Models, zone and consumption.
        tariff: The rate of a load.
        terms: The horizon, the rules and the estimator; blocks of steps where they are given.
        epsilon: What is promised about a window.
        window: The steps that a window touches.
        rho: Relative error to expect of what the estimate is relative to; None keeps the clamp of
            the terms and expects the usual one.
        most_cut: The largest share of the zone's expected energy that a clamp may cut off.
        block: Steps of a block, adjusted to what divides a week; None: the shortest whose error is
            within 1 % of the least.
        seconds: Length of a step [s].

    Returns:
        The policy, and each length that was tried with its best clamp, by ascending length.
    """
    horizon, week = terms.horizon, _WEEK // seconds
    turn = week if horizon % week == 0 else horizon
    schedules = [terms.schedule.lengths]
    if not terms.schedule.lengths:
        lengths_in_steps = (
            block_lengths(turn, window, seconds) if block is None else (min(block, turn),)
        )
        schedules = sorted({even_blocks(turn, n, horizon) for n in lengths_in_steps}, key=max)
    models, zone, consumption = world
    sizes = None if rho is None else clamp_sizes(int(zone.bound.max()))
    grid = clamp_grid(models, zone, consumption, terms, sizes, most_cut)
    # whoever follows the prices follows releases, also where the price itself is raw
    followed = "filter" if terms.estimator == "model" else terms.estimator
    bare = replace(terms, clamp=(), estimator=followed)
    net_tariff = offset_tariff(zone, tariff, consumption)
    base = prospect(models, consumption, net_tariff, bare, [1.0] * horizon)
    rows, options = list[int](), list[WindowOption]()
    for lengths in schedules:
        loss = epsilon / most_blocks(lengths, window)
        case = BlockFilter(seconds, max(lengths))
        start = rows[-1] if rows else len(grid.reach) - 1
        own_base, allowed = replace(base, blocks=case), RHO if rho is None else rho
        row, error = _best(own_base, grid, loss, allowed, start)
        rows.append(row)
        hours = lengths[0] * seconds / _HOUR
        options.append(WindowOption(lengths[0], hours, loss, float(grid.reach[row]), error))
    k = chosen_length([option.error for option in options])
    schedule = Blocks(schedules[k], (options[k].loss,) * len(schedules[k]))
    policy = replace(terms, epsilon=options[k].loss, schedule=schedule, clamp=grid.clamps[rows[k]])
    return policy, tuple(options)


def _best(
    base: Prospect, grid: ClampGrid, loss: float, rho: float, start: int
) -> tuple[int, float]:
    """The row of clamps with the least error for blocks of one loss, and that error."""
    assert base.blocks is not None
    n, steps = base.blocks.length, len(base.load)

    @lru_cache(maxsize=len(grid.reach))
    def error(row: int) -> float:
        if not grid.allowed[row]:
            return math.inf
        variance = (n + 1) * (n + 2) / 3 * (grid.reach[row] / loss) ** 2
        columns = (part[:, row] for part in grid.parts)
        missed, cut, below_variance, _, over, low = columns
        noise = np.full(steps, variance)
        parts = replace(
            base,
            noise=noise,
            missed=missed,
            cut=cut,
            below_variance=below_variance,
            over=over,
            low=low,
        )
        put_back = parts.estimator == "releases" and row < len(grid.reach) - 1
        if put_back and parts.moved_price > MOST_MOVED:
            return math.inf
        return parts.chosen_by(rho) * math.sqrt(steps)

    at = start
    for step in (1, -1):  # errors have one valley
        while 0 <= at + step < len(grid.reach) and error(at + step) < error(at):
            at += step
    return at, error(at)


def clamp_sizes(largest: int) -> tuple[int, ...]:
    """Round sizes of a clamp below a contract bound, about 7 % apart.

    Args:
        largest: The bound [Wh].

    Returns:
        Sizes [Wh], ascending.

    >>> clamp_sizes(130)[-4:]
    (95, 100, 110, 120)
    """
    tens = (10.0**e for e in range(-1, len(str(largest))))
    sizes = {round(ten * size) for ten in tens for size in _SIZES}
    return tuple(sorted(n for n in sizes if max(largest / _SMALLEST, 1) <= n < largest))


WINDOWS = {"P1D": 1, "P3D": 3, "P7D": 7, "P14D": 14}  # days


def longest_window(
    homes: int,
    usual: float,
    tariff: Tariff,
    *,
    bound: int,
    epsilon: float = 1.0,
    rho: float = RHO,
    seconds: int = 900,
) -> dict[str, float]:
    """What a promise about windows of several lengths costs a zone of which no model is known.

    Args:
        homes: Number of homes.
        usual: What a home usually consumes in a step [Wh].
        tariff: The rate of a load.
        bound: Largest reading of a home [Wh].
        epsilon: What is promised about a window.
        rho: Relative error to expect of the usual load.
        seconds: Length of a step [s].

    Returns:
        By the window's duration: the expected relative error of a price, root mean square, with
        the best blocks and clamp.
    """
    turn, group = _WEEK // seconds, np.zeros(homes, np.int32)
    clamps = [*clamp_sizes(bound), bound]
    columns = [usual_parts((at,), group, usual * homes, np.ones(1))[:, 0] for at in clamps]
    below, missed, cut, below_variance, _, over = np.array(columns).T
    parts = ClampMoments(
        *(column[None] for column in (missed, cut, below_variance, below, over, 0 * over))
    )
    allowed = missed <= MOST_CUT * (below + missed)
    allowed[-1] = True
    grid = ClampGrid(tuple((at,) for at in clamps), np.array(clamps, np.float64), parts, allowed)
    load = np.array([usual * homes])
    weights = error_weights(load, tariff)
    zeros = np.zeros(1)
    base = Prospect(zeros, zeros, zeros, zeros, load, zeros, weights, "releases", shaped=True)
    errors_by_window = dict[str, float]()
    for name, days in WINDOWS.items():
        window = days * turn // 7 + 1
        errors, row = [], len(clamps) - 1
        for length in block_lengths(turn, window, seconds):
            block_base = replace(base, blocks=BlockFilter(seconds, length))
            row, error = _best(block_base, grid, window_loss(window, length, epsilon), rho, row)
            errors.append(error)
        errors_by_window[name] = errors[chosen_length(errors)]
    return errors_by_window
