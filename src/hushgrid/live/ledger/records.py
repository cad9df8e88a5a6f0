"""What each kind of record says: functions that make the bodies, and the fields they must have.

A release says what the public may know and nothing else: no load, no optimal rate, no reading.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple, get_args

from hushgrid.checks import is_real
from hushgrid.errors import LedgerError
from hushgrid.live.ledger.record import FORMAT, Body, canonical, is_hex
from hushgrid.mechanism import Release
from hushgrid.policy import NoiseName

Mode = Literal["production", "simulation"]
Source = Literal["readings", "forecast", "fallback"]
Direction = Literal["in", "out"]
# witness: a record known here is missing; meters: a closed interval has no release;
# failover: another database server answers than the one last written to; fork: two histories
Cause = Literal["witness", "meters", "failover", "fork"]

# `houses` is the zone's public number of houses. `missing` and `late` are in records of earlier
# versions alone: how many meters report is for operators.
COUNTS = ("houses", "missing", "late")


def genesis(mode: Mode, key: str, created_at: float) -> Body:
    """The first record: whether anything is real, and the public key (hex) of all signatures."""
    return {"format": FORMAT, "mode": mode, "key": key, "created_at": math.floor(created_at)}


def epoch(
    digest: str,
    *,
    first: int,
    horizon: int,
    seconds: int,
    roster: str | None = None,
    exact: bool = False,
    interval: float | None = None,
    leakage: float | None = None,
    accepted: float | None = None,
) -> Body:
    """Terms that hold from step `first` on: `digest` is the mechanism's, `roster` the meters'.

    `horizon` steps may be published from readings, each `seconds` [s] long. `exact` says that the
    policy publishes without noise where no house is uncertain. Where occupancy at one step is
    promised from all releases, `interval` is that promise and `leakage` what was counted, releases
    of earlier epochs included. `accepted` is the leakage that the operator accepted where this
    epoch takes its own steps or those of an earlier one above their promise.
    """
    body: Body = {
        "digest": digest,
        "first": first,
        "horizon": horizon,
        "seconds": seconds,
        "roster": roster,
        "exact": exact,
    }
    counted = {"interval": interval, "leakage": leakage, "accepted": accepted}
    return {**body, **{name: value for name, value in counted.items() if value is not None}}


def schedule(terms: str, scales: Sequence[float] = ()) -> Body:
    """A commitment to the scales [Wh] of all steps of the epoch whose digest is `terms`.

    None where they are not known ahead: then the epoch's terms alone determine them.
    """
    return {"digest": schedule_digest(terms, scales), "steps": len(scales)}


def schedule_digest(terms: str, scales: Sequence[float] = ()) -> str:
    """SHA-256 over three lines: the format, the epoch's digest, the scales as canonical JSON."""
    text = f"hushgrid-schedule/1\n{terms}\n{canonical([float(b) for b in scales])}\n"
    return hashlib.sha256(text.encode()).hexdigest()


def release(
    published: Release,
    *,
    mode: Mode,
    start: int,
    applies_start: int,
    published_at: float,
    first: int = 1,
    counts: Mapping[str, int] | None = None,
) -> Body:
    """A release from readings of the interval that began at `start` [UTC epoch s].

    A mechanism counts its steps from 1; `first` is the zone's step at which its epoch began.
    """
    return {
        **asdict(published),
        "t": published.t + first - 1,
        "applies_from": published.applies_from + first - 1,
        "epsilon": _own(published.epsilon),
        "epsilon_any": _own(published.epsilon_any),
        "simulated": published.simulated or mode == "simulation",
        "source": "readings",
        "start": start,
        "applies_start": applies_start,
        "published_at": math.floor(published_at),
        "counts": dict(counts or {}),
    }


def stand_in(
    zone: str,
    source: Literal["forecast", "fallback"],
    *,
    t: int,
    rate: float,
    mode: Mode,
    start: int,
    applies_start: int,
    published_at: float,
    applies_from: int | None = None,
    digest: str | None = None,
    estimate: float | None = None,
    counts: Mapping[str, int] | None = None,
) -> Body:
    """A release that no reading went into and that costs nothing.

    A forecast (the budget is spent, the horizon is over, or no meter reported) names the epoch's
    digest; a fallback (no usable model, or private ones where a forecast would be due) none.
    """
    return {
        "zone": zone,
        "t": t,
        "applies_from": t + 1 if applies_from is None else applies_from,
        "load_hat": None,
        "put_back": 0.0,
        "estimate": estimate,
        "rate": float(rate),
        "scale": 0.0,
        "look": 0.0,
        "epsilon": 0.0,
        "delta": 0.0,
        "epsilon_any": 0.0,
        "rule": source,
        "digest": digest,
        "simulated": mode == "simulation",
        "source": source,
        "start": start,
        "applies_start": applies_start,
        "published_at": math.floor(published_at),
        "counts": dict(counts or {}),
    }


def transfer(
    house: str,
    direction: Direction,
    *,
    other: str,
    epsilon: float,
    delta: float = 0.0,
    out: str | None = None,
) -> Body:
    """A house leaves for zone `other` or comes from there, with all it has spent until then.

    `house` is a name that both zones' publishers know and the public need not. One that comes in
    says as `out` the digest of the record by which it left.
    """
    return {
        "house": house,
        "direction": direction,
        "other": other,
        "epsilon": float(epsilon),
        "delta": float(delta),
        "out": out,
    }


def charge(what: str, epsilon: float, *, digest: str, homes: int) -> Body:
    """What every house has spent on something else than releases, such as models of many homes.

    `digest` is that of what was made of its readings; the same thing is charged once.
    """
    return {"what": what, "epsilon": float(epsilon), "digest": digest, "homes": homes}


def gap(first: int, last: int, why: Cause) -> Body:
    """Steps `first` to `last` may have been published and their records lost.

    From here on no release comes from readings until a `resume` books what they can have cost.
    `why`: what shows the loss, see `Cause`.
    """
    return {"first": first, "last": last, "why": why}


def resume(first: int, last: int, *, epsilon: float, delta: float = 0.0) -> Body:
    """Ends the gap `first` to `last`: what its steps may have lost, booked in full.

    An infinite `epsilon` is written as null (Gaussian noise: no release has one of its own).
    """
    return {"first": first, "last": last, "epsilon": _own(float(epsilon)), "delta": float(delta)}


def _own(epsilon: float) -> float | None:
    """JSON knows no infinity: a release without an epsilon of its own has none."""
    return None if math.isinf(epsilon) else epsilon


class Field(NamedTuple):
    """What a field must be, and how to say so."""

    fits: Callable[[Any], bool]
    give: str


def _whole(least: int) -> Field:
    return Field(lambda v: type(v) is int and least <= v < 2**53, f"a whole number from {least} on")


def _number(low: float, high: float = math.inf) -> Field:
    reach = f"from {low:g} on" if high == math.inf else f"from {low:g} to {high:g}"
    return Field(lambda v: is_real(v) and low <= v <= high, f"a finite number {reach}")


def _one_of(kind: Any) -> Field:
    words = get_args(kind)
    return Field(lambda v: isinstance(v, str) and v in words, f"one of {', '.join(words)}")


def _or_none(field: Field) -> Field:
    return Field(lambda v: v is None or field.fits(v), f"{field.give}, or null")


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        name in COUNTS and type(count) is int and count >= 0 for name, count in value.items()
    )


_TEXT = Field(lambda v: isinstance(v, str) and v != "" and v.isprintable(), "printable text")
_HASH = Field(lambda v: is_hex(v, 64), "64 small hexadecimal digits")
_TRUTH = Field(lambda v: isinstance(v, bool), "true or false")
_SOME = Field(lambda v: type(v) is int, "a whole number")
_LOSS = _number(0)
_CHANCE = _number(0, 1)

FIELDS: Mapping[str, Mapping[str, Field]] = {
    "genesis": {
        "format": Field(lambda v: v == FORMAT, FORMAT),
        "mode": _one_of(Mode),
        "key": _HASH,
        "created_at": _whole(0),
    },
    "epoch": {
        "digest": _HASH,
        "first": _whole(1),
        "horizon": _whole(1),
        "seconds": _whole(1),
        "roster": _or_none(_HASH),
        "exact": _TRUTH,
    },
    "schedule": {"digest": _HASH, "steps": _whole(0)},
    "release": {
        "zone": _TEXT,
        "t": _whole(1),
        "applies_from": _whole(1),
        "load_hat": _or_none(_SOME),
        "put_back": _LOSS,
        "estimate": _or_none(_number(-math.inf)),
        "rate": _number(-math.inf),
        "scale": _LOSS,
        "look": _LOSS,
        "epsilon": _or_none(_LOSS),
        "delta": _CHANCE,
        "epsilon_any": _or_none(_LOSS),
        "rule": _TEXT,
        "digest": _or_none(_HASH),
        "simulated": _TRUTH,
        "source": _one_of(Source),
        "start": _whole(0),
        "applies_start": _whole(0),
        "published_at": _whole(0),
        "counts": Field(_are_counts, f"whole numbers named {', '.join(COUNTS)}"),
    },
    "transfer": {
        "house": _TEXT,
        "direction": _one_of(Direction),
        "other": _TEXT,
        "epsilon": _LOSS,
        "delta": _CHANCE,
        "out": _or_none(_HASH),
    },
    "charge": {"what": _TEXT, "epsilon": _LOSS, "digest": _HASH, "homes": _whole(1)},
    "gap": {"first": _whole(1), "last": _whole(1), "why": _one_of(Cause)},
    "resume": {
        "first": _whole(1),
        "last": _whole(1),
        "epsilon": _or_none(_LOSS),
        "delta": _CHANCE,
    },
}

# fields that a body may have: records of earlier versions lack them
OPTIONAL: Mapping[str, Mapping[str, Field]] = {
    "epoch": {"interval": _LOSS, "leakage": _LOSS, "accepted": _LOSS},
    "release": {"noise": _one_of(NoiseName)},
}


def check_body(kind: str, body: Body) -> None:
    """Refuse a body that lacks a field, has one too many, or one that cannot be."""
    required = FIELDS[kind]
    fields = {**required, **OPTIONAL.get(kind, {})}
    for name in required:
        if name not in body:
            raise LedgerError(f"{kind} has no {name}; give {', '.join(required)}.")
    for name in body:
        if name not in fields:
            raise LedgerError(f"{kind} has a field {name!r}; give {', '.join(fields)} alone.")
    for name, field in fields.items():
        if name in body and not field.fits(body[name]):
            # a value that does not fit may be anything, so it is not shown
            raise LedgerError(f"{name} of {kind} does not fit; give {field.give}.")
