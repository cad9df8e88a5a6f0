"""The documents stay short: pages, lines, paragraphs, cells of tables, and words of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"api.md", "commands.md", "files.md", "http.md"}
PAGES = {
    page.name: page for page in sorted(DOCS.glob("*.md")) if page.name not in GENERATED
}  # a proof is as long as it has to be, its paragraphs are not
PROOFS = {page.name: page for page in sorted((DOCS / "proofs").glob("*.md"))}
TEXTS = {"README.md": ROOT / "README.md"} | PAGES
LINES, PARAGRAPH, CELL = 150, 600, 40  # six lines of 100 characters; words
PROVED = 900  # characters of a paragraph of a proof: six of the lines that a page has
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
# what the ledger calls its record of the rules, and what an audit checks, are the words of a format
PRIVATE = {"epoch": (), "horizon": (), "terms": ("ledger.md", "nomenclature.md")}


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of a table."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield re.split(r"(?<!\\)\|", line)[1:-1]


def paragraphs(text: str) -> Iterator[str]:
    """Text between empty lines, items of lists apart; no tables, no code."""
    for block in re.split(r"\n\s*\n", FENCED.sub("", text).replace("\n>", "\n")):
        if block.startswith("    "):
            continue
        lines = [line for line in block.splitlines() if not line.startswith("|")]
        yield from re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines))


def test_there_are_at_most_two_dozen_pages() -> None:
    assert len(PAGES) <= 24, sorted(PAGES)


@pytest.mark.parametrize("name", TEXTS)
def test_a_page_is_short(name: str) -> None:
    lines = TEXTS[name].read_text(encoding="utf-8").splitlines()
    assert len(lines) <= (119 if name == "README.md" else LINES)


@pytest.mark.parametrize("name", [*TEXTS, "api.md", "files.md", "http.md"])
def test_paragraphs_and_cells_are_short(name: str) -> None:
    text = TEXTS.get(name, DOCS / name).read_text(encoding="utf-8")
    long = [one[:80] for one in paragraphs(text) if len(one) > PARAGRAPH]
    assert not long, f"{name}: paragraphs of more than {PARAGRAPH} characters: {long}"
    wide = [cell[:80] for row in rows(text) for cell in row if len(cell.split()) > CELL]
    assert not wide, f"{name}: cells of more than {CELL} words: {wide}"


@pytest.mark.parametrize("name", PROOFS)
def test_paragraphs_of_proofs_are_short(name: str) -> None:
    text = PROOFS[name].read_text(encoding="utf-8")
    long = [one[:80] for one in paragraphs(text) if len(one) > PROVED]
    assert not long, f"{name}: paragraphs of more than {PROVED} characters: {long}"


@pytest.mark.parametrize("name", [*TEXTS, "api.md", "files.md", "http.md"])
@pytest.mark.parametrize("word", PRIVATE)
def test_words_of_the_code_are_not_on_a_page(name: str, word: str) -> None:
    """But as a key or a command, which is what a reader types."""
    if name in PRIVATE[word]:
        return
    text = TEXTS.get(name, DOCS / name).read_text(encoding="utf-8")
    prose = re.sub(r"`[^`]*`", "", FENCED.sub("", text))
    assert not re.findall(rf"[^.\n]*\b{word}\w*[^.\n]*", prose, re.I)
