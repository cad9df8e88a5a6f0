"""Windows go on over the border of epochs: any w consecutive steps lose at most epsilon."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid import Policy, SimulatedNoise, Window, init, step
from hushgrid.audit import Evidence
from hushgrid.audit.ledger import budget, recompute
from hushgrid.live.audit import load_ledger, terms_of
from hushgrid.live.curator import Curator
from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger import bodies
from hushgrid.live.ledger.standing import Published
from tests.live.setups import BEGINS, service
from tests.live.test_curator import Shown, curator
from tests.services import in_memory
from tests.test_window import METHODS, zone

W = 8


def windowed(epsilon: float, steps: int = W, by: Any = "distribution") -> Policy:
    return Policy(epsilon, horizon=10**6, window=Window(steps, by))


def following(policy: Policy, seconds: int, begins: int, **more: Any) -> ZoneService:
    return service(2, policy=policy, begins=begins, seconds=seconds, **more)


def run(it: Curator, steps: int, rng: np.random.Generator) -> list[Published]:
    """Steps with a load that jumps, so that the window's policy publishes anew."""
    made = []
    for _ in range(steps):
        wh = (1000 * rng.integers(0, 2, 2)).tolist()
        it._meters.put(it.service.id, [0, 1], [it.start_of(it.t)] * 2, [it.service.seconds] * 2, wh)
        made += it.run(it.next_due())
    return made


def carried(it: Curator) -> tuple[tuple[float, ...], ...]:
    return it._state.spent, it._state.lost, it._state.carried


def worst(published: list[tuple[Published, int]], policy: Policy, begins: int) -> float:
    """The most that w consecutive steps lost which end with one that lost something itself.

    In time or by steps, whichever reaches back further over the border.
    """
    w, most = policy.window.steps if policy.window else 0, 0.0
    for last, length in published:
        if last.start < begins or last.source != "readings":
            continue
        own, lost = (last.start - begins) // length, []
        for one, seconds in published:
            end = one.start + seconds
            if one.start >= begins:
                within = 0 <= last.start - one.start < w * length
                lost.append(one.epsilon if within else 0.0)
            elif end > last.start + length - w * length or (begins - end) // seconds + own < w - 1:
                lost.append(one.epsilon_any)
        most = max(most, math.fsum(lost))
    return most


def test_the_window_does_not_restart_with_an_epoch(tmp_path: Path) -> None:
    """Two epochs of the same promise: w steps over the border, and their sum in the ledger."""
    policy, rng = windowed(600.0), np.random.default_rng(1)
    before, after = (following(policy, 900, BEGINS + 900 * t) for t in (0, 12))
    shown = Shown()
    with curator(tmp_path, before, shown) as it:
        run(it, 12, rng)
    with curator(tmp_path, after, shown, now=after.begins, new_epoch=True) as it:
        run(it, 12, rng)
        every = it.releases
    assert [one.t for one in every] == list(range(every[0].t, every[0].t + 24)), "no step left out"
    lost = [one.epsilon for one in every]
    sums = [math.fsum(lost[i : i + W]) for i in range(len(lost))]
    assert max(sums) <= 600.0 * (1 + 1e-12)
    assert max(sums) > 400.0, "and much of it is used"
    assert sum(one.source == "readings" for one in every) > 20


EPSILONS = st.sampled_from([0.3, 1.0, 600.0])
BEFORE = st.one_of(
    st.builds(windowed, EPSILONS, st.integers(1, 6), st.sampled_from(METHODS)),
    st.builds(lambda e: Policy(e, horizon=500), EPSILONS),
    st.builds(
        lambda e, eta: Policy(e, horizon=500, eta=eta), EPSILONS, st.sampled_from([0.0, 0.2])
    ),
    st.just(Policy(1.0, horizon=20, gaussian=24.0, delta=1e-6)),
)


@settings(max_examples=12)
@given(
    BEFORE,
    st.builds(windowed, EPSILONS, st.integers(2, 6), st.sampled_from(METHODS)),
    st.integers(0, 6),
    st.sampled_from([900, 1800]),
    st.integers(0, 2),
    st.integers(0, 4),
    st.integers(0, 99),
)
def test_any_window_over_any_border(
    earlier: Policy, policy: Policy, steps: int, seconds: int, gap: int, stop: int, seed: int
) -> None:
    """Whatever came before: other windows, epsilons, noise, steps of another length, gaps."""
    assert policy.window is not None
    begins = BEGINS + seconds * (steps + gap)
    rng, shown = np.random.default_rng(seed), Shown()
    before = following(earlier, seconds, BEGINS)
    after = following(policy, 900, begins)
    published: list[tuple[Published, int]] = []
    with tempfile.TemporaryDirectory(dir=in_memory()) as name:
        with curator(Path(name), before, shown) as it:
            published += [(one, seconds) for one in run(it, steps, rng)]
        states: list[object] = []
        for first, some in ((True, stop), (False, 2 * policy.window.steps)):  # opened again
            now = begins if first else begins + 900 * stop
            with curator(Path(name), after, shown, now=now, new_epoch=first) as it:
                if states:
                    assert carried(it) == states[-1], "a curator that starts again goes on the same"
                published += [(one, 900) for one in run(it, some, rng)]
                states.append(carried(it))
        ((found,), _) = load_ledger(f"{name}/ledger.db", zone=None, key=None, heads=())
    assert worst(published, policy, begins) <= policy.epsilon * (1 + 1e-12)
    new = [one for one, _ in published if one.start >= begins]
    assert new[-1].source == "readings", "once the window has passed the border it publishes again"
    faults = judged(found, after)
    assert faults == []


def judged(found: Evidence, zone: ZoneService) -> list[str]:
    """What an audit under the terms of the last epoch finds wrong."""
    from hushgrid.audit.ledger import lost_before, windows

    terms, epoch = terms_of(zone), found.epochs[-1]
    assert terms.policy.window is not None
    before = lost_before(found, epoch, terms.policy.window.steps)
    _, checks = recompute(epoch, terms, before)
    checks += [*windows(found, {epoch.digest: terms}), budget(found, terms, {epoch.digest: terms})]
    return [f"{one.id}: {one.text}" for one in checks if one.status == "failed"]


def test_the_audit_adds_up_windows_over_the_border(tmp_path: Path) -> None:
    """A publisher that begins its window anew loses more than it promises."""
    policy, rng = windowed(600.0), np.random.default_rng(1)
    before, after = (following(policy, 900, BEGINS + 900 * t) for t in (0, 12))
    shown = Shown()
    with curator(tmp_path, before, shown) as it:
        run(it, 12, rng)
    with curator(tmp_path, after, shown, now=after.begins, new_epoch=True) as it:
        forgets = replace(it._state, spent=(), carried=(), lost=())
        for t in range(8):
            start = after.begins + 900 * t
            made, forgets = step(forgets, 2000 * (t % 2), SimulatedNoise(t))
            body = bodies.release(
                made,
                mode="simulation",
                start=start,
                applies_start=start + 1800,
                published_at=start + 900,
                first=after.begins // 900,
            )
            it._ledger.append("release", dict(body))
    ((found,), chain) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert chain.status == "passed"
    assert any("any 8 consecutive steps" in said for said in judged(found, after))


@pytest.mark.parametrize("by", METHODS)
def test_a_house_that_moved_in_counts_in_windows(tmp_path: Path, by: Any) -> None:
    """All that it brought along may have been lost at the last step before the epoch."""
    made = following(windowed(1.0, 4, by), 900, BEGINS)
    shown, rng = Shown(), np.random.default_rng(0)
    came = bodies.transfer("house-1", "in", other="oak", epsilon=0.9, out="ab" * 32)
    with curator(tmp_path, made, shown) as it:
        it._ledger.append("transfer", came)
    with curator(tmp_path, made, shown) as it:
        published = run(it, 8, rng)
    sums = [math.fsum(one.epsilon for one in published[: i + 1]) for i in range(3)]
    assert max(sums) <= 0.1
    assert {one.source for one in published[3:]} == {"readings"}


@pytest.mark.parametrize("by", METHODS)
def test_without_anything_before_nothing_changes(by: Any) -> None:
    """Figures of a stream that begins are those of a stream that carries nothing."""
    from hushgrid.mechanism import carry

    policy = windowed(2.0, 10, by)
    one = init(*zone(), policy)
    other = carry(one, [0.0] * 30)
    noise, again = SimulatedNoise(3), SimulatedNoise(3)
    for load in (5000, 400_000, 20_000, 20_000, 300_000) * 5:
        first, one = step(one, load, noise)
        second, other = step(other, load, again)
        assert first == second
