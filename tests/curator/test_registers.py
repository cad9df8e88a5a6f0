"""Homes with a register for each direction: one net reading when both have reported."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Policy
from hushgrid.cli import main
from hushgrid.curator.ingest import Ingest, Receipt
from hushgrid.demo.simulated_meters import Fleet
from hushgrid.errors import ConfigError, MeterError
from hushgrid.files.readings import batches_of_file, mapping_of
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.espi import FORMAT as GREEN_BUTTON
from hushgrid.intake.exports import crc16, dsmr_p1_batches, nested_json_batches
from hushgrid.intake.readings import Parsed, Readings, Register, collect
from hushgrid.intake.text import CANONICAL, ColumnMapping
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.meters.columns import Roster
from hushgrid.web.http.app import make_app
from hushgrid.web.prices import History
from tests.curator.curators import Shown, curator
from tests.curator.setups import BEGINS, example, service, several_meters, two_registers
from tests.intake.export_files import FILES
from tests.intake.renderings import espi_block, espi_meter, espi_type, feed
from tests.web.guides import blocks
from tests.web.http.faces import AUTH, DIGEST, Face

ZONE = two_registers(service(n=4, export=400))  # house 1 has a second register
GUIDE = (Path(__file__).parents[2] / "docs" / "meter-data.md").read_text()
MINE, OUT = ZONE.meters[1], "elm-1-out"


def rows(*given: tuple[str, int, int, int]) -> Parsed:
    return Parsed(Readings.of(*map(list, zip(*given, strict=True))), 0, ())  # type: ignore[arg-type]


class Store:
    """A meter store of the zone with its intake."""

    def __init__(self, folder: Path) -> None:
        self.meters = MeterStore(folder / "meters.db")
        self.meters.open_zone(*ZONE.roster)
        self.ingest = Ingest([ZONE], self.meters)

    def take(self, meter: str, wh: int, at: int = BEGINS, duration: int = 900) -> Receipt:
        return self.ingest.take(rows((meter, at, duration, wh)))

    def net(self, house: int = 1) -> int | None:
        found = self.meters.get(ZONE.id, BEGINS)
        assert found.houses == 4
        return int(found.wh[house]) if found.present[house] else None


def test_a_net_reading_counts_when_both_registers_have_reported(tmp_path: Path) -> None:
    """In any order and pieces; the first of each stays, and no value decides."""
    it = Store(tmp_path)
    assert it.take(MINE, 0) == Receipt(accepted=1)
    assert it.net() is None
    assert it.take(OUT, 150, duration=450) == Receipt(accepted=1)
    assert it.net() is None, "half of the other register"
    assert it.take(OUT, 200, BEGINS + 450, 450) == Receipt(accepted=1)
    assert it.net() == -350
    assert it.take(OUT, 200, BEGINS + 450, 450) == Receipt(duplicate=1)
    assert it.take(MINE, 70) == Receipt(duplicate=1), "no correction"
    assert it.net() == -350
    assert it.take(ZONE.meters[0], -30) == Receipt(accepted=1)
    assert it.net(0) == -30, "one signed reading where there is one register"
    assert it.take(OUT, 401, BEGINS + 900) == Receipt(accepted=1, clamped=1)
    it.meters.close(ZONE.id, BEGINS)
    assert it.take(OUT, 1) == Receipt(late=1)
    with MeterStore(tmp_path / "other.db") as meters:
        meters.open_zone(*ZONE.roster)
        with pytest.raises(MeterError, match="serve --yes"):
            meters.open_zone(ZONE.id, ZONE.meters, ZONE.seconds)
        far = 2**63 - 1
        meters.put(ZONE.id, [1, 4], [BEGINS] * 2, [900] * 2, [-far, far])
        assert meters.get(ZONE.id, BEGINS).wh[1] < -(2**54), "no sum runs over"


def test_meters_of_one_home_are_added_up(tmp_path: Path) -> None:
    """The home counts when all have reported, and is clamped as one."""
    zone = several_meters(service(n=4, export=400))
    with MeterStore(tmp_path / "meters.db") as meters:
        meters.open_zone(*zone.roster)
        ingest = Ingest([zone], meters)
        for meter, wh, sums in (
            ("elm-1", 300, [None, None]),
            ("elm-1-heat", 250, [None, None]),
            ("elm-2", 0, [None, None]),
            ("elm-1-car", 500, [1050, None]),
            ("elm-2-out", 120, [1050, None]),
            ("elm-2-car", 70, [1050, -50]),
        ):
            assert ingest.take(rows((meter, BEGINS, 900, wh))) == Receipt(accepted=1)
            interval = meters.get(zone.id, BEGINS)
            assert [
                int(interval.wh[house]) if interval.present[house] else None for house in (1, 2)
            ] == sums
        tally = interval.tally(zone.scenario.zone, lambda: np.full(4, 400))
        assert tally.load == 2 * 400 + 1400 + 350, "the bound is of the home, not of its meters"
        with pytest.raises(MeterError, match="serve --yes"):
            meters.open_zone(zone.id, zone.meters, zone.seconds, zone.registers[::2])
    many = [Register(0, name, 1) for name in crowd()]
    for registers, words in ((many, "more than 64 meters"), (ZONE.registers * 2, "twice")):
        with pytest.raises(MeterError, match=words):
            Roster.of("elm", ZONE.meters, 900, registers)
    with pytest.raises(MeterError, match="house order"):
        Roster.of("elm", ZONE.meters, 900, zone.registers[::-1])


def test_half_a_home_counts_as_expected(tmp_path: Path) -> None:
    zone = replace(ZONE, policy=Policy(1e6, horizon=9, min_scale=0.1))
    with curator(tmp_path, zone, Shown()) as it:
        loads = []
        for also in ([], [(OUT, 300)]):
            start = it.start_of(it.t)
            given = [(meter, 50) for meter in zone.meters] + also
            taken = Ingest([zone], it._meters).take(  # type: ignore[arg-type]
                rows(*((meter, start, 900, wh) for meter, wh in given))
            )
            assert taken.accepted == len(given)
            guess = int(it._expectations.at(it.t - BEGINS // 900 + 1)[1])
            (made,) = it.run(it.next_due())
            loads.append(made.load_hat - 3 * 450 - (150 if also else guess))
    assert max(map(abs, loads)) < 10


# ---- formats


def mapped(mapping: ColumnMapping, meter: str) -> ColumnMapping:
    return replace(mapping, registers={meter: "out"})


POINT = "RetailCustomer/1/UsagePoint/01"


def test_green_button_received_energy_is_of_the_second_register() -> None:
    document = feed(
        espi_type("in", uom=72, flowDirection=1),
        espi_type("out", uom=72, flowDirection=19, powerOfTenMultiplier=-3),
        *(espi_meter(POINT, name, kind) for name, kind in (("01", "in"), ("02", "out"))),
        espi_block(POINT, "01", [("", BEGINS, 900, 0)]),
        espi_block(POINT, "02", [("", BEGINS, 900, 250_000)]),
    )

    def read(by: ColumnMapping) -> list[Any]:
        return list(collect(GREEN_BUTTON.batches(document, by)).readings.rows())

    assert read(CANONICAL) == [(POINT, BEGINS, 900, 0), (POINT, BEGINS, 900, -250)]
    assert read(mapped(CANONICAL, "other")) == read(CANONICAL)
    assert read(mapped(CANONICAL, POINT)) == [(POINT, BEGINS, 900, 0), ("out", BEGINS, 900, 250)]
    named = replace(mapped(CANONICAL, "me"), meter_id="me")
    assert [row[0] for row in read(named)] == ["me", "out"]


def test_green_button_net_energy_is_signed_where_there_is_one_register() -> None:
    document = feed(
        espi_type("net", uom=72, flowDirection=4, accumulationBehaviour=4),
        espi_meter(POINT, "01", "net"),
        espi_block(POINT, "01", [("", BEGINS, 900, -250), ("", BEGINS + 900, 900, 40)]),
    )
    found = collect(GREEN_BUTTON.batches(document, mapped(CANONICAL, "other")))
    assert (found.readings.wh.tolist(), found.malformed) == ([-250, 40], 0)
    found = collect(GREEN_BUTTON.batches(document, mapped(CANONICAL, POINT)))
    assert (len(found.readings), found.malformed) == (0, 2)
    assert "register for each direction" in found.problems[0]


@pytest.mark.parametrize(
    ("name", "meter", "fed_in"),
    [
        ("fluvius", "541448860000000017", [500]),
        ("nem12", "6100000017", [7000, 7000, 7000]),
        ("dsmr_p1", "E0004001594754414", [0, 0]),
        ("sce", "me", [1310]),
        ("elhub_csv", "me", [700]),
    ],
)
def test_exports_with_both_directions(name: str, meter: str, fed_in: list[int]) -> None:
    def read(by: ColumnMapping) -> Readings:
        return collect(batches_of_file(FILES[name], by, lambda *_: None)).readings

    mapping = mapping_of(name, "me" if meter == "me" else None)
    plain, other = read(mapping), read(mapped(mapping, "other"))
    assert list(other.rows()) == list(plain.rows())
    found = list(read(mapped(mapping, meter)).rows())
    assert [wh for who, *_, wh in found if who == "out"] == fed_in
    assert sorted(row for row in found if row[0] != "out") == sorted(plain.rows())


def test_blocks_of_one_day_keep_their_direction() -> None:
    """Of an hour that occurs twice each direction has both; nested JSON by its arrays."""
    block = (
        "Energy  {0} time period,Usage {0}(Real energy in kilowatt-hours)(Real energy in"
        ' kilowatt-hours),Reading quality\n"2021-11-07 01:00:00 to 2021-11-07 01:15:00","{1}",""\n'
        '"2021-11-07 01:00:00 to 2021-11-07 01:15:00","{2}",""\n\n'
    )
    text = block.format("Delivered", 1, 2) + block.format("Received", 3, 4)
    found = collect(csv_batches(text.encode(), mapped(mapping_of("sce", "me"), "me"))).readings
    first = 1636272000  # 2021-11-07T08:00:00Z
    assert [(who, at - first, wh) for who, at, _, wh in found.rows()] == [
        ("me", 0, 1000), ("me", 3600, 2000), ("out", 0, 3000), ("out", 3600, 4000)
    ]  # fmt: skip
    hour = '[{"startTime":"2024-01-01T00:00Z","endTime":"2024-01-01T01:00Z","quantityKwh":%d}]'
    text = '{"data":[{"id":"m","attributes":{"consumptionPerHour":%s,"productionPerHour":%s}}]}'
    body, by = (text % (hour, hour) % (1, 2)).encode(), mapping_of("elhub")
    for mapping, read in ((by, [("m", 1000)]), (mapped(by, "m"), [("m", 1000), ("out", 2000)])):
        rows = collect(nested_json_batches(body, mapping)).readings.rows()
        assert [(who, wh) for who, *_, wh in rows] == read


def telegram(second: int, taken: float, given: float) -> bytes:
    clock = f"0-0:1.0.0(24010100{second // 60:02d}{second % 60:02d}W)"
    lines = ["/EXA", "", clock, "0-0:96.1.1(6D31)"]
    lines += [f"1-0:1.8.1({taken:010.3f}*kWh)", f"1-0:2.8.1({given:010.3f}*kWh)", "!"]
    text = "\r\n".join(lines)
    return f"{text}{crc16(text.encode()):04X}\r\n".encode()


def test_both_counters_of_p1_are_read() -> None:
    steps = (telegram(900 * k, 5 + 0.02 * k, 7 + 0.3 * k * k) for k in range(3))
    by = mapped(mapping_of("dsmr_p1"), "m1")
    rows = [row for one in dsmr_p1_batches(b"".join(steps), by) for row in one.readings.rows()]
    assert [(who, wh) for who, _, _, wh in rows] == [
        ("m1", 20), ("out", 300), ("m1", 20), ("out", 900)
    ]  # fmt: skip


def test_mappings_of_ones_own_say_the_direction(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'meter = "id"\ntime = "at"\nvalue = "wh"\nduration_s = 900\n'
        'fed_in = {way = ["out", "export"]}\n'
    )
    mapping = mapping_of(str(own))
    text = b"id,at,wh,way\n" + b"".join(
        b"%s,2026-01-05T00:00Z,%d,%s\n" % row
        for row in ((b"a", 5, b"in"), (b"a", 7, b"OUT 1"), (b"b", 9, b"export"), (b"b", 3, b""))
    )
    found = collect(csv_batches(text, mapped(mapping, "a")))
    assert [(who, wh) for who, *_, wh in found.readings.rows()] == [("a", 5), ("out", 7), ("b", 3)]
    assert (found.malformed, found.reasons[0].rows) == (0, 1), "a row of b is left out"
    signed = replace(mapping, value="taken", minus=("given",), fed_in=())
    text = b"id,at,taken,given\na,2026-01-05T00:00Z,5,7\na,2026-01-05T00:15Z,5,\n"
    net = collect(csv_batches(text, signed)).readings
    assert net.wh.tolist() == [-2, 5], "both directions in one row"
    lines = [line.split("`")[1::2] for line in GUIDE.splitlines() if line.startswith("| `datadis`")]
    own.write_text("\n".join(lines[0][1:]))
    net = collect(csv_batches(FILES["datadis"].read_bytes(), mapping_of(str(own)))).readings
    assert net.wh.tolist()[-2:] == [400, 900], "as the guide says of Datadis"
    own.write_text('base = "fluvius"\nregisters = {a = "b"}\n')
    with pytest.raises(Exception, match="field 'registers' is unknown"):
        mapping_of(str(own))


# ---- the service file, and simulated homes


def test_the_service_file_names_the_registers(tmp_path: Path) -> None:
    text = example(BEGINS)

    def loaded(more: str) -> Any:
        path = tmp_path / "service.toml"
        path.write_text(text.replace("[[houses]]\n", f"[[houses]]\n{more}\n", 1))
        return load_deployment(path).zones[0]

    (block,) = (one for one in blocks(GUIDE, "toml") if "export_meters" in one)
    (line,) = (one for one in block.splitlines() if "export_meters" in one)
    line = line.replace("roof-out-", "out-")
    first = loaded(f"export = 200\n{line}")
    assert len(first.registers) == 30
    assert first.registers[:2] == (Register(0, "out-0001", -1), Register(1, "out-0002", -1))
    assert first.fed_in[first.meters[0]] == "out-0001"
    assert first.all_meters[len(first.meters)] == "out-0001"
    with pytest.raises(ConfigError, match=r"export_meters is set but export is not"):
        loaded("export_meters = {prefix = 'out-'}")
    twice = f"export = 200\nexport_meters = {[first.meters[0]] * len(first.registers)}"
    with pytest.raises(ConfigError, match="twice"):
        loaded(twice)


def test_the_service_file_lists_the_meters_of_a_home(tmp_path: Path) -> None:
    head, houses, rest = example(BEGINS).partition("[[houses]]\n")
    others = re.sub("(?m)^meters = .*$", "{meters}", rest, count=1)
    count = 30

    def loaded(more: str) -> Any:
        path = tmp_path / "service.toml"
        path.write_text(head + houses + others.replace("{meters}", more))
        return load_deployment(path).zones[0]

    listed = [f"m{n}" for n in range(2, count)]
    zone = loaded(f'meters = ["m0", ["m1", "m1-heat", "m1-car"], {str(listed)[1:]}')
    assert zone.meters[:count] == tuple(f"m{n}" for n in range(count))
    assert zone.registers == (Register(1, "m1-heat", 1), Register(1, "m1-car", 1))
    assert zone.all_meters[-2:] == ("m1-heat", "m1-car")
    homes = "\n".join(["m0", "m1\tm1-heat\tm1-car", *listed])
    (tmp_path / "meters.txt").write_text(homes)
    assert loaded('meters_file = "meters.txt"').roster == zone.roster
    for second, words in (
        ('"m0"', "twice"), ('"a b "', "without spaces"), (', '.join(map(repr, crowd())), "64"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            loaded(f'meters = ["m0", ["m1", {second}], {str(listed)[1:]}')
    with pytest.raises(ConfigError, match="a home of 0 meters"):
        loaded(f'meters = ["m0", [], {str(listed)[1:]}')
    with pytest.raises(ConfigError, match="one id for each house"):
        loaded(
            f'export = 9\nmeters = {{prefix = "x"}}\nexport_meters = [["a", "b"], {str(listed)[1:]}'
        )


def crowd() -> list[str]:
    return [f"more-{n}" for n in range(64)]


def test_simulated_homes_send_both_registers() -> None:
    plain = service(n=4, export=400)
    one, two = (Fleet(zone, 3, BEGINS).interval(None) for zone in (plain, ZONE))
    assert two.ids == ZONE.all_meters
    assert two.wh[:4].tolist() == [max(wh, 0) if i == 1 else wh for i, wh in enumerate(one.wh)]
    assert two.wh[1] - two.wh[4] == one.wh[1]
    three = Fleet(several_meters(plain), 3, BEGINS).interval(None)
    assert three.wh[1] + three.wh[4] + three.wh[5] == one.wh[1]
    assert three.wh[2] + three.wh[6] - three.wh[7] == one.wh[2]


def test_import_and_http_read_one_export_into_both_registers(tmp_path: Path) -> None:
    text = example(BEGINS).replace(
        "[[houses]]\n", "[[houses]]\nexport = 200\nexport_meters = {prefix = 'out-'}\n", 1
    )
    (tmp_path / "service.toml").write_text(f'{text}\n[mappings]\nown = "own.toml"\n')
    (tmp_path / "own.toml").write_text(
        'meter = "id"\ntime = "at"\nvalue = "wh"\nduration_s = 900\nfed_in = {way = ["out"]}\n'
    )
    zone = load_deployment(tmp_path / "service.toml").zones[0]
    mine = zone.meters[0]
    body = f"id,at,wh,way\n{mine},{BEGINS},30,in\n{mine},{BEGINS},130,out\n".replace(
        str(BEGINS), "2026-01-05T00:00:00Z"
    )
    (tmp_path / "export.csv").write_text(body)
    words = ["import", tmp_path / "export.csv", "--config", tmp_path / "service.toml"]
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--mapping", "own"])
    assert not ended.value.code
    made = load_deployment(tmp_path / "service.toml")
    with MeterStore(made.meters) as meters:
        meters.open_zone(*zone.roster)
        assert meters.get(zone.id, BEGINS).wh[0] == -100
    meters, face = MeterStore(tmp_path / "http.db"), Face()
    meters.open_zone(*zone.roster)
    ingest, history = Ingest([zone], meters), History([zone])
    face.app = make_app(
        ingest, face.board, face.metrics, Http(tokens=(DIGEST,)), history=history,
        clock=face.clock, mappings=made.mappings,
    )  # fmt: skip
    answer = face.post(body, {**AUTH, "content-type": "text/csv"}, "?mapping=own")
    assert answer.json()["accepted"] == 2, answer.text
    assert meters.get(zone.id, BEGINS).wh[0] == -100
