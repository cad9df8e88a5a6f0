"""evcc's own templates of Swiss utilities read the tariffs: the right price at every poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from hushgrid.files.settings import Charges
from hushgrid.files.zone_file import PricesAhead
from hushgrid.model.zone import FeedIn
from tests.curator.worlds import service
from tests.web import evcc
from tests.web.running import SECONDS, Running, Wall, running

pytestmark = pytest.mark.usefixtures("loop_patience")
# Zurich: half past ten on the evening before the day of the change, and half past midnight after it
NIGHTS = {
    "to summer time": (datetime(2026, 3, 28, 21, 30), datetime(2026, 3, 29, 22, 30)),
    "to winter time": (datetime(2026, 10, 24, 20, 30), datetime(2026, 10, 25, 23, 30)),
}
FIRST = 20 * SECONDS  # the list of the first day is published in that time
LISTS = PricesAhead(1, 18 * 3600)
CHARGES = Charges(fixed=tuple(0.01 * hour for hour in range(24)), relative=(0.081,))


def seconds(instant: datetime) -> int:
    return int(instant.replace(tzinfo=UTC).timestamp())


def midnight_after(instant: int) -> int:
    day = datetime.fromtimestamp(instant, evcc.PLACE).date() + timedelta(1)
    return int(datetime.combine(day, time(), evcc.PLACE).timestamp())


class Poll(NamedTuple):
    """When evcc asked, what it was answered, and the feed-in price in force."""

    start: int  # of the interval [UTC s]
    body: bytes
    feed_in: float


def poll(it: Running, name: str, now: float) -> Poll:
    answer = it.client.get(f"/v1/vse/tariffs?{evcc.query(name, now, it.zone.id)}")
    assert answer.status_code == 200, answer.text
    return Poll(int(now) // SECONDS * SECONDS, answer.content, it.get("/v1/price")["feed_in"])


def totals(it: Running) -> dict[int, float]:
    """What the ledger has by the start of an interval [UTC s], with charges written here again."""
    (run,) = it.process._zones
    assert run.curator is not None
    rates = {release.applies_start: release.rate for release in it.releases}
    for record in run.curator.lists:
        rates |= {record.first + i * SECONDS: rate for i, rate in enumerate(record.rates)}
    hours = {start: datetime.fromtimestamp(start, evcc.PLACE).hour for start in rates}
    return {start: (rate + 0.01 * hours[start]) * 1.081 for start, rate in rates.items()}


def right(name: str, polls: Sequence[Poll], prices: dict[int, float]) -> int:
    """At how many polls evcc has the price in force, and no other price that will not be."""
    read = evcc.slots(name, [each.body for each in polls])
    count = 0
    for each, rates in zip(polls, read, strict=True):
        wanted = {each.start: each.feed_in} if name == "bkw" else {at: prices[at] for at in rates}
        count += each.start in rates and all(
            abs(rates[at] - price) < 1e-9 for at, price in wanted.items()
        )
    return count


@pytest.mark.skipif(evcc.JQ is None, reason="jq is not installed")
@pytest.mark.parametrize(
    ("night", "ahead"),
    [
        pytest.param("to summer time", None, marks=pytest.mark.soak),
        ("to winter time", None),
        ("to summer time", LISTS),
        pytest.param("to winter time", LISTS, marks=pytest.mark.soak),
    ],
    ids=lambda value: (
        value if isinstance(value, str) else "real time" if value is None else "lists"
    ),
)
def test_every_poll_over_two_midnights_and_a_clock_change_is_right(
    tmp_path: Path, night: str, ahead: PricesAhead | None
) -> None:
    begins, ends = map(seconds, NIGHTS[night])
    scenario = service().scenario
    feed_in = FeedIn(alpha=scenario.tariff.alpha, beta=0.03)
    zone = {
        "time_zone": "Europe/Zurich", "currency": "CHF", "charges": CHARGES,
        "scenario": replace(scenario, tariff=replace(scenario.tariff, feed_in=feed_in)),
        "begins": begins - FIRST, "ahead": ahead,
    }  # fmt: skip
    clock = Wall(begins - FIRST)
    polls: dict[str, list[Poll]] = {name: [] for name in evcc.TEMPLATES}
    with running(tmp_path, clock, zone=zone) as it:
        for start in range(begins - FIRST, ends, SECONDS):
            for after in (0.0, SECONDS - 0.5):  # a release comes between them
                it.at(start + after)
                for name in polls if start >= begins else ():
                    polls[name].append(poll(it, name, start + after))
        prices = totals(it)
    days = {datetime.fromtimestamp(at, evcc.PLACE).date() for at in (begins, begins + 7200, ends)}
    assert len(days) == 3
    number = 2 * (ends - begins) // SECONDS
    found = {name: right(name, polls[name], prices) for name in polls}
    assert found == dict.fromkeys(polls, number), "right in 100 % of polls"
    # by a list all of the day is there, else no more than the next interval
    (last,) = evcc.slots("ekz", [polls["ekz"][-1].body])
    assert max(last) == (midnight_after(ends) - SECONDS if ahead else ends)
