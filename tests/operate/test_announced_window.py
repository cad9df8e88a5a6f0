"""The price error that is announced for the file of init, against a zone of real homes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import SimulatedNoise
from hushgrid.curator.promise import outlook
from hushgrid.files.service_file import load_deployment
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.release import first_public
from hushgrid.model.zone import optimal_rate
from hushgrid.operate.template import example
from hushgrid.report.outlook import price_error

LCL = Path(__file__).parents[3] / "shared" / "data" / "lcl" / "readings_2013_100homes.parquet"
COPIES, WEEK, WEEKS, LEARNED = 6, 336, 4, 2
USUAL = 3_300_000 / (365.25 * 48)  # Wh of a home in half an hour, by published figures


def _readings(begins: np.datetime64) -> np.ndarray:
    """(steps, homes): what a hundred homes of London use [Wh]; 0 where a reading is missing."""
    from pyarrow import parquet

    recorded = parquet.read_table(LCL)
    starts = recorded["start_utc"].to_numpy().astype("M8[s]")
    step = (starts - begins) // np.timedelta64(1800, "s")
    meters = recorded["meter_id"].combine_chunks().dictionary_encode()
    readings = np.zeros((WEEKS * WEEK, len(meters.dictionary)))
    inside = (step >= 0) & (step < len(readings))
    homes = meters.indices.to_numpy()[inside]
    readings[step[inside], homes] = recorded["wh"].to_numpy()[inside]
    return readings


@pytest.mark.skipif(not LCL.exists(), reason="the data of real homes is not here")
@pytest.mark.parametrize("monday", ["2013-03-04T00:00", "2013-04-07T23:00"])
def test_a_zone_of_init_errs_as_announced_after_two_weeks(tmp_path: Path, monday: str) -> None:
    """At the end of a winter, where homes use a third more than usual, and after it."""
    begins = np.datetime64(f"{monday}:00")
    text = example(begins.astype(int).item(), 100 * COPIES)
    for example_value, value in (
        ("Europe/Zurich", "Europe/London"),
        ("PT15M", "PT30M"),
        ("usual = 94.0", f"usual = {USUAL}"),
        ("bound = 2500", "bound = 5000"),
        ("alpha = 0.0018 ", f"alpha = {0.1 / (USUAL * 100 * COPIES / 1000)} "),
    ):
        assert example_value in text
        text = text.replace(example_value, value)
    (tmp_path / "service.toml").write_text(text)
    (zone,) = load_deployment(tmp_path / "service.toml").zones
    announced = price_error(outlook(zone))
    scenario, policy = zone.scenario, zone.policy
    (clamp,), length = policy.clamp, policy.schedule.lengths[0]
    assert isinstance(clamp, int)
    assert set(policy.schedule.lengths) == {length}

    count = WEEKS * WEEK // length
    blocks = Blocks((length,) * count, (policy.epsilon,) * count)
    terms = replace(policy, horizon=WEEKS * WEEK, schedule=blocks)
    known = first_public(scenario.models, scenario.consumption, terms, zone.days)
    readings, scale = _readings(begins), clamp / policy.epsilon
    noise = SimulatedNoise(1).blocks(scale, length, count).ravel()
    seen = COPIES * np.minimum(readings, clamp).sum(axis=1) + noise
    estimated = np.empty(len(seen))
    for t, load_hat in enumerate(seen.tolist()):
        estimated[t], known = known.learn(load_hat, scale)
    exact = optimal_rate(COPIES * readings.sum(axis=1), scenario.tariff)
    off = (optimal_rate(estimated, scenario.tariff) / exact - 1)[LEARNED * WEEK :]
    found = float(np.sqrt(np.mean(off**2)))
    print(f"from {monday}: announced {announced:.1%}, off by {found:.1%} at the end")
    # it is announced for a zone that has settled; homes heat at night, above the clamp, in winter
    assert found <= 1.4 * announced
    assert announced <= 1.3 * found, "half of what is above the clamp is less in spring"
