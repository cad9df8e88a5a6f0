"""A tariff that keeps a share of the last rate: post-processing, in releases and in audits."""

import json
from dataclasses import replace

import numpy as np
import pytest

from hushgrid import Consumption, OccupancyModel, Policy, Tariff, Uniform, Zone
from hushgrid.audit.behaviour import check_behaviour, grid_fault
from hushgrid.audit.evidence import Terms
from hushgrid.audit.publishers import hushgrid, load_of, read_answer
from hushgrid.errors import PolicyError, ZoneError
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.release import init, releases
from hushgrid.model.zone import public_rate
from tests.cli.commands import ROOT
from tests.cli.commands import hushgrid as run_hushgrid

THETA = OccupancyModel.factored([[0.5, 0.5]] * 3, [[[[0.9, 0.1], [0.2, 0.8]]] * 3])
F = Consumption.by_class(absent=[Uniform(500)] * 3, present=[Uniform(1000)] * 3)
PLAIN = Tariff(1.0, 62.5)
TARIFF = replace(PLAIN, smooth=0.6)
ZONE = Zone("z", [1000] * 3)
LOADS = [500, 2500, 100, 3000, 0, 1500]


def made(tariff, publish="raw"):
    state = init(ZONE, tariff, [THETA], F, Policy(0.5, publish=publish))
    return list(releases(state, LOADS, SimulatedNoise(1)))


@pytest.mark.parametrize("publish", ["raw", "estimate"])
def test_a_rate_keeps_its_share_of_the_last_one(publish):
    rough, smooth = made(PLAIN, publish), made(TARIFF, publish)
    assert [r.load_hat for r in rough] == [r.load_hat for r in smooth], "the noise is the same"
    last = None
    for own, release in zip(rough, smooth, strict=True):
        due = own.rate if last is None else 0.6 * last + 0.4 * own.rate
        assert release.rate == pytest.approx(due, rel=1e-12)
        assert (release.scale, release.epsilon) == (own.scale, own.epsilon)
        last = release.rate
    assert rough[0].digest != smooth[0].digest, "the terms are others"


def test_an_audit_recomputes_the_smoothed_rate():
    terms = Terms(ZONE, TARIFF, (THETA,), F, Policy(0.5))
    last = None
    for release in made(TARIFF):
        answer = read_answer(release)
        assert grid_fault(answer, terms, last) == ""
        assert grid_fault(answer._replace(rate=release.rate + 1e-9), terms, last)
        if last is not None:
            assert "not its load's" in grid_fault(answer, replace(terms, tariff=PLAIN), last)
        last = release.rate


@pytest.mark.soak
def test_an_audit_passes_a_publisher_that_smooths():
    terms = Terms(ZONE, TARIFF, (THETA,), F, Policy(0.5, horizon=40))  # then forecasts
    found = {check.id: check.status for check in check_behaviour(hushgrid, terms, seed=5)}
    assert found["float_noise"] == "passed"
    assert "failed" not in found.values()


@pytest.mark.soak
def test_a_smoothed_day_passes_its_audit(tmp_path):
    text = (ROOT / "examples" / "release.toml").read_text()
    (tmp_path / "zone.toml").write_text(text.replace("cap = 2.0", "cap = 2.0\nsmooth = 0.6"))
    trace = tmp_path / "day.trace"
    run_hushgrid("simulate", "--config", tmp_path / "zone.toml", "--days", 1, "--trace", trace)
    values = json.loads(run_hushgrid("audit", trace, "--json", "-").stdout)
    status = {check["id"]: check["status"] for check in values["checks"]}
    assert status["float_noise"] == "passed"
    assert values["verdict"] != "failed"
    rough = trace.read_text().replace("smooth = 0.6", "smooth = 0.5")
    trace.write_text(rough)
    assert json.loads(run_hushgrid("audit", trace, "--json", "-").stdout)["verdict"] == "failed"


def test_a_rate_alone_has_no_load_where_rates_are_smoothed():
    with pytest.raises(PolicyError, match=r"smooth is 0\.6 and the publisher states rates alone"):
        load_of(read_answer({"rate": 70.0}), TARIFF)


@pytest.mark.parametrize("wrong", [-0.1, 1.0, float("nan"), "x"])
def test_a_share_out_of_range_is_refused(wrong):
    with pytest.raises(ZoneError, match="tariff smooth is"):
        Tariff(1.0, 62.5, smooth=wrong)


def test_limits_hold_before_and_after_smoothing():
    tariff = Tariff(1.0, 62.5, floor=60.0, cap=64.0, smooth=0.5)
    rates = np.array([public_rate(z, tariff, 62.0) for z in (-100_000, 0, 100_000)])
    assert rates.tolist() == [61.0, 62.25, 63.0]
