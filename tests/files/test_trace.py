"""A recorded day: the one simulate plays, on disk and back, and what a bad file is told."""

import json
from pathlib import Path

import numpy as np
import pytest

from hushgrid.cli import main
from hushgrid.errors import FileError
from hushgrid.files.models import is_trace, load_trace, save_trace
from hushgrid.files.zone_file import load_zone
from hushgrid.lab.attack import record
from hushgrid.lab.simulation import Mechanism, consecutive, days
from hushgrid.model.zone import aggregate

ZONE = Path(__file__).parents[2] / "examples" / "release.toml"


@pytest.mark.parametrize("day", [0, 2])
def test_a_recording_is_the_day_that_simulate_plays(day: int) -> None:
    zone = load_zone(ZONE)
    recorded = record(zone.scenario, zone.policy, seed=3, day=day)
    played = list(
        days(
            consecutive(zone.scenario, zone.policy.horizon),
            {"it": Mechanism(zone.policy)},
            count=day + 1,
            seed=3,
        )
    )[day].traces["it"]
    assert [r.load_hat for r in recorded.releases] == [r.load_hat for r in played.releases]
    assert recorded.truth is not None
    assert recorded.truth.occupancy.sum(axis=1).tolist() == played.home.tolist()
    bound = zone.scenario.zone.bound
    assert [aggregate(x, bound) for x in recorded.truth.readings] == played.load.tolist()


def test_the_command_writes_what_the_reader_reads(tmp_path: Path) -> None:
    out = tmp_path / "day.trace"
    with pytest.raises(SystemExit) as stop:
        main(["simulate", "--config", str(ZONE), "--days", "1", "--seed", "7", "--trace", str(out)])
    assert stop.value.code == 0
    zone, read = load_zone(ZONE), load_trace(out)
    own = record(zone.scenario, zone.policy, seed=7)
    assert is_trace(out)
    assert read.releases == own.releases
    assert read.truth is not None
    assert own.truth is not None
    assert np.array_equal(read.truth.occupancy, own.truth.occupancy)
    assert np.array_equal(read.truth.readings, own.truth.readings)
    # the beginning of the file alone is a whole public trace
    text = out.read_text().splitlines(keepends=True)
    out.write_text("".join(text[: 1 + len(own.releases)]))
    assert load_trace(out).truth is None
    assert load_trace(out).releases == own.releases


def _changed(text: list[str], line: int, **changes: object) -> list[str]:
    content = json.loads(text[line - 1])
    inner = content.get("release", content)
    inner.update(changes)
    return [*text[: line - 1], json.dumps(content), *text[line:]]


def test_a_bad_trace_is_told_its_first_bad_line(tmp_path: Path) -> None:
    zone = load_zone(ZONE)
    out = save_trace(tmp_path / "t", record(zone.scenario, zone.policy, seed=7))
    text = out.read_text().splitlines()
    cases = {
        "line 5 is of step 5 where step 4 is due": text[:4] + text[5:],
        "line 5 is of step 4 where step 3 is due|line 4 is of step 4": [
            *text[:3],
            text[4],
            text[3],
            *text[5:],
        ],
        "line 7 is of another zone": _changed(text, 7, zone="oak"),
        "line 7 is of another digest": _changed(text, 7, digest="0" * 64),
        "line 9 has a load_hat": _changed(text, 9, load_hat=1.5),
        "line 98 is not the one": text[:97] + text[98:],
        "line 100 has an occupancy": _changed(text, 100, occupancy="012"),
        "line 101 has readings": _changed(text, 101, readings=[1]),
        "line 4 is not JSON": [*text[:3], "{", *text[4:]],
        "line 51 is missing": text[:50],
        "is no trace": ["{}"],
    }
    for reason, lines in cases.items():
        out.write_text("\n".join(lines) + "\n")
        with pytest.raises(FileError, match=reason):
            load_trace(out)
