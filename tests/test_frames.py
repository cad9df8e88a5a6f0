"""Results as tables: data frames, what a notebook shows, and labels that must agree."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hushgrid
from hushgrid import (
    Account,
    Consumption,
    Factored,
    Gamma,
    HushgridError,
    Knowledge,
    LogNormal,
    ModelError,
    OccupancyModel,
    Plan,
    Policy,
    PolicyError,
    ReadingError,
    Scenario,
    SimulatedNoise,
    Tariff,
    Zone,
    ZoneError,
    aggregate,
    init,
    plan,
    scores,
    simulate,
    smallest_scale,
    step,
    tally,
    watch,
    worst_loss,
)
from hushgrid._frames import DataTable, Tabular, check_labels, html_table
from hushgrid.lab.comparison import Comparison, compare
from hushgrid.lab.datasets import Simulated
from hushgrid.lab.methods import MethodPromise

N, STEPS = 12, 24


class Cells(HTMLParser):
    """The cells of a table by row, and the words of its caption."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.caption, self.tags = "", list[str]()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.tags[-1] == "caption":
            self.caption += data
        else:
            assert self.tags[-1] in ("td", "th")
            self.rows[-1][-1] += data


def cells(result: Any) -> Cells:
    read = Cells(result._repr_html_())
    assert not read.tags
    assert len({len(row) for row in read.rows}) == 1
    return read


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    stay = [[0.97, 0.03], [0.05, 0.95]]
    theta = OccupancyModel.factored([[0.3, 0.7]], [[stay]], chain_of=[0] * N)
    f = Consumption.by_class(
        absent=[Gamma(2, 20, 2500)], present=[LogNormal(110, 0.8, 2500)], class_of=[0] * N
    )
    return Scenario(Zone("<elm> & ash", [2500] * N), Tariff(0.004, 0.05), (theta,), f)


@pytest.fixture(scope="module")
def planned(scenario: Scenario) -> Plan:
    return plan(
        *scenario.terms, secret="window", epsilon=1.0, window=97, rho=None, terms=Policy(1.0),
        block=24,
    )  # fmt: skip


def test_a_trace_is_a_row_a_step(scenario: Scenario) -> None:
    trace = simulate(scenario, Policy(0.5, horizon=STEPS), seed=1)
    frame = trace.to_frame()
    assert list(frame.index) == list(range(1, STEPS + 1))
    assert frame.index.name == "step"
    for name in ("load", "optimal", "published", "home"):
        assert np.array_equal(frame[name], getattr(trace, name))
    assert list(frame["load_hat"]) == [release.load_hat for release in trace.releases]
    assert set(frame["epsilon"]) == {0.5}
    read = cells(trace)
    assert read.caption == repr(trace)
    assert read.rows[0] == ["step", *frame.columns]
    assert [row[0] for row in read.rows[1:]] == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "…",
        *map(str, range(20, 25)),
    ]
    assert read.rows[1][1] == str(trace.load[0])


def test_a_plan_is_a_row_a_step(planned: Plan) -> None:
    frame = planned.to_frame()
    horizon = planned.policy.horizon
    assert len(frame) == horizon
    assert np.array_equal(frame["scale"], planned.scale)
    assert np.allclose(frame["noise"] ** 2, planned.prospect.noise)
    assert list(frame.groupby("block").size()) == list(planned.policy.schedule.lengths)
    assert np.array_equal(frame["loss"], planned.largest_losses)
    read = cells(planned)
    assert read.rows[0][:3] == ["step", "block", "scale"]
    assert "12 houses, any 24 hours, epsilon 1" in read.caption


def test_beliefs_and_their_scores(scenario: Scenario) -> None:
    trace = simulate(scenario, Policy(0.5, horizon=STEPS), seed=1)
    known = Knowledge(scenario.zone, scenario.models, scenario.consumption)
    beliefs = watch(Factored(known), trace.releases)
    frame = beliefs.to_frame()
    assert frame.shape == (STEPS, N)
    assert np.allclose(frame, beliefs.averaged)
    truth = np.random.default_rng(1).integers(0, 2, frame.shape)
    merit = scores(beliefs, truth)
    assert merit == scores(frame, truth) == scores(np.asarray(frame), truth.tolist())
    assert merit.auc.prior == 0.5
    assert merit.brier.prior == pytest.approx(truth.mean() * (1 - truth.mean()))
    table = merit.to_frame()
    assert list(table.index) == ["auc", "log_loss", "brier", "accuracy"]
    assert table.loc["brier", "value"] == merit.brier.value
    assert tuple(table.loc["brier", ["gain_low", "gain_high"]]) == merit.brier.gain_ci95
    assert [row[0] for row in cells(merit).rows[1:]] == list(table.index)
    with pytest.raises(
        ModelError, match="truth has the label 'b' at place 0 where beliefs has 'a'"
    ):
        scores(
            pd.DataFrame([[0.5, 0.2]], columns=["a", "b"]),
            pd.DataFrame([[0, 1]], columns=["b", "a"]),
        )


def test_a_comparison_is_a_row_a_method(scenario: Scenario) -> None:
    result = compare(
        Simulated([scenario], 1, horizon=STEPS), MethodPromise("interval", 1.0), days=2, seed=1
    )
    frame = result.to_frame()
    assert isinstance(result, Comparison)
    for name in result.names:
        error = result.summary(name, "estimated", "rmsre")
        assert tuple(frame.loc[name, ["error", "error_low", "error_high"]]) == (
            error.mean,
            *error.ci95,
        )
    assert result.refused
    for name, reason in result.refused.items():
        assert frame.loc[name, "refusal"] == reason
        assert np.isnan(frame.loc[name, "error"])
    assert repr(result).startswith(f"Comparison({N} houses, any step by all prices, epsilon 1, ")
    assert cells(result).caption == repr(result)


def test_a_release_is_a_row_a_field(scenario: Scenario) -> None:
    state = init(*scenario.terms, Policy(0.5))
    release, _ = step(state, tally([130] * N, state.zone.bound), SimulatedNoise(1))
    read = cells(release)
    assert read.caption == "Release of <elm> & ash, step 1"
    fields = dict(map(tuple, read.rows[1:]))  # type: ignore[arg-type]
    assert fields["zone"] == "<elm> & ash"
    assert fields["load_hat"] == str(release.load_hat)
    assert fields["digest"] == release.digest


def test_blocks_of_a_window_account() -> None:
    account = Account.window(96, 1.0).admit(0.1, 0, 11)
    assert account is not None
    account = account.admit(0.2, 12, 23)
    assert account is not None
    frame = account.to_frame()
    assert frame.to_dict("list") == {"first": [0, 12], "last": [11, 23], "loss": [0.1, 0.2]}


def test_a_wide_table_shows_its_ends() -> None:
    table = DataTable("step", range(2), {house: [house, None] for house in range(100)})
    read = Cells(html_table("many", table))
    assert read.rows[0] == ["step", *map(str, range(6)), "…", *map(str, range(94, 100))]
    assert read.rows[1][1:] == read.rows[0][1:]
    assert set(read.rows[2][1:]) == {"", "…"}


LABELS = pd.Index(["a", "b", "c"])
PMF = {"bound": 2, "eta": 1.0}


def series(values: list[Any], labels: Any = LABELS) -> Any:
    return pd.Series(values, index=labels)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ZoneError, lambda x, y: Zone("z", x, y)),
        (ZoneError, lambda x, y: Zone.net("z", x, y)),
        (ReadingError, lambda x, y: tally(y, x)),
        (ReadingError, lambda x, y: tally(y, np.array([9, 9, 9]), x)),
        (ReadingError, lambda x, y: aggregate(y, x)),
        (PolicyError, lambda x, y: worst_loss(x / x.sum(), y / y.sum(), scale=9.0, **PMF)),
        (PolicyError, lambda x, y: smallest_scale(x / x.sum(), y / y.sum(), epsilon=1.0, **PMF)),
    ],
)
def test_labels_of_series_are_checked(error: type[HushgridError], call: Any) -> None:
    plain = call(np.array([9, 9, 9]), np.array([1, 2, 3]))
    for labels in (LABELS, pd.RangeIndex(3)):
        assert call(series([9, 9, 9]), series([1, 2, 3], labels)) == plain
    with pytest.raises(error, match=r"has the label '\w' at place 1 where \w+ has '\w'; give both"):
        call(series([9, 9, 9]), series([1, 2, 3], pd.Index(["a", "c", "b"])))


def test_lists_and_arrays_have_no_labels() -> None:
    check_labels(ZoneError, a=[1, 2], b=(1, 2), c=np.arange(2), d=None, e="ab")


HOMES = pd.DataFrame(
    {"meter": ["m1", "m2", "m3"], "bound": [2500, 5000, 2500], "export": [0, 1250, 0]},
    index=LABELS,
)


def test_a_zone_of_a_frame() -> None:
    assert Zone.from_frame(HOMES, id="z") == Zone("z", [2500, 5000, 2500])
    zone = Zone.from_frame(HOMES, id="z", export="export", home="meter")
    assert zone == Zone("z", [2500, 5000, 2500], [0, 1250, 0])
    assert repr(zone) == "Zone(3 houses, bound 2500 to 5000 Wh, export 0 to 1250 Wh, id='z')"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"bound": [2500, np.nan, 1]},
            "bound of home 'b' is nan; give whole Wh from 1 to 2147483647.",
        ),
        ({"bound": [2500, 1, -5]}, "bound of home 'c' is -5; give whole Wh from 1 to 2147483647."),
        ({"bound": [0, 1, 5]}, "bound of home 'a' is 0; give whole Wh from 1 to 2147483647."),
        ({"bound": [1.5, 1, 5]}, "bound of home 'a' is 1.5; give whole Wh from 1 to 2147483647."),
        ({"bound": ["x", 1, 5]}, "bound of home 'a' is x; give whole Wh from 1 to 2147483647."),
        ({"export": [0, -1, 0]}, "export of home 'b' is -1; give whole Wh from 0 to 2147483647."),
    ],
)
def test_limits_that_are_refused(change: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(ZoneError) as refusal:
        Zone.from_frame(HOMES.assign(**change), id="z", export="export")
    assert str(refusal.value) == message


def test_homes_that_are_refused() -> None:
    with pytest.raises(ZoneError, match=r"^home 'm1' has 2 rows; give one row a home\.$"):
        Zone.from_frame(HOMES.assign(meter=["m1", "m2", "m1"]), id="z", home="meter")
    with pytest.raises(ZoneError, match=r"^home 'a' has 3 rows; give one row a home\.$"):
        Zone.from_frame(HOMES.set_axis(["a"] * 3), id="z")
    with pytest.raises(
        ZoneError, match=r"^frame has no column 'limit'; give one of meter, bound, export\.$"
    ):
        Zone.from_frame(HOMES, id="z", bound="limit")


def test_the_guide_names_every_result_that_is_a_table() -> None:
    assert all(hasattr(hushgrid, name) for name in hushgrid.__all__)  # loads them
    guide = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    named = re.findall(r"^\| `.*: `(\w+)` \|", guide, re.M)
    assert sorted(named) == sorted({kind.__name__ for kind in Tabular.__subclasses__()})
