"""Files without a model: laws of the load shape, every home protected, and what is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from hushgrid.curator.promise import outlook
from hushgrid.errors import FileError
from hushgrid.files.laws import load_shape
from hushgrid.files.service_file import load_deployment
from hushgrid.files.zone_file import load_zone
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.scheduler import schedule
from hushgrid.model.consumption import LoadShape
from hushgrid.operate.template import (
    WINDOWS,
    NewZone,
    chosen_window,
    example,
    planned_errors,
)
from hushgrid.report.outlook import price_error
from tests.curator.setups import BEGINS
from tests.files.leaves import leaves

LAWS = """absent = { law = "uniform" }
present = { law = "uniform" }
"""
CHAIN = """chain = "all"
[[models]]
[models.chains.all]
home_at_start = 0.5
periods = [{ from = "00:00", leave = 0.1, come = 0.1 }]
"""


def put(folder: Path, *edits: tuple[str, str], end: str = "") -> Path:
    text = example(BEGINS, 30)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "service.toml"
    path.write_text(text + end)
    return path


def test_the_file_of_init_is_small_and_has_a_port() -> None:
    content = tomllib.loads(example(BEGINS, 600))
    assert content["http"]["port"] == 8080
    assert leaves(content) <= 25
    assert not {"models", "learned"} & set(content)


@pytest.mark.parametrize("homes", [30, 600, 10_000])
def test_prices_lie_within_floor_and_cap(homes: int) -> None:
    content = tomllib.loads(example(BEGINS, homes))
    tariff, usual = content["tariff"], homes * content["policy"]["usual"] / 1000
    assert tariff["beta"] + tariff["alpha"] * usual == pytest.approx(0.15, rel=0.05)
    assert tariff["beta"] + tariff["alpha"] * 5 * usual < tariff["cap"]


def test_the_longest_window_that_costs_little_is_chosen(tmp_path: Path) -> None:
    errors = {"P1D": 0.04, "P3D": 0.06, "P7D": 0.0801, "P14D": 0.07}
    assert chosen_window(errors) == "P14D"
    assert chosen_window(errors | {"P14D": 0.09}) == "P3D"
    assert chosen_window(dict.fromkeys(WINDOWS, 0.5)) == "P1D"
    text = example(BEGINS, 30, errors)
    assert 'window = "P14D"' in text
    assert "P1D 4.0 %, P3D 6.0 %, P7D 8.0 %, P14D 7.0 %" in text
    assert "# chosen: the longest with at most 8 %" in text
    text_of_none = example(BEGINS, 30, dict.fromkeys(WINDOWS, 0.0841))
    assert 'window = "P1D"' in text_of_none
    assert "# chosen: the shortest: none is below 8 %" in text_of_none
    (tmp_path / "service.toml").write_text(text)
    (zone,) = load_deployment(tmp_path / "service.toml", planned=False).zones
    assert zone.promise is not None
    assert zone.promise.window == 14 * 86_400


def test_the_comment_says_what_check_announces(tmp_path: Path) -> None:
    errors = planned_errors(NewZone(1000))
    assert list(errors) == list(WINDOWS)
    assert sorted(errors.values()) == list(errors.values()), "a longer window costs more"
    path = tmp_path / "service.toml"
    for name in ("P1D", "P14D"):
        path.write_text(example(BEGINS, 1000).replace('window = "P1D"', f'window = "{name}"'))
        (zone,) = load_deployment(path).zones
        assert price_error(outlook(zone)) == pytest.approx(errors[name], rel=0.01)


def test_every_home_is_protected_at_every_step(tmp_path: Path) -> None:
    """Noise is reach over loss in every block, though the shape's laws tell nothing apart."""
    (zone,) = load_deployment(put(tmp_path)).zones
    policy, scenario = zone.policy, zone.scenario
    assert isinstance(policy.schedule, Blocks)
    assert (policy.estimator, policy.publish, policy.eta) == ("releases", "estimate", 1.0)
    (clamp,) = policy.clamp
    found = schedule(scenario.models, scenario.zone, scenario.consumption, policy)
    assert len(found) == policy.horizon
    for t, calibration in enumerate(found, 1):
        assert len(calibration.protected) == 30
        assert calibration.scale == pytest.approx(clamp / policy.epsilon_at(t), rel=1e-6)


def test_laws_follow_the_shape_by_local_time(tmp_path: Path) -> None:
    pattern = load_deployment(put(tmp_path), planned=False).zones[0].pattern
    assert pattern is not None
    f, shape = pattern.scenario.consumption, LoadShape()
    for t in (1, 30, 71, 5 * 96 + 40, 7 * 96):
        middle = (t - 1) * 900 + 450
        away, home = (f.law(t, 0, occupied=occupied) for occupied in (False, True))
        assert away == home
        law = shape.law(94.0 * float(shape.week(middle)), 2500)
        assert away.mean == pytest.approx(law.mean, rel=0.006)
        assert away.top == 2500


def test_a_shape_of_a_file_replaces_the_public_one(tmp_path: Path) -> None:
    night = [4, *[1] * 23]
    (tmp_path / "shape.toml").write_text(
        f'format = 1\nprovenance = "a table"\nworkday = {night}\nweekend = {night}\nhomes = 0.3\n'
    )
    shape = load_shape(tmp_path / "shape.toml")
    assert shape == LoadShape(workday=tuple(night), weekend=tuple(night), homes=0.3)
    path = put(tmp_path, ('id = "elm-street"', 'id = "elm-street"\nshape = "shape.toml"'))
    pattern = load_deployment(path, planned=False).zones[0].pattern
    assert pattern is not None
    f = pattern.scenario.consumption
    means = np.array([f.law(t, 0, occupied=True).mean for t in range(1, 97)])
    assert means.argmax() in (1, 2)
    # the middle of a quarter hour is an eighth of an hour from that of its hour
    assert means.max() == pytest.approx(94 * (4 - 3 / 8) * 24 / 27, rel=0.03)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workday = [1]", "shape.toml:1: load shape workday is not 24 numbers"),
        ("evenings = 3", "evenings"),
        ('homes = "many"', "homes"),
        ("provenance = 'private readings'", "provenance is 'private readings'"),
        ("", "provenance is not set"),
    ],
)
def test_wrong_shapes_are_refused(tmp_path: Path, text: str, says: str) -> None:
    origin = "" if "provenance" in text or not text else '\nprovenance = "a table"'
    (tmp_path / "shape.toml").write_text(f"format = 1{origin}\n{text}\n")
    with pytest.raises(FileError, match=re.escape(says.removeprefix("shape.toml:1: "))):
        load_shape(tmp_path / "shape.toml")
    path = put(tmp_path, ('id = "elm-street"', 'id = "elm-street"\nshape = "shape.toml"'))
    with pytest.raises(FileError, match="shape"):
        load_deployment(path, planned=False)


@pytest.mark.parametrize(
    ("edits", "end", "says"),
    [
        (
            [('secret = "window"', 'secret = "interval"'), ('window = "P1D"\n', "")],
            "",
            "models is not set but policy.secret is 'interval', which speaks of occupancy;"
            " give [[models]], or the secret window, which needs none.",
        ),
        (
            [('secret = "window"', 'secret = "step"'), ('window = "P1D"\n', "")],
            "",
            "models is not set but policy.secret is 'step'",
        ),
        ([("usual = 94.0", "# ")], "", "policy.usual is not set and houses have no laws"),
        ([], LAWS.splitlines()[0] + "\n", "houses[0].present is not set; give laws for"),
        (
            [],
            f'{LAWS}[[houses]]\ncount = 1\nbound = 9\nmeters = ["x"]\n',
            "houses[1].absent is not set but other houses have laws",
        ),
        ([("epsilon = 1.0", "epsilon = 1.0\neta = 0.5")], "", "policy.eta is 0.5"),
    ],
)
def test_what_needs_a_model_is_refused_with_one_sentence(
    tmp_path: Path, edits: list[tuple[str, str]], end: str, says: str
) -> None:
    with pytest.raises(FileError) as caught:
        load_deployment(put(tmp_path, *edits, end=end), planned=False)
    (line,) = str(caught.value).splitlines()
    assert says in line


def test_a_model_may_be_given_and_then_other_promises_too(tmp_path: Path) -> None:
    edits = [('secret = "window"', 'secret = "interval"'), ('window = "P1D"\n', "")]
    (zone,) = load_deployment(put(tmp_path, *edits, end=CHAIN), planned=False).zones
    assert zone.promise is not None
    assert zone.promise.secret == "interval"
    (zone,) = load_deployment(put(tmp_path, end=LAWS + CHAIN), planned=False).zones
    assert zone.promise is not None
    assert zone.promise.secret == "window"


def test_a_group_has_as_many_houses_as_it_lists_meters(tmp_path: Path) -> None:
    edits = [("count = 30\n", ""), ('{ prefix = "elm-" }', '["a", "b", "c"]')]
    (zone,) = load_deployment(put(tmp_path, *edits), planned=False).zones
    assert zone.meters == ("a", "b", "c")
    assert zone.scenario.zone.n_houses == 3


def test_a_zone_file_needs_no_model_either(tmp_path: Path) -> None:
    text = example(BEGINS, 30)
    path = tmp_path / "zone.toml"
    path.write_text(f"format = 1\n{text[text.index('[zone]') :]}")
    zone = load_zone(path)
    assert zone.policy.schedule.lengths
    assert zone.scenario.zone.n_houses == 30
