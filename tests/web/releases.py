"""Releases for feeds."""

from __future__ import annotations

from typing import Any

from hushgrid.stores.ledger.entries import ReleaseRecord
from tests.curator.worlds import START
from tests.web.http.faces import shown

T = START // 900


def release(i: int, **changes: Any) -> ReleaseRecord:
    """The release of the zone's i-th interval, its price for two intervals later."""
    own = {
        "t": T + i, "start": START + 900 * i, "applies_start": START + 900 * (i + 2),
        "rate": (10 + i) / 100, "load_hat": 3000 + 50 * i, "scale": 400.0,
        "head": f"{i % 16:x}" * 64, "signature": "cd" * 64,
    }  # fmt: skip
    return shown(**(own | changes))
