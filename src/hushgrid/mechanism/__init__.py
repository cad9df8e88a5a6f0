"""How much noise an epsilon needs: possible states, protected houses, scale.

`support` finds who is uncertain and how occupancies can differ, `loss` is the calculus of one
house, `calibrators` turn both into a scale, `schedule` does so for every step.
"""

from hushgrid.mechanism.calibrators import (
    Answer,
    Calibrator,
    Naive,
    TrustCalibrator,
    case_loss,
    smallest_scale,
    worst_loss,
)
from hushgrid.mechanism.exposure import Case, Exposure, Exposures
from hushgrid.mechanism.scheduler import (
    Calibration,
    Scheduler,
    cases_of,
    exposures_of,
    house_losses,
    schedule,
)
from hushgrid.mechanism.support import Protected, protected

__all__ = [
    "Answer",
    "Calibration",
    "Calibrator",
    "Case",
    "Exposure",
    "Exposures",
    "Naive",
    "Protected",
    "Scheduler",
    "TrustCalibrator",
    "case_loss",
    "cases_of",
    "exposures_of",
    "house_losses",
    "protected",
    "schedule",
    "smallest_scale",
    "worst_loss",
]
