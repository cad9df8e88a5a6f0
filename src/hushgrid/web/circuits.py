"""Hourly prices of a feeder by component, as Californian utilities publish them (getPricing).

Zones are circuits. An hour is final where all its prices are published, else preliminary. `mec` is
the price of energy and `cld` what charges add to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from hushgrid.files.deployment import ZoneService
from hushgrid.web.feeds import JSON, LIMIT, MOST, Feed, PriceEntry, PriceRange, Series, encoded
from hushgrid.web.http.common import ParameterError
from hushgrid.web.http.models import AnswerModel, Count
from hushgrid.web.http.prices import ZONE, requested_zone

HOUR = 3600  # [s]


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text) if re.fullmatch(r"\d{4}(-?)\d\d\1\d\d", text) else None
    except ValueError:
        day = None
    if day is None or not 1970 < day.year < 9999:
        raise PydanticCustomError("day", "give a day such as 20260131")
    return day


Day = Annotated[date, BeforeValidator(_day)]


class PricingQuery(BaseModel):
    """Parameters of a request for prices of a circuit; others, such as `ratename`, are not read.

    Attributes:
        zone: Id of the zone.
        circuit: The same by the interface's name.
        startdate: First local day.
        enddate: Last local day.
    """

    zone: str | None = Field(None, description=ZONE)
    circuit: str | None = Field(
        None, alias="representativeCircuitId", description="The zone, in place of `zone`."
    )
    startdate: Day | None = Field(
        None, description="First local day; by default a day before the newest price."
    )
    enddate: Day | None = Field(
        None, description="Last local day; by default to the end of the forecast."
    )

    def resolve(self, zones: Mapping[str, ZoneService]) -> tuple[str, PriceRange]:
        """What is asked for.

        Args:
            zones: The zones by id.

        Returns:
            Id of a zone, and its prices.

        Raises:
            ParameterError: If a parameter cannot be used.
        """
        if None not in (self.zone, self.circuit) and self.zone != self.circuit:
            fix = f"give {self.circuit}, as in representativeCircuitId"
            raise ParameterError("zone", self.zone, fix)
        zone = zones[requested_zone(self.circuit if self.zone is None else self.zone, zones)]
        first, last = self.startdate, self.enddate
        if first is not None and last is not None and last < first:
            fix = "give a day that is not before startdate"
            raise ParameterError("enddate", last.isoformat(), fix)
        since = None if first is None else _midnight(first, zone)
        until = None if last is None else _midnight(last + timedelta(1), zone)
        return zone.id, PriceRange(since, until, LIMIT if since is None else MOST)


def _midnight(day: date, zone: ZoneService) -> int:
    return int(datetime.combine(day, time(), ZoneInfo(zone.time_zone)).timestamp())


Stamp = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}$")]
Decimal = Annotated[str, Field(pattern=r"^-?\d+\.\d{6}$")]


class PriceComponent(AnswerModel):
    """A part of a price.

    Attributes:
        component: mec is energy, cld are charges.
        intervalPrice: [currency/kWh]
        priceType: Who is paid for it.
    """

    component: Literal["mec", "cld"]
    intervalPrice: Decimal  # noqa: N815 - the interface's name
    priceType: Literal["generation", "distribution"]  # noqa: N815


class PriceDetail(AnswerModel):
    """The price of an hour.

    Attributes:
        startIntervalTimeStamp: When it begins, in local time.
        intervalPrice: With charges [currency/kWh].
        priceStatus: Final where all of it is published.
        priceComponents: Its parts.
    """

    startIntervalTimeStamp: Stamp  # noqa: N815
    intervalPrice: Decimal  # noqa: N815
    priceStatus: Literal["Final", "Preliminary"]  # noqa: N815
    priceComponents: list[PriceComponent]  # noqa: N815


class PriceHeader(AnswerModel):
    """What the prices of a day have in common.

    Attributes:
        priceCurveName: The zone.
        marketName: hushgrid.
        intervalLengthInMinutes: 60.
        settlementCurrency: Of the prices.
        settlementUnit: kWh.
        startTime: When the first begins.
        endTime: The last second.
        recordCount: Number of prices.
    """

    priceCurveName: str  # noqa: N815
    marketName: Literal["hushgrid"]  # noqa: N815
    intervalLengthInMinutes: Literal[60]  # noqa: N815
    settlementCurrency: str  # noqa: N815
    settlementUnit: Literal["kWh"]  # noqa: N815
    startTime: Stamp  # noqa: N815
    endTime: Stamp  # noqa: N815
    recordCount: Count  # noqa: N815


class PriceCurve(AnswerModel):
    """Prices of a local day.

    Attributes:
        priceHeader: What they have in common.
        priceDetails: In order of time.
    """

    priceHeader: PriceHeader  # noqa: N815
    priceDetails: list[PriceDetail]  # noqa: N815


class PricingMeta(AnswerModel):
    """About the answer.

    Attributes:
        code: 200.
        requestURL: Always null.
        requestBody: Always empty.
        response: In words.
    """

    code: Literal[200]
    requestURL: None  # noqa: N815
    requestBody: Literal[""]  # noqa: N815
    response: str


class HourlyPricing(AnswerModel):
    """Hourly prices of a circuit.

    Attributes:
        meta: About the answer.
        data: A curve for each local day.
    """

    meta: PricingMeta
    data: list[PriceCurve]


class _Hour(NamedTuple):
    start: int  # [UTC s]
    energy: float
    charges: float
    final: bool


def pricing(series: Series) -> bytes:
    """Hourly prices of each local day.

    Args:
        series: The prices.

    Returns:
        JSON.
    """
    place = ZoneInfo(series.time_zone)

    def local(seconds: int) -> datetime:
        return datetime.fromtimestamp(seconds, place)

    days = groupby(_hours(series), lambda hour: local(hour.start).date())
    data = [_curve(series, list(hours), place) for _, hours in days]
    meta = {"code": 200, "requestURL": None, "requestBody": "", "response": "Success"}
    return encoded({"meta": meta, "data": data})


def _hours(series: Series) -> Iterable[_Hour]:
    """The mean price of each hour that prices fill."""
    shares = defaultdict[int, list[tuple[int, PriceEntry]]](list)
    for entry in series.entries:
        for start in range(entry.start // HOUR * HOUR, entry.end, HOUR):
            seconds = min(entry.end, start + HOUR) - max(entry.start, start)
            shares[start].append((seconds, entry))
    for start, parts in sorted(shares.items()):
        if sum(seconds for seconds, _ in parts) == HOUR:
            split = [(seconds, *series.parts(entry)) for seconds, entry in parts]
            energy = sum(seconds * energy for seconds, energy, _ in split) / HOUR
            charges = sum(seconds * charges for seconds, _, charges in split) / HOUR
            yield _Hour(start, energy, charges, not any(entry.forecast for _, entry in parts))


def _curve(series: Series, hours: list[_Hour], place: ZoneInfo) -> dict[str, Any]:
    def stamp(seconds: int) -> str:
        return datetime.fromtimestamp(seconds, place).strftime("%Y-%m-%dT%H:%M:%S%z")

    header = {
        "priceCurveName": series.zone,
        "marketName": "hushgrid",
        "intervalLengthInMinutes": 60,
        "settlementCurrency": series.currency,
        "settlementUnit": "kWh",
        "startTime": stamp(hours[0].start),
        "endTime": stamp(hours[-1].start + HOUR - 1),
        "recordCount": len(hours),
    }
    details = []
    for hour in hours:
        energy, charges = (round(1e6 * part) for part in (hour.energy, hour.charges))
        components = (("mec", energy, "generation"), ("cld", charges, "distribution"))
        details.append(
            {
                "startIntervalTimeStamp": stamp(hour.start),
                "intervalPrice": _decimal(energy + charges),
                "priceStatus": "Final" if hour.final else "Preliminary",
                "priceComponents": [
                    {"component": name, "intervalPrice": _decimal(millionths), "priceType": kind}
                    for name, millionths, kind in components
                ],
            }
        )
    return {"priceHeader": header, "priceDetails": details}


def _decimal(millionths: int) -> str:
    """A price with six digits.

    >>> _decimal(-14427), _decimal(2_000_000)
    ('-0.014427', '2.000000')
    """
    whole_units, fraction = divmod(abs(millionths), 10**6)
    return f"{'-' * (millionths < 0)}{whole_units}.{fraction:06}"


FEED = Feed(
    "/v1/getPricing",
    JSON,
    pricing,
    "Hourly prices of a feeder by component, as Californian utilities publish them.",
    HourlyPricing,
    query=PricingQuery,
)
