"""The command line `hushgrid`: one thin function a command, which imports heavy modules itself."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from hushgrid.cli.audit import attack, audit
from hushgrid.cli.compare import compare, floor
from hushgrid.cli.learn import learn
from hushgrid.cli.ledger import app as ledger
from hushgrid.cli.model import app as model
from hushgrid.cli.plan import plan
from hushgrid.cli.readings import batch, import_, meters
from hushgrid.cli.service import app as client
from hushgrid.cli.service import check, demo, doctor, init, resume, serve, status
from hushgrid.cli.simulate import paper, simulate

_HELP = "Real-time electricity prices with calibrated noise that protects occupancy."
app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(client, name="client")
app.add_typer(ledger, name="ledger")
app.add_typer(model, name="model")
app.command()(attack)
app.command()(audit)
app.command()(batch)
app.command()(check)
app.command()(compare)
app.command()(demo)
app.command()(doctor)
app.command()(floor)
app.command("import")(import_)
app.command()(init)
app.command()(learn)
app.command()(meters)
app.command()(paper)
app.command()(plan)
app.command()(resume)
app.command()(serve)
app.command()(simulate)
app.command()(status)


def _version(asked: bool) -> None:
    if asked:
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
        "plot": "matplotlib",
        "postgres": "psycopg",
        "intake": "defusedxml msgspec pyarrow",
        "batch": "duckdb ibis",
        "spark": "pyspark",
        "survey": "richardsonpy",
        "serve": "argon2 cryptography fastapi httpx joserfc limits paho prometheus_client"
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
        status = app(arguments, standalone_mode=False)
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


def _sentence(error: Any) -> str:
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    return f"{error.format_message().strip().rstrip('.')}; see hushgrid --help."
