"""Learned models for publication: their provenance and cost, and the zone file of private ones.

A zone file is public. So no number computed from readings or labels goes into it except through
noise whose epsilon is charged to every home, unless the models are for experiments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, Indices, is_real
from hushgrid.errors import ModelError, PolicyError
from hushgrid.learning.em import Fit
from hushgrid.learning.evaluation import (
    PublishedGroup,
    TrustBounds,
    estimate_trust,
    published_groups,
)
from hushgrid.learning.habits import Habits
from hushgrid.learning.histories import Histories, clamped
from hushgrid.learning.learner import (
    HeldOut,
    Learned,
    held_out_scores,
    split_held_out,
    with_decoding,
)
from hushgrid.learning.private import (
    PARTS,
    LearnedFrom,
    add_noise,
    bound_quantile,
    contract_sizes,
    pooled_model,
    statistics,
)
from hushgrid.learning.weeks import daily_scores, weekly_figures
from hushgrid.mechanism.noise import Noise

CONTRACT_W = 10_000  # [W] assumed where no contract is given
USUAL = 3300.0  # [kWh a year] of a home by published figures, where nothing else is known
_GROWING = 0.1  # [currency/kWh] the part of the rate that grows with the load, at the usual load
ENOUGH = 5000  # homes at epsilon 1 from which on the noise of a pool leaves a usable forecast
_PEAK, _QUANTILE = 0.999, 0.98  # of a home's readings; of homes whose peak a bound covers


@dataclass(frozen=True, slots=True)
class ZoneChoices:
    """Settings of a zone that a person decides.

    Attributes:
        zone: Id of the zone.
        time_zone: IANA name.
        bound: Bound of a reading [Wh a step], or None.
        bound_budget: Epsilon for a bound from readings, or None.
        pool_budget: Epsilon for a pooled model, or None.
        usual: What a home usually uses in a year [kWh], by published figures.
    """

    zone: str = "learned"
    time_zone: str = "UTC"
    bound: int | None = None
    bound_budget: float | None = None
    pool_budget: float | None = None
    usual: float = USUAL

    def __post_init__(self) -> None:
        budgets = (("pool budget", self.pool_budget), ("bound budget", self.bound_budget))
        for word, budget in budgets:
            if budget is not None and not (is_real(budget) and budget > 0):
                raise PolicyError(f"{word} is {budget}; give a positive epsilon.")


@dataclass(frozen=True, slots=True, eq=False)
class ExportedModels:
    """Models for the public files.

    Of pooled models nothing here but `group_of` is computed from readings without noise.

    Attributes:
        provenance: "public", "pooled" or "private".
        note: Privacy cost of the models, in words.
        epsilon: Loss of every home by bound and models.
        bound: Bound of a reading [Wh]; u + v of homes that export.
        bound_by: Basis of the bound.
        models: Hidden Markov models, one for each of `public`.
        public: Chain and laws of each group.
        group_of: (fitted homes,) group of each home.
        export: Export limit v of the homes [Wh].
    """

    provenance: LearnedFrom
    note: str
    epsilon: float
    bound: int
    bound_by: str
    models: Fit
    public: tuple[PublishedGroup, ...]
    group_of: Indices
    export: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class OperatorFigures:
    """Figures for the operator only, computed from readings without noise.

    Attributes:
        trust: Bounds on the misdescribed share.
        daily: (fitted homes, 3) mean, standard deviation and number of daily scores.
        weekly: (fitted homes, weeks, figures) that drift is compared with.
        held_out: Scores of the last days under the exported models, or None; a pooled model's sums
            include these days.
        accuracy: Accuracy of decoding by the homes' own fits.
        home_share: (fitted homes,) decoded share of time at home, by the homes' own fits.
    """

    trust: TrustBounds
    daily: Floats
    weekly: Floats
    held_out: HeldOut | None
    accuracy: dict[str, Any]
    home_share: Floats


def export_models(
    result: Learned, histories: Histories, choices: ZoneChoices, noise: Noise
) -> ExportedModels:
    """The homes' own models, or a pooled one with noise where a budget is given for it.

    Args:
        result: What was learned from `histories`.
        histories: Histories of all homes.
        choices: Budgets and bound.
        noise: Source of the noise on sums and counts.

    Returns:
        The models for the public files.

    Raises:
        PolicyError: A budget is given, but the axis, the homes or the law would be chosen by
            readings, or there are too few homes.
        ModelError: No budget is given, but only the homes' own fits were learned.
    """
    _check_public(result, histories, choices)
    bound, bound_by, cost = _bound(result, histories, choices, noise)
    bound += histories.export
    if choices.pool_budget is not None:
        exact = statistics(result.fits, bound, homes=len(result.ids))
        sums = add_noise(exact, choices.pool_budget, noise)
        group_of = np.zeros(len(result.usable), np.intp)
        models = pooled_model(result.fits, sums, bound)
        public = published_groups(models, result.starts, group_of, result.seasons)
        cost += choices.pool_budget
        provenance: LearnedFrom = "pooled"
        note = (
            f"Noisy sums over all homes cost every home epsilon {cost:g}; the noise on each sum is"
            f" worth {math.sqrt(2) * 2 * PARTS / choices.pool_budget:.1f} homes. report.html and"
            " model.json stay with the utility."
        )
    elif result.shared is None:
        raise ModelError("the homes' own fits are pooled only; give a pool budget.")
    else:
        models, public, group_of = result.shared.models, result.public, result.shared.group_of
        provenance, note = "private", (
            "The models come from these homes without noise: they are for experiments, and no"
            " service publishes what they shape."
        )  # fmt: skip
    return ExportedModels(
        provenance=provenance,
        note=note,
        epsilon=cost,
        bound=bound,
        bound_by=bound_by,
        models=models,
        public=tuple(group.within(bound) for group in public),
        group_of=group_of,
        export=histories.export,
    )


def operator_figures(
    result: Learned, exported: ExportedModels, histories: Histories, habits: Habits
) -> OperatorFigures:
    """Figures for the operator about the exported models.

    A pooled run computes them after its public files are written, so that no reading decides
    whether they are written.

    Args:
        result: What was learned from `histories`.
        exported: The exported models.
        histories: Histories of all homes.
        habits: Prior on moves.

    Returns:
        The figures.
    """
    usable = clamped(histories.homes(result.usable), exported.bound)
    if exported.provenance == "pooled" or result.trust is None:
        # other laws than those evaluated before
        result = with_decoding(result, histories, habits)
        trust = estimate_trust(usable, exported.public, exported.group_of, exported.bound)
        parts = split_held_out(usable)
        held = None
        if parts is not None:  # all days are in the sums of the model, so in the slot means too
            held = held_out_scores(
                usable, parts[1], exported.public, exported.group_of, exported.bound
            )
    else:
        trust, held = result.trust, result.held_out
    return OperatorFigures(
        trust=trust,
        daily=daily_scores(usable, exported.public, exported.group_of, exported.bound),
        weekly=weekly_figures(usable, exported.public, exported.group_of, exported.bound),
        held_out=held,
        accuracy=result.accuracy,
        home_share=result.home_share,
    )


def _check_public(result: Learned, histories: Histories, choices: ZoneChoices) -> None:
    """Refuse public figures that come from readings without noise."""
    if choices.pool_budget is None and choices.bound_budget is None:
        return
    if not histories.declared:
        raise PolicyError(
            "a budget is set but the axis of time or the list of homes comes from readings, which"
            " no noise covers; give begin, end, step and meters."
        )
    check_rows_independent(choices, histories.independent)
    if choices.pool_budget is not None and result.terms.law == "auto":
        raise PolicyError(
            "law is 'auto', which readings decide and no noise covers; give gamma or lognormal."
        )
    if choices.pool_budget is not None and len(result.terms.groups) > 1:
        raise PolicyError(
            f"groups are {result.terms.groups}, which readings decide and no noise covers; give one"
            " number of slot groups."
        )


def check_rows_independent(choices: ZoneChoices, independent: bool) -> None:
    """Refuse a budget where a row of one home may decide how rows of others are read.

    Args:
        choices: What was asked for.
        independent: As `Histories.independent`.

    Raises:
        PolicyError: A budget is set, and rows are not independent.
    """
    if independent or (choices.pool_budget is None and choices.bound_budget is None):
        return
    word = "pool-budget" if choices.pool_budget is not None else "learn.bound_budget"
    raise PolicyError(
        f"{word} is set but in this format what one home sends may decide how readings of others"
        " are read; give a table with a row for each reading and one header: CSV without line"
        " breaks in fields, JSON, Parquet or Arrow."
    )


def _bound(
    result: Learned, histories: Histories, choices: ZoneChoices, noise: Noise
) -> tuple[int, str, float]:
    """The public bound [Wh], its basis, and its cost; never a reading's own value."""
    if choices.bound is not None:
        return choices.bound, "given as the contract's", 0.0
    if choices.bound_budget is None:
        assumed = max(CONTRACT_W * histories.seconds // 3600, 1)
        return assumed, f"assumed: a contract of {CONTRACT_W // 1000} kW", 0.0
    sizes = contract_sizes(histories.seconds)
    wh = np.clip(histories.wh[result.usable], 0, sizes[-1])
    peaks = np.array([np.nanquantile(row, _PEAK) for row in wh]).astype(np.int64)
    at = bound_quantile(peaks, sizes, _QUANTILE, choices.bound_budget, noise)
    return at, f"a noisy quantile at epsilon {choices.bound_budget:g}", choices.bound_budget


def groups_of(result: Learned, exported: ExportedModels) -> list[tuple[PublishedGroup, list[str]]]:
    """The exported groups with their meters; homes that were not fitted join the largest group.

    Args:
        result: What was learned.
        exported: The exported models.

    Returns:
        (group, meters) of every group with meters.
    """
    largest = int(np.bincount(exported.group_of, minlength=len(exported.public)).argmax())
    of = {int(i): int(exported.group_of[n]) for n, i in enumerate(result.usable)}
    meters: list[list[str]] = [[] for _ in exported.public]
    for i, name in enumerate(result.ids):
        meters[of.get(i, largest)].append(name)
    return [
        (group, meter_names)
        for group, meter_names in zip(exported.public, meters, strict=True)
        if meter_names
    ]


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """Content of the zone file of private models, for experiments, other than the models.

    Attributes:
        zone: Id of the zone.
        seconds: Length of an interval [s].
        time_zone: IANA name.
        bound: Bound of a reading [Wh].
        bound_by: Basis of the bound.
        homes: Number of homes.
        epsilon: Loss of every home by the bound.
        law: Family of laws.
        prior: Source of the habits.
        days: Weight of the prior [days].
        usual: What a home usually uses in a step [Wh], by published figures.
        export: Export limit of each home [Wh]; `bound` is u + v then, as the laws are.
        seasons: Months of each season that has laws of its own; none: the year has one.
    """

    zone: str
    seconds: int
    time_zone: str
    bound: int
    bound_by: str
    homes: int
    epsilon: float
    law: str
    prior: str
    days: float
    usual: float
    export: int = 0
    seasons: tuple[tuple[int, ...], ...] = ()

    def alpha(self, homes: int) -> float:
        """Slope of the rate: the usual load of so many homes costs beta and a tenth more."""
        return float(f"{_GROWING / (homes * self.usual / 1000):.2g}")


Groups = Sequence[tuple[PublishedGroup, Sequence[str]]]


def drowned(homes: int, pool_budget: float) -> bool:
    """Whether the noise of a pool drowns what it says of loads: by public numbers alone.

    Args:
        homes: Number of homes on the public list.
        pool_budget: Epsilon of the pool.

    Returns:
        True where a forecast by the pool's laws would be worse than a usual load.
    """
    return homes * pool_budget < ENOUGH


def usual_wh(kwh_a_year: float, seconds: int) -> float:
    """What a home usually uses in a step.

    Args:
        kwh_a_year: In a year, by published figures [kWh].
        seconds: Length of the step [s].

    Returns:
        Energy [Wh], to a tenth.

    Raises:
        PolicyError: If it is not above 0.
    """
    if not (is_real(kwh_a_year) and kwh_a_year > 0):
        raise PolicyError(f"usual is {kwh_a_year}; give the kWh of a home in a year, above 0.")
    return max(round(kwh_a_year * 1000 * seconds / (365 * 86_400), 1), 0.1)


def zone_text(offer: ZoneSettings, groups: Groups) -> str:
    """The text of the zone file of private models; it refers to theta.json in the same folder.

    Args:
        offer: Settings.
        groups: (group, meters); houses follow this order.

    Returns:
        TOML.
    """
    alpha = offer.alpha(sum(len(meters) for _, meters in groups))
    week = 7 * 86_400 // offer.seconds
    parts = [
        "# Written by hushgrid learn; docs/files.md explains the keys.\nformat = 1",
        _table("zone", {"id": offer.zone}),
        _table(
            "learned",
            {
                "provenance": "private",
                "homes": offer.homes,
                "epsilon": offer.epsilon,
                "by": _BY,
                "law": offer.law,
                "prior": offer.prior,
                "days": offer.days,
                **(
                    {"seasons": [list(houses) for houses in offer.seasons]} if offer.seasons else {}
                ),
                "bound_by": offer.bound_by,
                "digest": "",  # would be something to check guesses against
            },
        ),
        _table(
            "service",
            {
                "interval": offer.seconds,
                "meter_interval": offer.seconds,
                "time_zone": offer.time_zone,
            },
        ),
        _table("tariff", {"alpha": alpha, "beta": 0.05, "floor": 0.0, "cap": 2.0}),
        _table("policy", {"horizon": week, "epsilon": 0.5, "publish": "raw"}),
    ]
    parts += [_houses(public, meters, offer) for public, meters in groups]
    parts.append(_table("[models]", {"file": "theta.json", "provenance": _PRIVATE}))
    return "\n\n".join(parts) + "\n"


_BY = "hushgrid learn"
_PRIVATE = f"private, by {_BY}"


def _houses(public: PublishedGroup, meters: Sequence[str], offer: ZoneSettings) -> str:
    lines = ["[[houses]]", f"count = {len(meters)}", f"meters = {_value(list(meters))}"]
    lines += [f"provenance = {_value(_PRIVATE)}"]
    v = offer.export
    lines += [f"bound = {offer.bound - v}", *([f"export = {v}"] if v else [])]
    return "\n".join([*lines, *law_lines(public, v)])


def law_lines(public: PublishedGroup, export: int = 0) -> list[str]:
    """The laws of a group of homes as keys of `[[houses]]`.

    Args:
        public: The group.
        export: Export limit of its homes [Wh]; the laws begin at it.

    Returns:
        Lines of TOML.
    """
    lines, v = list[str](), export
    if not public.empty:
        lines += [f"absent = {_value(_net(public.absent, v))}"]
    for name, tables in (("absent", public.empty), ("present", public.present)):
        laws = [
            _value({**when, **_net(law, v)})
            for i, (when, law) in enumerate(zip(_times(public), tables, strict=bool(tables)))
            # that of a season goes on while it stays the same
            if not public.seasons or i % len(public.starts) == 0 or law != tables[i - 1]
        ]
        lines += [f"{name} = [", *(f"  {law}," for law in laws), "]"] if laws else []
    return lines


def _times(public: PublishedGroup) -> list[dict[str, Any]]:
    """When the law of each slot group holds, by the keys of a zone file."""
    seasons = [{"months": list(months)} for months in public.seasons] or [{}]
    return [{**season, "from": f"{start:02d}:00"} for season in seasons for start in public.starts]


def _net(table: Mapping[str, Any], export: int) -> dict[str, Any]:
    """A law's table in net Wh, as a zone file has it."""
    if not export:
        return dict(table)
    if table["law"] == "mixture":
        return {**table, "parts": [_net(part, export) for part in table["parts"]]}
    return {**table, "edges": [edge - export for edge in table["edges"]]}


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())])


def _value(value: Any) -> str:
    """A TOML value on one line; JSON's escapes are TOML's.

    >>> _value({"law": "gamma", "shape": 2.0})
    '{ law = "gamma", shape = 2.0 }'
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float) and not isinstance(value, np.floating):
        return repr(value)
    if isinstance(value, np.generic):
        return _value(value.item())
    return json.dumps(value, ensure_ascii=False)
