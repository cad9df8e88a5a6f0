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
        rates: By start of the interval [UTC epoch s].
        period: Name of the period of a start [UTC epoch s].
        operator: Also cost at exact prices, what noise changed, and how far the mean price of the
            period was off. Secret: with a home's readings these give the exact prices, and so the
            load, back.

    Returns:
        A row for each, by period and meter. Energy of intervals without a published price, or with
        `operator` without an exact one, is `unpriced_wh` and in no cost.
    """
    starts, at = np.unique(readings.start, return_inverse=True)
    known = [rates.get(start) for start in starts.tolist()]
    priced = np.array([one is not None and not (operator and one.exact is None) for one in known])
    names, number = np.unique([period(start) for start in starts.tolist()], return_inverse=True)
    meters = len(readings.ids)
    place = number[at] * meters + readings.code
    wh, kept = readings.wh.astype(np.float64), priced[at]

    def added(values: Floats, some: Bools | None = None) -> Floats:
        own = values if some is None else values * some
        return np.asarray(np.bincount(place, own, len(names) * meters), np.float64)

    def of(pick: Callable[[BillRates], tuple[float, float]], power: int = 1) -> Floats:
        """What each reading costs; with power 2, the squares of its parts."""
        both = [(0.0, 0.0) if one is None or not ok else pick(one)
                for one, ok in zip(known, priced.tolist(), strict=True)]  # fmt: skip
        each = np.where(wh >= 0, *np.array(both).reshape(-1, 2)[at].T)
        return added((each * wh / 1000) ** power)

    columns: dict[str, Floats | Ints] = {
        "intervals": added(np.ones(len(wh))).astype(np.int64),
        "energy_wh": added(wh).astype(np.int64),
        "imported_wh": added(wh, wh > 0).astype(np.int64),
        "exported_wh": -added(wh, wh < 0).astype(np.int64),
        "unpriced_wh": added(wh, ~kept).astype(np.int64),
        "cost": of(lambda one: (one.rate, one.feed_in)),
    }
    if operator:
        exact = columns["cost_exact"] = of(lambda one: one.exact or (0.0, 0.0))
        share = np.divide(1.0, np.abs(exact), out=np.zeros_like(exact), where=exact != 0)
        spread = SURE * np.sqrt(of(lambda one: one.spread, 2))
        columns["noise_share"] = (columns["cost"] - exact) * share
        columns |= {"noise_share_low": -spread * share, "noise_share_high": spread * share}
        columns |= {
            key: np.repeat(part, meters) for key, part in _price_bias(known, priced, number).items()
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
    for i, one in enumerate(rates):
        if one is not None and one.exact is not None and priced[i]:
            values[:, i] = one.rate, one.exact[0], one.spread[0] ** 2
    paid, exact, variance = (np.asarray(np.bincount(period, row), np.float64) for row in values)
    size = np.abs(exact)
    share = np.divide(1.0, size, out=np.zeros_like(size), where=size != 0)
    return {
        "price_bias": (paid - exact) * share,
        "price_bias_noise": SURE * np.sqrt(variance) * share,
    }


def revenue(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What noise did to the zone's revenue. Secret, as the rows are.

    Args:
        rows: Rows for the operator.

    Returns:
        `revenue`, `revenue_exact` and `revenue_change` [currency], and the change as a share.
    """
    paid, exact = (sum(row[key] for row in rows) for key in ("cost", "cost_exact"))
    return {
        "revenue": _plain(paid),
        "revenue_exact": _plain(exact),
        "revenue_change": _plain(paid - exact),
        "revenue_change_share": _plain((paid - exact) / abs(exact)) if exact else 0.0,
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
    lost = sum(abs(row["unpriced_wh"]) for row in rows)
    lines += [f"{lost / 1000:.3f} kWh are of intervals without a price."] if lost else []
    return "\n".join(line.rstrip() for line in lines)
