"""The account of a promise: golden values of the theory, enumerated worlds, and wrong rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import Calendar, OccupancyModel, PolicyError, temporal_leakage
from hushgrid.accounting.account import BLOCKS, Account, IntervalAccount, WindowAccount
from tests.accounting.account_oracle import worst_about_each_step
from tests.examples import SOAK

E = np.array([[0.9, 0.1], [0.2, 0.8]])
START = np.eye(2)
ODDS = math.log(3 / 7)
UNKNOWN = (-math.inf, math.inf)


def course(law: tuple[float, float], blocks: int, steps: int) -> list[tuple[float, ...]]:
    """Loss, known, room, low and high of blocks that wish for 0.5 and keep room for 0.3."""
    account, rows = Account.interval(law=law), []
    for number in range(blocks):
        inward = [START if number == i == 0 else E for i in range(steps)]
        loss = min(0.5, float(account.most(inward, 1.0, 0.3)))
        after = account.admit(loss, inward, 1.0)
        assert after is not None
        account = after
        figures = (account.known, account.room, account.low, account.high)
        rows.append((loss, *map(float, figures)))
    return rows


def test_golden_values_of_steps() -> None:
    """MATH 16: chain E, promise 1, room 0.3."""
    rows = course((ODDS, ODDS), 5, 1)
    assert [row[0] for row in rows] == pytest.approx([0.5, 0.347922, *[0.122710] * 3], abs=1e-6)
    known = [0.5, 0.7, 0.618620, 0.561299, 0.520830]
    assert [row[1] for row in rows] == pytest.approx(known, abs=1e-6)
    assert [row[2] for row in rows] == pytest.approx([0.5, *[0.3] * 4], abs=1e-6)
    odds = [-0.847298, -0.800119, -0.767593, -0.745054, -0.729384]
    assert [row[3] for row in rows] == pytest.approx(odds, abs=1e-6)
    assert [row[4] for row in rows] == pytest.approx(odds, abs=1e-6)


def test_golden_values_without_a_law_and_of_blocks() -> None:
    """MATH 16."""
    free = course(UNKNOWN, 5, 1)
    assert [row[0] for row in free] == pytest.approx([0.5, 0.343767, *[0.122710] * 3], abs=1e-6)
    known = [0.5, 0.7, 0.620218, 0.563988, 0.524254]
    assert [row[1] for row in free] == pytest.approx(known, abs=1e-6)
    assert free[1][3:] == pytest.approx((-2.197225, 1.386294), abs=1e-6)
    pairs = course((ODDS, ODDS), 3, 2)
    assert [row[0] for row in pairs] == pytest.approx([0.5, 0.434372, 0.210326], abs=1e-6)
    assert [row[1] for row in pairs] == pytest.approx([0.5, 0.683543, 0.554347], abs=1e-6)


def test_golden_values_of_the_parts() -> None:
    """MATH 16: L_F(1; E), L_F^-1(.5; E), L_B(1; E) with the law known and unknown."""
    from hushgrid._kernels.account import backward_one, forward_one, inverse_one

    assert forward_one(1.0, E) == pytest.approx(0.706275, abs=1e-6)
    assert inverse_one(0.5, E) == pytest.approx(0.703792, abs=1e-6)
    assert backward_one(1.0, E, ODDS, ODDS) == pytest.approx(0.706736, abs=1e-6)
    assert backward_one(1.0, E, *UNKNOWN) == pytest.approx(0.707040, abs=1e-6)


@pytest.mark.parametrize("b", [0.0, 0.3, 2.0, 40.0, math.inf])
def test_limits_of_what_the_past_says(b: float) -> None:
    """MATH 16: two infinite c_j, one, a certain state, one column, no bound on the past."""
    from hushgrid._kernels.account import backward_one

    wide = abs(math.log(0.1 / 0.8) - math.log(0.9 / 0.2))
    assert backward_one(b, START, ODDS, ODDS) == b
    assert backward_one(b, START[::-1].copy(), *UNKNOWN) == b
    assert backward_one(b, E, math.inf, math.inf) == 0
    assert backward_one(b, np.array([[1.0, 0.0], [1.0, 0.0]]), ODDS, ODDS) == 0
    free = backward_one(b, E, *UNKNOWN)
    assert math.tanh(free / 4) == pytest.approx(math.tanh(wide / 4) * math.tanh(b / 4))
    stays = np.array([[1.0, 0.0], [0.3, 0.7]])
    assert backward_one(b, stays, *UNKNOWN) == pytest.approx(b)
    if b == math.inf:  # who was away is away: a state that is known before may exclude one after
        assert backward_one(b, stays, ODDS, ODDS) == b
        assert backward_one(b, stays[::-1, ::-1].copy(), -1.0, 2.0) == b


def random_chain(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    inward = [START]
    for _ in range(steps - 1):
        leave, come = rng.beta(0.7, 0.7, 2)
        if rng.random() < 0.15:
            leave = float(rng.integers(2))
        inward.append(np.array([[1 - come, come], [leave, 1 - leave]]))
    return inward


def random_history(rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Promises about the steps of a random history, and what is true of them."""
    blocks = [int(n) for n in rng.integers(1, 3, rng.integers(1, 4))]
    inward = random_chain(rng, sum(blocks))
    home = float(rng.uniform(0.02, 0.98))
    odds = math.log(home / (1 - home))
    laws = [(odds, odds), (odds - rng.exponential(), odds + rng.exponential()), UNKNOWN]
    account, at = Account.interval(law=laws[rng.integers(3)]), 0
    losses: list[float] = []
    promises: list[float] = []
    for steps in blocks:
        part, at = inward[at : at + steps], at + steps
        promise = np.full(steps, rng.choice([0.2, 0.5, 1.0, 2.0]))
        if rng.random() < 0.3:
            promise = rng.uniform(0.1, 2.0, steps)
        most = float(account.most(part, promise, rng.choice([0.0, 0.05, 0.3])))
        loss = max(most, 0.0) * float(rng.choice([1.0, 1.0, 0.5, 0.0]))
        after = account.admit(loss, part, promise)
        if after is None:  # a promise that falls begins later: these steps have none, and forecasts
            assert most < 0
            loss, promise = 0.0, np.full(steps, np.inf)
            after = account.admit(0.0, part, promise)
            assert after is not None
        account = after
        losses.append(loss)
        promises += promise.tolist()
    return promises, worst_about_each_step((1 - home, home), inward, blocks, losses).tolist()


def test_no_enumerated_history_exceeds_its_promises() -> None:
    """And some come close: the account is not loose."""
    rng, closest = np.random.default_rng(16), 0.0
    for _ in range(20_000 if SOAK else 300):
        for promise, truth in zip(*random_history(rng), strict=True):
            assert truth <= promise * (1 + 1e-9)
            closest = max(closest, truth / promise)
    assert closest > 0.999


def random_model(rng: np.random.Generator, steps: int) -> OccupancyModel:
    """Two houses with chains of their own that change by the hour, day after day."""
    leave, come = rng.uniform(0.01, 0.4, (2, 24, 2)) * rng.choice([0.3, 1.0])
    hours = np.array([[1 - come, come], [leave, 1 - leave]]).transpose(2, 3, 0, 1)
    home = rng.uniform(0.05, 0.95, 2)
    calendar = Calendar(tuple(t % 24 for t in range(steps)))
    return OccupancyModel.factored(np.stack([1 - home, home], 1), hours, calendar=calendar)


def test_long_histories_by_the_recursion_over_all_steps() -> None:
    """Blocks, promises that change, two models and two shares; `temporal_leakage` is the judge."""
    rng, shares, closest = np.random.default_rng(17), np.array([1.0, 0.6]), 0.0
    for _ in range(1000 if SOAK else 40):
        lengths = [int(steps) for steps in rng.integers(1, 7, 50)]
        models = [random_model(rng, sum(lengths)) for _ in "ab"]
        pieces = [model.chains[0] for model in models]
        odds = [np.log(piece.initial[:, 1] / piece.initial[:, 0]) for piece in pieces]
        accounts = [Account.interval(law=(law, law)) for law in odds]
        promise, losses, promises, t = 1.0, list[float](), list[float](), 0
        for steps in lengths:
            hours = np.arange(t, t + steps) % 24
            inward = [np.moveaxis(piece.transition[hours], 1, 0).copy() for piece in pieces]
            if t == 0:
                for matrices in inward:
                    matrices[:, 0] = START
            if rng.random() < 0.05:
                promise = float(rng.choice([0.5, 1.0, 2.0]))
            pairs = list(zip(accounts, inward, strict=True))
            room = float(rng.choice([0.05, 0.1, 0.3]))
            most = min(float((a.most(part, promise, room) / shares).min()) for a, part in pairs)
            loss = min(0.5, max(most, 0.0))
            after = [account.admit(loss * shares, part, promise) for account, part in pairs]
            stated = promise
            if None in after:  # the promise has fallen and does not begin yet
                assert loss == 0
                stated = math.inf
                after = [account.admit(0.0, part, stated) for account, part in pairs]
            accounts = [account for account in after if account is not None]
            losses += [loss] * steps
            promises += [stated] * steps
            t += steps
        total = temporal_leakage(models, np.outer(losses, shares), lengths).total
        assert (total <= np.array(promises)[:, None] * (1 + 1e-9)).all()
        closest = max(closest, float((total / np.array(promises)[:, None]).max()))
    assert closest > 0.999


def test_a_promise_that_falls_does_not_admit_even_forecasts() -> None:
    """MATH 16: after 0.5 and 0.5 a promise of 0.4; and 1 to 0.2 under a slow chain."""
    account = admitted(Account.interval(law=(ODDS, ODDS)), (0.5, [START], 1.0), (0.5, [E], 1.0))
    assert float(account.known) == pytest.approx(0.852078, abs=1e-6)
    assert float(account.room) == pytest.approx(0.147922, abs=1e-6)
    assert account.admit(0.0, [E], 0.4) is None
    slow = np.array([[0.95, 0.05], [0.05, 0.95]])
    half = admitted(Account.interval(law=(0.0, 0.0)), (1.0, [START], 1.0))
    assert half.admit(0.0, [slow], 0.2) is None


def admitted(account: IntervalAccount, *blocks: tuple[Any, ...]) -> IntervalAccount:
    for block in blocks:
        after = account.admit(*block)
        assert after is not None
        account = after
    return account


def test_a_class_that_refuses_refuses_for_all() -> None:
    odds = np.array([ODDS, 0.0, 2.0])
    account = admitted(Account.interval(law=(odds, odds)), ([0.1, 0.2, 0.5], [START], 1.0))
    assert account.known.shape == (3,)
    most = account.most([E], 1.0, 0.3)
    assert account.admit(most, [E], 1.0) is not None
    for number in range(3):
        more = most + 0.4 * (np.arange(3) == number)
        assert account.admit(more, [E], 1.0) is None
    alone = [
        float(admitted(Account.interval(law=(y, y)), (e, [START], 1.0)).most([E], 1.0, 0.3))
        for y, e in zip(odds, [0.1, 0.2, 0.5], strict=True)
    ]
    assert most == pytest.approx(alone)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Account.interval(law=(1.0, 0.0)), "give the smaller log odds first"),
        (lambda: Account.interval().admit(-0.1, [E], 1.0), "loss is -0.1; give 0 or more"),
        (lambda: Account.interval().admit(math.nan, [E], 1.0), "give 0 or more"),
        (lambda: Account.interval().admit(0.1, E, 1.0), "inward has the shape"),
        (lambda: Account.window(0, 1.0), "window has 0 steps"),
        (lambda: Account.window(4, math.inf), "epsilon is inf"),
        (lambda: Account.window(4, 1.0).admit(-1, 0, 1), "loss is -1"),
        (lambda: Account.window(4, 1.0).admit(0.1, 5, 4), "out of order"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call: Any, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        call()


# ---- windows


class Judged:
    """A history of blocks and promises, kept apart from the account."""

    def __init__(self, steps: int, epsilon: float) -> None:
        self.account = Account.window(steps, epsilon)
        self.blocks: list[tuple[int, int, float]] = []
        self.promises: list[tuple[int, float, int, int | None]] = [(steps, epsilon, 0, None)]

    def change(self, steps: int, epsilon: float, since: int) -> None:
        self.account = self.account.under(steps, epsilon, since)
        last = max((last for _, last, loss in self.blocks if loss > 0), default=None)
        self.promises = [
            (w, e, s, until if until is not None else last)
            for w, e, s, until in self.promises
            if until is not None or last is not None
        ]
        self.promises.append((steps, epsilon, since, None))

    def publish(self, loss: float, first: int, last: int) -> None:
        after = self.account.admit(loss, first, last)
        assert after is not None
        self.account = after
        self.blocks.append((first, last, loss))

    def worst(self) -> float:
        """Largest loss of a window over its promise."""
        found, end = 0.0, self.blocks[-1][1]
        for number, (steps, epsilon, since, until) in enumerate(self.promises):
            newer = self.promises[number + 1][2] if until is not None else end + 1
            for opens in range(since, min(newer, end if until is None else until) + 1):
                if opens >= newer and until is not None:
                    break
                touched = [e for s, t, e in self.blocks if t >= opens and s < opens + steps]
                found = max(found, sum(touched) / epsilon)
        return found


def test_every_window_of_random_histories_keeps_its_promise() -> None:
    """Gaps, blocks that are cut, changes of the window and of epsilon; MATH 17."""
    rng, closest = np.random.default_rng(18), 0.0
    for _ in range(5000 if SOAK else 100):
        history, t = Judged(int(rng.integers(1, 20)), float(rng.choice([0.5, 1.0, 2.0]))), 0
        for _ in range(40):
            t += int(rng.choice([0, 0, 0, 3]))
            if rng.random() < 0.1 and history.blocks:
                history.change(int(rng.integers(1, 20)), float(rng.choice([0.5, 1.0, 2.0])), t)
            steps = int(rng.integers(1, 7))
            most = history.account.most(t)
            assert history.account.admit(most + 1e-6, t, t) is None
            loss = most * float(rng.choice([1, 1, 0.5, 0.2, 0]))
            history.publish(loss, t, t + int(rng.integers(steps)))
            t += steps
        closest = max(closest, history.worst())
        assert closest <= 1 + 1e-9
    assert closest > 0.999


def test_every_window_of_classes_whose_clamp_changes_keeps_its_promise() -> None:
    """The noise is the least that all classes admit; long lists, in which blocks are merged."""
    rng, closest = np.random.default_rng(19), 0.0
    for _ in range(400 if SOAK else 12):
        window, epsilon, t = int(rng.integers(1, 150)), float(rng.choice([0.5, 1.0])), 0
        classes = [Judged(window, epsilon) for _ in "ab"]
        bounds, clamp = rng.integers(300, 4000, 2), 1000
        for _ in range(150):
            if rng.random() < 0.05:
                clamp = int(rng.integers(200, 4000))
            if rng.random() < 0.03 and classes[0].blocks:
                window, epsilon = int(rng.integers(1, 150)), float(rng.choice([0.5, 1.0]))
                for judged in classes:
                    judged.change(window, epsilon, t)
            reach = np.minimum(bounds, clamp)
            rates = [c.account.most(t) / r for c, r in zip(classes, reach, strict=True)]
            rate = min(rates) * float(rng.choice([1.0, 0.3, 0.05, 0.02]))
            steps = int(rng.integers(1, 3))
            for judged, reached in zip(classes, reach, strict=True):
                judged.publish(rate * float(reached), t, t + steps - 1)
            t += steps
        closest = max(closest, *(judged.worst() for judged in classes))
        assert closest <= 1 + 1e-9
    assert closest > 0.999


def test_a_promise_that_was_dropped_at_a_change_would_be_broken() -> None:
    """Half of the old window is spent, then a larger promise: the old one binds for its window."""
    history = Judged(10, 1.0)
    history.publish(1.0, 0, 4)
    history.change(2, 5.0, 5)
    assert history.account.most(5) == 0
    assert history.account.most(14) == 5.0
    assert Account.window(2, 5.0, since=5).most(5) == 5.0  # the wrong rule: 6 in a window of 10


def test_old_blocks_are_merged_to_the_safe_side() -> None:
    account: WindowAccount | None = Account.window(1000, 100.0)
    for t in range(3 * BLOCKS):
        assert account is not None
        account = account.admit(0.1, t, t)
    assert account is not None
    assert len(account.blocks) == BLOCKS
    assert account.most(3 * BLOCKS) == pytest.approx(100 - 0.3 * BLOCKS)
    assert account.most(1100) <= 100 - 0.1 * (3 * BLOCKS - 101)


@given(st.integers(1, 50), st.integers(1, 12))
def test_how_many_equal_blocks_a_window_touches(steps: int, length: int) -> None:
    """MATH 17: at most ceil((W - 1)/L) + 1, so that equal losses of epsilon over it go on."""
    touched = math.ceil((steps - 1) / length) + 1
    account: WindowAccount | None = Account.window(steps, 1.0)
    for k in range(3 * touched):
        assert account is not None
        account = account.admit(1.0 / touched, k * length, (k + 1) * length - 1)
    assert account is not None


def test_a_block_that_was_drawn_twice_stays_twice_where_houses_come() -> None:
    """Counted once, a window would lose 1.2 where 1 is promised."""
    account = Account.window(10, 1.0).admit(0.4, 0, 2)
    assert account is not None
    twice = account.with_lost(0.4, 0, 2)
    arrival = Account.window(10, 1.0).ended()
    for merged in (twice.merged(arrival), arrival.merged(twice), twice.merged(account)):
        assert [block.loss for block in merged.blocks] == [0.4, 0.4]
    assert twice.merged(arrival).most(3) == pytest.approx(0.2)
    assert twice.merged(arrival).promises[-1] == twice.promises[-1], "it stays the last"
