"""How much Gaussian noise a whole horizon needs, as a multiple of the distance it hides."""

from __future__ import annotations

from functools import lru_cache

from hushgrid.accounting.compose import compose
from hushgrid.accounting.events import GaussianEvent
from hushgrid.errors import PlanError, PolicyError

_WIDE = 20_000  # [Wh]; at such widths the integer law depends on the multiple alone
_MOST = 5_000.0  # times the distance; beyond it the grid of losses is too coarse
_WIDTH = 1e-4  # relative width at which the search stops; the answer is the end that holds


@lru_cache(maxsize=256)
def noise_multiple(epsilon: float, delta: float, steps: int) -> float:
    """Smallest sigma/distance with (epsilon, delta) over `steps` integer Gaussian releases.

    >>> round(noise_multiple(1.0, 1e-6, 96), 1)
    41.4
    """
    if not 0 < delta < 1:
        raise PolicyError(f"delta is {delta}; Gaussian noise needs one between 0 and 1.")

    def holds(multiple: float) -> bool:
        distance = max(round(_WIDE / multiple), 1)
        return compose([GaussianEvent(distance, multiple * distance)] * steps, delta) <= epsilon

    high = 1.0
    while not holds(high):
        high *= 2
        if high > _MOST:
            raise PlanError(
                f"epsilon is {epsilon:g} at delta = {delta:g} over {steps} steps, which takes noise"
                f" above {_MOST:g} times the bound; give a larger epsilon."
            )
    low = high / 2
    while low > 1e-3 and holds(low):
        low, high = low / 2, low
    while high - low > _WIDTH * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
