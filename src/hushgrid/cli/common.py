"""Options and output that commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from hushgrid.files.deployment import ZoneService
    from hushgrid.files.zone_file import ZoneFile


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
    from hushgrid.files.results import json_text, write_text

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


# --------------------------------------------------------------------------------------------------
# The zone that a command is given: a zone file, or one zone of a service file.


ZoneName = Annotated[
    str | None, typer.Option("--zone", help="Zone of a service file that has several.")
]


class Chosen(NamedTuple):
    """A zone, and how it runs where it comes from a service file.

    The scenario of a service file begins at its `begins`, in local time. Where its models are
    private, so is `service.own`; the scenario is then what the service publishes from.
    """

    file: ZoneFile
    service: ZoneService | None = None


def load_either(path: Path, zone: str | None) -> Chosen:
    """Read a zone file, or the named zone of a service file (its only one without a name)."""
    from hushgrid.errors import FileError
    from hushgrid.files.service_file import is_service, load_deployment
    from hushgrid.files.toml import TomlFile
    from hushgrid.files.zone_file import ZoneFile, load_zone

    given = TomlFile(path)
    given.check()
    if not is_service(given.content):
        found = load_zone(path)
        if zone not in (None, found.scenario.zone.id):
            raise FileError(
                f"zone is {zone!r} but {path} is of zone {found.scenario.zone.id!r}; give that, or"
                " no zone."
            )
        return Chosen(found)
    zones = {one.id: one for one in load_deployment(path).zones}
    if zone is None and len(zones) > 1:
        raise FileError(
            f"{path} has {len(zones)} zones; give one of {', '.join(zones)} with --zone."
        )
    if zone is not None and zone not in zones:
        raise FileError(f"zone is {zone!r} but {path} has {', '.join(zones)}; give one of them.")
    one = zones[zone] if zone is not None else next(iter(zones.values()))
    terms = (one.scenario, one.policy, one.provenance, one.seconds, one.learned)
    return Chosen(ZoneFile(*terms, one.time_zone, one.meters), one)
