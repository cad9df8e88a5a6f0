"""A promise about everything a home does in any window of time, through the real curator."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from hushgrid import OccupancyModel, Policy
from hushgrid.audit.certificate import certify
from hushgrid.cli import main
from hushgrid.curator.gaps import resume_zones
from hushgrid.curator.promise import outlook, promise_json, zone_json
from hushgrid.curator.status import Inside, explanation
from hushgrid.curator.terms import first_state
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.errors import ConfigError
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.weeks import placed, week_plan
from hushgrid.operate.audit import load_case, terms_of
from hushgrid.planning.planner import plan
from hushgrid.planning.windows import most_blocks, window_loss
from hushgrid.report.certificate import certificate_json
from hushgrid.report.outlook import price_error
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import first_step
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.witness import Witnesses
from hushgrid.stores.ledger.writer import verify_signature
from hushgrid.web.http.models import PromiseTerms
from tests.curator.borders import zone_of
from tests.curator.copies import put_back, take_copy
from tests.curator.curators import Shown, curator
from tests.curator.hourly import HOUR, street
from tests.curator.streets import BEGINS, load
from tests.curator.worlds import deployment
from tests.examples import SOAK

WINDOW = (('secret = "interval"', 'secret = "window"\nwindow = "PT12H"'),)


@dataclass
class History:
    """A service whose promise changes, and that loses the end of its ledger."""

    folder: Path
    promise: Promise
    time: int = BEGINS
    lost: list[tuple[int, int, float]] = field(default_factory=list)  # blocks without a record

    def __post_init__(self) -> None:
        self.zone = street(self.time, self.promise)

    def go_on(self, steps: int, *, new_terms: bool = False) -> None:
        with (
            Witnesses(self.folder / "witness") as witnesses,
            curator(
                self.folder, self.zone, Shown(), now=self.time, new_terms=new_terms,
                witness=witnesses.of("elm"),
            ) as it,
        ):  # fmt: skip
            for _ in range(steps):
                it._meters.put("elm", [0, 1], [it.start_of(it.t)] * 2, [HOUR] * 2, [300, 500])
                it.run(it.next_due())
            self.time = it.start_of(it.t)

    def change(self, promise: Promise) -> None:
        self.promise, self.zone = promise, street(self.time, promise)
        self.go_on(0, new_terms=True)

    def lose(self, steps: int) -> None:
        made = deployment(self.folder, self.zone, key=self.folder / "key")
        take_copy(made)
        known = set(blocks(self.standing()))
        self.go_on(steps)
        self.lost += [block for block in blocks(self.standing()) if block not in known]
        put_back(made, new_machine=False)
        shutil.rmtree(self.folder / "witness")
        sidecar_path(self.folder / "ledger.db", "elm").unlink()
        self.go_on(1)
        witness = replace(made, witness=self.folder / "witness")
        (found,) = resume_zones(witness, None, self.time, lost_terms=[made])
        assert found.state == "resumed"

    def standing(self) -> LedgerState:
        with open_store(str(self.folder / "ledger.db"), create=False) as store:
            report = check(store.records("elm"), verify_signature, {})
        assert report.first_bad is None, report.reason
        return report.standings["elm"]

    def judge(self) -> float:
        """No window loses more than the promise under which it begins; the largest share of it."""
        standing = self.standing()
        spent = blocks(standing)
        for first, last, loss in self.lost:  # the rest of an open block, or a block
            begun = [n for n, (a, _, e) in enumerate(spent) if (a, e) == (first, loss)]
            if begun:
                spent[begun[0]] = (first, max(last, spent[begun[0]][1]), loss)
            else:
                spent.append((first, last, loss))
        made = [
            (terms.first, terms.window)
            for terms, later in pairwise([*standing.terms_records, None])
            if terms is not None and (later is None or later.first > terms.first)
        ]
        worst = 0.0
        last = max(end for _, end, _ in spent)
        for (first, window), (until, _) in pairwise([*made, (last + 1, None)]):
            if window is None:
                continue
            steps = window[0] // HOUR + 1
            for begin in range(first, until):
                end = begin + steps - 1
                loss = sum(e for a, b, e in spent if a <= end and b >= begin)
                worst = max(worst, loss / window[1])
        assert worst <= 1 + 1e-9
        return worst


def blocks(standing: LedgerState) -> list[tuple[int, int, float]]:
    """First and last published step of every block on record, and what it loses about any home."""
    found = {}
    for one in standing.releases:
        if one.source == "readings":
            first = first_step(one)
            found[standing.terms_of(one).seq, first] = (first, one.t, 1000 / one.scale)
    return list(found.values())


def window(hours: int, epsilon: float = 1.0, block: int | None = None) -> Promise:
    return Promise(
        "window", epsilon, window=hours * HOUR, block=None if block is None else block * HOUR
    )


@pytest.mark.soak
def test_every_window_of_a_steady_promise_loses_what_is_promised(tmp_path: Path) -> None:
    history = History(tmp_path, window(12))
    history.go_on(120)
    assert {one.source for one in history.standing().releases} == {"readings"}
    assert history.judge() > 1 - 1e-9, "and no noise is wasted"


CHANGES = (
    window(12), window(24), window(6, 0.5), window(36, 2.0, 6), window(6, 1.0, 1),
    Promise("interval", 1.0), Promise("step", 0.2),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(12) if SOAK else (1,))
def test_every_window_of_changing_promises_loses_what_is_promised(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    history = History(tmp_path, rng.choice(CHANGES[:5]))
    for _ in range(5):
        history.go_on(rng.randrange(5, 40))
        if rng.random() < 0.7:
            history.change(rng.choice(CHANGES))
        else:
            history.lose(rng.randrange(1, 10))
    history.go_on(40)
    assert history.judge() > 0.5
    assert history.standing().releases[-1].source == "readings", "it publishes again"


@pytest.mark.parametrize("later", [window(24), window(6, 2.0), window(12, 3.0)])
@pytest.mark.sampled
def test_no_change_of_a_window_costs_a_price(tmp_path: Path, later: Promise) -> None:
    history = History(tmp_path, window(12))
    history.go_on(30)
    history.change(later)
    history.go_on(30)
    assert {one.source for one in history.standing().releases} == {"readings"}
    history.judge()


def test_a_promise_that_is_dropped_at_a_change_would_be_exceeded(tmp_path: Path) -> None:
    """Blocks under epsilon = 3 right after those under 1: windows before the change hold both."""
    history = History(tmp_path, window(12))
    history.go_on(30)
    history.change(window(12, 3.0))
    history.go_on(12)
    spent = blocks(history.standing())
    planned = window_loss(13, 3, 3.0)
    change = history.zone.begins // HOUR
    early = [e for a, _, e in spent if a >= change]
    assert early[0] < planned, "the first blocks lose less than the new promise allows"
    before = sum(e for _, b, e in spent if change - 12 <= b < change)
    assert before + planned > 1, "with the planned loss the old promise would be exceeded"
    history.judge()


def test_a_promise_begins_anew_after_terms_without_it(tmp_path: Path) -> None:
    """With its old beginning it would speak of windows whose prices no account holds."""
    history = History(tmp_path, window(12))
    history.go_on(6)
    history.time += 20 * HOUR
    history.change(Promise("step", 3.0))
    history.go_on(6)
    history.change(window(12))
    history.go_on(6)
    newest = history.standing().latest_windows
    assert newest is not None
    change = history.zone.begins
    assert [promise[2] for promise in newest.rows[0] if promise[3] == -1] == [change]


def test_blocks_of_two_histories_count_twice(tmp_path: Path) -> None:
    """A block of the lost history looks like the one on record: as one, half of it is forgotten."""
    history = History(tmp_path, window(12, block=3))
    history.go_on(30)
    account, standing = ZoneAccount(history.zone), history.standing()
    newest, first, last = standing.latest_windows, standing.last_t - 5, standing.last_t
    assert newest is not None
    before = math.fsum(loss for *_, loss in newest.rows[1])

    def lost(others: Sequence[ZoneAccount] = (), *, anew: bool) -> float:
        found = account.windows_after_loss(standing, first, last, other_accounts=others, anew=anew)
        assert found is not None
        return math.fsum(loss for *_, loss in found.blocks) - before

    on_record = sum(loss for _, end, loss in blocks(standing) if end >= first)
    assert on_record > 0
    assert lost(anew=False) == 0, "in one history a block is opened once"
    assert lost(anew=True) == pytest.approx(on_record)
    larger = ZoneAccount(street(history.zone.begins, window(12, 3.0, block=3)))
    assert lost([larger], anew=True) == pytest.approx(4 * on_record)


def test_the_audit_recomputes_the_account_and_finds_a_forged_one(tmp_path: Path) -> None:
    zone = load(tmp_path, BEGINS, *WINDOW)
    with curator(tmp_path, zone, Shown(), now=zone.begins) as it:
        for _ in range(30):
            houses = list(range(4))
            starts = [it.start_of(it.t)] * 4
            it._meters.put(zone.id, houses, starts, [HOUR] * 4, [300] * 4)
            it.run(it.next_due())
    ledger = str(tmp_path / "ledger.db")
    case = load_case(ledger, [tmp_path / "service.toml"])
    found = certify(case.evidence, case.terms)
    assert found.verdict != "failed", [one for one in found.checks if one.status == "failed"]
    evidence = case.evidence[0]
    release = next(one for one in evidence.ledger.releases[12:] if one.windows)
    promises, spent = release.windows
    forged = replace(release, windows=(promises, (*spent[:-1], (*spent[-1][:2], 0.01))))
    releases = tuple(forged if one is release else one for one in evidence.ledger.releases)
    changed = replace(evidence, ledger=replace(evidence.ledger, releases=releases))
    again = certify([changed], case.terms)
    assert again.verdict == "failed"


def test_a_file_says_what_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zone = load(tmp_path, BEGINS, *WINDOW)
    lengths = zone.policy.schedule.lengths
    assert len(set(lengths)) == 1
    assert 168 % lengths[0] == 0, "blocks begin at the same local times in every week"
    assert zone.policy.epsilon == pytest.approx(1 / (-(-12 // lengths[0]) + 1))
    assert zone.ends == placed(zone, zone.ends).begins, "a week, and then the next"
    said = promise_json(zone, "simulation")
    assert said["secret"] == "window"
    assert said["window_s"] == 12 * HOUR
    assert "in any 12 hours by at most a factor of 2.72" in said["sentence"]
    assert "hidden less" in said["sentence"]
    assert not any("occupancy" in one for one in said["assumptions"])
    with pytest.raises(SystemExit):  # it has no key yet
        main(["check", str(tmp_path / "service.toml"), "--json", "-"])
    (values,) = json.loads(capsys.readouterr().out)["zones"]
    assert values["promise"]["secret"] == "window"
    assert values["promise"]["covers"] == said["covers"]
    hour, day, *_ = PromiseTerms.model_validate(said, strict=True).covers
    per_hour, per_day = most_blocks(lengths, 2), most_blocks(lengths, 25)
    assert hour.shift == pytest.approx(min(per_hour * zone.policy.epsilon, 1))
    assert day.shift == pytest.approx(min(per_day * zone.policy.epsilon, 2)), "two windows"


def test_the_announced_error_is_that_of_the_simulated_filter(tmp_path: Path) -> None:
    """The figure by which the plan chose its blocks, in check and on the promise's page."""
    many = (("count = 3", "count = 30"),)
    zone = load(tmp_path, BEGINS, *WINDOW, *many)
    found = week_plan(*_pattern(zone))
    assert found is not None
    least = min(option.error for option in found.options)
    chosen = next(option for option in found.options if option.error <= 1.01 * least)
    assert zone.policy.schedule.lengths[-1] == chosen.length
    seen = outlook(zone)
    assert price_error(seen) == pytest.approx(chosen.error, rel=0.02)
    assert promise_json(zone, "simulation")["error"] == pytest.approx(chosen.error, rel=0.02)


def test_a_block_of_a_file_is_adjusted_to_the_week(tmp_path: Path) -> None:
    five = (('window = "PT12H"', 'window = "PT12H"\nblock = "PT5H"'),)
    found = week_plan(*_pattern(load(tmp_path, BEGINS, *WINDOW, *five)))
    assert found is not None
    blocks = found.policy.schedule.lengths
    assert sum(blocks) == 168
    assert set(blocks) == {4, 5}


def _pattern(zone: ZoneService) -> tuple[Pattern, Promise, int]:
    assert zone.pattern is not None
    assert zone.promise is not None
    return zone.pattern, zone.promise, zone.seconds


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (('secret = "window"', 'secret = "step"'), "window is set with the secret step"),
        (('window = "PT12H"', 'window = "PT1S"'), "window"),
        (("\neta = 1.0", "\neta = 0.5"), "eta"),
    ],
)
def test_what_does_not_go_with_a_window_is_refused(
    tmp_path: Path, edit: tuple[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, BEGINS, *WINDOW, edit)


def test_a_plan_needs_no_model_to_be_true() -> None:
    """The noise of a window is the reach over the loss of a block, whatever the chain."""
    for law in ([0.99, 0.01], [0.5, 0.5]):
        theta = OccupancyModel.factored([law], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0, 0])
        zone = zone_of(theta, BEGINS, 1.0, 24, None)
        found = plan(
            *zone.scenario.terms, secret="window", epsilon=1.0, window=13, rho=None,
            terms=Policy(1.0, horizon=24), block=3,
        )  # fmt: skip
        assert found.scale[0] == pytest.approx(1000 * 5, rel=1e-9)
        assert found.window == 13


def test_certificate_check_and_answer_state_the_same_of_a_window(tmp_path: Path) -> None:
    """Whichever weekday it begins; nothing of models, which it does not use."""
    zone = load(tmp_path, BEGINS + 5 * HOUR, *WINDOW)
    answer, checked = promise_json(zone, "production"), zone_json(zone, outlook(zone))
    certificate = certificate_json(certify((), (terms_of(zone),)))
    stated = certificate["promise"]
    assert certificate["assumptions"] == answer["assumptions"] == checked["assumptions"]
    assert not any("Occupancy" in line for line in certificate["assumptions"])
    assert stated["covers"] == answer["covers"] == checked["promise"]["covers"]
    touched = 7 * 24 // zone.policy.schedule.lengths[0] + 1
    week = next(cover for cover in stated["covers"] if cover["duration"] == "P7D")
    assert week["shift"] == pytest.approx(touched * zone.policy.epsilon_at(1))
    assert stated["leakage"] == answer["leakage"]
    assert (answer["leakage"]["day"], answer["leakage"]["week"]) == (None, None)
    assert (checked["promise"]["day"], checked["promise"]["week"]) == (None, None)


def test_the_noise_of_a_window_is_explained_without_a_model(tmp_path: Path) -> None:
    zone = load(tmp_path, BEGINS, *WINDOW)
    calibration = first_state(zone).scheduler.at(1)
    inside = Inside(calibration.scale, calibration.epsilon, calibration.epsilon_any, 0, 0, 4)
    text = explanation(zone, inside)
    assert "model" not in text
    cut = int(zone.scenario.consumption.clamp_ends(zone.policy.clamp)[1, 0])
    assert text.startswith(f"House 0 (meter {zone.meters[0]}, contract ")
    assert f", readings cut at {cut:,} Wh) needs the most noise" in text
