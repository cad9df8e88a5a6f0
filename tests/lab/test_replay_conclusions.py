"""What is recommended from figures, and what is said that cannot be concluded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.errors import IntakeError
from hushgrid.lab.conclusions import assumptions, check_homes, limits, mean_use, too_large
from hushgrid.lab.evidence import Estimate, OtherPrice, PromiseFigures
from hushgrid.lab.findings import MOST_ERROR, recommended
from hushgrid.learning.histories import Histories
from tests.lab.evidence import evidence

STEPS = 48 * 30


def histories(wh: np.ndarray) -> Histories:
    local = np.arange(wh.shape[1]) * 1800
    return Histories(tuple(f"h{n}" for n in range(len(wh))), wh, 1800, 0, local, {})


def homes(count: int = 10) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.round(rng.lognormal(5, 0.8, (count, STEPS)))


def estimate(mean: float) -> Estimate:
    return Estimate(mean, (0.9 * mean, 1.1 * mean))


def promise(window: str | None, epsilon: float, error: float) -> tuple[PromiseFigures, ...]:
    secret = "window" if window else "interval"
    return tuple(
        PromiseFigures(
            secret=secret, window=window, epsilon=epsilon, ahead=ahead, error=estimate(error)
        )  # type: ignore[arg-type]
        for ahead in (False, True)
    )


def flat(error: float) -> tuple[OtherPrice, ...]:
    return (
        OtherPrice(name="flat", label="flat price", gives_away="nothing", ahead=False,
                   error=estimate(error)),
        OtherPrice(name="rolling_mean", label="mean", gives_away="past days", ahead=False,
                   error=estimate(0.01)),
    )  # fmt: skip


def test_the_longest_window_with_a_small_error_is_recommended() -> None:
    figures = (*promise("P1D", 0.5, 0.06), *promise("P1D", 1.0, 0.05), *promise("P7D", 0.5, 0.11),
               *promise("P7D", 1.0, 0.08), *promise("P14D", 1.0, 0.12),
               *promise("P14D", 2.0, 0.07), *promise(None, 1.0, 0.02))  # fmt: skip
    terms = recommended(figures, flat(0.3), 1000)
    assert (terms.secret, terms.window, terms.epsilon) == ("window", "P7D", 1.0)
    assert terms.ahead
    assert any("8.0 %" in reason for reason in terms.reason)


def test_the_smallest_epsilon_of_a_window_is_taken() -> None:
    figures = (*promise("P14D", 1.0, 0.05), *promise("P14D", 0.5, MOST_ERROR))
    assert recommended(figures, flat(0.3), 1000).epsilon == 0.5


def test_a_price_that_is_hardly_better_than_none_from_readings_is_not_recommended() -> None:
    figures = (*promise("P1D", 1.0, 0.095), *promise(None, 1.0, 0.08))
    terms = recommended(figures, flat(0.1), 80)
    assert terms.window is None
    assert any("80 homes" in reason for reason in terms.reason)
    assert any("does not hide an absence" in reason for reason in terms.reason)
    assert recommended(figures, flat(0.12), 80).window == "P1D"


def test_without_figures_nothing_is_recommended() -> None:
    assert recommended(promise("P1D", 1.0, 0.1), (), 80).window is None


def test_a_year_of_many_homes_has_no_limits() -> None:
    made = evidence()
    assert limits(made.found, made.terms) == ()
    assert len(assumptions(made.terms, made.found)) >= 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"homes": 12}, "12 homes"),
        ({"judged_days": 20}, "over 20 days"),
        ({"days": 200}, "not a year"),
        ({"missing": 0.4}, "nothing can be concluded"),
        ({"missing": 0.15}, "somewhat larger"),
        ({"mean_kwh": 12_000.0}, "--usual"),
    ],
)
def test_each_limit_is_said(change: dict[str, float], words: str) -> None:
    made = evidence()
    (limit,) = limits(replace(made.found, **change), made.terms)  # type: ignore[arg-type]
    assert words in limit


def test_one_home_with_values_no_home_has_is_left_out_and_many_are_refused() -> None:
    wh = homes()
    check_homes(histories(wh))
    assert not too_large(histories(wh)).any()
    wh[3] *= 1000
    check_homes(histories(wh))
    assert too_large(histories(wh)).tolist() == [n == 3 for n in range(10)]
    with pytest.raises(IntakeError, match="give --unit Wh"):
        check_homes(histories(homes() * 1000))
    with pytest.raises(IntakeError, match="give --unit kWh"):
        check_homes(histories(homes() / 1000))


def test_readings_without_any_value_are_refused() -> None:
    with pytest.raises(IntakeError, match="0 Wh or below"):
        check_homes(histories(np.full((3, STEPS), np.nan)))


def test_the_mean_use_is_of_a_year() -> None:
    assert mean_use(np.full((2, STEPS), 100.0), 1800) == pytest.approx(48 * 365 * 0.1)
