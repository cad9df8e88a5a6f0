"""Files: models keep their numbers and their digest; zone files say where a mistake is."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from hushgrid import Calendar, Curve, FileError, Gamma, OccupancyModel, TruncatedNormal, operate
from hushgrid.files.results import load_model, save_model
from hushgrid.files.service_file import load_deployment
from hushgrid.files.zone_file import load_zone
from hushgrid.model.laws import Binned, Net
from hushgrid.planning.windows import most_blocks
from tests.strategies import random_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "release.toml"
E = np.array([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize("seed", range(10))
def test_models_survive_the_disk(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, _ = random_model(rng, 5, 4, largest_block=3, zeros=0.3)
    path = save_model(tmp_path / "theta.json", model, structural_zeros="a test declares them")
    back = load_model(path)
    assert (back.digest, back.n_houses, back.name) == (model.digest, 5, model.name)
    for one, two in zip(model.chains, back.chains, strict=True):
        assert (one.initial == two.initial).all()
        assert (one.transition == two.transition).all()
        assert (one.members == two.members).all()


def test_digest_can_be_recomputed_by_hand(tmp_path: Path) -> None:
    model = OccupancyModel.factored([[0.5, 0.5]], [[E]], chain_of=[0, 0])
    content = json.loads(save_model(tmp_path / "m.json", model).read_text())
    (chains,) = content["chains"]
    assert chains["members"] is None
    by_hand = hashlib.sha256(b"hushgrid-occupancy/1")
    for values, kind in (
        (content["calendar"], "<i4"),
        ([[0], [1]], "<i4"),
        (chains["chain_of"], "<i4"),
        (chains["initial"], "<f8"),
        (chains["transition"], "<f8"),
    ):
        array = np.array(values, kind)
        by_hand.update(str(array.shape).encode() + array.tobytes())
    assert by_hand.hexdigest() == content["digest"]


def test_zeros_must_be_declared(tmp_path: Path) -> None:
    model = OccupancyModel.factored([[1.0, 0.0]], [[E]])
    with pytest.raises(FileError, match="structural_zeros"):
        save_model(tmp_path / "m.json", model)
    assert not list(tmp_path.iterdir())
    path = save_model(tmp_path / "m.json", model, structural_zeros="closed at night, by law")
    content = json.loads(path.read_text())
    content["structural_zeros"] = None
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="structural_zeros"):
        load_model(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 9}, "format 9"),
        ({"digest": "00"}, "changed after it was written"),
        ({"calendar": []}, "calendar"),
        ({"chains": [{}]}, "lacks or misstates 'chain_of'"),
        ({"chains": "no"}, "lacks or misstates"),
        ({"name": None, "calendar": None}, "calendar"),
    ],
)
def test_bad_model_files(tmp_path: Path, change: dict[str, object], words: str) -> None:
    model = OccupancyModel.factored([[0.5, 0.5]], [[E]])
    path = save_model(tmp_path / "m.json", model)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileError, match=words) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    for text in ("", "[1]", "{", "\x00", '{"format": NaN}'):
        (tmp_path / "m.json").write_text(text)
        with pytest.raises(FileError):
            load_model(tmp_path / "m.json")
    (tmp_path / "m.json").write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="cannot be read"):
        load_model(tmp_path / "m.json")
    with pytest.raises(FileError, match="does not exist"):
        load_model(tmp_path / "absent.json")


def test_example_zone() -> None:
    zone = load_zone(EXAMPLE)
    assert zone.scenario.zone.n_houses == 120
    assert zone.scenario.zone.bound[[0, 89, 90]].tolist() == [2500, 2500, 4000]
    assert zone.policy.eta == 0.05
    theta = zone.scenario.models[0]
    f = zone.scenario.consumption
    assert f.law(1, 0, occupied=False) == Gamma(2.0, 20.0, 2500)
    assert f.law(4 * 6, 1, occupied=True) == Gamma(2.0, 40.0, 4000)
    assert f.law(4 * 7 + 1, 1, occupied=True) != Gamma(2.0, 40.0, 4000)
    (piece,) = theta.chains
    at = theta.calendar.slot
    assert piece.transition[at(4 * 8), 0, 1, 0] == 0.20  # workers leave on a Monday morning
    assert piece.transition[at(5 * 96 + 4 * 8), 0, 1, 0] == 0.001  # and sleep in on Saturday
    assert piece.transition[at(5 * 96 + 4 * 8), 1, 1, 0] == 0.001
    assert theta.calendar.slots.size == 7 * 96


def test_example_zones_promise_for_all_prices_together() -> None:
    for name, homes in (("zone", 1200), ("sunny", 1000)):
        path = EXAMPLE.with_name(f"{name}.toml")
        policy = tomllib.loads(path.read_text())["policy"]
        assert (policy["secret"], policy["window"]) == ("window", "P1D")
        zone = load_zone(path)
        assert zone.policy.eta == 1
        losses = most_blocks(zone.policy.schedule.lengths, 97) * zone.policy.epsilon
        assert losses == pytest.approx(1)
        assert zone.scenario.zone.n_houses == homes
    assert load_zone(EXAMPLE).secret == ""


@pytest.mark.parametrize("name", ["zone", "sunny"])
def test_example_zones_run_in_a_service(tmp_path: Path, name: str) -> None:
    text = EXAMPLE.with_name(f"{name}.toml").read_text()
    for group, count in enumerate(re.findall(r"^count = \d+", text, re.M)):
        text = text.replace(count, f'{count}\nmeters = {{ prefix = "{group}-", first = 1 }}')
    head = (Path(operate.__file__).parent / "example.toml").read_text()
    head = head[head.index("format = 1") : head.index("[publish]")].format(
        begins="2026-01-05T00:00:00Z", time_zone='"UTC"', interval="900 ", meter_interval="900 "
    )
    (tmp_path / "service.toml").write_text(head + text.replace("format = 1\n", "", 1))
    (zone,) = load_deployment(tmp_path / "service.toml").zones
    assert zone.promise is not None
    assert (zone.promise.secret, zone.promise.window) == ("window", 86_400)
    lengths = zone.policy.schedule.lengths[1:]  # the first block has begun before the service
    assert most_blocks(lengths, 97) * zone.policy.epsilon == pytest.approx(1)


def test_zone_with_a_model_file(tmp_path: Path) -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[E]], chain_of=[0] * 120)
    save_model(tmp_path / "theta.json", theta)
    text = EXAMPLE.read_text()
    text = text[: text.index("[[models]]")] + '[[models]]\nfile = "theta.json"\n'
    (tmp_path / "zone.toml").write_text(text)
    assert load_zone(tmp_path / "zone.toml").scenario.models[0].digest == theta.digest


def test_a_zone_with_a_curve(tmp_path: Path) -> None:
    """Alpha and beta are left out, or just what the curve says."""
    text = EXAMPLE.read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("alpha", "beta"))]
    curve = "[tariff.curve]\ncapacity = 100\nscarcity = [[0.3, 0.1], [0.8, 0.2], [1, 0.6]]\n"
    (tmp_path / "zone.toml").write_text("\n".join([*lines, curve]))
    tariff = load_zone(tmp_path / "zone.toml").scenario.tariff
    assert tariff.curve == Curve(scarcity=((0.3, 0.1), (0.8, 0.2), (1.0, 0.6)), capacity=100)
    assert (tariff.alpha, tariff.beta) == (pytest.approx(0.5 / 70), 0.1)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("alpha = 0.004", "alpha = -1", "tariff alpha is -1"),
        ("alpha = 0.004", 'alpha = "x"', "tariff.alpha is 'x'"),
        ("alpha = 0.004", "", "tariff.alpha is not set"),
        ("beta = 0.05", "beat = 0.05", "tariff.beat is not known"),
        ("epsilon = 0.5", "epsilon = 0", "epsilon is 0"),
        ("\neta = 0.05", "\neta = 2", "eta is 2"),
        ("count = 90", "count = 0", r"houses\[0\].count is 0"),
        ("bound = 4000", "bound = 1.5", r"houses\[1\].bound is 1.5"),
        ("bound = 4000", "", r"houses\[1\].bound is not set"),
        ('chain = "workers"', 'chain = "nobody"', r"houses\[0\].chain is 'nobody'"),
        ('law = "gamma", shape = 2.0, scale = 20.0', 'law = "beta"', r"absent.law is 'beta'"),
        ("shape = 2.0, scale = 20.0", "shape = 2.0", r"houses\[0\].absent.scale is not set"),
        ("shape = 2.0, scale = 20.0", "shape = 2.0, scale = 0", "gamma scale is 0"),
        ("shape = 2.0, scale = 20.0", "shape = 2.0, scale = 9, top = 9000", "reaches 9000 Wh"),
        ('from = "16:30"', 'from = "16:40"', "periods\\[3\\].from is '16:40'"),
        ('from = "16:30"', 'from = "09:00"', "two entries from the same time"),
        ("home_at_start = 0.95", "home_at_start = 1.5", "home_at_start is 1.5"),
        ("leave = 0.20", "leave = 0.0", "structural_zeros is not set"),
        ("[zone]", "[zoo]", "zoo is not known"),
        ('id = "elm-street"', "id = 7", "zone.id is 7"),
        ("[zone]", "[zone", "not TOML"),
        ('id = "elm-street"', 'id = "x"\ncolour = 1', "zone.colour is not known"),
        ("horizon = 96", "horizon = nan", "horizon is nan"),
        ("cap = 2.0", "cap = 2.0\ninelastic = inf", "inelastic is inf"),
        ("shape = 2.0, scale = 20.0", "shape = 2.0, scale = 9, top = inf", "top is inf"),
        ('law = "gamma", shape = 2.0, scale = 20.0', 'law = ["gamma"]', "absent.law is"),
        ('chain = "workers"', 'chain = ["workers"]', "chain is"),
        ("count = 90", "count = 1000000000000000", "below 2"),
        ('name = "survey"', 'name = "survey"\nstructural_zeros = 1', "structural_zeros is 1"),
        ("floor = 0.0", "floor = 3.0", "cap is 2.0"),
        ("count = 90", f"count = {'9' * 5000}", "not TOML"),
        (
            "cap = 2.0",
            "cap = 2.0\ncurve = { tiers = [[0, 0.05], [9, 1]] }",
            "alpha is 0.004 beside",
        ),
        ("alpha = 0.004", "curve = { tiers = 3 }", "curve tiers is no list"),
        (
            "alpha = 0.004",
            "curve = { point = [[0, 0.05], [9, 1]] }",
            "tariff.curve.point is not known",
        ),
    ],
)
def test_mistakes_in_a_zone_file_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = EXAMPLE.read_text()
    assert old in text
    path = tmp_path / "zone.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(FileError, match=words) as caught:
        load_zone(path)
    assert "\n" not in str(caught.value)


def test_a_zone_file_of_half_hours(tmp_path: Path) -> None:
    text = EXAMPLE.read_text() + "[service]\ninterval = 1800\n"
    path = tmp_path / "zone.toml"
    path.write_text(text)
    zone = load_zone(path).scenario
    theta = zone.models[0]
    assert theta.calendar.slots.size == 7 * 48
    (piece,) = theta.chains
    leaving = [piece.transition[theta.calendar.slot(t), 0, 1, 0] for t in (14, 15, 33, 34)]
    assert leaving == [0.001, 0.20, 0.02, 0.03]  # 07:00 and 16:30
    assert zone.consumption.calendar.slots.size == 48
    path.write_text(text.replace("1800", "7000"))
    with pytest.raises(
        FileError, match=r"service\.interval is 7000; give whole seconds that divide"
    ):
        load_zone(path)
    path.write_text(text.replace("16:30", "16:45"))
    with pytest.raises(FileError, match="at which a step of 1800 s begins"):
        load_zone(path)


def test_declared_zeros_in_a_zone_file(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("leave = 0.20", "leave = 0.0", 1)
    text = text.replace('name = "survey"', 'name = "survey"\nstructural_zeros = "the shop steward"')
    (tmp_path / "zone.toml").write_text(text)
    assert load_zone(tmp_path / "zone.toml").scenario.models[0].has_zeros


def test_calendar_of_a_zone_file_starts_on_monday() -> None:
    slots = load_zone(EXAMPLE).scenario.models[0].calendar.slots
    assert isinstance(slots, np.ndarray)
    assert Calendar(slots).slot(96) == 95
    assert Calendar(slots).slot(5 * 96 + 1) == 96


def exporting(tmp_path: Path, present: str, export: str = "export = 1000") -> Path:
    """The example, where the homes of the second group may export."""
    text = EXAMPLE.read_text().replace("bound = 4000\n", f"bound = 4000\n{export}\n")
    head, _, rest = text.partition("present = [")
    path = tmp_path / "sunny.toml"
    path.write_text(f"{head}present = {present}{rest.partition(']')[2]}")
    return path


def test_homes_that_export(tmp_path: Path) -> None:
    """Limits, laws and clamp of a file are in net Wh, those of the library offset."""
    sun = '{ law = "normal", centre = 400, spread = 200 }'
    use = '{ law = "gamma", shape = 2, scale = 20 }'
    laws = f"""[
  {{ from = "00:00", law = "normal", centre = -100, spread = 50 }},
  {{ from = "09:00", law = "net", consumption = {use}, solar = {sun} }},
  {{ from = "18:00", law = "bins", edges = [-200, 0, 300], weights = [1, 3] }},
]"""
    found = load_zone(exporting(tmp_path, laws))
    zone, f = found.scenario.zone, found.scenario.consumption
    assert (zone.offset, zone.bound[89], zone.bound[90], zone.export[90]) == (
        30_000,
        2500,
        5000,
        1000,
    )
    assert found.scenario.tariff.offset == 30_000
    assert found.policy.clamp == (877, 1610)
    path = tmp_path / "both.toml"
    for asked, clamp in (("[-300, 610]", (877, (700, 1610))), ("[-1000, 610]", (877, 1610))):
        path.write_text(exporting(tmp_path, laws).read_text().replace("610]", f"{asked}]"))
        assert load_zone(path).policy.clamp == clamp
    path.write_text(path.read_text().replace("-1000", "-1001"))
    with pytest.raises(FileError, match=r"policy\.clamp of class 1 begins at -1001 Wh"):
        load_zone(path)
    night, day, evening = (f.law(t, 1, occupied=True) for t in (1, 40, 80))
    assert night == TruncatedNormal(900, 50, 5000)
    assert day == Net(Gamma(2, 20, 4000), TruncatedNormal(400, 200, 1000), 1000)
    assert isinstance(evening, Binned)
    assert evening.pmf[800:1000].sum() == pytest.approx(0.25, abs=1e-3)
    assert evening.pmf[1000:1300].sum() == pytest.approx(0.75, abs=1e-3)
    absent = f.law(1, 1, occupied=False)
    assert absent.mean - 1000 == pytest.approx(Gamma(2, 25, 4000).mean)
    assert f.law(1, 0, occupied=False) == Gamma(2, 20, 2500)


@pytest.mark.parametrize(
    ("present", "export", "words"),
    [
        (
            '{ law = "uniform", top = 4001 }',
            "export = 1000",
            "reaches 4001 Wh but the bound is 4000",
        ),
        ('{ law = "uniform" }', "export = -1", r"houses\[1\].export is -1; give whole Wh"),
        (
            '{ law = "net", consumption = { law = "uniform" }, solar = { law = "uniform" } }',
            "",
            "no export limit",
        ),
        (
            '{ law = "net", consumption = { law = "uniform" },'
            ' solar = { law = "uniform", top = 2000 } }',
            "export = 1000",
            "reaches 2000 Wh but the bound is 1000",
        ),
        (
            '{ law = "uniform" }',
            "export = 1000\n[elasticity]\nreference = 1\nexponent = 1",
            "elasticity",
        ),
        ('{ law = "net", consumption = { law = "uniform" } }', "export = 1000", "solar"),
    ],
)
def test_mistakes_about_exports(tmp_path: Path, present: str, export: str, words: str) -> None:
    path = exporting(tmp_path, present, export.partition("\n")[0])
    path.write_text(path.read_text() + export.partition("\n")[2])
    with pytest.raises(FileError, match=words):
        load_zone(path)
