"""Learned models compared with readings, and what a zone file says of them.

Contents: two-state chains and laws of absent and present; scores by slot and day; accuracy of
decoding; bounds on the share of readings that the laws misdescribe.

Eta means: given occupancy, a reading follows (1 - eta) f + eta g with g arbitrary. So for every set
B of readings p(B) >= (1 - eta) f(B). A few bins of about equal mass under f are such sets: eta is
at least 1 - p(B)/f(B). With labels p is observed for each state, and an upper confidence bound
follows, at the resolution of the bins. Without labels only the mixture of both states is observed:
a lower bound, and eta stays an assumption. Readings of a day are dependent, so days are the units
of confidence (design effect), and all bins are tested at once (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Indices, Int8s, Ints
from hushgrid.errors import ConsumptionError, ModelError
from hushgrid.learning.em import Fit
from hushgrid.learning.habits import Habits, stationary
from hushgrid.learning.histories import DAY, Histories
from hushgrid.model.laws import FAMILIES, Law, Mixture

_DIGITS = 4  # of a law's numbers in a file
_NAMES = {
    "gamma": ("shape", "scale"),
    "lognormal": ("median", "spread"),
    "normal": ("centre", "spread"),
}


@dataclass(frozen=True, slots=True, eq=False)
class PublishedGroup:
    """Chain and laws of a group of homes, as a zone file has them.

    Attributes:
        chain: Two-state chain.
        absent: Table of the law of an empty home, from midnight on where there are several.
        present: Table of the law of an occupied home, for each slot group.
        starts: First hour of each slot group of a day.
        homes: Number of homes.
        empty: Tables of the law of an empty home by slot group, where panels make it depend on the
            time of day, or where there are seasons; else none.
        seasons: Months of each season; slot groups are those of a day, for each season. None: all
            of the year.
    """

    chain: Habits
    absent: dict[str, Any]
    present: tuple[dict[str, Any], ...]
    starts: tuple[int, ...]
    homes: int
    empty: tuple[dict[str, Any], ...] = ()
    seasons: tuple[tuple[int, ...], ...] = ()

    def slot_group(self, histories: Histories) -> Ints:
        """(steps,) slot group of each step of histories, which know the same seasons."""
        seasonal = (
            histories if histories.seasons == self.seasons else replace(histories, seasons=())
        )
        if self.seasons and not seasonal.seasons:
            raise ModelError(f"laws have seasons {self.seasons} and histories {histories.seasons}.")
        return seasonal.slot_group(self.starts)

    @property
    def places(self) -> tuple[str, ...]:
        """When each slot group begins, in words."""
        months = [f" of months {','.join(map(str, season))}" for season in self.seasons] or [""]
        return tuple(f"{start:02d}:00{season}" for season in months for start in self.starts)

    def laws(self, bound: int) -> tuple[tuple[Law, ...], tuple[Law, ...]]:
        """The laws of absent and present by slot group, on 0..bound [Wh].

        A law without mass there is put on the bound.
        """
        tables = self.within(bound)
        empty = tuple(law_of_table(t, bound) for t in tables.empty or (tables.absent,))
        empty = empty if tables.empty else empty * len(tables.present)
        return empty, tuple(law_of_table(t, bound) for t in tables.present)

    def within(self, bound: int) -> PublishedGroup:
        """The same with tables that are laws on 0..bound [Wh]."""
        present, empty = (
            tuple(_within(table, bound) for table in tables)
            for tables in (self.present, self.empty)
        )
        return replace(self, absent=_within(self.absent, bound), present=present, empty=empty)


def published_groups(
    models: Fit,
    starts: tuple[int, ...],
    group_of: Indices,
    seasons: tuple[tuple[int, ...], ...] = (),
) -> tuple[PublishedGroup, ...]:
    """Reduce models to two states; state 0 is absent, all others are present.

    Args:
        models: One model per group.
        starts: First hour of each slot group of a day.
        group_of: (homes,) group of each home.
        seasons: Months of each season that has slot groups of its own; none: the year has one.

    Returns:
        One entry per group.
    """
    counts = models.moves + models.design.moves
    groups = []
    for j in range(models.homes):
        a = two_states(counts[j])
        chain = Habits(a, stationary(a), "learned")
        absent = _table(models, j, 0, 0)
        present = tuple(_present(models, j, g) for g in range(models.design.groups))
        tie = models.design.tie
        empty_groups = (
            range(models.design.groups) if tie.size and len(np.unique(tie[:, 0])) > 1 else ()
        )
        empty = tuple(_table(models, j, g, 0) for g in empty_groups)
        homes = int((group_of == j).sum())
        groups.append(PublishedGroup(chain, absent, present, starts, homes, empty, seasons))
    return tuple(groups)


def two_states(counts: Floats) -> Floats:
    """Moves between absent and present.

    Args:
        counts: (slots, K, K) counts of moves; state 0 is absent.

    Returns:
        (slots, 2, 2) probabilities.
    """
    away, home = counts[:, 0], counts[:, 1:].sum(axis=1)
    flows = np.stack(
        [
            np.stack([away[:, 0], away[:, 1:].sum(axis=1)], axis=1),
            np.stack([home[:, 0], home[:, 1:].sum(axis=1)], axis=1),
        ],
        axis=1,
    )
    return np.asarray(flows / flows.sum(axis=2, keepdims=True))


def _present(models: Fit, j: int, g: int) -> dict[str, Any]:
    """The law of an occupied home: that of the one state, or a mixture of quiet and active."""
    states = range(1, models.design.states)
    counts = np.maximum(models.counts[j, g, 1:], 0) + 0.5
    shares = np.round(counts / counts.sum(), _DIGITS)
    shares[-1] = 1 - shares[:-1].sum()
    parts = [_table(models, j, g, k) for k in states]
    if len(parts) == 1:
        return parts[0]
    mixed = [
        {"share": float(round(s, _DIGITS)), **part} for s, part in zip(shares, parts, strict=True)
    ]
    return {"law": "mixture", "parts": mixed}


def _table(models: Fit, j: int, g: int, k: int) -> dict[str, Any]:
    family, values = models.design.family, models.parameters[j, g, k]
    if family == "histogram":
        weights = np.maximum(np.round(values, 7), 0)
        return {
            "law": "bins",
            "edges": [int(edge) for edge in models.edges[j]],
            "weights": [float(w) for w in weights],
        }
    return {"law": family} | {
        name: float(f"{value:.{_DIGITS}g}")
        for name, value in zip(_NAMES[family], values, strict=True)
    }


def _within(table: dict[str, Any], bound: int) -> dict[str, Any]:
    """A law's table, or that of the clamped reading where 0..bound [Wh] has none of its mass."""
    if table["law"] == "mixture":
        return {**table, "parts": [_within(part, bound) for part in table["parts"]]}
    try:
        law_of_table(table, bound).pmf  # noqa: B018
    except ConsumptionError:
        share = {key: table[key] for key in ("share",) if key in table}
        return {**share, "law": "bins", "edges": [0, bound, bound + 1], "weights": [0.0, 1.0]}
    return table


def law_of_table(table: dict[str, Any], bound: int) -> Law:
    """The law of a zone file's table.

    >>> law_of_table({"law": "uniform"}, 10)
    Uniform(top=10)

    Args:
        table: The table.
        bound: Largest reading [Wh].

    Returns:
        The law on 0..bound.
    """
    if table["law"] == "mixture":
        parts = table["parts"]
        return Mixture([law_of_table(p, bound) for p in parts], [p["share"] for p in parts])
    arguments = {key: value for key, value in table.items() if key not in ("law", "share")}
    return FAMILIES[table["law"]](**{"top": bound} | arguments)


CONFIDENCE = 0.95


def marginal_scores(
    histories: Histories, public: tuple[PublishedGroup, ...], group_of: Indices, top: int
) -> Floats:
    """Log-probability of each reading under its slot's mixture of both laws.

    Args:
        histories: The histories.
        public: The groups.
        group_of: (homes,) group of each home.
        top: Largest reading of the laws [Wh].

    Returns:
        (homes, steps) scores, NaN where a reading is missing.
    """
    return scores_and_ranks(histories, public, group_of, top)[0]


def scores_and_ranks(
    histories: Histories, public: tuple[PublishedGroup, ...], group_of: Indices, top: int
) -> tuple[Floats, Floats]:
    """Log-probability of each reading, and its rank: the share of the law below it.

    Args:
        histories: The histories.
        public: The groups.
        group_of: (homes,) group of each home.
        top: Largest reading of the laws [Wh].

    Returns:
        (homes, steps) scores and ranks from 0 to 1, NaN where a reading is missing. Half of the
        probability of the reading itself counts as below it.
    """
    score, rank = np.full((2, *histories.wh.shape), np.nan)
    for j, published in enumerate(public):
        members = np.flatnonzero(group_of == j)
        absent, present = published.laws(top)
        group = published.slot_group(histories)
        home = published.chain.home[histories.slot]
        f0, f1 = (np.stack([law.pmf for law in laws]) for laws in (absent, present))
        below0, below1 = (np.cumsum(f, axis=-1) - f / 2 for f in (f0, f1))
        for h in members:
            finite = np.flatnonzero(np.isfinite(histories.wh[h]))
            x = np.clip(np.rint(histories.wh[h, finite]), 0, top).astype(np.int64)
            at = group[finite], x
            p = (1 - home[finite]) * f0[at] + home[finite] * f1[at]
            score[h, finite] = np.log(np.maximum(p, 1e-12))
            rank[h, finite] = (1 - home[finite]) * below0[at] + home[finite] * below1[at]
    return score, rank


def forecast_errors(
    early: Histories,
    late: Histories,
    public: tuple[PublishedGroup, ...],
    group_of: Indices,
    top: int,
) -> tuple[float, float]:
    """Errors of two forecasts of the load of late days, root mean square over mean load.

    Args:
        early: Days that both forecasts come from.
        late: Days that are forecast.
        public: The groups.
        group_of: (homes,) group of each home.
        top: Largest reading of the laws [Wh].

    Returns:
        The error of the groups' mean readings, and of each home's mean reading by slot.
    """
    hour = np.tile(np.arange(early.steps_a_day) * early.seconds // 3600, 2)
    groups = np.empty((len(public), len(late.local_time)))
    for mean, published in zip(groups, public, strict=True):
        absent, present = published.laws(top)
        away, at_home = (np.array([law.mean for law in laws]) for laws in (absent, present))
        group, home = published.slot_group(late), published.chain.home[late.slot]
        mean[:] = (1 - home) * away[group] + home * at_home[group]
    finite = np.isfinite(early.wh)
    place = (np.arange(len(finite))[:, None] * len(hour) + early.slot)[finite]
    size = finite.shape[0] * len(hour)
    count = np.bincount(place, minlength=size).reshape(-1, len(hour))
    total = np.bincount(place, early.wh[finite], size).reshape(-1, len(hour))
    slot_mean = total / np.maximum(count, 1)
    usable = np.isfinite(late.wh) & (count > 0)[:, late.slot]
    load = np.where(usable, late.wh, 0).sum(axis=0)
    errors = [
        np.where(usable, mean, 0).sum(axis=0) - load
        for mean in (groups[group_of], slot_mean[:, late.slot])
    ]
    level = max(float(load.mean()), 1e-9)
    forecast, slots = (float(np.sqrt(np.mean(error**2))) / level for error in errors)
    return forecast, slots


def plain_scores(early: Histories, late: Histories, group_of: Indices, k: int) -> Floats:
    """Log-probability of each reading under one log-normal law per group, fitted to the early part.

    Args:
        early: Histories that the laws are fitted to.
        late: Histories that are scored.
        group_of: (homes,) group of each home.
        k: Number of groups.

    Returns:
        (homes, steps) scores of `late`, NaN where a reading is missing.
    """
    level = np.full(late.wh.shape, np.nan)
    for j in range(k):
        members = np.flatnonzero(group_of == j)
        log = np.log(early.wh[members] + 0.5)
        finite = np.isfinite(log)
        mean, sd = (
            (log[finite].mean(), max(log[finite].std(), 0.05)) if finite.any() else (0.0, 1.0)
        )
        y = np.log(late.wh[members] + 0.5)
        level[members] = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi)) - y
    return level


class _Piece(NamedTuple):
    """A law, and the readings that should follow it."""

    name: str
    law: Law
    members: Indices
    steps: Bools
    state: int | None


def estimate_trust(
    histories: Histories,
    public: tuple[PublishedGroup, ...],
    group_of: Indices,
    top: int,
) -> TrustBounds:
    """Bounds on the misdescribed share: of each law with labels, of the mixture without.

    A law without labelled readings has no upper bound but 1.

    Args:
        histories: The histories.
        public: The groups.
        group_of: (homes,) group of each home.
        top: Largest reading of the laws [Wh].

    Returns:
        The bounds.
    """
    labelled = histories.labels is not None and bool((histories.labels >= 0).any())
    pieces: list[_Piece] = []
    for j, published in enumerate(public):
        members = np.flatnonzero(group_of == j)
        if members.size:
            pieces += _pieces(histories, published, members, f"group {j + 1}", labelled, top)
    cells = [
        check_law(piece.name, piece.law, *_chosen(histories, piece), CONFIDENCE, len(pieces))
        for piece in pieces
    ]
    return trust_bounds(cells, CONFIDENCE, labelled=labelled)


def _pieces(
    histories: Histories,
    published: PublishedGroup,
    members: Indices,
    name: str,
    labelled: bool,
    top: int,
) -> list[_Piece]:
    group, places = published.slot_group(histories), published.places
    absent, present = published.laws(top)
    pieces = []
    if labelled:
        overall = [(f"{name}, absent", absent[0], group >= 0)]
        starts = zip(places, absent, strict=True)
        by_start = [
            (f"{name}, absent from {start}", law, group == g)
            for g, (start, law) in enumerate(starts)
        ]
        for place, law, mask in by_start if published.empty else overall:
            pieces.append(_Piece(place, law, members, mask, 0))
    for g, law in enumerate(present):
        mask = group == g
        place = f"{name}, {'present' if labelled else 'all'} from {places[g]}"
        if labelled:
            pieces.append(_Piece(place, law, members, mask, 1))
        else:
            home = float(published.chain.home[histories.slot[mask]].mean()) if mask.any() else 0.5
            mixed = Mixture([absent[g], law], [1 - home, home])
            pieces.append(_Piece(place, mixed, members, mask, None))
    return pieces


def _chosen(histories: Histories, piece: _Piece) -> tuple[Floats, Ints]:
    """The readings of a piece, and the home's day of each."""
    day = np.arange(histories.wh.shape[1]) // histories.steps_a_day
    place = np.ix_(piece.members, np.flatnonzero(piece.steps))
    x = histories.wh[place]
    days = day[piece.steps][None] + piece.members[:, None] * (int(day.max()) + 1)
    keep = np.isfinite(x)
    if piece.state is not None and histories.labels is not None:
        keep &= histories.labels[place] == piece.state
    return x[keep], np.broadcast_to(days, x.shape)[keep]


def decoding_accuracy(histories: Histories, labels: Int8s, post: Floats) -> dict[str, float]:
    """Share of labelled readings with the right decoded occupancy: all hours, and 06 to 22 h.

    Args:
        histories: The histories.
        labels: (homes, steps) 1 occupied, 0 not, negative unknown.
        post: (homes, steps) decoded probabilities of being occupied.

    Returns:
        "all", "06-22", "majority" (share of the more frequent label) and "readings" (their number).
    """
    hour = histories.local_time % DAY // 3600
    labelled = (labels >= 0) & np.isfinite(histories.wh)
    correct = (post > 0.5) == (labels == 1)
    day = labelled & ((hour >= 6) & (hour < 22))
    major = (
        max(float((labels[labelled] == 1).mean()), float((labels[labelled] == 0).mean()))
        if labelled.any()
        else 0.0
    )
    return {
        "all": float(correct[labelled].mean()) if labelled.any() else 0.0,
        "06-22": float(correct[day].mean()) if day.any() else 0.0,
        "majority": major,
        "readings": int(labelled.sum()),
    }


BINS = 5


@dataclass(frozen=True, slots=True)
class LawCheck:
    """Readings of one state and slot group compared with one law.

    Attributes:
        name: Group, state and hours.
        readings: Number of readings.
        effective: Equivalent number of independent readings.
        point: Point estimate of eta.
        lower: Lower bound of eta.
        upper: Upper bound of eta.
    """

    name: str
    readings: int
    effective: float
    point: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class TrustBounds:
    """Bounds on the misdescribed share.

    Attributes:
        lower: Lower bound.
        upper: Upper bound; None without labels.
        confidence: Confidence of the bounds.
        cells: The laws compared.
    """

    lower: float
    upper: float | None
    confidence: float
    cells: tuple[LawCheck, ...]

    @property
    def suggested(self) -> float:
        """The upper bound rounded up, or 1 where nothing supports a smaller eta."""
        if self.upper is None or self.upper >= 0.9:
            return 1.0
        return min(1.0, math.ceil(self.upper * 100) / 100)

    @property
    def reasoning(self) -> str:
        """The bounds in words."""
        if self.upper is None:
            return (
                f"no labels: the readings show that at least {self.lower:.1%} is misdescribed"
                f" ({self.confidence:.0%} confidence); nothing bounds it from above, so any eta"
                " below 1 is an assumption of the person who sets it"
            )
        worst = max(self.cells, key=lambda cell: cell.upper)
        return (
            f"labels: at most {self.upper:.1%} of readings is misdescribed at {self.confidence:.0%}"
            f" confidence, {BINS} bins a law; the worst is {worst.name}, {worst.readings} readings"
            f" worth {worst.effective:.0f} independent ones"
        )


def quantile_bins(law: Law, bins: int = BINS) -> Ints:
    """Bins of about equal mass under a law.

    Args:
        law: The law.
        bins: Number of bins.

    Returns:
        Upper ends [Wh]; the last is the law's largest value.
    """
    cdf = np.cumsum(law.pmf)
    ends = np.searchsorted(cdf, np.arange(1, bins) / bins)
    return np.unique(np.append(ends, law.top)).astype(np.int64)


def check_law(
    name: str, law: Law, readings: Floats, days: Ints, confidence: float, cells: int
) -> LawCheck:
    """Compare readings with the law they should follow.

    Args:
        name: Name of the comparison.
        law: The law.
        readings: (n,) readings [Wh]; NaN is left out.
        days: (n,) day of each; readings of a day are dependent.
        confidence: Confidence of all comparisons together.
        cells: Number of comparisons.

    Returns:
        Estimate and bounds of eta.
    """
    finite = np.isfinite(readings)
    x, day = np.clip(np.rint(readings[finite]), 0, law.top).astype(np.int64), days[finite]
    ends = quantile_bins(law)
    f = np.diff(np.concatenate([[0.0], np.cumsum(law.pmf)[ends]]))
    inside = np.searchsorted(ends, x)[:, None] == np.arange(len(ends))
    if not len(x):
        return LawCheck(name, 0, 0.0, 0.0, 0.0, 1.0)
    p, effective = inside.mean(axis=0), _effective(inside, day)
    tail = (1 - confidence) / (cells * len(ends))
    low, high = clopper_pearson(p, effective, tail)
    # p(B) >= (1 - eta) f(B) holds for a bin without mass, whatever eta is
    positive = f > 0
    point, lower, upper = (float((1 - at[positive] / f[positive]).max()) for at in (p, high, low))
    return LawCheck(
        name, len(x), float(effective.min()), max(point, 0), max(lower, 0), max(upper, 0)
    )


def _effective(inside: Bools, day: Ints) -> Floats:
    """Equivalent number of independent readings of each bin: n over the design effect."""
    n, p = len(inside), inside.mean(axis=0)
    _, index = np.unique(day, return_inverse=True)
    days = int(index.max()) + 1
    off = np.zeros((days, inside.shape[1]))
    np.add.at(off, index, inside - p)
    clustered = (off**2).sum(axis=0) * days / max(days - 1, 1)
    alone = np.maximum(n * p * (1 - p), 1e-9)
    return np.asarray(n / np.maximum(clustered / alone, 1.0))


def clopper_pearson(p: Floats, n: Floats, tail: float) -> tuple[Floats, Floats]:
    """Exact limits for shares of trials.

    Args:
        p: Shares.
        n: Numbers of trials, not necessarily whole.
        tail: Probability of an error on each side.

    Returns:
        Lower and upper limits.
    """
    from scipy.special import betaincinv

    k = p * n
    low = np.where(k > 0, betaincinv(np.maximum(k, 1e-12), n - k + 1, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-12), 1 - tail), 1.0)
    return low, high


def trust_bounds(cells: Iterable[LawCheck], confidence: float, *, labelled: bool) -> TrustBounds:
    """The worst bounds of all comparisons: eta must hold in each of them.

    Args:
        cells: The comparisons.
        confidence: Their confidence.
        labelled: Whether there are labels; without them there is no upper bound.

    Returns:
        The bounds.
    """
    checks = tuple(cells)
    tested = [cell for cell in checks if cell.readings]
    lower = max((cell.lower for cell in tested), default=0.0)
    upper = max((cell.upper for cell in checks), default=1.0) if labelled else None
    return TrustBounds(lower, None if upper is None else min(upper, 1.0), confidence, checks)
