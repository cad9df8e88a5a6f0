"""The prices of coming steps from what the public knows: post-processing, it costs no privacy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hushgrid.belief.estimate import LoadMixture
from hushgrid.belief.expected_rate import mean_rates
from hushgrid.belief.followed import Knowledge
from hushgrid.model.zone import Tariff, feed_in_rate


class ListedRates(NamedTuple):
    """Rates of consecutive steps.

    Attributes:
        rates: [currency/kWh]
        feed_in: Of what is fed in [currency/kWh]; None: the tariff has none.
    """

    rates: tuple[float, ...]
    feed_in: tuple[float, ...] | None


def expected_rates(
    knowledge: Knowledge, steps: int, number: int, rates: Sequence[float], tariff: Tariff
) -> ListedRates:
    """The rates of the loads that are foreseen; a list is not smoothed.

    Args:
        knowledge: What the public knows before a step.
        steps: How many steps later the first rate is for.
        number: How many rates.
        rates: Rates published so far [currency/kWh].
        tariff: The tariff.

    Returns:
        The rates.
    """
    knowledge, laws = knowledge.passed(steps), list[LoadMixture]()
    for _ in range(number):
        laws.append(knowledge.predicted(rates))
        knowledge = knowledge.passed()
    means = [float((law.weights * law.mean).sum()) for law in laws]
    feed_in = [feed_in_rate(mean, tariff) for mean in means]
    return ListedRates(
        tuple(mean_rates(laws, tariff)),
        tuple(rate for rate in feed_in if rate is not None) or None,
    )


def fallback_rates(rate: float, number: int, tariff: Tariff) -> ListedRates:
    """The rates where no model can be used.

    Args:
        rate: The fallback rate [currency/kWh].
        number: How many rates.
        tariff: The tariff.

    Returns:
        The rates.
    """
    fed = feed_in_rate(None, tariff)
    return ListedRates((float(rate),) * number, None if fed is None else (fed,) * number)


def carried_rates(
    listed: ListedRates, before: Sequence[float | None], tariff: Tariff
) -> ListedRates:
    """The rates of a list before, scaled to the expected ones.

    Args:
        listed: Expected rates.
        before: For each, the rate of the list before at the same time of day [currency/kWh]; None
            where it has none.
        tariff: The tariff.

    Returns:
        The rates; the expected ones where there is no rate before, or their sum is not above 0.

    >>> tariff = Tariff(1.0, 62.5)
    >>> carried_rates(ListedRates((3.0, 5.0), None), (1.0, 3.0), tariff).rates
    (2.0, 6.0)
    """
    pairs = [(old, new) for old, new in zip(before, listed.rates, strict=True) if old is not None]
    old_sum, new_sum = sum(old for old, _ in pairs), sum(new for _, new in pairs)
    if old_sum <= 0 or new_sum <= 0:
        return listed
    scaled = (
        rate if old is None else min(max(old * new_sum / old_sum, tariff.floor), tariff.cap)
        for old, rate in zip(before, listed.rates, strict=True)
    )
    return listed._replace(rates=tuple(scaled))
