"""Prices as FlexMeasures takes them: the body of a POST to /api/v3_0/sensors/(id)/data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hushgrid.curator.clock import utc
from hushgrid.web.feeds import JSON, Feed, Series, encoded
from hushgrid.web.http.models import AnswerModel, Time


class SensorData(AnswerModel):
    """Data of a price sensor.

    Attributes:
        values: Prices with charges, one an interval [currency/kWh]; null where there is none.
        start: When the first begins; null without any.
        duration: From there to the end of the last (ISO 8601).
        unit: The currency and kWh.
    """

    values: list[float | None]
    start: Time | None
    duration: Annotated[str, Field(pattern=r"^PT\d+S$")]
    unit: str


def sensor_data(series: Series) -> bytes:
    """Published and expected prices at equal distances: what FlexMeasures believes from now on.

    Args:
        series: The prices.

    Returns:
        JSON.
    """
    totals = {entry.start: entry.total for entry in series.entries}
    start, end = min(totals, default=0), max((entry.end for entry in series.entries), default=0)
    body = {
        "values": [totals.get(at) for at in range(start, end, series.seconds)],
        "start": utc(start) if totals else None,
        "duration": f"PT{end - start}S",
        "unit": f"{series.currency}/kWh",
    }
    return encoded(body)


FEED = Feed("/v1/flexmeasures", JSON, sensor_data, "Prices as FlexMeasures takes them.", SensorData)
