"""Models held against readings: scores by slot and day, trust, accuracy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hushgrid.arrays import Bools, Floats, Indices, Int8s, Ints
from hushgrid.laws import Law, Mixture
from hushgrid.learn.histories import DAY, Histories
from hushgrid.learn.publish import PublishedGroup
from hushgrid.learn.trust import TrustBounds, held_against, trust

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
