"""Accounts of an interval promise computed again: by the script that knows nothing of this package,
and by the audit with the service files. Forged records are signed again, so the chain is valid."""

from __future__ import annotations

import copy
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hushgrid.accounting.account import IntervalAccount
from hushgrid.audit.bounds import Check
from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import Terms
from hushgrid.audit.recompute import account
from hushgrid.curator.gaps import book
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.files.deployment import ZoneService
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check, fold
from hushgrid.stores.ledger.entries import GapRecord
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.terms import terms_name
from hushgrid.stores.ledger.writer import verify_signature
from tests.bodies import transfer
from tests.curator.curators import Shown, curator
from tests.curator.streets import DAY, HOUR, load, publish
from tests.stores.ledger.ledgers import KEY, Story, lines_of, opening, read, sealed
from tests.stores.ledger.verifier import SCRIPTED

BEGINS = 1_774_652_400  # midnight before Saturday, 28 March 2026; clocks change on Sunday
BLOCKS = ("\neta = 1.0", "\neta = 1.0\nblock_steps = [6]\nblock_epsilon = [0.3]")
ALONE = ("\neta = 1.0", '\neta = 1.0\nblock = "PT1H"')  # noise of its own at every step
HALF = (ALONE, ("epsilon = 1.0", "epsilon = 0.5"))


class Honest(NamedTuple):
    """Two days of a street: blocks of steps with a gap, then half the promise."""

    story: Story
    zone: ZoneService
    terms: tuple[Terms, ...]

    def place(self, kind: str, number: int, source: str | None = None) -> int:
        """Of the record of a kind with that number, 0 the first."""
        fits = [
            n
            for n, (name, body) in enumerate(self.story)
            if name == kind and body.get("source") == source
        ]
        return fits[number]


def told(records: list[Record]) -> Story:
    """Kind and body of each record, with the tests' key in the genesis."""
    story = [(record.kind, json.loads(record.line)["body"]) for record in records]
    story[0][1]["key"] = KEY.public
    return story


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    folder = tmp_path_factory.mktemp("street")
    first = load(folder, BEGINS, BLOCKS)
    with curator(folder, first, Shown(), now=BEGINS) as it:
        publish(it, 9)
        it._ledger.write(GapRecord(it.t, it.t + 5, "meters"))  # the rest of a block, and the next
        book(first, it._ledger)
    with curator(folder, first, Shown(), now=BEGINS + 15 * HOUR) as it:
        publish(it, 9)
    second = load(folder, BEGINS + DAY, *HALF)
    with curator(folder, second, Shown(), now=second.begins, new_terms=True) as it:
        publish(it, 24)
    with open_store(str(folder / "ledger.db"), create=False) as store:
        records = list(store.records("elm-street"))
    return Honest(told(records), first, (terms_of(first), terms_of(second)))


def script_says(records: list[Record]) -> str:
    """The script's line."""
    good, text = SCRIPTED.verify(lines_of(records).splitlines(keepends=True))
    assert text.startswith("good" if good else "bad")
    return str(text)


def audit_says(folder: Path, records: list[Record], terms: tuple[Terms, ...]) -> Check:
    """The check of the accounts."""
    (folder / "ledger.ndjson").write_bytes(lines_of(records))
    (evidence,), chain = load_ledger(str(folder / "ledger.ndjson"), zone=None, key=None, heads=())
    assert chain.status == "passed", chain.text
    return account(evidence, terms)


def test_two_days_with_a_change_a_gap_and_other_clocks_pass(tmp_path: Path, honest: Honest) -> None:
    records = sealed(honest.story)
    bodies = [body for _, body in honest.story]
    assert sum("account" in body for body in bodies) >= 20
    assert {len(body["account"]) for body in bodies if "account" in body} == {2}
    promises = [body["promise"]["epsilon"] for kind, body in honest.story if kind == "terms"]
    assert promises == [1.0, 0.5]
    assert all(len(record.line) < 100_000 for record in records)
    assert script_says(records).startswith("good: ")
    assert audit_says(tmp_path, records, honest.terms).status == "passed"
    path = tmp_path / "ledger.ndjson"
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
    certificate = certify(evidence, honest.terms, chain=chain)
    assert certificate.check("account").status == "passed"
    assert [one.text for one in certificate.checks if one.status == "failed"] == []
    alone = certify(evidence, honest.terms[:1], chain=chain)
    assert alone.check("account").status == "not_checked"
    none = certify(evidence, (), chain=chain)
    assert none.check("account").status == "not_checked"


# ---- forged records

FIGURES = ("loss", "known", "room", "low", "high")


def row(figure: str, by: float) -> Callable[[Any], None]:
    """Change one figure of the last row."""

    def change(body: Any) -> None:
        body["account"][-1][FIGURES.index(figure)] += by

    return change


def setting(name: str, value: Any) -> Callable[[Any], None]:
    """Another value of a field; None: without it."""

    def change(body: Any) -> None:
        body[name] = value(body[name]) if callable(value) else value
        if body[name] is None:
            del body[name]

    return change


def chain(name: str, value: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Another value of the first chain of the first model."""
    return lambda body: setting(name, value)(body["models"][0]["chains"][0])


def slots(body: Any) -> None:
    """The pattern an hour later."""
    pattern = body["models"][0]["slots"]
    body["models"][0]["slots"] = [*pattern[1:], pattern[0]]


def stays_more(moves: list[list[float]]) -> list[list[float]]:
    """Every matrix a little nearer to the identity."""
    return [[a + 0.01 * b, 0.99 * b, 0.99 * c, d + 0.01 * c] for a, b, c, d in moves]


def promised(name: str, value: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Another value of a field of the promise."""
    return lambda body: setting(name, value)(body["promise"])


def without_promise(body: Any) -> None:
    body["promise"]["secret"] = "step"
    del body["models"]


READ, GAP = ("release", "readings"), ("resume", None)
FORGED = [
    *((READ, 0, f"{figure} {by:+}", row(figure, by)) for figure in FIGURES for by in (0.01, -0.01)),
    *((READ, 9, f"{figure} {by:+}", row(figure, by)) for figure in FIGURES for by in (0.01, -0.01)),
    (READ, 0, "no account", setting("account", None)),
    (READ, 0, "a row too few", setting("account", lambda rows: rows[:1])),
    (READ, 0, "less noise", setting("scale", lambda scale: scale * 0.99)),
    (READ, 1, "less noise in an open block", setting("scale", lambda scale: scale * 0.99)),
    (READ, 0, "a shorter block", setting("block", lambda block: {**block, "length": 5})),
    (READ, 1, "a longer block", setting("block", lambda block: {**block, "length": 7})),
    *((GAP, 0, f"{figure} {by:+}", row(figure, by)) for figure in FIGURES for by in (0.01, -0.01)),
    (GAP, 0, "an earlier step", setting("until", lambda until: until - 3)),
    (GAP, 0, "a later step", setting("until", lambda until: until + 3)),
    *(
        (("terms", None), number, what, change)
        for number in (0, 1)
        for what, change in (
            ("a larger promise", promised("epsilon", lambda promise: promise * 1.1)),
            ("a smaller promise", promised("epsilon", lambda promise: promise * 0.9)),
            ("no promise", without_promise),
            ("another digest of the models", setting("occupancy", "ab" * 32)),
            ("other meters", setting("roster", "ab" * 32)),
            ("another time zone", setting("time_zone", "America/New_York")),
            ("no time zone", setting("time_zone", None)),
            ("other slots", slots),
            ("other moves", chain("moves", stays_more)),
            ("a smaller reach", chain("reach", lambda reach: reach * 0.99)),
            ("a larger reach", chain("reach", lambda reach: reach * 1.01)),
            ("another law", chain("law", lambda law: [law[0] - 0.05, law[1] + 0.05])),
            ("another eta", promised("eta", lambda eta: eta / 2)),
        )
    ),
]
# What the script lets pass. None makes an account look better kept: the rows stand as they were.
# Only the service file says what was planned for a lost block, which law the models of terms have
# where an account goes on from before, and that eta is 1.
HARMLESS = {
    ("resume", 0, "loss -0.01"),
    ("terms", 1, "another law"),
    ("terms", 0, "another eta"),
    ("terms", 1, "another eta"),
}
# The audit finds these by the checks of scales and places, not of accounts.
OF_THE_NOISE = (
    "less noise",
    "less noise in an open block",
    "a shorter block",
    "a longer block",
)


def rename(story: Story, place: int) -> None:
    """Give terms the digest that follows from what they state, in their releases as well."""
    kind, body = story[place]
    if kind != "terms" or "time_zone" not in body:
        return
    before, body["digest"] = body["digest"], terms_name(body)
    for _, release_body in story[place + 1 :]:
        if release_body.get("digest") == before:
            release_body["digest"] = body["digest"]


@pytest.mark.parametrize(
    ("of", "number", "what", "change"),
    FORGED,
    ids=[f"{of[0]} {number}: {what}" for of, number, what, _ in FORGED],
)
@pytest.mark.sampled
def test_a_forged_account_fails(
    tmp_path: Path,
    honest: Honest,
    of: tuple[str, str | None],
    number: int,
    what: str,
    change: Callable[[Any], None],
) -> None:
    story, place = copy.deepcopy(honest.story), honest.place(of[0], number, of[1])
    change(story[place][1])
    rename(story, place)
    records = sealed(story)
    said = script_says(records)
    if (of[0], number, what) in HARMLESS:
        assert said.startswith("good: "), said
    else:
        assert said.startswith("bad: line "), said
        assert "\n" not in said
    if check(records, verify_signature).first_bad is None:
        found = audit_says(tmp_path, records, honest.terms)
        if what in OF_THE_NOISE:
            evidence, _ = load_ledger(
                str(tmp_path / "ledger.ndjson"), zone=None, key=None, heads=()
            )
            assert certify(evidence, honest.terms).verdict == "failed"
        elif of[0] == "terms":  # of some no service file has the terms
            assert found.status != "passed", found.text
        else:
            assert found.status == "failed", found.text
            assert found.text.startswith(f"Record {found.first_bad} ")


# ---- a house that leaves


@pytest.mark.parametrize("after", ["inside a block", "a booked gap", "the first step"])
@pytest.mark.soak
def test_a_house_takes_along_no_better_account(tmp_path: Path, honest: Honest, after: str) -> None:
    """Its zone's, of an open block as cut after the last step; what is booked is not forgotten."""
    of = {"inside a block": (READ, 8), "a booked gap": (GAP, 0), "the first step": (READ, 0)}[after]
    at = honest.place(of[0][0], of[1], of[0][1]) + 1
    standing = fold(sealed(honest.story[:at]))
    rows, end = ZoneAccount(honest.zone).leaving(standing)
    assert rows is not None
    for figure, by in (
        (None, 0.0),
        ("known", -0.01),
        ("room", 0.01),
        ("low", 1e308),
        ("high", -1e308),
        ("last", -1),
    ):
        left = transfer("h", "out", other="oak", account=[list(*rows)])
        left["last"] = max(left["last"], end)
        if figure == "last":
            left["last"] += int(by)
        elif figure is not None:
            left["account"][0][FIGURES.index(figure)] += by
        records = sealed([*honest.story[:at], ("transfer", left), *honest.story[at:]])
        said = script_says(records)
        found = audit_says(tmp_path, records, honest.terms)
        assert (said[:4], found.status) == (
            ("good", "passed") if figure is None else ("bad:", "failed")
        )


def test_a_house_that_comes_brings_the_account_it_left_with(honest: Honest) -> None:
    at = honest.place("resume", 0) + 1
    standing = fold(sealed(honest.story[:at]))
    rows, last = ZoneAccount(honest.zone).leaving(standing)
    (figures,) = rows or ()
    left = transfer("h", "out", other="oak", last=last, account=[list(figures)])
    there = sealed([*honest.story[:at], ("transfer", left)])
    same, less = list(figures), [figures[0], figures[1] - 0.01, *figures[2:]]
    for brought, good in (([same], True), ([less], False), (None, False)):
        came = transfer(
            "h", "in", other="elm-street", out=there[-1].digest, last=last, account=brought
        )
        records = [*there, *sealed([honest.story[0], ("transfer", came)], zone="oak")]
        assert script_says(records).startswith("good" if good else "bad"), brought
        assert (check(records, verify_signature).first_bad is None) == good


def test_what_was_published_without_an_account_may_be_known(honest: Honest) -> None:
    story = [*opening(), ("release", read(1))]
    assert ZoneAccount(honest.zone).leaving(fold(sealed(opening()))) == (None, 0)
    rows, _ = ZoneAccount(honest.zone).leaving(fold(sealed(story)))
    assert rows is not None
    assert rows[0][1] == sys.float_info.max
    for stated, good in (
        ([list(*rows)], True),
        ([[0.0, 1.0, *rows[0][2:]]], False),
        (None, False),
    ):
        left = transfer("h", "out", other="oak", account=stated)
        records = sealed([*story, ("transfer", left)])
        assert script_says(records).startswith("good" if good else "bad"), stated


def test_terms_that_begin_inside_a_block_wait_for_its_end(tmp_path: Path) -> None:
    """Its account is about the last step of the block: it says too little about those before."""
    first = load(tmp_path, BEGINS, BLOCKS)
    with curator(tmp_path, first, Shown(), now=BEGINS) as it:
        publish(it, 1)
    second = load(tmp_path, BEGINS + HOUR, BLOCKS)
    with curator(tmp_path, second, Shown(), now=second.begins, new_terms=True) as it:
        publish(it, 7)
    with open_store(str(tmp_path / "ledger.db"), create=False) as store:
        records = list(store.records("elm-street"))
    sources = [record.body["source"] for record in records if record.kind == "release"]
    assert sources == ["readings", *["forecast"] * 5, *["readings"] * 2]
    assert script_says(sealed(told(records))).startswith("good: ")
    assert audit_says(tmp_path, records, (terms_of(first), terms_of(second))).status == "passed"


@pytest.mark.soak
def test_prices_come_back_where_nothing_is_promised_about_an_interval_any_more(
    tmp_path: Path,
) -> None:
    """Once no later price can say too much about the steps of before."""
    first = load(tmp_path, BEGINS, ALONE)
    with curator(tmp_path, first, Shown(), now=BEGINS) as it:
        publish(it, 24)
    second = load(tmp_path, BEGINS + DAY, ('secret = "interval"', 'secret = "step"'))
    with curator(tmp_path, second, Shown(), now=second.begins, new_terms=True) as it:
        publish(it, 24)
    with open_store(str(tmp_path / "ledger.db"), create=False) as store:
        records = list(store.records("elm-street"))
    sources = [record.body["source"] for record in records if record.kind == "release"]
    assert sources[24:] == sorted(sources[24:])  # forecasts first
    assert 0 < sources[24:].count("forecast") < 18
    terms = (terms_of(first), terms_of(second))
    assert audit_says(tmp_path, records, terms).status == "passed"
    story = told(records)
    early = next(n for n, (_, body) in enumerate(story) if body.get("source") == "forecast")
    late = next(n for n in range(early, len(story)) if story[n][1]["source"] == "readings")
    names = ("t", "start", "applies_from", "applies_start", "published_at")
    body = {**story[late][1], **{name: story[early][1][name] for name in names}}
    forged = sealed([*story[:early], ("release", body)])
    found = audit_says(tmp_path, forged, terms)
    assert (found.status, found.first_bad) == ("failed", early + 1)


# ---- an oracle of the formulas


def random_matrix(rng: np.random.Generator) -> np.ndarray:
    """Any two states: identities, swaps, one column, zeros, small chances."""
    kind = int(rng.integers(8))
    if kind < 2:
        return np.eye(2)[:: 1 - 2 * kind].copy()
    away = rng.random(2) ** (1 if kind < 6 else 8)
    if kind == 2:
        away[1] = away[0]
    if kind in (3, 4):
        away[kind - 3] = rng.integers(2)
    return np.stack([away, 1 - away], axis=1)


def test_the_formulas_are_those_of_the_account() -> None:
    rng, admitted = np.random.default_rng(16), 0
    for _ in range(2000):
        known = rng.choice([0.0, rng.exponential(), 10 * rng.exponential(), math.inf])
        room = rng.choice([0.0, rng.exponential(), 5 * rng.exponential(), math.inf])
        low, high = sorted(rng.normal(0, 3, 2))
        law = [(low, high), (low, low), (-math.inf, high), (low, math.inf), (-math.inf, math.inf)]
        law += [(math.inf, math.inf), (-math.inf, -math.inf)]
        figures = (float(known), float(room), *map(float, law[rng.integers(len(law))]))
        inward = [random_matrix(rng) for _ in range(rng.integers(1, 7))]
        loss = float(rng.choice([0.0, 0.3 * rng.exponential()]))
        promise = float(rng.choice([3 * rng.exponential(), math.inf]))
        right = IntervalAccount(*map(np.asarray, figures)).admit(loss, inward, promise)
        chain = [tuple(matrix.ravel().tolist()) for matrix in inward]
        said = SCRIPTED.after_block(figures, loss, chain, promise)
        assert (said is None) == (right is None)
        if right is not None:
            admitted += 1
            due = [float(getattr(right, name)) for name in ("known", "room", "low", "high")]
            assert said == pytest.approx(due, rel=1e-9, abs=1e-9)
    assert admitted > 1000


# ---- the digest of terms


def other_digest(_: Any) -> str:
    return "0f" * 32


def of_chain(name: str, value: Any) -> Callable[[Any], Any]:
    """The models with another figure of the first chain of the first one."""

    def changed(models: Any) -> Any:
        models[0]["chains"][0][name] = value(models[0]["chains"][0][name])
        return models

    return changed


STATED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "digest": ("digest", other_digest),
    "seconds": ("seconds", lambda seconds: seconds * 2),
    "zone": ("zone", other_digest),
    "occupancy": ("occupancy", other_digest),
    "consumption": ("consumption", other_digest),
    "promise": ("promise", lambda promise: {**promise, "epsilon": 2.0}),
    "eta": ("promise", lambda promise: {**promise, "eta": 0.5}),
    "plan": ("plan", lambda plan: {**plan, "blocks": [*plan["blocks"], [1, 0.5, 1]]}),
    "roster": ("roster", other_digest),
    "time_zone": ("time_zone", lambda _: "Europe/Paris"),
    "slots": ("models", lambda models: [{**models[0], "slots": models[0]["slots"][::-1]}]),
    "moves": ("models", of_chain("moves", lambda moves: moves[::-1])),
    "reach": ("models", of_chain("reach", lambda reach: reach / 2)),
    "largest reach": ("reach", lambda reach: reach + 1),
}


@pytest.mark.parametrize("change", STATED)
def test_terms_whose_digest_does_not_follow_from_what_they_state_are_refused(
    honest: Honest, change: str
) -> None:
    """Signed again by their publisher; the second ones, under which the most is on record."""
    name, value = STATED[change]
    story, place = copy.deepcopy(honest.story), honest.place("terms", 1)
    body = story[place][1]
    before = copy.deepcopy(body[name])
    body[name] = value(body[name])
    assert body[name] != before
    records = sealed(story)
    said, report = script_says(records), check(records, verify_signature)
    assert f"bad: line {place + 1}: its digest is not that of what terms state" in said
    assert report.first_bad == place + 1
    assert "do not have the digest that follows" in str(report.reason)


def test_the_digest_of_terms_has_all_that_they_state_but_how_they_begin(honest: Honest) -> None:
    """What the second terms have in addition is in the digest of their record, and signed."""
    body = honest.story[honest.place("terms", 1)][1]
    assert set(body) - {name for name, _ in STATED.values()} == {"first", "houses"}
    assert set(body["models"][0]["chains"][0]) == {"law", "moves", "reach"}
    story = copy.deepcopy(honest.story)
    story[honest.place("terms", 0)][1]["models"][0]["chains"][0]["law"] = [0.25, 0.75]
    assert "does not follow from the records before" in script_says(sealed(story))


def test_what_a_file_alone_has_is_said_to_be_not_checked(honest: Honest) -> None:
    said = script_says(sealed(honest.story))
    assert "not checked: that reach, zone, occupancy, consumption and roster of terms are" in said
    assert "not checked: what prices lose below eta 1" not in said


def test_the_promise_and_what_was_lost_of_it_are_said(honest: Honest) -> None:
    said = script_says(sealed(honest.story)).splitlines()
    n = len(honest.story)
    assert said[0].startswith(f"good: {n} records, all {n} signatures checked; every promise was")
    promises = [line for line in said if line.startswith("terms of record")]
    assert "from 2026-03-27T23:00:00Z" in promises[0]
    assert "from 2026-03-28T23:00:00Z" in promises[1]
    for line, epsilon in zip(promises, ("1", "0.5"), strict=True):
        assert "all prices ever published shift the odds of whether somebody is at home" in line
        assert f"(secret interval, epsilon {epsilon}, eta 1)" in line
    lost = [line for line in said if "had lost by the end of its block" in line]
    most = [float(line.partition("at most: ")[2].partition(" of ")[0]) for line in lost]
    assert 0.3 <= most[0] <= 1
    assert 0 < most[1] <= 0.5
    sources = [body.get("source") for kind, body in honest.story if kind == "release"]
    assert f"releases from readings {sources[:18].count('readings')}," in lost[0]
