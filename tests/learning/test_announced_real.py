"""What `learn --survey` announces against what comes in a year, on recorded homes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import SimulatedNoise
from hushgrid.cli import main
from hushgrid.curator.promise import outlook
from hushgrid.files.service_file import load_deployment
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.release import first_public
from hushgrid.model.zone import optimal_rate
from hushgrid.report.outlook import price_error
from tests.learning.options import learn_words

DATA = Path(__file__).parents[3] / "shared/data"
CHAINS = DATA / "occupancy_survey/chains.parquet"
LONDON = DATA / "lcl/readings_2013_100homes.parquet"
SYDNEY = DATA / "sgsc/readings_2013_50homes.parquet"
WEEK, WEEKS, LEARNED = 336, 50, 2  # the first weeks are for the estimate to find the day's course


@pytest.mark.soak
@pytest.mark.skipif(not DATA.exists(), reason="no readings beside the project")
@pytest.mark.parametrize(
    ("path", "time_zone", "monday", "usual", "copies", "window"),
    [
        (LONDON, "Europe/London", "2013-01-07T00:00", 3300, 6, "P1D"),
        (LONDON, "Europe/London", "2013-01-07T00:00", 3300, 10, "P1D"),
        (SYDNEY, "Australia/Sydney", "2013-01-06T13:00", 4000, 12, "P14D"),
    ],
)
def test_a_zone_of_a_survey_errs_as_announced(
    tmp_path: Path, path: Path, time_zone: str, monday: str, usual: int, copies: int, window: str
) -> None:
    """The price error of a year is within a fifth of what the file announces."""
    begins = np.datetime64(f"{monday}:00")
    readings = _readings(path, begins, usual * 1000 / (365 * 48))
    homes = readings.shape[1] * copies
    asked = ["--survey", str(CHAINS), "--mix", f"2:{homes}", "--interval", "PT30M", "--no-figures"]
    asked += ["--time-zone", time_zone, "--usual", str(usual), "--out", str(tmp_path / "zone")]
    with pytest.raises(SystemExit) as ended:
        main(learn_words("learn", *asked))
    assert not ended.value.code
    service = tmp_path / "zone" / "service.toml"
    text = service.read_text()
    assert 'window = "P1D"' in text
    first = next(line for line in text.splitlines() if line.startswith("begins = "))
    edits = ((first, f"begins = {begins}Z"), ('window = "P1D"', f'window = "{window}"'))
    for old, new in edits:
        text = text.replace(old, new)
    service.write_text(text)
    (zone,) = load_deployment(service).zones
    announced = price_error(outlook(zone))
    (clamp,), length = zone.policy.clamp, zone.policy.schedule.lengths[0]
    assert isinstance(clamp, int)

    count = WEEKS * WEEK // length
    blocks = Blocks((length,) * count, (zone.policy.epsilon,) * count)
    terms = replace(zone.policy, horizon=count * length, schedule=blocks)
    known = first_public(zone.scenario.models, zone.scenario.consumption, terms, zone.days)
    readings, scale = readings[: count * length], clamp / zone.policy.epsilon
    noise = SimulatedNoise(1).blocks(scale, length, count).ravel()
    seen = copies * np.minimum(readings, clamp).sum(axis=1) + noise
    estimated = np.empty(len(seen))
    for t, load_hat in enumerate(seen.tolist()):
        estimated[t], known = known.learn(load_hat, scale)
    exact = optimal_rate(copies * readings.sum(axis=1), zone.scenario.tariff)
    off = (optimal_rate(estimated, zone.scenario.tariff) / exact - 1)[LEARNED * WEEK :]
    assert announced == pytest.approx(float(np.sqrt(np.mean(off**2))), rel=0.2)


def _readings(path: Path, begins: np.datetime64, usual: float) -> np.ndarray:
    """(steps, homes) Wh; a missing one is the usual one, as in a service."""
    from pyarrow import parquet

    recorded = parquet.read_table(path)
    starts = recorded["start_utc"].to_numpy().astype("M8[s]")
    step = (starts - begins) // np.timedelta64(1800, "s")
    meters = recorded["meter_id"].combine_chunks().dictionary_encode()
    readings = np.full((WEEKS * WEEK, len(meters.dictionary)), round(usual), np.float64)
    inside = (step >= 0) & (step < len(readings))
    homes = meters.indices.to_numpy()[inside]
    readings[step[inside], homes] = np.clip(recorded["wh"].to_numpy()[inside], 0, 5000)
    return readings
