"""A record held against its terms: each fault on record is caught, the true record passes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Curve, Noise, SimulatedNoise, Tariff
from hushgrid._numbers import sum_up
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.audit.evidence import Terms
from hushgrid.audit.publishers import hushgrid
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.mechanism.release import Release, State
from hushgrid.model.zone import public_rate
from hushgrid.operate.audit import load_ledger
from hushgrid.report.certificate import certificate_json, certificate_page
from hushgrid.stores.ledger.records import Record
from tests.audit.zones import (
    BEFORE,
    certain_big_house,
    ledger,
    named,
    releases,
    renamed,
    story,
    terms,
    times,
)
from tests.bodies import charge, stand_in
from tests.stores.ledger.ledgers import lines_of, sealed


def audited(
    tmp_path: Path, records: list[Record], *given: Terms, heads: tuple[str, ...] = ()
) -> Certificate:
    path = tmp_path / "ledger.ndjson"
    path.write_bytes(lines_of(records))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=heads)
    return certify(evidence, given, chain=chain)


def failed(found: Certificate) -> set[str]:
    return {check.id for check in found.checks if check.status == "failed"}


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_a_true_ledger_passes(tmp_path: Path, eta: float) -> None:
    zone = terms(eta=eta)
    found = audited(tmp_path, ledger(zone), zone)
    assert failed(found) == set()
    assert found.verdict == "passed"
    for name in ("noise_scale", "data_dependent_scale", "float_noise", "republication",
                 "protected_set", "budget", "chain", "terms"):  # fmt: skip
        assert found.check(name).status == "passed", name


def test_figures_are_those_of_the_accountants(tmp_path: Path) -> None:
    zone = terms(eta=0.3)
    made = releases(zone)
    (houses,) = audited(tmp_path, ledger(zone, made), zone).houses
    scheduler = zone.first_state().scheduler
    rates = [one.rate for one in made]
    losses = np.array([scheduler.losses(one.t, one.scale, rates[: one.t - 1]) for one in made])
    assert houses.total == pytest.approx([sum_up(column) for column in losses.T.tolist()])
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


@pytest.mark.soak
def test_too_little_noise_shows_in_the_scatter(tmp_path: Path) -> None:
    zone = terms((100,) * 3, eta=1.0, epsilon=0.05, horizon=400)
    good = audited(tmp_path, ledger(zone), zone)
    bad = audited(tmp_path, ledger(zone, releases(zone, noise=rescaled(0.7))), zone)
    assert good.check("noise_scale").status == "passed"
    assert bad.check("noise_scale").status == "failed"
    assert bad.check("noise_scale").first_bad == 5


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


def curved(zone: Terms) -> Terms:
    """The same terms where the price has a kink at the expected load."""
    return named(replace(zone, tariff=Tariff(curve=Curve(points=[(0, 1), (2.5, 2), (5, 9)]))))


def test_a_rate_that_is_not_the_mean_of_the_curve(tmp_path: Path) -> None:
    """The rate of the expected load, without its spread, is another one."""
    zone = curved(terms())
    made = releases(zone)
    assert failed(audited(tmp_path, ledger(zone, made), zone)) == set()

    def change(state: State, one: Release) -> Release:
        if one.t != 7 or state.public is None:
            return one
        estimate, _ = state.public.learn(one.load_hat, one.scale, state.rates)
        return replace(one, rate=public_rate(estimate, zone.tariff))

    found = audited(tmp_path, ledger(zone, releases(zone, change=change)), zone)
    assert failed(found) == {"post_processing"}
    assert found.check("post_processing").first_bad == 10


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
    zone = named(replace(zone, policy=replace(zone.policy, publish="estimate")))
    assert audited(tmp_path, ledger(zone), zone).verdict == "passed"

    def change(state: State, one: Release) -> Release:
        return replace(one, rate=public_rate(one.load_hat, zone.tariff)) if one.t == 2 else one

    found = audited(tmp_path, ledger(zone, releases(zone, change=change)), zone)
    assert found.check("float_noise").first_bad == 5


def test_an_estimate_that_tells_the_load(tmp_path: Path) -> None:
    """The noisy load is sound, but the estimate beside it is not the public's: a way round."""
    zone = terms()
    zone = named(replace(zone, policy=replace(zone.policy, publish="estimate")))

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
    zone = terms(fallback_rate=63.0)
    publisher = hushgrid(zone, seed=1)
    made: list[Any] = [publisher.publish(np.full(5, 200)) for _ in range(5)]
    forecast = publisher._forecast()["rate"]
    told = story(zone, made)
    for rate, status in ((forecast if source == "forecast" else 63.0, "passed"), (64.0, "failed")):
        body = stand_in(
            "elm", source, t=BEFORE + 6, rate=rate, mode="simulation", **times(BEFORE + 6),
            digest=zone.first_state().digest if source == "forecast" else None,
        )  # fmt: skip
        found = audited(tmp_path, sealed([*told, ("release", dict(body))], zone="elm"), zone)
        assert found.check("chain").status == "passed", found.check("chain")
        assert found.check("post_processing").status == status


def told(zone: Terms, made: list[Release], change: Any, **more: Any) -> list[Record]:
    """A ledger whose releases were changed before they were signed, each with its number."""
    records = story(zone, made, **more)
    bodies = [body for kind, body in records if kind == "release"]
    for n, body in enumerate(bodies, 1):
        body.update(change(n, body))
    return sealed(records, zone=zone.zone.id)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", 3.25), ("epsilon_any", 1234.5),
     ("rule", "load 2500"), ("counts", {"houses": 2500})],
)  # fmt: skip
def test_figures_beside_the_load_cannot_carry_it(tmp_path: Path, name: str, value: Any) -> None:
    zone = terms()
    records = told(zone, releases(zone), lambda n, _body: {name: value} if n == 6 else {})
    found = audited(tmp_path, records, zone)
    assert failed(found) == {"post_processing"}
    assert found.check("post_processing").first_bad == 9


@pytest.mark.parametrize("name", ["scale", "epsilon", "epsilon_any"])
def test_last_digits_that_differ_are_named(tmp_path: Path, name: str) -> None:
    zone = terms()
    records = told(zone, releases(zone), lambda n, body: {name: body[name] * (1 + n * 1e-12)})
    found = audited(tmp_path, records, zone).check("post_processing")
    assert (found.status, found.text.split()[0]) == ("noted", "24")


def with_forecasts(zone: Terms, steps: int, change: Any) -> list[Record]:
    """Some releases, then three forecasts by the public's own estimate."""
    made = releases(zone, steps=steps)
    records, rates = story(zone, made), [one.rate for one in made]
    public = PublicKnowledge.start(zone.models, zone.consumption)
    for t, one in enumerate(made):
        _, public = public.learn(one.load_hat, one.scale, rates[:t])
    for t in range(steps + 1, steps + 4):
        law = public.predicted(rates)
        guess = float((law.weights * law.mean).sum())
        body = stand_in(
            zone.zone.id, "forecast", t=BEFORE + t, rate=public_rate(guess, zone.tariff),
            estimate=guess, mode="simulation", digest=zone.first_state().digest, **times(BEFORE + t)
        )  # fmt: skip
        records.append(("release", {**body, **change(body)}))
        public, rates = public.passed(), [*rates, records[-1][1]["rate"]]
    return sealed(records, zone=zone.zone.id)


def test_a_forecast_tells_nothing(tmp_path: Path) -> None:
    """Not in its estimate, and where its rate differs in the last digits that is said."""
    zone = terms()
    good = audited(tmp_path, with_forecasts(zone, 4, lambda _body: {}), zone)
    assert good.check("post_processing").status == "passed"
    bad = audited(tmp_path, with_forecasts(zone, 4, lambda _body: {"estimate": 2500.0}), zone)
    assert failed(bad) == {"post_processing"}
    assert bad.check("post_processing").first_bad == 8
    hidden = with_forecasts(zone, 4, lambda body: {"rate": body["rate"] + 1e-9})
    assert audited(tmp_path, hidden, zone).check("post_processing").status == "noted"


def test_models_are_paid_for_on_record(tmp_path: Path) -> None:
    zone = terms(charged=0.5)
    records = story(zone, releases(zone))
    none = audited(tmp_path, sealed(records, zone="elm"), zone).check("budget")
    assert (none.status, none.first_bad) == ("failed", 4)
    paid = ("charge", dict(charge("models", 0.5, digest="ab" * 32, homes=5, first=0, last=899)))
    found = audited(tmp_path, sealed([*records[:2], paid, *records[2:]], zone="elm"), zone)
    assert found.check("budget").status == "passed"


def test_noise_drawn_once_a_day(tmp_path: Path) -> None:
    """One noise of three scales for all releases: wide enough, and no noise at all."""

    class Once(Noise):
        def draw(self, scale: float) -> int:
            return round(3 * scale)

    zone = terms((100,) * 3, eta=1.0, epsilon=0.05, horizon=60)
    found = audited(tmp_path, ledger(zone, releases(zone, noise=Once())), zone)
    assert found.check("seed_reuse").first_bad == 5  # the second release


def test_a_page_names_every_zone_and_what_failed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone, twin = terms(eta=1.0), renamed(terms(eta=1.0), "oak")
    own = ledger(zone, releases(zone, seed=1, noise=SimulatedNoise(5)))
    same = ledger(twin, releases(twin, seed=2, noise=SimulatedNoise(5)))
    values = certificate_json(audited(tmp_path, own + same, zone, twin))
    assert values["summary"][1].startswith("Failed: seed_reuse.")
    page = certificate_page(values)
    assert "<h1>Privacy certificate: elm, oak</h1>" in page
    assert "<img" in page
    assert page == certificate_page(values)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = certificate_page({**values, "summary": ["<b>&"]})
    assert "<li>&lt;b&gt;&amp;</li>" in page
    assert "<img" not in page
    assert page.count("No chart: pip install 'hushgrid[plot]'.") == 4
