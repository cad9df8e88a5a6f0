"""The prices of a zone over a range of time: those published, then those expected. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hushgrid.live.ledger.records import ReleaseRecord

DAY = 86_400  # [s]
LIMIT = 1000  # prices of an answer where nothing else is asked for
MOST = 10_000  # prices of an answer


class Range(NamedTuple):
    """The rates [currency/kWh] between which the optimal one is with 95 per cent."""

    low: float
    high: float


class Guess(NamedTuple):
    """A price to expect: from which instant on [UTC epoch s], and the rate [currency/kWh]."""

    start: int
    rate: float
    within: Range | None = None


class PriceRange(NamedTuple):
    """What is asked for: prices that start in since..until [UTC epoch s, until not in].

    None: from a day before the newest, to the end of the forecast.
    """

    since: int | None = None
    until: int | None = None
    limit: int = LIMIT


USUAL = PriceRange()
NO_RANGES: Mapping[int, Range] = {}


class PriceEntry(NamedTuple):
    """One price: its interval [UTC epoch s], the rate [currency/kWh], whether it is a forecast."""

    start: int
    end: int
    rate: float
    forecast: bool
    source: str
    within: Range | None = None


class Series(NamedTuple):
    """Prices in order of time; `following` is where the rest begins that the limit left out."""

    zone: str
    currency: str
    seconds: int
    simulated: bool
    head: str
    entries: tuple[PriceEntry, ...]
    following: int | None


def standing(releases: Iterable[ReleaseRecord]) -> list[ReleaseRecord]:
    """The releases that hold: of those for one interval, the newest.

    After an outage several intervals are published together, all for the next one.
    """
    return list({one.applies_start: one for one in releases}.values())


def bounds(newest: ReleaseRecord, span: PriceRange) -> tuple[int, int]:
    """The range asked for, with what is left open filled in."""
    since = newest.applies_start - DAY if span.since is None else span.since
    return since, 2**53 if span.until is None else span.until


def series(
    zone: str,
    currency: str,
    seconds: int,
    newest: ReleaseRecord,
    releases: Iterable[ReleaseRecord],
    guesses: Sequence[Guess],
    span: PriceRange = USUAL,
    ranges: Mapping[int, Range] = NO_RANGES,
) -> Series:
    """What is asked for. `releases` are those of the range; guesses begin after the newest.

    `ranges`: where the optimal rate is, by the step of a release.
    """
    since, until = bounds(newest, span)
    found = [
        PriceEntry(
            one.applies_start,
            one.applies_start + seconds,
            one.rate,
            False,
            one.source,
            ranges.get(one.t),
        )
        for one in standing(releases)
    ] + [
        PriceEntry(g.start, g.start + seconds, g.rate, True, "forecast", g.within) for g in guesses
    ]
    within = [entry for entry in found if since <= entry.start < until]
    rest = within[span.limit : span.limit + 1]
    return Series(
        zone,
        currency,
        seconds,
        newest.simulated,
        newest.head,
        tuple(within[: span.limit]),
        rest[0].start if rest else None,
    )
