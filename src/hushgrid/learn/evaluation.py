"""Models held against readings: scores by slot and day, trust, accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Indices, Int8s, Ints
from hushgrid.errors import ConsumptionError
from hushgrid.learn.em import Fit
from hushgrid.learn.habits import Habits, model_of, stationary
from hushgrid.learn.histories import DAY, Histories
from hushgrid.model.laws import FAMILIES, Law, Mixture
from hushgrid.model.occupancy import OccupancyModel

# --------------------------------------------------------------------------------------------------
# From fitted models to what a zone file says: two-state chains and laws of absent and present.


_DIGITS = 4  # of a law's numbers in a file
_NAMES = {
    "gamma": ("shape", "scale"),
    "lognormal": ("median", "spread"),
    "normal": ("centre", "spread"),
}


@dataclass(frozen=True, slots=True, eq=False)
class PublishedGroup:
    """What is published about a group of homes: a chain and laws, as a zone file has them.

    `absent` is a law's table, `present` one for each slot group that begins at `starts` [h].
    """

    chain: Habits
    absent: dict[str, Any]
    present: tuple[dict[str, Any], ...]
    starts: tuple[int, ...]
    homes: int

    def laws(self, bound: int) -> tuple[Law, tuple[Law, ...]]:
        """The laws on 0..bound [Wh]; one without mass there is on the bound, as after a clamp."""
        own = self.within(bound)
        return law_of_table(own.absent, bound), tuple(law_of_table(t, bound) for t in own.present)

    def within(self, bound: int) -> PublishedGroup:
        """The same with tables that are laws on 0..bound [Wh]."""
        present = tuple(_within(table, bound) for table in self.present)
        return replace(self, absent=_within(self.absent, bound), present=present)


def publics(models: Fit, starts: tuple[int, ...], which: Indices) -> tuple[PublishedGroup, ...]:
    """What each model says in two states; state 0 is absent, all others are present."""
    counts = models.moves + models.design.moves
    found = []
    for j in range(models.homes):
        a = two_states(counts[j])
        chain = Habits(a, stationary(a), "learned")
        absent = _table(models, j, 0, 0)
        present = tuple(_present(models, j, g) for g in range(models.design.groups))
        found.append(PublishedGroup(chain, absent, present, starts, int((which == j).sum())))
    return tuple(found)


def two_states(counts: Floats) -> Floats:
    """(slots, 2, 2) moves between absent and present, from counts (slots, K, K) of moves."""
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
    """The law of somebody at home: that of the one state, or a mixture of quiet and active."""
    states = range(1, models.design.states)
    seen = np.maximum(models.seen[j, g, 1:], 0) + 0.5
    shares = np.round(seen / seen.sum(), _DIGITS)
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
    """A law's table, or that of its clamped reading where 0..bound [Wh] has none of its mass."""
    if table["law"] == "mixture":
        return {**table, "parts": [_within(part, bound) for part in table["parts"]]}
    try:
        law_of_table(table, bound).pmf  # noqa: B018
    except ConsumptionError:
        share = {key: table[key] for key in ("share",) if key in table}
        return {**share, "law": "bins", "edges": [0, bound, bound + 1], "weights": [0.0, 1.0]}
    return table


def law_of_table(table: dict[str, Any], bound: int) -> Law:
    """The law that a zone file's table means.

    >>> law_of_table({"law": "uniform"}, 10)
    Uniform(top=10)
    """
    if table["law"] == "mixture":
        parts = table["parts"]
        return Mixture([law_of_table(p, bound) for p in parts], [p["share"] for p in parts])
    arguments = {key: value for key, value in table.items() if key not in ("law", "share")}
    return FAMILIES[table["law"]](**{"top": bound} | arguments)


def theta(found: tuple[PublishedGroup, ...], chain_of: Indices, name: str) -> OccupancyModel:
    """The occupancy model of houses that follow these chains."""
    return model_of([one.chain for one in found], chain_of, name)


CONFIDENCE = 0.95


def marginal_scores(
    found: Histories, public: tuple[PublishedGroup, ...], which: Indices, top: int
) -> Floats:
    """(homes, steps) log-probability of each reading under its slot's mixture of both laws."""
    score = np.full(found.wh.shape, np.nan)
    hour = found.shown % DAY // 3600
    for j, one in enumerate(public):
        members = np.flatnonzero(which == j)
        absent, present = one.laws(top)
        group = np.searchsorted(one.starts, hour, side="right") - 1
        home = one.chain.home[found.slot]
        f0, f1 = absent.pmf, np.stack([law.pmf for law in present])
        for h in members:
            seen = np.flatnonzero(np.isfinite(found.wh[h]))
            x = np.clip(np.rint(found.wh[h, seen]), 0, top).astype(np.int64)
            p = (1 - home[seen]) * f0[x] + home[seen] * f1[group[seen], x]
            score[h, seen] = np.log(np.maximum(p, 1e-12))
    return score


def plain_scores(early: Histories, late: Histories, which: Indices, k: int) -> Floats:
    """The same under one log-normal law a group of homes, fitted on the early part."""
    level = np.full(late.wh.shape, np.nan)
    for j in range(k):
        members = np.flatnonzero(which == j)
        log = np.log(early.wh[members] + 0.5)
        seen = np.isfinite(log)
        mean, sd = (log[seen].mean(), max(log[seen].std(), 0.05)) if seen.any() else (0.0, 1.0)
        y = np.log(late.wh[members] + 0.5)
        level[members] = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi)) - y
    return level


def daily_scores(
    found: Histories, public: tuple[PublishedGroup, ...], which: Indices, top: int
) -> Floats:
    """(homes, 3): mean, standard deviation and number of each home's daily mean scores."""
    each = by_day(marginal_scores(found, public, which, top), found.steps_a_day)
    rows = []
    for row in each:
        good = row[np.isfinite(row)]
        sd = float(good.std(ddof=1)) if len(good) > 1 else 0.0
        rows.append((float(good.mean()) if len(good) else 0.0, sd, float(len(good))))
    return np.array(rows)


def by_day(score: Floats, steps: int) -> Floats:
    """(homes, days) means over whole days of which at least half is known."""
    days = score[:, : score.shape[1] // steps * steps].reshape(len(score), -1, steps)
    seen = np.isfinite(days)
    total = np.where(seen, days, 0.0).sum(axis=2)
    count = seen.sum(axis=2)
    return np.where(count * 2 >= steps, total / np.maximum(count, 1), np.nan)


class _Piece(NamedTuple):
    """A law, and which readings should follow it."""

    name: str
    law: Law
    members: Indices
    steps: Bools
    state: int | None


def trust_of(
    found: Histories,
    public: tuple[PublishedGroup, ...],
    which: Indices,
    starts: tuple[int, ...],
    top: int,
) -> TrustBounds:
    """Bounds on the misdescribed share: of each law with labels, of the mixture without.

    A law that no label speaks of has no upper bound but 1.
    """
    labelled = found.labels is not None and bool((found.labels >= 0).any())
    pieces: list[_Piece] = []
    for j, one in enumerate(public):
        members = np.flatnonzero(which == j)
        if members.size:
            pieces += _pieces(found, one, members, f"group {j + 1}", labelled, starts, top)
    cells = [
        held_against(piece.name, piece.law, *_chosen(found, piece), CONFIDENCE, len(pieces))
        for piece in pieces
    ]
    return trust(cells, CONFIDENCE, labelled=labelled)


def _pieces(
    found: Histories,
    one: PublishedGroup,
    members: Indices,
    name: str,
    labelled: bool,
    starts: tuple[int, ...],
    top: int,
) -> list[_Piece]:
    group = np.searchsorted(starts, found.shown % DAY // 3600, side="right") - 1
    absent, present = one.laws(top)
    pieces = []
    if labelled:
        pieces.append(_Piece(f"{name}, absent", absent, members, group >= 0, 0))
    for g, law in enumerate(present):
        here = group == g
        place = f"{name}, {'present' if labelled else 'all'} from {starts[g]:02d}:00"
        if labelled:
            pieces.append(_Piece(place, law, members, here, 1))
        else:
            home = float(one.chain.home[found.slot[here]].mean()) if here.any() else 0.5
            mixed = Mixture([absent, law], [1 - home, home])
            pieces.append(_Piece(place, mixed, members, here, None))
    return pieces


def _chosen(found: Histories, piece: _Piece) -> tuple[Floats, Ints]:
    """The readings of a piece, and the home's day of each."""
    day = np.arange(found.wh.shape[1]) // found.steps_a_day
    place = np.ix_(piece.members, np.flatnonzero(piece.steps))
    x = found.wh[place]
    days = day[piece.steps][None] + piece.members[:, None] * (int(day.max()) + 1)
    keep = np.isfinite(x)
    if piece.state is not None and found.labels is not None:
        keep &= found.labels[place] == piece.state
    return x[keep], np.broadcast_to(days, x.shape)[keep]


def scored(found: Histories, labels: Int8s, post: Floats) -> dict[str, float]:
    """Share of labelled readings whose occupancy is decoded right: all hours, and 06 to 22 h."""
    hour = found.shown % DAY // 3600
    known = (labels >= 0) & np.isfinite(found.wh)
    right = (post > 0.5) == (labels == 1)
    day = known & ((hour >= 6) & (hour < 22))
    major = (
        max(float((labels[known] == 1).mean()), float((labels[known] == 0).mean()))
        if known.any()
        else 0.0
    )
    return {
        "all": float(right[known].mean()) if known.any() else 0.0,
        "06-22": float(right[day].mean()) if day.any() else 0.0,
        "majority": major,
        "readings": int(known.sum()),
    }


# --------------------------------------------------------------------------------------------------
# How far to trust laws: the share of readings they misdescribe, from below and from above.
#
# The dial eta says: given occupancy, a reading follows (1 - eta) f + eta g with g arbitrary. So for
# every set B of readings p(B) >= (1 - eta) f(B). A few bins of about equal mass under f are such
# sets: eta is at least 1 - p(B)/f(B). With labels p is seen for each state, and an upper confidence
# bound follows, at the resolution of the bins. Without labels only the mixture of both states is
# seen: a lower bound, and eta stays an assumption. Readings of a day hang together, so days are the
# units of confidence (design effect), and all bins are judged at once (Bonferroni).


BINS = 5


@dataclass(frozen=True, slots=True)
class LawCheck:
    """Readings of one state and slot group held against one law."""

    name: str
    readings: int
    effective: float  # independent readings that they are worth
    point: float  # eta as it looks
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class TrustBounds:
    """Bounds on the misdescribed share with their confidence; `upper` is None without labels."""

    lower: float
    upper: float | None
    confidence: float
    cells: tuple[LawCheck, ...]

    @property
    def suggested(self) -> float:
        """An eta to set: the upper bound rounded up, or 1 where nothing supports less."""
        if self.upper is None or self.upper >= 0.9:
            return 1.0
        return min(1.0, math.ceil(self.upper * 100) / 100)

    @property
    def reasoning(self) -> str:
        """Why."""
        if self.upper is None:
            return (
                f"no labels: the readings show that at least {self.lower:.1%} is misdescribed"
                f" ({self.confidence:.0%} confidence); nothing bounds it from above, so any eta"
                " below 1 is an assumption of whoever sets it"
            )
        worst = max(self.cells, key=lambda cell: cell.upper)
        return (
            f"labels: at most {self.upper:.1%} of readings is misdescribed at {self.confidence:.0%}"
            f" confidence, {BINS} bins a law; the worst is {worst.name}, {worst.readings} readings"
            f" worth {worst.effective:.0f} independent ones"
        )


def quantile_bins(law: Law, bins: int = BINS) -> Ints:
    """Upper ends [Wh] of bins of about equal mass under the law; the last is its top."""
    cdf = np.cumsum(law.pmf)
    ends = np.searchsorted(cdf, np.arange(1, bins) / bins)
    return np.unique(np.append(ends, law.top)).astype(np.int64)


def held_against(
    name: str, law: Law, readings: Floats, days: Ints, confidence: float, cells: int
) -> LawCheck:
    """Readings that should follow a law; `days` says which belong together."""
    seen = np.isfinite(readings)
    x, day = np.clip(np.rint(readings[seen]), 0, law.top).astype(np.int64), days[seen]
    ends = quantile_bins(law)
    f = np.diff(np.concatenate([[0.0], np.cumsum(law.pmf)[ends]]))
    inside = np.searchsorted(ends, x)[:, None] == np.arange(len(ends))
    if not len(x):
        return LawCheck(name, 0, 0.0, 0.0, 0.0, 1.0)
    p, effective = inside.mean(axis=0), _effective(inside, day)
    tail = (1 - confidence) / (cells * len(ends))
    low, high = clopper_pearson(p, effective, tail)
    # p(B) >= (1 - eta) f(B) holds for a bin without mass, whatever eta is
    known = f > 0
    point, lower, upper = (float((1 - at[known] / f[known]).max()) for at in (p, high, low))
    return LawCheck(
        name, len(x), float(effective.min()), max(point, 0), max(lower, 0), max(upper, 0)
    )


def _effective(inside: Bools, day: Ints) -> Floats:
    """Independent readings that each bin's readings are worth: n over the design effect."""
    n, p = len(inside), inside.mean(axis=0)
    _, index = np.unique(day, return_inverse=True)
    days = int(index.max()) + 1
    off = np.zeros((days, inside.shape[1]))
    np.add.at(off, index, inside - p)
    clustered = (off**2).sum(axis=0) * days / max(days - 1, 1)
    alone = np.maximum(n * p * (1 - p), 1e-9)
    return np.asarray(n / np.maximum(clustered / alone, 1.0))


def clopper_pearson(p: Floats, n: Floats, tail: float) -> tuple[Floats, Floats]:
    """Exact limits for shares p of n, each side with probability `tail`; n need not be whole."""
    from scipy.special import betaincinv

    k = p * n
    low = np.where(k > 0, betaincinv(np.maximum(k, 1e-12), n - k + 1, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-12), 1 - tail), 1.0)
    return low, high


def trust(cells: Iterable[LawCheck], confidence: float, *, labelled: bool) -> TrustBounds:
    """The worst of all cells: eta must hold in each of them."""
    every = tuple(cells)
    seen = [cell for cell in every if cell.readings]
    lower = max((cell.lower for cell in seen), default=0.0)
    upper = max((cell.upper for cell in every), default=1.0) if labelled else None
    return TrustBounds(lower, None if upper is None else min(upper, 1.0), confidence, every)


def welch(old: tuple[float, float, int], new: Floats) -> tuple[float, float]:
    """Welch's t and its two-sided p for new daily values against (mean, sd, days) of old ones."""
    from scipy.special import stdtr

    mean, sd, days = old
    new = new[np.isfinite(new)]
    if days < 2 or len(new) < 2:
        return 0.0, 1.0
    a, b = sd**2 / days, float(new.var(ddof=1)) / len(new)
    if a + b <= 0:
        return 0.0, 1.0
    t = (float(new.mean()) - mean) / math.sqrt(a + b)
    freedom = (a + b) ** 2 / (a**2 / (days - 1) + b**2 / (len(new) - 1))
    return t, float(2 * stdtr(freedom, -abs(t)))
