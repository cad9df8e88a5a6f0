"""A zone of one's own from a TOML file (docs/zone-file.md has an annotated one)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.calendar import STEPS_PER_DAY, Calendar
from hushgrid.consumption import Consumption, Elasticity
from hushgrid.errors import FileError, HushgridError
from hushgrid.files import load_model, read_text
from hushgrid.grid import Tariff, Zone
from hushgrid.laws import FAMILIES, Law
from hushgrid.occupancy import OccupancyModel, check_models
from hushgrid.policy import Policy
from hushgrid.simulation import Scenario
from hushgrid.window import Window

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ZoneFile:
    """What a zone file says: the scenario and the policy."""

    scenario: Scenario
    policy: Policy


def load_zone(path: Path | str) -> ZoneFile:
    """Read a zone file; the first mistake is named by its place in the file."""
    path = Path(path)
    try:
        content = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path} is not TOML ({error}); mend that line.") from None
    try:
        return _zone_file(content, path.parent)
    except HushgridError as error:
        raise FileError(f"{path}: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise FileError(
            f"{path} holds a value of the wrong kind or size ({error}); see docs/zone-file.md."
        ) from None


def _zone_file(content: Table, folder: Path) -> ZoneFile:
    _known(
        content, "", {"zone", "tariff", "policy", "houses", "models", "elasticity"}, {"elasticity"}
    )
    _known(content["zone"], "zone.", {"id"}, set())
    groups = _tables(content, "houses")
    for i, group in enumerate(groups):
        keys = {"count", "bound", "chain", "absent", "present"}
        _known(group, f"houses[{i}].", keys, {"chain"})
        _whole(group, f"houses[{i}].", "count")
        _whole(group, f"houses[{i}].", "bound")
    counts = [group["count"] for group in groups]
    bounds = np.repeat([group["bound"] for group in groups], counts)
    zone = Zone(_text(content["zone"], "zone.", "id"), bounds)
    tariff = _made(Tariff, content["tariff"], "tariff.")
    policy = _policy(content["policy"])
    elasticity = None
    if "elasticity" in content:
        elasticity = _made(Elasticity, content["elasticity"], "elasticity.")
    consumption = _consumption(groups, counts, elasticity)
    models = [
        _model(table, f"models[{i}].", groups, counts, folder)
        for i, table in enumerate(_tables(content, "models"))
    ]
    consumption.check_fits(zone.bound)
    return ZoneFile(
        Scenario(zone, tariff, check_models(models, zone.n_houses), consumption), policy
    )


def _policy(table: Any) -> Policy:
    """The policy; its window is a table of its own."""
    if isinstance(table, Mapping) and "window" in table:
        table = {**table, "window": _made(Window, table["window"], "policy.window.")}
    made: Policy = _made(Policy, table, "policy.")
    return made


def _consumption(
    groups: Sequence[Table], counts: Sequence[int], elasticity: Elasticity | None
) -> Consumption:
    """A density class for each group of houses; laws may change at given times of day."""
    laws: list[Law] = []
    timed: dict[str, list[list[tuple[int, int]]]] = {"absent": [], "present": []}
    for i, group in enumerate(groups):
        for state, column in timed.items():
            place = f"houses[{i}].{state}"
            tables = group[state] if isinstance(group[state], list) else [group[state]]
            if not tables:
                raise FileError(f"{place} is empty; give a law.")
            starts = []
            for j, table in enumerate(tables):
                where = f"{place}[{j}]." if len(tables) > 1 else f"{place}."
                laws.append(_law(table, where, group["bound"]))
                starts.append((_step_of(table.get("from", "00:00"), where), len(laws) - 1))
            column.append(_from_midnight(starts, place))
    cuts = sorted({start for column in timed.values() for house in column for start, _ in house})
    calendar = Calendar(np.searchsorted(cuts, np.arange(STEPS_PER_DAY), side="right") - 1)

    def at(column: Sequence[Sequence[tuple[int, int]]]) -> Any:
        def holding(house: Sequence[tuple[int, int]], cut: int) -> int:
            return [law for start, law in house if start <= cut][-1]

        return np.array([[holding(house, cut) for house in column] for cut in cuts])

    kinds = np.repeat(np.arange(len(groups)), counts).astype(np.int32)
    return Consumption(
        tuple(laws), at(timed["absent"]), at(timed["present"]), kinds, calendar, elasticity
    )


def _law(table: Any, place: str, bound: int) -> Law:
    if not isinstance(table, Mapping) or str(table.get("law")) not in FAMILIES:
        found = table.get("law") if isinstance(table, Mapping) else table
        raise FileError(f"{place}law is {found!r}; give one of {', '.join(FAMILIES)}.")
    family = FAMILIES[table["law"]]
    arguments = {key: value for key, value in table.items() if key not in ("law", "from")}
    if table["law"] != "histogram":
        arguments.setdefault("top", bound)
    law: Law = _made(family, arguments, place)
    return law


def _model(
    table: Table, place: str, groups: Sequence[Table], counts: Sequence[int], folder: Path
) -> OccupancyModel:
    if "file" in table:
        _known(table, place, {"file"}, set())
        return load_model(folder / _text(table, place, "file"))
    _known(table, place, {"name", "chains", "structural_zeros"}, {"name", "structural_zeros"})
    chains = table["chains"]
    if not isinstance(chains, Mapping) or not chains:
        raise FileError(f"{place}chains is {chains!r}; give a table for each chain.")
    if "structural_zeros" in table:
        _text(table, place, "structural_zeros")
    for i, group in enumerate(groups):
        if not isinstance(group.get("chain"), str) or group["chain"] not in chains:
            raise FileError(
                f"houses[{i}].chain is {group.get('chain')!r};"
                f" give one of {', '.join(chains) or 'the chains of ' + place + 'chains'}."
            )
    weekly = any("weekend" in chain for chain in chains.values() if isinstance(chain, Mapping))
    initial, transition = [], []
    for name, chain in chains.items():
        _known(
            chain, f"{place}chains.{name}.", {"home_at_start", "periods", "weekend"}, {"weekend"}
        )
        where = f"{place}chains.{name}."
        at_home = _chance(chain, where, "home_at_start")
        initial.append([1 - at_home, at_home])
        weekday = _day(chain["periods"], f"{where}periods")
        transition.append(weekday)
        if weekly:
            weekend = _day(chain["weekend"], f"{where}weekend") if "weekend" in chain else weekday
            transition[-1] = np.concatenate([weekday, weekend])
    day = np.arange(STEPS_PER_DAY)
    slots = np.concatenate([np.tile(day, 5), np.tile(day + STEPS_PER_DAY, 2)]) if weekly else day
    order = list(chains)
    model = OccupancyModel.factored(
        initial,
        np.stack(transition, axis=1),
        calendar=Calendar(slots),
        chain_of=np.repeat([order.index(group["chain"]) for group in groups], counts),
        name=str(table.get("name", place.rstrip("."))),
    )
    if model.has_zeros and not table.get("structural_zeros"):
        raise FileError(
            f"{place}structural_zeros is not set but a chance is 0 or 1; move it inside (0, 1),"
            " or say who declares it impossible and why."
        )
    return model


def _day(periods: Any, place: str) -> Any:
    """(96, 2, 2) transition matrices of a day given as periods with chances a step."""
    if not isinstance(periods, list) or not periods:
        raise FileError(f"{place} is {periods!r}; give a list of periods.")
    starts = []
    for i, period in enumerate(periods):
        where = f"{place}[{i}]."
        _known(period, where, {"from", "leave", "come"}, set())
        starts.append((_step_of(period["from"], where), i))
    a = np.empty((STEPS_PER_DAY, 2, 2))
    ordered = _from_midnight(starts, place)
    stops = [*(start for start, _ in ordered[1:]), STEPS_PER_DAY]
    for (start, i), stop in zip(ordered, stops, strict=True):
        leave, come = (_chance(periods[i], f"{place}[{i}].", key) for key in ("leave", "come"))
        a[start:stop] = [[1 - come, come], [leave, 1 - leave]]
    return a


def _from_midnight(starts: list[tuple[int, int]], place: str) -> list[tuple[int, int]]:
    """Periods in order; the last one of the day also holds before the first."""
    ordered = sorted(starts)
    if len({start for start, _ in ordered}) != len(ordered):
        raise FileError(f"{place} has two entries from the same time; give each its own.")
    return ordered if ordered[0][0] == 0 else [(0, ordered[-1][1]), *ordered]


def _step_of(text: Any, place: str) -> int:
    """The step of the day that starts at HH:MM."""
    try:
        hour, minute = (int(part) for part in str(text).split(":"))
    except ValueError:
        hour = minute = -1
    if not (0 <= hour < 24 and minute in (0, 15, 30, 45)):
        raise FileError(f"{place}from is {text!r}; give a quarter hour such as '07:15'.")
    return hour * 4 + minute // 15


def _known(table: Any, place: str, keys: set[str], optional: set[str]) -> None:
    if not isinstance(table, Mapping):
        raise FileError(f"{place.rstrip('.') or 'file'} is {table!r}; give a table.")
    for key in table:
        if key not in keys:
            raise FileError(f"{place}{key} is not known; use {', '.join(sorted(keys))}.")
    for key in sorted(keys - optional):
        if key not in table:
            raise FileError(f"{place}{key} is not set; give it a value.")


def _tables(content: Table, key: str) -> Sequence[Table]:
    tables = content[key]
    if (
        not isinstance(tables, list)
        or not tables
        or not all(isinstance(t, Mapping) for t in tables)
    ):
        raise FileError(f"{key} is {tables!r}; give at least one [[{key}]] table.")
    return tables


def _text(table: Table, place: str, key: str) -> str:
    value = table.get(key) if isinstance(table, Mapping) else None
    if not isinstance(value, str):
        raise FileError(f"{place}{key} is {value!r}; give a text.")
    return value


def _whole(table: Table, place: str, key: str) -> None:
    value = table[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
        raise FileError(f"{place}{key} is {value!r}; give a whole number, 1 or more, below 2^31.")


def _chance(table: Table, place: str, key: str) -> float:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise FileError(f"{place}{key} is {value!r}; give a probability from 0 to 1.")
    return float(value)


def _made(kind: Any, table: Any, place: str) -> Any:
    """A value from a table whose keys are the value's own fields."""
    known = {field.name: field for field in fields(kind) if field.name != "min_scale"}
    _known(table, place, set(known), set(known))
    for key, value in table.items():
        if known[key].type in ("float", "int") and (
            isinstance(value, bool) or not isinstance(value, (int, float))
        ):
            raise FileError(f"{place}{key} is {value!r}; give a number.")
    try:
        return kind(**table)
    except TypeError as error:
        what = str(error).partition("missing ")[2] or str(error)
        raise FileError(f"{place.rstrip('.')} lacks {what}; set what is missing.") from None
