"""hushgrid import: files of readings into a service's meter store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushgrid.cli.common import Json, progress, put_json, say

if TYPE_CHECKING:
    from hushgrid.intake import ColumnMapping, Parsed
    from hushgrid.live.deployment import ZoneService

PIECE = 1 << 20  # [bytes] read at once


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="csv, json, ndjson, arrow, parquet, xml."),
    ],
    config: Annotated[Path, typer.Option(help="Service file (TOML).")],
    mapping: Annotated[str, typer.Option(help="canonical, lcl or pecan: names of columns.")] = (
        "canonical"
    ),
    json: Json = None,
) -> None:
    """Put readings from files into the meter store of a service that is not running.

    Example: hushgrid import readings.csv --config service.toml
    """
    from hushgrid.errors import FileError, IntakeError
    from hushgrid.live.config import load_deployment
    from hushgrid.live.delivery import Delivery
    from hushgrid.live.formats import mapping_named
    from hushgrid.live.gate import Gate
    from hushgrid.live.meters import open_meters

    columns = mapping_named(mapping)
    deployment = load_deployment(config)
    delivery, kept = Delivery(), _Within(deployment.zones)
    try:
        sizes = {path: path.stat().st_size for path in files}
        with (
            open_meters(deployment.meters) as store,
            progress("bytes", sum(sizes.values())) as advance,
        ):
            for zone in deployment.zones:
                store.open_zone(zone.id, zone.meters, zone.seconds)
            gate = Gate(deployment.zones, store)
            for path in files:
                try:
                    batches = _batches(path, columns, advance)
                    delivery.take(gate, (kept.of(batch) for batch in batches))
                except IntakeError as error:
                    raise IntakeError(f"{path}: {error}") from None
    except OSError as error:
        raise FileError(
            f"{error.filename or 'a file'} cannot be read or written ({error.strerror});"
            " give files that are there."
        ) from None
    receipt = delivery.receipt._asdict()
    say("\n".join(f"{kind:>10} {count}" for kind, count in receipt.items()), json)
    for one in delivery.problems:
        say(f"  {one}", json)
    if kept.outside:
        say(f"{'outside':>10} {kept.outside} of no zone's horizon: left out", json)
    told = {**receipt, "outside": kept.outside, "problems": list(delivery.problems)}
    put_json(told, json)


class _Within:
    """Keeps readings that a zone can still publish; a store holds but some weeks of the others."""

    def __init__(self, zones: Sequence[ZoneService]) -> None:
        self._begins = min(zone.begins for zone in zones)
        self._ends = max(zone.begins + zone.seconds * zone.policy.horizon for zone in zones)
        self.outside = 0

    def of(self, parsed: Parsed) -> Parsed:
        """What was parsed, less readings from before the first begins or after the last horizon."""
        from dataclasses import replace

        from hushgrid.intake import Readings

        own = parsed.readings
        kept = (own.start >= self._begins) & (own.start < self._ends)
        if kept.all():
            return parsed
        self.outside += int((~kept).sum())
        some = Readings.trusted(
            own.names,
            own.code[kept],
            start=own.start[kept],
            duration=own.duration[kept],
            wh=own.wh[kept],
        )
        return replace(parsed, readings=some)


def _batches(path: Path, mapping: ColumnMapping, advance: Callable[..., None]) -> Iterator[Parsed]:
    from hushgrid.intake import parquet_batches
    from hushgrid.live.formats import parser_of

    with path.open("rb") as stream:
        if path.suffix.lower() == ".parquet":
            yield from parquet_batches(stream, mapping)
            advance(path.stat().st_size)
            return

        def pieces() -> Iterator[bytes]:
            while piece := stream.read(PIECE):
                yield piece
                advance(len(piece))

        yield from parser_of(path)(pieces(), mapping)
