"""Terms whose steps differ in length: compared by time, since their numbers differ as well."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import OccupancyModel
from hushgrid.audit.accounts import budget
from hushgrid.curator.gaps import book
from hushgrid.curator.status import status_of
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Promise, ZoneService
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import fold, follow
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature
from hushgrid.web.http import prices
from hushgrid.web.prices import History
from tests import bodies
from tests.curator.borders import exact
from tests.curator.curators import Shown, curator
from tests.curator.setups import BEGINS
from tests.curator.setups import service as service_of
from tests.curator.transfers import left, run_on, two
from tests.operate.faults import QUARTER, World, service, wh, zone
from tests.stores.ledger.ledgers import KEY, LAWS, OTHER_LAWS, START, lines_of, read, sealed
from tests.web.http.faces import NDJSON, as_ndjson

VERIFIER = Path(__file__).parents[2] / "scripts" / "verify_ledger.py"
STEPS = 3


def standing(folder: Path, name: str = "elm") -> LedgerState:
    with open_store(str(folder / "ledger.db")) as store:
        return fold(store.records(name), verify_signature)


def verified(file: Path, lines: bytes) -> str:
    """What the script says of an export."""
    file.write_bytes(lines)
    ended = subprocess.run(
        [sys.executable, VERIFIER, file], capture_output=True, text=True, check=False
    )
    return ended.stdout


def lengths(folder: Path, *seconds: int) -> ZoneService:
    """Terms of so many steps each, one after the other; the last ones."""
    at, made = BEGINS, service_of()
    for number, length in enumerate(seconds):
        made, _ = two(length, at=at)
        run_on(folder, made, STEPS, new_terms=number > 0)
        at += STEPS * length
    return made


def test_an_interval_becomes_longer_and_shorter_again(tmp_path: Path) -> None:
    _, oak = two()
    run_on(tmp_path, oak, 0)
    last = lengths(tmp_path, 300, 900, 1800, 900)
    found = standing(tmp_path)
    ends = [one.start + found.terms_of(one).seconds for one in found.releases]
    assert all(one.start == end for one, end in zip(found.releases[1:], ends, strict=False))
    assert [len(found.current), found.reach] == [STEPS, ends[-1]]
    now = status_of(last, found, ends[-1])
    assert (now.t, now.state) == (found.releases[-1].t, "publishing")
    with open_store(str(tmp_path / "ledger.db")) as store:
        lines = lines_of(list(store.records("elm")))
    assert verified(tmp_path / "export", lines).startswith("good:")
    assert left(tmp_path, last, oak) == ends[-1]
    ((elm,), chain) = load_ledger(str(tmp_path / "ledger.db"), zone="elm", key=None, heads=())
    assert (chain.status, elm.repeated) == ("passed", None)
    assert budget(elm, {terms_of(last).digest: terms_of(last)}).status == "passed"


@pytest.mark.usefixtures("loop_patience")
def test_prices_of_longer_intervals_are_served(tmp_path: Path) -> None:
    world = World(service(tmp_path))
    world.play(lambda world: world.whole(2))
    new = zone("elm", begins=(world.t + world.t % 2) * QUARTER, seconds=1800, grace=0)
    later = World(replace(world.made, zones=(new,)), world.t)

    def story(world: World) -> Iterator[None]:
        for k in range(2):
            start = new.begins + 1800 * k
            rows = [(meter, start, 1800, wh(h, k)) for h, meter in enumerate(new.meters)]
            world.time = world.steady = float(start)
            yield
            answer = world._web.post("/v1/readings", content=as_ndjson(rows), headers=NDJSON)
            assert answer.json()["accepted"] == len(rows)
            world.time = world.steady = float(start + 1805)
            yield
            world.look()
            price = world.get("/v1/price").json()
            assert price["source"] == ("readings" if k else "forecast"), "what was expected of it"
            assert price["next"]["head"] == world.standing().head.digest
            assert world.get("/v1/prices").json()["forecast"], "expected prices follow it"

    later.play(story, new_terms=True)
    heads = {one["head"] for one in later.shown.values()}
    assert len(heads) == 2  # no price of the terms before is in force any more
    history, releases = History([new]), later.standing().releases
    history.fill("elm", releases[:2])
    _, sent = prices._releases_after(history, "elm", None)
    assert prices.event(new, releases[2])[0] > sent, "a listener gets it"
    history.publish(new, releases[2])
    assert [history.at("elm", one.t) for one in releases[:3]] == history.last("elm", 9)


def test_a_gap_of_shorter_steps_holds_up_no_longer_ones(tmp_path: Path) -> None:
    elm, oak = two(900)
    run_on(tmp_path, oak, 0)
    with curator(tmp_path, elm, Shown(), now=elm.begins) as it:
        it._ledger.append("gap", bodies.gap(it.t, it.t + 1, "witness"))
        book(elm, it._ledger, [elm])
    inside, after = (two(1800, at=BEGINS + late)[0] for late in (0, 1800))
    with pytest.raises(LedgerError, match="give a later begins"):
        run_on(tmp_path, inside, 1, new_terms=True)
    run_on(tmp_path, after, 1, new_terms=True)
    found = standing(tmp_path)
    assert [one.start for one in found.current] == [after.begins]
    assert found.booked_now == ()
    assert left(tmp_path, after, oak) == found.reach


RARE = np.array([[0.9, 0.1], [0.1, 0.9]])  # in a step, whatever its length


def changed(kind: str, seconds: int, at: int) -> ZoneService:
    """Zone elm with an interval promise, or a promise about one release."""
    made, _ = two(seconds, each=1.0 if kind == "step" else 0.2, at=at)
    model = OccupancyModel.factored([[0.5, 0.5]], [[RARE]], chain_of=[0, 0])
    made = replace(made, scenario=replace(made.scenario, models=(model,)))
    return replace(made, promise=Promise("interval", 2.0)) if kind == "interval" else made


@pytest.mark.parametrize("seconds", [300, 1800])
@pytest.mark.parametrize(
    ("before", "after"), [("step", "interval"), ("interval", "step"), ("interval", "interval")]
)
@pytest.mark.sampled
def test_a_promise_holds_where_another_interval_length_begins(
    tmp_path: Path, before: str, after: str, seconds: int
) -> None:
    """By what all prices really say; forecasts until it can be kept."""
    run_on(tmp_path, changed(before, 900, BEGINS), STEPS)
    at = -(-(BEGINS + STEPS * 900) // seconds) * seconds
    run_on(tmp_path, changed(after, seconds, at), 30, new_terms=True)
    found = standing(tmp_path).releases
    lost = [1000 / one.scale if one.source == "readings" else 0.0 for one in found]
    shown = exact([RARE] * len(lost), [0.5, 0.5], lost)
    first = next(n for n, loss in enumerate(lost) if n >= STEPS and loss)
    assert before != "interval" or shown[:STEPS].max() <= 2.0 + 1e-6
    assert after != "interval" or shown[first:].max() <= 2.0 + 1e-6
    at_once = lost[:STEPS] + lost[first:]
    assert first == STEPS or exact([RARE] * len(at_once), [0.5, 0.5], at_once).max() > 2.0 + 1e-6


FIRST = START // 900


def told(seconds: int, begins: int) -> list[tuple[str, dict[str, Any]]]:
    """Three steps of 900 s, a booked gap of one more, then new terms."""
    return [
        ("genesis", dict(bodies.genesis("production", KEY.public, START - 60))),
        ("terms", bodies.terms(LAWS, first=FIRST, seconds=900)),
        *(("release", release(t)) for t in range(FIRST, FIRST + 3)),
        ("gap", dict(bodies.gap(FIRST + 3, FIRST + 3, "meters"))),
        ("resume", dict(bodies.resume(FIRST + 3, FIRST + 3, 0.5))),
        (
            "terms",
            bodies.terms(OTHER_LAWS, first=begins // seconds, seconds=seconds),
        ),
    ]


def release(t: int) -> dict[str, Any]:
    body = read(t - FIRST + 1)
    return {**body, "t": t, "applies_from": t + 1}


@pytest.mark.parametrize(
    ("seconds", "ago"),
    [*((900, ago) for ago in (3, 2, 1, 0, -1)), *((1800, ago) for ago in (1, 0, -1))],
)
def test_chain_and_script_agree_on_where_terms_may_begin(
    tmp_path: Path, seconds: int, ago: int
) -> None:
    """After all that is published or lost, by time."""
    end = (FIRST + 4) * 900
    begins = end // seconds * seconds - ago * seconds
    records, place = sealed(told(seconds, begins)), None
    for record in records[:-1]:
        place = follow(place, record, verify_signature)
    fine = begins >= end
    expected = nullcontext() if fine else pytest.raises(LedgerError, match="begin after it")
    with expected:
        follow(place, records[-1], verify_signature)
    said = verified(tmp_path / "export", lines_of(records))
    assert said.startswith("good:") if fine else "terms begin before" in said
