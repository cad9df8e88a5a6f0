"""Meter ids to houses: whatever came before, an id has one place."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.curator.ingest import Ingest
from hushgrid.intake.readings import Readings
from tests.curator.setups import service

ZONES = [service(4, "elm"), service(3, "oak")]
METERS = [name for zone in ZONES for name in zone.meters]


def readings(names: list[str]) -> Readings:
    return Readings.of(names, np.zeros(len(names), int), [900] * len(names), [1] * len(names))


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([*METERS, "x", "y"]), min_size=1, max_size=9), max_size=12)
)
def test_places_do_not_depend_on_what_came_before(batches: list[list[str]]) -> None:
    store: Any = None
    ingest = Ingest(ZONES, store)
    for names in [*batches, *batches]:
        wanted = [METERS.index(name) if name in METERS else -1 for name in names]
        assert ingest._place(readings(names)).tolist() == wanted
        assert sum(len(ids) for ids, _ in ingest._recent.values()) <= 2 * len(METERS)
