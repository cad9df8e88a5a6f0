"""Commands that take a zone file take a service file as well, under the service's own terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hushgrid.cli import main
from hushgrid.files.service_file import load_deployment
from hushgrid.files.weeks import whole_week
from hushgrid.lab.simulation import Mechanism, days, fold
from hushgrid.mechanism.scheduler import schedule
from hushgrid.report.paper import simulation_json
from tests.curator.setups import example

OAK = """
format = 1

[zone]
id = "oak"
[tariff]
alpha = 0.1
beta = 0.1
[policy]
epsilon = 1.0
[[houses]]
count = 2
bound = 100
meters = ["oak-1", "oak-2"]
chain = "a"
absent = {law = "uniform"}
present = {law = "uniform"}
[[models]]
[models.chains.a]
home_at_start = 0.5
periods = [{from = "00:00", leave = 0.1, come = 0.1}]
"""


def put(folder: Path, *edits: tuple[str, str]) -> Path:
    text = example(1_767_225_600)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "service.toml").write_text(text)
    return folder / "service.toml"


# a week of 336 steps
HALF_HOURLY = (('interval = "PT15M"', 'interval = "PT30M"'), ('= "PT15M"', '= "PT30M"'))


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def figures(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    capsys.readouterr()
    assert run(*arguments, "--json", "-") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.soak
def test_simulate_a_service_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, *HALF_HOURLY)
    found = figures(capsys, "simulate", "--config", path, "--days", "2", "--seed", "3")
    zone = whole_week(*load_deployment(path).zones)
    played = days(lambda _: zone.scenario, {"it": Mechanism(zone.policy)}, count=2, seed=3)
    assert found == simulation_json(fold(played), "it")


@pytest.mark.parametrize(
    "policy",
    [
        'secret = "step"',
        'secret = "interval"',
        'secret = "step"\nrho = 0.1',
    ],
)
@pytest.mark.sampled
def test_plan_a_service_file_as_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    path = put(tmp_path, ('secret = "step"', policy))
    zone = whole_week(*load_deployment(path).zones)
    assert zone.promise is not None
    found = figures(capsys, "plan", "--config", path, "--no-tables")
    s = zone.scenario
    scales = [c.scale for c in schedule(s.models, s.zone, s.consumption, zone.policy)]
    assert (found["secret"], found["epsilon"]) == (zone.promise.secret, zone.promise.epsilon)
    assert found["eta"] == 0.05
    assert found["scale"] == pytest.approx(scales)
    assert tuple(found["clamp"] or ()) == zone.policy.clamp
    other = figures(
        capsys, "plan", "--config", path, "--secret", "step", "--epsilon", "2", "--no-tables"
    )
    assert (other["secret"], other["epsilon"]) == ("step", 2.0)


@pytest.mark.soak
def test_a_trace_of_a_service_can_be_attacked_and_holds_no_service_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, trace = put(tmp_path, *HALF_HOURLY), tmp_path / "day.trace"
    assert run("simulate", "--config", path, "--days", "1", "--trace", trace) == 0
    assert "ledger" not in trace.read_text()
    assert run("attack", trace, "--target", "0") == 2
    assert "give it with --config" in capsys.readouterr().err
    found = figures(capsys, "attack", trace, "--config", path, "--model", path, "--target", "0")
    assert found["log_loss"] > 0


def test_one_of_several_zones_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "oak.toml").write_text(OAK)
    path = put(tmp_path, ('key = "hushgrid.key"', 'key = "k"\nzones = ["oak.toml"]'))
    for command in (["simulate", "--days", "1"], ["plan", "--no-tables"]):
        assert run(*command, "--config", path) == 2
        said = capsys.readouterr().err
        assert said.endswith("has 2 zones; give one of elm-street, oak with --zone.\n")
        assert run(*command, "--config", path, "--zone", "ash") == 2
        assert "zone is 'ash' but" in capsys.readouterr().err
        assert run(*command, "--config", path, "--zone", "oak") == 0
    capsys.readouterr()
    assert run("plan", "--config", tmp_path / "oak.toml", "--zone", "elm", "--no-tables") == 2
    assert "is of zone 'oak'" in capsys.readouterr().err


def test_real_readings_are_compared_under_the_patterns_of_a_service_file(tmp_path: Path) -> None:
    """Patterns of a week from Monday, as real days need them, not laid over its first steps."""
    from hushgrid.cli.compare import ZoneModel
    from hushgrid.files.zone_file import load_zone

    path = put(tmp_path)
    text = path.read_text()
    zone = tmp_path / "zone.toml"
    zone.write_text("format = 1\n" + text[text.index("[zone]") :])
    found = ZoneModel.read(path, None)
    assert found.scenario is not None
    alone = load_zone(zone).scenario
    assert found.scenario.models[0].digest == alone.models[0].digest
    assert found.scenario.consumption.calendar.slots.size == 96
    assert (found.seconds, found.time_zone, len(found.meters)) == (900, "Europe/Zurich", 40)
