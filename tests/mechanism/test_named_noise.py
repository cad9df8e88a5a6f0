"""A release names its noise: whatever a calibrator is called, everybody reads the right law."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Exact,
    Knowledge,
    Naive,
    OccupancyModel,
    Policy,
    PolicyError,
    Scenario,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    step,
    watch,
)
from hushgrid.adversary.attack import Recording
from hushgrid.errors import FileError
from hushgrid.files.models import load_trace, save_trace
from hushgrid.mechanism import policy as schedules
from hushgrid.mechanism.calibrators import Answer
from hushgrid.mechanism.exposure import Exposure
from hushgrid.mechanism.release import Release
from hushgrid.stores.ledger.entries import ReleaseRecord
from tests import bodies
from tests.stores.ledger.ledgers import genesis, instead, read, sealed, terms
from tests.stores.ledger.ledgers import lines_of as lines
from tests.stores.ledger.verifier import SCRIPTED

N, STEPS = 3, 6
THETA = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0] * N)
F = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(10)], class_of=[0] * N)
WORLD = Scenario(Zone("z", [10] * N), Tariff(1.0, 62.5), (THETA,), F)


class laplacian:  # noqa: N801
    """A calibrator of one's own; its noise is Laplace, as everybody's."""

    def scale(self, exposure: Exposure, policy: Policy) -> Answer:
        return Naive().scale(exposure, policy)


class Gaussian(laplacian):
    """The same under the other name."""


class plain(laplacian):  # noqa: N801
    """The same under a name that says nothing."""


def releases(calibrator: object = None, policy: Policy | None = None) -> list[Release]:
    policy = Policy(0.5, horizon=STEPS) if policy is None else policy
    world = (WORLD.zone, WORLD.tariff, WORLD.models, WORLD.consumption)
    state, noise, made = init(*world, policy, calibrator), SimulatedNoise(3), []  # type: ignore[arg-type]
    for t in range(STEPS):
        release, state = step(state, 3 * t, noise)
        made.append(release)
    return made


@pytest.mark.parametrize("kind", [laplacian, Gaussian])
def test_the_adversary_reads_laplace_noise_whoever_calibrated_it(kind: type) -> None:
    known = Knowledge(WORLD.zone, WORLD.models, WORLD.consumption)
    found, due = (watch(Exact(known), releases(one())) for one in (kind, plain))
    assert np.array_equal(found.home, due.home)


@pytest.mark.parametrize("kind", [laplacian, Gaussian])
def test_so_do_traces_and_ledgers(kind: type, tmp_path: Path) -> None:
    made = releases(kind())
    assert {one.noise for one in made} == {"laplace"}
    path = save_trace(tmp_path / "it.trace", Recording("z", made[0].digest, tuple(made), None))
    assert load_trace(path).releases == tuple(made)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    del rows[1]["release"]["noise"]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(FileError, match="is no release with exactly its fields"):
        load_trace(path)
    body = bodies.release(made[0], mode="simulation", start=0, applies_start=9, published_at=5)
    (record,) = sealed([("release", dict(body))], zone="z")
    assert ReleaseRecord.from_record(record).in_week(1) == made[0]


def test_each_law_has_its_name() -> None:
    blocks = Policy(1.0, horizon=STEPS, schedule=schedules.Blocks((STEPS,), (1.0,)))
    assert {one.noise for one in releases(policy=blocks)} == {"block"}
    sure = OccupancyModel.factored([[1.0, 0.0]], [[np.eye(2)]], chain_of=[0] * N)
    policy = Policy(0.5, on_empty="publish_exact")
    state = init(WORLD.zone, WORLD.tariff, [sure], WORLD.consumption, policy)
    assert step(state, 7, SimulatedNoise(1))[0].noise == "none"


def test_a_release_that_does_not_name_its_noise_is_refused() -> None:
    one = releases()[0]
    with pytest.raises(PolicyError, match="release noise is 'uniform'; give one of laplace"):
        replace(one, noise="uniform")  # type: ignore[arg-type]
    known = Knowledge(WORLD.zone, WORLD.models, WORLD.consumption)
    with pytest.raises(PolicyError, match="scale 20 and noise none; name its noise"):
        watch(Exact(known), [replace(one, scale=20.0, noise="none")])


@pytest.mark.parametrize(
    ("body", "script"),
    [
        (read(1) | {"noise": "none"}, "the noise is unknown"),
        (read(1) | {"noise": "uniform"}, "the noise is unknown"),
        (read(1) | {"noise": None}, "the noise is unknown"),
        (instead(1, "forecast") | {"noise": "none"}, "a forecast with noise"),
        (read(1) | {"shape": "laplace"}, "the body has other fields"),
    ],
)
def test_ledgers_refuse_noise_that_cannot_be(body: dict[str, object], script: str) -> None:
    from hushgrid.stores.ledger.chain import check
    from hushgrid.stores.ledger.writer import verify_signature as verify

    story = [
        ("genesis", genesis()),
        ("terms", terms()),
    ]
    good = sealed([*story, ("release", read(1) | {"noise": "laplace"})])
    assert check(good, verify).first_bad is None
    assert SCRIPTED.verify(lines(good).splitlines(keepends=True))[0]
    bad = sealed([*story, ("release", body)])
    assert check(bad, verify).first_bad == 3
    assert SCRIPTED.verify(lines(bad).splitlines(keepends=True)) == (
        False,
        f"bad: line 3: {script}",
    )
