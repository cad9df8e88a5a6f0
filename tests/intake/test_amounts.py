"""Decimal text to whole Wh: against the standard library's decimal arithmetic."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.intake.readings import Fault
from hushgrid.intake.text import scaled, whole_seconds

HALVES = st.integers(-(10**6), 10**6).map(lambda n: Decimal(n) / 2000)
NUMBERS = st.decimals(-(10**9), 10**9, allow_nan=False, places=7) | HALVES


@given(NUMBERS)
def test_kwh_round_half_even(number: Decimal) -> None:
    with localcontext(prec=50):
        expected = (number * 1000).quantize(Decimal(1), ROUND_HALF_EVEN)
    assert scaled(f"{number:f}", 1000) == expected
    assert scaled(f"{number:e}", 1000) == expected


@given(NUMBERS, st.integers(1, 86400))
def test_power_over_a_duration_is_exact(number: Decimal, duration: int) -> None:
    expected = round(Fraction(number) * 1000 * duration / 3600)  # halves to even
    if abs(expected) <= 10**12:
        assert scaled(str(number), 1000 * duration, 3600) == expected


@pytest.mark.parametrize(
    ("text", "wh"),
    [
        ("0.115", 115),  # 0.115 * 1000 is 115.00000000000001 in floats
        ("1.0015", 1002),  # 1.0015 * 1000 is 1001.4999999999999 in floats
        ("1.0025", 1002),
        ("0.0005", 0),
        ("0.00050000000000000000000001", 1),
        ("0.0015", 2),
        ("-0.0005", 0),
        ("-0.0015", -2),
        ("+.5", 500),
        ("5.", 5000),
        ("1e-3", 1),
        ("0e999", 0),
        ("1e-999", 0),
        (" 0 ", 0),
        ("1000000000", 10**12),
    ],
)
def test_golden_kwh(text: str, wh: int) -> None:
    assert scaled(text, 1000) == wh


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.VALUE_MISSING),
        (" ", Fault.VALUE_MISSING),
        ("Null", Fault.VALUE),
        ("NaN", Fault.VALUE),
        ("inf", Fault.VALUE),
        ("-Infinity", Fault.VALUE),
        (".", Fault.VALUE),
        ("e5", Fault.VALUE),
        ("1,5", Fault.VALUE),
        ("1 000", Fault.VALUE),
        ("0x10", Fault.VALUE),
        ("1_000", Fault.VALUE),
        ("٣", Fault.VALUE),
        ("5\n", Fault.VALUE),
        ("1" * 65, Fault.VALUE),
        ("1e9999", Fault.VALUE),
        ("1e400", Fault.VALUE_SIZE),
        ("1000000000.001", Fault.VALUE_SIZE),
        ("-1e300", Fault.VALUE_SIZE),
    ],
)
def test_no_amount(text: str, fault: Fault) -> None:
    assert scaled(text, 1000) is fault


@given(st.integers(-31_622_400, 31_622_400), st.integers(0, 5))
def test_whole_seconds_however_written(number: int, zeros: int) -> None:
    assert whole_seconds(str(number)) == number
    assert whole_seconds(f"{number}.{'0' * zeros}") == number
    assert whole_seconds(f"{number}{'0' * zeros}e-{zeros}") == number


def test_not_whole() -> None:
    for text in ("1.5", "15e-1", "1e13", "one", ""):
        assert whole_seconds(text) is Fault.DURATION
