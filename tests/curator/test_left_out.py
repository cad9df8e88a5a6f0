"""An interval that a zone has left out stays left out, whenever it is stopped and started."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.meters import Counts
from tests.curator.curators import FIRST, Shown, curator, everyone
from tests.curator.setups import BEGINS, reading, service


@pytest.mark.parametrize("stops", [0, 300, 600, 900, 1500, 1560, 1620])
@pytest.mark.parametrize("sent", [0, 600, 1500])
def test_an_interval_that_was_left_out_is_not_published_after_a_restart(
    tmp_path: Path, stops: int, sent: int
) -> None:
    """A new zone starts inside an interval, gets its readings, and is stopped before or after."""
    zone, houses = service(), everyone(service())
    start, seen, answers = BEGINS + 300, list[ReleaseRecord](), list[Counts]()
    for opened, until in ((start, start + stops), (start + stops + 1, start + 4500)):
        with curator(tmp_path, zone, Shown(), now=opened) as it:
            if not stops or opened == start:
                assert it.status.t == FIRST, "published or left out"
            for now in range(opened, until, 60):
                if now >= start + sent and len(answers) < 2:
                    wh = [reading(house, FIRST) for house in houses]
                    n = len(houses)
                    answers.append(it._meters.put(zone.id, houses, [BEGINS] * n, [900] * n, wh))
                seen += it.run(now)
    assert answers == [Counts(late=len(houses))] * 2
    assert [one.t for one in seen] == [FIRST + 1, FIRST + 2, FIRST + 3, FIRST + 4]


def test_a_zone_begins_with_readings_that_were_there_before_it(tmp_path: Path) -> None:
    """And goes on from there after a restart, whatever the clock says then."""
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown, now=BEGINS - 900) as it:
        n = len(everyone(zone))
        wh = [reading(house, FIRST) for house in everyone(zone)]
        it._meters.put(zone.id, everyone(zone), [BEGINS] * n, [900] * n, wh)
    with curator(tmp_path, zone, shown, now=BEGINS + 1000) as it:
        assert it.t == FIRST
    with curator(tmp_path, zone, shown, now=BEGINS + 1900) as it:
        assert [one.t for one in it.run(BEGINS + 1900)] == [FIRST, FIRST + 1]
