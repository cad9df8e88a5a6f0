"""An interval promise across epochs: planned with its neighbours, counted from the ledger."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import OccupancyModel
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import LostSteps
from hushgrid.cli import main
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.interval_plan import EpochTimes, in_epoch, kept
from hushgrid.files.service_file import load_deployment
from hushgrid.mechanism.scheduler import house_losses, schedule
from hushgrid.model.occupancy import Calendar
from hushgrid.service.audit import load_case, load_ledger, terms_of
from hushgrid.service.border import border
from hushgrid.service.curator import Curator
from hushgrid.service.earlier_epochs import known, of_run, past_epochs
from hushgrid.service.epoch import first_state
from hushgrid.service.gaps import book, largest_loss
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import (
    GapRecord,
    LedgerState,
    ResumeRecord,
    schedule_digest,
)
from hushgrid.service.ledger.writer import verify_signature
from hushgrid.service.promise import promise_json, sentence
from hushgrid.service.same_terms import as_begun
from hushgrid.service.status import from_ledger
from tests.service.borders import FIRST, Street, World, from_file
from tests.service.setups import example
from tests.service.test_curator import Shown, curator

BEGINS = 1_767_225_600  # 2026-01-01T00:00:00Z, a Thursday
HOUR, DAY = 3600, 86_400
VERIFIER = Path(__file__).parents[2] / "scripts" / "verify_ledger.py"
EDITS = (
    ('secret = "step"', 'secret = "interval"'),
    ("epsilon = 0.5", "epsilon = 1.0"),
    ("horizon = 672", "horizon = 24"),
    ("\neta = 0.05", "\neta = 1.0"),
    ('interval = "PT15M"', 'interval = "PT1H"'),
    ('meter_interval = "PT15M"', 'meter_interval = "PT1H"'),
    ("count = 30", "count = 3"),
    ("count = 10", "count = 1"),
)


MODELS = """
[[models]]
name = "survey"

[models.chains.workers]
home_at_start = 0.9
periods = [
  { from = "00:00", leave = 0.02, come = 0.1 },
  { from = "07:00", leave = 0.5, come = 0.2 },
  { from = "16:00", leave = 0.1, come = 0.5 },
]

[models.chains."at home"]
home_at_start = 0.9
periods = [
  { from = "00:00", leave = 0.05, come = 0.2 },
  { from = "09:00", leave = 0.3, come = 0.4 },
]
"""
NEVER = tuple(  # occupancy that never changes: no later epoch is planned for
    (f"leave = {leave}, come = {come}", "leave = 1e-7, come = 1e-7")
    for leave, come in ((0.02, 0.1), (0.5, 0.2), (0.1, 0.5), (0.05, 0.2), (0.3, 0.4))
)
_FIRST: dict[tuple[tuple[str, str], ...], ZoneService] = {}


def load(folder: Path, begins: int = BEGINS, *more: tuple[str, str]) -> ZoneService:
    """A street of four homes with prices by the hour, a day an epoch."""
    text = example(begins).partition("[[models]]")[0] + MODELS
    for old, new in (*EDITS, *more):
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / "service.toml").write_text(text)
    (found,) = load_deployment(folder / "service.toml").zones
    return found


def zone(folder: Path, begins: int = BEGINS, *more: tuple[str, str]) -> ZoneService:
    """The same, read once for all tests and laid over other times."""
    if more not in _FIRST:
        _FIRST[more] = load(folder, BEGINS, *more)
    first = _FIRST[more]
    return in_epoch(first, begins) or replace(first, begins=begins)


def leakage_of(zones: Sequence[ZoneService]) -> float:
    """Epochs that follow each other, as one chain from the first one's Pi; by hand, at eta = 1."""
    (first,) = zones[0].scenario.models
    slots = np.concatenate([one.scenario.models[0].calendar.slots for one in zones])
    world = replace(first, calendar=Calendar(slots))
    rows = []
    for one in zones:
        s = one.scenario
        for calibration in schedule(s.models, s.zone, s.consumption, one.policy):
            lost, _ = house_losses(s.zone, s.consumption, calibration.t, calibration.scale, 1.0)
            rows.append(lost)
    return temporal_leakage(world, np.array(rows)).worst


def publish(it: Curator, releases: int) -> None:
    """The next intervals with readings of every home."""
    houses = list(range(len(it.service.meters)))
    for _ in range(releases):
        n = len(houses)
        starts = [it.start_of(it.t)] * n
        it._meters.put(it.service.id, houses, starts, [it.service.seconds] * n, [400] * n)
        assert len(it.run(it.next_due())) == 1


def epoch(folder: Path, one: ZoneService, releases: int = 24) -> None:
    """Begin it and publish; the first one as well as a later one."""
    again = (folder / "ledger.db").exists()
    with curator(folder, one, Shown(), now=one.begins, new_epoch=again) as it:
        publish(it, releases)


def standing(folder: Path) -> LedgerState:
    with open_store(str(folder / "ledger.db"), create=False) as store:
        report = check(store.records("elm-street"), verify_signature, {})
    assert report.first_bad is None
    return report.standings["elm-street"]


def bodies(folder: Path, kind: str = "epoch") -> list[dict[str, object]]:
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return [dict(one.body) for one in store.records("elm-street") if one.kind == kind]


def verified(folder: Path) -> None:
    """The export stands for a verifier that knows nothing of this package."""
    with open_store(str(folder / "ledger.db"), create=False) as store:
        text = "".join(record.line + "\n" for record in store.records("elm-street"))
    (folder / "ledger.ndjson").write_text(text)
    command = [sys.executable, str(VERIFIER), str(folder / "ledger.ndjson")]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


# ---- the plan


def test_days_one_after_another_keep_the_promise(tmp_path: Path) -> None:
    """Planned each on its own, two days of this street leak 1.24 where 1 is promised."""
    days = [load(tmp_path, BEGINS + k * DAY) for k in range(3)]
    assert leakage_of(days[:2]) <= 1 + 1e-6
    assert leakage_of(days) <= 1 + 1e-6
    assert leakage_of(days) > 0.99, "and no noise is wasted"


def test_what_is_planned_for_one_day_says_so(tmp_path: Path) -> None:
    found = zone(tmp_path)
    assert found.memory is not None
    assert found.memory % 24 == 0
    assert found.leakage == pytest.approx(1.0, abs=1e-5)
    assert leakage_of([found]) < leakage_of([found, found]) <= 1 + 1e-6


@pytest.mark.parametrize("hours", [20, 31])
def test_clocks_that_change_and_days_that_do_not_fit(tmp_path: Path, hours: int) -> None:
    """In Zurich 2026-10-25 has an hour of the night twice; the plans on both sides know of it."""
    begins = 1_792_713_600  # 2026-10-23T00:00:00Z
    edit = ("horizon = 24", f"horizon = {hours}")
    found = [zone(tmp_path, begins + k * hours * HOUR, edit) for k in range(5)]
    assert len({each.policy.epsilon for each in found}) > 1
    assert leakage_of(found) <= 1 + 1e-6


# ---- the ledger


def later(refused: BaseException) -> int:
    """How many intervals later the sentence says that the epoch may begin."""
    found = re.search(r"give a begins (\d+) intervals later", str(refused))
    assert found is not None, refused
    return int(found[1])


def test_an_epoch_of_the_same_terms_follows_at_once(tmp_path: Path) -> None:
    for k in range(3):
        epoch(tmp_path, zone(tmp_path, BEGINS + k * DAY))
    records = bodies(tmp_path)
    assert [body["interval"] for body in records] == [1.0] * 3
    assert all(body["leakage"] == pytest.approx(1.0, abs=2e-6) for body in records)
    verified(tmp_path)
    found = border(zone(tmp_path, BEGINS + 3 * DAY), standing(tmp_path))
    assert found is not None
    assert found.holds
    assert found.leakage > 0.9


def test_releases_that_may_be_lost_are_counted(tmp_path: Path) -> None:
    first = zone(tmp_path)
    epoch(tmp_path, first, 12)
    after = zone(tmp_path, BEGINS + 86_400)
    found = standing(tmp_path)
    t = found.last_t
    lost = replace(found, booked=(ResumeRecord(t + 1, t + 12, 1.0, 0.0, found.head.seq),))
    without, counted = border(after, found), border(after, lost)
    assert without is not None
    assert counted is not None
    assert counted.leakage > without.leakage


@pytest.mark.soak
def test_the_certificate_counts_epochs_together(tmp_path: Path) -> None:
    """Two days: each says less on its own."""
    days = [zone(tmp_path, BEGINS + k * DAY) for k in range(2)]
    for day in days:
        epoch(tmp_path, day)
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    found = certify(evidence, [terms_of(zone(tmp_path))], commit=schedule_digest)
    assert len(found.recomputed) == 2, "both epochs are known from the one file"
    assert "All releases are of the terms given" in found.check("terms").text
    assert found.check("schedule").status == "passed"
    worst = [float(one.leakage.max()) for one in found.houses if one.leakage is not None]
    assert max(worst) == pytest.approx(leakage_of(days), abs=1e-9)
    assert found.check("promise").status == "passed"
    less = replace(terms_of(zone(tmp_path)), epsilon=max(worst) - 1e-3)
    broken = certify(evidence, [less], commit=schedule_digest).check("promise")
    assert broken.status == "failed"
    assert "is promised" in broken.text

    def leaked(evidence: Any, *services: Any) -> list[float]:
        made = certify(evidence, [terms_of(one) for one in services], commit=schedule_digest)
        return [float(one.leakage.max()) for one in made.houses if one.leakage is not None]

    (one,), (first, second) = evidence, evidence[0].epochs
    apart = leaked([replace(one, epochs=(second,))], zone(tmp_path))
    assert apart[0] < worst[1], "alone it says less"
    # the end of an epoch may be published and lost: each house loses what its release would cost
    kept = first.entries[:12]
    lost = replace(first, entries=kept, lost=frozenset(range(13, 25)))
    counted = leaked([replace(one, epochs=(lost, second))], zone(tmp_path))
    assert counted == pytest.approx(worst)
    lost = replace(first, entries=(), lost=frozenset(range(1, 25)))
    counted = leaked([replace(one, epochs=(lost, second))], zone(tmp_path))
    assert counted == pytest.approx(worst)
    # more is booked than the epoch's own releases would lose: of another epoch, or two histories
    gap = LostSteps(first.place, first.first + 12, first.first + 23, 9.0)
    beyond = replace(one, epochs=(replace(lost, entries=kept), second), gaps=(gap,))
    assert max(leaked([beyond], zone(tmp_path))) > 9
    begun = replace(second, entries=(), place=second.place - 1)  # and was begun again
    three = leaked([replace(one, epochs=(first, begun, second))], zone(tmp_path))
    assert [three[0], three[2]] == pytest.approx(worst)


@pytest.mark.soak
def test_the_certificate_counts_epochs_of_several_files_together(tmp_path: Path) -> None:
    """An operator keeps the file of each epoch; they differ in the hour they begin with."""
    days = [zone(tmp_path, BEGINS + k * (DAY + HOUR)) for k in range(2)]
    for day in days:
        epoch(tmp_path, day)
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    found = []
    for services in ([zone(tmp_path)], days, days[::-1]):
        terms = [terms_of(one) for one in services]
        made = certify(evidence, terms, commit=schedule_digest)
        found.append([float(one.leakage.max()) for one in made.houses if one.leakage is not None])
    assert len({terms_of(one).digest for one in days}) == 2
    assert found[1] == pytest.approx(found[0])
    assert found[2] == pytest.approx(found[0])


def test_a_figure_can_be_accepted_in_public(tmp_path: Path) -> None:
    epoch(tmp_path, zone(tmp_path, BEGINS, *NEVER))
    following = load(tmp_path, BEGINS + DAY, *NEVER)
    found = border(following, standing(tmp_path))
    assert found is not None
    assert not found.holds
    with pytest.raises(LedgerError, match="--accept-leakage"):
        epoch(tmp_path, replace(following, accepts=1.0))
    epoch(tmp_path, replace(following, accepts=2.5))
    assert bodies(tmp_path)[1]["leakage"] == pytest.approx(found.leakage)
    assert found.leakage > 1.001
    verified(tmp_path)
    deployment = replace(
        load_deployment(tmp_path / "service.toml"), ledger=str(tmp_path / "ledger.db")
    )
    (again,) = as_begun(deployment).zones
    assert promise_json(again, "simulation")["epsilon"] == pytest.approx(found.leakage)
    assert f"(e^{found.leakage:g})" in sentence(again)
    (status,) = from_ledger(replace(deployment, zones=(again,)), BEGINS + 2 * DAY)
    assert status.leakage == pytest.approx(found.leakage)


@pytest.mark.parametrize("has", ["nothing", "a gap", "a price after its horizon"])
def test_what_an_epoch_without_a_price_in_its_horizon_accepted_is_no_room_for_others(
    tmp_path: Path, has: str
) -> None:
    """What it accepted would raise the promise of steps before it: 3.0016 at 3, 1.91 at 1.67."""
    epoch(tmp_path, zone(tmp_path, BEGINS, *NEVER))
    following = load(tmp_path, BEGINS + DAY, *NEVER)

    def allowed() -> list[float]:
        now = standing(tmp_path)
        each = of_run(following, now, past_epochs(now), known(following, now))
        return [most for _, most in each]

    assert allowed() == [1.0, 1.0]
    with curator(
        tmp_path, replace(following, accepts=2.5), Shown(), now=following.begins, new_epoch=True
    ) as it:
        if has == "a gap":
            it._ledger.write(GapRecord(it.t, it.t, "failover"))
            book(it.service, it._ledger)
        elif has == "a price after its horizon":
            it.leave_out_until(following.begins + DAY)
            publish(it, 1)
    assert bodies(tmp_path)[1]["accepted"] == pytest.approx(2.0, abs=1e-3)
    assert set(allowed()) == {1.0}
    (terms,) = load_case(str(tmp_path / "ledger.db"), [tmp_path / "service.toml"]).terms
    stated = bodies(tmp_path)[1]["accepted"] if has == "a gap" else 1.0  # what may be lost counts
    assert terms.epsilon == stated


def test_occupancy_that_never_changes_has_one_epoch(tmp_path: Path) -> None:
    """No silence helps: a second epoch is refused, or accepted with its figure."""
    one = zone(tmp_path, BEGINS, *NEVER)
    assert one.memory is None
    assert one.leakage == pytest.approx(1.0, abs=1e-4)
    epoch(tmp_path, one)
    following = zone(tmp_path, BEGINS + DAY, *NEVER)
    with pytest.raises(LedgerError, match="no later begins within 32 days helps"):
        epoch(tmp_path, following)
    epoch(tmp_path, replace(following, accepts=2.0), 1)
    assert bodies(tmp_path)[1]["leakage"] == pytest.approx(2.0, abs=1e-3)


def test_promises_about_one_release_are_not_held_up(tmp_path: Path) -> None:
    weaker = (('secret = "interval"', 'secret = "step"'),)
    epoch(tmp_path, zone(tmp_path, BEGINS, *weaker), 2)
    assert border(zone(tmp_path, BEGINS + DAY, *weaker), standing(tmp_path)) is None
    epoch(tmp_path, zone(tmp_path, BEGINS + DAY, *weaker), 1)
    assert all("leakage" not in body for body in bodies(tmp_path))


def test_accept_leakage_needs_a_new_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["serve", str(tmp_path / "service.toml"), "--accept-leakage", "1.2"])
    assert stopped.value.code == 2
    assert "accept-leakage is 1.2 without --new-epoch" in capsys.readouterr().err


def test_a_service_file_is_planned_among_its_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """hushgrid plan and the service choose the same noise."""
    found = load(tmp_path)
    for option, epsilon in ((), found.policy.epsilon), (("--no-continued",), None):
        path = str(tmp_path / "service.toml")
        with pytest.raises(SystemExit) as stopped:
            main(["plan", "--config", path, "--no-tables", "--json", "-", *option])
        assert not stopped.value.code
        values = json.loads(capsys.readouterr().out)
        if epsilon is None:
            assert values["running"] is None
            assert max(values["epsilon_t"]) > 1.2 * found.policy.epsilon
        else:
            assert values["running"] > 24
            assert values["epsilon_t"] == [epsilon] * 24


# ---- more than two epochs

SLOW = tuple(
    (f"leave = {leave}, come = {come}", "leave = 0.02, come = 0.03")
    for leave, come in ((0.02, 0.1), (0.5, 0.2), (0.1, 0.5), (0.05, 0.2), (0.3, 0.4))
)
PLACES = (('"ledger.sqlite"', '"ledger.db"'), ('"hushgrid.key"', '"key"'))
STEP = ('secret = "interval"', 'secret = "step"')


def promising(epsilon: float) -> tuple[str, str]:
    return ("epsilon = 1.0", f"epsilon = {epsilon}")


def test_lost_steps_count_where_no_release_is_left(tmp_path: Path) -> None:
    first = zone(tmp_path, BEGINS, *SLOW, promising(4.0))
    epoch(tmp_path, first, 0)
    found = standing(tmp_path)
    t = BEGINS // HOUR
    lost = replace(
        found, booked=(ResumeRecord(t, t + 23, 24 * first.policy.epsilon, 0.0, found.head.seq),)
    )
    counted = border(zone(tmp_path, BEGINS + DAY, *SLOW, promising(4.0)), lost)
    assert counted is not None
    assert counted.holds
    assert counted.leakage > 1.9


def test_steps_lost_after_an_epoch_was_set_aside_are_counted(tmp_path: Path) -> None:
    """An epoch that begins later was recorded first, and has published nothing."""
    epoch(tmp_path, zone(tmp_path, BEGINS, *SLOW, promising(4.0)), 2)
    found = standing(tmp_path)
    t = found.last_t
    lost = replace(found, booked=(ResumeRecord(t + 1, t + 22, 3.4, 0.0, found.head.seq),))
    (own,) = lost.epochs
    before = replace(own, first=own.first + 12, digest="0" * 64, seq=own.seq - 1)
    aside = replace(lost, epochs=(before, own))
    after = zone(tmp_path, BEGINS + DAY, *SLOW, promising(4.0))
    assert border(after, aside) == border(after, lost)


def test_a_figure_that_nothing_needs_is_not_stated(tmp_path: Path) -> None:
    """`--accept-leakage` is for all zones of a file; the record has what was needed."""
    one = replace(zone(tmp_path), accepts=5.0)
    with curator(tmp_path, one, Shown(), now=one.begins) as it:
        assert it.service.accepts is None
        publish(it, 24)


def test_a_certificate_says_where_it_counts_other_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """About one step, releases of epochs before and after; about the record, the epoch's own."""
    for day in (0, 1):
        epoch(tmp_path, load(tmp_path, BEGINS + day * DAY, *SLOW, STEP, *PLACES), 3)
    with pytest.raises(SystemExit):
        main(["audit", str(tmp_path / "service.toml")])
    out = capsys.readouterr().out
    assert "3 releases: together with those of neighbouring epochs they leak at most" in out
    assert "and on their own at most" in out


def test_a_new_epoch_does_not_state_what_an_old_one_promised(tmp_path: Path) -> None:
    epoch(tmp_path, zone(tmp_path, BEGINS, *SLOW, promising(4.0)))
    epoch(tmp_path, zone(tmp_path, BEGINS + 40 * DAY, *SLOW), 1)
    assert bodies(tmp_path)[1]["leakage"] == pytest.approx(1.0, abs=2e-6)


BLOCKS = (
    ("horizon = 24", "horizon = 24\nblock_steps = [6]\nblock_epsilon = [0.9]"),
    ('estimator = "filter"', 'estimator = "model"'),
)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.sampled
def test_what_is_accepted_is_stated_wherever_the_promise_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], blocks: bool
) -> None:
    """Of blocks that are given, and of occupancy that never changes."""
    rare = tuple((move, "leave = 0.0008, come = 0.0008") for move, _ in SLOW)
    edits = (*rare, promising(4.0), *BLOCKS) if blocks else NEVER
    epoch(tmp_path, load(tmp_path, BEGINS, *edits))
    after = load(tmp_path, BEGINS + DAY, *edits, *PLACES)
    epoch(tmp_path, replace(after, accepts=9.0), 24)
    figure = bodies(tmp_path)[1]["leakage"]
    assert isinstance(figure, float)
    assert figure > 1.001
    for command in ("audit", "check", "status"):
        with pytest.raises(SystemExit):
            main([command, str(tmp_path / "service.toml")])
        out = capsys.readouterr().out
        assert f"{figure:g}" in out, command


def test_who_is_certain_where_a_day_begins_is_not_certain_before(tmp_path: Path) -> None:
    """At home for certain at the start, and nobody leaves at the weekend."""
    found = []
    for start in ("1.0", "0.9"):
        edits = [
            ("home_at_start = 0.9", f"home_at_start = {start}"),
            ("leave = 0.02, come = 0.1", "leave = 0.0, come = 0.1"),
            ("leave = 0.5, come = 0.2", "leave = 0.0, come = 0.2"),
            ("leave = 0.1, come = 0.5", "leave = 0.0, come = 0.5"),
            ('name = "survey"', 'name = "survey"\nstructural_zeros = "the survey"'),
        ]
        pattern = load(tmp_path, BEGINS, STEP, *edits).pattern
        assert pattern is not None
        found.append(kept(pattern, EpochTimes(BEGINS, HOUR, 24, "Europe/Zurich"), BEGINS, 6))
    assert found[0] == found[1] == 1.0


def test_batch_takes_the_figure_that_is_given_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A figure accepted for the present epoch is none for the next one."""
    pytest.importorskip("ibis")
    from tests.service.batch.batches import write

    def run(*words: str) -> str:
        with pytest.raises(SystemExit):
            main(["batch", str(tmp_path / "service.toml"), *words, "--new-epoch"])
        return capsys.readouterr().err

    epoch(tmp_path, zone(tmp_path, BEGINS, *NEVER))
    begins = [BEGINS + DAY, BEGINS + DAY + HOUR]
    meters = load(tmp_path, begins[0], *PLACES, *NEVER).meters
    rows = [(meter, start, HOUR, 300) for meter in meters for start in begins]
    write(tmp_path / "rows" / "a.parquet", rows)
    place = ("--readings", str(tmp_path / "rows"), "--seed", "4", "--from")
    times = [f"2026-01-02T0{hour}:00:00Z" for hour in range(3)]
    first = (*place, times[0], "--to", times[1])
    asked = re.search(r"--accept-leakage (\S+)\.$", run(*first).strip())
    assert asked is not None
    assert run(*first, "--accept-leakage", asked[1]) == ""
    assert len(bodies(tmp_path)) == 2
    load(tmp_path, begins[1], *PLACES, *NEVER)
    assert "state the figure in public" in run(*place, times[1], "--to", times[2])
    assert len(bodies(tmp_path)) == 2


# ---- the same terms again and again


def next_epoch(one: ZoneService, t: int, horizon: int | None = None) -> ZoneService:
    """The same terms from step t on, with nothing accepted."""
    found = in_epoch(one, t * one.seconds, horizon)
    assert found is not None
    return replace(found, accepts=None)


def go_on(one: ZoneService, silent: Sequence[int], days: int) -> list[float]:
    """The figures of a file that is continued day after day, but for days without any release."""
    street, day, figures = Street(len(one.meters)), one.policy.horizon, []
    for k in (k for k in range(days) if k not in silent):
        now = next_epoch(one, one.begins // one.seconds + k * day)
        figures.append(street.begin(now))
        street.publish(now, range(1, day + 1))
    return figures


@pytest.mark.parametrize("silent", [(), (3, 4)])
def test_the_same_terms_go_on_day_after_day(silent: Sequence[int]) -> None:
    """Releases slow down forgetting; the fifth day was refused with 1.42."""
    move = World([[0]], [np.array([[0.98, 0.02], [0.2, 0.8]])])
    one = from_file(move.model(), FIRST * HOUR // DAY * DAY, 1.0, 24)
    figures = go_on(one, silent, 7)
    assert max(figures) <= 1 + 1e-6
    assert len(figures) == 7 - len(silent)


@pytest.mark.soak
def test_the_template_goes_on(tmp_path: Path) -> None:
    """The street of `hushgrid init`, a day an epoch; the ninth was refused with 1.52."""
    text = example(1_794_700_800)  # 2026-11-15, a Sunday
    for old, new in (EDITS[0], EDITS[1], ("horizon = 672", "horizon = 96"), EDITS[6]):
        assert old in text, old
        text = text.replace(old, new, 1)
    (tmp_path / "service.toml").write_text(text)
    (one,) = load_deployment(tmp_path / "service.toml").zones
    assert max(go_on(one, (), 9)) <= 1 + 1e-6


def test_a_chain_that_forgets_slowly_goes_on() -> None:
    """Planned over the steps that silence needs, it leaks 4.0016 in the long run."""
    move = World([[0]], [np.array([[0.9999, 0.0001], [0.5, 0.5]])])
    one = from_file(move.model(), FIRST * HOUR // DAY * DAY, 4.0, 24)
    assert max(go_on(one, (), 4)) <= 4 * (1 + 1e-6)


@pytest.mark.parametrize("horizon", [4, 1])
def test_a_certain_start_goes_on(horizon: int) -> None:
    """The large house is at home for certain where an epoch begins; the third was refused."""
    moves = [[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.4, 0.6]]]
    theta = OccupancyModel.factored([[0.0, 1.0], [0.75, 0.25]], [moves])
    one = from_file(theta, FIRST * HOUR // DAY * DAY, 0.5, horizon, bounds=(1000, 200))
    assert max(go_on(one, (4,), 8)) <= 0.5 * (1 + 1e-6)


def test_a_lost_step_with_a_certain_start_is_booked_for_every_house() -> None:
    """The first step, in the second of two epochs: the large house is not certain any more."""
    moves = [[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.4, 0.6]]]
    theta = OccupancyModel.factored([[0.0, 1.0], [0.75, 0.25]], [moves])
    one = from_file(theta, FIRST * HOUR, 0.5, 4, bounds=(1000, 200))
    street = Street(2)
    street.begin(one)
    lost = replace(street.standing, gap=GapRecord(FIRST, FIRST, "witness"))
    scale = first_state(one).scheduler.at(1).scale
    assert largest_loss(one, lost, [one])[0] >= 1000 / scale


def test_a_chain_of_the_same_terms_ends_where_a_house_came_back() -> None:
    """Also where what may be lost of the epoch before was booked only after that."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.7, 0.3], [0.3, 0.7]]]])
    for came in (False, True):
        street = Street(1)
        street.begin(one := from_file(theta, FIRST * HOUR, 1.0, 24))
        if came:
            street.move("out", 0.0)
            street.move("in", 5.0, (FIRST + 23) * HOUR)
        street.lose(FIRST, [0.01])
        assert bool(known(next_epoch(one, FIRST + 24), street.standing)) is not came
