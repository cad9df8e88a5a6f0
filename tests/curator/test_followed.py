"""A zone whose estimate follows its releases: over restarts, new terms, audits and two worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgrid import Policy
from hushgrid.audit.certificate import certify
from hushgrid.belief.followed import EarlierRelease, FollowedKnowledge
from hushgrid.curator.replay import Replay
from hushgrid.files.deployment import LocalDays, ZoneService
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.forecast import Forecaster
from tests.curator import streets
from tests.curator.curators import FIRST, Shown, _Counting, curator, everyone, feed
from tests.curator.setups import BEGINS, service

FILTER = Policy(0.5, horizon=40, publish="estimate", estimator="filter")
CLAMPED = replace(FILTER, clamp=(700,))
ALONE = Policy(0.5, horizon=40, publish="estimate", estimator="releases", usual=400.0)


def ran(
    folder: Path,
    zone: ZoneService,
    parts: tuple[int, ...],
    *,
    t: int = 1,
    new_terms: bool = False,
    silent: int = 0,
) -> list[ReleaseRecord]:
    """Releases of a zone that is stopped after each part; one interval has no reading."""
    shown = Shown()
    folder.mkdir(exist_ok=True)
    for part in parts:
        now = zone.begins + (t - 1) * 900
        noise = _Counting(t)
        with curator(folder, zone, shown, now=now, noise=noise, new_terms=new_terms) as it:
            new_terms = False
            for _ in range(part):
                if t != silent:
                    feed(it, it.t, everyone(zone))
                it.run(it.next_due())
                t += 1
    return list({one.t: one for one in shown.releases}.values())


@pytest.mark.parametrize("policy", [FILTER, CLAMPED, ALONE], ids=["filter", "clamp", "releases"])
def test_a_restart_goes_on_bit_for_bit(tmp_path: Path, policy: Policy) -> None:
    whole = ran(tmp_path / "a", service(policy=policy), (12,), silent=4)
    parts = ran(tmp_path / "b", service(policy=policy), (3, 1, 5, 3), silent=4)
    assert [one.release for one in parts] == [one.release for one in whole]
    sources = [one.source for one in whole]
    assert sources == ["forecast" if t == 4 else "readings" for t in range(1, 13)]
    assert all(
        one.base is not None and one.estimate is not None for one in whole if one.t != FIRST + 3
    )


def _two_terms(folder: Path, policy: Policy) -> tuple[ZoneService, list[ReleaseRecord]]:
    """Terms that begin twice, with steps between them that were not published."""
    ran(folder, service(policy=policy), (8,))
    second = service(policy=policy, begins=BEGINS + 11 * 900)
    found = ran(folder, second, (2, 3), new_terms=True)
    return second, [one for one in found if one.start >= second.begins]


@pytest.mark.parametrize("policy", [FILTER, ALONE], ids=["filter", "releases"])
def test_new_terms_continue_what_was_learnt(tmp_path: Path, policy: Policy) -> None:
    zone, found = _two_terms(tmp_path, policy)
    alone = ran(tmp_path / "alone", zone, (2, 3))
    assert [one.load_hat for one in found] == [one.load_hat for one in alone], "the same noise"
    assert [one.estimate for one in found] != [one.estimate for one in alone]
    with open_store(str(tmp_path / "ledger.db")) as store:
        records = [
            ReleaseRecord.from_record(one)
            for one in store.records(zone.id)
            if one.kind == "release"
        ]
    guess = Forecaster(zone).after(records)
    assert len(guess.guesses) == 96
    assert {*guess.ranges} == {one.t for one in found}


@pytest.mark.parametrize("policy", [FILTER, ALONE], ids=["filter", "releases"])
def test_an_audit_computes_it_again(tmp_path: Path, policy: Policy) -> None:
    zone, _ = _two_terms(tmp_path, policy)
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    first = terms_of(service(policy=policy))
    made = certify(evidence, [first, terms_of(zone)])
    assert {one.id: one.status for one in made.checks}["post_processing"] == "passed"
    assert len(made.recomputed) == 2
    (one,) = evidence
    for name, value in (("base", 1.0), ("model_share", 0.999), ("estimate", 9.0)):
        last = one.weeks[1].entries[-1]
        wrong = replace(last, release=replace(last.release, **{name: value}))
        week = replace(one.weeks[1], entries=(*one.weeks[1].entries[:-1], wrong))
        bad = certify([replace(one, weeks=(one.weeks[0], week))], [first, terms_of(zone)])
        assert {one.id: one.status for one in bad.checks}["post_processing"] == "failed", name


def test_a_filter_starts_anew_where_steps_change_their_length(tmp_path: Path) -> None:
    ran(tmp_path, service(policy=ALONE), (8,))
    longer = replace(service(policy=ALONE, begins=BEGINS + 12 * 900), seconds=1800)
    shown = Shown()
    with curator(tmp_path, longer, shown, now=longer.begins, new_terms=True) as it:
        state = it._replay.state
        assert isinstance(state.public, FollowedKnowledge)
        assert not state.public.bank.mean.any()
        assert state.public.bank.hours == 0.5


def test_weeks_go_on_from_each_other_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours from Thursday, 2026-01-22; this zone begins anew with weeks after 2026-02-05."""
    followed, continued = list[int](), FollowedKnowledge.continued

    def counted(self: FollowedKnowledge, earlier: Sequence[EarlierRelease], *begun: Any) -> Any:
        followed.append(len(earlier))
        return continued(self, earlier, *begun)

    monkeypatch.setattr(FollowedKnowledge, "continued", counted)
    begins = streets.BEGINS + 21 * streets.DAY
    street = streets.zone(tmp_path, begins, ('secret = "interval"', 'secret = "window"'))
    with curator(tmp_path, street, Shown(), now=begins) as it:
        for day in range(19):
            streets.publish(it, 24)
            if day in (4, 11, 18):  # a Monday: a week has begun
                again = Replay(it.service).follow(it._ledger.standing)
                assert again.state.public == it._replay.state.public, "all, or the former week"
    first, second, third = (24 * days - 1 for days in (4, 11, 18))  # Zurich is an hour ahead
    assert followed == [0, first, first, second - first, second, third, third]


def test_local_days_follow_the_clocks() -> None:
    """The night of 2026-03-29 in Zurich: 01:45 is followed by 03:00."""
    days = LocalDays(1_774_742_400, 900, "Europe/Zurich")  # 2026-03-29T00:00Z, 01:00 there
    assert [days.at(t)[0] * 24 for t in (1, 4, 5)] == [1.0, 1.75, 3.0]
    assert days.at(1)[1], "a Sunday"
    assert not days.at(1 + 96)[1]
    assert days.at(1 - 96)[1], "the Saturday before"


def test_terms_that_published_nothing_interrupt_nothing(tmp_path: Path) -> None:
    """One of another length of steps that was set aside, in the service and in an audit."""
    ran(tmp_path, service(policy=ALONE), (6,))
    aside = replace(service(policy=ALONE, begins=BEGINS + 8 * 900), seconds=1800)
    with curator(tmp_path, aside, Shown(), now=aside.begins, new_terms=True):
        pass
    last = service(policy=ALONE, begins=BEGINS + 12 * 900)
    ran(tmp_path, last, (3,), new_terms=True)
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert len(evidence[0].weeks) == 3
    made = certify(evidence, [terms_of(service(policy=ALONE)), terms_of(last)])
    assert {one.id: one.status for one in made.checks}["post_processing"] == "passed"
