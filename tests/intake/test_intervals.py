"""Readings to intervals: against a literal reading of the rules."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid.intake.readings import IntervalReadings, Readings, to_intervals
from tests.intake.renderings import Row


def readings_of(rows: list[Row]) -> Readings:
    return Readings.of(*([row[i] for row in rows] for i in range(4)))


def literal(
    rows: list[Row], length: int
) -> tuple[dict[tuple[int, str], int], set[tuple[int, str]], int, int, int]:
    """Second by second: which seconds of an interval are told, and how often."""
    first: dict[tuple[str, int, int], int] = {}
    duplicates = conflicts = malformed = 0
    for meter, start, duration, wh in rows:
        if duration > length or start // length != (start + duration - 1) // length:
            malformed += 1
        elif (key := (meter, start, duration)) not in first:
            first[key] = wh
        elif first[key] == wh:
            duplicates += 1
        else:
            conflicts += 1
    seconds: dict[tuple[int, str], list[int]] = defaultdict(list)
    total: dict[tuple[int, str], int] = defaultdict(int)
    for (meter, start, duration), wh in first.items():
        place = (start // length * length, meter)
        seconds[place] += range(start, start + duration)
        total[place] += wh
    full = {
        place
        for place, told in seconds.items()
        if sorted(told) == list(range(place[0], place[0] + length))
    }
    return (
        {place: wh for place, wh in total.items() if place in full},
        set(seconds) - full,
        duplicates,
        conflicts,
        malformed,
    )


def summary(done: IntervalReadings) -> object:
    incomplete = done.incomplete
    return (
        {(start, meter): wh for meter, start, _, wh in done.complete.rows()},
        {
            (int(s), incomplete.ids[c])
            for c, s in zip(incomplete.code, incomplete.start, strict=True)
        },
        done.duplicates,
        done.conflicts,
        done.malformed,
    )


PIECES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 5).map(lambda i: 5 * i) | st.integers(0, 30),
        st.sampled_from([1, 5, 5, 5, 10, 15]),
        st.integers(-2, 2),
    ),
    max_size=30,
)


@given(PIECES, st.sampled_from([1, 5, 10, 15]))
def test_as_the_rules_say(rows: list[Row], length: int) -> None:
    done = to_intervals(readings_of(rows), length)
    assert summary(done) == literal(rows, length)
    order = [(start, done.complete.ids.index(meter)) for meter, start, *_ in done.complete.rows()]
    assert order == sorted(set(order))
    assert (done.complete.duration == length).all()
    assert len(done.problems) == min(done.malformed, 10)


@given(PIECES, st.randoms(use_true_random=False))
def test_every_reading_counts_at_most_once(rows: list[Row], random: object) -> None:
    """NameOrder again in any order, nothing changes but the count of duplicates."""
    apart = list({row[:3]: row for row in rows}.values())  # no conflicts
    again = [*apart, *apart]
    random.shuffle(again)  # type: ignore[attr-defined]
    one, two = to_intervals(readings_of(apart), 10), to_intervals(readings_of(again), 10)
    assert sorted(one.complete.rows()) == sorted(two.complete.rows())
    assert two.duplicates == len(apart) - one.malformed
    assert two.conflicts == 0


def test_golden_day() -> None:
    rows: list[Row] = [
        ("a", 1800, 900, 10),
        ("a", 2700, 900, 20),
        ("a", 1800, 900, 10),  # duplicate
        ("a", 2700, 900, 21),  # conflict: 20 stays
        ("b", 1800, 1800, 7),
        ("b", 1800, 900, 3),  # overlaps: b is incomplete
        ("c", 1800, 900, 5),  # half of c is missing
        ("c", 900, 1800, 5),  # straddles
        ("d", 0, 3600, 5),  # too long
        ("e", 1800, 1800, -4),
        ("f", 1800, 900, 1),
        ("f", 2250, 900, 1),  # half an hour in all, but the same minutes twice
    ]
    done = to_intervals(readings_of(rows), 1800)
    assert list(done.complete.rows()) == [("a", 1800, 1800, 30), ("e", 1800, 1800, -4)]
    assert [done.incomplete.ids[c] for c in done.incomplete.code] == ["b", "c", "f"]
    assert (done.duplicates, done.conflicts, done.malformed) == (1, 1, 2)
    assert done.problems == (
        "reading 8: straddles the border of two intervals",
        "reading 9: is longer than the interval",
    )


def test_sums_beyond_a_reading_are_cut() -> None:
    done = to_intervals(readings_of([("a", 0, 450, 10**12), ("a", 450, 450, 10**12)]), 900)
    assert done.complete.wh.tolist() == [10**12]


def test_nothing() -> None:
    done = to_intervals(Readings.empty(), 900)
    assert (len(done.complete), len(done.incomplete), done.malformed) == (0, 0, 0)
    with pytest.raises(ValueError, match="read-only"):
        to_intervals(readings_of([("a", 0, 1, 1)]), 900).incomplete.start[:] = np.int64(1)


@pytest.mark.parametrize("length", [0, -900, 0.5, 86401, True, "900", float("nan")])
def test_bad_interval(length: object) -> None:
    with pytest.raises(IntakeError, match="interval_s is"):
        to_intervals(Readings.empty(), length)  # type: ignore[arg-type]
