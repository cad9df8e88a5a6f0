"""A learned zone through every command, from what the commands wrote alone.

SGSC: CC BY 3.0 AU, Commonwealth of Australia; its test is skipped where the data is absent.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from hushgrid.files.service_file import load_deployment
from hushgrid.operate.process import Process
from hushgrid.stores.ledger import open_store
from tests.learning.homes import BEGINS, csv, lived_in, public, run

SGSC = Path(__file__).parents[3] / "shared/data/sgsc/readings_2013_50homes.parquet"
FOURTH_WEEK = BEGINS + 21 * 86_400
FIRST_WEEK = BEGINS + 7 * 86_400
LATER = FOURTH_WEEK + 86_400  # no two weeks touch readings of a model of the first one


class Hands:
    """A clock that is moved by hand."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


def ticked(folder: Path, ticks: int) -> list[dict[str, object]]:
    """The service of a folder as it runs, for some intervals; its releases."""
    deployment = load_deployment(folder / "service.toml")
    (zone,) = deployment.zones
    clock = Hands(zone.begins)
    with ExitStack() as stack:
        process = Process(replace(deployment, http=None), stack)  # no port is needed
        process.open(clock.now())
        for k in range(1, ticks + 1):
            clock.at = zone.begins + k * zone.seconds + zone.grace
            process.turn(clock)
        (running,) = process._zones
        assert running.curator is not None
        assert running.curator.status.missing == 0
        return [
            {"source": one.source, "estimate": one.estimate, "digest": one.digest}
            for one in running.curator.releases
        ]


def served(readings: Path, folder: Path) -> None:
    """check, import, serve, audit, status: no hand in between."""
    service = str(folder / "service.toml")
    said = folder / "check.json"
    run("check", service, "--json", str(said))
    # a few homes drown in the noise; nothing else is wrong
    assert all("service.accept_error" in one for one in json.loads(said.read_text())["problems"])
    receipt = folder / "import.json"
    assert run("import", str(readings), "--config", service, "--json", str(receipt)) == 0
    told = json.loads(receipt.read_text())
    assert told["accepted"] > 0
    assert (told["unknown"], told["malformed"], told["late"]) == (0, 0, 0)
    made = ticked(folder, 4)
    assert [one["source"] for one in made] == ["readings"] * 4
    assert all(one["estimate"] is not None for one in made)
    assert run("audit", service) == 0
    assert run("status", service) == 0


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return csv(tmp_path_factory.mktemp("homes") / "readings.csv", lived_in(16)[0])


@pytest.mark.soak
def test_a_learned_zone_runs_without_hand_work(homes: Path, tmp_path: Path) -> None:
    asked = ["--readings", str(homes), "--law", "lognormal", "--no-figures"]
    asked += ["--pool-budget", "50", "--bound", "5000", *public(tmp_path)]
    asked[asked.index("--to") + 1] = f"{np.datetime64(FIRST_WEEK, 's')}Z"
    at = str(np.datetime64(LATER, "s"))
    assert run("learn", *asked, "--begins", at, "--out", str(tmp_path)) == 0
    zone, told = str(tmp_path / "service.toml"), tmp_path / "plan.json"
    assert (
        run("plan", "--config", zone, "--no-tables", "--secret", "step", "--json", str(told)) == 0
    )
    planned = json.loads(told.read_text())
    assert not planned["private"]
    replayed(homes, tmp_path)
    served(homes, tmp_path)


def replayed(readings: Path, folder: Path) -> None:
    """The documented replay of recorded days: each of their intervals has its price."""
    pytest.importorskip("duckdb", reason="duckdb is not installed.")
    made = folder / "readings.parquet"
    pq.write_table(pa_csv.read_csv(readings), made)
    text = (folder / "service.toml").read_text()
    service = folder / "replay.toml"
    service.write_text(text.replace(".sqlite", ".replay"))
    first, last = (str(np.datetime64(LATER + n, "s")) for n in (0, 86_400))
    time = ("--from", f"{first}Z", "--to", f"{last}Z")
    assert run("batch", str(service), "--readings", str(made), *time) == 0
    with open_store(str(folder / "ledger.replay"), create=False) as store:
        sources = [one.body["source"] for one in store.records("learned") if one.kind == "release"]
    assert sources == ["readings"] * 48


@pytest.mark.soak
@pytest.mark.skipif(not SGSC.exists(), reason="no SGSC data beside the project")
def test_fifty_real_homes_through_every_command(tmp_path: Path) -> None:
    """learn, plan, simulate, compare and, of a pool, the curator, from what learn wrote alone."""
    asked = ["--readings", str(SGSC), "--time-zone", "Australia/Sydney", "--law", "lognormal"]
    out = ["--out", str(tmp_path), "--no-figures", "--json", str(tmp_path / "x.json")]
    assert run("learn", *asked, *out, "--zone", "sgsc", "--begins", "2013-07-01") == 0
    values = json.loads((tmp_path / "x.json").read_text())
    assert (values["houses"], values["fitted"], values["groups"]) == (50, 50, 4)
    # homes whose meters stood still for more than a fortnight of the year
    still = {"10006572", "10017472", "10017480", "10017576", "10017578", "10017994"}
    assert still <= set(values["ailments"]["vacant at times"])
    held = values["held_out"]
    assert held["log_likelihood"] > held["plain"]
    zone = str(tmp_path / "zone.toml")
    assert run("plan", "--config", zone, "--no-tables", "--secret", "step") == 0
    assert run("simulate", "--config", zone, "--days", "1") == 0
    few = ["--days", "2", "--chart-days", "0", "--attack-days", "0", "--secret", "step"]
    against = ["--readings", str(SGSC), "--config", zone, "--out", str(tmp_path / "compare")]
    assert run("compare", *few, *against) == 0
    found = json.loads((tmp_path / "compare" / "compare.json").read_text())
    # local hours, weekdays and houses are the model's own; in UTC days it is off by 0.39
    assert found["mechanisms"]["forecast"]["estimated"]["rmsre"]["mean"] < 0.3
    listed = sorted(set(pq.read_table(SGSC, columns=["meter_id"])["meter_id"].to_pylist()))
    (tmp_path / "meters.txt").write_text("".join(f"{name}\n" for name in listed))
    span = ["--from", "2012-12-31T13:00Z", "--to", "2013-12-31T13:00Z", "--interval", "PT30M"]
    asked += ["--pool-budget", "50", "--bound", "5000", "--no-figures", "--zone", "sgsc", *span]
    pool = tmp_path / "pool"
    words = ["--meters", str(tmp_path / "meters.txt"), "--begins", "2013-07-01"]
    assert run("learn", *asked, *words, "--out", str(pool)) == 0
    served(SGSC, pool)
