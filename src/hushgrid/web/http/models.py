"""Pydantic models of what the service answers: they are its OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

Time = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", json_schema_extra={"format": "date-time"}),
]
Count = Annotated[int, Field(ge=0)]
Source = Literal["readings", "forecast", "fallback"]


class AnswerModel(BaseModel):
    """An answer without unknown fields."""

    model_config = ConfigDict(extra="forbid")


class ErrorAnswer(BaseModel):
    """An error (RFC 9457).

    Attributes:
        type: about:blank.
        status: HTTP status.
        detail: one sentence with the fix.
        field: name of the parameter that cannot be used.
        value: its value.
        fix: what to give instead.
    """

    type: str
    status: int
    detail: str
    field: str = ""
    value: str | None = None
    fix: str = ""


class OnePrice(AnswerModel):
    """A price of a zone.

    Attributes:
        zone: id of the zone.
        start: when it begins.
        end: when it ends.
        price: of energy [currency/kWh]
        total: with grid fees and taxes [currency/kWh]
        currency: of the price.
        rule: how it was computed, for people.
        source: what it is made from.
        kind: published, or forecast where nothing was published for its interval.
        simulated: its noise is simulated.
        head: digest of its record in the ledger; empty for a forecast.
        signature: of that record; empty for a forecast.
        feed_in: of what is fed in [currency/kWh], where the tariff has such a price.
    """

    zone: str
    start: Time
    end: Time
    price: float
    total: float
    currency: str
    rule: str
    source: Source
    kind: Literal["published", "forecast"]
    simulated: bool
    head: str
    signature: str
    feed_in: float = 0.0


class Price(OnePrice):
    """The price in force of a zone: its interval holds the clock of the service.

    Attributes:
        next: the price of the next interval; null until it is published.
    """

    next: OnePrice | None


class Expected(AnswerModel):
    """An expected price.

    Attributes:
        start: when it begins.
        end: when it ends.
        price: of energy [currency/kWh]
        total: with grid fees and taxes [currency/kWh]
        low: the exact price is above, with 97.5 per cent.
        high: the exact price is below, with 97.5 per cent.
        total_low: the low one with charges, where there are any.
        total_high: the high one with charges.
        feed_in: of what is fed in [currency/kWh], where the tariff has such a price.
    """

    start: Time
    end: Time
    price: float
    total: float
    low: float = 0.0
    high: float = 0.0
    total_low: float = 0.0
    total_high: float = 0.0
    feed_in: float = 0.0


class Published(Expected):
    """A published price.

    Attributes:
        source: what it is made from.
    """

    source: Source


class Prices(AnswerModel):
    """Published and expected prices.

    Attributes:
        zone: id of the zone.
        currency: of the prices.
        unit: currency/kWh.
        interval_s: length of an interval [s].
        simulated: noise is simulated.
        head: digest of the newest record.
        published: in order of time.
        forecast: in order of time.
        next: where the rest begins that the limit left out.
    """

    zone: str
    currency: str
    unit: str
    interval_s: Count
    simulated: bool
    head: str
    published: list[Published]
    forecast: list[Expected]
    next: Time | None


class EvccRate(AnswerModel):
    """A price as evcc reads it.

    Attributes:
        start: when it begins.
        end: when it ends.
        value: [currency/kWh]
    """

    start: Time
    end: Time
    value: float


class Evcc(RootModel[list[EvccRate]]):
    """Prices as evcc reads them."""


class Emhass(AnswerModel):
    """Prices as EMHASS reads them.

    Attributes:
        load_cost_forecast: [currency/kWh] by time.
        prod_price_forecast: of what is fed in, where the tariff has such a price.
    """

    load_cost_forecast: dict[str, float]
    prod_price_forecast: dict[str, float] = {}


class OctopusRate(AnswerModel):
    """A unit rate as Octopus lists it.

    Attributes:
        value_exc_vat: price of energy [hundredths of the currency/kWh]
        value_inc_vat: with grid fees and taxes.
        valid_from: when it begins.
        valid_to: when it ends.
    """

    value_exc_vat: float
    value_inc_vat: float
    valid_from: Time
    valid_to: Time


class Octopus(AnswerModel):
    """Unit rates as Octopus lists them, newest first, all on one page.

    Attributes:
        count: number of rates.
        next: always null.
        previous: always null.
        results: the rates.
    """

    count: Count
    next: None
    previous: None
    results: list[OctopusRate]


class ZoneStatus(AnswerModel):
    """Status of a zone.

    Attributes:
        zone: id of the zone.
        t: last step.
        room: what the account still admits, as a share of the promise.
        missing: meters without a reading in the last interval; for operators only.
        state: in words.
    """

    zone: str
    t: int
    room: float
    missing: Count | None = None
    state: str


class StatusList(AnswerModel):
    """Status of all zones.

    Attributes:
        zones: one entry a zone.
    """

    zones: list[ZoneStatus]


class Health(AnswerModel):
    """State of the process.

    Attributes:
        status: ok, ready or waiting.
        zones: those that are not ready.
        forecast_until_resumed: zones whose ledger lacks releases.
        not_begun: zones without a release so far; their price is the forecast or the fallback.
        clock_in_doubt: zones that publish nothing since the clock may be wrong.
    """

    status: str
    zones: list[str] = []
    forecast_until_resumed: list[str] = []
    not_begun: list[str] = []
    clock_in_doubt: list[str] = []


class Login(BaseModel):
    """Credentials of a client.

    Attributes:
        client: its id.
        secret: its secret.
    """

    client: Annotated[str, Field(min_length=1)]
    secret: Annotated[str, Field(min_length=1)]


class SessionAnswer(AnswerModel):
    """Who is logged in.

    Attributes:
        client: id of the client.
        scopes: what it may do.
    """

    client: str
    scopes: list[str]


class TokenForm(BaseModel):
    """Form of a token request (RFC 6749, 4.4.2).

    Attributes:
        grant_type: client_credentials.
        client_id: in place of HTTP Basic.
        client_secret: in place of HTTP Basic.
        scope: wanted scopes, separated by spaces.
    """

    grant_type: Literal["client_credentials"]
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""


class TokenAnswer(AnswerModel):
    """A token (RFC 6749, 5.1).

    Attributes:
        access_token: value of the Authorization header after "Bearer".
        token_type: Bearer.
        expires_in: [s]
        scope: granted scopes.
    """

    access_token: str
    token_type: Literal["Bearer"]
    expires_in: Count
    scope: str


class TokenError(AnswerModel):
    """An error of the token endpoint (RFC 6749, 5.2).

    Attributes:
        error: its kind.
        error_description: one sentence with the fix.
    """

    error: str
    error_description: str


class PromiseAnswer(AnswerModel):
    """What is promised to the homes of a zone.

    Attributes:
        words: the promise in a householder's words.
        not_covered: what these words do not cover, a phrase each.
        sentence: the promise, exactly.
        assumptions: what it assumes.
        secret: what is protected.
        window_s: of the secret window, its length [s].
        epsilon: bound of the loss.
        eta: share of each reading's law that may differ from the published one.
    """

    words: str
    not_covered: list[str]
    sentence: str
    assumptions: list[str]
    secret: Literal["step", "interval", "window"]
    window_s: int = 0
    epsilon: float
    eta: float


class RateTerms(AnswerModel):
    """Terms of a rate.

    Attributes:
        alpha: slope.
        beta: rate at no load.
        floor: lowest rate.
        cap: highest rate.
    """

    alpha: float
    beta: float
    floor: float
    cap: float | None


class TariffTerms(RateTerms):
    """Terms of a tariff.

    Attributes:
        smooth: share of the last rate that a new one keeps.
        feed_in: terms of the rate of what is fed in, where the tariff has one.
        curve: where the rate is no straight line: pairs of load [kWh of an interval] and rate,
            linear in between; alpha is then the slope from first to last.
    """

    smooth: float
    feed_in: RateTerms = RateTerms(alpha=0.0, beta=0.0, floor=0.0, cap=None)
    curve: list[list[float]] = []


class ReadingLimits(AnswerModel):
    """Limits of readings by contract.

    Attributes:
        low: the most that a home may feed in, below 0 [Wh].
        high: the most that a home may take [Wh].
    """

    low: int
    high: int


class LeakageFigures(AnswerModel):
    """What prices say about one interval of one home, as a log of odds.

    Attributes:
        step: one price.
        day: the prices of a day.
        week: the prices of a week.
    """

    step: float | None
    day: float | None
    week: float | None


class CoverFigures(AnswerModel):
    """What all prices can say about a home in a stretch of time, all else known.

    Attributes:
        duration: of the stretch (ISO 8601).
        shift: bound on the shift of log odds; null without one.
        auc_limit: bound on the AUC of the best attack on a home that uses its limit.
        auc_typical: the same on a typical home, as an example.
    """

    duration: str
    shift: float | None
    auc_limit: float
    auc_typical: float


class PromiseTerms(PromiseAnswer):
    """The promise to the homes of a zone, and its terms.

    Attributes:
        zone: id of the zone.
        mode: simulation or production.
        houses: number of homes.
        interval_s: length of an interval [s].
        time_zone: of the zone.
        currency: of the prices.
        error: expected error of a price; null if it is not known.
        leakage: of one price, the first day's and the first week's about one interval; null if it
            is not known.
        covers: what all prices can say about a home in longer and longer stretches of time.
        noise: planned noise of a release as a share of the expected load; null if it is not known.
        publish: what a price is that of: the noisy load, or the public's estimate.
        tariff: terms of the tariff.
        readings_wh: limits of readings over all homes, where homes export.
    """

    zone: str
    mode: str
    houses: Count
    interval_s: Count
    time_zone: str
    currency: str
    error: float | None
    leakage: LeakageFigures | None
    covers: list[CoverFigures]
    noise: float | None
    publish: Literal["raw", "estimate"]
    tariff: TariffTerms
    readings_wh: ReadingLimits = ReadingLimits(low=0, high=0)


class TradeoffPoint(AnswerModel):
    """Errors of the price at one epsilon.

    Attributes:
        epsilon: the promise.
        raw: error of the noisy price.
        estimated: error of the public's best estimate.
    """

    epsilon: float
    raw: float
    estimated: float


class ChosenPoint(TradeoffPoint):
    """The point of the zone's own policy.

    Attributes:
        eta: the dial.
    """

    eta: float


class TradeoffCurve(AnswerModel):
    """Errors by epsilon at one eta.

    Attributes:
        eta: the dial.
        points: in order of epsilon.
    """

    eta: float
    points: list[TradeoffPoint]


class TradeoffAnswer(AnswerModel):
    """What other promises would cost.

    Attributes:
        zone: id of the zone.
        secret: what is protected.
        unit: of the errors.
        chosen: the zone's own policy.
        curves: one for each eta.
        forecast: error of a forecast without readings.
    """

    zone: str
    secret: str
    unit: str
    chosen: ChosenPoint
    curves: list[TradeoffCurve]
    forecast: float


class OperatorLine(AnswerModel):
    """One line of figures of a zone.

    Attributes:
        zone: id of the zone.
        state: in words.
        t: last step.
        missing: meters without a reading in the last interval.
        alerts: number of alerts.
    """

    zone: str
    state: str
    t: Count | None
    missing: Count | None
    alerts: Count


class OperatorSummary(AnswerModel):
    """All zones, for their operator.

    Attributes:
        now: time of the service.
        zones: one entry a zone.
    """

    now: Time
    zones: list[OperatorLine]


class OperatorPromise(PromiseAnswer):
    """The promise, for an operator.

    Attributes:
        eta_set_by: who answers for eta.
    """

    eta_set_by: str | None


class NoiseFigures(AnswerModel):
    """Noise of the next release, and why it is so much.

    Attributes:
        scale: [Wh]
        spread: planned standard deviation of the noise [Wh].
        house: the home that decides it.
        model: the model that decides it.
        epsilon: loss of the release.
        epsilon_any: loss of a release that protects all homes.
        protected: number of protected homes.
        why: in words.
    """

    scale: float | None
    spread: float | None
    house: Count | None
    model: Count | None
    epsilon: float | None
    epsilon_any: float | None
    protected: Count | None
    why: str


class MissingFigures(AnswerModel):
    """Meters without a reading in the last interval.

    Attributes:
        meters: number.
        share: share of all meters.
    """

    meters: Count | None
    share: float | None


class SeriesRow(AnswerModel):
    """A release with its true load. Secret.

    Attributes:
        t: step.
        start: start of its interval.
        applies_from: when its rate begins.
        load: [Wh], below 0 where the zone exports; null once readings are deleted.
        optimal: exact rate of the load.
        rate: published rate.
        load_hat: published load, of readings cut at the clamp [Wh].
        put_back: expected energy above the clamp [Wh].
        scale: of the noise [Wh].
        spread: planned standard deviation of the noise [Wh].
        missing: meters without a reading.
        source: what it is made from.
    """

    t: Count
    start: Time
    applies_from: Time
    load: int | None
    optimal: float | None
    rate: float
    load_hat: int | None
    put_back: float
    scale: float
    spread: float
    missing: Count | None
    source: Source


class AlertLine(AnswerModel):
    """A problem of a zone.

    Attributes:
        level: error or warning.
        text: one sentence with the fix.
    """

    level: Literal["error", "warning"]
    text: str


class Disagreement(AnswerModel):
    """An interval of a meter for which contradictory readings came.

    Attributes:
        meter: id of the meter.
        start: of the interval.
    """

    meter: str
    start: Time


class OperatorZone(AnswerModel):
    """All figures of a zone, for its operator.

    Attributes:
        zone: id of the zone.
        mode: simulation or production.
        state: in words.
        now: time of the service.
        t: last step.
        interval_s: length of an interval [s].
        time_zone: of the zone.
        currency: of the prices.
        houses: number of homes.
        promise: what is promised.
        noise: of the next release.
        room: what the account still admits, as a share of the promise.
        missing: meters without a reading.
        disagreements: readings that contradict each other, the newest last.
        series: last releases.
        alerts: errors first.
        head: digest of the newest record.
    """

    zone: str
    mode: str
    state: str
    now: Time
    t: Count | None
    interval_s: Count
    time_zone: str
    currency: str
    houses: Count
    promise: OperatorPromise
    noise: NoiseFigures
    room: float | None
    missing: MissingFigures
    disagreements: list[Disagreement]
    series: list[SeriesRow]
    alerts: list[AlertLine]
    head: str | None
