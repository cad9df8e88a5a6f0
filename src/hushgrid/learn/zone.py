"""A learned zone as the text of a zone file and of a service file that runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrid.learn.publish import PublishedGroup


@dataclass(frozen=True, slots=True)
class Offer:
    """What a zone file says besides its models; `bound_by` and `eta_by` say who answers for it."""

    zone: str
    seconds: int
    time_zone: str
    bound: int
    bound_by: str
    eta: float
    eta_by: str
    provenance: str
    homes: int
    epsilon: float
    law: str
    prior: str
    days: float
    digest: str
    policy_epsilon: float = 0.5
    alpha: float = 0.012
    beta: float = 0.05
    currency: str = "EUR"
    by: str = "hushgrid learn"


def zone_text(offer: Offer, groups: Sequence[tuple[PublishedGroup, Sequence[str]]]) -> str:
    """A zone file; houses in the order of `groups`, each with its meters; theta.json beside."""
    publish = "raw" if offer.provenance == "private" else "estimate"
    day = 86_400 // offer.seconds
    parts = [
        "# Written by hushgrid learn; docs/zone-file.md explains the keys.",
        _table("zone", {"id": offer.zone}),
        _table(
            "learned",
            {
                "provenance": offer.provenance,
                "homes": offer.homes,
                "epsilon": offer.epsilon,
                "by": offer.by,
                "law": offer.law,
                "prior": offer.prior,
                "days": offer.days,
                "bound_by": offer.bound_by,
                "digest": offer.digest,
            },
        ),
        _table(
            "service",
            {
                "interval": offer.seconds,
                "meter_interval": offer.seconds,
                "time_zone": offer.time_zone,
            },
        ),
        _table("tariff", {"alpha": offer.alpha, "beta": offer.beta, "floor": 0.0, "cap": 2.0}),
        _table(
            "policy",
            {
                "epsilon": offer.policy_epsilon,
                "eta": offer.eta,
                "eta_set_by": offer.eta_by,
                "horizon": 7 * day,
                "publish": publish,
            },
        ),
    ]
    for public, meters in groups:
        parts.append(_houses(public, meters, offer))
    parts.append(
        _table(
            "[models]",
            {"file": "theta.json", "provenance": f"{offer.provenance}, by {offer.by}"},
        )
    )
    return "\n\n".join(parts) + "\n"


def service_text(offer: Offer, begins: str) -> str:
    """A service file that runs the zone in simulation; `begins` is a date-time in UTC."""
    service = {
        "mode": "simulation",
        "interval": offer.seconds,
        "meter_interval": offer.seconds,
        "time_zone": offer.time_zone,
        "currency": offer.currency,
        "fallback_rate": 0.25,
        "key": "hushgrid.key",
        "zones": ["zone.toml"],
    }
    head = _table("service", service).replace("\ninterval", f"\nbegins = {begins}\ninterval", 1)
    return (
        "\n\n".join(
            [
                "# A service for the learned zone: hushgrid check service.toml, hushgrid serve.",
                head,
                _table("stores", {"ledger": "ledger.sqlite", "meters": "meters"}),
                _table("http", {"host": "127.0.0.1", "port": 8080, "token_digests": []}),
                _table("publish", {"file": "prices.json"}),
            ]
        )
        + "\n"
    )


def _houses(public: PublishedGroup, meters: Sequence[str], offer: Offer) -> str:
    lines = ["[[houses]]", f"count = {len(meters)}", f"meters = {_value(list(meters))}"]
    lines += [f"provenance = {_value(f'{offer.provenance}, by {offer.by}')}"]
    lines += [f"bound = {offer.bound}", f"absent = {_value(public.absent)}"]
    laws = [
        _value({"from": f"{start:02d}:00", **law})
        for start, law in zip(public.starts, public.present, strict=True)
    ]
    return "\n".join([*lines, "present = [", *(f"  {law}," for law in laws), "]"])


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())])


def _value(value: Any) -> str:
    """A TOML value on one line; JSON's escapes are TOML's.

    >>> _value({"law": "gamma", "shape": 2.0})
    '{ law = "gamma", shape = 2.0 }'
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float) and not isinstance(value, np.floating):
        return repr(value)
    if isinstance(value, np.generic):
        return _value(value.item())
    return json.dumps(value, ensure_ascii=False)
