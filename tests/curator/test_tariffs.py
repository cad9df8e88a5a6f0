"""Another tariff takes effect at any interval: it touches no noise and begins no terms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgrid import Tariff
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.curator.changes import Changes, changes_of
from hushgrid.curator.terms import digest_of, stated_fields, tariff_figures
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.files.weeks import placed, planned_with
from hushgrid.mechanism.digest import tariff_from
from hushgrid.model.curve import Curve
from hushgrid.model.zone import FeedIn, public_rate
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.operate.check import examine
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check, fold
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import Ledger, verify_signature
from hushgrid.web.forecast import Forecaster
from tests.curator.curators import Shown, curator, everyone, feed
from tests.curator.hourly import HOUR, street
from tests.curator.planned import from_file
from tests.curator.price_lists import DAY, ShownLists, ahead_zone
from tests.curator.setups import BEGINS
from tests.curator.worlds import deployment
from tests.stores.ledger.ledgers import KEY, lines_of, sealed
from tests.stores.ledger.verifier import SCRIPT

OTHER = Tariff(3.0, 0.5, cap=9.0, feed_in=FeedIn(0.5, 0.25))
HOURS = (4, 5, 3)  # of each tariff, the last one again after a restart; blocks have 2 or 4 h
PROMISES = {
    "interval": Promise("interval", 0.9, block=4 * HOUR),
    "window": Promise("window", 1.0, window=12 * HOUR, block=4 * HOUR),
}


def priced(zone: ZoneService, tariff: Tariff) -> ZoneService:
    """The zone as its file gives it with another tariff, its plan included."""
    pattern = zone.pattern
    if pattern is None:
        return replace(zone, scenario=replace(zone.scenario, tariff=tariff))
    scenario = replace(pattern.scenario, tariff=tariff)
    return placed(replace(zone, pattern=replace(pattern, scenario=scenario)), zone.begins)


def ran(folder: Path, *zones: ZoneService) -> LedgerState:
    """Some hours by each file, agreed to at each start, with readings of every home."""
    now = float(zones[0].begins)
    for n, (zone, hours) in enumerate(zip(zones, HOURS, strict=True)):
        with curator(folder, zone, Shown(), now=now, new_terms=n == 1) as it:
            for _ in range(hours):
                feed(it, it.t, everyone(zone))
                now = float(it.next_due())
                assert len(it.run(now)) == 1
    return standing(folder, zones[0].id)


def stored(folder: Path, zone: str = "elm") -> list[Record]:
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return list(store.records(zone))


def standing(folder: Path, zone: str = "elm") -> LedgerState:
    report = check(stored(folder, zone), verify_signature)
    assert report.first_bad is None, report.reason
    return report.standings[zone]


def audited(folder: Path, records: list[Record], zone: ZoneService) -> Certificate:
    path = folder / "ledger.ndjson"
    path.write_bytes(lines_of(records))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
    return certify(evidence, [terms_of(zone)], chain=chain)


def failures(certificate: Certificate) -> dict[str, str]:
    return {found.id: found.text for found in certificate.checks if found.status == "failed"}


def verified(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder / "ledger.ndjson")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("secret", PROMISES)
@pytest.mark.sampled
def test_within_a_block_no_interval_is_without_a_price_from_readings(
    tmp_path: Path, secret: str
) -> None:
    """Noise and account are those of a service whose tariff has not changed."""
    zone = street(BEGINS, PROMISES[secret])
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    plain = ran(tmp_path / "one", zone, zone, zone)
    changed = ran(tmp_path / "other", zone, priced(zone, OTHER), priced(zone, OTHER))
    first = BEGINS // HOUR
    assert [release.t for release in changed.releases] == [*range(first, first + sum(HOURS))]
    assert {release.source for release in changed.releases} == {"readings"}
    assert len(changed.terms_records) == 1
    block = changed.releases[HOURS[0]].block
    assert block is None or block["length"] in (2, 4)
    assert [tariff.begins for tariff in changed.tariffs] == [BEGINS, BEGINS + HOURS[0] * HOUR]
    for names in ("load_hat", "scale", "epsilon", "account", "windows", "digest", "put_back"):
        assert [getattr(release, names) for release in plain.releases] == [
            getattr(release, names) for release in changed.releases
        ]
    for n, release in enumerate(changed.releases):
        tariff = zone.scenario.tariff if n < HOURS[0] else OTHER
        load = release.load_hat + release.put_back if release.estimate is None else release.estimate
        assert release.rate == public_rate(load, tariff)
        assert (release.feed_in is None) == (n < HOURS[0])


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    folder, zone = tmp_path_factory.mktemp("honest"), street(BEGINS, PROMISES["interval"])
    ran(folder, zone, priced(zone, OTHER), priced(zone, OTHER))
    return stored(folder)


def test_audit_and_verifier_find_it_good(honest: list[Record], tmp_path: Path) -> None:
    zone = street(BEGINS, PROMISES["interval"])
    for present in (zone, priced(zone, OTHER)):  # the file of then, and of now
        certificate = audited(tmp_path, honest, present)
        assert failures(certificate) == {}
        assert certificate.check("account").status == "passed"
        assert certificate.check("float_noise").status == "passed"
    judged = verified(tmp_path)
    assert judged.returncode == 0, judged.stdout


FIRST, SECOND = 1, 2 + 1 + HOURS[0]  # places of the tariffs


@pytest.mark.parametrize("place", [FIRST, SECOND])
@pytest.mark.parametrize(
    ("change", "chain"),
    [
        (lambda body: body | {"figures": {**body["figures"], "alpha": 1.5}}, False),
        (lambda body: body | {"figures": {"beta": 1.0}}, False),
        (lambda body: body | {"begins": body["begins"] - HOUR}, True),
        (lambda body: body | {"begins": body["begins"] + HOUR}, True),
        (lambda body: body | {"figures": {"alpha": "1"}}, True),
        (lambda body: {"figures": body["figures"]}, True),
    ],
)
@pytest.mark.sampled
def test_a_forged_tariff_fails(
    honest: list[Record],
    tmp_path: Path,
    place: int,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    chain: bool,
) -> None:
    """Signed again by its own publisher: its prices do not follow from it, or it begins at no time
    that the records allow."""
    bodies = [(record.kind, dict(record.body)) for record in honest]
    bodies[0][1]["key"] = KEY.public
    assert bodies[place][0] == "tariff"
    earlier = place == FIRST and change(bodies[place][1]).get("begins", BEGINS) < BEGINS
    bodies[place] = ("tariff", change(bodies[place][1]))
    certificate = audited(
        tmp_path, sealed(bodies, zone="elm"), street(BEGINS, PROMISES["interval"])
    )
    assert bool(failures(certificate)) == (not earlier)  # before all prices it prices nothing else
    assert ("chain" in failures(certificate)) == (chain and not earlier)
    assert (verified(tmp_path).returncode == 1) == (chain and not earlier)


def test_a_ledger_without_its_tariff_fails(honest: list[Record], tmp_path: Path) -> None:
    bodies = [(record.kind, dict(record.body)) for record in honest if record.kind != "tariff"]
    bodies[0][1]["key"] = KEY.public
    certificate = audited(
        tmp_path, sealed(bodies, zone="elm"), street(BEGINS, PROMISES["interval"])
    )
    assert "no tariff is on record" in failures(certificate)["post_processing"]


def found_changes(folder: Path, zone: ZoneService, now: float) -> Changes:
    return changes_of(deployment(folder, zone, key=folder / "key"), now)


def test_another_tariff_is_asked_for_and_said(tmp_path: Path) -> None:
    zone = street(BEGINS, PROMISES["interval"])
    ran(tmp_path, zone, zone, zone)
    other, now = priced(zone, OTHER), BEGINS + sum(HOURS) * HOUR
    with (
        pytest.raises(LedgerError, match=r"the tariff of zone 'elm'.* --yes"),
        curator(tmp_path, other, Shown(), now=now),
    ):
        pass
    changes = found_changes(tmp_path, other, now)
    assert "the tariff of the file begins at 2026-01-05T12:00:00Z" in changes.zones["elm"]
    assert found_changes(tmp_path, zone, now).zones == {}
    (present,) = changes.deployment.zones
    assert digest_of(present) == standing(tmp_path).terms_records[0].digest
    both = priced(street(BEGINS, Promise("interval", 0.5)), OTHER)
    words = found_changes(tmp_path, both, now).zones["elm"]
    assert "the promise" in words
    assert "the tariff" in words


def test_check_says_it_and_begins_nothing(tmp_path: Path) -> None:
    zone = street(BEGINS, PROMISES["interval"])
    ran(tmp_path, zone, zone, zone)
    made = deployment(tmp_path, priced(zone, OTHER), key=tmp_path / "key")
    findings = examine(made)
    (remark,) = (text for text in findings.remarks if "tariff" in text)
    assert "the tariff of the file begins at 2026-01-05T12:00:00Z" in remark
    assert not findings.running["elm"].new
    plain = examine(deployment(tmp_path, zone, key=tmp_path / "key"))
    assert not any("tariff" in text for text in plain.remarks)


@pytest.mark.soak
def test_terms_keep_the_plan_that_their_own_tariff_led_to(tmp_path: Path) -> None:
    """A plan weighs errors of prices: by another tariff it may be another."""
    zone, other = from_file(tmp_path, (0.0275, 0.05)), from_file(tmp_path, (0.0275, 0.5))
    assert stated_fields(zone)["plan"] != stated_fields(other)["plan"]
    assert digest_of(planned_with(other, zone.scenario.tariff)) == digest_of(zone)
    now = float(BEGINS)
    for n, (file, steps) in enumerate(zip((zone, other, other), HOURS, strict=True)):
        found = found_changes(tmp_path, file, now)
        assert bool(found.zones) == (n == 1)
        with curator(tmp_path, *found.deployment.zones, Shown(), now=now, new_terms=n == 1) as it:
            for _ in range(steps):
                feed(it, it.t, everyone(file))
                now = float(it.next_due())
                it.run(now)
    state = standing(tmp_path)
    assert (len(state.terms_records), len(state.tariffs)) == (1, 2)
    assert [release.source for release in state.releases] == ["readings"] * sum(HOURS)
    for present in (zone, other):
        certificate = audited(tmp_path, stored(tmp_path), present)
        assert failures(certificate) == {}
        assert certificate.check("terms").status == "passed"


def test_a_published_list_stays_and_the_next_has_the_new_tariff(tmp_path: Path) -> None:
    zone, shown, now = ahead_zone(publish_at=3600), ShownLists(), float(BEGINS)
    for n, running in enumerate((zone, priced(zone, Tariff(0.5, 4.0)))):
        with curator(tmp_path, running, shown, now=now, new_terms=n > 0) as it:
            while it.t * 900 < BEGINS + (6 + n * 100) * 900:
                feed(it, it.t, everyone(zone))
                now = float(it.next_due())
                it.run(now)
    first, second = (record for record in standing(tmp_path).lists)
    assert (first.first, second.first) == (BEGINS + DAY, BEGINS + 2 * DAY)
    assert max(first.rates) < 4.0 <= min(second.rates)
    prices = {price.applies_start: price for price in standing(tmp_path).prices}
    assert prices[BEGINS + DAY].rate == first.rates[0]
    assert failures(audited(tmp_path, stored(tmp_path), zone)) == {}
    judged = verified(tmp_path)
    assert judged.returncode == 0, judged.stdout


def test_earlier_prices_have_no_range_of_the_new_tariff(tmp_path: Path) -> None:
    zone = street(BEGINS, PROMISES["interval"])
    other = priced(zone, OTHER)
    state = ran(tmp_path, zone, other, other)
    assert state.tariff is not None
    ranges = Forecaster(other, state.tariff.begins).after(state.releases).ranges
    first = BEGINS // HOUR + HOURS[0]
    assert sorted(ranges) == [*range(first, first + sum(HOURS[1:]))]
    assert sorted(Forecaster(zone).after(state.releases[: HOURS[0]]).ranges) == [
        *range(first - HOURS[0], first)
    ]


def test_killed_between_tariff_and_terms(tmp_path: Path) -> None:
    """A tariff that is on record and has not begun is recorded again where the zone goes on."""
    zone = street(BEGINS, PROMISES["interval"])
    ran(tmp_path, zone, zone, zone)
    now = BEGINS + sum(HOURS) * HOUR
    other = placed(priced(street(BEGINS, Promise("interval", 0.5)), OTHER), now + 4 * HOUR)

    class Killed(BaseException):
        pass

    with pytest.MonkeyPatch.context() as patch:
        write = Ledger.write

        def dies(self: Ledger, entry: Any) -> Any:
            if entry.kind == "terms":
                raise Killed
            return write(self, entry)

        patch.setattr(Ledger, "write", dies)
        with (
            pytest.raises(Killed),
            curator(tmp_path, other, Shown(), now=now, new_terms=True),
        ):
            pass
    assert stored(tmp_path)[-1].kind == "tariff"
    with curator(tmp_path, priced(zone, OTHER), Shown(), now=now) as it:  # the old promise again
        feed(it, it.t, everyone(zone))
        it.run(it.next_due())
    state = standing(tmp_path)
    assert [tariff.begins for tariff in state.tariffs[-2:]] == [now + 4 * HOUR, now]
    assert state.releases[-1].source == "readings"
    assert failures(audited(tmp_path, stored(tmp_path), zone)) == {}


@pytest.mark.parametrize(
    "tariff",
    [
        Tariff(0.1, 0.2, gamma=3.0, inelastic=40, floor=-1.0, cap=2.0, smooth=0.25),
        Tariff(
            curve=Curve(points=[(0, 0.1), (10, 0.1), (20, 0.5)]), feed_in=FeedIn(1.0, 2.0, cap=3.0)
        ),
        Tariff(curve=Curve(tiers=[(0, 0.1), (10, 0.3)])),
        Tariff(curve=Curve(scarcity=[(0.5, 0.1), (0.9, 2.0)], capacity=120.0)),
    ],
)
def test_a_tariff_comes_back_from_its_figures(tmp_path: Path, tariff: Tariff) -> None:
    zone = priced(street(BEGINS, PROMISES["interval"]), tariff)
    with curator(tmp_path, zone, Shown(), now=BEGINS) as it:
        feed(it, it.t, everyone(zone))
        it.run(it.next_due())
    state = fold(stored(tmp_path))
    assert state.tariff is not None
    assert tariff_from(state.tariff.figures) == tariff
    assert dict(state.tariff.figures).keys() == tariff_figures(zone).keys()
