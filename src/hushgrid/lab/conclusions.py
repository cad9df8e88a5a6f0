"""What the figures of a replay assume, and what cannot be concluded from its readings."""

from __future__ import annotations

import numpy as np

from hushgrid._numbers import Bools, Floats
from hushgrid.errors import IntakeError
from hushgrid.lab.evidence import Contents, PlayedTerms
from hushgrid.learning.histories import MOST_W, Histories, ailments

FEW_HOMES, FEW_DAYS, MUCH_MISSING, MOST_MISSING = 50, 60, 0.10, 0.30
_OFF = 2.0  # times the published use of a home
_MEAN_W = 100_000.0  # [W], of a home over its whole history
_MOST_UNITS = 0.5  # share of homes whose values are off by 1000


def check_homes(histories: Histories) -> None:
    """Refuse readings that no replay can say anything about.

    Args:
        histories: The readings of all homes.

    Raises:
        IntakeError: If there are less than two homes, all values are 0, or values are in another
            unit than was taken.
    """
    homes = len(histories.ids)
    if homes < 2:
        raise IntakeError(
            f"readings has {homes} home, and a price from one home is that home's load; give the"
            " file of a zone, 50 homes or more."
        )
    if not np.nanmax(np.where(np.isfinite(histories.wh), histories.wh, 0.0)) > 0:
        raise IntakeError(
            "every reading is 0 Wh or below; give the register of energy taken from the grid."
        )
    off = sum("units" in home for home in ailments(histories))
    if off > _MOST_UNITS * homes:
        watts = float(np.nanmean(histories.wh)) * 3600 / histories.seconds
        size, unit = ("small", "kWh") if watts < 100 else ("large", "Wh")
        raise IntakeError(
            f"the values of {off} of {homes} homes are far too {size} for a home's use; give"
            f" --unit {unit}, or the mapping of the file."
        )


def too_large(histories: Histories) -> Bools:
    """Homes whose values no home can have; a single one would decide every price.

    Args:
        histories: The readings of all homes.

    Returns:
        (homes,).
    """
    watts = np.where(np.isfinite(histories.wh), histories.wh, 0.0) * 3600 / histories.seconds
    return np.asarray((watts.mean(axis=1) > _MEAN_W) | (np.quantile(watts, 0.999, axis=1) > MOST_W))


def assumptions(terms: PlayedTerms, contents: Contents) -> tuple[str, ...]:
    """What the figures assume.

    Args:
        terms: What was played.
        contents: What the files hold.

    Returns:
        A sentence each.
    """
    train = contents.days - contents.judged_days
    return (
        "Homes would have used as much at private prices as they did: nobody reacts to prices"
        " here.",
        f"Errors are over {contents.judged_days} days; the filter has followed the {train} days"
        " before them, so they are of a zone that has run for a while.",
        "Intervals of 95 % are over days. Days that follow each other are alike, so they are"
        " somewhat too narrow.",
        "Readings that are missing are filled with what is usual for such homes; exact prices have"
        " them, too.",
        f"The contract bound is {terms.bound:,} Wh an interval ({terms.bound_from}); readings above"
        " it are cut.",
        f"A home uses {terms.usual:,.0f} kWh in a year ({terms.usual_from}); the base of the filter"
        " and what is put back above the clamp follow from it and the published load shape.",
        f"The tariff: {terms.tariff} ({terms.tariff_from}).",
        "The promise about any interval uses a model of when homes are in use, learned here from"
        f" the first {train} days without noise. A service has to learn it in another way. Promises"
        " about any day, week or two weeks use no model.",
        "The attacker knows the readings of every other home, the noise's law and the tariff, and"
        " tells two stories of one home apart as well as any test can: used as recorded, or on"
        " standby. Of the other homes nothing is hidden from it.",
        "Noise is drawn from the law of the service's noise, by a seeded source; a service draws"
        " it in secret.",
    )


def limits(contents: Contents, terms: PlayedTerms) -> tuple[str, ...]:
    """What cannot be concluded.

    Args:
        contents: What the files hold.
        terms: What was played.

    Returns:
        A sentence each; none for a year of many homes without large gaps.
    """
    out = []
    if contents.homes < FEW_HOMES:
        out.append(
            f"With {contents.homes} homes the noise is as large as the load: these figures do not"
            " say what a larger zone would have."
        )
    if contents.judged_days < FEW_DAYS:
        out.append(
            f"Errors are over {contents.judged_days} days: nothing is said about other seasons."
        )
    elif contents.days < 330:
        out.append(f"{contents.days} days are not a year: some season is not in these figures.")
    if contents.missing > MOST_MISSING:
        out.append(
            f"{100 * contents.missing:.0f} % of the readings are missing and were filled in: errors"
            " and bills are of loads smoother than the true ones, and nothing can be concluded from"
            " them."
        )
    elif contents.missing > MUCH_MISSING:
        out.append(
            f"{100 * contents.missing:.0f} % of the readings are missing and were filled in: errors"
            " may be somewhat larger in truth."
        )
    if not 1 / _OFF <= contents.mean_kwh / terms.usual <= _OFF:
        out.append(
            f"A mean home uses {contents.mean_kwh:,.0f} kWh in a year, but {terms.usual:,.0f} were"
            " taken as published: look for the figure of your country and give it by --usual."
        )
    return tuple(out)


def mean_use(wh: Floats, seconds: int) -> float:
    """What a mean home uses in a year.

    Args:
        wh: (homes, steps): readings [Wh], NaN where missing.
        seconds: Length of a step [s].

    Returns:
        [kWh].
    """
    return float(np.nanmean(np.maximum(wh, 0))) * 365 * 86_400 / seconds / 1000
