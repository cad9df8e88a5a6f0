"""The living zone, whole: real process and pages' data, restarted, gone on and ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid.cli import main
from hushgrid.curator.clock import utc
from hushgrid.demo import living
from hushgrid.demo.living import EVENING, DemoOptions, DemoRequests, run_demo
from hushgrid.errors import ServiceError
from tests.web.brokers import until

ROOT = Path(__file__).parents[2]
MONDAY = 1_767_571_200  # 2026-01-05T00:00:00Z
LEFT = 6  # steps of the first week
BEGINS = MONDAY - 900 * LEFT


class Living:
    """A demo in a thread of this process: from six steps before a week's end, as fast as it can."""

    def __init__(self, **changes: Any) -> None:
        self.requests, self.lines = DemoRequests(), []
        usual = {"begins": BEGINS, "port": 0, "speed": 1e9}
        options = DemoOptions(1.0, **(usual | changes))
        self._thread = threading.Thread(
            target=run_demo, args=(options, self.requests, self.lines.append), daemon=True
        )
        self._thread.start()
        assert until(lambda: len(self.lines) == 3, 120)
        address = re.search(r"http://[0-9.:]+", self.lines[0])
        assert address is not None
        self.url = address[0]

    lines: list[str]

    def get(self, path: str) -> Any:
        answer = httpx.get(f"{self.url}{path}", timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask(self, body: Any, **headers: str) -> httpx.Response:
        return httpx.post(f"{self.url}/demo/day", json=body, headers=headers, timeout=60)

    def stop(self) -> None:
        self.requests.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo's temporary folder goes."""
    monkeypatch.setattr(living.TemporaryDirectory, "__init__", _in(tmp_path))
    return tmp_path


def _in(folder: Path) -> Any:
    made = living.TemporaryDirectory.__init__

    def init(self: Any, *words: Any, **named: Any) -> None:
        made(self, *words, **(named | {"dir": folder}))

    return init


@pytest.fixture
def demo(folder: Path) -> Iterator[Living]:
    made = Living()
    yield made
    made.stop()
    assert list(folder.iterdir()) == []  # nothing is kept


def events(demo: Living, wanted: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """So many events of the stream."""
    with httpx.stream("GET", f"{demo.url}/demo/stream", timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))
                wanted -= 1
                if not wanted:
                    return


STATE = {
    "zone", "house", "steps", "step_seconds", "epsilon", "words", "not_covered", "day", "t",
    "origin", "occupancy", "prior", "attackers", "auc", "limits", "restarting", "operator",
    "prices", "errors", "cold", "choices",
}  # fmt: skip


@pytest.mark.soak
def test_days_are_shown_restarted_and_gone_on(demo: Living, folder: Path) -> None:
    assert until(lambda: demo.get("/demo/state")["t"] > LEFT + 2)  # the second week runs
    state = demo.get("/demo/state")
    assert set(state) == STATE
    t = state["t"]
    series = [state["occupancy"], state["prior"]]
    series += [one for each in state["attackers"].values() for one in each.values()]
    series += state["prices"].values()
    assert [len(one) for one in series] == [t] * 9
    assert set(state["occupancy"]) <= {0, 1}
    assert (state["origin"], state["day"], state["steps"]) == ("2026-01-04T22:30:00Z", 1, 96)
    others = state["auc"]["others"]
    assert others["open"] > others["private"] + 0.2  # among 1,000 houses and t steps, by far
    asked = httpx.post(
        f"{demo.url}/v1/token",
        data={
            "grant_type": "client_credentials",
            "client_id": state["operator"]["client"],
            "client_secret": state["operator"]["secret"],
        },
    )
    assert asked.status_code == 200, asked.text

    stream = events(demo, 400)
    name, first = next(stream)
    assert name == "step"
    more = {"prices", "errors", "cold"}
    assert set(first) == {"day", "t", "occupancy", "prior", "none", "others", "auc"} | more
    assert demo.ask({"epsilon": 4}).status_code == 202
    told = next(data for name, data in stream if name == "restart")
    assert told == {"epsilon": 4.0}
    name, after = next(stream)  # the same listener hears the new day
    assert (name, after["day"], after["t"]) == ("step", 1, 1)
    state = demo.get("/demo/state")
    assert (state["epsilon"], state["restarting"]) == (4.0, False)
    assert "98 : 2" in state["words"]  # 1 / (1 + e^4) = 0.018
    assert "neighbours who act with you" in state["not_covered"]
    assert demo.get("/v1/price")["start"] >= "2026-01-04T23:00:00Z"  # the new ledger's own
    assert until(lambda: [one.name for one in folder.glob("*/*/")] == ["2"])  # the old one is gone


@pytest.fixture
def evening(folder: Path) -> Iterator[Living]:
    """A week from the evening on."""
    made = Living(begins=MONDAY + EVENING)
    yield made
    made.stop()


@pytest.mark.soak
def test_on_a_cold_evening_the_meters_earn_their_keep(evening: Living) -> None:
    """Errors are counted anew; the published price follows, the forecast without meters cannot."""
    demo = evening
    stream = events(demo, 400)
    assert not next(stream)[1]["cold"]
    answer = httpx.post(f"{demo.url}/demo/cold", json={"cold": True}, timeout=60)
    assert (answer.status_code, answer.json()) == (202, {"cold": True})
    cold = (data for _, data in stream if data["cold"])
    first = next(cold)
    assert first["errors"]["since"] == utc(MONDAY + EVENING + 900 * (first["t"] - 1))
    many = [first, *(next(cold) for _ in range(11))]
    for name, found in many[-1]["errors"].items():
        if name != "since":
            off = [one["prices"][name] / one["prices"]["exact"] - 1 for one in many]
            assert found == pytest.approx(sum(x * x / 12 for x in off) ** 0.5, abs=1e-4)
    errors = many[-1]["errors"]
    assert errors["forecast"] > 0.1
    assert errors["published"] < errors["forecast"] / 2
    assert demo.get("/demo/state")["cold"] is True
    refused = httpx.post(f"{demo.url}/demo/cold", json={"cold": 1}, timeout=60)
    assert (refused.status_code, refused.json()["field"]) == (400, "cold")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ([1, 2], "body"),
    ],
)
def test_a_bad_epsilon_is_told_by_name(slow: Living, body: Any, field: str) -> None:
    answer = slow.ask(body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert f"{field} is " in answer.json()["detail"]


@pytest.fixture(scope="module")
def slow() -> Iterator[Living]:
    """A demo whose first interval never ends."""
    made = Living(speed=1.0)
    yield made
    made.stop()


def test_another_origin_cannot_restart_the_day(slow: Living) -> None:
    plain = httpx.post(f"{slow.url}/demo/day", content='{"epsilon": 1}')
    assert plain.status_code == 415
    assert "access-control-allow-origin" not in plain.headers
    huge = slow.ask({"epsilon": 1, "more": "x" * 20_000})
    assert huge.status_code == 413
    broken = httpx.post(
        f"{slow.url}/demo/day", content="{", headers={"Content-Type": "application/json"}
    )
    assert broken.status_code == 400


def test_before_the_first_release_there_is_nothing_to_draw(slow: Living) -> None:
    state = slow.get("/demo/state")
    assert (state["t"], state["occupancy"], state["auc"]["others"]["open"]) == (0, [], None)


@pytest.mark.parametrize("words", [["--epsilon", "99"], ["--once", "--epsilon", "99"]])
def test_a_bad_epsilon_is_refused_in_one_sentence(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--out", str(tmp_path / "out"), *words])
    assert capsys.readouterr().err == "epsilon is 99.0; give a number from 0.1 to 20.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_told(slow: Living, folder: Path) -> None:
    taken = int(slow.url.rpartition(":")[2])
    with pytest.raises(ServiceError, match=f"'127.0.0.1' and {taken}, which cannot be bound"):
        run_demo(DemoOptions(1.0, BEGINS, port=taken), DemoRequests(), lambda _: None)
    assert list(folder.iterdir()) == []


@pytest.mark.soak
def test_the_command_ends_cleanly(tmp_path: Path) -> None:
    """Prices move, then SIGTERM: exit 0, nothing on standard error, nothing left behind."""
    command = [sys.executable, "-W", "error", "-c", "from hushgrid.cli import main; main()"]
    (browser := tmp_path / "browser").write_text(f"#!/bin/sh\necho $1 > {tmp_path}/opened\n")
    browser.chmod(0o755)
    (kept := tmp_path / "kept").mkdir()
    with subprocess.Popen(
        [*command, "demo", "--port", "0", "--speed", "20000", "--browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "TMPDIR": str(kept),
            "PYTHONUNBUFFERED": "1",
            "BROWSER": f"{browser} %s",
        },
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        address = re.search(r"http://[0-9.:]+", line)
        assert address is not None, line + process.stderr.read()

        def newest() -> str:
            answer = httpx.get(f"{address[0]}/v1/price", timeout=60)
            return str(answer.json()["start"]) if answer.status_code == 200 else ""

        assert until(lambda: newest() != "")
        seen = newest()
        assert until(lambda: newest() > seen)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    assert list(kept.iterdir()) == []
    assert (tmp_path / "opened").read_text() == f"{address[0]}/demo\n"
