"""Words of `hushgrid learn`, those of the [learn] table among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgrid.cli import main as command

_FLAGS = {"--no-figures": "figures = false"}
_TEXTS = {"--zone", "--law"}
_LISTS = {"--residents"}
_PLAIN = {"--prototypes", "--groups", "--days", "--bound", "--export", "--bound-budget", "--usual"}


def learn_words(*words: str) -> list[str]:
    """Words of the command line; choices of the [learn] table are written to a file.

    Args:
        words: What to ask for, every choice like an option.

    Returns:
        The words, with `--config` where there are such choices. The file lies next to `--out`.
    """
    left, lines, more = list[str](), list[str](), iter(words)
    for word in more:
        key = word.removeprefix("--").replace("-", "_")
        if word in _FLAGS:
            lines.append(_FLAGS[word])
        elif word in _TEXTS:
            lines.append(f'{key} = "{next(more)}"')
        elif word in _LISTS:
            lines.append(f"{key} = [{next(more)}]")
        elif word == "--seasons":
            lines.append(f"{key} = [{', '.join(f'[{one}]' for one in next(more).split(';'))}]")
        elif word == "--begins":
            lines.append(f"{key} = {next(more).partition('T')[0]}T00:00:00Z")
        elif word in _PLAIN:
            lines.append(f"{key} = {next(more)}")
        else:
            left.append(word)
    if lines:
        out = Path(left[left.index("--out") + 1])
        file = out.parent / f"{out.name}.learn.toml"
        file.write_text("\n".join(["[learn]", *lines, ""]))
        left += ["--config", str(file)]
    return left


def main(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        command(words)
    return int(ended.value.code or 0)
