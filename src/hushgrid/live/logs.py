"""Logs for machines: one JSON object a line.

Only fields named here are written, so that a reading, a load, a body or a token cannot slip in;
of an unforeseen error its type and place are told, never its text.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import TextIO

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
