"""A replay's figures are those of a comparison with the same settings, to the digit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hushgrid.cli.compare import recorded_source
from hushgrid.errors import PlanError
from hushgrid.files.layouts import read_homes
from hushgrid.lab.bench import AHEAD, FLAT, ROLLING_MEAN, TIME_OF_USE, YESTERDAY
from hushgrid.lab.comparison import compare
from hushgrid.lab.datasets import Real, Recorded, real_days
from hushgrid.lab.findings import JudgedDays, price_figures, promise_figures
from hushgrid.lab.methods import BOUND
from hushgrid.lab.replay import (
    LAST_WEEK,
    UNREAD,
    Played,
    ReplayPromise,
    calendar_days,
    play,
    play_others,
    promises,
    source_of,
    synthetic_days,
    train_days,
)
from hushgrid.model.zone import Tariff

STEP, HOMES, DAYS, DRAWS = 7200, 40, 22, 2  # a step of two hours
USUAL, BOUND_WH = 3300.0, 4000


@cache
def real() -> Real:
    days = synthetic_days(HOMES, days=DAYS, seconds=STEP, usual=2900, bound=BOUND_WH, seed=4)
    gone = np.array(days.readings)
    gone[3:5, 4:9, 2] = -1  # a gap
    part = days._replace(readings=gone)
    return Real(
        part.meters, np.delete(gone, 17, 0), np.delete(part.date, 17), np.delete(part.month, 17)
    )  # and a day that is not there


@cache
def source() -> Recorded:
    return source_of(real(), bound=BOUND_WH, usual=USUAL, train=7)


@cache
def played(window: str | None, epsilon: float = 1.0) -> Played:
    return play(source(), ReplayPromise(window, epsilon), draws=DRAWS, seed=5)


def test_the_days_are_those_of_compare(tmp_path: Path) -> None:
    """With readings above the contract bound, which count in the tariff, and a gap."""
    rows, bound = ["meter_id,start_utc,duration_s,wh"], 900
    begins = calendar_days(real().date)[0].astype("datetime64[s]")
    for home in range(12):
        flat = real().readings[:17, :, home].ravel().tolist()
        times = [str(begins + np.timedelta64(STEP * n, "s")) for n in range(len(flat))]
        rows += [
            f"m{home:02},{time}Z,{STEP},{wh}"
            for time, wh in zip(times, flat, strict=True)
            if wh >= 0
        ]
    path = tmp_path / "zone.csv"
    path.write_text("\n".join(rows) + "\n")
    theirs, _ = recorded_source(path, "canonical", None, None, STEP, bound, 3, None)
    homes = read_homes([path])
    mine = source_of(real_days(homes.histories), bound=bound, usual=USUAL, train=3)
    assert (theirs.readings > bound).any()
    same = theirs.with_usual(1000 * USUAL / (365 * theirs.horizon))
    assert mine.digest == same.digest
    assert mine.published == same.published
    assert mine.before is not None
    assert same.before is not None
    assert mine.before.digest == same.before.digest


@pytest.mark.parametrize("window", [None, "P7D"])
@pytest.mark.sampled
def test_errors_are_those_of_compare_to_the_digit(window: str | None) -> None:
    days = len(source().date)
    terms = ReplayPromise(window, 1.0).terms(STEP)
    same = compare(source(), terms, days=days, seed=5, methods=(BOUND,), draws=DRAWS)
    now, ahead = promise_figures(JudgedDays.of(source()), played(window))
    for figures, summary in ((now, same.summary("bound", "estimated", "rmsre")),
                             (ahead, same.ahead("bound"))):  # fmt: skip
        assert figures.error is not None
        assert summary is not None
        assert (figures.error.mean, figures.error.ci95) == (summary.mean, summary.ci95)
    waste = same.summary("bound", "estimated", "mismatch_cost")
    assert now.waste is not None
    assert now.waste.mean == waste.mean
    others = play_others(source())
    for name in (FLAT, TIME_OF_USE, YESTERDAY, ROLLING_MEAN):
        error = price_figures(JudgedDays.of(source()), [others[name]], ahead=False).error
        assert error is not None
        assert error.mean == same.summary(name, "estimated", "rmsre").mean
    listed = price_figures(JudgedDays.of(source()), [others[ROLLING_MEAN]], ahead=True).error
    expected = [row[ROLLING_MEAN][AHEAD][1] for row in same.rows if AHEAD in row[ROLLING_MEAN]]
    assert listed is not None
    assert listed.mean == np.mean(expected)


def test_exact_prices_are_exact_and_last_week_is_last_week() -> None:
    others = play_others(source())
    judged = JudgedDays.of(source())
    exact = price_figures(judged, [others["exact"]], ahead=False)
    assert exact.error is not None
    assert exact.error.mean == 0
    assert exact.peak_hits == 1
    assert exact.bills is not None
    assert exact.bills.largest == 0
    date = source().date.tolist()
    week_later = date.index(date[0] + 7)
    assert (others[LAST_WEEK].estimated[week_later] == judged.loads[0]).all()


def test_a_price_that_tells_nothing_is_compared_with_what_the_filter_starts_from() -> None:
    """Under so much noise that releases say nothing, the price is the start of the filter."""
    others = play_others(source())
    silent = play(source(), ReplayPromise("P14D", 1e-6), draws=1).draws[0].estimated
    start = others[UNREAD].estimated
    assert np.abs(silent / start - 1).max() < 0.05
    assert (start[0] == start[1]).all()  # two workdays


def test_longer_windows_have_more_noise_and_bills_are_of_all_homes() -> None:
    judged = JudgedDays.of(source())
    scales = []
    for window in (None, "P7D"):
        figures, _ = promise_figures(judged, played(window))
        assert figures.bills is not None
        assert figures.bills.q05 <= figures.bills.median <= figures.bills.q95
        assert abs(figures.bills.revenue_change) <= figures.bills.largest
        scales.append(figures.scale)
    assert 0 < scales[0] < scales[1]


def test_bills_are_those_of_a_plain_sum() -> None:
    judged = JudgedDays.of(source())
    one = played("P7D")
    figures, _ = promise_figures(judged, one)
    tariff = judged.tariff
    changes = []
    for published in one.draws:
        costs, exact = np.zeros(HOMES), np.zeros(HOMES)
        for day in range(len(source().date)):
            readings = source().day(day).readings
            for t, wh in enumerate(readings):
                load = published.estimated[day, t] / 1000
                rate = min(max(tariff.alpha * load + tariff.beta, tariff.floor), tariff.cap)
                costs += rate * wh / 1000
                exact += (tariff.alpha * wh.sum() / 1000 + tariff.beta) * wh / 1000
        changes.append(costs / exact - 1)
    assert figures.bills is not None
    assert figures.bills.median == pytest.approx(np.median(np.concatenate(changes)))


def test_readings_are_cut_at_the_bound_of_each_home() -> None:
    bounds = [300] * 10 + [BOUND_WH] * (HOMES - 10)
    own = source_of(real(), bound=bounds, usual=USUAL, train=7)
    assert own.scenarios[0].zone.bound.tolist() == [BOUND_WH] * HOMES
    kwh = JudgedDays.of(own).kwh
    assert kwh[:, :10].max() <= 0.3
    assert (kwh[:, 10:] == JudgedDays.of(source()).kwh[:, 10:]).mean() > 0.99  # gaps are filled


def test_a_tariff_of_the_zone_is_taken() -> None:
    mine = source_of(real(), bound=BOUND_WH, usual=USUAL, train=7, tariff=Tariff(2.0, 9.0))
    assert JudgedDays.of(mine).tariff == Tariff(2.0, 9.0)


def test_there_are_twelve_promises_and_four_in_a_hurry() -> None:
    assert len(promises()) == 12
    assert {(p.window, p.epsilon) for p in promises(quick=True)} == {
        (None, 1.0), ("P1D", 1.0), ("P7D", 1.0), ("P14D", 1.0)
    }  # fmt: skip


def test_ten_days_are_refused_in_one_sentence() -> None:
    with pytest.raises(PlanError, match="10 whole days"):
        train_days(10)


def test_days_to_judge_have_to_be_left() -> None:
    with pytest.raises(PlanError, match=r"train_days is 15 of 21 whole days, so 6 are left"):
        source_of(real(), bound=BOUND_WH, usual=USUAL, train=15)


def test_synthetic_homes_are_of_public_figures_alone() -> None:
    days = synthetic_days(200, days=364, seconds=STEP, usual=3300, bound=10_000, seed=1)
    yearly = days.readings.sum() / 200 / 1000 * 365 / 364
    assert yearly == pytest.approx(3300, rel=0.15)
    assert str(calendar_days(days.date)[0]) == "2024-01-01"
    assert days.date[0] % 7 == 0
    again = synthetic_days(200, days=364, seconds=STEP, usual=3300, bound=10_000, seed=1)
    assert (again.readings == days.readings).all()


def test_blocks_that_go_on_over_days_are_attacked_as_equal_blocks() -> None:
    """Of a window the first judged day may begin within a block."""
    year = play(source(), ReplayPromise("P1D", 1.0), draws=1)
    steps = 86_400 // STEP // 4
    within = replace(year, lengths=(steps,) * 7)  # more steps than a day has
    assert within.blocks.lengths == (steps,)
    assert within.blocks.scales == (year.scale[0],)
    own = replace(year, lengths=())  # noise of its own at every step
    assert own.blocks.lengths == (1,) * (86_400 // STEP)
    assert sum(played(None).blocks.lengths) == 86_400 // STEP
