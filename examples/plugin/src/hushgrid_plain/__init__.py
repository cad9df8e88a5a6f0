"""Prices as plain lines, start and price: at /v1/plain, and in the file $HUSHGRID_LINES."""

from __future__ import annotations

import os
from pathlib import Path

from hushgrid.curator.clock import utc
from hushgrid.curator.publishers import Publisher
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.feeds import Feed, Series


def lines(found: Series) -> bytes:
    """The prices of a zone, one a line.

    Args:
        found: The prices, in order of time.

    Returns:
        The body of the answer.
    """
    return "".join(f"{utc(one.start)} {one.rate}\n" for one in found.entries).encode()


FEED = Feed("/v1/plain", "text/plain; charset=utf-8", lines, "Prices as plain lines.")


class Lines:
    """A publisher that adds one line for each release. An error is logged, and tried again.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Add a release, which is in the ledger by now."""
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(f"{zone.id} {utc(release.applies_start)} {release.rate}\n")


def open_lines(_deployment: Deployment, _client: str) -> Publisher | None:
    """The publisher of a service.

    Args:
        _deployment: The service as its file describes it.
        _client: A name for this process at a broker.

    Returns:
        The publisher; None where $HUSHGRID_LINES is not set.
    """
    name = os.environ.get("HUSHGRID_LINES")
    return Lines(Path(name)) if name else None
