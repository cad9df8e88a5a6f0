"""hushgrid learn with a table of roofs: registers of panels, and zones of both kinds of homes."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid.errors import FileError, IntakeError, ModelError
from hushgrid.files.readings import read_roofs
from hushgrid.files.zone_file import load_zone
from hushgrid.learning.evaluation import (
    PublishedGroup,
    forecast_errors,
    law_of_table,
    two_states,
)
from hushgrid.learning.habits import Habits, assumed_habits, stationary
from hushgrid.learning.histories import Histories, Roof, ailments, netted, of_months, split_roofs
from hushgrid.learning.learner import LearningTerms, learn, split_held_out
from hushgrid.learning.pools import dependence
from tests.learning.homes import BEGINS, SHOWN, lived_in
from tests.learning.options import learn_words, main

LIMIT, DAYS = 700, 8
HOUR = (SHOWN[: DAYS * 48] % 86_400) / 3600


def consumed_and_generated(homes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    wh = lived_in(homes, 3)[0][:, : DAYS * 48]
    height = np.clip(np.sin((HOUR - 6) / 12 * np.pi), 0, None) * (HOUR > 6) * (HOUR < 18)
    bright = np.repeat(rng.uniform(0.4, 1, DAYS), 48)
    return wh, np.tile(np.rint(650 * height * bright), (homes, 1))


def meters(**rows: np.ndarray) -> Histories:
    wh = np.array(list(rows.values()), float)
    return Histories(tuple(rows), wh, 1800, BEGINS, SHOWN[: wh.shape[1]], {})


def test_homes_are_split_by_what_counts_their_energy() -> None:
    found = meters(
        a=[5, 6], b=[-3, 4], c=[7, 0], c_out=[0, np.nan], d=[-2, 3], d_sun=[9, 1]
    )  # fmt: skip
    roofs = {"b": Roof(10), "c": Roof(10, "c_out"), "d": Roof(10, "", "d_sun")}
    plain, net, two, generated = split_roofs(found, roofs)
    assert [part.ids for part in (plain, net, two, generated)] == [("a",), ("b",), ("c",), ("d",)]
    assert [part.export for part in (plain, net, two, generated)] == [0, 10, 10, 10]
    assert (plain.solar, net.solar) == (None, None)
    assert net.wh.tolist() == [[-3, 4]]
    assert (two.wh[0, 0], two.solar[0, 0]) == (7, 0)  # type: ignore[index]
    assert np.isnan(two.wh[0, 1]), "a step that one register lacks is missing"
    assert generated.wh.tolist() == [[7, 4]], "consumption is net plus generation"
    assert netted(generated).wh.tolist() == [[-2, 3]]
    assert split_roofs(found, {}) == (found,)
    with pytest.raises(IntakeError, match="'x', which has no readings"):
        split_roofs(found, {"x": Roof(10)})


@pytest.mark.parametrize("generated", [True, False])
def test_net_laws_are_what_is_taken_less_the_solar_part(generated: bool) -> None:
    wh, sun = consumed_and_generated(1)
    net = wh - sun
    taken, solar = (wh, sun) if generated else (np.maximum(net, 0), np.maximum(-net, 0))
    found = Histories(
        ("m",), taken, 1800, BEGINS, SHOWN[: taken.shape[1]], {}, export=LIMIT, solar=solar,
        generated=generated,
    )  # fmt: skip
    terms = LearningTerms(law="lognormal", prototypes=1, groups=(8,), iterations=8)
    result = learn(found, assumed_habits(1800), terms)
    (one,) = result.public
    assert result.family == "lognormal"
    absent, present = one.laws(result.top)
    for g in range(8):
        here = g == HOUR // 3
        part = law_of_table(one.present[g]["solar"], LIMIT)
        assert part.mean == pytest.approx(solar[:, here].mean(), abs=0.03 * LIMIT)
        low, high = absent[g].mean - LIMIT, present[g].mean - LIMIT
        assert low - 40 <= net[:, here].mean() <= high + 40
    # of two registers, an empty home takes less at noon; its consumption knows no time of day
    empty = [law_of_table(table["consumption"], 5000).mean for table in one.empty]
    assert (empty[4] == empty[0]) is generated


def test_dependence_is_counted_within_slot_groups_alone() -> None:
    day = np.arange(48)
    taken = np.where(day < 24, 1.0, 9.0) + day % 2
    found = Histories(
        ("m",),
        taken[None],
        1800,
        BEGINS,
        np.arange(48) * 1800,
        {},
        solar=np.where(day < 24, 5, 0.0)[None],
    )
    assert dependence(found, (0, 12)) == 0
    assert dependence(found, (0,)) < -0.9


def test_pools_of_homes_with_panels_are_refused() -> None:
    wh, sun = consumed_and_generated(1)
    found = Histories(("m",), wh, 1800, BEGINS, SHOWN[: wh.shape[1]], {}, export=9, solar=sun)
    with pytest.raises(ModelError, match="pool budget"):
        learn(found, assumed_habits(1800), LearningTerms(law="lognormal"), pooled=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("meter_id\na\n", "no column 'export'"),
        ("meter_id,export,size\na,1,2\n", "a column 'size'"),
        ("meter_id,export\na,-4\n", "row 1 of .* is no home with panels"),
        ("meter_id,export,export_meter\na,4,b\nb,4,c\n", "row 2 of .* names meter 'b' again"),
        ("meter_id,export\n", "has no rows"),
    ],
)
def test_tables_of_roofs_that_cannot_be(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "roofs.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=words):
        read_roofs(path)


def test_a_season_is_all_that_is_known() -> None:
    """Days 0 to 3 and 12 to 15 are of the season: a winter in one year of readings."""
    steps = 20 * 48
    wh = lived_in(2, 3)[0][:, :steps]
    month = np.repeat(np.where(np.isin(np.arange(20) // 4, (0, 3)), 12, 6), 48)
    solar = np.ones_like(wh)
    labels = np.ones(wh.shape, np.int8)
    every = Histories(
        ("a", "b"), wh, 1800, BEGINS, SHOWN[:steps], {}, labels, export=9, solar=solar
    )
    found = of_months(replace(every, month=month), {12, 1})
    assert found.wh.shape[1] == 16 * 48
    assert np.array_equal(found.wh[:, found.inside], wh[:, month == 12])
    assert np.isnan(found.wh[:, ~found.inside]).all()
    assert np.isnan(found.solar[:, ~found.inside]).all()  # type: ignore[index]
    assert set(found.labels[:, ~found.inside].ravel()) == {-1}  # type: ignore[index]
    assert not any("gaps" in home for home in ailments(found))
    plain = replace(found, solar=None, export=0)
    twice = replace(plain, wh=np.hstack([plain.wh] * 3), local_time=np.tile(plain.local_time, 3))
    twice = replace(twice, labels=None, outside=np.tile(plain.outside, 3))  # type: ignore[arg-type]
    early, late = split_held_out(twice) or (None, None)
    assert early is not None
    assert late is not None
    known = [np.isfinite(part.wh[0]).sum() // 48 for part in (early, late)]
    assert known == [18, 6], "a quarter of the season's days, not of the year's"
    for months, words in (((), "months are"), ((13,), "months are .13."), ((3,), "no day of them")):
        with pytest.raises(IntakeError, match=words):
            of_months(replace(every, month=month), months)


def test_errors_of_a_forecast_are_of_the_season_alone() -> None:
    wh = np.tile(lived_in(1, 3)[0][:, : 7 * 48], 3)
    local = np.tile(SHOWN[: 7 * 48], 3)
    found = Histories(("a",), wh, 1800, BEGINS, local, {})
    a = two_states(assumed_habits(1800).moves(1.0))
    two = Habits(a, stationary(a), "assumed")
    flat = {"law": "uniform"}
    group = PublishedGroup(two, flat, (flat,), (0,), 1)
    asked = ((group,), np.zeros(1, np.intp), 500)
    outside = np.arange(wh.shape[1]) >= 14 * 48
    other = replace(found, wh=np.where(outside, np.nan, wh), outside=outside)
    part = found.steps(slice(0, 14 * 48))
    assert forecast_errors(part, other, *asked) == forecast_errors(part, part, *asked)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with readings of all meters, those of two homes without panels, and roofs."""
    wh, sun = (values[:, : 4 * 48] for values in consumed_and_generated(4))
    net = wh - sun
    rows = {
        "plain-0": wh[0], "plain-1": wh[1], "roof": np.maximum(net[2], 0),
        "roof-out": np.maximum(-net[2], 0), "signed": net[3],
    }  # fmt: skip
    for file, names in (("all.csv", list(rows)), ("plain.csv", list(rows)[:2])):
        lines = [
            f"{name},{np.datetime64(BEGINS + 1800 * t, 's')}Z,1800,{int(x)}"
            for name in names
            for t, x in enumerate(rows[name])
        ]
        (tmp_path / file).write_text("\n".join(["meter_id,start_utc,duration_s,wh", *lines]))
    head, roof = "meter_id,export,export_meter", f"roof,{LIMIT},roof-out"
    (tmp_path / "roofs.csv").write_text(f"{head}\n{roof}\nsigned,{LIMIT},\n")
    return tmp_path


def learned(folder: Path, file: str, out: str, *more: str) -> tuple[dict, dict]:
    """The zone file and model.json that a run writes."""
    asked = ["--no-figures", "--law", "lognormal", "--groups", "4", "--prototypes", "1"]
    given = ["--readings", str(folder / file), "--out", str(folder / out)]
    assert main(learn_words("learn", *given, *asked, *more)) == 0
    text = (folder / out / "zone.toml").read_text()
    return tomllib.loads(text), json.loads((folder / out / "model.json").read_text())


def test_one_run_learns_a_zone_of_both_kinds(written: Path) -> None:
    more = ["--roofs", str(written / "roofs.csv"), "--json", str(written / "v.json")]
    zone, model = learned(written, "all.csv", "out", *more)
    apart, before = learned(written, "plain.csv", "apart")
    first, second, third = zone["houses"]
    assert [first] == apart["houses"], "homes without panels are as in a run of their own"
    assert model["prototypes"] == before["prototypes"]
    assert (second["meters"], second["export_meters"]) == (["roof"], ["roof-out"])
    assert (third["meters"], "export_meters" in third) == (["signed"], False)
    assert (second["present"][2]["law"], third["absent"][2]["law"]) == ("net", "bins")
    made = load_zone(written / "out" / "zone.toml").scenario
    law = law_of_table(model["more"][0]["prototypes"][0]["present"][2], 5000 + LIMIT)
    assert np.array_equal(made.consumption.law(25, 1, occupied=True).pmf, law.pmf)
    values = json.loads((written / "v.json").read_text())
    assert [one["houses"] for one in values["parts"]] == [2, 1, 1]
    assert [one.get("solar", {}).get("register") for one in values["parts"]] == [
        None, "export", None,
    ]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("netted", [False, True])
def test_a_zone_of_both_kinds_is_checked_by_its_registers(
    written: Path, capsys: pytest.CaptureFixture[str], netted: bool
) -> None:
    more = ["--roofs", str(written / "roofs.csv"), *(["--net-laws"] if netted else [])]
    zone, model = learned(written, "all.csv", "out", *more, "--months", "1,2")
    assert zone["learned"]["months"] == model["months"] == [1, 2]
    assert ["solar" in kind for kind in model["more"]] == [not netted, False]
    capsys.readouterr()
    out = str(written / "out")
    assert main(["model", "validate", out, "--readings", str(written / "all.csv")]) == 0
    assert capsys.readouterr().out.count("0 drifted") == 3
    assert main(["model", "validate", out, "--readings", str(written / "plain.csv")]) == 0
    assert main(["model", "show", out]) == 0
    assert ("assumed independent of occupancy" in capsys.readouterr().out) is not netted
    assert main(["model", "compare", out, out]) == 2
