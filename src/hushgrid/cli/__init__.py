"""The command line `hushgrid`: one thin function a command, which imports heavy modules itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.main import get_command

from hushgrid.cli.audit import attack, audit
from hushgrid.cli.certificate import certificate
from hushgrid.cli.compare import compare, floor, loop, paper, simulate
from hushgrid.cli.data import app as data
from hushgrid.cli.learn import learn
from hushgrid.cli.ledger import app as ledger
from hushgrid.cli.ledger import bill
from hushgrid.cli.model import app as model
from hushgrid.cli.plan import plan
from hushgrid.cli.readings import batch, import_, meters
from hushgrid.cli.replay import replay
from hushgrid.cli.service import app as client
from hushgrid.cli.service import check, demo, doctor, init, resume, serve, status

_HELP = "Real-time electricity prices with calibrated noise that protects occupancy."
app = typer.Typer(help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False)
_PANELS: dict[str, list[Callable[..., None] | tuple[str, typer.Typer]]] = {
    "Run a service": [
        *(init, check, serve, status, ("client", client), import_, meters, batch, bill),
        *(doctor, resume),
    ],
    "Promise and models": [plan, learn, ("model", model)],
    "Evidence": [replay, ("ledger", ledger), audit, certificate, attack, ("data", data)],
    "Experiments": [demo, simulate, loop, compare, paper, floor],
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        if isinstance(_command, tuple):
            app.add_typer(_command[1], name=_command[0], rich_help_panel=_panel)
        else:
            app.command(_command.__name__.rstrip("_"), rich_help_panel=_panel)(_command)


def _version(value: bool) -> None:
    if value:
        from hushgrid import __version__

        sys.stdout.write(f"hushgrid {__version__}\n")
        raise typer.Exit


@app.callback(help=_HELP)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


# typer's root of usage errors; newer versions carry their own copy of click
_UsageError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


# the extra of each module that is imported where it is needed
_EXTRAS = {
    module: extra
    for extra, modules in {
        "frame": "pandas",
        "noise": "opendp",
        "lab": "dp_accounting",
        "plot": "matplotlib",
        "postgres": "psycopg",
        "intake": "defusedxml msgspec pyarrow",
        "batch": "duckdb ibis",
        "spark": "pyspark",
        "survey": "richardsonpy",
        "mosaik": "mosaik mosaik_api_v3",
        "helics": "helics",
        "serve": "argon2 cryptography fastapi httpx joserfc paho prometheus_client"
        " sqlalchemy starlette uvicorn",
    }.items()
    for module in modules.split()
}


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 a check failed, 2 bad input (in one sentence).

    Args:
        arguments: Words of the command line; None: those of the process.
    """
    from hushgrid.errors import HushgridError

    # threads that wait must sleep: spinning starves them when the machine is busy
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        status = tidy(get_command(app))(arguments, "hushgrid", standalone_mode=False)
    except _UsageError as error:
        sys.stderr.write(f"{_sentence(error)}\n")
        sys.exit(2)
    except HushgridError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise
        sys.stderr.write(
            f"{module} is not installed; get it with pip install 'hushgrid[{_EXTRAS[module]}]'.\n"
        )
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("Stopped; nothing more was written.\n")
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


def tidy(command: Any) -> Any:
    """Have the help of a command and those below it show flags without a type, and units.

    Args:
        command: The command; it is changed.

    Returns:
        The command.
    """
    from rich.markup import escape

    command.help = escape(command.help or "")
    # with its own context: the option --help is made when it is first asked for
    for parameter in command.get_params(type(command).context_class(command)):
        parameter.metavar = "" if getattr(parameter, "is_flag", False) else parameter.metavar
        parameter.help = escape(getattr(parameter, "help", None) or "")
    for subcommand in getattr(command, "commands", {}).values():
        tidy(subcommand)
    return command


def _sentence(error: Any) -> str:
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    path = error.ctx.command_path if getattr(error, "ctx", None) else "hushgrid"
    text = error.format_message().strip().rstrip(".").replace("Value error, ", "")
    return f"{text}; see {path} --help."
