"""Conformance checks of calibrators and noise sources, built-in or third-party.

    from hushgrid.testing import check_calibrator
    check_calibrator(MyCalibrator)

Each check raises AssertionError with what failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import product

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.errors import NoiseError
from hushgrid.mechanism.calibrators import Calibrator
from hushgrid.mechanism.exposure import Case
from hushgrid.mechanism.noise import Noise, pmf
from hushgrid.mechanism.policy import BlockRule, Policy
from hushgrid.mechanism.scheduler import exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Histogram, Law, Uniform
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Zone

NamedZone = tuple[str, Zone, list[OccupancyModel], Consumption]


def check_calibrator(
    make: Callable[[], Calibrator],
    *,
    etas: Iterable[float] = (0.0, 0.1, 1.0),
    blocks: BlockRule = "block",
) -> None:
    """Enumerate small zones: the noise suffices, is never zero, and depends on nothing else.

    Args:
        make: Creates the calibrator.
        etas: Trusts to check.
        blocks: Rule for houses that move together.

    Raises:
        AssertionError: If a check fails.
    """
    for name, zone, models, f in small_worlds():
        for eta, epsilon in product(etas, (0.2, 1.0)):
            policy = Policy(epsilon, horizon=3, eta=eta, blocks=blocks)
            exposures = exposures_of(models, zone, f, policy)
            calibrator, second = make(), make()
            for t in range(1, policy.horizon + 1):
                exposure = exposures.at(t)
                answer, repeated = (c.scale(exposure, policy) for c in (calibrator, second))
                place = f"{name}, eta {eta}, epsilon {epsilon}, step {t}"
                assert 0 < answer.scale < math.inf, f"{place}: scale {answer.scale}"
                assert answer.scale == repeated.scale, f"{place}: two calibrators, two scales"
                worst = max(worst_ratio(case, answer.scale, eta) for case in exposure.cases)
                assert worst <= epsilon + 1e-9, f"{place}: loses {worst}"
                assert worst - 1e-9 <= answer.loss <= epsilon + 1e-9, (
                    f"{place}: books {answer.loss}"
                )


def small_worlds() -> Iterator[NamedZone]:
    """Zones small enough to enumerate: one house, two, contradicting models, a locked pair.

    Yields:
        Name, zone, models and consumption.
    """
    stay, always, never = [[0.9, 0.1], [0.2, 0.8]], [[0.0, 1.0]] * 2, [[1.0, 0.0]] * 2
    skewed = Histogram([0.5, 0.3, 0.1, 0.05, 0.05]), Histogram([0.1, 0.1, 0.2, 0.3, 0.3])
    split = Histogram([0.5, 0, 0, 0, 0.5]), Histogram([0, 0, 1.0])
    two = Consumption.by_class(absent=[skewed[0], Uniform(2)], present=[skewed[1], Uniform(6)])

    def factored(*chains: list[list[float]]) -> OccupancyModel:
        return OccupancyModel.factored([row[0] for row in chains], [chains])

    yield "one house", Zone("z", [4]), [factored(stay)], _one_class(skewed)
    yield "bound above the laws", Zone("z", [9]), [factored(stay)], _one_class(skewed)
    yield "interior maximum", Zone("z", [4]), [factored(stay)], _one_class(split)
    yield "two houses", Zone("z", [4, 6]), [factored(stay, stay)], two
    yield "one certain", Zone("z", [4, 6]), [factored(stay, never)], two
    yield "contradicting", Zone("z", [4]), [factored(always), factored(never)], _one_class(skewed)
    yield "nothing open", Zone("z", [4]), [factored(never)], _one_class(skewed)
    locked = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
    yield "locked", Zone("z", [4, 6]), [locked], two


def _one_class(pair: tuple[Law, Law]) -> Consumption:
    return Consumption.by_class(absent=[pair[0]], present=[pair[1]])


def worst_ratio(case: Case, scale: float, eta: float) -> float:
    """The largest |log ratio| of any output for a case, by enumeration of outputs and worlds.

    Worlds within eta: each law mixed with a point mass anywhere, free on either side.

    Args:
        case: Laws of the readings in two protected states.
        scale: Scale of the noise [Wh].
        eta: Share of each law that may be any other.

    Returns:
        The loss.
    """
    befores = [_contaminate(law, u, eta) for law, u in zip(case.before, case.bound, strict=True)]
    afters = [_contaminate(law, u, eta) for law, u in zip(case.after, case.bound, strict=True)]
    ends = [_outputs(list(world), scale) for world in product(*befores)]
    flipped = [_outputs(list(world), scale) for world in product(*afters)]
    high, low = np.max(ends, axis=0), np.min(ends, axis=0)
    flipped_high, flipped_low = np.max(flipped, axis=0), np.min(flipped, axis=0)
    return float(np.log(np.maximum(high / flipped_low, flipped_high / low)).max())


def _contaminate(law: Law, bound: int, eta: float) -> list[Floats]:
    f = np.zeros(bound + 1)
    f[: law.top + 1] = law.pmf
    if eta == 0:
        return [f]
    return [(1 - eta) * f + eta * point for point in np.eye(bound + 1)]


def _outputs(laws: list[Floats], scale: float, margin: int = 20) -> Floats:
    """Probabilities of load + noise, from `margin` below the least load to beyond the most."""
    load = reduce(np.convolve, laws)
    k = np.arange(-margin, load.size + margin)
    return np.asarray(pmf(k[:, None] - np.arange(load.size), scale) @ load)


def check_noise(noise: Noise, *, draws: int = 20_000, scale: float = 7.5) -> None:
    """Whole numbers with the integer Laplace law (chi-square), and no draw at an invalid scale.

    Outcomes are pooled until each cell expects 25 draws or more, where the chi-square law holds:
    the test fails a perfect source about once in a million runs.

    Args:
        noise: The source.
        draws: Number of draws.
        scale: Scale of the noise [Wh].

    Raises:
        AssertionError: If a check fails.
    """
    reach = int(scale * math.log(draws)) + 1
    _check_law([noise.draw(scale) for _ in range(draws)], pmf(np.arange(-reach, reach + 1), scale))
    for useless in (0.0, -1.0, math.nan, math.inf):
        try:
            noise.draw(useless)
        except NoiseError:
            continue
        raise AssertionError(f"scale {useless} was not refused")


def _check_law(sample: list[int], chance: Floats) -> None:
    """Draws against the chances of -reach..reach: chi-square at one in a million."""
    from scipy.special import chdtri

    assert all(isinstance(k, int) for k in sample), "draws are not whole numbers"
    draws, reach = len(sample), len(chance) // 2
    cell_of, expected = _pool_cells(draws * chance, least=25.0)
    assert expected.size > 1, f"{draws} draws are nearly all 0: give more draws or a larger scale"
    expected[[0, -1]] += (draws - expected.sum()) / 2  # what lies beyond the reach, on each side
    inside = np.clip(np.array(sample), -reach, reach) + reach
    counts = np.bincount(cell_of[inside], minlength=expected.size)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    limit = float(chdtri(expected.size - 1, 1e-6))
    assert statistic < limit, f"chi-square {statistic:.1f} is above {limit:.1f}"


def _pool_cells(expected: Floats, least: float) -> tuple[Ints, Floats]:
    """Neighbouring outcomes joined until each cell expects `least`: (cell of outcome, cells)."""
    cells, filled, cell = np.empty(expected.size, np.int64), 0.0, 0
    for k, count in enumerate(expected):
        cells[k] = cell
        filled += count
        if filled >= least:
            cell, filled = cell + 1, 0.0
    cells[cells == cell] = cell - 1  # the rest joins the last full cell
    return cells, np.bincount(cells, expected).astype(np.float64)
