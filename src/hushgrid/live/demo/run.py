"""One zone of the demo, open: a real process, its houses, and those who watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from types import TracebackType
from typing import Self

import numpy as np
from starlette.routing import BaseRoute

from hushgrid.errors import ServiceError
from hushgrid.live.clock import Clock
from hushgrid.live.demo.pace import SimulatedPace
from hushgrid.live.demo.panel import Panel, PanelStep
from hushgrid.live.deployment import Deployment, ZoneService
from hushgrid.live.fleet import Fleet, HttpWay
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.serve import Process
from hushgrid.live.web.stage import Stage
from hushgrid.noise import Noise, SimulatedNoise
from hushgrid.simulation import lived

TRIES, PAUSE = 100, 0.2  # how often a release is waited for, and how long each time [s]
_PEOPLE, _NOISE = 0, 1  # what a seed is for


class DemoRun:
    """The zone of one deployment from its first interval on; `with` opens and closes it.

    `step` plays one interval: readings go in over HTTP, the curator publishes, the panel watches.
    """

    def __init__(
        self,
        deployment: Deployment,
        stage: Stage,
        clock: SimulatedPace,
        *,
        url: str,
        token: str,
        seed: int,
        more: Sequence[BaseRoute] = (),
        new_epoch: bool = False,
    ) -> None:
        (self.zone,) = deployment.zones
        self._deployment, self._stage, self._clock = deployment, stage, clock
        self._url, self._token, self._seed = url, token, seed
        self._more, self._new_epoch = more, new_epoch
        self._stack = ExitStack()
        self._newest: ReleaseRecord | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            made = Process(
                self._deployment, stack, more=self._more, demo=True, noise=_seeded(self._seed)
            )
            made.open(self._clock.now(), self._new_epoch)
            stack.callback(made.history.watch(self._saw))
            made.listen(self._clock, self._stage)
            self._way = HttpWay(self._url, self._token)
            stack.callback(self._way.shut)
            self._process, self._panel = made, Panel(self.zone)
            self._fleet = Fleet(self.zone, people(self._seed), self.zone.begins)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def over(self) -> bool:
        """Whether the horizon has ended."""
        zone = self.zone
        return self._fleet.start >= zone.begins + zone.policy.horizon * zone.seconds

    def step(self, wake: threading.Event) -> PanelStep | None:
        """The next interval, whole; None where `wake` was set before it ended."""
        t = self._fleet.start // self.zone.seconds
        if not self._clock.reach(self._fleet.end, wake):
            return None
        self._way.send(self._fleet.interval(None))
        self._publish(self._clock, t, wake)
        if self._newest is None or self._newest.t < t:
            return None
        return self._panel.fold(
            self._newest, self._fleet.world.readings, self._fleet.world.occupancy
        )

    def _publish(self, clock: Clock, t: int, wake: threading.Event) -> None:
        """Turn until the release is out: a zone that failed is opened again after a pause."""
        for _ in range(TRIES):
            self._process.turn(clock)
            if self._newest is not None and self._newest.t >= t:
                return
            if wake.wait(PAUSE):
                return
        raise ServiceError(f"the demo's zone published nothing for step {t}; see the log above.")

    def _saw(self, zone: ZoneService, shown: ReleaseRecord) -> None:
        del zone
        self._newest = shown


def people(seed: int) -> int:
    """The seed of the houses, apart from that of the noise."""
    return int(np.random.SeedSequence([seed, _PEOPLE]).generate_state(1, np.uint32)[0])


def _seeded(seed: int) -> Callable[[], Noise]:
    """A source for each curator that is opened; no two of them draw the same."""
    numbers = count()
    return lambda: SimulatedNoise(np.random.SeedSequence([seed, _NOISE, next(numbers)]))


def telling_house(zone: ZoneService, seed: int, steps: int) -> int:
    """A house to watch: one that is out for a third of its first day, in one piece if there is one.

    The houses' own randomness says so before the day is played.
    """
    lives = lived(zone.scenario, steps, (people(seed),))
    day = np.array([world.occupancy.copy() for world in lives], np.int8)
    turns = np.abs(np.diff(day, axis=0)).sum(axis=0)
    out = (day == 0).mean(axis=0)
    return int(np.lexsort((np.abs(out - 1 / 3), np.abs(turns - 2)))[0])
