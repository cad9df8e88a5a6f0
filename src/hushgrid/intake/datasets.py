"""Public data sets of meter readings that a reader can fetch: layouts, and what they should hold.

Facts of their documentation. Nothing is downloaded, and nothing of a set is part of this package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from hushgrid.intake.eco import TOO_FEW
from hushgrid.intake.readings import Fault, Parsed, Reason, merge_reasons

DAY = 86_400  # [s]


@dataclass(frozen=True, slots=True)
class PublicDataset:
    """A public data set.

    Attributes:
        name: Short name.
        title: Its title.
        publisher: Who publishes it.
        licence: Under which licence.
        layouts: Names of the mappings of its files; "eco_day" is a form of its own.
        interval: Length of a reading [s].
        meter: What the id of a home looks like.
        homes: How many homes it has; None: not stated.
        first: Begin of its first day [s UTC since 1970], or earlier.
        last: End of its last day, or later.
        note: What a reader should know, in a sentence.
    """

    name: str
    title: str
    publisher: str
    licence: str
    layouts: tuple[str, ...]
    interval: int
    meter: str
    homes: int | None
    first: int
    last: int
    note: str


LCL = PublicDataset(
    "lcl", "Low Carbon London, smart meters", "UK Power Networks, London Datastore",
    "Creative Commons Attribution", ("lcl", "lcl_blocks"), 1800, r"MAC\d{6}", 5567,
    1_320_019_200, 1_393_718_400,  # 31 October 2011 to 1 March 2014
    "Times are read as UTC, which British meters keep the year round.",
)  # fmt: skip
SGSC = PublicDataset(
    "sgsc", "Smart-Grid Smart-City Customer Trial, interval readings",
    "Commonwealth of Australia, data.gov.au", "CC BY 3.0 AU", ("sgsc",), 1800, r"\d{6,9}", None,
    1_262_304_000, 1_420_070_400,  # 2010 to 2014
    "A reading is general supply and controlled load, without generation; times are standard time.",
)  # fmt: skip
AUSGRID = PublicDataset(
    "ausgrid", "Ausgrid solar home electricity data", "Ausgrid", "terms in Ausgrid's notes",
    ("ausgrid", "ausgrid_2010"), 1800, r"\d{1,3}", 300,
    1_277_856_000, 1_372_636_800,  # July 2010 to June 2013
    "General consumption alone: controlled load (CL) and generation (GG) are left out.",
)  # fmt: skip
ECO = PublicDataset(
    "eco", "ECO, electricity consumption and occupancy", "ETH Zurich, doi 10.5905/ethz-1007-35",
    "CC BY 4.0", ("eco_day", "eco_15min"), 900, r"eco-\d{2}", 6,
    1_338_249_600, 1_359_763_200,  # 29 May 2012 to 1 February 2013
    "A reading is the mean power of a quarter hour of which nine seconds in ten are there.",
)  # fmt: skip
DATASETS = (LCL, SGSC, AUSGRID, ECO)
BY_NAME: Mapping[str, PublicDataset] = MappingProxyType({each.name: each for each in DATASETS})


class KnownFile(NamedTuple):
    """A file whose digest is known.

    Attributes:
        dataset: Name of its data set.
        words: What it holds.
    """

    dataset: str
    words: str


KNOWN_FILES: Mapping[str, KnownFile] = MappingProxyType(
    {  # by SHA-256
        "82b0ab85aeb9046fa1e086da62592f52855735320c5bcae249e58c33940979b8": KnownFile(
            "lcl", "100 homes of Low Carbon London in 2013, canonical columns"
        ),
        "31302348481aa8a67b01e3cdd62e2fa866ceba574075b6a96881ef45ff75ecdb": KnownFile(
            "sgsc", "50 homes of Smart-Grid Smart-City in 2013, canonical columns"
        ),
        "d03ab5ae5536a08d0cd1a82324e8d751c8dcb47a89b769a46966494a9d024d2e": KnownFile(
            "eco", "household 2 of ECO in quarter hours, summer of 2012"
        ),
    }
)


def of_meters(ids: tuple[str, ...]) -> PublicDataset | None:
    """The data set whose homes alone are named so, where the columns do not say it.

    Args:
        ids: Ids of homes.

    Returns:
        Low Carbon London, or None: the others have plain numbers.

    >>> of_meters(("MAC000002",)).name, of_meters(("1234567",))
    ('lcl', None)
    """
    return LCL if ids and all(re.fullmatch(LCL.meter, name) for name in ids) else None


_EMPTY = Fault.VALUE_MISSING.text, TOO_FEW


@dataclass(slots=True)
class _Home:
    """What was read of a home."""

    readings: int = 0
    first: int = 2**53
    last: int = 0
    wh: int = 0


@dataclass(slots=True)
class DatasetTally:
    """What batches of readings hold, in memory that grows with the number of homes alone.

    Attributes:
        readings: How many.
        malformed: Rows that gave none.
        reasons: Why, and what was left out.
        durations: Readings by their length [s].
        homes: What was read of each home.
    """

    readings: int = 0
    malformed: int = 0
    reasons: tuple[Reason, ...] = ()
    durations: dict[int, int] = field(default_factory=dict)
    homes: dict[str, _Home] = field(default_factory=dict)

    def add(self, parsed: Parsed) -> None:
        """Count a batch."""
        readings = parsed.readings
        self.readings += len(readings)
        self.malformed += parsed.malformed
        self.reasons = merge_reasons(self.reasons, parsed.reasons)
        lengths, counts = np.unique(readings.duration, return_counts=True)
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
            self.durations[length] = self.durations.get(length, 0) + count
        order = np.argsort(readings.code, kind="stable")
        ends = np.cumsum(np.bincount(readings.code, minlength=len(readings.ids)))
        for name, rows in zip(readings.ids, np.split(order, ends[:-1]), strict=True):
            if len(rows):
                home = self.homes.setdefault(name, _Home())
                home.readings += len(rows)
                home.first = min(home.first, int(readings.start[rows].min()))
                home.last = max(home.last, int((readings.start + readings.duration)[rows].max()))
                home.wh += int(readings.wh[rows].sum())

    @property
    def empty(self) -> int:
        """Rows without a value: readings that are missing, which is no fault of a file."""
        return sum(reason.rows for reason in self.reasons if reason.text in _EMPTY)

    @property
    def interval(self) -> int:
        """Length of most readings [s]; 0 without any."""
        return max(self.durations, key=lambda length: self.durations[length], default=0)

    @property
    def first(self) -> int:
        """Begin of the first reading [s UTC since 1970]."""
        return min((home.first for home in self.homes.values()), default=0)

    @property
    def last(self) -> int:
        """End of the last reading [s UTC since 1970]."""
        return max((home.last for home in self.homes.values()), default=0)

    @property
    def missing(self) -> float:
        """Share of the intervals between each home's first and last that have no reading."""
        due = sum((home.last - home.first) // self.interval for home in self.homes.values())
        return max(1 - self.readings / due, 0.0) if due else 0.0

    @property
    def kwh_a_day(self) -> float:
        """Mean energy of a home in a day of readings [kWh]."""
        seconds = sum(length * count for length, count in self.durations.items())
        wh = sum(home.wh for home in self.homes.values())
        return wh / 1000 * DAY / seconds if seconds else 0.0


_ODD_SHARE = 0.05  # of rows or readings, above which something is wrong with a file
_MOST_MISSING = 0.4  # share of readings
_USUAL_DAY = 0.5, 200.0  # [kWh] of a mean home


def problems_of(tally: DatasetTally, dataset: PublicDataset | None) -> list[str]:
    """What is wrong with readings, in sentences that hold no reading.

    Args:
        tally: What was read.
        dataset: The data set they should be of; None: of no known one.

    Returns:
        The sentences; none where nothing is.
    """
    if not tally.readings:
        return [_no_readings(tally)]
    problems = []
    wrong, rows = tally.malformed - tally.empty, tally.readings + tally.malformed
    if wrong > _ODD_SHARE * rows:
        problems.append(f"{wrong / rows:.0%} of its rows give no reading, first {_first(tally)}.")
    if tally.missing > _MOST_MISSING:
        problems.append(
            f"{tally.missing:.0%} of the readings between each home's first and last are missing."
        )
    interval = tally.interval if dataset is None else dataset.interval
    odd = tally.readings - tally.durations.get(interval, 0)
    if odd > _ODD_SHARE * tally.readings:
        problems.append(
            f"{odd / tally.readings:.0%} of its readings do not last {interval // 60} minutes, as"
            " they should."
        )
    repeated = sum(
        home.readings > (home.last - home.first) / tally.interval for home in tally.homes.values()
    )
    if repeated:
        problems.append(
            f"{repeated} of {len(tally.homes)} homes have more readings than intervals: some are"
            " repeated; each is counted once where it is used."
        )
    low, high = _USUAL_DAY
    if not low <= tally.kwh_a_day <= high:
        problems.append(
            f"a mean home takes {tally.kwh_a_day:.3g} kWh a day, where 2 to 50 are usual; look"
            " whether the unit is another one."
        )
    return problems if dataset is None else [*problems, *_unlike(tally, dataset)]


def _no_readings(tally: DatasetTally) -> str:
    if tally.reasons:
        return f"none of its rows is a reading, first {_first(tally)}."
    return "it holds no reading; give a file of the data set."


def _first(tally: DatasetTally) -> str:
    faults = [r for r in tally.reasons if r.text not in (*_EMPTY, Fault.LEFT_OUT.text)]
    most = max(faults or tally.reasons, key=lambda reason: reason.rows)
    return f"{most.first}: {most.text}"


def _unlike(tally: DatasetTally, dataset: PublicDataset) -> list[str]:
    """What the data set has otherwise."""
    problems, count = [], len(tally.homes)
    strange = sum(re.fullmatch(dataset.meter, name) is None for name in tally.homes)
    if strange:
        problems.append(
            f"{strange} of {count} homes are not named as those of {dataset.title} are."
        )
    if dataset.homes is not None and count > dataset.homes:
        problems.append(f"it has {count} homes, and {dataset.title} {dataset.homes}.")
    if tally.first < dataset.first or tally.last > dataset.last:
        problems.append(f"it has readings outside the time of {dataset.title}.")
    return problems
