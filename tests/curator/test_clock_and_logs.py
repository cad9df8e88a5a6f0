"""Clocks that jump are noticed; logs hold what may be told and nothing else."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from hushgrid.curator.clock import LINES, SPAN, FastClock, WatchedClock, log_lines


class Set:
    """A clock that is set by hand, beside one that cannot be."""

    def __init__(self) -> None:
        self.wall, self.steady = 1000.0, 0.0

    def now(self) -> float:
        return self.wall

    def passes(self, seconds: float, jump: float = 0.0) -> None:
        self.steady += seconds
        self.wall += seconds + jump


@pytest.mark.parametrize(("jump", "told"), [(0.0, 0), (1.9, 0), (-1.9, 0), (3600, 1), (-5.0, 1)])
def test_a_jump_is_logged_once(jump: float, told: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = Set()
    watched = WatchedClock(clock, steady=lambda: clock.steady)
    for seconds in (1.0, 50.0):
        clock.passes(seconds)
        assert watched.now() == clock.wall
    clock.passes(1.0, jump)
    assert watched.now() == clock.wall, "it tells the time as it is"
    clock.passes(1.0)
    watched.now()
    assert watched.jumps == told
    assert caplog.messages == ["clock jumped"] * told


def test_a_fast_clock_only_goes_forward() -> None:
    clock = FastClock(1000.0, 1e6)
    seen = [clock.now() for _ in range(100)]
    assert seen[0] >= 1000.0
    assert seen == sorted(seen)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    log_lines(stream)
    yield stream
    root.handlers[:], root.level = before[0], before[1]
    logging.captureWarnings(False)


def test_a_log_is_json_and_keeps_what_may_not_be_told(lines: io.StringIO) -> None:
    log = logging.getLogger("hushgrid.anything")
    log.info("released", extra={"zone": "Zur Linde\n", "t": 7, "wh": 9871, "body": "9872"})
    logging.getLogger("uvicorn.error").warning("Invalid request %s", "token-9873")
    try:
        raise ValueError("reading 9874")
    except ValueError:
        log.exception("failed")
    first, second, third = (json.loads(line) for line in lines.getvalue().splitlines())
    assert {"level": "info", "event": "released", "zone": "Zur Linde\n", "t": 7}.items() <= (
        first.items()
    )
    assert first["time"].endswith("Z")
    assert second["event"] == "Invalid request"
    assert third["error"] == "ValueError"
    assert third["trace"][0].startswith("test_clock_and_logs.py:")
    assert "987" not in lines.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_readable_line_for_each_event() -> None:
    """The same fields as in JSON and no others, and the price of a release."""
    root, stream = logging.getLogger(), Terminal()
    before = root.handlers[:], root.level
    try:
        log_lines(stream)
        log, price = logging.getLogger("hushgrid.anything"), "0.2500 EUR/kWh from 14:15 on"
        log.info("released", extra={"zone": "elm\n", "t": 7, "source": "readings", "price": price})
        log.warning("broker away", extra={"error": "OSError", "wh": 9871})
        logging.getLogger("uvicorn.error").info("Started server process [%d]", 9872)
    finally:
        root.handlers[:], root.level = before[0], before[1]
        logging.captureWarnings(False)
        logging.getLogger("uvicorn").setLevel(logging.NOTSET)
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d elm : 0.2500 EUR/kWh from 14:15 on \(readings\)", first)
    assert second.endswith(" WARNING broker away (error OSError)")
    assert "987" not in stream.getvalue()


def test_a_flood_of_lines_is_counted_and_drowns_no_other(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, now = logging.getLogger("uvicorn.error"), 1000.0
    monkeypatch.setattr(logging.time, "time", lambda: now)

    def flood(times: int) -> list[dict[str, object]]:
        lines.truncate(0)
        lines.seek(0)
        for n in range(times):
            bad.warning(f"Invalid request {n}")  # as other libraries write them
            logging.getLogger("hushgrid.serve").info("released", extra={"zone": f"zone {n}"})
        return [json.loads(line) for line in lines.getvalue().splitlines()]

    found = flood(5000)
    assert sum(one["event"] == "released" for one in found) == 5000, "each zone has its own"
    assert sum(one["logger"] == "uvicorn.error" for one in found) == LINES
    now += SPAN
    assert [one.get("left_out") for one in flood(1)] == [5000 - LINES, None]
    now += SPAN
    assert [one.get("left_out") for one in flood(1)] == [None, None]
