"""What an attacker with the paper's knowledge makes of a record, beside what bounds her."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import OccupancyModel, Policy, Release, SimulatedNoise, step, tally
from hushgrid.adversary.exact import Exact
from hushgrid.adversary.filter import look_back
from hushgrid.adversary.knowledge import Knowledge
from hushgrid.audit.certificate import certify, largest_move
from hushgrid.audit.evidence import Terms
from hushgrid.audit.recompute import Recomputed, recompute
from hushgrid.cli import main
from hushgrid.operate.audit import load_ledger
from hushgrid.report.certificate import certificate_json, certificate_page
from tests.audit.zones import SMALL, ledger, named, releases, terms, week_of
from tests.stores.ledger.ledgers import lines_of


def recomputed(given: Terms, seed: int = 3, **rest: tuple[int, ...]) -> Recomputed:
    return recompute(week_of(given, seed, **rest), given)[0]


@pytest.mark.parametrize("eta", [0.0, pytest.param(0.1, marks=pytest.mark.soak), 1.0])
@pytest.mark.soak
def test_her_odds_stay_within_the_leakage(eta: float) -> None:
    for seed in range(12):
        found = largest_move(recomputed(terms(eta=eta), seed))
        assert found is not None
        assert found.bound is not None
        assert 0 < found.moved.max() <= found.bound
        assert found.moved[found.house] == found.moved.max()
        assert (found.filter, found.releases) == ("exact", 24)


def test_it_is_the_filter_held_against_the_prior() -> None:
    """Chain (.5, .5), stay .9 and .8: the prior of step t by powers of the matrix."""
    given = terms()
    found = largest_move(recomputed(given))
    assert found is not None
    known = Knowledge(given.zone, given.models, given.consumption)
    home = np.asarray(look_back(Exact(known), releases(given, seed=3)).home)[0]
    a = np.array([[0.9, 0.1], [0.2, 0.8]])
    prior = np.array([([0.5, 0.5] @ np.linalg.matrix_power(a, t))[1] for t in range(24)])
    shift = np.abs(np.log(home / (1 - home)) - np.log(prior / (1 - prior))[:, None])
    np.testing.assert_allclose(found.moved, shift.max(axis=0), rtol=1e-9)
    assert shift[found.step - 1, found.house] == pytest.approx(shift.max())


def test_many_houses_and_gaps_are_watched_too() -> None:
    found = largest_move(recomputed(terms((1000,) * 30), without=(3, 4, 11)))
    assert found is not None
    assert (found.filter, found.releases) == ("factored", 21)
    assert found.bound is not None
    assert found.moved.max() <= found.bound


def test_without_noise_she_goes_far_beyond_what_is_promised() -> None:
    """A publisher that adds nothing: its record states a scale, but the loads are bare."""
    given, made = terms(epsilon=0.05), recomputed(terms(epsilon=0.05))
    bare = tuple(replace(one, release=replace(one.release, scale=1.0)) for one in made.week.entries)
    seen = largest_move(replace(made, week=replace(made.week, entries=bare)))
    honest = largest_move(made)
    assert seen is not None
    assert honest is not None
    assert seen.moved.max() > 2 * honest.moved.max()
    assert given.policy.epsilon == 0.05


def test_a_trace_is_attacked_without_being_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone, trace, out = (tmp_path / name for name in ("zone.toml", "day.trace", "found.json"))
    zone.write_text(SMALL)
    for words in (
        ["simulate", "--config", zone, "--days", 1, "--trace", trace],
        ["audit", trace, "--json", out, "--html", tmp_path / "page.html"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        assert not ended.value.code
    told = json.loads(out.read_text())
    assert set(told["attack"]) == {"none", "others"}
    assert told["attack"]["others"]["log_loss"] <= told["attack"]["none"]["log_loss"] + 0.05
    (only,) = told["zones"]
    assert only["watched"]["moved_max"] == max(h["moved"] for h in only["houses"])
    assert only["watched"]["moved_max"] <= only["watched"]["bound"]
    page = (tmp_path / "page.html").read_text()
    assert "knows every other reading" in page
    assert "log odds moved" in page
    assert "log odds by at most" in capsys.readouterr().out


STAYS = [[1.0, 0.0], [0.0, 1.0]]
LOCKED = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
EMPTY, FULL = (
    OccupancyModel.factored([pi], [[STAYS]], chain_of=[0, 0], name=f"all {pi[1]:g}")
    for pi in ([1.0, 0.0], [0.0, 1.0])
)


def fixed(given: Terms, wh: list[int], steps: int) -> list[Release]:
    """Releases of houses that consume the same in every step."""
    state, found = given.first_state(), list[Release]()
    for _ in range(steps):
        made, state = step(state, tally(np.array(wh), state.zone.bound), SimulatedNoise(5))
        found.append(made)
    return found


@pytest.mark.parametrize("wh", [100, 900])
@pytest.mark.parametrize(
    ("models", "rules"),
    [((LOCKED,), {"blocks": "paper"}), ((EMPTY, FULL), {"models": "paper"})],
    ids=["locked", "contradicting"],
)
def test_a_release_without_a_bound_gets_its_certificate(
    tmp_path: Path, models: tuple[OccupancyModel, ...], rules: dict[str, Any], wh: int
) -> None:
    """No noise while a house is uncertain: an infinite loss is on record, and is stated as such.

    900 Wh each is a load that only an occupied home can have.
    """
    policy = Policy(0.5, horizon=3, on_empty="publish_exact", **rules)
    given = named(replace(terms((1000, 1000)), models=models, policy=policy))
    made = fixed(given, [wh] * 2, 3)
    assert [one.epsilon for one in made] == [math.inf] * 3
    book = tmp_path / "ledger.ndjson"
    book.write_bytes(lines_of(ledger(given, made)))
    evidence, chain = load_ledger(str(book), zone=None, key=None, heads=())
    found = certify(evidence, [given], chain=chain)
    values = certificate_json(found)
    json.dumps(values, allow_nan=False)
    (figures,) = values["zones"]
    worst, house = figures["worst"], figures["houses"][0]
    assert (worst["loss"], worst["total"], house["any_total"]) == (None, None, None)
    assert any("there is no bound in epsilon" in line for line in values["summary"])
    assert "no bound" in found.check("budget").text
    assert "<td>no bound</td>" in certificate_page(values)
    if figures["watched"] is not None:
        assert figures["watched"]["bound"] is None
        assert (figures["watched"]["moved_max"] is None) == (wh == 900)
