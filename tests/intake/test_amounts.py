"""Decimal text to whole Wh: against the standard library's decimal arithmetic."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.intake.amounts import scaled, whole
from hushgrid.intake.faults import Fault

NUMBERS = st.decimals(-(10**9), 10**9, allow_nan=False, places=7)


@given(NUMBERS)
def test_kwh_round_half_up(number: Decimal) -> None:
    with localcontext(prec=50):
        expected = (number * 1000).quantize(Decimal(1), ROUND_HALF_UP)
    assert scaled(f"{number:f}", 1000) == expected
    assert scaled(f"{number:e}", 1000) == expected


@given(NUMBERS, st.integers(1, 86400))
def test_power_over_a_duration_is_exact(number: Decimal, duration: int) -> None:
    exact = abs(Fraction(number)) * 1000 * duration / 3600
    expected = int(exact + Fraction(1, 2)) * (-1 if number < 0 else 1)
    if abs(expected) <= 10**12:
        assert scaled(str(number), 1000 * duration, 3600) == expected


@pytest.mark.parametrize(
    ("text", "wh"),
    [
        ("0.115", 115),  # 0.115 * 1000 is 115.00000000000001 in floats
        ("1.0005", 1001),  # 1.0005 * 1000 is 1000.4999999999999 in floats
        ("0.0005", 1),
        ("0.00049999999999999999999999", 0),
        ("-0.0005", -1),
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


@given(st.integers(-(10**12), 10**12), st.integers(0, 5))
def test_whole_numbers_however_written(number: int, zeros: int) -> None:
    assert whole(str(number)) == number
    assert whole(f"{number}.{'0' * zeros}") == number
    assert whole(f"{number}{'0' * zeros}e-{zeros}") == number


def test_not_whole() -> None:
    assert whole("1.5") is Fault.VALUE_WHOLE
    assert whole("15e-1") is Fault.VALUE_WHOLE
    assert whole("1e13") is Fault.VALUE_SIZE
    assert whole("one") is Fault.VALUE
