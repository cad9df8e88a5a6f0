"""Random readings."""

from __future__ import annotations

from hypothesis import strategies as st

END = 4_102_444_800  # [s] the year 2100
LETTERS = st.characters(categories=("L", "N", "P", "S"))  # commas, quotes and brackets included
IDS = st.text(LETTERS, min_size=1, max_size=12)
POINTS = st.builds(
    lambda owner, point: f"RetailCustomer/{owner}/UsagePoint/{point}",
    st.sampled_from(["9b6c7063", "a&b"]),
    st.sampled_from(["01", "02", "ü<"]),
)
STARTS = st.one_of(st.integers(0, END - 1), st.integers(0, 2).map(lambda i: 1356998400 + 900 * i))
DURATIONS = st.one_of(st.sampled_from([900, 1800]), st.integers(1, 366 * 86400))
AMOUNTS = st.one_of(st.integers(0, 2000), st.integers(-(10**12), 10**12))


def rows(ids: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, int, int, int]]]:
    return st.lists(st.tuples(ids, STARTS, DURATIONS, AMOUNTS), max_size=12)


ROWS = rows(IDS)
ESPI_ROWS = rows(POINTS)
