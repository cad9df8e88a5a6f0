"""What an operator is shown of the zones. The true load is in here, and nowhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hushgrid.grid import public_rate
from hushgrid.live.clock import Clock
from hushgrid.live.deployment import ZoneService
from hushgrid.live.history import History
from hushgrid.live.inside import Inside, why
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.operator.alerts import ZoneHealth, alerts
from hushgrid.live.operator.loads import Loads, Sum
from hushgrid.live.promise import assumed, promise_of, sentence
from hushgrid.live.publish import utc
from hushgrid.live.web.board import Board

SHOWN = 192  # releases of a zone
NOT_HERE = "Another curator runs this zone; its own operator page says why."
JUMPED = 3600.0  # [s] that a jump of the clock is told of

NOT_OPEN = Inside.of(None)
ELSEWHERE = Inside.of(None)  # another curator has the zone; told apart by being this one


class Operator:
    """Figures for operators, put together when they are asked for.

    The loop says how zones stand (`noted`); `publishers` are the names behind its numbers.
    """

    def __init__(
        self,
        history: History,
        board: Board,
        clock: Clock,
        *,
        mode: str = "simulation",
        loads: Loads | None = None,
        publishers: tuple[str, ...] = (),
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history, self._board, self._clock, self._mode = history, board, clock, mode
        self._loads = Loads(history.zones.values(), None) if loads is None else loads
        self._publishers, self._steady = publishers, steady
        self._inside: dict[str, Inside] = {}
        self._jumps, self._jumped = 0, -math.inf

    def noted(self, zone: str, inside: Inside) -> None:
        """The loop went over an open zone."""
        self._inside[zone] = inside

    def elsewhere(self, zone: str) -> None:
        """Another curator has the zone: what was noted here is old."""
        if self._inside.get(zone) is not ELSEWHERE:
            self.noted(zone, ELSEWHERE)

    def passed(self) -> None:
        """The loop went over all zones: forget what is old, and look whether the clock jumped."""
        self._loads.forget(self._clock.now())
        jumps = int(getattr(self._clock, "jumps", 0))
        if jumps > self._jumps:
            self._jumps, self._jumped = jumps, self._steady()

    def summary(self) -> dict[str, Any]:
        """All zones, each in a line."""
        zones = []
        for seen in self._seen(self._history.zones.values()):
            zones.append(
                {
                    "zone": seen.zone.id,
                    "state": _state(seen),
                    "t": None if seen.status is None else seen.status.t,
                    "missing": seen.missing[0],
                    "alerts": len(alerts(seen)),
                }
            )
        return {"now": utc(int(self._clock.now())), "zones": zones}

    def zone(self, name: str) -> dict[str, Any]:
        """The inside of a zone; reads the meter store where a load is new."""
        zone = self._history.zones[name]
        (seen,) = self._seen([zone])
        lost, share = seen.missing
        return {
            "zone": name,
            "mode": self._mode,
            "state": _state(seen),
            "now": utc(int(seen.now)),
            "t": None if seen.status is None else seen.status.t,
            "interval_s": zone.seconds,
            "time_zone": zone.time_zone,
            "currency": zone.currency,
            "houses": len(zone.meters),
            "promise": self._promise(zone),
            "noise": _noise(zone, seen.inside),
            "budget": _budget(seen),
            "missing": {"meters": lost, "share": share},
            "series": self._series(zone, seen.now),
            "alerts": [alert._asdict() for alert in alerts(seen)],
            "head": None if seen.newest is None else seen.newest.head,
        }

    def _seen(self, zones: Iterable[ZoneService]) -> Iterator[ZoneHealth]:
        statuses = {one.zone: one for one in self._board.statuses}
        waiting, now = set(self._board.waiting()), self._clock.now()
        jumped = self._steady() - self._jumped < JUMPED
        for zone in zones:
            inside = self._inside.get(zone.id, NOT_OPEN)
            yield ZoneHealth(
                zone,
                now,
                statuses.get(zone.id),
                inside,
                self._history.newest(zone.id),
                open=zone.id not in waiting,
                away=[self._publishers[i] for i in inside.away if i < len(self._publishers)],
                jumped=jumped,
            )

    def _promise(self, zone: ZoneService) -> dict[str, Any]:
        promise = promise_of(zone)
        return {
            "sentence": sentence(zone),
            "assumptions": list(assumed(zone)),
            "secret": promise.secret,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "eta": zone.policy.eta,
            "eta_set_by": zone.eta_set_by or None,
        }

    def _series(self, zone: ZoneService, now: float) -> list[dict[str, Any]]:
        shown = self._history.last(zone.id, SHOWN)
        loads = self._loads.of(zone.id, [one.start for one in shown], now)
        return [_row(zone, one, loads.get(one.start)) for one in shown]


def _state(seen: ZoneHealth) -> str:
    return "not open" if seen.status is None else seen.status.state


def _row(zone: ZoneService, one: ReleaseRecord, found: Sum | None) -> dict[str, Any]:
    """A release, with its load, the rate of that and who was missing where readings are kept."""
    load = None if found is None else found.load
    return {
        "t": one.t,
        "start": utc(one.start),
        "applies_from": utc(one.applies_start),
        "load": load,
        "optimal": None if load is None else public_rate(load, zone.scenario.tariff),
        "rate": one.rate,
        "load_hat": one.load_hat,
        "scale": one.scale,
        "missing": one.counts.get("missing") if found is None else found.missing,
        "source": one.source,
    }


def _noise(zone: ZoneService, inside: Inside) -> dict[str, Any]:
    return {
        "scale": inside.scale,
        "house": inside.house,
        "model": inside.model,
        "epsilon": _finite(inside.epsilon),
        "epsilon_any": _finite(inside.epsilon_any),
        "protected": inside.protected,
        "why": NOT_HERE if inside is ELSEWHERE else why(zone, inside),
    }


def _budget(seen: ZoneHealth) -> dict[str, Any]:
    status, ends = seen.status, seen.runs_out
    return {
        "spent": None if status is None else _finite(status.spent),
        "total": seen.zone.budget,
        "left": None if status is None else _finite(status.left),
        "runs_out": None if ends is None else utc(ends),
        "per_release": _finite(seen.inside.epsilon),
        "horizon_ends": utc(seen.zone.begins + seen.zone.policy.horizon * seen.zone.seconds),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
