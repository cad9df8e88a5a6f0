"""A record held against its terms: each fault on record is caught, the true record passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Noise, SimulatedNoise
from hushgrid.accounting.compose import Account
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.audit import Certificate, Terms, certify
from hushgrid.audit.publishers import hushgrid
from hushgrid.grid import public_rate
from hushgrid.live.audit import load_ledger
from hushgrid.live.ledger.bodies import schedule_digest, stand_in
from hushgrid.live.ledger.record import Record
from hushgrid.mechanism import Release, State
from tests.audit.zones import certain_big_house, ledger, releases, renamed, story, terms
from tests.ledgers import lines_of, sealed


def audited(
    tmp_path: Path, records: list[Record], *given: Terms, heads: tuple[str, ...] = ()
) -> Certificate:
    path = tmp_path / "ledger.ndjson"
    path.write_bytes(lines_of(records))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=heads)
    return certify(evidence, given, chain=chain, commit=schedule_digest)


def failed(found: Certificate) -> set[str]:
    return {check.id for check in found.checks if check.status == "failed"}


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_a_true_ledger_passes(tmp_path: Path, eta: float) -> None:
    zone = terms(eta=eta, budget=12.1)
    found = audited(tmp_path, ledger(zone), zone)
    assert failed(found) == set()
    assert found.verdict == "passed"
    for name in ("noise_scale", "data_dependent_scale", "float_noise", "republication",
                 "protected_set", "budget", "chain", "terms", "schedule"):  # fmt: skip
        assert found.check(name).status == "passed", name


def test_figures_are_those_of_the_accountants(tmp_path: Path) -> None:
    zone = terms(eta=0.3)
    made = releases(zone)
    (houses,) = audited(tmp_path, ledger(zone, made), zone).houses
    account = Account(zone.first_state())
    for one in made:
        account = account.add(one)
    assert houses.total == pytest.approx(account.pure)
    assert houses.composed == pytest.approx(account.epsilon(houses.worst, 1e-6))
    losses = np.array([account.losses(entry) for entry in account.entries])
    assert houses.leakage is not None
    assert houses.leakage == pytest.approx(temporal_leakage(zone.models, losses).total.max(axis=0))


def rescaled(share: float) -> Any:
    """Noise at a share of the scale that is stated."""

    class Less(Noise):
        def __init__(self) -> None:
            self._own = SimulatedNoise(3)

        def draw(self, scale: float) -> int:
            return self._own.draw(scale * share)

    return Less()


def test_too_little_noise_shows_in_the_scatter(tmp_path: Path) -> None:
    zone = terms((100,) * 3, eta=1.0, epsilon=0.05, horizon=400)
    good = audited(tmp_path, ledger(zone), zone)
    bad = audited(tmp_path, ledger(zone, releases(zone, noise=rescaled(0.7))), zone)
    assert good.check("noise_scale").status == "passed"
    assert bad.check("noise_scale").status == "failed"
    assert bad.check("noise_scale").first_bad == 4


def test_a_scale_that_follows_the_data(tmp_path: Path) -> None:
    zone = terms()

    def change(state: State, one: Release) -> Release:
        wider = one.scale * (1.1 if one.load_hat > 2500 else 1.0)
        return replace(one, scale=wider)

    made = releases(zone, change=change)
    first = next(i for i, one in enumerate(made) if one.load_hat > 2500)
    found = audited(tmp_path, ledger(zone, made), zone).check("data_dependent_scale")
    assert found.status == "failed"
    assert found.first_bad == 4 + first


def test_a_rate_off_the_grid(tmp_path: Path) -> None:
    zone = terms()

    def change(state: State, one: Release) -> Release:
        return one if one.t != 7 else replace(one, rate=one.rate + 1e-7)

    found = audited(tmp_path, ledger(zone, releases(zone, change=change)), zone)
    assert failed(found) == {"float_noise"}
    assert found.check("float_noise").first_bad == 10


def test_a_house_left_out_of_kappa(tmp_path: Path) -> None:
    zone = certain_big_house()
    small = terms((1000,) * 4)
    scale = small.first_state().scheduler.at(1).scale

    def change(state: State, one: Release) -> Release:
        return replace(one, scale=scale) if one.t >= 3 else one

    found = audited(tmp_path, ledger(zone, releases(zone, change=change)), zone)
    assert "protected_set" in failed(found)
    assert found.check("protected_set").first_bad == 6
    assert "house 4" in found.check("protected_set").text


def test_a_budget_that_begins_anew(tmp_path: Path) -> None:
    zone = terms(budget=6.0)
    made = releases(zone, steps=12)
    good = audited(tmp_path, ledger(zone, made), zone)
    assert good.check("budget").status == "passed"
    again = [replace(one) for one in releases(zone, steps=12, seed=2)]
    told = story(zone, made) + story(zone, again, first=13, opening=False)
    found = audited(tmp_path, sealed(told, zone="elm"), zone)
    assert found.check("chain").status == "passed"  # the chain's rules allow a new epoch
    assert found.check("budget").status == "failed"
    assert found.check("budget").first_bad == 16  # the second epoch's record


def test_spending_is_counted_over_any_horizon_whatever_the_epochs(tmp_path: Path) -> None:
    """Other terms in the second epoch: no restart of the same count, but the sum is above."""
    zone, other = terms(budget=6.0), terms(budget=6.0, epsilon=0.4)
    told = story(zone, releases(zone, steps=12))
    told += story(other, releases(other, steps=5, seed=2), first=13, opening=False)
    found = audited(tmp_path, sealed(told, zone="elm"), zone, other)
    assert found.check("budget").status == "failed"
    assert found.check("budget").first_bad == 18  # the second epoch's first release: 6.4 > 6


def test_an_epsilon_that_is_understated(tmp_path: Path) -> None:
    zone = terms()

    def change(state: State, one: Release) -> Release:
        return replace(one, epsilon=0.1) if one.t == 5 else one

    found = audited(tmp_path, ledger(zone, releases(zone, change=change)), zone)
    assert found.check("budget").status == "failed"
    assert found.check("budget").first_bad == 8


def test_two_zones_with_one_seed(tmp_path: Path) -> None:
    zone, twin = terms(eta=1.0), renamed(terms(eta=1.0), "oak")
    own = ledger(zone, releases(zone, seed=1, noise=SimulatedNoise(5)))
    same = ledger(twin, releases(twin, seed=2, noise=SimulatedNoise(5)))
    other = ledger(twin, releases(twin, seed=2, noise=SimulatedNoise(6)))
    bad = audited(tmp_path, own + same, zone, twin)
    assert failed(bad) == {"seed_reuse"}
    assert bad.check("seed_reuse").first_bad == len(own) + 4
    good = audited(tmp_path, own + other, zone, twin)
    assert good.check("seed_reuse").status == "passed"


def test_a_common_shock_is_no_shared_seed(tmp_path: Path) -> None:
    """The same people in both zones: loads move alike, noise does not."""
    zone, twin = terms(eta=1.0), renamed(terms(eta=1.0), "oak")
    own = ledger(zone, releases(zone, seed=1, noise=SimulatedNoise(5)))
    other = ledger(twin, releases(twin, seed=1, noise=SimulatedNoise(6)))
    found = audited(tmp_path, own + other, zone, twin)
    assert found.check("seed_reuse").status == "passed"


def test_a_rewritten_chain_needs_a_head_that_somebody_kept(tmp_path: Path) -> None:
    zone = terms()
    records = ledger(zone)
    kept = records[9].digest
    anew = ledger(zone, releases(zone, seed=2))  # signed again with the publisher's own key
    assert audited(tmp_path, anew, zone).check("chain").status == "passed"
    found = audited(tmp_path, anew, zone, heads=(kept,))
    assert failed(found) == {"chain"}
    assert audited(tmp_path, records, zone, heads=(kept,)).check("chain").status == "passed"


def test_a_changed_record_breaks_the_chain(tmp_path: Path) -> None:
    zone = terms()
    records = ledger(zone)
    spoiled = replace(records[8], body={**records[8].body, "load_hat": 1})
    found = audited(tmp_path, [*records[:8], spoiled, *records[9:]], zone)
    assert found.check("chain").status == "failed"
    assert found.check("chain").first_bad == 9


def test_a_step_on_record_twice(tmp_path: Path) -> None:
    zone = terms()
    told = story(zone, releases(zone))
    found = audited(tmp_path, sealed([*told[:8], told[7], *told[8:]], zone="elm"), zone)
    assert {"republication", "chain"} <= failed(found)
    assert found.check("republication").first_bad == 9


def test_disorder_is_named(tmp_path: Path) -> None:
    zone = terms()
    records = ledger(zone)
    found = audited(tmp_path, [*records[:6], records[7], records[6], *records[8:]], zone)
    assert found.check("chain").first_bad == 7


def test_gaps_are_named(tmp_path: Path) -> None:
    zone = terms()
    made = releases(zone)
    found = audited(tmp_path, ledger(zone, [*made[:5], *made[8:]]), zone)
    assert found.check("steps").status == "noted"
    assert "from step 6 to 8" in found.check("steps").text
    assert found.check("steps").first_bad == 9
    assert found.verdict == "passed"


def test_other_terms_are_named(tmp_path: Path) -> None:
    zone = terms()
    records = ledger(zone)
    for other in (terms(epsilon=0.4), renamed(zone, "oak")):
        found = audited(tmp_path, records, other)
        assert found.check("terms").status == "failed"
        assert found.check("terms").first_bad == 4


def test_a_zone_without_terms_is_not_another_models(tmp_path: Path) -> None:
    zone, twin = terms(), renamed(terms(), "oak")
    found = audited(tmp_path, ledger(zone) + ledger(twin, releases(twin, seed=2)), zone)
    assert found.verdict == "incomplete" or failed(found) == set()
    assert "oak" in found.check("terms").text


def test_a_schedule_that_was_not_committed_to(tmp_path: Path) -> None:
    zone = terms()
    found = audited(tmp_path, ledger(zone, scales=[1.0] * 24), zone)
    assert failed(found) == {"schedule"}


def test_without_terms_the_audit_is_incomplete(tmp_path: Path) -> None:
    found = audited(tmp_path, ledger(terms()))
    assert found.verdict == "incomplete"
    assert found.check("chain").status == "passed"
    assert found.check("protected_set").status == "not_checked"
    assert "needs --config" in found.check("protected_set").text


def test_15_15_is_noted_and_fails_nobody(tmp_path: Path) -> None:
    few, big = terms(), terms((1000,) * 15 + (9000,))
    many = terms((1000,) * 16)
    for zone, status in ((few, "noted"), (big, "noted"), (many, "passed")):
        found = audited(tmp_path, ledger(zone), zone)
        assert found.check("fifteen_fifteen").status == status
        assert found.verdict == "passed"


def test_rates_of_estimates_are_not_held_against_the_noisy_load(tmp_path: Path) -> None:
    zone = terms()
    zone = replace(zone, policy=replace(zone.policy, publish="estimate"))
    assert audited(tmp_path, ledger(zone), zone).verdict == "passed"

    def change(state: State, one: Release) -> Release:
        return replace(one, rate=public_rate(one.load_hat, zone.tariff)) if one.t == 2 else one

    found = audited(tmp_path, ledger(zone, releases(zone, change=change)), zone)
    assert found.check("float_noise").first_bad == 5


def test_an_estimate_that_tells_the_load(tmp_path: Path) -> None:
    """The noisy load is sound, but the estimate beside it is not the public's: a way round."""
    zone = terms()
    zone = replace(zone, policy=replace(zone.policy, publish="estimate"))

    def change(state: State, one: Release) -> Release:
        if one.t != 6 or one.estimate is None:
            return one
        told = one.estimate + 0.25
        return replace(one, estimate=told, rate=public_rate(told, zone.tariff))

    found = audited(tmp_path, ledger(zone, releases(zone, change=change)), zone)
    assert failed(found) == {"post_processing"}
    assert found.check("post_processing").first_bad == 9


@pytest.mark.parametrize("source", ["forecast", "fallback"])
def test_a_stand_in_that_tells_the_load(tmp_path: Path, source: Any) -> None:
    """A forecast costs nothing because anybody could have made it; so it must be that one."""
    zone = terms(fallback_rate=63.0, budget=2.6)
    publisher = hushgrid(zone, seed=1)
    made: list[Any] = [publisher.publish(np.full(5, 200)) for _ in range(6)]
    forecast = made[5]["rate"]
    told = story(zone, made[:5])
    start = told[-1][1]["start"] + 900
    for rate, status in ((forecast if source == "forecast" else 63.0, "passed"), (64.0, "failed")):
        body = stand_in(
            "elm", source, t=6, rate=rate, mode="simulation", start=start,
            applies_start=start + 900, published_at=start + 901,
            digest=zone.first_state().digest if source == "forecast" else None,
        )  # fmt: skip
        found = audited(tmp_path, sealed([*told, ("release", dict(body))], zone="elm"), zone)
        assert found.check("chain").status == "passed", found.check("chain")
        assert found.check("post_processing").status == status
