"""Base classes and types of the generated models."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


class Members(BaseModel):
    """An object without conversions between types; members without a name here are kept."""

    model_config = ConfigDict(extra="allow", strict=True)


class Query(BaseModel):
    """Parameters of a list; unknown ones are ignored."""


def _check_time(text: str) -> str:
    if not _RFC3339.fullmatch(text):
        raise ValueError("give a date and time such as 2026-01-31T12:00:00Z")
    datetime.fromisoformat(text[:10])
    return text


DateTime = Annotated[
    str,
    AfterValidator(_check_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
