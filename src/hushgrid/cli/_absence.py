"""hushgrid attack --secret absence: whether days away show in prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid._numbers import Floats
    from hushgrid.adversary.absence import NoiseBlocks
    from hushgrid.mechanism.policy import Policy
    from hushgrid.model.zone import Scenario

HALF_HOUR = 1800  # [s]
_WEEK = 604_800  # [s]
LESS = (160.0, 400.0, 1000.0)  # [Wh] a half hour
_DAY = 86_400  # [s]
_STANDBY = 0.05  # quantile of a recorded home's readings that is taken for its use while away


class AbsenceRequest(NamedTuple):
    """What is asked for.

    Attributes:
        config: Zone or service file; None: a zone learned from the readings.
        zone: Zone of a service file that has several.
        readings: Recorded homes; None: simulated ones.
        mapping: What the columns of readings are.
        away: Length of the absence (ISO 8601).
        less: What simulated homes use less while away [Wh a half hour].
        promise: Another promise than the file's; None: the file's own.
        window: Of the promise window, its length; None: that of the absence.
        epsilon: Of the promise; None: the file's own, or 1.
        draws: Presences and absences of each home.
        out: Folder for the figure.
        seed: Random seed.
        json: Where figures are written.
    """

    config: Path | None
    zone: str | None
    readings: Path | None
    mapping: str
    away: str
    less: list[float]
    promise: str | None
    window: str | None
    epsilon: float | None
    draws: int
    out: Path | None
    seed: int
    json: str | None


class _AttackedZone(NamedTuple):
    """A zone, its promise and the recorded homes."""

    scenario: Scenario
    policy: Policy
    noise: NoiseBlocks | None  # as the file has it; None: it is planned
    reach: float  # the most that a home adds to a load [Wh]
    secret: str
    epsilon: float
    window: int | None  # [s]
    seconds: int
    wh: Floats | None  # (homes, steps)


def attack_absence(request: AbsenceRequest) -> None:
    """Attack absences and print how many are found.

    Args:
        request: What is asked for.

    Raises:
        FileError: If options contradict each other.
    """
    import math

    import numpy as np

    from hushgrid.adversary import absence
    from hushgrid.errors import FileError
    from hushgrid.files.results import save_figures
    from hushgrid.files.toml import duration_text
    from hushgrid.report import absence as report

    if request.out is not None:
        if request.readings is not None:
            raise FileError(
                "out is set with readings; recorded homes have no figure: leave it out."
            )
        common.require("matplotlib", "plot")
    duration = _seconds("away", request.away)
    zone = _zone(request, duration)
    steps = -(-duration // zone.seconds)
    with common.progress("planning", None):
        noise, reach = _noise(zone) if zone.noise is None else (zone.noise, zone.reach)
    if zone.wh is None:
        reductions = np.array(request.less or LESS)
        differences = _constant(reductions, steps, reach, zone.seconds)
    else:
        differences, reductions = _recorded(zone.wh, steps, reach, zone.seconds)
    with common.progress("attacking", absence.STARTS) as tick:
        absences = absence.absences(
            noise, differences, draws=request.draws, seed=request.seed, tick=tick
        )
    values = report.absence_json(
        absences,
        reductions,
        away=request.away,
        steps=steps,
        secret=zone.secret,
        epsilon=zone.epsilon,
        window_s=zone.window,
        recorded=zone.wh is not None,
    )
    common.echo(report.absence_prose(values), request.json)
    paths = common.write_json(values, request.json, private=zone.wh is not None)
    if request.out is not None:
        results = {}
        noises = {"no protection": (absence.NoiseBlocks((1,), (0.0,)), math.inf)}
        lengths = {zone.seconds: "interval", min(_DAY, duration): "window", duration: "window"}
        with common.progress("planning for the figure", len(lengths)) as tick:
            for length, secret in lengths.items():
                words = "24 hours" if length == _DAY else duration_text(length)
                noises[f"any {words}"] = _noise(zone._replace(secret=secret, window=length))
                tick()
        for name, (blocks, reach) in noises.items():
            family = _constant(reductions[-1:], steps, reach, zone.seconds)
            draws, seed = request.draws, request.seed
            (results[name],) = absence.absences(blocks, family, draws=draws, seed=seed)
        common.echo(f"\n{report.published_table(results)}", request.json)
        figure = report.absence_figure(results, float(reductions[-1]), duration_text(duration))
        paths += save_figures(request.out, {"absence": figure})
    common.echo_written(paths, request.json, "\n")


def _seconds(name: str, text: str) -> int:
    from hushgrid.errors import PlanError
    from hushgrid.files.toml import seconds_of

    seconds = seconds_of(text)
    if not seconds:
        raise PlanError(f"{name} is {text!r}; give a duration such as P14D.")
    return seconds


def _zone(request: AbsenceRequest, away: int) -> _AttackedZone:
    """The zone of the file, or one learned from the readings, under the promise asked for."""
    from hushgrid.errors import FileError
    from hushgrid.mechanism.policy import Policy

    if request.config is None:
        if request.readings is None:
            raise FileError("config and readings are both unset; give one of them, or both.")
        scenario, seconds, wh = _learned(request.readings, request.mapping)
        policy = Policy(1.0, horizon=86_400 // seconds)
        zone = _AttackedZone(scenario, policy, None, 0.0, "interval", 1.0, None, seconds, wh)
    else:
        zone = _zone_of_file(request, request.config)
    if request.promise is None and request.epsilon is None and request.window is None:
        return zone
    secret = request.promise or zone.secret
    length = request.window and _seconds("window", request.window)
    return zone._replace(
        noise=None,
        secret=secret,
        epsilon=zone.epsilon if request.epsilon is None else request.epsilon,
        window=(length or away) if secret == "window" else None,
    )


def _zone_of_file(request: AbsenceRequest, config: Path) -> _AttackedZone:
    file, service = common.load_either(config, request.zone)
    wh: Floats | None = None
    if request.readings is not None:
        wh = _histories(request.readings, request.mapping, file.time_zone, file.seconds)[0]
    if service is None:
        secret, epsilon, window = common.promise_of_file(config, file)
    else:
        from hushgrid.curator.promise import promise_of

        promise = promise_of(service)
        secret, epsilon, window = promise.secret, promise.epsilon, promise.window
    noise, reach = _noise_of(file.scenario, file.policy)
    return _AttackedZone(
        file.scenario, file.policy, noise, reach, secret, epsilon, window, file.seconds, wh
    )


def _histories(path: Path, mapping: str, time_zone: str, seconds: int | None) -> tuple[Floats, Any]:
    """(homes, steps) readings [Wh], missing ones as NaN, and the histories."""
    from hushgrid.files.readings import read_histories

    with common.stages() as watch:
        histories = read_histories(
            path, mapping=mapping, time_zone=time_zone, seconds=seconds, watch=watch
        )
    return histories.wh, histories


def _learned(path: Path, mapping: str) -> tuple[Scenario, int, Floats]:
    """A zone with the habits of recorded homes, its step, and their readings."""
    from hushgrid.cli.compare import CONTRACT_W, TRAIN_DAYS
    from hushgrid.errors import PlanError
    from hushgrid.lab.datasets import learn_habits, real_days

    wh, histories = _histories(path, mapping, "UTC", None)
    real = real_days(histories)
    if not len(real.readings):
        raise PlanError("readings has no whole day; give a config that says what is published.")
    with common.progress("learning from the first days", None):
        contract = round(CONTRACT_W * histories.seconds / 3600)
        return learn_habits(real.readings[:TRAIN_DAYS], contract), histories.seconds, wh


def _noise(zone: _AttackedZone) -> tuple[NoiseBlocks, float]:
    """The least noise that keeps a zone's promise, and what a home adds to a load at most [Wh]."""
    from dataclasses import replace
    from typing import cast

    from hushgrid.adversary.absence import NoiseBlocks
    from hushgrid.mechanism.policy import Even
    from hushgrid.planning.planner import plan
    from hushgrid.planning.task import Secret

    terms = replace(zone.policy, epsilon=zone.epsilon, schedule=Even(), clamp=())
    if zone.secret == "window":  # blocks of a service's week, which may be longer than a day
        terms = replace(terms, horizon=_WEEK // zone.seconds)
    result = plan(
        *zone.scenario.terms,
        secret=cast("Secret", zone.secret),
        epsilon=zone.epsilon,
        terms=terms,
        running=zone.secret == "interval",
        blocks=True,
        window=-(-(zone.window or 0) // zone.seconds) + 1,
        seconds=zone.seconds,
    )
    return NoiseBlocks.of_steps(result.policy.schedule.lengths, result.scale), float(result.reach)


def _noise_of(scenario: Scenario, policy: Policy) -> tuple[NoiseBlocks, float]:
    """The noise that a policy publishes with, and what a home adds to a load at most [Wh]."""
    from hushgrid.adversary.absence import NoiseBlocks
    from hushgrid.errors import PlanError
    from hushgrid.mechanism.scheduler import Scheduler, exposures_of

    zone, _, models, consumption = scenario.terms
    scheduler = Scheduler(exposures_of(models, zone, consumption, policy), policy)
    scales = scheduler.scales()
    if not scales:
        raise PlanError(
            "policy has noise that follows prices; give eta = 1 for the absence attack."
        )
    return NoiseBlocks.of_steps(policy.schedule.lengths, scales), float(scheduler.zone.bound.max())


def _constant(reductions: Floats, steps: int, reach: float, seconds: int) -> Floats:
    """(homes, steps): as much less in each step, below the clamp [Wh]."""
    import numpy as np

    path = np.repeat(reductions[:, None], steps, axis=1) * seconds / HALF_HOUR
    return np.rint(np.minimum(path, reach))


def _recorded(wh: Floats, steps: int, reach: float, seconds: int) -> tuple[Floats, Floats]:
    """What recorded homes would show less in the stretch that has most readings, and in all.

    A home that is away is taken to use no more than its standby, a low quantile of its readings.

    Returns:
        (homes, steps) differences below the clamp [Wh], and the mean difference of each home [Wh a
        half hour], both by that mean. Homes without a reading in half of the steps are left out.
    """
    import numpy as np

    from hushgrid.errors import PlanError

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
    mean = (home - away).mean(axis=1) * HALF_HOUR / seconds
    differences = np.clip(home, 0, reach) - np.clip(away, 0, reach)
    order = np.argsort(mean, kind="stable")
    return np.rint(differences[order]), mean[order]
