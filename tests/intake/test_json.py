"""JSON arrays and NDJSON: bad records beside good ones, unusable documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid.intake.json import json_batches, parse_records
from hushgrid.intake.readings import collect
from tests.intake.renderings import Row, as_json, as_ndjson

GOOD: dict[str, Any] = {
    "meter_id": "a", "start_utc": "2013-01-01T00:00:00Z", "duration_s": 1800, "wh": 115,
}  # fmt: skip
ROW: Row = ("a", 1356998400, 1800, 115)


def record(**change: Any) -> str:
    return json.dumps({**GOOD, **change})


BAD = [
    (record(meter_id=7), "meter id"),
    (record(meter_id=None), "meter id"),
    (record(meter_id="\ud800"), "meter id"),
    (record(meter_id=["a"]), "meter id"),
    (record(start_utc="2013-01-01T00:00:00"), "no UTC offset"),
    (record(start_utc=1356998400), "time is missing"),
    (record(start_utc="2013-02-30T00:00:00Z"), "time is not in the expected form"),
    (record(start_utc="9999-12-31T23:59:59Z"), "outside the years"),
    (record(start_utc="1970-01-01T00:00:00+00:01"), "outside the years"),
    (record(duration_s="1800"), "duration"),
    (record(duration_s=True), "duration"),
    (record(duration_s=0), "duration"),
    (record(duration_s=None), "duration"),
    (record(duration_s=10**30), "duration"),
    (record(duration_s=10**309), "duration"),
    (record(wh="115"), "not a number"),
    (record(wh=True), "not a number"),
    (record(wh=float("nan")), "not a number"),
    (record(wh=float("inf")), "not a number"),
    (record(wh=0).replace("0}", "1e400}"), "beyond 10^12"),
    (record(wh=10**13), "beyond 10^12"),
    (record(wh=1e300), "beyond 10^12"),
    (record(wh=-(10**309)), "beyond 10^12"),
    (record(wh={}), "not a number"),
    (record(wh=None), "value is missing"),
    ("{}", "field meter_id is missing; a reading has meter_id, start_utc, duration_s, wh"),
    (record().replace('"wh"', '"kwh"'), "field wh is missing (perhaps 'kwh'); a reading has"),
    ("[]", "not one flat JSON object"),
    ("null", "not one flat JSON object"),
    ('"text"', "not one flat JSON object"),
    ("12", "not one flat JSON object"),
    ("NaN", "not one flat JSON object"),
    ("[" * 80 + "]" * 80, "not one flat JSON object"),
]


@pytest.mark.parametrize(("text", "why"), BAD, ids=[text[:60] for text, _ in BAD])
def test_a_bad_record_harms_itself_alone(text: str, why: str) -> None:
    good = json.dumps(GOOD)
    for data, word in (
        (f"[{good},{text} , {good}]", "record"),
        (f"{good}\n{text}\n{good}", "line"),
    ):
        found = collect(json_batches(data.encode()))
        assert list(found.readings.rows()) == [ROW, ROW]
        assert found.malformed == 1
        (problem,) = found.problems
        assert problem.startswith(f"{word} 2: ")
        assert why in problem


@pytest.mark.parametrize("digits", [5000, 60_000])
def test_endless_digits(digits: int) -> None:
    """More digits than Python's int() takes; the reading is malformed, its neighbours are not."""
    good, bad = json.dumps(GOOD), record(wh=0).replace("0}", "9" * digits + "}")
    for data in (f"[{good},{bad},{good}]", f"{good}\n{bad}\n{good}"):
        found = collect(json_batches(data.encode()))
        assert (len(found.readings), found.malformed) == (2, 1)


@pytest.mark.parametrize(
    "line", [b"{", b"}", b'{"meter_id":"\xff"}', b"{'a':1}", b"[" * 60_000, b"x" * 70_000, b'"\\']
)
def test_a_broken_line_harms_itself_alone(line: bytes) -> None:
    good = json.dumps(GOOD).encode()
    found = collect(json_batches(good + b"\n" + line + b"\n\n" + good + b"\n"))
    assert list(found.readings.rows()) == [ROW, ROW]
    assert found.malformed == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"hello", "no JSON object"),
        (b"<html>\n</html>", "no JSON object"),
        (b"\xff\xfe{\x00", "no JSON object"),
        (b"[", "broken"),
        (b"[1", "']'"),
        (b"[1 2]", "']'"),
        (b"[1,]", "broken"),
        (b"[,]", "broken"),
        (b"[{]", "broken"),
        (b"[]]", "followed by more text"),
        (b"[1]\n[2]", "followed by more text"),
        (b'["\xff"]', "not UTF-8"),
        (b'["\xc3', "not UTF-8"),
        (b"[" * 200_000, "nests too deep"),
        (b'[{"a":' * 100_000, "nests too deep"),
        (b'["' + b"x" * 70_000 + b'"]', "beyond 64 KiB"),
        (b'["' + b"x" * 3_000_000, "broken"),
    ],
)
def test_unusable_documents(data: bytes, why: str) -> None:
    with pytest.raises(IntakeError, match=why):
        collect(json_batches(data))


@pytest.mark.parametrize("data", [b"", b"\n\n", b"[]", b" [ ] ", b"\xef\xbb\xbf[]"])
def test_nothing_is_no_readings(data: bytes) -> None:
    found = collect(json_batches(data))
    assert (len(found.readings), found.malformed) == (0, 0)


def test_whole_floats_repeated_keys_and_other_keys() -> None:
    text = b'{"meter_id":"z","meter_id":"a","start_utc":"2013-01-01T01:00:00+01:00",'
    text += b'"duration_s":1800.0,"wh":1.15e2,"phase":{"of":[1,2]},"note":"%s"}' % (b"{" * 80)
    assert list(collect(json_batches(text)).readings.rows()) == [ROW]
    assert list(collect(json_batches(b"[" + text + b"]")).readings.rows()) == [ROW]


@given(st.integers(1, 40), st.integers(1, 60))
def test_numbers_that_are_cut_by_a_block(length: int, at: int) -> None:
    """No element ends early because its block does."""
    data = b"[" + b"1" * length + b",-2.5e3, " + json.dumps(GOOD).encode() + b"]"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hushgrid.intake.json.BLOCK", at)
        (found,) = json_batches(data)
    assert list(found.readings.rows()) == [ROW]
    assert found.malformed == 2


@pytest.mark.parametrize("write", [as_json, as_ndjson])
def test_many_records_in_batches(write: Any) -> None:
    rows: list[Row] = [(f"m{i % 7}", 900 * i, 900, i) for i in range(30_000)]
    batches = list(json_batches([write(rows)]))
    assert len(batches) > 1
    assert [row for batch in batches for row in batch.readings.rows()] == rows


def test_records_that_are_no_mappings() -> None:
    found = parse_records([GOOD, 5, None, "a", [GOOD]])
    assert (len(found.readings), found.malformed) == (1, 4)
    assert found.problems[0] == "record 2: is not one flat JSON object"
