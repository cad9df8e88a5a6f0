"""Prices by the interface for dynamic tariffs of Swiss utilities (VSE/AES, versions 1.0 and 2.0).

Its prices are binding, so only published ones are here. Times have the offset of the zone's local
time: one reader in use appends seconds to every time that ends with Z.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Charges
from hushgrid.web.feeds import JSON, LIMIT, MOST, Feed, PriceEntry, PriceRange, Series, encoded
from hushgrid.web.http.common import ParameterError
from hushgrid.web.http.models import AnswerModel
from hushgrid.web.http.prices import ZONE, requested_zone

Component = Literal["electricity", "grid", "integrated", "feed_in"]
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII | re.IGNORECASE
)


def _instant(text: str) -> datetime:
    text = text.replace(" ", "+")  # of a plus sign in a query
    try:
        instant = datetime.fromisoformat(text.upper()) if _STAMP.fullmatch(text) else None
    except ValueError:
        instant = None
    if instant is None or not 1970 < instant.year < 9999:
        fix = "give a date and time such as 2026-01-31T12:00:00+01:00"
        raise PydanticCustomError("instant", fix)
    return instant


Instant = Annotated[datetime, BeforeValidator(_instant)]


class TariffQuery(BaseModel):
    """Parameters of a request for tariffs.

    Attributes:
        zone: Id of the zone.
        tariff_type: The one component that is asked for.
        tariff_name: Name of the tariff.
        start_timestamp: Beginning of the first price.
        end_timestamp: Prices start before it.
    """

    zone: str | None = Field(None, description=ZONE)
    tariff_type: Component | None = Field(None, description="One component; by default all.")
    tariff_name: str | None = Field(
        None, description="Name of the tariff, which is the id of its zone: in place of `zone`."
    )
    start_timestamp: Instant | None = Field(
        None,
        description="Beginning of the first price, in local time where it has no offset;"
        " by default a day before the newest.",
    )
    end_timestamp: Instant | None = Field(
        None, description="Prices start before; by default all that are published."
    )

    def resolve(self, zones: Mapping[str, ZoneService]) -> tuple[str, PriceRange]:
        """What is asked for.

        Args:
            zones: The zones by id.

        Returns:
            Id of a zone, and its prices; the first is the one whose interval holds the start.

        Raises:
            ParameterError: If a parameter cannot be used.
        """
        tariff = self.tariff_name
        if tariff is not None and tariff not in zones:
            raise ParameterError("tariff_name", tariff, f"give one of {', '.join(zones)}")
        if None not in (tariff, self.zone) and tariff != self.zone:
            raise ParameterError("zone", self.zone, f"give {tariff}, as in tariff_name")
        zone = zones[requested_zone(self.zone if tariff is None else tariff, zones)]
        since, until = (
            None if instant is None else _seconds(instant, zone)
            for instant in (self.start_timestamp, self.end_timestamp)
        )
        if since is not None and until is not None and until < since:
            stamp = str(self.end_timestamp)
            raise ParameterError("end_timestamp", stamp, "give one that is not before the start")
        options = () if self.tariff_type is None else (self.tariff_type,)
        if since is None:
            return zone.id, PriceRange(None, until, LIMIT, options)
        return zone.id, PriceRange(since // zone.seconds * zone.seconds, until, MOST, options)


def _seconds(instant: datetime, zone: ZoneService) -> int:
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=ZoneInfo(zone.time_zone))
    return math.floor(instant.timestamp())


Local = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d$",
        json_schema_extra={"format": "date-time"},
    ),
]


class UnitPrice(AnswerModel):
    """A component of a price.

    Attributes:
        unit: The currency, an underscore and kWh.
        value: Price in this unit.
    """

    unit: Annotated[str, Field(pattern="^.+_kWh$")]
    value: float


class EnergyPrice(AnswerModel):
    """What a component costs for energy.

    Attributes:
        unit: The currency, a slash and kWh.
        value: Price in this unit.
    """

    unit: Annotated[str, Field(pattern="^.+/kWh$")]
    value: float


class NamedPrice(AnswerModel):
    """A component of a price.

    Attributes:
        tariff_name: Id of the zone.
        energy: All of it is for energy.
    """

    tariff_name: str
    energy: EnergyPrice


class TariffPrice(AnswerModel):
    """A price.

    Attributes:
        start_timestamp: When it begins.
        end_timestamp: When it ends.
        electricity: The price of energy, with its taxes.
        grid: Grid fees, with their taxes, where the zone has charges.
        integrated: The price that is paid: both together.
        feed_in: What is paid for energy fed in, where the tariff has such a price.
    """

    start_timestamp: Local
    end_timestamp: Local
    electricity: list[UnitPrice] = Field(default_factory=list)
    grid: list[UnitPrice] = Field(default_factory=list)
    integrated: list[UnitPrice] = Field(default_factory=list)
    feed_in: list[UnitPrice] = Field(default_factory=list)


class Tariffs(AnswerModel):
    """Published prices of a tariff, by version 1.0.

    Attributes:
        publication_timestamp: When the newest of them was published; empty without any.
        prices: In order of time.
    """

    publication_timestamp: Local | Literal[""]
    prices: list[TariffPrice]


class NamedTariffPrice(AnswerModel):
    """A price by version 2.0.

    Attributes:
        start_timestamp: When it begins.
        end_timestamp: When it ends.
        electricity: The price of energy, with its taxes.
        grid: Grid fees, with their taxes, where the zone has charges.
        integrated: The price that is paid: both together.
        feed_in: What is paid for energy fed in, where the tariff has such a price.
    """

    start_timestamp: Local
    end_timestamp: Local
    electricity: NamedPrice | SkipJsonSchema[None] = None
    grid: NamedPrice | SkipJsonSchema[None] = None
    integrated: NamedPrice | SkipJsonSchema[None] = None
    feed_in: NamedPrice | SkipJsonSchema[None] = None


class NamedTariffs(AnswerModel):
    """Published prices of a tariff, by version 2.0.

    Attributes:
        publication_timestamp: When the newest of them was published; empty without any.
        prices: In order of time.
    """

    publication_timestamp: Local | Literal[""]
    prices: list[NamedTariffPrice]


def tariffs(series: Series) -> bytes:
    """Published prices by component, as version 1.0 has them.

    Args:
        series: The prices; its option is the one component that is asked for.

    Returns:
        JSON.
    """
    unit = f"{series.currency}_kWh"
    return _body(series, lambda value: [{"unit": unit, "value": value}])


def named_tariffs(series: Series) -> bytes:
    """The same as version 2.0 has it.

    Args:
        series: The prices; its option is the one component that is asked for.

    Returns:
        JSON.
    """
    unit, name = f"{series.currency}/kWh", {"tariff_name": series.zone}
    return _body(series, lambda value: name | {"energy": {"unit": unit, "value": value}})


def _body(series: Series, component: Callable[[float], Any]) -> bytes:
    place = ZoneInfo(series.time_zone)

    def local(seconds: int) -> str:
        return datetime.fromtimestamp(seconds, place).isoformat()

    prices = []
    for entry in series.entries:
        values = {} if entry.forecast else _components(series, entry)
        names = [name for name in series.options or get_args(Component) if name in values]
        if names:
            stamps = {"start_timestamp": local(entry.start), "end_timestamp": local(entry.end)}
            prices.append(stamps | {name: component(values[name]) for name in names})
    published = "" if series.published_at is None else local(series.published_at)
    return encoded({"publication_timestamp": published, "prices": prices})


def _components(series: Series, entry: PriceEntry) -> dict[str, float]:
    electricity, grid = series.parts(entry)
    values = {"electricity": electricity, "integrated": entry.total}
    values |= {} if series.charges == Charges() else {"grid": grid}
    return values | ({} if entry.feed_in is None else {"feed_in": entry.feed_in})


FEED = Feed(
    "/v1/vse/tariffs",
    JSON,
    tariffs,
    "Published prices by the tariff interface of Swiss utilities.",
    Tariffs,
    query=TariffQuery,
)
FEED_2 = FEED._replace(
    path="/v1/vse/v2/tariffs",
    shape=named_tariffs,
    summary="The same by version 2.0 of the interface.",
    model=NamedTariffs,
)
