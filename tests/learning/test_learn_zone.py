"""hushgrid learn from readings to a zone that other commands take, and bad input on the way."""

from __future__ import annotations

import json
import re
import tomllib
from csv import writer
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid.curator.promise import outlook
from hushgrid.errors import FileError, IntakeError, ModelError, PolicyError
from hushgrid.files.learn_file import LearnTable, load_learn
from hushgrid.files.readings import _has_whole_lines, read_histories
from hushgrid.files.service_file import load_deployment
from hushgrid.files.zone_file import load_zone
from hushgrid.intake.readings import Readings
from hushgrid.learning import export
from hushgrid.learning.evaluation import (
    check_law,
    clopper_pearson,
    estimate_trust,
    marginal_scores,
)
from hushgrid.learning.export import ZoneChoices, export_models, operator_figures
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import (
    Axis,
    ailments,
    axis_of,
    can_be_fitted,
    for_meters,
    histories_of,
    vacant_days,
    with_labels,
)
from hushgrid.learning.learner import LearningTerms, learn
from hushgrid.learning.weeks import welch
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.model.laws import LogNormal, Mixture, Uniform
from hushgrid.operate.template import example
from hushgrid.report.learn import learned_content, learned_prose, learned_values
from hushgrid.report.outlook import price_error
from tests.curator.setups import service_text
from tests.files.leaves import leaves
from tests.learning.homes import BEGINS, STEPS, columns, csv, histories, lived_in, public, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("learned")
    wh, _ = lived_in(16)
    csv(root / "readings.csv", wh)
    asked = ["--readings", str(root / "readings.csv"), "--law", "lognormal", "--prototypes", "2"]
    out = ["--out", str(root / "zone"), "--json", str(root / "zone.json")]
    assert run("learn", *asked, *out) == 0
    return root


def documented(column: int) -> set[str]:
    """The files that docs/learn.md says are written: 1 from readings, 2 from a survey alone."""
    text = (Path(__file__).parents[2] / "docs" / "learn.md").read_text()
    rows = [line.split("|")[1:-1] for line in re.findall(r"^\| `.*\|$", text, re.M)]
    rows = [row for row in rows if len(row) > 2 and row[1].strip() in ("yes", "no")]
    assert len(rows) == 7
    return {name for row in rows if row[column].strip() == "yes"
            for name in re.findall(r"`([^`]+)`", row[0])}  # fmt: skip


def test_the_guide_states_the_defaults(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "learn.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)
    file = tmp_path / "learn.toml"
    file.write_text(block)
    assert load_learn(file) == load_learn(None) == LearnTable()
    unset = re.findall(r"^Keys without a value of their own: (.*)$", text, re.M)[0]
    stated = {*tomllib.loads(block)["learn"], *re.findall(r"`(\w+)`", unset)}
    assert stated == {one.name for one in fields(LearnTable)}
    file.write_text("[learn]\nlaws = 'gamma'\n[policy]\n")
    with pytest.raises(FileError, match=r"learn\.laws is not known; did you mean law\?"):
        load_learn(file)


def test_learn_writes_what_its_guide_says(folder: Path, tmp_path: Path) -> None:
    assert {path.name for path in (folder / "zone").iterdir()} == documented(1)
    given = columns()
    rows = zip(*given.values(), strict=True)
    survey = tmp_path / "chains.csv"
    survey.write_text("\n".join([",".join(given), *(",".join(map(str, row)) for row in rows)]))
    out = tmp_path / "zone"
    asked = ["--survey", str(survey), "--mix", "2:3", "--begins", "2026-01-05", "--out", str(out)]
    assert run("learn", *asked) == 0
    assert {path.name for path in out.iterdir()} == documented(2)
    assert run("check", str(out / "service.toml")) == 0
    (zone,) = load_deployment(out / "service.toml").zones
    assert (zone.begins, len(zone.meters)) == (1_767_571_200, 3)
    policy = zone.policy  # what docs/operations.md says a first real zone needs
    assert (policy.eta, policy.publish, policy.estimator) == (1.0, "estimate", "releases")
    assert policy.usual == 94.2
    assert policy.schedule.lengths, "noise lasts blocks of steps"
    assert policy.clamp
    tariff, announced = zone.scenario.tariff, outlook(zone).plan.prospect
    assert announced.load == pytest.approx(3 * 94.2), "errors are relative to the usual load"
    assert tariff.alpha * 3 * 94.2 / 1000 == pytest.approx(0.1, rel=0.05)
    assert zone.promise is not None
    assert (zone.promise.secret, zone.promise.window) == ("window", 86_400)
    content = tomllib.loads((out / "service.toml").read_text())
    assert content["policy"] == {"secret": "window", "window": "P1D", "epsilon": 1.0, "usual": 94.2}
    assert content.keys() - tomllib.loads(example(0)).keys() == {"models"}
    assert leaves(content) <= 25
    meters = tmp_path / "meters.txt"
    meters.write_text("hall\nmill\ninn\n")
    listed = ["--no-figures", "--meters", str(meters), "--out", str(tmp_path / "listed")]
    assert run("learn", *asked, *listed) == 0
    (zone,) = load_deployment(tmp_path / "listed" / "service.toml").zones
    assert zone.meters == ("hall", "mill", "inn"), "no hand work before readings come"


def test_a_learned_zone_goes_through_the_other_commands(folder: Path) -> None:
    values = json.loads((folder / "zone.json").read_text())
    assert values["houses"] == 16
    assert values["provenance"] == "private"
    assert "log_likelihood" in values
    zone = load_zone(folder / "zone" / "zone.toml")
    assert zone.seconds == 1800
    assert zone.scenario.zone.n_houses == 16
    assert zone.learned.private
    config = str(folder / "zone" / "zone.toml")
    assert run("simulate", "--config", config, "--days", "1") == 0
    assert run("plan", "--config", config, "--no-tables", "--secret", "step") == 0
    assert sorted(zone.meters) == [f"m{i:03d}" for i in range(16)]
    page = (folder / "zone" / "report.html").read_text()
    assert page.count("data:image/png") == 2
    assert "prefers-color-scheme:dark" in page
    assert "http" not in page.replace("https://", "http://").split("<img")[0]


def test_a_model_of_readings_without_noise_is_for_experiments(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No service file, no digest and no verdict; a service that names it is refused."""
    zone = folder / "zone"
    assert json.loads((folder / "zone.json").read_text())["verdict"] is None
    assert not (zone / "service.toml").exists()
    assert tomllib.loads((zone / "zone.toml").read_text())["learned"]["digest"] == ""
    text = service_text("2013-02-01T00:00:00Z", interval="PT30M").split("[zone]")[0]
    (zone / "own.toml").write_text(text.replace('key = "key"', 'key = "k"\nzones = ["zone.toml"]'))
    assert run("check", str(zone / "own.toml")) == 2
    said = capsys.readouterr().err
    (zone / "own.toml").unlink()
    assert "learned.provenance is 'private'; all that they shape would reveal" in said
    assert "models[0].provenance is 'private, by hushgrid learn'" in said
    assert "hushgrid learn --pool-budget" in said


@pytest.mark.soak
def test_model_commands(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned = str(folder / "zone")
    assert run("model", "show", learned, "--json", "-") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["houses"] == 16
    assert len(shown["prototypes"]) == 2
    assert run("model", "compare", learned, learned, "--json", "-") == 0
    assert all(row["laws"] < 1e-9 for row in json.loads(capsys.readouterr().out)["groups"])
    wh, _ = lived_in(16, seed=1)
    same = csv(tmp_path / "same.csv", wh[:, : 14 * 48], BEGINS)
    assert run("model", "validate", learned, "--readings", str(same), "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["drifted"] == []
    wh[3] *= 4  # a heat pump came
    new = np.concatenate([wh, wh[:1]])
    later = csv(tmp_path / "later.csv", new[:, : 14 * 48], BEGINS + 28 * 86_400)
    asked = ["--readings", str(later), "--json", "-"]
    assert run("model", "validate", learned, *asked) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["drifted"] == ["m003"]
    assert told["new_homes"] == ["m016"]


@pytest.mark.soak
def test_a_pooled_model_is_charged(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    asked = ["--readings", str(folder / "readings.csv"), "--pool-budget", "3", "--bound", "5000"]
    asked += ["--groups", "24"]
    out = ["--out", str(tmp_path), "--no-figures", "--json", str(tmp_path / "x.json")]
    asked += public(tmp_path)
    assert run("learn", *asked, *out) == 0
    values = json.loads((tmp_path / "x.json").read_text())
    assert (values["provenance"], values["epsilon_spent"]) == ("pooled", 3.0)
    assert values["held_out"]["noise"]
    assert len(values["starts"]) == 24  # no reading decides how many
    assert run("learn", *asked[:6], *public(tmp_path), "--no-figures", "--out", str(bare)) == 0
    assert len(json.loads((bare / "model.json").read_text())["starts"]) == 4
    for name in ("service.toml", "theta.json"):
        text = (tmp_path / name).read_text()
        assert f"{values['held_out']['log_likelihood']:.4f}" not in text  # -11 may be in a date
        assert "held" not in text
    service = tmp_path / "service.toml"
    (zone,) = load_deployment(service).zones
    assert zone.learned.epsilon == 3.0
    assert zone.promise is not None
    assert (zone.promise.secret, zone.promise.epsilon) == ("window", 3.0)
    assert zone.learned.first_reading < zone.learned.last_reading <= zone.begins
    content = tomllib.loads(service.read_text())
    assert list(content["policy"]) == ["secret", "window", "epsilon", "usual"]
    assert content.keys() - tomllib.loads(example(0)).keys() == {"models", "learned"}
    del content["learned"]  # a record of what the models cost
    assert leaves(content) - len(content["houses"][0]["meters"]) <= 25


@pytest.mark.soak
def test_a_large_pool_has_a_part_in_the_estimate(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its laws are in the file, and the estimate weighs them against past prices."""
    monkeypatch.setattr(export, "ENOUGH", 500)
    asked = ["--readings", str(folder / "readings.csv"), "--pool-budget", "50", "--bound", "5000"]
    assert run("learn", *asked, "--no-figures", "--out", str(tmp_path), *public(tmp_path)) == 0
    content = tomllib.loads((tmp_path / "service.toml").read_text())
    (houses,) = content["houses"]
    assert len(houses["present"]) == 4
    (zone,) = load_deployment(tmp_path / "service.toml").zones
    assert (zone.policy.estimator, zone.policy.publish) == ("filter", "estimate")
    assert zone.promise is not None
    assert zone.promise.secret == "window"
    assert len(zone.scenario.consumption.laws) == 5, "the laws of the pool, not of the load shape"


@pytest.mark.soak
def test_a_pool_that_is_mostly_noise_has_no_part_in_prices(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its forecast may be off by anything: the file has the usual load, and the report says so."""
    asked = ["--readings", str(folder / "readings.csv"), "--pool-budget", "1", "--bound", "5000"]
    assert run("learn", *asked, "--no-figures", "--out", str(tmp_path), *public(tmp_path)) == 0
    told = capsys.readouterr().out
    (zone,) = load_deployment(tmp_path / "service.toml").zones
    usual = zone.policy.usual
    assert (zone.policy.estimator, usual) == ("releases", 188.4)
    (houses,) = tomllib.loads((tmp_path / "service.toml").read_text())["houses"]
    assert not {"absent", "present"} & set(houses), "no law of the pool's noise"
    assert "drowns what it says of loads" in told
    announced = price_error(outlook(zone))
    last = told.split("\n\nWritten")[0].splitlines()[-1]
    assert f"the usual load alone, is off by {announced:.0%}" in last
    assert zone.scenario.tariff.alpha * 16 * usual / 1000 == pytest.approx(0.1, rel=0.05)


@pytest.mark.soak
def test_recovery_with_labels_gives_an_eta_above_the_truth() -> None:
    """A true model is misdescribed nowhere: the bound is positive, and small with many days."""
    wh, home = lived_in(12, seed=5)
    found = learn(
        histories(wh, home), assumed_habits(1800), LearningTerms(law="histogram", prototypes=1)
    )
    assert found.accuracy["without_labels"]["all"] > 0.87  # quiet and away look the same
    assert found.trust.upper is not None
    assert 0 < found.trust.upper < 0.6
    assert found.trust.lower < 0.2
    bare = learn(histories(wh), assumed_habits(1800), LearningTerms(law="lognormal", prototypes=1))
    assert bare.trust.upper is None
    assert bare.trust.suggested == 1.0
    assert "assumption" in bare.trust.reasoning
    # laws that are wrong by a factor are found out, labels or not
    wrong = estimate_trust(histories(wh * 3), bare.public, bare.shared.group_of, 5000)
    assert wrong.lower > 0.3


def test_bounds_on_the_misdescribed_share_cover_the_truth() -> None:
    """A law mixed with 20 % of another: 0.2 is not above the upper nor below the lower bound."""
    law, other = LogNormal(60.0, 0.5, 2000), Uniform(3)
    rng = np.random.default_rng(2)
    days = np.repeat(np.arange(200), 40)
    misses = 0
    for _ in range(40):
        truth = Mixture([law, other], [0.8, 0.2])
        x = truth.sample(rng.random(8000)).astype(float)
        cell = check_law("x", law, x, days, 0.95, 1)
        misses += not cell.lower <= 0.2 <= cell.upper
        assert cell.upper < 0.3
    assert misses <= 6  # 5 % of 40 is 2; 7 or more has a chance below 0.4 %
    low, high = clopper_pearson(np.array([0.5]), np.array([10.0]), 0.025)
    assert (low[0], high[0]) == pytest.approx(
        (0.187086, 0.812914), abs=1e-6
    )  # R: binom.test(5, 10)


def test_welch_is_scipys() -> None:
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(1)
    old, new = rng.normal(0, 1, 30), rng.normal(0.5, 2, 12)
    t, p = welch((float(old.mean()), float(old.std(ddof=1)), 30), new)
    theirs = ttest_ind(new, old, equal_var=False)
    assert (t, p) == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-9)


def test_what_ails_a_home_is_named_and_the_others_are_learned() -> None:
    wh, _ = lived_in(9, seed=3)
    wh[0] = np.nan
    wh[1] = 50.0
    wh[2] = np.rint(wh[2] / 1000)  # kWh told as Wh
    wh[3] *= 1000
    wh[4, 96:] = np.nan
    wh[5, ::7] *= -1
    wh[6, :] = np.where(np.arange(STEPS) % 48 < 24, 30, 42)
    wh[7, 10 * 48 : 16 * 48] = 31
    ails = ailments(histories(wh))
    assert ails[0] == ("empty",)
    assert "constant" in ails[1]
    assert "units" in ails[2]
    assert "units" in ails[3]
    assert "short" in ails[4]
    assert "export" in ails[5]
    assert "vacant" in ails[6]
    assert "vacant at times" in ails[7]
    assert ails[8] == ()
    assert vacant_days(wh[7], 1800).sum() == 6
    assert [can_be_fitted(a) for a in ails] == [False] * 5 + [True] * 4
    found = learn(histories(wh), assumed_habits(1800), LearningTerms(law="lognormal", prototypes=2))
    assert found.usable.tolist() == [5, 6, 7, 8]
    assert found.home_share[1] < 0.01  # nobody there
    assert 0.5 < found.home_share[3] < 0.95
    with pytest.raises(ModelError, match="none of the 1 homes"):
        learn(histories(wh[:1]), assumed_habits(1800))


def test_duplicates_gaps_of_clock_changes_and_bad_axes() -> None:
    start = [0, 1800, 1800, 3600, 9000]
    readings = Readings.of(["a"] * 5, start, [1800] * 5, [1, 2, 2, 3, 9])
    axis = axis_of(readings)
    assert (axis.begins, axis.seconds, axis.steps) == (0, 1800, 6)
    found = histories_of(readings, axis, np.zeros(6, np.int64))
    assert found.counts["duplicates"] == 1
    assert np.isnan(found.wh[0]).tolist() == [False, False, False, True, True, False]
    with pytest.raises(IntakeError, match="no readings"):
        axis_of(Readings.empty())
    with pytest.raises(IntakeError, match="divides a day"):
        axis_of(Readings.of(["a"], [0], [1700], [1]))
    with pytest.raises(IntakeError, match="is a date wrong"):
        axis_of(Readings.of(["a", "a"], [0, 4_000_000_000], [60, 60], [1, 1]))
    with pytest.raises(IntakeError, match="'b'"):
        with_labels(found, ["b"], np.array([0]), np.array([1], np.int8))
    with pytest.raises(IntakeError, match="label"):
        with_labels(found, ["a"], np.array([0]), np.array([5], np.int8))
    with pytest.raises(IntakeError, match="no label is of a time"):
        with_labels(found, ["a"], np.array([-9000]), np.array([1], np.int8))


@pytest.mark.soak
def test_meters_that_tell_nothing_are_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A home of missing values, one in kWh, rounded to whole Wh, and one that only feeds back."""
    text = (folder / "readings.csv").read_text()
    rows = [line.split(",") for line in text.splitlines() if line.startswith("m000,")]
    for name, values in (("gone", [""]), ("kwh", ["0.25", "1.75"]), ("sun", ["-30"])):
        text += "".join(
            f"{name},{when},{length},{values[i % len(values)]}\n"
            for i, (_, when, length, _) in enumerate(rows)
        )
    readings = tmp_path / "readings.csv"
    readings.write_text(text)
    asked = ["--law", "lognormal", "--prototypes", "1", "--no-figures", "--out", str(tmp_path)]
    assert run("learn", "--readings", str(readings), *asked, "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ailments"]["empty"] == ["gone"]
    assert told["ailments"]["units"] == ["kwh"]
    assert told["ailments"]["constant"] == told["ailments"]["export"] == ["sun"]
    assert (told["houses"], told["fitted"]) == (19, 16)
    assert told["readings"]["malformed rows"] == len(rows)
    assert "value is missing" in told["problems"][0]
    only = tmp_path / "only.csv"
    kwh = [line for line in text.splitlines() if line.startswith("kwh,")]
    only.write_text("\n".join([text.splitlines()[0], *kwh]))
    assert run("learn", "--readings", str(only), *asked) == 2
    assert "kWh taken for Wh" in capsys.readouterr().err
    only.write_text("\n".join([text.splitlines()[0], "gone,2013-01-05T00:00:00Z,1800,\n"]))
    assert run("learn", "--readings", str(only), *asked) == 2
    assert "none of its 1 rows is a reading" in capsys.readouterr().err


@pytest.mark.soak
def test_nothing_computed_from_readings_is_in_a_pooled_zone_file(
    folder: Path, tmp_path: Path
) -> None:
    """But through noise: with the noise left out, two utilities' files differ in the sums alone."""
    asked = ["--pool-budget", "2", "--bound", "5000", "--no-figures", *public(tmp_path)]
    asked += ["--begins", "2013-03-01"]
    told = []
    for seed in (1, 2):
        wh, home = lived_in(16, seed=seed)
        out = tmp_path / str(seed)
        labels = tmp_path / "labels.csv"
        stamps = np.datetime64(BEGINS, "s") + 1800 * np.arange(STEPS)
        lines = [f"m000,{at}Z,{x}" for at, x in zip(stamps, home[0], strict=True)]
        labels.write_text("\n".join(["meter_id,start_utc,occupied", *lines]))
        given = ["--readings", str(csv(tmp_path / f"{seed}.csv", wh)), "--labels", str(labels)]
        assert run("learn", *given, *asked, "--out", str(out)) == 0
        content = tomllib.loads((out / "service.toml").read_text())
        del content["learned"]["digest"]
        told.append(content)
    assert told[0] == told[1]


@pytest.mark.soak
def test_one_home_changes_nothing_public_but_the_noisy_laws(tmp_path: Path) -> None:
    """Fifteen homes, the fewest: one lives there, is never seen, stands still, or has other days.

    Which meters are listed, how many, in which order, when the service begins, whether there is a
    model at all: nothing of it depends on that home. A meter that is not listed has no part in it.
    """
    wh, _ = lived_in(16)
    wh = wh[:, : 8 * 48]
    worlds = [wh.copy() for _ in range(4)]
    worlds[1][7] = np.nan
    worlds[2][7] = 50
    worlds[3][7, : 7 * 48] = np.nan
    asked = ["--pool-budget", "2", "--bound-budget", "1", "--no-figures", *public(tmp_path, 15)]
    told = []
    for i, world in enumerate(worlds):
        file, out = csv(tmp_path / f"{i}.csv", world), tmp_path / str(i)
        if i == 3:
            file.write_text(file.read_text() + "m007,2030-01-01T00:00:00Z,3600,77\n")
        assert run("learn", "--readings", str(file), *asked, "--out", str(out)) == 0
        content = tomllib.loads((out / "service.toml").read_text())
        (group,) = content["houses"]
        assert group["meters"] == [f"m{i:03d}" for i in range(15)]
        del group["bound"], content["policy"]["window"], content["learned"]["digest"]  # by noise
        theta = json.loads((out / "theta.json").read_text())
        begins = content["service"].pop("begins")
        assert begins.year < 2030
        told.append((content, theta["chains"][0]["chain_of"]))
    assert all(one == told[0] for one in told)


def test_a_budget_is_refused_where_readings_decide_what_no_noise_covers() -> None:
    wh, _ = lived_in(15)
    found = histories(wh[:, : 5 * 48])
    found = replace(found, local_time=found.local_time[: 5 * 48])
    terms = LearningTerms(law="lognormal", prototypes=1, iterations=5, groups=(12,))
    result = learn(found, assumed_habits(1800), terms)
    auto = replace(result, terms=LearningTerms(groups=(12,)))
    several = replace(result, terms=replace(terms, groups=(4, 12)))
    for asked in (ZoneChoices(pool_budget=1.0), ZoneChoices(bound_budget=1.0)):
        with pytest.raises(PolicyError, match="begin, end, step and meters"):
            export_models(result, found, asked, SimulatedNoise(1))
        joined = replace(found, declared=True, independent=False)
        with pytest.raises(PolicyError, match="what one home sends may decide"):
            export_models(result, joined, asked, SimulatedNoise(1))
    public = replace(found, declared=True)
    assert (
        export_models(result, public, ZoneChoices(pool_budget=1.0), SimulatedNoise(1)).epsilon
        == 1.0
    )
    with pytest.raises(PolicyError, match="'auto'"):
        export_models(auto, public, ZoneChoices(pool_budget=1.0), SimulatedNoise(1))
    with pytest.raises(PolicyError, match=r"groups are \(4, 12\), which readings decide"):
        export_models(several, public, ZoneChoices(pool_budget=1.0), SimulatedNoise(1))


def test_the_report_of_a_pooled_model_scores_the_one_with_noise() -> None:
    """And nothing public has the score: it is computed from readings."""
    found = replace(histories(lived_in(15)[0]), declared=True)
    terms = LearningTerms(law="lognormal", prototypes=1, iterations=5, groups=(24,))
    result = learn(found, assumed_habits(1800), terms)
    asked = ZoneChoices(pool_budget=0.5, bound=5000)
    made = export_models(result, found, asked, SimulatedNoise(1))
    judged = operator_figures(result, made, found, assumed_habits(1800))
    values = learned_values(result, made, judged, asked, found)
    late = found.steps(slice(21 * 48, 28 * 48))
    score = marginal_scores(late, made.public, np.zeros(15, np.intp), 5000)
    assert values["held_out"]["log_likelihood"] == pytest.approx(np.nanmean(score), abs=1e-12)
    assert result.held_out is not None
    assert values["held_out"]["log_likelihood"] < result.held_out.log_likelihood - 0.1
    prose = learned_prose(values)
    assert f"with its noise, the last 7 days score {np.nanmean(score):.3f}" in prose
    assert "For the operator only" in prose
    assert f"{result.held_out.log_likelihood:.3f}" not in prose
    assert "the slot mean is better" in prose  # fifteen homes are less than the noise
    file = json.dumps(learned_content(result, made, judged, values))
    assert not any(word in file for word in ("held_out", "forecast", "tried"))


@pytest.mark.soak
def test_one_absurd_reading_does_not_stop_the_others() -> None:
    """Too rare to be wrong units, it would make tables of laws with 60 million entries."""
    wh, _ = lived_in(3)
    wh[1, 700] = 6e7
    result = learn(
        histories(wh),
        assumed_habits(1800),
        LearningTerms(law="lognormal", prototypes=1, iterations=5),
    )
    assert result.usable.tolist() == [0, 1, 2]
    assert result.top == 500_000  # 1 MW for half an hour


def test_a_list_of_meters_is_kept_in_its_order() -> None:
    readings = Readings.of(["a", "b"], [0, 0], [1800] * 2, [1, 2])
    found = histories_of(readings, Axis(0, 1800, 1), np.zeros(1, np.int64))
    listed = for_meters(found, ["c", "b"])
    assert listed.ids == ("c", "b")
    assert np.isnan(listed.wh[0]).all()
    assert listed.wh[1].tolist() == [2.0]
    with pytest.raises(IntakeError, match="'b' is listed twice"):
        for_meters(found, ["b", "a", "b"])
    with pytest.raises(IntakeError, match="empty"):
        for_meters(found, [])
    # whether a label fits is up to single homes: of a declared axis it is dropped
    kept = with_labels(
        replace(listed, declared=True), ["x", "b", "b"], np.array([0, -9000, 0]),
        np.array([1, 1, 0], np.int8),
    )  # fmt: skip
    assert kept.labels is not None
    assert kept.labels.tolist() == [[-1], [0]]


@pytest.mark.soak
def test_a_pooled_model_is_validated_by_itself(folder: Path, tmp_path: Path) -> None:
    """Scores of the homes that it was made of, under it and no other: nobody has drifted."""
    readings = ["--readings", str(folder / "readings.csv")]
    asked = ["--pool-budget", "50", "--bound", "5000", "--no-figures", "--out", str(tmp_path)]
    assert run("learn", *readings, *asked, *public(tmp_path)) == 0
    assert run("model", "validate", str(tmp_path), *readings) == 0
    content = json.loads((tmp_path / "model.json").read_text())
    hidden = np.array(content["prototypes"][0]["hidden"]["transition"])
    shown = np.array(content["prototypes"][0]["transition"])
    assert hidden.shape[0] == shown.shape[0]
    # leaving home: all that goes from quiet or active to away, by the hidden model's own shares
    assert shown[:, 0, 0] == pytest.approx(hidden[:, 0, 0], abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--law", "weibull"], "learn.law is 'weibull'; give auto, lognormal, gamma or histogram."),
        (["--days", "0"], "learn.days is 0; give a positive number."),
        (["--groups", "5"], "learn.groups is 5; give 'auto', 4, 8, 12 or 24."),
        (["--time-zone", "Mars/Base"], "time zone is 'Mars/Base'"),
        (["--pool-budget", "-1"], "pool budget"),
        (["--survey", "nowhere.csv"], "nowhere.csv does not exist"),
        (["--interval", "700"], "divides a day"),
        (["--interval", "half an hour"], "interval is 'half an hour'"),
        (["--from", "soon"], "from is 'soon'"),
        (["--from", "2013-01-04T00:10Z"], "from is 2013-01-04T00:10:00Z"),
        (["--to", "2012-01-01"], "from is not before to"),
        (["--meters", "nowhere.txt"], "nowhere.txt does not exist"),
        (["--bound-budget", "0"], "learn.bound_budget is 0; give a positive number."),
        (["--bound-budget", "1", "--interval", "1800"], "--from, --to, --meters are not"),
        (["--pool-budget", "1"], "give --from, --to, --interval and --meters"),
    ],
)
def test_bad_options_are_one_sentence(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    asked = ["--readings", str(folder / "readings.csv"), "--out", str(tmp_path), "--no-figures"]
    assert run("learn", *asked, *arguments) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


OWN = {  # mappings of our own with a column of meters
    "repeated": 'duration_s = 1800\nheader = "repeated"\n',
    "preamble": 'duration = "step"\nduration_unit = "min"\npreamble = true\n',
    "one meter": 'duration_s = 1800\nmeter_id = "home 1"\n',
}


@pytest.mark.parametrize("budget", ["--pool-budget", "--bound-budget"])
@pytest.mark.parametrize("form", ["xml", "nem12", "dsmr_p1", "elhub", "joined", "broken", *OWN])
@pytest.mark.sampled
def test_a_pool_reads_rows_by_themselves(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, budget: str
) -> None:
    """In these formats a line of one home may be a header, a type or a block of another."""
    readings, mapping = folder / "readings.csv", form
    if form in OWN:
        path = tmp_path / "own.toml"
        path.write_text(
            'meter = "meter_id"\ntime = "start_utc"\nvalue = "wh"\nunit = "wh"\n' + OWN[form]
        )
        mapping = str(path)
    elif form == "joined":  # exports of two homes, each with its header
        text = readings.read_text()
        readings, mapping = tmp_path / "readings.csv", "canonical"
        head, _, rows = text.partition("\n")
        readings.write_text(f"{text}{head.replace(',', ' , ')}\n{rows}")
    elif form == "broken":  # a field with line breaks, whose rest would be rows
        text, rows = readings.read_text(), "h02,2013-01-04T00:00:00Z,1800,9000\n"
        readings, mapping = tmp_path / "readings.csv", "canonical"
        readings.write_text(text + f'h01,"2013-01-04T00:00:00Z\n{rows}",1800,5\n')
    elif form == "xml":
        readings, mapping = tmp_path / "readings.xml", "canonical"
    asked = ["--readings", str(readings), "--out", str(tmp_path), "--no-figures"]
    asked += ["--mapping", mapping, budget, "1", *public(tmp_path, 15)]
    assert run("learn", *asked) == 2
    assert "what one home sends may decide how readings of others" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "row", "again", "apart"),
    [
        (("id", "t", "d", "e"), "house-id-00,2026-01-01T00:00:00Z,1800,5", "", True),
        (("id", "d"), "house-id,5", "", True),
        (("id", "Energy, net"), 'h1,"5"', "", True),
        (("id", "Energy, net"), "h1,5", 'id;"Energy,  net"', False),
        (("id", 'Energy "net"'), "h1,5", 'id,"Energy ""net"""', False),
    ],
)
def test_lines_with_the_names_of_columns_are_headers(
    tmp_path: Path, columns: tuple[str, ...], row: str, again: str, apart: bool
) -> None:
    """Not those with the names inside of words, and also those that write them otherwise."""
    path = tmp_path / "readings.csv"
    with path.open("w") as file:
        writer(file).writerow(columns)
        file.write(f"{row}\n{again}\n{row}\n")
    assert _has_whole_lines(path, columns) is apart


def test_labels_of_a_pool_have_one_header(folder: Path, tmp_path: Path) -> None:
    """Joined exports, of which the first would decide how the others are read."""
    head, rows = "meter_id,start_utc,occupied\n", "h01,0,1\nh02,0,0\n"
    for text, apart in ((head + rows, True), (head + rows + head + rows, False)):
        labels = tmp_path / "labels.csv"
        labels.write_text(text)
        found = read_histories(
            folder / "readings.csv", mapping="canonical", time_zone="UTC", seconds=1800, begins=0,
            ends=86_400, meters=["h01", "h02"], labels=labels,
        )  # fmt: skip
        assert found.independent is apart


def test_prototypes_do_not_grow_with_homes_and_take_new_ones(folder: Path) -> None:
    content = json.loads((folder / "zone" / "model.json").read_text())
    assert len(content["prototypes"]) == 2
    theta = json.loads((folder / "zone" / "theta.json").read_text())
    assert np.array(theta["chains"][0]["transition"]).shape == (96, 2, 2, 2)
    assert (np.array(theta["chains"][0]["transition"]) > 0).all()
