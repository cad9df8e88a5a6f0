"""Two adversaries beside the demo, each with protection and without: what they believe, live.

They are handed releases, and the strong one every other reading. The truth is kept for scoring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrid.adversary import Beliefs, Factored, Knowledge, KnownReadings
from hushgrid.arrays import Floats, Int32s, UInt8s
from hushgrid.attack import bared
from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import EpochRecord, ReleaseRecord
from hushgrid.live.terms import roster_digest
from hushgrid.mechanism import Release

KNOWS = ("none", "others")  # the paper's adversary, and the strong one
SHOWN = ("open", "private")  # the load itself, and what was published
BELIEFS = ("prior", *(f"{knows} {shown}" for knows in KNOWS for shown in SHOWN))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PanelStep:
    """One step: who was at home, and the chance that each adversary gives it, for every house.

    `home` has an array (houses,) for each of BELIEFS. `load` [Wh]; `optimal` and `rate`
    [currency/kWh].
    """

    t: int
    occupancy: UInt8s
    home: dict[str, Floats]
    load: int
    optimal: float
    rate: float


class Panel:
    """Folds releases one by one; `t` counts from the epoch's first step, as the zone's own does."""

    def __init__(self, zone: ZoneService) -> None:
        self._zone = zone
        scenario = zone.scenario
        world = (scenario.zone, scenario.models, scenario.consumption)
        private = Factored(Knowledge(*world, zone.policy.clamp))
        bare = Factored(Knowledge(*world)) if zone.policy.clamp else private
        self._who = {"open": bare, "private": private}
        self._beliefs: dict[str, Beliefs] = dict.fromkeys(BELIEFS, private.start())
        self._first = zone.begins // zone.seconds

    def fold(self, shown: ReleaseRecord, readings: Int32s, occupancy: UInt8s) -> PanelStep:
        """Let everybody see one release; readings [Wh] and occupancy are the truth behind it."""
        t = shown.t - self._first + 1
        releases = dict(self._releases(shown, readings))
        for name in BELIEFS:
            self._beliefs[name] = self._after(name, t, releases, readings)
        load, rate = 0, 0.0
        if releases:
            load, rate = releases["open"].load_hat, releases["open"].rate
        home = {name: self._home(name) for name in BELIEFS}
        return PanelStep(t, occupancy.copy(), home, load, rate, shown.rate)

    def _after(self, name: str, t: int, releases: dict[str, Release], readings: Int32s) -> Beliefs:
        beliefs = self._beliefs[name]
        knows, _, kind = name.partition(" ")
        who = self._who[kind or "private"]
        if knows == "prior" or kind not in releases:
            while beliefs.t < t:
                beliefs = who.skip(beliefs)
            return beliefs
        if knows == "others":
            who = who.told(KnownReadings(readings[None, :], first=t))
        return who.step(beliefs, releases[kind])

    def _releases(self, shown: ReleaseRecord, readings: Int32s) -> Iterator[tuple[str, Release]]:
        """The release as the mechanism made it, and without its noise; none of a stand-in."""
        if shown.source != "readings":
            return
        zone, policy = self._zone, self._zone.policy
        roster, exact = roster_digest(zone), policy.on_empty == "publish_exact"
        epoch = EpochRecord(
            shown.digest or "", self._first, policy.horizon, zone.seconds, roster, exact
        )
        release = shown.in_epoch(epoch)
        yield "private", release
        yield "open", bared(release, readings, zone.scenario)

    def _home(self, name: str) -> Floats:
        """Chances of being at home, the mean over the models weighted by their evidence."""
        beliefs, who = self._beliefs[name], self._who["private"]
        laws = np.stack([np.asarray(who.home(law)) for law in beliefs.laws])
        evidence = np.stack([np.asarray(one) for one in beliefs.evidence])
        weights = np.exp(evidence - np.logaddexp.reduce(evidence, axis=0))
        return np.asarray(np.clip((laws * weights).sum(axis=0), 0.0, 1.0))


def by_adversary(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{knows: {open, private}} of what is kept under the names of BELIEFS.

    >>> by_adversary({name: i for i, name in enumerate(BELIEFS)})
    {'none': {'open': 1, 'private': 2}, 'others': {'open': 3, 'private': 4}}
    """
    return {knows: {shown: values[f"{knows} {shown}"] for shown in SHOWN} for knows in KNOWS}
