"""Commands that take minutes say on a terminal what they do, from the first second to the last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.learning.homes import csv, lived_in, public
from tests.learning.options import learn_words

LAST = ["making the models that are written", "judging them on days held out", "drawing"]


def labels(folder: Path, *words: str | Path) -> list[str]:
    """What the bars of a command say, in the order in which they begin, on a terminal."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from hushgrid.cli import main; main()", *map(str, words)],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(theirs)
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:  # the terminal's other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(300) == 0, b"".join(pieces)
    reader.join(30)
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(pieces).decode())
    found = re.findall(r"([a-z][a-z, ]*[a-z]) +[━╺╸ ]{10}", plain)
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wh, _ = lived_in(4)
    return csv(tmp_path_factory.mktemp("bars") / "readings.csv", wh)


@pytest.mark.soak
def test_learn_has_a_bar_for_each_stage(readings: Path) -> None:
    out = str(readings.parent / "zone")
    few = ("--law", "lognormal", "--prototypes", "1", "--groups", "4", "--out", out)
    found = labels(readings.parent, *learn_words("learn", "--readings", str(readings), *few))
    assert found[:2] == ["reading, bytes", "fitting, lognormal"]
    assert found[-3:] == LAST  # of a model for experiments no service is planned


@pytest.mark.soak
def test_learn_has_a_bar_for_the_plan_of_a_service(tmp_path: Path) -> None:
    readings, out = csv(tmp_path / "readings.csv", lived_in(16)[0]), str(tmp_path / "pooled")
    pooled = ("--pool-budget", "50", "--bound", "5000", *public(tmp_path))
    few = ("--groups", "4", *pooled, "--out", out)
    found = labels(tmp_path, *learn_words("learn", "--readings", str(readings), *few))
    assert found[0] == "reading, bytes"
    assert found[-4:] == [*LAST, "planning the service"]


def test_compare_has_one_before_its_days(readings: Path) -> None:
    found = labels(
        readings.parent, "compare", "--readings", readings, "--bound", "2500", "--days", "2",
        "--train-days", "7", "--chart-days", "0", "--method", "forecast", "--out", "compared",
    )  # fmt: skip
    assert found[:3] == ["reading, bytes", "learning from the first days", "days"]
