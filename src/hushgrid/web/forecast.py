"""The forecast of a zone's prices: post-processing of published releases and the public model."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

from hushgrid.belief.estimate import LoadMixture, intervals
from hushgrid.belief.expected_rate import mean_rates
from hushgrid.belief.followed import informed
from hushgrid.belief.rate_interval import LEVEL, noise_interval, posterior_interval, rate_range
from hushgrid.curator.replay import PublicReplay
from hushgrid.files.deployment import ZoneService
from hushgrid.model.zone import feed_in_rate, smoothed_rate
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.feeds import (
    DAY,
    Guess,
    Range,
    fallback,
)

RANGED = 1000  # intervals back from the newest whose releases have a range


class ForecastPrices(NamedTuple):
    """Expected prices, and ranges of published ones.

    Attributes:
        guesses: Expected prices after the newest release, in order.
        ranges: Where the optimal rate lies, by the step of a release.
        between: What was expected for earlier intervals that no release was for.
    """

    guesses: tuple[Guess, ...] = ()
    ranges: Mapping[int, Range] = {}
    between: tuple[Guess, ...] = ()

    def at(self, start: int) -> Guess | None:
        """The expected price of the interval at `start` [UTC s]."""
        return next((guess for guess in self.between + self.guesses if guess.start == start), None)


NOTHING = ForecastPrices()


class Forecaster:
    """Public knowledge of one zone, updated with each release. Safe for threads.

    Args:
        zone: The zone.
        priced_since: When its tariff began [UTC s]: of earlier releases nothing is computed by it.
    """

    def __init__(self, zone: ZoneService, priced_since: int = 0) -> None:
        self._zone, self._first = zone, zone.begins // zone.seconds
        self._priced_since = priced_since
        self._mutex = threading.Lock()
        self._public = PublicReplay(zone)
        # before the week's first release: the number of earlier ones, the start that was reached
        self._waiting: tuple[int, int, PublicReplay] | None = None
        self._last: ReleaseRecord | None = None
        self._ranges: dict[int, Range] = {}
        # of intervals that no release was for, by the step of the release that came after them
        self._between: dict[int, list[Guess]] = {}
        self.forecast = NOTHING  # the last whole one that was made
        self._newest: ReleaseRecord | None = None  # and its newest release
        # from the interval that a release is of to the one that its price is for
        self._lag = 2 + zone.grace // zone.seconds
        self._steps = min(DAY // zone.seconds, max(24 * zone.seconds, 96))

    def after(
        self, releases: Sequence[ReleaseRecord], start: int = 0, until: int | None = None
    ) -> ForecastPrices:
        """Expected prices after the newest of these releases; all there are, in order.

        Of a day, where intervals have a minute or more. A step takes about 0.2 ms, so of shorter
        intervals there are fewer: none is newer before its forecast is made. Before the first
        release of a week they begin at `start` [UTC s]. An interval that no release was
        for keeps what was expected after the last one before it.

        Args:
            releases: The releases.
            start: See above.
            until: Where the expected prices end [UTC s]; None: as above.
        """
        newest = releases[-1] if releases else None
        in_epoch = newest is not None and newest.start >= self._zone.begins
        with self._mutex:
            if newest is None or not in_epoch:
                forecast = self._first_forecast(releases, start, until)
            elif until is None and self._newest is newest:
                return self.forecast
            else:
                self._take(releases, newest)
                steps = self._number(newest.applies_start + self._zone.seconds, until)
                coming = self._guesses(self._public, newest, steps)
                between = tuple(chain.from_iterable(self._between.values()))
                forecast = ForecastPrices(tuple(coming), dict(self._ranges), between)
            if until is None:
                self.forecast, self._newest = forecast, newest
            return forecast

    def _number(self, start: int, until: int | None) -> int:
        """How many steps there are from an instant to another, a day at most."""
        steps = self._steps if until is None else (until - start) // self._zone.seconds
        return min(max(steps, 0), self._steps)

    def _first_forecast(
        self, releases: Sequence[ReleaseRecord], start: int, until: int | None
    ) -> ForecastPrices:
        """Expected prices from `start` on, before the week's first release."""
        number, last_start, public = self._waiting or (-1, 0, None)
        if public is None or number != len(releases) or start < last_start:
            public = PublicReplay(self._zone, releases)
        self._waiting = len(releases), start, public
        steps = self._number(start, until)
        until = start + steps * self._zone.seconds
        return ForecastPrices(tuple(self._before(public, releases, start, until)))

    def _take(self, releases: Sequence[ReleaseRecord], newest: ReleaseRecord) -> None:
        """Take the releases that are new."""
        if self._last is not None and self._last.start >= newest.start:
            return
        since = self._zone.begins if self._last is None else self._last.start + 1
        new = _since(releases, since)
        if self._last is None:
            earlier, until = releases[: len(releases) - len(new)], new[0].applies_start
            self._public = PublicReplay(self._zone, earlier)
            public = PublicReplay(self._zone, earlier)
            first = list[Guess]()
            if new[0].start >= self._priced_since:
                first = self._before(public, earlier, new[0].start, until)
            self._between, self._waiting = {new[0].t: first}, None
        for release in new:
            self._fold(release, since=newest.t - RANGED)
        for table in (self._ranges, self._between):
            for t in [t for t in table if t <= newest.t - RANGED]:
                del table[t]

    def _fold(self, release: ReleaseRecord, since: int) -> None:
        """Take a release of the present week, with its range where it is later than `since`.

        And of the present tariff.
        """
        last, seconds = self._last, self._zone.seconds
        shown = release.t > since and release.start >= self._priced_since
        if last is not None and shown:
            between = (release.applies_start - last.applies_start) // seconds - 1
            if between > 0:
                self._between[release.t] = self._guesses(
                    self._public, last, min(between, self._steps)
                )
        self._public.reach(release.t)
        if shown and release.source != "fallback":
            self._ranges[release.t] = self._range(release)
        self._public.take(release)
        self._last = release

    def _before(
        self, public: PublicReplay, earlier: Sequence[ReleaseRecord], start: int, until: int
    ) -> list[Guess]:
        """Expected prices of start..until [UTC s], before the week's first release."""
        seconds = self._zone.seconds
        if earlier:  # whose intervals may have had another length
            start = max(start, (earlier[-1].applies_start // seconds + 1) * seconds)
        public.reach(start // seconds - self._lag)
        return self._expected(public, start, min((until - start) // seconds, self._steps))

    def _range(self, release: ReleaseRecord) -> Range:
        """Where the optimal rate lies, given what was public when the release was published."""
        public, rates = informed(self._public.knowledge, release.covariates), self._public.rates
        if release.source != "readings" or release.load_hat is None:
            loads = public.predicted(rates).interval(LEVEL)
        elif self._zone.policy.publish == "raw" and self._zone.scenario.tariff.curve is None:
            loads = noise_interval(public, release.load_hat, release.scale, rates)
        else:
            loads = posterior_interval(public, release.load_hat, release.scale, rates)
        return Range(*rate_range(loads, self._zone.scenario.tariff))

    def _guesses(self, public: PublicReplay, newest: ReleaseRecord, steps: int) -> list[Guess]:
        """Expected prices after a release; each has its delay."""
        start, seconds = newest.applies_start + self._zone.seconds, self._zone.seconds
        if newest.source != "fallback":
            return self._expected(public, start, steps)
        return [fallback(self._zone, start + i * seconds) for i in range(steps)]

    def _expected(self, replay: PublicReplay, start: int, steps: int) -> list[Guess]:
        """The rate of the expected load at each of some steps, smoothed as releases are."""
        public, tariff, laws = replay.knowledge, self._zone.scenario.tariff, list[LoadMixture]()
        for _ in range(steps):
            laws.append(public.predicted(replay.rates))
            public = public.passed()
        means = [float((law.weights * law.mean).sum()) for law in laws]
        ranges = (Range(*rate_range(loads, tariff)) for loads in intervals(laws, LEVEL))
        starts, guesses = count(start, self._zone.seconds), list[Guess]()
        rates = mean_rates(laws, tariff)
        last = replay.rates[-1] if replay.rates else None
        for at, mean, rate, within in zip(starts, means, rates, ranges, strict=False):
            last = smoothed_rate(rate, tariff, last)
            guesses.append(Guess(at, last, within, feed_in=feed_in_rate(mean, tariff)))
        return guesses


def _since(releases: Sequence[ReleaseRecord], since: int) -> list[ReleaseRecord]:
    """Releases of intervals that start at `since` [UTC s] or later; searched from the end."""
    tail: list[ReleaseRecord] = []
    for release in reversed(releases):
        if release.start < since:
            break
        tail.append(release)
    return tail[::-1]
