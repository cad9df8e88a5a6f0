"""What `learn --survey` announces against what comes, on recorded homes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hushgrid.cli import main
from hushgrid.files.service_file import load_deployment
from hushgrid.report.promise import outlook_json
from hushgrid.service.promise import outlook

DATA = Path(__file__).parents[3] / "shared/data"
CHAINS = DATA / "occupancy_survey/chains.parquet"
DAYS, COPIES = 28, 6


@pytest.mark.soak
@pytest.mark.skipif(not DATA.exists(), reason="no readings beside the project")
@pytest.mark.parametrize(
    ("readings", "time_zone", "usual"),
    [
        ("lcl/readings_2013_100homes.parquet", "Europe/London", 4000),
        ("sgsc/readings_2013_50homes.parquet", "Australia/Sydney", 4000),
    ],
)
def test_a_zone_of_a_survey_errs_as_announced(
    tmp_path: Path, readings: str, time_zone: str, usual: int
) -> None:
    """Price error within a fifth; the mean price within what is stated apart from noise."""
    import pyarrow as pa
    from pyarrow import compute, parquet

    recorded = parquet.read_table(DATA / readings)
    names = sorted(set(recorded["meter_id"].to_pylist()))
    begins = np.datetime64("2013-04-01T00:00:00", "us")
    copies, ids = [], []
    for k in range(COPIES):  # weeks apart: homes that share the weather less than copies do
        start = compute.add(recorded["start_utc"], np.timedelta64(7 * k, "D").astype("m8[us]"))
        own = compute.binary_join_element_wise(recorded["meter_id"].cast("string"), str(k), "-")
        table = recorded.set_column(0, "meter_id", own)
        copies.append(table.set_column(1, "start_utc", start.cast(pa.timestamp("us", "UTC"))))
        ids += [f"{name}-{k}" for name in names]
    parquet.write_table(pa.concat_tables(copies), tmp_path / "readings.parquet")
    (tmp_path / "meters.txt").write_text("\n".join(ids))
    size = len(ids)
    mix = {1: size * 3 // 10, 2: size * 35 // 100, 3: size * 15 // 100}
    mix[4] = size - sum(mix.values())
    zone, end = tmp_path / "zone", begins + np.timedelta64(DAYS, "D")
    service = str(zone / "service.toml")
    span = ["--from", f"{begins.astype('M8[s]')}Z", "--to", f"{end.astype('M8[s]')}Z"]
    source = ["--readings", str(tmp_path / "readings.parquet")]
    for words in (
        ["learn", "--survey", str(CHAINS), "--mix", ",".join(f"{n}:{c}" for n, c in mix.items()),
         "--interval", "PT30M", "--bound", "2500", "--time-zone", time_zone, "--no-figures",
         "--meters", str(tmp_path / "meters.txt"), "--usual", str(usual), "--out", str(zone),
         "--begins", "2013-04-01"],
        ["batch", service, *source, *span, "--seed", "1"],
        ["bill", *source, "--ledger", str(zone / "ledger.sqlite"), *span, "--operator", "--config",
         service, "--out", str(tmp_path / "bills.csv"), "--json", str(tmp_path / "bills.json")],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code
    (written,) = load_deployment(Path(service)).zones
    announced = outlook_json(outlook(written))
    rates = _rates(zone / "ledger.sqlite")
    exact = _exact(tmp_path / "readings.parquet", written, rates)
    off = np.array([rates[at] / exact[at] - 1 for at in sorted(rates)])
    error = float(np.sqrt(np.mean(off**2)))
    assert announced["price_error"] == pytest.approx(error, rel=0.2)
    bill = json.loads((tmp_path / "bills.json").read_text())["houses"][0]
    assert abs(bill["price_bias"]) < announced["shortfall"]["price"] + bill["price_bias_noise"]


def _rates(ledger: Path) -> dict[int, float]:
    from hushgrid.service.ledger import open_records, verifier
    from hushgrid.service.ledger.chain import check

    with open_records(str(ledger), None) as (records, durable):
        report = check(records, verifier(None), durable)
    (standing,) = report.standings.values()
    return {one.start: one.rate for one in standing.releases}


def _exact(path: Path, written, rates: dict[int, float]) -> dict[int, float]:
    """Rates of the true loads; a home without a reading counts with the usual one."""
    from pyarrow import parquet

    table = parquet.read_table(path)
    start = table["start_utc"].to_numpy().astype("M8[s]").astype(np.int64)
    first = min(rates)
    at = (start - first) // written.seconds
    inside = (at >= 0) & (at < len(rates))
    wh = np.clip(table["wh"].to_numpy()[inside], 0, 2500)
    load, there = np.bincount(at[inside], wh), np.bincount(at[inside])
    load = load + (len(written.meters) - there) * round(written.policy.usual)
    tariff = written.scenario.tariff
    values = (tariff.alpha * load / 1000 + tariff.beta).tolist()
    return {first + i * written.seconds: value for i, value in enumerate(values)}
