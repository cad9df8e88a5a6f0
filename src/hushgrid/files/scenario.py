"""From the tables of a zone to its scenario: laws on the steps of a week, chains of all houses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints, is_real
from hushgrid.files.laws import (
    DAY,
    Chained,
    ModelFile,
    Period,
    from_midnight,
    laws_of_month,
)
from hushgrid.files.toml import TomlFile, display
from hushgrid.model.consumption import MONTHS, Consumption, Elasticity, LoadShape
from hushgrid.model.laws import Histogram, Law, Net
from hushgrid.model.occupancy import Calendar, OccupancyModel, check_models
from hushgrid.model.zone import Scenario, Zone

if TYPE_CHECKING:
    from hushgrid.files.zone_file import Group, ZoneTables


def scenario_of(file: TomlFile, tables: ZoneTables | None, seconds: int) -> Scenario | None:
    """Put zone, tariff, models and laws together.

    Args:
        file: The file; receives every mistake.
        tables: Its tables; None where they have mistakes.
        seconds: Length of a step [s].

    Returns:
        The scenario; None where there is a mistake.
    """
    faults, before, steps = file.faults, len(file.faults), DAY // seconds
    _check_chains(file)
    if tables is None or len(faults) > before:
        return None
    groups = tables.houses
    if not tables.models and (secret := file.table("policy").get("secret", "step")) != "window":
        faults.add(
            "models",
            f"models is not set but policy.secret is {display(secret)}, which speaks of occupancy;"
            " give [[models]], or the secret window, which needs none.",
            "policy.secret",
        )
        return None
    _check_laws(file, groups)
    if len(faults) > before:
        return None
    with faults.within("houses"):
        if groups[0].absent is None:
            usual = float(file.table("policy")["usual"])
            consumption = shape_laws(tables.zone.shape, groups, usual, tables.elasticity, steps)
        else:
            consumption = _consumption(groups, tables.elasticity, steps)
        limits = np.repeat(
            [(group.bound, group.export) for group in groups],
            [group.count for group in groups],
            axis=0,
        )
        zone = Zone.net(tables.zone.id, *limits.T)
        consumption.check_fits(zone.bound)
        models: list[OccupancyModel] = []
        for i, table in enumerate(tables.models):
            loaded = isinstance(table, ModelFile)
            with faults.within(f"models[{i}].file" if loaded else f"models[{i}]"):
                model = table.file if loaded else _occupancy(table, i, groups, steps)
                models += check_models([model], zone.n_houses)
        if len(faults) == before:
            models = models or [unknown_occupancy(zone.n_houses)]
            return Scenario(zone, tables.tariff, tuple(models), consumption)
    return None


def unknown_occupancy(houses: int) -> OccupancyModel:
    """Occupancy of which nothing is assumed: at every step each home is in either state, evenly.

    A promise about windows uses no occupancy. Every home is protected at every step, as none is
    ever certain to be empty or occupied.

    Args:
        houses: Number of houses.

    Returns:
        The model.
    """
    even = np.full((1, 1, 2, 2), 0.5)
    return OccupancyModel.factored(
        [[0.5, 0.5]], even, chain_of=np.zeros(houses, np.int64), name="unknown"
    )


def _check_laws(file: TomlFile, groups: Sequence[Group]) -> None:
    """Check that all houses have laws, or that none has and a load shape can take their place."""
    without = [i for i, group in enumerate(groups) if group.absent is None]
    if not without:
        return
    policy, key, text = file.table("policy"), f"houses[{without[0]}].absent", ""
    usual: Any = policy.get("usual")
    if len(without) < len(groups):
        text = "is not set but other houses have laws; give laws to all houses or to none."
    elif policy.get("eta", 1) != 1:
        text = f"is not set but policy.eta is {policy['eta']}; give laws, or eta = 1."
    elif not (is_real(usual) and usual > 0):
        key = "policy.usual"
        text = "is not set and houses have no laws; give the Wh that a home uses in an interval."
    if text:
        file.faults.add(key, f"{key} {text}")


def _check_chains(file: TomlFile) -> None:
    """Check that every model has a chain for all houses, as far as they are known."""
    groups, models = file.content.get("houses"), file.content.get("models")
    for model in models if isinstance(models, list) else ():
        chains = model.get("chains") if isinstance(model, Mapping) else None
        if not isinstance(chains, Mapping) or not chains or not isinstance(groups, list):
            continue
        for i, group in enumerate(groups):
            name = group.get("chain") if isinstance(group, Mapping) else next(iter(chains))
            if not isinstance(name, str) or name not in chains:
                key = f"houses[{i}].chain"
                text = f"{key} is {display(name)}; give one of {', '.join(chains)}."
                file.faults.add(key, text)


def shape_laws(
    shape: LoadShape,
    groups: Sequence[Group],
    usual: float,
    elasticity: Elasticity | None,
    steps: int,
) -> Consumption:
    """Laws of readings of a load shape over a week, the same at home and away.

    Args:
        shape: The load shape.
        groups: Groups of houses with their bounds; one density class each.
        usual: What a home uses in a step, mean over a year [Wh].
        elasticity: Reaction of demand to rates, or None.
        steps: Steps of a day.

    Returns:
        The laws. Means are a per cent apart, so that few laws stand for all steps.
    """
    middles = (np.arange(7 * steps) + 0.5) * (DAY // steps)
    sizes, slots = np.unique(
        np.rint(np.log(shape.week(middles)) / _APART).astype(np.int64), return_inverse=True
    )
    laws: list[Law] = []
    for group in groups:
        group_laws = [shape.law(usual * m, group.bound) for m in np.exp(sizes * _APART).tolist()]
        exports = [Net(law, Histogram([1.0]), group.export) for law in group_laws]
        laws += exports if group.export else group_laws
    table = np.arange(len(laws), dtype=np.int32).reshape(len(groups), -1).T
    kinds = np.repeat(np.arange(len(groups)), [group.count for group in groups]).astype(np.int32)
    return Consumption(tuple(laws), table, table, kinds, Calendar(slots), elasticity, shape)


_APART = 0.01  # logarithms of the means of laws


def _consumption(groups: Sequence[Group], elasticity: Elasticity | None, steps: int) -> Consumption:
    """A density class for each group of houses; laws may change at given times of day."""
    laws: list[Law] = []
    numbers = dict[int, int]()  # of the first law of each list
    pairs = [(group.absent or [], group.present or []) for group in groups]
    for pair in pairs:
        for timed in pair:
            numbers[id(timed)] = len(laws)
            laws += [keys.law for keys in timed]
    # absent of every group, then present
    lists = [timed for side in zip(*pairs, strict=True) for timed in side]
    cuts = sorted({start for timed in lists for start in {0} | {keys.from_ for keys in timed}})
    of_day = np.searchsorted(cuts, np.arange(steps), side="right") - 1

    def at(month: int) -> Int32s:
        """(cuts, 2, groups): the numbers of the laws of a month."""
        columns = []
        for timed in lists:
            law_starts = [
                (timed[i].from_, numbers[id(timed)] + i) for i in laws_of_month(timed, month)
            ]
            starts = from_midnight(law_starts)
            columns.append([[law for start, law in starts if start <= cut][-1] for cut in cuts])
        return np.array(columns, np.int32).T.reshape(len(cuts), 2, len(groups))

    seasonal = any(keys.months for timed in lists for keys in timed)
    tables, days = list[Int32s](), list[Ints]()
    for month in range(1, MONTHS + 1) if seasonal else (1,):
        law_table = at(month)
        equal = [i for i, earlier in enumerate(tables) if (earlier == law_table).all()]
        number = equal[0] if equal else len(tables)
        tables += [] if equal else [law_table]
        days.append(of_day + number * len(cuts))
    table, calendar = np.concatenate(tables), Calendar(np.concatenate(days))
    kinds = np.repeat(np.arange(len(groups)), [group.count for group in groups]).astype(np.int32)
    return Consumption(tuple(laws), table[:, 0], table[:, 1], kinds, calendar, elasticity)


def _occupancy(table: Chained, number: int, groups: Sequence[Group], steps: int) -> OccupancyModel:
    """A model with slots of a day, or of a weekday followed by those of a weekend day."""
    chains, order = table.chains.values(), list(table.chains)
    days = [[_matrices(chain.periods, steps) for chain in chains]]
    slots = np.arange(steps)
    if any(chain.weekend for chain in chains):
        days.append([_matrices(chain.weekend or chain.periods, steps) for chain in chains])
        slots = np.concatenate([np.tile(slots, 5), np.tile(slots + steps, 2)])
    return OccupancyModel.factored(
        [[1 - chain.home_at_start, chain.home_at_start] for chain in chains],
        np.concatenate([np.stack(day, axis=1) for day in days]),
        calendar=Calendar(slots),
        chain_of=np.repeat(
            [order.index(group.chain) for group in groups], [group.count for group in groups]
        ),
        name=f"models[{number}]" if table.name is None else str(table.name),
    )


def _matrices(periods: Sequence[Period], steps: int) -> Floats:
    """(steps, 2, 2) transition matrices of a day."""
    a = np.empty((steps, 2, 2))
    for start, i in from_midnight((period.from_, i) for i, period in enumerate(periods)):
        leave, come = periods[i].leave, periods[i].come
        a[start:] = [[1 - come, come], [leave, 1 - leave]]
    return a


def provenance_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Where each model and each group's laws come from.

    Args:
        content: The zone file.

    Returns:
        The file's statement by model or group; "not stated" where it has none.
    """
    origins = {
        f"model {table.get('name', table.get('file', i))}": _stated(table)
        for i, table in enumerate(content.get("models", ()))
    }
    laws = [_stated(table) for table in content.get("houses", ())]
    return {**origins, **{f"laws of houses {i}": text for i, text in enumerate(laws)}}


def _stated(table: Mapping[str, Any]) -> str:
    return str(table.get("provenance", "not stated"))
