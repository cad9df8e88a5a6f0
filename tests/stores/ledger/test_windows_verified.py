"""Accounts of a promise about windows held against the noise: by the script and by the audit.

Forged records are signed again, so the chain is valid.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import Terms
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.terms import terms_name
from hushgrid.stores.ledger.writer import verify_signature
from tests.curator.curators import Shown, curator
from tests.curator.streets import BEGINS, load, publish
from tests.stores.ledger.ledgers import KEY, Story, lines_of, sealed
from tests.stores.ledger.verifier import SCRIPTED

WINDOW = ('secret = "interval"', 'secret = "window"\nwindow = "PT12H"')


class Honest(NamedTuple):
    """Thirty hours of a street."""

    story: Story
    terms: Terms


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    folder = tmp_path_factory.mktemp("street")
    zone = load(folder, BEGINS, WINDOW)
    with curator(folder, zone, Shown(), now=zone.begins) as it:
        publish(it, 30)
    with open_store(str(folder / "ledger.db"), create=False) as store:
        records = list(store.records("elm-street"))
    story = [(record.kind, json.loads(record.line)["body"]) for record in records]
    story[0][1]["key"] = KEY.public
    return Honest(story, terms_of(zone))


def verify(records: list[Record]) -> tuple[bool, str]:
    good, text = SCRIPTED.verify(lines_of(records).splitlines(keepends=True))
    return good, text


def audit(folder: Path, records: list[Record], terms: Terms) -> str:
    """The verdict with the service file."""
    (folder / "ledger.ndjson").write_bytes(lines_of(records))
    path = str(folder / "ledger.ndjson")
    evidence, chain = load_ledger(path, zone=None, key=None, heads=())
    return certify(evidence, (terms,), chain=chain).verdict


def test_the_promise_of_windows_and_what_they_lost_are_said(tmp_path: Path, honest: Honest) -> None:
    records = sealed(honest.story)
    good, text = verify(records)
    assert good, text
    body = next(body for kind, body in honest.story if kind == "terms")
    assert (
        "any two stories about what a home does in any 12 hours by at most a factor of 2.718 (e^1)"
        f" (secret window, window 43200 s, reach {body['reach']:g} Wh, epsilon 1, eta 1)"
    ) in text
    assert "what any 12 hours lost, at most: 1 of 1; releases from readings 30," in text
    n = len(records)
    assert text.startswith(f"good: {n} records, all {n} signatures checked; every promise was kept")
    assert check(records, verify_signature).first_bad is None
    assert audit(tmp_path, records, honest.terms) != "failed"


def of_releases(change: Callable[[Any], None]) -> Callable[[Story], None]:
    """A change of each release from readings."""

    def changed(story: Story) -> None:
        for kind, body in story:
            if kind == "release" and body["source"] == "readings":
                change(body)

    return changed


def little_noise(body: Any) -> None:
    body["scale"] = 1.0


def little_loss(body: Any) -> None:
    body["epsilon_any"] = 0.001
    for block in body.get("windows", ((), ()))[1]:
        block[2] = 0.001


def little_windows(body: Any) -> None:
    for block in body.get("windows", ((), ()))[1]:
        block[2] = 0.001


def later_promise(body: Any) -> None:
    for promise in body.get("windows", ((), ()))[0]:
        promise[2] = 10**11


def both(body: Any) -> None:
    little_noise(body)
    little_loss(body)


def with_terms(change: Callable[[Any], None]) -> Callable[[Story], None]:
    """A change of the terms, with the digest that follows."""

    def changed(story: Story) -> None:
        body = next(body for kind, body in story if kind == "terms")
        before = body["digest"]
        change(body)
        body["digest"] = terms_name(body)
        for kind, release in story:
            if kind == "release" and release["digest"] == before:
                release["digest"] = body["digest"]

    return changed


def no_reach(body: Any) -> None:
    del body["reach"]


def large_reach(body: Any) -> None:
    body["reach"] *= 1.5


def small_reach(body: Any) -> None:
    body["reach"] /= 2


FORGED = {  # the change, whether the script and the check of the chain can see it
    "less noise": (of_releases(little_noise), True, True),
    "less noise and less loss": (of_releases(both), True, True),
    "less loss": (of_releases(little_loss), True, True),
    "less loss in the windows": (of_releases(little_windows), True, True),
    "a promise of later": (of_releases(later_promise), True, False),
    "no reach": (with_terms(no_reach), True, True),
    "a larger reach": (with_terms(large_reach), True, True),
    "a smaller reach": (with_terms(small_reach), False, False),  # only the service file has it
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_window_fails(tmp_path: Path, honest: Honest, forged: str) -> None:
    change, of_script, of_chain = FORGED[forged]
    story = copy.deepcopy(honest.story)
    change(story)
    assert story != honest.story
    records = sealed(story)
    good, text = verify(records)
    assert good == (not of_script), text
    report = check(records, verify_signature)
    assert (report.first_bad is not None) == of_chain, report.reason
    if not of_chain:
        assert audit(tmp_path, records, honest.terms) != "passed"
