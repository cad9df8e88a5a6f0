"""Zone files in TOML (docs/zone-file.md has an annotated one).

Reads zone, tariff, policy, laws of readings, occupancy models and the [learned] table: where models
come from and what they may shape. A model fitted to the homes' own readings without noise reveals
something about them in every number it shapes: a scale, an estimate, a forecast, an imputed
reading. Times HH:MM become steps of a day, periods with probabilities become transition matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hushgrid._numbers import is_real
from hushgrid.errors import FileError, PolicyError
from hushgrid.files.results import load_model, read_text
from hushgrid.files.toml import (
    Faults,
    Table,
    TomlFile,
    build,
    check_keys,
    display,
    probability,
    seconds_of,
    tables,
    text,
    whole,
)
from hushgrid.mechanism.policy import (
    Even,
    Gaussian,
    Negligible,
    PerStep,
    Policy,
    Schedule,
    Window,
    per_step,
)
from hushgrid.model.consumption import Consumption, Elasticity
from hushgrid.model.laws import FAMILIES, Law, Mixture
from hushgrid.model.occupancy import Calendar, OccupancyModel, check_models
from hushgrid.model.scenario import Scenario
from hushgrid.model.zone import MAX_BOUND, Tariff, Zone

SECONDS = 900  # default length of a step
ANY = 60  # steps that begin at every HH:MM: where a file's own are not known
INTERVALS = "whole seconds that divide a day, such as 'PT15M' or 1800"
_DAY = 86_400


def step_seconds(value: Any) -> int | None:
    """Length of a step, as zone and service files give it.

    Args:
        value: Seconds, or an ISO 8601 duration.

    Returns:
        Seconds; None where they do not divide a day.

    >>> step_seconds("PT1H"), step_seconds(1800), step_seconds("PT7M")
    (3600, 1800, None)
    """
    seconds = seconds_of(value)
    return seconds if seconds and _DAY % seconds == 0 else None


class DaySteps:
    """A day in steps of equal length.

    Args:
        seconds: Length of a step [s]; divides a day.
        faults: Receives the mistakes in times.

    Raises:
        FileError: If `seconds` does not divide a day.
    """

    def __init__(self, seconds: int, faults: Faults) -> None:
        if not 1 <= seconds <= _DAY or _DAY % seconds:
            raise FileError(
                f"the interval is {seconds} s; give one that divides a day, such as {SECONDS}."
            )
        self.seconds, self.steps, self.faults = seconds, _DAY // seconds, faults

    def step_of(self, value: Any, place: str) -> int:
        """Step of the day that starts at HH:MM; 0 where there is none."""
        try:
            hour, minute = (int(part) for part in str(value).split(":"))
        except ValueError:
            hour = minute = -1
        at = hour * 3600 + minute * 60
        if 0 <= hour < 24 and 0 <= minute < 60 and at % self.seconds == 0:
            return at // self.seconds
        if self.seconds == SECONDS:
            fix = "give a quarter hour such as '07:15'"
        else:
            fix = f"give a time such as '07:00' at which a step of {self.seconds} s begins"
        self.faults.add(f"{place}from", f"{place}from is {display(value)}; {fix}.")
        return 0

    def from_midnight(self, starts: list[tuple[int, int]], place: str) -> list[tuple[int, int]]:
        """Periods in order; the last one of the day also holds before the first."""
        ordered, keys = sorted(starts), [f"{place}[{i}].from" for i in range(len(starts))]
        for i, (start, _) in enumerate(starts):
            for j in range(i):
                if starts[j][0] == start:
                    message = f"{place} has two entries from the same time; give each its own."
                    self.faults.add(keys[i], message, keys[j])
        return ordered if ordered[0][0] == 0 else [(0, ordered[-1][1]), *ordered]


def chains_of(chains: Table, place: str, day: DaySteps) -> tuple[list[list[float]], list[Any]]:
    """Initial law and transitions of every chain.

    Args:
        chains: Table of a chain by name.
        place: Prefix of their keys in messages.
        day: Steps of the day; receives the mistakes.

    Returns:
        For each chain its initial law (2,) and its transitions (slots, 2, 2): slots of a day, or of
        a weekday followed by those of a weekend day.
    """
    weekly = any("weekend" in chain for chain in chains.values() if isinstance(chain, Mapping))
    initial, transition = [], []
    for name, chain in chains.items():
        where = f"{place}{name}."
        check_keys(chain, where, {"home_at_start", "periods", "weekend"}, {"weekend"}, day.faults)
        if not isinstance(chain, Mapping):
            continue
        at_home = probability(chain, where, "home_at_start", day.faults)
        initial.append([1 - at_home, at_home])
        weekday = (
            _matrices(chain["periods"], f"{where}periods", day) if "periods" in chain else None
        )
        weekend = weekday
        if "weekend" in chain:
            weekend = _matrices(chain["weekend"], f"{where}weekend", day)
        if weekday is not None and weekend is not None:
            transition.append(np.concatenate([weekday, weekend]) if weekly else weekday)
    return initial, transition


def _matrices(periods: Any, place: str, day: DaySteps) -> Any:
    """(steps, 2, 2) transition matrices of a day given as periods with chances a step."""
    faults, before = day.faults, len(day.faults)
    if not isinstance(periods, list) or not periods:
        faults.add(place, f"{place} is {display(periods)}; give a list of periods.")
        return None
    starts, chances = [], []
    for i, period in enumerate(periods):
        where = f"{place}[{i}]."
        check_keys(period, where, {"from", "leave", "come"}, set(), faults)
        if isinstance(period, Mapping):
            starts.append((day.step_of(period.get("from", "00:00"), where), i))
            chances.append([probability(period, where, key, faults) for key in ("leave", "come")])
    if len(faults) > before:
        return None
    a = np.empty((day.steps, 2, 2))
    ordered = day.from_midnight(starts, place)
    stops = [*(start for start, _ in ordered[1:]), day.steps]
    for (start, i), stop in zip(ordered, stops, strict=True):
        leave, come = chances[i]
        a[start:stop] = [[1 - come, come], [leave, 1 - leave]]
    return a


# ---- origin of the models

Origin = Literal["public", "pooled", "private"]
LEAST_POOLED = 15  # homes
_KEYS = {"provenance", "homes", "epsilon", "by", "law", "prior", "days", "bound_by", "digest"}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of the models.

    Attributes:
        origin: "public" (a survey), "pooled" (noisy sums over many homes) or "private".
        epsilon: What every home has spent on the models.
        homes: Number of homes they were fitted to.
        digest: Digest of the model; a random name where it is private.
    """

    origin: Origin = "public"
    epsilon: float = 0.0  # that every home has spent on the models
    homes: int = 0
    digest: str = ""  # of the model that was made; a random name where it is private

    @property
    def private(self) -> bool:
        """True if the model may shape nothing that is published."""
        return self.origin == "private"


def read_provenance(content: Table, faults: Faults) -> Provenance:
    """Read the [learned] table; without one the models are public.

    Args:
        content: The zone file.
        faults: Receives the mistakes.

    Returns:
        The origin; private where the table has mistakes.
    """
    if "learned" not in content:
        return Provenance()
    table: Any = content["learned"]
    check_keys(table, "learned.", _KEYS, _KEYS - {"provenance"}, faults)
    if not isinstance(table, Mapping):
        return Provenance("private")
    origin, epsilon, homes = (
        table.get("provenance"),
        table.get("epsilon", 0.0),
        table.get("homes", 0),
    )
    before = len(faults)
    if origin not in get_args(Origin):
        faults.add(
            "learned.provenance",
            f"learned.provenance is {display(origin)}; give one of {', '.join(get_args(Origin))}.",
        )
    if not (is_real(epsilon) and epsilon >= 0):
        faults.add("learned.epsilon", f"learned.epsilon is {display(epsilon)}; give 0 or more.")
    if not isinstance(homes, int) or isinstance(homes, bool) or homes < 0:
        faults.add("learned.homes", f"learned.homes is {display(homes)}; give a whole number.")
    if len(faults) > before:
        return Provenance("private")
    if origin == "pooled" and (homes < LEAST_POOLED or not epsilon > 0):
        faults.add(
            "learned.provenance",
            f"learned.provenance is 'pooled' with {homes} homes and epsilon {epsilon:g}; a pooled"
            f" model has at least {LEAST_POOLED} homes and noise worth an epsilon above 0.",
            "learned.homes",
            "learned.epsilon",
        )
    named: Origin = next(word for word in get_args(Origin) if word == origin)
    return Provenance(named, float(epsilon), homes, str(table.get("digest", "")))


def check_private(found: Provenance, policy: Policy, secret: str, rho: Any, faults: Faults) -> None:
    """Check that private models shape nothing that is published.

    Args:
        found: Origin of the models.
        policy: The policy.
        secret: What is promised: "step", "interval", "trajectory" or "window".
        rho: Relative error by which a clamp is chosen; None: no clamp is chosen.
        faults: Receives one mistake for each setting through which the models would leak.
    """
    if not found.private:
        return
    why = "the models are private (learned.provenance) and would leak through"
    left_out = policy.schedule.negligible
    rules = (
        ("eta", policy.eta != 1, f"{policy.eta:g}", "the scale of the noise; give eta = 1"),
        ("publish", policy.publish != "raw", repr(policy.publish), "the estimate; give 'raw'"),
        ("clamp", bool(policy.clamp), "set", "what is put back; leave it out"),
        ("rho", rho is not None, f"{rho}", "the choice of a clamp; leave it out"),
        ("negligible", left_out != 0, f"{left_out:g}", "who is left out; give 0"),
        ("secret", secret == "interval", repr(secret), "the budget of each step; give 'step'"),
        (
            "on_empty",
            policy.on_empty != "protect_all",
            repr(policy.on_empty),
            "steps without noise; give 'protect_all'",
        ),
    )
    for key, wrong, value, leak in rules:
        if wrong:
            faults.add(f"policy.{key}", f"policy.{key} is {value} but {why} {leak}.")


GROUP = {"count", "bound", "chain", "absent", "present", "provenance"}
SECTIONS = {"zone", "tariff", "policy", "houses", "models", "elasticity"}
OPTIONAL_TABLES = {"learned", "service"}  # origin of the models, times
SERVICE = {  # keys of [service]; a zone file uses interval and time_zone, a service all of them
    *("mode", "begins", "time_zone", "interval", "meter_interval", "grace", "retention"),
    *("currency", "fallback_rate", "budget", "accept_error", "key", "zones", "share"),
}
GROUP_KEYS = frozenset({"meters", "meters_file"})  # of [[houses]], read by a service file only
POLICY_KEYS = {"secret", "rho", "eta_set_by"}  # of [policy], read by a service file only
_TIMED = {"law", "from", "share"}  # of every law, in addition to its family's own
_FAMILIES: dict[str, Any] = dict(FAMILIES)
_LAW_KEYS = {f.name for law in _FAMILIES.values() for f in fields(law)} | _TIMED | {"parts"}


@dataclass(frozen=True, slots=True, eq=False)
class ZoneFile:
    """Content of a zone file.

    Attributes:
        scenario: Zone, tariff, models and laws.
        policy: The policy.
        provenance: Where models and laws come from, as the file states it.
        seconds: Length of a step [s].
        learned: Origin of the models.
        time_zone: IANA name of the zone of its times of day.
        meters: Meter ids in house order; empty where the file does not list them.
    """

    scenario: Scenario
    policy: Policy
    provenance: Mapping[str, str] = field(default_factory=dict)
    seconds: int = SECONDS
    learned: Provenance = field(default_factory=Provenance)
    time_zone: str = "UTC"
    meters: tuple[str, ...] = ()


def load_zone(path: Path | str, *, seconds: int | None = None) -> ZoneFile:
    """Read a zone file.

    Args:
        path: The file (TOML).
        seconds: Length of a step [s]; else the file's own service.interval, else 15 minutes.

    Returns:
        The zone. What a service alone reads (meters, the secret, who set eta) is left to it.

    Raises:
        ConfigError: Every mistake in the file, each with its line.
    """
    path = Path(path)
    return zone_of(read_text(path), path, seconds=seconds)


def zone_of(written: str, path: Path, *, seconds: int | None = None) -> ZoneFile:
    """Read a zone from the text of a zone file.

    Args:
        written: The text (TOML).
        path: Name of the file; its model files are relative to its folder.
        seconds: Length of a step [s]; else the file's own service.interval, else 15 minutes.

    Returns:
        The zone.

    Raises:
        ConfigError: Every mistake in the file, each with its line.
    """
    file = TomlFile(path, written)
    file.check()
    content, faults = file.content, file.faults
    check_keys(content, "", SECTIONS | OPTIONAL_TABLES, {"elasticity", *OPTIONAL_TABLES}, faults)
    length = _interval(content, faults) if seconds is None else seconds
    scenario = read_scenario(content, file.folder, length, faults, GROUP_KEYS)
    policy = read_policy(content["policy"], faults, POLICY_KEYS) if "policy" in content else None
    learned = read_provenance(content, faults)
    file.check()
    assert scenario is not None
    assert policy is not None
    terms = (scenario, policy, provenance_of(content), length, learned)
    return ZoneFile(*terms, _time_zone(content), _meters(content, scenario.zone.n_houses))


def _time_zone(content: Table) -> str:
    """Zone of the times of day, UTC by default; a service checks the name."""
    table = content.get("service")
    given = table.get("time_zone", "UTC") if isinstance(table, Mapping) else "UTC"
    return given if isinstance(given, str) else "UTC"


def _meters(content: Table, houses: int) -> tuple[str, ...]:
    """The meters of all houses if the file lists them; a service reads the other forms too."""
    lists = [group.get("meters") for group in content["houses"]]
    if not all(isinstance(each, list) for each in lists):
        return ()
    names = tuple(str(name) for each in lists for name in each)
    return names if len(set(names)) == houses == len(names) else ()


def _interval(content: Table, faults: Faults) -> int:
    """The length of a step [s], from service.interval."""
    table = content.get("service", {})
    check_keys(table, "service.", SERVICE, SERVICE, faults)
    if not isinstance(table, Mapping):
        return ANY
    seconds = step_seconds(table.get("interval", SECONDS))
    if seconds is None:
        faults.add(
            "service.interval",
            f"service.interval is {display(table['interval'])}; give {INTERVALS}.",
        )
    return seconds or ANY


def read_scenario(
    content: Table,
    folder: Path,
    seconds: int,
    faults: Faults,
    group_keys: frozenset[str] = frozenset(),
) -> Scenario | None:
    """Read zone, tariff, models and laws.

    Args:
        content: The zone file.
        folder: Folder of its model files.
        seconds: Length of a step [s].
        faults: Receives every mistake.
        group_keys: Keys of [[houses]] that the caller reads itself.

    Returns:
        The scenario; None where there is a mistake.
    """
    before = len(faults)
    name = "?"
    if "zone" in content and check_keys(content["zone"], "zone.", {"id"}, set(), faults):
        name = text(content["zone"], "zone.", "id", faults) or name
        if content["zone"]["id"] == "":
            faults.add("zone.id", "zone.id is ''; give a non-empty name.")
    tariff = build(Tariff, content["tariff"], "tariff.", faults) if "tariff" in content else None
    elasticity = None
    if "elasticity" in content:
        elasticity = build(Elasticity, content["elasticity"], "elasticity.", faults)
    groups = tables(content, "houses", faults) if "houses" in content else ()
    for i, group in enumerate(groups):
        keys = GROUP | group_keys
        check_keys(group, f"houses[{i}].", keys, {"chain", "provenance", *group_keys}, faults)
        if "provenance" in group:
            text(group, f"houses[{i}].", "provenance", faults)
        whole(group, f"houses[{i}].", "count", faults)
        whole(group, f"houses[{i}].", "bound", faults)
    day = DaySteps(seconds, faults)
    sound = len(faults) == before and bool(groups)
    counts = [group["count"] for group in groups] if sound else [1] * len(groups)
    laws_before = len(faults)
    consumption = None
    with faults.within("houses"):
        consumption = _consumption(groups, counts, elasticity, day)
    sound = sound and len(faults) == laws_before
    models: list[OccupancyModel | None] = []
    given = tables(content, "models", faults) if "models" in content else ()
    for i, table in enumerate(given):
        models.append(None)
        with faults.within(f"models[{i}]"):
            models[i] = _model(table, f"models[{i}].", groups, counts, folder, day)
    if not sound or consumption is None:
        return None
    with faults.within("houses"):
        zone = Zone(name, np.repeat([group["bound"] for group in groups], counts))
        consumption.check_fits(zone.bound)
        for i, model in enumerate(models):
            with faults.within(f"models[{i}].file"):
                if model is not None:
                    check_models([model], zone.n_houses)
        if len(faults) == before and tariff is not None:
            fitting = tuple(model for model in models if model is not None)
            return Scenario(zone, tariff, fitting, consumption)
    return None


def provenance_of(content: Table) -> dict[str, str]:
    """Where each model and each group's laws come from.

    Args:
        content: The zone file.

    Returns:
        The file's statement by model or group; "not stated" where it has none.
    """
    found = {}
    for key, name in (("models", "model"), ("houses", "laws of houses")):
        for i, table in enumerate(content.get(key, ())):
            called = str(table.get("name", table.get("file", i))) if key == "models" else str(i)
            found[f"{name} {called}"] = str(table.get("provenance", "not stated"))
    return found


def read_policy(table: Any, faults: Faults, also: set[str] | None = None) -> Policy | None:
    """Read the [policy] table; its window is a table in it.

    Args:
        table: The table, or what was given in its place.
        faults: Receives every mistake.
        also: Keys that the caller reads itself.

    Returns:
        The policy; None where there is a mistake.
    """
    before = len(faults)
    if isinstance(table, Mapping) and table.get("secret") == "trajectory":
        delta: Any = table.get("delta")  # the promise's, where it is not the noise's
        if "gaussian" not in table and is_real(delta) and 0 <= delta < 1:
            table = {key: value for key, value in table.items() if key != "delta"}
    if isinstance(table, Mapping) and "window" in table:
        window = build(Window, table["window"], "policy.window.", faults)
        table = {key: value for key, value in table.items() if key != "window"}
        if window is not None:
            table["window"] = window
    found: PolicyTable | None = build(PolicyTable, table, "policy.", faults, also)
    return found.policy if found is not None and len(faults) == before else None


@dataclass(frozen=True, slots=True)
class PolicyTable(Policy):
    """A policy as written in a file: the keys of all schedules, of which it may use one.

    Attributes:
        schedule: The schedule that the keys name.
        epsilon_t: Epsilon of each step.
        gaussian: Scale of Gaussian noise as a multiple of the bound; None: Laplace noise.
        delta: Delta of Gaussian noise.
        window: A window of steps that shares one budget.
        negligible: Leave a house out once one of its occupancies has at most this probability.

    Raises:
        PolicyError: If keys of several schedules are set, or a value is not allowed.
    """

    schedule: Schedule = field(default_factory=Even, init=False)
    epsilon_t: tuple[float, ...] = ()
    gaussian: float | None = None
    delta: float = 0.0
    window: Window | None = None
    negligible: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", PerStep(self.epsilon_t))
        Policy.__post_init__(self)
        object.__setattr__(self, "schedule", self._chosen())
        self.schedule.check(self)

    @property
    def policy(self) -> Policy:
        """The policy itself."""
        return Policy(**{one.name: getattr(self, one.name) for one in fields(Policy)})

    def _chosen(self) -> Schedule:
        """The schedule that the keys name."""
        chosen: Schedule | None = None
        if self.gaussian is not None:
            chosen = Gaussian(self.gaussian, self.delta)
            chosen.check(self, len(self.epsilon_t))
        elif self.delta != 0:
            raise PolicyError(
                f"policy delta is {self.delta}; it goes with gaussian noise only.",
                fields=("delta", "gaussian"),
            )
        if self.window is not None:
            if self.gaussian is not None or self.epsilon_t:
                raise PolicyError(
                    f"policy window is {self.window.steps} steps with another schedule of the"
                    " budget; give one of window, epsilon_t and gaussian.",
                    fields=("window", "epsilon_t", "gaussian"),
                )
            chosen = self.window
        leaving = Negligible(self.negligible, self.epsilon_t)
        if self.negligible and chosen is not None:
            raise PolicyError(
                f"policy negligible is {self.negligible:g} with a window or Gaussian noise;"
                " give one of them.",
                fields=("negligible", "window", "gaussian"),
            )
        # a whole 0 as it is written: the first version's digest is of its text
        own = bool(self.negligible) or isinstance(self.negligible, int)
        return chosen or (leaving if own else per_step(self.epsilon_t))


def _consumption(
    groups: Sequence[Table], counts: Sequence[int], elasticity: Elasticity | None, day: DaySteps
) -> Consumption | None:
    """A density class for each group of houses; laws may change at given times of day."""
    before = len(day.faults)
    unbound = {i for i in range(len(groups)) if day.faults.at(f"houses[{i}].bound")}
    laws: list[Law | None] = []
    timed: dict[str, list[list[tuple[int, int]]]] = {"absent": [], "present": []}
    for i, group in enumerate(groups):
        bound = group["bound"] if i not in unbound else MAX_BOUND  # which no law is above
        for state, column in timed.items():
            if state in group:
                given, place = group[state], f"houses[{i}].{state}"
                column.append(_timed_laws(given, place, bound, laws, day))
    if len(day.faults) > before or unbound or not groups or any(law is None for law in laws):
        return None
    if len(timed["absent"]) != len(groups) or len(timed["present"]) != len(groups):
        return None  # noted before
    cuts = sorted({start for column in timed.values() for house in column for start, _ in house})
    calendar = Calendar(np.searchsorted(cuts, np.arange(day.steps), side="right") - 1)

    def at(column: Sequence[Sequence[tuple[int, int]]]) -> Any:
        def holding(house: Sequence[tuple[int, int]], cut: int) -> int:
            return [law for start, law in house if start <= cut][-1]

        return np.array([[holding(house, cut) for house in column] for cut in cuts])

    kinds = np.repeat(np.arange(len(groups)), counts).astype(np.int32)
    sound = tuple(law for law in laws if law is not None)
    return Consumption(
        sound, at(timed["absent"]), at(timed["present"]), kinds, calendar, elasticity
    )


def _timed_laws(
    given: Any, place: str, bound: int, laws: list[Law | None], day: DaySteps
) -> list[tuple[int, int]]:
    """(step of the day, number of the law from then on); the laws are added to `laws`."""
    given = given if isinstance(given, list) else [given]
    if not given:
        day.faults.add(place, f"{place} is empty; give a law.")
        return [(0, 0)]
    starts = []
    for j, table in enumerate(given):
        where = f"{place}[{j}]." if len(given) > 1 else f"{place}."
        laws.append(_law(table, where, bound, day.faults))
        if isinstance(table, Mapping):
            starts.append((day.step_of(table.get("from", "00:00"), where), len(laws) - 1))
    return day.from_midnight(starts, place) if len(starts) == len(given) else [(0, 0)]


def _law(table: Any, place: str, bound: int, faults: Faults) -> Law | None:
    if not isinstance(table, Mapping) or "law" not in table:
        check_keys(table, place, _LAW_KEYS, _LAW_KEYS - {"law"}, faults)
        return None
    if table["law"] == "mixture":
        return _mixture(table, place, bound, faults)
    if str(table["law"]) not in FAMILIES:
        one = ", ".join([*FAMILIES, "mixture"])
        faults.add(f"{place}law", f"{place}law is {display(table['law'])}; give one of {one}.")
        return None
    arguments = {key: value for key, value in table.items() if key not in _TIMED}
    if table["law"] != "histogram":
        arguments.setdefault("top", bound)
    law: Law | None = build(FAMILIES[table["law"]], arguments, place, faults, _TIMED)
    if law is not None and law.top > bound:
        key = f"{place}{'weights' if table['law'] == 'histogram' else 'top'}"
        faults.add(
            key, f"{key} reaches {law.top} Wh but the bound is {bound} Wh; end it at the bound."
        )
        return None
    return law


def _mixture(table: Table, place: str, bound: int, faults: Faults) -> Law | None:
    """`parts`: laws, each with its `share`."""
    before = len(faults)
    check_keys(table, place, {"law", "from", "share", "parts"}, {"from", "share"}, faults)
    given = tables(table, "parts", faults, place) if "parts" in table else ()
    laws = [_law(part, f"{place}parts[{i}].", bound, faults) for i, part in enumerate(given)]
    for i, part in enumerate(given):
        if "share" not in part:
            key = f"{place}parts[{i}].share"
            faults.add(key, f"{key} is not set; give it a value.")
    shares = [
        probability(part, f"{place}parts[{i}].", "share", faults) for i, part in enumerate(given)
    ]
    sound = [law for law in laws if law is not None]
    if len(faults) > before or not given or len(sound) < len(laws):
        return None
    with faults.within(f"{place}parts"):
        return Mixture(sound, shares)
    return None


def _model(
    table: Table,
    place: str,
    groups: Sequence[Table],
    counts: Sequence[int],
    folder: Path,
    day: DaySteps,
) -> OccupancyModel | None:
    faults, before = day.faults, len(day.faults)
    if "provenance" in table:
        text(table, place, "provenance", faults)
    if "file" in table:
        check_keys(table, place, {"file", "provenance"}, {"provenance"}, faults)
        name = text(table, place, "file", faults)
        if name is not None:
            with faults.within(f"{place}file"):
                return load_model(folder / name)
        return None
    keys = {"name", "chains", "structural_zeros", "provenance"}
    check_keys(table, place, keys, {"name", "structural_zeros", "provenance"}, faults)
    chains = table.get("chains")
    if "structural_zeros" in table:
        text(table, place, "structural_zeros", faults)
    if not isinstance(chains, Mapping) or not chains:
        if "chains" in table:
            faults.add(
                f"{place}chains",
                f"{place}chains is {display(chains)}; give a table for each chain.",
            )
        return None
    for i, group in enumerate(groups):
        if not isinstance(group.get("chain"), str) or group["chain"] not in chains:
            faults.add(
                f"houses[{i}].chain",
                f"houses[{i}].chain is {display(group.get('chain'))};"
                f" give one of {', '.join(chains)}.",
            )
    initial, transition = chains_of(chains, f"{place}chains.", day)
    if len(faults) > before or not groups:
        return None
    order, weekly = list(chains), len(transition[0]) > day.steps
    slots = np.arange(day.steps)
    if weekly:
        slots = np.concatenate([np.tile(slots, 5), np.tile(slots + day.steps, 2)])
    model = OccupancyModel.factored(
        initial,
        np.stack(transition, axis=1),
        calendar=Calendar(slots),
        chain_of=np.repeat([order.index(group["chain"]) for group in groups], counts),
        name=str(table.get("name", place.rstrip("."))),
    )
    if model.has_zeros and not table.get("structural_zeros"):
        faults.add(
            f"{place}structural_zeros",
            f"{place}structural_zeros is not set but a chance is 0 or 1; move it inside (0, 1),"
            " or say who declares it impossible and why.",
        )
    return model
