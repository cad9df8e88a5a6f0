"""Recorded days of a zone: the releases and, apart from them, the truth.

The truth is that of a simulation, or of real days whose residents noted when they were at home.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hushgrid._numbers import Int32s, UInt8s
from hushgrid.errors import PolicyError
from hushgrid.mechanism.release import Release
from hushgrid.model.zone import Scenario, optimal_rate, tally


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truth:
    """What the public never sees.

    Attributes:
        occupancy: (T, N): 0 or 1.
        readings: (T, N): readings [Wh].

    Raises:
        PolicyError: If the shapes differ.
    """

    occupancy: UInt8s
    readings: Int32s

    def __post_init__(self) -> None:
        if self.occupancy.ndim != 2 or self.occupancy.shape != self.readings.shape:
            raise PolicyError(
                f"truth has occupancy of shape {self.occupancy.shape} and readings of shape"
                f" {self.readings.shape}; give both for every step and house."
            )
        for array in (self.occupancy, self.readings):
            array.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A simulated day of one zone.

    Attributes:
        zone: Id of the zone.
        digest: Digest of the terms, as in every release.
        releases: In order of their steps.
        truth: Occupancy and readings, or None.
        config: Text of the zone file the day was simulated from; "" if there was none.
        day: Number of the day, from 0.
        offset: Steps of the calendars before the first release.
        seed: Seed of the simulation.
    """

    zone: str
    digest: str
    releases: tuple[Release, ...]
    truth: Truth | None = None
    config: str = ""
    day: int = 0
    offset: int = 0
    seed: int = 0

    @property
    def public(self) -> Recording:
        """The same without truth and seed: what an attacker may have."""
        return Recording(
            self.zone, self.digest, self.releases, None, self.config, self.day, self.offset
        )


def without_noise(release: Release, readings: Int32s, scenario: Scenario) -> Release:
    """The release of the same step without noise: the load itself, and the optimal rate.

    Args:
        release: The release.
        readings: (N,): readings of its step [Wh].
        scenario: The zone and its tariff.

    Returns:
        The release without noise.
    """
    load = tally(readings, scenario.zone.bound).load
    return replace(
        release,
        load_hat=load,
        put_back=0.0,
        estimate=None,
        rate=optimal_rate(load, scenario.tariff),
        scale=0.0,
        epsilon=np.inf,
        epsilon_any=np.inf,
        rule="open",
        noise="none",
        block=None,
    )
