"""The canonical columns: what they hold, refuse and never show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid.intake.readings import (
    FAULTS_END,
    Fault,
    Parsed,
    RawColumns,
    Readings,
    check_rows,
    clean_meter,
    collect,
    concat,
    reason,
)
from tests.intake.renderings import Row
from tests.intake.strategies import ROWS


def readings_of(rows: list[Row]) -> Readings:
    return Readings.of(*([row[i] for row in rows] for i in range(4)))


@given(st.lists(ROWS, max_size=5))
def test_concat_keeps_every_row_in_order(parts: list[list[Row]]) -> None:
    joined = concat([readings_of(rows) for rows in parts])
    assert list(joined.rows()) == [row for rows in parts for row in rows]
    assert list(joined.meter) == [row[0] for rows in parts for row in rows]
    assert len(joined) == sum(map(len, parts))


def test_columns_are_read_only_and_own() -> None:
    start = np.array([0, 900])
    kept = Readings.of(["a", "a"], start, [900, 900], [1, 2])
    start[0] = 5
    assert kept.start.tolist() == [0, 900]
    for column in (kept.code, kept.start, kept.duration, kept.wh):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1
    with pytest.raises(AttributeError):
        kept.wh = kept.start  # type: ignore[misc]


GOOD = {"ids": ["a"], "code": [0], "start": [0], "duration": [900], "wh": [5]}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"ids": ["a", "a"]}, "ids repeat"),
        ({"ids": [""]}, "ids repeat or"),
        ({"ids": ["x" * 129]}, "ids repeat or"),
        ({"ids": ["a\n"]}, "ids repeat or"),
        ({"code": [1]}, "code is not always"),
        ({"code": [-1]}, "code is not always"),
        ({"start": [-1]}, "start is not always"),
        ({"start": [4_102_444_800]}, "start is not always"),
        ({"duration": [0]}, "duration is not always"),
        ({"duration": [2**31]}, "duration is not always"),
        ({"wh": [10**12 + 1]}, "wh is not always"),
        ({"wh": [5.0]}, "wh is not a list of whole"),
        ({"wh": [[5]]}, "wh is not a list of whole"),
        ({"wh": [True]}, "wh is not a list of whole"),
        ({"wh": [5, 6]}, "columns have lengths"),
    ],
)
def test_bad_columns(change: dict[str, object], word: str) -> None:
    fields = {**GOOD, **change}
    ids, code = fields.pop("ids"), fields.pop("code")
    with pytest.raises(IntakeError, match=word):
        Readings(ids, code, **fields)  # type: ignore[arg-type]


def test_sift_names_the_leftmost_fault_and_no_value() -> None:
    columns = RawColumns(
        ["a", "b"],
        np.array([0, Fault.METER, 0, 0, 1, 0]),
        np.array([0, Fault.TIME, 4_102_444_800, 0, 0, 0]),
        np.array([900, 900, 900, 0, 900, 900]),
        np.array([12345, 12345, 12345, 12345, 10**12 + 1, Fault.VALUE]),
    )
    found = check_rows("line", np.arange(2, 8), columns, [(9, Fault.FIELDS), (1, Fault.TOO_LONG)])
    assert list(found.readings.rows()) == [("a", 0, 900, 12345)]
    assert found.readings.ids == ("a",)
    assert found.malformed == 7
    assert found.problems == (
        "line 1: is longer than 64 KiB",
        "line 3: meter id is not 1 to 128 printable characters",
        "line 4: time is outside the years 1970 to 2099",
        "line 5: duration is not in whole seconds from 1 to 31622400",
        "line 6: value is beyond 10^12 Wh",
        "line 7: value is not a number",
        "line 9: has another number of fields than the header",
    )


def test_collect_counts_all_and_names_ten() -> None:
    batches = [Parsed(Readings.empty(), 7, tuple(f"{i}.{j}" for j in range(7))) for i in range(3)]
    found = collect(batches)
    assert found.malformed == 21
    assert found.problems == (*(f"0.{j}" for j in range(7)), "1.0", "1.1", "1.2")


def test_every_fault_has_its_text() -> None:
    assert len({reason(fault) for fault in Fault}) == len(Fault)
    assert all(fault < FAULTS_END for fault in Fault)
    assert reason(int(Fault.STRADDLES)) == Fault.STRADDLES.text


@pytest.mark.parametrize(
    "text", ["", " ", "\t", "a\x00b", "\ud800", "a\u200b", "a\u00a0b", "x" * 129]
)
def test_no_meter_id(text: str) -> None:
    assert clean_meter(text) is None
