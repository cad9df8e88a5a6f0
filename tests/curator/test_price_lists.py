"""Lists of prices published ahead: when, for which intervals, and one record of each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hushgrid.curator.price_lists import due_list, price_list
from hushgrid.errors import LedgerError, PolicyError
from hushgrid.model.zone import FeedIn, public_rate
from hushgrid.stores.ledger.entries import ReleaseRecord
from tests.curator.curators import Shown, curator, everyone, feed
from tests.curator.price_lists import (
    DAY,
    EVENING,
    ShownLists,
    a_list,
    ahead_zone,
    at,
    state_of,
)
from tests.curator.setups import BEGINS, service


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-28", 23), ("2026-10-24", 25), ("2026-06-01", 24)]
)
def test_a_list_has_every_interval_of_the_next_local_day(day: str, hours: int) -> None:
    zone = ahead_zone(time_zone="Europe/Zurich")
    evening = at(zone, f"{day}T18:00")
    assert due_list(zone, state_of(zone), evening - 1) is None
    due = due_list(zone, state_of(zone), evening)
    assert due is not None
    assert (due.number, due.late) == (4 * hours, False)
    local = datetime.fromtimestamp(due.first, ZoneInfo("Europe/Zurich"))
    assert (local.hour, local.minute) == (0, 0)
    assert due.first - evening == 6 * 3600
    listed = state_of(zone, a_list(due.first, due.number))
    assert due_list(zone, listed, evening) is None, "a list is published once"
    following = due_list(zone, listed, due.first + 20 * 3600)
    assert following is not None
    assert following.first == due.first + due.number * 900


def test_a_list_of_a_week_is_due_on_its_last_day() -> None:
    zone = ahead_zone(days=7)
    first = due_list(zone, state_of(zone), BEGINS + EVENING)
    assert first is not None
    assert (first.first, first.number) == (BEGINS + DAY, 7 * 96)
    listed = state_of(zone, a_list(first.first, first.number))
    last_day = BEGINS + 7 * DAY
    assert due_list(zone, listed, last_day + EVENING - 1) is None
    following = due_list(zone, listed, last_day + EVENING)
    assert following is not None
    assert following.first == BEGINS + 8 * DAY


def test_a_day_that_began_without_its_list_gets_the_rest_once() -> None:
    zone = ahead_zone(begins=BEGINS - 5 * DAY)
    listed = state_of(zone, a_list(BEGINS - DAY, 96))
    now = BEGINS + 10 * 3600 + 100
    due = due_list(zone, listed, now)
    assert due is not None
    assert (due.first, due.late) == (BEGINS + 10 * 3600 + 900, True)
    assert due.first + due.number * 900 == BEGINS + DAY
    assert due_list(zone, state_of(zone, a_list(due.first, due.number)), now) is None


def test_terms_that_begin_today_owe_no_list_of_today() -> None:
    zone = ahead_zone(begins=BEGINS + 3600)
    listed = state_of(zone, a_list(BEGINS - 30 * DAY, 96))
    assert due_list(zone, listed, BEGINS + 7200) is None
    assert due_list(zone, listed, BEGINS + EVENING) is not None


def test_a_late_list_is_the_one_before_scaled_to_the_forecast(tmp_path: Path) -> None:
    zone, shown = ahead_zone(begins=BEGINS - 5 * DAY), ShownLists()
    with curator(tmp_path, zone, shown, now=BEGINS - 5 * DAY) as it:
        state = state_of(zone, a_list(BEGINS - DAY, 96))
        due = due_list(zone, state, BEGINS + 12 * 3600)
        assert due is not None
        record = price_list(
            zone, due, state, it._replay.public, it.t, (), float(BEGINS + 12 * 3600)
        )
        fresh = price_list(
            zone, due._replace(late=False), state, it._replay.public, it.t, (), float(BEGINS)
        )
    assert (record.source, fresh.source) == ("carried", "ahead")
    before = [float(i + 1) for i in range(96)][-due.number :]
    ratio = sum(fresh.rates) / sum(before)
    assert record.rates == pytest.approx([ratio * rate for rate in before])


def test_the_list_is_made_of_the_forecast_alone(tmp_path: Path) -> None:
    """At its time, whatever readings have come; the same from the same releases."""
    zone = ahead_zone(publish_at=7500)
    zone = replace(
        zone,
        scenario=replace(
            zone.scenario, tariff=replace(zone.scenario.tariff, feed_in=FeedIn(0.5, 1.0))
        ),
    )
    lists = []
    for name, houses in (("all", everyone(zone)), ("few", [0, 3])):
        (tmp_path / name).mkdir()
        shown = ShownLists()
        with curator(tmp_path / name, zone, shown, noise=None) as it:
            while it.t * 900 < BEGINS + 7200:
                feed(it, it.t, everyone(zone))
                it.run(it.next_due())
            assert not shown.lists
            feed(it, it.t, houses)  # of the interval that is open
            it.run(BEGINS + 7500)
            (record,) = shown.lists
            assert it.run(BEGINS + 7500) == []
            law = it._replay.public.passed(96 - 8).predicted(it._replay.state.rates)
            mean = float((law.weights * law.mean).sum())
        lists.append(record)
        assert (record.first, len(record.rates), record.source) == (BEGINS + DAY, 96, "ahead")
        assert record.rates[0] == pytest.approx(public_rate(mean, zone.scenario.tariff))
        assert record.feed_in is not None
    assert lists[0].rates == lists[1].rates


def test_a_start_shows_the_list_again_and_makes_no_other(tmp_path: Path) -> None:
    zone, shown = ahead_zone(publish_at=0), ShownLists()
    with curator(tmp_path, zone, shown) as it:
        feed(it, it.t, everyone(zone))
        it.run(it.next_due())
    again = ShownLists()
    with curator(tmp_path, zone, again, now=BEGINS + 1000) as it:
        it.run(BEGINS + 1000)
        assert len(it.lists) == 1
        prices = it._ledger.standing.prices
    assert again.lists == shown.lists[-1:]
    assert len({price.applies_start for price in prices}) == len(prices)


def test_lists_that_break_a_rule_are_refused(tmp_path: Path) -> None:
    zone, shown = ahead_zone(publish_at=0), ShownLists()
    with curator(tmp_path, zone, shown) as it:
        it.run(BEGINS)
        ledger, record = it._ledger, shown.lists[0]
        following = replace(
            record, first=record.ends, published_at=BEGINS + 10, seq=0, head="", signature=""
        )
        for change, text in (
            ({"first": record.first}, "each interval is listed once"),
            ({"first": record.ends + 1}, "on a border of intervals"),
            ({"seconds": 60}, "on a border of intervals"),
            ({"published_at": record.ends}, "it begins later"),
            ({"digest": "1" * 64}, "record new terms"),
            ({"digest": None}, "names no terms"),
            ({"source": "fallback"}, "names no terms"),
            ({"simulated": False}, "simulated = False"),
            ({"zone": "oak"}, "of zone 'oak'"),
            ({"feed_in": (1.0,)}, "one of each for every interval"),
            ({"rates": ()}, "rates of prices does not fit"),
            ({"rates": (1,)}, "rates of prices does not fit"),
        ):
            with pytest.raises(LedgerError, match=text):
                ledger.check(replace(following, **change))
        ledger.check(following)
    (tmp_path / "real_time").mkdir()
    with curator(tmp_path / "real_time", service(), Shown()) as it:
        terms = it._ledger.standing.terms
        assert terms is not None
        with pytest.raises(LedgerError, match="tariff without prices ahead"):
            it._ledger.check(replace(following, digest=terms.digest))


def test_the_zone_goes_to_prices_ahead_and_back_with_a_price_in_every_interval(
    tmp_path: Path,
) -> None:
    """By its file alone; from the first release on no interval is without a price, or has two."""
    real_time, ahead, shown = service(), ahead_zone(), ShownLists()
    zones = ((real_time, 10 * 3600), (ahead, DAY + 20 * 3600), (real_time, 3 * DAY))
    with curator(tmp_path, real_time, shown) as it:
        pass
    now, terms = float(BEGINS), real_time
    for zone, end in zones:
        begins = it.t * 900 if terms is not zone else BEGINS
        running = replace(zone, begins=begins)
        with curator(tmp_path, running, shown, now=now, new_terms=terms is not zone) as it:
            terms = zone
            while it.next_due() <= BEGINS + end:
                feed(it, it.t, everyone(zone))
                now = float(it.next_due())
                it.run(now)
            prices = it._ledger.standing.prices
    starts = [price.applies_start for price in prices]
    assert starts == list(range(starts[0], starts[-1] + 1, 900))
    sources = {price.applies_start: price.source for price in prices}
    listed = [start for start, source in sources.items() if source == "ahead"]
    assert listed == list(range(BEGINS + DAY, BEGINS + 3 * DAY, 900))


def test_more_prices_than_a_list_holds_are_refused() -> None:
    with pytest.raises(PolicyError, match="give fewer days, or a longer interval"):
        ahead_zone(days=7, seconds=60)


def test_listed_prices_are_read_by_interval() -> None:
    record = a_list(BEGINS, 4)
    assert [price.rate for price in record.prices(BEGINS + 900, BEGINS + 2700)] == [2.0, 3.0]
    assert [price.rate for price in record.prices(BEGINS + 901)] == [3.0, 4.0]
    price = record.price(BEGINS + 900)
    assert isinstance(price, ReleaseRecord)
    assert (price.applies_start, price.t, price.epsilon) == (BEGINS + 900, BEGINS // 900 + 1, 0)
    for start in (BEGINS - 900, BEGINS + 1, BEGINS + 3600):
        with pytest.raises(LedgerError, match="no listed interval"):
            record.price(start)
    assert datetime.fromtimestamp(record.ends, UTC).hour == 1
