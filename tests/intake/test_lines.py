"""NDJSON by msgspec and by `json`: no caller may notice which one decoded a line."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.errors import IntakeError
from hushgrid.intake import json as by_lines
from hushgrid.intake.json import json_batches
from hushgrid.intake.readings import clean_meter, collect
from hushgrid.intake.text import clean_meters, meter_codes, scaled

EXAMPLES = int(os.environ.get("HUSHGRID_EXAMPLES", "60"))  # 600 in make soak
GOOD = b'{"meter_id":"a-1","start_utc":"2026-01-05T00:00:00Z","duration_s":900,"wh":7}'


def answer(data: Any) -> Any:
    """All a caller can see: readings in order, counts, problems, errors."""
    try:
        found = collect(json_batches(data))
    except IntakeError as error:
        return str(error)
    return list(found.readings.rows()), found.malformed, found.problems


def check_same(data: Any) -> None:
    """As where msgspec is not installed."""
    fast = answer(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_lines, "_line_decoder", lambda: None)
        assert answer(data) == fast


IDS = st.one_of(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=8),
    st.text(max_size=6),
    st.sampled_from(["", " ", "a ", " a", "\t", "x" * 128, "x" * 129, "{" * 63, "{" * 64, "[" * 65,
                     'say "a"', "a\\b", "ä", "a\x7f", "a\x00", "\ud800", "\u2028"]),
)  # fmt: skip
TIMES = st.one_of(
    st.datetimes().map(lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")),
    st.builds(
        "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}{}".format,
        st.sampled_from([0, 1900, 1969, 1970, 2000, 2023, 2024, 2099, 2100, 9999]),
        st.integers(0, 13), st.sampled_from([0, 1, 28, 29, 30, 31, 32]),
        st.sampled_from([0, 23, 24]), st.sampled_from([0, 59, 60]), st.sampled_from([0, 59, 60]),
        st.sampled_from(["Z", "z", "", "+00:00", "-00:00", "+01:00", "-23:59", "+24:00", "+01:60",
                         "+0100", "+01", " Z", ".0Z", ".5Z", "*01:00", "+1:000"]),
    ),
    st.sampled_from(["", "1970-01-01T00:00:00+01:00", "2099-12-31T23:59:59-00:01",
                     "2026-01-05t00:00:00Z", "2026-01-05 00:00:00Z", "2026-01-05T00:00Z",
                     "2026/01/05T00:00:00Z", "２026-01-05T00:00:00Z", "+026-01-05T00:00:00Z"]),
)  # fmt: skip
FRACTIONS = st.builds(
    "{}{}.{}".format,
    st.sampled_from(["", "", "-"]),
    st.one_of(st.integers(0, 5000), st.sampled_from([10**12, 10**12 - 1, 10**15, 10**16])),
    st.one_of(
        st.sampled_from(["5", "50", "49", "51", "0", "5" + "0" * 13 + "1", "5" + "0" * 14 + "1",
                         "5" + "0" * 40 + "1", "5" + "0" * 90 + "1", "4" + "9" * 30]),
        st.integers(0, 10**6).map(str),
    ),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-100, 100_000).map(str),
    st.integers(-(10**40), 10**40).map(str),
    st.sampled_from(["0", "-0", "00", "01", "-01", "+1", "-", "", "1.", "1.0", "1e3", "1E2", ".5",
                     "1000000000000", "1000000000001", "-1000000000000", "-1000000000001",
                     "31622400", "31622401", "999999999999999", "9999999999999999", "1" * 5000,
                     "NaN", "Infinity", "-Infinity", "1e999", "true", "null", '"900"', "[1]", "{}",
                     "1 2", "0x1", "١", "1_0", "1.5.5", "-.5", "01.5", "--1.5"]),
    FRACTIONS,
)  # fmt: skip
KEYS = ("meter_id", "start_utc", "duration_s", "wh")
SPACES = st.sampled_from(["", "", "", " ", "\t", "\r", "  ", "\x0b", "\xa0"])


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Objects that are readings, nearly, or not at all."""
    texts = {
        "meter_id": json.dumps(draw(IDS), ensure_ascii=draw(st.booleans())),
        "start_utc": json.dumps(draw(TIMES)),
        "duration_s": draw(st.one_of(st.just("900"), NUMBERS)),
        "wh": draw(NUMBERS),
    }
    keys = draw(st.permutations(KEYS))
    change = draw(st.integers(0, 9))
    if change == 0:
        keys = keys[:-1]
    elif change == 1:
        keys = [*keys, draw(st.sampled_from(KEYS))]
    members = [f'"{key}"{draw(SPACES)}:{draw(SPACES)}{texts[key]}' for key in keys]
    if change == 2:
        members.append(
            draw(st.sampled_from(['"more":1', '"more":[{}]', "", '"wh "', '"wh":', '"']))
        )
    text = f"{draw(SPACES)}{{{draw(SPACES)}" + f"{draw(SPACES)},{draw(SPACES)}".join(members)
    text += draw(SPACES) + draw(
        st.sampled_from(["}"] * 8 + ["", "}}", "} x", "},", "}\r", "}\x00"])
    )
    return text.encode("utf-8", "surrogatepass")


LINES = st.one_of(
    objects(),
    objects(),
    st.just(GOOD),
    st.just(GOOD),
    st.sampled_from([b"", b" ", b"\r", b"null", b"[]", b"{}", b"\xff", b'"', b"{", b"nonsense",
                     b"\xef\xbb\xbf" + GOOD, GOOD + GOOD, GOOD[:-1], GOOD + b" " * 66_000,
                     GOOD + b" " * (65_536 - len(GOOD)), GOOD + b" " * (65_537 - len(GOOD))]),
    st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)).map(
        lambda change: GOOD[: change[0]] + bytes([change[1]]) + GOOD[change[0] + 1 :]
    ),
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(LINES, max_size=8), st.booleans())
def test_fast_and_slow_agree(lines: list[bytes], ended: bool) -> None:
    check_same(b"\n".join(lines) + b"\n" * ended)


@settings(max_examples=EXAMPLES, deadline=None)
@given(objects())
def test_one_line_alone(line: bytes) -> None:
    check_same(line)


def decoded_alone(data: bytes) -> list[bool]:
    """Which lines msgspec decodes without help."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_lines, "_row_of_line", lambda _: None)
        return [row is not None for row in by_lines._rows_of(data.split(b"\n"))]


def test_lines_are_read_where_msgspec_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    by_lines._line_decoder.cache_clear()
    try:
        assert by_lines._line_decoder() is None
        assert answer(GOOD)[0] == [("a-1", 1767571200, 900, 7)]
    finally:
        by_lines._line_decoder.cache_clear()


def test_most_lines_are_decoded_fast() -> None:
    """Else all of this would compare one decoder with itself; halves need the written decimal."""
    texts = [b"7", b"-7.25", b"8.75", b"6.5", b"1e2", b'"7"', b"null", b"NaN"]
    data = b"\n".join(GOOD[:-2] + text + b"}" for text in texts)
    assert decoded_alone(data) == [True, True, True, False, True, False, False, False]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(-3, 3), st.integers(0, 40), st.sampled_from(["", "1", "9"]), st.booleans())
def test_near_halves(whole: int, zeros: int, last: str, below: bool) -> None:
    """A decimal whose nearest float is a half, though the decimal is none."""
    text = f"{whole}.4{'9' * zeros}{last}" if below else f"{whole}.5{'0' * zeros}{last}"
    (found,) = json_batches(GOOD[:-2] + text.encode() + b"}")
    assert found.readings.wh.tolist() == [scaled(text)]


def test_every_byte_at_every_place() -> None:
    """Each single byte of a plain line changed to each other byte, and each left out."""
    for at in range(len(GOOD)):
        changed = [GOOD[:at] + bytes([c]) + GOOD[at + 1 :] for c in range(256)]
        check_same(b"\n".join([*changed, GOOD[:at] + GOOD[at + 1 :], GOOD]))


def test_blocks_cut_lines_anywhere() -> None:
    lines = [GOOD.replace(b"a-1", b"m%d" % k).replace(b":7}", b":%d}" % k) for k in range(9000)]
    lines[::500] = [b"broken"] * len(lines[::500])
    data = b"\n".join(lines)
    for size in (97, 1 << 18, 300_001):
        check_same([data[at : at + size] for at in range(0, len(data), size)])


@st.composite
def of_one_layout(draw: st.DrawFn) -> list[bytes]:
    """Lines of one layout with values of their own, some of them changed in one place."""
    order = draw(st.permutations(KEYS))
    space = [
        draw(st.sampled_from(["", "", "", " ", "  ", "\t", " " * 7, " " * 9])) for _ in range(18)
    ]
    end = draw(st.sampled_from(["", "\r", " "]))
    pool = {
        "meter_id": draw(st.lists(IDS.map(json.dumps), min_size=1, max_size=4)),
        "start_utc": [*draw(st.lists(TIMES.map(json.dumps), max_size=3)),
                      *['"2026-01-05T00:00:00Z"'] * 4, '"2026-01-05T00:15:00Z"',
                      '"2026-01-05T00:15:00+01:00"'],
        "duration_s": ["900"] * 4 + draw(st.lists(NUMBERS, max_size=2)),
        "wh": [*draw(st.lists(NUMBERS, max_size=4)), "0", "-1", "12345678", "-123456789012", "12"],
    }  # fmt: skip
    lines = []
    for _ in range(draw(st.integers(1, 12))):
        parts = [f"{space[0]}{{"]
        for k, key in enumerate(order):
            a, b, c, d = space[4 * k + 1 : 4 * k + 5]
            value = draw(st.sampled_from(pool[key]))
            parts.append(f'{"," if k else ""}{a}"{key}"{b}:{c}{value}{d}')
        line = ("".join(parts) + "}" + end).encode("utf-8", "surrogatepass")
        if draw(st.integers(0, 5)) == 0:
            at, byte = draw(st.integers(0, len(line) - 1)), draw(st.integers(0, 255))
            line = line[:at] + bytes([byte]) * draw(st.integers(0, 2)) + line[at + 1 :]
        lines.append(line)
    return lines


@settings(max_examples=EXAMPLES, deadline=None)
@given(of_one_layout(), st.booleans())
def test_lines_of_one_layout(lines: list[bytes], ended: bool) -> None:
    check_same(b"\n".join([*lines, GOOD]) + b"\n" * ended)
    check_same(b"\n".join(lines) + b"\n" * ended)


def test_ids_and_numbers_of_every_length() -> None:
    ids = [b"x" * k for k in range(140)] + [b"x" * k + b" " + b"y" * k for k in range(1, 70)]
    ids += [b"x" * k + bytes([c]) for k in range(10) for c in range(256) if c != 0x0A]
    numbers = [
        sign + b"9" * k + b"0" * j for sign in (b"", b"-") for k in range(18) for j in (0, 1)
    ]
    numbers += [b"0" * k + b"7" for k in range(9)]
    for old, new in ((b"a-1", ids), (b":7}", [b":%s}" % n for n in numbers]),
                     (b":900,", [b":%s," % n for n in numbers])):  # fmt: skip
        lines = [line for each in new for line in (GOOD, GOOD.replace(old, each))]
        check_same(b"\n".join(lines))


def test_times_that_change() -> None:
    times = [b"2026-01-%02dT%02d:45:59Z" % (day, hour) for day in range(34) for hour in (0, 9, 24)]
    lines = [GOOD.replace(b"2026-01-05T00:00:00Z", time) for time in times]
    check_same(b"\n".join(lines))
    starts = [start for _, start, _, _ in answer(b"\n".join(lines[3:95]))[0]]
    assert starts[:2] == [1767228359, 1767228359 + 9 * 3600]


def test_the_longest_line() -> None:
    """A line of 64 KiB is a reading, one of a byte more is none."""
    spaces = b" " * ((1 << 16) - len(GOOD))
    fits, beyond = GOOD + spaces, GOOD.replace(b":7}", b":77}") + spaces
    rows, malformed, problems = answer(b"\n".join([fits, beyond, fits, fits, beyond, fits]))
    assert (len(rows), malformed) == (4, 2)
    assert problems == ("line 2: is longer than 64 KiB", "line 5: is longer than 64 KiB")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(IDS, max_size=8))
def test_meter_ids_are_cleaned_and_numbered(names: list[str]) -> None:
    ids, code = meter_codes(names)
    wanted = [clean_meter(name) for name in names]
    assert [ids[c] if c >= 0 else None for c in code.tolist()] == wanted
    assert len(set(ids)) == len(ids)
    for each in (names, list(dict.fromkeys(names))):  # a dictionary of Arrow may repeat an id
        assert clean_meters(each)[0] == ids
