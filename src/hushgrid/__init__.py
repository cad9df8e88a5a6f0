"""hushgrid: real-time electricity prices that give away nobody's occupancy."""

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
    "Exposure",
    "ExtraError",
    "FileError",
    "Gamma",
    "Histogram",
    "HorizonError",
    "HushgridError",
    "IntakeError",
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
    "worst_loss",
]
