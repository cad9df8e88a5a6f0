"""Wall clocks of the service, and its logs: one JSON object a line, on a terminal one sentence.

A log line has only the fields named in `FIELDS`, so that no reading, load, body or token can
enter it. Of an unforeseen error its type and place are logged, never its text.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from traceback import extract_tb
from typing import Protocol, TextIO

log = logging.getLogger("hushgrid.clock")

JUMP = 2.0  # [s] by which a clock may drift between two looks before it is called a jump


@lru_cache(1 << 14)  # pages of prices name each border of intervals twice
def utc(seconds: int) -> str:
    """RFC 3339 of a UTC second.

    Args:
        seconds: UTC seconds.

    Returns:
        The text, in UTC with Z.

    >>> utc(1_700_000_100)
    '2023-11-14T22:15:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Clock(Protocol):
    """A source of wall-clock time."""

    def now(self) -> float:
        """UTC seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """UTC seconds."""
        return time.time()


class FastClock:
    """A clock for simulations.

    Args:
        origin: Its time when it is made [UTC s].
        speed: How many times faster than real time it runs.
    """

    def __init__(self, origin: float, speed: float) -> None:
        self._origin, self._speed, self._begun = origin, speed, time.monotonic()

    def now(self) -> float:
        """UTC seconds."""
        return self._origin + self._speed * (time.monotonic() - self._begun)


def since_start() -> float:
    """Monotonic seconds that include the time for which the machine was suspended.

    Returns:
        [s]
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class WatchedClock:
    """A clock that is compared with a monotonic one; a jump is logged and counted, not corrected.

    Both run at the same rate, so that they differ by the steps of the wall clock alone.

    Args:
        clock: The wall clock.
        steady: A clock that cannot be set [s].

    Attributes:
        jumps: How many jumps were seen.
        ahead: By how much the clock was set forward since the start [s].
    """

    def __init__(self, clock: Clock, steady: Callable[[], float] = since_start) -> None:
        self._clock, self._steady, self._mutex = clock, steady, threading.Lock()
        self._origin = clock.now() - steady()
        self.jumps, self.ahead = 0, 0.0

    def now(self) -> float:
        """UTC seconds."""
        with self._mutex:
            wall, before = self._clock.now(), self.ahead
            self.ahead = wall - self._steady() - self._origin
            if abs(self.ahead - before) > JUMP:
                self.jumps += 1
                log.warning("clock jumped", extra={"seconds": round(self.ahead - before, 3)})
            return wall


def ahead_of(clock: Clock) -> float:
    """By how much a clock was set forward while it was watched.

    Args:
        clock: The clock.

    Returns:
        [s]; 0 for a clock that is not watched.
    """
    return float(getattr(clock, "ahead", 0.0))


def times_of(clock: Clock) -> tuple[float, float]:
    """The time by the clock, and as it would be had the clock not been set.

    Args:
        clock: The clock.

    Returns:
        Both [UTC s].
    """
    now = clock.now()
    return now, now - ahead_of(clock)


FIELDS = (
    "zone", "t", "source", "error", "reason", "seconds", "host", "port", "status", "publisher",
    "accepted", "duplicate", "late", "unknown", "malformed", "early", "messages", "mode",
    "curator", "zones", "records", "first", "last", "why", "epsilon", "left_out",
)  # fmt: skip


_PLACE = re.compile(r" ?[\[(]?%[-#0 +.\d]*[a-z][\])]?")  # of a value in a text of other libraries


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON: time, level, event, and the fields of `FIELDS`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        at = datetime.fromtimestamp(record.created, UTC)
        line = {  # the event of other libraries is their text without the values it is filled with
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.msg
            if record.name.startswith("hushgrid")
            else _PLACE.sub("", str(record.msg)),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[0]:
            kind, _, trace = record.exc_info
            line["error"] = kind.__name__
            line["trace"] = [f"{Path(f.filename).name}:{f.lineno}" for f in extract_tb(trace)]
        return json.dumps(line, default=str)


class PlainLines(logging.Formatter):
    """Formats a log record for a terminal: time of day, event, and the same fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        line = json.loads(JsonLines().format(record))
        at, level, _, event = (line.pop(key) for key in ("time", "level", "logger", "event"))
        more = ", ".join(f"{key} {value}" for key, value in line.items())
        text = f"{event}{more and f' ({more})'}"
        if price := getattr(record, "price", ""):
            text = f"{line['zone']}: {price} ({line['source']})"
        return " ".join(f"{at[11:19]} {level.upper().replace('INFO', '')} {text}".split())


LINES, SPAN = 100, 10.0  # lines of one place in the code and one zone in so many seconds


class FewLines(logging.Filter):
    """Leaves out lines beyond `LINES`; the next one of the same place counts them as `left_out`."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, ...], list[float]] = {}  # begin of the span, lines in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        place = (record.name, record.pathname, record.lineno, getattr(record, "zone", None))
        span = self._seen.setdefault(place, [record.created, 0])
        if not 0 <= record.created - span[0] < SPAN:
            if span[1] > LINES:
                record.left_out = int(span[1]) - LINES
            span[:] = record.created, 0
        span[1] += 1
        return span[1] <= LINES


def log_lines(
    stream: TextIO | None = None, level: int = logging.INFO
) -> logging.StreamHandler[TextIO]:
    """Send all logs of the process to a stream: JSON lines, readable ones on a terminal.

    Args:
        stream: Where they go; None: standard error.
        level: The lowest level that is logged.

    Returns:
        The one handler of the root logger.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    plain = handler.stream.isatty()
    handler.setFormatter(PlainLines() if plain else JsonLines())
    handler.addFilter(FewLines())
    if plain:  # a server's own lines add nothing to these
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    return handler
