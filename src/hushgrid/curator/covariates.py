"""Public series that the estimate may use: files that threads read, asked for by ticks.

A tick takes the newest value that is there and waits for no source. The value it uses is part of
the release's record, so a value that comes later changes nothing that is published. A source that
is away, slow or malformed costs a count and a line of the log.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hushgrid.belief.load_filter import Values
from hushgrid.files.deployment import ZoneService
from hushgrid.files.toml import instant_of
from hushgrid.files.zone_file import PublicSeries

log = logging.getLogger("hushgrid.covariates")

MOST = 100_000  # values kept of a series, the newest ones
LIMIT = 16 << 20  # [bytes] of a file
PAUSE = 120.0  # [s] between two looks at a file


class CovariateValues:
    """Values of a covariate by time. One thread adds them, any thread asks.

    Args:
        max_age: How old a value may be [s].
    """

    def __init__(self, max_age: int) -> None:
        self._max_age = max_age
        self._values: tuple[list[int], list[float]] = ([], [])

    def add(self, values: Mapping[int, float]) -> None:
        """Add values by their time [UTC s]; a new one of the same time replaces the old."""
        union = {**dict(zip(*self._values, strict=True)), **values}
        times = sorted(union)[-MOST:]
        self._values = (times, [union[t] for t in times])

    def at(self, start: int) -> float | None:
        """The newest value whose time is not after `start` [UTC s]; None if it is too old."""
        times, values = self._values
        n = bisect_right(times, start)
        return values[n - 1] if n and start - times[n - 1] <= self._max_age else None


def values_of(body: bytes) -> dict[int, float]:
    """Values of a series by their time.

    >>> values_of(b"start_utc,value\\n2026-01-05T00:00:00Z,3.5\\n1767571500,\\n")
    {1767571200: 3.5}
    >>> values_of(b'{"start_utc": "2026-01-05T01:00:00+01:00", "value": 3.5}')
    {1767571200: 3.5}

    Args:
        body: CSV with the columns start_utc and value, or a JSON object with these keys, or a list
            of such objects. `start_utc` is seconds since 1970, or ISO 8601 with an offset.

    Returns:
        The values by time [UTC s]; rows without a value are left out.

    Raises:
        ValueError: It is neither, or a time or value is none.
        KeyError: A row lacks one of the two.
    """
    if len(body) > LIMIT:
        raise ValueError("too long")
    text = body.decode("utf-8-sig").strip()
    if text[:1] in ("{", "["):
        document = json.loads(text)
        rows = [document] if isinstance(document, dict) else document
    else:
        rows = list(csv.DictReader(text.splitlines()))
    values: dict[int, float] = {}
    for row in rows:
        time_text, value = row["start_utc"], row["value"]
        if value is None or value == "":
            continue
        instant = int(time_text) if str(time_text).isdecimal() else instant_of(time_text)
        if instant is None or not math.isfinite(float(value)):
            raise ValueError("no time or no number")
        values[instant] = float(value)
    return values


def _change_time(path: Path) -> int | None:
    """When a file was changed; None where it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


class CovariateSources:
    """The covariates of all zones, fetched from `start` to `stop`.

    Args:
        zones: The zones.
        failed: Called with a zone and the name of a series that could not be fetched, or that has
            no value when a tick asks.
        pause: Between two attempts [s].
    """

    def __init__(
        self,
        zones: Iterable[ZoneService],
        failed: Callable[[str, str], None] = lambda _zone, _name: None,
        pause: float = PAUSE,
    ) -> None:
        self._sources = [(zone.id, series) for zone in zones for series in zone.covariates]
        self._series = {
            (zone, series.name): CovariateValues(series.max_age) for zone, series in self._sources
        }
        self._failed, self._pause = failed, pause
        self._away: set[tuple[str, str]] = set()
        self._stop = threading.Event()

    def of(self, zone: str) -> Callable[[int], Values]:
        """What a tick of the zone asks: the values by the start of its interval [UTC s]."""
        zone_series = {
            name: series for (owner, name), series in self._series.items() if owner == zone
        }

        def ask(start: int) -> Values:
            values = {name: series.at(start) for name, series in zone_series.items()}
            for name in (name for name in values if values[name] is None):
                self._failed(zone, name)
            return values

        return ask

    def start(self) -> None:
        """Begin to fetch; returns at once."""
        for zone, series in self._sources:
            name = f"covariate-{series.name}"
            threading.Thread(target=self._poll, args=(zone, series), name=name, daemon=True).start()

    def stop(self) -> None:
        """Fetch nothing more."""
        self._stop.set()

    def read_files(self) -> None:
        """Read every series once."""
        for zone, series in self._sources:
            self._take(zone, series)

    def _poll(self, zone: str, series: PublicSeries) -> None:
        last_change = None  # when the file was changed that was read last
        while not self._stop.is_set():
            change_time = _change_time(series.file)
            if change_time is None or change_time != last_change:
                success = self._take(zone, series)
                last_change = change_time if success else None
            self._stop.wait(self._pause)

    def _take(self, zone: str, series: PublicSeries) -> bool:
        """Add what a source has; whatever is wrong with it ends no thread."""
        source = (zone, series.name)
        fields = {"zone": zone, "covariate": series.name}
        try:
            self._series[source].add(values_of(series.file.read_bytes()))
        except Exception as error:  # a text of a source may be anything
            if source not in self._away:  # once, not at every attempt
                log.warning("covariate away", extra=fields | {"error": type(error).__name__})
            self._away.add(source)
            self._failed(zone, series.name)
            return False
        if source in self._away:
            self._away.discard(source)
            log.info("covariate here", extra=fields)
        return True
