"""How much noise an epsilon needs: possible states, protected houses, scale.

`support` finds who is uncertain and how occupancies can differ, `loss` is the calculus of one
house, `calibrators` turn both into a scale, `schedule` does so for every step.
"""

from hushgrid.calibration.calibrators import Answer, Calibrator, Naive, TrustCalibrator, case_loss
from hushgrid.calibration.cases import Case, Exposure, Exposures
from hushgrid.calibration.loss import smallest_scale, worst_loss
from hushgrid.calibration.schedule import (
    Calibration,
    Scheduler,
    cases_of,
    exposures_of,
    house_losses,
    schedule,
)
from hushgrid.calibration.support import Protected, protected

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
