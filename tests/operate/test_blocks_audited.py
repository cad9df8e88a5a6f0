"""What a service published in blocks of steps, held against its terms by an audit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgrid import Policy
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.noise import Stepwise
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.meters.tables import NOISE
from tests.curator.block_lives import LENGTHS, LOSSES, POLICY, Life, blocks, go_on, truth
from tests.curator.setups import BEGINS

RELEASES = Policy(0.5, horizon=12, schedule=POLICY.schedule, publish="estimate",
                  estimator="releases", usual=400.0)  # fmt: skip


def audited(folder: Path, *zones: ZoneService, **more: Any) -> Certificate:
    evidence, chain = load_ledger(str(folder / "ledger.db"), zone=None, key=None, heads=())
    return certify(evidence, [terms_of(zone) for zone in zones], chain=chain, **more)


@pytest.mark.parametrize(
    "policy", [POLICY, replace(POLICY, publish="estimate"), replace(POLICY, clamp=(700,))]
)
def test_a_zone_with_a_lost_size_and_a_silent_step(tmp_path: Path, policy: Policy) -> None:
    """The size of block 2 is lost after its first release; no meter reports at step 9."""
    zone = replace(blocks(), policy=policy)
    noise, silent = Stepwise(4, "elm"), zone.begins // 900 + 8
    made, _ = go_on(tmp_path, zone, 3, noise=noise)
    with MeterStore(tmp_path / "meters") as store, store.open().begin() as link:
        link.execute(NOISE.delete())
    more, _ = go_on(tmp_path, zone, 9, lambda t: t == silent, noise=noise)
    assert [one.source[0] for one in made + more] == [*"rrrfff", *"rrfrrr"]
    found = audited(tmp_path, zone)
    assert [one.id for one in found.checks if one.status == "failed"] == []
    assert found.check("post_processing").status == "passed"
    assert found.check("budget").text.startswith("All releases together state 1.5.")
    houses = found.houses[0]  # the steps of the policy; they begin again after them
    assert houses.releases == 8
    assert houses.total == pytest.approx([sum(LOSSES)] * 6)
    lost = [e for e, n in zip(LOSSES, LENGTHS, strict=True) for _ in range(n)]
    due = temporal_leakage(zone.scenario.models, lost, LENGTHS).total.max()
    assert houses.leakage == pytest.approx([due] * 6)
    move = found.moves[0]
    assert move is not None
    assert 0 < move.moved.max() <= due


@pytest.mark.soak
def test_blocks_under_terms_that_begin_twice(tmp_path: Path) -> None:
    """The first one stops within a block; the second one learns from its releases."""
    zone = replace(blocks(), policy=RELEASES)
    noise = Stepwise(4, "elm")
    go_on(tmp_path, zone, 5, noise=noise)
    second = replace(zone, begins=BEGINS + 12 * 900)
    go_on(tmp_path, second, 4, noise=noise, now=second.begins, new_terms=True)
    found = audited(tmp_path, zone, second)
    assert [one.id for one in found.checks if one.status == "failed"] == []
    assert found.check("post_processing").status == "passed"
    assert [one.releases for one in found.houses] == [5, 4]
    assert [float(one.total[0]) for one in found.houses] == pytest.approx([0.8, 0.8])


def test_leakage_over_the_border_of_two_terms(tmp_path: Path) -> None:
    """The second one cuts a block of the first off; the oracle is that of the service's tests."""
    life = Life(tmp_path, BEGINS)
    life.go_on(20)  # two steps into the block of eight
    life.begin(BEGINS + 20 * 3600)
    life.go_on(11)
    found = audited(tmp_path, life.zone)
    assert len(found.recomputed) == 2
    due = truth(life.blocks, life.first, life.first + 30)
    each = [float(one.leakage.max()) for one in found.houses if one.leakage is not None]
    assert max(each) == pytest.approx(due, abs=1e-9)
    assert due > max(LOSSES)
