"""What a ledger released, as events that dp_accounting composes to the ledger's own sums."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dp_accounting import ComposedDpEvent, DpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.accounting.composition import compose
from hushgrid.curator.account_records import from_windows
from hushgrid.curator.clock import utc
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.mechanisms import PrivacyEvent, loss_of, mechanisms, spent_in
from hushgrid.stores.ledger.writer import verify_signature
from tests import bodies
from tests.cli.commands import hushgrid
from tests.curator.curators import Shown, curator
from tests.curator.streets import BEGINS, HOUR, load, publish, standing
from tests.stores.ledger.ledgers import (
    ROOT,
    START,
    Story,
    lines_of,
    opening,
    read,
    sealed,
    write_story,
)

DIGEST = "ab" * 32
WINDOW = ('secret = "interval"', 'secret = "window"\nwindow = "PT12H"')
LEARNED = f"""[learned]
provenance = "pooled"
homes = 20
epsilon = 0.6
digest = "{DIGEST}"
first_reading = {utc(BEGINS - 6 * HOUR)}
last_reading = {utc(BEGINS)}

[policy]"""
CLOSE = 1e-6


def composed(rows: Iterable[dict[str, Any]]) -> DpEvent:
    """The events of a file, as its document says how to read them."""
    return ComposedDpEvent(
        [
            DpEvent.from_named_tuple(SimpleNamespace(_fields=tuple(row["event"]), **row["event"]))
            for row in rows
        ]
    )


def epsilon_of(rows: Iterable[dict[str, Any]]) -> float:
    """The pure epsilon that dp_accounting composes them to: Rényi at an order that is as good as
    infinite."""
    accountant = RdpAccountant([1e12], NeighboringRelation.REPLACE_ONE)
    accountant.compose(composed(rows))
    return float(accountant.get_epsilon(1e-12))


def export(folder: Path, store: str) -> dict[str, Any]:
    """The file that a user writes."""
    out = folder / "mechanisms.json"
    answer = hushgrid("ledger", "export", folder / store, "--mechanisms", "--out", out)
    assert (answer.returncode, answer.stderr) == (0, "")
    values: dict[str, Any] = json.loads(out.read_text())
    assert values["format"] == "hushgrid-mechanisms/1"
    return values


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty hours under a promise of any 12, with models that cost 0.6 and a stretch of blocks."""
    folder = tmp_path_factory.mktemp("street")
    zone = load(folder, BEGINS, WINDOW, ("[policy]", LEARNED))
    with curator(folder, zone, Shown(), now=BEGINS) as it:
        publish(it, 30)
    return folder


def test_dp_accounting_composes_a_life_to_the_sum_of_the_ledger(street: Path) -> None:
    zone = export(street, "ledger.db")["zones"]["elm-street"]
    ledger = standing(street)
    assert zone["head"] == ledger.head.digest
    assert zone["neighbouring_relation"] == NeighboringRelation.REPLACE_ONE.name
    assert [row["what"] for row in zone["mechanisms"]].count("model") == 1
    assert zone["epsilon"] == pytest.approx(ledger.epsilon, rel=1e-12)
    assert epsilon_of(zone["mechanisms"]) == pytest.approx(ledger.epsilon, rel=CLOSE)
    assert ledger.epsilon > 2  # more than a window may lose


def test_the_program_of_the_guide_prints_the_sum(street: Path) -> None:
    export(street, "ledger.db")
    (program,) = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "audit.md").read_text(), re.S)
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=street, capture_output=True, text=True, check=True
    )
    assert float(answer.stdout) == pytest.approx(standing(street).epsilon, rel=CLOSE)


def test_dp_accounting_composes_any_window_to_the_sum_of_its_account(street: Path) -> None:
    """Of every window that ends where a block was admitted."""
    rows = export(street, "ledger.db")["zones"]["elm-street"]["mechanisms"]
    windows = [release.windows for release in standing(street).releases if release.windows]
    assert len(windows) > 2
    for window in windows:
        account = from_windows(window)
        (promise,) = account.promises
        end = account.blocks[-1].first  # the window ends with the first second of this block
        touching = [
            row for row in rows if row["first"] <= end and row["last"] >= end - promise.steps + 1
        ]
        own = promise.loss(account.blocks, end)
        assert own <= promise.epsilon * (1 + 1e-9)
        assert epsilon_of(touching) == pytest.approx(own, rel=CLOSE)


def test_the_largest_window_is_stated(street: Path) -> None:
    zone = export(street, "ledger.db")["zones"]["elm-street"]
    stated = {row["window_s"]: row["epsilon"] for row in zone["windows"]}
    assert set(stated) >= {12 * HOUR, 24 * HOUR}
    assert 0.9 < stated[12 * HOUR] <= 1 + 1e-9
    assert stated[12 * HOUR] < stated[24 * HOUR] < zone["epsilon"]


def test_an_approximate_promise_is_what_hushgrid_composes(street: Path) -> None:
    """Another path to the same theorem: privacy-loss distributions of randomised response."""
    rows = export(street, "ledger.db")["zones"]["elm-street"]["mechanisms"]
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(composed(rows))
    due = compose([row["epsilon"] for row in rows], 1e-3)
    assert accountant.get_epsilon(1e-3) == pytest.approx(due, rel=5e-3)


def state_of(told: Story) -> Any:
    report = check(sealed(told), verify_signature)
    assert report.first_bad is None, report.reason
    return report.standings["elm-street"]


def charge(epsilon: float) -> tuple[str, dict[str, Any]]:
    body = bodies.charge("models", epsilon, digest=DIGEST, homes=20, first=0, last=START - 1)
    return "charge", dict(body)


def gap(first: int, last: int) -> tuple[str, dict[str, Any]]:
    return "gap", {"first": first, "last": last, "why": "meters"}


def test_a_lost_stretch_is_booked_and_has_no_bound_before() -> None:
    told: Story = [*opening(), charge(0.3), ("release", read(1)), gap(2, 3)]
    lost = mechanisms(state_of(told))[-1]
    assert lost == PrivacyEvent(5, "lost", 2 * 900, 4 * 900 - 1, math.inf)
    assert lost.event["class_name"] == "NonPrivateDpEvent"
    told.append(("resume", {"first": 2, "last": 3, "epsilon": 4.0}))
    events = mechanisms(state_of(told))
    assert [event.what for event in events] == ["model", "block", "lost"]
    # what anyone may consume counts, not what the models expect: 2.5 and not 0.5
    assert [event.epsilon for event in events] == [0.3, 2.5, 4.0]
    assert loss_of(events) == pytest.approx(6.8)


def test_a_release_without_a_bound_is_not_private(tmp_path: Path) -> None:
    write_story(tmp_path / "ledger.db")
    zone = export(tmp_path, "ledger.db")["zones"]["elm-street"]
    assert zone["epsilon"] is None
    assert {row["what"] for row in zone["mechanisms"]} == {"block"}
    last = zone["mechanisms"][-1]
    assert (last["epsilon"], last["event"]["class_name"]) == (None, "NonPrivateDpEvent")
    assert epsilon_of(zone["mechanisms"]) == math.inf
    assert epsilon_of(zone["mechanisms"][:-1]) == pytest.approx(7.5, rel=CLOSE)


def test_a_changed_ledger_is_refused(tmp_path: Path) -> None:
    lines = lines_of(sealed([*opening(), ("release", read(1))]))
    (tmp_path / "ledger.ndjson").write_bytes(
        lines.replace(b'"epsilon_any":2.5', b'"epsilon_any":1.5')
    )
    answer = hushgrid("ledger", "export", tmp_path / "ledger.ndjson", "--mechanisms")
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert "record 3 of the ledger is bad" in answer.stderr


def test_figures_go_to_json(street: Path) -> None:
    answer = hushgrid(
        "ledger", "export", street / "ledger.db", "--mechanisms", "--out", street / "m.json",
        "--json", "-",
    )  # fmt: skip
    values = json.loads(answer.stdout)
    rows = json.loads((street / "m.json").read_text())["zones"]["elm-street"]["mechanisms"]
    assert values["mechanisms"] == {"elm-street": len(rows)}
    assert values["epsilon"]["elm-street"] == pytest.approx(sum(row["epsilon"] for row in rows))


spans = st.tuples(st.integers(0, 60), st.integers(0, 20), st.floats(0.001, 2.0)).map(
    lambda span: PrivacyEvent(1, "block", span[0], span[0] + span[1], span[2])
)


@given(st.lists(spans, max_size=12), st.integers(1, 40))
def test_the_largest_window_is_that_of_all_windows(
    events: list[PrivacyEvent], seconds: int
) -> None:
    due = max(
        math.fsum(e.epsilon for e in events if e.last >= opens and e.first < opens + seconds)
        for opens in range(-45, 85)
    )
    assert spent_in(events, seconds) == pytest.approx(due)


@given(st.floats(1e-6, 30))
def test_an_event_never_loses_less_than_its_epsilon(epsilon: float) -> None:
    share = PrivacyEvent(1, "block", 0, 1, epsilon).event["noise_parameter"]
    assert math.log(2 / share - 1) >= epsilon * (1 - 1e-9)
    assert math.log(2 / share - 1) == pytest.approx(epsilon, rel=1e-6)
