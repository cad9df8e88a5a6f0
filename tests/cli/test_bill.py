"""hushgrid bill: what homes pay at published prices, and what only the operator sees."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.cli import main
from hushgrid.curator.clock import utc
from hushgrid.files.service_file import load_deployment
from hushgrid.intake.readings import Readings
from hushgrid.report.bill import BillRates, bill_rows
from hushgrid.stores.ledger import open_store
from tests.curator.curators import Shown, curator

SERVICE = """
format = 1

[service]
mode = "simulation"
begins = 2026-01-05T00:00:00Z
grace = "PT0S"
time_zone = "UTC"
meter_interval = "PT15M"
fallback_rate = 2.0
key = "key"

[stores]
ledger = "ledger.db"
meters = "meters"

[zone]
id = "elm"

[tariff]
alpha = 1.0
beta = 2.0
floor = -9.0

[tariff.feed_in]
alpha = 0.5
beta = 1.0
floor = -9.0

[policy]
secret = "step"
epsilon = 2.0

[[houses]]
count = 2
bound = 1000
export = 500
chain = "a"
meters = ["roof-1", "roof-2"]
absent = { law = "normal", centre = -100, spread = 200 }
present = { law = "normal", centre = 100, spread = 200 }

[[houses]]
count = 1
bound = 1000
chain = "a"
meters = ["flat"]
absent = { law = "uniform" }
present = { law = "uniform" }

[[models]]
[models.chains.a]
home_at_start = 0.5
periods = [{ from = "00:00", leave = 0.1, come = 0.2 }]
"""
READ = {"roof-1": -300, "roof-2": 200, "flat": 400}  # at every interval, and a little more
STEPS = 8


def wh(meter: str, i: int) -> int:
    return READ[meter] + 10 * i


def run_zone(folder: Path, *texts: str) -> list[dict[str, Any]]:
    """Write a ledger of some intervals and the readings as a file; return the releases.

    Of several files each holds for an equal part of the intervals.
    """
    part, now = STEPS // len(texts), None
    for n, text in enumerate(texts):
        (folder / "service.toml").write_text(text)
        zone = load_deployment(folder / "service.toml").zones[0]
        now = zone.begins if now is None else now
        with curator(folder, zone, Shown(), now=now, new_terms=n > 0) as it:
            for i in range(n * part, (n + 1) * part):
                each = [wh(meter, i) for meter in zone.meters]
                it._meters.put("elm", range(3), [it.start_of(it.t)] * 3, [900] * 3, each)
                now = it.next_due()
                it.run(now)
    with (folder / "readings.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["meter_id", "start_utc", "duration_s", "wh"])
        for i in range(STEPS):
            for meter in zone.meters:
                rows.writerow([meter, utc(zone.begins + 900 * i), 900, wh(meter, i)])
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return [dict(one.body) for one in store.records("elm") if one.kind == "release"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A folder with a ledger and readings, and the recorded releases."""
    folder = tmp_path_factory.mktemp("bill")
    return folder, run_zone(folder, SERVICE)


def billed(ran: tuple[Path, Any], capsys: pytest.CaptureFixture[str], *more: object) -> str:
    folder, _ = ran
    words = ["bill", "--readings", folder / "readings.csv", "--ledger", folder / "ledger.db"]
    words += ["--from", "2026-01-05", "--to", "2026-01-06", *more]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    return said.out


def due(bodies: list[dict[str, Any]], meter: str) -> float:
    """The cost of all intervals that a price was published for."""
    begins = bodies[0]["start"]
    total = 0.0
    for body in bodies:
        i = (body["applies_start"] - begins) // 900
        if i < STEPS:
            each = wh(meter, i)
            total += each / 1000 * (body["rate"] if each >= 0 else body["feed_in"])
    return total


def test_a_home_pays_published_prices_in_both_directions(
    ran: tuple[Path, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(billed(ran, capsys, "--json", "-"))
    _, bodies = ran
    assert found["zone"] == {"id": "elm"}
    rows = {row["meter_id"]: row for row in found["houses"]}
    assert list(rows) == ["flat", "roof-1", "roof-2"]
    for meter, row in rows.items():
        each = [wh(meter, i) for i in range(STEPS)]
        assert row["cost"] == pytest.approx(due(bodies, meter), abs=1e-6)
        assert row["energy_wh"] == sum(each) == row["imported_wh"] - row["exported_wh"]
        assert row["unpriced_wh"] == sum(each[:2]), "the first price is for the third interval"
        assert set(row) == {
            "meter_id", "period", "intervals", "energy_wh", "imported_wh", "exported_wh",
            "unpriced_wh", "cost",
        }  # fmt: skip
    assert rows["roof-1"]["cost"] < 0 < rows["flat"]["cost"]


def test_exact_prices_are_in_a_file_of_the_operator_alone(
    ran: tuple[Path, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, bodies = ran
    out, figures = folder / "bills.csv", folder / "bills.json"
    words = ("--operator", "--config", folder / "service.toml", "--out", out, "--json", figures)
    said = billed(ran, capsys, *words)
    own = folder / "bills-operator.csv"
    for path in (own, figures):
        assert path.stat().st_mode & 0o777 == 0o600
    with out.open() as file:
        for row in csv.DictReader(file):
            assert "cost_exact" not in row
    assert "exact" not in said
    found = json.loads(figures.read_text())
    rows = {row["meter_id"]: row for row in found["houses"]}
    exact = dict.fromkeys(READ, 0.0)
    for body in bodies:
        i, measured = (
            (body[key] - bodies[0]["start"]) // 900 for key in ("applies_start", "start")
        )
        net = sum(wh(meter, measured) for meter in READ) / 1000
        for meter in READ:
            each = wh(meter, i)
            rate = net + 2.0 if each >= 0 else 0.5 * net + 1.0
            exact[meter] += each / 1000 * rate if i < STEPS else 0.0
    for meter, row in rows.items():
        assert row["cost_exact"] == pytest.approx(exact[meter], abs=1e-5)
        change = (row["cost"] - row["cost_exact"]) / abs(row["cost_exact"])
        assert row["noise_share"] == pytest.approx(change, rel=1e-3)
        assert row["noise_share_low"] == -row["noise_share_high"] < 0
    total = sum(row["cost"] - row["cost_exact"] for row in rows.values())
    assert found["zone"]["revenue_change"] == pytest.approx(total, abs=1e-5)


def test_exact_prices_are_those_of_the_tariff_of_their_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first half of the intervals by one tariff, the others by one twice as high."""
    doubled = SERVICE.replace("alpha = 1.0\nbeta = 2.0", "alpha = 2.0\nbeta = 4.0")
    bodies = run_zone(tmp_path, SERVICE, doubled)
    figures = tmp_path / "bills.json"
    words = ("--operator", "--config", tmp_path / "service.toml", "--json", figures)
    billed((tmp_path, bodies), capsys, *words, "--out", tmp_path / "bills.csv")
    (flat,) = (x for x in json.loads(figures.read_text())["houses"] if x["meter_id"] == "flat")
    due_cost = 0.0
    for n, body in enumerate(bodies):
        measured, i = n, (body["applies_start"] - bodies[0]["start"]) // 900
        net = sum(wh(meter, measured) for meter in READ) / 1000
        rate = (net + 2.0) * (1 if n < STEPS // 2 else 2)
        due_cost += wh("flat", i) / 1000 * rate if i < STEPS else 0.0
    assert flat["cost_exact"] == pytest.approx(due_cost, abs=1e-5)


def test_a_table_by_day(
    ran: tuple[Path, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    out = ran[0] / "bills.csv"
    billed(ran, capsys, "--out", out, "--by", "day", "--time-zone", "America/New_York")
    assert {row["period"] for row in csv.DictReader(out.read_text().splitlines())} == {"2026-01-04"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--operator"], "--operator needs the service file"),
        (["--out", "bills.xlsx"], "give a file that ends with .csv"),
        (["--zone", "oak"], "no zone"),
        (["--time-zone", "Mars"], "IANA"),
    ],
)
def test_what_cannot_be_billed_is_named(
    ran: tuple[Path, Any], capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    folder, _ = ran
    given = ["bill", "--readings", folder / "readings.csv", "--ledger", folder / "ledger.db"]
    given += ["--from", "2026-01-05", "--to", "2026-01-06", *words]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in given])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_the_interval_of_a_share_holds_what_noise_does() -> None:
    """The spread of a bill over many draws is the one that is stated."""
    rng = np.random.default_rng(7)
    starts = np.arange(200) * 900
    x = rng.integers(-300, 700, 200)
    readings = Readings.of(["a"] * 200, starts, np.full(200, 900), x)
    shares = []
    for _ in range(300):
        noise = rng.laplace(0, 0.05, 200)
        rates = {
            int(s): BillRates(0.3 + k, 0.1 + k / 2, (0.3, 0.1), (0.05 * 2**0.5, 0.025 * 2**0.5))
            for s, k in zip(starts, noise, strict=True)
        }
        (row,) = bill_rows(readings, rates, lambda _: "all", operator=True)
        shares.append(row["noise_share"] / row["noise_share_high"])
    assert 0.9 < np.mean(np.abs(shares) <= 1) < 0.99


def test_what_all_prices_are_off_by_is_apart_from_noise() -> None:
    """Prices 5 % low for all homes are no noise: the mean price says so in each period."""
    rng = np.random.default_rng(8)
    starts = np.arange(2000) * 900
    readings = Readings.of(["a", "b"] * 1000, starts, np.full(2000, 900), np.full(2000, 300))
    low, even = (
        {
            int(s): BillRates(share * 0.3 + k, 0.1, (0.3, 0.1), (0.05, 0.05))
            for s, k in zip(starts, rng.normal(0, 0.05, 2000), strict=True)
        }
        for share in (0.95, 1.0)
    )
    for rates, off in ((low, -0.05), (even, 0.0)):
        rows = bill_rows(readings, rates, lambda start: str(start // 900_000), operator=True)
        assert len(rows) == 4
        for row in rows:
            noise = row["price_bias_noise"]
            assert noise == pytest.approx(1.96 * 0.05 / 1000**0.5 / 0.3, rel=1e-4)
            assert abs(row["price_bias"] - off) < 1.5 * noise
            assert off == 0 or row["price_bias"] < -2 * noise


def test_two_registers_are_billed_as_one_net_reading(
    ran: tuple[Path, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = ran
    roofs = 'meters = ["roof-1", "roof-2"]\n'
    (folder / "two.toml").write_text(
        SERVICE.replace(roofs, f'{roofs}export_meters = ["out-1", "out-2"]\n')
    )
    with (folder / "readings.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    split = [
        [f"{name}-{meter[5:]}", *rest[:2], str(max(sign * int(rest[2]), 0))]
        for meter, *rest in rows
        for name, sign in (("roof", 1), ("out", -1))
        if meter != "flat"
    ]
    with (folder / "two.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *split, *(row for row in rows if row[0] == "flat")])
    one = billed(ran, capsys, "--json", "-")
    words = ["bill", "--readings", folder / "two.csv", "--ledger", folder / "ledger.db"]
    words += ["--from", "2026-01-05", "--to", "2026-01-06", "--json", "-"]
    with pytest.raises(SystemExit):
        main([*map(str, words), "--config", str(folder / "two.toml")])
    assert json.loads(capsys.readouterr().out) == json.loads(one)


def test_smoothed_prices_are_compared_with_smoothed_exact_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else what smoothing does to a bill counts as noise."""
    text = SERVICE.replace("beta = 2.0\n", "beta = 2.0\nsmooth = 0.5\n", 1)
    ran = tmp_path, run_zone(tmp_path, text)
    config, out = tmp_path / "service.toml", tmp_path / "bills.csv"
    words = ("--operator", "--config", config, "--out", out, "--json", "-")
    found = billed(ran, capsys, *words)
    (flat,) = (row for row in json.loads(found)["houses"] if row["meter_id"] == "flat")
    exact, last = 0.0, None
    for i in range(STEPS - 2):  # the first price is for the third interval
        rate = sum(wh(meter, i) for meter in READ) / 1000 + 2.0
        last = rate if last is None else (last + rate) / 2
        exact += last * wh("flat", i + 2) / 1000
    assert flat["cost_exact"] == pytest.approx(exact, abs=1e-5)


def test_a_home_pays_the_listed_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = run_zone(tmp_path, SERVICE + '\n[prices]\nahead = "P1D"\npublish_at = "00:30"\n')
    with open_store(str(tmp_path / "ledger.db"), create=False) as store:
        (listed,) = (dict(r.body) for r in store.records("elm") if r.kind == "prices")
    begins = bodies[0]["start"] + 86_400
    assert listed["first"] == begins
    with (tmp_path / "readings.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["meter_id", "start_utc", "duration_s", "wh"])
        for i in range(96):
            rows.writerow(["flat", utc(begins + 900 * i), 900, 100 + i])
            rows.writerow(["roof-1", utc(begins + 900 * i), 900, -50])
    words = ["--json", "-", "--from", "2026-01-06", "--to", "2026-01-07"]
    found = json.loads(billed((tmp_path, bodies), capsys, *words))
    rows = {row["meter_id"]: row for row in found["houses"]}
    cost = sum((100 + i) / 1000 * rate for i, rate in enumerate(listed["rates"]))
    assert rows["flat"]["cost"] == pytest.approx(cost, abs=1e-6)
    assert rows["roof-1"]["cost"] == pytest.approx(-0.05 * sum(listed["feed_in"]), abs=1e-6)
    assert rows["flat"]["unpriced_wh"] == 0
