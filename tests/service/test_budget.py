"""How long a budget lasts: `check`, the curator, status, alerts and the audit count the same."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushgrid import Consumption, Elasticity, OccupancyModel, Policy, Uniform, Zone
from hushgrid.audit.accounts import budget
from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import Evidence
from hushgrid.files.deployment import ZoneService
from hushgrid.files.zone_file import Provenance
from hushgrid.mechanism.policy import Gaussian, PerStep
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.curator import status_of
from hushgrid.service.gaps import largest_loss
from hushgrid.service.http.operator import ZoneHealth
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.writer import verify_signature
from hushgrid.service.promise import outlook, zone_json, zone_prose
from tests import bodies
from tests.examples import examples
from tests.service.setups import BEGINS, service
from tests.service.test_curator import Shown, curator, feed
from tests.services import in_memory

DIGEST = "ab" * 32


def zone_of(budget: float | None, each: list[float], models: float = 0.0) -> ZoneService:
    """A zone whose steps may lose these epsilons, by models that cost something already."""
    policy = Policy(max(each), horizon=len(each), schedule=PerStep(tuple(each)))
    made = service(2, policy=policy, budget=budget)
    return replace(made, learned=Provenance("pooled", models, 20, DIGEST)) if models else made


def published(folder: Path, zone: ZoneService, stop: int = 0) -> int:
    """How many of a whole horizon's releases the real curator makes from readings."""
    shown, steps = Shown(), zone.policy.horizon
    for some in (range(stop), range(stop, steps)):  # opened again in between
        with curator(folder, zone, shown, now=BEGINS + 900 * some.start) as it:
            for _ in some:
                feed(it, it.t, [0])
                it.run(it.next_due())
    assert len({one.t for one in shown.releases}) == steps
    return sum(one.source == "readings" for one in {one.t: one for one in shown.releases}.values())


def announced(zone: ZoneService) -> int:
    """What `hushgrid check` says of it."""
    said = zone_json(zone, outlook(zone))["budget_releases"]
    return zone.policy.horizon if said is None else int(said)


def evidence_of(folder: Path) -> Evidence:
    ((found,), _) = load_ledger(str(folder / "ledger.db"), zone=None, key=None, heads=())
    return found


def test_two_at_a_half_are_four(tmp_path: Path) -> None:
    zone = zone_of(2.0, [0.5] * 6)
    assert published(tmp_path, zone) == announced(zone) == 4


# tenths are no doubles, halves are; sums that meet the budget exactly, or all but
FIGURES = st.one_of(
    st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.7, 1 / 3]), st.floats(0.01, 2, allow_subnormal=False)
)


@settings(max_examples=examples(25))
@example([0.5] * 6, 4, 0.0, 2, 0)  # 2.0 at 0.5
@example([0.1] * 6, 3, 0.0, 1, 0)  # 0.1 * 3, which is above 0.3
@example([0.1] * 6, 3, 0.7, 3, -1)  # a budget one digit short
@example([0.6, 0.6, 0.3, 0.1], 2, 0.2, 1, 0)
@given(
    st.lists(FIGURES, min_size=3, max_size=7),
    st.integers(1, 8),
    st.one_of(st.just(0.0), FIGURES),
    st.integers(0, 3),
    st.integers(-1, 1),
)
def test_check_announces_what_the_curator_publishes(
    each: list[float], paid: int, models: float, stop: int, off: int
) -> None:
    """A budget for some of the releases, to the last digit, one below or one above."""
    limit = float(sum(map(Fraction, [models, *each[:paid]])))
    limit = math.nextafter(limit, math.inf * off) if off else limit
    zone = zone_of(limit, each, models)
    with tempfile.TemporaryDirectory(dir=in_memory()) as name:
        made = published(Path(name), zone, stop)
        assert made == announced(zone)
        with open_store(f"{name}/ledger.db", create=False) as store:
            standing = check(store.records(zone.id), verify_signature).standings[zone.id]
        assert budget(evidence_of(Path(name)), terms_of(zone)).status == "passed"
    used = [one for one in standing.current if one.source == "readings"]
    exact = Fraction(models) + sum(Fraction(one.epsilon) for one in used)
    assert len(used) == made
    assert exact <= Fraction(limit), "the records never add up to more than the budget"
    told = status_of(zone, standing, BEGINS)
    assert told.spent == float(exact) or 0 <= Fraction(told.spent) - exact < told.spent * 2**-52
    assert told.left is not None
    assert 0 <= Fraction(told.left) <= Fraction(limit) - exact


@pytest.mark.parametrize(
    ("budgets", "ran", "status"),
    [
        ((9.0, 0.5), (9.0, None), "failed"),  # the second epoch breaks its own budget
        ((0.5, 9.0), (0.5, 9.0), "passed"),
        ((9.0, 0.5), (9.0, 0.5), "passed"),  # a smaller one does not judge the epoch before
    ],
)
def test_every_epoch_has_the_budget_of_its_own_file(
    tmp_path: Path, budgets: tuple[Any, Any], ran: tuple[Any, Any], status: str
) -> None:
    """In any order of the files; their terms differ."""
    zones = [zone_of(budgets[0], [0.5] * 4), zone_of(budgets[1], [0.25] * 6)]
    zones[1] = replace(zones[1], begins=BEGINS + 4 * 900)
    for n, zone in enumerate(zones):
        run = replace(zone, budget=ran[n])
        with curator(tmp_path, run, Shown(), now=zone.begins, new_epoch=n > 0) as it:
            for _ in range(4):
                feed(it, it.t, [0])
                it.run(it.next_due())
    texts = set()
    for some in (zones, zones[::-1]):
        found = certify([evidence_of(tmp_path)], [terms_of(zone) for zone in some])
        assert found.check("budget").status == status
        texts.add(found.check("budget").text)
    assert len(texts) == 1


def test_the_alert_counts_the_same(tmp_path: Path) -> None:
    """Three of eight tenths are spent: five are left, though 0.8 - 0.3... is below five tenths."""
    zone, shown = zone_of(0.8, [0.1] * 10), Shown()
    with curator(tmp_path, zone, shown) as it:
        for _ in range(3):
            feed(it, it.t, [0])
            it.run(it.next_due())
        seen = ZoneHealth(zone, it.next_due(), it.status, it.inside, it.releases[-1], open=True)
        due = seen.runs_out
        while it.releases[-1].source == "readings":
            assert due is not None
            feed(it, it.t, [0])
            it.run(it.next_due())
        assert due == it.releases[-1].start + 900


def test_gaussian_noise_does_not_fit_a_budget(tmp_path: Path) -> None:
    """No release has a finite epsilon: the curator publishes forecasts, and `check` says so."""
    policy = Policy(1.0, horizon=3, schedule=Gaussian(24.0, 1e-6))
    zone = service(2, policy=policy, budget=50.0)
    assert published(tmp_path, zone) == announced(zone) == 0


def test_a_rule_that_bounds_less_spends_what_it_tells(tmp_path: Path) -> None:
    """Two homes that move together under the rule paper: 1.0 a release, where epsilon is 0.5."""
    locked = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
    made = service(2, policy=Policy(0.5, horizon=4, blocks="paper"), budget=2.0)
    zone = replace(made, scenario=replace(made.scenario, models=(locked,)))
    assert published(tmp_path, zone) == announced(zone) == 2
    (tmp_path / "exact").mkdir()
    policy = replace(zone.policy, on_empty="publish_exact")
    bare = replace(zone, policy=policy)  # no neighbours, no noise: a loss without a bound
    assert published(tmp_path / "exact", bare) == announced(bare) == 0


def test_a_gap_is_booked_at_what_its_rule_tells(tmp_path: Path) -> None:
    """Steps whose records are lost: 1.0 each under the rule paper, not the 0.5 it calibrates to."""
    locked = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
    made = service(2, policy=Policy(0.5, horizon=4, blocks="paper"))
    zone = replace(made, scenario=replace(made.scenario, models=(locked,)))
    with curator(tmp_path, zone, Shown()) as it:
        it._ledger.append("gap", bodies.gap(it.t, it.t + 1, "meters"))
        epsilon, _ = largest_loss(zone, it._ledger.standing, [zone])
    assert epsilon >= 2.0


# two homes of which the second is never occupied alone
UNEQUAL = OccupancyModel.joint(
    [0.4, 0.2, 0.0, 0.4],
    [[[0.9, 0.05, 0, 0.05], [0.3, 0.4, 0, 0.3], [0.25] * 4, [0.1, 0.1, 0, 0.8]]],
)


def reacting(policy: Policy, budget: float) -> ZoneService:
    """The two homes, with demand that answers rates."""
    made = service(2, policy=policy, budget=budget)
    laws = {"absent": [Uniform(10)], "present": [Uniform(30)], "class_of": [0, 0]}
    f = Consumption.by_class(**laws, elasticity=Elasticity(reference=2.0, exponent=0.5))
    scenario = replace(made.scenario, models=(UNEQUAL,), consumption=f, zone=Zone("elm", [45, 45]))
    return replace(made, scenario=scenario)


@pytest.mark.parametrize("blocks", ["minimal", "paper"])
def test_no_number_is_announced_that_is_not_known(blocks: Any) -> None:
    """What is published decides what a release costs, and the rules do not bound it."""
    zone = reacting(Policy(0.5, horizon=20, eta=0.3, blocks=blocks), 5.0)
    found = outlook(zone)
    assert zone_json(zone, found)["releases_affordable"] is None
    said = zone_prose(zone, found)
    assert "How many releases the budget of" in said
    assert "is not known ahead: the rules bound less than a release discloses" in said


def test_at_least_is_a_lower_bound(tmp_path: Path) -> None:
    zone = reacting(Policy(0.5, horizon=20, eta=0.3), 5.1)
    with curator(tmp_path, zone, Shown()) as it:
        for t in range(zone.policy.horizon):
            wh = 1000 * (t * 7 // 3 % 2)
            it._meters.put("elm", [0, 1], [it.start_of(it.t)] * 2, [900] * 2, [wh] * 2)
            it.run(it.next_due())
        made = sum(one.source == "readings" for one in it.releases)
    found = outlook(zone)
    said = zone_json(zone, found)["releases_affordable"]
    assert said == 10 <= made
    assert "lasts for at least 10 of" in zone_prose(zone, found)
