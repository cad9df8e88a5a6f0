"""Files that are edited, sound and not."""

from __future__ import annotations

from hypothesis import strategies as st

from hushgrid.intake.readings import Parsed

TOKENS = [
    b"\n", b"\r", b'"', b",", b"[" * 99, b"{", b"<!DOCTYPE a>", b"<a>", b"&lt;", b"&x;",
    b"1e400", b"NaN", b"true", b"null", b"9" * 40, b"-", b"Z", b"+99:99", b"\\ud800",
    b"\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xef\xbb\xbf",
]  # fmt: skip


SPLICES = st.one_of(st.binary(max_size=8), st.sampled_from(TOKENS))


EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), SPLICES), min_size=1, max_size=4)


def edited(document: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for where, length, splice in edits:
        at = int(where * len(document))
        document = document[:at] + splice + document[at + length :]
    return document


def sound(found: Parsed) -> bool:
    return len(found.problems) == min(found.malformed, 10) and all(
        problem.split(" ")[0] in ("line", "record", "row", "reading") for problem in found.problems
    )
