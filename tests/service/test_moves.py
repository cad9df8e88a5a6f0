"""What a house says that came from another zone, against what outputs of both zones really say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import OccupancyModel, Policy
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, Promise, ZoneService
from hushgrid.service.border import border, opening
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import LedgerState, TransferRecord, unmatched
from hushgrid.service.ledger.writer import verify_signature
from hushgrid.service.transfer import move, takes_along
from tests.service.borders import FIRST, HOUR, Street, exact, zone_of
from tests.service.setups import BEGINS
from tests.service.setups import service as service_of
from tests.service.test_curator import Shown, curator, feed

QUARTER = 900


def test_the_oracle_knows_the_golden_values() -> None:
    stay = np.array([[0.9, 0.1], [0.2, 0.8]])
    found = exact([stay] * 3, [0.7, 0.3], [0.5, 0.3, 0.4])
    assert found == pytest.approx([0.914884, 0.935856, 0.861792], abs=1e-6)


# ---- through the service


def run(folder: Path, one: ZoneService, readings: int, forecasts: int = 0) -> None:
    """An epoch: some steps with readings, then some without."""
    with curator(folder, one, Shown(), now=one.begins, new_epoch=known(folder, one)) as it:
        for k in range(readings + forecasts):
            if k < readings:
                feed(it, it.t, list(range(len(one.meters))))
            it.run(it.next_due())


def known(folder: Path, one: ZoneService) -> bool:
    if not (folder / "ledger.db").exists():
        return False
    with open_store(str(folder / "ledger.db")) as store:
        return store.head(one.id) is not None


def states(folder: Path) -> dict[str, LedgerState]:
    with open_store(str(folder / "ledger.db")) as store:
        every = [record for zone in store.zones() for record in store.records(zone)]
    report = check(every, verify_signature)
    assert report.first_bad is None
    return dict(report.standings)


def street(
    name: str, meters: tuple[str, ...], at: int, slow: float, promise: float | None
) -> ZoneService:
    """Homes that come and leave rarely; the secret step, or an interval promise."""
    made = service_of(len(meters), name, Policy(0.4, horizon=2), begins=at)
    stay = [[1 - slow, slow], [slow, 1 - slow]]
    model = OccupancyModel.factored([[0.5, 0.5]], [[stay]], chain_of=[0] * len(meters))
    made = replace(made, meters=meters, scenario=replace(made.scenario, models=(model,)))
    if promise is None:
        return made
    even = replace(made.policy, epsilon=promise / 2)
    return replace(made, policy=even, promise=Promise("interval", promise))


def test_what_lies_beyond_a_horizon_is_brought_along(tmp_path: Path) -> None:
    """Ten short epochs, the last one of forecasts alone; then a zone with an interval promise.

    It came with epsilon 0, and the new epoch stated 0.5.
    """
    slow, at = 0.08, BEGINS
    for k in range(10):
        elm = street("elm", ("h", "i"), at, slow, None)
        run(tmp_path, elm, 2 * (k < 9), 2 * (k == 9))
        at += 2 * QUARTER
    run(tmp_path, before := street("oak", ("j", "k"), at - QUARTER, slow, 0.5), 0)
    places = {"ledger": str(tmp_path / "ledger.db"), "meters": str(tmp_path / "meters")}
    made = Deployment((elm, before), mode="simulation", key=tmp_path / "key", **places)
    assert move(made, "h", "elm", "oak", at).epsilon == 0.0, "no budget counts it any more"
    after = street("oak", ("h", "j"), at, slow, 0.5)
    with pytest.raises(LedgerError, match=r"where 0.5 is promised.* intervals later"):
        run(tmp_path, after, 2)
    run(tmp_path, replace(after, accepts=math.inf), 2)
    found = states(tmp_path)
    assert unmatched(found) is None
    lost = {
        one.t: 1000 / one.scale
        for one in (*found["elm"].releases, *found["oak"].releases)
        if one.source == "readings"
    }
    first, last = min(lost), max(lost)
    stay = np.array([[1 - slow, slow], [slow, 1 - slow]])
    losses = [lost.get(t, 0.0) for t in range(first, last + 1)]
    shown = exact([stay] * len(losses), [0.5, 0.5], losses)[-2:].max()
    stated = found["oak"].epochs[-1].accepted
    assert stated is not None
    assert 0.5 < shown <= stated


# ---- random histories of one house in two zones


@pytest.mark.parametrize("seed", range(40))
def test_no_output_of_both_zones_shows_more_than_is_stated(seed: int) -> None:
    """Epochs with and without a promise, silence and forecasts; a move, and epochs after it."""
    rng = np.random.default_rng(seed)
    leave, come = rng.uniform(0.02, 0.6, 2)
    stay = np.array([[1 - come, come], [leave, 1 - leave]])
    start = rng.uniform(0.1, 0.9)
    lost: dict[int, float] = {}

    def epoch(street: Street, at: int, *, promise: bool) -> ZoneService:
        law = np.array([1 - start, start]) @ np.linalg.matrix_power(stay, at - FIRST)
        theta = OccupancyModel.factored([law], [[stay]])
        epsilon, horizon = float(rng.choice([0.1, 0.5, 2])), int(rng.integers(1, 6))
        one = zone_of(theta, at * HOUR, epsilon, horizon, 1.0 if promise else None)
        street.begin(one)
        street.publish(one, [t for t in range(1, horizon + 1) if rng.random() < 0.7])
        return one

    def after(one: ZoneService) -> int:
        return one.begins // HOUR + one.policy.horizon + int(rng.choice([0, 0, 1, 8]))

    at, here, there = FIRST, Street(1), Street(1)
    for _ in range(int(rng.integers(1, 5))):
        one = epoch(here, at, promise=rng.random() < 0.3)
        at = after(one)
    own = {t: loss for t, loss in here.losses.items() if t * HOUR >= one.begins}
    stated = takes_along(one, here.standing, "h", own)
    assert stated["total"] == pytest.approx(math.fsum(here.losses.values()))
    assert stated["leakage"] <= stated["total"] * (1 + 1e-9)
    came = TransferRecord("h", "in", "y", 0.0, out="0" * 64, seq=1, **stated)
    there.standing = replace(there.standing, transfers=(came,))
    for _ in range(2):
        at = after(epoch(there, at, promise=True))
    lost = here.losses | there.losses
    if not lost:
        return
    last = max(*lost, at)
    losses = [lost.get(t, 0.0) for t in range(FIRST, last + 1)]
    shown = exact([stay] * len(losses), [1 - start, start], losses)
    for t, allowed in there.allowed().items():
        assert shown[t - FIRST] <= allowed * (1 + 1e-5), (seed, t - FIRST)


def test_a_transfer_of_an_earlier_version_bounds_nothing() -> None:
    """It states no more than a budget counts, so what it brings is only what time leaves of it."""
    stay = np.array([[0.7, 0.3], [0.3, 0.7]])
    street = Street(1)
    one = zone_of(OccupancyModel.factored([[0.5, 0.5]], [[stay]]), FIRST * HOUR, 0.1, 24, 1.0)
    came = TransferRecord("h", "in", "y", 0.0, out="0" * 64, seq=1)
    street.standing = replace(street.standing, transfers=(came,))
    with pytest.raises(LedgerError, match="a transfer that an earlier version recorded"):
        opening(one, street.standing)
    free = zone_of(one.scenario.models[0], FIRST * HOUR, 0.1, 96, None)
    street.begin(free)
    street.publish(free, [1, 96])
    held = border(replace(one, begins=(FIRST + 97) * HOUR), street.standing)
    assert held is not None
    # what the house brought is forgotten, and the two releases are not
    alone = border(replace(one, begins=(FIRST + 97) * HOUR), replace(street.standing, transfers=()))
    assert alone is not None
    assert held.leakage == pytest.approx(alone.leakage, rel=1e-6)


def test_what_another_zone_publishes_after_the_epoch_begins_is_refused() -> None:
    """Its releases about the house would lie within the epoch, which counts none of them."""
    stay = np.array([[0.7, 0.3], [0.3, 0.7]])
    one = zone_of(OccupancyModel.factored([[0.5, 0.5]], [[stay]]), FIRST * HOUR, 0.1, 24, 1.0)
    for late, holds in ((1, False), (0, False), (-48, True)):
        last = (FIRST + late) * HOUR
        came = TransferRecord("h", "in", "y", 0.0, out="0" * 64, seq=1, leakage=0.5, last=last)
        found = border(one, replace(Street(1).standing, transfers=(came,)))
        assert found is not None
        assert found.holds == holds
        assert math.isinf(found.leakage) == (late > 0)
