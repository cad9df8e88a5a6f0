"""The tick of one zone on real stores: one release a step, resumed, never two values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import (
    LedgerError,
    NoiseError,
    Policy,
    SimulatedNoise,
    init,
    step,
    tally,
)
from hushgrid.belief.filter import Expectations
from hushgrid.curator.clock import JsonLines, PlainLines
from hushgrid.curator.curator import LATE, Curator
from hushgrid.curator.ingest import Ingest
from hushgrid.curator.status import status_of
from hushgrid.intake.readings import Parsed, Readings
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.writer import load, verify_signature
from hushgrid.stores.meters import MeterStore
from hushgrid.web.forecast import Forecaster
from tests.curator.curators import FIRST, Shown, _Counting, curator, everyone, feed
from tests.curator.setups import BEGINS, reading, service


def clamped(house: int) -> int:
    return min(max(reading(house, FIRST), 0), 1000)


def test_late_intervals_are_published_so_many_at_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zone, shown = service(), Shown()
    caplog.set_level("INFO")
    with curator(tmp_path, zone, shown) as it:
        late = BEGINS + 4 * 900
        assert len(it.run(late, most=1)) == 1
        assert it.run(late, most=0) == []
        assert len(it.run(late)) == 3
    lines = [PlainLines().format(one) for one in caplog.records if one.msg == "released"]
    rate = shown.releases[0].rate
    assert f" elm: {rate:.4f} EUR/kWh from 2026-01-05T01:15:00Z on (forecast)" in lines[0]
    assert "price" not in JsonLines().format(caplog.records[0])


def test_one_release_an_interval_equal_to_the_mechanism(tmp_path: Path) -> None:
    """Eight intervals across two restarts: the same releases as Algorithm 1 run in one go."""
    zone, shown = service(), Shown()
    t = 1
    for part in (3, 1, 4):
        with curator(tmp_path, zone, shown, now=BEGINS + (t - 1) * 900, noise=_Counting(t)) as it:
            assert it.t == FIRST + t - 1
            for _ in range(part):
                feed(it, it.t, everyone(zone))
                assert it.run(it.next_due() - 1) == []
                (made,) = it.run(it.next_due())
                assert made.t == FIRST + t - 1
                t += 1
    s = zone.scenario
    state = init(s.zone, s.tariff, s.models, s.consumption, zone.policy)
    distinct = {r.t: r for r in shown.releases}
    assert sorted(distinct) == list(range(FIRST, FIRST + 8))
    for t, published in enumerate(map(distinct.get, sorted(distinct)), 1):
        found = tally(
            np.array([reading(h, FIRST + t - 1) for h in everyone(zone)]), state.zone.bound
        )
        expected, state = step(state, found, _Counting(t))
        assert (published.load_hat, published.rate) == (expected.load_hat, expected.rate)
        assert published.start == BEGINS + (t - 1) * 900
        assert published.applies_start == published.start + 1800  # the first that starts after it
        assert published.applies_from == published.t + 2
    for again in shown.releases:  # shown again after a restart: the stored value
        assert again == distinct[again.t]


def test_missing_readings_are_expected_ones(tmp_path: Path) -> None:
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown, noise=_Counting(1)) as it:
        feed(it, it.t, [0, 1])
        (made,) = it.run(it.next_due())
        assert it.status.missing == 4
    assert made.counts == {"houses": 6}, "how many report is for operators"
    expected = 4 * round(0.5 * 150 + 0.5 * 500)
    assert made.load_hat is not None
    k = _Counting(1).draw(2000.0)
    assert made.load_hat - k == clamped(0) + clamped(1) + expected


def test_an_interval_without_readings_costs_nothing(tmp_path: Path) -> None:
    """The forecast, the spending as it was; what was drawn for the step is never used."""
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown, noise=_Counting(1)) as it:
        feed(it, it.t, everyone(zone))
        it.run(it.next_due())
        (made,) = it.run(it.next_due())
        assert (made.source, made.rule, made.load_hat) == ("forecast", "forecast", None)
        assert (made.epsilon, made.scale, made.epsilon_any) == (0, 0, 0)
        assert made.counts == {"houses": 6}
        assert (it._ledger.standing.epsilon, it.status.state) == (pytest.approx(0.5), "no readings")
        feed(it, it.t, everyone(zone))
        (made,) = it.run(it.next_due())
        assert (it._ledger.standing.epsilon, it.status.state) == (pytest.approx(1.0), "publishing")
    load = sum(min(max(reading(h, made.t), 0), 1000) for h in everyone(zone))
    third = _Counting(3).draw(2000.0)
    assert made.load_hat == load + third
    with open_store(str(tmp_path / "ledger.db")) as store:
        report = check(store.records("elm"), verify_signature)
    assert report.first_bad is None
    standing = report.standings["elm"]
    found = status_of(zone, standing, it.next_due())
    assert (standing.epsilon, found.missing) == (pytest.approx(1.0), None)


@pytest.mark.parametrize("present", [0, 1, 5, 6])
def test_expectations_are_computed_whoever_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: int
) -> None:
    """The first one of a long plan takes seconds: the time of a price must not depend on it."""
    asked: list[int] = []
    at = Expectations.at
    monkeypatch.setattr(Expectations, "at", lambda self, t: (asked.append(t), at(self, t))[1])
    zone = service()
    with curator(tmp_path, zone, Shown()) as it:
        it.run(it.next_due() - 1)
        for t in (1, 2, 3):
            feed(it, it.t, everyone(zone)[:present])
            assert asked == list(range(1, t + 1))  # before the interval is looked at
            it.run(it.next_due())
    assert asked == [1, 2, 3, 4]


@pytest.mark.parametrize("seconds", [None, 450, 900])
def test_an_incomplete_reading_does_not_show_at_a_restart(
    tmp_path: Path, seconds: int | None
) -> None:
    """Terms begin where their first start said, whatever was sent until the next one."""
    zone = service()
    with curator(tmp_path, zone, Shown()) as it:
        if seconds is not None:
            it._meters.put(zone.id, [2], [BEGINS], [seconds], [7])
    with curator(tmp_path, zone, Shown(), now=BEGINS + 901) as it:
        assert it.t == FIRST


@pytest.mark.parametrize(("seconds", "first"), [(None, 2), (450, 2), (900, 0)])
def test_an_incomplete_reading_does_not_show_at_the_first_start(
    tmp_path: Path, seconds: int | None, first: int
) -> None:
    """A first start begins with the next interval, or the first reported."""
    zone = service()
    with MeterStore(tmp_path / "meters") as meters:
        meters.open_zone(*zone.roster)
        if seconds is not None:
            meters.put(zone.id, [2], [BEGINS], [seconds], [7])
    with curator(tmp_path, zone, Shown(), now=BEGINS + 901) as it:
        assert it.t == FIRST + first


def test_rows_that_are_no_readings_are_none(tmp_path: Path) -> None:
    """All unknown, malformed or late: the interval is empty."""
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown) as it:
        start, ingest = it.start_of(it.t), Ingest([zone], it._meters)
        rows = [
            ("nobody", start, 900, 7), (zone.meters[0], start + 7, 700, 7),
            (zone.meters[1], start - 900, 900, 7), (zone.meters[2], start, 450, 7),
        ]  # fmt: skip
        it._meters.close(zone.id, start - 900)
        meter, starts, lengths, wh = zip(*rows, strict=True)
        receipt = ingest.take(Parsed(Readings.of(meter, starts, lengths, wh), 1, ("line 9",)))
        assert (receipt.unknown, receipt.malformed, receipt.late) == (1, 2, 1)
        (made,) = it.run(it.next_due())
        assert (made.source, it.status.missing) == ("forecast", 6)


def test_late_readings_change_nothing(tmp_path: Path) -> None:
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown) as it:
        feed(it, it.t, [0])
        (made,) = it.run(it.next_due())
        counts = it._meters.put("elm", [1], [BEGINS], [900], [77])
        assert (counts.accepted, counts.late) == (0, 1)
        assert it.run(it.next_due() - 1) == []
        assert shown.releases == [made]


def test_a_published_forecast_is_smoothed_and_was_expected(tmp_path: Path) -> None:
    """The price in place of a release is the one that the feeds expected."""
    zone, shown = service(), Shown()
    tariff = replace(zone.scenario.tariff, smooth=0.6)
    zone = replace(zone, scenario=replace(zone.scenario, tariff=tariff))
    with curator(tmp_path, zone, shown) as it:
        for _ in range(2):
            feed(it, it.t, everyone(zone))
            it.run(it.next_due())
        it.run(it.next_due())
    *known, last = shown.releases
    assert last.source == "forecast"
    assert last.rate != pytest.approx(tariff.beta + tariff.alpha * last.estimate / 1000, rel=1e-6)
    assert Forecaster(zone).after(known).guesses[0].rate == pytest.approx(last.rate, rel=1e-12)


def test_the_plan_repeats_where_its_steps_end(tmp_path: Path) -> None:
    zone, made = service(policy=Policy(0.5, horizon=2)), list[ReleaseRecord]()
    with curator(tmp_path, zone, Shown()) as it:
        for _ in range(5):
            feed(it, it.t, everyone(zone))
            made += it.run(it.next_due())
    assert [(one.t - FIRST, one.source) for one in made] == [(t, "readings") for t in range(5)]
    with open_store(str(tmp_path / "ledger.db")) as store:
        standing = check(store.records("elm"), verify_signature).standings["elm"]
    assert [one.first - FIRST for one in standing.terms_records] == [0]


class _Failing(_Counting):
    """Noise that fails for a while."""

    def draw(self, scale: float) -> int:
        k = super().draw(scale)
        if 3 <= self._t <= 4:
            raise NoiseError("noise is not to be had; give a source that works.")
        return k


def test_without_noise_the_fallback_rate(tmp_path: Path) -> None:
    zone, shown = service(fallback_rate=3.25), Shown()
    with curator(tmp_path, zone, shown, noise=_Failing(1)) as it:
        for _ in range(4):
            feed(it, it.t, everyone(zone))
            it.run(it.next_due())
    assert [r.source for r in shown.releases] == ["readings", "fallback", "fallback", "readings"]
    assert (shown.releases[1].rate, shown.releases[1].rule) == (3.25, "fallback")
    assert shown.releases[1].epsilon == 0


def test_a_publisher_that_was_away_gets_the_stored_value(tmp_path: Path) -> None:
    zone, shown = service(), Shown()
    shown.away = True
    with curator(tmp_path, zone, shown) as it:
        (made,) = it.run(it.next_due())
        assert shown.releases == []
        shown.away = False
        it.run(it.next_due() - 5)
        assert shown.releases == [made]


def test_after_a_long_absence_old_intervals_are_left_out(tmp_path: Path) -> None:
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown) as it:
        it.run(it.next_due())
    later = BEGINS + 50 * 900
    with curator(tmp_path, zone, shown, now=later) as it:
        made = it.run(later)
        assert [r.t - FIRST for r in made] == list(range(50 - LATE, 50))
        assert it.t - FIRST == 50
    with open_store(str(tmp_path / "ledger.db")) as store:
        assert check(store.records("elm"), verify_signature).first_bad is None


@pytest.mark.parametrize("later", [300, 900 + 60])
def test_a_restart_in_the_first_interval_keeps_what_was_accepted(
    tmp_path: Path, later: int
) -> None:
    """Within the interval, or after it and before it is due: its readings were accepted."""
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown, now=zone.begins - 60) as it:
        first = it.t
        feed(it, first, everyone(zone)[:1])
    with curator(tmp_path, zone, shown, now=zone.begins + later) as it:
        assert it.t == first
        made = it.run(it.next_due())
        assert [(one.t, one.source) for one in made] == [(first, "readings")]
        assert it.status.missing == len(zone.meters) - 1


def test_a_first_interval_without_readings_is_left_out(tmp_path: Path) -> None:
    """Where nobody was here when it began; a start that was in time keeps it."""
    zone, shown = service(), Shown()
    with MeterStore(tmp_path / "meters") as meters:
        meters.open_zone(*zone.roster)
        start = zone.begins + 2 * 900  # a clock ahead keeps no interval before its own
        meters.put(zone.id, [0], [start], [900], [reading(0, FIRST + 2)])
    with curator(tmp_path, zone, shown, now=zone.begins + 300) as it:
        assert it.t == FIRST + 1
    other = tmp_path / "in time"
    other.mkdir()
    with curator(other, zone, shown, now=zone.begins - 60) as it:
        assert it.t == FIRST
        feed(it, FIRST + 2, everyone(zone)[:1])
    with curator(other, zone, shown, now=zone.begins + 300) as it:
        assert it.t == FIRST


def test_terms_are_fixed_until_new_ones(tmp_path: Path) -> None:
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown) as it:
        it.run(it.next_due())
    changed = service(policy=Policy(0.4, horizon=2_000))
    with pytest.raises(LedgerError, match="--yes"), curator(tmp_path, changed, shown):
        pass
    fewer = service(n=5, begins=BEGINS + 3 * 900)
    with pytest.raises(LedgerError, match="--yes"), curator(tmp_path, fewer, shown):
        pass
    later = BEGINS + 3 * 900
    with curator(tmp_path, fewer, shown, now=later, new_terms=True) as it:
        assert it.t == FIRST + 3
        (made,) = it.run(it.next_due())
        assert (made.t, made.counts["houses"]) == (FIRST + 3, 5)
    with open_store(str(tmp_path / "ledger.db")) as store:
        found = check(store.records("elm"), verify_signature)
        kinds = [r.kind for r in store.records("elm")]
    assert found.first_bad is None
    assert kinds == ["genesis", "tariff", "terms", "release", "terms", "release"]


def test_two_curators_on_one_zone(tmp_path: Path) -> None:
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown), open_store(str(tmp_path / "ledger.db")) as store:
        second = Curator.open(
            zone,
            store,
            None,  # type: ignore[arg-type]
            SimulatedNoise(1),
            load(tmp_path / "key"),
            [],
            "simulation",
            now=BEGINS,
        )
        with pytest.raises(LedgerError, match="has a writer already"):
            second.__enter__()


def test_a_clock_that_goes_back_publishes_nothing_twice(tmp_path: Path) -> None:
    zone, shown = service(), Shown()
    with curator(tmp_path, zone, shown) as it:
        for _ in range(3):
            it.run(it.next_due())
        assert it.run(it.next_due() - 3600) == []
        it.run(it.next_due() + 3600)  # and forward by an hour
        assert it.run(it.next_due() - 3600) == []
    steps = [r.t for r in shown.releases]
    assert steps == sorted(set(steps))
    assert len(steps) == 3 + LATE
