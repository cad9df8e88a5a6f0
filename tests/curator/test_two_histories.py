"""What is booked for lost steps, held against the records before by the audit and the verifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hushgrid.audit.certificate import Certificate, certify
from hushgrid.curator.gaps import book
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import GapRecord
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.writer import verify_signature
from tests.curator.curators import Shown, curator, everyone, feed
from tests.curator.hourly import HOUR, street
from tests.curator.streets import BEGINS
from tests.stores.ledger.ledgers import KEY, lines_of, sealed
from tests.stores.ledger.verifier import SCRIPTED

STEPS, HEADS = 14, "ab" * 32
WINDOW = Promise("window", 1.0, window=12 * HOUR, block=3 * HOUR)
PROMISES = {"interval": Promise("interval", 1.0), "window": WINDOW}
GAPS: dict[str, dict[str, Any]] = {  # from the step after the last one on record
    "steps on record": {"first": -7, "last": -1},
    "known records": {"first": 0, "last": 3, "heads": HEADS},
    "both": {"first": -2, "last": 4, "heads": HEADS},
}


def booked(
    folder: Path, zone: ZoneService, *, first: int, last: int, **fields: Any
) -> list[Record]:
    """The ledger of some steps with a gap that is booked, and of steps after it."""
    with curator(folder, zone, Shown(), now=zone.begins) as it:
        for _ in range(STEPS):
            feed(it, it.t, everyone(zone))
            it.run(it.next_due())
        gap = GapRecord(it.t + first, it.t + last, "fork", **fields)
        it._ledger.write(gap)
        book(zone, it._ledger)
    with open_store(str(folder / "ledger.db")) as store:
        return list(store.records(zone.id))


def audited(folder: Path, zone: ZoneService, records: list[Record]) -> Certificate:
    path = folder / "ledger.ndjson"
    path.write_bytes(lines_of(records))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
    return certify(evidence, [terms_of(zone)], chain=chain)


def verified(records: list[Record]) -> tuple[bool, str]:
    good, text = SCRIPTED.verify(lines_of(records).splitlines(keepends=True))
    return bool(good), str(text)


def resumed(records: list[Record], **changes: Any) -> list[Record]:
    """The ledger with another booking, signed again by its own publisher."""
    told = [(record.kind, dict(record.body)) for record in records]
    told[0][1]["key"] = KEY.public
    told[-1] = ("resume", {**told[-1][1], **changes})
    return sealed(told, zone=records[0].zone)


def in_one_history(zone: ZoneService, records: list[Record]) -> dict[str, Any]:
    """What would be booked if nothing could be lost but the end of the ledger."""
    (standing,) = check(records[:-1], verify_signature, {}).standings.values()
    first, last, account = records[-1].body["first"], records[-1].body["last"], ZoneAccount(zone)
    if zone.promise == WINDOW:
        return {"windows": account.windows_after_loss(standing, first, last)}
    rows, end = account.after_loss(standing, first, last)
    return {"account": rows, "until": end}


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", PROMISES)
@pytest.mark.sampled
def test_two_histories_are_booked_as_two(tmp_path: Path, name: str, gap: str) -> None:
    """Booked once, blocks that were drawn twice would count once."""
    zone = street(BEGINS, PROMISES[name])
    records = booked(tmp_path, zone, **GAPS[gap])
    assert audited(tmp_path, zone, records).check("account").status == "passed"
    assert verified(records)[0], verified(records)[1]
    forged = resumed(records, **in_one_history(zone, records))
    found = audited(tmp_path, zone, forged)
    assert found.verdict == "failed"
    assert "a better account of what is booked as lost" in found.check("account").text
    good, text = verified(forged)
    assert not good
    assert f"line {len(forged)}" in text


@pytest.mark.parametrize("drop", ["a block", "its loss", "all"])
@pytest.mark.sampled
def test_blocks_that_may_be_lost_are_booked(tmp_path: Path, drop: str) -> None:
    zone = street(BEGINS, WINDOW)
    records = booked(tmp_path, zone, first=0, last=6)
    promises, blocks = records[-1].body["windows"]
    less: dict[str, Any] = {
        "a block": (promises, blocks[:-1]),
        "its loss": (promises, [*blocks[:-1], [*blocks[-1][:2], blocks[-1][2] / 2]]),
        "all": None,
    }
    forged = resumed(records, windows=less[drop])
    if less[drop] is None:
        told = [(record.kind, dict(record.body)) for record in forged]
        del told[-1][1]["windows"], told[-1][1]["until"]
        forged = sealed(told, zone=zone.id)
    assert audited(tmp_path, zone, forged).verdict == "failed"
    assert not verified(forged)[0]


def test_what_lost_records_state_is_booked(tmp_path: Path) -> None:
    zone = street(BEGINS, WINDOW)
    records = booked(tmp_path, zone, first=0, last=3, heads=HEADS, least=0.75)
    forged = resumed(records, epsilon=records[-1].body["epsilon"] - 0.75)
    assert audited(tmp_path, zone, forged).check("budget").status == "failed"
    forged = resumed(records, epsilon=0.5)
    assert not verified(forged)[0]
