"""Evidence of a replay goes to JSON and back, and says who may see it."""

from __future__ import annotations

import json

import pytest

from hushgrid.errors import ModelError
from hushgrid.lab.evidence import evidence_json, evidence_of
from tests.lab.evidence import evidence


def test_it_comes_back_from_json() -> None:
    figures = evidence()
    assert evidence_of(json.loads(json.dumps(evidence_json(figures)))) == figures


def test_the_first_field_says_who_may_see_it() -> None:
    private, synthetic = (evidence_json(evidence(kind)) for kind in ("private", "synthetic"))
    assert next(iter(private)) == "notice"
    assert "operator alone" in private["notice"]
    assert "may be published" in synthetic["notice"]


def test_a_wrong_field_is_named_without_its_value() -> None:
    values = evidence_json(evidence())
    values["promises"][0]["epsilon"] = "secret-text"
    with pytest.raises(ModelError, match=r"promises\.0\.epsilon") as caught:
        evidence_of(values)
    assert "secret-text" not in str(caught.value)
