"""Algorithm 1: protected houses, exposure, noise scale, release.

`support` finds which houses are uncertain and how occupancies can differ, `exposure` how that
changes the law of the load, `calibrators` turn it into a noise scale, `scheduler` does so for every
step, `release` publishes.
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
