"""The promise in a sentence and in figures, and what else could be promised; for anyone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hushgrid import PlanError, Policy, Tariff, Window
from hushgrid.live.deployment import Promise, ZoneService
from hushgrid.live.outlook import outlook
from hushgrid.live.promise import promise_json, sentence, tradeoff_json
from hushgrid.live.web import promises
from hushgrid.provenance import Provenance
from hushgrid.report.promise import price_error
from tests.live.test_web import Face, refused
from tests.live.worlds import service

DAY = Policy(0.5, horizon=96)


@pytest.mark.parametrize(
    ("policy", "promise", "said"),
    [
        (DAY, None, "one price changes the odds that somebody is at home at that time by at most"
         " a factor of 1.65."),
        (DAY, Promise("interval", 1.0), "all 96 prices together change the odds that somebody was"
         " at home at any one time by at most a factor of 2.72."),
        (DAY, Promise("trajectory", 2.0, 1e-6), "all 96 prices together change the odds between"
         " any two courses of a household's days by at most a factor of 7.39, but for a chance of"
         " 1e-06."),
        (replace(DAY, window=Window(4)), None, "any 4 prices in a row change the odds that"
         " somebody was at home by at most a factor of 1.65."),
        (replace(DAY, eta=0.05), None, "one price changes the odds that somebody is at home at"
         " that time by at most a factor of 1.65, as long as every home uses electricity as its"
         " public model says but for a share of 5 %."),
        (replace(DAY, eta=0.0), None, "one price changes the odds that somebody is at home at that"
         " time by at most a factor of 1.65, as long as every home uses electricity as its public"
         " model says."),
    ],
)  # fmt: skip
def test_the_promise_in_a_sentence(policy: Policy, promise: Promise | None, said: str) -> None:
    found = sentence(service(policy=policy, promise=promise))
    assert found == f"Whatever else is known, {said}"
    assert found.count(". ") == 0


def zones() -> dict[str, ZoneService]:
    clamp = Policy(0.5, horizon=96, eta=0.3, clamp=(700,), publish="estimate")
    return {
        "plain": service(policy=DAY),
        "estimate": service(policy=replace(DAY, eta=0.2, publish="estimate")),
        "clamp": service(policy=clamp, promise=Promise("step", 0.5, rho=0.4)),
        "window": service(policy=Policy(4.0, horizon=96, window=Window(4))),
        "gaussian": service(policy=Policy(1.0, horizon=96, gaussian=41.4, delta=1e-6)),
    }


@pytest.mark.parametrize("name", zones())
def test_the_error_is_what_check_says(name: str) -> None:
    """Over one day both look at the same steps."""
    zone = zones()[name]
    found = promise_json(zone, "simulation")
    assert found["error"] == pytest.approx(price_error(outlook(zone)), rel=1e-9)


@pytest.mark.parametrize("name", zones())
def test_the_choice_lies_on_its_own_curve(name: str) -> None:
    found = tradeoff_json(zones()[name])
    chosen = found["chosen"]
    own = next(curve for curve in found["curves"] if curve["eta"] == chosen["eta"])
    there = next(point for point in own["points"] if point["epsilon"] == chosen["epsilon"])
    for kind in ("raw", "estimated"):
        assert there[kind] == pytest.approx(chosen[kind], rel=0.005)
    assert len(own["points"]) == 13
    etas = {curve["eta"] for curve in found["curves"]}
    assert etas == ({1.0} if name in ("window", "gaussian") else {0.0, 0.05, 1.0, chosen["eta"]})


def test_the_figures_of_a_promise() -> None:
    zone = service(policy=DAY, promise=Promise("interval", 1.0), currency="CHF")
    found = promise_json(zone, "production")
    assert (found["zone"], found["mode"], found["secret"]) == (
        "elm-street",
        "production",
        "interval",
    )
    assert (found["epsilon"], found["delta"], found["eta"]) == (1.0, 0.0, 1.0)
    assert (found["horizon"], found["houses"], found["interval_s"]) == (96, 6, 900)
    assert found["tariff"] == {"alpha": 1.0, "beta": 62.5, "floor": 0.0, "cap": None}
    capped = replace(zone.scenario, tariff=Tariff(1.0, 2.0, floor=1.0, cap=9.0))
    assert promise_json(replace(zone, scenario=capped), "simulation")["tariff"]["cap"] == 9.0


def test_private_models_tell_nothing() -> None:
    private = service(learned=Provenance("private"))
    assert promise_json(private, "simulation")["error"] is None
    with pytest.raises(PlanError, match="'elm-street' are private"):
        tradeoff_json(private)


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
