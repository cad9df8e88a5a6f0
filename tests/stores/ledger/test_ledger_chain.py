"""The rules of a ledger: what may follow what, what the fold leaves, and that tampering shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.chain import check, fold
from hushgrid.stores.ledger.records import from_line, seal
from hushgrid.stores.ledger.writer import Key, verify_signature
from tests import bodies
from tests.stores.ledger.ledgers import (
    ALL_KNOWN,
    KEY,
    OTHER_TERMS,
    START,
    TERMS,
    Story,
    genesis,
    instead,
    lines_of,
    opening,
    read,
    released,
    sealed,
    story,
    terms,
)
from tests.stores.ledger.verifier import SCRIPT, SCRIPTED

RECORDS = sealed(story())
EXPORT = lines_of(RECORDS)
LINES = EXPORT.splitlines(keepends=True)


def test_a_whole_ledger_stands() -> None:
    report = check(RECORDS, verify_signature)
    assert (report.records, report.head, report.first_bad) == (10, RECORDS[-1].digest, None)
    assert check(map(from_line, LINES), verify_signature) == report
    assert SCRIPTED.verify(LINES)[0]


def test_the_fold() -> None:
    standing = fold(RECORDS, verify_signature)
    assert (standing.mode, standing.key) == ("production", KEY.public)
    assert standing.head == (10, RECORDS[-1].digest)
    assert standing.signature == RECORDS[-1].signature
    assert standing.terms is not None
    assert (standing.terms.digest, standing.terms.first) == (OTHER_TERMS, 6)
    assert [one.t for one in standing.releases] == [1, 2, 3, 4, 5, 6]
    assert standing.counts == {"readings": 4, "forecast": 1, "fallback": 1}
    assert (standing.last_t, [one.rate for one in standing.current]) == (6, [released(1).rate])
    assert standing.epsilon == float("inf")  # the last one has no epsilon of its own
    second = standing.at(2)
    assert second is not None
    assert second.in_week(1) == released(2)
    assert (second.seq, second.head) == (4, RECORDS[3].digest)
    assert standing.at(7) is None
    sixth = standing.releases[5]
    again = released(1, digest=OTHER_TERMS, epsilon=float("inf"))
    assert sixth.in_week(6) == again
    with pytest.raises(LedgerError, match="fallback"):
        standing.releases[4].in_week(1)


def test_spending_is_rounded_up() -> None:
    told = [*opening(), *(("release", read(t, epsilon=0.1)) for t in (1, 2, 3))]
    # 0.1 is a little more than a tenth; three of them are a little more than the float 0.3
    assert fold(sealed(told)).epsilon == 0.30000000000000004


def test_what_a_gap_may_have_cost_is_spent() -> None:
    told = [*opening(), ONE, GAP]
    assert fold(sealed(told)).gap is not None
    standing = fold(sealed([*told, BOOKED, ("release", read(3))]))
    assert (standing.gap, standing.epsilon) == (None, 1.5)
    endless = ("resume", dict(bodies.resume(2, 2, epsilon=float("inf"))))
    assert fold(sealed([*told, endless])).epsilon == float("inf")


def refused_at(told: Story, says: str) -> None:
    """The last record of the story, and only that one, breaks a rule; both verifiers agree."""
    records = sealed(told)
    report = check(records, verify_signature)
    assert report.first_bad == len(records), report.reason
    assert says in (report.reason or ""), report.reason
    assert report.records == len(records) - 1
    good, text = SCRIPTED.verify(lines_of(records).splitlines(keepends=True))
    assert not good
    assert text.startswith(f"bad: line {len(records)}:"), text
    with pytest.raises(LedgerError):
        fold(records, verify_signature)


ONE = ("release", read(1))
PLACE = {"first": 1, "length": 2}
OUT = bodies.transfer("h", "out", other="o")
GAP = ("gap", dict(bodies.gap(2, 2, "failover")))
BOOKED = ("resume", dict(bodies.resume(2, 2, epsilon=0.5)))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([("terms", terms())], "begins with genesis"),
        ([*opening(), ("genesis", genesis())], "no other"),
        ([*opening()[:1], ONE], "under no terms"),
        ([*opening()[:1], ("release", instead(1, "forecast"))], "under no terms"),
        ([*opening(), ("release", read(1, digest=OTHER_TERMS))], "new terms"),
        ([*opening(), ("release", instead(1, "forecast", digest=OTHER_TERMS))], "new terms"),
        ([*opening(), ("release", instead(1, "forecast", digest=None))], "new terms"),
        ([*opening(), ("release", instead(1, "fallback", digest=TERMS))], "names a model"),
        ([*opening(), ONE, ONE], "step t is 1 but step 1"),
        ([*opening(), ("release", read(2)), ONE], "clock go back"),
        ([*opening(), ONE, ("release", {**read(2), "start": START})], "clock go back"),
        ([*opening(), ONE, ("release", {**read(2), "start": START + 899})], "overlap"),
        ([*opening(), ONE, ("release", {**read(2), "applies_from": 2})], "later steps"),
        ([*opening(), ONE, ("release", {**read(2), "applies_start": START})], "later steps"),
        ([*opening(), ("release", read(1, scale=0.0))], "scale 0"),
        ([*opening(), ("release", {**read(1), "load_hat": None})], "no load_hat"),
        ([*opening(), ("release", {**read(1), "noise": "block"})], "its place there"),
        ([*opening(), ("release", {**read(1), "block": PLACE})], "its place there"),
        (
            [
                *opening(),
                ("release", {**read(2), "noise": "block", "block": {**PLACE, "first": 3}}),
            ],
            "a block of these terms",
        ),
        (
            [
                *opening(),
                ("release", {**read(3), "noise": "block", "block": PLACE}),
            ],
            "a block of these terms",
        ),
        (
            [
                *opening()[:1],
                ("terms", terms(first=2)),
                ("release", {**read(2), "noise": "block", "block": PLACE}),
            ],
            "under terms from step 2",
        ),
        (
            [
                *opening(),
                ("release", {**read(1), "noise": "block", "block": {**PLACE, "first": 0}}),
            ],
            "block of release",
        ),
        ([*opening(), ("release", {**instead(1, "forecast"), "block": PLACE})], "has block"),
        ([*opening(), ("release", read(1, simulated=True))], "simulated noise"),
        ([*opening("simulation"), ONE], "marks every release"),
        ([*opening(), ("release", read(1, zone="oak-street"))], "of zone 'oak-street'"),
        ([*opening(), ("release", {**instead(1, "fallback"), "load_hat": 3})], "a load or a cost"),
        ([*opening(), ("release", {**instead(1, "forecast"), "epsilon": 0.1})], "or a cost"),
        ([*opening(), ONE, ("terms", terms(first=1))], "begin at step 1"),
        ([*opening(), ("transfer", {**OUT, "out": "00" * 32})], "none yet"),
        ([*opening(), ("transfer", {**OUT, "direction": "in"})], "comes in"),
        ([*opening(), ("release", {**read(1), "load": 40_000})], "'load'"),
        ([*opening(), ("release", {**read(1), "t": "1"})], "t of release"),
        ([*opening(), ONE, GAP, ("release", read(3))], "not booked"),
        ([*opening(), GAP, ("release", instead(3, "forecast")), ONE], "step t is 1"),
        ([*opening(), ONE, GAP, ("release", instead(2, "forecast"))], "step 2"),
        ([*opening(), GAP, GAP], "not booked"),
        ([*opening(), GAP, ("terms", terms(first=3))], "not booked"),
        ([*opening(), GAP, ("transfer", dict(OUT))], "not booked"),
        ([*opening(), ("gap", dict(bodies.gap(2, 1, "meters")))], "in order"),
        ([*opening()[:1], GAP], "present terms"),
        ([*opening(), ("gap", {**GAP[1], "why": "because"})], "why"),
        ([*opening(), BOOKED], "no open gap"),
        ([*opening(), GAP, BOOKED, BOOKED], "no open gap"),
        ([*opening(), GAP, ("resume", {**BOOKED[1], "last": 3})], "no open gap"),
        ([*opening(), GAP, ("resume", {**BOOKED[1], "epsilon": -0.5})], "epsilon"),
        ([*opening(), GAP, BOOKED, ("release", read(2))], "step 2"),
        ([("genesis", {**genesis(), "mode": "test"})], "mode"),
        ([("genesis", {**genesis(), "key": "x"})], "key"),
    ],
)
def test_rules(told: Story, says: str) -> None:
    refused_at(told, says)


@pytest.mark.parametrize(
    "told",
    [
        [*opening()[:1], ("release", instead(1, "fallback"))],
        [*opening(), ("release", read(1)), ("release", read(3))],
        [*opening("simulation"), ("release", read(1, mode="simulation"))],
        [*opening("simulation"), ("release", read(1, mode="simulation", simulated=True))],
        [*opening(), ("release", instead(9, "forecast"))],
        [*opening(), ("release", {**read(1), "noise": "block", "block": PLACE})],
        [*opening(), ONE, GAP, BOOKED, ("release", read(3))],
        [*opening(), GAP, ("release", instead(3, "forecast")), BOOKED, ("terms", terms(first=4))],
        [*opening(), GAP, ("resume", dict(bodies.resume(2, 2, epsilon=float("inf"))))],
        [*opening(), ("terms", terms(first=1)), ONE],
    ],
)
def test_what_the_rules_allow(told: Story) -> None:
    report = check(sealed(told), verify_signature)
    assert report.first_bad is None, report.reason
    assert SCRIPTED.verify(lines_of(sealed(told)).splitlines(keepends=True))[0]


@pytest.mark.parametrize(
    ("zone", "seq", "prev", "says"),
    [
        ("elm-street", 5, RECORDS[3].digest, None),
        ("elm-street", 6, RECORDS[3].digest, "has number 6"),
        ("elm-street", 5, RECORDS[2].digest, "one of them was changed"),
        ("ash-street", 5, RECORDS[3].digest, "in a chain of 'elm-street'"),
        ("oak-street", 5, RECORDS[3].digest, "has number 5"),
    ],
)
def test_each_link_is_checked(zone: str, seq: int, prev: str, says: str | None) -> None:
    """Records well made and well signed, but in the wrong place."""
    told = story()[4]
    records = [*RECORDS[:4], seal(zone, seq, *told, prev, KEY.sign)]
    report = check(records, verify_signature)
    assert (report.first_bad, SCRIPTED.verify(_lines(lines_of(records)))[0]) == (
        (None, True) if says is None else (5, False)
    )
    assert says is None or says in (report.reason or ""), report.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"rate":0.25', b'"rate": 0.25'),
        (b'"rate":0.25', b'"rate":0.250'),
        (b'"rate":0.25', b'"rate":25e-2'),
        (b'"rate":0.25', b'"rate":0.25,"rate":0.25'),
        (b'"readings"', b'"\\u0072eadings"'),
        (b'"t":2,"zone":"elm-street"', b'"zone":"elm-street","t":2'),
        (b"}\n", b"}\r\n"),
        (b"\n", b"\n\n"),
        (b'{"body"', b'\xef\xbb\xbf{"body"'),
    ],
)
def test_only_one_way_to_write_it(old: bytes, new: bytes) -> None:
    """Lines that mean the same and are not the same."""
    assert json.loads(LINES[3].replace(old, new).decode("utf-8-sig")) == json.loads(LINES[3])
    found = damaged(b"".join([*LINES[:3], LINES[3].replace(old, new), *LINES[4:]]))
    assert found == (5 if new == b"\n\n" else 4)


def test_capital_digits_are_refused() -> None:
    record = RECORDS[3]
    for value in (record.prev, record.digest, record.signature):
        line = LINES[3].replace(value.encode(), value.upper().encode())
        assert line != LINES[3]
        with pytest.raises(LedgerError, match="hexadecimal"):
            from_line(line)


def damaged(change: bytes) -> int | None:
    """The first bad line, on which hushgrid and the script agree."""
    report = check(map(from_line, _lines(change)), verify_signature)
    good, text = SCRIPTED.verify(_lines(change))
    assert good == (report.first_bad is None and report.records > 0)
    if not good and report.first_bad is not None:
        assert text.startswith(f"bad: line {report.first_bad}:"), (text, report.reason)
    return report.first_bad


def _lines(content: bytes) -> list[bytes]:
    """As a file opened in binary mode: split at line feeds alone."""
    pieces = content.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def line_of(place: int) -> int:
    """Which line, from 1, the byte at a place is in; a line feed belongs to the line it ends."""
    return EXPORT[:place].count(b"\n") + 1


PLACES = st.integers(0, len(EXPORT) - 1)
NUMBERS = st.integers(0, len(LINES) - 1)


@given(PLACES, st.integers(1, 255))
def test_a_changed_byte_is_found(place: int, by: int) -> None:
    changed = bytearray(EXPORT)
    changed[place] ^= by
    assert damaged(bytes(changed)) == line_of(place)


@given(PLACES)
def test_a_removed_byte_is_found(place: int) -> None:
    # of equal neighbours it does not matter which one goes
    assert damaged(EXPORT[:place] + EXPORT[place + 1 :]) == line_of(place)


@given(PLACES, st.binary(min_size=1, max_size=3))
def test_added_bytes_are_found(place: int, more: bytes) -> None:
    assert damaged(EXPORT[:place] + more + EXPORT[place:]) == line_of(place)


@given(NUMBERS)
def test_a_removed_record_is_found(gone: int) -> None:
    rest = b"".join(LINES[:gone] + LINES[gone + 1 :])
    if gone < len(LINES) - 1:
        assert damaged(rest) == gone + 1
    else:  # what remains is a whole ledger; only a head known from elsewhere shows the loss
        assert damaged(rest) is None
        head = RECORDS[-1].digest
        report = check(map(from_line, _lines(rest)), verify_signature, {head: None})
        assert report.first_bad == gone + 1
        assert SCRIPTED.verify(_lines(rest), heads=[head]) == (
            False,
            f"bad: no record has the digest {head}: the chain was written anew, or its end was cut",
        )


@given(NUMBERS, NUMBERS)
def test_a_repeated_record_is_found(which: int, after: int) -> None:
    more = [*LINES[: after + 1], LINES[which], *LINES[after + 1 :]]
    itself = which == after + 1  # the next one twice: the second of them is bad
    assert damaged(b"".join(more)) == after + (3 if itself else 2)


@given(st.permutations(LINES))
def test_records_in_another_order_are_found(order: list[bytes]) -> None:
    moved = [n for n, (one, other) in enumerate(zip(order, LINES, strict=True), 1) if one != other]
    assert damaged(b"".join(order)) == (moved[0] if moved else None)


def test_a_chain_written_anew_with_another_key_is_found_by_the_key_or_the_head() -> None:
    forger = Key(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    told = story()
    told[0][1]["key"] = forger.public
    forged = sealed(told, key=forger)
    lines = lines_of(forged).splitlines(keepends=True)
    assert check(forged, verify_signature).first_bad is None  # in itself it is whole
    assert check(forged, verify_signature, {RECORDS[-1].digest: None}).first_bad == 11
    assert SCRIPTED.verify(lines, key=forger.public)[0]
    assert not SCRIPTED.verify(lines, key=KEY.public)[0]
    told[0][1]["key"] = KEY.public  # claims the old key without having it
    assert check(sealed(told, key=forger), verify_signature).first_bad == 1
    assert check(sealed(told, key=forger)).first_bad is None  # without signatures nobody can tell


def test_the_script_needs_the_standard_library_alone(tmp_path: Path) -> None:
    export = tmp_path / "ledger.ndjson"
    unsigned = LINES.copy()
    unsigned[5] = unsigned[5].replace(
        RECORDS[5].signature.encode(), b"0" + RECORDS[5].signature[1:].encode()
    )
    for flags, content, status, says in (
        (["-I"], EXPORT, 0, "good: 10 records, all 10 signatures checked; NOT every"),
        (
            ["-I", "-S"],
            EXPORT,
            0,
            "at most: inf of 0.5, MORE than promised",
        ),  # -S: no installed packages
        (["-I"], b"".join(unsigned), 1, "bad: line 6: the signature"),
        (["-I", "-S"], b"".join(unsigned), 1, "bad: line 6: the signature"),
        (["-I", "-S"], EXPORT.replace(b"0.25", b"0.26", 1), 1, "bad: line 4: its digest"),
        (["-I", "-S"], b"", 1, "no record"),
    ):
        export.write_bytes(content)
        found = subprocess.run(
            [sys.executable, *flags, "-W", "error", SCRIPT, export],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert (found.returncode, found.stderr) == (status, ""), found
        assert says in found.stdout
        assert (found.stdout.count("\n") == 1) == (status == 1)
    assert "hushgrid" not in _imported(SCRIPT)


def _imported(path: Path) -> set[str]:
    import ast

    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield (node.module or "").split(".")[0]

    return set(names())


def moving(**changes: Any) -> list[Any]:
    """Elm street, which a house leaves, and oak street, where it arrives."""
    out = RECORDS[4].digest
    body = bodies.transfer("house-17", "in", other="elm-street", out=out, account=ALL_KNOWN)
    told = [("genesis", genesis()), ("transfer", {**body, **changes})]
    return [*RECORDS, *sealed(told, zone="oak-street")]


def test_a_house_that_moves_keeps_its_account() -> None:
    report = check(moving(), verify_signature)
    assert report.first_bad is None, report.reason
    assert set(report.standings) == {"elm-street", "oak-street"}
    for better in (
        {"last": 1},
        {"account": [[0.0, 1.0, *ALL_KNOWN[0][2:]]]},
        {"windows": [[], []]},
    ):
        assert check(moving(**better), verify_signature).first_bad == 12
        assert SCRIPTED.verify(lines_of(moving(**better)).splitlines())[1].startswith("bad")
    assert check(moving(out="00" * 32), verify_signature).first_bad == 12
    assert check(moving(house="house-18"), verify_signature).first_bad == 12
    assert (
        check(moving(other="ash-street"), verify_signature).first_bad is None
    )  # not here to be asked
    body = dict(moving()[-1].body)
    twice = sealed(
        [("genesis", genesis()), ("transfer", body), ("transfer", body)], zone="oak-street"
    )
    assert check([*RECORDS, *twice], verify_signature).first_bad == 13


def test_zones_come_in_the_order_of_their_names() -> None:
    oak = sealed([("genesis", genesis())], zone="oak-street")
    assert check([*RECORDS, *oak]).first_bad is None
    assert check([*oak, *RECORDS]).first_bad == 2
    assert check([*RECORDS[:5], *oak, *RECORDS[5:]]).first_bad == 7
    mixed = lines_of([*RECORDS[:5], *oak, *RECORDS[5:]]).splitlines(keepends=True)
    assert SCRIPTED.verify(mixed)[1].startswith("bad: line 7")


def test_a_lost_end_is_found_where_the_zone_ends() -> None:
    oak = sealed([("genesis", genesis())], zone="oak-street")
    lost = RECORDS[-1].digest
    assert check([*RECORDS[:-1], *oak], verify_signature, {lost: "elm-street"}).first_bad == 10
    assert check([*RECORDS[:-1], *oak], verify_signature, {lost: None}).first_bad == 11


def test_an_empty_ledger() -> None:
    report = check([])
    assert (report.records, report.head, report.first_bad) == (0, None, None)
    assert check([], None, {"00" * 32: "z"}).first_bad == 1
    with pytest.raises(LedgerError, match="no record"):
        fold([])
