"""What records of houses that move state, held against the records before them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hushgrid import Policy
from hushgrid.audit.accounts import transfers
from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import Evidence
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.policy import Blocks
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.epoch import house_names
from hushgrid.service.gaps import book
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.records import Record, seal
from hushgrid.service.ledger.writer import load
from tests import bodies
from tests.service.ledger.ledgers import KEY, lines_of
from tests.service.setups import BEGINS, service
from tests.service.test_curator import Shown, curator
from tests.service.test_transfer import left, run_on

CAME = {"epsilon": 0.05, "total": 3.0, "last": BEGINS + 5 * 900}
LATER = BEGINS + 12 * 900
Body = dict[str, Any]
KINDS = {
    "plain": Policy(0.5, horizon=8),
    "blocks": Policy(0.5, horizon=8, schedule=Blocks((2, 6), (0.3, 0.5))),
}


def zones_of(kind: str, begins: int) -> list[ZoneService]:
    elm = service(2, "elm", KINDS[kind], begins=begins)
    return [elm, service(2, "oak", Policy(0.5, horizon=8), begins=begins)]


def moved(folder: Path, kind: str) -> list[Record]:
    """Both ledgers: a house came to elm with something, lost more there and left for oak."""
    first, oak = zones_of(kind, BEGINS)
    run_on(folder, oak, 1)
    run_on(folder, first, 2)
    (name,) = house_names(load(folder / "key"), ["elm-0"])
    with curator(folder, first, Shown(), now=BEGINS) as it:
        it._ledger.append("transfer", bodies.transfer(name, "in", "ash", out="ab" * 32, **CAME))
    second, _ = zones_of(kind, LATER)
    run_on(folder, second, 3, new_epoch=True)
    with curator(folder, second, Shown(), now=LATER) as it:
        it._ledger.append("gap", bodies.gap(it.t, it.t, "meters"))
        book(second, it._ledger)
    left(folder, second, oak)
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return [record for zone in ("elm", "oak") for record in store.records(zone)]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return moved(tmp_path_factory.mktemp("honest"), "plain")


def forged(honest: list[Record], change: Callable[[Body], None]) -> list[Record]:
    """The ledgers with another move to oak, signed again by their publisher."""
    made: list[Record] = []
    digests: dict[str, str] = {}
    for one in honest:
        body = dict(one.body)
        if one.kind == "genesis":
            body["key"] = KEY.public
        if one.kind == "transfer" and body["other"] != "ash":
            change(body)
            body["out"] = digests.get(body["out"])
        prev = digests.get(one.prev, one.prev)
        made.append(seal(one.zone, one.seq, one.kind, body, prev, KEY.sign))
        digests[one.digest] = made[-1].digest
    return made


def evidence(folder: Path, records: list[Record]) -> tuple[Evidence, ...]:
    (folder / "ledger.ndjson").write_bytes(lines_of(records))
    found, chain = load_ledger(str(folder / "ledger.ndjson"), zone=None, key=None, heads=())
    assert chain.status == "passed", chain.text
    return found


def less(name: str, by: float) -> Callable[[Body], None]:
    return lambda body: body.update({name: body[name] - by})


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_move_records_passes_and_no_less(tmp_path: Path, kind: str) -> None:
    """What it came with, releases since then, each block once, and a gap."""
    honest = moved(tmp_path, kind)
    found = evidence(tmp_path, honest)
    assert [transfers(one) for one in found] == [[], []]
    for name, by in (("total", 1e-6), ("last", 1)):
        elm, _ = evidence(tmp_path, forged(honest, less(name, by)))
        (fault,) = transfers(elm)
        assert fault.status == "failed"
        assert f" for {name} of a house that leaves, where" in fault.text
    if kind == "plain":
        terms = [terms_of(one) for one in zones_of(kind, LATER)]
        verdicts = [certify(one, terms).check("budget").status for one in (found, [elm])]
        assert verdicts == ["passed", "failed"]
