"""An interval promise across epochs: planned with its neighbours, counted from the ledger."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import OccupancyModel, Policy
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.audit.certificate import certify
from hushgrid.audit.evidence import LostSteps
from hushgrid.cli import main
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.interval_plan import EpochTimes, in_epoch, kept
from hushgrid.files.service_file import load_deployment
from hushgrid.mechanism.policy import Even, Gaussian
from hushgrid.mechanism.scheduler import house_losses, schedule
from hushgrid.model.occupancy import Calendar
from hushgrid.service.audit import load_ledger, terms_of
from hushgrid.service.border import Border, _later, border, opening
from hushgrid.service.curator import Curator
from hushgrid.service.earlier_epochs import known
from hushgrid.service.epoch import check_same, first_state
from hushgrid.service.gaps import largest_loss
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import (
    EpochRecord,
    GapRecord,
    LedgerState,
    ResumeRecord,
    TransferRecord,
    schedule_digest,
)
from hushgrid.service.ledger.writer import verify_signature
from hushgrid.service.promise import promise_json, sentence
from hushgrid.service.readiness import from_ledger
from hushgrid.service.same_terms import as_begun, zone_as_begun
from hushgrid.service.transfer import takes_along
from tests.bodies import stating
from tests.service.borders import FIRST, Street, World, exact, from_file, world, zone_of
from tests.service.setups import example
from tests.service.setups import service as made_by_hand
from tests.service.test_curator import Shown, curator
from tests.test_before import laid_out

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
    ("budget = 400.0", "# no budget"),
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
    alone = in_epoch(found, BEGINS, alone=True)
    assert alone is not None
    assert alone.policy.epsilon > 1.2 * found.policy.epsilon
    assert leakage_of([alone]) <= 1 + 1e-6 < leakage_of([alone, alone])


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
    assert (found.holds, found.exact) == (True, True)
    assert found.leakage > 0.9


@pytest.mark.parametrize("known", [True, False])
def test_releases_that_may_be_lost_are_counted(tmp_path: Path, known: bool) -> None:
    first = zone(tmp_path)
    epoch(tmp_path, first, 12)
    more = () if known else (("alpha = 0.012", "alpha = 0.013"),)
    after = zone(tmp_path, BEGINS + 86_400, *more)
    found = standing(tmp_path)
    t = found.last_t
    lost = replace(found, booked=(ResumeRecord(t + 1, t + 12, 1.0, 0.0, found.head.seq),))
    without, counted = border(after, found), border(after, lost)
    assert without is not None
    assert counted is not None
    assert counted.exact == without.exact
    assert counted.leakage > without.leakage


def test_an_epoch_of_before_ends_as_it_began_and_is_followed(tmp_path: Path) -> None:
    """Its schedule was planned on its own: it goes on, and the next one waits or is accepted."""
    one = load(tmp_path)
    alone = in_epoch(one, BEGINS, alone=True)
    assert alone is not None
    legacy = replace(alone, promise=None)  # writes the record as it was written then
    epoch(tmp_path, legacy, 12)
    written = {"digest", "first", "horizon", "seconds", "roster", "exact"}
    assert set(bodies(tmp_path)[0]) - {"together", "houses"} == written
    deployment = replace(
        load_deployment(tmp_path / "service.toml"), ledger=str(tmp_path / "ledger.db")
    )
    with pytest.raises(LedgerError, match="not those of its epoch"):
        check_same(one, standing(tmp_path))
    (goes_on,) = as_begun(deployment).zones
    check_same(goes_on, standing(tmp_path))
    assert goes_on.policy.epsilon == alone.policy.epsilon
    with curator(tmp_path, goes_on, Shown(), now=BEGINS + 12 * HOUR) as it:
        publish(it, 12)
    following = zone(tmp_path, BEGINS + DAY)
    with pytest.raises(LedgerError, match=r"to 1\.\d+ where 1 is promised") as refused:
        epoch(tmp_path, following)
    assert len(bodies(tmp_path)) == 1, "what is refused leaves no trace"
    epoch(tmp_path, zone(tmp_path, BEGINS + DAY + later(refused.value) * HOUR), 2)
    assert bodies(tmp_path)[1]["leakage"] == pytest.approx(1.0, abs=2e-6)
    verified(tmp_path)


@pytest.mark.soak
def test_the_certificate_counts_epochs_together(tmp_path: Path) -> None:
    """Two days that were each planned on their own: 1 each, and more than that together."""
    days = [in_epoch(zone(tmp_path), BEGINS + k * DAY, alone=True) for k in range(2)]
    for day in days:
        assert day is not None
        epoch(tmp_path, replace(day, promise=None))
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    found = certify(evidence, [terms_of(zone(tmp_path))], commit=schedule_digest)
    assert len(found.recomputed) == 2, "both epochs are known from the one file"
    assert "All releases are of the terms given" in found.check("terms").text
    assert found.check("schedule").status == "passed"
    worst = [float(one.leakage.max()) for one in found.houses if one.leakage is not None]
    expected = leakage_of([day for day in days if day is not None])
    assert max(worst) == pytest.approx(expected, abs=1e-9)
    assert max(worst) > 1.001
    assert found.check("promise").status == "failed"
    assert "where 1 is promised" in found.check("promise").text

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
    accepted = replace(terms_of(zone(tmp_path)), epsilon=max(worst) + 1e-6)
    assert certify(evidence, [accepted]).check("promise").status == "passed"


@pytest.mark.soak
def test_the_certificate_counts_epochs_of_several_files_together(tmp_path: Path) -> None:
    """An operator keeps the file of each epoch; they differ in the hour they begin with."""
    days = [in_epoch(zone(tmp_path), BEGINS + k * (DAY + HOUR), alone=True) for k in range(2)]
    for day in days:
        assert day is not None
        epoch(tmp_path, replace(day, promise=None))
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    found = []
    for services in ([zone(tmp_path)], days, days[::-1]):
        terms = [terms_of(one) for one in services if one is not None]
        made = certify(evidence, terms, commit=schedule_digest)
        found.append([float(one.leakage.max()) for one in made.houses if one.leakage is not None])
    assert len({terms_of(one).digests for one in days if one is not None}) == 2
    assert found[1] == pytest.approx(found[0])
    assert found[2] == pytest.approx(found[0])


def test_a_figure_can_be_accepted_in_public(tmp_path: Path) -> None:
    alone = in_epoch(zone(tmp_path), BEGINS, alone=True)
    assert alone is not None
    epoch(tmp_path, replace(alone, promise=None))
    following = load(tmp_path, BEGINS + DAY)
    found = border(following, standing(tmp_path))
    assert found is not None
    assert not found.holds
    with pytest.raises(LedgerError, match="--accept-leakage"):
        epoch(tmp_path, replace(following, accepts=1.0))
    epoch(tmp_path, replace(following, accepts=1.5))
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


@pytest.mark.parametrize(
    "edit",
    [
        ("count = 3", "count = 4"),  # another roster
        ("leave = 0.3", "leave = 0.31"),  # another model
        ("epsilon = 1.0", "epsilon = 0.9"),  # another promise
    ],
)
@pytest.mark.sampled
def test_other_terms_wait_until_the_old_ones_are_forgotten(
    tmp_path: Path, edit: tuple[str, str]
) -> None:
    epoch(tmp_path, zone(tmp_path))
    at_once = border(zone(tmp_path, BEGINS + DAY, edit), standing(tmp_path))
    assert at_once is not None
    assert (at_once.holds, at_once.exact) == (False, False)
    with pytest.raises(LedgerError, match=r"where (1|0\.9) is promised") as refused:
        epoch(tmp_path, zone(tmp_path, BEGINS + DAY, edit))
    silent = later(refused.value) * HOUR
    epoch(tmp_path, zone(tmp_path, BEGINS + DAY + silent, edit), 2)
    verified(tmp_path)


def test_what_is_counted_from_records_alone_is_no_less(tmp_path: Path) -> None:
    """The same history, once with its terms known and once without, at several gaps."""
    epoch(tmp_path, zone(tmp_path))
    for gap in (0, 6, 24):
        following = zone(tmp_path, BEGINS + DAY + gap * HOUR)
        exact = border(following, standing(tmp_path))
        blind = border(following, standing(tmp_path), [])
        assert exact is not None
        assert blind is not None
        assert exact.exact > blind.exact
        assert exact.leakage <= blind.leakage + 1e-6


def test_a_weaker_promise_does_not_undo_the_one_before(tmp_path: Path) -> None:
    """The last hours of the old epoch were promised from all releases, the new ones included."""
    epoch(tmp_path, zone(tmp_path))
    weaker = (('secret = "interval"', 'secret = "step"'),)
    with pytest.raises(LedgerError, match="would bring leakage") as refused:
        epoch(tmp_path, zone(tmp_path, BEGINS + DAY, *weaker))
    gaussian = replace(
        zone(tmp_path, BEGINS + DAY, *weaker),
        policy=Policy(1.0, horizon=24, schedule=Gaussian(30.0, 1e-6)),
        promise=Promise("trajectory", 1.0, 1e-6),
    )
    with pytest.raises(LedgerError, match="would bring leakage"):
        epoch(tmp_path, gaussian)
    silent = later(refused.value) * HOUR
    (tmp_path / "accepted").mkdir()
    for name in ("ledger.db", "key"):
        shutil.copy(tmp_path / name, tmp_path / "accepted" / name)
    for each in tmp_path.glob("ledger.db.*"):
        shutil.copy(each, tmp_path / "accepted" / each.name)
    epoch(tmp_path, zone(tmp_path, BEGINS + DAY + silent, *weaker), 2)
    assert not {"interval", "leakage"} & set(bodies(tmp_path)[1])
    at_once = replace(zone(tmp_path, BEGINS + DAY, *weaker), accepts=9.0)
    epoch(tmp_path / "accepted", at_once, 1)
    record = bodies(tmp_path / "accepted")[1]
    assert "interval" not in record
    assert record["leakage"] > 1  # type: ignore[operator]
    verified(tmp_path / "accepted")


def test_occupancy_that_never_changes_has_one_epoch(tmp_path: Path) -> None:
    """No silence helps: a second epoch is refused, or accepted with its figure."""
    never = tuple(
        (f"leave = {leave}, come = {come}", "leave = 1e-7, come = 1e-7")
        for leave, come in ((0.02, 0.1), (0.5, 0.2), (0.1, 0.5), (0.05, 0.2), (0.3, 0.4))
    )
    one = zone(tmp_path, BEGINS, *never)
    assert one.memory is None
    assert one.leakage == pytest.approx(1.0, abs=1e-4)
    epoch(tmp_path, one)
    following = zone(tmp_path, BEGINS + DAY, *never)
    with pytest.raises(LedgerError, match="no later begins within 32 days helps"):
        epoch(tmp_path, following)
    epoch(tmp_path, replace(following, accepts=2.0), 1)
    assert bodies(tmp_path)[1]["leakage"] == pytest.approx(2.0, abs=1e-3)


def test_a_zone_without_a_file_is_counted_from_its_records(tmp_path: Path) -> None:
    """Made by hand, its earlier terms cannot be made again."""
    made = made_by_hand(policy=Policy(0.05, horizon=24), promise=Promise("interval", 1.0))
    with curator(tmp_path, made, Shown(), now=made.begins) as it:
        publish(it, 3)
    later = replace(made, begins=made.begins + 24 * 900)
    with open_store(str(tmp_path / "ledger.db"), create=False) as store:
        own = check(store.records(made.id), verify_signature, {}).standings[made.id]
    found = border(later, own)
    assert isinstance(found, Border)
    assert not found.exact
    assert found.leakage < 1.0


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


def test_a_figure_about_earlier_steps_bounds_nothing_else(tmp_path: Path) -> None:
    """1, then one release a step, then 2: the second epoch's own releases come in with the sum."""
    epoch(tmp_path, zone(tmp_path, BEGINS, *SLOW))
    second = zone(tmp_path, BEGINS + 5 * DAY, *SLOW, STEP)
    epoch(tmp_path, replace(second, accepts=9.0))
    third = zone(tmp_path, BEGINS + 6 * DAY, *SLOW, promising(2.0))
    chain = [second, third]
    found = border(third, standing(tmp_path))
    assert found is not None
    assert not found.holds
    assert found.leakage > leakage_of(chain) > 4


def test_every_earlier_promise_is_judged_again(tmp_path: Path) -> None:
    """An epoch of one release between them does not end the first one's promise."""
    epoch(tmp_path, zone(tmp_path, BEGINS, *SLOW))
    short = (*SLOW, STEP, ("horizon = 24", "horizon = 1"))
    epoch(tmp_path, replace(zone(tmp_path, BEGINS + DAY, *short), accepts=9.0), 1)
    with pytest.raises(LedgerError, match="would bring leakage"):
        epoch(tmp_path, zone(tmp_path, BEGINS + DAY + HOUR, *SLOW, STEP))
    long_ago = border(zone(tmp_path, BEGINS + 40 * DAY, *SLOW, STEP), standing(tmp_path))
    assert long_ago is not None
    assert long_ago.holds


@pytest.mark.soak
def test_a_run_adds_nothing_to_what_was_counted_when_it_began(tmp_path: Path) -> None:
    """Its first epoch counts at the promise of any number, so a renewal needs no figure."""
    epoch(tmp_path, zone(tmp_path, BEGINS, *SLOW, promising(0.5)), 2)
    for k in range(3):
        epoch(tmp_path, zone(tmp_path, BEGINS + (20 + k) * DAY, *SLOW), 24 if k < 2 else 1)
    assert all("accepted" not in body for body in bodies(tmp_path))


@pytest.mark.parametrize("after", [1.0, 4.0])
def test_lost_steps_count_where_no_release_is_left(tmp_path: Path, after: float) -> None:
    first = zone(tmp_path, BEGINS, *SLOW, promising(4.0))
    epoch(tmp_path, first, 0)
    found = standing(tmp_path)
    t = BEGINS // HOUR
    lost = replace(
        found, booked=(ResumeRecord(t, t + 23, 24 * first.policy.epsilon, 0.0, found.head.seq),)
    )
    counted = border(zone(tmp_path, BEGINS + DAY, *SLOW, promising(after)), lost)
    assert counted is not None
    assert counted.exact == counted.holds == (after == 4.0)
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


def test_houses_that_move_together_count_together(tmp_path: Path) -> None:
    """What was learnt of two houses on their own is learnt of both once they are one block."""
    epoch(tmp_path, zone(tmp_path, BEGINS, STEP), 3)
    one = zone(tmp_path, BEGINS + 3 * HOUR)
    blocks = [[0, 1], [2, 3]]
    stay = np.full((4, 4), 1e-3) + np.eye(4) * (1 - 4e-3)
    model = OccupancyModel.blocked(blocks, [np.full(4, 0.25)] * 2, [[stay]] * 2)
    by_hand = {"pattern": None, "leakage": None, "memory": None}
    alone = replace(one, scenario=replace(one.scenario, models=(model,)), **by_hand)
    blocked = border(alone, standing(tmp_path))
    losses = [stating(each, epsilon_any=0.0) for each in standing(tmp_path).releases]
    nothing = border(alone, replace(standing(tmp_path), releases=tuple(losses)))
    assert blocked is not None
    assert nothing is not None
    came = blocked.leakage - nothing.leakage
    assert came > 1.9 * sum(each.epsilon_any for each in standing(tmp_path).releases)


def test_what_a_house_brings_along_comes_in(tmp_path: Path) -> None:
    one = zone(tmp_path)
    epoch(tmp_path, one, 0)
    found = standing(tmp_path)
    seq = found.head.seq + 1
    came = TransferRecord("h", "in", "z", 0.0, 0.0, "0" * 64, seq, "0" * 64, 3.0, 3.0)
    counted = border(replace(one, begins=BEGINS + DAY), replace(found, transfers=(came,)))
    assert counted is not None
    assert not counted.holds
    assert counted.leakage == pytest.approx(4.0, abs=1e-5)


def test_the_figure_that_is_asked_for_is_enough(tmp_path: Path) -> None:
    epoch(tmp_path, zone(tmp_path, BEGINS, STEP), 1)
    after, found = zone(tmp_path, BEGINS + 2 * HOUR), standing(tmp_path)
    for lost in (205.5110, 205.5113, 205.5116, 205.5119, 1234.5672):
        told = replace(found, releases=(stating(found.releases[0], epsilon_any=lost),))
        told = replace(told, releases=(replace(told.releases[0], start=BEGINS + HOUR),))
        counted = border(after, told)
        assert counted is not None
        with pytest.raises(LedgerError) as refused:
            opening(after, told)
        figure = re.search(r"--accept-leakage (\S+)\.$", str(refused.value))
        assert figure is not None
        assert float(figure[1]) >= counted.leakage
        opening(replace(after, accepts=float(figure[1])), told)


def test_a_new_epoch_does_not_state_what_an_old_one_promised(tmp_path: Path) -> None:
    epoch(tmp_path, zone(tmp_path, BEGINS, *SLOW, promising(4.0)))
    epoch(tmp_path, zone(tmp_path, BEGINS + 40 * DAY, *SLOW), 1)
    assert bodies(tmp_path)[1]["leakage"] == pytest.approx(1.0, abs=2e-6)


def test_what_is_accepted_is_stated_wherever_the_promise_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch(tmp_path, zone(tmp_path))
    after = load(tmp_path, BEGINS + DAY, promising(0.9), *PLACES)
    epoch(tmp_path, replace(after, accepts=9.0), 24)
    figure = bodies(tmp_path)[1]["leakage"]
    assert isinstance(figure, float)
    assert figure > 0.91
    for command in ("audit", "check", "status"):
        with pytest.raises(SystemExit):
            main([command, str(tmp_path / "service.toml")])
        out = capsys.readouterr().out
        assert f"{figure:g}" in out, command
        if command == "check":
            assert f"before and after included: at most {figure:.3f}." in out


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

    epoch(tmp_path, zone(tmp_path))
    begins = [BEGINS + DAY, BEGINS + DAY + HOUR]
    meters = load(tmp_path, begins[0], promising(0.9), *PLACES).meters
    rows = [(meter, start, HOUR, 300) for meter in meters for start in begins]
    write(tmp_path / "rows" / "a.parquet", rows)
    place = ("--readings", str(tmp_path / "rows"), "--seed", "4", "--from")
    times = [f"2026-01-02T0{hour}:00:00Z" for hour in range(3)]
    first = (*place, times[0], "--to", times[1])
    asked = re.search(r"--accept-leakage (\S+)\.$", run(*first).strip())
    assert asked is not None
    assert run(*first, "--accept-leakage", asked[1]) == ""
    assert len(bodies(tmp_path)) == 2
    load(tmp_path, begins[1], promising(0.9), *PLACES)
    assert "state the figure in public" in run(*place, times[1], "--to", times[2])
    assert len(bodies(tmp_path)) == 2


# ---- against the joint law of all houses


def kept_promises(street: Street, seed: int, before: Mapping[int, float]) -> dict[int, float]:
    """What outputs show about each step; no more than stated, unless the last epoch adds nothing.

    A gap may take a step above its promise without any new epoch.
    """
    shown, stated = street.realised(np.random.default_rng(seed), 24), street.allowed()
    for t in stated.keys() & shown.keys():
        if shown[t] > before.get(t, 0.0) + 1e-5 * stated[t]:
            assert shown[t] <= stated[t] * (1 + 1e-5), (seed, t - FIRST)
    return shown


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sampled
def test_no_output_shows_more_than_is_stated(seed: int) -> None:
    """Random epochs: blocks or none, silence, gaps, promises up and down, in mid-horizon or after.

    The models of an epoch hold since the last release of the one before.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    street, at, shown = Street(n), FIRST, dict[int, float]()
    same = world(rng, n, blocks=n > 1 and rng.random() < 0.4)
    for _ in range(3):
        other = world(rng, n, blocks=n > 1 and rng.random() < 0.4)
        model = street.law(same if rng.random() < 0.5 else other, at)
        horizon, factor = int(rng.integers(1, 7)), float(rng.choice([1, 1.2, 2]))
        epsilon = float(rng.choice([0.05, 0.2, 0.5, 1, 2]))
        promise = factor if rng.random() < 0.75 else None
        one = zone_of(model, at * HOUR, epsilon, horizon, promise)
        street.begin(one)
        until = int(rng.integers(0, horizon + 1)) if rng.random() < 0.6 else horizon
        street.publish(one, [t for t in range(1, until + 1) if rng.random() < 0.9])
        if street.losses:
            shown = kept_promises(street, seed, shown)
        end = at + until
        if rng.random() < 0.25:
            lost = np.zeros(int(rng.integers(1, 4)))
            lost[rng.integers(len(lost))] = rng.choice([0.1, 0.5, 3])
            street.lose(end, lost.tolist())
            end += len(lost)
            shown = street.realised(rng, 24)
        at = max(end, at + 1 if rng.random() < 0.5 else at + horizon) + int(rng.choice([0, 1, 6]))


def test_blocks_that_are_no_more_are_counted() -> None:
    """Two houses that went together, then each on its own: a release about one is about both."""
    d = 0.02
    pair = np.full((4, 4), d) + np.diag([1 - 4 * d, 0, 0, 1 - 4 * d])
    pair[1:3] = [0.45, 0.05, 0.05, 0.45]
    alone = np.array([[0.7, 0.3], [0.3, 0.7]])
    street = Street(2)
    first = zone_of(street.law(World([[0, 1]], [pair]), FIRST), FIRST * HOUR, 0.01, 24, 1.0)
    street.begin(first)
    street.publish(first, [1])
    model = street.law(World([[0], [1]], [alone, alone]), FIRST + 1)
    second = zone_of(model, (FIRST + 1) * HOUR, 1.0, 8, None)
    street.begin(second)
    street.publish(second, range(1, 9))
    shown = kept_promises(street, 0, {})
    assert shown[FIRST] > 2 * street.standing.epochs[0].interval  # type: ignore[operator]


@pytest.mark.parametrize("published", [3, 0])
def test_steps_without_a_release_have_a_promise_too(published: int) -> None:
    """A small promise, three releases or none, forecasts to the end, then much less noise."""
    move = World([[0]], [np.array([[0.7, 0.3], [0.3, 0.7]])])
    street = Street(1)
    first = zone_of(street.law(move, FIRST), FIRST * HOUR, 0.1, 24, 1.0)
    street.begin(first)
    street.publish(first, range(1, published + 1))
    for promise in (1.0, None):
        after = zone_of(street.law(move, FIRST + 24), (FIRST + 24) * HOUR, 1.0, 24, promise)
        found = border(after, street.standing)
        assert found is not None
        assert not found.holds
        days = _later(after, street.standing, [])
        assert days == 24, "beyond the end of the old epoch silence helps"
    street.begin(after)
    street.publish(after, range(1, 25))
    shown = kept_promises(street, 0, {})
    assert shown[FIRST + 23] > 2 * street.standing.epochs[0].interval  # type: ignore[operator]
    lower = zone_of(street.law(move, FIRST + 72), (FIRST + 72) * HOUR, 0.05, 24, 1.0)
    held = border(lower, street.standing)
    assert held is not None
    assert held.holds


def test_nothing_fades_through_epochs_of_other_models() -> None:
    """A promise of quick houses, then slow ones with much noise, then quick ones with little."""
    quick, slow = (World([[0]], [np.array([[1 - p, p], [p, 1 - p]])]) for p in (0.3, 0.005))
    street = Street(1)
    at = FIRST
    for each, epsilon, steps, promise in (
        (quick, 0.7, 1, 1.0),
        (slow, 0.001, 48, None),
        (quick, 1.0, 12, None),
    ):
        one = zone_of(street.law(each, at), at * HOUR, epsilon, steps, promise)
        figure = street.begin(one)
        street.publish(one, range(1, steps + 1))
        at += steps
    last = street.realised(np.random.default_rng(0))[FIRST]
    assert last > 1.5 * 0.7, "of quick houses nothing would be left"
    assert last <= figure
    kept_promises(street, 0, {})


def test_what_came_with_a_house_does_not_fade_through_epochs_of_other_models() -> None:
    quick, slow = (np.array([[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.005))
    brought, street = 2.0, Street(1)
    street.move("in", brought, FIRST * HOUR)
    theta = OccupancyModel.factored([[0.5, 0.5]], [[slow]])
    street.begin(one := zone_of(theta, FIRST * HOUR, 0.001, 48, None))
    street.publish(one, range(1, 49))
    theta = OccupancyModel.factored([[0.5, 0.5]], [[quick]])
    figure = street.begin(one := zone_of(theta, (FIRST + 48) * HOUR, 0.1, 12, 1.0))
    street.publish(one, range(1, 13))
    losses = [brought, *(street.losses[t] for t in range(FIRST, FIRST + 60))]
    shown = exact([slow] * 49 + [quick] * 12, [0.5, 0.5], losses)
    promised = street.standing.epochs[-1].interval
    assert promised is not None
    assert shown[49] > 2 * promised, "of quick houses nothing would be left"
    assert shown[49:].max() <= figure


def test_silence_within_a_horizon_helps_where_no_more_is_promised() -> None:
    """Half of the horizon is left out, and other models promise the same or less."""
    move = World([[0]], [np.array([[0.7, 0.3], [0.3, 0.7]])])
    street = Street(1)
    first = zone_of(street.law(move, FIRST), FIRST * HOUR, 0.1, 48, 1.0)
    street.begin(first)
    street.publish(first, range(1, 25))
    for epsilon in (0.1, 0.05):
        after = zone_of(street.law(move, FIRST + 46), (FIRST + 46) * HOUR, epsilon, 24, 1.0)
        found = border(after, street.standing)
        assert found is not None
        assert found.holds


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


def test_an_epoch_with_a_certain_start_ends_as_it_began() -> None:
    """It was begun by a version that gave its first step the noise of the small house."""
    moves = [[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.4, 0.6]]]
    theta = OccupancyModel.factored([[0.0, 1.0], [0.75, 0.25]], [moves])
    one = from_file(theta, FIRST * HOUR, 0.5, 4, bounds=(1000, 200))
    before = replace(one, policy=replace(one.policy, schedule=Even()))
    begun = zone_as_begun(
        one,
        EpochRecord(
            first_state(before).digest, one.begins // one.seconds, one.policy.horizon, one.seconds
        ),
    )
    assert begun.policy == before.policy != one.policy
    street = Street(2)
    street.begin(before)
    street.publish(before, range(1, 5))
    assert street.standing.releases[0].scale < street.standing.releases[1].scale
    (span,) = known(next_epoch(one, FIRST + 4), street.standing)
    assert span.service.policy == before.policy


@pytest.mark.parametrize("elsewhere", [1.0, 6.0])
def test_a_house_that_comes_back_brings_what_was_lost_elsewhere(elsewhere: float) -> None:
    """Two releases in another zone while it was away; then the same terms, the same roster."""
    move = World([[0]], [np.array([[0.8, 0.2], [0.3, 0.7]])])
    street = Street(1)
    one = from_file(street.law(move, FIRST), FIRST * HOUR, 1.0, 24)
    street.begin(one)
    street.publish(one, range(1, 25))
    spent = math.fsum(each.epsilon for each in street.standing.releases)
    street.move("out", spent)
    away = street.standing
    street.move("in", spent + elsewhere)
    after = next_epoch(one, FIRST + 26)
    with pytest.raises(LedgerError, match="where 1 is promised"):
        opening(after, street.standing)
    street.begin(after)
    street.losses |= {FIRST + 24: elsewhere / 2, FIRST + 25: elsewhere / 2}
    street.publish(after, range(1, 25))
    shown = kept_promises(street, 0, {})
    assert max(shown.values()) > 1.1
    back = replace(away.transfers[-1], direction="in", seq=away.head.seq)
    nothing = replace(away, transfers=(*away.transfers, back))
    found = border(after, nothing)
    assert found is not None
    assert found.leakage > 1, "all that was ever published about it counts, here too"


def test_a_promise_bounds_nothing_of_houses_that_its_epoch_left_out() -> None:
    """Two houses, the quick one alone a day later, then both again: the slow one forgot nothing."""
    quick, slow = (np.array([[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.002))
    both = OccupancyModel.factored([[0.5, 0.5]] * 2, [[quick, slow]])
    alone, street = OccupancyModel.factored([[0.5, 0.5]], [[quick]]), Street(2)
    street.begin(one := zone_of(both, FIRST * HOUR, 4.0, 1, None))
    street.publish(one, [1])
    street.begin(one := zone_of(alone, (FIRST + 25) * HOUR, 0.01, 24, 1.0))
    street.publish(one, range(1, 25))
    assert street.standing.epochs[-1].accepted is None
    figure = street.begin(one := zone_of(both, (FIRST + 49) * HOUR, 0.01, 24, 1.0))
    street.publish(one, range(1, 25))
    losses = [street.losses.get(FIRST + t, 0.0) * (t < 25 or t >= 49) for t in range(73)]
    shown = exact([slow] * 73, [0.5, 0.5], losses)
    assert shown[49] > 2.0
    assert shown[49:].max() <= figure


def test_a_house_takes_all_along_that_was_lost_under_other_models() -> None:
    """A lost epoch need not have had the models of the present one."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.7, 0.3], [0.3, 0.7]]]])
    figures = []
    for together in (None, 1):
        street = Street(1)
        street.begin(one := zone_of(theta, FIRST * HOUR, 0.1, 48, None))
        street.publish(one, [1])
        street.lose(FIRST + 1, [1.0, 1.0], together)
        street.publish(one, [40])
        figures.append(takes_along(one, street.standing, "h", {})["leakage"])
    assert figures == pytest.approx([0.1, 2.2], rel=1e-3)


def test_forecasts_take_nothing_off_what_a_house_takes_along() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.7, 0.3], [0.3, 0.7]]]])
    street = Street(1)
    street.begin(one := zone_of(theta, FIRST * HOUR, 0.1, 48, None))
    street.publish(one, [1, 40])
    *readings, last = street.standing.releases
    found = replace(street.standing, releases=(*readings, replace(last, source="forecast")))
    stated = takes_along(one, found, "h", {})
    assert (stated["leakage"], stated["last"]) == (pytest.approx(0.1), (FIRST + 40) * HOUR)


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


def test_a_house_that_was_away_under_other_models_forgot_nothing() -> None:
    """Two days with slow houses and much noise elsewhere, then other terms here."""
    quick, slow = (np.array([[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.001))
    theta, street = OccupancyModel.factored([[0.5, 0.5]], [[quick]]), Street(1)
    street.begin(one := from_file(theta, FIRST * HOUR, 1.0, 24))
    street.publish(one, [24])
    spent = street.standing.releases[0].epsilon
    street.move("out", spent)
    street.move("in", spent + 0.001, (FIRST + 71) * HOUR)
    figure = street.begin(one := zone_of(theta, (FIRST + 72) * HOUR, 3.0, 24, None))
    street.publish(one, range(1, 25))
    losses = [street.losses.get(FIRST + t, 0.0) for t in range(96)]
    losses[71] = 0.001
    shown = exact([quick] * 24 + [slow] * 48 + [quick] * 24, [0.5, 0.5], losses)
    assert shown[23] > 1.1, "of quick houses nothing would be left, and 1 is promised"
    assert shown[23] <= figure


def test_an_epoch_that_published_nothing_is_judged_again() -> None:
    """Its neighbours before are accepted at more, those after add to its step without a release."""
    night, day = [[0.9999, 0.0001], [0.01, 0.99]], [[0.97, 0.03], [0.04, 0.96]]
    moves = np.array([[night], [[[0.5, 0.5], [0.05, 0.95]]], [day], [[[0.995, 0.005], [0.9, 0.1]]]])
    slots = [0] * 7 + [1] + [2] * 12 + [3] + [0] * 3
    midnight = FIRST * HOUR // DAY * 24

    def model(hour: int) -> OccupancyModel:
        law = np.array([0.5, 0.5])
        for k in range(24 * 20 + hour + 1):
            law = law @ moves[slots[k % 24], 0]
        return OccupancyModel.factored([law], moves, calendar=Calendar(slots))

    street = Street(1)
    before = zone_of(model(3), (midnight + 3) * HOUR, 0.9, 1, None)
    street.begin(before)
    street.publish(before, [1])
    one = from_file(model(4), (midnight + 4) * HOUR, 1.0, 1, 99.0)
    street.begin(one)
    street.publish(one, [1])
    assert opening(next_epoch(one, midnight + 6), street.standing)["leakage"] <= 1
    street.begin(next_epoch(one, midnight + 6))
    with pytest.raises(LedgerError, match=r"to 1\.1\d* where 1 is promised"):
        opening(next_epoch(one, midnight + 7, 24), street.standing)


@pytest.mark.parametrize("lost", [6.0, math.inf])
def test_a_gap_counts_with_what_is_booked(tmp_path: Path, lost: float) -> None:
    """An epoch of less noise may have been lost in it: the same terms, or others."""
    epoch(tmp_path, zone(tmp_path), 12)
    found = standing(tmp_path)
    t = found.last_t
    booked = replace(found, booked=(ResumeRecord(t + 1, t + 6, lost, 0.0, found.head.seq),))
    for more in ((), (promising(0.9),)):
        at_once = border(zone(tmp_path, BEGINS + 18 * HOUR, *more), booked)
        later = border(zone(tmp_path, BEGINS + 9 * DAY, *more), booked)
        assert at_once is not None
        assert later is not None
        assert later.holds
        assert not at_once.holds
        assert at_once.leakage > min(lost, 1e9)


def test_a_lost_epoch_is_on_record_with_its_blocks(tmp_path: Path) -> None:
    """No more booked than the epoch's own releases: at once in one step, it counts as that."""
    epoch(tmp_path, zone(tmp_path, BEGINS, *SLOW, promising(4.0)), 12)
    found = standing(tmp_path)
    t = found.last_t
    lost = ResumeRecord(t + 1, t + 12, 1.0, 0.0, found.head.seq)
    after = zone(tmp_path, BEGINS + DAY, *SLOW, promising(4.0))
    figures = []
    for together in (None, 1, 2):
        state = replace(found, booked=(replace(lost, together=together),))
        counted = border(after, state)
        assert counted is not None
        figures.append(counted.leakage)
    assert figures[0] < figures[1] < figures[2]


def test_the_next_epoch_of_a_ledger_from_before(tmp_path: Path) -> None:
    """Its epoch has no promise and no blocks on record, and was planned on its own."""
    folder = laid_out(tmp_path)
    text = (folder / "service.toml").read_text()
    (folder / "service.toml").write_text(re.sub(r"zones = .*", 'zones = ["interval.toml"]', text))
    (one,) = load_deployment(folder / "service.toml").zones
    with open_store(str(folder / "ledger.db"), create=False) as store:
        state = check(store.records("interval"), verify_signature, {}).standings["interval"]
    (begun,) = state.epochs
    assert (begun.interval, begun.together) == (None, None)
    begins = (state.last_t + 1) * one.seconds

    def found(zone: ZoneService, begins: int, state: LedgerState = state) -> Border:
        counted = border(in_epoch(zone, begins) or replace(zone, begins=begins), state)
        assert counted is not None
        return counted

    same = found(one, begins)
    assert same.exact
    assert same.leakage > 0.4
    blind = border(in_epoch(one, begins) or one, state, [])
    assert blind is not None
    assert same.leakage <= blind.leakage
    less = replace(one, promise=Promise("interval", 0.1))
    at_once = found(less, begins)
    assert (at_once.exact, at_once.holds) == (False, False)
    known = replace(state, epochs=(replace(begun, together=1),))
    assert found(less, begins, known).leakage <= at_once.leakage
    with pytest.raises(LedgerError, match=r"where 0\.1 is promised") as refused:
        opening(in_epoch(less, begins) or less, state)
    waits = begins + later(refused.value) * one.seconds
    assert found(less, waits).holds
    assert "accepted" not in opening(in_epoch(less, waits) or less, state)


def test_a_house_that_moved_together_with_others_has_no_bound() -> None:
    """Recorded by one earlier version; what is published here speaks of the others."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.95, 0.05], [0.05, 0.95]]]], chain_of=[0, 0])
    one = from_file(theta, FIRST * HOUR // DAY * DAY, 0.5, 4)
    came = TransferRecord(
        "house", "in", "oak", 0.0, out="0" * 64, total=1e-9, leakage=1e-9, last=one.begins
    )
    figures = list[float]()
    for n in (None, 2):
        found = border(one, replace(Street(2).standing, transfers=(replace(came, together=n),)))
        assert found is not None
        figures.append(found.leakage)
    assert figures[0] <= 0.5 * (1 + 1e-6)
    assert math.isinf(figures[1])


def test_trust_in_laws_is_no_part_of_another_epochs_promise() -> None:
    """At eta = 0.05 the same epsilon has less noise: prices say more where laws are others."""
    move = World([[0]], [np.array([[0.7, 0.3], [0.3, 0.7]])])
    street = Street(1)
    first = zone_of(street.law(move, FIRST), FIRST * HOUR, 0.1, 24, 1.0)
    street.begin(first)
    street.publish(first, range(1, 4))
    after = zone_of(street.law(move, FIRST + 4), (FIRST + 4) * HOUR, 0.2, 24, None)
    trusting = replace(after, policy=replace(after.policy, eta=0.05))
    counted = [border(one, street.standing) for one in (after, trusting)]
    figures = [one.leakage for one in counted if one is not None]
    ways = [first_state(one).scheduler.at for one in (after, trusting)]
    said = [sum(at(t).epsilon_any for t in range(1, 25)) for at in ways]
    assert said[1] > 2 * said[0]
    assert figures[1] > 1.2 * figures[0]
    later = Street(1)
    later.begin(trusting)
    lost = replace(later.standing, gap=GapRecord(FIRST + 4, FIRST + 27, "witness"))
    assert largest_loss(trusting, lost, [trusting])[0] >= said[1]
    street.publish(first, range(4, 22))
    own = [stating(one, epsilon=one.epsilon_any / 10) for one in street.standing.releases]
    state = replace(street.standing, releases=tuple(own))
    less = zone_of(street.law(move, FIRST + 22), (FIRST + 22) * HOUR, 0.1, 24, 1.0)
    before, found = border(less, street.standing), border(less, state)
    assert before is not None
    assert found is not None
    assert found.leakage > 1.2 * before.leakage, "the earlier promise was about laws"


def test_a_silent_epoch_of_other_trust_is_judged_apart() -> None:
    """Its promise at eta = 1 is no matter of the epochs of eta = 0.05 before and after it."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.7, 0.3], [0.3, 0.7]]]])
    begins = FIRST * HOUR // DAY * DAY
    one = from_file(theta, begins, 0.5, 24)
    made = zone_of(theta, begins, 1.0, 24, None)
    pattern = Pattern(made.scenario, replace(made.policy, eta=0.05))
    trusting = in_epoch(replace(made, pattern=pattern, promise=one.promise), begins)
    assert trusting is not None
    street = Street(1)
    street.begin(trusting)
    street.publish(trusting, range(1, 25))
    after = next_epoch(trusting, (begins + 9 * DAY) // HOUR)
    assert known(after, street.standing)
    street.begin(next_epoch(one, (begins + 8 * DAY) // HOUR))
    assert known(after, street.standing) == []
