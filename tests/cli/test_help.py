"""What --help shows: flags, choices, units and groups; shell completion; where errors point."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from hushgrid.cli import _common as common
from hushgrid.cli import app, main


def everyone(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from everyone(below, (*path, name))


COMMANDS = dict(everyone(get_command(app)))


@pytest.fixture(params=COMMANDS, ids=" ".join)
def path(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(request.param)


def shown(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main([*path, "--help"])
    return " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


@pytest.mark.sampled
def test_help_has_flags_choices_and_units_as_they_are(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)
    text = shown(path, capsys)
    assert f"Usage: hushgrid {' '.join(path)}".strip() in text
    assert "<bool>" not in text
    for one in COMMANDS[path].params:
        assert " ".join((getattr(one, "help", None) or "").split()) in text, one.name
        choices = one.type_descriptor.choices if one.type_descriptor.is_choice else None
        if choices:
            assert f"<{'|'.join(map(str, choices))}>" in text


def test_choices_are_known_to_the_command_line() -> None:
    """An option whose help lists its words in prose would not be completed."""
    found = {
        (*path, one.name)
        for path, command in COMMANDS.items()
        for one in command.params
        if one.type_descriptor.is_choice
    }
    wanted = {("plan", "secret"), ("compare", "secret")}
    wanted |= {("compare", "world"), ("attack", "knows"), ("batch", "gaps")}
    assert wanted <= found


def test_learn_has_few_options() -> None:
    """What most runs leave as it is stands in a file."""
    options = [one for one in COMMANDS["learn",].params if one.name != "help"]
    assert len(options) <= 14


def test_commands_are_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    panels = re.findall("╭─ (.+?) ─", out)
    assert panels == ["Options", "Run a service", "Promise and models", "Evidence", "Experiments"]
    listed = re.findall(r"^│ ([a-z]+) {2,}", out, re.M)
    assert sorted(listed) == sorted(COMMANDS[()].commands)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["learn"], "Missing option '--out'; see hushgrid learn --help."),
        (["client", "add"], "Missing argument 'ID'; see hushgrid client add --help."),
        (["ledger", "show", "--foo"], "No such option: --foo; see hushgrid ledger show --help."),
        (["nothing"], "No such command 'nothing'; see hushgrid --help."),
        (["plan", "--secret", "day"], "'window'; see hushgrid plan --help."),
    ],
)
def test_a_usage_error_names_the_help_of_its_command(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"{says}\n")


@pytest.mark.parametrize(
    ("typed", "found"), [("hushgrid lea", "learn"), ("hushgrid plan --secret in", "interval")]
)
def test_shells_complete_commands_and_choices(typed: str, found: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from hushgrid.cli import main; main()"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **words, "_HUSHGRID_COMPLETE": "complete_bash"},
    )
    assert (done.stdout.split(), done.stderr) == ([found], "")


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(5.0, ""), (65.0, "about 65 s on"), (240.0, "about 4 minutes on a usual machine; Ctrl-C")],
)
def test_a_long_run_says_how_long_it_takes(
    seconds: float, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    common.say_duration(seconds)
    assert bool(terminal.getvalue()) == bool(says)
    assert says in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", aside := io.StringIO())
    common.say_duration(seconds)
    assert not aside.getvalue(), "programs get nothing"
