"""Learning of a zone: from histories to models, with scores and trust.

Homes may share k prototypes, so that models do not grow with the number of homes. Homes begin in
groups by their own fits; then, in turn, each group's model is fitted to the expected counts of its
homes, and each home joins the model with the largest likelihood. The likelihood of all homes never
falls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hushgrid._frames import DataTable, Tabular
from hushgrid._numbers import Floats, Indices, Int8s, Int32s, Ints, brief, count_of
from hushgrid.errors import ModelError
from hushgrid.learning._families import Family, common_edges
from hushgrid.learning.em import (
    Design,
    Fit,
    expected,
    fit,
    posterior,
    select_homes,
)
from hushgrid.learning.evaluation import (
    PublishedGroup,
    TrustBounds,
    decoding_accuracy,
    estimate_trust,
    forecast_errors,
    marginal_scores,
    plain_scores,
    published_groups,
)
from hushgrid.learning.habits import Habits, model_of
from hushgrid.learning.histories import (
    AILMENTS,
    DAY,
    MOST_W,
    Histories,
    ailments,
    can_be_fitted,
    check_seasons,
    clamped,
    vacant_days,
)
from hushgrid.learning.pools import (
    ROUNDS,
    Prototypes,
    grouped_models,
    prototypes,
    split_laws,
)
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Law
from hushgrid.model.occupancy import Calendar
from hushgrid.model.zone import Scenario, Tariff, Zone

STARTS = (0, 6, 12, 18)  # [h] of slot groups, for the homes' own fits
GROUPS = (4, 8, 12, 24)  # slot groups a day of shared models
HELD_OUT = 0.25  # of the time, its end
LEAST_HELD = 4  # days
AUTO: tuple[Family, ...] = ("lognormal", "gamma", "histogram")
Watch = Callable[[str, int], Callable[..., None]]  # a stage and its size -> what counts it


@dataclass(frozen=True, slots=True)
class LearningTerms:
    """Options of learning.

    Attributes:
        law: Family of laws; "auto" takes the one with the largest likelihood on held-out days.
        days: Weight of the habits as a prior [days].
        prototypes: Number of shared models; 0 for one model per home.
        starts: First hour of each slot group of the homes' own fits.
        groups: Numbers of equal slot groups a day to try for shared models; of several, the one
            with the largest likelihood on held-out days is taken.
        iterations: Largest number of iterations.
    """

    law: Literal["auto"] | Family = "auto"
    days: float = 30.0
    prototypes: int = 4
    starts: tuple[int, ...] = STARTS
    groups: tuple[int, ...] = GROUPS
    iterations: int = 60

    def __post_init__(self) -> None:
        if self.law not in ("auto", *AUTO):
            raise ModelError(f"law is {self.law!r}; give one of {', '.join(('auto', *AUTO))}.")
        if not self.days > 0:
            raise ModelError(
                f"days is {self.days}; give how many days the prior is worth, above 0."
            )
        rising = all(a < b for a, b in zip(self.starts, self.starts[1:], strict=False))
        if not self.starts or self.starts[0] != 0 or not rising or self.starts[-1] > 23:
            raise ModelError(
                f"starts are {self.starts}; give hours that rise from 0 to at most 23."
            )
        if not self.groups or not set(self.groups) <= set(GROUPS):
            raise ModelError(
                f"groups are {self.groups}; give numbers of slot groups a day, each of {GROUPS}."
            )


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Scores of the last days, computed from readings without noise.

    Attributes:
        days: Number of days.
        by_slot: (steps of a day,) mean log-likelihood of a reading [nats].
        plain: The same of one law for all times and states, fitted to the days before.
        log_likelihood: Mean log-likelihood of a reading [nats].
        forecast: Error of the load that the models forecast, root mean square over mean load.
        slot_mean: The same of a mean by slot over the days that the models were learned from.
    """

    days: float
    by_slot: Floats
    plain: Floats
    log_likelihood: float
    forecast: float
    slot_mean: float


@dataclass(frozen=True, slots=True, eq=False)
class Learned(Tabular):
    """Models of a zone and their evaluation.

    Where only the homes' own fits were made, `shared`, `public`, `held_out` and `trust` are None or
    empty.

    Attributes:
        ids: Meter ids of all homes.
        ails: Ailments of all homes.
        usable: Indices of the homes that were fitted.
        fits: Fits of these homes.
        shared: Prototypes of these homes, or None.
        public: Chain and laws of each prototype.
        family: Family of laws.
        tried: Held-out log-likelihood of a reading for each family tried.
        starts: First hour of each slot group of the models.
        groups_tried: Held-out log-likelihood of a reading for each number of slot groups tried.
        seconds: Length of a step [s].
        begins: Start of the readings [UTC s].
        ends: End of the readings [UTC s].
        habits: Source of the prior.
        terms: Options of learning.
        held_out: Scores of the last days, or None.
        trust: Bounds on the misdescribed share, or None.
        accuracy: Accuracy of decoding, by kind of training.
        home_share: (fitted homes,) decoded share of time at home.
        vacant: (homes,) numbers of vacant days.
        top: Largest reading of the laws [Wh].
        edges: Borders of a histogram's bins [Wh], or None.
        seasons: Months of each season that has laws of its own; none: the year has one.
    """

    ids: tuple[str, ...]
    ails: tuple[tuple[str, ...], ...]
    usable: Indices
    fits: Fit
    shared: Prototypes | None
    public: tuple[PublishedGroup, ...]
    family: Family
    tried: dict[str, float]
    starts: tuple[int, ...]
    groups_tried: dict[int, float]
    seconds: int
    begins: int
    ends: int
    habits: str
    terms: LearningTerms
    held_out: HeldOut | None
    trust: TrustBounds | None
    accuracy: dict[str, Any]
    home_share: Floats
    vacant: Indices
    top: int
    edges: Floats | None = None
    seasons: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        homes, fitted = count_of("home", len(self.ids)), f"{len(self.usable):,} fitted"
        groups = count_of("shared model", len(self.public))
        return brief(self, homes, fitted, groups, names=("family", "seconds", "habits"))

    def _table(self) -> DataTable:
        """A row a home: its group, share of time at home, days vacant and ailments."""
        group, share = np.full((2, len(self.ids)), np.nan)
        share[self.usable] = self.home_share if self.home_share.size else np.nan
        if self.shared is not None:
            group[self.usable] = self.shared.group_of + 1
        columns = {
            "group": group,
            "home_share": share,
            "vacant_days": self.vacant,
            "ailments": ["; ".join(AILMENTS[kind] for kind in ails) for ails in self.ails],
        }
        return DataTable("home", self.ids, columns)

    def scenario(
        self,
        tariff: Tariff,
        *,
        bound: int,
        export: int = 0,
        id: str = "learned",  # noqa: A002
    ) -> Scenario:
        """The homes that were fitted as a zone with their models, for experiments.

        The models have no noise: a release that is calibrated by them may say what they say. Step 1
        is the first of a Monday.

        Args:
            tariff: The rate of a load.
            bound: Contract bound u + v of every home [Wh a step].
            export: Export limit v of every home [Wh a step], as it was learned with.
            id: Name of the zone.

        Returns:
            The zone.

        Raises:
            ModelError: No models are shared, or they are of seasons.
        """
        if self.shared is None or self.seasons:
            fault = "of seasons" if self.seasons else "of a pool"
            raise ModelError(f"the models are {fault}; learn without it for a scenario.")
        day = DAY // self.seconds
        hour = np.arange(day) * self.seconds // 3600
        slot_group = np.searchsorted(self.starts, hour, side="right") - 1
        laws: list[Law] = []
        tables = np.empty((2, day, len(self.public)), np.int32)
        for number, group in enumerate(self.public):
            for table, group_laws in zip(tables, group.laws(bound), strict=True):
                table[:, number] = len(laws) + slot_group
                laws += group_laws
        group_of, n = self.shared.group_of, len(self.usable)
        return Scenario(
            Zone(id, [bound] * n, [export] * n),
            tariff,
            (model_of([group.chain for group in self.public], group_of, id),),
            Consumption(
                tuple(laws), tables[0], tables[1], group_of.astype(np.int32), Calendar(range(day))
            ),
        )


def starts_of(groups: int) -> tuple[int, ...]:
    """First hours of equal slot groups.

    >>> starts_of(4)
    (0, 6, 12, 18)

    Args:
        groups: Slot groups a day.

    Returns:
        The hours.
    """
    return tuple(range(0, 24, 24 // groups))


def design_for(
    histories: Histories, habits: Habits, terms: LearningTerms, family: Family
) -> Design:
    """Slots, slot groups, priors and ties for the steps of histories.

    Args:
        histories: The histories.
        habits: Prior on moves.
        terms: Options of learning.
        family: Family of laws.

    Returns:
        The design.

    Raises:
        ModelError: The habits have another step, or a step is longer than a slot group.
    """
    if habits.steps != histories.steps_a_day:
        raise ModelError(
            f"habits have {habits.steps} steps a day and readings {histories.steps_a_day}; give"
            f" habits in steps of {histories.seconds} s."
        )
    states = habits.share.shape[1]
    shortest = 3600 * int(np.diff([*terms.starts, 24]).min())
    if histories.seconds > shortest:
        raise ModelError(
            f"interval is {histories.seconds} s, longer than the shortest slot group; give at most"
            f" {shortest} s."
        )
    group, seasons = histories.slot_group(terms.starts), max(len(histories.seasons), 1)
    number = np.arange(seasons * len(terms.starts))
    # an empty home knows the season and no time of day, and quiet people use what it does
    tie = np.repeat(number[:, None] // len(terms.starts), states, axis=1)
    tie[:, states - 1] = seasons + number
    if histories.offset:  # panels do
        tie[:, : states - 1] = len(number) + seasons + number[:, None]
    occupied = np.array([habits.home[_slots(histories, group, g)].mean() for g in number.tolist()])
    return Design(
        group=group.astype(np.int32),
        slot=histories.slot,
        moves=habits.moves(terms.days),
        family=family,
        starts=(0.5, 0.7),
        occupied=occupied if states == 2 else np.zeros(0),
        iterations=terms.iterations,
        tie=tie.astype(np.int32),
        seasons=seasons,
    )


def _slots(histories: Histories, group: Ints, g: int) -> Int32s:
    slots = histories.slot[group == g]
    return slots if slots.size else np.zeros(1, np.int32)


def learn(
    histories: Histories,
    habits: Habits,
    terms: LearningTerms | None = None,
    *,
    watch: Watch | None = None,
    pooled: bool = False,
) -> Learned:
    """Fit every usable home, share prototypes, and evaluate them on held-out days.

    Args:
        histories: Histories of all homes.
        habits: Prior on moves.
        terms: Options of learning.
        watch: Called with each stage and its size; returns a counter of progress.
        pooled: Make only the homes' own fits, for noisy sums. No prototype, score or accuracy is
            computed: they have no noise, so none may decide whether a pooled model is made.

    Returns:
        The models and their evaluation.

    Raises:
        ModelError: No home can be fitted, the habits or slot groups do not fit the steps, or the
            homes export and the law or a pool cannot have readings below 0 Wh.
        IntakeError: A season has no readings.
    """
    terms, begin = terms or LearningTerms(), watch or (lambda *_: lambda *_: None)
    terms = _of_net_readings(terms, pooled=pooled) if histories.export else terms
    check_seasons(histories)
    ails = ailments(histories)
    usable = np.array([i for i, a in enumerate(ails) if can_be_fitted(a)], np.intp)
    if not usable.size:
        kinds = sorted({a for home in ails for a in home})
        raise ModelError(
            f"none of the {len(histories.ids)} homes can be fitted"
            f" ({'; '.join(AILMENTS[kind] for kind in kinds)}); give histories in whole Wh."
        )
    fitted = _fitted_part(histories, usable)
    year = replace(fitted, seasons=())  # homes' own laws; the seasons' are made of their readings
    if pooled and terms.law != "auto":
        family, law_scores, early, late = terms.law, dict[str, float](), None, None
    else:
        family, law_scores, early, late = _family(year, habits, terms, begin)
        if fitted.seasons:
            early, late = split_held_out(fitted) or (None, None)
    design = design_for(year, habits, terms, family)
    edges = common_edges(fitted.wh, fitted.offset) if family == "histogram" else None
    fits = fit(
        fitted.wh,
        design,
        labels=_labels(fitted, design),
        edges=edges,
        tick=begin(f"fitting, {family}", len(usable)),
    )
    top = int(np.nanmax(fitted.wh)) if np.isfinite(fitted.wh).any() else 1
    top = max(top, 1)
    bare = Learned(
        ids=histories.ids,
        ails=ails,
        usable=usable,
        fits=fits,
        shared=None,
        public=(),
        family=family,
        tried=law_scores,
        starts=terms.starts,
        groups_tried={},
        seconds=histories.seconds,
        begins=histories.begins,
        ends=histories.begins + histories.seconds * histories.wh.shape[1],
        habits=habits.source,
        terms=terms,
        held_out=None,
        trust=None,
        accuracy={},
        home_share=np.zeros(0),
        vacant=np.array(
            [vacant_days(row, histories.seconds).sum() for row in histories.wh], np.intp
        ),
        top=top,
        edges=edges,
        seasons=histories.seasons,
    )
    choices = [starts_of(n) for n in terms.groups if 24 // n * 3600 >= histories.seconds]
    choices = choices or [terms.starts]
    if pooled:
        to = choices[-1]
        fine = design_for(fitted, habits, replace(terms, starts=to), family)
        return replace(bare, fits=_by_groups(fitted, fits, terms.starts, fine, to), starts=to)
    k = min(terms.prototypes or len(usable), len(usable))
    shared = prototypes(fitted.wh, fits, k, tick=begin("sharing models", ROUNDS))
    best, judged = bare, tuple[PublishedGroup, ...]()
    scores: dict[int, float] = {}
    progress: Callable[..., None] = begin("trying slot groups", len(choices))
    for to in choices if early is not None else choices[:1]:
        fitting = replace(terms, starts=to)
        design = design_for(fitted, habits, fitting, family)
        refined = _refined(fitted, fits, shared, terms.starts, design, to)
        public = published_groups(refined.models, to, refined.group_of, fitted.seasons)
        candidate = replace(bare, shared=refined, public=public, starts=to)
        if early is not None and late is not None:
            last_days, public = _held_out(early, late, habits, fitting, family, refined, bare.top)
            candidate = replace(candidate, held_out=last_days)
            scores[len(to)] = last_days.log_likelihood
        if not judged or scores[len(to)] > scores[len(best.starts)]:
            best, judged = candidate, public
        progress(1)
    fine = design_for(fitted, habits, replace(terms, starts=best.starts), family)
    best = replace(best, fits=_by_groups(fitted, fits, terms.starts, fine, best.starts))
    judged_on = late if late is not None else fitted
    return replace(
        with_decoding(best, histories, habits),
        groups_tried=scores if len(scores) > 1 else {},
        trust=estimate_trust(judged_on, judged, shared.group_of, bare.top),
    )


def _of_net_readings(terms: LearningTerms, *, pooled: bool) -> LearningTerms:
    """Options for homes that export: histograms, whose bins are on either side of 0 Wh."""
    if terms.law not in ("auto", "histogram"):
        raise ModelError(
            f"law is {terms.law!r}, which has no readings below 0 Wh, but the homes export; give"
            " histogram."
        )
    if pooled:
        raise ModelError(
            "a pool budget is set and the homes export, but noisy sums are of readings from 0 Wh"
            " on; learn without a pool budget."
        )
    return replace(terms, law="histogram")


def with_decoding(result: Learned, histories: Histories, habits: Habits) -> Learned:
    """Add `accuracy` and `home_share` from the homes' own fits.

    Args:
        result: What was learned.
        histories: Histories of all homes.
        habits: Prior on moves.

    Returns:
        The completed result.
    """
    fitted = _fitted_part(histories, result.usable)
    labels = _labels(fitted, result.fits.design)
    return replace(
        result,
        accuracy=_accuracy(fitted, habits, result.terms, result.family, result.edges),
        home_share=posterior(fitted.wh, result.fits, labels=labels).mean(axis=1),
    )


def _fitted_part(histories: Histories, usable: Indices) -> Histories:
    """The homes that are fitted, with readings below a public bound.

    Laws are tabulated up to the largest reading, which one home can make arbitrarily large.
    """
    return clamped(
        histories.homes(usable), max(MOST_W * histories.seconds // 3600, 1) + histories.export
    )


def _refined(
    histories: Histories, fits: Fit, shared: Prototypes, starts: tuple[int, ...], design: Design,
    to: tuple[int, ...],
) -> Prototypes:  # fmt: skip
    """Prototypes of the same homes under other slot groups."""
    if to == starts and design.seasons == 1:
        return shared
    models = split_laws(shared.models, starts, design, to)
    for _ in range(ROUNDS):
        counts = expected(histories.wh, select_homes(models, shared.group_of))
        models = grouped_models(replace(fits, design=design), counts, shared.group_of, shared.k)
    return replace(shared, models=models)


def _by_groups(
    histories: Histories, fits: Fit, starts: tuple[int, ...], design: Design, to: tuple[int, ...]
) -> Fit:
    """The homes' own fits with their counts under other slot groups; a home's are its own alone."""
    if to == starts and design.seasons == 1:
        return fits
    split = split_laws(fits, starts, design, to)
    counts = expected(histories.wh, split, labels=_labels(histories, design))
    return replace(split, sums=counts.sums, moves=counts.moves)


def _labels(histories: Histories, design: Design) -> Int8s | None:
    """Labels as fits take them: 0 away, -1 unknown, at home any state but 0 (-2 of three).

    Vacant days count as away.
    """
    unknown = np.full(histories.wh.shape, -1, np.int8)
    labels = unknown if histories.labels is None else histories.labels.copy()
    steps = histories.steps_a_day
    for row, wh in zip(labels, histories.wh, strict=True):
        still = np.repeat(vacant_days(wh, histories.seconds), steps)
        row[: len(still)][still & (row[: len(still)] == -1)] = 0
    if (labels == -1).all():
        return None
    if design.states > 2:
        labels[labels == 1] = -2
    return labels


def _family(
    histories: Histories, habits: Habits, terms: LearningTerms, begin: Watch
) -> tuple[Family, dict[str, float], Histories | None, Histories | None]:
    """The family of laws, held-out scores of the families tried, and both parts."""
    parts = split_held_out(histories)
    if parts is None:
        return (AUTO[0] if terms.law == "auto" else terms.law), {}, None, None
    early, after = parts
    if terms.law != "auto":
        return terms.law, {}, early, after
    scores: dict[str, float] = {}
    sample = _sample(early)
    for family in AUTO:
        part = early.homes(sample)
        design = design_for(part, habits, terms, family)
        edges = common_edges(histories.wh, histories.offset) if family == "histogram" else None
        tick = begin(f"trying {family}", len(sample))
        fits = fit(part.wh, design, labels=_labels(part, design), edges=edges, tick=tick)
        held_part = after.homes(sample)
        under = replace(fits, design=design_for(held_part, habits, terms, family))
        n_readings = np.isfinite(held_part.wh).sum()
        scores[family] = float(
            expected(held_part.wh, under).log_likelihood.sum() / max(n_readings, 1)
        )
    best = max(scores, key=lambda name: scores[name])
    return next(f for f in AUTO if f == best), scores, early, after


def split_held_out(histories: Histories) -> tuple[Histories, Histories] | None:
    """Split histories into all days but the last, and the last days.

    Args:
        histories: The histories.

    Returns:
        Both parts; None with too few days or readings.
    """
    steps, day = histories.wh.shape[1], histories.steps_a_day
    late = int(steps * HELD_OUT) // day * day
    if late < LEAST_HELD * day:
        return None
    cut = steps - late
    parts = histories.steps(slice(0, cut)), histories.steps(slice(cut, steps))
    return parts if all(np.isfinite(part.wh).any() for part in parts) else None


def _sample(histories: Histories) -> Indices:
    """At most 16 homes, spread over all: enough to compare families."""
    n = len(histories.ids)
    return np.unique(np.linspace(0, n - 1, min(n, 16)).astype(np.intp))


def _held_out(
    early: Histories, late: Histories, habits: Habits, terms: LearningTerms, family: Family,
    shared: Prototypes, top: int,
) -> tuple[HeldOut, tuple[PublishedGroup, ...]]:  # fmt: skip
    """Prototypes of the early part only, in the same groups, scored on the late part.

    Laws reach up to `top` [Wh], the largest reading of both parts.
    """
    design = design_for(early, habits, terms, family)
    spread = select_homes(shared.models, shared.group_of)
    before = expected(early.wh, replace(spread, design=design), labels=_labels(early, design))
    early_fits = replace(spread, design=design, readings=np.isfinite(early.wh).sum(axis=1))
    models = grouped_models(early_fits, before, shared.group_of, shared.k)
    judged = published_groups(models, terms.starts, shared.group_of, early.seasons)
    return held_out_scores(early, late, judged, shared.group_of, top), judged


def held_out_scores(
    early: Histories,
    late: Histories,
    public: tuple[PublishedGroup, ...],
    group_of: Indices,
    top: int,
) -> HeldOut:
    """Scores of the last days.

    Args:
        early: The days before.
        late: The last days.
        public: The groups.
        group_of: (homes,) group of each home.
        top: Largest reading of the laws [Wh].

    Returns:
        The scores.
    """
    score = marginal_scores(late, public, group_of, top)
    forecast, slot_mean = forecast_errors(early, late, public, group_of, top)
    plain = plain_scores(early, late, group_of, len(public))
    slot = late.local_time % DAY // late.seconds

    def by_slot(values: Floats) -> Floats:
        slot_values = [np.append(values[:, slot == s], np.nan) for s in range(late.steps_a_day)]
        return np.array([np.nanmean(x) if np.isfinite(x).any() else np.nan for x in slot_values])

    days = late.wh.shape[1] / late.steps_a_day
    return HeldOut(
        days, by_slot(score), by_slot(plain), float(np.nanmean(score)), forecast, slot_mean
    )


def _accuracy(
    histories: Histories, habits: Habits, terms: LearningTerms, family: Family, edges: Floats | None
) -> dict[str, Any]:
    """With labels: accuracy of decoding, trained without labels and with a few labelled days."""
    if histories.labels is None or not (histories.labels >= 0).any():
        return {}
    bare = replace(histories, labels=None)
    design = design_for(bare, habits, terms, family)
    without = fit(bare.wh, design, labels=_labels(bare, design), edges=edges)
    first_labels = _few_days(histories)
    few_days = replace(histories, labels=first_labels)
    guided = fit(few_days.wh, design, labels=_labels(few_days, design), edges=edges)
    other_labels = np.where(first_labels >= 0, np.int8(-1), histories.labels).astype(np.int8)
    return {
        "without_labels": decoding_accuracy(
            histories, histories.labels, posterior(bare.wh, without)
        ),
        "without_labels_on_the_rest": decoding_accuracy(
            histories, other_labels, posterior(bare.wh, without)
        ),
        "few_days_on_the_rest": decoding_accuracy(
            histories,
            other_labels,
            posterior(few_days.wh, guided, labels=_labels(few_days, design)),
        ),
        "few_days": FEW,
    }


FEW = 7


def _few_days(histories: Histories) -> Int8s:
    """The labels of each home's first labelled days only."""
    assert histories.labels is not None
    labels = np.full(histories.labels.shape, -1, np.int8)
    steps = histories.steps_a_day
    for h, row in enumerate(histories.labels):
        days = np.unique(np.flatnonzero(row >= 0) // steps)[:FEW]
        mask = np.isin(np.arange(len(row)) // steps, days)
        labels[h, mask] = row[mask]
    return labels
