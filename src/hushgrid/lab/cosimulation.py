"""A zone in other people's simulations: mosaik and HELICS, with the real mechanism.

`Pricing` publishes the price of readings, `Demand` answers prices with readings. The adapters join
either side to a framework, which is imported when it is used (extras `mosaik`, `helics`); for
Gymnasium see `environments`.
Steps are 15 minutes. Noise has a seed, so what is published here protects no one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Int32s
from hushgrid.lab.flexible import Flexibility, Homes, PriceMemory
from hushgrid.lab.loop import PriceTables, signed_readings, with_devices
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import Release, init, step
from hushgrid.model.occupancy import STEPS_PER_DAY as DAY
from hushgrid.model.world import NOISE_STREAM, World
from hushgrid.model.zone import Scenario, Tally, tally

SECONDS = 86_400 // DAY


class Pricing:
    """The mechanism, step by step.

    Args:
        scenario: The zone and its models.
        policy: How it publishes.
        seed: Seed of the noise.
    """

    def __init__(self, scenario: Scenario, policy: Policy, seed: int) -> None:
        self.state = init(*scenario.terms, policy)
        self.noise = SimulatedNoise(np.random.SeedSequence([seed, NOISE_STREAM]))

    def publish(self, readings: ArrayLike) -> Release:
        """The release of the next step.

        Args:
            readings: One reading for each house [Wh], (N,); below 0 where it exports.

        Returns:
            The release; its rate applies from the next step.
        """
        release, self.state = step(self.state, self.tally(readings), self.noise)
        return release

    def tally(self, readings: ArrayLike) -> Tally:
        """Signed readings, clamped and added up for the next step.

        Args:
            readings: One reading for each house [Wh], (N,); below 0 where it exports.

        Returns:
            The load, with the offset of the zone.
        """
        zone = self.state.zone
        return tally(np.asarray(readings, np.int32), zone.bound, zone.export)


class Demand:
    """Homes with devices that react to prices, step by step.

    Args:
        scenario: The zone without devices.
        flexible: The devices.
        seed: Seed of the homes.

    Attributes:
        scenario: The zone, with the bounds of homes with devices.
        usual: The price before any is published [currency/kWh].
    """

    def __init__(self, scenario: Scenario, flexible: Flexibility, seed: int) -> None:
        tables = PriceTables(scenario, flexible, seed)
        self._homes = Homes(flexible, scenario.zone.n_houses, seed, tables.level)
        self._world = World(scenario, (seed,))
        self._memory = PriceMemory(tables.usual, tables.level)
        self.scenario, self.usual = with_devices(scenario, self._homes), tables.level

    def step(self, price: float) -> Int32s:
        """The readings of the next step.

        Args:
            price: The price in force [currency/kWh].

        Returns:
            (N,): readings [Wh], within the bounds; below 0 where a home exports.
        """
        self._world.step(())
        market, zone = self._memory.market(price), self.scenario.zone
        self._memory.note(price)
        readings = signed_readings(self._homes, self._world, market, zone.export)
        return np.asarray(np.minimum(readings, zone.bound - zone.export), np.int32)


def mosaik_simulator(pricing: Callable[[], Pricing], demand: Callable[[], Demand]) -> type[Any]:
    """A class for mosaik 3 with the models Zone (wh in, price out) and Homes (the reverse).

    Args:
        pricing: Makes the mechanism of each Zone.
        demand: Makes the homes of each Homes.

    Returns:
        The class; name it in a `sim_config`.
    """
    from mosaik_api_v3 import Simulator

    class MosaikAdapter(Simulator):  # type: ignore[misc,unused-ignore]
        """Entities by id, each with its last output."""

        def __init__(self) -> None:
            attrs = {"public": True, "params": [], "attrs": ["wh", "price"]}
            models = {"Zone": attrs, "Homes": attrs}
            super().__init__({"api_version": "3.0", "type": "time-based", "models": models})
            self._entities: dict[str, Pricing | Demand] = {}
            self._last: dict[str, dict[str, Any]] = {}

        def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
            """A step takes 900 s of a time resolution of 1 s."""
            del sid, params
            self._period = round(SECONDS / time_resolution)
            return self.meta

        def create(self, num: int, model: str, **params: Any) -> list[dict[str, Any]]:
            """Zones or homes."""
            del params
            entities = []
            for _ in range(num):
                name = f"{model}_{len(self._entities)}"
                self._entities[name] = entity = pricing() if model == "Zone" else demand()
                self._last[name] = {"price": entity.usual} if isinstance(entity, Demand) else {}
                entities.append({"eid": name, "type": model})
            return entities

        def step(self, time: int, inputs: Mapping[str, Any], max_advance: int) -> int:
            """Homes use energy at the price they hear; a zone publishes the price of readings."""
            del max_advance
            for name, entity in self._entities.items():
                messages = inputs.get(name, {})
                if isinstance(entity, Demand):
                    price = next(iter(messages.get("price", {}).values()), None)
                    price = entity.usual if price is None else float(price)
                    self._last[name] = {"price": price, "wh": entity.step(price).tolist()}
                elif "wh" in messages:
                    sources = [messages["wh"][source] for source in sorted(messages["wh"])]
                    wh = np.concatenate([np.atleast_1d(part) for part in sources])
                    self._last[name] = {"wh": wh.tolist(), "price": entity.publish(wh).rate}
            return time + self._period

        def get_data(self, outputs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
            """The last output of each entity."""
            return {
                name: {attr: self._last[name][attr] for attr in attrs if attr in self._last[name]}
                for name, attrs in outputs.items()
            }

    return MosaikAdapter


def join_helics(
    name: str,
    answer: Callable[[Sequence[float] | None], Sequence[float]],
    *,
    hears: str,
    says: str,
    steps: int,
    core: str = "zmq",
    broker: str = "",
) -> None:
    """Take part in a HELICS co-simulation as a value federate with a period of 900 s.

    Args:
        name: Name of the federate.
        answer: From the last values that were heard (None before any) to the values to publish.
        hears: Key of the publication to hear.
        says: Key of the own publication, a vector.
        steps: Number of steps.
        core: Type of the core.
        broker: Address of the broker; empty for the usual one.
    """
    import helics as h

    info = h.helicsCreateFederateInfo()
    h.helicsFederateInfoSetCoreTypeFromString(info, core)
    h.helicsFederateInfoSetCoreInitString(info, f"--federates=1 {broker}".strip())
    h.helicsFederateInfoSetTimeProperty(info, h.HELICS_PROPERTY_TIME_PERIOD, float(SECONDS))
    h.helicsFederateInfoSetFlagOption(info, h.HELICS_FLAG_UNINTERRUPTIBLE, True)
    federate = h.helicsCreateValueFederate(name, info)
    publication = h.helicsFederateRegisterGlobalPublication(
        federate, says, h.HELICS_DATA_TYPE_VECTOR, ""
    )
    subscription = h.helicsFederateRegisterSubscription(federate, hears, "")
    h.helicsFederateEnterExecutingMode(federate)
    try:
        for n in range(1, steps + 1):
            h.helicsFederateRequestTime(federate, float(n * SECONDS))
            updated = h.helicsInputIsUpdated(subscription)
            values = h.helicsInputGetVector(subscription) if updated else None
            answer_values = [float(v) for v in answer(values)]
            if n < steps:  # nothing hears the last ones
                h.helicsPublicationPublishVector(publication, answer_values)
    finally:
        h.helicsFederateDisconnect(federate)
        h.helicsFederateFree(federate)
