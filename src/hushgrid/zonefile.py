"""A zone of one's own from a TOML file (docs/zone-file.md has an annotated one)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.calendar import Calendar
from hushgrid.consumption import Consumption, Elasticity
from hushgrid.daily import SECONDS, Day, chains_of
from hushgrid.errors import FileError, HushgridError
from hushgrid.files import load_model, read_text
from hushgrid.grid import Tariff, Zone
from hushgrid.laws import FAMILIES, Law, Mixture
from hushgrid.occupancy import OccupancyModel, check_models
from hushgrid.policy import Policy
from hushgrid.provenance import Provenance, read_provenance
from hushgrid.simulation import Scenario
from hushgrid.tables import Faults, Table, chance, known, made, shown, tables, text, whole
from hushgrid.window import Window

GROUP = {"count", "bound", "chain", "absent", "present", "provenance"}
SECTIONS = {"zone", "tariff", "policy", "houses", "models", "elasticity"}
BESIDE = {"learned", "service"}  # that a zone may have too: where its models come from, its times
_OTHERS = frozenset({"meters", "meters_file"})  # of houses, and of the policy below: a service's
_PROMISES = {"secret", "rho", "eta_set_by"}


@dataclass(frozen=True, slots=True, eq=False)
class ZoneFile:
    """What a zone file says: the scenario and the policy; `provenance`: where models and laws
    come from, in the words of whoever wrote the file. `time_zone` and `meters` (one a house, or
    none) are what the file has ready for a service.
    """

    scenario: Scenario
    policy: Policy
    provenance: Mapping[str, str] = field(default_factory=dict)
    seconds: int = SECONDS
    learned: Provenance = field(default_factory=Provenance)
    time_zone: str = "UTC"
    meters: tuple[str, ...] = ()


def load_zone(path: Path | str, *, seconds: int | None = None) -> ZoneFile:
    """Read a zone file; the first mistake is named by its place.

    Its steps last `seconds`, else as its own service.interval says, else 15 minutes. What a service
    alone reads (meters, the secret, who set eta) is left to it.
    """
    path = Path(path)
    return zone_of(read_text(path), path, seconds=seconds)


def zone_of(written: str, path: Path, *, seconds: int | None = None) -> ZoneFile:
    """A zone from the text of a zone file; `path` is its name, and where its model files lie."""
    try:
        content = tomllib.loads(written)
    except (ValueError, RecursionError) as error:  # a number may be too long for int, too
        raise FileError(f"{path} is not TOML ({error}); mend that line.") from None
    try:
        faults = Faults(stop=True)
        known(content, "", SECTIONS | BESIDE, {"elasticity", *BESIDE}, faults)
        length = _interval(content, faults) if seconds is None else seconds
        scenario = read_scenario(content, path.parent, length, faults, _OTHERS)
        policy = read_policy(content["policy"], faults, _PROMISES)
        assert scenario is not None
        assert policy is not None
        learned = read_provenance(content, faults)
        made = (scenario, policy, provenance_of(content), length, learned)
        return ZoneFile(*made, _time_zone(content), _meters(content, scenario.zone.n_houses))
    except HushgridError as error:
        raise FileError(f"{path}: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise FileError(
            f"{path} holds a value of the wrong kind or size ({error}); see docs/zone-file.md."
        ) from None


def _time_zone(content: Table) -> str:
    """Whose times of day the patterns are, where the file says so; a service checks the name."""
    table = content.get("service")
    given = table.get("time_zone", "UTC") if isinstance(table, Mapping) else "UTC"
    return given if isinstance(given, str) else "UTC"


def _meters(content: Table, houses: int) -> tuple[str, ...]:
    """The meters of all houses, where the file lists them itself; a service reads other ways."""
    lists = [group.get("meters") for group in content["houses"]]
    if not all(isinstance(each, list) for each in lists):
        return ()
    names = tuple(str(name) for each in lists for name in each)
    return names if len(set(names)) == houses == len(names) else ()


def _interval(content: Table, faults: Faults) -> int:
    """The steps of a zone that says so for its service: seconds, or a text such as PT30M."""
    table = content.get("service")
    given = table.get("interval", SECONDS) if isinstance(table, Mapping) else SECONDS
    if isinstance(given, str):
        minutes = re.fullmatch(r"PT(\d{1,4})M", given)
        given = 60 * int(minutes[1]) if minutes else given
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    faults.add(
        "service.interval",
        f"service.interval is {shown(given)}; give seconds or a text such as 'PT30M'.",
    )
    return SECONDS


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
        known(group, f"houses[{i}].", keys, {"chain", "provenance", *group_keys}, faults)
        if "provenance" in group:
            text(group, f"houses[{i}].", "provenance", faults)
        whole(group, f"houses[{i}].", "count", faults)
        whole(group, f"houses[{i}].", "bound", faults)
    day = Day(seconds, faults)
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


def provenance_of(content: Table) -> dict[str, str]:
    """Where each model and each group's laws come from, as far as the file says so."""
    found = {}
    for key, name in (("models", "model"), ("houses", "laws of houses")):
        for i, table in enumerate(content.get(key, ())):
            called = str(table.get("name", table.get("file", i))) if key == "models" else str(i)
            found[f"{name} {called}"] = str(table.get("provenance", "not stated"))
    return found


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


def _consumption(
    groups: Sequence[Table], counts: Sequence[int], elasticity: Elasticity | None, day: Day
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
    group: Table, place: str, state: str, laws: list[Law | None], day: Day
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
    if isinstance(table, Mapping) and table.get("law") == "mixture":
        return _mixture(table, place, bound, faults)
    if not isinstance(table, Mapping) or str(table.get("law")) not in FAMILIES:
        found = table.get("law") if isinstance(table, Mapping) else table
        faults.add(
            f"{place}law",
            f"{place}law is {shown(found)}; give one of {', '.join([*FAMILIES, 'mixture'])}.",
        )
        return None
    ours = ("law", "from", "share")
    arguments = {key: value for key, value in table.items() if key not in ours}
    if table["law"] != "histogram" and isinstance(bound, int):
        arguments.setdefault("top", bound)
    law: Law | None = made(FAMILIES[table["law"]], arguments, place, faults)
    return law


def _mixture(table: Table, place: str, bound: Any, faults: Faults) -> Law | None:
    """`parts`: laws, each with its `share`."""
    before = len(faults)
    known(table, place, {"law", "from", "share", "parts"}, {"from", "share"}, faults)
    given = tables(table, "parts", faults) if "parts" in table else ()
    laws = [_law(part, f"{place}parts[{i}].", bound, faults) for i, part in enumerate(given)]
    shares = [chance(part, f"{place}parts[{i}].", "share", faults) for i, part in enumerate(given)]
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
    day: Day,
) -> OccupancyModel | None:
    faults, before = day.faults, len(day.faults)
    if "provenance" in table:
        text(table, place, "provenance", faults)
    if "file" in table:
        known(table, place, {"file", "provenance"}, {"provenance"}, faults)
        name = text(table, place, "file", faults)
        return None if name is None else load_model(folder / name)
    keys = {"name", "chains", "structural_zeros", "provenance"}
    known(table, place, keys, {"name", "structural_zeros", "provenance"}, faults)
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
