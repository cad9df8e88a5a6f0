"""The rules for changes (MATH 16 and 17): the tempting wrong rule breaks a promise, the right not.

Outputs are judged by an enumeration that shares no code with the account. Where the theory names a
figure without its world, the world here is one that has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hushgrid.accounting.account import Account, IntervalAccount, WindowAccount
from tests.accounting.account_oracle import worst_by_blocks

START = np.eye(2)
E = np.array([[0.9, 0.1], [0.2, 0.8]])
SLOW = np.array([[0.95, 0.05], [0.05, 0.95]])
MILD = np.array([[0.8, 0.2], [0.2, 0.8]])
EVERY_LAW = np.linspace(-8, 8, 33)


def odds(home: float) -> float:
    return math.log(home / (1 - home))


def known_law(home: float) -> IntervalAccount:
    return Account.interval(law=(odds(home), odds(home)))


def worst(
    home: float | Sequence[float], inward: Sequence[np.ndarray], losses: Sequence[float]
) -> np.ndarray:
    """The largest log-ratio about each step, of releases of one step each."""
    laws = [odds(chance) for chance in np.atleast_1d(home)]
    return worst_by_blocks(laws, (0.0, 0.0), inward, [1] * len(losses), losses)[0]


def after(account: IntervalAccount, *steps: tuple[float, np.ndarray, float]) -> IntervalAccount:
    for loss, matrix, promise in steps:
        admitted = account.admit(loss, [matrix], promise)
        assert admitted is not None
        account = admitted
    return account


class Run:
    """Steps published with the smaller of a wish and the most that leaves room."""

    def __init__(self, account: IntervalAccount, promise: float, wish: float, room: float) -> None:
        self.account, self.promise, self.wish, self.room = account, promise, wish, room
        self.losses: list[float] = []

    def step(self, matrix: np.ndarray, *, published: bool = True) -> None:
        most = float(self.account.most([matrix], self.promise, self.room)) if published else 0.0
        loss = min(self.wish, max(most, 0.0))
        admitted = self.account.admit(loss, [matrix], self.promise)
        if admitted is None:  # nothing is promised about a step before the first that is admitted
            loss, admitted = 0.0, self.account.admit(0.0, [matrix], math.inf)
        assert admitted is not None
        self.account = admitted
        self.losses.append(loss)


# ---- promises


def test_a_smaller_promise_does_not_begin_with_silence() -> None:
    """From 1 to 0.2: even forecasts alone are not admitted; under the new promise 0.89 is true."""
    account = after(known_law(0.5), (1.0, START, 1.0))
    assert account.admit(0.0, [SLOW], 0.2) is None
    assert worst(0.5, [START, SLOW], [1.0, 0.0])[1] == pytest.approx(0.8855, abs=1e-4)
    losses = [1.0]
    while account.admit(0.0, [SLOW], 0.2) is None:  # these steps keep the old promise
        account = after(account, (0.0, SLOW, 1.0))
        losses.append(0.0)
    said = worst(0.5, [START, *[SLOW] * len(losses)], [*losses, 0.0])
    assert len(losses) > 10
    assert said[-1] <= 0.2
    assert said.max() <= 1 + 1e-9


def test_a_larger_promise_leaves_the_room_of_old_steps() -> None:
    """With the room of the new promise an old step of 1 comes to 1.96."""
    before = after(known_law(0.5), (0.9, START, 1.0))
    wrong = Run(replace(before, room=np.array(math.inf)), 2.0, 2.0, 0.0)
    right = Run(before, 2.0, 2.0, 0.0)
    for run, low, high in ((wrong, 1.7, 2.0), (right, 0.99, 1 + 1e-9)):
        run.step(SLOW)
        assert low < worst(0.5, [START, SLOW], [0.9, *run.losses])[0] <= high


def test_room_that_is_used_up_never_comes_back() -> None:
    account = after(known_law(0.3), (1.0, START, 1.0))
    assert account.room == 0
    for _ in range(50):
        account = after(account, (0.0, E, 1.0))
        assert float(account.most([E], 1.0, 0.0)) <= 0


# ---- models


def test_another_model_does_not_keep_the_law() -> None:
    """With the law that the new model gives the step before, its first step comes to 1.06."""
    old = after(known_law(0.5), (0.5, START, 1.0))
    new = known_law(0.999)
    wrong = replace(old, low=new.low, high=new.high)
    for account, fine in ((wrong, False), (old.under_other_model(), True)):
        run = Run(account, 1.0, 1.0, 0.0)
        run.step(E)
        said = worst(0.5, [START, E], [0.5, *run.losses])
        assert (said.max() <= 1 + 1e-9) == fine


def test_a_model_that_is_disowned_leaves_the_room() -> None:
    """MATH 16: with the room reset 1.022 about a step before; each model is true in its time."""
    old = Run(known_law(0.3), 1.0, 0.9, 0.01)
    old.step(START)
    old.step(E)
    right = old.account.disowned()
    wrong = replace(right, room=np.array(math.inf))
    for account, low, high in ((wrong, 1.022, 1.0221), (right, 0.99, 1 + 1e-9)):
        run = Run(account, 1.0, 1.0, 0.01)
        while not any(run.losses):
            run.step(E)
        losses = [*old.losses, *run.losses]
        assert low <= worst(0.3, [START, *[E] * (len(losses) - 1)], losses)[:2].max() <= high


def test_a_model_that_is_disowned_may_have_told_everything() -> None:
    """Whatever was said about the last step: kept at b the first new step comes to 4.1."""
    old = after(known_law(0.3), (0.5, START, 1.0))
    kept = Run(old.under_other_model(), 1.0, 0.5, 0.0)
    kept.step(E)
    free = Run(old.disowned(), 1.0, 0.5, 0.0)
    while not any(free.losses):
        free.step(E)
    for run, fine in ((kept, False), (free, True)):
        said, _ = worst_by_blocks(
            EVERY_LAW, (-40.0, 40.0), [E] * len(run.losses), [1] * len(run.losses), run.losses
        )
        assert (said[-1] <= 1 + 1e-9) == fine


def test_each_model_has_an_account_that_must_admit() -> None:
    """Under the second model the account of the first alone lets a step come to 1.17."""
    first, second = Run(known_law(0.5), 1.0, 0.5, 0.1), known_law(0.5)
    matrices = [START, MILD, MILD]
    others = [START, SLOW, SLOW]
    for matrix in matrices:
        first.step(matrix)
    assert worst(0.5, others, first.losses).max() > 1.16
    losses = []
    account = known_law(0.5)
    for matrix, slow in zip(matrices, others, strict=True):
        most = min(float(account.most([matrix], 1.0, 0.1)), float(second.most([slow], 1.0, 0.1)))
        losses.append(max(most, 0.0))
        account = after(account, (losses[-1], matrix, 1.0))
        second = after(second, (losses[-1], slow, 1.0))
    assert worst(0.5, matrices, losses).max() <= 1 + 1e-9
    assert worst(0.5, others, losses).max() <= 1 + 1e-9


def test_who_does_not_know_which_model_is_true_gains_the_spread_of_the_priors_at_most() -> None:
    """Posterior odds over all models, against the least and the largest prior odds."""
    promise, priors = 1.0, (0.2, 0.6)
    account = Account.interval(law=(odds(0.2), odds(0.6)))
    losses = [0.4, float(after(account, (0.4, START, promise)).most([E], promise, 0.0))]
    likelihoods = [math.exp(loss) for loss in losses]
    for weight in np.linspace(0, 1, 11):
        for tops in np.ndindex(2, 2):
            joint = np.zeros(2)
            for chance, belief in zip(priors, (weight, 1 - weight), strict=True):
                law = np.array([1 - chance, chance])
                seen = [np.where(np.arange(2) == top, like, 1.0) for top, like in
                        zip(tops, likelihoods, strict=True)]  # fmt: skip
                joint += belief * law * seen[0] * (E @ seen[1])
            final = math.log(joint[1] / joint[0])
            assert odds(0.2) - promise - 1e-9 <= final <= odds(0.6) + promise + 1e-9


def test_a_truth_that_switches_between_models_needs_merged_accounts() -> None:
    """Two models in turn: told little by the first, the second says more than it may."""
    quick, slow = [START, MILD @ MILD @ MILD], [START, SLOW]
    one = after(known_law(0.5), (0.7, quick[0], 1.0), (0.2, quick[1], 1.0))
    two = after(known_law(0.5), (0.7, slow[0], 1.0), (0.2, slow[1], 1.0))
    apart = min(float(one.most([SLOW], 1.0, 0.0)), float(two.most([MILD], 1.0, 0.0)))
    merged = one.merged(two)
    together = float(merged.most([SLOW], 1.0, 0.0))
    switched = [START, slow[1], SLOW]
    assert worst(0.5, switched, [0.7, 0.2, apart]).max() > 1.01
    assert worst(0.5, switched, [0.7, 0.2, max(together, 0.0)]).max() <= 1 + 1e-9


def test_a_model_that_is_added_is_run_over_the_record() -> None:
    """Begun at nothing it lets a step come to more than 1; run over the record it does not."""
    losses = [0.5, 0.4]
    fresh = Account.interval()
    run = after(known_law(0.5), (losses[0], START, 1.0), (losses[1], SLOW, 1.0))
    for account, fine in ((fresh, False), (run, True)):
        loss = max(float(account.most([SLOW], 1.0, 0.0)), 0.0)
        said = worst(0.5, [START, SLOW, SLOW], [*losses, loss])
        assert (said.max() <= 1 + 1e-9) == fine
    # where it is not, everything may be known: nothing is published at first
    assert float(fresh.disowned().most([SLOW], 1.0, 0.0)) < 0


# ---- records that are lost


def test_a_lost_stretch_is_not_replayed() -> None:
    """MATH 16: the service's own choice, replayed, gives .542 where .885 is true."""
    replay, truth, booked = (Run(known_law(0.5), 1.0, 0.7, 0.115) for _ in range(3))
    for number in range(3):
        matrix = START if number == 0 else MILD
        replay.step(matrix)
        truth.step(matrix, published=number != 1)  # no readings came at the second
        booked.account = booked.account.lost(0.7, [matrix], 1.0, 0.115)
    assert float(replay.account.known) == pytest.approx(0.5417, abs=1e-4)
    assert float(truth.account.known) == pytest.approx(0.885, abs=1e-9)
    assert booked.account.known >= truth.account.known
    assert booked.account.room <= truth.account.room * (1 + 1e-12)
    # then a promise of 0.5: 0.67 is true of its first step after the replay
    loss = float(replay.account.most([MILD], 0.5, 0.0))
    assert replay.account.admit(loss, [MILD], 0.5) is not None
    assert worst(0.5, [START, *[MILD] * 3], [*truth.losses, loss])[-1] > 0.65
    assert booked.account.admit(0.0, [MILD], 0.5) is None


def test_a_lost_block_leaves_no_more_than_the_service_left() -> None:
    """With the room of silence an old step of 1 comes to more."""
    before = after(known_law(0.5), (0.3, START, 1.0))
    truth = Run(before, 1.0, 0.8, 0.2)
    truth.step(SLOW)
    for room, fine in ((math.inf, False), (0.2, True)):
        account = before.lost(0.8, [SLOW], 1.0, room)
        loss = max(float(account.most([SLOW], 3.0, 0.0)), 0.0)  # another promise since
        said = worst(0.5, [START, SLOW, SLOW], [0.3, *truth.losses, loss])
        assert (said[:2].max() <= 1 + 1e-9) == fine


def test_a_lost_block_is_not_capped_below_what_was_known() -> None:
    """After a model was disowned, or where the promise has fallen."""
    account = known_law(0.5).disowned().lost(0.1, [SLOW], 1.0, 0.1)
    _, about = worst_by_blocks(EVERY_LAW, (-40.0, 40.0), [SLOW], [1], [0.0])
    assert float(account.known) == pytest.approx(max(about), rel=0.01)
    assert float(account.known) >= max(about)
    assert account.known > 1
    fallen = after(known_law(0.5), (1.0, START, 1.0)).lost(0.1, [SLOW], 0.2, 0.1)
    assert float(fallen.known) >= worst(0.5, [START, SLOW], [1.0, 0.0])[1] * (1 - 1e-9)


def test_noise_that_was_drawn_anew_is_not_capped_at_the_promise() -> None:
    """Who drew anew did not know of the first draw: 0.8 twice is 1.6, and not the promised 1."""
    capped = known_law(0.5).lost(1.6, [START], 1.0, 0.05)
    free = known_law(0.5).lost(1.6, [START], math.inf, 0.05)
    assert float(capped.known) == pytest.approx(1.0)
    assert float(free.known) == pytest.approx(1.6)
    for account, fine in ((capped, False), (free, True)):
        steps = 1
        while float(account.most([MILD], 1.0, 0.0)) < 0:
            account, steps = after(account, (0.0, MILD, math.inf)), steps + 1
        loss = float(replace(account, room=np.array(math.inf)).most([MILD], 1.0, 0.0))
        said = worst(0.5, [START, *[MILD] * steps], [1.6, *[0.0] * (steps - 1), loss])
        assert (said[-1] <= 1 + 1e-9) == fine


# ---- houses


def test_a_new_house_has_a_law_that_its_class_holds() -> None:
    """MATH 16: 1.093 for 1 where a house of another law joins a class at its first step."""
    laws = {"wrong": known_law(0.9), "right": Account.interval(law=(odds(0.5), odds(0.9)))}
    said = {}
    for name, account in laws.items():
        run = Run(account, 1.0, 0.3, 0.1)
        for number in range(12):
            run.step(START if number == 0 else E)
        matrices = [START, *[E] * 11]
        assert worst(0.9, matrices, run.losses).max() <= 1 + 1e-9
        said[name] = worst(0.5, matrices, run.losses).max()
    assert said["wrong"] == pytest.approx(1.0927, abs=1e-4)
    assert said["right"] <= 1 + 1e-9


def _two_zones() -> tuple[Run, Run]:
    here, there = Run(known_law(0.5), 1.0, 0.2, 0.2), Run(known_law(0.5), 1.0, 0.9, 0.05)
    for run in (here, there):
        for number in range(3):
            run.step(START if number == 0 else SLOW)
    return here, there


def test_a_house_that_moves_brings_its_account() -> None:
    """Counted at once under the account of its new class, it comes to 1.33."""
    here, there = _two_zones()
    assert there.account.known > here.account.known
    assert there.account.room < here.account.room
    merged = here.account.merged(there.account)
    for account, fine in ((here.account, False), (merged, True)):
        run = Run(account, 1.0, 0.9, 0.0)
        run.step(SLOW)
        said = worst(0.5, [START, *[SLOW] * 3], [*there.losses, *run.losses])
        assert (said.max() <= 1 + 1e-9) == fine


def test_a_house_that_moves_waits_until_its_class_holds_for_it() -> None:
    """With the public stand-in until b, room and law are within those of the class."""
    here, there = _two_zones()
    home, away = there.account, 0
    while not (home.known <= here.account.known and home.room >= here.account.room):
        here.step(SLOW)
        home, away = after(home, (0.0, SLOW, 1.0)), away + 1
        assert away < 100
    losses = [*there.losses, *[0.0] * away]
    for _ in range(3):
        here.step(SLOW)
        losses.append(here.losses[-1])
    assert away > 0
    assert worst(0.5, [START, *[SLOW] * (len(losses) - 1)], losses).max() <= 1 + 1e-9


def test_a_house_that_moves_inside_a_block_has_it_cut_there() -> None:
    """Booked to the block's end, as forgotten there, a step comes to 1.16."""
    before = after(known_law(0.5), (0.6, START, 1.0))
    to_its_end = before.admit(0.2, [SLOW] * 6, 1.0)
    cut = before.admit(0.2, [SLOW], 1.0)
    assert to_its_end is not None
    assert cut is not None
    for account, fine in ((to_its_end, False), (cut, True)):
        loss = max(float(account.most([SLOW], 1.0, 0.0)), 0.0)
        said = worst(0.5, [START, SLOW, SLOW], [0.6, 0.2, loss])
        assert (said.max() <= 1 + 1e-9) == fine


@pytest.mark.parametrize("figure", ["known", "room", "law"])
def test_merged_classes_take_the_worse_of_each_figure(figure: str) -> None:
    """The largest b, the least room and the hull of the laws: any of them from one class fails."""
    promise = 1.0 if figure == "room" else 5.0  # about the first step
    first = after(known_law(0.02), (0.8 if figure == "law" else 0.1, START, promise))
    second = after(known_law(0.6), (0.8, START, promise))
    merged = first.merged(second)
    parts = {
        "known": {"known": first.known},
        "room": {"room": first.room, "known": first.known},
        "law": {"low": first.low, "high": first.high},
    }[figure]
    for account, fine in ((replace(merged, **parts), False), (merged, True)):
        loss = max(float(account.most([E], 1.0, 0.0)), 0.0)
        said = worst(0.6, [START, E], [0.8, loss])[0 if figure == "room" else 1]
        assert (said <= 1 + 1e-9) == fine


# ---- windows


def spent(blocks: Sequence[tuple[int, int, float]], steps: int) -> float:
    """The most that any window of so many steps loses."""
    last = max(end for _, end, _ in blocks)
    return max(
        sum(loss for first, end, loss in blocks if end >= opens and first < opens + steps)
        for opens in range(-steps, last + 1)
    )


def test_a_house_between_two_zones_has_a_list_of_its_own() -> None:
    """MATH 17: windows of two steps, two zones in turn: 2 epsilon."""
    zones = [Account.window(2, 1.0), Account.window(2, 1.0)]
    house: WindowAccount = Account.window(2, 1.0)
    wrong, right = list[tuple[int, int, float]](), list[tuple[int, int, float]]()
    for t in range(10):
        for number, zone in enumerate(zones):  # each publishes every other step
            if t % 2 == number:
                admitted = zone.admit(1.0, t, t)
                assert admitted is not None
                zones[number] = admitted
        wrong.append((t, t, 1.0))  # wherever a price comes from readings the house is there
        counted = house.admit(1.0, t, t)
        if counted is not None:
            house = counted
            right.append((t, t, 1.0))
    assert spent(wrong, 2) == 2.0
    assert spent(right, 2) == 1.0
    assert len(right) == 5


def test_the_list_is_asked_at_every_block() -> None:
    """MATH 17: W = 8, an old list of .9, blocks of .1: 1.3 where the first alone is asked."""
    house = Account.window(8, 1.0).admit(0.9, 0, 0)
    assert house is not None
    wrong, right = [(0, 0, 0.9)], [(0, 0, 0.9)]
    for k in range(6):
        first, last = 1 + 2 * k, 2 + 2 * k
        if k == 0:
            assert house.admit(0.1, first, last) is not None
        wrong.append((first, last, 0.1))
        counted = house.admit(0.1, first, last)
        if counted is not None:
            house = counted
            right.append((first, last, 0.1))
    assert spent(wrong, 8) == pytest.approx(1.3)
    assert spent(right, 8) == pytest.approx(1.0)


def test_a_house_that_changes_its_class_has_a_list_of_its_own() -> None:
    """MATH 17: .3 .3 .2 .2 and .2 .2 .3 .3 keep 1; between them 1.2."""
    classes = [(0.3, 0.3, 0.2, 0.2), (0.2, 0.2, 0.3, 0.3)]
    for losses in classes:
        assert spent([(t, t, losses[t % 4]) for t in range(16)], 4) == pytest.approx(1.0)
    wrong = [(t, t, classes[t >= 2][t]) for t in range(4)]
    house, right = Account.window(4, 1.0), list[tuple[int, int, float]]()
    for block in wrong:
        counted = house.admit(block[2], *block[:2])
        if counted is not None:
            house = counted
            right.append(block)
    assert spent(wrong, 4) == pytest.approx(1.2)
    assert spent(right, 4) <= 1.0


def test_a_promise_of_windows_is_not_dropped_at_a_change() -> None:
    """From (8, 1) to (1, 1.6): dropped, a window of the old promise loses 12.2."""
    old = Account.window(8, 1.0).admit(1.0, 0, 0)
    assert old is not None
    for account, loses in (
        (Account.window(1, 1.6, since=1), 12.2),
        (old.under(1, 1.6, since=1), 1.0),
    ):
        blocks = [(0, 0, 1.0)]
        for t in range(1, 12):
            most = account.most(t)
            admitted = account.admit(most, t, t)
            assert admitted is not None
            account = admitted
            blocks.append((t, t, most))
        # windows of the old promise: those that hold the step published under it
        assert sum(loss for first, _, loss in blocks if first < 8) == pytest.approx(loses)


def test_from_interval_to_window_the_old_account_goes_on() -> None:
    """No promise about new steps, but the old ones: forgotten, an old step comes to 1.47."""
    old = after(known_law(0.5), (0.9, START, 1.0))
    most = float(old.most([MILD], math.inf, 0.0))
    said = {}
    for name, loss in (("forgotten", 1.0), ("goes on", min(1.0, most))):
        said[name] = worst(0.5, [START, MILD], [0.9, loss])[0]
    assert said["forgotten"] > 1.4
    assert said["goes on"] == pytest.approx(1.0, abs=1e-9)
    silent = old
    for _ in range(20):
        silent = after(silent, (0.0, MILD, math.inf))
    assert silent.room == math.inf
