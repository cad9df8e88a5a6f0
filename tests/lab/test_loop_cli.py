"""`hushgrid loop`: JSON under the promised keys, page, figures and refusals."""

import json

import pytest

from hushgrid.lab.loop import FIGURES
from tests.cli.commands import EXAMPLE, hushgrid


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("loop")
    words = (
        "--houses",
        12,
        "--days",
        2,
        "--worlds",
        2,
        "--secret",
        "step",
        "--prices",
        "exact,raw",
    )
    found = hushgrid("loop", *words, "--out", out, "--json", out / "x.json")
    return found, out, json.loads((out / "x.json").read_text())


@pytest.mark.soak
def test_json_has_the_promised_keys(run):
    found, _, values = run
    assert found.returncode == 0
    assert set(values["prices"]) == {"exact", "raw"}
    for price in values["prices"].values():
        assert set(price) == set(FIGURES)
        for figure in price.values():
            low, high = figure["ci95"]
            assert low <= figure["mean"] <= high
    assert isinstance(values["gain"], float)
    assert values["worlds"] == 2
    peaks = {name: price["peak"]["mean"] for name, price in values["prices"].items()}
    differs = values["against_exact"]["raw"]["peak"]
    assert differs["mean"] == pytest.approx(peaks["raw"] - peaks["exact"])
    assert differs["ci95"][0] < differs["mean"] < differs["ci95"][1]


@pytest.mark.soak
def test_page_tables_and_figures_are_written(run):
    found, out, values = run
    names = {path.name for path in out.iterdir()}
    assert {"loop.md", "loop.html", "loop.json", "loop.png"} <= names
    page = (out / "loop.html").read_text()
    assert page.count("<svg") == 1
    assert "<script" not in page
    assert f"{values['prices']['exact']['peak']['mean']:.4g}" in page
    assert "Loop gain under the exact price" in found.stdout


def test_a_zone_file_closes_its_loop(tmp_path):
    words = ("--config", EXAMPLE, "--days", 2, "--worlds", 1, "--secret", "step", "--prices", "raw")
    found = hushgrid("loop", *words, "--eta", 0.5, "--out", tmp_path, "--json", "-")
    values = json.loads(found.stdout)
    assert values["houses"] == 120
    assert values["gain"] is None  # measured under the exact price alone
    assert "promise does not hold" in (tmp_path / "loop.md").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rule", "hope"], "rule is 'hope'; give one of none, follow"),
        (["--prices", "cheap"], "prices are cheap; give some of exact, raw"),
        (
            ["--config", EXAMPLE.with_name("sunny.toml")],
            "has homes that export, which the loop does not",
        ),
        (["--secret", "age"], "'age' is not one of 'step', 'interval'"),
    ],
)
def test_bad_options_get_one_sentence(words, sentence, tmp_path):
    found = hushgrid("loop", *words, "--out", tmp_path)
    assert found.returncode == 2
    assert sentence in found.stderr
    assert found.stderr.count("\n") == 1
