"""hushgrid data: whether files are what a public data set publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli import _common as common

app = typer.Typer(
    help="Check files of public data sets of meter readings; nothing is downloaded.",
    no_args_is_help=True,
)


@app.command()
def verify(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files, or folders of one data set.")
    ],
    json: common.Json = None,
) -> None:
    """Name the layout of a public data set, and say what a file holds and what is wrong with it.

    Low Carbon London, Smart-Grid Smart-City, Ausgrid solar homes and ECO are known. Exit 1: a file
    is not as it should be.

    Example: hushgrid data verify "2012-2013 Solar home electricity data v2.csv"

    \f
    Args: see the help of each option.

    Raises:
        IntakeError: If a file has no layout that is known.
        FileError: If a file cannot be read.
        typer.Exit: With code 1 if something is wrong with a file.
    """
    from hushgrid.errors import FileError
    from hushgrid.files.datasets import files_of
    from hushgrid.files.datasets import verify as verify_files
    from hushgrid.report.datasets import report_json, report_prose

    try:
        size = sum(file.stat().st_size for path in files for file in files_of(path))
    except OSError as error:
        raise FileError(
            f"{error.filename} cannot be read ({error.strerror}); give files that are there."
        ) from None
    with common.progress("bytes", size) as advance:
        reports = [verify_files(path, advance) for path in files]
    common.echo("\n".join(map(report_prose, reports)), json)
    values = [report_json(report) for report in reports]
    common.write_json({"ok": all(value["ok"] for value in values), "data": values}, json)
    if not all(value["ok"] for value in values):
        raise typer.Exit(1)
