"""The prices to expect, from published releases and the public model: post-processing, free.

Anybody with the model could compute the same; no meter is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hushgrid.grid import public_rate
from hushgrid.live.deployment import ZoneService
from hushgrid.live.feeds.series import DAY, Guess, Range
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.replay import PublicReplay
from hushgrid.uncertainty import LEVEL, given_all, given_noisy, rates_of

RANGED = 1000  # intervals back from the newest whose releases have a range


class ForecastPrices(NamedTuple):
    """The prices to expect, in order, and the ranges of published ones, by step."""

    guesses: tuple[Guess, ...] = ()
    ranges: Mapping[int, Range] = {}


NOTHING = ForecastPrices()


class Forecaster:
    """What the public knows of one zone after its releases, folded as they come.

    Any thread may call it; one at a time.
    """

    def __init__(self, zone: ZoneService) -> None:
        self._zone, self._first = zone, zone.begins // zone.seconds
        self._mutex = threading.Lock()
        self._public = PublicReplay(zone, self._first)
        self._last: ReleaseRecord | None = None
        self._ranges: dict[int, Range] = {}
        self._known = NOTHING

    def after(self, releases: Sequence[ReleaseRecord]) -> ForecastPrices:
        """The prices of the day after the newest of these releases; all there are, in order.

        None from private models: what they expect tells of the homes they were fitted to.
        """
        if self._zone.learned.private:
            return NOTHING
        with self._mutex:
            newest = releases[-1] if releases else None
            if newest is None or newest.t < self._first:
                return NOTHING
            if self._last is None or self._last.t < newest.t:
                seen = self._first - 1 if self._last is None else self._last.t
                for one in _later(releases, seen):
                    self._fold(one, since=newest.t - RANGED)
                ranges = {t: one for t, one in self._ranges.items() if t > newest.t - RANGED}
                self._ranges = ranges
                self._known = ForecastPrices(tuple(self._guesses(newest)), dict(ranges))
            return self._known

    def _fold(self, one: ReleaseRecord, since: int) -> None:
        """A release of our epoch, with its range where it is later than `since`."""
        self._public.reach(one.t)
        if one.t > since and one.source != "fallback":
            self._ranges[one.t] = self._range(one)
        self._public.take(one)
        self._last = one

    def _range(self, one: ReleaseRecord) -> Range:
        """Where the optimal rate lies, by what was known when the release came out."""
        public, rates = self._public.knowledge, self._public.rates
        if one.source != "readings" or one.load_hat is None:
            loads = public.predicted(rates).interval(LEVEL)
        elif self._zone.policy.publish == "raw":
            loads = given_noisy(public, one.load_hat, one.scale, rates)
        else:
            loads = given_all(public, one.load_hat, one.scale, rates)
        return Range(*rates_of(loads, self._zone.scenario.tariff))

    def _guesses(self, newest: ReleaseRecord) -> list[Guess]:
        """The rate of the load expected at each step; each is as late as the newest is."""
        public, scenario, made = self._public.knowledge, self._zone.scenario, list[Guess]()
        for ahead in range(1, DAY // self._zone.seconds + 1):
            start, tariff = newest.applies_start + ahead * self._zone.seconds, scenario.tariff
            if newest.source == "fallback":
                made.append(Guess(start, self._zone.fallback_rate))
                continue
            law = public.predicted(self._public.rates)
            load = float((law.weights * law.mean).sum())
            within = Range(*rates_of(law.interval(LEVEL), tariff))
            made.append(Guess(start, public_rate(load, tariff), within))
            public = public.passed()
        return made


def _later(releases: Sequence[ReleaseRecord], t: int) -> list[ReleaseRecord]:
    """Those after step t; looked for from the end, where they are."""
    found: list[ReleaseRecord] = []
    for one in reversed(releases):
        if one.t <= t:
            break
        found.append(one)
    return found[::-1]
