"""The zone that a command is given: a zone file, or one zone of a service file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from hushgrid.live.deployment import ZoneService
    from hushgrid.zonefile import ZoneFile

ZoneName = Annotated[
    str | None, typer.Option("--zone", help="Zone of a service file that has several.")
]


class Chosen(NamedTuple):
    """A zone, and how it runs where it comes from a service file.

    The scenario of a service file begins at its `begins`, in local time. Where its models are
    private, so is `service.own`; the scenario is then what the service publishes from.
    """

    file: ZoneFile
    service: ZoneService | None = None


def load_either(path: Path, zone: str | None) -> Chosen:
    """Read a zone file, or the named zone of a service file (its only one without a name)."""
    from hushgrid.errors import FileError
    from hushgrid.live.config import is_service, load_deployment
    from hushgrid.tomlfile import TomlFile
    from hushgrid.zonefile import ZoneFile, load_zone

    given = TomlFile(path)
    given.check()
    if not is_service(given.content):
        found = load_zone(path)
        if zone not in (None, found.scenario.zone.id):
            raise FileError(
                f"zone is {zone!r} but {path} is of zone {found.scenario.zone.id!r}; give that, or"
                " no zone."
            )
        return Chosen(found)
    zones = {one.id: one for one in load_deployment(path).zones}
    if zone is None and len(zones) > 1:
        raise FileError(
            f"{path} has {len(zones)} zones; give one of {', '.join(zones)} with --zone."
        )
    if zone is not None and zone not in zones:
        raise FileError(f"zone is {zone!r} but {path} has {', '.join(zones)}; give one of them.")
    one = zones[zone] if zone is not None else next(iter(zones.values()))
    terms = (one.scenario, one.policy, one.provenance, one.seconds, one.learned)
    return Chosen(ZoneFile(*terms, one.time_zone, one.meters), one)
