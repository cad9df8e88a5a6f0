"""Bodies of records, made as the service makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hushgrid.stores.ledger.records import (
    ChargeRecord,
    EpochRecord,
    GapRecord,
    GenesisRecord,
    ReleaseRecord,
    ResumeRecord,
    ScheduleRecord,
    TransferRecord,
)


def _body(make: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    return lambda *args, **named: make(*args, **named).to_body()


genesis, epoch = _body(GenesisRecord), _body(EpochRecord)
schedule, charge = _body(ScheduleRecord.of), _body(ChargeRecord)
release, stand_in = _body(ReleaseRecord.of), _body(ReleaseRecord.stand_in)
transfer, gap, resume = _body(TransferRecord), _body(GapRecord), _body(ResumeRecord)


def stating(record: ReleaseRecord, **changes: Any) -> ReleaseRecord:
    """The record with other fields of its release."""
    return replace(record, release=replace(record.release, **changes))
