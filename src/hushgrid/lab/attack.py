"""Days to be attacked: simulated or recorded, under a policy and under other protections.

Their releases are made for the attack and marked as simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints, UInt8s
from hushgrid.adversary.attack import Recording, Truth, without_noise
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import look_back
from hushgrid.adversary.knowledge import Knowledge, KnownReadings
from hushgrid.belief.filter import chances_at_home
from hushgrid.errors import PlanError, PolicyError
from hushgrid.lab.datasets import Real, Recorded, real_days
from hushgrid.lab.methods import Outcome, part_of
from hushgrid.lab.simulation import Mechanism, first_states, run_day
from hushgrid.learning.histories import Histories
from hushgrid.mechanism.calibrators import Calibrator, Naive
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Blocks, Even, Policy, Schedule, per_step
from hushgrid.mechanism.release import Release, init, releases
from hushgrid.model.laws import Clamp
from hushgrid.model.zone import Scenario, tally_offset
from hushgrid.statistics import mean_auc


def record(
    scenario: Scenario, policy: Policy, *, seed: int, day: int = 0, config: str = ""
) -> Recording:
    """The day that `simulation.days` plays under this seed, with the truth of every step.

    Args:
        scenario: The zone and its models.
        policy: How it publishes.
        seed: Seed of the simulation.
        day: Number of the day, from 0.
        config: Text of the zone file, kept in the recording.

    Returns:
        The recording.

    >>> from hushgrid import Consumption, OccupancyModel, Tariff, Uniform, Zone
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> world = Scenario(Zone("z", [1000]), Tariff(1.0, 62.5), [theta], f)
    >>> record(world, Policy(0.5, horizon=3), seed=1).truth.occupancy.shape
    (3, 1)
    """
    offset = day * policy.horizon
    today = scenario.starting(offset) if offset else scenario
    states = first_states(today, {"it": Mechanism(policy)})
    worlds: list[tuple[UInt8s, Int32s]] = []
    trace = run_day(
        today,
        states,
        policy.horizon,
        (seed, day),
        lambda world: worlds.append((world.occupancy.copy(), world.readings.copy())),
    )["it"]
    occupancy, readings = zip(*worlds, strict=True)
    truth = Truth(np.array(occupancy), np.array(readings))
    digest = states["it"].digest
    return Recording(today.zone.id, digest, trace.releases, truth, config, day, offset, seed)


def labelled_days(histories: Histories) -> tuple[Real, Real]:
    """Whole local days of readings, and of labels.

    Args:
        histories: Histories with labels.

    Returns:
        The readings [Wh], and the labels (1 at home, 0 not), both -1 where unknown.

    Raises:
        PolicyError: If there are no labels.
    """
    if histories.labels is None:
        raise PolicyError("labels are unset; give the occupancy of some days.")
    label_rows = np.where(histories.labels >= 0, histories.labels, np.nan)
    days = real_days(
        replace(histories, ids=histories.ids * 2, wh=np.concatenate([histories.wh, label_rows]))
    )
    n = len(histories.ids)
    readings, labels = days.readings[:, :, :n], days.readings[:, :, n:]
    home_days = days._replace(meters=histories.ids)
    return home_days._replace(readings=readings), home_days._replace(readings=labels)


def record_labelled(
    scenario: Scenario, policy: Policy, readings: Real, labels: Real, *, seed: int, count: int
) -> Iterator[tuple[Scenario, Recording, tuple[int, ...]]]:
    """Real days under a policy, those on which a house has all readings and all labels.

    The first steps of a day are published, as many as the policy's horizon has. Readings of other
    houses that are missing are filled by the model's expectation.

    Args:
        scenario: The zone and its models, with calendars that begin on a Monday.
        policy: How it publishes.
        readings: Days of the zone's houses, in their order.
        labels: Labels of the same days.
        seed: Seed of the noise.
        count: Largest number of days; the first ones are taken.

    Yields:
        The zone on that day, the day, and the houses with labels.
    """
    steps = min(policy.horizon, readings.readings.shape[1])
    minima = np.minimum(readings.readings, labels.readings)[:, :steps]
    complete = np.asarray((minima >= 0).all(axis=1))
    for day in np.flatnonzero(complete.any(axis=1))[:count].tolist():
        recorded_day = Recorded.of(scenario, readings.days(slice(day, day + 1)))
        (today,) = recorded_day.scenarios
        home = np.maximum(labels.readings[day, :steps], 0).astype(np.uint8)
        truth = Truth(home, recorded_day.day(0).readings[:steps])
        releases = _publish(today, policy, truth, None, np.random.SeedSequence([seed, day]))
        recording = Recording(
            today.zone.id, releases[0].digest, releases, truth, day=day, seed=seed
        )
        yield today, recording, tuple(np.flatnonzero(complete[day]).tolist())


@dataclass(frozen=True, slots=True)
class Version:
    """The same day published in another way.

    Attributes:
        releases: In order of their steps.
        clamp: Clamps by class [Wh]; empty for none.
    """

    releases: tuple[Release, ...]
    clamp: Clamp = ()


def versions(
    scenario: Scenario, policy: Policy, recording: Recording, *, seed: int
) -> Mapping[str, Version]:
    """The recorded day as it was published, and the same readings under other protections.

    `open`: no noise. `naive`, `paper`: the same epsilon at each step, by the paper's naive
    mechanism and by its rule (eta = 1, contract bounds), with noise of its own at each step; left
    out where the policy gives a step no epsilon. Only `hushgrid` is there where readings react to
    rates, as other rates would have changed the day.

    Args:
        scenario: The zone and its models.
        policy: The policy of the recording.
        recording: The day.
        seed: Seed of the other versions' noise.

    Returns:
        Versions by name.
    """
    result = {"hushgrid": Version(recording.releases, policy.clamp)}
    if recording.truth is None or scenario.consumption.reacts:
        return result
    result = {"open": Version(_open(scenario, recording))} | result
    schedule = per_step(policy.schedule.epsilons)
    plain = replace(policy, eta=1.0, clamp=(), publish="raw", schedule=schedule)
    rules = {"naive": Naive(), "paper": None}
    versions_by_rule = {
        name: Version(_publish(scenario, plain, recording.truth, rule, seed))
        for name, rule in rules.items()
    }
    return {"open": result["open"], **versions_by_rule, "hushgrid": result["hushgrid"]}


def _publish(
    scenario: Scenario, policy: Policy, truth: Truth, calibrator: Calibrator | None,
    seed: int | np.random.SeedSequence,
) -> tuple[Release, ...]:  # fmt: skip
    state = init(*scenario.terms, policy, calibrator)
    loads = (tally_offset(readings, scenario.zone, state.zone) for readings in truth.readings)
    return tuple(releases(state, loads, SimulatedNoise(seed)))


def _open(scenario: Scenario, recording: Recording) -> tuple[Release, ...]:
    """Releases without noise."""
    assert recording.truth is not None
    pairs = zip(recording.releases, recording.truth.readings, strict=True)
    return tuple(without_noise(release, readings, scenario) for release, readings in pairs)


SOME = 40  # houses attacked by an adversary that knows all other readings


class Watcher:
    """Adversary that knows the public model and all releases of the day, and smooths at its end.

    Each house separately (`Factored`). Noise of an offline transform is taken as normal and
    independent from step to step, so for those methods its AUC is below that of the best attack.

    Args:
        scenario: The zone and its models.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._setup(scenario, None)
        self._houses: Ints = np.arange(scenario.zone.n_houses)
        self._bystanders: Ints | None = None

    @classmethod
    def knowing_others(cls, scenario: Scenario, readings: Int32s) -> Watcher:
        """Adversary that also knows every other reading (T, houses): only the noise hides a house.

        The readings of the houses it does not attack are subtracted first.
        """
        n = scenario.zone.n_houses
        self, targets = cls.__new__(cls), np.unique(np.linspace(0, n - 1, min(SOME, n)).astype(int))
        self._houses = targets
        self._bystanders = np.delete(readings, targets, axis=1).sum(axis=1, dtype=np.int64)
        self._setup(part_of(scenario, targets), readings[:, targets])
        return self

    def _setup(self, scenario: Scenario, other_readings: Int32s | None) -> None:
        self._zone, self._models = scenario.zone.id, scenario.models
        evidence = None if other_readings is None else KnownReadings(other_readings)
        knowledge = Knowledge(
            scenario.zone, scenario.models, scenario.consumption, bystanders=evidence
        )
        self._adversary = Factored(knowledge)

    def auc(self, outcome: Outcome, home: UInt8s) -> float:
        """Mean over houses of the probability that a step at home ranks above one away."""
        if outcome.observations is None:
            chances = [chances_at_home(model, len(home)) for model in self._models]
            chance = np.mean(chances, axis=0)
        else:
            chance = np.asarray(look_back(self._adversary, self._releases(outcome)).averaged)
        return mean_auc(chance, home[:, self._houses])

    def _releases(self, outcome: Outcome) -> list[Release]:
        assert outcome.observations is not None
        loads = (
            outcome.observations
            if self._bystanders is None
            else outcome.observations - self._bystanders
        )
        schedule: Schedule = Even()
        if outcome.lengths:
            schedule = Blocks(outcome.lengths, (1.0,) * len(outcome.lengths))
        return [
            Release.free(
                zone=self._zone,
                t=t,
                applies_from=t + 1,
                load_hat=round(z),
                scale=scale,
                rule="compare",
                digest="compare",
                simulated=True,
                noise=outcome.noise if scale else "none",
                block=schedule.block(t) or None,
            )
            for t, (z, scale) in enumerate(
                zip(loads.tolist(), outcome.scale.tolist(), strict=True), 1
            )
        ]


_STANDBY = 0.05  # quantile of a recorded home's readings that is taken for its use while away
_HALF_HOUR = 1800  # [s]


def recorded_absences(wh: Floats, steps: int, reach: float, seconds: int) -> tuple[Floats, Floats]:
    """What recorded homes would show less in the stretch that has most readings, and in all.

    A home that is away is taken to use no more than its standby, a low quantile of its readings.

    Args:
        wh: (homes, steps): readings [Wh], NaN where missing.
        steps: Steps of an absence.
        reach: The most that a home adds to a load [Wh].
        seconds: Length of a step [s].

    Returns:
        (homes, steps) differences below the clamp [Wh], and the mean difference of each home [Wh a
        half hour], both by that mean. Homes without a reading in half of the steps are left out.
    """
    if wh.shape[1] < steps:
        raise PlanError(
            f"readings has {wh.shape[1]} steps but the absence lasts {steps}; give a shorter away."
        )
    present = np.isfinite(wh)
    sums = np.concatenate([[0], np.cumsum(present.sum(axis=0))])
    first = int((sums[steps:] - sums[:-steps]).argmax())
    part = wh[:, first : first + steps]
    mask = np.isfinite(part).mean(axis=1) > 0.5
    if not mask.any():
        raise PlanError(
            "readings has no home with half of an absence's steps; give a shorter away."
        )
    standby = np.nanquantile(wh[mask], _STANDBY, axis=1)[:, None]
    home = np.where(np.isfinite(part[mask]), part[mask], standby)
    away = np.minimum(home, standby)
    mean = (home - away).mean(axis=1) * _HALF_HOUR / seconds
    differences = np.clip(home, 0, reach) - np.clip(away, 0, reach)
    order = np.argsort(mean, kind="stable")
    return np.rint(differences[order]), mean[order]
