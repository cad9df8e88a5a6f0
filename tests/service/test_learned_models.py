"""Learned models in a running zone: what they cost is charged, private ones shape nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid import LedgerError, Noise
from hushgrid.files.zone_file import Provenance
from hushgrid.service.ledger.chain import follow
from hushgrid.service.ledger.records import NOTHING, seal
from tests import bodies
from tests.service.setups import BEGINS, reading, service
from tests.service.test_curator import FIRST, Shown, curator, feed

DIGEST = "ab" * 32


class Silence(Noise):
    def draw(self, scale: float) -> int:
        return 0


def test_what_pooled_models_cost_is_in_the_ledger_and_of_the_budget(tmp_path: Path) -> None:
    zone = service(budget=2.0)
    zone = replace(zone, learned=Provenance("pooled", 1.2, 20, DIGEST))
    shown = Shown()
    with curator(tmp_path, zone, shown) as it:
        feed(it, FIRST, [0])
        it.run(BEGINS + 3 * 900)
        assert dict(it._ledger.standing.charged) == {DIGEST: 1.2}
        assert it.status.spent == pytest.approx(1.7)  # one release of 0.5 fits, two do not
        assert it._ledger.standing.epsilon == pytest.approx(1.7)
    assert [one.source for one in shown.releases] == ["readings", "forecast", "forecast"]
    with curator(tmp_path, zone, Shown(), now=BEGINS + 4 * 900) as it:  # nothing is charged twice
        assert it.status.spent == pytest.approx(1.7)


def test_a_private_model_fills_no_gap_and_makes_no_forecast(tmp_path: Path) -> None:
    zone = service(budget=0.6, fallback_rate=7.0)
    zone = replace(zone, learned=Provenance("private"))
    shown = Shown()
    with curator(tmp_path, zone, shown, noise=Silence()) as it:
        feed(it, FIRST, [0, 2])
        it.run(BEGINS + 2 * 900)
    first, second = shown.releases
    assert first.load_hat == sum(min(max(reading(h, FIRST), 0), 1000) for h in (0, 2))
    assert (second.source, second.rate, second.estimate) == ("fallback", 7.0, None)
    public = Shown()
    (tmp_path / "public").mkdir()
    with curator(tmp_path / "public", replace(zone, learned=Provenance()), public) as it:
        feed(it, FIRST, [0])
        feed(it, FIRST + 1, [0])
        it.run(BEGINS + 2 * 900)
    assert [one.source for one in public.releases] == ["readings", "forecast"]


def test_the_same_models_are_charged_once() -> None:
    body = bodies.charge("models", 1.0, digest=DIGEST, homes=20)
    key = "00" * 32

    def sign(_: str) -> str:
        return "11" * 64

    genesis = seal("z", 1, "genesis", bodies.genesis("simulation", key, 0), NOTHING, sign)
    first = seal("z", 2, "charge", body, genesis.digest, sign)
    place = follow(follow(None, genesis), first)
    with pytest.raises(LedgerError, match="charged already"):
        follow(place, seal("z", 3, "charge", body, first.digest, sign))
