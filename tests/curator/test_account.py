"""The account in the running curator: what is published never says more than is promised.

A street publishes, changes its terms, loses releases and goes on. All that was published, also what
no ledger holds any more, is judged by an oracle that shares no code with the account.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hushgrid import OccupancyModel, Policy, Scenario
from hushgrid.curator.gaps import resume_zones
from hushgrid.curator.terms import first_state, terms_record
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.zone_file import load_zone
from hushgrid.lab import paper
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.release import Release
from hushgrid.stores.ledger.entries import ReleaseRecord, TransferRecord, first_step
from hushgrid.stores.ledger.records import Head
from hushgrid.stores.ledger.rules import AccountRows
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.witness import Witnesses
from tests.accounting.account_oracle import worst_of_long_blocks
from tests.curator.copies import put_back, take_copy
from tests.curator.curators import Shown, curator
from tests.curator.streets import BEGINS, DAY, HOUR, standing, zone
from tests.curator.worlds import deployment
from tests.examples import SOAK

Edits = tuple[tuple[str, str], ...]

BLOCKS = (("\neta = 1.0", "\neta = 1.0\nblock_steps = [6]\nblock_epsilon = [0.4]"),)
SHORTER = (("\neta = 1.0", "\neta = 1.0\nblock_steps = [4, 2]\nblock_epsilon = [0.3, 0.2]"),)
UTC_BLOCKS = (('time_zone = "Europe/Zurich"', 'time_zone = "UTC"'),)  # a block begins with a life
HALF = (("epsilon = 1.0", "epsilon = 0.5"),)
DOUBLE = (("epsilon = 1.0", "epsilon = 2.0"),)
LATER = (("leave = 0.02, come = 0.1", "leave = 0.05, come = 0.02"),)
ROSTER = (("count = 3", "count = 4"),)
STEP = (('secret = "interval"', 'secret = "step"'),)


class Published(NamedTuple):
    service: ZoneService
    release: ReleaseRecord


class Life:
    """A street and all that it ever published."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.at = folder, BEGINS
        self.published: list[Published] = []

    def go_on(self, edits: Edits, steps: int, *, begins: bool = False) -> list[str]:
        """So many steps under these terms; the sources of their prices."""
        if begins:
            self.service = zone(self.folder, self.at, *UTC_BLOCKS, *edits)
        again = begins and (self.folder / "ledger.db").exists()
        sources = []
        with (
            Witnesses(self.folder / "witness") as witnesses,
            curator(
                self.folder, self.service, Shown(), now=self.at, new_terms=again,
                witness=witnesses.of("elm-street"),
            ) as it,
        ):  # fmt: skip
            houses = list(range(len(self.service.meters)))
            for _ in range(steps):
                n = len(houses)
                starts, spans = [it.start_of(it.t)] * n, [HOUR] * n
                it._meters.put("elm-street", houses, starts, spans, [400] * n)
                (release,) = it.run(it.next_due())
                self.published.append(Published(self.service, release))
                sources.append(release.source)
            self.at = it.start_of(it.t)
        return sources

    def lose(self, steps: int) -> None:
        """Steps that were published, and a ledger without them on another machine."""
        made = deployment(self.folder, self.service, key=self.folder / "key")
        take_copy(made)
        self.go_on((), steps)
        truth = standing(self.folder).latest_account
        put_back(made, new_machine=False)
        shutil.rmtree(self.folder / "witness")
        sidecar_path(self.folder / "ledger.db", "elm-street").unlink()
        assert self.go_on((), 1) == ["forecast"]
        again = replace(made, witness=self.folder / "witness")
        (resumed,) = resume_zones(again, None, self.at, lost_terms=[made])
        assert resumed.state == "resumed"
        booked = standing(self.folder).latest_account
        assert truth is not None
        assert booked is not None
        if booked.step == truth.step:
            for lost, real in zip(booked.rows, truth.rows, strict=True):
                assert lost[1] >= real[1] * (1 - 1e-9)
                assert lost[2] <= real[2] * (1 + 1e-9)

    def worst(self) -> float:
        """The largest share of a promise that all releases together use, about any step."""
        largest = 0.0
        for chain, house in ((0, 0), (1, -1)):
            steps = sorted(self.published, key=lambda part: part.release.t)
            inward = [_inward(*part)[chain] for part in steps]
            law = ZoneAccount(steps[0].service)._task.kinds.models[0].chains[0].initial[chain]
            blocks, losses = _blocks(steps, house)
            worst = worst_of_long_blocks(law, inward, blocks, losses)
            promises = _promises(steps)
            largest = max(largest, float((worst / promises).max()))
        return largest


def _inward(service: ZoneService, release: ReleaseRecord) -> np.ndarray:
    return ZoneAccount(service)._inward(release.t, release.t)[0][:, 0]


def _blocks(steps: Sequence[Published], house: int) -> tuple[list[int], list[float]]:
    """Lengths and losses: from the first to the last release of a block, other steps alone."""
    keys = []
    for service, release in steps:
        opened = first_step(release) if release.source == "readings" else None
        keys.append(None if opened is None else (service.begins, opened))
    lengths, losses, at = list[int](), list[float](), 0
    while at < len(steps):
        last = max((n for n, key in enumerate(keys) if key and key == keys[at]), default=at)
        service, release = steps[at]
        bound = int(first_state(service).zone.bound[house])
        losses.append(bound / release.scale if keys[at] else 0.0)
        lengths.append(last - at + 1)
        at = last + 1
    return lengths, losses


def _promises(steps: Sequence[Published]) -> np.ndarray:
    """The promise in force: a larger one, or none, from the first step of its terms on.

    A smaller one from their first release from readings on.
    """
    promises, present = [], math.inf
    for service, release in steps:
        assert service.promise is not None
        interval = service.promise.secret == "interval"
        promised = service.promise.epsilon if interval else math.inf
        present = promised if release.source == "readings" else max(present, promised)
        promises.append(present)
    return np.array(promises)


def test_terms_that_begin_inside_a_block_wait_for_its_end(tmp_path: Path) -> None:
    """Each hour other terms: opened at once, their blocks would say 1.51 about a step."""
    life = Life(tmp_path)
    for _ in range(6):
        life.go_on(BLOCKS, 1, begins=True)
    assert life.go_on(BLOCKS, 6, begins=True) == ["readings"] * 6
    sources = [part.release.source for part in life.published]
    assert sources == ["readings", *["forecast"] * 5, *["readings"] * 6]
    assert life.worst() <= 1 + 1e-9


def test_a_block_that_was_lost_in_part_is_not_opened_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.go_on(BLOCKS, 7, begins=True)
    life.lose(2)  # of the second block, whose forecast and rest follow
    assert life.go_on((), 3) == ["forecast"] * 2 + ["readings"]
    assert life.worst() <= 1 + 1e-9


def test_nothing_is_known_after_two_histories(tmp_path: Path) -> None:
    """What the plan would have spent bounds nothing there."""
    life = Life(tmp_path)
    life.go_on(BLOCKS, 12, begins=True)
    account = ZoneAccount(life.service)
    first = standing(tmp_path).last_t + 1
    rows, until = account.after_loss(standing(tmp_path), first, first + 7, unknown=True)
    assert until == first + 11
    assert all(row[1] > 1e300 for row in rows)


CHANGES = {
    "half": HALF,
    "double": DOUBLE,
    "model": LATER,
    "roster": ROSTER,
    "blocks": BLOCKS,
    "shorter blocks": SHORTER,
    "half in blocks": (*HALF, (BLOCKS[0][0], BLOCKS[0][1].replace("0.4", "0.2"))),
    "step": STEP,
}
TWICE = ("shorter blocks", "half in blocks")  # what others change alone


@pytest.mark.parametrize("hour", range(1, 25) if SOAK else (9,))
@pytest.mark.parametrize(
    "change",
    [pytest.param(name, marks=pytest.mark.soak if name in TWICE else ()) for name in CHANGES],
)
def test_no_change_says_more_than_is_promised(tmp_path: Path, change: str, hour: int) -> None:
    """There and back, at any hour."""
    life = Life(tmp_path)
    life.go_on((), hour, begins=True)
    life.go_on(CHANGES[change], 12, begins=True)
    life.go_on((), 12, begins=True)
    assert life.worst() <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(30) if SOAK else (2,))
def test_no_story_says_more_than_is_promised(tmp_path: Path, seed: int) -> None:
    """Changes of every kind, and releases that are lost."""
    rng, life = np.random.default_rng(seed), Life(tmp_path)
    life.go_on(BLOCKS, int(rng.integers(1, 12)), begins=True)
    for _ in range(6):
        if rng.random() < 0.4:
            life.lose(int(rng.integers(1, 5)))
        else:
            change = str(rng.choice([name for name in CHANGES if name != "step"]))
            life.go_on(CHANGES[change], int(rng.integers(1, 12)), begins=True)
    life.go_on((), 8)
    assert life.worst() <= 1 + 1e-9


def test_a_house_that_comes_is_not_forgotten_before_it_came() -> None:
    """The terms began eight steps before the house left its old zone."""
    service = papers(1, 0.037).zone(BEGINS)
    came = begun(service)
    rows = ((0.0, 0.8, 0.1, -1e308, 1e308),)
    move = TransferRecord(
        "h", "in", "oak", seq=came.head.seq + 1, last=BEGINS + 8 * 900, account=rows
    )
    assert came.terms is not None
    terms = replace(came.terms, seq=move.seq + 1)
    head = Head(terms.seq, "")
    came = replace(came, transfers=(move,), head=head, terms=terms, terms_records=(terms,))
    account, scheduler = ZoneAccount(service), first_state(service).scheduler
    assert all(account.choose(came, t, scheduler, ()) is None for t in range(1, 9))
    figures, new = account.before(came, BEGINS // 900 + 8)
    assert not new
    assert figures[0].known.tolist() == [0.8] * len(figures[0].known)
    assert figures[0].room.tolist() == [0.1] * len(figures[0].room)


def test_a_gap_inside_a_block_of_other_terms_is_booked_after_its_end(tmp_path: Path) -> None:
    """Earlier, the steps of the old block would be forgotten twice."""
    life = Life(tmp_path)
    life.go_on(BLOCKS, 7, begins=True)
    life.go_on(LATER, 2, begins=True)
    ledger = standing(tmp_path)
    account, newest = ZoneAccount(life.service), ledger.latest_account
    assert newest is not None
    assert newest.step > ledger.last_t
    rows, until = account.after_loss(ledger, ledger.last_t + 1, ledger.last_t + 1)
    assert until == newest.step
    assert max(row[1] for row in rows) >= max(row[1] for row in newest.rows)


def test_a_gap_into_the_next_week_is_booked_by_its_plan(tmp_path: Path) -> None:
    """The present week has two hours: its plan again and again would have other blocks."""
    life = Life(tmp_path)
    life.at = BEGINS + 4 * DAY - 2 * HOUR  # Sunday, 22:00
    life.go_on(BLOCKS, 1, begins=True)
    ledger, account = standing(tmp_path), ZoneAccount(life.service)
    monday = life.service.ends // HOUR
    assert monday * HOUR == life.service.begins + 2 * HOUR
    rows, until = account.after_loss(ledger, monday - 1, monday + 6)
    assert until == monday + 11
    blocks = [(one.first // HOUR - monday, one.last // HOUR - monday) for one in
              account._lost_blocks((monday - 1) * HOUR, (monday + 7) * HOUR)]  # fmt: skip
    assert blocks == [(-2, -1), (0, 5), (6, 11)]
    early, _ = account.after_loss(ledger, monday - 1, monday - 1)
    assert all(row[1] > less[1] for row, less in zip(rows, early, strict=True))


# ---- how long forecasts replace prices

DAYS = 3
ROOT = Path(__file__).parents[2]


class Terms(NamedTuple):
    """What a zone publishes under: blocks of equal loss under a promise."""

    scenario: Scenario
    policy: Policy
    promise: float

    def over(self, loss: float, promise: float, scenario: Scenario | None = None) -> Terms:
        lengths = self.policy.schedule.lengths
        schedule = Blocks(lengths, (loss,) * len(lengths))
        policy = replace(self.policy, epsilon=promise, schedule=schedule)
        return Terms(scenario or self.scenario, policy, promise)

    def zone(self, begins: int) -> ZoneService:
        meters = tuple(f"m{i}" for i in range(len(self.scenario.zone.bound)))
        pattern = Pattern(self.scenario, self.policy)
        service = ZoneService(self.scenario, self.policy, meters, begins=begins, pattern=pattern)
        return replace(service, promise=Promise("interval", self.promise))


def slower(scenario: Scenario) -> Scenario:
    """Another model: homes come and go a tenth less often."""
    (model,) = scenario.models
    piece = model.chains[0]
    transition = np.array(piece.transition)
    for here, there in ((0, 1), (1, 0)):
        transition[..., here, there] *= 0.9
        transition[..., here, here] = 1 - transition[..., here, there]
    theta = OccupancyModel.factored(
        np.array(piece.initial), transition, calendar=model.calendar, chain_of=piece.chain_of
    )
    return replace(scenario, models=(theta,))


def district() -> Terms:
    file = load_zone(ROOT / "examples" / "zone.toml")
    return Terms(file.scenario, replace(file.policy, epsilon=1.0, **equal_blocks(8, 0.154)), 1.0)


def papers(length: int, loss: float) -> Terms:
    return Terms(paper.scenario(0.0, 1, 20), Policy(1.0, **equal_blocks(length, loss)), 1.0)


def equal_blocks(length: int, loss: float) -> dict[str, Any]:
    number = 96 * DAYS // length
    return {"horizon": 96 * DAYS, "schedule": Blocks((length,) * number, (loss,) * number)}


def recorded(
    service: ZoneService, t: int, rows: AccountRows | None, seq: int, length: int = 1
) -> ReleaseRecord:
    block = {"first": t, "length": length, "mark": 1} if length > 1 else None
    release = Release(
        service.id, t, t + 1, 0, 0.0, None, 0.0, 1.0, 0.1, 0.1, "all", "0" * 64, True,
        "block" if block else "laplace", block=block,
    )  # fmt: skip
    times = (t * 900, (t + 1) * 900, t * 900)
    return ReleaseRecord(release, "readings", *times, {}, rows, seq=seq)


def begun(service: ZoneService, past: LedgerState | None = None) -> LedgerState:
    """The ledger with a record of these terms."""
    empty = LedgerState("elm", "simulation", "", Head(0, ""), "", None, (), (), ())
    past = past or empty
    seq = past.head.seq + 1
    terms = replace(terms_record(service), seq=seq)
    records = (*past.terms_records, terms)
    return replace(past, terms=terms, terms_records=records, head=Head(seq, ""))


def histories(terms: Terms) -> dict[int, LedgerState]:
    """The ledger at each border of a block in the last of some days that publish as planned."""
    service = terms.zone(BEGINS)
    account, scheduler = ZoneAccount(service), first_state(service).scheduler
    ledger, borders, t = begun(service), dict[int, LedgerState](), 1
    while t <= terms.policy.horizon:
        first, last = terms.policy.schedule.span(t)
        choice = account.choose(ledger, t, scheduler, ())
        assert choice is not None
        assert choice.epsilon == pytest.approx(terms.policy.epsilon_at(t), rel=1e-3)
        step, seq = service.begins // 900 + first - 1, ledger.head.seq + 1
        record = recorded(service, step, choice.account, seq, last - first + 1)
        ledger = replace(ledger, releases=(record,), head=Head(seq, ""))
        t = last + 1
        if t > 96 * (DAYS - 1):
            borders[BEGINS + (t - 1) * 900] = ledger
    return borders


def waits(ledgers: Mapping[int, LedgerState], service: ZoneService) -> list[float]:
    """Hours of forecasts after a change at the next border of a block, for hours of a day."""
    scheduler, hours = first_state(service).scheduler, []
    for hour in range(24):
        asked = BEGINS + (DAYS - 1) * 24 * HOUR + hour * HOUR
        border = min(begins for begins in ledgers if begins >= asked)
        new = replace(service, begins=border)
        first = ZoneAccount(new).first_admitted(begun(new, ledgers[border]), 1, scheduler)
        assert first is not None
        hours.append((first - 1) / 4)
    return hours


ZONES = {"district": district, "paper": lambda: papers(6, 0.185), "steps": lambda: papers(1, 0.037)}


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.soak
def test_how_long_forecasts_replace_prices_after_a_change(name: str) -> None:
    """MATH 16: half the promise, another model, a larger promise, another roster."""
    terms = ZONES[name]()
    ledgers, loss = histories(terms), terms.policy.epsilon_at(1)
    assert max(waits(ledgers, terms.over(0.48 * loss, 0.5).zone(BEGINS))) <= 4.5
    other = waits(ledgers, terms.over(0.85 * loss, 1.0, slower(terms.scenario)).zone(BEGINS))
    assert max(other) <= 1.5
    assert np.median(other) == 0
    assert max(waits(ledgers, terms.over(1.7 * loss, 2.0).zone(BEGINS))) == 0
    roster = terms.zone(BEGINS)
    roster = replace(roster, meters=tuple(f"other {meter}" for meter in roster.meters))
    assert max(waits(ledgers, roster)) == 0


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.sampled
def test_how_long_forecasts_replace_prices_where_nothing_is_believed(name: str) -> None:
    """MATH 16: from the promise `step`, of which no account is on record, to `interval`."""
    terms = ZONES[name]()
    past = replace(terms.zone(BEGINS), promise=Promise("step", 0.5))
    past = replace(past, policy=Policy(0.5, horizon=96 * DAYS), pattern=None)
    ledgers = {}
    for hour in range(25):
        begins = BEGINS + (24 * (DAYS - 1) + hour) * HOUR
        ledger = begun(past)
        record = recorded(past, begins // 900 - 1, None, ledger.head.seq + 1)
        ledgers[begins] = replace(ledger, releases=(record,), head=Head(record.seq, ""))
    assert 0 < max(waits(ledgers, terms.zone(BEGINS))) <= 14
