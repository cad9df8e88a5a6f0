"""Lists of prices held against the terms by the audit, and by the standard library alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hushgrid.audit.certificate import Certificate, certify
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.records import Record
from tests.curator.curators import Shown, curator, everyone, feed
from tests.curator.price_lists import DAY, ahead_zone
from tests.curator.setups import BEGINS
from tests.stores.ledger.ledgers import KEY, lines_of, sealed
from tests.stores.ledger.verifier import SCRIPT

ZONE = ahead_zone(begins=BEGINS, publish_at=3600)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Lists of two days; a day that began without its list, with the curator away; releases."""
    folder, zone = tmp_path_factory.mktemp("honest"), ZONE
    with curator(folder, zone, Shown(), now=BEGINS) as it:
        for _ in range(6):
            feed(it, it.t, everyone(zone))
            it.run(it.next_due())
    for now in (BEGINS + 2 * DAY + 7200, BEGINS + 3 * DAY + 3700):
        with curator(folder, zone, Shown(), now=now) as it:
            it._clock.old = 0.0
            feed(it, now // 900, everyone(zone))
            it.run(now + 900, ahead=0.0)
            feed(it, it.t, everyone(zone))
            it.run(it.next_due())
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return list(store.records(zone.id))


def audited(folder: Path, records: list[Record]) -> Certificate:
    path = folder / "ledger.ndjson"
    path.write_bytes(lines_of(records))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
    return certify(evidence, [terms_of(ZONE)], chain=chain)


def verified(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder / "ledger.ndjson")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_lists_of_a_service_pass(honest: list[Record], tmp_path: Path) -> None:
    sources = [record.body["source"] for record in honest if record.kind == "prices"]
    assert sources[0] == "ahead"
    assert "carried" in sources
    certificate = audited(tmp_path, honest)
    failed = {check.id: check.text for check in certificate.checks if check.status == "failed"}
    assert failed == {}
    judged = verified(tmp_path)
    assert judged.returncode == 0, judged.stdout


CHANGES: dict[str, Any] = {
    "rates": lambda rates: [rates[0] * 1.01, *rates[1:]],
    "first": lambda first: first - DAY,
    "published_at": lambda at: at + 2 * DAY,
    "seconds": lambda seconds: 2 * seconds,
    "source": lambda source: "fallback",  # noqa: ARG005
    "simulated": lambda simulated: not simulated,
    "digest": lambda digest: "0" * 64,  # noqa: ARG005
    "zone": lambda zone: f"{zone}x",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_list_with_another_figure_fails(name: str, honest: list[Record], tmp_path: Path) -> None:
    """Signed again by its own publisher; the rates need the terms, all else the records alone."""
    bodies = [(record.kind, dict(record.body)) for record in honest]
    bodies[0][1]["key"] = KEY.public
    place = next(n for n, (kind, _) in enumerate(bodies) if kind == "prices")
    bodies[place][1][name] = CHANGES[name](bodies[place][1][name])
    forged = sealed(bodies, zone=honest[0].zone)
    certificate = audited(tmp_path, forged)
    assert any(check.status == "failed" for check in certificate.checks)
    assert (verified(tmp_path).returncode == 1) == (name != "rates")
