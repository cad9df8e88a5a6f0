"""The world that hushgrid compare is asked for: simulated, or real readings with a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hushgrid.recorded import Real, Recorded
    from hushgrid.simulation import Scenario
    from hushgrid.worlds import Simulated

STEP, CONTRACT_W = 1800, 15_000  # of real readings, where nothing else is said: [s], [W]


def simulated(
    world: str, sigma: float, shock: float, zones: int, houses: int, chains: str | None, seed: int
) -> Simulated:
    """A world in which the public model is true, but for a shock."""
    from hushgrid.errors import PlanError
    from hushgrid.surveyfile import load_survey
    from hushgrid.worlds import large_world, paper_world, survey_world

    if world == "paper":
        return paper_world(sigma, seed, zones, shock, houses)
    if world == "large":
        return large_world(seed, zones, shock)
    if world == "survey":
        if chains is None:
            raise PlanError("world is survey but chains is unset; give a file of chains.")
        return survey_world(load_survey(chains), seed, zones, shock, houses)
    raise PlanError(f"world is {world!r}; give one of paper, large, survey.")


def recorded(
    path: Path,
    mapping: str,
    config: Path | None,
    zone: str | None,
    interval: int | None,
    bound: int | None,
    train_days: int,
    time_zone: str | None,
) -> tuple[Recorded, str]:
    """Real days and where their model is from: a file, or the first days themselves."""
    from hushgrid.cli.histories import read_histories
    from hushgrid.errors import PlanError
    from hushgrid.habits import learn_habits
    from hushgrid.recorded import Recorded, real_days

    given = _Given.read(config, zone) if config else _Given()
    if interval is not None and given.seconds not in (None, interval):
        raise PlanError(
            f"interval is {interval} s but the steps of config last {given.seconds} s;"
            " give that, or no interval."
        )
    seconds = interval or given.seconds or STEP
    where = time_zone or given.time_zone
    real = real_days(read_histories(path, mapping=mapping, time_zone=where, seconds=seconds))
    if given.scenario is not None:
        return Recorded.of(given.scenario, _of_zone(real, given)), given.told
    if len(real.readings) < train_days + 2:
        raise PlanError(
            f"train_days is {train_days} but there are {len(real.readings)} whole days;"
            " give fewer, so that two or more are left to compare on."
        )
    contract = bound if bound is not None else round(CONTRACT_W * seconds / 3600)
    scenario = learn_habits(real.readings[:train_days], contract)
    told = f"learned from the first {train_days} days, which are not compared"
    return Recorded.of(scenario, real.days(slice(train_days, None))), told


class _Given(NamedTuple):
    """What a zone or service file says that matters here; nothing without one."""

    scenario: Scenario | None = None
    seconds: int | None = None
    time_zone: str = "UTC"
    meters: tuple[str, ...] = ()
    told: str = ""

    @classmethod
    def read(cls, path: Path, name: str | None) -> _Given:
        """From a zone file, whose houses may name their meters, or a service file."""
        from hushgrid.cli.zones import load_either
        from hushgrid.live.roster_ids import meter_ids
        from hushgrid.tomlfile import TomlFile

        zone, service = load_either(path, name)
        meters: tuple[str, ...] = ()
        if service is not None and service.pattern is not None:
            meters, scenario = service.meters, service.pattern.scenario
        else:
            file, scenario = TomlFile(path), zone.scenario
            groups = file.content["houses"]
            if any({"meters", "meters_file"} & set(group) for group in groups):
                meters = meter_ids(groups, path.parent, file.faults)
            file.check()
        told = "given by a zone or service file"
        if zone.learned.homes:
            told += (
                f", learned from homes ({zone.learned.origin}); no day is held back, so give"
                " readings it was not learned from"
            )
        return cls(scenario, zone.seconds, zone.time_zone, meters, told)


def _of_zone(real: Real, given: _Given) -> Real:
    """The days of the zone's own meters, in the order of its houses."""
    from hushgrid.errors import PlanError

    assert given.scenario is not None
    houses = given.scenario.zone.n_houses
    if not given.meters:
        if houses != len(real.meters):
            raise PlanError(
                f"config has {houses} houses but the readings {len(real.meters)} meters;"
                " give a zone whose houses name their meters."
            )
        return real.of(sorted(real.meters))
    unknown = [name for name in given.meters if name not in set(real.meters)]
    if unknown:
        raise PlanError(
            f"config names {len(unknown)} meters without readings, such as {unknown[0]!r};"
            " give readings of every house."
        )
    return real.of(given.meters)
