"""Public records under audit: the terms of a zone, and its releases in a ledger or a trace.

Nothing here holds a reading or a load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from hushgrid.adversary.attack import Recording
from hushgrid.belief.followed import DayClock, EvenDays, Knowledge
from hushgrid.errors import HushgridError
from hushgrid.mechanism.policy import Policy, assumptions
from hushgrid.mechanism.release import (
    HasRelease,
    Release,
    State,
    first_public,
    init,
)
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tariff, Zone, offset_tariff


class OtherWeeks(Protocol):
    """The terms of a zone over its other weeks."""

    def terms(self, first: int) -> Terms:
        """The terms over the week that begins with the zone's step `first`."""
        ...

    def models(self, first: int, steps: int) -> Sequence[OccupancyModel]:
        """Theta over `steps` steps from the zone's step `first` on."""
        ...


class AccountFinding(NamedTuple):
    """What terms say about the accounts under one record of terms.

    Attributes:
        has_terms: The record has these terms; only then anything is found.
        seq: The number of the first record that states one wrongly; None: there is none.
        text: What it states wrongly, in words.
    """

    has_terms: bool
    seq: int | None = None
    text: str = ""


Accounts = Callable[[Any, int], AccountFinding]  # of a zone's ledger, and a number of its terms


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The public terms of a zone.

    Attributes:
        zone: The zone, with the bound of each house [Wh]; houses are in the order of the file or,
            where a service has private models, of their meter ids.
        tariff: Rate of a load.
        models: Theta, the occupancy models.
        consumption: Laws of the readings given occupancy.
        policy: Promise, trust and schedule.
        secret: What is promised: "step", "interval" or "window".
        epsilon: Epsilon of the promise; None for the policy's epsilon of one step.
        fallback_rate: Rate published without a release or forecast [currency/kWh].
        eta_set_by: Who set eta below 1.
        charged: Epsilon that the models have cost every house.
        provenance: Origin of the models, by name.
        continued: Whether an interval promise is about all prices, past and future.
        other_weeks: The terms over other weeks; None where all weeks are alike.
        days: Time of day of each step.
        window: Of the secret "window", its length in words.
        window_steps: Of the secret "window", the steps that a window touches.
        accounts: Computes the accounts under a record of terms again; None where no service file
            gives the promise.
        name: What records call these terms; None: the digest of the mechanism's.
        meters: How many meters the houses have together; None: one each.
        planned: The terms with the plan that another tariff led to; None where no plan follows it.
        figures: What the promise lets prices say, `leakage` and `covers`, as its service states it;
            None where no service file gives the promise.
    """

    zone: Zone
    tariff: Tariff
    models: Sequence[OccupancyModel]
    consumption: Consumption
    policy: Policy
    secret: str = "step"
    epsilon: float | None = None
    fallback_rate: float = 0.0
    eta_set_by: str = ""
    charged: float = 0.0
    provenance: Mapping[str, str] = field(default_factory=dict)
    continued: bool = False
    other_weeks: OtherWeeks | None = None
    days: DayClock = EvenDays()  # noqa: RUF009
    accounts: Accounts | None = None
    window: str = ""
    window_steps: int | None = None
    name: str | None = None
    meters: int | None = None
    planned: Callable[[Tariff], Terms] | None = None
    figures: Callable[[], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tariff", offset_tariff(self.zone, self.tariff, self.consumption))

    def first_state(self) -> State:
        """The mechanism before its first step."""
        world = (self.zone, self.tariff, self.models, self.consumption, self.policy)
        state = init(*world, days=self.days)
        return state if self.name is None else replace(state, digest=self.name)

    def over(self, week: RecordedWeek) -> Terms:
        """The same terms over another week."""
        terms = self if self.other_weeks is None else self.other_weeks.terms(week.first)
        return replace(terms, days=terms.days.from_step(week.first))

    def first_public(self) -> Knowledge:
        """What the public knows before the first release."""
        return first_public(self.models, self.consumption, self.policy, self.days)

    @property
    def digest(self) -> str:
        """What records call these terms."""
        return self.first_state().digest

    def for_zone(self, zone: str) -> Terms:
        """The same terms for a zone of another name."""
        return replace(self, zone=Zone(zone, self.zone.bound, self.zone.export))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for the promise to hold."""
        exports, models = self.zone.offset > 0, len(self.models)
        return assumptions(self.secret, self.policy, self.consumption, models, exports=exports)

    @property
    def promised(self) -> float:
        """The epsilon of the promise."""
        return self.policy.epsilon if self.epsilon is None else self.epsilon


@dataclass(frozen=True, slots=True)
class RecordedRelease(HasRelease):
    """A release as recorded; its fields can be read here as well: `entry.rate`.

    Attributes:
        place: Its record or line.
        release: What is on record; its steps count in its week from 1.
        source: What it is made from.
        houses: How many the publisher says there are.
        start: [UTC s] of its interval, where it is on record.
        published_at: [UTC s], where it is on record.
        applies_start: When its rate begins [UTC s], where it is on record.
    """

    place: int
    release: Release
    source: str = "readings"
    houses: int | None = None
    start: int | None = None
    published_at: int | None = None
    applies_start: int | None = None

    @property
    def step(self) -> int:
        """Its step, counted in its week from 1."""
        return self.release.t


@dataclass(frozen=True, slots=True)
class RecordedList:
    """A list of prices that was published ahead.

    Attributes:
        place: Its record.
        first: Step of its first price, counted in the week of its record from 1.
        source: What it is made from.
        rates: [currency/kWh]
        feed_in: Of what is fed in [currency/kWh]; None: there are none.
        before: Where it is carried, the rate of the list before at each time of day
            [currency/kWh]; None where that has none.
    """

    place: int
    first: int
    source: str
    rates: tuple[float, ...]
    feed_in: tuple[float, ...] | None = None
    before: tuple[float | None, ...] = ()


class RecordedTariff(NamedTuple):
    """A tariff of all prices on record after it, until the next one.

    Attributes:
        place: Its record.
        tariff: The tariff; None: its figures are none.
    """

    place: int
    tariff: Tariff | None


@dataclass(frozen=True, slots=True)
class RecordedWeek:
    """Releases of one week under the same terms; a trace is one.

    Attributes:
        place: Record of its terms.
        digest: Digest of its terms.
        first: The zone's step with which it begins.
        steps: Number of steps.
        entries: Its releases in order.
        roster: Digest of its list of meters, where it is on record.
        seconds: Length of a step [s], where it is on record.
        lost: Steps of the week whose release may have been published and lost.
        secret: What its terms promise something about, where that is on record.
        houses: Names of meters in the record of its terms.
        lists: Lists of prices that were published during it.
        tariffs: All tariffs of the zone's records, in order; None: they have none, as a trace.
    """

    place: int
    digest: str
    first: int
    steps: int
    entries: tuple[RecordedRelease, ...]
    roster: str | None = None
    seconds: int | None = None
    lost: frozenset[int] = frozenset()
    secret: str | None = None
    houses: tuple[str, ...] | None = None
    lists: tuple[RecordedList, ...] = ()
    tariffs: tuple[RecordedTariff, ...] | None = None

    def tariff_at(self, place: int) -> Tariff | None:
        """The tariff of a price on record; None: there is none before it."""
        before = [tariff for at, tariff in self.tariffs or () if at < place]
        return before[-1] if before else None


@dataclass(frozen=True, slots=True)
class LostSteps:
    """Steps whose releases may have been published and lost.

    Attributes:
        place: Record that books or notes them.
        first: First step, in the numbers of its terms' records.
        last: Last step.
        epsilon: Loss booked for them, or None while unbooked.
        seconds: Length of a step [s], where it is on record.
        least: What lost records that are known state that they cost.
    """

    place: int
    first: int
    last: int
    epsilon: float | None = None
    seconds: int | None = None
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is on record for one zone.

    Attributes:
        zone: Id of the zone.
        kind: "ledger" or "trace".
        weeks: Its weeks in order.
        mode: "simulation" where the noise is seeded and protects no one.
        repeated: First record that publishes a step for the second time, or None.
        charges: (record, epsilon) of the cost of models.
        gaps: Steps that may have been published and lost.
        ledger: The zone's ledger as `Terms.accounts` takes it; None where its chain is not valid.
    """

    zone: str
    kind: str
    weeks: tuple[RecordedWeek, ...]
    mode: str = "simulation"
    repeated: int | None = None
    charges: tuple[tuple[int, float], ...] = ()
    gaps: tuple[LostSteps, ...] = ()
    ledger: Any = None

    @property
    def entries(self) -> tuple[RecordedRelease, ...]:
        """All releases, in order."""
        return tuple(entry for week in self.weeks for entry in week.entries)


def as_recorded(terms: Sequence[Terms], evidence: Sequence[Evidence]) -> tuple[Terms, ...]:
    """The given terms with the plans of the records: those that their tariffs of the time led to.

    Terms keep their plan where the tariff alone becomes another, as a file then has it.

    Args:
        terms: Terms of zones, by their files as they are now.
        evidence: Records of zones.

    Returns:
        For each of them itself, unless a plan of the records takes its place, and these.
    """
    versions = list[Terms]()
    for version in terms:
        weeks = [w for e in evidence if e.zone == version.zone.id for w in e.weeks]
        present = {version.digest: version}
        for week in weeks if version.planned else ():
            tariff = week.tariff_at(week.place)
            if week.digest not in present and tariff not in (None, version.tariff):
                assert version.planned is not None
                with suppress(HushgridError):  # the promise cannot be kept by that plan
                    planned = version.planned(tariff)
                    if planned.digest == week.digest:
                        present[week.digest] = planned
        recorded = {week.digest for week in weeks}
        versions += [v for digest, v in present.items() if digest in recorded] or [version]
    return tuple(versions)


def from_recording(recorded: Recording) -> Evidence:
    """Read the public part of a trace.

    Args:
        recorded: The trace.

    Returns:
        Its releases as one week.
    """
    entries = tuple(RecordedRelease(n, release) for n, release in enumerate(recorded.releases, 2))
    week = RecordedWeek(1, recorded.digest, 1, len(entries), entries)
    return Evidence(recorded.zone, "trace", (week,))
