"""Zones and releases as programs and events."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.curator.clock import SystemClock
from hushgrid.errors import ServiceError
from hushgrid.stores.openadr import to_text
from hushgrid.web.openadr.events import (
    duration,
    event_id,
    event_of,
    notification,
    parse_event_id,
    program_id,
    program_of,
    topics,
)
from hushgrid.web.openadr.objects import PublicObjects
from hushgrid.web.prices import History
from tests.curator.worlds import START, service
from tests.web.openadr.judge import check_as, standard
from tests.web.openadr.setup import FIRST, SECONDS, ZONES, release

ELM = ZONES[0]


def test_a_program_and_an_event_whole() -> None:
    """The members are those of the example in the OpenADR 3.1 user guide's price program."""
    assert START == 1_750_000_500  # 2025-06-15T15:15:00Z
    descriptor = {
        "objectType": "EVENT_PAYLOAD_DESCRIPTOR",
        "payloadType": "PRICE",
        "units": "KWH",
        "currency": "EUR",
    }
    assert program_of(ELM) == {
        "id": "elm-street",
        "objectType": "PROGRAM",
        "createdDateTime": "2025-06-15T15:15:00Z",
        "modificationDateTime": "2025-06-15T15:15:00Z",
        "programName": "elm-street",
        "payloadDescriptors": [descriptor],
        "attributes": [
            {"type": "PROGRAM_TYPE", "values": ["PRICING_TARIFF"]},
            {"type": "BINDING_EVENTS", "values": [True]},
        ],
        "targets": None,
    }
    assert event_of(ELM, release("elm-street", FIRST, 0.2317)) == {
        "id": "elm-street-20250615T154500Z-1944445",
        "objectType": "EVENT",
        "createdDateTime": "2025-06-15T15:30:01Z",
        "modificationDateTime": "2025-06-15T15:30:01Z",
        "programID": "elm-street",
        "eventName": "elm-street 2025-06-15T15:45:00Z (readings)",
        "priority": 2,
        "targets": None,
        "payloadDescriptors": [descriptor],
        "intervalPeriod": {"start": "2025-06-15T15:45:00Z", "duration": "PT15M"},
        "intervals": [{"id": 0, "payloads": [{"type": "PRICE", "values": [0.2317]}]}],
    }


def test_a_simulated_price_says_so() -> None:
    made = event_of(ELM, release("elm-street", FIRST, simulated=True, source="forecast"))
    assert made["eventName"].endswith("(forecast) (simulated)")


@given(st.text(min_size=1, max_size=200))
def test_programs_and_events_of_any_zone_are_the_standards(name: str) -> None:
    zone = service(name, 1)
    check_as("program", program_of(zone))
    event = event_of(zone, release(name, FIRST))
    check_as("event", event)
    assert parse_event_id(event["id"]) == (program_id(name), FIRST)
    if standard() is not None:
        check_as("notification", json.loads(notification("EVENT", "CREATE", to_text(event))))


@given(st.sets(st.text(min_size=1, max_size=120), min_size=2, max_size=6))
def test_zones_have_programs_of_their_own(names: set[str]) -> None:
    assert len({program_id(name) for name in names}) == len(names)


def test_zones_that_would_share_a_program_are_refused() -> None:
    other = program_id("Elm Street 3")
    with pytest.raises(ServiceError, match="same program"):
        PublicObjects(History([service("Elm Street 3", 1), service(other, 1)]), SystemClock())


@given(
    st.integers(1, 10**8), st.integers(2, 400), st.integers(2, 400), st.integers(1, 10**6)
)  # fmt: skip
def test_ids_differ_and_of_one_interval_the_newest_has_the_best_priority(
    t: int, lag: int, other: int, later: int
) -> None:
    one = release("elm-street", t, applies_start=(t + lag) * SECONDS)
    newer = t + later
    two = release("elm-street", newer, applies_start=(max(newer, t) + other) * SECONDS)
    assert event_id(one) != event_id(two)
    if one.applies_start == two.applies_start:
        assert event_of(ELM, two)["priority"] < event_of(ELM, one)["priority"]
    same = replace(one, release=replace(one.release, t=newer), start=newer * SECONDS)
    if same.applies_start > same.start:
        assert event_of(ELM, same)["priority"] < event_of(ELM, one)["priority"]


@given(st.integers(1, 40 * 86_400))
def test_durations_are_read_back(seconds: int) -> None:
    text = duration(seconds)
    check_as("duration", text)
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text)
    assert found is not None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    assert timedelta(days=days, hours=hours, minutes=minutes, seconds=rest).total_seconds() == (
        seconds
    )


def test_times_are_the_ledgers() -> None:
    one = event_of(ELM, release("elm-street", FIRST, published_at=START + 901))
    at = datetime.fromisoformat(one["createdDateTime"])
    assert at == datetime.fromtimestamp(START + 901, UTC)
    assert one["createdDateTime"] == one["modificationDateTime"]


@pytest.mark.parametrize("text", ["", "elm-street", "a-20250615T154500Z", "-20250615T154500Z-1",
    "elm-20250615T154500Z-1x", "elm-20250615T154500Z-１", "elm-20250615T154500Z-1\n"])  # fmt: skip
def test_what_is_no_event_has_no_step(text: str) -> None:
    assert parse_event_id(text) is None


def test_topics() -> None:
    found: dict[str, Any] = {"topics": topics("programs/elm-street/events")}
    check_as("notifierTopicsResponse", found)
    check_as("notifierTopicsResponse", {"topics": topics("programs/elm-street", create=False)})
    assert found["topics"]["ALL"] == "OpenADR/3.1.0/programs/elm-street/events/+"
    assert found["topics"]["CREATE"] == "OpenADR/3.1.0/programs/elm-street/events/create"
