"""A house that moves between two zones, and what the outputs of both really say about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import OccupancyModel
from hushgrid.curator.transfer import move
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.intake.readings import Register
from hushgrid.stores.ledger.entries import TransferRecord
from hushgrid.stores.ledger.state import LedgerState, unmatched
from tests.curator.borders import FIRST, HOUR, Street, exact, zone_of
from tests.curator.moved_houses import HORIZON, QUARTER, run, said, states, street
from tests.curator.setups import BEGINS


def test_the_oracle_knows_the_golden_values() -> None:
    stay = np.array([[0.9, 0.1], [0.2, 0.8]])
    found = exact([stay] * 3, [0.7, 0.3], [0.5, 0.3, 0.4])
    assert found == pytest.approx([0.914884, 0.935856, 0.861792], abs=1e-6)


# ---- through the service


def moves(folder: Path, at: int, *zones: ZoneService, meter: str = "h") -> TransferRecord:
    """A meter from elm to oak, that of house h alone or another one."""
    places = {"ledger": str(folder / "ledger.db"), "meters": str(folder / "meters")}
    made = Deployment(zones, mode="simulation", key=folder / "key", **places)
    move(made, meter, "elm", "oak", at)
    found = states(folder)
    assert unmatched(found) is None
    return found["oak"].transfers[-1]


def test_a_house_comes_with_the_account_it_left_with(tmp_path: Path) -> None:
    run(tmp_path, elm := street("elm", ("h", "i"), BEGINS, 1.0), 2)
    run(tmp_path, oak := street("oak", ("j",), BEGINS, 1.0), 0)
    came = moves(tmp_path, BEGINS + 2 * QUARTER, elm, oak)
    found = states(tmp_path)
    forged = replace(found["oak"], transfers=(replace(came, account=None),))
    fault = unmatched({"elm": found["elm"], "oak": forged})
    assert fault is not None
    assert fault.reason.endswith("with another account than it had there")


TWO_PROMISES = [(1.0, 3.0), (3.0, 1.0)]


def kept(found: dict[str, LedgerState], promises: tuple[float, float]) -> bool:
    """Whether all prices say no more about h than either zone promises about its steps.

    About those of the first zone, and those of the other from its first price from readings on.
    """
    shown, steps = said(found["elm"], found["oak"])
    left = max(one.t for one in found["elm"].releases) + 1
    came = min(one.t for one in found["oak"].releases if one.source == "readings")
    before, after = shown[: left - steps[0]], shown[came - steps[0] :]
    return bool(before.max() <= promises[0] + 1e-6 and after.max() <= promises[1] + 1e-6)


@pytest.mark.parametrize("promises", TWO_PROMISES)
@pytest.mark.parametrize("behind", [0, 3])
@pytest.mark.sampled
def test_a_house_keeps_its_promise_over_two_zones(
    tmp_path: Path, promises: tuple[float, float], behind: int
) -> None:
    """Also where terms of the zone it comes to begin before the last price of the other."""
    border = BEGINS + HORIZON * QUARTER
    run(tmp_path, elm := street("elm", ("h", "i"), BEGINS, promises[0]), HORIZON)
    run(tmp_path, oak := street("oak", ("j",), BEGINS, promises[1]), 0)
    came = moves(tmp_path, border, elm, oak)
    assert came.account is not None
    assert came.last == border
    begins = border - behind * QUARTER
    run(tmp_path, street("oak", ("h", "j"), begins, promises[1]), HORIZON)
    found = states(tmp_path)
    assert kept(found, promises)
    read = [one.start for one in found["oak"].releases if one.source == "readings"]
    assert min(read) >= border
    assert len(read) > HORIZON / 2


@pytest.mark.parametrize("promises", TWO_PROMISES)
@pytest.mark.sampled
def test_without_its_account_a_house_that_moves_would_lose_more(
    tmp_path: Path, promises: tuple[float, float]
) -> None:
    """As if it were new in the other zone, which keeps its promise by its own prices alone."""
    border = BEGINS + HORIZON * QUARTER
    for name, at, promise in zip(("elm", "oak"), (BEGINS, border), promises, strict=True):
        (tmp_path / name).mkdir()
        run(tmp_path / name, street(name, ("h", "i"), at, promise), HORIZON)
    found = {name: states(tmp_path / name)[name] for name in ("elm", "oak")}
    for name, promise in zip(found, promises, strict=True):
        assert said(found[name])[0].max() <= promise + 1e-6
    assert not kept(found, promises)


def test_what_was_published_without_a_promise_is_brought_along(tmp_path: Path) -> None:
    """From a zone with the secret step; the promise is about the steps from its first price on."""
    run(tmp_path, elm := street("elm", ("h", "i"), BEGINS, None), HORIZON)
    border = BEGINS + HORIZON * QUARTER
    run(tmp_path, oak := street("oak", ("j",), BEGINS, 0.5), 0)
    came = moves(tmp_path, border, elm, oak)
    run(tmp_path, street("oak", ("h", "j"), border, 0.5), HORIZON)
    found = states(tmp_path)
    shown, steps = said(found["elm"], found["oak"])
    promised = shown[[t - steps[0] for t in steps if t >= border // QUARTER]]
    assert 0 < len(promised) < HORIZON
    assert promised.max() <= 0.5 + 1e-6
    assert came.account is not None


# ---- one house in two zones


def test_a_zone_that_lags_behind_does_not_forget_when_a_house_came() -> None:
    """It stated hour 32 about a house that had come with prices until hour 60."""
    stay = np.array([[0.8, 0.2], [0.3, 0.7]])
    one = zone_of(OccupancyModel.factored([[0.6, 0.4]], [[stay]]), FIRST * HOUR, 0.02, 96, None)
    street = Street(1)
    street.begin(one)
    street.publish(one, [1, 2])
    for hour in (30, 0):
        last = (FIRST + hour) * HOUR
        came = TransferRecord("h", "in", "y", out="0" * 64, seq=1, last=last)
        _, stated = ZoneAccount(one).leaving(replace(street.standing, transfers=(came,)))
        assert stated == (FIRST + max(hour, 2)) * HOUR


# ---- a household with several meters


def with_heat(zone: ZoneService, meter: str) -> ZoneService:
    """The zone with a second meter in its first house."""
    return replace(zone, registers=(Register(0, meter, 1),))


def test_a_second_meter_alone_needs_a_transfer_as_well(tmp_path: Path) -> None:
    elm = with_heat(street("elm", ("h", "i"), BEGINS, 1.0), "heat")
    run(tmp_path, elm, 2)
    run(tmp_path, oak := street("oak", ("j",), BEGINS, 1.0), 0)
    terms = states(tmp_path)["elm"].terms
    assert terms is not None
    assert len(terms.house_names) == 3
    border = BEGINS + HORIZON * QUARTER
    later = with_heat(street("oak", ("j",), border, 1.0), "heat")
    with pytest.raises(LedgerError, match="house 1 of zone 'oak' was in zone 'elm', and no trans"):
        run(tmp_path, later, 1)
    moves(tmp_path, border, elm, oak, meter="heat")
    run(tmp_path, later, 0)
    terms = states(tmp_path)["oak"].terms
    assert terms is not None
    assert len(terms.house_names) == 2
