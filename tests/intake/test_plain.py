"""Plain lines are read fast: nobody may notice but by the clock."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid._kernels import ndjson as kernel
from hushgrid._kernels import ndjson as words
from hushgrid._kernels.ndjson import SHORTEST, all_plain
from hushgrid.errors import IntakeError
from hushgrid.intake import json as by_lines
from hushgrid.intake.json import PlainLines, json_batches, plain
from hushgrid.intake.readings import NameIndex, Names, clean_meter, collect, joined

EXAMPLES = int(os.environ.get("HUSHGRID_EXAMPLES", "150"))  # 600 in make soak
GOOD = b'{"meter_id":"a-1","start_utc":"2026-01-05T00:00:00Z","duration_s":900,"wh":7}'


def nothing_plain(data: bytes) -> PlainLines:
    """The same lines, all of them for the reader that knows every rule."""
    none = np.zeros(0, np.int64)
    others = list(enumerate(data.split(b"\n")[:-1]))
    return PlainLines(none, Names.of([]), none, none, none, others)


def answer(data: Any) -> Any:
    """All a caller can see: readings in order, counts, problems, errors."""
    try:
        found = collect(json_batches(data))
    except IntakeError as error:
        return str(error)
    return list(found.readings.rows()), found.malformed, found.problems


def check_same(data: Any) -> None:
    fast = answer(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_lines, "plain", nothing_plain)
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


def test_fractions_are_plain() -> None:
    """Else meters that count tenths would be read slowly."""
    data = b"".join(GOOD[:-2] + text + b"}\n" for text in (b"7.5", b"-0.5", b"8.25", b"6.5"))
    found = plain(data)
    assert (found.wh.tolist(), found.others) == ([8, 0, 8, 6], [])


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


def test_plain_lines_are_taken_as_such() -> None:
    """Else all of this would hold of a reader that knows no plain line."""
    keys = ['"meter_id" : "a b"', '"start_utc":"2026-01-05T01:00:00+01:00"', '"duration_s": 900',
            '"wh":-7']  # fmt: skip
    lines = [GOOD, GOOD + b"\r", ("\t{ " + " , ".join(keys[::-1]) + " } ").encode(), b"{}"]
    found = plain(b"\n".join([*lines, b""]))
    assert found.line.tolist() == [0, 1, 2]
    assert found.names.texts() == ("a-1", "a-1", "a b")
    assert found.start.tolist() == [1767571200] * 3
    assert found.wh.tolist() == [7, 7, -7]
    assert found.others == [(3, b"{}")]


PAD = 8  # lines; near the end of a block each line is read by itself

OTHER = [
    b'{"wh":-12,"duration_s":900,"start_utc":"2026-01-05T01:00:00+01:00","meter_id":"a b"}\r',
    b' { "duration_s" : 3600 , "meter_id" : "meter-0000001" , "wh" : 1234567 , '
    b'"start_utc" : "2026-01-05T00:00:00Z" }\t',
]


def check_as_single_lines(lines: list[bytes]) -> None:
    """A line says the same whichever lines stand before it."""
    together = plain(b"".join(line + b"\n" for line in lines))
    found = dict(zip(together.line.tolist(), _rows(together), strict=True))
    others = dict(together.others)
    assert len(found) + len(others) == len(lines)
    for k, line in enumerate(lines):
        alone = plain(line + b"\n")
        assert _rows(alone) == [found[k]] if k in found else alone.others == [(0, others[k])]


def _rows(found: PlainLines) -> list[tuple[str, int, int, int]]:
    columns = (found.start.tolist(), found.duration.tolist(), found.wh.tolist())
    return list(zip(found.names.texts(), *columns, strict=True))


@pytest.mark.parametrize("good", [GOOD, *OTHER])
def test_every_byte_at_every_place_of_a_line_like_the_last(good: bytes) -> None:
    """Each byte changed, left out, or another put before it, behind a line as it was."""
    some = sorted({*b'\x00\t\n\r !"+,-.019:;AZ[\\]az{|}~\x7f\x80\xff', *range(0, 256, 37)})
    for at in range(len(good)):
        changed = [good[:at] + bytes([c]) + good[at + 1 :] for c in some]
        changed += [good[:at] + bytes([c]) + good[at:] for c in b' 0"'] + [
            good[:at] + good[at + 1 :]
        ]
        lines = [line for each in changed for line in (good, each)] + [good] * PAD
        check_same(b"\n".join(lines))
        check_as_single_lines([line for line in lines if b"\n" not in line])


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
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
@given(alike(), st.booleans())
def test_lines_alike(lines: list[bytes], ended: bool) -> None:
    check_same(b"\n".join([*lines, *[GOOD] * PAD]) + b"\n" * ended)
    check_same(b"\n".join(lines) + b"\n" * ended)
    check_as_single_lines([line for line in [*lines, *[GOOD] * PAD] if b"\n" not in line])


def test_ids_and_numbers_of_every_length() -> None:
    ids = [b"x" * k for k in range(140)] + [b"x" * k + b" " + b"y" * k for k in range(1, 70)]
    ids += [b"x" * k + bytes([c]) for k in range(10) for c in range(256) if c != 0x0A]
    numbers = [
        sign + b"9" * k + b"0" * j for sign in (b"", b"-") for k in range(18) for j in (0, 1)
    ]
    numbers += [b"0" * k + b"7" for k in range(9)]
    for old, new in ((b"a-1", ids), (b":7}", [b":%s}" % n for n in numbers]),
                     (b":900,", [b":%s," % n for n in numbers])):  # fmt: skip
        lines = [line for each in new for line in (GOOD, GOOD.replace(old, each))] + [GOOD] * PAD
        check_same(b"\n".join(lines))
        check_as_single_lines(lines)


def test_times_that_change() -> None:
    times = [b"2026-01-%02dT%02d:45:59Z" % (day, hour) for day in range(34) for hour in (0, 9, 24)]
    lines = [GOOD.replace(b"2026-01-05T00:00:00Z", time) for time in times] + [GOOD] * PAD
    check_same(b"\n".join(lines))
    check_as_single_lines(lines)
    starts = plain(b"\n".join([*lines[3:95], *[GOOD] * PAD, b""])).start.tolist()
    assert starts[:2] == [1767228359, 1767228359 + 9 * 3600]


def test_the_longest_line_among_lines_alike() -> None:
    """A line of 64 KiB is a reading, one of a byte more is none, though it looks the same."""
    spaces = b" " * ((1 << 16) - len(GOOD))
    fits, beyond = GOOD + spaces, GOOD.replace(b":7}", b":77}") + spaces
    found = plain(b"\n".join([fits, beyond, fits, fits, beyond, fits, fits, b""]))
    assert found.line.tolist() == [0, 2, 3, 5, 6]
    assert found.others == [(1, beyond), (4, beyond)]


def test_no_line_is_lost_for_want_of_room() -> None:
    shortest = b'{"meter_id":"a","start_utc":"1970-01-01T00:00:00Z","duration_s":1,"wh":0}\n'
    assert len(shortest) == SHORTEST
    assert plain(shortest * 1000).line.tolist() == [*range(1000)]
    for many in (0, 1, 63, 64, 65, 200):
        found = plain(shortest + b"\n" * many + shortest)
        assert found.line.tolist() == [0, many + 1]
        assert found.others == [(k, b"") for k in range(1, many + 1)]


def test_words_as_bytes_have_them() -> None:
    """Marks, numbers and comparisons of words against Python's own bytes."""
    bad = {*range(0x20), *b'"\\[{|', *range(0x7F, 256)}
    for c in range(256):
        for at in range(8):
            w = np.uint64(int.from_bytes(b"7" * at + bytes([c]) * (8 - at), "little"))
            assert words.place(np.uint64(words.not_plain(w))) == (at if c in bad else 8)
            assert words.place(np.uint64(words.not_digit(w))) == (
                8 if chr(c) in "0123456789" else at
            )
    rng = np.random.default_rng(7)
    for many in range(1, 9):
        for value in rng.integers(0, 10**many, 50).tolist():
            text = str(value).zfill(many).encode().ljust(8, b"x")
            assert words.digits(np.uint64(int.from_bytes(text, "little")), many) == value
    data = rng.integers(0, 2, 400).astype(np.uint8)
    base = data.ctypes.data
    for _ in range(500):
        one, other, length = rng.integers(0, 150), rng.integers(200, 350), rng.integers(0, 20)
        pieces = data[one : one + length], data[other : other + length]
        assert words.same(base + one, base + other, length) == np.array_equal(*pieces)
        rest = pieces[0][length - length % 8 :].tobytes()
        assert words.tail(base + one + length, length) == int.from_bytes(rest, "little")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=12)), st.lists(st.text(max_size=12)))
def test_names_as_a_dictionary_has_them(some: list[str], others: list[str]) -> None:
    names = Names.of(some)
    assert names.texts() == tuple(some)
    different, code = names.numbered()
    assert different.texts() == tuple(dict.fromkeys(some))
    assert [different.texts()[c] for c in code] == some
    asked = [*others, *some[::-1]]
    wanted = [some.index(name) if name in some else -1 for name in asked]
    assert NameIndex(names).find(Names.of(asked)).place.tolist() == wanted
    assert joined([names, Names.of(others)]).texts() == (*some, *others)


def test_names_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(data: Any, begin: Any, end: Any, seed: Any, found: Any) -> None:
        found[:] = 2**64 - 1

    # looked up by the same loops, not compiled, so that every name can be given one hash
    monkeypatch.setattr(kernel, "_look_up", kernel._look_up.py_func)
    monkeypatch.setattr(kernel, "_hash", lambda *_: np.uint64(2**64 - 1))
    monkeypatch.setattr("hushgrid.intake.readings.hashes", same)
    monkeypatch.setattr("hushgrid.intake.readings.look_up", kernel.look_up.py_func)
    many = [str(k) for k in range(50)]
    different, code = Names.of([*many, *many]).numbered()
    assert different.texts() == tuple(many)
    assert code.tolist() == [*range(50), *range(50)]
    found = NameIndex(Names.of(many)).find(Names.of(["49", "0", "x", ""]))
    assert found.place.tolist() == [49, 0, -1, -1]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_names_told_again_are_found_whatever_order_they_come_in(data: st.DataObject) -> None:
    """What came behind which last time is only a guess: it never changes what is found."""
    many = [str(k) for k in range(60)]
    index = NameIndex(Names.of(many))
    index.remember(Names.of(many[::-1]), index.find(Names.of(many[::-1])))
    told = st.lists(st.sampled_from([*many, "x", "", "6", "60"]), max_size=90)
    for asked in data.draw(st.lists(told, min_size=2, max_size=5)):
        wanted = [many.index(name) if name in many else -1 for name in asked]
        assert index.find(Names.of(asked)).place.tolist() == wanted
        assert index.find(Names.of(asked)).place.tolist() == wanted
        assert index.find(Names.of(asked[::-1])).place.tolist() == wanted[::-1]


def test_an_order_told_before_is_followed_by_many_threads_at_once() -> None:
    """Orders change and room runs out while others read; every name is found all the same."""
    many = [f"meter-{k:05d}" for k in range(700)]
    index, rng = NameIndex(Names.of(many)), np.random.default_rng(1)
    orders = [rng.permutation(700) for _ in range(12)]
    rooms, telling = {id(index._order.data)}, threading.Lock()

    def ask(first: int) -> None:
        for turn in range(36):
            order = orders[(first + turn // 3) % len(orders)]  # each one three times
            told = [many[k] for k in order] + ["nobody"]
            found = index.find(Names.of(told))
            assert found.place.tolist() == [*order.tolist(), -1]
            if found.reordered:
                with telling:
                    index.remember(Names.of(told), found)
            rooms.add(id(index._order.data))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))
    assert len(rooms) > 1, "room ran out at least once"
    order = Names.of([many[k] for k in orders[0]])
    index.remember(order, index.find(order))
    assert not index.find(order).reordered, "the second time it is known"


@settings(max_examples=200, deadline=None)
@given(st.lists(IDS, min_size=1, max_size=3))
def test_plain_names_need_no_cleaning(some: list[str]) -> None:
    names = Names.of(some)
    if all_plain(names.data, names.begin, names.end, 128):
        assert [clean_meter(name) for name in some] == some
    else:
        assert any(clean_meter(name) != name or not name.isascii() for name in some)


def test_hashes_depend_on_the_seed_and_every_byte() -> None:
    names = Names.of([f"{k:07d}" for k in range(2000)] + ["a", "a\x00", "", "\x00", "b" * 8])
    found = [np.empty(len(names), np.uint64) for _ in range(2)]
    for seed, out in zip((1, 2), found, strict=True):
        kernel.hashes(names.data, names.begin, names.end, np.uint64(seed), out)
        assert np.unique(out).size == len(names)
    assert not (found[0] == found[1]).any()
