"""A day's calibrations for a million houses: do time and memory stay linear in houses?"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import zones
from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid import (
    Calibration,
    Consumption,
    OccupancyModel,
    Policy,
    Zone,
    plan,
    schedule,
)
from hushgrid.files.zone_file import load_zone
from hushgrid.mechanism.policy import Even

HOUSES, WARM = sized((1_000_000, 10_000), (2_000, 2_000))
MANY = sized(100_000, 2_000)
POLICY = Policy(0.5, horizon=96, eta=0.05)
THETAS = range(4)

Inputs = tuple[Sequence[OccupancyModel], Zone, Consumption, Policy]


def shared(n: int) -> Inputs:
    """Four models that sort the houses into the same 64 kinds."""
    kinds = zones.kinds(n, 1)
    models = [zones.theta(kinds, seed) for seed in THETAS]
    return models, zones.zone(kinds, 2), zones.consumption(kinds), POLICY


def mixed(n: int) -> Inputs:
    """Four models that each sort the houses in their own way: hardly two houses are alike."""
    kinds = zones.kinds(n, 1)
    models = [zones.theta(zones.kinds(n, 10 + seed), seed) for seed in THETAS]
    return models, zones.zone(kinds, 2), zones.consumption(kinds), POLICY


def growth(inputs: Callable[[int], Inputs], repetitions: int) -> tuple[float, float]:
    """Seconds for a million houses, and how many times as long two million take."""
    _check(schedule(*inputs(WARM)))
    small, large = inputs(HOUSES), inputs(2 * HOUSES)
    two, one = best_of_both(
        lambda: schedule(*large), lambda: schedule(*small), repetitions=repetitions
    )
    return one, two / one


def shared_time() -> Result:
    """Two million houses over one million."""
    seconds, ratio = growth(shared, repetitions=sized(7, 1))
    return Result(seconds, "s", ratio, "<= 2.2")


def mixed_time() -> Result:
    """The same where there are as many groups as houses."""
    seconds, ratio = growth(mixed, repetitions=sized(2, 1))
    return Result(seconds, "s", ratio)


def shared_memory() -> Result:
    """Peak bytes a house beyond the inputs."""
    inputs = shared(HOUSES)
    schedule(*shared(WARM))  # what is imported on first use is nobody's memory
    tracemalloc.start()
    made = schedule(*inputs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    _check(made)
    return Result(peak / 2**20, "MiB", peak / HOUSES, "<= 64")


def plan_homes() -> Result:
    """The plan of examples/zone.toml with 100,000 homes over that of its 1,200.

    The homes are of two kinds, and a kind is planned once: only reading and counting them grows.
    The value is what `hushgrid plan --no-tables` computes for.
    """
    seconds = [min(_planning(n) for _ in range(sized(3, 1))) for n in (MANY, 1_200)]
    return Result(seconds[0], "s of processor time", seconds[0] / seconds[1], "<= 1.5")


def _planning(homes: int) -> float:
    text = (Path(__file__).parents[1] / "examples/zone.toml").read_text()
    text = text.replace("count = 900", f"count = {homes * 3 // 4}")
    text = text.replace("count = 300", f"count = {homes // 4}")
    with TemporaryDirectory() as folder:
        (Path(folder) / "zone.toml").write_text(text)
        begun = time.process_time()
        found = load_zone(Path(folder) / "zone.toml")
    terms = replace(found.policy, horizon=sized(672, 24), schedule=Even(), clamp=())
    plan(*found.scenario.terms, secret="interval", epsilon=1.0, terms=terms, blocks=True)
    return time.process_time() - begun


def _check(made: Sequence[Calibration]) -> None:
    """A day on which the same houses are open at every step would be too easy."""
    assert len({len(calibration.protected) for calibration in made}) > 10


QUESTIONS: dict[str, Question] = {
    "schedule_time": shared_time,
    "schedule_memory": shared_memory,
    "schedule_mixed_time": mixed_time,
    "plan_homes": plan_homes,
}
