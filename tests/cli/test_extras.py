"""What works without any extra, and the sentence for what does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hushgrid.cli import _EXTRAS

ROOT = Path(__file__).parents[2]

# imports of all extras fail, as in an environment without them; each command ends in an exit code
COMMANDS = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from hushgrid.cli import main
from hushgrid.lab import paper
from hushgrid.planning import tradeoff

for name in ("SIZES", "CERTAIN", "COUNTS", "ETAS", "SIGMAS"):  # one point of each sweep
    setattr(paper, name, getattr(paper, name)[-1:])
for name in ("SENSITIVITY_ETAS", "EPSILONS"):  # and one row of each table
    setattr(tradeoff, name, getattr(tradeoff, name)[-1:])
found = []
for command in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(command)
        except SystemExit as end:
            found.append([end.code or 0, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


# all public names, a day and a plan; then what is refused
LIBRARY = """
import json
from hushgrid import *

stay = [[0.97, 0.03], [0.05, 0.95]]
theta = OccupancyModel.factored([[0.3, 0.7]], [[stay]], chain_of=[0] * 40)
f = Consumption.by_class(absent=[Uniform(50)], present=[Uniform(500)], class_of=[0] * 40)
street = Scenario(Zone("elm", [2500] * 40), Tariff(0.004, 0.05), (theta,), f)
promise = plan(*street.terms, secret="interval", epsilon=1.0, rho=None)
day = simulate(street, promise.policy, seed=1)
beliefs = watch(Factored(Knowledge(street.zone, street.models, f)), day.releases)
scores(beliefs, beliefs.averaged > 0.5)._repr_html_()
refused = []
for use in (SecureNoise, lambda: compose([0.5] * 9, 1e-6), day.to_frame, lambda: learn(None)):
    try:
        use()
    except ExtraError as error:
        refused.append(str(error))
print(json.dumps(refused))
"""


def test_the_library_needs_what_it_computes_with(tmp_path: Path) -> None:
    """Heavier packages are in extras (docs/api.md, What an installation has)."""
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[^\w-]", name)[0] for name in base}
    library, command_line = {"numpy", "scipy", "numba", "array-api-compat"}, {"typer", "rich"}
    assert names == library | command_line | {"pydantic", "jinja2"}
    block = COMMANDS[: COMMANDS.index("from hushgrid.cli")].format(absent=set(_EXTRAS))
    answer = subprocess.run(
        [sys.executable, "-c", block + LIBRARY], cwd=tmp_path, check=True, stdout=subprocess.PIPE
    )
    refused = json.loads(answer.stdout)
    assert refused == [
        f"{module} is not installed; get it with pip install 'hushgrid[{extra}]'."
        for module, extra in (
            ("opendp", "noise"), ("dp_accounting", "lab"), ("pandas", "frame"), ("pandas", "frame")
        )
    ]  # fmt: skip


def _run(folder: Path, commands: list[list[str]]) -> list[tuple[int, str, str]]:
    code = COMMANDS.format(absent=set(_EXTRAS), commands=commands)
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, stdout=subprocess.PIPE
    )
    return [(code, out, err) for code, out, err in json.loads(answer.stdout)]


@pytest.mark.soak
def test_paper_and_plan_need_no_extra(tmp_path: Path) -> None:
    paper, plan = _run(
        tmp_path,
        [
            ["paper", "--days", "2", "--sweep-days", "2", "--out", "paper"],
            ["plan", "--paper", "0", "--no-clamp", "--no-blocks", "--secret", "interval"],
        ],
    )
    assert (paper[0], plan[0]) == (0, 0), paper[2] + plan[2]
    assert "No figures are drawn: matplotlib is not installed; get it with pip install" in paper[1]
    assert sorted(path.name for path in (tmp_path / "paper").iterdir()) == [
        "paper.json",
        "paper.md",
    ]
    assert "16000" in plan[1]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str, str]]:
    folder = tmp_path_factory.mktemp("bare")
    found = _run(folder, [words.split() for words, _ in REFUSED])
    assert not list(folder.iterdir()), "an extra is missed before any work is done"
    return found


REFUSED = [
    ("serve service.toml", "serve"),
    ("check service.toml", "serve"),
    ("init zone", "serve"),
    ("demo --once", "serve"),
    ("compare --days 2", "plot"),
    ("learn --readings readings.csv --out model", "plot"),
    ("batch service.toml --readings readings.csv", "batch"),
    ("import --config service.toml readings.csv", "serve"),
    ("audit ledger.db", "serve"),
]


@pytest.mark.parametrize("at", range(len(REFUSED)), ids=[words for words, _ in REFUSED])
def test_a_missing_extra_is_one_sentence(refused: list[tuple[int, str, str]], at: int) -> None:
    code, _, err = refused[at]
    assert code == 2
    assert err.strip().endswith(
        f"is not installed; get it with pip install 'hushgrid[{REFUSED[at][1]}]'."
    )
    assert err.count("\n") == 1
