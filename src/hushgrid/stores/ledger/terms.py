"""Records of what holds in a zone: its terms, which set the noise, and its tariff, which does not.

They are records of their own, so that another tariff takes effect at any interval and begins no
terms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from hushgrid._numbers import HASH, TEXT, number, optional, or_null, whole_number
from hushgrid.stores.ledger.entry import LedgerEntry
from hushgrid.stores.ledger.records import canonical
from hushgrid.stores.ledger.rules import (
    FIGURES,
    HOUSE_DIGITS,
    HOUSES,
    MODELS,
    PLAN,
    PROMISE,
    StatedModels,
)


@dataclass(frozen=True, slots=True)
class TariffRecord(LedgerEntry):
    """The tariff of all prices that are published after it, until the next such record.

    It is public and touches no noise, so it may begin within a block of steps. A list of prices
    that was published before it stays in force.

    Attributes:
        begins: When the first interval begins whose load it prices [UTC s].
        figures: Its figures by the keys of a zone file, and all else that a price needs.
        seq: The number of its record.
    """

    kind = "tariff"
    begins: Annotated[int, whole_number(0)]
    figures: Annotated[Mapping[str, Any], FIGURES]
    seq: int = 0

    @property
    def ahead(self) -> Mapping[str, float] | None:
        """Where prices are published ahead: for how many `days`, and at which second of a day."""
        return self.figures.get("ahead")


@dataclass(frozen=True, slots=True)
class TermsRecord(LedgerEntry):
    """Terms that hold from step `first` on, until the next record of terms.

    Attributes:
        digest: Names the terms, whenever they begin: see `terms_name`.
        first: The zone's first step under them.
        seconds: Length of a step [s].
        zone: Digest of the zone's public description.
        occupancy: Digest of the occupancy models and of the time zone of their patterns.
        consumption: Digest of the laws of consumption.
        promise: `secret`, `epsilon` and `eta`; of the secret "window" its length `window` [s]; and
            `eta_set_by` where someone set eta.
        plan: The week that repeats: `blocks`, rows of how many steps a block has, what it loses and
            how many such blocks follow each other; and by the keys of a zone file what else the
            noise and the estimate depend on, such as `clamp` and `estimator`.
        roster: Digest of the meters.
        time_zone: IANA name of the zone of local weeks; None: the plan repeats from step `first`
            on.
        houses: The first `HOUSE_DIGITS` digits of every meter's name, sorted: a house has one for
            each of its meters. The name is that of a transfer.
        reach: The most by which two readings of any home can differ in a step [Wh]; with it the
            loss of a block follows from its scale. None: no promise about windows is in force.
        models: With the secret "interval", what its accounts are computed with. For each model
            `slots`: the slot of each step of its pattern, which is one step, a day or a week from
            Monday in local time; and `chains`, those that houses follow: `law` of away and at home
            at the first step, `moves`: for each slot the matrix into a step of it by rows, and
            `reach`: the largest change of a reading of its houses [Wh].
        seq: The number of its record; head: the record's digest.
    """

    kind = "terms"
    digest: Annotated[str, HASH]
    first: Annotated[int, whole_number(1)]
    seconds: Annotated[int, whole_number(1)]
    zone: Annotated[str, HASH]
    occupancy: Annotated[str, HASH]
    consumption: Annotated[str, HASH]
    promise: Annotated[Mapping[str, Any], PROMISE]
    plan: Annotated[Mapping[str, Any], PLAN]
    roster: Annotated[str | None, or_null(HASH)] = None
    time_zone: Annotated[str | None, or_null(TEXT)] = None
    houses: Annotated[str, HOUSES] = ""
    reach: Annotated[float | None, optional(number(0))] = None
    models: Annotated[StatedModels | None, optional(MODELS)] = None
    seq: int = 0
    head: str = ""

    @property
    def interval(self) -> float | None:
        """What all releases may say about one interval of a house; None: not promised."""
        return self._promised("interval")

    @property
    def window(self) -> tuple[int, float] | None:
        """The window [s] and epsilon of a promise about windows; None: not promised."""
        epsilon = self._promised("window")
        return None if epsilon is None else (self.promise["window"], epsilon)

    def _promised(self, secret: str) -> float | None:
        return self.promise["epsilon"] if self.promise["secret"] == secret else None

    @property
    def begins(self) -> int:
        """When they begin [UTC s]."""
        return self.first * self.seconds

    @property
    def turn(self) -> int:
        """After how many steps the plan repeats."""
        return int(sum(length * times for length, _, times in self.plan["blocks"]))

    @property
    def chains(self) -> tuple[Any, ...]:
        """How houses move under its models, whatever the law of its first step."""
        models = [
            (tuple(model["slots"]), *(tuple(map(tuple, c["moves"])) for c in model["chains"]))
            for model in self.models or ()
        ]
        return self.seconds, self.time_zone, models

    @property
    def house_names(self) -> frozenset[str]:
        """The names of its houses."""
        text, n = self.houses, HOUSE_DIGITS
        return frozenset(text[at : at + n] for at in range(0, len(text), n))


def terms_name(fields: Mapping[str, Any]) -> str:
    """The digest of terms, whenever they begin: SHA-256 over canonical JSON of what they state.

    Args:
        fields: Of a `TermsRecord`; those in which beginnings differ are left out: `first`, `houses`
            and of its models the law of the first step.

    Returns:
        64 hexadecimal digits.
    """
    terms = {name: fields[name] for name in _NAMED}
    models = [
        {"slots": model["slots"], "chains": [_lasting(chain) for chain in model["chains"]]}
        for model in fields.get("models") or ()
    ]
    if fields.get("reach") is not None:
        terms["reach"] = fields["reach"]
    text = canonical({"format": "hushgrid-terms/3", "models": models, **terms})
    return hashlib.sha256(text.encode()).hexdigest()


def _lasting(chain: Mapping[str, Any]) -> dict[str, Any]:
    """A chain without the law of its first step."""
    return {name: figures for name, figures in chain.items() if name != "law"}


_NAMED = (
    "seconds", "zone", "occupancy", "consumption", "promise", "plan", "roster", "time_zone",
)  # fmt: skip
