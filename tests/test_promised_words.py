"""Sentences about the promise: what an interval promise leaves out, and claims that go too far."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgrid import Policy
from hushgrid.mechanism.policy import Blocks
from hushgrid.report.promise import promise_sentence
from hushgrid.service.promise import sentence, stated
from tests.service.worlds import service

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
    for secret in ("step", "trajectory"):
        assert ABSENCE not in promise_sentence(policy, secret, 1.0, continued=continued)


def test_the_service_states_the_same_sentence() -> None:
    zone = service()
    assert stated(zone)["sentence"] == sentence(zone)


@pytest.mark.parametrize(
    "name",
    ["README.md", "CITATION.cff", "paper.md", "pyproject.toml", "src/hushgrid/__init__.py"]
    + ["docs/index.md", "docs/learn.md", "docs/certificate.md"]
    + ["src/hushgrid/service/http/frames/how.html"]
    + [f"src/hushgrid/service/http/languages/{code}.toml" for code in ("de", "fr")],
)
def test_no_text_claims_more_than_the_bound(name: str) -> None:
    text = " ".join((ROOT / name).read_text().split())
    assert not [words for words in TOO_MUCH if words in text]
