"""One zone on disk: `zone.json` with its epoch, and `START.log` for each interval with readings."""

from __future__ import annotations

import logging
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.live.meters.batch import Columns
from hushgrid.live.meters.disk import (
    Appender,
    NotCut,
    make_folder,
    read_state,
    sync_folder,
    write_state,
)
from hushgrid.live.meters.frames import LogHeader, LogReader, damaged, frame
from hushgrid.live.meters.memory import IntervalMemory
from hushgrid.live.meters.roster import Roster, RosterEpoch

FORMAT = "hushgrid-meter-zone/1"
_LOG = re.compile(r"(\d+)\.log")
_MOST_FILES = 16  # kept open at a time, per zone

_logger = logging.getLogger(__name__)


class ZoneFolder:
    """The files of a zone. Not safe for threads: one writer at a time."""

    def __init__(self, root: Path, zone: str) -> None:
        self._zone = zone
        self._folder = root / f"zone-{quote(zone, safe='')}"
        self._writers: OrderedDict[int, Appender] = OrderedDict()
        self._broken = False

    # ---- the epoch

    def read_epoch(self) -> RosterEpoch | None:
        """The zone's epoch; None for a zone that was never opened."""
        path = self._folder / "zone.json"
        if not path.exists():
            if self._folder.is_dir() and self._starts():
                raise MeterError(f"meter file {path} is missing; restore it from a copy.")
            return None
        state = read_state(path)
        if state["format"] != FORMAT or state["zone"] != self._zone:
            raise MeterError(f"meter file {path} is not about zone {self._zone!r}; move it away.")
        roster = Roster(state["houses"], state["interval"], state["roster"])
        return RosterEpoch(roster, state["closed_end"], state["floor"])

    def write_epoch(self, epoch: RosterEpoch) -> None:
        """Make an epoch durable."""
        self.check_sound()
        state = {
            "format": FORMAT,
            "zone": self._zone,
            "houses": epoch.roster.houses,
            "interval": epoch.roster.interval,
            "roster": epoch.roster.digest,
            "closed_end": epoch.closed_end,
            "floor": epoch.floor,
        }
        try:
            make_folder(self._folder)
            write_state(self._folder / "zone.json", state)
        except OSError as error:
            raise _unavailable(self._folder, error) from error

    # ---- readings

    def append(self, shares: Sequence[tuple[int, Columns, bool]], roster: Roster) -> None:
        """Make readings durable: (interval, readings, whether alike) of each. All or none."""
        self.check_sound()
        done: list[tuple[int, int]] = []
        opens = -1
        try:
            for opens, columns, alike in shares:
                writer = self._writer(opens, roster)
                end = writer.end
                writer.append(frame(writer.salt, end, columns, alike))
                done.append((opens, end))
        except NotCut as error:
            self.distrust()
            raise _unavailable(self._path(opens), error.__cause__) from error
        except BaseException as error:
            self._undo(done, roster)
            if isinstance(error, OSError):
                raise _unavailable(self._path(opens), error) from error
            raise

    def _undo(self, done: Sequence[tuple[int, int]], roster: Roster) -> None:
        try:
            for opens, end in done:
                self._writer(opens, roster).cut(end)
        except (NotCut, OSError):
            self.distrust()

    def distrust(self) -> None:
        """Memory and disk may differ: nothing goes on until the store is opened again."""
        self._broken = True

    def check_sound(self) -> None:
        """Refuse to go on where memory and disk may differ."""
        if self._broken:
            raise MeterError(f"meter store {self._folder} failed halfway; shut and open it again.")

    def _writer(self, opens: int, roster: Roster) -> Appender:
        writer = self._writers.get(opens)
        if writer is None:
            writer = self._writers[opens] = self._open_log(opens, roster)
            if len(self._writers) > _MOST_FILES:
                self._writers.popitem(last=False)[1].release()
        else:
            self._writers.move_to_end(opens)
        return writer

    def _open_log(self, opens: int, roster: Roster) -> Appender:
        path = self._path(opens)
        reader = LogReader.open(path) if path.exists() else None
        if reader is None:
            salt = os.urandom(8)
            return Appender.create(path, salt, LogHeader(salt, opens, roster).pack())
        self._check_head(reader.head, opens, roster)
        return Appender.resume(path, reader.head.salt, path.stat().st_size)

    def load(self, opens: int, roster: Roster) -> IntervalMemory | None:
        """An open interval from its log; None when it holds no readings.

        What a crash tore off the end is cut and logged.
        """
        path = self._path(opens)
        try:
            memory, reader = self._read(opens, roster)
            if reader is None or not memory:
                path.unlink()
                return None
            if reader.torn:
                self._cut(path, reader)
        except OSError as error:
            raise _unavailable(path, error) from error
        return memory

    def _cut(self, path: Path, reader: LogReader) -> None:
        reason = f"{reader.torn} bytes behind byte {reader.end}"
        _logger.warning("torn end cut", extra={"zone": self._zone, "reason": reason})
        with path.open("r+b") as file:
            file.truncate(reader.end)
            os.fsync(file.fileno())

    def load_closed(self, opens: int, roster: Roster) -> IntervalMemory:
        """A closed interval. It was whole when it was closed, so anything torn is damage."""
        path = self._path(opens)
        if not path.exists():
            return IntervalMemory(opens, roster)
        memory, reader = self._read(opens, roster)
        if reader is None or reader.torn:
            raise damaged(path, 0 if reader is None else reader.end)
        return memory

    def _read(self, opens: int, roster: Roster) -> tuple[IntervalMemory, LogReader | None]:
        memory = IntervalMemory(opens, roster)
        reader = LogReader.open(self._path(opens))
        if reader is not None:
            self._check_head(reader.head, opens, roster)
            for columns in reader.frames():
                if not memory.load(columns):
                    raise damaged(self._path(opens), reader.end)
        return memory, reader

    def _check_head(self, head: LogHeader, opens: int, roster: Roster) -> None:
        if head.start != opens or head.roster != roster:
            raise MeterError(
                f"meter log {self._path(opens)} is of another interval or roster; move it away."
            )

    def starts_from(self, start: int) -> list[int]:
        """Intervals with a log that begin at `start` [epoch s] or later, in order."""
        return sorted(found for found in self._starts() if found >= start)

    def release_to(self, opens: int) -> None:
        """Close the files of intervals up to one that takes no more readings."""
        for old in [found for found in self._writers if found <= opens]:
            self._writers.pop(old).release()

    def remove_before(self, floor: int) -> int:
        """Delete the logs of intervals that begin before `floor` [epoch s], durably; how many."""
        return self._remove([found for found in self._starts() if found < floor])

    def remove_from(self, start: int) -> None:
        """Delete the logs of open intervals, which hold no readings."""
        self.release()
        self._remove(self.starts_from(start))

    def _remove(self, old: Sequence[int]) -> int:
        try:
            for opens in old:
                self._path(opens).unlink()
            if old:
                sync_folder(self._folder)
        except OSError as error:
            raise _unavailable(self._folder, error) from error
        return len(old)

    def release(self) -> None:
        """Close all files."""
        while self._writers:
            self._writers.popitem()[1].release()

    def _starts(self) -> list[int]:
        found = (_LOG.fullmatch(entry.name) for entry in os.scandir(self._folder))
        return [int(match[1]) for match in found if match]

    def _path(self, opens: int) -> Path:
        return self._folder / f"{opens}.log"


def _unavailable(path: Path, error: BaseException | None) -> MeterRetryError:
    why = error.strerror if isinstance(error, OSError) else error
    return MeterRetryError(
        f"meter store cannot write {path} ({why}); nothing was accepted,"
        " make it writable or make room and send again."
    )
