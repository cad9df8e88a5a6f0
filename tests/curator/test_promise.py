"""The promise in a sentence and in figures, and what else could be promised; for anyone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hushgrid import Policy, Tariff
from hushgrid.accounting.composition import DURATIONS
from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import Terms
from hushgrid.curator.promise import outlook, promise_json, sentence, tradeoff_json
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.files.zone_file import Provenance
from hushgrid.report.certificate import certificate_json
from hushgrid.report.outlook import outlook_json, outlook_prose, price_error, verdict
from hushgrid.report.plan import plan_prose
from hushgrid.web.http import prices as promises
from hushgrid.web.http.models import PromiseTerms, TradeoffAnswer
from tests.curator.worlds import service
from tests.web.http.faces import Face, refused

DAY = Policy(0.5, horizon=96)


MODEL = "if the published occupancy model is true"
LINKED = "readings of different intervals are linked only through occupancy."
STEP = (
    "For an adversary who knows the occupancy of all other homes, one price shifts the odds that a"
    " home is occupied in that interval by at most a factor of 1.65 (e^0.5), "
)
AWAY = (
    " An absence of several days is not covered: it spans many intervals, and all prices together"
    " can say more about it."
)
MORE = (
    ". An adversary without that knowledge can learn more from one price once it has seen earlier"
    " ones; what all prices together give away is larger."
)


@pytest.mark.parametrize(
    ("policy", "promise", "said"),
    [
        (DAY, None, f"{STEP}{MODEL}{MORE}"),
        (DAY, Promise("interval", 1.0),
         "All prices together, past and future, shift the odds that a home is"
         f" occupied in any one interval by at most a factor of 2.72 (e^1), {MODEL} and"
         f" {LINKED}{AWAY}"),
        (replace(DAY, eta=0.05), None,
         f"{STEP}{MODEL} and at least 95 % of each reading's law is as published{MORE}"),
        (replace(DAY, eta=0.0), Promise("interval", 1.0),
         "All prices together, past and future, shift the odds"
         " that a home is occupied in any one interval by at most a factor of 2.72 (e^1),"
         f" {MODEL}, every reading follows its published law and {LINKED}{AWAY}"),
    ],
)  # fmt: skip
def test_the_promise_in_sentences(policy: Policy, promise: Promise | None, said: str) -> None:
    assert sentence(service(policy=policy, promise=promise)) == said


def test_what_models_cost_is_stated_beside_the_promise() -> None:
    zone = service(policy=DAY, promise=Promise("interval", 1.0))
    pooled = replace(zone, learned=Provenance("pooled", 1.2, 20, "ab" * 32))
    public = promise_json(pooled, "simulation")
    assert public["sentence"].startswith(sentence(zone))
    assert public["sentence"].endswith("The models cost every home epsilon 1.2 in addition.")


def test_the_promise_is_the_same_wherever_it_is_stated() -> None:
    zone = service(policy=DAY, promise=Promise("interval", 1.0))
    said = sentence(zone)
    public = promise_json(zone, "simulation")
    assert public["sentence"] == said
    seen = outlook(zone)
    assert said in outlook_prose(seen)
    assert said in plan_prose(replace(seen.plan, running=True), 0.2, None, seen.covers)
    scenario = zone.scenario
    terms = Terms(
        scenario.zone, scenario.tariff, scenario.models, scenario.consumption, zone.policy,
        secret="interval", epsilon=1.0, continued=True,
    )  # fmt: skip
    certified = certificate_json(certify((), [terms]))["promise"]
    assert certified["sentence"] == said
    assert PromiseTerms.model_validate(public, strict=True).covers
    assert certified["covers"] == public["covers"] == outlook_json(seen)["promise"]["covers"]
    assert "Longer absences are hidden less." in outlook_prose(seen)
    assert [one["duration"] for one in public["covers"]] == list(DURATIONS)
    shifts = [one["shift"] for one in public["covers"]]
    assert shifts == sorted(shifts)
    assert shifts[-1] > 10 * public["epsilon"], "an interval's promise is not one about a month"


def test_every_assumption_is_listed_with_the_promise_also_at_eta_1() -> None:
    """MATH.md, section 4: what a certificate must list for an interval promise."""
    listed = promise_json(service(policy=DAY, promise=Promise("interval", 1.0)), "simulation")
    text = " ".join(listed["assumptions"])
    for part in (
        "independent given occupancy",
        "occupancy model is true",
        "drawn afresh at each step",
        "does not react to published rates",
        "Whether a meter reports does not depend on occupancy.",
    ):
        assert part in text
    step = " ".join(promise_json(service(policy=DAY), "simulation")["assumptions"])
    assert "knows the occupancy of all other houses" in step
    assert "Whether a meter reports does not depend on occupancy." in step


def zones() -> dict[str, ZoneService]:
    clamp = Policy(0.5, horizon=96, eta=0.3, clamp=(700,), publish="estimate")
    return {
        "plain": service(policy=DAY),
        "estimate": service(policy=replace(DAY, eta=0.2, publish="estimate")),
        "clamp": service(policy=clamp, promise=Promise("step", 0.5, rho=0.4)),
    }


@pytest.mark.parametrize("name", zones())
def test_the_error_is_what_check_says(name: str) -> None:
    """Over one day both look at the same steps."""
    zone = zones()[name]
    found = promise_json(zone, "simulation")
    assert PromiseTerms.model_validate(found, strict=True).error == found["error"]
    assert found["error"] == pytest.approx(price_error(outlook(zone)), rel=1e-9)


@pytest.mark.parametrize("name", zones())
def test_the_choice_lies_on_its_own_curve(name: str) -> None:
    found = tradeoff_json(zones()[name])
    TradeoffAnswer.model_validate(found, strict=True)
    chosen = found["chosen"]
    own = next(curve for curve in found["curves"] if curve["eta"] == chosen["eta"])
    there = next(point for point in own["points"] if point["epsilon"] == chosen["epsilon"])
    for kind in ("raw", "estimated"):
        assert there[kind] == pytest.approx(chosen[kind], rel=0.005)
    assert len(own["points"]) == 13
    etas = {curve["eta"] for curve in found["curves"]}
    assert etas == {0.0, 0.05, 1.0, chosen["eta"]}


def test_the_figures_of_a_promise() -> None:
    zone = service(policy=DAY, promise=Promise("interval", 1.0), currency="CHF")
    found = promise_json(zone, "production")
    assert (found["zone"], found["mode"], found["secret"]) == (
        "elm-street",
        "production",
        "interval",
    )
    assert (found["epsilon"], found["eta"]) == (1.0, 1.0)
    assert (found["houses"], found["interval_s"]) == (6, 900)
    assert found["tariff"] == {
        "alpha": 1.0, "beta": 62.5, "floor": 0.0, "cap": None, "smooth": 0.0
    }  # fmt: skip
    capped = replace(zone.scenario, tariff=Tariff(1.0, 2.0, floor=1.0, cap=9.0))
    assert promise_json(replace(zone, scenario=capped), "simulation")["tariff"]["cap"] == 9.0


class Counted(Face):
    """A face whose figures are counted as they are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *zones: str) -> None:
        self.made: list[str] = []

        def counted(zone: Any) -> dict[str, Any]:
            self.made.append(zone.id)
            return {"zone": zone.id}

        monkeypatch.setattr(promises, "tradeoff_json", counted)
        super().__init__(*zones)


def test_each_is_computed_once_and_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    face = Counted(monkeypatch, "elm-street", "oak-lane")
    for zone in ("elm-street", "oak-lane", "elm-street"):
        answer = face.call("GET", f"/v1/tradeoff?zone={zone}")
        assert answer.json() == {"zone": zone}
        assert answer.headers["cache-control"] == "public, max-age=300"
    assert face.made == ["elm-street", "oak-lane"]
    refused(face.call("GET", "/v1/tradeoff"), 400)
    refused(face.call("GET", "/v1/promise?zone=none"), 404)
    assert math.isfinite(face.call("GET", "/v1/promise?zone=oak-lane").json()["error"])


def test_a_verdict_says_what_to_do_next() -> None:
    """By hand: Laplace noise of bound / epsilon, against what the homes use on average."""
    seen = outlook(service(policy=DAY))
    found = verdict(seen, 6, 0.01)
    mean = 6 * (0.5 * 150 + 0.5 * 500)
    assert found["noise"] == pytest.approx(2**0.5 * 1000 / 0.5 / mean, rel=0.3)
    assert found["noise_then"] == pytest.approx(found["noise"] * 6 / found["houses"], rel=1e-6)
    assert found["noise_then"] <= 0.1 < found["noise"] * 6 / (0.6 * found["houses"])
    assert found["sentence"] == (
        f"6 homes at epsilon = 0.5 for each price on its own: the noise is {found['noise']:.2g}"
        f" times the load; {found['houses']:,} such homes would give {found['noise_then']:.0%}; the"
        f" price is off by {price_error(seen):.0%}: publish the forecast, which spends nothing,"
        " join zones, or promise less (a larger epsilon)."
    )
    prospect = replace(seen.plan.prospect, noise=seen.plan.prospect.noise * 1e-8)
    large = verdict(replace(seen, plan=replace(seen.plan, prospect=prospect)), 6, 0.5)
    assert large["houses"] is None
    assert large["sentence"].endswith("run hushgrid check, then hushgrid serve.")
