"""What the adversary panel shows: one house's day so far, what is believed of it, and the scores.

Written by the demo's loop, read by the server's thread.
"""

from __future__ import annotations

import threading
from typing import Any

from hushgrid.live.demo.channel import Channel
from hushgrid.live.demo.panel import BELIEFS, KNOWS, PanelStep, by_adversary
from hushgrid.live.demo.scoring import Rolling
from hushgrid.live.demo.setting import LIMITS, OPERATOR, Dials
from hushgrid.live.deployment import ZoneService
from hushgrid.live.publish import utc

DAY = 86_400  # [s]
_DIGITS = 6


class Show:
    """The panel's figures; told to listeners step by step."""

    def __init__(self, channel: Channel, operator: str) -> None:
        self._channel, self._operator = channel, operator
        self._mutex = threading.Lock()

    def restart(self, dials: Dials) -> None:
        """Say that the day begins again, under these dials."""
        with self._mutex:
            self._restarting = True
        self._channel.tell("restart", {"epsilon": dials.epsilon, "eta": dials.eta})

    def stay(self) -> None:
        """Say that the day goes on after all, under the dials it had."""
        with self._mutex:
            self._restarting, dials = False, self._dials
        self._channel.tell("restart", {"epsilon": dials.epsilon, "eta": dials.eta})

    def begin(self, zone: ZoneService, house: int, dials: Dials, promise: str) -> None:
        """A new run of days, from its first interval on."""
        with self._mutex:
            self._zone, self._house, self._dials = zone, house, dials
            self._promise, self._restarting = promise, False
            self._begins, self._steps = zone.begins, DAY // zone.seconds
            self._rolling = {name: Rolling(self._steps) for name in BELIEFS}
            self._clear(1)

    def go_on(self, zone: ZoneService) -> None:
        """The same days under the zone's next epoch."""
        with self._mutex:
            self._zone = zone

    def _clear(self, day: int) -> None:
        """A day begins: nothing is drawn yet."""
        self._day, self._t = day, 0
        self._occupancy: list[int] = []
        self._home: dict[str, list[float]] = {name: [] for name in BELIEFS}

    def add(self, seen: PanelStep) -> None:
        """Draw one step more, and tell it."""
        start = self._zone.begins + (seen.t - 1) * self._zone.seconds
        day, t = divmod((start - self._begins) // self._zone.seconds, self._steps)
        with self._mutex:
            if day + 1 != self._day:
                self._clear(day + 1)
            self._t = t + 1
            self._occupancy.append(int(seen.occupancy[self._house]))
            for name in BELIEFS:
                self._home[name].append(round(float(seen.home[name][self._house]), _DIGITS))
                self._rolling[name].add(seen.occupancy, seen.home[name])
            last = {name: values[-1] for name, values in self._home.items()}
            event = {
                "day": self._day,
                "t": self._t,
                "occupancy": self._occupancy[-1],
                "prior": last["prior"],
                **by_adversary(last),
                "auc": self._auc(),
            }
        self._channel.tell("step", event)

    def _auc(self) -> dict[str, dict[str, float | None]]:
        found = {
            name: None if each.auc is None else round(each.auc, _DIGITS)
            for name, each in self._rolling.items()
        }
        each = by_adversary(found)
        return {knows: {**each[knows], "prior": found["prior"]} for knows in KNOWS}

    def state(self) -> dict[str, Any]:
        """All of it, for a page that begins."""
        with self._mutex:
            return {
                "zone": self._zone.id,
                "house": self._house,
                "steps": self._steps,
                "step_seconds": self._zone.seconds,
                "epsilon": self._dials.epsilon,
                "eta": self._dials.eta,
                "promise": self._promise,
                "day": self._day,
                "t": self._t,
                "origin": utc(self._begins + (self._day - 1) * DAY),
                "occupancy": list(self._occupancy),
                "prior": list(self._home["prior"]),
                "attackers": by_adversary({n: list(v) for n, v in self._home.items()}),
                "auc": self._auc(),
                "limits": {name: list(span) for name, span in LIMITS.items()},
                "restarting": self._restarting,
                "operator": {"client": OPERATOR, "secret": self._operator},
            }
