"""Blocks of the guides, as they are written there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


DOCS = ROOT / "docs"


FEEDS, OPENADR = (DOCS / "feeds.md").read_text(), (DOCS / "openadr.md").read_text()


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.S)


# what evcc's custom tariff and its HTTP plugin know (tariff/tariff.go, plugin/http.go); each has a
# cache of its own, and the tariff's keeps a price for 15 minutes where it does not say less
TARIFF = {"type", "price", "forecast", "cache", "interval", "charges", "tax", "formula", "features"}


PLUGIN = {
    "source", "uri", "method", "headers", "body", "jq", "regex", "scale", "insecure", "auth",
    "timeout", "cache",
}  # fmt: skip


def read_by_evcc(tariff: dict[str, Any]) -> dict[str, Any]:
    """The source of a custom tariff, as evcc decodes it; a price is never kept for long."""
    assert tariff["type"] == "custom"
    assert set(tariff) <= TARIFF
    (kind,) = {"price", "forecast"} & set(tariff)  # evcc wants one of the two
    source = tariff[kind]
    assert source["source"] == "http"
    assert set(source) <= PLUGIN
    cache = minutes(tariff.get("cache", "15m")) if kind == "price" else 0
    polls = 0 if kind == "price" else minutes(tariff.get("interval", "60m"))
    assert cache + minutes(source.get("cache", "0m")) <= 1
    assert polls <= 5
    return dict(source)


def minutes(text: str) -> int:
    assert text.endswith("m")
    return int(text[:-1])
