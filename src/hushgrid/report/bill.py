"""Bills at published prices, and for the operator what noise did to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Indices, Ints
from hushgrid.intake.readings import Readings

SURE = 1.96  # standard deviations on either side that hold 95 %


class BillRates(NamedTuple):
    """The rates of one interval.

    Attributes:
        rate: Of what a home takes from the grid [currency/kWh].
        feed_in: Of what it feeds in [currency/kWh].
        exact: The rates without noise; None: not asked for, or not known.
        spread: Standard deviation that the noise gives each of both rates [currency/kWh].
    """

    rate: float
    feed_in: float
    exact: tuple[float, float] | None = None
    spread: tuple[float, float] = (0.0, 0.0)


def bill_rows(
    readings: Readings,
    rates: Mapping[int, BillRates],
    period: Callable[[int], str],
    *,
    operator: bool = False,
) -> list[dict[str, Any]]:
    """Energy and cost of each meter and period.

    Args:
        readings: One for each meter and interval, negative where it was fed in.
        rates: By start of the interval [UTC s].
        period: Name of the period of a start [UTC s].
        operator: Also cost at exact prices, what noise changed, and how far the mean price of the
            period was off. Secret: with a home's readings these give the exact prices, and so the
            load, back.

    Returns:
        A row for each, by period and meter. Energy of intervals without a published price, or with
        `operator` without an exact one, is `unpriced_wh` and in no cost.
    """
    starts, at = np.unique(readings.start, return_inverse=True)
    rates_at = [rates.get(start) for start in starts.tolist()]
    priced = np.array(
        [
            bill_rates is not None and not (operator and bill_rates.exact is None)
            for bill_rates in rates_at
        ]
    )
    names, number = np.unique([period(start) for start in starts.tolist()], return_inverse=True)
    meters = len(readings.ids)
    place = number[at] * meters + readings.code
    wh, is_priced = readings.wh.astype(np.float64), priced[at]

    def added(values: Floats, mask: Bools | None = None) -> Floats:
        weights = values if mask is None else values * mask
        return np.asarray(np.bincount(place, weights, len(names) * meters), np.float64)

    def of(pick: Callable[[BillRates], tuple[float, float]], power: int = 1) -> Floats:
        """What each reading costs; with power 2, the squares of its parts."""
        pairs = [(0.0, 0.0) if bill_rates is None or not ok else pick(bill_rates)
                for bill_rates, ok in zip(rates_at, priced.tolist(), strict=True)]  # fmt: skip
        reading_rates = np.where(wh >= 0, *np.array(pairs).reshape(-1, 2)[at].T)
        return added((reading_rates * wh / 1000) ** power)

    columns: dict[str, Floats | Ints] = {
        "intervals": added(np.ones(len(wh))).astype(np.int64),
        "energy_wh": added(wh).astype(np.int64),
        "imported_wh": added(wh, wh > 0).astype(np.int64),
        "exported_wh": -added(wh, wh < 0).astype(np.int64),
        "unpriced_wh": added(wh, ~is_priced).astype(np.int64),
        "cost": of(lambda bill_rates: (bill_rates.rate, bill_rates.feed_in)),
    }
    if operator:
        exact = columns["cost_exact"] = of(lambda bill_rates: bill_rates.exact or (0.0, 0.0))
        share = np.divide(1.0, np.abs(exact), out=np.zeros_like(exact), where=exact != 0)
        spread = SURE * np.sqrt(of(lambda bill_rates: bill_rates.spread, 2))
        columns["noise_share"] = (columns["cost"] - exact) * share
        columns |= {"noise_share_low": -spread * share, "noise_share_high": spread * share}
        columns |= {
            key: np.repeat(part, meters)
            for key, part in _price_bias(rates_at, priced, number).items()
        }
    rows = np.flatnonzero(columns["intervals"])
    return [
        {"meter_id": readings.ids[row % meters], "period": str(names[row // meters])}
        | {key: _plain(values[row]) for key, values in columns.items()}
        for row in sorted(
            rows.tolist(), key=lambda row: (row // meters, readings.ids[row % meters])
        )
    ]


def _price_bias(
    rates: Sequence[BillRates | None], priced: Bools, period: Indices
) -> dict[str, Floats]:
    """How far the mean price of each period was off, and what noise keeps it below with 95 %.

    What is more than noise is off in one direction for all homes: an estimate that starts, or the
    energy above a clamp that is put back by a public expectation.
    """
    values = np.zeros((3, len(priced)))
    for i, bill_rates in enumerate(rates):
        if bill_rates is not None and bill_rates.exact is not None and priced[i]:
            values[:, i] = bill_rates.rate, bill_rates.exact[0], bill_rates.spread[0] ** 2
    published, exact, variance = (
        np.asarray(np.bincount(period, row), np.float64) for row in values
    )
    size = np.abs(exact)
    share = np.divide(1.0, size, out=np.zeros_like(size), where=size != 0)
    return {
        "price_bias": (published - exact) * share,
        "price_bias_noise": SURE * np.sqrt(variance) * share,
    }


def revenue(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What noise did to the zone's revenue. Secret, as the rows are.

    Args:
        rows: Rows for the operator.

    Returns:
        `revenue`, `revenue_exact` and `revenue_change` [currency], and the change as a share.
    """
    published, exact = (sum(row[key] for row in rows) for key in ("cost", "cost_exact"))
    return {
        "revenue": _plain(published),
        "revenue_exact": _plain(exact),
        "revenue_change": _plain(published - exact),
        "revenue_change_share": _plain((published - exact) / abs(exact)) if exact else 0.0,
    }


def _plain(value: Any) -> Any:
    """A number for a table: money and shares to a millionth."""
    return int(value) if isinstance(value, np.integer) else round(float(value), 6)


def bill_prose(rows: list[dict[str, Any]], currency: str) -> str:
    """A table of bills for people.

    Args:
        rows: Rows of bills.
        currency: Of the costs; may be empty.

    Returns:
        Lines of text.
    """
    lines = [f"{'meter':<20} {'period':<10} {'kWh':>10} {'fed in':>10} {'cost':>12} {currency}"]
    lines += [
        f"{row['meter_id']:<20} {row['period']:<10} {row['imported_wh'] / 1000:>10.3f}"
        f" {row['exported_wh'] / 1000:>10.3f} {row['cost']:>12.2f}"
        for row in rows
    ]
    unpriced = sum(abs(row["unpriced_wh"]) for row in rows)
    lines += [f"{unpriced / 1000:.3f} kWh are of intervals without a price."] if unpriced else []
    return "\n".join(line.rstrip() for line in lines)
