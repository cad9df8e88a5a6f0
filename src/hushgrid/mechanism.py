"""Algorithm 1 as init and step: one release a step, the state passed in and out.

A Release holds neither the load nor the optimal rate, so whoever is handed one cannot leak them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushgrid.calibration import Calibrator, Exposures, Scheduler, exposures_of
from hushgrid.consumption import Consumption
from hushgrid.errors import NoiseError, ReadingError
from hushgrid.grid import Tariff, Zone, public_rate
from hushgrid.noise import Noise, SecureNoise
from hushgrid.occupancy import OccupancyModel
from hushgrid.policy import Policy


@dataclass(frozen=True, slots=True)
class Release:
    """What the public sees of step t.

    `load_hat` [Wh] noisy load; `rate` [currency/kWh] for the step from `applies_from` on;
    `scale` [Wh] of the noise; `epsilon` the loss for protected houses under the policy's trust;
    `epsilon_any` the loss for any house (or block) whatever anyone consumes; `estimate` [Wh] the
    public's best guess of the load, where one is made; `digest` names zone, tariff, models and
    policy. Under the policy `publish_exact` a step without noise has the load itself as load_hat.
    """

    zone: str
    t: int
    applies_from: int
    load_hat: int
    estimate: float | None
    rate: float
    scale: float
    epsilon: float
    epsilon_any: float
    rule: str
    digest: str
    simulated: bool


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Where the mechanism stands: steps published so far and their rates. Nothing secret."""

    zone: Zone
    tariff: Tariff
    policy: Policy
    scheduler: Scheduler
    digest: str
    rule: str
    most: int  # sum of all bounds [Wh]: no load can be larger
    rates: tuple[float, ...] = ()

    @property
    def t(self) -> int:
        """The step the next release is for."""
        return len(self.rates) + 1


def init(
    zone: Zone,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    policy: Policy,
    calibrator: Calibrator | None = None,
    exposures: Exposures | None = None,
) -> State:
    """The state before step 1 (Algorithm 1, inputs). A calibrator of your own may stand in.

    `exposures` may be shared by mechanisms that differ in epsilon, eta or calibrator alone.
    """
    if exposures is None:
        exposures = exposures_of(models, zone, consumption, policy)
    rules = (policy.blocks, policy.models, policy.on_empty)
    exposures.check_made_for(models, zone, consumption, rules)
    scheduler = Scheduler(exposures, policy, calibrator)
    return State(
        zone,
        tariff,
        policy,
        scheduler,
        _digest(zone, tariff, models, consumption, policy, calibrator),
        policy.rule + ("" if calibrator is None else f" {type(calibrator).__name__}"),
        int(zone.bound.sum(dtype=np.int64)),
    )


def step(state: State, load: int, noise: Noise) -> tuple[Release, State]:
    """Publish step t for a load [Wh] (Algorithm 1, lines 2 to 14): (release, next state).

    A state is a value: stepping it twice draws twice. Publish one release a step and go on from
    the next state.

    >>> from hushgrid import Consumption, OccupancyModel, SimulatedNoise, Uniform
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> state = init(Zone("z", [1000]), Tariff(1.0, 62.5), [theta], f, Policy(0.5, eta=0.0))
    >>> release, state = step(state, 700, SimulatedNoise(1))
    >>> release.t, release.load_hat, round(release.rate, 3), state.t
    (1, 714, 63.214, 2)
    """
    if not isinstance(noise, Noise):
        raise NoiseError(f"noise is {noise!r}; give a source such as SecureNoise().")
    calibration = state.scheduler.at(state.t, state.rates)
    k = noise.draw(calibration.scale) if calibration.scale > 0 else 0  # before the load is touched
    load_hat = _checked_load(load, state.most) + k
    rate = public_rate(load_hat, state.tariff)
    release = Release(
        zone=state.zone.id,
        t=calibration.t,
        applies_from=calibration.t + 1,
        load_hat=load_hat,
        estimate=None,
        rate=rate,
        scale=calibration.scale,
        epsilon=calibration.epsilon,
        epsilon_any=calibration.epsilon_any,
        rule=state.rule,
        digest=state.digest,
        simulated=not isinstance(noise, SecureNoise),
    )
    return release, replace(state, rates=(*state.rates, rate))


def _checked_load(load: int, most: int) -> int:
    try:
        whole = int(load)
    except (TypeError, ValueError, OverflowError):
        raise ReadingError("the load is not a number; add the readings with aggregate.") from None
    if whole != load or whole < 0:
        raise ReadingError(
            "the load is not a whole number of Wh, 0 or more; add the readings with aggregate."
        )
    if whole > most:
        raise ReadingError(
            f"the load is above {most} Wh, the sum of all bounds; clamp readings with aggregate."
        )
    return whole


def _digest(
    zone: Zone,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    policy: Policy,
    calibrator: Calibrator | None,
) -> str:
    """SHA-256 over everything public that the noise depends on; a calibrator by its name."""
    by = "" if calibrator is None else f" {type(calibrator).__qualname__}"
    h = hashlib.sha256(f"hushgrid/1 {zone.id!r} {tariff} {policy}{by}".encode())
    h.update(zone.bound.astype("<i4").tobytes())
    for model in models:
        h.update(model.digest.encode())
    h.update(consumption.digest.encode())
    return h.hexdigest()
