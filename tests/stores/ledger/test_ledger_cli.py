"""hushgrid ledger, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import hushgrid, hushgrid_process
from tests.stores.ledger.ledgers import KEY, instead, opened, write_story

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "verify_ledger.py"
GOLDEN = ROOT / "tests" / "data" / "ledger.ndjson"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    write_story(path)
    return path


@pytest.mark.parametrize("command", ["show", "verify", "export", "backup", "restore", "transfer"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    found = hushgrid("ledger", command, "--help")
    assert found.returncode == 0
    assert f"Example: hushgrid ledger {command}" in " ".join(found.stdout.split())
    assert "--json" in found.stdout


def test_verify(store: Path) -> None:
    found = hushgrid("ledger", "verify", store)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("good: 10 records, head 865eeedf44c5")
    found = hushgrid("ledger", "verify", store, "--zone", "elm-street", "--json", "-")
    values = json.loads(found.stdout)
    assert values["records"] == 10
    assert values["head"].startswith("865eeedf44c5")
    assert values["first_bad"] is None


def test_export_and_verify_elsewhere(store: Path, tmp_path: Path) -> None:
    found = hushgrid_process("ledger", "export", store)
    assert found.stdout.encode() == GOLDEN.read_bytes()
    out, figures = tmp_path / "out.ndjson", tmp_path / "out.json"
    found = hushgrid("ledger", "export", store, "--out", out, "--json", figures)
    assert (found.returncode, found.stderr) == (0, "")
    assert str(out) in found.stdout
    assert out.read_bytes() == GOLDEN.read_bytes()
    values = json.loads(figures.read_text())
    assert (values["records"], values["first_bad"]) == (10, None)
    checked = subprocess.run(
        [sys.executable, "-I", SCRIPT, out], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0
    assert values["head"] in checked.stdout
    assert hushgrid("ledger", "verify", out).returncode == 0
    out.write_bytes(out.read_bytes().replace(b'"rate":0.25', b'"rate":0.26', 1))
    found = hushgrid("ledger", "verify", out, "--json", "-")
    assert found.returncode == 1
    values = json.loads(found.stdout)
    assert (values["records"], values["first_bad"]) == (3, 4)
    assert "digest" in values["reason"]


def test_show(store: Path) -> None:
    found = hushgrid("ledger", "show", store, "--last", "2")
    assert (found.returncode, found.stderr) == (0, "")
    assert "zone elm-street: production, 10 records" in found.stdout
    assert "fallback" in found.stdout
    assert "1750003200" not in found.stdout  # the third from the end
    values = json.loads(hushgrid("ledger", "show", store, "--json", "-").stdout)
    zone = values["zones"]["elm-street"]
    assert (zone["mode"], zone["t"], zone["key"]) == ("production", 6, KEY.public)
    assert zone["releases"] == {"readings": 4, "forecast": 1, "fallback": 1}


def test_a_key_and_a_head_from_elsewhere(store: Path) -> None:
    head = json.loads(GOLDEN.read_bytes().splitlines()[6])["digest"]
    assert hushgrid("ledger", "verify", store, "--key", KEY.public, "--head", head).returncode == 0
    found = hushgrid("ledger", "verify", store, "--key", "ab" * 32)
    assert (found.returncode, found.stdout.split(":")[1]) == (1, " record 1")
    found = hushgrid("ledger", "verify", store, "--head", "ab" * 32)
    assert (found.returncode, found.stdout.split(":")[1]) == (1, " record 11")
    found = hushgrid("ledger", "verify", store, "--head", "ab")
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)


def test_several_zones(store: Path) -> None:
    with opened(store, "ash-street") as ledger:
        ledger.publish(instead(1, "fallback", zone="ash-street"))
    values = json.loads(hushgrid("ledger", "verify", store, "--json", "-").stdout)
    assert (values["records"], values["head"], values["first_bad"]) == (12, None, None)
    assert values["zones"]["ash-street"]["records"] == 2
    assert hushgrid("ledger", "export", store, "--zone", "elm-street").stdout == GOLDEN.read_text()
    assert hushgrid("ledger", "export", store).stdout.endswith(GOLDEN.read_text())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["verify", "absent.db"], "absent.db does not exist"),
        (["show", "Makefile"], "Makefile is not a ledger"),
        (["verify", str(GOLDEN), "--zone", "nobody"], "no such records"),
        (["verify", "postgresql://u:hunter2@127.0.0.1:1/x"], "127.0.0.1:1/x"),
        (["export", str(GOLDEN), "--json", "-"], "both standard output"),
        (["verify", "mysql://x/y"], "scheme 'mysql'"),
        (["verify"], "STORE"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(words: list[str], says: str) -> None:
    found = hushgrid("ledger", *words)
    assert found.returncode == 2
    assert found.stdout == ""
    assert says in found.stderr
    assert "hunter2" not in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("cryptography", ["verify", str(GOLDEN)], "serve"),
        ("sqlalchemy", ["verify", "ledger.sqlite"], "serve"),
        ("psycopg", ["verify", "postgresql://u@127.0.0.1:1/x"], "postgres"),
    ],
)
@pytest.mark.sampled
def test_a_missing_extra_is_named(module: str, words: list[str], extra: str) -> None:
    code = (
        f"import sys\nsys.modules[{module!r}] = None\nfrom hushgrid.cli import main\n"
        f"main(['ledger', *{words!r}])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert f"pip install 'hushgrid[{extra}]'" in found.stderr
