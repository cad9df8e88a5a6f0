"""Learned models in a running zone: what they cost is charged, private ones shape nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    LedgerError,
    Noise,
    OccupancyModel,
    Scenario,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
)
from hushgrid.audit.certificate import certify
from hushgrid.files.interval_plan import in_meter_order, without_private_models
from hushgrid.files.service_file import load_deployment
from hushgrid.files.zone_file import Provenance
from hushgrid.mechanism.digest import world_digest
from hushgrid.report.certificate import certificate_json
from hushgrid.service.audit import fingerprint, load_ledger, terms_of
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import follow
from hushgrid.service.ledger.records import NOTHING, schedule_digest, seal
from hushgrid.service.ledger.writer import create
from hushgrid.service.promise import promise_json
from tests import bodies
from tests.service.setups import BEGINS, reading, service, service_text
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


HOUSES = {  # of each meter what is public: import bound and export limit [Wh], declared chain
    "h0": (250, 0, "free"), "h1": (250, 0, "free"), "h2": (250, 0, "free"), "h3": (150, 0, "free"),
    "h4": (150, 50, "free"), "h5": (150, 50, "free"), "h6": (250, 0, "nights"),
    "h7": (150, 50, "nights"),
}  # fmt: skip
CHAINS = {  # the two of a kind differ in what was learned, not in what is declared
    "free-0": 'home_at_start = 0.5, periods = [{ from = "00:00", leave = 0.1, come = 0.2 }]',
    "free-1": 'home_at_start = 0.3, periods = [{ from = "00:00", leave = 0.2, come = 0.4 }]',
    "nights-0": 'home_at_start = 1.0, periods = [{ from = "00:00", leave = 0.0, come = 0.2 },'
    ' { from = "06:00", leave = 0.1, come = 0.2 }]',
    "nights-1": 'home_at_start = 1.0, periods = [{ from = "00:00", leave = 0.0, come = 0.3 },'
    ' { from = "06:00", leave = 0.3, come = 0.1 }]',
}


def grouped(of_home: str, *, backwards: bool = False, followed: bool = False) -> str:
    """A service file; the digits are the private group of each meter in turn."""
    groups = dict[tuple[int, int, str], list[str]]()
    for (meter, (bound, export, chain)), group in zip(HOUSES.items(), of_home, strict=True):
        groups.setdefault((bound, export, f"{chain}-{group}"), []).append(meter)
    each = sorted(groups.items(), reverse=backwards)
    text = service_text("2026-01-05T00:00:00Z", tariff=(1.0, 2.0), more="grace = 0")
    text += "floor = -9.0\n[policy]\nepsilon = 0.5\nhorizon = 8\n"
    if followed:
        text += 'estimator = "releases"\npublish = "estimate"\nusual = 70.0\n'
    text += '[learned]\nprovenance = "private"\nhomes = 8\n'
    for (bound, export, chain), meters in each:
        text += f'[[houses]]\ncount = {len(meters)}\nmeters = {meters}\nchain = "{chain}"\n'
        text += f"bound = {bound}\nexport = {export}\n"
        text += 'absent = { law = "uniform", top = 60 }\npresent = { law = "uniform", top = 140 }\n'
    text += '[[models]]\nname = "learned"\nstructural_zeros = "by contract"\n[models.chains]\n'
    return text + "".join(f"{name} = {{ {chain} }}\n" for name, chain in CHAINS.items())


@pytest.mark.parametrize("followed", [False, True])
def test_nothing_public_depends_on_the_private_group_of_a_home(
    tmp_path: Path, followed: bool
) -> None:
    """Other groups and another order in the file: the same ledger, certificate and promise."""
    create(tmp_path / "key")
    found, orders = [], set()
    for n, (groups, backwards) in enumerate((("00010100", False), ("01101001", True))):
        (folder := tmp_path / str(n)).mkdir()
        copyfile(tmp_path / "key", folder / "key")
        (folder / "key").chmod(0o600)
        text = grouped(groups, backwards=backwards, followed=followed)
        (folder / "service.toml").write_text(text)
        (zone,) = load_deployment(folder / "service.toml").zones
        orders.add(zone.meters)
        assert fingerprint(folder / "service.toml") is None, "it is in certificates"
        with curator(folder, zone, Shown(), noise=SimulatedNoise(5)) as it:
            for t in range(3):
                houses = [zone.meters.index(meter) for meter in HOUSES]
                wh = [reading(house, t) % 140 for house in range(len(HOUSES))]
                start = it.start_of(it.t)
                it._meters.put("elm", houses, [start] * 8, [900] * 8, wh)
                it.run(it.next_due())
        with open_store(str(folder / "ledger.db"), create=False) as store:
            records = [dict(one.body) for one in store.records("elm")]
        evidence, chain = load_ledger(str(folder / "ledger.db"), zone=None, key=None, heads=())
        made = certify(evidence, [terms_of(zone)], chain=chain, commit=schedule_digest)
        found.append((*records, certificate_json(made), promise_json(zone, "simulation")))
        assert made.verdict == "passed", [one for one in made.checks if one.status == "failed"]
    assert len(orders) == 2
    for one, other in zip(*found, strict=True):
        assert one == other


def test_blocks_of_private_models_are_in_the_order_of_meters_too() -> None:
    """In each block the second meter of the alphabet is home alone at no time."""

    def world(meters: str, blocks: tuple[str, ...]) -> Scenario:
        first, moves = [], []
        for block in blocks:
            lone = sum(
                1 << len(block) - 1 - i for i, m in enumerate(block) if m == sorted(block)[1]
            )
            possible = np.arange(2 ** len(block)) != lone
            first.append(possible / possible.sum())
            moves.append([[first[-1]] * len(possible)])
        numbers = [[meters.index(m) for m in block] for block in blocks]
        theta = OccupancyModel.blocked(numbers, first, moves)
        f = Consumption.by_class(absent=[Uniform(9)], present=[Uniform(9)], class_of=[0] * 7)
        return Scenario(Zone("z", [100 + ord(m) for m in meters]), Tariff(1.0, 2.0), (theta,), f)

    one, *others = (
        in_meter_order(without_private_models(world(meters, blocks)), meters)
        for meters, blocks in (
            ("abcdefg", ("ab", "cd", "efg")),
            ("dacbgef", ("dc", "ba", "gef")),
            ("gfedcba", ("efg", "ba", "cd")),
        )
    )
    assert {world_digest(*other.terms) for other in others} == {world_digest(*one.terms)}
    assert one.zone.bound.tolist() == [100 + ord(m) for m in "abcdefg"]
    pair, three = one.models[0].chains
    assert (pair.initial[0, 1], three.initial[0, 2]) == (0.0, 0.0)
    unlike = in_meter_order(
        without_private_models(world("abcdefg", ("ac", "bd", "efg"))), "abcdefg"
    )
    assert world_digest(*unlike.terms) != world_digest(*one.terms)
