"""What a house says that came from another zone, against what outputs of both zones really say."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import OccupancyModel, Policy
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, Promise, ZoneService
from hushgrid.files.interval_plan import in_epoch
from hushgrid.service.audit import _Brought
from hushgrid.service.border import opening
from hushgrid.service.earlier_epochs import forgotten, silence
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import check
from hushgrid.service.ledger.records import (
    ChargeRecord,
    LedgerState,
    TransferRecord,
    unmatched,
)
from hushgrid.service.ledger.writer import verify_signature
from hushgrid.service.transfer import move, takes_along
from tests.service.borders import FIRST, HOUR, Street, exact, from_file, zone_of
from tests.service.setups import BEGINS
from tests.service.setups import service as service_of
from tests.service.test_curator import Shown, curator, feed

QUARTER = 900


def test_the_oracle_knows_the_golden_values() -> None:
    stay = np.array([[0.9, 0.1], [0.2, 0.8]])
    found = exact([stay] * 3, [0.7, 0.3], [0.5, 0.3, 0.4])
    assert found == pytest.approx([0.914884, 0.935856, 0.861792], abs=1e-6)


# ---- through the service


def run(folder: Path, one: ZoneService, readings: int, forecasts: int = 0) -> None:
    """An epoch: some steps with readings, then some without."""
    with curator(folder, one, Shown(), now=one.begins, new_epoch=known(folder, one)) as it:
        for k in range(readings + forecasts):
            if k < readings:
                feed(it, it.t, list(range(len(one.meters))))
            it.run(it.next_due())


def known(folder: Path, one: ZoneService) -> bool:
    if not (folder / "ledger.db").exists():
        return False
    with open_store(str(folder / "ledger.db")) as store:
        return store.head(one.id) is not None


def states(folder: Path) -> dict[str, LedgerState]:
    with open_store(str(folder / "ledger.db")) as store:
        every = [record for zone in store.zones() for record in store.records(zone)]
    report = check(every, verify_signature)
    assert report.first_bad is None
    return dict(report.standings)


def street(
    name: str, meters: tuple[str, ...], at: int, slow: float, promise: float | None
) -> ZoneService:
    """Homes that come and leave rarely; the secret step, or an interval promise."""
    made = service_of(len(meters), name, Policy(0.4, horizon=2), begins=at)
    stay = [[1 - slow, slow], [slow, 1 - slow]]
    model = OccupancyModel.factored([[0.5, 0.5]], [[stay]], chain_of=[0] * len(meters))
    made = replace(made, meters=meters, scenario=replace(made.scenario, models=(model,)))
    if promise is None:
        return made
    even = replace(made.policy, epsilon=promise / 2)
    return replace(made, policy=even, promise=Promise("interval", promise))


def test_what_lies_beyond_a_horizon_is_brought_along(tmp_path: Path) -> None:
    """Ten short epochs, the last one of forecasts alone; then a zone with an interval promise.

    It came with epsilon 0, and the new epoch stated 0.5.
    """
    slow, at = 0.08, BEGINS
    for k in range(10):
        elm = street("elm", ("h", "i"), at, slow, None)
        run(tmp_path, elm, 2 * (k < 9), 2 * (k == 9))
        at += 2 * QUARTER
    run(tmp_path, before := street("oak", ("j", "k"), at - QUARTER, slow, 0.5), 0)
    places = {"ledger": str(tmp_path / "ledger.db"), "meters": str(tmp_path / "meters")}
    made = Deployment((elm, before), mode="simulation", key=tmp_path / "key", **places)
    assert move(made, "h", "elm", "oak", at).epsilon == 0.0, "no budget counts it any more"
    after = street("oak", ("h", "j"), at, slow, 0.5)
    with pytest.raises(LedgerError, match=r"all its prices would be forecasts") as refused:
        run(tmp_path, after, 2)
    begins = re.search(r"a begins of (\d+) or later", str(refused.value))
    assert begins is not None
    run(tmp_path, replace(after, begins=int(begins[1])), 2)
    found = states(tmp_path)
    assert unmatched(found) is None
    lost = {
        one.t: 1000 / one.scale
        for one in (*found["elm"].releases, *found["oak"].releases)
        if one.source == "readings"
    }
    first, last = min(lost), max(lost)
    stay = np.array([[1 - slow, slow], [slow, 1 - slow]])
    losses = [lost.get(t, 0.0) for t in range(first, last + 1)]
    shown = exact([stay] * len(losses), [0.5, 0.5], losses)[-2:].max()
    at_once = exact([stay] * 20, [0.5, 0.5], [one for one in losses if one])[-2:].max()
    assert shown <= 0.5 + 1e-6 < at_once


# ---- one house in two zones


@pytest.mark.parametrize("factor", [1.0, None])
def test_what_another_zone_publishes_after_the_epoch_begins_is_refused(
    factor: float | None,
) -> None:
    """Its releases about the house lie within the epoch, whatever that promises."""
    stay = np.array([[0.7, 0.3], [0.3, 0.7]])
    one = zone_of(OccupancyModel.factored([[0.5, 0.5]], [[stay]]), FIRST * HOUR, 0.1, 96, factor)
    for late in (1, 0):
        came = TransferRecord("h", "in", "y", 0.0, out="0" * 64, seq=1, last=(FIRST + late) * HOUR)
        standing = replace(Street(1).standing, transfers=(came,))
        if late:
            with pytest.raises(LedgerError, match=r"another zone published .* later begins"):
                opening(replace(one, accepts=math.inf), standing)
        else:
            opening(one, standing)


def test_the_same_terms_are_refused_too_before_another_zone_ended() -> None:
    """It counted as if the other zone had ended when the epoch begins: 0.9999992, exactly 1.06."""
    stay = np.array([[0.8, 0.2], [0.3, 0.7]])
    one = from_file(OccupancyModel.factored([[0.6, 0.4]], [[stay]]), FIRST * HOUR, 1.0, 12)
    street = Street(1)
    street.begin(one)
    street.publish(one, range(1, 13))
    street.move("out", 4.0, last=(FIRST + 12) * HOUR)
    street.move("in", 4.1, last=(FIRST + 110) * HOUR)
    for first in (FIRST + 100, FIRST + 109):
        after = replace(in_epoch(one, first * HOUR) or one, accepts=math.inf)
        with pytest.raises(LedgerError, match="another zone published about a house"):
            opening(after, street.standing)
    opening(in_epoch(one, (FIRST + 160) * HOUR) or one, street.standing)


def two_histories(one: ZoneService) -> Street:
    """Eight steps; the last four were published twice, and the other history is booked."""
    street = Street(1)
    street.begin(one)
    street.publish(one, range(1, 9))
    again = [each.epsilon_any for each in street.standing.releases[4:]]
    real = dict(street.losses)
    street.lose(FIRST + 4, again)
    street.losses = {t: loss * (1 + (t >= FIRST + 4)) for t, loss in real.items()}
    return street


def test_steps_of_two_histories_are_forgotten_first() -> None:
    """An epoch that follows at once was accepted at 0.9999992, exactly 1.27."""
    stay = np.array([[0.8, 0.2], [0.3, 0.7]])
    one = from_file(OccupancyModel.factored([[0.6, 0.4]], [[stay]]), FIRST * HOUR, 1.0, 12)
    street = two_histories(one)
    after = in_epoch(one, (FIRST + 8) * HOUR, 96) or one
    assert opening(after, street.standing)["forecast_until"] == (FIRST + 8 + 48) * HOUR


def test_a_house_takes_along_both_of_two_histories() -> None:
    stay = np.array([[0.96, 0.04], [0.05, 0.95]])
    theta = OccupancyModel.factored([[0.6, 0.4]], [[stay]])
    street = two_histories(zone_of(theta, FIRST * HOUR, 0.05, 12, None))
    total = takes_along(street.standing, "h")["total"]
    assert total == pytest.approx(math.fsum(street.losses.values()))


def test_a_zone_that_lags_behind_does_not_forget_when_a_house_came() -> None:
    """It stated hour 32 about a house that had come with prices until hour 60."""
    stay = np.array([[0.8, 0.2], [0.3, 0.7]])
    one = zone_of(OccupancyModel.factored([[0.6, 0.4]], [[stay]]), FIRST * HOUR, 0.02, 96, None)
    street = Street(1)
    street.begin(one)
    street.publish(one, [1, 2])
    for hour in (30, 0):
        last = (FIRST + hour) * HOUR
        came = TransferRecord("h", "in", "y", 0.4, out="0" * 64, seq=1, total=3, last=last)
        stated = takes_along(replace(street.standing, transfers=(came,)), "h")
        assert stated["last"] == (FIRST + max(hour, 2)) * HOUR


@pytest.mark.parametrize(("last", "counts"), [(0, 0.0), (18, 0.4)])
def test_a_house_comes_no_earlier_than_the_last_price_elsewhere(last: int, counts: float) -> None:
    """The zone it comes to is behind: its next release is of an earlier interval."""
    stay = np.array([[0.8, 0.2], [0.3, 0.7]])
    one = zone_of(OccupancyModel.factored([[0.6, 0.4]], [[stay]]), FIRST * HOUR, 0.02, 4, None)
    street = Street(1)
    street.begin(one)
    street.publish(one, [1, 2])
    until = (FIRST + last) * HOUR if last else 0
    came = TransferRecord("h", "in", "y", 0.4, out="0" * 64, seq=1, last=until)
    street.begin(replace(one, begins=(FIRST + 20) * HOUR))
    assert replace(street.standing, transfers=(came,)).carried == counts
    audited = _Brought()
    audited.take(came.to_body(), 1)
    epochs = [{"first": first, "horizon": 4, "seconds": HOUR} for first in (FIRST, FIRST + 20)]
    audited.at(FIRST * HOUR, epochs[:1])
    assert audited.at((FIRST + 20) * HOUR, epochs) == counts


def test_what_models_cost_does_not_fade_with_the_epoch() -> None:
    """They may hold readings of just before they were charged, whenever the epoch began."""
    stay = np.array([[0.8, 0.2], [0.3, 0.7]])
    one = zone_of(OccupancyModel.factored([[0.6, 0.4]], [[stay]]), FIRST * HOUR, 0.02, 96, None)
    street = Street(1)
    street.begin(one)
    street.publish(one, range(1, 49))
    releases = street.standing.releases
    charge = ChargeRecord("models", 2.0, "0" * 64, 15, releases[-1].seq + 1)
    standing = replace(street.standing, charged={charge.digest: 2.0}, charges=(charge,))
    stated = takes_along(standing, "h", (FIRST + 100) * HOUR)
    assert stated["total"] >= 2.0
    assert stated["last"] == (FIRST + 100) * HOUR, "when it was charged is not on record"


def test_what_a_house_brought_is_said_of_those_it_moved_with_after_it_left() -> None:
    """h came, moved with p for one release, and left: what was published about h is said of p."""
    stay = np.array([[0.7, 0.3], [0.3, 0.7]])
    street = Street(2)
    street.move("in", 1.6, last=FIRST * HOUR)
    street.move("out", 1.6)
    after = zone_of(OccupancyModel.factored([[0.5, 0.5]], [[stay]]), FIRST * HOUR, 0.02, 4, 1.0)
    assert silence(after, street.standing) == forgotten(after, FIRST * HOUR)
