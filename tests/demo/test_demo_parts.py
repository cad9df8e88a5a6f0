"""The demo's parts: its clock, its scores, its stage, and the panel against whole-day attacks."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hushgrid.adversary.attack import prior_of, without_noise
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import watch
from hushgrid.adversary.knowledge import Knowledge, KnownReadings
from hushgrid.curator.promise import sentence
from hushgrid.demo.living import (
    EVENING,
    Secrets,
    SimulatedPace,
    check_epsilon,
    write_service,
)
from hushgrid.demo.panel import CHOICES, KNOWS, VIEWS, Panel
from hushgrid.demo.simulated_meters import Fleet
from hushgrid.errors import ServiceError
from hushgrid.files.deployment import ZoneService
from hushgrid.lab.attack import record
from hushgrid.lab.methods import MethodPromise, MethodSetting
from hushgrid.mechanism.release import Release
from hushgrid.model.zone import optimal_rate
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.http import server as staging
from hushgrid.web.http.server import SwappableApp
from tests.web.http.faces import Face
from tests.web.releases import release
from tests.web.running import WINTER, Wall, running

MONDAY = 1_767_571_200  # 2026-01-05T00:00:00Z
BEGINS = MONDAY - 40 * 900  # the last forty steps of a week
NEVER = threading.Event()


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> ZoneService:
    folder = tmp_path_factory.mktemp("demo")
    made = write_service(folder, 1.0, Secrets("t", "o"), begins=BEGINS, port=8080)
    return made.zones[0]


class TestPace:
    def test_it_waits_for_the_work_and_does_not_run_to_catch_up(self) -> None:
        now = [0.0]
        clock = SimulatedPace(1000.0, 10.0, steady=lambda: now[0])
        assert clock.now() == 1000.0
        now[0] = 50.0  # nobody has told it to go on
        assert clock.now() == 1000.0
        assert clock.reach(1100.0, NEVER)
        assert clock.now() == 1100.0  # 500 s have passed on it, but no more were asked
        now[0] = 51.0
        assert clock.now() == 1100.0
        set_before = threading.Event()
        set_before.set()
        assert not clock.reach(1200.0, set_before)
        assert clock.now() == 1110.0  # from where the last work ended, not from the start

    def test_without_end_it_never_sleeps(self) -> None:
        clock = SimulatedPace(0.0, math.inf)
        assert clock.reach(1e9, NEVER)
        assert clock.now() == 1e9


def published(made: Release, zone: ZoneService) -> ReleaseRecord:
    first = zone.begins // zone.seconds
    own = replace(made, t=made.t + first - 1, applies_from=made.applies_from + first - 1)
    return ReleaseRecord(own, "readings", 0, 0, 0, {}, seq=1)


def test_the_panel_is_the_attack_on_the_whole_day(zone: ZoneService) -> None:
    day = record(zone.scenario, zone.policy, seed=5)
    truth = day.truth
    assert truth is not None
    panel, left_out = Panel(zone), 7
    seen = [
        panel.fold(published(one, zone), truth.readings[t], truth.occupancy[t])
        for t, one in enumerate(day.releases)
        if t != left_out  # a release that never came: the adversary only predicts
    ]
    starts = [zone.begins + t * zone.seconds for t in range(40) if t != left_out]
    assert [one.start for one in seen] == starts
    pairs = zip(day.releases, truth.readings, strict=True)
    bare = tuple(without_noise(*each, zone.scenario) for each in pairs)
    for knows in KNOWS:
        for view, releases in zip(VIEWS, (bare, day.releases), strict=True):
            some = [one for one in releases if one.t != left_out + 1]
            others = KnownReadings(truth.readings) if knows == "others" else None
            world = (zone.scenario.zone, zone.scenario.models, zone.scenario.consumption)
            clamp = zone.policy.clamp if releases is day.releases else ()
            whole = watch(Factored(Knowledge(*world, clamp, bystanders=others)), some).averaged
            mine = np.array([one.home[f"{knows} {view}"] for one in seen])
            np.testing.assert_allclose(mine, np.delete(whole, left_out, axis=0), atol=1e-12)
    prior = np.delete(prior_of(zone.scenario.models, 40), left_out, axis=0)
    np.testing.assert_allclose(np.array([one.home["prior"] for one in seen]), prior, atol=1e-12)
    assert [one.load for one in seen[:3]] == truth.readings[:3].sum(axis=1).tolist()
    alone = MethodSetting.of(zone.scenario, MethodPromise("step", 1.0), 40).forecast
    rates = np.delete(optimal_rate(alone, zone.scenario.tariff), left_out)
    np.testing.assert_allclose([one.forecast for one in seen], rates)


def test_the_panel_passes_over_what_is_no_release_from_readings(zone: ZoneService) -> None:
    day = record(zone.scenario, zone.policy, seed=5)
    shown = published(day.releases[0], zone)
    own = replace(shown.release, load_hat=None)  # type: ignore[arg-type]
    stand_in = replace(shown, source="forecast", release=own)
    nobody = np.zeros(len(zone.meters), np.int32)
    seen = Panel(zone).fold(stand_in, nobody, nobody.astype(np.uint8))
    for each in seen.home.values():
        np.testing.assert_array_equal(each, seen.home["prior"])


@pytest.mark.parametrize("epsilon", CHOICES)
@pytest.mark.sampled
def test_every_choice_of_the_dial_can_be_planned(epsilon: float, tmp_path: Path) -> None:
    made = write_service(tmp_path, epsilon, Secrets("t", "o"), begins=MONDAY + EVENING, port=8080)
    (zone,) = made.zones
    schedule = zone.policy.schedule
    ends = np.cumsum(schedule.lengths)
    starts = ends - schedule.lengths
    touched = [((starts < t + 97) & (ends > t)).sum() for t in range(ends[-1] - 97)]
    assert max(touched) * zone.policy.epsilon == pytest.approx(epsilon)


def test_everyone_uses_more_up_to_the_bound(zone: ZoneService) -> None:
    usual, cold = Fleet(zone, 1, zone.begins), Fleet(zone, 1, zone.begins)
    bound = zone.scenario.zone.bound
    before, after = usual.interval(None).wh, cold.interval(None, 30.0).wh
    np.testing.assert_array_equal(after, np.minimum(30 * before, bound))
    assert (after == bound).any()
    np.testing.assert_array_equal(cold.world.readings, after)


class TestSetting:
    def test_the_folder_says_what_is_promised(self, zone: ZoneService) -> None:
        assert len(zone.meters) == 1000
        assert sentence(zone).startswith(
            "All prices ever published shift the odds between any two stories about what a home"
            " does in any 24 hours by at most a factor of 2.72 (e^1)"
        )

    @pytest.mark.parametrize("epsilon", [0.0, 20.1, math.nan, math.inf])
    def test_the_dial_has_ends(self, epsilon: float) -> None:
        with pytest.raises(ServiceError, match=f"epsilon is {epsilon}; give a number from 0.1 to"):
            check_epsilon(epsilon)


@pytest.mark.usefixtures("loop_patience")
def test_a_service_has_none_of_the_demo_s_ways_and_no_exact_price(tmp_path: Path) -> None:
    """Its noise may be simulated while its people are not: then the page says so of the noise."""
    with running(tmp_path, Wall(WINTER)) as it:
        it.at(WINTER + 61)
        for path in ("/demo", "/demo/state", "/demo/stream"):
            assert httpx.get(it.url + path).status_code == 404
        for path in ("/demo/day", "/demo/cold"):
            assert httpx.post(it.url + path, json={}).status_code in (404, 405)
        for path in ("/v1/price", "/v1/prices", "/v1/promise", "/v1/status", "/metrics"):
            text = httpx.get(it.url + path).text
            assert "optimal" not in text
            assert "exact" not in text
        page = httpx.get(it.url).text
    assert "The noise of these prices is simulated" in page
    assert "Houses" not in page
    assert "data-demo" not in page


def get(app: SwappableApp, path: str, **headers: str) -> httpx.Response:
    async def asked() -> httpx.Response:
        way = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=way, base_url="http://demo") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(asked())


class TestStage:
    def stage(self, **changes: bool) -> SwappableApp:
        async def between(request: Request) -> Response:
            return JSONResponse({"between": True})

        return SwappableApp([Route("/demo/state", between)], **changes)

    def test_requests_wait_for_the_next_app(self) -> None:
        stage, face = self.stage(), Face("elm-street")
        threading.Timer(0.3, lambda: stage.set_app(face.app)).start()
        assert get(stage, "/healthz").json() == {"status": "ok"}
        assert get(stage, "/demo/state").status_code == 404  # the app's own answer
        stage.clear()
        found = get(stage, "/demo/state")
        assert found.json() == {"between": True}
        assert found.headers["x-content-type-options"] == "nosniff"

    def test_nobody_waits_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(staging, "PATIENCE", 0.1)
        stage = self.stage()
        found = get(stage, "/v1/price")
        assert (found.status_code, found.headers["retry-after"]) == (503, "5")
        monkeypatch.setattr(staging, "PATIENCE", 1e9)
        stage.end()
        assert get(stage, "/v1/price").status_code == 503

    @pytest.mark.parametrize(("stale", "says"), [(True, "no-cache"), (False, "public, max-age")])
    def test_a_fast_day_is_asked_for_each_time(self, stale: bool, says: str) -> None:
        stage, face = self.stage(stale=stale), Face("elm-street")
        stage.set_app(face.app)
        face.history.publish(face.zone, release(1))
        found = get(stage, "/v1/price")
        assert found.headers["cache-control"].startswith(says)
        again = get(stage, "/v1/price", **{"If-None-Match": found.headers["etag"]})
        assert again.status_code == 304


def test_the_day_is_kept_in_the_package() -> None:
    import hushgrid.demo

    assert (Path(hushgrid.demo.__file__).parent / "service.toml").exists()
