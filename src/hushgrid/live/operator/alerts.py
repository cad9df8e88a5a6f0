"""What needs a hand in a zone, each in one sentence with the fix. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hushgrid.live.curator import UNTIL_RESUMED, Status
from hushgrid.live.deployment import ZoneService
from hushgrid.live.inside import Inside
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.publish import utc
from hushgrid.sums import Spent

DAY = 86_400  # [s]
MANY, MOST = 0.1, 0.5  # shares of meters missing: a warning, an error

_AWAY = {
    "PriceFile": "The price file cannot be written; see that its folder and room on disk are there",
    "MqttPrices": "Prices do not reach the MQTT broker; see that it runs and lets us in",
    "MqttEvents": "OpenADR events do not reach the MQTT broker; see that it runs and lets us in",
}


class Alert(NamedTuple):
    """A sentence, and how bad it is."""

    level: Literal["error", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class ZoneHealth:
    """Where a zone stands, as its operator may know it.

    `open`: its loop passed lately; `away`: names of publishers that fail; `jumped`: the clock did.
    """

    zone: ZoneService
    now: float
    status: Status | None
    inside: Inside
    newest: ReleaseRecord | None
    open: bool
    away: Sequence[str] = ()
    jumped: bool = False

    @property
    def releases_left(self) -> int:
        """Of the horizon."""
        if self.status is None:
            return self.zone.policy.horizon
        done = self.status.t - self.zone.begins // self.zone.seconds + 1
        return max(self.zone.policy.horizon - max(done, 0), 0)

    @property
    def runs_out(self) -> int | None:
        """When the first price is due that the budget no longer pays for [UTC epoch s].

        At what the next release costs; None without a budget, or where the horizon ends first.
        """
        if self.status is None or self.status.left is None:
            return None
        cost = self.inside.epsilon
        if cost is None:
            paid = 0
            if self.releases_left == 0 or self.status.state != "forecast only":
                return None
        elif not math.isfinite(cost) or cost <= 0:
            return None
        else:
            known = self.inside.paid
            spent = Spent().add(self.status.spent)  # rounded up, where the curator is elsewhere
            paid = spent.more(cost, self.zone.budget or 0.0) if known is None else known
        if paid >= self.releases_left:
            return None
        return self.due(paid)

    def due(self, ahead: int = 0) -> int:
        """When a release to come is due [UTC epoch s]; 0 is the next one."""
        t = (self.zone.begins // self.zone.seconds - 1) if self.status is None else self.status.t
        return (t + ahead + 2) * self.zone.seconds + self.zone.grace

    @property
    def missing(self) -> tuple[int | None, float | None]:
        """Meters that sent nothing for the last interval, and their share of all; None: unknown."""
        lost = None if self.status is None else self.status.missing
        return lost, None if lost is None else lost / len(self.zone.meters)


def alerts(seen: ZoneHealth) -> list[Alert]:
    """The worst first."""
    found = [*_running(seen), *_source(seen), *_spending(seen), *_ways(seen)]
    return sorted(found, key=lambda alert: alert.level != "error")


def _running(seen: ZoneHealth) -> list[Alert]:
    newest, zone = seen.newest, seen.zone
    if newest is not None and seen.now < newest.published_at - 1:
        behind = newest.published_at - math.floor(seen.now)
        text = f"The clock is {behind} s behind the last release and the zone waits; set the clock."
        return [Alert("error", text)]
    if not seen.open:
        return [
            Alert(
                "error",
                "The zone is closed after an error and is opened again by itself; see in the log"
                " whether the disk, the database or the terms are the reason.",
            )
        ]
    if seen.status is not None and seen.now > seen.due() + zone.seconds:
        text = f"No price has come since {utc(seen.due())}; see in the log what holds the loop up."
        return [Alert("error", text)]
    return []


def _source(seen: ZoneHealth) -> list[Alert]:
    if seen.status is None:
        return []
    zone = seen.zone
    constant = f"the constant {zone.fallback_rate:g} {zone.currency}/kWh"
    if seen.status.state == "fallback only":
        text = f"No model can be used, so the price is {constant}; run hushgrid check."
        return [Alert("error", text)]
    if seen.status.state == UNTIL_RESUMED:
        shown = constant if zone.learned.private else "a forecast without readings"
        text = (
            "The ledger lacks releases that may have been published (a fail-over of the database,"
            f" an older copy), so the price is {shown}; run hushgrid resume, which books their loss"
        )
        return [Alert("error", f"{text}.")]
    if seen.status.state != "forecast only":
        return []
    shown = constant if zone.learned.private else "a forecast without readings"
    if seen.releases_left == 0:
        what = f"The horizon of {zone.policy.horizon} releases is over"
    else:
        what = f"The budget of {zone.budget:g} is spent"
    fix = "give a later begins and start once with --new-epoch"
    return [Alert("error", f"{what}, so the price is {shown}; {fix}.")]


def _spending(seen: ZoneHealth) -> list[Alert]:
    if seen.inside.scale is None:
        return []
    ends, steps = seen.runs_out, seen.releases_left
    plan = "plan the next epoch (hushgrid plan)"
    if ends is not None and ends - seen.now <= DAY:
        return [Alert("warning", f"The budget lasts until {utc(ends)} only; {plan}.")]
    if seen.status is not None and steps * seen.zone.seconds <= DAY < _whole(seen.zone):
        last = utc(seen.due(steps))
        return [Alert("warning", f"The horizon ends at {last}; {plan}.")]
    return []


def _whole(zone: ZoneService) -> int:
    """The horizon [s]: one of a day is not near its end all day long."""
    return zone.policy.horizon * zone.seconds


def _ways(seen: ZoneHealth) -> list[Alert]:
    found = []
    lost, share = seen.missing
    if share is not None and share > MANY:
        found.append(
            Alert(
                "error" if share > MOST else "warning",
                f"{lost} of {len(seen.zone.meters)} meters ({share:.0%}) sent nothing for the last"
                " interval; see that their head-end runs and reaches the service.",
            )
        )
    for name in dict.fromkeys(seen.away):
        found.append(Alert("warning", f"{_AWAY.get(name, f'{name} does not take prices')}."))
    if seen.jumped:
        text = "The clock jumped within the last hour; see that it is kept by NTP."
        found.append(Alert("warning", text))
    return found
