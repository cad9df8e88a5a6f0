"""A series of prices as each consumer reads it: per kWh, UTC with Z. Pure."""

from __future__ import annotations

import json
from typing import Any

from hushgrid.live.feeds.series import PriceEntry, Series
from hushgrid.live.publish import utc


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def prices(found: Series) -> bytes:
    """Our own: what was published and what is expected, in two lists."""
    rest = found.following
    return _json(
        {
            "zone": found.zone,
            "currency": found.currency,
            "unit": f"{found.currency}/kWh",
            "interval_s": found.seconds,
            "simulated": found.simulated,
            "head": found.head,
            "published": [_own(e) | {"source": e.source} for e in found.entries if not e.forecast],
            "forecast": [_own(e) for e in found.entries if e.forecast],
            "next": None if rest is None else utc(rest),
        }
    )


def _own(entry: PriceEntry) -> dict[str, Any]:
    said = {"start": utc(entry.start), "end": utc(entry.end), "price": entry.rate}
    return said if entry.within is None else said | entry.within._asdict()


def evcc(found: Series) -> bytes:
    """A `forecast` of evcc's custom tariff."""
    return _json(
        [{"start": utc(e.start), "end": utc(e.end), "value": e.rate} for e in found.entries]
    )


def emhass(found: Series) -> bytes:
    """EMHASS's `load_cost_forecast`, by time."""
    return _json({"load_cost_forecast": {utc(e.start): e.rate for e in found.entries}})


def octopus(found: Series) -> bytes:
    """Unit rates as Octopus's API lists them, the newest first; no VAT is known of.

    `next` and `previous` are pages there; here all is on one.
    """
    rates = [
        {
            "value_exc_vat": e.rate,
            "value_inc_vat": e.rate,
            "valid_from": utc(e.start),
            "valid_to": utc(e.end),
        }
        for e in reversed(found.entries)
    ]
    return _json({"count": len(rates), "next": None, "previous": None, "results": rates})


def csv(found: Series) -> bytes:
    """A table with a head; numbers as Python writes them."""
    lines = [
        f"{utc(e.start)},{utc(e.end)},{e.rate!r},{found.currency},"
        f"{'forecast' if e.forecast else 'published'}\n"
        for e in found.entries
    ]
    return ("start,end,price,currency,kind\n" + "".join(lines)).encode()
