"""Lines of keys against tomllib: every key of a file has one, and it is where the value stands."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hushgrid.files.toml import line_at, lines_of
from tests.curator.setups import example

HARD = '''# a comment = [1]
top = "a # b = c"   # really
[a."quoted key"]   # [not.this]
'literal.key' = """
line [x]
# not a comment
y = 1 \\""" still
"""
after = [   # starts here
  1, # one
  [ 2,
    3 ],
  { x = 4, "y z" = "}]" }, # the fourth
]
b.c . d = 1979-05-27T07:32:00Z
[[list]]
n = 1
[[list]]
inline = { p = [ {q = 1}, {q = 2} ], r = \'\'\'a
b\'\'\' }
[list.sub]
k = true
[[list.deep]]
[[list.deep]]
z = 'c:\\path#x'
four = """a""""
five = \'\'\'b\'\'\'\'\'
last = 1
'''


def test_a_hard_file() -> None:
    assert tomllib.loads(HARD)
    found = lines_of(HARD)
    expected = {
        "top": 2,
        "a.quoted key": 3,
        "a.quoted key.literal.key": 4,
        "a.quoted key.after": 9,
        "a.quoted key.after[0]": 10,
        "a.quoted key.after[1]": 11,
        "a.quoted key.after[1][0]": 11,
        "a.quoted key.after[1][1]": 12,
        "a.quoted key.after[2].x": 13,
        "a.quoted key.after[2].y z": 13,
        "a.quoted key.b.c.d": 15,
        "list": 16,
        "list[0].n": 17,
        "list[1]": 18,
        "list[1].inline.p[1].q": 19,
        "list[1].inline.r": 19,
        "list[1].sub": 21,
        "list[1].sub.k": 22,
        "list[1].deep[0]": 23,
        "list[1].deep[1]": 24,
        "list[1].deep[1].z": 25,
        "list[1].deep[1].four": 26,
        "list[1].deep[1].five": 27,
        "list[1].deep[1].last": 28,
    }
    assert {key: found.get(key) for key in expected} == expected


def paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            yield here
            yield from paths(inner, here)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield f"{path}[{i}]"
            yield from paths(inner, f"{path}[{i}]")


def test_every_key_of_the_example_has_the_line_it_is_written_on() -> None:
    source = example(0)
    found, written = lines_of(source), source.splitlines()
    keys = list(paths(tomllib.loads(source)))
    assert set(found) <= set(keys)
    assert set(keys) - set(found) == {"models[0].chains"}  # opened by its own tables alone
    for key in found:
        if not key.endswith("]"):
            assert key.split(".")[-1] in written[found[key] - 1]


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=6)
SCALARS = st.one_of(
    st.integers(-9, 9), st.booleans(), st.text(st.sampled_from("a#[]{}=,'\" .\\"), max_size=6)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" if not c.isalnum() else c for c in text) + '"'


def written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}'" if "'" not in value else quoted(value)
    if isinstance(value, list):
        return "[ # ] x = 1\n" + ",\n".join(map(written, value)) + "\n]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)} = {written(v)}" for k, v in value.items()) + "}"
    return str(value)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.integers(0, 3))
def test_every_key_of_any_file_is_found(content: dict[str, Any], gap: int) -> None:
    source, starts, line = "", {}, 1
    for key, value in content.items():
        piece = "# [x]\n" * gap + f"{quoted(key)} = {written(value)} # end\n"
        starts[key] = line + gap
        line += piece.count("\n")
        source += piece
    assert tomllib.loads(source) == content
    found = lines_of(source)
    assert set(paths(content)) == set(found)
    if not any("." in key for key in content):
        assert {key: found[key] for key in starts} == starts


def test_an_unknown_key_has_the_line_of_what_is_around_it() -> None:
    lines = {"a": 3, "a.b[0]": 5}
    assert line_at(lines, "a.b[0].c") == 5
    assert line_at(lines, "a.z") == 3
    assert line_at(lines, "b") == 1
