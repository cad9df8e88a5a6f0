"""w-event: no window of w steps spends more than epsilon, whatever is published."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.lab import paper
from hushgrid.lab.baselines import WEVENT, Distribution
from hushgrid.lab.methods import MethodPromise, MethodSetting, Ready


@given(st.integers(1, 9), st.lists(st.booleans(), min_size=1, max_size=60), st.floats(0.01, 5))
def test_no_window_spends_more(w: int, publish: list[bool], epsilon: float) -> None:
    shares, spent = Distribution(epsilon, w), list[float]()
    for wanted in publish:
        offer = shares.offer(spent[-(w - 1) :] if w > 1 else ())
        assert offer >= 0
        spent.append(offer if wanted else 0.0)
    total = [shares.probe + e for e in spent]
    worst = max(sum(total[i : i + w]) for i in range(len(total)))
    assert worst <= epsilon * (1 + 1e-12)


def test_what_rounding_leaves_is_no_offer() -> None:
    shares = Distribution(0.1, 2)
    assert shares.offer([0.04]) > 0
    assert shares.offer([0.05 - 5e-14]) == 0


def test_jumps_are_published_within_epsilon() -> None:
    """A load that jumps now and then, from the scales that an observer sees."""
    n, horizon, epsilon = 500, 48, 40.0
    scenario = paper.scenario(0.0, 1, n=n)
    ready = WEVENT.prepare(MethodSetting.of(scenario, MethodPromise("interval", epsilon), horizon))
    assert isinstance(ready, Ready)
    load = np.repeat([100_000, 400_000, 150_000, 350_000], horizon // 4)
    made = ready.publish(load, np.random.SeedSequence([3]))
    bound = int(scenario.zone.bound.max())
    probe = epsilon / (2 * horizon)
    spent = np.where(np.isclose(bound / made.scale, probe), 0.0, bound / made.scale)
    assert set(np.flatnonzero(spent)) >= {0, 12, 24, 36}
    assert spent.sum() + horizon * probe <= epsilon * (1 + 1e-9)
    anew = np.flatnonzero(spent)
    assert made.observations is not None
    assert (
        made.raw == made.observations[anew[np.searchsorted(anew, range(horizon), "right") - 1]]
    ).all()
