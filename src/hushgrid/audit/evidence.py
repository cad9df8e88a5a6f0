"""What was published, as an auditor finds it in a ledger or a trace: public records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.compare.attack import Recording
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import HasRelease, Release, State, first_public, init, known_as
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tariff, Zone

# --------------------------------------------------------------------------------------------------
# What a publisher says it does: the public terms an audit holds it against.


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


@dataclass(frozen=True, slots=True)
class RecordedRelease(HasRelease):
    """A release as recorded; its fields can be read here as well: `entry.rate`.

    Attributes:
        place: Its record or line.
        release: What is on record; its steps count in its epoch from 1.
        source: What it is made from.
        houses: How many the publisher says there are.
        carried: The most that a house had spent elsewhere before.
        start: [UTC epoch s] of its interval, where it is on record.
    """

    place: int
    release: Release
    source: str = "readings"
    houses: int | None = None
    carried: float = 0.0
    start: int | None = None

    @property
    def step(self) -> int:
        """Its step, counted in its epoch from 1."""
        return self.release.t


@dataclass(frozen=True, slots=True)
class Came:
    """A house that moved in: `epsilon` is what it had spent until then.

    The first release after its record is of the interval from `start` [UTC epoch s] on, in an epoch
    with steps of `seconds`: all that it had spent was lost before.
    """

    epsilon: float
    start: int
    seconds: int


@dataclass(frozen=True, slots=True)
class RecordedEpoch:
    """Releases under the same terms: `first` is the zone's step it begins with.

    `schedule` is the digest of the scales committed to and `committed` their number; None where
    there is no commitment.
    """

    place: int
    digest: str
    first: int
    horizon: int
    entries: tuple[RecordedRelease, ...]
    roster: str | None = None
    schedule: str | None = None
    committed: int | None = None
    seconds: int | None = None  # length of a step, where it is on record
    lost: frozenset[int] = frozenset()  # own steps that may have been published and lost
    came: tuple[Came, ...] = ()  # houses that had moved in before its first release
    accepted: float = 0.0  # leakage about one step above a promise, accepted when it began


@dataclass(frozen=True, slots=True)
class Lost:
    """Steps (over all epochs) that may have been published and lost, and what is booked for them.

    `place` is the record that books them, or that notes them; `epsilon` is None while unbooked.
    """

    place: int
    first: int
    last: int
    epsilon: float | None = None
    seconds: int | None = None  # length of a step there, where it is on record


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is on record for one zone. `repeated` is the first place that shows a step again."""

    zone: str
    kind: str  # ledger or trace
    epochs: tuple[RecordedEpoch, ...]
    mode: str = "simulation"
    repeated: int | None = None
    charges: tuple[tuple[int, float], ...] = ()  # (place, epsilon) of all that models have cost
    # (place, stated, due) of houses that left: due at least, for what every house has spent
    left: tuple[tuple[int, float, float], ...] = ()
    gaps: tuple[Lost, ...] = ()  # steps that may have been published and lost

    @property
    def entries(self) -> tuple[RecordedRelease, ...]:
        """All releases, in order."""
        return tuple(entry for epoch in self.epochs for entry in epoch.entries)


def from_recording(recorded: Recording) -> Evidence:
    """The public part of a trace."""
    entries = tuple(RecordedRelease(n, one) for n, one in enumerate(recorded.releases, 2))
    return Evidence(recorded.zone, "trace", (_epoch(recorded.digest, entries),))


def _epoch(digest: str, entries: Sequence[RecordedRelease]) -> RecordedEpoch:
    return RecordedEpoch(1, digest, 1, len(entries), tuple(entries))
