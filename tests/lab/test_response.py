"""Elasticity from a trial: known truth, and the real one against an independent regression."""

import csv
from pathlib import Path

import numpy as np
import pytest

from hushgrid.errors import ReadingError
from hushgrid.lab.response import price_elasticity

LCL = Path(__file__).parents[3] / "shared" / "data" / "lcl"
PRICES = {"High": 67.20, "Normal": 11.76, "Low": 3.99}


def trial(elasticity, seed, homes=60, steps=48 * 60):
    """Homes of different sizes and habits that share the weather; a third pay the price."""
    rng = np.random.default_rng(seed)
    slot = np.arange(steps) % 48
    price = rng.choice([4.0, 12.0, 67.0], steps, p=[0.1, 0.85, 0.05])
    weather = 1 + 0.3 * np.sin(np.arange(steps) / 150) + 0.2 * (price > 20)  # dear when cold
    habit = rng.gamma(4, 1, (homes, 48))[:, slot] * rng.gamma(2, 50, (homes, 1))
    on = np.arange(homes) < homes // 3
    factor = np.where(on[:, None], (price / 12) ** elasticity, 1.0)
    wh = habit * weather * factor * rng.gamma(2, 0.5, (homes, steps))
    wh[rng.random(wh.shape) < 0.04] = np.nan
    return wh, on, price, slot


def test_a_known_elasticity_is_found_and_the_interval_holds_it():
    held, errors = 0, []
    for seed in range(20):
        found = price_elasticity(*trial(-0.08, seed))
        errors.append(found.mean + 0.08)
        held += found.ci95[0] <= -0.08 <= found.ci95[1]
    assert held >= 17
    assert abs(np.mean(errors)) < 0.012  # a power law, to first order


def test_prices_that_follow_the_weather_do_not_look_like_a_response():
    found = price_elasticity(*trial(0.0, 1))
    assert found.ci95[0] < 0 < found.ci95[1]
    wh, on, price, slot = trial(0.0, 1)
    assert price_elasticity(wh[on], np.arange(20) < 10, price, slot).mean == pytest.approx(
        0, abs=0.02
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w, o, p, s: (w, o[:-1], p, s), "have shapes"),
        (lambda w, o, p, s: (w, o, p * 0, s), "price is not above 0"),
        (lambda w, o, p, s: (w, o & False, p, s), "0 homes on the dynamic price"),
        (lambda w, o, p, s: (w, o, p * 0 + 1, s), "0 homes on the dynamic price and 0 others"),
    ],
)
def test_what_cannot_be_used_is_refused(change, words):
    with pytest.raises(ReadingError, match=words):
        price_elasticity(*change(*trial(0.0, 1, steps=480)))


@pytest.mark.skipif(not LCL.exists(), reason="needs the readings of Low Carbon London")
def test_the_response_of_low_carbon_london_agrees_with_an_independent_regression():
    """Both printed; the second is least squares on the log ratio of the two groups' mean loads."""
    pq = pytest.importorskip("pyarrow.parquet")
    start, steps = np.datetime64("2013-01-01T00:00"), 365 * 48
    with (LCL / "homes.csv").open() as file:
        on = {row["meter_id"]: row["tariff"] == "ToU" for row in csv.DictReader(file)}
    price = np.full(steps, PRICES["Normal"])
    with (LCL / "tariff_2013.csv").open() as file:
        for row in csv.DictReader(file):
            at = (np.datetime64(row["start"]) - start) // np.timedelta64(30, "m")
            price[int(at)] = PRICES[row["level"]]
    table = pq.read_table(LCL / "readings_2013_100homes.parquet")
    names = sorted(on)
    home = np.searchsorted(names, table["meter_id"].to_numpy().astype(str))
    at = (table["start_utc"].to_numpy().astype("datetime64[m]") - start).astype(int) // 30
    wh = np.full((len(names), steps), np.nan)
    inside = (at >= 0) & (at < steps)
    wh[home[inside], at[inside]] = table["wh"].to_numpy()[inside]
    group = np.array([on[name] for name in names])
    slot = np.arange(steps) % 48 + 48 * ((np.arange(steps) // 48 + 1) % 7 >= 5)
    found = price_elasticity(wh, group, price, slot)

    ratio = np.log(np.nanmean(wh[group], axis=0) / np.nanmean(wh[~group], axis=0))
    columns = np.c_[np.log(price), slot[:, None] == np.arange(96)]
    other = float(np.linalg.lstsq(columns, ratio, rcond=None)[0][0])
    low, high = found.ci95
    print(f"elasticity {found.mean:.3f} ({low:.3f} to {high:.3f}), least squares {other:.3f}")
    assert -0.12 < found.mean < -0.03
    assert abs(found.mean - other) < found.sd
