"""Every code block of the README and the documents is run by a test, or says why it is not.

`RUN` names the test for each block; those of operations.md and some small ones are run here. A new
block needs a test and a line.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.capacity import IDS

from hushgrid.cli import main
from hushgrid.files.service_file import load_deployment
from hushgrid.files.zone_file import load_zone
from hushgrid.intake.json import FORMAT
from hushgrid.intake.text import CANONICAL
from hushgrid.model.zone import public_rate
from hushgrid.stores.ledger import open_store
from tests.services import Postgres, free_port, postgres_binaries

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
INDENTED = re.compile(r"\n\n((?:    .*(?:\n|$)|\n(?=    ))+)")
CODE = re.compile(r"    (hushgrid|python3?|make|PYTHONPATH=\S+|from|\.venv/\S+) ")

GUIDES = "test_docs.py::test_guides_run_as_they_are_written"
FEEDS = "web/test_guides.py"
HERE = "test_blocks.py"
JOURNEY = "test_journeys.py::test_an_engineer_from_init_to_restore"
ROOT_ONLY = "skip: needs root, systemd and an index of packages"
# by page and kind, in their order: the test that runs the block, or why none does
RUN: dict[str, dict[str, list[str]]] = {
    "README.md": {
        "python": ["test_docs.py::test_readme_example_runs_and_is_ten_lines"],
        "indented": [
            "demo/test_demo_once.py",
            "test_package.py::test_install_with_pip_into_a_clean_environment_and_serve",
        ],
    },
    "api.md": {"python": [GUIDES]},
    "adversary.md": {
        "python": [GUIDES],
        "indented": [
            "lab/test_attack.py::test_the_command_needs_nothing_but_the_trace",
            "lab/test_attack_recorded.py",
            "adversary/test_absence.py",
            "skip: needs a GPU",
        ],
    },
    "audit.md": {
        "python": [GUIDES],
        "py": ["stores/ledger/test_mechanisms.py"],
        "indented": ["audit/test_command.py", "lab/test_attack.py"],
    },
    "capacity.md": {
        "sh": [
            f"{HERE}::test_a_plan_of_capacity",
            "operate/batch/test_batch.py::test_the_command",  # with Spark: test_batch_spark.py
        ],
    },
    "compare.md": {
        "indented": [
            "lab/test_compare_cli.py::test_compare_writes_what_it_names_and_resumes",
            "lab/test_compare_cli.py::test_a_zone_file_finds_its_meters_steps_and_days",
        ]
    },
    "estimate.md": {"indented": [f"{HERE}::test_the_filter_of_the_estimate"]},
    "extend.md": {
        "python": [
            *["test_docs.py::test_calibrator_guide_is_short_and_its_noise_suffices"] * 2,
            *["files/test_extensions.py"] * 2,
        ],
        "toml": [f"{HERE}::test_entry_points_name_what_the_guide_defines"] * 2,
    },
    "feeds.md": {
        "sh": [
            f"{FEEDS}::test_curl",
            f"{FEEDS}::test_emhass",
            *[f"{FEEDS}::test_shapes_of_markets"] * 2,
            f"{FEEDS}::test_flexmeasures",
        ],
        "yaml": [*[f"{FEEDS}::test_evcc"] * 2, f"{FEEDS}::test_home_assistant"],
        "toml": [f"{FEEDS}::test_mqtt_of_the_service_file"],
    },
    "files.md": {
        "toml": [
            f"{HERE}::test_laws_by_season",
            "files/test_without_model.py",
            f"{HERE}::test_homes_that_export",
            f"{HERE}::test_prices_ahead_and_curves",
            f"{HERE}::test_prices_ahead_and_curves",
            f"{HERE}::test_prices_ahead_and_curves",
            f"{FEEDS}::test_charges_of_a_file",
        ]
    },
    "first-day.md": {
        "sh": [
            "test_package.py::test_install_with_pip_into_a_clean_environment_and_serve",
            *["test_first_day.py::test_the_first_day"] * 8,
        ],
        "yaml": ["test_first_day.py::test_the_first_day"],
    },
    "http.md": {"json": [f"{HERE}::test_readings_as_json"]},
    "learn.md": {
        "indented": [
            "learning/test_learn_zone.py::test_learn_writes_what_its_guide_says",
            "learning/test_learn_service.py::test_a_learned_zone_runs_without_hand_work",
            "learning/test_learn_seasons.py",
        ],
        "toml": ["learning/test_learn_zone.py::test_the_guide_states_the_defaults"],
    },
    "ledger.md": {
        "sh": ["test_docs.py::test_ledger_guide_by_hand"] * 2,
        "indented": ["stores/ledger/test_ledger_cli.py"],
    },
    "loop.md": {"indented": ["lab/test_loop_cli.py"]},
    "meter-data.md": {
        "python": [GUIDES],
        "toml": [
            *["web/http/test_web.py"] * 2,
            *["curator/test_registers.py"] * 2,
        ],
        "indented": ["files/test_datasets.py"],
    },
    "openadr.md": {
        "sh": [f"{FEEDS}::test_openadr"] * 2,
        "python": ["web/openadr/test_clients.py::test_the_guides_examples_run"] * 2,
    },
    "operations.md": {
        "sh": [
            ROOT_ONLY,
            ROOT_ONLY,
            "skip: needs Docker",  # tests/test_deploy.py reads the files it uses
            f"{HERE}::test_commands_of_operations",
            "operate/standby/test_failover.py",
            "cli/test_bill.py::test_a_home_pays_published_prices_in_both_directions",
        ],
        "yaml": [f"{HERE}::test_promtool_takes_the_scrape_configuration"],
        "toml": [f"{HERE}::test_curators_stand_by_with_one_file"],
    },
    "plan.md": {
        "indented": ["cli/test_cli.py::test_plan_answers_a_promise", "planning/test_windows.py"]
    },
    "pages.md": {"indented": ["demo/test_demo_once.py"]},
    "recover.md": {
        "sh": [
            f"{HERE}::test_commands_of_operations",
            f"{HERE}::test_a_dump_has_the_ledger",
            f"{HERE}::test_commands_of_operations",
            JOURNEY,
        ],
    },
    "security.md": {"sh": ["test_docs.py::test_access_guide_by_hand"]},
    "stores.md": {"python": [GUIDES]},
    "why-not.md": {"indented": ["lab/test_real_zones.py", "lab/test_replay_cli.py"]},
}


def blocks(page: Path) -> dict[str, list[str]]:
    """The code blocks of a page by kind; indented text that is no command or code is prose."""
    text, found = page.read_text(), dict[str, list[str]]()
    for kind, block in FENCED.findall(text):
        found.setdefault(kind, []).append(block)
    plain = FENCED.sub("", text)
    code = [one for one in INDENTED.findall(plain) if CODE.match(one)]
    return found | ({"indented": code} if code else {})


def counts(by_kind: dict[str, list[str]]) -> dict[str, int]:
    return {kind: len(found) for kind, found in by_kind.items()}


PAGES = {one.name: one for one in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]}


def test_every_block_is_run_or_says_why_not() -> None:
    there = {
        name: {kind: len(b) for kind, b in blocks(page).items()} for name, page in PAGES.items()
    }
    named = {name: {kind: len(b) for kind, b in by_kind.items()} for name, by_kind in RUN.items()}
    assert {name: kinds for name, kinds in there.items() if kinds} == named
    for name in (test for kinds in RUN.values() for tests in kinds.values() for test in tests):
        file, _, function = name.partition("::")
        if not name.startswith("skip: "):
            text = (ROOT / "tests" / file).read_text()
            assert f"def {function or 'test_'}" in text, name


def test_shells_can_read_every_command() -> None:
    """Also those that need a machine of their own."""
    found = [blocks(page).get("sh", []) for page in PAGES.values()]
    text = "\n".join(block for page in found for block in page)
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("page", "why"),
    [(p, t[6:]) for p, k in RUN.items() for b in k.values() for t in b if t.startswith("skip: ")],
)
def test_blocks_that_cannot_be_run_here(page: str, why: str) -> None:
    pytest.skip(f"{page}: a block is not run: {why}")


def test_a_plan_of_capacity(tmp_path: Path) -> None:
    """The command of the guide on a file of measurements that has every id."""
    block, _ = blocks(PAGES["capacity.md"])["sh"]
    python, _, module, file, *more = shlex.split(block)
    assert (python, module) == ("python", "benchmarks.capacity")
    (tmp_path / file).write_text(json.dumps({name: {"value": 1000.0} for name in IDS.values()}))
    done = subprocess.run(
        [sys.executable, "-m", module, tmp_path / file, *more],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "100,000,000" in done.stdout


def test_measurements_that_guides_name_exist() -> None:
    code = "".join(path.read_text() for path in ROOT.glob("benchmarks/*.py"))
    for page in ("capacity.md", "stores.md"):
        (line,) = re.findall(r"Those of `make bench`, by the ids (.*)", PAGES[page].read_text())
        names = re.findall(r"`(\w+)`", line)
        assert len(names) == 7
        for name in names:
            assert f'"{name}"' in code or f'"{name.rpartition("_")[0]}' in code, name


def run(capsys: pytest.CaptureFixture[str], line: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line, comments=True)[1:])
    found = capsys.readouterr()
    assert not ended.value.code, found.err
    return found.out


def of_operations(words: str) -> str:
    """The block of operations.md or recover.md with these words."""
    shells = [
        block for page in ("operations.md", "recover.md") for block in blocks(PAGES[page])["sh"]
    ]
    (shell,) = [block for block in shells if words in block]
    return shell


def test_commands_of_operations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clients, backup and doctor as they are written, with the guide's folders in one of ours."""
    clients, backup, doctor = map(of_operations, ("client add", "ledger backup", "hushgrid doctor"))
    places = {name: tmp_path / name.strip("/").replace("/", "-") for name in
              ("/etc/hushgrid", "/var/lib/hushgrid", "/backup")}  # fmt: skip
    run(capsys, f"hushgrid init {places['/etc/hushgrid']}")
    for folder in places.values():
        folder.mkdir(exist_ok=True)
    file = places["/etc/hushgrid"] / "service.toml"
    store = re.compile(r'^(ledger|meters) = "(\w+).sqlite"', re.M)
    text = file.read_text().replace("port = 8080", f"port = {free_port()}")
    file.write_text(store.sub(rf'\1 = "{places["/var/lib/hushgrid"]}/\2.sqlite"', text))
    begun(file)
    lines = [one for block in (clients, backup, doctor) for one in block.splitlines()]
    assert len(lines) == 6
    for line in lines:
        for name, folder in places.items():
            line = line.replace(name, str(folder))
        said = run(capsys, re.sub(r"\$\(.*?\)", "20260131T120000Z", line))
    assert "house-7" in run(capsys, f"hushgrid client list --config {file}")
    assert list(places["/backup"].glob("ledger-*.sqlite"))
    assert "Left to you" not in said


def begun(file: Path) -> None:
    """A ledger with its first records."""
    from hushgrid.stores.ledger.writer import Ledger, load

    made = load_deployment(file)
    with (
        open_store(made.ledger) as store,
        Ledger.open(store, made.zones[0].id, load(made.key), made.mode, 1_767_571_200),
    ):
        pass


def test_a_dump_has_the_ledger(tmp_path: Path, postgres: Postgres) -> None:
    (line,) = of_operations("pg_dump").splitlines()
    url, dump = postgres.fresh(), tmp_path / "hushgrid.dump"
    with open_store(url):
        pass
    words = shlex.split(line)
    words[words.index("-f") + 1], words[-1] = str(dump), url
    binaries = postgres_binaries()
    assert binaries is not None
    subprocess.run([binaries / words[0], *words[1:]], check=True)
    listed = subprocess.run([binaries / "pg_restore", "-l", dump], capture_output=True, check=True)
    assert b"hushgrid_ledger" in listed.stdout


def test_promtool_takes_the_scrape_configuration(tmp_path: Path) -> None:
    (text,) = blocks(PAGES["operations.md"])["yaml"]
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    (tmp_path / "secret").write_text("x")
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/etc/prometheus/hushgrid.secret", str(tmp_path / "secret")))
    done = subprocess.run(
        [program, "check", "config", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_curators_stand_by_with_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = blocks(PAGES["operations.md"])["toml"]
    run(capsys, f"hushgrid init {tmp_path}")
    file, asked = tmp_path / "service.toml", tomllib.loads(text)
    whole = re.sub(
        r"\[stores\]\n(?:.+\n)+", text[text.index("[stores]") :] + "\n", file.read_text()
    )
    file.write_text(whole.replace("[service]\n", "[service]\nstandby = true\n", 1))
    found = load_deployment(file)
    assert (found.standby, found.ledger) == (asked["service"]["standby"], asked["stores"]["ledger"])


@pytest.mark.parametrize(("month", "medians"), [(12, [180, 180, 260]), (3, [130, 130, 130])])
def test_laws_by_season(tmp_path: Path, month: int, medians: list[int]) -> None:
    """The laws of the guide in the example's first group."""
    text = blocks(PAGES["files.md"])["toml"][0]
    whole = (ROOT / "examples" / "zone.toml").read_text()
    given = 'present = { law = "lognormal", median = 110.0, spread = 0.8 }\n'
    assert given in whole
    whole = whole.replace('id = "elm-park"', f'id = "elm-park"\nmonth = {month}')
    (tmp_path / "zone.toml").write_text(whole.replace(given, text))
    found = load_zone(tmp_path / "zone.toml").scenario.consumption
    laws = [found.law(t, 0, occupied=True) for t in (1, 68, 69)]
    assert [law.median for law in laws] == medians  # type: ignore[attr-defined]


MODEL = """
[[models]]
name = "public"

[models.chains.resident]
home_at_start = 0.5
periods = [{ from = "00:00", leave = 0.1, come = 0.1 }]
"""


def test_homes_that_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The houses of the guide in the zone that init writes."""
    (text,) = [one for one in blocks(PAGES["files.md"])["toml"] if "[[houses]]" in one]
    run(capsys, f"hushgrid init {tmp_path}")
    file = tmp_path / "service.toml"
    head = file.read_text().partition("[[houses]]")[0]
    houses = text.replace("[[houses]]", '[[houses]]\nmeters = { prefix = "sun-", first = 1 }', 1)
    file.write_text(f"{head}{houses}\n{MODEL}")
    (zone,) = load_deployment(file).zones
    assert (zone.meters[0], len(zone.meters)) == ("sun-0001", 300)


def test_prices_ahead_and_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables of the guide in the zone that init writes."""
    found = blocks(PAGES["files.md"])["toml"]
    (ahead,) = [text for text in found if "[prices]" in text]
    run(capsys, f"hushgrid init {tmp_path}")
    file = tmp_path / "service.toml"
    whole = file.read_text()
    straight = whole[whole.index("alpha = ") : whole.index("cap = ")]
    prices = []
    for curve in (text for text in found if "[tariff.curve]" in text):
        file.write_text(f"{whole.replace(straight, '')}\n{ahead}\n{curve}")
        (zone,) = load_deployment(file).zones
        assert zone.ahead is not None
        assert zone.ahead.ahead == 1
        tariff = zone.scenario.tariff
        prices.append([round(public_rate(1000 * kwh, tariff), 3) for kwh in (55, 90, 200)])
    assert prices == [[0.15, 0.4, 0.6], [0.16, 0.3, 0.3]]


def test_readings_as_json() -> None:
    (text,) = blocks(PAGES["http.md"])["json"]
    assert json.loads(text)
    (found,) = FORMAT.batches([text.encode()], CANONICAL)
    assert list(found.readings.rows()) == [("house-1", 1_767_614_400, 900, 120)]
    assert found.malformed == 0


def test_entry_points_name_what_the_guide_defines() -> None:
    found = blocks(PAGES["extend.md"])
    for code, text in zip(found["python"][2:], found["toml"], strict=True):
        ((_, points),) = tomllib.loads(text)["project"]["entry-points"].items()
        ((_, where),) = points.items()
        module, name = where.split(":")
        assert f"`{module}.py`" in PAGES["extend.md"].read_text()
        assert re.search(rf"^{name} = ", code, re.M)


def test_the_filter_of_the_estimate() -> None:
    (text,) = blocks(PAGES["estimate.md"])["indented"]
    rng, steps = np.random.default_rng(1), 96
    names: dict[str, Any] = {
        "load_hat": 5000 + rng.normal(0, 500, steps),
        "scale": np.full(steps, 350.0),
        "base": np.full(steps, 5000.0),
        "place": np.arange(steps) % 48 / 48,
        "weekend": np.zeros(steps, bool),
    }
    exec("\n".join(line[4:] for line in text.splitlines()), names)
    assert (names["low"] < names["high"]).all()
