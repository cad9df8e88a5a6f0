"""A promise about windows holds over the border to later terms."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import OccupancyModel, Policy
from hushgrid.audit.accounts import windows
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.policy import Blocks
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.border import opening
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import fold
from hushgrid.service.ledger.records import ResumeRecord
from hushgrid.service.ledger.writer import verify_signature
from tests.service.setups import BEGINS, service
from tests.service.test_curator import Shown, curator
from tests.service.test_window_epochs import run, windowed

W, EPSILON, STEPS = 8, 0.5, 12
FIRST = service(2, policy=windowed(EPSILON), begins=BEGINS, seconds=900)
BLOCKS = Policy(0.25, horizon=12, schedule=Blocks((4,) * 3, (0.25,) * 3))
LATER = {
    "step": Policy(1.0, horizon=16),
    "larger": windowed(4.0),
    "shorter": windowed(EPSILON, 4),
    "blocks": BLOCKS,
}


def later(policy: Policy, silent: int) -> ZoneService:
    return service(2, policy=policy, begins=BEGINS + 900 * (STEPS + silent), seconds=900)


def publish(folder: Path, zones: tuple[ZoneService, ...]) -> list[tuple[int, float]]:
    """Start and loss of each release: 12 of the first epoch, then 6 of each other."""
    rng, shown = np.random.default_rng(1), Shown()
    for i, zone in enumerate(zones):
        with curator(folder, zone, shown, now=zone.begins, new_epoch=i > 0) as it:
            run(it, 6 if i else STEPS, rng)
            every = it.releases
    return [(one.start, one.epsilon_any) for one in every if one.source == "readings"]


def most(lost: list[tuple[int, float]]) -> float:
    """What 8 consecutive steps lost that begin in the first epoch."""
    own = BEGINS + 900 * STEPS
    firsts = [BEGINS + 900 * t for t in range(STEPS)]
    assert all(start >= own or start in firsts for start, _ in lost)
    return max(
        math.fsum(epsilon for start, epsilon in lost if first <= start < first + 900 * W)
        for first in firsts
    )


@pytest.mark.parametrize("kind", list(LATER))
def test_other_terms_wait_until_no_window_reaches_back(tmp_path: Path, kind: str) -> None:
    begins = BEGINS + 900 * (STEPS + W - 1)
    for folder in ("at once", "soon", "then"):
        (tmp_path / folder).mkdir()
    with pytest.raises(LedgerError, match=f"give a window .* or a begins of {begins} or later"):
        publish(tmp_path / "at once", (FIRST, later(LATER[kind], 0)))
    with pytest.raises(LedgerError, match=f"or a begins of {begins} or later"):
        publish(tmp_path / "soon", (FIRST, later(LATER[kind], W - 2)))
    lost = publish(tmp_path / "then", (FIRST, later(LATER[kind], W - 1)))
    assert most(lost) <= EPSILON * (1 + 1e-12)
    assert len(lost) > STEPS


def test_a_window_that_is_as_long_and_allows_no_more_goes_on(tmp_path: Path) -> None:
    """And does not hide the promise before it from the terms after it."""
    second = later(windowed(0.4, W + 1), 0)
    lost = publish(tmp_path, (FIRST, second))
    assert most(lost) <= EPSILON * (1 + 1e-12)
    with (
        pytest.raises(
            LedgerError, match="a window of this epoch or of an earlier one still counts"
        ),
        curator(tmp_path, later(LATER["step"], 6), Shown(), now=BEGINS + 900 * 18, new_epoch=True),
    ):
        pass


def test_the_audit_counts_a_window_in_its_own_steps(tmp_path: Path) -> None:
    """Steps twice as long begin when no window reaches back, as the service lets them."""
    begins = BEGINS + 900 * (STEPS + W)
    after = service(2, policy=LATER["step"], begins=begins, seconds=1800)
    publish(tmp_path, (FIRST, after))
    ((evidence,), _) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    terms = map(terms_of, (FIRST, after))
    assert not windows(
        evidence, {epoch.digest: one for epoch, one in zip(evidence.epochs, terms, strict=True)}
    )


def test_models_that_make_a_house_certain_wait(tmp_path: Path) -> None:
    """What an epoch says of such a house is not counted in a window that began before."""
    theta = OccupancyModel.factored([[0.0, 1.0]], [[[[0.5, 0.5], [0.5, 0.5]]]], chain_of=[0, 0])
    for silent, folder in ((0, tmp_path / "at once"), (W - 1, tmp_path / "then")):
        folder.mkdir()
        one = later(windowed(EPSILON), silent)
        certain = replace(one, scenario=replace(one.scenario, models=(theta,)))
        says = pytest.raises(LedgerError, match="with models that declare nothing impossible")
        with nullcontext() if silent else says:
            publish(folder, (FIRST, certain))


@pytest.mark.parametrize("policy", [windowed(EPSILON), Policy(1.0, horizon=16)])
def test_windows_wait_where_houses_move_together(tmp_path: Path, policy: Policy) -> None:
    """What a release says of two houses that move together is not what it says of each."""
    joint = np.full((1, 4, 4), 0.25) + 0.5 * np.eye(4) - 0.125
    theta = OccupancyModel.blocked([[0, 1]], [np.full(4, 0.25)], [joint])

    def blocked(zone: ZoneService) -> ZoneService:
        return replace(zone, scenario=replace(zone.scenario, models=(theta,)))

    alone = replace(FIRST, policy=policy)
    for silent, folder in ((0, tmp_path / "at once"), (W - 1, tmp_path / "then")):
        folder.mkdir()
        says = pytest.raises(LedgerError, match="still counts; give a begins of ")
        with nullcontext() if silent else says:
            publish(folder, (alone, blocked(later(windowed(EPSILON), silent))))
    for after in (blocked(later(windowed(EPSILON), 0)), later(windowed(EPSILON), 0)):
        (folder := tmp_path / f"{len(list(tmp_path.iterdir()))}").mkdir()
        with pytest.raises(LedgerError, match="still counts; give a begins of "):
            publish(folder, (blocked(FIRST), after))


def test_windows_wait_where_houses_moved_together_in_a_lost_epoch(tmp_path: Path) -> None:
    publish(tmp_path, (FIRST,))
    with open_store(str(tmp_path / "ledger.db")) as store:
        found = fold(list(store.records("elm")), verify_signature)
    t, after = found.last_t, later(windowed(EPSILON), 3)
    for together in (1, 2):
        lost = ResumeRecord(t + 1, t + 2, 0.1, 0.0, found.head.seq, together)
        says = pytest.raises(LedgerError, match="still counts; give a begins of ")
        with nullcontext() if together == 1 else says:
            opening(after, replace(found, booked=(lost,)))


@pytest.mark.parametrize("kind", list(LATER))
def test_the_audit_counts_windows_that_end_in_later_epochs(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a publisher let them begin all the same."""
    monkeypatch.setattr("hushgrid.service.border._check_windows", lambda *_: None)
    zones = FIRST, later(LATER[kind], 0)
    lost = publish(tmp_path, zones)
    ((evidence,), _) = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    terms = [terms_of(zone) for zone in zones]
    failed = windows(
        evidence, {epoch.digest: one for epoch, one in zip(evidence.epochs, terms, strict=True)}
    )
    # a block's loss is one for all its steps
    once = lost if kind != "blocks" else [*lost[:13], *lost[16:17]]
    assert bool(failed) == (most(once) > EPSILON)
    for check in failed:
        assert f"above the {EPSILON:g} that any {W} consecutive steps may lose" in check.text
    assert failed or kind in ("shorter", "blocks")
