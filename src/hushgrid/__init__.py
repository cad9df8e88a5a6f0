"""hushgrid: real-time electricity prices that give away nobody's occupancy.

The names below are loaded when they are first asked for, so that a part of the package that needs
little (the adversary: numpy and array-api-compat) imports little.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgrid.adversary import Exact, Factored, Knowledge, Population, look_back, watch
    from hushgrid.calendar import Calendar
    from hushgrid.calibration import (
        Answer,
        Calibration,
        Calibrator,
        Case,
        Exposure,
        Naive,
        Protected,
        Trust,
        house_losses,
        protected,
        schedule,
        smallest_scale,
        worst_loss,
    )
    from hushgrid.consumption import Consumption, Elasticity
    from hushgrid.errors import (
        ConsumptionError,
        ExtraError,
        FileError,
        HorizonError,
        HushgridError,
        IntakeError,
        LedgerError,
        ModelError,
        NeverMixes,
        NoiseError,
        PlanError,
        PolicyError,
        ReadingError,
        ZoneError,
    )
    from hushgrid.grid import Tally, Tariff, Zone, aggregate, cost, optimal_rate, public_rate, tally
    from hushgrid.laws import Gamma, Histogram, Law, LogNormal, TruncatedNormal, Uniform
    from hushgrid.mechanism import Release, State, init, step
    from hushgrid.noise import Noise, SecureNoise, SimulatedNoise
    from hushgrid.occupancy import OccupancyModel, possible_states
    from hushgrid.planning import Plan, plan
    from hushgrid.policy import Policy
    from hushgrid.simulation import Mechanism, Scenario, Trace, play, simulate
    from hushgrid.window import Window

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Calendar",
    "Calibration",
    "Calibrator",
    "Case",
    "Consumption",
    "ConsumptionError",
    "Elasticity",
    "Exact",
    "Exposure",
    "ExtraError",
    "Factored",
    "FileError",
    "Gamma",
    "Histogram",
    "HorizonError",
    "HushgridError",
    "IntakeError",
    "Knowledge",
    "Law",
    "LedgerError",
    "LogNormal",
    "Mechanism",
    "ModelError",
    "Naive",
    "NeverMixes",
    "Noise",
    "NoiseError",
    "OccupancyModel",
    "Plan",
    "PlanError",
    "Policy",
    "PolicyError",
    "Population",
    "Protected",
    "ReadingError",
    "Release",
    "Scenario",
    "SecureNoise",
    "SimulatedNoise",
    "State",
    "Tally",
    "Tariff",
    "Trace",
    "TruncatedNormal",
    "Trust",
    "Uniform",
    "Window",
    "Zone",
    "ZoneError",
    "aggregate",
    "cost",
    "house_losses",
    "init",
    "look_back",
    "optimal_rate",
    "plan",
    "play",
    "possible_states",
    "protected",
    "public_rate",
    "schedule",
    "simulate",
    "smallest_scale",
    "step",
    "tally",
    "watch",
    "worst_loss",
]

_HOMES = {
    "hushgrid.adversary": "Exact Factored Knowledge Population look_back watch",
    "hushgrid.calendar": "Calendar",
    "hushgrid.calibration": (
        "Answer Calibration Calibrator Case Exposure Naive Protected Trust house_losses "
        "protected schedule smallest_scale worst_loss"
    ),
    "hushgrid.consumption": "Consumption Elasticity",
    "hushgrid.errors": (
        "ConsumptionError ExtraError FileError HorizonError HushgridError IntakeError "
        "LedgerError ModelError NeverMixes NoiseError PlanError PolicyError ReadingError "
        "ZoneError"
    ),
    "hushgrid.grid": "Tally Tariff Zone aggregate cost optimal_rate public_rate tally",
    "hushgrid.laws": "Gamma Histogram Law LogNormal TruncatedNormal Uniform",
    "hushgrid.mechanism": "Release State init step",
    "hushgrid.noise": "Noise SecureNoise SimulatedNoise",
    "hushgrid.occupancy": "OccupancyModel possible_states",
    "hushgrid.planning": "Plan plan",
    "hushgrid.policy": "Policy",
    "hushgrid.simulation": "Mechanism Scenario Trace play simulate",
    "hushgrid.window": "Window",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
