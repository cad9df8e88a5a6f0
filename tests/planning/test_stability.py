"""`plan` and `check` print the closed loop of a zone before it goes live."""

import json

import pytest

from tests.cli.commands import EXAMPLE, hushgrid

QUICK = ("--secret", "step", "--epsilon", 1, "--no-tables", "--no-clamp", "--eta", 1)


def closed(tmp_path, more=""):
    text = EXAMPLE.read_text().replace("cap = 2.0", "cap = 2.0\n" + more)
    (tmp_path / "zone.toml").write_text(text)
    target = tmp_path / "plan.json"
    found = hushgrid("plan", "--config", tmp_path / "zone.toml", *QUICK, "--json", target)
    assert found.returncode == 0, found.stderr
    return found.stdout, json.loads(target.read_text())["loop"]


def test_a_plan_states_gain_movement_and_switching(tmp_path):
    text, loop = closed(tmp_path)
    assert "Closed loop at an elasticity of 0.1: gain 0.0" in text
    assert 0 < loop["gain"] < 0.1
    assert loop["limit"] == 1
    assert loop["movement"] == pytest.approx(0.1 * loop["noise"], rel=0.01)
    assert 20 < loop["switches"] < 48  # noise is far above the hysteresis: half of the steps


def test_smoothing_and_an_elasticity_show_in_the_plan(tmp_path):
    _, rough = closed(tmp_path)
    text, calm = closed(tmp_path, "smooth = 0.8\n[elasticity]\nreference = 0.2\nexponent = 0.5")
    assert "stable below 9" in text
    assert calm["elasticity"] == 0.5
    assert calm["switches"] < 0.6 * rough["switches"]
