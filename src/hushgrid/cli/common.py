"""Options and output that commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write the figures as JSON.")
]
Seed = Annotated[int, typer.Option(min=0, help="Equal seeds give equal results.")]


def need(module: str, extra: str) -> None:
    """Say that an extra is missing before any work is done."""
    from importlib import import_module

    from hushgrid.errors import ExtraError

    try:
        import_module(module)
    except ImportError:
        raise ExtraError(
            f"{module} is not installed; get it with pip install 'hushgrid[{extra}]'."
        ) from None


def say(text: str, json_target: str | None) -> None:
    """Print for people, unless standard output carries the JSON."""
    if json_target != "-":
        sys.stdout.write(text + "\n")


def put_json(value: Any, target: str | None) -> list[Path]:
    """Write JSON to standard output or a file; the files written."""
    from hushgrid.files import json_text, write_text

    if target is None:
        return []
    if target == "-":
        sys.stdout.write(json_text(value))
        return []
    return [write_text(Path(target), json_text(value))]


@contextmanager
def stages() -> Iterator[Callable[[str, int], Callable[..., None]]]:
    """Bars on standard error while long work runs; yields what begins one.

    Called with a name and a total it gives what to call after each piece; that, called with a
    number, goes on by so many.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:

        def begin(label: str, total: int) -> Callable[..., None]:
            task = bar.add_task(label, total=total)
            return lambda by=1: bar.advance(task, by)

        yield begin


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[..., None]]:
    """One bar on standard error; yields what to call after each piece, or with how many."""
    with stages() as begin:
        yield begin(label, total)
