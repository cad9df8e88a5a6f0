"""Epochs that renew themselves: one promise for any number of them, counted by another rule."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid._numbers import Floats
from hushgrid.audit.certificate import certify
from hushgrid.errors import ConfigError, LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.interval_plan import in_epoch
from hushgrid.files.service_file import load_deployment
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.batch.engines import engine_at
from hushgrid.service.batch.run import Job, run
from hushgrid.service.epoch import check_same, first_state
from hushgrid.service.gaps import largest_loss, resume_zones
from hushgrid.service.ledger.records import LedgerState, schedule_digest
from hushgrid.service.process import Process
from hushgrid.service.replay import Replay
from hushgrid.service.same_terms import next_epoch, zone_as_begun
from hushgrid.service.zone_account import from_rows
from tests.bodies import gap
from tests.service.batch.batches import Row, lines, live, write
from tests.service.borders import World, exact, from_file
from tests.service.setups import service_text
from tests.service.streets import bodies, publish, standing, verified
from tests.service.test_curator import Shown, curator
from tests.service.worlds import deployment

TWO_HOURS, DAY = 7200, 86_400


class TestClock:
    """A clock that is set."""

    __test__ = False

    def __init__(self, time: float) -> None:
        self.time = time

    def now(self) -> float:
        return self.time


BEGINS = 1_774_396_800  # 2026-03-25T00:00:00Z; clocks change on the 29th
EPOCHS = 51 if os.environ.get("HUSHGRID_EXAMPLES") else 9  # all of them in make soak
STEPS = DAY // TWO_HOURS
CHAINS = {  # local hour from which on: chance to leave, to come, in two hours
    "workers": [(0, 0.03, 0.2), (6, 0.6, 0.1), (16, 0.05, 0.7)],
    "at home": [(0, 0.05, 0.3), (10, 0.4, 0.5)],
}
AT_START = {"workers": 1.0, "at home": 0.9}  # certain in the first epoch alone


def text_of(more: str = "renew = true", begins: int = BEGINS, horizon: int = STEPS) -> str:
    """A street of four homes, a price every two hours, a day an epoch."""
    chains = "\n".join(
        f"[models.chains.{json.dumps(name)}]\nhome_at_start = {AT_START[name]}\nperiods = ["
        + ", ".join(f'{{ from = "{h:02}:00", leave = {x}, come = {c} }}' for h, x, c in periods)
        + "]"
        for name, periods in CHAINS.items()
    )
    law = 'absent = { law = "uniform", top = 300 }\npresent = { law = "uniform", top = 900 }'
    groups = "\n".join(
        f'[[houses]]\ncount = 2\nbound = {bound}\nchain = "{name}"\n{law}\n'
        f'meters = {{ prefix = "elm-", first = {first} }}\n'
        for name, bound, first in (("workers", 900, 1), ("at home", 1000, 3))
    )
    start = datetime.fromtimestamp(begins, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"""
{service_text(start, "PT2H", "Europe/Zurich", "elm-street")}
[policy]
secret = "interval"
epsilon = 1.0
horizon = {horizon}
{more}
{groups}
[[models]]
name = "survey"
structural_zeros = "declared: the test's own chain"
{chains}
"""


def zone(folder: Path, *given: str, begins: int = BEGINS, horizon: int = STEPS) -> ZoneService:
    (folder / "service.toml").write_text(text_of(*given, begins=begins, horizon=horizon))
    (found,) = load_deployment(folder / "service.toml").zones
    return found


def truly_said(found: LedgerState, house: int, begins: int = BEGINS) -> Floats:
    """The most that outputs say about each step of a house, by its own chain in local time."""
    name, bound = ("workers", 900.0) if house < 2 else ("at home", 1000.0)
    first, last = begins // TWO_HOURS, max(one.t for one in found.releases)
    steps, losses = [], np.zeros(last - first + 1)
    for t in range(first, last + 1):
        hour = datetime.fromtimestamp(t * TWO_HOURS, ZoneInfo("Europe/Zurich")).hour
        _, leave, come = next(one for one in reversed(CHAINS[name]) if one[0] <= hour)
        steps.append(np.array([[1 - come, come], [leave, 1 - leave]]))
    for one in found.releases:
        losses[one.t - first] = bound / one.scale if one.source == "readings" else 0.0
    home = AT_START[name]
    return exact(steps, [1 - home, home], losses.tolist())


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Renewals by one curator, across the change of the clock."""
    folder = tmp_path_factory.mktemp("renewals")
    with curator(folder, zone(folder), Shown(), now=BEGINS) as it:
        publish(it, EPOCHS * STEPS)
    return folder


def test_renewals_stay_within_the_promise(street: Path) -> None:
    """By the log-ratio of outputs, which shares no code with the plan or with the accounts."""
    found = standing(street)
    starts = [BEGINS // TWO_HOURS + k * STEPS for k in range(EPOCHS + 1)]
    assert [one.first for one in found.epochs] == starts, "the next one is ready before it begins"
    assert {one.source for one in found.releases} == {"readings"}
    said = np.array([truly_said(found, house) for house in range(4)])
    assert said.shape == (4, EPOCHS * STEPS)
    assert said.max() <= 1.0
    assert said.max() > 0.9, "and no noise is wasted"
    by_epoch = said.max(axis=0).reshape(EPOCHS, STEPS).max(axis=1)
    assert np.ptp(by_epoch[6:-1]) < 1e-6, "later epochs say no more than earlier ones"
    assert all(one.interval == 1.0 for one in found.epochs)


def test_a_gap_books_the_epochs_that_began_by_themselves(tmp_path: Path) -> None:
    """They are lost with the ledger's end, and no file names them."""
    one, lost = zone(tmp_path), list[float]()
    with curator(tmp_path, one, Shown(), now=BEGINS) as it:
        publish(it, 2)
        for steps in (10, 10 + 2 * STEPS):
            it._ledger.append("gap", gap(it.t, it.t + steps - 1, "witness"))
            lost.append(largest_loss(one, it._ledger.standing)[0])
    assert lost[1] == pytest.approx(3.4 * lost[0])


def test_renewed_epochs_protect_every_house_from_their_first_step(street: Path) -> None:
    """Houses that home_at_start makes certain are so where the first epoch begins, and there only:
    the others begin with the law of occupancy as it is there."""
    one, found = zone(street), standing(street)
    later = next_epoch(one, BEGINS // TWO_HOURS + 7 * STEPS)
    assert later is not None
    first, again = (first_state(each).scheduler for each in (one, later))
    assert len(first.at(1).protected) == 2
    assert len(again.at(1).protected) == 4
    law = np.array([1 - AT_START["workers"], AT_START["workers"]])
    for t in range(1, 7 * STEPS + 1):
        hour = datetime.fromtimestamp(BEGINS + t * TWO_HOURS, ZoneInfo("Europe/Zurich")).hour
        _, leave, come = next(x for x in reversed(CHAINS["workers"]) if x[0] <= hour)
        law = law @ np.array([[1 - come, come], [leave, 1 - leave]])
    given = later.scenario.models[0].chains[0]
    assert given.initial[given.chain_of[0]] == pytest.approx(law, abs=1e-6)
    noise = {each.policy.epsilon for each in (one, later)}
    assert len(noise) == 1, "the same terms"
    assert found.epochs[7].digest == first_state(later).digest


def test_ledger_audit_and_replay_agree(street: Path) -> None:
    """The audit counts all epochs as one chain; a verifier that knows nothing of us reads them."""
    verified(street)
    evidence, chain = load_ledger(str(street / "ledger.db"), zone=None, key=None, heads=())
    assert chain.status == "passed"
    made = certify(evidence, [terms_of(zone(street))], commit=schedule_digest)
    assert len(made.recomputed) == EPOCHS + 1
    for name in ("terms", "schedule", "promise", "noise_scale"):
        assert made.check(name).status == "passed", made.check(name).text
    worst = max(float(one.leakage.max()) for one in made.houses if one.leakage is not None)
    found = standing(street)
    said = max(truly_said(found, house).max() for house in range(4))
    assert said <= worst + 1e-9
    assert worst <= 1 + 1e-9
    assert found.epoch is not None
    assert found.epoch.first == found.done + 1
    begun = zone_as_begun(zone(street), found.epoch)
    check_same(begun, found)
    assert Replay(begun).follow(found).spent.total == 0.0, "each epoch has a budget of its own"


def test_a_restart_goes_on_in_the_epoch_that_runs(tmp_path: Path) -> None:
    """Between two renewals, at a border, after days without a curator; with the file as it was."""
    one = zone(tmp_path)
    with curator(tmp_path, one, Shown(), now=BEGINS) as it:
        publish(it, STEPS + 3)
    with curator(tmp_path, one, Shown(), now=BEGINS + (STEPS + 3) * TWO_HOURS) as it:
        assert it.service.begins == BEGINS + DAY
        publish(it, STEPS - 3)
    now = BEGINS + 2 * DAY + 60
    with curator(tmp_path, one, Shown(), now=now) as it:
        publish(it, 1)
    away = BEGINS + 5 * DAY + 3 * TWO_HOURS
    with curator(tmp_path, one, Shown(), now=away) as it:
        made = it.run(away + TWO_HOURS)
        publish(it, 2)
    assert made, "the last intervals get their releases"
    found = standing(tmp_path)
    assert [one.first - BEGINS // TWO_HOURS for one in found.epochs] == [0, 12, 24, 48, 60]
    assert max(truly_said(found, house).max() for house in range(4)) <= 1.0
    verified(tmp_path)


@pytest.mark.parametrize("same", [True, False])
def test_the_file_of_a_renewed_epoch_is_booked_once(tmp_path: Path, same: bool) -> None:
    """Named as lost where there was no other epoch; another file of these terms counts whole."""
    with curator(tmp_path, zone(tmp_path), Shown(), now=BEGINS) as it:
        publish(it, STEPS + 2)
        it._ledger.append("gap", gap(it.t, it.t + 1, "witness"))
        t = it.t
    made = load_deployment(tmp_path / "service.toml")
    made = replace(
        made,
        ledger=str(tmp_path / "ledger.db"),
        meters=str(tmp_path / "meters"),
        key=tmp_path / "key",
    )
    lost = made if same else replace(made)
    (booked,) = resume_zones(made, None, (t + 2) * TWO_HOURS, lost_epochs=[lost])
    epochs = 1 if same else 2
    assert booked.epsilon == pytest.approx(epochs * 2 * made.zones[0].policy.epsilon, rel=1e-3)
    (one,) = standing(tmp_path).booked
    assert one.account is not None
    assert np.isinf(from_rows(one.account).known).all() == (not same)


def test_epochs_that_may_have_renewed_themselves_are_named(tmp_path: Path) -> None:
    """The key is no part of the terms: the file of then has it, the one of the epoch has not."""
    plain = zone(tmp_path, "")
    with curator(tmp_path, plain, Shown(), now=BEGINS) as it:
        publish(it, 2)
        it._ledger.append("gap", gap(it.t, it.t + STEPS + 4, "witness"))
        found = it._ledger.standing
    with pytest.raises(LedgerError, match=r"policy\.renew may have been set"):
        largest_loss(plain, found)
    assert plain.promise is not None
    renewed = replace(plain, promise=replace(plain.promise, renew=True))
    alone, both = (largest_loss(plain, found, [one])[0] for one in (plain, renewed))
    assert both == pytest.approx(alone + largest_loss(renewed, found)[0])
    assert largest_loss(renewed, found)[0] > 1.3 * alone


def test_without_the_key_the_horizon_ends(tmp_path: Path) -> None:
    """Forecasts, until an operator begins an epoch."""
    with curator(tmp_path, zone(tmp_path, ""), Shown(), now=BEGINS) as it:
        publish(it, STEPS)
        made = it.run(it.next_due())
    assert [one.source for one in made] == ["forecast"]
    assert len(bodies(tmp_path)) == 1


def test_the_key_can_be_added_while_an_epoch_runs(tmp_path: Path) -> None:
    """It goes on under the terms that it began with, and is renewed where it ends."""
    with curator(tmp_path, zone(tmp_path, ""), Shown(), now=BEGINS) as it:
        publish(it, 3)
    with curator(tmp_path, zone(tmp_path), Shown(), now=BEGINS + 3 * TWO_HOURS) as it:
        publish(it, STEPS)
    found = standing(tmp_path)
    assert len(found.epochs) == 2
    assert max(truly_said(found, house).max() for house in range(4)) <= 1.0


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (('secret = "interval"', 'secret = "step"'), "adds up from epoch to epoch"),
        (('secret = "interval"\n', ""), "adds up from epoch to epoch"),
        ((f"horizon = {STEPS}", f"horizon = {STEPS + 1}"), "give whole days, a multiple of 12"),
        (("leave = 0.05, come = 0.3", "leave = 0, come = 0"), ""),
    ],
)
def test_promises_that_do_not_renew(tmp_path: Path, edit: tuple[str, str], says: str) -> None:
    """Trajectories and single prices add up; a chain that never moves forgets nothing."""
    text = text_of()
    assert edit[0] in text
    text = text.replace(*edit)
    if not says:
        text, says = text.replace("leave = 0.4, come = 0.5", "leave = 0, come = 0"), "does not fade"
    (tmp_path / "service.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_deployment(tmp_path / "service.toml")


@settings(max_examples=int(os.environ.get("HUSHGRID_EXAMPLES", "8")) // 4, deadline=None)
@given(st.lists(st.floats(0.05, 0.9), min_size=4, max_size=4), st.floats(0.2, 3.0))
def test_any_chain_keeps_its_promise_over_fifty_renewals(move: list[float], epsilon: float) -> None:
    """Two houses with chains and bounds of their own; every epoch is planned by itself."""
    steps = [np.array([[1 - c, c], [x, 1 - x]]) for x, c in (move[:2], move[2:])]
    bounds, horizon, begins = [400, 1000], 24, 490_000 * 3600 // DAY * DAY
    one = from_file(World([[0], [1]], steps).model(), begins, epsilon, horizon, bounds=bounds)
    assert one.promise is not None
    one = replace(one, promise=replace(one.promise, renew=True))
    one, scales = in_epoch(one, begins) or one, list[float]()
    for k in range(51):
        assert one.begins == begins + k * horizon * 3600
        scheduler = first_state(one).scheduler
        scales += [scheduler.at(t).scale for t in range(1, horizon + 1)]
        later = next_epoch(one, one.begins // 3600 + horizon)
        assert later is not None
        assert next_epoch(one, one.begins // 3600 + horizon - 1) is None
        one = later
    for step, bound in zip(steps, bounds, strict=True):
        law = np.linalg.matrix_power(step, 4096)[0]
        losses = [bound / scale for scale in scales]
        assert exact([step] * len(losses), law.tolist(), losses).max() <= epsilon * (1 + 1e-6)


def test_the_process_goes_on_with_the_zone_in_its_next_epoch(tmp_path: Path) -> None:
    """Prices, forecasts and the operator's figures, without a restart."""
    one, clock = zone(tmp_path), TestClock(BEGINS)
    with ExitStack() as stack:
        process = Process(deployment(tmp_path, one), stack, noise=lambda: SimulatedNoise(3))
        process.open(clock.now())
        for t in range(STEPS + 2):
            clock.time = BEGINS + (t + 1) * TWO_HOURS + 60
            process.turn(clock)
            (run,) = process._zones
            assert run.curator is not None
            assert run.curator.releases[-1].t == BEGINS // TWO_HOURS + t
            begun = BEGINS + (DAY if t >= STEPS - 1 else 0)
            assert run.service.begins == process.deployment.zones[0].begins == begun
            assert process.history.zones["elm-street"].begins == begun
            prices, whole = process.history.expected("elm-street", clock.now(), 30.0)
            assert whole
            assert prices.at((BEGINS // TWO_HOURS + t + 3) * TWO_HOURS) is not None
    assert len(bodies(tmp_path)) == 2


def test_a_batch_renews_as_the_service_does(tmp_path: Path) -> None:
    """Two days in one run, and in two: the records of the running curator, digests too."""
    one = zone(tmp_path)
    rows: list[Row] = [
        (meter, BEGINS + t * TWO_HOURS, TWO_HOURS, 100 * house + t)
        for t in range(2 * STEPS)
        for house, meter in enumerate(one.meters)
    ]
    write(tmp_path / "rows" / "a.parquet", rows)
    found = {}
    for name, ends in {"live": (), "whole": (2,), "parts": (1, 2)}.items():
        (tmp_path / name).mkdir()
        made = replace(deployment(tmp_path / name, one), key=deployment(tmp_path, one).key)
        if not ends:
            live(made, one, rows, BEGINS + 2 * DAY, seed=3)
        for days in ends:
            asked = Job(made, (str(tmp_path / "rows"),), BEGINS, BEGINS + days * DAY, seed=3)
            with engine_at("duckdb?threads=1&memory_limit=1GB") as engine:
                run(asked, engine, TestClock(BEGINS + 9 * DAY))
        found[name] = [line for line in lines(made, one.id) if '"release"' in line]
    assert len(found["live"]) == 2 * STEPS
    assert found["whole"] == found["live"]
    assert found["parts"] == found["live"]
