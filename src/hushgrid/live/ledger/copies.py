"""Copies of a ledger file: made while its writers go on, and put back without losing a record.

A copy gets its name only when every record in it is verified and none that was durable before is
missing. The witnesses stay beside the ledger and are no part of a copy: they are what tells that a
copy is older than what was shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from hushgrid.errors import LedgerError
from hushgrid.files import sync_folder
from hushgrid.live.ledger.chain import ChainReport, Verify, check
from hushgrid.live.ledger.stores.sidecar import Sidecar, read_witness, sidecar_path
from hushgrid.live.ledger.stores.sqlite import SqliteLedger


def back_up(store: Path, target: Path, verify: Verify | None = None) -> ChainReport:
    """Copy a ledger file as it is now; its writers need not stop."""
    with SqliteLedger(store, create=False) as source:
        durable = {d: zone for zone in source.zones() if (d := source.witness(zone))}
        return _copied(source, target, durable, verify)


def restore(copy: Path, store: Path, verify: Verify | None = None) -> ChainReport:
    """Put a copy where a ledger was; refused where a record is missing that was known there."""
    for end in ("", "-wal", "-shm"):  # SQLite would play an old log into the copy
        if (left := store.with_name(store.name + end)).exists():
            raise LedgerError(f"{left} exists already; move it away, with its -wal and -shm.")
    with SqliteLedger(copy, create=False) as source, ExitStack() as locks:
        zones = source.zones()
        _check_known_zones(store, zones)
        for zone in zones:  # a service that still runs holds them
            locks.callback(Sidecar(sidecar_path(store, zone), zone).release)
        known = {zone: read_witness(sidecar_path(store, zone)) for zone in zones}
        durable = {head.digest: zone for zone, head in known.items() if head}
        return _copied(source, store, durable, verify)


def _check_known_zones(store: Path, zones: tuple[str, ...]) -> None:
    """A witness of a zone that the copy does not have at all."""
    named = {sidecar_path(store, zone) for zone in zones}
    for path in sorted(store.parent.glob("*")):
        of_zone = re.fullmatch(re.escape(store.name) + r"\.[0-9a-f]{16}", path.name)
        if of_zone and path not in named and read_witness(path):
            raise LedgerError(
                f"{path} knows a zone that is not in the copy; give a newer copy of {store.name}."
            )


def _copied(
    source: SqliteLedger, target: Path, durable: Mapping[str, str], verify: Verify | None
) -> ChainReport:
    if not target.parent.is_dir():
        raise LedgerError(f"{target} is in no folder; make {target.parent} first.")
    if target.exists():
        raise LedgerError(f"{target} exists already; give another name, or move it away.")
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        source.copy_to(part)
        report = _checked(part, durable, verify)
        part.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise LedgerError(
            f"{target} cannot be written ({error.strerror}); see that its disk is writable and not"
            " full."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()  # gone already where all went well
    return report


def _checked(path: Path, durable: Mapping[str, str], verify: Verify | None) -> ChainReport:
    with SqliteLedger(path, create=False) as copy:
        records = (record for zone in copy.zones() for record in copy.records(zone))
        report = check(records, verify, durable)
    if not report.records and report.first_bad is None:
        raise LedgerError("the ledger has no records yet; there is nothing to copy.")
    if report.first_bad is not None:
        reason = str(report.reason).rstrip(".")
        raise LedgerError(
            f"nothing was copied: record {report.first_bad}: {reason}; take a newer copy, or see"
            " docs/ledger.md on how to go on after a loss."
        )
    return report
