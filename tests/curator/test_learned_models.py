"""Learned models in a running zone: what they cost is charged."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid import LedgerError
from hushgrid.audit.certificate import certify
from hushgrid.curator.clock import utc
from hushgrid.errors import ConfigError
from hushgrid.files.zone_file import Provenance
from hushgrid.operate.audit import load_case
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import follow
from hushgrid.stores.ledger.records import NOTHING, seal
from tests import bodies
from tests.curator.curators import FIRST, Shown, curator, feed
from tests.curator.setups import BEGINS, service
from tests.curator.streets import HOUR, load, publish, standing, verified
from tests.stores.ledger.ledgers import KEY, lines_of, sealed
from tests.stores.ledger.verifier import SCRIPTED

DIGEST = "ab" * 32
WINDOW = (('secret = "interval"', 'secret = "window"\nwindow = "PT12H"'),)


def test_what_pooled_models_cost_is_in_the_ledger(tmp_path: Path) -> None:
    zone = service()
    zone = replace(zone, learned=Provenance("pooled", 1.2, 20, DIGEST, BEGINS - 900, BEGINS))
    shown = Shown()
    with curator(tmp_path, zone, shown) as it:
        feed(it, FIRST, [0])
        it.run(BEGINS + 3 * 900)
        assert dict(it._ledger.standing.charged) == {DIGEST: 1.2}
        assert it._ledger.standing.epsilon == pytest.approx(1.7)  # with one release of 0.5
    assert [one.source for one in shown.releases] == ["readings", "forecast", "forecast"]
    with curator(tmp_path, zone, Shown(), now=BEGINS + 4 * 900) as it:  # nothing is charged twice
        assert it._ledger.standing.epsilon == pytest.approx(1.7)


def test_a_charge_of_later_readings_counts_after_terms_without_an_account(tmp_path: Path) -> None:
    """Left out, windows would lose what they promise and the charge."""
    step = load(tmp_path, BEGINS, ('secret = "interval"', 'secret = "step"'))
    with curator(tmp_path, step, Shown(), now=BEGINS) as it:
        publish(it, 4)
    change = BEGINS + 4 * HOUR
    later = LEARNED.replace(utc(BEGINS), utc(change + 12 * HOUR))
    zone = load(tmp_path, change, *WINDOW, ("[policy]", later))
    with curator(tmp_path, zone, Shown(), now=change, new_terms=True) as it:
        publish(it, 8)
    windows = standing(tmp_path).latest_windows
    assert windows is not None
    assert (change, change + 12 * HOUR - 1, 0.6) in map(tuple, windows.rows[1])
    verified(tmp_path)


def test_the_same_models_are_charged_once() -> None:
    body = bodies.charge("models", 1.0, digest=DIGEST, homes=20, first=0, last=899)
    key = "00" * 32

    def sign(_: str) -> str:
        return "11" * 64

    genesis = seal("z", 1, "genesis", bodies.genesis("simulation", key, 0), NOTHING, sign)
    first = seal("z", 2, "charge", body, genesis.digest, sign)
    place = follow(follow(None, genesis), first)
    with pytest.raises(LedgerError, match="charged already"):
        follow(place, seal("z", 3, "charge", body, first.digest, sign))


LEARNED = f"""[learned]
provenance = "pooled"
homes = 20
epsilon = 0.6
digest = "{DIGEST}"
first_reading = {utc(BEGINS - 6 * HOUR)}
last_reading = {utc(BEGINS)}

[policy]"""


def test_every_window_that_touches_the_readings_of_a_model_pays_for_it(tmp_path: Path) -> None:
    """Without the charge in the account they lose more than is promised."""
    for name in ("pooled", "free"):
        (tmp_path / name).mkdir()
    pooled, free = (
        load(tmp_path / name, BEGINS, *WINDOW, *changes)
        for name, changes in (("pooled", [("[policy]", LEARNED)]), ("free", []))
    )
    spent = {}
    for zone, folder in ((pooled, tmp_path / "pooled"), (free, tmp_path / "free")):
        with curator(folder, zone, Shown(), now=BEGINS) as it:
            publish(it, 30)
        rows = [release.windows for release in standing(folder).releases if release.windows]
        spent[folder.name] = sorted({tuple(block) for _, blocks in rows for block in blocks})
        verified(folder)
    charge = (BEGINS - 6 * HOUR, BEGINS - 1, 0.6)
    assert spent["pooled"][0] == charge
    assert pooled.promise is not None
    assert pooled.promise.window == 12 * HOUR

    def worst(blocks: Sequence[tuple[float, ...]]) -> float:
        """What the window that loses most loses; windows begin with a reading of the model."""
        return max(
            math.fsum(
                loss for first, last, loss in blocks if first < end and last >= end - 12 * HOUR
            )
            for end in range(BEGINS + 6 * HOUR, BEGINS + 42 * HOUR, HOUR)
        )

    assert worst(spent["pooled"]) <= 1 + 1e-9
    assert worst([charge, *spent["free"]]) > 1.4
    sources = [release.source for release in standing(tmp_path / "pooled").releases]
    assert sources[-12:] == ["readings"] * 12
    case = load_case(str(tmp_path / "pooled" / "ledger.db"), [tmp_path / "pooled" / "service.toml"])
    checks = certify(case.evidence, case.terms).checks
    assert [check.text for check in checks if check.status == "failed"] == []


@pytest.mark.parametrize("change", ["since", "charge", "none"])
def test_an_account_that_leaves_out_a_charge_fails(tmp_path: Path, change: str) -> None:
    zone = load(tmp_path, BEGINS, *WINDOW, ("[policy]", LEARNED))
    with curator(tmp_path, zone, Shown(), now=BEGINS) as it:
        publish(it, 14)
    with open_store(str(tmp_path / "ledger.db"), create=False) as store:
        story = [
            (record.kind, json.loads(record.line)["body"]) for record in store.records("elm-street")
        ]
    story[0][1]["key"] = KEY.public
    for _, body in story:
        promises, spent = body.get("windows", ([], []))
        if promises and change == "since":
            promises[0][2] = BEGINS
        elif change == "charge":
            spent[:] = [block for block in spent if block[2] != 0.6]
    records = sealed(story)
    good, text = SCRIPTED.verify(lines_of(records).splitlines(keepends=True))
    assert good == (change == "none"), text


def test_models_are_not_charged_to_windows_whose_prices_are_out(tmp_path: Path) -> None:
    zone = load(tmp_path, BEGINS, *WINDOW)
    with curator(tmp_path, zone, Shown(), now=BEGINS) as it:
        publish(it, 8)
    later = BEGINS + 24 * HOUR
    text = LEARNED.replace(utc(BEGINS), utc(BEGINS + 6 * HOUR))
    changed = load(tmp_path, later, *WINDOW, ("[policy]", text))
    before = len(standing(tmp_path).terms_records)
    with (
        pytest.raises(LedgerError, match="share windows of 43200 s"),
        curator(tmp_path, changed, Shown(), now=later, new_terms=True),
    ):
        pass
    assert len(standing(tmp_path).terms_records) == before, "nothing is recorded"
    apart = LEARNED.replace(utc(BEGINS - 6 * HOUR), utc(BEGINS - 9 * HOUR)).replace(
        f"last_reading = {utc(BEGINS)}", f"last_reading = {utc(BEGINS - HOUR)}"
    )
    changed = load(tmp_path, later, *WINDOW, ("[policy]", apart))
    with curator(tmp_path, changed, Shown(), now=later, new_terms=True) as it:
        assert dict(it._ledger.standing.charged) == {DIGEST: 0.6}


def test_a_file_promises_at_least_what_its_models_cost(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"learned.epsilon is 1.2 but policy.epsilon is 1"):
        load(tmp_path, BEGINS, *WINDOW, ("[policy]", LEARNED.replace("0.6", "1.2")))
    with pytest.raises(ConfigError, match=r"learned.first_reading is not set"):
        load(tmp_path, BEGINS, ("[policy]", LEARNED.replace("first_reading", "# ")))
