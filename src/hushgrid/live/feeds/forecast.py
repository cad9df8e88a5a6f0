"""The prices to expect, from published releases and the public model: post-processing, free.

Anybody with the model could compute the same; no meter is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hushgrid.estimate import GAUSSIAN, LAPLACE, Public
from hushgrid.grid import public_rate
from hushgrid.live.deployment import ZoneService
from hushgrid.live.feeds.series import DAY, Guess
from hushgrid.live.ledger.standing import Published


class Forecaster:
    """What the public knows of one zone after its releases, folded as they come.

    Any thread may call it; one at a time.
    """

    def __init__(self, zone: ZoneService) -> None:
        self._zone, self._first = zone, zone.begins // zone.seconds
        self._mutex = threading.Lock()
        scenario = zone.scenario
        self._public = Public.start(
            scenario.models,
            scenario.consumption,
            clamp=zone.policy.clamp,
            shape=LAPLACE if zone.policy.gaussian is None else GAUSSIAN,
        )
        self._rates: list[float] = []
        self._last: Published | None = None
        self._known: tuple[Guess, ...] = ()

    def after(self, releases: Sequence[Published]) -> tuple[Guess, ...]:
        """The prices of the day after the newest of these releases; all there are, in order.

        None from private models: what they expect tells of the homes they were fitted to.
        """
        if self._zone.learned.private:
            return ()
        with self._mutex:
            newest = releases[-1] if releases else None
            if newest is None or newest.t < self._first:
                return ()
            if self._last is None or self._last.t < newest.t:
                seen = self._first - 1 if self._last is None else self._last.t
                for one in _later(releases, seen):
                    self._fold(one)
                self._known = tuple(self._guesses(newest))
            return self._known

    def _fold(self, one: Published) -> None:
        """A release of our epoch; steps without one passed by."""
        while self._first + self._public.t - 1 < one.t:
            self._public = self._public.passed()
            self._rates.append(self._rates[-1] if self._rates else self._zone.fallback_rate)
        if one.source == "readings" and one.load_hat is not None:
            self._public = self._public.after(one.load_hat, one.scale, self._rates)
        else:
            self._public = self._public.passed()
        self._rates.append(one.rate)
        self._last = one

    def _guesses(self, newest: Published) -> list[Guess]:
        """The rate of the load expected at each step; each is as late as the newest is."""
        public, made = self._public, []
        for ahead in range(1, DAY // self._zone.seconds + 1):
            rate = self._zone.fallback_rate
            if newest.source != "fallback":
                law = public.predicted(self._rates)
                load = float((law.weights * law.mean).sum())
                rate = public_rate(load, self._zone.scenario.tariff)
                public = public.passed()
            made.append(Guess(newest.applies_start + ahead * self._zone.seconds, rate))
        return made


def _later(releases: Sequence[Published], t: int) -> list[Published]:
    """Those after step t; looked for from the end, where they are."""
    found: list[Published] = []
    for one in reversed(releases):
        if one.t <= t:
            break
        found.append(one)
    return found[::-1]
