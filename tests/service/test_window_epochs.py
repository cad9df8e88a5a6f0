"""Windows go on over the border of epochs: any w consecutive steps lose at most epsilon."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid import HorizonError, OccupancyModel, Policy, SimulatedNoise, Window, init, step
from hushgrid.audit.accounts import budget
from hushgrid.audit.evidence import Evidence
from hushgrid.audit.recompute import recompute
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.policy import Gaussian, PerStep
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.curator import Curator
from hushgrid.service.ledger.records import ReleaseRecord
from tests import bodies
from tests.examples import examples
from tests.mechanism.test_window import METHODS, zone
from tests.service.setups import BEGINS, service
from tests.service.test_curator import Shown, curator
from tests.services import in_memory

W = 8


def windowed(epsilon: float, steps: int = W, by: Any = "distribution") -> Policy:
    return Policy(epsilon, horizon=10**6, schedule=Window(steps, by))


@pytest.fixture(scope="module", autouse=True)
def of_earlier_versions() -> Iterator[None]:
    """Their ledgers have windows right after other interval lengths and moves; they count."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hushgrid.service.border._check_kept_apart", lambda *_: None)
        patched.setattr("hushgrid.service.border._check_windows", lambda *_: None)
        yield


def following(policy: Policy, seconds: int, begins: int, **more: Any) -> ZoneService:
    return service(2, policy=policy, begins=begins, seconds=seconds, **more)


def run(it: Curator, steps: int, rng: np.random.Generator) -> list[ReleaseRecord]:
    """Steps with a load that jumps, so that the window's policy publishes anew."""
    made = []
    for _ in range(steps):
        wh = (1000 * rng.integers(0, 2, 2)).tolist()
        it._meters.put(it.service.id, [0, 1], [it.start_of(it.t)] * 2, [it.service.seconds] * 2, wh)
        made += it.run(it.next_due())
    return made


def carried(it: Curator) -> tuple[tuple[float, ...], ...]:
    return it._replay.state.spent, it._replay.state.lost, it._replay.state.carried


def worst(published: list[tuple[ReleaseRecord, int]], policy: Policy, begins: int) -> float:
    """The most that w consecutive steps lost which end with one that lost something itself.

    In time or by steps, whichever reaches back further over the border.
    """
    w, most = policy.schedule.shared_by if policy.schedule.adaptive else 0, 0.0
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
    st.just(Policy(1.0, horizon=20, schedule=Gaussian(24.0, 1e-6))),
)


@settings(max_examples=examples(12))
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
    assert policy.schedule.adaptive
    begins = BEGINS + seconds * (steps + gap)
    rng, shown = np.random.default_rng(seed), Shown()
    before = following(earlier, seconds, BEGINS)
    after = following(policy, 900, begins)
    published: list[tuple[ReleaseRecord, int]] = []
    with tempfile.TemporaryDirectory(dir=in_memory()) as name:
        with curator(Path(name), before, shown) as it:
            published += [(one, seconds) for one in run(it, steps, rng)]
        states: list[object] = []
        for first, some in ((True, stop), (False, 2 * policy.schedule.shared_by)):  # opened again
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
    from hushgrid.audit.accounts import losses_before, windows

    terms, epoch = terms_of(zone), found.epochs[-1]
    assert terms.policy.schedule.adaptive
    before = losses_before(found, epoch, terms.policy.schedule.shared_by)
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
        forgets = replace(it._replay.state, spent=(), carried=(), lost=())
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
    from hushgrid.mechanism.release import with_earlier_losses

    policy = windowed(2.0, 10, by)
    one = init(*zone(), policy)
    other = with_earlier_losses(one, [0.0] * 30)
    noise, again = SimulatedNoise(3), SimulatedNoise(3)
    for load in (5000, 400_000, 20_000, 20_000, 300_000) * 5:
        first, one = step(one, load, noise)
        second, other = step(other, load, again)
        assert first == second


def restless(it: Curator, steps: int) -> list[ReleaseRecord]:
    """Steps with a load that moves every time."""
    made = []
    for k in range(steps):
        at, seconds = it.start_of(it.t), it.service.seconds
        it._meters.put(it.service.id, [0, 1], [at] * 2, [seconds] * 2, [1000 * (k % 2)] * 2)
        made += it.run(it.next_due())
    return made


def most_in(lost: list[float], w: int) -> Fraction:
    return max(sum(map(Fraction, lost[i : i + w]), Fraction()) for i in range(len(lost)))


def test_a_fraction_of_shares_at_the_border_is_given_up_as_a_whole_share(tmp_path: Path) -> None:
    """3.3 and 1.3 shares before the border leave 2.4 there; the steps after it give up two."""
    w, epsilon = 4, 600.0
    lost = [3.3 * epsilon / (2 * w), 1.3 * epsilon / (2 * w)]
    before = following(Policy(lost[0], horizon=2, schedule=PerStep(tuple(lost))), 900, BEGINS)
    after = following(windowed(epsilon, w, "absorption"), 900, BEGINS + 1800)
    shown = Shown()
    with curator(tmp_path, before, shown) as it:
        restless(it, 2)
    with curator(tmp_path, after, shown, now=after.begins, new_epoch=True) as it:
        for load in (0, 1000, 1000, 1000, 1000, 0, 0, 0):
            it._meters.put("elm", [0, 1], [it.start_of(it.t)] * 2, [900] * 2, [load] * 2)
            it.run(it.next_due())
        every = [one.epsilon for one in it.releases]
    assert most_in(every[2:], w) <= epsilon
    assert any(200 < one < 300 for one in every[2:]), "a publication took part of the shares"
    ((found,), _) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert judged(found, after) == []


@settings(max_examples=examples(60))
@given(
    st.integers(2, 7),
    st.sampled_from(METHODS),
    st.lists(st.floats(0, 1.2), max_size=6),
    st.lists(st.booleans(), min_size=1, max_size=21),
    st.sampled_from([0.1, 0.3, 1.0, 600.0]),
)
def test_no_window_books_more_by_the_exact_sum(
    w: int, by: Any, before: list[float], publish: list[bool], epsilon: float
) -> None:
    """Whatever was lost before, in fractions of epsilon, and whatever is published since."""
    from hushgrid.mechanism.release import shares, spend, with_earlier_losses

    made = following(windowed(epsilon, w, by), 900, BEGINS).scenario
    first = init(made.zone, made.tariff, made.models, made.consumption, windowed(epsilon, w, by))
    lost = [each * epsilon for each in before]
    state = with_earlier_losses(first, lost)
    for wanted in publish:
        booked = 0.0
        try:
            look, anew = shares(state)
        except HorizonError:
            anew = None
        else:
            booked = look.epsilon + (anew.epsilon if wanted and anew else 0.0)
        state = spend(state, booked, published=wanted and anew is not None)
        state = replace(state, rates=(*state.rates, 2.0))
        lost.append(booked)
        if booked:
            assert most_in(lost[-w:], w) <= Fraction(epsilon)


@pytest.mark.parametrize("steps", [1, 3, W])
def test_a_moved_house_counts_in_windows_over_short_epochs(tmp_path: Path, steps: int) -> None:
    """All it lost elsewhere was lost before the first release after it came: w - 1 steps to go."""
    policy, shown = windowed(600.0), Shown()
    came = bodies.transfer("house-1", "in", other="oak", epsilon=600.0, out="ab" * 32)
    begins = [BEGINS, BEGINS + 900 * steps]
    zones = [following(policy, 900, begin) for begin in begins]
    with curator(tmp_path, zones[0], shown) as it:
        it._ledger.append("transfer", came)
    with curator(tmp_path, zones[0], shown) as it:
        restless(it, steps)
    with curator(tmp_path, zones[1], shown, now=begins[1], new_epoch=True) as it:
        restless(it, W)
        sources = [one.source for one in it.releases]
    assert sources[: W - 1] == ["forecast"] * (W - 1)
    assert set(sources[W - 1 :]) == {"readings"}
    ((found,), _) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert judged(found, zones[1]) == []


def test_a_house_that_came_long_after_the_epoch_began_counts(tmp_path: Path) -> None:
    """Before the first release the record may be as late as that release."""
    made, shown = following(windowed(600.0), 900, BEGINS), Shown()
    came = bodies.transfer("house-1", "in", other="oak", epsilon=600.0, out="ab" * 32)
    late = BEGINS + 900 * 3 * W
    with curator(tmp_path, made, shown) as it:
        it._ledger.append("transfer", came)
    states: list[object] = []
    for steps in (2, W):
        with curator(tmp_path, made, shown, now=late) as it:
            assert not states or carried(it) == states[-1]
            restless(it, steps)
            states.append(carried(it))
            sources = [one.source for one in it.releases]
        late += 900 * steps
    assert sources == ["forecast"] * (W - 1) + ["readings"] * 3


def test_the_audit_counts_a_moved_house_over_short_epochs(tmp_path: Path) -> None:
    """A publisher that forgets it once an epoch of a single step has published."""
    policy, shown = windowed(600.0), Shown()
    came = bodies.transfer("house-1", "in", other="oak", epsilon=600.0, out="ab" * 32)
    before, after = (following(policy, 900, BEGINS + 900 * t) for t in (0, 1))
    with curator(tmp_path, before, shown) as it:
        it._ledger.append("transfer", came)
    with curator(tmp_path, before, shown) as it:
        restless(it, 1)
    with curator(tmp_path, after, shown, now=after.begins, new_epoch=True) as it:
        it._replay._state = replace(it._replay.state, spent=(), carried=(), lost=())
        it._draws = it._drawn()
        restless(it, 1)
        it._replay._state = replace(it._replay.state, spent=(), carried=(), lost=())
        it._draws = it._drawn()
        made = restless(it, 3)
    assert {one.source for one in made} == {"readings"}
    ((found,), _) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert any("any 8 consecutive steps" in said for said in judged(found, after))


LOCK = [[[0.9, 0.05, 0, 0.05], [0.3, 0.4, 0, 0.3], [0.25] * 4, [0.1, 0.1, 0, 0.8]]]


@pytest.mark.parametrize("rules", [{"blocks": "minimal"}, {"blocks": "paper"}, {}])
@pytest.mark.parametrize("by", METHODS)
def test_rules_that_book_more_than_their_shares(
    tmp_path: Path, rules: dict[str, Any], by: Any
) -> None:
    """Two houses that move together: a weak rule's noise tells twice its share about the pair."""
    policy = Policy(600.0, horizon=500, schedule=Window(4, by), **rules)
    theta = OccupancyModel.blocked([[0, 1]], [[0.4, 0.2, 0.0, 0.4]], [LOCK])
    made = following(policy, 900, BEGINS)
    made = replace(made, scenario=replace(made.scenario, models=(theta,)))
    shown = Shown()
    with curator(tmp_path, made, shown) as it:
        restless(it, 6)
    with curator(tmp_path, made, shown, now=BEGINS + 900 * 6) as it:
        restless(it, 6)
        every = it.releases
    assert most_in([one.epsilon for one in every], 4) <= 600
    assert sum(one.source == "readings" for one in every) >= 3
    assert sum(one.look > 0 for one in every) >= 2, "and some publish anew"
    ((found,), _) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert judged(found, made) == []


def test_an_epoch_of_longer_steps_in_between_hides_nothing(tmp_path: Path) -> None:
    """Six steps in a row of three lengths: those before the middle epoch counted no more."""
    shown, hour = Shown(), 3600
    begins = [BEGINS, BEGINS + 8 * hour, BEGINS + 16 * hour]
    first = following(Policy(0.4, horizon=8), hour, begins[0])
    middle = following(windowed(1.0, 6), 4 * hour, begins[1])
    last = following(windowed(1.0, 6), hour, begins[2])
    with curator(tmp_path, first, shown) as it:
        restless(it, 8)
    with curator(tmp_path, middle, shown, now=begins[1], new_epoch=True) as it:
        for _ in range(2):
            it.run(it.next_due())  # without readings
    with curator(tmp_path, last, shown, now=begins[2], new_epoch=True) as it:
        restless(it, 8)
        every = it.releases
    lost = [max(one.epsilon, one.epsilon_any) * (one.source == "readings") for one in every]
    ends = [i + 6 for i in range(len(every) - 5) if every[i + 5].start >= begins[2]]
    own = [sum(lost[end - 6 : end]) for end in ends if lost[end - 1]]
    assert own
    assert max(own) <= 1 + 1e-9
    ((found,), _) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert judged(found, last) == []
