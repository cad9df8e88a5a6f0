"""What she refuses to read, and how little she needs to be installed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import hushgrid
from hushgrid import (
    Consumption,
    Exact,
    Factored,
    Knowledge,
    OccupancyModel,
    Policy,
    Population,
    Scenario,
    Tariff,
    Uniform,
    Zone,
    init,
    simulate,
    watch,
)
from hushgrid.adversary.knowledge import KnownOccupancy, KnownReadings
from hushgrid.errors import ConsumptionError, HushgridError, ModelError, PolicyError, ReadingError
from tests.adversary.worlds import release

THETA = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0, 0])
F = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(10)], class_of=[0, 0])
ZONE = Zone("z", [10, 10])
KNOWN = Knowledge(ZONE, [THETA], F)


@pytest.mark.parametrize(
    ("releases", "says"),
    [
        (
            [release(1, 3, 2.0, zone="y")],
            "release of step 1 is of zone y but the adversary watches z",
        ),
        ([release(2, 3, 2.0), release(2, 3, 2.0)], "release of step 2 comes after step 2"),
        ([release(2, 3, 2.0), release(1, 3, 2.0)], "release of step 1 comes after step 2"),
        ([release(0, 3, 2.0)], "release of step 0 comes after step 0"),
        (
            [release(1, 3, 2.0), release(2, 3, 2.0, digest="e" * 64)],
            "release of step 2 is under terms eeeeeeeeeeee but the others under d",
        ),
        ([release(1, 3, float("nan"))], "release of step 1 has scale nan"),
    ],
)
def test_the_first_bad_release_is_named(releases: list[object], says: str) -> None:
    for who in (Exact, Population, Factored):
        with pytest.raises(PolicyError, match=says):
            watch(who(KNOWN), releases)  # type: ignore[arg-type]


def test_terms_are_told_apart_by_their_digest() -> None:
    """Of a real run; and a wrong model is just another model under the same digest."""
    scenario, policy = Scenario(ZONE, Tariff(1.0, 62.5), [THETA], F), Policy(1.0, horizon=4)
    trace = simulate(scenario, policy, seed=1)
    digest = init(ZONE, Tariff(1.0, 62.5), [THETA], F, policy).digest
    other = OccupancyModel.factored([[0.1, 0.9]], [[np.eye(2)]], chain_of=[0, 0])
    for model in (THETA, other):
        watch(Exact(Knowledge(ZONE, [model], F, digest=digest)), trace.releases)
    with pytest.raises(PolicyError, match="release of step 1 is under terms"):
        watch(Exact(Knowledge(ZONE, [THETA], F, digest="0" * 64)), trace.releases)


def test_gaps_are_predicted_and_no_releases_are_no_posteriors() -> None:
    for who in (Exact, Population, Factored):
        seen = watch(who(KNOWN), [release(3, 8, 2.0)])
        assert seen.home.shape[1] == 3
        assert seen.home[0, :2, 0].tolist() == pytest.approx([0.5, 0.45])
        assert seen.evidence[0, :2].tolist() == [[0.0] * seen.evidence.shape[2]] * 2
        assert watch(who(KNOWN), []).home.shape[:2] == (1, 0)


def test_skipping_by_hand_is_the_same() -> None:
    who = Exact(KNOWN)
    beliefs = who.skip(who.skip(who.start(), rate=70.0))
    assert (beliefs.t, beliefs.rate) == (2, 70.0)
    after = who.step(beliefs, release(3, 8, 2.0))
    assert np.array_equal(after.laws[0], who.step(who.start(), release(3, 8, 2.0)).laws[0])


def test_news_of_the_others_step_by_step_are_the_whole_day_at_once() -> None:
    readings = np.array([[3, 1], [9, 4], [0, 8]], np.int32)
    releases = [release(t, int(readings[t - 1].sum()) + 2, 2.0) for t in (1, 2, 3)]
    known = Knowledge(ZONE, [THETA], F)
    whole = watch(Factored(known.with_bystanders(KnownReadings(readings))), releases)
    who, beliefs = Factored(known), Factored(known).start()
    for t, each in enumerate(releases, 1):
        beliefs = who.with_bystanders(KnownReadings(readings[t - 1 : t], first=t)).step(
            beliefs, each
        )
        assert np.array_equal(who.home(beliefs.laws[0]), whole.home[0, t - 1])
    assert who.knowledge.bystanders is None  # she was never told herself


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Knowledge(ZONE, [], F), ModelError, "the set of models is empty"),
        (lambda: Knowledge(Zone("z", [9, 9]), [THETA], F), ConsumptionError, "reaches 10 Wh"),
        (lambda: Knowledge(ZONE, [THETA], F, clamp=(3, 3)), ConsumptionError, "clamp has 2"),
        (
            lambda: Knowledge(ZONE, [THETA], F, bystanders=KnownReadings([[1, 2, 3]])),
            ReadingError,
            "KnownReadings has 3 columns but the zone has 2 houses",
        ),
        (lambda: KnownOccupancy([[0, 2]]), ReadingError, "numbers other than 0 and 1"),
        (lambda: KnownReadings([[1], [2, 3]]), ReadingError, "ragged"),
        (lambda: KnownReadings([[0.5, 737.5]]), ReadingError, "give whole numbers"),
        (
            lambda: Exact(Knowledge(ZONE, [THETA], F, bystanders=KnownReadings([[737, 1]]))),
            PolicyError,
            "bystanders is KnownReadings, which Exact does not use; give it to Factored",
        ),
        (
            lambda: watch(
                Factored(Knowledge(ZONE, [THETA], F, bystanders=KnownReadings([[737, 1]]))),
                [release(2, 1, 1.0)],
            ),
            ReadingError,
            "KnownReadings has 1 steps but step 2 is asked for",
        ),
        (
            lambda: Knowledge(
                ZONE, [THETA], F, bystanders=KnownReadings([[737, 1]], first=2)
            ).cut_readings(1),
            ReadingError,
            "KnownReadings has 1 steps from step 2 on but step 1 is asked for",
        ),
    ],
)
def test_bad_input(make: object, error: type[HushgridError], says: str) -> None:
    with pytest.raises(error, match=says) as found:
        make()  # type: ignore[operator]
    assert "737" not in str(found.value)


BLOCKED = """
import sys
class No:
    def find_spec(self, name, path=None, target=None):
        allowed = {"numpy", "array_api_compat", "hushgrid"} | sys.stdlib_module_names
        if name.split(".")[0] not in allowed and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)
sys.meta_path.insert(0, No())
for part in ("exact", "population", "factored"):
    __import__(f"hushgrid.adversary.{part}")
from hushgrid import Consumption, Factored, Knowledge, OccupancyModel, Uniform, Zone
theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
f = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(10)])
who = Factored(Knowledge(Zone("z", [10]), [theta], f))
print(who.home(who.skip(who.skip(who.start())).laws[0]).round(3).tolist())
try:
    import scipy
except ModuleNotFoundError:
    print("no scipy")
"""


def test_imports_with_numpy_and_array_api_compat_alone() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKED], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    assert found.stdout.splitlines() == ["[0.45]", "no scipy"]


def test_public_names_are_loaded_on_demand() -> None:
    lean = "import sys, hushgrid; print('numpy' in sys.modules, 'Zone' in dir(hushgrid))"
    found = subprocess.run([sys.executable, "-c", lean], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]
    assert set(hushgrid.__all__) == set(hushgrid._HOMES)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = hushgrid.nothing
