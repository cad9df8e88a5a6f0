"""One hypothesis profile for all: no deadlines (the machine decides), derandomised in CI."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "hushgrid",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("hushgrid")

os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # threads that wait sleep, as in the command line
