"""A changed file of a running service: read when asked, begun where it needs no gap.

What touches no noise begins at once: tariffs, prices ahead, charges, ways out. A zone with other
terms goes on under the present ones to the border of its block and begins the others there, so
that no interval is left without a price from readings. A plain restart cannot do that: the old
terms are no longer in the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from hushgrid.curator.changes import Changes, changes_of
from hushgrid.errors import HushgridError, ServiceError
from hushgrid.files.deployment import Deployment, ZoneService

log = logging.getLogger("hushgrid.serve")

Find = Callable[[Deployment, float], Changes]


class Start(NamedTuple):
    """What a process opens.

    Attributes:
        deployment: The service; zones over the time from which they run.
        changed: What changes by it, a sentence by zone, as in `Changes`.
        begins: The first interval of zones that begin other terms [UTC s].
    """

    deployment: Deployment
    changed: Mapping[str, str]
    begins: Mapping[str, int]


class Reload:
    """Reads the file of a running service again when it is asked to.

    Asking is the operator's answer, as `--yes` is.

    Args:
        read: Reads the file.
        find: Finds what it changes; None: `changes.changes_of`.
    """

    def __init__(self, read: Callable[[], Deployment], find: Find | None = None) -> None:
        self._read, self._find = read, find or changes_of
        self._asked = False
        self._file: Deployment | None = None  # as it was read last
        self._borders: dict[str, int] = {}  # of zones that wait to begin its terms [UTC s]

    def request(self) -> None:
        """Ask for it; may be called from a handler of a signal."""
        self._asked = True

    def requested(self) -> bool:
        """Whether it was asked for since the last look."""
        asked, self._asked = self._asked, False
        return asked

    def refuse(self) -> None:
        """Say that curators that stand by do not read their files again, where that was asked."""
        if self.requested():
            reason = (
                "curators that stand by for each other (service.standby) do not read a changed"
                " file while they run; stop all, start one with hushgrid serve --yes."
            )
            log.error("changed file not taken", extra={"reason": reason})

    def ask(self, running: Deployment, starts: Mapping[str, int], now: float) -> bool:
        """Read the file, if that was asked for.

        Args:
            running: The service as it runs.
            starts: When the interval starts that each zone publishes next [UTC s].
            now: [UTC s]

        Returns:
            Whether it was read: what needs no border can begin. A file with a mistake changes
            nothing, and neither does one that says what is already to come.
        """
        if not self.requested():
            return False
        try:
            file = self._read()
            _check_same_service(file, running)
            changes = [self._changes(file, zone, starts, now) for zone in file.zones]
        except (HushgridError, OSError) as error:
            log.error("changed file not taken", extra={"reason": _reason(error)})
            return False
        self._file, self._borders = file, {}
        for change in changes:
            self._borders |= change.borders
            for zone, sentence in change.zones.items():
                log.info("changed file", extra={"zone": zone, "reason": sentence})
        if not any(change.zones for change in changes):
            log.info("changed file", extra={"reason": "it has the terms and tariffs of the ledger"})
        return True

    def _changes(
        self, file: Deployment, zone: ZoneService, starts: Mapping[str, int], now: float
    ) -> Changes:
        """What changes in a zone, from the interval on that it publishes next."""
        return self._find(replace(file, zones=(zone,)), float(starts.get(zone.id, now)))

    def due(self, starts: Mapping[str, int]) -> bool:
        """Whether a zone has come to the border at which its new terms begin.

        Args:
            starts: When the interval starts that each zone publishes next [UTC s].

        Returns:
            Whether `begin` has something to begin. A block that was opened meanwhile moves the
            border behind it.
        """
        for zone, border in tuple(self._borders.items()):
            if zone not in starts or starts[zone] < border:
                continue
            try:
                self._borders[zone] = self._border(zone, starts)
            except (HushgridError, OSError) as error:
                del self._borders[zone]  # it goes on under the present ones
                log.error("changed file not taken", extra={"zone": zone, "reason": _reason(error)})
                continue
            if self._borders[zone] <= starts[zone]:
                return True
        return False

    def _border(self, name: str, starts: Mapping[str, int]) -> int:
        """When the terms of a zone can begin, as it is now [UTC s]."""
        assert self._file is not None
        (zone,) = (zone for zone in self._file.zones if zone.id == name)
        changes = self._changes(self._file, zone, starts, starts[name])
        return changes.borders.get(name, starts[name])

    def begin(self, running: Deployment, starts: Mapping[str, int], now: float) -> Start:
        """The service of the file, but for zones that wait for their border.

        Args:
            running: The service as it runs.
            starts: As in `due`.
            now: [UTC s]

        Returns:
            What to open instead.
        """
        try:
            return self._begin(running, starts, now)
        except (HushgridError, OSError) as error:
            return self.withdraw(Start(running, {}, {}), running, error, now)

    def _begin(self, running: Deployment, starts: Mapping[str, int], now: float) -> Start:
        assert self._file is not None
        zones, changed, begins = [], dict[str, str](), dict[str, int]()
        present = {zone.id: zone for zone in running.zones}
        for zone in self._file.zones:
            start = starts.get(zone.id, -1)
            if zone.id in present and self._borders.get(zone.id, -1) > start:
                zones.append(present[zone.id])
                continue
            self._borders.pop(zone.id, None)
            changes = self._changes(self._file, zone, starts, now)
            zones += changes.deployment.zones
            changed |= changes.zones
            begins |= changes.borders
        return Start(replace(self._file, zones=tuple(zones)), changed, begins)

    def withdraw(self, start: Start, running: Deployment, error: Exception, now: float) -> Start:
        """What goes on where the start failed: the service as it ran.

        A zone whose new terms or tariff are on record already keeps them.

        Args:
            start: What could not be opened.
            running: The service as it ran before.
            error: Why not.
            now: [UTC s]

        Returns:
            What to open in its place.
        """
        log.error("changed file not taken", extra={"reason": _reason(error)})
        self._file, self._borders = None, {}
        new = {zone.id: zone for zone in start.deployment.zones}
        zones = []
        for zone in running.zones:
            begun = new.get(zone.id, zone)
            has_begun = not self._find(replace(running, zones=(begun,)), now).zones
            zones.append(begun if has_begun else zone)
        begins = {name: border for name, border in start.begins.items() if name in new}
        return Start(replace(running, zones=tuple(zones)), {}, begins)


def _check_same_service(file: Deployment, running: Deployment) -> None:
    """Refuse a file that moves the service to other stores: only a restart does that."""
    for name in ("mode", "key", "ledger", "meters", "standby"):
        if getattr(file, name) != getattr(running, name):
            raise ServiceError(
                f"{name} of the changed file is not that of the running service; put it back, or"
                " stop the service and start it again."
            )


def _reason(error: Exception) -> str:
    """Why, in words that hold no secret."""
    return str(error) if isinstance(error, HushgridError) else type(error).__name__
