"""The result of a replay: what each promise would have cost the homes of a file of readings.

Plain figures, which go to JSON and back without loss. They are computed from private readings and
are for the operator, unless `kind` says that the homes are synthetic. No field holds a meter's id
or a reading of one home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

KEPT_PRIVATE = (
    "Computed from private readings. For the operator alone: no noise protects these figures."
)
MAY_BE_PUBLISHED = (
    "Computed from synthetic homes, which were made from public statistics alone. No reading of any"
    " home was used. It may be published."
)

Kind = Literal["private", "synthetic"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over days.

    Attributes:
        mean: The mean.
        ci95: Ends of its 95 % interval, by Student over days.
    """

    mean: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read.

    Attributes:
        name: Its name, without folders.
        sha256: Digest of its bytes.
        layout: Name of the mapping by which its columns were read.
    """

    name: str
    sha256: str
    layout: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files hold.

    Attributes:
        files: The files; none for synthetic homes.
        interval: Length of a step [s].
        homes: Homes that were played.
        left_out: Homes that were not, by reason.
        days: Whole days.
        judged_days: Days that errors are over.
        first: The first day, ISO 8601.
        last: The last day, ISO 8601.
        missing: Share of the readings of the homes played that are missing.
        time_zone: Where days begin at 0:00.
        mean_kwh: Energy of a mean home in a year [kWh].
        notes: What was taken, and why, one sentence each.
    """

    files: tuple[SourceFile, ...]
    interval: int
    homes: int
    left_out: Mapping[str, int]
    days: int
    judged_days: int
    first: str
    last: str
    missing: float
    time_zone: str
    mean_kwh: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bills:
    """How the bills of all homes change against exact prices, over the days judged; shares.

    Attributes:
        q05: Quantile 5 % of the homes' changes.
        median: Their median.
        q95: Quantile 95 %.
        largest: The largest change in either direction.
        revenue_change: Change of the sum of all bills.
    """

    q05: float
    median: float
    q95: float
    largest: float
    revenue_change: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFigures:
    """What one kind of price would have been worth.

    Attributes:
        error: Relative error of the price, root mean square of a day; None where it cannot be said.
        bills: Changes of bills; None for a promise that was refused.
        waste: Cost of prices off the exact ones, a day [currency].
        peak_error: Mean relative error of the price in the dearest tenth of all intervals.
        peak_hits: Share of these intervals that are among the dearest tenth of the price, too.
    """

    error: Estimate | None = None
    bills: Bills | None = None
    waste: Estimate | None = None
    peak_error: float | None = None
    peak_hits: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseFigures(PriceFigures):
    """One promise, in real time or a day ahead.

    Attributes:
        secret: `interval`, or `window`.
        window: Length of the window, ISO 8601; None for the secret interval.
        epsilon: What is promised about it.
        ahead: Whether prices are lists made at 18:00 for the next day.
        clamp: Where a reading is cut [Wh]; 0: at the contract bound.
        block: How long one noise lasts [s].
        scale: Scale of the noise [Wh].
        refusal: Why the promise cannot be kept here; empty where it can.
    """

    secret: Literal["interval", "window"]
    window: str | None
    epsilon: float
    ahead: bool
    clamp: int = 0
    block: int = 0
    scale: float = 0.0
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPrice(PriceFigures):
    """A price that hushgrid is compared with.

    Attributes:
        name: `exact`, `unread`, `public_shape`, `flat`, `time_of_use`, `yesterday`, `last_week` or
            `rolling_mean`.
        label: The same for readers.
        gives_away: What it says about homes: `everything`, `past days` or `nothing`.
        ahead: Whether prices are lists made at 18:00 for the next day.
    """

    name: str
    label: str
    gives_away: Literal["everything", "past days", "nothing"]
    ahead: bool


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """What an attacker who knows every other home finds about the homes most at risk.

    Attributes:
        secret: `absence`: two weeks away. `occupancy`: high or low use in one interval.
        prices: `exact`, or the promise in words.
        window: Window of the promise, ISO 8601; None for exact prices and the secret interval.
        epsilon: Of the promise; None for exact prices.
        homes: How many homes were attacked.
        auc: Mean chance that the attacker tells the two stories apart; 0.5 is a guess.
        auc_most: The largest of a home.
        detected: Mean share of absences detected at one false alarm in a hundred.
        bound: Largest AUC that the promise allows; None for exact prices.
    """

    secret: Literal["absence", "occupancy"]
    prices: str
    window: str | None
    epsilon: float | None
    homes: int
    auc: float
    auc_most: float
    detected: float
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class CutFigures:
    """Readings above the clamp of a promise, in a class of homes by their use.

    Attributes:
        secret: Of the promise.
        window: Of the promise, ISO 8601, or None.
        epsilon: Of the promise.
        use: Class of homes: `lowest fifth` to `highest fifth`.
        homes: How many homes.
        clamp: Where readings are cut [Wh].
        cut_homes: How many of the homes have any reading cut.
        readings: Share of their readings that are cut.
        energy: Share of their energy above the clamp.
    """

    secret: str
    window: str | None
    epsilon: float
    use: str
    homes: int
    clamp: int
    cut_homes: int
    readings: float
    energy: float


@dataclass(frozen=True, slots=True)
class WeekOfPrices:
    """Prices of a week, exact and private.

    Attributes:
        label: `usual` or `worst`.
        first: Its first day, ISO 8601.
        exact: The exact price of each interval [currency/kWh].
        private: The published price.
        ahead: The price listed the evening before.
        window: Window of the promise, ISO 8601.
        epsilon: Of the promise.
    """

    label: Literal["usual", "worst"]
    first: str
    exact: tuple[float, ...]
    private: tuple[float, ...]
    ahead: tuple[float | None, ...]
    window: str = "P1D"
    epsilon: float = 1.0


@dataclass(frozen=True, slots=True)
class PlayedTerms:
    """What was played: all of it is public, or is stated where it is not.

    Attributes:
        bound: Contract bound of a home [Wh a step].
        bound_from: Where it is from, in words.
        usual: What a home uses in a year by published figures [kWh].
        usual_from: Where it is from, in words.
        tariff: The price of a load in words.
        tariff_from: Where it is from, in words.
        alpha: Slope at the usual load [currency/kWh a kWh].
        beta: Price at no load [currency/kWh].
        currency: Of prices; empty: not known.
        draws: Draws of noise.
        seed: Random seed.
    """

    bound: int
    bound_from: str
    usual: float
    usual_from: str
    tariff: str
    tariff_from: str
    alpha: float
    beta: float
    currency: str
    draws: int
    seed: int


@dataclass(frozen=True, slots=True)
class Recommended:
    """The terms that the figures speak for.

    Attributes:
        secret: Of the promise; None: no promise, prices that use no reading.
        window: Of the promise, ISO 8601, or None.
        epsilon: Of the promise; None as the secret.
        ahead: Whether a list a day ahead is as good.
        reason: Why, one sentence each.
    """

    secret: Literal["interval", "window"] | None
    window: str | None
    epsilon: float | None
    ahead: bool
    reason: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayEvidence:
    """All figures of one replay.

    Attributes:
        kind: Whether the homes are those of the files, or synthetic ones of public statistics.
        found: What the files hold.
        terms: What was played.
        promises: Every promise, in real time and a day ahead.
        others: Prices it is compared with.
        weeks: A usual and the worst week under the recommended terms, or else under any day, ε = 1.
        attacks: What an attacker finds, before and after, by `absence` and `occupancy`.
        cuts: Readings that are cut, by promise and class of homes.
        recommended: The terms that the figures speak for.
        assumptions: What is assumed, one sentence each.
        limits: What cannot be concluded from these readings, one sentence each.
    """

    kind: Kind
    found: Contents
    terms: PlayedTerms
    promises: tuple[PromiseFigures, ...]
    others: tuple[OtherPrice, ...]
    weeks: tuple[WeekOfPrices, ...]
    attacks: Mapping[str, tuple[AttackFigures, ...]]
    cuts: tuple[CutFigures, ...]
    recommended: Recommended
    assumptions: tuple[str, ...]
    limits: tuple[str, ...]

    @property
    def notice(self) -> str:
        """What every sheet says about who may see it."""
        return KEPT_PRIVATE if self.kind == "private" else MAY_BE_PUBLISHED


def evidence_json(evidence: ReplayEvidence) -> dict[str, Any]:
    """The figures as plain mappings, lists and numbers.

    Args:
        evidence: The figures.

    Returns:
        What `evidence_of` reads again, with the notice of who may see it first.
    """
    from pydantic import TypeAdapter

    values = TypeAdapter(ReplayEvidence).dump_python(evidence, mode="json")
    return {"notice": evidence.notice, **values}


def evidence_of(values: Mapping[str, Any]) -> ReplayEvidence:
    """The figures of `evidence_json`, checked.

    Args:
        values: Content of the JSON.

    Returns:
        The figures.

    Raises:
        ModelError: If a field is missing or not of its form; a value is not in the message.
    """
    from pydantic import TypeAdapter, ValidationError

    from hushgrid.errors import ModelError

    try:
        return TypeAdapter(ReplayEvidence).validate_python(
            {key: value for key, value in values.items() if key != "notice"}
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the content"
        raise ModelError(
            f"{place} is not as hushgrid replay writes it ({first['msg']}); give its evidence.json."
        ) from None
