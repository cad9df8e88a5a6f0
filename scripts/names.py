"""How often pronouns and participles stand where a noun should: identifiers per 10,000 lines.

    python scripts/names.py src --most 60

A name is the noun of the thing: release, record, gap, house, interval. Words of `WORDS` as names of
variables, parameters, fields, attributes or functions say nothing of it. `other` in an operator
such as `__eq__` is not counted, and neither is text: comments, docstrings and strings.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

_PRONOUNS = """
    one own some each other others another rest whole both either neither many any_ few every
    everything nothing something same such these those mine theirs ours which what who whom whose
    why how here there then apart together
"""
_PARTICIPLES = """
    found made given kept known stated came said asked laid seen left done gone begun drawn taken
    chosen named wanted used written spent sent torn heard told shown brought meant met paid
"""
WORDS = frozenset((_PRONOUNS + _PARTICIPLES).split())
PER_LINES = 10_000
_OPERATOR = re.compile("__[a-z]+__")


def count_words(text: str) -> Counter[str]:
    """Identifiers of a program that are words of `WORDS`.

    Args:
        text: The program.

    Returns:
        Word to the number of its tokens. What stands inside an f-string is left out: Python 3.11
        reads it as text.
    """
    counts = Counter[str]()
    operator = False
    depth = 0
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        if kind != "NAME" or depth:
            continue
        if before == "def":
            operator = _OPERATOR.fullmatch(token.string) is not None
        if token.string in WORDS and not (operator and token.string == "other"):
            counts[token.string] += 1
        before = token.string
    return counts


def main() -> int:
    """Print the counts.

    Returns:
        1 where there are more than `--most` for 10,000 lines, else 0.
    """
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="example: python scripts/names.py --most 60"
    )
    parser.add_argument(
        "folder", nargs="?", default="src", type=Path, help="where the programs are; default: src"
    )
    parser.add_argument(
        "--most", type=float, default=60, help="largest count for 10,000 lines; default: 60"
    )
    parser.add_argument("--files", type=int, default=10, help="how many files to print")
    options = parser.parse_args()
    by_file: dict[Path, Counter[str]] = {}
    lines = 0
    for path in sorted(options.folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines += len(text.splitlines())
        by_file[path] = count_words(text)
    if not lines:
        parser.error(f"{options.folder} has no line of Python; give the folder of the programs.")
    words = sum(by_file.values(), Counter[str]())
    share = PER_LINES * words.total() / lines
    print(f"{words.total()} names in {lines} lines: {share:.1f} for {PER_LINES:,} lines")
    print(", ".join(f"{word} {count}" for word, count in words.most_common()))
    for path, counts in sorted(by_file.items(), key=lambda entry: -entry[1].total())[
        : options.files
    ]:
        top = ", ".join(f"{word} {count}" for word, count in counts.most_common(5))
        print(f"{counts.total():5} {path}: {top}")
    if share > options.most:
        print(f"more than {options.most:g}: name these things by nouns", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
