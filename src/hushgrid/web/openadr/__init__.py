"""The OpenADR 3.1 VTN: prices as events; vens, resources, subscriptions and reports of clients.

Here: the base classes and types of the generated models.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


def _fail_fast(schema: Any) -> None:
    """Let every list in a pydantic schema end at its first mistake."""
    if isinstance(schema, dict) and schema.get("type") == "list":
        schema["fail_fast"] = True
    parts = schema.values() if isinstance(schema, dict) else schema
    for part in parts if isinstance(schema, dict | list) else ():
        _fail_fast(part)


class Members(BaseModel):
    """An object without conversions between types; members without a name here are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """End lists at their first mistake: a list of a million mistakes takes seconds and 1 GB."""
        schema = handler(source)
        _fail_fast(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _integers(cls, members: Any) -> Any:
        """Take 1.0 for 1, as JSON does."""
        if not isinstance(members, dict):
            return members
        integers = {
            n: int(x) for n, x in members.items() if isinstance(x, float) and x.is_integer()
        }
        return members | integers


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
