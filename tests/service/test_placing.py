"""Clamps of a service file: bounded for a new epoch, unchanged until an earlier one ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid.audit.certificate import certify
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment
from hushgrid.files.interval_plan import as_before
from hushgrid.files.service_file import load_deployment
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.epoch import first_state
from hushgrid.service.ledger.records import schedule_digest
from hushgrid.service.same_terms import as_begun
from tests.service.setups import example
from tests.service.test_border import publish, standing
from tests.service.test_curator import Shown, curator

BEGINS = 1_767_225_600
HOUR = 3600

# what version 7134676 planned for the file that `init` writes: clamps [Wh] and the terms' digest
BEFORE = {
    ("step", 0.05): (
        (41, 44),
        "5820d7262c207e8510b7cc6fc1c55ed49bcd2f021715ea5c5b01c16027170b33",
    ),
    ("trajectory", 0.5): (
        (24, 26),
        "af24406be9a87025ba5f0d5be343d24391fd082b59a77cf501e97388578ca994",
    ),
    ("interval", 1.0): (
        (41, 44),
        "d9d025618b08f0793a55fb69b65eaa086641e9cbdfeafb5dabd5ac75037f6d78",
    ),
}


def deployed(folder: Path, secret: str, epsilon: float, begins: int = BEGINS) -> Deployment:
    text = example(begins)
    for old, new in (
        ('secret = "step"', f'secret = "{secret}"'),
        ("epsilon = 0.5", f"epsilon = {epsilon}\nrho = 0.2"),
        ("horizon = 672", "horizon = 24"),
        ('estimator = "filter"', 'estimator = "model"'),  # as files of then
    ):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "service.toml").write_text(text)
    found = load_deployment(folder / "service.toml")
    return replace(found, ledger=str(folder / "ledger.db"))


@pytest.mark.parametrize(("secret", "epsilon"), BEFORE)
@pytest.mark.sampled
def test_an_epoch_keeps_the_clamps_it_began_with(
    tmp_path: Path, secret: str, epsilon: float
) -> None:
    deployment = deployed(tmp_path, secret, epsilon)
    (zone,) = deployment.zones
    assert min(zone.policy.clamp) > 150, "a price that follows the model alone"
    clamp, digest = BEFORE[secret, epsilon]
    before = as_before(zone)
    assert before is not None
    assert before.policy.clamp == clamp
    assert first_state(before, digest).digest == digest
    # begun as it was then, without what later versions know about promises and files
    with curator(tmp_path, replace(before, promise=None, pattern=None), Shown(), now=BEGINS) as it:
        publish(it, 2)
    with curator(tmp_path, zone, Shown(), now=BEGINS + HOUR / 2) as it:
        assert it.service.policy.clamp == clamp
        publish(it, 2)
    (served,) = as_begun(deployment).zones
    assert served.policy.clamp == clamp
    now = standing(tmp_path)
    assert now.epoch is not None
    assert {one.digest for one in now.releases} == {now.epoch.digest}
    assert len(now.releases) == 4
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    found = certify(evidence, [terms_of(zone)], commit=schedule_digest)
    assert "All releases are of the terms given" in found.check("terms").text
    assert found.check("noise_scale").status != "failed"


def test_the_next_epoch_has_the_clamps_of_today(tmp_path: Path) -> None:
    (zone,) = deployed(tmp_path, "step", 0.05).zones
    before = as_before(zone)
    assert before is not None
    with curator(tmp_path, replace(before, promise=None, pattern=None), Shown(), now=BEGINS) as it:
        publish(it, 2)
    (after,) = deployed(tmp_path, "step", 0.05, BEGINS + 6 * HOUR).zones
    with curator(tmp_path, after, Shown(), now=BEGINS + 6 * HOUR, new_epoch=True) as it:
        assert it.service.policy.clamp == after.policy.clamp
        assert min(after.policy.clamp) > 150
        publish(it, 1)


def test_other_terms_are_still_refused(tmp_path: Path) -> None:
    (zone,) = deployed(tmp_path, "step", 0.05).zones
    other = replace(zone, policy=replace(zone.policy, clamp=(40, 44)), pattern=None)
    with curator(tmp_path, other, Shown(), now=BEGINS) as it:
        publish(it, 1)
    with (
        pytest.raises(LedgerError, match="not those of its epoch"),
        curator(tmp_path, zone, Shown(), now=BEGINS + HOUR / 4),
    ):
        pass
