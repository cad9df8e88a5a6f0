"""evcc's own templates of Swiss utilities read the tariffs: the right price at every poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from hushgrid.files.settings import Charges
from hushgrid.model.zone import FeedIn
from tests.curator.worlds import service
from tests.web import evcc
from tests.web.running import GRACE, SECONDS, Running, Wall, running

pytestmark = pytest.mark.usefixtures("loop_patience")
# Zurich: half past ten on the evening before the day of the change, and half past midnight after it
NIGHTS = {
    "to summer time": (datetime(2026, 3, 28, 21, 30), datetime(2026, 3, 29, 22, 30)),
    "to winter time": (datetime(2026, 10, 24, 20, 30), datetime(2026, 10, 25, 23, 30)),
}
CHARGES = Charges(fixed=tuple(0.01 * hour for hour in range(24)), relative=(0.081,))


def seconds(instant: datetime) -> int:
    return int(instant.replace(tzinfo=UTC).timestamp())


class Poll(NamedTuple):
    """What evcc was answered, and the price that is right at the time."""

    start: int  # of the interval [UTC s]
    wanted: float
    body: bytes


def poll(it: Running, name: str, now: float) -> Poll:
    answer = it.client.get(f"/v1/vse/tariffs?{evcc.query(name, now, it.zone.id)}")
    assert answer.status_code == 200, answer.text
    start = int(now) // SECONDS * SECONDS
    release = it.applying(start)
    assert release is not None
    hour = datetime.fromtimestamp(start, evcc.PLACE).hour
    wanted = (release.rate + 0.01 * hour) * 1.081
    if name == "bkw":
        price = it.get("/v1/price")
        assert price["head"] == release.head
        wanted = price["feed_in"]
    return Poll(start, wanted, answer.content)


def right(name: str, polls: Sequence[Poll]) -> int:
    """At how many polls evcc has by a template the price that is right, and no other one."""
    read = evcc.slots(name, [each.body for each in polls])
    pairs = zip(polls, read, strict=True)
    return sum(abs(rates.get(each.start, 1e9) - each.wanted) < 1e-9 for each, rates in pairs)


@pytest.mark.skipif(evcc.JQ is None, reason="jq is not installed")
@pytest.mark.parametrize("night", NIGHTS)
def test_every_poll_over_two_midnights_and_a_clock_change_is_right(
    tmp_path: Path, night: str
) -> None:
    begins, ends = map(seconds, NIGHTS[night])
    tariff = service().scenario.tariff
    scenario = replace(
        service().scenario, tariff=replace(tariff, feed_in=FeedIn(alpha=tariff.alpha, beta=0.03))
    )
    zone = {
        "time_zone": "Europe/Zurich", "currency": "CHF", "charges": CHARGES,
        "scenario": scenario, "begins": begins - 3 * SECONDS,
    }  # fmt: skip
    clock = Wall(begins - 3 * SECONDS)
    polls: dict[str, list[Poll]] = {name: [] for name in evcc.TEMPLATES}
    with running(tmp_path, clock, zone=zone) as it:
        for start in range(begins - 3 * SECONDS, ends, SECONDS):
            for after in (0.0, GRACE + 0.5, SECONDS - 0.5):
                it.at(start + after)
                for name in polls if start >= begins else ():
                    polls[name].append(poll(it, name, start + after))
    days = {datetime.fromtimestamp(at, evcc.PLACE).date() for at in (begins, begins + 7200, ends)}
    assert len(days) == 3
    intervals = (ends - begins) // SECONDS
    assert {name: right(name, polls[name]) for name in polls} == dict.fromkeys(polls, 3 * intervals)
