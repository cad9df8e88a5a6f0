"""The end of a ledger, and its import elsewhere.

A ledger is closed by a last signed record, after which nothing can be appended. An import copies
all records as they are and appends one that names the closed head: the account goes on. That a
closed ledger is imported twice cannot be prevented; both imports name the same head.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hushgrid.curator.changes import as_begun
from hushgrid.curator.gaps import note_loss
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment
from hushgrid.stores.ledger import open_records, open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.entries import ClosedRecord, OpenedRecord
from hushgrid.stores.ledger.records import Record, seal
from hushgrid.stores.ledger.witness import open_witnesses
from hushgrid.stores.ledger.writer import Ledger, Signer, load, verify_signature
from hushgrid.stores.meters import open_meters

_FAR = 2**53  # [UTC s], after every block


class EndOfLedger(NamedTuple):
    """The last record of a zone's ledger.

    Attributes:
        zone: The zone.
        records: How many records the ledger has.
        head: Digest of the last one.
        anew: False where it was there already.
    """

    zone: str
    records: int
    head: str
    anew: bool


def close_ledger(deployment: Deployment, goes_on: str, now: float) -> list[EndOfLedger]:
    """Close the ledgers of a service's zones, which must be stopped.

    The size of the noise of an open block is erased; the block was booked with its full loss when
    it was opened. Run again after a kill, it closes what is still open.

    Args:
        deployment: The service.
        goes_on: Where the zones go on, in words.
        now: [UTC s]

    Returns:
        The end of each zone's ledger.

    Raises:
        LedgerError: A zone has a writer, no record, or releases that may be lost and are not
            booked.
    """
    deployment, key, ends = as_begun(deployment), load(deployment.key), list[EndOfLedger]()
    with (
        open_store(deployment.ledger, create=False) as source,
        open_meters(deployment.meters, deployment.block_key_folder) as meters,
        open_witnesses(deployment) as witnesses,
    ):
        for zone in deployment.zones:
            if source.head(zone.id) is None:
                raise LedgerError(f"zone {zone.id!r} has no record; there is nothing to close.")
        with open_store(deployment.ledger) as store:
            for zone in deployment.zones:
                with Ledger.open(
                    store, zone.id, key, deployment.mode, now, witness=witnesses.of(zone.id),
                    closed=True,
                ) as ledger:  # fmt: skip
                    anew = ledger.standing.closed is None
                    if anew:
                        note_loss(zone, ledger, meters, now)
                        ledger.settle()
                        ledger.check(ClosedRecord(goes_on))
                        terms = ledger.standing.terms
                        meters.open_zone(*zone.roster)
                        meters.erase_noise(
                            zone.id, terms.head if terms else "", until=_FAR, other_terms=True
                        )
                        ledger.write(ClosedRecord(goes_on))
                    head = ledger.standing.head
                    ends.append(EndOfLedger(zone.id, head.seq, head.digest, anew))
    return ends


def import_ledger(export: str, into: str, key_file: Path) -> list[EndOfLedger]:
    """Copy a closed ledger into an empty one and open it there.

    Each zone's records and the one that opens them are one transaction: run again after a kill,
    it copies what is missing.

    Args:
        export: An export of the closed ledger (or a store).
        into: The new store.
        key_file: The key of the ledger, which signs the record that opens it.

    Returns:
        The end of each zone's new ledger.

    Raises:
        LedgerError: A zone's records do not end with the one that closes them, are not valid, are
            of another key, or the zone has other records in the new store.
    """
    key = load(key_file)
    with open_records(export, None) as (records, durable):
        by_zone: dict[str, list[Record]] = {}
        for record in records:
            by_zone.setdefault(record.zone, []).append(record)
    for zone, chain in by_zone.items():
        report = check(chain, verify_signature, durable)
        if report.first_bad is not None:
            raise LedgerError(f"record {report.first_bad} of zone {zone!r}: {report.reason}")
        if report.standings[zone].closed is None:
            raise LedgerError(
                f"the records of zone {zone!r} do not end with one that closes them; run hushgrid"
                " ledger close where it runs, and export it again."
            )
        if report.standings[zone].key != key.public:
            raise LedgerError(f"the records of zone {zone!r} are signed by another key; give its.")
    if not by_zone:
        raise LedgerError(f"{export} has no records; give an export of a closed ledger.")
    with open_store(into) as store:
        return [_copied(store, zone, chain, key) for zone, chain in sorted(by_zone.items())]


def _copied(store: LedgerStore, zone: str, records: Sequence[Record], key: Signer) -> EndOfLedger:
    last = records[-1]
    with store.writer(zone):
        present = list(store.records(zone))
        if present:
            opening = present[len(records) : len(records) + 1]
            if [record.digest for record in present[: len(records)]] != [
                record.digest for record in records
            ] or not (opening and opening[0].kind == "opened"):
                raise LedgerError(
                    f"zone {zone!r} has other records in the new store; give an empty one."
                )
            return EndOfLedger(zone, len(records) + 1, opening[0].digest, anew=False)
        body = OpenedRecord(last.digest).to_body()
        opens = seal(zone, last.seq + 1, "opened", body, last.digest, key.sign)
        store.append_all([*records, opens])
        return EndOfLedger(zone, opens.seq, opens.digest, anew=True)
