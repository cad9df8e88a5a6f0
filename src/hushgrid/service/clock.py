"""Wall clocks of the edge: now, and what to say when it jumps."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import Protocol, TextIO

log = logging.getLogger("hushgrid.clock")

JUMP = 2.0  # [s] by which a clock may drift between two looks before it is called a jump


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """UTC epoch seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """UTC epoch seconds."""
        return time.time()


class FastClock:
    """A clock for simulations: from `origin` [UTC epoch s] on, `speed` times as fast."""

    def __init__(self, origin: float, speed: float) -> None:
        self._origin, self._speed, self._begun = origin, speed, time.monotonic()

    def now(self) -> float:
        """UTC epoch seconds."""
        return self._origin + self._speed * (time.monotonic() - self._begun)


class WatchedClock:
    """A clock that is held against one that cannot be set; a jump is logged, not mended.

    Back: what is on record is not published again, the next interval waits. Forward: what passed is
    left out.
    """

    def __init__(
        self, clock: Clock, speed: float = 1.0, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._speed, self._steady = clock, speed, steady
        self._seen = clock.now(), steady()
        self.jumps = 0

    def now(self) -> float:
        """UTC epoch seconds."""
        wall, steady = self._clock.now(), self._steady()
        ahead = wall - self._seen[0] - self._speed * (steady - self._seen[1])
        self._seen = wall, steady
        if abs(ahead) > JUMP:
            self.jumps += 1
            log.warning("clock jumped", extra={"seconds": round(ahead, 3)})
        return wall


# --------------------------------------------------------------------------------------------------
# Logs for machines: one JSON object a line.
#
# Only fields named here are written, so that a reading, a load, a body or a token cannot slip in;
# of an unforeseen error its type and place are told, never its text.


FIELDS = (
    "zone", "t", "source", "error", "reason", "seconds", "host", "port", "status", "publisher",
    "accepted", "duplicate", "late", "unknown", "malformed", "messages", "epoch", "mode",
    "curator", "zones", "records", "first", "last", "why", "epsilon",
)  # fmt: skip


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, event, and the fields that may be told."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.msg if record.name.startswith("hushgrid") else _template(record),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[0]:
            kind, _, trace = record.exc_info
            line["error"] = kind.__name__
            line["trace"] = [f"{Path(f.filename).name}:{f.lineno}" for f in extract_tb(trace)]
        return json.dumps(line, default=str)


def _template(record: logging.LogRecord) -> str:
    """What other libraries log, without the values they fill in."""
    return str(record.msg)


def log_lines(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Send all logs of the process to a stream (standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    return handler
