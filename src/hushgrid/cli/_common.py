"""Options, output and input that commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hushgrid.errors import require as require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hushgrid.files.deployment import ZoneService
    from hushgrid.files.zone_file import ZoneFile


Secret = Literal["step", "interval"]
Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write the figures as JSON.")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; the same seed reproduces the run.")]
ZoneName = Annotated[
    str | None, typer.Option("--zone", help="Zone of a service file that has several.")
]
OneZone = Annotated[str | None, typer.Option("--zone", help="One zone; else all of them.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Begin the file's terms where the ledger has others.")
]
Columns = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="canonical, lcl, fluvius, nem12 or another of docs/meter-data.md, or a TOML file: what"
        " the columns are.",
    ),
]
Labels = Annotated[
    Path | None, typer.Option(help="Known occupancy: meter_id, start_utc, occupied.")
]
SigningKey = Annotated[
    str | None, typer.Option(help="Public key (hex) that must have signed everything.")
]
Heads = Annotated[
    list[str] | None, typer.Option(help="Digest from a release you kept; must be in there.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File with a bearer token, or that of client add --json; else $HUSHGRID_TOKEN."
    ),
]


def can_draw(json_target: str | None) -> bool:
    """Whether figures can be drawn; without matplotlib one sentence is printed.

    Args:
        json_target: Value of --json.

    Returns:
        True if matplotlib is installed.
    """
    from hushgrid.errors import ExtraError

    try:
        require("matplotlib", "plot")
    except ExtraError as error:
        echo(f"No figures are drawn: {error}", json_target)
        return False
    return True


def echo(text: str, json_target: str | None) -> None:
    """Print for people, unless standard output carries the JSON.

    Args:
        text: What to print.
        json_target: Value of --json.
    """
    if json_target != "-":
        sys.stdout.write(text + "\n")


def write_json(value: Any, target: str | None, *, private: bool = False) -> list[Path]:
    """Write JSON to standard output or a file.

    Args:
        value: Mappings, lists, texts and numbers.
        target: Value of --json: a file, "-" for standard output, or None.
        private: Whether a file is for its owner alone.

    Returns:
        The files written.
    """
    from hushgrid.files.results import json_text, write_text

    if target is None:
        return []
    if target == "-":
        sys.stdout.write(json_text(value))
        return []
    return [write_text(Path(target), json_text(value), private=private)]


def echo_written(paths: Sequence[Path], json_target: str | None, prefix: str = "") -> None:
    """Print the names of the files written, if any.

    Args:
        paths: The files.
        json_target: Value of --json.
        prefix: Text before it.
    """
    if paths:
        echo(f"{prefix}Written:\n" + "\n".join(f"  {path}" for path in paths), json_target)


def instant(word: str, text: str) -> int:
    """Seconds since 1970 of a date or date-time; UTC where it has no offset.

    Args:
        word: Name of the option.
        text: Its value.

    Returns:
        [UTC s]

    Raises:
        IntakeError: If it is none.
    """
    from hushgrid.errors import IntakeError
    from hushgrid.files.toml import instant_of

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is not None and time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    seconds = instant_of(time)
    if seconds is None:
        raise IntakeError(
            f"{word} is {text!r}; give a date or time from 1970 on, such as 2026-01-05 or"
            " 2026-01-05T00:00Z."
        )
    return seconds


def seconds(word: str, text: str, least: int = 1) -> int:
    """A duration in seconds.

    Args:
        word: Name of the option.
        text: Its value: ISO 8601 such as P1D, or seconds.
        least: The shortest that is allowed [s].

    Returns:
        [s]

    Raises:
        PlanError: If it is none, or shorter.
    """
    from hushgrid.errors import PlanError
    from hushgrid.files.toml import seconds_of

    length = seconds_of(int(text) if text.isdecimal() else text)
    if length is None or length < least:
        raise PlanError(
            f"{word} is {text!r}; give a duration such as P1D or PT30M, of {least} s or more."
        )
    return length


def tokens_of(token_file: Path | None, url: str) -> Callable[[], str]:
    """Where the bearer tokens of a command come from.

    Args:
        token_file: File with a token, or what `hushgrid client add --json` wrote; None: the
            environment variable HUSHGRID_TOKEN.
        url: The service's address.

    Returns:
        A function that gives a token: for a client a new one each time, else always the same;
        empty where there is none.

    Raises:
        ServiceError: If the file, or the variable, holds neither; its message shows nothing of it.
    """
    import json

    from hushgrid.errors import ServiceError
    from hushgrid.files.results import read_text

    place = "HUSHGRID_TOKEN" if token_file is None else f"token file {token_file}"
    text = (read_text(token_file) if token_file else os.environ.get("HUSHGRID_TOKEN", "")).strip()
    if token_file is not None and text.startswith("{"):
        try:
            client = json.loads(text)
            name, secret = client["client_id"], client["client_secret"]
        except ValueError:
            problem = "is no whole JSON object"
        except KeyError as error:
            problem = f"lacks {error}"
        else:
            return lambda: _new_token(url, str(name), str(secret))
        raise ServiceError(
            f"{place} {problem}; give the file of hushgrid client add NAME --json FILE, or a file"
            " with a token alone."
        )
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise ServiceError(
            f"{place} holds no token: it has spaces, several lines or other signs; give one token,"
            " or the file of hushgrid client add NAME --json FILE."
        )
    return lambda: text


def _new_token(url: str, client: str, secret: str) -> str:
    import httpx

    from hushgrid.errors import ServiceError, connection_reason

    try:
        answer = httpx.post(
            f"{url.rstrip('/')}/v1/token",
            data={
                "grant_type": "client_credentials",
                "client_id": client,
                "client_secret": secret,
            },
            timeout=60,
        )
        if answer.status_code == 200:
            return str(answer.json()["access_token"])
        reason = f"{answer.status_code} {answer.json()['error_description']}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = connection_reason(error)
    except (ValueError, KeyError, TypeError):
        reason = f"{answer.status_code}, no answer of /v1/token"
    raise ServiceError(
        f"service {url} gave client {client!r} no token ({reason}); see that it runs and that the"
        " client is one of its own."
    )


@contextmanager
def stages() -> Iterator[Callable[[str, int | None], Callable[..., None]]]:
    """Progress bars on standard error, for work in several stages.

    Yields:
        A function that begins a bar: called with a label and a total it returns a function to call
        after each piece, or with a number of pieces. Without a total the bar only moves, until
        the next one begins.
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

        def begin(label: str, total: int | None) -> Callable[..., None]:
            for moving in (bar_task.id for bar_task in bar.tasks if bar_task.total is None):
                bar.update(moving, total=1, completed=1)
            task = bar.add_task(label, total=total)
            return lambda by=1: bar.advance(task, by)

        yield begin


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """One progress bar on standard error.

    Args:
        label: Text before the bar.
        total: Number of pieces; None: it is not known, and the bar only moves.

    Yields:
        A function to call after each piece, or with a number of pieces.
    """
    with stages() as begin:
        yield begin(label, total)


def say_duration(seconds: float, suffix: str = "") -> None:
    """Say on a terminal, before a long run, how long it takes.

    Args:
        seconds: On one core of a usual machine, as it was measured.
        suffix: What else to say.
    """
    if seconds >= 20 and sys.stderr.isatty():
        time = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
        sys.stderr.write(f"This takes about {time} on a usual machine; Ctrl-C stops it{suffix}.\n")


class Chosen(NamedTuple):
    """A zone, and how it runs if it comes from a service file.

    The scenario of a service file begins at its `begins`, in local time.

    Attributes:
        file: The zone.
        service: The zone as it runs; None for a zone file.
    """

    file: ZoneFile
    service: ZoneService | None = None


def load_either(path: Path, zone: str | None, *, planned: bool = True) -> Chosen:
    """Read a zone file, or one zone of a service file.

    Args:
        path: The file (TOML).
        zone: Name of the zone; may be None where there is one only.
        planned: Whether the noise of a service's zones is planned.

    Returns:
        The zone.

    Raises:
        FileError: If the file has no such zone, or several and no name is given.
    """
    from hushgrid.errors import FileError
    from hushgrid.files.service_file import is_service, load_deployment
    from hushgrid.files.toml import TomlFile
    from hushgrid.files.weeks import whole_week
    from hushgrid.files.zone_file import ZoneFile, load_zone

    toml = TomlFile(path)
    toml.check()
    if not is_service(toml.content):
        file = load_zone(path)
        if zone not in (None, file.scenario.zone.id):
            raise FileError(
                f"zone is {zone!r} but {path} is of zone {file.scenario.zone.id!r}; give that, or"
                " no zone."
            )
        return Chosen(file)
    zones = {service.id: service for service in load_deployment(path, planned=planned).zones}
    if zone is None and len(zones) > 1:
        raise FileError(
            f"{path} has {len(zones)} zones; give one of {', '.join(zones)} with --zone."
        )
    if zone is not None and zone not in zones:
        raise FileError(f"zone is {zone!r} but {path} has {', '.join(zones)}; give one of them.")
    service = whole_week(zones[zone] if zone is not None else next(iter(zones.values())))
    terms = (service.scenario, service.policy, service.provenance, service.seconds)
    file = ZoneFile(*terms, service.learned, service.time_zone, service.meters)
    return Chosen(file, service)


def promise_of_file(path: Path, file: ZoneFile) -> tuple[str, float, int | None]:
    """What a zone file promises.

    Args:
        path: The file.
        file: Its content.

    Returns:
        The secret, epsilon, and the length of a window [s]; None for another secret.
    """
    from hushgrid.files.toml import TomlFile, seconds_of

    table = TomlFile(path).table("policy")
    secret = str(table.get("secret", "step"))
    window = seconds_of(table.get("window", "P1D")) if secret == "window" else None
    epsilon = table.get("epsilon", file.policy.epsilon)
    return secret, float(epsilon), window


def write_page(path: Path, title: str, prose: str, figures: Mapping[str, Figure]) -> Path:
    """Write an HTML page with figures.

    Args:
        path: The file.
        title: Title of the page.
        prose: Text before the figures.
        figures: Figures by caption.

    Returns:
        The file.
    """
    from hushgrid.files.results import png_of, write_text
    from hushgrid.report.learn import html_page

    pictures = {name: png_of(figure) for name, figure in figures.items()}
    return write_text(path, html_page(title, prose, pictures))
