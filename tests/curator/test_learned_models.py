"""Learned models in a running zone: what they cost is charged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hushgrid import (
    LedgerError,
)
from hushgrid.files.zone_file import Provenance
from hushgrid.stores.ledger.chain import follow
from hushgrid.stores.ledger.records import NOTHING, seal
from tests import bodies
from tests.curator.curators import FIRST, Shown, curator, feed
from tests.curator.setups import BEGINS, service

DIGEST = "ab" * 32


def test_what_pooled_models_cost_is_in_the_ledger(tmp_path: Path) -> None:
    zone = service()
    zone = replace(zone, learned=Provenance("pooled", 1.2, 20, DIGEST))
    shown = Shown()
    with curator(tmp_path, zone, shown) as it:
        feed(it, FIRST, [0])
        it.run(BEGINS + 3 * 900)
        assert dict(it._ledger.standing.charged) == {DIGEST: 1.2}
        assert it._ledger.standing.epsilon == pytest.approx(1.7)  # with one release of 0.5
    assert [one.source for one in shown.releases] == ["readings", "forecast", "forecast"]
    with curator(tmp_path, zone, Shown(), now=BEGINS + 4 * 900) as it:  # nothing is charged twice
        assert it._ledger.standing.epsilon == pytest.approx(1.7)


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
