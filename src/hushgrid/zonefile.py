"""A zone of one's own from a TOML file (docs/zone-file.md has an annotated one)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.calendar import Calendar
from hushgrid.consumption import Consumption, Elasticity
from hushgrid.errors import FileError, HushgridError
from hushgrid.files import load_model, read_text
from hushgrid.grid import Tariff, Zone
from hushgrid.laws import FAMILIES, Law
from hushgrid.occupancy import OccupancyModel, check_models
from hushgrid.policy import Policy
from hushgrid.simulation import Scenario
from hushgrid.tables import Faults, Table, chance, known, made, shown, tables, text, whole
from hushgrid.window import Window

SECONDS = 900  # of a step, where nothing else is said
_DAY = 86_400

GROUP = {"count", "bound", "chain", "absent", "present"}
SECTIONS = {"zone", "tariff", "policy", "houses", "models", "elasticity"}


@dataclass(frozen=True, slots=True, eq=False)
class ZoneFile:
    """What a zone file says: the scenario and the policy."""

    scenario: Scenario
    policy: Policy


def load_zone(path: Path | str, *, seconds: int = SECONDS) -> ZoneFile:
    """Read a zone file of steps of `seconds`; the first mistake is named by its place."""
    path = Path(path)
    try:
        content = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path} is not TOML ({error}); mend that line.") from None
    try:
        faults = Faults(stop=True)
        known(content, "", SECTIONS, {"elasticity"}, faults)
        scenario = read_scenario(content, path.parent, seconds, faults)
        policy = read_policy(content["policy"], faults)
        assert scenario is not None
        assert policy is not None
        return ZoneFile(scenario, policy)
    except HushgridError as error:
        raise FileError(f"{path}: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise FileError(
            f"{path} holds a value of the wrong kind or size ({error}); see docs/zone-file.md."
        ) from None


def read_scenario(
    content: Table,
    folder: Path,
    seconds: int,
    faults: Faults,
    group_keys: frozenset[str] = frozenset(),
) -> Scenario | None:
    """The zone, its tariff, models and laws; None where anything is at fault.

    `group_keys`: keys of [[houses]] that somebody else reads.
    """
    before = len(faults)
    name = "?"
    if "zone" in content and known(content["zone"], "zone.", {"id"}, set(), faults):
        name = text(content["zone"], "zone.", "id", faults) or "?"
    tariff = made(Tariff, content["tariff"], "tariff.", faults) if "tariff" in content else None
    elasticity = None
    if "elasticity" in content:
        elasticity = made(Elasticity, content["elasticity"], "elasticity.", faults)
    groups = tables(content, "houses", faults) if "houses" in content else ()
    for i, group in enumerate(groups):
        keys = GROUP | group_keys
        known(group, f"houses[{i}].", keys, {"chain", *group_keys}, faults)
        whole(group, f"houses[{i}].", "count", faults)
        whole(group, f"houses[{i}].", "bound", faults)
    day = _Day(seconds, faults)
    sound = len(faults) == before and bool(groups)
    counts = [group["count"] for group in groups] if sound else [1] * len(groups)
    laws_before = len(faults)
    consumption = None
    with faults.within("houses"):
        consumption = _consumption(groups, counts, elasticity, day)
    sound = sound and len(faults) == laws_before
    models = []
    given = tables(content, "models", faults) if "models" in content else ()
    for i, table in enumerate(given):
        with faults.within(f"models[{i}]"):
            models.append(_model(table, f"models[{i}].", groups, counts, folder, day))
    if not sound or consumption is None:
        return None
    with faults.within("houses"):
        zone = Zone(name, np.repeat([group["bound"] for group in groups], counts))
        consumption.check_fits(zone.bound)
        if len(faults) == before and tariff is not None:
            with faults.within("models"):
                fitting = check_models([m for m in models if m is not None], zone.n_houses)
                return Scenario(zone, tariff, fitting, consumption)
    return None


def read_policy(table: Any, faults: Faults, also: set[str] | None = None) -> Policy | None:
    """The policy; its window is a table of its own. `also`: keys that somebody else reads."""
    before = len(faults)
    if isinstance(table, Mapping) and "window" in table:
        window = made(Window, table["window"], "policy.window.", faults)
        table = {key: value for key, value in table.items() if key != "window"}
        if window is not None:
            table["window"] = window
    policy: Policy | None = made(Policy, table, "policy.", faults, also)
    return policy if len(faults) == before else None


class _Day:
    """A day of steps of `seconds`."""

    def __init__(self, seconds: int, faults: Faults) -> None:
        if not 1 <= seconds <= _DAY or _DAY % seconds:
            raise FileError(
                f"the interval is {seconds} s; give one that divides a day, such as {SECONDS}."
            )
        self.seconds, self.steps, self.faults = seconds, _DAY // seconds, faults

    def step_of(self, value: Any, place: str) -> int:
        """The step of the day that starts at HH:MM."""
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
        self.faults.add(f"{place}from", f"{place}from is {shown(value)}; {fix}.")
        return 0

    def from_midnight(self, starts: list[tuple[int, int]], place: str) -> list[tuple[int, int]]:
        """Periods in order; the last one of the day also holds before the first."""
        ordered = sorted(starts)
        if len({start for start, _ in ordered}) != len(ordered):
            self.faults.add(
                place, f"{place} has two entries from the same time; give each its own."
            )
        return ordered if ordered[0][0] == 0 else [(0, ordered[-1][1]), *ordered]


def _consumption(
    groups: Sequence[Table], counts: Sequence[int], elasticity: Elasticity | None, day: _Day
) -> Consumption | None:
    """A density class for each group of houses; laws may change at given times of day."""
    before = len(day.faults)
    laws: list[Law | None] = []
    timed: dict[str, list[list[tuple[int, int]]]] = {"absent": [], "present": []}
    for i, group in enumerate(groups):
        for state, column in timed.items():
            if state in group:
                column.append(_timed_laws(group, f"houses[{i}].{state}", state, laws, day))
    if len(day.faults) > before or not groups or any(law is None for law in laws):
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
    group: Table, place: str, state: str, laws: list[Law | None], day: _Day
) -> list[tuple[int, int]]:
    """(step of the day, number of the law from then on); the laws are added to `laws`."""
    given = group[state] if isinstance(group[state], list) else [group[state]]
    if not given:
        day.faults.add(place, f"{place} is empty; give a law.")
        return [(0, 0)]
    starts = []
    for j, table in enumerate(given):
        where = f"{place}[{j}]." if len(given) > 1 else f"{place}."
        laws.append(_law(table, where, group.get("bound"), day.faults))
        begins = table.get("from", "00:00") if isinstance(table, Mapping) else "00:00"
        starts.append((day.step_of(begins, where), len(laws) - 1))
    return day.from_midnight(starts, place)


def _law(table: Any, place: str, bound: Any, faults: Faults) -> Law | None:
    if not isinstance(table, Mapping) or str(table.get("law")) not in FAMILIES:
        found = table.get("law") if isinstance(table, Mapping) else table
        faults.add(
            f"{place}law", f"{place}law is {shown(found)}; give one of {', '.join(FAMILIES)}."
        )
        return None
    arguments = {key: value for key, value in table.items() if key not in ("law", "from")}
    if table["law"] != "histogram" and isinstance(bound, int):
        arguments.setdefault("top", bound)
    law: Law | None = made(FAMILIES[table["law"]], arguments, place, faults)
    return law


def _model(
    table: Table,
    place: str,
    groups: Sequence[Table],
    counts: Sequence[int],
    folder: Path,
    day: _Day,
) -> OccupancyModel | None:
    faults, before = day.faults, len(day.faults)
    if "file" in table:
        known(table, place, {"file"}, set(), faults)
        name = text(table, place, "file", faults)
        return None if name is None else load_model(folder / name)
    keys = {"name", "chains", "structural_zeros"}
    known(table, place, keys, {"name", "structural_zeros"}, faults)
    chains = table.get("chains")
    if "structural_zeros" in table:
        text(table, place, "structural_zeros", faults)
    if not isinstance(chains, Mapping) or not chains:
        if "chains" in table:
            faults.add(
                f"{place}chains",
                f"{place}chains is {shown(chains)}; give a table for each chain.",
            )
        return None
    for i, group in enumerate(groups):
        if not isinstance(group.get("chain"), str) or group["chain"] not in chains:
            faults.add(
                f"houses[{i}].chain",
                f"houses[{i}].chain is {shown(group.get('chain'))};"
                f" give one of {', '.join(chains)}.",
            )
    initial, transition = _chains(chains, f"{place}chains.", day)
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


def _chains(chains: Table, place: str, day: _Day) -> tuple[list[list[float]], list[Any]]:
    """Initial law and transitions of every chain; of a day, or of a weekday and a weekend day."""
    weekly = any("weekend" in chain for chain in chains.values() if isinstance(chain, Mapping))
    initial, transition = [], []
    for name, chain in chains.items():
        where = f"{place}{name}."
        known(chain, where, {"home_at_start", "periods", "weekend"}, {"weekend"}, day.faults)
        if not isinstance(chain, Mapping):
            continue
        at_home = chance(chain, where, "home_at_start", day.faults)
        initial.append([1 - at_home, at_home])
        weekday = _day(chain["periods"], f"{where}periods", day) if "periods" in chain else None
        weekend = weekday
        if "weekend" in chain:
            weekend = _day(chain["weekend"], f"{where}weekend", day)
        if weekday is not None and weekend is not None:
            transition.append(np.concatenate([weekday, weekend]) if weekly else weekday)
    return initial, transition


def _day(periods: Any, place: str, day: _Day) -> Any:
    """(steps, 2, 2) transition matrices of a day given as periods with chances a step."""
    faults, before = day.faults, len(day.faults)
    if not isinstance(periods, list) or not periods:
        faults.add(place, f"{place} is {shown(periods)}; give a list of periods.")
        return None
    starts, chances = [], []
    for i, period in enumerate(periods):
        where = f"{place}[{i}]."
        known(period, where, {"from", "leave", "come"}, set(), faults)
        if isinstance(period, Mapping):
            starts.append((day.step_of(period.get("from", "00:00"), where), i))
            chances.append([chance(period, where, key, faults) for key in ("leave", "come")])
    if len(faults) > before:
        return None
    a = np.empty((day.steps, 2, 2))
    ordered = day.from_midnight(starts, place)
    stops = [*(start for start, _ in ordered[1:]), day.steps]
    for (start, i), stop in zip(ordered, stops, strict=True):
        leave, come = chances[i]
        a[start:stop] = [[1 - come, come], [leave, 1 - leave]]
    return a
