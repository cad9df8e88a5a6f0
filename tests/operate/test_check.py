"""hushgrid init and check: what is written runs, what is wrong is named, what is promised holds."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from textwrap import wrap

import numpy as np
import pytest

from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.curator.promise import outlook, zone_prose
from hushgrid.files.models import load_survey
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http
from hushgrid.files.weeks import whole_week
from hushgrid.lab.simulation import simulate
from hushgrid.learning.habits import survey_models
from hushgrid.operate.check import examine
from hushgrid.operate.template import placeholders
from hushgrid.planning.planner import plan
from hushgrid.report.outlook import price_error
from tests.curator.worlds import deployment, service
from tests.operate.check_files import put, run
from tests.web.brokers import free_port


def test_what_init_writes_passes_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "zone"
    assert run("init", folder) == 0
    assert str(folder / "service.toml") in capsys.readouterr().out
    text = (folder / "service.toml").read_text()
    (folder / "service.toml").write_text(text.replace("port = 8080", f"port = {free_port()}"))
    monkeypatch.chdir(folder)
    assert run("check", Path("service.toml")) == 0
    brief = capsys.readouterr().out
    wrapped = [line for given in brief.splitlines() for line in wrap(given, 80) or [""]]
    assert len(wrapped) <= 24, "one screen"
    for words in (
        "Promise: Pick any 24 hours.",
        "Not covered: ",
        "Expected price error: ",
        "two weeks",
    ):
        assert words in brief
    assert run("check", folder / "service.toml", "--full") == 0
    said = capsys.readouterr().out
    for words in (
        "Promise: Pick any 24 hours. Someone who thinks two stories about your home in those hours",
        "can be brought to 73 : 27 at most by all prices ever published. Longer absences are",
        "Not covered: what you do before or after because of it (a car charged later, a house",
        "Exactly: All prices ever published shift the odds between any two stories",
        "Noise: joint over each block of steps",
        "Expected price error",
        "at any level of consumption",
        "Each release loses at most 0.2000",
        "Readings are kept for 7 days",
        "No meter reported",
        "No usable model: the constant 0.15 EUR/kWh",
        "- That no meter of the zone reports at all does not depend on any one home.",
        "Mode simulation: noise is simulated and gives no protection",
    ):
        assert words in said


def test_init_makes_the_first_block_key_and_check_looks_at_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", tmp_path) == 0
    first = tmp_path / "meters.sqlite.keys" / "first"
    out = capsys.readouterr()
    assert (str(first) in out.out, out.err) == (True, "")
    assert [path.stat().st_mode & 0o777 for path in (first, first.parent)] == [0o600, 0o700]
    file = tmp_path / "service.toml"
    file.write_text(file.read_text().replace("port = 8080", f"port = {free_port()}"))

    def remarks() -> str:
        assert run("check", file) == 0
        return capsys.readouterr().out

    assert "stores.block_keys: " not in remarks()
    first.chmod(0o640)
    first.parent.chmod(0o755)
    said = remarks()
    assert f"{first} has mode 0640" in said
    assert f"chmod 700 {first.parent}" in said
    shutil.rmtree(first.parent)
    assert f"folder {first.parent} has no key" in remarks()
    assert not first.exists(), "check writes nothing"
    file.write_text(file.read_text().replace("[stores]", '[stores]\nblock_keys = "elsewhere"'))
    assert f"folder {tmp_path / 'elsewhere'} has no key" in remarks()


@pytest.mark.parametrize("name", ["service.toml", "hushgrid.key"])
def test_init_overwrites_nothing(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    assert run("init", tmp_path) == 2
    assert "exists already" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(("seconds", "said"), [(60, 1), (1200, 1), (900, 0), (3600, 0)])
def test_check_says_where_evcc_gets_means(tmp_path: Path, seconds: int, said: int) -> None:
    made = deployment(tmp_path, service(seconds=seconds), http=Http(port=0))
    found = [one for one in examine(made).remarks if one.startswith("zone elm-street: ")]
    assert len(found) == said
    assert all(f"{seconds} s" in one and "/v1/evcc" in one for one in found)


def test_check_names_every_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, ("port = 8080", "port = 0"), ("cap = 2.0", "cap = -2.0"))
    assert run("check", path) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    first, second = caught.err.splitlines()
    assert first.startswith(f"{path}:")
    assert "http.port is 0" in first
    assert "tariff cap is -2.0" in second


def test_check_names_a_promise_no_noise_can_keep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", put(tmp_path, ("epsilon = 0.5", "epsilon = 1e-200"))) == 2
    caught = capsys.readouterr()
    assert "zone elm-street: " in caught.err
    assert len(caught.err.splitlines()) == 1


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path)
    assert run("check", path, "--json", "-") == 0
    values = json.loads(capsys.readouterr().out)
    (zone,) = values["zones"]
    assert values["mode"] == "simulation"
    assert (zone["zone"], zone["houses"], zone["secret"]) == ("elm-street", 40, "step")
    assert zone["interval_s"] == 900
    assert zone["retention_s"] == 604_800
    assert zone["epsilon_t_max"] == 0.5
    assert zone["epsilon_any"] == pytest.approx(4000 / zone["scale_min"])
    assert zone["leakage_day"] > 0.5
    assert values["ok"] is True
    assert values["problems"] == []
    assert (values["promise"]["secret"], values["promise"]["epsilon"]) == ("step", 0.5)
    assert values["plan"] == {"blocks": [], "clamp": zone["clamp"], "estimator": "filter"}
    assert {"service.key", "stores.ledger", "stores.meters"} <= {
        one["what"] for one in values["checks"]
    }


def test_ways_to_publish_are_compared_as_a_plan_compares_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (zone,) = map(whole_week, load_deployment(put(tmp_path)).zones)
    world = zone.scenario
    planned = plan(
        world.zone, world.tariff, world.models, world.consumption, secret="step", epsilon=0.5,
        terms=zone.policy, rho=None,
    ).prospect  # fmt: skip
    assert planned.best() == zone.policy.publish  # what init writes
    assert run("check", tmp_path / "service.toml", "--json", "-") == 0
    (found,) = json.loads(capsys.readouterr().out)["zones"]
    root = math.sqrt(672)
    assert found["expected_error"] == pytest.approx(planned.estimated() * root)
    assert found["forecast_error"] == pytest.approx(planned.forecast() * root)
    assert found["expected_error"] < found["forecast_error"]
    assert run("check", put(tmp_path, ('publish = "estimate"', 'publish = "raw"'))) == 0
    assert 'Publish the estimate (publish = "estimate").' in capsys.readouterr().out
    assert run("check", put(tmp_path, ("epsilon = 0.5", "epsilon = 0.01"))) == 0
    assert "Publish the forecast, which spends no budget" in capsys.readouterr().out


@pytest.mark.soak
def test_the_expected_price_error_is_the_simulated_one(tmp_path: Path) -> None:
    """Raw prices of 20 simulated days; the s.d. of a day's figure is near a tenth of it."""
    edits = (('publish = "estimate"', 'publish = "raw"'), ("beta = 0.05 ", "beta = 0.5 "))
    (zone,) = load_deployment(put(tmp_path, *edits)).zones
    found = outlook(zone)
    policy = zone.policy.first(96)
    days = [simulate(zone.scenario, policy, seed=seed).rmsre for seed in range(20)]
    assert price_error(found) == pytest.approx(float(np.sqrt(np.mean(np.square(days)))), rel=0.15)


@pytest.mark.soak
def test_leakage_of_a_day_is_that_of_the_first_day_alone(tmp_path: Path) -> None:
    (zone,) = map(whole_week, load_deployment(put(tmp_path)).zones)
    found = outlook(zone)
    assert len(found.plan.scale) == 672
    alone = temporal_leakage(zone.scenario.models, found.plan.losses[:96]).worst
    assert found.leakage_day == alone
    (promised,) = load_deployment(put(tmp_path, ('secret = "step"', 'secret = "interval"'))).zones
    found = outlook(promised)
    assert found.leakage_day is not None
    assert found.leakage_day < 0.8 * 0.5  # a week tells more about an interval than a day
    assert found.leakage == pytest.approx(0.5)
    models = whole_week(promised).scenario.models
    assert 0.45 < temporal_leakage(models, found.plan.losses).worst <= 0.5
    words = "All prices together, past and future, shift the odds"
    assert words in zone_prose(promised, found)
    assert math.isfinite(price_error(found))


# ---- init with the operator's own survey

SURVEY = Path(__file__).parents[3] / "shared/data/occupancy_survey/chains.parquet"


def diaries(folder: Path) -> Path:
    """A small table of diaries: singles and couples, by the hour, of two sources."""
    rows = [
        (source, n, day, "present", 60, slot, 0.2 + 0.01 * slot, 0.1 * n if day == "wd" else 0.05)
        for source in ("north", "south")
        for n in (1, 2)
        for day in ("wd", "we")
        for slot in range(24)
    ]
    path = folder / "diaries.csv"
    head = "source,n_residents,daytype,definition,step_min,slot,p01,p10"
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]))
    return path


def test_init_writes_the_chains_of_a_survey(tmp_path: Path) -> None:
    survey = diaries(tmp_path)
    assert run("init", tmp_path / "zone", "--survey", survey, "--mix", "1:3,2:2") == 0
    file = tmp_path / "zone" / "service.toml"
    assert [one.key for one in placeholders(file)] == ["houses[0].meters"]
    (zone,) = load_deployment(file).zones
    assert zone.promise is not None
    assert (zone.promise.secret, zone.policy.eta) == ("window", 1.0)
    assert zone.meters == tuple(f"elm-{i:04d}" for i in range(1, 6))
    wanted = survey_models(load_survey(survey), [1, 1, 1, 2, 2], seconds=900)
    assert zone.pattern is not None
    found = zone.pattern.scenario.models
    assert [one.name for one in found] == ["north present", "south present"]
    for theirs, ours in zip(wanted, found, strict=True):
        assert ours.calendar.slots.tolist() == theirs.calendar.slots.tolist()
        (here,), (there,) = ours.chains, theirs.chains
        assert here.chain_of.tolist() == there.chain_of.tolist() == [0, 0, 0, 1, 1]
        assert np.allclose(here.transition, there.transition, rtol=0, atol=1e-6)
        assert np.allclose(here.initial, there.initial, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(SURVEY, marks=pytest.mark.skipif(not SURVEY.exists(), reason="no survey")),
        "richardsonpy",
    ],
)
def test_init_reads_real_surveys(tmp_path: Path, source: Path | str) -> None:
    if source == "richardsonpy":
        pytest.importorskip("richardsonpy", reason="the extra hushgrid[survey] is not installed")
    assert run("init", tmp_path, "--survey", source) == 0
    assert [one.key for one in placeholders(tmp_path / "service.toml")] == ["houses[0].meters"]
    (zone,) = load_deployment(tmp_path / "service.toml").zones
    assert len(zone.meters) == 1000


@pytest.mark.parametrize(
    ("mix", "says"),
    [("two", "give houses by residents"), ("2:0", "at least one"), ("1:5,9:5", "there are")],
)
def test_init_writes_nothing_where_the_survey_does_not_fit(
    tmp_path: Path, mix: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = tmp_path / "zone"
    assert run("init", zone, "--survey", diaries(tmp_path), "--mix", mix) == 2
    assert says in capsys.readouterr().err
    assert run("init", zone, "--survey", tmp_path / "none.csv") == 2
    assert "none.csv does not exist" in capsys.readouterr().err
    assert run("init", zone, "--mix", mix) == 2
    assert "but survey is not set" in capsys.readouterr().err
    assert not zone.exists()
