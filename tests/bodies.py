"""Bodies of records, made as the service makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hushgrid.stores.ledger.entries import (
    ChargeRecord,
    GapRecord,
    GenesisRecord,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
)
from hushgrid.stores.ledger.terms import TariffRecord, TermsRecord, terms_name


def _body(make: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    return lambda *args, **named: make(*args, **named).to_body()


def terms_of(
    laws: str,
    first: int,
    seconds: int,
    *,
    interval: float | None = None,
    window: tuple[int, float] | None = None,
    eta: float | None = None,
    steps: int = 96,
    **more: Any,
) -> TermsRecord:
    """Terms with laws of that digest; what they say of the zone does not matter."""
    promise: dict[str, Any] = {"secret": "step", "epsilon": 0.5, "eta": 1.0 if eta is None else eta}
    if interval is not None:
        promise |= {"secret": "interval", "epsilon": interval}
    if window is not None:
        promise |= {"secret": "window", "window": window[0], "epsilon": window[1]}
    stated: dict[str, Any] = {
        "zone": "01" * 32,
        "occupancy": "02" * 32,
        "consumption": laws,
        "promise": promise,
        "plan": {"blocks": [[1, 0.5, steps]]},
        "reach": None if window is None else 300.0,
        **more,
    }
    record = TermsRecord("", first, seconds, **stated)
    return replace(record, digest=terms_name(record.to_body()))


genesis, terms, charge = _body(GenesisRecord), _body(terms_of), _body(ChargeRecord)
tariff = _body(TariffRecord)
release, stand_in = _body(ReleaseRecord.of), _body(ReleaseRecord.stand_in)
transfer, gap, resume = _body(TransferRecord), _body(GapRecord), _body(ResumeRecord)


def stating(record: ReleaseRecord, **changes: Any) -> ReleaseRecord:
    """The record with other fields of its release."""
    return replace(record, release=replace(record.release, **changes))
