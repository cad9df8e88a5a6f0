"""What an adversary makes of a published day: her AUC about who was at home."""

from __future__ import annotations

import numpy as np

from hushgrid.adversary import Factored, Knowledge, KnownReadings, look_back
from hushgrid.arrays import Int32s, Ints, UInt8s
from hushgrid.baselines.method import Outcome, part_of
from hushgrid.belief import chances_at_home
from hushgrid.mechanism import Release
from hushgrid.scores import mean_auc
from hushgrid.simulation import Scenario

SOME = 40  # houses asked about by her who knows all other readings


class Watcher:
    """She knows the public model and all releases of the day, and looks back at its end.

    Each house by itself (Factored). Noise of an offline transform she takes as normal and
    independent from step to step, so for those her AUC is a lower bound of a lower bound.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._setup(scenario, None)
        self._houses: Ints = np.arange(scenario.zone.n_houses)
        self._outside: Ints | None = None

    @classmethod
    def knowing_others(cls, scenario: Scenario, readings: Int32s) -> Watcher:
        """She also knows every other reading (T, houses): the noise alone hides a house from her.

        What the houses she is not asked about use is taken off first.
        """
        n = scenario.zone.n_houses
        self, some = cls.__new__(cls), np.unique(np.linspace(0, n - 1, min(SOME, n)).astype(int))
        self._houses = some
        self._outside = np.delete(readings, some, axis=1).sum(axis=1, dtype=np.int64)
        self._setup(part_of(scenario, some), readings[:, some])
        return self

    def _setup(self, scenario: Scenario, others: Int32s | None) -> None:
        self._zone, self._models = scenario.zone.id, scenario.models
        known = None if others is None else KnownReadings(others)
        knowledge = Knowledge(scenario.zone, scenario.models, scenario.consumption, others=known)
        self._adversary = Factored(knowledge)

    def auc(self, made: Outcome, home: UInt8s) -> float:
        """Mean over houses of the chance that a step at home scores above one away."""
        if made.seen is None:
            each = [chances_at_home(model, len(home)) for model in self._models]
            chance = np.mean(each, axis=0)
        else:
            chance = np.asarray(look_back(self._adversary, self._releases(made)).averaged)
        return mean_auc(chance, home[:, self._houses])

    def _releases(self, made: Outcome) -> list[Release]:
        assert made.seen is not None
        seen = made.seen if self._outside is None else made.seen - self._outside
        return [
            Release.free(
                zone=self._zone,
                t=t,
                applies_from=t + 1,
                load_hat=round(z),
                scale=scale,
                rule="compare",
                digest="compare",
                simulated=True,
                noise=made.noise if scale else "none",
            )
            for t, (z, scale) in enumerate(zip(seen.tolist(), made.scale.tolist(), strict=True), 1)
        ]
