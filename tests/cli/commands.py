"""Commands as a user types them."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from hushgrid.cli import main

ROOT = Path(__file__).parents[2]


EXAMPLE = ROOT / "examples" / "release.toml"


def hushgrid(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A command run in this process, which has the heavy imports behind it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main([str(word) for word in words])
    told, said = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    assert ended.value.code in (0, 1, 2)
    return subprocess.CompletedProcess(words, int(ended.value.code or 0), told, said)


def hushgrid_process(
    *words: str | Path, cwd: Path = ROOT, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, where every warning is an error from the first import."""
    command = [sys.executable, "-W", "error", "-c", f"{first}from hushgrid.cli import main; main()"]
    return subprocess.run(
        [*command, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False
    )
