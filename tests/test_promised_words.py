"""Sentences about the promise: what an interval promise leaves out, and claims that go too far."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import Policy
from hushgrid.curator.promise import outlook, promise_content, promise_json, sentence
from hushgrid.mechanism.policy import Blocks
from hushgrid.report.outlook import outlook_prose
from hushgrid.report.promise import home_words, promise_sentence
from tests.curator.worlds import service

ROOT = Path(__file__).parents[1]
ABSENCE = "An absence of several days is not covered"
TOO_MUCH = (
    "no home's occupancy can",
    "reveal no home's",
    "nobody's occupancy",
    "cannot be inferred",
    "drawn again for every price",
    "eta has to cover it",
    "chance of an exception",
)


@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("policy", [Policy(0.04), Policy(0.1, schedule=Blocks((96,), (0.1,)))])
def test_every_interval_promise_says_that_a_long_absence_is_not_covered(
    policy: Policy, continued: bool
) -> None:
    assert ABSENCE in promise_sentence(policy, "interval", 1.0, continued=continued)
    assert ABSENCE not in promise_sentence(policy, "step", 1.0, continued=continued)


def test_the_service_states_the_same_sentence() -> None:
    zone = service()
    assert promise_content(zone)["sentence"] == sentence(zone)


@pytest.mark.parametrize(
    "name",
    ["README.md", "CITATION.cff", "paper.md", "pyproject.toml", "src/hushgrid/__init__.py"]
    + ["docs/index.md", "docs/learn.md", "docs/audit.md", "docs/regulator.md"]
    + ["src/hushgrid/web/http/frames/how.html"]
    + [f"src/hushgrid/web/http/languages/{code}.toml" for code in ("de", "fr")],
)
def test_no_text_claims_more_than_the_bound(name: str) -> None:
    text = " ".join((ROOT / name).read_text().split())
    assert not [words for words in TOO_MUCH if words in text]


def test_a_window_in_a_householders_words() -> None:
    assert home_words("window", 1.0, "24 hours").lines == [
        "Promise: Pick any 24 hours. Someone who thinks two stories about your home in those hours"
        " equally likely, and knows everything else, can be brought to 73 : 27 at most by all"
        " prices ever published. Longer absences are hidden less.",
        "Not covered: what you do before or after because of it (a car charged later, a house"
        " heated up again), a second meter, neighbours who act with you, your bill.",
    ]
    assert "Pick any 14 days." in home_words("window", 1.0, "14 days").words
    assert "in those days equally" in home_words("window", 1.0, "14 days").words


def test_the_sheet_for_a_regulator_has_the_exact_words() -> None:
    sheet = (ROOT / "docs" / "regulator.md").read_text()
    assert f'"{home_words("window", 1.0, "24 hours").words}"' in sheet
    exact = promise_sentence(
        Policy(0.2, schedule=Blocks((96,), (0.2,))), "window", 1.0, window="24 hours"
    )
    assert f'"{exact}"' in sheet


def test_an_interval_in_a_householders_words() -> None:
    words, not_covered = home_words("interval", 1.0)
    assert words == (
        "Someone who thinks it equally likely that you are home or away can at most come to"
        " 73 : 27."
    )
    assert any("absence of several days" in one for one in not_covered)


@given(st.floats(0.01, 20))
def test_odds_are_those_of_bayes_rule_for_even_ones(epsilon: float) -> None:
    words = home_words("interval", epsilon).words
    more, less = map(float, words.removesuffix(".").rpartition("come to ")[2].split(" : "))
    assert more + less == pytest.approx(100)
    assert less > 0
    digits = len(words.removesuffix(".").rpartition(".")[2]) if less < 1 else 0
    assert less == pytest.approx(100 / (1 + math.exp(epsilon)), abs=0.501 * 10**-digits)


def test_every_page_has_the_same_words() -> None:
    zone = service()
    found = home_words("step", zone.policy.epsilon)
    assert promise_content(zone)["words"] == found.words
    assert promise_json(zone, "simulation")["not_covered"] == list(found.not_covered)
    assert outlook_prose(outlook(zone)).splitlines()[:2] == found.lines
