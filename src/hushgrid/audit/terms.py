"""What a publisher says it does: the public terms an audit holds it against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hushgrid.consumption import Consumption
from hushgrid.estimate import PublicKnowledge
from hushgrid.grid import Tariff, Zone
from hushgrid.mechanism import State, first_public, init, known_as
from hushgrid.occupancy import OccupancyModel
from hushgrid.policy import Policy


class Elsewhere(Protocol):
    """How the same terms look in other epochs of the zone."""

    def terms(self, digest: str, first: int, horizon: int) -> Terms | None:
        """The terms of the epoch with that digest, if all but its times is the same."""
        ...

    def models(self, first: int, steps: int) -> Sequence[OccupancyModel]:
        """Theta over so many steps from the zone's step `first` on."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Zone, tariff, models, laws and policy, and what else is said in public about a zone.

    `budget` is the most that all releases of a horizon may lose together, or None; `roster` the
    digest of the list of meters; `secret`, `epsilon` and `delta` what is promised (by default the
    policy's epsilon at each step).
    """

    zone: Zone
    tariff: Tariff
    models: Sequence[OccupancyModel]
    consumption: Consumption
    policy: Policy
    budget: float | None = None
    roster: str | None = None
    secret: str = "step"
    epsilon: float | None = None
    delta: float = 0.0
    fallback_rate: float = 0.0
    eta_set_by: str = ""
    charged: float = 0.0  # what the models have cost every house
    provenance: Mapping[str, str] = field(default_factory=dict)
    veiled: bool = False  # models that say only what is possible: how fast chains mix is not known
    continued: bool = False  # whether an interval promise counts the epochs before and after
    elsewhere: Elsewhere | None = None  # None where terms are given for one epoch alone

    def first_state(self, digest: str | None = None) -> State:
        """The mechanism before its first step; `digest` is what a record calls these terms."""
        state = init(self.zone, self.tariff, self.models, self.consumption, self.policy)
        return known_as(state, digest)

    def first_public(self) -> PublicKnowledge:
        """What the public knows before the first release."""
        return first_public(self.models, self.consumption, self.policy)

    @property
    def digests(self) -> tuple[str, ...]:
        """What records may call these terms: the present digest, and that of the first version."""
        state = self.first_state()
        return (state.digest,) if state.before is None else (state.digest, state.before)

    def named(self, zone: str) -> Terms:
        """The same terms for a zone of another name."""
        return replace(self, zone=Zone(zone, self.zone.bound))

    @property
    def promised(self) -> float:
        """The epsilon of the promise."""
        return self.policy.epsilon if self.epsilon is None else self.epsilon
