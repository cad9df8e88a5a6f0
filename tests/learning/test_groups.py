"""Slot groups of laws: chosen by held-out likelihood, and a forecast that follows the day."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.errors import ModelError
from hushgrid.learning.em import expected, fit, select_homes
from hushgrid.learning.evaluation import forecast_errors, published_groups
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.learner import GROUPS, STARTS, LearningTerms, design_for, learn, starts_of
from hushgrid.learning.pools import prototypes, split_laws
from tests.learning.homes import SHOWN, histories, lived_in

HABITS = assumed_habits(1800)
FEW = LearningTerms(law="lognormal", prototypes=2, iterations=8)


def cooking(homes: int = 6, seed: int = 4) -> np.ndarray:
    """Homes that use four times as much from 18 to 20 h as their habits say."""
    wh, _ = lived_in(homes, seed)
    hour = SHOWN % 86_400 // 3600
    return np.rint(wh * np.where((hour >= 18) & (hour < 20), 4.0, 1.0))


def test_four_groups_are_the_fit_of_before() -> None:
    """To the bit: the homes' own fits and the prototypes they share, and nothing after them."""
    found = histories(lived_in(6)[0])
    result = learn(found, HABITS, replace(FEW, groups=(4,)))
    design = design_for(found, HABITS, FEW, "lognormal")
    own = fit(found.wh, design)
    shared = prototypes(found.wh, own, 2)
    assert result.starts == STARTS == starts_of(4)
    assert result.shared is not None
    for name in ("natural", "transition", "sums", "counts"):
        assert (getattr(result.fits, name) == getattr(own, name)).all()
        assert (getattr(result.shared.models, name) == getattr(shared.models, name)).all()
    for a, b in zip(
        result.public, published_groups(shared.models, STARTS, shared.group_of), strict=True
    ):
        assert (a.absent, a.present, a.homes) == (b.absent, b.present, b.homes)


def test_the_number_of_groups_has_the_largest_held_out_likelihood() -> None:
    result = learn(histories(cooking()), HABITS, FEW)
    assert tuple(result.groups_tried) == GROUPS
    best = max(result.groups_tried, key=lambda n: result.groups_tried[n])
    assert best in (12, 24)
    assert result.starts == starts_of(best)
    assert all(one.starts == result.starts for one in result.public)
    assert result.held_out is not None
    assert result.held_out.log_likelihood == result.groups_tried[best]
    before = learn(histories(cooking()), HABITS, replace(FEW, groups=(4,)))
    assert before.groups_tried == {}
    assert before.held_out is not None
    assert before.held_out.log_likelihood == result.groups_tried[4]
    assert result.held_out.forecast < 0.7 * before.held_out.forecast
    assert result.held_out.slot_mean == before.held_out.slot_mean


def test_laws_split_by_hours_are_the_same_laws() -> None:
    """A law of six hours and six equal laws of an hour give readings the same likelihood."""
    found = histories(lived_in(4)[0])
    own = fit(found.wh, design_for(found, HABITS, FEW, "lognormal"))
    to = starts_of(24)
    fine = design_for(found, HABITS, replace(FEW, starts=to), "lognormal")
    one = expected(found.wh, own)
    two = expected(found.wh, split_laws(own, STARTS, fine, to))
    assert (one.log_likelihood == two.log_likelihood).all()
    assert two.sums.shape[1] == 24
    together = two.sums.reshape(4, 4, 6, *two.sums.shape[2:]).sum(axis=2)
    assert together == pytest.approx(one.sums, rel=1e-9)


def test_steps_longer_than_a_group_and_few_days_try_less() -> None:
    wh = lived_in(3)[0]
    long = histories(wh.reshape(3, -1, 6).sum(axis=2))  # three hours
    long = replace(long, seconds=10_800, local_time=SHOWN[::6])
    result = learn(long, assumed_habits(10_800), replace(FEW, prototypes=1))
    assert tuple(result.groups_tried) == (4, 8)
    short = replace(histories(wh[:, : 5 * 48]), local_time=SHOWN[: 5 * 48])
    result = learn(short, HABITS, replace(FEW, prototypes=1))
    assert (result.starts, result.groups_tried, result.held_out) == (STARTS, {}, None)
    with pytest.raises(ModelError, match=r"groups are \(5,\)"):
        LearningTerms(groups=(5,))


def test_forecast_errors_by_hand() -> None:
    """Two homes, a missing reading, one slot that early days lack: sums over what is known."""
    found = histories(lived_in(2)[0])
    result = learn(found, HABITS, replace(FEW, groups=(24,), prototypes=1))
    early, late = found.steps(slice(0, 21 * 48)), found.steps(slice(21 * 48, 22 * 48))
    early.wh[1, :] = np.where(early.slot == 7, np.nan, early.wh[1])
    late.wh[0, 3] = np.nan
    (group,) = result.public
    (absent, *_), present = group.laws(5000)
    loads, means, slots = [], [], []
    for t, slot in enumerate(late.slot):
        who = [h for h in range(2) if np.isfinite(late.wh[h, t]) and not (h == 1 and slot == 7)]
        home = group.chain.home[slot]
        hour = slot % 48 // 2
        loads.append(sum(late.wh[h, t] for h in who))
        means.append(len(who) * ((1 - home) * absent.mean + home * present[hour].mean))
        slots.append(sum(np.nanmean(early.wh[h, early.slot == slot]) for h in who))
    wanted = [
        np.sqrt(np.mean((np.array(one) - loads) ** 2)) / np.mean(loads) for one in (means, slots)
    ]
    got = forecast_errors(early, late, result.public, np.zeros(2, np.intp), 5000)
    assert got == pytest.approx(wanted, rel=1e-9)


def test_homes_of_one_prototype_keep_it() -> None:
    found = histories(lived_in(6)[0])
    four, fine = (learn(found, HABITS, replace(FEW, groups=(n,))).shared for n in (4, 24))
    assert four is not None
    assert fine is not None
    assert (four.group_of == fine.group_of).all()
    assert select_homes(fine.models, slice(0, 1)).natural.shape[1] == 24
