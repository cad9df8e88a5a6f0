"""What records of terms and releases state beside their figures, held against the terms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgrid import OccupancyModel, Policy
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.curator.gaps import book
from hushgrid.curator.terms import roster_digest
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.files.weeks import placed
from hushgrid.mechanism.policy import Blocks
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.entries import GapRecord, TransferRecord
from hushgrid.stores.ledger.records import Record
from tests.curator.borders import FIRST, HOUR, from_file, zone_of
from tests.curator.curators import Shown, curator, everyone, feed
from tests.curator.setups import service, two_registers
from tests.stores.ledger.ledgers import KEY, lines_of, sealed

THETA = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0] * 3)
BEGINS = FIRST * HOUR
ALL = Policy(0.5, horizon=4)
HALVES = replace(ALL, schedule=Blocks((1, 3), (0.3, 0.5)))


KINDS: dict[str, Callable[[], ZoneService]] = {
    "plain": lambda: service(policy=ALL),
    "export": lambda: two_registers(service(n=4, export=400, policy=ALL)),
    "blocks": lambda: service(policy=HALVES),
    "blocks of an interval": lambda: service(policy=HALVES, promise=Promise("interval", 0.9)),
    "interval": lambda: zone_of(THETA, BEGINS, 0.5, 4, 1.0),
    "interval of a file": lambda: from_file(THETA, BEGINS, 0.8, 4),
}


def later(zone: ZoneService) -> ZoneService:
    """The zone under the same terms anew."""
    begins = zone.begins + 4 * zone.seconds
    return placed(zone, begins)


def ran(
    folder: Path, *zones: ZoneService, new: bool = False, gap: bool = False, steps: int = 3
) -> list[Record]:
    """So many steps under the terms of each zone; of three, the second without readings."""
    for n, zone in enumerate(zones):
        with curator(folder, zone, Shown(), now=zone.begins, new_terms=new or n > 0) as it:
            for step in range(steps):
                if step != 1 or steps != 3:
                    feed(it, it.t, everyone(zone))
                it.run(it.next_due())
            if gap:
                it._ledger.write(GapRecord(it.t, it.t, "meters"))
                book(zone, it._ledger)
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return list(store.records(zones[0].id))


def audited(folder: Path, records: list[Record], *zones: ZoneService) -> Certificate:
    path = folder / "ledger.ndjson"
    path.write_bytes(lines_of(records))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
    return certify(evidence, [terms_of(zone) for zone in zones], chain=chain)


def failures(found: Certificate) -> dict[str, str]:
    return {one.id: one.text for one in found.checks if one.status == "failed"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_service_records_passes(tmp_path: Path, kind: str) -> None:
    """Terms that begin twice, with a gap that is booked between."""
    zone = KINDS[kind]()
    found = audited(tmp_path, ran(tmp_path, zone, later(zone), gap=True), zone)
    assert failures(found) == {}
    assert found.check("terms").status == "passed"
    assert "2 records of terms have a name for each meter" in found.check("terms").text


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    zone = KINDS["interval"]()
    return ran(tmp_path_factory.mktemp("honest"), zone, later(zone))


def forged(honest: list[Record], place: int, **changes: Any) -> list[Record]:
    """The ledger with another record in that place, signed again by its own publisher."""
    told = [(one.kind, dict(one.body)) for one in honest]
    told[0][1]["key"] = KEY.public
    for name, value in changes.items():
        body = told[place][1]
        body[name] = value(body.get(name)) if callable(value) else value
        if body[name] is None:
            del body[name]
    return sealed(told, zone=honest[0].zone)


FIRST_TERMS, SECOND, OPENS = 2, 6, 7  # places of records


def of_row(n: int, value: float) -> Callable[[Any], Any]:
    """The account with another figure of its first row."""
    return lambda rows: [[*rows[0][:n], value, *rows[0][n + 1 :]], *rows[1:]]


def larger(promise: Any) -> dict[str, Any]:
    """A larger promise."""
    return {**promise, "epsilon": 2.5}


def another_plan(plan: Any) -> dict[str, Any]:
    """Blocks that lose less."""
    return {**plan, "blocks": [[length, loss / 2, times] for length, loss, times in plan["blocks"]]}


@pytest.mark.parametrize(
    ("place", "name", "value", "check", "said"),
    [
        (FIRST_TERMS, "promise", larger, "chain", "do not have the digest that follows"),
        (SECOND, "promise", larger, "chain", "do not have the digest that follows"),
        (SECOND, "plan", another_plan, "chain", "do not have the digest that follows"),
        (SECOND, "zone", lambda _: "ab" * 32, "chain", "do not have the digest that follows"),
        (
            SECOND,
            "consumption",
            lambda _: "ab" * 32,
            "chain",
            "do not have the digest that follows",
        ),
        (SECOND, "occupancy", lambda _: "ab" * 32, "chain", "do not have the digest that follows"),
        (FIRST_TERMS, "houses", lambda x: x[12:], "terms", "2 names for meters where 3 follow"),
        (FIRST_TERMS, "houses", lambda x: x[12:] + x[:12], "terms", "meters that are not in order"),
        (SECOND, "houses", "0" * 36, "terms", "other names for meters than record 3"),
        (SECOND, "houses", "", "terms", "0 names for meters where 3 follow"),
        (
            OPENS,
            "account",
            of_row(1, 0.0),
            "account",
            "another account than that of the records before it",
        ),
        (
            OPENS,
            "account",
            of_row(2, 9.0),
            "account",
            "another account than that of the records before it",
        ),
        (
            OPENS,
            "account",
            of_row(3, -0.6),
            "account",
            "another account than that of the records before it",
        ),
        (
            OPENS,
            "account",
            of_row(4, 0.5),
            "account",
            "another account than that of the records before it",
        ),
    ],
)
def test_a_record_that_states_another_figure(
    tmp_path: Path,
    honest: list[Record],
    place: int,
    name: str,
    value: Any,
    check: str,
    said: str,
) -> None:
    assert name in honest[place].body
    found = audited(tmp_path, forged(honest, place, **{name: value}), KINDS["interval"]())
    assert failures(found)[check].startswith(f"Record {place + 1}")
    assert said in failures(found)[check]


@pytest.mark.parametrize("n", [0, 1])
def test_a_better_account_of_a_gap_or_of_a_house_that_left(tmp_path: Path, n: int) -> None:
    zone = KINDS["interval of a file"]()
    records = ran(tmp_path, zone, gap=True)
    (place,) = (k for k, one in enumerate(records) if one.kind == "resume")
    value = [0.0, 9.0][n]
    found = audited(tmp_path, forged(records, place, account=of_row(n + 1, value)), zone)
    assert "a better account of what is booked as lost" in failures(found)["account"]
    (row,) = records[place].body["account"]
    rows = [[*row[:3], -sys.float_info.max, sys.float_info.max]]  # of any law
    left = TransferRecord("ab" * 32, "out", "oak", last=2**40, account=rows)
    told = [(one.kind, dict(one.body)) for one in records]
    told[0][1]["key"] = KEY.public
    for change, faults in ((left, 0), (replace(left, account=of_row(n + 1, value)(rows)), 1)):
        body = dict(change.to_body())
        found = audited(tmp_path, sealed([*told, ("transfer", body)], zone=zone.id), zone)
        assert ("of a house that leaves" in failures(found).get("account", "")) == bool(faults)


@pytest.mark.parametrize("name", ["start", "applies_start", "applies_from"])
def test_a_release_whose_rate_begins_at_another_time(
    tmp_path: Path, honest: list[Record], name: str
) -> None:
    assert honest[-1].kind == "release"
    due = honest[-1].body[name]
    records = forged(honest, len(honest) - 1, **{name: due + 1})
    found = audited(tmp_path, records, KINDS["interval"]())
    said = f"Record {len(honest)} (step 3) states {due + 1} for {name} where {due} follows"
    assert failures(found) == {"steps": found.check("steps").text}
    assert said in failures(found)["steps"]


def test_a_forecast_states_the_offset_of_its_estimate(tmp_path: Path) -> None:
    zone = KINDS["export"]()
    records = ran(tmp_path, zone)
    body = records[4].body
    assert (body["source"], body["offset"]) == ("forecast", 4 * 400)
    tariff = zone.scenario.tariff
    net = (body["estimate"] - body["offset"]) / 1000
    assert body["rate"] == pytest.approx(tariff.beta + tariff.alpha * net)
    (folder := tmp_path / "plain").mkdir()
    assert "offset" not in ran(folder, service(policy=ALL))[4].body
    for offset in (1, None):
        other = audited(tmp_path, forged(records, 4, offset=offset), zone)
        assert "another sum of export limits" in failures(other)["post_processing"]


def test_a_roster_names_export_registers(tmp_path: Path) -> None:
    zone = KINDS["export"]()
    assert roster_digest(zone) != roster_digest(replace(zone, registers=()))
    records = ran(tmp_path, zone)
    now = zone.begins
    found = audited(tmp_path, records, zone)
    assert failures(found) == {}
    swapped = replace(later(zone), registers=zone.registers[1:])
    assert "under terms" in failures(audited(tmp_path, records, swapped))["terms"]
    with (
        pytest.raises(LedgerError, match="serve --yes"),
        curator(tmp_path, swapped, Shown(), now=now + 4 * zone.seconds),
    ):
        pass
